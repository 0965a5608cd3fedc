import type { Buffer } from "node:buffer";
import { setImmediate } from "node:timers";
import type { ByteInput } from "./byte-streams.ts";
import { setReceiptTime } from "./clock.ts";

/**
 * What is handled of one peer in one turn of the event loop: at most `bytes`, or `time` ms. `allPeers`: ms for all peers
 * together. What exceeds this waits for the next turn, in which timers and other peers have theirs.
 */
const TURN_LIMITS = { bytes: 256 * 1024, time: 2, allPeers: 8 };

/**
 * Sizes in bytes of the portions in which a chunk is handled. A portion that takes longer than `slow` ms halves the next
 * ones; one that takes less than `quick` ms doubles them.
 */
const PORTION = { min: 2048, first: 16 * 1024, max: 256 * 1024, quick: 0.25, slow: 1 };

/** The number of the current turn, as far as a limit was reached in it: shares of earlier turns are unused again. */
let turn = 0;
/** Time that all peers took in this turn, in ms. */
let timeOfAll = 0;
let isTurnScheduled = false;
/** What waits for the next turn, in order. */
let waiting: Waiter[] = [];

interface Waiter {
  readonly share: ReadShare;
  /** Continues until the share is used up. @returns whether it has to wait again */
  run(): boolean;
}

function wait(waiter: Waiter): void {
  waiting.push(waiter);
  scheduleTurn();
}

function scheduleTurn(): void {
  if (isTurnScheduled) return;
  isTurnScheduled = true;
  setImmediate(beginTurn);
}

function beginTurn(): void {
  isTurnScheduled = false;
  turn++;
  timeOfAll = 0;
  const before = waiting;
  waiting = [];
  const again: Waiter[] = [];
  const skipped = before.filter((waiter) => {
    if (waiter.share.isSpent) return true;
    if (waiter.run()) again.push(waiter);
    return false;
  });
  // Those that had no turn come before those that had one, and those that began to wait meanwhile come last.
  waiting = [...skipped, ...again, ...waiting];
  if (waiting.length > 0) scheduleTurn();
}

/** What one peer may use of a turn of the event loop. All streams of the peer have it together. */
export class ReadShare {
  readonly maxBytes: number;
  #turn = 0;
  #bytes = 0;
  #time = 0;

  /** @param maxBytes maximum number of bytes in one turn */
  constructor(maxBytes = TURN_LIMITS.bytes) {
    this.maxBytes = maxBytes;
  }

  /** Whether nothing more may be handled in this turn. */
  get isSpent(): boolean {
    if (this.#turn !== turn) {
      this.#turn = turn;
      this.#bytes = 0;
      this.#time = 0;
    }
    return (
      this.#bytes >= this.maxBytes ||
      this.#time >= TURN_LIMITS.time ||
      timeOfAll >= TURN_LIMITS.allPeers
    );
  }

  /** @param time how long the bytes were handled, in ms */
  use(bytes: number, time: number): void {
    this.#bytes += bytes;
    this.#time += time;
    timeOfAll += time;
  }

  /** For readers that ask for their next bytes: settles when this peer has its next turn. */
  nextTurn(): Promise<void> {
    return new Promise((resolve) => {
      wait({
        share: this,
        run() {
          resolve();
          return false;
        },
      });
    });
  }
}

export interface PeerReaderEvents {
  /** Handles the next bytes. An exception ends the reading: `failed` is called instead of `end`. */
  receive(bytes: Buffer): void;
  failed(error: unknown): void;
  /** Stops or continues the source, whose further chunks may still arrive after it was stopped. */
  setReading(isReading: boolean): void;
  /** The end of a portion: at most `size` bytes after `from`, or more if the bytes must not be split there. */
  endOfPortion?(chunk: Buffer, from: number, size: number): number;
}

/**
 * Hands the chunks of one stream of a peer to their receiver, in order, and within the peer's share of each turn. A
 * chunk within the share is handled at once.
 */
export class PeerReader implements Waiter {
  readonly share: ReadShare;
  readonly #events: PeerReaderEvents;
  #pending: Buffer[] = [];
  /** Called when everything before the end has been handled. */
  #onEnd: (() => void)[] = [];
  #portion: number;
  #isPaused = false;
  #isWaiting = false;
  #isStopped = false;
  #hasRest = false;
  #isClosed = false;

  constructor(share: ReadShare, events: PeerReaderEvents) {
    this.share = share;
    this.#events = events;
    this.#portion = Math.min(PORTION.first, share.maxBytes);
  }

  /** Whether bytes have arrived that follow those being handled. */
  get hasMore(): boolean {
    return this.#hasRest || this.#pending.length > 0;
  }

