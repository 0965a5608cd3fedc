import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  array,
  assert as check,
  asyncProperty,
  constantFrom,
  nat,
  oneof,
  record,
} from "fast-check";
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

const HOUR = 3_600_000;
const SILENCE = (): undefined => undefined;

async function begin(
  scripts: Record<string, ScriptedServer>,
  servers: Servers = {},
): Promise<ReturnType<typeof setUpHubWithClock>> {
  const made = setUpHubWithClock(scripts, { servers });
  await initialize(made.client);
  return made;
}

/** Answers the call that a server was asked last. */
function answer(a: ScriptedServer, nth = -1): void {
  const peer = a.peers.at(nth);
  const asked = peer?.messages.findLast(({ method }) => method === "tools/call");
  peer?.send({ jsonrpc: "2.0", id: asked?.id, result: { of: "old" } });
}

describe("a server whose table is wrong", () => {
  const problem = {
    file: "/m.toml",
    path: ["servers", "a", "comand"],
    at: "key" as const,
    message: "unknown key",
  };
  const WRONG = {
    kind: "invalid",
    name: "a",
    enabled: true,
    prefix: "a",
    problems: [problem],
    secrets: [],
  } as const;
  const withWrong = (servers: Servers): Manifest => {
    const manifest = manifestOf(servers);
    return { ...manifest, servers: [WRONG, ...manifest.servers] };
  };

  it("has failed with the problem as its cause, in the order of the manifest, and an alert says so until it is right", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const made = setUpHubWithClock({ a, b }, { manifest: withWrong({ b: {} }) });
    const { hub, client } = made;
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["b__y"]);
    assert.deepEqual(
      hub.status().map(({ server, connections }) => [server, connections[0]?.state]),
      [
        ["a", "failed"],
        ["b", "connected"],
      ],
    );
    assert.equal(connectionStatusOf(hub, "a").cause?.code, "serverInvalid");
    assert.deepEqual(
      hub.snapshot().alerts.map(({ kind, server }) => [kind, server]),
      [["manifestInvalid", "a"]],
    );
    assert.equal((await callTool(client, "a__x")).error?.data?.["code"], "serverInvalid");
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
    assert.deepEqual(
      events.slice(before).map(({ kind }) => kind),
      ["manifest"],
    );
    answer(a);
    assert.deepEqual((await running).result, { of: "old" });
  });

  it("starts what is new, ends what is gone, and leaves the rest alone", async () => {
    const [a, b, c] = [new ScriptedServer("x"), new ScriptedServer("y"), new ScriptedServer("z")];
    const { hub, client, clock } = await begin({ a, b, c });
    hub.reload(manifestOf({ a: {}, b: {} }));
    await turn();
    assert.deepEqual([a.transportCount, b.transportCount, c.openCount], [1, 1, 0]);
    hub.reload(manifestOf({ c: {}, a: {} }));
    await clock.advanceAsync(100);
    assert.deepEqual([a.transportCount, b.openCount, c.transportCount, c.openCount], [1, 0, 2, 1]);
    assert.deepEqual(await listToolNames(client), ["a__x", "c__z"]);
    assert.deepEqual(
      hub.status().map(({ server }) => server),
      ["c", "a"],
    );
  });

  it("tells of each server that it added, changed or removed, and then of itself", async () => {
    const [a, b, c] = [new ScriptedServer(), new ScriptedServer(), new ScriptedServer()];
    const { hub, events } = await begin({ a, b, c });
    hub.remove("c");
    const before = events.length;
    hub.reload(manifestOf({ a: { args: ["other"] }, c: {} }));
    const reported = events
      .slice(before)
      .flatMap((event) =>
        event.kind === "server"
          ? [`${event.server} ${event.change}`]
          : event.kind === "manifest" && event.outcome === "reloaded"
            ? [`${event.servers} servers`]
            : [],
      );
    assert.deepEqual(reported, ["b removed", "a changed", "c added", "2 servers"]);
  });

  it("of an empty manifest leaves nothing", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub, client } = await begin({ a, b });
    hub.reload(manifestOf({}));
    await turn();
    assert.deepEqual([a.openCount, b.openCount, hub.status()], [0, 0, []]);
    assert.deepEqual(await listToolNames(client), []);
  });
});

