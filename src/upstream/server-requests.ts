import type { ByteRange } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { isTaskQuery, TaskMethod, type TaskQuery } from "../protocol/tasks.ts";
import {
  buildResponse,
  buildError,
  type RequestId,
  type EncodedMessage,
  type Notification,
  type Request,
  type Response,
  replaceRanges,
} from "../jsonrpc/message.ts";
import type { Ask, Question } from "./ask.ts";
import type { Attribution } from "./attribution.ts";
import type { Attendee, Audience, Occasion } from "./audience.ts";
import type { Errand } from "../protocol/errand.ts";
import { Errands, type Receipt } from "./errands.ts";
import type { Job } from "./tasks.ts";
import { readCancelled } from "../protocol/notifications.ts";
import type { Pending } from "./pending.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import { type Asked, checkQuery, neededFor, readQuestion } from "./question.ts";

export interface AsksParts {
  readonly server: string;
  readonly audience: Audience;
  readonly attribution: Attribution;
  readonly clock: Clock;
  send(message: EncodedMessage): void;
  /** Whether requests of that client are in flight at the server; undefined: of any client. */
  isBusy(client: Attendee | undefined): boolean;
  /** Suspends or resumes the deadlines of that client's calls; undefined: of calls whose client is not known. */
  halt(client: Attendee | undefined, halted: boolean): void;
  complain(text: string): void;
  /** The server asks the client to open a URL. */
  elicited(id: string, client: Attendee): void;
}

/** How long a user may take to answer, in ms. */
const LIMIT = 10 * 60_000;
/** How many requests of one server may be open at a time. */
const MOST = 32;

/** The requests of one server to its clients, each from its arrival until its one response. */
export class Asks {
  readonly #parts: AsksParts;
  /** By the key of the server's id. */
  readonly #open = new Map<string | number, OpenAsk>();

  /** Open requests that suspend the deadlines of all calls of a client. */
  readonly #holding = new Map<RequestId, Attendee | undefined>();
  /** Open requests that suspend the deadline of one call alone. */
  readonly #held = new Map<RequestId, Pending>();
  /** Tasks that clients have created instead of answering at once. */
  readonly #errands: Errands;

  constructor(parts: AsksParts) {
    this.#parts = parts;
    this.#errands = new Errands(parts);
  }

  get isOpen(): boolean {
    return this.#open.size > 0;
  }

  /**
   * Sends the request to the one client that it can belong to, or refuses it.
   * @param task the server's task that it belongs to
   * @param record the client's request on whose response stream it came
   */
  take(request: Request, job: Job | undefined, record: Pending | undefined): void {
    try {
      if (isTaskQuery(request.method)) this.#inquire(request, request.method);
      else if (request.method === TaskMethod.list) this.#list(request);
      else this.#ask(request, job, record);
    } catch (thrown) {
      const error = toHubError(thrown);
      const needed = neededFor(error);
      if (needed !== undefined) this.#tellLack(needed, job, record?.occasion);
      this.#parts.send(buildError(request.id, error.toRpc()));
    }
  }

  /** A client's request has ended: ends the server's requests that came on its stream. */
  settle(record: Pending): void {
    for (const ask of this.#open.values()) {
      if (ask.record === record) ask.end("The call that it was for is over.");
    }
  }

  /** Handles `notifications/cancelled` of the server. */
  cancel(notification: Notification): void {
    const cancelled = readCancelled(notification);
    if (cancelled === undefined) return;
    this.#open.get(cancelled.key)?.withdraw({ notification, ids: cancelled.ids });
  }

