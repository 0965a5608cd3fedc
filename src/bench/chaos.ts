import { setImmediate } from "node:timers";
import { type Clock, sleep, systemClock } from "../base/clock.ts";
import { sendSignal } from "../process/process-group.ts";
import { processTable } from "../process/process-table.ts";
import type { LoadChaos } from "./load.ts";
import type { CancelResult, ChaosResult, KillResult } from "./result.ts";
import { LatencyHistogram, type LevelStats } from "./stats.ts";
import type { BenchTarget } from "./target.ts";

/** Timers are late by as much, in ms. */
const LATENESS = 2;

/**
 * Time to the microsecond: what is left after a timer of the system has rung is waited for by turns of the event loop, in each
 * of which whatever came in is read. It costs a processor while it waits, and only what is due within 2 ms waits so.
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

/** Now, in ms since the epoch and parts of them: the same for all processes of a machine, which `performance.now` is not. */
export function wallTime(): number {
  return performance.timeOrigin + performance.now();
}

/** Within which time a call is cancelled as long as it is not known how long calls take, in ms. */
const UNKNOWN_LATENCY = 10;
/** How often is looked for cancels that arrive at the server, while none does, and how long between two looks, in ms. */
const ARRIVAL = { looks: 10, pause: 20 };
/**
 * The first kill comes after this part of the time between two: as long as that often is, or a multiple of it, a round ends
 * with it, and nobody would see what follows.
 */
const FIRST = 0.3;

export interface ChaosOptions {
  readonly chaos: ChaosResult;
  readonly contact: Pick<BenchTarget, "subject" | "heard" | "vitals">;
  readonly tally: LevelStats;
  readonly clock: Clock;
}

/** What is done to a subject and to calls while they run, and what comes of it. */
export class Chaos implements LoadChaos {
  readonly #parts: ChaosOptions;
  /** The calls that were cancelled, by their marks, and when: ms since the epoch. */
  readonly #cancels = new Map<number, number>();
  readonly #recovery = new LatencyHistogram();
  #kills = 0;
  /** When those were killed that nothing has been heard of since. */
  #open: number[] = [];
  #lost = 0;
  /** Answers that came, and those that somebody waited for. */
  #heard = 0;
  #taken = 0;
  #heardBefore = 0;
  /** Until the next kill, in ms: goes on from round to round. */
  #untilKill: number;
  #began = 0;
  #isRunning = false;
  #undoKill = (): void => {};

  constructor(parts: ChaosOptions) {
    this.#parts = parts;
    this.#untilKill = FIRST * (parts.chaos.killEvery ?? 0);
  }

  /** A round begins. */
  begin(): void {
    this.#heardBefore = this.#parts.contact.heard;
    this.#isRunning = true;
    this.#armKill();
  }

  /** It has ended. */
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
    // What was on its way already says nothing of whether the server is there again.
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

  /** Finds out when cancels arrived where the server is. */
  async #follow(): Promise<Pick<CancelResult, "seen" | "latency">> {
    const { taps } = this.#parts.contact.subject;
    if (taps === undefined) return { seen: null, latency: null };
    if (this.#cancels.size === 0) return { seen: 0, latency: null };
    for (let looks = 0, before = -1; ;) {
      const arrivals = await taps.cancels();
      const seen = [...this.#cancels].filter(([mark]) => arrivals.has(mark));
      // Not all have to arrive: a hub that has the answer already tells nobody.
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

  /** Kills the server, with all that it has started; of a hub, every server behind it. */
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
