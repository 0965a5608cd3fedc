import type { Answer } from "../../src/plugin/plugin.ts";

interface Entry {
  readonly shelf: Shelf;
  readonly answer: Answer;
  /** In bytes, with its key. */
  readonly weight: number;
  /** ms since the epoch. */
  readonly since: number;
}

/** The keys of what is kept of one server. */
export interface Shelf {
  readonly server: string;
  readonly keys: Set<string>;
}

/** What an entry costs besides its texts, in bytes: estimated, so that many small ones count as well. */
const OVERHEAD = 256;

/** Answers by key: each for its time, all together of a limited size; the one that was used longest ago goes first. */
export class Store {
  readonly #ttl: number;
  readonly #maxSize: number;
  readonly #now: () => number;
  /** In the order of their last use. */
  readonly #entries = new Map<string, Entry>();
  readonly #shelves = new Map<string, Shelf>();
  #size = 0;

  /** @param now ms since the epoch: a clock that goes on while the machine sleeps. */
  constructor(limits: { readonly ttl: number; readonly maxSize: number }, now = Date.now) {
    this.#ttl = limits.ttl;
    this.#maxSize = limits.maxSize;
    this.#now = now;
  }

  /** In bytes. */
  get size(): number {
    return this.#size;
  }

  /** What is bigger than that, in bytes, is not kept: one result must not drive out all others. */
  get largest(): number {
    return this.#maxSize / 4;
  }

  get(key: string): Answer | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    if (!this.#isOver(entry)) return entry.answer;
    this.#remove(key, entry);
    return undefined;
  }

  /** Where results of calls that begin now may be put: until the server's results are dropped. */
  shelf(server: string): Shelf {
    const known = this.#shelves.get(server);
    if (known !== undefined) return known;
    const shelf = { server, keys: new Set<string>() };
    this.#shelves.set(server, shelf);
    return shelf;
  }

  /** Keeps an answer, unless its server's results were dropped since the shelf was asked for, or it is too big. */
  put(shelf: Shelf, key: string, answer: Answer): void {
    const weight = answer.size + 2 * key.length + OVERHEAD;
    if (this.#shelves.get(shelf.server) !== shelf || weight > this.largest) return;
    this.#evict(key);
    for (const [oldest, entry] of this.#entries) {
      if (this.#size + weight <= this.#maxSize && !this.#isOver(entry)) break;
      this.#remove(oldest, entry);
    }
    this.#entries.set(key, { shelf, answer, weight, since: this.#now() });
    shelf.keys.add(key);
    this.#size += weight;
  }

  /** Forgets what is kept of a server, and what is under way. */
  drop(server: string | undefined): void {
    if (server === undefined) return;
    const shelf = this.#shelves.get(server);
    this.#shelves.delete(server);
    for (const key of shelf?.keys ?? []) this.#evict(key);
  }

  clear(): void {
    for (const server of this.#shelves.keys()) this.drop(server);
  }

  #isOver({ since }: Entry): boolean {
    const age = this.#now() - since;
    // A clock that was set back says nothing of the age.
    return age < 0 || age >= this.#ttl;
  }

  #evict(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(key, entry);
  }

  #remove(key: string, entry: Entry): void {
    this.#entries.delete(key);
    entry.shelf.keys.delete(key);
    this.#size -= entry.weight;
  }
}
