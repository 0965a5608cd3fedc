import type { Buffer } from "node:buffer";
import type { ByteRange, Edit } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import { IdTable } from "../base/id-table.ts";
import { parseTruncated } from "../jsonrpc/parse.ts";
import {
  buildRequest,
  type EncodedMessage,
  type Notification,
  type Response,
} from "../jsonrpc/message.ts";
import type { SendOptions, SentRequest, Transport } from "../transport/transport.ts";
import { NO_HANDLE } from "../transport/memory.ts";
import type { Clock } from "../base/clock.ts";
import type { ClientChannel, ClientDeclaration, ClientRequest } from "./profile.ts";

/** A request in flight to a server: the one record of it, in the session's table until one of the two ends. */
export interface PendingRequest extends SendOptions {
  /** It is a client's request; absent on the hub's own. */
  readonly isRelayed?: true;
  /** Whose it is; absent on the hub's own. */
  readonly sender?: ClientDeclaration;
  /** The client that made the request; undefined on the hub's own, and on those of plugins. */
  readonly channel?: ClientChannel | undefined;
  /** The server may make a task of it. */
  readonly isTask?: boolean;
  /** The way to its client; absent on the hub's own. Looked for only where a link has streams. */
  readonly occasion?: ClientRequest;
  /** The headers that repeat its arguments. Looked for only where a server of the modern era is reached over HTTP. */
  readonly paramHeaders?: Readonly<Record<string, string>> | undefined;
  /** The server answered. */
  onResponse(response: Response): void;
  /** No answer will come. */
  fail(error: HubError): void;
  /** The server reports progress; `tokens` are the ranges of its token in the notification's bytes. */
  onProgress(notification: Notification, tokens: readonly ByteRange[]): void;
  /** The server has a line of its log for whoever asked. */
  log?(severity: LogSeverity, message: EncodedMessage): void;
  /** The server waits for an answer of a client, so that its own is not late; or it does no longer. */
  setDeadlinePaused?(halted: boolean): void;
}

/** What has to be replaced in a client's request, beside its id. The session adds to `edits` what is its own. */
export interface RequestRewrite {
  readonly edits: Edit[];
  /** The values of `params._meta.progressToken`, each to be replaced by a token of the session's own. */
  readonly tokens: readonly ByteRange[];
}

/** A server that has not taken this many bytes gets no more requests. */
const MAX_BACKLOG = 128 * 1024 * 1024;

/** For how long a request that was given up counts as open at the server if no answer to it comes, in ms. */
const UNANSWERED_LIMIT = 10 * 60_000;
/** So many of these are remembered, the last ones. */
const MOST_UNANSWERED = 1024;

/** A client's request that was given up, and to which the server has not answered. */
interface Unanswered {
  /** Who made it; undefined: somebody who cannot be told from other clients. */
  readonly client: string | undefined;
  readonly sender: ClientDeclaration | undefined;
  /** When it ceases to count, in ms of the clock. */
  readonly until: number;
}

/** The requests in flight over one link: the ids are given out here, and every way out of the table is here. */
export class PendingRequests {
  readonly #server: string;
  readonly #link: Transport;
  readonly #clock: Clock;
  readonly #lost: (record: PendingRequest) => void;
  readonly #records = new IdTable<PendingRequest>();
  /** How many of these are clients'. */
  #relayed = 0;
  /** By the ids of the requests, oldest first. */
  readonly #unanswered = new Map<number, Unanswered>();
  /** Until when one counts that was forgotten because there were too many, in ms of the clock. */
  #forgottenUntil = 0;
  /** By the same ids, where each has one of its own: over a pipe this stays empty, and a call costs no more than its record. */
  readonly #exchanges = new IdTable<SentRequest>();
  #nextId = 1;
  /** Who waits until no client's request is in flight. */
  readonly #quieted: (() => void)[] = [];
  /** Why nothing is in flight any more. */
  ended: HubError | undefined;
  /** What clients' requests repeat in headers is wanted. */
  isMirrored = false;
  /** The clients that are asked something for no known request, and how often: their requests' time stands still. */
  readonly #halted = new Map<ClientChannel | undefined, number>();

  /** @param lost told of a request that ends without an answer while the link lives */
  constructor(
    server: string,
    link: Transport,
    clock: Clock,
    lost: (record: PendingRequest) => void,
  ) {
    this.#server = server;
    this.#clock = clock;
    this.#link = link;
    this.#lost = lost;
  }

