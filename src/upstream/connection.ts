import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { LogLevel, LogSource } from "../base/events.ts";
import { isShowable, type Kind, type ListedItem, type ServerListing } from "../catalog/listing.ts";
import { changesStartLimits } from "../manifest/diff.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { AuthorizationProgress } from "../transport/http/target.ts";
import { LoginElicitation } from "./authorization.ts";
import { ConnectionLifecycle } from "./lifecycle.ts";
import { ListingSync } from "./listing.ts";
import type { ClientRequest } from "./profile.ts";
import type { ConnectionOptions } from "./saved-listings.ts";
import type { Session } from "./session.ts";
import {
  causeOfState,
  hasFailed,
  lateSince,
  retryTimeOf,
  sessionOf,
  stateAfterStop,
  type State,
} from "./state.ts";
import type { ConnectionStatus, Goal, PeerInfo } from "./status.ts";
import { Subscriptions } from "./subscriptions.ts";

/**
 * The history of a connection (counters, last failure, last start), and the status that it makes of history and present
 * state.
 */
export class ConnectionHistory {
  /** The last failure; kept after the connection has recovered. */
  lastError: HubError | undefined;
  /** Duration of the last successful start, in ms. */
  startDuration: number | undefined;
  #calls = 0;
  #lastTool: string | undefined;
  #peer: PeerInfo | undefined;

  /** Adds up the counters of a session that has ended. */
  addSession({ callCount, lastTool, handshake }: Session): void {
    this.#calls += callCount;
    this.#lastTool = lastTool ?? this.#lastTool;
    this.#peer = handshake?.peer;
  }

  status(
    client: string | undefined,
    state: State<Session>,
    clock: Clock,
    { source, listing }: ListingSync,
  ): ConnectionStatus {
    const next = stateAfterStop(state);
    const session = sessionOf(state);
    const since = lateSince(state);
    return {
      client,
      state: state.at,
      attempt: "attempt" in next ? next.attempt : undefined,
      retryAt: retryTimeOf(next, clock),
      ...(since !== undefined && { late: clock.now() - since }),
      responsive: state.at === "connected" ? state.responsive : undefined,
      way: session?.httpTransportKind,
      progress: state.at === "authenticating" ? state.progress : undefined,
      cause: causeOfState(next),
      lastError: this.lastError,
      peer: session?.handshake?.peer ?? this.#peer,
      listing: source,
      tools: listing && countShowable(listing.tools),
      prompts: listing && countShowable(listing.prompts),
      resources: listing && countShowable(listing.resources),
      startDuration: this.startDuration,
      calls: this.#calls + (session?.callCount ?? 0),
      inFlight: session?.inFlight ?? 0,
      lastTool: session?.lastTool ?? this.#lastTool,
    };
  }
}

function countShowable(items: readonly ListedItem[]): number {
  return items.reduce((count, item) => (isShowable(item) ? count + 1 : count), 0);
}

/** Waits for a session: receives it when it is open, or the error because of which it will not open. */
export interface SessionWaiter {
  /** The client's request that needs the session. */
  readonly clientRequest?: ClientRequest;
  onSession(session: Session): void;
  fail(error: HubError): void;
}

/**
 * The waiters for a session. Each is called once and may wait again at once. One that throws does not affect the
 * others.
 */
export class SessionWaiters {
  readonly #waiting = new Set<SessionWaiter>();
  /** Receives the error that a waiter threw. */
  readonly #onException: (error: HubError) => void;

  constructor(onException: (error: HubError) => void) {
    this.#onException = onException;
  }

  add(waiter: SessionWaiter): void {
    this.#waiting.add(waiter);
  }

  /** @returns whether it was waiting */
  delete(waiter: SessionWaiter): boolean {
    return this.#waiting.delete(waiter);
  }

