import { createRequire } from "node:module";
import { arch, cpus, loadavg, release, totalmem, type } from "node:os";
import process from "node:process";

/** Figures by row and column. The name of the column says the unit. NaN, or no entry: unknown. */
export type Table = Readonly<Record<string, Readonly<Record<string, number>>>>;

export function formatFigures(table: Table): string {
  const columns = [...new Set(Object.values(table).flatMap((row) => Object.keys(row)))];
  const rows = Object.entries(table).map(([name, row]) => [
    name,
    ...columns.map((column) => formatNumber(row[column])),
  ]);
  return formatTable([["", ...columns], ...rows]);
}

/** Formats a table with aligned columns. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  return align(rows)
    .map((row) => `  ${row.join("  ")}`.trimEnd())
    .join("\n");
}

/** Pads all cells of a column to the same width: the first column on the right, all others on the left. */
export function align(rows: readonly (readonly string[])[]): readonly (readonly string[])[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length);
  }
  const pad = (cell: string, at: number) =>
    at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0);
  return rows.map((row) => row.map(pad));
}

/**
 * Formats a number with three significant digits; from 1,000 on as a whole number with thousands separators. An
 * unknown value becomes a dash.
 */
export function formatNumber(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value >= 1000) return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
  return String(Number(value.toPrecision(3)));
}

/** The properties of the machine on which the figures depend, in two lines. They do not identify the machine. */
export function describeMachine(): string {
  const [first] = cpus();
  const memory = formatNumber(totalmem() / 1e9);
  const sdk = versionOf("@modelcontextprotocol/server");
  return [
    `${cpus().length} × ${first?.model ?? "unknown"}, ${memory} GB, ${type()} ${release()} ${arch()}`,
    `bun ${process.versions["bun"]}, MCP SDK ${sdk}; load average ${formatNumber(loadavg()[0])}`,
  ].join("\n");
}

/** The version of a package in node_modules. */
export function versionOf(name: string): string {
  const require = createRequire(import.meta.url);
  return (require(`../node_modules/${name}/package.json`) as { version: string }).version;
}
