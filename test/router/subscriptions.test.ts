import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  initialize,
  isResponseTo,
  type Json,
  Latch,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
  stdioSpecOf,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { cancel, notify, post, respond } from "../fixtures/peer-messages.ts";
import { messagesOfMethod } from "../fixtures/server-requests.ts";

const UPDATED = "notifications/resources/updated";
const SUBSCRIBE = "resources/subscribe";
const REFUSE = (): string => '"error":{"code":7,"message":"no"}';
const OF_B = "toolmux://b/x%3A%2F%2F1";

function makeServer(...uris: string[]): ScriptedServer {
  const script = new ScriptedServer("t");
  script.listings = { resources: uris.map((uri) => ({ uri, name: "n" })) };
  const ok = (): string => '"result":{}';
  script.handlers = { [SUBSCRIBE]: ok, "resources/unsubscribe": ok };
  return script;
}

/** From now on a server answers subscriptions like this. */
function answerWith(script: ScriptedServer, answer: () => string | undefined): void {
  script.handlers = { ...script.handlers, [SUBSCRIBE]: answer };
}

const subscribe = (client: Peer, uri = "x://1"): Promise<Json> =>
  sendRequest(client, SUBSCRIBE, { uri });
const unsubscribe = (client: Peer, uri = "x://1"): Promise<Json> =>
  sendRequest(client, "resources/unsubscribe", { uri });
const codeOf = ({ error }: Json): number | undefined => error?.code;

/** A server says that these are others now, and its clients are told. */
async function change({ newestPeer }: ScriptedServer, ...uris: string[]): Promise<void> {
  for (const uri of uris) notify(newestPeer, UPDATED, { uri });
  await turn();
}

/** What a client was told to be another. */
const reportedTo = (client: Peer): unknown[] =>
  messagesOfMethod(client, UPDATED).map(({ params }) => params?.["uri"]);

/** What a server was asked to do about subscriptions. */
const askedOf = ({ peers }: ScriptedServer): string[] =>
  peers.flatMap(({ messages }) =>
    messages.flatMap(({ method = "", params }) =>
      method.endsWith("subscribe") ? `${method.split("/")[1]} ${String(params?.["uri"])}` : [],
    ),
  );

async function begin(...made: Parameters<typeof setUpHubWithClock>) {
  const setup = setUpHubWithClock(...made);
  const other = setup.connect();
  for (const peer of [setup.client, other]) await initialize(peer);
  await turn();
  return { ...setup, other };
}

/** The same with one server, which lists these. */
async function beginOne(uris = ["x://1"]) {
  const a = makeServer(...uris);
  return { ...(await begin({ a })), a };
}

