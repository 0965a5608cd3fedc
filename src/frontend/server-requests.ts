import { HubError } from "../base/errors.ts";
import { skipValue } from "../base/json.ts";
import type { ServerRequestTarget, ServerRequest } from "../upstream/profile.ts";
import { buildCancelled, type CancelReason, readProgress } from "../protocol/notifications.ts";
import { parseTruncated } from "../jsonrpc/parse.ts";
import {
  buildRequestWithParams,
  bytesOf,
  type EncodedMessage,
  formatOwnId,
  type InvalidMessage,
  type Notification,
  readOwnId,
  type RequestId,
  type Response,
} from "../jsonrpc/message.ts";
import type { Responder } from "../transport/transport.ts";
import type { LegacyClient } from "./legacy-client.ts";

/** Number of bytes at either end of an invalid message that are searched for its kind and id. */
const EDGE_LENGTH = 4096;

/**
 * A random number of 48 bits, at which the requests to a client begin that may come back to another hub: its late answer
 * to a request of the hub before does not count as the answer to one of this hub.
 */
export function randomNumber(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  return (high & 0xffff) * 2 ** 32 + low;
}

interface OpenRequest {
  readonly request: ServerRequest;
  readonly responder: Pick<Responder, "notify"> | undefined;
}

/**
 * The requests of servers that are in flight to one legacy client. They get ids of the hub, which never equal an id of
 * the client.
 */
export class DownstreamRequests implements ServerRequestTarget {
  readonly #client: LegacyClient;
  readonly #openRequests = new Map<number, OpenRequest>();
  /** The number of the latest request. */
  #number: number;
  /** `initializing`: requests are held back until `notifications/initialized` (MCP, lifecycle, initialization). */
  #state: "initializing" | "ready" | "closed" = "initializing";
  readonly #unsent = new Set<number>();

  /** @param before the number before that of the first request */
  constructor(client: LegacyClient, before: number) {
    this.#client = client;
    this.#number = before;
  }

  /** Called when the client can receive requests. Sends those that were held back; later ones are sent at once. */
  ready(): void {
    if (this.#state !== "initializing") return;
    this.#state = "ready";
    for (const number of this.#unsent) this.#sendRequest(number);
    this.#unsent.clear();
  }

  /**
   * @param responder responder of the client's request that the server's request belongs to; undefined if it belongs to
   * none
   */
  sendServerRequest(
    request: ServerRequest,
    responder?: Pick<Responder, "notify">,
  ): (reason: CancelReason) => void {
    if (this.#state === "closed") {
      request.fail(disconnectedError());
      return () => {};
    }
    const number = ++this.#number;
    this.#openRequests.set(number, { request, responder });
    if (this.#state === "ready") this.#sendRequest(number);
    else this.#unsent.add(number);
    return (reason) => this.#cancel(number, reason);
  }

  /** Called when the client has answered a server's request. */
  onResponse({ id, bytes, outcome, body }: Response): void {
    const request = id === undefined ? undefined : this.#remove(id)?.request;
    if (request === undefined) return;
    // Responses of common shapes were parsed without reading their body. The body is checked here, because a malformed
    // body must not reach a server.
    if (skipValue(bytes, body.start) === body.end) {
      request.answer(outcome, bytes.subarray(body.start, body.end));
    } else {
      request.fail(malformedAnswerError());
    }
  }

  /** Called for an invalid message of the client. If it was meant as a response, the server's request fails. */
  onInvalid(invalid: InvalidMessage): void {
    const { parsed } = invalid;
    if (parsed !== undefined) {
      const isOurs = parsed.kind === "response" && parsed.id !== undefined;
      if (isOurs) this.#remove(parsed.id)?.request.fail(malformedAnswerError());
      return;
    }
    const bytes = bytesOf(invalid);
    const truncated = parseTruncated(bytes.subarray(0, EDGE_LENGTH), bytes.subarray(-EDGE_LENGTH));
    if (truncated?.kind === "response") this.fail(truncated.id, malformedAnswerError());
  }

  /** Fails the server's request with this id, because the client's answer cannot be forwarded. */
  fail(id: RequestId, error: HubError): void {
    const number = readOwnId(id.bytes, id);
    if (number !== undefined) this.#remove(number)?.request.fail(error);
  }

  onProgress(notification: Notification): void {
    const progress = readProgress(notification);
    if (progress === undefined) return;
    this.#openRequests.get(progress.id)?.request.progress(notification, progress.tokens);
  }

  /** Fails all requests, because the client has disconnected. */
  close(): void {
    this.#state = "closed";
    const openRequests = [...this.#openRequests.values()];
    this.#openRequests.clear();
    for (const { request } of openRequests) request.fail(disconnectedError());
  }

  #sendRequest(number: number): void {
    const openRequest = this.#openRequests.get(number);
    if (openRequest === undefined) return;
    const { request } = openRequest;
    const id = `"${formatOwnId(number)}"`;
    this.#sendMessage(openRequest, buildRequestWithParams(id, request.method, request.params(id)));
  }

  #sendMessage({ request, responder }: OpenRequest, message: EncodedMessage): void {
    if (responder === undefined) this.#client.notify(request.server, message);
    else responder.notify(message);
  }

  #remove(number: number): OpenRequest | undefined {
    const openRequest = this.#openRequests.get(number);
    this.#openRequests.delete(number);
    return openRequest;
  }

  #cancel(number: number, reason: CancelReason): void {
    const openRequest = this.#remove(number);
    // A request that was never sent needs no cancellation.
    if (openRequest === undefined || this.#unsent.delete(number)) return;
    this.#sendMessage(openRequest, buildCancelled(formatOwnId(number), reason));
  }
}

function malformedAnswerError(): HubError {
  return new HubError("internal", "The client's answer was malformed.");
}

function disconnectedError(): HubError {
  return new HubError("notAsked", "The client has left.");
}
