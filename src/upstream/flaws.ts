import type { LogLevel } from "../events.ts";
import type { Flaw } from "../wire/link.ts";

/** Lines of stdout that were no messages. */
export interface StrayOutput {
  /** How many there were since the hub knows the server. */
  readonly lines: number;
  /** The first of them whose text is known, redacted. */
  readonly example: string | undefined;
}

/** The number of lines at which stray output is reported again grows by this factor. */
const GROWTH = 10;
/** The longest example, in characters. */
const EXAMPLE = 100;

/** What is wrong with the messages of one server, over all its connections and processes: each flaw is explained once, then counted. */
export class Flaws {
  #lines = 0;
  #example: string | undefined;
  /** The number of lines at which the next report is due. */
  #due = 1;
  #hasInvalidText = false;

  /** undefined: there was none. */
  get strayOutput(): StrayOutput | undefined {
    return this.#lines === 0 ? undefined : { lines: this.#lines, example: this.#example };
  }

  /** @param log writes to the server's log */
  note(flaw: Flaw, log: (level: LogLevel, text: string) => void): void {
    if (flaw.kind === "invalidText") {
      if (this.#hasInvalidText) return;
      this.#hasInvalidText = true;
      log(
        "warn",
        "It sends text that is not valid UTF-8: the invalid bytes are replaced by U+FFFD.",
      );
      return;
    }
    this.#lines++;
    this.#example ??= flaw.text?.slice(0, EXAMPLE);
    if (this.#lines < this.#due) return;
    this.#due *= GROWTH;
    log("warn", `It ${describeStrayOutput({ lines: this.#lines, example: this.#example })}`);
  }
}

/** A sentence without its subject, the server. */
export function describeStrayOutput({ lines, example }: StrayOutput): string {
  const count = lines === 1 ? "1 line" : `${lines} lines`;
  const such = example === undefined ? "" : `, such as ${JSON.stringify(example)}`;
  return `writes to stdout what is not MCP (${count} so far${such}). That is ignored; its logging should go to stderr.`;
}
