/** How long a message may hold up the next ones, in ms. */
const LIMIT = 10_000;

/**
 * Keeps messages in order that are sent in separate HTTP requests, as far as order matters: a notification is sent when
 * the server has taken the previous one; and requests wait for the first notification (`notifications/initialized`).
 */
export class MessageOrder<Item> {
  readonly #start: (item: Item) => void;
  /** Notifications to be sent. */
  readonly #waiting = new Set<Item>();
  /** Requests that wait for the first notification. */
  readonly #held = new Set<Item>();
  #holder: Item | undefined;
  #isMet = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drained: (() => void) | undefined;

  constructor(start: (item: Item) => void) {
    this.#start = start;
  }

  /** @param isTold whether the message is a notification or response, which expects no response */
  add(item: Item, isTold: boolean): void {
    if (this.#holder === undefined) this.#go(item, isTold);
    else if (isTold) this.#waiting.add(item);
    else if (this.#isMet) this.#start(item);
    else this.#held.add(item);
  }

  /** The server has taken the message, or never will. */
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

  /** Resolves when no message waits. */
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
