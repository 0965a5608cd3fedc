import { type Clock, untilAborted, withLimit } from "../base/clock.ts";
import type { OAuthSettings } from "../manifest/schema.ts";
import type { SecretStore } from "../secrets/secrets.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import type { AuthChallenge, AuthorizationProgress } from "../transport/http/target.ts";
import type { AuthorizationOptions } from "./authorizer.ts";
import { type BearerChallenge, parseChallenge } from "./challenge.ts";
import { requestClientCredentials } from "./client-credentials.ts";
import {
  type AuthorizationServer,
  discoverAuthorizationServer,
  requestChallenge,
} from "./discovery.ts";
import { loginRequiredError, oauthErrorOf, quoteText, unauthorizedError } from "./errors.ts";
import { type LoginOptions, login } from "./login.ts";
import { refreshToken, revokeToken } from "./refresh.ts";
import { forgetRegistration } from "./registration.ts";
import { makeSafeFetch, type SdkFetch, trustedUrlsOf } from "./safe-fetch.ts";
import { isExpired, isRefreshDue, loadToken, saveToken, type StoredToken } from "./stored-token.ts";

export interface ScopeChoice {
  /** The scopes in the manifest or of the command line; undefined: those that the server wants. */
  readonly wanted: readonly string[] | undefined;
  /** The server has rejected the token for its scopes (403). */
  readonly isTooLittle: boolean;
  readonly demand: BearerChallenge;
  readonly authority: AuthorizationServer;
  /** The token before this authorization. */
  readonly before: StoredToken | undefined;
  readonly grant: StoredToken["grant"];
}

/**
 * The scopes to request: the configured ones, else those of the challenge, else those in the resource metadata; and all
 * that were requested before, so that a new token can do no less than the old one. Empty: the authorization server's
 * default.
 */
export function chooseScopes(choice: ScopeChoice): readonly string[] {
  const { wanted, isTooLittle, demand, authority, before, grant } = choice;
  const said = demand.scopes.length > 0 ? demand.scopes : authority.scopes;
  const asked = before?.issuer === authority.issuer ? before.asked : [];
  const more = isTooLittle ? demand.scopes : [];
  const base = wanted === undefined ? said : [...wanted, ...more];
  const scopes = new Set([...asked, ...base]);
  const offered = authority.metadata?.scopes_supported;
  // Some authorization servers issue a refresh token only with this scope; others reject scopes that they do not list.
  if (grant === "authorizationCode" && scopes.size > 0 && offered?.includes(OFFLINE) === true) {
    scopes.add(OFFLINE);
  }
  return [...scopes];
}
const OFFLINE = "offline_access";

/** Whether the challenge has scopes that were not requested yet (step-up authorization). */
export function isStepUp({ scopes }: BearerChallenge, before: StoredToken | undefined): boolean {
  return scopes.some((scope) => before?.asked.includes(scope) !== true);
}

/** Whether the token has all scopes of the challenge. */
export function coversScopes({ scopes: given }: StoredToken, { scopes }: BearerChallenge): boolean {
  return scopes.every((scope) => given.includes(scope));
}

/** Maximum logins per `LOGIN_WINDOW` (in ms) for a server that rejects the resulting tokens. */
const MAX_LOGINS = 3;
const LOGINS_WITHIN = 5 * 60 * 1000;

/** Maximum token renewals per `RENEWAL_WINDOW` (in ms) after a rejected token. */
const MAX_RENEWALS = 10;
const RENEWALS_WITHIN = 60 * 1000;

/** Limits authorization attempts at a server that rejects every token. */
export class AttemptGuard {
  readonly #server: string;
  readonly #now: () => number;
  /** Times of recent logins, in ms since the epoch. */
  #logins: readonly number[] = [];
  #renewals: readonly number[] = [];

  /** @param now ms since the epoch */
  constructor({ server, now }: { readonly server: string; readonly now: () => number }) {
    this.#server = server;
    this.#now = now;
  }

  /** Records a login. */
  note(): void {
    this.#logins = [...this.#logins, this.#now()];
  }

