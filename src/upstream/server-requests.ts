import {
  applyEdits,
  type ByteRange,
  type Edit,
  makeSlice,
  type Piece,
  utf8,
} from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { type ErrorCode, HubError, toHubError } from "../base/errors.ts";
import { JsonObject } from "../base/json.ts";
import {
  buildError,
  buildResponse,
  editsOf,
  type EncodedMessage,
  type Notification,
  replaceRanges,
  type Request,
  type RequestId,
  type Response,
} from "../jsonrpc/message.ts";
import type { Capabilities } from "../protocol/capabilities.ts";
import { isServerRequestMethod, Method, type ServerRequestMethod } from "../protocol/legacy.ts";
import { type CancelReason, readCancelled, readProgressTokens } from "../protocol/notifications.ts";
import { readRelatedTaskReference, removeTaskParam } from "../protocol/tasks.ts";
import type { Transport } from "../transport/transport.ts";
import type { MessageAttribution, MessageOrigin } from "./attribution.ts";
import { unknownMethodText } from "./handshake-result.ts";
import type { PendingRequest, PendingRequests } from "./pending.ts";
import type {
  ClientChannel,
  ConnectionClients,
  ServerRequestTarget,
  ServerRequest,
} from "./profile.ts";
import type { Task } from "./tasks.ts";

/** The content of a request that a server sends to a client. */
export interface ServerRequestContent {
  readonly method: ServerRequestMethod;
  /** The JSON text of the server's progress token, if there is one. */
  readonly token: Piece | undefined;
  /** The `elicitationId`; undefined unless the request is an elicitation in URL mode. */
  readonly elicitation: string | undefined;
  /** Returns the params with another progress token. */
  params(token: Piece): readonly Piece[] | undefined;
}

/**
 * Reads a server's request to a client, and adds the server's name to the texts that people will see.
 * @param displayName the server's name for people
 * @throws {HubError} methodNotFound or invalidParams if the capabilities of the client do not allow the request
 */
export function readServerRequest(
  displayName: string,
  request: Pick<Request, "method" | "params"> & { readonly bytes: Uint8Array },
  capabilities: Capabilities,
): ServerRequestContent {
  const { method, bytes } = request;
  // Params that are null are none: clients would refuse them.
  const isNone = request.params === undefined || bytes[request.params.start] === NULL_START;
  const params = isNone ? undefined : request.params;
  if (!isServerRequestMethod(method)) {
    throw new HubError("methodNotFound", unknownMethodText(method));
  }
  const object = JsonObject.at(bytes, params);
  const error = missingCapabilityError(method, object, capabilities);
  if (error !== undefined) throw error;
  const tokens = readProgressTokens(object);
  const last = tokens.at(-1);
  // No client declares that it runs requests as tasks, so `task` is ignored (2025-11-25, tasks).
  const edits = params === undefined ? [] : [...removeTaskParam(params, object)];
  if (method === Method.elicitationCreate) edits.push(...prefixServerName(displayName, object));
  return {
    method,
    token: last && makeSlice(bytes, last.start, last.end),
    elicitation: isUrlElicitation(method, object) ? object.string("elicitationId") : undefined,
    params: (token) => params && editRange(bytes, params, [...edits, ...editsOf(tokens, token)]),
  };
}

function missingCapabilityError(
  method: ServerRequestMethod,
  params: JsonObject,
  { roots, sampling, elicitation }: Capabilities,
): HubError | undefined {
  const missingParam = (feature: string, requiredCapabilities: Capabilities): HubError =>
    capabilityError(
      "invalidParams",
      `The client cannot be asked for ${feature}.`,
      requiredCapabilities,
    );
  const missingMethod = (requiredCapabilities: Capabilities): HubError =>
    capabilityError(
      "methodNotFound",
      `The client cannot be asked for "${method}".`,
      requiredCapabilities,
    );
  switch (method) {
    case Method.rootsList:
      return roots === undefined ? missingMethod({ roots: {} }) : undefined;
    case Method.createMessage: {
      if (sampling === undefined) return missingMethod({ sampling: {} });
      const usesTools = ["tools", "toolChoice"].some((key) => params.member(key) !== undefined);
      return usesTools && sampling.tools === undefined
        ? missingParam("sampling with tools", { sampling: { tools: {} } })
        : undefined;
    }
    case Method.elicitationCreate: {
      const mode = params.string("mode") ?? "form";
      if (elicitation === undefined) {
        return missingMethod({ elicitation: mode === "url" ? { url: {} } : { form: {} } });
      }
      if (mode === "url" && elicitation.url === undefined) {
        return missingParam("an elicitation by URL", { elicitation: { url: {} } });
      }
      if (mode === "form" && elicitation.form === undefined) {
        return missingParam("an elicitation by form", { elicitation: { form: {} } });
      }
      return undefined;
    }
  }
}

