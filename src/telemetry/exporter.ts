import type { Clock } from "../base/clock.ts";
import { count } from "../base/format.ts";
import type { Collector, PostOutcome } from "./collector.ts";
import type { EndedSpan, Span } from "./span.ts";
import { SpanRing } from "./span-ring.ts";

export interface SpanExporterOptions {
  readonly clock: Clock;
  readonly collector: Pick<Collector, "post">;
  /** The longest time for which a span waits, in ms. */
  readonly interval: number;
  /** Encodes spans; loads the code for that when it is first called. */
  encode(spans: readonly Span[]): Promise<Uint8Array>;
  /** Returns a random number from 0 to 1, for the jitter of waits. */
  random(): number;
  warn(text: string): void;
}

/** Maximum number of spans in a post. */
const MAX_BATCH = 512;
/** Maximum size of the body of a post, which is held while it cannot be sent, in bytes. */
const MAX_BODY = 1024 * 1024;
/** The wait before the second attempt, and the longest one, in ms. */
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 60_000;

/** Sends the spans that have ended, in batches, one after the other. */
export class SpanExporter {
  readonly #options: SpanExporterOptions;
  readonly #ring = new SpanRing();
  readonly #closed = new AbortController();
  #cancelTimer: (() => void) | undefined;
  /** The bodies that are to be sent next: those of one batch, which may have been too large for one post. */
  #bodies: Uint8Array[] = [];
  #isSending = false;
  /** Settles when the running post has ended; undefined before the first one. */
  #sending: PromiseWithResolvers<void> | undefined;
  #failures = 0;
  /** Number of spans that were dropped before the collector was too slow or away. */
  #droppedBefore = 0;
  /** The kinds of trouble that were told since the collector has last taken something. */
  readonly #told = new Set<"full" | "later" | "refused">();

  constructor(options: SpanExporterOptions) {
    this.#options = options;
  }

  /** Number of spans that wait. */
  get waiting(): number {
    return this.#ring.size;
  }

  /** Number of spans that were dropped, because too many waited. */
  get dropped(): number {
    return this.#ring.dropped;
  }

  add(span: EndedSpan): void {
    if (this.#closed.signal.aborted) return;
    if (!this.#ring.add(span)) {
      if (!this.#told.has("full")) this.#droppedBefore = this.#ring.dropped - 1;
      this.#tell("full", "Too many spans wait to be sent: the newest are dropped.");
      return;
    }
    if (this.#isSending || this.#failures > 0) return;
    if (this.#isBatchFull) this.#schedule(0);
    else if (this.#ring.size === 1) this.#schedule(this.#options.interval);
  }

  /** Sends what waits, for at most `limit` ms; afterwards, nothing is sent any more. */
  async close(limit: number): Promise<void> {
    const { clock } = this.#options;
    this.#cancelTimer?.();
    const isOver = Promise.withResolvers<void>();
    const cancelTimer = clock.after(limit, () => isOver.resolve());
    await Promise.race([this.#sendAll(), isOver.promise]);
    cancelTimer();
    this.#cancelTimer?.();
    this.#closed.abort(new Error("the hub has ended"));
  }

  #schedule(ms: number): void {
    if (this.#closed.signal.aborted) return;
    this.#cancelTimer?.();
    this.#cancelTimer = this.#options.clock.after(ms, () => void this.#send());
  }

  async #sendAll(): Promise<void> {
    const { signal } = this.#closed;
    while (this.#isSending && !signal.aborted) await this.#sending?.promise;
    while ((this.#ring.size > 0 || this.#bodies.length > 0) && !signal.aborted)
      if (!(await this.#send())) return;
  }

  /** Sends one batch, and schedules the next one. Never rejects. @returns whether the collector has taken or refused it */
  async #send(): Promise<boolean> {
    if (this.#isSending) return true;
    this.#isSending = true;
    this.#sending = Promise.withResolvers();
    let outcome: PostOutcome = { kind: "taken" };
    try {
      if (this.#bodies.length === 0) this.#bodies = await this.#nextBodies();
      for (let [body] = this.#bodies; body !== undefined; [body] = this.#bodies) {
        outcome = await this.#options.collector.post(body, this.#closed.signal);
        if (outcome.kind === "later") break;
        this.#bodies.shift();
        if (outcome.kind === "refused") break;
      }
    } catch (error) {
      // Spans that cannot be encoded are dropped.
      this.#bodies = [];
      outcome = { kind: "refused", reason: String(error) };
    }
    this.#isSending = false;
    this.#sending.resolve();
    if (this.#closed.signal.aborted) return false;
    this.#plan(outcome);
    return outcome.kind !== "later";
  }

  #plan(outcome: PostOutcome): void {
    switch (outcome.kind) {
      case "taken":
        this.#failures = 0;
        this.#told.delete("later");
        this.#told.delete("refused");
        this.#tellDropped();
        break;
      case "refused":
        this.#failures = 0;
        this.#tell("refused", `The collector does not take spans: ${outcome.reason}.`);
        break;
      case "later": {
        this.#failures++;
        this.#tell(
          "later",
          `The collector takes no spans at present: ${outcome.reason}. They are kept meanwhile, up to a limit.`,
        );
        const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(this.#failures - 1, 10));
        const jittered = wait * (1 - 0.2 * this.#options.random());
        this.#schedule(Math.max(jittered, outcome.after ?? 0));
        return;
      }
    }
    if (this.#bodies.length > 0 || this.#isBatchFull) this.#schedule(0);
    else if (this.#ring.size > 0) this.#schedule(this.#options.interval);
  }

  async #nextBodies(): Promise<Uint8Array[]> {
    const spans = this.#ring.take(MAX_BATCH).map((span) => span.toSpan());
    return spans.length === 0 ? [] : await this.#encode(spans);
  }

  /** Encodes spans; as several bodies if one would be too large. */
  async #encode(spans: readonly Span[]): Promise<Uint8Array[]> {
    const body = await this.#options.encode(spans);
    if (body.length <= MAX_BODY) return [body];
    if (spans.length === 1) throw new Error(`a span has ${count(body.length, "byte")}`);
    const half = Math.ceil(spans.length / 2);
    const first = await this.#encode(spans.slice(0, half));
    return [...first, ...(await this.#encode(spans.slice(half)))];
  }

  /** Whether so many spans wait that they are sent at once. */
  get #isBatchFull(): boolean {
    return this.#ring.size >= MAX_BATCH || this.#ring.isHeavy;
  }

  /** Says how many spans were dropped, once there is room again: with a slow collector, there is never much. */
  #tellDropped(): void {
    if (!this.#told.has("full") || this.#isBatchFull) return;
    this.#told.delete("full");
    const dropped = count(this.#ring.dropped - this.#droppedBefore, "span");
    this.#options.warn(`Too many spans waited to be sent: ${dropped} were dropped.`);
  }

  /** Warns once of each kind of trouble, until the collector takes something again. */
  #tell(kind: "full" | "later" | "refused", text: string): void {
    if (this.#told.has(kind)) return;
    this.#told.add(kind);
    this.#options.warn(text);
  }
}
