import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import type { OAuthSettings } from "../manifest/schema.ts";
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
import { oauthCode, oauthErrorOf, quoteText, unauthorizedError } from "./errors.ts";
import { type AuthorizationServerMetadata, loadSdk, type OAuthTokens } from "./sdk.ts";

/** Options of a login by a person (authorization code grant). */
export interface LoginOptions extends RegistrationOptions {
  readonly url: URL;
  readonly authority: AuthorizationServer;
  /** The scopes to request; empty: the authorization server's default. */
  readonly scopes: readonly string[];
  /** URLs from the manifest; see `SafeFetchOptions`. */
  readonly home: readonly URL[];
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly progressed: (progress: AuthorizationProgress) => void;
  /** Shows the authorization page to the person. Never rejects. */
  readonly openUrl: (url: string, server: string) => Promise<void>;
}

/** Cancelling earlier than this is taken for the person's wish; later, the page may have been an error page, in ms. */
const LONG = 60_000;

/**
 * Logs in by browser and exchanges the authorization code for tokens.
 * @throws {HubError} unauthorized; unreachable, but only before a person was asked; the signal's reason
 */
export async function login(flow: LoginOptions): Promise<StoredToken> {
  const { server, authority, settings, signal, clock, store } = flow;
  const callback = await openCallback(flow);
  try {
    const client = await registerClient(authority, callback.redirect, flow.scopes, flow);
    signal.throwIfAborted();
    const { url, verifier, state } = await prepare(flow, client, callback);
    // The redirect may arrive before the browser command ends.
    const answered = callback.wait(state, signal);
    answered.catch(() => {});
    const since = clock.now();
    flow.progressed({ step: "openingBrowser", url });
    // The browser command may run as long as the browser is open.
    await Promise.race([flow.openUrl(url, server), answered.catch(() => {})]);
    flow.progressed({ step: "waitingForCallback" });
    const answer = await answered.catch(async (error: unknown) => {
      // The page may only have said that the client is unknown: register again next time.
      const isLong = clock.now() - since >= LONG;
      if (client.kind === "registered" && isLong) await forgetRegistration(authority.issuer, store);
      throw error;
    });
    flow.progressed({ step: "exchangingToken" });
    const tokens = await exchange(flow, client, callback, verifier, answer);
    return storedTokenOf(tokens, client, flow, "authorizationCode", settings);
  } finally {
    callback.close();
  }
}

/** Opens the callback server on the configured port, else on the port of the existing registration if it is free. */
async function openCallback(flow: LoginOptions): Promise<CallbackServer> {
  const { server, settings, authority } = flow;
  const wanted = settings.callbackPort;
  if (wanted !== undefined) {
    const callback = await openCallbackServer(wanted);
    if (callback !== undefined) return callback;
    throw unauthorizedError(
      server,
      `port ${wanted} (oauth.callbackPort) is taken by another program`,
    );
  }
  const known =
    settings.clientId === undefined ? await findRegistration(authority, flow) : undefined;
  const port = known?.redirect === undefined ? 0 : Number(new URL(known.redirect).port);
  const callback = (await openCallbackServer(port)) ?? (await openCallbackServer(0));
  if (callback !== undefined) return callback;
  throw unauthorizedError(server, "this machine has no free port for the browser to come back to");
}

interface Prepared {
  readonly url: string;
  /** The PKCE code verifier. */
  readonly verifier: string;
  readonly state: string;
}

async function prepare(
  { server, authority, settings, scopes, home }: LoginOptions,
  client: ClientRegistration,
  { redirect }: CallbackServer,
): Promise<Prepared> {
  const { startAuthorization } = await loadSdk();
  const state = Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("base64url");
  try {
    const { authorizationUrl, codeVerifier } = await startAuthorization(authority.url, {
      ...(authority.metadata !== undefined && { metadata: authority.metadata }),
      clientInformation: clientInformationOf(client, settings),
      redirectUrl: redirect,
      state,
      ...(scopes.length > 0 && { scope: scopes.join(" ") }),
      ...(authority.resource !== undefined && { resource: authority.resource }),
    });
    // The person's browser may reach addresses that the server must not choose.
    const url = checkUrl(authorizationUrl, server, home);
    return { url: url.href, verifier: codeVerifier, state };
  } catch (error) {
    throw oauthErrorOf(error, server, "when a login was to begin", false);
  }
}

async function exchange(
  flow: LoginOptions,
  client: ClientRegistration,
  { redirect }: CallbackServer,
  codeVerifier: string,
  answer: URLSearchParams,
): Promise<OAuthTokens> {
  const { server, authority, settings, store } = flow;
  const { metadata } = authority;
  const methods = metadata?.token_endpoint_auth_methods_supported;
  const sdk = await loadSdk();
  const iss = answer.get("iss") ?? undefined;
  try {
    // First of all, check that the response is from the expected issuer (RFC 9207, mix-up attacks).
    sdk.validateAuthorizationResponseIssuer({
      iss,
      expectedIssuer: metadata?.issuer,
      issParameterSupported: metadata?.authorization_response_iss_parameter_supported === true,
    });
    const refused = answer.get("error");
    if (refused !== null) throw unauthorizedError(server, explainAnswer(refused));
    return await sdk.exchangeAuthorization(authority.url, {
      ...(metadata !== undefined && { metadata }),
      clientInformation: clientInformationOf(client, settings),
      addClientAuthentication: await clientAuthenticationOf(client, settings, methods, server),
      authorizationCode: answer.get("code") ?? "",
      ...(iss !== undefined && { iss }),
      codeVerifier,
      redirectUri: redirect,
      ...(authority.resource !== undefined && { resource: authority.resource }),
      fetchFn: flow.fetch,
    });
  } catch (error) {
    if (oauthCode(error) === "invalid_client") await forgetRegistration(authority.issuer, store);
    throw oauthErrorOf(error, server, "after the login", false);
  }
}

function explainAnswer(code: string): string {
  if (code === "access_denied") return "the authorization was not given";
  return `its authorization server answered "${quoteText(code)}" to the login`;
}

/** Tokens in the form in which they are stored. */
export function storedTokenOf(
  tokens: OAuthTokens,
  client: ClientRegistration,
  { url, authority, scopes, now }: Pick<LoginOptions, "url" | "authority" | "scopes" | "now">,
  grant: StoredToken["grant"],
  settings: OAuthSettings,
): StoredToken {
  const { issuer, metadata, resource } = authority;
  const issued = now();
  return {
    url: url.href,
    issuer,
    place: authority.url,
    tokenEndpoint: metadata?.token_endpoint,
    revocationEndpoint: revocationOf(metadata),
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

function revocationOf(metadata: AuthorizationServerMetadata | undefined): string | undefined {
  const endpoint = (metadata as { revocation_endpoint?: unknown } | undefined)?.revocation_endpoint;
  return typeof endpoint === "string" ? endpoint : undefined;
}
