import { Buffer } from "node:buffer";
import type { Piece } from "../../base/bytes.ts";
import { HubError, type RpcError } from "../../base/errors.ts";
import type { CancelledBy } from "../../base/hub-events.ts";
import { type JsonMember, type JsonObject, lastMember } from "../../base/json.ts";
import {
  buildError,
  bytesOf,
  type EncodedMessage,
  paramsOf,
  type Request,
} from "../../jsonrpc/message.ts";
import { capabilityClassOf, readExtensionSettings } from "../../protocol/capabilities.ts";
import { Method } from "../../protocol/legacy.ts";
import { isSeverity } from "../../protocol/log-level.ts";
import {
  type Envelope,
  isEnvelopeKey,
  isModernVersion,
  mayBeModern,
  membersOfMeta,
  MetaKey,
  MODERN_VERSIONS,
  ModernMethod,
  readEnvelope,
} from "../../protocol/modern.ts";
import type { CancelReason } from "../../protocol/notifications.ts";
import { declaresTasks, tasksUnsupportedError } from "../../protocol/tasks.ts";
import type { Responder } from "../../transport/transport.ts";
import type { ClientDeclaration } from "../../upstream/profile.ts";

/** A request of the modern era with its parsed envelope (the `_meta` that says who sends it). */
export interface ModernRequest {
  readonly request: Request;
  readonly params: JsonObject;
  readonly sender: ClientDeclaration;
  /** The capability class of its client. */
  readonly capabilityClass: string;
}

/** Length in bytes up to which a `_meta` is too short to contain an envelope. */
const MIN_ENVELOPE_LENGTH = MetaKey.version.length;

/** Whether a request may be of the modern era; if false, it certainly is not. */
export function mayBeModernRequest(request: Request): boolean {
  const { method, members } = request;
  // Most requests have no `_meta`, or one that is too short for an envelope: they need no scan.
  const meta = members && lastMember(members, "_meta");
  const size = meta === undefined ? 0 : meta.end - meta.start;
  const isMarked =
    members === undefined ? mayBeModern(bytesOf(request)) : size > MIN_ENVELOPE_LENGTH;
  return isMarked || method === ModernMethod.discover || method === ModernMethod.listen;
}

/** Maximum length of a `_meta` whose parsed envelope is cached, in bytes. */
const MAX_CACHED_LENGTH = 4096;

/**
 * Reads the modern requests of one client, or of all clients that cannot be told apart. Caches the last envelope: most
 * requests repeat the envelope of the previous one.
 */
export class ModernRequestReader {
  /** The last envelope: its bytes, and what was parsed from them. */
  #latest:
    { readonly envelopeBytes: EnvelopeMembers; readonly identity: SenderIdentity } | undefined;

  /**
   * @returns undefined if the request is of the legacy era
   * @throws {HubError} invalidEnvelope or unsupportedVersion
   */
  read(request: Request): ModernRequest | undefined {
    const { method, bytes } = request;
    const params = paramsOf(request);
    const meta = params.member("_meta");
    const items = meta && membersOfMeta(bytes, meta);
    if (items !== undefined && this.#latest !== undefined) {
      const { envelopeBytes, identity } = this.#latest;
      if (isSameEnvelope(envelopeBytes, bytes, items)) {
        const { sender, capabilityClass } = identity;
        return { request, params, sender, capabilityClass };
      }
    }
    const envelope = readEnvelope(params);
    if (envelope === undefined) {
      if (method !== ModernMethod.discover && method !== ModernMethod.listen) return undefined;
      throw missingMemberError(MetaKey.version);
    }
    const identity = identify(envelope);
    if (meta !== undefined && items !== undefined && meta.end - meta.start < MAX_CACHED_LENGTH) {
      this.#latest = { envelopeBytes: copyEnvelope(bytes, items), identity };
    }
    return { request, params, ...identity };
  }

  /**
   * Like `read`, but throws if the request is of the legacy era.
   * @throws {HubError} invalidEnvelope or unsupportedVersion
   */
  readModern(request: Request): ModernRequest {
    const modernRequest = this.read(request);
    if (modernRequest === undefined) throw missingMemberError(MetaKey.version);
    return modernRequest;
  }
}

