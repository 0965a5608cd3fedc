import { describeValue, findNearest, type UnplacedProblem, type KeyPath } from "./problems.ts";
import { isTable } from "./table.ts";

/** The properties of a valibot schema that are read here, the same in every copy of valibot. */
interface SchemaShape {
  readonly type?: unknown;
  readonly wrapped?: SchemaShape;
  readonly entries?: Readonly<Record<string, SchemaShape>>;
  /** Of an array. */
  readonly item?: SchemaShape;
  /** Of a record. */
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
