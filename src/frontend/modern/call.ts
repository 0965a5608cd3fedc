import type { Piece } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import type { CancelledBy } from "../../base/events.ts";
import type { JsonMember } from "../../base/json.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import { NO_CACHING } from "../../catalog/listing.ts";
import { SkillMethod } from "../../catalog/skills.ts";
import {
  bodyOf,
  buildError,
  buildResult,
  type EncodedMessage,
  joinMessage,
  readId,
  type Response,
  withResponseId,
} from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import { isAtLeast, type LogSeverity } from "../../protocol/log-level.ts";
import type { Era } from "../../protocol/modern.ts";
import { type CancelReason, readProgressTokens } from "../../protocol/notifications.ts";
import { declaresTasks } from "../../protocol/tasks.ts";
import { addCacheHint, toModernEdits } from "../../protocol/translate.ts";
import type { Caller, Call, RunningRequest, TaskLocation } from "../../router/call.ts";
import type { ClientDeclaration, ServerRequest } from "../../upstream/profile.ts";
import {
  type AwaitedInputs,
  type AwaitingCall,
  cancelServerRequest,
  encodeInputRequired,
  requestDigestOf,
  withProgressToken,
} from "./input-required.ts";
import { buildModernError, type ModernRequest, type ModernResponder } from "./request.ts";

/**
 * The error for a request that failed because its server sent a request that the client does not support.
 * @param required the capabilities that the client would have to declare, as an object of `capabilities`
 * @returns undefined if the server succeeded nevertheless
 */
export function missingCapabilityErrorOf(
  response: Response,
  server: string,
  required: object,
): HubError | undefined {
  const body = bodyOf(response);
  const isError = response.outcome === "error";
  if (!isError && body.value("isError") !== true) return undefined;
  const serverText = isError ? body.value("message") : firstText(body.value("content"));
  const names = Object.keys(required).join(" and ");
  const text = `Server "${server}" needs a client that can be asked for ${names}.`;
  const data = { requiredCapabilities: required };
  return new HubError(
    "missingCapability",
    typeof serverText === "string" ? `${text} It says: ${serverText}` : text,
    { server, data },
  );
}

function firstText(content: unknown): unknown {
  const first: unknown = Array.isArray(content) ? content[0] : undefined;
  return typeof first === "object" && first !== null && "text" in first ? first.text : undefined;
}

/** A server's requests that come within this many ms of the first go into one `input_required` result. */
const INPUT_BATCH_TIME = 5;

/** Validates a request against its client's catalog. May throw. */
export type CallCheck = (catalog: Catalog) => void;

/** What a call needs of its client. */
export interface ModernCallHost {
  readonly clock: Clock;
  readonly serverInfo: Implementation;
  readonly awaitedInputs: AwaitedInputs;
  /**
   * The answer that replaces a legacy server's error with one on which a modern client can act; undefined: there is
   * none.
   */
  answerUrlElicitation(
    modernRequest: ModernRequest,
    response: Response,
    server: string,
    id: Piece,
  ): EncodedMessage | undefined;
  /** Adds the task that a call has created to the client's tasks. @returns the answer with the client's task id */
  addTask(answer: Response, place: TaskLocation): Response;
  /** Called once, when the call is over. */
  onEnd(call: ModernCall): void;
}

/** The methods whose results have cache hints (schema, CacheableResult). */
const CACHEABLE_METHODS: ReadonlySet<string> = new Set([Method.resourcesRead, SkillMethod.get]);

/** Shared by all calls for which no server has sent a request, which are most. Never changed. */
const NO_REQUESTS = new Map<string, ServerRequest>();

/**
 * One request of a modern client in flight at a server. If the server sends a request meanwhile, the client is answered
 * with `input_required`, and the call continues when the client sends the retry.
 */
