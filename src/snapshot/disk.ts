import { Buffer, isUtf8 } from "node:buffer";
import { lstat, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { type ByteRange, textOf } from "../base/bytes.ts";
import {
  ensurePrivateFolder,
  readPrivate,
  removeStaleTempFiles,
  replacePrivate,
} from "../base/private-files.ts";
import {
  type CacheHints,
  type ItemState,
  KINDS,
  type Kind,
  type ListedItem,
  type ListMetas,
  mapKinds,
  type ServerCapabilities,
  type ServerListing,
} from "../catalog/listing.ts";
import { type Hmac, obtainHmac, readHmac } from "./hmac.ts";
import {
  type EraVerdict,
  formatSnapshotKey,
  isUsable,
  MAX_SNAPSHOT_BYTES,
  MAX_SNAPSHOTS,
  SnapshotKeeper,
  type SnapshotKey,
  type SnapshotStore,
  type Snapshots,
  type StoredSnapshot,
} from "./snapshots.ts";
import type { ToolMark } from "./tool-marks.ts";

/*
 * Format of a snapshot file. The first line is the HMAC of all that follows. Then come, one line each: the file's own
 * name; when it was saved; the listing apart from its items, with the era that was negotiated; the positions of the
 * items' parts; the marks of the tools. The rest are the items, kind by kind, each as the bytes that the server sent,
 * with a line end.
 *
 *     <HMAC-SHA-256, hex>
 *     <name, hex>
 *     1700000000000
 *     {"text":"Read before you write.","verdict":{"era":"legacy","askedAt":1699000000000}}
 *     {"tools":[{"key":"read","size":44,"keys":[{"start":8,"end":14}]}],"prompts":[],…}
 *     [["read",{"since":1690000000000,"prints":{"description":"…"}}]]
 *     {"name":"read","description":"Reads a file"}
 *
 * A file with a valid HMAC was written by this installation, so its form is not validated. The items are not parsed
 * either: that would delay every start.
 */

/** Version of the format; part of the file name, so another version uses other files. */
export const SNAPSHOT_FORMAT = 4;

const LF = 0x0a;
const SEAL_LENGTH = 64;

/** An item without its bytes. */
interface Entry {
  readonly key: string;
  /** Size of its bytes. */
  readonly size: number;
  readonly keys: readonly ByteRange[];
  readonly meta?: ByteRange;
  /**
   * The result of checking the item, so that it is not checked again. Other rules for that need another
   * `SNAPSHOT_FORMAT`.
   */
  readonly state?: ItemState;
}

/** Encodes a snapshot as the file with that name. */
export async function encodeSnapshot(
  name: string,
  { offer, verdict, savedAt, readMarks }: StoredSnapshot,
  seal: Hmac,
): Promise<Buffer> {
  const items = KINDS.flatMap((kind) => offer[kind]);
  const entries = mapKinds((kind) => offer[kind].map(toEntry));
  const json = [
    {
      text: offer.instructions,
      verdict,
      hints: offer.hints,
      metas: offer.metas,
      declared: offer.declared,
    },
    entries,
    [...readMarks()],
  ].map((it) => JSON.stringify(it));
  const head = ["0".repeat(SEAL_LENGTH), name, savedAt, ...json, ""].join("\n");
  const lineEnd = Buffer.of(LF);
  const file = Buffer.concat([Buffer.from(head), ...items.flatMap((it) => [it.bytes, lineEnd])]);
  file.write(await seal(file.subarray(SEAL_LENGTH + 1)), "latin1");
  return file;
}

/** Decodes a file; undefined if its HMAC or name is wrong, or it is not UTF-8. */
export async function decodeSnapshot(
  file: Buffer<ArrayBuffer>,
  name: string,
  seal: Hmac,
): Promise<StoredSnapshot | undefined> {
  // Earlier versions stored invalid UTF-8, which ends the session of a strict client.
  if (!isUtf8(file)) return undefined;
  const sealed = file.subarray(SEAL_LENGTH + 1);
  if (textOf(file, 0, SEAL_LENGTH + 1) !== `${await seal(sealed)}\n`) return undefined;
  let at = SEAL_LENGTH + 1;
  const readLine = (): string => {
    const start = at;
    at = file.indexOf(LF, start) + 1;
    return textOf(file, start, at - 1);
  };
  if (readLine() !== name) return undefined;
  const savedAt = Number(readLine());
  const {
    text: instructions,
    verdict,
    hints,
    metas,
    declared,
  } = JSON.parse(readLine()) as {
    text?: string;
    verdict?: EraVerdict;
    hints?: CacheHints;
    metas?: ListMetas;
    declared?: ServerCapabilities;
  };
  const entries = JSON.parse(readLine()) as Record<Kind, Entry[]>;
  const marks = { start: at, end: file.indexOf(LF, at) };
  at = marks.end + 1;
  const readItem = ({ key, size, keys, meta, state }: Entry): ListedItem => {
    const bytes = file.subarray(at, at + size);
    at += size + 1;
    return { key, bytes, keys, meta, ...(state && { state }) };
  };
  const lists = mapKinds((kind) => entries[kind].map((entry) => readItem(entry)));
  const offer: ServerListing = {
    ...lists,
    instructions,
    ...(hints && { hints }),
    ...(metas && { metas }),
    ...(declared && { declared }),
  };
  const readMarks = () =>
    new Map(JSON.parse(textOf(file, marks.start, marks.end)) as [string, ToolMark][]);
  return { offer, verdict, savedAt, readMarks };
}

function toEntry({ key, bytes, keys, meta, state }: ListedItem): Entry {
  const size = bytes.length;
  return {
    key,
    size,
    keys: keys.map(toRange),
    ...(meta && { meta: toRange(meta) }),
    ...(state && { state }),
  };
}

function toRange({ start, end }: ByteRange): ByteRange {
  return { start, end };
}

/** Maximum size of all snapshots together, in bytes. */
const MAX_TOTAL = 64 * 1024 * 1024;
const NAME = /^[0-9a-f]{64}$/;

/**
 * Stores snapshots in `<folder>/snapshots`, one file each, for all hubs of this user. File names and contents use an
 * HMAC with the installation's key: names do not reveal the key's secrets, and other users cannot forge files.
 */
export function diskSnapshots(parts: {
  /** The state folder, absolute; created at the first write. */
  readonly folder: string;
  /** ms since the epoch. */
  readonly now: () => number;
  /** Called once for each text. */
  readonly warn: (text: string) => void;
}): Snapshots {
  const { folder, now, warn } = parts;
  return new SnapshotKeeper({ store: new Shelf(folder), now, warn });
}

/** A file's modification time is when its snapshot was saved. */
class Shelf implements SnapshotStore {
  readonly place: string;
  readonly #folder: string;
  #seal: Promise<Hmac | undefined> | undefined;

  constructor(folder: string) {
    this.#folder = folder;
    this.place = join(folder, "snapshots");
  }

  async read(subject: SnapshotKey): Promise<StoredSnapshot | undefined> {
    const seal = await this.#findSeal();
    if (seal === undefined) return undefined;
    const name = await snapshotFileName(subject, seal);
    const file = await readPrivate(join(this.place, name), MAX_SNAPSHOT_BYTES);
    return file && (await decodeSnapshot(file, name, seal));
  }

  async write(subject: SnapshotKey, kept: StoredSnapshot): Promise<boolean> {
    const seal = await obtainHmac(this.#folder);
    this.#seal = Promise.resolve(seal);
    const name = await snapshotFileName(subject, seal);
    const file = await encodeSnapshot(name, kept, seal);
    if (file.length > MAX_SNAPSHOT_BYTES) return false;
    await ensurePrivateFolder(this.place);
    await replacePrivate(join(this.place, name), file, kept.savedAt);
    return true;
  }

  async remove(subject: SnapshotKey): Promise<void> {
    const seal = await this.#findSeal();
    if (seal !== undefined)
      await rm(join(this.place, await snapshotFileName(subject, seal)), { force: true });
  }

  async tidy(now: number): Promise<void> {
    await removeStaleTempFiles(this.#folder, now);
    await removeStaleTempFiles(this.place, now);
    const files: { path: string; size: number; savedAt: number }[] = [];
    for (const name of await readdir(this.place)) {
      const path = join(this.place, name);
      // Another process may have removed it.
      const stats = NAME.test(name) ? await lstat(path).catch(() => undefined) : undefined;
      if (stats?.isFile() === true) files.push({ path, size: stats.size, savedAt: stats.mtimeMs });
    }
    let total = 0;
    let count = 0;
    for (const { path, size, savedAt } of files.toSorted((a, b) => b.savedAt - a.savedAt)) {
      total += size;
      count++;
      const isTooMuch = total > MAX_TOTAL || count > MAX_SNAPSHOTS;
      if (isTooMuch || !isUsable(savedAt, now)) await rm(path, { force: true });
    }
  }

  /** Tried again as long as there is no key. */
  async #findSeal(): Promise<Hmac | undefined> {
    const seal = await (this.#seal ??= readHmac(this.#folder));
    if (seal === undefined) this.#seal = undefined;
    return seal;
  }
}

/** The file name of a snapshot. */
export function snapshotFileName(subject: SnapshotKey, seal: Hmac): Promise<string> {
  return seal(Buffer.from(`snapshot ${SNAPSHOT_FORMAT} ${formatSnapshotKey(subject)}`));
}

/** The state of one snapshot file. */
export interface SnapshotFile {
  readonly path: string;
  /**
   * `broken`: it was not written by this installation, or was modified; `old`: saved too long ago, or by another
   * version.
   */
  readonly state: "usable" | "old" | "broken";
}

/** All snapshot files. Reading them changes nothing. */
export interface SnapshotSurvey {
  readonly files: readonly SnapshotFile[];
  /** The first usable snapshot for one of the keys. */
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

/** @returns the name alone if the HMAC is valid but the content has the form of another version */
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
