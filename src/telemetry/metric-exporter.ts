import type { Clock } from "../base/clock.ts";
import type { Collector, PostOutcome } from "./collector.ts";
import type { Metric } from "./metrics.ts";

export interface MetricExporterOptions {
  readonly clock: Clock;
  readonly collector: Pick<Collector, "post">;
  /** The time between two posts, in ms. */
  readonly interval: number;
  /** The values at present. */
  read(): readonly Metric[];
  /** Encodes metrics; loads the code for that when it is first called. */
  encode(metrics: readonly Metric[]): Promise<Uint8Array>;
  warn(text: string): void;
}

/** Maximum number of values in a post: calls wait while values are encoded, which takes up to 10 ms for so many. */
const MAX_VALUES = 500;
/** Maximum size of the body of a post, in bytes. */
const MAX_BODY = 1024 * 1024;
/** The longest time between two posts while a collector cannot be reached, in ms. */
const LONGEST_WAIT = 60_000;

/**
 * Sends the values of all metrics again and again. What could not be sent is not kept: the next values contain it,
 * because they count from the start of the hub.
 */
export class MetricExporter {
  readonly #options: MetricExporterOptions;
  readonly #closed = new AbortController();
  #cancelTimer: (() => void) | undefined;
  #sending: Promise<void> | undefined;
  #failures = 0;
  /** The kinds of trouble that were told since the collector has last taken something. */
  readonly #told = new Set<PostOutcome["kind"]>();

  constructor(options: MetricExporterOptions) {
    this.#options = options;
    this.#schedule(options.interval);
  }

  /** Sends the last values, for at most `limit` ms; afterwards, nothing is sent any more. */
  async close(limit: number): Promise<void> {
    this.#cancelTimer?.();
    const isOver = Promise.withResolvers<void>();
    const cancelTimer = this.#options.clock.after(limit, () => isOver.resolve());
    const sendLast = async (): Promise<void> => {
      await this.#sending;
      if (!this.#closed.signal.aborted) await this.#send();
    };
    await Promise.race([sendLast(), isOver.promise]);
    cancelTimer();
    this.#cancelTimer?.();
    this.#closed.abort(new Error("the hub has ended"));
  }

  #schedule(ms: number): void {
    if (this.#closed.signal.aborted) return;
    this.#cancelTimer?.();
    this.#cancelTimer = this.#options.clock.after(ms, () => {
      this.#sending = this.#send();
    });
  }

  /** Sends the values, and schedules the next ones. Never rejects. */
  async #send(): Promise<void> {
    let outcome: PostOutcome = { kind: "taken" };
    try {
      for (const part of partsOf(this.#options.read())) {
        outcome = await this.#sendPart(part);
        if (outcome.kind !== "taken") break;
      }
    } catch (error) {
      outcome = { kind: "refused", reason: String(error) };
    }
    if (!this.#closed.signal.aborted) this.#plan(outcome);
  }

  async #sendPart(metrics: readonly Metric[]): Promise<PostOutcome> {
    let outcome: PostOutcome = { kind: "taken" };
    for (const body of await this.#bodies(metrics)) {
      outcome = await this.#options.collector.post(body, this.#closed.signal);
      if (outcome.kind !== "taken") break;
    }
    return outcome;
  }

  #plan(outcome: PostOutcome): void {
    const { interval } = this.#options;
    switch (outcome.kind) {
      case "taken":
        this.#failures = 0;
        this.#told.clear();
        this.#schedule(interval);
        return;
      case "refused":
        this.#tell(outcome.kind, `The collector does not take metrics: ${outcome.reason}.`);
        this.#schedule(Math.max(interval, LONGEST_WAIT));
        return;
      case "later": {
        this.#tell(outcome.kind, `The collector takes no metrics at present: ${outcome.reason}.`);
        const wait = interval * 2 ** Math.min(this.#failures++, 10);
        this.#schedule(Math.max(interval, Math.min(LONGEST_WAIT, wait), outcome.after ?? 0));
      }
    }
  }

  /** Encodes metrics; as several bodies if one would be too large. */
  async #bodies(metrics: readonly Metric[]): Promise<readonly Uint8Array[]> {
    const body = await this.#options.encode(metrics);
    const parts = body.length <= MAX_BODY ? undefined : halvesOf(metrics);
    if (parts === undefined) return [body];
    return [...(await this.#bodies(parts[0])), ...(await this.#bodies(parts[1]))];
  }

  /** Warns once of each kind of trouble, until the collector takes something again. */
  #tell(kind: PostOutcome["kind"], text: string): void {
    if (this.#told.has(kind)) return;
    this.#told.add(kind);
    this.#options.warn(text);
  }
}

function sizeOf(metric: Metric): number {
  return "numbers" in metric ? metric.numbers.length : metric.histograms.length;
}

function sizeOfAll(metrics: readonly Metric[]): number {
  return metrics.reduce((sum, metric) => sum + sizeOf(metric), 0);
}

/** Parts with at most `MAX_VALUES` values each. */
function partsOf(metrics: readonly Metric[]): readonly (readonly Metric[])[] {
  const halves = sizeOfAll(metrics) <= MAX_VALUES ? undefined : halvesOf(metrics);
  return halves === undefined ? [metrics] : halves.flatMap(partsOf);
}

/** Two parts with half of the values each; undefined if there are fewer than two. */
function halvesOf(
  metrics: readonly Metric[],
): readonly [readonly Metric[], readonly Metric[]] | undefined {
  const half = Math.floor(sizeOfAll(metrics) / 2);
  if (half === 0) return undefined;
  const slice = (metric: Metric, from: number, to: number): Metric =>
    "numbers" in metric
      ? { ...metric, numbers: metric.numbers.slice(from, to) }
      : { ...metric, histograms: metric.histograms.slice(from, to) };
  const first: Metric[] = [];
  const second: Metric[] = [];
  let before = 0;
  for (const metric of metrics) {
    const cut = Math.max(0, Math.min(sizeOf(metric), half - before));
    before += sizeOf(metric);
    if (cut > 0) first.push(slice(metric, 0, cut));
    if (cut < sizeOf(metric)) second.push(slice(metric, cut, sizeOf(metric)));
  }
  return [first, second];
}
