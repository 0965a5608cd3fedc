import { join } from "node:path";
import process from "node:process";
import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { decodeUtf8, readFileLimited, type FileBytes } from "../base/read-file.ts";
import { isTable } from "./table.ts";

/** The trust store in the state folder: `{"files": {"<real path>": "<SHA-256 of the content, hex>"}}`. */
const STORE_FILE = "trusted.json";
const MAX_STORE_SIZE = 4 * 1024 * 1024;

/** The largest manifest that is read, in bytes. */
export const MAX_MANIFEST_SIZE = 4 * 1024 * 1024;

/** The path of the trust store. @param folder the state folder */
export function trustStorePath(folder: string): string {
  return join(folder, STORE_FILE);
}

/**
 * Whether the user has trusted the file `path` with exactly this `content`. `folder` is the state folder. A missing,
 * damaged or unreadable store trusts nothing.
 */
export async function isTrusted(
  path: string,
  content: FileBytes,
  folder: string,
): Promise<boolean> {
  const files = await readStore(folder);
  if (files.size === 0) return false;
  const { realpath } = process.getBuiltinModule("node:fs/promises");
  const realPath = await realpath(path).catch(() => undefined);
  return realPath !== undefined && files.get(realPath) === (await sha256Hex(content));
}

/**
 * Trusts a file with exactly this `content`, replacing earlier trust. The file is not read again: what is trusted is
 * what the user has seen or written. The caller holds the lock of the state folder `folder`.
 * @returns the real path of the file
 * @throws {HubError} usage if the file does not exist any more
 */
export async function trust(path: string, content: FileBytes, folder: string): Promise<string> {
  const { realpath } = process.getBuiltinModule("node:fs/promises");
  const realPath = await realpath(path).catch(() => undefined);
  if (realPath === undefined) throw new HubError("usage", `${path} does not exist`);
  const files = await readStore(folder);
  files.set(realPath, await sha256Hex(content));
  await writeStore(folder, files);
  return realPath;
}

async function readStore(folder: string): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  const read = await readFileLimited(trustStorePath(folder), MAX_STORE_SIZE);
  if (read.kind !== "read") return files;
  try {
    const store: unknown = JSON.parse(decodeUtf8(read.bytes) ?? "");
    if (!isTable(store) || !isTable(store["files"])) return files;
    for (const [path, hash] of Object.entries(store["files"])) {
      if (typeof hash === "string") files.set(path, hash);
    }
  } catch {
    // A damaged store trusts nothing, and the next `trust` replaces it.
  }
  return files;
}

async function writeStore(folder: string, files: ReadonlyMap<string, string>): Promise<void> {
  const { ensurePrivateFolder, replacePrivate } = await import("../base/private-files.ts");
  await ensurePrivateFolder(folder);
  const text = JSON.stringify({ files: Object.fromEntries(files) }, null, 2);
  await replacePrivate(trustStorePath(folder), utf8(`${text}\n`));
}

export async function sha256Hex(content: FileBytes): Promise<string> {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
