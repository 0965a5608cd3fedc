import { applyRunEvents, type Chat, emptyChat } from "./chat.ts";
import {
  type Charts,
  type DashboardState,
  FULL_MODE,
  isShown,
  type ConnectionState,
  type Loaded,
  LOADING,
  LOG_LINES,
  type Route,
  routeOfRun,
  routeTo,
  runOf,
  serversOf,
  type Stale,
} from "./state.ts";
import type {
  AgentDocument,
  AlertDocument,
  ApprovalDocument,
  RememberedApprovalDocument,
  CallDocument,
  CheckDocument,
  ClientAppDocument,
  ClientDocument,
  EndedCallDocument,
  HubDocument,
  HubEntry,
  HubEvent,
  LogEntryDocument,
  ModesDocument,
  RunDocument,
  RunEvent,
  RegistryDocument,
  SecretsDocument,
  ServerDocument,
  SnippetDocument,
  ToolDefinition,
  ToolsDocument,
  TrialDocument,
  UsageDocument,
} from "./documents.ts";
import { type Answer, readEvents, request, type RequestOptions } from "./requests.ts";
import { Store } from "./store.ts";

/** The key under which a tab stores the hub that it shows. */
const HUB_KEY = "toolmux.hub";
/** Delays before the first and later attempts to reach the hub again, in ms. */
const DELAYS = [300, 1000, 2000, 4000];
/** How often hubs are looked for, in ms. */
const HUBS_INTERVAL = 10_000;
/**
 * Delay between the first of several events and reading the data that they made stale (or, for a conversation, applying
 * them), in ms. Events that arrive in the meantime are handled together with the first.
 */
const REFRESH_DELAY = 40;
/** Minimum time between two requests for the same data, in ms. */
const REFRESH_INTERVAL = 400;
/** How often the list of conversations is read while the view Agents is shown, in ms. */
const RUNS_INTERVAL = 2000;
/** If more servers than this have to be read again, one request reads all servers. */
const MANY_SERVERS = 6;
/** Maximum number of events that wait to be applied. While there are more, the page does not read the stream. */
const MAX_BACKLOG = 2000;
/** How long a notice is shown, in ms. */
const NOTICE_TIME = 7000;
/** If the clocks of hub and page differ by more than this, in ms, the difference is corrected. */
const SKEW = 3000;
/** If more time than this, in ms, has passed between two ticks of the page's clock, the page reads everything again. */
const CLOCK_JUMP = 20_000;

/** The actions of the page. Failures are shown as notices. */
export interface Actions {
  selectHub(id: string): void;
  /** Sends a request. @param done the notice to show if it succeeds @returns whether it succeeded */
  send(path: string, options: RequestOptions, done?: string): Promise<boolean>;
  server(
    name: string,
    verb: "start" | "stop" | "reconnect" | "cancel" | "refresh" | "login" | "logout",
  ): void;
  reconnectFailed(): void;
  cancelCall(call: number): void;
  dismissAlert(id: string | undefined): void;
  decide(id: string, decision: string): void;
  forgetApproval(id: string): void;
  /** @param mode null: the default mode of the manifest; for a client, the mode of all clients */
  setMode(mode: string | null, client?: string): void;
  /** Begins a conversation, and shows it. @returns whether that succeeded */
  startRun(agent: string, message: string, mode: string): Promise<boolean>;
  /** @param mode the mode that limits the agent's tools from now on; undefined: the mode stays */
  sendMessage(id: string, message: string, mode: string | undefined): Promise<boolean>;
  stopRun(id: string): void;
  closeRun(id: string): void;
  setUsageWindow(window: "1h" | "24h"): void;
  showTool(name: string | undefined): void;
  /** @param json the arguments as JSON text */
  runTool(name: string, json: string): void;
  search(words: string): void;
  tryServer(name: string, entry: object): void;
  endTrial(): void;
  addServer(
    name: string,
    entry: object,
    secrets: Readonly<Record<string, string>>,
  ): Promise<boolean>;
  checkManifest(): void;
  reload(): void;
  setSecret(name: string, value: string): Promise<boolean>;
  /** Reads a server's entry in the manifest, to edit it. @param name undefined: ends editing */
  editServer(name: string | undefined): void;
  /** Reads the text to copy into a client's configuration file. @param http the URL of the hub for the client */
  showSnippet(app: string, http: string | undefined): void;
  /** @param verb `replace`: toolmux replaces the client's servers, which are moved into the manifest */
  install(app: string, verb: "install" | "replace" | "undo", title: string): void;
  notify(text: string): void;
}

