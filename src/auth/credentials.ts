import type { Clock } from "../base/clock.ts";
import type { OAuthSettings } from "../manifest/remote.ts";
import type { SecretStore } from "../secrets/store.ts";
import { untilAborted } from "../base/grace.ts";
import type { AuthChallenge } from "../transport/http/credentials.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import type { AuthorizationOptions } from "./authorizer.ts";
import { type BearerChallenge, parseChallenge } from "./challenge.ts";
import { discoverAuthorizationServer } from "./discovery.ts";
import { login, type LoginOptions } from "./login.ts";
import { AttemptGuard } from "./hope.ts";
import { isRefreshDue, isExpired, type StoredToken } from "./stored-token.ts";
import { requestChallenge } from "./knock.ts";
import { withLimit } from "../base/limit.ts";
import { requestClientCredentials } from "./client-credentials.ts";
import { type LockFunction, TokenCache } from "./purse.ts";
import { type SdkFetch, trustedUrlsOf, makeSafeFetch } from "./safe-fetch.ts";
import { oauthErrorOf, quoteText, unauthorizedError, loginRequiredError } from "./errors.ts";
import { forgetRegistration } from "./registration.ts";
import { refreshToken, revokeToken } from "./refresh.ts";
import { chooseScopes, coversScopes } from "./scopes.ts";
import { SharedOperation } from "./shared.ts";

export interface ServerCredentialsOptions {
  readonly server: string;
  readonly url: URL;
  /** The name under which it is kept. */
  readonly name: string;
  readonly store: SecretStore;
  readonly lock: LockFunction;
  readonly clock: Clock;
  /** How long a person may take, in ms. */
  readonly limit: number;
  /** ms since the epoch */
  readonly now: () => number;
  readonly openUrl: LoginOptions["openUrl"];
}

/** What the manifest says, filled in anew at each connect. */
export interface OAuthTerms {
  readonly settings: OAuthSettings;
  readonly headers: Readonly<Record<string, string>>;
  readonly dial: Fetch;
}

/** What is wanted beyond what the server has said. */
export interface ScopeRequest {
  /** Another login, whatever there is. */
  readonly anew?: boolean;
  readonly scopes?: readonly string[];
}

type Steps = Pick<LoginOptions, "signal" | "progressed">;

/** How long an exchange may take, in ms: whoever does not wait for its answer may have lost what was exchanged. */
const EXCHANGE_LIMIT = 30_000;

const NO_TOKENS = "it takes no tokens: write headers.Authorization in the manifest";

const NEVER = new AbortController().signal;

/** What gets the hub into one server: a token, and what it takes to get another. */
export class ServerCredentials {
  readonly #parts: ServerCredentialsOptions;
  readonly #purse: TokenCache;
  #renewing: Promise<StoredToken | undefined> | undefined;
  readonly #login = new SharedOperation();
  readonly #hope: AttemptGuard;

  constructor(parts: ServerCredentialsOptions) {
    this.#parts = parts;
    this.#purse = new TokenCache(parts);
    this.#hope = new AttemptGuard(parts);
  }

