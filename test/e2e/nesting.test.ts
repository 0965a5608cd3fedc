import assert from "node:assert/strict";
import { chmodSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  closeClient,
  executable,
  it,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted, type ServerEntry, toToml } from "../harness/manifest.ts";
import { pidsWithEnv, commandLineOf, environmentOf } from "../harness/processes.ts";

function run(setup: TestFolder, args: readonly string[], env = {}): Promise<CommandOutput> {
  return runCommand(setup, args, { env });
}

/**
 * The hubs that run in a stage: processes whose command line says `serve`. Until a new process executes its program, command
 * line and environment are those of the hub that starts it, while the environment of another hub names the hubs above it.
 */
function hubsIn(setup: TestFolder): number {
  const pids = pidsWithEnv(setup.dir).filter((pid) => / serve(?: |$)/.test(commandLineOf(pid)));
  return new Set(pids.map((pid) => `${commandLineOf(pid)}\n${environmentOf(pid).join("\n")}`)).size;
}

/** The most hubs that ran at once while something was done, seen every few ms. */
async function mostHubs(setup: TestFolder, work: () => Promise<void>, pause = 50): Promise<number> {
  let most = 0;
  const look = setInterval(() => (most = Math.max(most, hubsIn(setup))), pause);
  try {
    await work();
    return Math.max(most, hubsIn(setup));
  } finally {
    clearInterval(look);
  }
}

function serve(setup: TestFolder, args: readonly string[] = [], env = {}): RawClient {
  return new RawClient(executable(), ["serve", ...args], setup.dir, { ...setup.env, ...env });
}

/** A toolmux that is started by another one's manifest. */
function mux(...args: readonly string[]): ServerEntry {
  return { command: executable(), args: ["serve", ...args] };
}

/** Writes down what the servers of a manifest get as the list of hubs above them. */
function witness(dir: string): ServerEntry {
  return { command: "sh", args: ["-c", `printf %s "$TOOLMUX_HUBS" > '${join(dir, "above")}'`] };
}

/** What servers of the stage's manifest get as that list; it has a witness. */
async function listAbove(setup: TestFolder): Promise<string> {
  await run(setup, ["status", "--config", setup.config]);
  return readFileSync(join(setup.dir, "above"), "utf8");
}

/** Why servers are not there, by their names: codes of errors. */
async function failures(
  setup: TestFolder,
  args: readonly string[],
): Promise<Readonly<Record<string, string>>> {
  const { stdout } = await run(setup, ["status", "--json", ...args]);
  const { servers } = JSON.parse(stdout) as {
    servers: readonly { readonly name: string; readonly error?: { readonly code: string } }[];
  };
  return Object.fromEntries(
    servers.flatMap(({ name, error }) => (error === undefined ? [] : [[name, error.code]])),
  );
}

describe("a hub whose client's file starts toolmux under another name", () => {
  it("drops the entry, which is told, and starts no other hub", () =>
    withTestFolder("", async (setup) => {
      rmSync(setup.config);
      const link = join(setup.dir, "toolmux-linux-x64");
      symlinkSync(executable(), link);
      const plain = join(setup.dir, "multi");
      symlinkSync(executable(), plain);
      const servers = {
        a: { command: link, args: ["serve"] },
        b: { command: plain, args: ["serve"] },
        s: scripted("--bare --tool only"),
      };
      writeFileSync(join(setup.dir, ".mcp.json"), JSON.stringify({ mcpServers: servers }));
      assert.equal((await run(setup, ["trust", ".mcp.json"])).code, 0);
      const most = await mostHubs(setup, async () => {
        const client = serve(setup);
        const tools = await client.initializeAndList();
        assert.deepEqual(
          tools.map(({ name }) => name),
          ["s__only"],
        );
        await closeClient(client);
        for (const name of ["a", "b"]) {
          assert.match(client.stderr, new RegExp(`"${name}" is ignored: it is toolmux itself`));
        }
      });
      assert.equal(most, 1);
    }));
});

