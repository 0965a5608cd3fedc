import type { Clock } from "../clock.ts";
import { HubError, toHubError } from "../errors.ts";
import { valueOf } from "../json.ts";
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
import type { Response } from "../wire/jsonrpc.ts";
import { introduce } from "./dialect/modern.ts";
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

/** How a server is to be met. */
export interface Approach {
  /** What the manifest says that it speaks. */
  readonly era: Era | "auto";
  /** What the clients speak whom it is met for. One that speaks both eras is spoken to in theirs. */
  readonly client: Era;
  /** What it spoke when it was last asked, if that is not too long ago. */
  readonly known: Era | undefined;
  /** How long it may take to answer the first question, in ms, before it is taken for one that does not know it. */
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
   * Asks something of the hub's own, which is forgotten with the signal.
   * @param headers what a link over HTTP has to say beside what it knows
   * @throws {HubError} the link's end, that there is no answer, or the signal's reason
   */
  ask(
    method: string,
    params: object,
    signal: AbortSignal,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response>;
}

/** By how much the answers to two questions that were read one after the other may lie apart, in ms. */
const LATENESS = 100;

/** It ended when it was asked, before it answered. */
export interface Departure {
  readonly cause: HubError;
}

/** How it was met. */
export interface Greeting {
  readonly handshake: Handshake;
  /** What it speaks is known by its answer, by its saying nothing, or from before. */
  readonly evidence: "answer" | "silence" | "memory";
  /** Of one that said nothing: settles, if ever, with whether its answer was yet that it speaks the modern era. Never rejects. */
  readonly late?: Promise<boolean>;
}

/**
 * Finds out what a server speaks, and begins to speak it (basic/versioning; lifecycle, initialization). One that may speak
 * either is met first as its clients would meet it, and if that fails as the others would: in place, on the very link that
 * is used from then on.
 * @returns the departure of one that did not survive that: some end of a method that they do not know
 * @throws {HubError} handshakeFailed, or the link's end
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

/** Discovers one that would not be met as of old. @returns undefined if it is not modern either, or does not say so soon */
async function discoverSoon(parts: GreetingParts): Promise<Discovery | undefined> {
  const { clock, patience, signal } = parts;
  const over = new AbortController();
  const undo = clock.after(patience, () => over.abort());
  try {
    return await discover(parts, AbortSignal.any([signal, over.signal]));
  } catch (error) {
    // Why it would not be met says more.
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
  /** Whatever it answers yet is of use for the next time. */
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
  // If nobody waits for it any more, its failure is nobody's.
  asked.catch(() => {});
  let undo = (): void => {};
  const silence = new Promise<"silent">((resolve) => {
    if (known === undefined) undo = clock.after(patience, () => resolve("silent"));
  });
  try {
    const found = await Promise.race([asked, silence]);
    if (found === "silent") {
      // It may be slow, and both be answered yet: what was asked first counts only if the second fails.
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
  // For clients of old that is only what it once was found to be: one day it is to be met as of old again.
  const evidence = parts.client === "modern" ? "answer" : "memory";
  if (found.kind === "modern") return { handshake: found.handshake, evidence };
  if (found.versions.some(isLegacyVersion)) return initialize(parts);
  const versions = JSON.stringify(found.versions).slice(0, LONGEST_VERSION);
  throw misstep(parts.server, "handshake", `speaks only protocol versions ${versions}`);
}

/** @returns undefined if it answers what no server of the modern era does @throws {HubError} handshakeFailed */
async function discover(
  parts: GreetingParts,
  signal: AbortSignal,
  version: ModernVersion = LATEST_MODERN,
  isLast = false,
): Promise<Discovery | undefined> {
  const { server, clientInfo, capabilities } = parts;
  const params = { _meta: introduce(version, clientInfo, capabilities) };
  // Nothing is agreed upon yet that the link could say by itself.
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

/** @param otherwise what it is found to be, should it refuse */
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

/** Reads the answer to `initialize`. @returns why it is none that is of use, if so */
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

/** Over HTTP servers need not say in the protocol's words that they do not know a method; some fail at it. */
function isUnknown(error: unknown): error is HubError {
  return error instanceof HubError && UNKNOWN.has(error.code);
}
const UNKNOWN: ReadonlySet<string> = new Set(["serverRefused", "serverFailed", "answerLost"]);

/** What an error says that the server speaks. */
function versionsOf(error: unknown): readonly unknown[] {
  const { supported } = membersOf(membersOf(error)["data"]);
  return Array.isArray(supported) ? supported : [];
}

function parse({ bytes, body }: Response): unknown {
  try {
    return valueOf(bytes, body);
  } catch {
    return undefined;
  }
}
