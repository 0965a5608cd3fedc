import { count } from "../../base/format.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { alignTable, type TerminalStyle, wrapText } from "../../terminal/terminal.ts";
import type {
  BenchResult,
  LevelResult,
  LoadSettingsResult,
  OverheadResult,
  SubjectResult,
} from "../result.ts";

/*
 * Formatting of quantities. The functions are embedded in the HTML report as source text, so none may use anything
 * outside its own body.
 */

/** A time in µs with three significant digits: `9.40 µs`, `123 µs`, `1.23 ms`, `45.6 s`. */
export function formatTime(us: number): string {
  if (us < 999.5) return `${us === 0 ? "0" : us < 0.01 ? "0.01" : us.toPrecision(3)} µs`;
  if (us < 999_500) return `${(us / 1e3).toPrecision(3)} ms`;
  return `${us < 999.5e6 ? (us / 1e6).toPrecision(3) : Math.round(us / 1e6)} s`;
}

/** Calls per second: `0.500/s`, `41.2/s`, `41,234/s`. */
export function formatRate(perSecond: number): string {
  if (perSecond < 99.95) return `${perSecond === 0 ? "0" : perSecond.toPrecision(3)}/s`;
  return `${String(Math.round(perSecond)).replace(/\B(?=(?:\d{3})+$)/g, ",")}/s`;
}

/** Formats a number with thousands separators: `41,234`. */
export function formatCount(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(?:\d{3})+$)/g, ",");
}

/** Bytes with three significant digits: `640 B`, `12.3 KB`, `123 MB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 999.5) return `${Math.round(bytes)} B`;
  if (bytes < 999_500) return `${(bytes / 1e3).toPrecision(3)} KB`;
  return bytes < 999.5e6
    ? `${(bytes / 1e6).toPrecision(3)} MB`
    : `${(bytes / 1e9).toPrecision(3)} GB`;
}

/** Time since the start of a level, in s: `2.5 s`. */
export function formatMoment(seconds: number): string {
  return `${Number(seconds.toFixed(2))} s`;
}

/** A number of nines as a percentile: 0 is 0 %, 1 is 90 %, 2 is 99 %. */
export function formatNines(nines: number): string {
  const percentile = 100 * (1 - 10 ** -nines);
  return `${Number(percentile.toFixed(Math.max(0, Math.ceil(nines) - 1)))}%`;
}

/**
 * A result as texts and tables, for the terminal and for the HTML report. The reports of `toolmux bench` start here:
 * `tabulateResult` makes tables, `charts.ts` makes charts, `formatReportText` prints, `html.ts` writes HTML.
 */
export interface ReportTables {
  readonly title: string;
  /** Lines about the load and the machine. */
  readonly facts: readonly string[];
  readonly tables: readonly ReportTable[];
}

export interface ReportTable {
  readonly title: string;
  readonly notes: readonly string[];
  readonly columns: readonly TableColumn[];
  readonly rows: readonly (readonly string[])[];
}

export interface TableColumn {
  readonly title: string;
  readonly kind: "number" | "text";
}

const NO_VALUE = "–";

/** The label of a difference between hub and server that is noise (see `bench/noise.ts`). */
export const WITHIN_NOISE = "within noise";

/**
 * Converts a result to texts and tables. Each level (number of calls in flight) has its own figures; there are no sums
 * over levels.
 * @param more tables that follow those of the result
 */
export function tabulateResult(
  result: BenchResult,
  more: readonly ReportTable[] = [],
): ReportTables {
  const { load, machine, subjects, overhead = [] } = result;
  const { cores, cpu, memory, system, program } = machine;
  return {
    title: describeSubjects(subjects),
    facts: [
      describeLoad(load),
      `${program} on ${system}, ${cpu} (${count(cores, "core")}), ${formatBytes(memory)} of memory`,
    ],
    tables: [
      ...subjects.flatMap((subject) => {
        const route = subject.kind === "hub" ? "through the hub" : "direct";
        const suffix = subjects.length > 1 ? `, ${route}` : "";
        return describeSubject(subject, load).map((it) => ({ ...it, title: it.title + suffix }));
      }),
      ...(overhead.length > 0 ? [describeOverhead(overhead, subjects)] : []),
      ...describeErrors(subjects),
      ...more,
    ].filter(({ rows }) => rows.length > 0),
  };
}

