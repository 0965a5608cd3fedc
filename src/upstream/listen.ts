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
import { membersOf } from "./handshake.ts";
import { readCancelled } from "../protocol/notifications.ts";
import type { PendingTable } from "./pending.ts";

export interface ListeningParts {
  readonly server: string;
  readonly link: Transport;
  readonly pending: PendingTable;
  readonly clock: Clock;
  /** The kinds for which the server sends `list_changed`. */
  readonly kinds: ReadonlySet<Kind>;
  /** The filter keys beside those of lists that the server supports. */
  readonly topics: ReadonlySet<Topic>;
  complete(params: object): object | undefined;
  /** There was a gap between two subscriptions: notifications may have been missed. */
  missed(): void;
  warn(text: string): void;
}

/**
 * The delay before a subscription that the server has ended is opened again, in ms: doubled each time from `min` to
 * `max`, reset once one has lasted `resetAfter`.
 */
const PAUSE = { first: 100, longest: 30_000, stable: 30_000 };
/** A server that has not acknowledged within this time, in ms, is taken to have done so. */
const PATIENCE = 10_000;

/** Filter keys that have names: URIs of resources, ids of tasks. */
type Topic = (typeof TOPICS)[number];
const TOPICS = ["resourceSubscriptions", "taskIds"] as const;

/** The `notifications` filter of `subscriptions/listen` (basic/patterns/subscriptions). */
interface Filter extends Readonly<Partial<Record<Topic, readonly string[]>>> {
  readonly toolsListChanged?: true;
  readonly promptsListChanged?: true;
  readonly resourcesListChanged?: true;
}

interface Listen {
  readonly id: number;
  readonly filter: Filter;
}

/** A caller that waits until the server has accepted one name. */
interface Wish {
  readonly topic: Topic;
  readonly name: string;
  agree(): void;
  refuse(error: HubError): void;
}

/**
 * The `subscriptions/listen` request to one modern server, for everything that is subscribed to. When the filter
 * changes, a new request is acknowledged before the old one is cancelled, so that nothing is missed between them.
 */
export class Listening {
  readonly #parts: ListeningParts;
  readonly #names = { resourceSubscriptions: new Set<string>(), taskIds: new Set<string>() };
  /** The acknowledged request; `since` in ms of the clock. */
  #present: (Listen & { readonly since: number }) | undefined;
  /** The request that is not acknowledged yet. */
  #next: Listen | undefined;
  readonly #wishes = new Set<Wish>();
  #state: "new" | "open" | "over" = "new";
  #hasGap = false;
  #pause = 0;
  #isPausing = false;
  #disarm: () => void = () => {};

  constructor(parts: ListeningParts) {
    this.#parts = parts;
  }

  begin(): void {
    this.#state = "open";
    this.#adjust();
  }

  /**
   * Adds a name to the filter.
   * @returns a promise that settles when the server has accepted it
   * @throws {HubError} if it does not
   */
  add(topic: Topic, name: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const isNever = this.#state === "over" || !this.#parts.topics.has(topic);
      if (isNever || signal.aborted) {
        reject(signal.aborted ? signal.reason : this.#refusal(name));
        return;
      }
      const end = <T>(finish: (value: T) => void, value: T): void => {
        this.#wishes.delete(wish);
        signal.removeEventListener("abort", abort);
        finish(value);
      };
      const abort = (): void => end(reject, signal.reason);
      const wish: Wish = {
        topic,
        name,
        agree: () => end(resolve, undefined),
        refuse: (error) => end(reject, error),
      };
      signal.addEventListener("abort", abort);
      this.#wishes.add(wish);
      this.#names[topic].add(name);
      this.#adjust();
      if (this.#present !== undefined) this.#grant(this.#present);
    });
  }

