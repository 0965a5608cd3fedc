/**
 * Protocol 2026-07-28 (modern; MCP, basic/versioning). Every request carries an envelope in `_meta`: the protocol
 * version, and the client's name and capabilities.
 */
import { Buffer } from "node:buffer";
import { applyEdits, type ByteRange, type Edit, joinPieces, utf8 } from "../base/bytes.ts";
import {
  type JsonMember,
  JsonObject,
  lastMember,
  OPEN_BRACE,
  removeMembers,
  scanObject,
  scanTopLevel,
  skipWhitespace,
} from "../base/json.ts";
import type { CacheHint, CombinedCapabilities } from "../catalog/listing.ts";
import {
  type Capabilities,
  commonCapabilities,
  formatExtensionSettings,
  readCapabilities,
} from "./capabilities.ts";
import type { Implementation } from "./legacy.ts";
import type { LogSeverity } from "./log-level.ts";
import { TASKS_CAPABILITY } from "./tasks.ts";

/** Maximum size, in bytes, of a buffer whose scan is cached: the cache keeps the buffer alive. */
const MAX_CACHED_BYTES = 256 * 1024;

const NO_MEMBERS: readonly JsonMember[] = [];
const lastScan: { bytes: Uint8Array | undefined; start: number; items: readonly JsonMember[] } = {
  bytes: undefined,
  start: 0,
  items: NO_MEMBERS,
};

/**
 * The members of a `_meta`; empty if it is not an object. Several readers scan the same `_meta` in a row, so the last
 * scan is cached.
 * @param bytes the bytes of a received message, which are never modified
 */
export function membersOfMeta(
  bytes: Uint8Array,
  { start }: Pick<JsonMember, "start">,
): readonly JsonMember[] {
  if (lastScan.bytes === bytes && lastScan.start === start) return lastScan.items;
  const items = scanObject(bytes, start)?.items ?? NO_MEMBERS;
  if (bytes.length <= MAX_CACHED_BYTES) {
    lastScan.bytes = bytes;
    lastScan.start = start;
    lastScan.items = items;
  }
  return items;
}

/** The stateless protocol versions (modern), newest first. */
export const MODERN_VERSIONS = ["2026-07-28"] as const;
export type ModernVersion = (typeof MODERN_VERSIONS)[number];
export const LATEST_MODERN: ModernVersion = MODERN_VERSIONS[0];

export function isModernVersion(version: unknown): version is ModernVersion {
  return MODERN_VERSIONS.some((known) => known === version);
}

/** Methods that the older protocol versions (legacy) do not have. */
export const ModernMethod = {
  discover: "server/discover",
  listen: "subscriptions/listen",
  acknowledged: "notifications/subscriptions/acknowledged",
} as const;

/** JSON-RPC error codes that the protocol reserves (basic, error codes). */
export const ModernErrorCode = {
  headerMismatch: -32020,
  missingCapability: -32021,
  unsupportedVersion: -32022,
} as const;

const META_PREFIX = "io.modelcontextprotocol/";
/** Reserved keys of `_meta`. */
export const MetaKey = {
  version: `${META_PREFIX}protocolVersion`,
  capabilities: `${META_PREFIX}clientCapabilities`,
  client: `${META_PREFIX}clientInfo`,
  level: `${META_PREFIX}logLevel`,
  subscription: `${META_PREFIX}subscriptionId`,
  server: `${META_PREFIX}serverInfo`,
} as const;

/** The `_meta` keys of a request's envelope (see `Envelope`). They apply to one hop: the hub replaces them. */
const ENVELOPE_KEYS: ReadonlySet<string> = new Set([
  MetaKey.version,
  MetaKey.capabilities,
  MetaKey.client,
  MetaKey.level,
]);

/** Whether a member of a `_meta` belongs to the request's envelope (see `Envelope`). */
export function isEnvelopeKey(key: string): boolean {
  return ENVELOPE_KEYS.has(key);
}

