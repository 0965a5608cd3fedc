import { utf8 } from "../bytes.ts";
import { Method } from "../protocol/legacy.ts";
import { buildResult, type Notification, type Request } from "../wire/jsonrpc.ts";
import type { Link } from "../wire/link.ts";
import { Asks, type AsksParts } from "./asks.ts";
import { onlyOne } from "./audience.ts";
import { readLog } from "./notice.ts";

export interface VoiceParts extends Omit<AsksParts, "send"> {
  readonly link: Link;
  /** A line of the server's log. */
  log(text: string): void;
}

const EMPTY_RESULT = utf8("{}");
/** A server's own requests are not answered while it has not taken so many bytes. */
const MAX_UNREAD = 16 * 1024 * 1024;

/** What one server says of its own accord, and the clients whom it may concern. */
export class Voice {
  readonly #parts: VoiceParts;
  readonly #asks: Asks;

  constructor(parts: VoiceParts) {
    this.#parts = parts;
    this.#asks = new Asks({ ...parts, send: (message) => void parts.link.send(message) });
  }

  /** A request of its own. */
  asked(request: Request): void {
    const { link } = this.#parts;
    // Who goes on asking and reads no answer would have them pile up here without end.
    if (link.queued > MAX_UNREAD) return;
    if (request.method !== Method.ping) this.#asks.take(request);
    else link.send(buildResult(request.id.slice, EMPTY_RESULT));
  }

  /** A notification that is none of what the hub itself has asked for. */
  notified(notification: Notification): void {
    const { server, audience } = this.#parts;
    switch (notification.method) {
      case Method.cancelled:
        this.#asks.cancel(notification);
        return;
      case Method.elicited:
        onlyOne(audience)?.tell(server, notification.bytes);
        return;
      case Method.message: {
        const text = readLog(notification);
        if (text !== undefined) this.#parts.log(text);
      }
    }
  }

  /** The roots of a client are others: tells the server, if it may know of them. */
  rootsChanged({ bytes }: Notification): void {
    const { audience, link } = this.#parts;
    if (audience.capabilities.roots && onlyOne(audience)) link.send(bytes);
  }

  /** The last of the calls that it was at work for was given up. */
  abandon(): void {
    this.#asks.abandon();
  }

  /** The server is gone. */
  close(): void {
    this.#asks.close();
  }
}
