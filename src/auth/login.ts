import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import type { OAuthSettings } from "../manifest/manifest.ts";
import type { AuthorizationProgress } from "../transport/http/target.ts";
import { type CallbackServer, openCallbackServer } from "./callback-server.ts";
import { splitScopes } from "./challenge.ts";
import type { AuthorizationServer } from "./discovery.ts";
import { expiryOf, type StoredToken } from "./stored-token.ts";
import {
  clientAuthenticationOf,
  clientInformationOf,
  type ClientRegistration,
  findRegistration,
  forgetRegistration,
  registerClient,
  type RegistrationOptions,
} from "./registration.ts";
import { checkUrl } from "./safe-fetch.ts";
import { quotePeer, saidByPeer } from "../base/quote.ts";
import { oauthErrorOf, refusalOf, unauthorizedError } from "./errors.ts";
import { type AuthorizationServerMetadata, loadSdk, type OAuthTokens } from "./sdk.ts";

/** Options of a login by the user (authorization code grant). */
export interface LoginOptions extends RegistrationOptions {
  readonly url: URL;
  readonly authServer: AuthorizationServer;
  /** The scopes to request; empty: the authorization server's default. */
  readonly scopes: readonly string[];
  /** URLs from the manifest; see `SafeFetchOptions`. */
  readonly trustedUrls: readonly URL[];
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly onProgress: (progress: AuthorizationProgress) => void;
  /** Shows the authorization page to the user. Never rejects. */
  readonly openUrl: (url: string, server: string) => Promise<void>;
}

/**
 * Time since the start of the login, in ms. If a login is cancelled earlier, the user has probably declined; if it is
 * cancelled later, the page may have shown an error.
 */
const LIKELY_STUCK_AFTER = 60_000;

/**
 * Logs in by browser and exchanges the authorization code for tokens.
 * @throws {HubError} unauthorized; unreachable, but only before the user is involved; the signal's reason
 */
export async function login(options: LoginOptions): Promise<StoredToken> {
  const { server, authServer, settings, signal, clock, store } = options;
  const callback = await openCallback(options);
  try {
    const client = await registerClient(authServer, callback.redirectUri, options.scopes, options);
    signal.throwIfAborted();
    const { url, verifier, state } = await prepareLogin(options, client, callback);
    // Wait for the redirect from now on: it may arrive before the browser command ends.
    const redirected = callback.wait(state, signal);
    redirected.catch(() => {});
    const startedAt = clock.now();
    options.onProgress({ step: "openingBrowser", url });
    // The redirect ends this wait, too, because the browser command may run until the browser is closed.
    await Promise.race([options.openUrl(url, server), redirected.catch(() => {})]);
    options.onProgress({ step: "waitingForCallback" });
    const params = await redirected.catch(async (error: unknown) => {
      // The page may have shown an error because the authorization server no longer knows the client: register again
      // next time.
      const wasLong = clock.now() - startedAt >= LIKELY_STUCK_AFTER;
      if (client.kind === "registered" && wasLong)
        await forgetRegistration(authServer.issuer, store);
      throw error;
    });
    options.onProgress({ step: "exchangingToken" });
    const tokens = await exchangeCode(options, client, callback, verifier, params);
    return storedTokenOf(tokens, client, options, "authorizationCode", settings);
  } finally {
    callback.close();
  }
}

/**
 * Opens the callback server on the configured port. If none is configured, prefers the port of the stored registration,
 * and otherwise takes any free port.
 */
async function openCallback(options: LoginOptions): Promise<CallbackServer> {
  const { server, settings, authServer } = options;
  const configuredPort = settings.callbackPort;
  if (configuredPort !== undefined) {
    const callback = await openCallbackServer(configuredPort);
    if (callback !== undefined) return callback;
    throw unauthorizedError(
      server,
      `port ${configuredPort} (oauth.callbackPort) is taken by another program`,
    );
  }
  const registration =
    settings.clientId === undefined ? await findRegistration(authServer, options) : undefined;
  const port =
    registration?.redirect === undefined ? 0 : Number(new URL(registration.redirect).port);
  const callback = (await openCallbackServer(port)) ?? (await openCallbackServer(0));
  if (callback !== undefined) return callback;
  throw unauthorizedError(
    server,
    "this machine has no free port to which the browser could return",
  );
}

interface PreparedLogin {
  readonly url: string;
  readonly verifier: string;
  readonly state: string;
}

