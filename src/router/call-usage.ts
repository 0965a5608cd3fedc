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
  /** How long the call waited for an approval or for an answer of the client, in ms; a part of `duration`. */
  readonly personWait: number;
  /** How long the call waited to be sent to its server, in ms; a part of `duration`. */
  readonly queueWait: number;
  /** Whether the call was passed on to its server or a plugin; if not, its tool has not run. */
  readonly sent: boolean;
  readonly outcome: CallOutcome;
  /** The code of the hub's own error; undefined if the server or a plugin has answered. */
  readonly code?: string | undefined;
  /** The message of that error. */
  readonly reason?: string | undefined;
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
    personWait: 0,
    queueWait: 0,
    sent: false,
    outcome: "answered",
    code: undefined,
    reason: undefined,
    by: undefined,
    requestSize: 0,
    resultSize: 0,
  };
}

/**
 * `failed`: the answer was an error, or the hub answered with an error of its own. If it was not checked whether the
 * answer was an error, the outcome is `answered`. `denied`: the call was not made, because no person allowed it.
 */
export type CallOutcome = "answered" | "failed" | "denied" | "cancelled";

/** Counts of one tool's calls in a part of a window. */
export interface UsagePoint {
  readonly calls: number;
  readonly failed: number;
  readonly denied: number;
  readonly cancelled: number;
  /** The median duration in ms, right to 5 % from 0.1 ms to an hour; undefined if there are none, like `p95`. */
  readonly p50: number | undefined;
  readonly p95: number | undefined;
  readonly resultBytes: number;
}

/**
 * Counts of one tool's calls in a window: the total, and by parts of equal length (`points`), oldest first. Durations
 * are those in which the tool ran, without the time for which the call waited for a person or to be sent.
 */
export interface ToolUsage extends UsagePoint {
  readonly server: string;
  readonly tool: string;
  /** The number of durations: that of the calls that were sent. */
  readonly n: number;
  /** The shortest and longest duration in ms, to 0.01 ms; undefined if there are none. */
  readonly min: number | undefined;
  readonly max: number | undefined;
  /** How long all calls together waited for a person, and to be sent, in ms. */
  readonly personWait: number;
  readonly queueWait: number;
  readonly points: readonly UsagePoint[];
}

export interface Usage {
  /** When counting began, in ms since the epoch. */
  readonly since: number;
  /** The end of the window, in ms since the epoch. `step`: the length of each of its parts, in ms. */
  readonly until: number;
  readonly step: number;
  /** The tools, most calls first; last, if there are too many, all others together (`OTHER_TOOLS`). */
  readonly tools: readonly ToolUsage[];
}

const MAX_ENDED = 1000;
/** Maximum number of tools that are counted separately. Further tools are counted together, as `OTHER_TOOLS`. */
const MAX_TOOLS = 512;
export const OTHER_TOOLS = { server: "", tool: "other" } as const;
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
/** The length of the periods from which windows of more than an hour are made. */
const BLOCK = 30 * MINUTE;
const LONG_WINDOW = 60 * MINUTE;

/** The columns of a tally: the counts of one tool in one period. The histogram of durations begins at `HISTOGRAM`. */
const CALLS = 0;
const FAILED = 1;
const DENIED = 2;
const CANCELLED = 3;
const BYTES = 4;
/** Sums of waits, in ms. */
const PERSON_WAIT = 5;
const QUEUE_WAIT = 6;
/** The shortest and the longest duration, in units of 0.01 ms, which reach over 11 hours. */
const MIN = 7;
const MAX = 8;
const HISTOGRAM = 9;
const UNITS_PER_MS = 100;
/** Bin 0: less than 0.1 ms; each further bin reaches 10 % further; the last one: from an hour on. */
const FIRST_BIN = 0.1;
const GROWTH = 1.1;
const BINS_PER_E = 1 / Math.log(GROWTH);
const BINS = 2 + Math.ceil(Math.log(3_600_000 / FIRST_BIN) * BINS_PER_E);
const COLUMNS = HISTOGRAM + BINS;
const MAX_UINT32 = 0xffff_ffff;

/** The counts of one tool in one period, as columns: 776 bytes. */
type Tally = Uint32Array;

function emptyTally(): Tally {
  const tally = new Uint32Array(COLUMNS);
  tally[MIN] = MAX_UINT32;
  return tally;
}

function clearTally(tally: Tally): void {
  tally.fill(0);
  tally[MIN] = MAX_UINT32;
}

