import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { LIMIT_DEFAULTS, type Manifest } from "../../src/manifest/manifest.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  Latch,
  listToolNames,
  manifestOf,
  ScriptedServer,
  serverStatusOf,
  type Servers,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { codeOf, notify, respond } from "../fixtures/peer-messages.ts";

type Entry = Servers[string];

const HOUR = 3_600_000;
const OTHER = { args: ["other"] };
const NO_RETRY = { reconnect: { ...LIMIT_DEFAULTS.reconnect, policy: "none" } } as const;
const SILENCE = (): undefined => undefined;
const REFUSE = (): string => '"error":{"code":1,"message":"out of order"}';

async function begin(
  scripts: Record<string, ScriptedServer>,
  servers: Servers = {},
): Promise<ReturnType<typeof setUpHubWithClock>> {
  const made = setUpHubWithClock(scripts, { servers });
  await initialize(made.client);
  return made;
}

/** A hub with one server, `a`, with these parts of its script and of its entry in the manifest. */
async function beginOne(script: Partial<ScriptedServer> = {}, entry: Entry = {}) {
  const a = Object.assign(new ScriptedServer("x"), script);
  const setup = await begin({ a }, { a: entry });
  const { hub, client } = setup;
  const state = () => connectionStatusOf(hub, "a").state;
  return {
    ...setup,
    a,
    state,
    /** How often it was started, how many ran at a time, and its state. */
    life: () => [a.transportCount, a.maxOpenCount, state()],
    reload: (now: Entry = OTHER) => hub.reload(manifestOf({ a: now })),
    list: () => listToolNames(client),
    call: () => callTool(client, "a__x"),
    die: async (): Promise<void> => {
      a.disconnect();
      await turn();
    },
  };
}

/** The same with a call that the server has got and does not answer by itself. */
async function beginRunning(script: Partial<ScriptedServer> = {}, entry: Entry = {}) {
  const setup = await beginOne({ onCall: SILENCE, ...script }, entry);
  setup.client.send(callRequest("running", "a__x"));
  await turn();
  return { ...setup, running: () => setup.client.find(isResponseTo("running")) };
}

/** The same with a call that waits for the server, which has died and opens when the latch does. */
async function beginWaiting(entry: Entry = {}) {
  const setup = await beginOne({}, entry);
  const latch = new Latch();
  setup.a.onOpen = latch.wait;
  await setup.die();
  const waiting = setup.call();
  await turn();
  assert.equal(setup.state(), "connecting");
  return { ...setup, latch, waiting };
}

/** Answers the call that a server was asked last. */
function answer({ peers }: ScriptedServer): void {
  const asked = peers.at(-1)?.messages.findLast(({ method }) => method === "tools/call");
  respond(peers.at(-1), asked?.id, { of: "old" });
}

describe("a server whose table is wrong", () => {
  const path = ["servers", "a", "comand"];
  const problem = { file: "/m.toml", path, at: "key" as const, message: "unknown key" };
  const about = { name: "a", enabled: true, prefix: "a", secrets: [] };
  const withWrong = (servers: Servers): Manifest => {
    const manifest = manifestOf(servers);
    const wrong = { kind: "invalid" as const, ...about, problems: [problem] };
    return { ...manifest, servers: [wrong, ...manifest.servers] };
  };

  it("has failed with the problem as its cause, in the order of the manifest, and an alert says so until it is right", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub, client } = setUpHubWithClock({ a, b }, { manifest: withWrong({ b: {} }) });
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["b__y"]);
    const states = hub.status().map(({ server, connections: [one] }) => `${server} ${one?.state}`);
    assert.deepEqual(states, ["a failed", "b connected"]);
    assert.equal(connectionStatusOf(hub, "a").cause?.code, "serverInvalid");
    const alerts = hub.snapshot().alerts.map(({ kind, server }) => [kind, server]);
    assert.deepEqual(alerts, [["manifestInvalid", "a"]]);
    assert.equal(codeOf(await callTool(client, "a__x")), "serverInvalid");
    hub.reload(manifestOf({ a: {}, b: {} }));
    await turn();
    assert.deepEqual(hub.snapshot().alerts, []);
    assert.deepEqual(await listToolNames(client), ["a__x", "b__y"]);
    assert.deepEqual([a.transportCount, b.transportCount], [1, 1]);
  });

  it("goes on as it was if it runs, and is forgotten when its table goes", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub, client } = await begin({ a, b });
    await listToolNames(client);
    hub.reload(withWrong({ b: {} }));
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x", "b__y"]);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    const [alert] = hub.snapshot().alerts;
    assert.equal(alert?.kind, "manifestInvalid");
    assert.match(alert.text, /keeps its previous settings/);
    hub.reload(manifestOf({ b: {} }));
    await turn();
    assert.deepEqual(hub.snapshot().alerts, []);
    assert.deepEqual([a.transportCount, b.transportCount], [1, 1]);
  });
});

