import { type Part, readSpelling } from "../../src/plugin/plugin.ts";

/** Replaces a masked value. */
const MASK = `"•••"`;
/** Maximum nesting that is searched; deeper values are masked if a path could match within them. */
const MAX_DEPTH = 100;

/** The rest of a path: a pattern for the next key, and what follows. */
interface Step {
  /** `**` matches any number of keys, including none. */
  readonly glob: string;
  readonly next: Step | "end";
}

/** The current steps of all paths, as in a nondeterministic automaton. */
type Place = ReadonlySet<Step | "end">;

/**
 * Parses a path to values: keys separated by dots, outermost first. `*` within a key matches any characters; `**` as a
 * key matches any number of keys, including none. Elements of an array have their index, from 0, as key.
 * Case-insensitive.
 * @returns undefined if a key is empty
 */
export function parsePath(path: string): Step | undefined {
  const keys = path.toLowerCase().split(".");
  if (keys.includes("")) return undefined;
  const first = keys.reduceRight<Step | "end">((next, glob) => ({ glob, next }), "end");
  return first === "end" ? undefined : first;
}

/** Masks values in JSON texts by their paths. All other text is unchanged. */
export class Redaction {
  readonly #start: Place;
  /** The maximum depth of all paths. */
  readonly #levels: number;

  constructor(paths: readonly string[]) {
    const lengths = paths.map((path) => (path.includes("**") ? MAX_DEPTH : path.split(".").length));
    this.#levels = Math.min(Math.max(...lengths), MAX_DEPTH);
    this.#start = placeOf(paths.map(parsePath).filter((step) => step !== undefined));
  }

  /** @param json a JSON text; a malformed one is masked as a whole */
  apply(json: string): string {
    if (this.#start.size === 0) return json;
    const part = readSpelling(json, this.#levels);
    return part === undefined ? MASK : mask(part, this.#start);
  }
}

/** The text of a value with the matches of `start` masked. */
function mask(whole: Part, start: Place): string {
  const { source } = whole;
  const pieces: string[] = [];
  /** The pieces contain the source up to here. */
  let done = 0;
  const visit = (part: Part, place: Place): void => {
    if (place.has("end") || (part.kind === "closed" && place.size > 0)) {
      pieces.push(source.slice(done, part.start), MASK);
      done = part.end;
    } else if (place.size > 0 && part.kind === "object") {
      for (const { key, value } of part.members) visit(value, enter(place, key));
    } else if (place.size > 0 && part.kind === "array") {
      for (const [i, element] of part.elements.entries()) visit(element, enter(place, String(i)));
    }
  };
  visit(whole, start);
  return pieces.join("") + source.slice(done);
}

/** The steps after a key. */
function enter(place: Place, key: string): Place {
  const name = key.toLowerCase();
  const steps: (Step | "end")[] = [];
  for (const step of place) {
    if (step === "end") continue;
    if (step.glob === "**") steps.push(step);
    else if (matches(step.glob, name)) steps.push(step.next);
  }
  return placeOf(steps);
}

/** As `**` also matches no key, the step after it is included. */
function placeOf(steps: readonly (Step | "end")[]): Place {
  const place = new Set<Step | "end">();
  for (const first of steps) {
    for (let step = first; ; step = step.next) {
      place.add(step);
      if (step === "end" || step.glob !== "**") break;
    }
  }
  return place;
}

/** Quadratic at worst, where a RegExp could backtrack exponentially: keys come from outside and may be long. */
function matches(glob: string, name: string): boolean {
  let g = 0;
  let n = 0;
  /** The index of the last `*`, and where its match was last tried to end. */
  let star = -1;
  let from = 0;
  while (n < name.length) {
    if (glob[g] === "*") {
      star = g++;
      from = n;
    } else if (glob[g] === name[n]) {
      g++;
      n++;
    } else if (star >= 0) {
      g = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  while (glob[g] === "*") g++;
  return g === glob.length;
}
