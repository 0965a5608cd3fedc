import type { Clock } from "../clock.ts";
import { HubError, toHubError } from "../errors.ts";
import type { Authorization, Challenge } from "../wire/http/credentials.ts";

/** How an authorization is gone through. */
export interface Passage {
  /** Gives it up. */
  readonly signal: AbortSignal;
  /** How far it has come. */
  progressed(progress: Authorization): void;
}

/** Gets an authorization, of a person if need be. @throws {HubError} unauthorized, or the signal's reason */
export type Authorize = (challenge: Challenge, passage: Passage) => Promise<void>;

export interface AdmissionParts {
  readonly clock: Clock;
  readonly server: string;
  /** undefined: there is no way to get one. */
  readonly authorize: Authorize | undefined;
  progressed(progress: Authorization): void;
  authorized(): void;
  /** There is none. @param isForAll without it the server does nothing at all */
  denied(cause: HubError, isForAll: boolean): void;
}

/** How long a person may take, in ms. */
const LIMIT = 120_000;
/** Nobody is asked again so soon, in ms, unless a person wants to be; nor is one got anew that was no good. */
const PAUSE = 60_000;
/** So many are got in that time that the server does not accept: it may have changed whose tokens it takes after the first. */
const MOST = 2;

/** The authorizations that one server wants: one at a time, and none that nobody wants to give. */
export class Admission {
  readonly #parts: AdmissionParts;
  /** The one that is being got. */
  #present: AbortController | undefined;
  #refused: { readonly cause: HubError; readonly at: number } | undefined;
  /** When there were some, if none has proved good since. */
  #grants: readonly number[] = [];

  constructor(parts: AdmissionParts) {
    this.#parts = parts;
  }

  /** Begins to get one; what comes of it is told later. */
  begin(challenge: Challenge): void {
    const isForAll = challenge.status === 401;
    const refusal = this.#refusal(isForAll);
    if (refusal === undefined) void this.#get(challenge, isForAll);
    else queueMicrotask(() => this.#parts.denied(refusal, isForAll));
  }

  /** A person does not want to give it. */
  refuse(text: string): void {
    this.#present?.abort(this.#error(text));
  }

  /** It is not wanted any more; nothing is told of it from now on. */
  end(): void {
    this.#present?.abort(this.#error("The authorization was given up."));
    this.#present = undefined;
  }

  /** The server has let the hub in. */
  prove(): void {
    this.#grants = [];
  }

  /** A person is at it: what was refused before does not count. */
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
