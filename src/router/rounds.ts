import { applyEdits, type Edit, joinPieces, textOf, utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { lastMember, scanObject, readString } from "../base/json.ts";
import { appendMembers } from "../base/object.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import type { ServerRequestTarget, ServerRequest } from "../upstream/ask.ts";
import type { RequestRewrite } from "../upstream/pending.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import { type ServerRequestContent, readServerRequest } from "../upstream/question.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import {
  buildNotification,
  type EncodedMessage,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import type { Deadlines } from "./deadlines.ts";
import { addInputs, type Input, type InputRequired } from "./input-required.ts";

export interface RoundsParts {
  readonly server: string;
  readonly request: Request;
  readonly caller: ServerRequestTarget & {
    readonly sender: ClientDeclaration;
    notify(message: EncodedMessage): void;
  };
  readonly deadlines: Deadlines;
  /** Pauses the call's deadline while the client is asked, or resumes it. */
  halt(halted: boolean): void;
  /** Sends the request again. */
  again(): void;
  fail(error: HubError): void;
}

/** Maximum number of rounds per call. */
const MOST_ROUNDS = 10;
/** Delay before a request is repeated that the server wants without any input, in ms. */
const PAUSE = 250;
/** Time limit for the client's answers, in ms. */
const LIMIT = 10 * 60_000;

/**
 * Handles `input_required` for a client that cannot: sends the input requests to the client and repeats the call with
 * the answers.
 */
export class Rounds {
  /** Edits of the request since the client sent it: `inputResponses` and `requestState`. */
  edits: readonly Edit[] = [];
  readonly #parts: RoundsParts;
  #count = 0;
  /** Ids of the URL elicitations that the client accepted. */
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

  /** The server has completed the call, so the accepted URL elicitations are complete. */
  finish(): void {
    const { caller } = this.#parts;
    // Modern clients do not know elicitation ids.
    if (caller.sender.era === "modern") return;
    for (const elicitationId of this.#visited.splice(0)) {
      caller.notify(buildNotification(Method.elicited, { elicitationId }));
    }
  }

  /** The call is over: cancels the open input requests. */
  withdraw(): void {
    this.#disarm();
    this.#round?.();
    this.#round = undefined;
  }
}

export interface RoundEvents {
  /**
   * All inputs are answered: the results, by the server's keys. `acceptedElicitations`: the ids of the accepted URL
   * elicitations.
   */
  answered(answers: ReadonlyMap<string, Uint8Array>, visited: readonly string[]): void;
  failed(error: HubError): void;
}

/** Which client is asked, for which server and call. */
export type RoundParts = Pick<RoundsParts, "server" | "caller" | "deadlines" | "halt">;

/**
 * Sends all input requests to the client and pauses the call's deadline meanwhile.
 * @returns cancels the requests
 */
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

/** The input requests of one result, sent together. */
class Round {
  readonly #parts: RoundParts;
  readonly #required: InputRequired;
  readonly #events: RoundEvents;
  readonly #answers = new Map<string, Uint8Array>();
  readonly #visited: string[] = [];
  /** Cancels each open request. */
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
    let asked: ServerRequestContent;
    try {
      const capabilities = readCapabilities(caller.sender.declared);
      asked = readServerRequest(server, requestOf(input, this.#required.bytes), capabilities);
    } catch (error) {
      this.#refuse(input, toHubError(error).message);
      return;
    }
    const question: ServerRequest = {
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
      // The server's own request has ended, so there is nobody to send progress to.
      progress: () => {},
    };
    const recall = caller.sendServerRequest(question);
    if (this.#open.has(input)) this.#open.set(input, recall);
  }

  #answer(input: Input, outcome: Response["outcome"], body: Uint8Array): void {
    if (outcome === "result") this.#settle(input, body);
    else this.#refuse(input, messageOf(body));
  }

  /** The client cannot or will not answer: only for an elicitation is there a result that says so. */
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

/** The input as a legacy server's request: a URL elicitation gets an `elicitationId`. */
function requestOf(
  { method, params }: Input,
  bytes: Uint8Array,
): Parameters<typeof readServerRequest>[1] {
  if (params === undefined) return { method, bytes, params };
  const members = scanObject(bytes, params.start)?.items ?? [];
  const isByUrl =
    method === Method.elicit && readString(bytes, lastMember(members, "mode")) === "url";
  if (!isByUrl || lastMember(members, "elicitationId") !== undefined) {
    return { method, bytes, params };
  }
  const id = appendMembers(bytes, params, `"elicitationId":"${crypto.randomUUID()}"`);
  const whole = joinPieces(
    applyEdits(bytes.subarray(0, params.end), [
      { start: 0, end: params.start, replacement: "" },
      id,
    ]),
  );
  return { method, bytes: whole, params: { start: 0, end: whole.length } };
}

function isAccepted(answer: Uint8Array): boolean {
  return readString(answer, lastMember(scanObject(answer, 0)?.items ?? [], "action")) === "accept";
}

/** The message of a JSON-RPC error. */
function messageOf(error: Uint8Array): string {
  const members = scanObject(error, 0)?.items ?? [];
  return readString(error, lastMember(members, "message")) ?? textOf(error);
}

/** The edits of a request that may be sent several times; a fresh array per send, as `Session` adds its own. */
export function repeat(
  { edits, tokens }: RequestRewrite,
  more: { readonly edits: readonly Edit[] } | undefined,
): RequestRewrite {
  return { edits: more === undefined ? [...edits] : [...edits, ...more.edits], tokens };
}
