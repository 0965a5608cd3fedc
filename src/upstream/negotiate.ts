import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { parseRange } from "../base/json.ts";
import type { Capabilities } from "../protocol/capabilities.ts";
import type { Era } from "../protocol/era.ts";
import {
  type Implementation,
  initializeParams,
  isLegacyVersion,
  Method,
} from "../protocol/legacy.ts";
import {
  LATEST_MODERN,
  ModernError,
  ModernMethod,
  type ModernVersion,
} from "../protocol/modern.ts";
import type { Response } from "../jsonrpc/message.ts";
import { introduce } from "./modern.ts";
import {
  type Discovery,
  findMutual,
  type Handshake,
  LONGEST_VERSION,
  membersOf,
  readDiscovery,
  readHandshake,
} from "./handshake.ts";
import { misstep, readReply } from "./reply.ts";

/** What is known and wanted before the negotiation with a server. */
export interface Approach {
  /** The `era` of the server in the manifest. */
  readonly era: Era | "auto";
  /** The era of the clients of the connection. A server that speaks both eras is spoken to in theirs. */
  readonly client: Era;
  /** The era that the server was last found to speak; undefined if that is not known or too long ago. */
  readonly known: Era | undefined;
  /** How long the server may take to answer `server/discover`, in ms, before it is taken for a legacy server. */
  readonly patience: number;
}

export const AS_LEGACY: Approach = {
  era: "legacy",
  client: "legacy",
  known: undefined,
  patience: 0,
};

