import { Buffer } from "node:buffer";
import { scanObject } from "../base/json.ts";
import { excerptPair, excerpt } from "./excerpt.ts";
import type { ListedItem } from "./listing.ts";
import { parseTree, type JsonTable, type JsonTree, formatTree } from "./tree.ts";

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
export function diffFromMarks(after: ListedItem, parts: readonly ToolPart[]): ToolDiff {
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
  const members = scanObject(item.bytes, 0)?.items ?? [];
  const parts = new Map<ToolPart, JsonTree[]>();
  for (const part of TOOL_PARTS) {
    const trees = members.filter(({ key }) => key === part).map((it) => parseTree(item.bytes, it));
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

/** Both are sorted by key, so one pass pairs the members. */
function diffMembers(
  before: JsonTable["members"],
  after: JsonTable["members"],
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
    // After the first change that does not fit, no further one is shown: a shorter later one would hide the gap.
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
