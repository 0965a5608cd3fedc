/**
 * The result of a measurement, as `toolmux bench --json` prints it. Latencies are in µs, other times in ms unless
 * stated otherwise, sizes in bytes; null means unknown.
 */
export interface BenchResult {
  readonly version: 1;
  readonly machine: MachineResult;
  /** Start time, ISO 8601. */
  readonly started: string;
  readonly load: LoadSettingsResult;
  /** The measured subjects; for a comparison the hub first, then the same server without it. */
  readonly subjects: readonly SubjectResult[];
  /** The cost of the hub, level by level; only for a comparison. */
  readonly overhead?: readonly OverheadResult[] | undefined;
}

export interface MachineResult {
  readonly cores: number;
  readonly cpu: string;
  readonly memory: number;
  readonly system: string;
  /** Program and runtime: `toolmux 0.1.0, bun 1.4.5`. */
  readonly program: string;
}

export interface LoadSettingsResult {
  /** The tool's name in the list of the first subject. */
  readonly tool: string;
  /** The arguments of the calls as JSON, truncated if long. */
  readonly arguments: string;
  /**
   * closed: each caller calls again as soon as it is answered. open: calls are due at a constant rate (per
   * second), whether or not earlier ones are answered.
   */
  readonly loop: { readonly kind: "closed" } | { readonly kind: "open"; readonly rate: number };
  /** Planned duration of each level, or its number of calls. */
  readonly extent: { readonly duration: number } | { readonly calls: number };
  readonly chaos: ChaosResult;
}

export interface ChaosResult {
  readonly killEvery: number | null;
  /** Delay added to each response of the server. */
  readonly delay: number | null;
  /** The part of the calls that was cancelled, 0 to 1. */
  readonly cancelRate: number;
}

export interface SubjectResult {
  readonly kind: "hub" | "server";
  /** Display name: `toolmux, 3 servers`, `npx -y server-everything`. Contains no secret. */
  readonly name: string;
  /**
   * Time from the start of the process, or of the connection, until the handshake was complete (`handshake`) and until
   * the tools were listed (`listed`).
   */
  readonly ready: { readonly handshake: number; readonly listed: number };
  readonly tools: number;
  readonly levels: readonly LevelResult[];
}

/** The result of one subject with one number of concurrent calls. */
export interface LevelResult {
  readonly concurrency: number;
  /** Actual duration, in s. */
  readonly seconds: number;
  /** Calls answered with a result, and their number per second. */
  readonly calls: number;
  readonly rate: number;
  /** Latency of answered calls; in an open loop from the time the call was due, so that queueing is included. */
  readonly latency: LatencyResult;
  /** Open loop only: latency from the time the call was sent. */
  readonly service?: LatencyResult | undefined;
  /**
   * Calls without a result, except cancelled ones: for each kind of error the number of calls and the first message.
   * `never made`: open-loop calls that could not be sent in time.
   */
  readonly errors: Readonly<Record<string, { readonly count: number; readonly example: string }>>;
  readonly cancels?: CancelResult | undefined;
  readonly kills?: KillResult | undefined;
  /** Calls over time, in equal intervals. */
  readonly timeline: readonly SpanResult[];
  /**
   * `hub`: usage of the hub's own process. `server`: usage of all processes that the hub started or, if no hub is
   * measured, of the server's processes.
   */
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
  /** For charts: `value` is the latency at `percentile` (0 to 100). Ascending. */
  readonly curve: readonly { readonly percentile: number; readonly value: number }[];
}

export interface CancelResult {
  readonly count: number;
  /**
   * `seen`: how many cancellations were seen to reach the server. `latency`: how long after the client sent them. null
   * if that cannot be observed.
   */
  readonly seen: number | null;
  readonly latency: LatencyResult | null;
  /** Calls that were answered although they were cancelled. */
  readonly late: number;
}

export interface KillResult {
  readonly count: number;
  /** `lost`: calls that were never answered. `strays`: responses that matched no pending call. */
  readonly lost: number;
  readonly strays: number;
  /** Time from a kill until the first result of a call that was sent after the kill. */
  readonly recovery: LatencyResult | null;
}

export interface SpanResult {
  /** Start of the interval since the level began, in s. */
  readonly at: number;
  readonly calls: number;
  readonly errors: number;
  readonly p50: number;
  readonly p99: number;
}

/** Usage of processes during a level. */
export interface CostResult {
  readonly processes: number;
  /** CPU time in ms, and per answered call in µs. */
  readonly cpu: number;
  readonly cpuPerCall: number;
  /** Resident memory: `memory` at the end of the level, and its maximum. */
  readonly memory: number;
  readonly peak: number;
}

export interface OverheadResult {
  readonly concurrency: number;
  /** Added latency, in µs. */
  readonly p50: number;
  readonly p99: number;
  /** The hub's rate divided by the server's own. */
  readonly rate: number;
  /** Absent if the level was too short to know. */
  readonly withinNoise?: NoiseResult | undefined;
}

/** Which differences are noise: between the two halves of the level, they change by more than their own size. */
export interface NoiseResult {
  readonly p50: boolean;
  readonly p99: boolean;
  readonly rate: boolean;
}

export type BenchProgress =
  | { readonly kind: "starting"; readonly subject: string }
  | { readonly kind: "warmUp"; readonly subject: string; readonly concurrency: number }
  | {
      readonly kind: "span";
      readonly subject: string;
      readonly concurrency: number;
      /** From 0 to 1. */
      readonly done: number;
      readonly span: SpanResult;
    }
  | { readonly kind: "level"; readonly subject: string; readonly level: LevelResult };
