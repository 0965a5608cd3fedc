import { describe, type Flow } from "./login.ts";
import type { Kept } from "./stored-token.ts";
import { explain, refuse } from "./errors.ts";
import { informationOf, type Registration } from "./registration.ts";
import { proofOf } from "./proof.ts";
import { loadSdk } from "./sdk.ts";

/** What a client that nobody has to help needs of a flow. */
type Errand = Pick<
  Flow,
  "server" | "url" | "authority" | "settings" | "scopes" | "fetch" | "now" | "signal"
>;

/** Gets a token with what the manifest says alone: a secret, or a private key. @throws {HubError} unauthorized, unreachable */
export async function askByItself(errand: Errand): Promise<Kept> {
  const { server, authority, settings, scopes, fetch, signal } = errand;
  const { clientId: id, issuer } = settings;
  if (id === undefined || (settings.clientSecret ?? settings.privateKey) === undefined) {
    const why = `oauth.grant is "clientCredentials", which needs oauth.clientId, and oauth.clientSecret or oauth.privateKey`;
    throw refuse(server, why);
  }
  if (issuer !== undefined && issuer !== authority.issuer) {
    throw refuse(server, `its authorization server is ${authority.issuer}, not ${issuer}`);
  }
  const client: Registration = { kind: "configured", id };
  const { fetchToken } = await loadSdk();
  signal.throwIfAborted();
  const { metadata } = authority;
  const methods = metadata?.token_endpoint_auth_methods_supported;
  const proof = await proofOf(client, settings, methods, server);
  const information = { ...informationOf(client, settings), issuer: authority.issuer };
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
    return describe(tokens, client, errand, "clientCredentials", settings);
  } catch (error) {
    throw explain(error, server, "when a token was asked for", true);
  }
}
