import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { askHub, findRunningHubs } from "../../src/control/running-hubs.ts";
import {
  type CommandOutput,
  run,
  runCommand,
  startHub,
  startOn,
  waitUntilFound,
} from "../harness/command.ts";
import {
  assertProtocolOnly,
  closeClient,
  EXIT_LIMIT,
  type Hub,
  it,
  sharedTestFolder,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { publishedServer, scripted, toToml } from "../harness/manifest.ts";
import type { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

type Json = { readonly [key: string]: unknown };

async function json<Document = Json>(folder: TestFolder, ...args: string[]): Promise<Document> {
  const { stdout, stderr } = await run(folder, ...args, "--json");
  assert.notEqual(stdout, "", stderr);
  return JSON.parse(stdout) as Document;
}

/** What completions offer after these words. */
async function offered(folder: TestFolder, ...words: string[]): Promise<readonly string[]> {
  const [command = "", ...rest] = words;
  const typed = [command, "--config", folder.config, ...rest];
  const { stdout } = await runCommand(folder, ["internal", "complete", ...typed, ""]);
  const [kind, ...lines] = stdout.split("\n").filter(Boolean);
  assert.equal(kind, "words");
  return lines.map((line) => line.replace(/\t.*/, ""));
}

/** Asks the hub by its socket. */
async function ask({ env }: TestFolder, path: string, body?: object): Promise<Json> {
  const [running] = await findRunningHubs({ env, platform: process.platform });
  assert.ok(running);
  const { signal } = new AbortController();
  const request = { path, signal };
  const posted = body === undefined ? request : { ...request, method: "POST" as const, body };
  return (await askHub(running, posted)).document as Json;
}

/** The socket of the hub. */
function socketOf({ env }: TestFolder): string {
  const folder = env["TOOLMUX_RUN_DIR"] ?? "";
  const file = readdirSync(folder).find((name) => name.endsWith(".json")) ?? "";
  return join(folder, file.replace(".json", ".sock"));
}

async function toolsOf({ client }: Hub): Promise<readonly string[]> {
  const { message } = await client.request("tools/list");
  return (message.result?.tools ?? []).map(({ name }) => name);
}

const startsOf = ({ log }: TestFolder): number =>
  log("a").filter(({ event }) => event === "start").length;

/** Its server b cannot be started before its program is written. */
const MANIFEST = {
  servers: {
    a: { ...scripted(), title: "Alpha", icon: "A" },
    b: { command: "./program", reconnect: { policy: "none" } },
  },
};

describe("a running hub", () => {
  // All tests use one, in this order.
  let client: RawClient;
  let hub: Hub;
  sharedTestFolder(MANIFEST, async (folder) => {
    client = await startHub(folder);
    hub = { ...folder, client };
    return () => closeClient(client);
  });

  it("is shown by ps, status and list, with its servers and their titles", async () => {
    const { hubs } = await json<{ hubs: Json[] }>(hub, "ps");
    const shown = hubs.map(({ pid, endpoints, manifest }) => ({ pid, endpoints, manifest }));
    const expected = { pid: client.pid, endpoints: ["stdio"], manifest: [hub.config] };
    assert.deepEqual(shown, [expected]);
    interface Servers {
      readonly source: string;
      readonly verdict?: string;
      readonly servers: readonly (Json & { readonly error?: Json })[];
    }
    const { source, verdict, servers } = await json<Servers>(hub, "status");
    assert.deepEqual([source, verdict], ["hub", "partial"]);
    assert.deepEqual(
      servers.map(({ name, state, error }) => [name, state, error?.["code"]]),
      [
        ["a", "connected", undefined],
        ["b", "failed", "commandNotFound"],
      ],
    );
    const listed = await json<Servers>(hub, "list", "servers");
    assert.equal(listed.source, "hub");
    assert.deepEqual(
      listed.servers.map(({ name, title, icon, state }) => [name, title, icon, state]),
      [
        ["a", "Alpha", "A", "connected"],
        ["b", undefined, undefined, "failed"],
      ],
    );
    assert.match((await run(hub, "list", "servers", "a")).stdout, /a \(Alpha\)/);
    assert.equal((await run(hub, "list", "servers", "b")).code, 3);
    assert.equal(startsOf(hub), 1);
    const fresh = await json<Servers>(hub, "status", "--fresh", "a");
    assert.deepEqual([fresh.source, fresh.servers.map(({ title }) => title)], ["fresh", ["Alpha"]]);
    assert.equal(startsOf(hub), 2);
  });

  it("shows its alerts until they are dismissed", async () => {
    const { alerts } = await json<{ alerts: Json[] }>(hub, "alerts");
    const [alert] = alerts;
    assert.deepEqual(
      alerts.map(({ kind, server }) => [kind, server]),
      [["connectionFailed", "b"]],
    );
    assert.deepEqual(await offered(hub, "alerts", "dismiss"), [String(alert?.["id"])]);
    assert.equal((await run(hub, "alerts", "dismiss", String(alert?.["id"]))).code, 0);
    assert.deepEqual(await json(hub, "alerts"), { alerts: [] });
  });

  it("is told apart from another of the same manifest, and ended by its process id", async () => {
    const second = await startHub(hub);
    const pids = async (): Promise<readonly unknown[]> =>
      (await json<{ hubs: Json[] }>(hub, "ps")).hubs.map(({ pid }) => pid);
    const running = await pids();
    assert.equal(running.length, 2);
    assert.equal((await run(hub, "reconnect", "a")).code, 2);
    // Server b cannot be started, which is another code than that for two hubs.
    assert.equal((await run(hub, "reconnect", "b", "--hub", String(second.pid))).code, 3);
    const both = await json<{ servers: Json[] }>(hub, "reconnect", "b", "--all");
    assert.deepEqual(new Set(both.servers.map((one) => one["hub"])), new Set(running));
    assert.equal((await json<{ hubs: Json[] }>(hub, "reload", "--all")).hubs.length, 2);
    const shown = await run(hub, "status");
    assert.equal(shown.code, 1);
    for (const pid of running)
      assert.match(shown.stdout, new RegExp(`toolmux reconnect b --hub ${String(pid)}`));
    assert.equal((await run(hub, "stop", "--hub", String(second.pid))).code, 0);
    assert.equal((await second.waitForExit(5000)).code, 0);
    const left = await run(hub, "status");
    assert.equal(left.code, 1);
    assert.match(left.stdout, new RegExp(`toolmux ${client.pid}`));
    assert.ok(!left.stdout.includes(String(second.pid)));
  });

  it("of another manifest is used only if --hub names it", async () => {
    const other = join(hub.dir, "other.toml");
    writeFileSync(other, '[servers.x]\ncommand = "y"\n');
    const calls = (...args: string[]): Promise<CommandOutput> =>
      runCommand(hub, ["calls", ...args, "--config", other]);
    const none = await calls();
    assert.equal(none.code, 3);
    assert.match(none.stderr, new RegExp(String(client.pid)));
    const named = await calls("--hub", String(client.pid), "--json");
    assert.deepEqual(JSON.parse(named.stdout), { calls: [] });
    assert.equal((await calls("--hub", "1")).code, 2);
  });

  it("reconnects a server at once when its cause is mended", async () => {
    const { command, args = [] } = scripted();
    const script = `#!/bin/sh\nexec "${command}" ${args.map((arg) => `"${arg}"`).join(" ")}\n`;
    writeFileSync(join(hub.dir, "program"), script, { mode: 0o755 });
    const { servers } = await json<{ servers: Json[] }>(hub, "reconnect", "--failed");
    assert.deepEqual(
      servers.map(({ name, state }) => [name, state]),
      [["b", "connected"]],
    );
    assert.ok((await toolsOf(hub)).includes("b__echo"));
  });

  it("is what list shows, as its clients see it", async () => {
    const starts = startsOf(hub);
    const { message } = await client.request("tools/list");
    const all = await json<{ tools: Json[] }>(hub, "list");
    assert.deepEqual(all.tools, message.result?.tools);
    const ofA = await json<{ tools: Json[] }>(hub, "list", "a");
    assert.ok(ofA.tools.length > 0 && ofA.tools.length < all.tools.length);
    assert.ok(ofA.tools.every(({ name }) => String(name).startsWith("a__")));
    const shown = await run(hub, "list");
    assert.match(shown.stdout, new RegExp(`toolmux ${client.pid}`));
    assert.equal((await run(hub, "list", "tools", "c")).code, 2);
    assert.equal(startsOf(hub), starts);
  });

  it("shows a slow call, and cancels it: the server is told, and the client gets an error", async () => {
    const id = client.sendCall("a__hang");
    await hub.waitForEvent("a", ({ event }) => event === "call");
    const { calls } = await json<{ calls: Json[] }>(hub, "calls");
    assert.deepEqual(
      calls.map(({ name, server }) => [name, server]),
      [["a__hang", "a"]],
    );
    const call = String(calls[0]?.["call"]);
    assert.deepEqual(await offered(hub, "cancel", "--call"), [call]);
    assert.deepEqual(await offered(hub, "calls", "--hub"), [String(client.pid)]);
    assert.match((await run(hub, "calls")).stdout, new RegExp(`toolmux cancel ${call}$`, "m"));
    assert.equal((await run(hub, "cancel", call)).code, 0);
    await hub.waitForEvent("a", ({ event }) => event === "cancelled");
    assert.equal((await client.response(id)).message.error?.code, -31005);
    // Things that are not in flight cannot be cancelled: a call that has ended, one that never was, a connected server.
    for (const words of [[call], ["--call", call], ["999"], ["a"]])
      assert.equal((await run(hub, "cancel", ...words)).code, 1, words.join(" "));
    for (const words of [["none"], ["--call", "none"], [], ["a", "--call", "1"]])
      assert.equal((await run(hub, "cancel", ...words)).code, 2, words.join(" "));
  });

  it("sets things up by its socket, and prints nothing of that to its client", async () => {
    assert.equal((await ask(hub, "/check", {}))["ok"], true);
    const { command, args } = scripted();
    const trial = await ask(hub, "/trial", { name: "t", entry: { command, args } });
    assert.equal(trial["state"], "connected");
    const failed = await ask(hub, "/trial", { name: "t", entry: { command: "no-such" } });
    assert.equal((failed["error"] as Json)["code"], "commandNotFound");
    assert.deepEqual((await client.request("ping")).message.result, {});
    assertProtocolOnly(client);
  });

  it("makes the calls of the command line, and starts no server for them", async () => {
    const starts = startsOf(hub);
    const called = await run(hub, "call", "a__echo", "text=hello");
    assert.deepEqual([called.code, called.stdout.includes("hello")], [0, true]);
    const unknown = await run(hub, "call", "a__ech");
    assert.equal(unknown.code, 2);
    assert.match(unknown.stderr, /"a__echo"/);
    const countOf = (kind: string): number =>
      hub.log("a").filter(({ event }) => event === kind).length;
    const [calls, cancelled] = [countOf("call"), countOf("cancelled")];
    // On a busy machine the deadline may end before the call is sent.
    for (let ms = 200; countOf("call") === calls; ms *= 2) {
      assert.equal((await run(hub, "call", "a__hang", "--timeout", `${ms}ms`)).code, 124);
    }
    await hub.waitForEvent("a", () => countOf("cancelled") > cancelled);
    assert.equal(startsOf(hub), starts);
    const fresh = await run(hub, "call", "a__echo", "text=hello", "--fresh");
    assert.deepEqual([fresh.code, startsOf(hub)], [0, starts + 1]);
    const { hubs } = await json<{ hubs: [{ clients: unknown[] }] }>(hub, "ps");
    assert.equal(hubs[0].clients.length, 1);
  });

  it("keeps a stopped server stopped until it is started", async () => {
    assert.equal((await run(hub, "stop", "a")).code, 0);
    assert.ok((await toolsOf(hub)).every((name) => name.startsWith("b__")));
    assert.equal((await run(hub, "start", "a")).code, 0);
    assert.ok((await toolsOf(hub)).includes("a__echo"));
    const unknown = await run(hub, "stop", "aa");
    assert.equal(unknown.code, 2);
    assert.match(unknown.stderr, /"a"/);
  });

  it("is followed by logs -f without a gap or a double, while its server is restarted", async () => {
    const connectionsIn = (entries: readonly Json[]): number =>
      entries.filter(({ text }) => text === "connected").length;
    const readLog = async (): Promise<readonly Json[]> => {
      const { stdout } = await run(hub, "logs", "--json", "-n", "1000");
      const lines = stdout.split("\n").filter(Boolean);
      return lines.map((line) => JSON.parse(line) as Json);
    };
    const connections = connectionsIn(await readLog());
    const follower = startOn(hub, "logs", "-f", "--json", "-n", "1000");
    const entries = (): Json[] => follower.lines.map(({ json: entry }) => entry as Json);
    for (let at = connections; at < connections + 3; at++) {
      if (at > connections) assert.equal((await run(hub, "reconnect", "a")).code, 0);
      const test = () => connectionsIn(entries()) === at || undefined;
      await follower.until(10_000, `connection ${at}`, test);
    }
    follower.signal("SIGINT");
    assert.equal((await follower.waitForExit(5000)).code, 130);
    const seqs = entries().map(({ seq }) => Number(seq));
    assert.deepEqual(
      seqs,
      [...new Set(seqs)].toSorted((a, b) => a - b),
    );
    assert.deepEqual(
      (await readLog()).map(({ seq }) => seq),
      seqs,
    );
  });

  it("prints its events as JSON lines", async () => {
    const follower = startOn(hub, "events", "--kinds", "call");
    // The hub emits events of calls as soon as somebody reads them.
    await poll(
      10_000,
      () => "events of a call",
      () => {
        if (follower.lines.length === 0) client.sendCall("a__echo");
        return follower.lines.some(({ text }) => text.includes('"callFinished"')) || undefined;
      },
    );
    const finished = follower.lines.map(({ json: event }) => event as Json);
    assert.ok(finished.every(({ name, client: by }) => name === "a__echo" && by === "client-1"));
    assert.equal((await run(hub, "events", "--kinds", "cal")).code, 2);
    follower.signal("SIGINT");
    await follower.waitForExit(5000);
  });

  it("says what became of a server that is added to its manifest, or removed", async () => {
    const { command, args = [] } = scripted();
    const add = (name: string, option: string): Promise<CommandOutput> =>
      runCommand(hub, ["--config", hub.config, "add", name, option, "--", command, ...args]);
    const names = async (): Promise<readonly string[]> => {
      const { servers } = (await ask(hub, "/servers")) as { servers: Json[] };
      return servers.map(({ name, origin }) => `${String(name)} ${String(origin)}`);
    };
    const own = ["a manifest", "b manifest"];
    const added = await add("c", "--no-try");
    assert.equal(added.code, 0, added.stderr);
    assert.match(added.stdout, new RegExp(`toolmux ${client.pid}: c: connected`));
    assert.deepEqual(await names(), [...own, "c manifest"]);
    assert.equal((await run(hub, "remove", "c")).code, 0);
    assert.deepEqual(await names(), own);
    const live = await add("d", "--live");
    assert.equal(live.code, 0, live.stderr);
    assert.deepEqual(await offered(hub, "stop"), ["a", "b", "d"]);
    assert.equal((await run(hub, "reload")).code, 0);
    assert.deepEqual(await names(), [...own, "d runtime"]);
    assert.ok(!readFileSync(hub.config, "utf8").includes("servers.d"));
    assert.equal((await run(hub, "remove", "d", "--live")).code, 0);
    assert.deepEqual(await names(), own);
    assert.equal((await run(hub, "remove", "a", "--live")).code, 2);
  });

  it("takes a changed manifest at once, or tells its problems", async () => {
    writeFileSync(hub.config, "[servers.a\n");
    assert.equal((await run(hub, "reload")).code, 2);
    for (const command of ["status", "alerts"])
      assert.match((await run(hub, command)).stdout, /has rejected its manifest/);
    const { rejected } = await json<{ rejected: Json[] }>(hub, "alerts");
    assert.deepEqual(
      rejected.map(({ hub: pid }) => pid),
      [client.pid],
    );
    const c = scripted();
    writeFileSync(hub.config, toToml({ servers: { c, wrong: { comand: "x" } as never } }));
    const partly = await run(hub, "reload");
    assert.equal(partly.code, 2);
    assert.match(partly.stderr, /toolmux\.toml:\d+:\d+: unknown key/);
    writeFileSync(hub.config, toToml({ servers: { c } }));
    assert.equal((await run(hub, "reload")).code, 0);
    assert.doesNotMatch((await run(hub, "status")).stdout, /rejected/);
    const { servers } = await json<{ servers: Json[] }>(hub, "status");
    assert.deepEqual(
      servers.map(({ name }) => name),
      ["c"],
    );
  });
});

describe("a hub", () => {
  it("that was killed leaves a socket, which doctor finds and the next hub removes", () =>
    withTestFolder({ servers: { a: scripted() } }, async (folder) => {
      const first = await startHub(folder);
      const socket = socketOf(folder);
      first.signal("SIGKILL");
      await first.waitForExit(5000);
      const { code, stdout } = await run(folder, "ps", "--json");
      assert.equal(code, 3);
      const { error } = JSON.parse(stdout) as { error: { code: string } };
      assert.equal(error.code, "hubNotRunning");
      const doctor = await run(folder, "doctor", "--json");
      assert.ok(doctor.stdout.includes("TM604"));
      const second = await startHub(folder);
      await poll(
        10_000,
        () => "the end of the dead socket",
        () => !existsSync(socket) || undefined,
      );
      await closeClient(second);
    }));

  it("with control = false has no socket, and no hub is exit code 3", () =>
    withTestFolder({ hub: { control: false }, servers: { a: scripted() } }, async (folder) => {
      const hub = startOn(folder);
      await hub.initializeAndList();
      const { code, stderr, stdout } = await run(folder, "ps", "--json");
      assert.equal(code, 3);
      assert.match(stderr, /serve/);
      const { error } = JSON.parse(stdout) as { error: { code: string } };
      assert.equal(error.code, "hubNotRunning");
      await closeClient(hub);
    }));
});

describe("a running hub of which one server hangs and one has failed", () => {
  let client: RawClient;
  let hub: Hub;
  const servers = {
    on: scripted(),
    hang: scripted("--never-answer-initialize"),
    broken: { command: "./no-such-program", reconnect: { policy: "none" } },
  };
  // Whoever waited for the first list would wait longer than a test may take.
  sharedTestFolder({ hub: { listWait: "60s" }, servers }, async (folder) => {
    client = startOn(folder);
    hub = { ...folder, client };
    await client.initialize();
    await client.call("on__echo");
    await poll(
      10_000,
      () => "the socket of the hub",
      () => existsSync(folder.env["TOOLMUX_RUN_DIR"] ?? "") && socketOf(folder).endsWith(".sock"),
    );
    return () => closeClient(client);
  });

  it("makes calls at once, and says why a tool of the failed server is not there", async () => {
    assert.equal((await run(hub, "call", "on__echo", "n=1")).code, 0);
    const failed = await run(hub, "call", "broken__echo", "n=1");
    assert.equal(failed.code, 3, failed.stderr);
    assert.match(failed.stderr, /no-such-program/);
  });
});

describe("a running hub whose servers nobody has needed yet", () => {
  let hub: Hub;
  // The names of both begin that of the tool.
  const servers = { ev: scripted("--never-answer-initialize"), eve: publishedServer("everything") };
  // Its client has not begun its handshake.
  sharedTestFolder({ servers }, async (folder) => {
    const client = startOn(folder);
    await waitUntilFound(folder, client.pid);
    hub = { ...folder, client };
    return () => closeClient(client);
  });

  it("gets the values of its first call as the tool's schema demands", async () => {
    const startedAt = performance.now();
    const called = await run(hub, "call", "eve__echo", "message=12345678");
    assert.ok(performance.now() - startedAt < 9000, "it does not wait for the other server");
    assert.deepEqual([called.code, called.stdout], [0, "Echo: 12345678\n"], called.stderr);
  });
});

describe("a running hub whose only server has failed", () => {
  it("lists nothing, with exit code 3", () =>
    withTestFolder(
      { servers: { broken: { command: "./no-such-program", reconnect: { policy: "none" } } } },
      async (folder) => {
        const client = await startHub(folder);
        assert.equal((await run(folder, "list")).code, 3);
        assert.equal((await run(folder, "list", "servers")).code, 3);
        await closeClient(client);
      },
    ));
});

describe("commands that show a hub until they are interrupted", () => {
  it("say when it has ended, and go on with the next one", () =>
    withTestFolder({ servers: { a: scripted() } }, async (folder) => {
      const first = await startHub(folder);
      const commands = [
        ["events", "--after", "0"],
        ["logs", "-f"],
        ["status", "--watch", "--json"],
        ["calls", "--watch", "--json"],
      ].map((words) => startOn(folder, ...words));
      const until = (what: string, isDone: (command: RawClient, at: number) => boolean) =>
        poll(
          20_000,
          () =>
            `${what}: ${commands.map(({ stderr, lines }) => `${lines.length} ${stderr}`).join("; ")}`,
          () => commands.every(isDone) || undefined,
        );
      await until("the first lines", ({ lines }) => lines.length > 0);
      const [events] = commands;
      const seqs = events?.lines.map(({ text }) => (JSON.parse(text) as Json)["seq"]) ?? [];
      assert.equal(seqs[0], 1);
      await closeClient(first);
      await until("the note of its end", ({ stderr }) => stderr.includes("has ended"));
      const before = commands.map(({ lines }) => lines.length);
      const next = await startHub(folder);
      await until("lines of the next", ({ lines }, at) => lines.length > (before[at] ?? 0));
      const later = events?.lines.slice(before[0]).map(({ text }) => JSON.parse(text) as Json);
      assert.deepEqual([later?.[0]?.["hub"], later?.[0]?.["seq"]], [next.pid, 1]);
      for (const command of commands) {
        command.signal("SIGINT");
        assert.equal((await command.waitForExit(EXIT_LIMIT)).code, 130);
      }
      await closeClient(next);
    }));
});
