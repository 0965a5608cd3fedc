import { Buffer } from "node:buffer";
import { utf8 } from "../base/bytes.ts";
import { KIND_NOUNS, NO_ANNOTATIONS, readAnnotations } from "../catalog/listing.ts";
import type { Route } from "../catalog/section.ts";
import { ERROR_META_KEY, type ErrorCode, HubError, RETRY_META_KEY } from "../base/errors.ts";
import { count } from "../base/format.ts";
import { Method } from "../protocol/legacy.ts";
import type { Connection } from "../upstream/connection.ts";
import type { Caller } from "./call.ts";
import { buildError, buildResult, type EncodedMessage, type Request } from "../jsonrpc/message.ts";

/** The time limit that a request has exceeded. `waitReason`: why the request was not sent; undefined if it was. */
export interface MissedLimit {
  readonly isTotal: boolean;
  readonly seconds: number;
  readonly waitReason: string | undefined;
}

/** The text about a missed deadline for the model or user: what happened and what to do. */
export function timeoutMessage(
  route: Route,
  { isTotal, seconds, waitReason }: MissedLimit,
): string {
  const isTool = route.kind === "tools";
  const noun = KIND_NOUNS[route.kind].replace(/^./, (letter) => letter.toUpperCase());
  const subject = `${noun} "${route.remoteName}" of server "${route.server}"`;
  const limit = isTool ? "callTimeout, or tools.timeout for this tool" : "callTimeout";
  const key = isTotal ? "maxCallTimeout" : limit;
  const remedy = `or have the limit raised (${key}, in the settings of server "${route.server}").`;
  if (waitReason !== undefined) return `${subject} ${waitReason} Try again later, ${remedy}`;
  const time = count(seconds, "second");
  const within = isTotal ? `${time} in all` : time;
  const text = `${subject} did not finish within ${within} and was cancelled.`;
  if (!isTool) return `${text} Try again later, ${remedy}`;
  const { readOnly, idempotent } =
    route.item === undefined ? NO_ANNOTATIONS : readAnnotations(route.item);
  const effect = readOnly
    ? "It only reads, so it can safely be tried again."
    : idempotent
      ? "Whether it took effect is unknown, but repeating it does no further harm."
      : "Whether it took effect is unknown: check before it is repeated.";
  return `${text} ${effect} Try smaller steps, ${remedy}`;
}

/** Maximum size of the server's stderr in a result, in bytes of UTF-8. */
const MAX_STDERR_BYTES = 500;

/** Returns the end of a text, at most `size` bytes of UTF-8, without a broken character at its start. */
function lastBytesOf(text: string, size: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= size) return text;
  let start = bytes.length - size;
  while (((bytes[start] ?? 0) & 0b1100_0000) === 0b1000_0000) start++;
  return bytes.toString("utf8", start);
}

export function notReadyReason(seconds: number, { state }: Pick<Connection, "state">): string {
  if (state.at !== "authenticating") {
    return `was not called: the server was not ready within ${count(seconds, "second")}.`;
  }
  const { progress } = state;
  const page = progress.step === "openingBrowser" ? `: open ${progress.url}` : ".";
  return `was not called: the server needs an authorization, and nobody authorized it within ${count(seconds, "second")}${page}`;
}

/** The reason if a call has waited in the queue all the time. */
export function queuedReason(seconds: number): string {
  return `was not called: it waited for ${count(seconds, "second")} behind other calls (maxConcurrent).`;
}

/** Returns the error for a task request (such as `tasks/get`) that the server has not answered in time. */
export function deadlineError(call: {
  readonly route: Pick<Route, "server" | "limits">;
  readonly request: Pick<Request, "method">;
}): HubError {
  const { server, limits } = call.route;
  const text = `Server "${server}" did not answer ${call.request.method} within ${count(limits.timeout / 1000, "second")}.`;
  return new HubError(TIMEOUT, text, { server });
}

/** Returns the error for a tool or prompt that was removed while the request waited for its server. */
export function serverGoneError({ kind, name }: Route): HubError {
  const code = kind === "tools" ? "unknownTool" : "unknownPrompt";
  return new HubError(code, `There is no ${KIND_NOUNS[kind]} "${name}" any more.`);
}

const TIMEOUT: ErrorCode = "callTimeout";

/**
 * Builds the response to a request that missed its deadline. For a tool call it is a result, because models see results
 * and can act on them; for all others it is an error.
 */
export function deadlineAnswer(request: Request, text: string): EncodedMessage {
  return lostAnswer(request, new HubError(TIMEOUT, text));
}

/**
 * Whether an error of a call is answered by a result: a model, which sees results only, made the call through a tool of
 * the hub, and can act on it that the call was refused there or that there is no such tool.
 */
export function isResultFor({ via }: Pick<Caller, "via">, error: HubError): boolean {
  return (
    via !== undefined &&
    (error === via.refusal || ["unknownTool", "notAccepted"].includes(error.code))
  );
}

/**
 * Builds the response to a request whose answer was lost. For a tool call it is a result with the reason and the
 * server's last stderr lines, because clients do not show the data of an error to the model.
 */
export function lostAnswer({ id, method }: Request, error: HubError): EncodedMessage {
  return method === Method.toolsCall
    ? buildResult(id, refusedResult(error))
    : buildError(id, error.toRpc());
}

/** The result of a tool call that says why there is no other one, as JSON. */
export function refusedResult(error: HubError): Uint8Array {
  const stderr = lastBytesOf(error.stderr.join("\n"), MAX_STDERR_BYTES);
  const text = stderr === "" ? error.message : `${error.message} Its last stderr lines:\n${stderr}`;
  const content = [{ type: "text", text }];
  const retryAfter = error.data?.["retryAfterMs"];
  const _meta = {
    [ERROR_META_KEY]: error.code,
    ...(retryAfter !== undefined && { [RETRY_META_KEY]: retryAfter }),
  };
  return utf8(JSON.stringify({ content, isError: true, _meta }));
}
