import type { Buffer } from "node:buffer";
import type { ByteRange, Edit } from "../base/bytes.ts";
import { HubError, invalidAnswerError } from "../base/errors.ts";
import { saidInBytes } from "../base/quote.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import { IdMap } from "../base/in-flight-map.ts";
import { findResponseId, parseTruncated } from "../jsonrpc/parse.ts";
import {
  buildRequest,
  type EncodedMessage,
  type InvalidMessage,
  type Notification,
  type Response,
} from "../jsonrpc/message.ts";
import {
  mayLoseRequests,
  NO_OP_SENT_REQUEST,
  type SendOptions,
  type SentRequest,
  type Transport,
} from "../transport/transport.ts";
import type { Clock } from "../base/clock.ts";
import { Method } from "../protocol/legacy.ts";
import { ModernMethod } from "../protocol/modern.ts";
import type { SentContext } from "../telemetry/request-span.ts";
import type { ClientChannel, ClientDeclaration, ClientRequest } from "./profile.ts";

/**
 * The record of a request in flight to a server. It is kept until the request is answered or dropped.
 */
export interface PendingRequest extends SendOptions {
  /** Set on clients' requests; absent on the hub's own. */
  readonly isClientRequest?: true;
  /** The declaration of the client that sent the request; absent on the hub's own. */
  readonly sender?: ClientDeclaration;
  /** The client that sent the request; undefined for requests of the hub or of plugins. */
  readonly channel?: ClientChannel | undefined;
  /** Whether the client has asked for a task. */
  readonly isTask?: boolean;
  /**
   * The client's request; absent on the hub's own requests. Used only over HTTP, where each request has a response
   * stream.
   */
  readonly clientRequest?: ClientRequest;
  /** The HTTP headers with arguments of the call (`Mcp-Param-*`). Used only for a modern server over HTTP. */
  readonly paramHeaders?: Readonly<Record<string, string>> | undefined;
  /** The trace context that the server gets in `_meta`; undefined: the message's own. */
  readonly sentContext?: SentContext | undefined;
  onResponse(response: Response): void;
  /** Called when no answer will arrive. */
  fail(error: HubError): void;
  /** Called with a progress notification. `tokens`: the ranges of the progress token in the notification's bytes. */
  onProgress(notification: Notification, tokens: readonly ByteRange[]): void;
  /** Called with a log message that the server has sent for this request. */
  log?(severity: LogSeverity, message: EncodedMessage): void;
  /** Pauses the deadline while the server waits for a client's answer, and resumes it afterwards. */
  setDeadlinePaused?(isPaused: boolean): void;
}

/**
 * The changes to a client's request before it is sent. The session also replaces the id, and appends its own edits to
 * `edits`.
 */
export interface RequestRewrite {
  readonly edits: Edit[];
  /** The ranges of `params._meta.progressToken`. The session replaces each by its own token. */
  readonly tokens: readonly ByteRange[];
}

/** Maximum size of the data that the server has not read yet, in bytes. Above it, no more requests are sent. */
const MAX_BACKLOG = 128 * 1024 * 1024;

/** Time for which an abandoned request without an answer is assumed to be open at the server, in ms. */
const UNANSWERED_TTL = 10 * 60_000;
/** Maximum number of abandoned requests that are remembered. The oldest is forgotten first. */
const MAX_UNANSWERED = 1024;

/** A client's request that the hub has abandoned and the server has not answered. */
interface UnansweredRequest {
  /** The id of the client that sent the request; undefined if the client cannot be told apart from others. */
  readonly client: string | undefined;
  readonly sender: ClientDeclaration | undefined;
  /** When the request is no longer assumed to be open, in ms of the clock. */
  readonly expiresAt: number;
}

/** The requests in flight over one transport. Allocates the ids of requests, and removes each record exactly once. */
export class PendingRequests {
  readonly #server: string;
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #onLost: (record: PendingRequest) => void;
  readonly #records = new IdMap<PendingRequest>();
  #clientRequestCount = 0;
  /** The abandoned requests without an answer, by request id, the oldest first. */
  readonly #unanswered = new Map<number, UnansweredRequest>();
  /**
   * The time until which abandoned requests that were forgotten because of `MAX_UNANSWERED` may still be open at the
   * server, in ms of the clock.
   */
  #forgottenUntil = 0;
  /**
   * The transport's handles of sent requests, by request id. Empty over stdio, where requests have no handles.
   */
  readonly #sentRequests = new IdMap<SentRequest>();
  #nextId = 1;
  /** Settles when no client's request is in flight; undefined if nobody waits for that. */
  #idle: PromiseWithResolvers<void> | undefined;
  /** The error with which the transport ended. Requests that are sent later fail at once. */
  endCause: HubError | undefined;
  /** Whether the headers with arguments (`Mcp-Param-*`) must be sent. */
  sendsParamHeaders = false;
  /**
   * For each client, the number of requests that the server has sent to it, that belong to no particular call, and that
   * the client has not answered yet. Until they are answered, the deadlines of all its requests are paused.
   */
  readonly #pausedClients = new Map<ClientChannel | undefined, number>();

