import { applyEdits, type Range } from "../bytes.ts";
import type { Clock } from "../clock.ts";
import { HubError, toHubError } from "../errors.ts";
import {
  buildAnswer,
  buildError,
  editsOf,
  type Id,
  type Message,
  type Notification,
  type Request,
  type Response,
} from "../wire/jsonrpc.ts";
import type { Question } from "./ask.ts";
import { type Audience, onlyOne } from "./audience.ts";
import { readCancelled } from "./notice.ts";
import type { Withdrawal } from "./pending.ts";
import { type Asked, neededFor, readQuestion } from "./question.ts";

export interface AsksParts {
  readonly server: string;
  readonly audience: Audience;
  readonly clock: Clock;
  send(message: Message): void;
  /** Whether the server is at work for clients. */
  isBusy(): boolean;
  /** `halted`: it waits for an answer; false: for none any more. */
  halt(halted: boolean): void;
  complain(text: string): void;
}

/** How long a person may take to answer, in ms. */
const LIMIT = 10 * 60_000;
/** So many may be open at a time. */
const MOST = 32;

/** What one server asks of its clients, from its request to the one answer that it gets. */
export class Asks {
  readonly #parts: AsksParts;
  /** By the key of the server's id. */
  readonly #open = new Map<string | number, OpenAsk>();

  constructor(parts: AsksParts) {
    this.#parts = parts;
  }

  get isOpen(): boolean {
    return this.#open.size > 0;
  }

  /** Asks the one client to whom it can only belong, or refuses. */
  take(request: Request): void {
    try {
      this.#ask(request);
    } catch (thrown) {
      const error = toHubError(thrown);
      const needed = neededFor(error);
      const { server, audience } = this.#parts;
      if (needed !== undefined) onlyOne(audience)?.lacks?.(server, needed);
      this.#parts.send(buildError(request.id.slice, error.toRpc()));
    }
  }

  /** The server does not want an answer any more. */
  cancel(notification: Notification): void {
    const cancelled = readCancelled(notification);
    if (cancelled === undefined) return;
    this.#open.get(cancelled.key)?.withdraw({ notification, ids: cancelled.ids });
  }

  /** Nobody waits for any of the server's work: what it asked for its sake is over. */
  abandon(): void {
    for (const ask of this.#open.values()) {
      if (ask.isForCall) ask.end("The call that it was for is over.");
    }
  }

  /** The server is gone. */
  close(): void {
    const { server } = this.#parts;
    for (const ask of this.#open.values()) ask.withdraw(`Server "${server}" has ended.`);
  }

  #ask(request: Request): void {
    const { server, audience } = this.#parts;
    const asked = readQuestion(server, request, audience.capabilities);
    const client = onlyOne(audience) ?? this.#refuse();
    const { key } = request.id;
    if (this.#open.has(key)) {
      throw new HubError("invalidRequest", "A request with this id is still open.");
    }
    if (this.#open.size === MOST) {
      throw new HubError("notAsked", `More than ${MOST} requests are open.`, { server });
    }
    const ask = new OpenAsk(request.id, asked, this.#parts.isBusy(), {
      ...this.#parts,
      over: () => {
        this.#open.delete(key);
        if (!this.isOpen) this.#parts.halt(false);
      },
    });
    this.#open.set(key, ask);
    if (this.#open.size === 1) this.#parts.halt(true);
    ask.run((question) => client.ask(question));
  }

  #refuse(): never {
    const { server, audience } = this.#parts;
    const count = audience.clients().length;
    if (count === 0) {
      throw new HubError("notAsked", `There is no client that server "${server}" could ask.`);
    }
    const text = `Server "${server}" asks one of the ${count} clients that share it, and it cannot be told which: it has to be one for each client (isolation = "perClient").`;
    this.#parts.complain(text);
    throw new HubError("notAsked", text, { server });
  }
}

interface OpenParts extends Pick<AsksParts, "server" | "clock" | "send"> {
  over(): void;
}

/** One of them. */
class OpenAsk implements Question {
  readonly server: string;
  readonly method: Asked["method"];
  /** It came while the server was at work for clients. */
  readonly isForCall: boolean;
  readonly params: Asked["params"];
  readonly #id: Id;
  readonly #asked: Asked;
  readonly #parts: OpenParts;
  #isOver = false;
  #disarm: () => void = () => {};
  #recall: (why: Withdrawal) => void = () => {};

  constructor(id: Id, asked: Asked, isForCall: boolean, parts: OpenParts) {
    this.#id = id;
    this.#asked = asked;
    this.#parts = parts;
    this.isForCall = isForCall;
    this.server = parts.server;
    this.method = asked.method;
    this.params = (token) => asked.params(token);
  }

  run(ask: (question: Question) => (why: Withdrawal) => void): void {
    this.#disarm = this.#parts.clock.after(LIMIT, () =>
      this.end(`Nobody answered within ${LIMIT / 60_000} minutes.`),
    );
    this.#recall = ask(this);
  }

  answer(outcome: Response["outcome"], body: Uint8Array): void {
    this.#finish(buildAnswer(this.#id.slice, outcome, body));
  }

  fail(error: HubError): void {
    this.#finish(buildError(this.#id.slice, error.toRpc()));
  }

  progress({ bytes }: Notification, tokens: readonly Range[]): void {
    const { token } = this.#asked;
    if (token !== undefined) this.#parts.send(applyEdits(bytes, editsOf(tokens, token)));
  }

  /** Nobody shall answer any more: the client is told, the server is not answered. */
  withdraw(why: Withdrawal): void {
    this.#recall(why);
    this.#finish(undefined);
  }

  /** Nobody will answer any more: the client is told, the server gets an error. */
  end(text: string): void {
    this.#recall(text);
    this.fail(new HubError("notAsked", text, { server: this.server }));
  }

  #finish(message: Message | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#disarm();
    this.#parts.over();
    if (message !== undefined) this.#parts.send(message);
  }
}
