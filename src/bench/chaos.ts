import { setImmediate } from "node:timers";
import { type Clock, sleep, systemClock } from "../base/clock.ts";
import { sendSignal } from "../process/process-group.ts";
import { processTable } from "../process/process-table.ts";
import type { LoadChaos } from "./load.ts";
import type { CancelResult, ChaosResult, KillResult } from "./result.ts";
import { LatencyHistogram, type LevelStats } from "./stats.ts";
import type { BenchConnection } from "./target.ts";

/** How late system timers may fire, in ms. */
const TIMER_LATENESS = 2;

/**
 * Timers exact to the microsecond: a system timer until 2 ms before the due time, then a check in every turn of the
 * event loop, so that input is still read. The checks keep one CPU core busy, but only during those 2 ms.
 */
export const preciseClock: Clock = {
  now: () => systemClock.now(),
  after(ms, callback) {
    const due = performance.now() + ms;
    let isDone = false;
    let cancelTimer = (): void => {};
    const poll = (): void => {
      if (isDone) return;
      if (performance.now() < due) setImmediate(poll);
      else callback();
    };
    if (ms > TIMER_LATENESS) cancelTimer = systemClock.after(ms - TIMER_LATENESS, poll);
    else setImmediate(poll);
    return () => {
      isDone = true;
      cancelTimer();
    };
  },
};

/**
 * The time in ms since the epoch, with fractions. Comparable between processes of a machine, unlike
 * `performance.now`.
 */
export function wallTime(): number {
  return performance.timeOrigin + performance.now();
}

/** Maximum delay of a cancellation, in ms, while no call has been measured. After that, it is the median latency. */
const DEFAULT_CANCEL_DELAY = 10;
/**
 * How `#findArrivals` polls the stdio proxies: it gives up after `attempts` polls in a row without a new cancellation,
 * and pauses for `pause` ms between two polls.
 */
const ARRIVAL_POLL = { attempts: 10, pause: 20 };
/**
 * The time of the first kill, as a fraction of `killEvery`. With 1, a round as long as `killEvery` would end exactly
 * at a kill, and the effect of the kill would not be measured.
 */
const FIRST_KILL_PART = 0.3;

export interface ChaosOptions {
  readonly chaos: ChaosResult;
  readonly target: Pick<BenchConnection, "subject" | "responses" | "processStats">;
  readonly stats: LevelStats;
  readonly clock: Clock;
}

/** Kills servers and cancels calls during a measurement, and measures the effects. */
export class Chaos implements LoadChaos {
  readonly #options: ChaosOptions;
  /** When each call was cancelled, in ms since the epoch. The key is the call's `CALL_MARK` value. */
  readonly #cancels = new Map<number, number>();
  readonly #recovery = new LatencyHistogram();
  #kills = 0;
  /** The times of the kills after which no result has arrived yet, in ms of the monotonic clock. */
  #unrecoveredKills: number[] = [];
  #lost = 0;
  /**
   * `#responses`: number of responses received. `#matchedResponses`: number of those that answered a waiting call.
   */
  #responses = 0;
  #matchedResponses = 0;
  #responsesBefore = 0;
  /**
   * Time until the next kill, in ms. If a round ends before the kill, the remaining time carries over to the next
   * round.
   */
  #untilKill: number;
  #armedAt = 0;
  #isRunning = false;
  #cancelKillTimer = (): void => {};

  constructor(options: ChaosOptions) {
    this.#options = options;
    this.#untilKill = FIRST_KILL_PART * (options.chaos.killEvery ?? 0);
  }

  beginRound(): void {
    this.#responsesBefore = this.#options.target.responses;
    this.#isRunning = true;
    this.#armKill();
  }

  endRound(): void {
    this.#isRunning = false;
    this.#cancelKillTimer();
    this.#untilKill -= this.#options.clock.now() - this.#armedAt;
    this.#responses += this.#options.target.responses - this.#responsesBefore;
    this.#unrecoveredKills = [];
  }

