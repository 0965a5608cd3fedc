import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { answerSize } from "../answer.ts";
import type { Track } from "./entrants.ts";
import type { Machine } from "../machine.ts";
import { type LapName, LAPS, type Standing } from "./race.ts";
import { formatMachine, formatNumber, formatTable } from "../report.ts";

/** The page that has the tables, and the chart beside it: paths from the root of the repository. */
export const PAGE = "docs/benchmarks.md";
export const CHART = "docs/peers.svg";
const COMMAND = "npm run bench:peers -- --write";
const MARKS = ["<!-- peers: begin -->", "<!-- peers: end -->"] as const;

/** The figures of one track for a terminal, and what is missing. */
export function formatStandings(track: Track, standings: readonly Standing[]): string {
  const faults = faultsOf(standings).map((fault) => `  NOT MEASURED: ${fault}`);
  return [`over ${track}`, formatTable([headOf(), ...rowsOf(standings)]), ...faults].join("\n");
}

/** Writes the tables into PAGE, and the chart. */
export function publish(
  machine: Machine,
  standings: ReadonlyMap<Track, readonly Standing[]>,
  chart: string,
): void {
  writeFileSync(fromRoot(CHART), chart);
  const page = fromRoot(PAGE);
  writeFileSync(page, replaceMarked(readFileSync(page, "utf8"), describe(machine, standings)));
}

function fromRoot(path: string): string {
  return fileURLToPath(new URL(`../../${path}`, import.meta.url));
}

/** A text with another one between the marks. @throws if they are not there. */
export function replaceMarked(text: string, content: string): string {
  const [from, to] = MARKS.map((mark) => text.indexOf(mark));
  if (from === undefined || to === undefined || from < 0 || to < from) {
    throw new Error(`there is no ${MARKS.join(" … ")}`);
  }
  return `${text.slice(0, from + MARKS[0].length)}\n\n${content}\n\n${text.slice(to)}`;
}

/** The text between the marks of PAGE. */
function describe(machine: Machine, standings: ReadonlyMap<Track, readonly Standing[]>): string {
  const tables = [...standings].flatMap(([track, ofTrack]) => {
    const faults = faultsOf(ofTrack).map((fault) => `- Not measured: ${fault}`);
    const table = formatMarkdown([headOf(), ...rowsOf(ofTrack)]);
    return [`Over ${track}:`, table, ...(faults.length > 0 ? [faults.join("\n")] : [])];
  });
  const where = formatMachine(machine).replaceAll("\n", "; ");
  const made = `Made by \`${COMMAND}\` on ${where}.`;
  return [`![Calls per second with 64 in flight](${basename(CHART)})`, ...tables, made].join(
    "\n\n",
  );
}

const COLUMNS: readonly { readonly title: string; readonly of: (standing: Standing) => string }[] =
  [
    { title: "1 in flight, p50", of: (one) => unit(one.laps.one?.p50, "µs") },
    { title: "64 in flight", of: (one) => unit(one.laps.many?.rate, "/s") },
    { title: "CPU of a call", of: (one) => unit(one.laps.many?.cpu, "µs") },
    { title: `${sizeOf("medium")}, 16 in flight`, of: (one) => unit(one.laps.medium?.rate, "/s") },
    { title: `${sizeOf("large")}, 4 in flight`, of: (one) => unit(one.laps.large?.rate, "/s") },
    { title: "memory", of: (one) => unit(memoryOf(one), "MB") },
    { title: "toolmux's rate", of: (one) => unit(one.laps.many?.toolmuxRate, "×") },
  ];

function headOf(): string[] {
  return ["", ...COLUMNS.map(({ title }) => title)];
}

function rowsOf(standings: readonly Standing[]): string[][] {
  return standings.map((one) => {
    const name = `${one.name} ${one.version}`.trim();
    const isOut = Object.keys(one.laps).length === 0;
    return [name, ...COLUMNS.map(({ of }, at) => (isOut && at === 0 ? "skipped" : of(one)))];
  });
}

/** What each has failed at, and why. */
function faultsOf(standings: readonly Standing[]): string[] {
  return standings.flatMap(({ name, version, fault }) =>
    fault === undefined ? [] : `${`${name} ${version}`.trim()}: ${fault}`,
  );
}

/** MB that all of its processes held, after the lap that took most. */
function memoryOf({ laps }: Standing): number | undefined {
  const held = Object.values(laps).flatMap(({ rss }) => rss ?? []);
  return held.length > 0 ? Math.max(...held) / 1e6 : undefined;
}

function sizeOf(name: LapName): string {
  const bytes = answerSize(LAPS.find((lap) => lap.name === name)?.lines ?? 0);
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${Math.round(bytes / 1e6)} MB`;
}

function unit(value: number | null | undefined, name: string): string {
  const text = formatNumber(value);
  return text === "–" ? text : `${text} ${name}`;
}

/** A table as the formatter leaves it: the first column to the left, all others to the right. */
function formatMarkdown(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 3, cell.length);
  }
  const line = (row: readonly string[]): string => {
    const cells = row.map((cell, at) => {
      const width = widths[at] ?? 0;
      return at === 0 ? cell.padEnd(width) : cell.padStart(width);
    });
    return `| ${cells.join(" | ")} |`;
  };
  const rule = widths.map((width, at) =>
    at === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`,
  );
  const [head = [], ...rest] = rows;
  return [line(head), line(rule), ...rest.map(line)].join("\n");
}
