import type { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";

export type StoredContent = StoredText | StoredMedia;

export interface StoredText {
  readonly kind: "text";
  /** The text in UTF-8. */
  readonly bytes: Buffer;
  /** The end of each page, in bytes. */
  readonly ends: readonly number[];
}

/** An image, a sound, or any other binary resource. */
export interface StoredMedia {
  readonly kind: "media";
  readonly mimeType: string;
  /** The content in Base64, as received. */
  readonly bytes: Buffer;
}

export interface Clock {
  /** The monotonic time, in ms. */
  now(): number;
  /**
   * Calls `callback` after `ms` milliseconds.
   * @returns a function that cancels the call
   */
  after(ms: number, callback: () => void): () => void;
}

interface Entry {
  readonly content: StoredContent;
  /** The entry's size, in bytes. */
  readonly size: number;
  /** Time at which the entry expires, in ms of the clock. */
  expires: number;
}

/** Memory that the stored end of one page takes, in bytes. */
const PAGE_END_SIZE = 8;

/**
 * An in-memory LRU store with a TTL for content that was cut off. Knowing an id is enough to read its content, so ids
 * are 128 random bits.
 */
export class ContentStore {
  readonly #maxSize: number;
  readonly #ttl: number;
  readonly #clock: Clock;
  /** The entries, least recently used first. */
  readonly #entries = new Map<string, Entry>();
  #size = 0;
  #isClosed = false;
  #cancelTimer: (() => void) | undefined;

  /**
   * @param maxSize maximum total size, in bytes
   * @param ttl how long an entry is kept after its last `put` or `get`, in ms
   */
  constructor(maxSize: number, ttl: number, clock: Clock) {
    this.#maxSize = maxSize;
    this.#ttl = ttl;
    this.#clock = clock;
  }

  /** The total size of all entries, in bytes. */
  get size(): number {
    return this.#size;
  }

  /** Stores content. @returns its id; undefined if the content exceeds the whole store, or the store is closed */
  put(content: StoredContent): string | undefined {
    const size =
      content.bytes.length + (content.kind === "text" ? PAGE_END_SIZE * content.ends.length : 0);
    if (this.#isClosed || size > this.#maxSize) return undefined;
    for (const [id, entry] of this.#entries) {
      if (this.#size + size <= this.#maxSize) break;
      this.#remove(id, entry);
    }
    const id = randomBytes(16).toString("hex");
    this.#entries.set(id, { content, size, expires: this.#clock.now() + this.#ttl });
    this.#size += size;
    this.#setTimer();
    return id;
  }

  get(id: string): StoredContent | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.expires <= this.#clock.now()) return undefined;
    entry.expires = this.#clock.now() + this.#ttl;
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    return entry.content;
  }

  /** Removes everything; later `put` calls store nothing. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#entries.clear();
    this.#size = 0;
  }

  #remove(id: string, entry: Entry): void {
    this.#entries.delete(id);
    this.#size -= entry.size;
  }

  /**
   * Starts the timer that removes expired entries. There is one timer, for the entry that expires next. If that entry
   * was read in the meantime, the timer finds nothing to remove.
   */
  #setTimer(): void {
    if (this.#cancelTimer !== undefined) return;
    const [next] = this.#entries.values();
    if (next === undefined) return;
    this.#cancelTimer = this.#clock.after(Math.max(0, next.expires - this.#clock.now()), () => {
      this.#cancelTimer = undefined;
      const now = this.#clock.now();
      for (const [id, entry] of this.#entries) if (entry.expires <= now) this.#remove(id, entry);
      this.#setTimer();
    });
  }
}
