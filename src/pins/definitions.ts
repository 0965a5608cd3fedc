import { Buffer } from "node:buffer";
import { textOf } from "../base/bytes.ts";
import { isShowable, type ListedItem, type ServerListing } from "../catalog/listing.ts";
import type { Sha256 } from "../catalog/names.ts";
import { pinKeyOf, type PinnedKind } from "../manifest/pin-file.ts";
import {
  canonicalJson,
  TOOL_PARTS,
  type ValueChange,
  valueChangesOf,
} from "../catalog/tool-diff.ts";

/** The members of each kind that are pinned, in addition to the name: what models read, and what clients decide by. */
const PARTS = {
  tool: TOOL_PARTS,
  prompt: ["description", "title", "arguments"],
  instructions: ["instructions"],
} as const satisfies Readonly<Record<PinnedKind, readonly string[]>>;

/**
 * The part that has the JSON of a whole entry: of a large one, and of one that has a member twice in one object, or under
 * two spellings, because readers differ in which of them they use.
 */
const SOURCE_PART = "source";

/** What a server says of a tool or a prompt, or its instructions, as far as it is pinned. */
export interface Definition {
  readonly kind: PinnedKind;
  /** The server's own name of the tool or prompt; "" for instructions. */
  readonly name: string;
  /**
   * SHA-256 of kind, name and parts, in base64url. It is equal exactly if they mean the same: the order of members and
   * white space make no difference. Of entries above `MAX_PARSED_SIZE` it is that of their text.
   */
  readonly digest: string;
}

/** The parts of a definition by their names, each as canonical JSON. */
export type DefinitionParts = Readonly<Record<string, string>>;

/** A definition's key in a set or map. */
export function keyOf({ kind, name }: Pick<Definition, "kind" | "name">): string {
  return pinKeyOf(kind, name);
}

/** The tool or prompt, or the instructions, of which a definition is made. */
export type DefinitionSource =
  | { readonly kind: "tool" | "prompt"; readonly name: string; readonly item: ListedItem }
  | { readonly kind: "instructions"; readonly name: ""; readonly text: string };

type PinnedListing = Pick<ServerListing, "tools" | "prompts" | "instructions">;

/**
 * All that is pinned of a listing. Of several entries of one name, the first counts, as in the catalog. Entries that no
 * client can be shown are left out.
 */
export function sourcesOf(listing: PinnedListing): readonly DefinitionSource[] {
  return [...sourcesByKey(listing).values()];
}

/** The same by `keyOf`, in the order of the listing. */
export function sourcesByKey(listing: PinnedListing): ReadonlyMap<string, DefinitionSource> {
  const sources = new Map<string, DefinitionSource>();
  for (const [kind, items] of [
    ["tool", listing.tools],
    ["prompt", listing.prompts],
  ] as const) {
    for (const item of items) {
      const source = { kind, name: item.key, item };
      const key = keyOf(source);
      if (isShowable(item) && !sources.has(key)) sources.set(key, source);
    }
  }
  const text = listing.instructions ?? "";
  const instructions = { kind: "instructions", name: "", text } as const;
  if (text !== "") sources.set(keyOf(instructions), instructions);
  return sources;
}

/** A tool or prompt as some machines with its server have it, while others have it as it is listed. */
export interface DifferingSource {
  readonly source: DefinitionSource;
  readonly machines: readonly string[];
}

export function differingSourcesOf({
  differing = [],
}: Pick<ServerListing, "differing">): readonly DifferingSource[] {
  return differing
    .filter(({ item }) => isShowable(item))
    .map(({ kind, item, machines }) => ({
      source: { kind: kind === "tools" ? "tool" : "prompt", name: item.key, item },
      machines,
    }));
}

/**
 * Size of a tool or prompt above which its parts are not told apart, in bytes: they would take many times as much, and
 * calls wait meanwhile.
 */
const MAX_PARSED_SIZE = 128 * 1024;

/** The digests of items: the same object never means something else. */
const digests = new WeakMap<ListedItem, string>();

