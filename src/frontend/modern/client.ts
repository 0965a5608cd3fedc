/**
 * Clients of the modern era (2026-07-28): stateless requests, each with its own envelope in `_meta`. Main type:
 * `ModernClient`, which handles all requests of one client with the same capabilities. Start here; `call.ts` has one
 * request in flight, `input-required.ts` the retries with answers, `subscription.ts` `subscriptions/listen`.
 */
import { utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { HubError, toHubError } from "../../base/errors.ts";
import { IdMap } from "../../base/in-flight-map.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import { type Kind, NO_CACHING } from "../../catalog/listing.ts";
import { readCursorParam, type SectionEntry } from "../../catalog/section.ts";
import { UI_EXTENSION } from "../../catalog/tool-visibility.ts";
import { buildResult, type EncodedMessage, type Request } from "../../jsonrpc/message.ts";
import { type ExtensionSettings, readAllExtensionSettings } from "../../protocol/capabilities.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import { isAtLeast, type LogSeverity, lowestSeverityOf } from "../../protocol/log-level.ts";
import { discoverResult, ModernMethod, toModernResultBytes } from "../../protocol/modern.ts";
import { ModernTaskMethod } from "../../protocol/tasks.ts";
import type { ApprovalAsks } from "../../router/approval-gate.ts";
import type { Call } from "../../router/call.ts";
import type { ClientTasks } from "../../router/tasks.ts";
import { type AnyMethodSpec, CALL_METHOD, METHODS, SKILL_METHODS } from "../../router/params.ts";
import { Router } from "../../router/router.ts";
import { refusedResult } from "../../router/timeouts.ts";
import type { LimitedClient } from "../../limits/limits.ts";
import {
  type HttpOrigin,
  type RequestOrigin,
  type RequestSource,
  startRequestSpan,
} from "../../telemetry/request-span.ts";
import type { Tracer } from "../../telemetry/tracer.ts";
import type { ClientChannel, ServerRequest } from "../../upstream/profile.ts";
import { ANONYMOUS_CLIENTS } from "../../views/client-modes.ts";
import { sessionOf } from "../../upstream/state.ts";
import type { ClientView } from "../../views/client-view.ts";
import type { Clients, ClientTransport } from "../clients.ts";
import { LIST_METHOD_KINDS, withoutExecution } from "../list-answers.ts";
import { readNamedCall } from "../tool-search/call-tool.ts";
import { CountedModernResponder, isCounted, nameTool } from "../counted-responder.ts";
import {
  failSpan,
  httpOriginOf,
  networkOf,
  spanOf,
  TracedModernResponder,
} from "../traced-responder.ts";
import type { ClientExposure } from "../tool-search/client-exposure.ts";
import {
  type AnsweringToolName,
  type CallingToolName,
  isCallingTool,
} from "../../catalog/search/hub-tools.ts";
import { type CatalogCheck, ModernCall } from "./call.ts";
import { AwaitedInputs, invalidRequestState } from "./input-required.ts";
import {
  buildModernError,
  checkRequestState,
  type ModernRequest,
  type ModernResponder,
  requestedVersionOf,
  requireTasks,
} from "./request.ts";
import { ClientSubscription } from "./subscription.ts";

/** The methods that are relayed to a server. */
const RELAYED_METHODS: ReadonlyMap<string, AnyMethodSpec> = new Map([
  [Method.toolsCall, CALL_METHOD] as const,
  ...SKILL_METHODS,
  ...[...METHODS].filter(([method, spec]) => method !== Method.subscribe && spec !== "task"),
  ...[ModernTaskMethod.get, ModernTaskMethod.update, ModernTaskMethod.cancel].map(
    (method) => [method, "task"] as const,
  ),
]);

/**
 * Handles those modern requests of one client that have the same capability class. To a legacy server, all of these
 * requests come from one client.
 */
export class ModernClient implements ClientChannel, RequestSource {
  readonly era = "modern";
  /**
   * The client's id; undefined for clients that cannot be told apart (HTTP clients without a token). Such clients may
   * not use servers with a connection per client.
   */
  readonly id: string | undefined;
  readonly clock: Clock;
  readonly view: ClientView;
  readonly router: Router;
  readonly tasks: ClientTasks;
  readonly awaitedInputs: AwaitedInputs;
  readonly settings: ExtensionSettings;
  /** The capabilities that the client's first request declares. */
  readonly declared: object;
  /** The form in which the client gets its tools; undefined: all in one list. */
  readonly exposure: ClientExposure | undefined;
  readonly #clients: Clients;
  readonly #kind: ClientTransport;
  readonly #modernCalls = new IdMap<ModernCall>();
  readonly #subscriptions = new Set<ClientSubscription>();
  /** For each request that waits for a list or for instructions: a function that cancels the request. */
  readonly #pendingWaits = new Set<() => void>();
  /**
   * The lowest log level that any request has asked for. It never rises, so that the servers' levels need not be set
   * for each request.
   */
  level: LogSeverity | undefined;
  /** Time of the last use, in ms of the clock. */
  lastUse: number;

  /**
   * @param declared the capabilities that the client's first request declares
   * @param tasks the tasks of the client
   */
  constructor(
    clients: Clients,
    id: string | undefined,
    view: ClientView,
    declared: object,
    tasks: ClientTasks,
    asks: ApprovalAsks,
    limitedClient: LimitedClient,
    exposure: ClientExposure | undefined,
    kind: ClientTransport,
  ) {
    const { approvals, deadlines, callLog, clock, limits, plugins } = clients.options;
    this.#clients = clients;
    this.#kind = kind;
    this.id = id;
    this.view = view;
    this.tasks = tasks;
    this.clock = clock;
    this.lastUse = clock.now();
    this.settings = readAllExtensionSettings(declared);
    this.declared = declared;
    this.exposure = exposure;
    if (exposure !== undefined)
      exposure.showsApps = Object.hasOwn(this.settings.extensions, UI_EXTENSION);
    this.awaitedInputs = new AwaitedInputs(clients.awaitingLimit, clock);
    this.router = new Router(
      {
        id: id ?? ANONYMOUS_CLIENTS,
        name: undefined,
        version: undefined,
        principal: view.principal,
        isAnonymous: id === undefined,
      },
      {
        view,
        deadlines,
        callLog,
        approvals,
        plugins,
        notify: () => {},
        excludedPlugin: undefined,
        client: this,
        isAnonymous: id === undefined,
        limits,
        limitedClient,
        asks,
        tasks,
      },
    );
  }

  /** Whether requests are counted at present. */
  get isCounting(): boolean {
    return this.#clients.options.callLog.operations !== undefined;
  }

  /** Whether requests are traced at present. */
  get isTracing(): boolean {
    return this.#clients.options.callLog.tracer !== undefined;
  }

  get serverInfo(): Implementation {
    return this.#clients.options.serverInfo();
  }

  /** The client's calls in flight. */
  get calls(): readonly Call[] {
    const own = this.#modernCalls.values().flatMap(({ call }) => call ?? []);
    return [...own, ...this.router.innerCalls];
  }

  get subscriptions(): number {
    return this.#subscriptions.size;
  }

  /** Whether a request, subscription, waiting call or task is in flight. */
  get isBusy(): boolean {
    const sets = [this.#modernCalls, this.#subscriptions, this.#pendingWaits, this.awaitedInputs];
    return sets.some(({ size }) => size > 0) || this.tasks.hasOpen(this);
  }

  /**
   * Handles a request.
   * @param check validates the request against the catalog, and throws if it is invalid; called again if the request's
   * tool is added to the catalog only later
   * @param retryOf the `requestState` that the hub has removed from the request: the request is a retry
   * @throws {HubError} methodNotFound, invalidParams, or the router's error for an unknown name
   */
  handle(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    check?: CatalogCheck,
    retryOf?: string,
  ): void {
    const { operations } = this.#clients.options.callLog;
    // The hub makes another request of a retry, and responds to both at once.
    if (operations === undefined || isCounted(responder)) {
      this.#handle(modernRequest, responder, check, retryOf);
      return;
    }
    const { request, sender } = modernRequest;
    const label = this.view.principal ?? sender.info.name;
    const { clock } = this;
    const client = { label, clock };
    const counted = new CountedModernResponder(
      operations.server,
      request.method,
      client,
      responder,
    );
    try {
      this.#handle(modernRequest, counted, check, retryOf);
    } catch (error) {
      counted.count(toHubError(error).code);
      throw error;
    }
  }

  #handle(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    check?: CatalogCheck,
    retryOf?: string,
  ): void {
    const { tracer } = this.#clients.options.callLog;
    if (tracer === undefined) this.#answer(modernRequest, responder, check, retryOf);
    else this.#answerTraced(tracer, modernRequest, responder, check, retryOf);
  }

  originOf(request: Request, http: HttpOrigin | undefined): RequestOrigin {
    const version = requestedVersionOf(request);
    return {
      network: networkOf(this.#kind),
      protocolVersion: typeof version === "string" ? version : undefined,
      sessionId: undefined,
      client: this.view.principal ?? this.id,
      http,
    };
  }

  /** Answers a request whose span, if it has one, ends with the answer. */
  #answerTraced(
    tracer: Tracer,
    modernRequest: ModernRequest,
    responder: ModernResponder,
    check?: CatalogCheck,
    retryOf?: string,
  ): void {
    const { request } = modernRequest;
    // The hub makes another request of a retry: it has the span of the client's.
    const span =
      spanOf(responder) === undefined
        ? startRequestSpan(tracer, request, httpOriginOf(request, this.#kind), this)
        : undefined;
    const traced = span === undefined ? responder : new TracedModernResponder(responder, span);
    try {
      this.#answer(modernRequest, traced, check, retryOf);
    } catch (error) {
      if (span !== undefined) {
        failSpan(traced, error);
        span.end();
      }
      throw error;
    }
  }

  #answer(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    check?: CatalogCheck,
    retryOf?: string,
  ): void {
    const { method } = modernRequest.request;
    this.lastUse = this.clock.now();
    this.#lowerLogLevel(modernRequest.sender.level);
    const methodSpec = RELAYED_METHODS.get(method);
    const tool =
      methodSpec === CALL_METHOD ? this.exposure?.hubToolOf(modernRequest.request) : undefined;
    if (tool !== undefined) nameTool(responder, tool);
    // No header repeats arguments of the hub's own tools.
    if (tool === undefined) check?.(this.view.catalog);
    if (tool !== undefined && !isCallingTool(tool)) {
      this.#answerHubTool(tool, modernRequest, responder);
      return;
    }
    if (methodSpec !== undefined) {
      checkRequestState(modernRequest);
      if (methodSpec === "task") requireTasks(modernRequest);
      if (!this.awaitedInputs.resume(modernRequest, responder))
        this.#relay(modernRequest, responder, methodSpec, { check, tool, retryOf });
      return;
    }
    const kind = LIST_METHOD_KINDS.get(method);
    if (kind !== undefined) this.#list(kind, modernRequest, responder);
    else if (method === ModernMethod.discover) this.#discover(modernRequest, responder);
    else if (method === ModernMethod.listen) this.#listen(modernRequest, responder);
    else throw new HubError("methodNotFound", `There is no method "${method}".`);
  }

  /** Called when the catalog was replaced. Notifies the subscriptions whose lists have changed. */
  catalogChanged(): void {
    this.exposure?.prepareSearch();
    for (const subscription of this.#subscriptions) subscription.compare(this.shownCatalog);
  }

  /** The catalog as it is shown to the client. */
  get shownCatalog(): Catalog {
    const { catalog } = this.view;
    return this.exposure === undefined ? catalog : this.exposure.shown(catalog);
  }

  sees(server: string): boolean | undefined {
    return this.view.sees(server);
  }

  sendServerRequest(request: ServerRequest): () => void {
    const { server } = request;
    const [call, ...others] = this.#candidateCalls(server);
    if (call !== undefined && others.length === 0) return call.sendServerRequest(request);
    const text =
      call === undefined
        ? `Server "${server}" asked the client while no request of the client was running.`
        : `Server "${server}" runs several requests of this client and does not say which one it asks for. Send these requests one after another.`;
    request.fail(new HubError("notAsked", text, { server }));
    return () => {};
  }

  onMissingCapability(server: string, needed: object): void {
    const [call, ...others] = this.#candidateCalls(server);
    if (others.length === 0) call?.onMissingCapability(needed);
  }

  /** Does nothing: modern clients get no notifications outside of a request. */
  notify(): void {}

  /**
   * Sends a server's log message to the client. The message does not say which request it is about, so clients that
   * cannot be told apart get it only if just one of their calls is at that server.
   */
  sendLogMessage(server: string, severity: LogSeverity, message: EncodedMessage): void {
    if (this.level === undefined || !isAtLeast(severity, this.level)) return;
    const there = this.#callsAt(server);
    if (this.id === undefined && there.length > 1) return;
    let isPiped = false;
    for (const call of there) {
      const { responder } = call;
      if (responder === undefined || !call.wantsLogLevel(severity)) continue;
      // On a pipe all requests share one channel, so the message is sent once.
      if (!responder.isPipe || !isPiped) responder.notify(message);
      isPiped ||= responder.isPipe;
    }
  }

  onCallEnd(call: ModernCall): void {
    this.lastUse = this.clock.now();
    this.#modernCalls.remove(call.tableKey);
  }

  onSubscriptionEnd(subscription: ClientSubscription): void {
    this.lastUse = this.clock.now();
    this.#subscriptions.delete(subscription);
  }

  /** Ends the subscriptions with a final result, because the hub stops. */
  stop(): void {
    for (const subscription of this.#subscriptions) subscription.stop();
  }

  /** Ends all requests, because the client has disconnected or has been idle for too long. */
  close(): void {
    this.awaitedInputs.close();
    for (const call of this.#modernCalls.values())
      call.cancel("The client has left.", "disconnect");
    for (const subscription of this.#subscriptions) subscription.end();
    for (const cancel of this.#pendingWaits) cancel();
    this.#pendingWaits.clear();
    this.router.close();
    this.view.close();
  }

  /**
   * The calls of this client that may have caused a server's request, which does not name its call: calls at that
   * server, and calls with an inner call there. If some of them do not wait for input, only those are returned.
   */
  #candidateCalls(server: string): readonly ModernCall[] {
    const parents = this.router.innerCalls
      .filter((inner) => inner.server === server)
      .map(({ caller }) => caller.parentCall);
    const isParent = ({ call }: ModernCall): boolean => parents.includes(call?.number);
    const calls = this.#modernCalls.filter((each) => each.server === server || isParent(each));
    const active = calls.filter(({ isAwaitingInput }) => !isAwaitingInput);
    return active.length > 0 ? active : calls;
  }

  #callsAt(server: string): readonly ModernCall[] {
    return this.#modernCalls.filter((call) => call.server === server);
  }

  #relay(
    modernRequest: ModernRequest,
    responder: ModernResponder,
    methodSpec: AnyMethodSpec,
    {
      check,
      tool,
      retryOf,
    }: {
      readonly check: CatalogCheck | undefined;
      readonly tool: CallingToolName | undefined;
      readonly retryOf: string | undefined;
    },
  ): void {
    const { name, version } = modernRequest.sender.info;
    const { client } = this.router;
    if (client.name !== name || client.version !== version) {
      this.router.client = { ...client, name, version };
      if (this.id !== undefined) {
        const { principal } = this.view;
        const who = { client: this.id, ...(principal !== undefined && { principal }) };
        this.#clients.options.onClient({ ...who, change: "changed", name, version });
      }
    }
    const named =
      tool !== undefined && this.exposure !== undefined
        ? readNamedCall(tool, modernRequest.request, this.exposure)
        : undefined;
    const { request = modernRequest.request, via } = named ?? {};
    const call = new ModernCall(
      this.#withOwnSender(modernRequest),
      responder,
      this,
      named === undefined ? check : undefined,
      via,
      retryOf,
    );
    const running = this.router.route(request, call, methodSpec);
    this.#checkRequestState(modernRequest, running.call);
    call.tableKey = this.#modernCalls.add(call);
    call.run(running);
  }

  /**
   * Senders are compared by identity: each request of clients that cannot be told apart gets its own sender object, so
   * that no two requests seem to come from one client.
   */
  #withOwnSender(modernRequest: ModernRequest): ModernRequest {
    if (this.id !== undefined) return modernRequest;
    return { ...modernRequest, sender: { ...modernRequest.sender } };
  }

  /**
   * Refuses a call to a legacy server with a `requestState` that is not the hub's: only a modern server can have issued
   * it.
   */
  #checkRequestState(modernRequest: ModernRequest, call: Call | undefined): void {
    if (call === undefined || modernRequest.params.string("requestState") === undefined) return;
    const connection = this.view.connection(call.describe().server);
    const session = connection && sessionOf(connection.state);
    if (session?.era === "legacy") throw invalidRequestState();
  }

  #list(kind: Kind, { request }: ModernRequest, responder: ModernResponder): void {
    const after = readCursorParam(kind, request);
    const error = this.router.countRequest();
    if (error !== undefined) throw error;
    const { listAnswers } = this.#clients;
    this.#respondWhenReady(responder, (callback) =>
      this.view.whenListed(() => {
        const { serverInfo } = this;
        if (kind === "tools") this.exposure?.prepareSearch();
        const section = this.shownCatalog[kind];
        callback(
          buildResult(
            request.id,
            after === undefined
              ? listAnswers.firstPage(section, serverInfo)
              : listAnswers.page(section, after, serverInfo),
          ),
        );
      }),
    );
  }

  /** Answers a call of one of the hub's own tools. @throws {HubError} invalidParams */
  #answerHubTool(
    tool: AnsweringToolName,
    { request }: ModernRequest,
    responder: ModernResponder,
  ): void {
    const refusal = this.router.countRequest();
    if (refusal !== undefined) {
      const result = toModernResultBytes(refusedResult(refusal), this.serverInfo);
      responder.respond(buildResult(request.id, result));
      return;
    }
    const context = {
      definitionOf: ({ bytes }: SectionEntry) => withoutExecution(bytes),
      onSelected: () => {},
    };
    this.#respondWhenReady(
      responder,
      (callback) =>
        this.exposure?.answer(tool, request, context, {
          respond: (result) =>
            callback(
              result && buildResult(request.id, toModernResultBytes(result, this.serverInfo)),
            ),
          fail: (error) => callback(buildModernError(request.id, error)),
        }) ?? (() => {}),
    );
  }

  #discover({ request }: ModernRequest, responder: ModernResponder): void {
    this.#respondWhenReady(responder, (callback) =>
      this.view.whenSavedLoaded((catalog) => {
        const { capabilities: offered } = catalog;
        const { exposure } = this;
        const instructions =
          exposure === undefined ? catalog.instructions : exposure.instructions(catalog);
        const result = utf8(JSON.stringify(discoverResult(instructions, offered)));
        callback(buildResult(request.id, toModernResultBytes(result, this.serverInfo, NO_CACHING)));
      }),
    );
  }

  /** Responds when the answer is ready, unless the request is cancelled first. */
  #respondWhenReady(
    responder: ModernResponder,
    subscribe: (callback: (message: EncodedMessage | undefined) => void) => () => void,
  ): void {
    let isOver = false;
    const respond = (message: EncodedMessage | undefined): void => {
      if (isOver) return;
      isOver = true;
      this.#pendingWaits.delete(cancel);
      responder.respond(message);
    };
    const cancel = (): void => {
      unsubscribe();
      respond(undefined);
    };
    this.#pendingWaits.add(cancel);
    const unsubscribe = subscribe(respond);
    responder.onCancel(cancel);
  }

  #listen(modernRequest: ModernRequest, responder: ModernResponder): void {
    const subscription = new ClientSubscription(modernRequest, responder, this);
    this.#subscriptions.add(subscription);
    subscription.begin();
  }

  /** Lowers the servers' log level to the one that a request asks for, if that is lower. */
  #lowerLogLevel(level: LogSeverity | undefined): void {
    if (level === undefined || level === this.level) return;
    const before = this.level;
    this.level = lowestSeverityOf(before === undefined ? [level] : [level, before]);
    if (this.level !== before) this.view.levelChanged();
  }
}
