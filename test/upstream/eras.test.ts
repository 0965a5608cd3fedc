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
  type RequestHandler,
  ScriptedServer,
  serverStatusOf,
  type Servers,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import {
  listModernToolNames,
  modernRequest,
  sendModernRequest,
} from "../fixtures/modern-requests.ts";
import {
  DISCOVER_RESULT,
  ModernScriptedServer,
  METHOD_NOT_FOUND,
} from "../fixtures/modern-server.ts";
import { isOf, post } from "../fixtures/peer-messages.ts";
import { INITIALIZED } from "../fixtures/server-requests.ts";

const AUTO: Servers = { s: { era: "auto", reconnect: { policy: "none" } as never } };
const DISCOVER = "server/discover";
/** What says in which era a request is made. */
const ENVELOPE = "io.modelcontextprotocol/protocolVersion";
const SILENCE = (): undefined => undefined;

async function begin<S extends ScriptedServer>(
  s: S,
  { servers = AUTO, snapshots }: { servers?: Servers; snapshots?: Snapshots } = {},
) {
  const setup = setUpHubWithClock({ s }, { servers, ...(snapshots && { snapshots }) });
  await initialize(setup.client);
  await turn();
  const status = () => connectionStatusOf(setup.hub, "s");
  const reconnect = async (): Promise<void> => {
    setup.hub.reconnect("s");
    for (let i = 0; i < 3; i++) await turn();
  };
  return { ...setup, s, status, reconnect, list: () => listToolNames(setup.client) };
}

/** What a connection was asked first. */
const firstMethods = (peer: Peer | undefined, count = 1): (string | undefined)[] =>
  peer?.messages.slice(0, count).map(({ method }) => method) ?? [];

/** Speaks the era in which it is first spoken to, and lists another tool in each. */
class Dual extends ModernScriptedServer {
  constructor() {
    super();
    speakLegacy(this);
    this.onList = (_, text) => {
      const name = text.includes(ENVELOPE) ? "new" : "old";
      return `"result":{"tools":[{"name":"${name}","inputSchema":{}}]}`;
    };
  }
}

function speakLegacy(s: ModernScriptedServer): void {
  s.handlers["initialize"] = (message, text) => s.onInitialize(message, text);
}

/** Answers by ending. */
const dying =
  (s: ScriptedServer): RequestHandler =>
  () => {
    s.disconnect();
    return undefined;
  };

