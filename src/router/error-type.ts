import { Buffer } from "node:buffer";
import { indexWithin, textOf } from "../base/bytes.ts";
import type { ErrorCode } from "../base/errors.ts";
import type { CancelledBy } from "../base/hub-events.ts";
import { lastMember, scanTopLevel } from "../base/json.ts";
import type { Response } from "../jsonrpc/message.ts";
import {
  failureOfError,
  type RequestFailure,
  UNKNOWN_ERROR,
} from "../telemetry/request-attributes.ts";
import type { CallEnd } from "./call.ts";
import type { EndedCall } from "./call-usage.ts";

/*
 * The kinds of errors by which metrics and spans tell how a request has ended: the code of an error response as text, `tool_error`
 * for a result with `isError`, or the code of the hub's own error.
 */

/** The kind of error of a result with `isError`. */
const TOOL_ERROR = "tool_error";

/** The kind of error with which a call has ended, for metrics; "": it has ended without one. */
export function errorTypeOf(end: CallEnd): string {
  if (end === "answered") return "";
  if ("by" in end) return errorTypeOfCancel(end.by);
  if ("cause" in end) return end.cause.code;
  return end.failed ? (end.rpcCode ?? TOOL_ERROR) || UNKNOWN_ERROR : "";
}

function errorTypeOfCancel(by: CancelledBy): ErrorCode {
  return by === "deadline" ? "callTimeout" : by === "shutdown" ? "serverStopped" : "cancelled";
}

/** The kind of error in the record of a call. It does not tell an error of the server from a result with `isError`. */
export function errorTypeOfRecord({ code, by, outcome }: EndedCall): string {
  return code ?? (by && errorTypeOfCancel(by)) ?? (outcome === "failed" ? TOOL_ERROR : "");
}

const IS_ERROR = "isError";
/** `isError` as bytes: searching for bytes is several times as fast as for a string, which would first be encoded. */
const IS_ERROR_BYTES = Buffer.from(IS_ERROR);
const TRUE_BYTES = Buffer.from("true");

/** The code of an error response, as text; "" if it is none. */
export function rpcCodeOf({ bytes, body }: Response): string {
  try {
    const { code } = JSON.parse(textOf(bytes.subarray(body.start, body.end))) as { code?: unknown };
    return typeof code === "number" ? String(code) : "";
  } catch {
    return "";
  }
}

/**
 * What kind of error a server's response is, for metrics: the JSON-RPC code, or `tool_error` for a result with `isError`;
 * "": it is none.
 * @param isTool whether it answers the call of a tool: only these have `isError`
 */
export function errorTypeOfResponse(response: Response, isTool: boolean): string {
  if (response.outcome === "error") return rpcCodeOf(response) || UNKNOWN_ERROR;
  return isTool && isFailure(response) ? TOOL_ERROR : "";
}

/**
 * How a response says that a request has failed, for a span.
 * @param isTool whether it answers the call of a tool
 * @returns undefined if it does not say so
 */
export function failureOfResponse(response: Response, isTool: boolean): RequestFailure | undefined {
  if (response.outcome === "error") return failureOfError(response);
  return isTool && isFailure(response) ? { type: TOOL_ERROR, message: "" } : undefined;
}

/** Whether a response is an error, or a result whose `isError` is true. */
export function isFailure({ outcome, bytes, body }: Response): boolean {
  if (outcome === "error") return true;
  // Most results do not contain `isError` at all, or only `"isError":false` near their end. These searches find that
  // out quickly.
  const at = indexWithin(bytes, IS_ERROR_BYTES, body.start, body.end);
  if (at === -1 || indexWithin(bytes, TRUE_BYTES, at, body.end) === -1) return false;
  const member = lastMember(scanTopLevel(bytes, body.start), IS_ERROR);
  return member !== undefined && textOf(bytes.subarray(member.start, member.end)) === "true";
}
