import type { ByteRange } from "../base/bytes.ts";
import { Method } from "./legacy.ts";
import {
  buildNotification,
  type EncodedMessage,
  type Notification,
  replaceRanges,
} from "../jsonrpc/message.ts";

/** Why a request is given up: in the hub's words, or the client's own notification and the ranges of the id in it. */
export type CancelReason =
  string | { readonly notification: Notification; readonly ids: readonly ByteRange[] };

/** Says that the answer to a request is not wanted any more. */
export function buildCancelled(id: number | string, why: CancelReason): EncodedMessage {
  return typeof why === "string"
    ? buildNotification(Method.cancelled, { requestId: id, reason: why })
    : replaceRanges(why.notification, why.ids, JSON.stringify(id));
}
