import type { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { type Edit, type Piece, utf8 } from "../base/bytes.ts";
import { type ErrorCode, HubError, toHubError } from "../base/errors.ts";
import { IdMap } from "../base/in-flight-map.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { Kind } from "../catalog/listing.ts";
import type { SectionEntry } from "../catalog/section.ts";
import { UI_EXTENSION } from "../catalog/tool-visibility.ts";
import { declaresSkills } from "../catalog/skills.ts";
import {
  type Batch,
  buildError,
  buildNotification,
  buildResult,
  type EncodedMessage,
  type InvalidMessage,
  type Message,
  type Notification,
  paramsOf,
  piecesOfMessage,
  type Request,
  type RequestId,
  type Response,
  withResponseId,
} from "../jsonrpc/message.ts";
import { parseTruncated } from "../jsonrpc/parse.ts";
import { type AgentCaller, readAgentCaller } from "../approval/policy.ts";
import type { PluginInstance } from "../plugin/instance.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import {
  askableOf,
  capabilityClassOf,
  type ExtensionSettings,
  formatExtensionSettings,
  parseCapabilityClass,
  readAllExtensionSettings,
  readCapabilities,
} from "../protocol/capabilities.ts";
import {
  allowsBatches,
  declaresLegacyTasks,
  initializeResult,
  type LegacyVersion,
  LIST_CHANGED,
  Method,
  negotiateVersion,
} from "../protocol/legacy.ts";
import { isAtLeast, isSeverity, type LogSeverity } from "../protocol/log-level.ts";
import type { Era } from "../protocol/modern.ts";
import { type CancelReason, readCancelled } from "../protocol/notifications.ts";
import type { ApprovalAsks } from "../router/approval-gate.ts";
import type { Caller, Call, CallVia, RunningRequest } from "../router/call.ts";
import { type AnyMethodSpec, CALL_METHOD, METHODS, SKILL_METHODS } from "../router/params.ts";
import { ClientTasks } from "../router/tasks.ts";
import { Router } from "../router/router.ts";
import { lostAnswer } from "../router/timeouts.ts";
import {
  type HttpOrigin,
  type RequestOrigin,
  type RequestSource,
  type RequestSpan,
  startRequestSpan,
} from "../telemetry/request-span.ts";
import { digestOf } from "../telemetry/trace-context.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import type { Responder, SentRequest, TransportEvents, Transport } from "../transport/transport.ts";
import {
  type ClientChannel,
  type ClientDeclaration,
  NO_DECLARATION,
  type ServerRequest,
} from "../upstream/profile.ts";
import type { Task } from "../upstream/tasks.ts";
import type { ClientView } from "../views/client-view.ts";
import type { LimitedClient } from "../limits/limits.ts";
import type { Clients, ClientStatus, ClientTransport } from "./clients.ts";
import { CountedResponder, nameTool, plainOf, setOwner } from "./counted-responder.ts";
import { LIST_METHOD_KINDS, ListAnswers, sectionForLegacyClients } from "./list-answers.ts";
import { failSpan, httpOriginOf, networkOf, spanOf, TracedResponder } from "./traced-responder.ts";
import { DownstreamRequests, randomNumber } from "./server-requests.ts";
import { readNamedCall } from "./tool-search/call-tool.ts";
import type { ClientExposure } from "./tool-search/client-exposure.ts";
import { type HubToolName, isCallingTool } from "../catalog/search/hub-tools.ts";

/** The error for a request that has no answer some time after the client has closed its end. */
export function abandonedError(): HubError {
  const text = "The client closed its end before the request was answered, so it was cancelled.";
  return new HubError("cancelled", text);
}

/** One request of a legacy client in flight, until it is answered. */
class LegacyClientRequest implements Caller {
  readonly id: RequestId;
  readonly agent: AgentCaller | undefined;
  readonly via: CallVia | undefined;
  readonly span: RequestSpan | undefined;
  running: Pick<RunningRequest, "cancel" | "call"> | undefined;
  readonly #responder: Responder;
  readonly #client: LegacyClient;
  /** The task that the request has become. */
  #task: Task | undefined;

