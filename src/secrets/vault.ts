import { chmod, stat } from "node:fs/promises";
import { join } from "node:path";
import { HubError } from "../base/errors.ts";
import { removeStaleTempFiles, replacePrivate, writePrivate } from "../base/private-files.ts";
import { type FileBytes, decodeUtf8, readFileLimited } from "../base/read-file.ts";
import type { Keychain } from "./keychain.ts";
import { writeErrorOf, withFileLock } from "../process/file-lock.ts";
import {
  type VaultKey,
  makeVaultKey,
  parseVaultKey,
  parseSealedHeader,
  seal,
  formatVaultKey,
  unseal,
} from "./seal.ts";

/** All that is kept in one sealed file. */
export interface VaultContent {
  /** Values by name. */
  readonly values: Map<string, string>;
  /** The names of those that are in the keychain, which does not tell them. */
  readonly elsewhere: Set<string>;
}

/** Where the key lies: `beside` the file it keeps nothing from whoever can read the folder. `none`: there is no file yet. */
export type VaultProtection = "keychain" | "beside" | "none";

/** In bytes. */
const MAX_FILE = 16 * 1024 * 1024;
const MAX_KEY = 1024;
/** How long another process may take to write, in ms. */
const LIMIT = 20_000;
const NEVER = new AbortController().signal;

/** The sealed file of one folder. Whoever changes it reads, changes and writes it as a whole, one process at a time. */
export class Vault {
  readonly path: string;
  readonly #folder: string;
  readonly #keychain: Keychain;
  readonly #keyPath: string;
  /** Those that were found, by their names: the keychain need not be asked twice. */
  readonly #keys = new Map<string, VaultKey>();

  /** @param folder absolute; it is made, and private, when something is written */
  constructor(folder: string, keychain: Keychain) {
    this.#folder = folder;
    this.#keychain = keychain;
    this.path = join(folder, "values");
    this.#keyPath = join(folder, "key");
  }

