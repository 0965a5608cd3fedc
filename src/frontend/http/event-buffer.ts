import { Buffer } from "node:buffer";
import { joinPieces, utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { type EncodedMessage, piecesOfMessage } from "../../jsonrpc/message.ts";

/** Interval of keep-alive comments on a silent stream, in ms: gateways cut streams that are silent for longer. */
export const KEEP_ALIVE = 15_000;

/** Reconnection delay that clients are told (`retry`), in ms. */
const RETRY = 1000;

/** Bytes of one stream: kept for a reader that resumes, unread before the reader is dropped, and in all. */
export const BOUNDS = {
  kept: 1024 * 1024,
  behind: 8 * 1024 * 1024,
  most: 16 * 1024 * 1024,
};

/** Bytes given to the runtime ahead of the client's reading. */
const HIGH_WATER = 64 * 1024;

const COMMENT = utf8(": keep-alive\n\n");
const EVENT = utf8("event: message\ndata: ");
const EVENT_END = utf8("\n\n");

interface Reader {
  readonly controller: ReadableStreamDefaultController<Uint8Array>;
  disarm(): void;
}

/**
 * The messages of one event stream, each with an event id. It has at most one reader; one that was lost can resume
 * after the last event that it received. A reader that falls too far behind is dropped, and can resume as well.
 */
export class EventStream {
  readonly key: number;
  readonly #clock: Clock;
  readonly #left: () => void;
  readonly #events: Buffer[] = [];
  /** Sequence numbers of the first kept event, and of the next one to send. */
  #first = 0;
  #next = 0;
  #size = 0;
  #unsent = 0;
  #reader: Reader | undefined;
  #isDone = false;

  /** @param onReaderGone called whenever a reader is gone */
  constructor(key: number, clock: Clock, left: () => void) {
    this.key = key;
    this.#clock = clock;
    this.#left = left;
  }

  get isRead(): boolean {
    return this.#reader !== undefined;
  }

  /**
   * Whether nothing is left to send, now or later, after an event.
   * @param after sequence number; by default the last one sent
   */
  isOver(after: number = this.#next - 1): boolean {
    return this.#isDone && after + 1 >= this.#first + this.#events.length;
  }

  /** Bytes kept. */
  get size(): number {
    return this.#size;
  }

  /** Bytes not yet given to a reader. */
  get unsent(): number {
    return this.#unsent;
  }

  /**
   * Adds an event without data, which tells the reader the reconnection delay and an event id to resume from
   * (2025-11-25, sending messages).
   */
  prime(): void {
    const id = `${this.key}-${this.#first + this.#events.length}`;
    this.#add(Buffer.from(`retry: ${RETRY}\nid: ${id}\ndata: \n\n`));
  }

  push(message: EncodedMessage): void {
    if (this.#isDone) return;
    const id = `id: ${this.key}-${this.#first + this.#events.length}\n`;
    const pieces = piecesOfMessage(message);
    this.#add(onOneLine(joinPieces([id, EVENT, ...pieces, EVENT_END]), id.length + EVENT.length));
  }

  /** No message follows: the reader's stream ends after the last event. */
  finish(): void {
    this.#isDone = true;
    this.#pump();
  }

  /**
   * Gives the stream to a reader, in place of the current one.
   * @param after sequence number of the last event that it received; undefined: it continues where the last reader was
   */
  attach(after?: number): ReadableStream<Uint8Array> {
    this.detach();
    if (after !== undefined) this.#rewind(after + 1);
    let reader: Reader | undefined;
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          reader = { controller, disarm: this.#keepAlive(controller) };
          this.#reader = reader;
          this.#pump();
          // Not every runtime sends the head of a response before the first bytes of its body.
          if (this.#reader === reader && controller.desiredSize === HIGH_WATER) {
            controller.enqueue(COMMENT);
          }
        },
        pull: () => {
          if (this.#reader === reader) this.#pump();
        },
        cancel: () => {
          if (this.#reader === reader) this.#forget();
        },
      },
      { highWaterMark: HIGH_WATER, size: (chunk) => chunk?.byteLength ?? 0 },
    );
  }

  /** Ends the reader's stream; events that were not sent are kept for when it resumes. */
  detach(): void {
    const controller = this.#reader?.controller;
    this.#forget();
    controller?.close();
  }

  #add(event: Buffer): void {
    this.#events.push(event);
    this.#size += event.length;
    this.#unsent += event.length;
    this.#pump();
    if (this.#unsent > BOUNDS.behind) this.detach();
    this.#trim();
  }

  #pump(): void {
    const controller = this.#reader?.controller;
    if (controller === undefined) return;
    while ((controller.desiredSize ?? 0) > 0) {
      const event = this.#events[this.#next - this.#first];
      if (event === undefined) break;
      this.#next++;
      this.#unsent -= event.length;
      controller.enqueue(event);
    }
    if (this.isOver()) this.detach();
  }

  /** Drops the oldest events: sent ones over `maxKept`, unsent ones over `maxTotal`. The last event stays. */
  #trim(): void {
    while (this.#events.length > 1) {
      const wasSent = this.#next > this.#first;
      if (this.#size <= (wasSent ? BOUNDS.kept : BOUNDS.most)) return;
      const size = this.#events.shift()?.length ?? 0;
      this.#first++;
      this.#size -= size;
      if (wasSent) continue;
      this.#next++;
      this.#unsent -= size;
    }
  }

  #rewind(to: number): void {
    this.#next = Math.min(Math.max(to, this.#first), this.#first + this.#events.length);
    this.#unsent = 0;
    for (const event of this.#events.slice(this.#next - this.#first)) this.#unsent += event.length;
  }

  #forget(): void {
    if (this.#reader === undefined) return;
    this.#reader.disarm();
    this.#reader = undefined;
    this.#left();
  }

  #keepAlive(controller: ReadableStreamDefaultController<Uint8Array>): () => void {
    let disarm = (): void => {};
    const arm = (): void => {
      disarm = this.#clock.after(KEEP_ALIVE, () => {
        if ((controller.desiredSize ?? 0) > 0) controller.enqueue(COMMENT);
        arm();
      });
    };
    arm();
    return () => disarm();
  }
}

/** Replaces line ends by spaces: they would end the event's data, and in JSON they are only whitespace. */
export function onOneLine(event: Buffer, start: number): Buffer {
  const end = event.length - EVENT_END.length;
  for (const byte of [0x0a, 0x0d]) {
    for (let i = event.indexOf(byte, start); i >= 0 && i < end; i = event.indexOf(byte, i + 1)) {
      event[i] = 0x20;
    }
  }
  return event;
}

/** Parses an event id. @returns undefined if it is not one of the hub's */
export function readEventId(
  id: string,
): { readonly key: number; readonly seq: number } | undefined {
  const [, key, seq] = /^(\d{1,15})-(\d{1,15})$/.exec(id) ?? [];
  return key === undefined ? undefined : { key: Number(key), seq: Number(seq) };
}