  /** Records a renewal after a rejected token, if the limit allows it. @returns whether it does */
  renew(): boolean {
    const since = this.#now() - RENEWALS_WITHIN;
    this.#renewals = this.#renewals.filter((time) => time > since);
    if (this.#renewals.length >= MAX_RENEWALS) return false;
    this.#renewals = [...this.#renewals, this.#now()];
    return true;
  }

  /**
   * Checks whether another login can help. @param found the stored token @throws {HubError} unauthorized if it cannot
   */
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

/** Runs `work` under a lock across processes. @param limit maximum wait for the lock, in ms */
export type LockFunction = <T>(
  name: string,
  signal: AbortSignal,
  work: () => Promise<T>,
  limit: number,
) => Promise<T>;

export interface TokenCacheOptions {
  /** The name of the token in the store. */
  readonly name: string;
  /** The server's URL. */
  readonly url: URL;
  readonly store: SecretStore;
  readonly lock: LockFunction;
}

/** Maximum wait for the token exchange of another process, in ms. */
const LIMIT = 60_000;

/** The stored token of one server, cached in memory. */
export class TokenCache {
  readonly #parts: TokenCacheOptions;
  #kept: StoredToken | undefined;
  #isRead = false;
  /** A token that could not be stored, and the access token in the store that it replaces. */
  #unsaved: { readonly kept: StoredToken; readonly instead: string | undefined } | undefined;

  constructor(parts: TokenCacheOptions) {
    this.#parts = parts;
  }

  /** The token as of the last read. */
  get kept(): StoredToken | undefined {
    return this.#kept;
  }

  /** The token, read at first use. @throws {HubError} as the store, as do all methods below */
  async known(): Promise<StoredToken | undefined> {
    return this.#isRead ? this.#kept : this.read();
  }

  /** Reads the store: another process may have changed it. */
  async read(): Promise<StoredToken | undefined> {
    const { store, name, url } = this.#parts;
    const stored = await loadToken(store, name, url);
    // A token stored since is newer than the one in memory.
    if (this.#unsaved?.instead !== stored?.access) this.#unsaved = undefined;
    this.#kept = this.#unsaved?.kept ?? stored;
    this.#isRead = true;
    return this.#kept;
  }

  /**
   * Stores the token before it is used, because the previous one may no longer be valid. If that fails this process
   * still uses it until the store has another one.
   */
  async put(kept: StoredToken): Promise<void> {
    const instead = this.#unsaved === undefined ? this.#kept?.access : this.#unsaved.instead;
    try {
      await saveToken(this.#parts.store, this.#parts.name, kept);
      this.#unsaved = undefined;
    } catch (error) {
      this.#unsaved = { kept, instead };
      throw error;
    } finally {
      this.#kept = kept;
      this.#isRead = true;
    }
  }

  async empty(): Promise<void> {
    this.#unsaved = undefined;
    await this.#parts.store.remove(this.#parts.name);
    this.#kept = undefined;
  }

  /**
   * Runs `work` while no other process exchanges the token. Not abortable: abandoning an exchange may lose the token.
   */
  exclusively<T>(work: () => Promise<T>): Promise<T> {
    const { lock, name } = this.#parts;
    return lock(`token-${name}`, new AbortController().signal, work, LIMIT);
  }
}

interface Running {
  readonly done: Promise<void>;
  readonly abort: AbortController;
  readonly there: Set<AuthorizationOptions>;
  progress: AuthorizationProgress | undefined;
}

type Work = (
  signal: AbortSignal,
  progressed: (progress: AuthorizationProgress) => void,
) => Promise<void>;

/** An operation that concurrent callers share. It is aborted when its last caller has left. */
export class SharedOperation {
  #running: Running | undefined;

  /** Joins the running operation or starts one. @throws as the operation; the reason of the caller's own signal */
  async join(own: AuthorizationOptions, work: Work): Promise<void> {
    own.signal.throwIfAborted();
    const running = (this.#running ??= this.#begin(work));
    running.there.add(own);
    if (running.progress !== undefined) own.onProgress(running.progress);
    try {
      await untilAborted(running.done, own.signal);
    } finally {
      running.there.delete(own);
      if (running.there.size === 0) this.#end(running, own.signal.reason);
    }
  }

  #begin(work: Work): Running {
    const abort = new AbortController();
    const there = new Set<AuthorizationOptions>();
    // Start asynchronously, so that the first caller is registered before any progress is reported.
    const done = Promise.resolve().then(() =>
      work(abort.signal, (progress) => {
        running.progress = progress;
        for (const each of there) each.onProgress(progress);
      }),
    );
    const running: Running = { done, abort, there, progress: undefined };
    done.catch(() => {}).finally(() => this.#end(running, undefined));
    return running;
  }

  /** Later callers start a new operation. */
  #end(running: Running, reason: unknown): void {
    if (this.#running === running) this.#running = undefined;
    running.abort.abort(reason);
  }
}

export interface ServerCredentialsOptions {
  readonly server: string;
  readonly url: URL;
  /** The name of the token in the store. */
  readonly name: string;
  readonly store: SecretStore;
  readonly lock: LockFunction;
  readonly clock: Clock;
  /** Time limit for a login by a person, in ms. */
  readonly limit: number;
  /** ms since the epoch */
  readonly now: () => number;
  readonly openUrl: LoginOptions["openUrl"];
}

/** The resolved settings of the manifest, as of the last connect. */
export interface OAuthTerms {
  readonly settings: OAuthSettings;
  readonly headers: Readonly<Record<string, string>>;
  readonly dial: Fetch;
}

/** What the caller wants beyond the server's challenge. */
export interface ScopeRequest {
  /** Log in even if there is a valid token. */
  readonly anew?: boolean;
  readonly scopes?: readonly string[];
}

type Steps = Pick<LoginOptions, "signal" | "progressed">;

/**
 * Time limit for a token refresh, in ms. Longer than for other requests: abandoning the response may lose a rotated
 * refresh token.
 */
const EXCHANGE_LIMIT = 30_000;

const NO_TOKENS = "it takes no tokens: write headers.Authorization in the manifest";

const NEVER = new AbortController().signal;

/** OAuth tokens of one server: load, renew (one process at a time), log in, revoke. */
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

  /** The access token, if it is loaded and not due for renewal. */
  get ready(): string | undefined {
    const { kept } = this.#purse;
    return kept === undefined || isRefreshDue(kept, this.#parts.now()) ? undefined : kept.access;
  }

  /** The stored token, loaded at first use. @throws {HubError} as the store */
  known(): Promise<StoredToken | undefined> {
    return this.#purse.known();
  }

  /** As `known`, but always read from the store. */
  look(): Promise<StoredToken | undefined> {
    return this.#purse.read();
  }

  /** The access token, renewed if due; undefined if there is none. @throws {HubError} unreachable */
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

  /** Resolves when no token exchange is in progress. Never rejects. */
  async settled(): Promise<void> {
    await this.#renewing?.catch(() => {});
  }

  /**
   * Replaces a rejected token without a person. @returns whether there is another one @throws {HubError} unreachable
   */
  async renew(challenge: AuthChallenge, terms: OAuthTerms, signal: AbortSignal): Promise<boolean> {
    const kept = await this.known();
    const demand = parseChallenge(challenge);
    if (kept === undefined) {
      // Another process may have logged in since the last read.
      if ((await this.look()) !== undefined) return true;
      if (terms.settings.grant !== "clientCredentials") return false;
      await this.authorize(challenge, terms, { signal, onProgress: () => {} });
      return true;
    }
    // A refreshed token has no more scopes than the first.
    if (challenge.status === 403) {
      const other = await this.#purse.read();
      return other !== undefined && other.access !== kept.access && coversScopes(other, demand);
    }
    // Do not renew again and again for a server that rejects every token.
    if (this.#renewing === undefined && !this.#hope.renew()) return false;
    return (await this.#renew(kept, terms, signal)) !== undefined;
  }

  /**
   * Gets an authorization for a challenge; concurrent callers share one run.
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
      // With a login on command, the time limit starts after the wait for the lock.
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
      // Another process may have logged in during the wait for the lock.
      if (this.#isNews(found, refused, demand)) return;
      this.#hope.check(demand, found);
    }
    this.#hope.note();
    const fresh = await this.#ask(demand, found, terms, wish, steps);
    await this.#purse
      .exclusively(() => this.#purse.put(fresh))
      .catch((error: unknown) => {
        // This process still has the token in memory, which is enough unless the caller only wanted to log in.
        if (wish.anew === true) throw error;
      });
  }

  /**
   * Deletes the token and revokes it at the authorization server. @returns whether there was one, and whether it was
   * revoked
   */
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

  /** The server's challenge; it is requested if the server has sent no header. */
  async #hear(
    challenge: AuthChallenge,
    { headers, dial }: OAuthTerms,
    signal: AbortSignal,
  ): Promise<BearerChallenge> {
    const { server, url, clock } = this.#parts;
    const isSaid = challenge.header !== undefined;
    const said = isSaid
      ? undefined
      : await requestChallenge({ url, headers, fetch: dial, signal, clock }).catch(
          (error: unknown) => {
            throw oauthErrorOf(error, server, "when it was asked what it wants", true);
          },
        );
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
    // A caller that names scopes may want fewer than before.
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
    // After a 403 the token also has to cover the scopes of the challenge.
    const isEnough = demand.status === 401 || coversScopes(found, demand);
    return isEnough && !isExpired(found, this.#parts.now());
  }

  /** A server may name any issuer, but `oauth.clientSecret` belongs to one. @throws {HubError} unauthorized */
  #checkIssuer(before: string, now: string, { clientSecret, issuer }: OAuthSettings): void {
    if (before === now || clientSecret === undefined || issuer !== undefined) return;
    const why = `its authorization server was ${quoteText(before)} and is now ${quoteText(now)}, which is not given oauth.clientSecret unless the manifest names it (oauth.issuer)`;
    throw unauthorizedError(this.#parts.server, why);
  }

  /**
   * Renews the token; concurrent callers share one run. The run itself is never aborted: the token may already be
   * rotated.
   */
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
    // Another process has renewed it already.
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

  /** A token that cannot be stored is still used by this process: the previous one may no longer be valid. */
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
