import type { CallTotals, CancelledBy } from "../base/hub-events.ts";

/** The record of a tool call that has ended, without its arguments and its result. */
export interface EndedCall {
  /** The call's number, unique in this hub. */
  readonly call: number;
  /** For a call that a plugin made while it handled a client's call: the number of the client's call. */
  readonly parentCall?: number | undefined;
  /** The tool of the hub through which the client called the tool; undefined: by its own name. */
  readonly via?: string | undefined;
  /** The client's id; undefined for a client that cannot be told apart from others. */
  readonly client: string | undefined;
  /** The name that the client has sent (`clientInfo.name`); "" if it has sent none. */
  readonly clientName: string;
  /** The client's name in the manifest, if it has its own token there. */
  readonly principal?: string | undefined;
  readonly server: string;
  /** The server's own name of the tool; `name`: the exposed name. */
  readonly tool: string;
  readonly name: string;
  /** When the call started, in ms since the epoch. */
  readonly startedAt: number;
  /** Time from the start to the end of the call, in ms. */
  readonly duration: number;
  readonly outcome: CallOutcome;
  /** The code of the hub's own error; undefined if the server or a plugin has answered. */
  readonly code?: string | undefined;
  /** Who cancelled the call; undefined if it was answered. */
  readonly by?: CancelledBy | undefined;
  /** Size of the request, in bytes. `resultSize`: size of the answer, in bytes. */
  readonly requestSize: number;
  readonly resultSize: number;
}

/** A mutable record of the ring buffer. Old records are overwritten, so that calls need not allocate new ones. */
export type CallRecord = { -readonly [Key in keyof EndedCall]-?: EndedCall[Key] };

function emptyRecord(): CallRecord {
  return {
    call: 0,
    parentCall: undefined,
    via: undefined,
    client: undefined,
    clientName: "",
    principal: undefined,
    server: "",
    tool: "",
    name: "",
    startedAt: 0,
    duration: 0,
    outcome: "answered",
    code: undefined,
    by: undefined,
    requestSize: 0,
    resultSize: 0,
  };
}

/**
 * `failed`: the answer was an error, or the hub answered with an error of its own. If it was not checked whether the
 * answer was an error, the outcome is `answered`.
 */
export type CallOutcome = "answered" | "failed" | "cancelled";

/**
 * Counts of one tool's calls in a window or a part of it. The quantiles of durations, in ms, come from a log2
 * histogram.
 */
export interface UsagePoint {
  readonly calls: number;
  readonly failed: number;
  readonly cancelled: number;
  /** The median duration in ms; undefined if there were no calls, like `p95`. */
  readonly p50: number | undefined;
  readonly p95: number | undefined;
  readonly resultBytes: number;
}

/** Counts of one tool's calls in a window: the total, and by parts of equal length (`points`), oldest first. */
export interface ToolUsage extends UsagePoint {
  readonly server: string;
  readonly tool: string;
  readonly points: readonly UsagePoint[];
}

export interface Usage {
  /** When counting began, in ms since the epoch. */
  readonly since: number;
  /** The end of the window, in ms since the epoch. `step`: the length of each of its parts, in ms. */
  readonly until: number;
  readonly step: number;
  /** The tools, most calls first. */
  readonly tools: readonly ToolUsage[];
}

const MAX_ENDED = 1000;
/** Maximum number of tools that are counted separately. Further tools are counted together, as `OTHER_TOOLS`. */
const MAX_TOOLS = 512;
export const OTHER_TOOLS = { server: "", tool: "other" } as const;
/** Maximum number of rows: one, of 88 bytes, for each tool and minute with calls. The oldest rows are overwritten. */
const MAX_ROWS = 6000;
const MINUTE = 60_000;
const MAX_MINUTES = 24 * 60;

/** Indexes of the columns of a row; the histogram of durations begins at `HISTOGRAM`. */
const TOOL = 0;
const MINUTE_OF = 1;
const CALLS = 2;
const FAILED = 3;
const CANCELLED = 4;
const BYTES = 5;
const HISTOGRAM = 6;
/** Number of bins. Bin 0: less than 0.25 ms; bin i: from 2^(i-3) ms to twice that; the last: from 4,096 ms. */
const BINS = 16;
const COLUMNS = HISTOGRAM + BINS;
const MAX_UINT32 = 0xffff_ffff;

