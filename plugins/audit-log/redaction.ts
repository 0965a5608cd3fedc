import { type Part, readSpelling } from "../../src/plugin/plugin.ts";

const MASK = `"•••"`;
/** Maximum nesting that is searched; deeper values are masked if a path could match within them. */
const MAX_DEPTH = 100;

/** One step of a path: a pattern that the next key must match, and the step after it. */
interface PathStep {
  /** `**` matches any number of keys, including none. */
  readonly glob: string;
  readonly next: PathStep | "end";
}

/**
 * The state of matching several paths at once: the steps with which the next key is compared. `end` means that a path
 * has matched completely.
 */
type PathState = ReadonlySet<PathStep | "end">;

/**
 * Parses the path of values to mask: keys separated by dots, outermost first. `*` within a key matches any
 * characters; `**` as a key matches any number of keys, including none. The key of an array element is its index,
 * from 0. Case-insensitive.
 * @returns undefined if a key is empty
 */
export function parsePath(path: string): PathStep | undefined {
  const keys = path.toLowerCase().split(".");
  if (keys.includes("")) return undefined;
  const first = keys.reduceRight<PathStep | "end">((next, glob) => ({ glob, next }), "end");
  return first === "end" ? undefined : first;
}

/** Masks values in JSON texts by their paths. All other text is unchanged. */
export class Redaction {
  readonly #start: PathState;
  /** The number of keys of the longest path, at most MAX_DEPTH: values are searched no deeper. */
  readonly #maxDepth: number;

  constructor(paths: readonly string[]) {
    const lengths = paths.map((path) => (path.includes("**") ? MAX_DEPTH : path.split(".").length));
    this.#maxDepth = Math.min(Math.max(...lengths), MAX_DEPTH);
    this.#start = stateOf(paths.map(parsePath).filter((step) => step !== undefined));
  }

  /** @param json a JSON text; a malformed one is masked as a whole */
  apply(json: string): string {
    if (this.#start.size === 0) return json;
    const part = readSpelling(json, this.#maxDepth);
    return part === undefined ? MASK : mask(part, this.#start);
  }
}

/** Masks those parts of a value that the paths in `start` match. @returns the JSON text of the masked value */
function mask(whole: Part, start: PathState): string {
  const { source } = whole;
  const pieces: string[] = [];
  let copiedTo = 0;
  const visit = (part: Part, state: PathState): void => {
    if (state.has("end") || (part.kind === "closed" && state.size > 0)) {
      pieces.push(source.slice(copiedTo, part.start), MASK);
      copiedTo = part.end;
    } else if (state.size > 0 && part.kind === "object") {
      for (const { key, value } of part.members) visit(value, advance(state, key));
    } else if (state.size > 0 && part.kind === "array") {
      for (const [i, element] of part.elements.entries()) visit(element, advance(state, String(i)));
    }
  };
  visit(whole, start);
  return pieces.join("") + source.slice(copiedTo);
}

/** The matching state for the value of the given key. */
function advance(state: PathState, key: string): PathState {
  const name = key.toLowerCase();
  const steps: (PathStep | "end")[] = [];
  for (const step of state) {
    if (step === "end") continue;
    if (step.glob === "**") steps.push(step);
    else if (matchesKey(step.glob, name)) steps.push(step.next);
  }
  return stateOf(steps);
}

/** The matching state with the given steps. `**` also matches zero keys, so the step after a `**` is included. */
function stateOf(steps: readonly (PathStep | "end")[]): PathState {
  const state = new Set<PathStep | "end">();
  for (const first of steps) {
    for (let step = first; ; step = step.next) {
      state.add(step);
      if (step === "end" || step.glob !== "**") break;
    }
  }
  return state;
}

/** Matches a key with a glob in quadratic time at worst; a RegExp could backtrack exponentially on long keys. */
function matchesKey(glob: string, name: string): boolean {
  let globIndex = 0;
  let nameIndex = 0;
  /**
   * The position for backtracking after a mismatch. `lastStar`: index of the last `*` in the glob, or -1. `starEnd`:
   * end of the text that this `*` matches so far.
   */
  let lastStar = -1;
  let starEnd = 0;
  while (nameIndex < name.length) {
    if (glob[globIndex] === "*") {
      lastStar = globIndex++;
      starEnd = nameIndex;
    } else if (glob[globIndex] === name[nameIndex]) {
      globIndex++;
      nameIndex++;
    } else if (lastStar >= 0) {
      globIndex = lastStar + 1;
      nameIndex = ++starEnd;
    } else {
      return false;
    }
  }
  while (glob[globIndex] === "*") globIndex++;
  return globIndex === glob.length;
}
