import { Buffer } from "node:buffer";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { utf8 } from "../base/bytes.ts";
import {
  ensurePrivateFolder,
  readPrivate,
  replaceFromTemp,
  writePrivate,
} from "../base/private-files.ts";
import { sleep } from "../base/clock.ts";
import { hmacOnBun } from "../base/runtime.ts";

/** Computes HMAC-SHA-256 with the key of this installation, as 64 hex digits. */
export type Hmac = (bytes: Uint8Array<ArrayBuffer>) => Promise<string>;

const KEY_FORMAT = /^[0-9a-f]{64}\n$/;
const KEY_FILE_LENGTH = 65;
/** Maximum number of waits for another process that is writing the key; each wait takes `POLL_DELAY` ms. */
const MAX_TRIES = 50;
const POLL_DELAY = 10;

/**
 * Makes the HMAC function with the installation's key; undefined if there is no key or it is damaged. Never rejects.
 * @param folder the state folder
 */
export async function readHmac(folder: string): Promise<Hmac | undefined> {
  const key = await readKey(installationKeyPath(folder));
  return key && openHmac(key);
}

/**
 * Makes the HMAC function with the installation's key. Creates the key if there is none or it is damaged. Concurrent
 * processes get the same key: only the one that creates the temporary file may write it.
 * @throws {Error} if the state folder is not writable
 */
export async function obtainHmac(folder: string): Promise<Hmac> {
  const path = installationKeyPath(folder);
  const tempPath = `${path}.draft`;
  for (let tries = 1; ; tries++) {
    const key = await readKey(path);
    if (key !== undefined) return openHmac(key);
    await ensurePrivateFolder(folder);
    const newKey = Buffer.from(crypto.getRandomValues(new Uint8Array(32)));
    try {
      await writePrivate(tempPath, utf8(`${newKey.toString("hex")}\n`));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST" || tries > MAX_TRIES) throw error;
      // Another process is writing the key, or was killed while doing so. After the last wait, its draft is removed.
      if (tries === MAX_TRIES) await rm(tempPath, { recursive: true, force: true });
      await sleep(POLL_DELAY);
      continue;
    }
    try {
      // Another process may have written the key before the temporary file was created.
      const existing = await readKey(path);
      if (existing === undefined) await replaceFromTemp(tempPath, path);
      return await openHmac(existing ?? newKey);
    } finally {
      await rm(tempPath, { force: true });
    }
  }
}

/** Path of the installation's key in the state folder: 32 random bytes as hex digits, with a line end. */
function installationKeyPath(folder: string): string {
  return join(folder, "installation.key");
}

async function readKey(path: string): Promise<Buffer<ArrayBuffer> | undefined> {
  const text = (await readPrivate(path, KEY_FILE_LENGTH))?.toString("latin1");
  if (text === undefined || !KEY_FORMAT.test(text)) return undefined;
  return Buffer.from(text.trimEnd(), "hex");
}

async function openHmac(key: Uint8Array<ArrayBuffer>): Promise<Hmac> {
  if (hmacOnBun !== undefined) {
    const compute = hmacOnBun;
    return (bytes) => Promise.resolve(compute(key, bytes));
  }
  // Uses Web Crypto, because loading node:crypto would double the time of the program's start.
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", key, algorithm, false, ["sign"]);
  return async (bytes) =>
    Buffer.from(await crypto.subtle.sign("HMAC", imported, bytes)).toString("hex");
}
