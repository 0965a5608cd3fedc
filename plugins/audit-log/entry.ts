import { Buffer } from "node:buffer";
import process from "node:process";
import type { Answer, ToolCall } from "../../src/plugin/plugin.ts";
import type { Redaction } from "./redaction.ts";

/**
 * How a call ended.
 * - `ok`: with a result
 * - `toolError`: with a result that says that something went wrong; also one by which another plugin refused the call
 * - `error`: with a JSON-RPC error of the server
 * - `cancelled`: the client cancelled it, or left
 * - `timedOut`: its deadline passed
 * - `unavailable`: the server could not be started, so it never got the call
 * - `lost`: the server was lost while it had the call, and what it did of it is not known
 * - `failed`: anything else, such as a plugin that failed
 */
export type Outcome =
  "ok" | "toolError" | "error" | "cancelled" | "timedOut" | "unavailable" | "lost" | "failed";

export interface Ending {
  readonly outcome: Outcome;
  /** The code of the error, if there is one: a word of the hub's, or the number of a JSON-RPC error. */
  readonly error?: string;
  /** Of the answer in bytes; undefined if there is none. */
  readonly size?: number;
}

/** When a call began, in ms since the epoch, and how many ms it took. */
export interface Span {
  readonly started: number;
  readonly duration: number;
}

/** What the hub's codes mean for a call; every other one is `failed`. */
const OUTCOMES: ReadonlyMap<string, Outcome> = new Map<string, Outcome>([
  ["cancelled", "cancelled"],
  ["callTimeout", "timedOut"],
  ["valueMissing", "unavailable"],
  ["notSupported", "unavailable"],
  ["commandNotFound", "unavailable"],
  ["notExecutable", "unavailable"],
  ["spawnFailed", "unavailable"],
  ["handshakeFailed", "unavailable"],
  ["connectTimeout", "unavailable"],
  ["serverStopped", "unavailable"],
  ["connectionLost", "lost"],
  ["notReading", "lost"],
  ["notResponding", "lost"],
]);

/** Longer arguments are left out, in bytes of JSON. */
const LONGEST_ARGUMENTS = 64 * 1024;
/** Names come from outside: longer ones are cut, in characters. */
const LONGEST_NAME = 200;
/** A bigger error is not read for its code, in bytes. */
const LARGEST_ERROR = 64 * 1024;

export function describeAnswer(answer: Answer): Ending {
  const { size } = answer;
  if (answer.kind === "error") return { outcome: "error", ...codeOf(answer), size };
  return { outcome: answer.isError ? "toolError" : "ok", size };
}

/** @param error what `next` rejected with */
export function describeFailure(error: unknown): Ending {
  const code: unknown = (error as { code?: unknown } | null | undefined)?.code;
  if (typeof code !== "string") return { outcome: "failed" };
  return { outcome: OUTCOMES.get(code) ?? "failed", error: cut(code) };
}

/**
 * One JSON object in one line, without a line end.
 * @param redaction what of the arguments is not shown; undefined: the arguments are left out
 */
export function describeCall(
  call: ToolCall,
  { outcome, error, size }: Ending,
  { started, duration }: Span,
  redaction: Redaction | undefined,
): string {
  const { client, tool } = call;
  const shown = redaction && showArguments(call.argumentsJson, redaction);
  const entry = JSON.stringify({
    time: new Date(started).toISOString(),
    // Numbers of calls and ids of clients are unique in one hub only, and several may write to one file.
    hub: process.pid,
    call: call.number,
    client: { id: client.id, name: cut(client.name), version: cut(client.version) },
    server: cut(tool.server),
    tool: cut(tool.name),
    name: cut(tool.exposedName),
    duration: Math.round(duration * 10) / 10,
    outcome,
    error,
    sizes: { request: call.size, answer: size, arguments: shown?.size },
    truncated: shown?.kind === "leftOut" ? true : undefined,
  });
  return shown?.kind === "text" ? `${entry.slice(0, -1)},"arguments":${shown.text}}` : entry;
}

type Shown =
  | { readonly kind: "text"; readonly text: string; readonly size?: undefined }
  /** `size` is in bytes. */
  | { readonly kind: "leftOut"; readonly size: number };

function showArguments(json: string, redaction: Redaction): Shown {
  const size = Buffer.byteLength(json);
  if (size > LONGEST_ARGUMENTS || !isJson(json)) return { kind: "leftOut", size };
  // Only between the values of a JSON text can there be line ends.
  return { kind: "text", text: redaction.apply(json).replace(/[\r\n]/g, " ") };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function codeOf({ size, value }: Answer): { error?: string } {
  if (size > LARGEST_ERROR) return {};
  const code: unknown = (value as { code?: unknown } | null | undefined)?.code;
  return typeof code === "number" ? { error: String(code) } : {};
}

function cut<Name extends string | undefined>(name: Name): Name | string {
  if (name === undefined || name.length <= LONGEST_NAME) return name;
  return `${name.slice(0, LONGEST_NAME)}…`;
}
