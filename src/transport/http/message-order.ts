/**
 * Time limit in ms for a closing HTTP transport to send its queued messages. The same limit applies again to the DELETE
 * request that ends the session.
 */
export const CLOSE_TIMEOUT = 600;
/** Maximum time in ms for which later messages wait until the server accepts a notification. */
const HOLD_TIMEOUT = 10_000;

/**
 * Keeps messages in order although each has its own HTTP request. The next notification is sent when the server has
 * accepted the previous one. Requests wait for the first notification only (`notifications/initialized`).
 */
export class MessageOrder<Item> {
  readonly #start: (item: Item) => void;
  readonly #notifications = new Set<Item>();
  readonly #requests = new Set<Item>();
  #current: Item | undefined;
  #isFirstSettled = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drained: PromiseWithResolvers<void> | undefined;

  constructor(start: (item: Item) => void) {
    this.#start = start;
  }

  /** @param isNotification whether no response to the message is expected */
  add(item: Item, isNotification: boolean): void {
    if (this.#current === undefined) this.#startItem(item, isNotification);
    else if (isNotification) this.#notifications.add(item);
    else if (this.#isFirstSettled) this.#start(item);
    else this.#requests.add(item);
  }

  /**
   * Sends the messages that waited for `item`. Called when the server has accepted `item`, has failed to accept it, or
   * has taken longer than `HOLD_TIMEOUT`.
   */
  settle(item: Item): void {
    this.#notifications.delete(item);
    this.#requests.delete(item);
    if (this.#current !== item) return;
    clearTimeout(this.#timer);
    this.#current = undefined;
    this.#isFirstSettled = true;
    for (const next of this.#notifications) {
      this.#notifications.delete(next);
      this.#startItem(next, true);
      break;
    }
    for (const next of this.#requests) {
      this.#requests.delete(next);
      this.#start(next);
    }
    if (this.#current === undefined) this.#drained?.resolve();
  }

  /** Resolves when the server has accepted all notifications, or when this takes too long. */
  drained(): Promise<void> {
    if (this.#current === undefined) return Promise.resolve();
    this.#drained ??= Promise.withResolvers<void>();
    return this.#drained.promise;
  }

  #startItem(item: Item, isNotification: boolean): void {
    if (isNotification) {
      this.#current = item;
      this.#timer = setTimeout(() => this.settle(item), HOLD_TIMEOUT);
    }
    this.#start(item);
  }
}
