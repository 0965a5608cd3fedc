import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import type { Host, Parts } from "../../src/plugin/plugin.ts";
import type { PluginSet } from "../../src/plugin/plugin-set.ts";
import { reusePlugins, setUpPlugins } from "../../src/plugin/setup.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  Latch,
  recordEvents,
  listToolNames,
  manifestFor,
  ScriptedServer,
  type Servers,
  setUpHub,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { pluginSpecOf, type PluginUse } from "../fixtures/plugin-hub.ts";
import { lastRequest, overStreamedTransports } from "../fixtures/streamed-transport.ts";
import {
  callPlugin,
  CANCELLED,
  errorCodeOf,
  logsOf,
  messageTo,
  pluginOf,
  pluginWithHost,
  silent,
} from "./plugin-hub.ts";

/** A hub with these plugins, which can be replaced. */
async function start(
  first: readonly PluginUse[],
  s = new ScriptedServer("t"),
  servers: Servers = {},
) {
  const { bus, events } = recordEvents();
  const clock = new VirtualClock();
  const equip = async (uses: readonly PluginUse[]) => {
    const loaders = Object.fromEntries(
      uses.map(({ plugin }) => [plugin.name, () => Promise.resolve({ default: plugin })]),
    );
    const plugins = uses.map((one, at) => pluginSpecOf(one, at));
    const manifest = { ...manifestFor({ s }, { servers }), plugins };
    const environment = { bus, env: {}, stateFolder: "/nowhere", clock: systemClock, loaders };
    const prepared = await setUpPlugins(manifest, environment);
    assert.ok(prepared.ok, JSON.stringify(prepared));
    return { ...prepared, bus, events };
  };
  const prepared = await equip(first);
  const setup = setUpHub({ s }, { prepared, clock, random: () => 0, servers });
  await initialize(setup.client);
  await turn();
  /** Replaces the active plugins by these. @returns the new set */
  async function exchange(...uses: readonly PluginUse[]): Promise<PluginSet | undefined> {
    const next = uses.length === 0 ? undefined : await equip(uses);
    setup.hub.reload(next?.manifest ?? manifestFor({ s }, { servers }), next?.plugins);
    return next?.plugins;
  }
  /** Sends a call, which is under way then. */
  async function call(name = "s__t"): Promise<void> {
    setup.client.send(callRequest(1, name));
    await turn();
  }
  const answer = async () => (await setup.client.find(isResponseTo(1))).result;
  return { ...setup, bus, clock, exchange, call, answer };
}

const LIST_CHANGED = "notifications/tools/list_changed";

/** A plugin that adds a tool of this name to every listing. */
const adding = (name: string): PluginUse =>
  pluginOf("adding", { list: (items) => [...items, { name, inputSchema: { type: "object" } }] });

/** A plugin that marks its results and records its end. */
function marking(mark: string, order: string[], parts: Parts = {}): PluginUse {
  return pluginWithHost("marking", (host) => {
    order.push(`${mark} set up`);
    host.signal.addEventListener("abort", () => order.push(`${mark} aborted`));
    return {
      call: () => (given) => Promise.resolve(given.answer({ mark })),
      dispose: () => void order.push(`${mark} disposed`),
      ...parts,
    };
  });
}

