/**
 * A map of what is in flight, made for entries that come and go all the time. JavaScriptCore's Map allocates a new
 * table every so many insertions, and old tables refer to newer ones: those in the old generation keep all of them
 * alive until a full collection. Each of the frequent collections then had 2.3 MB of finished calls to visit, instead
 * of 0.05 MB.
 *
 * Non-negative integers, as most ids are, are kept in a hash table with open addressing; other keys in a Map.
 */
export class Register<Value> {
  #keys: number[] = emptyKeys(LEAST);
  #values: (Value | undefined)[] = emptyValues(LEAST);
  /** Insertion order of each slot. */
  #turns: number[] = emptyKeys(LEAST);
  #mask = LEAST - 1;
  #count = 0;
  #turn = 0;
  readonly #others = new Map<string | number, readonly [Value, number]>();

  get size(): number {
    return this.#count + this.#others.size;
  }

  has(key: string | number): boolean {
    return this.get(key) !== undefined;
  }

  get(key: string | number): Value | undefined {
    if (!isPlain(key)) return this.#others.get(key)?.[0];
    const slot = this.#find(key);
    return this.#keys[slot] === key ? this.#values[slot] : undefined;
  }

  /** An existing key moves to the end of the order. */
  set(key: string | number, value: Value): void {
    if (!isPlain(key)) {
      this.#others.set(key, [value, this.#turn++]);
      return;
    }
    let slot = this.#find(key);
    if (this.#keys[slot] === FREE) {
      if ((this.#count + 1) * 2 > this.#mask) {
        this.#grow();
        slot = this.#find(key);
      }
      this.#count++;
    }
    this.#put(slot, key, value, this.#turn++);
  }

  /** Adds a value under a new key. Not to be mixed with caller-chosen keys. @returns the key */
  add(value: Value): number {
    const key = this.#turn;
    this.set(key, value);
    return key;
  }

  /** @returns the removed value */
  take(key: string | number): Value | undefined {
    if (!isPlain(key)) {
      const value = this.#others.get(key)?.[0];
      this.#others.delete(key);
      return value;
    }
    const slot = this.#find(key);
    if (this.#keys[slot] !== key) return undefined;
    const value = this.#values[slot];
    this.#count--;
    if (this.#count === 0 && this.#mask >= LARGE) this.#resize(LEAST);
    else this.#free(slot);
    return value;
  }

  clear(): void {
    this.#resize(LEAST);
    this.#count = 0;
    this.#others.clear();
  }

  /** In insertion order. */
  values(): Value[] {
    return this.entries().map(([, value]) => value);
  }

  /** In insertion order. */
  entries(): (readonly [key: string | number, value: Value])[] {
    const found: { key: string | number; value: Value; turn: number }[] = Array.from(
      this.#others,
      ([key, [value, turn]]) => ({ key, value, turn }),
    );
    for (const [slot, key] of this.#keys.entries()) {
      if (key === FREE) continue;
      found.push({ key, value: this.#values[slot] as Value, turn: this.#turns[slot] as number });
    }
    return found.sort((a, b) => a.turn - b.turn).map(({ key, value }) => [key, value]);
  }

  /** The values for which `test` holds, in no particular order: avoids the sort of `values`. */
  filter(test: (value: Value) => boolean): Value[] {
    const found: Value[] = [];
    for (const [value] of this.#others.values()) if (test(value)) found.push(value);
    if (this.#count === 0) return found;
    const keys = this.#keys;
    for (let slot = 0; slot < keys.length; slot++) {
      if (keys[slot] === FREE) continue;
      const value = this.#values[slot] as Value;
      if (test(value)) found.push(value);
    }
    return found;
  }

  /** The most recently inserted value for which `test` holds. */
  findLast(test: (value: Value) => boolean): Value | undefined {
    let found: Value | undefined;
    let latest = -1;
    for (const [value, turn] of this.#others.values()) {
      if (turn > latest && test(value)) [found, latest] = [value, turn];
    }
    if (this.#count === 0) return found;
    const keys = this.#keys;
    for (let slot = 0; slot < keys.length; slot++) {
      const turn = this.#turns[slot] as number;
      if (keys[slot] === FREE || turn <= latest) continue;
      const value = this.#values[slot] as Value;
      if (test(value)) [found, latest] = [value, turn];
    }
    return found;
  }

  /**
   * Multiplicative hashing: consecutive ids in consecutive slots would make every removal move all entries behind it.
   */
  #home(key: number): number {
    const scattered = Math.imul(key, SCATTER);
    return (scattered ^ (scattered >>> 15)) & this.#mask;
  }

  /** The slot of a key, or the free slot where it belongs. */
  #find(key: number): number {
    let slot = this.#home(key);
    for (;;) {
      const at = this.#keys[slot];
      if (at === key || at === FREE) return slot;
      slot = (slot + 1) & this.#mask;
    }
  }

  #put(slot: number, key: number, value: Value | undefined, turn: number): void {
    this.#keys[slot] = key;
    this.#values[slot] = value;
    this.#turns[slot] = turn;
  }

  /** Moves up the following entries that could not be found behind a free slot (linear probing). */
  #free(slot: number): void {
    let hole = slot;
    for (let next = (hole + 1) & this.#mask; ; next = (next + 1) & this.#mask) {
      const key = this.#keys[next] as number;
      if (key === FREE) break;
      const distance = (next - this.#home(key)) & this.#mask;
      if (distance < ((next - hole) & this.#mask)) continue;
      this.#put(hole, key, this.#values[next], this.#turns[next] as number);
      hole = next;
    }
    this.#put(hole, FREE, undefined, 0);
  }

  /** Also removes all entries. */
  #resize(size: number): void {
    this.#keys = emptyKeys(size);
    this.#values = emptyValues(size);
    this.#turns = emptyKeys(size);
    this.#mask = size - 1;
  }

  #grow(): void {
    const [keys, values, turns] = [this.#keys, this.#values, this.#turns];
    this.#resize(keys.length * 2);
    for (const [slot, key] of keys.entries()) {
      if (key !== FREE) this.#put(this.#find(key), key, values[slot], turns[slot] as number);
    }
  }
}

/** Slots of an empty table: a power of two. */
const LEAST = 16;
/** Tables of at least this many slots are shrunk when they become empty. */
const LARGE = 4096;
const FREE = -1;
/** 2 ** 32 divided by the golden ratio. */
const SCATTER = 0x9e3779b1;
const MOST = 2 ** 31;

function isPlain(key: string | number): key is number {
  return typeof key === "number" && key >= 0 && key < MOST && Number.isInteger(key);
}

function emptyKeys(size: number): number[] {
  return Array.from({ length: size }, () => FREE);
}

function emptyValues<Value>(size: number): (Value | undefined)[] {
  return Array.from({ length: size }, () => undefined);
}
