import type * as v from "valibot";
import {
  describeValue,
  type KeyPath,
  maySecretBeAt,
  unknownKeyMessage,
  type Problem,
  type SpecSource,
} from "./problems.ts";
import { isTable } from "./table.ts";
import type { ValidationResult } from "./validate.ts";

/*
 * Validates the options of plugins. Their schema comes from the plugin, which made it with another copy of valibot or
 * with another library. The manifest's own schemas are checked by `validate` (validate.ts).
 */

/**
 * A valibot configuration that leaves an issue's message empty if the schema does not set one: valibot's default
 * messages show the value, which may be a secret. `problemOfIssue` then writes the message.
 */
const NO_DEFAULT_MESSAGES: v.Config<v.BaseIssue<unknown>> = { message: () => "" };

/** An issue of a Standard Schema of any library. */
interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: unknown })[] | undefined;
}

/** An issue of valibot, whichever copy of the library made it. */
interface ValibotIssue extends SchemaIssue {
  readonly kind: "schema" | "validation" | "transformation";
  readonly type: string;
  readonly input: unknown;
  readonly expected: string | null;
  /** The received value as text, or a measure of it such as its length. */
  readonly received: string;
}

function pathOfIssue({ path = [] }: SchemaIssue): KeyPath {
  return path.map((step) => {
    const key = typeof step === "object" ? step.key : step;
    return typeof key === "number" || typeof key === "string" ? key : "…";
  });
}

/**
 * @param place the place of the wrong value
 * @param root the whole value that was checked
 */
function problemOfIssue(issue: SchemaIssue, place: SpecSource, root: unknown): Problem {
  if (!isOfValibot(issue)) {
    const message = hideTexts(issue.message, findValue(root, pathOfIssue(issue)));
    return { ...place, at: "value", message };
  }
  const { type, message, expected, input } = issue;
  const at = isAboutKey(issue) ? "key" : "value";
  if (at === "key" && type.includes("object")) {
    return { ...place, at, message: expected === "never" ? "unknown key" : "is missing" };
  }
  const found = describeValue(input, !maySecretBeAt(place.path));
  if (message === "") return { ...place, at, message: defaultMessage(issue, found) };
  // The message is either a whole sentence (plugins may write one), or only the expected value, as from `delay`,
  // `limit`, `size` and `globs`.
  if (/^[A-Z]|[.!?]$/.test(message)) return { ...place, at, message: hideTexts(message, input) };
  return { ...place, at, message: hideTexts(`expected ${message}`, input) + `, found ${found}` };
}

function isOfValibot(issue: SchemaIssue): issue is ValibotIssue {
  return "kind" in issue && "type" in issue && "received" in issue && "expected" in issue;
}

/** Whether the issue is about a key: missing, unknown or malformed. */
function isAboutKey({ path = [] }: ValibotIssue): boolean {
  const last = path.at(-1);
  return typeof last === "object" && "origin" in last && last.origin === "key";
}

/** The message for an issue whose schema sets none: what was expected and what was found. */
function defaultMessage({ type, expected, received, input }: ValibotIssue, found: string): string {
  if (expected === null) return "is not allowed";
  // For checks that measure the value, such as `minLength`, valibot reports the measure as the received value.
  const isMeasure = /^\d+$/.test(received) && typeof input !== "number";
  if (!isMeasure) return `expected ${expected}, found ${found}`;
  const measure = type === "non_empty" ? "length" : type.split("_").at(-1);
  return `expected ${measure} ${expected}, found ${received}`;
}

/**
 * The shortest text that is hidden, in characters: hiding shorter ones would also hide unrelated parts of the message.
 */
const MIN_HIDDEN_LENGTH = 6;

/** Hides all texts of `value`, which may be secrets, in a message from another library. */
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
}

/**
 * Finds all unknown keys, and all values that should be tables. valibot's own check of objects stops at the first
 * unknown key, or ignores unknown keys. Only `looseObject` and `objectWithRest` allow unknown keys.
 */
function* findUnknownKeys(schema: object, input: unknown, source: SpecSource): Generator<Problem> {
  const { type, wrapped, entries, item, value } = schema as SchemaShape;
  if (wrapped !== undefined) {
    const isAllowed = input === null && (type === "nullable" || type === "nullish");
    if (!isAllowed) yield* findUnknownKeys(wrapped, input, source);
  } else if (entries !== undefined) {
    const isOpen = type === "loose_object" || type === "object_with_rest";
    yield* checkEntries(entries, isOpen, input, source);
  } else if (type === "array" && item !== undefined && Array.isArray(input)) {
    for (const [i, inner] of input.entries()) yield* findUnknownKeys(item, inner, keyOf(source, i));
  } else if (type === "record" && value !== undefined && isTable(input)) {
    for (const [key, inner] of Object.entries(input))
      yield* findUnknownKeys(value, inner, keyOf(source, key));
  }
}

function* checkEntries(
  entries: Readonly<Record<string, SchemaShape>>,
  isOpen: boolean,
  input: unknown,
  source: SpecSource,
): Generator<Problem> {
  if (!isTable(input)) {
    const message = `expected a table, found ${describeValue(input, false)}`;
    yield { ...source, at: "value", message };
    return;
  }
  for (const [key, value] of Object.entries(input)) {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
    const inner = keyOf(source, key);
    if (entry !== undefined) yield* findUnknownKeys(entry, value, inner);
    else if (!isOpen) yield { ...inner, at: "key", message: unknownKeyMessage(key, entries) };
  }
}

function keyOf({ file, path }: SpecSource, key: string | number): SpecSource {
  return { file, path: [...path, key] };
}

/** The part of the Standard Schema interface, version 1, that is needed to check options. */
export interface StandardSchema<T> {
  readonly "~standard": { validate(value: unknown): Checked<T> | Promise<Checked<T>> };
}

type Checked<T> =
  { readonly value: T; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

/**
 * Validates the options of a plugin, found at `source`, with the plugin's own schema. Unknown keys are problems, too.
 * No message shows a value. Rejects only if the schema throws.
 */
export async function validateOptions<T>(
  schema: StandardSchema<T>,
  input: unknown,
  source: SpecSource,
): Promise<ValidationResult<T>> {
  const result = isValibotSchema(schema)
    ? await schema["~run"]({ value: input }, NO_DEFAULT_MESSAGES)
    : await schema["~standard"].validate(input);
  const problems = problemsOf(schema, input, source, result.issues ?? []);
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
  source: SpecSource,
  issues: readonly SchemaIssue[],
): readonly Problem[] {
  const problems = isValibotSchema(schema) ? [...findUnknownKeys(schema, input, source)] : [];
  const seen = new Set(problems.map(({ path }) => JSON.stringify(path)));
  for (const issue of issues) {
    const path = [...source.path, ...pathOfIssue(issue)];
    const isReported = [...path, ""].some((_, length) =>
      seen.has(JSON.stringify(path.slice(0, length))),
    );
    if (!isReported) problems.push(problemOfIssue(issue, { file: source.file, path }, input));
  }
  return problems;
}
