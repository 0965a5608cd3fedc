import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { type MetricDeclaration, METRICS } from "../../src/telemetry/metrics.ts";
import { sampleNamesOf } from "../../src/telemetry/prometheus.ts";

const FILE = new URL("../../docs/grafana/toolmux.json", import.meta.url);

interface Panel {
  readonly title: string;
  readonly gridPos: {
    readonly x: number;
    readonly y: number;
    readonly w: number;
    readonly h: number;
  };
  readonly id: number;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

interface Dashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly definition?: string }[] };
}

const dashboard = JSON.parse(readFileSync(FILE, "utf8")) as Dashboard;
const targets = dashboard.panels.flatMap((panel) => panel.targets ?? []);
const definitions = dashboard.templating.list.flatMap(({ definition }) => definition ?? []);
const queries = [...targets.map(({ expr }) => expr), ...definitions];

/** The samples of each metric by name, with the labels of each. */
const samples = new Map(
  Object.values<MetricDeclaration>(METRICS).flatMap((metric) =>
    sampleNamesOf(metric).map((name) => [
      name,
      [...metric.labels, "instance", ...(name.endsWith("_bucket") ? ["le"] : [])],
    ]),
  ),
);
samples.set("target_info", ["service_name", "service_version", "instance"]);

const namesIn = (query: string): readonly string[] =>
  query.match(/\b(?:mcp|toolmux|target)_\w+/g) ?? [];

describe("the dashboard for Grafana", () => {
  it("asks for metrics that there are, each query for one or more", () => {
    assert.ok(queries.length > 20);
    for (const query of queries) {
      const names = namesIn(query);
      assert.ok(names.length > 0, query);
      for (const name of names) assert.ok(samples.has(name), `${name} in ${query}`);
    }
  });

  it("shows every metric", () => {
    const shown = new Set(queries.flatMap(namesIn));
    for (const metric of Object.values<MetricDeclaration>(METRICS))
      assert.ok(
        sampleNamesOf(metric).some((name) => shown.has(name)),
        metric.name,
      );
  });

  it("selects and groups by labels that the metrics have", () => {
    for (const { expr, legendFormat } of targets) {
      for (const [, name = "", selectors = ""] of expr.matchAll(/(\w+)\{([^}]*)\}/g))
        for (const [, label = ""] of selectors.matchAll(/(\w+)\s*(?:=~|!=|=)/g))
          assert.ok(samples.get(name)?.includes(label), `${label} in ${expr}`);
      const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, labels = ""]) =>
        labels.split(", "),
      );
      for (const label of grouped)
        assert.ok(
          namesIn(expr).every((name) => samples.get(name)?.includes(label)),
          `${label} in ${expr}`,
        );
      for (const [, label = ""] of legendFormat.matchAll(/\{\{(\w+)\}\}/g))
        assert.ok(grouped.includes(label), `${label} in the legend of ${expr}`);
    }
    for (const definition of definitions) {
      const [, name = "", label = ""] = /^label_values\((\w+), (\w+)\)$/.exec(definition) ?? [];
      assert.ok(samples.get(name)?.includes(label), definition);
    }
  });

  it("has panels with ids of their own that do not overlap", () => {
    const { panels } = dashboard;
    assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
    for (const [at, { title, gridPos: a }] of panels.entries()) {
      assert.ok(a.x + a.w <= 24, title);
      for (const { title: other, gridPos: b } of panels.slice(at + 1))
        assert.ok(
          a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y,
          `${title} and ${other}`,
        );
    }
  });
});