describe("a server that is met for a client of old", () => {
  it("is met as of old, and not asked what else it speaks", async () => {
    const { status, s, list } = await begin(new Dual());
    assert.deepEqual(await list(), ["s__old"]);
    assert.deepEqual(firstMethods(s.newestPeer, 2), ["initialize", "notifications/initialized"]);
    assert.equal(s.messagesOf(DISCOVER).length, 0);
    assert.equal(status().peer?.era, "legacy");
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
      const server = new ModernScriptedServer("x");
      server.handlers["initialize"] = () => refusal;
      const { client, status, s, list } = await begin(server);
      assert.deepEqual(await list(), ["s__x"]);
      assert.deepEqual(firstMethods(s.newestPeer, 2), ["initialize", DISCOVER]);
      assert.deepEqual([s.transportCount, status().peer?.era], [1, "modern"]);
      assert.equal((await callTool(client, "s__x")).error, undefined);
    });
  }

  const tooNew = '"error":{"code":-32022,"data":{"supported":["2099-01-01"]}}';
  const old = `"result":${JSON.stringify({ ...DISCOVER_RESULT, supportedVersions: ["2025-11-25"] })}`;
  for (const [what, answer, ms] of [
    ["does not know the question", () => METHOD_NOT_FOUND, 0],
    ["answers with something else", () => '"result":{}', 0],
    ["speaks none that is known", () => tooNew, 0],
    ["lists what it would not be met as", () => old, 0],
    ["dies of the question", "dies", 0],
    ["does not answer the question soon", SILENCE, 3000],
  ] as const) {
    it(`fails for what it said first if it ${what}`, async () => {
      const s = new ScriptedServer("x");
      s.handlers = {
        initialize: () => '"error":{"code":-32603,"message":"no key"}',
        [DISCOVER]: answer === "dies" ? dying(s) : answer,
      };
      const { status, clock } = await begin(s);
      if (ms > 0) {
        await clock.advanceAsync(ms - 1);
        assert.equal(status().state, "connecting");
        await clock.advanceAsync(1);
      }
      assert.equal(status().cause?.code, "handshakeFailed");
      assert.match(status().cause?.message ?? "", /no key/);
      assert.deepEqual(firstMethods(s.newestPeer, 3), ["initialize", DISCOVER]);
      assert.equal(s.transportCount, 1);
    });
  }

  it("fails with what it says as a modern one, if it says that", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers[DISCOVER] = () => '"error":{"code":-32021,"message":"not able"}';
    const { status } = await begin(s);
    assert.match(status().cause?.message ?? "", /not able/);
  });

  it("fails if it dies of being met", async () => {
    const s = new ScriptedServer("x");
    s.onInitialize = dying(s);
    const { status } = await begin(s);
    assert.deepEqual([status().cause?.code, s.transportCount], ["connectionLost", 1]);
    assert.equal(s.messagesOf(DISCOVER).length, 0);
  });

  it("is discovered at once if it was found to be modern, and met as of old if that fails", async () => {
    const { s, status, reconnect, list } = await begin(new ModernScriptedServer("x"));
    await reconnect();
    assert.deepEqual(firstMethods(s.peers[1]), [DISCOVER]);
    assert.equal(s.messagesOf("initialize").length, 1);
    s.handlers[DISCOVER] = () => METHOD_NOT_FOUND;
    speakLegacy(s);
    await reconnect();
    assert.deepEqual(firstMethods(s.peers[2], 2), [DISCOVER, "initialize"]);
    assert.deepEqual(await list(), ["s__x"]);
    assert.equal(status().peer?.era, "legacy");
    await reconnect();
    assert.deepEqual(firstMethods(s.peers[3]), ["initialize"]);
  });

  it("is found out anew if it dies of being discovered, though it was found to be modern", async () => {
    const { s, status, reconnect, list } = await begin(new ModernScriptedServer("x"));
    s.handlers[DISCOVER] = dying(s);
    await reconnect();
    assert.equal(status().cause?.code, "connectionLost");
    speakLegacy(s);
    await reconnect();
    assert.deepEqual(firstMethods(s.newestPeer), ["initialize"]);
    assert.deepEqual(await list(), ["s__x"]);
  });

  for (const [era, name, unasked] of [
    ["modern", "s__new", "initialize"],
    ["legacy", "s__old", DISCOVER],
  ] as const) {
    it(`is spoken to as the manifest says, whoever the client is (${era})`, async () => {
      const { connect, s, list } = await begin(new Dual(), { servers: { s: { era } } });
      assert.deepEqual(await list(), [name]);
      assert.deepEqual(await listModernToolNames(connect()), [name]);
      assert.equal(s.messagesOf(unasked).length, 0);
    });
  }
});