export class ModernCall implements Caller, AwaitingCall {
  /** Its key in the client's table of calls; -1 before it runs. */
  tableKey = -1;
  readonly #modernRequest: ModernRequest;
  readonly #host: ModernCallHost;
  readonly #check: CallCheck | undefined;
  #running: RunningRequest | undefined;
  /** Responder and id of the client's open request; undefined while a retry is awaited. */
  #current: { readonly responder: ModernResponder; readonly id: Piece } | undefined;
  /** Set once a retry has come, with its progress token. */
  #retry: { readonly token: Piece | undefined } | undefined;
  /** The server's unanswered requests, by their keys in `inputRequests`. */
  #serverRequests = NO_REQUESTS;
  #count = 0;
  /** Whether the timer runs that collects requests for one `input_required` result. */
  #isBatching = false;
  /** The server's last answer, in the form for this client. */
  #translated: EncodedMessage | undefined;
  /** The error of a failed check against the catalog. */
  #checkError: EncodedMessage | undefined;
  /** The answer that came while a retry was awaited. */
  #heldAnswer: EncodedMessage | undefined;
  /** The capabilities that the client lacks for the server's rejected requests. */
  #missingCapabilities: object | undefined;
  #isOver = false;
  #digest: string | undefined;

  constructor(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    host: ModernCallHost,
    check?: CallCheck,
  ) {
    this.#modernRequest = modernRequest;
    this.#host = host;
    this.#check = check;
    this.#attach(modernRequest, responder);
  }

  get sender(): ClientDeclaration {
    return this.#modernRequest.sender;
  }

  get digest(): string {
    this.#digest ??= requestDigestOf(this.#modernRequest);
    return this.#digest;
  }

  get call(): Call | undefined {
    return this.#running?.call;
  }

  /** The server that the call runs at; undefined before it is routed. */
  get server(): string | undefined {
    return this.call?.server;
  }

  /** Whether the client's retry is awaited. */
  get isAwaitingInput(): boolean {
    return this.#current === undefined;
  }

  run(running: RunningRequest): void {
    this.#running = running;
    running.run();
  }

  cancel(reason: CancelReason, by: CancelledBy): void {
    this.#running?.cancel(reason, by);
    this.#finish();
  }

  onListed(catalog: Catalog): void {
    try {
      this.#check?.(catalog);
    } catch (error) {
      this.#checkError = buildModernError(this.#id, toHubError(error));
      throw error;
    }
  }

