import { Buffer } from "node:buffer";
import { lstat, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { readHmac, type Hmac } from "./hmac.ts";
import { decodeSnapshot } from "./record.ts";
import { snapshotFileName } from "./disk.ts";
import {
  isUsable,
  type StoredSnapshot,
  MAX_SNAPSHOT_BYTES,
  type SnapshotKey,
} from "./snapshots.ts";

/** One file among the snapshots, and what can be done with it. */
export interface SnapshotFile {
  readonly path: string;
  /** `broken`: it is not, to the last bit, what a hub has written there. `old`: too long ago, or by another toolmux. */
  readonly state: "usable" | "old" | "broken";
}

/** All snapshots that are there; looking at them changes nothing. */
export interface SnapshotSurvey {
  readonly files: readonly SnapshotFile[];
  /** That of the first subject that has one that can be used. */
  find(subjects: Iterable<SnapshotKey>): Promise<StoredSnapshot | undefined>;
}

const NOTHING: SnapshotSurvey = { files: [], find: () => Promise.resolve(undefined) };

/** @param folder the state folder @param now ms since the epoch */
export async function surveySnapshots(folder: string, now: number): Promise<SnapshotSurvey> {
  const place = join(folder, "snapshots");
  const names = (await readdir(place).catch(() => [])).filter((name) =>
    /^[0-9a-f]{64}$/.test(name),
  );
  if (names.length === 0) return NOTHING;
  const seal = await readHmac(folder);
  const kept = new Map<string, StoredSnapshot>();
  const files: SnapshotFile[] = [];
  for (const name of names) {
    const path = join(place, name);
    const bytes = await read(path);
    const record = bytes && seal && (await open(bytes, name, seal));
    const state = record === undefined ? "broken" : isCurrent(record, now) ? "usable" : "old";
    if (record !== undefined && isCurrent(record, now)) kept.set(name, record);
    files.push({ path, state });
  }
  return {
    files,
    find: async (subjects) => {
      if (seal === undefined || kept.size === 0) return undefined;
      for (const subject of subjects) {
        const found = kept.get(await snapshotFileName(subject, seal));
        if (found !== undefined) return found;
      }
      return undefined;
    },
  };
}

/** @returns what has the right seal and is read no more, as another toolmux has written it in its own form, as its name alone */
async function open(
  bytes: Buffer<ArrayBuffer>,
  name: string,
  seal: Hmac,
): Promise<StoredSnapshot | string | undefined> {
  return decodeSnapshot(bytes, name, seal).catch(() => name);
}

function isCurrent(record: StoredSnapshot | string, now: number): record is StoredSnapshot {
  return typeof record !== "string" && isUsable(record.savedAt, now);
}

async function read(path: string): Promise<Buffer<ArrayBuffer> | undefined> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isFile() !== true || stats.size > MAX_SNAPSHOT_BYTES) return undefined;
  return readFile(path).then(
    (bytes) => Buffer.from(bytes),
    () => undefined,
  );
}