describe("plugins that make place for others", () => {
  it("end when the others are in force", async () => {
    const order: string[] = [];
    const { client, exchange, hub } = await start([marking("old", order)]);
    assert.deepEqual((await callTool(client, "s__t")).result, { mark: "old" });
    const set = await exchange(marking("new", order));
    assert.equal(hub.activePlugins.set, set);
    assert.deepEqual((await callTool(client, "s__t")).result, { mark: "new" });
    await turn();
    assert.deepEqual(order, ["old set up", "new set up", "old aborted", "old disposed"]);
  });

  it("end their calls first, in the old way, while new ones go the new way", async () => {
    const order: string[] = [];
    const late = new Latch();
    const slow = marking("old", order, {
      call: () => async (given) => {
        await late.wait();
        order.push("old answered");
        return given.answer({ mark: "old" });
      },
    });
    const { client, exchange, call, answer } = await start([slow]);
    await call();
    await exchange(marking("new", order));
    assert.deepEqual((await callTool(client, "s__t")).result, { mark: "new" });
    await turn();
    assert.deepEqual(order.splice(0), ["old set up", "new set up"]);
    late.open();
    assert.deepEqual(await answer(), { mark: "old" });
    await turn();
    assert.deepEqual(order, ["old answered", "old aborted", "old disposed"]);
  });

  it("end at once with the hub, if they still have calls", async () => {
    const order: string[] = [];
    const hanging = marking("old", order, { call: () => () => new Promise(() => {}) });
    const { exchange, hub, call } = await start([hanging]);
    await call();
    await exchange(marking("new", order));
    order.splice(0);
    await hub.close();
    const ends = ["new aborted", "new disposed", "old aborted", "old disposed"];
    assert.deepEqual(order.toSorted(), ends);
  });

  it("hear and are asked nothing any more", async () => {
    const received: string[] = [];
    let host: Host | undefined;
    const old = pluginWithHost("old", (given) => {
      host = given;
      given.subscribe(({ kind }) => received.push(kind), ["callStarted"]);
      return {
        event: ({ kind }) => void received.push(kind),
        events: ["callStarted"],
        list: (items) => (received.push("list"), items),
        call: (next) => (received.push("call"), next),
      };
    });
    const { client, exchange } = await start([old]);
    await callTool(client, "s__t");
    assert.deepEqual(received.splice(0).toSorted(), ["call", "callStarted", "callStarted", "list"]);
    await exchange();
    await turn();
    await callTool(client, "s__t");
    assert.deepEqual(await listToolNames(client), ["s__t"]);
    assert.equal(await host?.call("s__t").catch(errorCodeOf), "cancelled");
    assert.deepEqual(received, []);
  });

  it("and their successors do not hear what the other logs", async () => {
    let received = 0;
    const echoing = pluginWithHost("echoing", (host) => ({
      events: ["log"],
      event(event) {
        // Otherwise this loops forever.
        if (event.kind === "log" && received++ < 100) host.log("info", event.text);
      },
      call: () => () => new Promise(() => {}),
    }));
    const { exchange, bus, call } = await start([echoing]);
    await call();
    await exchange(echoing);
    received = 0;
    bus.emit({ kind: "log", level: "info", source: "hub", text: "hello" });
    assert.equal(received, 2);
  });

  it("lose no call that they have made through the hub before it ended, nor leave one", async () => {
    const codes: unknown[] = [];
    const asking = pluginWithHost("asking", (host) => {
      const ask = (): void =>
        void host.call("s__u").catch((error: unknown) => codes.push(errorCodeOf(error)));
      ask();
      return {
        call: (next, { name }) =>
          name === "t" ? (given) => (ask(), Promise.resolve(given.answer({}))) : next,
      };
    });
    const s = silent("t", "u");
    const { client, exchange, hub } = await start([asking], s);
    await callTool(client, "s__t");
    await messageTo(s);
    await exchange();
    await messageTo(s, CANCELLED);
    await turn();
    assert.deepEqual(codes, ["usage", "cancelled"]);
    assert.equal(connectionStatusOf(hub, "s").inFlight, 0);
    assert.deepEqual(hub.snapshot().calls, []);
  });

  it("leave nothing behind, however often: no listener, no client, no server of theirs", async () => {
    let received = 0;
    const hosts: Host[] = [];
    const busy = pluginWithHost("busy", (host) => {
      hosts.push(host);
      host.subscribe(() => received++, ["log"]);
      return {
        event: () => {},
        list: (items) => items,
        call: () => (given) => host.call("s__t", given.argumentsJson),
      };
    });
    const s = new ScriptedServer("t");
    const { client, exchange, hub, bus } = await start([busy], s, {
      s: { isolation: "perClient" },
    });
    let most = 0;
    for (let i = 0; i < 60; i++) {
      assert.ok((await callTool(client, "s__t")).result);
      most = Math.max(most, s.openCount);
      await exchange(busy);
      await turn();
    }
    assert.ok(most <= 3, `${most} processes`);
    assert.ok(hosts.slice(0, -1).every(({ signal }) => signal.aborted));
    await exchange();
    await turn();
    // A plugin that calls too late does not become a client again.
    for (const host of hosts.slice(-3))
      assert.equal(await host.list().catch(errorCodeOf), "cancelled");
    await turn();
    assert.equal(s.openCount, 1);
    received = 0;
    bus.emit({ kind: "log", level: "info", source: "hub", text: "hello" });
    assert.equal(received, 0);
    assert.deepEqual(hub.snapshot().calls, []);
    assert.ok((await callTool(client, "s__t")).result);
  });
});

describe("a client's list, when plugins are exchanged,", () => {
  const none = pluginOf("none", {});
  const passing = callPlugin("passing", (given, next) => next(given));
  for (const [what, before, after, count, shown] of [
    ["is another", [adding("a")], [adding("b")], 1, ["s__b", "s__t"]],
    ["is another without them", [adding("a")], [], 1, ["s__t"]],
    ["is another with the first that change it", [none], [adding("b")], 1, ["s__b", "s__t"]],
    ["is the same if they make the same of it", [adding("a")], [adding("a")], 0, ["s__a", "s__t"]],
    ["is the same if they do not change it", [none], [passing], 0, ["s__t"]],
    ["is the same without such", [passing], [], 0, ["s__t"]],
  ] as const) {
    it(`${what}, which the client is told ${count} times`, async () => {
      const { client, exchange, clock } = await start(before);
      await listToolNames(client);
      await exchange(...after);
      await clock.advanceAsync(1000);
      assert.equal(client.messages.filter(({ method }) => method === LIST_CHANGED).length, count);
      assert.deepEqual(await listToolNames(client), shown);
    });
  }
});

