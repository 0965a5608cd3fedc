import { lstat, rename, stat } from "node:fs/promises";
import { join } from "node:path";
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
  readonly #path: string;
  /** Cache: the text of the file, and the version of the file that it was read from. */
  #read: { readonly version: string; readonly text: string | undefined } | undefined;

  constructor(folder: string) {
    this.#folder = folder;
    this.#path = join(folder, "approvals.json");
  }

  async read(): Promise<string | undefined> {
    const version = await this.#version();
    if (this.#read?.version !== version) this.#read = { version, text: await this.#load() };
    return this.#read.text;
  }

  async setAside(damaged: string, text: string): Promise<string | undefined> {
    try {
      return await withFileLock(`${this.#path}.lock`, NEVER, async () => {
        if ((await this.#load()) !== damaged) return undefined;
        const kept = `${this.#path}.damaged-${Date.now()}`;
        await rename(this.#path, kept);
        await replacePrivate(this.#path, utf8(text));
        this.#read = undefined;
        return kept;
      });
    } catch {
      return undefined;
    }
  }

  async update(change: (text: string | undefined) => string): Promise<void> {
    await withFileLock(`${this.#path}.lock`, NEVER, async () => {
      await replacePrivate(this.#path, utf8(change(await this.#load()))).catch((error: unknown) => {
        throw writeErrorOf(this.#folder, error);
      });
      this.#read = undefined;
    });
  }

  hmac(): Promise<Hmac> {
    return obtainHmac(this.#folder);
  }

  async #load(): Promise<string | undefined> {
    const bytes = await readPrivate(this.#path, MAX_STORED);
    if (bytes !== undefined) return textOf(bytes);
    // Something that is there and cannot be read counts as damaged, as an empty file does.
    return lstat(this.#path).then(
      () => "",
      () => undefined,
    );
  }

  /** Identifies the version of the file by its inode, time and size: each update replaces the file by a new one. */
  async #version(): Promise<string> {
    return stat(this.#path, { bigint: true }).then(
      ({ ino, mtimeNs, size }) => `${ino} ${mtimeNs} ${size}`,
      () => "",
    );
  }
}