  onSent(): number | undefined {
    const { chaos, stats } = this.#options;
    if (Math.random() >= chaos.cancelRate) return undefined;
    return Math.random() * (stats.latency.median ?? DEFAULT_CANCEL_DELAY);
  }

  onCancelled(mark: number): void {
    this.#cancels.set(mark, wallTime());
  }

  onAnswered(sentAt: number, now: number, isResult: boolean): void {
    this.#matchedResponses++;
    if (!isResult || this.#unrecoveredKills.length === 0) return;
    // Only a result of a call that was sent after the kill proves that the server is back.
    this.#unrecoveredKills = this.#unrecoveredKills.filter((killed) => {
      if (sentAt < killed) return true;
      this.#recovery.record(now - killed);
      return false;
    });
  }

  onLost(): void {
    this.#lost++;
  }

  async results(): Promise<{ readonly cancels?: CancelResult; readonly kills?: KillResult }> {
    const { killEvery, cancelRate } = this.#options.chaos;
    const extra = Math.max(0, this.#responses - this.#matchedResponses);
    const late = Math.min(extra, this.#cancels.size);
    const { seen, latency } = await this.#findArrivals();
    return {
      ...(cancelRate > 0 && { cancels: { count: this.#cancels.size, seen, latency, late } }),
      ...(killEvery !== null && {
        kills: {
          count: this.#kills,
          lost: this.#lost,
          strays: extra - late,
          recovery: this.#recovery.count === 0 ? null : this.#recovery.result(),
        },
      }),
    };
  }

  /** Asks the stdio proxies, which run in front of the servers, when each cancellation arrived. */
  async #findArrivals(): Promise<Pick<CancelResult, "seen" | "latency">> {
    const { proxies } = this.#options.target.subject;
    if (proxies === undefined) return { seen: null, latency: null };
    if (this.#cancels.size === 0) return { seen: 0, latency: null };
    for (let attempts = 0, before = -1; ;) {
      const arrivals = await proxies.cancels();
      const seen = [...this.#cancels].filter(([mark]) => arrivals.has(mark));
      // Some cancellations never reach the server, because a hub that already has the response does not forward them.
      // Therefore, the polling also ends when no further cancellation arrives.
      attempts = seen.length > before ? 0 : attempts + 1;
      before = seen.length;
      if (seen.length < this.#cancels.size && attempts < ARRIVAL_POLL.attempts) {
        await sleep(ARRIVAL_POLL.pause);
        continue;
      }
      const latencies = new LatencyHistogram();
      for (const [mark, cancelledAt] of seen)
        latencies.record((arrivals.get(mark) ?? cancelledAt) - cancelledAt);
      return { seen: seen.length, latency: seen.length === 0 ? null : latencies.result() };
    }
  }

  #armKill(): void {
    const { chaos, clock } = this.#options;
    const { killEvery } = chaos;
    if (killEvery === null) return;
    this.#armedAt = clock.now();
    this.#cancelKillTimer = clock.after(this.#untilKill, () => {
      this.#untilKill = killEvery;
      this.#armKill();
      void this.#kill();
    });
  }

  /**
   * Kills the measured server with all processes that it started. If a hub is measured, kills every server behind it,
   * but not the hub itself.
   */
  async #kill(): Promise<void> {
    const { target, clock } = this.#options;
    const stats = await target.processStats();
    if (stats === undefined) return;
    const isHub = target.subject.kind === "hub";
    const hub = stats.entries.find(({ pid }) => isHub && pid === stats.pid);
    const victims = stats.entries.filter(({ group }) => group !== hub?.group);
    const isSame = await processTable.recheck(victims).catch(() => () => false);
    const groups = new Set(victims.filter(isSame).map(({ group }) => group));
    if (groups.size === 0 || !this.#isRunning) return;
    for (const group of groups) sendSignal(-group, "SIGKILL");
    this.#kills++;
    this.#unrecoveredKills.push(clock.now());
  }
}
