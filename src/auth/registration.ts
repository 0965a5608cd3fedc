import type { OAuthSettings } from "../manifest/manifest.ts";
import type { SecretStore } from "../secrets/secrets.ts";
import type { AuthorizationServer } from "./discovery.ts";
import { oauthErrorOf, refusalOf, type RefusedRequest, unauthorizedError } from "./errors.ts";
import type { SdkFetch } from "./safe-fetch.ts";
import {
  type AuthorizationServerMetadata,
  type ClientInformation,
  type ClientAuthentication,
  loadSdk,
} from "./sdk.ts";

/**
 * The name of an entry in the secret store: a readable part, and a hash of the whole key. It has only characters that
 * every store allows.
 */
export async function storeName(
  kind: "server" | "client",
  ...key: readonly string[]
): Promise<string> {
  const [first = ""] = key;
  const readable = first
    .replace(/^https?:\/\//, "")
    .replace(/[^\w.-]+/g, "-")
    .slice(0, 40);
  const bytes = new TextEncoder().encode(key.join("\0"));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const suffix = [...digest.subarray(0, 8)]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
  return `oauth/${kind}/${readable}-${suffix}`;
}

/** @returns undefined if the text is not a JSON object or array */
export function parseObject(text: string | undefined): object | undefined {
  if (text === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The hub's identity as an OAuth client. */
export interface ClientRegistration {
  /**
   * `configured`: the manifest has the client and its secret or key; `document`: the id is the URL of a client ID
   * metadata document; `registered`: by dynamic client registration (RFC 7591).
   */
  readonly kind: "configured" | "document" | "registered";
  readonly id: string;
  /** The secret of a registered client. */
  readonly secret?: string | undefined;
  /** The client authentication method that the authorization server has assigned. */
  readonly method?: string | undefined;
  readonly redirect?: string | undefined;
  /** When the secret expires, in ms since the epoch; undefined: never. */
  readonly expires?: number | undefined;
}

/** Minimum remaining lifetime of a registration's secret, in ms. A registration with a shorter one is not used. */
const MIN_SECRET_LIFETIME = 5 * 60 * 1000;

export interface RegistrationOptions {
  readonly server: string;
  readonly settings: OAuthSettings;
  readonly store: SecretStore;
  readonly fetch: SdkFetch;
  /** The current time, in ms since the epoch. */
  readonly now: () => number;
}

/** The stored registration at an issuer, unless its secret has expired. */
export async function findRegistration(
  { issuer }: AuthorizationServer,
  { store, now }: RegistrationOptions,
): Promise<ClientRegistration | undefined> {
  const parsed = parseObject(await store.get(await storeName("client", issuer)));
  const stored = parsed as (ClientRegistration & { readonly issuer?: string }) | undefined;
  if (stored?.issuer !== issuer || typeof stored.id !== "string") return undefined;
  const isExpired = stored.expires !== undefined && stored.expires - now() < MIN_SECRET_LIFETIME;
  return isExpired ? undefined : stored;
}

/** Deletes a registration that the authorization server does not recognize. */
export async function forgetRegistration(issuer: string, store: SecretStore): Promise<void> {
  await store.remove(await storeName("client", issuer));
}

/**
 * Chooses the OAuth client: the manifest's client, else a client ID metadata document if the authorization server
 * supports it, else a registered client. A stored registration is used only for the same issuer and redirect URI.
 * @throws {HubError} unauthorized, unreachable
 */
export async function registerClient(
  authServer: AuthorizationServer,
  redirectUri: string,
  scopes: readonly string[],
  options: RegistrationOptions,
): Promise<ClientRegistration> {
  const { settings, store } = options;
  const { issuer, metadata } = authServer;
  if (settings.clientId !== undefined) return { kind: "configured", id: settings.clientId };
  const documentUrl = settings.clientMetadataUrl;
  if (documentUrl !== undefined && metadata?.client_id_metadata_document_supported === true) {
    checkDocumentUrl(documentUrl, options.server);
    return { kind: "document", id: documentUrl };
  }
  const stored = await findRegistration(authServer, options);
  if (stored?.redirect === redirectUri) return stored;
  const registered = await requestRegistration(authServer, redirectUri, scopes, options);
  await store.set(await storeName("client", issuer), JSON.stringify({ issuer, ...registered }));
  return registered;
}

function checkDocumentUrl(documentUrl: string, server: string): void {
  const url = URL.canParse(documentUrl) ? new URL(documentUrl) : undefined;
  if (url?.protocol === "https:" && url.pathname !== "/") return;
  throw unauthorizedError(
    server,
    "oauth.clientMetadataUrl in the manifest is not an https URL with a path",
  );
}

async function requestRegistration(
  { url, metadata }: AuthorizationServer,
  redirectUri: string,
  scopes: readonly string[],
  { server, fetch }: RegistrationOptions,
): Promise<ClientRegistration> {
  if (metadata !== undefined && metadata.registration_endpoint === undefined) {
    const reason =
      "its authorization server does not register clients: write oauth.clientId in the manifest";
    throw unauthorizedError(server, reason);
  }
  const sdk = await loadSdk();
  const method = chooseAuthMethod(metadata);
  try {
    // The SDK deprecates dynamic registration; it is used only if no other way works.
    // oxlint-disable-next-line typescript/no-deprecated
    const response = await sdk.registerClient(url, {
      ...(metadata !== undefined && { metadata }),
      clientMetadata: {
        client_name: "toolmux",
        redirect_uris: [redirectUri],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        application_type: "native",
        ...(method !== undefined && { token_endpoint_auth_method: method }),
      },
      ...(scopes.length > 0 && { scope: scopes.join(" ") }),
      fetchFn: withRedirectUris(fetch, redirectUri),
    });
    const {
      client_id: id,
      client_secret: secret,
      client_secret_expires_at: secretExpiresAt,
    } = response;
    return {
      kind: "registered",
      id,
      secret,
      redirect: redirectUri,
      method: response.token_endpoint_auth_method ?? method,
      // 0 means that the secret never expires.
      expires: secretExpiresAt ? secretExpiresAt * 1000 : undefined,
    };
  } catch (error) {
    const refusal = refusalOf(error);
    if (refusal !== undefined)
      throw unauthorizedError(server, describeRefusedRegistration(refusal));
    throw oauthErrorOf(error, server, "while registering the hub as a client", true);
  }
}

/** The reason why there is no registration, with what the authorization server said, and with advice; as a clause. */
function describeRefusedRegistration({ status, said }: RefusedRequest): string {
  const answer = `(HTTP ${status})${said}`;
  if (status === 404 || status === 405 || status === 501)
    return `its authorization server does not register clients ${answer}; write oauth.clientId in the manifest`;
  if (status === 429 || status >= 500)
    return `its authorization server failed to register the hub as a client ${answer}; try again later, or write oauth.clientId in the manifest`;
  return `its authorization server refused to register the hub as a client ${answer}; if it has registered a client for you, write oauth.clientId in the manifest`;
}

/** A `fetch` that adds the redirect URIs to a registration, for servers that do not repeat them (RFC 7591, 3.2.1). */
function withRedirectUris(fetch: SdkFetch, redirectUri: string): SdkFetch {
  return async (url, init) => {
    const response = await fetch(url, init);
    const registered = response.ok ? parseObject(await response.clone().text()) : undefined;
    if (registered === undefined || "redirect_uris" in registered) return response;
    const { status, headers } = response;
    const body = JSON.stringify({ ...registered, redirect_uris: [redirectUri] });
    return new Response(body, { status, headers });
  };
}

/**
 * Chooses the client authentication method. Prefers `none`, because a native app cannot keep a secret.
 * @returns undefined for the server's default
 */
function chooseAuthMethod(metadata: AuthorizationServerMetadata | undefined): string | undefined {
  const methods = metadata?.token_endpoint_auth_methods_supported;
  return ["none", "client_secret_basic", "client_secret_post"].find((method) =>
    methods?.includes(method),
  );
}

/** Converts a client to the SDK's type. The secret of a configured client is always taken from the manifest. */
export function clientInformationOf(
  client: ClientRegistration,
  settings: OAuthSettings,
): ClientInformation {
  const { kind, id, method } = client;
  const secret = kind === "configured" ? settings.clientSecret : client.secret;
  return {
    client_id: id,
    ...(secret !== undefined && { client_secret: secret }),
    ...(method !== undefined && { token_endpoint_auth_method: method }),
  };
}

/**
 * Chooses the client authentication: `private_key_jwt` with the manifest's key, or the client secret, or none.
 * @throws {HubError} unauthorized if the key is not usable
 */
export async function clientAuthenticationOf(
  client: ClientRegistration,
  settings: OAuthSettings,
  methods: readonly string[] | undefined,
  server: string,
): Promise<ClientAuthentication> {
  const { privateKey } = settings;
  if (client.kind === "configured" && privateKey !== undefined) {
    return privateKeyAuthentication(client.id, privateKey, settings.keyAlgorithm, server);
  }
  const { selectClientAuthMethod } = await loadSdk();
  const information = clientInformationOf(client, settings);
  const { client_id: id, client_secret: secret } = information;
  const method = selectClientAuthMethod(information, [...(methods ?? [])]);
  return (headers, body) => {
    if (method === "client_secret_basic" && secret !== undefined) {
      const pair = new TextEncoder().encode(`${formEncode(id)}:${formEncode(secret)}`);
      headers.set("authorization", `Basic ${btoa(String.fromCodePoint(...pair))}`);
      return;
    }
    body.set("client_id", id);
    if (method === "client_secret_post" && secret !== undefined) body.set("client_secret", secret);
  };
}

/** Encodes a client id or secret as application/x-www-form-urlencoded (RFC 6749, 2.3.1). */
function formEncode(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

async function privateKeyAuthentication(
  id: string,
  text: string,
  algorithm: string | undefined,
  server: string,
): Promise<ClientAuthentication> {
  const { createPrivateKey } = await import("node:crypto");
  let key: ReturnType<typeof createPrivateKey>;
  try {
    key = createPrivateKey(text);
  } catch {
    throw unauthorizedError(
      server,
      "oauth.privateKey in the manifest is not a private key in PEM format",
    );
  }
  const { asymmetricKeyType: keyType, asymmetricKeyDetails: details } = key;
  const supported =
    (keyType === "ec"
      ? ALGORITHMS_BY_CURVE[details?.namedCurve ?? ""]
      : ALGORITHMS_BY_KEY_TYPE[keyType ?? ""]) ?? [];
  const [preferred] = supported;
  if (preferred === undefined) {
    throw unauthorizedError(
      server,
      "oauth.privateKey in the manifest is of a type that is not supported",
    );
  }
  const alg = algorithm ?? preferred;
  if (!supported.includes(alg)) {
    const reason = `oauth.keyAlgorithm in the manifest does not fit its oauth.privateKey, which supports ${supported.join(", ")}`;
    throw unauthorizedError(server, reason);
  }
  const { createPrivateKeyJwtAuth } = await loadSdk();
  // The SDK accepts only PKCS#8 keys.
  const privateKey = key.export({ type: "pkcs8", format: "pem" });
  return createPrivateKeyJwtAuth({ issuer: id, subject: id, privateKey, alg });
}

/** The signing algorithms for each kind of key, the preferred one first. */
type Algorithms = Readonly<Record<string, readonly string[]>>;
const ALGORITHMS_BY_CURVE: Algorithms = {
  prime256v1: ["ES256"],
  secp384r1: ["ES384"],
  secp521r1: ["ES512"],
};
const PSS_ALGORITHMS = ["PS256", "PS384", "PS512"];
const ALGORITHMS_BY_KEY_TYPE: Algorithms = {
  rsa: ["RS256", "RS384", "RS512", ...PSS_ALGORITHMS],
  "rsa-pss": PSS_ALGORITHMS,
};