async function prepareLogin(
  { server, authServer, settings, scopes, trustedUrls }: LoginOptions,
  client: ClientRegistration,
  { redirectUri }: CallbackServer,
): Promise<PreparedLogin> {
  const { startAuthorization } = await loadSdk();
  const state = Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("base64url");
  try {
    const { authorizationUrl, codeVerifier } = await startAuthorization(authServer.url, {
      ...(authServer.metadata !== undefined && { metadata: authServer.metadata }),
      clientInformation: clientInformationOf(client, settings),
      redirectUrl: redirectUri,
      state,
      ...(scopes.length > 0 && { scope: scopes.join(" ") }),
      ...(authServer.resource !== undefined && { resource: authServer.resource }),
    });
    // The server must not lead the user's browser to addresses that only this machine or its network can reach.
    const url = checkUrl(authorizationUrl, server, trustedUrls);
    return { url: url.href, verifier: codeVerifier, state };
  } catch (error) {
    throw oauthErrorOf(error, server, "while preparing a login", false);
  }
}

async function exchangeCode(
  options: LoginOptions,
  client: ClientRegistration,
  { redirectUri }: CallbackServer,
  codeVerifier: string,
  params: URLSearchParams,
): Promise<OAuthTokens> {
  const { server, authServer, settings, store } = options;
  const { metadata } = authServer;
  const methods = metadata?.token_endpoint_auth_methods_supported;
  const sdk = await loadSdk();
  const iss = params.get("iss") ?? undefined;
  try {
    // Before anything else, check that the response is from the expected issuer (RFC 9207, mix-up attacks).
    sdk.validateAuthorizationResponseIssuer({
      iss,
      expectedIssuer: metadata?.issuer,
      issParameterSupported: metadata?.authorization_response_iss_parameter_supported === true,
    });
    const errorCode = params.get("error");
    if (errorCode !== null) throw unauthorizedError(server, describeRefusal(errorCode, params));
    return await sdk.exchangeAuthorization(authServer.url, {
      ...(metadata !== undefined && { metadata }),
      clientInformation: clientInformationOf(client, settings),
      addClientAuthentication: await clientAuthenticationOf(client, settings, methods, server),
      authorizationCode: params.get("code") ?? "",
      ...(iss !== undefined && { iss }),
      codeVerifier,
      redirectUri,
      ...(authServer.resource !== undefined && { resource: authServer.resource }),
      fetchFn: options.fetch,
    });
  } catch (error) {
    if (refusalOf(error)?.oauthCode === "invalid_client")
      await forgetRegistration(authServer.issuer, store);
    throw oauthErrorOf(error, server, "after the login", false);
  }
}

/** The reason in an error response to the authorization request (RFC 6749, 4.1.2.1), as a clause. */
function describeRefusal(code: string, params: URLSearchParams): string {
  const said = saidByPeer(params.get("error_description") ?? undefined);
  if (code === "access_denied") return `access was denied${said}`;
  return `its authorization server answered ${quotePeer(code) || '""'} to the login${said}`;
}

export function storedTokenOf(
  tokens: OAuthTokens,
  client: ClientRegistration,
  { url, authServer, scopes, now }: Pick<LoginOptions, "url" | "authServer" | "scopes" | "now">,
  grant: StoredToken["grant"],
  settings: OAuthSettings,
): StoredToken {
  const { issuer, metadata, resource } = authServer;
  const issued = now();
  return {
    url: url.href,
    issuer,
    place: authServer.url,
    tokenEndpoint: metadata?.token_endpoint,
    revocationEndpoint: revocationEndpointOf(metadata),
    methods: metadata?.token_endpoint_auth_methods_supported,
    resource,
    asked: [...new Set([...scopes, ...(settings.scopes ?? [])])],
    // Without `scope` in the response, the requested scopes were granted (RFC 6749, 5.1).
    scopes: tokens.scope === undefined ? scopes : splitScopes(tokens.scope),
    grant,
    client,
    access: tokens.access_token,
    refresh: tokens.refresh_token,
    issued,
    expires: expiryOf(issued, tokens.expires_in),
  };
}

function revocationEndpointOf(
  metadata: AuthorizationServerMetadata | undefined,
): string | undefined {
  const endpoint = (metadata as { revocation_endpoint?: unknown } | undefined)?.revocation_endpoint;
  return typeof endpoint === "string" ? endpoint : undefined;
}
