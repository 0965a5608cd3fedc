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
  type ItemValidity,
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
  type DetectedEra,
  formatServerIdentity,
  formatSnapshotKey,
  isUsable,
  MAX_SNAPSHOT_BYTES,
  MAX_SNAPSHOTS,
  type ServerIdentity,
  SnapshotKeeper,
  type SnapshotKey,
  type SnapshotStore,
  type Snapshots,
  type Snapshot,
} from "./snapshots.ts";

/*
 * Format of a snapshot file. The first line is the HMAC of all that follows. Then come, one line each: the file's own
 * name; when it was saved; the listing without its items, with the server's protocol era (`verdict`); the size of each
 * item and the ranges of its parts. The rest of the file holds the items, kind by kind: for each, the bytes that the
 * server sent and a line end.
 *
 *     <HMAC-SHA-256, hex>
 *     <name, hex>
 *     1700000000000
 *     {"text":"Read before you write.","verdict":{"era":"legacy","askedAt":1699000000000}}
 *     {"tools":[{"key":"read","size":44,"keys":[{"start":8,"end":14}]}],"prompts":[],…}
 *     {"name":"read","description":"Reads a file"}
 *
 * A file with a valid HMAC was written by this installation, so its form is not validated. The items are not parsed
 * either: that would delay every start.
 */

/** Version of the format; part of the file name, so another version uses other files. */
export const SNAPSHOT_FORMAT = 6;

const LF = 0x0a;
const HMAC_LENGTH = 64;

/**
 * The description of an item in a snapshot file: its key, its size and the ranges of its parts. The item's bytes
 * follow later in the file.
 */
interface ItemEntry {
  readonly key: string;
  /** Number of the item's bytes in the file. */
  readonly size: number;
  readonly keys: readonly ByteRange[];
  readonly meta?: ByteRange;
  /**
   * The result of checking the item, so that it is not checked again. If the checks change, `SNAPSHOT_FORMAT` must
   * change.
   */
  readonly state?: ItemValidity;
}

/** `DetectedEra` in the file: `askedAt` is the time of the detection. */
type EraVerdict = Omit<DetectedEra, "detectedAt"> & { readonly askedAt: number };

function toVerdict({ era, detectedAt: askedAt, ...rest }: DetectedEra): EraVerdict {
  return { era, askedAt, ...rest };
}

function fromVerdict({ askedAt: detectedAt, ...rest }: EraVerdict): DetectedEra {
  return { ...rest, detectedAt };
}

/** Encodes a snapshot as the content of the file `name`. */
export async function encodeSnapshot(
  name: string,
  { listing, detectedEra, savedAt }: Snapshot,
  hmac: Hmac,
): Promise<Buffer> {
  const items = KINDS.flatMap((kind) => listing[kind]);
  const entries = mapKinds((kind) => listing[kind].map(toEntry));
  const json = [
    {
      text: listing.instructions,
      verdict: detectedEra && toVerdict(detectedEra),
      hints: listing.hints,
      metas: listing.metas,
      declared: listing.declared,
    },
    entries,
  ].map((it) => JSON.stringify(it));
  const head = ["0".repeat(HMAC_LENGTH), name, savedAt, ...json, ""].join("\n");
  const lineEnd = Buffer.of(LF);
  const file = Buffer.concat([Buffer.from(head), ...items.flatMap((it) => [it.bytes, lineEnd])]);
  file.write(await hmac(file.subarray(HMAC_LENGTH + 1)), "latin1");
  return file;
}

