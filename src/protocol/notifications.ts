import { type ByteRange, type Edit, textOf, utf8 } from "../base/bytes.ts";
import { type JsonMember, lastMember, parseRange, readString, scanObject } from "../base/json.ts";
import {
  buildNotification,
  editMessage,
  type EncodedMessage,
  type Notification,
  readId,
  readOwnId,
  replaceRanges,
} from "../jsonrpc/message.ts";
import { Method } from "./legacy.ts";
import { isSeverity, type LogSeverity } from "./log-level.ts";
import { membersOfMeta } from "./modern.ts";

/** The longest text of a log message that is kept, in characters. */
const LONGEST = 2000;
/** What is longer than that is kept as it is spelled, in bytes. */
const LONG = 64 * 1024;

/** Which request a progress notification is about, and where its token stands; the last of several counts, as in parsers. */
export function readProgress(
  notification: Notification,
): { id: number; tokens: readonly ByteRange[] } | undefined {
  const tokens = membersOf(notification).filter((member) => member.key === "progressToken");
  const token = tokens.at(-1);
  const id = token && readOwnId(notification.bytes, token);
  return id === undefined ? undefined : { id, tokens };
}

/** Which request a notification of a cancel is about, by the key of its id, and where the id stands. */
export function readCancelled(
  notification: Notification,
): { key: string | number; ids: readonly ByteRange[] } | undefined {
  const ids = membersOf(notification).filter((member) => member.key === "requestId");
  const last = ids.at(-1);
  const id = last && readId(notification.bytes, last);
  return id && { key: id.key, ids };
}

/** Which resource is another, and where its URI stands. */
export function readResourceUpdated(
  notification: Notification,
): { uri: string; uris: readonly ByteRange[] } | undefined {
  const uris = membersOf(notification).filter((member) => member.key === "uri");
  const uri = readString(notification.bytes, uris.at(-1));
  return uri === undefined ? undefined : { uri, uris };
}

/** Which elicitation by URL is complete. */
export function readElicitationComplete(notification: Notification): string | undefined {
  return readString(notification.bytes, lastMember(membersOf(notification), "elicitationId"));
}

const NO_TOKENS: readonly JsonMember[] = [];

/** Every `progressToken` in every `_meta` of a request's params: all have to be replaced, so that none of them travels on. */
export function readProgressTokens(
  bytes: Uint8Array,
  members: readonly JsonMember[],
): readonly JsonMember[] {
  let tokens: JsonMember[] | undefined;
  for (const meta of members) {
    if (meta.key !== "_meta") continue;
    for (const member of membersOfMeta(bytes, meta)) {
      if (member.key === "progressToken") (tokens ??= []).push(member);
    }
  }
  return tokens ?? NO_TOKENS;
}

/** What a log message says, as text. */
export function readLogMessage(notification: Notification): string | undefined {
  const { bytes } = notification;
  const data = lastMember(membersOf(notification), "data");
  if (data === undefined) return undefined;
  const { start, end } = data;
  // Parsing what is long would hold up everybody else.
  if (end - start > LONG) return textOf(bytes, start, start + LONGEST);
  const text = readString(bytes, data) ?? JSON.stringify(parseRange(bytes, data));
  return text.slice(0, LONGEST);
}

/** A log message for clients, who see many servers' logs as one: its logger says which server's it is. Undefined if its level is none. */
export function prefixLogMessage(
  server: string,
  notification: Notification,
): { severity: LogSeverity; message: EncodedMessage } | undefined {
  const { bytes, params } = notification;
  const members = membersOf(notification);
  const severity = readString(bytes, lastMember(members, "level"));
  if (params === undefined || !isSeverity(severity)) return undefined;
  const name = JSON.stringify(server);
  const loggers = members.filter(({ key }) => key === "logger");
  const edits = loggers.map(({ start, end }): Edit => {
    const isText = bytes[start] === QUOTE;
    // What follows its first quote stays as it is.
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
const QUOTE = 0x22;

function membersOf({ bytes, params, members }: Notification): readonly JsonMember[] {
  return members ?? (params && scanObject(bytes, params.start)?.items) ?? [];
}

/** Why a request is given up: in the hub's words, or the client's own notification and the ranges of the id in it. */
export type CancelReason =
  string | { readonly notification: Notification; readonly ids: readonly ByteRange[] };

/** Says that the answer to a request is not wanted any more. */
export function buildCancelled(id: number | string, reason: CancelReason): EncodedMessage {
  return typeof reason === "string"
    ? buildNotification(Method.cancelled, { requestId: id, reason })
    : replaceRanges(reason.notification, reason.ids, JSON.stringify(id));
}
