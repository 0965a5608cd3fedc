import { Buffer } from "node:buffer";

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
