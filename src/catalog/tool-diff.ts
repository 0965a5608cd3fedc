import { Buffer } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { JsonObject, readString, skipValue, skipWhitespace } from "../base/json.ts";
import type { ListedItem } from "./listing.ts";

/** The length of common text shown on either side of a difference, in UTF-16 units. */
const CONTEXT_LENGTH = 24;

/**
 * Shortens a text to one line of at most `width` (at least 40) UTF-16 units, with invisible characters escaped. Both
 * ends of a longer text are kept, because text that is meant to be overlooked tends to be at the end.
 */
export function excerpt(text: string, width: number): string {
  const compact = text.replace(/\s{4,}/g, (whitespace) => ` (${whitespace.length} blanks) `);
  if (compact.length <= width) {
    const shown = escapeInvisible(compact);
    if (shown.length <= width) return shown;
  }
  const omission = ` … (${text.length} characters) … `;
  const tail = Math.floor((width - omission.length) / 3);
  const head = width - omission.length - tail;
  const left = headOf(escapeInvisible(headOf(compact, head)), head);
  const right = tailOf(escapeInvisible(tailOf(compact, tail)), tail);
  return left + omission + right;
}

/**
 * Returns excerpts of two texts around their difference, each at most `width` long. The length of omitted text is given
 * only if the texts differ there.
 */
export function excerptPair(before: string, after: string, width: number): [string, string] {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < shorter - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const start = startOfWord(after, head - CONTEXT_LENGTH);
  const rest = tail - CONTEXT_LENGTH;
  const excerptOf = (text: string): string => {
    const end = endOfWord(text, text.length - rest);
    const part = text.slice(start, end);
    const [left, right] = [start > 0 ? "… " : "", end < text.length ? " …" : ""];
    return left + excerpt(part, width - left.length - right.length) + right;
  };
  return [excerptOf(before), excerptOf(after)];
}

/** The start of the word at `at`, at most CONTEXT_LENGTH units back, because a word can have any length. */
function startOfWord(text: string, at: number): number {
  if (at <= 0) return 0;
  const space = text.slice(Math.max(0, at - CONTEXT_LENGTH), at).search(/\s\S*$/);
  if (space !== -1) return Math.max(0, at - CONTEXT_LENGTH) + space + 1;
  return isInsidePair(text, at) ? at - 1 : at;
}

function endOfWord(text: string, at: number): number {
  if (at >= text.length) return text.length;
  const space = text.slice(at, at + CONTEXT_LENGTH).search(/\s/);
  if (space !== -1) return at + space;
  return isInsidePair(text, at) ? at + 1 : at;
}

/** The first `length` units, or one less where a surrogate pair would be cut. */
function headOf(text: string, length: number): string {
  return text.slice(0, isInsidePair(text, length) ? length - 1 : length);
}

function tailOf(text: string, length: number): string {
  const start = Math.max(0, text.length - length);
  return text.slice(isInsidePair(text, start) ? start + 1 : start);
}

/** Whether position `at` is inside a surrogate pair. */
function isInsidePair(text: string, at: number): boolean {
  return /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(Math.max(0, at - 1), at + 1));
}

