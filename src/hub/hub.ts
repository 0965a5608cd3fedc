import { nameAndIdOfClient } from "../base/client-name.ts";
import { Approvals } from "../approval/approvals.ts";
import { Alerts, type RefusedClient } from "../base/alerts.ts";
import { type Clock, settlesWithin, systemClock, wallNow } from "../base/clock.ts";
import type {
  CallTotals,
  EventDetail,
  EventKind,
  EventListener,
  ModeEvent,
  ChangedServers,
} from "../base/hub-events.ts";
import type { HubError } from "../base/errors.ts";
import { Logbook, type LogEntry } from "../base/logbook.ts";
import { VERSION } from "../base/version.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { FilterItem } from "../catalog/filter.ts";
import type { Kind, ServerListing } from "../catalog/listing.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import type { SearchOptions, SearchResult } from "../catalog/search/tool-index.ts";
import type { Section } from "../catalog/section.ts";
import { toolsForModels } from "../catalog/tool-visibility.ts";
import { type AcceptOptions, Clients } from "../frontend/clients.ts";
import type { ModernClients } from "../frontend/modern/clients.ts";
import type { ExposureCosts } from "../frontend/tool-search/costs.ts";
import { ToolSearch } from "../frontend/tool-search/tool-search.ts";
import { describeInvalid, formatProblem, withoutFolders } from "../manifest/problems.ts";
import {
  APPROVAL_DEFAULTS,
  FULL_MODE,
  type HubSettings,
  type InvalidServer,
  isRunnable,
  type Manifest,
  type RunnableServer,
  type ServerSpec,
  TOOL_SEARCH_DEFAULTS,
} from "../manifest/manifest.ts";
import type { ModeSpec } from "../manifest/modes.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { ProcessStats } from "../process/child-process.ts";
import type { Implementation } from "../protocol/legacy.ts";
import { Limits } from "../limits/limits.ts";
import { HubMetrics } from "../telemetry/hub-metrics.ts";
import type { Exposition } from "../telemetry/prometheus.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import { Pins } from "../pins/pins.ts";
import { CallLog } from "../router/call.ts";
import { Deadlines } from "../router/deadlines.ts";
import type { CallUsage } from "../router/call-usage.ts";
import { recordOfEvent } from "../terminal/log.ts";
import type { Transport } from "../transport/transport.ts";
import { CatalogCache } from "../views/catalogs.ts";
import { principalOfUser } from "../manifest/named-clients.ts";
import { type ClientLimits, hidingMode, Modes } from "../views/client-modes.ts";
import { ServerPool } from "../upstream/pool.ts";
import {
  ALL_SERVERS,
  profileOf,
  type ServerSubset,
  SHARED_PROFILE,
  subsetOf,
} from "../upstream/profile.ts";
import { type ResolveIdentity, SavedListings } from "../upstream/saved-listings.ts";
import { StartLimiter } from "../upstream/start-limiter.ts";
import { sessionOf } from "../upstream/state.ts";
import {
  unusableStatusOf,
  type ServerOrigin,
  type ServerStatus,
  settledServersOf,
  type SettledServers,
  summaryStateOf,
} from "../upstream/status.ts";
import { SERVER_STATES } from "../upstream/verdict.ts";
import { ClientView } from "../views/client-view.ts";
import { ActivePlugins } from "./active-plugins.ts";
import { PinnedServers } from "./pinned-servers.ts";
import { ScannedServers } from "./scanned-servers.ts";
import {
  type Filling,
  type HubOptions,
  type HubSnapshot,
  nameRulesOf,
  withDecidedIsolation,
} from "./options.ts";

/** Changes of the catalog within this time, in ms, are announced to clients together. */
const ANNOUNCE_DELAY = 50;

/** Time limit for writing snapshots at shutdown, in ms; shorter than the time that servers have to stop. */
const FLUSH_LIMIT = 1000;

/** The instructions that clients get when every server's table is invalid: models read them and can tell the user. */
function invalidServersNotice(invalid: readonly InvalidServer[]): string {
  const lines = invalid.map((spec) => `- ${describeInvalid(withoutFolders(spec))}`).join("\n");
  return `No tools are available: every server in the manifest of toolmux has a problem.\n\n${lines}\n\nWhen the manifest is corrected, the tools appear by themselves.`;
}

function addProcessStats(sum: ProcessStats | undefined, more: ProcessStats): ProcessStats {
  if (sum === undefined) return more;
  return {
    pid: sum.pid,
    processes: sum.processes + more.processes,
    memory: sum.memory + more.memory,
    entries: [...sum.entries, ...more.entries],
  };
}

/** The tools that are searched, and how many of them are found; by default `toolSearch.limit` of the manifest. */
export interface FindOptions extends Pick<SearchOptions, "server" | "limit" | "explain"> {
  readonly mode?: string | undefined;
}

/**
 * hub/: creates the server pool, the clients and the plugins, and connects them with each other.
 * Main type: `Hub`, below; commands and the HTTP server use its methods. Read next: `options.ts`,
 * `active-plugins.ts`.
 *
 * Methods that take a server's name throw a HubError `usage` if there is no such server.
 */
