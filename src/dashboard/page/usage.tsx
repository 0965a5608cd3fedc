import { useEffect, useRef } from "hono/jsx/dom";
import uPlot from "uplot";
import type { ViewProps } from "./app.tsx";
import type { EndedCall, ToolDocument, UsageDocument } from "./documents.ts";
import { count, formatBytes, formatDuration, formatNumber, formatTokens } from "./format.ts";
import { Choice, Empty, Header, Ready } from "./parts.tsx";
import { valueOf } from "./state.ts";

/** A chart as data. `x`: in s since the epoch, as uPlot has it. */
export interface UsageChart {
  readonly title: string;
  readonly x: readonly number[];
  readonly curves: readonly {
    readonly name: string;
    readonly values: readonly (number | undefined)[];
    /** What the curve amounts to, for the legend. */
    readonly sum: string;
  }[];
  readonly format: (value: number) => string;
  /** Whether a curve may have no value for a time; its values are drawn as points, too. */
  readonly hasGaps?: boolean;
}

/** Number of curves in a chart. */
const MAX_CURVES = 5;

type Tool = UsageDocument["tools"][number];
type Point = Tool["points"][number];

/** The seven charts. */
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

/** The most calls in flight at a time, as far as the hub remembers calls. */
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

/** What the tools of each server cost a model, largest first. */
export function costsOf(
  tools: readonly ToolDocument[],
): readonly { readonly server: string; readonly tools: number; readonly tokens: number }[] {
  const costs = new Map<string, { tools: number; tokens: number }>();
  for (const { server, tokens: own } of tools) {
    const { tools: number, tokens } = costs.get(server) ?? { tools: 0, tokens: 0 };
    costs.set(server, { tools: number + 1, tokens: tokens + own });
  }
  return [...costs]
    .map(([server, cost]) => ({ server, ...cost }))
    .toSorted((a, b) => b.tokens - a.tokens);
}

export function UsageView({ state, actions }: ViewProps) {
  const ended = valueOf(state.activity)?.calls ?? [];
  return (
    <div>
      <Header
        title="Usage"
        about="Counted since the hub started; kept for 24 hours, in memory only."
      >
        <Choice
          label="Window"
          value={state.usageWindow}
          options={[
            ["1h", "last hour"],
            ["24h", "last day"],
          ]}
          onChoose={(window) => actions.setUsageWindow(window)}
        />
      </Header>
      <Ready
        of={state.usage}
        what="its usage"
        icon="usage"
        draw={(usage) =>
          usage.tools.length === 0 ? (
            <Empty key="none" icon="usage" title="No calls in this window">
              Charts appear here as soon as a client has called a tool.
            </Empty>
          ) : (
            <ul key="charts" class="plain charts">
              {chartsOf(usage, ended).map((chart) => (
                <li key={chart.title} class="card">
                  <Chart chart={chart} />
                </li>
              ))}
            </ul>
          )
        }
      />
      <h2 class="part">Context cost</h2>
      <Ready
        of={state.tools}
        what="a list of tools"
        icon="tools"
        draw={({ tools }) => <Costs tools={tools} />}
      />
    </div>
  );
}

function Costs({ tools }: { readonly tools: readonly ToolDocument[] }) {
  if (tools.length === 0) return <p class="about">No tools yet.</p>;
  const costs = costsOf(tools);
  const most = costs[0]?.tokens ?? 1;
  const total = costs.reduce((sum, { tokens }) => sum + tokens, 0);
  return (
    <div>
      <p class="about">
        The definitions of {count(tools.length, "tool")} take about {formatTokens(total)} tokens of
        a model's context. This is an estimate: 4 bytes are counted as one token.
      </p>
      <ul class="plain card costs">
        {costs.map(({ server, tools: number, tokens }) => (
          <li key={server}>
            <span class="mono clip">{server}</span>
            <meter
              min={0}
              max={most}
              value={tokens}
              aria-label={`Context cost of ${server}: about ${tokens} tokens`}
            />
            <span class="number">≈ {formatTokens(tokens)} tokens</span>
            <span class="number about">{count(number, "tool")}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

const CHART_HEIGHT = 130;

function Chart({ chart }: { readonly chart: UsageChart }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const { title, x, curves } = chart;
  const names = curves.map(({ name }) => name).join("\n");
  const data: uPlot.AlignedData = [[...x], ...curves.map(({ values }) => [...values])];
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const { current } = place;
    if (current === null || curves.length === 0) return undefined;
    const draw = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsFor(current, chart), latest.current ?? data, current);
    };
    draw();
    const observer = new ResizeObserver(() => {
      plot.current?.setSize({ width: current.clientWidth, height: CHART_HEIGHT });
    });
    observer.observe(current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      observer.disconnect();
      scheme.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names, x.length]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [JSON.stringify(data)]);
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="plot" aria-hidden="true" ref={place} />
      {curves.length === 0 ? (
        <p key="none" class="about none">
          none
        </p>
      ) : (
        <ul key="legend" class="legend" aria-label={title}>
          {curves.map(({ name, sum }, at) => (
            <li key={name}>
              <span class={`key c${at}`} aria-hidden="true" />
              <span class="clip">{name}</span>
              <span class="number">{sum}</span>
            </li>
          ))}
        </ul>
      )}
    </figure>
  );
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
    height: CHART_HEIGHT,
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
