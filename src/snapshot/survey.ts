import { Buffer } from "node:buffer";
import { lstat, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { readSeal, type Seal } from "./hmac.ts";
import { readRecord } from "./record.ts";
import { nameOf } from "./disk.ts";
import { isUsable, type Kept, MAX_LENGTH, type Subject } from "./snapshots.ts";

/** One file among the snapshots, and what can be done with it. */
export interface Surveyed {
  readonly path: string;
  /** `broken`: it is not, to the last bit, what a hub has written there. `old`: too long ago, or by another toolmux. */
  readonly state: "usable" | "old" | "broken";
}

/** All snapshots that are there; looking at them changes nothing. */
export interface Survey {
  readonly files: readonly Surveyed[];
  /** That of the first subject that has one that can be used. */
  find(subjects: Iterable<Subject>): Promise<Kept | undefined>;
}

const NOTHING: Survey = { files: [], find: () => Promise.resolve(undefined) };

/** @param folder the state folder @param now ms since the epoch */
export async function surveySnapshots(folder: string, now: number): Promise<Survey> {
  const place = join(folder, "snapshots");
  const names = (await readdir(place).catch(() => [])).filter((name) =>
    /^[0-9a-f]{64}$/.test(name),
  );
  if (names.length === 0) return NOTHING;
  const seal = await readSeal(folder);
  const kept = new Map<string, Kept>();
  const files: Surveyed[] = [];
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
        const found = kept.get(await nameOf(subject, seal));
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
  seal: Seal,
): Promise<Kept | string | undefined> {
  return readRecord(bytes, name, seal).catch(() => name);
}

function isCurrent(record: Kept | string, now: number): record is Kept {
  return typeof record !== "string" && isUsable(record.savedAt, now);
}

async function read(path: string): Promise<Buffer<ArrayBuffer> | undefined> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isFile() !== true || stats.size > MAX_LENGTH) return undefined;
  return readFile(path).then(
    (bytes) => Buffer.from(bytes),
    () => undefined,
  );
}
