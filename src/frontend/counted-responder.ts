import { pieceSize } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import type { CancelledBy } from "../base/hub-events.ts";
import { bodyOf, type EncodedMessage, joinMessage, piecesOfMessage } from "../jsonrpc/message.ts";
import type { HubToolName } from "../catalog/search/hub-tools.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { Call } from "../router/call.ts";
import { errorTypeOfResponse } from "../router/error-type.ts";
import { type Durations, OTHER } from "../telemetry/metrics.ts";
import type { Responder } from "../transport/transport.ts";
import type { ModernResponder } from "./modern/request.ts";
import { untraced } from "./traced-responder.ts";

/** The client whose requests are counted. */
export interface CountedClient {
  /** The client's name in the manifest, else the one that it has sent; "" if there is none. */
  readonly label: string;
  readonly clock: Clock;
}

/** What becomes of a request. */
interface RequestOwner {
  /** The call that the request has become: the metrics of calls have it. */
  readonly call: Call | undefined;
}

/** Longer answers are not read for their errors, in bytes: errors are short. */
const MAX_READ = 16 * 1024;

/** Responds to a client's request, and counts it, unless it has become a call. */
export class CountedResponder implements Responder {
  readonly uncounted: Responder;
  /** The tool of the hub itself that the request calls. */
  tool = "";
  owner: RequestOwner | undefined;
  readonly #durations: Durations;
  readonly #method: string;
  readonly #client: CountedClient;
  readonly #startedAt: number;

  constructor(durations: Durations, method: string, client: CountedClient, responder: Responder) {
    this.uncounted = responder;
    this.#durations = durations;
    this.#method = method;
    this.#client = client;
    this.#startedAt = client.clock.now();
  }

  notify(message: EncodedMessage): void {
    this.uncounted.notify(message);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.owner?.call === undefined)
      this.count(message === undefined ? "cancelled" : errorTypeOf(message));
    this.uncounted.respond(message);
  }

  /** Counts the request, which somebody else has answered or nobody will. @param errorType the kind of its error */
  count(errorType: string): void {
    const { label, clock } = this.#client;
    const ms = clock.now() - this.#startedAt;
    // Clients may send any names of methods that there are not.
    const method = errorType === "methodNotFound" ? OTHER : this.#method;
    this.#durations.observeOperation(method, this.tool, "", label, errorType, ms);
  }
}

/** The same for a request of the modern era. */
export class CountedModernResponder extends CountedResponder implements ModernResponder {
  readonly #responder: ModernResponder;

  constructor(
    durations: Durations,
    method: string,
    client: CountedClient,
    responder: ModernResponder,
  ) {
    super(durations, method, client, responder);
    this.#responder = responder;
  }

  get isPipe(): boolean {
    return this.#responder.isPipe;
  }

  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void {
    this.#responder.onCancel(callback);
  }
}

/** Says what has become of a request, if it is counted. */
export function setOwner(responder: Responder, owner: RequestOwner): void {
  const counted = countedOf(responder);
  if (counted !== undefined) counted.owner = owner;
}

/** Says which tool of the hub itself a request calls, if it is counted. */
export function nameTool(responder: Responder, tool: HubToolName): void {
  const counted = countedOf(responder);
  if (counted !== undefined) counted.tool = tool;
}

/** The responder of the transport. */
export function plainOf(responder: Responder): Responder {
  const inner = untraced(responder);
  return inner instanceof CountedResponder ? inner.uncounted : inner;
}

/** Whether the request of this responder is counted. */
export function isCounted(responder: Responder): boolean {
  return countedOf(responder) !== undefined;
}

function countedOf(responder: Responder): CountedResponder | undefined {
  const inner = untraced(responder);
  return inner instanceof CountedResponder ? inner : undefined;
}

/** The kind of error of an answer that the hub has made; "": it is none. */
function errorTypeOf(message: EncodedMessage): string {
  const size = piecesOfMessage(message).reduce<number>((sum, piece) => sum + pieceSize(piece), 0);
  if (size > MAX_READ) return "";
  const response = parseMessage(joinMessage(message));
  if (response.kind !== "response") return "";
  const errorType = errorTypeOfResponse(response, true);
  if (errorType === "") return "";
  const body = bodyOf(response);
  const own =
    response.outcome === "error"
      ? body.object("data").string("code")
      : body.object("_meta").string("toolmux/error");
  return own ?? errorType;
}
