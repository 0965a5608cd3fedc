import { formatDuration } from "../base/format.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Session } from "./session.ts";

export interface HealthMonitorOptions {
  readonly session: Pick<
    Session,
    "server" | "messageCount" | "callCount" | "inFlight" | "isBusy" | "isSubscribed" | "ping"
  >;
  readonly clock: Clock;
  /**
   * Interval of health checks, in ms; 0 for no checks. `idleStop`: time without use after which the server is idle, in
   * ms; 0 for never.
   */
  readonly healthInterval: number;
  readonly idleStop: number;
  onLost(cause: HubError): void;
  setResponsive(isResponsive: boolean): void;
  onIdle(): void;
}

/** Number of unanswered health checks in a row after which the server counts as lost or not responding. */
const MAX_MISSED_PINGS = 2;
/** How many times during the idle time the hub checks whether the server is used. */
const IDLE_CHECKS = 4;

/** Monitors a connected server: whether it responds, and whether it is used. */
export class HealthMonitor {
  readonly #options: HealthMonitorOptions;
  readonly #healthTimer: IntervalTimer | undefined;
  readonly #idleTimer: IntervalTimer | undefined;
  #messageCount: number;
  #hasPinged = false;
  #missedPings = 0;
  #callCount: number;
  #lastUsedAt: number;
  #isPaused = false;

  constructor(options: HealthMonitorOptions) {
    const { session, clock, healthInterval, idleStop } = options;
    this.#options = options;
    this.#messageCount = session.messageCount;
    this.#callCount = session.callCount;
    this.#lastUsedAt = clock.now();
    if (healthInterval > 0) {
      this.#healthTimer = new IntervalTimer(clock, healthInterval, (isLate) => this.#check(isLate));
    }
    if (idleStop > 0)
      this.#idleTimer = new IntervalTimer(clock, idleStop / IDLE_CHECKS, () => this.#checkUse());
  }

  /** Called when reading from the server is paused or resumed. While it is paused, missing answers do not count. */
  setPaused(held: boolean): void {
    this.#isPaused = held;
    this.#resetMisses();
  }

  end(): void {
    this.#healthTimer?.end();
    this.#idleTimer?.end();
  }

  /**
   * Counts a missing answer, and sends the next ping.
   * @param isLate whether the check runs much later than planned, for example after the computer slept. If so, the
   * server had no chance to answer
   */
  #check(isLate: boolean): void {
    const { session } = this.#options;
    if (session.messageCount !== this.#messageCount) {
      this.#messageCount = session.messageCount;
      this.#resetMisses();
      this.#options.setResponsive(true);
      return;
    }
    if (this.#isPaused) return;
    if (isLate) this.#resetMisses();
    if (this.#hasPinged) this.#missedPings++;
    if (this.#missedPings >= MAX_MISSED_PINGS) {
      // The server may only be busy with the requests in flight. So the connection is kept; if the server does not
      // answer these requests, their deadlines end them.
      if (session.inFlight > 0) this.#options.setResponsive(false);
      else {
        this.#options.onLost(this.#notRespondingError());
        return;
      }
    }
    this.#hasPinged = true;
    session.ping();
  }

  #resetMisses(): void {
    this.#hasPinged = false;
    this.#missedPings = 0;
  }

  #notRespondingError(): HubError {
    const { session, healthInterval } = this.#options;
    const { server } = session;
    const text = `Server "${server}" gave no sign of life for ${formatDuration((MAX_MISSED_PINGS + 1) * healthInterval)}, and did not answer ${MAX_MISSED_PINGS} pings.`;
    return new HubError("notResponding", text, { server });
  }

  #checkUse(): void {
    const { session, clock, idleStop } = this.#options;
    const now = clock.now();
    if (session.isSubscribed || session.isBusy || session.callCount !== this.#callCount) {
      this.#callCount = session.callCount;
      this.#lastUsedAt = now;
    } else if (now - this.#lastUsedAt >= idleStop) {
      this.#options.onIdle();
    }
  }
}

/** Calls back at an interval, in ms. The argument tells whether the call is much later than planned. */
class IntervalTimer {
  readonly #clock: Clock;
  readonly #interval: number;
  readonly #tick: (isLate: boolean) => void;
  #cancel: () => void = () => {};
  #isEnded = false;

  constructor(clock: Clock, interval: number, tick: (isLate: boolean) => void) {
    this.#clock = clock;
    this.#interval = interval;
    this.#tick = tick;
    this.#schedule();
  }

  end(): void {
    this.#isEnded = true;
    this.#cancel();
  }

  #schedule(): void {
    const due = this.#clock.now() + this.#interval;
    this.#cancel = this.#clock.after(this.#interval, () => {
      this.#tick(this.#clock.now() > due + this.#interval / 2);
      if (!this.#isEnded) this.#schedule();
    });
  }
}
