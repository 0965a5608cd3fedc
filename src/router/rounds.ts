import { applyEdits, type Edit, joinPieces, textOf, utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { lastMember, scanObject, readString } from "../base/json.ts";
import { appendMembers } from "../base/object.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import type { ServerRequestTarget, ServerRequest } from "../upstream/ask.ts";
import type { RequestRewrite } from "../upstream/pending.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import { type ServerRequestContent, readServerRequest } from "../upstream/question.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import {
  buildNotification,
  type EncodedMessage,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import type { Deadlines } from "./deadlines.ts";
import { addInputResponses, type InputRequest, type InputRequired } from "./input-required.ts";

export interface InputRoundsOptions {
  readonly server: string;
  readonly request: Request;
  readonly caller: ServerRequestTarget & {
    readonly sender: ClientDeclaration;
    notify(message: EncodedMessage): void;
  };
  readonly deadlines: Deadlines;
  /** Pauses the call's deadline while the client is asked, or resumes it. */
  setDeadlinePaused(paused: boolean): void;
  /** Sends the request again. */
  resend(): void;
  fail(error: HubError): void;
}

/** Maximum number of rounds per call. */
const MAX_ROUNDS = 10;
/** Delay before a request is repeated that the server wants without any input, in ms. */
const REPEAT_DELAY = 250;
/** Time limit for the client's answers, in ms. */
const ANSWER_TIMEOUT = 10 * 60_000;

/**
 * Handles `input_required` for a client that cannot: sends the input requests to the client and repeats the call with
 * the answers.
 */
export class InputRounds {
  /** Edits of the request since the client sent it: `inputResponses` and `requestState`. */
  edits: readonly Edit[] = [];
  readonly #options: InputRoundsOptions;
  #roundCount = 0;
  /** Ids of the URL elicitations that the client accepted. */
  readonly #acceptedElicitations: string[] = [];
  #cancelRound: (() => void) | undefined;
  #cancelTimer: () => void = () => {};

  constructor(options: InputRoundsOptions) {
    this.#options = options;
  }

  start(required: InputRequired): void {
    const { server, request, deadlines } = this.#options;
    if (++this.#roundCount > MAX_ROUNDS) {
      const text = `Server "${server}" wanted more ${this.#roundCount} times, and still has not answered.`;
      this.#options.fail(new HubError("internal", text, { server }));
      return;
    }
    const resend = (answers: ReadonlyMap<string, Uint8Array>): void => {
      this.edits = addInputResponses(request, answers, required.state);
      this.#options.resend();
    };
    if (required.inputs.length === 0) {
      this.#cancelTimer = deadlines.after(REPEAT_DELAY, () => resend(new Map()));
      return;
    }
    this.#cancelRound = requestInputs(this.#options, required, {
      onAnswered: (answers, acceptedElicitations) => {
        this.#cancelRound = undefined;
        this.#acceptedElicitations.push(...acceptedElicitations);
        resend(answers);
      },
      onFailed: (error) => {
        this.#cancelRound = undefined;
        this.#options.fail(error);
      },
    });
  }

  /** The server has completed the call, so the accepted URL elicitations are complete. */
  finish(): void {
    const { caller } = this.#options;
    // Modern clients do not know elicitation ids.
    if (caller.sender.era === "modern") return;
    for (const elicitationId of this.#acceptedElicitations.splice(0)) {
      caller.notify(buildNotification(Method.elicitationComplete, { elicitationId }));
    }
  }

  /** The call is over: cancels the open input requests. */
  cancel(): void {
    this.#cancelTimer();
    this.#cancelRound?.();
    this.#cancelRound = undefined;
  }
}

export interface InputRoundEvents {
  /**
   * All inputs are answered: the results, by the server's keys. `acceptedElicitations`: the ids of the accepted URL
   * elicitations.
   */
  onAnswered(
    answers: ReadonlyMap<string, Uint8Array>,
    acceptedElicitations: readonly string[],
  ): void;
  onFailed(error: HubError): void;
}

/** Which client is asked, for which server and call. */
export type InputRoundOptions = Pick<
  InputRoundsOptions,
  "server" | "caller" | "deadlines" | "setDeadlinePaused"
>;

/**
 * Sends all input requests to the client and pauses the call's deadline meanwhile.
 * @returns cancels the requests
 */
export function requestInputs(
  options: InputRoundOptions,
  required: InputRequired,
  events: InputRoundEvents,
): () => void {
  let isOver = false;
  const finish = (): void => {
    isOver = true;
    cancelTimer();
    options.setDeadlinePaused(false);
  };
  const round = new InputRound(options, required, {
    onAnswered: (answers, visited) => {
      finish();
      events.onAnswered(answers, visited);
    },
    onFailed: (error) => {
      finish();
      events.onFailed(error);
    },
  });
  options.setDeadlinePaused(true);
  const cancelTimer = options.deadlines.after(ANSWER_TIMEOUT, () => round.expire());
  round.start();
  return () => {
    if (isOver) return;
    cancelTimer();
    round.cancel("The call that it was for is over.");
  };
}

