/**
 * Structured tool output for legacy clients, whose protocol requires an object and an object schema. Any other output
 * of a modern server's tool is wrapped: it becomes the member `result` of an object.
 */

import { applyEdits, type Edit, joinPieces, type ByteRange, utf8 } from "../base/bytes.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { lastMember, type JsonMember, scanArray, scanObject, readString } from "../base/json.ts";

const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;

/**
 * The tool's listed entry with `outputSchema` wrapped into a schema of an object; the same bytes if it is one already.
 */
export function wrapOutputSchema(tool: Uint8Array): Uint8Array {
  const schema = readOutputSchema(tool);
  if (schema === undefined || isObjectSchema(tool, schema.members)) return tool;
  const { start, end } = schema.range;
  const dialect = lastMember(schema.members, "$schema");
  const dialectPieces =
    dialect && readString(tool, dialect) !== undefined
      ? ['"$schema":', tool.subarray(dialect.start, dialect.end), ","]
      : [];
  const schemaPieces = applyEdits(
    tool,
    hasOwnId(tool, schema.members) ? [] : rebaseRefs(tool, schema.range),
    start,
    end,
  );
  const wrapped = joinPieces([
    "{",
    ...dialectPieces,
    '"type":"object","properties":{"result":',
    ...schemaPieces,
    '},"required":["result"]}',
  ]);
  return joinPieces(applyEdits(tool, [{ start, end, replacement: wrapped }]));
}

/**
 * Edits that wrap `structuredContent` into an object, if needed.
 * @param members of the result
 */
export function wrapStructuredContent(
  bytes: Uint8Array,
  members: readonly JsonMember[],
  item: ListedItem | undefined,
): readonly Edit[] {
  const output = lastMember(members, "structuredContent");
  if (output === undefined) return NO_EDITS;
  const isObject = bytes[output.start] === OPEN_BRACE;
  if (isObject && (item === undefined || hasObjectOutput(item))) return NO_EDITS;
  return [
    { start: output.start, end: output.start, replacement: '{"result":' },
    { start: output.end, end: output.end, replacement: "}" },
  ];
}
const NO_EDITS: readonly Edit[] = [];

const objectOutputCache = new WeakMap<ListedItem, boolean>();

/** Whether the tool's output schema describes an object, or is missing. */
function hasObjectOutput(item: ListedItem): boolean {
  const cached = objectOutputCache.get(item);
  if (cached !== undefined) return cached;
  const schema = readOutputSchema(item.bytes);
  const isObject = schema === undefined || isObjectSchema(item.bytes, schema.members);
  objectOutputCache.set(item, isObject);
  return isObject;
}

interface OutputSchema {
  readonly range: ByteRange;
  readonly members: readonly JsonMember[];
}

function readOutputSchema(tool: Uint8Array): OutputSchema | undefined {
  const range = lastMember(scanObject(tool, 0)?.items ?? [], "outputSchema");
  const members = range && scanObject(tool, range.start)?.items;
  return range === undefined || members === undefined ? undefined : { range, members };
}

function isObjectSchema(bytes: Uint8Array, schema: readonly JsonMember[]): boolean {
  return readString(bytes, lastMember(schema, "type")) === "object";
}

/** Whether the schema has an `$id`, so that its references stay valid wherever it stands (JSON Schema, `$id`). */
function hasOwnId(bytes: Uint8Array, schema: readonly JsonMember[]): boolean {
  const id = lastMember(schema, "$id");
  return id !== undefined && readString(bytes, id)?.startsWith("#") !== true;
}

/** Keywords whose values are data, and keywords whose values map arbitrary names to schemas. */
const DATA_KEYWORDS: ReadonlySet<string> = new Set(["const", "enum", "default", "examples"]);
const SCHEMA_MAP_KEYWORDS: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "$defs",
  "definitions",
  "dependentSchemas",
  "dependencies",
]);
/** References nested deeper than this stay unchanged, as every level is scanned again. */
const MAX_REF_DEPTH = 100;

/** Edits of the references to the schema's root, which is now a part of another schema. */
function rebaseRefs(
  bytes: Uint8Array,
  { start }: Pick<ByteRange, "start">,
  isNamed = false,
  depth = 0,
): Edit[] {
  if (depth > MAX_REF_DEPTH) return [];
  if (bytes[start] === OPEN_BRACKET) {
    const elements = scanArray(bytes, start)?.items ?? [];
    return elements.flatMap((element) => rebaseRefs(bytes, element, false, depth + 1));
  }
  const members = scanObject(bytes, start)?.items ?? [];
  if (!isNamed && depth > 0 && hasOwnId(bytes, members)) return [];
  return members.flatMap((member): Edit[] => {
    if (isNamed) return rebaseRefs(bytes, member, false, depth + 1);
    const { key } = member;
    if (key === "$ref" || key === "$dynamicRef") {
      const target = readString(bytes, member);
      if (target !== undefined && (target === "#" || target.startsWith("#/"))) {
        return [
          {
            start: member.start,
            end: member.end,
            replacement: utf8(JSON.stringify(`${NEW_ROOT}${target.slice(1)}`)),
          },
        ];
      }
    }
    return DATA_KEYWORDS.has(key)
      ? []
      : rebaseRefs(bytes, member, SCHEMA_MAP_KEYWORDS.has(key), depth + 1);
  });
}
const NEW_ROOT = "#/properties/result";
