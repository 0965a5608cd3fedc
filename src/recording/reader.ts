import { Buffer, isUtf8 } from "node:buffer";
import { bufferOf } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { JsonObject, scanObject, skipWhitespace } from "../base/json.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { replaceInvalidUtf8 } from "../jsonrpc/utf8.ts";
import type { Message } from "../jsonrpc/message.ts";
import type { Direction, Placeholder } from "./format.ts";

/** One line about the transport of a server. */
export type RecordedLine = {
  /** Line number in the file, from 1. */
  readonly line: number;
  /** ms since the recording began. */
  readonly t: number;
  readonly server: string;
  readonly run: number;
} & (
  | {
      readonly kind: "message";
      readonly direction: Direction;
      readonly message: Message;
      /** The id of the request on whose response stream the message came, if the transport could tell. */
      readonly streamRequestId: string | number | undefined;
    }
  | {
      readonly kind: "placeholder";
      readonly direction: Direction;
      readonly placeholder: Partial<Placeholder>;
    }
  /** The request was abandoned. */
  | { readonly kind: "abandoned"; readonly id: string | number | undefined }
  | { readonly kind: "lost"; readonly id: string | number | undefined; readonly cause: string }
  | { readonly kind: "closed"; readonly by: string; readonly cause: string }
);

/** The content of a recording. */
export interface Recording {
  /** The last manifest in the recording, as parsed JSON. */
  readonly manifest: unknown;
  readonly lines: readonly RecordedLine[];
  /** Notes about what is missing in the recording, as full sentences. */
  readonly notes: readonly string[];
}

const LF = 0x0a;
const MAX_RUNS = 1_000_000;

/**
 * Parses a recording. An incomplete last line, as after a crash, is ignored.
 * @param name the file's name for error messages
 * @throws {HubError} usage if it is not a recording; the message names the invalid line
 */
export function readRecording(bytes: Buffer, name: string): Recording {
  const lines: RecordedLine[] = [];
  const notes: string[] = [];
  let manifest: unknown;
  let isEnded = false;
  let line = 0;
  for (let start = 0; start < bytes.length;) {
    const end = bytes.indexOf(LF, start);
    if (end < 0) break;
    line++;
    const text = bytes.subarray(start, end);
    start = end + 1;
    const scanned = scanObject(text, skipWhitespace(text, 0));
    if (scanned === undefined || skipWhitespace(text, scanned.end) !== text.length) {
      if (line === 1) throw notRecordingError(name);
      throw invalidLineError(name, line, "it is no JSON object");
    }
    const object = new JsonObject(text, scanned.items);
    if (line === 1) {
      checkHeader(object, name);
      continue;
    }
    manifest = object.value("manifest") ?? manifest;
    const event = object.string("event");
    isEnded = event === "end" || event === "full";
    if (event === "missing")
      notes.push(
        `Line ${line}: messages are missing here: they came faster than they could be written.`,
      );
    if (event === "full") notes.push("It ends at its size limit.");
    const recordedLine = readLine(object, line, name);
    if (recordedLine !== undefined) lines.push(recordedLine);
  }
  if (line === 0) throw notRecordingError(name);
  if (!isEnded) notes.push("It has no end: its hub was killed, or still runs.");
  return { manifest, lines, notes };
}

function checkHeader(header: JsonObject, name: string): void {
  const format = header.value("recording");
  if (format === undefined) throw notRecordingError(name);
  if (format === 1) return;
  const what = JSON.stringify(format).slice(0, 40);
  throw new HubError("usage", `${name} is a recording in a form that is not known here: ${what}.`);
}

/** Reads one line of a recording. @returns undefined if it is not about a server, or irrelevant for a replay */
function readLine(object: JsonObject, line: number, name: string): RecordedLine | undefined {
  const server = object.string("server");
  if (server === undefined) return undefined;
  const t = numberAt(object, "t");
  const run = numberAt(object, "run");
  if (t === undefined || run === undefined || !Number.isInteger(run) || run > MAX_RUNS) {
    throw invalidLineError(name, line, "it has no valid time or run number");
  }
  const base = { line, t, server, run };
  const event = object.string("event");
  const cause = object.string("cause") ?? "";
  const id = idAt(object, "id");
  if (event === "closed") {
    return { ...base, kind: "closed", by: object.string("by") ?? "peer", cause };
  }
  if (event === "abandoned") return { ...base, kind: "abandoned", id };
  if (event === "lost") return { ...base, kind: "lost", id, cause };
  if (event === "oversized")
    return { ...base, kind: "placeholder", direction: "received", placeholder: { id } };
  if (event !== undefined) return undefined;
  const direction = object.string("way");
  if (direction !== "sent" && direction !== "received")
    throw invalidLineError(name, line, "it has no way");
  if (object.member("cut") !== undefined) {
    const placeholder = { id: idAt(object.object("cut"), "id") };
    return { ...base, kind: "placeholder", direction, placeholder };
  }
  const message = object.member("message");
  const streamRequestId = idAt(object, "on");
  if (message !== undefined) {
    const bytes = bufferOf({ bytes: object.bytes, start: message.start, end: message.end });
    // Older versions recorded servers' bytes without checking for UTF-8.
    const parsed = parseMessage(isUtf8(bytes) ? bytes : replaceInvalidUtf8(bytes));
    if (parsed.kind === "invalid") throw invalidLineError(name, line, parsed.reason);
    return { ...base, kind: "message", direction, message: parsed, streamRequestId };
  }
  const invalidText = object.string("text");
  if (invalidText === undefined) throw invalidLineError(name, line, "it has no message");
  const parsed = parseMessage(Buffer.from(invalidText));
  return parsed.kind === "invalid"
    ? undefined
    : { ...base, kind: "message", direction, message: parsed, streamRequestId };
}

function numberAt(object: JsonObject, key: string): number | undefined {
  const value = shortValueAt(object, key);
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
}

function idAt(object: JsonObject, key: string): string | number | undefined {
  const value = shortValueAt(object, key);
  return typeof value === "string" || typeof value === "number" ? value : undefined;
}

/** Maximum size of an id or a number, in bytes; longer values are ignored. */
const MAX_VALUE_SIZE = 1024;

function shortValueAt(object: JsonObject, key: string): unknown {
  const member = object.member(key);
  const isLong = member !== undefined && member.end - member.start > MAX_VALUE_SIZE;
  return isLong ? undefined : object.value(key);
}

function notRecordingError(name: string): HubError {
  return new HubError("usage", `${name} is no recording of toolmux.`);
}

function invalidLineError(name: string, line: number, reason: string): HubError {
  return new HubError("usage", `${name}, line ${line}: ${reason}.`);
}
