import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EMPTY_LISTING } from "../../src/catalog/listing.ts";
import { type DetectedEra, memorySnapshots, type Snapshots } from "../../src/snapshot/snapshots.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  initialize,
  listToolNames,
  type Peer,
  ScriptedServer,
  serverStatusOf,
  type Servers,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { modernRequest, sendModernRequest } from "../fixtures/modern-requests.ts";
import {
  DISCOVER_RESULT,
  ModernScriptedServer,
  METHOD_NOT_FOUND,
} from "../fixtures/modern-server.ts";

const AUTO: Servers = { s: { era: "auto", reconnect: { policy: "none" } as never } };
const DISCOVER = "server/discover";
/** What says in which era a request is made. */
const ENVELOPE = "io.modelcontextprotocol/protocolVersion";

async function begin<S extends ScriptedServer>(
  s: S,
  { servers = AUTO, snapshots }: { servers?: Servers; snapshots?: Snapshots } = {},
) {
  const setup = setUpHubWithClock({ s }, { servers, ...(snapshots && { snapshots }) });
  await initialize(setup.client);
  await turn();
  return { ...setup, s };
}

const methods = (peer: Peer | undefined): (string | undefined)[] =>
  peer?.messages.map(({ method }) => method) ?? [];

async function listModern(client: Peer): Promise<readonly string[]> {
  const { result } = await sendModernRequest(client, "tools/list");
  return (result?.["tools"] as { name: string }[]).map(({ name }) => name);
}

/** Speaks the era in which it is first spoken to, and lists another tool in each. */
class Dual extends ModernScriptedServer {
  constructor() {
    super();
    this.handlers["initialize"] = (message, text) => this.onInitialize(message, text);
    this.onList = (_, text) => {
      const name = text.includes(ENVELOPE) ? "new" : "old";
      return `"result":{"tools":[{"name":"${name}","inputSchema":{}}]}`;
    };
  }
}

async function again(hub: { reconnect(server: string): void }): Promise<void> {
  hub.reconnect("s");
  for (let i = 0; i < 3; i++) await turn();
}

