import type { Buffer } from "node:buffer";
import type { Edit, Range } from "../bytes.ts";
import { HubError } from "../errors.ts";
import type { Severity } from "../protocol/severity.ts";
import { Register } from "../register.ts";
import { readEdges } from "../wire/frame.ts";
import { buildRequest, type Message, type Notification, type Response } from "../wire/jsonrpc.ts";
import type { Exchange, Link, Outgoing } from "../wire/link.ts";
import { PIPE_EXCHANGE } from "../wire/memory.ts";
import type { Occasion } from "./audience.ts";
import type { Sender } from "./sender.ts";

/** A request in flight to a server: the one record of it, in the session's table until one of the two ends. */
export interface Pending extends Outgoing {
  /** It is a client's request; absent on the hub's own. */
  readonly isRelayed?: true;
  /** Whose it is; absent on the hub's own. */
  readonly sender?: Sender;
  /** The server may make a task of it. */
  readonly isTask?: boolean;
  /** The way to its client; absent on the hub's own. Looked for only where a link has streams. */
  readonly occasion?: Occasion;
  /** The headers that repeat its arguments. Looked for only where a server of the modern era is reached over HTTP. */
  readonly mirrored?: Readonly<Record<string, string>> | undefined;
  /** The server answered. */
  settle(response: Response): void;
  /** No answer will come. */
  fail(error: HubError): void;
  /** The server reports progress; `tokens` are the ranges of its token in the notification's bytes. */
  progress(notification: Notification, tokens: readonly Range[]): void;
  /** The server has a line of its log for whoever asked. */
  log?(severity: Severity, message: Message): void;
  /** The server waits for an answer of a client, so that its own is not late; or it does no longer. */
  halt?(halted: boolean): void;
}

/** What has to be replaced in a client's request, beside its id. The session adds to `edits` what is its own. */
export interface Rewrite {
  readonly edits: Edit[];
  /** The values of `params._meta.progressToken`, each to be replaced by a token of the session's own. */
  readonly tokens: readonly Range[];
}

/** A server that has not taken this many bytes gets no more requests. */
const MAX_BACKLOG = 128 * 1024 * 1024;

/** The requests in flight over one link: the ids are given out here, and every way out of the table is here. */
export class PendingTable {
  readonly #server: string;
  readonly #link: Link;
  readonly #lost: (record: Pending) => void;
  readonly #records = new Register<Pending>();
  /** By the same ids, where each has one of its own: over a pipe this stays empty, and a call costs no more than its record. */
  readonly #exchanges = new Register<Exchange>();
  #nextId = 1;
  /** Who waits until no client's request is in flight. */
  readonly #quieted: (() => void)[] = [];
  /** Why nothing is in flight any more. */
  ended: HubError | undefined;
  /** What clients' requests repeat in headers is wanted. */
  isMirrored = false;
  #isHalted = false;

  /** @param lost told of a request that ends without an answer while the link lives */
  constructor(server: string, link: Link, lost: (record: Pending) => void) {
    this.#server = server;
    this.#link = link;
    this.#lost = lost;
  }

  get(id: number): Pending | undefined {
    return this.#records.get(id);
  }

