import type { OAuthSettings } from "../manifest/remote.ts";
import { describe, type Flow } from "./flow.ts";
import type { Kept } from "./kept.ts";
import { explain, refuse } from "./refusal.ts";
import { informationOf, type Registration } from "./registration.ts";
import { type ClientProof, loadSdk } from "./sdk.ts";

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
  const proof = await proofOf(settings, server);
  const { fetchToken } = await loadSdk();
  signal.throwIfAborted();
  const { metadata } = authority;
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
      ...(proof !== undefined && { addClientAuthentication: proof }),
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

/** How a client with a private key proves who it is; undefined: it has none. @throws {HubError} unauthorized */
export async function proofOf(
  settings: OAuthSettings,
  server: string,
): Promise<ClientProof | undefined> {
  const { clientId, privateKey, keyAlgorithm } = settings;
  if (privateKey === undefined || clientId === undefined) return undefined;
  const { createPrivateKey } = await import("node:crypto");
  let key: ReturnType<typeof createPrivateKey>;
  try {
    key = createPrivateKey(privateKey);
  } catch {
    throw refuse(server, "oauth.privateKey in the manifest is no private key in PEM");
  }
  const { asymmetricKeyType: kind, asymmetricKeyDetails: details } = key;
  const alg =
    keyAlgorithm ?? (kind === "ec" ? CURVES[details?.namedCurve ?? ""] : KINDS[kind ?? ""]);
  if (alg === undefined || !/^[REP]S\d{3}$/.test(alg)) {
    throw refuse(server, "oauth.privateKey in the manifest is of a kind that cannot be used");
  }
  const { createPrivateKeyJwtAuth } = await loadSdk();
  // Whichever form it was written in.
  const pem = key.export({ type: "pkcs8", format: "pem" }).toString();
  return createPrivateKeyJwtAuth({ issuer: clientId, subject: clientId, privateKey: pem, alg });
}

const CURVES: Readonly<Record<string, string>> = {
  prime256v1: "ES256",
  secp384r1: "ES384",
  secp521r1: "ES512",
};
const KINDS: Readonly<Record<string, string>> = { rsa: "RS256", "rsa-pss": "PS256" };
