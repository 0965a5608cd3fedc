import { applyEdits, type ByteRange, type Edit, joinPieces, utf8 } from "../base/bytes.ts";
import {
  appendMembers,
  JsonObject,
  lastMember,
  OPEN_BRACE,
  OPEN_BRACKET,
  readString,
  scanArray,
  scanObject,
} from "../base/json.ts";
import type { CacheHint, ListedItem } from "../catalog/listing.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { Implementation } from "./legacy.ts";
import { type Era, ModernErrorCode, toLegacyResult, toModernResult } from "./modern.ts";

/**
 * Edits that turn a server's complete result or error into one for a client of protocol 2026-07-28 (modern); no edits
 * if the server speaks that protocol, too.
 * @param identity the server name and version that the client is told
 * @param cache the cache hint to add, if results of the method must have one
 */
export function toModernEdits(
  { bytes, body, outcome }: Response,
  from: Era,
  identity: Implementation,
  cache?: CacheHint,
): Edit[] {
  if (from === "modern") return [];
  if (outcome === "error") return translateError(bytes, body, "modern");
  return toModernResult(bytes, body, identity, cache);
}

/** Edits that add members of the cache hint (schema, CacheableResult) that a server of protocol 2026-07-28 omits. */
export function addCacheHint({ bytes, body, outcome }: Response, cache: CacheHint): Edit[] {
  if (outcome !== "result") return [];
  const members = scanObject(bytes, body.start)?.items;
  const missing = Object.entries({ ttlMs: cache.ttlMs, cacheScope: cache.cacheScope })
    .filter(([key]) => members !== undefined && lastMember(members, key) === undefined)
    .map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
  return missing.length === 0 ? [] : [appendMembers(bytes, body, missing.join(","))];
}

/**
 * Edits that turn a complete result or error of protocol 2026-07-28 (modern) into one of the older versions (legacy).
 * @param result the parsed body
 */
export function toLegacyEdits({ bytes, body, outcome }: Response, result: JsonObject): Edit[] {
  if (outcome === "error") return translateError(bytes, body, "legacy");
  return toLegacyResult(body, result);
}

const INTERNAL_ERROR = -32603;
const INVALID_PARAMS = -32602;
/** The error code of an unknown resource in the older protocol versions (legacy). */
const RESOURCE_NOT_FOUND = -32002;

/**
 * Edits that translate an error into one of the protocol era `to`. A code without an equivalent becomes Internal error
 * (-32603), with the original code and data in `data`.
 */
function translateError(bytes: Uint8Array, body: ByteRange, to: Era): Edit[] {
  const error = JsonObject.at(bytes, body);
  const codeMember = error.member("code");
  const code = error.value("code");
  if (codeMember === undefined || typeof code !== "number") return [];
  if (to === "modern" && code === RESOURCE_NOT_FOUND)
    return [{ ...codeMember, replacement: String(INVALID_PARAMS) }];
  if (!isForeign(code, to)) return [];
  const data = error.member("data");
  const original = `{"code":${code}`;
  const edits: Edit[] = [{ ...codeMember, replacement: String(INTERNAL_ERROR) }];
  if (data === undefined) return [...edits, appendMembers(bytes, body, `"data":${original}}`)];
  return [
    ...edits,
    { start: data.start, end: data.start, replacement: utf8(`${original},"data":`) },
    { start: data.end, end: data.end, replacement: "}" },
  ];
}

function isForeign(code: number, to: Era): boolean {
  // The code for a missing capability has the same meaning in both eras, so it stays unchanged even if a server of an
  // older protocol version (legacy) sends it.
  if (to === "modern")
    return code <= -32020 && code >= -32099 && code !== ModernErrorCode.missingCapability;
  return (
    code === ModernErrorCode.headerMismatch ||
    code === ModernErrorCode.missingCapability ||
    code === ModernErrorCode.unsupportedVersion
  );
}

/**
 * Structured tool output for clients of the older protocol versions (legacy), which require an object and an object
 * schema. Any other output of a modern server's tool is wrapped: it becomes the member `result` of an object.
 */

/**
 * The tool's listed entry, with `outputSchema` wrapped into an object schema; the same bytes if it is an object schema
 * already.
 */
export function wrapOutputSchema(tool: Uint8Array): Uint8Array {
  const range = outputSchemaOf(tool);
  const schema = JsonObject.at(tool, range);
  if (range === undefined || schema.string("type") === "object") return tool;
  const { start, end } = range;
  const dialect = schema.member("$schema");
  const dialectPieces =
    dialect && schema.string("$schema") !== undefined
      ? ['"$schema":', tool.subarray(dialect.start, dialect.end), ","]
      : [];
  const schemaPieces = applyEdits(
    tool,
    hasOwnId(schema) ? [] : rebaseRefs(tool, range),
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

/** Edits that wrap a result's `structuredContent`, unless it is an object and the output schema describes an object. */
export function wrapStructuredContent(
  result: JsonObject,
  item: ListedItem | undefined,
): readonly Edit[] {
  const output = result.member("structuredContent");
  if (output === undefined) return NO_EDITS;
  const isObject = result.bytes[output.start] === OPEN_BRACE;
  if (isObject && (item === undefined || hasObjectOutput(item))) return NO_EDITS;
  return [
    { start: output.start, end: output.start, replacement: '{"result":' },
    { start: output.end, end: output.end, replacement: "}" },
  ];
}
const NO_EDITS: readonly Edit[] = [];

const objectOutputCache = new WeakMap<ListedItem, boolean>();

/** Whether the tool's output schema describes an object, or the tool has no output schema. */
function hasObjectOutput(item: ListedItem): boolean {
  const cached = objectOutputCache.get(item);
  if (cached !== undefined) return cached;
  const range = outputSchemaOf(item.bytes);
  const isObject =
    range === undefined || JsonObject.at(item.bytes, range).string("type") === "object";
  objectOutputCache.set(item, isObject);
  return isObject;
}

/** The output schema of a tool, if it has one that is an object. */
function outputSchemaOf(tool: Uint8Array): ByteRange | undefined {
  const range = JsonObject.of(tool).member("outputSchema");
  return range !== undefined && tool[range.start] === OPEN_BRACE ? range : undefined;
}

/** Whether the schema has an `$id`: its references then stay valid in any place (JSON Schema, `$id`). */
function hasOwnId(schema: JsonObject): boolean {
  return schema.member("$id") !== undefined && schema.string("$id")?.startsWith("#") !== true;
}

/** Keywords whose values are data. `SCHEMA_MAP_KEYWORDS`: keywords whose values map arbitrary names to schemas. */
const DATA_KEYWORDS: ReadonlySet<string> = new Set(["const", "enum", "default", "examples"]);
const SCHEMA_MAP_KEYWORDS: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "$defs",
  "definitions",
  "dependentSchemas",
  "dependencies",
]);
/** References nested deeper than this stay unchanged: each level is scanned again, so the cost grows with depth. */
const MAX_REF_DEPTH = 100;

/** Edits that correct the references to the schema's root, after the schema was put into another one. */
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
  const schema = JsonObject.at(bytes, { start });
  if (!isNamed && depth > 0 && hasOwnId(schema)) return [];
  return schema.members.flatMap((member): Edit[] => {
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
