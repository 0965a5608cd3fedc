import type { Piece } from "../../base/bytes.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import type { CancelledBy } from "../../base/hub-events.ts";
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
import { Method } from "../../protocol/legacy.ts";
import { isAtLeast, type LogSeverity } from "../../protocol/log-level.ts";
import { type Era, MetaKey } from "../../protocol/modern.ts";
import { type CancelReason, readProgressTokens } from "../../protocol/notifications.ts";
import { declaresTasks } from "../../protocol/tasks.ts";
import { addCacheHint, toModernEdits } from "../../protocol/translate.ts";
import type { Call, Caller, CallProgress, CallVia, RunningRequest } from "../../router/call.ts";
import { HubMadeTask } from "../../router/hub-made-task.ts";
import type { RequestSpan } from "../../telemetry/request-span.ts";
import type { ClientDeclaration, ServerRequest } from "../../upstream/profile.ts";
import { setOwner } from "../counted-responder.ts";
import { spanOf } from "../traced-responder.ts";
import type { ModernClient } from "./client.ts";
import {
  type AwaitingCall,
  buildUrlElicitation,
  cancelServerRequest,
  encodeInputRequests,
  encodeInputRequired,
  INPUT_TIMEOUT,
  requestDigestOf,
  withProgressToken,
} from "./input-required.ts";
import { buildModernError, type ModernRequest, type ModernResponder } from "./request.ts";

/**
 * The error for a request that failed because its server sent a request that the client does not support.
 * @param required the missing capabilities, in the format of the member `capabilities`
 * @returns undefined if the server has answered with a result nevertheless
 */
