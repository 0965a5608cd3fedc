import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  capabilityClassOf,
  parseCapabilityClass,
  readCapabilities,
} from "../../src/protocol/capabilities.ts";
import type { ClientProfile } from "../../src/upstream/profile.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  Latch,
  listToolNames,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { ALL_CAPABILITIES } from "../fixtures/server-requests.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { pluginWithHost } from "../plugins/plugin-hub.ts";

/** A hub with one server, and a client that has not introduced itself. */
function begin() {
  const a = new ScriptedServer("x");
  return { ...setUpHubWithClock({ a }), a };
}

/** What each connection of the server was told that can be asked for, in order. */
function reportedOf(script: ScriptedServer): unknown[] {
  return script.messagesOf("initialize").map(({ params }) => params?.["capabilities"]);
}

describe("what a client can be asked for", () => {
  for (const [what, declared, relayed] of [
    ["everything is everything", ALL_CAPABILITIES, ALL_CAPABILITIES],
    ["nothing is nothing", {}, {}],
    ["no object is nothing", "all", {}],
    [
      "members that are no objects are nothing",
      { roots: true, sampling: null, elicitation: 1 },
      {},
    ],
    [
      "tasks, extensions, experiments and what nobody knows are left out",
      { tasks: { list: {} }, experimental: { x: {} }, extensions: {}, other: {}, sampling: {} },
      { sampling: {} },
    ],
    ["elicitation without modes means forms", { elicitation: {} }, { elicitation: { form: {} } }],
    ["by URL alone is not by forms", { elicitation: { url: {} } }, { elicitation: { url: {} } }],
    ["roots that do not change", { roots: { listChanged: false } }, { roots: {} }],
    [
      "what is inside of modes is left out",
      { elicitation: { form: { applyDefaults: true } }, sampling: { tools: { x: 1 } } },
      { elicitation: { form: {} }, sampling: { tools: {} } },
    ],
    ["a prototype is no capability", JSON.parse('{"__proto__":{"roots":{}}}') as object, {}],
  ] as const) {
    it(`is read so that ${what}`, () => {
      const capabilities = readCapabilities(declared);
      assert.deepEqual(capabilities, relayed);
      assert.deepEqual(parseCapabilityClass(capabilityClassOf(capabilities)), relayed);
    });
  }

  it("is the same class in whatever order it is declared", () => {
    const [a, b] = [
      { elicitation: {}, roots: {} },
      { roots: {}, elicitation: { form: {} } },
    ].map((declared) => capabilityClassOf(readCapabilities(declared)));
    assert.equal(a, b);
    assert.equal(capabilityClassOf({}), "");
  });
});

describe("servers", () => {
  it("are told it again when they are started again", async () => {
    const { a, client } = begin();
    await initialize(client, ALL_CAPABILITIES);
    a.disconnect();
    await turn();
    await callTool(client, "a__x");
    assert.deepEqual(reportedOf(a), [ALL_CAPABILITIES, ALL_CAPABILITIES]);
  });

  it("show each client what they have for what it can be asked for", async () => {
    const a = new ScriptedServer();
    a.onInitialize = ({ params }) => {
      a.tools = [
        "sampling" in (params?.["capabilities"] as object) ? '{"name":"s"}' : '{"name":"n"}',
      ];
      return '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';
    };
    const { hub, client, connect } = setUpHubWithClock({ a });
    const [other, same] = [connect(), connect()];
    await initialize(client, { sampling: {} });
    await initialize(other);
    await initialize(same, { sampling: {} });
    assert.deepEqual(await listToolNames(client), ["a__s"]);
    assert.deepEqual(await listToolNames(other), ["a__n"]);
    assert.deepEqual(await listToolNames(same), ["a__s"]);
    assert.deepEqual([a.transportCount, a.openCount], [2, 2]);
    assert.equal(serverStatusOf(hub, "a").connections.length, 2);
  });

  it("are kept when the last client has left, for one of the same kind", async () => {
    const { a, client, connect } = begin();
    await initialize(client, ALL_CAPABILITIES);
    await client.transport.close();
    await turn();
    const next = connect();
    await initialize(next, ALL_CAPABILITIES);
    assert.ok((await callTool(next, "a__x")).result);
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
  });

  it("that were kept for nobody end before others are started for a client of another kind", async () => {
    const { a, client, connect } = begin();
    const latch = new Latch();
    a.onClose = latch.wait;
    await initialize(client, ALL_CAPABILITIES);
    await client.transport.close();
    await turn();
    const next = connect();
    await initialize(next);
    assert.equal(a.transportCount, 1);
    latch.open();
    assert.ok((await callTool(next, "a__x")).result);
    assert.deepEqual([a.transportCount, a.openCount, a.maxOpenCount], [2, 1, 1]);
  });

  it("end with the last client of their kind while clients of another are there", async () => {
    const { a, client, connect } = begin();
    const other = connect();
    await initialize(client, ALL_CAPABILITIES);
    await initialize(other);
    await client.transport.close();
    await turn();
    assert.deepEqual([a.transportCount, a.openCount], [2, 1]);
    assert.ok((await callTool(other, "a__x")).result);
    assert.deepEqual(reportedOf(a), [ALL_CAPABILITIES, {}]);
  });
});

