import process from "node:process";
import picocolors from "picocolors";
import type { Env } from "../manifest/folders.ts";
import { clean } from "./report.ts";

export type Colors = ReturnType<typeof picocolors.createColors>;

/** What is printed on: a terminal's width in characters (Infinity where nothing is to be cut), and its colours. */
export interface Paper {
  readonly isTerminal: boolean;
  readonly width: number;
  readonly colors: Colors;
}

/** Looks at a stream; this costs some ms, so it is for commands with output for people. */
export function findPaper(env: Env, stream: "stdout" | "stderr" = "stdout"): Paper {
  const { isTTY: isTerminal, columns } = process[stream];
  const isColored = isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  return {
    isTerminal,
    width: (isTerminal && columns) || Number.POSITIVE_INFINITY,
    colors: picocolors.createColors(isColored),
  };
}

/** Aligned columns under their titles, a line each; the last column is cut to the paper's width. */
export function alignTable(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  { width, colors }: Paper,
): string {
  const table = [titles, ...rows.map((row) => row.map(clean))];
  const widths = titles.map((_, at) => Math.max(...table.map((row) => row[at]?.length ?? 0)));
  const lines = table.map((row) => {
    const cells = row.map((cell, at) =>
      at < row.length - 1 ? cell.padEnd(widths[at] ?? 0) : cell,
    );
    return cut(cells.join("  ").trimEnd(), width);
  });
  return lines.map((line, i) => (i === 0 ? colors.dim(line) : line)).join("\n");
}

/** The text, or as much of it as fits with a mark that there is more. */
export function cut(text: string, width: number): string {
  const characters = Array.from(text);
  return characters.length <= width ? text : `${characters.slice(0, width - 1).join("")}…`;
}

/** `1 server`, `2 servers`. */
export function count(some: number, noun: string): string {
  return `${some} ${noun}${some === 1 ? "" : "s"}`;
}
