import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Session } from "./session.ts";

/** The options of a health monitor. */
export interface HealthMonitorOptions {
  readonly session: Pick<
    Session,
    "server" | "heard" | "calls" | "inFlight" | "isBusy" | "subscriptions" | "ping"
  >;
  readonly clock: Clock;
  /** The interval of health checks, and the time after which an unused server is idle; in ms, 0 = never. */
  readonly healthInterval: number;
  readonly idleStop: number;
  lost(cause: HubError): void;
  responsive(responsive: boolean): void;
  idle(): void;
}

/** Number of health checks in a row that may stay unanswered. */
const MAX_MISSES = 2;
/** Number of idle checks within the idle time. */
const IDLE_LOOKS = 4;

/** Monitors a connected server: whether it responds, and whether it is used. */
export class HealthMonitor {
  readonly #options: HealthMonitorOptions;
  readonly #health: Ticks | undefined;
  readonly #use: Ticks | undefined;
  #heard: number;
  /** Whether a ping was sent since the last message arrived. */
  #hasPinged = false;
  #misses = 0;
  #calls: number;
  #usedAt: number;
  #held = false;

  constructor(options: HealthMonitorOptions) {
    const { session, clock, healthInterval, idleStop } = options;
    this.#options = options;
    this.#heard = session.heard;
    this.#calls = session.calls;
    this.#usedAt = clock.now();
    if (healthInterval > 0) {
      this.#health = new Ticks(clock, healthInterval, (isLate) => this.#look(isLate));
    }
    if (idleStop > 0) this.#use = new Ticks(clock, idleStop / IDLE_LOOKS, () => this.#lookForUse());
  }

  /** While reading from the server is paused, silence means nothing. */
  setPaused(held: boolean): void {
    this.#held = held;
    this.#forgive();
  }

  end(): void {
    this.#health?.end();
    this.#use?.end();
  }

  /** @param isLate the clock has jumped, for example after sleep: nothing could answer in between */
  #look(isLate: boolean): void {
    const { session } = this.#options;
    if (session.heard !== this.#heard) {
      this.#heard = session.heard;
      this.#forgive();
      this.#options.responsive(true);
      return;
    }
    if (this.#held) return;
    if (isLate) this.#forgive();
    if (this.#hasPinged) this.#misses++;
    if (this.#misses >= MAX_MISSES) {
      // The server may be busy with a request; the calls' own deadlines decide.
      if (session.inFlight > 0) this.#options.responsive(false);
      else {
        this.#options.lost(this.#silence());
        return;
      }
    }
    this.#hasPinged = true;
    session.ping();
  }

  #forgive(): void {
    this.#hasPinged = false;
    this.#misses = 0;
  }

  #silence(): HubError {
    const { session, healthInterval } = this.#options;
    const { server } = session;
    const text = `Server "${server}" gave no sign of life for ${(MAX_MISSES + 1) * healthInterval} ms, and did not answer ${MAX_MISSES} pings.`;
    return new HubError("notResponding", text, { server });
  }

  #lookForUse(): void {
    const { session, clock, idleStop } = this.#options;
    const now = clock.now();
    const isWatched = session.subscriptions?.isUsed === true;
    if (isWatched || session.isBusy || session.calls !== this.#calls) {
      this.#calls = session.calls;
      this.#usedAt = now;
    } else if (now - this.#usedAt >= idleStop) {
      this.#options.idle();
    }
  }
}

/** Calls back at an interval, in ms, and says whether a tick came much later than it was due. */
class Ticks {
  readonly #clock: Clock;
  readonly #interval: number;
  readonly #tick: (isLate: boolean) => void;
  #cancel: () => void = () => {};
  #ended = false;

  constructor(clock: Clock, interval: number, tick: (isLate: boolean) => void) {
    this.#clock = clock;
    this.#interval = interval;
    this.#tick = tick;
    this.#arm();
  }

  end(): void {
    this.#ended = true;
    this.#cancel();
  }

  #arm(): void {
    const due = this.#clock.now() + this.#interval;
    this.#cancel = this.#clock.after(this.#interval, () => {
      this.#tick(this.#clock.now() > due + this.#interval / 2);
      if (!this.#ended) this.#arm();
    });
  }
}
