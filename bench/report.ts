import { answerSize } from "./answer.ts";
import { CONTESTANTS } from "./contestants.ts";
import { CELLS } from "./eras.ts";
import { type Goal, judge, type Measurements } from "./goals.ts";
import { CUSTOMS } from "./plugins.ts";
import { PACES, type Weight } from "./job.ts";
import type { Machine } from "./machine.ts";
import type { RelayResult } from "./relay.ts";

/** Lines up columns: the first to the left, all others to the right. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length);
  }
  const pad = (cell: string, at: number) =>
    at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0);
  return rows.map((row) => `  ${row.map(pad).join("  ")}`.trimEnd()).join("\n");
}

/** Three significant digits, or whole with thousands apart; a dash for what is not known. */
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

/** Everything but the relays, one line each. */
export function formatHub({ start, slow, broad, soak, ...others }: Measurements): string[] {
  const lines: string[] = [];
  if (start) {
    const { hello, toolmux, first } = start;
    const times = [hello, toolmux, first].map(formatNumber);
    lines.push(
      `start: hello-world ${times[0]} ms, initialize ${times[1]} ms, without snapshots ${times[2]} ms`,
    );
  }
  if (slow) {
    const { servers, delay, ready } = slow;
    lines.push(`slow: ${servers} servers that sleep ${delay} ms: ${formatNumber(ready)} ms`);
  }
  if (broad) {
    for (const { servers, tools, ready, call, size, list } of [broad.one, broad.many]) {
      const text = `${servers} × ${tools / servers} tools: ready in ${formatNumber(ready)} ms`;
      const times = `a call ${formatNumber(call)} µs, a list ${formatNumber(list)} µs`;
      lines.push(`broad: ${text}, ${times} for ${formatNumber(size)} bytes`);
    }
  }
  lines.push(
    ...formatEndurance(others),
    ...formatPlugins(others.plugins),
    ...formatEras(others.eras),
    ...formatHttp(others.http),
  );
  if (soak) {
    const [early, late] = [formatNumber(soak.early / 1e6), formatNumber(soak.late / 1e6)];
    lines.push(`soak: ${formatNumber(soak.calls)} calls, ${early} MB early, ${late} MB late`);
  }
  return lines;
}

function formatEndurance({ snapshots, kills, cycles }: Endurance): string[] {
  const lines: string[] = [];
  if (snapshots) {
    const { servers, mute, tools, median, worst } = snapshots;
    const times = `${formatNumber(median)} ms, at worst ${formatNumber(worst)} ms`;
    lines.push(`snapshots: ${tools} tools of ${servers} servers, ${mute} of them mute: ${times}`);
  }
  if (kills) {
    const { calls, errors, faults, examples } = kills;
    const rate = formatNumber(kills.kills / kills.seconds);
    const counts = `${formatNumber(calls)} calls, ${formatNumber(errors)} errors, ${faults} faults`;
    const weights = [kills.before, kills.after].map(formatWeight).join(", then ");
    lines.push(`kills: ${formatNumber(kills.kills)}, ${rate} a second; ${counts}; ${weights}`);
    lines.push(...examples.map((example) => `  ${example}`));
  }
  if (cycles) {
    const { lives, overlaps, left } = cycles;
    const times = PACES.map((pace) => `${pace} ${formatNumber(cycles.times[pace])} ms`).join(", ");
    const { processes, descriptors, timers } = left;
    const rest = `${processes} processes, ${formatNumber(descriptors)} descriptors, ${timers} timers left`;
    lines.push(`cycles: ${times}; ${lives} lives, ${overlaps} overlaps; ${rest}`);
  }
  return lines;
}

function formatPlugins(result: Measurements["plugins"]): string[] {
  if (result === undefined) return [];
  return (["small", "large"] as const).map((size) => {
    const tolls = CUSTOMS.map((custom) => {
      const { rate, cpu, rateToNone } = result[size][custom];
      const figures = [rate, cpu, rateToNone].map(formatNumber);
      return `${custom} ${figures[0]} calls/s, ${figures[1]} µs (${figures[2]} ×)`;
    });
    return `plugins, ${size}: ${tolls.join("; ")}`;
  });
}

function formatEras(result: Measurements["eras"]): string[] {
  if (result === undefined) return [];
  const cells = CELLS.map((cell) => {
    const { rate, cpu, cpuToLegacy } = result[cell];
    const figures = [rate, cpu, cpuToLegacy].map(formatNumber);
    return `${cell} ${figures[0]} calls/s, ${figures[1]} µs (${figures[2]} ×)`;
  });
  return [`eras of client and server: ${cells.join("; ")}`];
}

function formatHttp(result: Measurements["http"]): string[] {
  if (result === undefined) return [];
  const { faces, toSdk, streams, mix } = result;
  const loads = Object.entries(faces).map(([contestant, { rate, p50, p99, cpu }]) => {
    const figures = [rate, p50, p99, cpu].map(formatNumber);
    return `${contestant} ${figures[0]} calls/s, p50 ${figures[1]} µs, p99 ${figures[2]} µs, ${figures[3]} µs of CPU`;
  });
  const { sessions, changes, missed, strays, slowest, each } = streams;
  const heard = `${missed} missed, ${strays} strays, at worst after ${formatNumber(slowest)} ms`;
  const weight = `${formatNumber(each === null ? null : each / 1000)} kB each`;
  const { kills, requests, errors, cancelled, faults, examples } = mix;
  const counts = [requests, errors, cancelled, faults].map(formatNumber);
  return [
    `http: ${loads.join("; ")} (${formatNumber(toSdk)} ×)`,
    `http: ${sessions} sessions that listen, ${changes} changes: ${heard}; ${weight}`,
    `http: ${kills} kills; ${counts[0]} requests, ${counts[1]} errors, ${counts[2]} cancelled, ${counts[3]} faults; the slowest ${formatNumber(mix.slowest)} ms`,
    ...examples.map((example) => `  ${example}`),
  ];
}

type Endurance = Pick<Measurements, "snapshots" | "kills" | "cycles">;

function formatWeight(weight: Weight | null): string {
  if (weight === null) return "–";
  return `${formatNumber(weight.rss / 1e6)} MB and ${weight.descriptors} descriptors`;
}

/** Those that were measured, and how many were not. */
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
