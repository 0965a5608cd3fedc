import * as v from "valibot";
import { issuePath } from "./fields.ts";
import { compilePattern } from "./pattern.ts";
import { describeValue, unknownKeyMessage } from "./problems.ts";
import { isTable, type Table } from "./table.ts";

/**
 * Selects the tools of a mode or an agent: `"all"`, or a table with exactly one key:
 * - `servers`: globs of server names in the manifest
 * - `tools`: globs of tool names as the server gives them
 * - `ids`: `SERVER.TOOL`, with the tool name as the server gives it
 * - `names`: exposed names
 * - `pattern`: a regular expression that matches anywhere in the tool name as the server gives it
 * - `readOnly`: tools whose annotations say that they change nothing
 * - `and`, `or`, `not`: an empty `and` selects everything, an empty `or` nothing
 */
export type Filter =
  | "all"
  | { readonly servers: readonly string[] }
  | { readonly tools: readonly string[] }
  | { readonly ids: readonly string[] }
  | { readonly names: readonly string[] }
  | { readonly pattern: string }
  | { readonly readOnly: true }
  | { readonly and: readonly Filter[] }
  | { readonly or: readonly Filter[] }
  | { readonly not: Filter };

/**
 * Limits of one filter. `depth`: levels of nested tables; `nodes`: tables in all; `pattern`: the length of a pattern
 * in UTF-16 units.
 */
export const FILTER_LIMITS = { depth: 16, nodes: 256, pattern: 1000 } as const;

/** The keys of a filter, each with a description of its value. A filter has exactly one of them. */
const FILTER_KEYS = {
  servers: "an array of names or patterns",
  tools: "an array of names or patterns",
  ids: "an array of SERVER.TOOL, by the server's own name of the tool",
  names: "an array of names of tools as clients see them",
  pattern: "a regular expression",
  readOnly: "true",
  and: "an array of filters",
  or: "an array of filters",
  not: "a filter",
} as const;

type FilterKey = keyof typeof FILTER_KEYS;

const EXPECTED_FILTER = `"all" or a table with one of ${Object.keys(FILTER_KEYS).join(", ")}`;

/**
 * The schema of a filter, which reports every problem at its own path. The time that a pattern takes must be bounded,
 * because servers choose the names that it is applied to.
 */
export const filterSchema = makeFilterSchema(true);

/** The schema of a filter in a file that does not belong to the user. Such a filter may not contain a `pattern`. */
export const filterWithoutPatternsSchema = makeFilterSchema(false);

function makeFilterSchema(allowsPatterns: boolean) {
  return v.pipe(
    v.custom<Filter>(() => true),
    v.metadata({ filter: true }),
    v.rawCheck(({ dataset, addIssue }) => {
      // The path of an issue needs a root with at least one key: the filter is the only member of `root`.
      const root = { filter: dataset.value };
      new FilterCheck(allowsPatterns, (path, at, message) => {
        const [, first, ...rest] = issuePath(root, ["filter", ...path], at);
        addIssue(first === undefined ? { message } : { message, path: [first, ...rest] });
      }).check(root.filter, [], 1);
    }),
  );
}

/** Maximum number of unknown keys of a table that are reported. */
const MAX_UNKNOWN = 20;

type FilterPath = readonly (string | number)[];

/** A single check of one filter: counts its tables, and reports each problem. */
class FilterCheck {
  readonly #allowsPatterns: boolean;
  readonly #report: (path: FilterPath, at: "key" | "value", message: string) => void;
  #nodes = 0;

  constructor(
    allowsPatterns: boolean,
    report: (path: FilterPath, at: "key" | "value", message: string) => void,
  ) {
    this.#allowsPatterns = allowsPatterns;
    this.#report = report;
  }

