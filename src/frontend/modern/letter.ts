import { HubError } from "../../errors.ts";
import { lastMember, type Member, scanObject, stringOf } from "../../json.ts";
import { writeClass } from "../../protocol/capabilities.ts";
import { Method } from "../../protocol/legacy.ts";
import {
  type Envelope,
  isModernVersion,
  mayBeModern,
  MetaKey,
  MODERN_VERSIONS,
  ModernMethod,
  readEnvelope,
} from "../../protocol/modern.ts";
import type { Sender } from "../../upstream/sender.ts";
import type { Request } from "../../wire/jsonrpc.ts";

/** A request of the modern era, of which is known who asks. */
export interface Letter {
  readonly request: Request;
  /** Of its params. */
  readonly members: readonly Member[];
  readonly sender: Sender;
  /** The class of what its client can be asked for. */
  readonly capabilities: string;
}

/** Whether a request is one of the modern era; `initialize` is none, whatever it says. */
export function isModern(request: Request): boolean {
  const { method, members, bytes } = request;
  // By far the most requests say nothing beside what they ask for.
  const meta = members && lastMember(members, "_meta");
  const isBare = members !== undefined && meta === undefined;
  if (!isBare && mayBeModern(meta === undefined ? bytes : bytes.subarray(meta.start, meta.end))) {
    return method !== Method.initialize && readEnvelope(bytes, membersOf(request)) !== undefined;
  }
  return method === ModernMethod.discover || method === ModernMethod.listen;
}

/** Reads who asks. @throws {HubError} invalidEnvelope or unsupportedVersion */
export function openLetter(request: Request): Letter {
  const members = membersOf(request);
  const envelope = readEnvelope(request.bytes, members);
  if (envelope === undefined) throw lacks(MetaKey.version);
  const { version, capabilities, declared, client, level } = envelope;
  if (typeof version !== "string") throw lacks(MetaKey.version);
  if (!isModernVersion(version)) {
    const data = { supported: MODERN_VERSIONS, requested: version };
    throw new HubError("unsupportedVersion", "This protocol version is not spoken here.", { data });
  }
  if (!isObject(declared) || capabilities === undefined) throw lacks(MetaKey.capabilities);
  const { name = "", version: own = "" } = client;
  const sender = { era: "modern", info: { name, version: own }, declared, level } as const;
  return { request, members, sender, capabilities: writeClass(capabilities) };
}

/** What a request says of the version that it is in, whatever that is. */
export function versionOf(request: Request): Envelope["version"] {
  return readEnvelope(request.bytes, membersOf(request))?.version;
}

/** The text that a member of a request's params has. */
export function textIn({ request, members }: Letter, key: string): string | undefined {
  return stringOf(request.bytes, lastMember(members, key));
}

function membersOf({ bytes, params, members }: Request): readonly Member[] {
  return members ?? (params && scanObject(bytes, params.start)?.items) ?? [];
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function lacks(key: string): HubError {
  return new HubError("invalidEnvelope", `A request needs ${key} in the _meta of its params.`);
}
