import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import type { Hub } from "../../src/hub/hub.ts";
import { MetaKey } from "../../src/protocol/modern.ts";
import { setUpHttp } from "../fixtures/http-client.ts";
import {
  sendRequest,
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  type Peer,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES,
  modernMetaOf,
  modernRequest,
  sendModernRequest,
  inputRoundOf,
} from "../fixtures/modern-requests.ts";
import {
  FORM_ELICITATION,
  ModernScriptedServer,
  inputRequiredResult,
} from "../fixtures/modern-server.ts";
import { cancel, isOf, post, respond } from "../fixtures/peer-messages.ts";
import { messagesOfMethod, waitForRequest } from "../fixtures/server-requests.ts";

const BY_ERA = { servers: { s: { era: "modern" }, l: { era: "legacy" } } } as const;
const CALL = "tools/call";
const LISTEN = "subscriptions/listen";
const ACKNOWLEDGED = "notifications/subscriptions/acknowledged";
const UPDATED = "notifications/resources/updated";
const RESOURCE = { uri: "u:1", name: "r" };

const hubs: Hub[] = [];

afterEach(async () => {
  for (const hub of hubs.splice(0)) await hub.close();
});

/** A hub over a modern server and one of old, with these parts, and a client that has said nothing yet. */
function begin(parts: { modern?: Partial<ScriptedServer>; legacy?: Partial<ScriptedServer> } = {}) {
  const s = Object.assign(new ModernScriptedServer("x"), parts.modern);
  const l = Object.assign(new ScriptedServer("y"), parts.legacy);
  const setup = setUpHub({ s, l }, BY_ERA);
  hubs.push(setup.hub);
  return { ...setup, s, l };
}

/** The same with a client that has introduced itself as one of old. */
async function beginLegacy(...made: Parameters<typeof begin>) {
  const setup = begin(...made);
  await initialize(setup.client, ALL_MODERN_CAPABILITIES);
  return setup;
}

const callModern = (client: Peer, params: Readonly<Record<string, unknown>>): Promise<Json> =>
  sendModernRequest(client, CALL, params, ALL_MODERN_CAPABILITIES);

/** What must not come to a peer. */
function assertUnheard(peer: Peer, ...methods: string[]): void {
  for (const method of methods) assert.deepEqual(messagesOfMethod(peer, method), []);
}

