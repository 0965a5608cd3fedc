import type { Input, InputArguments } from "../../control/client.ts";
import { emptyChat } from "./chat.ts";
import type {
  ApprovalDocument,
  EntryPreviewDocument,
  KeptCallDocument,
  PinsDocument,
  ToolDefinition,
} from "./documents.ts";
import { Notifications } from "./notifications.ts";
import { type HubReads, mapLoaded, type ReadRoute } from "./reads.ts";
import {
  type DashboardState,
  FULL_MODE,
  type InstallVerb,
  type Loaded,
  LOADING,
  PAGE_CLIENT,
  type Route,
  routeOfRun,
  routeTo,
  runOf,
  serversOf,
  type UsageWindow,
  valueOf,
  type ViewName,
} from "./state.ts";
import { request } from "./requests.ts";
import type { HubStream } from "./stream.ts";

/** How long an attempt to connect is waited for, to say what has become of it. */
const RECONNECT_WAIT = "30s";
/** How long a notice is shown, in ms. */
const NOTICE_TIME = 7000;

/** A server's entry as in a manifest. */
type Entry = Readonly<Record<string, unknown>>;

/** A changed entry, as an object or as TOML. */
export type EntryEdit = { readonly entry: Entry } | { readonly toml: string };

/** A definition of a server that is accepted, with its digest. */
type AcceptedPin = Pick<PinsDocument["pending"][number], "kind" | "name" | "digest">;

/** The actions of the page. Failures are shown as notices. */
export interface Actions {
  selectHub(id: string): void;
  /** Shows a view of a hub, and an item of it. */
  openHub(id: string, view: ViewName, item?: string): void;
  /** Lets the dashboard start a hub, and shows a view of it. */
  startHub(view: ViewName, item?: string): void;
  setSearching(isSearching: boolean): void;
  /** Sends a request. @param done the notice to show if it succeeds @returns whether it succeeded */
  send<R extends ReadRoute>(route: R, input: Input<R>, done?: string): Promise<boolean>;
  server(
    name: string,
    verb: "start" | "stop" | "reconnect" | "cancel" | "refresh" | "login" | "logout",
  ): void;
  reconnectFailed(): void;
  cancelCall(call: number): void;
  /** Reads what a plugin has kept of an ended call. */
  readKeptCall(call: number): Promise<Loaded<KeptCallDocument>>;
  dismissAlert(id: string | undefined): void;
  /** @returns whether the decision was accepted */
  decide(id: string, decision: ApprovalDocument["choices"][number]): Promise<boolean>;
  /**
   * Accepts definitions of a server as the person has seen them.
   * @returns whether that succeeded
   */
  acceptPins(server: string, definitions: readonly AcceptedPin[]): Promise<boolean>;
  /** Switches notifications of the desktop on or off. */
  setNotifications(isOn: boolean): void;
  forgetApproval(id: string): void;
  /** @param mode null: the default mode of the manifest; for a client, the mode of all clients */
  setMode(mode: string | null, client?: string): void;
  /** Begins a conversation, and shows it. @returns whether that succeeded */
  startRun(agent: string, message: string, mode: string): Promise<boolean>;
  /** @param mode the mode that limits the agent's tools from now on; undefined: the mode stays */
  sendMessage(id: string, message: string, mode: string | undefined): Promise<boolean>;
  stopRun(id: string): void;
  closeRun(id: string): void;
  /** Opens a conversation that is kept. */
  reopenRun(id: string): void;
  forgetRun(id: string): void;
  /** Pings all machines of the fleet, and shows what they answer. */
  pingFleet(): Promise<void>;
  setUsageWindow(window: UsageWindow): void;
  showTool(name: string | undefined): void;
  /** Hides a tool from clients, or shows it, by `tools.deny` in the manifest. @param tool the server's own name */
  hideTool(server: string, tool: string, isHidden: boolean): void;
  /** @param json the arguments as JSON text */
  runTool(name: string, json: string): void;
  /** Cancels the call of the tool that this page has made. */
  cancelTool(name: string): void;
  search(words: string): void;
  /** Finds tools by what they do, as models do. */
  findTools(words: string): void;
  tryServer(name: string, entry: Entry): void;
  endTrial(): void;
  addServer(
    name: string,
    entry: Entry,
    secrets: Readonly<Record<string, string>>,
  ): Promise<boolean>;
  checkManifest(): void;
  reload(): void;
  setSecret(name: string, value: string): Promise<boolean>;
  /** Reads a server's entry in the manifest, to edit it. @param name undefined: ends editing */
  editServer(name: string | undefined): void;
  /** Checks a changed entry. @returns what it would be; undefined if the hub did not say */
  previewEntry(name: string, edit: EntryEdit): Promise<EntryPreviewDocument | undefined>;
  /** Reads the text to copy into a client's configuration file. @param http the URL of the hub for the client */
  showSnippet(app: string, http: string | undefined): void;
  /** Shows how a client's file would be changed. @param verb undefined: shows nothing any more */
  preview(app: string, verb: InstallVerb | undefined): void;
  /** Changes the file of a client. */
  install(app: string, verb: InstallVerb, title: string): void;
  notify(text: string, isError?: boolean): void;
}

