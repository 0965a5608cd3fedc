/**
 * The router: takes each client request from its method and params to a route and a call, and follows the call to its
 * one response. `Router` finds the route, `Call` is a request in progress, `UpstreamRequest` a call that no plugin
 * sees. Start here with `route`, then read `call.ts` and `upstream-request.ts`.
 */

import { type Edit, utf8 } from "../base/bytes.ts";
import type { Kind } from "../catalog/listing.ts";
import type { ListedRoute, Route } from "../catalog/section.ts";
import { HubError } from "../base/errors.ts";
import { isNamed } from "../catalog/shape.ts";
import { supportsDirectoryRead, SkillMethod } from "../catalog/skills.ts";
import type { Connection } from "../upstream/connection.ts";
import { lastMember } from "../base/json.ts";
import type { Member as PluginMember } from "../plugin/instance.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import { Method } from "../protocol/legacy.ts";
import type { ClientChannel } from "../upstream/audience.ts";
import type { ClientView } from "../upstream/view.ts";
import type { EncodedMessage, Request } from "../jsonrpc/message.ts";
import type { Call, Caller, Running } from "./call.ts";
import { Commission } from "./commission.ts";
import { Completion } from "./completion.ts";
import { Consultation } from "./consultation.ts";
import type { Deadlines } from "./deadlines.ts";
import { Detour } from "./plugin-task-result.ts";
import { Hearing, type HearingEvents } from "./hearing.ts";
import { InterceptedCall } from "./plugin-call.ts";
import type { Keeping } from "./modern-tasks.ts";
import type { Ledger } from "./ledger.ts";
import { Links } from "./links.ts";
import { locate, locateSkill } from "./resource-lookup.ts";
import { RelayedCall } from "./upstream-request.ts";
import { Search } from "./unlisted.ts";
import { Tasks } from "./tasks.ts";
import { type AnyManner, readWanted, RESOURCE, type Wanted } from "./params.ts";
import { Subscribe, Watches } from "./subscriptions.ts";

/** What a router needs. */
export interface RouterParts {
  readonly view: ClientView;
  readonly deadlines: Deadlines;
  readonly ledger: Ledger;
  /** The active plugins; undefined if there are none. */
  plugins(): PluginSet | undefined;
  /** Sends the client a notification that belongs to no request. */
  notify(message: EncodedMessage): void;
  /** The plugin that makes these calls, if one does; it does not see them itself. */
  readonly except: PluginMember | undefined;
  /** The client as servers reach it. */
  owner(): ClientChannel;
  /** Whether several clients, indistinguishable to the hub, may share this router. */
  readonly isAnonymous?: boolean;
  /** The tasks at modern servers; only for a modern client. */
  readonly keeping?: Keeping;
}

/** Maps the requests of one client to routes and makes the calls: the only parse of `params`, the only lookup. */
export class Router {
  /** The client's name and version, as plugins see them. */
  client: ClientInfo;
  readonly #parts: RouterParts;
  readonly #links = new Links();
  readonly #watches: Watches;
  readonly #tasks: Tasks;

  constructor(client: ClientInfo, parts: RouterParts) {
    this.client = client;
    this.#parts = parts;
    this.#watches = new Watches((message) => parts.notify(message));
    this.#tasks = new Tasks(() => parts.owner());
  }