describe("a modern server that lies", () => {
  const WANTS_ROOTS = '"inputRequests":{"k":{"method":"roots/list"}}';
  for (const spelled of [
    `"resultType":"\\u0069nput_required",${WANTS_ROOTS}`,
    `"result\\u0054ype":"input_required",${WANTS_ROOTS}`,
    '"resultType":5',
    '"resultType":null,"content":[]',
    '"resultType":["complete"]',
    '"resultType":"Complete"',
    '"resultType":"input_required","resultType":"complete","content":[]',
    `"resultType":"complete","resultType":"input_required",${WANTS_ROOTS}`,
    '"resultType":"input_required","inputRequests":{"__proto__":{"method":"roots/list"}}',
    '"resultType":"input_required","inputRequests":{"k":{"method":"tools/call","params":{}}}',
    '"resultType":"input_required","inputRequests":[]',
    '"resultType":"input_required","requestState":5',
  ]) {
    it(`has its client answered, in either era: ${spelled.slice(0, 80)}`, async () => {
      let rounds = 0;
      const onCall = (): string =>
        rounds++ < 1 ? `"result":{${spelled}}` : '"result":{"content":[]}';
      const { client, connect } = begin({ modern: { onCall } });
      client.onMessage = ({ id, method }) => {
        if (method === "roots/list") respond(client, id, { roots: [] });
      };
      await initialize(client, { roots: {} });
      const old = await callTool(client, "s__x");
      assert.ok((old.result ?? old.error) !== undefined);
      // What only the modern era has must not come to a client of old.
      for (const key of ["resultType", "inputRequests", "requestState"]) {
        assert.equal(Object.hasOwn(old.result ?? {}, key), false, key);
      }
      rounds = 0;
      const fresh = await callModern(connect(), { name: "s__x" });
      assert.ok((fresh.result ?? fresh.error) !== undefined);
    });
  }

  it("refuses to tell of changes with an error that is malformed, and ends nothing by that", async () => {
    const { client, s } = begin();
    s.handlers[LISTEN] = () => '"error":{"code":-32601,,}';
    await initialize(client, ALL_MODERN_CAPABILITIES);
    assert.deepEqual(await listToolNames(client), ["l__y", "s__x"]);
    assert.ok(s.listenRequests.length > 0);
  });

  it("wants more before it lists resources, and costs nothing but these", async () => {
    const { client, s } = begin({ legacy: { listings: { resources: [RESOURCE] } } });
    s.handlers["resources/list"] = () => inputRequiredResult({ k: FORM_ELICITATION });
    await initialize(client, ALL_MODERN_CAPABILITIES);
    assert.deepEqual(await listToolNames(client), ["l__y", "s__x"]);
    const { result } = await sendRequest(client, "resources/list");
    assert.deepEqual(result?.["resources"], [RESOURCE]);
    assertUnheard(client, "elicitation/create");
  });

  it("gets its state back as it was, however long it is", async () => {
    const state = '\\"ü/'.repeat(200_000);
    const seen: boolean[] = [];
    const onCall = ({ params }: Json): string => {
      if (params?.["inputResponses"] === undefined)
        return inputRequiredResult({ k: FORM_ELICITATION }, state);
      seen.push(params["requestState"] === state);
      return '"result":{"resultType":"complete","content":[]}';
    };
    const { client, connect } = await beginLegacy({ modern: { onCall } });
    client.onMessage = ({ id, method }) => {
      if (method === "elicitation/create") respond(client, id, { action: "decline" });
    };
    assert.equal((await callTool(client, "s__x")).error, undefined);
    const other = connect();
    const requestState = inputRoundOf(await callModern(other, { name: "s__x" })).state;
    const inputResponses = { k: { action: "decline" } };
    const last = await callModern(other, { name: "s__x", inputResponses, requestState });
    assert.equal(last.error, undefined);
    assert.deepEqual(seen, [true, true]);
  });

  it("tells things on subscriptions that are none, of resources that nobody subscribed to, and asks", async () => {
    const listings = { prompts: [], resources: [RESOURCE], resourceTemplates: [] };
    const { client, connect, s } = await beginLegacy({ modern: { listings } });
    const other = connect();
    other.send(modernRequest(1, LISTEN, { notifications: { toolsListChanged: true } }));
    await other.find(isOf(ACKNOWLEDGED));
    for (const id of [1, "1", 999, null, { deep: 1 }, [1], -1]) {
      s.notifySubscription(id, UPDATED, { uri: "u:1" });
      s.notifySubscription(id, "notifications/message", { level: "emergency", data: "forged" });
      s.notifySubscription(id, ACKNOWLEDGED, { notifications: 5 });
      s.notifySubscription(id, "notifications/tools/list_changed");
      s.notifySubscription(id, "notifications/cancelled", { requestId: id });
      s.newestPeer?.send({ jsonrpc: "2.0", id: `forged-${String(id)}`, ...FORM_ELICITATION });
    }
    await callModern(other, { name: "s__x" });
    await callTool(client, "s__x");
    for (const peer of [client, other]) {
      assertUnheard(peer, UPDATED, "notifications/message");
      assertUnheard(peer, "elicitation/create", "notifications/cancelled");
    }
    // Its list is the same as before.
    assertUnheard(other, "notifications/tools/list_changed");
  });
});

describe("both eras on one pipe", () => {
  it("run under the same id at a time without either getting the other's answer", async () => {
    const held: Json[] = [];
    const onCall = (message: Json): undefined => void held.push(message);
    const { client, s, l } = begin({ legacy: { onCall } });
    await initialize(client);
    const answers = (): Json[] => client.messages.filter(isResponseTo(1));
    client.send(callRequest(1, "l__y", { from: "old" }));
    client.send(modernRequest(1, CALL, { name: "s__x", arguments: { from: "new" } }));
    await client.until(() => answers().length === 1 && held.length === 1);
    respond(l.peers[0], held[0]?.id, { content: [], own: "old" });
    await client.until(() => answers().length === 2);
    const [first, second] = answers();
    // The second is the old one's, whether or not the other was let through.
    assert.equal(second?.result?.["own"], "old");
    assert.equal("resultType" in (second?.result ?? {}), false);
    assert.ok(first?.error !== undefined || first?.result?.["resultType"] === "complete");
    assert.ok(s.transportCount > 0);
  });

  it("are asked each in its own way, for its own requests", async () => {
    const { client, l } = await beginLegacy();
    l.onCall = (_, text) => {
      const peer = l.peers.find(({ received }) => received.includes(text));
      post(peer, "q", "roots/list");
      return undefined;
    };
    await listToolNames(client);
    client.send(callRequest("old", "l__y", { from: "old" }));
    const { requests } = inputRoundOf(await callModern(client, { name: "l__y" }));
    const asked = Object.values(requests).map(({ method }) => method);
    assert.deepEqual(asked, ["roots/list"]);
    await waitForRequest(client, "roots/list");
    assert.equal(messagesOfMethod(client, "roots/list").length, 1);
  });

  it("may be mixed, many times, with cancels, and each request has one answer of its own era", async () => {
    const { client } = await beginLegacy();
    const count = 210;
    for (let at = 0; at < count; at++) {
      const name = at % 3 === 0 ? "l__y" : "s__x";
      const params = { name, arguments: { at } };
      client.send(
        at % 2 === 0
          ? callRequest(`r${at}`, name, { at })
          : modernRequest(`r${at}`, CALL, params, ALL_MODERN_CAPABILITIES),
      );
      if (at % 7 === 0) cancel(client, `r${at - 3}`);
    }
    await sendModernRequest(client, CALL, { name: "s__x" });
    await client.until(() => client.messages.some(isResponseTo(`r${count - 1}`)));
    const seen = new Set<unknown>();
    for (const { id, method, result } of client.messages) {
      const at = Number(/^r(\d+)$/.exec(String(id))?.[1] ?? Number.NaN);
      if (method !== undefined || Number.isNaN(at)) continue;
      assert.equal(seen.has(id), false, "it was answered twice");
      seen.add(id);
      const echo = result?.["echo"] as { readonly arguments?: { readonly at?: number } };
      assert.equal(echo.arguments?.at, at);
      assert.equal(result?.["resultType"], at % 2 === 0 ? undefined : "complete");
    }
    assert.ok(seen.size >= count - Math.ceil(count / 7));
  });
});

