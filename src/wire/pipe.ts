import { Buffer, isUtf8 } from "node:buffer";
import { collectGarbage } from "../runtime.ts";
import { readFrame, readFramePart } from "./frame.ts";
import { type Frame, isPatch, type Message } from "./jsonrpc.ts";
import { Splitter } from "./lines.ts";
import { memoriesOf, readLong } from "./long.ts";
import { Outbox } from "./outbox.ts";
import { refuseText, repairText } from "./utf8.ts";

/** Where bytes come from: a child's stdout, or the hub's own stdin. */
export interface ByteSource {
  /** Starts reading, once. No chunk's memory is used again after it was handed over. */
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void;
  pause(): void;
  resume(): void;
}

/** Where bytes go. */
export interface ByteSink {
  /**
   * @returns undefined if more may be written at once, or a promise that settles when it may.
   * The promise never rejects: a sink that dies settles it, and swallows what is written later.
   */
  write(bytes: Uint8Array): Promise<void> | undefined;
  /** Ends the stream after all that was written. */
  end(): void;
  /** What was written without a promise is out: its memory may be used for something else. */
  readonly keepsNothing?: true | undefined;
}

export interface PipeEvents {
  frame(frame: Frame): void;
  oversized(head: Buffer, tail: Buffer, size: number): void;
  /**
   * Set on a pipe from a server: invalid UTF-8 sequences in its messages become U+FFFD, and this is called for each such
   * message. Absent: a message that is not valid UTF-8 is `invalid`.
   */
  replaced?(): void;
  pressure(full: boolean): void;
  /** The peer sends no more. */
  ended(): void;
}

/**
 * What one turn produces goes out in one write, unless it is more than this: then the peer starts on the first
 * part while the rest is made. With 64 calls in flight that is a third more of them in a second.
 */
const EARLY = 4096;
/** Queued bytes from which the peer counts as not reading, and below which it reads again. */
export const PRESSURE = { high: 16 * 1024 * 1024, low: 4 * 1024 * 1024 };
/**
 * After so many bytes that a write did not free a collection is asked for. The memory of chunks is not what the runtime counts,
 * so that it lets several times as much of it pile up; results of 16 MiB then cost half as much memory, and less time, as what
 * is used again need not be got from the system.
 */
const BULK = 16 * 1024 * 1024;
/** What is written in pieces of this size came in chunks, which were not copied, in bytes. */
const CHUNK = 16 * 1024;
const LF = Buffer.from("\n");

/** JSON-RPC over two byte streams, one message a line: reads frames, and writes in one go what one turn produced. */
export class Pipe {
  readonly #source: ByteSource;
  readonly #sink: ByteSink;
  readonly #events: PipeEvents;
  readonly #outbox = new Outbox();
  /** Bytes of the write that the sink has not taken yet. */
  #writing = 0;
  #scheduled = false;
  #full = false;
  /** Bytes of chunks that were written and not freed since a collection was asked for. */
  #bulk = 0;
  #ended: Promise<void> | undefined;
  #finish: (() => void) | undefined;

  /** @param limit the longest message that is read, in bytes. */
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
        // One check for all lines of a chunk; only if that fails is each line checked alone.
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

  /** Bytes that the peer's stream has not taken yet. */
  get queued(): number {
    return this.#outbox.size + this.#writing;
  }

  send(message: Message): void {
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

  /** Ends the outgoing stream once everything that was sent is written. @returns when that is done. */
  end(): Promise<void> {
    if (this.#ended === undefined) {
      this.#ended = new Promise((resolve) => (this.#finish = resolve));
      if (!this.#scheduled && this.#writing === 0) this.#flush();
    }
    return this.#ended;
  }

  readonly #flush = (): void => {
    this.#scheduled = false;
    // What was sent at once after this was scheduled may still be on its way out.
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

  /** What was written is out. */
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
