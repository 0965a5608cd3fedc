import { count, nounFor } from "../base/format.ts";
import { HubError } from "../base/errors.ts";

/*
 * Detection of hubs that start themselves. A server of a hub may be, or start, another hub; with the same manifest that
 * hub would start the same servers again, endlessly. Every server gets the list of its outer hubs in its environment,
 * and a hub whose manifest is in that list does not start.
 */

/**
 * The environment variable with the outer hubs of a process, outermost first: `<pid>:<manifest>,…`. Children inherit
 * it.
 */
export const HUBS_VARIABLE = "TOOLMUX_HUBS";

/** Maximum number of outer hubs. */
export const MAX_NESTED_HUBS = 8;

/** A hub that has started this process, directly or through other processes. */
export interface OuterHub {
  readonly pid: number;
  /**
   * A hash of the hub's manifest, in letters and digits; equal for equal manifests. undefined: the manifest is unknown,
   * and the hub counts only for the depth of nesting.
   */
  readonly manifest: string | undefined;
}

/** Parses the value of TOOLMUX_HUBS; malformed entries are ignored. @returns the hubs, outermost first */
export function parseOuterHubs(value = ""): readonly OuterHub[] {
  return value.split(",").flatMap((entry): readonly OuterHub[] => {
    const [, pid, manifest] = /^([1-9]\d{0,9}):(\w*)$/.exec(entry) ?? [];
    return pid === undefined ? [] : [{ pid: Number(pid), manifest: manifest || undefined }];
  });
}

/** Formats the value of TOOLMUX_HUBS. @returns undefined if there are no outer hubs */
export function formatOuterHubs(hubs: readonly OuterHub[]): string | undefined {
  if (hubs.length === 0) return undefined;
  return hubs.map(({ pid, manifest = "" }) => `${pid}:${manifest}`).join(",");
}

/**
 * Removes the manifests from a value of TOOLMUX_HUBS, so that the hubs count only for the depth of nesting. For the
 * environment of a hub that is not a server of this one, such as in a benchmark.
 */
export function withoutManifests(value: string | undefined): string | undefined {
  return formatOuterHubs(parseOuterHubs(value).map(({ pid }) => ({ pid, manifest: undefined })));
}

/**
 * Rejects a hub that is nested in a hub with the same manifest, or nested too deep.
 * @param outer the outer hubs of this process
 * @param manifest the hash of the manifest of the hub that is to start
 * @param allowedRepeats number of outer hubs that may have the same manifest: 0 for a hub that serves clients; 1 for a
 * command that only inspects a manifest: a server may run this command, which does not start the server again
 * @throws {HubError} hubLoop
 */
export function checkNesting(
  outer: readonly OuterHub[],
  manifest: string,
  allowedRepeats: number,
): void {
  const repeated = outer.filter((hub) => hub.manifest === manifest);
  const [first] = repeated;
  if (first !== undefined && repeated.length > allowedRepeats) {
    throw new HubError(
      "hubLoop",
      `This toolmux was started by a server of the hub with process ID ${first.pid}, which has the same manifest: they would start each other without end. Take the server that starts toolmux out of the manifest, or give that toolmux another one (--config).`,
    );
  }
  if (outer.length <= MAX_NESTED_HUBS) return;
  throw new HubError(
    "hubLoop",
    `There ${nounFor(outer.length, "is", "are")} ${count(outer.length, "hub")} above this toolmux, each started by a server of the one before, and no more than ${MAX_NESTED_HUBS} are allowed.`,
  );
}
