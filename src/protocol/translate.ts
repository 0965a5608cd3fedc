import { type Edit, type ByteRange, utf8 } from "../base/bytes.ts";
import type { CacheHint } from "../catalog/offer.ts";
import { lastMember, type JsonMember, scanObject, parseRange } from "../base/json.ts";
import { appendMembers } from "../base/object.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { Era } from "./era.ts";
import type { Implementation } from "./legacy.ts";
import { ModernError, toModernResult, toLegacyResult } from "./modern.ts";

/**
 * Edits that turn a server's complete result or error into one for a modern client; none if the server is modern, too.
 * @param identity the server's name and version that the client is told
 * @param cache how long the client may cache the result, if the result must say so
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

/** Edits that add the missing members of a cache hint (schema, CacheableResult), which some modern servers omit. */
export function addCacheHint({ bytes, body, outcome }: Response, cache: CacheHint): Edit[] {
  if (outcome !== "result") return [];
  const members = scanObject(bytes, body.start)?.items;
  const missing = Object.entries({ ttlMs: cache.ttlMs, cacheScope: cache.cacheScope })
    .filter(([key]) => members !== undefined && lastMember(members, key) === undefined)
    .map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
  return missing.length === 0 ? [] : [appendMembers(bytes, body, missing.join(","))];
}

/**
 * Edits that turn a modern server's complete result or error into a legacy one.
 * @param members of the result
 */
export function toLegacyEdits(
  { bytes, body, outcome }: Response,
  members: readonly JsonMember[],
): Edit[] {
  if (outcome === "error") return translateError(bytes, body, "legacy");
  return toLegacyResult(bytes, body, members);
}

const INTERNAL_ERROR = -32603;
const INVALID_PARAMS = -32602;
/** The legacy error code of an unknown resource. */
const RESOURCE_NOT_FOUND = -32002;

/** Codes without an equivalent in the other era become Internal error, with the original code and data in `data`. */
function translateError(bytes: Uint8Array, body: ByteRange, to: Era): Edit[] {
  const members = scanObject(bytes, body.start)?.items ?? [];
  const codeMember = lastMember(members, "code");
  const code = codeMember && parseRange(bytes, codeMember);
  if (codeMember === undefined || typeof code !== "number") return [];
  if (to === "modern" && code === RESOURCE_NOT_FOUND)
    return [{ ...codeMember, replacement: String(INVALID_PARAMS) }];
  if (!isForeign(code, to)) return [];
  const data = lastMember(members, "data");
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
  // The code of a missing capability has the same meaning for both eras, even from a legacy server.
  if (to === "modern")
    return code <= -32020 && code >= -32099 && code !== ModernError.missingCapability;
  return (
    code === ModernError.headerMismatch ||
    code === ModernError.missingCapability ||
    code === ModernError.unsupportedVersion
  );
}