describe("a client that asks for something before it introduces itself", () => {
  it("is served, and its servers are started anew with what it can be asked for, never twice at a time", async () => {
    const { a, client } = begin();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    await initialize(client, ALL_CAPABILITIES);
    assert.ok((await callTool(client, "a__x")).result);
    assert.deepEqual(reportedOf(a), [{}, ALL_CAPABILITIES]);
    assert.deepEqual([a.openCount, a.maxOpenCount], [1, 1]);
  });

  it("lists what its servers have for what it can be asked for, however late they say so", async () => {
    const { a, client } = begin();
    await listToolNames(client);
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.tools = ['{"name":"other"}'];
    await initialize(client, ALL_CAPABILITIES);
    const names = listToolNames(client);
    await turn();
    latch.open();
    assert.deepEqual(await names, ["a__other"]);
  });

  it("keeps its servers if it can be asked for nothing", async () => {
    const { a, client } = begin();
    await listToolNames(client);
    await initialize(client);
    await callTool(client, "a__x");
    assert.equal(a.transportCount, 1);
  });

  it("gets the answer of a call that waited for the old one", async () => {
    const { a, client } = begin();
    const latch = new Latch();
    a.onMake = latch.wait;
    client.send(callRequest(1, "a__x"));
    await initialize(client, ALL_CAPABILITIES);
    latch.open();
    assert.ok((await client.find(isResponseTo(1))).result);
    assert.equal(a.openCount, 1);
  });

  it("uses what there is for others meanwhile", async () => {
    const { a, client, connect } = begin();
    await initialize(client, ALL_CAPABILITIES);
    const early = connect();
    assert.deepEqual(await listToolNames(early), ["a__x"]);
    assert.ok((await callTool(early, "a__x")).result);
    assert.equal(a.transportCount, 1);
  });
});

describe("who only looks", () => {
  it("sees the servers as they are, and starts no second one", async () => {
    const { a, hub, client } = begin();
    await initialize(client, ALL_CAPABILITIES);
    hub.startAll();
    await turn();
    assert.equal(hub.catalog.tools.routes.length, 1);
    assert.equal(serverStatusOf(hub, "a").connections.length, 1);
    assert.equal(a.transportCount, 1);
  });

  it("has its own replaced by the first client's", async () => {
    const { a, hub, client } = begin();
    hub.startAll();
    await turn();
    await initialize(client, ALL_CAPABILITIES);
    await turn();
    assert.deepEqual(reportedOf(a), [{}, ALL_CAPABILITIES]);
    assert.deepEqual([a.openCount, a.maxOpenCount], [1, 1]);
    assert.equal(hub.catalog.tools.routes.length, 1);
  });
});

describe("a plugin that calls tools", () => {
  const calling = pluginWithHost("calling", (host) => ({
    call: (next, tool) => (tool.name === "x" ? () => host.call("a__y") : next),
  }));

  it("uses the server as the client does, and does not keep the server from asking it", async () => {
    const a = new ScriptedServer("x", "y");
    const { client } = await setUpPluginHub([calling], { a });
    await initialize(client, ALL_CAPABILITIES);
    client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    assert.ok((await callTool(client, "a__x")).result);
    assert.equal(a.messagesOf("tools/call")[0]?.params?.["name"], "y");
    assert.equal(a.transportCount, 1);
    a.newestPeer?.send({ jsonrpc: "2.0", id: 1, method: "roots/list" });
    assert.ok(await client.find(({ method }) => method === "roots/list"));
  });
});

describe("what was listed", () => {
  it("is remembered for each kind of client apart", async () => {
    const kept: string[] = [];
    const a = new ScriptedServer("x");
    const { client, connect } = setUpHubWithClock(
      { a },
      {
        snapshots: {
          load: ({ capabilities }: Pick<ClientProfile, "capabilities">) => {
            kept.push(capabilities);
            return Promise.resolve(undefined);
          },
          save: () => Promise.resolve(),
          flush: () => Promise.resolve(),
        },
      },
    );
    const other = connect();
    await initialize(client, { sampling: {} });
    await initialize(other);
    assert.deepEqual(kept, ['{"sampling":{}}', ""]);
  });
});
