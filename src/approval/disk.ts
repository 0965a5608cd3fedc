import { lstat, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { textOf, utf8 } from "../base/bytes.ts";
import { readPrivate, replacePrivate } from "../base/private-files.ts";
import { withFileLock, writeErrorOf } from "../process/file-lock.ts";
import { type Hmac, obtainHmac } from "../snapshot/hmac.ts";
import { type ApprovalStorage, MAX_STORED, RememberedApprovals } from "./remembered.ts";

/** Never aborted: what a person has decided is stored even if the command or the hub ends. */
const NEVER = new AbortController().signal;

/**
 * Permanent approvals, in the file `approvals.json` (mode 0600) of the state folder. All hubs of this user share them.
 * If another process changes the file, the next read returns the changed content.
 */
export function diskApprovals(folder: string): RememberedApprovals {
  return new RememberedApprovals(new DiskStorage(folder));
}

class DiskStorage implements ApprovalStorage {
  readonly #folder: string;
  readonly #file: SharedFile;
  /** Cache: the text of the file, and the version of the file that it was read from. */
  #read: { readonly version: string; readonly text: string | undefined } | undefined;

  constructor(folder: string) {
    this.#folder = folder;
    this.#file = new SharedFile(join(folder, "approvals.json"), MAX_STORED);
  }

  async read(): Promise<string | undefined> {
    const version = await this.#file.version();
    if (this.#read?.version !== version) this.#read = { version, text: await this.#file.read() };
    return this.#read.text;
  }

  async setAside(damaged: string, text: string): Promise<string | undefined> {
    const kept = await this.#file.setAside(damaged, text);
    if (kept !== undefined) this.#read = undefined;
    return kept;
  }

  async update(change: (text: string | undefined) => string): Promise<void> {
    await this.#file.update(change);
    this.#read = undefined;
  }

  hmac(): Promise<Hmac> {
    return obtainHmac(this.#folder);
  }
}

/** A private file that processes of this user share. Each change replaces it, while others are locked out. */
export class SharedFile {
  readonly path: string;
  readonly #max: number;

  /** @param max the maximum size that is read, in bytes; a larger file counts as damaged */
  constructor(path: string, max: number) {
    this.path = path;
    this.#max = max;
  }

  /** @returns undefined if there is no file; "" if it cannot be read */
  async read(): Promise<string | undefined> {
    const bytes = await this.readBytes();
    return bytes && textOf(bytes);
  }

  /** @returns undefined if there is no file; no bytes if it cannot be read */
  async readBytes(): Promise<Uint8Array | undefined> {
    const bytes = await readPrivate(this.path, this.#max);
    if (bytes !== undefined || !(await this.#isThere())) return bytes;
    // Another process may have written the file meanwhile. What is there and cannot be read counts as damaged, as an
    // empty file does.
    return (await readPrivate(this.path, this.#max)) ?? new Uint8Array();
  }

  #isThere(): Promise<boolean> {
    return lstat(this.path).then(
      () => true,
      () => false,
    );
  }

  /** Identifies the version of the file by its inode, time and size: each update replaces the file by a new one. */
  async version(): Promise<string> {
    return stat(this.path, { bigint: true }).then(
      ({ ino, mtimeNs, size }) => `${ino} ${mtimeNs} ${size}`,
      () => "",
    );
  }

  /** See `ApprovalStorage.setAside`. */
  async setAside(damaged: string, text: string): Promise<string | undefined> {
    try {
      return await withFileLock(`${this.path}.lock`, NEVER, async () => {
        if ((await this.read()) !== damaged) return undefined;
        const kept = `${this.path}.damaged-${Date.now()}`;
        await rename(this.path, kept);
        await replacePrivate(this.path, utf8(text));
        return kept;
      });
    } catch {
      return undefined;
    }
  }

  /** Replaces the text. @throws {HubError} storeBroken or storeBusy; what `change` throws */
  async update(change: (text: string | undefined) => string): Promise<void> {
    await this.updateBytes((bytes) => Promise.resolve(utf8(change(bytes && textOf(bytes)))));
  }

  /** Replaces the bytes. @throws {HubError} storeBroken or storeBusy; what `change` rejects with */
  async updateBytes(change: (bytes: Uint8Array | undefined) => Promise<Uint8Array>): Promise<void> {
    await withFileLock(`${this.path}.lock`, NEVER, async () => {
      const bytes = await change(await this.readBytes());
      await replacePrivate(this.path, bytes).catch((error: unknown) => {
        throw writeErrorOf(dirname(this.path), error);
      });
    });
  }

  /** Removes the file. @returns whether there was one. @throws {HubError} storeBroken or storeBusy */
  async remove(): Promise<boolean> {
    return withFileLock(`${this.path}.lock`, NEVER, async () => {
      const isThere = await this.#isThere();
      await rm(this.path, { force: true, recursive: true }).catch((error: unknown) => {
        throw writeErrorOf(dirname(this.path), error);
      });
      return isThere;
    });
  }
}
