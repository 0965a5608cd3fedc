import { Buffer } from "node:buffer";
import { type Piece, startsWithAt, utf8 } from "../base/bytes.ts";
import { IdMap } from "../base/in-flight-map.ts";
import { isDigit, JsonObject, skipString } from "../base/json.ts";
import {
  buildNotification,
  joinMessage,
  type Message,
  type Notification,
  paramsOf,
  parseDigits,
  readId,
  type Request,
  type RequestId,
  withRequestId,
} from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import type { LineParts } from "./whole-lines.ts";

/** Limits of the open `resources/subscribe`: their number, and the size of all together, in bytes. */
const SUBSCRIPTION_LIMITS = { count: 256, size: 64 * 1024 };

/** Prefix of the ids of requests that are sent again to the next hub: the client has no such ids. */
const OWN_ID_PREFIX = "toolmux-attach-";

/** The key of an id in tables: `RequestId.key`. */
export type IdKey = RequestId["key"];

/** The messages that bring the next hub to where the last one was. */
export interface Replay {
  /** `initialize`, under an id of its own. */
  readonly initialize: Buffer;
  /** The messages to send when it is answered. */
  readonly afterwards: readonly Buffer[];
}

/**
 * The messages of an attached client that the next hub has to know, and the requests that the client waits for. It reads
 * messages, and neither sends nor keeps those of calls.
 */
export class ClientBooks {
  /** The ids of the requests without an answer, as the client wrote them. */
  readonly #open = new IdMap<Piece>();
  /** The client's `initialize`; undefined before it, and after one that was refused. */
  #initialize: { readonly key: IdKey; readonly line: Buffer; isAnswered: boolean } | undefined;
  #initialized: Buffer | undefined;
  #logLevel: Buffer | undefined;
  /** The open `resources/subscribe` by URI, the oldest first. */
  readonly #subscriptions = new Map<string, Buffer>();
  #subscriptionSize = 0;
  /** The keys of requests that were sent again, and whose answers the client must not see. */
  readonly #ownRequests = new Set<IdKey>();
  #ownCount = 0;

  /** Number of requests of the client without an answer. */
  get openCount(): number {
    return this.#open.size;
  }

  /** Whether a hub has refused a line without an id: what looked like a call may have been none. */
  hasRefusedLine = false;

  /** Whether the client waits for the answer to `initialize`. */
  get isInitializing(): boolean {
    return this.#initialize?.isAnswered === false;
  }

  /** Whether answers are due that the client must not see. */
  get hasOwnRequests(): boolean {
    return this.#ownRequests.size > 0;
  }

  /** Notes a message from the client. */
  noteSent(message: Message): void {
    switch (message.kind) {
      case "request":
        this.noteOpen(message.id);
        this.#noteRequest(message);
        return;
      case "notification":
        this.#noteNotification(message);
        return;
      case "batch":
        for (const item of message.items) this.noteSent(item);
        return;
      case "invalid":
        if (message.id !== undefined) this.noteOpen(message.id);
        return;
      case "response":
    }
  }

  /** Notes a call of a tool from the client. @param key see `calledKey` */
  noteCall(key: number): void {
    this.#open.set(key, key);
  }

  /** Notes that a request has no answer. */
  noteOpen({ key, bytes, start, end }: RequestId): void {
    // A plain integer needs no copy of its bytes; a slice of them would keep the whole chunk.
    const isPlain = typeof key === "number" && parseDigits(bytes, start, end) === key;
    this.#open.set(key, isPlain ? key : bytes.slice(start, end));
  }