describe("a subscription", () => {
  it("is made at the first client and ended at the last", async () => {
    const { client, other, a } = await beginOne();
    for (const peer of [client, other, other]) {
      assert.deepEqual((await subscribe(peer)).result, {});
    }
    assert.deepEqual((await unsubscribe(client)).result, {});
    assert.deepEqual(askedOf(a), ["subscribe x://1"]);
    await unsubscribe(other);
    assert.deepEqual(askedOf(a), ["subscribe x://1", "unsubscribe x://1"]);
  });

  it("leads to news for those who have it, and for nobody else", async () => {
    const { client, other, a } = await beginOne(["x://1", "x://2"]);
    await subscribe(client);
    await subscribe(other, "x://2");
    await change(a, "x://1", "x://2", "x://3");
    assert.deepEqual([reportedTo(client), reportedTo(other)], [["x://1"], ["x://2"]]);
    await unsubscribe(client);
    await change(a, "x://1");
    assert.deepEqual(reportedTo(client), ["x://1"]);
  });

  it("passes news on as they are", async () => {
    const { client, a } = await beginOne();
    await subscribe(client);
    const text = `{"method":"${UPDATED}","params":{ "u\\u0072i":"x:\\/\\/1","n":1.0},"jsonrpc":"2.0"}`;
    a.newestPeer?.send(text);
    await client.until(() => client.received.includes(text));
  });

  // Two servers, a and b, and what two clients subscribe to.
  for (const [what, ofA, ofB, first, second, changes, atFirst, atSecond] of [
    [
      "is known to each client by the URI that it was shown",
      ["x://1"],
      ["x://1"],
      ["x://1"],
      [OF_B],
      ["b x://1"],
      [],
      [OF_B],
    ],
    [
      "covers what is below its URI, once for each client",
      ["x://1", "x://1/2"],
      ["x://1"],
      ["x://1", "x://1/2"],
      [OF_B],
      ["a x://1/2", "b x://1/2"],
      ["x://1/2"],
      [`${OF_B}%2F2`],
    ],
    [
      "does not cover what only begins with its URI",
      ["x://1", "x://10"],
      [],
      ["x://1"],
      ["x://10"],
      ["a x://10", "a x://1#part"],
      ["x://1#part"],
      ["x://10"],
    ],
    [
      "that is nearest to what has changed is the one that counts",
      ["x://1"],
      ["x://1", "x://1/2"],
      ["x://1/2", OF_B],
      [],
      ["b x://1/2"],
      ["x://1/2"],
      [],
    ],
  ] as const) {
    it(what, async () => {
      const scripts = { a: makeServer(...ofA), b: makeServer(...ofB) };
      const { client, other } = await begin(scripts);
      for (const uri of first) await subscribe(client, uri);
      for (const uri of second) await subscribe(other, uri);
      for (const each of changes) {
        await change(scripts[each.startsWith("a") ? "a" : "b"], each.slice(2));
      }
      assert.deepEqual([reportedTo(client), reportedTo(other)], [atFirst, atSecond]);
    });
  }

  it("that the server refuses is none, and its error is passed on", async () => {
    const { client, a } = await beginOne();
    answerWith(a, REFUSE);
    assert.equal(codeOf(await subscribe(client)), 7);
    await change(a, "x://1");
    assert.deepEqual(reportedTo(client), []);
    await unsubscribe(client);
    assert.deepEqual(askedOf(a), ["subscribe x://1"]);
  });

  it("is refused where the server has none, and for what nobody has", async () => {
    const a = makeServer("x://1");
    a.onInitialize = () =>
      '"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{}},"serverInfo":{"name":"s","version":"1"}}';
    const { client } = await begin({ a });
    assert.equal(codeOf(await subscribe(client)), -32601);
    assert.equal(codeOf(await subscribe(client, "y://1")), -32002);
    assert.deepEqual(askedOf(a), []);
  });

  it("ends when its client leaves", async () => {
    const { client, other, a } = await beginOne(["x://1", "x://2"]);
    for (const uri of ["x://1", "x://2"]) await subscribe(client, uri);
    await subscribe(other, "x://2");
    await client.transport.close();
    await turn();
    assert.deepEqual(askedOf(a), ["subscribe x://1", "subscribe x://2", "unsubscribe x://1"]);
  });

  for (const [end, act] of [
    ["cancels", (client) => cancel(client, 1)],
    ["ends", unsubscribe],
  ] as const satisfies readonly (readonly [string, (client: Peer) => unknown])[]) {
    it(`that its client ${end} before the server has agreed is none`, async () => {
      const { client, a } = await beginOne();
      answerWith(a, () => undefined);
      post(client, 1, SUBSCRIBE, { uri: "x://1" });
      await turn();
      await act(client);
      await turn();
      await change(a, "x://1");
      assert.deepEqual(reportedTo(client), []);
      assert.deepEqual(askedOf(a), ["subscribe x://1", "unsubscribe x://1"]);
    });
  }

  it("does not count on one that the server has not agreed to yet", async () => {
    const { client, other, a } = await beginOne();
    answerWith(a, () => undefined);
    post(client, 1, SUBSCRIBE, { uri: "x://1" });
    await turn();
    answerWith(a, REFUSE);
    assert.equal(codeOf(await subscribe(other)), 7);
    respond(a.newestPeer, a.messagesOf(SUBSCRIBE)[0]?.id, {});
    await client.find(isResponseTo(1));
    await change(a, "x://1");
    assert.deepEqual([reportedTo(client), reportedTo(other)], [["x://1"], []]);
  });

  it("is restored when its server is started again, and what may have been missed is told", async () => {
    const scripts = { a: makeServer("x://1"), b: makeServer("x://1") };
    const { client, other, clock } = await begin(scripts);
    await subscribe(client, OF_B);
    scripts.b.disconnect();
    await clock.advanceAsync(10_000);
    assert.deepEqual(askedOf(scripts.b), ["subscribe x://1", "subscribe x://1"]);
    assert.deepEqual(reportedTo(client), [OF_B]);
    await change(scripts.b, "x://1");
    assert.deepEqual(reportedTo(client), [OF_B, OF_B]);
    await subscribe(other, OF_B);
    for (const peer of [client, other]) await unsubscribe(peer, OF_B);
    assert.deepEqual(askedOf(scripts.b).slice(2), ["unsubscribe x://1"]);
  });

  it("that cannot be restored is a warning, and its client looks for itself", async () => {
    const { client, other, clock, events, a } = await beginOne();
    await subscribe(client);
    answerWith(a, REFUSE);
    a.disconnect();
    await clock.advanceAsync(10_000);
    assert.deepEqual(reportedTo(client), ["x://1"]);
    const warnings = events.filter((event) => event.kind === "log" && event.level === "warn");
    assert.equal(warnings.length, 1);
    assert.equal(codeOf(await subscribe(other)), 7);
  });

  it("is not taken for granted while its server is away", async () => {
    const { client, other, a } = await beginOne();
    await subscribe(client);
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.disconnect();
    await turn();
    const answer = subscribe(other);
    answerWith(a, REFUSE);
    latch.open();
    assert.equal(codeOf(await answer), 7);
  });

  it("goes on at what takes the place of its server", async () => {
    const { hub, client, clock, a } = await beginOne();
    await subscribe(client);
    hub.add(stdioSpecOf("a", { args: ["other"] }));
    await clock.advanceAsync(1000);
    assert.equal(a.transportCount, 2);
    assert.deepEqual(askedOf(a), ["subscribe x://1", "subscribe x://1"]);
    await change(a, "x://1");
    assert.deepEqual(reportedTo(client), ["x://1", "x://1"]);
    await unsubscribe(client);
    assert.deepEqual(askedOf(a).slice(2), ["unsubscribe x://1"]);
  });

  it("keeps its server from being stopped as unused", async () => {
    const servers = { a: { idleStop: 10_000, healthInterval: 0 } };
    const { hub, client, clock } = await begin({ a: makeServer("x://1") }, { servers });
    await subscribe(client);
    await clock.advanceAsync(60_000);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    await unsubscribe(client);
    await clock.advanceAsync(60_000);
    assert.equal(connectionStatusOf(hub, "a").state, "idle");
  });

  it("starts its server if need be", async () => {
    const latch = new Latch();
    const a = Object.assign(makeServer("x://1"), { onOpen: latch.wait });
    const { client } = await begin({ a });
    const answer = subscribe(client);
    latch.open();
    assert.deepEqual((await answer).result, {});
    assert.deepEqual(askedOf(a), ["subscribe x://1"]);
  });

  it("of each client with a server of its own is at that server", async () => {
    const a = makeServer("x://1");
    const { client, other } = await begin({ a }, { servers: { a: { isolation: "perClient" } } });
    for (const peer of [client, other]) await subscribe(peer);
    assert.deepEqual(askedOf(a), ["subscribe x://1", "subscribe x://1"]);
    notify(a.peers[0], UPDATED, { uri: "x://1" });
    await turn();
    assert.deepEqual([...reportedTo(client), ...reportedTo(other)], ["x://1"]);
  });
});
