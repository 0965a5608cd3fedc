import { Buffer, isUtf8 } from "node:buffer";
import { collectGarbage } from "../base/runtime.ts";
import { readFrame, readFramePart } from "./parse.ts";
import { type Frame, isPatch, type EncodedMessage } from "./message.ts";
import { Splitter } from "./line-reader.ts";
import { memoriesOf, readLong } from "./long.ts";
import { Outbox } from "./outbox.ts";
import { refuseText, repairText } from "./utf8.ts";

/** A source of bytes: a child's stdout, or the hub's own stdin. */
export interface ByteSource {
  /** Starts reading; called once. The source does not reuse the memory of a chunk after handing it over. */
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void;
  pause(): void;
  resume(): void;
}

/** A destination of bytes. */
export interface ByteSink {
  /**
   * @returns undefined if more may be written at once, or a promise that settles when it may.
   * The promise never rejects: when the stream breaks it settles, and later writes are discarded.
   */
  write(bytes: Uint8Array): Promise<void> | undefined;
  /** Ends the stream after everything that was written. */
  end(): void;
  /** A write that returned no promise is complete, and its memory may be reused. */
  readonly keepsNothing?: true | undefined;
}

export interface PipeEvents {
  frame(frame: Frame): void;
  oversized(head: Buffer, tail: Buffer, size: number): void;
  /**
   * Set on a pipe from a server: invalid UTF-8 in its messages is replaced by U+FFFD, and this is called once for each
   * such message. If absent, a message that is not valid UTF-8 has kind `invalid`.
   */
  replaced?(): void;
  pressure(full: boolean): void;
  /** The peer has ended its stream. */
  ended(): void;
}

/**
 * Messages of one turn of the event loop go out in one write, unless they exceed this size, in bytes: then the peer can
 * start on the first part while the rest is produced. With 64 calls in flight this gives a third more calls per second.
 */
const EARLY = 4096;
/** Backpressure starts above `high` queued bytes and ends at `low`. */
export const PRESSURE = { high: 16 * 1024 * 1024, low: 4 * 1024 * 1024 };
/**
 * Garbage collection is requested after this many written bytes that were not freed. Runtimes do not count the memory
 * of chunks, and would let several times as much accumulate; for results of 16 MiB this halves the memory use and saves
 * time.
 */
const BULK = 16 * 1024 * 1024;
/** Writes of at least this size refer to received chunks that were not copied, in bytes. */
const CHUNK = 16 * 1024;
const LF = Buffer.from("\n");

/**
 * Newline-delimited JSON-RPC over two byte streams: parses messages, and batches the messages of one turn into one
 * write.
 */
export class Pipe {
  readonly #source: ByteSource;
  readonly #sink: ByteSink;
  readonly #events: PipeEvents;
  readonly #outbox = new Outbox();
  /** Bytes of the write that the output has not accepted yet. */
  #writing = 0;
  #scheduled = false;
  #full = false;
  /** Bytes of chunks that were written and not freed since the last requested collection. */
  #bulk = 0;
  #ended: Promise<void> | undefined;
  #finish: (() => void) | undefined;

  /** @param limit the longest message that is read, in bytes */
  constructor(source: ByteSource, sink: ByteSink, limit: number, events: PipeEvents) {
    this.#source = source;
    this.#sink = sink;
    this.#events = events;
    const checked = (frame: Frame): Frame =>
      events.replaced === undefined
        ? refuseText(frame)
        : repairText(frame, () => events.replaced?.());
    const read = (bytes: Buffer, isText: boolean): Frame =>
      isText ? readFrame(bytes) : checked(readFrame(bytes));
    const splitter = new Splitter(limit, {
      line: (bytes) => events.frame(read(bytes, isUtf8(bytes))),
      part: (chunk, start, end, sight) => {
        // One check for all lines of a chunk; lines are checked one by one only if it fails.
        if (sight.isText(start)) events.frame(readFramePart(chunk, start, end, sight));
        else events.frame(checked(readFrame(chunk.subarray(start, end))));
      },
      long: (parts, size, isText) => {
        const frame = isText ? readLong(parts, size) : undefined;
        events.frame(frame ?? read(Buffer.concat(memoriesOf(parts), size), isText));
      },
      oversized: (head, tail, size) => events.oversized(head, tail, size),
    });
    source.read(
      (chunk) => splitter.push(chunk),
      () => {
        splitter.end();
        events.ended();
      },
    );
  }

  /** Bytes that the peer's stream has not accepted yet. */
  get queued(): number {
    return this.#outbox.size + this.#writing;
  }

  send(message: EncodedMessage): void {
    if (this.#ended !== undefined) return;
    if (message instanceof Uint8Array) this.#outbox.add(message);
    else if (isPatch(message)) this.#outbox.addPatch(message);
    else for (const piece of message) this.#outbox.add(piece);
    this.#outbox.add(LF);
    if (!this.#full && this.queued > PRESSURE.high) {
      this.#full = true;
      this.#events.pressure(true);
    }
    if (this.#writing > 0) return;
    if (this.#outbox.size >= EARLY) {
      this.#flush();
      return;
    }
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(this.#flush);
  }

  pause(): void {
    this.#source.pause();
  }

  resume(): void {
    this.#source.resume();
  }

  /** Ends the outgoing stream after everything that was sent. @returns when that is done */
  end(): Promise<void> {
    if (this.#ended === undefined) {
      this.#ended = new Promise((resolve) => (this.#finish = resolve));
      if (!this.#scheduled && this.#writing === 0) this.#flush();
    }
    return this.#ended;
  }

  readonly #flush = (): void => {
    this.#scheduled = false;
    // An immediate flush after this one was scheduled may still be in progress.
    if (this.#writing > 0) return;
    for (let bytes = this.#outbox.take(); bytes !== undefined; bytes = this.#outbox.take()) {
      const { length } = bytes;
      const wait = this.#sink.write(bytes);
      if (wait === undefined) {
        this.#release(bytes);
        continue;
      }
      this.#writing = length;
      this.#relieve();
      void wait.then(() => {
        this.#writing = 0;
        this.#release(bytes);
        this.#flush();
      });
      return;
    }
    if (this.#sink.keepsNothing === true) this.#outbox.rewind();
    if (this.#bulk >= BULK) {
      this.#bulk = 0;
      collectGarbage?.();
    }
    this.#relieve();
    if (this.#finish === undefined) return;
    this.#sink.end();
    this.#finish();
    this.#finish = undefined;
  };

  /** Called when a write is complete. */
  #release(bytes: Uint8Array): void {
    const { length } = bytes;
    const isFreed = this.#sink.keepsNothing === true && this.#outbox.release(bytes);
    if (length >= CHUNK && !isFreed) this.#bulk += length;
  }

  #relieve(): void {
    if (!this.#full || this.queued > PRESSURE.low) return;
    this.#full = false;
    this.#events.pressure(false);
  }
}
