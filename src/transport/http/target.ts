/** The HTTP transport of a server: Streamable HTTP, or HTTP+SSE (2024-11-05). */
export type HttpTransportKind = "http" | "sse";

/** Remembers the HTTP transport of a server from one connection to the next. */
export interface KnownTransport {
  readonly kind: HttpTransportKind | undefined;
  remember(kind: HttpTransportKind): void;
}

/** Options for an HTTP transport. */
export interface HttpTarget {
  /** The server's key in the manifest, for errors. */
  readonly server: string;
  readonly url: URL;
  readonly transport: "auto" | HttpTransportKind;
  readonly headers: Readonly<Record<string, string>>;
  /** Additional trusted certificates, in PEM. */
  readonly ca: string | undefined;
  /** Values to redact, longest first. */
  readonly secrets: readonly string[];
  /** Maximum size of a message, in bytes. */
  readonly maxMessage: number;
  readonly credentials: RequestCredentials;
  readonly knownTransport: KnownTransport;
  /** The hub's environment variables, which may name proxies (`HTTPS_PROXY`, `NO_PROXY`). */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The challenge in an HTTP 401 or 403 response (MCP authorization, error handling). */
export interface AuthChallenge {
  /** 401: credentials are missing or no longer valid; 403: their scopes are insufficient. */
  readonly status: 401 | 403;
  /** Value of the `WWW-Authenticate` header. */
  readonly header: string | undefined;
}

/** The credentials that are sent with the requests to one server. */
export interface RequestCredentials {
  /**
   * Headers for the next request; a promise if a token has to be loaded or refreshed first. @throws {HubError}
   * unauthorized
   */
  getHeaders(
    signal: AbortSignal,
  ): Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>;
  /**
   * The server has rejected the last headers: obtains others without user interaction, for example by refreshing the
   * token.
   * @returns whether there are other headers now
   */
  renew(challenge: AuthChallenge, signal: AbortSignal): Promise<boolean>;
}

/** Adds no credentials to the headers in the manifest. */
export const NO_CREDENTIALS: RequestCredentials = {
  getHeaders: () => ({}),
  renew: () => Promise.resolve(false),
};

/** Progress of an authorization. */
export type AuthorizationProgress =
  | { readonly step: "starting" }
  | { readonly step: "openingBrowser"; readonly url: string }
  | { readonly step: "waitingForCallback" }
  | { readonly step: "exchangingToken" };
