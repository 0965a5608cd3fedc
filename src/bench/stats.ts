import { Buffer } from "node:buffer";
import { build, type Histogram } from "hdr-histogram-js";
import { textOf } from "../base/bytes.ts";
import type { HubError } from "../base/errors.ts";
import { parseRange } from "../base/json.ts";
import { bodyOf, bytesOf, type Response } from "../jsonrpc/message.ts";
import { mayBeIncomplete, readResultType } from "../protocol/modern.ts";
import { membersOf } from "../upstream/handshake-result.ts";
import type { LatencyResult, LevelResult, SpanResult, ToolResult } from "./result.ts";

/** Histogram units per ms: a unit is a tenth of a µs, well below the latency of a call over a pipe. */
const UNITS_PER_MS = 10_000;
/** The highest latency that a histogram holds, in units: one hour. A longer latency is recorded as one hour. */
const MAX_LATENCY = 3_600_000 * UNITS_PER_MS;

/** The percentiles in `LatencyResult.curve`, denser towards 100. */
const CURVE_PERCENTILES = [
  0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92.5, 95, 96, 97, 98, 98.5, 99, 99.25, 99.5, 99.75,
  99.9, 99.95, 99.975, 99.99, 99.995, 99.999, 100,
];

/** A latency histogram. Its memory does not grow with the number of values. */
export class LatencyHistogram {
  readonly #histogram: Histogram;

  /** @param digits significant digits kept; with each further digit, memory and read time grow tenfold */
  constructor(digits: 2 | 3 = 3) {
    this.#histogram = build({
      lowestDiscernibleValue: 1,
      highestTrackableValue: MAX_LATENCY,
      numberOfSignificantValueDigits: digits,
      bitBucketSize: 32,
    });
  }

  /** @param ms negative values (clock differences between processes) are recorded as 0 */
  record(ms: number): void {
    const value = Math.round(ms * UNITS_PER_MS);
    this.#histogram.recordValue(value < 0 ? 0 : value > MAX_LATENCY ? MAX_LATENCY : value);
  }

  get count(): number {
    return this.#histogram.totalCount;
  }

  /** The median latency, in ms; undefined if the histogram is empty. */
  get median(): number | undefined {
    return this.count === 0 ? undefined : this.#unitsAt(50) / UNITS_PER_MS;
  }

  /** The latency at a percentile (0 to 100), in µs; 0 if the histogram is empty. */
  percentile(percentile: number): number {
    return this.count === 0 ? 0 : toMicros(this.#unitsAt(percentile));
  }

  reset(): void {
    this.#histogram.reset();
  }

  result(): LatencyResult {
    const histogram = this.#histogram;
    const max = toMicros(histogram.maxValue);
    const at = (percentile: number): number => Math.min(this.percentile(percentile), max);
    return {
      count: this.count,
      mean: this.count === 0 ? 0 : toMicros(histogram.mean),
      p50: at(50),
      p90: at(90),
      p99: at(99),
      p999: at(99.9),
      max,
      curve:
        this.count === 0
          ? []
          : CURVE_PERCENTILES.map((percentile) => ({ percentile, value: at(percentile) })),
    };
  }

  #unitsAt(percentile: number): number {
    return this.#histogram.getValueAtPercentile(percentile);
  }
}

/** Converts histogram units to µs, with one decimal. */
function toMicros(units: number): number {
  return Math.round(units) / 10;
}

/** Maximum number of distinct kinds of errors; further kinds are counted as `others`. */
const MAX_KINDS = 50;
const OTHER_KINDS = "others";

/**
 * Statistics of the calls of one subject (hub or server) at one level (number of calls in flight), over all rounds.
 * Times are in ms.
 */
