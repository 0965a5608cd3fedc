import { Buffer } from "node:buffer";
import { type Body, chunkedBody } from "../../../transport/http-client/body.ts";
import type { RequestHead } from "./request-parser.ts";
import type { Trouble } from "./messages.ts";

const NOTHING: Buffer = Buffer.alloc(0);
/** Checks within which a body has to end or to grow by `MIN_PROGRESS` bytes: one that makes progress may take long. */
const PATIENCE = 12;
const LEAST = 1024 * 1024;
/** Pieces are joined after this many: each costs more memory than its bytes, and a client may send millions. */
const MOST_PIECES = 1024;

/** The memory that all bodies being received may take together, in bytes. */
export class BodyQuota {
  #left: number;

  constructor(size: number) {
    this.#left = size;
  }

  /** @returns false if less is left; nothing is taken then */
  take(size: number): boolean {
    if (size > this.#left) return false;
    this.#left -= size;
    return true;
  }

  release(size: number): void {
    this.#left += size;
  }
}

/** A request's body while it is received. Buffered until it is read, discarded once it has failed. */
export class Inlet {
  readonly #quota: BodyQuota;
  readonly #chunks: Body | undefined;
  /** Bytes that have yet to come; Infinity for a chunked body. */
  #left: number;
  #pieces: Buffer[] = [];
  /** The pieces since the last join. */
  #recent: Buffer[] = [];
  #size = 0;
  /** Bytes taken from the quota. */
  #taken = 0;
  #limit = Infinity;
  #looks = 0;
  /** The size at the start of the current `MAX_CHECKS` checks. */
  #before = 0;
  #outcome: "whole" | Trouble | undefined;
  #settle: ((body: Buffer | Trouble) => void) | undefined;
  /** The body has ended, and the next request's start is certain. */
  isClean = false;

  constructor(length: RequestHead["body"], quota: BodyQuota) {
    this.#quota = quota;
    this.#chunks = length === "chunked" ? chunkedBody({ isStrict: true }) : undefined;
    this.#left = length === "chunked" ? Infinity : length;
    if (length === 0) this.#complete(true);
  }

  /** @returns what follows the body */
  take(chunk: Buffer): Buffer {
    if (this.isClean || chunk.length === 0) return chunk;
    if (this.#chunks !== undefined) {
      this.#takeChunks(this.#chunks, chunk);
      return NOTHING;
    }
    const isAll = chunk.length <= this.#left;
    const piece = isAll ? chunk : chunk.subarray(0, this.#left);
    this.#left -= piece.length;
    this.#add(piece);
    if (this.#left === 0) this.#complete(true);
    return isAll ? NOTHING : chunk.subarray(piece.length);
  }

  /** See HttpServerRequest. @param onIncomplete called if the body is not complete yet */
  read(limit: number, wanted: () => void): Buffer | Trouble | Promise<Buffer | Trouble> {
    this.#limit = limit;
    if (this.#size > limit || (this.#left !== Infinity && this.#size + this.#left > limit)) {
      this.fail("tooLarge");
    }
    if (this.#outcome !== undefined) return this.#told(this.#outcome);
    wanted();
    return new Promise((resolve) => (this.#settle = resolve));
  }

  /** The body will not be complete, or is not wanted. */
  fail(trouble: Trouble): void {
    if (this.#outcome === undefined) this.#end(trouble);
    else this.#release();
  }

  look(): void {
    if (++this.#looks <= PATIENCE) return;
    if (this.#size - this.#before < LEAST) this.fail("tooSlow");
    this.#looks = 1;
    this.#before = this.#size;
  }

  #takeChunks(chunks: Body, chunk: Buffer): void {
    if (this.#outcome !== undefined) return;
    const found = chunks.push(chunk, (piece) => this.#add(piece));
    if (found === "malformed") this.fail("broken");
    // What follows the end in the same chunk is not looked for: the connection closes instead.
    else if (found !== "more") this.#complete(found === "end");
  }

  #add(piece: Buffer): void {
    if (this.#outcome !== undefined) return;
    this.#size += piece.length;
    if (this.#size > this.#limit) {
      this.fail("tooLarge");
      return;
    }
    if (!this.#quota.take(piece.length)) {
      this.fail("tooMany");
      return;
    }
    this.#taken += piece.length;
    this.#recent.push(piece);
    if (this.#recent.length >= MOST_PIECES) this.#gather();
  }

  #complete(isClean: boolean): void {
    // A discarded body of known length has a certain end as well.
    this.isClean = isClean && (this.#chunks === undefined || this.#outcome === undefined);
    if (this.#outcome === undefined) this.#end("whole");
  }

  #gather(): void {
    this.#pieces.push(Buffer.concat(this.#recent));
    this.#recent = [];
  }

  #end(outcome: "whole" | Trouble): void {
    this.#outcome = outcome;
    if (outcome !== "whole") this.#release();
    this.#settle?.(this.#told(outcome));
  }

  /** Drops the buffered bytes and returns their quota. */
  #release(): void {
    if (this.#taken === 0) return;
    this.#pieces = this.#recent = [];
    this.#quota.release(this.#taken);
    this.#taken = 0;
  }

  #told(outcome: "whole" | Trouble): Buffer | Trouble {
    if (outcome !== "whole") return outcome;
    const pieces = [...this.#pieces, ...this.#recent];
    this.#release();
    const [first = NOTHING] = pieces;
    return pieces.length > 1 ? Buffer.concat(pieces, this.#size) : first;
  }
}