/** The digest of a tool, a prompt or instructions. */
export function definitionOf(source: DefinitionSource, sha256: Sha256): Definition {
  const { kind, name } = source;
  const known = source.kind === "instructions" ? undefined : digests.get(source.item);
  if (known !== undefined) return { kind, name, digest: known };
  const isLarge = source.kind !== "instructions" && sizeOf(source) > MAX_PARSED_SIZE;
  const content = isLarge
    ? [Buffer.from(sha256(source.item.original ?? source.item.bytes)).toString("base64url")]
    : Object.entries(partsOf(source));
  const hash = sha256(JSON.stringify([kind, name, ...content]));
  const digest = Buffer.from(hash).toString("base64url");
  if (source.kind !== "instructions") digests.set(source.item, digest);
  return { kind, name, digest };
}

/** The size of what a definition is made of, in bytes, or in UTF-16 units for instructions. */
export function sizeOf(source: DefinitionSource): number {
  if (source.kind === "instructions") return source.text.length;
  return (source.item.original ?? source.item.bytes).length;
}

/** The pinned parts that a tool, a prompt or instructions have. */
export function partsOf(source: DefinitionSource): DefinitionParts {
  if (source.kind === "instructions") return { instructions: JSON.stringify(source.text) };
  // What a plugin or the hub has changed in an entry is no word of the server.
  const json = textOf(source.item.original ?? source.item.bytes);
  if (sizeOf(source) > MAX_PARSED_SIZE) return { [SOURCE_PART]: JSON.stringify(json) };
  const value: unknown = JSON.parse(json);
  const members = new Map(Object.entries(value as object));
  const parts: Record<string, string> = {};
  for (const part of PARTS[source.kind]) {
    if (members.has(part)) parts[part] = canonicalJson(members.get(part));
  }
  if (memberCountOf(value) !== countColons(json) || hasOtherSpelling([...members.keys()]))
    parts[SOURCE_PART] = JSON.stringify(json);
  return parts;
}

/** The members that readers look for, as they are spelled, and as readers of any spelling compare them. */
const READ_MEMBERS: ReadonlySet<string> = new Set(["name", ...PARTS.tool, ...PARTS.prompt]);
const READ_SPELLINGS: ReadonlySet<string> = new Set([...READ_MEMBERS].map(spellingOf));

/**
 * Whether a member would be taken for a pinned one: some readers, as Go's, take `Description` for `description`, others
 * `input_schema` for `inputSchema`.
 */
function hasOtherSpelling(names: readonly string[]): boolean {
  return names.some((name) => !READ_MEMBERS.has(name) && READ_SPELLINGS.has(spellingOf(name)));
}

function spellingOf(name: string): string {
  return name.normalize("NFKC").toLowerCase().replace(/[_-]/g, "");
}

/** The number of members of all objects in a value. Its depth is at most `MAX_ENTRY_DEPTH`, so recursion is safe. */
function memberCountOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const inner = Object.values(value);
  let count = Array.isArray(value) ? 0 : inner.length;
  for (const each of inner) count += memberCountOf(each);
  return count;
}

/** The number of colons outside of strings, so the number of members that valid JSON has. */
function countColons(json: string): number {
  let count = 0;
  for (let at = 0; at < json.length; at++) {
    const character = json[at];
    if (character === ":") count++;
    else if (character === '"') {
      for (at++; json[at] !== '"'; at++) if (json[at] === "\\") at++;
    }
  }
  return count;
}

/** Maximum number of changes that are shown of one part. */
const MAX_CHANGES = 50;

/** A part that differs between two versions of a definition. */
export interface PartChange {
  readonly part: string;
  readonly changes: readonly ValueChange[];
  /** How many changes are left out. */
  readonly omitted: number;
}

/**
 * The differences between two versions of a definition, for people.
 * @param before the accepted version; undefined if there is none, or it is not known
 * @param redact removes secrets from a text
 */
export function partChangesOf(
  before: DefinitionParts | undefined,
  after: DefinitionParts,
  redact: (text: string) => string = (text) => text,
): readonly PartChange[] {
  const [previous, current] = [
    new Map(Object.entries(before ?? {})),
    new Map(Object.entries(after)),
  ];
  const changed = [...new Set([...previous.keys(), ...current.keys()])].filter(
    (part) => previous.get(part) !== current.get(part),
  );
  const redacted = (_: string, value: unknown): unknown =>
    typeof value === "string" ? redact(value) : value;
  return changed.map((part) => {
    const [old, own] = [previous.get(part), current.get(part)].map(
      (json): unknown => json && JSON.parse(json, redacted),
    );
    return { part, ...valueChangesOf(old, own, part, MAX_CHANGES) };
  });
}