describe("a server whose process is to be another", () => {
  it("finishes its calls in flight, then ends, and only then the new one starts", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, client, clock } = await begin({ a });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    await clock.advanceAsync(5000);
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
    answer(a);
    assert.deepEqual((await running).result, { of: "old" });
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    await turn();
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
      [2, 1, "connected"],
    );
  });

  it("has its calls in flight failed after 10 s, and says why", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client, clock } = await begin({ a });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    await clock.advanceAsync(9999);
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1);
    const { error } = await running;
    assert.equal(error?.data?.["code"], "serverStopped");
    assert.match(error?.message ?? "", /"a" was stopped/);
    assert.deepEqual([a.transportCount, a.maxOpenCount], [2, 1]);
  });

  it("brings calls that come meanwhile to the new one", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client } = await begin({ a });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    const later = callTool(client, "a__x");
    await turn();
    assert.equal(a.peers[0]?.messages.filter(({ method }) => method === "tools/call").length, 1);
    a.onCall = () => '"result":{"of":"new"}';
    answer(a);
    assert.deepEqual((await running).result, { of: "old" });
    assert.deepEqual((await later).result, { of: "new" });
  });

  it("brings the calls that waited for the old one to the new one", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    const { hub, client } = await begin({ a });
    a.onInitialize = SILENCE;
    a.disconnect();
    await turn();
    const waiting = [callTool(client, "a__x"), callTool(client, "a__x")];
    await turn();
    assert.equal(connectionStatusOf(hub, "a").state, "connecting");
    a.onInitialize = onInitialize;
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    for (const each of waiting) assert.ok((await each).result);
    assert.deepEqual([a.transportCount, a.maxOpenCount], [3, 1]);
  });

  it("refuses a call that waited if it does not list that tool", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = await begin({ a });
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.disconnect();
    await turn();
    const waiting = callTool(client, "a__x");
    await turn();
    a.tools = ['{"name":"y"}'];
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    latch.open();
    assert.equal((await waiting).error?.code, -32602);
    assert.equal(a.messagesOf("tools/call").length, 0);
  });

  it("can be given up by a call that went on to the new one", async () => {
    const a = new ScriptedServer("x");
    const { client, hub, clock } = await begin({ a }, { a: { callTimeout: 500 } });
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.disconnect();
    await turn();
    const waiting = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({ a: { args: ["other"], callTimeout: 500 } }));
    await clock.advanceAsync(500);
    assert.equal((await waiting).result?.["isError"], true);
    latch.open();
    await turn();
    assert.equal(a.messagesOf("tools/call").length, 0);
  });

  it("stays listed meanwhile, and nobody is told of a change if there is none", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, client, clock } = await begin({ a });
    await listToolNames(client);
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    await clock.advanceAsync(1000);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    latch.open();
    await clock.advanceAsync(1000);
    assert.equal(client.messages.filter(({ method }) => method !== undefined).length, 0);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });

  it("does not make others wait for its end", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    a.onClose = new Latch().wait;
    const { hub } = await begin({ a, b });
    hub.reload(manifestOf({ a: { args: ["other"] }, b: { args: ["other"] } }));
    await turn();
    assert.deepEqual(
      [a.transportCount, b.transportCount, connectionStatusOf(hub, "b").state],
      [1, 2, "connected"],
    );
  });

  it("that dies while it finishes is not started again as it was", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client, clock, events } = await begin({ a });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    a.disconnect();
    assert.deepEqual((await running).result?.["_meta"], { "toolmux/error": "connectionLost" });
    await clock.advanceAsync(HOUR);
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
      [2, 1, "connected"],
    );
    assert.deepEqual(hub.snapshot().alerts, []);
    assert.ok(!events.some((event) => event.kind === "alert"));
  });

  it("is the last one of several that are wanted within a moment, and nothing of the others runs", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, client } = await begin({ a });
    for (const arg of ["1", "2", "3", "4"]) hub.reload(manifestOf({ a: { args: [arg] } }));
    const waiting = callTool(client, "a__x");
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
    latch.open();
    assert.ok((await waiting).result);
    assert.deepEqual([a.transportCount, a.maxOpenCount, a.openCount], [2, 1, 1]);
  });

  it("goes back to what it was, but as a new process, if that is wanted before it has ended", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub } = await begin({ a });
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    hub.reload(manifestOf({ a: {} }));
    await turn();
    latch.open();
    await turn();
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
      [2, 1, "connected"],
    );
  });

  it("that failed is tried anew", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    a.onInitialize = () => '"error":{"code":1,"message":"out of order"}';
    const none = { reconnect: { ...LIMIT_DEFAULTS.reconnect, policy: "none" as const } };
    const { hub } = await begin({ a }, { a: none });
    assert.equal(connectionStatusOf(hub, "a").state, "failed");
    a.onInitialize = onInitialize;
    hub.reload(manifestOf({ a: { ...none, args: ["other"] } }));
    await turn();
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    assert.deepEqual(hub.snapshot().alerts, []);
  });
});

