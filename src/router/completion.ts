import { utf8 } from "../base/bytes.ts";
import type { Session } from "../upstream/session.ts";
import { buildResult } from "../jsonrpc/message.ts";
import { RelayedCall } from "./upstream-request.ts";

/** The hub declares `completions`; for a server that does not, the result is empty. */
const NOTHING = utf8('{"completion":{"values":[]}}');

/** A `completion/complete` request. */
export class Completion extends RelayedCall {
  override enter(session: Session): void {
    if (session.can("completions")) super.enter(session);
    else this.finish(buildResult(this.parts.request.id, NOTHING), "answered");
  }
}
