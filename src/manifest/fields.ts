import * as v from "valibot";
import { createTable, isTable, type Table } from "./table.ts";
import { MAX_DURATION, MAX_SIZE, parseDuration, parseSize } from "./units.ts";

/*
 * What single keys of a manifest may hold. The message of every schema is what was expected, as it stands in
 * "expected …, found …"; `metadata` is for toolmux.schema.json, which scripts/schema.ts makes of all this.
 */

/** A table that is not looked into. */
export const table = v.custom<Table>(isTable, "a table");

/** A table with keys of the user's own choosing. (valibot's own would drop some, `constructor` for one.) */
export function record<T>(item: v.GenericSchema<unknown, T>) {
  return v.pipe(
    table,
    v.metadata({ items: item }),
    v.rawTransform(({ dataset: { value: input }, addIssue }): Readonly<Record<string, T>> => {
      const output = createTable<T>();
      for (const [key, value] of Object.entries(input)) {
        const result = v.safeParse(item, value);
        if (result.success) output[key] = result.output;
        const step = { type: "object", origin: "value", input: { ...input }, key, value } as const;
        for (const { message, input: wrong, path = [] } of result.issues ?? []) {
          addIssue({ message, input: wrong, path: [step, ...path] });
        }
      }
      return output;
    }),
  );
}

/** A number of `unit`, or a text that `parse` reads, between `min` and `max`; or `off`. */
function quantity(
  unit: "ms" | "bytes",
  form: string,
  range: string,
  min: number,
  max: number,
  parse: (text: string) => number | undefined,
  off?: number,
) {
  return v.pipe(
    v.union([v.string(), v.number()], form),
    v.metadata({ unit, min, max, off }),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const { value } = dataset;
      const parsed = typeof value === "number" ? value : parse(value);
      const isWithin = parsed !== undefined && parsed >= min && parsed <= max;
      if (isWithin || (parsed !== undefined && parsed === off)) return Math.round(parsed);
      addIssue({ message: parsed === undefined ? form : range });
      return NEVER;
    }),
  );
}

const DURATION = `a duration such as "30s", "500ms" or "5m", or a number of milliseconds`;
const LONGEST = "at most 2147483647 ms (24.8 days)";
/** ms, 0 allowed. */
export const delay = quantity(
  "ms",
  DURATION,
  `a duration of ${LONGEST}`,
  0,
  MAX_DURATION,
  parseDuration,
);
/** ms, at least 1: a limit of zero would fail everything. */
export const limit = quantity(
  "ms",
  DURATION,
  `a duration of at least 1 ms and ${LONGEST}`,
  1,
  MAX_DURATION,
  parseDuration,
);
/** ms, at least a second: what happens that often must not become all that happens. 0 for never. */
export const interval = quantity(
  "ms",
  DURATION,
  `0 for never, or a duration of at least 1 s and ${LONGEST}`,
  1000,
  MAX_DURATION,
  parseDuration,
  0,
);
/** bytes, at least 1. */
export const size = quantity(
  "bytes",
  `a size such as "64MiB" or "512KB", or a number of bytes`,
  "a size between 1 and 2147483647 bytes",
  1,
  MAX_SIZE,
  parseSize,
);

const JSON_VALUE = "a value that JSON has";
/** Any value that JSON has: no date, no infinity. */
export const json = v.pipe(v.unknown(), v.check(isJson, JSON_VALUE));

function isJson(value: unknown): boolean {
  if (value === null || typeof value === "string" || typeof value === "boolean") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (Array.isArray(value)) return value.every(isJson);
  return isTable(value) && Object.values(value).every(isJson);
}

export const text = v.string("a string");
export const filled = v.pipe(text, v.nonEmpty("a string that is not empty"));
export const flag = v.boolean("true or false");
export const globs = v.array(filled, "an array of names or patterns");
