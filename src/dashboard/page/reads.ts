import { controlClient, type InputArguments } from "../../control/client.ts";
import type { Answer, Route, StreamRoute } from "../../control/endpoints.ts";
import { type Failure, request } from "./requests.ts";
import type { MachineDocument, SharingOffer } from "./documents.ts";
import { addChanges, type Stale } from "./apply-events.ts";
import {
  type Charts,
  type HubOverview,
  type HubQuestions,
  CLOCK_ERROR,
  isShown,
  logOf,
  type Loaded,
  LOADING,
  LOG_LINES,
  type Route as PageRoute,
  serverOf,
  serversOf,
  MINUTES,
  USAGE_POINTS,
  valueOf,
  type ViewName,
} from "./state.ts";
import { Store } from "./store.ts";
import { loadSearch, VIEW_MODULES } from "./views.ts";

/**
 * Delay between the first of several events and reading the data that they made stale, in ms. Events that arrive in the
 * meantime are handled together with the first.
 */
const REFRESH_DELAY = 40;
/** Minimum time between two requests for the same data, in ms. */
const REFRESH_INTERVAL = 400;
/** The same for the usage, whose charts take longer to draw. */
const USAGE_INTERVAL = 2000;
/** If more servers than this have to be read again, one request reads all servers. */
const MANY_SERVERS = 6;

/** The endpoints that answer with a document. */
export type ReadRoute = Exclude<Route, StreamRoute>;

/** The control API of a hub. Its requests never reject. */
function clientOf(id: string) {
  return controlClient<Failure>(({ method, path, body }) =>
    request(`./api/hubs/${id}/v1${path}`, { method, raw: body }),
  );
}

