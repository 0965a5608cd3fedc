/**
 * The result of a measurement, as `toolmux bench --json` prints it. A subject is what is measured: a hub or a server. A
 * level is a measurement with one number of calls in flight. Latencies are in µs, other times in ms unless stated
 * otherwise, sizes in bytes. null means unknown; in `ChaosResult`, it means none.
 */
export interface BenchResult {
  readonly version: 2;
  readonly machine: MachineResult;
  /** Start time, ISO 8601. */
  readonly started: string;
  readonly load: LoadSettingsResult;
  /** What was measured. A comparison has two entries: the hub, then the same server without it. */
  readonly subjects: readonly SubjectResult[];
  /** The cost of the hub at each level; only for a comparison. */
  readonly overhead?: readonly OverheadResult[] | undefined;
}

export interface MachineResult {
  readonly cores: number;
  readonly cpu: string;
  readonly memory: number;
  readonly system: string;
  /** Program and runtime: `toolmux 0.2.0, bun 1.4.5`. */
  readonly program: string;
}

export interface LoadSettingsResult {
  /** The called tools, one at least. */
  readonly tools: readonly ToolLoadResult[];
  /** The protocol era in which the first entry of `subjects` was called. */
  readonly era: "legacy" | "modern";
  /**
   * closed: each caller calls again as soon as it is answered. open: calls are due at a constant rate (per
   * second), whether or not earlier ones are answered.
   */
  readonly loop: { readonly kind: "closed" } | { readonly kind: "open"; readonly rate: number };
  /** The planned length of each level: its duration in ms, or its number of calls. */
  readonly extent: { readonly duration: number } | { readonly calls: number };
  readonly chaos: ChaosResult;
}

/** A tool that is called. */
export interface ToolLoadResult {
  /** Its name, as listed by the first entry of `subjects`. */
  readonly name: string;
  /** Frequency of its calls in proportion to the others. */
  readonly weight: number;
  /** The arguments of the calls as JSON, truncated if long. */
  readonly arguments: string;
}

export interface ChaosResult {
  /** Interval between two kills of the server, in ms; null if it is not killed. */
  readonly killEvery: number | null;
  /** Delay added to each response of the server, in ms; null if there is none. */
  readonly delay: number | null;
  /** The part of the calls that was cancelled, 0 to 1. */
  readonly cancelRate: number;
}

export interface SubjectResult {
  readonly kind: "hub" | "server";
  /** Display name: `toolmux, 3 servers`, `npx -y server-everything`. Contains no secret. */
  readonly name: string;
  /**
   * The time from the start of the process, or of the connection, in ms: `handshake` until the handshake was
   * complete, `listed` until the tools were listed.
   */
  readonly ready: { readonly handshake: number; readonly listed: number };
  readonly tools: number;
  readonly levels: readonly LevelResult[];
}

/** The result of one subject (hub or server) with one number of calls in flight. */
export interface LevelResult {
  readonly concurrency: number;
  /** Actual duration, in s. */
  readonly seconds: number;
  /** Calls answered with a result, and their number per second. */
  readonly calls: number;
  readonly rate: number;
  /**
   * Latency of answered calls. In an open loop it counts from the time when the call was due, so queueing is included.
   */
  readonly latency: LatencyResult;
  /** Only in an open loop: latency from the time when the call was sent. */
  readonly service?: LatencyResult | undefined;
  /**
   * Calls without a result, except cancelled ones: for each kind of error, the number of calls and the first message.
   * The kind `never made` counts open-loop calls that could not be sent in time.
   */
  readonly errors: Readonly<Record<string, { readonly count: number; readonly example: string }>>;
  /** The calls of each tool, if several are called. */
  readonly tools?: readonly ToolResult[] | undefined;
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

/** The calls of one tool at one level. Latencies are in µs, with two significant digits. */
export interface ToolResult {
  readonly name: string;
  readonly calls: number;
  readonly errors: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

export interface CancelResult {
  readonly count: number;
  /**
   * `seen`: how many cancellations were observed to reach the server. `latency`: the time from the client's
   * cancellation to its arrival there, null if none arrived. Both are null if arrivals cannot be observed.
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
  /** Start of the interval, in s since the start of the level. */
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
  /** CPU time of each quarter of the level, in ms; absent if the level was too short for it. */
  readonly quarters?: readonly number[] | undefined;
  /** Resident memory: `memory` at the end of the level, `peak` its maximum. */
  readonly memory: number;
  readonly peak: number;
}

export interface OverheadResult {
  readonly concurrency: number;
  /** Latency that the hub adds, in µs. */
  readonly p50: number;
  readonly p99: number;
  /** The rate with the hub divided by the rate without it. */
  readonly rate: number;
  /** Absent if the level was too short to tell noise from a difference. */
  readonly withinNoise?: NoiseResult | undefined;
}

/**
 * Whether each difference is noise: its values in the two halves of the level differ by more than its value for the
 * whole level.
 */
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
      /** The completed part of the level, 0 to 1. */
      readonly done: number;
      readonly span: SpanResult;
    }
  | { readonly kind: "level"; readonly subject: string; readonly level: LevelResult };
