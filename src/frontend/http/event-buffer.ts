import { Buffer } from "node:buffer";
import { joinPieces, utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import { type EncodedMessage, piecesOfMessage } from "../../jsonrpc/message.ts";

/** Interval of keep-alive comments on a silent stream, in ms: gateways close streams that are silent for longer. */
export const KEEP_ALIVE_INTERVAL = 15_000;

/** Reconnection delay that the SSE field `retry` tells clients, in ms. */
const RETRY_DELAY = 1000;

/**
 * Limits of one stream, in bytes. `maxKept`: size up to which sent events are kept for a reader that resumes;
 * `maxBehind`: size of unsent events above which the reader is dropped; `maxTotal`: size of all events above which
 * unsent events are dropped.
 */
export const EVENT_BUFFER_LIMITS = {
  maxKept: 1024 * 1024,
  maxBehind: 8 * 1024 * 1024,
  maxTotal: 16 * 1024 * 1024,
};

/** Maximum number of bytes that the runtime is given before the client has read them. */
const HIGH_WATER_MARK = 64 * 1024;

const KEEP_ALIVE_COMMENT = utf8(": keep-alive\n\n");
const EVENT_PREFIX = utf8("event: message\ndata: ");
const EVENT_END = utf8("\n\n");

interface StreamReader {
  readonly controller: ReadableStreamDefaultController<Uint8Array>;
  cancelKeepAlive(): void;
}

/**
 * The buffer for the messages of one event stream, which has at most one reader. A reader that falls too far behind is
 * dropped. A stream with a key has event ids: a reader that was disconnected or dropped can resume after the last event
 * that it received. A stream without a key cannot be resumed, and keeps no events that were sent.
 */
export class EventBuffer {
  readonly key: number | undefined;
  readonly #clock: Clock;
  readonly #onReaderGone: () => void;
  readonly #events: Buffer[] = [];
  /** `#first`: sequence number of the first kept event; `#next`: of the next event to send. */
  #first = 0;
  #next = 0;
  #size = 0;
  #unsent = 0;
  #reader: StreamReader | undefined;
  #isFinished = false;

  /**
   * @param key undefined: the stream cannot be resumed
   * @param onReaderGone called whenever the reader has disconnected, was dropped, or has received everything
   */
  constructor(key: number | undefined, clock: Clock, onReaderGone: () => void) {
    this.key = key;
    this.#clock = clock;
    this.#onReaderGone = onReaderGone;
  }

  get hasReader(): boolean {
    return this.#reader !== undefined;
  }

  /**
   * Whether the stream has ended and has no event after the given one.
   * @param after sequence number of the event; by default that of the last event sent
   */
  isOver(after: number = this.#next - 1): boolean {
    return this.#isFinished && after + 1 >= this.#first + this.#events.length;
  }

  /** Size of all kept events, in bytes. */
  get size(): number {
    return this.#size;
  }

  /** Size of the events that were not yet sent to a reader, in bytes. */
  get unsent(): number {
    return this.#unsent;
  }

  /**
   * Adds an event without data, which tells the reader the reconnection delay and an event id to resume from
   * (MCP 2025-11-25, sending messages).
   */
  prime(): void {
    const id = `${this.key}-${this.#first + this.#events.length}`;
    this.#add(Buffer.from(`retry: ${RETRY_DELAY}\nid: ${id}\ndata: \n\n`));
  }

  push(message: EncodedMessage): void {
    if (this.#isFinished) return;
    const id =
      this.key === undefined ? "" : `id: ${this.key}-${this.#first + this.#events.length}\n`;
    const pieces = piecesOfMessage(message);
    this.#add(
      withoutLineEnds(
        joinPieces([id, EVENT_PREFIX, ...pieces, EVENT_END]),
        id.length + EVENT_PREFIX.length,
      ),
    );
  }

  /** Marks the stream as complete: the reader's stream ends after the last event, and later messages are ignored. */
  finish(): void {
    this.#isFinished = true;
    this.#flush();
  }

  /**
   * Opens the stream for a new reader, which replaces the current one.
   * @param after sequence number of the last event that the reader received; undefined: it gets the events not yet sent
   */
  attach(after?: number): ReadableStream<Uint8Array> {
    this.detach();
    if (after !== undefined) this.#rewind(after + 1);
    let reader: StreamReader | undefined;
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          reader = { controller, cancelKeepAlive: this.#keepAlive(controller) };
          this.#reader = reader;
          this.#flush();
          // Not every runtime sends the head of a response before the first bytes of its body, so a comment is sent at
          // once.
          if (this.#reader === reader && controller.desiredSize === HIGH_WATER_MARK) {
            controller.enqueue(KEEP_ALIVE_COMMENT);
          }
        },
        pull: () => {
          if (this.#reader !== reader) return;
          this.#flush();
          if (this.key === undefined) this.#trim();
        },
        cancel: () => {
          if (this.#reader === reader) this.#releaseReader();
        },
      },
      { highWaterMark: HIGH_WATER_MARK, size: (chunk) => chunk?.byteLength ?? 0 },
    );
  }

  /** Ends the reader's stream. Events that were not sent are kept until a reader resumes. */
  detach(): void {
    const controller = this.#reader?.controller;
    this.#releaseReader();
    controller?.close();
  }

  #add(event: Buffer): void {
    this.#events.push(event);
    this.#size += event.length;
    this.#unsent += event.length;
    this.#flush();
    if (this.#unsent > EVENT_BUFFER_LIMITS.maxBehind) this.#dropReader();
    this.#trim();
  }

  #flush(): void {
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

  #dropReader(): void {
    if (this.key !== undefined) {
      this.detach();
      return;
    }
    const controller = this.#reader?.controller;
    this.#releaseReader();
    controller?.error(new Error("The client does not read."));
  }

  /**
   * Drops the oldest event as long as the buffer is larger than its limit: `maxKept` if that event was sent, else
   * `maxTotal`. Never drops the last event.
   */
  #trim(): void {
    const maxKept = this.key === undefined ? 0 : EVENT_BUFFER_LIMITS.maxKept;
    while (this.#events.length > 1) {
      const wasSent = this.#next > this.#first;
      if (this.#size <= (wasSent ? maxKept : EVENT_BUFFER_LIMITS.maxTotal)) return;
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

  #releaseReader(): void {
    if (this.#reader === undefined) return;
    this.#reader.cancelKeepAlive();
    this.#reader = undefined;
    this.#onReaderGone();
  }

  #keepAlive(controller: ReadableStreamDefaultController<Uint8Array>): () => void {
    let cancel = (): void => {};
    const schedule = (): void => {
      cancel = this.#clock.after(KEEP_ALIVE_INTERVAL, () => {
        if ((controller.desiredSize ?? 0) > 0) controller.enqueue(KEEP_ALIVE_COMMENT);
        schedule();
      });
    };
    schedule();
    return () => cancel();
  }
}

/** Replaces line ends in the data by spaces: they would end the SSE field; in JSON they are only whitespace. */
function withoutLineEnds(event: Buffer, start: number): Buffer {
  const end = event.length - EVENT_END.length;
  for (const byte of [0x0a, 0x0d]) {
    for (let i = event.indexOf(byte, start); i >= 0 && i < end; i = event.indexOf(byte, i + 1)) {
      event[i] = 0x20;
    }
  }
  return event;
}

/** Parses an event id. @returns undefined if it does not have the format of the hub's event ids */
export function readEventId(
  id: string,
): { readonly key: number; readonly seq: number } | undefined {
  const [, key, seq] = /^(\d{1,15})-(\d{1,15})$/.exec(id) ?? [];
  return key === undefined ? undefined : { key: Number(key), seq: Number(seq) };
}
