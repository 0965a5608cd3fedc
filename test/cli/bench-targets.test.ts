import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import {
  headerVariables,
  makeBenchFolder,
  type TargetSpec,
  formatManifest,
} from "../../src/host/bench-targets.ts";
import { type BenchCommandOptions, readTarget } from "../../src/cli/bench-options.ts";
import type { CommandContext } from "../../src/cli/command.ts";
import { parseCommand } from "../fixtures/command-line.ts";

const WORLD = { cwd: "/here" } as CommandContext;

function read(...argv: string[]): TargetSpec | undefined {
  return readTarget(parseCommand<BenchCommandOptions>(["bench", ...argv]).invocation, WORLD);
}

function write(target: TargetSpec | undefined): { hub: { listWait: string }; servers: object } {
  assert.ok(target !== undefined);
  return JSON.parse(
    formatManifest(target, { HOME: "/home", TOOLMUX_BENCH_PROXY: "0:/x", "a b": "" }),
  );
}

describe("the server that a bench names", () => {
  it("is started as it would be in a shell, and a hub waits until it has", () => {
    const target = read("--", "./run", "${HOME}");
    assert.deepEqual(target, { kind: "command", command: "/here/run", args: ["${HOME}"] });
    const { hub, servers } = write(target);
    assert.equal(hub.listWait, "60s");
    const run = { command: "/here/run", args: ["$${HOME}"] };
    assert.deepEqual(servers, { server: { ...run, inheritEnv: ["HOME"], prefix: "" } });
  });

  it("gets headers whose values stand in no file", () => {
    const target = read("--url", "http://a/mcp", "--header", "Key: one", "--header", "X-Two: 2: b");
    const { servers } = write(target);
    const [Key, two] = [0, 1].map((at) => `\${env:TOOLMUX_BENCH_HEADER_${at}}`);
    const headers = { Key, "X-Two": two };
    assert.deepEqual(servers, { server: { url: "http://a/mcp", headers, prefix: "" } });
    assert.ok(target !== undefined);
    const variables = { TOOLMUX_BENCH_HEADER_0: "one", TOOLMUX_BENCH_HEADER_1: "2: b" };
    assert.deepEqual(headerVariables(target), variables);
  });

  it("is refused if it cannot be one", () => {
    const wrong: [argv: string[], message: RegExp][] = [
      [["--url", "localhost:80"], /--url .*http:/],
      [["--url", "ftp://a/b"], /--url .*http:/],
      [["--url", "http://a/", "--", "x"], /--url and a command/],
      [["--header", "Key: one"], /--header .*--url/],
      [["--url", "http://a/", "--header", "secret"], /--header .*NAME: VALUE/],
    ];
    for (const [argv, message] of wrong) {
      const refused = { name: "HubError", code: "usage", message };
      assert.throws(() => read(...argv), refused, argv.join(" "));
    }
  });
});

describe("the folder of a bench", () => {
  it("takes the place of those whose bench was killed long ago, and of no other", async () => {
    const parent = mkdtempSync(join(tmpdir(), "folders-"));
    try {
      const { pid } = spawnSync(process.execPath, ["--version"]);
      const killed = `toolmux-bench-${pid}-abc`;
      const recent = `toolmux-bench-${pid}-def`;
      const living = `toolmux-bench-${process.pid}-abc`;
      const foreign = `toolmux-bench-${pid}-abc.txt`;
      const long = new Date(Date.now() - 7_200_000);
      for (const name of [killed, recent, living, foreign]) {
        mkdirSync(join(parent, name, "in"), { recursive: true });
        if (name !== recent) utimesSync(join(parent, name), long, long);
      }
      const made = basename(await makeBenchFolder(parent));
      assert.match(made, new RegExp(`^toolmux-bench-${process.pid}-`));
      assert.deepEqual(readdirSync(parent).sort(), [recent, living, foreign, made].sort());
    } finally {
      rmSync(parent, { recursive: true });
    }
  });
});
