import type { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";

/** What is kept of a result that was cut. */
export type Kept = Text | Media;

export interface Text {
  readonly kind: "text";
  /** In UTF-8. */
  readonly bytes: Buffer;
  /** Where each page ends, in bytes. */
  readonly ends: readonly number[];
}

/** A picture, a sound, or any other resource that is no text. */
export interface Media {
  readonly kind: "media";
  readonly mimeType: string;
  /** In base64, as it came. */
  readonly bytes: Buffer;
}

/** Time, as the shelf needs it. */
export interface Clock {
  /** ms, monotonic. */
  now(): number;
  /** Calls back after that many ms. @returns the undo. */
  after(ms: number, callback: () => void): () => void;
}

interface Entry {
  readonly kept: Kept;
  /** In bytes. */
  readonly size: number;
  /** In ms of the clock. */
  expires: number;
}

/** What the number of a place in a text takes, in bytes. */
const NUMBER_SIZE = 8;

/**
 * What was cut off, in memory, for a while. An id is all that it takes to read it, so ids are 128 random bits; those who
 * know one were given it. What was not read for the longest time goes first.
 */
export class Shelf {
  readonly #room: number;
  readonly #ttl: number;
  readonly #clock: Clock;
  /** Those that were put there or read last are at the end. */
  readonly #entries = new Map<string, Entry>();
  #size = 0;
  #isClosed = false;
  #disarm: (() => void) | undefined;

  /**
   * @param room bytes, all together
   * @param ttl ms, since something was put there or read
   */
  constructor(room: number, ttl: number, clock: Clock) {
    this.#room = room;
    this.#ttl = ttl;
    this.#clock = clock;
  }

  /** Bytes of all that is kept. */
  get size(): number {
    return this.#size;
  }

  /** @returns its id; undefined if it is bigger than the whole shelf, or the shelf is closed */
  put(kept: Kept): string | undefined {
    const size = kept.bytes.length + (kept.kind === "text" ? NUMBER_SIZE * kept.ends.length : 0);
    if (this.#isClosed || size > this.#room) return undefined;
    for (const [id, entry] of this.#entries) {
      if (this.#size + size <= this.#room) break;
      this.#remove(id, entry);
    }
    const id = randomBytes(16).toString("hex");
    this.#entries.set(id, { kept, size, expires: this.#clock.now() + this.#ttl });
    this.#size += size;
    this.#arm();
    return id;
  }

  get(id: string): Kept | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.expires <= this.#clock.now()) return undefined;
    entry.expires = this.#clock.now() + this.#ttl;
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    return entry.kept;
  }

  /** Throws everything away, and takes nothing any more. */
  close(): void {
    this.#isClosed = true;
    this.#disarm?.();
    this.#disarm = undefined;
    this.#entries.clear();
    this.#size = 0;
  }

  #remove(id: string, entry: Entry): void {
    this.#entries.delete(id);
    this.#size -= entry.size;
  }

  /** One timer, for the entry that goes next; what was read meanwhile only makes it come too early. */
  #arm(): void {
    if (this.#disarm !== undefined) return;
    const [next] = this.#entries.values();
    if (next === undefined) return;
    this.#disarm = this.#clock.after(Math.max(0, next.expires - this.#clock.now()), () => {
      this.#disarm = undefined;
      const now = this.#clock.now();
      for (const [id, entry] of this.#entries) if (entry.expires <= now) this.#remove(id, entry);
      this.#arm();
    });
  }
}