/** The title of the report, such as `node server.js, with and without the hub`. */
function describeSubjects(subjects: readonly SubjectResult[]): string {
  const named = subjects.findLast(({ kind }) => kind === "server") ?? subjects[0];
  return `${named?.name ?? NO_VALUE}${subjects.length > 1 ? ", with and without the hub" : ""}`;
}

/** Describes the load: `tool echo with {}; closed loop; 10.0 s per level; server killed every 5.00 s`. */
function describeLoad({ tools, loop, extent, chaos }: LoadSettingsResult): string {
  const total = tools.reduce((sum, { weight }) => sum + weight, 0);
  const parts = tools.map(({ name, weight, arguments: args }) => {
    const share = tools.length > 1 ? `${formatPercentage(weight / total)} ` : "";
    return `${share}tool ${name} with ${args}`;
  });
  parts.push(
    loop.kind === "closed" ? "closed loop" : `open loop, calls due at ${formatRate(loop.rate)}`,
  );
  parts.push(
    "calls" in extent
      ? `${formatCount(extent.calls)} calls per level`
      : `${formatTime(extent.duration * 1000)} per level`,
  );
  const { killEvery, delay, cancelRate } = chaos;
  if (killEvery !== null) parts.push(`server killed every ${formatTime(killEvery * 1000)}`);
  if (delay !== null) parts.push(`answers delayed by ${formatTime(delay * 1000)}`);
  if (cancelRate > 0) parts.push(`${formatPercentage(cancelRate)} of the calls cancelled`);
  return parts.join("; ");
}

function describeSubject(subject: SubjectResult, load: LoadSettingsResult): ReportTable[] {
  const { levels, ready, tools } = subject;
  const startNote = `Ready in ${formatTime(ready.handshake * 1000)}, ${count(tools, "tool")} listed in ${formatTime(ready.listed * 1000)}.`;
  const isOpen = load.loop.kind === "open";
  const main: ReportTable = {
    title: "Calls",
    notes: isOpen
      ? [startNote, "Latency counts from the time when a call was due, so it includes waiting."]
      : [startNote],
    columns: numberColumns(
      "in flight",
      "rate",
      "p50",
      "p90",
      "p99",
      "p99.9",
      "max",
      "calls",
      "errors",
    ),
    rows: levels.map((level) => [
      String(level.concurrency),
      formatRate(level.rate),
      ...latencyCells(level),
      formatCount(level.calls),
      formatCount(countErrors(level)),
    ]),
  };
  const serviced = levels.flatMap(({ concurrency, service }) =>
    service ? [{ concurrency, latency: service }] : [],
  );
  const service: ReportTable = {
    title: "Service time",
    notes: ["Latency from the time when a call was sent, without the wait before it."],
    columns: numberColumns("in flight", "p50", "p90", "p99", "p99.9", "max"),
    rows: serviced.map((level) => [String(level.concurrency), ...latencyCells(level)]),
  };
  const costs = [describeCosts(subject), describeCancels(subject), describeKills(subject)];
  return [main, service, describeTools(subject), ...costs];
}

/** The calls of each tool, if several are called. */
function describeTools({ levels }: SubjectResult): ReportTable {
  return {
    title: "Calls per tool",
    notes: [],
    columns: [
      ...numberColumns("in flight"),
      { title: "tool", kind: "text" },
      ...numberColumns("part", "p50", "p90", "p99", "calls", "errors"),
    ],
    rows: levels.flatMap(({ concurrency, tools = [] }) => {
      const sum = tools.reduce((all, { calls, errors }) => all + calls + errors, 0);
      return tools.map(({ name, calls, errors, ...latency }) => [
        String(concurrency),
        name,
        sum > 0 ? formatPercentage((calls + errors) / sum) : NO_VALUE,
        ...[latency.p50, latency.p90, latency.p99].map((us) =>
          calls > 0 ? formatTime(us) : NO_VALUE,
        ),
        formatCount(calls),
        formatCount(errors),
      ]);
    }),
  };
}

