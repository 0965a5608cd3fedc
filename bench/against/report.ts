import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { answerSize } from "../answer.ts";
import { align, formatNumber, formatTable } from "../report.ts";
import { type Figures, SCENARIOS } from "./measure.ts";

/**
 * `PAGE`: the page with the tables. `CHART`: the chart that the page shows. Both are paths from the root of the
 * repository.
 */
export const PAGE = "docs/benchmarks.md";
export const CHART = "docs/peers.svg";
const COMMAND = "npm run bench:peers -- --write";
const MARKS = ["<!-- peers: begin -->", "<!-- peers: end -->"] as const;

export type ScenarioName = (typeof SCENARIOS)[number]["name"];

/** The results of one program over one transport. */
export interface Result {
  /** The program's name and version. */
  readonly name: string;
  /** Medians over the rounds; a scenario that failed is missing. */
  readonly figures: Partial<Record<ScenarioName, Figures>>;
  /** toolmux's calls per second divided by this program's, with 64 calls in flight; NaN if unknown. */
  readonly toolmuxRate: number;
  /** The reason why scenarios are missing; undefined if none is missing. */
  readonly fault: string | undefined;
}

/** The results for each transport. */
export type Results = ReadonlyMap<string, readonly Result[]>;

/** Formats the results over one transport for a terminal, with the reasons for missing results. */
export function formatResults(transport: string, results: readonly Result[]): string {
  const faults = faultsOf(results).map((fault) => `  NOT MEASURED: ${fault}`);
  return [`over ${transport}`, formatTable([TITLES, ...results.map(rowOf)]), ...faults].join("\n");
}

/** Writes the tables and the comparison with compiled programs into PAGE, and the chart into CHART. */
export function publish(machine: string, results: Results, verdict: string): void {
  writeFileSync(fromRoot(CHART), drawChart(results));
  const page = fromRoot(PAGE);
  const tables = [...results].flatMap(([transport, all]) => {
    const faults = faultsOf(all).map((fault) => `- Not measured: ${fault}`);
    const table = formatMarkdown([TITLES, ...all.map(rowOf)]);
    return [`Over ${transport}:`, table, ...(faults.length > 0 ? [faults.join("\n")] : [])];
  });
  const made = `Made by \`${COMMAND}\` on ${machine.replaceAll("\n", "; ")}.`;
  const image = `![Calls per second with 64 in flight](${basename(CHART)})`;
  const compared = `\`\`\`\n${verdict}\n\`\`\``;
  const content = [image, ...tables, compared, made].join("\n\n");
  writeFileSync(page, replaceMarked(readFileSync(page, "utf8"), content));
}

function fromRoot(path: string): string {
  return fileURLToPath(new URL(`../../${path}`, import.meta.url));
}

/** Replaces the content between the marks in a text. @throws {Error} if a mark is missing */
export function replaceMarked(text: string, content: string): string {
  const [from, to] = MARKS.map((mark) => text.indexOf(mark));
  if (from === undefined || to === undefined || from < 0 || to < from) {
    throw new Error(`there is no ${MARKS.join(" … ")}`);
  }
  return `${text.slice(0, from + MARKS[0].length)}\n\n${content}\n\n${text.slice(to)}`;
}

const COLUMNS: readonly (readonly [title: string, cell: (result: Result) => string])[] = [
  ["", ({ name }) => name],
  ["1 in flight, p50", ({ figures }) => withUnit(figures.one?.p50, "µs")],
  ["64 in flight", ({ figures }) => withUnit(figures.many?.rate, "/s")],
  ["CPU of a call", ({ figures }) => withUnit(figures.many?.cpu, "µs")],
  [`${sizeOf("medium")}, 16 in flight`, ({ figures }) => withUnit(figures.medium?.rate, "/s")],
  [`${sizeOf("large")}, 4 in flight`, ({ figures }) => withUnit(figures.large?.rate, "/s")],
  ["memory", ({ figures }) => withUnit(memoryOf(figures), "MB")],
  ["toolmux's rate", ({ toolmuxRate }) => withUnit(toolmuxRate, "×")],
];
const TITLES = COLUMNS.map(([title]) => title);

