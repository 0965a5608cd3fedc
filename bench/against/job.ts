import type { Command } from "../peer.ts";

/** How a peer is talked to: over its pipes, or over HTTP, either as it is now or with a stream of events beside the requests. */
export type Face =
  | { readonly kind: "stdio" }
  | {
      readonly kind: "streamable" | "sse";
      /** undefined: it says on stderr where it is. */
      readonly url: string | undefined;
    };
export type HttpFace = Exclude<Face, { readonly kind: "stdio" }>;

/** Calls one tool of one peer in several ways, one after the other. */
export interface Job {
  readonly peer: Command;
  readonly face: Face;
  readonly tool: string;
  readonly laps: readonly Lap[];
  /** Of each lap, in ms. */
  readonly warmUp: number;
  readonly duration: number;
  /** In the environment of all processes that come of it. */
  readonly tag: string;
  /** The file of the server behind the peer, which does not count. */
  readonly server: string;
}

export interface Lap {
  readonly name: string;
  readonly flight: number;
  /** Lines of text in an answer. */
  readonly lines: number;
}

/** What came of a lap; latencies in µs, memory in bytes. */
export interface Figures {
  readonly calls: number;
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  /** µs that a call costs all of the peer's processes; null where that cannot be known. */
  readonly cpu: number | null;
  /** What they hold at the end; null where that cannot be known. */
  readonly rss: number | null;
}

/** Is given the figures of each lap as soon as they are there. */
export type Tell = (figures: Figures) => void;
