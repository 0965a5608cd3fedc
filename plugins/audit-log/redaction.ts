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

  constructor(paths: readonly string[]) {
    this.#start = placeOf(paths.map(parsePath).filter((step) => step !== undefined));
  }

  /** @param json a well-formed JSON text */
  apply(json: string): string {
    return this.#start.size === 0 ? json : mask(json, this.#start);
  }
}

/** A value with what `start` leads to masked. */
function mask(json: string, start: Place): string {
  const pieces: string[] = [];
  let at = 0;
  /** Up to here it is in the pieces. */
  let done = 0;

  const readValue = (place: Place, depth: number): void => {
    const from = at;
    const open = json[at];
    const isScalar = open !== "{" && open !== "[";
    if (place.has("end") || (depth === MAX_DEPTH && place.size > 0 && !isScalar)) {
      at = endOfValue(json, from);
      pieces.push(json.slice(done, from), MASK);
      done = at;
    } else if (isScalar || place.size === 0) {
      at = endOfValue(json, from);
    } else if (open === "{") {
      readEach(() => {
        const end = endOfString(json, at);
        const key = JSON.parse(json.slice(at, end)) as string;
        at = skipSpace(json, skipSpace(json, end) + 1);
        readValue(enter(place, key), depth + 1);
      });
    } else {
      let index = 0;
      readEach(() => readValue(enter(place, String(index++)), depth + 1));
    }
  };

  /** From an opening brace or bracket to the character after the closing one. */
  const readEach = (read: () => void): void => {
    at = skipSpace(json, at + 1);
    while (at < json.length && json[at] !== "}" && json[at] !== "]") {
      read();
      at = skipSpace(json, at);
      if (json[at] === ",") at = skipSpace(json, at + 1);
    }
    at++;
  };

  at = skipSpace(json, 0);
  readValue(start, 0);
  return pieces.join("") + json.slice(done);
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

function skipSpace(json: string, at: number): number {
  let i = at;
  while (json[i] === " " || json[i] === "\n" || json[i] === "\r" || json[i] === "\t") i++;
  return i;
}

function endOfValue(json: string, at: number): number {
  if (json[at] === '"') return endOfString(json, at);
  let depth = 0;
  for (let i = at; i < json.length;) {
    const char = json[i] ?? "";
    if (char === "{" || char === "[") depth++;
    // What closes more than was opened closes what the value is in.
    else if ((char === "}" || char === "]") && --depth <= 0) return depth < 0 ? i : i + 1;
    else if (depth === 0 && /[\s,]/.test(char)) return i;
    i = char === '"' ? endOfString(json, i) : i + 1;
  }
  return json.length;
}

function endOfString(json: string, at: number): number {
  for (let i = at + 1; i < json.length; i++) {
    if (json[i] === "\\") i++;
    else if (json[i] === '"') return i + 1;
  }
  return json.length;
}
