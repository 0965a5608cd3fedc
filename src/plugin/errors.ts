import { dirname, sep } from "node:path";
import process from "node:process";
import { HubError } from "../base/errors.ts";

/** Describes something thrown, for people. */
export interface Fault {
  /** A sentence or a part of one, without line breaks. */
  readonly fault: string;
  /** `path:line:column` in the plugin's own file; undefined if it is not known. */
  readonly place: string | undefined;
}

/** Maximum length of a message, in UTF-16 units. */
const LONGEST = 500;

/**
 * Describes anything thrown. Never throws.
 * @param path the plugin's own file, absolute; undefined for a built-in plugin
 */
export function describeFault(thrown: unknown, path: string | undefined): Fault {
  return {
    fault: wordsOf(firstOf(thrown)),
    place: path === undefined ? undefined : findPlace(thrown, path),
  };
}

/** Whether it is one of toolmux's own errors. Never throws. */
export function isOwnError(thrown: unknown): thrown is HubError {
  try {
    return thrown instanceof HubError;
  } catch {
    return false;
  }
}

const entrusted = new WeakSet();

/** Marks an error as one that a plugin received: if it becomes an unhandled rejection, the plugin has ignored it. */
export function entrust(error: HubError): HubError {
  entrusted.add(error);
  return error;
}

export function isEntrusted(thrown: unknown): boolean {
  return isOwnError(thrown) && entrusted.has(thrown);
}

/** Ignores the rejection of a value that should not have been a promise. */
export function disown(value: unknown): void {
  if (value instanceof Promise) value.catch(() => {});
}

/** The first error of an AggregateError, as Bun throws for syntax errors; else the thrown value. Never throws. */
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

/** The properties of Bun's syntax errors. */
interface Positioned {
  readonly position?: { readonly line: number; readonly column: number } | null;
  readonly errors?: unknown;
  readonly stack?: string;
}

/** Where in that file it was thrown, as `path:line:column`; undefined if it is not known. Never throws. */
export function findPlace(thrown: unknown, path: string): string | undefined {
  try {
    return placeOf(firstOf(thrown), path) ?? placeOf(thrown, path);
  } catch {
    return undefined;
  }
}

/** Whether it was thrown by a file in the same folder or below it, as a plugin's other files are. Never throws. */
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

/** The folder of toolmux's own source. */
function findOwn(): string {
  const { fileURLToPath } = process.getBuiltinModule("node:url");
  return dirname(dirname(fileURLToPath(import.meta.url)));
}

/** Whether it is not an Error; toolmux itself throws nothing else. */
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
  // A file that was imported again has a query after its path; in a URL, some characters are percent-encoded.
  for (const name of [path, encodeURI(path)]) {
    const at = stack.indexOf(name);
    if (at === -1) continue;
    const place = /^(?:\?[^:\s)]*)?:(\d+)(?::(\d+))?/.exec(stack.slice(at + name.length));
    if (place !== null) return [path, place[1], place[2]].filter(Boolean).join(":");
  }
  return undefined;
}
