import type { Alerts } from "../alerts.ts";
import type { Kind } from "../catalog/item.ts";
import { HubError } from "../errors.ts";
import type { Bus, LogLevel, LogSource } from "../events.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import { eventOf, sessionOf, tellAlerts } from "./account.ts";
import { Attempt, type Surroundings } from "./attempt.ts";
import type { Audience } from "./audience.ts";
import type { Dialects } from "./dialects.ts";
import type { Harvest } from "./harvest.ts";
import type { Session } from "./session.ts";
import { type Effect, type Signal, type State, step } from "./state.ts";
import type { Goal } from "./status.ts";
import { Vigil } from "./vigil.ts";

/** What a life is made from. */
export interface LifeParts {
  /** Whose it is, if the server is not shared. */
  readonly client: string | undefined;
  /** For whom it is. */
  readonly audience: Audience;
  readonly surroundings: Surroundings;
  readonly bus: Bus;
  readonly alerts: Alerts;
  /** When nothing is left of what has to be gone before the first attempt. */
  readonly before: Promise<unknown>;
  goal(): Goal;
  /** What is known of what the server speaks. */
  readonly dialects: Dialects;
  /** 0…1 */
  random(): number;
}

/** What a life tells its connection. */
export interface LifeEvents {
  /** The state is another; what it asked for has been set going. `cause`: what was lost, if that is why. */
  moved(before: State<Session>, state: State<Session>, cause: HubError | undefined): void;
  /** An attempt is about to succeed; see AttemptEvents. */
  listed(session: Session, found: Harvest, duration: number): void;
  /** What was listed is not what the server lists now. */
  listChanged(kinds: readonly Kind[]): void;
  /** Nobody used it for as long as its specification says: it is about to be stopped. */
  idle(): void;
  log(level: LogLevel, source: LogSource, text: string): void;
}

/** The one who holds a connection's state: takes signals, one after the other, and carries out what each of them leads to. */
export class Life {
  spec: RunnableServer;
  readonly #parts: LifeParts;
  readonly #events: LifeEvents;
  #state: State<Session> = { at: "idle" };
  /** The first is being taken. */
  readonly #signals: Signal<Session>[] = [];
  /** The present attempt, or what came of it; what an older one still reports is dropped. */
  #attempt: Attempt | undefined;
  #disarm: () => void = () => {};
  #vigil: Vigil | undefined;
  #held = false;
  /** Who waits until nothing of what is being stopped is left. */
  readonly #draining: (() => void)[] = [];

  constructor(spec: RunnableServer, parts: LifeParts, events: LifeEvents) {
    this.spec = spec;
    this.#parts = parts;
    this.#events = events;
  }

  get state(): State<Session> {
    return this.#state;
  }

  /** Those that come while one is being taken come after it. */
  signal(signal: Signal<Session>): void {
    this.#signals.push(signal);
    if (this.#signals.length > 1) return;
    this.#parts.bus.whole(() => {
      for (let next = this.#signals[0]; next !== undefined; next = this.#signals[0]) {
        this.#take(next);
        this.#signals.shift();
      }
    });
    if (this.#state.at !== "stopping") for (const resolve of this.#draining.splice(0)) resolve();
  }

  /** Stops it. @returns when nothing of it is left. */
  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#draining.push(resolve);
      this.signal({ kind: "stop" });
    });
  }

  /** Watches over the session as the specification has it now. */
  watch(session: Session): void {
    this.#vigil?.end();
    const { healthInterval, idleStop } = this.spec;
    this.#vigil = new Vigil({
      session,
      clock: this.#parts.surroundings.clock,
      healthInterval,
      idleStop,
      lost: (cause) => this.signal({ kind: "lost", cause }),
      responsive: (isResponsive) =>
        this.signal({ kind: isResponsive ? "responsive" : "unresponsive" }),
      idle: () => {
        this.#events.idle();
        this.signal({ kind: "idleTimeout" });
      },
    });
    this.#vigil.hold(this.#held);
  }

  /** While nothing is read from the server, its silence says nothing. */
  hold(held: boolean): void {
    this.#held = held;
    this.#vigil?.hold(held);
  }

  #take(signal: Signal<Session>): void {
    const before = this.#state;
    const parts = this.#parts;
    const { clock } = parts.surroundings;
    const { state, effects } = step(before, signal, {
      now: clock.now(),
      random: parts.random(),
      policy: this.spec.reconnect,
      goal: parts.goal(),
    });
    this.#state = state;
    const cause = signal.kind === "lost" ? signal.cause : undefined;
    if (state.at !== before.at) {
      this.#disarm();
      const move = { server: this.spec.name, client: parts.client, before, state, cause };
      parts.bus.emit(eventOf(move, clock));
      tellAlerts(move, parts.alerts);
    }
    for (const effect of effects) this.#perform(effect);
    if (state !== before) {
      this.#watchOver(sessionOf(before), sessionOf(state));
      this.#events.moved(before, state, cause);
    }
  }

  #watchOver(before: Session | undefined, session: Session | undefined): void {
    if (session === before) return;
    this.#vigil?.end();
    this.#vigil = undefined;
    if (session !== undefined) this.watch(session);
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "open":
        this.#open();
        return;
      case "close":
        void this.#close();
        return;
      case "arm": {
        const { clock } = this.#parts.surroundings;
        const delay = Math.max(0, effect.at - clock.now());
        this.#disarm = clock.after(delay, () => this.signal({ kind: effect.signal }));
        return;
      }
      case "authorize": {
        const { name: server } = this.spec;
        const text = `Server "${server}" wants an authorization, and there is no way to get one.`;
        this.signal({ kind: "lost", cause: new HubError("notSupported", text, { server }) });
      }
    }
  }

  #open(): void {
    const { surroundings, audience, dialects } = this.#parts;
    const attempt = new Attempt(this.spec, audience, surroundings, dialects, {
      opened: (session, found, stale, duration) => {
        this.#events.listed(session, found, duration);
        this.signal({ kind: "opened", session });
        if (stale.length > 0) this.#events.listChanged(stale);
      },
      lost: (cause) => {
        if (attempt === this.#attempt) this.signal({ kind: "lost", cause });
      },
      listChanged: (kinds) => this.#events.listChanged(kinds),
      log: (level, source, text) => this.#events.log(level, source, text),
    });
    this.#attempt = attempt;
    void attempt.run(this.#parts.before);
  }

  async #close(): Promise<void> {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    const { name: server } = this.spec;
    const text = `Server "${server}" was stopped.`;
    await attempt?.close(new HubError("serverStopped", text, { server }));
    this.signal({ kind: "drained" });
  }
}
