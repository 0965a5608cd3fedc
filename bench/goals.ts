import { formatNumber, formatTable, type Table } from "./report.ts";

/** A goal for the hub, with the measured figure; NaN if it was not measured. */
export interface Goal {
  readonly name: string;
  /** The limit with its unit, after `≤` or `≥`. */
  readonly limit: string;
  readonly figure: number;
  readonly verdict: "reached" | "missed" | "not measured";
}

/**
 * The goals: the name, the scenarios that measure the figure, the column of their tables, and the limit. Answers that
 * have to be parsed (`spaced`) are left out, because parsing is most of their cost. A column `95 % from` has the lower end
 * of a 95 % interval: a goal of a ratio that varies much is missed only if the whole interval lies above the limit.
 */
export const GOALS: readonly (readonly [
  name: string,
  scenarios: string,
  column: string,
  limit: string,
])[] = [
  ["a small call: p50 to the pump's", "small-1-(head|tail)", "p50:pump", "≤ 1.1 ×"],
  ["small calls: rate to the SDK relay's", "small-64-(head|tail)", "rate:sdk", "≥ 8 ×"],
  ["small calls: CPU to the pump's", "small-64-(head|tail)", "CPU:pump", "≤ 3 ×"],
  ["results of 1 MB: rate to the pump's", "large-\\d+-(head|tail)", "rate:pump", "≥ 1 ×"],
  ["results of 16 MB: copies alive of each", "copies", "copies", "≤ 3"],
  ["results of 16 MB: memory after many to after few", "copies", "peak:few", "≤ 1.1 ×"],
  ["a million calls: change of memory at their end", "soak", "change %", "≤ 10 %"],
  ["initialize, with snapshots, to hello-world", "start", "to hello-world", "≤ 5.5 ×"],
  ["nothing to do, 10 servers: own memory", "idle", "own MB", "≤ 60 MB"],
  ["nothing to do, 10 servers: part of a core", "idle", "% of a core", "≤ 0.05 %"],
  ["calls to one of 1,000 servers: CPU to those with one", "servers", "95 % from", "≤ 1.15 ×"],
  ["initialize, with the control socket to without", "control", "ms:without", "≤ 1.1 ×"],
  ["memory of the control socket", "control", "more MB", "≤ 1 MB"],
  ["CPU that a reader of all events adds to a call", "control", "more CPU µs", "≤ 0.5 µs"],
  ["5,000 tools: the first list, in a new process", "catalogs", "cold ms", "≤ 10 ms"],
  ["5,000 tools: the list when one server changed", "catalogs", "one changed ms", "≤ 5 ms"],
  ["a look-up grows with servers to the power of", "catalogs", "look-up power", "≤ 0.1"],
  ["limits of all kinds: what they add to a call", "limits", "µs a call", "≤ 0.3 µs"],
  ["traces of all calls: what they add to a call", "telemetry-traces", "µs a call", "≤ 25 µs"],
  ["metrics: what they add to a call", "telemetry-metrics", "µs a call", "≤ 0.5 µs"],
  ["10,000 tools compared with what was accepted", "pins", "again ms", "≤ 1000 ms"],
  ["a call where pins block, before it is sent", "pins", "look-up ns", "≤ 500"],
  ["20 servers that sleep 500 ms, all listed", "slow", "ready ms", "≤ 1200 ms"],
  ["a call with many servers, to one", "broad", "call:one", "≤ 1.2 ×"],
  ["a byte of the list of many servers, to one", "broad", "list byte:one", "≤ 1 ×"],
  ["snapshots, 3 of 10 servers hang: the first list", "snapshots", "worst ms", "≤ 100 ms"],
  ["small calls, modern era: CPU to the legacy one", "eras", "CPU:LL", "≤ 1.5 ×"],
  ["a neighbour of a flood: p99 of its calls", "flood-neighbours", "p99 ms", "≤ 50 ms"],
  ["a client of a shared hub: p50 more than alone", "attach-calls-1", "more p50 µs", "≤ 60 µs"],
  ["the same, 64 in flight: rate alone to attached", "attach-calls-64", "95 % from", "≤ 1.17 ×"],
  ["the same: CPU of the attached process alone", "attach-calls-64", "own CPU µs", "≤ 4 µs"],
  ["attach to a running hub, to the start of one", "attach-start", "ms:private", "≤ 0.6 ×"],
  ["an attached process with nothing to do: own memory", "attach-memory", "own MB", "≤ 6 MB"],
  ["a shared hub: memory of an idle client", "attach-clients", "kB each", "≤ 25 kB"],
  ["a server over NATS: p50 more than over HTTP", "fleet-calls-1", "more p50 µs", "≤ 250 µs"],
  ["the same, 64 in flight: CPU of the hub that calls", "fleet-calls-64", "own CPU µs", "≤ 15 µs"],
  ["three machines to one, servers of 20 ms", "fleet-nodes", "to", "≥ 2.7 ×"],
  ["small calls over HTTP: rate to the SDK relay's", "http-small-64", "rate:sdk", "≥ 3 ×"],
];

/**
 * Judges the goals by the tables of the scenarios. In a table with a row `toolmux` that row counts, otherwise the
 * worst one does; of several scenarios the worst one counts.
 * @throws if a scenario was measured, but has no such column
 */
export function judgeGoals(measured: ReadonlyMap<string, Table>): readonly Goal[] {
  return GOALS.map(([name, scenarios, column, limit]) => {
    const pattern = new RegExp(`^${scenarios}$`);
    const figures = [...measured].flatMap(([scenario, table]) => {
      if (!pattern.test(scenario)) return [];
      const rows = table["toolmux"] === undefined ? Object.values(table) : [table["toolmux"]];
      const values = rows.flatMap((row) => row[column] ?? []);
      if (values.length === 0) throw new Error(`${scenario} does not measure "${column}"`);
      return values.filter((value) => !Number.isNaN(value));
    });
    const [bound, number] = limit.split(" ");
    if (figures.length === 0) return { name, limit, figure: Number.NaN, verdict: "not measured" };
    const figure = bound === "≤" ? Math.max(...figures) : Math.min(...figures);
    const isReached = bound === "≤" ? figure <= Number(number) : figure >= Number(number);
    return { name, limit, figure, verdict: isReached ? "reached" : "missed" };
  });
}

/** Formats the goals that were measured, and the number of those that were not. */
export function formatGoals(goals: readonly Goal[]): string {
  const measured = goals.filter(({ verdict }) => verdict !== "not measured");
  const rows = measured.map(({ name, limit, figure, verdict }) => {
    const unit = limit.split(" ")[2] ?? "";
    return [name, `${formatNumber(figure)} ${unit}`.trimEnd(), limit, verdict];
  });
  const lines = rows.length === 0 ? [] : [formatTable([["", "figure", "goal", ""], ...rows])];
  const missing = goals.length - measured.length;
  if (missing > 0) lines.push(`  ${missing} of ${goals.length} were not measured`);
  return ["goals", ...lines].join("\n");
}
