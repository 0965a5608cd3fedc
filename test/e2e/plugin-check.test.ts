import assert from "node:assert/strict";
import { appendFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { type TestFolder, it, withTestFolder } from "../harness/hub.ts";

function run(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  return runCommand(setup, args);
}

/** Writes a plugin that leaves a trace when it is loaded. @returns whether it has been. */
function writePlugin(path: string, name: string): () => boolean {
  const trace = `${path}.loaded`;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(
    path,
    `import { writeFileSync } from "node:fs";
     writeFileSync(${JSON.stringify(trace)}, "");
     export default { name: ${JSON.stringify(name)}, setup: () => ({}) };`,
  );
  return () => existsSync(trace);
}

const use = (name: string, more = "") => `[[plugins]]\nuse = "${name}"\n${more}`;

describe("check", () => {
  it("names all plugins and the code that would be loaded for them, and loads none of it", () =>
    withTestFolder(
      use("audit-log", 'options = { file = "calls.jsonl" }\n') + use("./own.mjs") + use("@me/wide"),
      async (setup) => {
        const own = join(setup.dir, "own.mjs");
        const wide = join(setup.dir, "node_modules/@me/wide/index.mjs");
        const isLoaded = [writePlugin(own, "own"), writePlugin(wide, "wide")];
        const about = { name: "@me/wide", version: "1.0.0", type: "module", main: "index.mjs" };
        writeFileSync(join(dirname(wide), "package.json"), JSON.stringify(about));

        const { code, stdout, stderr } = await run(setup, "check", "--config", setup.config);
        assert.deepEqual([code, stderr], [0, ""]);
        assert.deepEqual(stdout.split("\n"), [
          `manifest: ${setup.config}`,
          "plugin audit-log: built in",
          `plugin ./own.mjs: code that is loaded from ${own}`,
          `plugin @me/wide: a package, code that is loaded from ${wide}`,
          "check does not load the code of plugins, so it does not check their options.",
          "no problems; 0 servers; 3 plugins",
          "",
        ]);
        assert.deepEqual(
          isLoaded.map((look) => look()),
          [false, false],
        );

        await run(setup, "list", "--config", setup.config);
        assert.deepEqual(
          isLoaded.map((look) => look()),
          [true, true],
          "not even when they are used",
        );
      },
    ));

  it("checks the options of plugins that are built in, and no others", () =>
    withTestFolder(
      use("audit-log", "options.fle = 1\n") + use("./own.mjs", "options.any = 1\n"),
      async (setup) => {
        writePlugin(join(setup.dir, "own.mjs"), "own");
        const { code, stdout, stderr } = await run(setup, "check", "--config", setup.config);
        assert.deepEqual([code, stdout], [2, ""]);
        const problem = `${setup.config}:3:9: plugins[0].options.fle: unknown key; did you mean "file"?`;
        assert.ok(stderr.startsWith(`${problem}\n`), stderr);
        assert.match(stderr, /\ntoolmux: 1 problem; [^\n]+\n$/);
      },
    ));

  it("finds a plugin that is not there", () =>
    withTestFolder(use("audit-lg") + use("./none.ts"), async (setup) => {
      const files = await run(setup, "check", "--config", setup.config);
      assert.equal(files.code, 2);
      assert.match(files.stderr, /:4:7: plugins\[1\]\.use: .*none\.ts does not exist\n/);
      writeFileSync(setup.config, use("audit-lg"));
      const { code, stderr } = await run(setup, "check", "--config", setup.config);
      assert.equal(code, 2);
      const problem = `plugins[0].use: there is no built-in plugin "audit-lg", and no package of that name for ${setup.dir}; did you mean "audit-log"?`;
      assert.ok(stderr.startsWith(`${setup.config}:2:7: ${problem}\n`), stderr);
      const served = await run(setup, "serve", "--config", setup.config);
      assert.equal(served.code, 2);
      assert.ok(served.stderr.includes(problem), served.stderr);
    }));

  it("finds a server of a plugin that is not there, as serve does", () =>
    withTestFolder('[servers.a]\nplugin = "cach"\n', async (setup) => {
      const commands = ["check", "serve"] as const;
      const problem = `${setup.config}:2:10: servers.a.plugin: there is no plugin "cach"`;
      const fails = async (command: "check" | "serve", advice: string): Promise<void> => {
        const { code, stderr } = await run(setup, command, "--config", setup.config);
        // It costs only itself: the hub serves without it.
        assert.equal(code, command === "check" ? 2 : 0);
        assert.ok(stderr.includes(`${problem}${advice}\n`), stderr);
      };
      for (const command of commands) await fails(command, ": [[plugins]] names none");
      appendFileSync(setup.config, use("cache"));
      for (const command of commands) await fails(command, '; did you mean "cache"?');
      writePlugin(join(setup.dir, "own.mjs"), "own");
      appendFileSync(setup.config, use("./own.mjs"));
      assert.equal((await run(setup, "check", "--config", setup.config)).code, 0);
      await fails("serve", '; did you mean "cache"?');
    }));
});

describe("a manifest in the working directory with a plugin", () => {
  it("has it loaded only once the manifest is trusted, which says what that allows", () =>
    withTestFolder(use("./own.mjs") + use("audit-log"), async (setup) => {
      const own = join(setup.dir, "own.mjs");
      const isLoaded = writePlugin(own, "own");
      const config = join(setup.dir, "config/toolmux/toolmux.toml");
      mkdirSync(dirname(config));
      writeFileSync(config, "");
      for (const command of ["list", "check", "status"]) await run(setup, command);
      assert.ok(!isLoaded());

      const { code, stdout } = await run(setup, "trust", "toolmux.toml");
      assert.equal(code, 0);
      assert.match(stdout, /\nand loads these plugins.*:\n/);
      assert.ok(stdout.includes(`\n  ./own.mjs: code that is loaded from ${own}\n`), stdout);
      assert.match(stdout, /\n {2}audit-log: built in\n/);
      assert.ok(!isLoaded());

      appendFileSync(setup.config, "# changed\n");
      await run(setup, "list");
      assert.ok(!isLoaded());
      await run(setup, "trust", "toolmux.toml");
      await run(setup, "list");
      assert.ok(isLoaded());
    }));
});