describe("a reload", () => {
  it("of the same manifest changes nothing: every process goes on, and every call", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    a.onCall = SILENCE;
    const { hub, client, events, clock } = await begin({ a, b });
    await listToolNames(client);
    const running = callTool(client, "a__x");
    await clock.advanceAsync(100);
    const before = events.length;
    hub.reload(manifestOf({ a: {}, b: {} }));
    await clock.advanceAsync(100);
    assert.deepEqual([a.transportCount, b.transportCount], [1, 1]);
    const kinds = events.slice(before).map(({ kind }) => kind);
    assert.deepEqual(kinds, ["manifest"]);
    answer(a);
    assert.deepEqual((await running).result, { of: "old" });
  });

  it("starts what is new, ends what is gone, and leaves the rest alone", async () => {
    const [a, b, c] = [new ScriptedServer("x"), new ScriptedServer("y"), new ScriptedServer("z")];
    const { hub, client, clock } = await begin({ a, b, c });
    const servers = (): string =>
      hub
        .status()
        .map(({ server }) => server)
        .join();
    hub.reload(manifestOf({ a: {}, b: {} }));
    await turn();
    assert.deepEqual([a.transportCount, b.transportCount, c.openCount], [1, 1, 0]);
    hub.reload(manifestOf({ c: {}, a: {} }));
    await clock.advanceAsync(100);
    assert.deepEqual([a.transportCount, b.openCount, c.transportCount, c.openCount], [1, 0, 2, 1]);
    assert.deepEqual(await listToolNames(client), ["a__x", "c__z"]);
    assert.equal(servers(), "c,a");
    hub.reload(manifestOf({}));
    await turn();
    assert.deepEqual([a.openCount, c.openCount, servers()], [0, 0, ""]);
    assert.deepEqual(await listToolNames(client), []);
  });

  it("tells of each server that it added, changed or removed, and then of itself", async () => {
    const [a, b, c] = [new ScriptedServer(), new ScriptedServer(), new ScriptedServer()];
    const { hub, events } = await begin({ a, b, c });
    hub.remove("c");
    const before = events.length;
    hub.reload(manifestOf({ a: OTHER, c: {} }));
    const reported = events.slice(before).flatMap((event) => {
      if (event.kind === "server") return `${event.server} ${event.change}`;
      const isReload = event.kind === "manifest" && event.outcome === "reloaded";
      return isReload ? `${event.servers} servers` : [];
    });
    assert.deepEqual(reported, ["b removed", "a changed", "c added", "2 servers"]);
  });
});