export function isUrlElicitation(method: string, params: JsonObject): boolean {
  return method === Method.elicitationCreate && params.string("mode") === "url";
}

function capabilityError(
  code: ErrorCode,
  text: string,
  requiredCapabilities: Capabilities,
): HubError {
  return new HubError(code, text, { data: { requiredCapabilities } });
}

/** Returns the client capabilities that are missing, if that is the reason of the error. */
export function missingCapabilityOf({ data }: HubError): object | undefined {
  const requiredCapabilities = data?.["requiredCapabilities"];
  return typeof requiredCapabilities === "object" && requiredCapabilities !== null
    ? requiredCapabilities
    : undefined;
}

/** Edits that put the server's name before the message, so that the user knows which server has sent the request. */
export function prefixServerName(displayName: string, params: JsonObject): Edit[] {
  const name = JSON.stringify(`[${displayName}] `).slice(0, -1);
  return params
    .all("message")
    .flatMap(({ start }) =>
      params.bytes[start] === QUOTE ? [{ start, end: start + 1, replacement: utf8(name) }] : [],
    );
}
const QUOTE = 0x22;
const NULL_START = 0x6e;

/** Applies the edits that lie in a range, and returns the range's bytes. */
function editRange(
  bytes: Uint8Array,
  { start, end }: ByteRange,
  edits: readonly Edit[],
): readonly Piece[] {
  return applyEdits(bytes.subarray(0, end), [{ start: 0, end: start, replacement: "" }, ...edits]);
}

export interface ServerRequestsOptions {
  readonly server: string;
  /** The server's name for people. */
  readonly displayName: string;
  readonly clients: ConnectionClients;
  readonly attribution: MessageAttribution;
  readonly clock: Clock;
  readonly transport: Transport;
  readonly pending: PendingRequests;
  warn(text: string): void;
}

/** Maximum time for a user's answer, in ms. */
const ANSWER_TIMEOUT = 10 * 60_000;
const MAX_OPEN_REQUESTS = 32;
/**
 * Maximum time for which a request is held while it is not known whether a client sees anything of the server, in ms.
 */
const MAX_HOLD = 5000;

/** Handles the requests of one server to its clients, from the arrival of a request to its response. */
export class ServerRequests {
  readonly #options: ServerRequestsOptions;
  /** The open requests by request id, which the server has chosen. */
  readonly #open = new Map<string | number, OpenServerRequest>();
  /** Requests that wait for the server's listing, by request id: until then it is not known which clients see it. */
  readonly #held = new Map<
    string | number,
    { readonly request: Request; readonly origin: MessageOrigin }
  >();
  #cancelHold: () => void = () => {};

  constructor(options: ServerRequestsOptions) {
    this.#options = options;
  }

