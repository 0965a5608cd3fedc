import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { setImmediate } from "node:timers/promises";
import { LINE } from "../../bench/answer.ts";
import { type Job, measure } from "../../bench/against/measure.ts";
import { PROGRAMS } from "../../bench/against/programs.ts";
import { CHART, formatResults, PAGE, replaceMarked } from "../../bench/against/report.ts";
import { type Candidate, compare, compareWithCompiled, judgeRivals } from "../../bench/peers.ts";
import { carriersOf } from "../soak/processes.ts";

const read = (file: string): string =>
  readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
/** The load client is a program for bun. */
const skip = "Bun" in globalThis ? false : "runs on bun only";
/** A server that answers as it should. */
const HONEST = `
  const { createInterface } = require("node:readline");
  createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) return;
    const { key } = params.arguments ?? {};
    const text = \`\${key} ${JSON.stringify(LINE).slice(1, -1)}\`;
    const result =
      method === "tools/call"
        ? { content: [{ type: "text", text }] }
        : { tools: [{ name: "echo" }] };
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n");
  });`;
let jobs = 0;

/** A short scenario with a program of JavaScript. */
function jobOf(script: string, flight = 1): Job {
  const tag = `test-${process.pid}-${++jobs}.`;
  const env = { PATH: process.env["PATH"] ?? "", BENCH_RUN: tag };
  return {
    command: { file: process.execPath, args: ["-e", script], env },
    endpoint: { kind: "stdio" },
    tool: "echo",
    scenario: { name: "small", flight, lines: 1 },
    warmUp: 0,
    duration: 10,
    tag: `BENCH_RUN=${tag}`,
    server: "",
  };
}

const DURATION = { rounds: 2, warmUp: 0, duration: 0 };

describe("the comparison with others", () => {
  it("describes every program with the version that is pinned", () => {
    const page = read("bench/README.md");
    const missing = PROGRAMS.filter(({ name, version, source }) => {
      const [from = ""] = source.split(" (");
      const cells = [name, version, from].map((cell) => `\\| ${cell} +`).join("");
      return !new RegExp(`^${cells}\\|`, "m").test(page);
    });
    assert.deepEqual(missing, []);
    for (const { name, version } of PROGRAMS) assert.match(version, /^\d+\.\d+\.\d+$/, name);
  });

  it("has a place in docs/benchmarks.md, and the chart if that shows one", () => {
    const page = read(PAGE);
    assert.match(replaceMarked(page, "so"), /begin -->\n\nso\n\n<!--/);
    if (page.includes(`](${basename(CHART)})`)) assert.match(read(CHART), /^<svg[\s\S]*toolmux/);
  });

  it("says why one was not measured, once, and measures nothing of it", async () => {
    let prepared = 0;
    const candidate: Candidate = {
      name: "absent 1.2.3",
      prepare: () => {
        prepared++;
        return Promise.reject(new Error("/usr/bin/go install failed:\n no such module"));
      },
    };
    const said: string[] = [];
    const results = await compare([candidate], DURATION, (text) => void said.push(text));
    const why = "go install failed: no such module";
    const [result, ...others] = results;
    assert.deepEqual([result?.name, result?.figures, result?.fault], ["absent 1.2.3", {}, why]);
    assert.deepEqual([said, prepared, others], [[`absent 1.2.3: ${why}`], 1, []]);
    const table = formatResults("stdio", results);
    assert.match(table, /absent 1\.2\.3 +skipped/);
    assert.match(table, new RegExp(`NOT MEASURED: absent 1\\.2\\.3: ${why}`));
  });

  it("judges the CPU of calls by the nearest compiled program, and says loudly if there is none", async () => {
    const absent = { name: "rival 1.0.0", isCompiled: true };
    const candidates = [{ name: "toolmux 1.0.0" }, absent, { name: "slow 1.0.0" }].map((one) => {
      return { ...one, prepare: () => Promise.reject(new Error("no compiler")) };
    });
    const asked: string[] = [];
    const { text, isMissed } = await compareWithCompiled(candidates, DURATION, (line) =>
      asked.push(line),
    );
    assert.equal(isMissed, undefined);
    assert.match(text, /NOT JUDGED[\s\S]*NOT MEASURED: rival 1\.0\.0: no compiler/);
    assert.deepEqual(asked, ["rival 1.0.0: no compiler"]);
  });

  it("misses the goal only if the whole interval of the nearest compiled program lies below it", () => {
    const judge = (...all: (readonly [name: string, ratios: readonly number[]])[]) =>
      judgeRivals(all.map(([name, ratios]) => ({ name, ratios })));
    const clear = Array.from({ length: 15 }, (_, at) => 1.5 + at / 100);
    const noisy = Array.from({ length: 15 }, (_, at) => 1.2 + at / 10);
    assert.equal(judge(["a", clear]).isMissed, true);
    assert.equal(judge(["a", noisy]).isMissed, false);
    assert.equal(judge(["far", noisy.map((ratio) => ratio * 4)], ["near", clear]).isMissed, true);
    assert.equal(judge(["a", [Number.NaN]]).isMissed, undefined);
  });

  it("measures one that answers rightly", { skip }, async () => {
    for (const flight of [1, 4]) {
      const { calls, rate, p50 } = await measure(jobOf(HONEST, flight));
      assert.ok(calls > 0 && rate > 0 && p50 > 0);
    }
  });

  it("measures nothing of one that answers another's call", { skip }, async () => {
    const job = jobOf(HONEST.replace("${key} ", "${Number(key) + 1} "));
    await assert.rejects(measure(job), /^Error: not the answer/);
  });

  it("leaves nothing of one that hangs, nor of what left its process group", { skip }, async () => {
    const job = jobOf(`
      const { spawn } = require("node:child_process");
      const sleep = ["-e", "setInterval(() => {}, 1000)"];
      spawn(process.execPath, sleep, { detached: true, stdio: "ignore" }).unref();
      process.stdin.resume();`);
    await assert.rejects(measure(job, 1000), /did not end within 1\.01 s/);
    // What was killed takes a moment to be gone.
    while (existsSync("/proc") && carriersOf(job.tag).length > 0) await setImmediate();
  });
});
