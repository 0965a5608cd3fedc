import { systemClock } from "../base/clock.ts";
import { Chaos } from "./chaos.ts";
import type { BenchTarget } from "./target.ts";
import { ProcessUsageMeter } from "./usage.ts";
import { LoadGenerator } from "./load.ts";
import { preciseClock } from "./moment.ts";
import type { BenchPlan } from "./plan.ts";
import type { BenchProgress, LevelResult } from "./result.ts";
import { type Extent, Schedule } from "./schedule.ts";
import { LevelStats } from "./stats.ts";
import type { CallTemplate } from "./template.ts";

export interface LevelOptions {
  readonly plan: BenchPlan;
  readonly contact: BenchTarget;
  readonly template: CallTemplate;
  readonly concurrency: number;
  readonly tell: (event: BenchProgress) => void;
}

/** Spans of the timeline, in ms: so many of them, if they get long enough. */
const SPANS = { most: 60, shortest: 250 };

/** One subject under one number of concurrent calls, measured in one round or several. */
export class LevelRun {
  readonly #parts: LevelOptions;
  readonly #tally: LevelStats;
  readonly #chaos: Chaos;
  readonly #costs: ProcessUsageMeter;
  #hasBegun = false;

  constructor(parts: LevelOptions) {
    const { plan, contact, concurrency, tell } = parts;
    const { extent, loop } = plan;
    const duration = "duration" in extent ? extent.duration : 0;
    const span = Math.max(SPANS.shortest, duration / SPANS.most);
    const subject = contact.subject.name;
    this.#parts = parts;
    this.#tally = new LevelStats(
      loop.kind === "open",
      span,
      (text) => contact.redact(text),
      (it) => tell({ kind: "span", subject, concurrency, done: this.#done(), span: it }),
    );
    this.#chaos = new Chaos({ chaos: plan.chaos, contact, tally: this.#tally, clock: systemClock });
    this.#costs = new ProcessUsageMeter(contact);
  }

  /** Whether there is anything to tell of it. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** One round of it. @throws {HubError} as `Load.run` does; what there is by then counts */
  async run(extent: Extent, warmUp: Extent | undefined, signal: AbortSignal): Promise<void> {
    const { contact, concurrency, tell } = this.#parts;
    if (warmUp !== undefined) {
      tell({ kind: "warmUp", subject: contact.subject.name, concurrency });
      const unheard = new LevelStats(false, Number.POSITIVE_INFINITY, String, () => {});
      await this.#load(warmUp, unheard).run(signal);
    }
    await this.#costs.begin();
    this.#chaos.begin();
    this.#hasBegun = true;
    try {
      await this.#load(extent, this.#tally, this.#chaos).run(signal);
    } finally {
      this.#chaos.end();
      await this.#costs.end();
    }
  }

  async result(): Promise<LevelResult> {
    return {
      concurrency: this.#parts.concurrency,
      ...this.#tally.result(),
      ...(await this.#chaos.results()),
      ...this.#costs.results(this.#tally.calls),
    };
  }

  #load(extent: Extent, tally: LevelStats, chaos?: Chaos): LoadGenerator {
    const { plan, contact, template, concurrency } = this.#parts;
    const { loop, timeout } = plan;
    return new LoadGenerator({
      contact,
      template,
      concurrency,
      schedule: new Schedule(loop, extent, systemClock.now()),
      tally,
      clock: systemClock,
      precise: preciseClock,
      timeout,
      chaos,
    });
  }

  /** The part of it that is over. */
  #done(): number {
    const { extent } = this.#parts.plan;
    const part =
      "calls" in extent
        ? (this.#tally.calls + this.#tally.failed) / extent.calls
        : this.#tally.elapsed(systemClock.now()) / extent.duration;
    return Math.min(1, part);
  }
}
