import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { text } from "node:stream/consumers";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";
import { callTool, initialize, ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";

const FETCHED = fileURLToPath(new URL("../../dist/promtool/promtool", import.meta.url));
const PROMTOOL = existsSync(FETCHED) ? FETCHED : "promtool";
const skip = skipWithout({
  isMet: PROMTOOL === FETCHED || missingPrograms(["promtool"]).length === 0,
  tests: "metrics with promtool",
  remedy: "there is no promtool (apt-get install prometheus, or node scripts/promtool.mjs)",
});

/** What `promtool check metrics` says of a text, with its exit code. */
async function check(metrics: string): Promise<readonly [number, string]> {
  const child = spawn(PROMTOOL, ["check", "metrics"], { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.end(metrics);
  const [[code], ...output] = await Promise.all([
    once(child, "exit") as Promise<[number]>,
    text(child.stdout),
    text(child.stderr),
  ]);
  return [code, output.join("")];
}

describe("promtool of Prometheus", () => {
  it("finds nothing wrong with the metrics of a hub", { skip }, async () => {
    const a = new ScriptedServer("x", "y");
    let count = 0;
    a.onCall = () =>
      ++count % 2 === 0 ? '"error":{"code":-32602,"message":"no"}' : '"result":{"content":[]}';
    const limits = { rate: { count: 3, per: 3_600_000 } };
    const { hub, client } = setUpHub({ a }, { servers: { a: { limits } } });
    await hub.readMetrics(null);
    await initialize(client);
    for (const tool of ["x", "y", "x", "y"]) await callTool(client, `a__${tool}`);
    hub.setRefusedClients([{ client: 'a "quoted" \\ name\n', text: "No." }]);
    await hub.stop("a");
    const { text: metrics } = await hub.readMetrics(null);
    assert.deepEqual(await check(metrics), [0, ""]);
    assert.match(metrics, /^toolmux_limits_refused_total\{limit="rate"\} 1$/m);
    const [code] = await check(metrics.replaceAll("_total{", "{"));
    assert.notEqual(code, 0);
  });
});
