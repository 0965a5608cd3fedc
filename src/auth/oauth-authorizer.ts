import { type Clock, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { RemoteServer } from "../manifest/manifest.ts";
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
import type { RevocationResult } from "./refresh.ts";
import { loginRequiredError, unauthorizedError } from "./errors.ts";

export interface AuthorizerOptions {
  readonly store: SecretStore;
  /** A lock across all processes of this user. */
  readonly lock: LockFunction;
  /** A `fetch` with the certificates and environment of the server's connections. */
  fetch(resolved: ResolvedRemote): Fetch;
  /** Shows a login page to the user. Never rejects. */
  readonly openUrl: (url: string, server: string) => Promise<void>;
  /** The current time, in ms since the epoch. */
  readonly now?: () => number;
  readonly clock?: Clock;
  /** Time limit for a login by the user, in ms. */
  readonly loginTimeout?: number;
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
      /** Whether another token can be requested without the user. */
      readonly isRefreshable: boolean;
      readonly scopes: readonly string[];
    };

/** An authorizer with the additional methods that commands need. */
export interface OAuthAuthorizer extends Authorizer {
  /** Like `authorize`, but always with a new login. */
  login(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    challenge: AuthChallenge,
    control: AuthorizationOptions,
    scopes: readonly string[] | undefined,
  ): Promise<void>;
  /** Deletes the authorization. @returns the result of its revocation; undefined if there was no authorization */
  logout(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    signal: AbortSignal,
  ): Promise<RevocationResult | undefined>;
  getStatus(spec: RemoteServer, resolved: ResolvedRemote): Promise<AuthorizationStatus>;
}

/** Default time limit for a login by the user, in ms. */
const LOGIN_TIMEOUT = 120_000;
const NO_CHALLENGE: AuthChallenge = { status: 401, header: undefined };

/** Makes an authorizer. It reads, creates and loads nothing before a server needs credentials. */
export function openOAuthAuthorizer(options: AuthorizerOptions): OAuthAuthorizer {
  const {
    store,
    lock,
    openUrl,
    clock = systemClock,
    now = Date.now,
    loginTimeout = LOGIN_TIMEOUT,
  } = options;
  const credentialsByServer = new Map<string, Promise<ServerCredentials>>();

  /** Returns the `ServerCredentials` of a server: one object per URL and time limit, shared by all connections. */
  const serverCredentialsOf = (
    { name: server, oauth: { timeout = loginTimeout } }: RemoteServer,
    { url }: ResolvedRemote,
  ): Promise<ServerCredentials> => {
    const key = JSON.stringify([server, url.href, timeout]);
    const existing = credentialsByServer.get(key);
    if (existing !== undefined) return existing;
    const created = storeName("server", server, url.href).then(
      (name) =>
        new ServerCredentials({
          server,
          url,
          name,
          store,
          lock,
          clock,
          loginTimeout: timeout,
          now,
          openUrl,
        }),
    );
    credentialsByServer.set(key, created);
    return created;
  };
  const termsOf = (resolved: ResolvedRemote): OAuthTerms => ({
    settings: resolved.oauth,
    headers: resolved.headers,
    fetch: options.fetch(resolved),
  });

  const credentialsFor = (spec: RemoteServer, resolved: ResolvedRemote): RequestCredentials => {
    const { name, auth } = spec;
    const { bearerToken: key } = resolved;
    const keyHeaders = key === undefined ? undefined : bearer(key);
    if (hasAuthorizationHeader(resolved)) return NO_CREDENTIALS;
    if (auth === "none")
      return keyHeaders ? { ...NO_CREDENTIALS, getHeaders: () => keyHeaders } : NO_CREDENTIALS;
    const terms = termsOf(resolved);
    const loading = serverCredentialsOf(spec, resolved);
    let credentials: ServerCredentials | undefined;
    const throwRedacted = redactingThrower(resolved);
    const bearerHeaders = async (signal: AbortSignal): Promise<Record<string, string>> => {
      credentials = await loading;
      const storedToken = await credentials.token(terms, signal).catch(ignoreIfOptional);
      const token = storedToken ?? (await obtainToken(credentials, signal));
      return token === undefined ? { ...keyHeaders } : bearer(token);
    };
    /** With `auth = "auto"`, an unreadable store is an error only if the server requires a token. */
    const ignoreIfOptional = (error: unknown): undefined => {
      const isOptional = auth === "auto" && error instanceof HubError;
      if (!isOptional || error.code !== "storeBroken") throw error;
    };
    /** With `auth = "oauth"` a token is obtained before the server asks for one. */
    const obtainToken = async (
      serverCredentials: ServerCredentials,
      signal: AbortSignal,
    ): Promise<string | undefined> => {
      if (auth !== "oauth") return undefined;
      if ((await serverCredentials.reload()) !== undefined)
        return serverCredentials.token(terms, signal);
      if (resolved.oauth.grant !== "clientCredentials") {
        if (keyHeaders !== undefined) return undefined;
        throw loginRequiredError(name, `nobody has logged in yet${serverCredentials.refusalNote}`);
      }
      await serverCredentials.authorize(NO_CHALLENGE, terms, { signal, onProgress: () => {} });
      return serverCredentials.token(terms, signal);
    };
    return {
      getHeaders: (signal) => {
        const ready = credentials?.usableToken;
        return ready === undefined ? bearerHeaders(signal).catch(throwRedacted) : bearer(ready);
      },
      renew: async (challenge, signal) =>
        (await loading).renew(challenge, terms, signal).catch(throwRedacted),
    };
  };

  const authorize = async (
    spec: RemoteServer,
    resolved: ResolvedRemote,
    challenge: AuthChallenge,
    control: AuthorizationOptions,
    scopeRequest: ScopeRequest = {},
  ): Promise<void> => {
    checkOAuthAllowed(spec, resolved);
    const credentials = await serverCredentialsOf(spec, resolved);
    await credentials
      .authorize(challenge, termsOf(resolved), control, scopeRequest)
      .catch(redactingThrower(resolved));
  };

  return {
    credentialsFor,
    authorize,
    settled: async () => {
      await Promise.all(
        [...credentialsByServer.values()].map(async (credentials) => (await credentials).settled()),
      );
    },
    login: (spec, resolved, challenge, control, scopes) =>
      authorize(spec, resolved, challenge, control, {
        forceLogin: true,
        ...(scopes && { scopes }),
      }),
    logout: async (spec, resolved, signal) =>
      (await serverCredentialsOf(spec, resolved)).forget(termsOf(resolved), signal),
    getStatus: async (spec, resolved) => {
      if (hasAuthorizationHeader(resolved)) return { kind: "fixed", by: "header" };
      const storedToken =
        spec.auth === "none"
          ? undefined
          : await (await serverCredentialsOf(spec, resolved)).stored();
      if (storedToken !== undefined) return statusOfToken(storedToken, now());
      return resolved.bearerToken === undefined
        ? { kind: "none" }
        : { kind: "fixed", by: "keyFile" };
    },
  };
}

/**
 * Returns a function that rethrows an error with the manifest's secrets redacted: the error may quote a server's
 * response that contains them.
 */
function redactingThrower({ secrets }: ResolvedRemote): (thrown: unknown) => never {
  return (thrown) => {
    const redactor = new Redactor(secrets);
    throw thrown instanceof HubError ? thrown.mapTexts((text) => redactor.apply(text)) : thrown;
  };
}

function statusOfToken(token: StoredToken, now: number): AuthorizationStatus {
  const { issuer, expires, scopes } = token;
  const kind = isExpired(token, now) ? "expired" : "authorized";
  return { kind, issuer, expires, isRefreshable: isRefreshable(token), scopes };
}

function bearer(token: string): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

function hasAuthorizationHeader({ headers }: ResolvedRemote): boolean {
  return Object.keys(headers).some((name) => name.toLowerCase() === "authorization");
}

/** @throws {HubError} unauthorized if the manifest excludes OAuth for this server */
function checkOAuthAllowed({ name, auth }: RemoteServer, resolved: ResolvedRemote): void {
  if (hasAuthorizationHeader(resolved)) {
    throw unauthorizedError(name, "it rejects the Authorization header of the manifest");
  }
  if (auth === "none") {
    throw unauthorizedError(
      name,
      `it requires an authorization, but the manifest says auth = "none"`,
    );
  }
  if (auth === "auto" && resolved.bearerToken !== undefined) {
    throw unauthorizedError(name, "it rejects the token of the manifest's keyFile");
  }
}
