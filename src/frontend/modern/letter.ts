import { Buffer } from "node:buffer";
import { HubError } from "../../errors.ts";
import { lastMember, type Member, scanObject, stringOf } from "../../json.ts";
import { writeClass } from "../../protocol/capabilities.ts";
import { declaresTasks, lackOfTasks } from "../../protocol/extension.ts";
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

/** No `_meta` that is shorter says who asks. */
const SHORTEST = MetaKey.version.length;

/** Whether a request may be one of the modern era: false is certain. `initialize` is none, whatever it says. */
export function mayBeLetter(request: Request): boolean {
  const { method, members, bytes } = request;
  // By far the most requests say little beside what they ask for.
  const meta = members && lastMember(members, "_meta");
  const size = meta === undefined ? 0 : meta.end - meta.start;
  const isBare = members !== undefined && size <= SHORTEST;
  if (!isBare && mayBeModern(meta === undefined ? bytes : bytes.subarray(meta.start, meta.end))) {
    return method !== Method.initialize;
  }
  return method === ModernMethod.discover || method === ModernMethod.listen;
}

/** Reads who asks. @returns undefined if the request is one of the legacy era @throws {HubError} invalidEnvelope or unsupportedVersion */
export function readLetter(request: Request): Letter | undefined {
  const { method, bytes } = request;
  const members = membersOf(request);
  const meta = lastMember(members, "_meta");
  if (meta !== undefined && latest?.said.equals(bytes.subarray(meta.start, meta.end)) === true) {
    const { sender, capabilities } = latest;
    return { request, members, sender, capabilities };
  }
  const envelope = readEnvelope(bytes, members);
  if (envelope === undefined) {
    if (method !== ModernMethod.discover && method !== ModernMethod.listen) return undefined;
    throw lacks(MetaKey.version);
  }
  const who = identify(envelope);
  if (meta !== undefined && meta.end - meta.start < LONGEST) {
    latest = { said: Buffer.from(bytes.subarray(meta.start, meta.end)), ...who };
  }
  return { request, members, ...who };
}

/** The same where all requests are of the modern era. @throws {HubError} invalidEnvelope or unsupportedVersion */
export function openLetter(request: Request): Letter {
  const letter = readLetter(request);
  if (letter === undefined) throw lacks(MetaKey.version);
  return letter;
}

/** What the last request said of who asks, and what came of it: most say the same as the one before. */
let latest: (Pick<Letter, "sender" | "capabilities"> & { readonly said: Buffer }) | undefined;
/** What is longer than this is not remembered, in bytes. */
const LONGEST = 4096;

function identify(envelope: Envelope): Pick<Letter, "sender" | "capabilities"> {
  const { version, capabilities, declared, client, level } = envelope;
  if (typeof version !== "string") throw lacks(MetaKey.version);
  if (!isModernVersion(version)) {
    const data = { supported: MODERN_VERSIONS, requested: version };
    throw new HubError("unsupportedVersion", "This protocol version is not spoken here.", { data });
  }
  if (!isObject(declared) || capabilities === undefined) throw lacks(MetaKey.capabilities);
  const { name = "", version: own = "" } = client;
  const sender = { era: "modern", info: { name, version: own }, declared, level } as const;
  return { sender, capabilities: writeClass(capabilities) };
}

/** Whether a request is one of the modern era. */
export function isModern(request: Request): boolean {
  return mayBeLetter(request) && versionOf(request) !== undefined;
}

/** What a request says of the version that it is in, whatever that is. */
export function versionOf(request: Request): Envelope["version"] {
  return readEnvelope(request.bytes, membersOf(request))?.version;
}

/** The text that a member of a request's params has. */
export function textIn({ request, members }: Letter, key: string): string | undefined {
  return stringOf(request.bytes, lastMember(members, key));
}

/** @throws {HubError} missingCapability if its client has not said that it knows tasks */
export function checkTasks({ request, sender }: Letter): void {
  if (!declaresTasks(sender.declared)) throw lackOfTasks(request.method);
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
