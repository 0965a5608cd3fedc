import { controlClient, type InputArguments } from "../../control/client.ts";
import type { Answer, Route, StreamRoute } from "../../control/endpoints.ts";
import { type Failure, request } from "./requests.ts";
import type { Stale } from "./apply-events.ts";
import {
  type Charts,
  isShown,
  type Loaded,
  LOADING,
  LOG_LINES,
  type Route as PageRoute,
  serversOf,
} from "./state.ts";
import { Store } from "./store.ts";

/**
 * Delay between the first of several events and reading the data that they made stale, in ms. Events that arrive in the
 * meantime are handled together with the first.
 */
const REFRESH_DELAY = 40;
/** Minimum time between two requests for the same data, in ms. */
const REFRESH_INTERVAL = 400;
/** If more servers than this have to be read again, one request reads all servers. */
const MANY_SERVERS = 6;
/** If the clocks of hub and page differ by more than this, in ms, the difference is corrected. */
const SKEW = 3000;

/** The endpoints that answer with a document. */
export type ReadRoute = Exclude<Route, StreamRoute>;

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
      this.#skew = Math.abs(skew) > SKEW ? skew : 0;
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
      this.#readEnded(),
    ]);
    this.readForView();
  }

  /** Reads what only the view needs that is shown. */
  readForView(): void {
    const { route, log, hubId } = this.store.state;
    if (hubId === undefined) return;
    const reads: Partial<Record<PageRoute["view"], () => Promise<void>>> = {
      clients: async () => void (await Promise.all([this.readModes(), this.readClients()])),
      servers: async () => {
        if (serversOf(this.store.state).length === 0) await this.readApps();
      },
      modes: () => this.readModes(),
      agents: async () =>
        void (await Promise.all([this.readAgents(), this.readRuns(), this.readModes()])),
      activity: () => this.#readActivity(),
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
      logs: () => this.#readLog(route.item === "toolmux:" ? "" : route.item),
    };
    void reads[route.view]?.();
    if (route.view !== "logs" && log.entries.kind === "ready")
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

  async #readTools(): Promise<void> {
    this.store.change({ tools: await this.load("GET /tools") });
  }

  async readModes(): Promise<void> {
    this.store.change({ modes: await this.load("GET /mode") });
  }

  async readAgents(): Promise<void> {
    const loaded = await this.load("GET /agents");
    this.store.change({ agents: mapLoaded(loaded, ({ agents }) => agents) });
  }

  async readRuns(): Promise<void> {
    const loaded = await this.load("GET /runs");
    this.store.change({ runs: mapLoaded(loaded, ({ runs }) => runs) });
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
    const usage = await this.load("GET /usage", { query: { window: usageWindow, points: 30 } });
    if (usageWindow === this.store.state.usageWindow) this.store.change({ usage });
  }

  async #readLimits(): Promise<void> {
    const loaded = await this.load("GET /limits");
    this.store.change({ limits: mapLoaded(loaded, ({ limits }) => limits) });
  }

  async #loadCharts(): Promise<void> {
    if (this.store.state.charts.kind === "ready") return;
    const loaded = await import("./charts.ts").then(
      (value): Loaded<Charts> => ({ kind: "ready", value }),
      (): Loaded<Charts> => ({ kind: "failed", message: "toolmux does not answer." }),
    );
    this.store.change({ charts: loaded });
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
    if (route.view !== "logs" || log.server !== server) return;
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
    const read = (key: Stale, work: () => Promise<void>): void => {
      if (now - (this.#lastRead.get(key) ?? -Infinity) < REFRESH_INTERVAL) {
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
    if (stale.has("clients") || (stale.has("activity") && view === "clients"))
      read("clients", () => this.readClients());
    if (stale.has("tools")) read("tools", () => this.#readTools());
    if (stale.has("calls")) read("calls", () => this.readCalls());
    if (stale.has("approvals")) read("approvals", () => this.readApprovals());
    if (stale.has("modes") && (view === "modes" || view === "clients" || view === "agents"))
      read("modes", () => this.readModes());
    if ((stale.has("limits") || stale.has("activity")) && view === "usage")
      read("limits", () => this.#readLimits());
    if (stale.has("activity") && view === "activity") read("activity", () => this.#readActivity());
    if (stale.has("activity") && view === "calls") read("activity", () => this.#readEnded());
    if (late.size > 0) setTimeout(() => this.refresh(late), REFRESH_INTERVAL);
  }

  async #readHub(): Promise<void> {
    const answer = await this.get("GET /hub");
    if (answer.kind === "ok") this.store.change({ hub: answer.value });
  }
}

/** The same part of the state, with another value if it is there. */
export function mapLoaded<T, U>(loaded: Loaded<T>, map: (value: T) => U): Loaded<U> {
  return loaded.kind === "ready" ? { kind: "ready", value: map(loaded.value) } : loaded;
}
