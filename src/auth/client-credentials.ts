import { type LoginOptions, storedTokenOf } from "./login.ts";
import type { StoredToken } from "./stored-token.ts";
import { oauthErrorOf, unauthorizedError } from "./errors.ts";
import {
  clientAuthenticationOf,
  clientInformationOf,
  type ClientRegistration,
} from "./registration.ts";
import { loadSdk } from "./sdk.ts";

/** The login options that need no person. */
type Errand = Pick<
  LoginOptions,
  "server" | "url" | "authority" | "settings" | "scopes" | "fetch" | "now" | "signal"
>;

/**
 * Requests a token with the client credentials grant: the secret or private key is in the manifest.
 * @throws {HubError} unauthorized, unreachable
 */
export async function requestClientCredentials(errand: Errand): Promise<StoredToken> {
  const { server, authority, settings, scopes, fetch, signal } = errand;
  const { clientId: id, issuer } = settings;
  if (id === undefined || (settings.clientSecret ?? settings.privateKey) === undefined) {
    const why = `oauth.grant is "clientCredentials", which needs oauth.clientId, and oauth.clientSecret or oauth.privateKey`;
    throw unauthorizedError(server, why);
  }
  if (issuer !== undefined && issuer !== authority.issuer) {
    throw unauthorizedError(
      server,
      `its authorization server is ${authority.issuer}, not ${issuer}`,
    );
  }
  const client: ClientRegistration = { kind: "configured", id };
  const { fetchToken } = await loadSdk();
  signal.throwIfAborted();
  const { metadata } = authority;
  const methods = metadata?.token_endpoint_auth_methods_supported;
  const proof = await clientAuthenticationOf(client, settings, methods, server);
  const information = { ...clientInformationOf(client, settings), issuer: authority.issuer };
  const nothing = (): void => {};
  try {
    const provider = {
      redirectUrl: undefined,
      clientMetadata: { redirect_uris: [], grant_types: ["client_credentials"] },
      clientInformation: () => information,
      tokens: () => undefined,
      saveTokens: nothing,
      redirectToAuthorization: nothing,
      saveCodeVerifier: nothing,
      codeVerifier: () => "",
      prepareTokenRequest: (scope: string | undefined) =>
        new URLSearchParams({
          grant_type: "client_credentials",
          ...(scope !== undefined && { scope }),
        }),
      addClientAuthentication: proof,
    };
    const tokens = await fetchToken(provider, authority.url, {
      ...(metadata !== undefined && { metadata }),
      ...(authority.resource !== undefined && { resource: authority.resource }),
      ...(scopes.length > 0 && { scope: scopes.join(" ") }),
      fetchFn: fetch,
    });
    return storedTokenOf(tokens, client, errand, "clientCredentials", settings);
  } catch (error) {
    throw oauthErrorOf(error, server, "when a token was asked for", true);
  }
}
