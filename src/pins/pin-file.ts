import { type PinnedDigests, type PinnedKind, pinKeyOf } from "../manifest/pin-file.ts";
import type { Definition } from "./definitions.ts";

/** A difference between a pin file and what servers list. */
export interface PinDifference {
  readonly server: string;
  /** Absent: the difference is about the whole server. */
  readonly kind?: PinnedKind;
  /** The name of the tool or prompt; "" for instructions; absent as `kind`. */
  readonly name?: string;
  /**
   * `changed`: the file has another digest; `notInFile`: only the server has it; `notListed`: only the file has it;
   * `noServer`: the file has a server that the manifest lacks.
   */
  readonly reason: "changed" | "notInFile" | "notListed" | "noServer";
}

/**
 * Compares a pin file with what servers list.
 * @param listed the definitions of each server that was listed
 * @param known the names of all servers of the manifest
 */
export function differencesFrom(
  file: ReadonlyMap<string, PinnedDigests>,
  listed: ReadonlyMap<string, readonly Definition[]>,
  known: readonly string[],
): readonly PinDifference[] {
  const differences: PinDifference[] = [];
  for (const [server, definitions] of listed) {
    const pinned = file.get(server);
    if (pinned === undefined) {
      differences.push({ server, reason: "notInFile" });
      continue;
    }
    const found = new Set<string>();
    for (const { kind, name, digest } of definitions) {
      const key = pinKeyOf(kind, name);
      found.add(key);
      const own = pinned.get(key);
      if (own === digest) continue;
      const reason = own === undefined ? "notInFile" : "changed";
      differences.push({ server, kind, name, reason });
    }
    for (const key of pinned.keys()) {
      if (found.has(key)) continue;
      const at = key.indexOf(" ");
      const kind = key.slice(0, at) as PinnedKind;
      differences.push({ server, kind, name: key.slice(at + 1), reason: "notListed" });
    }
  }
  for (const server of file.keys())
    if (!known.includes(server)) differences.push({ server, reason: "noServer" });
  return differences;
}
