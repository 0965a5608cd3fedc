import type { Buffer } from "node:buffer";

/** Request headers, by case-insensitive name. Several of one name are joined with commas. */
export interface RequestHeaders extends Iterable<[string, string]> {
  /** @returns null if there is no such header */
  get(name: string): string | null;
}

/** The head of a request. Requests with equal heads may share one object. */
export interface HttpRequestHead {
  readonly method: string;
  /** Path and query as they were sent; begins with a slash. */
  readonly target: string;
  readonly headers: RequestHeaders;
}

/** Why a body was not read to its end; `tooMany`: all bodies being received would take too much memory together. */
export type BodyError = "tooLarge" | "tooMany" | "tooSlow" | "broken";

/** An HTTP request that is to be answered. */
export interface HttpServerRequest {
  readonly head: HttpRequestHead;
  /** Reads the body, up to `limit` bytes. To be called once at most. Never rejects. */
  read(limit: number): Buffer | BodyError | Promise<Buffer | BodyError>;
  /**
   * Calls back, never synchronously, if the client disconnects, or has disconnected, before the answer.
   * @returns unsubscribes
   */
  onDisconnect(callback: () => void): () => void;
}
