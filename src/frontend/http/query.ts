import type { Buffer } from "node:buffer";

/** The headers of a request, whatever the case of their names. Several of one name are joined with commas. */
export interface Fields extends Iterable<[string, string]> {
  /** @returns null if there is no such one */
  get(name: string): string | null;
}

/** How a request begins. One object may be the head of many requests: clients say the same again and again. */
export interface QueryHead {
  readonly method: string;
  /** Path and query, as they were sent; they begin with a slash. */
  readonly target: string;
  readonly fields: Fields;
}

/** Why a body was not read to its end; `tooMany`: all that are being received together would take too much memory. */
export type Trouble = "tooLarge" | "tooMany" | "tooSlow" | "broken";

/** An HTTP request that wants an answer. */
export interface Query {
  readonly head: QueryHead;
  /** Its body, unless that is over the limit (bytes), or takes too long. To be called once at most. Never rejects. */
  read(limit: number): Buffer | Trouble | Promise<Buffer | Trouble>;
  /** Calls back, later than now, if its client goes before it was answered, or has gone. @returns the undo */
  whenGone(callback: () => void): () => void;
}