  /** @param depth the nesting depth of this filter; the outermost has 1 */
  check(filter: unknown, path: FilterPath, depth: number): void {
    this.#nodes++;
    if (this.#nodes > FILTER_LIMITS.nodes) {
      if (this.#nodes === FILTER_LIMITS.nodes + 1)
        this.#report(path, "value", `the filter has more than ${FILTER_LIMITS.nodes} parts`);
      return;
    }
    if (depth > FILTER_LIMITS.depth) {
      this.#report(path, "value", `the filter is nested more than ${FILTER_LIMITS.depth} deep`);
      return;
    }
    if (filter === "all") return;
    if (!isTable(filter)) {
      this.#expect(EXPECTED_FILTER, filter, path);
      return;
    }
    const unknown = Object.keys(filter).filter((key) => !Object.hasOwn(FILTER_KEYS, key));
    for (const key of unknown.slice(0, MAX_UNKNOWN)) {
      this.#report([...path, key], "key", unknownKeyMessage(key, FILTER_KEYS));
    }
    const [key, ...others] = keysOf(filter);
    if (key === undefined) {
      if (Object.keys(filter).length === 0) this.#expect(EXPECTED_FILTER, filter, path);
      return;
    }
    for (const other of others) {
      const message = `cannot be used together with ${key}: a filter has one key; write and = [ … ] or or = [ … ]`;
      this.#report([...path, other], "key", message);
    }
    this.#checkValue(key, filter[key], [...path, key], depth);
  }

  #checkValue(key: FilterKey, value: unknown, path: FilterPath, depth: number): void {
    switch (key) {
      case "servers":
      case "tools":
      case "names":
      case "ids":
        if (!Array.isArray(value)) this.#expect(FILTER_KEYS[key], value, path);
        else for (const [i, name] of value.entries()) this.#checkName(key, name, [...path, i]);
        return;
      case "pattern":
        this.#checkPattern(value, path);
        return;
      case "readOnly":
        if (value !== true) this.#expect(FILTER_KEYS[key], value, path);
        return;
      case "and":
      case "or":
        if (!Array.isArray(value)) this.#expect(FILTER_KEYS[key], value, path);
        else for (const [i, part] of value.entries()) this.check(part, [...path, i], depth + 1);
        return;
      case "not":
        this.check(value, path, depth + 1);
    }
  }

  #checkName(key: FilterKey, name: unknown, path: FilterPath): void {
    if (typeof name !== "string" || name === "")
      this.#expect("a string that is not empty", name, path);
    else if (name.length > FILTER_LIMITS.pattern)
      this.#report(path, "value", `is longer than ${FILTER_LIMITS.pattern} characters`);
    else if (key === "ids" && !/^.+\..+$/su.test(name))
      this.#expect("SERVER.TOOL, such as git.log", name, path);
  }

  #checkPattern(pattern: unknown, path: FilterPath): void {
    if (typeof pattern !== "string" || pattern === "") {
      this.#expect(FILTER_KEYS.pattern, pattern, path);
    } else if (!this.#allowsPatterns) {
      const message = "a pattern is allowed only in a manifest; use tools";
      this.#report(path, "value", message);
    } else if (pattern.length > FILTER_LIMITS.pattern) {
      this.#report(path, "value", `is longer than ${FILTER_LIMITS.pattern} characters`);
    } else {
      const fault = patternFault(pattern);
      if (fault !== undefined) this.#report(path, "value", fault);
    }
  }

  #expect(expected: string, found: unknown, path: FilterPath): void {
    this.#report(path, "value", `expected ${expected}, found ${describeValue(found, true)}`);
  }
}

function keysOf(filter: Table): readonly FilterKey[] {
  return Object.keys(filter).filter((key): key is FilterKey => Object.hasOwn(FILTER_KEYS, key));
}

/** The reason why a pattern cannot be used; undefined if it can be used. */
function patternFault(pattern: string): string | undefined {
  try {
    compilePattern(pattern);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return `is not a regular expression: ${reason.replace(/^Invalid regular expression: ?/i, "")}`;
  }
  return mayRunLong(pattern)
    ? "repeats a group that itself repeats or chooses something, which may take very long; write it without one of the two"
    : undefined;
}

/**
 * Whether a quantified group contains a quantifier, or a repeated group contains an alternative: then there may be
 * exponentially many ways to match a name, and a backtracking engine tries them all.
 * @param pattern a valid regular expression
 */
function mayRunLong(pattern: string): boolean {
  /** The open groups, the outermost first, and what each contains; the first element is the pattern itself. */
  const groups = [{ repeats: false, chooses: false }];
  // An escape or a character class is a single token, whatever characters it contains. So is the opening of a group,
  // such as `(?:`, whose `?` is not a quantifier.
  const tokens =
    /\\(?:[pPu]\{[^}]*\}|.)|\[(?:\\.|[^\]\\])*(?:\]|$)|\((?:\?(?:[:=!]|<[=!]|<[^>]*>|[a-z-]*:))?|\)(?:[*+?]|\{\d[^}]*\})?|[*+?|]|\{\d[^}]*\}|./gsu;
  for (const [token] of pattern.matchAll(tokens)) {
    const group = groups.at(-1);
    if (group === undefined) return false;
    if (token.startsWith("(")) groups.push({ repeats: false, chooses: false });
    else if (token === "|") group.chooses = true;
    else if (/^(?:[*+?]|\{.)/su.test(token)) group.repeats = true;
    else if (token.startsWith(")")) {
      groups.pop();
      const quantifier = token.slice(1);
      const repeats = quantifier !== "";
      const isRepeated = repeats && quantifier !== "?";
      if ((repeats && group.repeats) || (isRepeated && group.chooses)) return true;
      const outer = groups.at(-1);
      if (outer === undefined) continue;
      outer.repeats ||= group.repeats || repeats;
      outer.chooses ||= group.chooses;
    }
  }
  return false;
}
