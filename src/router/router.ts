/**
 * The router: finds the server for each client request, and handles the request until it is answered. `Router` finds
 * the route, `Call` is a request in progress, `UpstreamRequest` is that request at one server. Start here with `route`,
 * then read `call.ts` and `upstream-request.ts`.
 */

import { type Edit, utf8 } from "../base/bytes.ts";
import type { Kind } from "../catalog/listing.ts";
import type { ListedRoute, Route } from "../catalog/section.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { isNamed } from "../catalog/exposure.ts";
import type { Catalog } from "../catalog/catalog.ts";
import { SkillMethod, supportsDirectoryRead } from "../catalog/skills.ts";
import type { Connection } from "../upstream/connection.ts";
import { JsonObject, lastMember, parseRange } from "../base/json.ts";
import type { PluginInstance as PluginMember } from "../plugin/instance.ts";
import type { ClientCatalogs } from "../plugin/handler-chain.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import { Method } from "../protocol/legacy.ts";
import { removeTaskParam } from "../protocol/tasks.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import type { ClientChannel } from "../upstream/profile.ts";
import type { ClientView } from "../views/client-view.ts";
import { type EncodedMessage, paramsOf, type Request, type Response } from "../jsonrpc/message.ts";
import {
  type Caller,
  type Call,
  type CallContext,
  type CallLog,
  type CallVia,
  CompletionCall,
  RelayedCall,
  type RoutedRequest,
  type RunningRequest,
} from "./call.ts";
import type { Approvals } from "../approval/approvals.ts";
import { type ApprovalAsks, ApprovalGate } from "./approval-gate.ts";
import type { Deadlines } from "./deadlines.ts";
import { PluginCall } from "./plugin-call.ts";
import { locateResource, locateSkill, ResourceLinks } from "./resource-lookup.ts";
import { isResultFor, lostAnswer } from "./timeouts.ts";
import { UnlistedRequest } from "./unlisted.ts";
import type { LimitScope } from "../limits/limit-scope.ts";
import type { ActiveLimits, LimitedClient, Limits } from "../limits/limits.ts";
import { LimitGate } from "./limit-gate.ts";
import type { ClientTasks, RunningTaskSubscription, TaskSubscriptionEvents } from "./tasks.ts";
import { type InnerCallOptions, runInnerCall } from "./inner-call.ts";
import {
  type AnyMethodSpec,
  type CallParams,
  readParams,
  refuseLookalikes,
  RESOURCE_METHOD,
} from "./params.ts";
import { ResourceSubscriptions, SubscribeCall } from "./subscriptions.ts";

export interface RouterOptions {
  readonly view: ClientView;
  readonly deadlines: Deadlines;
  readonly callLog: CallLog;
  readonly approvals: Approvals;
  /** The active plugins; undefined if there are none. */
  plugins(): PluginSet | undefined;
  /** Sends the client a notification that belongs to no request. */
  notify(message: EncodedMessage): void;
  /** The plugin that makes the calls of this router, if any. The plugin's own hooks are not run for these calls. */
  readonly excludedPlugin: PluginMember | undefined;
  /** The client, as the receiver of servers' requests and notifications. */
  readonly client: ClientChannel;
  /** The client's tasks. */
  readonly tasks: ClientTasks;
  /** Whether several clients that the hub cannot tell apart may use this router. */
  readonly isAnonymous?: boolean;
  /** How the client is asked for approvals. */
  readonly asks: ApprovalAsks;
  /** The limits of calls, and what says which of them are the client's. */
  readonly limits: Limits;
  readonly limitedClient: LimitedClient;
}

/** Finds the routes of one client's requests and creates the calls. */
export class Router {
  /** The client's name and version, as plugins see them. */
  client: ClientInfo;
  readonly #options: RouterOptions;
  readonly #context: CallContext;
  readonly #subscriptions: ResourceSubscriptions;
  /** Routers for the calls that plugins make as a part of this client's calls. */
  readonly #innerRouters = new Map<PluginMember | undefined, Router>();
  readonly #innerCalls = new Set<() => Call | undefined>();
  /** The scope of the client's limits, once it was needed. */
  #scope: LimitScope | undefined;

