import { createTable, isTable, type Table } from "../table.ts";

export type ManifestChange =
  | ServerChange
  /** Appends several servers, all of which must be new. */
  | { readonly kind: "addAll"; readonly servers: ReadonlyMap<string, Table> }
  /** Appends a client to the array `clients`. Its name must be new. */
  | { readonly kind: "addClient"; readonly entry: Table }
  /** Sets a key of the table `hub`, which is created if need be. */
  | { readonly kind: "setHub"; readonly key: string; readonly value: unknown };

export type ServerChange =
  /** Appends the server, or replaces the existing server of that name. With `isNew`, an existing name is refused. */
  | {
      readonly kind: "add";
      readonly name: string;
      readonly entry: Table;
      readonly isNew?: boolean;
    }
  | { readonly kind: "remove"; readonly name: string }
  | { readonly kind: "set"; readonly name: string; readonly key: string; readonly value: unknown }
  | { readonly kind: "rename"; readonly name: string; readonly to: string };

/** A range of a text and its replacement; offsets in UTF-16 units. */
export interface TextEdit {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** The reason why a text cannot be edited. `reason` completes a sentence that begins with the file's name. */
export interface EditRefusal {
  readonly reason: string;
}

/** Applies edits, which must not overlap. */
export function applyTextEdits(text: string, edits: readonly TextEdit[]): string {
  let result = "";
  let from = 0;
  for (const edit of edits.toSorted((a, b) => a.from - b.from)) {
    result += text.slice(from, edit.from) + edit.text;
    from = edit.to;
  }
  return result + text.slice(from);
}

/**
 * Applies a change to the parsed content of a file whose servers are under the key `serversKey`.
 * @returns the new content; undefined if the change is not possible, for example because the server does not exist
 */
export function applyChange(
  root: unknown,
  serversKey: string,
  change: ManifestChange,
): Table | undefined {
  if (!isTable(root)) return undefined;
  const servers = root[serversKey] ?? createTable<unknown>();
  if (!isTable(servers)) return undefined;
  if (change.kind === "addClient") {
    const { clients = [] } = root;
    if (!Array.isArray(clients)) return undefined;
    const isTaken = clients.some((it) => isTable(it) && it["name"] === change.entry["name"]);
    if (isTaken) return undefined;
    const all: readonly unknown[] = [...(clients as readonly unknown[]), change.entry];
    return withChanges(root, [
      [serversKey, servers],
      ["clients", all],
    ]);
  }
  if (change.kind === "setHub") {
    const hub = root["hub"] ?? createTable<unknown>();
    if (!isTable(hub)) return undefined;
    return withChanges(root, [
      [serversKey, servers],
      ["hub", withChanges(hub, [[change.key, change.value]])],
    ]);
  }
  if (change.kind === "addAll") {
    const added = [...change.servers];
    if (added.some(([name]) => servers[name] !== undefined)) return undefined;
    return withChanges(root, [[serversKey, withChanges(servers, added)]]);
  }
  const server = servers[change.name];
  if (
    change.kind === "add" ? server !== undefined && change.isNew === true : server === undefined
  ) {
    return undefined;
  }
  return withChanges(root, [[serversKey, changeServers(servers, change)]]);
}

function changeServers(servers: Table, change: ServerChange): Table {
  const { name } = change;
  switch (change.kind) {
    case "add":
      return withChanges(servers, [[name, change.entry]]);
    case "remove":
      return withChanges(servers, [[name, undefined]]);
    case "rename":
      return withChanges(servers, [
        [name, undefined],
        [change.to, servers[name]],
      ]);
    case "set": {
      const server = servers[name];
      const before = isTable(server) ? server : {};
      return withChanges(servers, [[name, withChanges(before, [[change.key, change.value]])]]);
    }
  }
}

function withChanges(table: Table, changes: readonly (readonly [string, unknown])[]): Table {
  const result = createTable<unknown>();
  const all = new Map([...Object.entries(table), ...changes]);
  for (const [key, value] of all) if (value !== undefined) result[key] = value;
  return result;
}

/** A line of a text: `to` is the offset after its line end, `text` excludes the line end. */
export interface TextLine {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** The lines of a text, for edits of whole lines. */
export class TextLines {
  readonly #text: string;
  readonly all: readonly TextLine[];
  readonly lineEnd: string;
  readonly #isComment: RegExp;

