import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { setImmediate } from "node:timers/promises";
import { LINE } from "../../bench/answer.ts";
import type { Entrant } from "../../bench/against/entrants.ts";
import type { Figures, Job } from "../../bench/against/job.ts";
import { OTHERS } from "../../bench/against/others.ts";
import { LAPS, race } from "../../bench/against/race.ts";
import { runJob } from "../../bench/against/run.ts";
import { CHART, formatStandings, PAGE, replaceMarked } from "../../bench/against/standings.ts";
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

/** Two short laps with a program of JavaScript. */
function jobOf(script: string): Job {
  const tag = `test-${process.pid}-${++jobs}.`;
  const env = { PATH: process.env["PATH"] ?? "", BENCH_RACE: tag };
  return {
    peer: { file: process.execPath, args: ["-e", script], env },
    face: { kind: "stdio" },
    tool: "echo",
    laps: [1, 4].map((flight) => ({ name: `${flight}`, flight, lines: 1 })),
    warmUp: 0,
    duration: 10,
    tag: `BENCH_RACE=${tag}`,
    server: "",
  };
}

const COURSE = { rounds: 2, warmUp: 0, duration: 0 };

describe("the comparison with others", () => {
  it("describes every program with the version that is pinned", () => {
    const page = read("bench/README.md");
    const missing = OTHERS.filter(({ name, version, source }) => {
      const cells = [name, version, source].map((cell) => `\\| ${cell} +`).join("");
      return !new RegExp(`^${cells}\\|`, "m").test(page);
    });
    assert.deepEqual(missing, []);
    for (const { name, version } of OTHERS) assert.match(version, /^\d+\.\d+\.\d+$/, name);
  });

  it("has a place in docs/benchmarks.md, and the chart if that shows one", () => {
    const page = read(PAGE);
    assert.match(replaceMarked(page, "so"), /begin -->\n\nso\n\n<!--/);
    if (page.includes(`](${basename(CHART)})`)) assert.match(read(CHART), /^<svg[\s\S]*toolmux/);
  });

  it("leaves a text alone that has no place for it", () => {
    assert.throws(() => replaceMarked("<!-- peers: end --><!-- peers: begin -->", "so"), /no <!--/);
  });

  it("says why one was not measured, once, and measures nothing of it", async () => {
    let entered = 0;
    const entrant: Entrant = {
      name: "absent",
      version: "1.2.3",
      enter: () => {
        entered++;
        return Promise.reject(new Error("/usr/bin/go install failed:\n no such module"));
      },
    };
    const said: string[] = [];
    const standings = await race([entrant], COURSE, (text) => void said.push(text));
    const why = "go install failed: no such module";
    assert.deepEqual(standings, [{ name: "absent", version: "1.2.3", laps: {}, fault: why }]);
    assert.deepEqual([said, entered], [[`absent: ${why}`], 1]);
    const table = formatStandings("stdio", standings);
    assert.match(table, /absent 1\.2\.3 +skipped/);
    assert.match(table, new RegExp(`NOT MEASURED: absent 1\\.2\\.3: ${why}`));
  });

  it("measures one that answers rightly, lap by lap", { skip }, async () => {
    const reported: Figures[] = [];
    await runJob(jobOf(HONEST), (figures) => void reported.push(figures));
    assert.equal(reported.length, 2);
    assert.ok(reported.every(({ calls, rate, p50 }) => calls > 0 && rate > 0 && p50 > 0));
  });

  it("measures nothing of one that answers another's call", { skip }, async () => {
    const reported: Figures[] = [];
    const job = jobOf(HONEST.replace("${key} ", "10000001 "));
    await assert.rejects(
      runJob(job, (figures) => void reported.push(figures)),
      /not the answer/,
    );
    assert.deepEqual(reported, []);
  });

  it("leaves nothing of one that hangs, nor of what left its process group", { skip }, async () => {
    const job = jobOf(`
      const { spawn } = require("node:child_process");
      const sleep = ["-e", "setInterval(() => {}, 1000)"];
      spawn(process.execPath, sleep, { detached: true, stdio: "ignore" }).unref();
      process.stdin.resume();`);
    await assert.rejects(
      runJob(job, () => assert.fail("it has not answered"), 1000),
      /no end within 1\.02 s/,
    );
    // What was killed takes a moment to be gone.
    while (existsSync("/proc") && carriersOf(job.tag).length > 0) await setImmediate();
  });

  it("asks everybody the same, a single small call first", () => {
    const [first] = LAPS;
    assert.deepEqual(first, { name: "one", flight: 1, lines: 1 });
  });
});