  get(id: number): PendingRequest | undefined {
    return this.#records.get(id);
  }

  /** The request on whose stream something came; undefined if it is over. */
  at(exchange: SentRequest): PendingRequest | undefined {
    return exchange.request === undefined ? undefined : this.#records.get(exchange.request);
  }

  /** How many of the requests in flight are clients'. */
  get relayed(): number {
    return this.#relayed;
  }

  /** The clients whose requests are in flight; undefined among them: a plugin's are. */
  get clients(): Set<ClientChannel | undefined> {
    const clients = new Set<ClientChannel | undefined>();
    if (this.#relayed === 0) return clients;
    this.#records.filter(({ isRelayed, channel: attendee }) => {
      if (isRelayed === true) clients.add(attendee);
      return false;
    });
    return clients;
  }

  /** Whether requests are in flight that may be this client's. */
  isBusyFor(client: ClientChannel | undefined): boolean {
    if (this.#relayed === 0) return false;
    const { clients } = this;
    return client === undefined || clients.has(client) || clients.has(undefined);
  }

  /**
   * Whether a request of another client than this one was given up and may still be open at the server: its answer has not
   * come, and `UNANSWERED_LIMIT` is not over.
   * @param client its id; undefined: it cannot be told from others, so that each such request may be another's
   */
  isOpenForOthers(client: string | undefined): boolean {
    if (this.#forgottenUntil > this.#clock.now()) return true;
    return this.#open().some((each) => client === undefined || each.client !== client);
  }

  /** The one request to which a line of the server's log belongs, that wants log messages; undefined if it cannot be told which. */
  get logged(): PendingRequest | undefined {
    const wanting = this.#records.filter(({ sender }) => sender?.level !== undefined);
    const [first] = wanting;
    if (first === undefined || wanting.some(({ sender }) => sender !== first.sender)) return;
    const client = first.channel?.id;
    const isOfOther = ({ sender, client: other }: Unanswered): boolean =>
      sender?.level !== undefined && (client === undefined || client !== other);
    if (this.#open().some(isOfOther)) return;
    return this.#records.findLast(({ sender }) => sender === first.sender);
  }

  /** Lets the time of a client's requests in flight, and of those that it sends meanwhile, stand still or go on. */
  halt(client: ClientChannel | undefined, halted: boolean): void {
    const count = (this.#halted.get(client) ?? 0) + (halted ? 1 : -1);
    if (count > 0) this.#halted.set(client, count);
    else this.#halted.delete(client);
    if (count !== (halted ? 1 : 0)) return;
    for (const record of this.#records.values()) {
      if (record.setDeadlinePaused !== undefined && mayBeOf(record, client))
        record.setDeadlinePaused(halted);
    }
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
  send(id: number, record: PendingRequest, message: EncodedMessage): void {
    const refusal =
      this.ended === undefined ? this.#refusal() : this.#lossOf(record, this.ended, "notDelivered");
    if (refusal !== undefined) {
      queueMicrotask(() => record.fail(refusal));
      return;
    }
    this.#records.set(id, record);
    if (record.isRelayed === true) this.#relayed++;
    if (this.#halted.size > 0) this.#halt(record);
    const isRemote = this.#link.adopt !== undefined;
    let exchange: SentRequest;
    try {
      exchange = this.#link.send(message, isRemote ? this.#outgoing(id, record) : record);
    } catch (error) {
      // What was not sent gets no answer: it would count as in flight for ever.
      this.take(id);
      throw error;
    }
    if (exchange === NO_HANDLE || !this.#records.has(id)) return;
    exchange.request = id;
    this.#exchanges.set(id, exchange);
  }

  /** Once for each client that is asked, as each is answered for itself. */
  #halt(record: PendingRequest): void {
    for (const client of this.#halted.keys())
      if (mayBeOf(record, client)) record.setDeadlinePaused?.(true);
  }

  /** What a link over HTTP is told, which may lose a single request and go on. */
  #outgoing(id: number, record: PendingRequest): SendOptions {
    const { method, name, headers } = record;
    return {
      method,
      name,
      headers: headers ?? (this.isMirrored ? record.paramHeaders : undefined),
      unanswered: (cause) => {
        if (this.take(id) === undefined) return;
        if (cause.code === "answerLost") this.#note(id, record);
        this.#lost(record);
        record.fail(cause);
      },
    };
  }

  /** Sends a request of the hub's own, whatever comes of it. @returns its id */
  post(method: string, params?: object, fail: (error: HubError) => void = ignore): number {
    const id = this.nextId();
    const name = nameOf(params);
    const record = { method, name, onResponse: ignore, fail, onProgress: ignore };
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
      const record: PendingRequest = {
        method,
        name: nameOf(params),
        headers,
        onResponse: (response) => end(resolve, response),
        fail: (error) => end(reject, error),
        onProgress: () => {},
      };
      this.send(id, record, buildRequest(id, method, params));
    });
  }

  /** Removes the record that an answer is for. */
  take(id: number): PendingRequest | undefined {
    const record = this.#records.remove(id);
    if (record === undefined) return undefined;
    if (record.isRelayed === true) this.#relayed--;
    if (this.#exchanges.size > 0) this.#exchanges.remove(id);
    if (this.#quieted.length > 0) this.#tellQuiet();
    return record;
  }

  /** A message was too long to be kept: whoever waited for it fails. @returns what is to be said if nobody did */
  lose(head: Buffer, tail: Buffer, size: number): string | undefined {
    const server = this.#server;
    const edges = parseTruncated(head, tail);
    const text = `Server "${server}" sent a message of ${size} bytes, which is over the limit (maxMessage).`;
    const id = edges?.kind === "response" ? Number(edges.id.key) : undefined;
    const record = id === undefined ? undefined : this.take(id);
    if (record === undefined && id !== undefined) this.late(id);
    record?.fail(new HubError("messageTooLarge", text, { server }));
    return record === undefined ? text : undefined;
  }

  /** An answer came to a request that is not in flight: if it was given up, it is not open at the server any more. */
  late(id: number): void {
    this.#unanswered.delete(id);
  }

  /** Removes a record that nobody waits for any more. @returns it, if it was still there */
  drop(id: number): PendingRequest | undefined {
    const exchange = this.#exchanges.get(id);
    const record = this.take(id);
    if (record?.channel !== undefined) this.#note(id, record);
    exchange?.abandon();
    return record;
  }

  /** A request may still be open at the server, although nobody waits for it. */
  #note(id: number, { channel: attendee, sender }: PendingRequest): void {
    if (attendee === undefined) return;
    const until = this.#clock.now() + UNANSWERED_LIMIT;
    this.#unanswered.set(id, { client: attendee.id, sender, until });
    const [oldest] = this.#unanswered;
    if (this.#unanswered.size <= MOST_UNANSWERED || oldest === undefined) return;
    this.#unanswered.delete(oldest[0]);
    this.#forgottenUntil = oldest[1].until;
  }

  /** Those that still count. */
  #open(): Unanswered[] {
    const now = this.#clock.now();
    for (const [id, { until }] of this.#unanswered) {
      if (until > now) break;
      this.#unanswered.delete(id);
    }
    return [...this.#unanswered.values()];
  }

  /** Fails everything in flight, and all that is sent later; the first cause stays. */
  fail(cause: HubError): void {
    this.ended ??= cause;
    const records = this.#records.values();
    this.#records.clear();
    this.#relayed = 0;
    this.#exchanges.clear();
    this.#unanswered.clear();
    for (const record of records) record.fail(this.#lossOf(record, cause, "answerLost"));
    this.#tellQuiet();
  }

  /** What the link's end means for one request: over HTTP a client's may be good on the next link. */
  #lossOf(record: PendingRequest, cause: HubError, code: "answerLost" | "notDelivered"): HubError {
    const isOwn = record.isRelayed !== true || this.#link.adopt === undefined;
    // An end that somebody wanted is one for good.
    if (isOwn || !cause.properties.retryable) return cause;
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

/** Whether a request may be that client's; those of plugins may be anybody's. */
function mayBeOf(
  { channel: attendee }: PendingRequest,
  client: ClientChannel | undefined,
): boolean {
  return client === undefined || attendee === undefined || attendee === client;
}

/** What a request of the hub's own is about, where that has to be said beside it: only those about tasks have such a name. */
function nameOf(params: object | undefined): string | undefined {
  const id: unknown = params !== undefined && "taskId" in params ? params.taskId : undefined;
  return typeof id === "string" ? id : undefined;
}
