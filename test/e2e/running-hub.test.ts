import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { askHub, findRunningHubs } from "../../src/control/running-hubs.ts";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import {
  type Hub,
  type TestFolder,
  executable,
  it,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

type Json = { readonly [key: string]: unknown };

/** Runs a command on the manifest of the test folder. */
function run(folder: TestFolder, ...args: string[]): Promise<CommandOutput> {
  return runCommand(folder, [...args, "--config", folder.config]);
}

async function json(folder: TestFolder, ...args: string[]): Promise<Json> {
  const { stdout, stderr } = await run(folder, ...args, "--json");
  assert.notEqual(stdout, "", stderr);
  return JSON.parse(stdout) as Json;
}

/** What completions offer after these words. */
async function offered(folder: TestFolder, ...words: string[]): Promise<readonly string[]> {
  const [command = "", ...rest] = words;
  const typed = [command, "--config", folder.config, ...rest];
  const { stdout } = await runCommand(folder, ["internal", "complete", ...typed]);
  return stdout.split("\n").filter(Boolean);
}

/** Waits until the hub's socket is there. */
function socketOf({ env }: TestFolder): Promise<string> {
  const folder = env["TOOLMUX_RUN_DIR"] ?? "";
  return poll(
    10_000,
    () => "the socket of the hub",
    () => {
      const names = existsSync(folder) ? readdirSync(folder) : [];
      const file = names.find((name) => name.endsWith(".json"));
      return file === undefined ? undefined : join(folder, file.replace(".json", ".sock"));
    },
  );
}

/** A hub with a client that has listed the tools, whose socket is there. */
function withRunningHub(
  servers: Parameters<typeof withHub>[0],
  use: (hub: Hub) => Promise<void>,
): Promise<void> {
  return withHub(servers, async (hub) => {
    await hub.client.initializeAndList();
    await socketOf(hub);
    await use(hub);
  });
}

async function toolsOf({ client }: Hub): Promise<readonly unknown[]> {
  const { message } = await client.request("tools/list");
  return message.result?.tools ?? [];
}

describe("a running hub", () => {
  it("is shown by ps and status, with its servers and its client", () =>
    withRunningHub(
      { servers: { a: scripted(), b: { command: "no-such-program" } } },
      async (hub) => {
        const { hubs } = (await json(hub, "ps")) as { hubs: Json[] };
        const [only, ...others] = hubs;
        assert.equal(others.length, 0);
        assert.deepEqual([only?.["pid"], only?.["endpoints"]], [hub.client.pid, ["stdio"]]);
        assert.deepEqual(only?.["manifest"], [hub.config]);
        const { source, verdict, servers } = (await json(hub, "status")) as {
          source: string;
          verdict: string;
          servers: Json[];
        };
        assert.deepEqual([source, verdict], ["hub", "partial"]);
        const states = servers.map(({ name, state, error }) => [
          name,
          state,
          (error as Json | undefined)?.["code"],
        ]);
        assert.deepEqual(states, [
          ["a", "connected", undefined],
          ["b", "failed", "commandNotFound"],
        ]);
        const shown = await run(hub, "status");
        assert.equal(shown.code, 1);
        assert.match(shown.stdout, new RegExp(`toolmux ${hub.client.pid}`));
        assert.equal(hub.log("a").filter(({ event }) => event === "start").length, 1);
        const fresh = (await json(hub, "status", "--fresh")) as { source: string };
        assert.equal(fresh.source, "fresh");
        assert.equal(hub.log("a").filter(({ event }) => event === "start").length, 2);
      },
    ));

  it("reconnects a server at once when its cause is mended", () =>
    withRunningHub(
      { servers: { a: { command: "./program", reconnect: { policy: "none" } } } },
      async (hub) => {
        const failed = await run(hub, "reconnect", "a");
        assert.equal(failed.code, 3);
        const { command, args = [] } = scripted();
        const script = `#!/bin/sh\nexec "${command}" ${args.map((arg) => `"${arg}"`).join(" ")}\n`;
        writeFileSync(join(hub.dir, "program"), script, { mode: 0o755 });
        const mended = (await json(hub, "reconnect", "--failed")) as { servers: Json[] };
        assert.deepEqual(
          mended.servers.map(({ name, state }) => [name, state]),
          [["a", "connected"]],
        );
        assert.ok((await toolsOf(hub)).length > 0);
      },
    ));

  it("shows a slow call, and cancels it: the server is told, and the client gets an error", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      const { client } = hub;
      const id = client.sendCall("a__hang");
      await hub.waitForEvent("a", ({ event }) => event === "call");
      const { calls } = (await json(hub, "calls")) as { calls: Json[] };
      const [call] = calls;
      assert.deepEqual([call?.["name"], call?.["server"], calls.length], ["a__hang", "a", 1]);
      assert.deepEqual(await offered(hub, "cancel", "--call"), [String(call?.["call"])]);
      assert.deepEqual(await offered(hub, "calls", "--hub"), [String(client.pid)]);
      const { code } = await run(hub, "cancel", "--call", String(call?.["call"]));
      assert.equal(code, 0);
      await hub.waitForEvent("a", ({ event }) => event === "cancelled");
      const { message } = await client.response(id);
      assert.equal(message.error?.code, -31005);
      assert.equal((await run(hub, "cancel", "--call", "999")).code, 2);
    }));

  it("is what list shows, as its clients see it", () =>
    withRunningHub({ servers: { a: scripted(), b: scripted() } }, async (hub) => {
      const { message } = await hub.client.request("tools/list");
      const all = (await json(hub, "list")) as { tools: Json[] };
      assert.deepEqual(all.tools, message.result?.tools);
      const ofA = (await json(hub, "list", "a")) as { tools: Json[] };
      assert.ok(ofA.tools.length > 0 && ofA.tools.length < all.tools.length);
      assert.ok(ofA.tools.every(({ name }) => String(name).startsWith("a__")));
      const shown = await run(hub, "list");
      assert.match(shown.stdout, new RegExp(`toolmux ${hub.client.pid}`));
      assert.equal(hub.log("a").filter(({ event }) => event === "start").length, 1);
      assert.equal((await run(hub, "list", "tools", "c")).code, 2);
    }));

  it("lists its servers as they are, with their titles", () =>
    withRunningHub(
      { servers: { a: { ...scripted(), title: "Alpha", icon: "A" }, b: { command: "no-such" } } },
      async (hub) => {
        const { source, servers } = (await json(hub, "list", "servers")) as {
          source: string;
          servers: Json[];
        };
        assert.equal(source, "hub");
        const states = servers.map(({ name, title, icon, state }) => [name, title, icon, state]);
        assert.deepEqual(states, [
          ["a", "Alpha", "A", "connected"],
          ["b", undefined, undefined, "failed"],
        ]);
        assert.match((await run(hub, "list", "servers", "a")).stdout, /a \(Alpha\)/);
        assert.equal((await run(hub, "list", "servers", "b")).code, 3);
        assert.match((await run(hub, "status", "--fresh", "a")).stdout, /a \(Alpha\)/);
        assert.equal(hub.log("a").filter(({ event }) => event === "start").length, 2);
      },
    ));

  it("sets things up by its socket, and prints nothing of that to its client", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      const [running] = await findRunningHubs({ env: hub.env, platform: process.platform });
      assert.ok(running);
      const { signal } = new AbortController();
      const ask = async (method: "GET" | "POST", path: string, body?: object): Promise<Json> => {
        const request = { method, path, signal, ...(body !== undefined && { body }) };
        return (await askHub(running, request)).document as Json;
      };
      assert.equal((await ask("POST", "/check"))["ok"], true);
      const { command, args } = scripted();
      const trial = await ask("POST", "/trial", { name: "t", entry: { command, args } });
      assert.equal(trial["state"], "connected");
      const failed = await ask("POST", "/trial", { name: "t", entry: { command: "no-such" } });
      assert.equal((failed["error"] as Json)["code"], "commandNotFound");
      const { client } = hub;
      const { message } = await client.request("ping");
      assert.deepEqual(message.result, {});
      for (const { text } of client.lines)
        assert.equal((JSON.parse(text) as Json)["jsonrpc"], "2.0");
    }));

  it("makes the calls of the command line, and starts no server for them", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      const starts = (): number => hub.log("a").filter(({ event }) => event === "start").length;
      const called = await run(hub, "call", "a__echo", "text=hello");
      assert.deepEqual([called.code, called.stdout.includes("hello"), starts()], [0, true, 1]);
      const unknown = await run(hub, "call", "a__ech");
      assert.equal(unknown.code, 2);
      assert.match(unknown.stderr, /"a__echo"/);
      const late = await run(hub, "call", "a__hang", "--timeout", "200ms");
      assert.equal(late.code, 124);
      await hub.waitForEvent("a", ({ event }) => event === "cancelled");
      const fresh = await run(hub, "call", "a__echo", "text=hello", "--fresh");
      assert.deepEqual([fresh.code, starts()], [0, 2]);
      const { clients } = ((await json(hub, "ps")) as { hubs: [{ clients: unknown[] }] }).hubs[0];
      assert.equal(clients.length, 1);
    }));

  it("keeps a stopped server stopped until it is started", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      assert.equal((await run(hub, "stop", "a")).code, 0);
      assert.deepEqual(await toolsOf(hub), []);
      assert.equal((await run(hub, "start", "a")).code, 0);
      assert.ok((await toolsOf(hub)).length > 0);
      const unknown = await run(hub, "stop", "aa");
      assert.equal(unknown.code, 2);
      assert.match(unknown.stderr, /"a"/);
    }));

  it("is followed by logs -f without a gap or a double, while its server is restarted", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      const args = ["logs", "-f", "--json", "-n", "1000", "--config", hub.config];
      const follower = new RawClient(executable(), args, hub.dir, hub.env);
      const entries = (): Json[] => follower.lines.map(({ json: entry }) => entry as Json);
      const connections = (): number => entries().filter(({ text }) => text === "connected").length;
      await follower.until(10_000, "the first lines", () => connections() === 1 || undefined);
      for (let i = 2; i < 5; i++) {
        assert.equal((await run(hub, "reconnect", "a")).code, 0);
        await follower.until(10_000, `connection ${i}`, () => connections() === i || undefined);
      }
      follower.signal("SIGINT");
      assert.equal((await follower.waitForExit(5000)).code, 130);
      const seqs = entries().map(({ seq }) => Number(seq));
      assert.deepEqual(
        seqs,
        [...new Set(seqs)].toSorted((a, b) => a - b),
      );
      const all = await run(hub, "logs", "--json", "-n", "1000");
      const kept = all.stdout.split("\n").filter(Boolean);
      assert.deepEqual(
        kept.map((line) => (JSON.parse(line) as Json)["seq"]),
        seqs,
      );
    }));

  it("prints its events as JSON lines", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      const args = ["events", "--kinds", "call", "--config", hub.config];
      const follower = new RawClient(executable(), args, hub.dir, hub.env);
      // The hub emits events of calls as soon as somebody reads them.
      await poll(
        10_000,
        () => "events of a call",
        () => {
          if (follower.lines.length === 0) hub.client.sendCall("a__echo");
          return follower.lines.some(({ text }) => text.includes('"callFinished"')) || undefined;
        },
      );
      const finished = follower.lines.map(({ json: event }) => event as Json);
      assert.ok(finished.every(({ name, client }) => name === "a__echo" && client === "client-1"));
      assert.equal((await run(hub, "events", "--kinds", "cal")).code, 2);
      follower.signal("SIGINT");
      await follower.waitForExit(5000);
    }));

  it("shows its alerts until they are dismissed", () =>
    withRunningHub({ servers: { a: { command: "no-such-program" } } }, async (hub) => {
      const { alerts } = (await json(hub, "alerts")) as { alerts: Json[] };
      assert.deepEqual(
        alerts.map(({ kind, server }) => [kind, server]),
        [["connectionFailed", "a"]],
      );
      assert.deepEqual(await offered(hub, "alerts", "dismiss"), [String(alerts[0]?.["id"])]);
      assert.equal((await run(hub, "alerts", "dismiss", String(alerts[0]?.["id"]))).code, 0);
      assert.deepEqual(await json(hub, "alerts"), { alerts: [] });
      assert.equal((await run(hub, "alerts", "dismiss", "none")).code, 2);
    }));

  it("takes a changed manifest at once, or tells its problems", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      writeFileSync(hub.config, "[servers.a\n");
      const refused = await run(hub, "reload");
      assert.equal(refused.code, 2);
      writeFileSync(hub.config, "");
      const { command, args = [] } = scripted();
      writeFileSync(
        hub.config,
        `[servers.c]\ncommand = "${command}"\nargs = ${JSON.stringify(args)}\n`,
      );
      assert.equal((await run(hub, "reload")).code, 0);
      const { servers } = (await json(hub, "status")) as { servers: Json[] };
      assert.deepEqual(
        servers.map(({ name }) => name),
        ["c"],
      );
    }));

  it("says what became of a server that is added to its manifest, or removed", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      const { command, args = [] } = scripted();
      const add = (name: string, option: string): Promise<CommandOutput> =>
        runCommand(hub, ["--config", hub.config, "add", name, option, "--", command, ...args]);
      const added = await add("b", "--no-try");
      assert.equal(added.code, 0, added.stderr);
      assert.match(added.stdout, new RegExp(`toolmux ${hub.client.pid}: b: connected`));
      const names = async (): Promise<readonly unknown[]> => {
        const { servers } = (await json(hub, "status")) as { servers: Json[] };
        return servers.map(({ name, origin }) => `${String(name)} ${String(origin)}`);
      };
      assert.deepEqual(await names(), ["a manifest", "b manifest"]);
      const removed = await run(hub, "remove", "b");
      assert.equal(removed.code, 0);
      assert.deepEqual(await names(), ["a manifest"]);
      const live = await add("c", "--live");
      assert.equal(live.code, 0, live.stderr);
      assert.deepEqual(await offered(hub, "stop"), ["a", "c"]);
      assert.equal((await run(hub, "reload")).code, 0);
      assert.deepEqual(await names(), ["a manifest", "c runtime"]);
      assert.equal(readFileSync(hub.config, "utf8").includes("servers.c"), false);
      assert.equal((await run(hub, "remove", "c", "--live")).code, 0);
      assert.deepEqual(await names(), ["a manifest"]);
      assert.equal((await run(hub, "remove", "a", "--live")).code, 2);
    }));

  it("of another manifest is used only if --hub names it", () =>
    withRunningHub({ servers: { a: scripted() } }, async (hub) => {
      const other = join(hub.dir, "other.toml");
      writeFileSync(other, '[servers.x]\ncommand = "y"\n');
      const none = await runCommand(hub, ["calls", "--config", other]);
      assert.equal(none.code, 3);
      assert.match(none.stderr, new RegExp(String(hub.client.pid)));
      const pid = String(hub.client.pid);
      const named = await runCommand(hub, ["calls", "--hub", pid, "--config", other, "--json"]);
      assert.deepEqual(JSON.parse(named.stdout), { calls: [] });
      assert.equal((await runCommand(hub, ["calls", "--hub", "1", "--config", other])).code, 2);
    }));

  it("is told apart from another of the same manifest, and ended by its process id", () =>
    withRunningHub(
      { servers: { a: scripted(), b: { command: "no-such-program" } } },
      async (hub) => {
        const second = new RawClient(executable(), ["--config", hub.config], hub.dir, hub.env);
        await second.initializeAndList();
        const pids = (): Promise<unknown[]> =>
          json(hub, "ps").then(({ hubs }) => (hubs as Json[]).map(({ pid }) => pid));
        let running = await pids();
        while (running.length < 2) running = await pids();
        assert.equal((await run(hub, "reconnect", "a")).code, 2);
        assert.equal((await run(hub, "reconnect", "a", "--hub", String(second.pid))).code, 0);
        const both = (await json(hub, "reconnect", "a", "--all")) as { servers: Json[] };
        assert.deepEqual(new Set(both.servers.map((one) => one["hub"])), new Set(running));
        const reloaded = (await json(hub, "reload", "--all")) as { hubs: Json[] };
        assert.equal(reloaded.hubs.length, 2);
        const shown = await run(hub, "status");
        for (const pid of running)
          assert.match(shown.stdout, new RegExp(`toolmux reconnect b --hub ${String(pid)}`));
        assert.equal((await run(hub, "stop", "--hub", String(second.pid))).code, 0);
        assert.equal((await second.waitForExit(5000)).code, 0);
        assert.deepEqual(await pids(), [hub.client.pid]);
      },
    ));

  it("that was killed leaves a socket, which doctor finds and the next hub removes", () =>
    withTestFolder({ servers: { a: scripted() } }, async (folder) => {
      const start = async (): Promise<RawClient> => {
        const client = new RawClient(
          executable(),
          ["--config", folder.config],
          folder.dir,
          folder.env,
        );
        await client.initializeAndList();
        return client;
      };
      const first = await start();
      const socket = await socketOf(folder);
      first.signal("SIGKILL");
      await first.waitForExit(5000);
      assert.equal((await run(folder, "ps")).code, 3);
      const { stdout } = await run(folder, "doctor", "--json");
      assert.ok(stdout.includes("TM604"));
      const second = await start();
      await poll(
        10_000,
        () => "the end of the dead socket",
        () => !existsSync(socket) || undefined,
      );
      second.end();
      await second.waitForExit(5000);
    }));

  it("with control = false has no socket, and no hub is exit code 3", () =>
    withTestFolder({ hub: { control: false }, servers: { a: scripted() } }, async (folder) => {
      const args = ["serve", "--http", "127.0.0.1:0", "--config", folder.config];
      const hub = new RawClient(executable(), args, folder.dir, folder.env);
      await hub.until(10_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
      const { code, stderr, stdout } = await run(folder, "ps", "--json");
      assert.equal(code, 3);
      assert.match(stderr, /serve/);
      const { error } = JSON.parse(stdout) as { error: { code: string } };
      assert.equal(error.code, "hubNotRunning");
      hub.signal("SIGTERM");
      await hub.waitForExit(5000);
    }));
});
