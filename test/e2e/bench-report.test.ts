import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { pathToFileURL } from "node:url";
import { runCommand } from "../harness/command.ts";
import type { BenchResult } from "../../src/bench/result.ts";
import { drawCharts } from "../../src/bench/report/charts.ts";
import { skipWithoutChromium, withBrowserPage } from "../harness/chromium.ts";
import { it, itWith, withTestFolder } from "../harness/hub.ts";

/** A measurement that is over at once. */
const QUICK = ["bench", "--calls", "40", "--concurrency", "1,4", "--warm-up", "0"];

describe("what toolmux bench shows", () => {
  it("is a table on stdout, and a line for each level on stderr", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const { code, stdout, stderr } = await runCommand(setup, QUICK);
      assert.equal(code, 0, stderr);
      assert.match(stdout, /\nIN FLIGHT +RATE +P50 .*\n +1 +.* 40 +0\n +4 +.* 40 +0\n/);
      assert.match(stderr, /^toolmux: .*, 1 in flight: .*\ntoolmux: .*, 4 in flight: [^\n]*\n$/);
    }));

  it("cannot be written to what is no file, which is said before anything is measured", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const { code, stdout, stderr } = await runCommand(setup, [...QUICK, "--html", setup.dir]);
      assert.deepEqual({ code, stdout }, { code: 2, stdout: "" });
      assert.ok(stderr.startsWith("toolmux: ") && stderr.includes(setup.dir), stderr);
    }));

  itWith({ skip: skipWithoutChromium })(
    "is a page that draws its charts in a browser, from nothing but itself",
    () =>
      withTestFolder({ servers: {} }, async (setup) => {
        const path = join(setup.dir, "page.html");
        const args = [...QUICK, "--compare", "direct", "--json", "--html", path];
        const { code, stdout, stderr } = await runCommand(setup, args);
        assert.equal(code, 0, stderr);
        assert.equal(statSync(path).mode & 0o777, 0o600);
        const result = JSON.parse(stdout) as BenchResult;
        await withBrowserPage(async (page) => {
          await page.navigate(pathToFileURL(path).href);
          const embedded = await page.evaluate(`document.querySelector("#result").textContent`);
          assert.deepEqual(JSON.parse(String(embedded)), result);
          const titles = await page.evaluate(
            `[...document.querySelectorAll("figure:has(canvas) h2")].map((it) => it.textContent).join()`,
          );
          const charts = drawCharts(result);
          assert.equal(titles, charts.map(({ title }) => title).join());
          const curves = await page.evaluate(
            `[...document.querySelectorAll(".u-series:not(:first-child) .u-label")].map((it) => it.textContent).join()`,
          );
          assert.equal(
            curves,
            charts.flatMap((chart) => chart.curves.map(({ name }) => name)).join(),
          );
          const visible = await page.evaluate(
            `[...document.querySelectorAll(".u-legend")].flatMap((legend) => [...legend.querySelectorAll(".u-series")].filter((it) => it.offsetWidth > 0).slice(0, 1)).map((it) => it.textContent).join()`,
          );
          assert.equal(visible, charts.map((chart) => chart.curves[0]?.name).join());
          assert.match(
            String(await page.evaluate(`document.querySelector("#save").href`)),
            /^blob:/,
          );
          assert.equal(await page.evaluate(`performance.getEntriesByType("resource").length`), 0);
          assert.equal(
            await page.evaluate(`document.documentElement.scrollWidth <= innerWidth`),
            true,
          );
        });
        assert.ok(readFileSync(path).length < 300_000);
      }),
  );
});
