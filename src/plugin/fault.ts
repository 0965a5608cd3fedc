import { dirname, sep } from "node:path";
import process from "node:process";
import { HubError } from "../errors.ts";

/** What was thrown, and where, for people. */
export interface Fault {
  /** One sentence or a part of one, without a line end. */
  readonly fault: string;
  /** `path:line:column` in the plugin's own file, where that can be told. */
  readonly place: string | undefined;
}

/** The longest message that is repeated, in characters. */
const LONGEST = 500;

/**
 * Never throws, whatever was thrown.
 * @param path the plugin's own file, absolute; undefined for one that is built in
 */
export function describeFault(thrown: unknown, path: string | undefined): Fault {
  return {
    fault: wordsOf(firstOf(thrown)),
    place: path === undefined ? undefined : findPlace(thrown, path),
  };
}

/** Whether it is an error of toolmux's own. Never throws, whatever it is. */
export function isOwnError(thrown: unknown): thrown is HubError {
  try {
    return thrown instanceof HubError;
  } catch {
    return false;
  }
}

const entrusted = new WeakSet();

/** Remembers that a plugin was given this error: if nobody catches it, it was the plugin that lost interest in it. */
export function entrust(error: HubError): HubError {
  entrusted.add(error);
  return error;
}

export function isEntrusted(thrown: unknown): boolean {
  return isOwnError(thrown) && entrusted.has(thrown);
}

/** Takes no notice of the failure of what was not to be a promise. */
export function disown(value: unknown): void {
  if (value instanceof Promise) value.catch(() => {});
}

/** The first of several errors: which there are counts for less. Never throws. */
function firstOf(thrown: unknown): unknown {
  try {
    const { errors } = thrown as Positioned;
    return Array.isArray(errors) && errors.length > 0 ? (errors[0] as unknown) : thrown;
  } catch {
    return thrown;
  }
}

function wordsOf(thrown: unknown): string {
  try {
    const text: unknown = thrown instanceof Error ? thrown.message || thrown.name : thrown;
    return String(text).replace(/\s+/g, " ").trim().slice(0, LONGEST);
  } catch {
    return "it threw something that cannot be described";
  }
}

/** What Bun's errors of syntax have. */
interface Positioned {
  readonly position?: { readonly line: number; readonly column: number } | null;
  readonly errors?: unknown;
  readonly stack?: string;
}

/** Where in that file it was thrown, as `path:line:column`; undefined if it does not say so. Never throws. */
export function findPlace(thrown: unknown, path: string): string | undefined {
  try {
    return placeOf(firstOf(thrown), path) ?? placeOf(thrown, path);
  } catch {
    return undefined;
  }
}

/** Whether it was thrown by a file beside or below that one, as a plugin's other files are. Never throws. */
export function isThrownNear(thrown: unknown, path: string): boolean {
  try {
    const { stack = "" } = thrown as Positioned;
    const frame = /^ *at .*?(?:file:\/\/)?(\/[^()]*?)(?:\?[^:/]*)?:\d+:\d+\)?$/m.exec(stack);
    const file = decodeURI(frame?.[1] ?? "");
    return file.startsWith(`${dirname(path)}${sep}`) && !file.startsWith(`${findOwn()}${sep}`);
  } catch {
    return false;
  }
}

/** Where toolmux itself is. */
function findOwn(): string {
  const { fileURLToPath } = process.getBuiltinModule("node:url");
  return dirname(dirname(fileURLToPath(import.meta.url)));
}

/** Whether it is no error, which toolmux itself never throws. */
export function isStrange(thrown: unknown): boolean {
  try {
    return !(thrown instanceof Error);
  } catch {
    return true;
  }
}

function placeOf(thrown: unknown, path: string): string | undefined {
  const { position, stack = "" } = thrown as Positioned;
  if (position) return `${path}:${position.line}:${position.column}`;
  // Of a file that was loaded anew, the path has a query behind it; in a URL some characters are escaped.
  for (const name of [path, encodeURI(path)]) {
    const at = stack.indexOf(name);
    if (at === -1) continue;
    const place = /^(?:\?[^:\s)]*)?:(\d+)(?::(\d+))?/.exec(stack.slice(at + name.length));
    if (place !== null) return [path, place[1], place[2]].filter(Boolean).join(":");
  }
  return undefined;
}
