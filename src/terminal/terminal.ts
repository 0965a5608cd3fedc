import type { Clock } from "../base/clock.ts";
import { outputFailedError } from "../base/errors.ts";
import { formatDuration } from "../base/format.ts";
import type { Env } from "../base/paths.ts";
import { writeStdout } from "../base/runtime.ts";
import { columnsOf, truncate, wrapText } from "./columns.ts";
import { escapeJsonForTerminal, prefixLine, sanitizeLine } from "./log.ts";
import { MESSAGE_PREFIX, printLine, printToStderr, terminalOf, visibleText } from "./stderr.ts";
import { markCode } from "./visible.ts";

export { truncate, wrapText } from "./columns.ts";

/**
 * The codes that begin and end a color or style (SGR in ECMA-48). They are written out here, because loading a package
 * for them, or node:util, would make each start of the program several ms longer.
 */
const SGR_CODES = {
  reset: [0, 0],
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
} as const;

/** Functions that color a text for a terminal, or return it as it is. A colored text may not contain another one. */
export type Colors = Readonly<Record<keyof typeof SGR_CODES, (text: string) => string>>;

/** @param isColored whether the functions color a text */
export function makeColors(isColored: boolean): Colors {
  const entries = Object.entries(SGR_CODES).map(([name, [begin, end]]) => [
    name,
    (text: string) => (isColored ? `${markCode(begin)}${text}${markCode(end)}` : text),
  ]);
  return Object.fromEntries(entries) as Colors;
}

/** Width in columns (Infinity: unlimited) and colors of one output stream. */
export interface TerminalStyle {
  readonly isTerminal: boolean;
  readonly width: number;
  readonly colors: Colors;
}

/** The style of text that is not for a terminal, in 80 columns. */
export const PLAIN_STYLE: TerminalStyle = {
  isTerminal: false,
  width: 80,
  colors: makeColors(false),
};

/** One terminal line that is overwritten, and cleared at the end. */
export interface StatusLine {
  show(text: string): void;
  clear(): void;
}

/** Interval at which a status line with an elapsed time is drawn again, in ms. */
const REDRAW_INTERVAL = 100;

/**
 * Shows what the program waits for, and for how long, in a status line: `searching official, 2.3 s`.
 * @returns a function that clears the line and stops its updates; it must be called before any other output
 */
export function showWaiting(line: StatusLine, text: string, clock: Clock): () => void {
  const started = clock.now();
  let cancelTimer = (): void => {};
  const draw = (): void => {
    line.show(`${text}, ${formatDuration(clock.now() - started)}`);
    cancelTimer = clock.after(REDRAW_INTERVAL, draw);
  };
  draw();
  return () => {
    cancelTimer();
    line.clear();
  };
}

const ERASE = "\r\u001b[K";
const CLEAR = "\u001b[H\u001b[2J";

/**
 * The output of a command: results on stdout, messages for people and the status line on stderr. What it prints does
 * not go through `console`, so `redirectConsole` does not affect it.
 */
export class Terminal {
  readonly #env: Env;
  readonly #onFailure: (error: unknown) => never;
  readonly #styles = new Map<"stdout" | "stderr", TerminalStyle>();
  #hasPrinted = false;
  #isAsking = false;
  /** Texts that are kept in place of being written; undefined: they are written. */
  #gathered: string[] | undefined;

  /** @param onFailure called if stdout cannot be written; it must not return. By default it throws. */
  constructor(env: Env, onFailure: (error: unknown) => never = throwFailure) {
    this.#env = env;
    this.#onFailure = onFailure;
  }

  /** Whether anything was printed to stdout. */
  get hasPrinted(): boolean {
    return this.#hasPrinted;
  }

  get stdout(): TerminalStyle {
    return this.#styleOf("stdout");
  }

  get stderr(): TerminalStyle {
    return this.#styleOf("stderr");
  }

  /** Prints text and a line break to stdout. */
  print(text = ""): void {
    this.write(`${text}\n`);
  }

  /** Clears the screen, if stdout is a terminal, and prints text and a line break. */
  printOnClearScreen(text: string): void {
    this.write(`${text}\n`, this.stdout.isTerminal ? CLEAR : "");
  }

  /**
   * Writes text to stdout, without a line break. It is written when the function returns. On a terminal, everything that
   * is not plain text is made visible, as by `printLine`.
   * @param control a sequence of the program's own, which comes before the text and is written as it is
   */
  write(text: string, control = ""): void {
    if (this.#gathered !== undefined) {
      this.#gathered.push(text);
      return;
    }
    this.#hasPrinted = true;
    try {
      writeStdout(control + visibleText("stdout", text));
    } catch (error) {
      this.#onFailure(error);
    }
  }

  /** Runs `work`, and returns what it prints to stdout in place of writing it. */
  async gather(work: () => Promise<unknown>): Promise<string> {
    const gathered: string[] = [];
    this.#gathered = gathered;
    try {
      await work();
    } finally {
      this.#gathered = undefined;
    }
    return gathered.join("").trimEnd();
  }