  /** Sends the server's request to the client that it belongs to, or answers the server with an error. */
  handle(request: Request, origin: MessageOrigin): void {
    const { attribution, clock } = this.#options;
    const { key } = request.id;
    if (attribution.isUndecided && this.#held.size < MAX_OPEN_REQUESTS && !this.#held.has(key)) {
      if (this.#held.size === 0) this.#cancelHold = clock.after(MAX_HOLD, () => this.#release());
      this.#held.set(key, { request, origin });
      return;
    }
    this.#handle(request, origin);
  }

  /** Called when the server has listed its items, so that it is known which clients see any of them. */
  onListed(): void {
    if (this.#held.size > 0) this.#release();
  }

  #release(): void {
    this.#cancelHold();
    const held = [...this.#held.values()];
    this.#held.clear();
    for (const { request, origin } of held) this.#handle(request, origin);
  }

  #handle(request: Request, origin: MessageOrigin): void {
    try {
      this.#send(request, origin);
    } catch (thrown) {
      const error = toHubError(thrown);
      const requiredCapabilities = missingCapabilityOf(error);
      if (requiredCapabilities !== undefined)
        this.#reportMissingCapability(request, requiredCapabilities, origin);
      this.#options.transport.send(buildError(request.id, error.toRpc()));
    }
  }

  /**
   * Ends the server's requests that arrived on the response stream of a client's request, because the client's request
   * has ended.
   */
  onRequestEnded(record: PendingRequest): void {
    // This method runs for each response, so it returns early for the many servers without an open request.
    if (this.#open.size === 0) return;
    for (const open of this.#open.values()) {
      if (open.record === record) open.endWithError("The call that needed this request has ended.");
    }
  }

  /**
   * Called when a client has cancelled a call. Ends the server's requests to a client that has no other call in flight
   * at the server, because the reason for these requests is gone.
   */
  onRequestCancelled(): void {
    for (const open of this.#open.values()) {
      if (!open.isDuringCalls || open.record !== undefined) continue;
      if (!this.#options.pending.hasRequestsOf(open.client))
        open.endWithError("The call that needed this request has ended.");
    }
  }

  /** Handles the server's `notifications/cancelled`. */
  cancel(notification: Notification): void {
    const cancelled = readCancelled(notification);
    if (cancelled === undefined || this.#held.delete(cancelled.key)) return;
    this.#open.get(cancelled.key)?.cancel({ notification, ids: cancelled.ids });
  }

  /** Cancels all open requests at the clients, because the connection has closed. */
  close(): void {
    this.#cancelHold();
    this.#held.clear();
    for (const open of this.#open.values())
      open.cancel(`Server "${this.#options.server}" has ended.`);
  }

  /**
   * Sends a request to the client that it belongs to.
   * @throws {HubError} methodNotFound, invalidParams, invalidRequest or notAsked
   */
  #send(request: Request, { task, record }: MessageOrigin): void {
    const { server, displayName, clients, attribution, pending } = this.#options;
    if (clients.isForEverybody && isServerRequestMethod(request.method))
      throw asksNobodyError(server, request.method);
    const content = readServerRequest(displayName, request, clients.capabilities);
    const clientRequest = task === undefined ? record?.clientRequest : undefined;
    const client = attribution.clientOf(request, { task, record });
    const owner = task?.origin.client ?? clientRequest?.channel;
    if (owner !== undefined && !attribution.isSeenBy(owner)) throw noClientError(server);
    const taskRequest =
      task === undefined && client?.era === "legacy" ? pending.taskRequestOf(client) : undefined;
    const target = clientRequest ?? taskRequest ?? client ?? this.#unattributableError();
    const { key } = request.id;
    if (this.#open.has(key))
      throw new HubError("invalidRequest", "A request with this id is still open.");
    if (this.#open.size === MAX_OPEN_REQUESTS) {
      const text = `More than ${MAX_OPEN_REQUESTS} requests are open.`;
      throw new HubError("notAsked", text, { server });
    }
    const open = new OpenServerRequest(request.id, content, {
      ...this.#options,
      task,
      client,
      record: clientRequest && record,
      isDuringCalls: task === undefined && pending.hasRequestsOf(client),
      onEnd: () => void this.#open.delete(key),
    });
    this.#open.set(key, open);
    open.send(target);
  }

  #reportMissingCapability(
    request: Request,
    requiredCapabilities: object,
    { task, record }: MessageOrigin,
  ): void {
    const { server, attribution } = this.#options;
    const clientRequest = task === undefined ? record?.clientRequest : undefined;
    const { channel } = clientRequest ?? {};
    if (channel !== undefined && !attribution.isSeenBy(channel)) return;
    if (clientRequest?.onMissingCapability !== undefined) {
      clientRequest.onMissingCapability(requiredCapabilities);
      return;
    }
    const client = attribution.clientOf(request, { task, record });
    client?.onMissingCapability?.(server, requiredCapabilities);
  }

  #unattributableError(): never {
    const { server, attribution } = this.#options;
    const count = attribution.clientCount;
    if (count === 0) throw noClientError(server);
    const whom = count > 1 ? `one of the ${count} clients that share it` : "a client";
    const text = `Server "${server}" asks ${whom}, and the hub cannot tell which one: set isolation = "perClient" for it.`;
    this.#options.warn(text);
    throw new HubError("notAsked", text, { server });
  }
}

/** The refusal of a request of a server that is one for all clients, which was told that no client can be asked. */
export function asksNobodyError(server: string, method: string): HubError {
  const text = `Server "${server}" may not send "${method}": it is one for all clients (isolation = "one"), so it can ask none of them. Set isolation = "shared" or "perClient" for it.`;
  return new HubError("notAsked", text, { server });
}

/** The refusal of a request for which there is no client, or only clients that see nothing of the server. */
export function noClientError(server: string): HubError {
  return new HubError("notAsked", `There is no client that server "${server}" could ask.`);
}

interface OpenServerRequestOptions extends Pick<
  ServerRequestsOptions,
  "server" | "clock" | "transport" | "pending"
> {
  readonly task: Task | undefined;
  /** The client that has to answer; undefined if it is not known. */
  readonly client: ClientChannel | undefined;
  /**
   * The client's request on whose response stream the server's request arrived; undefined if that is not known. Until
   * the client has answered, the deadline of this request is paused; if the request is not known, the deadlines of all
   * the client's requests to the server are paused.
   */
  readonly record: PendingRequest | undefined;
  /** Whether the server's request arrived while calls of the client were in flight. */
  readonly isDuringCalls: boolean;
  onEnd(): void;
}

class OpenServerRequest implements ServerRequest {
  readonly server: string;
  readonly method: ServerRequestContent["method"];
  readonly params: ServerRequestContent["params"];
  readonly client: ClientChannel | undefined;
  readonly record: PendingRequest | undefined;
  readonly isDuringCalls: boolean;
  readonly #id: RequestId;
  readonly #content: ServerRequestContent;
  readonly #options: OpenServerRequestOptions;
  #isOver = false;
  #cancelTimer: () => void = () => {};
  #cancelAtClient: (reason: CancelReason) => void = () => {};

  constructor(id: RequestId, content: ServerRequestContent, options: OpenServerRequestOptions) {
    this.#id = id;
    this.#content = content;
    this.#options = options;
    this.server = options.server;
    this.method = content.method;
    this.params = (token) => content.params(token);
    this.client = options.client;
    this.record = options.record;
    this.isDuringCalls = options.isDuringCalls;
  }

  send(target: ServerRequestTarget): void {
    this.#setDeadlinesPaused(true);
    this.#cancelTimer = this.#options.clock.after(ANSWER_TIMEOUT, () =>
      this.endWithError(`The client did not answer within ${ANSWER_TIMEOUT / 60_000} minutes.`),
    );
    this.#cancelAtClient = target.sendServerRequest(this);
  }

  answer(outcome: Response["outcome"], body: Uint8Array): void {
    const { task } = this.#options;
    // The client's result contains the hub's id of the task; the server expects its own id.
    const result =
      task === undefined || outcome === "error"
        ? [body]
        : applyEdits(body, task.toRemoteId(readRelatedTaskReference(JsonObject.of(body))));
    this.#finish(buildResponse(this.#id, outcome, ...result));
  }

  fail(error: HubError): void {
    this.#finish(buildError(this.#id, error.toRpc()));
  }

  progress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { token } = this.#content;
    if (token !== undefined)
      this.#options.transport.send(replaceRanges(notification, tokens, token));
  }

  /** Cancels the request at the client. The server gets no response. */
  cancel(reason: CancelReason): void {
    this.#cancelAtClient(reason);
    this.#finish(undefined);
  }

  /** Cancels the request at the client. The server gets an error. */
  endWithError(text: string): void {
    this.#cancelAtClient(text);
    this.fail(new HubError("notAsked", text, { server: this.server }));
  }

  #finish(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#options.onEnd();
    this.#setDeadlinesPaused(false);
    if (message !== undefined) this.#options.transport.send(message);
  }

  /**
   * Pauses or resumes the deadline of the call on whose response stream the request arrived. If that call is not known,
   * does so with the deadlines of all calls of the client.
   */
  #setDeadlinesPaused(isPaused: boolean): void {
    if (this.record === undefined) this.#options.pending.setDeadlinesPaused(this.client, isPaused);
    else this.record.setDeadlinePaused?.(isPaused);
  }
}
