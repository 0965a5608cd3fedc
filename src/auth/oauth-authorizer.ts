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
  /** Over all processes of this user. */
  readonly lock: LockFunction;
  /** Makes requests as the manifest says that a server is reached. */
  fetch(resolved: ResolvedRemote): Fetch;
  /** Shows a person a page to log in at. Never rejects. */
  readonly openUrl: (url: string, server: string) => Promise<void>;
  /** ms since the epoch */
  readonly now?: () => number;
  readonly clock?: Clock;
  /** How long a person may take, in ms. */
  readonly limit?: number;
}

/** How it stands with a server's authorization. Times are in ms since the epoch, undefined where they are not said. */
export type AuthorizationStatus =
  | { readonly kind: "none" }
  /** The manifest says what is borne. */
  | { readonly kind: "fixed"; readonly by: "header" | "keyFile" }
  | {
      readonly kind: "authorized" | "expired";
      readonly issuer: string;
      readonly expires: number | undefined;
      /** Another token can be got without anybody's help. */
      readonly isRefreshable: boolean;
      readonly scopes: readonly string[];
    };

/** An authorizer, for those who ask for more than a hub does. */
export interface OAuthAuthorizer extends Authorizer {
  /** As `authorize`, but a person is asked whatever there is. */
  login(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    challenge: AuthChallenge,
    proceeding: AuthorizationOptions,
    scopes: readonly string[] | undefined,
  ): Promise<void>;
  /** @returns whether there was an authorization, and whether it is revoked where it came from */
  logout(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    signal: AbortSignal,
  ): Promise<{ was: boolean; isRevoked: boolean }>;
  stand(spec: RemoteServer, resolved: ResolvedRemote): Promise<AuthorizationStatus>;
}

/** How long a person may take to log in, in ms. */
const LOGIN_LIMIT = 120_000;
const UNSAID: AuthChallenge = { status: 401, header: undefined };

/** Nothing is read, made or loaded before a server wants it. */
export function openOAuthAuthorizer(parts: AuthorizerOptions): OAuthAuthorizer {
  const { store, lock, openUrl, clock = systemClock, now = Date.now, limit = LOGIN_LIMIT } = parts;
  const passes = new Map<string, Promise<ServerCredentials>>();

  /** One server's is one, whatever of it there is in the hub. */
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
    /** Secrets that cannot be read are the trouble of servers that want one. */
    const forgive = (error: unknown): undefined => {
      const isOptional = auth === "auto" && error instanceof HubError;
      if (!isOptional || error.code !== "storeBroken") throw error;
    };
    /** Where it is known that one is needed, the server need not say it first. */
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

/** Takes what the manifest keeps secret out of what is thrown: others may have said it. */
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

/** @throws {HubError} unauthorized if the manifest leaves no place for a token */
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
