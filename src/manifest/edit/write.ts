import {
  chmod,
  chown,
  type FileHandle,
  lstat,
  mkdir,
  mkdtemp,
  open,
  realpath,
  rename,
  rm,
  stat,
} from "node:fs/promises";
import { Buffer } from "node:buffer";
import type { Stats } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { utf8 } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import { writePrivate } from "../../base/private-files.ts";
import { SCHEMA_ID } from "../../base/homepage.ts";
import { type FileBytes, readFileLimited } from "../../base/read-file.ts";
import { configFolders, type SystemEnvironment } from "../../base/paths.ts";
import { detectFormat, type FileFormat, parseText } from "../syntax/parse.ts";
import { fileProblem, manifestError } from "../problems.ts";
import { isTable, type Table } from "../table.ts";
import { MAX_MANIFEST_SIZE } from "../trust.ts";
import { type EditedText, editManifest, type ManifestChange } from "./edit.ts";

/** A change that is ready to be written to its file. */
export interface PreparedEdit extends EditedText {
  /** The absolute path; symbolic links are not resolved. */
  readonly file: string;
  /** The current content; undefined if the file does not exist. */
  readonly before: FileBytes | undefined;
  /** Writes the file, as `replaceFile`. */
  write(): Promise<WriteResult>;
}

/** The manifest that servers are added to by default: the user's own, whether it exists or not. */
export async function findUserFile({ env, platform }: SystemEnvironment): Promise<string> {
  const folders = configFolders(env, platform);
  const names = ["toolmux.toml", "toolmux.json", "toolmux.jsonc"];
  const files = folders.flatMap((folder) => names.map((name) => join(folder, name)));
  for (const file of files) {
    const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
    if (read.kind !== "absent") return file;
  }
  return files[0] ?? "toolmux.toml";
}

/** The text of a manifest without servers, which names its schema for editors. */
export function newManifestText(format: FileFormat): string {
  return format === "toml"
    ? `#:schema ${SCHEMA_ID}\n`
    : `${JSON.stringify({ $schema: SCHEMA_ID }, null, 2)}\n`;
}

/**
 * Applies a change to a file's text. A new file names its schema for editors.
 * @param file absolute
 * @throws {HubError} as editManifest, and usage if the file cannot be read
 */
export async function prepareEdit(file: string, change: ManifestChange): Promise<PreparedEdit> {
  const before = await readBytes(file);
  const current = before === undefined ? "" : decodeWithByteOrderMark(before, file);
  const format = detectFormat(file, current);
  const text = before === undefined ? newManifestText(format) : current;
  const edited = await editManifest({ file, baseDir: dirname(file), text, format }, change);
  return {
    file,
    before,
    ...edited,
    write: () => replaceFile(file, before, utf8(edited.text)),
  };
}

/**
 * The entry of a server as written in a file; undefined if the file has no such server.
 * @param file absolute
 * @throws {HubError} usage if the file cannot be read; manifestInvalid if it cannot be parsed
 */
export async function readServerEntry(file: string, name: string): Promise<Table | undefined> {
  const root = await readRoot(file);
  const servers = root["servers"] ?? root["mcpServers"];
  const entry = isTable(servers) && Object.hasOwn(servers, name) ? servers[name] : undefined;
  return isTable(entry) ? entry : undefined;
}

/**
 * The value of a key of the table `hub` as written in a file; undefined if the file does not have it.
 * @param file absolute
 * @throws {HubError} as `readServerEntry`
 */
export async function readHubKey(file: string, key: string): Promise<unknown> {
  const { hub } = await readRoot(file);
  return isTable(hub) ? hub[key] : undefined;
}

/** The content of a file; empty if the file does not exist, or is no table. @throws {HubError} */
async function readRoot(file: string): Promise<Table> {
  const bytes = await readBytes(file);
  const text = bytes === undefined ? "" : decodeWithByteOrderMark(bytes, file);
  const parsed = await parseText(text.replace(/^\ufeff/, ""), detectFormat(file, text));
  if (!parsed.ok) throw manifestError([fileProblem(file, parsed.message, parsed.position)]);
  return isTable(parsed.root) ? parsed.root : {};
}

/** @returns undefined if there is no such file @throws {HubError} usage if the file cannot be read */
async function readBytes(file: string): Promise<FileBytes | undefined> {
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  if (read.kind === "refused") throw new HubError("usage", `${file} ${read.reason}.`);
  return read.kind === "absent" ? undefined : read.bytes;
}

/** Decodes the bytes of a file; keeps the byte order mark. @throws {HubError} usage */
function decodeWithByteOrderMark(bytes: FileBytes, file: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new HubError("usage", `${file} is not UTF-8 text.`);
  }
}

/**
 * How a file was written. `backup`: the path of the text before, if the file had to be written in place; undefined if it
 * was replaced atomically.
 */
export interface WriteResult {
  readonly backup: string | undefined;
}

