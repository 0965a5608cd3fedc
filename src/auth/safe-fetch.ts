import { formatDuration } from "../base/format.ts";
import { HubError } from "../base/errors.ts";
import { LOOPBACK, networkScopeOf, PUBLIC } from "../transport/http-client/network-scope.ts";
import type { Fetch, FetchInit } from "../transport/http-client/fetch.ts";
import { quotePeer, reasonInBody, saidByPeer } from "../base/quote.ts";
import { RefusedRequest, refusedError, unauthorizedError } from "./errors.ts";

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
 * network scope than the server's (protection against SSRF), and limits the time and the size of responses. In the JSON
 * of a response, members that are null are left out: null is absent.
 *
 * The function that it returns rejects with `unauthorized` if a POST is refused (see `refusalOf`), and with `serverFailed` if the server
 * fails otherwise (HTTP 500 and above; 502 is returned, because it may be about one path only).
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
      const body = await readLimited(response, server);
      return responseOf(response, body, url, init);
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
      `its authorization server names a URL that is not an http(s) URL: ${quotePeer(text)}`,
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

/** Reads the body of a response, up to the maximum size, as text. */
async function readLimited(response: Response, server: string): Promise<string> {
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
  return new Blob(chunks).text();
}

/**
 * The response with its body in memory.
 * @throws {HubError} unauthorized if a POST is refused, by its status or by an `error` in the body; serverFailed
 */
function responseOf(response: Response, text: string, url: URL, init: RequestInit): Response {
  const { status, statusText, headers } = response;
  const isPost = init.method?.toUpperCase() === "POST";
  const json = status < 300 ? parseObject(text) : undefined;
  // Some servers report errors with HTTP 200.
  const isRefusal = typeof json?.["error"] === "string" && !isGrant(json);
  if (isPost && (status >= 400 || isRefusal))
    throw refusedError(new RefusedRequest(url.host, status, text, secretsOf(init)));
  if (status >= 500 && status !== 502) throw failureOf(url, status, text);
  const hasBody = status !== 204 && status !== 205 && status !== 304;
  const responseHeaders = new Headers(headers);
  // These headers describe the body as it was transferred, for example compressed, but this body is decoded.
  responseHeaders.delete("content-encoding");
  responseHeaders.delete("content-length");
  return new Response(hasBody ? (json === undefined ? text : JSON.stringify(json)) : null, {
    status,
    statusText,
    headers: responseHeaders,
  });
}

/** The error for a server that failed to answer a GET. */
export function failureOf(url: URL, status: number, body: string): HubError {
  const text = `${url.host} answered with HTTP ${status}${saidByPeer(reasonInBody(body))}.`;
  return new HubError("serverFailed", text);
}

function isGrant(json: Readonly<Record<string, unknown>>): boolean {
  return typeof (json["access_token"] ?? json["client_id"]) === "string";
}

/** Parses a JSON object and leaves out what is null in it. @returns undefined if the text is no JSON object */
function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text, (_key, member: unknown) =>
      Array.isArray(member)
        ? member.filter((entry) => entry !== null && entry !== undefined)
        : (member ?? undefined),
    );
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    // It is not JSON, or nested too deeply.
    return undefined;
  }
}

/** Parameters of a request that are not secret. */
const PUBLIC_PARAMETERS: ReadonlySet<string> = new Set([
  "grant_type",
  "client_id",
  "client_assertion_type",
  "redirect_uri",
  "resource",
  "scope",
  "token_type_hint",
]);

/** The secrets in a request: those of its form, and its credentials. */
function secretsOf({ headers, body }: RequestInit): readonly string[] {
  const authorization = new Headers(headers).get("authorization") ?? "";
  const credentials = authorization.replace(/^\S+ +/, "");
  const form = body instanceof URLSearchParams ? [...body] : [];
  const secrets = form.flatMap(([name, value]) => (PUBLIC_PARAMETERS.has(name) ? [] : [value]));
  return [...secrets, credentials, ...basicSecretsOf(authorization)].filter((it) => it !== "");
}

/** The client secret in the credentials of HTTP Basic authentication (RFC 6749, 2.3.1), encoded and decoded. */
function basicSecretsOf(authorization: string): readonly string[] {
  const encoded = /^Basic +(\S+)$/i.exec(authorization)?.[1];
  if (encoded === undefined) return [];
  const secret = atob(encoded).replace(/^[^:]*:/, "");
  return [secret, new URLSearchParams(`secret=${secret}`).get("secret") ?? ""];
}