const VERSION_KEY_BYTES = Buffer.from(MetaKey.version);
const ESCAPE_BYTES = Buffer.from("\\u00");

/** Whether a request may be one of protocol 2026-07-28 (modern); if false, it certainly is not. Costs two searches. */
export function mayBeModern(bytes: Buffer): boolean {
  return bytes.includes(VERSION_KEY_BYTES) || bytes.includes(ESCAPE_BYTES);
}

/** The members of a request's `_meta` that describe the client, in protocol 2026-07-28 (modern). */
export interface Envelope {
  /** The protocol version as received; not validated. */
  readonly version: unknown;
  /**
   * `capabilities`: those that the hub relays; undefined if the client declares none. `declared`: the declaration as
   * received, with extensions.
   */
  readonly capabilities: Capabilities | undefined;
  readonly declared: unknown;
  readonly client: Partial<Implementation>;
  /** Minimum level of log messages about this request, as received, not validated; undefined: none are wanted. */
  readonly level: unknown;
}

/** Reads the envelope in the params of a request; undefined if the request is of an older protocol version (legacy). */
export function readEnvelope(params: JsonObject): Envelope | undefined {
  const member = params.member("_meta");
  if (member === undefined) return undefined;
  const meta = new JsonObject(params.bytes, membersOfMeta(params.bytes, member));
  const version = meta.value(MetaKey.version);
  if (version === undefined) return undefined;
  const declared = meta.value(MetaKey.capabilities);
  const isDeclared = typeof declared === "object" && declared !== null;
  return {
    version,
    capabilities: isDeclared ? readCapabilities(declared) : undefined,
    declared,
    client: readImplementation(meta.value(MetaKey.client)),
    level: meta.value(MetaKey.level),
  };
}

/** Names and versions are cut to this length, in UTF-16 units. */
const MAX_NAME_LENGTH = 200;

function readImplementation(value: unknown): Partial<Implementation> {
  if (typeof value !== "object" || value === null) return {};
  const { name, version } = value as Readonly<Record<string, unknown>>;
  return {
    ...(typeof name === "string" && { name: name.slice(0, MAX_NAME_LENGTH) }),
    ...(typeof version === "string" && { version: version.slice(0, MAX_NAME_LENGTH) }),
  };
}

/** The envelope for requests to a server of protocol 2026-07-28 (modern), as members of `_meta`: `"key":value,…`. */
export function formatEnvelope(fields: {
  readonly version: ModernVersion;
  readonly client: Implementation;
  readonly capabilities: object;
  readonly level: LogSeverity | undefined;
}): string {
  const { version, client, capabilities, level } = fields;
  const envelope = {
    [MetaKey.version]: version,
    [MetaKey.client]: client,
    [MetaKey.capabilities]: capabilities,
    ...(level !== undefined && { [MetaKey.level]: level }),
  };
  return JSON.stringify(envelope).slice(1, -1);
}

/** The range of a request's `params`, and their members. */
export interface ParamsRange {
  readonly bytes: Uint8Array;
  /** The range of `params`, with its braces. */
  readonly params: ByteRange;
  readonly members: readonly JsonMember[];
}

/** An envelope encoded once for many requests: as members of an existing `_meta`, and as a `_meta` of its own. */
export interface PreparedEnvelope {
  readonly members: EncodedMembers;
  readonly meta: EncodedMembers;
}

/**
 * Encodes an envelope once for many requests.
 * @param envelope the members of the envelope: `"key":value,…`
 */
export function prepareEnvelope(envelope: string): PreparedEnvelope {
  return { members: encodeMembers(envelope), meta: encodeMembers(`"_meta":{${envelope}}`) };
}

/**
 * Edits that add the envelope to a request's `_meta`, keeping its other members. Other edits must not replace the whole
 * `_meta`.
 */
