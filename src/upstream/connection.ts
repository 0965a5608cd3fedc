import { type Item, sameItems } from "../catalog/item.ts";
import { type ConnectStep, type ErrorCode, HubError, toHubError } from "../errors.ts";
import type { Bus, LogLevel, LogSource } from "../events.ts";
import type { StdioServer } from "../manifest/schema.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { Link } from "../wire/link.ts";
import { Refresh } from "./refresh.ts";
import { Session, type SessionEvents } from "./session.ts";
import { type Signal, type State, step } from "./state.ts";

/** Somebody who needs the session: gets it when it is there, or the reason why it will not be. */
export interface Visitor {
  enter(session: Session): void;
  fail(error: HubError): void;
}

/** What a connection is made from. */
export interface ConnectionParts {
  readonly spec: StdioServer;
  readonly clientInfo: Implementation;
  readonly bus: Bus;
  /** Fills in the specification's `${…}` and makes the link. @throws {HubError} valueMissing */
  makeLink(spec: StdioServer): Promise<Link>;
  /** The server's listing is another than before. */
  changed(): void;
  /** An attempt has ended, well or not. */
  settled(): void;
}

const TAIL_LINES = 10;

/** One try to open the connection, and what became of it. */
interface Attempt {
  readonly abort: AbortController;
  at: ConnectStep;
  session: Session | undefined;
  /** The server announced a change before it was listed to the end. */
  stale: boolean;
}

/** One server's life: owns its state, its link and, while connected, its session. */
export class Connection {
  readonly spec: StdioServer;
  readonly #parts: ConnectionParts;
  #state: State<Session> = { at: "idle" };
  /** Grows with every attempt; what an older attempt still reports is dropped. */
  #epoch = 0;
  #attempt: Attempt | undefined;
  readonly #visitors = new Set<Visitor>();
  #items: readonly Item[] | undefined;
  #refresh: Refresh | undefined;
  readonly #stopped: (() => void)[] = [];
  #held = false;
  /** Who waits for the end of the hold. */
  readonly #releasing: (() => void)[] = [];
  #tail: string[] = [];

  constructor(parts: ConnectionParts) {
    this.spec = parts.spec;
    this.#parts = parts;
  }

  get state(): State<Session> {
    return this.#state;
  }

  /** The last listing that the server gave; it outlives the connection. */
  get items(): readonly Item[] | undefined {
    return this.#items;
  }

  /** Whether the first attempt is still to come, or under way. */
  get pending(): boolean {
    return this.#state.at === "idle" || this.#state.at === "connecting";
  }

