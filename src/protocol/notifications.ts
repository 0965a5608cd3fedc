import { type ByteRange, type Edit, textOf, utf8 } from "../base/bytes.ts";
import { type JsonMember, type JsonObject, parseRange, QUOTE, readString } from "../base/json.ts";
import {
  buildNotification,
  editMessage,
  type EncodedMessage,
  type Notification,
  paramsOf,
  readId,
  readOwnId,
  replaceRanges,
} from "../jsonrpc/message.ts";
import { Method } from "./legacy.ts";
import { isSeverity, type LogSeverity } from "./log-level.ts";
import { membersOfMeta } from "./modern.ts";

/** Maximum length of the text of a log message, in UTF-16 units. */
const MAX_LOG_TEXT_LENGTH = 2000;
/** Maximum size of log data that is parsed, in bytes. Longer data is shown as truncated JSON text. */
const MAX_PARSED_SIZE = 64 * 1024;

/**
 * Reads which request a progress notification is about. `id`: the id of the hub's request, which the hub also uses as
 * its progress token; `tokens`: the ranges of all `progressToken` values, of which the last one counts, as for
 * JSON.parse.
 */
export function readProgress(
  notification: Notification,
): { id: number; tokens: readonly ByteRange[] } | undefined {
  const tokens = paramsOf(notification).all("progressToken");
  const token = tokens.at(-1);
  const id = token && readOwnId(notification.bytes, token);
  return id === undefined ? undefined : { id, tokens };
}

/**
 * Reads which request a `notifications/cancelled` is about. `key`: the `key` of its `RequestId`; `ids`: the byte ranges
 * of the values of all `requestId` members.
 */
export function readCancelled(
  notification: Notification,
): { key: string | number; ids: readonly ByteRange[] } | undefined {
  const ids = paramsOf(notification).all("requestId");
  const last = ids.at(-1);
  const id = last && readId(notification.bytes, last);
  return id && { key: id.key, ids };
}

/** Reads the URI of a changed resource. `uris`: the byte ranges of the values of all `uri` members. */
export function readResourceUpdated(
  notification: Notification,
): { uri: string; uris: readonly ByteRange[] } | undefined {
  const params = paramsOf(notification);
  const uri = params.string("uri");
  return uri === undefined ? undefined : { uri, uris: params.all("uri") };
}

const NO_TOKENS: readonly JsonMember[] = [];

/**
 * The ranges of every `progressToken` in every `_meta` of a request's params: all are replaced, so that no client token
 * reaches the server.
 */
export function readProgressTokens(params: JsonObject): readonly JsonMember[] {
  let tokens: JsonMember[] | undefined;
  for (const meta of params.members) {
    if (meta.key !== "_meta") continue;
    for (const member of membersOfMeta(params.bytes, meta)) {
      if (member.key === "progressToken") (tokens ??= []).push(member);
    }
  }
  return tokens ?? NO_TOKENS;
}

/** The data of a log message, as text. */
export function readLogMessage(notification: Notification): string | undefined {
  const { bytes } = notification;
  const data = paramsOf(notification).member("data");
  if (data === undefined) return undefined;
  const { start, end } = data;
  // Parsing long data would block the event loop.
  if (end - start > MAX_PARSED_SIZE) return textOf(bytes, start, start + MAX_LOG_TEXT_LENGTH);
  const text = readString(bytes, data) ?? JSON.stringify(parseRange(bytes, data));
  return text.slice(0, MAX_LOG_TEXT_LENGTH);
}

/** A log message for clients. */
export interface LogLine {
  readonly severity: LogSeverity;
  readonly message: EncodedMessage;
}

/**
 * Puts the server's name before the `logger` of a log message, because clients get the log messages of all servers.
 * @returns undefined if the level is invalid
 */
export function prefixLogMessage(server: string, notification: Notification): LogLine | undefined {
  const { bytes, params } = notification;
  const object = paramsOf(notification);
  const severity = object.string("level");
  if (params === undefined || !isSeverity(severity)) return undefined;
  const name = JSON.stringify(server);
  const loggers = object.all("logger");
  const edits = loggers.map(({ start, end }): Edit => {
    const isText = bytes[start] === QUOTE;
    // Only the opening quote is replaced; the rest of the text keeps its bytes.
    return isText
      ? { start, end: start + 1, replacement: utf8(`${name.slice(0, -1)}/`) }
      : { start, end, replacement: utf8(name) };
  });
  const first = {
    start: params.start + 1,
    end: params.start + 1,
    replacement: utf8(`"logger":${name},`),
  };
  return { severity, message: editMessage(notification, loggers.length > 0 ? edits : [first]) };
}

/**
 * The reason for a cancellation: a text of the hub, or the client's notification with the ranges of the id in it.
 */
export type CancelReason =
  string | { readonly notification: Notification; readonly ids: readonly ByteRange[] };

/** Builds `notifications/cancelled`. */
export function buildCancelled(id: number | string, reason: CancelReason): EncodedMessage {
  return typeof reason === "string"
    ? buildNotification(Method.cancelled, { requestId: id, reason })
    : replaceRanges(reason.notification, reason.ids, JSON.stringify(id));
}
