import type { Kind } from "../catalog/listing.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { parseRange } from "../base/json.ts";
import { Method } from "../protocol/legacy.ts";
import { MetaKey, ModernMethod } from "../protocol/modern.ts";
import {
  buildNotification,
  buildRequest,
  errorCodeOf,
  type Notification,
  type Response,
} from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import { membersOf, type ServerHandshake } from "./handshake-result.ts";
import { readCancelled } from "../protocol/notifications.ts";
import type { PendingRequests } from "./pending.ts";

export interface ListenSubscriptionOptions {
  readonly server: string;
  readonly transport: Transport;
  readonly pending: PendingRequests;
  readonly clock: Clock;
  completeParams(params: object): object;
  /** Called after a gap between subscriptions: changes of resources and of lists of `kinds` may have been missed. */
  onGap(kinds: readonly Kind[]): void;
  warn(text: string): void;
}

/**
 * The delay before the hub subscribes again after the server has ended the subscription, in ms. It doubles each time,
 * from `min` up to `max`, and starts again at `min` when a subscription has lasted `resetAfter` ms.
 */
const REOPEN_DELAY = { min: 100, max: 30_000, resetAfter: 30_000 };
/** Time without an answer of the server after which the subscription is treated as acknowledged, in ms. */
const ACKNOWLEDGE_TIMEOUT = 10_000;

/** The members of the filter that contain names, which are URIs of resources or ids of tasks. */
type FilterKey = (typeof FILTER_KEYS)[number];
const FILTER_KEYS = ["resourceSubscriptions", "taskIds"] as const;
const FEATURE_OF_FILTER_KEY = { resourceSubscriptions: "subscriptions", taskIds: "tasks" } as const;

/** The `notifications` filter of `subscriptions/listen` (basic/patterns/subscriptions). */
interface ListenFilter extends Readonly<Partial<Record<FilterKey, readonly string[]>>> {
  readonly toolsListChanged?: true;
  readonly promptsListChanged?: true;
  readonly resourcesListChanged?: true;
}

interface ListenRequest {
  readonly id: number;
  readonly filter: ListenFilter;
}

/** A caller that waits until the server has accepted the subscription to one resource or task. */
interface NameWaiter {
  readonly filterKey: FilterKey;
  readonly name: string;
  resolve(): void;
  reject(error: HubError): void;
}

/**
 * All subscriptions at a modern server, as one `subscriptions/listen` request. When the filter changes, the hub sends a
 * new request. It cancels the old request only after the server has acknowledged the new one, so that no notification
 * is missed.
 */
export class ListenSubscription {
  readonly #options: ListenSubscriptionOptions;
  /** The kinds for which the server sends `list_changed`. */
  readonly #announcedKinds: ReadonlySet<Kind>;
  readonly #filterKeys: ReadonlySet<FilterKey>;
  readonly #names = { resourceSubscriptions: new Set<string>(), taskIds: new Set<string>() };
  /** The acknowledged request. `since` is in ms of the clock. */
  #active: (ListenRequest & { readonly since: number }) | undefined;
  #opening: ListenRequest | undefined;
  readonly #waiters = new Set<NameWaiter>();
  #state: "new" | "open" | "closed" = "new";
  #hasGap = false;
  #reopenDelay = 0;
  #isWaitingToReopen = false;
  #cancelTimer: () => void = () => {};

