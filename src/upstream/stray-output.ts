import { count } from "../base/format.ts";
import type { LogLevel } from "../base/events.ts";
import type { MalformedOutput } from "../transport/transport.ts";

/** Lines of stdout that are not MCP messages. */
export interface StrayOutput {
  /** Number of such lines since the server was added. */
  readonly lines: number;
  /** The first line whose text is known; secrets are redacted. */
  readonly example: string | undefined;
}

/** Stray output is reported again when its number of lines has grown by this factor. */
const REPORT_GROWTH_FACTOR = 10;
/** Maximum length of an example, in UTF-16 units. */
const MAX_EXAMPLE_LENGTH = 100;

/**
 * Reports malformed output of one server over all its connections and processes: each kind is explained once, then
 * counted.
 */
export class MalformedOutputReporter {
  #lines = 0;
  #example: string | undefined;
  /** The number of lines at which the next report is due. */
  #nextReportAt = 1;
  #hasInvalidText = false;

  /** The stray output so far; undefined if there was none. */
  get strayOutput(): StrayOutput | undefined {
    return this.#lines === 0 ? undefined : { lines: this.#lines, example: this.#example };
  }

  /** Counts one piece of malformed output, and logs it if a report is due. @param log writes to the server's log */
  add(output: MalformedOutput, log: (level: LogLevel, text: string) => void): void {
    if (output.kind === "invalidText") {
      if (this.#hasInvalidText) return;
      this.#hasInvalidText = true;
      log("warn", "its output is not valid UTF-8: toolmux replaces the invalid bytes by U+FFFD.");
      return;
    }
    this.#lines++;
    this.#example ??= output.text?.slice(0, MAX_EXAMPLE_LENGTH);
    if (this.#lines < this.#nextReportAt) return;
    this.#nextReportAt *= REPORT_GROWTH_FACTOR;
    log("warn", `it ${describeStrayOutput({ lines: this.#lines, example: this.#example })}`);
  }
}

/** Describes stray output in a text that follows a subject, such as "Server … writes to stdout what is not MCP". */
export function describeStrayOutput({ lines, example }: StrayOutput): string {
  const exampleText = example === undefined ? "" : `, such as ${JSON.stringify(example)}`;
  return `writes lines to stdout that are not MCP messages (${count(lines, "line")} so far${exampleText}). toolmux ignores them. The server should log to stderr.`;
}
