import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { AuthorizationProgress, AuthChallenge } from "../transport/http/credentials.ts";

/** Options of one authorization run. */
export interface AuthorizationRun {
  /** Aborts the run. */
  readonly signal: AbortSignal;
  onProgress(progress: AuthorizationProgress): void;
}

/**
 * Obtains authorization for a server, interactively if needed.
 * @throws {HubError} unauthorized, or the signal's reason
 */
export type AuthorizeFunction = (challenge: AuthChallenge, run: AuthorizationRun) => Promise<void>;

export interface AuthorizationQueueOptions {
  readonly clock: Clock;
  readonly server: string;
  /** undefined: authorization cannot be obtained. */
  readonly authorize: AuthorizeFunction | undefined;
  onProgress(progress: AuthorizationProgress): void;
  onAuthorized(): void;
  /** Authorization failed. @param isFor401 the server had answered 401, so that no request works without it */
  onDenied(cause: HubError, isFor401: boolean): void;
}

/** How long one run, including the user's login, may take, in ms. */
const AUTHORIZATION_TIMEOUT = 120_000;
/**
 * For how long after a failure no new run begins, in ms, unless the user asks for one. Also the window of
 * `MAX_UNPROVEN_GRANTS`.
 */
const RETRY_PAUSE = 60_000;
/**
 * How many grants that the server did not accept are obtained within `RETRY_PAUSE`. More than one, because the first
 * may have shown that the server has changed its authorization server.
 */
const MAX_UNPROVEN_GRANTS = 2;

/** Runs the authorizations of one server, one at a time, and refuses new ones for a while after a failure. */
export class AuthorizationQueue {
  readonly #options: AuthorizationQueueOptions;
  /** The run in progress. */
  #current: AbortController | undefined;
  #lastFailure: { readonly cause: HubError; readonly at: number } | undefined;
  /** When grants were obtained that no successful connection has proved good yet, in ms of the clock. */
  #unprovenGrants: readonly number[] = [];

  constructor(options: AuthorizationQueueOptions) {
    this.#options = options;
  }

  /** Begins a run; its result is reported later through the options' callbacks. */
  begin(challenge: AuthChallenge): void {
    const isFor401 = challenge.status === 401;
    const error = this.#refusalError(isFor401);
    if (error === undefined) void this.#run(challenge, isFor401);
    else queueMicrotask(() => this.#options.onDenied(error, isFor401));
  }

  /** The user has declined the login. */
  decline(text: string): void {
    this.#current?.abort(this.#error(text));
  }

  /** Aborts the run; nothing is reported about it any more. */
  abort(): void {
    this.#current?.abort(this.#error("The authorization was given up."));
    this.#current = undefined;
  }

  /** The server has accepted the authorization. */
  onAccepted(): void {
    this.#unprovenGrants = [];
  }

  /** Forgets earlier failures, because the user has asked for a new attempt. */
  clearFailures(): void {
    this.#lastFailure = undefined;
    this.#unprovenGrants = [];
  }

  async #run(challenge: AuthChallenge, isFor401: boolean): Promise<void> {
    const { clock, authorize } = this.#options;
    const controller = new AbortController();
    this.#current = controller;
    const isCurrent = (): boolean => this.#current === controller;
    const text = `Nobody authorized it within ${AUTHORIZATION_TIMEOUT / 1000} seconds.`;
    const cancelTimer = clock.after(AUTHORIZATION_TIMEOUT, () =>
      controller.abort(this.#error(text)),
    );
    try {
      await authorize?.(challenge, {
        signal: controller.signal,
        onProgress: (progress) => {
          if (isCurrent()) this.#options.onProgress(progress);
        },
      });
      if (!isCurrent()) return;
      this.#current = undefined;
      if (isFor401) this.#unprovenGrants = [...this.#unprovenGrants, clock.now()];
      this.#options.onAuthorized();
    } catch (error) {
      if (!isCurrent()) return;
      this.#current = undefined;
      const cause = toHubError(error);
      this.#lastFailure = { cause, at: clock.now() };
      this.#options.onDenied(cause, isFor401);
    } finally {
      cancelTimer();
    }
  }

  #refusalError(isFor401: boolean): HubError | undefined {
    const { authorize, clock } = this.#options;
    if (authorize === undefined) return this.#error("There is none that it accepts.");
    const since = clock.now() - RETRY_PAUSE;
    if (this.#lastFailure !== undefined && this.#lastFailure.at > since)
      return this.#lastFailure.cause;
    if (isFor401 && this.#unprovenGrants.filter((at) => at > since).length >= MAX_UNPROVEN_GRANTS) {
      return this.#error("It does not accept the one that it has just been given.");
    }
    return undefined;
  }

  #error(text: string): HubError {
    const { server } = this.#options;
    const message = `Server "${server}" wants an authorization. ${text}`;
    return new HubError("unauthorized", message, { server, step: "authorize" });
  }
}