  /** @param comment a pattern that matches lines that hold only a comment */
  constructor(text: string, comment: RegExp) {
    this.#text = text;
    this.#isComment = comment;
    const all: TextLine[] = [];
    for (let from = 0; from < text.length;) {
      const next = text.indexOf("\n", from);
      const to = next < 0 ? text.length : next + 1;
      all.push({ from, to, text: text.slice(from, to).replace(/\r?\n$/, "") });
      from = to;
    }
    this.all = all;
    this.lineEnd = /\r\n/.test(all[0] === undefined ? "" : text.slice(0, all[0].to))
      ? "\r\n"
      : "\n";
  }

  /** The index of the line at an offset, from 0. */
  indexAt(offset: number): number {
    const found = this.all.findIndex(({ to }) => offset < to);
    return found < 0 ? Math.max(0, this.all.length - 1) : found;
  }

  isBlank(line: number): boolean {
    return this.all[line]?.text.trim() === "";
  }

  isComment(line: number): boolean {
    return this.#isComment.test(this.all[line]?.text ?? "");
  }

  /** The first of the comment lines directly above a line, or the line itself. */
  firstCommentAbove(line: number): number {
    let first = line;
    while (first > 0 && this.isComment(first - 1)) first--;
    return first;
  }

  /**
   * The last of the comment lines directly below a line. If other text follows these comments directly, the comments
   * belong to that text, and the line itself is returned.
   */
  lastCommentBelow(line: number): number {
    let last = line;
    while (this.isComment(last + 1)) last++;
    const belongsBelow = last + 1 < this.all.length && !this.isBlank(last + 1);
    return belongsBelow ? line : last;
  }

  /** Removes lines `first` to `last` inclusive, and blank lines that are no longer needed. */
  remove(first: number, last: number): TextEdit {
    let from = first;
    let to = last;
    while (this.isBlank(to + 1)) to++;
    const isFirst = this.all.slice(0, first).every((line) => line.text.trim() === "");
    const isLast = to >= this.all.length - 1;
    if (isLast) while (from > 0 && this.isBlank(from - 1)) from--;
    // Text stands directly above the removed lines, so the blank lines below stay to separate it from the text below.
    else if (!(isFirst || this.isBlank(first - 1))) to = last;
    return { from: this.all[from]?.from ?? 0, to: this.all[to]?.to ?? this.#text.length, text: "" };
  }

  replace(block: readonly string[], first: number, last: number): TextEdit {
    const from = this.all[first]?.from ?? 0;
    const to = this.all[last]?.to ?? this.#text.length;
    const lacksLineEnd = !this.#text.slice(0, to).endsWith("\n");
    return { from, to, text: block.join(this.lineEnd) + (lacksLineEnd ? "" : this.lineEnd) };
  }

  /**
   * Inserts lines after a line, and adds blank lines around them where there are none.
   * @param afterLine the index of the line before; -1: insert at the start
   */
  insert(block: readonly string[], afterLine: number): TextEdit {
    const at = this.all[afterLine]?.to ?? 0;
    const lacksLineEnd = afterLine >= 0 && !this.#text.slice(0, at).endsWith("\n");
    const isBlankText = this.all.every((line) => line.text.trim() === "");
    const gap = afterLine < 0 || isBlankText || this.isBlank(afterLine) ? [] : [""];
    const isFollowed = afterLine + 1 < this.all.length && !this.isBlank(afterLine + 1);
    const lines = [...gap, ...block, ...(isFollowed ? [""] : [])];
    const text = lines.map((line) => line + this.lineEnd).join("");
    // A text without a final line end stays without one.
    return lacksLineEnd
      ? { from: at, to: at, text: this.lineEnd + text.slice(0, -this.lineEnd.length) }
      : { from: at, to: at, text };
  }
}

/** Formats a key-value pair as TOML in one line: `key = value`. */
export function formatTomlPair([key, value]: readonly [string, unknown]): string {
  return `${formatTomlKey(key)} = ${formatTomlValue(value)}`;
}

export function formatTomlKey(key: string): string {
  return /^[A-Za-z0-9_-]+$/.test(key) ? key : formatTomlString(key);
}

function formatTomlString(text: string): string {
  return JSON.stringify(text).replaceAll("\u007f", "\\u007f");
}

/** Formats a value as TOML in one line. */
export function formatTomlValue(value: unknown): string {
  if (typeof value === "string") return formatTomlString(value);
  if (Array.isArray(value)) return `[${value.map(formatTomlValue).join(", ")}]`;
  if (!isTable(value)) return String(value);
  const pairs = Object.entries(value).map(formatTomlPair);
  return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`;
}