  #noteRequest(request: Request): void {
    switch (request.method) {
      case "initialize":
        this.#initialize = { key: request.id.key, line: copyOf(request), isAnswered: false };
        return;
      case "logging/setLevel":
        this.#logLevel = copyOf(request);
        return;
      case "resources/subscribe": {
        const uri = paramsOf(request).string("uri");
        if (uri !== undefined) this.#subscribe(uri, copyOf(request));
        return;
      }
      case "resources/unsubscribe": {
        const uri = paramsOf(request).string("uri");
        if (uri !== undefined) this.#unsubscribe(uri);
      }
    }
  }

  #noteNotification(notification: Notification): void {
    if (notification.method === "notifications/initialized") {
      this.#initialized = copyOf(notification);
      return;
    }
    const key = cancelledKey(notification);
    // A request that was cancelled gets no answer.
    if (key !== undefined) this.#open.remove(key);
  }

  #subscribe(uri: string, line: Buffer): void {
    this.#unsubscribe(uri);
    this.#subscriptions.set(uri, line);
    this.#subscriptionSize += line.length;
    for (const oldest of this.#subscriptions.keys()) {
      const { size } = this.#subscriptions;
      const isFull = this.#subscriptionSize > SUBSCRIPTION_LIMITS.size;
      if (size <= SUBSCRIPTION_LIMITS.count && !isFull) return;
      this.#unsubscribe(oldest);
    }
  }

  #unsubscribe(uri: string): void {
    this.#subscriptionSize -= this.#subscriptions.get(uri)?.length ?? 0;
    this.#subscriptions.delete(uri);
  }

  /**
   * Notes a line of the hub, which may answer one request, none if it is no response, or several in a batch. Most responses
   * of a hub have their id at the end, so their result is not read.
   * @returns whether it answers a request of the books, so that the client must not see it
   */
  noteLine(bytes: Buffer, start: number, end: number): boolean {
    const key = keyAtEnd(bytes, start, end);
    if (key !== undefined) return this.#noteAnswer(key, bytes, start, end);
    if (startsWithAt(bytes, start, NOTIFICATION_START)) return false;
    const message = parseMessage(bytes.subarray(start, end));
    if (message.kind === "response" && message.id === undefined) this.hasRefusedLine = true;
    let isOwn = false;
    for (const each of keysOf(message)) isOwn = this.#noteAnswer(each, bytes, start, end) || isOwn;
    return isOwn;
  }

  /** The same for a line in several chunks, which is joined only if need be. */
  noteLineInParts({ parts, size }: LineParts): boolean {
    const edges = edgesOf(parts, size);
    if (edges !== undefined) {
      if (startsWithAt(edges, 0, NOTIFICATION_START)) return false;
      const key = keyAtEnd(edges, 0, edges.length);
      if (key !== undefined && !this.#isOpenInitialize(key))
        return this.#noteAnswer(key, edges, 0, edges.length);
    }
    const whole = Buffer.concat(parts, size);
    return this.noteLine(whole, 0, whole.length);
  }

  #noteAnswer(key: IdKey, bytes: Buffer, start: number, end: number): boolean {
    if (this.#ownRequests.size > 0 && this.#ownRequests.delete(key)) return true;
    this.#open.remove(key);
    if (!this.#isOpenInitialize(key)) return false;
    const isRefused = JsonObject.of(bytes.subarray(start, end)).member("result") === undefined;
    if (isRefused) this.#initialize = undefined;
    else if (this.#initialize !== undefined) this.#initialize.isAnswered = true;
    return false;
  }

  /** Whether the key is that of an `initialize` without an answer. */
  #isOpenInitialize(key: IdKey): boolean {
    return this.#initialize?.isAnswered === false && this.#initialize.key === key;
  }

  /**
   * The hub has gone: what was sent again to it is not answered any more.
   * @param keepsInitialize whether an open `initialize` stays open, to be sent to the next hub
   * @returns the ids of the requests that have to be answered with an error
   */
  takeOpen(keepsInitialize: boolean): readonly Piece[] {
    this.#ownRequests.clear();
    const initialize = this.#initialize;
    const kept =
      keepsInitialize && initialize?.isAnswered === false
        ? this.#open.get(initialize.key)
        : undefined;
    const ids = this.#open.values().filter((id) => id !== kept);
    this.#open.clear();
    if (initialize?.isAnswered !== false) return ids;
    if (kept === undefined) this.#initialize = undefined;
    else this.#open.set(initialize.key, kept);
    return ids;
  }

  /** The `initialize` that is not answered, as the client sent it. */
  get openInitialize(): Buffer | undefined {
    return this.isInitializing ? this.#initialize?.line : undefined;
  }

  /** The messages to send to the next hub first; undefined if the client has no session of the legacy era. */
  makeReplay(): Replay | undefined {
    if (this.#initialize?.isAnswered !== true) return undefined;
    const levels = this.#logLevel === undefined ? [] : [this.#logLevel];
    return {
      initialize: this.#underOwnId(this.#initialize.line),
      afterwards: [
        ...(this.#initialized === undefined ? [] : [this.#initialized]),
        ...[...levels, ...this.#subscriptions.values()].map((line) => this.#underOwnId(line)),
      ],
    };
  }

  /** The same request under an id of the books; its answer is noted as one that the client must not see. */
  #underOwnId(line: Buffer): Buffer {
    const request = parseMessage(line);
    if (request.kind !== "request") return line;
    const id = `${OWN_ID_PREFIX}${++this.#ownCount}`;
    this.#ownRequests.add(`"${id}`);
    return joinMessage(withRequestId(request, utf8(JSON.stringify(id)), [], []));
  }
}

/** A copy of the bytes of a message: the message itself keeps the whole chunk that it came in. */
function copyOf({ bytes, start, end }: Request | Notification): Buffer {
  return Buffer.from(bytes.subarray(start, end));
}

/** The request that a notification cancels; undefined if it is another notification. */
export function cancelledKey(message: Message): IdKey | undefined {
  if (message.kind !== "notification" || message.method !== "notifications/cancelled")
    return undefined;
  const id = paramsOf(message).member("requestId");
  return id === undefined ? undefined : readId(message.bytes, id)?.key;
}

/** Kinds of lists whose change a server may announce, by the name of its capability. */
const LISTS = ["tools", "prompts", "resources"];

/**
 * The notifications that tell a client to read its lists again.
 * @param answer the answer to `initialize`, which declares what changes are announced
 * @returns undefined if it is an error
 */
export function listChangesAfter(answer: Buffer): readonly Uint8Array[] | undefined {
  const object = JsonObject.of(answer);
  if (object.member("result") === undefined) return undefined;
  const capabilities = object.object("result").object("capabilities");
  return LISTS.filter((list) => capabilities.object(list).value("listChanged") === true).map(
    (list) => buildNotification(`notifications/${list}/list_changed`),
  );
}

const CALL_ID_START = utf8('{"jsonrpc":"2.0","id":');
const CALL_MEMBERS = utf8(',"method":"tools/call","params":{');
const CALL_START = utf8('{"method":"tools/call","params":{');
const CALL_ID_TAIL = utf8('},"jsonrpc":"2.0","id":');

/**
 * The id of a `tools/call` in one of the two forms in which JSON libraries write it: with the id first or last, an integer.
 * The params are not read, which would take most of the time of the attached process; so a line may look like a call though
 * its params are malformed. The hub answers that without an id.
 * @returns undefined if the line has to be parsed
 */
export function calledKey(bytes: Buffer, start: number, end: number): number | undefined {
  if (bytes[end - 1] !== 0x7d) return undefined;
  if (startsWithAt(bytes, start, CALL_ID_START)) {
    const idStart = start + CALL_ID_START.length;
    let at = idStart;
    while (isDigit(bytes[at])) at++;
    return startsWithAt(bytes, at, CALL_MEMBERS) ? parseDigits(bytes, idStart, at) : undefined;
  }
  if (!startsWithAt(bytes, start, CALL_START)) return undefined;
  let at = end - 1;
  while (isDigit(bytes[at - 1])) at--;
  const isTail = startsWithAt(bytes, at - CALL_ID_TAIL.length, CALL_ID_TAIL);
  return isTail ? parseDigits(bytes, at, end - 1) : undefined;
}

const ID_MEMBER = utf8(',"id":');
const RESPONSE_STARTS = [
  '{"jsonrpc":"2.0","result":',
  '{"jsonrpc":"2.0","error":',
  '{"result":',
].map(utf8);
const NOTIFICATION_START = utf8('{"jsonrpc":"2.0","method":');
/** Number of bytes of a long line that are read at its start and at its end, to find the id of a response. */
const EDGES = { head: 64, tail: 1024 };

/** The start and the end of a long line, together; undefined if the line is short. */
function edgesOf(parts: readonly Buffer[], size: number): Buffer | undefined {
  if (size <= 2 * (EDGES.head + EDGES.tail)) return undefined;
  return Buffer.concat([Buffer.concat(parts, EDGES.head), lastBytesOf(parts, EDGES.tail)]);
}

const NO_KEYS: readonly IdKey[] = [];

function lastBytesOf(parts: readonly Buffer[], size: number): Buffer {
  const pieces: Buffer[] = [];
  let missing = size;
  for (let i = parts.length - 1; i >= 0 && missing > 0; i--) {
    const part = parts[i];
    if (part === undefined) continue;
    const piece = part.subarray(Math.max(0, part.length - missing));
    pieces.unshift(piece);
    missing -= piece.length;
  }
  return Buffer.concat(pieces);
}

/**
 * The id of a response that ends with it: `…,"id":7}`. No string of a JSON text contains `,"id":`, because its quotes
 * would be escaped, and the last brace closes the message itself.
 */
function keyAtEnd(bytes: Buffer, start: number, end: number): IdKey | undefined {
  if (bytes[end - 1] !== 0x7d) return undefined;
  if (!startsResponse(bytes, start)) return undefined;
  let idStart = end - 1;
  while (idStart > start && isDigit(bytes[idStart - 1])) idStart--;
  const at = idStart - ID_MEMBER.length;
  if (at > start && idStart < end - 1 && startsWithAt(bytes, at, ID_MEMBER))
    return readId(bytes, { start: idStart, end: end - 1 })?.key;
  const found = bytes.subarray(start, end).lastIndexOf(ID_MEMBER);
  if (found < 0) return undefined;
  idStart = start + found + ID_MEMBER.length;
  const isString = bytes[idStart] === 0x22 && skipString(bytes, idStart) === end - 1;
  return isString ? readId(bytes, { start: idStart, end: end - 1 })?.key : undefined;
}

function startsResponse(bytes: Buffer, start: number): boolean {
  for (const one of RESPONSE_STARTS) if (startsWithAt(bytes, start, one)) return true;
  return false;
}

function keysOf(message: Message): readonly IdKey[] {
  if (message.kind === "batch") return message.items.flatMap(keysOf);
  if (message.kind !== "response") return NO_KEYS;
  if (message.shape.kind !== "scanned") return message.id === undefined ? NO_KEYS : [message.id];
  const range = message.shape.ids.at(-1);
  const key = range === undefined ? undefined : readId(message.bytes, range)?.key;
  return key === undefined ? NO_KEYS : [key];
}
