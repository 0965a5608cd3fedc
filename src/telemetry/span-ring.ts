import type { EndedSpan } from "./span.ts";

/** Maximum number of spans that wait to be sent. */
export const MAX_WAITING_SPANS = 8192;
/** Maximum size of the arguments and results of these spans, in characters. */
const MAX_CONTENT = 4 * 1024 * 1024;

/** Size of arguments and results from which on no more spans are taken out together, in characters. */
const MAX_TAKEN_CONTENT = 256 * 1024;

/** The spans that wait to be sent, oldest first. While it is full, new ones are dropped. */
export class SpanRing {
  readonly #spans: (EndedSpan | undefined)[] = [];
  #first = 0;
  #size = 0;
  #contentSize = 0;
  #dropped = 0;

  get size(): number {
    return this.#size;
  }

  /** Whether the arguments and results of the spans are so large that they need not wait for more. */
  get isHeavy(): boolean {
    return this.#contentSize >= MAX_TAKEN_CONTENT;
  }

  /** Number of spans that were dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Adds a span. @returns whether there was room */
  add(span: EndedSpan): boolean {
    const { contentSize } = span;
    if (
      this.#size >= MAX_WAITING_SPANS ||
      (contentSize > 0 && this.#contentSize + contentSize > MAX_CONTENT)
    ) {
      this.#dropped++;
      return false;
    }
    this.#spans[(this.#first + this.#size) % MAX_WAITING_SPANS] = span;
    this.#size++;
    this.#contentSize += contentSize;
    return true;
  }

  /** Takes the oldest spans out: at most `most`, and as few as their arguments and results need to be sent together. */
  take(most: number): readonly EndedSpan[] {
    const taken: EndedSpan[] = [];
    const rest = Math.max(0, this.#contentSize - MAX_TAKEN_CONTENT);
    for (; taken.length < most && this.#size > 0; this.#size--) {
      if (this.#contentSize < rest) break;
      const span = this.#spans[this.#first];
      this.#spans[this.#first] = undefined;
      this.#first = (this.#first + 1) % MAX_WAITING_SPANS;
      if (span === undefined) continue;
      this.#contentSize -= span.contentSize;
      taken.push(span);
    }
    return taken;
  }
}
