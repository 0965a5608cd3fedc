import type { Kind } from "../catalog/listing.ts";
import type { ServerListing } from "../catalog/offer.ts";
import { HubError } from "../base/errors.ts";
import type { LogLevel, LogSource } from "../base/events.ts";
import type { Authorization } from "../transport/http/credentials.ts";
import { changesStartLimits } from "../manifest/diff.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import { causeOf, hasFailed, lateSince, lookAhead, sessionOf } from "./account.ts";
import { History } from "./history.ts";
import { Invitation } from "./invitation.ts";
import { Life } from "./lifecycle.ts";
import { Listing } from "./listing.ts";
import type { ConnectionParts } from "./parts.ts";
import type { Session } from "./session.ts";
import type { State } from "./state.ts";
import { Subscriptions } from "./subscriptions.ts";
import type { ConnectionStatus, Goal } from "./status.ts";
import { type Visitor, Visitors } from "./visitors.ts";
import type { Voice } from "./notifications.ts";

/**
 * One server for one client profile, through all its sessions: hands out the session, keeps the listing and reports the
 * status. Its state belongs to `ConnectionLifecycle`.
 */
export class Connection {
  readonly client: string | undefined;
  readonly #parts: ConnectionParts;
  readonly #listing: Listing;
  readonly #life: Life;
  readonly #visitors = new Visitors((error) => this.#complain(error));
  readonly #invitation: Invitation;
  /** It was started only to learn its listing, and goes back to idle then. */
  #learning = false;
  /** A connection attempt has ended since the connection was last started. */
  #tried = false;
  /** It has failed until a user acts, so that its tools are not shown. */
  #gone = false;
  #held = false;
  /** It is draining: waiting and new requests go to the successor, if there is one. */
  #retired: { readonly successor: Connection | undefined } | undefined;
  readonly #history = new History();
  readonly #subscriptions: Subscriptions;

