import manifest from "../../package.json" with { type: "json" };

/** The address below which the files of the project are published, from package.json; empty: none is known. */
const HOMEPAGE: string = manifest.homepage.replace(/\/$/, "");

/** The `$id` of the JSON Schema of manifests: its address, or a name while there is no homepage. */
export const SCHEMA_ID =
  HOMEPAGE === "" ? "urn:toolmux:manifest:1" : `${HOMEPAGE}/toolmux.schema.json`;

/** Returns the place of a page: its address, or its path in the project. @param path such as `docs/approval.md` */
export function pageOf(path: string): string {
  return HOMEPAGE === "" ? path : `${HOMEPAGE}/${path}`;
}