  /** The token, if there is one that needs nothing. */
  get ready(): string | undefined {
    const { kept } = this.#purse;
    return kept === undefined || isRefreshDue(kept, this.#parts.now()) ? undefined : kept.access;
  }

  /** What is known of it, from the store if need be. @throws {HubError} what the store throws */
  known(): Promise<StoredToken | undefined> {
    return this.#purse.known();
  }

  /** As `known`, but from the store in any case. */
  look(): Promise<StoredToken | undefined> {
    return this.#purse.read();
  }

  /** The token, renewed if it is time for that; undefined if there is none. @throws {HubError} unreachable */
  async token(terms: OAuthTerms, signal: AbortSignal): Promise<string | undefined> {
    const { now } = this.#parts;
    const kept = await this.known();
    if (kept === undefined || !isRefreshDue(kept, now())) return kept?.access;
    try {
      return (await this.#renew(kept, terms, signal))?.access;
    } catch (error) {
      signal.throwIfAborted();
      if (isExpired(kept, now())) throw error;
      return kept.access;
    }
  }

  /** When no token is being exchanged any more. Never rejects. */
  async settled(): Promise<void> {
    await this.#renewing?.catch(() => {});
  }

  /** Gets another token than the one that was refused, without a person. @returns whether there is one @throws {HubError} unreachable */
  async renew(challenge: AuthChallenge, terms: OAuthTerms, signal: AbortSignal): Promise<boolean> {
    const kept = await this.known();
    const demand = parseChallenge(challenge);
    if (kept === undefined) {
      // Somebody may have logged in elsewhere since it was looked for.
      if ((await this.look()) !== undefined) return true;
      if (terms.settings.grant !== "clientCredentials") return false;
      await this.authorize(challenge, terms, { signal, onProgress: () => {} });
      return true;
    }
    // A refresh token is for as much as it was given for, and no more.
    if (challenge.status === 403) {
      const other = await this.#purse.read();
      return other !== undefined && other.access !== kept.access && coversScopes(other, demand);
    }
    // A server that takes none of those that it is given is not to be given more and more of them.
    if (this.#renewing === undefined && !this.#hope.renew()) return false;
    return (await this.#renew(kept, terms, signal)) !== undefined;
  }

  /**
   * Gets an authorization for what a server has said; all who want that at once get the same one.
   * @throws {HubError} unauthorized, unreachable; the signal's reason
   */
  authorize(
    challenge: AuthChallenge,
    terms: OAuthTerms,
    proceeding: AuthorizationOptions,
    wish: ScopeRequest = {},
  ): Promise<void> {
    const { server, name, lock, limit } = this.#parts;
    const alone = (signal: AbortSignal, work: () => Promise<void>): Promise<void> =>
      lock(`login-${name}`, signal, work, limit);
    return this.#login.join(proceeding, async (signal, progressed) => {
      progressed({ step: "starting" });
      const demand = await this.#hear(challenge, terms, signal);
      if (!demand.takesBearer) throw unauthorizedError(server, NO_TOKENS);
      const refused = await this.known();
      const work = (limited: AbortSignal): Promise<void> =>
        this.#obtain(demand, refused, terms, wish, { signal: limited, progressed });
      // Who logs in by hand has all the time for that, however long another login was waited for.
      if (wish.anew === true) await alone(signal, () => this.#limit(signal, work));
      else await this.#limit(signal, (limited) => alone(limited, () => work(limited)));
    });
  }

  async #obtain(
    demand: BearerChallenge,
    refused: StoredToken | undefined,
    terms: OAuthTerms,
    wish: ScopeRequest,
    steps: Steps,
  ): Promise<void> {
    const found = await this.look();
    if (wish.anew !== true) {
      // Somebody may have logged in at another hub, while this one waited for that.
      if (this.#isNews(found, refused, demand)) return;
      this.#hope.check(demand, found);
    }
    this.#hope.note();
    const fresh = await this.#ask(demand, found, terms, wish, steps);
    await this.#purse
      .exclusively(() => this.#purse.put(fresh))
      .catch((error: unknown) => {
        // This process has it all the same, which is worth something to all but who came only to log in.
        if (wish.anew === true) throw error;
      });
  }

  /** Forgets it, and has the authorization server forget it. @returns whether there was one, and whether that one knows */
  async forget(
    terms: OAuthTerms,
    signal: AbortSignal,
  ): Promise<{ was: boolean; isRevoked: boolean }> {
    const { server, now } = this.#parts;
    return this.#purse.exclusively(async () => {
      const kept = await this.#purse.read();
      await this.#purse.empty();
      if (kept === undefined) return { was: false, isRevoked: false };
      const { settings } = terms;
      const fetch = this.#reach(terms, signal);
      return { was: true, isRevoked: await revokeToken(kept, { server, settings, fetch, now }) };
    });
  }

  /** What the server wants: it is asked if it has not said so. */
  async #hear(
    challenge: AuthChallenge,
    { headers, dial }: OAuthTerms,
    signal: AbortSignal,
  ): Promise<BearerChallenge> {
    const { server, url, clock } = this.#parts;
    const isSaid = challenge.header !== undefined;
    const said = isSaid
      ? undefined
      : await requestChallenge({ url, headers, dial, signal, clock }).catch((error: unknown) => {
          throw oauthErrorOf(error, server, "when it was asked what it wants", true);
        });
    return parseChallenge(said ?? challenge);
  }

  async #ask(
    demand: BearerChallenge,
    found: StoredToken | undefined,
    terms: OAuthTerms,
    wish: ScopeRequest,
    { signal, progressed }: Steps,
  ): Promise<StoredToken> {
    const { server, url, store, clock, now, openUrl } = this.#parts;
    const { settings } = terms;
    const fetch = this.#reach(terms, signal);
    const authority = await discoverAuthorizationServer({
      server,
      url,
      demand,
      issuer: settings.issuer,
      fetch,
    });
    signal.throwIfAborted();
    if (found !== undefined) this.#checkIssuer(found.issuer, authority.issuer, settings);
    const { grant = "authorizationCode" } = settings;
    // Who says what to ask for may want less than before.
    const before = wish.scopes === undefined ? found : undefined;
    const wanted = wish.scopes ?? settings.scopes;
    const isTooLittle = demand.status === 403;
    const scopes = chooseScopes({ wanted, isTooLittle, demand, authority, before, grant });
    const home = trustedUrlsOf(url, settings.issuer);
    const flow = { server, url, authority, settings, scopes, home, store, fetch, now, signal };
    if (grant === "clientCredentials") return requestClientCredentials(flow);
    return login({ ...flow, clock, progressed, openUrl });
  }

