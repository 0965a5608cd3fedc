import * as v from "valibot";
import { AGENT_EXPOSURES } from "./exposures.ts";
import { parseTemplate, unknownSchemeMessage } from "./interpolate.ts";
import { unknownKeyMessage } from "./problems.ts";
import { createTable, isTable, type Table } from "./table.ts";

/** Milliseconds per unit. */
const DURATION_UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Bytes per unit: KB is 1,000, KiB is 1,024. */
const SIZE_UNITS = {
  b: 1,
  kb: 1000,
  kib: 1024,
  mb: 1000 ** 2,
  mib: 1024 ** 2,
  gb: 1000 ** 3,
  gib: 1024 ** 3,
} as const;

/** The longest delay of a timer, in ms (24.8 days). */
export const MAX_DURATION = 2 ** 31 - 1;

/** The largest configurable message limit, in bytes. */
export const MAX_SIZE = 2 ** 31 - 1;

/** Parses a duration such as "30s", "500ms" or "1.5h". @returns ms; undefined if the text is not a duration */
export function parseDuration(text: string): number | undefined {
  return parseQuantity(text, DURATION_UNITS);
}

/** Parses a size such as "64MiB" or "512KB", in any case. @returns bytes; undefined if the text is not a size */
export function parseSize(text: string): number | undefined {
  return parseQuantity(text.toLowerCase(), SIZE_UNITS);
}

/** The shortest exact form of a duration in ms: 900000 → "15m". */
export function formatDuration(ms: number): string {
  for (const unit of ["d", "h", "m", "s"] as const) {
    if (ms > 0 && ms % DURATION_UNITS[unit] === 0) return `${ms / DURATION_UNITS[unit]}${unit}`;
  }
  return `${ms}ms`;
}

function parseQuantity(text: string, units: Readonly<Record<string, number>>): number | undefined {
  const match = /^(\d+(?:\.\d+)?) ?([a-z]+)$/.exec(text.trim());
  const unit = match?.[2];
  if (unit === undefined || !Object.hasOwn(units, unit)) return undefined;
  const factor = units[unit];
  return factor === undefined ? undefined : Math.round(Number(match?.[1]) * factor);
}

/*
 * Schemas of tables and of single keys of a manifest. A schema's message is the expected value, as in "expected …,
 * found …" (`validate` in validate.ts). From schemas and `metadata`, scripts/schema.ts generates toolmux.schema.json,
 * and scripts/docs.ts generates docs/configuration.md.
 */

/**
 * The effect of a changed key of a running server. `process`: a new process or connection is needed. `settings`: the new
 * settings only need to be applied.
 */
export type ChangeEffect = "process" | "settings";

/** What is known of a key: its documentation, for the JSON Schema and docs/configuration.md, and how it is treated. */
export interface Notes {
  readonly title: string;
  readonly description: string;
  /** The default value, unless it is in `HUB_DEFAULTS` or `LIMIT_DEFAULTS`. */
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  /** A pattern for the JSON Schema, if the check in the code is not a regular expression. */
  readonly pattern?: string;
  /**
   * Whether messages may show the value and everything inside it, unless it looks like a secret. Absent: it is masked.
   */
  readonly shown?: true;
  /** Whether `${…}` is replaced in the value: in a text, or in each text of an array or table. */
  readonly template?: true;
  /** For a key of a server; default `process`. */
  readonly change?: ChangeEffect;
}

/**
 * Adds notes to a schema. They cost nothing at start-up, because they are only listed in the schema's `pipe` and
 * never run.
 */
export function withNotes<S extends v.GenericSchema>(schema: S, notes: Notes): S {
  const [first = schema, ...rest] = (schema as { readonly pipe?: readonly unknown[] }).pipe ?? [];
  return { ...schema, pipe: [first, v.metadata({ notes }), ...rest] };
}

/** The notes of a key, as given to `withNotes` or `optionalKey`. */
export function notesOf(schema: v.GenericSchema): Notes | undefined {
  const { wrapped = schema } = schema as { readonly wrapped?: v.GenericSchema };
  const { pipe = [] } = wrapped as { readonly pipe?: readonly Marked[] };
  return pipe.find(({ metadata }) => metadata?.notes !== undefined)?.metadata?.notes;
}

/** A part of a schema's `pipe`, as far as `notesOf` reads it. */
interface Marked {
  readonly metadata?: { readonly notes?: Notes };
}