export class LevelStats {
  readonly latency = new LatencyHistogram();
  /**
   * Latency from the time when a call was sent. Only in an open loop, where a call may be sent later than it is due.
   */
  readonly service: LatencyHistogram | undefined;
  readonly #errors = new Map<string, { count: number; example: string }>();
  readonly #redact: (text: string) => string;
  calls = 0;
  failed = 0;
  /** Total duration of the rounds that have ended, in ms. */
  #elapsed = 0;
  #roundStart = 0;
  readonly #span: number;
  readonly #onSpan: (span: SpanResult) => void;
  readonly #spans: SpanResult[] = [];
  readonly #recent = new LatencyHistogram(2);
  /** The calls of each tool, if there are several. */
  readonly #tools: readonly { calls: number; failed: number; readonly latency: LatencyHistogram }[];
  #spanStart = 0;
  #spanErrors = 0;

  /**
   * @param isOpen whether it is an open loop, where calls may have to wait before they are sent
   * @param span length of the timeline's intervals, in ms
   * @param redact removes secrets from error messages
   * @param toolCount number of tools that are called
   */
  constructor(
    isOpen: boolean,
    span: number,
    redact: (text: string) => string,
    onSpan: (span: SpanResult) => void,
    toolCount = 1,
  ) {
    this.#tools = Array.from({ length: toolCount > 1 ? toolCount : 0 }, () => {
      return { calls: 0, failed: 0, latency: new LatencyHistogram(2) };
    });
    this.service = isOpen ? new LatencyHistogram() : undefined;
    this.#span = span;
    this.#redact = redact;
    this.#onSpan = onSpan;
  }

  beginRound(now: number): void {
    this.#roundStart = now;
    this.#spanStart = now;
  }

  /** Ends a round. The elapsed time stands still until the next round begins. */
  endRound(now: number): void {
    if (this.#recent.count + this.#spanErrors > 0) this.#closeSpan(now);
    this.#elapsed += now - this.#roundStart;
  }

  /** @param tool the number of the called tool */
  answered(due: number, sent: number, now: number, tool = 0): void {
    this.calls++;
    this.latency.record(now - due);
    this.service?.record(now - sent);
    this.#recent.record(now - due);
    const own = this.#tools[tool];
    if (own === undefined) return;
    own.calls++;
    own.latency.record(now - due);
  }

  /** Counts a call, or `count` calls, as failed. @param tool the number of the called tool, if one was called */
  fail({ kind, example }: CallFailure, count = 1, tool?: number): void {
    const own = tool === undefined ? undefined : this.#tools[tool];
    if (own !== undefined) own.failed += count;
    this.failed += count;
    this.#spanErrors += count;
    const hasRoom = this.#errors.has(kind) || this.#errors.size < MAX_KINDS;
    const keptKind = hasRoom ? kind : OTHER_KINDS;
    const known = this.#errors.get(keptKind);
    if (known !== undefined) known.count += count;
    else this.#errors.set(keptKind, { count, example: this.#redact(example) });
  }

  /**
   * Ends the current interval of the timeline if it is over. This is called several times per interval, so that each
   * interval ends on time.
   */
  roll(now: number): void {
    if (now - this.#spanStart >= this.#span) this.#closeSpan(now);
  }

  /** The calls of each tool, in the order of their numbers; none if there is only one tool. */
  get tools(): readonly Omit<ToolResult, "name">[] {
    return this.#tools.map(({ calls, failed, latency }) => {
      const [p50, p90, p99] = [50, 90, 99].map((part) => latency.percentile(part));
      return { calls, errors: failed, p50: p50 ?? 0, p90: p90 ?? 0, p99: p99 ?? 0 };
    });
  }

  /** Time since the level began, without the pauses between rounds, in ms. */
  elapsed(now: number): number {
    return this.#elapsed + now - this.#roundStart;
  }

  result(): Omit<LevelResult, "concurrency" | "cancels" | "kills" | "hub" | "server" | "tools"> {
    const seconds = this.#elapsed / 1000;
    return {
      seconds,
      calls: this.calls,
      rate: seconds > 0 ? this.calls / seconds : 0,
      latency: this.latency.result(),
      ...(this.service && { service: this.service.result() }),
      errors: Object.fromEntries(this.#errors),
      timeline: this.#spans,
    };
  }

  #closeSpan(now: number): void {
    const span: SpanResult = {
      at: (this.#elapsed + this.#spanStart - this.#roundStart) / 1000,
      calls: this.#recent.count,
      errors: this.#spanErrors,
      p50: this.#recent.percentile(50),
      p99: this.#recent.percentile(99),
    };
    this.#spans.push(span);
    this.#recent.reset();
    this.#spanErrors = 0;
    this.#spanStart = now;
    this.#onSpan(span);
  }
}

