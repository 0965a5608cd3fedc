import { saidByPeer, type TextRedactor } from "../base/quote.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { parseRange } from "../base/json.ts";
import type { Capabilities } from "../protocol/capabilities.ts";
import {
  type Era,
  LATEST_MODERN,
  ModernErrorCode,
  ModernMethod,
  type ModernVersion,
} from "../protocol/modern.ts";
import {
  type Implementation,
  initializeParams,
  isLegacyVersion,
  Method,
} from "../protocol/legacy.ts";
import type { Response } from "../jsonrpc/message.ts";
import { clientEnvelopeOf } from "./dialects.ts";
import {
  type DiscoveryResult,
  findMutualVersion,
  MAX_VERSION_LENGTH,
  membersOf,
  parseOwnResult,
  readDiscovery,
  readHandshake,
  type ServerHandshake,
  unexpectedAnswerError,
} from "./handshake-result.ts";

export interface NegotiationPlan {
  /** The setting `era` of the server in the manifest. */
  readonly era: Era | "auto";
  /** The era of the connection's clients. If the server supports both eras, the hub uses the clients' era. */
  readonly clientEra: Era;
  /** The era that the server used last; undefined if that is not known or too long ago. */
  readonly knownEra: Era | undefined;
  /** Maximum time for the answer to `server/discover`, in ms. After it, the server is treated as a legacy server. */
  readonly probeTimeout: number;
}

export const LEGACY_PLAN: NegotiationPlan = {
  era: "legacy",
  clientEra: "legacy",
  knownEra: undefined,
  probeTimeout: 0,
};

