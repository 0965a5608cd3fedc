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

const OK = (): string => '"result":{}';
const REFUSAL = '"error":{"code":7,"message":"no"}';

function makeServer(...uris: string[]): ScriptedServer {
  const script = new ScriptedServer("t");
  script.listings = { resources: uris.map((uri) => ({ uri, name: "n" })) };
  script.handlers = { "resources/subscribe": OK, "resources/unsubscribe": OK };
  return script;
}

const subscribe = (client: Peer, uri: string): Promise<Json> =>
  sendRequest(client, "resources/subscribe", { uri });
const unsubscribe = (client: Peer, uri: string): Promise<Json> =>
  sendRequest(client, "resources/unsubscribe", { uri });

const updated = (uri: string): object => ({
  jsonrpc: "2.0",
  method: "notifications/resources/updated",
  params: { uri },
});

/** What a client was told to be another. */
const reportedTo = ({ messages }: Peer): unknown[] =>
  messages
    .filter(({ method }) => method === "notifications/resources/updated")
    .map(({ params }) => params?.["uri"]);

/** What a server was asked to do about subscriptions. */
const askedOf = ({ peers }: ScriptedServer): string[] =>
  peers.flatMap(({ messages }) =>
    messages
      .filter(({ method }) => method?.endsWith("subscribe"))
      .map(
        ({ method, params }) => `${method?.slice("resources/".length)} ${String(params?.["uri"])}`,
      ),
  );

async function begin(...made: Parameters<typeof setUpHubWithClock>) {
  const setup = setUpHubWithClock(...made);
  const other = setup.connect();
  await initialize(setup.client);
  await initialize(other);
  await turn();
  return { ...setup, other };
}

