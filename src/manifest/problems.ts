import * as v from "valibot";
import { HubError } from "../base/errors.ts";
import { NO_DEFAULT_MESSAGES } from "./fields.ts";
import { isTable } from "./table.ts";

export type KeyPath = readonly (string | number)[];

/** A place in a text: line and column count from 1, columns in UTF-16 code units. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** One thing that is wrong with a manifest. Contains no value that may be a secret. */
export interface Problem {
  /** Absolute path of the file, or the name of the environment variable. */
  readonly file: string;
  /** The path of the key; empty: the whole file. */
  readonly path: KeyPath;
  /** Whether the key itself is wrong, or its value. */
  readonly at: "key" | "value";
  /** What was expected and found, and what may help; without a full stop. */
  readonly message: string;
  /**
   * Absent if the position is unknown, for example if the file cannot be read. `addPositions` (load.ts) finds it from
   * the path before the problem is printed.
   */
  readonly position?: Position | undefined;
}

/** A problem of the content of a file, found by code that does not know which file it reads. */
export type UnplacedProblem = Omit<Problem, "file">;

/** A problem of a whole file. */
export function fileProblem(file: string, message: string, position?: Position): Problem {
  return { file, path: [], at: "value", message, position };
}

/** `file:line:column: path: message`, without the parts that are not known. */
export function formatProblem({ file, position, path, message }: Problem): string {
  const place = position === undefined ? file : `${file}:${position.line}:${position.column}`;
  return [place, formatPath(path), message].filter((part) => part !== "").join(": ");
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

/** The message of the error `serverInvalid`. */
export function describeInvalid({
  name,
  problems,
}: {
  readonly name: string;
  readonly problems: readonly Problem[];
}): string {
  const problemText = problems.map(formatProblem).join("; ");
  return `Server "${name}" is not started: its table in the manifest is wrong: ${problemText}`;
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

export function printPathKey(key: string): string {
  return /^[\w$-]+$/.test(key) ? key : JSON.stringify(key);
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
    const distance = editDistance(plain, normalizeKey(candidate));
    if (distance < least) [best, least] = [candidate, distance];
  }
  return best;
}

/** Ignores the differences between snake_case, kebab-case and camelCase. */
function normalizeKey(key: string): string {
  return key.toLowerCase().replaceAll(/[_-]/g, "").slice(0, 40);
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

/** An issue of a Standard Schema of any library. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: unknown })[] | undefined;
}

/** An issue of valibot, whichever copy of the library made it. */
interface ValibotIssue extends SchemaIssue {
  readonly kind: "schema" | "validation" | "transformation";
  readonly type: string;
  readonly input: unknown;
  readonly expected: string | null;
  /** What was found, as text: the value itself, or a measure of it such as its length. */
  readonly received: string;
}

export function pathOfIssue({ path = [] }: SchemaIssue): KeyPath {
  return path.map((step) => {
    const key = typeof step === "object" ? step.key : step;
    return typeof key === "number" || typeof key === "string" ? key : "…";
  });
}

/**
 * @param path of the wrong value
 * @param root the whole value that was checked
 */
export function problemOfIssue(issue: SchemaIssue, path: KeyPath, root: unknown): UnplacedProblem {
  if (!isOfValibot(issue)) {
    const message = hideTexts(issue.message, findValue(root, pathOfIssue(issue)));
    return { path, at: "value", message };
  }
  const { type, message, expected, input } = issue;
  const at = isAboutKey(issue) ? "key" : "value";
  if (at === "key" && type.includes("object")) {
    return { path, at, message: expected === "never" ? "unknown key" : "is missing" };
  }
  const found = describeValue(input, !maySecretBeAt(path));
  if (message === "") return { path, at, message: defaultMessage(issue, found) };
  // Messages of toolmux's own schemas state only what was expected; those of other schemas may be whole sentences.
  if (/^[A-Z]|[.!?]$/.test(message)) return { path, at, message: hideTexts(message, input) };
  return { path, at, message: hideTexts(`expected ${message}`, input) + `, found ${found}` };
}

function isOfValibot(issue: SchemaIssue): issue is ValibotIssue {
  return "kind" in issue && "type" in issue && "received" in issue && "expected" in issue;
}

/** Whether the issue is about a key: missing, unknown or malformed. */
function isAboutKey({ path = [] }: ValibotIssue): boolean {
  const last = path.at(-1);
  return typeof last === "object" && "origin" in last && last.origin === "key";
}

/** What was expected and found, for an issue without a message of the schema's own. */
function defaultMessage({ type, expected, received, input }: ValibotIssue, found: string): string {
  if (expected === null) return "is not allowed";
  // Checks such as `minLength` measure the value, and valibot then states the measure as what it received.
  const isMeasure = /^\d+$/.test(received) && typeof input !== "number";
  if (!isMeasure) return `expected ${expected}, found ${found}`;
  const measure = type === "non_empty" ? "length" : type.split("_").at(-1);
  return `expected ${measure} ${expected}, found ${received}`;
}

/** Keys whose values are never shown, because they may contain secrets. */
const SECRET_KEYS = new Set<unknown>(
  "command args env cwd url headers oauth keyFile options httpToken".split(" "),
);

function maySecretBeAt(path: KeyPath): boolean {
  return path.some((key) => SECRET_KEYS.has(key));
}

/**
 * The shortest text that is hidden, in characters: hiding shorter ones would also hide unrelated parts of the message.
 */
const MIN_HIDDEN_LENGTH = 6;

/** Hides the texts that `value` contains in a message from another library: they may be secrets. */
function hideTexts(message: string, value: unknown): string {
  if (typeof value === "string")
    return value.length < MIN_HIDDEN_LENGTH ? message : message.replaceAll(value, "•••");
  if (typeof value !== "object" || value === null) return message;
  return Object.values(value).reduce<string>(hideTexts, message);
}

function findValue(root: unknown, path: KeyPath): unknown {
  return path.reduce<unknown>(
    (value, key) =>
      typeof value === "object" && value !== null
        ? (value as Readonly<Record<string, unknown>>)[key]
        : undefined,
    root,
  );
}

/** The properties of a valibot schema that are read here, the same in every copy of valibot. */
interface SchemaShape {
  readonly type?: unknown;
  readonly wrapped?: SchemaShape;
  readonly entries?: Readonly<Record<string, SchemaShape>>;
  /** For an array: the schema of its items. */
  readonly item?: SchemaShape;
  /** For a record: the schema of its values. */
  readonly value?: SchemaShape;
  /** The `record` of fields.ts has its item schema in its metadata. */
  readonly pipe?: readonly { readonly metadata?: { readonly items?: SchemaShape } }[];
}

/**
 * Finds all unknown keys (valibot's check stops at the first, or ignores them), and all values that should be tables.
 * Only `looseObject` and `objectWithRest` allow other keys.
 */
export function* findUnknownKeys(
  schema: object,
  input: unknown,
  path: KeyPath,
): Generator<UnplacedProblem> {
  const { type, wrapped, entries, item, pipe } = schema as SchemaShape;
  const recordItems = pipe?.find(({ metadata }) => metadata?.items !== undefined)?.metadata?.items;
  const value = recordItems ?? (type === "record" ? (schema as SchemaShape).value : undefined);
  if (wrapped !== undefined) {
    const isAllowed = input === null && (type === "nullable" || type === "nullish");
    if (!isAllowed) yield* findUnknownKeys(wrapped, input, path);
  } else if (entries !== undefined) {
    const isOpen = type === "loose_object" || type === "object_with_rest";
    yield* checkEntries(entries, isOpen, input, path);
  } else if (type === "array" && item !== undefined && Array.isArray(input)) {
    for (const [i, inner] of input.entries()) yield* findUnknownKeys(item, inner, [...path, i]);
  } else if (value !== undefined && isTable(input)) {
    for (const [key, inner] of Object.entries(input))
      yield* findUnknownKeys(value, inner, [...path, key]);
  }
}

function* checkEntries(
  entries: Readonly<Record<string, SchemaShape>>,
  isOpen: boolean,
  input: unknown,
  path: KeyPath,
): Generator<UnplacedProblem> {
  if (!isTable(input)) {
    yield { path, at: "value", message: `expected a table, found ${describeValue(input, false)}` };
    return;
  }
  for (const [key, value] of Object.entries(input)) {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
    const inner = [...path, key];
    if (entry !== undefined) yield* findUnknownKeys(entry, value, inner);
    else if (!isOpen) yield { path: inner, at: "key", message: unknownKeyMessage(key, entries) };
  }
}

/** Keys that MCP clients use for a server, with the manifest's equivalent. */
const KEY_HINTS = new Map([
  ["cmd", `did you mean "command"?`],
  ["serverUrl", `did you mean "url"?`],
  ["httpUrl", `did you mean "url"?`],
  ["type", "leave it out, a server has a command or a url (and there transport)"],
  ["disabled", "write enabled = false"],
  ["timeout", "there are connectTimeout, callTimeout and maxCallTimeout"],
  ["disabledTools", "write tools.deny"],
]);

function unknownKeyMessage(key: string, entries: object): string {
  const hint = Object.hasOwn(entries, "inheritEnv") ? KEY_HINTS.get(key) : undefined;
  if (hint !== undefined) return `unknown key; ${hint}`;
  const known = Object.keys(entries);
  if (known.length === 0) return "unknown key; there are none here";
  const nearest = findNearest(key, known);
  return nearest === undefined
    ? `unknown key; expected one of ${known.join(", ")}`
    : `unknown key; did you mean "${nearest}"?`;
}

export type ValidationResult<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problems: readonly UnplacedProblem[] };

/** The part of the Standard Schema interface, version 1, that is needed to check options. */
export interface StandardSchema<T> {
  readonly "~standard": { validate(value: unknown): Checked<T> | Promise<Checked<T>> };
}

type Checked<T> =
  { readonly value: T; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

/** Validates `input`, found under `base`, and reports all problems at once. */
export function validate<T>(
  schema: v.GenericSchema<unknown, T>,
  input: unknown,
  base: KeyPath,
): ValidationResult<T> {
  const result = v.safeParse(schema, input, NO_DEFAULT_MESSAGES);
  const problems = problemsOf(schema, input, base, result.issues ?? []);
  if (result.success && problems.length === 0) return { ok: true, value: result.output };
  return { ok: false, problems };
}

/**
 * Validates the options of a plugin, found under `base`, with a schema of another copy of valibot or of another
 * library. Issues of valibot are worded as those of the manifest's schemas, and unknown keys are reported. No value is
 * shown. Rejects only if the schema throws.
 */
export async function validateOptions<T>(
  schema: StandardSchema<T>,
  input: unknown,
  base: KeyPath,
): Promise<ValidationResult<T>> {
  const result = isValibotSchema(schema)
    ? await schema["~run"]({ value: input }, NO_DEFAULT_MESSAGES)
    : await schema["~standard"].validate(input);
  const problems = problemsOf(schema, input, base, result.issues ?? []);
  if (result.issues === undefined && problems.length === 0)
    return { ok: true, value: (result as { readonly value: T }).value };
  return { ok: false, problems };
}

/** A schema of valibot, whichever copy of the library made it. */
interface ValibotSchema {
  "~run"(
    dataset: { readonly value: unknown },
    config: typeof NO_DEFAULT_MESSAGES,
  ): ValibotDataset | Promise<ValibotDataset>;
}

interface ValibotDataset {
  readonly value: unknown;
  readonly issues?: readonly SchemaIssue[] | undefined;
}

function isValibotSchema(schema: object): schema is ValibotSchema {
  return "kind" in schema && schema.kind === "schema" && "~run" in schema;
}

function problemsOf(
  schema: object,
  input: unknown,
  base: KeyPath,
  issues: readonly SchemaIssue[],
): readonly UnplacedProblem[] {
  const problems = isValibotSchema(schema) ? [...findUnknownKeys(schema, input, base)] : [];
  const seen = new Set(problems.map(({ path }) => JSON.stringify(path)));
  for (const issue of issues) {
    const path = [...base, ...pathOfIssue(issue)];
    const isReported = [...path, ""].some((_, length) =>
      seen.has(JSON.stringify(path.slice(0, length))),
    );
    if (!isReported) problems.push(problemOfIssue(issue, path, input));
  }
  return problems;
}

/** Finds the position of a key, of its value, or of the nearest table around it. */
export type PositionFinder = (path: KeyPath, at: UnplacedProblem["at"]) => Position | undefined;

export type ParsedFile =
  | {
      readonly ok: true;
      /** The parsed file. Its tables have no prototype. */
      readonly root: unknown;
      /**
       * Keys that occur twice in the same table: the last one counts. TOML files have none, because TOML forbids them.
       */
      readonly duplicates: readonly UnplacedProblem[];
      /** Prepares finding positions. Costs a second parse, so it is done only to print problems. */
      readonly preparePositions: () => Promise<PositionFinder>;
    }
  | { readonly ok: false; readonly message: string; readonly position: Position | undefined };
