import type { Answer } from "../../src/plugin/plugin.ts";

interface Entry {
  readonly group: ServerGroup;
  readonly answer: Answer;
  /** The entry's size in bytes, including its key. */
  readonly size: number;
  /** Time at which the entry was stored, in ms since the epoch. */
  readonly storedAt: number;
}

/** The keys of one server's cached results. A new group replaces it when the server's results are removed. */
export interface ServerGroup {
  readonly server: string;
  readonly keys: Set<string>;
}

/**
 * Estimated memory of an entry in addition to its texts, in bytes: without it, many small entries could take far more
 * memory than `maxSize`.
 */
const ENTRY_OVERHEAD = 256;

/** An LRU cache of answers with a TTL and a maximum total size. */
export class ResultCache {
  readonly #ttl: number;
  readonly #maxSize: number;
  readonly #now: () => number;
  /** The entries, least recently used first. */
  readonly #entries = new Map<string, Entry>();
  readonly #groups = new Map<string, ServerGroup>();
  #size = 0;

  /** @param now returns the time in ms since the epoch; this clock must advance while the machine sleeps */
  constructor(limits: { readonly ttl: number; readonly maxSize: number }, now = Date.now) {
    this.#ttl = limits.ttl;
    this.#maxSize = limits.maxSize;
    this.#now = now;
  }

  /** The total size of all entries, in bytes. */
  get size(): number {
    return this.#size;
  }

  /** Maximum size of one entry in bytes, so that a single result cannot evict all others. */
  get maxEntrySize(): number {
    return this.#maxSize / 4;
  }

  get(key: string): Answer | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    if (!this.#isExpired(entry)) return entry.answer;
    this.#remove(key, entry);
    return undefined;
  }

  /**
   * The server's current group. Pass it to `put` with the results of calls that begin now: `removeServer` makes the
   * group invalid, so that results of earlier calls are not stored.
   */
  groupOf(server: string): ServerGroup {
    const known = this.#groups.get(server);
    if (known !== undefined) return known;
    const group = { server, keys: new Set<string>() };
    this.#groups.set(server, group);
    return group;
  }

  /** Stores an answer, unless it is too large, or its server's results were dropped since `groupOf` was called. */
  put(group: ServerGroup, key: string, answer: Answer): void {
    const size = answer.size + 2 * key.length + ENTRY_OVERHEAD;
    if (this.#groups.get(group.server) !== group || size > this.maxEntrySize) return;
    this.#evict(key);
    for (const [oldest, entry] of this.#entries) {
      if (this.#size + size <= this.#maxSize && !this.#isExpired(entry)) break;
      this.#remove(oldest, entry);
    }
    this.#entries.set(key, { group, answer, size, storedAt: this.#now() });
    group.keys.add(key);
    this.#size += size;
  }

  /** Removes a server's results; results of calls in progress will not be stored. */
  removeServer(server: string | undefined): void {
    if (server === undefined) return;
    const group = this.#groups.get(server);
    this.#groups.delete(server);
    for (const key of group?.keys ?? []) this.#evict(key);
  }

  clear(): void {
    for (const server of this.#groups.keys()) this.removeServer(server);
  }

  #isExpired({ storedAt }: Entry): boolean {
    const age = this.#now() - storedAt;
    // A negative age means that the clock was set back: the real age is unknown, so treat the entry as expired.
    return age < 0 || age >= this.#ttl;
  }

  #evict(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(key, entry);
  }

  #remove(key: string, entry: Entry): void {
    this.#entries.delete(key);
    entry.group.keys.delete(key);
    this.#size -= entry.size;
  }
}
