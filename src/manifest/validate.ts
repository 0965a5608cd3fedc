import * as v from "valibot";
import { describe, findNearest, type Complaint, type Path } from "./problem.ts";
import { isTable } from "./table.ts";

export type Validated<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly complaints: readonly Complaint[] };

/** Checks `input`, found under `base`, and finds everything that is wrong with it at once. */
export function validate<T>(
  schema: v.GenericSchema<unknown, T>,
  input: unknown,
  base: Path,
): Validated<T> {
  const faults = [...findKeyFaults(schema, input, base)];
  const result = v.safeParse(schema, input);
  if (result.success && faults.length === 0) return { ok: true, value: result.output };
  const seen = new Set(faults.map((fault) => JSON.stringify(fault.path)));
  for (const issue of result.issues ?? []) {
    const path = [...base, ...(issue.path ?? []).map(({ key }) => key as string | number)];
    if ([...path, ""].some((_, length) => seen.has(JSON.stringify(path.slice(0, length)))))
      continue;
    const missing = issue.type === "strict_object" && issue.path !== undefined;
    faults.push({
      path,
      at: "value",
      message: missing
        ? "is missing"
        : `expected ${issue.message}, found ${describe(issue.input, !isPrivate(path))}`,
    });
  }
  return { ok: false, complaints: faults };
}

/** Values of these keys are never shown: people put secrets there. */
const PRIVATE = new Set<unknown>(["command", "args", "env", "cwd"]);

function isPrivate(path: Path): boolean {
  return path.some((key) => PRIVATE.has(key));
}

/** All keys that the schema does not know (its own check stops at the first), and whatever is no table. */
function* findKeyFaults(schema: object, input: unknown, path: Path): Generator<Complaint> {
  const entries = getEntries(schema);
  if (entries === undefined) return;
  if (!isTable(input)) {
    yield { path, at: "value", message: `expected a table, found ${describe(input, false)}` };
    return;
  }
  for (const [key, value] of Object.entries(input)) {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
    if (entry !== undefined) yield* findKeyFaults(entry, value, [...path, key]);
    else yield { path: [...path, key], at: "key", message: explainUnknown(key, entries) };
  }
}

function getEntries(schema: object): Readonly<Record<string, object>> | undefined {
  if ("wrapped" in schema) return getEntries(schema.wrapped as object);
  return "entries" in schema ? (schema.entries as Record<string, object>) : undefined;
}

const REMOTE = "remote servers are not supported by this version";
/** Keys that MCP clients use for a server, and what to write here instead. */
const ADVICE = new Map([
  ["cmd", `did you mean "command"?`],
  ["url", REMOTE],
  ["headers", REMOTE],
  ["type", "leave it out, every server is started with its command"],
  ["disabled", "write enabled = false"],
  ["timeout", "there are connectTimeout, callTimeout and maxCallTimeout"],
  ["disabledTools", "write tools.deny"],
]);

function explainUnknown(key: string, entries: Readonly<Record<string, object>>): string {
  const advice = Object.hasOwn(entries, "command") ? ADVICE.get(key) : undefined;
  if (advice !== undefined) return `unknown key; ${advice}`;
  const known = Object.keys(entries);
  const nearest = findNearest(key, known);
  return nearest === undefined
    ? `unknown key; expected one of ${known.join(", ")}`
    : `unknown key; did you mean "${nearest}"?`;
}
