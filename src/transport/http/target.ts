import type { RequestCredentials } from "./credentials.ts";

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