describe("a server that makes place", () => {
  it("ends at once, calls and all, if somebody stops the server, who hears when nothing of it is left", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client, clock } = await begin({ a });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    await turn();
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    assert.equal((await running).error?.data?.["code"], "serverStopped");
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, 1);
  });

  it("ends at once if all servers are stopped", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client } = await begin({ a });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({}));
    await hub.stopAll();
    assert.equal((await running).error?.data?.["code"], "serverStopped");
    assert.equal(a.openCount, 0);
  });

  it("ends at once if the hub is closed", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client, clock } = await begin({ a });
    client.send(callRequest("unanswered", "a__x"));
    await turn();
    hub.reload(manifestOf({}));
    await turn();
    assert.equal(a.openCount, 1);
    await hub.close();
    assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
  });

  it("for none finishes its calls in flight, up to 10 s", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client, clock } = await begin({ a });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({}));
    await clock.advanceAsync(9000);
    answer(a);
    assert.deepEqual((await running).result, { of: "old" });
    await turn();
    assert.equal(a.openCount, 0);
  });

  it("for none takes no new calls", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client } = await begin({ a });
    client.send(callRequest("unanswered", "a__x"));
    await turn();
    hub.reload(manifestOf({}));
    assert.equal((await callTool(client, "a__x")).error?.code, -32602);
    assert.equal(a.messagesOf("tools/call").length, 1);
  });
});