/** Decodes a file; undefined if its HMAC or name is wrong, or it is not UTF-8. */
export async function decodeSnapshot(
  file: Buffer<ArrayBuffer>,
  name: string,
  hmac: Hmac,
): Promise<Snapshot | undefined> {
  // Files of earlier versions may contain invalid UTF-8, because of which a strict client would end its session.
  if (!isUtf8(file)) return undefined;
  const authenticated = file.subarray(HMAC_LENGTH + 1);
  if (textOf(file, 0, HMAC_LENGTH + 1) !== `${await hmac(authenticated)}\n`) return undefined;
  let position = HMAC_LENGTH + 1;
  const readLine = (): string => {
    const start = position;
    position = file.indexOf(LF, start) + 1;
    return textOf(file, start, position - 1);
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
  const entries = JSON.parse(readLine()) as Record<Kind, ItemEntry[]>;
  const readItem = ({ key, size, keys, meta, state }: ItemEntry): ListedItem => {
    const bytes = file.subarray(position, position + size);
    position += size + 1;
    return { key, bytes, keys, meta, ...(state && { state }) };
  };
  const lists = mapKinds((kind) => entries[kind].map((entry) => readItem(entry)));
  const listing: ServerListing = {
    ...lists,
    instructions,
    ...(hints && { hints }),
    ...(metas && { metas }),
    ...(declared && { declared }),
  };
  return { listing, detectedEra: verdict && fromVerdict(verdict), savedAt };
}

function toEntry({ key, bytes, keys, meta, state }: ListedItem): ItemEntry {
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
const FILE_NAME = /^[0-9a-f]{64}$/;

/**
 * Stores snapshots in `<folder>/snapshots`, one file each, for all hubs of this user. File names and contents contain
 * an HMAC that is made with the installation's key. So a file name does not reveal secrets in the server's launch
 * settings, and other users cannot forge files.
 */
export function diskSnapshots(options: {
  /** The state folder, absolute; created at the first write. */
  readonly folder: string;
  /** The current time, in ms since the epoch. */
  readonly now: () => number;
  /** Receives each distinct warning once. */
  readonly warn: (text: string) => void;
  readonly prefersNewest?: boolean | undefined;
}): Snapshots {
  const { folder, ...others } = options;
  return new SnapshotKeeper({ store: new DiskStore(folder), ...others });
}

/** Stores snapshots as files. A file's modification time is the time when its snapshot was saved. */
class DiskStore implements SnapshotStore {
  readonly location: string;
  readonly #folder: string;
  #hmac: Promise<Hmac | undefined> | undefined;

  constructor(folder: string) {
    this.#folder = folder;
    this.location = join(folder, "snapshots");
    // Starts to read the installation's key at once, because the first client waits until snapshots are read with it.
    this.#hmac = readHmac(folder);
  }

  async read(key: SnapshotKey): Promise<Snapshot | undefined> {
    const hmac = await this.#loadHmac();
    if (hmac === undefined) return undefined;
    const name = await snapshotFileName(key, hmac);
    const file = await readPrivate(join(this.location, name), MAX_SNAPSHOT_BYTES);
    return file && (await decodeSnapshot(file, name, hmac));
  }

  async readNewest(server: ServerIdentity): Promise<Snapshot | undefined> {
    const hmac = await this.#loadHmac();
    if (hmac === undefined) return undefined;
    const part = await serverFileNamePart(server, hmac);
    const names = (await readdir(this.location)).filter(
      (name) => FILE_NAME.test(name) && name.startsWith(part),
    );
    const files = await Promise.all(
      names.map(async (name) => {
        const stats = await lstat(join(this.location, name)).catch(() => undefined);
        return { name, savedAt: stats?.mtimeMs ?? 0 };
      }),
    );
    for (const { name } of files.toSorted((a, b) => b.savedAt - a.savedAt)) {
      const file = await readPrivate(join(this.location, name), MAX_SNAPSHOT_BYTES);
      const stored = file && (await decodeSnapshot(file, name, hmac).catch(() => undefined));
      if (stored !== undefined) return stored;
    }
    return undefined;
  }

  async write(key: SnapshotKey, snapshot: Snapshot): Promise<boolean> {
    const hmac = await obtainHmac(this.#folder);
    this.#hmac = Promise.resolve(hmac);
    const name = await snapshotFileName(key, hmac);
    const file = await encodeSnapshot(name, snapshot, hmac);
    if (file.length > MAX_SNAPSHOT_BYTES) return false;
    await ensurePrivateFolder(this.location);
    // A snapshot that a power failure has damaged has no valid HMAC and is ignored: it need not be synced.
    const options = { changedAt: snapshot.savedAt, isSynced: false };
    await replacePrivate(join(this.location, name), file, options);
    return true;
  }

  async remove(key: SnapshotKey): Promise<void> {
    const hmac = await this.#loadHmac();
    if (hmac !== undefined)
      await rm(join(this.location, await snapshotFileName(key, hmac)), { force: true });
  }

  async prune(now: number): Promise<void> {
    await removeStaleTempFiles(this.#folder, now);
    await removeStaleTempFiles(this.location, now);
    const files: { path: string; size: number; savedAt: number }[] = [];
    for (const name of await readdir(this.location)) {
      const path = join(this.location, name);
      // Another process may have removed the file.
      const stats = FILE_NAME.test(name) ? await lstat(path).catch(() => undefined) : undefined;
      if (stats?.isFile() === true) files.push({ path, size: stats.size, savedAt: stats.mtimeMs });
    }
    let total = 0;
    let count = 0;
    for (const { path, size, savedAt } of files.toSorted((a, b) => b.savedAt - a.savedAt)) {
      total += size;
      count++;
      const isOverLimit = total > MAX_TOTAL || count > MAX_SNAPSHOTS;
      if (isOverLimit || !isUsable(savedAt, now)) await rm(path, { force: true });
    }
  }

  /** Reads the installation's key; after a failure, the next call reads it again. */
  async #loadHmac(): Promise<Hmac | undefined> {
    const hmac = await (this.#hmac ??= readHmac(this.#folder));
    if (hmac === undefined) this.#hmac = undefined;
    return hmac;
  }
}

/** Length of each of the two parts of a file name, in hex digits: 128 bits. */
const NAME_PART_LENGTH = 32;

/** The file name of a snapshot. Its first half is the same for all snapshots of a server. */
export async function snapshotFileName(key: SnapshotKey, hmac: Hmac): Promise<string> {
  const full = await hmac(Buffer.from(`snapshot ${SNAPSHOT_FORMAT} ${formatSnapshotKey(key)}`));
  return (await serverFileNamePart(key, hmac)) + full.slice(0, NAME_PART_LENGTH);
}

async function serverFileNamePart(server: ServerIdentity, hmac: Hmac): Promise<string> {
  const text = `server ${SNAPSHOT_FORMAT} ${formatServerIdentity(server)}`;
  return (await hmac(Buffer.from(text))).slice(0, NAME_PART_LENGTH);
}

export interface SnapshotFile {
  readonly path: string;
  /**
   * `broken`: the file was not written by this installation, or was modified; `old`: the file was saved too long ago,
   * or by another version.
   */
  readonly state: "usable" | "old" | "broken";
}

/** The snapshot files, read without changing them. */
export interface SnapshotIndex {
  readonly files: readonly SnapshotFile[];
  /** The newest usable snapshot of a server. */
  find(server: ServerIdentity): Promise<Snapshot | undefined>;
}

const EMPTY_INDEX: SnapshotIndex = { files: [], find: () => Promise.resolve(undefined) };

/** Reads all snapshot files. @param folder the state folder @param now ms since the epoch */
export async function readSnapshotIndex(folder: string, now: number): Promise<SnapshotIndex> {
  const snapshotFolder = join(folder, "snapshots");
  const names = (await readdir(snapshotFolder).catch(() => [])).filter((name) =>
    /^[0-9a-f]{64}$/.test(name),
  );
  if (names.length === 0) return EMPTY_INDEX;
  const hmac = await readHmac(folder);
  const usable = new Map<string, Snapshot>();
  const files: SnapshotFile[] = [];
  for (const name of names) {
    const path = join(snapshotFolder, name);
    const bytes = await readBounded(path);
    const decoded = bytes && hmac && (await tryDecode(bytes, name, hmac));
    const state = decoded === undefined ? "broken" : isCurrent(decoded, now) ? "usable" : "old";
    if (decoded !== undefined && isCurrent(decoded, now)) usable.set(name, decoded);
    files.push({ path, state });
  }
  return {
    files,
    find: async (server) => {
      if (hmac === undefined) return undefined;
      const part = await serverFileNamePart(server, hmac);
      const own = [...usable].flatMap(([name, snapshot]) =>
        name.startsWith(part) ? [snapshot] : [],
      );
      return own.toSorted((a, b) => b.savedAt - a.savedAt)[0];
    },
  };
}

/**
 * Decodes a file.
 * @returns the name instead of a snapshot if the HMAC is valid but another version wrote the content; undefined if the
 * file is not valid
 */
async function tryDecode(
  bytes: Buffer<ArrayBuffer>,
  name: string,
  hmac: Hmac,
): Promise<Snapshot | string | undefined> {
  return decodeSnapshot(bytes, name, hmac).catch(() => name);
}

function isCurrent(decoded: Snapshot | string, now: number): decoded is Snapshot {
  return typeof decoded !== "string" && isUsable(decoded.savedAt, now);
}

async function readBounded(path: string): Promise<Buffer<ArrayBuffer> | undefined> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isFile() !== true || stats.size > MAX_SNAPSHOT_BYTES) return undefined;
  return readFile(path).then(
    (bytes) => Buffer.from(bytes),
    () => undefined,
  );
}
