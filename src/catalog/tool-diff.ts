import { Buffer } from "node:buffer";
import { scanObject } from "../base/json.ts";
import { contrast, excerpt } from "./excerpt.ts";
import type { Item } from "./listing.ts";
import { readTree, type Table, type Tree, writeTree } from "./tree.ts";

/**
 * The compared members of a tool: everything that a model reads, and the annotations, by which clients decide whether
 * to confirm a call. `_meta`, icons and unknown members are left out, because servers put versions and times there.
 */
export const PARTS = [
  "description",
  "title",
  "inputSchema",
  "outputSchema",
  "annotations",
] as const;
export type Part = (typeof PARTS)[number];

/** A change of a tool's description, schema or annotations. */
export interface Difference {
  /** The server's own name of the tool. */
  readonly name: string;
  /** In the order of TOOL_PARTS; at least one. */
  readonly parts: readonly Part[];
  /** For people: a few lines, at most 600 characters, invisible characters escaped. */
  readonly text: string;
}

const MAX_TEXT = 600;
/** Limits in characters for one path and one value. The longest single change, with its labels, fits into the text. */
const MAX_PATH = 80;
const MAX_VALUE = 140;
/** Characters reserved for the line that counts the omitted changes. */
const REST = 40;

/** Returns undefined if both mean the same, whatever their JSON formatting. */
export function compareItems(before: Item, after: Item): Difference | undefined {
  if (Buffer.compare(before.bytes, after.bytes) === 0) return undefined;
  const [old, present] = [readParts(before), readParts(after)];
  const changes = new Changes();
  const parts = PARTS.filter((part) => {
    const told = changes.count;
    compareAll(old.get(part) ?? [], present.get(part) ?? [], () => ({ key: part }), changes);
    return changes.count > told;
  });
  return parts.length === 0 ? undefined : { name: after.key, parts, text: changes.text };
}

/** The diff to an earlier version of which only the changed parts are known. */
export function describeReturn(after: Item, parts: readonly Part[]): Difference {
  const changes = new Changes(`Removed and added again with another ${parts.join(", ")}.`);
  const present = readParts(after);
  for (const part of parts) {
    for (const tree of present.get(part) ?? []) changes.add({ key: part }, undefined, tree);
  }
  return { name: after.key, parts, text: changes.text };
}

/**
 * The compared parts that a tool has, as canonical text: two versions of a part have equal texts exactly if they mean
 * the same.
 */
export function textsOf(item: Item): ReadonlyMap<Part, string> {
  return new Map(
    [...readParts(item)].map(([part, trees]) => [part, trees.map(writeTree).join(",")]),
  );
}

/** The parts that are present. A part has several trees if its key occurs several times. */
function readParts(item: Item): Map<Part, Tree[]> {
  const members = scanObject(item.bytes, 0)?.items ?? [];
  const parts = new Map<Part, Tree[]>();
  for (const part of PARTS) {
    const trees = members.filter(({ key }) => key === part).map((it) => readTree(item.bytes, it));
    if (trees.length > 0) parts.set(part, trees);
  }
  return parts;
}

/** A path within a tool: keys of objects and indices of arrays. */
interface Place {
  readonly within?: Place;
  readonly key: string | number;
}

function compare(
  before: Tree | undefined,
  after: Tree | undefined,
  place: Place,
  changes: Changes,
): void {
  if (typeof before === "object" && typeof after === "object") {
    if (before.kind === "list" && after.kind === "list") {
      const placeOf = (key: number): Place => ({ within: place, key });
      return compareAll(before.items, after.items, placeOf, changes);
    }
    if (before.kind === "table" && after.kind === "table") {
      return compareMembers(before.members, after.members, place, changes);
    }
  }
  if (before !== after) changes.add(place, before, after);
}

function compareAll(
  before: readonly Tree[],
  after: readonly Tree[],
  placeOf: (index: number) => Place,
  changes: Changes,
): void {
  for (let i = 0; i < Math.max(before.length, after.length); i++) {
    compare(before[i], after[i], placeOf(i), changes);
  }
}

/** Both are sorted by key, so one pass pairs the members. */
function compareMembers(
  before: Table["members"],
  after: Table["members"],
  within: Place,
  changes: Changes,
): void {
  let [i, k] = [0, 0];
  for (;;) {
    const [old, present] = [before[i], after[k]];
    if (old === undefined && present === undefined) return;
    const isOld = old !== undefined && !(present !== undefined && present[0] < old[0]);
    const isPresent = present !== undefined && !(old !== undefined && old[0] < present[0]);
    const key = isOld ? old[0] : (present?.[0] ?? "");
    const [left, right] = [isOld ? old[1] : undefined, isPresent ? present[1] : undefined];
    compare(left, right, { within, key }, changes);
    if (isOld) i++;
    if (isPresent) k++;
  }
}

/** Counts changes and formats the first ones as lines: `- ` the old value, `+ ` the new value. */
class Changes {
  #count = 0;
  #untold = 0;
  #text: string;

  constructor(headline = "") {
    this.#text = headline;
  }

  get count(): number {
    return this.#count;
  }

  get text(): string {
    return this.#untold === 0 ? this.#text : `${this.#text}\n… and ${this.#untold} more`;
  }

  add(place: Place, before: Tree | undefined, after: Tree | undefined): void {
    this.#count++;
    // After the first change that does not fit, no further one is shown: a shorter later one would hide the gap.
    if (this.#untold === 0) {
      const text = [this.#text, ...linesOf(place, before, after)].filter(Boolean).join("\n");
      if (text.length <= MAX_TEXT - REST) {
        this.#text = text;
        return;
      }
    }
    this.#untold++;
  }
}

/** The description has no label; every other value is labelled with its path. */
function linesOf(place: Place, before: Tree | undefined, after: Tree | undefined): string[] {
  const path = spell(place);
  const label = path === "description" ? "" : `${excerpt(path, MAX_PATH)}: `;
  const old = before === undefined ? undefined : show(before);
  const present = after === undefined ? undefined : show(after);
  if (old !== undefined && present !== undefined) {
    const [left, right] = contrast(old, present, MAX_VALUE);
    return [`- ${label}${left}`, `+ ${label}${right}`];
  }
  if (old !== undefined) return [`- ${label}${excerpt(old, MAX_VALUE)}`];
  return [`+ ${label}${excerpt(present ?? "", MAX_VALUE)}`];
}

/** A string without its quotes, any other value as JSON. */
function show(tree: Tree): string {
  return typeof tree === "string" && tree.startsWith('"')
    ? (JSON.parse(tree) as string)
    : writeTree(tree);
}

function spell({ within, key }: Place): string {
  if (within === undefined) return `${key}`;
  return typeof key === "number" ? `${spell(within)}[${key}]` : `${spell(within)}.${key}`;
}