export interface NegotiationOptions extends NegotiationPlan {
  readonly server: string;
  /** Removes secrets from quoted texts. */
  readonly redactor?: TextRedactor;
  readonly clock: Clock;
  readonly clientInfo: Implementation;
  readonly capabilities: Capabilities;
  readonly signal: AbortSignal;
  /**
   * Sends one of the hub's own requests. Aborting the signal drops the request.
   * @param headers HTTP headers that the transport does not yet add itself
   * @throws the signal's reason, or {HubError} if the transport ends or the request is lost
   */
  sendRequest(
    method: string,
    params: object,
    signal: AbortSignal,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response>;
}

/** Time after a refused `initialize` for which the hub still waits for the answer to `server/discover`, in ms. */
const LATE_ANSWER_TOLERANCE = 100;

/** The result if the server exited before it answered `server/discover`. */
export interface EarlyExit {
  readonly cause: HubError;
}

export interface NegotiationResult {
  readonly handshake: ServerHandshake;
  /**
   * How the era was found. "answered": the server's answer shows it; "assumed": the server did not answer
   * `server/discover` in time; "known": the era was known before, or the manifest prescribes it.
   */
  readonly evidence: "answered" | "assumed" | "known";
}

/**
 * Finds out the era of a server and performs the handshake (basic/versioning, lifecycle). If the era is not known,
 * tries the era of the connection's clients first, and then the other era over the same transport.
 * @returns an EarlyExit if the server exited on `server/discover`, as some servers do on an unknown method
 * @throws {HubError} handshakeFailed, or the error with which the transport closed
 */
export async function negotiate(
  options: NegotiationOptions,
): Promise<NegotiationResult | EarlyExit> {
  const { era, clientEra, knownEra, server } = options;
  if (era === "legacy") return initialize(options);
  if (era === "modern") {
    const discovery = await discover(options, options.signal);
    if (discovery?.kind === "modern")
      return { handshake: discovery.handshake, evidence: "answered" };
    throw unexpectedAnswerError(
      server,
      "handshake",
      `does not speak the modern era (era = "modern")`,
    );
  }
  return (knownEra ?? clientEra) === "modern"
    ? probeModern(options)
    : initialize(options, () => discoverWithTimeout(options));
}

/**
 * Sends `server/discover` to a server that has refused `initialize`.
 * @returns undefined if the server does not know `server/discover` either, or does not answer within `probeTimeout`
 */
async function discoverWithTimeout(
  options: NegotiationOptions,
): Promise<DiscoveryResult | undefined> {
  const { clock, probeTimeout, signal } = options;
  const timeout = new AbortController();
  const cancelTimer = clock.after(probeTimeout, () => timeout.abort());
  try {
    return await discover(options, AbortSignal.any([signal, timeout.signal]));
  } catch (error) {
    // The caller reports the error with which the server refused `initialize`. That error explains more than this one.
    if (timeout.signal.aborted || isConnectionLost(error) || mayBeUnknownMethod(error))
      return undefined;
    throw error;
  } finally {
    cancelTimer();
  }
}

async function probeModern(options: NegotiationOptions): Promise<NegotiationResult | EarlyExit> {
  const { knownEra, clock, probeTimeout, signal } = options;
  const probeAbort = new AbortController();
  let isAnswered = false;
  const discovering = discover(options, AbortSignal.any([signal, probeAbort.signal])).then(
    (discovery) => {
      isAnswered = true;
      return discovery;
    },
    (error: unknown) => {
      if (!mayBeUnknownMethod(error)) throw error;
      isAnswered = true;
      return undefined;
    },
  );
  // Prevents an unhandled rejection if nothing awaits `discovering` any more.
  discovering.catch(() => {});
  const timeout = Promise.withResolvers<"timeout">();
  const cancelTimer =
    knownEra === undefined ? clock.after(probeTimeout, () => timeout.resolve("timeout")) : () => {};
  try {
    const discovery = await Promise.race([discovering, timeout.promise]);
    if (discovery === undefined) return await initialize(options);
    if (discovery !== "timeout") return await useDiscovery(options, discovery);
    // A slow server may answer `server/discover` later. The late answer counts only if `initialize` fails.
    const toleranceOver = Promise.withResolvers<undefined>();
    const result = await initialize(options, () => {
      clock.after(LATE_ANSWER_TOLERANCE, () => toleranceOver.resolve(undefined));
      return Promise.race([discovering, toleranceOver.promise]);
    });
    const isLegacy = result.handshake.protocol.era === "legacy";
    return isLegacy ? { ...result, evidence: "assumed" } : result;
  } catch (error) {
    if (isConnectionLost(error) && !isAnswered && knownEra === undefined && !signal.aborted) {
      return { cause: error };
    }
    throw error;
  } finally {
    cancelTimer();
    probeAbort.abort();
  }
}

async function useDiscovery(
  options: NegotiationOptions,
  discovery: DiscoveryResult,
): Promise<NegotiationResult> {
  // With legacy clients, `server/discover` is sent only because the server is remembered as modern. The answer must not
  // renew the remembered era: that era has to expire, so that `initialize` is tried again at some time.
  const evidence = options.clientEra === "modern" ? "answered" : "known";
  if (discovery.kind === "modern") return { handshake: discovery.handshake, evidence };
  if (discovery.versions.some(isLegacyVersion)) return initialize(options);
  const versions = JSON.stringify(discovery.versions).slice(0, MAX_VERSION_LENGTH);
  throw unexpectedAnswerError(
    options.server,
    "handshake",
    `speaks only protocol versions ${versions}`,
  );
}

/**
 * Sends `server/discover`.
 * @returns undefined if the server is not modern
 * @throws {HubError} handshakeFailed
 */
async function discover(
  options: NegotiationOptions,
  signal: AbortSignal,
  version: ModernVersion = LATEST_MODERN,
  isRetry = false,
): Promise<DiscoveryResult | undefined> {
  const { server, clientInfo, capabilities } = options;
  const params = { _meta: clientEnvelopeOf(version, clientInfo, capabilities) };
  // The transport adds this header itself only after a version is negotiated.
  const headers = { [VERSION_HEADER]: version };
  const response = await options.sendRequest(ModernMethod.discover, params, signal, headers);
  const value = parseBody(response);
  if (response.outcome === "result") return readDiscovery(value);
  const { code, message } = membersOf(value);
  if (!MODERN_ERROR_CODES.has(code)) return undefined;
  const versions = supportedVersionsOf(value);
  const mutualVersion = findMutualVersion(versions);
  if (code === ModernErrorCode.unsupportedVersion && mutualVersion !== undefined && !isRetry) {
    return discover(options, signal, mutualVersion, true);
  }
  if (code === ModernErrorCode.unsupportedVersion) return { kind: "unsupported", versions };
  const said = saidByPeer(typeof message === "string" ? message : undefined, options.redactor);
  throw unexpectedAnswerError(server, "handshake", `answered with an error${said}`);
}

const VERSION_HEADER = "MCP-Protocol-Version";
const MODERN_ERROR_CODES: ReadonlySet<unknown> = new Set(Object.values(ModernErrorCode));

/** Sends `initialize`. @param probeOther sends `server/discover` instead if the server refuses `initialize` */
async function initialize(
  options: NegotiationOptions,
  probeOther?: () => Promise<DiscoveryResult | undefined>,
): Promise<NegotiationResult> {
  const { clientInfo, capabilities, signal, era, knownEra } = options;
  const params = initializeParams(clientInfo, capabilities);
  const answer = await options.sendRequest(Method.initialize, params, signal).then(
    (response) => readInitializeResult(response, options),
    (error: unknown) => {
      if (mayBeUnknownMethod(error)) return error;
      throw error;
    },
  );
  if (!(answer instanceof HubError)) {
    const isFinding = era === "auto" && knownEra !== "legacy";
    return { handshake: answer, evidence: isFinding ? "answered" : "known" };
  }
  const discovery = await probeOther?.();
  if (discovery?.kind === "modern") return { handshake: discovery.handshake, evidence: "answered" };
  throw answer;
}

/** Reads the response to `initialize`. @returns a HubError if the response cannot be used */
function readInitializeResult(
  response: Response,
  { server, redactor }: NegotiationOptions,
): ServerHandshake | HubError {
  try {
    const handshake = readHandshake(parseOwnResult(server, response, "handshake", redactor));
    if (typeof handshake !== "string") return handshake;
    return unexpectedAnswerError(
      server,
      "handshake",
      `answered with the unknown protocol version ${handshake}`,
    );
  } catch (error) {
    return toHubError(error);
  }
}

function isConnectionLost(error: unknown): error is HubError {
  return error instanceof HubError && error.code === "connectionLost";
}

/**
 * Whether the error may mean that the server does not know the method. Over HTTP, a server may say so only with the
 * status, without a JSON-RPC error, and some servers answer with an internal error.
 */
function mayBeUnknownMethod(error: unknown): error is HubError {
  return error instanceof HubError && UNKNOWN_METHOD_CODES.has(error.code);
}
const UNKNOWN_METHOD_CODES: ReadonlySet<string> = new Set([
  "serverRefused",
  "serverFailed",
  "answerLost",
]);

/** Returns the `supported` versions in the data of an UnsupportedProtocolVersionError. */
function supportedVersionsOf(error: unknown): readonly unknown[] {
  const { supported } = membersOf(membersOf(error)["data"]);
  return Array.isArray(supported) ? supported : [];
}

function parseBody({ bytes, body }: Response): unknown {
  try {
    return parseRange(bytes, body);
  } catch {
    return undefined;
  }
}