/** The properties of each view. */
export interface ViewProps {
  readonly state: DashboardState;
  readonly actions: Actions;
}

/** Does what the views ask for. */
export class HubActions implements Actions {
  /** The last change of hidden tools; it never rejects. */
  #hiding = Promise.resolve();
  readonly #reads: HubReads;
  readonly #stream: HubStream;
  readonly #notifications: Notifications;
  /** The last call of each tool from this page. */
  readonly #toolCalls = new Map<string, AbortController>();
  #lastNotice = 0;

  constructor(reads: HubReads, stream: HubStream) {
    this.#reads = reads;
    this.#stream = stream;
    this.#notifications = new Notifications(reads.store);
  }

  get #store() {
    return this.#reads.store;
  }

  /** Shows a view. */
  go(route: Route): void {
    const { state } = this.#store;
    this.#stream.go(route);
    if (route.view === "tools" && route.item !== state.tool?.name) this.showTool(route.item);
    if (route.view !== "add") this.#store.change({ trial: undefined });
  }

  selectHub(id: string): void {
    if (runOf(this.#store.state.route) !== undefined) location.hash = routeTo("agents");
    this.#stream.selectHub(id);
  }

  openHub(id: string, view: ViewName, item?: string): void {
    if (id !== this.#store.state.hubId) this.#stream.selectHub(id);
    location.hash = routeTo(view, item);
  }

  startHub(view: ViewName, item?: string): void {
    if (this.#store.state.isStarting) return;
    this.#store.change({ isStarting: true });
    void request("./api/hubs", { method: "POST" }).then((answer) => {
      this.#store.change({ isStarting: false });
      if (answer.kind === "failed") {
        this.notify(answer.message, true);
        return;
      }
      this.#stream.retry();
      location.hash = routeTo(view, item);
    });
  }

  setSearching(isSearching: boolean): void {
    this.#store.change({ isSearching });
    if (!isSearching) return;
    void this.#reads.loadSearch();
    if (this.#store.state.agents.kind === "loading") void this.#reads.readAgents();
    if (this.#store.state.modes.kind === "loading") void this.#reads.readModes();
    if (this.#store.state.secrets.kind === "loading") void this.#reads.readSecrets();
  }

  async send<R extends ReadRoute>(route: R, input: Input<R>, done?: string): Promise<boolean> {
    const answer = await this.#reads.get(route, ...([input] as unknown as InputArguments<R>));
    if (answer.kind === "failed") this.notify(answer.message, true);
    else if (done !== undefined) this.notify(done);
    return answer.kind === "ok";
  }

  server(name: string, verb: Parameters<Actions["server"]>[1]): void {
    if (verb === "reconnect") {
      void this.#reconnect(name);
      return;
    }
    const done =
      verb === "login" ? `The login to ${name} begins. Its page opens in your browser.` : undefined;
    void this.send(`POST /servers/:name/${verb}`, { params: { name } }, done);
  }

  /** Tries a server again, and says what has become of it. */
  async #reconnect(name: string): Promise<void> {
    const before = valueOf(this.#store.state.servers)?.get(name)?.lastError?.message;
    const input = { params: { name }, query: { wait: RECONNECT_WAIT } };
    const answer = await this.#reads.get("POST /servers/:name/reconnect", input);
    if (answer.kind === "failed") {
      this.notify(answer.message, true);
      return;
    }
    const { state, lastError } = answer.value;
    if (state === "connected") this.notify(`${name} is connected.`);
    else if ((state === "failed" || state === "reconnecting") && lastError !== undefined)
      this.notify(
        lastError.message === before
          ? `${name} was tried just now, with the same error: ${before}`
          : `${name} was tried just now: ${lastError.message}`,
        true,
      );
  }

  reconnectFailed(): void {
    void this.send("POST /servers/reconnect-failed", {});
  }

  readKeptCall(call: number): Promise<Loaded<KeptCallDocument>> {
    return this.#reads.load("GET /activity/:call", { params: { call: String(call) } });
  }

  cancelCall(call: number): void {
    void this.send("POST /calls/:call/cancel", { params: { call: String(call) } });
  }

  dismissAlert(id: string | undefined): void {
    void (id === undefined
      ? this.send("POST /alerts/dismiss", {})
      : this.send("POST /alerts/:id/dismiss", { params: { id } }));
  }

  async decide(id: string, decision: Parameters<Actions["decide"]>[1]): Promise<boolean> {
    const body = { decision, by: "dashboard" } as const;
    const isDone = await this.send("POST /approvals/:id", { params: { id }, body });
    await this.#reads.readApprovals();
    return isDone;
  }

  async acceptPins(server: string, definitions: readonly AcceptedPin[]): Promise<boolean> {
    const body = { server, definitions };
    const isDone = await this.send("POST /pins/accept", { body }, `Accepted for ${server}.`);
    await this.#reads.readPins();
    return isDone;
  }

  setNotifications(isOn: boolean): void {
    void this.#notifications.set(isOn);
  }

  forgetApproval(id: string): void {
    void this.send("DELETE /approvals/remembered/:id", { params: { id } }).then(() =>
      this.#reads.readApprovals(),
    );
  }

  setMode(mode: string | null, client?: string): void {
    const body = { mode };
    const done =
      client === undefined
        ? this.send("PUT /mode", { body })
        : this.send("PUT /clients/:client/mode", { params: { client }, body });
    void done.then(() => Promise.all([this.#reads.readModes(), this.#reads.readClients()]));
  }

  async startRun(agent: string, message: string, mode: string): Promise<boolean> {
    const answer = await this.#reads.get("POST /agents/:name/runs", {
      params: { name: agent },
      body: { message, ...(mode !== FULL_MODE && { mode }) },
    });
    if (answer.kind === "failed") {
      this.notify(answer.message, true);
      return false;
    }
    const { id } = answer.value;
    this.#store.change({ chat: { ...emptyChat(id), agent, sent: [message] } });
    location.hash = routeOfRun(id);
    return true;
  }

  async sendMessage(id: string, message: string, mode: string | undefined): Promise<boolean> {
    this.#stream.changeChat(id, ({ sent }) => ({ sent: [...sent, message] }));
    const isDone = await this.send("POST /runs/:id/message", {
      params: { id },
      body: { message, ...(mode !== undefined && { mode }) },
    });
    if (!isDone)
      this.#stream.changeChat(id, ({ sent }) => {
        const at = sent.indexOf(message);
        return at < 0 ? {} : { sent: sent.toSpliced(at, 1) };
      });
    return isDone;
  }

  stopRun(id: string): void {
    void this.send("POST /runs/:id/cancel", { params: { id } });
  }

  closeRun(id: string): void {
    if (runOf(this.#store.state.route) === id) location.hash = routeTo("agents");
    void this.send("DELETE /runs/:id", { params: { id } }).then(() => this.#reads.readRuns());
  }

  reopenRun(id: string): void {
    const done = this.send("POST /conversations/:id/open", { params: { id } });
    void done.then((isDone) => isDone && this.#stream.followAgain(id));
  }

  forgetRun(id: string): void {
    if (runOf(this.#store.state.route) === id) location.hash = routeTo("agents");
    const done = this.send("DELETE /conversations/:id", { params: { id } });
    void done.then(() => this.#reads.readRuns());
  }

  async pingFleet(): Promise<void> {
    const answer = await this.#reads.get("POST /fleet/ping");
    if (answer.kind === "failed") this.notify(answer.message, true);
    else this.#store.change({ fleet: { kind: "ready", value: answer.value } });
  }

  setUsageWindow(usageWindow: UsageWindow): void {
    this.#store.change({ usageWindow, usage: LOADING });
    void this.#reads.readUsage();
  }

  showTool(name: string | undefined): void {
    if (name === undefined) {
      this.#store.change({ tool: undefined });
      return;
    }
    this.#store.change({ tool: { name, definition: LOADING } });
    void this.#reads.load("GET /tools/:name", { params: { name } }).then((loaded) => {
      const { tool } = this.#store.state;
      // Servers define their tools as MCP says; the schema of the answer leaves the definition open.
      const definition = mapLoaded(loaded, (value) => value as ToolDefinition);
      if (tool?.name === name) this.#store.change({ tool: { ...tool, definition } });
    });
  }

  runTool(name: string, json: string): void {
    this.#toolCalls.get(name)?.abort();
    const call = new AbortController();
    this.#toolCalls.set(name, call);
    const { hubUrl, skew } = this.#reads;
    const startedAt = Date.now() + skew;
    const setRun = (isRunning: boolean, answer: string | undefined): void => {
      if (this.#toolCalls.get(name) !== call || hubUrl !== this.#reads.hubUrl) return;
      const toolRuns = new Map(this.#store.state.toolRuns);
      toolRuns.set(name, { startedAt, isRunning, answer });
      this.#store.change({ toolRuns });
    };
    setRun(true, undefined);
    const raw = `{"arguments":${json},"client":${JSON.stringify(PAGE_CLIENT)}}`;
    const path = `${hubUrl}/tools/${encodeURIComponent(name)}/call`;
    void request<object>(path, { method: "POST", raw, signal: call.signal }).then((answer) => {
      const text = call.signal.aborted
        ? "You cancelled this call."
        : answer.kind === "ok"
          ? JSON.stringify(answer.value, null, 2)
          : answer.message;
      setRun(false, text);
    });
  }

  cancelTool(name: string): void {
    this.#toolCalls.get(name)?.abort();
  }

  hideTool(server: string, tool: string, isHidden: boolean): void {
    // Each change begins with the entry that the one before has left.
    this.#hiding = this.#hiding.then(() => this.#hideTool(server, tool, isHidden));
  }

  async #hideTool(server: string, tool: string, isHidden: boolean): Promise<void> {
    const params = { name: server };
    const answer = await this.#reads.get("GET /servers/:name/entry", { params });
    if (answer.kind === "failed") {
      this.notify(answer.message, true);
      return;
    }
    const entry = changeDenied(answer.value.entry, tool, isHidden);
    if (entry === undefined) {
      this.notify(
        `${tool} is hidden by another setting of ${server}: change it in the part Config.`,
        true,
      );
      return;
    }
    const done = isHidden ? `Clients do not see ${tool} any more.` : `Clients see ${tool}.`;
    await this.send("PATCH /servers/:name", { params, body: { entry, persist: true } }, done);
  }

  search(words: string): void {
    this.#store.change({ search: LOADING });
    void this.#reads
      .load("GET /registry", { query: { query: words, limit: 20 } })
      .then((search) => this.#store.change({ search }));
  }

  findTools(words: string): void {
    void this.#reads.get("GET /find", { query: { query: words, limit: 50 } }).then((answer) => {
      if (answer.kind === "ok")
        this.#store.change({ found: { words, names: answer.value.tools.map(({ name }) => name) } });
    });
  }

  tryServer(name: string, entry: Entry): void {
    this.#store.change({ trial: LOADING });
    void this.#reads
      .load("POST /trial", { body: { name, entry } })
      .then((trial) => this.#store.change({ trial }));
  }

  endTrial(): void {
    this.#store.change({ trial: undefined });
  }

  async addServer(
    name: string,
    entry: Entry,
    secrets: Readonly<Record<string, string>>,
  ): Promise<boolean> {
    for (const [secret, value] of Object.entries(secrets))
      if (!(await this.setSecret(secret, value))) return false;
    const body = { name, entry, persist: true };
    return this.send("POST /servers", { body }, `${name} was added to the manifest.`);
  }

  checkManifest(): void {
    void this.#reads.readCheck();
  }

  reload(): void {
    void this.send("POST /reload", {}, "The manifest was read again.").then(() =>
      this.#reads.readCheck(),
    );
  }

  async setSecret(name: string, value: string): Promise<boolean> {
    const input = { params: { name }, body: { value } };
    const isDone = await this.send("PUT /secrets/:name", input, `${name} is stored.`);
    await this.#reads.readSecrets();
    if (this.#store.state.route.view === "agents") await this.#reads.readAgents();
    for (const { name: server, state, lastError } of serversOf(this.#store.state))
      if (state === "failed" && lastError?.code === "valueMissing")
        this.server(server, "reconnect");
    return isDone;
  }

  editServer(name: string | undefined): void {
    this.#store.change({ entry: name === undefined ? undefined : { name, loaded: LOADING } });
    if (name === undefined) return;
    void this.#reads.load("GET /servers/:name/entry", { params: { name } }).then((loaded) => {
      if (this.#store.state.entry?.name === name) this.#store.change({ entry: { name, loaded } });
    });
  }

  async previewEntry(name: string, edit: EntryEdit): Promise<EntryPreviewDocument | undefined> {
    const input = { params: { name }, body: edit };
    const answer = await this.#reads.get("POST /servers/:name/preview", input);
    if (answer.kind === "ok") return answer.value;
    this.notify(answer.message, true);
    return undefined;
  }

  showSnippet(app: string, http: string | undefined): void {
    const { snippet } = this.#store.state;
    if (snippet?.app === app && snippet.http === http) return;
    this.#store.change({ snippet: { app, http, loaded: LOADING } });
    void this.#reads
      .load("GET /client-apps/:name/snippet", { params: { name: app }, query: { http } })
      .then((loaded) => this.#store.change({ snippet: { app, http, loaded } }));
  }

  preview(app: string, verb: InstallVerb | undefined): void {
    this.#store.change({ preview: verb && { app, verb, loaded: LOADING } });
    if (verb === undefined) return;
    const params = { name: app };
    const body = { dryRun: true, ...(verb === "replace" && { replace: true }) };
    const loading =
      verb === "undo"
        ? this.#reads.load("POST /client-apps/:name/undo", { params, query: { dryRun: true } })
        : this.#reads.load("POST /client-apps/:name/install", { params, body });
    void loading.then((loaded) => {
      const { preview } = this.#store.state;
      if (preview?.app === app && preview.verb === verb)
        this.#store.change({ preview: { app, verb, loaded } });
    });
  }

  install(app: string, verb: InstallVerb, title: string): void {
    const done =
      verb === "undo"
        ? `The file of ${title} is as it was.`
        : `toolmux is in the file of ${title}.`;
    const params = { name: app };
    const body = verb === "replace" ? { replace: true } : {};
    const sent =
      verb === "undo"
        ? this.send("POST /client-apps/:name/undo", { params }, done)
        : this.send("POST /client-apps/:name/install", { params, body }, done);
    void sent.then((isDone) => {
      if (isDone) this.#store.change({ preview: undefined });
      return this.#reads.readApps();
    });
  }

  notify(text: string, isError = false): void {
    const id = ++this.#lastNotice;
    const others = this.#store.state.notices.filter((notice) => notice.text !== text).slice(-3);
    this.#store.change({ notices: [...others, { id, isError, text }] });
    setTimeout(() => {
      this.#store.change({
        notices: this.#store.state.notices.filter((notice) => notice.id !== id),
      });
    }, NOTICE_TIME);
  }
}

/** A server's entry in which `tools.deny` has a tool or not; undefined if another setting hides the tool. */
function changeDenied(entry: Entry, tool: string, isDenied: boolean): Entry | undefined {
  const { tools = {} } = entry;
  if (typeof tools !== "object" || tools === null) return undefined;
  const { deny = [], ...rest } = tools as Readonly<Record<string, unknown>>;
  if (!Array.isArray(deny)) return undefined;
  // In a pattern, `*` and `?` stand for other characters.
  if (!isDenied && !deny.includes(tool)) return undefined;
  const others = (deny as readonly unknown[]).filter((one) => one !== tool);
  const denied = isDenied ? [...others, tool] : others;
  const changed = { ...rest, ...(denied.length > 0 && { deny: denied }) };
  if (Object.keys(changed).length > 0) return { ...entry, tools: changed };
  const { tools: _, ...without } = entry;
  return without;
}