export class Hub {
  readonly #options: HubOptions;
  readonly #clock: Clock;
  #settings: HubSettings;
  readonly #alerts: Alerts;
  readonly #logbook: Logbook;
  readonly #startLimiter: StartLimiter;
  readonly #pool: ServerPool;
  readonly #catalogCache: CatalogCache;
  readonly #modes: Modes;
  readonly #toolSearch: ToolSearch;
  readonly #clients: Clients;
  readonly #deadlines: Deadlines;
  readonly #callLog: CallLog;
  readonly #savedListings: SavedListings;
  readonly activePlugins: ActivePlugins;
  /** The calls that wait for a person's approval. */
  readonly approvals: Approvals;
  /** How many calls are let through. */
  readonly limits: Limits;
  readonly metrics: HubMetrics;
  /** Whether scrapers may read the metrics over HTTP. */
  servesMetrics = false;
  /** What servers list that is not accepted. */
  readonly pinned: PinnedServers;
  /** What the scan finds in the definitions of the servers. */
  readonly scanned: ScannedServers;
  /** Cancels the timer of the next announcement of the catalog's changes. */
  #cancelAnnouncement: (() => void) | undefined;
  #limitSettings: Pick<Manifest, "limits" | "clients"> = {};
  #isClosing = false;
  /**
   * The pending promises of `settled`. `firstOutcome` settles when every server has connected, has failed or is late
   * (`connectTimeout` has passed); `allStarted` settles when the late servers have connected or failed, too. A key is
   * absent while nobody waits.
   */
  #settled: Partial<Record<"firstOutcome" | "allStarted", PromiseWithResolvers<void>>> = {};
  #closing: Promise<void> | undefined;
  /**
   * `#invalid`: the servers whose table in the manifest is invalid, unless it disables them; `#unusable`: all servers
   * that the hub cannot use; `#names`: the names of all servers. All in manifest order.
   */
  #invalid: readonly InvalidServer[] = [];
  #unusable: readonly ServerSpec[] = [];
  #names: readonly string[] = [];