  constructor(client: ClientInfo, options: RouterOptions) {
    this.client = client;
    this.#options = options;
    const { deadlines, callLog, view, client: channel, tasks } = options;
    const links = new ResourceLinks();
    this.#context = { deadlines, callLog, view, client: channel, tasks, links, callCount: 0 };
    this.#subscriptions = new ResourceSubscriptions(options.view, (message) =>
      options.notify(message),
    );
  }

  /** Number of the client's calls so far. */
  get callCount(): number {
    return this.#context.callCount;
  }

  /** Makes the spans of requests; undefined while none are made. */
  get tracer(): Tracer | undefined {
    return this.#context.callLog.tracer;
  }

  /** The running calls that plugins make as a part of this client's calls. */
  get innerCalls(): readonly Call[] {
    return [...this.#innerCalls].flatMap((call) => call() ?? []);
  }

  /**
   * Calls a tool for a plugin, as a part of a call of this client. The plugin can call the tools of all servers.
   * @param excluded the plugin whose hooks are not run
   * @throws {HubError} cancelled, if there is no answer; usage if the arguments are not a JSON object
   */
  callTool(excluded: PluginMember | undefined, options: InnerCallOptions): Promise<Response> {
    return runInnerCall(this.#innerRouter(excluded), options, (call) => {
      this.#innerCalls.add(call);
      return () => void this.#innerCalls.delete(call);
    });
  }

  /**
   * Counts a request that the hub answers itself, such as a list, against the client's rate.
   * @returns the error if the rate does not allow it
   */
  countRequest(): HubError | undefined {
    const limits = this.#options.limits.active;
    return limits?.takeRate(this.#scopeIn(limits), []);
  }

  #scopeIn(limits: ActiveLimits): LimitScope {
    return (this.#scope ??= limits.clientScope(this.#options.limitedClient));
  }

  /** Waits until the client's servers are listed, but at most `listWait`. @returns the client's catalogs */
  async catalogs(): Promise<ClientCatalogs> {
    const { view } = this.#innerRouter(undefined).#options;
    view.updateReadiness();
    const all = await new Promise<Catalog>((resolve) => {
      view.whenListed(resolve);
    });
    return { all, shown: this.#options.view.catalog, allows: (server) => view.allows(server) };
  }

  #innerRouter(plugin: PluginMember | undefined): Router {
    const known = this.#innerRouters.get(plugin);
    if (known !== undefined) return known;
    const view = this.#options.view.withAllServers();
    view.open();
    const router = new Router(this.client, { ...this.#options, view, excludedPlugin: plugin });
    this.#innerRouters.set(plugin, router);
    return router;
  }

  /**
   * Finds the server of a request. The caller must then `run` the result.
   * @param subscriptions the object to which `resources/subscribe` adds its subscription; by default the client's own
   * @throws {HubError} invalidParams, or the error for an unknown tool, prompt or resource
   */
  route(
    request: Request,
    caller: Caller,
    methodSpec: AnyMethodSpec,
    subscriptions = this.#subscriptions,
  ): RunningRequest {
    const { deadlines, tasks } = this.#context;
    const startedAt = deadlines.now();
    const object = paramsOf(request);
    refuseLookalikes(object, request.method);
    if (methodSpec === "task") return tasks.route(this.#context, request, caller, startedAt);
    const params = readParams(request, methodSpec, object);
    const { via } = caller;
    try {
      if (via?.refusal !== undefined) throw via.refusal;
      return this.#routeByName(request, params, caller, startedAt, subscriptions);
    } catch (thrown) {
      const error = toHubError(thrown);
      if (!isResultFor(caller, error)) throw thrown;
      return new RefusedRequest(request, caller, error);
    }
  }

  #routeByName(
    request: Request,
    params: CallParams,
    caller: Caller,
    startedAt: number,
    subscriptions: ResourceSubscriptions,
  ): RunningRequest {
    const { deadlines, view } = this.#context;
    const call = this.#findCall(request, params, caller, startedAt, true, subscriptions);
    if (call !== undefined) return call;
    const { kind, name } = params;
    const { via } = caller;
    const withheldError = this.#withheldError(kind, name, via);
    if (withheldError !== undefined) throw withheldError;
    const notFoundError = (): HubError => this.#notFoundError(kind, name, via);
    const unlisted = view.unlistedConnections(kind, name);
    const connections =
      via === undefined ? unlisted : unlisted.filter(({ spec }) => view.sees(spec.name) !== false);
    if (connections.length === 0) throw notFoundError();
    const timeout = Math.max(...connections.map(({ spec }) => spec.callTimeout));
    const find = (isLast: boolean): Call | undefined => {
      caller.onListed?.(view.catalog);
      return this.#findCall(request, params, caller, startedAt, isLast, subscriptions);
    };
    const options = {
      request,
      caller,
      kind,
      name,
      connections,
      view,
      find,
      notFoundError,
      startedAt,
    };
    return new UnlistedRequest({ ...options, timeout, deadlines });
  }

  /**
   * The error for an item that is not found. A call through a tool of the hub learns nothing of servers that the client's
   * modes hide.
   */
  #notFoundError(kind: Kind, name: string, via: CallVia | undefined): HubError {
    const { view } = this.#context;
    const withheldError = this.#withheldError(kind, name, via);
    if (withheldError !== undefined) return withheldError;
    const error = view.notFoundError(kind, name);
    if (via === undefined) return error;
    const isOfServer = error.server !== undefined && view.sees(error.server) !== false;
    return isOfServer ? error : via.notFoundError(view.catalog.tools);
  }

  /** The error for a tool or prompt that is not accepted; undefined if there is no such one of this name. */
  #withheldError(kind: Kind, name: string, via: CallVia | undefined): HubError | undefined {
    return this.#context.view.withheldError(kind, (section) =>
      via === undefined ? (section.find(name) ?? section.findRemote(name)[0]) : via.find(section),
    );
  }

  /** Subscribes to a task. @throws {HubError} invalidParams if the client has no such task */
  subscribeTask(id: string, events: TaskSubscriptionEvents): RunningTaskSubscription {
    return this.#context.tasks.subscribe(id, this.#context, events);
  }

  /** Ends a subscription, if there is one. @throws {HubError} invalidParams */
  unsubscribe(request: Request): void {
    this.#subscriptions.remove(readParams(request, RESOURCE_METHOD).name);
  }

  /** Called when a server may have settled: its first listing is known, or it has failed. */
  serverSettled(): void {
    this.#options.view.updateReadiness();
    for (const router of this.#innerRouters.values()) router.serverSettled();
  }

  close(): void {
    this.#options.approvals.forgetClient(this.#context.client);
    this.#subscriptions.close();
    for (const router of this.#innerRouters.values()) {
      router.close();
      router.#options.view.close();
    }
    this.#innerRouters.clear();
  }

  /** @param mayGuess whether resource links, templates or the scheme may locate a resource that is not listed */
  #findCall(
    request: Request,
    params: CallParams,
    caller: Caller,
    startedAt: number,
    mayGuess: boolean,
    subscriptions: ResourceSubscriptions,
  ): Call | undefined {
    const { view, tasks } = this.#context;
    const { kind, name, tokens, token } = params;
    const { via } = caller;
    const listed =
      via === undefined
        ? (view.catalog[kind].find(name) ?? this.#findByRemoteName(kind, name))
        : via.find(view.catalog.tools);
    if (listed === undefined && via === undefined) view.refuseHidden(kind, name);
    const route =
      listed ?? (isNamed(kind) || !mayGuess ? undefined : this.#locateRoute(kind, name));
    const connection = route && view.connection(route.server);
    if (route === undefined || connection === undefined) return undefined;
    if (request.method === SkillMethod.readDirectory) checkDirectories(connection);
    const routed: RoutedRequest = {
      request,
      route,
      rewrite: { edits: nameEdits(params, route), tokens },
      token,
      caller,
      startedAt,
    };
    const context = this.#context;
    if (kind !== "tools" || listed === undefined)
      return this.#otherCall(params, routed, connection, subscriptions);
    const isTask = this.#isTaskWanted(params, caller, connection, listed, routed);
    if (isTask) tasks.makeRoom();
    const { approvals, limits } = this.#options;
    const plugins = this.#options.plugins();
    const callPath = plugins?.callPath(listed, connection.isPrivate ? "perClient" : "shared");
    const call =
      plugins === undefined || callPath === undefined
        ? new RelayedCall(context, routed, connection, isTask ? TASK_AUGMENTED : undefined)
        : new PluginCall(context, routed, connection, {
            router: this,
            plugins,
            callPath,
            client: this.client,
            excludedPlugin: this.#options.excludedPlugin,
            members: params.members,
            isTask,
          });
    let approval: ApprovalGate | undefined;
    if (approvals.isOn || caller.agent !== undefined || via?.isReadOnly === true)
      call.gate = approval = this.#gateFor(listed, connection, caller);
    if (limits.active !== undefined)
      call.gate = this.#limitGateFor(limits.active, call, params, approval);
    return call;
  }

  /** Makes the call for a request that calls no tool. */
  #otherCall(
    params: CallParams,
    routed: RoutedRequest,
    connection: Connection,
    subscriptions: ResourceSubscriptions,
  ): Call {
    const context = this.#context;
    const { method } = routed.request;
    const call =
      method === Method.complete
        ? new CompletionCall(context, routed, connection)
        : method === Method.subscribe
          ? new SubscribeCall(context, routed, connection, subscriptions)
          : new RelayedCall(context, routed, connection);
    const { active } = this.#options.limits;
    if (active !== undefined) call.gate = this.#limitGateFor(active, call, params, undefined);
    return call;
  }

  /** The gate that takes a call through the limits. Only the rate of its client limits a request that calls no tool. */
  #limitGateFor(
    limits: ActiveLimits,
    call: Call,
    { kind, members }: CallParams,
    approval: ApprovalGate | undefined,
  ): LimitGate {
    const { caller, route } = call;
    const { server, remoteName } = route;
    const client = this.#scopeIn(limits);
    const subject = [client.name, server, remoteName];
    const given = caller.sender.era === "modern" ? lastMember(members, "requestState") : undefined;
    const state: unknown = given && parseRange(call.request.bytes, given);
    const requestState = caller.retryOf ?? (typeof state === "string" ? state : undefined);
    const retried =
      requestState === undefined ? undefined : limits.retries.take([...subject, requestState]);
    return new LimitGate({
      limits,
      client,
      scopes: kind === "tools" ? limits.scopesOf(server, remoteName) : undefined,
      approval,
      hasPlugins: call instanceof PluginCall,
      outer: caller.outer,
      retried: retried instanceof LimitGate ? retried : undefined,
      subject,
    });
  }

  /**
   * Whether a call of a tool is to be run as a task. Only legacy calls have the member `task`; in a modern call it is
   * ignored. If the hub has not declared tasks to the client, the member is ignored and removed (2025-11-25, tasks).
   * @throws {HubError} methodNotFound if the tool does not declare that it can be run as a task
   */
  #isTaskWanted(
    { members }: CallParams,
    caller: Caller,
    { listing }: Connection,
    { name, item }: ListedRoute,
    { request, rewrite }: RoutedRequest,
  ): boolean {
    if (caller.sender.era !== "legacy" || lastMember(members, "task") === undefined) return false;
    if (!this.#context.tasks.areDeclared) {
      if (request.params !== undefined)
        rewrite.edits.push(...removeTaskParam(request.params, paramsOf(request)));
      return false;
    }
    const { tasks } = listing?.declared ?? { tasks: "legacy" };
    const support = JsonObject.of(item.bytes).object("execution").string("taskSupport");
    if ((tasks === "legacy" || tasks === "both") && TASK_SUPPORT.has(support)) return true;
    throw new HubError("methodNotFound", `Tool "${name}" cannot be called as a task.`);
  }

  /** The gate that holds a call until a person has allowed it; undefined if the call needs no approval. */
  #gateFor(route: ListedRoute, connection: Connection, caller: Caller): ApprovalGate | undefined {
    const { approvals, isAnonymous = false, view } = this.#options;
    const { principal } = this.client;
    const rule = approvals.ruleFor(
      route,
      connection.spec,
      connection.state.at === "connected",
      principal,
      caller.agent,
      view.minimumApproval,
    );
    const { via } = caller;
    const notReadOnlyError =
      via?.isReadOnly === true ? via.notReadOnlyError(route.name) : undefined;
    if (rule === undefined && notReadOnlyError === undefined) return undefined;
    const plugins = this.#options.plugins();
    const isCurrent = (): boolean => {
      try {
        return this.#options.plugins() === plugins && view.connection(route.server) === connection;
      } catch {
        return false;
      }
    };
    return new ApprovalGate({
      approvals,
      rule: rule ?? NO_APPROVAL,
      notReadOnlyError,
      route,
      connection,
      principal,
      isAnonymous,
      asks: this.#options.asks,
      isCurrent,
    });
  }

  /**
   * Finds a tool by the server's own name for it, if no exposed tool has the name. A server's UI (MCP Apps) knows the
   * server's tools only by these names. If several servers have such a tool, the server whose UI the client has read is
   * used.
   * @throws {HubError} unknownTool if the name remains ambiguous
   */
  #findByRemoteName(kind: Kind, name: string): ListedRoute | undefined {
    if (kind !== "tools") return undefined;
    const routes = this.#options.view.catalog.tools.findRemote(name);
    const [only, ...more] = routes;
    if (more.length === 0) return only;
    const isOneClient = this.#options.isAnonymous !== true;
    const withUi = isOneClient
      ? routes.filter(({ server }) => this.#context.links.hasUiServer(server))
      : [];
    if (withUi.length === 1) return withUi[0];
    const names = routes.map((route) => `"${route.name}"`).join(", ");
    const text = `There is no tool "${name}". Several servers have a tool of this name: ${names}.`;
    throw new HubError("unknownTool", text);
  }

  /** Finds the server for the URI of a resource or skill. No server needs to list the URI: a resource template may match. */
  #locateRoute(kind: Kind, name: string): Route | undefined {
    const { view } = this.#options;
    const { catalog } = view;
    const known = kind === "skills" ? undefined : catalog.resources.find(name);
    if (known !== undefined) return known;
    const hints = {
      links: this.#context.links,
      isOneClient: this.#options.isAnonymous !== true,
      hasServer: (server: string) => view.has(server),
    };
    const location =
      kind === "skills"
        ? locateSkill(name, catalog, view.skillServers)
        : locateResource(name, catalog, hints);
    const spec = location && view.connection(location.server)?.spec;
    if (location === undefined || spec === undefined) return undefined;
    const { server, uri } = location;
    const { skills } = catalog.uris;
    if (kind === "skills" ? skills.hidesSkill(server, uri) : skills.hidesFile(server, uri)) {
      return undefined;
    }
    // A filter may name the resource by either of its URIs.
    for (const one of new Set([name, uri])) {
      const item = { server, remoteName: uri, name: one, isReadOnly: true };
      view.refuseOutside("resources", item, name);
    }
    const remoteNameJson = utf8(JSON.stringify(uri));
    const limits = { timeout: spec.callTimeout, maxTimeout: spec.maxCallTimeout };
    const common = { server, name, remoteName: uri, remoteNameJson, limits };
    return { kind: "resources", ...common, item: undefined };
  }
}