/** The reason why a call counts as failed: a short kind, and the error's text. */
export interface CallFailure {
  readonly kind: string;
  readonly example: string;
}

/** Maximum length of an error text, in UTF-16 code units; longer ones are truncated. */
const MAX_MESSAGE_LENGTH = 300;
/** Names of the error codes of JSON-RPC 2.0. */
const ERROR_NAMES: Readonly<Record<number, string>> = {
  [-32700]: "parse error",
  [-32600]: "invalid request",
  [-32601]: "method not found",
  [-32602]: "invalid params",
  [-32603]: "internal error",
};

/**
 * The reason why a response counts as a failed call; undefined if it is a complete result without `isError: true`.
 */
export function failureOf(response: Response): CallFailure | undefined {
  if (response.outcome === "error") return readError(response);
  return mayBeFailed(bytesOf(response)) ? readResult(response) : undefined;
}

const IS_ERROR_KEY = Buffer.from('"isError"');
const FALSE_VALUE = Buffer.from(":false");
const SPACED_FALSE_VALUE = Buffer.from(": false");

/** Whether the response must be parsed to know if the call failed. Most results have no `isError`, or it is `false`. */
function mayBeFailed(bytes: Buffer): boolean {
  const at = bytes.indexOf(IS_ERROR_KEY);
  if (at < 0) return mayBeIncomplete(bytes);
  const after = at + IS_ERROR_KEY.length;
  const isDenied = [FALSE_VALUE, SPACED_FALSE_VALUE].some(
    (denial) => bytes.compare(denial, 0, denial.length, after, after + denial.length) === 0,
  );
  return !isDenied || bytes.includes(IS_ERROR_KEY, after) || mayBeIncomplete(bytes);
}

function readResult(response: Response): CallFailure | undefined {
  const { bytes, body } = response;
  const result = bodyOf(response);
  const type = readResultType(result);
  if (type !== "complete") return { kind: `not complete: ${type}`, example: excerpt(bytes, body) };
  if (result.value("isError") !== true) return undefined;
  return { kind: "tool error", example: firstText(result.value("content")) };
}

function readError({ bytes, body }: Response): CallFailure {
  let error: Readonly<Record<string, unknown>> = {};
  try {
    error = membersOf(parseRange(bytes, body));
  } catch {
    return { kind: "malformed error", example: excerpt(bytes, body) };
  }
  const hubCode = membersOf(error["data"])["code"];
  const code = Number(error["code"]);
  const name = typeof hubCode === "string" ? hubCode : (ERROR_NAMES[code] ?? "");
  return {
    kind: `error ${code} ${name}`.trim(),
    example: shorten(String(error["message"])),
  };
}

/** The failure of a call that was never answered. */
export function failureOfLoss({ code, message }: HubError): CallFailure {
  return { kind: code === "connectionLost" ? "connection lost" : code, example: shorten(message) };
}

function firstText(content: unknown): string {
  const texts = Array.isArray(content) ? content.map((part) => membersOf(part)["text"]) : [];
  return shorten(texts.find((text) => typeof text === "string") ?? "");
}

function excerpt(bytes: Buffer, { start, end }: Response["body"]): string {
  return shorten(textOf(bytes, start, Math.min(end, start + MAX_MESSAGE_LENGTH)));
}

function shorten(text: string): string {
  return text.length > MAX_MESSAGE_LENGTH ? `${text.slice(0, MAX_MESSAGE_LENGTH)}…` : text;
}
