import { Buffer } from "node:buffer";
import {
  copyPiece,
  copyRun,
  isGiven,
  memoryOf,
  type Patch,
  type Piece,
  sizeOf,
  sliceOf,
} from "../bytes.ts";

/** From this size on a piece is written by itself; below, it is copied into the write that it is part of. */
const COPY_LIMIT = 16 * 1024;
/** Small pieces are gathered in memory of this size, which is used up piece by piece, and again only after a rewind. */
const SHEET = 64 * 1024;

/**
 * What waits to be written, in order: small pieces gathered into as few writes as possible, big ones as they are.
 * Gathering copies each small piece once, and makes no object for it.
 */
export class Outbox {
  readonly #writes: Uint8Array[] = [];
  /** Of these, those whose memory is free once they are out. Weak: where the sink may keep what it took, nothing is released. */
  readonly #given = new WeakSet<Uint8Array>();
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
      const write = memoryOf(piece);
      if (isGiven(piece)) this.#given.add(write);
      this.#writes.push(write);
      return;
    }
    this.#makeRoom(size);
    this.#end = copyPiece(piece, this.#sheet, this.#end);
  }

  /** What `cutPatch` makes of it, without those pieces. */
  addPatch({ bytes, start, end, edits }: Patch): void {
    let from = start;
    for (const edit of edits) {
      if (edit.start > from) this.#addRun(bytes, from, edit.start);
      this.add(edit.by);
      from = edit.end;
    }
    if (from < end) this.#addRun(bytes, from, end);
  }

  #addRun(of: Uint8Array, start: number, end: number): void {
    const size = end - start;
    if (size >= COPY_LIMIT) {
      this.add(sliceOf(of, start, end));
      return;
    }
    this.#size += size;
    this.#makeRoom(size);
    this.#end = copyRun(of, start, end, this.#sheet, this.#end);
  }

  /** The next write, or undefined if nothing waits. */
  take(): Uint8Array | undefined {
    const next = this.#writes.length > 0 ? this.#writes.shift() : this.#cutSheet();
    if (next !== undefined) this.#size -= next.length;
    return next;
  }

  /**
   * What was taken is out: memory that was given with it is freed, sooner than a collection would see that it can be.
   * @returns whether any was
   */
  release(write: Uint8Array): boolean {
    if (!this.#given.delete(write)) return false;
    (write.buffer as ArrayBuffer).transfer(0);
    return true;
  }

  /** All that was taken is out, and nothing waits: its memory can be used again, so that small messages need no more. */
  rewind(): void {
    this.#start = 0;
    this.#end = 0;
  }

  #makeRoom(size: number): void {
    if (this.#end + size <= this.#sheet.length) return;
    this.#seal();
    this.#sheet = Buffer.allocUnsafeSlow(SHEET);
    this.#start = 0;
    this.#end = 0;
  }

  /** Puts a write of what was gathered behind the others. */
  #seal(): void {
    const write = this.#cutSheet();
    if (write !== undefined) this.#writes.push(write);
  }

  /** A write of what was gathered, if anything was. */
  #cutSheet(): Uint8Array | undefined {
    if (this.#end === this.#start) return undefined;
    const write = this.#sheet.subarray(this.#start, this.#end);
    this.#start = this.#end;
    return write;
  }
}

const EMPTY = Buffer.alloc(0);
