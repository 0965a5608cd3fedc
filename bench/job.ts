import type { Command } from "./peer.ts";

/** What one run of the load client does; all times in ms, all sizes in bytes, all latencies in µs. */
export type Job = LoadJob | SoakJob | ListJob | StartJob;

/** What a job yields. */
export interface Results {
  readonly load: LoadResult;
  readonly soak: SoakResult;
  readonly list: ListResult;
  readonly start: StartResult;
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
  readonly warmUp: number;
  readonly duration: number;
}

export interface LoadResult {
  readonly calls: number;
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  /** What a call costs the peer's own process, in µs; null where that cannot be known. */
  readonly cpu: number | null;
  /** Memory at the end, and the most it ever was; null where that cannot be known. */
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
