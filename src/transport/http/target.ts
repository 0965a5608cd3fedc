/** Which of the two ways over HTTP a server has: Streamable HTTP, or HTTP with SSE as it was before. */
export type HttpTransportKind = "http" | "sse";

/** What is known of a server's way, from one link to the next. */
export interface KnownTransport {
  readonly known: HttpTransportKind | undefined;
  found(way: HttpTransportKind): void;
}

/** Where a link over HTTP goes, and what with. */
export interface HttpTarget {
  /** The manifest's key, for errors. */
  readonly server: string;
  readonly url: URL;
  readonly transport: "auto" | HttpTransportKind;
  readonly headers: Readonly<Record<string, string>>;
  /** Certificates to trust beside the system's, in PEM. */
  readonly ca: string | undefined;
  /** What must never be shown, longest first. */
  readonly secrets: readonly string[];
  /** Bytes. */
  readonly maxMessage: number;
  readonly credentials: RequestCredentials;
  readonly wayfinder: KnownTransport;
  /** The hub's own environment: which proxies there are (`HTTPS_PROXY`, `NO_PROXY`). */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** What a server has said of the authorization that it wants (authorization, error handling). */
export interface AuthChallenge {
  /** 401: there is none, or it is good no longer; 403: it does not go far enough. */
  readonly status: 401 | 403;
  /** The `WWW-Authenticate` header. */
  readonly header: string | undefined;
}

/** What the requests to one server bear, so that it lets them in. */
export interface RequestCredentials {
  /** The headers of the next request; may wait, as for a token that is just being renewed. @throws {HubError} unauthorized */
  bear(
    signal: AbortSignal,
  ): Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>;
  /**
   * The server has not let in what bore the last headers: gets others without anybody's help, as by refreshing a token.
   * @returns whether there are others now
   */
  renew(challenge: AuthChallenge, signal: AbortSignal): Promise<boolean>;
}

/** Those of a server that is given what the manifest says, and nothing else. */
export const NO_CREDENTIALS: RequestCredentials = {
  bear: () => ({}),
  renew: () => Promise.resolve(false),
};

/** How far an authorization has come. */
export type AuthorizationProgress =
  | { readonly step: "starting" }
  | { readonly step: "openingBrowser"; readonly url: string }
  | { readonly step: "waitingForCallback" }
  | { readonly step: "exchangingToken" };
