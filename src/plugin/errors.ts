import { dirname, sep } from "node:path";
import process from "node:process";
import { HubError } from "../base/errors.ts";

/** A description, for people, of something that a plugin has thrown. */
export interface PluginFault {
  /** A sentence or a part of one; it has no line breaks. */
  readonly message: string;
  /** `path:line:column` in the plugin's own file; undefined if it is not known. */
  readonly position: string | undefined;
}

/** Maximum length of a message, in UTF-16 units. */
const MAX_MESSAGE_LENGTH = 500;

/**
 * Describes anything thrown. Never throws.
 * @param path the plugin's own file, absolute; undefined for a built-in plugin
 */
export function describePluginFault(thrown: unknown, path: string | undefined): PluginFault {
  return {
    message: messageOf(firstError(thrown)),
    position: path === undefined ? undefined : positionInFile(thrown, path),
  };
}

/** The description on one line, with the position if it is known. */
export function formatPluginFault({ message, position }: PluginFault): string {
  return position === undefined ? message : `${message} (${position})`;
}

/** Whether a thrown value is one of toolmux's own errors. Never throws. */
export function isOwnError(thrown: unknown): thrown is HubError {
  try {
    return thrown instanceof HubError;
  } catch {
    return false;
  }
}

const handledErrors = new WeakSet();

/** Marks an error that a plugin receives. If a rejection with it is unhandled, the plugin has ignored the rejection. */
export function markHandled(error: HubError): HubError {
  handledErrors.add(error);
  return error;
}

export function isHandled(thrown: unknown): boolean {
  return isOwnError(thrown) && handledErrors.has(thrown);
}

/** Prevents an unhandled rejection if the value is a promise although no promise is expected. */
export function ignoreRejection(value: unknown): void {
  if (value instanceof Promise) value.catch(() => {});
}

/**
 * The first error of an AggregateError, which Bun throws for syntax errors; any other thrown value itself. Never
 * throws.
 */
function firstError(thrown: unknown): unknown {
  try {
    const { errors } = thrown as BunErrorDetails;
    return Array.isArray(errors) && errors.length > 0 ? (errors[0] as unknown) : thrown;
  } catch {
    return thrown;
  }
}

function messageOf(thrown: unknown): string {
  try {
    const text: unknown = thrown instanceof Error ? thrown.message || thrown.name : thrown;
    return String(text).replace(/\s+/g, " ").trim().slice(0, MAX_MESSAGE_LENGTH);
  } catch {
    return "it threw something that cannot be described";
  }
}

/** The properties of Bun's syntax errors. */
interface BunErrorDetails {
  readonly position?: { readonly line: number; readonly column: number } | null;
  readonly errors?: unknown;
  readonly stack?: string;
}

/**
 * The position in the file at which the error was thrown, as `path:line:column`; undefined if it is not known. Never
 * throws.
 */
export function positionInFile(thrown: unknown, path: string): string | undefined {
  try {
    return positionOf(firstError(thrown), path) ?? positionOf(thrown, path);
  } catch {
    return undefined;
  }
}

/**
 * Whether the error was thrown by a file in the folder of `path` or below it, such as another file of the plugin.
 * Never throws.
 */
export function isThrownBelow(thrown: unknown, path: string): boolean {
  try {
    const { stack = "" } = thrown as BunErrorDetails;
    const frame = /^ *at .*?(?:file:\/\/)?(\/[^()]*?)(?:\?[^:/]*)?:\d+:\d+\)?$/m.exec(stack);
    const file = decodeURI(frame?.[1] ?? "");
    return file.startsWith(`${dirname(path)}${sep}`) && !file.startsWith(`${ownFolder()}${sep}`);
  } catch {
    return false;
  }
}

/** The folder of toolmux's own source. */
function ownFolder(): string {
  const { fileURLToPath } = process.getBuiltinModule("node:url");
  return dirname(dirname(fileURLToPath(import.meta.url)));
}

/** Whether the thrown value is not an Error. Then a plugin threw it, because toolmux itself throws only Errors. */
export function isNotError(thrown: unknown): boolean {
  try {
    return !(thrown instanceof Error);
  } catch {
    return true;
  }
}

function positionOf(thrown: unknown, path: string): string | undefined {
  const { position, stack = "" } = thrown as BunErrorDetails;
  if (position) return `${path}:${position.line}:${position.column}`;
  // A file that was imported again has a query after its path; in a URL, some characters are percent-encoded.
  for (const name of [path, encodeURI(path)]) {
    const at = stack.indexOf(name);
    if (at === -1) continue;
    const match = /^(?:\?[^:\s)]*)?:(\d+)(?::(\d+))?/.exec(stack.slice(at + name.length));
    if (match !== null) return [path, match[1], match[2]].filter(Boolean).join(":");
  }
  return undefined;
}
