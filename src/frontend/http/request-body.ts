import { Buffer } from "node:buffer";
import { setTimeout } from "node:timers/promises";
import type { Clock } from "../../base/clock.ts";
import { ReadShare } from "../../base/peer-reader.ts";

/**
 * The reason why a body was not read to its end. `tooLarge`: it exceeds the limit; `tooMany`: all bodies that are being
 * received would take too much memory together; `tooSlow`: it made no progress; `tooFragmented`: its chunks are tiny;
 * `broken`: it is malformed, or the connection was lost.
 */
export type BodyError = "tooLarge" | "tooMany" | "tooSlow" | "tooFragmented" | "broken";

/** Default limit of the memory for all bodies that are being received at the same time, in bytes. */
export const MAX_RECEIVING: number = 256 * 1024 * 1024;

/** Interval in ms at which bodies are checked for progress. */
export const BODY_CHECK_INTERVAL = 5000;
/**
 * A body must end, or grow by `MIN_PROGRESS` bytes, within this many checks. There is no limit for its total duration.
 */
const MAX_CHECKS = 12;
const MIN_PROGRESS = 1024 * 1024;

/** A body up to this size, in bytes, is read in one piece if the request announces its size. */
const MAX_WHOLE_SIZE = 64 * 1024;

/**
 * A body is refused if this many reads in sequence have brought fewer than `MIN_READ_SIZE` bytes each on average: a
 * chunk of one byte costs the process about as much as a chunk of a kilobyte, and a client can send millions of them.
 */
const MAX_SMALL_READS = 512;
const MIN_READ_SIZE = 32;

/**
 * The time that one read of a body is taken to have cost at most, in ms. What a read took beyond that was spent waiting
 * for the client.
 */
const MAX_READ_TIME = 0.05;

/**
 * After a turn of more than `tolerated` ms, bodies in parts wait `factor` times as long as it took, at most `max` ms,
 * before more of them is read.
 */
const LAG = { tolerated: 4, factor: 3, max: 100 };

/** The pieces of a body are joined whenever there are this many: each piece costs memory besides its bytes. */
const MAX_PIECES = 1024;

const EMPTY: Buffer = Buffer.alloc(0);

/** Reads the bodies of requests, and limits the memory that all bodies take together while they are being received. */
export class RequestBodies {
  readonly #clock: Clock;
  /** What is handled of bodies in parts in one turn of the event loop: all of them have it together. */
  readonly #share = new ReadShare();
  readonly #receiving = new Set<ReceivedBody>();
  #available: number;
  #cancelChecks: (() => void) | undefined;

  /** @param maxReceiving maximum memory for all bodies together, in bytes */
  constructor(clock: Clock, maxReceiving: number) {
    this.#clock = clock;
    this.#available = maxReceiving;
  }

  /** Reads a body of at most `limit` bytes. Never rejects. */
  async read(request: Request, limit: number): Promise<Buffer | BodyError> {
    const announced = request.headers.get("Content-Length");
    const size = announced === null ? Infinity : Number(announced);
    if (size > limit && announced !== null) return "tooLarge";
    if (size > MAX_WHOLE_SIZE && request.body === null) return EMPTY;
    const body: ReceivedBody = new ReceivedBody(() => {
      this.#receiving.delete(body);
      this.#available += body.reserved;
    });
    this.#receiving.add(body);
    this.#cancelChecks ??= this.#scheduleChecks();
    void (size <= MAX_WHOLE_SIZE
      ? this.#receiveWhole(body, request, size, limit)
      : this.#receiveStream(body, request, limit));
    return body.outcome;
  }

  /** Stops checking for progress. */
  close(): void {
    this.#cancelChecks?.();
  }

  async #receiveWhole(
    body: ReceivedBody,
    request: Request,
    size: number,
    limit: number,
  ): Promise<void> {
    if (!this.#reserve(body, size)) {
      body.end("tooMany");
      return;
    }
    try {
      const bytes = Buffer.from(await request.arrayBuffer());
      body.end(bytes.length > limit ? "tooLarge" : bytes);
    } catch {
      body.end("broken");
    }
  }

