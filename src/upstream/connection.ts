import type { Kind } from "../catalog/item.ts";
import type { Offer } from "../catalog/offer.ts";
import { HubError } from "../errors.ts";
import type { LogLevel, LogSource } from "../events.ts";
import type { Authorization } from "../wire/http/credentials.ts";
import { changesStart } from "../manifest/difference.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import { causeOf, hasFailed, lateSince, lookAhead, sessionOf } from "./account.ts";
import { History } from "./history.ts";
import { Invitation } from "./invitation.ts";
import { Life } from "./life.ts";
import { Listing } from "./listing.ts";
import type { ConnectionParts } from "./parts.ts";
import type { Session } from "./session.ts";
import type { State } from "./state.ts";
import { Subscriptions } from "./subscriptions.ts";
import type { ConnectionStatus, Goal } from "./status.ts";
import { type Visitor, Visitors } from "./visitors.ts";
import type { Voice } from "./voice.ts";

/** One server for those who use it: brings them to its session, shows what it lists, and tells how it stands. */
export class Connection {
  readonly client: string | undefined;
  readonly #parts: ConnectionParts;
  readonly #listing: Listing;
  readonly #life: Life;
  readonly #visitors = new Visitors((error) => this.#complain(error));
  readonly #invitation: Invitation;
  /** It was started only to learn what it lists. */
  #learning = false;
  /** An attempt has ended since somebody wanted it up. */
  #tried = false;
  /** It has failed for good, so that its tools are not shown. */
  #gone = false;
  #held = false;
  /** It makes place for another connection, or for none. */
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

  /** The voice of the present session, also while its server is still being listed. */
  get voice(): Voice | undefined {
    return this.#life.voice;
  }

  /**
   * What is shown of it: the last listing that is known, unless it shall be down or has failed for good. Of one that
   * makes place it is its successor's, as calls that waited go on to that.
   */
  get offer(): Offer | undefined {
    if (this.#retired?.successor !== undefined) return this.#retired.successor.offer;
    return this.#gone || !this.mayRun ? undefined : this.#listing.offer;
  }

  /** Whether a call would start it. */
  get mayRun(): boolean {
    return this.#goal !== "down";
  }

  get #goal(): Goal {
    return this.#retired === undefined ? this.#parts.goal() : "down";
  }

  /** Whether its attempt has taken longer than `connectTimeout`, and goes on. */
  get isLate(): boolean {
    return lateSince(this.state) !== undefined;
  }

  /** Whether it stands as it will without anybody's doing: an attempt has ended or is late, or none is due. */
  get isSettled(): boolean {
    if (this.#listing.isRecalling) return false;
    if (this.isLate) return true;
    if (this.#learning) return false;
    return this.#tried || (this.state.at === "idle" && this.#goal !== "up");
  }

  /** Whether what it last offered is still being looked for. */
  get isRecalling(): boolean {
    return this.#listing.isRecalling;
  }

  /** Whether a list need not wait for it. */
  get isListable(): boolean {
    return this.isSettled || this.#listing.offer !== undefined;
  }

  get status(): ConnectionStatus {
    const { clock } = this.#parts.surroundings;
    const status = this.#history.status(this.client, this.state, clock, this.#listing);
    const { strayOutput } = this.#parts.flaws;
    return strayOutput === undefined ? status : { ...status, strayOutput };
  }

  /** Starts it if it shall be up, and recalls what it last listed; if nothing is known, it is started to learn that. */
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

  /** Stops it: what runs fails. @returns when nothing of it is left. */
  stop(): Promise<void> {
    return this.#life.stop();
  }

  /** Ends what there is and begins anew; an attempt that runs is left to run. */
  reconnect(): void {
    this.#tried = false;
    this.#life.insist();
    this.#life.signal({ kind: "reconnect" });
  }

  /** Gives up the present attempt, or the wait for the next. */
  cancel(): void {
    this.#life.signal({ kind: "cancel" });
  }

  /** Takes over settings that the running process does not depend on. One that failed is tried anew if they may have been why. */
  update(spec: RunnableServer): void {
    const isOther = changesStart(this.spec, spec);
    this.#life.spec = spec;
    const session = sessionOf(this.state);
    if (session !== undefined) this.#life.watch(session);
    else if (isOther && causeOf(lookAhead(this.state)) !== undefined) this.reconnect();
  }

  /** Makes place for another, to which go all who wait and come: lets what runs finish for up to `limit` ms, then stops. */
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
   * Brings the visitor to the session, starting the server if need be; one attempt serves all that wait. While an
   * authorization is being got they wait for that, too. An attempt that is late is not waited for.
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

  /** Forgets a visitor who does not want to wait any more. */
  leave(visitor: Visitor): void {
    if (!this.#visitors.delete(visitor)) this.#retired?.successor?.leave(visitor);
  }

  /** Whether the server lists that, by its own name for it, as far as is known. */
  lists(kind: Kind, key: string): boolean {
    return this.#retired?.successor?.lists(kind, key) ?? this.#listing.has(kind, key);
  }

  /** Lists the server again, or its successor. @returns when that is done; at once if it is not connected. */
  refresh(): Promise<void> {
    return this.#retired?.successor?.refresh() ?? this.#listing.refresh();
  }

  /** Stops or resumes reading from the server, because what it sends cannot be passed on. */
  hold(held: boolean): void {
    this.#held = held;
    this.#listing.hold(held);
    this.#life.hold(held);
    // Before it is connected all that comes is for the hub itself, which has to be in time.
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
      // Those who wait were refused for want of it.
      if (cause === undefined) this.#visitors.enter(state.session);
      else this.#visitors.fail(cause);
    }
    this.#parts.settled();
  }

  /** Parts with a session. */
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

  /** Those who have waited for it do not wait any more. */
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

  /** Code of the hub itself, or of a plugin, has thrown. */
  #complain(error: HubError): void {
    this.#log("error", "hub", `What followed from a change of its state failed: ${error.message}`);
  }

  #log(level: LogLevel, source: LogSource, text: string): void {
    const { bus } = this.#parts;
    if (bus.wants("log")) bus.emit({ kind: "log", level, source, server: this.spec.name, text });
  }
}
