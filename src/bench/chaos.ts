import { setImmediate } from "node:timers";
import { type Clock, sleep, systemClock } from "../base/clock.ts";
import { sendSignal } from "../process/process-group.ts";
import { processTable } from "../process/process-table.ts";
import type { LoadChaos } from "./load.ts";
import type { CancelResult, ChaosResult, KillResult } from "./result.ts";
import { LatencyHistogram, type LevelStats } from "./stats.ts";
import type { BenchTarget } from "./target.ts";

/** How late system timers may fire, in ms. */
const LATENESS = 2;

/**
 * Timers exact to the microsecond: a system timer until 2 ms before, then one turn of the event loop after
 * the other, each of which also reads input. Costs one CPU core only during those 2 ms.
 */
export const preciseClock: Clock = {
  now: () => systemClock.now(),
  after(ms, callback) {
    const due = performance.now() + ms;
    let isOver = false;
    let undo = (): void => {};
    const look = (): void => {
      if (isOver) return;
      if (performance.now() < due) setImmediate(look);
      else callback();
    };
    if (ms > LATENESS) undo = systemClock.after(ms - LATENESS, look);
    else setImmediate(look);
    return () => {
      isOver = true;
      undo();
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

/** Cancel delay while no latency has been measured yet, in ms. */
const UNKNOWN_LATENCY = 10;
/**
 * Polling for cancellations at the server: number of polls without progress before giving up, and the pause
 * between two, in ms.
 */
const ARRIVAL = { looks: 10, pause: 20 };
/**
 * Delay of the first kill, as a part of `killEvery`. With 1, a round as long as `killEvery` (or a multiple)
 * would end right at a kill, and nothing after it would be measured.
 */
const FIRST = 0.3;

export interface ChaosOptions {
  readonly chaos: ChaosResult;
  readonly contact: Pick<BenchTarget, "subject" | "heard" | "vitals">;
  readonly tally: LevelStats;
  readonly clock: Clock;
}

/** Kills servers and cancels calls during a measurement, and measures the effects. */
export class Chaos implements LoadChaos {
  readonly #parts: ChaosOptions;
  /** Cancelled calls: call mark → time of the cancellation, in ms since the epoch. */
  readonly #cancels = new Map<number, number>();
  readonly #recovery = new LatencyHistogram();
  #kills = 0;
  /** Times (clock, in ms) of kills after which no result has arrived yet. */
  #open: number[] = [];
  #lost = 0;
  /** Responses received, and those that matched a pending call. */
  #heard = 0;
  #taken = 0;
  #heardBefore = 0;
  /** Time until the next kill, in ms; carried over from round to round. */
  #untilKill: number;
  #began = 0;
  #isRunning = false;
  #undoKill = (): void => {};

  constructor(parts: ChaosOptions) {
    this.#parts = parts;
    this.#untilKill = FIRST * (parts.chaos.killEvery ?? 0);
  }

  /** Starts a round. */
  begin(): void {
    this.#heardBefore = this.#parts.contact.heard;
    this.#isRunning = true;
    this.#armKill();
  }

  /** Ends a round. */
  end(): void {
    this.#isRunning = false;
    this.#undoKill();
    this.#untilKill -= this.#parts.clock.now() - this.#began;
    this.#heard += this.#parts.contact.heard - this.#heardBefore;
    this.#open = [];
  }

  sent(): number | undefined {
    const { chaos, tally } = this.#parts;
    if (Math.random() >= chaos.cancelRate) return undefined;
    return Math.random() * (tally.latency.median ?? UNKNOWN_LATENCY);
  }

  cancelled(mark: number): void {
    this.#cancels.set(mark, wallTime());
  }

  answered(sent: number, now: number, isResult: boolean): void {
    this.#taken++;
    if (!isResult || this.#open.length === 0) return;
    // Only a call sent after the kill shows that the server is back.
    this.#open = this.#open.filter((killed) => {
      if (sent < killed) return true;
      this.#recovery.record(now - killed);
      return false;
    });
  }

  lost(): void {
    this.#lost++;
  }

  async results(): Promise<{ readonly cancels?: CancelResult; readonly kills?: KillResult }> {
    const { killEvery, cancelRate } = this.#parts.chaos;
    const extra = Math.max(0, this.#heard - this.#taken);
    const late = Math.min(extra, this.#cancels.size);
    const { seen, latency } = await this.#follow();
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

  /** Asks the stdio proxies when each cancellation reached the server. */
  async #follow(): Promise<Pick<CancelResult, "seen" | "latency">> {
    const { taps } = this.#parts.contact.subject;
    if (taps === undefined) return { seen: null, latency: null };
    if (this.#cancels.size === 0) return { seen: 0, latency: null };
    for (let looks = 0, before = -1; ;) {
      const arrivals = await taps.cancels();
      const seen = [...this.#cancels].filter(([mark]) => arrivals.has(mark));
      // Not every cancellation reaches the server: a hub that already has the response forwards none.
      looks = seen.length > before ? 0 : looks + 1;
      before = seen.length;
      if (seen.length < this.#cancels.size && looks < ARRIVAL.looks) {
        await sleep(ARRIVAL.pause);
        continue;
      }
      const latencies = new LatencyHistogram();
      for (const [mark, at] of seen) latencies.record((arrivals.get(mark) ?? at) - at);
      return { seen: seen.length, latency: seen.length === 0 ? null : latencies.result() };
    }
  }

  #armKill(): void {
    const { chaos, clock } = this.#parts;
    const { killEvery } = chaos;
    if (killEvery === null) return;
    this.#began = clock.now();
    this.#undoKill = clock.after(this.#untilKill, () => {
      this.#untilKill = killEvery;
      this.#armKill();
      void this.#kill();
    });
  }

  /** Kills the server with all processes that it started; for a hub, every server behind it but not the hub. */
  async #kill(): Promise<void> {
    const { contact, clock } = this.#parts;
    const vitals = await contact.vitals();
    if (vitals === undefined) return;
    const isHub = contact.subject.kind === "hub";
    const hub = vitals.entries.find(({ pid }) => isHub && pid === vitals.pid);
    const prey = vitals.entries.filter(({ group }) => group !== hub?.group);
    const isSame = await processTable.recheck(prey).catch(() => () => false);
    const groups = new Set(prey.filter(isSame).map(({ group }) => group));
    if (groups.size === 0 || !this.#isRunning) return;
    for (const group of groups) sendSignal(-group, "SIGKILL");
    this.#kills++;
    this.#open.push(clock.now());
  }
}
