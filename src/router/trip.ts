import type { ByteRange } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { RelayedAnswer } from "../plugin/answer.ts";
import { describeFault, entrust, isOwnError } from "../plugin/errors.ts";
import type { Answer } from "../plugin/plugin.ts";
import { Method } from "../protocol/legacy.ts";
import type { Severity } from "../protocol/log-level.ts";
import type { ClientChannel, ClientRequest } from "../upstream/audience.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { EncodedMessage, Notification, Response } from "../jsonrpc/message.ts";
import { completeOf, readAnswer, toLegacy } from "./input-required.ts";
import { headersOf } from "./headers.ts";
import { goneError } from "./timeouts.ts";
import { isUnanswered, Replay } from "./retry.ts";
import { repeat } from "./rounds.ts";
import { Sequel } from "./sequel.ts";
import type { Traveller } from "./traveller.ts";

type Outcome = Response | { readonly kind: "failure"; readonly reason: HubError };

/**
 * One request of a plugin call at its server; a call may send several. It is also the promise of an answer that
 * `next()` returns: the actual Promise is created lazily. If no plugin awaits it, the response goes to the client as if
 * there were no plugins.
 */
export class Trip implements PendingRequest, SessionWaiter, Promise<Answer> {
  readonly method = Method.toolsCall;
  readonly isRelayed = true;
  readonly name: string;
  readonly #traveller: Traveller;
  readonly #rewrite: RequestRewrite;
  /** The arguments as JSON, if plugins have changed them. */
  readonly #changed: string | undefined;
  #sent: { readonly session: Session; readonly id: number } | undefined;
  #waited = false;
  /** Sent, and not answered yet. */
  #isAway = false;
  #replay: Replay | undefined;
  #sequel: Sequel | undefined;
  #isHalted = false;
  #isOver = false;
  /** The response goes to the client directly, even if a plugin also reads it. */
  #isDirect = false;
  #outcome: Outcome | undefined;
  #promise: Promise<Answer> | undefined;
  #settle: ((outcome: Outcome) => void) | undefined;
  /** Removes the abort listener. */
  #undo: (() => void) | undefined;

  /** @param changedArguments the arguments as JSON, if plugins have changed them; `rewrite` contains them, too */
  constructor(traveller: Traveller, rewrite: RequestRewrite, changed: string | undefined) {
    this.#traveller = traveller;
    this.#rewrite = rewrite;
    this.#changed = changed;
    this.name = traveller.route.remoteName;
  }

  get [Symbol.toStringTag](): string {
    return "Promise";
  }

  get sender(): ClientDeclaration {
    return this.#sequel?.sender ?? this.#traveller.sender;
  }

  get channel(): ClientChannel | undefined {
    return this.#traveller.channel;
  }

  get occasion(): ClientRequest {
    return this.#traveller;
  }