describe("a server that is met for a client of old", () => {
  it("is met as of old, and not asked what else it speaks", async () => {
    const { client, hub, s } = await begin(new Dual());
    assert.deepEqual(await listToolNames(client), ["s__old"]);
    assert.deepEqual(methods(s.newestPeer).slice(0, 2), [
      "initialize",
      "notifications/initialized",
    ]);
    assert.equal(s.messagesOf(DISCOVER).length, 0);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "legacy");
  });

  it("is not waited for longer than it takes, however it would take the question", async () => {
    const s = new ScriptedServer("x");
    s.handlers = {
      [DISCOVER]: () => {
        s.disconnect();
        return undefined;
      },
    };
    const { client } = await begin(s);
    assert.deepEqual(await listToolNames(client), ["s__x"]);
    assert.equal(s.transportCount, 1);
  });

  for (const refusal of [
    METHOD_NOT_FOUND,
    '"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}',
    '"error":{"code":-32600,"message":"no envelope"}',
    '"error":{"code":1}',
    '"error":"no"',
    '"result":{"capabilities":{}}',
    '"result":{"protocolVersion":"2026-07-28","capabilities":{}}',
    '"result":null',
  ]) {
    it(`is asked in place what it speaks if it answers ${refusal}`, async () => {
      const s = new ModernScriptedServer("x");
      s.handlers["initialize"] = () => refusal;
      const { client, hub } = await begin(s);
      assert.deepEqual(await listToolNames(client), ["s__x"]);
      assert.deepEqual(methods(s.newestPeer).slice(0, 2), ["initialize", DISCOVER]);
      assert.equal(s.transportCount, 1);
      assert.equal(connectionStatusOf(hub, "s").peer?.era, "modern");
      assert.equal((await callTool(client, "s__x")).error, undefined);
    });
  }

  for (const [what, answer] of [
    ["does not know the question", () => METHOD_NOT_FOUND],
    ["answers with something else", () => '"result":{}'],
    [
      "speaks none that is known",
      () => '"error":{"code":-32022,"data":{"supported":["2099-01-01"]}}',
    ],
    [
      "lists what it would not be met as",
      () => `"result":${JSON.stringify({ ...DISCOVER_RESULT, supportedVersions: ["2025-11-25"] })}`,
    ],
  ] as const) {
    it(`fails for what it said first if it ${what}`, async () => {
      const s = new ScriptedServer("x");
      s.handlers = {
        initialize: () => '"error":{"code":-32603,"message":"no key"}',
        [DISCOVER]: answer,
      };
      const { hub } = await begin(s);
      const { code, message } = connectionStatusOf(hub, "s").cause ?? {};
      assert.equal(code, "handshakeFailed");
      assert.match(message ?? "", /no key/);
      assert.deepEqual(methods(s.newestPeer), ["initialize", DISCOVER]);
    });
  }

  it("fails for what it said first if it dies of the question", async () => {
    const s = new ScriptedServer("x");
    s.handlers = {
      initialize: () => '"error":{"code":-32603,"message":"no key"}',
      [DISCOVER]: () => {
        s.disconnect();
        return undefined;
      },
    };
    const { hub } = await begin(s);
    assert.match(connectionStatusOf(hub, "s").cause?.message ?? "", /no key/);
    assert.equal(s.transportCount, 1);
  });

  it("fails for what it said first if it does not answer the question soon", async () => {
    const s = new ScriptedServer("x");
    s.handlers = {
      initialize: () => '"error":{"code":-32603,"message":"no key"}',
      [DISCOVER]: () => undefined,
    };
    const { hub, clock } = await begin(s);
    await clock.advanceAsync(2999);
    assert.equal(connectionStatusOf(hub, "s").state, "connecting");
    await clock.advanceAsync(1);
    assert.match(connectionStatusOf(hub, "s").cause?.message ?? "", /no key/);
  });

  it("fails with what it says as a modern one, if it says that", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers[DISCOVER] = () => '"error":{"code":-32021,"message":"not able"}';
    const { hub } = await begin(s);
    assert.match(connectionStatusOf(hub, "s").cause?.message ?? "", /not able/);
  });

  it("fails if it dies of being met", async () => {
    const s = new ScriptedServer("x");
    s.onInitialize = () => {
      s.disconnect();
      return undefined;
    };
    const { hub } = await begin(s);
    assert.equal(connectionStatusOf(hub, "s").cause?.code, "connectionLost");
    assert.equal(s.transportCount, 1);
    assert.equal(s.messagesOf(DISCOVER).length, 0);
  });

  it("is discovered at once if it was found to be modern, and met as of old if that fails", async () => {
    const s = new ModernScriptedServer("x");
    const { client, hub } = await begin(s);
    await again(hub);
    assert.deepEqual(methods(s.peers[1]).slice(0, 1), [DISCOVER]);
    assert.equal(s.messagesOf("initialize").length, 1);
    s.handlers[DISCOVER] = () => METHOD_NOT_FOUND;
    s.handlers["initialize"] = (message, text) => s.onInitialize(message, text);
    await again(hub);
    assert.deepEqual(methods(s.peers[2]).slice(0, 2), [DISCOVER, "initialize"]);
    assert.deepEqual(await listToolNames(client), ["s__x"]);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "legacy");
    await again(hub);
    assert.deepEqual(methods(s.peers[3]).slice(0, 1), ["initialize"]);
  });

  it("is found out anew if it dies of being discovered, though it was found to be modern", async () => {
    const s = new ModernScriptedServer("x");
    const { client, hub } = await begin(s);
    s.handlers[DISCOVER] = () => {
      s.disconnect();
      return undefined;
    };
    await again(hub);
    assert.equal(connectionStatusOf(hub, "s").cause?.code, "connectionLost");
    s.handlers["initialize"] = (message, text) => s.onInitialize(message, text);
    await again(hub);
    assert.deepEqual(methods(s.newestPeer).slice(0, 1), ["initialize"]);
    assert.deepEqual(await listToolNames(client), ["s__x"]);
  });

  it("is spoken to as the manifest says, whoever the client is", async () => {
    const isNew = { s: { era: "modern" } } as const;
    const { client, connect, s } = await begin(new Dual(), { servers: isNew });
    assert.deepEqual(await listToolNames(client), ["s__new"]);
    assert.deepEqual(await listModern(connect()), ["s__new"]);
    assert.equal(s.messagesOf("initialize").length, 0);
    const old = await begin(new Dual(), { servers: { s: { era: "legacy" } } });
    assert.deepEqual(await listToolNames(old.client), ["s__old"]);
    assert.deepEqual(await listModern(old.connect()), ["s__old"]);
    assert.equal(old.s.messagesOf(DISCOVER).length, 0);
  });
});