type SenderIdentity = Pick<ModernRequest, "sender" | "capabilityClass">;

/** The envelope members of a `_meta`, as bytes. */
type EnvelopeMembers = readonly { readonly key: string; readonly value: Buffer }[];

function copyEnvelope(bytes: Buffer, items: readonly JsonMember[]): EnvelopeMembers {
  const own = items.filter(({ key }) => isEnvelopeKey(key));
  return own.map(({ key, start, end }) => ({
    key,
    value: Buffer.from(bytes.subarray(start, end)),
  }));
}

/** Whether a `_meta` has the given envelope members, byte for byte; its other members are ignored. */
function isSameEnvelope(
  envelopeBytes: EnvelopeMembers,
  bytes: Buffer,
  items: readonly JsonMember[],
): boolean {
  let count = 0;
  for (const { key, start, end } of items) {
    if (!isEnvelopeKey(key)) continue;
    const cached = envelopeBytes[count++];
    // Deno checks the target's range against the length of the buffer on which `compare` is called: that must be
    // `bytes`, the longer one.
    if (cached?.key !== key || cached.value.length !== end - start) return false;
    if (bytes.compare(cached.value, 0, cached.value.length, start, end) !== 0) return false;
  }
  return count === envelopeBytes.length;
}

function identify(envelope: Envelope): SenderIdentity {
  const { version, capabilities, declared, client, level } = envelope;
  if (typeof version !== "string") throw missingMemberError(MetaKey.version);
  if (!isModernVersion(version)) {
    const data = { supported: MODERN_VERSIONS, requested: version };
    throw new HubError("unsupportedVersion", "This protocol version is not supported.", { data });
  }
  if (!isObject(declared) || capabilities === undefined)
    throw missingMemberError(MetaKey.capabilities);
  if (level !== undefined && !isSeverity(level)) {
    throw new HubError(
      "invalidEnvelope",
      `${MetaKey.level} has to be one of the protocol's levels.`,
    );
  }
  const { name = "", version: clientVersion = "" } = client;
  const sender = {
    era: "modern",
    info: { name, version: clientVersion },
    declaredCapabilities: declared,
    level,
  } as const;
  const extensions = Object.keys(readExtensionSettings(declared, "extensions"));
  return { sender, capabilityClass: capabilityClassOf(capabilities, extensions) };
}

/** Whether a request is of the modern era. `initialize` never is, whatever its `_meta` says. */
export function isModernRequest(request: Request): boolean {
  return (
    request.method !== Method.initialize &&
    mayBeModernRequest(request) &&
    requestedVersionOf(request) !== undefined
  );
}

/** The protocol version in a request's envelope, not validated. */
export function requestedVersionOf(request: Request): Envelope["version"] {
  return readEnvelope(paramsOf(request))?.version;
}

/** @throws {HubError} invalidParams if `requestState` is not a string */
export function checkRequestState({ params }: ModernRequest): void {
  const key = "requestState";
  if (params.member(key) === undefined || params.string(key) !== undefined) return;
  throw new HubError("invalidParams", "requestState must be a string.");
}

/** @throws {HubError} missingCapability if the client does not declare the tasks extension */
export function requireTasks({ request, sender }: ModernRequest): void {
  if (!declaresTasks(sender.declaredCapabilities)) throw tasksUnsupportedError(request.method);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function missingMemberError(key: string): HubError {
  return new HubError("invalidEnvelope", `The request lacks ${key} in the _meta of its params.`);
}

/** The responder of one request of the modern era. */
export interface ModernResponder extends Responder {
  /** Whether all requests of the client share one channel, as over stdio. */
  readonly isPipe: boolean;
  /** Sets the function to call when the client cancels the request, or disconnects before the answer. */
  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void;
}

const NO_RESOURCE = -32002;
const INVALID_PARAMS = -32602;

/** Encodes an error of the hub with the codes of the modern era: "resource not found" is invalid params (-32602). */
function modernErrorOf(error: HubError): RpcError {
  const rpc = error.toRpc();
  return rpc.code === NO_RESOURCE ? { ...rpc, code: INVALID_PARAMS } : rpc;
}

export function buildModernError(id: Piece, error: HubError): EncodedMessage {
  return buildError(id, modernErrorOf(error));
}
