import { useEffect, useRef } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { DrawnChart, UsageChart } from "./charts.ts";
import { type Charts, type DashboardState, routeTo, valueOf } from "./state.ts";
import type { LimitDocument, ToolDocument, UsageDocument } from "./documents.ts";
import { count, formatAgo, formatMeasured, formatNumber, formatTokens } from "./format.ts";
import { Choice, Empty, Header, Ready } from "./parts.tsx";
import { type Column, DataTable } from "./table.tsx";

/**
 * The number of tokens that the definitions of each server's tools take in a model's context; the largest number first.
 */
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

/** Since when the numbers of the window are counted, in words. */
function aboutOf({ usage, now }: Pick<DashboardState, "usage" | "now">): string {
  const since = valueOf(usage)?.since;
  const age = since === undefined ? "" : ` ${formatAgo(since, now)}`;
  return `Counted since the hub started${age}; kept for 24 hours, in memory only.`;
}

type ToolUsage = UsageDocument["tools"][number];

/** A duration of a tool that has several; one duration is shown once, as the median. */
function amongSeveral(value: (tool: ToolUsage) => number | undefined) {
  return (tool: ToolUsage): number | undefined => (tool.n > 1 ? value(tool) : undefined);
}

function durationColumn(
  name: string,
  valueOfTool: (tool: ToolUsage) => number | undefined,
  from: number,
): Column<ToolUsage> {
  return {
    name,
    width: "minmax(4rem, 5.4rem)",
    isNumber: true,
    from,
    sortBy: valueOfTool,
    draw: (tool) => {
      const value = valueOfTool(tool);
      return value === undefined || value === 0 ? "–" : formatMeasured(value);
    },
  };
}

function countColumn(
  name: string,
  valueOfTool: (tool: ToolUsage) => number,
  from: number,
): Column<ToolUsage> {
  return {
    name,
    width: "minmax(3.2rem, 4.4rem)",
    isNumber: true,
    from,
    sortBy: valueOfTool,
    draw: (tool) => formatNumber(valueOfTool(tool)),
  };
}

const TOOL_COLUMNS: readonly Column<ToolUsage>[] = [
  {
    name: "Tool",
    width: "minmax(8.6rem, 2fr)",
    sortBy: ({ tool }) => tool,
    draw: ({ tool, server }) => (
      <div class="stack">
        <span class="mono clip" title={tool}>
          {server === "" ? "other tools" : tool}
        </span>
        <span class="about small clip">{server}</span>
      </div>
    ),
  },
  countColumn("Calls", ({ calls }) => calls, 0),
  {
    ...countColumn("Errors", ({ failed }) => failed, 0),
    draw: ({ failed }) => (
      <span class={failed > 0 ? "outcome bad" : ""}>{formatNumber(failed)}</span>
    ),
  },
  countColumn("Denied", ({ denied }) => denied, 760),
  countColumn("Timed", ({ n }) => n, 900),
  durationColumn(
    "Min",
    amongSeveral(({ min }) => min),
    640,
  ),
  durationColumn("Median", ({ p50 }) => p50, 0),
  durationColumn(
    "p95",
    amongSeveral(({ p95 }) => p95),
    480,
  ),
  durationColumn(
    "Max",
    amongSeveral(({ max }) => max),
    640,
  ),
  durationColumn("Wait: person", ({ personWait }) => personWait, 1000),
  durationColumn("Wait: server", ({ queueWait }) => queueWait, 1000),
];

function ToolTable({ tools }: { readonly tools: readonly ToolUsage[] }) {
  return (
    <section class="flow">
      <DataTable
        items={tools}
        columns={TOOL_COLUMNS}
        label="Tools that were called"
        height={52}
        keyOf={({ server, tool }) => `${server} ${tool}`}
        rowOf={({ server, tool }) => ({ "data-usage": `${server} ${tool}` })}
      />
      <p class="about small">
        Durations are right to 5 %, and without waits. Timed are the calls that reached their
        server. The waits are those of all calls together: for an approval or another answer of the
        person at the client, and for the server to start.
      </p>
    </section>
  );
}

export function UsageView({ state, actions }: ViewProps) {
  const ended = valueOf(state.activity)?.calls ?? [];
  return (
    <div>
      <Header title="Usage" about={aboutOf(state)}>
        <Choice
          label="Window"
          value={state.usageWindow}
          options={[
            ["5m", "last 5 minutes"],
            ["15m", "last 15 minutes"],
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
              <p>Numbers appear here as soon as a client has called a tool.</p>
              <p class="actions">
                <a class="button primary" href={routeTo("tools")}>
                  Run a tool
                </a>
              </p>
            </Empty>
          ) : (
            <div key="some">
              <ToolTable tools={usage.tools} />
              <h2 class="part">Over time</h2>
              <Ready
                of={state.charts}
                what="its charts"
                icon="usage"
                draw={({ chartsOf, drawChart }) => (
                  <ul class="plain cards charts">
                    {chartsOf(usage, ended).map((chart) => (
                      <li key={chart.title} class="card panel">
                        <Chart chart={chart} drawChart={drawChart} />
                      </li>
                    ))}
                  </ul>
                )}
              />
            </div>
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
      <h2 class="part">Limits</h2>
      <Ready
        of={state.limits}
        what="its limits"
        icon="usage"
        draw={(limits) => <Limits limits={limits} />}
      />
    </div>
  );
}

function Limits({ limits }: { readonly limits: readonly LimitDocument[] }) {
  if (limits.length === 0) return <p class="about">The manifest limits no calls.</p>;
  return (
    <ul class="card list">
      {limits.map((limit) => {
        const { client, server, tool, rate, quota, running, maxConcurrent, queued, refused } =
          limit;
        const name = [client ?? server ?? "all calls", tool].filter(Boolean).join(" · ");
        const facts = [
          rate && `${rate.left} of ${rate.burst} calls left at once`,
          quota && `${quota.used} of ${quota.count} calls used`,
          maxConcurrent === undefined
            ? `${count(running, "call")} running`
            : `${running} of ${maxConcurrent} running`,
          queued > 0 && `${queued} waiting`,
          refused > 0 && `${refused} refused`,
        ];
        return (
          <li key={`${limit.kind} ${name}`}>
            <span class="mono clip">{name}</span>
            <span class="about">{facts.filter(Boolean).join(" · ")}</span>
          </li>
        );
      })}
    </ul>
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
      <ul class="card list costs">
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
            <span class="number about wide">{count(number, "tool")}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Chart({
  chart,
  drawChart,
}: {
  readonly chart: UsageChart;
  readonly drawChart: Charts["drawChart"];
}) {
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<DrawnChart | undefined>(undefined);
  const { title, x, curves } = chart;
  const names = curves.map(({ name }) => name).join("\n");
  useEffect(() => {
    const { current } = place;
    if (current === null || curves.length === 0) return undefined;
    drawn.current = drawChart(current, chart);
    return () => {
      drawn.current?.end();
      drawn.current = undefined;
    };
  }, [names, x.length]);
  useEffect(() => {
    drawn.current?.update(chart);
  }, [JSON.stringify([x, curves])]);
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
              <span class="key" style={{ background: `var(--c${at})` }} aria-hidden="true" />
              <span class="clip">{name}</span>
              <span class="number">{sum}</span>
            </li>
          ))}
        </ul>
      )}
    </figure>
  );
}