describe("a server whose process is to be another", () => {
  it("finishes its calls in flight, then ends, and only then the new one starts", async () => {
    const latch = new Latch();
    const { a, clock, life, reload, running } = await beginRunning({ onClose: latch.wait });
    reload();
    await clock.advanceAsync(5000);
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
    answer(a);
    assert.deepEqual((await running()).result, { of: "old" });
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    await turn();
    assert.deepEqual(life(), [2, 1, "connected"]);
  });

  it("has its calls in flight failed after 10 s, and says why", async () => {
    const { a, clock, life, reload, running } = await beginRunning();
    reload();
    await clock.advanceAsync(9999);
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1);
    const failed = await running();
    assert.equal(codeOf(failed), "serverStopped");
    assert.match(failed.error?.message ?? "", /"a" was stopped/);
    assert.deepEqual(life(), [2, 1, "connected"]);
  });

  it("brings calls that come meanwhile to the new one", async () => {
    const { a, reload, call, running } = await beginRunning();
    reload();
    const later = call();
    await turn();
    assert.equal(a.messagesOf("tools/call").length, 1);
    a.onCall = () => '"result":{"of":"new"}';
    answer(a);
    assert.deepEqual((await running()).result, { of: "old" });
    assert.deepEqual((await later).result, { of: "new" });
  });

  it("brings the calls that waited for the old one to the new one", async () => {
    const { life, reload, call, latch, waiting } = await beginWaiting();
    const second = call();
    await turn();
    reload();
    latch.open();
    for (const each of [waiting, second]) assert.ok((await each).result);
    assert.deepEqual(life(), [3, 1, "connected"]);
  });

  it("refuses a call that waited if it does not list that tool", async () => {
    const { a, reload, latch, waiting } = await beginWaiting();
    a.tools = ['{"name":"y"}'];
    reload();
    latch.open();
    assert.equal((await waiting).error?.code, -32602);
    assert.equal(a.messagesOf("tools/call").length, 0);
  });

  it("can be given up by a call that went on to the new one", async () => {
    const { a, clock, reload, latch, waiting } = await beginWaiting({ callTimeout: 500 });
    reload({ ...OTHER, callTimeout: 500 });
    await clock.advanceAsync(500);
    assert.equal((await waiting).result?.["isError"], true);
    latch.open();
    await turn();
    assert.equal(a.messagesOf("tools/call").length, 0);
  });

  it("stays listed meanwhile, and nobody is told of a change if there is none", async () => {
    const latch = new Latch();
    const { client, clock, reload, list } = await beginOne({ onClose: latch.wait });
    await list();
    reload({ env: { KEY: "other" } });
    await clock.advanceAsync(1000);
    assert.deepEqual(await list(), ["a__x"]);
    latch.open();
    await clock.advanceAsync(1000);
    assert.ok(client.messages.every(({ method }) => method === undefined));
    assert.deepEqual(await list(), ["a__x"]);
  });

  const PROGRAMS: readonly (readonly [what: string, entry: Entry])[] = [
    ["command", { command: "other" }],
    ["arguments", { args: ["other"] }],
    ["folder", { cwd: "/other" }],
  ];
  for (const [what, entry] of PROGRAMS)
    it(`has no tool of the old one in the list if its ${what} changed, whether the new one starts or not`, async () => {
      const { a, client, reload, list, clock, call } = await beginOne();
      assert.deepEqual(await list(), ["a__x"]);
      const latch = new Latch();
      Object.assign(a, { onOpen: latch.wait, tools: [JSON.stringify({ name: "y" })] });
      reload(entry);
      await clock.advanceAsync(1000);
      await client.until(() =>
        client.messages.some(({ method }) => method === "notifications/tools/list_changed"),
      );
      const listed = list();
      await clock.advanceAsync(10_000);
      assert.deepEqual(await listed, []);
      // A call waits for the list of the new one.
      const called = call();
      latch.open();
      await clock.advanceAsync(1000);
      assert.equal(codeOf(await called), "unknownTool");
      assert.deepEqual(await list(), ["a__y"]);
    });

  it("is told with the names of the servers that the reload has added, changed and removed", async () => {
    const scripts = Object.fromEntries(["a", "b", "c"].map((name) => [name, new ScriptedServer()]));
    const { hub, events } = await begin(scripts);
    hub.reload(manifestOf({ a: OTHER, b: {} }));
    hub.reload(manifestOf({ a: OTHER, b: {} }));
    hub.reload(manifestOf({ a: OTHER, b: {}, c: {} }));
    const told = events.flatMap((event) =>
      event.kind === "manifest" && event.outcome === "reloaded" ? [event] : [],
    );
    assert.deepEqual(
      told.map(({ added, changed, removed }) => [added, changed, removed]),
      [
        [[], ["a"], ["c"]],
        [[], [], []],
        [["c"], [], []],
      ],
    );
  });

  it("does not make others wait for its end", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    a.onClose = new Latch().wait;
    const { hub } = await begin({ a, b });
    hub.reload(manifestOf({ a: OTHER, b: OTHER }));
    await turn();
    const { state } = connectionStatusOf(hub, "b");
    assert.deepEqual([a.transportCount, b.transportCount, state], [1, 2, "connected"]);
  });

  it("that dies while it finishes is not started again as it was", async () => {
    const { a, hub, clock, events, life, reload, running } = await beginRunning();
    reload();
    a.disconnect();
    assert.deepEqual((await running()).result?.["_meta"], { "toolmux/error": "connectionLost" });
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [2, 1, "connected"]);
    assert.deepEqual(hub.snapshot().alerts, []);
    assert.ok(!events.some((event) => event.kind === "alert"));
  });

  it("is the last one of several that are wanted within a moment, and nothing of the others runs", async () => {
    const latch = new Latch();
    const { a, life, reload, call } = await beginOne({ onClose: latch.wait });
    for (const arg of ["1", "2", "3", "4"]) reload({ args: [arg] });
    const waiting = call();
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
    latch.open();
    assert.ok((await waiting).result);
    assert.deepEqual(life(), [2, 1, "connected"]);
  });

  it("goes back to what it was, but as a new process, if that is wanted before it has ended", async () => {
    const latch = new Latch();
    const { life, reload } = await beginOne({ onClose: latch.wait });
    reload();
    reload({});
    await turn();
    latch.open();
    await turn();
    assert.deepEqual(life(), [2, 1, "connected"]);
  });

  it("that failed is tried anew", async () => {
    const { a, hub, state, reload } = await beginOne({ onInitialize: REFUSE }, NO_RETRY);
    assert.equal(state(), "failed");
    a.onInitialize = new ScriptedServer().onInitialize;
    reload({ ...NO_RETRY, ...OTHER });
    await turn();
    assert.equal(state(), "connected");
    assert.deepEqual(hub.snapshot().alerts, []);
  });
});

