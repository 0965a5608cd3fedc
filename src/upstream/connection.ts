/**
 * upstream/: the MCP servers behind the hub: their connections, sessions, listings and states. Main types: `ServerPool`
 * (`pool.ts`), all servers; `Connection`, below, one server for one client profile; `Session` (`session.ts`), MCP over
 * an open transport. Start here, then read `state.ts` (states and signals), `connect.ts` (one attempt to connect),
 * `session.ts` and `pending.ts` (the requests in flight on a session).
 */
import { count } from "../base/format.ts";
import { askableOf } from "../protocol/capabilities.ts";
import type { Alerts } from "../base/alerts.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { EventBus, LogLevel, LogSource } from "../base/hub-events.ts";
import { isShowable, type Kind, type ListedItem, type ServerListing } from "../catalog/listing.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import { changesStartLimits } from "../manifest/diff.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { AuthChallenge, ConnectionCookies } from "../transport/http/target.ts";
import { AuthorizationRunner, LoginElicitation } from "./authorization.ts";
import {
  connect,
  type ConnectEnvironment,
  type ConnectEvents,
  type PartialListing,
} from "./connect.ts";
import { HealthMonitor } from "./health.ts";
import { type KnownListing, ListingSync } from "./listing.ts";
import type { ClientRequest, ConnectionClients } from "./profile.ts";
import { notAcceptedError, pinLevelOf } from "../pins/level.ts";
import type { Review } from "../pins/pins.ts";
import type { Route } from "../catalog/section.ts";
import type { SavedListing } from "./saved-listings.ts";
import type { Session } from "./session.ts";
import {
  causeOfState,
  type Effect,
  endpointOf,
  eventOfMove,
  hasFailed,
  lateSince,
  retryTimeOf,
  sessionOf,
  type Signal,
  stateAfterStop,
  type State,
  step,
  updateAlerts,
} from "./state.ts";
import type { ConnectionStatus, FailedAttempts, Goal, PeerInfo } from "./status.ts";
import type { MalformedOutputReporter } from "./stray-output.ts";
import { Subscriptions } from "./subscriptions.ts";
import { ServerTasks } from "./tasks.ts";

/** A caller that waits for a session. It gets the open session, or the error because of which there is none. */
export interface SessionWaiter {
  /** The client's request that needs the session. */
  readonly clientRequest?: ClientRequest;
  onSession(session: Session): void;
  fail(error: HubError): void;
  /** Called when the pool has replaced the connection. The waiter must ask the pool for the new connection. */
  onRetired(): void;
}

/**
 * The waiters for a session. Each waiter is called once, and may then wait again at once. An exception of one waiter
 * does not affect the others.
 */
export class SessionWaiters {
  readonly #waiting = new Set<SessionWaiter>();
  readonly #onException: (error: HubError) => void;

  constructor(onException: (error: HubError) => void) {
    this.#onException = onException;
  }

  add(waiter: SessionWaiter): void {
    this.#waiting.add(waiter);
  }

  /** Removes a waiter. @returns whether it was waiting */
  delete(waiter: SessionWaiter): boolean {
    return this.#waiting.delete(waiter);
  }

  /** The first waiting request if all waiting requests belong to one client; else undefined. */
  get clientRequest(): ClientRequest | undefined {
    const requests = [...this.#waiting].flatMap(({ clientRequest }) => clientRequest ?? []);
    const [first, ...others] = requests;
    return others.every(({ channel }) => channel === first?.channel) ? first : undefined;
  }

  resolveAll(session: Session): void {
    this.#callAll((waiter) => waiter.onSession(session));
  }

  resolve(waiter: SessionWaiter, session: Session): void {
    try {
      waiter.onSession(session);
    } catch (thrown) {
      this.#failAfterException(waiter, toHubError(thrown));
    }
  }

  failAll(error: HubError): void {
    this.#callAll((waiter) => waiter.fail(error));
  }

  retireAll(): void {
    this.#callAll((waiter) => waiter.onRetired());
  }

  retire(waiter: SessionWaiter): void {
    this.#call(waiter, (each) => each.onRetired());
  }

  #callAll(call: (waiter: SessionWaiter) => void): void {
    const waiters = [...this.#waiting];
    this.#waiting.clear();
    for (const waiter of waiters) this.#call(waiter, call);
  }

  #call(waiter: SessionWaiter, call: (waiter: SessionWaiter) => void): void {
    try {
      call(waiter);
    } catch (thrown) {
      this.#failAfterException(waiter, toHubError(thrown));
    }
  }

