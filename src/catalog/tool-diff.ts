import { textOf } from "../base/bytes.ts";
import { escapeDeceptive, escapeNonAscii } from "../base/escape.ts";
import { headOf, isInsidePair, tailOf } from "../base/quote.ts";
import { readableText } from "../scan/phrases.ts";
import type { ListedItem } from "./listing.ts";

/** The length of common text shown on either side of a difference, in UTF-16 units. */
const CONTEXT_LENGTH = 24;

/**
 * Shortens a text to one line of at most `width` (at least 40) UTF-16 units, with invisible characters escaped. Both
 * ends of a longer text are kept, because text that people are meant to overlook is often at the end.
 */
function excerpt(text: string, width: number): string {
  const compact = text.replace(/\s{4,}/g, (whitespace) => ` (${whitespace.length} blanks) `);
  if (compact.length <= width) {
    const shown = escapeDeceptive(compact);
    if (shown.length <= width) return shown;
  }
  const omission = ` … (${text.length} characters) … `;
  const tail = Math.floor((width - omission.length) / 3);
  const head = width - omission.length - tail;
  const left = headOf(escapeDeceptive(headOf(compact, head)), head);
  const right = tailOf(escapeDeceptive(tailOf(compact, tail)), tail);
  return left + omission + right;
}

/**
 * Returns excerpts of two texts around their difference, each at most `width` long. Common text that is omitted is
 * shown as `…`; if a differing part is too long itself, its length is given.
 */
function excerptPair(before: string, after: string, width: number): [string, string] {
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

/** The start of the word at `at`, or `at` itself if the word starts more than CONTEXT_LENGTH units before. */
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

/**
 * The compared parts that a tool has, as canonical text: two versions of a part have equal texts exactly if they mean
 * the same.
 */
export function toolPartTexts(item: ListedItem): ReadonlyMap<ToolPart, string> {
  return new Map([...partsOf(item)].map(([part, value]) => [part, canonicalJson(value)]));
}

/** A changed value inside of a definition; both texts have their invisible characters escaped. */
export interface ValueChange {
  /** The path of the value, such as `inputSchema.properties.path.description`. */
  readonly path: string;
  /** Undefined: there was no such value. */
  readonly before: string | undefined;
  /** Undefined: there is no such value now. */
  readonly after: string | undefined;
}

/** Maximum length of a path in a `ValueChange`, and by default of a value, in UTF-16 units. */
const MAX_PATH = 200;
const MAX_VALUE = 2000;

/**
 * The changes between two JSON values. Long texts are cut to what differs, with some of the text around it.
 * @param path the path of the values
 * @param max the maximum number of changes that are returned
 * @param width the maximum length of a value
 * @returns the first changes, and the number of those that are left out
 */
export function valueChangesOf(
  before: unknown,
  after: unknown,
  path: string,
  max: number,
  width: number = MAX_VALUE,
): { readonly changes: readonly ValueChange[]; readonly omitted: number } {
  const changes: ValueChange[] = [];
  let count = 0;
  diffValues(before, after, path, {
    add: (at, previous, current) => {
      if (++count > max) return;
      const shownPath = excerpt(at, MAX_PATH);
      const texts = [previous, current].map((value) =>
        value === undefined ? undefined : valueText(value),
      );
      const [left, right] = looksAlike(texts)
        ? texts.map((text) => text && escapeNonAscii(text))
        : texts;
      const [shownBefore, shownAfter] =
        left !== undefined && right !== undefined
          ? excerptPair(left, right, width)
          : [left, right].map((text) => text && excerpt(text, width));
      changes.push({ path: shownPath, before: shownBefore, after: shownAfter });
    },
  });
  return { changes, omitted: count - changes.length };
}

/** Whether two texts differ in nothing but characters that look alike, or that nobody sees. */
function looksAlike([left, right]: readonly (string | undefined)[]): boolean {
  if (left === undefined || right === undefined) return false;
  const [one, other] = [left, right].map((text) => text.replace(/[ \t\r\n]+/g, ""));
  // Usual white space is seen.
  if (one === other || one === undefined || other === undefined) return false;
  return readableText(one).readable === readableText(other).readable;
}

/**
 * The lines that show a change: `- ` the old value, `+ ` the new one. They start with the path of the value, unless it is
 * the text that people expect.
 */
export function changeLines({ path, before, after }: ValueChange): readonly string[] {
  const label = path === "description" || path === "instructions" ? "" : `${path}: `;
  return [
    ...(before === undefined ? [] : [`- ${label}${before}`]),
    ...(after === undefined ? [] : [`+ ${label}${after}`]),
  ];
}

/** The parsed parts that are present. Their depth is at most `MAX_ENTRY_DEPTH`, so recursion is safe. */
function partsOf(item: ListedItem): ReadonlyMap<ToolPart, unknown> {
  const members = membersOf(JSON.parse(textOf(item.bytes)));
  return new Map(
    TOOL_PARTS.filter((part) => members?.has(part)).map((part) => [part, members?.get(part)]),
  );
}

/**
 * The members of an object or array by key or index; undefined for other values. A Map, because a key can be
 * `__proto__`.
 */
function membersOf(value: unknown): ReadonlyMap<string, unknown> | undefined {
  return typeof value === "object" && value !== null ? new Map(Object.entries(value)) : undefined;
}

/** Compact JSON in which the members of objects are sorted by key. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(compareKeys))
      : inner,
  );
}

function compareKeys([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Records the changes between two JSON values; undefined stands for a missing value. */
function diffValues(
  before: unknown,
  after: unknown,
  path: string,
  changes: { add(path: string, before: unknown, after: unknown): void },
): void {
  const [previous, current] = [membersOf(before), membersOf(after)];
  const isArray = Array.isArray(after);
  if (previous === undefined || current === undefined || Array.isArray(before) !== isArray) {
    if (before !== after) changes.add(path, before, after);
    return;
  }
  const members = [...new Map([...previous, ...current])];
  for (const [key] of isArray ? members : members.sort(compareKeys)) {
    const inner = isArray ? `${path}[${key}]` : `${path}.${key}`;
    diffValues(previous.get(key), current.get(key), inner, changes);
  }
}

/** A string without its quotes, any other value as JSON. */
function valueText(value: unknown): string {
  return typeof value === "string" ? value : canonicalJson(value);
}