/** The location of the row that counts the calls of one tool in its latest minute with calls. */
interface ToolRow {
  readonly index: number;
  minute: number;
  /** Offset of the row in the table; -1 if the row was overwritten. */
  at: number;
}

/**
 * Keeps the records of the last 1,000 ended calls, and counts the calls of the last 24 h by tool and minute, in at most
 * 1 MiB of memory. Empty after a restart of the hub.
 */
export class CallUsage {
  /** When counting began, in ms since the epoch. */
  readonly #since: number;
  /** Returns the time, in ms since the epoch. */
  readonly #now: () => number;
  /** A ring buffer: the next call goes to `#endedCount % MAX_ENDED`. */
  readonly #ended: CallRecord[] = [];
  #endedCount = 0;
  #failedCount = 0;
  #cancelledCount = 0;
  readonly #tools: { readonly server: string; readonly tool: string }[] = [];
  readonly #rowsByTool = new Map<string, Map<string, ToolRow>>();
  /** A ring buffer of rows that grows up to `MAX_ROWS`. */
  #rows = new Uint32Array(0);
  #rowCount = 0;
  /** The owner of each row. When a row is overwritten, its previous owner is told (`at` becomes -1). */
  readonly #owners: ToolRow[] = [];

  constructor(now: () => number = Date.now) {
    this.#now = now;
    this.#since = now();
  }