describe("a server of both eras", () => {
  it("is of old for a client of old and modern for a modern one, at the same time", async () => {
    const { client, connect, hub, s } = await begin(new Dual());
    const other = connect();
    assert.deepEqual(await listModern(other), ["s__new"]);
    assert.deepEqual(await listToolNames(client), ["s__old"]);
    assert.equal((await callTool(client, "s__old")).error, undefined);
    const { result } = await sendModernRequest(other, "tools/call", { name: "s__new" });
    assert.equal(result?.["resultType"], "complete");
    const calls = s.peers.map(({ received }) =>
      received.filter((one) => one.includes("tools/call")),
    );
    assert.deepEqual(
      calls.map((texts) => texts.map((text) => text.includes(ENVELOPE))),
      [[false], [true]],
    );
    assert.deepEqual(
      serverStatusOf(hub, "s").connections.map(({ peer }) => peer?.era),
      ["legacy", "modern"],
    );
  });

  it("is so for one client that speaks both on one pipe", async () => {
    const { client, s } = await begin(new Dual());
    assert.deepEqual(await listModern(client), ["s__new"]);
    assert.deepEqual(await listToolNames(client), ["s__old"]);
    assert.equal(s.transportCount, 2);
  });

  it("is so also where each client has its own", async () => {
    const servers: Servers = { s: { era: "auto", isolation: "perClient" } };
    const { client, connect, s } = await begin(new Dual(), { servers });
    assert.deepEqual(await listModern(client), ["s__new"]);
    assert.deepEqual(await listToolNames(client), ["s__old"]);
    assert.deepEqual(await listModern(connect()), ["s__new"]);
    assert.equal(s.transportCount, 3);
  });

  it("asks while a call of a client of old runs, which modern servers cannot", async () => {
    const s = new Dual();
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    await initialize(client, { elicitation: { form: {} } });
    s.onCall = () => {
      s.newestPeer?.send({ jsonrpc: "2.0", id: "q", method: "elicitation/create", params: {} });
      return '"result":{"content":[]}';
    };
    client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    await callTool(client, "s__old");
    await client.find(({ method }) => method === "elicitation/create");
  });

  it("is remembered in each era as it is there, from one hub to the next", async () => {
    const snapshots = memorySnapshots();
    const first = await begin(new Dual(), { snapshots });
    await listModern(first.connect());
    await turn();
    await first.hub.close();
    // It takes its time, so that what is listed is what was kept.
    const slow = new Dual();
    for (const method of ["initialize", DISCOVER]) slow.handlers[method] = () => undefined;
    const second = setUpHubWithClock({ s: slow }, { servers: AUTO, snapshots });
    await initialize(second.client);
    assert.deepEqual(await listToolNames(second.client), ["s__old"]);
    const other = second.connect();
    assert.deepEqual(await listModern(other), ["s__new"]);
    await turn();
    assert.deepEqual(slow.peers.map(methods), [["initialize"], [DISCOVER]]);
    await second.hub.close();
  });
});

describe("what is remembered of what a server speaks", () => {
  const DAY = 24 * 60 * 60_000;

  it("spares a modern one from being met as of old by the next hub, for a week", async () => {
    let now = Date.now();
    const snapshots = memorySnapshots({ now: () => now });
    const start = async (): Promise<ModernScriptedServer> => {
      const { client, hub, s } = await begin(new ModernScriptedServer("x"), { snapshots });
      assert.deepEqual(await listToolNames(client), ["s__x"]);
      await turn();
      await hub.close();
      return s;
    };
    assert.equal((await start()).messagesOf("initialize").length, 1);
    for (const [age, count] of [
      [0, 0],
      [6 * DAY, 0],
      [8 * DAY, 1],
    ] as const) {
      now = Date.now() + age;
      assert.equal((await start()).messagesOf("initialize").length, count, `after ${age} ms`);
    }
  });

  it("is renewed only if the server was met as its clients would meet it", async () => {
    for (const [client, era, isRenewed] of [
      ["legacy", "modern", false],
      ["modern", "legacy", false],
      ["modern", "modern", true],
    ] as const) {
      const verdict: DetectedEra = { era, askedAt: Date.now() - 6 * DAY };
      const kept: (DetectedEra | undefined)[] = [];
      const snapshots: Snapshots = {
        load: () =>
          Promise.resolve({ listing: EMPTY_LISTING, detectedEra: verdict, savedAt: Date.now() }),
        save: (_, __, found) => {
          kept.push(found);
          return Promise.resolve([]);
        },
        flush: () => Promise.resolve(),
      };
      const s = era === "modern" ? new ModernScriptedServer("x") : new ScriptedServer("x");
      const setup = setUpHubWithClock({ s }, { servers: AUTO, snapshots });
      if (client === "legacy") await initialize(setup.client);
      else await listModern(setup.client);
      await turn();
      await setup.hub.close();
      assert.deepEqual(
        kept.map((each) => [each?.era, each?.askedAt !== verdict.askedAt]),
        [[era, isRenewed]],
      );
    }
  });

  it("for clients of old says nothing of what it is for modern ones", async () => {
    const snapshots = memorySnapshots();
    const before = await begin(new ScriptedServer("x"), { snapshots });
    await turn();
    await before.hub.close();
    const s = new Dual();
    const { client } = setUpHubWithClock({ s }, { servers: AUTO, snapshots });
    client.send(modernRequest(1, "tools/list"));
    await turn();
    assert.deepEqual(methods(s.newestPeer).slice(0, 1), [DISCOVER]);
  });
});
