import { IdTable } from "../../base/id-table.ts";
import type { Clock } from "../../base/clock.ts";
import { type ErrorCode, toHubError } from "../../base/errors.ts";
import { ModernMethod } from "../../protocol/modern.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import type { ServerSubset } from "../../upstream/scope.ts";
import type { Message } from "../../jsonrpc/message.ts";
import { ModernRequestReader } from "../modern/request.ts";
import type { ModernRequestTarget } from "../modern/clients.ts";
import { buildModernError } from "../modern/refusal.ts";
import { ModernPostResponse } from "./counter.ts";
import { checkParamHeaders, checkRequestHeaders } from "./mirror.ts";
import { acceptedAnswer, messageAnswer, type HttpAnswer } from "./http1/answer.ts";
import { errorAnswer } from "./errors.ts";
import type { HttpServerRequest } from "./http1/messages.ts";
import type { AcceptedTypes } from "./post-response.ts";

/** Maximum number of requests in flight. */
const MAX_IN_FLIGHT = 10_000;

export interface ModernHttpOptions {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  createModernClients(): ModernRequestTarget;
}

/** Requests of the modern era over HTTP: each carries its own envelope, there is no session. */
export class ModernHttp {
  readonly #options: ModernHttpOptions;
  readonly #requestReader = new ModernRequestReader();
  readonly #responses = new IdTable<ModernPostResponse>();
  /** Resolved when no request is in flight. */
  readonly #idleWaiters = new Set<() => void>();
  #clients: ModernRequestTarget | undefined;

  constructor(options: ModernHttpOptions) {
    this.#options = options;
  }

  /** Handles the message of a POST. */
  receive(
    message: Message,
    request: HttpServerRequest,
    accepts: AcceptedTypes,
    subset: ServerSubset,
  ): HttpAnswer | Promise<HttpAnswer> {
    if (message.kind === "notification") return acceptedAnswer();
    if (message.kind !== "request") return errorAnswer(400, "A POST is one request here.");
    if (this.#responses.size >= MAX_IN_FLIGHT) {
      const headers = { "Retry-After": "1" };
      return errorAnswer(503, "Too many requests run.", { id: message.id, headers });
    }
    let response: ModernPostResponse | undefined;
    try {
      const { headers } = request.head;
      checkRequestHeaders(message, headers);
      const modernRequest = this.#requestReader.readModern(message);
      if (accepts === "json" && message.method === ModernMethod.listen) {
        return errorAnswer(406, "What is listened to comes as text/event-stream.", {
          id: message.id,
        });
      }
      response = this.#createResponse(request, accepts);
      this.#clients ??= this.#options.createModernClients();
      this.#clients.handle(modernRequest, response, subset, (catalog) =>
        checkParamHeaders(modernRequest, headers, catalog),
      );
      return response.answer;
    } catch (thrown) {
      const error = toHubError(thrown);
      response?.respond(undefined);
      return messageAnswer(buildModernError(message.id, error), ERROR_STATUSES[error.code] ?? 200);
    }
  }

  /** Ends the subscriptions, which would last for ever. */
  stop(): void {
    this.#clients?.stop();
  }

  /** Settles when no request is in flight. */
  untilIdle(): Promise<void> {
    return new Promise((resolve) => {
      this.#idleWaiters.add(resolve);
      this.#resolveIdle();
    });
  }

  close(): void {
    this.#clients?.close();
  }

  #createResponse(request: HttpServerRequest, accepts: AcceptedTypes): ModernPostResponse {
    const response = new ModernPostResponse(request, {
      accepts,
      clock: this.#options.clock,
      deadlines: this.#options.deadlines,
      onEnd: () => {
        this.#responses.remove(key);
        this.#resolveIdle();
      },
    });
    const key = this.#responses.add(response);
    return response;
  }

  #resolveIdle(): void {
    if (this.#responses.size > 0) return;
    for (const resolve of this.#idleWaiters) resolve();
    this.#idleWaiters.clear();
  }
}

/** Statuses of errors found before a request is routed; the others are 200. */
const ERROR_STATUSES: Partial<Record<ErrorCode, number>> = {
  methodNotFound: 404,
  invalidEnvelope: 400,
  headerMismatch: 400,
  missingCapability: 400,
  unsupportedVersion: 400,
};
