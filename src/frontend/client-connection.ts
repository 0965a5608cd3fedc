import type { Buffer } from "node:buffer";
import { HubError, toHubError } from "../base/errors.ts";
import type { CancelledBy } from "../base/hub-events.ts";
import { Method } from "../protocol/legacy.ts";
import { type CancelReason, readCancelled } from "../protocol/notifications.ts";
import type { ServerSubset } from "../upstream/profile.ts";
import type { EncodedMessage, Message, Request, RequestId } from "../jsonrpc/message.ts";
import type { Responder, SentRequest, TransportEvents } from "../transport/transport.ts";
import {
  buildModernError,
  mayBeModernRequest,
  ModernRequestReader,
  type ModernResponder,
} from "./modern/request.ts";
import { IdMap } from "../base/in-flight-map.ts";
import { abandonedError, type LegacyClient } from "./legacy-client.ts";
import type { AcceptedClient } from "./clients.ts";
import type { ModernClients, ModernScope } from "./modern/clients.ts";

/** Interval of the checks for open requests after the end of the input, in ms. */
const IDLE_CHECK = 10;

/**
 * Receives the messages of one client's transport. The client may use both eras on it, because each request has its own
 * era. Handles modern requests, and passes all other messages to the legacy client.
 */
export class ClientConnection implements TransportEvents, AcceptedClient {
  readonly #legacy: LegacyClient;
  readonly #modernClients: ModernClients;
  readonly #requestReader = new ModernRequestReader();
  readonly #scope: ModernScope;
  /** Stops the checks for open requests after the end of the input. */
  #stopChecks: (() => void) | undefined;
  /** Responders of the modern requests in flight, by the key of the request's id. */
  readonly #responders = new IdMap<PipeResponder>();

  /** @param legacy receives all messages that are not of the modern era */
  constructor(
    legacy: LegacyClient,
    modernClients: ModernClients,
    subset: ServerSubset | undefined,
  ) {
    this.#legacy = legacy;
    this.#modernClients = modernClients;
    this.#scope = { subset };
  }

  get openRequests(): number {
    return this.#legacy.openCount + this.#responders.size - this.#modernClients.subscriptions;
  }

  message(message: Message, sentRequest?: SentRequest, responder?: Responder): void {
    if (message.kind === "request") {
      if (
        mayBeModernRequest(message) &&
        this.#handleModern(message, responder ?? this.#legacy.connectionResponder)
      )
        return;
    } else if (
      message.kind === "notification" &&
      this.#responders.size > 0 &&
      this.#cancel(message)
    ) {
      return;
    }
    this.#legacy.message(message, sentRequest, responder);
  }

  log(): void {}

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.#legacy.oversized(head, tail, size);
  }

  /** Stops the servers that no open request needs, and calls `idle` when all requests are answered. */
  inputEnded(idle: () => void): void {
    const { calls, subscriptions } = this.#modernClients;
    // A modern request that is no call, such as a list, may need any server.
    const others = this.#responders.size - subscriptions - calls.length;
    this.#legacy.onInputEnded(others > 0);
    const check = (): void => {
      if (this.#legacy.openCount + this.#responders.size > 0) return;
      clearInterval(timer);
      idle();
    };
    const timer = setInterval(check, IDLE_CHECK);
    timer.unref();
    this.#stopChecks = () => clearInterval(timer);
    check();
  }

  abandonRequests(): void {
    this.#stopChecks?.();
    this.#legacy.abandonRequests();
    const error = abandonedError();
    for (const responder of this.#responders.values()) responder.abandon(error);
  }

  pressure(full: boolean): void {
    this.#legacy.pressure(full);
  }

  closed(): void {
    this.#stopChecks?.();
    this.#modernClients.close();
    this.#legacy.closed();
  }

  /** Handles `request` if it is of the modern era. @returns whether it is */
  #handleModern(request: Request, responder: Responder): boolean {
    const { id } = request;
    const { key } = id;
    const isIdInUse = this.#responders.has(key);
    try {
      const modernRequest = this.#requestReader.read(request);
      if (modernRequest === undefined) return false;
      if (isIdInUse) {
        throw new HubError("invalidRequest", "A request with this id is still running.");
      }
      const pipeResponder = new PipeResponder(responder, this.#responders, id);
      this.#responders.set(key, pipeResponder);
      this.#modernClients.handle(modernRequest, pipeResponder, this.#scope);
    } catch (error) {
      if (!isIdInUse) this.#responders.remove(key);
      responder.respond(buildModernError(id, toHubError(error)));
    }
    return true;
  }

  /** Handles `notifications/cancelled` if it cancels a modern request in flight. @returns whether it does */
  #cancel(notification: Parameters<typeof readCancelled>[0]): boolean {
    const cancelled = notification.method === Method.cancelled && readCancelled(notification);
    const responder = cancelled ? this.#responders.get(cancelled.key) : undefined;
    if (!cancelled || responder === undefined) return false;
    responder.cancel({ notification, ids: cancelled.ids });
    return true;
  }
}

/** Responder of one modern request on a transport where all requests share one channel, such as stdio. */
class PipeResponder implements ModernResponder {
  readonly isPipe = true;
  readonly #responder: Responder;
  readonly #inFlight: IdMap<PipeResponder>;
  readonly #id: RequestId;
  #onCancel: (reason: CancelReason, by: CancelledBy) => void = () => {};

  /** @param inFlight responders of the requests in flight, by the key of the request's id */
  constructor(responder: Responder, inFlight: IdMap<PipeResponder>, id: RequestId) {
    this.#responder = responder;
    this.#inFlight = inFlight;
    this.#id = id;
  }

  notify(message: EncodedMessage): void {
    this.#responder.notify(message);
  }

  respond(message: EncodedMessage | undefined): void {
    this.#inFlight.remove(this.#id.key);
    this.#responder.respond(message);
  }

  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void {
    this.#onCancel = callback;
  }

  /** Cancels the request, and answers it with an error. */
  abandon(error: HubError): void {
    this.#cancelAs("The client has left.", "disconnect");
    this.#responder.respond(buildModernError(this.#id, error));
  }

  /** Cancels the request, as its client asked. */
  cancel(reason: CancelReason): void {
    this.#cancelAs(reason, "client");
  }

  #cancelAs(reason: CancelReason, by: CancelledBy): void {
    this.#inFlight.remove(this.#id.key);
    this.#onCancel(reason, by);
  }
}