  constructor(options: HubOptions) {
    const { manifest, bus, digest, clock = systemClock, random = Math.random } = options;
    const { authorize } = options;
    this.#options = options;
    this.#clock = clock;
    this.#settings = manifest.hub;
    this.#alerts = new Alerts(bus);
    this.#logbook = new Logbook(bus, (event, at) => {
      const record = recordOfEvent(event, at);
      return record && { level: record.level, text: record.message };
    });
    this.#startLimiter = new StartLimiter(manifest.hub.parallelStarts, clock);
    this.activePlugins = new ActivePlugins({
      clock,
      onListsChanged: () => this.#changed(),
      catalog: () => this.catalog,
      serverInfo: () => this.serverInfo,
      clientInfo: (id) => this.#clients.infoOf(id),
      accept: (transport, signal, plugin) => this.#clients.accept(transport, signal, { plugin }),
      external: options,
    });
    this.activePlugins.replace(options.plugins);
    const fillingOf = (origin: ClientOrigin | undefined): Filling => {
      return { origin, path: this.#clients.path };
    };
    const resolveIdentity: ResolveIdentity = (spec, origin) =>
      this.activePlugins.resolveIdentity(spec, fillingOf(origin));
    this.approvals = new Approvals({
      bus,
      clock,
      openStore: options.openApprovals,
      howToBeAsked: options.howToBeAsked,
      isWatchable: options.isWatchable === true,
      redact: (text) => options.redact?.(text) ?? text,
      identityOf: (spec, origin) => resolveIdentity(spec, origin),
    });
    this.#savedListings = new SavedListings(options.snapshots, resolveIdentity);
    const pins = new Pins({
      bus,
      alerts: this.#alerts,
      sha256: digest,
      openStore: options.openBaselines,
      redact: (text) => options.redact?.(text) ?? text,
      identityOf: (server) => {
        const { spec } = server;
        if (spec.kind !== "fleet") return this.approvals.identityOf(server);
        // Machines come and go, and a server of the fleet is expected to be the same on all of them.
        return this.approvals.identityOf({ ...server, spec: { ...spec, machine: undefined } });
      },
      findSuspicious: (...args) => this.scanned.findSuspicious(...args),
    });
    this.#pool = new ServerPool({
      environment: {
        clientInfo: () => this.serverInfo,
        clock,
        startLimiter: this.#startLimiter,
        startDelay: options.startDelay,
        openTransport: (spec, client, cookies, origin) =>
          this.activePlugins.openTransport(spec, client, cookies, fillingOf(origin)),
        requestEnded: (request) => {
          const { server, method, failure, duration } = request;
          this.metrics.observeOwn(server, method, failure?.type ?? "", duration);
          this.tracer?.onOwnRequest?.(request);
        },
        ...(authorize && {
          authorize: (spec, challenge, run, origin) =>
            this.activePlugins.authorize(spec, (remote, schemes) =>
              authorize(remote, schemes, challenge, run, fillingOf(origin)),
            ),
        }),
      },
      bus,
      alerts: this.#alerts,
      memory: {
        load: (spec, profile) => this.#savedListings.load(spec, profile),
        save: (spec, profile, saved) => {
          this.#savedListings.save(spec, profile, saved);
          if (this.approvals.isOn)
            void this.approvals.recordListing(spec, saved.listing, profile.origin);
        },
      },
      pins: {
        review: (...args) => pins.review(...args),
        report: async (...args) => {
          await pins.report(...args);
          this.scanned.changed();
        },
        end: (...args) => pins.end(...args),
      },
      examine: (...args) => this.scanned.examine(...args),
      random,
      isShared: () => this.#isShared,
      changed: () => this.#changed(),
      settled: () => this.#resolveSettled(),
    });
    pins.pinFile = manifest.pinFile?.content;
    this.pinned = new PinnedServers({ pins, pool: this.#pool, bus, clock });
    this.scanned = new ScannedServers({
      pool: this.#pool,
      bus,
      alerts: this.#alerts,
      sha256: digest,
      isAccepted: (...args) => pins.isAccepted(...args),
      redact: (text) => options.redact?.(text) ?? text,
      changed: () => this.#changed(),
    });
    const { activePlugins } = this;
    const listingRewriter = () =>
      activePlugins.set && activePlugins.rewriteListing.bind(activePlugins);
    const catalogCacheOptions = {
      pool: this.#pool,
      bus,
      alerts: this.#alerts,
      digest,
      listingRewriter,
      shownListing: (spec: RunnableServer, listing: ServerListing) =>
        this.scanned.shownListing(spec, listing),
    };
    this.#catalogCache = new CatalogCache(nameRulesOf(manifest.hub), catalogCacheOptions);
    this.#catalogCache.ownInstructions = manifest.hub.instructions;
    this.#modes = new Modes(options.mode);
    this.#modes.replace(manifest.modes ?? [], manifest.hub.mode);
    this.#toolSearch = new ToolSearch(
      {
        commandLine: options.expose,
        clock,
        onSearchable: (servers) => {
          const listings = servers.flatMap(({ spec, listing, origin }) =>
            listing === undefined ? [] : [{ spec, listing, origin }],
          );
          void this.approvals.recordListings(listings);
        },
      },
      manifest.hub,
      manifest.toolSearch ?? TOOL_SEARCH_DEFAULTS,
    );
    this.limits = new Limits({
      clock,
      wallNow: options.wallNow ?? wallNow,
      openQuotas: options.openQuotas,
      emit: (event) => bus.emit(event),
      onUsedQuotas: (used) =>
        this.#alerts.setAll(
          "quota",
          used.map(({ key, kind, name, text }) => ({
            key,
            ...(kind === "client" && { client: name }),
            ...((kind === "server" || kind === "tool") && { server: name }),
            text,
          })),
        ),
      warn: (text) => bus.emit({ kind: "log", level: "warn", source: "hub", text }),
    });
    this.#deadlines = new Deadlines(clock);
    this.#callLog = new CallLog(bus);
    this.#clients = new Clients({
      deadlines: this.#deadlines,
      callLog: this.#callLog,
      approvals: this.approvals,
      limits: this.limits,
      clock,
      serverInfo: () => this.serverInfo,
      view: (...args) => this.#viewOf(...args),
      modesOf: (client, limits) => ({
        mode: limits.hasOperatorMode ? this.#modes.chosenFor(client, limits.principal) : FULL_MODE,
        modes: this.#modes.selectionFor(client, limits).modes.map(({ name }) => name),
      }),
      toolSearch: this.#toolSearch,
      plugins: () => this.activePlugins.set,
      stopUnused: () => this.#stopUnused(),
      warn: (text) => bus.emit({ kind: "log", level: "warn", source: "hub", text }),
      onClient: (event) => {
        // A mode that was chosen for the holder of a token is kept, because it also applies when the token is used
        // again.
        const isToken = event.client === event.principal;
        if (event.change === "left" && !isToken) this.#modes.forget(event.client);
        bus.emit({ kind: "client", ...event });
      },
      pauseServers: (isPaused) => {
        this.#deadlines.setPaused(isPaused);
        this.#pool.setPaused(isPaused);
      },
    });
    this.metrics = new HubMetrics({
      bus,
      serverStates: SERVER_STATES,
      numbers: () => ({
        serverStates: new Map(
          this.status().map((status) => [status.server, summaryStateOf(status)]),
        ),
        clients: this.#clients.count,
        activeCalls: this.#clients.calls.length,
        queueLength: this.limits.queueLength,
        refused: this.limits.refused,
      }),
      redact: (text) => options.redact?.(text) ?? text,
      wallNow: options.wallNow ?? wallNow,
      now: () => clock.now(),
      onWanted: (operations) => this.#callLog.countOperations(operations),
    });
    this.#configureMetrics(manifest);
    this.#warnOfModes(manifest);
    this.#pool.reconcile(this.#specsFor(manifest));
    this.#configureApprovals(manifest);
    this.#configureLimits(manifest);
    this.#updateInvalidServers(manifest);
  }

  /** The prefixes of exposed names, by server name; servers that have failed are left out. */
  get prefixes(): ReadonlyMap<string, string> {
    return new Map([...this.#running].map(([name, { prefix }]) => [name, prefix]));
  }

  get serverInfo(): Implementation {
    return { name: this.#settings.name, version: VERSION };
  }

  /** The catalog that a client sees, by the client's id; undefined if there is no such client. */
  catalogOf(client: string): Catalog | undefined {
    return this.#clients.catalogOf(client);
  }

  /** The size of a list of tools in tokens up to which clients under `auto` get all tools (`hub.exposeBudget`). */
  get exposeBudget(): number {
    return this.#toolSearch.budget;
  }

  /**
   * Finds tools of that catalog by what they do, as `search_tools` does for its clients.
   * @param mode the name of a mode that limits what is found
   * @throws {HubError} usage if there is no such mode
   */
  async findTools(query: string, { mode, ...options }: FindOptions): Promise<SearchResult> {
    const visible = (): Section =>
      toolsForModels((mode === undefined ? this.catalog : this.catalogOfMode(mode)).tools);
    const key = this.#catalogCache.keyOf(SHARED_PROFILE);
    const searched = { key, whole: () => this.catalog.tools, visible };
    const { limit = this.#toolSearch.settings.limit } = options;
    return await this.#toolSearch.search(searched, query, { ...options, limit });
  }

  /**
   * What clients without capabilities get with each exposure, in tokens.
   * @param mode the name of a mode that limits the clients
   * @throws {HubError} usage if there is no such mode
   */
  async exposureCosts(mode?: string): Promise<ExposureCosts> {
    const { exposureCosts } = await import("../frontend/tool-search/costs.ts");
    const selection = mode === undefined ? undefined : this.#modes.selectionOf(mode);
    const catalog = this.#catalogCache.catalog(SHARED_PROFILE, selection);
    const servers = this.#pool
      .connections(SHARED_PROFILE)
      .filter(({ spec }) => selection?.filter?.mayTakeFrom(spec.name) ?? true);
    return exposureCosts(this.#toolSearch, catalog, servers);
  }

  /** The error for a tool or prompt that such a client is not shown because it is not accepted; undefined: another one. */
  withheldError(kind: Kind, name: string): HubError | undefined {
    const route = this.#catalogCache.withheld(SHARED_PROFILE)?.[kind].find(name);
    const connections = route === undefined ? [] : this.#pool.connectionsOf(route.server);
    for (const connection of connections) {
      const error = route && connection.pinError(route);
      if (error !== undefined) return error;
    }
    return undefined;
  }

  /** The catalog that a client without capabilities sees if it sees only this server. */
  catalogOfServer(server: string): Catalog {
    return this.#catalogCache.catalog(profileOf("", undefined, undefined, subsetOf([server])));
  }

  /** The catalog that a client without capabilities sees (`SHARED_PROFILE`). */
  get catalog(): Catalog {
    return this.#catalogCache.catalog(SHARED_PROFILE);
  }

  /**
   * Serves a client on a transport; settles when the client has disconnected.
   * @param subset the servers that the client sees; undefined: all
   * @param kind the way in which the client is connected
   * @param limits undefined: only the operator's mode limits the client, if it is connected by stdio or HTTP
   */
  accept(
    transport: Transport,
    signal: AbortSignal,
    options: Omit<AcceptOptions, "plugin"> = {},
  ): Promise<void> {
    return this.#clients.accept(transport, signal, options);
  }

  /**
   * Serves a client of the operator in this process.
   * @param accepted is called with the client's id
   */
  acceptOperator(
    transport: Transport,
    signal: AbortSignal,
    accepted: (id: string) => void,
  ): Promise<void> {
    return this.#clients.accept(transport, signal, { kind: "control", accepted });
  }

  /**
   * Creates the handler for requests of the modern era (protocol 2026-07-28). They belong to no session, so there is no
   * transport for them.
   * @param client the id of the client that sends the requests; undefined if it cannot be told apart from others
   */
  createModernClients(
    client: string | undefined,
    limits?: ClientLimits,
    kind?: "http" | "nats",
  ): ModernClients {
    return this.#clients.createModernClients(client, limits, kind);
  }

  /** The reason why a mode cannot be used, as a whole sentence; undefined if it can be used. */
  modeFault(mode: string): string | undefined {
    return this.#modes.fault(mode);
  }

  /** All modes, `full` first. */
  get modes(): readonly ModeSpec[] {
    return this.#modes.all;
  }

  /**
   * `current`: the mode that the operator has chosen for all clients without a mode of their own; `default`: the mode
   * that `hub.mode` sets in the manifest.
   */
  get mode(): { readonly current: string; readonly default: string } {
    const { current, default: own } = this.#modes;
    return { current, default: own };
  }

  /** The part of the catalog that a mode shows to a client without capabilities. @throws {HubError} usage */
  catalogOfMode(mode: string): Catalog {
    return this.#catalogCache.catalog(SHARED_PROFILE, this.#modes.selectionOf(mode));
  }

  /** The name of the mode among `modes` that hides an entry; undefined if none does. */
  hidingMode(modes: readonly string[], kind: Kind, item: FilterItem): string | undefined {
    const specs = this.#modes.all.filter(({ name }) => modes.includes(name));
    return hidingMode({ modes: specs }, kind, item)?.name;
  }

  /**
   * Sets the operator's mode of all clients without a mode of their own.
   * @param mode undefined: the mode that `hub.mode` sets in the manifest
   * @throws {HubError} usage
   */
  setMode(mode: string | undefined): void {
    const from = this.#modes.current;
    this.#modes.choose(mode);
    const to = this.#modes.current;
    if (from !== to) this.#modeChanged({ from, to });
  }

  /**
   * Sets the operator's mode of one client.
   * @param client the client's id, or the name of a client with its own token
   * @param mode undefined: the mode that is chosen for all clients
   * @throws {HubError} usage
   */
  setClientMode(client: string, mode: string | undefined): void {
    const names = this.#namesOfClient(client);
    const { principal } = names;
    const from = this.#modes.chosenFor(client, principal);
    this.#modes.chooseFor(client, mode);
    const to = this.#modes.chosenFor(client, principal);
    if (from !== to) this.#modeChanged({ client, ...names, from, to });
  }

  /** The names of a connected client. @param client its id */
  #namesOfClient(client: string): { readonly name?: string; readonly principal?: string } {
    const { name, principal } = this.#clients.status.find(({ id }) => id === client) ?? {};
    return { ...(name !== undefined && { name }), ...(principal !== undefined && { principal }) };
  }

  #modeChanged(event: Omit<ModeEvent, "kind">): void {
    this.#catalogCache.modesChanged(false);
    this.#clients.catalogChanged();
    this.#options.bus.emit({ kind: "mode", ...event });
  }

  /** Warns about modes whose tables have problems. */
  #warnOfModes({ modes = [] }: Manifest): void {
    for (const { name, problems } of modes) {
      if (problems.length === 0) continue;
      const text = `Mode "${name}" shows nothing, because its table in the manifest has a problem: ${problems.map(formatProblem).join("; ")}`;
      this.#options.bus.emit({ kind: "log", level: "warn", source: "hub", text });
    }
  }

  /** Adopts the modes of a manifest. */
  #replaceModes(manifest: Manifest): void {
    const {
      modes = [],
      hub: { mode },
    } = manifest;
    const { bus } = this.#options;
    const from = this.#modes.current;
    const undone = this.#modes.replace(modes, mode);
    for (const choice of undone) {
      const names = choice.client === undefined ? {} : this.#namesOfClient(choice.client);
      const who =
        choice.client === undefined
          ? "All clients"
          : `Client ${nameAndIdOfClient({ id: choice.client, ...names })}`;
      const text = `${who} had mode "${choice.mode}", which the manifest does not have any more: now it is "${this.#modes.current}".`;
      bus.emit({ kind: "log", level: "warn", source: "hub", text });
      if (choice.client !== undefined) {
        const { client, mode: former } = choice;
        bus.emit({ kind: "mode", client, ...names, from: former, to: this.#modes.current });
      }
    }
    const to = this.#modes.current;
    if (from !== to) bus.emit({ kind: "mode", from, to });
    this.#warnOfModes(manifest);
  }

  /**
   * Applies a manifest. A server whose specification is unchanged keeps its process and its calls.
   * @param plugins the manifest's plugins, already set up; the current set, if the plugins have not changed
   */
  reload(manifest: Manifest, plugins?: PluginSet): void {
    if (this.activePlugins.replace(plugins)) this.#catalogCache.clear();
    this.#settings = manifest.hub;
    this.#startLimiter.limit = manifest.hub.parallelStarts;
    this.#catalogCache.names = nameRulesOf(manifest.hub);
    this.#catalogCache.ownInstructions = manifest.hub.instructions;
    this.#toolSearch.configure(manifest.hub, manifest.toolSearch ?? TOOL_SEARCH_DEFAULTS);
    const running = this.#running;
    const servers = this.#specsFor(manifest, (spec) =>
      // A server whose table has become invalid keeps its previous specification until the table is valid.
      spec.kind === "invalid" && spec.enabled ? running.get(spec.name) : undefined,
    );
    const before = new Map(this.#pool.specs.map((spec) => [spec.name, spec]));
    this.#atomically(() => {
      this.#replaceModes(manifest);
      this.#pool.reconcile(servers);
      this.#configureApprovals(manifest);
      this.#configureLimits(manifest);
      this.#configureMetrics(manifest);
      this.#updateInvalidServers(manifest);
      void this.pinned.setPinFile(manifest.pinFile?.content);
    });
    this.#options.bus.emit({
      kind: "manifest",
      outcome: "reloaded",
      servers: servers.length,
      ...changedServers(before, new Map(this.#pool.specs.map((spec) => [spec.name, spec]))),
    });
  }

  /**
   * Reports that a manifest was rejected; the hub keeps the current one.
   * @param problems the problems as formatted text
   */
  reportRejectedManifest(problems: string): void {
    this.#options.bus.emit({ kind: "manifest", outcome: "refused", problems });
  }

  /**
   * Adds a server, or changes its specification. An equal specification changes nothing.
   * @param origin a server of origin `runtime` survives reloads, until the manifest has a server of that name
   */
  add(spec: RunnableServer, origin: ServerOrigin = "runtime"): void {
    this.#atomically(() => {
      this.#pool.add(this.#isShared ? withDecidedIsolation(spec) : spec, origin);
      this.approvals.configure(this.approvals.settings, this.#pool.specs);
      this.#configureLimits(this.#limitSettings);
    });
  }

  /** The servers that are not invalid, in the order of the manifest. */
  get specs(): readonly RunnableServer[] {
    return this.#pool.specs;
  }

  /** Stops a server and removes it. */
  remove(server: string): void {
    this.#atomically(() => this.#pool.remove(server));
  }

  /** Starts all servers, even those that usually start on demand, except those that were stopped (goal `down`). */
  startAll(): void {
    this.#atomically(() => this.#pool.startAll());
    this.#resolveSettled();
  }

  /**
   * Connects the servers that should be up and that clients share before a client is there, also those that a reload
   * adds. No login begins for them until somebody wants them.
   */
  startEarly(subset: ServerSubset = ALL_SERVERS): void {
    this.#atomically(() => this.#pool.startEarly(subset));
    this.#resolveSettled();
  }

  async startAllAndSettle(): Promise<SettledServers> {
    this.startAll();
    await this.settled();
    await this.diagnosed();
    return settledServersOf(this.status());
  }

  /** Settles when the capability faults of all connected servers are known, within a limited time. */
  async diagnosed(): Promise<void> {
    const connections = this.#pool.specs.flatMap(({ name }) => this.#pool.connectionsOf(name));
    await Promise.all(connections.map((connection) => connection.diagnosed));
  }

  /**
   * Settles when every server that should be up has connected, has failed, or is late (`connectTimeout` has passed).
   * @param until `allStarted`: waits for late servers, too (each at most until its `startLimit`)
   */
  settled(until: "firstOutcome" | "allStarted" = "firstOutcome"): Promise<void> {
    const { promise } = (this.#settled[until] ??= Promise.withResolvers<void>());
    this.#resolveSettled();
    return promise;
  }

  start(server: string): void {
    this.#atomically(() => this.#pool.start(server));
  }

  /**
   * Stops a server until `start` is called; tool calls do not start it. Settles when all its processes have ended.
   */
  stop(server: string): Promise<void> {
    return this.#pool.stop(server);
  }

  /** Stops the servers without open calls. With plugins it stops none, because an open call may use any server. */
  #stopUnused(): void {
    if (this.activePlugins.set !== undefined) return;
    const used = new Set(this.#clients.calls.map(({ route }) => route.server));
    for (const { name } of this.#pool.specs) if (!used.has(name)) void this.#pool.stop(name);
  }

  /** Restarts a server, or starts it if it was stopped. A connection attempt in progress is not interrupted. */
  reconnect(server: string): void {
    this.#pool.reconnect(server);
  }

  /** Reconnects the servers that have failed or wait for a retry. @returns their names */
  reconnectFailed(): readonly string[] {
    return this.#pool.reconnectFailed();
  }

  /** Cancels a server's connection attempt in progress, or its wait for the next one. */
  cancelAttempt(server: string): void {
    for (const connection of this.#pool.connectionsOf(server)) connection.cancel();
  }

  /** Cancels a call by its number: its client gets an error. @returns whether it was running */
  cancelCall(call: number): boolean {
    const runningCall = this.#clients.calls.find(({ number }) => number === call);
    runningCall?.cancelByOperator();
    return runningCall !== undefined;
  }

  /** Lists a server's tools, prompts and resources again; settles when that is done. */
  async refresh(server: string): Promise<void> {
    await Promise.all(this.#pool.connectionsOf(server).map((connection) => connection.refresh()));
  }

  /** Stops all servers. Settles when the processes of all servers have ended. */
  stopAll(): Promise<void> {
    return this.#pool.stopAll();
  }

  /** The servers in manifest order. */
  status(): readonly ServerStatus[] {
    const running = this.#pool.status;
    if (this.#unusable.length === 0) return running;
    const known = new Map(
      // If a name occurs twice, the later status counts: its server still runs with its previous settings, although
      // its table is invalid now.
      [...this.#unusable.map(unusableStatusOf), ...running].map((status) => [
        status.server,
        status,
      ]),
    );
    const names = new Set([...this.#names, ...known.keys()]);
    return [...names].flatMap((name) => known.get(name) ?? []);
  }

  /** The specifications by server name, without the servers whose connections have all failed. */
  get #running(): ReadonlyMap<string, RunnableServer> {
    const specs = new Map(this.#pool.specs.map((spec) => [spec.name, spec]));
    for (const { server, connections } of this.#pool.status) {
      const isFailed = ({ state }: { readonly state: string }): boolean => state === "failed";
      if (connections.length > 0 && connections.every(isFailed)) specs.delete(server);
    }
    return specs;
  }

  #configureApprovals({ approval = APPROVAL_DEFAULTS, clients = [], fleet }: Manifest): void {
    const { minimumApproval: raised } = this.#options;
    const levels = clients.flatMap((client) =>
      client.kind === "client" && client.approval !== undefined
        ? [[client.name, client.approval] as const]
        : [],
    );
    for (const user of fleet?.clients ?? [])
      if (user.approval !== undefined) levels.push([principalOfUser(user.user), user.approval]);
    this.approvals.configure({ ...approval, raised, clients: new Map(levels) }, this.#pool.specs);
  }

  #configureLimits({ limits, clients }: Pick<Manifest, "limits" | "clients">): void {
    this.#limitSettings = { limits, clients };
    this.limits.configure({ limits, clients, servers: this.#pool.specs });
  }

  /** Counts calls from the start if the manifest wants metrics. */
  #configureMetrics({ telemetry }: Manifest): void {
    const { prometheus = false, metrics = false } = telemetry?.input ?? {};
    this.servesMetrics = prometheus;
    if (prometheus || metrics) this.metrics.count();
  }

  /** Shows servers with invalid tables as failed, each with an alert. */
  #updateInvalidServers({ servers }: Manifest): void {
    const invalid = servers.flatMap((spec) =>
      spec.kind === "invalid" && spec.enabled ? [spec] : [],
    );
    for (const { name } of this.#invalid) {
      if (invalid.some((spec) => spec.name === name)) continue;
      this.#alerts.clear(name, ["manifestInvalid"]);
    }
    this.#invalid = invalid;
    this.#unusable = servers.filter((spec) => !isRunnable(spec));
    this.#names = servers.map(({ name }) => name);
    const running = new Set(this.#pool.specs.map(({ name }) => name));
    for (const spec of invalid) {
      this.#alerts.addServer(spec.name);
      const text = describeInvalid(spec, running.has(spec.name));
      this.#alerts.raise({ kind: "manifestInvalid", server: spec.name, text });
    }
    const areAllInvalid = invalid.length > 0 && !this.#pool.specs.some(({ enabled }) => enabled);
    this.#catalogCache.fallbackInstructions = areAllInvalid
      ? invalidServersNotice(invalid)
      : undefined;
    this.#catalogCache.invalidServers = invalid.filter(({ name }) => !running.has(name));
    this.#catalogCache.clear();
    this.#changed();
  }

  /** Statistics of a server's processes, by connection id; connections without statistics are left out. */
  async inspectConnections(server: string): Promise<ReadonlyMap<string, ProcessStats>> {
    const all = await Promise.all(
      this.#pool.connectionsOf(server).map(async ({ state, status: { id } }) => {
        const stats = await sessionOf(state)?.processStats();
        return stats === undefined ? [] : [[id, stats] as const];
      }),
    );
    return new Map(all.flat());
  }

  /**
   * Statistics of a server's processes, summed over all its connections; `pid` is the id of the first connection's
   * process. Undefined if no connection has statistics.
   */
  async inspect(server: string): Promise<ProcessStats | undefined> {
    const [first, ...others] = (await this.inspectConnections(server)).values();
    return others.reduce(addProcessStats, first);
  }

  snapshot(): HubSnapshot {
    return {
      servers: this.status(),
      calls: this.#clients.calls.map((call) => call.describe()),
      clients: this.#clients.status,
      alerts: this.#alerts.all,
      tools: this.catalog.tools.size,
      plugins: this.activePlugins.set?.status ?? [],
    };
  }

  /**
   * Accepts the current read-only hints of a server's tools: approvals rely on these, instead of those that were
   * recorded when the tools were first known.
   * @throws {HubError} storeBroken or storeBusy
   */
  async acceptTools(server: string): Promise<void> {
    const connections = this.#pool.connectionsOf(server);
    await (await this.approvals.store).forgetFirstHints(server);
    for (const { spec, listing, origin } of connections)
      if (listing !== undefined) await this.approvals.recordListing(spec, listing, origin);
  }

  /** Writes a line into a server's log, on behalf of the operator. */
  logServer(server: string, text: string): void {
    this.#options.bus.emit({ kind: "log", level: "info", source: "hub", server, text });
  }

  /** The statistics of the calls that have ended. */
  get usage(): CallUsage {
    return this.#callLog.usage;
  }

  /** Emits the event `calls`; see `CallLog.reportCalls`. */
  reportCalls(before: CallTotals, duration: number): CallTotals {
    return this.#callLog.reportCalls(before, duration);
  }

  /** Begins to make spans of requests, or ends that. @param tracer undefined: no spans are made */
  trace(tracer: Tracer | undefined): void {
    this.#callLog.tracer = tracer;
  }

  /** Makes the spans of requests; undefined while none are made. */
  get tracer(): Tracer | undefined {
    return this.#callLog.tracer;
  }

  /** All metrics, as a scraper reads them. @param accept its header `Accept`; null: it has none */
  async readMetrics(accept: string | null): Promise<Exposition> {
    const { expositionFor } = await import("../telemetry/prometheus.ts");
    return expositionFor(accept, this.metrics.read(), this.metrics.resource);
  }

  /** The last entries of a server's log, oldest first; without `server`, of the hub's own log. */
  log(server?: string): readonly LogEntry[] {
    return this.#logbook.of(server);
  }

  /** The sequence number of the last event. */
  get lastSeq(): number {
    return this.#options.bus.lastSeq;
  }

  /** Shows each client of `[[clients]]` whose token is refused by an alert. */
  setRefusedClients(refused: readonly RefusedClient[]): void {
    this.#alerts.setRefusedClients(refused);
  }

  /** Shows by alerts which servers of other machines are left out. `key`: unique among them. */
  setImportAlerts(alerts: readonly { readonly key: string; readonly text: string }[]): void {
    this.#alerts.setAll("importLimit", alerts);
  }

  /** Dismisses an alert by its id. @returns whether there is such an alert */
  dismissAlert(id: string): boolean {
    return this.#alerts.dismiss(id);
  }

  subscribe(
    listener: EventListener,
    kinds?: readonly EventKind[],
    detail?: EventDetail,
  ): () => void {
    return this.#options.bus.subscribe(listener, kinds, detail);
  }

  /** Stops every server and disconnects every client. Repeated calls return the first call's promise. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#isClosing = true;
    this.#cancelAnnouncement?.();
    this.pinned.close();
    this.scanned.close();
    const saved = settlesWithin(FLUSH_LIMIT, this.#savedListings.flush());
    const stopped = this.#pool.shutDown();
    // Calls that run in plugins may still need the plugins' clients, so these calls get time to end before the clients
    // are closed.
    if (this.activePlugins.isBusy) await this.activePlugins.whenIdle();
    const stored = settlesWithin(FLUSH_LIMIT, this.approvals.stored());
    await Promise.all([stopped, this.#clients.close(), saved, stored]);
    await settlesWithin(FLUSH_LIMIT, this.limits.close());
    await this.activePlugins.close();
    this.#deadlines.clear();
  }

  /** Whether clients of several processes share the hub. */
  get #isShared(): boolean {
    return this.#options.isShared === true;
  }

  /**
   * The specifications of the servers of a manifest that can be started.
   * @param instead returns the specification to use in the place of one that is not valid
   */
  #specsFor(
    { servers }: Manifest,
    instead: (spec: ServerSpec) => RunnableServer | undefined = () => undefined,
  ): readonly RunnableServer[] {
    const runnable = servers.flatMap((spec) => (isRunnable(spec) ? spec : (instead(spec) ?? [])));
    return this.#isShared ? runnable.map(withDecidedIsolation) : runnable;
  }

  /** Runs `work`, and delivers the events that it emits after it has finished. */
  #atomically<T>(work: () => T): T {
    return this.#options.bus.atomically(work);
  }

  #viewOf(
    client: string | undefined,
    subset: ServerSubset | undefined,
    limits: ClientLimits,
    origin?: ClientOrigin,
  ): ClientView {
    const [pool, catalogCache, clock] = [this.#pool, this.#catalogCache, this.#clock];
    const listWait = (): number => this.#settings.listWait;
    const profile = profileOf("", client, undefined, subset, undefined, origin);
    return new ClientView(profile, {
      pool,
      catalogCache,
      modes: this.#modes,
      limits,
      clock,
      listWait,
      isClosing: () => this.#isClosing,
    });
  }

  #resolveSettled(): void {
    this.#clients.serverSettled();
    const { firstOutcome, allStarted } = this.#settled;
    if (firstOutcome === undefined && allStarted === undefined) return;
    const { allConnections: all } = this.#pool;
    if (!all.every(({ isSettled }) => isSettled)) return;
    const isAnyLate = all.some(({ isLate }) => isLate);
    this.#settled = isAnyLate && allStarted !== undefined ? { allStarted } : {};
    firstOutcome?.resolve();
    if (!isAnyLate) allStarted?.resolve();
  }

  #changed(): void {
    this.#catalogCache.clear();
    if (this.#isClosing) return;
    this.scanned.changed();
    this.#cancelAnnouncement ??= this.#clock.after(ANNOUNCE_DELAY, () => {
      this.#cancelAnnouncement = undefined;
      this.#catalogCache.announce();
      this.#clients.catalogChanged();
    });
  }
}

/** Compares specifications by server name. A server that has not changed keeps its specification. */
function changedServers(
  before: ReadonlyMap<string, RunnableServer>,
  after: ReadonlyMap<string, RunnableServer>,
): ChangedServers {
  const names = [...after.keys()];
  return {
    added: names.filter((name) => !before.has(name)),
    changed: names.filter((name) => before.has(name) && before.get(name) !== after.get(name)),
    removed: [...before.keys()].filter((name) => !after.has(name)),
  };
}
