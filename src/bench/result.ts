/** What a measurement found. Latencies are in µs, other times in ms unless said, sizes in bytes; what cannot be known is null. */
export interface BenchResult {
  /** The form of this document. */
  readonly version: 1;
  readonly machine: MachineResult;
  /** When it began, as ISO 8601 has it. */
  readonly started: string;
  readonly load: LoadSettingsResult;
  /** What was measured; with a comparison the hub first, then the same server without it. */
  readonly subjects: readonly SubjectResult[];
  /** What the hub costs, level by level; only of a comparison. */
  readonly overhead?: readonly OverheadResult[] | undefined;
}

export interface MachineResult {
  readonly cores: number;
  readonly cpu: string;
  readonly memory: number;
  readonly system: string;
  /** What ran the measurement: `toolmux 0.1.0, bun 1.4.5`. */
  readonly program: string;
}

/** What was done to each subject. */
export interface LoadSettingsResult {
  /** The tool, by the name that the subject measured first lists it under. */
  readonly tool: string;
  /** Its arguments as JSON, shortened if they are long. */
  readonly arguments: string;
  /** Closed: each caller calls again as soon as it was answered. Open: calls are due at a rate, whatever becomes of those before. */
  readonly loop: { readonly kind: "closed" } | { readonly kind: "open"; readonly rate: number };
  /** How long each level was to take, or how many calls. */
  readonly extent: { readonly duration: number } | { readonly calls: number };
  readonly chaos: ChaosResult;
}

export interface ChaosResult {
  /** From one kill of the server to the next. */
  readonly killEvery: number | null;
  /** By which each answer of the server was held back. */
  readonly delay: number | null;
  /** The part of the calls that was cancelled, 0 to 1. */
  readonly cancelRate: number;
}

export interface SubjectResult {
  readonly kind: "hub" | "server";
  /** For people: `toolmux, 3 servers`, `npx -y server-everything`. Holds no secret. */
  readonly name: string;
  /** From the start of the process, or of the connection, to the handshake's end, and to the list of tools. */
  readonly ready: { readonly handshake: number; readonly listed: number };
  readonly tools: number;
  readonly levels: readonly LevelResult[];
}

/** One subject under one number of concurrent calls. */
export interface LevelResult {
  readonly concurrency: number;
  /** How long it took in fact, in s. */
  readonly seconds: number;
  /** Calls that were answered by a result, and per second. */
  readonly calls: number;
  readonly rate: number;
  /** Of answered calls. In an open loop from when the call was due, so that one that waited for its turn counts as long. */
  readonly latency: LatencyResult;
  /** Only in an open loop: from when the call was really sent. */
  readonly service?: LatencyResult | undefined;
  /**
   * All that was not answered by a result, but for calls that were cancelled: kind of error → how often, and what the first of
   * each said. `never made`: calls of an open loop that could not be made in time.
   */
  readonly errors: Readonly<Record<string, { readonly count: number; readonly example: string }>>;
  readonly cancels?: CancelResult | undefined;
  readonly kills?: KillResult | undefined;
  /** Calls over time, in equal spans. */
  readonly timeline: readonly SpanResult[];
  /** Of the hub's own process, and of all that ran below it or, without a hub, as the server. */
  readonly hub?: CostResult | undefined;
  readonly server?: CostResult | undefined;
}

export interface LatencyResult {
  readonly count: number;
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
  /** For curves: at `percentile` (0 to 100) so much or less. Ascending. */
  readonly curve: readonly { readonly percentile: number; readonly value: number }[];
}

export interface CancelResult {
  readonly count: number;
  /** Of these, those that the server was seen to have, and how long after the client's cancel; null where nobody can see it. */
  readonly seen: number | null;
  readonly latency: LatencyResult | null;
  /** Calls that were answered although they were cancelled before that. */
  readonly late: number;
}

export interface KillResult {
  readonly count: number;
  /** Calls that were never answered, and answers that nobody waited for. */
  readonly lost: number;
  readonly strays: number;
  /** From a kill to the first result of a call that was made after it. */
  readonly recovery: LatencyResult | null;
}

export interface SpanResult {
  /** Since the level began, in s. */
  readonly at: number;
  readonly calls: number;
  readonly errors: number;
  readonly p50: number;
  readonly p99: number;
}

/** What processes cost while a level was measured. */
export interface CostResult {
  readonly processes: number;
  /** CPU time in ms, and per answered call in µs. */
  readonly cpu: number;
  readonly cpuPerCall: number;
  /** Resident memory at the level's end, and the most that was seen. */
  readonly memory: number;
  readonly peak: number;
}

/** The hub's part of what a call takes, at one level. */
export interface OverheadResult {
  readonly concurrency: number;
  /** Added by the hub, in µs. */
  readonly p50: number;
  readonly p99: number;
  /** The hub's rate to the server's own. */
  readonly rate: number;
}

/** What is told while it is measured; for whoever shows it as it goes on. */
export type BenchProgress =
  | { readonly kind: "starting"; readonly subject: string }
  | { readonly kind: "warmUp"; readonly subject: string; readonly concurrency: number }
  | {
      readonly kind: "span";
      readonly subject: string;
      readonly concurrency: number;
      /** The part of the level that is done, 0 to 1. */
      readonly done: number;
      readonly span: SpanResult;
    }
  | { readonly kind: "level"; readonly subject: string; readonly level: LevelResult };
