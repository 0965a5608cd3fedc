import { pieceSize } from "../base/bytes.ts";
import { toHubError } from "../base/errors.ts";
import type { CancelledBy } from "../base/hub-events.ts";
import {
  type EncodedMessage,
  joinMessage,
  piecesOfMessage,
  type Request,
} from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import { failureOfResponse } from "../router/error-type.ts";
import type { PeerNetwork } from "../telemetry/request-attributes.ts";
import type { HttpOrigin, RequestSpan } from "../telemetry/request-span.ts";
import type { Responder } from "../transport/transport.ts";
import type { ClientTransport } from "./clients.ts";
import type { ModernResponder } from "./modern/request.ts";

/** What came with the requests of HTTP clients besides their messages, while requests are traced. */
export const httpOrigins = new WeakMap<Request, HttpOrigin>();

/** What came with a request of a client besides its message; undefined: nothing. */
export function httpOriginOf(request: Request, kind: ClientTransport): HttpOrigin | undefined {
  return kind === "http" ? httpOrigins.get(request) : undefined;
}

/** Answers up to this size are read for their errors and results, in bytes. */
const MAX_READ = 256 * 1024;

/** Responds to a client's request, and ends the request's span. */
export class TracedResponder implements Responder {
  readonly span: RequestSpan;
  readonly untraced: Responder;

  constructor(responder: Responder, span: RequestSpan) {
    this.untraced = responder;
    this.span = span;
  }

  notify(message: EncodedMessage): void {
    this.untraced.notify(message);
  }

  respond(message: EncodedMessage | undefined): void {
    endSpan(this.span, message);
    this.untraced.respond(message);
  }
}

/** The same for a request of the modern era. */
export class TracedModernResponder implements ModernResponder {
  readonly span: RequestSpan;
  readonly untraced: ModernResponder;

  constructor(responder: ModernResponder, span: RequestSpan) {
    this.untraced = responder;
    this.span = span;
  }

  get isPipe(): boolean {
    return this.untraced.isPipe;
  }

  notify(message: EncodedMessage): void {
    this.untraced.notify(message);
  }

  respond(message: EncodedMessage | undefined): void {
    endSpan(this.span, message);
    this.untraced.respond(message);
  }

  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void {
    this.untraced.onCancel((reason, by) => {
      callback(reason, by);
      // A request whose client has left is not answered.
      endSpan(this.span, undefined);
    });
  }
}

/** The span of the request that is responded to; undefined if it has none. */
export function spanOf(responder: Responder): RequestSpan | undefined {
  return responder instanceof TracedResponder || responder instanceof TracedModernResponder
    ? responder.span
    : undefined;
}

/** The responder without its span. */
export function untraced(responder: Responder): Responder {
  return responder instanceof TracedResponder || responder instanceof TracedModernResponder
    ? responder.untraced
    : responder;
}

/** Says in the span of a request with which error it is refused. */
export function failSpan(responder: Responder, thrown: unknown): void {
  const { code, message } = toHubError(thrown);
  spanOf(responder)?.setOutcome({ type: code, message });
}

/** How a client is connected, for spans. */
export function networkOf(kind: ClientTransport): PeerNetwork {
  return NETWORKS[kind];
}

const NETWORKS: Readonly<Record<ClientTransport, PeerNetwork>> = {
  stdio: { transport: "pipe" },
  shared: { transport: "unix" },
  http: { transport: "tcp", protocol: { name: "http", version: "1.1" } },
  memory: { transport: undefined },
  control: { transport: "unix" },
  nats: { transport: "tcp" },
};

/** Ends a span with the answer; undefined: the request was cancelled. */
function endSpan(span: RequestSpan, message: EncodedMessage | undefined): void {
  if (span.isOver) return;
  if (message === undefined) {
    span.setOutcome({ type: "cancelled", message: "The request was cancelled." });
  } else if (!span.hasOutcome || span.wantsResult) {
    readAnswer(span, message);
  }
  span.end();
}

function readAnswer(span: RequestSpan, message: EncodedMessage): void {
  const size = piecesOfMessage(message).reduce<number>((sum, piece) => sum + pieceSize(piece), 0);
  if (size > MAX_READ) return;
  const response = parseMessage(joinMessage(message));
  if (response.kind !== "response") return;
  span.setOutcome(failureOfResponse(response, span.isToolCall));
  if (response.outcome === "result") span.setResult(response.bytes, response.body);
}
