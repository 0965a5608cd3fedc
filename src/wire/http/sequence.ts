/** How long one holds up those behind it, in ms. */
const LIMIT = 10_000;

/**
 * Messages that each go their own way over HTTP, in the order in which they were sent as far as that matters: what wants no
 * answer holds up all that comes after it until the server has it.
 */
export class Sequence<Item> {
  readonly #start: (item: Item) => void;
  readonly #waiting: { readonly item: Item; readonly holds: boolean }[] = [];
  #holder: Item | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drained: (() => void) | undefined;

  constructor(start: (item: Item) => void) {
    this.#start = start;
  }

  /** @param holds whether it holds up what comes later */
  add(item: Item, holds: boolean): void {
    if (this.#holder !== undefined) this.#waiting.push({ item, holds });
    else this.#go(item, holds);
  }

  /** The server has it, or never will. */
  settle(item: Item): void {
    const at = this.#waiting.findIndex((other) => other.item === item);
    if (at >= 0) this.#waiting.splice(at, 1);
    if (this.#holder !== item) return;
    clearTimeout(this.#timer);
    this.#holder = undefined;
    while (this.#holder === undefined) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      this.#go(next.item, next.holds);
    }
    if (this.#holder === undefined) this.#drained?.();
  }

  /** Settles when nothing is held up any more. */
  drained(): Promise<void> {
    if (this.#holder === undefined) return Promise.resolve();
    return new Promise((resolve) => (this.#drained = resolve));
  }

  #go(item: Item, holds: boolean): void {
    if (holds) {
      this.#holder = item;
      this.#timer = setTimeout(() => this.settle(item), LIMIT);
    }
    this.#start(item);
  }
}
