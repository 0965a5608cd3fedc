import { Buffer, isUtf8 } from "node:buffer";
import type { ByteInput, ByteOutput } from "../base/byte-streams.ts";
import {
  copyByteRange,
  copyPiece,
  detachMemory,
  type EditedBytes,
  isDetachable,
  makeSlice,
  type Piece,
  pieceSize,
  toBytes,
} from "../base/bytes.ts";
import { enterStage } from "../base/fault-injection.ts";
import { collectGarbage } from "../base/runtime.ts";
import { buffersOf, LineReader, parseLongResponse } from "./line-reader.ts";
import {
  type EncodedMessage,
  hasValidBody,
  type InvalidMessage,
  isEdited,
  type Message,
} from "./message.ts";
import { LF, parseInChunk, parseMessage } from "./parse.ts";
import { rejectInvalidUtf8, repairUtf8 } from "./utf8.ts";

/** Pieces of at least this size, in bytes, are written on their own; smaller ones are copied into a shared write. */
const COPY_LIMIT = 16 * 1024;
/**
 * Size, in bytes, of the slab: the buffer that small pieces are copied into. It is filled again from its start only
 * after `reuseSlab`.
 */
const SLAB_SIZE = 64 * 1024;
/** Maximum number of slabs that are kept while no write buffer uses them. */
const MAX_SPARE_SLABS = 16;

/** Slabs that several write buffers use in turn, so that each has one only while it writes. */
export class SlabPool {
  readonly #spare: Buffer[] = [];

  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(SLAB_SIZE);
  }

  /** Takes a slab back that nothing refers to any more. */
  giveBack(slab: Buffer): void {
    if (this.#spare.length < MAX_SPARE_SLABS) this.#spare.push(slab);
  }
}

/**
 * Queued output, in order. Small pieces are copied together into as few writes as possible, which allocates no object
 * per piece; big ones are written as they are.
 */
export class WriteBuffer {
  readonly #pool: SlabPool | undefined;
  readonly #writes: Uint8Array[] = [];
  /**
   * The writes whose memory may be detached (see `ByteSlice`); undefined before the first. The set is weak because nothing
   * removes writes from it if the output retains memory: `release` is not called then.
   */
  #detachable: WeakSet<Uint8Array> | undefined;
  #slab: Buffer = EMPTY_SLAB;
  /** The part of the slab that is not queued as a write yet: `[#start, #end)`. */
  #start = 0;
  #end = 0;
  #size = 0;

  /** @param pool the slabs that this buffer uses; by default it keeps one of its own */
  constructor(pool?: SlabPool) {
    this.#pool = pool;
  }

  /** Number of queued bytes. */
  get size(): number {
    return this.#size;
  }

  add(piece: Piece): void {
    const size = pieceSize(piece);
    if (size === 0) return;
    this.#size += size;
    if (size >= COPY_LIMIT) {
      this.#queueSlab();
      const write = toBytes(piece);
      if (isDetachable(piece)) (this.#detachable ??= new WeakSet()).add(write);
      this.#writes.push(write);
      return;
    }
    this.#reserve(size);
    this.#end = copyPiece(piece, this.#slab, this.#end);
  }

  /** Adds the pieces that `piecesOfEdited` would return, without allocating them. */
  addEdited({ bytes, start, end, edits }: EditedBytes): void {
    let from = start;
    for (const edit of edits) {
      if (edit.start > from) this.#addBytes(bytes, from, edit.start);
      this.add(edit.replacement);
      from = edit.end;
    }
    if (from < end) this.#addBytes(bytes, from, end);
  }

  addLineEnd(): void {
    this.#size++;
    this.#reserve(1);
    this.#slab[this.#end++] = LF;
  }

  #addBytes(bytes: Uint8Array, start: number, end: number): void {
    const size = end - start;
    if (size >= COPY_LIMIT) {
      this.add(makeSlice(bytes, start, end));
      return;
    }
    this.#size += size;
    this.#reserve(size);
    this.#end = copyByteRange(bytes, start, end, this.#slab, this.#end);
  }

  /** Removes the next write; undefined if nothing is queued. */
  shift(): Uint8Array | undefined {
    const next = this.#writes.length > 0 ? this.#writes.shift() : this.#sliceSlab();
    if (next !== undefined) this.#size -= next.length;
    return next;
  }

