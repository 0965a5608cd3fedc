import type { ByteRange } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { Method } from "../protocol/legacy.ts";
import type { Notification } from "../jsonrpc/message.ts";
import { readResourceUpdated } from "../protocol/notifications.ts";
import type { Session } from "./session.ts";

/** A subscriber to a resource. */
export interface Subscriber {
  /** Identifies the client: a client with several subscriptions that match is notified only once per change. */
  readonly client: object;
  /**
   * The resource `uri` has changed. `notice` is the server's notification with the ranges of the URI in it; without it,
   * the resource may have changed, because notifications may have been missed.
   */
  updated(uri: string, notice?: { notification: Notification; uris: readonly ByteRange[] }): void;
  /** The connection is no longer used: the subscriber has to ask the pool for the one that replaces it. */
  onRetired(): void;
}

/** The characters with which the rest of a sub-resource's URI may begin. */
const SUB_RESOURCE_STARTS = "/?#";

interface ResourceSubscription {
  readonly subscribers: Set<Subscriber>;
  /** The server has accepted the subscription. */
  isAccepted: boolean;
}

export interface SubscriptionsOptions {
  readonly clock: Clock;
  /** Maximum time for the server's answer, in ms. */
  timeout(): number;
  warn(text: string): void;
}

/**
 * The clients' subscriptions to resources of one server, by the server's URIs. Outlives sessions. All clients that
 * subscribe to a resource share one subscription at the server.
 */
export class Subscriptions {
  readonly #options: SubscriptionsOptions;
  readonly #entries = new Map<string, ResourceSubscription>();
  #session: Session | undefined;

  constructor(options: SubscriptionsOptions) {
    this.#options = options;
  }

  /** Whether clients have subscriptions, so that the server must not be stopped as idle. */
  get isUsed(): boolean {
    return this.#entries.size > 0;
  }

  /** Adds a subscriber. @returns whether the server has already confirmed the subscription */
  add(uri: string, subscriber: Subscriber): boolean {
    const entry = this.#entries.get(uri) ?? { subscribers: new Set(), isAccepted: false };
    this.#entries.set(uri, entry);
    entry.subscribers.add(subscriber);
    return entry.isAccepted;
  }

  /** The server has confirmed the subscription. */
  accept(uri: string): void {
    const entry = this.#entries.get(uri);
    if (entry !== undefined) entry.isAccepted = true;
  }

  /**
   * Removes a subscriber. After the last one, unsubscribes at the server, unless the server has refused the
   * subscription.
   */
  remove(uri: string, subscriber: Subscriber, isRefused: boolean): void {
    const entry = this.#entries.get(uri);
    if (entry?.subscribers.delete(subscriber) !== true || entry.subscribers.size > 0) return;
    this.#entries.delete(uri);
    const session = this.#session;
    if (session === undefined || (isRefused && !entry.isAccepted)) return;
    session.unsubscribe(uri);
  }

  /**
   * A new session is open: subscribes to everything again and notifies all subscribers, as changes may have been
   * missed.
   */
  attach(session: Session): void {
    this.#session = session;
    for (const uri of this.#entries.keys()) void this.#restore(session, uri);
  }

  detach(): void {
    this.#session = undefined;
    for (const entry of this.#entries.values()) entry.isAccepted = false;
  }

  /** The connection is no longer used: all subscribers ask the pool for the one that replaces it. */
  retire(): void {
    const subscribers = [...this.#entries.values()].flatMap((entry) => [...entry.subscribers]);
    this.#entries.clear();
    for (const subscriber of subscribers) subscriber.onRetired();
  }

  /** The server announces a change of a resource: one with subscribers, or a sub-resource of one. */
  onUpdated(notification: Notification): void {
    const found = readResourceUpdated(notification);
    if (found === undefined) return;
    const { uri, uris } = found;
    const notified = new Map<object, { subscriber: Subscriber; length: number }>();
    for (const [subscribedUri, { subscribers }] of this.#entries) {
      if (!isSameOrSubResource(uri, subscribedUri)) continue;
      for (const subscriber of subscribers) {
        const { length = -1 } = notified.get(subscriber.client) ?? {};
        if (subscribedUri.length > length)
          notified.set(subscriber.client, { subscriber, length: subscribedUri.length });
      }
    }
    for (const { subscriber } of notified.values()) subscriber.updated(uri, { notification, uris });
  }

  /** Changes may have been missed: notifies all subscribers. */
  onGap(): void {
    for (const [uri, { subscribers }] of this.#entries) {
      for (const subscriber of subscribers) subscriber.updated(uri);
    }
  }

  async #restore(session: Session, uri: string): Promise<void> {
    try {
      await this.#subscribe(session, uri);
      if (session === this.#session) this.accept(uri);
    } catch (error) {
      if (session !== this.#session) return;
      const reason = toHubError(error).message;
      this.#options.warn(`The subscription to "${uri}" could not be restored: ${reason}`);
    }
    if (session !== this.#session) return;
    for (const subscriber of this.#entries.get(uri)?.subscribers ?? []) subscriber.updated(uri);
  }

  async #subscribe(session: Session, uri: string): Promise<void> {
    const { clock } = this.#options;
    const abort = new AbortController();
    const text = `Server "${session.server}" did not answer "${Method.subscribe}" in time.`;
    const timeoutError = new HubError("callTimeout", text, { server: session.server });
    const cancelTimer = clock.after(this.#options.timeout(), () => abort.abort(timeoutError));
    try {
      await session.subscribe(uri, abort.signal);
    } finally {
      cancelTimer();
    }
  }
}

/** Whether a URI equals another or is a sub-resource of it. A common prefix (`/1` and `/10`) is not enough. */
function isSameOrSubResource(uri: string, whole: string): boolean {
  if (!uri.startsWith(whole)) return false;
  const next = uri[whole.length];
  return (
    next === undefined ||
    SUB_RESOURCE_STARTS.includes(next) ||
    SUB_RESOURCE_STARTS.includes(whole.at(-1) ?? "")
  );
}
