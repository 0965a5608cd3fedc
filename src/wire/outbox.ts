import { Buffer } from "node:buffer";
import { copyPiece, memoryOf, type Piece, sizeOf } from "../bytes.ts";

/** From this size on a piece is written by itself; below, it is copied into the write that it is part of. */
const COPY_LIMIT = 16 * 1024;
/** Small pieces are gathered in memory of this size, which is used up piece by piece and never written to twice. */
const SHEET = 64 * 1024;

/**
 * What waits to be written, in order: small pieces gathered into as few writes as possible, big ones as they are.
 * Gathering copies each small piece once, and makes no object for it.
 */
export class Outbox {
  readonly #writes: Uint8Array[] = [];
  #sheet = EMPTY;
  /** The part of the sheet that no write has yet: from `#start` up to `#end`. */
  #start = 0;
  #end = 0;
  #size = 0;

  /** Bytes that wait. */
  get size(): number {
    return this.#size;
  }

  add(piece: Piece): void {
    const size = sizeOf(piece);
    // A write of no bytes would look like none, and the next would not wait for it.
    if (size === 0) return;
    this.#size += size;
    if (size >= COPY_LIMIT) {
      this.#seal();
      this.#writes.push(memoryOf(piece));
      return;
    }
    if (this.#end + size > this.#sheet.length) {
      this.#seal();
      this.#sheet = Buffer.allocUnsafeSlow(SHEET);
      this.#start = 0;
      this.#end = 0;
    }
    this.#end = copyPiece(piece, this.#sheet, this.#end);
  }

  /** The next write, or undefined if nothing waits. */
  take(): Uint8Array | undefined {
    if (this.#writes.length === 0) this.#seal();
    const next = this.#writes.shift();
    if (next !== undefined) this.#size -= next.length;
    return next;
  }

  /** Makes a write of what was gathered. */
  #seal(): void {
    if (this.#end === this.#start) return;
    this.#writes.push(this.#sheet.subarray(this.#start, this.#end));
    this.#start = this.#end;
  }
}

const EMPTY = Buffer.alloc(0);
