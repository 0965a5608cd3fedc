import { Buffer } from "node:buffer";
import {
  diffFromMarks,
  diffTools,
  TOOL_PARTS,
  type ToolDiff,
  toolPartTexts,
  type ToolPart,
} from "../catalog/tool-diff.ts";
import type { ListedItem } from "../catalog/listing.ts";

/** How a tool was last described. */
export interface ToolMark {
  /** When it was first seen with this description, in ms since the epoch. */
  readonly since: number;
  /** SHA-256 of each part of the description, base64url; no entry for a missing part. */
  readonly prints: Readonly<Partial<Record<ToolPart, string>>>;
}

/** By the server's own tool names: first those of the last listing, then removed ones, last removed first. */
export type ToolMarks = ReadonlyMap<string, ToolMark>;

/** The last listing, and the marks of all earlier ones. */
export interface ListingHistory {
  readonly items: readonly ListedItem[];
  readonly marks: ToolMarks;
}

/** Maximum number of remembered tools. */
const MAX_MARKS = 5000;

/**
 * Compares a listing with earlier ones. A new tool is no difference; a tool that returns is compared with its last
 * description.
 * @param now ms since the epoch
 * @returns the differences, and the marks to store
 */
export async function compareWithHistory(
  history: ListingHistory,
  items: readonly ListedItem[],
  now: number,
): Promise<{ differences: readonly ToolDiff[]; marks: ToolMarks }> {
  const previous = uniqueByName(history.items);
  const marks = new Map<string, ToolMark>();
  const differences: ToolDiff[] = [];
  for (const [name, item] of uniqueByName(items)) {
    const previousItem = previous.get(name);
    const knownMark = history.marks.get(name);
    const isSame =
      previousItem !== undefined && Buffer.compare(previousItem.bytes, item.bytes) === 0;
    const mark =
      isSame && knownMark !== undefined ? knownMark : { since: now, prints: await hashParts(item) };
    const difference =
      previousItem !== undefined
        ? diffTools(previousItem, item)
        : knownMark && diffReturned(knownMark, mark, item);
    if (difference !== undefined) differences.push(difference);
    if (marks.size < MAX_MARKS)
      marks.set(name, difference === undefined ? (knownMark ?? mark) : mark);
  }
  for (const [name, mark] of history.marks) {
    if (marks.size < MAX_MARKS && !marks.has(name)) marks.set(name, mark);
  }
  return { differences, marks };
}

function diffReturned(
  previous: ToolMark,
  current: ToolMark,
  item: ListedItem,
): ToolDiff | undefined {
  const parts = TOOL_PARTS.filter((part) => previous.prints[part] !== current.prints[part]);
  return parts.length === 0 ? undefined : diffFromMarks(item, parts);
}

/** Of several tools with one name the first counts, as in the catalog. */
function uniqueByName(items: readonly ListedItem[]): ReadonlyMap<string, ListedItem> {
  const first = new Map<string, ListedItem>();
  for (const item of items) if (!first.has(item.key)) first.set(item.key, item);
  return first;
}

async function hashParts(item: ListedItem): Promise<ToolMark["prints"]> {
  const hashes: Partial<Record<ToolPart, string>> = {};
  for (const [part, text] of toolPartTexts(item)) {
    const hash = await crypto.subtle.digest("SHA-256", Buffer.from(text));
    hashes[part] = Buffer.from(hash).toString("base64url");
  }
  return hashes;
}
