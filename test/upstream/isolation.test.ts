import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { array, assert as check, asyncProperty, constantFrom, nat, oneof } from "fast-check";
import { Alerts } from "../../src/base/alerts.ts";
import { HubError } from "../../src/base/errors.ts";
import { EventBus } from "../../src/base/events.ts";
import type { StdioServer } from "../../src/manifest/manifest.ts";
import { type ClientChannel, profileOf, SHARED_PROFILE } from "../../src/upstream/profile.ts";
import { StartLimiter } from "../../src/upstream/start-limiter.ts";
import { ServerPool } from "../../src/upstream/pool.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  callRequest,
  INITIALIZE_REQUEST,
  initialize,
  Latch,
  listToolNames,
  manifestOf,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";

const ALONE: ClientChannel = {
  era: "legacy",
  level: undefined,
  sendServerRequest: () => () => {},
  notify() {},
  sendLogMessage() {},
};
const SILENCE = (): undefined => undefined;
const OWN = { isolation: "perClient" } as const;

/** A hub with two clients that have introduced themselves. */
async function begin(
  scripts: Record<string, ScriptedServer>,
  servers: Readonly<Record<string, Partial<StdioServer>>>,
): Promise<
  ReturnType<typeof setUpHubWithClock> & { second: ReturnType<typeof setUpHubWithClock>["client"] }
> {
  const made = setUpHubWithClock(scripts, { servers });
  const second = made.connect();
  await initialize(made.client);
  await initialize(second);
  return { ...made, second };
}

describe("a server that clients share", () => {
  it("is one process for two clients, which outlives both", async () => {
    const a = new ScriptedServer("x");
    const { client, second } = await begin({ a }, {});
    assert.ok((await callTool(client, "a__x")).result);
    assert.ok((await callTool(second, "a__x")).result);
    assert.equal(a.transportCount, 1);
    await client.transport.close();
    await second.transport.close();
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
  });
});

describe("a server that each client has for itself", () => {
  it("is one process for each, and each call goes to its client's own", async () => {
    const a = new ScriptedServer("x");
    const { client, second } = await begin({ a }, { a: OWN });
    assert.deepEqual([a.transportCount, a.openCount], [2, 2]);
    await callTool(client, "a__x", { of: "first" });
    await callTool(second, "a__x", { of: "second" });
    const argumentsOf = a.peers.map(({ messages }) =>
      messages.flatMap(({ method, params }) =>
        method === "tools/call" ? params?.["arguments"] : [],
      ),
    );
    assert.deepEqual(argumentsOf, [[{ of: "first" }], [{ of: "second" }]]);
  });

  it("shows each client what its own process lists", async () => {
    const a = new ScriptedServer("x");
    let lists = 0;
    a.onList = () => `"result":{"tools":[{"name":"t${++lists}"}]}`;
    const { client, second } = await begin({ a }, { a: OWN });
    assert.deepEqual(await listToolNames(client), ["a__t1"]);
    assert.deepEqual(await listToolNames(second), ["a__t2"]);
  });

  it("ends when its client leaves, and the others' go on", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, second } = await begin({ a }, { a: OWN });
    await client.transport.close();
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [2, 1]);
    assert.equal(a.peers[0]?.isClosed, true);
    assert.equal(serverStatusOf(hub, "a").connections.length, 1);
    assert.ok((await callTool(second, "a__x")).result);
  });

  it("ends although its client leaves with a call in flight, which is cancelled", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { client } = await begin({ a }, { a: OWN });
    client.send(callRequest(1, "a__x"));
    await turn();
    await client.transport.close();
    await turn();
    assert.equal(a.openCount, 1);
    assert.equal(a.messagesOf("notifications/cancelled").length, 1);
  });

  for (const [step, hang] of [
    ["made", (a: ScriptedServer): void => void (a.onMake = new Latch().wait)],
    ["opened", (a: ScriptedServer): void => void (a.onOpen = new Latch().wait)],
    ["greeted", (a: ScriptedServer): void => void (a.onInitialize = SILENCE)],
  ] as const) {
    it(`leaves nothing if its client leaves while it is being ${step}`, async () => {
      const a = new ScriptedServer("x");
      hang(a);
      const made = setUpHubWithClock({ a }, { servers: { a: OWN } });
      await initialize(made.client);
      await made.client.transport.close();
      await made.clock.advanceAsync(600_000);
      assert.equal(a.openCount, 0);
      assert.ok(a.transportCount <= 1);
      assert.deepEqual(serverStatusOf(made.hub, "a").connections, []);
      assert.deepEqual(made.clock.pendingDelays, []);
    });
  }

  it("is not started again for a client that has left, whatever happens to the server", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = await begin({ a }, { a: OWN });
    await client.transport.close();
    await turn();
    hub.reload(manifestOf({ a: { ...OWN, args: ["other"] } }));
    await turn();
    await hub.stop("a");
    hub.start("a");
    await turn();
    assert.equal(a.openCount, 1);
    assert.equal(serverStatusOf(hub, "a").connections.length, 1);
  });

  it("is stopped, started and reconnected for all its clients at a time", async () => {
    const a = new ScriptedServer("x");
    const { hub } = await begin({ a }, { a: OWN });
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    hub.start("a");
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [4, 2]);
    hub.reconnect("a");
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [6, 2]);
  });

  it("says in its status whose each connection is", async () => {
    const { hub } = await begin({ a: new ScriptedServer("x") }, { a: OWN });
    const clients = serverStatusOf(hub, "a").connections.map(({ client }) => client);
    assert.equal(new Set(clients).size, 2);
    assert.ok(clients.every((client) => typeof client === "string"));
  });

  it("that dies for one client costs no other anything", async () => {
    const a = new ScriptedServer("x");
    const { client, second, clock } = await begin({ a }, { a: OWN });
    a.disconnect();
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.ok((await callTool(client, "a__x")).result);
    assert.equal(a.transportCount, 2);
    assert.ok((await callTool(second, "a__x")).result);
    assert.deepEqual([a.transportCount, clock.now()], [3, 0]);
  });
});

