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
  buildResult,
  editsOf,
  type EncodedMessage,
  type Notification,
  paramsOf,
  replaceRanges,
  type Request,
  type RequestId,
  type Response,
} from "../jsonrpc/message.ts";
import type { Capabilities } from "../protocol/capabilities.ts";
import { isServerRequestMethod, Method, type ServerRequestMethod } from "../protocol/legacy.ts";
import { type CancelReason, readCancelled, readProgressTokens } from "../protocol/notifications.ts";
import {
  ClientTask,
  type ClientTaskInfo,
  isTaskIdMethod,
  readCreatedTaskReference,
  readRelatedTaskReference,
  readTaskReference,
  readTaskStatus,
  LegacyTaskMethod,
  type TaskIdMethod,
} from "../protocol/tasks.ts";
import type { MessageAttribution } from "./attribution.ts";
import type { PendingRequest } from "./pending.ts";
import type {
  ClientChannel,
  ClientRequest,
  ConnectionClients,
  ServerRequestTarget,
  ServerRequest,
} from "./profile.ts";
import {
  exposeTask,
  isUnknownTaskError,
  readTaskPage,
  type ServerTask,
  taskParams,
} from "./tasks.ts";

/** A client's result as it is sent to the server, and the task that the client has created, if any. */
export interface ClientTaskResult {
  readonly result: readonly Piece[];
  readonly task?: ClientTask;
}

/** Maximum number of remembered tasks, latest first. */
const MAX_CLIENT_TASKS = 256;
/** Maximum number of concurrent `tasks/list` requests of a server. */
const MAX_TASK_LISTS = 4;
/** How long the answer to `tasks/list` waits for the client's answer to `tasks/get` for each task, in ms. */
const TASK_STATUS_TIMEOUT = 30_000;

export interface ClientTasksOptions {
  readonly server: string;
  readonly clock: Clock;
  send(message: EncodedMessage): void;
}

/** A task and the client that runs it. */
interface ClientTaskEntry {
  readonly task: ClientTask;
  readonly target: ServerRequestTarget;
}

/** The tasks that clients have created for requests of one session. */
export class ClientTasks {
  readonly #options: ClientTasksOptions;
  /** The tasks by the ids that the hub gives them. */
  readonly #byOwnId = new Map<string, ClientTaskEntry>();
  #count = 0;
  #lists = 0;

  constructor(options: ClientTasksOptions) {
    this.#options = options;
  }

  /** Reads a request about one task. @throws {HubError} invalidParams if this session knows no task of that id */
  readTaskRequest(request: Request, method: TaskIdMethod): ServerRequestContent & ClientTaskEntry {
    const { bytes, params } = request;
    const object = paramsOf(request);
    const reference = readTaskReference(object);
    const entry = reference && this.#byOwnId.get(reference.id);
    if (entry === undefined || params === undefined) {
      throw new HubError("invalidParams", "There is no task of that id.");
    }
    const tokens = readProgressTokens(object);
    const edits = entry.task.toRemoteId(reference, readRelatedTaskReference(object));
    const paramsStart = { start: 0, end: params.start, replacement: "" };
    const messageStart = bytes.subarray(0, params.end);
    const last = tokens.at(-1);
    return {
      method,
      isTask: false,
      elicitation: undefined,
      token: last && { bytes, start: last.start, end: last.end },
      params: (token) =>
        applyEdits(messageStart, [paramsStart, ...edits, ...editsOf(tokens, token)]),
      ...entry,
    };
  }

  /** Translates the client's result of a request about a task: replaces the client's task id by the hub's. */
  translateTaskResult(task: ClientTask, method: TaskIdMethod, body: Uint8Array): ClientTaskResult {
    const result = JsonObject.of(body);
    task.isOver ||= method === LegacyTaskMethod.result || readTaskStatus(result).isOver;
    const reference = method === LegacyTaskMethod.result ? undefined : readTaskReference(result);
    return { result: applyEdits(body, task.toOwnId(reference, readRelatedTaskReference(result))) };
  }

