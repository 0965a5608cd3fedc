import { applyEdits, type Edit, joinPieces, textOf, utf8 } from "../bytes.ts";
import { HubError, toHubError } from "../errors.ts";
import { lastMember, scanObject, stringOf } from "../json.ts";
import { appendMembers } from "../object.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import type { Ask, Question } from "../upstream/ask.ts";
import type { Rewrite } from "../upstream/pending.ts";
import type { Withdrawal } from "../upstream/withdrawal.ts";
import { type Asked, readQuestion } from "../upstream/question.ts";
import type { Sender } from "../upstream/sender.ts";
import { buildNotification, type Message, type Request, type Response } from "../wire/jsonrpc.ts";
import type { Deadlines } from "./deadline.ts";
import { addInputs, type Input, type InputRequired } from "./inputs.ts";

export interface RoundsParts {
  readonly server: string;
  readonly request: Request;
  readonly caller: Ask & { readonly sender: Sender; notify(message: Message): void };
  readonly deadlines: Deadlines;
  /** Lets the call's time stand still while the client is asked, or go on. */
  halt(halted: boolean): void;
  /** Sends the request again. */
  again(): void;
  fail(error: HubError): void;
}

/** A server that wants more than so many times never gets enough. */
const MOST_ROUNDS = 10;
/** How long a request waits that the server wants again as it was, in ms. */
const PAUSE = 250;
/** How long a person may take to answer, in ms. */
const LIMIT = 10 * 60_000;

/** What a server of the modern era wants of a client that it cannot tell so: asks the client, and sends the request again. */
export class Rounds {
  /** What the request says now beside what the client has written. */
  edits: readonly Edit[] = [];
  readonly #parts: RoundsParts;
  #count = 0;
  /** The elicitations by URL that the client has agreed to. */
  readonly #visited: string[] = [];
  #round: (() => void) | undefined;
  #disarm: () => void = () => {};

  constructor(parts: RoundsParts) {
    this.#parts = parts;
  }

  begin(required: InputRequired): void {
    const { server, request, deadlines } = this.#parts;
    if (++this.#count > MOST_ROUNDS) {
      const text = `Server "${server}" wanted more ${this.#count} times, and still has not answered.`;
      this.#parts.fail(new HubError("internal", text, { server }));
      return;
    }
    const again = (answers: ReadonlyMap<string, Uint8Array>): void => {
      this.edits = addInputs(request, answers, required.state);
      this.#parts.again();
    };
    if (required.inputs.length === 0) {
      this.#disarm = deadlines.after(PAUSE, () => again(new Map()));
      return;
    }
    this.#round = pose(this.#parts, required, {
      answered: (answers, visited) => {
        this.#round = undefined;
        this.#visited.push(...visited);
        again(answers);
      },
      failed: (error) => {
        this.#round = undefined;
        this.#parts.fail(error);
      },
    });
  }

  /** The server has done what was wanted: the pages that it sent people to were all that it needed. */
  finish(): void {
    const { caller } = this.#parts;
    // To the modern era the ids mean nothing.
    if (caller.sender.era === "modern") return;
    for (const elicitationId of this.#visited.splice(0)) {
      caller.notify(buildNotification(Method.elicited, { elicitationId }));
    }
  }

  /** The call is over: nobody is to answer any more. */
  withdraw(): void {
    this.#disarm();
    this.#round?.();
    this.#round = undefined;
  }
}

export interface RoundEvents {
  /** All have been answered: bare results, by the server's keys. `visited`: the elicitations by URL that were agreed to. */
  answered(answers: ReadonlyMap<string, Uint8Array>, visited: readonly string[]): void;
  failed(error: HubError): void;
}

/** Whose answers are wanted, and for which call. */
export type RoundParts = Pick<RoundsParts, "server" | "caller" | "deadlines" | "halt">;

/** Asks the client all that a server wants; the call's time stands still meanwhile. @returns what withdraws it */
export function pose(parts: RoundParts, required: InputRequired, events: RoundEvents): () => void {
  let isOver = false;
  const over = (): void => {
    isOver = true;
    disarm();
    parts.halt(false);
  };
  const round = new Round(parts, required, {
    answered: (answers, visited) => {
      over();
      events.answered(answers, visited);
    },
    failed: (error) => {
      over();
      events.failed(error);
    },
  });
  parts.halt(true);
  const disarm = parts.deadlines.after(LIMIT, () => round.expire());
  round.begin();
  return () => {
    if (isOver) return;
    disarm();
    round.withdraw("The call that it was for is over.");
  };
}

