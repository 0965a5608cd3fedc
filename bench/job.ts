import type { Era } from "../src/protocol/modern.ts";
import type { CatalogJob, CatalogTimes } from "./listing.ts";
import type { ContestJob, ContestResult } from "./contest.ts";
import type { FloodJob, FloodResult } from "./flood.ts";
import type { GrowthJob, GrowthResult } from "./growth.ts";
import type { IdleJob, IdleResult } from "./idle.ts";
import type { ParkJob, ParkResult } from "./park.ts";
import type { Command } from "./peer.ts";
import type { ReloadJob, ReloadResult } from "./reload.ts";

/** What one run of the load client does; all times in ms, all sizes in bytes, all latencies in µs. */
export type Job =
  | CatalogJob
  | ContestJob
  | FloodJob
  | GrowthJob
  | IdleJob
  | ParkJob
  | ReloadJob
  | LoadJob
  | SoakJob
  | ListJob
  | StartJob
  | FirstJob
  | KillsJob
  | CyclesJob
  | HttpLoadJob
  | HttpStreamsJob
  | HttpMixJob;

/** What a job yields. */
export interface Results {
  readonly catalog: readonly CatalogTimes[];
  readonly contest: ContestResult;
  readonly flood: readonly FloodResult[];
  readonly growth: GrowthResult;
  readonly idle: IdleResult;
  readonly park: ParkResult;
  readonly reload: ReloadResult;
  readonly load: LoadResult;
  readonly soak: SoakResult;
  readonly list: ListResult;
  readonly start: StartResult;
  readonly first: FirstResult;
  readonly kills: KillsResult;
  readonly cycles: CyclesResult;
  readonly httpLoad: LoadResult;
  readonly httpStreams: HttpStreamsResult;
  readonly httpMix: HttpMixResult;
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

/** Kills the servers behind a hub, one after the other, while calls to all of them are in flight. */
export interface KillsJob {
  readonly kind: "kills";
  readonly peer: Command;
  /** Their prefixes; each has a tool `pid`. */
  readonly servers: readonly string[];
  readonly flight: number;
  /** Kills that warm up, and kills that count. */
  readonly warmUp: number;
  readonly kills: number;
  /** How long the hub is left alone before its memory is looked at. */
  readonly rest: number;
}

export interface KillsResult {
  readonly kills: number;
  /** s that these took, until every server was there again. */
  readonly seconds: number;
  /** Calls that were answered meanwhile, and how many of these by an error that names the server and says why. */
  readonly calls: number;
  readonly errors: number;
  /** Answers that nobody waited for, and calls that were answered by anything else; the first of them as text. */
  readonly faults: number;
  readonly examples: readonly string[];
  /** How long the hub was left alone before it was weighed: without any, memory says little. */
  readonly rest: number;
  /** With every server there and no call in flight; null where that cannot be known. */
  readonly before: Weight | null;
  readonly after: Weight | null;
}

/** What a process holds: resident memory, and open file descriptors. */
export interface Weight {
  readonly rss: number;
  readonly descriptors: number;
}

/** Starts and stops the servers of a hub in this very process, as fast as that can be said. */
export interface CyclesJob {
  readonly kind: "cycles";
  /** For the servers' diaries. */
  readonly folder: string;
  readonly servers: number;
  /** Starts and stops of each server, and reconnects. */
  readonly cycles: number;
  readonly reconnects: number;
}

export interface CyclesResult {
  /** How long it took at each pace, up to the end of the last process. */
  readonly times: Readonly<Record<Pace, number>>;
  /** Processes that were ever started, and how many of them met another of the same server. */
  readonly lives: number;
  readonly overlaps: number;
  /** What was there at the end and not before. */
  readonly left: Leftovers;
}

/** All words in one turn, a turn apart, at any time, each as soon as what was said before is done; and all reconnects in one turn. */
export const PACES = ["atOnce", "turnByTurn", "atRandom", "oneByOne", "reconnects"] as const;
export type Pace = (typeof PACES)[number];

export interface Leftovers {
  readonly processes: number;
  /** null where that cannot be known. */
  readonly descriptors: number | null;
  /** Of the hub's clock. */
  readonly timers: number;
}

/** Calls one tool for a while over HTTP. */
export interface HttpLoadJob {
  readonly kind: "httpLoad";
  readonly peer: Command;
  readonly tool: string;
  /** Each has a session and a connection, and one call at a time. */
  readonly clients: number;
  /** Lines of text in an answer. */
  readonly lines: number;
  readonly warmUp: number;
  readonly duration: number;
}

/** Opens sessions that listen, and calls a tool that makes the list of tools another. */
export interface HttpStreamsJob {
  readonly kind: "httpStreams";
  readonly peer: Command;
  readonly tool: string;
  readonly sessions: number;
  readonly changes: number;
  /** How long the hub is left alone before its memory is looked at. */
  readonly rest: number;
}

export interface HttpStreamsResult {
  readonly sessions: number;
  readonly changes: number;
  readonly rest: number;
  /** Changes that a session did not hear of, and whatever else one heard, or heard twice. */
  readonly missed: number;
  readonly strays: number;
  /** From a call to when the last session had heard of the change, at worst. */
  readonly slowest: number;
  /** Bytes that a session holds that does nothing but listen; null where that cannot be known. */
  readonly each: number | null;
}

/** Asks for everything at once over HTTP, while one server after the other is killed. */
export interface HttpMixJob {
  readonly kind: "httpMix";
  readonly peer: Command;
  /** The names of the servers, which are peers/medley.ts. */
  readonly servers: readonly string[];
  readonly clients: number;
  readonly duration: number;
}

export interface HttpMixResult {
  readonly kills: number;
  readonly requests: number;
  /** Requests that were answered by an error that names the server, and that were cancelled. */
  readonly errors: number;
  readonly cancelled: number;
  /** From a request to the end of its answer, at worst. */
  readonly slowest: number;
  /** Answers that are missing, too many, another's or unclear; the first of them as text. */
  readonly faults: number;
  readonly examples: readonly string[];
}
