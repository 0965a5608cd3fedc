import type { ByteRange } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { isTaskMethod, TaskMethod, type TaskMethodName } from "../protocol/tasks.ts";
import {
  buildResponse,
  buildError,
  type RequestId,
  type EncodedMessage,
  type Notification,
  type Request,
  type Response,
  replaceRanges,
} from "../jsonrpc/message.ts";
import type { ServerRequestTarget, ServerRequest } from "./ask.ts";
import type { MessageAttribution } from "./attribution.ts";
import type { ClientChannel, ConnectionClients, ClientRequest } from "./audience.ts";
import type { ClientTask } from "../protocol/errand.ts";
import { ClientTasks, type ClientTaskResult } from "./errands.ts";
import type { ServerTask } from "./tasks.ts";
import { readCancelled } from "../protocol/notifications.ts";
import type { PendingRequest } from "./pending.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import {
  type ServerRequestContent,
  checkTaskCapability,
  missingCapabilityOf,
  readServerRequest,
} from "./question.ts";

export interface ServerRequestsOptions {
  readonly server: string;
  readonly clients: ConnectionClients;
  readonly attribution: MessageAttribution;
  readonly clock: Clock;
  send(message: EncodedMessage): void;
  /** Whether requests of that client are in flight at the server; undefined: of any client. */
  hasCallsOf(client: ClientChannel | undefined): boolean;
  /** Suspends or resumes the deadlines of that client's calls; undefined: of calls whose client is not known. */
  suspendDeadlines(client: ClientChannel | undefined, isSuspended: boolean): void;
  warn(text: string): void;
  /** The server asks the client to open a URL. */
  onUrlElicitation(id: string, client: ClientChannel): void;
}

/** How long a user may take to answer, in ms. */
const ANSWER_TIMEOUT = 10 * 60_000;
/** How many requests of one server may be open at a time. */
const MAX_OPEN_REQUESTS = 32;

/** The requests of one server to its clients, each from its arrival until its one response. */
export class ServerRequests {
  readonly #options: ServerRequestsOptions;
  /** By the key of the server's id. */
  readonly #open = new Map<string | number, OpenServerRequest>();

  /** Open requests that suspend the deadlines of all calls of a client. */
  readonly #suspendingClients = new Map<RequestId, ClientChannel | undefined>();
  /** Open requests that suspend the deadline of one call alone. */
  readonly #suspendingCalls = new Map<RequestId, PendingRequest>();
  /** Tasks that clients have created instead of answering at once. */
  readonly #clientTasks: ClientTasks;

  constructor(options: ServerRequestsOptions) {
    this.#options = options;
    this.#clientTasks = new ClientTasks(options);
  }

  get hasOpen(): boolean {
    return this.#open.size > 0;
  }

  /**
   * Sends the request to the one client that it can belong to, or refuses it.
   * @param task the server's task that it belongs to
   * @param record the client's request on whose response stream it came
   */
  handle(request: Request, task: ServerTask | undefined, record: PendingRequest | undefined): void {
    try {
      if (isTaskMethod(request.method)) this.#handleTaskRequest(request, request.method);
      else if (request.method === TaskMethod.list) this.#handleTaskList(request);
      else this.#handleRequest(request, task, record);
    } catch (thrown) {
      const error = toHubError(thrown);
      const requiredCapabilities = missingCapabilityOf(error);
      if (requiredCapabilities !== undefined)
        this.#reportMissingCapability(requiredCapabilities, task, record?.occasion);
      this.#options.send(buildError(request.id, error.toRpc()));
    }
  }

  /** A client's request has ended: ends the server's requests that came on its stream. */
  onRequestEnded(record: PendingRequest): void {
    for (const open of this.#open.values()) {
      if (open.record === record) open.endWithError("The call that it was for is over.");
    }
  }

  /** Handles `notifications/cancelled` of the server. */
  cancel(notification: Notification): void {
    const cancelled = readCancelled(notification);
    if (cancelled === undefined) return;
    this.#open.get(cancelled.key)?.cancel({ notification, ids: cancelled.ids });
  }