describe("a server that makes place", () => {
  it("ends at once, calls and all, if somebody stops the server, who hears when nothing of it is left", async () => {
    const { a, hub, clock, reload, running } = await beginRunning();
    reload();
    await turn();
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    assert.equal(codeOf(await running()), "serverStopped");
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, 1);
  });

  it("for none takes no new calls, and ends at once if all servers are stopped", async () => {
    const { a, hub, call, running } = await beginRunning();
    hub.reload(manifestOf({}));
    assert.equal((await call()).error?.code, -32602);
    assert.equal(a.messagesOf("tools/call").length, 1);
    await hub.stopAll();
    assert.equal(codeOf(await running()), "serverStopped");
    assert.equal(a.openCount, 0);
  });

  it("for none ends at once if the hub is closed", async () => {
    const { a, hub, clock } = await beginRunning();
    hub.reload(manifestOf({}));
    await turn();
    assert.equal(a.openCount, 1);
    await hub.close();
    assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
  });

  it("for none finishes its calls in flight, up to 10 s", async () => {
    const { a, hub, clock, running } = await beginRunning();
    hub.reload(manifestOf({}));
    await clock.advanceAsync(9000);
    answer(a);
    assert.deepEqual((await running()).result, { of: "old" });
    await turn();
    assert.equal(a.openCount, 0);
  });
});