const CANCEL = utf8('{"action":"cancel"}');

/** All that a server wants at a time, asked together. */
class Round {
  readonly #parts: RoundParts;
  readonly #required: InputRequired;
  readonly #events: RoundEvents;
  readonly #answers = new Map<string, Uint8Array>();
  readonly #visited: string[] = [];
  /** What withdraws those that are open. */
  readonly #open = new Map<Input, (why: Withdrawal) => void>();
  #isOver = false;

  constructor(parts: RoundParts, required: InputRequired, events: RoundEvents) {
    this.#parts = parts;
    this.#required = required;
    this.#events = events;
  }

  begin(): void {
    const { inputs } = this.#required;
    for (const input of inputs) this.#open.set(input, () => {});
    for (const input of inputs) if (!this.#isOver) this.#ask(input);
  }

  expire(): void {
    const text = `Nobody answered within ${LIMIT / 60_000} minutes.`;
    for (const [input, recall] of this.#open) {
      recall(text);
      this.#refuse(input, text);
    }
  }

  withdraw(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const recall of this.#open.values()) recall(why);
  }

  #ask(input: Input): void {
    const { server, caller } = this.#parts;
    let asked: Asked;
    try {
      const capabilities = readCapabilities(caller.sender.declared);
      asked = readQuestion(server, requestOf(input, this.#required.bytes), capabilities);
    } catch (error) {
      this.#refuse(input, toHubError(error).message);
      return;
    }
    const question: Question = {
      server,
      method: asked.method,
      params: (token) => asked.params(token),
      answer: (outcome, body) => {
        if (asked.elicitation !== undefined && isAccepted(body)) {
          this.#visited.push(asked.elicitation);
        }
        this.#answer(input, outcome, body);
        return undefined;
      },
      fail: (error) => this.#refuse(input, error.message),
      // The server gave up its request: there is nobody to tell.
      progress: () => {},
    };
    const recall = caller.ask(question);
    if (this.#open.has(input)) this.#open.set(input, recall);
  }

  #answer(input: Input, outcome: Response["outcome"], body: Uint8Array): void {
    if (outcome === "result") this.#settle(input, body);
    else this.#refuse(input, messageOf(body));
  }

  /** The client cannot, or will not: only an elicitation has a word for that. */
  #refuse(input: Input, why: string): void {
    if (input.method === Method.elicit) {
      this.#settle(input, CANCEL);
      return;
    }
    if (this.#isOver) return;
    this.withdraw("Another request of the same call has failed.");
    const { server } = this.#parts;
    const text = `Server "${server}" asked the client for "${input.method}" and cannot go on without: ${why}`;
    this.#events.failed(new HubError("notAsked", text, { server }));
  }

  #settle(input: Input, answer: Uint8Array): void {
    if (this.#isOver || !this.#open.delete(input)) return;
    this.#answers.set(input.key, answer);
    if (this.#open.size > 0) return;
    this.#isOver = true;
    this.#events.answered(this.#answers, this.#visited);
  }
}

/** What a server of the legacy era would have asked: it gives every elicitation by URL an id. */
function requestOf(
  { method, params }: Input,
  bytes: Uint8Array,
): Parameters<typeof readQuestion>[1] {
  if (params === undefined) return { method, bytes, params };
  const members = scanObject(bytes, params.start)?.items ?? [];
  const isByUrl =
    method === Method.elicit && stringOf(bytes, lastMember(members, "mode")) === "url";
  if (!isByUrl || lastMember(members, "elicitationId") !== undefined) {
    return { method, bytes, params };
  }
  const id = appendMembers(bytes, params, `"elicitationId":"${crypto.randomUUID()}"`);
  const whole = joinPieces(
    applyEdits(bytes.subarray(0, params.end), [{ start: 0, end: params.start, by: "" }, id]),
  );
  return { method, bytes: whole, params: { start: 0, end: whole.length } };
}

function isAccepted(answer: Uint8Array): boolean {
  return stringOf(answer, lastMember(scanObject(answer, 0)?.items ?? [], "action")) === "accept";
}

/** What an error of the client says. */
function messageOf(error: Uint8Array): string {
  const members = scanObject(error, 0)?.items ?? [];
  return stringOf(error, lastMember(members, "message")) ?? textOf(error);
}

/** The changes to a request that is sent once more: they are made for each time. */
export function repeat(
  { edits, tokens }: Rewrite,
  more: { readonly edits: readonly Edit[] } | undefined,
): Rewrite {
  return { edits: more === undefined ? [...edits] : [...edits, ...more.edits], tokens };
}
