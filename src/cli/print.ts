import process from "node:process";
import picocolors from "picocolors";
import type { Env } from "../manifest/folders.ts";
import { clean } from "./report.ts";

export type Colors = ReturnType<typeof picocolors.createColors>;

/** What stdout is: a terminal's width in characters (Infinity where nothing is to be cut), and its colours. */
export interface Paper {
  readonly width: number;
  readonly colors: Colors;
}

/** Looks at stdout; this costs some ms, so it is for commands with output for people. */
export function findPaper(env: Env): Paper {
  const isTerminal = process.stdout.isTTY;
  const isColored = isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  return {
    width: (isTerminal && process.stdout.columns) || Number.POSITIVE_INFINITY,
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

function cut(text: string, width: number): string {
  const characters = Array.from(text);
  return characters.length <= width ? text : `${characters.slice(0, width - 1).join("")}…`;
}