/**
 * Replaces a file atomically, following symbolic links and keeping owner and permissions; a new file gets mode 0600. A
 * file that cannot be replaced, such as one that is mounted into a container, is written in place after a backup.
 * @param before the content when it was read; undefined: there was no file
 * @throws {HubError} usage if the content has changed since, the file is read-only, or no backup can be written; file
 * system errors
 */
export async function replaceFile(
  file: string,
  before: FileBytes | undefined,
  bytes: Uint8Array,
): Promise<WriteResult> {
  if (before === undefined) {
    await createFile(file, bytes);
    return { backup: undefined };
  }
  const target = await realpath(file);
  const { mode, uid, gid } = await requireWritable(file);
  const tempFile = `${target}.${crypto.randomUUID()}.draft`;
  try {
    await writePrivate(tempFile, bytes);
    await chmod(tempFile, mode & 0o7777);
    // Keeps the file's owner when toolmux runs under sudo.
    await chown(tempFile, uid, gid).catch(() => undefined);
    await requireUnchanged(file, target, before);
    await rename(tempFile, target);
    return { backup: undefined };
  } catch (error) {
    await rm(tempFile, { force: true }).catch(() => undefined);
    if (!NOT_REPLACEABLE.has(codeOf(error))) throw error;
  }
  await requireUnchanged(file, target, before);
  return { backup: await overwrite(file, target, before, bytes) };
}

/**
 * A rename could replace even a read-only file, but an edit must respect the file's mode.
 * @throws {HubError} usage if the file is read-only; an error of the file system if it does not exist
 */
export async function requireWritable(file: string): Promise<Stats> {
  const stats = await stat(file);
  if ((stats.mode & 0o222) === 0) throw new HubError("usage", `${file} is read-only.`);
  return stats;
}

/**
 * The errors with which a file system refuses a file beside another one, or its rename over it: the file is a mount
 * point, or the folder may not be changed although the file may.
 */
const NOT_REPLACEABLE = new Set("EACCES EBUSY EINVAL ENOTSUP EPERM EROFS ETXTBSY EXDEV".split(" "));

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/**
 * Writes a file in place. Its old text is kept in a backup that only its owner can read, beside the file or, if nothing
 * can be written there, in a folder for temporary files.
 * @returns the path of the backup
 */
async function overwrite(
  file: string,
  target: string,
  before: FileBytes,
  bytes: Uint8Array,
): Promise<string> {
  // The file is opened first: without the permission to write, no backup is left behind.
  const handle = await open(target, "r+").catch((error: unknown) => {
    const isRefused = ["EACCES", "EPERM", "EROFS"].includes(codeOf(error));
    throw isRefused ? new HubError("usage", `${file} is read-only.`) : error;
  });
  try {
    const backup = await backUp(file, target, before);
    try {
      await writeWhole(handle, bytes);
    } catch (error) {
      await writeWhole(handle, before).catch(() => undefined);
      const reason = error instanceof Error ? error.message : String(error);
      const message = `${file} could not be written: ${reason}. Its text before is in ${backup}.`;
      throw new HubError("usage", message, { cause: error });
    }
    return backup;
  } finally {
    await handle.close();
  }
}

/** Writes the new text over the old one before the rest of the old one is cut off, so that the file is never empty. */
async function writeWhole(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) {
    const { bytesWritten } = await handle.write(bytes, at, bytes.length - at, at);
    at += bytesWritten;
  }
  await handle.truncate(bytes.length);
  await handle.sync();
}

/** @throws {HubError} usage if no backup can be written */
async function backUp(file: string, target: string, before: FileBytes): Promise<string> {
  const beside = `${target}.before-edit`;
  try {
    await rm(beside, { force: true });
    await writePrivate(beside, before);
    return beside;
  } catch {
    try {
      const elsewhere = join(await mkdtemp(join(tmpdir(), "toolmux-")), basename(beside));
      await writePrivate(elsewhere, before);
      return elsewhere;
    } catch (error) {
      const message = `${file} cannot be replaced, only written in place, and no backup can be written. Nothing was changed.`;
      throw new HubError("usage", message, { cause: error });
    }
  }
}

async function requireUnchanged(file: string, target: string, before: FileBytes): Promise<void> {
  const current = await readFileLimited(target, before.length);
  if (current.kind !== "read" || !Buffer.from(before).equals(current.bytes))
    throw changedMeanwhileError(file);
}

async function createFile(file: string, bytes: Uint8Array): Promise<void> {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  try {
    await writePrivate(file, bytes);
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw error;
    const isLink = await lstat(file).then((stats) => stats.isSymbolicLink());
    if (isLink) throw new HubError("usage", `${file} is a broken link.`);
    throw changedMeanwhileError(file);
  }
}

function changedMeanwhileError(file: string): HubError {
  return new HubError("usage", `${file} was changed meanwhile; nothing was written, try again.`);
}
