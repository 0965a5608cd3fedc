import { Buffer } from "node:buffer";
import { readFile, rm } from "node:fs/promises";
import { utf8 } from "../base/bytes.ts";
import { decodeUtf8 } from "../base/read-file.ts";
import { isTable, type Table } from "../manifest/table.ts";
import { replaceFile } from "../manifest/edit/write.ts";
import { keepBackup, listBackups, openOriginal, type Original } from "./backup.ts";
import type { Client, Spot } from "./client.ts";
import type { Change } from "./change.ts";
import { editText } from "./edit.ts";
import { OWN_NAME } from "../manifest/own-entry.ts";
import { type Fault, readContent } from "./read.ts";

/** A prepared change of a client's file. */
export interface Prepared {
  readonly kind: "ready";
  readonly original: Original;
  readonly before: string;
  readonly after: string;
  /** Writes the file. @returns the path of the backup; undefined if there was nothing to back up */
  apply(now: number): Promise<string | undefined>;
}

/** The result of preparing an installation; the fault's message follows the file's name. */
export type Preparation =
  Prepared | { readonly kind: "same" } | { readonly kind: "refused"; readonly fault: Fault };

/** Prepares writing toolmux's entry into a client's file, in place of the servers in `remove`. */
export async function prepareInstall(
  client: Client,
  { file, keys }: Spot,
  entry: Table,
  remove: readonly string[] = [],
): Promise<Preparation> {
  const content = await readContent(file, client.format);
  if (content.kind === "broken") return { kind: "refused", fault: content.fault };
  const before = content.kind === "read" ? content.text : "";
  const change = { keys, remove, put: { [OWN_NAME]: entry } };
  const original = await openOriginal(file);
  const base = await findBase(client, keys, original, before);
  const start = base?.text ?? before;
  const edited = await editText(start, client.format, withRemoved(base?.removed ?? [], change));
  if (!edited.ok) return refuse(edited.reason);
  if (edited.text === before) return { kind: "same" };
  return {
    kind: "ready",
    original,
    before,
    after: edited.text,
    apply: async (now) => {
      // The current content is toolmux's own change, so the existing backup of the original stays the one to restore.
      const isKept = base !== undefined || original.bytes === undefined;
      const copy = isKept ? undefined : await keepBackup(original, now);
      try {
        await rewrite(original, encode(edited.text, original));
      } catch (error) {
        if (copy !== undefined) await rm(copy, { force: true });
        throw error;
      }
      return copy;
    },
  };
}

/** The prepared undo: restore the backup, delete the file, or remove only toolmux's entry. */
export type Undoing =
  | { readonly kind: "restore"; readonly backup: string; apply(): Promise<void> }
  | { readonly kind: "remove"; apply(): Promise<void> }
  | {
      readonly kind: "edit";
      readonly before: string;
      readonly after: string;
      apply(): Promise<void>;
    }
  | { readonly kind: "absent" }
  | { readonly kind: "refused"; readonly fault: Fault };

/** Prepares undoing what `prepareInstall` did to a client's file. */
export async function prepareUndo(client: Client, { file, keys }: Spot): Promise<Undoing> {
  const content = await readContent(file, client.format);
  if (content.kind === "broken") return { kind: "refused", fault: content.fault };
  if (content.kind === "absent" || findEntry(content.root, keys) === undefined) {
    return { kind: "absent" };
  }
  const { text: before } = content;
  const original = await openOriginal(file);
  const base = await findBase(client, keys, original, before);
  if (base?.backup !== undefined) {
    const { backup, bytes } = base;
    return {
      kind: "restore",
      backup,
      apply: async () => {
        await rewrite(original, bytes);
        await rm(backup, { force: true });
      },
    };
  }
  if (base !== undefined) return { kind: "remove", apply: () => rm(original.path) };
  const edited = await editText(before, client.format, { keys, remove: [OWN_NAME], put: {} });
  if (!edited.ok) return refuse(edited.reason);
  return {
    kind: "edit",
    before,
    after: edited.text,
    apply: () => rewrite(original, encode(edited.text, original)),
  };
}

/** A client's file before toolmux's entry was written into it. */
interface Base {
  readonly text: string;
  readonly bytes: Buffer;
  /** undefined: there was no file. */
  readonly backup: string | undefined;
  /** The servers that were removed when the entry was written. */
  readonly removed: readonly string[];
}

/**
 * Finds the original of a file by applying the same change to each backup; undefined if toolmux has not changed the
 * file, or something else has changed it since.
 */
async function findBase(
  client: Client,
  keys: readonly string[],
  { path }: Original,
  current: string,
): Promise<Base | undefined> {
  const root = await readRoot(current, client);
  const table = root && findTable(root, keys);
  const entry = table?.[OWN_NAME];
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
    const there = Object.keys(table);
    const removed = Object.keys(findTable(old, keys) ?? {}).filter((it) => !there.includes(it));
    const change = { keys, remove: removed, put: { [OWN_NAME]: entry } };
    const edited = await editText(text, client.format, change);
    if (edited.ok && edited.text === current) return { text, bytes, backup, removed };
  }
  return undefined;
}

async function readRoot(text: string, client: Client): Promise<Table | undefined> {
  if (text.trim() === "") return {};
  const { parseText } = await import("../manifest/parse.ts");
  const parsed = await parseText(text, client.format);
  return parsed.ok && isTable(parsed.root) ? parsed.root : undefined;
}

function withRemoved(names: readonly string[], change: Change): Change {
  return { ...change, remove: [...new Set([...names, ...change.remove])] };
}

/** The table at that path of keys; undefined if there is none. */
export function findTable(root: Table, keys: readonly string[]): Table | undefined {
  const found = keys.reduce<unknown>((at, key) => (isTable(at) ? at[key] : undefined), root);
  return isTable(found) ? found : undefined;
}

function findEntry(root: Table, keys: readonly string[]): Table | undefined {
  const entry = findTable(root, keys)?.[OWN_NAME];
  return isTable(entry) ? entry : undefined;
}

function refuse(message: string): { readonly kind: "refused"; readonly fault: Fault } {
  return {
    kind: "refused",
    fault: { message: `cannot be changed: ${message}`, position: undefined },
  };
}

function rewrite({ path, bytes: before }: Original, bytes: Uint8Array): Promise<void> {
  return replaceFile(path, before, bytes);
}

/** Keeps a byte order mark. */
function encode(text: string, { bytes }: Original): Uint8Array {
  const isMarked = bytes?.[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
  return utf8(isMarked ? `\ufeff${text}` : text);
}