  /** A client's request was given up: ends the requests for clients for whom the server has nothing left to do. */
  abandon(): void {
    for (const ask of this.#open.values()) {
      if (!ask.isForCall || ask.record !== undefined || this.#parts.isBusy(ask.client)) continue;
      ask.end("The call that it was for is over.");
    }
  }

  /** The server has ended. */
  close(): void {
    const { server, audience } = this.#parts;
    for (const ask of this.#open.values()) ask.withdraw(`Server "${server}" has ended.`);
    this.#errands.close(audience.capabilities.tasks?.cancel !== undefined);
  }

  #ask(request: Request, job: Job | undefined, record: Pending | undefined): void {
    const { server, audience, attribution } = this.#parts;
    const asked = readQuestion(server, request, audience.capabilities);
    const occasion = job === undefined ? record?.occasion : undefined;
    const holder = job?.origin.client ?? occasion?.attendee ?? attribution.of(request);
    const client = occasion ?? holder ?? this.#refuse();
    const isOfTask = asked.isTask || job !== undefined;
    if (asked.elicitation !== undefined && holder !== undefined) {
      this.#parts.elicited(asked.elicitation, holder);
    }
    this.#pose(request.id, client, asked, {
      client: holder,
      isForCall: job === undefined && this.#parts.isBusy(holder),
      isLimited: true,
      record: occasion && record,
      receive: isOfTask
        ? (body) => this.#errands.receive(body, job, asked, client)
        : (body) => ({ result: [body] }),
    });
  }

  /** Sends a request about one client task to the client that runs it. */
  #inquire(request: Request, method: TaskQuery): void {
    checkQuery(method, this.#parts.audience.capabilities);
    const asked = this.#errands.inquire(request, method);
    const { errand, client } = asked;
    this.#pose(request.id, client, asked, {
      client: undefined,
      isForCall: this.#parts.isBusy(undefined),
      record: undefined,
      // `tasks/result` is answered when the task has ended.
      isLimited: method !== TaskMethod.result,
      receive: (body) => this.#errands.answer(errand, method, body),
    });
  }

  #tellLack(needed: object, job: Job | undefined, occasion: Occasion | undefined): void {
    const { server, attribution } = this.#parts;
    if (job === undefined && occasion?.lacks !== undefined) occasion.lacks(needed);
    else (job?.origin.client ?? occasion?.attendee ?? attribution.client)?.lacks?.(server, needed);
  }

  #list(request: Request): void {
    checkQuery(request.method, this.#parts.audience.capabilities);
    this.#errands.list(request);
  }

  #pose(id: RequestId, client: Ask, asked: Asked, manner: Manner): void {
    const { server } = this.#parts;
    const { key } = id;
    if (this.#open.has(key)) {
      throw new HubError("invalidRequest", "A request with this id is still open.");
    }
    if (this.#open.size === MOST) {
      throw new HubError("notAsked", `More than ${MOST} requests are open.`, { server });
    }
    const ask = new OpenAsk(id, asked, manner, {
      ...this.#parts,
      release: () => this.#release(id, manner),
      over: () => void this.#open.delete(key),
    });
    this.#open.set(key, ask);
    this.#hold(id, manner);
    ask.run((question) => client.ask(question));
  }

  /**
   * Suspends the deadline of the call on whose stream the request came; if that is not known, of all calls of the
   * client.
   */
  #hold(id: RequestId, { record, client }: Manner): void {
    if (record !== undefined) {
      this.#held.set(id, record);
      record.halt?.(true);
      return;
    }
    this.#holding.set(id, client);
    this.#parts.halt(client, true);
  }

  #release(id: RequestId, { record, client }: Manner): void {
    if (record !== undefined) {
      if (this.#held.delete(id)) record.halt?.(false);
    } else if (this.#holding.delete(id)) {
      this.#parts.halt(client, false);
    }
  }

  #refuse(): never {
    const { server, audience } = this.#parts;
    const count = audience.clients().length;
    if (count === 0) {
      throw new HubError("notAsked", `There is no client that server "${server}" could ask.`);
    }
    const whom = count > 1 ? `one of the ${count} clients that share it` : "a client";
    const text = `Server "${server}" asks ${whom}, and it cannot be told which one, as it has not answered requests of others, or has none of any: it has to be one for each client (isolation = "perClient").`;
    this.#parts.complain(text);
    throw new HubError("notAsked", text, { server });
  }
}

/** How one request is handled. */
interface Manner {
  /** The client whose calls wait meanwhile; undefined: not known. */
  readonly client: Attendee | undefined;
  /** It came while calls of clients were in flight. */
  readonly isForCall: boolean;
  /** The client's request on whose response stream it came, if known. */
  readonly record: Pending | undefined;
  /** Ends with an error after `ANSWER_TIMEOUT`; if false, only the deadlines resume then. */
  readonly isLimited: boolean;
  /** Translates the client's result. */
  receive(body: Uint8Array): Receipt;
}

interface OpenParts extends Pick<AsksParts, "server" | "clock" | "send"> {
  /** Resumes the deadlines of the calls that wait. */
  release(): void;
  over(): void;
}

/** A request of the server's that is open. */
class OpenAsk implements Question {
  readonly server: string;
  readonly method: Asked["method"];
  readonly params: Asked["params"];
  readonly #id: RequestId;
  readonly #asked: Asked;
  readonly #manner: Manner;
  readonly #parts: OpenParts;
  #isOver = false;
  #disarm: () => void = () => {};
  #recall: (why: Withdrawal) => void = () => {};

  constructor(id: RequestId, asked: Asked, manner: Manner, parts: OpenParts) {
    this.#id = id;
    this.#asked = asked;
    this.#parts = parts;
    this.#manner = manner;
    this.server = parts.server;
    this.method = asked.method;
    this.params = (token) => asked.params(token);
  }

  get isForCall(): boolean {
    return this.#manner.isForCall;
  }

  get client(): Attendee | undefined {
    return this.#manner.client;
  }

  get record(): Pending | undefined {
    return this.#manner.record;
  }

  run(ask: (question: Question) => (why: Withdrawal) => void): void {
    this.#disarm = this.#parts.clock.after(LIMIT, () => {
      if (this.#manner.isLimited) this.end(`Nobody answered within ${LIMIT / 60_000} minutes.`);
      else this.#parts.release();
    });
    this.#recall = ask(this);
  }

  answer(outcome: Response["outcome"], body: Uint8Array): Errand | undefined {
    const { result, errand }: Receipt =
      outcome === "result" ? this.#manner.receive(body) : { result: [body] };
    this.#finish(buildResponse(this.#id, outcome, ...result));
    return errand;
  }

  fail(error: HubError): void {
    this.#finish(buildError(this.#id, error.toRpc()));
  }

  progress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { token } = this.#asked;
    if (token !== undefined) this.#parts.send(replaceRanges(notification, tokens, token));
  }

  /** Cancels it at the client; the server gets no response. */
  withdraw(why: Withdrawal): void {
    this.#recall(why);
    this.#finish(undefined);
  }

  /** Cancels it at the client; the server gets an error. */
  end(text: string): void {
    this.#recall(text);
    this.fail(new HubError("notAsked", text, { server: this.server }));
  }

  #finish(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#disarm();
    this.#parts.over();
    this.#parts.release();
    if (message !== undefined) this.#parts.send(message);
  }
}
