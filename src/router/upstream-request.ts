import type { ListedItem } from "../catalog/listing.ts";
import { isNamed } from "../catalog/shape.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import type { PendingRequest } from "../upstream/pending.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { EncodedMessage, Response } from "../jsonrpc/message.ts";
import { Call, type CallParts } from "./call.ts";
import {
  asItIs,
  type Complete,
  completeOf,
  readAnswer,
  toLegacy,
  type Unfinished,
} from "./input-required.ts";
import { headersOf } from "./headers.ts";
import { explainUnready, goneError } from "./timeouts.ts";
import type { CallEnd } from "./ledger.ts";
import { isUnanswered, Replay } from "./retry.ts";
import { repeat } from "./rounds.ts";
import { Sequel } from "./sequel.ts";

type Place =
  | { readonly at: "waiting" }
  | { readonly at: "sent"; readonly session: Session; readonly id: number }
  /** The server has answered with `input_required` or a task. */
  | { readonly at: "unfinished"; readonly sequel: Sequel }
  | { readonly at: "done" };
const WAITING: Place = { at: "waiting" };
const DONE: Place = { at: "done" };

/**
 * A call that no plugin sees: one request at the server, whose response goes straight to the client. It is itself the
 * record of the pending request.
 */
export class RelayedCall extends Call<CallParts> implements PendingRequest, SessionWaiter {
  #place: Place = WAITING;
  #sequel: Sequel | undefined;
  /** Created at the first retry; stdio transports never retry. */
  #replay: Replay | undefined;
  /** The request was not sent at once, so its tool may be known from a saved listing only. */
  #waited = false;

  get isRelayed(): true {
    return true;
  }

  get method(): string {
    return this.parts.request.method;
  }

  get name(): string {
    return this.parts.route.remoteName;
  }

  enter(session: Session): void {
    if (this.#place.at !== "waiting") return;
    const { route, connection, request, rewrite } = this.parts;
    const { kind } = route;
    if (this.#waited && isNamed(kind) && !connection.lists(kind, route.remoteName)) {
      this.fail(goneError(route));
      return;
    }
    const whole = session.mayRepeat ? repeat(rewrite, this.#sequel) : rewrite;
    this.#place = { at: "sent", session, id: session.relay(this, request, whole) };
  }

  get sender(): ClientDeclaration {
    return this.#sequel?.sender ?? this.parts.caller.sender;
  }

  get occasion(): this {
    return this;
  }

  get mirrored(): Readonly<Record<string, string>> | undefined {
    return headersOf(this.parts);
  }

  override fail(error: HubError): void {
    const cause =
      this.#place.at === "sent" && isUnanswered(error) ? this.#again.refuse(error) : error;
    if (cause === undefined) this.#place = WAITING;
    else super.fail(cause);
  }

  settle(response: Response): void {
    if (this.#place.at !== "sent") return;
    const { session } = this.#place;
    const { caller } = this.parts;
    if (session.mayRepeat && response.outcome === "error" && this.#again.corrects(response)) {
      this.#place = WAITING;
      return;
    }
    const named = this.renameUris(response);
    if (session.era === "legacy") {
      this.learn(session, named);
      this.finish(caller.address(named, "legacy"), "answered");
      return;
    }
    const answer = this.#read(session, named);
    if (answer === undefined) return;
    this.learn(session, answer.response);
    this.finish(caller.address(answer.response, "modern", answer.edits), "answered");
  }

  protected begin(): void {
    this.parts.connection.withSession(this);
    this.#waited = this.#place === WAITING;
  }

  protected withdraw(why: Withdrawal): void {
    if (this.#place.at === "sent") this.#place.session.cancel(this.#place.id, why);
    else if (this.#place.at === "waiting") this.parts.connection.cancelWait(this);
    else if (this.#place.at === "unfinished") this.#place.sequel.withdraw();
  }

  protected explainWait(seconds: number): string | undefined {
    return this.#place.at === "waiting" && this.#sequel === undefined
      ? explainUnready(seconds, this.parts.connection)
      : undefined;
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    this.#place = DONE;
    this.#replay?.end();
    super.finish(message, end);
  }

  get #again(): Replay {
    const { deadlines, connection, route } = this.parts;
    this.#replay ??= new Replay({
      deadlines,
      connection,
      route,
      method: this.method,
      again: () => {
        this.#waited = true;
        connection.withSession(this);
      },
    });
    return this.#replay;
  }

  /** @returns a modern server's response; undefined if it is not complete */
  #read(session: Session, response: Response): Complete | undefined {
    const { sender, method } = this;
    const { server } = this.parts.route;
    const isPlain = sender.era === "modern";
    const tool = this.#tool;
    const answer = readAnswer(response, { server, method, sender, isPlain, tool });
    if (answer instanceof HubError) {
      this.fail(answer);
      return undefined;
    }
    if (answer.kind !== "complete") return this.#goOn(session, answer);
    if (answer.response.outcome === "result") this.#sequel?.finish();
    return answer;
  }

  /** The tool, if its structured output goes to a legacy client. */
  get #tool(): ListedItem | undefined {
    const { route } = this.parts;
    return route.kind === "tools" && this.sender.era === "legacy" ? route.item : undefined;
  }

  /**
   * @returns the response that announces a task, for a client that supports tasks; undefined if the hub completes the
   * call
   */
  #goOn(session: Session, unfinished: Unfinished): Complete | undefined {
    const { route, request, caller, deadlines, connection } = this.parts;
    if (unfinished.kind === "task") {
      try {
        const told = caller.keep?.(unfinished.response, { session, connection, route });
        if (told !== undefined) return asItIs(told);
      } catch (error) {
        this.fail(toHubError(error));
        return undefined;
      }
    }
    const sequel = (this.#sequel ??= new Sequel({
      server: route.server,
      request,
      caller,
      deadlines,
      halt: (halted) => this.halt(halted),
      touch: () => this.touch(),
      again: () => {
        this.#place = WAITING;
        connection.withSession(this);
      },
      settle: (answer) => {
        const named = this.renameUris(answer);
        this.learn(session, named);
        const final = toLegacy(completeOf(named, this.#tool));
        this.finish(caller.address(final, "legacy"), "answered");
      },
      fail: (error) => this.fail(error),
    }));
    this.#place = { at: "unfinished", sequel };
    sequel.begin(session, unfinished);
    return undefined;
  }
}