  /** @throws {HubError} storeBroken if there is a file that cannot be read: it is left as it is */
  async read(): Promise<VaultContent> {
    return (await this.#open())?.content ?? { values: new Map(), elsewhere: new Set() };
  }

  /**
   * Changes what is kept; what `change` leaves as it was is not written.
   * @param change says whether it has changed something
   * @throws {HubError} as `read`, or storeBusy
   */
  async change(change: (content: VaultContent) => boolean): Promise<boolean> {
    const work = async (): Promise<boolean> => {
      const opened = await this.#open();
      const content = opened?.content ?? { values: new Map(), elsewhere: new Set() };
      if (!change(content)) return false;
      const key = opened?.key ?? (await this.#newKey());
      // Whoever was killed while it wrote has left one.
      await removeStaleTempFiles(this.#folder, Date.now()).catch(() => {});
      await replacePrivate(this.path, await seal(write(content), key));
      return true;
    };
    try {
      return await withFileLock(join(this.#folder, "lock"), NEVER, work, { limit: LIMIT });
    } catch (error) {
      throw writeErrorOf(this.#folder, error);
    }
  }

  /** @throws {HubError} storeBroken if there is a file that cannot be read */
  async protection(): Promise<VaultProtection> {
    const opened = await this.#open();
    if (opened === undefined) return "none";
    const beside = await this.#readKeyFile();
    return beside?.id === opened.key.id ? "beside" : "keychain";
  }

  async #open(): Promise<{ readonly content: VaultContent; readonly key: VaultKey } | undefined> {
    const read = await readFileLimited(this.path, MAX_FILE);
    if (read.kind === "absent") return undefined;
    if (read.kind === "refused") throw this.#broken(`it ${read.reason}`);
    await makePrivate(this.path);
    const header = parseSealedHeader(read.bytes);
    if (header.kind === "alien") throw this.#broken(`it is damaged. ${this.#restore}`);
    if (header.kind === "newer") {
      throw this.#broken("a newer toolmux has written it: use that one");
    }
    const key = await this.#findKey(header.keyId);
    const bytes = await unseal(read.bytes, key);
    const content = bytes && parse(bytes);
    if (content === undefined) throw this.#broken(`it is damaged. ${this.#restore}`);
    return { content, key };
  }

  async #findKey(id: string): Promise<VaultKey> {
    const known = this.#keys.get(id);
    if (known !== undefined) return known;
    const beside = await this.#readKeyFile();
    const key =
      beside?.id === id ? beside : parseVaultKey((await this.#keychain.get(nameOf(id))) ?? "");
    if (key?.id !== id) {
      const { fault = "it may be locked, or another user's" } = this.#keychain;
      const text = `its key is neither beside it (${this.#keyPath}) nor does the keychain of this system give it: ${fault}. Unlock the keychain, or put the key back; if it is lost, ${this.#anew}`;
      throw this.#broken(text);
    }
    this.#keys.set(id, key);
    return key;
  }

  /** Of a file that is there, nothing else will do. */
  async #readKeyFile(): Promise<VaultKey | undefined> {
    const read = await readFileLimited(this.#keyPath, MAX_KEY);
    if (read.kind === "absent") return undefined;
    if (read.kind === "refused") throw this.#broken(`its key, ${this.#keyPath}, ${read.reason}`);
    await makePrivate(this.#keyPath);
    const key = parseVaultKey(decodeUtf8(read.bytes) ?? "");
    if (key !== undefined) return key;
    throw this.#broken(`its key, ${this.#keyPath}, is damaged. ${this.#restore}`);
  }

  /** A key for a file that is not there yet: in the keychain if it can be had back from there. */
  async #newKey(): Promise<VaultKey> {
    const left = await this.#readKeyFile();
    if (left !== undefined) return left;
    const key = makeVaultKey();
    const name = nameOf(key.id);
    await this.#keychain.set(name, formatVaultKey(key)).catch(() => {});
    const kept = this.#keychain.fault === undefined && (await this.#keychain.get(name));
    if (kept !== formatVaultKey(key))
      await writePrivate(this.#keyPath, encode(`${formatVaultKey(key)}\n`));
    this.#keys.set(key.id, key);
    return key;
  }

  get #restore(): string {
    return `Put back a copy of it, or ${this.#anew}`;
  }

  get #anew(): string {
    return `move the file away (mv ${this.path} ${this.path}.old) and set its secrets again (toolmux secret set NAME)`;
  }

  #broken(why: string): HubError {
    return new HubError("storeBroken", `The secrets in ${this.path} cannot be used: ${why}.`);
  }
}

/** Another folder's file has another key. */
function nameOf(keyId: string): string {
  return `key/${keyId}`;
}

/** Whoever has copied it there may have let others read it. Where that cannot be changed it can be read all the same. */
async function makePrivate(path: string): Promise<void> {
  const { mode } = await stat(path);
  if ((mode & 0o077) !== 0) await chmod(path, 0o600).catch(() => {});
}

function encode(text: string): FileBytes {
  return new TextEncoder().encode(text);
}

/** Lists of pairs: names are whatever they are, `__proto__` for one. */
function write({ values, elsewhere }: VaultContent): FileBytes {
  return encode(JSON.stringify({ values: [...values], keychain: [...elsewhere] }));
}

/** @returns undefined for what this program has not written */
function parse(bytes: FileBytes): VaultContent | undefined {
  try {
    const { values, keychain } = JSON.parse(decodeUtf8(bytes) ?? "") as Record<string, unknown>;
    if (!Array.isArray(values) || !Array.isArray(keychain)) return undefined;
    const isWhole = values.every(isPair) && keychain.every(isText);
    return isWhole ? { values: new Map(values), elsewhere: new Set(keychain) } : undefined;
  } catch {
    return undefined;
  }
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isPair(value: unknown): value is readonly [string, string] {
  return Array.isArray(value) && value.length === 2 && value.every(isText);
}
