import { Buffer } from "node:buffer";
import { chmod, stat } from "node:fs/promises";
import { join } from "node:path";
import { HubError } from "../base/errors.ts";
import { removeStaleTempFiles, replacePrivate, writePrivate } from "../base/private-files.ts";
import { decodeUtf8, type FileBytes, readFileLimited } from "../base/read-file.ts";
import { withFileLock, writeErrorOf } from "../process/file-lock.ts";
import type { Keychain } from "./keychain.ts";

/*
 * Format of a vault file: a header line `toolmux-secrets 1 KEY`, where KEY is the id of the key; a random 12-byte
 * nonce; the content, encrypted with AES-256-GCM, with the header line as additional authenticated data.
 */

/** A key of 256 random bits, with a random id. */
export interface VaultKey {
  readonly id: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

type Bytes = Uint8Array<ArrayBuffer>;

const FORMAT_NAME = "toolmux-secrets";
const FORMAT_VERSION = "1";
const NONCE_LENGTH = 12;
const HEADER_PATTERN = /^toolmux-secrets (\d{1,9}) ([0-9a-f]{16})\n/;
/** An upper bound for the header's length, in bytes. */
const MAX_HEADER_LENGTH = 64;

export function makeVaultKey(): VaultKey {
  const id = Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex");
  return { id, bytes: crypto.getRandomValues(new Uint8Array(32)) };
}

export function formatVaultKey({ id, bytes }: VaultKey): string {
  return `toolmux-key ${FORMAT_VERSION} ${id} ${Buffer.from(bytes).toString("base64")}`;
}

/** Parses a key that `formatVaultKey` has formatted. @returns undefined if the text is not a key */
export function parseVaultKey(text: string): VaultKey | undefined {
  const [, id, base64] = /^toolmux-key 1 ([0-9a-f]{16}) ([A-Za-z0-9+/]{43}=)\s*$/.exec(text) ?? [];
  if (id === undefined || base64 === undefined) return undefined;
  return { id, bytes: new Uint8Array(Buffer.from(base64, "base64")) };
}

/** The header of a vault file: the id of its key, or the reason why the file cannot be opened. */
export type SealedHeader =
  | { readonly kind: "sealed"; readonly keyId: string }
  | { readonly kind: "newer" }
  | { readonly kind: "unrecognized" };

export function parseSealedHeader(file: Bytes): SealedHeader {
  const match = HEADER_PATTERN.exec(headerTextOf(file));
  if (match === null) return { kind: "unrecognized" };
  const [, version, keyId = ""] = match;
  return version === FORMAT_VERSION ? { kind: "sealed", keyId } : { kind: "newer" };
}

/** Encrypts the content of a vault file, with a new nonce. */
export async function seal(content: Bytes, key: VaultKey): Promise<Bytes> {
  const header = Buffer.from(`${FORMAT_NAME} ${FORMAT_VERSION} ${key.id}\n`, "latin1");
  const nonce = crypto.getRandomValues(new Uint8Array(NONCE_LENGTH));
  const algorithm = { name: "AES-GCM", iv: nonce, additionalData: new Uint8Array(header) };
  const sealed = await crypto.subtle.encrypt(algorithm, await importKey(key), content);
  return new Uint8Array(Buffer.concat([header, nonce, new Uint8Array(sealed)]));
}

/** Decrypts a vault file. @returns undefined if the file was modified, or encrypted with another key */
export async function unseal(file: Bytes, key: VaultKey): Promise<Bytes | undefined> {
  const length = HEADER_PATTERN.exec(headerTextOf(file))?.[0].length ?? 0;
  const additionalData = file.slice(0, length);
  const iv = file.slice(length, length + NONCE_LENGTH);
  try {
    const algorithm = { name: "AES-GCM", iv, additionalData };
    const sealed = file.slice(length + NONCE_LENGTH);
    return new Uint8Array(await crypto.subtle.decrypt(algorithm, await importKey(key), sealed));
  } catch {
    return undefined;
  }
}

function headerTextOf(file: Bytes): string {
  return Buffer.from(file.subarray(0, MAX_HEADER_LENGTH)).toString("latin1");
}

function importKey({ bytes }: VaultKey): Promise<CryptoKey> {
  return crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
}

/** The decrypted content: values by name. */
export type VaultContent = Map<string, string>;

/**
 * The place of the vault's key. `beside`: in the vault's folder, where it does not protect against anyone who can
 * read the folder; `none`: there is no vault file yet.
 */
export type VaultProtection = "keychain" | "beside" | "none";

/** Maximum sizes, in bytes. */
const MAX_FILE = 16 * 1024 * 1024;
const MAX_KEY = 1024;
/** Maximum wait for another process to release the lock, in ms. */
const LOCK_TIMEOUT = 20_000;
const NEVER_ABORTED = new AbortController().signal;

/** An encrypted file in a folder. A change reads and writes the whole file, under a lock across processes. */
export class Vault {
  readonly path: string;
  readonly #folder: string;
  readonly #keychain: Keychain;
  readonly #keyPath: string;
  /** Cache of the keys by id, so that the keychain is read only once. */
  readonly #keys = new Map<string, VaultKey>();