function latencyCells({ latency }: Pick<LevelResult, "latency">): string[] {
  const { count: total, p50, p90, p99, p999, max } = latency;
  return [p50, p90, p99, p999, max].map((us) => (total > 0 ? formatTime(us) : NO_VALUE));
}

/**
 * Minimum duration of a level whose CPU figures are shown, in s. Operating systems count CPU time in steps of 10 ms,
 * so the CPU figures of a shorter level would be inexact.
 */
const MIN_CPU_DURATION = 0.2;
const hasCpuFigures = (seconds: number): boolean => seconds >= MIN_CPU_DURATION;

function describeCosts({ levels }: SubjectResult): ReportTable {
  return {
    title: "CPU and memory",
    notes: [],
    columns: [
      ...numberColumns("in flight"),
      { title: "of", kind: "text" },
      ...numberColumns("processes", "CPU per call", "CPU", "memory", "peak"),
    ],
    rows: levels.flatMap(({ concurrency, seconds, calls, hub, server }) =>
      [
        { of: "hub", cost: hub },
        { of: "server", cost: server },
      ].flatMap(({ of, cost }) =>
        cost === undefined
          ? []
          : [
              [
                String(concurrency),
                of,
                String(cost.processes),
                calls > 0 && hasCpuFigures(seconds) ? formatTime(cost.cpuPerCall) : NO_VALUE,
                hasCpuFigures(seconds)
                  ? `${((cost.cpu / 1000 / seconds) * 100).toFixed(0)}% of a core`
                  : NO_VALUE,
                formatBytes(cost.memory),
                formatBytes(cost.peak),
              ],
            ],
      ),
    ),
  };
}

function describeCancels({ levels }: SubjectResult): ReportTable {
  return {
    title: "Cancelled calls",
    notes: ["Time from the client's cancellation until the server gets it."],
    columns: numberColumns(
      "in flight",
      "cancelled",
      "seen by server",
      "p50",
      "p90",
      "p99",
      "max",
      "answered after",
    ),
    rows: levels.flatMap(({ concurrency, cancels }) => {
      if (!cancels) return [];
      const { count: total, seen, latency, late } = cancels;
      const times = latency && [latency.p50, latency.p90, latency.p99, latency.max].map(formatTime);
      const cells = times ?? Array<string>(4).fill(NO_VALUE);
      return [
        [
          String(concurrency),
          formatCount(total),
          seen === null ? NO_VALUE : formatCount(seen),
          ...cells,
          formatCount(late),
        ],
      ];
    }),
  };
}

function describeKills({ levels }: SubjectResult): ReportTable {
  return {
    title: "Killed servers",
    notes: ["Recovery: time from a kill to the next result in the same round."],
    columns: numberColumns(
      "in flight",
      "kills",
      "calls lost",
      "stray answers",
      "recoveries",
      "p50",
      "p90",
      "max",
    ),
    rows: levels.flatMap(({ concurrency, kills }) => {
      if (!kills) return [];
      const { count: total, lost, strays, recovery } = kills;
      const times = recovery && [recovery.p50, recovery.p90, recovery.max].map(formatTime);
      const cells = times ?? Array<string>(3).fill(NO_VALUE);
      const counts = [concurrency, total, lost, strays, recovery?.count ?? 0].map(formatCount);
      return [[...counts, ...cells]];
    }),
  };
}

