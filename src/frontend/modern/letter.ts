import { Buffer } from "node:buffer";
import { HubError } from "../../errors.ts";
import { lastMember, type Member, scanObject, stringOf } from "../../json.ts";
import { readSettings, writeClass } from "../../protocol/capabilities.ts";
import { declaresTasks, lackOfTasks } from "../../protocol/extension.ts";
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
import { isSeverity } from "../../protocol/severity.ts";
import { membersOfMeta } from "../../protocol/meta.ts";
import type { Sender } from "../../upstream/sender.ts";
import { type Request, bytesOf } from "../../wire/jsonrpc.ts";

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

/** Whether a request may be one of the modern era: false is certain. */
export function mayBeLetter(request: Request): boolean {
  const { method, members } = request;
  // By far the most requests say little beside what they ask for.
  const meta = members && lastMember(members, "_meta");
  const size = meta === undefined ? 0 : meta.end - meta.start;
  const isMarked = members === undefined ? mayBeModern(bytesOf(request)) : size > SHORTEST;
  return isMarked || method === ModernMethod.discover || method === ModernMethod.listen;
}

/** What is longer than this is not remembered, in bytes. */
const LONGEST = 4096;

/** Reads the requests of one client, or of all that cannot be told apart: most say the same of who asks as the one before. */
export class Letters {
  /** What the last one said, and what came of it. */
  #latest: { readonly said: Said; readonly who: Who } | undefined;

  /** @returns undefined if the request is one of the legacy era @throws {HubError} invalidEnvelope or unsupportedVersion */
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

  /** The same where all requests are of the modern era. @throws {HubError} invalidEnvelope or unsupportedVersion */
  open(request: Request): Letter {
    const letter = this.read(request);
    if (letter === undefined) throw lacks(MetaKey.version);
    return letter;
  }
}

type Who = Pick<Letter, "sender" | "capabilities">;

/** What a `_meta` said of who asks, as it was spelled. */
type Said = readonly { readonly key: string; readonly value: Buffer }[];

function copy(bytes: Buffer, items: readonly Member[]): Said {
  const own = items.filter(({ key }) => isEnvelope(key));
  return own.map(({ key, start, end }) => ({
    key,
    value: Buffer.from(bytes.subarray(start, end)),
  }));
}

/** Whether a `_meta` says the same of who asks, spelled in the same way; whatever else it says. */
function isSame(said: Said, bytes: Buffer, items: readonly Member[]): boolean {
  let count = 0;
  for (const { key, start, end } of items) {
    if (!isEnvelope(key)) continue;
    const known = said[count++];
    // Deno takes no range of another buffer that would be none of this one.
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
  const extensions = Object.keys(readSettings(declared, "extensions"));
  return { sender, capabilities: writeClass(capabilities, extensions) };
}

/** Whether a request is one of the modern era, and not the first of a session, whatever that says. */
export function isModern(request: Request): boolean {
  return (
    request.method !== Method.initialize && mayBeLetter(request) && versionOf(request) !== undefined
  );
}

/** What a request says of the version that it is in, whatever that is. */
export function versionOf(request: Request): Envelope["version"] {
  return readEnvelope(request.bytes, membersOf(request))?.version;
}

/** The text that a member of a request's params has. */
export function textIn({ request, members }: Letter, key: string): string | undefined {
  return stringOf(request.bytes, lastMember(members, key));
}

/** @throws {HubError} invalidParams if the state that it brings is none that anybody gave out */
export function checkState({ request, members }: Letter): void {
  const state = lastMember(members, "requestState");
  if (state === undefined || stringOf(request.bytes, state) !== undefined) return;
  throw new HubError("invalidParams", "requestState must be a string.");
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
