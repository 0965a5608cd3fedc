import { alignTable, type TerminalStyle } from "../../terminal/terminal.ts";
import { sanitizeLine } from "../../terminal/report.ts";
import type { ReportTables, ReportTable } from "./tables.ts";

/** What a measurement found, for a terminal. */
export function formatReportText(
  { title, facts, tables }: ReportTables,
  paper: TerminalStyle,
): string {
  const { bold, dim } = paper.colors;
  const head = [bold(sanitizeLine(title)), ...facts.map((fact) => dim(sanitizeLine(fact)))].join(
    "\n",
  );
  return [head, ...tables.map((table) => formatTable(table, paper))].join("\n\n");
}

function formatTable({ title, notes, columns, rows }: ReportTable, paper: TerminalStyle): string {
  const { bold, dim } = paper.colors;
  const cells = rows.map((row) => row.map(sanitizeLine));
  // Numbers stand under each other by their ends, as do their titles.
  const widths = columns.map((column, at) =>
    column.kind === "text"
      ? 0
      : Math.max(column.title.length, ...cells.map((row) => row[at]?.length ?? 0)),
  );
  const align = (row: readonly string[]): string[] =>
    row.map((cell, at) => cell.padStart(widths[at] ?? 0));
  const titles = align(columns.map((column) => column.title.toUpperCase()));
  return [
    bold(sanitizeLine(title)),
    ...notes.map((note) => dim(sanitizeLine(note))),
    alignTable(titles, cells.map(align), paper),
  ].join("\n");
}