describe("a plugin's server", () => {
  /** A plugin with a scripted server. */
  const serving = (script: ScriptedServer, more: Parts = {}): PluginUse =>
    pluginOf("serving", { servers: { own: () => script.connect() }, ...more });

  it("is a server like any other", async () => {
    const own = new ScriptedServer("hello");
    const { client } = await start([serving(own)]);
    assert.deepEqual(await listToolNames(client), ["own__hello", "s__t"]);
    assert.ok((await callTool(client, "own__hello")).result);
    own.disconnect();
    await turn();
    assert.ok((await callTool(client, "own__hello")).result);
    assert.equal(own.transportCount, 2);
  });

  it("goes on as long as its plugins stay, and is started anew with others", async () => {
    const own = new ScriptedServer("hello");
    const s = new ScriptedServer("t");
    const { client, hub, exchange } = await start([serving(own)], s);
    await listToolNames(client);
    const { set } = hub.activePlugins;
    assert.ok(set);
    const plugins = [pluginSpecOf(serving(own))];
    const kept = await reusePlugins({ ...manifestFor({ s }, {}), plugins }, set);
    assert.ok(kept.ok);
    hub.reload(kept.manifest, kept.plugins);
    assert.ok((await callTool(client, "own__hello")).result);
    assert.deepEqual([own.transportCount, s.transportCount], [1, 1]);
    await exchange(serving(own));
    assert.ok((await callTool(client, "own__hello")).result);
    assert.deepEqual([own.transportCount, s.transportCount, own.openCount], [2, 1, 1]);
  });

  it("over a link with streams is spoken to as one over HTTP, and the link hears in which revision", async () => {
    const own = new ScriptedServer("hello");
    const links = overStreamedTransports(own);
    const { client, hub, clock, call, answer } = await start([serving(own)]);
    await listToolNames(client);
    assert.equal(connectionStatusOf(hub, "own").httpTransport, "http");
    assert.deepEqual(links[0]?.protocol, { era: "legacy", version: "2025-11-25" });
    own.onCall = () => undefined;
    await call("own__hello");
    own.onCall = () => '"result":{"content":[],"again":true}';
    links[0]?.loseRequest(lastRequest(links, "tools/call"), "notDelivered");
    await clock.advanceAsync(100);
    assert.equal((await answer())?.["again"], true);
  });

  it("whose link knows what must not be shown is told of without that", async () => {
    const own = new ScriptedServer("hello");
    own.onInitialize = () => '"error":{"code":1,"message":"s3cret is no good"}';
    const connect = own.connect.bind(own);
    const redact = (text: string): string => text.replaceAll("s3cret", "***");
    own.connect = () => Object.assign(connect(), { redact });
    const { client, hub } = await start([serving(own)]);
    await listToolNames(client);
    assert.match(connectionStatusOf(hub, "own").lastError?.message ?? "", /\*\*\* is no good/);
  });

  it("that wants an authorization is taken at its word", async () => {
    const own = new ScriptedServer("hello");
    const links = overStreamedTransports(own);
    const { client, hub } = await start([serving(own)]);
    await listToolNames(client);
    links[0]?.challenge({ status: 401, header: undefined });
    await turn();
    assert.equal(connectionStatusOf(hub, "own").cause?.code, "unauthorized");
  });

  it("finishes its calls before its plugin is disposed of", async () => {
    const order: string[] = [];
    const own = silent("hello");
    const first = serving(own, { dispose: () => void order.push("disposed") });
    const { exchange, call, answer } = await start([first]);
    await call("own__hello");
    const { id } = await messageTo(own);
    const old = own.newestPeer;
    await exchange(pluginOf("other", {}));
    await turn();
    assert.deepEqual(order, []);
    old?.send({ jsonrpc: "2.0", id, result: { content: [] } });
    assert.deepEqual(await answer(), { content: [] });
    await turn();
    await turn();
    assert.deepEqual(order, ["disposed"]);
  });

  it("whose plugin is gone is gone from the list", async () => {
    const { client, exchange, events } = await start([serving(new ScriptedServer("hello"))]);
    assert.deepEqual(await listToolNames(client), ["own__hello", "s__t"]);
    await exchange();
    assert.deepEqual(await listToolNames(client), ["s__t"]);
    assert.ok(!logsOf(events).some((text) => text.includes("failed")));
  });
});
