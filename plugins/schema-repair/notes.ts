/** A location in a schema: a linked list of keys, innermost first. */
export interface Place {
  readonly name: string;
  readonly above: Place | undefined;
}

/** Maximum number of locations per change; further ones are counted. */
const MAX_PLACES = 3;
const MAX_NAME = 40;

/** A change that most schemas need, as generators still write `$schema`, and that has no effect. */
export const MARK = "the mark of an older draft left out";

/** The changes of a schema and their locations, for the log. */
export class Notes {
  readonly #done = new Map<string, { readonly places: Set<string>; count: number }>();

  add(what: string, place?: Place): void {
    const done = this.#done.get(what) ?? { places: new Set(), count: 0 };
    this.#done.set(what, done);
    done.count++;
    if (place !== undefined && done.places.size < MAX_PLACES) done.places.add(print(place));
  }

  /** Whether no change deserves a warning. */
  get isMinor(): boolean {
    return [...this.#done.keys()].every((what) => what === MARK);
  }

  /** Adds the changes of another list. */
  join(others: Notes): void {
    for (const [what, { places, count }] of others.#done) {
      const done = this.#done.get(what) ?? { places: new Set(), count: 0 };
      this.#done.set(what, done);
      done.count += count;
      for (const place of places) if (done.places.size < MAX_PLACES) done.places.add(place);
    }
  }

  /** One line: `missing items added (properties.tags); …`. */
  toString(): string {
    const parts = [...this.#done].map(([what, { places, count }]) => {
      const more = count > MAX_PLACES ? [`${count} in all`] : [];
      return places.size === 0 ? what : `${what} (${[...places, ...more].join(", ")})`;
    });
    return parts.join("; ");
  }
}

function print(place: Place | undefined): string {
  const names: string[] = [];
  for (let at = place; at !== undefined; at = at.above) names.unshift(printName(at.name));
  return names.join(".");
}

/** A name that a server chose, made safe for a log line. */
export function printName(name: string): string {
  const short = name.length > MAX_NAME ? `${name.slice(0, MAX_NAME - 1)}…` : name;
  return short.replace(/[^\p{L}\p{N}\p{P}\p{S} ]/gu, "?");
}
