import type { Catalog } from "../catalog/catalog.ts";
import type { ListedItem } from "../catalog/listing.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { HubClient } from "../frontend/hub-client.ts";
import type { RemoteServer, RunnableServer } from "../manifest/manifest.ts";
import type { SchemeResolvers } from "../manifest/resolve.ts";
import { RelayedAnswer } from "../plugin/answer.ts";
import { OPEN_TIME, type PluginInstance } from "../plugin/instance.ts";
import type { HubAccess } from "../plugin/host.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import { toTool } from "../plugin/listing-rewriter.ts";
import type { ResolveIdentity } from "../upstream/saved-listings.ts";
import type { ConnectionCookies } from "../transport/http/target.ts";
import type { Transport } from "../transport/transport.ts";
import type { Filling, HubOptions } from "./options.ts";

export interface ActivePluginsOptions {
  readonly clock: Clock;
  /** Called when the lists that clients see may have changed. */
  onListsChanged(): void;
  /** The catalog that a client without capabilities sees (`SHARED_PROFILE`). */
  catalog(): Catalog;
  serverInfo(): Implementation;
  /** Describes a client, given by its id, for plugins. */
  clientInfo(id: string): ClientInfo;
  /** Serves a plugin as a client of the hub. */
  accept(transport: Transport, signal: AbortSignal, plugin: PluginInstance): Promise<void>;
  /** The functions with effects outside this process. */
  readonly external: Pick<
    HubOptions,
    "resolveIdentity" | "openTransport" | "openFleetTransport" | "wrapTransport"
  >;
}

/** Time limit for calls that still run in replaced plugins, in ms. */
const DRAIN_LIMIT = 10_000;
/** Time limit for running calls when the hub ends, in ms. */
const CLOSE_LIMIT = 250;
const NO_SCHEMES: SchemeResolvers = new Map();

/** The plugins in use, and the functions that the hub offers them. */
export class ActivePlugins {
  readonly #options: ActivePluginsOptions;
  #set: PluginSet | undefined;
  /** Replaced plugin sets that still have running calls. */
  readonly #draining = new Set<PluginSet>();
  readonly #abort = new AbortController();
  /** Cancels the timer that runs the `list` hooks of failed plugins again. */
  #cancelRetry: (() => void) | undefined;
  readonly #clients = new Map<PluginInstance, PluginClient>();

  constructor(options: ActivePluginsOptions) {
    this.#options = options;
  }

  get set(): PluginSet | undefined {
    return this.#set;
  }