  /** A client's request was given up: ends the requests for clients for whom the server has nothing left to do. */
  onRequestCancelled(): void {
    for (const open of this.#open.values()) {
      if (!open.isDuringCalls || open.record !== undefined || this.#options.hasCallsOf(open.client))
        continue;
      open.endWithError("The call that it was for is over.");
    }
  }

  /** The server has ended. */
  close(): void {
    const { server, clients } = this.#options;
    for (const open of this.#open.values()) open.cancel(`Server "${server}" has ended.`);
    this.#clientTasks.close(clients.capabilities.tasks?.cancel !== undefined);
  }

  #handleRequest(
    request: Request,
    task: ServerTask | undefined,
    record: PendingRequest | undefined,
  ): void {
    const { server, clients, attribution } = this.#options;
    const content = readServerRequest(server, request, clients.capabilities);
    const clientRequest = task === undefined ? record?.occasion : undefined;
    const owner = task?.origin.client ?? clientRequest?.channel ?? attribution.clientOf(request);
    const target = clientRequest ?? owner ?? this.#unattributableError();
    const isOfTask = content.isTask || task !== undefined;
    if (content.elicitation !== undefined && owner !== undefined) {
      this.#options.onUrlElicitation(content.elicitation, owner);
    }
    this.#send(request.id, target, content, {
      client: owner,
      isDuringCalls: task === undefined && this.#options.hasCallsOf(owner),
      hasTimeout: true,
      record: clientRequest && record,
      translateResult: isOfTask
        ? (body) => this.#clientTasks.translateResult(body, task, content, target)
        : (body) => ({ result: [body] }),
    });
  }

  /** Sends a request about one client task to the client that runs it. */
  #handleTaskRequest(request: Request, method: TaskMethodName): void {
    checkTaskCapability(method, this.#options.clients.capabilities);
    const content = this.#clientTasks.readTaskRequest(request, method);
    const { task, target: client } = content;
    this.#send(request.id, client, content, {
      client: undefined,
      isDuringCalls: this.#options.hasCallsOf(undefined),
      record: undefined,
      // `tasks/result` is answered when the task has ended.
      hasTimeout: method !== TaskMethod.result,
      translateResult: (body) => this.#clientTasks.translateTaskResult(task, method, body),
    });
  }

  #reportMissingCapability(
    requiredCapabilities: object,
    task: ServerTask | undefined,
    clientRequest: ClientRequest | undefined,
  ): void {
    const { server, attribution } = this.#options;
    if (task === undefined && clientRequest?.onMissingCapability !== undefined)
      clientRequest.onMissingCapability(requiredCapabilities);
    else
      (
        task?.origin.client ??
        clientRequest?.channel ??
        attribution.onlyClient
      )?.onMissingCapability?.(server, requiredCapabilities);
  }

  #handleTaskList(request: Request): void {
    checkTaskCapability(request.method, this.#options.clients.capabilities);
    this.#clientTasks.list(request);
  }

  #send(
    id: RequestId,
    target: ServerRequestTarget,
    content: ServerRequestContent,
    context: OpenRequestContext,
  ): void {
    const { server } = this.#options;
    const { key } = id;
    if (this.#open.has(key)) {
      throw new HubError("invalidRequest", "A request with this id is still open.");
    }
    if (this.#open.size === MAX_OPEN_REQUESTS) {
      throw new HubError("notAsked", `More than ${MAX_OPEN_REQUESTS} requests are open.`, {
        server,
      });
    }
    const open = new OpenServerRequest(id, content, context, {
      ...this.#options,
      resumeDeadlines: () => this.#resumeDeadlines(id, context),
      onEnd: () => void this.#open.delete(key),
    });
    this.#open.set(key, open);
    this.#suspendDeadlines(id, context);
    open.send((serverRequest) => target.sendServerRequest(serverRequest));
  }

  /**
   * Suspends the deadline of the call on whose stream the request came; if that is not known, of all calls of the
   * client.
   */
  #suspendDeadlines(id: RequestId, { record, client }: OpenRequestContext): void {
    if (record !== undefined) {
      this.#suspendingCalls.set(id, record);
      record.setDeadlinePaused?.(true);
      return;
    }
    this.#suspendingClients.set(id, client);
    this.#options.suspendDeadlines(client, true);
  }

  #resumeDeadlines(id: RequestId, { record, client }: OpenRequestContext): void {
    if (record !== undefined) {
      if (this.#suspendingCalls.delete(id)) record.setDeadlinePaused?.(false);
    } else if (this.#suspendingClients.delete(id)) {
      this.#options.suspendDeadlines(client, false);
    }
  }

  #unattributableError(): never {
    const { server, clients } = this.#options;
    const count = clients.current().length;
    if (count === 0) {
      throw new HubError("notAsked", `There is no client that server "${server}" could ask.`);
    }
    const whom = count > 1 ? `one of the ${count} clients that share it` : "a client";
    const text = `Server "${server}" asks ${whom}, and it cannot be told which one, as it has not answered requests of others, or has none of any: it has to be one for each client (isolation = "perClient").`;
    this.#options.warn(text);
    throw new HubError("notAsked", text, { server });
  }
}

