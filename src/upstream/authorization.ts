import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { Authorization, Challenge } from "../transport/http/credentials.ts";

/** Options of one authorization run. */
export interface Passage {
  /** Aborts the run. */
  readonly signal: AbortSignal;
  progressed(progress: Authorization): void;
}

/**
 * Obtains authorization for a server, interactively if needed.
 * @throws {HubError} unauthorized, or the signal's reason
 */
export type Authorize = (challenge: Challenge, passage: Passage) => Promise<void>;

export interface AdmissionParts {
  readonly clock: Clock;
  readonly server: string;
  /** undefined: authorization cannot be obtained. */
  readonly authorize: Authorize | undefined;
  progressed(progress: Authorization): void;
  authorized(): void;
  /** Authorization failed. @param isFor401 the server had answered 401, so that no request works without it */
  denied(cause: HubError, isForAll: boolean): void;
}

/** How long one run, including the user's login, may take, in ms. */
const LIMIT = 120_000;
/**
 * For how long after a failure no new run begins, in ms, unless the user asks for one. Also the window of
 * `MAX_UNPROVEN_GRANTS`.
 */
const PAUSE = 60_000;
/**
 * How many grants that the server did not accept are obtained within `RETRY_PAUSE`. More than one, because the first
 * may have shown that the server has changed its authorization server.
 */
const MOST = 2;

/** Runs the authorizations of one server, one at a time, and refuses new ones for a while after a failure. */
export class Admission {
  readonly #parts: AdmissionParts;
  /** The run in progress. */
  #present: AbortController | undefined;
  #refused: { readonly cause: HubError; readonly at: number } | undefined;
  /** When grants were obtained that no successful connection has proved good yet, in ms of the clock. */
  #grants: readonly number[] = [];

  constructor(parts: AdmissionParts) {
    this.#parts = parts;
  }

  /** Begins a run; its result is reported later through the options' callbacks. */
  begin(challenge: Challenge): void {
    const isForAll = challenge.status === 401;
    const refusal = this.#refusal(isForAll);
    if (refusal === undefined) void this.#get(challenge, isForAll);
    else queueMicrotask(() => this.#parts.denied(refusal, isForAll));
  }

  /** The user has declined the login. */
  refuse(text: string): void {
    this.#present?.abort(this.#error(text));
  }

  /** Aborts the run; nothing is reported about it any more. */
  end(): void {
    this.#present?.abort(this.#error("The authorization was given up."));
    this.#present = undefined;
  }

  /** The server has accepted the authorization. */
  prove(): void {
    this.#grants = [];
  }

  /** Forgets earlier failures, because the user has asked for a new attempt. */
  forgive(): void {
    this.#refused = undefined;
    this.#grants = [];
  }

  async #get(challenge: Challenge, isForAll: boolean): Promise<void> {
    const { clock, authorize } = this.#parts;
    const present = new AbortController();
    this.#present = present;
    const isPresent = (): boolean => this.#present === present;
    const text = `Nobody authorized it within ${LIMIT / 1000} seconds.`;
    const undo = clock.after(LIMIT, () => present.abort(this.#error(text)));
    try {
      await authorize?.(challenge, {
        signal: present.signal,
        progressed: (progress) => {
          if (isPresent()) this.#parts.progressed(progress);
        },
      });
      if (!isPresent()) return;
      this.#present = undefined;
      if (isForAll) this.#grants = [...this.#grants, clock.now()];
      this.#parts.authorized();
    } catch (error) {
      if (!isPresent()) return;
      this.#present = undefined;
      const cause = toHubError(error);
      this.#refused = { cause, at: clock.now() };
      this.#parts.denied(cause, isForAll);
    } finally {
      undo();
    }
  }

  #refusal(isForAll: boolean): HubError | undefined {
    const { authorize, clock } = this.#parts;
    if (authorize === undefined) return this.#error("There is none that it accepts.");
    const since = clock.now() - PAUSE;
    if (this.#refused !== undefined && this.#refused.at > since) return this.#refused.cause;
    if (isForAll && this.#grants.filter((at) => at > since).length >= MOST) {
      return this.#error("It does not accept the one that it has just been given.");
    }
    return undefined;
  }

  #error(text: string): HubError {
    const { server } = this.#parts;
    const whole = `Server "${server}" wants an authorization. ${text}`;
    return new HubError("unauthorized", whole, { server, step: "authorize" });
  }
}
