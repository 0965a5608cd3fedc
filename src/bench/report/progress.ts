import { truncate } from "../../terminal/terminal.ts";
import { count, formatDuration } from "../../base/format.ts";
import type { BenchProgress, LevelResult } from "../result.ts";
import type { Clock } from "../../base/clock.ts";
import { countErrors, formatRate, formatTime } from "./tables.ts";

type Span = Extract<BenchProgress, { kind: "span" }>;

/**
 * Widths of parts of the status line, in characters: the progress bar, the name of the measured hub or server
 * (maximum), and the throughput history. They are chosen so that the main figures fit 80 columns.
 */
const BAR_WIDTH = 8;
const NAME_WIDTH = 16;
const HISTORY_WIDTH = 12;
const BLOCKS = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"] as const;

/** The level (number of calls in flight) that is being measured, according to the events so far. */
interface RunningLevel {
  readonly title: string;
  /**
   * `began`: time of the level's first event, in ms of the monotonic clock. `done`: the part of the level that was
   * completed at that time, 0 to 1.
   */
  readonly began: number;
  readonly done: number;
  readonly spans: readonly Span["span"][];
}

/** Formats progress events as one status line. Needs all events, because it keeps the figures of the running level. */
export class BenchProgressLine {
  readonly #clock: Clock;
  #level: RunningLevel | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * The new text of the status line; undefined when a level has ended, which means that the line is to be cleared.
   */
  format(event: BenchProgress): string | undefined {
    switch (event.kind) {
      case "starting":
        return `starting ${event.subject} …`;
      case "warmUp":
        return `${titleOf(event)}: warming up …`;
      case "span":
        return this.#formatSpan(event);
      case "level":
        this.#level = undefined;
        return undefined;
    }
  }

  #formatSpan(event: Span): string {
    const { span, done } = event;
    const title = titleOf(event);
    const now = this.#clock.now();
    const previous =
      this.#level?.title === title ? this.#level : { title, began: now, done, spans: [] };
    const level = { ...previous, spans: [...previous.spans, span] };
    this.#level = level;
    const errors = level.spans.reduce((sum, it) => sum + it.errors, 0);
    // The end of the line is cut off in a narrow terminal, so the least important figures come last.
    return [
      `${title} ${drawBar(done)}`,
      ...describeRate(level.spans),
      `p50 ${formatTime(span.p50)}`,
      `p99 ${formatTime(span.p99)}`,
      count(errors, "error"),
      ...describeTimeLeft(level, done, now),
      drawHistory(level.spans.slice(-HISTORY_WIDTH).map(({ calls }) => calls)),
    ].join("  ");
  }
}

function titleOf({ subject, concurrency }: { subject: string; concurrency: number }): string {
  return `${truncate(subject, NAME_WIDTH)}, ${concurrency} in flight`;
}

/** Estimated remaining time, from the speed since the level's first event. */
function describeTimeLeft(
  { began, done: first }: RunningLevel,
  done: number,
  now: number,
): string[] {
  if (done <= first) return [];
  return [`${formatDuration(((now - began) / (done - first)) * Math.max(0, 1 - done))} left`];
}

/**
 * The rate in the second-to-last interval. Unlike the last interval, it has a known length: it ends where the last
 * interval starts.
 */
function describeRate(spans: readonly Span["span"][]): string[] {
  const [before, last] = spans.slice(-2);
  return before && last && last.at > before.at
    ? [formatRate(before.calls / (last.at - before.at))]
    : [];
}

export function describeLevel(subject: string, level: LevelResult): string {
  const { concurrency, rate, latency } = level;
  const errors = countErrors(level);
  return [
    `${subject}, ${concurrency} in flight: ${formatRate(rate)}`,
    ...(latency.count > 0
      ? [`p50 ${formatTime(latency.p50)}`, `p99 ${formatTime(latency.p99)}`]
      : []),
    ...(errors > 0 ? [count(errors, "error")] : []),
  ].join(", ");
}

function drawBar(done: number): string {
  const full = Math.round(Math.min(1, Math.max(0, done)) * BAR_WIDTH);
  return "━".repeat(full) + "─".repeat(BAR_WIDTH - full);
}

/** Draws counts as block characters; the highest count gets the full height. */
function drawHistory(counts: readonly number[]): string {
  const highest = Math.max(1, ...counts);
  return counts.map((it) => BLOCKS[Math.round((it / highest) * (BLOCKS.length - 1))]).join("");
}