  #failAfterException(waiter: SessionWaiter, error: HubError): void {
    this.#onException(error);
    try {
      waiter.fail(error);
    } catch (thrown) {
      this.#onException(toHubError(thrown));
    }
  }
}

export interface ConnectionOptions {
  readonly spec: RunnableServer;
  /** The client's id if the server has one connection per client; undefined if clients share the connection. */
  readonly client: string | undefined;
  /** The client whose values fill in the server's entry; undefined: the hub's own environment. */
  readonly origin: ClientOrigin | undefined;
  /** See `Connection.isPrivate`. */
  readonly isPrivate: boolean;
  /** Identifies the connection among the connections to the same server. */
  readonly key: string;
  readonly clients: ConnectionClients;
  readonly environment: ConnectEnvironment;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  /** Reports malformed output of the server, on all its connections. */
  readonly malformedOutput: MalformedOutputReporter;
  /** The listing of the previous connection, if this connection replaces one. */
  readonly former: KnownListing | undefined;
  /**
   * Whether the server is started before anybody wants it. Then no login begins, and no browser opens, until a client,
   * a call or the operator wants it.
   */
  readonly isEarly: boolean;
  /** Settles when the first attempt may begin, because earlier processes of the server have ended. */
  readonly ready: Promise<unknown>;
  goal(): Goal;
  /** Returns a random number from 0 to 1, for the jitter of retry delays. */
  random(): number;
  /** Loads the listing that was saved when the server last ran. Never rejects. */
  loadSaved(): Promise<SavedListing | undefined>;
  save(saved: SavedListing): void;
  /** Compares a listing with what was accepted; see `ListingSyncOptions.review`. */
  review(peer: string | undefined, listing: ServerListing, isOver: () => boolean): Promise<Review>;
  /** See `ListingSyncOptions.examine`. */
  examine(listing: PartialListing, isOver: () => boolean): Promise<unknown> | undefined;
  /** Called when a review is in use. */
  reviewed(peer: string | undefined, review: Review): void;
  /** Called when the listing that clients see has changed. */
  changed(): void;
  /** Called when `isSettled` or `isListable` may have changed. */
  settled(): void;
  /** Called when the server is stopped because it was unused for its idle time. */
  onIdleStop(): void;
}

/**
 * The connection of one class of clients to one server, through all processes and sessions of the server. Owns the
 * state, which `step` computes, and runs the effects that `step` returns. Provides the session, the listing and the
 * status.
 */
