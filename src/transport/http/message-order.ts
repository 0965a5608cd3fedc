/** How long one holds up those behind it, in ms. */
const LIMIT = 10_000;

/**
 * Messages that each go their own way over HTTP, in the order in which they were sent as far as that matters: what wants no
 * answer goes out when the server has what went out so before, and the first of that, which says that the server was met, holds
 * up requests as well.
 */
export class MessageOrder<Item> {
  readonly #start: (item: Item) => void;
  /** What wants no answer. */
  readonly #waiting = new Set<Item>();
  /** Requests that must not come before the first of that. */
  readonly #held = new Set<Item>();
  #holder: Item | undefined;
  #isMet = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drained: (() => void) | undefined;

  constructor(start: (item: Item) => void) {
    this.#start = start;
  }

  /** @param isTold whether it wants no answer */
  add(item: Item, isTold: boolean): void {
    if (this.#holder === undefined) this.#go(item, isTold);
    else if (isTold) this.#waiting.add(item);
    else if (this.#isMet) this.#start(item);
    else this.#held.add(item);
  }

  /** The server has it, or never will. */
  settle(item: Item): void {
    this.#waiting.delete(item);
    this.#held.delete(item);
    if (this.#holder !== item) return;
    clearTimeout(this.#timer);
    this.#holder = undefined;
    this.#isMet = true;
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      this.#go(next, true);
      break;
    }
    for (const next of this.#held) {
      this.#held.delete(next);
      this.#start(next);
    }
    if (this.#holder === undefined) this.#drained?.();
  }

  /** Settles when nothing is held up any more. */
  drained(): Promise<void> {
    if (this.#holder === undefined) return Promise.resolve();
    return new Promise((resolve) => (this.#drained = resolve));
  }

  #go(item: Item, isTold: boolean): void {
    if (isTold) {
      this.#holder = item;
      this.#timer = setTimeout(() => this.settle(item), LIMIT);
    }
    this.#start(item);
  }
}
