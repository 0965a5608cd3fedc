import assert from "node:assert/strict";
import { describe, it } from "node:test";
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
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES,
  modernMetaOf,
  MODERN_VERSION,
  modernRequest,
  sendModernWithId,
  sendModernRequest,
  inputRoundOf,
} from "../fixtures/modern-requests.ts";
import {
  FORM_ELICITATION,
  ModernScriptedServer,
  inputRequiredResult,
} from "../fixtures/modern-server.ts";

const BY_ERA = { servers: { s: { era: "modern" }, l: { era: "legacy" } } } as const;

/** A hub over a modern server and one of old, with a client that has said nothing yet. */
function begin(
  names: { readonly modern?: ModernScriptedServer; readonly legacy?: ScriptedServer } = {},
) {
  const { modern: s = new ModernScriptedServer("x"), legacy: l = new ScriptedServer("y") } = names;
  return { ...setUpHub({ s, l }, BY_ERA), s, l };
}

/** What must not come to anybody. */
function assertUnheard(client: { readonly messages: readonly Json[] }, method: string): void {
  assert.deepEqual(
    client.messages.filter((message) => message.method === method),
    [],
  );
}

describe("a modern server that lies", () => {
  for (const spelled of [
    '"resultType":"\\u0069nput_required","inputRequests":{"k":{"method":"roots/list"}}',
    '"result\\u0054ype":"input_required","inputRequests":{"k":{"method":"roots/list"}}',
    '"resultType":5',
    '"resultType":null,"content":[]',
    '"resultType":["complete"]',
    '"resultType":"Complete"',
    '"resultType":"input_required","resultType":"complete","content":[]',
    '"resultType":"complete","resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}',
    '"resultType":"input_required","inputRequests":{"__proto__":{"method":"roots/list"}}',
    '"resultType":"input_required","inputRequests":{"k":{"method":"tools/call","params":{}}}',
    '"resultType":"input_required","inputRequests":[]',
    '"resultType":"input_required","requestState":5',
  ]) {
    it(`has its client answered, in either era: ${spelled.slice(0, 80)}`, async () => {
      const s = new ModernScriptedServer("x");
      let rounds = 0;
      s.onCall = () => (rounds++ < 1 ? `"result":{${spelled}}` : '"result":{"content":[]}');
      const { client, connect, hub } = begin({ modern: s });
      client.onMessage = ({ id, method }) => {
        if (method === "roots/list") client.send({ jsonrpc: "2.0", id, result: { roots: [] } });
      };
      await initialize(client, { roots: {} });
      const old = await callTool(client, "s__x");
      assert.ok((old.result ?? old.error) !== undefined);
      // What only the modern era has must not come to a client of old.
      for (const key of ["resultType", "inputRequests", "requestState"]) {
        assert.equal(Object.hasOwn(old.result ?? {}, key), false, key);
      }
      rounds = 0;
      const fresh = await sendModernRequest(
        connect(),
        "tools/call",
        { name: "s__x" },
        ALL_MODERN_CAPABILITIES,
      );
      assert.ok((fresh.result ?? fresh.error) !== undefined);
      await hub.close();
    });
  }

  it("refuses to tell of changes with an error that is malformed, and ends nothing by that", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers = { ...s.handlers, "subscriptions/listen": () => '"error":{"code":-32601,,}' };
    const { client, hub } = begin({ modern: s });
    await initialize(client, ALL_MODERN_CAPABILITIES);
    assert.deepEqual(await listToolNames(client), ["l__y", "s__x"]);
    assert.ok(s.listenRequests.length > 0);
    await hub.close();
  });

  it("wants more before it lists resources, and costs nothing but these", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers = {
      ...s.handlers,
      "resources/list": () => inputRequiredResult({ k: FORM_ELICITATION }),
    };
    const l = new ScriptedServer("y");
    l.listings = { resources: [{ uri: "u:1", name: "r" }] };
    const { client, hub } = begin({ modern: s, legacy: l });
    await initialize(client, ALL_MODERN_CAPABILITIES);
    assert.deepEqual(await listToolNames(client), ["l__y", "s__x"]);
    const { result } = await sendRequest(client, "resources/list");
    assert.deepEqual(result?.["resources"], [{ uri: "u:1", name: "r" }]);
    assertUnheard(client, "elicitation/create");
    await hub.close();
  });

  it("gets its state back as it was, however long it is", async () => {
    const state = '\\"ü/'.repeat(200_000);
    const s = new ModernScriptedServer("x");
    const seen: unknown[] = [];
    s.onCall = ({ params }) => {
      if (params?.["inputResponses"] === undefined)
        return inputRequiredResult({ k: FORM_ELICITATION }, state);
      seen.push(params["requestState"]);
      return '"result":{"resultType":"complete","content":[]}';
    };
    const { client, connect, hub } = begin({ modern: s });
    client.onMessage = ({ id, method }) => {
      const result = { action: "decline" };
      if (method === "elicitation/create") client.send({ jsonrpc: "2.0", id, result });
    };
    await initialize(client, ALL_MODERN_CAPABILITIES);
    assert.equal((await callTool(client, "s__x")).error, undefined);
    const other = connect();
    const first = await sendModernRequest(
      other,
      "tools/call",
      { name: "s__x" },
      ALL_MODERN_CAPABILITIES,
    );
    const back = {
      name: "s__x",
      inputResponses: { k: { action: "decline" } },
      requestState: inputRoundOf(first).state,
    };
    assert.equal(
      (await sendModernRequest(other, "tools/call", back, ALL_MODERN_CAPABILITIES)).error,
      undefined,
    );
    assert.deepEqual(
      seen.map((each) => each === state),
      [true, true],
    );
    await hub.close();
  });

  it("tells things on subscriptions that are none, of resources that nobody subscribed to, and asks", async () => {
    const s = new ModernScriptedServer("x");
    s.listings = {
      prompts: [],
      resources: [{ uri: "u:1", name: "r" }] as never,
      resourceTemplates: [],
    };
    const { client, connect, hub } = begin({ modern: s });
    await initialize(client, ALL_MODERN_CAPABILITIES);
    const other = connect();
    other.send(
      modernRequest(1, "subscriptions/listen", { notifications: { toolsListChanged: true } }),
    );
    await other.find(({ method }) => method === "notifications/subscriptions/acknowledged");
    for (const id of [1, "1", 999, null, { deep: 1 }, [1], -1]) {
      s.notifySubscription(id, "notifications/resources/updated", { uri: "u:1" });
      s.notifySubscription(id, "notifications/message", { level: "emergency", data: "forged" });
      s.notifySubscription(id, "notifications/subscriptions/acknowledged", { notifications: 5 });
      s.notifySubscription(id, "notifications/tools/list_changed");
      s.notifySubscription(id, "notifications/cancelled", { requestId: id });
      s.newestPeer?.send({ jsonrpc: "2.0", id: `forged-${String(id)}`, ...FORM_ELICITATION });
    }
    await sendModernRequest(other, "tools/call", { name: "s__x" }, ALL_MODERN_CAPABILITIES);
    await callTool(client, "s__x");
    for (const peer of [client, other]) {
      for (const method of ["notifications/resources/updated", "notifications/message"]) {
        assertUnheard(peer, method);
      }
      assertUnheard(peer, "elicitation/create");
      assertUnheard(peer, "notifications/cancelled");
    }
    // Its list is the same as before.
    assertUnheard(other, "notifications/tools/list_changed");
    await hub.close();
  });

  it("wants ten thousand things at a time, and its client is asked for none", async () => {
    const s = new ModernScriptedServer("x");
    const many = Object.fromEntries(
      Array.from({ length: 10_000 }, (_, at) => [`k${at}`, FORM_ELICITATION]),
    );
    s.onCall = () => inputRequiredResult(many);
    const { client, hub } = begin({ modern: s });
    await initialize(client, ALL_MODERN_CAPABILITIES);
    const { error, result } = await callTool(client, "s__x");
    assert.ok(error !== undefined || result?.["isError"] === true);
    assertUnheard(client, "elicitation/create");
    await hub.close();
  });
});

