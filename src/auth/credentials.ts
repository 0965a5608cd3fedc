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
  /** Those that the manifest says, or a person; undefined: whatever the server wants. */
  readonly wanted: readonly string[] | undefined;
  /** What there is does not go far enough. */
  readonly isTooLittle: boolean;
  readonly demand: BearerChallenge;
  readonly authority: AuthorizationServer;
  /** What there was before. */
  readonly before: StoredToken | undefined;
  readonly grant: StoredToken["grant"];
}

/**
 * The scopes to ask for: those that are wanted, and else what the server has just said that it wants, or else all that it has;
 * and what was asked for before, as a token that can do more must not be one that can do less. None: what the authorization server thinks right.
 */
export function chooseScopes(choice: ScopeChoice): readonly string[] {
  const { wanted, isTooLittle, demand, authority, before, grant } = choice;
  const said = demand.scopes.length > 0 ? demand.scopes : authority.scopes;
  const asked = before?.issuer === authority.issuer ? before.asked : [];
  const more = isTooLittle ? demand.scopes : [];
  const base = wanted === undefined ? said : [...wanted, ...more];
  const scopes = new Set([...asked, ...base]);
  const offered = authority.metadata?.scopes_supported;
  // Some give a refresh token only to those who ask for this. Others refuse what they do not have.
  if (grant === "authorizationCode" && scopes.size > 0 && offered?.includes(OFFLINE) === true) {
    scopes.add(OFFLINE);
  }
  return [...scopes];
}
const OFFLINE = "offline_access";

/** Whether one may hope that asking for those scopes leads to more than there is. */
export function isStepUp({ scopes }: BearerChallenge, before: StoredToken | undefined): boolean {
  return scopes.some((scope) => before?.asked.includes(scope) !== true);
}

/** Whether what there is goes as far as that. */
export function coversScopes({ scopes: given }: StoredToken, { scopes }: BearerChallenge): boolean {
  return scopes.every((scope) => given.includes(scope));
}

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

/** Does something while no other process does anything under that name. @param limit how long others are waited for, in ms */
export type LockFunction = <T>(
  name: string,
  signal: AbortSignal,
  work: () => Promise<T>,
  limit: number,
) => Promise<T>;

export interface TokenCacheOptions {
  /** The name under which it is kept. */
  readonly name: string;
  /** What it is for. */
  readonly url: URL;
  readonly store: SecretStore;
  readonly lock: LockFunction;
}

/** How long other processes may take to exchange a token, in ms. */
const LIMIT = 60_000;

/** What is kept for one server, as this process knows it. */
export class TokenCache {
  readonly #parts: TokenCacheOptions;
  #kept: StoredToken | undefined;
  #isRead = false;
  /** What could not be kept, and the token in the store that it stands for. */
  #unsaved: { readonly kept: StoredToken; readonly instead: string | undefined } | undefined;

  constructor(parts: TokenCacheOptions) {
    this.#parts = parts;
  }

  /** As far as it was read. */
  get kept(): StoredToken | undefined {
    return this.#kept;
  }

  /** Read now if it was not yet. @throws {HubError} what the store throws, as do all below */
  async known(): Promise<StoredToken | undefined> {
    return this.#isRead ? this.#kept : this.read();
  }

  /** Read now: another process may have put something else there. */
  async read(): Promise<StoredToken | undefined> {
    const { store, name, url } = this.#parts;
    const stored = await loadToken(store, name, url);
    // What somebody has put there since is newer.
    if (this.#unsaved?.instead !== stored?.access) this.#unsaved = undefined;
    this.#kept = this.#unsaved?.kept ?? stored;
    this.#isRead = true;
    return this.#kept;
  }

  /**
   * It is on disk before anybody uses it: what it replaces may be worth nothing any more. If that fails this process has it
   * all the same, until something else is there.
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

  /** Nobody else exchanges it meanwhile. What has begun is not given up: its end may be the only chance. */
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

/** Something that is done once for all who want it at a time, and given up when nobody wants it any more. */
export class SharedOperation {
  #running: Running | undefined;

  /** Joins what runs, or begins. @throws what the work throws; the reason of one's own signal */
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
    // Who begins is there before anything is told.
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

  /** Whoever comes from now on begins anew. */
  #end(running: Running, reason: unknown): void {
    if (this.#running === running) this.#running = undefined;
    running.abort.abort(reason);
  }
}

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
