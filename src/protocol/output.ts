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
export function wrapSchema(tool: Uint8Array): Uint8Array {
  const schema = readSchema(tool);
  if (schema === undefined || isOfObject(tool, schema.members)) return tool;
  const { start, end } = schema.range;
  const dialect = lastMember(schema.members, "$schema");
  const said =
    dialect && readString(tool, dialect) !== undefined
      ? ['"$schema":', tool.subarray(dialect.start, dialect.end), ","]
      : [];
  const natural = applyEdits(
    tool,
    isBase(tool, schema.members) ? [] : moveRefs(tool, schema.range),
    start,
    end,
  );
  const by = joinPieces([
    "{",
    ...said,
    '"type":"object","properties":{"result":',
    ...natural,
    '},"required":["result"]}',
  ]);
  return joinPieces(applyEdits(tool, [{ start, end, replacement: by }]));
}

/**
 * Edits that wrap `structuredContent` into an object, if needed.
 * @param members of the result
 */
export function wrapOutput(
  bytes: Uint8Array,
  members: readonly JsonMember[],
  item: ListedItem | undefined,
): readonly Edit[] {
  const output = lastMember(members, "structuredContent");
  if (output === undefined) return NONE;
  const isObject = bytes[output.start] === OPEN_BRACE;
  if (isObject && (item === undefined || putsOutObjects(item))) return NONE;
  return [
    { start: output.start, end: output.start, replacement: '{"result":' },
    { start: output.end, end: output.end, replacement: "}" },
  ];
}
const NONE: readonly Edit[] = [];

const known = new WeakMap<ListedItem, boolean>();

/** Whether the tool's output schema describes an object, or is missing. */
function putsOutObjects(item: ListedItem): boolean {
  const before = known.get(item);
  if (before !== undefined) return before;
  const schema = readSchema(item.bytes);
  const own = schema === undefined || isOfObject(item.bytes, schema.members);
  known.set(item, own);
  return own;
}

interface Schema {
  readonly range: ByteRange;
  readonly members: readonly JsonMember[];
}

function readSchema(tool: Uint8Array): Schema | undefined {
  const range = lastMember(scanObject(tool, 0)?.items ?? [], "outputSchema");
  const members = range && scanObject(tool, range.start)?.items;
  return range === undefined || members === undefined ? undefined : { range, members };
}

function isOfObject(bytes: Uint8Array, schema: readonly JsonMember[]): boolean {
  return readString(bytes, lastMember(schema, "type")) === "object";
}

/** Whether the schema has an `$id`, so that its references stay valid wherever it stands (JSON Schema, `$id`). */
function isBase(bytes: Uint8Array, schema: readonly JsonMember[]): boolean {
  const id = lastMember(schema, "$id");
  return id !== undefined && readString(bytes, id)?.startsWith("#") !== true;
}

/** Keywords whose values are data, and keywords whose values map arbitrary names to schemas. */
const DATA: ReadonlySet<string> = new Set(["const", "enum", "default", "examples"]);
const NAMED: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "$defs",
  "definitions",
  "dependentSchemas",
  "dependencies",
]);
/** References nested deeper than this stay unchanged, as every level is scanned again. */
const DEEPEST = 100;

/** Edits of the references to the schema's root, which is now a part of another schema. */
function moveRefs(
  bytes: Uint8Array,
  { start }: Pick<ByteRange, "start">,
  isNamed = false,
  depth = 0,
): Edit[] {
  if (depth > DEEPEST) return [];
  if (bytes[start] === OPEN_BRACKET) {
    const elements = scanArray(bytes, start)?.items ?? [];
    return elements.flatMap((element) => moveRefs(bytes, element, false, depth + 1));
  }
  const members = scanObject(bytes, start)?.items ?? [];
  if (!isNamed && depth > 0 && isBase(bytes, members)) return [];
  return members.flatMap((member): Edit[] => {
    if (isNamed) return moveRefs(bytes, member, false, depth + 1);
    const { key } = member;
    if (key === "$ref" || key === "$dynamicRef") {
      const to = readString(bytes, member);
      if (to !== undefined && (to === "#" || to.startsWith("#/"))) {
        return [
          {
            start: member.start,
            end: member.end,
            replacement: utf8(JSON.stringify(`${ROOT}${to.slice(1)}`)),
          },
        ];
      }
    }
    return DATA.has(key) ? [] : moveRefs(bytes, member, NAMED.has(key), depth + 1);
  });
}
const ROOT = "#/properties/result";
