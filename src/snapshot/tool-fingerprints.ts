import { Buffer } from "node:buffer";
import {
  diffFromFingerprints,
  diffTools,
  TOOL_PARTS,
  type ToolDiff,
  toolPartTexts,
  type ToolPart,
} from "../catalog/tool-diff.ts";
import type { ListedItem } from "../catalog/listing.ts";

/** The hashes of the parts of a tool that are compared (`TOOL_PARTS`: description, schemas and so on). */
export interface ToolFingerprint {
  /** When the tool was first seen with these parts, in ms since the epoch. */
  readonly since: number;
  /** SHA-256 of each part, in base64url; no entry for a part that the tool does not have. */
  readonly prints: Readonly<Partial<Record<ToolPart, string>>>;
}

/**
 * Fingerprints by the tool's name at its server. The tools of the last listing come first, then removed tools, the
 * most recently removed first.
 */
export type ToolFingerprints = ReadonlyMap<string, ToolFingerprint>;

/** The last listing, and the fingerprints of its tools and of the tools of earlier listings. */
export interface ListingHistory {
  readonly items: readonly ListedItem[];
  readonly fingerprints: ToolFingerprints;
}

/** Maximum number of remembered tools. */
const MAX_FINGERPRINTS = 5000;

/**
 * Compares the tools of a listing with the tools of earlier listings. A new tool does not count as a difference; a
 * tool that is listed again after its removal is compared with its last fingerprint.
 * @param now ms since the epoch
 * @returns the differences, and the fingerprints to store
 */
export async function compareWithHistory(
  history: ListingHistory,
  items: readonly ListedItem[],
  now: number,
): Promise<{ differences: readonly ToolDiff[]; fingerprints: ToolFingerprints }> {
  const previous = uniqueByName(history.items);
  const fingerprints = new Map<string, ToolFingerprint>();
  const differences: ToolDiff[] = [];
  for (const [name, item] of uniqueByName(items)) {
    const previousItem = previous.get(name);
    const knownFingerprint = history.fingerprints.get(name);
    const isSame =
      previousItem !== undefined && Buffer.compare(previousItem.bytes, item.bytes) === 0;
    const fingerprint =
      isSame && knownFingerprint !== undefined
        ? knownFingerprint
        : { since: now, prints: await hashParts(item) };
    const difference =
      previousItem !== undefined
        ? diffTools(previousItem, item)
        : knownFingerprint && diffReturned(knownFingerprint, fingerprint, item);
    if (difference !== undefined) differences.push(difference);
    if (fingerprints.size < MAX_FINGERPRINTS)
      fingerprints.set(
        name,
        difference === undefined ? (knownFingerprint ?? fingerprint) : fingerprint,
      );
  }
  for (const [name, fingerprint] of history.fingerprints) {
    if (fingerprints.size < MAX_FINGERPRINTS && !fingerprints.has(name))
      fingerprints.set(name, fingerprint);
  }
  return { differences, fingerprints };
}

function diffReturned(
  previous: ToolFingerprint,
  current: ToolFingerprint,
  item: ListedItem,
): ToolDiff | undefined {
  const parts = TOOL_PARTS.filter((part) => previous.prints[part] !== current.prints[part]);
  return parts.length === 0 ? undefined : diffFromFingerprints(item, parts);
}

/** The items by name. If several items have the same name, the first one counts, as in the catalog. */
function uniqueByName(items: readonly ListedItem[]): ReadonlyMap<string, ListedItem> {
  const first = new Map<string, ListedItem>();
  for (const item of items) if (!first.has(item.key)) first.set(item.key, item);
  return first;
}

async function hashParts(item: ListedItem): Promise<ToolFingerprint["prints"]> {
  const hashes: Partial<Record<ToolPart, string>> = {};
  for (const [part, text] of toolPartTexts(item)) {
    const hash = await crypto.subtle.digest("SHA-256", Buffer.from(text));
    hashes[part] = Buffer.from(hash).toString("base64url");
  }
  return hashes;
}
