/**
 * The router: finds the server for each client request, and handles the request until its one response. `Router`
 * finds the route, `Call` is a request in progress, `UpstreamRequest` a call that no plugin sees. Start here with
 * `route`, then read `call.ts` and `upstream-request.ts`.
 */

import { type Edit, utf8 } from "../base/bytes.ts";
import type { Kind } from "../catalog/listing.ts";
import type { ListedRoute, Route } from "../catalog/section.ts";
import { HubError } from "../base/errors.ts";
import { isNamed } from "../catalog/catalog.ts";
import { SkillMethod, supportsDirectoryRead } from "../catalog/skills.ts";
import type { Connection } from "../upstream/connection.ts";
import { lastMember } from "../base/json.ts";
import type { PluginInstance as PluginMember } from "../plugin/instance.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import { Method } from "../protocol/legacy.ts";
import type { ClientChannel } from "../upstream/profile.ts";
import type { ClientView } from "../upstream/view.ts";
import type { EncodedMessage, Request } from "../jsonrpc/message.ts";
import type { Caller, CallLog, Call, RunningRequest } from "./call.ts";
import { CompletionRequest, TaskAugmentedCall, UpstreamRequest } from "./upstream-request.ts";
import {
  type ModernClientTasks,
  ModernTaskRequest,
  type TaskSubscriptionEvents,
  TaskSubscription,
} from "./modern-tasks.ts";
import type { Deadlines } from "./deadlines.ts";
import { TaskResultPluginCall } from "./plugin-task-result.ts";
import { PluginCall } from "./plugin-call.ts";
import { locateResource, locateSkill, ResourceLinks } from "./resource-lookup.ts";
import { UnlistedRequest } from "./unlisted.ts";
import { LegacyClientTasks } from "./tasks.ts";
import { type AnyMethodSpec, type CallParams, readParams, RESOURCE_METHOD } from "./params.ts";
import { ResourceSubscriptions, SubscribeRequest } from "./subscriptions.ts";

/** The options of a router. */
export interface RouterOptions {
  readonly view: ClientView;
  readonly deadlines: Deadlines;
  readonly callLog: CallLog;
  /** The active plugins; undefined if there are none. */
  plugins(): PluginSet | undefined;
  /** Sends the client a notification that belongs to no request. */
  notify(message: EncodedMessage): void;
  /** The plugin that makes these calls, if one does: its own hooks are skipped. */
  readonly excludedPlugin: PluginMember | undefined;
  /** The channel through which servers' messages reach the client. */
  clientChannel(): ClientChannel;
  /** Whether several clients that the hub cannot tell apart may share this router. */
  readonly isAnonymous?: boolean;
  /** The tasks at modern servers; only for a modern client. */
  readonly modernTasks?: ModernClientTasks;
}

/** Maps the requests of one client to routes and creates the calls. It alone parses `params` and looks up names. */
export class Router {
  /** The client's name and version, as plugins see them. */
  client: ClientInfo;
  readonly #options: RouterOptions;
  readonly #links = new ResourceLinks();
  readonly #subscriptions: ResourceSubscriptions;
  readonly #legacyTasks: LegacyClientTasks;

  constructor(client: ClientInfo, options: RouterOptions) {
    this.client = client;
    this.#options = options;
    this.#subscriptions = new ResourceSubscriptions((message) => options.notify(message));
    this.#legacyTasks = new LegacyClientTasks(() => options.clientChannel());
  }