  constructor(
    id: RequestId,
    responder: Responder,
    client: LegacyClient,
    agent?: AgentCaller,
    via?: CallVia,
  ) {
    this.id = id;
    this.agent = agent;
    this.via = via;
    this.span = client.tracer === undefined ? undefined : spanOf(responder);
    this.#responder = responder;
    this.#client = client;
    if (client.isCounting) setOwner(responder, this);
  }

  /** The call that the request has started; undefined until the request is routed, and always for list requests. */
  get call(): Call | undefined {
    return this.running?.call;
  }

  get sender(): ClientDeclaration {
    return this.#client.sender;
  }

  toClientMessage(response: Response, _: Era, edits?: readonly Edit[]): EncodedMessage {
    return withResponseId(response, this.id, edits);
  }

  get taskId(): string | undefined {
    return this.#task?.id;
  }

  onTask(task: Task): void {
    this.#task = task;
  }

  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void {
    // The request has been answered with the task, so its response stream has ended.
    return this.#task === undefined
      ? this.#client.sendServerRequest(request, this.#responder)
      : this.#task.requestInput(request, (own) => this.#client.sendServerRequest(own));
  }

  respond(message: EncodedMessage | undefined): void {
    this.#client.onAnswered(this);
    const { isAbandoned } = this.#client;
    const error = isAbandoned ? buildError(this.id, abandonedError().toRpc()) : undefined;
    this.#responder.respond(message ?? error);
  }

  notify(message: EncodedMessage): void {
    this.#responder.notify(message);
  }
}

/**
 * Answers a batch with one array once all of its requests are answered (2025-03-26, JSON-RPC batching).
 * @param handle handles one message of the batch; a message that must be answered comes with its responder
 */
function answerBatch(
  items: readonly Message[],
  responder: Responder,
  handle: (item: Message, responder?: Responder) => void,
): void {
  const answers: EncodedMessage[] = [];
  let unanswered = items.length;
  const itemResponder: Responder = {
    notify: (message) => responder.notify(message),
    respond: (message) => {
      if (message !== undefined) answers.push(message);
      if (--unanswered > 0) return;
      responder.respond(answers.length > 0 ? joinBatch(answers) : undefined);
    },
  };
  for (const item of items) {
    if (item.kind === "request" || item.kind === "invalid") {
      handle(item, itemResponder);
    } else {
      handle(item);
      itemResponder.respond(undefined);
    }
  }
}

function joinBatch(answers: readonly EncodedMessage[]): EncodedMessage {
  const pieces = answers.flatMap((answer, i) => [
    i === 0 ? BATCH_START : BATCH_COMMA,
    ...piecesOfMessage(answer),
  ]);
  return [...pieces, BATCH_END];
}
const BATCH_START = utf8("[");
const BATCH_COMMA = utf8(",");
const BATCH_END = utf8("]");

/** The declarations of a client in `initialize`. */
interface InitializeParams {
  /** The negotiated protocol version. */
  readonly version: LegacyVersion;
  /** The capability class: equal for clients with the same capabilities and extensions (see `capabilityClassOf`). */
  readonly capabilityClass: string;
  readonly settings: ExtensionSettings;
  readonly info: Pick<ClientInfo, "name" | "version">;
}

/** Maximum length of a client's name and version, in UTF-16 units; longer ones are truncated. */
const MAX_NAME_LENGTH = 200;

/**
 * Reads the params of `initialize`.
 * @throws {HubError} invalidParams if there is no protocolVersion
 */
