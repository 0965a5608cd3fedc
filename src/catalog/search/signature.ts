/** The parts of a tool that a search shows: its arguments as one line, the first sentence of its description. Pure. */

import { isJsonObject, propertyOf } from "../../base/json.ts";

/** Maximum length of a signature, in UTF-16 units. */
const MAX_SIGNATURE = 400;
/** Maximum length of the first sentence of a description, in UTF-16 units. */
const MAX_SENTENCE = 200;
/** Maximum number of values of an enum, and of variants, that are read. */
const MAX_VALUES = 12;
/** Levels of objects and arrays that are shown. */
const MAX_DEPTH = 3;

/** An estimate of the tokens of a JSON text, which is seldom below a model's count. @param bytes its UTF-8 length */
export function estimateTokens(bytes: number): number {
  return Math.ceil(bytes / 4);
}

/**
 * The arguments of a tool in the form of a TypeScript type, such as `{ repo: string, state?: "open"|"closed" }`.
 * Required ones come first. At most 400 characters: what does not fit is left out, and `…` stands for it.
 * @param inputSchema the tool's JSON Schema
 */
export function signatureOf(inputSchema: unknown): string {
  return objectType(inputSchema, MAX_DEPTH, MAX_SIGNATURE);
}

function objectType(schema: unknown, depth: number, room: number): string {
  const properties = propertyOf(schema, "properties");
  if (!isJsonObject(properties)) return "{}";
  const listed = propertyOf(schema, "required");
  const required = new Set<unknown>(Array.isArray(listed) ? listed : []);
  const keys = Object.keys(properties);
  if (keys.length === 0) return "{}";
  const ordered = [
    ...keys.filter((key) => required.has(key)),
    ...keys.filter((key) => !required.has(key)),
  ];
  let text = "{ ";
  for (const [i, key] of ordered.entries()) {
    const label = `${i === 0 ? "" : ", "}${nameOf(key)}${required.has(key) ? "" : "?"}: `;
    // Room for the end, `, … }`.
    const left = room - text.length - label.length - 5;
    const type = left <= 0 ? undefined : typeOf(properties[key], depth - 1, left);
    if (type === undefined || type.length > left) return `${text}${i === 0 ? "" : ", "}… }`;
    text += label + type;
  }
  return `${text} }`;
}

function nameOf(key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? key : JSON.stringify(key.toWellFormed());
}

function typeOf(schema: unknown, depth: number, room: number): string {
  if (!isJsonObject(schema)) return "any";
  const { enum: values, const: constant, type } = schema;
  if (constant !== undefined) return literal(constant);
  if (Array.isArray(values)) return unionOf(values, literal, room);
  const variants = schema["anyOf"] ?? schema["oneOf"];
  if (Array.isArray(variants) && depth > 0) {
    return unionOf(variants, (each) => typeOf(each, depth - 1, room), room);
  }
  if (Array.isArray(type)) {
    const types = [...new Set<unknown>(type)];
    return unionOf(types, (each) => typeOf({ ...schema, type: each }, depth, room), room);
  }
  if (type === "array") {
    const item = depth > 0 ? typeOf(schema["items"], depth - 1, room - 2) : "any";
    return item.includes("|") ? `(${item})[]` : `${item}[]`;
  }
  if (type === "object" || (type === undefined && isJsonObject(schema["properties"]))) {
    return depth > 0 && isJsonObject(schema["properties"])
      ? objectType(schema, depth, room)
      : "object";
  }
  if (type === "integer") return "int";
  return typeof type === "string" && /^\w{1,20}$/.test(type) ? type : "any";
}

function literal(value: unknown): string {
  return JSON.stringify(value)?.toWellFormed() ?? "any";
}

/** The different types of some values as one, with `…` for those for which there is no room. */
function unionOf(
  values: readonly unknown[],
  typeFor: (value: unknown) => string,
  room: number,
): string {
  const types = new Set(values.slice(0, MAX_VALUES).map(typeFor));
  let text = "";
  for (const type of types) {
    const next = text === "" ? type : `${text}|${type}`;
    if (next.length > room - 2) return text === "" ? "any" : `${text}|…`;
    text = next;
  }
  if (text === "") return "any";
  return values.length > MAX_VALUES ? `${text}|…` : text;
}

/** The first sentence of a description in one line, of at most 200 characters; `…` where it is cut. */
export function firstSentence(description: string): string {
  const { sentence } = splitSentence(description);
  const line = sentence.replace(/\s+/g, " ").trim();
  if (line.length <= MAX_SENTENCE) return line.toWellFormed();
  const cut = line.slice(0, MAX_SENTENCE - 1);
  const space = cut.lastIndexOf(" ");
  return `${(space > MAX_SENTENCE / 2 ? cut.slice(0, space) : cut).toWellFormed()}…`;
}

/** Number of UTF-16 units in which the end of the first sentence is looked for. */
const MAX_SEARCHED = 1000;

/** Splits a description after its first sentence: after `. `, a full stop of Chinese or Japanese, or a line's end. */
export function splitSentence(description: string): {
  readonly sentence: string;
  readonly rest: string;
} {
  const text = description.trimStart();
  const end = Math.min(text.length, MAX_SEARCHED);
  for (let at = 0; at < end; at++) {
    const character = text[at] ?? "";
    const isLine = character === "\n";
    const isStop =
      "。！？".includes(character) || ("!?.".includes(character) && isSentenceEnd(text, at));
    if (!isLine && !isStop) continue;
    const cut = at + (isLine ? 0 : 1);
    return { sentence: text.slice(0, cut), rest: text.slice(cut) };
  }
  return { sentence: text.slice(0, end), rest: text.slice(end) };
}

function isSentenceEnd(text: string, at: number): boolean {
  const next = text[at + 1];
  if (next !== undefined && !/\s/.test(next)) return false;
  // `e.g. `, `i.e. `, `etc. ` and single letters do not end a sentence.
  return !/(?:^|[^A-Za-z])(?:[A-Za-z]|e\.g|i\.e|etc|vs|approx)$/.test(
    text.slice(Math.max(0, at - 8), at),
  );
}
