import { type Piece, makeSlice, utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { lastMember } from "../base/json.ts";
import { readTicket, TicketMethod, type TicketStanding } from "../protocol/extension.ts";
import { membersAt } from "../protocol/tasks.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import { cancelServerTask, type OpenTask, readCreatedModernTask } from "../upstream/ticket.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { buildResponse, buildRequestOf, type Response, joinMessage } from "../jsonrpc/message.ts";
import { readInputs, responseOf } from "./input-required.ts";
import { pose, type RoundParts } from "./rounds.ts";

export interface PursuitParts extends RoundParts {
  readonly sender: ClientDeclaration;
  /** The task has made progress: restarts the call's timeout. */
  touch(): void;
  /** The call's response. */
  settle(response: Response): void;
  fail(error: HubError): void;
}

/** Polling interval in ms: lower and upper bound of the server's `pollIntervalMs`, and the default. */
const INTERVAL = { least: 250, most: 30_000, usual: 1000 };

/** Polls a task that a server created for a call until it ends, for a client that does not support tasks. */
export class Pursuit implements OpenTask {
  readonly #session: Session;
  readonly #parts: PursuitParts;
  /** Keys of inputs that were requested of the client: the server may repeat them until it has processed the answer. */
  readonly #answered = new Set<string>();
  readonly #end = new AbortController();
  #taskId = "";
  #isOver = false;
  #withdrawRound: () => void = () => {};
  #wake: () => void = () => {};

  constructor(session: Session, parts: PursuitParts) {
    this.#session = session;
    this.#parts = parts;
  }

  /** @param answer the result that announced the task */
  begin(answer: Response): void {
    const made = readCreatedModernTask(answer);
    if (made === undefined) {
      this.#parts.fail(this.#misstep("has made a task of the call, but does not say which."));
      return;
    }
    this.#taskId = made.task.id;
    const { tickets } = this.#session.subscriptions ?? {};
    tickets?.open(this);
    void this.#follow(made.standing).then(
      (final) => this.#finish(() => this.#parts.settle(final)),
      (error: unknown) => this.#finish(() => this.#parts.fail(toHubError(error))),
    );
  }

  /** The call is over: cancels the task at the server. */
  withdraw(): void {
    if (this.#isOver || this.#taskId === "") return;
    this.#close();
    this.#withdrawRound();
    cancelServerTask(this.#session, this.#taskId);
  }

  /** The next poll tells whether the task has survived its session. */
  lost(): void {
    this.#wake();
  }

  /** @returns the call's response */
  async #follow(standing: TicketStanding): Promise<Response> {
    let { mark, interval } = standing;
    // Input requests are in the status only, so it is polled at once.
    let isUrgent = standing.isOver || standing.status === "input_required";
    for (;;) {
      if (!isUrgent) await this.#pause(interval);
      const seen = await this.#ask();
      if (seen.outcome === "error") return seen;
      const members = membersAt(seen.bytes, seen.body);
      const now = readTicket(seen.bytes, members);
      if (now.isOver) return this.#read(seen, now);
      if (now.mark !== mark) this.#parts.touch();
      ({ mark, interval } = now);
      isUrgent = now.status === "input_required" && (await this.#inquire(seen));
    }
  }

  #pause(interval = INTERVAL.usual): Promise<void> {
    const ms = Math.min(Math.max(interval, INTERVAL.least), INTERVAL.most);
    const { signal } = this.#end;
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        disarm();
        reject(signal.reason);
      };
      const wake = (): void => {
        disarm();
        signal.removeEventListener("abort", abort);
        resolve();
      };
      const disarm = this.#parts.deadlines.after(ms, wake);
      this.#wake = wake;
      signal.addEventListener("abort", abort, { once: true });
    });
  }

  #ask(): Promise<Response> {
    return this.#session.ask(TicketMethod.get, { taskId: this.#taskId }, this.#end.signal);
  }

  #read({ bytes, body }: Response, { status }: TicketStanding): Response {
    const outcome = status === "failed" ? "error" : "result";
    const found = lastMember(membersAt(bytes, body), outcome);
    const answer =
      status === "cancelled" || found === undefined
        ? undefined
        : responseOf(buildResponse("0", outcome, makeSlice(bytes, found.start, found.end)));
    if (answer !== undefined) return answer;
    throw status === "cancelled"
      ? new HubError("cancelled", `Server "${this.#parts.server}" has cancelled the call.`)
      : this.#misstep(`has brought the call to its end, but does not say to which.`);
  }

  /**
   * Sends the server's input requests to the client.
   * @returns whether there were new ones
   */
  async #inquire({ bytes, body }: Response): Promise<boolean> {
    const required = readInputs({ bytes, body });
    const inputs = (required?.inputs ?? []).filter(({ key }) => !this.#answered.has(key));
    if (required === undefined || inputs.length === 0) return false;
    for (const { key } of inputs) this.#answered.add(key);
    try {
      const answers = await new Promise<ReadonlyMap<string, Uint8Array>>((answered, failed) => {
        this.#withdrawRound = pose(this.#parts, { ...required, inputs }, { answered, failed });
      });
      await this.#update(answers);
    } catch (error) {
      if (!this.#isOver) cancelServerTask(this.#session, this.#taskId);
      throw error;
    }
    return true;
  }

  /** Sends `tasks/update` with the client's answers, byte for byte. */
  #update(answers: ReadonlyMap<string, Uint8Array>): Promise<void> {
    const taskId = this.#taskId;
    const pieces: Piece[] = [utf8(`{"taskId":${JSON.stringify(taskId)},"inputResponses":{`)];
    let comma = "";
    for (const [key, answer] of answers) {
      pieces.push(utf8(`${comma}${JSON.stringify(key)}:`), answer);
      comma = ",";
    }
    const method = TicketMethod.update;
    const ask = parseMessage(joinMessage(buildRequestOf("0", method, [...pieces, "}}"])));
    const { info, declared } = this.#parts.sender;
    const sender = { era: "legacy", info, declared, level: undefined, isDriven: true } as const;
    return new Promise((resolve, fail) => {
      if (ask.kind !== "request") {
        fail(this.#misstep("asks for what cannot be answered."));
        return;
      }
      const settle = ({ outcome }: Response): void => {
        if (outcome === "result") resolve();
        else fail(this.#misstep("did not take what it had asked for."));
      };
      const record = { method, name: taskId, sender, settle, fail, progress: () => {} };
      this.#session.relay(record, ask, { edits: [], tokens: [] });
    });
  }

  #finish(tell: () => void): void {
    if (this.#isOver) return;
    this.#close();
    tell();
  }

  #close(): void {
    this.#isOver = true;
    this.#session.subscriptions?.tickets.close(this);
    this.#end.abort(new HubError("cancelled", "The call is over."));
  }

  #misstep(what: string): HubError {
    const { server } = this.#parts;
    return new HubError("internal", `Server "${server}" ${what}`, { server });
  }
}
