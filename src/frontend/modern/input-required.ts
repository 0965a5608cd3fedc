import process from "node:process";
import { applyEdits, type Edit, joinPieces, type Piece, utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { type JsonMember, JsonObject, removeMembers } from "../../base/json.ts";
import {
  bodyOf,
  buildError,
  buildResult,
  editMessage,
  type EncodedMessage,
  joinMessage,
  paramsOf,
  randomToken,
  replaceRanges,
  type Response,
} from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { displayNameOf } from "../../manifest/manifest.ts";
import { parseCapabilityClass } from "../../protocol/capabilities.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import { MetaKey } from "../../protocol/modern.ts";
import type { RequestSpan } from "../../telemetry/request-span.ts";
import type { ServerRequest } from "../../upstream/profile.ts";
import { spanOf } from "../traced-responder.ts";
import type { ModernClient } from "./client.ts";
import type { ModernRequest, ModernResponder } from "./request.ts";

/** How long a call waits for its client's retry with `inputResponses`, in ms. */
export const INPUT_TIMEOUT = 5 * 60_000;
/** Maximum number of calls that wait for retries: of one client, and of all clients. */
export const MAX_AWAITING = { perClient: 256, total: 1024 };

/** A call that waits for its client's retry with `inputResponses`. */
export interface AwaitingCall {
  /** Digest of the request without `_meta`, `inputResponses` and `requestState`; it must be the same for a retry. */
  readonly digest: string;
  /** The span of the request that was answered with `input_required`; undefined if it is not recorded. */
  readonly span: RequestSpan | undefined;
  /** Called when the client has sent the retry. `answers`: the results of the input requests, by their keys. */
  resume(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    answers: readonly JsonMember[],
  ): void;
  /** Called if no retry has come within `INPUT_TIMEOUT`. */
  expire(): void;
}

/** Counts the waiting calls of all clients, up to `MAX_AWAITING.total`. */
export class AwaitingLimit {
  /**
   * Random prefix of each `requestState` that this hub issues. A `requestState` without this prefix was issued by a
   * server, which may be a hub itself, and is passed on unchanged.
   */
  readonly statePrefix = `toolmux-${randomToken(6)}.`;
  #count = 0;

  /** @returns false if the limit is reached */
  acquire(): boolean {
    if (this.#count >= MAX_AWAITING.total) return false;
    this.#count++;
    return true;
  }

  release(): void {
    this.#count--;
  }
}

/** The waiting calls of one client, each under a `requestState` that is random and valid once. */
export class AwaitedInputs {
  readonly #limit: AwaitingLimit;
  readonly #clock: Clock;
  readonly #calls = new Map<
    string,
    { readonly call: AwaitingCall; readonly cancelTimeout: () => void }
  >();

  constructor(limit: AwaitingLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  get size(): number {
    return this.#calls.size;
  }

  /** Makes a call wait for its retry. @returns the `requestState` of the call; undefined if a limit is reached */
  add(call: AwaitingCall): string | undefined {
    if (this.#calls.size >= MAX_AWAITING.perClient || !this.#limit.acquire()) return undefined;
    const state = this.#limit.statePrefix + randomToken();
    const cancelTimeout = this.#clock.after(INPUT_TIMEOUT, () => {
      this.#remove(state);
      call.expire();
    });
    this.#calls.set(state, { call, cancelTimeout });
    return state;
  }

  /**
   * Resumes the call that a retry belongs to.
   * @returns false if the request is no retry of a waiting call
   * @throws {HubError} invalidParams if the retry is invalid; the call goes on waiting
   */
  resume(modernRequest: ModernRequest, responder: ModernResponder): boolean {
    const state = modernRequest.params.string("requestState");
    if (state === undefined || !state.startsWith(this.#limit.statePrefix)) return false;
    const call = this.#calls.get(state)?.call;
    if (call === undefined || call.digest !== requestDigestOf(modernRequest))
      throw invalidRequestState();
    const answers = readInputResponses(modernRequest);
    this.#remove(state);
    if (call.span !== undefined) spanOf(responder)?.continue(call.span);
    call.resume(modernRequest, responder, answers);
    return true;
  }

  /** Removes all waiting calls, because the client has disconnected. */
  close(): void {
    for (const state of this.#calls.keys()) this.#remove(state);
  }

  #remove(state: string): void {
    const entry = this.#calls.get(state);
    if (entry === undefined) return;
    this.#calls.delete(state);
    this.#limit.release();
    entry.cancelTimeout();
  }
}

export function invalidRequestState(): HubError {
  return new HubError("invalidParams", "Invalid or expired requestState");
}

/** The members of params that differ between a request and its retry. */
const VARYING_PARAMS: ReadonlySet<string> = new Set(["_meta", "inputResponses", "requestState"]);

/** SHA-256 of the method and params without `VARYING_PARAMS`, base64: equal for a request and its retry. */
export function requestDigestOf({ request, params }: ModernRequest): string {
  // node:crypto is loaded at first use: loading it takes longer than the rest of the hub's start.
  const hash = process.getBuiltinModule("node:crypto").createHash("sha256").update(request.method);
  const sorted = [...params.members].sort((a, b) => Number(a.key > b.key) - Number(a.key < b.key));
  for (const { key, start, end } of sorted) {
    if (VARYING_PARAMS.has(key)) continue;
    hash.update(`\0${JSON.stringify(key)}:`).update(request.bytes.subarray(start, end));
  }
  return hash.digest("base64");
}

/** Whether a member of params occurs only in retries. */
function isInputParam(key: string): boolean {
  return key === "inputResponses" || key === "requestState";
}

function readInputResponses({ params }: ModernRequest): readonly JsonMember[] {
  const member = params.member("inputResponses");
  if (member === undefined) return [];
  const { bytes } = params;
  const { members } = JsonObject.at(bytes, member);
  if ([member, ...members].every(({ start }) => bytes[start] === OPEN_BRACE)) return members;
  throw new HubError(
    "invalidParams",
    "inputResponses must be an object with one result for each input request.",
  );
}
const OPEN_BRACE = 0x7b;

/** Members of a legacy request's params that an embedded input request must not have. */
const LEGACY_ONLY_MEMBERS: ReadonlySet<string> = new Set(["_meta", "task", "elicitationId"]);

/** Encodes an `input_required` result that contains servers' requests (MCP, multi round-trip requests). */
export function encodeInputRequired(
  requests: ReadonlyMap<string, ServerRequest>,
  state: string,
  server: Implementation,
): Uint8Array {
  const tail = utf8(resultTail(state, server));
  return joinPieces(['{"inputRequests":', encodeInputRequests(requests), ",", tail]);
}

/** Encodes servers' requests as the value of `inputRequests`, by their keys. */
export function encodeInputRequests(requests: ReadonlyMap<string, ServerRequest>): Uint8Array {
  const entries = [...requests].map(([key, request], i) =>
    joinPieces([
      `${i === 0 ? "" : ","}"${key}":{"method":"${request.method}","params":`,
      ...embeddedParams(request.params("0")),
      "}",
    ]),
  );
  return joinPieces(["{", ...entries, "}"]);
}

/** Encodes an `input_required` result. @param inputRequests the input requests as plain JSON values, by their keys */
function buildInputRequired(
  inputRequests: object,
  state: string,
  server: Implementation,
): Uint8Array {
  const json = JSON.stringify({ inputRequests }).slice(0, -1);
  return utf8(`${json},${resultTail(state, server)}`);
}

/** The last members of an `input_required` result: `requestState`, the server info, and `resultType`. */
function resultTail(requestState: string, server: Implementation): string {
  const members = {
    requestState,
    _meta: { [MetaKey.server]: server },
    resultType: "input_required",
  };
  return JSON.stringify(members).slice(1);
}

function embeddedParams(params: readonly Piece[] | undefined): readonly Piece[] {
  if (params === undefined) return ["{}"];
  const bytes = joinPieces(params);
  const { members } = JsonObject.of(bytes);
  const edits = removeMembers(bytes, { start: 0 }, members, (key) => LEGACY_ONLY_MEMBERS.has(key));
  return applyEdits(bytes, edits);
}

const CANCEL_RESULT = utf8('{"action":"cancel"}');

/** Ends a server's request that the client will not answer: an elicitation gets `cancel`, other requests fail. */
export function cancelServerRequest(serverRequest: ServerRequest): void {
  if (serverRequest.method === Method.elicitationCreate)
    serverRequest.answer("result", CANCEL_RESULT);
  else serverRequest.fail(new HubError("notAsked", "The client did not answer."));
}

/**
 * Replaces the token in a progress notification.
 * @returns undefined if `token` is undefined, or if the message is no notification
 */
export function withProgressToken(
  message: EncodedMessage,
  token: Piece | undefined,
): EncodedMessage | undefined {
  const parsed = parseMessage(joinMessage(message));
  if (token === undefined || parsed.kind !== "notification") return undefined;
  return replaceRanges(parsed, paramsOf(parsed).all("progressToken"), token);
}

/** URLElicitationRequiredError (2025-11-25, elicitation): the user has to open a URL before the request can succeed. */
const URL_ELICITATION_REQUIRED = -32042;

/**
 * Translates a legacy server's URLElicitationRequiredError for a modern client: an `input_required` result with URL
 * elicitations. When the client retries, its original request is sent to the server again.
 * @param id the id of the client's request
 * @param span the span of the request, if it is recorded
 * @param onAwaited called with the `requestState` of the retry, if the client is asked for one
 * @returns undefined if the response is no such error, or too many calls wait for input
 */
export function buildUrlElicitation(
  response: Response,
  modernRequest: ModernRequest,
  id: Piece,
  server: string,
  client: ModernClient,
  span: RequestSpan | undefined,
  onAwaited: (requestState: string) => void,
): EncodedMessage | undefined {
  const elicitations = readElicitations(response);
  if (elicitations === undefined) return undefined;
  if (parseCapabilityClass(modernRequest.capabilityClass).elicitation?.url === undefined) {
    const data = { requiredCapabilities: { elicitation: { url: {} } } };
    const text = `Server "${server}" asks the user to open a page, which this client does not support.`;
    return buildError(id, new HubError("missingCapability", text, { server, data }).toRpc());
  }
  const state = client.awaitedInputs.add({
    digest: requestDigestOf(modernRequest),
    span,
    resume: (retry, responder) =>
      client.handle(withoutRetryParams(retry), responder, undefined, state),
    expire() {},
  });
  if (state === undefined) return undefined;
  onAwaited(state);
  const spec = client.view.connection(server)?.spec;
  const displayName = spec === undefined ? server : displayNameOf(spec);
  const entries = elicitations.map(({ message, url }, i) => {
    const params = { mode: "url", message: `[${displayName}] ${message}`, url };
    return [`input-${i + 1}`, { method: Method.elicitationCreate, params }] as const;
  });
  return buildResult(id, buildInputRequired(Object.fromEntries(entries), state, client.serverInfo));
}

interface UrlElicitation {
  readonly message: string;
  readonly url: string;
}

function readElicitations(response: Response): readonly UrlElicitation[] | undefined {
  const error = bodyOf(response);
  if (error.value("code") !== URL_ELICITATION_REQUIRED) return undefined;
  const elicitations = error.object("data").value("elicitations");
  const valid = Array.isArray(elicitations) ? elicitations.filter(isUrlElicitation) : [];
  return valid.length > 0 ? valid : undefined;
}

function isUrlElicitation(value: unknown): value is UrlElicitation {
  if (typeof value !== "object" || value === null) return false;
  const { message, url } = value as Readonly<Record<string, unknown>>;
  return typeof message === "string" && typeof url === "string";
}

/** The request without `inputResponses` and `requestState`. */
function withoutRetryParams(modernRequest: ModernRequest): ModernRequest {
  const { request } = modernRequest;
  const { bytes, params } = request;
  if (params === undefined) return modernRequest;
  const edits: Edit[] = removeMembers(bytes, params, modernRequest.params.members, isInputParam);
  const parsed = parseMessage(joinMessage(editMessage(request, edits)));
  if (parsed.kind !== "request") return modernRequest;
  return { ...modernRequest, request: parsed, params: paramsOf(parsed) };
}
