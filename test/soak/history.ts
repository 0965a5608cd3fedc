/** What the file of the manifest held, and since when, in ms. */
interface Content<T> {
  readonly at: number;
  /** Whoever is in it by name; undefined if it is no manifest. */
  readonly guests: ReadonlyMap<string, T> | undefined;
}

/** A content that stands for so long is in force by then, in ms. */
const SETTLING = 4000;
/** Contents are forgotten so long after they went, in ms. */
const MEMORY = 120_000;

/** What the manifest was, and so what the hub may go by: it reads the file some time after a change, and only manifests count. */
export class History<T> {
  readonly #contents: Content<T>[] = [];

  /** From now on the file holds this. */
  note(at: number, guests: ReadonlyMap<string, T> | undefined): void {
    this.#contents.push({ at, guests });
    const [, second] = this.#contents;
    if (second !== undefined && second.at < at - MEMORY) this.#contents.shift();
  }

  /** What that guest may have been to the hub at some time between these, in ms; undefined: not there. */
  possible(name: string, from: number, to: number): readonly (T | undefined)[] {
    const found = new Set<T | undefined>();
    for (const [at, { at: since, guests }] of [...this.#contents.entries()].reverse()) {
      if (guests === undefined || since > to) continue;
      found.add(guests.get(name));
      const until = this.#contents[at + 1]?.at ?? Infinity;
      if (since + SETTLING <= Math.min(from, until)) break;
    }
    return [...found];
  }
}
