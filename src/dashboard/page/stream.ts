import { applyRunEvents, type Chat, emptyChat } from "./chat.ts";
import type { HubEntry, HubEvent, RunEvent } from "./documents.ts";
import type { HubReads } from "./reads.ts";
import { readEvents, request } from "./requests.ts";
import { type ConnectionState, LOADING, type Route, runOf } from "./state.ts";

/** The key under which a tab stores the hub that it shows. */
const HUB_KEY = "toolmux.hub";
/** Delays before the first and later attempts to reach the hub again, in ms. */
const DELAYS = [300, 1000, 2000, 4000];
/** How often hubs are looked for, in ms. */
const HUBS_INTERVAL = 10_000;
/** How often the list of conversations is read while the view Agents is shown, in ms. */
const RUNS_INTERVAL = 2000;
/** Delay between the first of several events of a conversation and applying all of them, in ms. */
const RUN_DELAY = 40;
/** How often all hubs are read while the view of all hubs is shown, in ms. */
const HUB_OVERVIEWS_INTERVAL = 2000;
/** How often the questions of all hubs are read, in ms. */
const QUESTIONS_INTERVAL = 2000;
/** How often the fleet is read while the view Fleet is shown, in ms. */
const FLEET_INTERVAL = 2000;
/** How often the calls of each minute are read while the view Overview is shown, in ms. */
const MINUTES_INTERVAL = 5000;
/** Maximum number of events that wait to be applied. While there are more, the page does not read the stream. */
const MAX_BACKLOG = 2000;
/**
 * If more time than this has passed between two ticks of the page's clock, or the clock was set back by more, in ms, the
 * page reads everything again.
 */
const CLOCK_JUMP = 20_000;
const CLOCK_STEP_BACK = 3000;

/** The page's connection to one hub: chooses the hub, and follows its events and those of the conversation shown. */
export class HubStream {
  readonly #reads: HubReads;
  /** Aborted to end the present stream of events and to begin a new one. */
  #stream = new AbortController();
  /** Aborted to stop following the conversation that is shown. */
  #run: AbortController | undefined;
  #runEvents: RunEvent[] = [];
  #wake: (() => void) | undefined;
  #seq: number | undefined;

  constructor(reads: HubReads) {
    this.#reads = reads;
  }