/** The rule for a call that needs no approval. */
const NO_APPROVAL = { level: "never", setting: "", isForTool: false } as const;
const TASK_AUGMENTED = { isTask: true };
/** The values of `execution.taskSupport` of tools that can be called as tasks. */
const TASK_SUPPORT: ReadonlySet<string | undefined> = new Set(["optional", "required"]);

/** A request that is answered at once with the reason why no tool is called, as a result. */
class RefusedRequest implements RunningRequest {
  readonly call = undefined;
  readonly #request: Request;
  readonly #caller: Caller;
  readonly #error: HubError;

  constructor(request: Request, caller: Caller, error: HubError) {
    this.#request = request;
    this.#caller = caller;
    this.#error = error;
  }

  run(): void {
    const { code, message } = this.#error;
    this.#caller.span?.setOutcome({ type: code, message });
    this.#caller.respond(lostAnswer(this.#request, this.#error));
  }

  cancel(): void {
    this.#caller.respond(undefined);
  }
}

/** Checks support for directories. @throws {HubError} invalidParams if `resources/directory/read` is not declared */
function checkDirectories({ listing: offer, spec }: Connection): void {
  if (supportsDirectoryRead(offer?.declared?.extensions ?? {})) return;
  const text = `Server "${spec.name}" does not list directories of resources.`;
  throw new HubError("invalidParams", text);
}

/** Edits that replace the exposed name by the server's own; none if both are equal and the key is not repeated. */
function nameEdits(
  { key, nameMembers, name }: CallParams,
  { remoteName, remoteNameJson }: Route,
): Edit[] {
  const edits: Edit[] = [];
  for (const { key: memberKey, start, end } of nameMembers) {
    if (memberKey === key) edits.push({ start, end, replacement: remoteNameJson });
  }
  return name === remoteName && edits.length === 1 ? [] : edits;
}
