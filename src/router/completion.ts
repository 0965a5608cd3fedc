import { utf8 } from "../bytes.ts";
import type { Session } from "../upstream/session.ts";
import { buildResult } from "../wire/jsonrpc.ts";
import { RelayedCall } from "./relayed.ts";

/** Clients are told that there are completions; of a server that has none there are none. */
const NOTHING = utf8('{"completion":{"values":[]}}');

/** A request for completions. */
export class Completion extends RelayedCall {
  override enter(session: Session): void {
    if (session.can("completions")) super.enter(session);
    else this.finish(buildResult(this.parts.request.id, NOTHING), "answered");
  }
}