describe("a hub that is started by a server of a hub", () => {
  it("is refused if it has the same manifest, and its server has failed for that", () =>
    withTestFolder(
      (dir) => ({ servers: { self: mux("--config", join(dir, "toolmux.toml")), s: scripted() } }),
      async (setup) => {
        const most = await mostHubs(setup, async () => {
          const client = serve(setup, ["--config", setup.config]);
          const tools = await client.initializeAndList();
          assert.ok(tools.length > 0 && tools.every(({ name }) => name.startsWith("s__")));
          await poll(
            10_000,
            () => `the failure of self: ${client.stderr}`,
            () => (/self: .*without end/.test(client.stderr) ? true : undefined),
          );
          await closeClient(client);
        });
        // The refused hub is gone within milliseconds, so that a look may miss it; its server's failure shows that it ran.
        assert.ok(most <= 2, `${most} hubs`);
        const failed = await failures(setup, ["--config", setup.config]);
        assert.deepEqual(failed, { self: "hubLoop" });
      },
    ));

  it("is refused also if a script in between finds the same manifest by itself", () =>
    withTestFolder(
      (dir) => ({ servers: { wrapped: { command: join(dir, "start"), args: [] }, s: scripted() } }),
      async (setup) => {
        const script = join(setup.dir, "start");
        writeFileSync(script, `#!/bin/sh\nexec "${executable()}" serve\n`);
        chmodSync(script, 0o755);
        assert.equal((await run(setup, ["trust", setup.config])).code, 0);
        assert.deepEqual(await failures(setup, []), { wrapped: "hubLoop" });
      },
    ));

  it("says so to its client, and exits with 2", () =>
    withTestFolder(
      (dir) => ({ servers: { w: witness(dir) } }),
      async (setup) => {
        const above = await listAbove(setup);
        assert.match(above, /^\d+:\w+$/);
        const client = serve(setup, ["--config", setup.config], { TOOLMUX_HUBS: above });
        const asked = client.request("initialize", {
          protocolVersion: "2025-11-25",
          capabilities: {},
          clientInfo: { name: "t", version: "1" },
        });
        const { error } = (await asked).json as {
          error?: { code: number; data: { code: string } };
        };
        assert.deepEqual([error?.code, error?.data.code], [-31010, "hubLoop"]);
        client.end();
        assert.equal((await client.waitForExit(EXIT_LIMIT)).code, 2);
      },
    ));

  it("is a server like others if it has another manifest", () =>
    withTestFolder(
      (dir) => ({ servers: { inner: mux("--config", join(dir, "inner.toml")) } }),
      async (setup) => {
        const log = { env: { SCRIPTED_LOG: join(setup.dir, "s.log") } };
        const inner = { servers: { s: scripted("--bare --tool only", log) } };
        writeFileSync(join(setup.dir, "inner.toml"), toToml(inner));
        const client = serve(setup, ["--config", setup.config]);
        const tools = await client.initializeAndList();
        assert.deepEqual(
          tools.map(({ name }) => name),
          ["inner__s__only"],
        );
        const { json } = await client.call("inner__s__only");
        assert.ok("result" in (json as object));
        await closeClient(client);
      },
    ));

  it("is refused if more than eight are above it, whatever their manifests", () =>
    withTestFolder("", async (setup) => {
      const fileOf = (depth: number): string => join(setup.dir, `m${depth}.toml`);
      for (let depth = 0; depth < 11; depth++) {
        const log = { env: { SCRIPTED_LOG: join(setup.dir, `s${depth}.log`) } };
        const s = scripted("--bare --tool only", log);
        const manifest = { servers: { n: mux("--config", fileOf(depth + 1)), s } };
        writeFileSync(fileOf(depth), toToml(manifest));
      }
      const climb = async (): Promise<void> => {
        const client = serve(setup, ["--config", fileOf(0)]);
        const deepest = (): number =>
          Array.from({ length: 11 }, (_, depth) => depth).findLastIndex(
            (depth) => setup.log(`s${depth}`).length > 0,
          );
        await client.initializeAndList();
        await poll(
          30_000,
          () => `the eighth server; there is ${deepest()}: ${client.stderr}`,
          () => (deepest() >= 8 ? true : undefined),
        );
        await closeClient(client);
        assert.equal(deepest(), 8);
      };
      // A look at so many processes takes long, and hubs that are not refused remain.
      const most = await mostHubs(setup, climb, 200);
      // A hub that was refused may still be ending while the next attempt runs.
      assert.ok(most <= 12, `${most} hubs`);
    }));

  it("does not keep commands from being used by one of its servers, but once", () =>
    withTestFolder(
      (dir) => ({ servers: { w: witness(dir), s: scripted("--bare --tool only") } }),
      async (setup) => {
        const above = await listAbove(setup);
        for (const [hubs, code] of [
          [above, 0],
          [`${above},${above}`, 2],
        ] as const) {
          const listed = await run(setup, ["list", "--config", setup.config], {
            TOOLMUX_HUBS: hubs,
          });
          assert.equal(listed.code, code, listed.stderr);
        }
        const load = ["--concurrency", "1", "--calls", "5", "--warm-up", "0", "--tool", "s__only"];
        const bench = ["bench", "--json", "--config", setup.config, ...load];
        const measured = await run(setup, bench, { TOOLMUX_HUBS: above });
        assert.equal(measured.code, 0, measured.stderr);
        const deep = Array.from({ length: 9 }, () => "1:").join(",");
        assert.notEqual((await run(setup, bench, { TOOLMUX_HUBS: deep })).code, 0);
      },
    ));
});