  /** Returns the record for the next ended call. The caller sets all its fields, and then calls `add`. */
  next(): CallRecord {
    return (this.#ended[this.#endedCount % MAX_ENDED] ??= emptyRecord());
  }

  /** Adds a record that `next` has returned. */
  add(call: CallRecord): void {
    this.#endedCount++;
    const { outcome, duration, resultSize } = call;
    const rows = this.#rowOf(call);
    const at = this.#rowAt;
    rows[at + CALLS] = (rows[at + CALLS] ?? 0) + 1;
    if (outcome === "failed") {
      this.#failedCount++;
      rows[at + FAILED] = (rows[at + FAILED] ?? 0) + 1;
    } else if (outcome === "cancelled") {
      this.#cancelledCount++;
      rows[at + CANCELLED] = (rows[at + CANCELLED] ?? 0) + 1;
    }
    rows[at + BYTES] = Math.min(MAX_UINT32, (rows[at + BYTES] ?? 0) + resultSize);
    const bin = at + HISTOGRAM + binOf(duration);
    rows[bin] = (rows[bin] ?? 0) + 1;
  }

  /** When counting began, in ms since the epoch. */
  get since(): number {
    return this.#since;
  }

  /** The calls that have ended since counting began. */
  get totals(): CallTotals {
    return {
      ended: this.#endedCount,
      failed: this.#failedCount,
      cancelled: this.#cancelledCount,
    };
  }

  /** The last calls that have ended, newest first. */
  get ended(): readonly EndedCall[] {
    const next = this.#endedCount % MAX_ENDED;
    const oldestFirst = [...this.#ended.slice(next), ...this.#ended.slice(0, next)];
    return oldestFirst.map((call) => ({ ...call })).toReversed();
  }

  /**
   * Counts of each tool's calls in the last `window` ms, at most 24 h, divided into `points` parts.
   */
  usage(window: number, points: number): Usage {
    const until = this.#now();
    const minutes = Math.min(MAX_MINUTES, Math.max(points, Math.ceil(window / MINUTE)));
    const last = this.#minuteOf(until);
    const first = last - minutes + 1;
    const all = new Map<number, Counter[]>();
    for (let at = 0; at < this.#rows.length; at += COLUMNS) {
      const minute = this.#rows[at + MINUTE_OF] ?? 0;
      if ((this.#rows[at + CALLS] ?? 0) === 0 || minute < first || minute > last) continue;
      const tool = this.#rows[at + TOOL] ?? 0;
      let counters = all.get(tool);
      if (counters === undefined) {
        counters = Array.from({ length: points }, () => new Counter());
        all.set(tool, counters);
      }
      const part = Math.min(points - 1, Math.floor(((minute - first) * points) / minutes));
      counters[part]?.add(this.#rows.subarray(at, at + COLUMNS));
    }
    const tools = [...all].map(([index, counters]): ToolUsage => {
      const total = new Counter();
      for (const counter of counters) total.merge(counter);
      const own = this.#tools[index] ?? OTHER_TOOLS;
      return { ...own, ...total.point, points: counters.map(({ point }) => point) };
    });
    const step = (minutes * MINUTE) / points;
    tools.sort((a, b) => b.calls - a.calls);
    return { since: this.#since, until, step, tools };
  }

  /** The offset of the row that the last call of `#rowOf` has found. */
  #rowAt = 0;

  /** Finds or makes the row for a call's tool and the minute in which the call ended. @returns the table of rows */
  #rowOf({ server, tool, startedAt, duration }: CallRecord): Uint32Array {
    const row = this.#toolRow(server, tool);
    const minute = this.#minuteOf(startedAt + duration);
    if (row.minute !== minute || row.at < 0) this.#beginRow(row, minute);
    this.#rowAt = row.at;
    return this.#rows;
  }

  #toolRow(server: string, tool: string): ToolRow {
    let own = this.#rowsByTool.get(server);
    if (own === undefined) {
      own = new Map();
      this.#rowsByTool.set(server, own);
    }
    const known = own.get(tool);
    if (known !== undefined) return known;
    if (this.#tools.length >= MAX_TOOLS) {
      const { server: otherServer, tool: other } = OTHER_TOOLS;
      if (server === otherServer && tool === other) {
        const row = { index: MAX_TOOLS, minute: -1, at: -1 };
        own.set(tool, row);
        return row;
      }
      return this.#toolRow(otherServer, other);
    }
    const row = { index: this.#tools.length, minute: -1, at: -1 };
    this.#tools.push({ server, tool });
    own.set(tool, row);
    return row;
  }

  #beginRow(row: ToolRow, minute: number): void {
    const index = this.#rowCount++ % MAX_ROWS;
    const at = index * COLUMNS;
    if (at >= this.#rows.length) this.#grow();
    const previous = this.#owners[index];
    if (previous?.at === at) previous.at = -1;
    this.#owners[index] = row;
    this.#rows.fill(0, at, at + COLUMNS);
    this.#rows[at + TOOL] = row.index;
    this.#rows[at + MINUTE_OF] = minute;
    row.at = at;
    row.minute = minute;
  }

  #grow(): void {
    const rows = Math.min(MAX_ROWS, Math.max(64, (this.#rows.length / COLUMNS) * 2));
    const grown = new Uint32Array(rows * COLUMNS);
    grown.set(this.#rows);
    this.#rows = grown;
  }

  /** The number of whole minutes from the start of counting to `time`. */
  #minuteOf(time: number): number {
    return Math.max(0, Math.floor((time - this.#since) / MINUTE));
  }
}

/** The histogram bin of a duration. @param duration in ms */
function binOf(duration: number): number {
  return Math.min(BINS - 1, 32 - Math.clz32(duration * 4));
}

/** Sums up several rows. */
class Counter {
  readonly #sums = new Float64Array(COLUMNS);

  add(row: Uint32Array): void {
    for (let column = CALLS; column < COLUMNS; column++) {
      this.#sums[column] = (this.#sums[column] ?? 0) + (row[column] ?? 0);
    }
  }

  merge(other: Counter): void {
    for (let column = CALLS; column < COLUMNS; column++) {
      this.#sums[column] = (this.#sums[column] ?? 0) + (other.#sums[column] ?? 0);
    }
  }

  get point(): UsagePoint {
    const column = (at: number): number => this.#sums[at] ?? 0;
    return {
      calls: column(CALLS),
      failed: column(FAILED),
      cancelled: column(CANCELLED),
      p50: this.#quantile(0.5),
      p95: this.#quantile(0.95),
      resultBytes: column(BYTES),
    };
  }

  /** A quantile of the durations, in ms, interpolated within its histogram bin; undefined if there were no calls. */
  #quantile(share: number): number | undefined {
    const calls = this.#sums[CALLS] ?? 0;
    if (calls === 0) return undefined;
    const rank = share * calls;
    let before = 0;
    for (let bin = 0; bin < BINS; bin++) {
      const here = this.#sums[HISTOGRAM + bin] ?? 0;
      if (here > 0 && before + here >= rank) {
        const low = bin === 0 ? 0 : 2 ** (bin - 3);
        const high = 2 ** (bin - 2);
        return low + (high - low) * ((rank - before) / here);
      }
      before += here;
    }
    return undefined;
  }
}