describe("a server of old that speaks as a modern one", () => {
  for (const said of ["input_required", "task", "\\u0069nput_required", "nonsense"]) {
    it(`says ${said}, which is a complete result for a modern client`, async () => {
      const l = new ScriptedServer("y");
      const more = '"inputRequests":{"k":{"method":"roots/list"}},"requestState":"forged"';
      l.onCall = () => `"result":{"content":[],"resultType":"${said}",${more}}`;
      const { client, hub } = begin({ legacy: l });
      const { result } = await sendModernRequest(
        client,
        "tools/call",
        { name: "l__y" },
        ALL_MODERN_CAPABILITIES,
      );
      assert.equal(result?.["resultType"], "complete");
      await hub.close();
    });
  }

  it("cannot say how long others may keep what it lists or has read", async () => {
    const l = new ScriptedServer("y");
    const forged = '"ttlMs":99999999,"cacheScope":"public"';
    l.listings = { resources: [{ uri: "u:1", name: "r" }] };
    l.onList = () => `"result":{"tools":[${l.tools.join(",")}],${forged}}`;
    l.handlers = { "resources/read": () => `"result":{"contents":[],${forged}}` };
    const { client, hub } = begin({ legacy: l });
    for (const [method, params] of [
      ["tools/list", {}],
      ["resources/read", { uri: "u:1" }],
    ] as const) {
      const { result } = await sendModernRequest(client, method, params);
      assert.deepEqual([result?.["ttlMs"], result?.["cacheScope"]], [0, "private"]);
    }
    await hub.close();
  });
});

