import { formatDuration } from "../base/format.ts";
import { HubError } from "../base/errors.ts";
import type { Fetch, FetchInit } from "../transport/http-client/fetch.ts";
import { unauthorizedError } from "./errors.ts";

/** `Fetch` with the signature that the SDK expects. */
export type SdkFetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** Maximum size of a response, in bytes. */
const MAX_BODY = 1024 * 1024;
/** Default time limit per request, in ms (`SafeFetchOptions.timeout`). */
const REQUEST_TIMEOUT = 10_000;

export interface SafeFetchOptions {
  readonly server: string;
  /** The URLs that the manifest itself names: the MCP server and `oauth.issuer`. All other URLs come from servers. */
  readonly trustedUrls: readonly URL[];
  readonly fetch: Fetch;
  readonly signal: AbortSignal;
  /** Time limit per request, in ms. */
  readonly timeout?: number | undefined;
}

/** The URLs that the manifest names for a server and its authorization server. */
export function trustedUrlsOf(url: URL, issuer: string | undefined): readonly URL[] {
  return issuer !== undefined && URL.canParse(issuer) ? [url, new URL(issuer)] : [url];
}

/**
 * Makes a `fetch` for URLs that a server names. It requires https except on loopback, refuses addresses with a narrower
 * network scope than the server's (protection against SSRF), and limits the time and the size of responses.
 */
export function makeSafeFetch({
  server,
  trustedUrls,
  fetch,
  signal,
  timeout: ms = REQUEST_TIMEOUT,
}: SafeFetchOptions): SdkFetch {
  return async (target, init = {}) => {
    const url = checkUrl(target, server, trustedUrls);
    const timeoutSignal = AbortSignal.timeout(ms);
    const combined = AbortSignal.any([
      signal,
      timeoutSignal,
      ...(init.signal ? [init.signal] : []),
    ]);
    try {
      const response = await fetch(url, { ...(init as FetchInit), signal: combined });
      return await readLimited(response, server);
    } catch (error) {
      signal.throwIfAborted();
      if (!timeoutSignal.aborted) throw error;
      const text = `${url.host} did not answer within ${formatDuration(ms)}.`;
      throw new HubError("unreachable", text, { server, cause: error });
    }
  };
}

/** Parses and checks a URL that a server names. @throws {HubError} unauthorized if requests to it are not allowed */
export function checkUrl(target: string | URL, server: string, trustedUrls: readonly URL[]): URL {
  const text = String(target);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw unauthorizedError(
      server,
      "its authorization server names a URL that is not an http(s) URL",
    );
  }
  if (trustedUrls.some(({ host }) => host === url.host)) return checkEncryption(url, server);
  const allowedScope = Math.max(
    ...trustedUrls.map(({ hostname }) => networkScopeOf(hostname)),
    PUBLIC,
  );
  if (networkScopeOf(url.hostname) > allowedScope) {
    throw unauthorizedError(
      server,
      `it names ${url.origin} as a part of its authorization server, but that is an address of a private network`,
    );
  }
  return checkEncryption(url, server);
}

function checkEncryption(url: URL, server: string): URL {
  if (url.protocol === "https:" || networkScopeOf(url.hostname) === LOOPBACK) return url;
  throw unauthorizedError(
    server,
    `${url.origin} of its authorization server is not encrypted (https)`,
  );
}

/* Scopes of addresses, from wide to narrow. A server may name only addresses of its own scope or a wider one. */
export const PUBLIC = 0;
const PRIVATE = 1;
export const LOOPBACK = 2;
/** Link-local addresses, including clouds' metadata services (169.254.169.254), which hand out credentials. */
const LINK_LOCAL = 3;

/** The network scope of a host, derived from its text alone: names are not resolved. */
export function networkScopeOf(hostname: string): number {
  const host = hostname.replace(/^\[|\]$|\.$/g, "").toLowerCase();
  if (host === "localhost" || host.endsWith(".localhost")) return LOOPBACK;
  const mapped = MAPPED_IPV4.exec(host);
  if (mapped !== null) return ipv4ScopeOf(mappedOctets(mapped[1], mapped[2]));
  if (host.includes(":")) return ipv6ScopeOf(host);
  const octets = host.split(".").map(Number);
  return octets.length === 4 && octets.every(Number.isInteger) ? ipv4ScopeOf(octets) : PUBLIC;
}

/** IPv4-mapped and NAT64 addresses (RFC 4291, RFC 6052). */
const MAPPED_IPV4 = /^(?:::ffff:|64:ff9b::)([0-9a-f]{1,4}):([0-9a-f]{1,4})$/;

function mappedOctets(high = "", low = ""): readonly number[] {
  const [a, b] = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
  return [a >> 8, a & 255, b >> 8, b & 255];
}

function ipv4ScopeOf([a = 0, b = 0]: readonly number[]): number {
  if (a === 127) return LOOPBACK;
  if (a === 0 || (a === 169 && b === 254)) return LINK_LOCAL;
  const isPrivate =
    a === 10 ||
    (a === 172 && b >= 16 && b < 32) ||
    (a === 192 && b === 168) ||
    (a === 100 && b >= 64 && b < 128);
  return isPrivate ? PRIVATE : PUBLIC;
}

function ipv6ScopeOf(host: string): number {
  if (host === "::1") return LOOPBACK;
  if (host === "::" || /^fe[89ab]/.test(host)) return LINK_LOCAL;
  return /^f[cd]/.test(host) ? PRIVATE : PUBLIC;
}

/** Reads the body of a response, up to the maximum size. @returns the response with the body in memory */
async function readLimited(response: Response, server: string): Promise<Response> {
  const { status, statusText, headers } = response;
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MAX_BODY)
      throw unauthorizedError(
        server,
        "its authorization server sends a response that is too large",
      );
    chunks.push(chunk);
  }
  const hasBody = status !== 204 && status !== 205 && status !== 304;
  const responseHeaders = new Headers(headers);
  // These headers describe the body as it was transferred, for example compressed, but this body is decoded.
  responseHeaders.delete("content-encoding");
  responseHeaders.delete("content-length");
  return new Response(hasBody ? new Blob(chunks) : null, {
    status,
    statusText,
    headers: responseHeaders,
  });
}