export function addEnvelope(
  { bytes, params, members }: ParamsRange,
  envelope: PreparedEnvelope,
): Edit[] {
  const edits: Edit[] = [];
  for (const member of members) {
    if (isMetaObject(bytes, member)) edits.push(appendTo(bytes, member, envelope.members));
  }
  return edits.length > 0 ? edits : [appendTo(bytes, params, envelope.meta)];
}

/** Edits that remove the envelope (see `Envelope`) from a request's `_meta`, keeping its other members. */
export function removeEnvelope({ bytes, members }: Omit<ParamsRange, "params">): Edit[] {
  const edits: Edit[] = [];
  for (const member of members) {
    if (!isMetaObject(bytes, member)) continue;
    edits.push(...removeMembers(bytes, member, membersOfMeta(bytes, member), isEnvelopeKey));
  }
  return edits;
}

/** Edits after which a request's envelope declares no capabilities of its client. */
export function replaceCapabilities(
  bytes: Uint8Array,
  { members }: Omit<ParamsRange, "params" | "bytes">,
): Edit[] {
  return members
    .filter((member) => isMetaObject(bytes, member))
    .flatMap((meta) => membersOfMeta(bytes, meta))
    .filter(({ key }) => key === MetaKey.capabilities)
    .map(({ start, end }) => ({ start, end, replacement: NO_CAPABILITIES }));
}
const NO_CAPABILITIES = utf8("{}");

function isMetaObject(bytes: Uint8Array, { key, start }: JsonMember): boolean {
  return key === "_meta" && bytes[start] === OPEN_BRACE;
}

/** The `resultType` of the result of a modern server; `complete` if the result has no such member. */
export function readResultType(result: JsonObject): string {
  return result.string("resultType") ?? "complete";
}

const INPUT_BYTES = Buffer.from('"input');
const TASK_BYTES = Buffer.from('"task');

/**
 * Whether a result may have another `resultType` than `complete`, such as `input_required`. If false, its `resultType`
 * is `complete` or contains escaped characters. Costs two searches.
 */
export function mayBeIncomplete(bytes: Buffer): boolean {
  return bytes.includes(INPUT_BYTES) || bytes.includes(TASK_BYTES);
}

/** Top-level members that only results of protocol 2026-07-28 (modern) have. */
const RESULT_KEYS: ReadonlySet<string> = new Set(["resultType", "ttlMs", "cacheScope"]);

/**
 * Edits that turn a result of protocol 2026-07-28 (modern) into one of the older protocol versions (legacy).
 * @param body the result's range
 */
export function toLegacyResult(body: ByteRange, result: JsonObject): Edit[] {
  const { bytes, members } = result;
  const meta = result.member("_meta");
  const inner = meta && scanObject(bytes, meta.start)?.items;
  const isServer = ({ key }: JsonMember): boolean => key === MetaKey.server;
  // A `_meta` that contains only the server's identity is removed as a whole.
  const isEmptied = inner !== undefined && inner.length > 0 && inner.every(isServer);
  const edits = removeMembers(
    bytes,
    body,
    members,
    (key) => RESULT_KEYS.has(key) || (isEmptied && key === "_meta"),
  );
  if (meta !== undefined && inner !== undefined && !isEmptied) {
    edits.push(...removeMembers(bytes, meta, inner, (key) => key === MetaKey.server));
  }
  return edits;
}

/** The members that `toModernResult` adds, encoded once for each server identity and cache hint. */
interface ResultAdditions {
  readonly server: Implementation;
  readonly cache: CacheHint | undefined;
  /**
   * `identity`: the server's identity, as one member to add to a `_meta` that the result has; `resultMembers`: the
   * members to add at the top level of every result, such as `resultType`; `all`: for a result without `_meta`,
   * `resultMembers` and a new `_meta` with `identity`.
   */
  readonly identity: EncodedMembers;
  readonly resultMembers: EncodedMembers;
  readonly all: EncodedMembers;
}

