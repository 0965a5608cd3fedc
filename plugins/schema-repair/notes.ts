/** A location in a schema: a linked list of keys, innermost first. */
export interface SchemaLocation {
  readonly name: string;
  readonly parent: SchemaLocation | undefined;
}

/** Maximum number of locations per change; further ones are counted. */
const MAX_LOCATIONS = 3;
const MAX_NAME_LENGTH = 40;

/**
 * The note for a removed `$schema`. It causes no warning, because many schemas have the keyword and removing it has no
 * effect.
 */
export const SCHEMA_KEYWORD_REMOVED = "$schema of an older draft left out";

export class ChangeNotes {
  readonly #changes = new Map<string, { readonly places: Set<string>; count: number }>();

  add(what: string, location?: SchemaLocation): void {
    const change = this.#changes.get(what) ?? { places: new Set(), count: 0 };
    this.#changes.set(what, change);
    change.count++;
    if (location !== undefined && change.places.size < MAX_LOCATIONS)
      change.places.add(formatLocation(location));
  }

  get isMinor(): boolean {
    return [...this.#changes.keys()].every((what) => what === SCHEMA_KEYWORD_REMOVED);
  }

  merge(others: ChangeNotes): void {
    for (const [what, { places, count }] of others.#changes) {
      const done = this.#changes.get(what) ?? { places: new Set(), count: 0 };
      this.#changes.set(what, done);
      done.count += count;
      for (const place of places) if (done.places.size < MAX_LOCATIONS) done.places.add(place);
    }
  }

  /** One line: `missing items added (properties.tags); …`. */
  toString(): string {
    const parts = [...this.#changes].map(([what, { places, count }]) => {
      const more = count > MAX_LOCATIONS ? [`${count} in all`] : [];
      return places.size === 0 ? what : `${what} (${[...places, ...more].join(", ")})`;
    });
    return parts.join("; ");
  }
}

function formatLocation(location: SchemaLocation | undefined): string {
  const names: string[] = [];
  for (let current = location; current !== undefined; current = current.parent)
    names.unshift(sanitizeName(current.name));
  return names.join(".");
}

/** A name that a server chose, made safe for a log line. */
export function sanitizeName(name: string): string {
  const short = name.length > MAX_NAME_LENGTH ? `${name.slice(0, MAX_NAME_LENGTH - 1)}…` : name;
  return short.replace(/[^\p{L}\p{N}\p{P}\p{S} ]/gu, "?");
}