describe("a subscription", () => {
  it("is made at the first client and ended at the last", async () => {
    const a = makeServer("x://1");
    const { client, other } = await begin({ a });
    assert.deepEqual((await subscribe(client, "x://1")).result, {});
    assert.deepEqual((await subscribe(other, "x://1")).result, {});
    assert.deepEqual((await subscribe(other, "x://1")).result, {});
    assert.deepEqual(askedOf(a), ["subscribe x://1"]);
    assert.deepEqual((await unsubscribe(client, "x://1")).result, {});
    assert.deepEqual(askedOf(a), ["subscribe x://1"]);
    await unsubscribe(other, "x://1");
    assert.deepEqual(askedOf(a), ["subscribe x://1", "unsubscribe x://1"]);
  });

  it("leads to news for those who have it, and for nobody else", async () => {
    const a = makeServer("x://1", "x://2");
    const { client, other } = await begin({ a });
    await subscribe(client, "x://1");
    await subscribe(other, "x://2");
    for (const uri of ["x://1", "x://2", "x://3"]) a.newestPeer?.send(updated(uri));
    await turn();
    assert.deepEqual(reportedTo(client), ["x://1"]);
    assert.deepEqual(reportedTo(other), ["x://2"]);
    await unsubscribe(client, "x://1");
    a.newestPeer?.send(updated("x://1"));
    await turn();
    assert.deepEqual(reportedTo(client), ["x://1"]);
  });

  it("passes news on as they are", async () => {
    const a = makeServer("x://1");
    const { client } = await begin({ a });
    await subscribe(client, "x://1");
    const text =
      '{"method":"notifications/resources/updated","params":{ "u\\u0072i":"x:\\/\\/1","n":1.0},"jsonrpc":"2.0"}';
    a.newestPeer?.send(text);
    await client.until(() => client.received.includes(text));
  });

  it("is known to each client by the URI that it was shown", async () => {
    const scripts = { a: makeServer("x://1"), b: makeServer("x://1") };
    const { client, other } = await begin(scripts);
    const name = "toolmux://b/x%3A%2F%2F1";
    await subscribe(client, "x://1");
    await subscribe(other, name);
    assert.deepEqual(askedOf(scripts.b), ["subscribe x://1"]);
    scripts.b.newestPeer?.send(updated("x://1"));
    await turn();
    assert.deepEqual(reportedTo(client), []);
    assert.deepEqual(reportedTo(other), [name]);
  });

  it("covers what is below its URI, once for each client", async () => {
    const a = makeServer("x://1", "x://1/2");
    const b = makeServer("x://1");
    const { client, other } = await begin({ a, b });
    await subscribe(client, "x://1");
    await subscribe(client, "x://1/2");
    await subscribe(other, "toolmux://b/x%3A%2F%2F1");
    a.newestPeer?.send(updated("x://1/2"));
    b.newestPeer?.send(updated("x://1/2"));
    await turn();
    assert.deepEqual(reportedTo(client), ["x://1/2"]);
    assert.deepEqual(reportedTo(other), ["toolmux://b/x%3A%2F%2F1%2F2"]);
  });

  it("does not cover what only begins with its URI", async () => {
    const a = makeServer("x://1", "x://10");
    const { client, other } = await begin({ a });
    await subscribe(client, "x://1");
    await subscribe(other, "x://10");
    a.newestPeer?.send(updated("x://10"));
    a.newestPeer?.send(updated("x://1#part"));
    await turn();
    assert.deepEqual(reportedTo(client), ["x://1#part"]);
    assert.deepEqual(reportedTo(other), ["x://10"]);
  });

  it("that is nearest to what has changed is the one that counts", async () => {
    const scripts = { a: makeServer("x://1"), b: makeServer("x://1", "x://1/2") };
    const { client } = await begin(scripts);
    await subscribe(client, "x://1/2");
    await subscribe(client, "toolmux://b/x%3A%2F%2F1");
    scripts.b.newestPeer?.send(updated("x://1/2"));
    await turn();
    assert.deepEqual(reportedTo(client), ["x://1/2"]);
  });

  it("that the server refuses is none, and its error is passed on", async () => {
    const a = makeServer("x://1");
    a.handlers = { ...a.handlers, "resources/subscribe": () => REFUSAL };
    const { client } = await begin({ a });
    assert.equal((await subscribe(client, "x://1")).error?.code, 7);
    a.newestPeer?.send(updated("x://1"));
    await turn();
    assert.deepEqual(reportedTo(client), []);
    await unsubscribe(client, "x://1");
    assert.deepEqual(askedOf(a), ["subscribe x://1"]);
  });

  it("is refused where the server has none", async () => {
    const a = makeServer("x://1");
    a.onInitialize = () =>
      '"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{}},"serverInfo":{"name":"s","version":"1"}}';
    const { client } = await begin({ a });
    assert.equal((await subscribe(client, "x://1")).error?.code, -32601);
    assert.deepEqual(askedOf(a), []);
  });

  it("is refused for what nobody has", async () => {
    const { client } = await begin({ a: makeServer("x://1") });
    assert.equal((await subscribe(client, "y://1")).error?.code, -32002);
  });

  it("ends when its client leaves", async () => {
    const a = makeServer("x://1", "x://2");
    const { client, other } = await begin({ a });
    for (const uri of ["x://1", "x://2"]) await subscribe(client, uri);
    await subscribe(other, "x://2");
    await client.transport.close();
    await turn();
    assert.deepEqual(askedOf(a).slice(3), []);
    assert.deepEqual(askedOf(a), ["subscribe x://1", "subscribe x://2", "unsubscribe x://1"]);
  });

  it("that its client cancels, or ends before the server has agreed, is none", async () => {
    for (const end of ["cancel", "unsubscribe"] as const) {
      const a = makeServer("x://1");
      a.handlers = { ...a.handlers, "resources/subscribe": () => undefined };
      const { client } = await begin({ a });
      const params = { uri: "x://1" };
      client.send({ jsonrpc: "2.0", id: 1, method: "resources/subscribe", params });
      await turn();
      if (end === "unsubscribe") await unsubscribe(client, "x://1");
      else {
        const withdrawn = { requestId: 1 };
        client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: withdrawn });
      }
      await turn();
      a.newestPeer?.send(updated("x://1"));
      await turn();
      assert.deepEqual(reportedTo(client), []);
      assert.deepEqual(askedOf(a), ["subscribe x://1", "unsubscribe x://1"]);
    }
  });

  it("does not count on one that the server has not agreed to yet", async () => {
    const a = makeServer("x://1");
    const { client, other } = await begin({ a });
    a.handlers = { ...a.handlers, "resources/subscribe": () => undefined };
    client.send({ jsonrpc: "2.0", id: 1, method: "resources/subscribe", params: { uri: "x://1" } });
    await turn();
    a.handlers = { ...a.handlers, "resources/subscribe": () => REFUSAL };
    assert.equal((await subscribe(other, "x://1")).error?.code, 7);
    const [first] = a.messagesOf("resources/subscribe");
    a.newestPeer?.send({ jsonrpc: "2.0", id: first?.id, result: {} });
    await client.find(isResponseTo(1));
    a.newestPeer?.send(updated("x://1"));
    await turn();
    assert.deepEqual([reportedTo(client), reportedTo(other)], [["x://1"], []]);
  });

  it("is restored when its server is started again, and what may have been missed is told", async () => {
    const scripts = { a: makeServer("x://1"), b: makeServer("x://1") };
    const { client, other, clock } = await begin(scripts);
    const name = "toolmux://b/x%3A%2F%2F1";
    await subscribe(client, name);
    scripts.b.disconnect();
    await clock.advanceAsync(10_000);
    assert.deepEqual(askedOf(scripts.b), ["subscribe x://1", "subscribe x://1"]);
    assert.deepEqual(reportedTo(client), [name]);
    scripts.b.newestPeer?.send(updated("x://1"));
    await turn();
    assert.deepEqual(reportedTo(client), [name, name]);
    await subscribe(other, name);
    assert.equal(askedOf(scripts.b).length, 2);
    await unsubscribe(client, name);
    await unsubscribe(other, name);
    assert.deepEqual(askedOf(scripts.b).slice(2), ["unsubscribe x://1"]);
  });

  it("that cannot be restored is a warning, and its client looks for itself", async () => {
    const a = makeServer("x://1");
    const { client, other, clock, events } = await begin({ a });
    await subscribe(client, "x://1");
    a.handlers = { ...a.handlers, "resources/subscribe": () => REFUSAL };
    a.disconnect();
    await clock.advanceAsync(10_000);
    assert.deepEqual(reportedTo(client), ["x://1"]);
    const warnings = events.filter((event) => event.kind === "log" && event.level === "warn");
    assert.equal(warnings.length, 1);
    assert.equal((await subscribe(other, "x://1")).error?.code, 7);
  });

  it("is not taken for granted while its server is away", async () => {
    const a = makeServer("x://1");
    const { client, other } = await begin({ a });
    await subscribe(client, "x://1");
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.disconnect();
    await turn();
    const answer = subscribe(other, "x://1");
    a.handlers = { ...a.handlers, "resources/subscribe": () => REFUSAL };
    latch.open();
    assert.equal((await answer).error?.code, 7);
  });

  it("goes on at what takes the place of its server", async () => {
    const a = makeServer("x://1");
    const { hub, client, clock } = await begin({ a });
    await subscribe(client, "x://1");
    hub.add(stdioSpecOf("a", { args: ["other"] }));
    await clock.advanceAsync(1000);
    assert.equal(a.transportCount, 2);
    assert.deepEqual(askedOf(a), ["subscribe x://1", "subscribe x://1"]);
    a.newestPeer?.send(updated("x://1"));
    await turn();
    assert.deepEqual(reportedTo(client), ["x://1", "x://1"]);
    await unsubscribe(client, "x://1");
    assert.deepEqual(askedOf(a).slice(2), ["unsubscribe x://1"]);
  });

  it("keeps its server from being stopped as unused", async () => {
    const a = makeServer("x://1");
    const servers = { a: { idleStop: 10_000, healthInterval: 0 } };
    const { hub, client, clock } = await begin({ a }, { servers });
    await subscribe(client, "x://1");
    await clock.advanceAsync(60_000);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    await unsubscribe(client, "x://1");
    await clock.advanceAsync(60_000);
    assert.equal(connectionStatusOf(hub, "a").state, "idle");
  });

  it("starts its server if need be", async () => {
    const a = makeServer("x://1");
    const latch = new Latch();
    a.onOpen = latch.wait;
    const { client } = await begin({ a });
    const answer = subscribe(client, "x://1");
    latch.open();
    assert.deepEqual((await answer).result, {});
    assert.deepEqual(askedOf(a), ["subscribe x://1"]);
  });

  it("of each client with a server of its own is at that server", async () => {
    const a = makeServer("x://1");
    const { client, other } = await begin({ a }, { servers: { a: { isolation: "perClient" } } });
    await subscribe(client, "x://1");
    await subscribe(other, "x://1");
    assert.deepEqual(askedOf(a), ["subscribe x://1", "subscribe x://1"]);
    a.peers[0]?.send(updated("x://1"));
    await turn();
    assert.deepEqual([...reportedTo(client), ...reportedTo(other)], ["x://1"]);
  });
});
