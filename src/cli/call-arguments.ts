import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import process from "node:process";
import { expandHome } from "../base/paths.ts";
import { findNearest } from "../manifest/problems.ts";
import type { Invocation, CommandContext } from "./command.ts";
import {
  describeForms,
  type ValueForm,
  type ObjectValueForm,
  formsOfSchema,
  type JsonSchema,
} from "./json-schema.ts";
import { suggestName, usageError } from "./args.ts";
import { type GivenValue, formatValues } from "./value.ts";

/** One `key=value`; the key may lead into objects by dots. */
interface Pair {
  readonly key: string;
  readonly value: GivenValue;
}

/** Where a call's arguments come from. */
export type ArgumentSource =
  | { readonly kind: "json"; readonly text: string }
  | { readonly kind: "pairs"; readonly pairs: readonly Pair[] };

/** Reads what follows the tool's name, `-` from stdin, `@FILE` from files. @throws {HubError} usage */
export async function readArgumentSource(
  { words, json }: Invocation,
  world: CommandContext,
): Promise<ArgumentSource> {
  const [, ...rest] = words;
  const sources = [rest.includes("-"), rest.some((word) => word !== "-"), typeof json === "string"];
  if (sources.filter(Boolean).length > 1) {
    throw usageError("The arguments come as KEY=VALUE, with --json or from stdin: choose one.");
  }
  if (typeof json === "string") return { kind: "json", text: checkObject(json, "--json") };
  if (rest.includes("-")) return { kind: "json", text: checkObject(await readStdin(), "stdin") };
  return { kind: "pairs", pairs: await Promise.all(rest.map((word) => readPair(word, world))) };
}

/**
 * The arguments as a JSON object. Pairs are read as the schema wants them; JSON is sent as it is.
 * @throws {HubError} usage: the key, what was expected and what was found
 */
export function formatArguments(given: ArgumentSource, inputSchema: unknown): string {
  if (given.kind === "json") return given.text;
  return writeObject(given.pairs, formsOfSchema({ schema: inputSchema, root: inputSchema }), "");
}

/** @param base the object's own key with a dot behind it; empty for the arguments as a whole. */
function writeObject(pairs: readonly Pair[], forms: readonly ValueForm[], base: string): string {
  const form = findObject(forms, pairs);
  const groups = new Map<string, { values: GivenValue[]; pairs: Pair[] }>();
  for (const { key, value } of pairs) {
    const [head, rest] = splitKey(key, form);
    const group = groups.get(head) ?? { values: [], pairs: [] };
    groups.set(head, group);
    if (rest === undefined) group.values.push(value);
    else group.pairs.push({ key: rest, value });
  }
  const members = [...groups].map(([key, group]) => {
    const schema = form.properties.get(key) ?? form.rest;
    if (schema === undefined) throw explainUnknown(base + key, form, base);
    return `${JSON.stringify(key)}:${writeMember(group, formsOfSchema(schema), base + key)}`;
  });
  const missing = form.required.filter((key) => !groups.has(key));
  if (missing.length > 0) throw explainMissing(missing, [...groups.keys()], form, base);
  return `{${members.join(",")}}`;
}

function writeMember(
  { values, pairs }: { values: readonly GivenValue[]; pairs: readonly Pair[] },
  forms: readonly ValueForm[],
  key: string,
): string {
  if (pairs.length > 0) {
    if (values.length > 0)
      throw usageError(`"${key}" is given as a whole and by its keys: choose one.`);
    if (forms.some(({ kind }) => kind === "object" || kind === "any"))
      return writeObject(pairs, forms, `${key}.`);
    const inner = `${key}.${pairs[0]?.key ?? ""}`;
    throw usageError(`"${key}": expected ${describeForms(forms)}, found the key "${inner}".`);
  }
  const written = formatValues(values, forms);
  if ("json" in written) return written.json;
  const { path, expected, found } = written.misfit;
  throw usageError(`"${key}${path}": expected ${expected}, found ${found}.`);
}

