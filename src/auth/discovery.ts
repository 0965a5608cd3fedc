import { type Clock, withLimit } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import type { AuthChallenge } from "../transport/http/target.ts";
import type { BearerChallenge } from "./challenge.ts";
import { oauthErrorOf, quoteText, unauthorizedError } from "./errors.ts";
import type { SdkFetch } from "./safe-fetch.ts";
import { type AuthorizationServerMetadata, loadSdk } from "./sdk.ts";

/** Where tokens for a server come from. */
export interface AuthorizationServer {
  /** As it names itself. */
  readonly issuer: string;
  /** Where it is: as `issuer`, but for servers of old, which do not say who is. */
  readonly url: string;
  /** undefined: one of old, which is asked where they all were (2025-03-26). */
  readonly metadata: AuthorizationServerMetadata | undefined;
  /** What tokens are to be good for (RFC 8707); undefined: the server is of old and names nothing. */
  readonly resource: string | undefined;
  /** Those that the server has, as far as it says. */
  readonly scopes: readonly string[];
}

export interface DiscoveryOptions {
  readonly server: string;
  readonly url: URL;
  readonly demand: BearerChallenge;
  /** The only authorization server that is wanted, if it is said which. */
  readonly issuer: string | undefined;
  readonly fetch: SdkFetch;
}

/** What a resource says of itself (RFC 9728), as far as it matters here. */
interface Resource {
  readonly resource: string;
  readonly issuers: readonly string[];
  readonly scopes: readonly string[];
}

/** Finds out where tokens for a server come from. @throws {HubError} unauthorized, unreachable */
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
  // Servers of old are their own authorization servers, or have those beside them.
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

/** Where the server says to look, or else where all have it: for its path first. @returns undefined if it has none */
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

/** @returns undefined if there is nothing there */
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

/** So many of a list, and of that length in characters, are all that is read: they go into addresses. */
const MOST = { texts: 100, length: 500 };

function readTexts(value: unknown): readonly string[] {
  const isText = (it: unknown): it is string => typeof it === "string" && it.length <= MOST.length;
  return Array.isArray(value) ? value.filter(isText).slice(0, MOST.texts) : [];
}

/** A token for another resource would be good there, too, for whoever gets it here. */
async function checkResource(
  { resource }: Resource,
  { server, url }: DiscoveryOptions,
): Promise<void> {
  const { checkResourceAllowed } = await loadSdk();
  if (checkResourceAllowed({ requestedResource: url, configuredResource: resource })) return;
  const why = `it says that it is ${quoteText(resource)}, and the manifest's url is ${url.origin}${url.pathname}`;
  throw unauthorizedError(server, why);
}

/** RFC 8414, or what OpenID providers have, in the order of the specification. @returns undefined if it has none */
async function findMetadata(
  place: string,
  { server, fetch }: DiscoveryOptions,
): Promise<AuthorizationServerMetadata | undefined> {
  const { discoverAuthorizationServerMetadata } = await loadSdk();
  try {
    // It refuses metadata that name another issuer than the one that they were fetched for.
    return await discoverAuthorizationServerMetadata(place, { fetchFn: fetch });
  } catch (error) {
    throw oauthErrorOf(error, server, "when it was asked how it gives tokens", true);
  }
}

/** Without PKCE a code that somebody else gets hold of is as good as a token. */
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

/** What a server is asked, and what it is asked if it knows nothing of that, as some of those of old do not. */
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
  /** What the manifest has requests bear. */
  readonly headers: Readonly<Record<string, string>>;
  readonly dial: Fetch;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** How long a server may take, in ms. */
const LIMIT = 10_000;

/**
 * Asks a server for something that it gives to nobody whom it does not know, to hear what it wants.
 * @returns undefined if it wants nothing, or does not say so
 * @throws {HubError} what `Dial` throws; unreachable if it takes too long
 */
export function requestChallenge(door: ChallengeProbe): Promise<AuthChallenge | undefined> {
  const text = `${door.url.host} did not answer within ${LIMIT / 1000} s.`;
  const limit = { ...door, after: LIMIT, reason: () => new HubError("unreachable", text) };
  return withLimit(limit, (signal) => ask(door, signal));
}

async function ask(
  { url, headers, dial }: ChallengeProbe,
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