describe("a server that is to be shared otherwise than before", () => {
  it("is each client's own only when nothing of the one for all is left", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, client, second } = await begin({ a }, {});
    hub.reload(manifestOf({ a: OWN }));
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
    latch.open();
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [3, 2]);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.ok((await callTool(second, "a__x")).result);
  });

  it("is one for all only when nothing of any client's own is left", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, client, second } = await begin({ a }, { a: OWN });
    hub.reload(manifestOf({ a: {} }));
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [2, 2]);
    latch.open();
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [3, 1]);
    assert.ok((await callTool(client, "a__x")).result);
    assert.ok((await callTool(second, "a__x")).result);
    await hub.close();
    assert.equal(a.openCount, 0);
  });

  it("is nobody's whose client has left", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = await begin({ a }, {});
    await client.transport.close();
    await turn();
    hub.reload(manifestOf({ a: OWN }));
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [2, 1]);
  });

  it("is found by a call that comes meanwhile", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, client } = await begin({ a }, {});
    hub.reload(manifestOf({ a: OWN }));
    const answer = callTool(client, "a__x");
    await turn();
    latch.open();
    assert.ok((await answer).result);
  });
});

describe("clients that come and go while it changes who shares a server", () => {
  it("each have what is theirs in the end, and nothing of those that left is left", async () => {
    const act = oneof(
      constantFrom("own", "share", "come", "come", "leave", "call"),
      constantFrom("die", "stop", "start", "reconnect", "remove"),
      nat(400),
    );
    const run = async (acts: readonly (string | number)[], isOwn: boolean): Promise<void> => {
      const a = new ScriptedServer("x");
      const { hub, client, connect, clock } = setUpHubWithClock({ a });
      const wait = (): Promise<void> => new Promise((resolve) => void clock.after(100, resolve));
      Object.assign(a, { onOpen: wait, onClose: wait });
      const clients = [client];
      let calls = 0;
      const isThere = (): boolean => hub.status().length > 0;
      const does: Readonly<Record<string, () => unknown>> = {
        own: () => hub.add(stdioSpecOf("a", OWN)),
        share: () => hub.add(stdioSpecOf("a")),
        come: () => clients.push(connect()) && clients.at(-1)?.send(INITIALIZE_REQUEST),
        leave: () => clients.pop()?.transport.close(),
        call: () => clients.at(-1)?.send(callRequest(`call ${++calls}`, "a__x")),
        die: () => a.disconnect(),
        stop: () => isThere() && hub.stop("a"),
        start: () => isThere() && hub.start("a"),
        reconnect: () => isThere() && hub.reconnect("a"),
        remove: () => hub.remove("a"),
      };
      await initialize(client);
      for (const each of acts) {
        if (typeof each === "number") await clock.advanceAsync(each);
        else does[each]?.();
      }
      does["come"]?.();
      hub.add(stdioSpecOf("a", isOwn ? OWN : {}));
      hub.start("a");
      await clock.advanceAsync(100_000);
      assert.equal(a.openCount, isOwn ? clients.length : 1);
      for (const peer of clients) assert.ok((await callTool(peer, "a__x")).result);
      a.onClose = undefined;
      await hub.close();
      assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
    };
    const words = constantFrom(true, false);
    await check(asyncProperty(array(act, { maxLength: 25 }), words, run), { numRuns: 200 });
  });
});