  /**
   * Called when a write is complete. Detaches the memory of the write if that is allowed.
   * @returns whether the memory was detached
   */
  release(write: Uint8Array): boolean {
    if (this.#detachable?.delete(write) !== true) return false;
    detachMemory(write);
    return true;
  }

  /**
   * Lets the slab be filled again from its start. Called only when all writes are complete and nothing is queued: see
   * the rules of memory at `ByteSlice`.
   */
  reuseSlab(): void {
    this.#start = 0;
    this.#end = 0;
    if (this.#pool === undefined || this.#slab === EMPTY_SLAB) return;
    this.#pool.giveBack(this.#slab);
    this.#slab = EMPTY_SLAB;
  }

  #reserve(size: number): void {
    if (this.#end + size <= this.#slab.length) return;
    this.#queueSlab();
    this.#slab = this.#pool?.take() ?? Buffer.allocUnsafeSlow(SLAB_SIZE);
    this.#start = 0;
    this.#end = 0;
  }

  /** Queues the bytes that were copied into the slab so far as a write. */
  #queueSlab(): void {
    const write = this.#sliceSlab();
    if (write !== undefined) this.#writes.push(write);
  }

  /** The bytes that were copied into the slab so far, as a write; undefined if there are none. */
  #sliceSlab(): Uint8Array | undefined {
    if (this.#end === this.#start) return undefined;
    const write = this.#slab.subarray(this.#start, this.#end);
    this.#start = this.#end;
    return write;
  }
}

const EMPTY_SLAB = Buffer.alloc(0);

/** @returns undefined if the message is valid, including the unread body of a response */
function asInvalid(message: Message): InvalidMessage | undefined {
  if (message.kind === "invalid") return message;
  if (message.kind !== "response" || hasValidBody(message)) return undefined;
  const { bytes, start, end } = message;
  const reason = "the message is not valid JSON";
  return { kind: "invalid", bytes, start, end, code: "parseError", reason, id: undefined };
}

export interface PipeEvents {
  message(message: Message): void;
  /**
   * Called instead of `message` if the peer has ended its stream within a line, and the line is no valid message. If
   * this function is absent, `message` is called.
   */
  cutOff?(line: InvalidMessage): void;
  oversized(head: Buffer, tail: Buffer, size: number): void;
  /**
   * Set on a pipe from a server: invalid UTF-8 in a message is replaced by U+FFFD, and this function is called once for
   * the message. If it is absent, a message that is not valid UTF-8 has kind `invalid`.
   */
  repaired?(): void;
  backpressure(isFull: boolean): void;
  /** The peer has ended its stream. */
  ended(): void;
  /** A message could not be handled, because of a defect of the hub. The input is given up; `ended` is not called. */
  failed(error: unknown): void;
}

/**
 * Messages sent in one turn of the event loop are written together. If they exceed this size, in bytes, they are
 * written before the turn ends, so that the peer can start on them while the rest is produced. With 64 calls in flight
 * this gives a third more calls per second.
 */
const EARLY_FLUSH_SIZE = 4096;
/** Backpressure starts above `high` queued bytes and ends at `low`. */
export const WRITE_LIMITS = { high: 16 * 1024 * 1024, low: 4 * 1024 * 1024 };
/**
 * After this many bytes have been written from chunks that were not freed, garbage collection is requested. Runtimes do
 * not count the memory of chunks, and would let several times as much accumulate. For results of 16 MiB this halves the
 * memory use and saves time.
 */
const GC_THRESHOLD = 16 * 1024 * 1024;
/** Writes of at least this size, in bytes, refer to received chunks that were not copied. */
const LARGE_WRITE = 16 * 1024;

/**
 * Newline-delimited JSON-RPC over two byte streams: parses messages, and batches the messages of one turn into one
 * write.
 */
export class Pipe {
  readonly #input: ByteInput;
  readonly #output: ByteOutput;
  readonly #events: PipeEvents;
  readonly #writeBuffer: WriteBuffer;
  /** Size in bytes of the write that the output has not accepted yet; 0 if there is none. */
  #writingSize = 0;
  #isFlushScheduled = false;
  #isFull = false;
  /** Number of bytes written from chunks that were not freed, since garbage collection was last requested. */
  #unfreed = 0;
  #ended: Promise<void> | undefined;
  #resolveEnded: (() => void) | undefined;

