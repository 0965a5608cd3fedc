import { formatDuration } from "../base/format.ts";
import { type Clock, abortable, withTimeLimit } from "../base/clock.ts";
import type { OAuthSettings } from "../manifest/manifest.ts";
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
import { quotePeer } from "../base/quote.ts";
import { loginRequiredError, oauthErrorOf, unauthorizedError } from "./errors.ts";
import { type LoginOptions, login } from "./login.ts";
import { refreshToken, type RevocationResult, revokeToken } from "./refresh.ts";
import { forgetRegistration } from "./registration.ts";
import { makeSafeFetch, type SdkFetch, trustedUrlsOf } from "./safe-fetch.ts";
import { isExpired, isRefreshDue, loadToken, saveToken, type StoredToken } from "./stored-token.ts";

export interface ScopeChoice {
  /**
   * The scopes in the manifest or on the command line; undefined if the scopes that the server requests are to be used.
   */
  readonly configured: readonly string[] | undefined;
  /** Whether the server has rejected the token because its scopes are insufficient (403). */
  readonly isInsufficient: boolean;
  readonly bearerChallenge: BearerChallenge;
  readonly authServer: AuthorizationServer;
  readonly previous: StoredToken | undefined;
  readonly grant: StoredToken["grant"];
}

/**
 * Chooses the scopes to request: those in the manifest or on the command line, else those of the challenge, else those
 * in the resource metadata. Scopes that were requested before are added, so that a new token has no fewer rights than
 * the old one. If the result is empty, the authorization server chooses the scopes.
 */
export function chooseScopes(choice: ScopeChoice): readonly string[] {
  const { configured, isInsufficient, bearerChallenge, authServer, previous, grant } = choice;
  const demanded = bearerChallenge.scopes.length > 0 ? bearerChallenge.scopes : authServer.scopes;
  const requestedBefore = previous?.issuer === authServer.issuer ? previous.asked : [];
  const additional = isInsufficient ? bearerChallenge.scopes : [];
  const base = configured === undefined ? demanded : [...configured, ...additional];
  const scopes = new Set([...requestedBefore, ...base]);
  const supported = authServer.metadata?.scopes_supported;
  // Some authorization servers issue a refresh token only with the scope `offline_access`. It is requested only where
  // it is listed, because others reject scopes that they do not list.
  if (
    grant === "authorizationCode" &&
    scopes.size > 0 &&
    supported?.includes(OFFLINE_ACCESS) === true
  ) {
    scopes.add(OFFLINE_ACCESS);
  }
  return [...scopes];
}
const OFFLINE_ACCESS = "offline_access";

/** Whether the challenge has scopes that were not requested yet (step-up authorization). */
export function isStepUp({ scopes }: BearerChallenge, previous: StoredToken | undefined): boolean {
  return scopes.some((scope) => previous?.asked.includes(scope) !== true);
}

/** Whether the token has all scopes of the challenge. */
export function coversScopes(
  { scopes: granted }: StoredToken,
  { scopes }: BearerChallenge,
): boolean {
  return scopes.every((scope) => granted.includes(scope));
}

/** Maximum number of logins per `LOGIN_WINDOW` (in ms) at a server that rejects the resulting tokens. */
const MAX_LOGINS = 3;
const LOGIN_WINDOW = 5 * 60 * 1000;