  async #receiveStream(body: ReceivedBody, request: Request, limit: number): Promise<void> {
    let start = performance.now();
    const reader = (request.body as ReadableStream<Uint8Array>).getReader();
    const pieces: Uint8Array[] = [];
    /** The pieces that were received since pieces were last joined. */
    let recent: Uint8Array[] = [];
    /** The reads and the bytes since the last check for tiny chunks. */
    let reads = 0;
    let size = 0;
    try {
      while (!body.hasEnded) {
        const { done, value } = await reader.read();
        if (body.hasEnded) break;
        if (done) {
          body.end(Buffer.concat([...pieces, ...recent]));
          return;
        }
        body.size += value.length;
        if (body.size > limit) body.end("tooLarge");
        else if (!this.#reserve(body, value.length)) body.end("tooMany");
        size += value.length;
        const isFragmented = size < ++reads * MIN_READ_SIZE;
        if (reads === MAX_SMALL_READS) {
          if (isFragmented) body.end("tooFragmented");
          reads = size = 0;
        }
        recent.push(compact(value));
        if (recent.length >= MAX_PIECES) {
          pieces.push(Buffer.concat(recent));
          recent = [];
        }
        // Tiny chunks are read on until the body is refused: the runtime handles them much slower while nothing is read.
        const time = isFragmented ? 0 : Math.min(performance.now() - start, MAX_READ_TIME);
        this.#share.use(value.length, time);
        if (this.#share.isSpent) await this.#yieldTurn();
        start = performance.now();
      }
      await reader.cancel();
    } catch {
      body.end("broken");
    }
  }

  /**
   * Waits for the next turn, and longer after a turn that took long: the runtime itself receives up to 1.5 MB of a body
   * in one turn, until what was received is read. While nothing is read, it stops receiving, and others have their turns.
   */
  async #yieldTurn(): Promise<void> {
    const before = performance.now();
    await this.#share.nextTurn();
    const lag = performance.now() - before;
    if (lag > LAG.tolerated) await setTimeout(Math.min(lag * LAG.factor, LAG.max));
  }

  /** Takes `size` bytes for a body from the shared quota. @returns false, with nothing taken, if less is left */
  #reserve(body: ReceivedBody, size: number): boolean {
    if (size > this.#available) return false;
    this.#available -= size;
    body.reserved += size;
    return true;
  }

  #scheduleChecks(): () => void {
    return this.#clock.after(BODY_CHECK_INTERVAL, () => {
      for (const body of this.#receiving) body.check();
      this.#cancelChecks = this.#receiving.size > 0 ? this.#scheduleChecks() : undefined;
    });
  }
}

/** Copies a small piece of a large buffer, so that the buffer can be freed: Deno reads each piece into 64 KiB. */
function compact(piece: Uint8Array): Uint8Array {
  return piece.length < piece.buffer.byteLength / 2 ? Buffer.copyBytesFrom(piece) : piece;
}

/** A body while it is received. */
class ReceivedBody {
  readonly #outcome = Promise.withResolvers<Buffer | BodyError>();
  readonly #onEnd: () => void;
  /** Number of bytes received so far. */
  size = 0;
  /** Number of bytes taken from the quota. */
  reserved = 0;
  hasEnded = false;
  #checks = 0;
  /** Value of `size` at the start of the current round of `MAX_CHECKS` checks. */
  #sizeBefore = 0;

  /** @param onEnd called once, synchronously, when the body ends */
  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
  }

  get outcome(): Promise<Buffer | BodyError> {
    return this.#outcome.promise;
  }

  end(outcome: Buffer | BodyError): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.#onEnd();
    this.#outcome.resolve(outcome);
  }

  check(): void {
    if (++this.#checks <= MAX_CHECKS) return;
    if (this.size - this.#sizeBefore < MIN_PROGRESS) this.end("tooSlow");
    this.#checks = 1;
    this.#sizeBefore = this.size;
  }
}
