import { isNamed } from "../catalog/shape.ts";
import { HubError } from "../errors.ts";
import type { Visitor } from "../upstream/connection.ts";
import type { Pending, Withdrawal } from "../upstream/pending.ts";
import type { Sender } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { Message, Response } from "../wire/jsonrpc.ts";
import { Call, type CallParts } from "./call.ts";
import { type Complete, readAnswer } from "./inputs.ts";
import { explainUnready, goneError } from "./late.ts";
import type { CallEnd } from "./ledger.ts";
import { repeat, Rounds } from "./rounds.ts";

type Place =
  | { readonly at: "waiting" }
  | { readonly at: "sent"; readonly session: Session; readonly id: number }
  /** The server wants to know more first. */
  | { readonly at: "asking"; readonly rounds: Rounds }
  | { readonly at: "done" };
const WAITING: Place = { at: "waiting" };
const DONE: Place = { at: "done" };

/** A call that goes straight to the server, and whose answer comes straight back: the one record of it. */
export class RelayedCall extends Call<CallParts> implements Pending, Visitor {
  readonly method: string;
  readonly isRelayed = true;
  readonly name: string;
  #place: Place = WAITING;
  #rounds: Rounds | undefined;
  /** It was not sent at once: its tool may be known only from an older listing. */
  #waited = false;

  constructor(parts: CallParts) {
    super(parts);
    this.method = parts.request.method;
    this.name = parts.route.remoteName;
  }

  enter(session: Session): void {
    if (this.#place.at !== "waiting") return;
    const { route, connection, request, rewrite } = this.parts;
    const { kind } = route;
    if (this.#waited && isNamed(kind) && !connection.lists(kind, route.remoteName)) {
      this.fail(goneError(route));
      return;
    }
    const whole = session.era === "legacy" ? rewrite : repeat(rewrite, this.#rounds);
    this.#place = { at: "sent", session, id: session.relay(this, request, whole) };
  }

  get sender(): Sender {
    return this.parts.caller.sender;
  }

  settle(response: Response): void {
    if (this.#place.at !== "sent") return;
    const { session } = this.#place;
    const { caller } = this.parts;
    if (session.era === "legacy") {
      this.learn(session, response);
      this.finish(caller.address(response, "legacy"), "answered");
      return;
    }
    const answer = this.#read(response);
    if (answer === undefined) return;
    this.learn(session, answer.response);
    this.finish(caller.address(answer.response, "modern", answer.edits), "answered");
  }

  protected begin(): void {
    this.parts.connection.visit(this);
    this.#waited = this.#place === WAITING;
  }

  protected withdraw(why: Withdrawal): void {
    if (this.#place.at === "sent") this.#place.session.cancel(this.#place.id, why);
    else if (this.#place.at === "waiting") this.parts.connection.leave(this);
    else if (this.#place.at === "asking") this.#place.rounds.withdraw();
  }

  protected explainWait(seconds: number): string | undefined {
    return this.#place.at === "waiting" && this.#rounds === undefined
      ? explainUnready(seconds)
      : undefined;
  }

  protected override finish(message: Message | undefined, end: CallEnd): void {
    this.#place = DONE;
    super.finish(message, end);
  }

  /** @returns the answer of a server of the modern era, once it is one. */
  #read(response: Response): Complete | undefined {
    const { route, request, caller, deadlines } = this.parts;
    const { server } = route;
    const { sender } = caller;
    const isPlain = sender.era === "modern";
    const tool = route.kind === "tools" ? route.item : undefined;
    const answer = readAnswer(response, { server, method: this.method, sender, isPlain, tool });
    if (answer instanceof HubError) {
      this.fail(answer);
      return undefined;
    }
    if (answer.kind === "complete") {
      if (answer.response.outcome === "result") this.#rounds?.finish();
      return answer;
    }
    const rounds = (this.#rounds ??= new Rounds({
      server,
      request,
      caller,
      deadlines,
      halt: (halted) => this.halt(halted),
      again: () => {
        this.#place = WAITING;
        this.parts.connection.visit(this);
      },
      fail: (error) => this.fail(error),
    }));
    this.#place = { at: "asking", rounds };
    rounds.begin(answer);
    return undefined;
  }
}
