/** What the scenarios on load, growth and rest found, one line each. */
import type { Measurements } from "./goals.ts";
import { GROWTH_FIGURES } from "./curves.ts";
import type { Fit } from "./fit.ts";
import type { FloodResult } from "./flood.ts";
import { formatNumber } from "./report.ts";
import type { Setting } from "./spread.ts";
import { median } from "./stats.ts";

export function formatLoads(measured: Measurements): string[] {
  const { policies, spread, flood, copies, faces } = measured;
  const lines = [...formatSettings("policies", policies), ...formatSettings("spread", spread)];
  if (flood) {
    for (const name of ["pump", "one", "several"] as const) {
      const result = flood[name];
      lines.push(
        `flood, ${name}: ${formatFlood(result)}`,
        ...result.examples.map((it) => `  ${it}`),
      );
    }
  }
  if (copies) {
    const figures = [copies.size / 1e6, copies.alone, copies.four, copies.growth].map(formatNumber);
    lines.push(
      `copies: ${figures[0]} MB each, ${figures[1]} with one in flight, ${figures[2]} of each of four; after many to after few ${figures[3]} ×`,
    );
  }
  for (const { name, rate, p50, cpu, rateToSdk, cpuToSdk, memory } of faces ?? []) {
    const numbers = [rate, p50, cpu, rateToSdk, cpuToSdk, megabytes(memory.peak)].map(formatNumber);
    lines.push(
      `faces, ${name}: ${numbers[0]} calls/s (${numbers[3]} × the SDK's), p50 ${numbers[1]} µs, ${numbers[2]} µs of CPU (${numbers[4]} ×), at most ${numbers[5]} MB`,
    );
  }
  return lines;
}

export function formatRest({ catalogs, growth, reload, parked, idle }: Measurements): string[] {
  const lines: string[] = [];
  for (const { servers, tools, cold, first, rebuild, find } of catalogs?.points ?? []) {
    const numbers = [cold, first, rebuild, find * 1e6].map(formatNumber);
    lines.push(
      `catalogs, ${servers} servers with ${tools} tools: ${numbers[0]} ms in a fresh process, ${numbers[1]} ms later, ${numbers[2]} ms if one changed; a look-up ${numbers[3]} ns`,
    );
  }
  if (catalogs) lines.push(`catalogs grow: ${formatFits(catalogs.fits)}`);
  for (const point of growth?.points ?? []) {
    const { servers, ready, size, list, call, rebuild, heard, rss } = point;
    const numbers = [ready, list, size, call === null ? null : call * 1000, rebuild, heard];
    const [a, b, c, d, e, f] = numbers.map(formatNumber);
    lines.push(
      `growth, ${servers} servers: ready in ${a} ms, a list ${b} ms for ${c} bytes, ${d} µs of CPU for a call, ${e} ms for a change that is told after ${f} ms, ${formatNumber(megabytes(rss))} MB`,
    );
  }
  if (growth) {
    const { points, fits } = growth;
    lines.push(
      `growth: ${formatFits(Object.fromEntries(GROWTH_FIGURES.map((it) => [it, fits[it]])))}`,
    );
    const [first, last] = [points[0], points.at(-1)];
    if (first?.rss && last?.rss) {
      const each = (last.rss - first.rss) / (last.servers - first.servers);
      lines.push(`growth: ${formatNumber(each / 1000)} kB of memory for each server`);
    }
  }
  if (reload) {
    const { servers, time, cpu } = reload;
    lines.push(
      `reload: one of ${servers} servers changed in the manifest, listed after ${formatNumber(time)} ms, ${formatNumber(cpu)} ms of CPU`,
    );
  }
  if (parked) {
    const each = parked.counts.map((count, at) => {
      const bytes = parked.each[at] ?? null;
      return `${formatNumber(count)} calls ${formatNumber(bytes)} bytes each`;
    });
    lines.push(`parked: ${each.join(", ")}`);
  }
  if (idle) {
    const { duration, core, holding } = idle;
    const sizes = holding
      ? [holding.rss, holding.anonymous, holding.own].map((size) => formatNumber(size / 1e6))
      : ["–", "–", "–"];
    const percent = formatNumber(core === null ? null : core * 100);
    lines.push(
      `idle: ${percent} % of a core over ${formatNumber(duration / 1000)} s; ${sizes[0]} MB resident, ${sizes[1]} MB that no file is behind, ${sizes[2]} MB that it shares with nobody`,
    );
  }
  return lines;
}

function formatSettings(name: string, settings: readonly Setting[] | undefined): string[] {
  if (settings === undefined) return [];
  const all = settings.map((setting) => {
    const numbers = [setting.rate, setting.cpu, setting.cpuToFirst].map(formatNumber);
    return `${setting.name} ${numbers[0]} calls/s, ${numbers[1]} µs of CPU (${numbers[2]} ×)`;
  });
  return [`${name}: ${all.join("; ")}`];
}

function formatFlood({ notes, faults, rates, cpus, base, peak }: FloodResult): string {
  const cpu = median(cpus.flatMap((each) => each ?? []));
  const more = base === null || peak === null ? null : peak - base;
  const numbers = [notes, median(rates), cpu, megabytes(more)].map(formatNumber);
  return `${numbers[0]} notifications, ${numbers[1]} a second, ${numbers[2]} µs of CPU each, ${numbers[3]} MB more at most; ${faults} faults`;
}

/** Each as the power of the number of servers that it grows with. */
function formatFits(fits: Readonly<Record<string, Fit>>): string {
  return Object.entries(fits)
    .map(([name, { b }]) => `${name} ~ n^${b.toFixed(2)}`)
    .join(", ");
}

function megabytes(bytes: number | null): number | null {
  return bytes === null ? null : bytes / 1e6;
}