  get #store() {
    return this.#reads.store;
  }

  /**
   * Keeps the page connected; never settles.
   * @param problem why the one-time token was not accepted; undefined if there is no such problem
   */
  async run(problem: string | undefined): Promise<never> {
    this.#keepTime();
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
      const { hubId } = this.#store.state;
      if (hubId === undefined || !isRunning) {
        this.#setConnectionState(
          hubId === undefined
            ? { kind: "none" }
            : { kind: "lost", text: "This hub has ended. The page waits for it to start again." },
        );
        if (hubId === undefined) void this.#reads.readMachine();
        await this.#wait(delayAfter(failures++));
        continue;
      }
      void this.#reads.readHubClients();
      const isOpened = await this.#follow();
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
    if (this.#store.state.connection.kind === "live") this.#showRun(runOf(this.#store.state.route));
  }

  /** Ends the present wait, so that the next attempt begins at once. */
  retry(): void {
    this.#wake?.();
  }

  /** Shows a view, and reads what it needs. */
  go(route: Route): void {
    this.#store.change({ route });
    void this.#reads.loadView(route.view);
    if (this.#store.state.hubId !== undefined) this.#showRun(runOf(route));
    this.#reads.readForView();
  }

  /** Shows another hub. */
  selectHub(id: string): void {
    this.#takeHub(id);
    this.#stream.abort();
    this.retry();
  }

  /**
   * Reads all data if `#seq` is undefined. Then reads events until the stream ends.
   * @returns whether the stream was opened
   */
  async #follow(): Promise<boolean> {
    this.#stream = new AbortController();
    const { signal } = this.#stream;
    if (this.#seq === undefined) {
      const hub = await this.#reads.get("GET /hub");
      if (hub.kind === "failed") return false;
      this.#seq = hub.value.seq;
      this.#store.change({ hub: hub.value });
      await this.#reads.readEverything();
      this.#showRun(runOf(this.#store.state.route));
    }
    let isOpened = false;
    const failure = await readEvents(
      `${this.#reads.hubUrl}/events?watch=approvals&after=${this.#seq}`,
      signal,
      () => {
        isOpened = true;
        this.#setConnectionState({ kind: "live" });
        void this.#reads.loadView(this.#store.state.route.view);
      },
      async (data) => {
        if (signal.aborted) return;
        const event = data as HubEvent;
        if (event.kind === "gap") this.#reads.refresh(new Set(["everything"]));
        else {
          this.#seq = event.seq;
          this.#store.addEvent(event);
        }
        while (this.#store.backlog > MAX_BACKLOG) await pause(20);
      },
    );
    if (failure !== undefined) await pause(200);
    return isOpened;
  }

  /** Stores a new list of hubs, and chooses the hub to show. @returns whether that hub runs */
  #takeHubs(hubs: readonly HubEntry[]): boolean {
    const { hubId, hubs: before } = this.#store.state;
    const current = before.find(({ id }) => id === hubId);
    this.#store.change({ hubs });
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
    else if (current !== undefined) this.#store.change({ hubs: [current, ...hubs] });
    return successor !== undefined;
  }

  #takeHub(hubId: string): void {
    sessionStorage.setItem(HUB_KEY, hubId);
    this.#seq = undefined;
    this.#leaveRun();
    this.#store.dropEvents();
    this.#store.change({
      agents: LOADING,
      runs: LOADING,
      conversations: LOADING,
      toolRuns: new Map(),
    });
    this.#store.change({ hubId, calls: new Map(), ended: [], decisions: [], alerts: [] });
  }

  // The conversation that is shown. Events of other conversations are not streamed, because a browser opens only a few
  // connections to one host.

  #showRun(id: string | undefined): void {
    const { chat } = this.#store.state;
    if (id === undefined || document.hidden) {
      this.#leaveRun();
      return;
    }
    if (chat?.id === id && this.#run !== undefined) return;
    this.#leaveRun();
    if (chat?.id !== id) this.#store.change({ chat: emptyChat(id) });
    this.#run = new AbortController();
    void this.#followRun(id, this.#run.signal);
  }

  /** Reads a conversation again from its beginning. */
  followAgain(id: string): void {
    this.#leaveRun();
    this.#store.change({ chat: emptyChat(id) });
    this.#showRun(id);
    void this.#reads.readRuns();
  }

  #leaveRun(): void {
    this.#run?.abort();
    this.#run = undefined;
    this.#runEvents = [];
  }

  async #followRun(id: string, signal: AbortSignal): Promise<void> {
    let isOpened = false;
    for (let failures = 0; ; failures++) {
      const { chat } = this.#store.state;
      const path = `${this.#reads.hubUrl}/runs/${encodeURIComponent(id)}/events`;
      const failure = await readEvents(
        `${path}?after=${chat?.seq ?? 0}`,
        signal,
        () => {
          failures = 0;
          this.changeChat(id, () => ({ link: "open" }));
        },
        (event) => {
          if (signal.aborted) return;
          this.#runEvents.push(event as RunEvent);
          if (this.#runEvents.length === 1) setTimeout(() => this.#takeRunEvents(id), RUN_DELAY);
        },
      );
      if (signal.aborted) return;
      this.#takeRunEvents(id);
      if (failure?.status === 404 && failure.code !== "hubNotRunning") {
        // A conversation that is kept is opened when it is first shown.
        const isFirst = !isOpened && (this.#store.state.chat?.seq ?? 0) === 0;
        const params = { id };
        const opened =
          isFirst && (await this.#reads.get("POST /conversations/:id/open", { params }));
        isOpened = true;
        if (signal.aborted) return;
        if (opened && opened.kind === "ok") {
          void this.#reads.readRuns();
          continue;
        }
        const reason = opened && opened.code !== "notFound" ? opened.message : undefined;
        this.changeChat(id, () => ({ link: "gone", isRunning: false, sent: [], reason }));
        void this.#reads.readRuns();
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
    this.changeChat(id, (chat) => applyRunEvents(chat, events));
    const isNews = events.some((event) => "type" in event && !event.type.endsWith("Delta"));
    if (isNews) void this.#reads.readRuns();
  }

  /** Changes the conversation that is shown, if it is this one. */
  changeChat(id: string, change: (chat: Chat) => Partial<Chat>): void {
    const { chat } = this.#store.state;
    if (chat?.id === id) this.#store.change({ chat: { ...chat, ...change(chat) } });
  }

  /**
   * Each second: updates the time, notices that the machine has slept, and reads data for which there are no events.
   */
  #keepTime(): void {
    let lastDate = Date.now();
    let lastHubs = performance.now();
    let lastQuestions = performance.now();
    let lastRuns = performance.now();
    let lastHubOverviews = performance.now();
    let lastMinutes = performance.now();
    let lastFleet = performance.now();
    setInterval(() => {
      const date = Date.now();
      const passed = date - lastDate;
      lastDate = date;
      if (passed > CLOCK_JUMP || passed < -CLOCK_STEP_BACK) {
        this.#seq = undefined;
        this.#stream.abort();
        this.retry();
      }
      const { connection, calls, route } = this.#store.state;
      // A page that is hidden may notify the person.
      if (connection.kind === "live" && performance.now() - lastQuestions >= QUESTIONS_INTERVAL) {
        lastQuestions = performance.now();
        void this.#reads.readQuestions();
      }
      if (document.hidden) return;
      this.#store.change({ now: date + this.#reads.skew });
      if (connection.kind !== "live") return;
      const isOnCalls = ["calls", "servers", "agents"].includes(route.view);
      if (calls.size > 0 && isOnCalls) void this.#reads.readCalls();
      const now = performance.now();
      if (route.view === "agents" && now - lastRuns >= RUNS_INTERVAL) {
        lastRuns = now;
        void this.#reads.readRuns();
      }
      if (route.view === "fleet" && now - lastFleet >= FLEET_INTERVAL) {
        lastFleet = now;
        void this.#reads.readFleet();
      }
      if (route.view === "hubs" && now - lastHubOverviews >= HUB_OVERVIEWS_INTERVAL) {
        lastHubOverviews = now;
        void this.#reads.readHubs();
      }
      if (route.view === "overview" && now - lastMinutes >= MINUTES_INTERVAL) {
        lastMinutes = now;
        void this.#reads.readMinutes();
      }
      if (now - lastHubs < HUBS_INTERVAL) return;
      lastHubs = now;
      void request<{ readonly hubs: readonly HubEntry[] }>("./api/hubs").then((answer) => {
        if (answer.kind !== "ok") return;
        const { hubs } = answer.value;
        // If the hub has ended, the list is not stored here, because `run` handles the end of the hub's event stream.
        if (!hubs.some(({ id }) => id === this.#store.state.hubId)) return;
        this.#store.change({ hubs });
        void this.#reads.readHubClients();
      });
      if (route.view === "usage") this.#reads.readForView();
    }, 1000);
    this.#store.change({ now: lastDate });
  }

  #setConnectionState(connection: ConnectionState): void {
    const before = this.#store.state.connection;
    if (JSON.stringify(before) !== JSON.stringify(connection)) this.#store.change({ connection });
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
}

function delayAfter(failures: number): number {
  return DELAYS[Math.min(failures, DELAYS.length - 1)] ?? 0;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
