import type { CookieJar } from "./cookies.ts";

/** The HTTP transport of a server: Streamable HTTP, or HTTP+SSE (2024-11-05). */
export type HttpTransportKind = "http" | "sse";

/** Remembers which of the two HTTP transports a server uses, for the next connection. */
export interface KnownTransport {
  readonly kind: HttpTransportKind | undefined;
  remember(kind: HttpTransportKind): void;
}

/**
 * Holds the cookies of one connection for its next transport, because a load balancer pins by them. The first transport
 * makes the jar.
 */
export interface ConnectionCookies {
  jar?: CookieJar;
}

export interface HttpTarget {
  /** The server's key in the manifest, used in errors. */
  readonly server: string;
  readonly url: URL;
  /** The path of a Unix socket to connect to, instead of the host of the URL. */
  readonly socketPath?: string | undefined;
  readonly transport: "auto" | HttpTransportKind;
  readonly headers: Readonly<Record<string, string>>;
  /** Additional trusted certificates, in PEM. */
  readonly ca: string | undefined;
  /** Values that no log line and no error may contain, the longest first. */
  readonly secrets: readonly string[];
  /** Maximum size of a message, in bytes. */
  readonly maxMessage: number;
  readonly credentials: RequestCredentials;
  readonly knownTransport: KnownTransport;
  /** Absent: the cookies end with the transport. */
  readonly cookies?: ConnectionCookies | undefined;
  /** The environment variables, which may name proxies (`HTTPS_PROXY`, `NO_PROXY`) and additional certificates. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** A server's demand for credentials, by HTTP 401 or 403 (MCP authorization, error handling). */
export interface AuthChallenge {
  /** 401: credentials are missing or no longer valid; 403: their scopes are insufficient. */
  readonly status: 401 | 403;
  readonly header: string | undefined;
}

/** The source of the credentials for one server. */
export interface RequestCredentials {
  /**
   * Returns the headers for the next request; a promise if a token must be loaded or refreshed first.
   * @throws {HubError} unauthorized
   */
  getHeaders(
    signal: AbortSignal,
  ): Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>;
  /**
   * Obtains other credentials after the server has rejected the last ones, without user interaction: for example, it
   * refreshes the token.
   * @returns whether `getHeaders` returns other headers now
   */
  renew(challenge: AuthChallenge, signal: AbortSignal): Promise<boolean>;
}

/** No credentials besides the headers in the manifest. */
export const NO_CREDENTIALS: RequestCredentials = {
  getHeaders: () => ({}),
  renew: () => Promise.resolve(false),
};

export type AuthorizationProgress =
  | { readonly step: "starting" }
  | { readonly step: "openingBrowser"; readonly url: string }
  | { readonly step: "waitingForCallback" }
  | { readonly step: "exchangingToken" };