  #isNews(
    found: StoredToken | undefined,
    refused: StoredToken | undefined,
    demand: BearerChallenge,
  ): boolean {
    if (found === undefined || found.access === refused?.access) return false;
    // How far it goes is known when it was refused.
    const isEnough = demand.status === 401 || coversScopes(found, demand);
    return isEnough && !isExpired(found, this.#parts.now());
  }

  /** A server can name whom it likes, and the manifest's secret is for one. @throws {HubError} unauthorized */
  #checkIssuer(before: string, now: string, { clientSecret, issuer }: OAuthSettings): void {
    if (before === now || clientSecret === undefined || issuer !== undefined) return;
    const why = `its authorization server was ${quoteText(before)} and is now ${quoteText(now)}, which is not given oauth.clientSecret unless the manifest names it (oauth.issuer)`;
    throw unauthorizedError(this.#parts.server, why);
  }

  /** All who want another one than that at once get the same one. It is not given up halfway: it may be there already. */
  #renew(
    old: StoredToken,
    terms: OAuthTerms,
    signal: AbortSignal,
  ): Promise<StoredToken | undefined> {
    this.#renewing ??= this.#purse
      .exclusively(() => this.#exchange(old, terms))
      .finally(() => {
        this.#renewing = undefined;
      });
    return untilAborted(this.#renewing, signal);
  }

  async #exchange(old: StoredToken, terms: OAuthTerms): Promise<StoredToken | undefined> {
    const { server, store, now } = this.#parts;
    const kept = await this.#purse.read();
    if (kept === undefined) return undefined;
    // Another process has been faster.
    if (kept.access !== old.access && !isRefreshDue(kept, now())) return kept;
    const { settings } = terms;
    if (kept.grant === "clientCredentials") {
      const quiet = { signal: NEVER, progressed: () => {} };
      const demand = await this.#hear({ status: 401, header: undefined }, terms, NEVER);
      return this.#take(await this.#ask(demand, kept, terms, {}, quiet));
    }
    const fetch = this.#reach(terms, NEVER, EXCHANGE_LIMIT);
    const renewed = await refreshToken(kept, { server, settings, fetch, now });
    if (renewed.kind === "renewed") return this.#take(renewed.kept);
    if (renewed.isClientGone) await forgetRegistration(kept.issuer, store);
    await this.#purse.empty();
    return undefined;
  }

  /** What cannot be kept serves this process: what it was got for may be worth nothing any more. */
  async #take(fresh: StoredToken): Promise<StoredToken> {
    await this.#purse.put(fresh).catch(() => {});
    return fresh;
  }

  #reach({ dial, settings }: OAuthTerms, signal: AbortSignal, limit?: number): SdkFetch {
    const { server, url } = this.#parts;
    return makeSafeFetch({
      server,
      home: trustedUrlsOf(url, settings.issuer),
      dial,
      signal,
      limit,
    });
  }

  #limit(signal: AbortSignal, work: (limited: AbortSignal) => Promise<void>): Promise<void> {
    const { server, clock, limit: after } = this.#parts;
    const why = `nobody has logged in within ${after / 1000} s`;
    return withLimit({ clock, after, signal, reason: () => loginRequiredError(server, why) }, work);
  }
}
