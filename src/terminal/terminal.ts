import { formatDuration } from "../base/format.ts";
import process from "node:process";
import picocolors from "picocolors";
import type { Env } from "../base/paths.ts";
import { escapeJsonForTerminal, printStderrLine, sanitizeLine } from "./log.ts";
import { originalConsole } from "./stderr.ts";

export type Colors = ReturnType<typeof picocolors.createColors>;

/** Width in columns (Infinity: unlimited) and colors of one output stream. */
export interface TerminalStyle {
  readonly isTerminal: boolean;
  readonly width: number;
  readonly colors: Colors;
}

/** One terminal line that is overwritten, and cleared at the end. */
export interface StatusLine {
  show(text: string): void;
  clear(): void;
}

const ERASE = "\r\u001b[K";

/**
 * The output of a command: results on stdout, messages for people and the status line on stderr. What it prints does
 * not go through `console`, so `redirectConsole` does not affect it.
 */
export class Terminal {
  readonly #env: Env;
  readonly #styles = new Map<"stdout" | "stderr", TerminalStyle>();

  constructor(env: Env) {
    this.#env = env;
  }

  get stdout(): TerminalStyle {
    return this.#styleOf("stdout");
  }

  get stderr(): TerminalStyle {
    return this.#styleOf("stderr");
  }

  /** Prints text and a line break to stdout. */
  print(text = ""): void {
    originalConsole.log(text);
  }

  /** Prints a table to stdout, truncated to its width; nothing if it has no rows. */
  printTable(titles: readonly string[], rows: readonly (readonly string[])[]): void {
    if (rows.length > 0) this.print(alignTable(titles, rows, this.stdout));
  }

  /** Prints indented JSON to stdout; terminal control and invisible characters are escaped. */
  printJson(document: object): void {
    originalConsole.log(formatJson(document));
  }

  /** Prints text and a line break to stderr. */
  printStderr(text: string): void {
    originalConsole.warn(text);
  }

  /** Prints one line for people to stderr, with the program's name before it. */
  note(text: string): void {
    printStderrLine(text);
  }

  /** Opens the status line on stderr; undefined if stderr is not a suitable terminal. */
  openStatusLine(): StatusLine | undefined {
    const { stderr } = process;
    if (!stderr.isTTY || this.#env["TERM"] === "dumb") return undefined;
    let shown = false;
    return {
      show(text) {
        // The last column stays free: some terminals would wrap after it.
        stderr.write(ERASE + truncate(sanitizeLine(text), (stderr.columns || 80) - 1));
        shown = true;
      },
      clear() {
        if (shown) stderr.write(ERASE);
        shown = false;
      },
    };
  }

  /** Inspects a stream once. Takes a few ms, so it is only for output for people. */
  #styleOf(stream: "stdout" | "stderr"): TerminalStyle {
    const known = this.#styles.get(stream);
    if (known !== undefined) return known;
    const { isTTY: isTerminal, columns } = process[stream];
    const isColored = isTerminal && !this.#env["NO_COLOR"] && this.#env["TERM"] !== "dumb";
    const style = {
      isTerminal,
      width: (isTerminal && columns) || Number.POSITIVE_INFINITY,
      colors: picocolors.createColors(isColored),
    };
    this.#styles.set(stream, style);
    return style;
  }
}

/** Aligned columns with titles; the last column is truncated to the width. */
export function alignTable(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  { width, colors }: TerminalStyle,
): string {
  const table = [titles, ...rows.map((row) => row.map(sanitizeLine))];
  const widths = titles.map((_, at) => Math.max(...table.map((row) => columnsOf(row[at] ?? ""))));
  const lines = table.map((row) => {
    const cells = row.map((cell, at) =>
      at < row.length - 1 ? cell + " ".repeat((widths[at] ?? 0) - columnsOf(cell)) : cell,
    );
    return truncate(cells.join("  ").trimEnd(), width);
  });
  return lines.map((line, i) => (i === 0 ? colors.dim(line) : line)).join("\n");
}

/** The text, truncated with an ellipsis if it is wider than `width` columns. */
export function truncate(text: string, width: number): string {
  if (columnsOf(text) <= width) return text;
  let columnsLeft = width - 1;
  let shown = "";
  for (const character of text) {
    columnsLeft -= columnsOf(character);
    if (columnsLeft < 0) break;
    shown += character;
  }
  return `${shown}…`;
}

/** Combining marks have no column of their own. */
const COMBINING = /\p{Mn}/gu;
/** Characters that take two terminal columns: East Asian scripts and most emoji. */
const DOUBLE_WIDTH =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/gu;

/** Width of a text without control characters, in terminal columns. */
function columnsOf(text: string): number {
  // oxlint-disable-next-line no-control-regex
  if (/^[\u0000-\u02ff]*$/.test(text)) return text.length;
  const visible = text.replace(COMBINING, "");
  return Array.from(visible).length + (visible.match(DOUBLE_WIDTH)?.length ?? 0);
}

/** Indented JSON; terminal control and invisible characters are escaped. */
export function formatJson(document: object): string {
  return escapeJsonForTerminal(JSON.stringify(document, null, 2));
}

/** The state of a server that starts slowly: `still starting, 45 s`. @param elapsed time since its start, in ms */
export function formatStartingTime(elapsed: number): string {
  return `still starting, ${formatDuration(elapsed)}`;
}
