import type { Kind } from "../catalog/item.ts";
import type { Clock } from "../clock.ts";
import { HubError } from "../errors.ts";
import { valueOf } from "../json.ts";
import { Method } from "../protocol/legacy.ts";
import { MetaKey, ModernMethod } from "../protocol/modern.ts";
import {
  buildNotification,
  buildRequest,
  codeOf,
  type Notification,
  type Response,
} from "../wire/jsonrpc.ts";
import type { Link } from "../wire/link.ts";
import { membersOf } from "./handshake.ts";
import { readCancelled } from "./notice.ts";
import type { PendingTable } from "./pending.ts";

export interface ListeningParts {
  readonly server: string;
  readonly link: Link;
  readonly pending: PendingTable;
  readonly clock: Clock;
  /** The kinds whose changes the server tells. */
  readonly kinds: ReadonlySet<Kind>;
  /** What it tells of beside changes of lists. */
  readonly topics: ReadonlySet<Topic>;
  complete(params: object): object | undefined;
  /** Nothing was heard for a while: whatever is listened for may be another. */
  missed(): void;
  warn(text: string): void;
}

/** The server tore down what was listened on: the next one waits, ever longer unless it held for a while, in ms. */
const PAUSE = { first: 100, longest: 30_000, stable: 30_000 };
/** How long a server may take to acknowledge before it is taken to have done so, in ms. */
const PATIENCE = 10_000;

/** What is listened for by names: URIs of resources, ids of tasks. */
type Topic = (typeof TOPICS)[number];
const TOPICS = ["resourceSubscriptions", "taskIds"] as const;

/** What a server is asked to tell (basic/patterns/subscriptions). */
interface Filter extends Readonly<Partial<Record<Topic, readonly string[]>>> {
  readonly toolsListChanged?: true;
  readonly promptsListChanged?: true;
  readonly resourcesListChanged?: true;
}

interface Listen {
  readonly id: number;
  readonly filter: Filter;
}

/** Somebody who waits until the server has agreed to tell of something. */
interface Wish {
  readonly topic: Topic;
  readonly name: string;
  agree(): void;
  refuse(error: HubError): void;
}

/**
 * What one server of the modern era is listened to for: one request for all that anybody wants. Where that grows or
 * shrinks the next one is open before the last one ends, so that nothing is missed between them.
 */
export class Listening {
  readonly #parts: ListeningParts;
  readonly #names = { resourceSubscriptions: new Set<string>(), taskIds: new Set<string>() };
  /** Acknowledged, and since when. */
  #present: (Listen & { readonly since: number }) | undefined;
  /** Not acknowledged yet. */
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

  /** Listens for what becomes of that, too. @returns when the server has agreed @throws {HubError} if it does not */
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

  /** The server has said what it will tell. */
  acknowledged(notification: Notification): void {
    const { bytes, params } = notification;
    const { _meta, notifications } = membersOf(params && valueOf(bytes, params));
    const next = this.#next;
    // Some write every id as a text.
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

  /** The server does not tell any more: the one form of an end. */
  cancelled(notification: Notification): void {
    const key = readCancelled(notification)?.key;
    if (typeof key === "number" && this.#parts.pending.drop(key)) this.#ended(key);
  }

  /** The link has ended. */
  close(): void {
    this.#state = "over";
    this.#disarm();
    for (const wish of this.#wishes) wish.refuse(this.#refusal(wish.name));
  }

  /** Asks for what is wanted now, if that is something else than what was asked for; one at a time. */
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
      // Over HTTP each may be lost by itself.
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

  /** The server has closed it with an answer, or refused it. */
  #answered(id: number, response: Response): void {
    const isRefused = response.outcome === "error" && id === this.#next?.id;
    if (isRefused && codeOf(response) === METHOD_NOT_FOUND) {
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

  /** The next one holds: the last one may end. */
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

  /** The server has agreed to the rest, but not to this. */
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
