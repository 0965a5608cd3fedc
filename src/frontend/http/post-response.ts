import type { Deadlines, DeadlineTarget } from "../../router/deadlines.ts";
import type { EncodedMessage } from "../../jsonrpc/message.ts";
import type { Responder } from "../../transport/transport.ts";
import { accepted, answer, type Answer, streamed } from "./http1/answer.ts";
import { refuse } from "./errors.ts";
import type { EventStream } from "./event-buffer.ts";

/** What a client accepts as an answer. */
export type Wants = "json" | "events" | "either";

const JSON_TYPE = "application/json";
const EVENTS_TYPE = "text/event-stream";
/** What clients have to send as Accept (Streamable HTTP, sending messages), and nearly all do. */
const USUAL = "application/json, text/event-stream";

/** Parses the Accept header of a request. @returns undefined if neither JSON nor an event stream is accepted */
export function readWants(accept: string | null): Wants | undefined {
  if (accept === null || accept === USUAL) return "either";
  const types = accept.split(",").map((part) => part.split(";", 1)[0]?.trim().toLowerCase());
  const takes = (type: string): boolean =>
    types.some((one) => one === type || one === "*/*" || one === type.replace(/\/.*/, "/*"));
  const named = types.filter((type) => type === JSON_TYPE || type === EVENTS_TYPE);
  // A client that names both prefers the first.
  if (named[0] === EVENTS_TYPE && named.includes(JSON_TYPE)) return "events";
  const json = takes(JSON_TYPE);
  const events = takes(EVENTS_TYPE);
  if (json) return events ? "either" : "json";
  return events ? "events" : undefined;
}

/**
 * How long an answer may take to be sent as JSON, in ms; then an event stream begins, as silent connections are cut.
 */
export const PATIENCE = 1000;

/** The session that a response belongs to. */
export interface Asker {
  readonly deadlines: Deadlines;
  /** Opens an event stream for the response. */
  open(): EventStream;
  /** Sends a message that belongs to a request on the session's own stream, as its response is JSON. */
  aside(message: EncodedMessage): void;
  /** Called once, when the answer is sent. */
  answered(reply: Reply): void;
}

/**
 * The response to one POST of a session: JSON if the answer is the only message and comes within `JSON_WAIT`, else an
 * event stream that can be resumed.
 */
export class Reply implements Responder, DeadlineTarget {
  readonly answer: Promise<Answer>;
  /** Its key in the session's table of responses. */
  place = -1;
  /** When it becomes an event stream. */
  readonly deadline: number;
  slot: number | undefined;
  readonly #asker: Asker;
  readonly #wants: Wants;
  #stream: EventStream | undefined;
  #settle: (answer: Answer) => void = () => {};
  #isOver = false;

  constructor(asker: Asker, wants: Wants) {
    this.#asker = asker;
    this.#wants = wants;
    this.deadline = asker.deadlines.now() + PATIENCE;
    this.answer = new Promise((resolve) => (this.#settle = resolve));
    if (wants === "events") this.#open();
    else if (wants === "either") asker.deadlines.add(this);
  }

  /** Its event stream; undefined if it is JSON, or not decided. */
  get stream(): EventStream | undefined {
    return this.#stream;
  }

  expire(): void {
    this.#open();
  }

  notify(message: EncodedMessage): void {
    if (this.#isOver) return;
    if (this.#wants === "json") this.#asker.aside(message);
    else this.#open().push(message);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#end();
    if (this.#stream !== undefined) {
      if (message !== undefined) this.#stream.push(message);
      this.#stream.finish();
    } else {
      this.#settle(message === undefined ? accepted() : answer(message));
    }
    this.#asker.answered(this);
  }

  /** The session has ended: there will be no answer. */
  abandon(): void {
    if (this.#isOver) return;
    this.#end();
    this.#settle(refuse(404, "The session has ended."));
  }

  #open(): EventStream {
    if (this.#stream === undefined) {
      this.#asker.deadlines.remove(this);
      this.#stream = this.#asker.open();
      this.#settle(streamed(this.#stream.attach()));
    }
    return this.#stream;
  }

  #end(): void {
    this.#isOver = true;
    this.#asker.deadlines.remove(this);
  }
}