/** Members to add to an object. `first`: encoded for an empty object; `next`: for an object that has members. */
interface EncodedMembers {
  readonly first: Uint8Array;
  readonly next: Uint8Array;
}

function encodeMembers(json: string): EncodedMembers {
  return { first: utf8(json), next: utf8(`,${json}`) };
}

/** Number of encodings that are cached: a hub has one identity and few cache hints. */
const MAX_CACHED_ADDITIONS = 4;
let additionsCache: readonly ResultAdditions[] = [];

function additionsFor(server: Implementation, cache: CacheHint | undefined): ResultAdditions {
  for (const cached of additionsCache) {
    const { name, version } = cached.server;
    if (cached.cache === cache && name === server.name && version === server.version) return cached;
  }
  const identity = `${JSON.stringify(MetaKey.server)}:${JSON.stringify(server)}`;
  const resultMembers = JSON.stringify({ ...cache, resultType: "complete" }).slice(1, -1);
  const all = encodeMembers(`"_meta":{${identity}},${resultMembers}`);
  const additions = {
    server,
    cache,
    identity: encodeMembers(identity),
    resultMembers: encodeMembers(resultMembers),
    all,
  };
  additionsCache = [additions, ...additionsCache].slice(0, MAX_CACHED_ADDITIONS);
  return additions;
}

const META_BYTES = Buffer.from('"_meta"');

/**
 * Edits that turn a result of an older protocol version (legacy), or of the hub itself, into a complete result of
 * protocol 2026-07-28 (modern). The added members come last, so that they override duplicates in the result.
 * @returns no edits if the result is not an object
 */
export function toModernResult(
  bytes: Buffer,
  body: ByteRange,
  server: Implementation,
  cache?: CacheHint,
): Edit[] {
  if (bytes[body.start] !== OPEN_BRACE) return [];
  const { identity, resultMembers, all } = additionsFor(server, cache);
  const at = bytes.indexOf(META_BYTES, body.start);
  const members = at < 0 || at >= body.end ? [] : scanTopLevel(bytes, body.start);
  const meta = lastMember(members, "_meta");
  if (meta === undefined || bytes[meta.start] !== OPEN_BRACE) return [appendTo(bytes, body, all)];
  return [appendTo(bytes, meta, identity), appendTo(bytes, body, resultMembers)];
}

function appendTo(bytes: Uint8Array, object: ByteRange, { first, next }: EncodedMembers): Edit {
  const at = object.end - 1;
  const isEmpty = skipWhitespace(bytes, object.start + 1) === at;
  return { start: at, end: at, replacement: isEmpty ? first : next };
}

/** The bytes of a result with the members that `toModernResult` adds. */
export function toModernResultBytes(
  result: Uint8Array,
  server: Implementation,
  cache?: CacheHint,
): Uint8Array {
  const bytes = Buffer.from(result.buffer, result.byteOffset, result.length);
  const range = { start: 0, end: bytes.length };
  return joinPieces(applyEdits(bytes, toModernResult(bytes, range, server, cache)));
}

/**
 * The result of `server/discover`, to which `toModernResult` must be applied. It declares the hub's own capabilities
 * and the `CombinedCapabilities` of its servers, such as extensions.
 */
export function discoverResult(
  instructions: string | undefined,
  { canSubscribe, tasks, extensions, experimental }: CombinedCapabilities,
): object {
  const taskExtension = tasks.modern ? TASKS_CAPABILITY.extensions : {};
  return {
    supportedVersions: MODERN_VERSIONS,
    capabilities: {
      ...commonCapabilities(canSubscribe),
      ...formatExtensionSettings({ extensions: { ...extensions, ...taskExtension }, experimental }),
    },
    ...(instructions && { instructions }),
  };
}

/**
 * The two eras of the protocol: in the `legacy` era, a connection begins with `initialize`; the `modern` era (since
 * 2026-07-28) is stateless. Each request has its own era: one transport may carry both.
 */
export type Era = "legacy" | "modern";
