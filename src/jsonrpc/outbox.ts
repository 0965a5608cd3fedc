import { Buffer } from "node:buffer";
import {
  copyPiece,
  copyBytes,
  isDetachable,
  toBytes,
  type EditedBytes,
  type Piece,
  sizeOf,
  makeSlice,
} from "../base/bytes.ts";

/** Pieces of at least this size are written on their own; smaller ones are copied into a shared write, in bytes. */
const COPY_LIMIT = 16 * 1024;
/** Size of the slab that small pieces are copied into, in bytes. It is filled once, and reused only after `reuseSlab`. */
const SLAB_SIZE = 64 * 1024;

/**
 * Queued output, in order: small pieces are copied together into as few writes as possible, big ones are written as
 * they are.
 * Copying allocates no object per piece.
 */
export class WriteBuffer {
  readonly #writes: Uint8Array[] = [];
  /**
   * The writes whose memory may be freed when they are complete. Weak, since nothing is released on outputs that retain
   * memory.
   */
  readonly #detachable = new WeakSet<Uint8Array>();
  #slab = EMPTY_SLAB;
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
      this.#queueSlab();
      const write = toBytes(piece);
      if (isDetachable(piece)) this.#detachable.add(write);
      this.#writes.push(write);
      return;
    }
    this.#reserve(size);
    this.#end = copyPiece(piece, this.#slab, this.#end);
  }

  /** Adds the pieces that `piecesOfEdited` would give, without allocating them. */
  addEdited({ bytes, start, end, edits }: EditedBytes): void {
    let from = start;
    for (const edit of edits) {
      if (edit.start > from) this.#addBytes(bytes, from, edit.start);
      this.add(edit.replacement);
      from = edit.end;
    }
    if (from < end) this.#addBytes(bytes, from, end);
  }

  #addBytes(bytes: Uint8Array, start: number, end: number): void {
    const size = end - start;
    if (size >= COPY_LIMIT) {
      this.add(makeSlice(bytes, start, end));
      return;
    }
    this.#size += size;
    this.#reserve(size);
    this.#end = copyBytes(bytes, start, end, this.#slab, this.#end);
  }

  /** Removes the next write; undefined if nothing is queued. */
  shift(): Uint8Array | undefined {
    const next = this.#writes.length > 0 ? this.#writes.shift() : this.#sliceSlab();
    if (next !== undefined) this.#size -= next.length;
    return next;
  }

  /**
   * The write is complete: detaches its memory if that was given away with the piece, sooner than garbage collection
   * would.
   * @returns whether it was
   */
  release(write: Uint8Array): boolean {
    if (!this.#detachable.delete(write)) return false;
    (write.buffer as ArrayBuffer).transfer(0);
    return true;
  }

  /** All writes are complete and nothing is queued: the slab can be filled again from its start. */
  reuseSlab(): void {
    this.#start = 0;
    this.#end = 0;
  }

  #reserve(size: number): void {
    if (this.#end + size <= this.#slab.length) return;
    this.#queueSlab();
    this.#slab = Buffer.allocUnsafeSlow(SLAB_SIZE);
    this.#start = 0;
    this.#end = 0;
  }

  /** Queues the bytes that were copied so far as a write. */
  #queueSlab(): void {
    const write = this.#sliceSlab();
    if (write !== undefined) this.#writes.push(write);
  }

  /** The bytes that were copied so far as a write; undefined if there are none. */
  #sliceSlab(): Uint8Array | undefined {
    if (this.#end === this.#start) return undefined;
    const write = this.#slab.subarray(this.#start, this.#end);
    this.#start = this.#end;
    return write;
  }
}

const EMPTY_SLAB = Buffer.alloc(0);
