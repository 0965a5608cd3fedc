import type { ByteRange } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { RelayedAnswer } from "../plugin/answer.ts";
import { describePluginFault, markHandled, isOwnError } from "../plugin/errors.ts";
import type { Answer } from "../plugin/plugin.ts";
import { Method } from "../protocol/legacy.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import type { ClientChannel, ClientRequest } from "../upstream/audience.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { EncodedMessage, Notification, Response } from "../jsonrpc/message.ts";
import { completeResultOf, readAnswer, toLegacyAnswer } from "./input-required.ts";
import { paramHeadersOf } from "./headers.ts";
import { serverGoneError } from "./timeouts.ts";
import { isRetryable, Retry } from "./retry.ts";
import { retryEditsOf } from "./rounds.ts";
import { UnfinishedCall } from "./sequel.ts";
import type { UpstreamRequestOwner } from "./traveller.ts";

type RequestOutcome = Response | { readonly kind: "failure"; readonly reason: HubError };

/**
 * One request of a plugin call at its server; a call may send several. It is also the promise of an answer that
 * `next()` returns: the actual Promise is created lazily. If no plugin awaits it, the response goes to the client as if
 * there were no plugins.
 */
export class PluginUpstreamRequest implements PendingRequest, SessionWaiter, Promise<Answer> {
  readonly method = Method.toolsCall;
  readonly isRelayed = true;
  readonly name: string;
  readonly #owner: UpstreamRequestOwner;
  readonly #rewrite: RequestRewrite;
  /** The arguments as JSON, if plugins have changed them. */
  readonly #changedArguments: string | undefined;
  #sent: { readonly session: Session; readonly id: number } | undefined;
  #waited = false;
  /** Sent, and not answered yet. */
  #isInFlight = false;
  #createdRetry: Retry | undefined;
  #unfinishedCall: UnfinishedCall | undefined;
  #isDeadlinePaused = false;
  #isOver = false;
  /** The response goes to the client directly, even if a plugin also reads it. */
  #isForwarded = false;
  #outcome: RequestOutcome | undefined;
  #promise: Promise<Answer> | undefined;
  #settlePromise: ((outcome: RequestOutcome) => void) | undefined;
  /** Removes the abort listener. */
  #removeAbortListener: (() => void) | undefined;

  /** @param changedArguments the arguments as JSON, if plugins have changed them; `rewrite` contains them, too */
  constructor(
    owner: UpstreamRequestOwner,
    rewrite: RequestRewrite,
    changedArguments: string | undefined,
  ) {
    this.#owner = owner;
    this.#rewrite = rewrite;
    this.#changedArguments = changedArguments;
    this.name = owner.route.remoteName;
  }

  get [Symbol.toStringTag](): string {
    return "Promise";
  }

  get sender(): ClientDeclaration {
    return this.#unfinishedCall?.sender ?? this.#owner.sender;
  }

  get channel(): ClientChannel | undefined {
    return this.#owner.channel;
  }

  get occasion(): ClientRequest {
    return this.#owner;
  }