/** Escapes control characters, line breaks, and invisible or unassigned characters. */
function escapeInvisible(text: string): string {
  return text.replace(/[\p{C}\p{DI}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\n" ? "\\n" : `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}

/**
 * A JSON value by its meaning, independent of white space, escapes and the order of object members. Numbers keep their
 * digits, and duplicate keys keep all their values, because parsers differ on which one counts.
 */
export type JsonTree = JsonScalar | JsonTreeArray | JsonTreeObject;

/** JSON text of a value that is no array or object, or that is nested too deep. */
export type JsonScalar = string;

export interface JsonTreeArray {
  readonly kind: "list";
  readonly items: readonly JsonTree[];
}

export type JsonTreeMember = readonly [key: string, value: JsonTree];

/** Sorted by key; members with equal keys keep their order. */
export interface JsonTreeObject {
  readonly kind: "table";
  readonly members: readonly JsonTreeMember[];
}

/** Values nested deeper are kept as JSON text. No real schema is that deep, and the recursion must be limited. */
const MAX_DEPTH = 100;

const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;

/**
 * Reads the value at the start of the range, in text that was scanned before. Takes time linear in the length, at any
 * depth.
 */
export function parseTree(bytes: Uint8Array, range: ByteRange): JsonTree {
  let at = range.start;
  let depth = 0;

  const readValue = (): JsonTree => {
    const open = bytes[at];
    if (depth === MAX_DEPTH || (open !== OPEN_BRACE && open !== OPEN_BRACKET)) return readScalar();
    depth++;
    const value: JsonTree =
      open === OPEN_BRACE
        ? { kind: "table", members: readAll(readMember).sort(compareKeys) }
        : { kind: "list", items: readAll(readValue) };
    depth--;
    return value;
  };

  const readScalar = (): JsonScalar => {
    const start = at;
    at = skipValue(bytes, start);
    const text = readString(bytes, { start, end: at });
    return text === undefined ? textOf(bytes, start, at) : JSON.stringify(text);
  };

  const readMember = (): JsonTreeMember => {
    const start = at;
    at = skipValue(bytes, start);
    const key = readString(bytes, { start, end: at }) ?? "";
    at = skipWhitespace(bytes, skipWhitespace(bytes, at) + 1);
    return [key, readValue()];
  };

  /** Reads from an opening bracket or brace to the byte after the closing one. */
  const readAll = <T>(read: () => T): T[] => {
    const open = bytes[at] ?? 0;
    const all: T[] = [];
    at = skipWhitespace(bytes, at + 1);
    // In ASCII, "}" is "{" + 2, and "]" is "[" + 2.
    if (bytes[at] === open + 2) {
      at++;
      return all;
    }
    for (;;) {
      all.push(read());
      at = skipWhitespace(bytes, at);
      if (bytes[at++] !== COMMA) return all;
      at = skipWhitespace(bytes, at);
    }
  };

  return readValue();
}

/** Formats the tree as compact JSON: two trees have equal texts exactly if they are equal. */
export function formatTree(tree: JsonTree): string {
  const pieces: string[] = [];
  const write = (value: JsonTree): void => {
    if (typeof value === "string") {
      pieces.push(value);
    } else if (value.kind === "list") {
      pieces.push("[");
      value.items.forEach((item, i) => {
        if (i > 0) pieces.push(",");
        write(item);
      });
      pieces.push("]");
    } else {
      pieces.push("{");
      value.members.forEach(([key, member], i) => {
        pieces.push(i > 0 ? "," : "", JSON.stringify(key), ":");
        write(member);
      });
      pieces.push("}");
    }
  };
  write(tree);
  return pieces.join("");
}

function compareKeys([a]: JsonTreeMember, [b]: JsonTreeMember): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/**
 * The compared members of a tool: everything that a model reads, and the annotations, by which clients decide whether
 * to confirm a call. `_meta`, icons and unknown members are left out, because servers put versions and times there.
 */
export const TOOL_PARTS = [
  "description",
  "title",
  "inputSchema",
  "outputSchema",
  "annotations",
] as const;
export type ToolPart = (typeof TOOL_PARTS)[number];

/** A change of a tool's description, schema or annotations. */
export interface ToolDiff {
  /** The server's own name of the tool. */
  readonly name: string;
  /** In the order of TOOL_PARTS; at least one. */
  readonly parts: readonly ToolPart[];
  /** For people: a few lines, at most 600 characters, invisible characters escaped. */
  readonly text: string;
}

const MAX_TEXT = 600;
/** Limits in characters for one path and one value. The longest single change, with its labels, fits into the text. */
const MAX_PATH = 80;
const MAX_VALUE = 140;
/** Characters reserved for the line that counts the omitted changes. */
const RESERVED_TEXT = 40;

/** Returns undefined if both mean the same, whatever their JSON formatting. */
export function diffTools(before: ListedItem, after: ListedItem): ToolDiff | undefined {
  if (Buffer.compare(before.bytes, after.bytes) === 0) return undefined;
  const [previous, current] = [toolPartTreesOf(before), toolPartTreesOf(after)];
  const changes = new ChangeText();
  const parts = TOOL_PARTS.filter((part) => {
    const countBefore = changes.count;
    diffArrays(previous.get(part) ?? [], current.get(part) ?? [], () => ({ key: part }), changes);
    return changes.count > countBefore;
  });
  return parts.length === 0 ? undefined : { name: after.key, parts, text: changes.text };
}

/** The diff to an earlier version of which only the changed parts are known. */
export function diffFromFingerprints(after: ListedItem, parts: readonly ToolPart[]): ToolDiff {
  const changes = new ChangeText(`Removed and added again with another ${parts.join(", ")}.`);
  const current = toolPartTreesOf(after);
  for (const part of parts) {
    for (const tree of current.get(part) ?? []) changes.add({ key: part }, undefined, tree);
  }
  return { name: after.key, parts, text: changes.text };
}

/**
 * The compared parts that a tool has, as canonical text: two versions of a part have equal texts exactly if they mean
 * the same.
 */
export function toolPartTexts(item: ListedItem): ReadonlyMap<ToolPart, string> {
  return new Map(
    [...toolPartTreesOf(item)].map(([part, trees]) => [part, trees.map(formatTree).join(",")]),
  );
}

/** The parts that are present. A part has several trees if its key occurs several times. */
function toolPartTreesOf(item: ListedItem): Map<ToolPart, JsonTree[]> {
  const tool = JsonObject.of(item.bytes);
  const parts = new Map<ToolPart, JsonTree[]>();
  for (const part of TOOL_PARTS) {
    const trees = tool.all(part).map((it) => parseTree(item.bytes, it));
    if (trees.length > 0) parts.set(part, trees);
  }
  return parts;
}

/** A path within a tool: keys of objects and indices of arrays. */
interface TreePath {
  readonly parent?: TreePath;
  readonly key: string | number;
}

function diffTrees(
  before: JsonTree | undefined,
  after: JsonTree | undefined,
  path: TreePath,
  changes: ChangeText,
): void {
  if (typeof before === "object" && typeof after === "object") {
    if (before.kind === "list" && after.kind === "list") {
      const pathOf = (key: number): TreePath => ({ parent: path, key });
      return diffArrays(before.items, after.items, pathOf, changes);
    }
    if (before.kind === "table" && after.kind === "table") {
      return diffMembers(before.members, after.members, path, changes);
    }
  }
  if (before !== after) changes.add(path, before, after);
}

function diffArrays(
  before: readonly JsonTree[],
  after: readonly JsonTree[],
  pathOf: (index: number) => TreePath,
  changes: ChangeText,
): void {
  for (let i = 0; i < Math.max(before.length, after.length); i++) {
    diffTrees(before[i], after[i], pathOf(i), changes);
  }
}

/** Records the changes between two objects. Their members are sorted by key, so one pass pairs them. */
function diffMembers(
  before: JsonTreeObject["members"],
  after: JsonTreeObject["members"],
  parent: TreePath,
  changes: ChangeText,
): void {
  let [i, k] = [0, 0];
  for (;;) {
    const [previous, current] = [before[i], after[k]];
    if (previous === undefined && current === undefined) return;
    const hasPrevious =
      previous !== undefined && !(current !== undefined && current[0] < previous[0]);
    const hasCurrent =
      current !== undefined && !(previous !== undefined && previous[0] < current[0]);
    const key = hasPrevious ? previous[0] : (current?.[0] ?? "");
    const [left, right] = [
      hasPrevious ? previous[1] : undefined,
      hasCurrent ? current[1] : undefined,
    ];
    diffTrees(left, right, { parent, key }, changes);
    if (hasPrevious) i++;
    if (hasCurrent) k++;
  }
}

/** Counts changes and formats the first ones as lines: `- ` the old value, `+ ` the new value. */
class ChangeText {
  #count = 0;
  #omitted = 0;
  #text: string;

  constructor(headline = "") {
    this.#text = headline;
  }

  get count(): number {
    return this.#count;
  }

  get text(): string {
    return this.#omitted === 0 ? this.#text : `${this.#text}\n… and ${this.#omitted} more`;
  }

  add(path: TreePath, before: JsonTree | undefined, after: JsonTree | undefined): void {
    this.#count++;
    // After the first change that does not fit, no further one is shown: otherwise a shorter later one would hide that
    // a change is missing.
    if (this.#omitted === 0) {
      const text = [this.#text, ...linesOf(path, before, after)].filter(Boolean).join("\n");
      if (text.length <= MAX_TEXT - RESERVED_TEXT) {
        this.#text = text;
        return;
      }
    }
    this.#omitted++;
  }
}

/** The description has no label; every other value is labelled with its path. */
function linesOf(
  path: TreePath,
  before: JsonTree | undefined,
  after: JsonTree | undefined,
): string[] {
  const pathText = formatPath(path);
  const label = pathText === "description" ? "" : `${excerpt(pathText, MAX_PATH)}: `;
  const previous = before === undefined ? undefined : valueText(before);
  const current = after === undefined ? undefined : valueText(after);
  if (previous !== undefined && current !== undefined) {
    const [left, right] = excerptPair(previous, current, MAX_VALUE);
    return [`- ${label}${left}`, `+ ${label}${right}`];
  }
  if (previous !== undefined) return [`- ${label}${excerpt(previous, MAX_VALUE)}`];
  return [`+ ${label}${excerpt(current ?? "", MAX_VALUE)}`];
}

/** A string without its quotes, any other value as JSON. */
function valueText(tree: JsonTree): string {
  return typeof tree === "string" && tree.startsWith('"')
    ? (JSON.parse(tree) as string)
    : formatTree(tree);
}

function formatPath({ parent, key }: TreePath): string {
  if (parent === undefined) return `${key}`;
  return typeof key === "number" ? `${formatPath(parent)}[${key}]` : `${formatPath(parent)}.${key}`;
}
