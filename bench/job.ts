import type { Era } from "../src/protocol/modern.ts";
import type { CatalogJob, CatalogTimes } from "./listing.ts";
import type { ContestJob, ContestResult } from "./contest.ts";
import type { FloodJob, FloodResult } from "./flood.ts";
import type { IdleJob, IdleResult } from "./idle.ts";
import type { Command } from "./peer.ts";

/** A job for one run of the load client. Times are in ms, sizes in bytes, latencies in µs. */
export type Job =
  CatalogJob | ContestJob | FloodJob | IdleJob | LoadJob | SoakJob | ListJob | StartJob | FirstJob;

/** The results by the kind of the job. */
export interface Results {
  readonly catalog: readonly CatalogTimes[];
  readonly contest: ContestResult;
  readonly flood: readonly FloodResult[];
  readonly idle: IdleResult;
  readonly load: LoadResult;
  readonly soak: SoakResult;
  readonly list: ListResult;
  readonly start: StartResult;
  readonly first: FirstResult;
}

/** Calls one tool for a while. */
export interface LoadJob {
  readonly kind: "load";
  readonly peer: Command;
  readonly tool: string;
  /** Calls in flight. */
  readonly flight: number;
  /** Number of lines of text in an answer. */
  readonly lines: number;
  /** Padding in a call's arguments, in bytes. */
  readonly pad?: number;
  readonly warmUp: number;
  readonly duration: number;
  /** The protocol era of the client; legacy if absent. */
  readonly era?: Era;
}

export interface LoadResult {
  readonly calls: number;
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  /** CPU time of the peer's own process per call, in µs; null if unknown. */
  readonly cpu: number | null;
  /**
   * The peer's memory: before the first call (`base`), at the end (`rss`), and the maximum since the first call
   * (`peak`); null if unknown.
   */
  readonly base: number | null;
  readonly rss: number | null;
  readonly peak: number | null;
}

/** Makes `calls` calls, and measures the peer's memory after each hundredth of them. */
export interface SoakJob {
  readonly kind: "soak";
  readonly peer: Command;
  readonly tool: string;
  readonly flight: number;
  readonly calls: number;
}

export interface SoakResult {
  readonly rss: readonly number[];
}

/** Starts the peer, lists its tools until there are `tools` of them, and then lists them `runs` more times. */
export interface ListJob {
  readonly kind: "list";
  readonly peer: Command;
  readonly tools: number;
  readonly runs: number;
}

export interface ListResult {
  /** Time from the start of the process to the first complete list. */
  readonly ready: number;
  /** Size of the answer. */
  readonly size: number;
  readonly p50: number;
}

/** Starts the peers in turn, `runs` times each, and ends each process after its first line. */
export interface StartJob {
  readonly kind: "start";
  readonly peers: readonly Starter[];
  readonly runs: number;
}

export interface Starter {
  readonly command: Command;
  /** Whether the program writes its first line by itself. If not, it is sent an `initialize` request. */
  readonly speaksFirst: boolean;
}

export interface StartResult {
  /** For each peer, the times from the start of the process to its first line. */
  readonly times: readonly (readonly number[])[];
}

/** Starts the peer `runs` times, and lists its tools once each time. There must be exactly `tools` of them. */
export interface FirstJob {
  readonly kind: "first";
  readonly peer: Command;
  readonly tools: number;
  readonly runs: number;
}

export interface FirstResult {
  /** Times from the start of the process to the answer. */
  readonly times: readonly number[];
}

/** The resources that a process holds: resident memory in bytes, and number of open file descriptors. */
export interface Weight {
  readonly rss: number;
  readonly descriptors: number;
}
