import { Buffer } from "node:buffer";
import { lstat, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import {
  ensurePrivateFolder,
  readPrivate,
  removeStaleTempFiles,
  replacePrivate,
} from "../base/private-files.ts";
import { obtainHmac, readHmac, type Hmac } from "./hmac.ts";
import { SNAPSHOT_FORMAT, encodeSnapshot, decodeSnapshot } from "./record.ts";
import {
  isUsable,
  SnapshotKeeper,
  type StoredSnapshot,
  MAX_SNAPSHOTS,
  MAX_SNAPSHOT_BYTES,
  type Snapshots,
  formatSnapshotKey,
  type SnapshotStore,
  type SnapshotKey,
} from "./snapshots.ts";

/** The most that all snapshots may take up, in bytes. */
const MAX_TOTAL = 64 * 1024 * 1024;
const NAME = /^[0-9a-f]{64}$/;

/**
 * Keeps snapshots in `<folder>/snapshots`, a file each, for all hubs of this user. Names and contents are sealed with
 * the key of this installation, so that neither tells what the subject was made of, nor can be made by others.
 */
export function diskSnapshots(parts: {
  /** The state folder, absolute; made when something is kept. */
  readonly folder: string;
  /** ms since the epoch. */
  readonly now: () => number;
  /** Gets every text only once. */
  readonly warn: (text: string) => void;
}): Snapshots {
  const { folder, now, warn } = parts;
  return new SnapshotKeeper({ store: new Shelf(folder), now, warn });
}

/** The time of change of each file is when its snapshot was saved. */
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
      // Another hub may have removed it.
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

  /** Looked for again as long as there is none. */
  async #findSeal(): Promise<Hmac | undefined> {
    const seal = await (this.#seal ??= readHmac(this.#folder));
    if (seal === undefined) this.#seal = undefined;
    return seal;
  }
}

/** The name of the file for a subject. */
export function snapshotFileName(subject: SnapshotKey, seal: Hmac): Promise<string> {
  return seal(Buffer.from(`snapshot ${SNAPSHOT_FORMAT} ${formatSnapshotKey(subject)}`));
}