/** A function that makes a schema when it is first called, and then returns the same one. */
export function once<S extends v.GenericSchema>(make: () => S): () => S {
  let made: S | undefined;
  return () => (made ??= make());
}

/** An optional key of a table, with its notes. */
export function optionalKey<S extends v.GenericSchema>(
  schema: S,
  notes: Notes,
): v.ExactOptionalSchema<S, undefined> {
  return v.exactOptional(withNotes(schema, notes));
}

/** A table whose content is not checked. */
export const uncheckedTable = v.custom<Table>(isTable, "a table");

/** What the schema `S` returns: valibot writes its result into the `v.UnknownDataset` that it is given. */
type OutputOf<S extends v.GenericSchema> = ReturnType<S["~run"]>;

/** Maximum number of unknown keys of a table that are reported one by one: the known keys are compared with each. */
const MAX_UNKNOWN = 100;

/**
 * A table with these keys. Null in the place of an optional key means that the key is absent. valibot's own
 * `strictObject` also takes arrays and dates, and reports only the first unknown key; this schema reports the unknown
 * keys, with the known key that was probably meant.
 */
export function table<const E extends v.ObjectEntries>(
  entries: E,
): v.StrictObjectSchema<E, "a table"> {
  const known = v.object(entries, "is missing");
  return v._standardSchema({
    ...v.strictObject(entries, "a table"),
    "~run"(dataset, config) {
      const input = dataset.value;
      if (!isTable(input)) {
        v._addIssue(this, "type", dataset, config);
        return dataset as object as OutputOf<typeof this>;
      }
      dataset.value = withoutAbsent(input, entries, config);
      const unknown = Object.keys(input).filter((key) => !Object.hasOwn(entries, key));
      for (const [at, key] of unknown.slice(0, MAX_UNKNOWN + 1).entries()) {
        const message =
          at < MAX_UNKNOWN
            ? unknownKeyMessage(key, entries)
            : `unknown key; the table has ${unknown.length} unknown keys`;
        v._addIssue(this, "key", dataset, config, {
          message,
          path: issuePath(input, [key], "key"),
        });
      }
      const output = known["~run"](dataset, config);
      return (unknown.length === 0 ? output : { ...output, typed: false }) as OutputOf<typeof this>;
    },
  });
}

/** A copy of a table without its optional keys whose value is null, if null is not one of their values. */
function withoutAbsent(
  input: Table,
  entries: v.ObjectEntries,
  config: Parameters<v.GenericSchema["~run"]>[1],
): Table {
  const keys = Object.keys(input).filter((key) => input[key] === null);
  if (keys.length === 0) return input;
  const isAbsent = (key: string): boolean => {
    const schema = Object.hasOwn(entries, key) ? entries[key] : undefined;
    return schema?.type === "exact_optional" && refusesNull(schema, config);
  };
  const absent = new Set(keys.filter(isAbsent));
  const present = createTable<unknown>();
  for (const [key, value] of Object.entries(input)) if (!absent.has(key)) present[key] = value;
  return present;
}

function refusesNull(
  schema: Pick<v.GenericSchema, "~run">,
  config: Parameters<v.GenericSchema["~run"]>[1],
): boolean {
  return (schema["~run"]({ value: null }, config).issues ?? []).length > 0;
}

/**
 * The path of an issue in valibot's form: from `root` along `keys`. `at` says whether the issue concerns the last key
 * or its value.
 */
export function issuePath(
  root: unknown,
  keys: readonly [string | number, ...(string | number)[]],
  at: "key" | "value",
): [v.IssuePathItem, ...v.IssuePathItem[]] {
  let input = root;
  const step = (key: string | number): v.UnknownPathItem => {
    const value = (input as Readonly<Record<string | number, unknown>>)[key];
    const item = { type: "unknown", origin: at, input, key, value } as const;
    input = value;
    return item;
  };
  const [first, ...rest] = keys;
  return [step(first), ...rest.map(step)];
}

