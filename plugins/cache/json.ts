import { type Part, readSpelling } from "../../src/plugin/plugin.ts";

/*
 * JSON as text: what is compared or kept is never parsed and written again, so that it keeps its spelling.
 */

/** No real arguments need more. */
const MAX_DEPTH = 500;

/**
 * The one spelling of a JSON text that does not depend on white space, escapes and the order of keys. Numbers stay as they
 * are written, and of members with the same key each stays, in their order: texts that a server could read differently
 * never become the same.
 * @returns undefined if the text is malformed, or nested too deep
 */
export function canonical(json: string): string | undefined {
  const part = readSpelling(json, MAX_DEPTH);
  return part && write(part);
}

function write(part: Part): string | undefined {
  switch (part.kind) {
    case "closed":
      return undefined;
    case "scalar":
      return plain(part.source.slice(part.start, part.end));
    case "array": {
      const elements: string[] = [];
      for (const element of part.elements) {
        const text = write(element);
        if (text === undefined) return undefined;
        elements.push(text);
      }
      return `[${elements.join(",")}]`;
    }
    case "object": {
      const members: { readonly key: string; readonly text: string }[] = [];
      for (const { name, value } of part.members) {
        const text = write(value);
        if (text === undefined) return undefined;
        const key = plain(name);
        members.push({ key, text: `${key}:${text}` });
      }
      // Stable: equal keys stay in their order.
      members.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
      return `{${members.map(({ text }) => text).join(",")}}`;
    }
  }
}

/** A string without escapes that it does not need; all else has none. */
function plain(text: string): string {
  return text.includes("\\") ? JSON.stringify(JSON.parse(text)) : text;
}

/** The member of a result's `_meta` that says when the tool gave it, if that was not just now. */
const CACHED_KEY = "toolmux/cached";

/**
 * A result that says that it was kept; every other byte of it stays.
 * @returns undefined if it may not be kept: it links to what may be gone by then, or is not the end of its call
 */
export function mark(json: string, at: Date): string | undefined {
  if (json.includes('"resource_link"')) return undefined;
  const result = readSpelling(json, 2);
  if (result?.kind !== "object") return undefined;
  let meta: Part | undefined;
  for (const { key, value } of result.members) {
    if (key === "task") return undefined;
    if (key === "resultType" && json.slice(value.start, value.end) !== '"complete"')
      return undefined;
    if (key === "_meta") meta = value;
  }
  const member = `"${CACHED_KEY}":"${at.toISOString()}"`;
  if (meta === undefined)
    return insert(json, result.end - 1, `"_meta":{${member}}`, result.members.length);
  // A `_meta` that is no object cannot take it.
  return meta.kind === "object" ? insert(json, meta.end - 1, member, meta.members.length) : json;
}

/** @param before how many members there are in front of it */
function insert(text: string, at: number, member: string, before: number): string {
  return text.slice(0, at) + (before > 0 ? "," : "") + member + text.slice(at);
}
