import { type Clock, withLimit } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import type { AuthChallenge } from "../transport/http/target.ts";
import type { BearerChallenge } from "./challenge.ts";
import { oauthErrorOf, quoteText, unauthorizedError } from "./errors.ts";
import type { SdkFetch } from "./safe-fetch.ts";
import { type AuthorizationServerMetadata, loadSdk } from "./sdk.ts";

/** The authorization server of an MCP server. */
export interface AuthorizationServer {
  /** The issuer identifier, as in the metadata. */
  readonly issuer: string;
  /** Base URL for endpoints: the issuer's, or the MCP server's origin where no issuer is named (2025-03-26). */
  readonly url: string;
  /** undefined: an authorization server of 2025-03-26 without metadata, which has the default endpoints. */
  readonly metadata: AuthorizationServerMetadata | undefined;
  /** The resource that tokens are requested for (RFC 8707); undefined if the server has no resource metadata. */
  readonly resource: string | undefined;
  /** The scopes in the resource metadata. */
  readonly scopes: readonly string[];
}

export interface DiscoveryOptions {
  readonly server: string;
  readonly url: URL;
  readonly demand: BearerChallenge;
  /** The only accepted issuer (`oauth.issuer`); undefined: any. */
  readonly issuer: string | undefined;
  readonly fetch: SdkFetch;
}

/** Protected resource metadata (RFC 9728), as far as they are used. */
interface Resource {
  readonly resource: string;
  readonly issuers: readonly string[];
  readonly scopes: readonly string[];
}

/** Discovers the authorization server of an MCP server. @throws {HubError} unauthorized, unreachable */
export async function discoverAuthorizationServer(
  search: DiscoveryOptions,
): Promise<AuthorizationServer> {
  const { server, url, issuer: wanted } = search;
  const resource = await findResource(search);
  const named = resource?.issuers ?? [];
  if (wanted !== undefined && named.length > 0 && !named.includes(wanted)) {
    const others = quoteText(named.join(", "));
    const why = `it takes tokens of ${others}, and oauth.issuer in the manifest says ${wanted}`;
    throw unauthorizedError(server, why);
  }
  // Servers of 2025-03-26 are their own authorization servers, or have the metadata at their origin.
  const home = new URL("/", url).href;
  const place = wanted ?? named[0] ?? home;
  const metadata = await findMetadata(place, search);
  if (metadata === undefined && place !== home) {
    throw unauthorizedError(
      server,
      `its authorization server ${quoteText(place)} says nothing of itself`,
    );
  }
  if (metadata !== undefined) checkMetadata(metadata, server);
  return {
    issuer: metadata?.issuer ?? place,
    url: place,
    metadata,
    resource: resource?.resource,
    scopes: resource?.scopes ?? [],
  };
}

/**
 * Loads the resource metadata from the URL in the challenge, else from the well-known URLs, with path first.
 * @returns undefined if there are none
 */
async function findResource(search: DiscoveryOptions): Promise<Resource | undefined> {
  const { server, url, demand } = search;
  const path = url.pathname.replace(/\/$/, "");
  const known = [`${WELL_KNOWN}${path}${url.search}`, WELL_KNOWN].map(
    (it) => new URL(it, url).href,
  );
  const said = demand.resourceMetadata;
  const named = said !== undefined && URL.canParse(said, url) ? [new URL(said, url).href] : [];
  for (const place of new Set([...named, ...known])) {
    const found = await load(place, search);
    if (found === undefined) continue;
    const resource = readResource(found);
    if (resource === undefined) {
      throw unauthorizedError(
        server,
        `what it says of itself at ${place} is not what it should be`,
      );
    }
    await checkResource(resource, search);
    return resource;
  }
  return undefined;
}
const WELL_KNOWN = "/.well-known/oauth-protected-resource";

/** @returns undefined if there is no JSON at that URL */
async function load(place: string, { server, fetch }: DiscoveryOptions): Promise<unknown> {
  try {
    const response = await fetch(place, { headers: { accept: "application/json" } });
    if (response.status >= 500) {
      throw new HubError(
        "serverFailed",
        `${new URL(place).host} answered with HTTP ${response.status}.`,
      );
    }
    return response.ok ? ((await response.json()) as unknown) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw oauthErrorOf(error, server, "when it was asked who gives tokens for it", true);
  }
}

