import { Buffer } from "node:buffer";
import { isDeepStrictEqual } from "node:util";
import { type Part, readSpelling } from "../../src/plugin/plugin.ts";

/** An entry of `content`, with its JSON text as the server spelled it. */
export type Item = Writing | Media;

/** What can be read: a text, an embedded resource that is one, or a link and the like, as the JSON that it is. */
export interface Writing {
  readonly kind: "writing";
  readonly json: string;
  /** Whether it is a text and nothing else, and so can be cut and still be what it was. */
  readonly isText: boolean;
  readonly text: string;
  /** Where it stands in the result; what was written here stands nowhere. */
  readonly part?: Part;
}

/** A picture, a sound, or another resource in base64. */
export interface Media {
  readonly kind: "media";
  readonly json: string;
  /** For people: "An image". */
  readonly what: string;
  readonly mimeType: string;
  readonly data: string;
}

export interface Result {
  readonly part: Part;
  readonly items: readonly Item[];
  /** `structuredContent`, as the server spelled it. */
  readonly structured: string | undefined;
}

/** The parts of a tool's result; undefined if it has none that could be too long, or is no JSON. */
export function readResult(json: string): Result | undefined {
  // The result, its content, and the entries of it.
  const part = readSpelling(json, 3);
  if (part?.kind !== "object") return undefined;
  const find = (key: string): Part | undefined =>
    part.members.findLast((member) => member.key === key)?.value;
  const content = find("content");
  const found = find("structuredContent");
  const structured = found && spellingOf(found);
  if (content === undefined && structured !== undefined) return { part, items: [], structured };
  if (content?.kind !== "array") return undefined;
  const entries = JSON.parse(spellingOf(content)) as readonly unknown[];
  const items = content.elements.map((element, i) => readItem(element, entries[i]));
  return { part, items, structured };
}

function spellingOf({ source, start, end }: Part): string {
  return source.slice(start, end);
}

function readItem(part: Part, entry: unknown): Item {
  const json = spellingOf(part);
  const writing = { kind: "writing", json, isText: false, text: json, part } as const;
  if (!isObject(entry)) return writing;
  const { type, text, data, mimeType, resource } = entry;
  if (type === "text" && typeof text === "string") return { ...writing, isText: true, text };
  if ((type === "image" || type === "audio") && typeof data === "string") {
    const what = type === "image" ? "An image" : "A sound";
    return { kind: "media", json, what, mimeType: typeOf(mimeType), data };
  }
  if (type !== "resource" || !isObject(resource)) return writing;
  const { uri, text: inner, blob } = resource;
  if (typeof blob === "string") {
    const what = typeof uri === "string" ? `The resource ${uri.slice(0, 100)}` : "A resource";
    return { kind: "media", json, what, mimeType: typeOf(resource["mimeType"]), data: blob };
  }
  return typeof inner === "string" ? { ...writing, text: `${String(uri)}\n${inner}` } : writing;
}

/** Whether the entries say what the structured content says, so that nothing is lost without it. */
export function repeats(items: readonly Item[], structured: string): boolean {
  const value: unknown = JSON.parse(structured);
  if (say(items, value)) return true;
  // What is no object has to be wrapped in one, as `{"result": …}` or `{"content": …}`.
  const [inner, ...others] = isObject(value) ? Object.values(value) : [];
  return others.length === 0 && say(items, inner);
}

function say(items: readonly Item[], value: unknown): boolean {
  const [first] = items;
  if (items.length === 1 && first !== undefined && says(first, value)) return true;
  if (!Array.isArray(value) || value.length !== items.length) return false;
  return items.every((item, i) => says(item, value[i]));
}

/** An entry says what its text says, that it is this text, and what it is. */
function says(item: Item, value: unknown): boolean {
  const text = item.kind === "media" ? item.data : item.text;
  return text === value || isJsonOf(text, value) || isJsonOf(item.json, value);
}

function isJsonOf(json: string, value: unknown): boolean {
  try {
    return isDeepStrictEqual(JSON.parse(json), value);
  } catch {
    return false;
  }
}

/** Of a text in UTF-8, in bytes. */
export function sizeOf(text: string): number {
  return Buffer.byteLength(text);
}

function typeOf(mimeType: unknown): string {
  return typeof mimeType === "string" ? mimeType : "application/octet-stream";
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
