import { HubError } from "../errors.ts";

/*
 * Hubs within hubs. A server of a hub may be a hub itself, or start one; if that one has the same manifest, it would start the
 * same servers again, and so on without end. So every server gets the list of the hubs above it in its environment, and a hub
 * that is in that list already does not start.
 */

/** The environment variable with the hubs above a process, the outermost first: `<pid>:<manifest>,…`. Children inherit it. */
export const HUBS_VARIABLE = "TOOLMUX_HUBS";

/** So many hubs may be above one. */
export const MOST_NESTED = 8;

/** One of the hubs above a process. */
export interface OuterHub {
  readonly pid: number;
  /** Equal for equal manifests: letters and digits. undefined: it is not told, and counts for the depth only. */
  readonly manifest: string | undefined;
}

/** Entries that no hub wrote are left out. @returns the outermost first */
export function readHubs(value = ""): readonly OuterHub[] {
  return value.split(",").flatMap((entry): readonly OuterHub[] => {
    const [, pid, manifest] = /^([1-9]\d{0,9}):(\w*)$/.exec(entry) ?? [];
    return pid === undefined ? [] : [{ pid: Number(pid), manifest: manifest || undefined }];
  });
}

/** @returns undefined if there is none above */
export function writeHubs(hubs: readonly OuterHub[]): string | undefined {
  if (hubs.length === 0) return undefined;
  return hubs.map(({ pid, manifest = "" }) => `${pid}:${manifest}`).join(",");
}

/**
 * The same hubs without their manifests: they still count for the depth. For whoever starts a hub that is nobody's server, as
 * a measurement does.
 */
export function withoutManifests(value: string | undefined): string | undefined {
  return writeHubs(readHubs(value).map(({ pid }) => ({ pid, manifest: undefined })));
}

/**
 * Refuses a hub that is above itself, or too deep.
 * @param outer the hubs above this process
 * @param manifest of the hub that is to start
 * @param repeats how many hubs above may have the same manifest: 0 for one that serves; 1 for a command that looks at what a
 * manifest holds, which a server may run without starting itself again
 * @throws {HubError} hubLoop
 */
export function checkNesting(outer: readonly OuterHub[], manifest: string, repeats: number): void {
  const same = outer.filter((hub) => hub.manifest === manifest);
  const [first] = same;
  if (first !== undefined && same.length > repeats) {
    throw new HubError(
      "hubLoop",
      `This toolmux was started by a server of the hub with process ID ${first.pid}, which has the same manifest: they would start each other without end. Take the server that starts toolmux out of the manifest, or give that toolmux another one (--config).`,
    );
  }
  if (outer.length <= MOST_NESTED) return;
  throw new HubError(
    "hubLoop",
    `There are ${outer.length} hubs above this toolmux, each started by a server of the one before, and no more than ${MOST_NESTED} are allowed.`,
  );
}
