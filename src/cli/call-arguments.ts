import { count } from "../base/format.ts";
import { Buffer } from "node:buffer";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import process from "node:process";
import { HubError, usageError } from "../base/errors.ts";
import { expandHome } from "../base/paths.ts";
import { decodeUtf8 } from "../base/read-file.ts";
import { findNearest, suggestName } from "../manifest/problems.ts";
import { sanitizeLine } from "../terminal/log.ts";
import type { CommandContext, Invocation } from "./command.ts";
import {
  describeForms,
  findMismatch,
  formsOfSchema,
  type JsonSchema,
  type ObjectValueForm,
  type SchemaMismatch,
  type ValueForm,
} from "./json-schema.ts";

/** One value that the command line gives for a key. */
export type GivenValue =
  | { readonly kind: "text"; readonly text: string }
  /** JSON text that is known to be valid. */
  | { readonly kind: "json"; readonly text: string }
  | { readonly kind: "file"; readonly bytes: Uint8Array<ArrayBuffer> };

export type WrittenValue = { readonly json: string } | { readonly mismatch: SchemaMismatch };

/**
 * Converts the values given for one key to JSON text that matches one of `forms`, the kinds of values that the tool's
 * schema allows. Numbers keep their spelling.
 */
function formatValues(values: readonly GivenValue[], forms: readonly ValueForm[]): WrittenValue {
  const [value, ...others] = values;
  if (value === undefined) return mismatchResult(forms, "nothing");
  const list = forms.find((form) => form.kind === "array");
  if (others.length === 0) {
    const json = formatValue(value, forms);
    // If the schema does not allow the single value, but allows an array, the value becomes the only element of an
    // array.
    if (json !== undefined || list === undefined) return toResult(json, value, forms);
    return formatElements(values, list);
  }
  if (list !== undefined) return formatElements(values, list);
  if (forms.some(({ kind }) => kind === "any"))
    return formatElements(values, { kind: "array", items: { schema: true, root: true } });
  return mismatchResult(forms, count(values.length, "value"));
}

function formatElements(
  values: readonly GivenValue[],
  list: ValueForm & { kind: "array" },
): WrittenValue {
  const forms = formsOfSchema(list.items);
  const isNested = forms.some(({ kind }) => kind === "array" || kind === "any");
  const elements: string[] = [];
  for (const value of values) {
    const arrayJson = isNested ? undefined : formatValue(value, [list]);
    const json = arrayJson ?? formatValue(value, forms);
    if (json === undefined)
      return toResult(json, value, isList(value) && !isNested ? [list] : forms);
    elements.push(arrayJson === undefined ? json : arrayJson.trim().slice(1, -1));
  }
  return { json: `[${elements.filter((text) => text.trim() !== "").join(",")}]` };
}