/** The page's connection to one hub: fills the store, keeps it up to date, and does what the views ask for. */
export class HubConnection implements Actions {
  readonly store: Store;
  readonly #stale = new Set<Stale>();
  readonly #lastRead = new Map<string, number>();
  /** Aborted to end the present stream of events and to begin a new one. */
  #stream = new AbortController();
  /** Aborted to stop following the conversation that is shown. */
  #run: AbortController | undefined;
  #runEvents: RunEvent[] = [];
  #wake: (() => void) | undefined;
  #seq: number | undefined;
  #skew = 0;
  #lastNotice = 0;

  constructor() {
    this.store = new Store((stale) => this.#refresh(stale));
  }

  /**
   * Keeps the page connected; never settles.
   * @param problem why the one-time token was not accepted; undefined if there is no such problem
   */
  async run(problem: string | undefined): Promise<never> {
    this.#keepTime();
    if (problem !== undefined) this.notify(problem, true);
    for (let failures = 0; ;) {
      const hubs = await request<{ readonly hubs: readonly HubEntry[] }>("./api/hubs");
      if (hubs.kind === "failed") {
        const isDenied = hubs.status === 401 || hubs.status === 403;
        this.#setConnectionState(
          isDenied
            ? { kind: "denied", text: problem ?? hubs.message }
            : { kind: "lost", text: hubs.message },
        );
        await this.#wait(isDenied ? undefined : delayAfter(failures++));
        continue;
      }
      const isRunning = this.#takeHubs(hubs.value.hubs);
      const { hubId } = this.store.state;
      if (hubId === undefined || !isRunning) {
        this.#setConnectionState(
          hubId === undefined
            ? { kind: "none" }
            : { kind: "lost", text: "This hub has ended. The page waits for it to start again." },
        );
        await this.#wait(delayAfter(failures++));
        continue;
      }
      const isOpened = await this.#follow(hubId);
      failures = isOpened ? 0 : failures + 1;
      if (!this.#stream.signal.aborted) {
        this.#setConnectionState({
          kind: "lost",
          text: "The connection to the hub is lost. It is opened again.",
        });
        await this.#wait(delayAfter(failures));
      }
    }
  }

  /** Called when the page is shown or hidden. Events of the conversation are read only while the page is visible. */
  onVisibility(): void {
    if (this.store.state.connection.kind === "live") this.#showRun(runOf(this.store.state.route));
  }

  /** Ends the present wait, so that the next attempt begins at once. */
  retry(): void {
    this.#wake?.();
  }

  go(route: Route): void {
    const { state } = this.store;
    this.store.change({ route });
    this.#readForView();
    if (route.view === "tools" && route.item !== state.tool?.name) this.showTool(route.item);
    if (route.view !== "add") this.store.change({ trial: undefined });
  }

  // Reading

  /**
   * Reads all data if `#seq` is undefined. Then reads events until the stream ends.
   * @returns whether the stream was opened
   */
  async #follow(hubId: string): Promise<boolean> {
    this.#stream = new AbortController();
    const { signal } = this.#stream;
    if (this.#seq === undefined) {
      const hub = await this.#get<HubDocument>("/hub");
      if (hub.kind === "failed") return false;
      this.#seq = hub.value.seq;
      this.store.change({ hub: hub.value });
      await this.#readEverything();
    }
    let isOpened = false;
    const failure = await readEvents(
      `./api/hubs/${hubId}/v1/events?watch=approvals&after=${this.#seq}`,
      signal,
      () => {
        isOpened = true;
        this.#setConnectionState({ kind: "live" });
      },
      async (data) => {
        if (signal.aborted) return;
        const event = data as HubEvent;
        if (event.kind === "gap") this.#refresh(new Set(["everything"]));
        else {
          this.#seq = event.seq;
          this.store.addEvent(event);
        }
        while (this.store.backlog > MAX_BACKLOG) await pause(20);
      },
    );
    if (failure !== undefined) await pause(200);
    return isOpened;
  }

  /** Stores a new list of hubs, and chooses the hub to show. @returns whether that hub runs */
  #takeHubs(hubs: readonly HubEntry[]): boolean {
    const { hubId, hubs: before } = this.store.state;
    const current = before.find(({ id }) => id === hubId);
    this.store.change({ hubs });
    if (hubs.some(({ id }) => id === hubId)) return true;
    // A hub that was started again has another id. It is found by its name and manifest.
    const successor =
      current === undefined
        ? (hubs.find(({ id }) => id === sessionStorage.getItem(HUB_KEY)) ??
          hubs.toSorted((a, b) => b.startedAt - a.startedAt)[0])
        : hubs.find(
            ({ manifest, name }) =>
              name === current.name && manifest.join() === current.manifest.join(),
          );
    if (successor !== undefined) this.#takeHub(successor.id);
    // The entry of a hub that has ended is kept, so that its successor is found.
    else if (current !== undefined) this.store.change({ hubs: [current, ...hubs] });
    return successor !== undefined;
  }

  #takeHub(hubId: string): void {
    sessionStorage.setItem(HUB_KEY, hubId);
    this.#seq = undefined;
    this.#leaveRun();
    this.store.dropEvents();
    this.store.change({ agents: LOADING, runs: LOADING });
    this.store.change({ hubId, calls: new Map(), ended: [], decisions: [], alerts: [] });
  }

  async #get<T>(path: string, options?: RequestOptions): Promise<Answer<T>> {
    const answer = await request<T>(
      `./api/hubs/${this.store.state.hubId ?? "-"}/v1${path}`,
      options,
    );
    if (answer.kind === "ok" && answer.date !== undefined) {
      const skew = answer.date + 500 - Date.now();
      this.#skew = Math.abs(skew) > SKEW ? skew : 0;
    }
    return answer;
  }

  /** Reads the data for a part of the state. */
  async #load<T>(path: string, options?: RequestOptions): Promise<Loaded<T>> {
    const answer = await this.#get<T>(path, options);
    if (answer.kind === "ok") return { kind: "ready", value: answer.value };
    if (answer.code === "methodNotFound") return { kind: "absent" };
    return { kind: "failed", message: answer.message };
  }

  async #readEverything(): Promise<void> {
    await Promise.all([
      this.#readServers(),
      this.#readCalls(),
      this.#readClients(),
      this.#readAlerts(),
      this.#readApprovals(),
      this.#readTools(),
      this.#readEnded(),
    ]);
    this.#readForView();
  }

  #readForView(): void {
    const { route, log, hubId } = this.store.state;
    if (hubId === undefined) return;
    this.#showRun(runOf(route));
    const reads: Partial<Record<Route["view"], () => Promise<void>>> = {
      clients: async () => void (await Promise.all([this.#readModes(), this.#readClients()])),
      servers: async () => {
        if (serversOf(this.store.state).length === 0) await this.#readApps();
      },
      modes: () => this.#readModes(),
      agents: async () =>
        void (await Promise.all([this.#readAgents(), this.#readRuns(), this.#readModes()])),
      activity: () => this.#readActivity(),
      usage: async () =>
        void (await Promise.all([this.#loadCharts(), this.#readUsage(), this.#readActivity()])),
      configure: async () => void (await Promise.all([this.#readSecrets(), this.#readCheck()])),
      connect: () => this.#readApps(),
      add: () => this.#readSecrets(),
      logs: () => this.#readLog(route.item === "toolmux:" ? "" : route.item),
    };
    void reads[route.view]?.();
    if (route.view !== "logs" && log.entries.kind === "ready")
      this.store.change({ log: { server: undefined, entries: LOADING } });
  }

  async #readServers(): Promise<void> {
    const loaded = await this.#load<{ readonly servers: readonly ServerDocument[] }>("/servers");
    if (loaded.kind === "ready") {
      const all = loaded.value.servers.map((server) => [server.name, server] as const);
      this.store.change({ servers: { kind: "ready", value: new Map(all) } });
    } else if (this.store.state.servers.kind !== "ready") this.store.change({ servers: loaded });
  }

  async #readServer(name: string): Promise<void> {
    const answer = await this.#get<ServerDocument>(`/servers/${encodeURIComponent(name)}`);
    const { servers } = this.store.state;
    if (answer.kind !== "ok" || servers.kind !== "ready" || !servers.value.has(name)) return;
    const value = new Map(servers.value).set(name, answer.value);
    this.store.change({ servers: { kind: "ready", value } });
  }

  async #readCalls(): Promise<void> {
    const answer = await this.#get<{ readonly calls: readonly CallDocument[] }>("/calls");
    if (answer.kind !== "ok") return;
    this.store.change({ calls: new Map(answer.value.calls.map((call) => [call.call, call])) });
  }

  async #readClients(): Promise<void> {
    const answer = await this.#get<{ readonly clients: readonly ClientDocument[] }>("/clients");
    if (answer.kind === "ok") this.store.change({ clients: answer.value.clients });
  }

  async #readAlerts(): Promise<void> {
    const answer = await this.#get<{ readonly alerts: readonly AlertDocument[] }>("/alerts");
    if (answer.kind === "ok") this.store.change({ alerts: answer.value.alerts });
  }

  async #readApprovals(): Promise<void> {
    const loaded = await this.#load<{ readonly approvals: readonly ApprovalDocument[] }>(
      "/approvals",
    );
    this.store.change({ approvals: mapLoaded(loaded, ({ approvals }) => approvals) });
    const answer = await this.#get<{ readonly remembered: readonly RememberedApprovalDocument[] }>(
      "/approvals/remembered",
    );
    if (answer.kind === "ok") this.store.change({ remembered: answer.value.remembered });
  }

  async #readTools(): Promise<void> {
    this.store.change({ tools: await this.#load<ToolsDocument>("/tools") });
  }

  async #readModes(): Promise<void> {
    this.store.change({ modes: await this.#load<ModesDocument>("/mode") });
  }

  async #readAgents(): Promise<void> {
    const loaded = await this.#load<{ readonly agents: readonly AgentDocument[] }>("/agents");
    this.store.change({ agents: mapLoaded(loaded, ({ agents }) => agents) });
  }

  async #readRuns(): Promise<void> {
    const loaded = await this.#load<{ readonly runs: readonly RunDocument[] }>("/runs");
    this.store.change({ runs: mapLoaded(loaded, ({ runs }) => runs) });
  }

  // The conversation that is shown. Events of other conversations are not streamed, because a browser opens only a few
  // connections to one host.

  #showRun(id: string | undefined): void {
    const { chat } = this.store.state;
    if (id === undefined || document.hidden) {
      this.#leaveRun();
      return;
    }
    if (chat?.id === id && this.#run !== undefined) return;
    this.#leaveRun();
    if (chat?.id !== id) this.store.change({ chat: emptyChat(id) });
    this.#run = new AbortController();
    void this.#followRun(id, this.#run.signal);
  }

  #leaveRun(): void {
    this.#run?.abort();
    this.#run = undefined;
    this.#runEvents = [];
  }

  async #followRun(id: string, signal: AbortSignal): Promise<void> {
    for (let failures = 0; ; failures++) {
      const { hubId = "-", chat } = this.store.state;
      const path = `./api/hubs/${hubId}/v1/runs/${encodeURIComponent(id)}/events`;
      const failure = await readEvents(
        `${path}?after=${chat?.seq ?? 0}`,
        signal,
        () => {
          failures = 0;
          this.#changeChat(id, () => ({ link: "open" }));
        },
        (event) => {
          if (signal.aborted) return;
          this.#runEvents.push(event as RunEvent);
          if (this.#runEvents.length === 1)
            setTimeout(() => this.#takeRunEvents(id), REFRESH_DELAY);
        },
      );
      if (signal.aborted) return;
      this.#takeRunEvents(id);
      if (failure?.status === 404 && failure.code !== "hubNotRunning") {
        this.#changeChat(id, () => ({ link: "gone", isRunning: false, sent: [] }));
        void this.#readRuns();
        return;
      }
      await pause(delayAfter(failures));
      if (signal.aborted) return;
    }
  }

  #takeRunEvents(id: string): void {
    const events = this.#runEvents;
    this.#runEvents = [];
    if (events.length === 0) return;
    this.#changeChat(id, (chat) => applyRunEvents(chat, events));
    const isNews = events.some((event) => "type" in event && !event.type.endsWith("Delta"));
    if (isNews) void this.#readRuns();
  }

  #changeChat(id: string, change: (chat: Chat) => Partial<Chat>): void {
    const { chat } = this.store.state;
    if (chat?.id === id) this.store.change({ chat: { ...chat, ...change(chat) } });
  }

  async #readEnded(): Promise<void> {
    const answer = await this.#get<{ readonly calls: readonly EndedCallDocument[] }>(
      "/activity?limit=200",
    );
    if (answer.kind === "ok") this.store.change({ ended: answer.value.calls });
  }

  async #readActivity(): Promise<void> {
    this.store.change({ activity: await this.#load("/activity?limit=1000") });
  }

  async #readUsage(): Promise<void> {
    const { usageWindow } = this.store.state;
    const usage = await this.#load<UsageDocument>(`/usage?window=${usageWindow}&points=30`);
    if (usageWindow === this.store.state.usageWindow) this.store.change({ usage });
  }

  async #loadCharts(): Promise<void> {
    if (this.store.state.charts.kind === "ready") return;
    const loaded = await import("./charts.ts").then(
      (value): Loaded<Charts> => ({ kind: "ready", value }),
      (): Loaded<Charts> => ({ kind: "failed", message: "toolmux does not answer." }),
    );
    this.store.change({ charts: loaded });
  }

  async #readSecrets(): Promise<void> {
    this.store.change({ secrets: await this.#load<SecretsDocument>("/secrets") });
  }

  async #readCheck(): Promise<void> {
    this.store.change({ check: await this.#load<CheckDocument>("/check", { method: "POST" }) });
  }

  async #readApps(): Promise<void> {
    const loaded = await this.#load<{ readonly clients: readonly ClientAppDocument[] }>(
      "/client-apps",
    );
    this.store.change({ apps: mapLoaded(loaded, ({ clients }) => clients) });
  }

  async #readLog(server: string | undefined): Promise<void> {
    if (this.store.state.log.server !== server)
      this.store.change({ log: { server, entries: LOADING } });
    const path =
      server === undefined || server === ""
        ? `/log?limit=${LOG_LINES}`
        : `/servers/${encodeURIComponent(server)}/log?limit=${LOG_LINES}`;
    const loaded = await this.#load<{ readonly entries: readonly LogEntryDocument[] }>(path);
    const { route, log } = this.store.state;
    if (route.view !== "logs" || log.server !== server) return;
    const entries = mapLoaded(loaded, (value) =>
      value.entries.filter((line) => isShown(line, server)),
    );
    this.store.change({ log: { server, entries } });
  }

  /** Schedules reading the data that events have made stale. */
  #refresh(stale: ReadonlySet<Stale>): void {
    const isScheduled = this.#stale.size > 0;
    for (const one of stale) this.#stale.add(one);
    if (!isScheduled) setTimeout(() => this.#readStale(), REFRESH_DELAY);
  }

  #readStale(): void {
    const stale = new Set(this.#stale);
    this.#stale.clear();
    if (stale.has("everything")) {
      void this.#readEverything();
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
    if (stale.has("hub") && view === "agents") void this.#readAgents();
    if (stale.has("clients") || (stale.has("activity") && view === "clients"))
      read("clients", () => this.#readClients());
    if (stale.has("tools")) read("tools", () => this.#readTools());
    if (stale.has("calls")) read("calls", () => this.#readCalls());
    if (stale.has("approvals")) read("approvals", () => this.#readApprovals());
    if (stale.has("modes") && (view === "modes" || view === "clients" || view === "agents"))
      read("modes", () => this.#readModes());
    if (stale.has("activity") && view === "activity") read("activity", () => this.#readActivity());
    if (stale.has("activity") && view === "calls") read("activity", () => this.#readEnded());
    if (late.size > 0) setTimeout(() => this.#refresh(late), REFRESH_INTERVAL);
  }

  async #readHub(): Promise<void> {
    const answer = await this.#get<HubDocument>("/hub");
    if (answer.kind === "ok") this.store.change({ hub: answer.value });
  }

  // Time

  /**
   * Each second: updates the time, notices that the machine has slept, and reads data for which there are no events.
   */
  #keepTime(): void {
    let lastDate = Date.now();
    let lastHubs = performance.now();
    let lastRuns = performance.now();
    setInterval(() => {
      const date = Date.now();
      const passed = date - lastDate;
      lastDate = date;
      if (passed > CLOCK_JUMP || passed < -SKEW) {
        this.#seq = undefined;
        this.#stream.abort();
        this.retry();
      }
      if (document.hidden) return;
      this.store.change({ now: date + this.#skew });
      const { connection, calls, route } = this.store.state;
      if (connection.kind !== "live") return;
      const isOnCalls = ["calls", "servers", "agents"].includes(route.view);
      if (calls.size > 0 && isOnCalls) void this.#readCalls();
      const now = performance.now();
      if (route.view === "agents" && now - lastRuns >= RUNS_INTERVAL) {
        lastRuns = now;
        void this.#readRuns();
      }
      if (now - lastHubs < HUBS_INTERVAL) return;
      lastHubs = now;
      void request<{ readonly hubs: readonly HubEntry[] }>("./api/hubs").then((answer) => {
        if (answer.kind !== "ok") return;
        const { hubs } = answer.value;
        // If the hub has ended, the list is not stored here, because `run` handles the end of the hub's event stream.
        if (hubs.some(({ id }) => id === this.store.state.hubId)) this.store.change({ hubs });
      });
      if (route.view === "usage") this.#readForView();
    }, 1000);
    this.store.change({ now: lastDate });
  }

  #setConnectionState(connection: ConnectionState): void {
    const before = this.store.state.connection;
    if (JSON.stringify(before) !== JSON.stringify(connection)) this.store.change({ connection });
  }

  /** Waits until `ms` have passed or `retry` is called. @param ms undefined: waits only for `retry` */
  #wait(ms: number | undefined): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  // Actions

  selectHub(id: string): void {
    if (runOf(this.store.state.route) !== undefined) location.hash = routeTo("agents");
    this.#takeHub(id);
    this.#stream.abort();
    this.retry();
  }

  async send(path: string, options: RequestOptions, done?: string): Promise<boolean> {
    const answer = await this.#get(path, options);
    if (answer.kind === "failed") this.notify(answer.message, true);
    else if (done !== undefined) this.notify(done);
    return answer.kind === "ok";
  }

  server(name: string, verb: Parameters<Actions["server"]>[1]): void {
    const done =
      verb === "login" ? `The login to ${name} begins. Its page opens in your browser.` : undefined;
    void this.send(`/servers/${encodeURIComponent(name)}/${verb}`, { method: "POST" }, done);
  }

  reconnectFailed(): void {
    void this.send("/servers/reconnect-failed", { method: "POST" });
  }

  cancelCall(call: number): void {
    void this.send(`/calls/${call}/cancel`, { method: "POST" });
  }

  dismissAlert(id: string | undefined): void {
    const path = id === undefined ? "/alerts/dismiss" : `/alerts/${encodeURIComponent(id)}/dismiss`;
    void this.send(path, { method: "POST" });
  }

  decide(id: string, decision: string): void {
    void this.send(`/approvals/${encodeURIComponent(id)}`, {
      method: "POST",
      body: { decision, by: "dashboard" },
    }).then(() => this.#readApprovals());
  }

  forgetApproval(id: string): void {
    const path = `/approvals/remembered/${encodeURIComponent(id)}`;
    void this.send(path, { method: "DELETE" }).then(() => this.#readApprovals());
  }

  setMode(mode: string | null, client?: string): void {
    const path = client === undefined ? "/mode" : `/clients/${encodeURIComponent(client)}/mode`;
    void this.send(path, { method: "PUT", body: { mode } }).then(() =>
      Promise.all([this.#readModes(), this.#readClients()]),
    );
  }

  async startRun(agent: string, message: string, mode: string): Promise<boolean> {
    const answer = await this.#get<RunDocument>(`/agents/${encodeURIComponent(agent)}/runs`, {
      method: "POST",
      body: { message, ...(mode !== FULL_MODE && { mode }) },
    });
    if (answer.kind === "failed") {
      this.notify(answer.message, true);
      return false;
    }
    const { id } = answer.value;
    this.store.change({ chat: { ...emptyChat(id), agent, sent: [message] } });
    location.hash = routeOfRun(id);
    return true;
  }

  async sendMessage(id: string, message: string, mode: string | undefined): Promise<boolean> {
    this.#changeChat(id, ({ sent }) => ({ sent: [...sent, message] }));
    const isDone = await this.send(`/runs/${encodeURIComponent(id)}/message`, {
      method: "POST",
      body: { message, ...(mode !== undefined && { mode }) },
    });
    if (!isDone)
      this.#changeChat(id, ({ sent }) => {
        const at = sent.indexOf(message);
        return at < 0 ? {} : { sent: sent.toSpliced(at, 1) };
      });
    return isDone;
  }

  stopRun(id: string): void {
    void this.send(`/runs/${encodeURIComponent(id)}/cancel`, { method: "POST" });
  }

  closeRun(id: string): void {
    if (runOf(this.store.state.route) === id) location.hash = routeTo("agents");
    void this.send(`/runs/${encodeURIComponent(id)}`, { method: "DELETE" }).then(() =>
      this.#readRuns(),
    );
  }

  setUsageWindow(usageWindow: "1h" | "24h"): void {
    this.store.change({ usageWindow, usage: LOADING });
    void this.#readUsage();
  }

  showTool(name: string | undefined): void {
    if (name === undefined) {
      this.store.change({ tool: undefined });
      return;
    }
    const run = { isRunning: false, answer: undefined };
    this.store.change({ tool: { name, definition: LOADING, run } });
    void this.#load<ToolDefinition>(`/tools/${encodeURIComponent(name)}`).then((definition) => {
      const { tool } = this.store.state;
      if (tool?.name === name) this.store.change({ tool: { ...tool, definition } });
    });
  }

  runTool(name: string, json: string): void {
    const setRun = (run: NonNullable<DashboardState["tool"]>["run"]): void => {
      const { tool } = this.store.state;
      if (tool?.name === name) this.store.change({ tool: { ...tool, run } });
    };
    setRun({ isRunning: true, answer: undefined });
    const options: RequestOptions = { method: "POST", raw: `{"arguments":${json}}` };
    void this.#get(`/tools/${encodeURIComponent(name)}/call`, options).then((answer) => {
      const text = answer.kind === "ok" ? JSON.stringify(answer.value, null, 2) : answer.message;
      setRun({ isRunning: false, answer: text });
    });
  }

  search(words: string): void {
    this.store.change({ search: LOADING });
    const query = new URLSearchParams({ query: words, limit: "20" });
    void this.#load<RegistryDocument>(`/registry?${query.toString()}`).then((search) =>
      this.store.change({ search }),
    );
  }

  tryServer(name: string, entry: object): void {
    this.store.change({ trial: LOADING });
    void this.#load<TrialDocument>("/trial", { method: "POST", body: { name, entry } }).then(
      (trial) => this.store.change({ trial }),
    );
  }

  endTrial(): void {
    this.store.change({ trial: undefined });
  }

  async addServer(
    name: string,
    entry: object,
    secrets: Readonly<Record<string, string>>,
  ): Promise<boolean> {
    for (const [secret, value] of Object.entries(secrets))
      if (!(await this.setSecret(secret, value))) return false;
    const body = { name, entry, persist: true };
    return this.send("/servers", { method: "POST", body }, `${name} was added to the manifest.`);
  }

  checkManifest(): void {
    void this.#readCheck();
  }

  reload(): void {
    void this.send("/reload", { method: "POST" }, "The manifest was read again.").then(() =>
      this.#readCheck(),
    );
  }

  async setSecret(name: string, value: string): Promise<boolean> {
    const path = `/secrets/${name.split("/").map(encodeURIComponent).join("/")}`;
    const isDone = await this.send(path, { method: "PUT", body: { value } }, `${name} is stored.`);
    await this.#readSecrets();
    if (this.store.state.route.view === "agents") await this.#readAgents();
    for (const { name: server, state, lastError } of serversOf(this.store.state))
      if (state === "failed" && lastError?.code === "valueMissing")
        this.server(server, "reconnect");
    return isDone;
  }

  editServer(name: string | undefined): void {
    this.store.change({ entry: name === undefined ? undefined : { name, loaded: LOADING } });
    if (name === undefined) return;
    void this.#load<{ readonly entry: unknown }>(`/servers/${encodeURIComponent(name)}/entry`).then(
      (loaded) => {
        const entry = { name, loaded: mapLoaded(loaded, (value) => value.entry) };
        if (this.store.state.entry?.name === name) this.store.change({ entry });
      },
    );
  }

  showSnippet(app: string, http: string | undefined): void {
    const { snippet } = this.store.state;
    if (snippet?.app === app && snippet.http === http) return;
    this.store.change({ snippet: { app, http, loaded: LOADING } });
    const query = http === undefined ? "" : `?${new URLSearchParams({ http }).toString()}`;
    void this.#load<SnippetDocument>(`/client-apps/${app}/snippet${query}`).then((loaded) =>
      this.store.change({ snippet: { app, http, loaded } }),
    );
  }

  install(app: string, verb: "install" | "replace" | "undo", title: string): void {
    const done =
      verb === "undo"
        ? `The file of ${title} is as it was.`
        : `toolmux is in the file of ${title}.`;
    const path = `/client-apps/${app}/${verb === "undo" ? "undo" : "install"}`;
    const body = verb === "replace" ? { replace: true } : {};
    void this.send(path, { method: "POST", body }, done).then(() => this.#readApps());
  }

  notify(text: string, isError = false): void {
    const id = ++this.#lastNotice;
    const others = this.store.state.notices.filter((notice) => notice.text !== text).slice(-3);
    this.store.change({ notices: [...others, { id, isError, text }] });
    setTimeout(() => {
      this.store.change({ notices: this.store.state.notices.filter((notice) => notice.id !== id) });
    }, NOTICE_TIME);
  }
}

function delayAfter(failures: number): number {
  return DELAYS[Math.min(failures, DELAYS.length - 1)] ?? 0;
}

function mapLoaded<T, U>(loaded: Loaded<T>, map: (value: T) => U): Loaded<U> {
  return loaded.kind === "ready" ? { kind: "ready", value: map(loaded.value) } : loaded;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
