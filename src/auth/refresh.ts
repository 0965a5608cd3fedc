import type { OAuthSettings } from "../manifest/manifest.ts";
import { splitScopes } from "./challenge.ts";
import { expiryOf, type StoredToken } from "./stored-token.ts";
import { clientAuthenticationOf, clientInformationOf } from "./registration.ts";
import type { SdkFetch } from "./safe-fetch.ts";
import { toHubError } from "../base/errors.ts";
import { oauthErrorOf, refusalOf, unauthorizedError } from "./errors.ts";
import { type AuthorizationServerMetadata, loadSdk, type OAuthTokens } from "./sdk.ts";

/** Temporary OAuth errors. All other OAuth errors mean that the refresh token is no longer valid. */
const TEMPORARY_ERRORS = [
  "server_error",
  "temporarily_unavailable",
  "too_many_requests",
  "slow_down",
];

export interface RefreshOptions {
  readonly server: string;
  readonly settings: OAuthSettings;
  readonly fetch: SdkFetch;
  /** The current time, in ms since the epoch. */
  readonly now: () => number;
}

/**
 * The result of a refresh: a new token, or `invalid` if the refresh token is no longer valid. `isClientInvalid`: the
 * client's registration is not valid, either; `reason`: what the authorization server answered, as a clause.
 */
export type RefreshResult =
  | { readonly kind: "renewed"; readonly token: StoredToken }
  | {
      readonly kind: "invalid";
      readonly isClientInvalid: boolean;
      readonly reason: string | undefined;
    };

/**
 * Exchanges a refresh token for new tokens. The server may replace the refresh token, so the result has to be stored
 * before it is used.
 * @throws {HubError} unreachable; serverRefused if the authorization server rejects the manifest's client (the stored
 * token may still be valid)
 */
export async function refreshToken(
  stored: StoredToken,
  options: RefreshOptions,
): Promise<RefreshResult> {
  const { server, settings, fetch, now } = options;
  const { client, refresh: token, resource } = stored;
  const isOtherClient = client.kind === "configured" && client.id !== settings.clientId;
  if (token === undefined || isOtherClient)
    return { kind: "invalid", isClientInvalid: false, reason: undefined };
  const { refreshAuthorization } = await loadSdk();
  const authenticate = await clientAuthenticationOf(client, settings, stored.methods, server);
  const metadata = metadataOf(stored);
  let tokens: OAuthTokens;
  try {
    tokens = await refreshAuthorization(stored.place, {
      ...(metadata !== undefined && { metadata }),
      clientInformation: clientInformationOf(client, settings),
      refreshToken: token,
      ...(resource !== undefined && { resource }),
      addClientAuthentication: authenticate,
      fetchFn: fetch,
    });
  } catch (error) {
    const refusal = refusalOf(error);
    const code = refusal?.oauthCode;
    if (refusal !== undefined && code === "invalid_client" && client.kind === "configured") {
      const clientProblem = `${stored.issuer} rejects the client in the manifest (oauth.clientId and its secret or key)${refusal.said}`;
      throw unauthorizedError(server, clientProblem, "serverRefused");
    }
    if (refusal !== undefined && code !== undefined && !TEMPORARY_ERRORS.includes(code)) {
      const isClientInvalid = code === "invalid_client";
      return { kind: "invalid", isClientInvalid, reason: refusal.message };
    }
    const cause =
      refusal === undefined ? oauthErrorOf(error, server, "while renewing its token", true) : error;
    const reason = `its token must be renewed, but ${stored.issuer} cannot do that now: ${toMessage(cause)}`;
    throw unauthorizedError(server, reason, "unreachable");
  }
  const issued = now();
  const newToken: StoredToken = {
    ...stored,
    access: tokens.access_token,
    refresh: tokens.refresh_token,
    scopes: tokens.scope === undefined ? stored.scopes : splitScopes(tokens.scope),
    issued,
    expires: expiryOf(issued, tokens.expires_in),
  };
  return { kind: "renewed", token: newToken };
}

/** The metadata that a token request needs; undefined for an authorization server without metadata. */
function metadataOf({
  issuer,
  tokenEndpoint,
  methods,
}: StoredToken): AuthorizationServerMetadata | undefined {
  if (tokenEndpoint === undefined) return undefined;
  return {
    issuer,
    token_endpoint: tokenEndpoint,
    authorization_endpoint: tokenEndpoint,
    response_types_supported: ["code"],
    ...(methods !== undefined && { token_endpoint_auth_methods_supported: [...methods] }),
  };
}

/**
 * The result of a revocation: `failed` if the authorization server has not confirmed it, with the reason as a clause.
 */
export type RevocationResult =
  | { readonly kind: "revoked" }
  | { readonly kind: "notSupported" }
  | { readonly kind: "failed"; readonly reason: string };

/** Revokes the tokens at the authorization server (RFC 7009). */
export async function revokeToken(
  stored: StoredToken,
  { settings, server, fetch }: RefreshOptions,
): Promise<RevocationResult> {
  const { revocationEndpoint: endpoint } = stored;
  if (endpoint === undefined) return { kind: "notSupported" };
  const authenticate = await clientAuthenticationOf(
    stored.client,
    settings,
    stored.methods,
    server,
  );
  const reasons: string[] = [];
  for (const [hint, token] of [
    ["refresh_token", stored.refresh],
    ["access_token", stored.access],
  ] as const) {
    if (token === undefined) continue;
    const body = new URLSearchParams({ token, token_type_hint: hint });
    const headers = new Headers({ accept: "application/json" });
    await authenticate(headers, body, endpoint, metadataOf(stored));
    try {
      const { ok, status } = await fetch(endpoint, { method: "POST", headers, body });
      if (!ok) reasons.push(`${new URL(endpoint).host} answered HTTP ${status}`);
    } catch (error) {
      reasons.push(toMessage(error));
    }
  }
  const [reason] = reasons;
  return reason === undefined ? { kind: "revoked" } : { kind: "failed", reason };
}

function toMessage(thrown: unknown): string {
  return toHubError(thrown).message.replace(/\.$/, "");
}
