import { Buffer } from "node:buffer";
import process from "node:process";
import type { Answer, HubEvent, ToolCall } from "../../src/plugin/plugin.ts";
import type { Redaction } from "./redaction.ts";

/**
 * How a call ended.
 * - `ok`: with a result
 * - `toolError`: with a result that has `isError`; also if another plugin refused the call
 * - `error`: with a JSON-RPC error of the server
 * - `cancelled`: the client cancelled the call or disconnected
 * - `timedOut`: the deadline passed
 * - `unavailable`: the server could not be started, so it never received the call
 * - `lost`: the connection was lost during the call, so its effect is unknown
 * - `failed`: any other error, such as one of a plugin
 */
export type Outcome =
  "ok" | "toolError" | "error" | "cancelled" | "timedOut" | "unavailable" | "lost" | "failed";

export interface CallEnding {
  readonly outcome: Outcome;
  /** The error's code, if there is an error: one of the hub's codes, or the number of a JSON-RPC error. */
  readonly error?: string;
  /** Size of the answer in bytes; undefined if there is none. */
  readonly size?: number;
}

/** Start of a call in ms since the epoch, and its duration in ms. */
export interface CallTiming {
  readonly started: number;
  readonly duration: number;
}

/** The outcome of a call by error code. A code that is not listed means `failed`. */
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

/** Maximum size of logged arguments, in bytes of JSON; larger ones are omitted. */
const MAX_ARGUMENTS_SIZE = 64 * 1024;
/** Maximum length of a logged name, in UTF-16 units: clients and servers may send names of any length. */
const MAX_NAME_LENGTH = 200;
/** Maximum size of an error that is parsed for its code, in bytes. */
const MAX_ERROR_SIZE = 64 * 1024;

export function describeAnswer(answer: Answer): CallEnding {
  const { size } = answer;
  if (answer.kind === "error") return { outcome: "error", ...codeOf(answer), size };
  return { outcome: answer.isError ? "toolError" : "ok", size };
}

/** Describes the ending of a call that has no answer. @param error the error that `next` rejected with */
export function describeFailure(error: unknown): CallEnding {
  const code: unknown = (error as { code?: unknown } | null | undefined)?.code;
  if (typeof code !== "string") return { outcome: "failed" };
  return { outcome: OUTCOMES.get(code) ?? "failed", error: truncate(code) };
}

/**
 * The log line of a call: one JSON object, without a line end.
 * @param redaction masks values in the arguments; if it is undefined, the arguments are omitted
 */
export function formatCall(
  call: ToolCall,
  { outcome, error, size }: CallEnding,
  { started, duration }: CallTiming,
  redaction: Redaction | undefined,
): string {
  const { client, tool } = call;
  const shown = redaction && redactArguments(call.argumentsJson, redaction);
  const entry = JSON.stringify({
    time: new Date(started).toISOString(),
    // The process id distinguishes hubs that write to the same file: call numbers and client ids are unique only
    // within one hub.
    hub: process.pid,
    call: call.number,
    client: {
      id: client.id,
      name: truncate(client.name),
      version: truncate(client.version),
      principal: client.principal,
    },
    server: truncate(tool.server),
    tool: truncate(tool.name),
    name: truncate(tool.exposedName),
    duration: Math.round(duration * 10) / 10,
    outcome,
    error,
    sizes: { request: call.size, answer: size, arguments: shown?.size },
    truncated: shown?.kind === "omitted" ? true : undefined,
  });
  return shown?.kind === "text" ? `${entry.slice(0, -1)},"arguments":${shown.text}}` : entry;
}

/** The log line of an approval decision about a call, whether a person made it or it was remembered. */
export function formatApproval(
  event: Extract<HubEvent, { kind: "approval"; change: "decided" }>,
  time: number,
): string {
  const { id, decision, by, remembered, call, client, principal, agent, server, tool } = event;
  const { clientName, name } = event;
  return JSON.stringify({
    time: new Date(time).toISOString(),
    hub: process.pid,
    call,
    client: { id: client, name: truncate(clientName), principal },
    agent: truncate(agent),
    server: truncate(server),
    tool: truncate(tool),
    name: truncate(name),
    approval: { id, decision, by, remembered },
  });
}

/** Maximum length of a logged alert, in UTF-16 units. */
const MAX_ALERT_LENGTH = 4000;

/** A line about suspicious text in the definitions of a server, which was found or is gone. */
export function formatScanAlert(
  { raised, alert: { server, text } }: Extract<HubEvent, { kind: "alert" }>,
  time: number,
): string {
  return JSON.stringify({
    time: new Date(time).toISOString(),
    hub: process.pid,
    server: truncate(server),
    suspiciousText: { found: raised, text: text.slice(0, MAX_ALERT_LENGTH) },
  });
}

type LoggedArguments =
  | { readonly kind: "text"; readonly text: string; readonly size?: undefined }
  /** `size` is in bytes. */
  | { readonly kind: "omitted"; readonly size: number };

function redactArguments(json: string, redaction: Redaction): LoggedArguments {
  const size = Buffer.byteLength(json);
  if (size > MAX_ARGUMENTS_SIZE || !isJson(json)) return { kind: "omitted", size };
  // In valid JSON, line breaks occur only between tokens, so replacing them changes no value.
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
  if (size > MAX_ERROR_SIZE) return {};
  const code: unknown = (value as { code?: unknown } | null | undefined)?.code;
  return typeof code === "number" ? { error: String(code) } : {};
}

function truncate<Name extends string | undefined>(name: Name): Name | string {
  if (name === undefined || name.length <= MAX_NAME_LENGTH) return name;
  return `${name.slice(0, MAX_NAME_LENGTH)}…`;
}