  /**
   * @param limit maximum length of a message, in bytes
   * @param slabs memory that it shares with other pipes while it writes; by default it keeps memory of its own
   */
  constructor(
    input: ByteInput,
    output: ByteOutput,
    limit: number,
    events: PipeEvents,
    slabs?: SlabPool,
  ) {
    this.#writeBuffer = new WriteBuffer(slabs);
    this.#input = input;
    this.#output = output;
    this.#events = events;
    const repairOrReject = (message: Message): Message =>
      events.repaired === undefined
        ? rejectInvalidUtf8(message)
        : repairUtf8(message, () => events.repaired?.());
    const parse = (bytes: Buffer, isValidUtf8: boolean): Message =>
      isValidUtf8 ? parseMessage(bytes) : repairOrReject(parseMessage(bytes));
    let isEnding = false;
    /** Passes on a message that came in several chunks, or was not ended by a line end. */
    const emit = (message: Message): void => {
      const cutOff = isEnding && events.cutOff !== undefined ? asInvalid(message) : undefined;
      if (cutOff === undefined) events.message(message);
      else events.cutOff?.(cutOff);
    };
    const lineReader = new LineReader(limit, {
      line: (bytes) => emit(parse(bytes, isUtf8(bytes))),
      lineInChunk: (chunk, start, end, scan) => {
        // UTF-8 is validated once for all lines of a chunk; the lines are validated one by one only if that fails.
        if (scan.isValidUtf8(start)) events.message(parseInChunk(chunk, start, end, scan));
        else events.message(repairOrReject(parseMessage(chunk.subarray(start, end))));
      },
      longLine: (parts, size, isValidUtf8) => {
        const message = isValidUtf8 ? parseLongResponse(parts, size) : undefined;
        emit(message ?? parse(Buffer.concat(buffersOf(parts), size), isValidUtf8));
      },
      oversized: (head, tail, size) => events.oversized(head, tail, size),
    });
    let hasFailed = false;
    const fail = (error: unknown): void => {
      hasFailed = true;
      events.failed(error);
    };
    input.read(
      (chunk) => {
        if (hasFailed) return;
        try {
          enterStage("line");
          lineReader.push(chunk);
        } catch (error) {
          fail(error);
        }
      },
      () => {
        if (hasFailed) return;
        isEnding = true;
        try {
          lineReader.end();
        } catch (error) {
          fail(error);
          return;
        }
        events.ended();
      },
    );
  }

  /** Bytes that the peer's stream has not accepted yet. */
  get queued(): number {
    return this.#writeBuffer.size + this.#writingSize;
  }

  send(message: EncodedMessage): void {
    if (this.#ended !== undefined) return;
    if (message instanceof Uint8Array) this.#writeBuffer.add(message);
    else if (isEdited(message)) this.#writeBuffer.addEdited(message);
    else for (const piece of message) this.#writeBuffer.add(piece);
    this.#writeBuffer.addLineEnd();
    if (!this.#isFull && this.queued > WRITE_LIMITS.high) {
      this.#isFull = true;
      this.#events.backpressure(true);
    }
    if (this.#writingSize > 0) return;
    if (this.#writeBuffer.size >= EARLY_FLUSH_SIZE) {
      this.#flush();
      return;
    }
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    queueMicrotask(this.#flush);
  }

  pause(): void {
    this.#input.pause();
  }

  resume(): void {
    this.#input.resume();
  }

  /** Ends the outgoing stream after everything that was sent. The promise settles when that is done. */
  end(): Promise<void> {
    if (this.#ended === undefined) {
      this.#ended = new Promise((resolve) => (this.#resolveEnded = resolve));
      if (!this.#isFlushScheduled && this.#writingSize === 0) this.#flush();
    }
    return this.#ended;
  }

  readonly #flush = (): void => {
    this.#isFlushScheduled = false;
    // `send` may have flushed directly after it scheduled this flush, and that write may still be pending.
    if (this.#writingSize > 0) return;
    for (
      let bytes = this.#writeBuffer.shift();
      bytes !== undefined;
      bytes = this.#writeBuffer.shift()
    ) {
      const { length } = bytes;
      const pendingWrite = this.#output.write(bytes);
      if (pendingWrite === undefined) {
        this.#writeDone(bytes);
        continue;
      }
      this.#writingSize = length;
      this.#endBackpressure();
      void pendingWrite.then(() => {
        this.#writingSize = 0;
        this.#writeDone(bytes);
        this.#flush();
      });
      return;
    }
    if (this.#output.retainsNoMemory === true) this.#writeBuffer.reuseSlab();
    if (this.#unfreed >= GC_THRESHOLD) {
      this.#unfreed = 0;
      collectGarbage?.();
    }
    this.#endBackpressure();
    if (this.#resolveEnded === undefined) return;
    this.#output.end();
    this.#resolveEnded();
    this.#resolveEnded = undefined;
  };

  /** Called when a write is complete. */
  #writeDone(bytes: Uint8Array): void {
    const { length } = bytes;
    const isFreed = this.#output.retainsNoMemory === true && this.#writeBuffer.release(bytes);
    if (length >= LARGE_WRITE && !isFreed) this.#unfreed += length;
  }

  #endBackpressure(): void {
    if (!this.#isFull || this.queued > WRITE_LIMITS.low) return;
    this.#isFull = false;
    this.#events.backpressure(false);
  }
}