  push(chunk: Buffer): void {
    if (this.#isClosed) return;
    if (this.#isPaused || this.#isWaiting || this.hasMore || this.share.isSpent) {
      this.#pending.push(chunk);
      this.#wait();
    } else if (!this.#handle(chunk)) this.#wait();
  }

  /** Calls `onEnd` once after all chunks so far were handled, at once if there are none. */
  end(onEnd: () => void): void {
    if (this.#isClosed || this.hasMore) this.#onEnd.push(onEnd);
    else onEnd();
  }

  pause(): void {
    this.#isPaused = true;
    this.#setReading(false);
  }

  resume(): void {
    this.#isPaused = false;
    if (this.#isWaiting) return;
    // The end may have come before it was paused.
    if (this.hasMore || this.#onEnd.length > 0) this.#wait();
    else this.#setReading(true);
  }

  /** Drops what waits. Nothing is called any more. */
  close(): void {
    this.#isClosed = true;
    this.#pending = [];
    this.#onEnd = [];
  }

  run(): boolean {
    // Still counts as waiting while it handles chunks: a receiver that resumes it must not let it wait a second time.
    while (!this.#isClosed && !this.#isPaused) {
      const chunk = this.#pending.shift();
      if (chunk === undefined) break;
      if (this.#handle(chunk) && !this.share.isSpent) continue;
      if (this.#pending.length === 0) break;
      if (!this.#isPaused && !this.#isClosed) return true;
    }
    this.#isWaiting = false;
    if (this.#isClosed || this.#isPaused) return false;
    this.#setReading(true);
    const ends = this.#onEnd;
    this.#onEnd = [];
    for (const end of ends) end();
    return false;
  }

  /** Handles a chunk. @returns false if a part of it has to wait */
  #handle(chunk: Buffer): boolean {
    for (let from = 0; ;) {
      const end = this.#endOfPortion(chunk, from);
      this.#hasRest = end < chunk.length;
      const portion = from === 0 && !this.#hasRest ? chunk : chunk.subarray(from, end);
      const start = performance.now();
      setReceiptTime(start);
      try {
        this.#events.receive(portion);
        setReceiptTime(undefined);
      } catch (error) {
        setReceiptTime(undefined);
        this.#hasRest = false;
        this.close();
        this.#events.failed(error);
        return true;
      }
      const time = performance.now() - start;
      this.share.use(portion.length, time);
      if (this.#isClosed || !this.#hasRest) {
        this.#hasRest = false;
        return true;
      }
      this.#resize(time);
      from = end;
      if (this.#isPaused || this.share.isSpent) {
        this.#hasRest = false;
        this.#pending.unshift(chunk.subarray(from));
        return false;
      }
    }
  }

  #endOfPortion(chunk: Buffer, from: number): number {
    const size = this.#portion;
    if (chunk.length - from <= size) return chunk.length;
    return this.#events.endOfPortion?.(chunk, from, size) ?? from + size;
  }

  #resize(time: number): void {
    const max = Math.min(PORTION.max, this.share.maxBytes);
    if (time < PORTION.quick) this.#portion = Math.min(this.#portion * 2, max);
    else if (time > PORTION.slow) this.#portion = Math.max(this.#portion / 2, PORTION.min);
  }

  #wait(): void {
    this.#setReading(false);
    if (this.#isWaiting || this.#isPaused || this.#isClosed) return;
    this.#isWaiting = true;
    wait(this);
  }

  #setReading(isReading: boolean): void {
    if (this.#isStopped !== isReading) return;
    this.#isStopped = !isReading;
    this.#events.setReading(isReading);
  }
}

const LF = 0x0a;

/**
 * The end of a portion of lines: after the next line end, so that lines are not split. A chunk with one line end belongs
 * to a long line, whose memory must stay in one piece: see `ByteSlice`.
 */
function endOfLines(chunk: Buffer, from: number, size: number): number {
  const at = chunk.indexOf(LF, from + size);
  if (at < 0) return chunk.length;
  const isOnlyEnd = from === 0 && chunk.indexOf(LF) === at && !chunk.includes(LF, at + 1);
  return isOnlyEnd ? chunk.length : at + 1;
}

/**
 * An input of lines whose chunks are handled within the peer's share of each turn. The end is reported after all chunks.
 */
export function shareTurns(source: ByteInput, share = new ReadShare()): ByteInput {
  return new SharedInput(source, share);
}

/** See `shareTurns`. One object in place of functions for each event: a hub has one for each of its clients. */
class SharedInput implements ByteInput, PeerReaderEvents {
  readonly #source: ByteInput;
  readonly #reader: PeerReader;
  #onChunk: ((chunk: Buffer) => void) | undefined;

  constructor(source: ByteInput, share: ReadShare) {
    this.#source = source;
    this.#reader = new PeerReader(share, this);
  }

  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.#onChunk = onChunk;
    this.#source.read(
      (chunk) => this.#reader.push(chunk),
      () => this.#reader.end(onEnd),
    );
  }

  pause(): void {
    this.#reader.pause();
  }

  resume(): void {
    this.#reader.resume();
  }

  receive(bytes: Buffer): void {
    this.#onChunk?.(bytes);
  }

  failed(error: unknown): void {
    throw error;
  }

  setReading(isReading: boolean): void {
    if (isReading) this.#source.resume();
    else this.#source.pause();
  }

  endOfPortion(chunk: Buffer, from: number, size: number): number {
    return endOfLines(chunk, from, size);
  }
}
