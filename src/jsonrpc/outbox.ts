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
} from "../base/bytes.ts";

/** Pieces of at least this size are written on their own; smaller ones are copied into a shared write, in bytes. */
const COPY_LIMIT = 16 * 1024;
/** Size of the slab that small pieces are copied into, in bytes. It is filled once, and reused only after `reuseSlab`. */
const SHEET = 64 * 1024;

/**
 * Queued output, in order: small pieces are copied together into as few writes as possible, big ones are written as
 * they are.
 * Copying allocates no object per piece.
 */
export class Outbox {
  readonly #writes: Uint8Array[] = [];
  /**
   * The writes whose memory may be freed when they are complete. Weak, since nothing is released on outputs that retain
   * memory.
   */
  readonly #given = new WeakSet<Uint8Array>();
  #sheet = EMPTY;
  /** The part of the slab that is in no write yet: `[#start, #end)`. */
  #start = 0;
  #end = 0;
  #size = 0;

  /** Queued bytes. */
  get size(): number {
    return this.#size;
  }

  add(piece: Piece): void {
    const size = sizeOf(piece);
    // A write of no bytes would look like none at all, and the next write would not wait for it.
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

  /** Adds the pieces that `piecesOfEdited` would give, without allocating them. */
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

  /** Removes the next write; undefined if nothing is queued. */
  take(): Uint8Array | undefined {
    const next = this.#writes.length > 0 ? this.#writes.shift() : this.#cutSheet();
    if (next !== undefined) this.#size -= next.length;
    return next;
  }

  /**
   * The write is complete: detaches its memory if that was given away with the piece, sooner than garbage collection
   * would.
   * @returns whether it was
   */
  release(write: Uint8Array): boolean {
    if (!this.#given.delete(write)) return false;
    (write.buffer as ArrayBuffer).transfer(0);
    return true;
  }

  /** All writes are complete and nothing is queued: the slab can be filled again from its start. */
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

  /** Queues the bytes that were copied so far as a write. */
  #seal(): void {
    const write = this.#cutSheet();
    if (write !== undefined) this.#writes.push(write);
  }

  /** The bytes that were copied so far as a write; undefined if there are none. */
  #cutSheet(): Uint8Array | undefined {
    if (this.#end === this.#start) return undefined;
    const write = this.#sheet.subarray(this.#start, this.#end);
    this.#start = this.#end;
    return write;
  }
}

const EMPTY = Buffer.alloc(0);
