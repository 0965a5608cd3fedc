import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { Method } from "../protocol/legacy.ts";
import { lowestSeverityOf, type LogSeverity } from "../protocol/log-level.ts";
import { TaskMethod } from "../protocol/tasks.ts";
import {
  buildError,
  buildResult,
  type RequestId,
  type Notification,
  type Request,
  type Response,
  bytesOf,
} from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import { ServerRequests, type ServerRequestsOptions } from "./server-requests.ts";
import { type ClientChannel, type ClientRequest, onlyClientOf } from "./audience.ts";
import { UrlElicitations } from "./elicitations.ts";
import type { ServerTask } from "./tasks.ts";
import type { PendingRequest, PendingRequests } from "./pending.ts";
import {
  readElicitationComplete,
  readLogMessage,
  prefixLogMessage,
} from "../protocol/notifications.ts";

export interface ServerNotificationsOptions extends Pick<
  ServerRequestsOptions,
  "server" | "clients" | "attribution" | "clock" | "warn"
> {
  readonly link: Transport;
  /** What the server has yet to answer. */
  readonly pending: PendingRequests;
  /** A line of the server's log. */
  log(text: string): void;
  /** Has the server do what it may be asked for twice, whatever comes of it. */
  request(method: string, params: object): void;
}

const DEFAULT_LEVEL: LogSeverity = "info";
const EMPTY_RESULT = utf8("{}");
/** A server's own requests are not answered while it has not taken so many bytes. */
const MAX_UNREAD = 16 * 1024 * 1024;

/** What one server says of its own accord, and the clients whom it may concern. */
export class ServerNotifications {
  readonly #parts: ServerNotificationsOptions;
  readonly #asks: ServerRequests;
  /** It is told what happens, as servers are that keep what they are told. */
  #isTold = false;
  readonly #elicitations = new UrlElicitations();
  /** Whether its log has levels, and the one that it was last told. */
  #hasLevels = false;
  #level: LogSeverity | undefined;

  constructor(parts: ServerNotificationsOptions) {
    this.#parts = parts;
    const { link, pending } = parts;
    this.#asks = new ServerRequests({
      ...parts,
      send: (message) => void link.send(message),
      hasCallsOf: (client) => pending.isBusyFor(client),
      suspendDeadlines: (client, halted) => pending.halt(client, halted),
      onUrlElicitation: (id, client) => this.#elicitations.add(id, client),
    });
  }

  /** The server can be told things now. */
  begin(hasLevels: boolean): void {
    this.#isTold = true;
    this.#hasLevels = hasLevels;
    this.adjustLevel();
  }

  /** Tells the server the lowest level that one of its clients wants, if that is another than before. */
  adjustLevel(): void {
    if (!this.#hasLevels) return;
    const clients = this.#parts.clients.current();
    // What those want who have left is forgotten; without any wish a server decides itself.
    const unwanted = this.#level && DEFAULT_LEVEL;
    const level = lowestSeverityOf(clients.flatMap((client) => client.level ?? [])) ?? unwanted;
    if (level === undefined || level === this.#level) return;
    this.#level = level;
    this.#parts.request(Method.setLevel, { level });
  }

  /** A client has left. */
  left(client: ClientChannel): void {
    this.#elicitations.removeClient(client);
    this.adjustLevel();
  }

  /** The answer to a client's request is an error; undefined: one of somebody whom the server cannot tell anything. */
  refused(response: Response, client: ClientChannel | undefined): void {
    this.#elicitations.addFromError(response, client);
  }

  /** A request of its own. @param job the task that it belongs to @param record the request on whose stream it came */
  asked(request: Request, job?: ServerTask, record?: PendingRequest): void {
    const { link } = this.#parts;
    // Who goes on asking and reads no answer would have them pile up here without end.
    if (link.queued > MAX_UNREAD) return;
    if (request.method !== Method.ping) this.#asks.handle(request, job, record);
    else link.send(buildResult(request.id, EMPTY_RESULT));
  }

  /** A request that servers of its era must not send. */
  refuse(id: RequestId, method: string): void {
    const { link, server } = this.#parts;
    if (link.queued > MAX_UNREAD) return;
    const text = `Server "${server}" sent a request "${method}", which its protocol revision does not have.`;
    link.send(buildError(id, new HubError("methodNotFound", text, { server }).toRpc()));
  }

  /**
   * A notification that is none of what the hub itself has asked for.
   * @param job the task that it belongs to
   * @param record the request on whose stream it came
   */
  notified(notification: Notification, job?: ServerTask, record?: PendingRequest): void {
    const { server } = this.#parts;
    const occasion = job === undefined ? record?.occasion : undefined;
    switch (notification.method) {
      case Method.cancelled:
        this.#asks.cancel(notification);
        return;
      case Method.elicitationComplete:
        for (const holder of this.#holders(notification, job, occasion)) {
          holder.notify(server, bytesOf(notification));
        }
        return;
      case TaskMethod.status:
        job?.onStatus(notification);
        return;
      case Method.message: {
        const line = prefixLogMessage(server, notification);
        if (line !== undefined) {
          const { severity, message } = line;
          const client = job?.origin.client ?? this.#readerOf(notification);
          if (occasion === undefined) client?.sendLogMessage(server, severity, message);
          else occasion.log(severity, message);
        }
        const text = readLogMessage(notification);
        if (text !== undefined) this.#parts.log(text);
      }
    }
  }

  /** Who was given the elicitation that is complete, or, if that is not known, who alone is there. */
  #holders(
    notification: Notification,
    job: ServerTask | undefined,
    occasion: ClientRequest | undefined,
  ): Iterable<ClientChannel> {
    const id = readElicitationComplete(notification);
    const known = id === undefined ? undefined : this.#elicitations.complete(id);
    const only =
      job?.origin.client ?? occasion?.channel ?? this.#parts.attribution.clientOf(notification);
    return known ?? (only === undefined ? [] : [only]);
  }

  /** The client that a line of the log is for, which says nothing of its request: among several, one that has set a level. */
  #readerOf(notification: Notification): ClientChannel | undefined {
    const { attribution } = this.#parts;
    const client = attribution.clientOf(notification);
    return client?.level === undefined && attribution.isShared ? undefined : client;
  }

  /** The roots of a client are others: tells the server, if it may know of them. */
  rootsChanged(notification: Notification): void {
    const { clients: audience, link } = this.#parts;
    if (this.#isTold && audience.capabilities.roots && onlyClientOf(audience))
      link.send(bytesOf(notification));
  }

  /** A request was given up; if it was the last of its client that the server was at work for, what it asks for its sake is over. */
  abandon(): void {
    if (this.#asks.hasOpen) this.#asks.onRequestCancelled();
  }

  /** A request has ended, in whatever way: what was asked on its stream is over. */
  settled(record: PendingRequest): void {
    if (this.#asks.hasOpen) this.#asks.onRequestEnded(record);
  }

  /** The server is gone. */
  close(): void {
    this.#asks.close();
  }
}