export class Connection {
  readonly client: string | undefined;
  /** In ms of the clock. */
  readonly createdAt: number;
  readonly #options: ConnectionOptions;
  #spec: RunnableServer;
  #state: State<Session> = { at: "idle" };
  /** When the current state began, in ms since the epoch. */
  #since = Date.now();
  /** The queue of signals. The first one is being applied. */
  readonly #signals: Signal<Session>[] = [];
  #cancelTimer: () => void = () => {};
  /** The number of the current attempt. Events of earlier attempts and their sessions are ignored. */
  #epoch = 0;
  #abort = new AbortController();
  /** The current session; set as soon as its transport exists. */
  #session: Session | undefined;
  /** The kinds for which `list_changed` arrived during the attempt; they will be listed again. */
  readonly #changedKinds = new Set<Kind>();
  /** Whether the last `lost` signal ended an open connection. If so, a remote server may be restarting. */
  #wasConnected = false;
  readonly #ready: Promise<unknown>;
  #stopped: PromiseWithResolvers<void> | undefined;
  readonly #waiters = new SessionWaiters((error) => this.#logInternalError(error));
  readonly #listingSync: ListingSync;
  readonly subscriptions: Subscriptions;
  /** The tasks that clients' calls have created at the server. */
  readonly tasks = new ServerTasks();
  #healthMonitor: HealthMonitor | undefined;
  readonly #authorizations: AuthorizationRunner;
  readonly #loginElicitation: LoginElicitation;
  /** The server's last 401 or 403 response. */
  #challenge: AuthChallenge = { status: 401, header: undefined };
  /** Whether the server was started only to get its listing. If so, the connection becomes idle afterwards. */
  #isStartedToList = false;
  /** True while `#startLater` waits and no signal has come. */
  #plansStart = false;
  #hasAttempted = false;
  /** Whether the connection has failed and stays so until a user acts. Meanwhile, its tools are not shown. */
  #hasFailed = false;
  /** Whether the running attempt looks again for a program that was missing. */
  #isLookingAgain = false;
  /** The error text of the program that was looked for again; undefined before, and after the server has connected. */
  #missingProgram: string | undefined;
  /** Resolves when somebody wants the server; undefined if that is so already. */
  #wanted: PromiseWithResolvers<void> | undefined;
  #isPaused = false;
  /** Whether the pool has taken the connection out of use. Requests in flight may still finish. */
  #isRetired = false;
  #lastError: HubError | undefined;
  #lastErrorAt: number | undefined;
  #failing: FailedAttempts | undefined;
  #startDuration: number | undefined;
  /** Data of earlier sessions for the status: number of calls, last called tool, and the server's name and version. */
  readonly #cookies: ConnectionCookies = {};
  #past: {
    readonly calls: number;
    readonly lastTool: string | undefined;
    readonly peer: PeerInfo | undefined;
  } = { calls: 0, lastTool: undefined, peer: undefined };

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#spec = options.spec;
    this.client = options.client;
    if (options.isEarly) this.#wanted = Promise.withResolvers();
    const { clock, authorize } = options.environment;
    this.createdAt = clock.now();
    this.#listingSync = new ListingSync(
      {
        clock,
        loadSaved: () => options.loadSaved(),
        save: (saved) => options.save(saved),
        changed: () => options.changed(),
        settled: () => options.settled(),
        pin: () => pinLevelOf(this.#spec),
        review: (listing, isOver) => options.review(this.peer, listing, isOver),
        examine: (listing, isOver) => options.examine(listing, isOver),
        reviewed: (review) => options.reviewed(this.peer, review),
        warn: (text) => this.#log("warn", "server", text),
        timeout: () => this.spec.connectTimeout,
      },
      options.former,
    );
    this.subscriptions = new Subscriptions({
      clock,
      timeout: () => this.spec.callTimeout,
      warn: (text) => this.#log("warn", "server", text),
    });
    this.#loginElicitation = new LoginElicitation({
      server: options.spec.name,
      clients: options.clients,
      clientRequest: () => this.#waiters.clientRequest,
      onDeclined: () => this.#authorizations.decline("The user has declined the login."),
    });
    this.#authorizations = new AuthorizationRunner({
      clock,
      server: options.spec.name,
      authorize:
        authorize && ((challenge, run) => authorize(this.spec, challenge, run, this.origin)),
      untilWanted: () => this.#wanted?.promise,
      onProgress: (progress) => this.#signal({ kind: "progressed", progress }),
      onAuthorized: () => this.#signal({ kind: "authorized" }),
      onDenied: (cause, isFor401) => this.#signal({ kind: isFor401 ? "lost" : "denied", cause }),
    });
    this.#ready = Promise.all([options.ready, this.#listingSync.savedLoaded]);
  }

  get spec(): RunnableServer {
    return this.#spec;
  }

  /** The client whose values fill in the server's entry; undefined: the hub's own environment. */
  get origin(): ClientOrigin | undefined {
    return this.#options.origin;
  }

  /**
   * Whether not all clients may see its answers: it belongs to one client, or was filled in with the values of its
   * clients.
   */
  get isPrivate(): boolean {
    return this.#options.isPrivate;
  }

  get state(): State<Session> {
    return this.#state;
  }

  /** Whether requests of clients are in flight at the server. */
  get isBusy(): boolean {
    return (sessionOf(this.#state)?.inFlight ?? 0) > 0;
  }

  /** The current session, even if it is still being opened or listed. */
  get session(): Session | undefined {
    return this.#session;
  }

  /** The last known listing, which clients see; undefined if the goal is "down" or the connection has failed. */
  get listing(): ServerListing | undefined {
    return this.#hasFailed || !this.canStart ? undefined : this.#listingSync.listing;
  }

  /** The listing with all that is not accepted, and its review; undefined if `listing` is undefined for another reason. */
  get known(): KnownListing | undefined {
    return this.#hasFailed || !this.canStart ? undefined : this.#listingSync.known;
  }

  /** The tools and prompts that the server lists, but clients are not shown because they are not accepted. */
  get withheld(): ServerListing | undefined {
    return this.#spec.pin === "block" && this.canStart ? this.#listingSync.withheld : undefined;
  }

  /** The server's name and version, if it has told them. */
  get peer(): string | undefined {
    const peer = this.#session?.handshake?.peer ?? this.#past.peer;
    return peer && `${peer.name} ${peer.version}`.trim();
  }

  /** Settles when the listing is compared with what was accepted. Never rejects. */
  get reviewed(): Promise<unknown> {
    return this.#listingSync.reviewed;
  }

  /** Compares the listing with what was accepted again, because that has changed. */
  reviewAgain(): Promise<void> {
    return this.#listingSync.reviewAgain();
  }

  /**
   * The error for a request of a tool or prompt that is not accepted; undefined if it may be sent.
   * @param name the name that clients see; `remoteName`: the server's own
   * @param wasSent whether the request was sent once already
   */
  pinError(
    { kind, name, remoteName }: Pick<Route, "kind" | "name" | "remoteName">,
    wasSent = false,
  ): HubError | undefined {
    if (this.#spec.pin !== "block") return undefined;
    const refusal = this.#listingSync.refusalOf(kind, remoteName);
    return refusal && notAcceptedError(this.#spec.name, name, refusal, wasSent);
  }

  /** Whether a call would start the server. */
  get canStart(): boolean {
    return this.#goal !== "down";
  }

  get #goal(): Goal {
    return this.#isRetired ? "down" : this.#options.goal();
  }

  /** Whether the running attempt has taken longer than `connectTimeout`. */
  get isLate(): boolean {
    return lateSince(this.state) !== undefined;
  }

  /**
   * Whether a client's first list request need not wait for this server any longer: the saved listing is loaded, and an
   * attempt to connect has ended or has taken longer than `connectTimeout`, or no attempt is planned.
   */
  get isSettled(): boolean {
    if (this.#listingSync.isLoadingSaved || this.#listingSync.isReviewing) return false;
    if (this.isLate) return true;
    if (this.#isStartedToList) return false;
    return this.#hasAttempted || (this.state.at === "idle" && this.#goal !== "up");
  }

  get isLoadingSaved(): boolean {
    return this.#listingSync.isLoadingSaved;
  }

  /** Whether list requests need not wait for this server: `isSettled` is true, or the server's listing is shown. */
  get isListable(): boolean {
    return this.isSettled || (this.#listingSync.listing !== undefined && !this.#isLookingAgain);
  }

  /**
   * Whether the server could not be started because its program was not found or not executable. The user may have
   * installed it since.
   */
  get lacksProgram(): boolean {
    const { at } = this.#state;
    const isStopped = at === "failed" || at === "idle";
    const code = this.#hasFailed && isStopped && this.canStart ? this.#lastError?.code : undefined;
    return code === "commandNotFound" || code === "notExecutable";
  }

  /** Starts the server again if its program has been installed since. Lists wait for the attempt. */
  lookForProgram(): void {
    if (!this.lacksProgram) return;
    this.#isLookingAgain = true;
    this.#missingProgram = this.#lastError?.message;
    if (this.#goal === "onDemand") this.#isStartedToList = true;
    this.reconnect();
  }

  get status(): ConnectionStatus {
    const state = this.#state;
    const { clock } = this.#options.environment;
    const next = stateAfterStop(state);
    const session = sessionOf(state);
    const since = lateSince(state);
    const { source, listing, savedAt } = this.#listingSync;
    const { strayOutput } = this.#options.malformedOutput;
    const capabilityFaults = session?.capabilityFaults ?? [];
    return {
      id: this.#options.key,
      client: this.client,
      clients: this.#options.clients.current().flatMap(({ id }) => id ?? []),
      canAsk: askableOf(this.#options.clients.capabilities),
      state: this.isStartPlanned ? "connecting" : state.at,
      since: this.#since,
      attempt: "attempt" in next ? next.attempt : undefined,
      retryAt: retryTimeOf(next, clock),
      ...(since !== undefined && { late: clock.now() - since }),
      responsive: state.at === "connected" ? state.responsive : undefined,
      httpTransport: session?.httpTransportKind,
      progress: state.at === "authenticating" ? state.progress : undefined,
      cause: causeOfState(next),
      lastError: this.#lastError,
      lastErrorAt: this.#lastErrorAt,
      failing: this.#failing,
      peer: session?.handshake?.peer ?? this.#past.peer,
      listing: source,
      ...(savedAt !== undefined && { listedAt: savedAt }),
      tools: listing && countShowable(listing.tools),
      prompts: listing && countShowable(listing.prompts),
      resources: listing && countShowable(listing.resources),
      startDuration: this.#startDuration,
      calls: this.#past.calls + (session?.callCount ?? 0),
      inFlight: session?.inFlight ?? 0,
      lastTool: session?.lastTool ?? this.#past.lastTool,
      ...(strayOutput !== undefined && { strayOutput }),
      ...(capabilityFaults.length > 0 && { capabilityFaults }),
    };
  }

  /**
   * Loads the saved listing, and starts the server if its goal is "up", at once or later (`startDelay`). A server with
   * goal "onDemand" and no saved listing is started once to get its listing.
   */
  async begin(): Promise<void> {
    const { startDelay = 0 } = this.#options.environment;
    if (this.#goal === "up" && startDelay > 0) void this.#startLater(startDelay);
    else if (this.#goal === "up") this.#start();
    await this.#listingSync.loadSaved();
    const isIdle = this.state.at === "idle" && this.#goal === "onDemand";
    if (isIdle && !this.#listingSync.isOwn) {
      this.#isStartedToList = true;
      this.#start();
    }
    this.#options.settled();
  }

  /** Whether nobody has wanted the server yet; see `ConnectionOptions.isEarly`. */
  get isEarly(): boolean {
    return this.#wanted !== undefined;
  }

  /** Somebody wants the server: a login may begin. */
  want(): void {
    this.#wanted?.resolve();
    this.#wanted = undefined;
  }

  start(): void {
    this.want();
    this.#start();
  }

  /** True if the server is about to be started for the first time. */
  get isStartPlanned(): boolean {
    return this.#plansStart && this.#goal === "up";
  }

  /** Starts the server when its saved listing is loaded, or `delay` ms after that if clients are shown it. */
  async #startLater(delay: number): Promise<void> {
    this.#plansStart = true;
    await this.#listingSync.savedLoaded;
    if (this.#listingSync.listing === undefined) this.startPlanned();
    else this.#options.environment.clock.after(delay, () => this.startPlanned());
  }

  /** Starts the server if that is planned for a later time (`startDelay`). */
  startPlanned(): void {
    const isDue = this.isStartPlanned;
    this.#plansStart = false;
    if (isDue) this.#start();
  }

  #start(): void {
    this.#authorizations.clearFailures();
    if (sessionOf(this.state) === undefined) this.#hasAttempted = false;
    this.#signal({ kind: "start" });
  }

  /**
   * Stops the server; requests in flight fail.
   * @returns a promise that settles when the server's process or connection has ended
   */
  stop(): Promise<void> {
    this.#stopped ??= Promise.withResolvers<void>();
    const { promise } = this.#stopped;
    this.#signal({ kind: "stop" });
    return promise;
  }

  /** Closes the session and connects again; an attempt in progress goes on. */
  reconnect(): void {
    this.want();
    this.#hasAttempted = false;
    this.#authorizations.clearFailures();
    this.#signal({ kind: "reconnect" });
  }

  /** Cancels the attempt in progress, or the wait for the next one. */
  cancel(): void {
    this.startPlanned();
    this.#signal({ kind: "cancel" });
  }

  /**
   * Applies settings that do not need a new process. A failed connection is tried again if its start limits have
   * changed.
   */
  update(spec: RunnableServer): void {
    const hasOtherStartLimits = changesStartLimits(this.spec, spec);
    this.#spec = spec;
    // What is accepted may depend on the settings of the scan, too.
    void this.#listingSync.reviewAgain();
    const session = sessionOf(this.state);
    if (session !== undefined) this.#startHealthMonitor(session);
    else if (hasOtherStartLimits && causeOfState(stateAfterStop(this.state)) !== undefined)
      this.reconnect();
  }

  /**
   * Takes the connection out of use: waiters and subscribers ask the pool for another connection. Requests in flight
   * may finish, within `limit` ms if that is set; then the server is stopped.
   */
  async retire(limit?: number): Promise<void> {
    this.#isRetired = true;
    this.subscriptions.retire();
    this.tasks.retire();
    this.#waiters.retireAll();
    const session = sessionOf(this.state);
    if (session !== undefined) {
      const timeout = Promise.withResolvers<void>();
      const { clock } = this.#options.environment;
      const cancelTimer =
        limit === undefined ? undefined : clock.after(limit, () => timeout.resolve());
      await Promise.race([session.whenIdle(), timeout.promise]);
      cancelTimer?.();
    }
    await this.stop();
  }

  /**
   * Gives the waiter the session as soon as the session is open, and starts the server if necessary. All waiters share
   * one connection attempt, and wait while it obtains an authorization. If the running attempt has already taken longer
   * than `connectTimeout`, the waiter fails at once.
   */
  withSession(waiter: SessionWaiter): void {
    const state = this.#state;
    if (this.#isRetired) {
      this.#waiters.retire(waiter);
      return;
    }
    if (state.at === "connected") {
      this.#waiters.resolve(waiter, state.session);
      return;
    }
    if (!this.canStart) {
      waiter.fail(serverStoppedError(this.spec.name));
      return;
    }
    this.want();
    this.#isStartedToList = false;
    const since = lateSince(state);
    if (since !== undefined) {
      waiter.fail(this.#lateError(since));
      return;
    }
    this.#waiters.add(waiter);
    this.#signal({ kind: "start" });
  }

  cancelWait(waiter: SessionWaiter): void {
    this.#waiters.delete(waiter);
  }

  /** Whether the server lists the item. @param key the server's own name or URI of the item */
  lists(kind: Kind, key: string): boolean {
    return this.#listingSync.has(kind, key);
  }

  /** Settles when the capability faults of the open session are known, within a limited time. Never rejects. */
  get diagnosed(): Promise<void> {
    return sessionOf(this.state)?.diagnosed ?? Promise.resolve();
  }

  /**
   * Lists the server again.
   * @returns a promise that settles when the server is listed, or at once if the server is not connected
   */
  refresh(): Promise<void> {
    return this.#listingSync.refresh();
  }

  /** Pauses or resumes reading from the server. Reading is paused while its messages cannot be passed on to clients. */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.#listingSync.setPaused(isPaused);
    this.#healthMonitor?.setPaused(isPaused);
    // Only an open session is paused. Before that, the server only answers the hub's own requests, and a pause would
    // let them time out.
    const session = sessionOf(this.state);
    if (isPaused) session?.pause();
    else session?.resume();
  }

  /** Applies a signal. Signals that arrive while it is applied are queued. */
  #signal(signal: Signal<Session>): void {
    this.#signals.push(signal);
    if (this.#signals.length > 1) return;
    this.#options.bus.atomically(() => {
      for (let next = this.#signals[0]; next !== undefined; next = this.#signals[0]) {
        try {
          this.#apply(next);
        } catch (error) {
          this.#logInternalError(toHubError(error));
        } finally {
          // The signal is removed even after an exception: otherwise it would block all later signals.
          this.#signals.shift();
        }
      }
    });
    if (this.#state.at === "stopping") return;
    this.#stopped?.resolve();
    this.#stopped = undefined;
  }

  #apply(signal: Signal<Session>): void {
    this.#plansStart = false;
    const before = this.#state;
    const { environment, bus, alerts, client, key: connection } = this.#options;
    const { clock } = environment;
    const { state, effects } = step(before, signal, {
      now: clock.now(),
      random: this.#options.random(),
      policy: this.spec.reconnect,
      goal: this.#goal,
      isRemote: this.spec.kind === "remote" || this.spec.kind === "fleet",
    });
    this.#state = state;
    const cause = "cause" in signal ? signal.cause : undefined;
    if (cause !== undefined && state !== before) {
      // Before the effects: a reader must not see the new state without its cause.
      if (causeOfState(stateAfterStop(state)) !== undefined) {
        const { since = Date.now(), attempts = 0 } = this.#failing ?? {};
        const isSame = attempts > 0 && cause.message === this.#lastError?.message;
        this.#failing = { since, attempts: attempts + 1, isSame };
      }
      this.#lastError = cause;
      this.#lastErrorAt = Date.now();
    }
    const { at } = stateAfterStop(state);
    if (at === "connected" || at === "disconnected") this.#failing = undefined;
    if (state.at !== before.at) {
      this.#cancelTimer();
      this.#since = Date.now();
    }
    if (state.at !== before.at || signal.kind === "progressed") {
      const { listing } = this.#listingSync;
      const tools = listing && countShowable(listing.tools);
      const endpoint = endpointOf(this.spec);
      const server = this.spec.name;
      const move = { server, client, connection, before, state, cause, endpoint, tools };
      const event = eventOfMove(move, clock);
      if (state.at === "connected") this.#missingProgram = undefined;
      const isRepeated = state.at === "failed" && state.cause.message === this.#missingProgram;
      bus.emit(isRepeated ? { ...event, isRepeated } : event);
      updateAlerts(move, alerts);
    }
    if (signal.kind === "lost") this.#wasConnected = before.at === "connected";
    for (const effect of effects) this.#run(effect);
    if (state === before) return;
    this.#trackAuthorization(before, state);
    this.#onMove(before, state, cause);
    if (signal.kind === "late") this.#onLate(signal.reason);
  }

  #run(effect: Effect): void {
    switch (effect.kind) {
      case "open":
        void this.#connect();
        return;
      case "close":
        void this.#closeSession().then(() => this.#signal({ kind: "processEnded" }));
        return;
      case "arm": {
        const { clock } = this.#options.environment;
        const delay = Math.max(0, effect.at - clock.now());
        this.#cancelTimer = clock.after(delay, () => this.#signal({ kind: effect.signal }));
        return;
      }
      case "authorize":
        // An open session stays open during the authorization; an attempt without an open session is closed.
        if (sessionOf(this.#state) === undefined) void this.#closeSession();
        this.#authorizations.begin(this.#challenge);
    }
  }

  /** Makes one attempt to connect. Never rejects. */
  async #connect(): Promise<void> {
    const epoch = ++this.#epoch;
    this.#abort = new AbortController();
    const { clients, environment } = this.#options;
    const { eraMemory } = this.#listingSync;
    const wasConnected = this.#wasConnected;
    this.#wasConnected = false;
    this.#changedKinds.clear();
    try {
      const { session, listing, duration } = await connect({
        spec: this.spec,
        clients,
        client: this.client,
        origin: this.origin,
        cookies: this.#cookies,
        subscriptions: this.subscriptions,
        tasks: this.tasks,
        environment,
        eraMemory,
        wasConnected,
        ready: this.#ready,
        signal: this.#abort.signal,
        events: this.#eventsOf(epoch),
      });
      if (epoch !== this.#epoch) return;
      this.#startDuration = duration;
      eraMemory.onConnected(session, this.spec);
      const adopted = this.#listingSync.update(listing, () => epoch !== this.#epoch);
      if (typeof adopted !== "boolean") {
        await adopted;
        if (epoch !== this.#epoch) return;
      }
      this.#signal({ kind: "opened", session });
      session.onListed();
      this.#listingSync.relist([...this.#changedKinds]);
    } catch (thrown) {
      if (epoch !== this.#epoch) return;
      const cause = toHubError(thrown);
      // The transport sends no request if it knows that credentials are missing or expired. This is handled like a 401.
      if (cause.code === "unauthorized") this.#onChallenged({ status: 401, header: undefined });
      else this.#signal({ kind: "lost", cause });
    }
  }

  /**
   * Returns the callbacks for one attempt and its session. They do nothing after the attempt is closed or another
   * attempt has begun.
   */
  #eventsOf(epoch: number): ConnectEvents {
    const isCurrent = (): boolean => epoch === this.#epoch;
    return {
      sessionMade: (session) => {
        if (isCurrent()) this.#session = session;
      },
      late: (since, reason) => {
        if (isCurrent()) this.#signal({ kind: "late", since, reason });
      },
      challenged: (challenge) => {
        if (isCurrent()) this.#onChallenged(challenge);
      },
      closed: (cause) => {
        if (isCurrent()) this.#signal({ kind: "lost", cause });
      },
      listChanged: (kinds) => {
        if (!isCurrent()) return;
        if (sessionOf(this.#state) === undefined)
          for (const kind of kinds) this.#changedKinds.add(kind);
        else this.#listingSync.relist(kinds);
      },
      log: (level, source, text) => this.#log(level, source, text),
      malformedOutput: (output) =>
        this.#options.malformedOutput.add(output, (level, text) =>
          this.#log(level, "stdout", text),
        ),
    };
  }

  /**
   * Aborts the attempt, or closes its session.
   * @returns a promise that settles when the process or connection has ended
   */
  async #closeSession(): Promise<void> {
    this.#epoch++;
    const session = this.#session;
    this.#session = undefined;
    this.#abort.abort(serverStoppedError(this.spec.name));
    await session?.close();
  }

  #onChallenged(challenge: AuthChallenge): void {
    this.#challenge = challenge;
    this.#signal({ kind: "challenged" });
  }

  #onMove(before: State<Session>, state: State<Session>, cause: HubError | undefined): void {
    if (cause?.step === "handshake") this.#listingSync.eraMemory.onHandshakeFailure(cause);
    if (!["connecting", "authenticating"].includes(stateAfterStop(state).at)) {
      this.#hasAttempted = true;
      this.#isLookingAgain = false;
      if (state.at !== "connected") this.#isStartedToList = false;
    }
    const isFailed = hasFailed(state) || (this.#hasFailed && state.at !== "connected");
    if (isFailed !== this.#hasFailed) {
      this.#hasFailed = isFailed;
      this.#options.changed();
    }
    const [old, session] = [sessionOf(before), sessionOf(state)];
    if (old !== undefined && old !== session) this.#onDisconnected(old);
    if (session !== undefined && old !== session) this.#onConnected(session);
    if (state.at === "stopping" && state.next.at !== "connecting") {
      this.#waiters.failAll(cause ?? serverStoppedError(this.spec.name));
    }
    if (state.at === "connected" && before.at === "authenticating") {
      // The session stayed open during the authorization, but new requests had to wait. Now they get the session, or
      // the error of the authorization.
      if (cause === undefined) this.#waiters.resolveAll(state.session);
      else this.#waiters.failAll(cause);
    }
    this.#options.settled();
  }

  #onDisconnected(session: Session): void {
    this.#healthMonitor?.end();
    this.#healthMonitor = undefined;
    this.#listingSync.detach();
    this.subscriptions.detach();
    this.#past = {
      calls: this.#past.calls + session.callCount,
      lastTool: session.lastTool ?? this.#past.lastTool,
      peer: session.handshake?.peer,
    };
  }

  #onConnected(session: Session): void {
    this.#startHealthMonitor(session);
    if (this.#isPaused) session.pause();
    this.#listingSync.attach(session);
    this.subscriptions.attach(session);
    this.tasks.attach(session);
    this.#waiters.resolveAll(session);
    if (this.#isStartedToList && this.#goal === "onDemand") this.#signal({ kind: "idleTimeout" });
    this.#isStartedToList = false;
  }

  #startHealthMonitor(session: Session): void {
    this.#healthMonitor?.end();
    const { healthInterval, idleStop } = this.spec;
    this.#healthMonitor = new HealthMonitor({
      session,
      clock: this.#options.environment.clock,
      healthInterval,
      idleStop,
      onLost: (cause) => this.#signal({ kind: "lost", cause }),
      setResponsive: (isResponsive) =>
        this.#signal({ kind: isResponsive ? "responsive" : "unresponsive" }),
      onIdle: () => {
        this.#options.onIdleStop();
        this.#signal({ kind: "idleTimeout" });
      },
    });
    this.#healthMonitor.setPaused(this.#isPaused);
  }

  /** Reports the progress of an authorization, and pauses health checks while it runs. */
  #trackAuthorization(before: State<Session>, state: State<Session>): void {
    const wasAuthenticating = before.at === "authenticating";
    const isAuthenticating = state.at === "authenticating";
    if (state.at === "connected" && !wasAuthenticating) this.#authorizations.onAccepted();
    if (isAuthenticating !== wasAuthenticating)
      this.#healthMonitor?.setPaused(isAuthenticating || this.#isPaused);
    if (isAuthenticating) {
      const { progress } = state;
      if (progress.step === "openingBrowser") this.#loginElicitation.send(progress.url);
    } else if (wasAuthenticating) {
      this.#authorizations.abort();
      this.#loginElicitation.end();
    }
  }

  /** Fails all waiters, because the attempt has taken longer than `connectTimeout`. */
  #onLate(reason: HubError): void {
    const text = `It is still starting after ${count(this.spec.connectTimeout / 1000, "second")}. Lists and calls do not wait for it any more; it can be used as soon as it is ready.`;
    this.#log("warn", "hub", text);
    this.#waiters.failAll(reason);
  }

  #lateError(since: number): HubError {
    const { name: server } = this.spec;
    const seconds = Math.round((this.#options.environment.clock.now() - since) / 1000);
    const text = `Server "${server}" is still starting, for ${count(seconds, "second")} so far. Try again later: it can be used as soon as it is ready.`;
    return new HubError("connectTimeout", text, { server });
  }

  /** Logs an exception that the hub's own code or a plugin has thrown. */
  #logInternalError(error: HubError): void {
    this.#log("error", "hub", `A change of its state could not be handled: ${error.message}`);
  }

  #log(level: LogLevel, source: LogSource, text: string): void {
    const { bus } = this.#options;
    if (bus.hasListeners("log"))
      bus.emit({ kind: "log", level, source, server: this.spec.name, text });
  }
}

/** Returns the error for requests that wait for a server that was stopped. */
export function serverStoppedError(server: string): HubError {
  return new HubError("serverStopped", `Server "${server}" was stopped.`, { server });
}

function countShowable(items: readonly ListedItem[]): number {
  return items.reduce((shown, item) => (isShowable(item) ? shown + 1 : shown), 0);
}
