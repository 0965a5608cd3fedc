/** Random numbers that a seed decides: the same seed, the same numbers. (mulberry32) */
export class Chance {
  readonly #seed: number;
  #state: number;

  constructor(seed: number) {
    this.#seed = seed;
    this.#state = seed | 0;
  }

  /** Numbers of its own for whoever has that name: what others draw does not change them. */
  fork(name: string): Chance {
    let seed = this.#seed;
    for (const letter of name) seed = Math.imul(seed ^ (letter.codePointAt(0) ?? 0), 0x01000193);
    return new Chance(seed);
  }

  /** 0 ≤ number < 1 */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    const state = this.#state;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  happens(probability: number): boolean {
    return this.next() < probability;
  }

  /** A whole number, from `least` to `most`. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  /** @throws if there is nothing to pick from. */
  pick<T>(from: readonly T[]): T {
    const picked = from[Math.floor(this.next() * from.length)];
    if (picked === undefined) throw new Error("there is nothing to pick from");
    return picked;
  }

  /** One of these, each as often as its number says. */
  weigh<T>(weighted: readonly (readonly [weight: number, item: T])[]): T {
    const sum = weighted.reduce((total, [weight]) => total + weight, 0);
    let left = this.next() * sum;
    for (const [weight, item] of weighted) {
      left -= weight;
      if (left < 0) return item;
    }
    return this.pick(weighted)[1];
  }
}