  /** @param folder absolute; created with private permissions at the first write */
  constructor(folder: string, keychain: Keychain) {
    this.#folder = folder;
    this.#keychain = keychain;
    this.path = join(folder, "values");
    this.#keyPath = join(folder, "key");
  }

  /** Reads the content. @throws {HubError} storeBroken if the file is not readable; the file is left unchanged */
  async read(): Promise<VaultContent> {
    return (await this.#open())?.content ?? new Map();
  }

  /**
   * Changes the content. The file is written only if `modify` returns true.
   * @param modify changes the content in place, and returns whether it did
   * @throws {HubError} storeBroken, storeBusy
   */
  async change(modify: (content: VaultContent) => boolean): Promise<boolean> {
    const update = async (): Promise<boolean> => {
      const opened = await this.#open();
      const content: VaultContent = opened?.content ?? new Map();
      if (!modify(content)) return false;
      const key = opened?.key ?? (await this.#newKey());
      // A killed process may have left a temporary file.
      await removeStaleTempFiles(this.#folder, Date.now()).catch(() => {});
      await replacePrivate(this.path, await seal(encodeContent(content), key));
      return true;
    };
    try {
      return await withFileLock(join(this.#folder, "lock"), NEVER_ABORTED, update, {
        waitTimeout: LOCK_TIMEOUT,
      });
    } catch (error) {
      throw writeErrorOf(this.#folder, error);
    }
  }

  /** The place of the key. @throws {HubError} storeBroken if the file is not readable */
  async protection(): Promise<VaultProtection> {
    const opened = await this.#open();
    if (opened === undefined) return "none";
    const keyInFile = await this.#readKeyFile();
    return keyInFile?.id === opened.key.id ? "beside" : "keychain";
  }

  async #open(): Promise<{ readonly content: VaultContent; readonly key: VaultKey } | undefined> {
    const file = await readFileLimited(this.path, MAX_FILE);
    if (file.kind === "absent") return undefined;
    if (file.kind === "refused") throw this.#brokenError(`it ${file.reason}`);
    await makePrivate(this.path);
    const header = parseSealedHeader(file.bytes);
    if (header.kind === "unrecognized")
      throw this.#brokenError(`it is damaged. ${this.#restoreAdvice}`);
    if (header.kind === "newer") {
      throw this.#brokenError("a newer version of toolmux wrote it; use that version");
    }
    const key = await this.#findKey(header.keyId);
    const bytes = await unseal(file.bytes, key);
    const content = bytes && decodeContent(bytes);
    if (content === undefined) throw this.#brokenError(`it is damaged. ${this.#restoreAdvice}`);
    return { content, key };
  }

  async #findKey(id: string): Promise<VaultKey> {
    const cached = this.#keys.get(id);
    if (cached !== undefined) return cached;
    const keyInFile = await this.#readKeyFile();
    const key =
      keyInFile?.id === id
        ? keyInFile
        : parseVaultKey((await this.#keychain.get(keychainEntryOf(id))) ?? "");
    if (key?.id !== id) {
      const { fault = "the keychain may be locked, or belong to another user" } = this.#keychain;
      const text = `its key is missing. There is no file ${this.#keyPath}, and the keychain does not have the key: ${fault}. Unlock the keychain, or restore the key file. If the key is lost, ${this.#startOverAdvice}`;
      throw this.#brokenError(text);
    }
    this.#keys.set(id, key);
    return key;
  }

  /** Reads the key file. @throws {HubError} storeBroken if the file exists but has no usable key */
  async #readKeyFile(): Promise<VaultKey | undefined> {
    const file = await readFileLimited(this.#keyPath, MAX_KEY);
    if (file.kind === "absent") return undefined;
    if (file.kind === "refused")
      throw this.#brokenError(`its key, ${this.#keyPath}, ${file.reason}`);
    await makePrivate(this.#keyPath);
    const key = parseVaultKey(decodeUtf8(file.bytes) ?? "");
    if (key !== undefined) return key;
    throw this.#brokenError(`its key, ${this.#keyPath}, is damaged. ${this.#restoreAdvice}`);
  }

  /**
   * Makes the key for a new vault file. It is stored in the keychain if it can be read back from there, else in a
   * file.
   */
  async #newKey(): Promise<VaultKey> {
    const existing = await this.#readKeyFile();
    if (existing !== undefined) return existing;
    const key = makeVaultKey();
    const name = keychainEntryOf(key.id);
    await this.#keychain.set(name, formatVaultKey(key)).catch(() => {});
    const readBack = this.#keychain.fault === undefined && (await this.#keychain.get(name));
    if (readBack !== formatVaultKey(key))
      await writePrivate(this.#keyPath, encodeText(`${formatVaultKey(key)}\n`));
    this.#keys.set(key.id, key);
    return key;
  }

  get #restoreAdvice(): string {
    return `Restore a backup of it, or ${this.#startOverAdvice}`;
  }

  get #startOverAdvice(): string {
    return `move the store away (mv ${this.path} ${this.path}.old) and set the secrets again (toolmux secret set NAME)`;
  }

  #brokenError(reason: string): HubError {
    return new HubError("storeBroken", `The secret store ${this.path} cannot be used: ${reason}.`);
  }
}

/** The keychain entry of a key. Each vault has its own. */
function keychainEntryOf(keyId: string): string {
  return `key/${keyId}`;
}

/** Removes the permissions of group and others, which a copied file may have. Ignores failures: reading still works. */
async function makePrivate(path: string): Promise<void> {
  const { mode } = await stat(path);
  if ((mode & 0o077) !== 0) await chmod(path, 0o600).catch(() => {});
}

function encodeText(text: string): FileBytes {
  return new TextEncoder().encode(text);
}

/** Maps are serialized as lists of pairs, because a name may be `__proto__`. */
function encodeContent(content: VaultContent): FileBytes {
  return encodeText(JSON.stringify({ values: [...content] }));
}

/** Parses the decrypted content. @returns undefined if it is not in the expected form */
function decodeContent(bytes: FileBytes): VaultContent | undefined {
  try {
    const { values } = JSON.parse(decodeUtf8(bytes) ?? "") as Record<string, unknown>;
    return Array.isArray(values) && values.every(isPair) ? new Map(values) : undefined;
  } catch {
    return undefined;
  }
}

function isPair(value: unknown): value is readonly [string, string] {
  return (
    Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === "string")
  );
}
