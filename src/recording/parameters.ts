import type { Buffer } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { isSecretName } from "../manifest/plaintext-secrets.ts";
import { MASK } from "./mask.ts";

/** So many differences are looked for, and shown of a value so many characters. */
const MOST = 50;
const SHOWN = 60;

/**
 * What a request asks for: its params without what is another each time (`_meta`, with the progress token), members in order.
 * Equal for requests that want the same.
 */
export function formatRequestKey(bytes: Buffer, params: ByteRange | undefined): string {
  if (params === undefined) return "{}";
  const text = textOf(bytes, params.start, params.end);
  try {
    const { _meta, ...wish } = JSON.parse(text) as Record<string, unknown>;
    return JSON.stringify(wish, sortMembers);
  } catch {
    return text;
  }
}

function sortMembers(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const keys = Object.keys(value);
  const isSorted = keys.every((key, at) => at === 0 || (keys[at - 1] ?? "") <= key);
  if (isSorted) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Where two values are not the same: `arguments.path[2]`, and what is there. */
export interface ValueDifference {
  readonly path: string;
  readonly recorded: string;
  readonly asked: string;
}

/** How a wish differs from a recorded one, what was taken out of that apart; empty if it does not. */
export function compareRequestKeys(recorded: string, asked: string): readonly ValueDifference[] {
  return compareValues(parse(recorded), parse(asked));
}

/** The same of any two values. */
export function compareValues(recorded: unknown, asked: unknown): readonly ValueDifference[] {
  const found: ValueDifference[] = [];
  walk(recorded, asked, "", "", found);
  return found;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function walk(a: unknown, b: unknown, path: string, key: string, found: ValueDifference[]): void {
  if (found.length >= MOST || Object.is(a, b) || (typeof a === "string" && fits(a, b))) return;
  if (Array.isArray(a) && Array.isArray(b)) {
    const length = Math.max(a.length, b.length);
    for (let at = 0; at < length && found.length < MOST; at++) {
      walk(a[at], b[at], `${path}[${at}]`, key, found);
    }
    return;
  }
  if (isTable(a) && isTable(b)) {
    for (const name of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const below = path === "" ? name : `${path}.${name}`;
      walk(own(a, name), own(b, name), below, name, found);
    }
    return;
  }
  const isSecret = isSecretName(key);
  const asked = isSecret && b !== undefined ? "[not shown]" : show(b);
  found.push({ path: path === "" ? "all" : path, recorded: show(a), asked });
}

function own(table: Readonly<Record<string, unknown>>, name: string): unknown {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

/** What was taken out of a recording can have been anything. */
function fits(recorded: string, asked: unknown): boolean {
  if (!recorded.includes(MASK)) return recorded === asked;
  // A number that was taken out is a text in the recording.
  if (recorded === MASK) return typeof asked === "string" || typeof asked === "number";
  if (typeof asked !== "string") return false;
  const parts = recorded.split(MASK);
  const last = parts.pop() ?? "";
  let at = 0;
  for (const [index, part] of parts.entries()) {
    const next = index === 0 ? (asked.startsWith(part) ? 0 : -1) : asked.indexOf(part, at);
    if (next < 0) return false;
    at = next + part.length;
  }
  return asked.length - last.length >= at && asked.endsWith(last);
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function show(value: unknown): string {
  if (value === undefined) return "nothing";
  const text = JSON.stringify(value);
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`;
}
