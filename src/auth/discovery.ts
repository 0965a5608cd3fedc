import { formatDuration } from "../base/format.ts";
import { type Clock, withTimeLimit } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import type { AuthChallenge } from "../transport/http/target.ts";
import type { BearerChallenge } from "./challenge.ts";
import { quotePeer } from "../base/quote.ts";
import { oauthErrorOf, otherIssuerReason, unauthorizedError } from "./errors.ts";
import { failureOf, type SdkFetch } from "./safe-fetch.ts";
import { type AuthorizationServerMetadata, loadSdk } from "./sdk.ts";

export interface AuthorizationServer {
  /** The issuer identifier, as in the metadata. */
  readonly issuer: string;
  /**
   * Base URL for endpoints: the issuer's URL, or the MCP server's origin if no issuer is named, as in the MCP
   * specification of 2025-03-26.
   */
  readonly url: string;
  /**
   * The metadata of the authorization server; undefined if it has none. In that case, the default endpoints of the MCP
   * specification of 2025-03-26 are used.
   */
  readonly metadata: AuthorizationServerMetadata | undefined;
  /** The resource that tokens are requested for (RFC 8707); undefined if the server has no resource metadata. */
  readonly resource: string | undefined;
  /** The scopes in the resource metadata. */
  readonly scopes: readonly string[];
}

export interface DiscoveryOptions {
  readonly server: string;
  readonly url: URL;
  readonly bearerChallenge: BearerChallenge;
  /** The only accepted issuer (`oauth.issuer`); undefined: any. */
  readonly issuer: string | undefined;
  readonly fetch: SdkFetch;
}

interface ResourceMetadata {
  readonly resource: string;
  readonly issuers: readonly string[];
  readonly scopes: readonly string[];
}

/** Discovers the authorization server of an MCP server. @throws {HubError} unauthorized, unreachable */
export async function discoverAuthorizationServer(
  options: DiscoveryOptions,
): Promise<AuthorizationServer> {
  const { server, url, issuer: configured } = options;
  const resource = await findResourceMetadata(options);
  const advertised = resource?.issuers ?? [];
  const isAccepted = (issuer: string): boolean =>
    advertised.length === 0 || advertised.some((other) => isSameIssuer(other, issuer));
  if (configured !== undefined && !isAccepted(configured)) {
    const others = quotePeer(advertised.join(", "));
    const reason = `it accepts tokens of ${others}, but oauth.issuer in the manifest is ${quotePeer(configured)}`;
    throw unauthorizedError(server, reason);
  }
  // If no issuer is named, the issuer is the server's origin, as in the MCP specification of 2025-03-26.
  const origin = new URL("/", url).href;
  const issuerUrl = configured ?? advertised[0] ?? origin;
  const metadata = await findMetadata(issuerUrl, options);
  if (metadata === undefined && issuerUrl !== origin) {
    throw unauthorizedError(
      server,
      `its authorization server ${quotePeer(issuerUrl)} has no metadata`,
    );
  }
  if (metadata !== undefined) checkPkce(metadata, server);
  return {
    issuer: metadata?.issuer ?? issuerUrl,
    url: issuerUrl,
    metadata,
    resource: resource?.resource,
    scopes: resource?.scopes ?? [],
  };
}

/**
 * Loads the resource metadata from the URL in the challenge, else from the well-known URL with the server's path, else
 * from the well-known URL without a path.
 * @returns undefined if there is no metadata
 */
async function findResourceMetadata(
  options: DiscoveryOptions,
): Promise<ResourceMetadata | undefined> {
  const { server, url, bearerChallenge } = options;
  const path = url.pathname.replace(/\/$/, "");
  const wellKnown = [`${WELL_KNOWN}${path}${url.search}`, WELL_KNOWN].map(
    (wellKnownPath) => new URL(wellKnownPath, url).href,
  );
  const advertised = bearerChallenge.resourceMetadata;
  const advertisedUrls =
    advertised !== undefined && URL.canParse(advertised, url)
      ? [new URL(advertised, url).href]
      : [];
  for (const location of new Set([...advertisedUrls, ...wellKnown])) {
    const json = await loadJson(location, options);
    if (json === undefined) continue;
    const metadata = parseResourceMetadata(json);
    if (typeof metadata === "string") {
      const reason = `its resource metadata at ${location} is invalid: ${metadata}`;
      throw unauthorizedError(server, reason);
    }
    await checkResource(metadata, options);
    return metadata;
  }
  return undefined;
}
const WELL_KNOWN = "/.well-known/oauth-protected-resource";

/** @returns undefined if there is no JSON at that URL */
async function loadJson(location: string, { server, fetch }: DiscoveryOptions): Promise<unknown> {
  try {
    const response = await fetch(location, { headers: { accept: "application/json" } });
    if (response.status >= 500) {
      throw failureOf(new URL(location), response.status, await response.text());
    }
    return response.ok ? ((await response.json()) as unknown) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw oauthErrorOf(error, server, "while loading its resource metadata", true);
  }
}