describe("settings that a process does not depend on", () => {
  it("change without another process: prefix and rules, at once and with a word to clients", async () => {
    const a = new ScriptedServer("x", "y");
    const { hub, client, clock } = await begin({ a });
    await listToolNames(client);
    hub.reload(
      manifestOf({
        a: {
          prefix: "b",
          tools: { allow: undefined, deny: ["y"], rename: { x: "z" }, timeout: {} },
        },
      }),
    );
    assert.deepEqual(await listToolNames(client), ["b__z"]);
    assert.ok((await callTool(client, "b__z")).result);
    await clock.advanceAsync(100);
    assert.equal(a.transportCount, 1);
  });

  it("tell clients that have a list which is another now", async () => {
    const { hub, client, clock } = await begin({ a: new ScriptedServer("x") });
    await listToolNames(client);
    hub.reload(manifestOf({ a: { prefix: "b" } }));
    await clock.advanceAsync(100);
    const reported = client.messages.filter(({ method }) => method !== undefined);
    assert.deepEqual(
      reported.map(({ method }) => method),
      ["notifications/tools/list_changed"],
    );
  });

  it("change the time of calls that come then, not of those that run", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client, clock } = await begin({ a }, { a: { callTimeout: 1000 } });
    const running = callTool(client, "a__x");
    await turn();
    hub.reload(manifestOf({ a: { callTimeout: 5000 } }));
    client.send({ jsonrpc: "2.0", id: "long", method: "tools/call", params: { name: "a__x" } });
    await clock.advanceAsync(1000);
    assert.equal((await running).result?.["isError"], true);
    assert.equal(client.messages.filter(isResponseTo("long")).length, 0);
    await clock.advanceAsync(4000);
    assert.equal(client.messages.filter(isResponseTo("long")).length, 1);
    assert.equal(a.transportCount, 1);
  });

  it("change idleStop for the process that runs, from then on", async () => {
    const a = new ScriptedServer("x");
    const { hub, clock } = await begin({ a });
    await clock.advanceAsync(HOUR);
    hub.reload(manifestOf({ a: { idleStop: 1000 } }));
    await clock.advanceAsync(999);
    assert.equal(a.openCount, 1);
    await clock.advanceAsync(1);
    assert.equal(a.openCount, 0);
  });

  it("change the policy for the next loss", async () => {
    const a = new ScriptedServer("x");
    const { hub } = await begin({ a });
    hub.reload(manifestOf({ a: { reconnect: { ...LIMIT_DEFAULTS.reconnect, policy: "none" } } }));
    a.disconnect();
    await turn();
    assert.equal(connectionStatusOf(hub, "a").state, "failed");
  });

  it("leave a server alone that is idle", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a }, { a: { idleStop: 100 } });
    await clock.advanceAsync(500);
    hub.reload(manifestOf({ a: { idleStop: 200, prefix: "b" } }));
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [1, "idle"]);
    assert.deepEqual(await listToolNames(client), ["b__x"]);
  });

  it("leave a server alone that waits for its next attempt, if they do not bound its start", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = () => '"error":{"code":1,"message":"no"}';
    const { hub, clock } = await begin({ a });
    await clock.advanceAsync(500);
    hub.reload(manifestOf({ a: { callTimeout: 7000 } }));
    await clock.advanceAsync(499);
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1);
    assert.equal(a.transportCount, 2);
  });

  for (const policy of ["none", "exponential"] as const) {
    it(`have a server tried anew that failed, if they bound its start, under the policy ${policy}`, async () => {
      const a = new ScriptedServer("x");
      a.onOpen = new Latch().wait;
      const reconnect = { ...LIMIT_DEFAULTS.reconnect, policy };
      const { hub, clock } = await begin({ a }, { a: { reconnect, connectTimeout: 100 } });
      await clock.advanceAsync(100);
      assert.equal(connectionStatusOf(hub, "a").cause?.code, "connectTimeout");
      a.onOpen = undefined;
      hub.reload(manifestOf({ a: { reconnect, connectTimeout: 200 } }));
      await turn();
      assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [2, "connected"]);
    });
  }

  it("take a server down that is not enabled any more, and up again", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a });
    hub.reload(manifestOf({ a: { enabled: false } }));
    await turn();
    assert.equal(a.openCount, 0);
    assert.deepEqual(await listToolNames(client), []);
    assert.equal((await callTool(client, "a__x")).error?.data?.["code"], "serverStopped");
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, 1);
    hub.reload(manifestOf({ a: {} }));
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.equal(a.transportCount, 2);
  });
});

describe("a server that a person stopped", () => {
  it("stays stopped through reloads, also such that change it", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a });
    await hub.stop("a");
    hub.reload(manifestOf({ a: { callTimeout: 7000 } }));
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    hub.reload(manifestOf({ a: { args: ["other"], lazy: true } }));
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, serverStatusOf(hub, "a").goal], [1, "down"]);
    assert.equal((await callTool(client, "a__x")).error?.data?.["code"], "serverStopped");
    hub.start("a");
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });

  it("while it makes place stays stopped, and neither the old nor the new one runs", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, clock } = await begin({ a });
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    const stopped = hub.stop("a");
    await turn();
    latch.open();
    await stopped;
    await clock.advanceAsync(HOUR);
    assert.deepEqual(
      [a.transportCount, a.openCount, connectionStatusOf(hub, "a").state],
      [1, 0, "disconnected"],
    );
  });
});

