import { Buffer } from "node:buffer";
import { chmod, stat } from "node:fs/promises";
import { join } from "node:path";
import { HubError } from "../base/errors.ts";
import { removeStaleTempFiles, replacePrivate, writePrivate } from "../base/private-files.ts";
import { decodeUtf8, type FileBytes, readFileLimited } from "../base/read-file.ts";
import { withFileLock, writeErrorOf } from "../process/file-lock.ts";
import type { Keychain } from "./keychain.ts";

/*
 * A sealed file: a line `toolmux-secrets 1 KEY`, where KEY is the name of its key; 12 bytes that are never the same again; and
 * the content by AES-256-GCM, which makes sure of the line as well.
 */

/** What values are sealed with: 256 random bits, and a random name for them. */
export interface VaultKey {
  readonly id: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

type Bytes = Uint8Array<ArrayBuffer>;

const MAGIC = "toolmux-secrets";
const VERSION = "1";
const NONCE = 12;
const HEADER = /^toolmux-secrets (\d{1,9}) ([0-9a-f]{16})\n/;
/** Longer than any header. */
const HEADER_ROOM = 64;

export function makeVaultKey(): VaultKey {
  const id = Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex");
  return { id, bytes: crypto.getRandomValues(new Uint8Array(32)) };
}

/** A key as a text. */
export function formatVaultKey({ id, bytes }: VaultKey): string {
  return `toolmux-key ${VERSION} ${id} ${Buffer.from(bytes).toString("base64")}`;
}

/** @returns undefined for what is no key */
export function parseVaultKey(text: string): VaultKey | undefined {
  const [, id, spelled] = /^toolmux-key 1 ([0-9a-f]{16}) ([A-Za-z0-9+/]{43}=)\s*$/.exec(text) ?? [];
  if (id === undefined || spelled === undefined) return undefined;
  return { id, bytes: new Uint8Array(Buffer.from(spelled, "base64")) };
}

/** Whose key it takes to open a sealed file; or why it is none that can be opened. */
export type SealedHeader =
  | { readonly kind: "sealed"; readonly keyId: string }
  | { readonly kind: "newer" }
  | { readonly kind: "alien" };

export function parseSealedHeader(file: Bytes): SealedHeader {
  const found = HEADER.exec(headOf(file));
  if (found === null) return { kind: "alien" };
  const [, version, keyId = ""] = found;
  return version === VERSION ? { kind: "sealed", keyId } : { kind: "newer" };
}

/** Each time with another nonce, also if the content is the same. */
export async function seal(content: Bytes, key: VaultKey): Promise<Bytes> {
  const header = Buffer.from(`${MAGIC} ${VERSION} ${key.id}\n`, "latin1");
  const nonce = crypto.getRandomValues(new Uint8Array(NONCE));
  const algorithm = { name: "AES-GCM", iv: nonce, additionalData: new Uint8Array(header) };
  const sealed = await crypto.subtle.encrypt(algorithm, await use(key), content);
  return new Uint8Array(Buffer.concat([header, nonce, new Uint8Array(sealed)]));
}

/** @returns undefined if the file is not as it was sealed, or with another key */
export async function unseal(file: Bytes, key: VaultKey): Promise<Bytes | undefined> {
  const length = HEADER.exec(headOf(file))?.[0].length ?? 0;
  const additionalData = file.slice(0, length);
  const iv = file.slice(length, length + NONCE);
  try {
    const algorithm = { name: "AES-GCM", iv, additionalData };
    const sealed = file.slice(length + NONCE);
    return new Uint8Array(await crypto.subtle.decrypt(algorithm, await use(key), sealed));
  } catch {
    return undefined;
  }
}

function headOf(file: Bytes): string {
  return Buffer.from(file.subarray(0, HEADER_ROOM)).toString("latin1");
}

function use({ bytes }: VaultKey): Promise<CryptoKey> {
  return crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
}

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
