import type { Edit } from "../base/bytes.ts";
import type { Era } from "../protocol/era.ts";
import type { IdTable } from "../base/id-table.ts";
import type { Call, Caller, RunningRequest } from "../router/call.ts";
import type { ServerRequest } from "../upstream/ask.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import {
  type RequestId,
  type EncodedMessage,
  withResponseId,
  type Response,
} from "../jsonrpc/message.ts";
import type { Responder } from "../transport/transport.ts";

/** The client that a request comes from. */
export interface RequestOwner {
  readonly sender: ClientDeclaration;
  /** Sends a server's request to the client, on the response stream of the client's own request `responder`. */
  sendServerRequest(question: ServerRequest, way: Responder): (why: CancelReason) => void;
}

/** One request of a legacy client in flight. Its answer removes it from the table of running requests. */
export class LegacyClientRequest implements Caller {
  readonly id: RequestId;
  running: Pick<RunningRequest, "cancel" | "call"> | undefined;
  readonly #responder: Responder;
  readonly #inFlight: IdTable<LegacyClientRequest>;
  readonly #owner: RequestOwner;

  /** @param inFlight requests in flight, by the key of the client's id */
  constructor(
    id: RequestId,
    responder: Responder,
    inFlight: IdTable<LegacyClientRequest>,
    owner: RequestOwner,
  ) {
    this.id = id;
    this.#responder = responder;
    this.#inFlight = inFlight;
    this.#owner = owner;
  }

  /** The call that the request became; undefined until it is routed, and for list requests. */
  get call(): Call | undefined {
    return this.running?.call;
  }

  get sender(): ClientDeclaration {
    return this.#owner.sender;
  }

  toClientMessage(response: Response, _: Era, edits?: readonly Edit[]): EncodedMessage {
    return withResponseId(response, this.id, edits);
  }

  sendServerRequest(question: ServerRequest): (why: CancelReason) => void {
    return this.#owner.sendServerRequest(question, this.#responder);
  }

  respond(message: EncodedMessage | undefined): void {
    this.#inFlight.remove(this.id.key);
    this.#responder.respond(message);
  }

  notify(message: EncodedMessage): void {
    this.#responder.notify(message);
  }
}