  /**
   * Translates the client's result of a request that may have created a task, or that belongs to a task of the server.
   */
  translateResult(
    body: Uint8Array,
    serverTask: ServerTask | undefined,
    content: Pick<ServerRequestContent, "isTask" | "token">,
    target: ServerRequestTarget,
  ): ClientTaskResult {
    const result = JsonObject.of(body);
    const relatedTask = readRelatedTaskReference(result);
    const created = content.isTask ? readCreatedTaskReference(result) : undefined;
    const edits = serverTask?.toRemoteId(relatedTask) ?? [];
    if (created === undefined) return { result: applyEdits(body, edits) };
    const { isOver } = readTaskStatus(result);
    const clientTask = this.#add({ id: created.id, isOver, token: content.token }, target);
    return {
      result: applyEdits(body, [...edits, ...clientTask.toOwnId(created, relatedTask)]),
      task: clientTask,
    };
  }

  /**
   * Answers `tasks/list` with the present status of each task, which is requested from its client.
   * @throws {HubError} invalidParams, notAsked
   */
  list(request: Request): void {
    if (this.#lists === MAX_TASK_LISTS) {
      throw new HubError("notAsked", `More than ${MAX_TASK_LISTS} lists are under way.`);
    }
    const all = [...this.#byOwnId.values()];
    const page = readTaskPage(all, ({ task }) => task.sequence, request);
    this.#lists++;
    void Promise.all(page.entries.map((entry) => this.#getStatus(entry))).then((tasks) => {
      this.#lists--;
      this.#options.send(buildResult(request.id, page.write(tasks)));
    });
  }

  /** The session has ended: forgets all tasks. @param mayCancel whether to cancel the tasks that have not ended */
  close(mayCancel: boolean): void {
    for (const { task, target } of this.#byOwnId.values()) {
      task.drop();
      if (mayCancel && !task.isOver) {
        target.sendServerRequest(this.#makeTaskRequest(task, LegacyTaskMethod.cancel, () => {}));
      }
    }
  }

  #add(created: ClientTaskInfo, target: ServerRequestTarget): ClientTask {
    const task = new ClientTask(created, ++this.#count, (message) => this.#options.send(message));
    const [oldest] = this.#byOwnId.values();
    if (this.#byOwnId.size === MAX_CLIENT_TASKS) oldest?.task.drop();
    this.#byOwnId.set(task.id, { task, target });
    task.onDropped.push(() => this.#byOwnId.delete(task.id));
    return task;
  }

  #getStatus({ task, target }: ClientTaskEntry): Promise<Uint8Array | undefined> {
    return new Promise((resolve) => {
      const request = this.#makeTaskRequest(task, LegacyTaskMethod.get, (outcome, body) => {
        cancelTimer();
        if (outcome === "error" && isUnknownTaskError(body)) task.drop();
        resolve(outcome === "result" ? exposeTask(task, body) : undefined);
      });
      const cancelTimer = this.#options.clock.after(TASK_STATUS_TIMEOUT, () => {
        cancel("It took too long.");
        resolve(undefined);
      });
      const cancel = target.sendServerRequest(request);
    });
  }

  /** Builds a request of the hub's own to a client, about one task. */
  #makeTaskRequest(
    task: ClientTask,
    method: TaskIdMethod,
    onEnd: (outcome: "result" | "error" | "none", body: Uint8Array) => void,
  ): ServerRequest {
    return {
      server: this.#options.server,
      method,
      params: () => [taskParams(task.remoteId)],
      answer: (outcome, body) => {
        onEnd(outcome, body);
        return undefined;
      },
      fail: () => onEnd("none", NO_BYTES),
      progress: () => {},
    };
  }
}

const NO_BYTES = new Uint8Array();

