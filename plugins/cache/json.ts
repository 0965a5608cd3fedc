import { type Part, readSpelling } from "../../src/plugin/plugin.ts";

/* Operations on JSON text, without parsing and serializing it, so that its formatting is kept. */

/** Maximum nesting of arguments that are cached. */
const MAX_DEPTH = 500;

/**
 * The normalized JSON text, independent of white space, escapes and the order of keys. Numbers stay as written, and
 * duplicate keys stay in order, because servers could read them differently.
 * @returns undefined if the text is malformed or nested too deep
 */
export function normalize(json: string): string | undefined {
  const part = readSpelling(json, MAX_DEPTH);
  return part && normalizePart(part);
}

function normalizePart(part: Part): string | undefined {
  switch (part.kind) {
    case "closed":
      return undefined;
    case "scalar":
      return unescapeScalar(part.source.slice(part.start, part.end));
    case "array": {
      const elements: string[] = [];
      for (const element of part.elements) {
        const text = normalizePart(element);
        if (text === undefined) return undefined;
        elements.push(text);
      }
      return `[${elements.join(",")}]`;
    }
    case "object": {
      const members: { readonly key: string; readonly text: string }[] = [];
      for (const { name, value } of part.members) {
        const text = normalizePart(value);
        if (text === undefined) return undefined;
        const key = unescapeScalar(name);
        members.push({ key, text: `${key}:${text}` });
      }
      // The sort is stable: duplicate keys stay in order.
      members.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
      return `{${members.map(({ text }) => text).join(",")}}`;
    }
  }
}

/** The JSON text of a scalar without unnecessary escapes; only strings contain escapes. */
function unescapeScalar(text: string): string {
  return text.includes("\\") ? JSON.stringify(JSON.parse(text)) : text;
}

/** The `_meta` key under which a cached result has the time when the tool returned it. */
const CACHED_KEY = "toolmux/cached";

/**
 * Adds the time to the `_meta` of a result, and changes nothing else.
 * @returns undefined if the result may not be cached, because it is incomplete or links to a resource that may have
 * disappeared later
 */
export function withCachedTime(json: string, time: Date): string | undefined {
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
  const member = `"${CACHED_KEY}":"${time.toISOString()}"`;
  if (meta === undefined)
    return insertMember(json, result.end - 1, `"_meta":{${member}}`, result.members.length);
  // If `_meta` is not an object, the time cannot be added.
  return meta.kind === "object"
    ? insertMember(json, meta.end - 1, member, meta.members.length)
    : json;
}

/** Inserts a member into an object at index `at`. @param before number of members before it */
function insertMember(text: string, at: number, member: string, before: number): string {
  return text.slice(0, at) + (before > 0 ? "," : "") + member + text.slice(at);
}
