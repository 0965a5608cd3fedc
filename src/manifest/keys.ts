import { describe, findNearest, type Complaint, type Path } from "./problems.ts";
import { isTable } from "./table.ts";

/** The properties of a valibot schema that are read here, the same in every copy of valibot. */
interface Shape {
  readonly type?: unknown;
  readonly wrapped?: Shape;
  readonly entries?: Readonly<Record<string, Shape>>;
  /** Of an array. */
  readonly item?: Shape;
  /** Of a record. */
  readonly value?: Shape;
  /** The `record` of fields.ts has its item schema in its metadata. */
  readonly pipe?: readonly { readonly metadata?: { readonly items?: Shape } }[];
}

/**
 * Finds all unknown keys (valibot's check stops at the first, or ignores them), and all values that should be tables.
 * Only `looseObject` and `objectWithRest` allow other keys.
 */
export function* findKeyFaults(schema: object, input: unknown, path: Path): Generator<Complaint> {
  const { type, wrapped, entries, item, pipe } = schema as Shape;
  const own = pipe?.find(({ metadata }) => metadata?.items !== undefined)?.metadata?.items;
  const value = own ?? (type === "record" ? (schema as Shape).value : undefined);
  if (wrapped !== undefined) {
    const isAllowed = input === null && (type === "nullable" || type === "nullish");
    if (!isAllowed) yield* findKeyFaults(wrapped, input, path);
  } else if (entries !== undefined) {
    const isOpen = type === "loose_object" || type === "object_with_rest";
    yield* checkEntries(entries, isOpen, input, path);
  } else if (type === "array" && item !== undefined && Array.isArray(input)) {
    for (const [i, inner] of input.entries()) yield* findKeyFaults(item, inner, [...path, i]);
  } else if (value !== undefined && isTable(input)) {
    for (const [key, inner] of Object.entries(input))
      yield* findKeyFaults(value, inner, [...path, key]);
  }
}

function* checkEntries(
  entries: Readonly<Record<string, Shape>>,
  isOpen: boolean,
  input: unknown,
  path: Path,
): Generator<Complaint> {
  if (!isTable(input)) {
    yield { path, at: "value", message: `expected a table, found ${describe(input, false)}` };
    return;
  }
  for (const [key, value] of Object.entries(input)) {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
    const inner = [...path, key];
    if (entry !== undefined) yield* findKeyFaults(entry, value, inner);
    else if (!isOpen) yield { path: inner, at: "key", message: explainUnknown(key, entries) };
  }
}

/** Keys that MCP clients use for a server, with the manifest's equivalent. */
const ADVICE = new Map([
  ["cmd", `did you mean "command"?`],
  ["serverUrl", `did you mean "url"?`],
  ["httpUrl", `did you mean "url"?`],
  ["type", "leave it out, a server has a command or a url (and there transport)"],
  ["disabled", "write enabled = false"],
  ["timeout", "there are connectTimeout, callTimeout and maxCallTimeout"],
  ["disabledTools", "write tools.deny"],
]);

function explainUnknown(key: string, entries: object): string {
  const advice = Object.hasOwn(entries, "inheritEnv") ? ADVICE.get(key) : undefined;
  if (advice !== undefined) return `unknown key; ${advice}`;
  const known = Object.keys(entries);
  if (known.length === 0) return "unknown key; there are none here";
  const nearest = findNearest(key, known);
  return nearest === undefined
    ? `unknown key; expected one of ${known.join(", ")}`
    : `unknown key; did you mean "${nearest}"?`;
}
