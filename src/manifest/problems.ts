import { HubError, usageError } from "../base/errors.ts";
import { escapeInvisible, nameInvisible } from "./syntax/stray-character.ts";

export type KeyPath = readonly (string | number)[];

/** A place in a text: line and column count from 1, columns in UTF-16 code units. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** Makes the function that gives the position of an offset. The text is read once, whatever the number of offsets. */
export function makePositionIndex(text: string): (offset: number) => Position {
  let starts: number[] | undefined;
  return (offset) => {
    starts ??= lineStartsOf(text);
    // Binary search for the last line that starts at the offset or before.
    let [low, high] = [0, starts.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: Math.max(0, offset - (starts[low] ?? 0)) + 1 };
  };
}

function lineStartsOf(text: string): number[] {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

/** The place that something comes from: a file, and the path of a key in it. */
export interface SpecSource {
  /** Absolute path of the file, or the name of the environment variable. */
  readonly file: string;
  /** The path of the key; empty: the whole file. */
  readonly path: KeyPath;
}

/** One thing that is wrong with a manifest. Contains no value that may be a secret. */
export interface Problem extends SpecSource {
  /** Whether the problem is at the key itself, or at its value. */
  readonly at: "key" | "value";
  /** A description of what was expected, what was found and what may help; without a full stop. */
  readonly message: string;
  /**
   * The position in the file. Absent until `addPositions` (`syntax/positions.ts`) is called, and if the position is unknown, for
   * example because the file cannot be read.
   */
  readonly position?: Position | undefined;
}

/** A problem of a whole file. */
export function fileProblem(file: string, message: string, position?: Position): Problem {
  return { file, path: [], at: "value", message, position };
}

/**
 * Formats a problem as `file:line:column: path: message`, without the parts that are not known. It is one line, whatever
 * names and values it quotes; only our own message about a whole file may have several.
 */
export function formatProblem({ file, position, path, message }: Problem): string {
  const place = position === undefined ? file : `${file}:${position.line}:${position.column}`;
  const text = path.length === 0 ? message : toOneLine(message);
  return [toOneLine(place), formatPath(path), text].filter((part) => part !== "").join(": ");
}

function toOneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u0085\u2028\u2029]+/g, " ");
}

/**
 * A server whose problems name their files without the folders. MCP clients get this form: a client on another machine
 * need not know where this user's files are.
 */
export function withoutFolders<Spec extends { readonly problems: readonly Problem[] }>(
  spec: Spec,
): Spec {
  const problems = spec.problems.map((problem) => ({
    ...problem,
    file: problem.file.replace(/^.*[/\\]/s, ""),
  }));
  return { ...spec, problems };
}

/** The error `manifestInvalid` with one problem per line. */
export function manifestError(problems: readonly Problem[]): HubError {
  return new HubError("manifestInvalid", problems.map(formatProblem).join("\n"));
}

/** The error `serverInvalid` for a server whose table has problems. */
export function invalidError(spec: {
  readonly name: string;
  readonly problems: readonly Problem[];
}): HubError {
  return new HubError("serverInvalid", describeInvalid(spec), { server: spec.name });
}

/**
 * The message of the error `serverInvalid`. `isRunning`: whether the server still runs with the settings of an
 * earlier manifest.
 */
export function describeInvalid(
  { name, problems }: { readonly name: string; readonly problems: readonly Problem[] },
  isRunning = false,
): string {
  const problemText = problems.map(formatProblem).join("; ");
  const consequence = isRunning ? "keeps its previous settings" : "is not started";
  return `Server "${name}" ${consequence}, because its table in the manifest has a problem: ${problemText}`;
}

/**
 * Formats a path as `servers.git.args[1]`; keys that are not bare keys are quoted, which also escapes control
 * characters.
 */
export function formatPath(path: KeyPath): string {
  let text = "";
  for (const key of path) {
    if (typeof key === "number") text += `[${key}]`;
    else text += `${text && "."}${printPathKey(key)}`;
  }
  return text;
}

/** A key as it is shown to people: quoted if it is not a bare key, with escapes for what is not visible. */
export function printPathKey(key: string): string {
  return /^[\w$-]+$/.test(key) ? key : escapeInvisible(JSON.stringify(key));
}

