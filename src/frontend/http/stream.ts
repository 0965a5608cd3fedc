import { Buffer } from "node:buffer";
import { joinPieces, utf8 } from "../../bytes.ts";
import type { Clock } from "../../clock.ts";
import { type Message, piecesOf } from "../../wire/jsonrpc.ts";

/** How often a stream on which nothing happens shows that it lives, in ms: gateways cut what is silent for longer. */
export const KEEP_ALIVE = 15_000;

/** After how long a client whose stream has ended is to come back, in ms. */
const RETRY = 1000;

/** Bytes of one stream: what stays for a reader that comes back, what its reader may be behind, and what there is ever. */
export const BOUNDS = {
  kept: 1024 * 1024,
  behind: 8 * 1024 * 1024,
  most: 16 * 1024 * 1024,
};

/** Bytes that are given out before the reader has taken what it was given. */
const HIGH_WATER = 64 * 1024;

const COMMENT = utf8(": keep-alive\n\n");
const EVENT = utf8("event: message\ndata: ");
const EVENT_END = utf8("\n\n");

interface Reader {
  readonly controller: ReadableStreamDefaultController<Uint8Array>;
  disarm(): void;
}

/**
 * Messages on their way to a client as server-sent events, each under an id of its own. It has at most one reader; one that
 * was lost can come back and name the last event that it has got. A reader that is too far behind is dropped: it can come back too.
 */
export class EventStream {
  readonly key: number;
  readonly #clock: Clock;
  readonly #left: () => void;
  readonly #events: Buffer[] = [];
  /** The number of the first of these, and of the one that is given out next. */
  #first = 0;
  #next = 0;
  #size = 0;
  #unsent = 0;
  #reader: Reader | undefined;
  #isDone = false;

  /** @param left called whenever a reader has gone */
  constructor(key: number, clock: Clock, left: () => void) {
    this.key = key;
    this.#clock = clock;
    this.#left = left;
  }

  get isRead(): boolean {
    return this.#reader !== undefined;
  }

  /** Whether there is nothing to give out, now or later, to a reader who has got all up to an event: the last that was given out, unless it is named. */
  isOver(after: number = this.#next - 1): boolean {
    return this.#isDone && after + 1 >= this.#first + this.#events.length;
  }

  /** Bytes that it holds. */
  get size(): number {
    return this.#size;
  }

  /** Bytes that no reader was given yet. */
  get unsent(): number {
    return this.#unsent;
  }

  /** An event without a message: it tells the reader when to come back, and gives it an id to do so. */
  prime(): void {
    const id = `${this.key}-${this.#first + this.#events.length}`;
    this.#add(Buffer.from(`retry: ${RETRY}\nid: ${id}\ndata: \n\n`));
  }

  push(message: Message): void {
    if (this.#isDone) return;
    const id = `id: ${this.key}-${this.#first + this.#events.length}\n`;
    const pieces = piecesOf(message);
    this.#add(onOneLine(joinPieces([id, EVENT, ...pieces, EVENT_END]), id.length + EVENT.length));
  }

  /** Nothing more is said: the reader's stream ends after what there is. */
  finish(): void {
    this.#isDone = true;
    this.#pump();
  }

  /**
   * Gives it to a reader, in the place of the one that it has.
   * @param after the number of the last event that this reader has got; undefined: it goes on where the last one was
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
          // Not every runtime sends the head of an answer before the first bytes of its body.
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

  /** Ends the reader's stream; what was not given out stays for when it comes back. */
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

  /** Forgets the oldest: of what was given out what is too much to keep, of the rest what is too much to hold. The last one stays. */
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

/** A line end would end the event's data. In JSON it is white space only. */
export function onOneLine(event: Buffer, start: number): Buffer {
  const end = event.length - EVENT_END.length;
  for (const byte of [0x0a, 0x0d]) {
    for (let i = event.indexOf(byte, start); i >= 0 && i < end; i = event.indexOf(byte, i + 1)) {
      event[i] = 0x20;
    }
  }
  return event;
}

/** Where a reader was, by the id of the last event that it has got. @returns undefined if that is no id of ours */
export function readEventId(
  id: string,
): { readonly key: number; readonly seq: number } | undefined {
  const [, key, seq] = /^(\d{1,15})-(\d{1,15})$/.exec(id) ?? [];
  return key === undefined ? undefined : { key: Number(key), seq: Number(seq) };
}
