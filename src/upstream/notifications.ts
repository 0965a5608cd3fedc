import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import {
  bodyOf,
  buildError,
  buildResult,
  bytesOf,
  type Notification,
  type Request,
  type RequestId,
  type Response,
} from "../jsonrpc/message.ts";
import { Method } from "../protocol/legacy.ts";
import { type LogSeverity, lowestSeverityOf } from "../protocol/log-level.ts";
import {
  prefixLogMessage,
  readElicitationComplete,
  readLogMessage,
} from "../protocol/notifications.ts";
import { LegacyTaskMethod } from "../protocol/tasks.ts";
import type { Transport } from "../transport/transport.ts";
import type { PendingRequests, PendingRequest } from "./pending.ts";
import { type ClientChannel, type ClientRequest, onlyClientOf } from "./profile.ts";
import { type ServerRequestsOptions, ServerRequests } from "./server-requests.ts";
import type { ServerTask } from "./tasks.ts";

/**
 * Maximum number of remembered elicitations, latest first; ids longer than `MAX_ELICITATION_ID_LENGTH` UTF-16 units are
 * not remembered.
 */
const MAX_ELICITATIONS = 256;
const MAX_ELICITATION_ID_LENGTH = 1024;
/** Error responses longer than this, in bytes, are not searched for elicitations. */
const MAX_ERROR_BYTES = 64 * 1024;
/** The JSON-RPC error code of URLElicitationRequiredError (schema): the request needs the user to open a URL first. */
const URL_ELICITATION_REQUIRED = -32042;

/** The URL elicitations of one server by `elicitationId`, and the clients that got them. */
export class UrlElicitations {
  /** Ordered by when they were last sent. */
  readonly #recipients = new Map<string, Set<ClientChannel>>();

  /** The server asks a client to open a URL. @param client undefined: a client that cannot be sent notifications */
  add(id: string, client: ClientChannel | undefined): void {
    if (id.length > MAX_ELICITATION_ID_LENGTH) return;
    const recipients = this.#recipients.get(id) ?? new Set();
    if (client !== undefined) recipients.add(client);
    this.#recipients.delete(id);
    this.#recipients.set(id, recipients);
    const [oldest] = this.#recipients.keys();
    if (this.#recipients.size > MAX_ELICITATIONS && oldest !== undefined)
      this.#recipients.delete(oldest);
  }

  /** Remembers the elicitations that an error response to a client contains (URLElicitationRequiredError). */
  addFromError(response: Response, client: ClientChannel | undefined): void {
    const { body } = response;
    if (body.end - body.start > MAX_ERROR_BYTES) return;
    const error = bodyOf(response);
    if (error.value("code") !== URL_ELICITATION_REQUIRED) return;
    for (const id of readElicitationIds(error.value("data"))) this.add(id, client);
  }

  /** The client has left. Its ids stay known, so that a completion is not taken for another client's elicitation. */
  removeClient(client: ClientChannel): void {
    for (const recipients of this.#recipients.values()) recipients.delete(client);
  }

  /** Forgets a completed elicitation. @returns the clients that got it; undefined if the id is not known */
  complete(id: string): ReadonlySet<ClientChannel> | undefined {
    const recipients = this.#recipients.get(id);
    this.#recipients.delete(id);
    return recipients;
  }
}

function readElicitationIds(data: unknown): readonly string[] {
  const list = memberOf(data, "elicitations");
  if (!Array.isArray(list)) return [];
  return list.map((each) => memberOf(each, "elicitationId")).filter((id) => typeof id === "string");
}

function memberOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Readonly<Record<string, unknown>>)[key]
    : undefined;
}

export interface ServerNotificationsOptions extends Pick<
  ServerRequestsOptions,
  "server" | "clients" | "attribution" | "clock" | "warn"
> {
  readonly transport: Transport;
  /** The requests that the server has not answered. */
  readonly pending: PendingRequests;
  /** Adds a line to the server's log. */
  log(text: string): void;
  /** Sends an idempotent request and ignores the answer. */
  request(method: string, params: object): void;
}

const DEFAULT_LEVEL: LogSeverity = "info";
const EMPTY_RESULT = utf8("{}");
/** Requests of a server are not answered while it has this many unread bytes, or more. */
const MAX_QUEUED_BYTES = 16 * 1024 * 1024;

/** Handles the notifications and requests of one server, and passes them to the clients that they concern. */
export class ServerNotifications {
  readonly #options: ServerNotificationsOptions;
  readonly #serverRequests: ServerRequests;
  /** Whether the server gets notifications: only servers with a session remember them. */
  #acceptsNotifications = false;
  readonly #elicitations = new UrlElicitations();
  /** Whether the server supports `logging/setLevel`, and the level that was set last. */
  #hasLevels = false;
  #level: LogSeverity | undefined;