  /** Whether it is down, or on its way there, because it shall be: then no call brings it back. */
  get #isStopped(): boolean {
    const state = this.#state;
    return (
      state.at === "disconnected" || (state.at === "stopping" && state.next.at === "disconnected")
    );
  }

  start(): void {
    this.#signal({ kind: "start" });
  }

  /** Stops the server for good. @returns when nothing of it is left. */
  stop(): Promise<void> {
    this.#signal({ kind: "stop" });
    if (this.#state.at !== "stopping") return Promise.resolve();
    return new Promise((resolve) => this.#stopped.push(resolve));
  }

  /** Brings the visitor to the session, starting the server if need be; one attempt serves all that wait. */
  visit(visitor: Visitor): void {
    if (this.#state.at === "connected") {
      visitor.enter(this.#state.session);
      return;
    }
    if (this.#isStopped) {
      visitor.fail(this.#stoppedError());
      return;
    }
    this.#visitors.add(visitor);
    this.start();
  }

  /** Forgets a visitor who does not want to wait any more. */
  leave(visitor: Visitor): void {
    this.#visitors.delete(visitor);
  }

  /** Stops or resumes reading from the server, because what it sends cannot be passed on. */
  hold(held: boolean): void {
    this.#held = held;
    if (!held) for (const resolve of this.#releasing.splice(0)) resolve();
    // Before it is connected all that comes is for the hub itself, which has to be in time.
    if (this.#state.at !== "connected") return;
    if (held) this.#state.session.pause();
    else this.#state.session.resume();
  }

  #signal(signal: Signal<Session>): void {
    const before = this.#state;
    const { state, effects } = step(before, signal);
    this.#state = state;
    if (state.at !== before.at) this.#report(before, state);
    for (const effect of effects) {
      if (effect === "open") void this.#open();
      else void this.#close();
    }
    if (state !== before) this.#entered(state);
  }

  #report(before: State<Session>, state: State<Session>): void {
    if (!this.#parts.bus.wants("state")) return;
    const cause = state.at === "failed" ? { cause: state.cause } : {};
    this.#parts.bus.emit({
      kind: "state",
      server: this.spec.name,
      from: before.at,
      to: state.at,
      ...cause,
    });
  }

  #entered(state: State<Session>): void {
    switch (state.at) {
      case "connected":
        if (this.#held) state.session.pause();
        for (const visitor of this.#takeVisitors()) visitor.enter(state.session);
        this.#parts.settled();
        return;
      case "stopping": {
        if (state.next.at === "connecting") return;
        const cause = state.next.at === "failed" ? state.next.cause : this.#stoppedError();
        for (const visitor of this.#takeVisitors()) visitor.fail(cause);
        return;
      }
      case "failed":
      case "disconnected":
        for (const resolve of this.#stopped.splice(0)) resolve();
        this.#parts.settled();
        return;
      case "idle":
      case "connecting":
    }
  }

  #takeVisitors(): Visitor[] {
    const visitors = [...this.#visitors];
    this.#visitors.clear();
    return visitors;
  }

  #stoppedError(): HubError {
    const text = `Server "${this.spec.name}" was stopped.`;
    return new HubError("serverStopped", text, { server: this.spec.name });
  }

  /** An error of the present attempt: with its step and what the server last wrote to stderr. */
  #error(code: ErrorCode, text: string): HubError {
    const details = { server: this.spec.name, step: this.#attempt?.at, stderr: [...this.#tail] };
    return new HubError(code, text, details);
  }

  /** One attempt: make the link, open it, shake hands, list. All of it within connectTimeout. */
  async #open(): Promise<void> {
    const epoch = ++this.#epoch;
    const { spec } = this;
    const abort = new AbortController();
    const attempt: Attempt = { abort, at: "resolve", session: undefined, stale: false };
    this.#attempt = attempt;
    this.#tail = [];
    const timer = setTimeout(() => {
      const text = `Server "${spec.name}" did not get beyond step "${attempt.at}" within ${spec.connectTimeout} ms (connectTimeout).`;
      abort.abort(this.#error("connectTimeout", text));
    }, spec.connectTimeout);
    try {
      const link = await this.#parts.makeLink(spec);
      if (epoch !== this.#epoch) return;
      abort.signal.throwIfAborted();
      attempt.at = "spawn";
      const session = new Session(spec.name, link, this.#listen(epoch));
      attempt.session = session;
      await session.open(this.#parts.clientInfo, abort.signal, () => {
        attempt.at = "handshake";
      });
      attempt.at = "list";
      const items = await session.listTools(abort.signal);
      if (epoch !== this.#epoch) return;
      this.#adopt(items);
      this.#refresh = this.#refreshing(session, epoch);
      this.#signal({ kind: "opened", session });
      if (attempt.stale) this.#refresh.announce();
    } catch (error) {
      if (epoch === this.#epoch) this.#signal({ kind: "lost", cause: toHubError(error) });
    } finally {
      clearTimeout(timer);
    }
  }

  async #close(): Promise<void> {
    this.#epoch++;
    const attempt = this.#attempt;
    this.#attempt = undefined;
    this.#refresh = undefined;
    attempt?.abort.abort(this.#stoppedError());
    await attempt?.session?.close();
    this.#signal({ kind: "drained" });
  }

  #listen(epoch: number): SessionEvents {
    return {
      toolsChanged: () => {
        if (epoch !== this.#epoch) return;
        if (this.#refresh !== undefined) this.#refresh.announce();
        else if (this.#attempt !== undefined) this.#attempt.stale = true;
      },
      log: (level, source, text) => this.#log(level, source, text),
      closed: (cause) => {
        if (epoch !== this.#epoch) return;
        // A server that ends before it is connected failed at a step, which its end alone does not say.
        const early = this.#state.at === "connecting" && cause.step === undefined;
        this.#signal({
          kind: "lost",
          cause: early ? this.#error(cause.code, cause.message) : cause,
        });
      },
    };
  }

  #log(level: LogLevel, source: LogSource, text: string): void {
    if (source === "stderr" && this.#tail.push(text) > TAIL_LINES) this.#tail.shift();
    const { bus } = this.#parts;
    if (bus.wants("log")) bus.emit({ kind: "log", level, source, server: this.spec.name, text });
  }

  #adopt(items: readonly Item[]): boolean {
    const same = this.#items !== undefined && sameItems(this.#items, items);
    if (same) return false;
    this.#items = items;
    this.#parts.changed();
    return true;
  }

  #refreshing(session: Session, epoch: number): Refresh {
    return new Refresh({
      lives: () => epoch === this.#epoch,
      ready: () => this.#released(),
      list: async () => {
        try {
          const items = await session.listTools(AbortSignal.timeout(this.spec.connectTimeout));
          return epoch === this.#epoch && this.#adopt(items) ? "changed" : "same";
        } catch (error) {
          if (epoch !== this.#epoch) return "same";
          if (this.#held) return "again";
          this.#log("warn", "server", `Listing again failed: ${toHubError(error).message}`);
          return "same";
        }
      },
    });
  }

  #released(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#held) this.#releasing.push(resolve);
      else resolve();
    });
  }
}
