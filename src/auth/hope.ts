import type { BearerChallenge } from "./challenge.ts";
import type { StoredToken } from "./stored-token.ts";
import { quoteText, loginRequiredError } from "./errors.ts";
import { isStepUp } from "./scopes.ts";

/** So many logins within so long, in ms, are all that a server gets that refuses what they lead to. */
const MAX_LOGINS = 3;
const LOGINS_WITHIN = 5 * 60 * 1000;

/** So many tokens within so long, in ms, are renewed because the server has refused them. */
const MAX_RENEWALS = 10;
const RENEWALS_WITHIN = 60 * 1000;

/** Whether asking for an authorization once more can lead to anything else than the last time. */
export class AttemptGuard {
  readonly #server: string;
  readonly #now: () => number;
  /** When there was one lately. */
  #logins: readonly number[] = [];
  #renewals: readonly number[] = [];

  /** @param now ms since the epoch */
  constructor({ server, now }: { readonly server: string; readonly now: () => number }) {
    this.#server = server;
    this.#now = now;
  }

  /** There is one now. */
  note(): void {
    this.#logins = [...this.#logins, this.#now()];
  }

  /** One that was refused is to be renewed. @returns whether that is worth it */
  renew(): boolean {
    const since = this.#now() - RENEWALS_WITHIN;
    this.#renewals = this.#renewals.filter((time) => time > since);
    if (this.#renewals.length >= MAX_RENEWALS) return false;
    this.#renewals = [...this.#renewals, this.#now()];
    return true;
  }

  /** @param found what there is @throws {HubError} unauthorized if there is none */
  check(demand: BearerChallenge, found: StoredToken | undefined): void {
    if (demand.status === 403 && !isStepUp(demand, found)) {
      const scopes = demand.scopes.length > 0 ? ` (${quoteText(demand.scopes.join(" "))})` : "";
      throw loginRequiredError(this.#server, `it wants more than it was asked to give${scopes}`);
    }
    const since = this.#now() - LOGINS_WITHIN;
    this.#logins = this.#logins.filter((time) => time > since);
    if (this.#logins.length < MAX_LOGINS) return;
    throw loginRequiredError(this.#server, "it does not take tokens that it has just been given");
  }
}