  constructor(parts: ConnectionParts) {
    this.#parts = parts;
    this.client = parts.client;
    this.#listing = new Listing(
      {
        clock: parts.surroundings.clock,
        recall: () => parts.recall(),
        keep: (recalled) => parts.keep(recalled),
        changed: () => parts.changed(),
        warn: (text) => this.#log("warn", "server", text),
        limit: () => this.spec.connectTimeout,
      },
      parts.offer,
    );
    this.#subscriptions = new Subscriptions({
      clock: parts.surroundings.clock,
      limit: () => this.spec.callTimeout,
      warn: (text) => this.#log("warn", "server", text),
    });
    this.#invitation = new Invitation({
      server: parts.spec.name,
      audience: parts.audience,
      occasion: () => this.#visitors.occasion,
      declined: () => this.#life.refuse("The person at the client does not want to."),
    });
    const ready = Promise.all([parts.before, this.#listing.recalled]);
    this.#life = new Life(
      parts.spec,
      {
        ...parts,
        goal: () => this.#goal,
        dialects: this.#listing.dialects,
        before: ready,
      },
      {
        moved: (before, state, cause) => this.#moved(before, state, cause),
        listed: (session, found, duration) => {
          this.#history.startDuration = duration;
          this.#listing.dialects.met(session, this.spec);
          this.#listing.adopt(found);
        },
        late: (reason) => this.#late(reason),
        listChanged: (kinds) => this.#listing.announce(kinds),
        idle: () => parts.idled(),
        admitting: (progress) => this.#admitting(progress),
        broke: (error) => this.#complain(error),
        log: (level, source, text) => this.#log(level, source, text),
        flaw: (flaw) => parts.flaws.note(flaw, (level, text) => this.#log(level, "stdout", text)),
      },
    );
  }

  get spec(): RunnableServer {
    return this.#life.spec;
  }

  get state(): State<Session> {
    return this.#life.state;
  }

  /** The notifications of the present session, also while it is still being listed. */
  get voice(): Voice | undefined {
    return this.#life.voice;
  }

  /**
   * What clients are shown: the last known listing, unless the goal is "down" or the connection has failed. While
   * draining it is the successor's, because waiting calls go there, too.
   */
  get offer(): ServerListing | undefined {
    if (this.#retired?.successor !== undefined) return this.#retired.successor.offer;
    return this.#gone || !this.mayRun ? undefined : this.#listing.offer;
  }

  /** Whether a call would start the server. */
  get mayRun(): boolean {
    return this.#goal !== "down";
  }

  get #goal(): Goal {
    return this.#retired === undefined ? this.#parts.goal() : "down";
  }

  /** Whether the running attempt has taken longer than `connectTimeout`. */
  get isLate(): boolean {
    return lateSince(this.state) !== undefined;
  }

  /**
   * Whether nothing is pending that a client would wait for at the start: an attempt has ended or is late, or none is
   * due.
   */
  get isSettled(): boolean {
    if (this.#listing.isRecalling) return false;
    if (this.isLate) return true;
    if (this.#learning) return false;
    return this.#tried || (this.state.at === "idle" && this.#goal !== "up");
  }

  /** Whether the saved listing is still being loaded. */
  get isRecalling(): boolean {
    return this.#listing.isRecalling;
  }

  /** Whether a list request need not wait for this server. */
  get isListable(): boolean {
    return this.isSettled || this.#listing.offer !== undefined;
  }

  get status(): ConnectionStatus {
    const { clock } = this.#parts.surroundings;
    const status = this.#history.status(this.client, this.state, clock, this.#listing);
    const { strayOutput } = this.#parts.flaws;
    return strayOutput === undefined ? status : { ...status, strayOutput };
  }

  /**
   * Starts the server if its goal is "up", and loads the saved listing. A server with goal "onDemand" and no saved
   * listing is started once to learn it.
   */
  async begin(): Promise<void> {
    if (this.#goal === "up") this.start();
    await this.#listing.recall();
    const isIdle = this.state.at === "idle" && this.#goal === "onDemand";
    if (isIdle && !this.#listing.isOwn) {
      this.#learning = true;
      this.start();
    }
    this.#parts.settled();
  }

  start(): void {
    this.#life.insist();
    if (sessionOf(this.state) === undefined) this.#tried = false;
    this.#life.signal({ kind: "start" });
  }

  /** Stops the server; requests in flight fail. @returns a promise that settles when the server is gone */
  stop(): Promise<void> {
    return this.#life.stop();
  }

  /** Closes the session and connects again; an attempt in progress goes on. */
  reconnect(): void {
    this.#tried = false;
    this.#life.insist();
    this.#life.signal({ kind: "reconnect" });
  }

  /** Cancels the attempt in progress, or the wait for the next one. */
  cancel(): void {
    this.#life.signal({ kind: "cancel" });
  }

  /**
   * Applies settings that do not need a new process. If the connection has failed and start limits have changed, it is
   * tried again.
   */
  update(spec: RunnableServer): void {
    const isOther = changesStartLimits(this.spec, spec);
    this.#life.spec = spec;
    const session = sessionOf(this.state);
    if (session !== undefined) this.#life.watch(session);
    else if (isOther && causeOf(lookAhead(this.state)) !== undefined) this.reconnect();
  }

  /**
   * Redirects waiting and new requests to the successor, lets requests in flight finish for up to `limit` ms, then
   * stops.
   */
  async retire(successor: Connection | undefined, limit: number): Promise<void> {
    this.#retired = { successor };
    if (successor !== undefined) this.#subscriptions.bequeath(successor.#subscriptions);
    this.#visitors.send((visitor) => this.visit(visitor));
    const session = sessionOf(this.state);
    if (session !== undefined) {
      let undo = (): void => {};
      const late = new Promise<void>((resolve) => {
        undo = this.#parts.surroundings.clock.after(limit, resolve);
      });
      await Promise.race([session.quiet(), late]);
      undo();
    }
    await this.stop();
  }

  /**
   * Passes the session to the waiter, at once or when it is open; starts the server if need be. Waiters share one
   * attempt, and wait for an authorization, too, but not for an attempt that is late.
   */
  visit(visitor: Visitor): void {
    const { state } = this;
    if (this.#retired === undefined && state.at === "connected") {
      this.#visitors.admit(visitor, state.session);
      return;
    }
    if (this.#retired?.successor !== undefined) {
      this.#retired.successor.visit(visitor);
      return;
    }
    if (!this.mayRun) {
      visitor.fail(this.#stoppedError());
      return;
    }
    this.#learning = false;
    const since = lateSince(state);
    if (since !== undefined) {
      visitor.fail(this.#lateError(since));
      return;
    }
    this.#visitors.add(visitor);
    this.#life.signal({ kind: "start" });
  }

  /** Removes a waiter. */
  leave(visitor: Visitor): void {
    if (!this.#visitors.delete(visitor)) this.#retired?.successor?.leave(visitor);
  }

  /** Whether the server lists an item, by its own name or URI, as far as is known. */
  lists(kind: Kind, key: string): boolean {
    return this.#retired?.successor?.lists(kind, key) ?? this.#listing.has(kind, key);
  }

  /**
   * Lists the server, or its successor, again.
   * @returns a promise that settles when that is done; at once if it is not connected
   */
  refresh(): Promise<void> {
    return this.#retired?.successor?.refresh() ?? this.#listing.refresh();
  }

  /** Pauses or resumes reading from the server, because its messages cannot be passed on (backpressure). */
  hold(held: boolean): void {
    this.#held = held;
    this.#listing.hold(held);
    this.#life.hold(held);
    // Until it is connected, everything that comes answers the hub's own requests, which have timeouts.
    const session = sessionOf(this.state);
    if (held) session?.pause();
    else session?.resume();
  }

  #moved(before: State<Session>, state: State<Session>, cause: HubError | undefined): void {
    if (cause !== undefined) this.#history.lastError = cause;
    if (cause?.step === "handshake") this.#listing.dialects.forget(cause);
    if (!["connecting", "authenticating"].includes(lookAhead(state).at)) {
      this.#tried = true;
      if (state.at !== "connected") this.#learning = false;
    }
    const isGone = hasFailed(state) || (this.#gone && state.at !== "connected");
    if (isGone !== this.#gone) {
      this.#gone = isGone;
      this.#parts.changed();
    }
    const [old, session] = [sessionOf(before), sessionOf(state)];
    if (old !== undefined && old !== session) this.#bid(old);
    if (session !== undefined && old !== session) this.#welcome(session);
    if (state.at === "stopping" && state.next.at !== "connecting") {
      this.#visitors.fail(cause ?? this.#stoppedError());
    }
    if (state.at === "connected" && before.at === "authenticating") {
      // The waiters' requests were refused for want of this authorization.
      if (cause === undefined) this.#visitors.enter(state.session);
      else this.#visitors.fail(cause);
    }
    this.#parts.settled();
  }

  #bid(session: Session): void {
    this.#listing.unfollow();
    this.#subscriptions.unfollow();
    this.#history.add(session);
  }

  #welcome(session: Session): void {
    if (this.#held) session.pause();
    this.#listing.follow(session);
    this.#subscriptions.follow(session);
    this.#visitors.enter(session);
    if (this.#learning && this.#goal === "onDemand") this.#life.signal({ kind: "idleTimeout" });
    this.#learning = false;
  }

  #admitting(progress: Authorization | undefined): void {
    if (progress === undefined) this.#invitation.end();
    else if (progress.step === "openingBrowser") this.#invitation.give(progress.url);
  }

  /** Waiters do not wait for an attempt that is late. */
  #late(reason: HubError): void {
    const text = `It is still starting after ${this.spec.connectTimeout / 1000} seconds. Lists and calls do not wait for it any more; it is there when it is ready.`;
    this.#log("warn", "hub", text);
    this.#visitors.fail(reason);
  }

  #lateError(since: number): HubError {
    const { name: server } = this.spec;
    const seconds = Math.round((this.#parts.surroundings.clock.now() - since) / 1000);
    const text = `Server "${server}" is still starting, for ${seconds} seconds so far. Try again later: it is there when it is ready.`;
    return new HubError("connectTimeout", text, { server });
  }

  #stoppedError(): HubError {
    const { name: server } = this.spec;
    return new HubError("serverStopped", `Server "${server}" was stopped.`, { server });
  }

  /** Code of the hub or of a plugin has thrown. */
  #complain(error: HubError): void {
    this.#log("error", "hub", `What followed from a change of its state failed: ${error.message}`);
  }

  #log(level: LogLevel, source: LogSource, text: string): void {
    const { bus } = this.#parts;
    if (bus.hasListeners("log"))
      bus.emit({ kind: "log", level, source, server: this.spec.name, text });
  }
}
