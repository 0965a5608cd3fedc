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

/** How a tool was described when it was last listed. */
export interface ToolMark {
  /** When it was first seen described like this, in ms since the epoch. */
  readonly since: number;
  /** SHA-256 of what each of its parts says, base64url; no entry for a part that it does not have. */
  readonly prints: Readonly<Partial<Record<ToolPart, string>>>;
}

/** By the server's own names of its tools: those of the last listing, then those that are gone, the last to go first. */
export type ToolMarks = ReadonlyMap<string, ToolMark>;

/** What is known of earlier listings. */
export interface ListingHistory {
  readonly items: readonly ListedItem[];
  readonly marks: ToolMarks;
}

/** More names than this are not remembered. */
const MAX_MARKS = 5000;

/**
 * Compares a listing with what is known. Tools that were never seen are no difference; those that come back are
 * compared with what they were.
 * @param now ms since the epoch.
 * @returns the differences, and what is known from now on.
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

/** Of tools of one name the first counts, as everywhere. */
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