/** Reads the data of the hub that is shown into the store, and again when events have made them stale. */
export class HubReads {
  readonly store = new Store((stale) => this.refresh(stale));
  readonly #stale = new Set<Stale>();
  readonly #lastRead = new Map<string, number>();
  #skew = 0;
  readonly #client = controlClient<Failure>(async ({ method, path, body }) => {
    const answer = await request(`${this.hubUrl}${path}`, { method, raw: body });
    if (answer.kind === "ok" && answer.date !== undefined) {
      const skew = answer.date + 500 - Date.now();
      this.#skew = Math.abs(skew) > CLOCK_ERROR ? skew : 0;
    }
    return answer;
  });

  /** The URL below which the control API of the hub that is shown is. */
  get hubUrl(): string {
    return `./api/hubs/${this.store.state.hubId ?? "-"}/v1`;
  }

  /** How much the clock of the hub is ahead of the page's, in ms; 0 if they hardly differ. */
  get skew(): number {
    return this.#skew;
  }

  /** Sends a request to the hub that is shown. Never rejects. */
  readonly get = <R extends ReadRoute>(route: R, ...input: InputArguments<R>) =>
    this.#client(route, ...input);

  /** Reads the data for a part of the state. */
  async load<R extends ReadRoute>(
    route: R,
    ...input: InputArguments<R>
  ): Promise<Loaded<Answer<R>>> {
    const answer = await this.get(route, ...input);
    if (answer.kind === "ok") return { kind: "ready", value: answer.value };
    if (answer.code === "methodNotFound") return { kind: "absent" };
    return { kind: "failed", message: answer.message };
  }

  async readEverything(): Promise<void> {
    await Promise.all([
      this.#readServers(),
      this.readCalls(),
      this.readClients(),
      this.#readAlerts(),
      this.readApprovals(),
      this.#readTools(),
      this.readFleet(),
      this.#readEnded(),
    ]);
    this.readForView();
  }

  /** Reads what only the view needs that is shown. */
  readForView(): void {
    const { route, log, hubId } = this.store.state;
    if (hubId === undefined) return;
    const reads: Partial<Record<PageRoute["view"], () => Promise<void>>> = {
      hubs: async () => void (await Promise.all([this.readHubs(), this.#readSharing()])),
      overview: async () =>
        void (await Promise.all([
          this.readMinutes(),
          this.#readChanges(),
          this.#readSharing(),
          this.readModes(),
          ...(serversOf(this.store.state).length === 0 ? [this.readApps()] : []),
        ])),
      clients: async () => void (await Promise.all([this.readModes(), this.readClients()])),
      servers: async () => {
        const server = logOf(route);
        await Promise.all([
          this.#readActivity(),
          this.readPins(),
          ...(server === undefined ? [] : [this.#readLog(server.server)]),
          ...(serversOf(this.store.state).length === 0 ? [this.readApps()] : []),
        ]);
      },
      fleet: () => this.readFleet(),
      modes: () => this.readModes(),
      agents: async () =>
        void (await Promise.all([this.readAgents(), this.readRuns(), this.readModes()])),
      calls: () => this.#readActivity(),
      usage: async () =>
        void (await Promise.all([
          this.#loadCharts(),
          this.readUsage(),
          this.#readActivity(),
          this.#readLimits(),
        ])),
      configure: async () => void (await Promise.all([this.readSecrets(), this.readCheck()])),
      connect: () => this.readApps(),
      add: () => this.readSecrets(),
      logs: () => this.#readLog(logOf(route)?.server),
    };
    void reads[route.view]?.();
    if (logOf(route) === undefined && log.entries.kind === "ready")
      this.store.change({ log: { server: undefined, entries: LOADING } });
  }

  async #readServers(): Promise<void> {
    const loaded = await this.load("GET /servers");
    if (loaded.kind === "ready") {
      const all = loaded.value.servers.map((server) => [server.name, server] as const);
      this.store.change({ servers: { kind: "ready", value: new Map(all) } });
    } else if (this.store.state.servers.kind !== "ready") this.store.change({ servers: loaded });
  }

  async #readServer(name: string): Promise<void> {
    const answer = await this.get("GET /servers/:name", { params: { name } });
    const { servers } = this.store.state;
    if (answer.kind !== "ok" || servers.kind !== "ready" || !servers.value.has(name)) return;
    const value = new Map(servers.value).set(name, answer.value);
    this.store.change({ servers: { kind: "ready", value } });
  }

  async readCalls(): Promise<void> {
    const answer = await this.get("GET /calls");
    if (answer.kind !== "ok") return;
    this.store.change({ calls: new Map(answer.value.calls.map((call) => [call.call, call])) });
  }

  async readClients(): Promise<void> {
    const answer = await this.get("GET /clients");
    if (answer.kind === "ok") this.store.change({ clients: answer.value.clients });
  }

  async #readAlerts(): Promise<void> {
    const answer = await this.get("GET /alerts");
    if (answer.kind === "ok") this.store.change({ alerts: answer.value.alerts });
  }

  async readApprovals(): Promise<void> {
    const loaded = await this.load("GET /approvals");
    this.store.change({ approvals: mapLoaded(loaded, ({ approvals }) => approvals) });
    const answer = await this.get("GET /approvals/remembered");
    if (answer.kind === "ok") this.store.change({ remembered: answer.value.remembered });
  }

  /** Reads what is not accepted of the server that is shown. */
  async readPins(): Promise<void> {
    const { route, servers } = this.store.state;
    const name = serverOf(route)?.name;
    if (name === undefined || (servers.kind === "ready" && !servers.value.has(name))) return;
    const answer = await this.get("GET /pins", { query: { server: name } });
    this.store.change({ pins: answer.kind === "ok" ? answer.value.servers[0] : undefined });
  }

  async #readTools(): Promise<void> {
    this.store.change({ tools: await this.load("GET /tools") });
    const answer = await this.get("GET /scan");
    if (answer.kind === "ok") this.store.change({ scanned: answer.value.servers });
  }

  async readModes(): Promise<void> {
    this.store.change({ modes: await this.load("GET /mode") });
  }

  async readAgents(): Promise<void> {
    const loaded = await this.load("GET /agents");
    this.store.change({ agents: mapLoaded(loaded, ({ agents }) => agents) });
  }

  async readRuns(): Promise<void> {
    const [open, kept] = await Promise.all([
      this.load("GET /runs"),
      this.load("GET /conversations"),
    ]);
    this.store.change({
      runs: mapLoaded(open, ({ runs }) => runs),
      conversations: mapLoaded(kept, ({ conversations }) => conversations),
    });
  }

  async #readEnded(): Promise<void> {
    const answer = await this.get("GET /activity", { query: { limit: 200 } });
    if (answer.kind === "ok") this.store.change({ ended: answer.value.calls });
  }

  async #readActivity(): Promise<void> {
    this.store.change({ activity: await this.load("GET /activity", { query: { limit: 1000 } }) });
  }

  async readUsage(): Promise<void> {
    const { usageWindow } = this.store.state;
    const query = { window: usageWindow, points: USAGE_POINTS[usageWindow] };
    const usage = await this.load("GET /usage", { query });
    if (usageWindow === this.store.state.usageWindow) this.store.change({ usage });
  }

  /** Reads the calls of each minute of the last hour. */
  async readMinutes(): Promise<void> {
    const query = { window: "1h", points: MINUTES };
    this.store.change({ minutes: await this.load("GET /usage", { query }) });
  }

  async #readChanges(): Promise<void> {
    const loaded = await this.load("GET /log", { query: { limit: LOG_LINES } });
    if (loaded.kind === "ready")
      this.store.change({ changes: addChanges([], loaded.value.entries) });
  }

  async loadSearch(): Promise<void> {
    if (this.store.state.searchModule.kind === "ready") return;
    this.store.change({ searchModule: await loadModule(loadSearch()) });
  }

  /** Reads what the dashboard knows without a hub. */
  async readMachine(): Promise<void> {
    const answer = await request<MachineDocument>("./api/machine");
    const machine: Loaded<MachineDocument> =
      answer.kind === "ok"
        ? { kind: "ready", value: answer.value }
        : { kind: "failed", message: answer.message };
    this.store.change({ machine });
  }

  /** Reads what one hub for all clients would save. */
  async #readSharing(): Promise<void> {
    if (this.store.state.hubs.length < 2) return;
    const answer = await request<{ readonly offers: readonly SharingOffer[] }>("./api/sharing");
    if (answer.kind === "ok") this.store.change({ sharingOffers: answer.value.offers });
  }

  /** Reads the clients of each hub, by which hubs are named. */
  async readHubClients(): Promise<void> {
    const { hubs } = this.store.state;
    if (hubs.length < 2) return;
    const all = await Promise.all(
      hubs.map(async ({ id }) => {
        const answer = await clientOf(id)("GET /clients");
        return [id, answer.kind === "ok" ? answer.value.clients : []] as const;
      }),
    );
    this.store.change({ hubClients: new Map(all) });
  }

  /** Reads which calls of all hubs wait for a person, which the dashboard watches. */
  async readQuestions(): Promise<void> {
    const { hubs, hubQuestions } = this.store.state;
    if (hubs.length < 2) {
      if (hubQuestions.length > 0) this.store.change({ hubQuestions: [] });
      return;
    }
    const answer = await request<{ readonly hubs: readonly HubQuestions[] }>("./api/questions");
    if (answer.kind !== "ok") return;
    const before = JSON.stringify(hubQuestions);
    if (JSON.stringify(answer.value.hubs) !== before)
      this.store.change({ hubQuestions: answer.value.hubs });
  }

  /** Reads what the view of all hubs shows. */
  async readHubs(): Promise<void> {
    const all = await Promise.all(
      this.store.state.hubs.map(async ({ id }) => {
        const get = clientOf(id);
        const [hub, servers, alerts, clients, approvals, calls] = await Promise.all([
          get("GET /hub"),
          get("GET /servers"),
          get("GET /alerts"),
          get("GET /clients"),
          get("GET /approvals"),
          get("GET /calls"),
        ]);
        const overview: HubOverview = {
          rejected: hub.kind === "ok" ? hub.value.rejected : undefined,
          servers: servers.kind === "ok" ? servers.value.servers : [],
          alerts: alerts.kind === "ok" ? alerts.value.alerts : [],
          clients: clients.kind === "ok" ? clients.value.clients : [],
          approvals: approvals.kind === "ok" ? approvals.value.approvals.length : 0,
          calls: calls.kind === "ok" ? calls.value.calls.length : 0,
        };
        return servers.kind === "ok" ? [[id, overview] as const] : [];
      }),
    );
    this.store.change({ hubOverviews: new Map(all.flat()) });
  }

  async #readLimits(): Promise<void> {
    const loaded = await this.load("GET /limits");
    this.store.change({ limits: mapLoaded(loaded, ({ limits }) => limits) });
  }

  async readFleet(): Promise<void> {
    this.store.change({ fleet: await this.load("GET /fleet") });
  }

  async #loadCharts(): Promise<void> {
    if (this.store.state.charts.kind === "ready") return;
    this.store.change({ charts: await loadModule<Charts>(import("./charts.ts")) });
  }

  /** Loads the module of a view that was not opened before, or could not be loaded. */
  async loadView(view: ViewName): Promise<void> {
    if (valueOf(this.store.state.views.get(view) ?? LOADING) !== undefined) return;
    const loaded = await loadModule(VIEW_MODULES[view]());
    this.store.change({ views: new Map(this.store.state.views).set(view, loaded) });
  }

  async readSecrets(): Promise<void> {
    this.store.change({ secrets: await this.load("GET /secrets") });
  }

  async readCheck(): Promise<void> {
    this.store.change({ check: await this.load("POST /check") });
  }

  async readApps(): Promise<void> {
    const loaded = await this.load("GET /client-apps");
    this.store.change({ apps: mapLoaded(loaded, ({ clients }) => clients) });
  }

  async #readLog(server: string | undefined): Promise<void> {
    if (this.store.state.log.server !== server)
      this.store.change({ log: { server, entries: LOADING } });
    const query = { limit: LOG_LINES };
    const loaded = await (server === undefined || server === ""
      ? this.load("GET /log", { query })
      : this.load("GET /servers/:name/log", { params: { name: server }, query }));
    const { route, log } = this.store.state;
    if (logOf(route) === undefined || log.server !== server) return;
    const entries = mapLoaded(loaded, (value) =>
      value.entries.filter((line) => isShown(line, server)),
    );
    this.store.change({ log: { server, entries } });
  }

  /** Schedules reading the data that events have made stale. */
  refresh(stale: ReadonlySet<Stale>): void {
    const isScheduled = this.#stale.size > 0;
    for (const one of stale) this.#stale.add(one);
    if (!isScheduled) setTimeout(() => this.#readStale(), REFRESH_DELAY);
  }

  #readStale(): void {
    const stale = new Set(this.#stale);
    this.#stale.clear();
    if (stale.has("everything")) {
      void this.readEverything();
      return;
    }
    const { view } = this.store.state.route;
    const names = [...stale].flatMap((one) => (one.startsWith("server:") ? [one.slice(7)] : []));
    const isWhole = stale.has("servers") || names.length > MANY_SERVERS;
    const now = performance.now();
    const late = new Set<Stale>();
    const read = (key: Stale, work: () => Promise<void>, interval = REFRESH_INTERVAL): void => {
      if (now - (this.#lastRead.get(key) ?? -Infinity) < interval) {
        late.add(key);
        return;
      }
      this.#lastRead.set(key, now);
      void work();
    };
    if (isWhole) read("servers", () => this.#readServers());
    else for (const name of names) read(`server:${name}`, () => this.#readServer(name));
    if (stale.has("hub")) read("hub", () => this.#readHub());
    // `hub` is stale after the hub has read its manifest again. Then the agents may have changed, too.
    if (stale.has("hub") && view === "agents") void this.readAgents();
    if (
      stale.has("clients") ||
      (stale.has("activity") && (view === "clients" || view === "overview"))
    )
      read("clients", () => this.readClients());
    if (stale.has("tools")) read("tools", () => this.#readTools());
    // `hub` is stale after the hub has read its manifest again, which may have a fleet or none.
    if (stale.has("fleet") || stale.has("hub") || (stale.has("activity") && view === "fleet"))
      read("fleet", () => this.readFleet());
    if (stale.has("calls")) read("calls", () => this.readCalls());
    if (stale.has("approvals")) read("approvals", () => this.readApprovals());
    if (stale.has("pins") && view === "servers") read("pins", () => this.readPins());
    if (stale.has("modes") && (view === "modes" || view === "clients" || view === "agents"))
      read("modes", () => this.readModes());
    if ((stale.has("limits") || stale.has("activity")) && view === "usage")
      read("limits", () => this.#readLimits());
    if (stale.has("activity") && view === "overview")
      read("activity", () => this.readMinutes(), USAGE_INTERVAL);
    if (stale.has("activity") && view === "usage")
      read(
        "activity",
        async () => void (await Promise.all([this.readUsage(), this.#readActivity()])),
        USAGE_INTERVAL,
      );
    if (stale.has("activity") && (view === "calls" || view === "servers"))
      read("activity", () => this.#readActivity());
    if (late.size > 0) setTimeout(() => this.refresh(late), REFRESH_INTERVAL);
  }

  async #readHub(): Promise<void> {
    const answer = await this.get("GET /hub");
    if (answer.kind === "ok") this.store.change({ hub: answer.value });
  }
}

/** A module of the page. It fails if the dashboard does not run any more. */
function loadModule<T>(module: Promise<T>): Promise<Loaded<T>> {
  return module.then(
    (value) => ({ kind: "ready", value }),
    () => ({ kind: "failed", message: "toolmux does not answer." }),
  );
}

/** The same part of the state, with another value if it is there. */
export function mapLoaded<T, U>(loaded: Loaded<T>, map: (value: T) => U): Loaded<U> {
  return loaded.kind === "ready" ? { kind: "ready", value: map(loaded.value) } : loaded;
}