/** @returns what is wrong with the metadata, as a clause, if they are invalid */
function parseResourceMetadata(value: unknown): ResourceMetadata | string {
  if (typeof value !== "object" || value === null) return "it is not a JSON object";
  const {
    resource,
    authorization_servers: issuers,
    scopes_supported: scopes,
  } = value as RawResourceMetadata;
  if (resource === undefined || resource === null) return "resource is missing";
  if (typeof resource !== "string" || !URL.canParse(resource)) return "resource is not a URL";
  if (!Array.isArray(issuers ?? [])) return "authorization_servers is not an array";
  return { resource, issuers: readStrings(issuers), scopes: readStrings(scopes) };
}

interface RawResourceMetadata {
  readonly resource?: unknown;
  readonly authorization_servers?: unknown;
  readonly scopes_supported?: unknown;
}

/** Maximum number of entries of a list, and maximum length of an entry in characters; longer entries are dropped. */
const MAX_LIST = { entries: 100, length: 500 };

function readStrings(value: unknown): readonly string[] {
  const isText = (entry: unknown): entry is string =>
    typeof entry === "string" && entry.length <= MAX_LIST.length;
  return Array.isArray(value) ? value.filter(isText).slice(0, MAX_LIST.entries) : [];
}

/**
 * Checks that the resource in the metadata is this server. Without this check, a malicious server could get a token for
 * another resource, and use it there.
 */
async function checkResource(
  { resource }: ResourceMetadata,
  { server, url }: DiscoveryOptions,
): Promise<void> {
  const { checkResourceAllowed } = await loadSdk();
  if (checkResourceAllowed({ requestedResource: url, configuredResource: resource })) return;
  const reason = `its metadata is for ${quotePeer(resource)}, but the manifest's url is ${url.origin}${url.pathname}`;
  throw unauthorizedError(server, reason);
}

/**
 * Loads the metadata of RFC 8414 or OpenID Connect Discovery, from the URLs in the order of the MCP specification.
 * @returns undefined if there is no metadata
 */
async function findMetadata(
  issuerUrl: string,
  { server, fetch }: DiscoveryOptions,
): Promise<AuthorizationServerMetadata | undefined> {
  const { discoverAuthorizationServerMetadata } = await loadSdk();
  let metadata: AuthorizationServerMetadata | undefined;
  try {
    metadata = await discoverAuthorizationServerMetadata(issuerUrl, {
      fetchFn: fetch,
      // `isSameIssuer` checks the issuer. The SDK's own check also ignores the slash at the end of a path.
      skipIssuerValidation: true,
    });
  } catch (error) {
    throw oauthErrorOf(
      error,
      server,
      "while loading the metadata of its authorization server",
      true,
    );
  }
  if (metadata === undefined || isSameIssuer(issuerUrl, metadata.issuer)) return metadata;
  const reason = otherIssuerReason(issuerUrl, metadata.issuer);
  throw unauthorizedError(
    server,
    `while loading the metadata of its authorization server, ${reason}`,
  );
}

/**
 * Whether two issuer identifiers are equal as texts, or differ only by an empty path against `/`. Nothing else is the
 * same (RFC 8414, 3.3).
 */
export function isSameIssuer(a: string, b: string): boolean {
  return a === b || withoutRootPath(a) === withoutRootPath(b);
}

function withoutRootPath(issuer: string): string {
  return issuer.replace(/^([a-z][a-z\d+.-]*:\/\/[^/?#]+)\/$/i, "$1");
}

/** Requires PKCE: without PKCE, a stolen authorization code is enough to get a token. */
function checkPkce(metadata: AuthorizationServerMetadata, server: string): void {
  const hasCodeGrant = metadata.grant_types_supported?.includes("authorization_code") ?? true;
  const methods = metadata.code_challenge_methods_supported;
  if (hasCodeGrant && methods?.includes("S256") !== true) throw pkceRequiredError(server);
}

function pkceRequiredError(server: string): HubError {
  return unauthorizedError(server, "its authorization server does not support PKCE with S256");
}

/** The probe requests, tried one after the other; some servers of 2024-11-05 support only GET. */
const PROBE_REQUESTS = [
  {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} }),
  },
  { method: "GET", headers: { accept: "text/event-stream" } },
] as const;

export interface ChallengeProbe {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly fetch: Fetch;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** Time limit for the whole probe, in ms. */
const PROBE_TIMEOUT = 10_000;

/**
 * Sends unauthenticated requests to a server to get its challenge.
 * @returns undefined if the server accepts one of the requests, or sends no challenge
 * @throws {HubError} the errors of `Fetch`; unreachable after the time limit
 */
export function requestChallenge(probe: ChallengeProbe): Promise<AuthChallenge | undefined> {
  const text = `${probe.url.host} did not answer within ${formatDuration(PROBE_TIMEOUT)}.`;
  const timeLimit = {
    ...probe,
    after: PROBE_TIMEOUT,
    reason: () => new HubError("unreachable", text),
  };
  return withTimeLimit(timeLimit, (signal) => sendProbes(probe, signal));
}

async function sendProbes(
  { url, headers, fetch }: ChallengeProbe,
  signal: AbortSignal,
): Promise<AuthChallenge | undefined> {
  for (const { headers: ownHeaders, ...init } of PROBE_REQUESTS) {
    const response = await fetch(url, { ...init, headers: { ...headers, ...ownHeaders }, signal });
    const { status } = response;
    const header = response.headers.get("www-authenticate") ?? undefined;
    await response.body?.cancel();
    if (status === 401 || (status === 403 && header !== undefined)) return { status: 401, header };
    if (response.ok) return undefined;
  }
  return undefined;
}