  get mirrored(): Readonly<Record<string, string>> | undefined {
    return headersOf(this.#traveller, this.#changed);
  }

  get isSent(): boolean {
    return this.#sent !== undefined;
  }

  /** @param cancelSignals cancels the request when one of them is aborted */
  run(limits: readonly AbortSignal[]): void {
    if (limits.length > 0) this.#watch(AbortSignal.any([...limits]));
    if (this.#isOver) return;
    this.#traveller.connection.withSession(this);
    this.#waited = this.#sent === undefined;
  }

  /** From now on, the response goes to the client directly. */
  direct(): void {
    this.#isDirect = true;
    if (this.#outcome !== undefined) this.#pass(this.#outcome);
  }

  enter(session: Session): void {
    if (this.#isOver) return;
    const { route, connection, request } = this.#traveller;
    if (this.#waited && !connection.lists("tools", route.remoteName)) {
      this.fail(goneError(route));
      return;
    }
    const whole = session.mayRepeat ? repeat(this.#rewrite, this.#sequel) : this.#rewrite;
    this.#isAway = true;
    this.#sent = { session, id: session.relay(this, request, whole) };
  }

  get isTask(): boolean {
    return this.#traveller.detour !== undefined;
  }

  settle(response: Response): void {
    if (this.#isOver) return;
    this.#isAway = false;
    const session = this.#sent?.session;
    const isRefused = session?.mayRepeat === true && response.outcome === "error";
    if (isRefused && this.#again.corrects(response)) return;
    const answer = session?.era === "modern" ? this.#read(session, response) : response;
    if (answer === undefined || (session?.era === "legacy" && this.#hands(session, answer))) return;
    this.#arrive(session, answer);
  }

  fail(error: HubError): void {
    const reason =
      this.#isAway && !this.#isOver && isUnanswered(error) ? this.#again.refuse(error) : error;
    this.#isAway = false;
    if (reason !== undefined && this.#end()) this.#finish({ kind: "failure", reason });
  }

  progress(notification: Notification, tokens: readonly ByteRange[]): void {
    if (!this.#isOver) this.#traveller.progress(notification, tokens);
  }

  log(severity: Severity, message: EncodedMessage): void {
    if (!this.#isOver) this.#traveller.log(severity, message);
  }

  halt(halted: boolean): void {
    if (this.#isOver || halted === this.#isHalted) return;
    this.#isHalted = halted;
    this.#traveller.halt(halted);
  }

  /** The call does not need the response any more: cancels the request at the server. */
  giveUp(why: Withdrawal, reason: HubError): void {
    if (!this.#end()) return;
    this.#sequel?.withdraw();
    if (this.#sent !== undefined) this.#sent.session.cancel(this.#sent.id, why);
    if (!this.#isAway) {
      this.#traveller.connection.cancelWait(this);
    }
    this.#tell({ kind: "failure", reason });
  }

  // oxlint-disable-next-line unicorn/no-thenable -- it is a promise
  then<A = Answer, B = never>(
    onAnswer?: ((answer: Answer) => A | PromiseLike<A>) | null,
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#asPromise().then(onAnswer, onFailure);
  }

  catch<B = never>(
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<Answer | B> {
    return this.#asPromise().catch(onFailure);
  }

  finally(onEnd?: (() => void) | null): Promise<Answer> {
    return this.#asPromise().finally(onEnd);
  }

  #asPromise(): Promise<Answer> {
    if (this.#promise === undefined) {
      this.#promise = new Promise((resolve, reject) => {
        this.#settle = (outcome) => {
          if (outcome.kind === "failure") reject(outcome.reason);
          else resolve(new RelayedAnswer(outcome));
        };
      });
      // Avoids an unhandled rejection if the plugin ignores the promise.
      this.#promise.catch(() => {});
      if (this.#outcome !== undefined) this.#settle?.(this.#outcome);
    }
    return this.#promise;
  }

  #finish(outcome: Outcome): void {
    if (this.#isDirect) this.#pass(outcome);
    this.#tell(outcome);
  }

  #pass(outcome: Outcome): void {
    if (outcome.kind === "failure") this.#traveller.fail(outcome.reason);
    else this.#traveller.settle(outcome);
  }

  /** Settles the promise, if it was created. */
  #tell(outcome: Outcome): void {
    if (outcome.kind === "failure") entrust(outcome.reason);
    this.#outcome = outcome;
    this.#settle?.(outcome);
  }

  #arrive(session: Session | undefined, answer: Response): void {
    if (!this.#end()) return;
    if (session !== undefined) this.#traveller.learn(session, answer);
    this.#finish(answer);
  }

  /** @returns a modern server's response as a legacy one; undefined if it is not complete */
  #read(session: Session, response: Response): Response | undefined {
    const { sender } = this;
    const { route, request, caller, deadlines, connection } = this.#traveller;
    const { server } = route;
    const answer = readAnswer(response, { server, method: this.method, sender, isPlain: false });
    if (answer instanceof HubError) {
      this.fail(answer);
      return undefined;
    }
    if (answer.kind === "complete") {
      if (answer.response.outcome === "result") this.#sequel?.finish();
      return toLegacy(answer);
    }
    this.#sequel ??= new Sequel({
      server,
      request,
      caller,
      deadlines,
      halt: (halted) => this.halt(halted),
      touch: () => this.#traveller.touch(),
      again: () => connection.withSession(this),
      settle: (final) => this.#arrive(session, toLegacy(completeOf(final, undefined))),
      fail: (error) => this.fail(error),
    });
    this.#sequel.begin(session, answer);
    return undefined;
  }

  /** @returns whether the response created a task, whose result is delivered later */
  #hands(session: Session, answer: Response): boolean {
    const { detour } = this.#traveller;
    if (detour === undefined) return false;
    // Server requests that belong to the task do not pause the deadline.
    this.halt(false);
    return detour.takes(this, session, answer);
  }

  get #again(): Replay {
    const { deadlines, connection, route } = this.#traveller;
    const { method } = this;
    const again = (): void => {
      this.#waited = true;
      connection.withSession(this);
    };
    this.#replay ??= new Replay({ deadlines, connection, route, method, again });
    return this.#replay;
  }

  #watch(limit: AbortSignal): void {
    const give = (): void => {
      if (this.#isOver) return;
      const reason = cancelledBy(limit.reason);
      this.giveUp("Cancelled by a plugin of the hub.", reason);
      if (this.#isDirect) this.#traveller.fail(reason);
    };
    limit.addEventListener("abort", give, { once: true });
    this.#undo = () => limit.removeEventListener("abort", give);
    if (limit.aborted) give();
  }

  /** @returns false if it has ended before */
  #end(): boolean {
    if (this.#isOver) return false;
    this.halt(false);
    this.#isOver = true;
    this.#replay?.end();
    this.#undo?.();
    this.#traveller.arrived(this);
    return true;
  }
}

function cancelledBy(reason: unknown): HubError {
  if (isOwnError(reason)) return reason;
  const text = `A plugin of the hub cancelled the call: ${describeFault(reason, undefined).fault}`;
  return new HubError("cancelled", text, { cause: reason });
}