  /**
   * Finds the route of a request; the result is started by `run`.
   * @param subscriptions the subscriptions to add to, if not the client's own
   * @throws {HubError} invalidParams, or unknown tool, prompt or resource
   */
  route(request: Request, caller: Caller, manner: AnyManner, watches = this.#watches): Running {
    const { deadlines, ledger, view } = this.#parts;
    const began = deadlines.now();
    if (manner === "task") {
      const common = { request, caller, began, deadlines, ledger, links: this.#links, view };
      const { keeping } = this.#parts;
      return keeping === undefined ? this.#tasks.route(common) : new Consultation(common, keeping);
    }
    const wanted = readWanted(request, manner);
    const call = this.#find(request, wanted, caller, began, true, watches);
    if (call !== undefined) return call;
    const { kind, name } = wanted;
    const missing = view.explainAbsence(kind, name);
    const connections = view.unlisted(kind, name);
    if (connections.length === 0) throw missing;
    const timeout = Math.max(...connections.map(({ spec }) => spec.callTimeout));
    const find = (isLast: boolean): Call | undefined => {
      caller.admit?.(view.catalog);
      return this.#find(request, wanted, caller, began, isLast, watches);
    };
    const parts = { request, caller, kind, name, connections, find, missing, began };
    return new Search({ ...parts, timeout, deadlines });
  }

  /**
   * Subscribes to the notifications of a task.
   * @throws {HubError} invalidParams if the client has no such task
   */
  hear(id: string, events: HearingEvents): Hearing {
    const { keeping, view } = this.#parts;
    if (keeping === undefined) throw new HubError("invalidParams", "There is no such task.");
    return new Hearing(keeping.find(id, view), keeping, this.#links, events);
  }

  /**
   * Ends a subscription, if there is one.
   * @throws {HubError} invalidParams
   */
  unsubscribe(request: Request): void {
    this.#watches.end(readWanted(request, RESOURCE).name);
  }

  /** The client has disconnected. */
  close(): void {
    this.#watches.close();
    this.#tasks.close();
  }

  /** @param mayGuess whether a resource that is not listed may be located by links, templates and scheme */
  #find(
    request: Request,
    wanted: Wanted,
    caller: Caller,
    began: number,
    mayGuess: boolean,
    watches: Watches,
  ): Call | undefined {
    const { view, deadlines, ledger } = this.#parts;
    const { kind, name, tokens, token } = wanted;
    const listed = view.catalog[kind].find(name) ?? this.#findBare(kind, name);
    const route = listed ?? (isNamed(kind) || !mayGuess ? undefined : this.#locate(kind, name));
    const connection = route && view.connection(route.server);
    if (route === undefined || connection === undefined) return undefined;
    if (request.method === SkillMethod.readDirectory) checkDirectories(connection);
    const parts = {
      request,
      route,
      rewrite: { edits: rename(wanted, route), tokens },
      token,
      caller,
      connection,
      began,
      deadlines,
      ledger,
      links: this.#links,
      view,
    };
    if (request.method === Method.complete) return new Completion(parts);
    if (request.method === Method.subscribe) return new Subscribe(parts, watches);
    if (kind !== "tools" || listed === undefined) return new RelayedCall(parts);
    // Modern calls do not use this member.
    const isTask =
      lastMember(wanted.members, "task") !== undefined && caller.sender.era === "legacy";
    if (isTask) this.#tasks.makeRoom();
    const plugins = this.#parts.plugins();
    const way = plugins?.way(listed, connection.spec.isolation);
    if (plugins === undefined || way === undefined) {
      return isTask ? new Commission(parts, this.#tasks) : new RelayedCall(parts);
    }
    const { client } = this;
    const { except } = this.#parts;
    const { members } = wanted;
    const own = { plugins, way, client, except, members };
    if (!isTask) return new InterceptedCall(parts, { ...own, detour: undefined });
    const detour: Detour = new Detour(parts, (session, response) =>
      this.#tasks.begin(session, response, parts, detour),
    );
    const seen = { ...parts, caller: detour, ledger: detour.ledger };
    const intercepted = new InterceptedCall(seen, { ...own, detour });
    detour.attach(intercepted);
    return intercepted;
  }

  /**
   * The tool with this remote name, if no exposed tool has the name. The UI of a server (MCP Apps) calls tools by their
   * remote names, as it knows no others; if several servers have one, the server whose UI resource the client has read
   * is meant.
   * @throws {HubError} unknownTool if several servers have one and none can be preferred
   */
  #findBare(kind: Kind, name: string): ListedRoute | undefined {
    if (kind !== "tools") return undefined;
    const routes = this.#parts.view.catalog.tools.findRemote(name);
    const [only, ...more] = routes;
    if (more.length === 0) return only;
    const isOneClient = this.#parts.isAnonymous !== true;
    const given = isOneClient ? routes.filter(({ server }) => this.#links.hasApp(server)) : [];
    if (given.length === 1) return given[0];
    const names = routes.map((route) => `"${route.name}"`).join(", ");
    const text = `There is no tool "${name}". Several servers have one that they call so: ${names}.`;
    throw new HubError("unknownTool", text);
  }

  /** The route to a resource or skill that is not listed under that URI. */
  #locate(kind: Kind, name: string): Route | undefined {
    const { view } = this.#parts;
    const { catalog } = view;
    const known = kind === "skills" ? undefined : catalog.resources.find(name);
    if (known !== undefined) return known;
    const hints = {
      links: this.#links,
      isOneClient: this.#parts.isAnonymous !== true,
      hasServer: (server: string) => view.has(server),
    };
    const place =
      kind === "skills"
        ? locateSkill(name, catalog, view.skillServers)
        : locate(name, catalog, hints);
    const spec = place && view.connection(place.server)?.spec;
    if (place === undefined || spec === undefined) return undefined;
    const { server, uri } = place;
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

/** Edits that replace the exposed name by the remote one. An equal name keeps its bytes, unless the key is repeated. */
function rename({ key, spots, name }: Wanted, { remoteName, remoteNameJson }: Route): Edit[] {
  const edits: Edit[] = [];
  for (const { key: own, start, end } of spots) {
    if (own === key) edits.push({ start, end, replacement: remoteNameJson });
  }
  return name === remoteName && edits.length === 1 ? [] : edits;
}