describe("settings that a process does not depend on", () => {
  it("change without another process: prefix and rules, at once and with a word to clients", async () => {
    const { a, client, clock, reload, list } = await beginOne({
      tools: new ScriptedServer("x", "y").tools,
    });
    await list();
    const tools = { allow: undefined, deny: ["y"], rename: { x: "z" }, timeout: {} };
    reload({ prefix: "b", tools });
    assert.ok((await callTool(client, "b__z")).result);
    assert.equal(codeOf(await callTool(client, "b__y")), "unknownTool");
    await clock.advanceAsync(100);
    const reported = client.messages.flatMap(({ method }) => method ?? []);
    assert.deepEqual(reported, ["notifications/tools/list_changed"]);
    assert.deepEqual(await list(), ["b__z"]);
    assert.equal(a.transportCount, 1);
  });

  it("change the time of calls that come then, not of those that run", async () => {
    const { a, client, clock, reload, running } = await beginRunning({}, { callTimeout: 1000 });
    reload({ callTimeout: 5000 });
    client.send(callRequest("long", "a__x"));
    await clock.advanceAsync(1000);
    assert.equal((await running()).result?.["isError"], true);
    assert.ok(!client.messages.some(isResponseTo("long")));
    await clock.advanceAsync(4000);
    assert.ok(client.messages.some(isResponseTo("long")));
    assert.equal(a.transportCount, 1);
  });

  it("change idleStop for the process that runs, from then on", async () => {
    const { a, clock, reload } = await beginOne();
    await clock.advanceAsync(HOUR);
    reload({ idleStop: 1000 });
    await clock.advanceAsync(999);
    assert.equal(a.openCount, 1);
    await clock.advanceAsync(1);
    assert.equal(a.openCount, 0);
  });

  it("change the policy for the next loss", async () => {
    const { state, reload, die } = await beginOne();
    reload(NO_RETRY);
    await die();
    assert.equal(state(), "failed");
  });

  it("leave a server alone that is idle", async () => {
    const { clock, life, reload, list } = await beginOne({}, { idleStop: 100 });
    await clock.advanceAsync(500);
    reload({ idleStop: 200, prefix: "b" });
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [1, 1, "idle"]);
    assert.deepEqual(await list(), ["b__x"]);
  });

  it("leave a server alone that waits for its next attempt, if they do not bound its start", async () => {
    const { a, clock, reload } = await beginOne({ onInitialize: REFUSE });
    await clock.advanceAsync(500);
    reload({ callTimeout: 7000 });
    await clock.advanceAsync(499);
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1);
    assert.equal(a.transportCount, 2);
  });

  for (const policy of ["none", "exponential"] as const) {
    it(`have a server tried anew that failed, if they bound its start, under the policy ${policy}`, async () => {
      const reconnect = { ...LIMIT_DEFAULTS.reconnect, policy };
      const script = { onOpen: new Latch().wait };
      const { a, hub, clock, life, reload } = await beginOne(script, {
        reconnect,
        connectTimeout: 100,
      });
      await clock.advanceAsync(100);
      assert.equal(connectionStatusOf(hub, "a").cause?.code, "connectTimeout");
      a.onOpen = undefined;
      reload({ reconnect, connectTimeout: 200 });
      await turn();
      assert.deepEqual(life(), [2, 1, "connected"]);
    });
  }

  it("take a server down that is not enabled any more, and up again", async () => {
    const { a, clock, reload, list, call } = await beginOne();
    reload({ enabled: false });
    await turn();
    assert.equal(a.openCount, 0);
    assert.deepEqual(await list(), []);
    assert.equal(codeOf(await call()), "serverStopped");
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, 1);
    reload({});
    await turn();
    assert.deepEqual(await list(), ["a__x"]);
    assert.equal(a.transportCount, 2);
  });
});

describe("a server that a person stopped", () => {
  it("stays stopped through reloads, also such that change it", async () => {
    const { a, hub, clock, reload, list, call } = await beginOne();
    await hub.stop("a");
    for (const now of [{ callTimeout: 7000 }, OTHER, { ...OTHER, lazy: true }]) reload(now);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, serverStatusOf(hub, "a").goal], [1, "down"]);
    assert.equal(codeOf(await call()), "serverStopped");
    hub.start("a");
    await turn();
    assert.deepEqual(await list(), ["a__x"]);
  });

  it("while it makes place stays stopped, and neither the old nor the new one runs", async () => {
    const latch = new Latch();
    const { a, hub, clock, life, reload } = await beginOne({ onClose: latch.wait });
    reload();
    const stopped = hub.stop("a");
    await turn();
    latch.open();
    await stopped;
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.openCount, ...life()], [0, 1, 1, "disconnected"]);
  });
});