  get mirrored(): Readonly<Record<string, string>> | undefined {
    return paramHeadersOf(this.#owner, this.#changedArguments);
  }

  get isSent(): boolean {
    return this.#sent !== undefined;
  }

  /** @param cancelSignals cancels the request when one of them is aborted */
  run(cancelSignals: readonly AbortSignal[]): void {
    if (cancelSignals.length > 0) this.#cancelOnAbort(AbortSignal.any([...cancelSignals]));
    if (this.#isOver) return;
    this.#owner.connection.withSession(this);
    this.#waited = this.#sent === undefined;
  }

  /** From now on, the response goes to the client directly. */
  forward(): void {
    this.#isForwarded = true;
    if (this.#outcome !== undefined) this.#forwardOutcome(this.#outcome);
  }

  onSession(session: Session): void {
    if (this.#isOver) return;
    const { route, connection, request } = this.#owner;
    if (this.#waited && !connection.lists("tools", route.remoteName)) {
      this.fail(serverGoneError(route));
      return;
    }
    const ownRewrite = session.mayRepeat
      ? retryEditsOf(this.#rewrite, this.#unfinishedCall)
      : this.#rewrite;
    this.#isInFlight = true;
    this.#sent = { session, id: session.relay(this, request, ownRewrite) };
  }

  get isTask(): boolean {
    return this.#owner.taskResultCall !== undefined;
  }

  onResponse(response: Response): void {
    if (this.#isOver) return;
    this.#isInFlight = false;
    const session = this.#sent?.session;
    const isRefused = session?.mayRepeat === true && response.outcome === "error";
    if (isRefused && this.#retry.handleHeaderMismatch(response)) return;
    const answer = session?.era === "modern" ? this.#readModern(session, response) : response;
    if (answer === undefined || (session?.era === "legacy" && this.#detectTask(session, answer)))
      return;
    this.#complete(session, answer);
  }

  fail(error: HubError): void {
    const reason =
      this.#isInFlight && !this.#isOver && isRetryable(error)
        ? this.#retry.handleError(error)
        : error;
    this.#isInFlight = false;
    if (reason !== undefined && this.#end()) this.#finish({ kind: "failure", reason });
  }

  onProgress(notification: Notification, tokens: readonly ByteRange[]): void {
    if (!this.#isOver) this.#owner.onProgress(notification, tokens);
  }

  log(severity: LogSeverity, message: EncodedMessage): void {
    if (!this.#isOver) this.#owner.log(severity, message);
  }

  setDeadlinePaused(paused: boolean): void {
    if (this.#isOver || paused === this.#isDeadlinePaused) return;
    this.#isDeadlinePaused = paused;
    this.#owner.setDeadlinePaused(paused);
  }

  /** The call does not need the response any more: cancels the request at the server. */
  cancel(cancelReason: CancelReason, reason: HubError): void {
    if (!this.#end()) return;
    this.#unfinishedCall?.cancel();
    if (this.#sent !== undefined) this.#sent.session.cancel(this.#sent.id, cancelReason);
    if (!this.#isInFlight) {
      this.#owner.connection.cancelWait(this);
    }
    this.#settleWith({ kind: "failure", reason });
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
        this.#settlePromise = (outcome) => {
          if (outcome.kind === "failure") reject(outcome.reason);
          else resolve(new RelayedAnswer(outcome));
        };
      });
      // Avoids an unhandled rejection if the plugin ignores the promise.
      this.#promise.catch(() => {});
      if (this.#outcome !== undefined) this.#settlePromise?.(this.#outcome);
    }
    return this.#promise;
  }

  #finish(outcome: RequestOutcome): void {
    if (this.#isForwarded) this.#forwardOutcome(outcome);
    this.#settleWith(outcome);
  }

  #forwardOutcome(outcome: RequestOutcome): void {
    if (outcome.kind === "failure") this.#owner.fail(outcome.reason);
    else this.#owner.onResponse(outcome);
  }

  /** Settles the promise, if it was created. */
  #settleWith(outcome: RequestOutcome): void {
    if (outcome.kind === "failure") markHandled(outcome.reason);
    this.#outcome = outcome;
    this.#settlePromise?.(outcome);
  }

  #complete(session: Session | undefined, answer: Response): void {
    if (!this.#end()) return;
    if (session !== undefined) this.#owner.recordLinks(session, answer);
    this.#finish(answer);
  }

  /** @returns a modern server's response as a legacy one; undefined if it is not complete */
  #readModern(session: Session, response: Response): Response | undefined {
    const { sender } = this;
    const { route, request, caller, deadlines, connection } = this.#owner;
    const { server } = route;
    const answer = readAnswer(response, {
      server,
      method: this.method,
      sender,
      isUnchanged: false,
    });
    if (answer instanceof HubError) {
      this.fail(answer);
      return undefined;
    }
    if (answer.kind === "complete") {
      if (answer.response.outcome === "result") this.#unfinishedCall?.finish();
      return toLegacyAnswer(answer);
    }
    this.#unfinishedCall ??= new UnfinishedCall({
      server,
      request,
      caller,
      deadlines,
      setDeadlinePaused: (halted) => this.setDeadlinePaused(halted),
      restartTimeout: () => this.#owner.restartTimeout(),
      resend: () => connection.withSession(this),
      onResponse: (final) =>
        this.#complete(session, toLegacyAnswer(completeResultOf(final, undefined))),
      fail: (error) => this.fail(error),
    });
    this.#unfinishedCall.continueCall(session, answer);
    return undefined;
  }

  /** @returns whether the response created a task, whose result is delivered later */
  #detectTask(session: Session, answer: Response): boolean {
    const { taskResultCall } = this.#owner;
    if (taskResultCall === undefined) return false;
    // Server requests that belong to the task do not pause the deadline.
    this.setDeadlinePaused(false);
    return taskResultCall.detectTask(this, session, answer);
  }

  get #retry(): Retry {
    const { deadlines, connection, route } = this.#owner;
    const { method } = this;
    const resend = (): void => {
      this.#waited = true;
      connection.withSession(this);
    };
    this.#createdRetry ??= new Retry({ deadlines, connection, route, method, resend });
    return this.#createdRetry;
  }

  #cancelOnAbort(signal: AbortSignal): void {
    const onAbort = (): void => {
      if (this.#isOver) return;
      const reason = pluginCancelError(signal.reason);
      this.cancel("Cancelled by a plugin of the hub.", reason);
      if (this.#isForwarded) this.#owner.fail(reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    this.#removeAbortListener = () => signal.removeEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
  }

  /** @returns false if it has ended before */
  #end(): boolean {
    if (this.#isOver) return false;
    this.setDeadlinePaused(false);
    this.#isOver = true;
    this.#createdRetry?.cancel();
    this.#removeAbortListener?.();
    this.#owner.onRequestEnd(this);
    return true;
  }
}

function pluginCancelError(reason: unknown): HubError {
  if (isOwnError(reason)) return reason;
  const text = `A plugin of the hub cancelled the call: ${describePluginFault(reason, undefined).message}`;
  return new HubError("cancelled", text, { cause: reason });
}
