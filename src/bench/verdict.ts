import { Buffer } from "node:buffer";
import { textOf } from "../base/bytes.ts";
import type { HubError } from "../base/errors.ts";
import { lastMember, scanObject, parseRange } from "../base/json.ts";
import { mayBeIncomplete, readResultType } from "../protocol/modern.ts";
import { membersOf } from "../upstream/handshake.ts";
import { type Response, bytesOf } from "../jsonrpc/message.ts";

/** Why a call counts as failed, in few words, and what was said of it. */
export interface CallFailure {
  readonly kind: string;
  readonly example: string;
}

/** So much of what was said is repeated, in UTF-16 units. */
const MAX_MESSAGE_LENGTH = 300;
/** What the protocol calls its codes. */
const NAMES: Readonly<Record<number, string>> = {
  [-32700]: "parse error",
  [-32600]: "invalid request",
  [-32601]: "method not found",
  [-32602]: "invalid params",
  [-32603]: "internal error",
};

/** What is wrong with an answer; undefined: it is a result, as it should be. */
export function failureOf(response: Response): CallFailure | undefined {
  if (response.outcome === "error") return readError(response);
  return mayBeFailed(bytesOf(response)) ? readResult(response) : undefined;
}

const SIGN = Buffer.from('"isError"');
const NO = Buffer.from(":false");
const NO_AFTER_SPACE = Buffer.from(": false");

/** Most results say nothing of it, or that they are none: to find that out costs a search, or two. */
function mayBeFailed(bytes: Buffer): boolean {
  const at = bytes.indexOf(SIGN);
  if (at < 0) return mayBeIncomplete(bytes);
  const after = at + SIGN.length;
  const isDenied = [NO, NO_AFTER_SPACE].some(
    (no) => bytes.compare(no, 0, no.length, after, after + no.length) === 0,
  );
  return !isDenied || bytes.includes(SIGN, after) || mayBeIncomplete(bytes);
}

function readResult({ bytes, body }: Response): CallFailure | undefined {
  const members = scanObject(bytes, body.start)?.items ?? [];
  const type = readResultType(bytes, members);
  if (type !== "complete") return { kind: `not complete: ${type}`, example: excerpt(bytes, body) };
  const said = lastMember(members, "isError");
  if (said === undefined || parseRange(bytes, said) !== true) return undefined;
  const content = lastMember(members, "content");
  return { kind: "tool error", example: firstText(content && parseRange(bytes, content)) };
}

function readError({ bytes, body }: Response): CallFailure {
  let error: Readonly<Record<string, unknown>> = {};
  try {
    error = membersOf(parseRange(bytes, body));
  } catch {
    return { kind: "malformed error", example: excerpt(bytes, body) };
  }
  const own = membersOf(error["data"])["code"];
  const code = Number(error["code"]);
  const name = typeof own === "string" ? own : (NAMES[code] ?? "");
  return {
    kind: `error ${code} ${name}`.trim(),
    example: shorten(String(error["message"])),
  };
}

/** What a call counts as that was never answered. */
export function failureOfLoss({ code, message }: HubError): CallFailure {
  return { kind: code === "connectionLost" ? "connection lost" : code, example: shorten(message) };
}

function firstText(content: unknown): string {
  const texts = Array.isArray(content) ? content.map((part) => membersOf(part)["text"]) : [];
  return shorten(texts.find((text) => typeof text === "string") ?? "");
}

function excerpt(bytes: Buffer, { start, end }: Response["body"]): string {
  return shorten(textOf(bytes, start, Math.min(end, start + MAX_MESSAGE_LENGTH)));
}

function shorten(text: string): string {
  return text.length > MAX_MESSAGE_LENGTH ? `${text.slice(0, MAX_MESSAGE_LENGTH)}…` : text;
}