describe("a client that does not read", () => {
  /** A client stops to read an answer that is more than the hub keeps for it; another call may be in flight then. */
  async function hold(isBusy = true) {
    const setup = await beginOne({}, { healthInterval: 1000 });
    const { a, client } = setup;
    const { onCall } = a;
    a.onCall = ({ params }) => {
      const { size } = params?.["arguments"] as { size: number };
      return size === 0 ? undefined : `"result":{"text":"${"x".repeat(size)}"}`;
    };
    if (isBusy) client.send(callRequest("slow", "a__x", { size: 0 }));
    client.send(callRequest("big", "a__x", { size: 20_000_000 }));
    client.transport.pause();
    await turn();
    a.onCall = onCall;
    const answerSlow = (): void => {
      respond(a.newestPeer, a.messagesOf("tools/call")[0]?.id, { of: "old" });
    };
    return { ...setup, answerSlow, slow: () => client.find(isResponseTo("slow")) };
  }

  it("keeps a server from finishing for 10 s at most, which is then ended", async () => {
    const { a, hub, client, clock, life, reload, answerSlow, slow } = await hold();
    reload();
    answerSlow();
    await clock.advanceAsync(9999);
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1);
    assert.deepEqual([a.openCount, ...life()], [1, 2, 1, "connected"]);
    client.transport.resume();
    assert.equal(codeOf(await slow()), "serverStopped");
    await hub.close();
    assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
  });

  it("keeps no server from being stopped, nor from being started again", async () => {
    const { a, hub, client, clock, life, call } = await hold();
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    hub.start("a");
    await turn();
    assert.deepEqual(life(), [2, 1, "connected"]);
    client.transport.resume();
    assert.ok((await call()).result);
    await clock.advanceAsync(1000);
    assert.equal(a.transportCount, 2);
  });

  it("keeps the hub from reading of a server that is started meanwhile what would be for that client", async () => {
    const { a, hub, client, life, reload } = await hold(false);
    reload();
    await turn();
    assert.deepEqual(life(), [2, 1, "connected"]);
    notify(a.newestPeer, "notifications/message", { level: "info", data: "hello" });
    await turn();
    const said = (): boolean => hub.log("a").some(({ text }) => text === "hello");
    assert.equal(said(), false);
    client.transport.resume();
    await turn();
    assert.equal(said(), true);
  });

  it("but then does lets a server finish that makes place", async () => {
    const { client, clock, life, reload, answerSlow, slow } = await hold();
    reload();
    answerSlow();
    await clock.advanceAsync(5000);
    client.transport.resume();
    assert.deepEqual((await slow()).result, { of: "old" });
    await turn();
    assert.deepEqual(life(), [2, 1, "connected"]);
  });
});

describe("rapid edits of a manifest", () => {
  it("end in the last one, never with two copies of a server at a time", async () => {
    const names = ["a", "b", "c"] as const;
    const args = fc.constantFrom(["1"], ["2"]);
    const enabled = fc.constantFrom(true, true, false);
    const callTimeout = fc.constantFrom(1000, 2000);
    const optional = { requiredKeys: [] };
    const settings = fc.record({ args, lazy: fc.boolean(), enabled, callTimeout }, optional);
    const manifest = fc.record({ a: settings, b: settings, c: settings }, optional);
    const run = async (edits: readonly (Servers | number)[], last: Servers): Promise<void> => {
      const [a, b, c] = names.map(() => new ScriptedServer("x"));
      assert.ok(a && b && c);
      const scripts = { a, b, c };
      const { hub, client, clock } = await begin(scripts);
      const wait = (): Promise<void> => new Promise((resolve) => void clock.after(300, resolve));
      for (const script of Object.values(scripts)) {
        script.onClose = wait;
        script.onOpen = wait;
      }
      let calls = 0;
      for (const edit of edits) {
        if (typeof edit === "number") await clock.advanceAsync(edit);
        else hub.reload(manifestOf(edit));
        client.send(callRequest(++calls, `${names[calls % 3]}__x`));
      }
      hub.reload(manifestOf(last));
      await clock.advanceAsync(100_000);
      const wanted = names.filter((name) => last[name] !== undefined);
      const servers = hub.status().map(({ server }) => server);
      assert.deepEqual(servers, Object.keys(last));
      for (const name of names) {
        const script = scripts[name];
        assert.ok(script.maxOpenCount <= 1, `${script.maxOpenCount} copies of ${name}`);
        const spec = last[name];
        const isOn = wanted.includes(name) && spec?.enabled !== false;
        if (!isOn) assert.equal(script.openCount, 0);
        else if (spec?.lazy !== true) assert.equal(script.openCount, 1);
      }
      const shown = wanted.filter((name) => last[name]?.enabled !== false);
      assert.deepEqual(await listToolNames(client), shown.map((name) => `${name}__x`).toSorted());
      const answers = client.messages.filter(({ id }) => typeof id === "number");
      assert.equal(answers.length, calls);
      for (const script of Object.values(scripts)) script.onClose = undefined;
      await hub.close();
      assert.deepEqual(clock.pendingDelays, []);
    };
    const edits = fc.array(fc.oneof(manifest, fc.nat(1000)));
    await fc.assert(fc.asyncProperty(edits, manifest, run), { numRuns: 80 });
  });
});