describe("a server of both eras", () => {
  it("is of old for a client of old and modern for a modern one, at the same time", async () => {
    const { client, connect, hub, s, list } = await begin(new Dual());
    const other = connect();
    assert.deepEqual(await listModernToolNames(other), ["s__new"]);
    assert.deepEqual(await list(), ["s__old"]);
    assert.equal((await callTool(client, "s__old")).error, undefined);
    const { result } = await sendModernRequest(other, "tools/call", { name: "s__new" });
    assert.equal(result?.["resultType"], "complete");
    const calls = s.peers.map(({ received }) =>
      received.filter((one) => one.includes("tools/call")).map((one) => one.includes(ENVELOPE)),
    );
    assert.deepEqual(calls, [[false], [true]]);
    const eras = serverStatusOf(hub, "s").connections.map(({ peer }) => peer?.era);
    assert.deepEqual(eras, ["legacy", "modern"]);
  });

  it("is so for one client that speaks both on one pipe, also where each client has its own", async () => {
    const servers: Servers = { s: { era: "auto", isolation: "perClient" } };
    for (const settings of [{}, { servers }]) {
      const { client, connect, s, list } = await begin(new Dual(), settings);
      assert.deepEqual(await listModernToolNames(client), ["s__new"]);
      assert.deepEqual(await list(), ["s__old"]);
      assert.equal(s.transportCount, 2);
      assert.deepEqual(await listModernToolNames(connect()), ["s__new"]);
      assert.equal(s.transportCount, "servers" in settings ? 3 : 2);
    }
  });

  it("asks while a call of a client of old runs, which modern servers cannot", async () => {
    const s = new Dual();
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    await initialize(client, { elicitation: { form: {} } });
    s.onCall = () => {
      post(s.newestPeer, "q", "elicitation/create", {});
      return '"result":{"content":[]}';
    };
    client.send(INITIALIZED);
    await callTool(client, "s__old");
    await client.find(isOf("elicitation/create"));
  });

  it("is remembered in each era as it is there, from one hub to the next", async () => {
    const snapshots = memorySnapshots();
    const first = await begin(new Dual(), { snapshots });
    await listModernToolNames(first.connect());
    await turn();
    await first.hub.close();
    // It takes its time, so that what is listed is what was kept.
    const slow = new Dual();
    for (const method of ["initialize", DISCOVER]) slow.handlers[method] = SILENCE;
    const { client, connect, hub } = setUpHubWithClock({ s: slow }, { servers: AUTO, snapshots });
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["s__old"]);
    assert.deepEqual(await listModernToolNames(connect()), ["s__new"]);
    await turn();
    assert.deepEqual(
      slow.peers.map((peer) => firstMethods(peer, 9)),
      [["initialize"], [DISCOVER]],
    );
    await hub.close();
  });
});

describe("what is remembered of what a server speaks", () => {
  const DAY = 24 * 60 * 60_000;

  it("spares a modern one from being met as of old by the next hub, for a week", async () => {
    let now = Date.now();
    const snapshots = memorySnapshots({ now: () => now });
    for (const [age, count] of [
      [0, 1],
      [0, 0],
      [6 * DAY, 0],
      [8 * DAY, 1],
    ] as const) {
      now = Date.now() + age;
      const { hub, s, list } = await begin(new ModernScriptedServer("x"), { snapshots });
      assert.deepEqual(await list(), ["s__x"]);
      await turn();
      await hub.close();
      assert.equal(s.messagesOf("initialize").length, count, `after ${age} ms`);
    }
  });

  for (const [client, era, isRenewed] of [
    ["legacy", "modern", false],
    ["modern", "legacy", false],
    ["modern", "modern", true],
  ] as const) {
    it(`is ${isRenewed ? "" : "not "}renewed if a ${era} server was met for a ${client} client`, async () => {
      const verdict: DetectedEra = { era, detectedAt: Date.now() - 6 * DAY };
      const found = { listing: EMPTY_LISTING, detectedEra: verdict, savedAt: Date.now() };
      const kept: (DetectedEra | undefined)[] = [];
      const snapshots: Snapshots = {
        load: () => Promise.resolve(found),
        save: (_, __, detected) => {
          kept.push(detected);
          return Promise.resolve();
        },
        flush: () => Promise.resolve(),
      };
      const s = era === "modern" ? new ModernScriptedServer("x") : new ScriptedServer("x");
      const setup = setUpHubWithClock({ s }, { servers: AUTO, snapshots });
      if (client === "legacy") await initialize(setup.client);
      else await listModernToolNames(setup.client);
      await turn();
      await setup.hub.close();
      const [only, ...more] = kept;
      assert.deepEqual(
        [only?.era, only?.detectedAt !== verdict.detectedAt, more],
        [era, isRenewed, []],
      );
    });
  }

  it("for clients of old says nothing of what it is for modern ones", async () => {
    const snapshots = memorySnapshots();
    const before = await begin(new ScriptedServer("x"), { snapshots });
    await turn();
    await before.hub.close();
    const s = new Dual();
    const { client } = setUpHubWithClock({ s }, { servers: AUTO, snapshots });
    client.send(modernRequest(1, "tools/list"));
    await turn();
    assert.deepEqual(firstMethods(s.newestPeer), [DISCOVER]);
  });
});
