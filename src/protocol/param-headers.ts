import { Buffer } from "node:buffer";
import type { ListedItem } from "../catalog/listing.ts";
import { JsonObject, propertyOf } from "../base/json.ts";

/*
 * HTTP headers that repeat tool arguments, for intermediaries that do not read bodies (Streamable HTTP, custom headers
 * from tool parameters).
 */

/** A tool argument that is repeated in a header. */
export interface MirroredParam {
  readonly header: string;
  readonly path: readonly string[];
}

/** The `x-mcp-header` annotations of a tool's schema. */
interface HeaderAnnotations {
  readonly params: readonly MirroredParam[];
  /**
   * The fault of the annotations, as the end of a sentence that begins with the tool's name; undefined if they are
   * valid. A tool with faulty annotations must not be called over HTTP.
   */
  readonly error: string | undefined;
}

const NO_HEADER_ANNOTATIONS: HeaderAnnotations = { params: [], error: undefined };
const annotationsCache = new WeakMap<ListedItem, HeaderAnnotations>();
const ANNOTATION = "x-mcp-header";
/** Maximum depth to which a schema is searched. */
const MAX_DEPTH = 100;

/** The arguments of a tool that headers repeat. */
export function mirroredParamsOf(item: ListedItem): readonly MirroredParam[] {
  return annotationsOf(item).params;
}

/** The reason why the tool must not be called over HTTP (an invalid annotation); undefined if it may be called. */
export function headerAnnotationErrorOf(item: ListedItem): string | undefined {
  return annotationsOf(item).error;
}

/**
 * The `Mcp-Param-*` headers of a call; undefined if the tool declares none.
 * @param args the parsed arguments
 */
export function paramHeaders(
  item: ListedItem,
  args: unknown,
): Readonly<Record<string, string>> | undefined {
  const { params } = annotationsOf(item);
  if (params.length === 0) return undefined;
  const headers = params.flatMap(({ header, path }) => {
    const value = path.reduce(propertyOf, args) ?? undefined;
    const isPrimitive =
      typeof value === "string" || typeof value === "boolean" || typeof value === "number";
    return isPrimitive ? [[header, encodeHeaderText(String(value))] as const] : [];
  });
  return Object.fromEntries(headers);
}

/** Encodes a text as a header value: in Base64, unless it is printable ASCII that does not look like encoded text. */
export function encodeHeaderText(text: string): string {
  const isSafe = /^(?:[!-~](?:[ -~]*[!-~])?)?$/.test(text) && decodeHeaderText(text) === text;
  return isSafe ? text : `=?base64?${Buffer.from(text).toString("base64")}?=`;
}

/** Decodes a header value that may be Base64-encoded; undefined if there is none or it is malformed. */
export function decodeHeaderText(value: string | null): string | undefined {
  const base64 = /^=\?base64\?(.*)\?=$/.exec(value ?? "")?.[1];
  if (base64 === undefined) return value ?? undefined;
  const bytes = Buffer.from(base64, "base64");
  // `Buffer.from` skips invalid characters instead of failing. Encoding the bytes again shows whether it skipped any.
  return bytes.toString("base64") === base64 ? bytes.toString() : undefined;
}

function annotationsOf(item: ListedItem): HeaderAnnotations {
  const found = annotationsCache.get(item) ?? findAnnotations(item);
  annotationsCache.set(item, found);
  return found;
}

function findAnnotations({ bytes }: ListedItem): HeaderAnnotations {
  if (!Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(ANNOTATION)) {
    return NO_HEADER_ANNOTATIONS;
  }
  const whole = JsonObject.of(bytes).value("inputSchema");
  if (whole === undefined) return NO_HEADER_ANNOTATIONS;
  const annotations = [...collectAnnotations(whole, [])];
  const error =
    annotations.map(annotationError).find((text) => text !== undefined) ??
    findDuplicate(annotations);
  const params = annotations.flatMap(({ name, path }) =>
    typeof name === "string" && path !== undefined && isToken(name)
      ? [{ header: `Mcp-Param-${name}`, path }]
      : [],
  );
  return { params, error };
}

/** An `x-mcp-header` keyword found in a schema. */
interface Annotation {
  readonly name: unknown;
  readonly type: unknown;
  /** The path of the argument; undefined if it is not reachable through `properties` alone. */
  readonly path: readonly string[] | undefined;
}

/** Keywords whose values are data, not schemas. */
const DATA_KEYWORDS: ReadonlySet<string> = new Set([
  "const",
  "default",
  "enum",
  "example",
  "examples",
]);
/** Keywords whose values map arbitrary names to schemas. */
const SCHEMA_MAP_KEYWORDS: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "dependentSchemas",
  "$defs",
  "definitions",
]);

function* collectAnnotations(
  schema: unknown,
  path: readonly string[] | undefined,
  depth = 0,
): Generator<Annotation> {
  if (typeof schema !== "object" || schema === null || depth > MAX_DEPTH) return;
  if (Array.isArray(schema)) {
    for (const element of schema) yield* collectAnnotations(element, undefined, depth + 1);
    return;
  }
  const isRoot = path?.length === 0;
  const name = propertyOf(schema, ANNOTATION);
  if (name !== undefined) {
    yield { name, type: propertyOf(schema, "type"), path: isRoot ? undefined : path };
  }
  for (const [key, value] of Object.entries(schema) as [string, unknown][]) {
    if (DATA_KEYWORDS.has(key) || typeof value !== "object" || value === null) continue;
    if (!SCHEMA_MAP_KEYWORDS.has(key)) {
      yield* collectAnnotations(value, undefined, depth + 1);
      continue;
    }
    for (const [innerName, inner] of Object.entries(value) as [string, unknown][]) {
      const innerPath =
        key === "properties" && path !== undefined ? [...path, innerName] : undefined;
      yield* collectAnnotations(inner, innerPath, depth + 1);
    }
  }
}

const PRIMITIVES: ReadonlySet<unknown> = new Set(["string", "integer", "boolean"]);

function annotationError({ name, type, path }: Annotation): string | undefined {
  if (typeof name !== "string" || !isToken(name)) {
    return `its ${ANNOTATION} ${JSON.stringify(name)?.slice(0, 100)} cannot be a part of a header name`;
  }
  if (path === undefined) return `its ${ANNOTATION} "${name}" is not on an argument`;
  if (!PRIMITIVES.has(type)) {
    return `its ${ANNOTATION} "${name}" must be on a string, integer or boolean`;
  }
  return undefined;
}

function findDuplicate(annotations: readonly Annotation[]): string | undefined {
  const names = annotations.map(({ name }) => String(name).toLowerCase());
  const duplicate = names.find((name, i) => names.indexOf(name) !== i);
  return duplicate && `its ${ANNOTATION} "${duplicate}" is on more than one argument`;
}

/** Whether the text is a token (RFC 9110), and so may be a part of a header's name. */
function isToken(name: string): boolean {
  return /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name);
}
