import type { OAuthSettings } from "../manifest/schema.ts";
import { splitScopes } from "./challenge.ts";
import { expiryOf, type StoredToken } from "./stored-token.ts";
import { clientAuthenticationOf, clientInformationOf } from "./registration.ts";
import type { SdkFetch } from "./safe-fetch.ts";
import { oauthCode, unauthorizedError } from "./errors.ts";
import { type AuthorizationServerMetadata, loadSdk, type OAuthTokens } from "./sdk.ts";

/** Temporary OAuth errors. All others mean that the refresh token is no longer valid. */
const PASSING = ["server_error", "temporarily_unavailable", "too_many_requests", "slow_down"];

export interface RefreshOptions {
  readonly server: string;
  readonly settings: OAuthSettings;
  readonly fetch: SdkFetch;
  /** ms since the epoch */
  readonly now: () => number;
}

/**
 * The result of a refresh: another token; or none, as the refresh token is no longer valid, and perhaps the client
 * neither.
 */
export type RefreshResult =
  | { readonly kind: "renewed"; readonly kept: StoredToken }
  | { readonly kind: "gone"; readonly isClientGone: boolean };

/**
 * Exchanges a refresh token for new tokens. The refresh token may be rotated: the result has to be stored before it is
 * used.
 * @throws {HubError} unreachable; or serverRefused if the manifest's client is rejected: the stored token may still be
 * valid
 */
export async function refreshToken(
  kept: StoredToken,
  renewal: RefreshOptions,
): Promise<RefreshResult> {
  const { server, settings, fetch, now } = renewal;
  const { client, refresh: token, resource } = kept;
  const isOther = client.kind === "configured" && client.id !== settings.clientId;
  if (token === undefined || isOther) return { kind: "gone", isClientGone: false };
  const { refreshAuthorization } = await loadSdk();
  const proof = await clientAuthenticationOf(client, settings, kept.methods, server);
  const metadata = metadataOf(kept);
  let tokens: OAuthTokens;
  try {
    tokens = await refreshAuthorization(kept.place, {
      ...(metadata !== undefined && { metadata }),
      clientInformation: clientInformationOf(client, settings),
      refreshToken: token,
      ...(resource !== undefined && { resource }),
      addClientAuthentication: proof,
      fetchFn: fetch,
    });
  } catch (error) {
    const code = oauthCode(error);
    if (code === "invalid_client" && client.kind === "configured") {
      const slip = `${kept.issuer} does not take the client that the manifest says (oauth.clientId and what proves it)`;
      throw unauthorizedError(server, slip, "serverRefused");
    }
    if (code !== undefined && !PASSING.includes(code)) {
      return { kind: "gone", isClientGone: code === "invalid_client" };
    }
    const why = `its token has to be renewed, and ${kept.issuer} does not do that now`;
    throw unauthorizedError(server, why, "unreachable");
  }
  const issued = now();
  const renewed: StoredToken = {
    ...kept,
    access: tokens.access_token,
    refresh: tokens.refresh_token,
    scopes: tokens.scope === undefined ? kept.scopes : splitScopes(tokens.scope),
    issued,
    expires: expiryOf(issued, tokens.expires_in),
  };
  return { kind: "renewed", kept: renewed };
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

/** Revokes the tokens at the authorization server (RFC 7009). @returns whether it has confirmed that */
export async function revokeToken(
  kept: StoredToken,
  { settings, server, fetch }: RefreshOptions,
): Promise<boolean> {
  const { revocationEndpoint: endpoint } = kept;
  if (endpoint === undefined) return false;
  const proof = await clientAuthenticationOf(kept.client, settings, kept.methods, server);
  const done: boolean[] = [];
  for (const [hint, token] of [
    ["refresh_token", kept.refresh],
    ["access_token", kept.access],
  ] as const) {
    if (token === undefined) continue;
    const body = new URLSearchParams({ token, token_type_hint: hint });
    const headers = new Headers({ accept: "application/json" });
    await proof(headers, body, endpoint, metadataOf(kept));
    const answer = await fetch(endpoint, { method: "POST", headers, body }).catch(() => undefined);
    done.push(answer?.ok === true);
  }
  return done.every(Boolean);
}
