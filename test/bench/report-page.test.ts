import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { Script } from "node:vm";
import type { BenchResult } from "../../src/bench/result.ts";
import { chartTable, type Chart, drawCharts } from "../../src/bench/report/charts.ts";
import { formatHtmlReport } from "../../src/bench/report/html.ts";
import * as units from "../../src/bench/report/tables.ts";
import {
  comparisonResult,
  latencyOf,
  levelResultOf,
  benchResultOf,
  subjectResultOf,
} from "../fixtures/bench-results.ts";

const HOSTILE = `</script><script>alert(1)</script><img src=x onerror='alert(2)'>--><!-- " & \u2028`;

const FORMATS = {
  time: units.formatTime,
  rate: units.formatRate,
  count: units.formatCount,
  bytes: units.formatBytes,
  moment: units.formatMoment,
  nines: units.formatNines,
};

/** A result in which others have said this wherever they can. */
function saying(text: string): BenchResult {
  const level = levelResultOf(4, 100, { errors: { [text]: { count: 1, example: text } } });
  const result = benchResultOf([subjectResultOf("server", [level, levelResultOf(8, 100)], text)]);
  return {
    ...result,
    load: {
      ...result.load,
      tools: [{ name: text, weight: 1, arguments: JSON.stringify({ text }) }],
    },
    machine: { ...result.machine, cpu: text },
  };
}

/** The names of a document's elements in order, as far as its head and body are markup. */
function tagsOf(html: string): string[] {
  const markup = html
    .replaceAll(/<!--[\s\S]*?-->/g, "")
    .replaceAll(/(<(script|style)\b[^>]*>)[\s\S]*?(?=<\/\2)/g, "$1");
  return [...markup.matchAll(/<([a-z0-9]+)/g)].map(([, name = ""]) => name);
}

function scriptsOf(html: string): { attributes: string; text: string }[] {
  const scripts = [...html.matchAll(/<script([^>]*)>([\s\S]*?)<\/script/g)];
  return scripts.map(([, attributes = "", text = ""]) => ({ attributes, text }));
}

function embedded(html: string, id: string): unknown {
  const script = scriptsOf(html).find(({ attributes }) => attributes.includes(`id="${id}"`));
  return JSON.parse(script?.text ?? "");
}

describe("the page of a measurement", () => {
  const html = formatHtmlReport(comparisonResult());

  it("reaches for nothing outside of itself", () => {
    const targets = [...html.matchAll(/\b(?:src|href|action|data)="([^"]*)"/g)].map(([, to]) => to);
    assert.deepEqual(targets, ["#result"]);
    const outer = ["link", "img", "iframe", "object", "base"];
    assert.deepEqual(
      tagsOf(html).filter((name) => outer.includes(name)),
      [],
    );
    assert.doesNotMatch(html.replace(/\/\*! https:.* \*\//, ""), /https?:\/\/|@import|url\(/);
  });

  it("lets no script run but its own", () => {
    const own = scriptsOf(html).filter(({ attributes }) => attributes === "");
    assert.equal(own.length, 1);
    const hash = createHash("sha256").update(own[0]?.text ?? "");
    const policy = /Content-Security-Policy" content="([^"]*)"/.exec(html)?.[1];
    const scripts = `script-src 'sha256-${hash.digest("base64")}'`;
    assert.equal(policy, `default-src 'none'; style-src 'unsafe-inline'; ${scripts}`);
    assert.doesNotThrow(() => new Script(own[0]?.text ?? ""));
  });

  it("shows what servers say as text, whatever it is", () => {
    const attacked = formatHtmlReport(saying(HOSTILE));
    assert.deepEqual(tagsOf(attacked), tagsOf(formatHtmlReport(saying("tame"))));
    assert.equal(scriptsOf(attacked).length, 3);
    assert.deepEqual(embedded(attacked, "result"), saying(HOSTILE));
  });

  it("keeps the licence of what draws the charts", () => {
    assert.match(html, /The MIT License \(MIT\)\s+Copyright \(c\) \d+ Leon Sorokin/);
  });

  it("has each number of the text, and each chart as a table too", () => {
    const charts = drawCharts(comparisonResult());
    assert.equal(tagsOf(html).filter((name) => name === "details").length, charts.length);
    for (const said of ["355,556/s", "+8.00 µs", "2.31 µs", "58.1 MB", "14.1 ms"]) {
      assert.ok(html.includes(`>${said}<`) || html.includes(said), said);
    }
  });
});

describe("the charts of a measurement", () => {
  const titles = (result: BenchResult) => drawCharts(result).map(({ title }) => title);

  it("are left out where there is no curve to see", () => {
    const one = levelResultOf(1, 100, { timeline: [] });
    const shown = titles(benchResultOf([subjectResultOf("server", [one])]));
    assert.deepEqual(shown, ["Latency by percentile"]);
    const silent = { ...one, latency: { ...latencyOf(0), count: 0, curve: [] } };
    assert.deepEqual(titles(benchResultOf([subjectResultOf("server", [silent])])), []);
  });

  it("add a span that was cut short to the one before, as its few calls say nothing", () => {
    const spans = [
      [0, 100, 5],
      [1, 150, 6],
      [2, 25, 9],
      [2.25, 80, 4],
    ];
    const timeline = spans.map(([at = 0, calls = 0, p99 = 0]) => {
      return { at, calls, errors: 0, p50: 1, p99 };
    });
    const level = levelResultOf(1, 100, { seconds: 3.05, timeline });
    const result = benchResultOf([subjectResultOf("server", [level])]);
    const pointsOf = (title: string) =>
      drawCharts(result)
        .find((each) => each.title === title)
        ?.curves[0]?.points.map(([x, y]) => [x, Math.round(y)].join());
    assert.deepEqual(pointsOf("Throughput over time"), ["0,100", "1,140", "2.25,100"]);
    assert.deepEqual(pointsOf("p99 over time"), ["0,5", "1,9", "2.25,4"]);
  });

  it("have the same numbers as tables", () => {
    const chart = (title: string): Chart => {
      const found = drawCharts(comparisonResult()).find((each) => each.title === title);
      assert.ok(found);
      return found;
    };
    const rates = chartTable(chart("Throughput"), FORMATS);
    const columns = rates.columns.map(({ title }) => title);
    assert.deepEqual(columns, ["calls in flight", "hub", "direct"]);
    assert.deepEqual(rates.rows[3], ["64", "355,556/s", "374,269/s"]);
    const percentiles = chartTable(chart("Latency by percentile"), FORMATS);
    const median = percentiles.rows.find(([at]) => at === "50%");
    assert.deepEqual(median?.slice(0, 2), ["50%", "66.0 µs"]);
  });
});