/** How one request is handled. */
interface OpenRequestContext {
  /** The client whose calls wait meanwhile; undefined: not known. */
  readonly client: ClientChannel | undefined;
  /** It came while calls of clients were in flight. */
  readonly isDuringCalls: boolean;
  /** The client's request on whose response stream it came, if known. */
  readonly record: PendingRequest | undefined;
  /** Ends with an error after `ANSWER_TIMEOUT`; if false, only the deadlines resume then. */
  readonly hasTimeout: boolean;
  /** Translates the client's result. */
  translateResult(body: Uint8Array): ClientTaskResult;
}

interface OpenServerRequestOptions extends Pick<
  ServerRequestsOptions,
  "server" | "clock" | "send"
> {
  /** Resumes the deadlines of the calls that wait. */
  resumeDeadlines(): void;
  onEnd(): void;
}

/** A request of the server's that is open. */
class OpenServerRequest implements ServerRequest {
  readonly server: string;
  readonly method: ServerRequestContent["method"];
  readonly params: ServerRequestContent["params"];
  readonly #id: RequestId;
  readonly #content: ServerRequestContent;
  readonly #context: OpenRequestContext;
  readonly #options: OpenServerRequestOptions;
  #isOver = false;
  #cancelTimer: () => void = () => {};
  #cancelAtClient: (reason: CancelReason) => void = () => {};

  constructor(
    id: RequestId,
    content: ServerRequestContent,
    context: OpenRequestContext,
    options: OpenServerRequestOptions,
  ) {
    this.#id = id;
    this.#content = content;
    this.#options = options;
    this.#context = context;
    this.server = options.server;
    this.method = content.method;
    this.params = (token) => content.params(token);
  }

  get isDuringCalls(): boolean {
    return this.#context.isDuringCalls;
  }

  get client(): ClientChannel | undefined {
    return this.#context.client;
  }

  get record(): PendingRequest | undefined {
    return this.#context.record;
  }

  send(sendServerRequest: (request: ServerRequest) => (reason: CancelReason) => void): void {
    this.#cancelTimer = this.#options.clock.after(ANSWER_TIMEOUT, () => {
      if (this.#context.hasTimeout)
        this.endWithError(`Nobody answered within ${ANSWER_TIMEOUT / 60_000} minutes.`);
      else this.#options.resumeDeadlines();
    });
    this.#cancelAtClient = sendServerRequest(this);
  }

  answer(outcome: Response["outcome"], body: Uint8Array): ClientTask | undefined {
    const { result, task }: ClientTaskResult =
      outcome === "result" ? this.#context.translateResult(body) : { result: [body] };
    this.#finish(buildResponse(this.#id, outcome, ...result));
    return task;
  }

  fail(error: HubError): void {
    this.#finish(buildError(this.#id, error.toRpc()));
  }

  progress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { token } = this.#content;
    if (token !== undefined) this.#options.send(replaceRanges(notification, tokens, token));
  }

  /** Cancels it at the client; the server gets no response. */
  cancel(reason: CancelReason): void {
    this.#cancelAtClient(reason);
    this.#finish(undefined);
  }

  /** Cancels it at the client; the server gets an error. */
  endWithError(text: string): void {
    this.#cancelAtClient(text);
    this.fail(new HubError("notAsked", text, { server: this.server }));
  }

  #finish(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#options.onEnd();
    this.#options.resumeDeadlines();
    if (message !== undefined) this.#options.send(message);
  }
}