/** Describes a found value for people. @param showValue whether the value itself may be shown */
export function describeValue(value: unknown, showValue: boolean): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (value instanceof Date) return "a date";
  if (typeof value === "object") return "a table";
  if (typeof value === "number" && showValue) return String(value);
  if (typeof value !== "string" || !showValue) return `a ${typeof value}`;
  return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
}

/** The known key that was probably meant; undefined if none is near. */
export function findNearest(key: string, known: readonly string[]): string | undefined {
  const plain = normalizeKey(key);
  let best: string | undefined;
  let least = Math.min(3, Math.ceil(plain.length / 3)) + 1;
  for (const candidate of known) {
    const other = normalizeKey(candidate);
    // The distance is at least the difference of the lengths.
    if (Math.abs(other.length - plain.length) >= least) continue;
    const distance = editDistance(plain, other);
    if (distance < least) [best, least] = [candidate, distance];
  }
  return best;
}

/** A "did you mean" sentence with a leading space; empty if no name is similar. */
export function suggestName(name: string, known: readonly string[]): string {
  const nearest = findNearest(name, known);
  return nearest === undefined ? "" : ` Did you mean "${nearest}"?`;
}

/** Checks that all named servers are known. @throws {HubError} usage */
export function checkServerNames(names: readonly string[], known: readonly string[]): void {
  const missing = names.find((name) => !known.includes(name));
  if (missing === undefined) return;
  throw usageError(`There is no server "${missing}".${suggestName(missing, known)}`);
}

/** Normalizes a key, so that its snake_case, kebab-case and camelCase forms are equal. */
function normalizeKey(key: string): string {
  return key
    .toLowerCase()
    .replaceAll(/[_\u00a0\u00ad\u200b-\u200f\u2060\ufeff-]/g, "")
    .slice(0, 40);
}

/** The edit distance: insertions, deletions, replacements and swaps of neighbours. */
function editDistance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => rows[i]?.[j] ?? Infinity;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row.push(
        Math.min(
          at(i - 1, j) + 1,
          at(i, j - 1) + 1,
          at(i - 1, j - 1) + (same ? 0 : 1),
          swapped ? at(i - 2, j - 2) + 1 : Infinity,
        ),
      );
    }
  }
  return at(a.length, b.length);
}

/** Advice for keys that only MCP clients have. */
const KEY_HINTS = new Map([
  ["type", "remove it; for a server over HTTP, set url and transport"],
  ["disabled", "write enabled = false"],
  ["timeout", "set connectTimeout, callTimeout or maxCallTimeout"],
  ["disabledTools", "write tools.deny"],
]);

/** Other names that MCP clients use for keys of a server. */
const KEY_ALIASES = new Map([
  ["cmd", "command"],
  ["serverUrl", "url"],
  ["httpUrl", "url"],
]);

/**
 * The known key that was probably meant by an unknown key.
 * @param entries the known keys
 */
export function suggestKey(key: string, entries: object): string | undefined {
  const alias = KEY_ALIASES.get(key);
  if (alias !== undefined && Object.hasOwn(entries, alias)) return alias;
  return findNearest(key, Object.keys(entries));
}

/** The message for an unknown key of a table, with a hint or the known keys. @param entries the known keys */
export function unknownKeyMessage(key: string, entries: object): string {
  const hint = Object.hasOwn(entries, "inheritEnv") ? KEY_HINTS.get(key) : undefined;
  if (hint !== undefined) return `unknown key; ${hint}`;
  const known = Object.keys(entries);
  if (known.length === 0) return "unknown key; this table has no keys";
  const nearest = suggestKey(key, entries);
  const invisible = nameInvisible(key);
  if (invisible !== undefined) {
    const advice = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
    return `unknown key with ${invisible}${advice}`;
  }
  return nearest === undefined
    ? `unknown key; the known keys are ${known.join(", ")}`
    : `unknown key; did you mean "${nearest}"?`;
}

/** Keys whose values are never shown, because they may contain secrets. */
const SECRET_KEYS = new Set<unknown>(
  "command args env cwd url headers oauth keyFile options httpToken apiKey token credentials endpoint".split(
    " ",
  ),
);

/** Whether the value at a path may be a secret, so that messages must not show it. */
export function maySecretBeAt(path: KeyPath): boolean {
  return path.some((key) => SECRET_KEYS.has(key));
}