/** The content of a server request. */
export interface ServerRequestContent {
  readonly method: ServerRequestMethod | TaskIdMethod;
  /** The server wants the request to be run as a task. */
  readonly isTask: boolean;
  /** The JSON text of the server's progress token, if there is one. */
  readonly token: Piece | undefined;
  /** The `elicitationId`, if the request is an elicitation in URL mode. */
  readonly elicitation: string | undefined;
  /** The request's params with another progress token. */
  params(token: Piece): readonly Piece[] | undefined;
}

/**
 * Reads a server request. Texts that are shown to people get the server's name.
 * @throws {HubError} methodNotFound or invalidParams if the capabilities of the client do not allow it
 */
export function readServerRequest(
  server: string,
  request: Pick<Request, "method" | "params"> & { readonly bytes: Uint8Array },
  capabilities: Capabilities,
): ServerRequestContent {
  const { method, bytes, params } = request;
  if (!isServerRequestMethod(method)) {
    throw new HubError("methodNotFound", `toolmux cannot answer "${method}".`);
  }
  const object = JsonObject.at(bytes, params);
  const error = missingCapabilityError(method, object, capabilities);
  if (error !== undefined) throw error;
  const tokens = readProgressTokens(object);
  const last = tokens.at(-1);
  const edits = method === Method.elicitationCreate ? prefixServerName(server, object) : [];
  return {
    method,
    isTask: object.member("task") !== undefined,
    token: last && makeSlice(bytes, last.start, last.end),
    elicitation: isUrlElicitation(method, object) ? object.string("elicitationId") : undefined,
    params: (token) => params && editRange(bytes, params, [...edits, ...editsOf(tokens, token)]),
  };
}

