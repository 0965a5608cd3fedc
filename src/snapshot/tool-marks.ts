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
  past: ListingHistory,
  items: readonly ListedItem[],
  now: number,
): Promise<{ differences: readonly ToolDiff[]; marks: ToolMarks }> {
  const before = firstOfEach(past.items);
  const marks = new Map<string, ToolMark>();
  const differences: ToolDiff[] = [];
  for (const [name, item] of firstOfEach(items)) {
    const earlier = before.get(name);
    const known = past.marks.get(name);
    const isSame = earlier !== undefined && Buffer.compare(earlier.bytes, item.bytes) === 0;
    const mark = isSame && known !== undefined ? known : { since: now, prints: await print(item) };
    const difference =
      earlier !== undefined ? diffTools(earlier, item) : known && compareReturn(known, mark, item);
    if (difference !== undefined) differences.push(difference);
    if (marks.size < MAX_MARKS) marks.set(name, difference === undefined ? (known ?? mark) : mark);
  }
  for (const [name, mark] of past.marks) {
    if (marks.size < MAX_MARKS && !marks.has(name)) marks.set(name, mark);
  }
  return { differences, marks };
}

function compareReturn(before: ToolMark, after: ToolMark, item: ListedItem): ToolDiff | undefined {
  const parts = TOOL_PARTS.filter((part) => before.prints[part] !== after.prints[part]);
  return parts.length === 0 ? undefined : diffFromMarks(item, parts);
}

/** Of several tools with one name the first counts, as in the catalog. */
function firstOfEach(items: readonly ListedItem[]): ReadonlyMap<string, ListedItem> {
  const first = new Map<string, ListedItem>();
  for (const item of items) if (!first.has(item.key)) first.set(item.key, item);
  return first;
}

async function print(item: ListedItem): Promise<ToolMark["prints"]> {
  const prints: Partial<Record<ToolPart, string>> = {};
  for (const [part, text] of toolPartTexts(item)) {
    const hash = await crypto.subtle.digest("SHA-256", Buffer.from(text));
    prints[part] = Buffer.from(hash).toString("base64url");
  }
  return prints;
}
