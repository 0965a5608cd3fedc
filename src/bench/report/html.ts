import { createHash } from "node:crypto";
import script from "uplot/dist/uPlot.iife.min.js" with { type: "text" };
import style from "uplot/dist/uPlot.min.css" with { type: "text" };
import licence from "uplot/LICENSE" with { type: "text" };
import type { BenchResult } from "../result.ts";
import { chartTable, type Chart, drawCharts } from "./charts.ts";
import {
  formatBytes,
  formatCount,
  formatMoment,
  formatNines,
  formatRate,
  formatTime,
  type ReportTable,
  tabulateResult,
} from "./tables.ts";
import ownStyle from "./page.css" with { type: "text" };
import { drawPage, type Formats } from "./page.ts";
import { summarize, type SummaryFigure } from "./summary.ts";

const FORMATS: Formats = {
  time: formatTime,
  rate: formatRate,
  count: formatCount,
  bytes: formatBytes,
  moment: formatMoment,
  nines: formatNines,
};

/**
 * A self-contained HTML report: tables, charts, and the result as JSON. Names and errors from servers are
 * escaped text; the CSP allows no script but the report's own.
 * @param more tables that follow those of the result
 */
export function formatHtmlReport(result: BenchResult, more: readonly ReportTable[] = []): string {
  const charts = drawCharts(result);
  const { title, facts, tables } = tabulateResult(result, more);
  const program = `${script}\n(${String(drawPage)})(uPlot, JSON.parse(document.getElementById("charts").textContent), ${formatFunctionsSource()});`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-${hash(program)}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeText(title)} – toolmux bench</title>
<!-- uPlot draws the charts.
${escapeText(licence.trim())}
-->
<style>
${style}
${ownStyle}</style>
</head>
<body>
<header>
<p class="brand">toolmux bench</p>
<h1>${escapeText(title)}</h1>
${facts.map((fact) => `<p class="quiet">${escapeText(fact)}</p>`).join("\n")}
<p class="quiet"><time datetime="${escapeText(result.started)}">${escapeText(formatDate(result.started))}</time> · <a id="save" download="toolmux-bench.json" href="#result">all data as JSON</a></p>
</header>
<dl class="tiles">
${summarize(result).map(formatTile).join("\n")}
</dl>
<div class="charts">
${charts.map(formatChart).join("\n")}
</div>
${tables.map(formatTable).join("\n")}
<footer class="quiet">
<p>In a closed loop each caller makes its next call when it has the last result, so a slow server gets fewer calls. In an open loop calls are due at a constant rate, and the latency of a call counts from the time when it was due: calls that wait behind a slow one count with their wait (no coordinated omission).</p>
</footer>
<script type="application/json" id="result">${escapeJson(result)}</script>
<script type="application/json" id="charts">${escapeJson(charts)}</script>
<script>${program}</script>
</body>
</html>
`;
}

function formatTile({ label, value, note }: SummaryFigure): string {
  return `<div class="tile card"><dt>${escapeText(label)}</dt><dd>${escapeText(value)}</dd><dd class="quiet">${escapeText(note)}</dd></div>`;
}

function formatChart(chart: Chart, at: number): string {
  return `<figure class="card">
<figcaption><h2>${escapeText(chart.title)}</h2><p class="quiet">${escapeText(chart.note)}</p></figcaption>
<div data-chart="${at}" role="img" aria-label="${escapeText(`${chart.title}; the same numbers are in the table below`)}"></div>
<details><summary>As a table</summary>
${formatRows(chartTable(chart, FORMATS))}
</details>
</figure>`;
}

function formatTable(table: ReportTable): string {
  return `<section>
<h2>${escapeText(table.title)}</h2>
${table.notes.map((note) => `<p class="quiet">${escapeText(note)}</p>`).join("\n")}
${formatRows(table)}
</section>`;
}

function formatRows({ columns, rows }: Pick<ReportTable, "columns" | "rows">): string {
  const classes = columns.map(({ kind }) => (kind === "number" ? ' class="number"' : ""));
  const head = columns.map(
    ({ title }, at) => `<th scope="col"${classes[at]}>${escapeText(title)}</th>`,
  );
  const body = rows.map(
    (row) =>
      `<tr>${row.map((cell, at) => `<td${classes[at]}>${escapeText(cell)}</td>`).join("")}</tr>`,
  );
  return `<div class="scroll"><table>
<thead><tr>${head.join("")}</tr></thead>
<tbody>
${body.join("\n")}
</tbody>
</table></div>`;
}

/** The source text of an object with the formatting functions, for the script of the report. */
function formatFunctionsSource(): string {
  const members = Object.entries(FORMATS).map(([unit, format]) => `${unit}: ${String(format)}`);
  return `{${members.join(", ")}}`;
}

function formatDate(iso: string): string {
  return iso.replace("T", " ").replace(/(?:\.\d+)?Z$/, " UTC");
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("base64");
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (it) => ENTITIES[it] ?? "");
}

/** Formats a value as JSON that cannot end the `<script>` element that contains it. */
function escapeJson(value: unknown): string {
  return JSON.stringify(value).replaceAll("<", "\\u003c");
}
