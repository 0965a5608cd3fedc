import type { Era } from "../src/protocol/modern.ts";
import type { CatalogJob, CatalogTimes } from "./listing.ts";
import type { ContestJob, ContestResult } from "./contest.ts";
import type { FloodJob, FloodResult } from "./flood.ts";
import type { IdleJob, IdleResult } from "./idle.ts";
import type { Command } from "./peer.ts";

/** What one run of the load client does; all times in ms, all sizes in bytes, all latencies in µs. */
export type Job =
  CatalogJob | ContestJob | FloodJob | IdleJob | LoadJob | SoakJob | ListJob | StartJob | FirstJob;

/** What a job yields. */
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
  /** Lines of text in an answer. */
  readonly lines: number;
  /** Bytes in a call's arguments that nobody needs. */
  readonly pad?: number;
  readonly warmUp: number;
  readonly duration: number;
  /** Of the client; legacy if it is left out. */
  readonly era?: Era;
}

export interface LoadResult {
  readonly calls: number;
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  /** What a call costs the peer's own process, in µs; null where that cannot be known. */
  readonly cpu: number | null;
  /** Memory before the first call, at the end, and the most that it was since the first; null where that cannot be known. */
  readonly base: number | null;
  readonly rss: number | null;
  readonly peak: number | null;
}

/** Makes that many calls and looks at the peer's memory after each hundredth of them. */
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

/** Starts the peer, asks for its tools until there are that many, and then again `runs` times. */
export interface ListJob {
  readonly kind: "list";
  readonly peer: Command;
  readonly tools: number;
  readonly runs: number;
}

export interface ListResult {
  /** From the start of the process to the first complete list. */
  readonly ready: number;
  /** How long the answer is. */
  readonly size: number;
  readonly p50: number;
}

/** Starts the peers in turn, `runs` times each, and ends each of them after its first line. */
export interface StartJob {
  readonly kind: "start";
  readonly peers: readonly Starter[];
  readonly runs: number;
}

export interface Starter {
  readonly command: Command;
  /** It writes its line unasked; another gets an `initialize` first. */
  readonly speaksFirst: boolean;
}

export interface StartResult {
  /** From the start of the process to its first line, for each peer. */
  readonly times: readonly (readonly number[])[];
}

/** Starts the peer `runs` times and asks it once each time for its tools, of which there must be that many. */
export interface FirstJob {
  readonly kind: "first";
  readonly peer: Command;
  readonly tools: number;
  readonly runs: number;
}

export interface FirstResult {
  /** From the start of the process to the answer. */
  readonly times: readonly number[];
}

/** What a process holds: resident memory, and open file descriptors. */
export interface Weight {
  readonly rss: number;
  readonly descriptors: number;
}
