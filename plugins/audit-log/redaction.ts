import { type Part, readSpelling } from "../../src/plugin/plugin.ts";

/** What stands in the place of a value that is not shown. */
const MASK = `"•••"`;
/** What is nested deeper is not looked into: it is masked if anything in it might have to be. */
const MAX_DEPTH = 100;

/** A path from some place in a value on: what the next key has to be like, and what follows. */
interface Step {
  /** `**` stands for any number of keys, none included. */
  readonly glob: string;
  readonly next: Step | "end";
}

/** Where one has come to on all paths together. */
type Place = ReadonlySet<Step | "end">;

/**
 * A path to values: keys with dots between them, from the outside in. In a key, `*` stands for any characters; `**` alone
 * for any number of keys, none included. Elements of an array have their numbers, from 0, as keys. Upper and lower case
 * are the same.
 * @returns undefined if it is none, as a key is empty
 */
export function parsePath(path: string): Step | undefined {
  const keys = path.toLowerCase().split(".");
  if (keys.includes("")) return undefined;
  const first = keys.reduceRight<Step | "end">((next, glob) => ({ glob, next }), "end");
  return first === "end" ? undefined : first;
}

/** Takes values out of JSON texts by their paths. What is left keeps its spelling. */
export class Redaction {
  readonly #start: Place;
  /** No path leads deeper. */
  readonly #levels: number;

  constructor(paths: readonly string[]) {
    const lengths = paths.map((path) => (path.includes("**") ? MAX_DEPTH : path.split(".").length));
    this.#levels = Math.min(Math.max(...lengths), MAX_DEPTH);
    this.#start = placeOf(paths.map(parsePath).filter((step) => step !== undefined));
  }

  /** @param json a well-formed JSON text; of what is none, nothing is shown */
  apply(json: string): string {
    if (this.#start.size === 0) return json;
    const part = readSpelling(json, this.#levels);
    return part === undefined ? MASK : mask(part, this.#start);
  }
}

/** The text of a value with what `start` leads to masked. */
function mask(whole: Part, start: Place): string {
  const { source } = whole;
  const pieces: string[] = [];
  /** Up to here it is in the pieces. */
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

/** Where a key leads to. */
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

/** As `**` may stand for nothing, one is behind it too. */
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

/** Keys come from outside and may be long, so this takes no more than a step for each pair of characters, as a RegExp might. */
function matches(glob: string, name: string): boolean {
  let g = 0;
  let n = 0;
  /** The last `*`, and where what follows it was last looked for. */
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