function readInitialize(request: Request): InitializeParams {
  const params = paramsOf(request);
  const requested = params.string("protocolVersion");
  if (requested === undefined) {
    throw new HubError("invalidParams", "initialize needs a protocolVersion.");
  }
  const info = params.object("clientInfo");
  // A member that is not a string is left out.
  const readName = (key: string): string | undefined => info.string(key)?.slice(0, MAX_NAME_LENGTH);
  const declared = params.value("capabilities");
  const settings = readAllExtensionSettings(declared);
  return {
    version: negotiateVersion(requested),
    capabilityClass: capabilityClassOf(
      readCapabilities(declared),
      Object.keys(settings.extensions),
    ),
    settings,
    info: { name: readName("name"), version: readName("version") },
  };
}

/**
 * Reads the params of `logging/setLevel`.
 * @throws {HubError} invalidParams if the level is not one of the protocol's
 */
function readSetLevel(request: Request): LogSeverity {
  const level = paramsOf(request).string("level");
  if (isSeverity(level)) return level;
  throw new HubError("invalidParams", "logging/setLevel needs one of the protocol's levels.");
}

const EMPTY_RESULT = utf8("{}");
const TOOLS_CHANGED = buildNotification(LIST_CHANGED.tools);

/**
 * One client of the legacy era on any transport: answers the requests that the hub itself handles, and routes all other
 * requests to servers.
 */
export class LegacyClient implements TransportEvents, ClientChannel, RequestSource {
  readonly era = "legacy";
  readonly id: string;
  readonly transport: Transport;
  readonly view: ClientView;
  /** Responder for transports on which all requests share one channel. */
  readonly connectionResponder: Responder;
  readonly #clients: Clients;
  readonly #router: Router;
  readonly #tasks: ClientTasks;
  readonly #isPlugin: boolean;
  readonly #kind: ClientTransport;
  readonly #isOperator: boolean;
  /** Whether the hub goes on for other clients when this one leaves. */
  readonly #isShared: boolean;
  /** Requests in flight, by the key of the request id. */
  readonly #running = new IdMap<LegacyClientRequest>();
  /**
   * Whether some relayed request came with a responder of its own. If none did, all requests share one channel, and a
   * notification need not be matched to a request.
   */
  #hasResponders = false;
  readonly #serverRequests: DownstreamRequests;
  /** The negotiated version; undefined before `initialize`. */
  version: LegacyVersion | undefined;
  settings: ExtensionSettings | undefined;
  /** What the client has declared so far; replaced by a new object, never changed, when it declares more. */
  sender: ClientDeclaration = NO_DECLARATION;
  /** Number of `initialize` requests that wait for saved listings. */
  #openInitializations = 0;
  /** Whether the client sends nothing more. */
  #hasInputEnded = false;
  /** Whether requests that are cancelled are answered with an error. */
  isAbandoned = false;
  /** Whether `initialize` was answered; log messages are sent only after that. */
  #isInitialized = false;
  /** Minimum level of log messages; undefined if the servers decide (MCP, logging, setting log level). */
  level: LogSeverity | undefined;
  readonly #listAnswers = new ListAnswers();
  /** The form in which the client gets its tools; undefined: all in one list. */
  readonly exposure: ClientExposure | undefined;