  /** The request on whose stream something came; undefined if it is over. */
  at(exchange: Exchange): Pending | undefined {
    for (const [id, own] of this.#exchanges.entries())
      if (own === exchange) return this.#records.get(id);
    return undefined;
  }

  /** How many of the requests in flight are clients'. */
  get relayed(): number {
    let count = 0;
    for (const record of this.#records.values()) if (record.isRelayed === true) count++;
    return count;
  }

  /** Those whose clients want log messages, oldest first. */
  logged(): readonly Pending[] {
    return this.#records.values().filter(({ sender }) => sender?.level !== undefined);
  }

  /** Lets the time of what is in flight, and what is sent meanwhile, stand still or go on. */
  halt(halted: boolean): void {
    this.#isHalted = halted;
    for (const record of this.#records.values()) record.halt?.(halted);
  }

  /** Settles when no client's request is in flight. */
  quiet(): Promise<void> {
    return new Promise((resolve) => {
      this.#quieted.push(resolve);
      this.#tellQuiet();
    });
  }

  /** An id that no other request of this link has. */
  nextId(): number {
    return this.#nextId++;
  }

  /** Sends a request that has one of these ids. If it cannot be sent, the record fails a turn later. */
  send(id: number, record: Pending, message: Message): void {
    const refusal =
      this.ended === undefined ? this.#refusal() : this.#lossOf(record, this.ended, "notDelivered");
    if (refusal !== undefined) {
      queueMicrotask(() => record.fail(refusal));
      return;
    }
    this.#records.set(id, record);
    if (this.#isHalted) record.halt?.(true);
    const isRemote = this.#link.adopt !== undefined;
    let exchange: Exchange;
    try {
      exchange = this.#link.send(message, isRemote ? this.#outgoing(id, record) : record);
    } catch (error) {
      // What was not sent gets no answer: it would count as in flight for ever.
      this.drop(id);
      throw error;
    }
    if (exchange !== PIPE_EXCHANGE && this.#records.has(id)) this.#exchanges.set(id, exchange);
  }

  /** What a link over HTTP is told, which may lose a single request and go on. */
  #outgoing(id: number, record: Pending): Outgoing {
    const { method, name, headers } = record;
    return {
      method,
      name,
      headers: headers ?? (this.isMirrored ? record.mirrored : undefined),
      unanswered: (cause) => {
        if (this.take(id) === undefined) return;
        this.#lost(record);
        record.fail(cause);
      },
    };
  }

  /** Sends a request of the hub's own, whatever comes of it. @returns its id */
  post(method: string, params?: object, fail: (error: HubError) => void = ignore): number {
    const id = this.nextId();
    const name = nameOf(params);
    const record = { method, name, settle: ignore, fail, progress: ignore };
    this.send(id, record, buildRequest(id, method, params));
    return id;
  }

  /**
   * Sends a request of the hub's own. When the signal is aborted `cancel` has to take it out of the table.
   * @param headers what a link over HTTP has to say beside what it knows
   * @throws the signal's reason, or {HubError} the link's end, or that it was not answered
   */
  ask(
    method: string,
    params: object | undefined,
    signal: AbortSignal,
    cancel: (id: number) => void,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      const id = this.nextId();
      const abort = (): void => {
        cancel(id);
        reject(signal.reason);
      };
      const end = <T>(finish: (value: T) => void, value: T): void => {
        signal.removeEventListener("abort", abort);
        finish(value);
      };
      signal.addEventListener("abort", abort, { once: true });
      const record: Pending = {
        method,
        name: nameOf(params),
        headers,
        settle: (response) => end(resolve, response),
        fail: (error) => end(reject, error),
        progress: () => {},
      };
      this.send(id, record, buildRequest(id, method, params));
    });
  }

  /** Removes the record that an answer is for. */
  take(id: number): Pending | undefined {
    const record = this.#records.take(id);
    if (record === undefined) return undefined;
    if (this.#exchanges.size > 0) this.#exchanges.take(id);
    if (this.#quieted.length > 0) this.#tellQuiet();
    return record;
  }

  /** A message was too long to be kept: whoever waited for it fails. @returns what is to be said if nobody did */
  lose(head: Buffer, tail: Buffer, size: number): string | undefined {
    const server = this.#server;
    const edges = readEdges(head, tail);
    const text = `Server "${server}" sent a message of ${size} bytes, which is over the limit (maxMessage).`;
    const id = edges?.kind === "response" ? Number(edges.id.key) : undefined;
    const record = id === undefined ? undefined : this.take(id);
    record?.fail(new HubError("messageTooLarge", text, { server }));
    return record === undefined ? text : undefined;
  }

  /** Removes a record that nobody waits for any more. @returns it, if it was still there */
  drop(id: number): Pending | undefined {
    const exchange = this.#exchanges.get(id);
    const record = this.take(id);
    exchange?.abandon();
    return record;
  }

  /** Fails everything in flight, and all that is sent later; the first cause stays. */
  fail(cause: HubError): void {
    this.ended ??= cause;
    const records = this.#records.values();
    this.#records.clear();
    this.#exchanges.clear();
    for (const record of records) record.fail(this.#lossOf(record, cause, "answerLost"));
    this.#tellQuiet();
  }

  /** What the link's end means for one request: over HTTP a client's may be good on the next link. */
  #lossOf(record: Pending, cause: HubError, code: "answerLost" | "notDelivered"): HubError {
    const isOwn = record.isRelayed !== true || this.#link.adopt === undefined;
    // An end that somebody wanted is one for good.
    if (isOwn || !cause.traits.retryable) return cause;
    const { message, server } = cause;
    return new HubError(code, message, { server, cause });
  }

  #tellQuiet(): void {
    if (this.relayed === 0) for (const resolve of this.#quieted.splice(0)) resolve();
  }

  #refusal(): HubError | undefined {
    if (this.#link.queued < MAX_BACKLOG) return undefined;
    const text = `Server "${this.#server}" does not read what it is sent.`;
    return new HubError("notReading", text, { server: this.#server });
  }
}

const ignore = (): void => {};

/** What a request of the hub's own is about, where that has to be said beside it: only those about tasks have such a name. */
function nameOf(params: object | undefined): string | undefined {
  const id: unknown = params !== undefined && "taskId" in params ? params.taskId : undefined;
  return typeof id === "string" ? id : undefined;
}