describe("a client that does not read", () => {
  /** A client stops to read an answer that is more than the hub keeps for it; another call may be in flight then. */
  async function hold(
    isBusy = true,
  ): Promise<ReturnType<typeof setUpHubWithClock> & { a: ScriptedServer }> {
    const a = new ScriptedServer("x");
    const { onCall } = a;
    const made = await begin({ a }, { a: { healthInterval: 1000 } });
    a.onCall = ({ params }) => {
      const { size } = params?.["arguments"] as { size: number };
      return size === 0 ? undefined : `"result":{"text":"${"x".repeat(size)}"}`;
    };
    if (isBusy) made.client.send(callRequest("slow", "a__x", { size: 0 }));
    made.client.send(callRequest("big", "a__x", { size: 20_000_000 }));
    made.client.transport.pause();
    await turn();
    a.onCall = onCall;
    return { ...made, a };
  }

  it("keeps a server from finishing for 10 s at most, which is then ended", async () => {
    const { a, hub, client, clock } = await hold();
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    const [slow] = a.messagesOf("tools/call");
    a.newestPeer?.send({ jsonrpc: "2.0", id: slow?.id, result: {} });
    await clock.advanceAsync(9999);
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1);
    assert.deepEqual([a.transportCount, a.maxOpenCount, a.openCount], [2, 1, 1]);
    client.transport.resume();
    const { error } = await client.find(isResponseTo("slow"));
    assert.equal(error?.data?.["code"], "serverStopped");
    await hub.close();
    assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
  });

  it("keeps no server from being stopped, nor from being started again", async () => {
    const { a, hub, client, clock } = await hold();
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    hub.start("a");
    await turn();
    assert.deepEqual([a.maxOpenCount, connectionStatusOf(hub, "a").state], [1, "connected"]);
    client.transport.resume();
    assert.ok((await callTool(client, "a__x")).result);
    await clock.advanceAsync(1000);
    assert.equal(a.transportCount, 2);
  });

  it("keeps the hub from reading of a server that is started meanwhile what would be for that client", async () => {
    const { a, hub, client } = await hold(false);
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    await turn();
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [2, "connected"]);
    const params = { level: "info", data: "hello" };
    a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
    await turn();
    const said = (): boolean => hub.log("a").some(({ text }) => text === "hello");
    assert.equal(said(), false);
    client.transport.resume();
    await turn();
    assert.equal(said(), true);
  });

  it("but then does lets a server finish that makes place", async () => {
    const { a, hub, client, clock } = await hold();
    hub.reload(manifestOf({ a: { args: ["other"] } }));
    const [slow] = a.messagesOf("tools/call");
    a.newestPeer?.send({ jsonrpc: "2.0", id: slow?.id, result: { of: "old" } });
    await clock.advanceAsync(5000);
    client.transport.resume();
    assert.deepEqual((await client.find(isResponseTo("slow"))).result, { of: "old" });
    await turn();
    assert.deepEqual([a.transportCount, a.maxOpenCount], [2, 1]);
  });

  it("does not make its servers look dead", async () => {
    const { a, hub, client, clock } = await hold(false);
    await clock.advanceAsync(HOUR);
    client.transport.resume();
    await clock.advanceAsync(10_000);
    const { state, responsive } = connectionStatusOf(hub, "a");
    assert.deepEqual([a.transportCount, state, responsive], [1, "connected", true]);
  });
});

describe("rapid edits of a manifest", () => {
  it("end in the last one, never with two copies of a server at a time", async () => {
    const names = ["a", "b", "c"] as const;
    const settings = record(
      {
        args: constantFrom(["1"], ["2"]),
        lazy: constantFrom(true, false),
        enabled: constantFrom(true, true, false),
        callTimeout: constantFrom(1000, 2000),
      },
      { requiredKeys: [] },
    );
    const manifest = record({ a: settings, b: settings, c: settings }, { requiredKeys: [] });
    const run = async (edits: readonly (Servers | number)[], last: Servers): Promise<void> => {
      const scripts = {
        a: new ScriptedServer("x"),
        b: new ScriptedServer("x"),
        c: new ScriptedServer("x"),
      };
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
        client.send({
          jsonrpc: "2.0",
          id: ++calls,
          method: "tools/call",
          params: { name: `${names[calls % 3]}__x` },
        });
      }
      hub.reload(manifestOf(last));
      await clock.advanceAsync(100_000);
      const wanted = names.filter((name) => last[name] !== undefined);
      assert.deepEqual(
        hub.status().map(({ server }) => server),
        Object.keys(last),
      );
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
    await check(asyncProperty(array(oneof(manifest, nat(1000))), manifest, run), { numRuns: 200 });
  });
});
