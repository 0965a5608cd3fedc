import uPlot from "uplot";
import type { EndedCall, UsageDocument } from "./documents.ts";
import { formatBytes, formatDuration, formatNumber } from "./format.ts";

/* The charts of the page. The page loads this module when a view with charts is first shown. */

/** The data of a chart. `x`: times in s since the epoch, as uPlot wants them. */
export interface UsageChart {
  readonly title: string;
  readonly x: readonly number[];
  readonly curves: readonly {
    readonly name: string;
    readonly values: readonly (number | undefined)[];
    /** The value for the whole time window, as text for the legend. */
    readonly sum: string;
  }[];
  readonly format: (value: number) => string;
  /** Whether curves may lack values for some times. If so, the values are drawn as points, too. */
  readonly hasGaps?: boolean;
}

/** Maximum number of curves in a chart. */
const MAX_CURVES = 5;

type Tool = UsageDocument["tools"][number];
type Point = Tool["points"][number];

/** The seven charts of the Usage view. */
export function chartsOf(usage: UsageDocument, ended: readonly EndedCall[]): readonly UsageChart[] {
  const { tools, until, step } = usage;
  const length = tools[0]?.points.length ?? 0;
  const x = Array.from({ length }, (_, at) => (until - (length - at - 0.5) * step) / 1000);
  const largest = (value: (tool: Tool) => number): readonly Tool[] =>
    tools
      .filter((tool) => value(tool) > 0)
      .toSorted((a, b) => value(b) - value(a))
      .slice(0, MAX_CURVES);
  const servers = [...new Set(tools.map(({ server }) => server))];
  const ofServers = (title: string, value: (point: Point | Tool) => number): UsageChart => ({
    title,
    x,
    format: formatNumber,
    curves: servers
      .map((server) => {
        const own = tools.filter((tool) => tool.server === server);
        const total = own.reduce((sum, tool) => sum + value(tool), 0);
        const values = x.map((_, at) =>
          own.reduce((sum, { points }) => sum + (points[at] ? value(points[at]) : 0), 0),
        );
        return { name: server, values, total, sum: formatNumber(total) };
      })
      .filter(({ total }) => total > 0)
      .toSorted((a, b) => b.total - a.total)
      .slice(0, MAX_CURVES),
  });
  const ofTools = (
    title: string,
    value: (point: Point | Tool) => number,
    format: (value: number) => string = formatNumber,
  ): UsageChart => ({
    title,
    x,
    format,
    curves: largest(value).map((tool) => ({
      name: tool.tool,
      values: tool.points.map(value),
      sum: format(value(tool)),
    })),
  });
  const slowest = largest(({ p95 }) => p95 ?? 0).slice(0, 2);
  return [
    ofTools("Calls per tool", ({ calls }) => calls),
    ofServers("Calls per server", ({ calls }) => calls),
    {
      title: "Duration per tool",
      x,
      format: formatDuration,
      hasGaps: true,
      curves: slowest.flatMap((tool) =>
        (["p50", "p95"] as const).map((name) => ({
          name: `${tool.tool} ${name}`,
          values: tool.points.map((point) => point[name]),
          sum: formatDuration(tool[name] ?? 0),
        })),
      ),
    },
    ofTools("Errors per tool", ({ failed }) => failed),
    ofServers("Errors per server", ({ failed }) => failed),
    ofTools("Sizes of results", ({ resultBytes }) => resultBytes, formatBytes),
    inFlightChart(x, step, ended),
  ];
}

/** The chart of the maximum number of calls in flight. It counts only the calls that the hub remembers. */
function inFlightChart(
  x: readonly number[],
  step: number,
  ended: readonly EndedCall[],
): UsageChart {
  const moves = ended
    .flatMap(({ startedAt, duration }) => [
      { at: startedAt, by: 1 },
      { at: startedAt + duration, by: -1 },
    ])
    .toSorted((a, b) => a.at - b.at || a.by - b.by);
  let running = 0;
  let next = 0;
  const values = x.map((middle) => {
    const end = middle * 1000 + step / 2;
    let most = running;
    for (let move = moves[next]; move !== undefined && move.at < end; move = moves[++next]) {
      running += move.by;
      most = Math.max(most, running);
    }
    return most;
  });
  const most = Math.max(0, ...values);
  return {
    title: "Calls in flight",
    x,
    format: formatNumber,
    curves: most === 0 ? [] : [{ name: "most at a time", values, sum: formatNumber(most) }],
  };
}

/** A chart that is drawn. */
export interface DrawnChart {
  /** Draws new data. @param chart must have the same curves and the same number of times as before */
  update(chart: UsageChart): void;
  end(): void;
}

/** Height of a chart, in CSS pixels. */
const HEIGHT = 130;

/** Draws a chart into `place`. The chart follows the width of `place`, and the theme. */
export function drawChart(place: HTMLElement, chart: UsageChart): DrawnChart {
  let shown = chart;
  const make = (): uPlot => new uPlot(optionsFor(place, shown), dataOf(shown), place);
  let plot = make();
  const observer = new ResizeObserver(() =>
    plot.setSize({ width: place.clientWidth, height: HEIGHT }),
  );
  observer.observe(place);
  const theme = new MutationObserver(() => {
    plot.destroy();
    plot = make();
  });
  theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return {
    update(next) {
      shown = next;
      plot.setData(dataOf(next));
    },
    end() {
      observer.disconnect();
      theme.disconnect();
      plot.destroy();
    },
  };
}

function dataOf({ x, curves }: UsageChart): uPlot.AlignedData {
  return [[...x], ...curves.map(({ values }) => [...values])];
}

function optionsFor(
  place: HTMLElement,
  { x, curves, format, hasGaps = false }: UsageChart,
): uPlot.Options {
  const style = getComputedStyle(place);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--quiet"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  const isShort = (x.at(-1) ?? 0) - (x[0] ?? 0) < 2 * 3600;
  const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  return {
    width: place.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 16, 0, 0],
    scales: { y: { range: (_, __, most) => [0, Math.max(most, 1) * 1.1] } },
    axes: [
      {
        ...axis,
        size: 22,
        space: isShort ? 60 : 70,
        values: (_, ticks) => ticks.map((at) => time.format(at * 1000)),
      },
      {
        ...axis,
        size: 52,
        space: 34,
        values: (_, ticks) =>
          ticks.map((value) => (Number.isInteger(value) || value > 10 ? format(value) : "")),
      },
    ],
    series: [
      {},
      ...curves.map((_, at) => ({
        stroke: color(`--c${at}`),
        width: 1.5,
        points: { show: hasGaps, size: 4, width: 0, fill: color(`--c${at}`) },
        spanGaps: true,
      })),
    ],
  };
}
