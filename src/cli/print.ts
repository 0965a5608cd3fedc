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

/** Prints aligned columns under their titles; the last column is cut to the paper's width. */
export function printTable(
  titles: readonly string[],
  rows: readonly string[][],
  paper: Paper,
): void {
  const table = [titles, ...rows.map((row) => row.map(clean))];
  const widths = titles.map((_, at) => Math.max(...table.map((row) => row[at]?.length ?? 0)));
  for (const [i, row] of table.entries()) {
    const line = row.map((cell, at) =>
      at === row.length - 1 ? cell : cell.padEnd(widths[at] ?? 0),
    );
    const text = cut(line.join("  ").trimEnd(), paper.width);
    console.log(i === 0 ? paper.colors.dim(text) : text);
  }
}

function cut(text: string, width: number): string {
  const characters = Array.from(text);
  return characters.length <= width ? text : `${characters.slice(0, width - 1).join("")}…`;
}