  /**
   * `plugin`: the plugin that this client belongs to; undefined: none. The client of a plugin declares no capabilities,
   * and servers send it no requests. `kind`: how the client is connected. `asks`: how it is asked for approvals.
   */
  constructor(
    clients: Clients,
    id: string,
    transport: Transport,
    view: ClientView,
    {
      plugin,
      kind,
      asks,
      limitedClient,
      exposure,
    }: {
      readonly plugin: PluginInstance | undefined;
      readonly kind: ClientTransport;
      readonly asks: ApprovalAsks;
      readonly limitedClient: LimitedClient;
      readonly exposure: ClientExposure | undefined;
    },
  ) {
    const { approvals, clock, deadlines, callLog, limits, plugins } = clients.options;
    this.#clients = clients;
    this.#isPlugin = plugin !== undefined;
    this.#kind = kind;
    this.#isOperator = kind === "control";
    this.#isShared = kind === "shared";
    this.#serverRequests = new DownstreamRequests(this, this.#isShared ? randomNumber() : 0);
    if (kind === "control" || kind === "memory") this.sender = { ...this.sender, isOwn: true };
    this.id = id;
    this.transport = transport;
    this.view = view;
    this.exposure = exposure;
    this.connectionResponder = {
      notify: (message) => void transport.send(message),
      respond: (message) => void (message === undefined || transport.send(message)),
    };
    this.#tasks = new ClientTasks("legacy", clock);
    this.#router = new Router(
      { id, name: undefined, version: undefined, principal: view.principal },
      {
        view,
        deadlines,
        callLog,
        approvals,
        plugins,
        notify: (message) => void transport.send(message),
        excludedPlugin: plugin,
        client: this,
        limits,
        limitedClient,
        asks,
        tasks: this.#tasks,
      },
    );
  }

  /** Whether requests are counted at present. */
  get isCounting(): boolean {
    return this.#clients.options.callLog.operations !== undefined;
  }

  /** The client's name in metrics. */
  get label(): string {
    return this.view.principal ?? this.sender.info.name;
  }

  get clock(): Clock {
    return this.#clients.options.clock;
  }

  /** Makes the spans of requests; undefined while none are made. */
  get tracer(): Tracer | undefined {
    return this.#clients.options.callLog.tracer;
  }

  /** The client's calls in flight. */
  get calls(): readonly Call[] {
    const own = this.#running.values().flatMap(({ call }) => call ?? []);
    return [...own, ...this.#router.innerCalls];
  }

  /** Number of requests to servers so far. */
  get callCount(): number {
    return this.#router.callCount;
  }

  /**
   * Called when a server may have connected, failed or become late. Answers list requests that need not wait any more.
   */
  serverSettled(): void {
    this.#router.serverSettled();
  }

  get status(): Pick<ClientStatus, "name" | "version" | "canBeAsked"> {
    const { name, version } = this.#router.client;
    return { name, version, canBeAsked: askableOf(this.sender.declaredCapabilities) };
  }

  /**
   * Called when the catalog was replaced. Sends `list_changed` for each list that differs from the one that the client
   * last received.
   */
  catalogChanged(): void {
    if (this.#hasInputEnded) return;
    this.exposure?.prepareSearch();
    for (const message of this.#listAnswers.compare(this.#shown(this.view.catalog)))
      this.transport.send(message);
  }

  message(
    message: Message,
    _?: SentRequest,
    responder: Responder = this.connectionResponder,
  ): void {
    switch (message.kind) {
      case "request":
        this.#handleRequest(message, responder);
        return;
      case "notification":
        this.#handleNotification(message);
        return;
      case "response":
        this.#serverRequests.onResponse(message);
        return;
      case "batch":
        this.#handleBatch(message, responder);
        return;
      case "invalid":
        this.#rejectInvalid(message, responder);
    }
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    const truncated = parseTruncated(head, tail);
    const text = `The message of ${size} bytes is larger than the limit.`;
    if (truncated?.kind === "response") {
      this.#serverRequests.fail(truncated.id, new HubError("messageTooLarge", text));
      return;
    }
    this.connectionResponder.respond(errorResponse(truncated?.id, "messageTooLarge", text));
  }

  log(): void {}

  pressure(isFull: boolean): void {
    // Nothing is read from a client that does not read: its requests would cause more answers.
    if (isFull) this.transport.pause();
    else this.transport.resume();
    this.#clients.backpressure(this, isFull);
  }

  sendServerRequest(request: ServerRequest, responder?: Responder): (reason: CancelReason) => void {
    return this.#serverRequests.sendServerRequest(request, responder);
  }

  sees(server: string): boolean | undefined {
    return this.view.sees(server);
  }

  /**
   * Sends a server's message to the client: on the response stream of the client's latest call at that server, if the
   * transport has a stream for each response.
   */
  notify(server: string, message: EncodedMessage): void {
    const request = this.#hasResponders
      ? this.#running.findLast(({ call }) => call?.server === server)
      : undefined;
    (request ?? this.connectionResponder).notify(message);
  }

  sendLogMessage(server: string, severity: LogSeverity, message: EncodedMessage): void {
    if (!this.#isInitialized) return;
    if (this.level === undefined || isAtLeast(severity, this.level)) this.notify(server, message);
  }

  /** Number of requests that have no answer yet. */
  get openCount(): number {
    return this.#running.size + this.#openInitializations;
  }

  /**
   * Called when the client sends nothing more: stops the servers that none of its open requests needs.
   * @param needsAll whether an open request that is not this object's may need any server
   */
  onInputEnded(needsAll: boolean): void {
    this.#hasInputEnded = true;
    if (this.#isShared || needsAll) return;
    // A request without a route, such as a list, may need any server.
    const calls = this.#running.values().map(({ call }) => call);
    if (calls.includes(undefined)) return;
    this.#clients.options.stopUnused();
  }

  /** Cancels all open requests, and answers each with an error. */
  abandonRequests(): void {
    this.isAbandoned = true;
    for (const clientRequest of this.#running.values()) {
      if (clientRequest.running === undefined) clientRequest.respond(undefined);
      else clientRequest.running.cancel("The client has left.", "disconnect");
    }
  }

  /** Called when the client has disconnected. Cancels the client's requests at the servers. */
  closed(): void {
    for (const clientRequest of this.#running.values())
      clientRequest.running?.cancel("The client has left.", "disconnect");
    this.#running.clear();
    this.#serverRequests.close();
    this.#router.close();
    this.#tasks.close();
    this.view.close();
    this.#clients.onDisconnect(this);
  }

  /** Called when a request in flight gets its answer. */
  onAnswered({ id }: LegacyClientRequest): void {
    this.#running.remove(id.key);
  }

  #rejectInvalid(message: InvalidMessage, responder: Responder): void {
    const { parsed } = message;
    if (parsed?.kind === "notification") {
      this.#clients.options.warn(`A notification from a client was dropped: ${message.reason}.`);
    } else {
      this.#serverRequests.onInvalid(message);
    }
    // A notification or response whose only fault is invalid UTF-8 is not answered. Any other invalid message may have
    // been a request: it is answered, if necessary with id null (JSON-RPC 2.0, section 5).
    const isAnswered = parsed === undefined || parsed.kind === "request";
    responder.respond(
      isAnswered ? errorResponse(message.id, message.code, invalidMessageText(message)) : undefined,
    );
  }

  #handleRequest(request: Request, responder: Responder): void {
    const { tracer, operations } = this.#clients.options.callLog;
    const counted =
      operations === undefined || request.method === Method.ping
        ? responder
        : new CountedResponder(operations.server, request.method, this, responder);
    if (tracer === undefined) this.#answer(request, counted);
    else this.#answer(request, this.#traced(tracer, request, counted));
  }

  originOf(_: Request, http: HttpOrigin | undefined): RequestOrigin {
    return {
      network: networkOf(this.#kind),
      protocolVersion: this.version,
      sessionId: digestOf(this.transport.sessionId),
      client: this.view.principal ?? this.id,
      http,
    };
  }

  /** Begins the span of a request, which ends with its answer. @returns the same responder if there is no span */
  #traced(tracer: Tracer, request: Request, responder: Responder): Responder {
    const span = startRequestSpan(tracer, request, httpOriginOf(request, this.#kind), this);
    return span === undefined ? responder : new TracedResponder(responder, span);
  }

  #answer(request: Request, responder: Responder): void {
    try {
      this.#dispatch(request, responder);
    } catch (error) {
      if (this.tracer !== undefined) failSpan(responder, error);
      responder.respond(buildError(request.id, toHubError(error).toRpc()));
    }
  }

  #dispatch(request: Request, responder: Responder): void {
    switch (request.method) {
      case Method.toolsCall: {
        const tool = this.exposure?.hubToolOf(request);
        if (tool === undefined) this.#relay(request, responder, CALL_METHOD);
        else this.#callHubTool(tool, request, responder);
        return;
      }
      case Method.initialize:
        this.#initialize(request, responder);
        return;
      case Method.ping:
        responder.respond(buildResult(request.id, EMPTY_RESULT));
        return;
      case Method.unsubscribe:
        this.#countRequest();
        this.#router.unsubscribe(request);
        responder.respond(buildResult(request.id, EMPTY_RESULT));
        return;
      case Method.setLevel:
        this.level = readSetLevel(request);
        this.sender = { ...this.sender, level: this.level };
        responder.respond(buildResult(request.id, EMPTY_RESULT));
        this.view.levelChanged();
        return;
    }
    const kind = LIST_METHOD_KINDS.get(request.method);
    const methodSpec =
      METHODS.get(request.method) ??
      (this.#hasSkills ? SKILL_METHODS.get(request.method) : undefined);
    // Clients that do not declare the skills extension read the files of skills as resources.
    if (kind !== undefined && (kind !== "skills" || this.#hasSkills))
      this.#list(kind, request, responder);
    else if (methodSpec !== undefined) this.#relay(request, responder, methodSpec);
    else throw new HubError("methodNotFound", `There is no method "${request.method}".`);
  }

  #initialize(request: Request, responder: Responder): void {
    const { version, capabilityClass, settings, info } = readInitialize(request);
    this.version = version;
    const { name = "", version: clientVersion = "" } = info;
    const declared = {
      ...parseCapabilityClass(capabilityClass),
      ...formatExtensionSettings(settings),
    };
    this.settings = settings;
    this.sender = {
      ...this.sender,
      info: { name, version: clientVersion },
      declaredCapabilities: declared,
    };
    this.#router.client = { ...this.#router.client, ...info };
    this.#clients.options.onClient({
      client: this.id,
      change: "changed",
      ...(info.name !== undefined && { name: info.name }),
      ...(info.version !== undefined && { version: info.version }),
      ...(this.view.principal !== undefined && { principal: this.view.principal }),
    });
    if (this.#isPlugin) this.view.open();
    else this.view.declareCapabilities(capabilityClass, this, this.#isOperator);
    this.#openInitializations++;
    const { exposure } = this;
    if (exposure !== undefined) {
      exposure.clientName = name;
      exposure.showsApps = Object.hasOwn(settings.extensions, UI_EXTENSION);
    }
    this.view.whenSavedLoaded((catalog) => {
      const { capabilities: offered } = catalog;
      const instructions =
        exposure === undefined ? catalog.instructions : exposure.instructions(catalog);
      this.#openInitializations--;
      this.#isInitialized = true;
      this.#tasks.areDeclared = declaresLegacyTasks(version, offered);
      const result = initializeResult(
        version,
        this.#clients.options.serverInfo(),
        instructions,
        offered,
        settings.extensions,
      );
      responder.respond(buildResult(request.id, utf8(JSON.stringify(result))));
    });
  }

  /** Whether the client has declared the skills extension. */
  get #hasSkills(): boolean {
    return this.settings !== undefined && declaresSkills(this.settings.extensions);
  }

  /** Counts a request that the hub answers itself. @throws {HubError} overLimit */
  #countRequest(): void {
    const error = this.#router.countRequest();
    if (error !== undefined) throw error;
  }

  #list(kind: Kind, request: Request, responder: Responder): void {
    this.#countRequest();
    const buildAnswer = this.#listAnswers.prepareAnswer(kind, request);
    const clientRequest = new LegacyClientRequest(request.id, responder, this);
    this.#addRunning(clientRequest);
    this.view.open();
    const cancelWait = this.view.whenListed((catalog) => {
      if (kind === "tools") this.exposure?.prepareSearch();
      clientRequest.respond(buildAnswer(this.#shown(catalog)));
    });
    clientRequest.running = {
      call: undefined,
      cancel: () => {
        cancelWait();
        clientRequest.respond(undefined);
      },
    };
  }

  /** Returns the catalog as it is shown to the client. */
  #shown(catalog: Catalog): Catalog {
    return this.exposure === undefined ? catalog : this.exposure.shown(catalog);
  }

  /** Answers a call of one of the hub's own tools, or makes the call that it stands for. */
  #callHubTool(tool: HubToolName, request: Request, responder: Responder): void {
    const { exposure } = this;
    if (exposure === undefined) return;
    this.view.open();
    nameTool(responder, tool);
    if (isCallingTool(tool)) {
      const call = readNamedCall(tool, request, exposure);
      this.#relay(call.request, responder, CALL_METHOD, call.via);
      return;
    }
    if (this.#tasks.areDeclared && paramsOf(request).member("task") !== undefined)
      throw new HubError("methodNotFound", `Tool "${tool}" cannot be called as a task.`);
    const refusal = this.#router.countRequest();
    if (refusal !== undefined) {
      responder.respond(lostAnswer(request, refusal));
      return;
    }
    const clientRequest = new LegacyClientRequest(request.id, responder, this);
    this.#addRunning(clientRequest);
    const context = {
      definitionOf: ({ name, bytes }: SectionEntry) =>
        sectionForLegacyClients(this.view.catalog.tools).entry(name)?.bytes ?? bytes,
      // The notification goes before the answer, on the stream of this call.
      onSelected: () => {
        this.#listAnswers.wasToldOf("tools", this.#shown(this.view.catalog));
        responder.notify(TOOLS_CHANGED);
      },
    };
    const cancel = exposure.answer(tool, request, context, {
      respond: (result) => clientRequest.respond(result && buildResult(request.id, result)),
      fail: (error) => clientRequest.respond(buildError(request.id, error.toRpc())),
    });
    clientRequest.running = { call: undefined, cancel };
  }

  #relay(request: Request, responder: Responder, methodSpec: AnyMethodSpec, via?: CallVia): void {
    this.view.open();
    if (plainOf(responder) !== this.connectionResponder) this.#hasResponders = true;
    // Only this user can open the control socket, so the information about the agent in a call over this socket is
    // trusted.
    const agent =
      this.#isOperator && methodSpec === CALL_METHOD ? readAgentCaller(request) : undefined;
    const clientRequest = new LegacyClientRequest(request.id, responder, this, agent, via);
    const running = this.#router.route(request, clientRequest, methodSpec);
    clientRequest.running = running;
    this.#addRunning(clientRequest);
    running.run();
  }

  #addRunning(clientRequest: LegacyClientRequest): void {
    const { key } = clientRequest.id;
    if (this.#running.has(key)) {
      throw new HubError("invalidRequest", "A request with this id is still running.");
    }
    this.#running.set(key, clientRequest);
    // A client that sends requests can also receive requests, even if `notifications/initialized` has not come.
    this.#serverRequests.ready();
  }

  #handleNotification(notification: Notification): void {
    switch (notification.method) {
      case Method.cancelled: {
        const cancelled = readCancelled(notification);
        if (cancelled === undefined) return;
        const { key, ids } = cancelled;
        this.#running.get(key)?.running?.cancel({ notification, ids }, "client");
        return;
      }
      case Method.progress:
        this.#serverRequests.onProgress(notification);
        return;
      case Method.initialized:
        this.#serverRequests.ready();
        return;
      case Method.rootsChanged:
        this.view.rootsChanged(notification);
    }
  }

  #handleBatch({ items }: Batch, responder: Responder): void {
    if (!allowsBatches(this.version)) {
      const text = "This protocol revision does not support batches.";
      responder.respond(errorResponse(undefined, "invalidRequest", text));
      return;
    }
    answerBatch(items, responder, (item, itemResponder) =>
      this.message(item, undefined, itemResponder),
    );
  }
}

function errorResponse(id: Piece | undefined, code: ErrorCode, text: string): EncodedMessage {
  return buildError(id, new HubError(code, text).toRpc());
}

function invalidMessageText({ reason }: InvalidMessage): string {
  return `Not a JSON-RPC request: ${reason}.`;
}