const OPEN: ObjectValueForm = {
  kind: "object",
  properties: new Map(),
  required: [],
  rest: { schema: true, root: true },
};

/** Of several kinds of objects, the first that knows all of the keys. */
function findObject(forms: readonly ValueForm[], pairs: readonly Pair[]): ObjectValueForm {
  const objects = forms.filter((form) => form.kind === "object");
  const knows = (form: ObjectValueForm): boolean =>
    pairs.every(({ key }) => form.properties.has(splitKey(key, form)[0]));
  return objects.find(knows) ?? objects[0] ?? OPEN;
}

/** The key's first part, and what is left; a property may have dots in its name. */
function splitKey(
  key: string,
  { properties }: ObjectValueForm,
): readonly [head: string, rest: string | undefined] {
  if (properties.has(key)) return [key, undefined];
  const dots = [...key.matchAll(/\./g)].map(({ index }) => index).filter((at) => at > 0);
  const at = dots.find((dot) => properties.has(key.slice(0, dot))) ?? dots[0];
  if (at === undefined || at === key.length - 1) return [key, undefined];
  return [key.slice(0, at), key.slice(at + 1)];
}

function explainUnknown(key: string, { properties }: ObjectValueForm, base: string) {
  const known = [...properties.keys()].map((name) => base + name);
  const takes = known.length === 0 ? " It takes none." : ` It takes ${known.join(", ")}.`;
  return usageError(`The tool takes no "${key}".${suggestName(key, known) || takes}`);
}

function explainMissing(
  keys: readonly string[],
  given: readonly string[],
  { properties }: ObjectValueForm,
  base: string,
) {
  const named = keys.map((key) => {
    const schema: JsonSchema = properties.get(key) ?? { schema: true, root: true };
    return `"${base}${key}" (${describeForms(formsOfSchema(schema))})`;
  });
  const stray = given.find((key) => !properties.has(key) && findNearest(key, keys) !== undefined);
  const hint = stray === undefined ? "" : ` Was that meant by "${base}${stray}"?`;
  return usageError(`The tool needs ${named.join(" and ")}.${hint}`);
}

async function readPair(word: string, world: CommandContext): Promise<Pair> {
  const at = word.indexOf("=");
  const isJson = word[at - 1] === ":";
  const key = word.slice(0, isJson ? at - 1 : at);
  if (at < 1 || key === "")
    throw usageError(`"${word}" is no argument: they are written KEY=VALUE.`);
  const text = word.slice(at + 1);
  const isFile = text.startsWith("@") && !text.startsWith("@@");
  if (!isJson) {
    if (isFile)
      return { key, value: { kind: "file", bytes: await readArgument(word, text, world) } };
    return { key, value: { kind: "text", text: text.replace(/^@@/, "@") } };
  }
  const json = isFile ? new TextDecoder().decode(await readArgument(word, text, world)) : text;
  try {
    JSON.parse(json);
  } catch (error) {
    throw usageError(`What "${key}:=" gives is no JSON: ${(error as Error).message}`);
  }
  return { key, value: { kind: "json", text: json } };
}

async function readArgument(word: string, text: string, { cwd, env }: CommandContext) {
  const path = resolve(cwd, expandHome(text.slice(1), env));
  try {
    return new Uint8Array(await readFile(path));
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
    const key = word.slice(0, word.indexOf("="));
    throw usageError(
      `The file ${path} for "${key}" cannot be read (${code}). A text that begins with @ is written ${key}=@${text}.`,
    );
  }
}

function checkObject(text: string, source: string): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw usageError(`What ${source} gives is no JSON: ${(error as Error).message}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return text;
  throw usageError(`What ${source} gives is no JSON object.`);
}

async function readStdin(): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of process.stdin)
    text += decoder.decode(chunk as Buffer, { stream: true });
  return text + decoder.decode();
}
