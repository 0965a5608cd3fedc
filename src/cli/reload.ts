import type { Hub } from "../hub.ts";
import type { LoadOptions, LoadResult } from "../manifest/load.ts";
import { manifestError } from "../manifest/problem.ts";
import type { Manifest } from "../manifest/schema.ts";
import { watchManifest } from "../manifest/watch.ts";
import type { Basis, Log } from "./open.ts";

/**
 * Lets a running hub follow its manifest: what is loaded is put into force as a whole, or refused as a whole.
 * @returns what ends that.
 */
export function followManifest(
  hub: Hub,
  options: LoadOptions,
  basis: Basis,
  log: Log,
): { close(): void } {
  let { manifest } = basis;
  return watchManifest(options, {
    digest: basis.digest,
    onTrouble: (text) => log("warn", text),
    onLoad: (result) => {
      for (const note of result.notes) log("warn", note);
      const refusal = refuse(result, manifest);
      if (refusal !== undefined) {
        hub.refuse(refusal);
      } else if (result.ok) {
        ({ manifest } = result);
        hub.reload(manifest);
      }
    },
  });
}

/** Why the hub goes on with what it has: what is wrong, as `check` shows it. */
function refuse(result: LoadResult, { sources }: Manifest): string | undefined {
  // Without them there may be no manifest at all: that is not what is wrong.
  const changed = sources.filter((file) => result.distrusted.includes(file));
  if (changed.length > 0) {
    return changed.map((file) => `${file}: has changed since it was trusted`).join("\n");
  }
  return result.ok ? undefined : manifestError(result.problems).message;
}
