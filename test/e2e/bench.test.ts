import assert from "node:assert/strict";
import { join } from "node:path";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { type CommandOutput, finishCommand } from "../harness/command.ts";
import type { BenchResult, LevelResult } from "../../src/bench/result.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import { type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const ECHO = ["--", executable(), "internal", "echo-server"];
const STALLING = fileURLToPath(new URL("../fixtures/servers/stalling.mjs", import.meta.url));
const NOTHING = { servers: {} };

function start(setup: TestFolder, args: readonly string[]): RawClient {
  const command = new RawClient(executable(), ["bench", "--json", ...args], setup.dir, setup.env);
  command.end();
  return command;
}

/** Runs `toolmux bench --json …` to its end. */
function run(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  return finishCommand(start(setup, args));
}

function read({ stdout }: CommandOutput): BenchResult {
  return JSON.parse(stdout) as BenchResult;
}

function only(output: CommandOutput): LevelResult {
  const level = read(output).subjects[0]?.levels[0];
  assert.ok(level !== undefined, output.stdout + output.stderr);
  return level;
}

describe("bench", () => {
  it("makes as many calls as are wanted, with the hub and without, of a server that it contains", () =>
    withTestFolder(NOTHING, async (setup) => {
      const levels = ["--concurrency", "1,8", "--calls", "100"];
      const output = await run(setup, ...levels, "--compare", "direct");
      assert.deepEqual([output.code, output.stderr], [0, ""]);
      const { subjects, load, overhead } = read(output);
      assert.deepEqual(
        subjects.map(({ kind, levels: found }) => [kind, found.map((one) => one.concurrency)]),
        [
          ["hub", [1, 8]],
          ["server", [1, 8]],
        ],
      );
      for (const { calls, latency, errors, timeline } of subjects.flatMap((one) => one.levels)) {
        assert.deepEqual([calls, latency.count, errors], [100, 100, {}]);
        assert.equal(
          timeline.reduce((sum, span) => sum + span.calls, 0),
          100,
        );
      }
      assert.deepEqual(load.tools, [{ name: "echo", weight: 1, arguments: "{}" }]);
      assert.deepEqual(
        overhead?.map(({ concurrency }) => concurrency),
        [1, 8],
      );
      const [hub, server] = subjects.map((one) => one.levels[1]);
      assert.ok((hub?.hub?.memory ?? 0) > 1e6 && (hub?.server?.memory ?? 0) > 1e6);
      assert.equal(server?.hub, undefined);
    }));

  it("measures a manifest by exposed names, and the same tool of its server alone, in the modern era where that is wanted", () =>
    withTestFolder(
      { servers: { e: { command: executable(), args: ["internal", "echo-server"] } } },
      async (setup) => {
        const args = ["--config", setup.config, "--concurrency", "2", "--calls", "40"];
        const tool = ["--tool", "e__echo", "--args", '{"text":"hé","size":3}'];
        const modern = ["--era", "modern", "--compare", "direct"];
        const output = await run(setup, ...args, ...tool, ...modern);
        assert.deepEqual([output.code, output.stderr], [0, ""]);
        const { subjects, load } = read(output);
        assert.equal(load.tools[0]?.name, "e__echo");
        assert.deepEqual(
          subjects.map(({ name, levels: [level] }) => [
            name.split(" ")[0],
            level?.calls,
            level?.errors,
          ]),
          [
            ["toolmux,", 40, {}],
            [executable(), 40, {}],
          ],
        );
        const wrong = await run(setup, "--config", setup.config, "--tool", "e__ecko");
        assert.equal(wrong.code, 2);
        assert.match(wrong.stderr, /no tool "e__ecko"\. Did you mean "e__echo"\?/);
      },
    ));

  it("charges a stall to all calls that were due meanwhile, if they are due at a rate", () =>
    withTestFolder(NOTHING, async (setup) => {
      const server = ["--", process.execPath, STALLING, "--at", "10", "--for", "400"];
      const load = ["--rate", "200", "--calls", "120", "--concurrency", "4", "--warm-up", "0"];
      const level = only(await run(setup, ...load, ...server));
      assert.deepEqual([level.calls, level.errors], [120, {}]);
      // Eighty calls fell due; four at most were in flight.
      assert.ok(level.latency.p90 > 200_000, `p90 ${level.latency.p90}`);
      assert.ok((level.service?.p90 ?? Infinity) < level.latency.p90 / 2);
    }));

  it("kills the server, counts what is lost, and goes on with the next", () =>
    withTestFolder(NOTHING, async (setup) => {
      const load = ["--duration", "2s", "--concurrency", "4", "--warm-up", "0"];
      // Calls that last leave the processor to the others.
      const chaos = ["--kill-every", "500ms", "--delay", "20ms"];
      const output = await run(setup, ...load, ...chaos, ...ECHO);
      assert.equal(output.code, 0, output.stderr);
      const { kills, errors, calls } = only(output);
      assert.ok(kills !== undefined && kills.count >= 1 && calls > 0, output.stdout);
      assert.ok(kills.recovery !== null && kills.recovery.count >= 1);
      assert.ok(kills.lost > 0 && kills.lost <= 4 * kills.count);
      assert.deepEqual(Object.keys(errors), ["connection lost"]);
      assert.equal(errors["connection lost"]?.count, kills.lost);
    }));

  it("cancels calls, and sees when the server hears of it, behind a hub as well", () =>
    withTestFolder(NOTHING, async (setup) => {
      const load = ["--calls", "20", "--concurrency", "4", "--warm-up", "0"];
      const chaos = ["--cancel-rate", "1", "--delay", "400ms", "--compare", "direct"];
      const output = await run(setup, ...load, ...chaos, ...ECHO);
      // No call was answered.
      assert.equal(output.code, 1, output.stderr);
      for (const { levels } of read(output).subjects) {
        const { calls, errors, cancels } = levels[0] ?? only(output);
        assert.deepEqual([calls, errors], [0, {}]);
        assert.deepEqual([cancels?.count, cancels?.seen], [20, 20]);
        assert.equal(cancels?.latency?.count, 20);
      }
    }));

  it("calls several tools by weight, saves the result, compares with it, and fails by rules", () =>
    withTestFolder({ servers: { s: scripted() } }, async (setup) => {
      const file = join(setup.dir, "saved.json");
      const load = ["--config", setup.config, "--concurrency", "2", "--calls", "40"];
      const tools = ["--tool", "s__echo=3", "--tool", "s__fail"];
      const args = [...load, "--warm-up", "0", ...tools];
      const saved = await run(setup, ...args, "--save", file, "--fail-if", "errors<1");
      assert.equal(saved.code, 0, saved.stderr);
      assert.deepEqual(
        only(saved).tools?.map(({ name, calls, errors }) => [name, calls, errors]),
        [
          ["s__echo", 30, 0],
          ["s__fail", 0, 10],
        ],
      );
      const rules = ["--fail-if", "p50>0us", "--fail-if", "calls<1"];
      const judged = await run(setup, ...args, "--against", file, ...rules);
      assert.equal(judged.code, 1);
      assert.match(judged.stderr, /--fail-if "p50>0us": p50 was .* with 2 in flight\./);
      const { comparison, rules: verdicts } = JSON.parse(judged.stdout);
      assert.deepEqual(
        [
          comparison.despite,
          comparison.levels[0].concurrency,
          comparison.levels[0].metrics[0].metric,
        ],
        [[], 2, "rate"],
      );
      assert.deepEqual(
        verdicts.map(({ isBroken }: { readonly isBroken: boolean }) => isBroken),
        [true, false],
      );
      // It is refused before anything is measured.
      const other = ["--config", setup.config, "--against", file, "--tool", "s__echo"];
      const refused = await run(setup, ...other, "--concurrency", "2", "--calls", "40");
      assert.equal(refused.code, 2);
      assert.match(refused.stderr, /another load: [\s\S]*--despite load/);
      const accepted = await run(
        setup,
        ...other,
        "--despite=load",
        "--concurrency=2",
        "--calls=10",
        "--warm-up=0",
      );
      assert.equal(accepted.code, 0, accepted.stderr);
    }));

  it("tells what there is when it is interrupted, and leaves nothing behind", () =>
    withTestFolder({ servers: { s: scripted() } }, async (setup) => {
      const load = ["--concurrency", "2", "--duration", "60s", "--warm-up", "0"];
      const tool = ["--config", setup.config, "--tool", "s__echo"];
      const command = start(setup, [...tool, ...load]);
      const calls = (): number => setup.log("s").filter(({ event }) => event === "call").length;
      await poll(
        10_000,
        () => `twenty calls; there were ${calls()}: ${command.stderr}`,
        () => (calls() >= 20 ? true : undefined),
      );
      command.signal("SIGINT");
      const output = await finishCommand(command);
      assert.equal(output.code, 130, output.stderr);
      // Two were in flight at most.
      assert.ok(only(output).calls >= 18);
    }));

  it("ends with what a wrong use, or a server that cannot be started, ends with", () =>
    withTestFolder(NOTHING, async (setup) => {
      const cases: [args: string[], code: number, stderr: RegExp][] = [
        [["--url", "http://127.0.0.1:9/mcp", "--delay", "1s"], 2, /--delay .*--url/],
        [["--", "/no/such/server"], 3, /does not exist/],
        [["--compare", "direct", "--", "/no/such/server"], 3, /bench without --compare/],
        [["--tool", "nope", ...ECHO], 2, /no tool "nope".* echo\./],
      ];
      for (const [args, code, stderr] of cases) {
        const output = await run(setup, ...args);
        assert.equal(output.code, code, args.join(" "));
        assert.deepEqual(Object.keys(JSON.parse(output.stdout) as object), ["error"]);
        assert.match(output.stderr, stderr);
      }
    }));
});
