import type { Clock } from "../../base/clock.ts";
import { type ErrorCode, toHubError } from "../../base/errors.ts";
import { IdMap } from "../../base/in-flight-map.ts";
import {
  type EncodedMessage,
  errorCodeOf,
  joinMessage,
  type Message,
} from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { ModernErrorCode, ModernMethod } from "../../protocol/modern.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import type { ModernRequestTarget } from "../modern/clients.ts";
import { buildModernError, ModernRequestReader } from "../modern/request.ts";
import { checkParamHeaders, checkRequestHeaders } from "../modern/request-headers.ts";
import { EventBuffer } from "./event-buffer.ts";
import { type AcceptedTypes, type PostReceiver, PostResponse } from "./post-response.ts";
import {
  acceptedResponse,
  errorResponse,
  messageResponse,
  shuttingDownResponse,
} from "./responses.ts";
import type { RequestScope } from "./session.ts";

/** Maximum number of modern HTTP requests in flight, of all clients. */
const MAX_IN_FLIGHT = 10_000;

export interface ModernHttpOptions {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  /** @param principal undefined for clients without a token, which cannot be told apart */
  createModernClients(principal: string | undefined): ModernRequestTarget;
}

/** Handles requests of the modern era over HTTP. There is no session: each request names its sender in `_meta`. */
export class ModernHttp implements PostReceiver {
  readonly deadlines: Deadlines;
  readonly #options: ModernHttpOptions;
  readonly #requestReader = new ModernRequestReader();
  readonly #responses = new IdMap<PostResponse>();
  /** Settles when no request is in flight; undefined if nobody waits for that. */
  #idle: PromiseWithResolvers<void> | undefined;
  /** Handlers of requests, by the name of the principal; undefined is the key for clients without a token. */
  readonly #clients = new Map<string | undefined, ModernRequestTarget>();

  constructor(options: ModernHttpOptions) {
    this.#options = options;
    this.deadlines = options.deadlines;
  }

  /** Handles the message of a POST. */
  receive(
    message: Message,
    { headers: requestHeaders, signal }: Request,
    accepts: AcceptedTypes,
    scope: RequestScope,
  ): Response | Promise<Response> {
    if (message.kind === "notification") return acceptedResponse();
    if (message.kind !== "request")
      return errorResponse(400, "A POST must contain exactly one request.");
    if (this.#responses.size >= MAX_IN_FLIGHT) {
      const headers = { "Retry-After": "1" };
      return errorResponse(503, "Too many requests are in progress.", { id: message.id, headers });
    }
    const principal = scope.principal?.name;
    let response: PostResponse | undefined;
    try {
      checkRequestHeaders(message, requestHeaders);
      const modernRequest = this.#requestReader.readModern(message);
      if (accepts === "json" && message.method === ModernMethod.listen) {
        return errorResponse(406, "subscriptions/listen is answered with text/event-stream.", {
          id: message.id,
        });
      }
      response = new PostResponse(this, accepts, signal);
      response.tableKey = this.#responses.add(response);
      response.owner = principal;
      this.#clientsOf(principal).handle(modernRequest, response, scope, (catalog) =>
        checkParamHeaders(modernRequest, requestHeaders, catalog),
      );
      return response.answer;
    } catch (thrown) {
      const error = toHubError(thrown);
      response?.respond(undefined);
      return messageResponse(
        buildModernError(message.id, error),
        ERROR_STATUSES[error.code] ?? 200,
      );
    }
  }

  #clientsOf(principal: string | undefined): ModernRequestTarget {
    let clients = this.#clients.get(principal);
    if (clients === undefined) {
      clients = this.#options.createModernClients(principal);
      this.#clients.set(principal, clients);
    }
    return clients;
  }

  /** Ends the requests of a principal, or, if it is undefined, those of clients without a token. */
  closeOf(principal: string | undefined): void {
    const clients = this.#clients.get(principal);
    if (clients === undefined) return;
    this.#clients.delete(principal);
    for (const response of this.#responses.values())
      if (response.owner === principal)
        response.cancel(errorResponse(401, "The token is not valid any more."));
    clients.close();
  }

  /** Ends the subscriptions, which would otherwise never end. */
  stop(): void {
    for (const clients of this.#clients.values()) clients.stop();
  }

  /** Settles when no request is in flight. */
  untilIdle(): Promise<void> {
    if (this.#responses.size === 0) return Promise.resolve();
    this.#idle ??= Promise.withResolvers<void>();
    return this.#idle.promise;
  }

  close(): void {
    // The requests are cancelled first, because closing the clients would end them without a response.
    for (const response of this.#responses.values()) response.cancel(shuttingDownResponse());
    for (const clients of this.#clients.values()) clients.close();
  }

  /** Opens the event stream of a response. When its reader disconnects, the request is cancelled. */
  openStream(response: PostResponse): EventBuffer {
    return new EventBuffer(undefined, this.#options.clock, () =>
      response.cancel(acceptedResponse()),
    );
  }

  /** Drops the message: a client that accepts only JSON gets nothing but the response. */
  sendSeparately(): void {}

  /** The HTTP status of a JSON response: 400 for the error codes that only the modern era has, else 200. */
  statusOf(message: EncodedMessage): number {
    const bytes = joinMessage(message);
    if (bytes.length > MAX_ERROR_LENGTH || !bytes.includes('"error"')) return 200;
    const parsed = parseMessage(bytes);
    if (parsed.kind !== "response" || parsed.outcome !== "error") return 200;
    return MODERN_ERROR_CODES.has(errorCodeOf(parsed)) ? 400 : 200;
  }

  onResponseEnd(response: PostResponse): void {
    this.#responses.remove(response.tableKey);
    if (this.#responses.size > 0) return;
    this.#idle?.resolve();
    this.#idle = undefined;
  }
}

/** Longest message that is searched for an error code, in bytes. */
const MAX_ERROR_LENGTH = 64 * 1024;
const MODERN_ERROR_CODES: ReadonlySet<unknown> = new Set(Object.values(ModernErrorCode));

/** HTTP statuses of errors found before a request is routed; all other errors have status 200. */
const ERROR_STATUSES: Partial<Record<ErrorCode, number>> = {
  methodNotFound: 404,
  invalidEnvelope: 400,
  headerMismatch: 400,
  missingCapability: 400,
  unsupportedVersion: 400,
};
