import process from "node:process";
import type { Invocation } from "./command.ts";
import { usage } from "./parse.ts";

/** Where a call's arguments come from. */
export type Given =
  | { readonly kind: "json"; readonly text: string }
  | { readonly kind: "pairs"; readonly pairs: readonly (readonly [key: string, value: string])[] };

/** Reads what follows the tool's name, `-` from stdin. @throws {HubError} usage */
export async function readGiven({ words, json }: Invocation): Promise<Given> {
  const [, ...rest] = words;
  const sources = [rest.includes("-"), rest.some((word) => word !== "-"), typeof json === "string"];
  if (sources.filter(Boolean).length > 1) {
    throw usage("The arguments come as KEY=VALUE, with --json or from stdin: choose one.");
  }
  if (typeof json === "string") return { kind: "json", text: checkObject(json, "--json") };
  if (rest.includes("-")) return { kind: "json", text: checkObject(await readStdin(), "stdin") };
  return { kind: "pairs", pairs: rest.map(splitPair) };
}

/** The arguments as a JSON object. What is not JSON, or stands where the tool wants a string, becomes a string. */
export function toArguments(given: Given, inputSchema: unknown): string {
  if (given.kind === "json") return given.text;
  const members = new Map(
    given.pairs.map(([key, value]) => [
      JSON.stringify(key),
      !wantsString(inputSchema, key) && isJson(value) ? value : JSON.stringify(value),
    ]),
  );
  return `{${[...members].map(([key, value]) => `${key}:${value}`).join(",")}}`;
}

function splitPair(word: string): readonly [string, string] {
  const at = word.indexOf("=");
  if (at > 0) return [word.slice(0, at), word.slice(at + 1)];
  throw usage(`"${word}" is no argument: they are written KEY=VALUE.`);
}

function wantsString(inputSchema: unknown, key: string): boolean {
  const { properties } = (inputSchema ?? {}) as { properties?: Record<string, Property> | null };
  if (!properties || !Object.hasOwn(properties, key)) return false;
  return [properties[key]?.type].flat().includes("string");
}

type Property = { readonly type?: unknown } | null;

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function checkObject(text: string, source: string): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw usage(`What ${source} gives is no JSON: ${(error as Error).message}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return text;
  throw usage(`What ${source} gives is no JSON object.`);
}

async function readStdin(): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of process.stdin)
    text += decoder.decode(chunk as Buffer, { stream: true });
  return text + decoder.decode();
}