/** A tool, with its counts in the latest minute and the latest 30 minutes in which it was called. */
interface CountedTool {
  readonly index: number;
  minute: number;
  readonly inMinute: Tally;
  block: number;
  /** The counts of the earlier minutes of the block. */
  readonly inBlock: Tally;
}

/**
 * Keeps the records of the last 1,000 ended calls, and counts the calls of the last 24 h by tool and minute. The counts
 * take at most 2 MiB. Empty after a restart of the hub.
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
  #deniedCount = 0;
  #cancelledCount = 0;
  readonly #names: { readonly server: string; readonly tool: string }[] = [];
  readonly #tools: CountedTool[] = [];
  readonly #toolsByName = new Map<string, Map<string, CountedTool>>();
  /** The counts of the minutes and of the blocks of 30 minutes that are over. */
  readonly #minutes = new TallyLog();
  readonly #blocks = new TallyLog();

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
    const { outcome, duration, personWait, queueWait, resultSize, startedAt } = call;
    const tool = this.#toolOf(call.server, call.tool);
    const minute = this.#periodOf(startedAt + duration, MINUTE);
    if (tool.minute !== minute) this.#beginMinute(tool, minute);
    const tally = tool.inMinute;
    increase(tally, CALLS, 1);
    if (outcome === "failed") {
      this.#failedCount++;
      increase(tally, FAILED, 1);
    } else if (outcome === "cancelled") {
      this.#cancelledCount++;
      increase(tally, CANCELLED, 1);
    } else if (outcome === "denied") {
      this.#deniedCount++;
      increase(tally, DENIED, 1);
    }
    increase(tally, BYTES, resultSize);
    if (personWait > 0) increase(tally, PERSON_WAIT, personWait);
    if (queueWait > 0) increase(tally, QUEUE_WAIT, queueWait);
    if (!call.sent) return;
    const ran = Math.max(0, duration - personWait - queueWait);
    const units = Math.min(MAX_UINT32 - 1, Math.round(ran * UNITS_PER_MS));
    if (units < (tally[MIN] ?? 0)) tally[MIN] = units;
    if (units > (tally[MAX] ?? 0)) tally[MAX] = units;
    increase(tally, HISTOGRAM + binOf(ran), 1);
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
      denied: this.#deniedCount,
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
   * Counts of each tool's calls in the last `window` ms, at most 24 h, divided into `points` parts. The window begins
   * with a whole minute; if it is longer than an hour and has no part shorter than 30 minutes, with whole 30 minutes.
   * @param limit maximum number of tools, at least 2; the tools with the fewest calls are counted together beyond it
   */
  usage(window: number, points: number, limit = Infinity): Usage {
    const until = this.#now();
    const isLong = window > LONG_WINDOW && window / points >= BLOCK;
    const length = isLong ? BLOCK : MINUTE;
    const periods = Math.min(DAY / length, Math.max(points, Math.ceil(window / length)));
    const last = this.#periodOf(until, length);
    const first = last - periods + 1;
    const all = new Map<number, Counter[]>();
    const counterOf = (tool: number, period: number): Counter | undefined => {
      if (period < first || period > last) return undefined;
      let counters = all.get(tool);
      if (counters === undefined) {
        counters = Array.from({ length: points }, () => new Counter());
        all.set(tool, counters);
      }
      return counters[Math.min(points - 1, Math.floor(((period - first) * points) / periods))];
    };
    (isLong ? this.#blocks : this.#minutes).read(counterOf);
    for (const { index, minute, inMinute, block, inBlock } of this.#tools) {
      const ofMinute = isLong ? Math.floor((minute * MINUTE) / BLOCK) : minute;
      if ((inMinute[CALLS] ?? 0) > 0) counterOf(index, ofMinute)?.add(inMinute);
      if (isLong && (inBlock[CALLS] ?? 0) > 0) counterOf(index, block)?.add(inBlock);
    }
    const counted = [...all]
      .map(([index, counters]) => {
        const total = new Counter();
        for (const counter of counters) total.merge(counter);
        return { name: this.#names[index] ?? OTHER_TOOLS, counters, total };
      })
      .toSorted((a, b) => b.total.point.calls - a.total.point.calls);
    const rest = counted.length > limit ? counted.splice(limit - 1) : [];
    const [together, ...others] = rest;
    if (together !== undefined) {
      for (const { total, counters } of others) {
        together.total.merge(total);
        for (const [at, counter] of counters.entries()) together.counters[at]?.merge(counter);
      }
      counted.push({ ...together, name: OTHER_TOOLS });
    }
    const tools = counted.map(({ name, counters, total }): ToolUsage => {
      return { ...name, ...total.point, ...total.more, points: counters.map(({ point }) => point) };
    });
    return { since: this.#since, until, step: (periods * length) / points, tools };
  }

  #toolOf(server: string, tool: string): CountedTool {
    let own = this.#toolsByName.get(server);
    if (own === undefined) {
      own = new Map();
      this.#toolsByName.set(server, own);
    }
    const known = own.get(tool);
    if (known !== undefined) return known;
    const isOther = server === OTHER_TOOLS.server && tool === OTHER_TOOLS.tool;
    if (this.#names.length >= MAX_TOOLS && !isOther)
      return this.#toolOf(OTHER_TOOLS.server, OTHER_TOOLS.tool);
    const counted = {
      index: this.#tools.length,
      minute: -1,
      inMinute: emptyTally(),
      block: -1,
      inBlock: emptyTally(),
    };
    this.#tools.push(counted);
    this.#names.push({ server, tool });
    own.set(tool, counted);
    return counted;
  }

  /** Stores the counts of the minute that is over. */
  #beginMinute(tool: CountedTool, minute: number): void {
    const { index, inMinute, inBlock } = tool;
    if (tool.minute >= 0) {
      this.#minutes.append(index, tool.minute, inMinute);
      const block = Math.floor((tool.minute * MINUTE) / BLOCK);
      if (tool.block !== block) {
        if (tool.block >= 0) this.#blocks.append(index, tool.block, inBlock);
        clearTally(inBlock);
        tool.block = block;
      }
      addTally(inBlock, inMinute);
      clearTally(inMinute);
    }
    tool.minute = minute;
  }

  /** The number of whole periods of this length from the start of counting to `time`. */
  #periodOf(time: number, length: number): number {
    return Math.max(0, Math.floor((time - this.#since) / length));
  }
}

/** Adds to a column of a tally; the highest value of a column stays. */
function increase(tally: Tally, column: number, by: number): void {
  tally[column] = Math.min(MAX_UINT32, (tally[column] ?? 0) + by);
}

/** Adds one tally to another. */
function addTally(sum: Tally, tally: Tally): void {
  for (let column = 0; column < COLUMNS; column++) {
    const value = tally[column] ?? 0;
    if (column === MIN) sum[MIN] = Math.min(sum[MIN] ?? 0, value);
    else if (column === MAX) sum[MAX] = Math.max(sum[MAX] ?? 0, value);
    else if (value > 0) increase(sum, column, value);
  }
}

/** The bin of a duration. @param duration in ms */
function binOf(duration: number): number {
  if (duration < FIRST_BIN) return 0;
  return Math.min(BINS - 1, 1 + Math.floor(Math.log(duration / FIRST_BIN) * BINS_PER_E));
}

/** The duration, in ms, that is nearest to all durations of a bin: no further than 4.8 % from any. */
function durationOf(bin: number): number {
  if (bin === 0) return FIRST_BIN / 2;
  const low = FIRST_BIN * GROWTH ** (bin - 1);
  return (2 * low * GROWTH) / (1 + GROWTH);
}

/**
 * Number of words at the start of a record: its length with a bit for each column before the histogram that is not 0,
 * its tool, and its period.
 */
const HEAD = 3;
/** The length of a record is in the lowest bits: it has a word for each of the columns and some for each bin. */
const LENGTH_BITS = 16;
/** Words per log: the first size, and the maximum (512 KiB). Powers of 2. */
const FIRST_WORDS = 1 << 10;
const MAX_WORDS = 1 << 17;
/** A bin and its count are one word: the bin is in the lowest bits. */
const BIN_BITS = 8;
const MAX_IN_WORD = 2 ** (32 - BIN_BITS) - 1;

/**
 * The tallies of periods that are over, in a ring buffer: the oldest are overwritten. A tally is kept as one
 * word for each column and each bin that is not empty: 32 bytes for a call, about 70 for many. So a day takes less than
 * 4 kB for a tool.
 */
class TallyLog {
  #words = new Uint32Array(FIRST_WORDS);
  /** Positions of the oldest record and of the next one. They grow, and are taken modulo the number of words. */
  #start = 0;
  #end = 0;

  append(tool: number, period: number, tally: Tally): void {
    let length = HEAD;
    let columns = 0;
    for (let column = 0; column < HISTOGRAM; column++) {
      if (tally[column] === 0) continue;
      length++;
      columns |= 1 << column;
    }
    for (let bin = 0; bin < BINS; bin++)
      length += Math.ceil((tally[HISTOGRAM + bin] ?? 0) / MAX_IN_WORD);
    while (this.#end + length - this.#start > this.#words.length) {
      if (this.#words.length < MAX_WORDS) this.#grow();
      else this.#start += this.#lengthAt(this.#start);
    }
    this.#push(length | (columns << LENGTH_BITS));
    this.#push(tool);
    this.#push(period);
    for (let column = 0; column < HISTOGRAM; column++)
      if (tally[column] !== 0) this.#push(tally[column] ?? 0);
    for (let bin = 0; bin < BINS; bin++) {
      for (let rest = tally[HISTOGRAM + bin] ?? 0; rest > 0; rest -= MAX_IN_WORD)
        this.#push(Math.min(rest, MAX_IN_WORD) * 2 ** BIN_BITS + bin);
    }
  }

  /** Adds each tally to the counter for its tool and period, if there is one. */
  read(counterOf: (tool: number, period: number) => Counter | undefined): void {
    for (let at = this.#start; at < this.#end; at += this.#lengthAt(at)) {
      const counter = counterOf(this.#at(at + 1), this.#at(at + 2));
      if (counter === undefined) continue;
      const columns = this.#at(at) >>> LENGTH_BITS;
      let cell = at + HEAD;
      for (let column = 0; column < HISTOGRAM; column++)
        counter.addTo(column, (columns & (1 << column)) === 0 ? 0 : this.#at(cell++));
      for (const end = at + this.#lengthAt(at); cell < end; cell++) {
        const word = this.#at(cell);
        counter.addTo(HISTOGRAM + (word & (2 ** BIN_BITS - 1)), word >>> BIN_BITS);
      }
    }
  }

  #lengthAt(position: number): number {
    return this.#at(position) & (2 ** LENGTH_BITS - 1);
  }

  #at(position: number): number {
    return this.#words[position & (this.#words.length - 1)] ?? 0;
  }

  #push(word: number): void {
    this.#words[this.#end++ & (this.#words.length - 1)] = word;
  }

  /** Nothing is overwritten before the log has its maximum size, so its records are at the start. */
  #grow(): void {
    const grown = new Uint32Array(this.#words.length * 2);
    grown.set(this.#words);
    this.#words = grown;
  }
}

/** Sums up several tallies. */
class Counter {
  readonly #sums = new Float64Array(COLUMNS);

  constructor() {
    this.#sums[MIN] = Infinity;
  }

  addTo(column: number, value: number): void {
    const sum = this.#sums[column] ?? 0;
    if (column === MIN) this.#sums[MIN] = Math.min(sum, value);
    else if (column === MAX) this.#sums[MAX] = Math.max(sum, value);
    else this.#sums[column] = sum + value;
  }

  add(tally: Tally): void {
    for (let column = 0; column < COLUMNS; column++) this.addTo(column, tally[column] ?? 0);
  }

  merge(other: Counter): void {
    for (let column = 0; column < COLUMNS; column++) this.addTo(column, other.#of(column));
  }

  get point(): UsagePoint {
    return {
      calls: this.#of(CALLS),
      failed: this.#of(FAILED),
      denied: this.#of(DENIED),
      cancelled: this.#of(CANCELLED),
      p50: this.#quantile(0.5),
      p95: this.#quantile(0.95),
      resultBytes: this.#of(BYTES),
    };
  }

  get more(): Pick<ToolUsage, "n" | "min" | "max" | "personWait" | "queueWait"> {
    const n = this.#n;
    return {
      n,
      min: n === 0 ? undefined : this.#of(MIN) / UNITS_PER_MS,
      max: n === 0 ? undefined : this.#of(MAX) / UNITS_PER_MS,
      personWait: this.#of(PERSON_WAIT),
      queueWait: this.#of(QUEUE_WAIT),
    };
  }

  #of(column: number): number {
    return this.#sums[column] ?? 0;
  }

  get #n(): number {
    return this.#sums.subarray(HISTOGRAM).reduce((sum, calls) => sum + calls, 0);
  }

  /** A quantile of the durations (nearest rank), in ms; undefined if there are none. */
  #quantile(share: number): number | undefined {
    const n = this.#n;
    if (n === 0) return undefined;
    const rank = Math.ceil(share * n);
    const min = this.#of(MIN) / UNITS_PER_MS;
    const max = this.#of(MAX) / UNITS_PER_MS;
    let before = 0;
    for (let bin = 0; bin < BINS; bin++) {
      before += this.#of(HISTOGRAM + bin);
      if (before < rank) continue;
      const value = Math.min(max, Math.max(min, durationOf(bin)));
      return Math.round(value * UNITS_PER_MS) / UNITS_PER_MS;
    }
    return max;
  }
}