  remove(topic: Topic, name: string): void {
    if (this.#names[topic].delete(name)) this.#adjust();
  }

  /** Handles `notifications/subscriptions/acknowledged`. */
  acknowledged(notification: Notification): void {
    const { bytes, params } = notification;
    const { _meta, notifications } = membersOf(params && parseRange(bytes, params));
    const next = this.#next;
    // Some servers write every id as a string.
    const id = membersOf(_meta)[MetaKey.subscription];
    if (next === undefined || String(id) !== String(next.id)) return;
    this.#replace(next);
    for (const topic of TOPICS) {
      const honoured = membersOf(notifications)[topic];
      for (const name of next.filter[topic] ?? []) {
        if (Array.isArray(honoured) && !honoured.includes(name)) this.#refuse(topic, name);
      }
    }
    this.#grant(next);
    this.#adjust();
  }

  /** Handles `notifications/cancelled`: the server has ended the subscription. */
  cancelled(notification: Notification): void {
    const key = readCancelled(notification)?.key;
    if (typeof key === "number" && this.#parts.pending.drop(key)) this.#ended(key);
  }

  /** The transport has ended. */
  close(): void {
    this.#state = "over";
    this.#disarm();
    for (const wish of this.#wishes) wish.refuse(this.#refusal(wish.name));
  }

  /** Opens a new request if the filter has changed; one at a time. */
  #adjust(): void {
    if (this.#state !== "open" || this.#next !== undefined || this.#isPausing) return;
    const filter = this.#filter();
    if (isSame(filter, this.#present?.filter ?? {})) return;
    if (isSame(filter, {})) this.#drop(this.#present);
    else this.#listen(filter);
  }

  #filter(): Filter {
    const { kinds } = this.#parts;
    const names = TOPICS.map((topic) => [topic, [...this.#names[topic]].sort()] as const);
    return {
      ...(kinds.has("tools") && { toolsListChanged: true }),
      ...(kinds.has("prompts") && { promptsListChanged: true }),
      ...(kinds.has("resources") && { resourcesListChanged: true }),
      ...Object.fromEntries(names.filter(([, some]) => some.length > 0)),
    };
  }

  #listen(filter: Filter): void {
    const { pending, clock } = this.#parts;
    const id = pending.nextId();
    const next = { id, filter };
    this.#next = next;
    const method = ModernMethod.listen;
    const record = {
      method,
      settle: (response: Response) => this.#answered(id, response),
      // Over HTTP each request may be lost by itself.
      fail: () => this.#ended(id),
      progress: () => {},
    };
    pending.send(
      id,
      record,
      buildRequest(id, method, this.#parts.complete({ notifications: filter })),
    );
    this.#disarm = clock.after(PATIENCE, () => {
      this.#replace(next);
      this.#grant(next);
      this.#adjust();
    });
  }

  /** A response ends the subscription, or refuses it. */
  #answered(id: number, response: Response): void {
    const isRefused = response.outcome === "error" && id === this.#next?.id;
    if (isRefused && errorCodeOf(response) === METHOD_NOT_FOUND) {
      this.#parts.warn("It does not tell of changes, although it says so.");
      this.close();
      return;
    }
    this.#ended(id);
  }

  #ended(id: number): void {
    const { clock } = this.#parts;
    if (id === this.#present?.id) {
      if (clock.now() - this.#present.since >= PAUSE.stable) this.#pause = 0;
      this.#present = undefined;
      this.#hasGap = true;
    } else if (id === this.#next?.id) {
      this.#next = undefined;
      this.#hasGap ||= this.#present === undefined;
      this.#disarm();
    } else {
      return;
    }
    if (this.#isPausing || this.#next !== undefined || this.#state !== "open") return;
    this.#pause = Math.min(Math.max(this.#pause * 2, PAUSE.first), PAUSE.longest);
    this.#isPausing = true;
    this.#disarm = clock.after(this.#pause, () => {
      this.#isPausing = false;
      this.#adjust();
    });
  }

  /** Makes the new request the current one and cancels the old one. */
  #replace(next: Listen): void {
    this.#disarm();
    const last = this.#present;
    this.#next = undefined;
    this.#present = { ...next, since: this.#parts.clock.now() };
    if (last !== undefined) this.#cancel(last);
    if (!this.#hasGap) return;
    this.#hasGap = false;
    this.#parts.missed();
  }

  #grant({ filter }: Listen): void {
    for (const wish of this.#wishes) {
      if (filter[wish.topic]?.includes(wish.name) === true) wish.agree();
    }
  }

  /** The server has not accepted this name. */
  #refuse(topic: Topic, name: string): void {
    const error = this.#refusal(name);
    this.#names[topic].delete(name);
    this.#parts.warn(error.message);
    for (const wish of this.#wishes) {
      if (wish.topic === topic && wish.name === name) wish.refuse(error);
    }
  }

  #drop(listen: Listen | undefined): void {
    this.#present = undefined;
    if (listen !== undefined) this.#cancel(listen);
  }

  #cancel({ id }: Listen): void {
    const { pending, link } = this.#parts;
    const isHeard = pending.drop(id) !== undefined && link.hasStreams !== true;
    if (isHeard) link.send(buildNotification(Method.cancelled, { requestId: id }));
  }

  #refusal(name: string): HubError {
    const { server } = this.#parts;
    const text = `Server "${server}" does not tell of changes of "${name}".`;
    return new HubError("methodNotFound", text, { server });
  }
}

const METHOD_NOT_FOUND = -32601;

function isSame(a: Filter, b: Filter): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
