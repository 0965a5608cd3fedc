import { Buffer } from "node:buffer";
import { type Body, chunkedBody } from "../../wire/http/body.ts";
import type { RequestHead } from "./head.ts";
import type { Trouble } from "./query.ts";

const NOTHING: Buffer = Buffer.alloc(0);
/** In so many looks a body has to end, or to bring `LEAST` bytes more: one that moves may be long. */
const PATIENCE = 12;
const LEAST = 1024 * 1024;
/** So many pieces in a row are made one: each costs more than a few bytes, and who sends them may send millions. */
const MOST_PIECES = 1024;

/** The memory that all bodies of one listener may take while they are received, in bytes. */
export class BodyQuota {
  #left: number;

  constructor(size: number) {
    this.#left = size;
  }

  /** @returns false if there is not so much left; nothing is taken then */
  take(size: number): boolean {
    if (size > this.#left) return false;
    this.#left -= size;
    return true;
  }

  release(size: number): void {
    this.#left += size;
  }
}

/** A request's body as it comes in. What nobody has asked for yet is held, what nobody wants any more is thrown away. */
export class Inlet {
  readonly #quota: BodyQuota;
  readonly #chunks: Body | undefined;
  /** What has yet to come, in bytes; of a body in chunks nobody knows. */
  #left: number;
  #pieces: Buffer[] = [];
  /** The last ones. */
  #recent: Buffer[] = [];
  #size = 0;
  /** What was taken of the quota, in bytes. */
  #taken = 0;
  #limit = Infinity;
  #looks = 0;
  /** The size that the next `PATIENCE` looks begin with. */
  #before = 0;
  #outcome: "whole" | Trouble | undefined;
  #settle: ((body: Buffer | Trouble) => void) | undefined;
  /** Whether the next request can be told from it: it has come to its end, and nothing uncertain follows. */
  isClean = false;

  constructor(length: RequestHead["body"], quota: BodyQuota) {
    this.#quota = quota;
    this.#chunks = length === "chunked" ? chunkedBody({ isStrict: true }) : undefined;
    this.#left = length === "chunked" ? Infinity : length;
    if (length === 0) this.#complete(true);
  }

  /** @returns what is none of it */
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

  /** See Query. @param wanted called if not all has come yet */
  read(limit: number, wanted: () => void): Buffer | Trouble | Promise<Buffer | Trouble> {
    this.#limit = limit;
    if (this.#size > limit || (this.#left !== Infinity && this.#size + this.#left > limit)) {
      this.fail("tooLarge");
    }
    if (this.#outcome !== undefined) return this.#told(this.#outcome);
    wanted();
    return new Promise((resolve) => (this.#settle = resolve));
  }

  /** It will not come to its end, or nobody wants it. */
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
    // What follows it in the same piece of memory is not looked for: the connection ends instead.
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
    // One that was given up is clean as well, once it has ended.
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

  /** Keeps nothing of it. */
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
