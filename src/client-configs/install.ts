import { Buffer } from "node:buffer";
import { readdir, readFile, realpath, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { utf8 } from "../base/bytes.ts";
import { writePrivate } from "../base/private-files.ts";
import { decodeUtf8, type FileBytes } from "../base/read-file.ts";
import { replaceFile, requireWritable } from "../manifest/edit/write.ts";
import { TOOLMUX_KEY } from "../manifest/files/own-entry.ts";
import { isTable, type Table } from "../manifest/table.ts";
import type { ClientApp, ServerTableChange, ServerTable } from "./clients.ts";
import { editClientFile } from "./edit.ts";
import { type ClientFileProblem, readClientFileText } from "./read.ts";

/** Maximum number of backups of one file that are kept. */
const MAX_BACKUPS = 3;
const BACKUP_INFIX = ".toolmux-backup-";

export interface OriginalFile {
  /** The real path, with symbolic links resolved. */
  readonly path: string;
  /** The content of the file; undefined if it does not exist. */
  readonly bytes: FileBytes | undefined;
}

/** Reads a file; follows symbolic links. */
export async function openOriginal(file: string): Promise<OriginalFile> {
  const path = await realpath(file).catch(() => file);
  try {
    return { path, bytes: await readFile(path) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return { path, bytes: undefined };
  }
}

/**
 * Writes a backup beside the file, readable by its owner only, and removes the oldest backups above MAX_BACKUPS.
 * @param now ms since the epoch
 * @returns the backup's path
 */
export async function writeBackup({ path, bytes }: OriginalFile, now: number): Promise<string> {
  const time = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "");
  const existing = await listBackups(path);
  let backup = `${path}${BACKUP_INFIX}${time}`;
  for (let number = 2; existing.includes(backup); number++)
    backup = `${path}${BACKUP_INFIX}${time}-${number}`;
  await writePrivate(backup, bytes ?? new Uint8Array());
  for (const old of existing.slice(MAX_BACKUPS - 1)) await rm(old, { force: true });
  return backup;
}

/** The paths of a file's backups, newest first. */
export async function listBackups(path: string): Promise<readonly string[]> {
  const folder = dirname(path);
  const start = `${basename(path)}${BACKUP_INFIX}`;
  const names = await readdir(folder).catch(() => []);
  const copies = names.filter((name) => name.startsWith(start)).toSorted(compareNewest);
  return copies.map((name) => join(folder, name));
}

/**
 * Sorts backups, newest first. Numbers in file names are compared by value, because backups of the same second have a
 * number at the end.
 */
function compareNewest(a: string, b: string): number {
  return b.localeCompare(a, "en", { numeric: true });
}

export interface PreparedInstall {
  readonly kind: "ready";
  readonly original: OriginalFile;
  readonly before: string;
  readonly after: string;
  /** Writes the file. @returns the path of the new backup; undefined if none was needed */
  apply(now: number): Promise<string | undefined>;
}

/**
 * The result of preparing an installation. The message of `problem` continues a sentence that begins with the file's
 * name.
 */
export type InstallResult =
  | PreparedInstall
  | { readonly kind: "same" }
  | { readonly kind: "refused"; readonly problem: ClientFileProblem };

/**
 * Prepares writing toolmux's entry into a client's file, in place of the servers in `remove`.
 * @throws {HubError} usage if the file is read-only
 */
export async function prepareInstall(
  client: ClientApp,
  { file, keys }: ServerTable,
  entry: Table,
  remove: readonly string[] = [],
): Promise<InstallResult> {
  const content = await readClientFileText(file, client.format);
  if (content.kind === "broken") return { kind: "refused", problem: content.problem };
  const before = content.kind === "read" ? content.text : "";
  const change = { keys, remove, set: { [TOOLMUX_KEY]: entry } };
  const original = await openOriginal(file);
  const previous = await previousFileOf(client, keys, original, before);
  const start = previous?.text ?? before;
  const edited = await editClientFile(
    start,
    client.format,
    withMoreRemoved(previous?.removed ?? [], change),
  );
  if (!edited.ok) return refuse(edited.reason);
  if (edited.text === before) return { kind: "same" };
  // Before servers move into the manifest, it must be certain that they can be taken out of this file.
  if (original.bytes !== undefined) await requireWritable(original.path);
  return {
    kind: "ready",
    original,
    before,
    after: edited.text,
    apply: async (now) => {
      // If toolmux wrote the current content, a backup of the original content exists already, so no new one is made.
      const hasBackup = previous !== undefined || original.bytes === undefined;
      const backup = hasBackup ? undefined : await writeBackup(original, now);
      try {
        await replaceOriginal(original, encodeLikeOriginal(edited.text, original));
      } catch (error) {
        if (backup !== undefined) await rm(backup, { force: true });
        throw error;
      }
      return backup;
    },
  };
}

/**
 * The prepared undo of an installation. `restore`: restores the backup; `remove`: deletes the file; `edit`: removes
 * only toolmux's entry; `absent`: there is no such entry.
 */
export type UndoResult =
  | {
      readonly kind: "restore";
      readonly backup: string;
      /** The names of the servers that come back. */
      readonly restored: readonly string[];
      apply(): Promise<void>;
    }
  | { readonly kind: "remove"; apply(): Promise<void> }
  | {
      readonly kind: "edit";
      /**
       * The names of the servers that are in the newest backup but not in the file; undefined if there is no backup.
       */
      readonly former: { readonly backup: string; readonly servers: readonly string[] } | undefined;
      readonly before: string;
      readonly after: string;
      apply(): Promise<void>;
    }
  | { readonly kind: "absent" }
  | { readonly kind: "refused"; readonly problem: ClientFileProblem };

/** Prepares the undo of what `prepareInstall` did to a client's file. */
export async function prepareUndo(
  client: ClientApp,
  { file, keys }: ServerTable,
): Promise<UndoResult> {
  const content = await readClientFileText(file, client.format);
  if (content.kind === "broken") return { kind: "refused", problem: content.problem };
  if (content.kind === "absent" || ownEntryIn(content.root, keys) === undefined) {
    return { kind: "absent" };
  }
  const { text: before } = content;
  const original = await openOriginal(file);
  const previous = await previousFileOf(client, keys, original, before);
  if (previous?.backup !== undefined) {
    const { backup, bytes, removed } = previous;
    return {
      kind: "restore",
      backup,
      restored: removed,
      apply: async () => {
        await replaceOriginal(original, bytes);
        await rm(backup, { force: true });
      },
    };
  }
  if (previous !== undefined) return { kind: "remove", apply: () => rm(original.path) };
  const edited = await editClientFile(before, client.format, {
    keys,
    remove: [TOOLMUX_KEY],
    set: {},
  });
  if (!edited.ok) return refuse(edited.reason);
  return {
    kind: "edit",
    former: await formerServersOf(client, keys, original.path, content.root),
    before,
    after: edited.text,
    apply: () => replaceOriginal(original, encodeLikeOriginal(edited.text, original)),
  };
}

/**
 * The names of the servers that are in the newest backup of a file but not in the file; undefined if there is no
 * readable backup.
 */
async function formerServersOf(
  client: ClientApp,
  keys: readonly string[],
  path: string,
  current: Table,
): Promise<{ readonly backup: string; readonly servers: readonly string[] } | undefined> {
  const [backup] = await listBackups(path);
  const text = backup === undefined ? undefined : decodeUtf8(await readFile(backup));
  const old = text === undefined ? undefined : await readRoot(text, client);
  if (backup === undefined || old === undefined) return undefined;
  const present = tableAt(current, keys) ?? {};
  const servers = Object.keys(tableAt(old, keys) ?? {}).filter((name) => !(name in present));
  return { backup, servers };
}

/** A client's file before toolmux's entry was written into it. */
interface PreviousFile {
  readonly text: string;
  readonly bytes: Buffer;
  /** Path of the backup; undefined if there was no file. */
  readonly backup: string | undefined;
  /** The names of the servers that were removed when toolmux's entry was written. */
  readonly removed: readonly string[];
}

/**
 * Finds the original of a file: the backup (or an empty file) that equals the current content after toolmux's entry is
 * written into it. Returns undefined if toolmux has not changed the file, or if something else has changed it since.
 */
async function previousFileOf(
  client: ClientApp,
  keys: readonly string[],
  { path }: OriginalFile,
  current: string,
): Promise<PreviousFile | undefined> {
  const root = await readRoot(current, client);
  const table = root && tableAt(root, keys);
  const entry = table?.[TOOLMUX_KEY];
  if (table === undefined || !isTable(entry)) return undefined;
  const copies: { backup: string | undefined; bytes: Buffer }[] = [];
  for (const backup of await listBackups(path)) {
    copies.push({ backup, bytes: await readFile(backup) });
  }
  copies.push({ backup: undefined, bytes: Buffer.alloc(0) });
  for (const { backup, bytes } of copies) {
    const text = decodeUtf8(bytes);
    const old = text === undefined ? undefined : await readRoot(text, client);
    if (text === undefined || old === undefined) continue;
    const present = Object.keys(table);
    const removed = Object.keys(tableAt(old, keys) ?? {}).filter((it) => !present.includes(it));
    const change = { keys, remove: removed, set: { [TOOLMUX_KEY]: entry } };
    const edited = await editClientFile(text, client.format, change);
    if (edited.ok && edited.text === current) return { text, bytes, backup, removed };
  }
  return undefined;
}

async function readRoot(text: string, client: ClientApp): Promise<Table | undefined> {
  if (text.trim() === "") return {};
  const { parseText } = await import("../manifest/syntax/parse.ts");
  const parsed = await parseText(text, client.format);
  return parsed.ok && isTable(parsed.root) ? parsed.root : undefined;
}

function withMoreRemoved(names: readonly string[], change: ServerTableChange): ServerTableChange {
  return { ...change, remove: [...new Set([...names, ...change.remove])] };
}

/** The table at the path `keys` in `root`; undefined if there is none. */
export function tableAt(root: Table, keys: readonly string[]): Table | undefined {
  const found = keys.reduce<unknown>((at, key) => (isTable(at) ? at[key] : undefined), root);
  return isTable(found) ? found : undefined;
}

function ownEntryIn(root: Table, keys: readonly string[]): Table | undefined {
  const entry = tableAt(root, keys)?.[TOOLMUX_KEY];
  return isTable(entry) ? entry : undefined;
}

function refuse(message: string): {
  readonly kind: "refused";
  readonly problem: ClientFileProblem;
} {
  return {
    kind: "refused",
    problem: { message: `cannot be changed: ${message}`, position: undefined },
  };
}

async function replaceOriginal(
  { path, bytes: before }: OriginalFile,
  bytes: Uint8Array,
): Promise<void> {
  await replaceFile(path, before, bytes);
}

/** Encodes a text, with a byte order mark if the original has one. */
function encodeLikeOriginal(text: string, { bytes }: OriginalFile): Uint8Array {
  const hasByteOrderMark = bytes?.[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
  return utf8(hasByteOrderMark ? `\ufeff${text}` : text);
}
