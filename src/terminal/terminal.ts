import { formatDuration } from "../base/format.ts";
import process from "node:process";
import picocolors from "picocolors";
import type { Env } from "../base/paths.ts";
import { escapeJsonForTerminal, sanitizeLine } from "./log.ts";

export type Colors = ReturnType<typeof picocolors.createColors>;

/** Width in characters (Infinity: unlimited) and colors of the output. */
export interface TerminalStyle {
  readonly isTerminal: boolean;
  readonly width: number;
  readonly colors: Colors;
}

/** Inspects a stream. Takes a few ms, so it is only for output for people. */
export function terminalStyleOf(env: Env, stream: "stdout" | "stderr" = "stdout"): TerminalStyle {
  const { isTTY: isTerminal, columns } = process[stream];
  const isColored = isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  return {
    isTerminal,
    width: (isTerminal && columns) || Number.POSITIVE_INFINITY,
    colors: picocolors.createColors(isColored),
  };
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

/** One terminal line that is overwritten, and cleared at the end. */
export interface StatusLine {
  show(text: string): void;
  clear(): void;
}

const ERASE = "\r\u001b[K";

/** The status line on stderr; undefined if stderr is not a suitable terminal. */
export function openStatusLine(env: Env): StatusLine | undefined {
  const { stderr } = process;
  if (!stderr.isTTY || env["TERM"] === "dumb") return undefined;
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
