import { type Deferred, deferred } from "../../base/deferred.ts";

/**
 * Time limit when an `HttpVariant` closes, in ms: for sending what is queued, and again for the DELETE of the session.
 */
export const CLOSE_TIMEOUT = 600;
/** How long a message may delay the following ones, in ms. */
const HOLD_TIMEOUT = 10_000;

/**
 * Keeps messages that are sent in separate HTTP requests in order where order matters: a notification is sent when the
 * server has accepted the previous one, and requests wait for the first notification (`notifications/initialized`).
 */
export class MessageOrder<Item> {
  readonly #start: (item: Item) => void;
  /** Notifications to be sent. */
  readonly #notifications = new Set<Item>();
  /** Requests that wait for the first notification. */
  readonly #requests = new Set<Item>();
  #current: Item | undefined;
  #isFirstSettled = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drained: Deferred<void> | undefined;

  constructor(start: (item: Item) => void) {
    this.#start = start;
  }

  /** @param isNotification whether the message is a notification or response, which expects no response */
  add(item: Item, isNotification: boolean): void {
    if (this.#current === undefined) this.#startItem(item, isNotification);
    else if (isNotification) this.#notifications.add(item);
    else if (this.#isFirstSettled) this.#start(item);
    else this.#requests.add(item);
  }

  /** The server has accepted the message, or will not accept it any more. */
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

  /** Resolves when all notifications are sent and the server has accepted the last one, or takes too long to. */
  drained(): Promise<void> {
    if (this.#current === undefined) return Promise.resolve();
    this.#drained ??= deferred();
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
