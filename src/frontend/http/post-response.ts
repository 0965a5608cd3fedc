import type { Deadlines, DeadlineTarget } from "../../router/deadlines.ts";
import type { EncodedMessage } from "../../jsonrpc/message.ts";
import type { Responder } from "../../transport/transport.ts";
import { acceptedAnswer, messageAnswer, type HttpAnswer, streamAnswer } from "./http1/answer.ts";
import { errorAnswer } from "./errors.ts";
import type { EventBuffer } from "./event-buffer.ts";

/** What a client accepts as an answer. */
export type AcceptedTypes = "json" | "events" | "either";

const JSON_TYPE = "application/json";
const EVENT_STREAM_TYPE = "text/event-stream";
/** What clients have to send as Accept (Streamable HTTP, sending messages), and nearly all do. */
const USUAL_ACCEPT = "application/json, text/event-stream";

/** Parses the Accept header of a request. @returns undefined if neither JSON nor an event stream is accepted */
export function parseAccept(accept: string | null): AcceptedTypes | undefined {
  if (accept === null || accept === USUAL_ACCEPT) return "either";
  const types = accept.split(",").map((part) => part.split(";", 1)[0]?.trim().toLowerCase());
  const acceptsType = (type: string): boolean =>
    types.some((one) => one === type || one === "*/*" || one === type.replace(/\/.*/, "/*"));
  const named = types.filter((type) => type === JSON_TYPE || type === EVENT_STREAM_TYPE);
  // A client that names both prefers the first.
  if (named[0] === EVENT_STREAM_TYPE && named.includes(JSON_TYPE)) return "events";
  const json = acceptsType(JSON_TYPE);
  const events = acceptsType(EVENT_STREAM_TYPE);
  if (json) return events ? "either" : "json";
  return events ? "events" : undefined;
}

/**
 * How long an answer may take to be sent as JSON, in ms; then an event stream begins, as silent connections are cut.
 */
export const JSON_WAIT = 1000;

/** The session that a response belongs to. */
export interface PostResponseOwner {
  readonly deadlines: Deadlines;
  /** Opens an event stream for the response. */
  openStream(): EventBuffer;
  /** Sends a message that belongs to a request on the session's own stream, as its response is JSON. */
  sendSeparately(message: EncodedMessage): void;
  /** Called once, when the answer is sent. */
  onAnswered(response: SessionPostResponse): void;
}

/**
 * The response to one POST of a session: JSON if the answer is the only message and comes within `JSON_WAIT`, else an
 * event stream that can be resumed.
 */
export class SessionPostResponse implements Responder, DeadlineTarget {
  readonly answer: Promise<HttpAnswer>;
  /** Its key in the session's table of responses. */
  tableKey = -1;
  /** When it becomes an event stream. */
  readonly deadline: number;
  slot: number | undefined;
  readonly #owner: PostResponseOwner;
  readonly #accepts: AcceptedTypes;
  #stream: EventBuffer | undefined;
  #resolve: (answer: HttpAnswer) => void = () => {};
  #isOver = false;

  constructor(owner: PostResponseOwner, accepts: AcceptedTypes) {
    this.#owner = owner;
    this.#accepts = accepts;
    this.deadline = owner.deadlines.now() + JSON_WAIT;
    this.answer = new Promise((resolve) => (this.#resolve = resolve));
    if (accepts === "events") this.#open();
    else if (accepts === "either") owner.deadlines.add(this);
  }

  /** Its event stream; undefined if it is JSON, or not decided. */
  get stream(): EventBuffer | undefined {
    return this.#stream;
  }

  expire(): void {
    this.#open();
  }

  notify(message: EncodedMessage): void {
    if (this.#isOver) return;
    if (this.#accepts === "json") this.#owner.sendSeparately(message);
    else this.#open().push(message);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#end();
    if (this.#stream !== undefined) {
      if (message !== undefined) this.#stream.push(message);
      this.#stream.finish();
    } else {
      this.#resolve(message === undefined ? acceptedAnswer() : messageAnswer(message));
    }
    this.#owner.onAnswered(this);
  }

  /** The session has ended: there will be no answer. */
  cancel(): void {
    if (this.#isOver) return;
    this.#end();
    this.#resolve(errorAnswer(404, "The session has ended."));
  }

  #open(): EventBuffer {
    if (this.#stream === undefined) {
      this.#owner.deadlines.remove(this);
      this.#stream = this.#owner.openStream();
      this.#resolve(streamAnswer(this.#stream.attach()));
    }
    return this.#stream;
  }

  #end(): void {
    this.#isOver = true;
    this.#owner.deadlines.remove(this);
  }
}
