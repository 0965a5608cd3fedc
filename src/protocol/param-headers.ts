import { Buffer } from "node:buffer";
import type { ListedItem } from "../catalog/listing.ts";
import { lastMember, scanObject, parseRange } from "../base/json.ts";

/*
 * HTTP headers that repeat tool arguments, for intermediaries that do not read bodies (Streamable HTTP, custom headers
 * from tool parameters).
 */

/** A tool argument that is repeated in a header. */
export interface Mirrored {
  readonly header: string;
  readonly path: readonly string[];
}

/** The `x-mcp-header` annotations of a tool's schema. */
interface Reading {
  readonly mirrored: readonly Mirrored[];
  /**
   * What is wrong with the annotations, as the end of a sentence that begins with the tool's name; such a tool must not
   * be called over HTTP.
   */
  readonly fault: string | undefined;
}

const NOTHING: Reading = { mirrored: [], fault: undefined };
const known = new WeakMap<ListedItem, Reading>();
const ANNOTATION = "x-mcp-header";
/** Maximum nesting of a schema that is searched. */
const DEEPEST = 100;

/** The arguments of a tool that headers repeat. */
export function mirroredBy(item: ListedItem): readonly Mirrored[] {
  return readingOf(item).mirrored;
}

/** Why the tool must not be called over HTTP: an annotation is invalid. Undefined if none is. */
export function faultOf(item: ListedItem): string | undefined {
  return readingOf(item).fault;
}

/**
 * The `Mcp-Param-*` headers of a call; undefined if the tool declares none.
 * @param args the parsed arguments
 */
export function mirror(
  item: ListedItem,
  args: unknown,
): Readonly<Record<string, string>> | undefined {
  const { mirrored } = readingOf(item);
  if (mirrored.length === 0) return undefined;
  const headers = mirrored.flatMap(({ header, path }) => {
    const value = path.reduce(lookUp, args) ?? undefined;
    const isPlain =
      typeof value === "string" || typeof value === "boolean" || typeof value === "number";
    return isPlain ? [[header, encode(String(value))] as const] : [];
  });
  return Object.fromEntries(headers);
}

/** The text as a header value: Base64-encoded, unless it is printable ASCII that does not look like the encoding. */
export function encode(text: string): string {
  const isPlain = /^(?:[!-~](?:[ -~]*[!-~])?)?$/.test(text) && decode(text) === text;
  return isPlain ? text : `=?base64?${Buffer.from(text).toString("base64")}?=`;
}

/** Decodes a header value that may be Base64-encoded; undefined if there is none or it is malformed. */
export function decode(value: string | null): string | undefined {
  const coded = /^=\?base64\?(.*)\?=$/.exec(value ?? "")?.[1];
  if (coded === undefined) return value ?? undefined;
  const bytes = Buffer.from(coded, "base64");
  // `Buffer.from` skips invalid characters instead of failing.
  return bytes.toString("base64") === coded ? bytes.toString() : undefined;
}

export function lookUp(value: unknown, key: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return Object.getOwnPropertyDescriptor(value, key)?.value;
}

function readingOf(item: ListedItem): Reading {
  const found = known.get(item) ?? read(item);
  known.set(item, found);
  return found;
}

function read({ bytes }: ListedItem): Reading {
  if (!Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(ANNOTATION)) {
    return NOTHING;
  }
  const schema = lastMember(scanObject(bytes, 0)?.items ?? [], "inputSchema");
  if (schema === undefined) return NOTHING;
  const whole = parseRange(bytes, schema);
  const found = [...collect(whole, [])];
  const fault = found.map(explain).find((text) => text !== undefined) ?? findTwins(found);
  const mirrored = found.flatMap(({ name, path }) =>
    typeof name === "string" && path !== undefined && isToken(name)
      ? [{ header: `Mcp-Param-${name}`, path }]
      : [],
  );
  return { mirrored, fault };
}

/** An `x-mcp-header` keyword found in a schema. */
interface Annotation {
  readonly name: unknown;
  readonly type: unknown;
  /** undefined: the argument is not reachable through `properties` only. */
  readonly path: readonly string[] | undefined;
}

/** Keywords whose values are data, not schemas. */
const VALUES: ReadonlySet<string> = new Set(["const", "default", "enum", "example", "examples"]);
/** Keywords whose values map arbitrary names to schemas. */
const NAMED: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "dependentSchemas",
  "$defs",
  "definitions",
]);

function* collect(
  schema: unknown,
  path: readonly string[] | undefined,
  depth = 0,
): Generator<Annotation> {
  if (typeof schema !== "object" || schema === null || depth > DEEPEST) return;
  if (Array.isArray(schema)) {
    for (const one of schema) yield* collect(one, undefined, depth + 1);
    return;
  }
  const isRoot = path?.length === 0;
  const name = lookUp(schema, ANNOTATION);
  if (name !== undefined) {
    yield { name, type: lookUp(schema, "type"), path: isRoot ? undefined : path };
  }
  for (const [key, value] of Object.entries(schema) as [string, unknown][]) {
    if (VALUES.has(key) || typeof value !== "object" || value === null) continue;
    if (!NAMED.has(key)) {
      yield* collect(value, undefined, depth + 1);
      continue;
    }
    for (const [own, inner] of Object.entries(value) as [string, unknown][]) {
      const to = key === "properties" && path !== undefined ? [...path, own] : undefined;
      yield* collect(inner, to, depth + 1);
    }
  }
}

const PRIMITIVES: ReadonlySet<unknown> = new Set(["string", "integer", "boolean"]);

function explain({ name, type, path }: Annotation): string | undefined {
  if (typeof name !== "string" || !isToken(name)) {
    return `its ${ANNOTATION} ${JSON.stringify(name)?.slice(0, 100)} cannot be a part of a header's name`;
  }
  if (path === undefined) return `its ${ANNOTATION} "${name}" is not where arguments are described`;
  if (!PRIMITIVES.has(type)) {
    return `its ${ANNOTATION} "${name}" is at what is no string, integer or boolean`;
  }
  return undefined;
}

function findTwins(found: readonly Annotation[]): string | undefined {
  const names = found.map(({ name }) => String(name).toLowerCase());
  const twin = names.find((name, i) => names.indexOf(name) !== i);
  return twin && `its ${ANNOTATION} "${twin}" stands at more than one argument`;
}

/** Whether the text is a token (RFC 9110), and so may be a part of a header's name. */
function isToken(name: string): boolean {
  return /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name);
}