describe("a flood of listening", () => {
  it("is one subscription at the server, and none when the clients have left", async () => {
    const listings = { prompts: [], resources: [RESOURCE], resourceTemplates: [] };
    const { connect, s } = begin({ modern: { listings } });
    const peers = Array.from({ length: 20 }, () => connect());
    const notifications = { toolsListChanged: true, resourceSubscriptions: ["u:1"] };
    const receive = (peer: Peer, method: string): Promise<void> =>
      peer.until(() => messagesOfMethod(peer, method).length === 50);
    for (const peer of peers) {
      for (let at = 0; at < 50; at++) peer.send(modernRequest(at, LISTEN, { notifications }));
    }
    for (const peer of peers) await receive(peer, ACKNOWLEDGED);
    const isWanted = ({ params }: Json): boolean =>
      JSON.stringify(params?.["notifications"]).includes("u:1");
    const wants = s.listenRequests.filter(isWanted);
    assert.equal(wants.length, 1);
    s.notifySubscription(wants[0]?.id, UPDATED, { uri: "u:1" });
    for (const peer of peers) {
      await receive(peer, UPDATED);
      const metas = messagesOfMethod(peer, UPDATED).map(({ params }) => params?.["_meta"]);
      const ids = metas.map((meta) => (meta as Record<string, unknown>)[MetaKey.subscription]);
      assert.equal(new Set(ids).size, 50);
    }
    await Promise.all(peers.map(({ transport }) => transport.close()));
    await sendModernRequest(connect(), CALL, { name: "s__x" });
    await s.newestPeer?.until(() => s.listenRequests.slice(-1).every((last) => !isWanted(last)));
    assert.ok(s.listenRequests.length > 0);
  });

  it("over HTTP has an end, and holds nothing when the streams are closed", async () => {
    const s = new ModernScriptedServer("x");
    const servers = { s: { era: "modern" } } as const;
    const { hub, server: face, newClient } = setUpHttp({ s }, { servers });
    const httpClient = newClient();
    const notifications = { toolsListChanged: true };
    const listen = (id: number): Promise<Response> =>
      httpClient.postModern(LISTEN, { notifications }, { id });
    const isStream = (response: Response): boolean =>
      response.headers.get("Content-Type")?.startsWith("text/event-stream") === true;
    const responses = await Promise.all(Array.from({ length: 1100 }, (_, at) => listen(at)));
    const streams = responses.filter(isStream);
    assert.equal(streams.length, 1024);
    for (const stream of streams) await stream.body?.cancel();
    const again = await listen(5000);
    assert.ok(isStream(again));
    await again.body?.cancel();
    await face.close();
    await hub.close();
  });
});

describe("a modern client that lies", () => {
  it("says of itself what nobody would, and is answered", async () => {
    const { client } = begin();
    const deep = JSON.parse(`${"[".repeat(500)}${"]".repeat(500)}`) as object;
    for (const [at, odd] of [
      { [MetaKey.capabilities]: [] },
      { [MetaKey.capabilities]: { sampling: deep } },
      { [MetaKey.client]: "me" },
      { [MetaKey.client]: { name: "n".repeat(100_000), version: 5 } },
      { [MetaKey.level]: "loud" },
      { [MetaKey.version]: { deep: 1 } },
    ].entries()) {
      const _meta = { ...modernMetaOf(), ...odd };
      post(client, at, CALL, { name: "s__x", arguments: {}, _meta });
      const { result, error } = await client.find(isResponseTo(at));
      assert.ok((result ?? error) !== undefined);
    }
  });
});