describe("both eras on one pipe", () => {
  it("run under the same id at a time without either getting the other's answer", async () => {
    const { client, s, l, hub } = begin();
    const held: Json[] = [];
    l.onCall = (message) => void held.push(message);
    await initialize(client);
    client.send(callRequest(1, "l__y", { from: "old" }));
    client.send(modernRequest(1, "tools/call", { name: "s__x", arguments: { from: "new" } }));
    await client.until(
      () => client.messages.filter(isResponseTo(1)).length === 1 && held.length === 1,
    );
    const [old] = l.peers;
    old?.send({ jsonrpc: "2.0", id: held[0]?.id, result: { content: [], own: "old" } });
    await client.until(() => client.messages.filter(isResponseTo(1)).length === 2);
    const [first, second] = client.messages.filter(isResponseTo(1));
    // The second is the old one's, whether or not the other was let through.
    assert.equal(second?.result?.["own"], "old");
    assert.equal("resultType" in (second?.result ?? {}), false);
    assert.ok(first?.error !== undefined || first?.result?.["resultType"] === "complete");
    assert.ok(s.transportCount > 0);
    await hub.close();
  });

  it("are asked each in its own way, for its own requests", async () => {
    const { client, l, hub } = begin();
    l.onCall = (_, text) => {
      const peer = l.peers.find(({ received }) => received.includes(text));
      peer?.send({ jsonrpc: "2.0", id: "q", method: "roots/list" });
      return undefined;
    };
    await initialize(client, ALL_MODERN_CAPABILITIES);
    await listToolNames(client);
    client.send(callRequest("old", "l__y", { from: "old" }));
    const answer = await sendModernWithId(
      client,
      "new",
      "tools/call",
      { name: "l__y" },
      ALL_MODERN_CAPABILITIES,
    );
    const { keys, requests } = inputRoundOf(answer);
    assert.deepEqual(
      keys.map((key) => requests[key]?.method),
      ["roots/list"],
    );
    await client.find(({ method }) => method === "roots/list");
    assert.equal(client.messages.filter(({ method }) => method === "roots/list").length, 1);
    await hub.close();
  });

  it("may be mixed, hundreds of times, with cancels, and each request has one answer of its own era", async () => {
    const { client, hub } = begin();
    await initialize(client, ALL_MODERN_CAPABILITIES);
    const count = 700;
    for (let at = 0; at < count; at++) {
      const name = at % 3 === 0 ? "l__y" : "s__x";
      const id = `r${at}`;
      const args = { at };
      if (at % 2 === 0) client.send(callRequest(id, name, args));
      else
        client.send(
          modernRequest(id, "tools/call", { name, arguments: args }, ALL_MODERN_CAPABILITIES),
        );
      if (at % 7 === 0) {
        const requestId = `r${at - 3}`;
        client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } });
      }
    }
    await sendModernRequest(client, "tools/call", { name: "s__x" });
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
    await hub.close();
  });
});

