import { type LoginOptions, storedTokenOf } from "./login.ts";
import { quotePeer } from "../base/quote.ts";
import type { StoredToken } from "./stored-token.ts";
import { isSameIssuer } from "./discovery.ts";
import { oauthErrorOf, unauthorizedError } from "./errors.ts";
import {
  clientAuthenticationOf,
  clientInformationOf,
  type ClientRegistration,
} from "./registration.ts";
import { loadSdk } from "./sdk.ts";

/** The login options that also apply to the client credentials grant, which involves no login by a person. */
type ClientCredentialsOptions = Pick<
  LoginOptions,
  "server" | "url" | "authServer" | "settings" | "scopes" | "fetch" | "now" | "signal"
>;

/**
 * Requests a token with the client credentials grant, using the secret or private key in the manifest.
 * @throws {HubError} unauthorized, unreachable
 */
export async function requestClientCredentials(
  options: ClientCredentialsOptions,
): Promise<StoredToken> {
  const { server, authServer, settings, scopes, fetch, signal } = options;
  const { clientId: id, issuer } = settings;
  if (id === undefined || (settings.clientSecret ?? settings.privateKey) === undefined) {
    const reason = `oauth.grant is "clientCredentials", which needs oauth.clientId, and oauth.clientSecret or oauth.privateKey`;
    throw unauthorizedError(server, reason);
  }
  if (issuer !== undefined && !isSameIssuer(issuer, authServer.issuer)) {
    throw unauthorizedError(
      server,
      `its authorization server is ${quotePeer(authServer.issuer)}, not ${quotePeer(issuer)}`,
    );
  }
  const client: ClientRegistration = { kind: "configured", id };
  const { fetchToken } = await loadSdk();
  signal.throwIfAborted();
  const { metadata } = authServer;
  const methods = metadata?.token_endpoint_auth_methods_supported;
  const authenticate = await clientAuthenticationOf(client, settings, methods, server);
  const clientInformation = { ...clientInformationOf(client, settings), issuer: authServer.issuer };
  const ignore = (): void => {};
  try {
    const provider = {
      redirectUrl: undefined,
      clientMetadata: { redirect_uris: [], grant_types: ["client_credentials"] },
      clientInformation: () => clientInformation,
      tokens: () => undefined,
      saveTokens: ignore,
      redirectToAuthorization: ignore,
      saveCodeVerifier: ignore,
      codeVerifier: () => "",
      prepareTokenRequest: (scope: string | undefined) =>
        new URLSearchParams({
          grant_type: "client_credentials",
          ...(scope !== undefined && { scope }),
        }),
      addClientAuthentication: authenticate,
    };
    const tokens = await fetchToken(provider, authServer.url, {
      ...(metadata !== undefined && { metadata }),
      ...(authServer.resource !== undefined && { resource: authServer.resource }),
      ...(scopes.length > 0 && { scope: scopes.join(" ") }),
      fetchFn: fetch,
    });
    return storedTokenOf(tokens, client, options, "clientCredentials", settings);
  } catch (error) {
    throw oauthErrorOf(error, server, "while requesting a token", true);
  }
}