function missingCapabilityErrorOf(
  response: Response,
  server: string,
  required: object,
): HubError | undefined {
  const body = bodyOf(response);
  const isError = response.outcome === "error";
  if (!isError && body.value("isError") !== true) return undefined;
  const serverText = isError ? body.value("message") : firstText(body.value("content"));
  const names = Object.keys(required).join(" and ");
  const text = `Server "${server}" needs a client that supports ${names}.`;
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

/** Time in ms for which a server's requests are collected, from the first one on, into one `input_required` result. */
const INPUT_BATCH_TIME = 5;

/** Ends a task with the outcome of its call. @param answer the call's answer; undefined if the call was cancelled */
function endTask(task: HubMadeTask, answer: EncodedMessage | undefined): void {
  const parsed = answer && parseMessage(joinMessage(answer));
  if (parsed?.kind !== "response") {
    task.end("cancelled");
    return;
  }
  const { bytes, body, outcome } = parsed;
  // A copy, because the task is kept longer than the message.
  const kept = Uint8Array.from(bytes.subarray(body.start, body.end));
  task.end(outcome === "error" ? "failed" : "completed", kept);
}

/** Validates a request against its client's catalog. May throw. */
export type CatalogCheck = (catalog: Catalog) => void;

/** The methods whose results have cache hints (schema, CacheableResult). */
const CACHEABLE_METHODS: ReadonlySet<string> = new Set([Method.resourcesRead, SkillMethod.get]);

/** The empty map of calls for which no server has sent a request: most calls. It is shared, and never changed. */
const NO_REQUESTS = new Map<string, ServerRequest>();

/**
 * One request of a modern client in flight at a server. If the server sends a request meanwhile, the client is answered
 * with `input_required`, and the call continues when the client sends the retry.
 */
export class ModernCall implements Caller, AwaitingCall {
  /** The key of this call in the client's map of calls; -1 before it runs. */
  tableKey = -1;
  readonly #modernRequest: ModernRequest;
  readonly #client: ModernClient;
  readonly #check: CatalogCheck | undefined;
  readonly via: CallVia | undefined;
  readonly retryOf: string | undefined;
  /** The span of the client's last request, which may be a retry; undefined if it is not recorded. */
  span: RequestSpan | undefined;
  #running: RunningRequest | undefined;
  /**
   * `open`: the client waits for an answer; `awaitingInput`: the hub waits for the client's retry; `task`: the client
   * was answered with a task, and the call goes on.
   */
  #state: "open" | "awaitingInput" | "task" | "over" = "open";
  #task: HubMadeTask | undefined;
  /** Whether the call becomes a task as soon as the client's retry has come. */
  #isTaskWanted = false;
  /** The text of the last progress that the hub itself has reported for the call. */
  #progressMessage: string | undefined;
  /** Responder and id of the client's last request, which may be a retry. */
  #responder: ModernResponder;
  #id: Piece;
  /** Set once a retry has come; `token` is the retry's progress token. */
  #retry: { readonly token: Piece | undefined } | undefined;
  /** The server's unanswered requests, by their keys in `inputRequests`. */
  #serverRequests = NO_REQUESTS;
  /** For each request in the task's status, by its key in `inputRequests`: a function that cancels its timeout. */
  #inputTimeouts: Map<string, () => void> | undefined;
  #count = 0;
  /** Whether requests are being collected for one `input_required` result, until a timer sends it. */
  #isBatching = false;
  /** The server's last answer, after its translation for this client. */
  #translated: EncodedMessage | undefined;
  /** The error of a failed check against the catalog. */
  #checkError: EncodedMessage | undefined;
  /** The answer to the call, if it came while a retry was awaited. */
  #heldAnswer: EncodedMessage | undefined;
  /** The capabilities that the server's rejected requests need, and that the client lacks. */
  #missingCapabilities: object | undefined;
  #digest: string | undefined;

  constructor(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    client: ModernClient,
    check?: CatalogCheck,
    via?: CallVia,
    retryOf?: string,
  ) {
    this.#modernRequest = modernRequest;
    this.#client = client;
    this.#check = check;
    this.via = via;
    this.retryOf = retryOf;
    this.span = client.isTracing ? spanOf(responder) : undefined;
    this.#responder = responder;
    if (client.isCounting) setOwner(responder, this);
    this.#id = modernRequest.request.id;
    responder.onCancel(this.#onCancel);
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
    return this.#state === "awaitingInput";
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
    if (this.#state === "over") {
      request.fail(new HubError("notAsked", "The request that the server asked for has ended."));
      return () => {};
    }
    const key = `input-${++this.#count}`;
    if (this.#serverRequests === NO_REQUESTS) this.#serverRequests = new Map();
    this.#serverRequests.set(key, request);
    if (this.#task === undefined) this.#scheduleInputRequired();
    else this.#askInTask([[key, request]]);
    return () => {
      this.#serverRequests.delete(key);
      this.#updateTaskInputs();
    };
  }

  becomeTask(): void {
    if (!this.supportsTasks || this.#task !== undefined || this.#state === "over") return;
    if (this.#state === "awaitingInput") {
      this.#isTaskWanted = true;
      return;
    }
    const client = this.#client;
    const { server } = this;
    if (server === undefined) return;
    const cancel = (): void => this.cancel("The task was cancelled.", "client");
    const onInput = (key: string, answer: Uint8Array): void => this.#answerInput(key, answer);
    const task = new HubMadeTask({ server, cancel, onInput }, client.clock, this.#progressMessage);
    if (!client.tasks.addCallTask(task)) return;
    this.#task = task;
    this.#state = "task";
    this.call?.traceAnswer();
    const meta = JSON.stringify({ [MetaKey.server]: client.serverInfo });
    this.#responder.respond(buildResult(this.#id, task.announcement(meta)));
    this.#askInTask([...this.#serverRequests]);
  }

  onOwnProgress({ message }: CallProgress): void {
    if (message === undefined) return;
    this.#progressMessage = message;
    this.#task?.report(message);
  }

  /** Called when a server's request was rejected because the client does not support it. */
  onMissingCapability(needed: object): void {
    this.#missingCapabilities = { ...this.#missingCapabilities, ...needed };
  }

  toClientMessage(response: Response, from: Era): EncodedMessage {
    const other = from === "legacy" ? this.#replacementFor(response) : undefined;
    this.#translated = other ?? this.#translate(response, from);
    return this.#translated;
  }

  get supportsTasks(): boolean {
    return declaresTasks(this.sender.declaredCapabilities);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#state === "over") return;
    // Answers that the hub or a plugin made have the form of the legacy era, and are translated here.
    const isTranslated = message === undefined || message === this.#translated;
    const answer = isTranslated ? message : (this.#checkError ?? this.#translateOwn(message));
    if (this.#state === "awaitingInput") {
      this.#heldAnswer = answer;
      if (answer === undefined) this.#finish();
      return;
    }
    const task = this.#task;
    this.#finish();
    if (task === undefined) this.#responder.respond(answer);
    else endTask(task, answer);
  }

  /** Sends progress and log messages. While a retry is awaited, they are dropped. */
  notify(message: EncodedMessage): void {
    if (this.#state !== "open") return;
    const notification =
      this.#retry === undefined ? message : withProgressToken(message, this.#retry.token);
    if (notification !== undefined) this.#responder.notify(notification);
  }

  /** Whether the client asked for log messages of this severity. */
  wantsLogLevel(severity: LogSeverity): boolean {
    const { level } = this.sender;
    return level !== undefined && isAtLeast(severity, level);
  }

  /** The responder of the client's open request; undefined while a retry is awaited. */
  get responder(): ModernResponder | undefined {
    return this.#state === "open" ? this.#responder : undefined;
  }

  resume(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    answers: readonly JsonMember[],
  ): void {
    if (this.#state === "over") {
      responder.respond(undefined);
      return;
    }
    const { bytes, id } = modernRequest.request;
    const token = readProgressTokens(modernRequest.params).at(-1);
    this.#retry = { token: token && readId(bytes, token) };
    this.#state = "open";
    this.#responder = responder;
    // A span ends with the answer to its request: the rest of the call belongs to that of the retry.
    this.span = this.#client.isTracing ? spanOf(responder) : undefined;
    this.call?.traceRetry();
    if (this.#client.isCounting) setOwner(responder, this);
    this.#id = id;
    responder.onCancel(this.#onCancel);
    for (const { key, start, end } of answers) {
      const serverRequest = this.#serverRequests.get(key);
      this.#serverRequests.delete(key);
      serverRequest?.answer("result", bytes.subarray(start, end));
    }
    if (this.#heldAnswer === undefined) {
      if (this.#isTaskWanted) this.becomeTask();
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
    this.cancel("The client did not return with the input that was requested.", "client");
  }

  /** Cancels the call, unless it is a task: only `tasks/cancel` ends a task. */
  readonly #onCancel = (reason: CancelReason, by: CancelledBy): void => {
    if (this.#state !== "task") this.cancel(reason, by);
  };

  /** Shows requests to the client in the task's status. Those that the client does not answer in time are cancelled. */
  #askInTask(requests: readonly (readonly [key: string, request: ServerRequest])[]): void {
    const timeouts = (this.#inputTimeouts ??= new Map());
    for (const [key, request] of requests) {
      const cancelTimeout = this.#client.clock.after(INPUT_TIMEOUT, () => {
        this.#serverRequests.delete(key);
        this.#updateTaskInputs();
        cancelServerRequest(request);
      });
      timeouts.set(key, cancelTimeout);
    }
    this.#updateTaskInputs();
  }

  #answerInput(key: string, answer: Uint8Array): void {
    const request = this.#serverRequests.get(key);
    this.#serverRequests.delete(key);
    this.#updateTaskInputs();
    request?.answer("result", answer);
  }

  /** Updates the requests in the task's status to those that the client has not answered. */
  #updateTaskInputs(): void {
    const requests = this.#serverRequests;
    if (this.#task === undefined) return;
    for (const [key, cancelTimeout] of this.#inputTimeouts ?? []) {
      if (requests.has(key)) continue;
      cancelTimeout();
      this.#inputTimeouts?.delete(key);
    }
    this.#task.setInputRequests(requests.size > 0 ? encodeInputRequests(requests) : undefined);
  }

  #scheduleInputRequired(): void {
    if (this.#state !== "open" || this.#serverRequests.size === 0 || this.#isBatching) return;
    this.#isBatching = true;
    this.#client.clock.after(INPUT_BATCH_TIME, () => this.#sendInputRequired());
  }

  #sendInputRequired(): void {
    this.#isBatching = false;
    if (this.#state !== "open" || this.#serverRequests.size === 0) return;
    const requestState = this.#client.awaitedInputs.add(this);
    if (requestState === undefined) {
      this.#failServerRequests("Too many requests are waiting for input from their clients.");
      return;
    }
    this.#state = "awaitingInput";
    this.call?.traceAnswer();
    const { serverInfo } = this.#client;
    const result = encodeInputRequired(this.#serverRequests, requestState, serverInfo);
    this.#responder.respond(buildResult(this.#id, result));
  }

  /**
   * An answer that replaces a legacy server's answer and that the client can act on: the capabilities that the client
   * lacks, or the URLs that the user has to open.
   * @returns undefined if the client gets the server's own answer
   */
  #replacementFor(response: Response): EncodedMessage | undefined {
    if (this.#missingCapabilities !== undefined) {
      const error = missingCapabilityErrorOf(
        response,
        this.server ?? "",
        this.#missingCapabilities,
      );
      if (error !== undefined) {
        this.span?.setOutcome({ type: error.code, message: error.message });
        return buildError(this.#id, error.toRpc());
      }
    }
    if (response.outcome !== "error") return undefined;
    return buildUrlElicitation(
      response,
      this.#modernRequest,
      this.#id,
      this.server ?? "",
      this.#client,
      this.span,
      (state) => {
        this.span?.setOutcome(undefined);
        this.call?.gate?.awaitRetry?.(state);
      },
    );
  }

  #translate(response: Response, from: Era): EncodedMessage {
    const { request } = this.#modernRequest;
    const cache = CACHEABLE_METHODS.has(request.method) ? NO_CACHING : undefined;
    // Results of a modern server have the cache hints that the base protocol requires. Only results of the skills
    // extension may lack the hints, so they are added to those results.
    const edits =
      from === "modern" && request.method === SkillMethod.get
        ? addCacheHint(response, NO_CACHING)
        : toModernEdits(response, from, this.#client.serverInfo, cache);
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
    if (this.#state === "over") return;
    this.#state = "over";
    this.#failServerRequests("The request that the server asked for has ended.");
    this.#updateTaskInputs();
    this.#client.onCallEnd(this);
  }
}