  constructor(
    { announcedKinds, features }: Pick<ServerHandshake, "announcedKinds" | "features">,
    options: ListenSubscriptionOptions,
  ) {
    this.#options = options;
    this.#announcedKinds = announcedKinds;
    this.#filterKeys = new Set(
      FILTER_KEYS.filter((key) => features.has(FEATURE_OF_FILTER_KEY[key])),
    );
  }

  begin(): void {
    this.#state = "open";
    this.#update();
  }

  /**
   * Adds a name (a URI or task id) to the filter.
   * @returns a promise that resolves when the server has accepted the name
   * @throws {HubError} if the server does not accept it
   */
  add(filterKey: FilterKey, name: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const isUnsupported = this.#state === "closed" || !this.#filterKeys.has(filterKey);
      if (isUnsupported || signal.aborted) {
        reject(signal.aborted ? signal.reason : this.#unsupportedError(name));
        return;
      }
      const settle = <T>(finish: (value: T) => void, value: T): void => {
        this.#waiters.delete(waiter);
        signal.removeEventListener("abort", abort);
        finish(value);
      };
      const abort = (): void => settle(reject, signal.reason);
      const waiter: NameWaiter = {
        filterKey,
        name,
        resolve: () => settle(resolve, undefined),
        reject: (error) => settle(reject, error),
      };
      signal.addEventListener("abort", abort);
      this.#waiters.add(waiter);
      this.#names[filterKey].add(name);
      this.#update();
      if (this.#active !== undefined) this.#resolveWaiters(this.#active);
    });
  }

  remove(filterKey: FilterKey, name: string): void {
    if (this.#names[filterKey].delete(name)) this.#update();
  }

  /** Handles `notifications/subscriptions/acknowledged`. */
  onAcknowledged(notification: Notification): void {
    const { bytes, params } = notification;
    const { _meta, notifications } = membersOf(params && parseRange(bytes, params));
    const opening = this.#opening;
    // The ids are compared as strings, because some servers return a numeric request id as a string.
    const id = membersOf(_meta)[MetaKey.subscription];
    if (opening === undefined || String(id) !== String(opening.id)) return;
    this.#activate(opening);
    for (const filterKey of FILTER_KEYS) {
      const acceptedNames = membersOf(notifications)[filterKey];
      for (const name of opening.filter[filterKey] ?? []) {
        if (Array.isArray(acceptedNames) && !acceptedNames.includes(name))
          this.#rejectName(filterKey, name);
      }
    }
    this.#resolveWaiters(opening);
    this.#update();
  }

  /** Handles `notifications/cancelled`, with which the server ends the subscription. */
  onCancelled(notification: Notification): void {
    const key = readCancelled(notification)?.key;
    if (typeof key === "number" && this.#options.pending.abandon(key)) this.#onEnd(key);
  }

  /**
   * Ends the subscription for good and rejects all waiters, because the transport has closed or the server refuses
   * subscriptions.
   */
  close(): void {
    this.#state = "closed";
    this.#cancelTimer();
    for (const waiter of this.#waiters) waiter.reject(this.#unsupportedError(waiter.name));
  }

  /** Sends a new request if the filter has changed, unless another request still awaits its acknowledgement. */
  #update(): void {
    if (this.#state !== "open" || this.#opening !== undefined || this.#isWaitingToReopen) return;
    const filter = this.#currentFilter();
    if (isSameFilter(filter, this.#active?.filter ?? {})) return;
    if (isSameFilter(filter, {})) this.#endActive(this.#active);
    else this.#open(filter);
  }

  #currentFilter(): ListenFilter {
    const announcedKinds = this.#announcedKinds;
    const names = FILTER_KEYS.map(
      (filterKey) => [filterKey, [...this.#names[filterKey]].sort()] as const,
    );
    return {
      ...(announcedKinds.has("tools") && { toolsListChanged: true }),
      ...(announcedKinds.has("prompts") && { promptsListChanged: true }),
      ...(announcedKinds.has("resources") && { resourcesListChanged: true }),
      ...Object.fromEntries(names.filter(([, some]) => some.length > 0)),
    };
  }

  #open(filter: ListenFilter): void {
    const { pending, clock } = this.#options;
    const id = pending.nextId();
    const opening = { id, filter };
    this.#opening = opening;
    const method = ModernMethod.listen;
    const record = {
      method,
      onResponse: (response: Response) => this.#onResponse(id, response),
      // Over HTTP the request may be lost although the transport stays open.
      fail: () => this.#onEnd(id),
      onProgress: () => {},
    };
    pending.send(
      id,
      record,
      buildRequest(id, method, this.#options.completeParams({ notifications: filter })),
    );
    this.#cancelTimer = clock.after(ACKNOWLEDGE_TIMEOUT, () => {
      this.#activate(opening);
      this.#resolveWaiters(opening);
      this.#update();
    });
  }

  /** Handles a response to `subscriptions/listen`, which ends or refuses the subscription. */
  #onResponse(id: number, response: Response): void {
    const isRefused = response.outcome === "error" && id === this.#opening?.id;
    if (isRefused && errorCodeOf(response) === METHOD_NOT_FOUND) {
      this.#options.warn("It declares change notifications, but refuses the subscription to them.");
      this.close();
      return;
    }
    this.#onEnd(id);
  }

  #onEnd(id: number): void {
    const { clock } = this.#options;
    if (id === this.#active?.id) {
      if (clock.now() - this.#active.since >= REOPEN_DELAY.resetAfter) this.#reopenDelay = 0;
      this.#active = undefined;
      this.#hasGap = true;
    } else if (id === this.#opening?.id) {
      this.#opening = undefined;
      this.#hasGap ||= this.#active === undefined;
      this.#cancelTimer();
    } else {
      return;
    }
    if (this.#isWaitingToReopen || this.#opening !== undefined || this.#state !== "open") return;
    this.#reopenDelay = Math.min(
      Math.max(this.#reopenDelay * 2, REOPEN_DELAY.min),
      REOPEN_DELAY.max,
    );
    this.#isWaitingToReopen = true;
    this.#cancelTimer = clock.after(this.#reopenDelay, () => {
      this.#isWaitingToReopen = false;
      this.#update();
    });
  }

  /** Makes the acknowledged request the current one and cancels the previous one. */
  #activate(request: ListenRequest): void {
    this.#cancelTimer();
    const previous = this.#active;
    this.#opening = undefined;
    this.#active = { ...request, since: this.#options.clock.now() };
    if (previous !== undefined) this.#cancel(previous);
    if (!this.#hasGap) return;
    this.#hasGap = false;
    this.#options.onGap([...this.#announcedKinds]);
  }

  #resolveWaiters({ filter }: ListenRequest): void {
    for (const waiter of this.#waiters) {
      if (filter[waiter.filterKey]?.includes(waiter.name) === true) waiter.resolve();
    }
  }

  /** Removes from the filter a name that the server has not accepted, and rejects the callers that wait for it. */
  #rejectName(filterKey: FilterKey, name: string): void {
    const error = this.#unsupportedError(name);
    this.#names[filterKey].delete(name);
    this.#options.warn(error.message);
    for (const waiter of this.#waiters) {
      if (waiter.filterKey === filterKey && waiter.name === name) waiter.reject(error);
    }
  }

  #endActive(request: ListenRequest | undefined): void {
    this.#active = undefined;
    if (request !== undefined) this.#cancel(request);
  }

  #cancel({ id }: ListenRequest): void {
    const { pending, transport } = this.#options;
    const needsCancel = pending.abandon(id) !== undefined && transport.hasStreams !== true;
    if (needsCancel) transport.send(buildNotification(Method.cancelled, { requestId: id }));
  }

  #unsupportedError(name: string): HubError {
    const { server } = this.#options;
    const text = `Server "${server}" does not notify clients of changes of "${name}".`;
    return new HubError("methodNotFound", text, { server });
  }
}

const METHOD_NOT_FOUND = -32601;

function isSameFilter(a: ListenFilter, b: ListenFilter): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