  /** Prints a table to stdout, truncated to the width of stdout; prints nothing if the table has no rows. */
  printTable(titles: readonly string[], rows: readonly (readonly Cell[])[]): void {
    if (rows.length > 0) this.print(alignTable(titles, rows, this.stdout));
  }

  /** Prints indented JSON to stdout; terminal control and invisible characters are escaped. */
  printJson(document: object): void {
    this.print(formatJson(document));
  }

  /**
   * Prints JSON text that others wrote. On a terminal, what is no plain text is escaped; elsewhere it is data, and stays
   * as it is.
   */
  printJsonText(json: string): void {
    this.print(this.stdout.isTerminal ? escapeJsonForTerminal(json.replaceAll("\r", " ")) : json);
  }

  /** Prints text and a line break to stderr. */
  printStderr(text: string): void {
    printLine(text);
  }

  /** Prints text of several lines to stderr; on a terminal each line is wrapped at words and keeps its indent. */
  printStderrWrapped(text: string): void {
    const { width } = this.stderr;
    const wrapped = text.split("\n").map((line) => {
      const indent = /^ */.exec(line)?.[0] ?? "";
      const hanging = line.startsWith(MESSAGE_PREFIX) ? " ".repeat(MESSAGE_PREFIX.length) : "  ";
      return wrapText(line.trimStart(), width, indent + hanging, indent);
    });
    printLine(wrapped.join("\n"));
  }

  /** Prints a message for people to stderr, with the program's name before it; on a terminal it is wrapped at words. */
  note(text: string): void {
    printToStderr(prefixLine(text));
  }

  /** Opens the status line on stderr; undefined if stderr is not a suitable terminal. */
  openStatusLine(): StatusLine | undefined {
    const stderr = terminalOf("stderr");
    if (stderr === undefined || this.#env["TERM"] === "dumb") return undefined;
    let shown = false;
    return {
      show: (text) => {
        if (this.#isAsking) return;
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

  /** Draws no status line while `ask` runs: it would erase the open question. */
  async withoutStatus<T>(ask: () => Promise<T>): Promise<T> {
    this.#isAsking = true;
    try {
      return await ask();
    } finally {
      this.#isAsking = false;
    }
  }

  /** The style of a stream; it is determined once and then cached. */
  #styleOf(stream: "stdout" | "stderr"): TerminalStyle {
    const known = this.#styles.get(stream);
    if (known !== undefined) return known;
    const terminal = terminalOf(stream);
    const columns = terminal?.columns ?? 0;
    const isColored = !this.#env["NO_COLOR"] && this.#env["TERM"] !== "dumb";
    const style = {
      isTerminal: terminal !== undefined,
      width: columns > 0 ? columns : Number.POSITIVE_INFINITY,
      colors: makeColors(terminal !== undefined && isColored),
    };
    this.#styles.set(stream, style);
    return style;
  }
}

function throwFailure(error: unknown): never {
  throw outputFailedError(error);
}

/** A cell of a table: its text, and how it is colored. */
export type Cell = string | { readonly text: string; readonly color: (text: string) => string };

/** Aligned columns with titles; the last column is truncated to the width. */
export function alignTable(
  titles: readonly string[],
  rows: readonly (readonly Cell[])[],
  { width, colors }: TerminalStyle,
): string {
  const texts = rows.map((row) => row.map((cell) => sanitizeLine(textOfCell(cell))));
  const widths = titles.map((title, at) =>
    Math.max(columnsOf(title), ...texts.map((row) => columnsOf(row[at] ?? ""))),
  );
  const formatRow = (row: readonly Cell[], line: readonly string[]): string => {
    const padded = line.map((text, at) =>
      at === line.length - 1 ? text : text + " ".repeat((widths[at] ?? 0) - columnsOf(text) + 2),
    );
    let columnsLeft = width;
    let shown = "";
    for (const [at, text] of padded.entries()) {
      const rest = padded.slice(at).join("").trimEnd();
      const isCut = columnsOf(rest) > columnsLeft && columnsOf(text) >= columnsLeft;
      const cell = row[at];
      const color = typeof cell === "object" ? cell.color : String;
      // The padding between columns is left uncolored, so that `trimEnd` can remove it at the end of the line.
      const content = isCut ? truncate(rest, columnsLeft) : text.trimEnd();
      shown += color(content) + (isCut ? "" : text.slice(content.length));
      if (isCut) break;
      columnsLeft -= columnsOf(text);
    }
    return shown.trimEnd();
  };
  const lines = rows.map((row, at) => formatRow(row, texts[at] ?? []));
  return [colors.dim(formatRow(titles, titles)), ...lines].join("\n");
}

function textOfCell(cell: Cell): string {
  return typeof cell === "string" ? cell : cell.text;
}

/** Indented JSON; terminal control and invisible characters are escaped. */
export function formatJson(document: object): string {
  return escapeJsonForTerminal(JSON.stringify(document, null, 2));
}

/** The state of a server that starts slowly: `still starting, 45 s`. @param elapsed time since its start, in ms */
export function formatStartingTime(elapsed: number): string {
  return `still starting, ${formatDuration(elapsed)}`;
}
