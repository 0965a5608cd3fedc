import type { CancelledBy } from "../../base/hub-events.ts";
import type { EncodedMessage } from "../../jsonrpc/message.ts";
import type { CancelReason } from "../../protocol/notifications.ts";
import type { Deadlines, DeadlineTarget } from "../../router/deadlines.ts";
import type { ModernResponder } from "../modern/request.ts";
import type { EventBuffer } from "./event-buffer.ts";
import { acceptedResponse, messageResponse, streamResponse } from "./responses.ts";

/** The content types that a client accepts: JSON, `text/event-stream`, or either. */
export type AcceptedTypes = "json" | "events" | "either";

const JSON_TYPE = "application/json";
const EVENT_STREAM_TYPE = "text/event-stream";
/** The Accept header that clients must send (Streamable HTTP, sending messages), and that nearly all send. */
const USUAL_ACCEPT = "application/json, text/event-stream";

/** Parses the Accept header of a request. @returns undefined if neither JSON nor an event stream is accepted */
export function parseAccept(accept: string | null): AcceptedTypes | undefined {
  if (accept === null || accept === USUAL_ACCEPT) return "either";
  const types = accept.split(",").map((part) => part.split(";", 1)[0]?.trim().toLowerCase());
  const acceptsType = (type: string): boolean =>
    types.some((one) => one === type || one === "*/*" || one === type.replace(/\/.*/, "/*"));
  const named = types.filter((type) => type === JSON_TYPE || type === EVENT_STREAM_TYPE);
  // A client that names both types gets the type that it names first.
  if (named[0] === EVENT_STREAM_TYPE && named.includes(JSON_TYPE)) return "events";
  const json = acceptsType(JSON_TYPE);
  const events = acceptsType(EVENT_STREAM_TYPE);
  if (json) return events ? "either" : "json";
  return events ? "events" : undefined;
}

/**
 * Time limit for a response as JSON, in ms. After it, the response becomes an event stream, because gateways close
 * silent connections.
 */
export const JSON_WAIT = 1000;

/** A receiver of POSTs: a session, or the endpoint for requests of the modern era. */
export interface PostReceiver {
  readonly deadlines: Deadlines;
  /** Opens an event stream for a response. */
  openStream(response: PostResponse): EventBuffer;
  /**
   * Sends a message that belongs to a request, such as progress, outside of the request's HTTP response, because a JSON
   * response can hold no further message.
   */
  sendSeparately(message: EncodedMessage): void;
  /** The HTTP status of a JSON response. */
  statusOf(message: EncodedMessage): number;
  /** Called once: when the response was sent, or when it is certain that none will be sent. */
  onResponseEnd(response: PostResponse): void;
}

/**
 * The response to one POST: JSON if the response is the only message and is ready within `JSON_WAIT`, else an event
 * stream.
 */
export class PostResponse implements ModernResponder, DeadlineTarget {
  readonly isPipe = false;
  readonly answer: Promise<Response>;
  /** The key of this response in the receiver's map of responses. */
  tableKey = -1;
  /** The name of the principal that sent the request. */
  owner: string | undefined;
  /** Time at which the response becomes an event stream if it is not complete, in ms of the clock. */
  readonly deadline: number;
  slot: number | undefined;
  readonly #receiver: PostReceiver;
  readonly #accepts: AcceptedTypes;
  readonly #disconnect: AbortSignal | undefined;
  #stream: EventBuffer | undefined;
  #resolve: (answer: Response) => void = () => {};
  #onCancel: ((reason: CancelReason, by: CancelledBy) => void) | undefined;
  #isOver = false;

  /**
   * @param disconnect a signal that is aborted when the client disconnects, which cancels the request; undefined if
   *   disconnecting does not cancel the request
   */
  constructor(receiver: PostReceiver, accepts: AcceptedTypes, disconnect?: AbortSignal) {
    this.#receiver = receiver;
    this.#accepts = accepts;
    this.deadline = receiver.deadlines.now() + JSON_WAIT;
    this.answer = new Promise((resolve) => (this.#resolve = resolve));
    this.#disconnect = disconnect;
    disconnect?.addEventListener("abort", this.#onDisconnect);
    if (disconnect?.aborted === true) queueMicrotask(this.#onDisconnect);
    if (accepts === "events") this.#open();
    else if (accepts === "either") receiver.deadlines.add(this);
  }

  /** The response's event stream; undefined if the response is JSON, or if that is not decided yet. */
  get stream(): EventBuffer | undefined {
    return this.#stream;
  }

  expire(): void {
    this.#open();
  }

  notify(message: EncodedMessage): void {
    if (this.#isOver) return;
    if (this.#accepts === "json") this.#receiver.sendSeparately(message);
    else this.#open().push(message);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#end();
    if (this.#stream !== undefined) {
      if (message !== undefined) this.#stream.push(message);
      this.#stream.finish();
    } else {
      this.#resolve(
        message === undefined
          ? acceptedResponse()
          : messageResponse(message, this.#receiver.statusOf(message)),
      );
    }
    this.#receiver.onResponseEnd(this);
  }

  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void {
    this.#onCancel = callback;
  }

  /**
   * Cancels the request, because the client has disconnected or its session has ended.
   * @param answer the HTTP response to send, unless one has begun
   */
  cancel(answer: Response): void {
    if (this.#isOver) return;
    this.#end();
    this.#resolve(answer);
    this.#stream?.detach();
    this.#receiver.onResponseEnd(this);
    this.#onCancel?.("The client has left.", "disconnect");
  }

  readonly #onDisconnect = (): void => this.cancel(acceptedResponse());

  #open(): EventBuffer {
    if (this.#stream === undefined) {
      this.#receiver.deadlines.remove(this);
      this.#stream = this.#receiver.openStream(this);
      this.#resolve(streamResponse(this.#stream.attach()));
    }
    return this.#stream;
  }

  #end(): void {
    this.#isOver = true;
    this.#receiver.deadlines.remove(this);
    this.#disconnect?.removeEventListener("abort", this.#onDisconnect);
  }
}