/** @throws {HubError} methodNotFound if the client's capabilities do not allow this `tasks/…` request */
export function checkTaskCapability(method: string, { tasks }: Capabilities): void {
  const capability =
    method === LegacyTaskMethod.list
      ? tasks?.list
      : method === LegacyTaskMethod.cancel
        ? tasks?.cancel
        : tasks;
  if (capability !== undefined) return;
  throw new HubError("methodNotFound", `The client cannot be asked for "${method}".`);
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

/** Whether a server's request is an elicitation in URL mode. */
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

/** The client capabilities that were missing, if the error refuses a server request for that reason. */
export function missingCapabilityOf({ data }: HubError): object | undefined {
  const requiredCapabilities = data?.["requiredCapabilities"];
  return typeof requiredCapabilities === "object" && requiredCapabilities !== null
    ? requiredCapabilities
    : undefined;
}

/**
 * Puts the server's name before the message, so that the person who answers knows which server has sent the request.
 */
export function prefixServerName(server: string, params: JsonObject): Edit[] {
  const name = JSON.stringify(`[${server}] `).slice(0, -1);
  return params
    .all("message")
    .flatMap(({ start }) =>
      params.bytes[start] === QUOTE ? [{ start, end: start + 1, replacement: utf8(name) }] : [],
    );
}
const QUOTE = 0x22;

/** A range of the bytes, with the edits that lie in it. */
function editRange(
  bytes: Uint8Array,
  { start, end }: ByteRange,
  edits: readonly Edit[],
): readonly Piece[] {
  return applyEdits(bytes.subarray(0, end), [{ start: 0, end: start, replacement: "" }, ...edits]);
}

export interface ServerRequestsOptions {
  readonly server: string;
  readonly clients: ConnectionClients;
  readonly attribution: MessageAttribution;
  readonly clock: Clock;
  send(message: EncodedMessage): void;
  /** Whether requests of a client are in flight at the server. @param client undefined: any client */
  hasCallsOf(client: ClientChannel | undefined): boolean;
  /** Suspends or resumes the deadlines of a client's calls. @param client undefined: the calls of all clients */
  suspendDeadlines(client: ClientChannel | undefined, isSuspended: boolean): void;
  warn(text: string): void;
  /** The server asks the client to open a URL. */
  onUrlElicitation(id: string, client: ClientChannel): void;
}

/** How long a user may take to answer, in ms. */
const ANSWER_TIMEOUT = 10 * 60_000;
/** Maximum number of open requests of one server. */
const MAX_OPEN_REQUESTS = 32;

/** The requests of one server to its clients, each from its arrival to its one response. */
export class ServerRequests {
  readonly #options: ServerRequestsOptions;
  /** By the key of the request's id, which the server has chosen. */
  readonly #open = new Map<string | number, OpenServerRequest>();

  /** The ids of open requests that suspend the deadlines of all calls of a client, with that client. */
  readonly #suspendingClients = new Map<RequestId, ClientChannel | undefined>();
  /** The ids of open requests that suspend the deadline of only one call, with that call. */
  readonly #suspendingCalls = new Map<RequestId, PendingRequest>();
  /** The tasks that clients have created instead of answering immediately. */
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
   * @param task the server's task that the request belongs to
   * @param record the client's request on whose response stream it came
   */
  handle(request: Request, task: ServerTask | undefined, record: PendingRequest | undefined): void {
    try {
      if (isTaskIdMethod(request.method)) this.#handleTaskRequest(request, request.method);
      else if (request.method === LegacyTaskMethod.list) this.#handleTaskList(request);
      else this.#handleRequest(request, task, record);
    } catch (thrown) {
      const error = toHubError(thrown);
      const requiredCapabilities = missingCapabilityOf(error);
      if (requiredCapabilities !== undefined)
        this.#reportMissingCapability(requiredCapabilities, task, record?.clientRequest);
      this.#options.send(buildError(request.id, error.toRpc()));
    }
  }

  /** A client's request has ended: ends the server's requests that came on its response stream. */
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

  /**
   * A client's request was abandoned: ends the server's requests to clients that have no other request at the server.
   */
  onRequestCancelled(): void {
    for (const open of this.#open.values()) {
      if (!open.isDuringCalls || open.record !== undefined || this.#options.hasCallsOf(open.client))
        continue;
      open.endWithError("The call that it was for is over.");
    }
  }

  /** The connection has closed: cancels all open requests and tasks at the clients. */
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
    const clientRequest = task === undefined ? record?.clientRequest : undefined;
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

  /** Sends a request about one of the clients' tasks to the client that runs the task. */
  #handleTaskRequest(request: Request, method: TaskIdMethod): void {
    checkTaskCapability(method, this.#options.clients.capabilities);
    const content = this.#clientTasks.readTaskRequest(request, method);
    const { task, target: client } = content;
    this.#send(request.id, client, content, {
      client: undefined,
      isDuringCalls: this.#options.hasCallsOf(undefined),
      record: undefined,
      // `tasks/result` has no timeout, because it is answered only when the task has ended.
      hasTimeout: method !== LegacyTaskMethod.result,
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
   * Suspends the deadline of the call on whose response stream the request came; if that is not known, of all calls of
   * the client.
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

/** How one request of the server is handled. */
interface OpenRequestContext {
  /** The client whose calls wait for the answer, so that their deadlines are suspended; undefined: not known. */
  readonly client: ClientChannel | undefined;
  /** The request came while calls of clients were in flight. */
  readonly isDuringCalls: boolean;
  /** The client's request on whose response stream this request arrived, if known. */
  readonly record: PendingRequest | undefined;
  /** true: the request fails after `ANSWER_TIMEOUT`; false: only the suspended deadlines resume then. */
  readonly hasTimeout: boolean;
  /** Translates the client's result to the result for the server. */
  translateResult(body: Uint8Array): ClientTaskResult;
}

interface OpenServerRequestOptions extends Pick<
  ServerRequestsOptions,
  "server" | "clock" | "send"
> {
  /** Resumes the deadlines that this request has suspended. */
  resumeDeadlines(): void;
  onEnd(): void;
}

/** An open request of the server. */
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

  /** Cancels the request at the client; the server gets no response. */
  cancel(reason: CancelReason): void {
    this.#cancelAtClient(reason);
    this.#finish(undefined);
  }

  /** Cancels the request at the client; the server gets an error. */
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
