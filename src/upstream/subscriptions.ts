import type { ByteRange } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { Method } from "../protocol/legacy.ts";
import type { Notification } from "../jsonrpc/message.ts";
import { readResourceUpdated } from "../protocol/notifications.ts";
import type { Session } from "./session.ts";

export interface Subscriber {
  /** Identifies the client. A client is notified of a change only once, even if several of its subscriptions match. */
  readonly client: object;
  /**
   * Called when the resource `uri` has changed. `notice`: the server's notification, and the ranges of the URI in it.
   * Without `notice`, it is uncertain whether the resource has changed, because notifications may have been missed.
   */
  updated(uri: string, notice?: { notification: Notification; uris: readonly ByteRange[] }): void;
  /** Called when the connection is no longer used. The subscriber must ask the pool for the new connection. */
  onRetired(): void;
}

/** The characters that may follow the URI of a resource in the URI of one of its sub-resources. */
const SUB_RESOURCE_STARTS = "/?#";

interface ResourceSubscription {
  readonly subscribers: Set<Subscriber>;
  /** Whether the server has accepted the subscription. */
  isAccepted: boolean;
}

export interface SubscriptionsOptions {
  readonly clock: Clock;
  /** Returns the time limit for the server's answer, in ms. */
  timeout(): number;
  warn(text: string): void;
}

/**
 * The clients' subscriptions to resources of one server, by the server's URIs. They survive the end of a session.
 * Clients that subscribe to the same resource share one subscription at the server.
 */
export class Subscriptions {
  readonly #options: SubscriptionsOptions;
  readonly #entries = new Map<string, ResourceSubscription>();
  #session: Session | undefined;

  constructor(options: SubscriptionsOptions) {
    this.#options = options;
  }

  /** Whether clients have subscriptions. If so, the server must not be stopped as idle. */
  get isUsed(): boolean {
    return this.#entries.size > 0;
  }

  /** Adds a subscriber. @returns whether the server has already accepted the subscription */
  add(uri: string, subscriber: Subscriber): boolean {
    const entry = this.#entries.get(uri) ?? { subscribers: new Set(), isAccepted: false };
    this.#entries.set(uri, entry);
    entry.subscribers.add(subscriber);
    return entry.isAccepted;
  }

  /** Called when the server has accepted the subscription. */
  accept(uri: string): void {
    const entry = this.#entries.get(uri);
    if (entry !== undefined) entry.isAccepted = true;
  }

  /** Removes a subscriber. After the last one, unsubscribes at the server unless it has refused the subscription. */
  remove(uri: string, subscriber: Subscriber, isRefused: boolean): void {
    const entry = this.#entries.get(uri);
    if (entry?.subscribers.delete(subscriber) !== true || entry.subscribers.size > 0) return;
    this.#entries.delete(uri);
    const session = this.#session;
    if (session === undefined || (isRefused && !entry.isAccepted)) return;
    session.unsubscribe(uri);
  }

  /**
   * Subscribes to all resources again over a new session, and notifies all subscribers, because changes may have been
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

  /** Makes all subscribers ask the pool for another connection, because this connection is no longer used. */
  retire(): void {
    const subscribers = [...this.#entries.values()].flatMap((entry) => [...entry.subscribers]);
    this.#entries.clear();
    for (const subscriber of subscribers) subscriber.onRetired();
  }

  /** Notifies the subscribers of a changed resource, and the subscribers of the resources that contain it. */
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

  /** Notifies all subscribers, because changes may have been missed. */
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

/** Whether `uri` equals `whole` or is a sub-resource of it. A common prefix (`/1` and `/10`) is not enough. */
function isSameOrSubResource(uri: string, whole: string): boolean {
  if (!uri.startsWith(whole)) return false;
  const next = uri[whole.length];
  return (
    next === undefined ||
    SUB_RESOURCE_STARTS.includes(next) ||
    SUB_RESOURCE_STARTS.includes(whole.at(-1) ?? "")
  );
}