describe("a flood of listening", () => {
  it("is one subscription at the server, and none when the clients have left", async () => {
    const s = new ModernScriptedServer("x");
    s.listings = {
      prompts: [],
      resources: [{ uri: "u:1", name: "r" }] as never,
      resourceTemplates: [],
    };
    const { hub, connect } = begin({ modern: s });
    const peers = Array.from({ length: 20 }, () => connect());
    const notifications = { toolsListChanged: true, resourceSubscriptions: ["u:1"] };
    for (const peer of peers) {
      for (let at = 0; at < 50; at++) {
        peer.send(modernRequest(at, "subscriptions/listen", { notifications }));
      }
    }
    const acknowledged = "notifications/subscriptions/acknowledged";
    for (const peer of peers) {
      await peer.until(
        () => peer.messages.filter(({ method }) => method === acknowledged).length === 50,
      );
    }
    const wants = s.listenRequests.filter(({ params }) =>
      JSON.stringify(params?.["notifications"]).includes("u:1"),
    );
    assert.equal(wants.length, 1);
    s.notifySubscription(wants[0]?.id, "notifications/resources/updated", { uri: "u:1" });
    const updated = "notifications/resources/updated";
    for (const peer of peers) {
      await peer.until(
        () => peer.messages.filter(({ method }) => method === updated).length === 50,
      );
      const ids = peer.messages
        .filter(({ method }) => method === updated)
        .map(({ params }) => (params?.["_meta"] as Record<string, unknown>)[MetaKey.subscription]);
      assert.equal(new Set(ids).size, 50);
    }
    await Promise.all(peers.map(({ transport: link }) => link.close()));
    await sendModernRequest(connect(), "tools/call", { name: "s__x" });
    const last = s.listenRequests.at(-1);
    assert.ok(last !== undefined);
    await s.newestPeer?.until(
      () => !JSON.stringify(s.listenRequests.at(-1)?.params?.["notifications"]).includes("u:1"),
    );
    await hub.close();
  });

  it("over HTTP has an end, and holds nothing when the streams are closed", async () => {
    const s = new ModernScriptedServer("x");
    const {
      hub,
      server: face,
      newClient: received,
    } = setUpHttp({ s }, { servers: { s: { era: "modern" } } });
    const headers = {
      "MCP-Protocol-Version": MODERN_VERSION,
      "Mcp-Method": "subscriptions/listen",
    };
    const body = (id: number) =>
      modernRequest(id, "subscriptions/listen", { notifications: { toolsListChanged: true } });
    const httpClient = received();
    const responses = await Promise.all(
      Array.from({ length: 1100 }, (_, at) => httpClient.post(body(at), headers)),
    );
    const streams = responses.filter((response) =>
      response.headers.get("Content-Type")?.startsWith("text/event-stream"),
    );
    assert.equal(streams.length, 1024);
    for (const stream of streams) await stream.body?.cancel();
    const again = await httpClient.post(body(5000), headers);
    assert.match(again.headers.get("Content-Type") ?? "", /^text\/event-stream/);
    await again.body?.cancel();
    await face.close();
    await hub.close();
  });
});

describe("a modern client that lies", () => {
  it("gets no parked call with a state that is made up, old, another's or too long", async () => {
    const l = new ScriptedServer("y");
    l.onCall = ({ id }) => {
      l.newestPeer?.send({ jsonrpc: "2.0", id: `ask-${String(id)}`, method: "roots/list" });
      return undefined;
    };
    const { client, connect, hub } = begin({ legacy: l });
    const { state, keys } = inputRoundOf(
      await sendModernWithId(client, 1, "tools/call", { name: "l__y" }, ALL_MODERN_CAPABILITIES),
    );
    const inputResponses = { [keys[0] ?? ""]: { roots: [] } };
    const stranger = connect();
    for (const requestState of [
      state,
      `${state}x`,
      state.slice(0, -1),
      "toolmux.",
      "x".repeat(2 ** 20),
    ]) {
      const params = { name: "l__y", inputResponses, requestState };
      const { error } = await sendModernRequest(
        stranger,
        "tools/call",
        params,
        ALL_MODERN_CAPABILITIES,
      );
      assert.equal(error?.code, -32602);
    }
    for (const params of [
      { name: "s__x", inputResponses, requestState: state },
      { name: "l__y", arguments: { other: 1 }, inputResponses, requestState: state },
    ]) {
      assert.equal(
        (await sendModernRequest(client, "tools/call", params, ALL_MODERN_CAPABILITIES)).error
          ?.code,
        -32602,
      );
    }
    await hub.close();
  });

  it("says of itself what nobody would, and is answered", async () => {
    const { client, hub } = begin();
    const deep = `${"[".repeat(500)}${"]".repeat(500)}`;
    for (const [at, envelope] of [
      { ...modernMetaOf(), [MetaKey.capabilities]: [] },
      { ...modernMetaOf(), [MetaKey.capabilities]: JSON.parse(`{"sampling":${deep}}`) as object },
      { ...modernMetaOf(), [MetaKey.client]: "me" },
      { ...modernMetaOf(), [MetaKey.client]: { name: "n".repeat(100_000), version: 5 } },
      { ...modernMetaOf(), [MetaKey.level]: "loud" },
      { ...modernMetaOf(), [MetaKey.version]: { deep: 1 } },
    ].entries()) {
      const id = `odd-${at}`;
      const params = { name: "s__x", arguments: {}, _meta: envelope };
      client.send({ jsonrpc: "2.0", id, method: "tools/call", params });
      const { result, error } = await client.find(isResponseTo(id));
      assert.ok((result ?? error) !== undefined);
    }
    await hub.close();
  });
});