function isList(value: GivenValue): boolean {
  return value.kind !== "file" && /^\s*\[/.test(value.text);
}

/** The value as JSON text; undefined if it matches none of `forms` (the kinds of values that the schema allows). */
function formatValue(value: GivenValue, forms: readonly ValueForm[]): string | undefined {
  switch (value.kind) {
    case "json":
      return findMismatch(JSON.parse(value.text), forms) === undefined ? value.text : undefined;
    case "text":
      return formatText(value.text, forms);
    case "file": {
      const encodes = forms.some((form) => form.kind === "string" && form.base64);
      if (encodes) return JSON.stringify(Buffer.from(value.bytes).toString("base64"));
      const text = decodeUtf8(value.bytes);
      return text === undefined ? undefined : formatText(text, forms);
    }
  }
}

/** The order in which a text is tried as each kind of value: the most specific kinds first. */
const FORM_ORDER = "null choice boolean integer number array object any string".split(" ");

function formatText(text: string, forms: readonly ValueForm[]): string | undefined {
  const ordered = forms.toSorted((a, b) => FORM_ORDER.indexOf(a.kind) - FORM_ORDER.indexOf(b.kind));
  for (const form of ordered) {
    const json = formatAs(text, form);
    if (json !== undefined) return json;
  }
  return undefined;
}

function formatAs(text: string, form: ValueForm): string | undefined {
  switch (form.kind) {
    case "string":
      return JSON.stringify(text);
    case "any":
      return parseJson(text) === undefined ? JSON.stringify(text) : text;
    case "choice": {
      const values = form.values.filter((one) =>
        typeof one === "string" ? one === text : JSON.stringify(one) === text.trim(),
      );
      return values.length === 0 ? undefined : JSON.stringify(values[0]);
    }
    default: {
      const value = parseJson(text);
      const fits = value !== undefined && findMismatch(value.value, [form]) === undefined;
      return fits ? text.trim() : undefined;
    }
  }
}

function toResult(
  json: string | undefined,
  value: GivenValue,
  forms: readonly ValueForm[],
): WrittenValue {
  if (json !== undefined) return { json };
  switch (value.kind) {
    case "json":
      return {
        mismatch:
          findMismatch(JSON.parse(value.text), forms) ?? mismatchOf(forms, "something else"),
      };
    case "file":
      return mismatchResult(forms, "the content of that file");
    case "text": {
      // If the text is JSON, the message names the path of the mismatch inside it.
      const parsed = /^\s*[[{]/.test(value.text) ? parseJson(value.text) : undefined;
      const mismatch = parsed && findMismatch(parsed.value, forms);
      const shown = value.text.length > 40 ? `${value.text.slice(0, 40)}…` : value.text;
      return { mismatch: mismatch ?? mismatchOf(forms, JSON.stringify(shown)) };
    }
  }
}

function mismatchResult(forms: readonly ValueForm[], found: string): WrittenValue {
  return { mismatch: mismatchOf(forms, found) };
}

function mismatchOf(forms: readonly ValueForm[], found: string): SchemaMismatch {
  return { path: "", expected: describeForms(forms), found };
}

function parseJson(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}

/** One KEY=VALUE argument. Dots in the key lead into nested objects. */
interface ArgumentPair {
  readonly key: string;
  readonly value: GivenValue;
}

export type ArgumentSource =
  | { readonly kind: "json"; readonly text: string }
  | { readonly kind: "pairs"; readonly pairs: readonly ArgumentPair[] };

/**
 * Reads the arguments of the tool from the command line: `--json`, KEY=VALUE pairs (KEY=@FILE reads the value from a
 * file), or `-` for JSON from stdin.
 * @throws {HubError} usage
 */
export async function readArgumentSource(
  { args, options: { json } }: Invocation<{ readonly json: string | undefined }>,
  context: CommandContext,
): Promise<ArgumentSource> {
  const [, ...rest] = args;
  const sources = [rest.includes("-"), rest.some((word) => word !== "-"), json !== undefined];
  if (sources.filter(Boolean).length > 1) {
    throw usageError("Choose one of KEY=VALUE arguments, --json and - (stdin).");
  }
  if (json !== undefined) return { kind: "json", text: checkObject(json, "--json") };
  if (rest.includes("-"))
    return { kind: "json", text: checkObject(await readStdin(), "The text on stdin") };
  return { kind: "pairs", pairs: await Promise.all(rest.map((word) => readPair(word, context))) };
}

/**
 * The arguments as JSON text. `key=value` pairs are converted as the tool's schema demands; JSON is passed on
 * unchanged.
 * @throws {HubError} usage, with a hint that lists the tool's arguments
 */
export function formatArguments(source: ArgumentSource, inputSchema: unknown): string {
  if (source.kind === "json") return source.text;
  const forms = formsOfSchema({ schema: inputSchema, root: inputSchema });
  try {
    return formatObject(source.pairs, forms, "");
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    throw usageError(error.message, describeSignature(objectFormFor(forms, source.pairs)));
  }
}

/** Maximum number of optional arguments in a signature; required ones are all listed. */
const MAX_OPTIONAL_ARGUMENTS = 12;

/** Describes the arguments of a tool, one in each line, the required ones first; undefined if the schema names none. */
function describeSignature({ properties, required }: ObjectValueForm): string | undefined {
  const anything: JsonSchema = { schema: true, root: true };
  const describe = (key: string, more: string): readonly [string, string] => [
    key,
    describeForms(formsOfSchema(properties.get(key) ?? anything)) + more,
  ];
  const optional = [...properties.keys()].filter((key) => !required.includes(key));
  const rows = [
    ...required.map((key) => describe(key, "")),
    ...optional.slice(0, MAX_OPTIONAL_ARGUMENTS).map((key) => describe(key, " (optional)")),
  ];
  if (rows.length === 0) return undefined;
  const width = Math.max(...rows.map(([key]) => key.length));
  const omitted = optional.length - MAX_OPTIONAL_ARGUMENTS;
  return [
    "The tool takes:",
    ...rows.map(([key, forms]) => sanitizeLine(`  ${key.padEnd(width)}  ${forms}`)),
    ...(omitted > 0 ? [`  … and ${omitted} more optional ones`] : []),
  ].join("\n");
}

/**
 * Converts pairs to the text of a JSON object.
 * @param base prefix of the keys in messages, such as `filter.`; empty at the top level
 */
function formatObject(
  pairs: readonly ArgumentPair[],
  forms: readonly ValueForm[],
  base: string,
): string {
  const form = objectFormFor(forms, pairs);
  const groups = new Map<string, { values: GivenValue[]; pairs: ArgumentPair[] }>();
  for (const { key, value } of pairs) {
    const [name, rest] = splitKey(key, form);
    const group = groups.get(name) ?? { values: [], pairs: [] };
    groups.set(name, group);
    if (rest === undefined) group.values.push(value);
    else group.pairs.push({ key: rest, value });
  }
  const members = [...groups].map(([key, group]) => {
    const schema = form.properties.get(key) ?? form.rest;
    if (schema === undefined) throw unknownKeyError(base + key, form, base);
    return `${JSON.stringify(key)}:${formatMember(group, formsOfSchema(schema), base + key)}`;
  });
  const missing = form.required.filter((key) => !groups.has(key));
  if (missing.length > 0) throw missingKeysError(missing, [...groups.keys()], form, base);
  return `{${members.join(",")}}`;
}

function formatMember(
  { values, pairs }: { values: readonly GivenValue[]; pairs: readonly ArgumentPair[] },
  forms: readonly ValueForm[],
  key: string,
): string {
  if (pairs.length > 0) {
    if (values.length > 0)
      throw usageError(
        `"${key}" has a value of its own and values for its keys (${key}.…): choose one.`,
      );
    if (forms.some(({ kind }) => kind === "object" || kind === "any"))
      return formatObject(pairs, forms, `${key}.`);
    const inner = `${key}.${pairs[0]?.key ?? ""}`;
    throw usageError(`"${key}": expected ${describeForms(forms)}, found the key "${inner}".`);
  }
  const formatted = formatValues(values, forms);
  if ("json" in formatted) return formatted.json;
  const { path, expected, found } = formatted.mismatch;
  throw usageError(`"${key}${path}": expected ${expected}, found ${found}.`);
}

const ANY_OBJECT: ObjectValueForm = {
  kind: "object",
  properties: new Map(),
  required: [],
  rest: { schema: true, root: true },
};

/**
 * Chooses the kind of object to write if the schema allows several: the first that has all given keys, or else the
 * first.
 */
function objectFormFor(
  forms: readonly ValueForm[],
  pairs: readonly ArgumentPair[],
): ObjectValueForm {
  const objects = forms.filter((form) => form.kind === "object");
  const knows = (form: ObjectValueForm): boolean =>
    pairs.every(({ key }) => form.properties.has(splitKey(key, form)[0]));
  return objects.find(knows) ?? objects[0] ?? ANY_OBJECT;
}

/** Splits a dotted key after the name of a property at its start. That name may itself contain dots. */
function splitKey(
  key: string,
  { properties }: ObjectValueForm,
): readonly [head: string, rest: string | undefined] {
  if (properties.has(key)) return [key, undefined];
  const dots = [...key.matchAll(/\./g)].map(({ index }) => index).filter((dot) => dot > 0);
  const dot = dots.find((index) => properties.has(key.slice(0, index))) ?? dots[0];
  if (dot === undefined || dot === key.length - 1) return [key, undefined];
  return [key.slice(0, dot), key.slice(dot + 1)];
}

function unknownKeyError(key: string, { properties }: ObjectValueForm, base: string) {
  const known = [...properties.keys()].map((name) => base + name);
  const takes = known.length === 0 ? " It takes no arguments." : ` It takes ${known.join(", ")}.`;
  return usageError(`The tool has no argument "${key}".${suggestName(key, known) || takes}`);
}

function missingKeysError(
  keys: readonly string[],
  givenKeys: readonly string[],
  { properties }: ObjectValueForm,
  base: string,
) {
  const missing = keys.map((key) => {
    const schema: JsonSchema = properties.get(key) ?? { schema: true, root: true };
    return `"${base}${key}" (${describeForms(formsOfSchema(schema))})`;
  });
  const misspelled = givenKeys.find(
    (key) => !properties.has(key) && findNearest(key, keys) !== undefined,
  );
  const meant = misspelled && findNearest(misspelled, keys);
  const hint = meant ? ` Write "${base}${meant}" instead of "${base}${misspelled}".` : "";
  return usageError(`The tool needs ${missing.join(" and ")}.${hint}`);
}

async function readPair(word: string, context: CommandContext): Promise<ArgumentPair> {
  const equals = word.indexOf("=");
  const isJson = word[equals - 1] === ":";
  const key = word.slice(0, isJson ? equals - 1 : equals);
  if (equals < 1 || key === "") throw malformedPairError(word);
  const text = word.slice(equals + 1);
  const isFile = text.startsWith("@") && !text.startsWith("@@");
  if (!isJson) {
    if (isFile)
      return { key, value: { kind: "file", bytes: await readArgumentFile(word, text, context) } };
    return { key, value: { kind: "text", text: text.replace(/^@@/, "@") } };
  }
  const json = isFile
    ? new TextDecoder().decode(await readArgumentFile(word, text, context))
    : text;
  try {
    JSON.parse(json);
  } catch (error) {
    throw usageError(`The value of "${key}:=" is not valid JSON: ${(error as Error).message}`);
  }
  return { key, value: { kind: "json", text: json } };
}

async function readArgumentFile(word: string, text: string, { cwd, env }: CommandContext) {
  const path = resolve(cwd, expandHome(text.slice(1), env));
  try {
    return new Uint8Array(await readFile(path));
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
    const key = word.slice(0, word.indexOf("="));
    throw usageError(
      `Could not read the file ${path} for "${key}" (${code}).`,
      `To send a text that begins with @, write it with a second one: ${key}=@${text}`,
    );
  }
}

/** Maximum length of JSON that a message repeats, in characters. */
const MAX_SHOWN_JSON = 60;

function malformedPairError(word: string): HubError {
  if (!/^\s*[[{]/.test(word)) {
    const example = /^[\w.-]+$/.test(word) ? `, such as ${word}=VALUE` : "";
    return usageError(
      `"${word}" is not an argument. Arguments are KEY=VALUE${example}. A tool is named in one word, as toolmux list shows it.`,
    );
  }
  const isShort = word.length <= MAX_SHOWN_JSON && !/[\n']/.test(word);
  const shown = isShort && parseJson(word) !== undefined ? word : "{…}";
  return usageError(`Arguments are KEY=VALUE; for JSON: --json '${shown}'`);
}

/**
 * Checks that a text is a JSON object, and returns it.
 * @param source the origin of the text, for the beginning of the message
 */
function checkObject(text: string, source: string): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw usageError(
      `${source} is not valid JSON: ${(error as Error).message}`,
      `Write a JSON object in single quotes: --json '{"key": "value"}'`,
    );
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return text;
  throw usageError(`${source} must be a JSON object, such as {"key": "value"}.`);
}

async function readStdin(): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of process.stdin)
    text += decoder.decode(chunk as Buffer, { stream: true });
  return text + decoder.decode();
}
