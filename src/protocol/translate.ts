import { type Edit, type Range, utf8 } from "../bytes.ts";
import type { CacheHint } from "../catalog/offer.ts";
import { lastMember, type Member, scanObject, valueOf } from "../json.ts";
import { appendMembers } from "../object.ts";
import type { Response } from "../wire/jsonrpc.ts";
import type { Era } from "./era.ts";
import type { Implementation } from "./legacy.ts";
import { ModernError, stampResult, stripResult } from "./modern.ts";

/**
 * What has to be changed in the body of an answer of a server for a client of the modern era; nothing within the era.
 * `identity`: who answers, as the client is told; `cache`: how long it may keep the result, if it has to be told. Only
 * complete results, and errors.
 */
export function modernize(
  { bytes, body, outcome }: Response,
  from: Era,
  identity: Implementation,
  cache?: CacheHint,
): Edit[] {
  if (from === "modern") return [];
  if (outcome === "error") return translateError(bytes, body, "modern");
  return stampResult(bytes, body, identity, cache);
}

/** The members of a cache hint that a result lacks (schema, CacheableResult), as some modern servers leave them out. */
export function addHint({ bytes, body, outcome }: Response, cache: CacheHint): Edit[] {
  if (outcome !== "result") return [];
  const members = scanObject(bytes, body.start)?.items;
  const missing = Object.entries({ ttlMs: cache.ttlMs, cacheScope: cache.cacheScope })
    .filter(([key]) => members !== undefined && lastMember(members, key) === undefined)
    .map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
  return missing.length === 0 ? [] : [appendMembers(bytes, body, missing.join(","))];
}

/** The same for one of the legacy era, of a complete result of which the members are known, or an error of a modern server. */
export function legacize({ bytes, body, outcome }: Response, members: readonly Member[]): Edit[] {
  if (outcome === "error") return translateError(bytes, body, "legacy");
  return stripResult(bytes, body, members);
}

const INTERNAL = -32603;
const INVALID_PARAMS = -32602;
/** What servers of the legacy era say of a resource that there is not. */
const NO_RESOURCE = -32002;

/** Codes mean something else, or nothing, to the other era: what it has no word for is internal, with the original as data. */
function translateError(bytes: Uint8Array, body: Range, to: Era): Edit[] {
  const members = scanObject(bytes, body.start)?.items ?? [];
  const spelled = lastMember(members, "code");
  const code = spelled && valueOf(bytes, spelled);
  if (spelled === undefined || typeof code !== "number") return [];
  if (to === "modern" && code === NO_RESOURCE) return [{ ...spelled, by: String(INVALID_PARAMS) }];
  if (!isForeign(code, to)) return [];
  const data = lastMember(members, "data");
  const original = `{"code":${code}`;
  const edits: Edit[] = [{ ...spelled, by: String(INTERNAL) }];
  if (data === undefined) return [...edits, appendMembers(bytes, body, `"data":${original}}`)];
  return [
    ...edits,
    { start: data.start, end: data.start, by: utf8(`${original},"data":`) },
    { start: data.end, end: data.end, by: "}" },
  ];
}

function isForeign(code: number, to: Era): boolean {
  // What a client lacks has the same code and meaning for a client of either era that gets it from a server of old.
  if (to === "modern")
    return code <= -32020 && code >= -32099 && code !== ModernError.missingCapability;
  return (
    code === ModernError.headerMismatch ||
    code === ModernError.missingCapability ||
    code === ModernError.unsupportedVersion
  );
}
