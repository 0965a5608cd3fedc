import type { Clock } from "../clock.ts";
import type { OAuthSettings } from "../manifest/remote.ts";
import type { SecretStore } from "../secrets/store.ts";
import { untilAborted } from "../wire/grace.ts";
import type { Challenge } from "../wire/http/credentials.ts";
import type { Dial } from "../wire/http/dialer.ts";
import type { Proceeding } from "./authorizer.ts";
import { type Demand, readChallenge } from "./challenge.ts";
import { discover } from "./discovery.ts";
import { askPerson, type Flow } from "./flow.ts";
import { isDue, isExpired, type Kept } from "./kept.ts";
import { knock } from "./knock.ts";
import { askByItself } from "./machine.ts";
import { type Lock, Purse } from "./purse.ts";
import { type Fetch, reach } from "./reach.ts";
import { explain, refuse, refuseUntilLogin } from "./refusal.ts";
import { forgetRegistration } from "./registration.ts";
import { refresh, revoke } from "./renewal.ts";
import { chooseScopes, covers, isStepUp } from "./scopes.ts";
import { Shared } from "./shared.ts";

export interface PassParts {
  readonly server: string;
  readonly url: URL;
  /** The name under which it is kept. */
  readonly name: string;
  readonly store: SecretStore;
  readonly lock: Lock;
  readonly clock: Clock;
  /** How long a person may take, in ms. */
  readonly limit: number;
  /** ms since the epoch */
  readonly now: () => number;
  readonly openUrl: Flow["openUrl"];
}

/** What the manifest says, filled in anew at each connect. */
export interface Terms {
  readonly settings: OAuthSettings;
  readonly headers: Readonly<Record<string, string>>;
  readonly dial: Dial;
}

/** What is wanted beyond what the server has said. */
export interface Wish {
  /** Another login, whatever there is. */
  readonly anew?: boolean;
  readonly scopes?: readonly string[];
}

type Steps = Pick<Flow, "signal" | "progressed">;

/** So many logins within so long, in ms, are all that a server gets that refuses what they lead to. */
const MAX_LOGINS = 3;
const LOGINS_WITHIN = 5 * 60 * 1000;

const NEVER = new AbortController().signal;

/** What gets the hub into one server: a token, and what it takes to get another. */
export class Pass {
  readonly #parts: PassParts;
  readonly #purse: Purse;
  #renewing: Promise<Kept | undefined> | undefined;
  readonly #login = new Shared();
  readonly #logins: number[] = [];

  constructor(parts: PassParts) {
    this.#parts = parts;
    this.#purse = new Purse(parts);
  }