/** A table whose keys the user chooses. A key whose value is null is absent. valibot's own `record` drops some keys, such as `constructor`. */
export function record<S extends v.GenericSchema>(
  item: S,
): v.RecordSchema<typeof text, S, "a table"> {
  return v._standardSchema({
    ...v.record(text, item, "a table"),
    "~run"(dataset, config) {
      const input = dataset.value;
      if (!isTable(input)) {
        v._addIssue(this, "type", dataset, config);
        return dataset as object as OutputOf<typeof this>;
      }
      const value = createTable<unknown>();
      const issues: v.BaseIssue<unknown>[] = [];
      for (const [key, inner] of Object.entries(input)) {
        if (inner === null && refusesNull(item, config)) continue;
        const output = item["~run"]({ value: inner }, config);
        value[key] = output.value;
        const [step] = issuePath(input, [key], "value");
        for (const issue of output.issues ?? [])
          issues.push({ ...issue, path: [step, ...(issue.path ?? [])] });
      }
      const output = issues.length === 0 ? { typed: true, value } : { typed: false, value, issues };
      return output as object as OutputOf<typeof this>;
    },
  });
}

/**
 * A quantity: a number in `unit`, or a text that `parse` reads. It lies between `min` and `max`, or is the value `off`.
 */
function quantitySchema(
  unit: "ms" | "bytes",
  expectedFormat: string,
  expectedRange: string,
  min: number,
  max: number,
  parse: (text: string) => number | undefined,
  off?: number,
) {
  return v.pipe(
    v.union([v.string(), v.number()], expectedFormat),
    v.metadata({ unit, min, max, off }),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const { value } = dataset;
      const parsed = typeof value === "number" ? value : parse(value);
      const isWithin = parsed !== undefined && parsed >= min && parsed <= max;
      if (isWithin || (parsed !== undefined && parsed === off)) return Math.round(parsed);
      addIssue({ message: parsed === undefined ? expectedFormat : expectedRange });
      return NEVER;
    }),
  );
}

const DURATION = `a duration such as "30s", "500ms" or "5m", or a number of milliseconds`;
const MAX_DURATION_TEXT = "at most 2147483647 ms (24.8 days)";
/** A duration in ms; 0 is allowed. */
export const delay = quantitySchema(
  "ms",
  DURATION,
  `a duration of ${MAX_DURATION_TEXT}`,
  0,
  MAX_DURATION,
  parseDuration,
);
/** A time limit in ms: at least 1, because a limit of 0 would make every request fail. */
export const limit = quantitySchema(
  "ms",
  DURATION,
  `a duration of at least 1 ms and ${MAX_DURATION_TEXT}`,
  1,
  MAX_DURATION,
  parseDuration,
);
/** The interval of repeated work, in ms: at least 1000, so that other work gets time, or 0 for never. */
export const interval = quantitySchema(
  "ms",
  DURATION,
  `0 for never, or a duration of at least 1 s and ${MAX_DURATION_TEXT}`,
  1000,
  MAX_DURATION,
  parseDuration,
  0,
);
/** A size in bytes, at least 1. */
export const size = quantitySchema(
  "bytes",
  `a size such as "64MiB" or "512KB", or a number of bytes`,
  "a size between 1 and 2147483647 bytes",
  1,
  MAX_SIZE,
  parseSize,
);

const JSON_VALUE = "a JSON value";
/** Any JSON value: no dates, no infinities. */
export const json = v.pipe(v.unknown(), v.check(isJson, JSON_VALUE));

function isJson(value: unknown): boolean {
  if (value === null || typeof value === "string" || typeof value === "boolean") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (Array.isArray(value)) return value.every(isJson);
  return isTable(value) && Object.values(value).every(isJson);
}

export const text = v.string("a string");
export const nonEmptyText = v.pipe(text, v.nonEmpty("a string that is not empty"));
/**
 * A text that may be secret, such as a token, and may hold `${env:…}`, `${file:…}` and `${secret:…}`. Placeholders of
 * plugins are not supported, because plugins are loaded later.
 */
export const secretText = v.pipe(
  nonEmptyText,
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const part of parseTemplate(dataset.value, "toolmux")) {
      if (part.kind === "invalid") addIssue({ message: `found ${part.message}` });
      if (part.kind === "scheme" && part.scheme !== "secret")
        addIssue({ message: `found ${unknownSchemeMessage(part.scheme)}` });
    }
  }),
);
export const flag = v.boolean("true or false");
export const globs = v.array(nonEmptyText, "an array of names or patterns");

/** The form in which an agent gets its tools. */
export const agentExposure = v.picklist(AGENT_EXPOSURES, `"direct", "search" or "auto"`);