/** Maximum number of token renewals per `RENEWAL_WINDOW` (in ms) after rejected tokens. */
const MAX_RENEWALS = 10;
const RENEWAL_WINDOW = 60 * 1000;

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

  recordLogin(): void {
    this.#logins = [...this.#logins, this.#now()];
  }

  /** Records a renewal after a rejected token. @returns false, without recording, if the limit is reached */
  recordRenewal(): boolean {
    const since = this.#now() - RENEWAL_WINDOW;
    this.#renewals = this.#renewals.filter((time) => time > since);
    if (this.#renewals.length >= MAX_RENEWALS) return false;
    this.#renewals = [...this.#renewals, this.#now()];
    return true;
  }

  /** @param stored the stored token @throws {HubError} unauthorized if another login would not help */
  checkLogin(bearerChallenge: BearerChallenge, stored: StoredToken | undefined): void {
    if (bearerChallenge.status === 403 && !isStepUp(bearerChallenge, stored)) {
      const scopes =
        bearerChallenge.scopes.length > 0
          ? ` (${quotePeer(bearerChallenge.scopes.join(" "))})`
          : "";
      throw loginRequiredError(
        this.#server,
        `it requires scopes that were already requested${scopes}`,
      );
    }
    const since = this.#now() - LOGIN_WINDOW;
    this.#logins = this.#logins.filter((time) => time > since);
    if (this.#logins.length < MAX_LOGINS) return;
    throw loginRequiredError(this.#server, "it rejects the tokens that it has just issued");
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
  readonly url: URL;
  readonly store: SecretStore;
  readonly lock: LockFunction;
}

/** Maximum wait for the token exchange of another process, in ms. */
const LOCK_TIMEOUT = 60_000;

/** The stored token of one server, cached in memory. */
export class TokenCache {
  readonly #options: TokenCacheOptions;
  #token: StoredToken | undefined;
  #isLoaded = false;
  /** A token that could not be stored, and (`replaced`) the older access token that the store still has. */
  #unsaved: { readonly token: StoredToken; readonly replaced: string | undefined } | undefined;

  constructor(options: TokenCacheOptions) {
    this.#options = options;
  }

  /** The token in memory: the one that was last read or saved. */
  get cached(): StoredToken | undefined {
    return this.#token;
  }

  /** The token. The first call reads the store. This and all methods below throw a HubError if the store fails. */
  async get(): Promise<StoredToken | undefined> {
    return this.#isLoaded ? this.#token : this.load();
  }

  /** Reads the store: another process may have changed it. */
  async load(): Promise<StoredToken | undefined> {
    const { store, name, url } = this.#options;
    const stored = await loadToken(store, name, url);
    // If the store no longer has the `replaced` token, another process has stored a newer token than the unsaved one.
    if (this.#unsaved?.replaced !== stored?.access) this.#unsaved = undefined;
    this.#token = this.#unsaved?.token ?? stored;
    this.#isLoaded = true;
    return this.#token;
  }

  /**
   * Stores a token; to be called before the token is used, because the previous one may already be invalid. If storing
   * fails, this process uses the token from memory until another process stores one.
   */
  async save(token: StoredToken): Promise<void> {
    const replaced = this.#unsaved === undefined ? this.#token?.access : this.#unsaved.replaced;
    try {
      await saveToken(this.#options.store, this.#options.name, token);
      this.#unsaved = undefined;
    } catch (error) {
      this.#unsaved = { token, replaced };
      throw error;
    } finally {
      this.#token = token;
      this.#isLoaded = true;
    }
  }

  async clear(): Promise<void> {
    this.#unsaved = undefined;
    await this.#options.store.remove(this.#options.name);
    this.#token = undefined;
  }

  /**
   * Runs `work` while no other process exchanges the token. Cannot be aborted, because the token may be lost if an
   * exchange is abandoned.
   */
  withLock<T>(work: () => Promise<T>): Promise<T> {
    const { lock, name } = this.#options;
    return lock(`token-${name}`, new AbortController().signal, work, LOCK_TIMEOUT);
  }
}

interface RunningOperation {
  readonly done: Promise<void>;
  readonly abort: AbortController;
  readonly participants: Set<AuthorizationOptions>;
  progress: AuthorizationProgress | undefined;
}

type SharedWork = (
  signal: AbortSignal,
  onProgress: (progress: AuthorizationProgress) => void,
) => Promise<void>;

/** An operation that concurrent callers share. It is aborted when its last caller has left. */
export class SharedOperation {
  #running: RunningOperation | undefined;

  /**
   * Joins the running operation or starts one. @throws what the operation throws, or the reason of the caller's signal
   */
  async join(caller: AuthorizationOptions, work: SharedWork): Promise<void> {
    caller.signal.throwIfAborted();
    const running = (this.#running ??= this.#start(work));
    running.participants.add(caller);
    if (running.progress !== undefined) caller.onProgress(running.progress);
    try {
      await abortable(running.done, caller.signal);
    } finally {
      running.participants.delete(caller);
      if (running.participants.size === 0) this.#end(running, caller.signal.reason);
    }
  }

  #start(work: SharedWork): RunningOperation {
    const abort = new AbortController();
    const participants = new Set<AuthorizationOptions>();
    // Start asynchronously, so that the first caller is registered before any progress is reported.
    const done = Promise.resolve().then(() =>
      work(abort.signal, (progress) => {
        running.progress = progress;
        for (const participant of participants) participant.onProgress(progress);
      }),
    );
    const running: RunningOperation = { done, abort, participants, progress: undefined };
    done.catch(() => {}).finally(() => this.#end(running, undefined));
    return running;
  }

  /** Aborts the operation if it still runs; later callers start a new one. */
  #end(running: RunningOperation, reason: unknown): void {
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
  readonly loginTimeout: number;
  /** The current time, in ms since the epoch. */
  readonly now: () => number;
  readonly openUrl: LoginOptions["openUrl"];
}

/**
 * The settings, headers and `fetch` for an authorization at a server, as resolved for the server's latest connection.
 */
export interface OAuthTerms {
  readonly settings: OAuthSettings;
  readonly headers: Readonly<Record<string, string>>;
  readonly fetch: Fetch;
}

/** The caller's requirements for an authorization: a new login, and the scopes to request. Both are optional. */
export interface ScopeRequest {
  /** Log in even if there is a valid token. */
  readonly forceLogin?: boolean;
  readonly scopes?: readonly string[];
}

type AttemptControl = Pick<LoginOptions, "signal" | "onProgress">;

/**
 * Time limit for a token refresh, in ms. It is longer than for other requests, because the response may contain the
 * only valid refresh token.
 */
const EXCHANGE_TIMEOUT = 30_000;

const NO_TOKENS_REASON = "it does not use OAuth: write headers.Authorization in the manifest";

const NEVER_ABORTED = new AbortController().signal;

/** The OAuth token of one server: loads it, renews it (one process at a time), logs in, and revokes it. */
export class ServerCredentials {
  readonly #options: ServerCredentialsOptions;
  readonly #cache: TokenCache;
  #renewal: Promise<StoredToken | undefined> | undefined;
  readonly #loginRun = new SharedOperation();
  readonly #guard: AttemptGuard;
  /** What the authorization server answered when it refused to renew the last token, as a clause. */
  #refusal: string | undefined;

  constructor(options: ServerCredentialsOptions) {
    this.#options = options;
    this.#cache = new TokenCache(options);
    this.#guard = new AttemptGuard(options);
  }

  /** The access token, if it is loaded and not due for renewal. */
  get usableToken(): string | undefined {
    const { cached } = this.#cache;
    return cached === undefined || isRefreshDue(cached, this.#options.now())
      ? undefined
      : cached.access;
  }

  /** Why the last token could not be renewed, as the end of a clause; "" if no renewal was refused. */
  get refusalNote(): string {
    return this.#refusal === undefined ? "" : ` since the last token was refused: ${this.#refusal}`;
  }

  /** The stored token, loaded at first use. @throws {HubError} if the store fails */
  stored(): Promise<StoredToken | undefined> {
    return this.#cache.get();
  }

  /** Like `stored`, but always reads the store. */
  reload(): Promise<StoredToken | undefined> {
    return this.#cache.load();
  }

  /** The access token, renewed first if it is due; undefined if there is none. @throws {HubError} unreachable */
  async token(terms: OAuthTerms, signal: AbortSignal): Promise<string | undefined> {
    const { now } = this.#options;
    const stored = await this.stored();
    if (stored === undefined || !isRefreshDue(stored, now())) return stored?.access;
    try {
      return (await this.#renew(stored, terms, signal))?.access;
    } catch (error) {
      signal.throwIfAborted();
      if (isExpired(stored, now())) throw error;
      return stored.access;
    }
  }

  /** Resolves when no token exchange is in progress. Never rejects. */
  async settled(): Promise<void> {
    await this.#renewal?.catch(() => {});
  }

  /**
   * Replaces a rejected token without involving the user. @returns whether there is another token now @throws
   * {HubError} unreachable
   */
  async renew(challenge: AuthChallenge, terms: OAuthTerms, signal: AbortSignal): Promise<boolean> {
    const stored = await this.stored();
    const bearerChallenge = parseChallenge(challenge);
    if (stored === undefined) {
      // Another process may have logged in since the last read.
      if ((await this.reload()) !== undefined) return true;
      if (terms.settings.grant !== "clientCredentials") return false;
      await this.authorize(challenge, terms, { signal, onProgress: () => {} });
      return true;
    }
    // Refreshing cannot help after a 403: a refreshed token has no more scopes than the original.
    if (challenge.status === 403) {
      const latest = await this.#cache.load();
      return (
        latest !== undefined &&
        latest.access !== stored.access &&
        coversScopes(latest, bearerChallenge)
      );
    }
    // Renewals are limited, because a server may reject every token.
    if (this.#renewal === undefined && !this.#guard.recordRenewal()) return false;
    return (await this.#renew(stored, terms, signal)) !== undefined;
  }

  /**
   * Gets an authorization for a challenge; concurrent callers share one run.
   * @throws {HubError} unauthorized, unreachable; the signal's reason
   */
  authorize(
    challenge: AuthChallenge,
    terms: OAuthTerms,
    control: AuthorizationOptions,
    scopeRequest: ScopeRequest = {},
  ): Promise<void> {
    const { server, name, lock, loginTimeout } = this.#options;
    const underLock = (signal: AbortSignal, work: () => Promise<void>): Promise<void> =>
      lock(`login-${name}`, signal, work, loginTimeout);
    return this.#loginRun.join(control, async (signal, onProgress) => {
      onProgress({ step: "starting" });
      const bearerChallenge = await this.#readChallenge(challenge, terms, signal);
      if (!bearerChallenge.acceptsBearer) throw unauthorizedError(server, NO_TOKENS_REASON);
      const rejected = await this.stored();
      const work = (limited: AbortSignal): Promise<void> =>
        this.#obtainToken(bearerChallenge, rejected, terms, scopeRequest, {
          signal: limited,
          onProgress,
        });
      // If the user asked for the login, the wait for the lock does not count towards the login's time limit.
      if (scopeRequest.forceLogin === true)
        await underLock(signal, () => this.#withLoginTimeout(signal, work));
      else
        await this.#withLoginTimeout(signal, (limited) => underLock(limited, () => work(limited)));
    });
  }

  async #obtainToken(
    bearerChallenge: BearerChallenge,
    rejected: StoredToken | undefined,
    terms: OAuthTerms,
    scopeRequest: ScopeRequest,
    control: AttemptControl,
  ): Promise<void> {
    const stored = await this.reload();
    if (scopeRequest.forceLogin !== true) {
      // Another process may have logged in during the wait for the lock.
      if (this.#isNewerToken(stored, rejected, bearerChallenge)) return;
      this.#guard.checkLogin(bearerChallenge, stored);
    }
    this.#guard.recordLogin();
    const newToken = await this.#requestToken(
      bearerChallenge,
      stored,
      terms,
      scopeRequest,
      control,
    );
    this.#refusal = undefined;
    await this.#cache
      .withLock(() => this.#cache.save(newToken))
      .catch((error: unknown) => {
        // The token could not be stored, so only this process has it. That is an error only if the user asked for the
        // login.
        if (scopeRequest.forceLogin === true) throw error;
      });
  }

  /**
   * Deletes the token and revokes it at the authorization server. @returns whether there was a token, and, if so, the
   * result of the revocation
   */
  async forget(terms: OAuthTerms, signal: AbortSignal): Promise<RevocationResult | undefined> {
    const { server, now } = this.#options;
    return this.#cache.withLock(async () => {
      const stored = await this.#cache.load();
      await this.#cache.clear();
      if (stored === undefined) return undefined;
      const { settings } = terms;
      const fetch = this.#makeFetch(terms, signal);
      return revokeToken(stored, { server, settings, fetch, now });
    });
  }

  /**
   * The server's Bearer challenge. If the server's response had no `WWW-Authenticate` header, another request is sent
   * to get one.
   */
  async #readChallenge(
    challenge: AuthChallenge,
    { headers, fetch }: OAuthTerms,
    signal: AbortSignal,
  ): Promise<BearerChallenge> {
    const { server, url, clock } = this.#options;
    const hasHeader = challenge.header !== undefined;
    const probed = hasHeader
      ? undefined
      : await requestChallenge({ url, headers, fetch, signal, clock }).catch((error: unknown) => {
          throw oauthErrorOf(error, server, "while asking it for its requirements", true);
        });
    return parseChallenge(probed ?? challenge);
  }

  async #requestToken(
    bearerChallenge: BearerChallenge,
    stored: StoredToken | undefined,
    terms: OAuthTerms,
    scopeRequest: ScopeRequest,
    { signal, onProgress }: AttemptControl,
  ): Promise<StoredToken> {
    const { server, url, store, clock, now, openUrl } = this.#options;
    const { settings } = terms;
    const fetch = this.#makeFetch(terms, signal);
    const authServer = await discoverAuthorizationServer({
      server,
      url,
      bearerChallenge,
      issuer: settings.issuer,
      fetch,
    });
    signal.throwIfAborted();
    if (stored !== undefined) this.#checkIssuer(stored.issuer, authServer.issuer, settings);
    const { grant = "authorizationCode" } = settings;
    // A caller that names scopes may want fewer than before, so those of the previous token are not added.
    const previous = scopeRequest.scopes === undefined ? stored : undefined;
    const configured = scopeRequest.scopes ?? settings.scopes;
    const isInsufficient = bearerChallenge.status === 403;
    const scopes = chooseScopes({
      configured,
      isInsufficient,
      bearerChallenge,
      authServer,
      previous,
      grant,
    });
    const trustedUrls = trustedUrlsOf(url, settings.issuer);
    const loginOptions = {
      server,
      url,
      authServer,
      settings,
      scopes,
      trustedUrls,
      store,
      fetch,
      now,
      signal,
    };
    if (grant === "clientCredentials") return requestClientCredentials(loginOptions);
    return login({ ...loginOptions, clock, onProgress, openUrl });
  }

  #isNewerToken(
    stored: StoredToken | undefined,
    rejected: StoredToken | undefined,
    bearerChallenge: BearerChallenge,
  ): boolean {
    if (stored === undefined || stored.access === rejected?.access) return false;
    // After a 403 the token also has to cover the scopes of the challenge.
    const isSufficient = bearerChallenge.status === 401 || coversScopes(stored, bearerChallenge);
    return isSufficient && !isExpired(stored, this.#options.now());
  }

  /**
   * If the issuer has changed, checks that the new issuer may receive the client's secret: a server may name any
   * issuer, but `oauth.clientSecret` is meant for one issuer only. @throws {HubError} unauthorized
   */
  #checkIssuer(previous: string, current: string, { clientSecret, issuer }: OAuthSettings): void {
    if (previous === current || clientSecret === undefined || issuer !== undefined) return;
    const reason = `its authorization server was ${quotePeer(previous)} and is now ${quotePeer(current)}, which is not given oauth.clientSecret unless the manifest names it (oauth.issuer)`;
    throw unauthorizedError(this.#options.server, reason);
  }

  /**
   * Renews the token; concurrent callers share one run. The run is never aborted, because the server may already have
   * replaced the refresh token.
   */
  #renew(
    old: StoredToken,
    terms: OAuthTerms,
    signal: AbortSignal,
  ): Promise<StoredToken | undefined> {
    this.#renewal ??= this.#cache
      .withLock(() => this.#exchange(old, terms))
      .finally(() => {
        this.#renewal = undefined;
      });
    return abortable(this.#renewal, signal);
  }

  async #exchange(old: StoredToken, terms: OAuthTerms): Promise<StoredToken | undefined> {
    const { server, store, now } = this.#options;
    const stored = await this.#cache.load();
    if (stored === undefined) return undefined;
    // Another process has renewed the token already.
    if (stored.access !== old.access && !isRefreshDue(stored, now())) return stored;
    const { settings } = terms;
    if (stored.grant === "clientCredentials") {
      const control = { signal: NEVER_ABORTED, onProgress: () => {} };
      const bearerChallenge = await this.#readChallenge(
        { status: 401, header: undefined },
        terms,
        NEVER_ABORTED,
      );
      return this.#save(await this.#requestToken(bearerChallenge, stored, terms, {}, control));
    }
    const fetch = this.#makeFetch(terms, NEVER_ABORTED, EXCHANGE_TIMEOUT);
    const renewed = await refreshToken(stored, { server, settings, fetch, now });
    if (renewed.kind === "renewed") return this.#save(renewed.token);
    if (renewed.isClientInvalid) await forgetRegistration(stored.issuer, store);
    await this.#cache.clear();
    this.#refusal = renewed.reason;
    return undefined;
  }

  /**
   * Stores the token. If that fails, this process still uses the token, because the previous one may no longer be
   * valid.
   */
  async #save(token: StoredToken): Promise<StoredToken> {
    this.#refusal = undefined;
    await this.#cache.save(token).catch(() => {});
    return token;
  }

  #makeFetch({ fetch, settings }: OAuthTerms, signal: AbortSignal, timeout?: number): SdkFetch {
    const { server, url } = this.#options;
    return makeSafeFetch({
      server,
      trustedUrls: trustedUrlsOf(url, settings.issuer),
      fetch,
      signal,
      timeout,
    });
  }

  #withLoginTimeout(
    signal: AbortSignal,
    work: (limited: AbortSignal) => Promise<void>,
  ): Promise<void> {
    const { server, clock, loginTimeout: after } = this.#options;
    const reason = `nobody has logged in within ${formatDuration(after)}${this.refusalNote}`;
    return withTimeLimit(
      { clock, after, signal, reason: () => loginRequiredError(server, reason) },
      work,
    );
  }
}
