import assert from "node:assert/strict";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { type TestFolder, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

function run(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  return runCommand(setup, args);
}

describe("commands", () => {
  const MANIFEST = { servers: { a: scripted(), b: scripted("--bare --tool only") } };

  it("version says the version", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { code, stdout } = await run(setup, "version");
      assert.equal(code, 0);
      assert.match(stdout, /\d+\.\d+\.\d+/);
    }));

  it("internal is not listed, and refused with 2 unless toolmux itself starts it", () =>
    withTestFolder(MANIFEST, async (setup) => {
      for (const args of [
        ["internal"],
        ["internal", "other"],
        ["internal", "demo-server", "other"],
        ["internal", "echo-server", "more"],
        ["internal", "stdio-proxy"],
        ["internal", "stdio-proxy", setup.dir, "soon", "true"],
      ]) {
        const { code, stdout } = await run(setup, ...args);
        assert.equal(code, 2, args.join(" "));
        assert.equal(stdout, "");
      }
      const { stdout } = await run(setup, "help");
      assert.ok(!stdout.includes("internal"));
    }));

  it("list shows every tool by the name that clients see", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { code, stdout } = await run(setup, "list", "--config", setup.config);
      assert.equal(code, 0);
      for (const name of ["a__echo", "a__sleep", "b__only"]) assert.ok(stdout.includes(name), name);
    }));

  it("list --json is JSON", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { code, stdout } = await run(setup, "list", "--json", "--config", setup.config);
      assert.equal(code, 0);
      assert.ok(JSON.stringify(JSON.parse(stdout)).includes('"b__only"'));
    }));

  it("call sends key=value arguments and prints the answer; --json sends JSON as it is", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const pairs = await run(setup, "call", "a__echo", "word=hello", "--config", setup.config);
      assert.equal(pairs.code, 0);
      assert.match(pairs.stdout, /hello/);
      const json = await run(
        setup,
        "call",
        "a__echo",
        "--json",
        '{"n":1.0,"big":1234567890123456789}',
        "--config",
        setup.config,
      );
      assert.equal(json.code, 0);
      assert.match(json.stdout, /1234567890123456789/);
      const only = setup.log("a").findLast(({ tool }) => tool === "echo");
      assert.equal(only?.arguments, '{"n":1.0,"big":1234567890123456789}');
    }));

  it("call ends with 1 when the tool fails, 2 when there is no such tool, 3 when its server cannot be reached, 124 when time is up", () =>
    withTestFolder(
      {
        defaults: { callTimeout: "300ms" },
        servers: { a: scripted(), broken: scripted("--exit-at-once") },
      },
      async (setup) => {
        const codes = [];
        for (const tool of ["a__fail", "a__error", "a__no-such", "broken__echo", "a__hang"]) {
          codes.push([tool, (await run(setup, "call", tool, "--config", setup.config)).code]);
        }
        assert.deepEqual(codes, [
          ["a__fail", 1],
          ["a__error", 1],
          ["a__no-such", 2],
          ["broken__echo", 3],
          ["a__hang", 124],
        ]);
      },
    ));

  it("check tells a good manifest from a bad one", () =>
    withTestFolder(MANIFEST, async (setup) => {
      assert.equal((await run(setup, "check", "--config", setup.config)).code, 0);
    }));

  it("check and serve name every problem of a manifest, start nothing, and end with 2", () =>
    withTestFolder(
      '[servers.a]\ncomand = "x"\n\n[servers.b]\ncommand = "y"\ncallTimeout = "soon"\n\n[hub]\nnme = "x"\n',
      async (setup) => {
        for (const command of ["check", "serve", ""]) {
          const args = [command, "--config", setup.config].filter(Boolean);
          const { code, stdout, stderr } = await run(setup, ...args);
          assert.equal(code, 2, command);
          assert.match(stderr, /comand[^]*command[^]*callTimeout[^]*nme/, command);
          assert.equal(stdout, "", command);
        }
      },
    ));
});