function readResource(value: unknown): Resource | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const {
    resource,
    authorization_servers: issuers,
    scopes_supported: scopes,
  } = value as RawResource;
  if (typeof resource !== "string" || !URL.canParse(resource)) return undefined;
  return { resource, issuers: readTexts(issuers), scopes: readTexts(scopes) };
}

interface RawResource {
  readonly resource?: unknown;
  readonly authorization_servers?: unknown;
  readonly scopes_supported?: unknown;
}

/** Limits of a list: entries, and characters of each. The entries become parts of URLs. */
const MOST = { texts: 100, length: 500 };

function readTexts(value: unknown): readonly string[] {
  const isText = (it: unknown): it is string => typeof it === "string" && it.length <= MOST.length;
  return Array.isArray(value) ? value.filter(isText).slice(0, MOST.texts) : [];
}

/** A token for another resource could be used there by this server. */
async function checkResource(
  { resource }: Resource,
  { server, url }: DiscoveryOptions,
): Promise<void> {
  const { checkResourceAllowed } = await loadSdk();
  if (checkResourceAllowed({ requestedResource: url, configuredResource: resource })) return;
  const why = `it says that it is ${quoteText(resource)}, and the manifest's url is ${url.origin}${url.pathname}`;
  throw unauthorizedError(server, why);
}

/**
 * Loads the metadata of RFC 8414 or OpenID Connect Discovery, in the order of the MCP specification.
 * @returns undefined if there are none
 */
async function findMetadata(
  place: string,
  { server, fetch }: DiscoveryOptions,
): Promise<AuthorizationServerMetadata | undefined> {
  const { discoverAuthorizationServerMetadata } = await loadSdk();
  try {
    // The SDK rejects metadata with another issuer than the one requested.
    return await discoverAuthorizationServerMetadata(place, { fetchFn: fetch });
  } catch (error) {
    throw oauthErrorOf(error, server, "when it was asked how it gives tokens", true);
  }
}

/** Without PKCE a stolen authorization code is enough to get a token. */
function checkMetadata(metadata: AuthorizationServerMetadata, server: string): void {
  const isForPeople = metadata.grant_types_supported?.includes("authorization_code") ?? true;
  const methods = metadata.code_challenge_methods_supported;
  if (isForPeople && methods?.includes("S256") !== true) throw refuseWithoutPkce(server);
}

function refuseWithoutPkce(server: string): HubError {
  return unauthorizedError(
    server,
    "its authorization server does not protect codes (PKCE with S256)",
  );
}

/** The requests that are tried in turn; some servers of 2024-11-05 know only GET. */
const QUESTIONS = [
  {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} }),
  },
  { method: "GET", headers: { accept: "text/event-stream" } },
] as const;

export interface ChallengeProbe {
  readonly url: URL;
  /** The headers in the manifest. */
  readonly headers: Readonly<Record<string, string>>;
  readonly fetch: Fetch;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** Time limit for the whole probe, in ms. */
const LIMIT = 10_000;

/**
 * Sends unauthenticated requests to a server to get its challenge.
 * @returns undefined if it accepts one, or sends no challenge
 * @throws {HubError} as `Fetch`; unreachable after the time limit
 */
export function requestChallenge(door: ChallengeProbe): Promise<AuthChallenge | undefined> {
  const text = `${door.url.host} did not answer within ${LIMIT / 1000} s.`;
  const limit = { ...door, after: LIMIT, reason: () => new HubError("unreachable", text) };
  return withLimit(limit, (signal) => ask(door, signal));
}

async function ask(
  { url, headers, fetch: dial }: ChallengeProbe,
  signal: AbortSignal,
): Promise<AuthChallenge | undefined> {
  for (const { headers: own, ...question } of QUESTIONS) {
    const response = await dial(url, { ...question, headers: { ...headers, ...own }, signal });
    const { status } = response;
    const header = response.headers.get("www-authenticate") ?? undefined;
    await response.body?.cancel();
    if (status === 401 || (status === 403 && header !== undefined)) return { status: 401, header };
    if (response.ok) return undefined;
  }
  return undefined;
}
