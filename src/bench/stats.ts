import { LatencyHistogram } from "./latencies.ts";
import type { LevelResult, SpanResult } from "./result.ts";
import type { CallFailure } from "./verdict.ts";

/** So many kinds of errors are told apart; the others are counted together. */
const MOST_KINDS = 50;
const OTHERS = "others";

/** What the calls of one subject at one level have come to, over as many rounds as there are. Times are in ms. */
export class LevelStats {
  readonly latency = new LatencyHistogram();
  /** From when calls were sent; only where that is not when they were due. */
  readonly service: LatencyHistogram | undefined;
  readonly #errors = new Map<string, { count: number; example: string }>();
  readonly #redact: (text: string) => string;
  calls = 0;
  failed = 0;
  /** Between the beginnings and the ends of the rounds. */
  #elapsed = 0;
  #began = 0;
  readonly #span: number;
  readonly #tellSpan: (span: SpanResult) => void;
  readonly #spans: SpanResult[] = [];
  readonly #recent = new LatencyHistogram(2);
  #spanBegan = 0;
  #spanErrors = 0;

  /**
   * @param isOpen whether calls may have to wait until they are sent
   * @param span how long the spans of the timeline are
   * @param redact takes out of what was said what must not be shown
   */
  constructor(
    isOpen: boolean,
    span: number,
    redact: (text: string) => string,
    tellSpan: (span: SpanResult) => void,
  ) {
    this.service = isOpen ? new LatencyHistogram() : undefined;
    this.#span = span;
    this.#redact = redact;
    this.#tellSpan = tellSpan;
  }

  /** A round begins. */
  begin(now: number): void {
    this.#began = now;
    this.#spanBegan = now;
  }

  /** It has ended: time goes on with the next. */
  end(now: number): void {
    if (this.#recent.count + this.#spanErrors > 0) this.#closeSpan(now);
    this.#elapsed += now - this.#began;
  }

  /** A call was answered by a result. */
  answered(due: number, sent: number, now: number): void {
    this.calls++;
    this.latency.record(now - due);
    this.service?.record(now - sent);
    this.#recent.record(now - due);
  }

  /** A call was not, or so many were not. */
  fail({ kind, example }: CallFailure, count = 1): void {
    this.failed += count;
    this.#spanErrors += count;
    const known = this.#errors.get(kind);
    if (known !== undefined) known.count += count;
    else if (this.#errors.size >= MOST_KINDS && kind !== OTHERS)
      this.fail({ kind: OTHERS, example }, count);
    else this.#errors.set(kind, { count, example: this.#redact(example) });
  }

  /** Closes the spans that are over: to be called more often than they end. */
  roll(now: number): void {
    if (now - this.#spanBegan >= this.#span) this.#closeSpan(now);
  }

  /** Since the level began, without what lies between rounds. */
  elapsed(now: number): number {
    return this.#elapsed + now - this.#began;
  }

  result(): Omit<LevelResult, "concurrency" | "cancels" | "kills" | "hub" | "server"> {
    const seconds = this.#elapsed / 1000;
    return {
      seconds,
      calls: this.calls,
      rate: seconds > 0 ? this.calls / seconds : 0,
      latency: this.latency.result(),
      ...(this.service && { service: this.service.result() }),
      errors: Object.fromEntries(this.#errors),
      timeline: this.#spans,
    };
  }

  #closeSpan(now: number): void {
    const span: SpanResult = {
      at: (this.#elapsed + this.#spanBegan - this.#began) / 1000,
      calls: this.#recent.count,
      errors: this.#spanErrors,
      p50: this.#recent.percentile(50),
      p99: this.#recent.percentile(99),
    };
    this.#spans.push(span);
    this.#recent.reset();
    this.#spanErrors = 0;
    this.#spanBegan = now;
    this.#tellSpan(span);
  }
}
