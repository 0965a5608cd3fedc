import type { Deadlines, Timed } from "../../router/deadline.ts";
import type { Message } from "../../wire/jsonrpc.ts";
import type { Inbound } from "../../wire/link.ts";
import { accepted, answer, type Answer, streamed } from "./answer.ts";
import { refuse } from "./refusal.ts";
import type { EventStream } from "./stream.ts";

/** What a client takes for an answer. */
export type Wants = "json" | "events" | "either";

const JSON_TYPE = "application/json";
const EVENTS_TYPE = "text/event-stream";
/** What clients are to say that they take, and what nearly all of them do say. */
const USUAL = "application/json, text/event-stream";

/** Reads what a client says that it takes. @returns undefined if that is nothing that there is */
export function readWants(accept: string | null): Wants | undefined {
  if (accept === null || accept === USUAL) return "either";
  const types = accept.split(",").map((part) => part.split(";", 1)[0]?.trim().toLowerCase());
  const takes = (type: string): boolean =>
    types.some((one) => one === type || one === "*/*" || one === type.replace(/\/.*/, "/*"));
  const named = types.filter((type) => type === JSON_TYPE || type === EVENTS_TYPE);
  // Who names both prefers the first.
  if (named[0] === EVENTS_TYPE && named.includes(JSON_TYPE)) return "events";
  const json = takes(JSON_TYPE);
  const events = takes(EVENTS_TYPE);
  if (json) return events ? "either" : "json";
  return events ? "events" : undefined;
}

/** An answer that has not come after this many ms comes as an event: a connection that is silent for long is lost. */
export const PATIENCE = 1000;

/** Whose requests are answered. */
export interface Asker {
  readonly deadlines: Deadlines;
  /** A stream for what there is to say. */
  open(): EventStream;
  /** Takes what belongs to a request, but cannot be sent with its answer. */
  aside(message: Message): void;
  /** All is said. */
  answered(reply: Reply): void;
}

/** The answer to one POST: JSON if that is all there is to send, and comes soon; else a stream of events. */
export class Reply implements Inbound, Timed {
  readonly answer: Promise<Answer>;
  /** Where its session has it. */
  place = -1;
  /** When it becomes a stream. */
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

  /** What it was sent on, if that was more than one answer. */
  get stream(): EventStream | undefined {
    return this.#stream;
  }

  expire(): void {
    this.#open();
  }

  notify(message: Message): void {
    if (this.#isOver) return;
    if (this.#wants === "json") this.#asker.aside(message);
    else this.#open().push(message);
  }

  respond(message: Message | undefined): void {
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

  /** The session has ended, and its streams with it: there will be no answer. */
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
