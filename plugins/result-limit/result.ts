import { Buffer } from "node:buffer";
import { isDeepStrictEqual } from "node:util";
import { type Part, readSpelling } from "../../src/plugin/plugin.ts";

/** An entry of `content`, with its JSON text. */
export type ContentItem = TextItem | MediaItem;

/** A readable entry: a text, a text resource, or any other entry such as a link, as its JSON text. */
export interface TextItem {
  readonly kind: "text";
  readonly json: string;
  /** Whether this is a text entry. Any other readable entry becomes one when it is cut. */
  readonly isText: boolean;
  readonly text: string;
  /** The entry's range in the result's JSON text; undefined for an entry that the plugin made. */
  readonly part?: Part;
}

/** An image, a sound, or a binary resource in Base64. */
export interface MediaItem {
  readonly kind: "media";
  readonly json: string;
  /** A label for messages, such as "An image". */
  readonly label: string;
  readonly mimeType: string;
  readonly data: string;
}

export interface ToolResult {
  readonly part: Part;
  readonly items: readonly ContentItem[];
  readonly structured: string | undefined;
}

/** Parses a tool's result; undefined if it is malformed or has neither content nor structured content. */
export function readResult(json: string): ToolResult | undefined {
  // Three levels are read: the result, its content, and the entries.
  const part = readSpelling(json, 3);
  if (part?.kind !== "object") return undefined;
  const find = (key: string): Part | undefined =>
    part.members.findLast((member) => member.key === key)?.value;
  const content = find("content");
  const found = find("structuredContent");
  const structured = found && textOfPart(found);
  if (content === undefined && structured !== undefined) return { part, items: [], structured };
  if (content?.kind !== "array") return undefined;
  const entries = JSON.parse(textOfPart(content)) as readonly unknown[];
  const items = content.elements.map((element, i) => readItem(element, entries[i]));
  return { part, items, structured };
}

function textOfPart({ source, start, end }: Part): string {
  return source.slice(start, end);
}

function readItem(part: Part, entry: unknown): ContentItem {
  const json = textOfPart(part);
  const writing = { kind: "text", json, isText: false, text: json, part } as const;
  if (!isObject(entry)) return writing;
  const { type, text, data, mimeType, resource } = entry;
  if (type === "text" && typeof text === "string") return { ...writing, isText: true, text };
  if ((type === "image" || type === "audio") && typeof data === "string") {
    const what = type === "image" ? "An image" : "A sound";
    return { kind: "media", json, label: what, mimeType: mimeTypeOf(mimeType), data };
  }
  if (type !== "resource" || !isObject(resource)) return writing;
  const { uri, text: inner, blob } = resource;
  if (typeof blob === "string") {
    const what = typeof uri === "string" ? `The resource ${uri.slice(0, 100)}` : "A resource";
    return {
      kind: "media",
      json,
      label: what,
      mimeType: mimeTypeOf(resource["mimeType"]),
      data: blob,
    };
  }
  return typeof inner === "string" ? { ...writing, text: `${String(uri)}\n${inner}` } : writing;
}

/** Whether the entries contain the same data as the structured content, so that the latter may be omitted. */
export function repeatsStructured(items: readonly ContentItem[], structured: string): boolean {
  const value: unknown = JSON.parse(structured);
  if (entriesMatch(items, value)) return true;
  // Servers wrap an array or a scalar in an object, as `{"result": …}` or `{"content": …}`: the entries may contain
  // only the inner value.
  const [inner, ...others] = isObject(value) ? Object.values(value) : [];
  return others.length === 0 && entriesMatch(items, inner);
}

function entriesMatch(items: readonly ContentItem[], value: unknown): boolean {
  const [first] = items;
  if (items.length === 1 && first !== undefined && itemMatches(first, value)) return true;
  if (!Array.isArray(value) || value.length !== items.length) return false;
  return items.every((item, i) => itemMatches(item, value[i]));
}

/** Whether the value is the entry's text, the JSON value of its text, or the entry itself. */
function itemMatches(item: ContentItem, value: unknown): boolean {
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

/** Size of a text in UTF-8, in bytes. */
export function sizeOf(text: string): number {
  return Buffer.byteLength(text);
}

function mimeTypeOf(mimeType: unknown): string {
  return typeof mimeType === "string" ? mimeType : "application/octet-stream";
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
