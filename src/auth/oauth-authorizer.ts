import { type Clock, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { RemoteServer } from "../manifest/schema.ts";
import type { ResolvedRemote } from "../manifest/resolve.ts";
import type { SecretStore } from "../secrets/secrets.ts";
import {
  type AuthChallenge,
  NO_CREDENTIALS,
  type RequestCredentials,
} from "../transport/http/target.ts";
import { Redactor } from "../transport/redact.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import type { AuthorizationOptions, Authorizer } from "./authorizer.ts";
import { isExpired, isRefreshable, type StoredToken } from "./stored-token.ts";
import { storeName } from "./registration.ts";
import {
  type LockFunction,
  type OAuthTerms,
  type ScopeRequest,
  ServerCredentials,
} from "./credentials.ts";
import { loginRequiredError, unauthorizedError } from "./errors.ts";

export interface AuthorizerOptions {
  readonly store: SecretStore;
  /** A lock across all processes of this user. */
  readonly lock: LockFunction;
  /** A `fetch` with the certificates and environment of the server's connections. */
  fetch(resolved: ResolvedRemote): Fetch;
  /** Shows a login page to a person. Never rejects. */
  readonly openUrl: (url: string, server: string) => Promise<void>;
  /** ms since the epoch */
  readonly now?: () => number;
  readonly clock?: Clock;
  /** Time limit for a login by a person, in ms. */
  readonly limit?: number;
}

/** Status of a server's authorization. Times are in ms since the epoch; undefined: not known. */
export type AuthorizationStatus =
  | { readonly kind: "none" }
  /** The credentials are in the manifest. */
  | { readonly kind: "fixed"; readonly by: "header" | "keyFile" }
  | {
      readonly kind: "authorized" | "expired";
      readonly issuer: string;
      readonly expires: number | undefined;
      /** Another token can be requested without a person. */
      readonly isRefreshable: boolean;
      readonly scopes: readonly string[];
    };

/** An authorizer with what the command line needs beyond the hub. */
export interface OAuthAuthorizer extends Authorizer {
  /** As `authorize`, but always with a new login. */
  login(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    challenge: AuthChallenge,
    proceeding: AuthorizationOptions,
    scopes: readonly string[] | undefined,
  ): Promise<void>;
  /** @returns whether there was an authorization, and whether it was revoked at the authorization server */
  logout(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    signal: AbortSignal,
  ): Promise<{ was: boolean; isRevoked: boolean }>;
  stand(spec: RemoteServer, resolved: ResolvedRemote): Promise<AuthorizationStatus>;
}

/** Default time limit for a login by a person, in ms. */
const LOGIN_LIMIT = 120_000;
const UNSAID: AuthChallenge = { status: 401, header: undefined };

/** Makes an authorizer. Nothing is read, created or loaded before a server needs it. */
export function openOAuthAuthorizer(parts: AuthorizerOptions): OAuthAuthorizer {
  const { store, lock, openUrl, clock = systemClock, now = Date.now, limit = LOGIN_LIMIT } = parts;
  const passes = new Map<string, Promise<ServerCredentials>>();

  /** One object per server and URL, shared by all connections. */
  const passFor = (
    { name: server }: RemoteServer,
    { url }: ResolvedRemote,
  ): Promise<ServerCredentials> => {
    const key = JSON.stringify([server, url.href]);
    const known = passes.get(key);
    if (known !== undefined) return known;
    const made = storeName("server", server, url.href).then(
      (name) =>
        new ServerCredentials({ server, url, name, store, lock, clock, limit, now, openUrl }),
    );
    passes.set(key, made);
    return made;
  };
  const termsOf = (resolved: ResolvedRemote): OAuthTerms => ({
    settings: resolved.oauth,
    headers: resolved.headers,
    dial: parts.fetch(resolved),
  });

  const credentialsFor = (spec: RemoteServer, resolved: ResolvedRemote): RequestCredentials => {
    const { name, auth } = spec;
    const { bearerToken: key } = resolved;
    const fixed = key === undefined ? undefined : bearer(key);
    if (bearsHeader(resolved)) return NO_CREDENTIALS;
    if (auth === "none") return fixed ? { ...NO_CREDENTIALS, bear: () => fixed } : NO_CREDENTIALS;
    const terms = termsOf(resolved);
    const passing = passFor(spec, resolved);
    let pass: ServerCredentials | undefined;
    const discreet = discretionOf(resolved);
    const bear = async (signal: AbortSignal): Promise<Record<string, string>> => {
      pass = await passing;
      const kept = await pass.token(terms, signal).catch(forgive);
      const token = kept ?? (await obtain(pass, signal));
      return token === undefined ? { ...fixed } : bearer(token);
    };
    /** With `auth = "auto"` an unreadable store matters only if the server requires a token. */
    const forgive = (error: unknown): undefined => {
      const isOptional = auth === "auto" && error instanceof HubError;
      if (!isOptional || error.code !== "storeBroken") throw error;
    };
    /** With `auth = "oauth"` a token is requested before the first challenge. */
    const obtain = async (
      it: ServerCredentials,
      signal: AbortSignal,
    ): Promise<string | undefined> => {
      if (auth !== "oauth") return undefined;
      if ((await it.look()) !== undefined) return it.token(terms, signal);
      if (resolved.oauth.grant !== "clientCredentials") {
        if (fixed !== undefined) return undefined;
        throw loginRequiredError(name, "nobody has logged in yet");
      }
      await it.authorize(UNSAID, terms, { signal, onProgress: () => {} });
      return it.token(terms, signal);
    };
    return {
      bear: (signal) => {
        const ready = pass?.ready;
        return ready === undefined ? bear(signal).catch(discreet) : bearer(ready);
      },
      renew: async (challenge, signal) =>
        (await passing).renew(challenge, terms, signal).catch(discreet),
    };
  };

  const proceed = async (
    spec: RemoteServer,
    resolved: ResolvedRemote,
    challenge: AuthChallenge,
    proceeding: AuthorizationOptions,
    wish: ScopeRequest = {},
  ): Promise<void> => {
    checkPlace(spec, resolved);
    const pass = await passFor(spec, resolved);
    await pass
      .authorize(challenge, termsOf(resolved), proceeding, wish)
      .catch(discretionOf(resolved));
  };

  return {
    credentialsFor,
    authorize: proceed,
    settled: async () => {
      await Promise.all([...passes.values()].map(async (pass) => (await pass).settled()));
    },
    login: (spec, resolved, challenge, proceeding, scopes) =>
      proceed(spec, resolved, challenge, proceeding, { anew: true, ...(scopes && { scopes }) }),
    logout: async (spec, resolved, signal) =>
      (await passFor(spec, resolved)).forget(termsOf(resolved), signal),
    stand: async (spec, resolved) => {
      if (bearsHeader(resolved)) return { kind: "fixed", by: "header" };
      const kept = spec.auth === "none" ? undefined : await (await passFor(spec, resolved)).known();
      if (kept !== undefined) return describeKept(kept, now());
      return resolved.bearerToken === undefined
        ? { kind: "none" }
        : { kind: "fixed", by: "keyFile" };
    },
  };
}

/** Redacts the manifest's secrets in a thrown error, which may quote the server. */
function discretionOf({ secrets }: ResolvedRemote): (thrown: unknown) => never {
  return (thrown) => {
    const redactor = new Redactor(secrets);
    throw thrown instanceof HubError ? thrown.mapTexts((text) => redactor.apply(text)) : thrown;
  };
}

function describeKept(kept: StoredToken, now: number): AuthorizationStatus {
  const { issuer, expires, scopes } = kept;
  const kind = isExpired(kept, now) ? "expired" : "authorized";
  return { kind, issuer, expires, isRefreshable: isRefreshable(kept), scopes };
}

function bearer(token: string): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

function bearsHeader({ headers }: ResolvedRemote): boolean {
  return Object.keys(headers).some((name) => name.toLowerCase() === "authorization");
}

/** @throws {HubError} unauthorized if the manifest excludes OAuth for this server */
function checkPlace({ name, auth }: RemoteServer, resolved: ResolvedRemote): void {
  if (bearsHeader(resolved)) {
    throw unauthorizedError(
      name,
      "it does not take the Authorization header that the manifest says",
    );
  }
  if (auth === "none") {
    throw unauthorizedError(name, `it wants an authorization, and the manifest says auth = "none"`);
  }
  if (auth === "auto" && resolved.bearerToken !== undefined) {
    throw unauthorizedError(name, "it does not take the token of the manifest's keyFile");
  }
}