  /** The waiting request of the only client; undefined if several clients or none are waiting. */
  get clientRequest(): ClientRequest | undefined {
    const requests = [...this.#waiting].flatMap(({ clientRequest }) => clientRequest ?? []);
    const [first, ...others] = requests;
    return others.every(({ channel }) => channel === first?.channel) ? first : undefined;
  }

  resolveAll(session: Session): void {
    this.#callAll((waiter) => waiter.onSession(session));
  }

  /** Passes the session to one waiter. */
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

  /** Removes all waiters and passes each to `redirect`. */
  redirectAll(redirect: (waiter: SessionWaiter) => void): void {
    this.#callAll(redirect);
  }

  #callAll(call: (waiter: SessionWaiter) => void): void {
    const waiters = [...this.#waiting];
    this.#waiting.clear();
    for (const waiter of waiters) {
      try {
        call(waiter);
      } catch (thrown) {
        this.#failAfterException(waiter, toHubError(thrown));
      }
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

/**
 * One server for one client profile, through all its sessions: hands out the session, keeps the listing and reports the
 * status. Its state belongs to `ConnectionLifecycle`.
 */
export class Connection {
  readonly client: string | undefined;
  readonly #options: ConnectionOptions;
  readonly #listingSync: ListingSync;
  readonly #lifecycle: ConnectionLifecycle;
  readonly #waiters = new SessionWaiters((error) => this.#logInternalError(error));
  readonly #loginElicitation: LoginElicitation;
  /** The server was started only to learn its listing; the connection becomes idle afterwards. */
  #isStartedToList = false;
  /** Whether a connection attempt has ended since the connection was last started. */
  #hasAttempted = false;
  /** The connection has failed until a user acts: its tools are not shown meanwhile. */
  #hasFailed = false;
  #isPaused = false;
  /** The connection is draining: waiting and new requests go to the successor, if there is one. */
  #draining: { readonly successor: Connection | undefined } | undefined;
  readonly #history = new ConnectionHistory();
  readonly #subscriptions: Subscriptions;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.client = options.client;
    this.#listingSync = new ListingSync(
      {
        clock: options.environment.clock,
        loadSaved: () => options.loadSaved(),
        save: (saved) => options.save(saved),
        changed: () => options.changed(),
        warn: (text) => this.#log("warn", "server", text),
        timeout: () => this.spec.connectTimeout,
      },
      options.listing,
    );
    this.#subscriptions = new Subscriptions({
      clock: options.environment.clock,
      timeout: () => this.spec.callTimeout,
      warn: (text) => this.#log("warn", "server", text),
    });
    this.#loginElicitation = new LoginElicitation({
      server: options.spec.name,
      clients: options.clients,
      clientRequest: () => this.#waiters.clientRequest,
      onDeclined: () =>
        this.#lifecycle.declineAuthorization("The person at the client does not want to."),
    });
    const ready = Promise.all([options.ready, this.#listingSync.savedLoaded]);
    this.#lifecycle = new ConnectionLifecycle(
      options.spec,
      {
        ...options,
        goal: () => this.#goal,
        eraMemory: this.#listingSync.eraMemory,
        ready,
      },
      {
        moved: (before, state, cause) => this.#onStateMove(before, state, cause),
        listed: (session, listing, duration) => {
          this.#history.startDuration = duration;
          this.#listingSync.eraMemory.onConnected(session, this.spec);
          this.#listingSync.update(listing);
        },
        late: (reason) => this.#onLate(reason),
        listChanged: (kinds) => this.#listingSync.relist(kinds),
        idle: () => options.onIdleStop(),
        authorizationProgress: (progress) => this.#onAuthorizationProgress(progress),
        signalFailed: (error) => this.#logInternalError(error),
        log: (level, source, text) => this.#log(level, source, text),
        malformedOutput: (output) =>
          options.malformedOutput.add(output, (level, text) => this.#log(level, "stdout", text)),
      },
    );
  }

  get spec(): RunnableServer {
    return this.#lifecycle.spec;
  }

  get state(): State<Session> {
    return this.#lifecycle.state;
  }

  /** The present session, also while it is still being opened or listed. */
  get session(): Session | undefined {
    return this.#lifecycle.session;
  }

  /**
   * The listing that clients are shown: the last known one, or undefined if the goal is "down" or the connection has
   * failed. While the connection is draining, it is the successor's, because the successor gets the calls.
   */
  get listing(): ServerListing | undefined {
    if (this.#draining?.successor !== undefined) return this.#draining.successor.listing;
    return this.#hasFailed || !this.canStart ? undefined : this.#listingSync.listing;
  }

  /** Whether a call would start the server. */
  get canStart(): boolean {
    return this.#goal !== "down";
  }

  get #goal(): Goal {
    return this.#draining === undefined ? this.#options.goal() : "down";
  }

  /** Whether the running attempt has taken longer than `connectTimeout`. */
  get isLate(): boolean {
    return lateSince(this.state) !== undefined;
  }

  /**
   * Whether a client's first list request need not wait for this connection: the saved listing is loaded, and a
   * connection attempt has ended or is late, or none is to be made.
   */
  get isSettled(): boolean {
    if (this.#listingSync.isLoadingSaved) return false;
    if (this.isLate) return true;
    if (this.#isStartedToList) return false;
    return this.#hasAttempted || (this.state.at === "idle" && this.#goal !== "up");
  }

  /** Whether the saved listing is still being loaded. */
  get isLoadingSaved(): boolean {
    return this.#listingSync.isLoadingSaved;
  }

  /** Whether a list request need not wait for this server. */
  get isListable(): boolean {
    return this.isSettled || this.#listingSync.listing !== undefined;
  }

  get status(): ConnectionStatus {
    const { clock } = this.#options.environment;
    const status = this.#history.status(this.client, this.state, clock, this.#listingSync);
    const { strayOutput } = this.#options.malformedOutput;
    return strayOutput === undefined ? status : { ...status, strayOutput };
  }

  /**
   * Starts the server if its goal is "up", and loads the saved listing. A server with goal "onDemand" and no saved
   * listing is started once to learn it.
   */
  async begin(): Promise<void> {
    if (this.#goal === "up") this.start();
    await this.#listingSync.loadSaved();
    const isIdle = this.state.at === "idle" && this.#goal === "onDemand";
    if (isIdle && !this.#listingSync.isOwn) {
      this.#isStartedToList = true;
      this.start();
    }
    this.#options.settled();
  }

  start(): void {
    this.#lifecycle.clearAuthorizationFailures();
    if (sessionOf(this.state) === undefined) this.#hasAttempted = false;
    this.#lifecycle.signal({ kind: "start" });
  }

  /** Stops the server; requests in flight fail. @returns a promise that settles when the server has stopped */
  stop(): Promise<void> {
    return this.#lifecycle.stop();
  }

  /** Closes the session and connects again; an attempt in progress goes on. */
  reconnect(): void {
    this.#hasAttempted = false;
    this.#lifecycle.clearAuthorizationFailures();
    this.#lifecycle.signal({ kind: "reconnect" });
  }

  /** Cancels the attempt in progress, or the wait for the next one. */
  cancel(): void {
    this.#lifecycle.signal({ kind: "cancel" });
  }

  /**
   * Applies settings that do not need a new process. If the connection has failed and start limits have changed, it is
   * tried again.
   */
  update(spec: RunnableServer): void {
    const hasOtherStartLimits = changesStartLimits(this.spec, spec);
    this.#lifecycle.spec = spec;
    const session = sessionOf(this.state);
    if (session !== undefined) this.#lifecycle.startHealthMonitor(session);
    else if (hasOtherStartLimits && causeOfState(stateAfterStop(this.state)) !== undefined)
      this.reconnect();
  }

  /**
   * Redirects waiting and new requests to the successor, lets requests in flight finish for up to `limit` ms, then
   * stops.
   */
  async drain(successor: Connection | undefined, limit: number): Promise<void> {
    this.#draining = { successor };
    if (successor !== undefined) this.#subscriptions.handOver(successor.#subscriptions);
    this.#waiters.redirectAll((waiter) => this.withSession(waiter));
    const session = sessionOf(this.state);
    if (session !== undefined) {
      let cancelTimer = (): void => {};
      const timeout = new Promise<void>((resolve) => {
        cancelTimer = this.#options.environment.clock.after(limit, resolve);
      });
      await Promise.race([session.whenIdle(), timeout]);
      cancelTimer();
    }
    await this.stop();
  }

  /**
   * Passes the session to the waiter as soon as it is open; starts the server if necessary. All waiters share one
   * connection attempt. They also wait for an authorization, but fail at once if the attempt is late.
   */
  withSession(waiter: SessionWaiter): void {
    const { state } = this;
    if (this.#draining === undefined && state.at === "connected") {
      this.#waiters.resolve(waiter, state.session);
      return;
    }
    if (this.#draining?.successor !== undefined) {
      this.#draining.successor.withSession(waiter);
      return;
    }
    if (!this.canStart) {
      waiter.fail(this.#stoppedError());
      return;
    }
    this.#isStartedToList = false;
    const since = lateSince(state);
    if (since !== undefined) {
      waiter.fail(this.#lateError(since));
      return;
    }
    this.#waiters.add(waiter);
    this.#lifecycle.signal({ kind: "start" });
  }

  /** Removes a waiter. */
  cancelWait(waiter: SessionWaiter): void {
    if (!this.#waiters.delete(waiter)) this.#draining?.successor?.cancelWait(waiter);
  }

  /** Whether the last known listing contains an item. @param key the server's own name or URI of the item */
  lists(kind: Kind, key: string): boolean {
    return this.#draining?.successor?.lists(kind, key) ?? this.#listingSync.has(kind, key);
  }

  /**
   * Lists the server, or its successor, again.
   * @returns a promise that settles when the server is listed; immediately if it is not connected
   */
  refresh(): Promise<void> {
    return this.#draining?.successor?.refresh() ?? this.#listingSync.refresh();
  }

  /** Pauses or resumes reading from the server, because its messages cannot be passed on (backpressure). */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.#listingSync.setPaused(isPaused);
    this.#lifecycle.setPaused(isPaused);
    // Before the connection is open, reading goes on: the server only answers the hub's own requests, which time out.
    const session = sessionOf(this.state);
    if (isPaused) session?.pause();
    else session?.resume();
  }

  #onStateMove(before: State<Session>, state: State<Session>, cause: HubError | undefined): void {
    if (cause !== undefined) this.#history.lastError = cause;
    if (cause?.step === "handshake") this.#listingSync.eraMemory.onHandshakeFailure(cause);
    if (!["connecting", "authenticating"].includes(stateAfterStop(state).at)) {
      this.#hasAttempted = true;
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
      this.#waiters.failAll(cause ?? this.#stoppedError());
    }
    if (state.at === "connected" && before.at === "authenticating") {
      // The waiters' requests were refused because this authorization was missing.
      if (cause === undefined) this.#waiters.resolveAll(state.session);
      else this.#waiters.failAll(cause);
    }
    this.#options.settled();
  }

  #onDisconnected(session: Session): void {
    this.#listingSync.detach();
    this.#subscriptions.detach();
    this.#history.addSession(session);
  }

  #onConnected(session: Session): void {
    if (this.#isPaused) session.pause();
    this.#listingSync.attach(session);
    this.#subscriptions.attach(session);
    this.#waiters.resolveAll(session);
    if (this.#isStartedToList && this.#goal === "onDemand")
      this.#lifecycle.signal({ kind: "idleTimeout" });
    this.#isStartedToList = false;
  }

  #onAuthorizationProgress(progress: AuthorizationProgress | undefined): void {
    if (progress === undefined) this.#loginElicitation.end();
    else if (progress.step === "openingBrowser") this.#loginElicitation.send(progress.url);
  }

  /** The attempt is late: all waiters fail. */
  #onLate(reason: HubError): void {
    const text = `It is still starting after ${this.spec.connectTimeout / 1000} seconds. Lists and calls do not wait for it any more; it is there when it is ready.`;
    this.#log("warn", "hub", text);
    this.#waiters.failAll(reason);
  }

  #lateError(since: number): HubError {
    const { name: server } = this.spec;
    const seconds = Math.round((this.#options.environment.clock.now() - since) / 1000);
    const text = `Server "${server}" is still starting, for ${seconds} seconds so far. Try again later: it is there when it is ready.`;
    return new HubError("connectTimeout", text, { server });
  }

  #stoppedError(): HubError {
    const { name: server } = this.spec;
    return new HubError("serverStopped", `Server "${server}" was stopped.`, { server });
  }

  /** The hub's own code or a plugin's has thrown. */
  #logInternalError(error: HubError): void {
    this.#log("error", "hub", `What followed from a change of its state failed: ${error.message}`);
  }

  #log(level: LogLevel, source: LogSource, text: string): void {
    const { bus } = this.#options;
    if (bus.hasListeners("log"))
      bus.emit({ kind: "log", level, source, server: this.spec.name, text });
  }
}
