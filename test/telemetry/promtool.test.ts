import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

/** What `promtool check` says, with its exit code. @param input for its stdin */
async function check(args: readonly string[], input = ""): Promise<readonly [number, string]> {
  const child = spawn(PROMTOOL, ["check", ...args], { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.end(input);
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
    assert.deepEqual(await check(["metrics"], metrics), [0, ""]);
    assert.match(metrics, /^toolmux_limits_refused_total\{limit="rate"\} 1$/m);
    const [code] = await check(["metrics"], metrics.replaceAll("_total{", "{"));
    assert.notEqual(code, 0);
  });

  it("understands every query of the dashboard for Grafana", { skip }, async () => {
    const file = new URL("../../docs/grafana/toolmux.json", import.meta.url);
    const { panels } = JSON.parse(readFileSync(file, "utf8")) as {
      readonly panels: readonly { readonly targets?: readonly { readonly expr: string }[] }[];
    };
    const queries = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    const filled = queries.map((query) =>
      query.replace(/\$__\w+/g, "5m").replace(/\$[a-z]\w*/g, ".*"),
    );
    const rules = filled.map((expr, at) => ({ record: `query_${at}`, expr }));
    const folder = mkdtempSync(join(tmpdir(), "tmx-"));
    // YAML has all of JSON.
    const path = join(folder, "rules.yml");
    writeFileSync(path, JSON.stringify({ groups: [{ name: "g", rules }] }));
    const [code, said] = await check(["rules", path]);
    rmSync(folder, { recursive: true });
    assert.equal(code, 0, said);
    assert.match(said, new RegExp(`${queries.length} rules found`));
  });

  it("can read the configuration of the example", { skip }, async () => {
    const path = new URL("../../examples/telemetry/prometheus.yml", import.meta.url);
    const [code, said] = await check(["config", fileURLToPath(path)]);
    assert.equal(code, 0, said);
  });
});