const CANCEL_RESULT = utf8('{"action":"cancel"}');

/** The input requests of one result, sent together. */
class InputRound {
  readonly #options: InputRoundOptions;
  readonly #required: InputRequired;
  readonly #events: InputRoundEvents;
  readonly #answers = new Map<string, Uint8Array>();
  readonly #acceptedElicitations: string[] = [];
  /** Cancels each open request. */
  readonly #openRequests = new Map<InputRequest, (why: CancelReason) => void>();
  #isOver = false;

  constructor(options: InputRoundOptions, required: InputRequired, events: InputRoundEvents) {
    this.#options = options;
    this.#required = required;
    this.#events = events;
  }

  start(): void {
    const { inputs } = this.#required;
    for (const input of inputs) this.#openRequests.set(input, () => {});
    for (const input of inputs) if (!this.#isOver) this.#sendRequest(input);
  }

  expire(): void {
    const text = `Nobody answered within ${ANSWER_TIMEOUT / 60_000} minutes.`;
    for (const [input, cancel] of this.#openRequests) {
      cancel(text);
      this.#reject(input, text);
    }
  }

  cancel(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const cancel of this.#openRequests.values()) cancel(reason);
  }

  #sendRequest(input: InputRequest): void {
    const { server, caller } = this.#options;
    let content: ServerRequestContent;
    try {
      const capabilities = readCapabilities(caller.sender.declared);
      content = readServerRequest(
        server,
        legacyRequestOf(input, this.#required.bytes),
        capabilities,
      );
    } catch (error) {
      this.#reject(input, toHubError(error).message);
      return;
    }
    const request: ServerRequest = {
      server,
      method: content.method,
      params: (token) => content.params(token),
      answer: (outcome, body) => {
        if (content.elicitation !== undefined && isAccepted(body)) {
          this.#acceptedElicitations.push(content.elicitation);
        }
        this.#answer(input, outcome, body);
        return undefined;
      },
      fail: (error) => this.#reject(input, error.message),
      // The server's own request has ended, so there is nobody to send progress to.
      progress: () => {},
    };
    const cancel = caller.sendServerRequest(request);
    if (this.#openRequests.has(input)) this.#openRequests.set(input, cancel);
  }

  #answer(input: InputRequest, outcome: Response["outcome"], body: Uint8Array): void {
    if (outcome === "result") this.#addAnswer(input, body);
    else this.#reject(input, errorMessageOf(body));
  }

  /** The client cannot or will not answer: only for an elicitation is there a result that says so. */
  #reject(input: InputRequest, reason: string): void {
    if (input.method === Method.elicitationCreate) {
      this.#addAnswer(input, CANCEL_RESULT);
      return;
    }
    if (this.#isOver) return;
    this.cancel("Another request of the same call has failed.");
    const { server } = this.#options;
    const text = `Server "${server}" asked the client for "${input.method}" and cannot go on without: ${reason}`;
    this.#events.onFailed(new HubError("notAsked", text, { server }));
  }

  #addAnswer(input: InputRequest, answer: Uint8Array): void {
    if (this.#isOver || !this.#openRequests.delete(input)) return;
    this.#answers.set(input.key, answer);
    if (this.#openRequests.size > 0) return;
    this.#isOver = true;
    this.#events.onAnswered(this.#answers, this.#acceptedElicitations);
  }
}

/** The input as a legacy server's request: a URL elicitation gets an `elicitationId`. */
function legacyRequestOf(
  { method, params }: InputRequest,
  bytes: Uint8Array,
): Parameters<typeof readServerRequest>[1] {
  if (params === undefined) return { method, bytes, params };
  const members = scanObject(bytes, params.start)?.items ?? [];
  const isByUrl =
    method === Method.elicitationCreate && readString(bytes, lastMember(members, "mode")) === "url";
  if (!isByUrl || lastMember(members, "elicitationId") !== undefined) {
    return { method, bytes, params };
  }
  const id = appendMembers(bytes, params, `"elicitationId":"${crypto.randomUUID()}"`);
  const newParams = joinPieces(
    applyEdits(bytes.subarray(0, params.end), [
      { start: 0, end: params.start, replacement: "" },
      id,
    ]),
  );
  return { method, bytes: newParams, params: { start: 0, end: newParams.length } };
}

function isAccepted(answer: Uint8Array): boolean {
  return readString(answer, lastMember(scanObject(answer, 0)?.items ?? [], "action")) === "accept";
}

/** The message of a JSON-RPC error. */
function errorMessageOf(error: Uint8Array): string {
  const members = scanObject(error, 0)?.items ?? [];
  return readString(error, lastMember(members, "message")) ?? textOf(error);
}

/** The edits of a request that may be sent several times; a fresh array per send, as `Session` adds its own. */
export function retryEditsOf(
  { edits, tokens }: RequestRewrite,
  unfinishedCall: { readonly edits: readonly Edit[] } | undefined,
): RequestRewrite {
  return {
    edits: unfinishedCall === undefined ? [...edits] : [...edits, ...unfinishedCall.edits],
    tokens,
  };
}
