import type { Answer } from "../../src/plugin/plugin.ts";

interface Entry {
  readonly shelf: Shelf;
  readonly answer: Answer;
  /** In bytes, with the key. */
  readonly weight: number;
  /** ms since the epoch. */
  readonly since: number;
}

/** The keys of one server's cached results. */
export interface Shelf {
  readonly server: string;
  readonly keys: Set<string>;
}

/** Estimated memory per entry besides its texts, in bytes, so that many small entries count as well. */
const OVERHEAD = 256;

/** An LRU cache of answers with a TTL and a maximum total size. */
export class Store {
  readonly #ttl: number;
  readonly #maxSize: number;
  readonly #now: () => number;
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry>();
  readonly #shelves = new Map<string, Shelf>();
  #size = 0;

  /** @param now ms since the epoch; has to advance while the machine sleeps */
  constructor(limits: { readonly ttl: number; readonly maxSize: number }, now = Date.now) {
    this.#ttl = limits.ttl;
    this.#maxSize = limits.maxSize;
    this.#now = now;
  }

  /** In bytes. */
  get size(): number {
    return this.#size;
  }

  /** Maximum size of one entry in bytes, so that a single result cannot evict all others. */
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

  /** The group to pass to `put` for results of calls that begin now; invalid once the server's results are dropped. */
  shelf(server: string): Shelf {
    const known = this.#shelves.get(server);
    if (known !== undefined) return known;
    const shelf = { server, keys: new Set<string>() };
    this.#shelves.set(server, shelf);
    return shelf;
  }

  /** Stores an answer, unless it is too large, or its server's results were dropped since `groupOf` was called. */
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

  /** Removes a server's results, including those of calls in progress. */
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
    // If the clock was set back, the age is unknown.
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
