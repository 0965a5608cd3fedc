import { Buffer } from "node:buffer";
import { type BodyDecoder, chunkedDecoder } from "../../../transport/http-client/body.ts";
import type { ParsedRequestHead } from "./request-parser.ts";
import type { BodyError } from "./messages.ts";

const EMPTY: Buffer = Buffer.alloc(0);
/** Checks within which a body has to end or to grow by `MIN_PROGRESS` bytes: one that makes progress may take long. */
const MAX_CHECKS = 12;
const MIN_PROGRESS = 1024 * 1024;
/** Pieces are joined after this many: each costs more memory than its bytes, and a client may send millions. */
const MAX_PIECES = 1024;

/** The memory that all bodies being received may take together, in bytes. */
export class BodyQuota {
  #available: number;

  constructor(size: number) {
    this.#available = size;
  }

  /** @returns false if less is left; nothing is taken then */
  reserve(size: number): boolean {
    if (size > this.#available) return false;
    this.#available -= size;
    return true;
  }

  release(size: number): void {
    this.#available += size;
  }
}

/** A request's body while it is received. Buffered until it is read, discarded once it has failed. */
export class RequestBody {
  readonly #quota: BodyQuota;
  readonly #decoder: BodyDecoder | undefined;
  /** Bytes that have yet to come; Infinity for a chunked body. */
  #remaining: number;
  #pieces: Buffer[] = [];
  /** The pieces since the last join. */
  #recent: Buffer[] = [];
  #size = 0;
  /** Bytes taken from the quota. */
  #reserved = 0;
  #limit = Infinity;
  #checks = 0;
  /** The size at the start of the current `MAX_CHECKS` checks. */
  #sizeBefore = 0;
  #outcome: "whole" | BodyError | undefined;
  #resolve: ((body: Buffer | BodyError) => void) | undefined;
  /** The body has ended, and the next request's start is certain. */
  isEndCertain = false;

  constructor(length: ParsedRequestHead["body"], quota: BodyQuota) {
    this.#quota = quota;
    this.#decoder = length === "chunked" ? chunkedDecoder({ isStrict: true }) : undefined;
    this.#remaining = length === "chunked" ? Infinity : length;
    if (length === 0) this.#complete(true);
  }

  /** @returns what follows the body */
  push(chunk: Buffer): Buffer {
    if (this.isEndCertain || chunk.length === 0) return chunk;
    if (this.#decoder !== undefined) {
      this.#pushChunked(this.#decoder, chunk);
      return EMPTY;
    }
    const isAll = chunk.length <= this.#remaining;
    const piece = isAll ? chunk : chunk.subarray(0, this.#remaining);
    this.#remaining -= piece.length;
    this.#add(piece);
    if (this.#remaining === 0) this.#complete(true);
    return isAll ? EMPTY : chunk.subarray(piece.length);
  }

  /** See HttpServerRequest. @param onIncomplete called if the body is not complete yet */
  read(limit: number, onIncomplete: () => void): Buffer | BodyError | Promise<Buffer | BodyError> {
    this.#limit = limit;
    if (
      this.#size > limit ||
      (this.#remaining !== Infinity && this.#size + this.#remaining > limit)
    ) {
      this.fail("tooLarge");
    }
    if (this.#outcome !== undefined) return this.#resultOf(this.#outcome);
    onIncomplete();
    return new Promise((resolve) => (this.#resolve = resolve));
  }

  /** The body will not be complete, or is not wanted. */
  fail(error: BodyError): void {
    if (this.#outcome === undefined) this.#finish(error);
    else this.#release();
  }

  check(): void {
    if (++this.#checks <= MAX_CHECKS) return;
    if (this.#size - this.#sizeBefore < MIN_PROGRESS) this.fail("tooSlow");
    this.#checks = 1;
    this.#sizeBefore = this.#size;
  }

  #pushChunked(decoder: BodyDecoder, chunk: Buffer): void {
    if (this.#outcome !== undefined) return;
    const state = decoder.push(chunk, (piece) => this.#add(piece));
    if (state === "malformed") this.fail("broken");
    // What follows the end in the same chunk is not looked for: the connection closes instead.
    else if (state !== "more") this.#complete(state === "end");
  }

  #add(piece: Buffer): void {
    if (this.#outcome !== undefined) return;
    this.#size += piece.length;
    if (this.#size > this.#limit) {
      this.fail("tooLarge");
      return;
    }
    if (!this.#quota.reserve(piece.length)) {
      this.fail("tooMany");
      return;
    }
    this.#reserved += piece.length;
    this.#recent.push(piece);
    if (this.#recent.length >= MAX_PIECES) this.#joinPieces();
  }

  #complete(isEndCertain: boolean): void {
    // A discarded body of known length has a certain end as well.
    this.isEndCertain =
      isEndCertain && (this.#decoder === undefined || this.#outcome === undefined);
    if (this.#outcome === undefined) this.#finish("whole");
  }

  #joinPieces(): void {
    this.#pieces.push(Buffer.concat(this.#recent));
    this.#recent = [];
  }

  #finish(outcome: "whole" | BodyError): void {
    this.#outcome = outcome;
    if (outcome !== "whole") this.#release();
    this.#resolve?.(this.#resultOf(outcome));
  }

  /** Drops the buffered bytes and returns their quota. */
  #release(): void {
    if (this.#reserved === 0) return;
    this.#pieces = this.#recent = [];
    this.#quota.release(this.#reserved);
    this.#reserved = 0;
  }

  #resultOf(outcome: "whole" | BodyError): Buffer | BodyError {
    if (outcome !== "whole") return outcome;
    const pieces = [...this.#pieces, ...this.#recent];
    this.#release();
    const [first = EMPTY] = pieces;
    return pieces.length > 1 ? Buffer.concat(pieces, this.#size) : first;
  }
}