export interface GreetingParts extends Approach {
  readonly server: string;
  readonly clock: Clock;
  readonly clientInfo: Implementation;
  readonly capabilities: Capabilities;
  readonly signal: AbortSignal;
  /**
   * Sends a request of the hub's own; the signal drops it.
   * @param headers HTTP headers that the transport does not yet add itself
   * @throws {HubError} the transport's end, a lost request, or the signal's reason
   */
  ask(
    method: string,
    params: object,
    signal: AbortSignal,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response>;
}

/** How long after the answer to `initialize` an answer to the earlier `server/discover` still counts, in ms. */
const LATENESS = 100;

/** The server exited before it answered `server/discover`. */
export interface Departure {
  readonly cause: HubError;
}

/** The result of a negotiation. */
export interface Greeting {
  readonly handshake: Handshake;
  /**
   * How the era is known: the server answered, it did not answer the probe in time, or it was known or prescribed
   * before.
   */
  readonly evidence: "answer" | "silence" | "memory";
  /** After a silent probe: settles, if ever, with whether the late answer was a modern server's. Never rejects. */
  readonly late?: Promise<boolean>;
}

/**
 * Finds out which era a server speaks and opens it (basic/versioning; lifecycle, initialization). Where the era is not
 * known, the one of the connection's clients is tried first, then the other, over the same transport.
 * @returns an EarlyExit if the server exited when it was sent an unknown method, as some do
 * @throws {HubError} handshakeFailed, or the transport's end
 */
export async function greet(parts: GreetingParts): Promise<Greeting | Departure> {
  const { era, client, known, server } = parts;
  if (era === "legacy") return initialize(parts);
  if (era === "modern") {
    const found = await discover(parts, parts.signal);
    if (found?.kind === "modern") return { handshake: found.handshake, evidence: "answer" };
    throw misstep(server, "handshake", `does not speak the modern era (era = "modern")`);
  }
  return (known ?? client) === "modern"
    ? probe(parts)
    : initialize(parts, () => discoverSoon(parts));
}

/**
 * Sends `server/discover` to a server that has refused `initialize`.
 * @returns undefined if it is not modern either, or does not answer within `probeTimeout`
 */
async function discoverSoon(parts: GreetingParts): Promise<Discovery | undefined> {
  const { clock, patience, signal } = parts;
  const over = new AbortController();
  const undo = clock.after(patience, () => over.abort());
  try {
    return await discover(parts, AbortSignal.any([signal, over.signal]));
  } catch (error) {
    // The refusal of `initialize` explains more.
    if (over.signal.aborted || hasEnded(error) || isUnknown(error)) return undefined;
    throw error;
  } finally {
    undo();
  }
}

async function probe(parts: GreetingParts): Promise<Greeting | Departure> {
  const { known, clock, patience, signal } = parts;
  const over = new AbortController();
  let isAnswered = false;
  /** A late answer is still of use for the next connection. */
  let isLeft = false;
  const asked = discover(parts, AbortSignal.any([signal, over.signal])).then(
    (found) => {
      isAnswered = true;
      return found;
    },
    (error: unknown) => {
      if (!isUnknown(error)) throw error;
      isAnswered = true;
      return undefined;
    },
  );
  // Once nothing awaits it, its rejection must not count as unhandled.
  asked.catch(() => {});
  let undo = (): void => {};
  const silence = new Promise<"silent">((resolve) => {
    if (known === undefined) undo = clock.after(patience, () => resolve("silent"));
  });
  try {
    const found = await Promise.race([asked, silence]);
    if (found === "silent") {
      // A slow server may answer both: an answer to `server/discover` counts only if `initialize` fails.
      const soon = (): Promise<undefined> =>
        new Promise((resolve) => clock.after(LATENESS, () => resolve(undefined)));
      const greeting = await initialize(parts, () => Promise.race([asked, soon()]));
      if (greeting.handshake.spoken.era === "modern") return greeting;
      isLeft = true;
      const late = asked.then(
        (answer) => answer?.kind === "modern",
        () => false,
      );
      return { ...greeting, evidence: "silence", late };
    }
    if (found === undefined) return await initialize(parts);
    return await settle(parts, found);
  } catch (error) {
    if (hasEnded(error) && !isAnswered && known === undefined && !signal.aborted) {
      return { cause: error };
    }
    throw error;
  } finally {
    undo();
    if (!isLeft) over.abort();
  }
}

async function settle(parts: GreetingParts, found: Discovery): Promise<Greeting> {
  // For legacy clients the probe only confirmed a remembered era, which must expire, so that `initialize` is tried
  // again one day.
  const evidence = parts.client === "modern" ? "answer" : "memory";
  if (found.kind === "modern") return { handshake: found.handshake, evidence };
  if (found.versions.some(isLegacyVersion)) return initialize(parts);
  const versions = JSON.stringify(found.versions).slice(0, LONGEST_VERSION);
  throw misstep(parts.server, "handshake", `speaks only protocol versions ${versions}`);
}

/** @returns undefined if the answer is not one of a modern server @throws {HubError} handshakeFailed */
async function discover(
  parts: GreetingParts,
  signal: AbortSignal,
  version: ModernVersion = LATEST_MODERN,
  isLast = false,
): Promise<Discovery | undefined> {
  const { server, clientInfo, capabilities } = parts;
  const params = { _meta: introduce(version, clientInfo, capabilities) };
  // The transport adds the header itself only once a version is negotiated.
  const headers = { [VERSION_HEADER]: version };
  const response = await parts.ask(ModernMethod.discover, params, signal, headers);
  const value = parse(response);
  if (response.outcome === "result") return readDiscovery(value);
  const { code, message } = membersOf(value);
  if (!MODERN_CODES.has(code)) return undefined;
  const versions = versionsOf(value);
  const mutual = findMutual(versions);
  if (code === ModernError.unsupportedVersion && mutual !== undefined && !isLast) {
    return discover(parts, signal, mutual, true);
  }
  if (code === ModernError.unsupportedVersion) return { kind: "stranger", versions };
  throw misstep(server, "handshake", `answered with an error: ${String(message)}`);
}

const VERSION_HEADER = "MCP-Protocol-Version";
const MODERN_CODES: ReadonlySet<unknown> = new Set(Object.values(ModernError));

/** @param probeOther probes for the other era if the server refuses */
async function initialize(
  parts: GreetingParts,
  otherwise?: () => Promise<Discovery | undefined>,
): Promise<Greeting> {
  const { server, clientInfo, capabilities, signal, era, known } = parts;
  const params = initializeParams(clientInfo, capabilities);
  const answer = await parts.ask(Method.initialize, params, signal).then(
    (response) => readAnswer(server, response),
    (error: unknown) => {
      if (isUnknown(error)) return error;
      throw error;
    },
  );
  if (!(answer instanceof HubError)) {
    const isAsked = era === "auto" && known !== "legacy";
    return { handshake: answer, evidence: isAsked ? "answer" : "memory" };
  }
  const found = await otherwise?.();
  if (found?.kind === "modern") return { handshake: found.handshake, evidence: "answer" };
  throw answer;
}

/** Reads the response to `initialize`. @returns a HubError if it cannot be used */
function readAnswer(server: string, response: Response): Handshake | HubError {
  try {
    const handshake = readHandshake(readReply(server, response, "handshake"));
    if (typeof handshake !== "string") return handshake;
    return misstep(server, "handshake", `answered with the unknown protocol version ${handshake}`);
  } catch (error) {
    return toHubError(error);
  }
}

function hasEnded(error: unknown): error is HubError {
  return error instanceof HubError && error.code === "connectionLost";
}

/**
 * Whether the method may be unknown to the server: over HTTP that need not be said by a JSON-RPC error, and some fail
 * at it.
 */
function isUnknown(error: unknown): error is HubError {
  return error instanceof HubError && UNKNOWN.has(error.code);
}
const UNKNOWN: ReadonlySet<string> = new Set(["serverRefused", "serverFailed", "answerLost"]);

/** The versions that an UnsupportedProtocolVersionError lists. */
function versionsOf(error: unknown): readonly unknown[] {
  const { supported } = membersOf(membersOf(error)["data"]);
  return Array.isArray(supported) ? supported : [];
}

function parse({ bytes, body }: Response): unknown {
  try {
    return parseRange(bytes, body);
  } catch {
    return undefined;
  }
}