  /** @param onLost called for a request that ends without an answer while the transport stays open */
  constructor(
    server: string,
    transport: Transport,
    clock: Clock,
    onLost: (record: PendingRequest) => void,
  ) {
    this.#server = server;
    this.#clock = clock;
    this.#transport = transport;
    this.#onLost = onLost;
  }

  get(id: number): PendingRequest | undefined {
    return this.#records.get(id);
  }

  /** Returns the request on whose stream a message arrived; undefined if the request has ended. */
  requestOf(sentRequest: SentRequest): PendingRequest | undefined {
    return sentRequest.request === undefined ? undefined : this.#records.get(sentRequest.request);
  }

  get clientRequestCount(): number {
    return this.#clientRequestCount;
  }

  /** The clients that have requests in flight; undefined stands for plugins. */
  get clients(): Set<ClientChannel | undefined> {
    const clients = new Set<ClientChannel | undefined>();
    if (this.#clientRequestCount === 0) return clients;
    this.#records.filter(({ isClientRequest: isRelayed, channel }) => {
      if (isRelayed === true) clients.add(channel);
      return false;
    });
    return clients;
  }

  /** Whether a request that may belong to this client is in flight. */
  hasRequestsOf(client: ClientChannel | undefined): boolean {
    if (this.#clientRequestCount === 0) return false;
    const { clients } = this;
    return client === undefined || clients.has(client) || clients.has(undefined);
  }

  /**
   * The latest request in flight of a client, if all that may belong to this client have become the same legacy task or
   * are parts of it.
   */
  taskRequestOf(client: ClientChannel): ClientRequest | undefined {
    const requests = this.#records
      .filter(
        ({ isClientRequest, channel }) =>
          isClientRequest === true && (channel ?? client) === client,
      )
      .map(({ clientRequest }) => clientRequest);
    const last = requests.at(-1);
    const isSame =
      last?.taskId !== undefined && requests.every((one) => one?.taskId === last.taskId);
    return isSame ? last : undefined;
  }

  /**
   * Whether an abandoned request of another client may still be open at the server.
   * @param client the client's id; undefined if the client cannot be told apart from others. In that case, every
   * abandoned request may be another client's
   */
  isUnansweredForOthers(client: string | undefined): boolean {
    if (this.#forgottenUntil > this.#clock.now()) return true;
    return this.#unexpired().some((each) => client === undefined || each.client !== client);
  }

  /** The request that a server's log message belongs to; undefined if it may belong to several clients, or to none. */
  get logRecipient(): PendingRequest | undefined {
    const withLevel = this.#records.filter(({ sender }) => sender?.level !== undefined);
    const [first] = withLevel;
    if (first === undefined || withLevel.some(({ sender }) => sender !== first.sender)) return;
    const client = first.channel?.id;
    const isOfOther = ({ sender, client: other }: UnansweredRequest): boolean =>
      sender?.level !== undefined && (client === undefined || client !== other);
    if (this.#unexpired().some(isOfOther)) return;
    return this.#records.findLast(({ sender }) => sender === first.sender);
  }

  /** Pauses or resumes the deadlines of a client's requests: those in flight, and those sent during the pause. */
  setDeadlinesPaused(client: ClientChannel | undefined, isPaused: boolean): void {
    const count = (this.#pausedClients.get(client) ?? 0) + (isPaused ? 1 : -1);
    if (count > 0) this.#pausedClients.set(client, count);
    else this.#pausedClients.delete(client);
    if (count !== (isPaused ? 1 : 0)) return;
    for (const record of this.#records.values()) {
      if (record.setDeadlinePaused !== undefined && mayBelongTo(record, client))
        record.setDeadlinePaused(isPaused);
    }
  }

  whenIdle(): Promise<void> {
    this.#idle ??= Promise.withResolvers<void>();
    const { promise } = this.#idle;
    this.#resolveIdle();
    return promise;
  }

  nextId(): number {
    return this.#nextId++;
  }

  /**
   * Sends a request with an id from `nextId`. If it cannot be sent, the record's `fail` is called one event-loop turn
   * later.
   */
  send(id: number, record: PendingRequest, message: EncodedMessage): void {
    const sendError =
      this.endCause === undefined
        ? this.#backlogError()
        : this.#endErrorOf(record, this.endCause, "notDelivered");
    if (sendError !== undefined) {
      queueMicrotask(() => record.fail(sendError));
      return;
    }
    this.#records.set(id, record);
    if (record.isClientRequest === true) this.#clientRequestCount++;
    if (this.#pausedClients.size > 0) this.#applyPauses(record);
    const isRemote = mayLoseRequests(this.#transport);
    let sentRequest: SentRequest;
    try {
      sentRequest = this.#transport.send(
        message,
        isRemote ? this.#sendOptionsFor(id, record) : record,
      );
    } catch (error) {
      // A request that could not be sent gets no answer, so nothing else would remove its record.
      this.remove(id);
      throw error;
    }
    if (sentRequest === NO_OP_SENT_REQUEST || !this.#records.has(id)) return;
    sentRequest.request = id;
    this.#sentRequests.set(id, sentRequest);
  }

  /**
   * Pauses the deadline of a new request once for each entry of `#pausedClients` that may be the request's client,
   * because each entry will resume the deadline separately.
   */
  #applyPauses(record: PendingRequest): void {
    for (const client of this.#pausedClients.keys())
      if (mayBelongTo(record, client)) record.setDeadlinePaused?.(true);
  }

  /** The send options for HTTP, where a single request may be lost while the transport stays open. */
  #sendOptionsFor(id: number, record: PendingRequest): SendOptions {
    const { method, name, headers } = record;
    return {
      method,
      name,
      client: record.channel?.id,
      id,
      headers: headers ?? (this.sendsParamHeaders ? record.paramHeaders : undefined),
      unanswered: (cause) => {
        if (this.remove(id) === undefined) return;
        if (cause.code === "answerLost") this.#rememberAbandoned(id, record);
        this.#onLost(record);
        record.fail(cause);
      },
    };
  }

  /** Sends one of the hub's own requests and ignores the answer. @returns the request's id */
  sendWithoutWaiting(
    method: string,
    params?: object,
    fail: (error: HubError) => void = ignore,
  ): number {
    const id = this.nextId();
    const name = nameOf(params);
    const record = { method, name, onResponse: ignore, fail, onProgress: ignore };
    this.send(id, record, buildRequest(id, method, params));
    return id;
  }

  /**
   * Sends one of the hub's own requests. When the signal, which is not aborted yet, is aborted, `cancel` must remove the record.
   * @param id see `nextId`
   * @param headers HTTP headers besides those of the transport
   * @throws the signal's reason, or {HubError} if the transport ends or the request is not answered
   */
  sendRequest(
    id: number,
    method: string,
    params: object | undefined,
    signal: AbortSignal,
    cancel: (id: number) => void,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        cancel(id);
        reject(signal.reason);
      };
      const settle = <T>(finish: (value: T) => void, value: T): void => {
        signal.removeEventListener("abort", abort);
        finish(value);
      };
      signal.addEventListener("abort", abort, { once: true });
      const record: PendingRequest = {
        method,
        name: nameOf(params),
        headers,
        onResponse: (response) => settle(resolve, response),
        fail: (error) => settle(reject, error),
        onProgress: () => {},
      };
      this.send(id, record, buildRequest(id, method, params));
    });
  }

  /** The id of the only request in flight, if it is a client's or opens the session; else undefined. */
  get onlyAwaited(): number | undefined {
    if (this.#records.size !== 1) return undefined;
    const [[id, record] = []] = this.#records.entries();
    const isAwaited =
      record?.isClientRequest === true ||
      record?.method === Method.initialize ||
      record?.method === ModernMethod.discover;
    return isAwaited && typeof id === "number" ? id : undefined;
  }

  remove(id: number): PendingRequest | undefined {
    const record = this.#records.remove(id);
    if (record === undefined) return undefined;
    if (record.isClientRequest === true) this.#clientRequestCount--;
    if (this.#sentRequests.size > 0) this.#sentRequests.remove(id);
    if (this.#idle !== undefined) this.#resolveIdle();
    return record;
  }

  /** Fails the request that an oversized message answers. @returns a warning if the message answers no request */
  failOversized(head: Buffer, tail: Buffer, size: number): string | undefined {
    const server = this.#server;
    const edges = parseTruncated(head, tail);
    const text = `Server "${server}" sent a message of ${size} bytes, which is over the limit (maxMessage).`;
    const id = edges?.kind === "response" ? Number(edges.id.key) : undefined;
    const record = id === undefined ? undefined : this.remove(id);
    if (record === undefined && id !== undefined) this.onLateResponse(id);
    record?.fail(new HubError("messageTooLarge", text, { server }));
    return record === undefined ? text : undefined;
  }

  /**
   * Fails the request that an invalid message seems to answer, so that nobody waits for an answer that has come.
   * @returns whether there is such a request
   */
  failInvalid(message: InvalidMessage): boolean {
    const id = findResponseId(message);
    const record = id === undefined ? undefined : this.remove(id);
    if (record === undefined) return false;
    this.#onLost(record);
    const redactor = { apply: (text: string) => this.#transport.redact?.(text) ?? text };
    const said = saidInBytes(message.bytes, message, redactor);
    record.fail(invalidAnswerError(this.#server, message.reason, said));
    return true;
  }

  /**
   * Handles an answer to a request that is not in flight. If the request was abandoned, it is no longer open at the
   * server, so it is forgotten.
   */
  onLateResponse(id: number): void {
    this.#unanswered.delete(id);
  }

  /** Removes the record of a request whose answer is no longer needed. @returns the record, if there was one */
  abandon(id: number): PendingRequest | undefined {
    const sentRequest = this.#sentRequests.get(id);
    const record = this.remove(id);
    if (record?.channel !== undefined) this.#rememberAbandoned(id, record);
    sentRequest?.abandon();
    return record;
  }

  /** Remembers that a request may still be open at the server. */
  #rememberAbandoned(id: number, { channel, sender }: PendingRequest): void {
    if (channel === undefined) return;
    const until = this.#clock.now() + UNANSWERED_TTL;
    this.#unanswered.set(id, { client: channel.id, sender, expiresAt: until });
    const [oldest] = this.#unanswered;
    if (this.#unanswered.size <= MAX_UNANSWERED || oldest === undefined) return;
    this.#unanswered.delete(oldest[0]);
    this.#forgottenUntil = oldest[1].expiresAt;
  }

  /** The abandoned requests that may still be open. */
  #unexpired(): UnansweredRequest[] {
    const now = this.#clock.now();
    for (const [id, { expiresAt }] of this.#unanswered) {
      if (expiresAt > now) break;
      this.#unanswered.delete(id);
    }
    return [...this.#unanswered.values()];
  }

  /**
   * Fails all requests in flight. Requests that are sent later fail, too, with the first `cause` that was passed to
   * this method.
   */
  fail(cause: HubError): void {
    this.endCause ??= cause;
    const records = this.#records.values();
    this.#records.clear();
    this.#clientRequestCount = 0;
    this.#sentRequests.clear();
    this.#unanswered.clear();
    for (const record of records) record.fail(this.#endErrorOf(record, cause, "answerLost"));
    this.#resolveIdle();
  }

  /**
   * The error with which a request fails when the transport ends. Over HTTP, its code allows a client's request to be
   * retried on the next transport.
   */
  #endErrorOf(
    record: PendingRequest,
    cause: HubError,
    code: "answerLost" | "notDelivered",
  ): HubError {
    const isOwn = record.isClientRequest !== true || !mayLoseRequests(this.#transport);
    // The hub's own requests and all requests over stdio get the error unchanged. If the transport was closed on
    // purpose, the error is not retryable, and all requests get it unchanged.
    if (isOwn || !cause.properties.retryable) return cause;
    const { message, server } = cause;
    return new HubError(code, message, { server, cause });
  }

  #resolveIdle(): void {
    if (this.#clientRequestCount > 0) return;
    this.#idle?.resolve();
    this.#idle = undefined;
  }

  #backlogError(): HubError | undefined {
    if (this.#transport.queued < MAX_BACKLOG) return undefined;
    const text = `Server "${this.#server}" does not read what it is sent.`;
    return new HubError("notReading", text, { server: this.#server });
  }
}

const ignore = (): void => {};

/** Whether the request may be the client's. A plugin's request may be any client's. */
function mayBelongTo({ channel }: PendingRequest, client: ClientChannel | undefined): boolean {
  return client === undefined || channel === undefined || channel === client;
}

/** Returns the `Mcp-Name` header of one of the hub's own requests. Only requests about tasks have this header. */
function nameOf(params: object | undefined): string | undefined {
  const id: unknown = params !== undefined && "taskId" in params ? params.taskId : undefined;
  return typeof id === "string" ? id : undefined;
}
