import { formatDuration } from "../base/format.ts";
import { HubError } from "../base/errors.ts";
import { LOOPBACK, networkScopeOf, PUBLIC } from "../transport/http-client/network-scope.ts";
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
      // A name that the server names may lead to an address of a narrower scope than its text says.
      const isTrusted = trustedUrls.some(({ host }) => host === url.host);
      const response = await fetch(url, {
        ...(init as FetchInit),
        signal: combined,
        ...(!isTrusted && { allowedScope: allowedScopeOf(trustedUrls) }),
      });
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
  if (networkScopeOf(url.hostname) > allowedScopeOf(trustedUrls)) {
    throw unauthorizedError(
      server,
      `it names ${url.origin} as a part of its authorization server, but that is an address of a private network`,
    );
  }
  return checkEncryption(url, server);
}

/** The narrowest scope that a URL may have which a server with these URLs names. */
function allowedScopeOf(trustedUrls: readonly URL[]): number {
  return Math.max(...trustedUrls.map(({ hostname }) => networkScopeOf(hostname)), PUBLIC);
}

function checkEncryption(url: URL, server: string): URL {
  if (url.protocol === "https:" || networkScopeOf(url.hostname) === LOOPBACK) return url;
  throw unauthorizedError(
    server,
    `${url.origin} of its authorization server is not encrypted (https)`,
  );
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
