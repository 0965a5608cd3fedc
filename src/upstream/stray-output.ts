import { count } from "../base/format.ts";
import type { LogLevel } from "../base/hub-events.ts";
import type { MalformedOutput } from "../transport/transport.ts";

/** Lines on a server's stdout that are not MCP messages. */
export interface StrayOutput {
  /** Number of such lines since the server was added. */
  readonly lines: number;
  /** The first such line whose text is known; secrets are redacted. */
  readonly example?: string | undefined;
}

/** After a report, the next one is due when the number of lines has grown by this factor. */
const REPORT_GROWTH_FACTOR = 10;
/** Maximum length of the example, in UTF-16 units. */
const MAX_EXAMPLE_LENGTH = 100;

/**
 * Reports malformed output of one server, over all its connections and processes. The more malformed output there is,
 * the rarer the reports become.
 */
export class MalformedOutputReporter {
  #lines = 0;
  #example: string | undefined;
  #nextReportAt = 1;
  #hasInvalidText = false;

  get strayOutput(): StrayOutput | undefined {
    return this.#lines === 0 ? undefined : { lines: this.#lines, example: this.#example };
  }

  /**
   * Counts one piece of malformed output, and logs a warning if a report is due.
   * @param log writes to the server's log
   */
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

/** Describes stray output in a text that begins with a verb: "writes lines to stdout that are not MCP messages …". */
export function describeStrayOutput({ lines, example }: StrayOutput): string {
  const exampleText = example === undefined ? "" : `, such as ${JSON.stringify(example)}`;
  return `writes lines to stdout that are not MCP messages (${count(lines, "line")} so far${exampleText}). toolmux ignores them. The server should log to stderr.`;
}