function rowOf(result: Result): readonly string[] {
  const isSkipped = Object.keys(result.figures).length === 0;
  return COLUMNS.map(([, cell], at) => (isSkipped && at === 1 ? "skipped" : cell(result)));
}

function faultsOf(results: readonly Result[]): readonly string[] {
  return results.flatMap(({ name, fault }) => (fault === undefined ? [] : `${name}: ${fault}`));
}

/** Memory of all processes of a program, in MB: the maximum over all scenarios; undefined if unknown. */
function memoryOf(figures: Result["figures"]): number | undefined {
  const sizes = Object.values(figures).flatMap(({ rss }) => rss ?? []);
  return sizes.length > 0 ? Math.max(...sizes) / 1e6 : undefined;
}

function sizeOf(name: ScenarioName): string {
  const bytes = answerSize(SCENARIOS.find((scenario) => scenario.name === name)?.lines ?? 0);
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${Math.round(bytes / 1e6)} MB`;
}

function withUnit(value: number | null | undefined, unit: string): string {
  const text = formatNumber(value);
  return text === "–" ? text : `${text} ${unit}`;
}

/** Formats a Markdown table. The first column is left-aligned, all others are right-aligned. */
function formatMarkdown(rows: readonly (readonly string[])[]): string {
  const [head = [], ...rest] = align(rows);
  const rule = head.map(({ length }, at) => "-".repeat(length - 1) + (at === 0 ? "-" : ":"));
  return [head, rule, ...rest].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

/** Sizes of the chart, in pixels. `VALUE` is the room for the number after the longest bar. */
const [WIDTH, BAR, HEAD, LEFT, VALUE] = [820, 30, 64, 230, 90];
/** Colors that are readable on white and on black: for text, for the bars of toolmux, and for the other bars. */
const [INK, OWN_COLOR, COLOR] = ["#7a828c", "#2f9e6e", "#8f99a8"];

/**
 * Draws a bar chart of the rates with 64 calls in flight, on a logarithmic scale: one group for each transport, the
 * fastest program first.
 * @returns an SVG file
 */
function drawChart(results: Results): string {
  let y = 0;
  const parts: string[] = [];
  for (const [transport, all] of results) {
    const bars = all
      .map(({ name, figures }) => ({ name, rate: figures.many?.rate ?? 0 }))
      .filter(({ rate }) => rate > 0)
      .sort((a, b) => b.rate - a.rate);
    const title = `Small calls per second over ${transport}, 64 in flight (logarithmic)`;
    parts.push(drawText(8, y + 32, title, ' font-size="15" font-weight="bold"'));
    y += HEAD;
    const rates = bars.map(({ rate }) => rate);
    const least = 10 ** Math.floor(Math.log10(Math.min(...rates) * 0.8));
    const scale = (WIDTH - LEFT - VALUE) / Math.log10(Math.max(...rates) / least);
    for (const { name, rate } of bars) {
      const [width, middle] = [Math.round(Math.log10(rate / least) * scale), y + BAR / 2 + 4];
      const color = name.startsWith("toolmux") ? OWN_COLOR : COLOR;
      parts.push(
        drawText(LEFT - 8, middle, name, ' text-anchor="end"'),
        `<rect x="${LEFT}" y="${y + 5}" width="${width}" height="${BAR - 10}" fill="${color}"/>`,
        drawText(LEFT + width + 6, middle, Math.round(rate).toLocaleString("en-US")),
      );
      y += BAR;
    }
  }
  const height = y + 16;
  const font = `font-family="sans-serif" font-size="13" fill="${INK}"`;
  const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" ${font}>`;
  return `${[head, ...parts].join("\n")}\n</svg>\n`;
}

function drawText(x: number, y: number, content: string, more = ""): string {
  return `<text x="${x}" y="${y}"${more}>${content.replaceAll("&", "&amp;").replaceAll("<", "&lt;")}</text>`;
}