/** Latencies of each level without and with the hub, and the difference. */
function describeOverhead(
  overhead: readonly OverheadResult[],
  subjects: readonly SubjectResult[],
): ReportTable {
  const at = (kind: SubjectResult["kind"], concurrency: number): LevelResult | undefined =>
    subjects
      .find((subject) => subject.kind === kind)
      ?.levels.find((level) => level.concurrency === concurrency);
  return {
    title: "What the hub costs",
    notes: [
      "The same server with and without the hub, measured in turns.",
      ...(overhead.some(hasNoise)
        ? [
            `* ${WITHIN_NOISE}: the difference between hub and server varies more between the two halves of the level than its own size.`,
          ]
        : []),
    ],
    columns: numberColumns(
      "in flight",
      "p50 direct",
      "hub",
      "added",
      "p99 direct",
      "hub",
      "added",
      "rate",
    ),
    rows: overhead.map(({ concurrency, p50, p99, rate, withinNoise }) => {
      const mark = (text: string, isNoise = false): string => (isNoise ? `* ${text}` : text);
      const [direct, hub] = [at("server", concurrency), at("hub", concurrency)].map(
        (level) => level?.latency,
      );
      const time = (us: number | undefined): string =>
        us === undefined ? NO_VALUE : formatTime(us);
      return [
        String(concurrency),
        time(direct?.p50),
        time(hub?.p50),
        mark(formatChange(p50), withinNoise?.p50),
        time(direct?.p99),
        time(hub?.p99),
        mark(formatChange(p99), withinNoise?.p99),
        mark(formatPercentage(rate), withinNoise?.rate),
      ];
    }),
  };
}

function hasNoise({ withinNoise }: OverheadResult): boolean {
  return withinNoise !== undefined && Object.values(withinNoise).some(Boolean);
}

function describeErrors(subjects: readonly SubjectResult[]): ReportTable[] {
  const rows = subjects.flatMap((subject) =>
    subject.levels.flatMap(({ concurrency, errors }) =>
      Object.entries(errors).map(([kind, { count: total, example }]) => [
        ...(subjects.length > 1 ? [routeName(subject)] : []),
        String(concurrency),
        formatCount(total),
        kind,
        example,
      ]),
    ),
  );
  const text = (title: string): TableColumn => ({ title, kind: "text" });
  const columns = [
    ...(subjects.length > 1 ? [text("of")] : []),
    ...numberColumns("in flight", "times"),
    text("error"),
    text("first message"),
  ];
  return [{ title: "Errors", notes: [], columns, rows }];
}

/** Says how calls reached the server: `hub` or `direct`. */
export function routeName({ kind }: Pick<SubjectResult, "kind">): string {
  return kind === "hub" ? "hub" : "direct";
}

/** Number of calls of a level without a result. */
export function countErrors({ errors }: LevelResult): number {
  return Object.values(errors).reduce((sum, each) => sum + each.count, 0);
}

/** Formats a difference in µs with its sign: `+12.3 µs`, `−4.00 µs`. */
export function formatChange(us: number): string {
  return us < 0 ? `−${formatTime(-us)}` : `+${formatTime(us)}`;
}

/** Formats a ratio as a percentage: 0.97 as `97%`, 0.005 as `0.5%`. */
export function formatPercentage(part: number): string {
  return `${Number((part * 100).toFixed(part < 0.1 ? 1 : 0))}%`;
}

function numberColumns(...titles: readonly string[]): TableColumn[] {
  return titles.map((title) => ({ title, kind: "number" }));
}

export function formatReportText(
  { title, facts, tables }: ReportTables,
  style: TerminalStyle,
): string {
  const { bold, dim } = style.colors;
  const wrap = (text: string): string => wrapText(sanitizeLine(text), style.width, "  ", "");
  const head = [bold(wrap(title)), ...facts.map((fact) => dim(wrap(fact)))].join("\n");
  return [head, ...tables.map((table) => formatTable(table, style))].join("\n\n");
}

function formatTable({ title, notes, columns, rows }: ReportTable, style: TerminalStyle): string {
  const { bold, dim } = style.colors;
  const cells = rows.map((row) => row.map(sanitizeLine));
  // Numbers are right-aligned, and so are their titles.
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
    ...notes.map((note) => dim(wrapText(sanitizeLine(note), style.width))),
    alignTable(titles, cells.map(align), style),
  ].join("\n");
}
