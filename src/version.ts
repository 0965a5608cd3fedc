import manifest from "../package.json" with { type: "json" };

/** toolmux's own version, as in package.json. */
export const VERSION: string = manifest.version;