  sendServerRequest(request: ServerRequest): () => void {
    if (this.#isOver) {
      request.fail(new HubError("notAsked", "The request that it was for is over."));
      return () => {};
    }
    const key = `input-${++this.#count}`;
    if (this.#serverRequests === NO_REQUESTS) this.#serverRequests = new Map();
    this.#serverRequests.set(key, request);
    this.#scheduleInputRequired();
    return () => void this.#serverRequests.delete(key);
  }

  /** A server's request was rejected because the client does not support it. */
  onMissingCapability(needed: object): void {
    this.#missingCapabilities = { ...this.#missingCapabilities, ...needed };
  }

  toClientMessage(response: Response, from: Era): EncodedMessage {
    const other = from === "legacy" ? this.#replacementFor(response) : undefined;
    this.#translated = other ?? this.#translate(response, from);
    return this.#translated;
  }

  addTask(answer: Response, place: TaskLocation): Response | undefined {
    return declaresTasks(this.sender.declaredCapabilities)
      ? this.#host.addTask(answer, place)
      : undefined;
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    // Answers of the hub itself, or of a plugin, have the form of the legacy era.
    const isTranslated = message === undefined || message === this.#translated;
    const answer = isTranslated ? message : (this.#checkError ?? this.#translateOwn(message));
    if (this.#current === undefined) {
      this.#heldAnswer = answer;
      if (answer !== undefined) return;
    }
    const responder = this.#current?.responder;
    this.#finish();
    responder?.respond(answer);
  }

  /** Progress and log messages; those that come while a retry is awaited are dropped. */
  notify(message: EncodedMessage): void {
    const notification =
      this.#retry === undefined ? message : withProgressToken(message, this.#retry.token);
    if (notification !== undefined) this.#current?.responder.notify(notification);
  }

  /** Whether the client asked for log messages of that level. */
  wantsLogLevel(severity: LogSeverity): boolean {
    const { level } = this.sender;
    return level !== undefined && isAtLeast(severity, level);
  }

  /** The responder of the client's open request; undefined while a retry is awaited. */
  get responder(): ModernResponder | undefined {
    return this.#current?.responder;
  }

  resume(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    answers: readonly JsonMember[],
  ): void {
    const { bytes, id } = modernRequest.request;
    const token = readProgressTokens(modernRequest.params).at(-1);
    this.#retry = { token: token && readId(bytes, token) };
    this.#attach(modernRequest, responder);
    for (const { key, start, end } of answers) {
      const serverRequest = this.#serverRequests.get(key);
      this.#serverRequests.delete(key);
      serverRequest?.answer("result", bytes.subarray(start, end));
    }
    if (this.#heldAnswer === undefined) {
      this.#scheduleInputRequired();
      return;
    }
    const parsed = parseMessage(joinMessage(this.#heldAnswer));
    this.#finish();
    responder.respond(parsed.kind === "response" ? withResponseId(parsed, id) : undefined);
  }

  expire(): void {
    for (const serverRequest of this.#serverRequests.values()) cancelServerRequest(serverRequest);
    this.#serverRequests.clear();
    this.cancel("The client has not come back with what it was asked for.", "client");
  }

  #attach({ request }: ModernRequest, responder: ModernResponder): void {
    this.#current = { responder, id: request.id };
    responder.onCancel((reason, by) => this.cancel(reason, by));
  }

  #scheduleInputRequired(): void {
    if (this.#current === undefined || this.#serverRequests.size === 0 || this.#isBatching) return;
    this.#isBatching = true;
    this.#host.clock.after(INPUT_BATCH_TIME, () => this.#sendInputRequired());
  }

  #sendInputRequired(): void {
    this.#isBatching = false;
    const current = this.#current;
    if (current === undefined || this.#serverRequests.size === 0) return;
    const state = this.#host.awaitedInputs.add(this);
    if (state === undefined) {
      this.#failServerRequests("As many requests as can be wait for their clients to come back.");
      return;
    }
    this.#current = undefined;
    const result = encodeInputRequired(this.#serverRequests, state, this.#host.serverInfo);
    current.responder.respond(buildResult(current.id, result));
  }

  get #id(): Piece {
    return this.#current?.id ?? this.#modernRequest.request.id;
  }

  /**
   * The answer that a modern client gets instead of a legacy server's, if it can act on it; undefined: the server's
   * own.
   */
  #replacementFor(response: Response): EncodedMessage | undefined {
    if (this.#missingCapabilities !== undefined) {
      const error = missingCapabilityErrorOf(
        response,
        this.server ?? "",
        this.#missingCapabilities,
      );
      if (error !== undefined) return buildError(this.#id, error.toRpc());
    }
    return response.outcome === "error"
      ? this.#host.answerUrlElicitation(this.#modernRequest, response, this.server ?? "", this.#id)
      : undefined;
  }

  #translate(response: Response, from: Era): EncodedMessage {
    const { request } = this.#modernRequest;
    const cache = CACHEABLE_METHODS.has(request.method) ? NO_CACHING : undefined;
    // In the base protocol, schemas require cache hints of results; an extension's results may not have them.
    const edits =
      from === "modern" && request.method === SkillMethod.get
        ? addCacheHint(response, NO_CACHING)
        : toModernEdits(response, from, this.#host.serverInfo, cache);
    return withResponseId(response, this.#id, edits);
  }

  #translateOwn(message: EncodedMessage): EncodedMessage {
    const parsed = parseMessage(joinMessage(message));
    return parsed.kind === "response" ? this.#translate(parsed, "legacy") : message;
  }

  #failServerRequests(text: string): void {
    if (this.#serverRequests.size === 0) return;
    const requests = [...this.#serverRequests.values()];
    this.#serverRequests.clear();
    for (const request of requests) request.fail(new HubError("notAsked", text));
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failServerRequests("The request that it was for is over.");
    this.#host.onEnd(this);
  }
}
