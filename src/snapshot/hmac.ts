import { Buffer } from "node:buffer";
import { rm } from "node:fs/promises";
import { utf8 } from "../base/bytes.ts";
import {
  ensurePrivateFolder,
  readPrivate,
  replaceFromTemp,
  writePrivate,
} from "../base/private-files.ts";
import { sleep } from "../base/clock.ts";
import { installationKeyPath } from "../base/paths.ts";

/** HMAC-SHA-256 with the key of this installation, as 64 hex digits. */
export type Hmac = (bytes: Uint8Array<ArrayBuffer>) => Promise<string>;

const FORM = /^[0-9a-f]{64}\n$/;
const LENGTH = 65;
/** How often to look whether another hub has written the key, which takes it some ms; and how long between, in ms. */
const MAX_TRIES = 50;
const PAUSE = 10;

/** Seals with the key that there is; undefined if there is none, or a damaged one. `folder` is the state folder. Never rejects. */
export async function readHmac(folder: string): Promise<Hmac | undefined> {
  const key = await readKey(installationKeyPath(folder));
  return key && openSeal(key);
}

/**
 * Seals with the key that there is, or a new one if there is none, or a damaged one. Hubs that do this at once get
 * the same: whoever has the draft, of which there can be only one, may write the key.
 * @throws {Error} if the state folder cannot be written.
 */
export async function obtainHmac(folder: string): Promise<Hmac> {
  const path = installationKeyPath(folder);
  const draft = `${path}.draft`;
  for (let tries = 1; ; tries++) {
    const key = await readKey(path);
    if (key !== undefined) return openSeal(key);
    await ensurePrivateFolder(folder);
    const fresh = Buffer.from(crypto.getRandomValues(new Uint8Array(32)));
    try {
      await writePrivate(draft, utf8(`${fresh.toString("hex")}\n`));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST" || tries > MAX_TRIES) throw error;
      // Another hub is at it, or was and ended.
      if (tries === MAX_TRIES) await rm(draft, { recursive: true, force: true });
      await sleep(PAUSE);
      continue;
    }
    try {
      // Another hub may have written one before this hub had the draft.
      const made = await readKey(path);
      if (made === undefined) await replaceFromTemp(draft, path);
      return await openSeal(made ?? fresh);
    } finally {
      await rm(draft, { force: true });
    }
  }
}

async function readKey(path: string): Promise<Buffer<ArrayBuffer> | undefined> {
  const text = (await readPrivate(path, LENGTH))?.toString("latin1");
  if (text === undefined || !FORM.test(text)) return undefined;
  return Buffer.from(text.trimEnd(), "hex");
}

async function openSeal(key: Uint8Array<ArrayBuffer>): Promise<Hmac> {
  // Web crypto: loading node:crypto takes as long as the rest of a start.
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", key, algorithm, false, ["sign"]);
  return async (bytes) =>
    Buffer.from(await crypto.subtle.sign("HMAC", imported, bytes)).toString("hex");
}
