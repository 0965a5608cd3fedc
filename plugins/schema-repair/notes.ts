/** Where something is in a schema. */
export interface Place {
  readonly name: string;
  readonly above: Place | undefined;
}

/** As many places are named; the others are counted. */
const MAX_PLACES = 3;
const MAX_NAME = 40;

/** What is done to most schemas, as generators have not stopped writing it, and what changes nothing. */
export const MARK = "the mark of an older draft left out";

/** What was done to a schema, and where, for people. */
export class Notes {
  readonly #done = new Map<string, { readonly places: Set<string>; count: number }>();

  add(what: string, place?: Place): void {
    const done = this.#done.get(what) ?? { places: new Set(), count: 0 };
    this.#done.set(what, done);
    done.count++;
    if (place !== undefined && done.places.size < MAX_PLACES) done.places.add(print(place));
  }

  /** Whether that is not worth a warning. */
  get isMinor(): boolean {
    return [...this.#done.keys()].every((what) => what === MARK);
  }

  /** Takes over what others have noted. */
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

/** A name that a server chose, so that it can stand in a line of a log. */
export function printName(name: string): string {
  const short = name.length > MAX_NAME ? `${name.slice(0, MAX_NAME - 1)}…` : name;
  return short.replace(/[^\p{L}\p{N}\p{P}\p{S} ]/gu, "?");
}