  /** Activates a plugin set; the previous set closes when its calls have ended. @returns whether the set changed */
  replace(set: PluginSet | undefined): boolean {
    const before = this.#set;
    if (set === before) return false;
    this.#set = set;
    set?.attach(this.#hubAccess);
    if (before === undefined) return true;
    this.#draining.add(before);
    void before.disposeWhenIdle(DRAIN_LIMIT).then(() => {
      this.#draining.delete(before);
      for (const member of before.plugins) this.#disconnect(member);
    });
    return true;
  }

  /** Handles an uncaught error if a plugin has caused it. @returns whether a plugin has caused it */
  attributeError(error: unknown): boolean {
    return this.#sets.some((set) => set.attributeError(error));
  }

  /** Applies the plugins' `list` hooks to a server's listing. */
  rewriteListing(server: string, items: readonly ListedItem[]): readonly ListedItem[] {
    const set = this.#set;
    if (set === undefined) return items;
    const rewritten = set.rewriteListing(server, items);
    if (!set.isListingComplete) {
      this.#cancelRetry ??= this.#options.clock.after(OPEN_TIME, () => {
        this.#cancelRetry = undefined;
        this.#options.onListsChanged();
      });
    }
    return rewritten;
  }

  resolveIdentity(spec: RunnableServer, filling: Filling): ReturnType<ResolveIdentity> {
    // The listings of servers of plugins and of the fleet are not saved: a plugin's server is connected at once, and
    // that of the fleet is not there if no machine exports it.
    if (spec.kind === "plugin" || spec.kind === "fleet") return Promise.resolve(undefined);
    const schemes = this.#set?.schemes ?? NO_SCHEMES;
    return this.#options.external.resolveIdentity(spec, schemes, filling);
  }

  /** @param client the id of the only client of the server; undefined if clients share it */
  async openTransport(
    spec: RunnableServer,
    client: string | undefined,
    cookies: ConnectionCookies,
    filling: Filling,
  ): Promise<Transport> {
    const transport = await this.#openTransport(spec, client, cookies, filling);
    return this.#options.external.wrapTransport?.(transport, spec.name) ?? transport;
  }

  #openTransport(
    spec: RunnableServer,
    client: string | undefined,
    cookies: ConnectionCookies,
    filling: Filling,
  ): Promise<Transport> {
    const set = this.#set;
    const { external } = this.#options;
    if (spec.kind === "fleet") {
      if (external.openFleetTransport !== undefined) return external.openFleetTransport(spec);
      const text = "The manifest has no table fleet, which says how to reach the fleet.";
      return Promise.reject(new HubError("notSupported", text, { server: spec.name }));
    }
    if (spec.kind !== "plugin")
      return external.openTransport(spec, set?.schemes ?? NO_SCHEMES, cookies, filling);
    if (set !== undefined) {
      const info = client === undefined ? undefined : this.#options.clientInfo(client);
      return set.openTransport(spec, info);
    }
    const text = `There is no plugin "${spec.plugin}".`;
    return Promise.reject(new HubError("notSupported", text, { server: spec.name }));
  }

  /**
   * Obtains authorization at an HTTP server; the plugins' resolvers fill in the `${scheme:…}` of its specification.
   * @throws {HubError} unauthorized
   */
  authorize(
    spec: RunnableServer,
    authorize: (spec: RemoteServer, schemes: SchemeResolvers) => Promise<void>,
  ): Promise<void> {
    if (spec.kind === "remote") return authorize(spec, this.#set?.schemes ?? NO_SCHEMES);
    const text = `Server "${spec.name}" does not use authorization.`;
    return Promise.reject(new HubError("unauthorized", text, { server: spec.name }));
  }

  get isBusy(): boolean {
    return this.#sets.some(({ isBusy }) => isBusy);
  }

  /** The response of a plugin's web application; undefined if the plugin has none. @throws {HubError} pluginFailed */
  serve(plugin: string, request: Request): Promise<Response> | undefined {
    return this.#set?.serve(plugin, request);
  }

  /** Resolves when no plugin has running calls, at the latest after `CLOSE_LIMIT`. Never rejects. */
  async whenIdle(): Promise<void> {
    await Promise.all(this.#sets.map((set) => set.whenIdle(CLOSE_LIMIT)));
  }

  /**
   * Closes each plugin when it is idle, at the latest after `CLOSE_LIMIT`: a plugin may still run code after its
   * calls have ended. Never rejects.
   */
  async close(): Promise<void> {
    this.#cancelRetry?.();
    this.#abort.abort(new HubError("cancelled", "The hub has ended."));
    await Promise.all(this.#sets.map((set) => set.disposeWhenIdle(CLOSE_LIMIT)));
  }

  get #sets(): readonly PluginSet[] {
    return [...this.#draining, ...(this.#set === undefined ? [] : [this.#set])];
  }

  readonly #hubAccess: HubAccess = {
    list: async (plugin, signal) => {
      const client = await this.#client(plugin);
      return (await client.listTools(signal)).map(toTool);
    },
    call: async (plugin, name, args, { signal, onProgress }) => {
      const client = await this.#client(plugin);
      const report = onProgress && ((progress: object) => onProgress({ ...progress }));
      return new RelayedAnswer(await client.callTool(name, args, report, signal));
    },
    nameOf: (server, tool) => {
      const routes = this.#options.catalog().tools.findRemote(tool);
      return routes.find((route) => route.server === server)?.name;
    },
  };

  /** The in-process client of a plugin, created when the plugin first uses the hub. */
  #client(plugin: PluginInstance): Promise<HubClient> {
    const known = this.#clients.get(plugin);
    if (known !== undefined) return known.ready;
    let disconnect = (): void => {};
    const acceptor = {
      serverInfo: this.#options.serverInfo(),
      accept: (transport: Transport, signal: AbortSignal) => {
        disconnect = () => void transport.close();
        return this.#options.accept(transport, signal, plugin);
      },
    };
    const ready = HubClient.connect(acceptor, this.#abort.signal);
    this.#clients.set(plugin, { ready, disconnect: () => disconnect() });
    return ready;
  }

  /** Disconnects and removes the client of a plugin whose plugin set was replaced and has closed. */
  #disconnect(plugin: PluginInstance): void {
    this.#clients.get(plugin)?.disconnect();
    this.#clients.delete(plugin);
  }
}

interface PluginClient {
  readonly ready: Promise<HubClient>;
  disconnect(): void;
}
