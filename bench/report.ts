import { answerSize } from "./answer.ts";
import { CONTESTANTS } from "./contestants.ts";
import { ERA_PAIRS } from "./eras.ts";
import { type Goal, judge, type Measurements } from "./goals.ts";
import type { Machine } from "./machine.ts";
import type { RelayResult } from "./relay.ts";

/** Formats a table with aligned columns: the first one to the left, all others to the right. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length);
  }
  const pad = (cell: string, at: number) =>
    at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0);
  return rows.map((row) => `  ${row.map(pad).join("  ")}`.trimEnd()).join("\n");
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

export function formatRelay({ load, contestants }: RelayResult): string {
  const size = formatNumber(answerSize(load.lines));
  const asked = load.pad > 0 ? `arguments of ${formatNumber(load.pad)} bytes, ` : "";
  const heading = `${load.name}: ${asked}answers of ${size} bytes, ${load.flight} in flight, ${SHAPE_TEXTS[load.shape]}`;
  const columns = ["p50 µs", "p99 µs", "calls/s", "CPU µs", "RSS MB", "peak MB"];
  const ratios = ["p50:pump", "rate:pump", "CPU:pump", "p50:sdk", "rate:sdk", "CPU:sdk"];
  const rows = CONTESTANTS.flatMap((contestant) => {
    const figures = contestants[contestant];
    if (figures === undefined) return [];
    const { p50, p99, rate, cpu, rss, peak, toPump, toSdk } = figures;
    const numbers = [p50, p99, rate, cpu, megabytes(rss), megabytes(peak)];
    const compared = [toPump, toSdk].flatMap(({ p50: middle, rate: pace, cpu: cost }) => [
      middle,
      pace,
      cost,
    ]);
    return [[contestant, ...[...numbers, ...compared].map(formatNumber)]];
  });
  const table = formatTable([["", ...columns, ...ratios], ...rows]);
  const { without } = load;
  const absent = without ? [`  ${without.contestant}: LEFT OUT, as ${without.why}`] : [];
  return [heading, table, ...absent].join("\n");
}

const SHAPE_TEXTS = {
  head: "id first",
  tail: "id last",
  spaced: "white space, so that it must be parsed",
} as const;

function megabytes(bytes: number | null): number | null {
  return bytes === null ? null : bytes / 1e6;
}

/** Formats all results except those of the relays, one line for each. */
export function formatScenarios(measured: Measurements): string[] {
  const { start, slow, broad, snapshots, copies, catalogs, idle, control, eras, http, soak } =
    measured;
  const lines: string[] = [];
  if (start)
    lines.push(
      text`start: hello-world ${start.hello} ms, initialize ${start.toolmux} ms, without snapshots ${start.first} ms`,
    );
  if (slow)
    lines.push(text`slow: ${slow.servers} servers that sleep ${slow.delay} ms: ${slow.ready} ms`);
  for (const { servers, tools, ready, call, size, list } of broad ? [broad.one, broad.many] : [])
    lines.push(
      text`broad: ${servers} × ${tools / servers} tools: ready in ${ready} ms, a call ${call} µs, a list ${list} µs for ${size} bytes`,
    );
  if (snapshots)
    lines.push(
      text`snapshots: ${snapshots.tools} tools of ${snapshots.servers} servers, ${snapshots.mute} of them mute: ${snapshots.median} ms, at worst ${snapshots.worst} ms`,
    );
  if (copies)
    lines.push(
      text`copies: ${copies.size / 1e6} MB each, ${copies.alone} with one in flight, ${copies.four} of each of four; after many to after few ${copies.growth} ×`,
    );
  for (const { servers, tools, cold, first, rebuild, find } of catalogs?.points ?? [])
    lines.push(
      text`catalogs, ${servers} servers with ${tools} tools: ${cold} ms in a fresh process, ${first} ms later, ${rebuild} ms if one changed; a look-up ${find * 1e6} ns`,
    );
  if (idle) {
    const { core, holding, duration } = idle;
    lines.push(
      text`idle: ${core === null ? null : core * 100} % of a core over ${duration / 1000} s; ${megabytes(holding?.rss ?? null)} MB resident, ${megabytes(holding?.own ?? null)} MB shared with nobody`,
    );
  }
  if (control) {
    const { start: starts, memory, call } = control;
    lines.push(
      text`control socket, open and without: initialize ${starts.open} and ${starts.none} ms, ${memory.open / 1e6} and ${memory.none / 1e6} MB shared with nobody; a call ${call.alone} µs of CPU, and ${call.follower} µs more with a reader of all events`,
    );
  }
  for (const pair of eras ? ERA_PAIRS : [])
    lines.push(
      text`eras, client ${pair.charAt(0)}, server ${pair.charAt(1)}: ${eras?.[pair].rate ?? null} calls/s, ${eras?.[pair].cpu ?? null} µs of CPU (${eras?.[pair].cpuToLegacy ?? null} ×)`,
    );
  for (const { name, rate, p50, cpu, rateToSdk, cpuToSdk, memory } of http ?? [])
    lines.push(
      text`http, ${name}: ${rate} calls/s (${rateToSdk} × the SDK's), p50 ${p50} µs, ${cpu} µs of CPU (${cpuToSdk} ×), at most ${megabytes(memory.peak)} MB`,
    );
  if (soak)
    lines.push(
      text`soak: ${soak.calls} calls, ${soak.early / 1e6} MB early, ${soak.late / 1e6} MB late`,
    );
  return lines;
}

/** A template tag that formats numbers. */
function text(
  strings: TemplateStringsArray,
  ...values: readonly (number | string | null)[]
): string {
  const parts = values.map((value) => (typeof value === "string" ? value : formatNumber(value)));
  return String.raw({ raw: strings }, ...parts);
}

/** Formats the goals that were measured, and the number of those that were not. */
export function formatGoals(goals: readonly Goal[]): string {
  const measured = goals.filter((goal) => judge(goal) !== "not measured");
  const rows = measured.map((goal) => {
    const bound = goal.bound === "atMost" ? "≤" : "≥";
    const [figure, limit] = [goal.figure, goal.limit].map((value) =>
      `${formatNumber(value)} ${goal.unit}`.trimEnd(),
    );
    return [goal.name, figure ?? "", `${bound} ${limit}`, judge(goal)];
  });
  const lines = rows.length === 0 ? [] : [formatTable([["", "figure", "goal", ""], ...rows])];
  const missing = goals.length - measured.length;
  if (missing > 0) lines.push(`  ${missing} of ${goals.length} were not measured`);
  return ["goals", ...lines].join("\n");
}

export function formatMachine({ cores, cpu, memory, system, runtimes, load }: Machine): string {
  const versions = Object.entries(runtimes).map(([name, version]) => `${name} ${version}`);
  return [
    `${cores} × ${cpu}, ${formatNumber(memory / 1e9)} GB, ${system}`,
    `${versions.join(", ")}; load average ${formatNumber(load)}`,
  ].join("\n");
}