  /**
   * Finds the route of a request. The caller starts the result with `run`.
   * @param subscriptions where `resources/subscribe` adds its subscription; by default the client's own
   * @throws {HubError} invalidParams, or unknown tool, prompt or resource
   */
  route(
    request: Request,
    caller: Caller,
    methodSpec: AnyMethodSpec,
    subscriptions = this.#subscriptions,
  ): RunningRequest {
    const { deadlines, callLog, view } = this.#options;
    const startedAt = deadlines.now();
    if (methodSpec === "task") {
      const context = { request, caller, startedAt, deadlines, callLog, links: this.#links, view };
      const { modernTasks } = this.#options;
      return modernTasks === undefined
        ? this.#legacyTasks.route(context)
        : new ModernTaskRequest(context, modernTasks);
    }
    const params = readParams(request, methodSpec);
    const call = this.#findCall(request, params, caller, startedAt, true, subscriptions);
    if (call !== undefined) return call;
    const { kind, name } = params;
    const notFoundError = view.notFoundError(kind, name);
    const connections = view.unlistedConnections(kind, name);
    if (connections.length === 0) throw notFoundError;
    const timeout = Math.max(...connections.map(({ spec }) => spec.callTimeout));
    const find = (isLast: boolean): Call | undefined => {
      caller.onListed?.(view.catalog);
      return this.#findCall(request, params, caller, startedAt, isLast, subscriptions);
    };
    const options = { request, caller, kind, name, connections, find, notFoundError, startedAt };
    return new UnlistedRequest({ ...options, timeout, deadlines });
  }

  /**
   * Subscribes to the notifications of a task.
   * @throws {HubError} invalidParams if the client has no such task
   */
  subscribeTask(id: string, events: TaskSubscriptionEvents): TaskSubscription {
    const { modernTasks, view } = this.#options;
    if (modernTasks === undefined) throw new HubError("invalidParams", "There is no such task.");
    return new TaskSubscription(modernTasks.find(id, view), modernTasks, this.#links, events);
  }

  /**
   * Ends a subscription, if there is one.
   * @throws {HubError} invalidParams
   */
  unsubscribe(request: Request): void {
    this.#subscriptions.remove(readParams(request, RESOURCE_METHOD).name);
  }

  /** The client has disconnected. */
  close(): void {
    this.#subscriptions.close();
    this.#legacyTasks.close();
  }

  /** @param mayGuess whether a resource that is not listed may be located by links, templates and scheme */
  #findCall(
    request: Request,
    params: CallParams,
    caller: Caller,
    startedAt: number,
    mayGuess: boolean,
    subscriptions: ResourceSubscriptions,
  ): Call | undefined {
    const { view, deadlines, callLog } = this.#options;
    const { kind, name, tokens, token } = params;
    const listed = view.catalog[kind].find(name) ?? this.#findByRemoteName(kind, name);
    const route =
      listed ?? (isNamed(kind) || !mayGuess ? undefined : this.#locateRoute(kind, name));
    const connection = route && view.connection(route.server);
    if (route === undefined || connection === undefined) return undefined;
    if (request.method === SkillMethod.readDirectory) checkDirectories(connection);
    const context = {
      request,
      route,
      rewrite: { edits: nameEdits(params, route), tokens },
      token,
      caller,
      connection,
      startedAt,
      deadlines,
      callLog,
      links: this.#links,
      view,
    };
    if (request.method === Method.complete) return new CompletionRequest(context);
    if (request.method === Method.subscribe) return new SubscribeRequest(context, subscriptions);
    if (kind !== "tools" || listed === undefined) return new UpstreamRequest(context);
    // Modern calls do not have the member `task`.
    const isTask =
      lastMember(params.members, "task") !== undefined && caller.sender.era === "legacy";
    if (isTask) this.#legacyTasks.makeRoom();
    const plugins = this.#options.plugins();
    const callPath = plugins?.callPath(listed, connection.spec.isolation);
    if (plugins === undefined || callPath === undefined) {
      return isTask
        ? new TaskAugmentedCall(context, this.#legacyTasks)
        : new UpstreamRequest(context);
    }
    const { client } = this;
    const { excludedPlugin } = this.#options;
    const { members } = params;
    const pluginContext = { plugins, callPath, client, excludedPlugin, members };
    if (!isTask) return new PluginCall(context, { ...pluginContext, taskResultCall: undefined });
    const taskResultCall: TaskResultPluginCall = new TaskResultPluginCall(
      context,
      (session, response) =>
        this.#legacyTasks.addCreated(session, response, context, taskResultCall),
    );
    const pluginCallContext = {
      ...context,
      caller: taskResultCall,
      callLog: taskResultCall.callLog,
    };
    const pluginCall = new PluginCall(pluginCallContext, { ...pluginContext, taskResultCall });
    taskResultCall.setCall(pluginCall);
    return pluginCall;
  }

  /**
   * The tool with this remote name, if no exposed tool has the name. The UI of a server (MCP Apps) calls tools by their
   * remote names, as it knows no others. If several servers have such a tool, the server whose UI resource the client
   * has read is used.
   * @throws {HubError} unknownTool if several servers have one and none can be preferred
   */
  #findByRemoteName(kind: Kind, name: string): ListedRoute | undefined {
    if (kind !== "tools") return undefined;
    const routes = this.#options.view.catalog.tools.findRemote(name);
    const [only, ...more] = routes;
    if (more.length === 0) return only;
    const isOneClient = this.#options.isAnonymous !== true;
    const withUi = isOneClient
      ? routes.filter(({ server }) => this.#links.hasUiServer(server))
      : [];
    if (withUi.length === 1) return withUi[0];
    const names = routes.map((route) => `"${route.name}"`).join(", ");
    const text = `There is no tool "${name}". Several servers have one that they call so: ${names}.`;
    throw new HubError("unknownTool", text);
  }

  /** The route to a resource or skill that is not listed under that URI. */
  #locateRoute(kind: Kind, name: string): Route | undefined {
    const { view } = this.#options;
    const { catalog } = view;
    const known = kind === "skills" ? undefined : catalog.resources.find(name);
    if (known !== undefined) return known;
    const hints = {
      links: this.#links,
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
    const remoteNameJson = utf8(JSON.stringify(uri));
    const limits = { timeout: spec.callTimeout, maxTimeout: spec.maxCallTimeout };
    const common = { server, name, remoteName: uri, remoteNameJson, limits };
    return { kind: "resources", ...common, item: undefined };
  }
}

/** @throws {HubError} invalidParams if the server has not declared that it lists directories */
function checkDirectories({ listing: offer, spec }: Connection): void {
  if (supportsDirectoryRead(offer?.declared?.extensions ?? {})) return;
  const text = `Server "${spec.name}" does not list directories of resources.`;
  throw new HubError("invalidParams", text);
}

/**
 * Edits that replace the exposed name by the remote one. If both are equal, the bytes stay, unless the key is repeated.
 */
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
