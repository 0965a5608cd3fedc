import { Buffer } from "node:buffer";
import { HubError } from "../../base/errors.ts";
import { lastMember, type JsonMember, scanObject, readString } from "../../base/json.ts";
import { readExtensionSettings, capabilityClassOf } from "../../protocol/capabilities.ts";
import { declaresTasks, tasksUnsupportedError } from "../../protocol/extension.ts";
import { Method } from "../../protocol/legacy.ts";
import {
  type Envelope,
  isEnvelope,
  isModernVersion,
  mayBeModern,
  MetaKey,
  MODERN_VERSIONS,
  ModernMethod,
  readEnvelope,
} from "../../protocol/modern.ts";
import { isSeverity } from "../../protocol/log-level.ts";
import { membersOfMeta } from "../../protocol/meta.ts";
import type { ClientDeclaration } from "../../upstream/sender.ts";
import { type Request, bytesOf } from "../../jsonrpc/message.ts";

/** A request of the modern era with its parsed envelope (the `_meta` that says who sends it). */
export interface Letter {
  readonly request: Request;
  /** The members of its params. */
  readonly members: readonly JsonMember[];
  readonly sender: ClientDeclaration;
  /** The capability class of its client. */
  readonly capabilities: string;
}

/** No `_meta` shorter than this can be an envelope, in bytes. */
const SHORTEST = MetaKey.version.length;

/** Whether a request may be of the modern era: false is certain. */
export function mayBeLetter(request: Request): boolean {
  const { method, members } = request;
  // Most requests have a short `_meta` or none.
  const meta = members && lastMember(members, "_meta");
  const size = meta === undefined ? 0 : meta.end - meta.start;
  const isMarked = members === undefined ? mayBeModern(bytesOf(request)) : size > SHORTEST;
  return isMarked || method === ModernMethod.discover || method === ModernMethod.listen;
}

/** Longest `_meta` whose parsed envelope is cached, in bytes. */
const LONGEST = 4096;

/**
 * Reads the modern requests of one client, or of all that cannot be told apart. Caches the last envelope: most requests
 * repeat that of the one before.
 */
export class Letters {
  /** The last envelope, as bytes and as parsed. */
  #latest: { readonly said: Said; readonly who: Who } | undefined;

  /**
   * @returns undefined if the request is of the legacy era
   * @throws {HubError} invalidEnvelope or unsupportedVersion
   */
  read(request: Request): Letter | undefined {
    const { method, bytes } = request;
    const members = membersOf(request);
    const meta = lastMember(members, "_meta");
    const items = meta && membersOfMeta(bytes, meta);
    if (items !== undefined && this.#latest !== undefined) {
      const { said, who } = this.#latest;
      if (isSame(said, bytes, items)) {
        const { sender, capabilities } = who;
        return { request, members, sender, capabilities };
      }
    }
    const envelope = readEnvelope(bytes, members);
    if (envelope === undefined) {
      if (method !== ModernMethod.discover && method !== ModernMethod.listen) return undefined;
      throw lacks(MetaKey.version);
    }
    const who = identify(envelope);
    if (meta !== undefined && items !== undefined && meta.end - meta.start < LONGEST) {
      this.#latest = { said: copy(bytes, items), who };
    }
    return { request, members, ...who };
  }

  /**
   * The same where every request has to be of the modern era.
   * @throws {HubError} invalidEnvelope or unsupportedVersion
   */
  open(request: Request): Letter {
    const letter = this.read(request);
    if (letter === undefined) throw lacks(MetaKey.version);
    return letter;
  }
}

type Who = Pick<Letter, "sender" | "capabilities">;

/** The envelope members of a `_meta`, as bytes. */
type Said = readonly { readonly key: string; readonly value: Buffer }[];

function copy(bytes: Buffer, items: readonly JsonMember[]): Said {
  const own = items.filter(({ key }) => isEnvelope(key));
  return own.map(({ key, start, end }) => ({
    key,
    value: Buffer.from(bytes.subarray(start, end)),
  }));
}

/** Whether a `_meta` has the same envelope members in the same spelling; its other members do not matter. */
function isSame(said: Said, bytes: Buffer, items: readonly JsonMember[]): boolean {
  let count = 0;
  for (const { key, start, end } of items) {
    if (!isEnvelope(key)) continue;
    const known = said[count++];
    // Deno checks the target's range against the length of this buffer: `bytes` has to be the longer one.
    if (known?.key !== key || known.value.length !== end - start) return false;
    if (bytes.compare(known.value, 0, known.value.length, start, end) !== 0) return false;
  }
  return count === said.length;
}

function identify(envelope: Envelope): Who {
  const { version, capabilities, declared, client, level } = envelope;
  if (typeof version !== "string") throw lacks(MetaKey.version);
  if (!isModernVersion(version)) {
    const data = { supported: MODERN_VERSIONS, requested: version };
    throw new HubError("unsupportedVersion", "This protocol version is not spoken here.", { data });
  }
  if (!isObject(declared) || capabilities === undefined) throw lacks(MetaKey.capabilities);
  if (level !== undefined && !isSeverity(level)) {
    throw new HubError(
      "invalidEnvelope",
      `${MetaKey.level} has to be one of the protocol's levels.`,
    );
  }
  const { name = "", version: own = "" } = client;
  const sender = { era: "modern", info: { name, version: own }, declared, level } as const;
  const extensions = Object.keys(readExtensionSettings(declared, "extensions"));
  return { sender, capabilities: capabilityClassOf(capabilities, extensions) };
}

/** Whether a request is of the modern era. `initialize` never is, whatever its `_meta` says. */
export function isModern(request: Request): boolean {
  return (
    request.method !== Method.initialize && mayBeLetter(request) && versionOf(request) !== undefined
  );
}

/** The protocol version in a request's envelope, not validated. */
export function versionOf(request: Request): Envelope["version"] {
  return readEnvelope(request.bytes, membersOf(request))?.version;
}

/** A string member of a request's params; undefined if it is missing or no string. */
export function textIn({ request, members }: Letter, key: string): string | undefined {
  return readString(request.bytes, lastMember(members, key));
}

/** @throws {HubError} invalidParams if `requestState` is not a string */
export function checkState({ request, members }: Letter): void {
  const state = lastMember(members, "requestState");
  if (state === undefined || readString(request.bytes, state) !== undefined) return;
  throw new HubError("invalidParams", "requestState must be a string.");
}

/** @throws {HubError} missingCapability if the client does not declare the tasks extension */
export function checkTasks({ request, sender }: Letter): void {
  if (!declaresTasks(sender.declared)) throw tasksUnsupportedError(request.method);
}

function membersOf({ bytes, params, members }: Request): readonly JsonMember[] {
  return members ?? (params && scanObject(bytes, params.start)?.items) ?? [];
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function lacks(key: string): HubError {
  return new HubError("invalidEnvelope", `A request needs ${key} in the _meta of its params.`);
}
