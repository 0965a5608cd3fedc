import { utf8 } from "../base/bytes.ts";
import type { Session } from "../upstream/session.ts";
import { buildResult } from "../jsonrpc/message.ts";
import { UpstreamRequest } from "./upstream-request.ts";

/** The hub declares `completions`; for a server that does not, the result is empty. */
const EMPTY_COMPLETION = utf8('{"completion":{"values":[]}}');

/** A `completion/complete` request. */
export class CompletionRequest extends UpstreamRequest {
  override onSession(session: Session): void {
    if (session.can("completions")) super.onSession(session);
    else this.finish(buildResult(this.context.request.id, EMPTY_COMPLETION), "answered");
  }
}
