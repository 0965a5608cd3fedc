import type { Range } from "../base/bytes.ts";
import { Method } from "./legacy.ts";
import {
  buildNotification,
  type EncodedMessage,
  type Notification,
  substitute,
} from "../jsonrpc/message.ts";

/** Why a request is given up: in the hub's words, or the client's own notification and the ranges of the id in it. */
export type Withdrawal =
  string | { readonly notification: Notification; readonly ids: readonly Range[] };

/** Says that the answer to a request is not wanted any more. */
export function buildWithdrawal(id: number | string, why: Withdrawal): EncodedMessage {
  return typeof why === "string"
    ? buildNotification(Method.cancelled, { requestId: id, reason: why })
    : substitute(why.notification, why.ids, JSON.stringify(id));
}