/** A pool over scripted servers, without any hub around it. */
function makePool(
  scripts: Readonly<Record<string, ScriptedServer>>,
  specs: readonly StdioServer[],
): ServerPool {
  const clock = new VirtualClock();
  const bus = new EventBus();
  const pool = new ServerPool({
    environment: {
      clientInfo: () => ({ name: "toolmux", version: "1" }),
      clock,
      startLimiter: new StartLimiter(16, clock),
      openTransport({ name }) {
        const script = scripts[name];
        if (script === undefined) throw new HubError("spawnFailed", "no such script");
        return Promise.resolve(script.connect());
      },
    },
    bus,
    alerts: new Alerts(bus),
    memory: { load: () => Promise.resolve(undefined), save: () => {} },
    random: () => 0,
    changed: () => {},
    settled: () => {},
  });
  pool.reconcile(specs);
  return pool;
}

describe("the pool", () => {
  it("has another connection for clients that can do something else, and one for those that can do the same", async () => {
    const a = new ScriptedServer("x");
    const pool = makePool({ a }, [stdioSpecOf("a")]);
    const [first, same, other] = [
      profileOf("", "client-1", ALONE),
      profileOf("", "client-2", ALONE),
      profileOf('{"sampling":{}}', "client-3", ALONE),
    ];
    for (const profile of [first, same, other]) pool.addProfile(profile);
    await turn();
    assert.equal(a.transportCount, 2);
    assert.equal(pool.connectionFor("a", first), pool.connectionFor("a", same));
    assert.notEqual(pool.connectionFor("a", first), pool.connectionFor("a", other));
    assert.equal(pool.connections(first).length, 1);
    await pool.shutDown();
    assert.equal(a.openCount, 0);
  });

  it("has another connection for the same client if it can do something else now", async () => {
    const a = new ScriptedServer("x");
    const pool = makePool({ a }, [stdioSpecOf("a", OWN)]);
    const [before, after] = [profileOf("", "client-1"), profileOf('{"roots":{}}', "client-1")];
    assert.notEqual(pool.connectionFor("a", before), pool.connectionFor("a", after));
    await turn();
    assert.equal(a.transportCount, 2);
  });

  it("refuses a server that each client has for itself to a client that nobody knows, and says why", () => {
    const a = new ScriptedServer("x");
    const pool = makePool({ a }, [stdioSpecOf("a", OWN)]);
    assert.throws(() => pool.connectionFor("a", SHARED_PROFILE), {
      code: "notSupported",
      message: /"a".*isolation = "perClient".*which client/,
    });
    assert.equal(a.transportCount, 0);
  });

  it("shows a client nothing of another's own server, but all to who is nobody in particular", async () => {
    const pool = makePool({ a: new ScriptedServer("x") }, [stdioSpecOf("a", OWN)]);
    const [one, other] = [profileOf("", "client-1"), profileOf("", "client-2")];
    pool.addProfile(one);
    await turn();
    assert.equal(pool.connections(one).length, 1);
    assert.deepEqual(pool.connections(other), []);
    assert.deepEqual(pool.connections(SHARED_PROFILE), pool.connections(one));
  });

  it("has nothing for a server that there is not, or that is down", () => {
    const pool = makePool({}, [stdioSpecOf("off", { enabled: false })]);
    assert.equal(pool.connectionFor("none", SHARED_PROFILE), undefined);
    assert.equal(pool.connectionFor("off", SHARED_PROFILE), undefined);
  });
});