  constructor(options: ServerNotificationsOptions) {
    this.#options = options;
    const { transport, pending } = options;
    this.#serverRequests = new ServerRequests({
      ...options,
      send: (message) => void transport.send(message),
      hasCallsOf: (client) => pending.hasRequestsOf(client),
      suspendDeadlines: (client, isPaused) => pending.setDeadlinesPaused(client, isPaused),
      onUrlElicitation: (id, client) => this.#elicitations.add(id, client),
    });
  }

  /** The handshake is complete, and notifications can be sent. */
  onHandshake(hasLevels: boolean): void {
    this.#acceptsNotifications = true;
    this.#hasLevels = hasLevels;
    this.updateLevel();
  }

  /** Sets the lowest log level that any of the server's clients wants, if that has changed. */
  updateLevel(): void {
    if (!this.#hasLevels) return;
    const clients = this.#options.clients.current();
    // The levels of clients that left no longer count. If no client has set one, the server decides again.
    const resetLevel = this.#level && DEFAULT_LEVEL;
    const level = lowestSeverityOf(clients.flatMap((client) => client.level ?? [])) ?? resetLevel;
    if (level === undefined || level === this.#level) return;
    this.#level = level;
    this.#options.request(Method.setLevel, { level });
  }

  /** A client has left. */
  onClientLeft(client: ClientChannel): void {
    this.#elicitations.removeClient(client);
    this.updateLevel();
  }

  /**
   * A client's request was answered with an error. @param client undefined: a client that cannot be sent notifications
   */
  onRefused(response: Response, client: ClientChannel | undefined): void {
    this.#elicitations.addFromError(response, client);
  }

  /**
   * Handles a request of the server.
   * @param serverTask the task that it belongs to
   * @param record the request on whose stream it arrived
   */
  onServerRequest(request: Request, serverTask?: ServerTask, record?: PendingRequest): void {
    const { transport } = this.#options;
    // If a server keeps sending requests but reads no answers, the answers would pile up here.
    if (transport.queued > MAX_QUEUED_BYTES) return;
    if (request.method !== Method.ping) this.#serverRequests.handle(request, serverTask, record);
    else transport.send(buildResult(request.id, EMPTY_RESULT));
  }

  /** Refuses a request that servers of this era must not send. */
  refuseRequest(id: RequestId, method: string): void {
    const { transport, server } = this.#options;
    if (transport.queued > MAX_QUEUED_BYTES) return;
    const text = `Server "${server}" sent a request "${method}", which its protocol revision does not have.`;
    transport.send(buildError(id, new HubError("methodNotFound", text, { server }).toRpc()));
  }

  /**
   * Handles a notification that is not for the hub itself.
   * @param serverTask the task that it belongs to
   * @param record the request on whose stream it arrived
   */
  onNotification(
    notification: Notification,
    serverTask?: ServerTask,
    record?: PendingRequest,
  ): void {
    const { server } = this.#options;
    const clientRequest = serverTask === undefined ? record?.clientRequest : undefined;
    switch (notification.method) {
      case Method.cancelled:
        this.#serverRequests.cancel(notification);
        return;
      case Method.elicitationComplete:
        for (const holder of this.#recipientsOf(notification, serverTask, clientRequest)) {
          holder.notify(server, bytesOf(notification));
        }
        return;
      case LegacyTaskMethod.status:
        serverTask?.onStatus(notification);
        return;
      case Method.message: {
        const line = prefixLogMessage(server, notification);
        if (line !== undefined) {
          const { severity, message } = line;
          const client = serverTask?.origin.client ?? this.#logRecipientOf(notification);
          if (clientRequest === undefined) client?.sendLogMessage(server, severity, message);
          else clientRequest.log(severity, message);
        }
        const text = readLogMessage(notification);
        if (text !== undefined) this.#options.log(text);
      }
    }
  }

  /** The client to which the completed elicitation was sent; if that is not known, the only client. */
  #recipientsOf(
    notification: Notification,
    serverTask: ServerTask | undefined,
    clientRequest: ClientRequest | undefined,
  ): Iterable<ClientChannel> {
    const id = readElicitationComplete(notification);
    const known = id === undefined ? undefined : this.#elicitations.complete(id);
    const onlyClient =
      serverTask?.origin.client ??
      clientRequest?.channel ??
      this.#options.attribution.clientOf(notification);
    return known ?? (onlyClient === undefined ? [] : [onlyClient]);
  }

  /** The client for a log message that names no request; among several clients, the only one that has set a level. */
  #logRecipientOf(notification: Notification): ClientChannel | undefined {
    const { attribution } = this.#options;
    const client = attribution.clientOf(notification);
    return client?.level === undefined && attribution.isShared ? undefined : client;
  }

  /** A client's roots changed: notifies the server if the client declared `roots.listChanged`. */
  rootsChanged(notification: Notification): void {
    const { clients, transport } = this.#options;
    if (this.#acceptsNotifications && clients.capabilities.roots && onlyClientOf(clients))
      transport.send(bytesOf(notification));
  }

  /**
   * A request was abandoned. If it was the client's last one at the server, server requests to that client are
   * cancelled.
   */
  onRequestCancelled(): void {
    if (this.#serverRequests.hasOpen) this.#serverRequests.onRequestCancelled();
  }

  /** A request has ended: server requests on its stream are cancelled. */
  onRequestEnded(record: PendingRequest): void {
    if (this.#serverRequests.hasOpen) this.#serverRequests.onRequestEnded(record);
  }

  /** The connection has closed. */
  close(): void {
    this.#serverRequests.close();
  }
}