  /** The token, if there is one that needs nothing. */
  get ready(): string | undefined {
    const { kept } = this.#purse;
    return kept === undefined || isDue(kept, this.#parts.now()) ? undefined : kept.access;
  }

  /** What is known of it, from the store if need be. @throws {HubError} what the store throws */
  known(): Promise<Kept | undefined> {
    return this.#purse.known();
  }

  /** The token, renewed if it is time for that; undefined if there is none. @throws {HubError} unreachable */
  async token(terms: Terms, signal: AbortSignal): Promise<string | undefined> {
    const { now } = this.#parts;
    const kept = await this.known();
    if (kept === undefined || !isDue(kept, now())) return kept?.access;
    try {
      return (await this.#renew(kept, terms, signal))?.access;
    } catch (error) {
      signal.throwIfAborted();
      if (isExpired(kept, now())) throw error;
      return kept.access;
    }
  }

  /** Gets another token than the one that was refused, without a person. @returns whether there is one @throws {HubError} unreachable */
  async renew(challenge: Challenge, terms: Terms, signal: AbortSignal): Promise<boolean> {
    const kept = await this.known();
    const demand = readChallenge(challenge);
    if (kept === undefined) {
      if (terms.settings.grant !== "clientCredentials") return false;
      await this.authorize(challenge, terms, { signal, progressed: () => {} });
      return true;
    }
    // A refresh token is for as much as it was given for, and no more.
    if (challenge.status === 403) {
      const other = await this.#purse.read();
      return other !== undefined && other.access !== kept.access && covers(other, demand);
    }
    return (await this.#renew(kept, terms, signal)) !== undefined;
  }

  /**
   * Gets an authorization for what a server has said; all who want that at once get the same one.
   * @throws {HubError} unauthorized, unreachable; the signal's reason
   */
  authorize(
    challenge: Challenge,
    terms: Terms,
    proceeding: Proceeding,
    wish: Wish = {},
  ): Promise<void> {
    return this.#login.join(proceeding, async (signal, progressed) => {
      progressed({ step: "starting" });
      const demand = await this.#hear(challenge, terms, signal);
      const refused = await this.known();
      if (wish.anew !== true) this.#checkHope(demand, refused);
      await this.#limit(signal, (limited) =>
        this.#parts.lock(
          `login-${this.#parts.name}`,
          limited,
          async () => {
            const found = await this.#purse.read();
            // Somebody may have logged in at another hub, while this one waited for that.
            if (wish.anew !== true && this.#isNews(found, refused, demand)) return;
            this.#logins.push(this.#parts.now());
            // Who says what to ask for may want less than before.
            const before = wish.scopes === undefined ? found : undefined;
            const fresh = await this.#ask(demand, before, terms, wish, {
              signal: limited,
              progressed,
            });
            await this.#purse.exclusively(() => this.#purse.put(fresh));
          },
          this.#parts.limit,
        ),
      );
    });
  }

  /** Forgets it, and has the authorization server forget it. @returns whether there was one, and whether that one knows */
  async forget(terms: Terms, signal: AbortSignal): Promise<{ was: boolean; isRevoked: boolean }> {
    const { server, now } = this.#parts;
    return this.#purse.exclusively(async () => {
      const kept = await this.#purse.read();
      await this.#purse.empty();
      if (kept === undefined) return { was: false, isRevoked: false };
      const fetch = this.#reach(terms, signal);
      const { settings } = terms;
      return { was: true, isRevoked: await revoke(kept, { server, settings, fetch, now }) };
    });
  }

  /** What the server wants: it is asked if it has not said so. */
  async #hear(
    challenge: Challenge,
    { headers, dial }: Terms,
    signal: AbortSignal,
  ): Promise<Demand> {
    const { server, url } = this.#parts;
    const isSaid = challenge.header !== undefined;
    const said = isSaid
      ? undefined
      : await knock({ url, headers, dial, signal }).catch((error: unknown) => {
          throw explain(error, server, "when it was asked what it wants", true);
        });
    return readChallenge(said ?? challenge);
  }

  async #ask(
    demand: Demand,
    before: Kept | undefined,
    terms: Terms,
    wish: Wish,
    { signal, progressed }: Steps,
  ): Promise<Kept> {
    const { server, url, store, now, openUrl } = this.#parts;
    const { settings } = terms;
    const fetch = this.#reach(terms, signal);
    const authority = await discover({ server, url, demand, issuer: settings.issuer, fetch });
    signal.throwIfAborted();
    const { grant = "authorizationCode" } = settings;
    const wanted = wish.scopes ?? settings.scopes;
    const isTooLittle = demand.status === 403;
    const scopes = chooseScopes({ wanted, isTooLittle, demand, authority, before, grant });
    const home = homeOf(url, settings);
    const flow = { server, url, authority, settings, scopes, home, store, fetch, now, signal };
    if (grant === "clientCredentials") return askByItself(flow);
    return askPerson({ ...flow, progressed, openUrl });
  }

  /** @throws {HubError} unauthorized if asking once more would only be another time */
  #checkHope(demand: Demand, refused: Kept | undefined): void {
    const { server, now } = this.#parts;
    if (!demand.takesBearer) {
      throw refuse(server, "it takes no tokens: write headers.Authorization in the manifest");
    }
    if (demand.status === 403 && !isStepUp(demand, refused)) {
      const scopes = demand.scopes.length > 0 ? ` (${demand.scopes.join(" ")})` : "";
      throw refuseUntilLogin(server, `it wants more than it was asked to give${scopes}`);
    }
    const recent = this.#logins.filter((time) => now() - time < LOGINS_WITHIN);
    this.#logins.splice(0, this.#logins.length, ...recent);
    if (recent.length >= MAX_LOGINS) {
      throw refuseUntilLogin(server, "it does not take tokens that it has just been given");
    }
  }

  #isNews(found: Kept | undefined, refused: Kept | undefined, demand: Demand): boolean {
    if (found === undefined || found.access === refused?.access) return false;
    return !isExpired(found, this.#parts.now()) && covers(found, demand);
  }

  /** All who want another one than that at once get the same one. It is not given up halfway: it may be there already. */
  #renew(old: Kept, terms: Terms, signal: AbortSignal): Promise<Kept | undefined> {
    this.#renewing ??= this.#purse
      .exclusively(() => this.#exchange(old, terms))
      .finally(() => {
        this.#renewing = undefined;
      });
    return untilAborted(this.#renewing, signal);
  }

  async #exchange(old: Kept, terms: Terms): Promise<Kept | undefined> {
    const { server, store, now } = this.#parts;
    const kept = await this.#purse.read();
    if (kept === undefined) return undefined;
    // Another process has been faster.
    if (kept.access !== old.access && !isDue(kept, now())) return kept;
    const { settings } = terms;
    if (kept.grant === "clientCredentials") {
      const said = { status: 401, header: undefined } as const;
      const quiet = { signal: NEVER, progressed: () => {} };
      const demand = await this.#hear(said, terms, NEVER);
      const fresh = await this.#ask(demand, kept, terms, {}, quiet);
      await this.#purse.put(fresh);
      return fresh;
    }
    const fetch = this.#reach(terms, NEVER);
    const renewed = await refresh(kept, { server, settings, fetch, now });
    if (renewed.kind === "renewed") {
      await this.#purse.put(renewed.kept);
      return renewed.kept;
    }
    if (renewed.isClientGone) await forgetRegistration(kept.issuer, store);
    await this.#purse.empty();
    return undefined;
  }

  #reach({ dial, settings }: Terms, signal: AbortSignal): Fetch {
    const { server, url } = this.#parts;
    return reach({ server, home: homeOf(url, settings), dial, signal });
  }

  async #limit(signal: AbortSignal, work: (limited: AbortSignal) => Promise<void>): Promise<void> {
    const { server, clock, limit } = this.#parts;
    const late = new AbortController();
    const undo = clock.after(limit, () => {
      const why = `nobody has logged in within ${limit / 1000} s`;
      late.abort(refuseUntilLogin(server, why));
    });
    try {
      await work(AbortSignal.any([signal, late.signal]));
    } finally {
      undo();
    }
  }
}

function homeOf(url: URL, { issuer }: OAuthSettings): readonly URL[] {
  return issuer !== undefined && URL.canParse(issuer) ? [url, new URL(issuer)] : [url];
}
