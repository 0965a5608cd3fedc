import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { isBuiltin } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { after, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { testDashboard } from "../contract/dashboard.ts";
import { testHttpAccess } from "../contract/http-access.ts";
import { RawClient } from "../harness/raw-client.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  closeClient,
  it,
  itWith,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { findNode } from "../harness/node.ts";
import { descendants } from "../harness/processes.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** The Node under which the package and its servers run; "node" if only an older one is there than the tests want. */
const NODE = findNode() ?? "node";

/** For a demo that goes wrong on the way, in ms. */
const LONG = 20_000;

/** What a bundle loads: by a statement, which begins a line or ends one of several lines, or by a call. */
const IMPORT =
  /^(?:(?:import|export|\}).*? from|import) "([^"]+)"|\b(?:import|__require)\("([^"]+)"\)/gm;

/** Everything runs under Node here, the server too. */
const MANIFEST = JSON.stringify({ mcpServers: { a: scripted("", { command: NODE }) } });

describe("the package for Node", () => {
  let place = "";

  /** What npm packs, installed where no other packages are in reach; made when a test first asks. */
  function install(): string {
    if (place === "") {
      place = mkdtempSync(join(tmpdir(), "toolmux-node-"));
      const text = readFileSync(join(ROOT, "package.json"), "utf8");
      const { scripts } = JSON.parse(text) as { scripts: { prepack: string } };
      execute("sh", ["-c", `PATH="$PWD/node_modules/.bin:$PATH" && ${scripts.prepack}`], ROOT);
      // Packs the folder as `npm pack` does, but for the script, and installs the package.
      const options = ["--loglevel=error", "--offline", "--no-save", "--install-links"];
      execute("npm", ["install", ...options, ROOT], place);
    }
    return join(place, "node_modules/toolmux");
  }

  const program = (): string => join(install(), "dist/node/toolmux.js");

  after(() => {
    if (place !== "") rmSync(place, { recursive: true, force: true });
  });

  // It packs and installs.
  itWith({ timeout: 180_000 })(
    "holds the program, README, LICENSE and package.json, and nothing else",
    () => {
      const root = install();
      assert.deepEqual(readdirSync(root).toSorted(), [
        "LICENSE",
        "README.md",
        "dist",
        "package.json",
      ]);
      assert.deepEqual(readdirSync(join(root, "dist")), ["node"]);
      assert.deepEqual(readdirSync(join(root, "dist/node")).toSorted(), ["chunks", "toolmux.js"]);
      const { bin } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
      assert.equal(join(root, bin.toolmux), program());
    },
  );

  it("asks for a Node that has process.getBuiltinModule (22.3) and is maintained, the same one wherever it says so", () => {
    const enginesIn = (text: string): unknown =>
      (JSON.parse(text) as { engines?: { node?: unknown } }).engines?.node;
    const said = enginesIn(readFileSync(join(install(), "package.json"), "utf8"));
    const [, least = "", major, minor] = /^>=((\d+)\.(\d+))$/.exec(String(said)) ?? [];
    assert.ok(Number(major) > 22 || (Number(major) === 22 && Number(minor) >= 3), String(said));
    const lock = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
      packages: Record<string, unknown>;
    };
    assert.equal(enginesIn(JSON.stringify(lock.packages[""])), said);
    assert.ok(
      readFileSync(join(ROOT, "docs/building.md"), "utf8").includes(`Node ${least} or later`),
    );
  });

  it("imports nothing but its own chunks and what Node has", () => {
    const folder = join(install(), "dist/node");
    const files = readdirSync(folder, { encoding: "utf8", recursive: true })
      .map((file) => join(folder, file))
      .filter((file) => statSync(file).isFile());
    const imported = files.flatMap((file) =>
      [...readFileSync(file, "utf8").matchAll(IMPORT)].map(
        ([, from, called]) => from ?? called ?? "",
      ),
    );
    for (const name of ["node:process", "child_process"]) assert.ok(imported.includes(name), name);
    assert.ok(imported.some((name) => name.startsWith("./chunks/")));
    const strange = imported.filter((name) => !/^\.\.?\//.test(name) && !isBuiltin(name));
    assert.deepEqual(strange, []);
  });

  it("runs as a command of the folder that it was installed in", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const link = join(dirname(install()), ".bin/toolmux");
      const command = new RawClient(link, ["version"], setup.dir, withNode(setup.env));
      assert.equal((await command.waitForExit(EXIT_LIMIT)).code, 0);
      assert.match(command.lines[0]?.text ?? "", /^toolmux \d+\.\d+\.\d+ \(node, /);
    }));

  it("serves mcp.json: answers, lists and calls, writes nothing but protocol, leaves nothing, and replays what it has recorded", () =>
    withTestFolder(
      MANIFEST,
      async (setup) => {
        const talk = async (...args: string[]): Promise<string> => {
          const client = start(setup, ...args);
          const tools = await client.initializeAndList();
          assert.ok(tools.some((tool) => tool.name === "a__echo"));
          const isReplay = args[0] === "replay";
          assert.equal(descendants(client.pid).length, isReplay ? 0 : 1);
          const { text } = await client.call("a__echo", '{"n":1.0,"big":1234567890123456789}');
          await closeClient(client);
          assert.equal((await client.exit).code, 0);
          return text;
        };
        const received = await talk("--config", setup.config, "--record", "r.jsonl");
        assert.match(received, /"structuredContent":\{"n":1\.0,"big":1234567890123456789\}/);
        assert.equal(await talk("replay", "r.jsonl", "--speed", "max"), received);
      },
      "mcp.json",
    ));

  // Their manifest is a toolmux.toml.
  describe("serving over HTTP", () => {
    testHttpAccess(() => [NODE, program()]);
  });

  describe("the dashboard", () => {
    testDashboard(() => [NODE, program()], "served");
  });

  it("shows the demo", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const demo = start(setup, "demo");
      const { code } = await demo.waitForExit(LONG);
      const text = demo.lines.map((line) => line.text).join("\n");
      assert.equal(code, 0, text + demo.stderr);
      assert.equal(demo.stderr, "");
      const entry = JSON.parse(text.slice(text.indexOf("\n{")));
      assert.equal(entry.mcpServers.toolmux.args[0], program());
    }));

  function start({ dir, env }: TestFolder, ...args: readonly string[]): RawClient {
    return new RawClient(NODE, [program(), ...args], dir, withNode(env));
  }
});

/** The environment with the Node under test first in PATH. */
function withNode(env: Readonly<Record<string, string>>): Record<string, string> {
  return { ...env, PATH: [dirname(NODE), env["PATH"]].join(delimiter) };
}

/** Runs a command to its end. @returns its stdout. @throws what it said, if it failed. */
function execute(command: string, args: readonly string[], cwd: string): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, encoding: "utf8" });
  if (status !== 0) throw error ?? new Error(`${command} failed: ${stdout}${stderr}`);
  return stdout;
}
