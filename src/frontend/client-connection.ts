import type { Buffer } from "node:buffer";
import { HubError, toHubError } from "../base/errors.ts";
import type { CancelledBy } from "../base/events.ts";
import { Method } from "../protocol/legacy.ts";
import { readCancelled } from "../protocol/notifications.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import type { ServerSubset } from "../upstream/scope.ts";
import type { Message, EncodedMessage, Request } from "../jsonrpc/message.ts";
import type { SentRequest, Responder, Transport, TransportEvents } from "../transport/transport.ts";
import { Letters, mayBeLetter } from "./modern/request.ts";
import { IdTable } from "../base/id-table.ts";
import type { Parties } from "./modern/clients.ts";
import { buildRefusal } from "./modern/refusal.ts";
import type { WayBack } from "./modern/wayback.ts";

/**
 * A client's transport, where both eras may be spoken: the era belongs to a request, not to the transport. Handles
 * modern requests, and passes everything else to the legacy client.
 */
export class Door implements TransportEvents {
  readonly #legacy: TransportEvents;
  readonly #parties: Parties;
  readonly #letters = new Letters();
  readonly #scope: ServerSubset | undefined;
  /** Responder for transports that have one channel for everything. */
  readonly #whole: Responder;
  /** Responders of the modern requests in flight, by the keys of the client's ids. */
  readonly #ways = new IdTable<PipeWay>();

  /** @param legacy gets everything that is not of the modern era */
  constructor(
    link: Transport,
    legacy: TransportEvents,
    parties: Parties,
    scope: ServerSubset | undefined,
  ) {
    this.#legacy = legacy;
    this.#parties = parties;
    this.#scope = scope;
    this.#whole = {
      notify: (message) => void link.send(message),
      respond: (message) => void (message === undefined || link.send(message)),
    };
  }

  frame(frame: Message, exchange?: SentRequest, inbound?: Responder): void {
    if (frame.kind === "request") {
      if (mayBeLetter(frame) && this.#take(frame, inbound ?? this.#whole)) return;
    } else if (frame.kind === "notification" && this.#ways.size > 0 && this.#cancel(frame)) {
      return;
    }
    this.#legacy.frame(frame, exchange, inbound);
  }

  log(...line: Parameters<TransportEvents["log"]>): void {
    this.#legacy.log(...line);
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.#legacy.oversized(head, tail, size);
  }

  pressure(full: boolean): void {
    this.#legacy.pressure(full);
  }

  closed(cause: HubError): void {
    this.#parties.close();
    this.#legacy.closed(cause);
  }

  /** @returns whether it is a request of the modern era */
  #take(request: Request, inbound: Responder): boolean {
    const { id } = request;
    const { key } = id;
    const isTaken = this.#ways.has(key);
    try {
      const letter = this.#letters.read(request);
      if (letter === undefined) return false;
      if (isTaken) {
        throw new HubError("invalidRequest", "A request with this id is still running.");
      }
      const way = new PipeWay(inbound, () => void this.#ways.remove(key));
      this.#ways.set(key, way);
      this.#parties.take(letter, way, this.#scope);
    } catch (error) {
      if (!isTaken) this.#ways.remove(key);
      inbound.respond(buildRefusal(id, toHubError(error)));
    }
    return true;
  }

  /** @returns whether it is `notifications/cancelled` for a modern request in flight */
  #cancel(notification: Parameters<typeof readCancelled>[0]): boolean {
    const cancelled = notification.method === Method.cancelled && readCancelled(notification);
    const way = cancelled ? this.#ways.get(cancelled.key) : undefined;
    if (!cancelled || way === undefined) return false;
    way.cancel({ notification, ids: cancelled.ids });
    return true;
  }
}

/** Responder of one request on a transport that has one channel for all. */
class PipeWay implements WayBack {
  readonly isPipe = true;
  readonly #inbound: Responder;
  readonly #over: () => void;
  #gone: (why: CancelReason, by: CancelledBy) => void = () => {};

  constructor(inbound: Responder, over: () => void) {
    this.#inbound = inbound;
    this.#over = over;
  }

  notify(message: EncodedMessage): void {
    this.#inbound.notify(message);
  }

  respond(message: EncodedMessage | undefined): void {
    this.#over();
    this.#inbound.respond(message);
  }

  whenGone(callback: (why: CancelReason, by: CancelledBy) => void): void {
    this.#gone = callback;
  }

  cancel(why: CancelReason): void {
    this.#over();
    this.#gone(why, "client");
  }
}
