import { useEffect, useRef } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { DrawnChart, UsageChart } from "./charts.ts";
import { type Charts, valueOf } from "./state.ts";
import type { LimitDocument, ToolDocument } from "./documents.ts";
import { count, formatTokens } from "./format.ts";
import { Choice, Empty, Header, Ready } from "./parts.tsx";

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
            <Ready
              key="charts"
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
