import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  callRequest,
  INITIALIZE_REQUEST,
  type Json,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";

const byId =
  (id: unknown) =>
  (message: Json): boolean =>
    message.id === id && message.method === undefined;
const LIST = { jsonrpc: "2.0", id: "list", method: "tools/list" };

async function ready(
  scripts: Record<string, ScriptedServer>,
  settings?: Parameters<typeof setUpHub>[1],
): Promise<ReturnType<typeof setUpHub>> {
  const made = setUpHub(scripts, settings);
  made.client.send(INITIALIZE_REQUEST);
  made.client.send(LIST);
  await made.client.find(byId("list"));
  return made;
}

const namesOf = (message: Json): string[] =>
  (message.result?.["tools"] as { name: string }[]).map((tool) => tool.name);

describe("initialize", () => {
  for (const [asked, given] of [
    ["2024-10-07", "2024-10-07"],
    ["2024-11-05", "2024-11-05"],
    ["2025-03-26", "2025-03-26"],
    ["2025-06-18", "2025-06-18"],
    ["2025-11-25", "2025-11-25"],
    ["2099-01-01", "2025-11-25"],
    ["2026-07-28", "2025-11-25"],
  ]) {
    it(`answers ${given} to ${asked}`, async () => {
      const { client } = setUpHub({});
      client.send({
        ...INITIALIZE_REQUEST,
        params: { ...INITIALIZE_REQUEST.params, protocolVersion: asked },
      });
      const { result } = await client.find(byId("init"));
      assert.equal(result?.["protocolVersion"], given);
      assert.deepEqual(result?.["capabilities"], {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true },
        completions: {},
        logging: {},
      });
      assert.equal((result?.["serverInfo"] as { name: string }).name, "toolmux");
    });
  }

  it("is answered although no server ever answers", async () => {
    const mute = new ScriptedServer();
    mute.onInitialize = () => undefined;
    const { client } = setUpHub({ mute });
    client.send(INITIALIZE_REQUEST);
    await client.find(byId("init"));
  });

  it("without a version is refused as invalid params", async () => {
    const { client } = setUpHub({});
    client.send({ ...INITIALIZE_REQUEST, params: {} });
    assert.equal((await client.find(byId("init"))).error?.code, -32602);
  });

  it("starts every server once, however often it comes", async () => {
    const a = new ScriptedServer("x");
    const { client } = await ready({ a });
    client.send({ ...INITIALIZE_REQUEST, id: "again" });
    await client.find(byId("again"));
    assert.equal(a.transportCount, 1);
  });
});

describe("tools/list", () => {
  it("has the tools of every server that is up, and not those of one that is broken", async () => {
    const broken = new ScriptedServer("never");
    broken.onInitialize = () => '"error":{"code":-32603,"message":"no"}';
    const { client } = await ready({
      a: new ScriptedServer("x"),
      broken,
      c: new ScriptedServer("y"),
    });
    assert.deepEqual(namesOf(await client.find(byId("list"))), ["a__x", "c__y"]);
  });

  it("waits listWait at most; a server that comes later announces itself once", async () => {
    const late = new ScriptedServer("z");
    let release: () => void = () => {};
    late.onInitialize = (message) => {
      const answer = `{"jsonrpc":"2.0","id":${String(message.id)},"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`;
      release = () => late.newestPeer?.send(answer);
      return undefined;
    };
    const { client } = await ready({ a: new ScriptedServer("x"), late }, { hub: { listWait: 20 } });
    assert.deepEqual(namesOf(await client.find(byId("list"))), ["a__x"]);
    release();
    await client.find((message) => message.method === "notifications/tools/list_changed");
    client.send({ ...LIST, id: "second" });
    assert.deepEqual(namesOf(await client.find(byId("second"))), ["a__x", "late__z"]);
    const reported = client.messages.filter((message) => message.method !== undefined);
    assert.equal(reported.length, 1);
  });

  it("collects every page", async () => {
    const paged = new ScriptedServer();
    paged.onList = (message) => {
      const cursor = message.params?.["cursor"];
      if (cursor === undefined) return '"result":{"tools":[{"name":"a"}],"nextCursor":""}';
      return cursor === ""
        ? '"result":{"tools":[{"name":"b"}],"nextCursor":"2"}'
        : '"result":{"tools":[{"name":"c"}]}';
    };
    const { client } = await ready({ p: paged });
    assert.deepEqual(namesOf(await client.find(byId("list"))), ["p__a", "p__b", "p__c"]);
  });

  it("ends for a server that gives the same cursor for ever", async () => {
    const endless = new ScriptedServer();
    endless.onList = () => '"result":{"tools":[{"name":"a"}],"nextCursor":"again"}';
    const { client } = await ready({ e: endless });
    assert.deepEqual(namesOf(await client.find(byId("list"))), ["e__a"]);
  });

  it("refuses a cursor, because the hub gives none", async () => {
    const { client } = await ready({});
    client.send({ ...LIST, id: 2, params: { cursor: "x" } });
    assert.equal((await client.find(byId(2))).error?.code, -32602);
  });
});

describe("list_changed of a server", () => {
  it("leads to one notification when the list is another, and to none when it is not", async () => {
    const a = new ScriptedServer("x");
    const { client } = await ready({ a });
    const changed = JSON.stringify({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    a.newestPeer?.send(changed);
    await a.newestPeer?.until(
      () => a.newestPeer?.messages.filter((m) => m.method === "tools/list").length === 2,
    );
    a.tools.push('{"name":"y"}');
    a.newestPeer?.send(changed);
    await client.find((message) => message.method === "notifications/tools/list_changed");
    client.send({ ...LIST, id: 2 });
    assert.deepEqual(namesOf(await client.find(byId(2))), ["a__x", "a__y"]);
    assert.equal(client.messages.filter((message) => message.method !== undefined).length, 1);
  });
});

describe("a server that is stopped while it is listed again", () => {
  it("is not complained about", async () => {
    const a = new ScriptedServer("x");
    const { hub, events } = await ready({ a });
    a.onList = () => undefined;
    a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await a.newestPeer?.until(
      () => a.newestPeer?.messages.filter((m) => m.method === "tools/list").length === 2,
    );
    await hub.close();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(
      events.filter((event) => event.kind === "log"),
      [],
    );
  });
});

describe("a server that is being stopped", () => {
  it("is not started again by a call that comes meanwhile, which is told so", async () => {
    const a = new ScriptedServer("x");
    const connect = a.connect.bind(a);
    let release: () => void = () => {};
    const gate = new Promise<void>((resolve) => (release = resolve));
    a.connect = () => {
      const link = connect();
      const close = link.close.bind(link);
      link.close = () => gate.then(close);
      return link;
    };
    const { hub, client } = await ready({ a });
    const stopped = hub.stop("a");
    client.send(callRequest(1, "a__x"));
    assert.equal((await client.find(byId(1))).error?.data?.["code"], "serverStopped");
    release();
    await stopped;
    assert.equal(hub.status()[0]?.connections[0]?.state, "disconnected");
    assert.equal(a.transportCount, 1);
  });
});

describe("a call", () => {
  it("comes back with the client's id exactly as it was spelled, whatever its kind", async () => {
    const { client } = await ready({ a: new ScriptedServer("x") });
    const ids = [
      "0",
      "-1",
      "1",
      '"1"',
      "12345678901234567890",
      '""',
      '"\\u00e9 \\"q\\""',
      "1.0",
      "1e2",
    ];
    for (const id of ids) {
      client.send(`{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"a__x"}}`);
    }
    await client.until(() => client.received.length === ids.length + 2);
    for (const id of ids) {
      const mine = client.received.filter((text) => text.endsWith(`,"id":${id}}`));
      assert.equal(mine.length, 1, `${id} in ${client.received.join("\n")}`);
    }
  });

  it("reaches the server byte for byte but for id and name", async () => {
    const a = new ScriptedServer("x");
    let seen = "";
    a.onCall = (_, text) => {
      seen = text;
      return '"result":{}';
    };
    const { client } = await ready({ a });
    client.send(
      '{ "params" : {"arguments":{"n":1.0,"big":1234567890123456789,"z":1,"a":"\\u00e9"}, "x":null ,"name":"a__x"},"extra":[1e5],"method":"tools/call","jsonrpc":"2.0","id":"me"}',
    );
    await client.find(byId("me"));
    const expected =
      /^\{ "params" : \{"arguments":\{"n":1\.0,"big":1234567890123456789,"z":1,"a":"\\u00e9"\}, "x":null ,"name":"x"\},"extra":\[1e5\],"method":"tools\/call","jsonrpc":"2\.0","id":\d+\}$/;
    assert.match(seen, expected);
  });

  it("brings the server's result back byte for byte", async () => {
    const a = new ScriptedServer("x");
    const result = '{ "z":1.0,"a":1234567890123456789, "u":"\\u00e9\\ud83d","deep":{"id":3} }';
    a.onCall = () => `"result":${result}`;
    const { client } = await ready({ a });
    client.send(callRequest(5, "a__x"));
    await client.find(byId(5));
    assert.equal(client.received.at(-1), `{"jsonrpc":"2.0","result":${result},"id":5}`);
  });

  it("brings the server's error back with its code and data", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => '"error":{"code":-32099,"message":"odd","data":{"k":1.0}}';
    const { client } = await ready({ a });
    client.send(callRequest(5, "a__x"));
    await client.find(byId(5));
    assert.match(
      client.received.at(-1) ?? "",
      /"error":\{"code":-32099,"message":"odd","data":\{"k":1\.0\}\}/,
    );
  });

  for (const [what, params] of [
    ["no params", undefined],
    ["an array for params", []],
    ["no name", {}],
    ["a number for a name", { name: 7 }],
    ["an unknown tool", { name: "a__nothing" }],
    ["a string for arguments", { name: "a__x", arguments: "s" }],
  ] as const) {
    it(`with ${what} is refused as invalid params`, async () => {
      const { client } = await ready({ a: new ScriptedServer("x") });
      client.send({ jsonrpc: "2.0", id: 9, method: "tools/call", params });
      assert.equal((await client.find(byId(9))).error?.code, -32602);
    });
  }

  it("of a server that is down starts it once for all that come, and each is answered", async () => {
    const a = new ScriptedServer("x");
    const { client } = await ready({ a });
    await a.newestPeer?.transport.close();
    for (let i = 0; i < 20; i++) client.send(callRequest(i, "a__x", { i }));
    for (let i = 0; i < 20; i++) assert.ok((await client.find(byId(i))).result);
    assert.equal(a.transportCount, 2);
  });

  it("of a server that cannot be started again fails with the cause", async () => {
    const a = new ScriptedServer("x");
    const { client } = await ready({ a });
    a.onInitialize = () => '"error":{"code":1,"message":"out of order"}';
    await a.newestPeer?.transport.close();
    client.send(callRequest(1, "a__x"));
    const { error } = await client.find(byId(1));
    assert.match(error?.message ?? "", /server "a".*out of order/i);
    assert.equal(error?.data?.["step"], "handshake");
  });

  it("in flight when its server dies fails with a clear error, and calls of others do not", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { client } = await ready({ a, b: new ScriptedServer("y") });
    client.send(callRequest(1, "a__x"));
    await a.newestPeer?.find((message) => message.method === "tools/call");
    await a.newestPeer?.transport.close();
    const { result: lost } = await client.find(byId(1));
    assert.equal(lost?.["isError"], true);
    assert.deepEqual(lost["_meta"], { "toolmux/error": "connectionLost" });
    client.send(callRequest(2, "b__y"));
    assert.ok((await client.find(byId(2))).result);
  });

  it("answered twice reaches the client once", async () => {
    const a = new ScriptedServer("x");
    a.onCall = (message) => {
      a.newestPeer?.send({ jsonrpc: "2.0", id: message.id, result: { first: true } });
      return '"result":{"first":false}';
    };
    const { client } = await ready({ a });
    client.send(callRequest(1, "a__x"));
    client.send(callRequest(2, "a__x"));
    await client.find(byId(2));
    assert.deepEqual(
      client.messages.filter(byId(1)).map((m) => m.result),
      [{ first: true }],
    );
  });

  it("with an id that is still running is refused, and the first goes on", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { client } = await ready({ a });
    client.send(callRequest(1, "a__x"));
    client.send(callRequest(1, "a__x"));
    assert.equal((await client.find(byId(1))).error?.code, -32600);
    const first = await a.newestPeer?.find((message) => message.method === "tools/call");
    a.newestPeer?.send({ jsonrpc: "2.0", id: first?.id, result: { late: true } });
    await client.find((message) => message.result?.["late"] === true);
  });
});

describe("a call of a tool that no server has listed yet", () => {
  it("waits for the server whose prefix it has, although no list was asked for", async () => {
    const { client } = setUpHub({ a: new ScriptedServer("x"), b: new ScriptedServer("y") });
    client.send(callRequest(1, "a__x", { n: 1 }));
    assert.ok((await client.find(byId(1))).result);
  });

  it("does not wait for servers that cannot have it", async () => {
    const mute = new ScriptedServer();
    mute.onInitialize = () => undefined;
    const { client } = setUpHub({ mute, b: new ScriptedServer("y") });
    client.send(INITIALIZE_REQUEST);
    client.send(callRequest(1, "b__y"));
    assert.ok((await client.find(byId(1))).result);
    client.send(callRequest(2, "nobody__y"));
    assert.equal((await client.find(byId(2))).error?.code, -32602);
  });

  it("ends with the cause if its server does not come up", async () => {
    const broken = new ScriptedServer("x");
    broken.onInitialize = () => '"error":{"code":1,"message":"out of order"}';
    const { client } = await ready({ broken });
    client.send(callRequest(1, "broken__x"));
    const { error } = await client.find(byId(1));
    assert.match(error?.message ?? "", /out of order/);
    assert.equal(error?.data?.["server"], "broken");
  });

  it("ends as an unknown tool if its server comes up without it", async () => {
    const { client } = setUpHub({ a: new ScriptedServer("x") });
    client.send(callRequest(1, "a__z"));
    assert.equal((await client.find(byId(1))).error?.data?.["code"], "unknownTool");
  });

  it("is looked for in every server without a prefix, and ends with the first that has it", async () => {
    const mute = new ScriptedServer();
    mute.onInitialize = () => undefined;
    const servers = { mute: { prefix: "" }, b: { prefix: "" } };
    const { client } = setUpHub({ mute, b: new ScriptedServer("y") }, { servers });
    client.send(callRequest(1, "y"));
    assert.ok((await client.find(byId(1))).result);
  });

  it("can be cancelled, and is not called when its server comes up", async () => {
    const a = new ScriptedServer("x");
    const { client } = setUpHub({ a });
    client.send(callRequest(1, "a__x"));
    client.send({
      jsonrpc: "2.0",
      method: "notifications/cancelled",
      params: { requestId: 1 },
    });
    client.send({ ...LIST, id: 2 });
    await client.find(byId(2));
    assert.equal(client.messages.filter(byId(1)).length, 0);
    assert.equal(a.newestPeer?.messages.filter((m) => m.method === "tools/call").length, 0);
  });

  it("ends at the deadline with an answer that says so", async () => {
    const mute = new ScriptedServer();
    mute.onInitialize = () => undefined;
    const { client } = setUpHub({ mute }, { servers: { mute: { callTimeout: 30 } } });
    client.send(callRequest(1, "mute__x"));
    const { result } = await client.find(byId(1));
    assert.equal(result?.["isError"], true);
    assert.match(JSON.stringify(result), /was not called/);
  });
});

describe("progress", () => {
  const progress = (token: unknown, value: number): object => ({
    jsonrpc: "2.0",
    method: "notifications/progress",
    params: { progressToken: token, progress: value },
  });

  it("comes back under the client's token, before the result, and only what was asked for", async () => {
    const a = new ScriptedServer("x");
    a.onCall = (message) => {
      const meta = message.params?.["_meta"] as { progressToken: unknown } | undefined;
      a.newestPeer?.send(progress(message.id, 1));
      a.newestPeer?.send(progress("nobody's", 2));
      if (meta !== undefined) a.newestPeer?.send(progress(meta.progressToken, 3));
      return '"result":{}';
    };
    const { client } = await ready({ a });
    client.send(callRequest(1, "a__x", {}, { _meta: { progressToken: "mine \u00e9" } }));
    await client.find(byId(1));
    client.send(callRequest(2, "a__x"));
    await client.find(byId(2));
    const [, , ...rest] = client.messages;
    const kinds = rest.map((message) => message.params?.["progressToken"] ?? message.id);
    assert.deepEqual(kinds, ["mine \u00e9", "mine \u00e9", 1, 2]);
  });

  it("never carries one client's token to another, although both chose the same", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { client, connect } = await ready({ a });
    const second = connect();
    client.send(callRequest(1, "a__x", { of: 1 }, { _meta: { progressToken: 7 } }));
    second.send(callRequest(1, "a__x", { of: 2 }, { _meta: { progressToken: 7 } }));
    await a.newestPeer?.until(
      () => a.newestPeer?.messages.filter((m) => m.method === "tools/call").length === 2,
    );
    const calls = [1, 2].map((of) =>
      a.newestPeer?.messages.find((m) => (m.params?.["arguments"] as { of?: number })?.of === of),
    );
    const tokens = calls.map(
      (m) => (m?.params?.["_meta"] as { progressToken: number }).progressToken,
    );
    assert.notEqual(tokens[0], tokens[1]);
    a.newestPeer?.send(progress(tokens[1], 5));
    a.newestPeer?.send({ jsonrpc: "2.0", id: calls[0]?.id, result: {} });
    await client.find(byId(1));
    await second.find((message) => message.params?.["progress"] === 5);
    assert.equal(client.messages.filter((m) => m.method === "notifications/progress").length, 0);
  });
});

describe("cancelling", () => {
  const cancelled = (requestId: unknown): object => ({
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId, reason: "changed my mind" },
  });

  it("reaches the right server with that server's id, and the request is not answered any more", async () => {
    const a = new ScriptedServer("x");
    const b = new ScriptedServer("y");
    a.onCall = () => undefined;
    b.onCall = () => undefined;
    const { client } = await ready({ a, b });
    client.send(callRequest(1, "a__x"));
    client.send(callRequest("1", "b__y"));
    const theirs = await b.newestPeer?.find((message) => message.method === "tools/call");
    client.send(cancelled("1"));
    const reported = await b.newestPeer?.find(
      (message) => message.method === "notifications/cancelled",
    );
    assert.equal(reported?.params?.["requestId"], theirs?.id);
    assert.equal(reported?.params?.["reason"], "changed my mind");
    b.newestPeer?.send({ jsonrpc: "2.0", id: theirs?.id, result: {} });
    client.send({ jsonrpc: "2.0", id: "after", method: "ping" });
    await client.find(byId("after"));
    assert.equal(client.messages.filter(byId("1")).length, 0);
    assert.equal(
      a.newestPeer?.messages.filter((m) => m.method === "notifications/cancelled").length,
      0,
    );
  });

  it("a call that still waits for its server removes it: the server never hears of it", async () => {
    const a = new ScriptedServer("x");
    const { client } = await ready({ a });
    let release: () => void = () => {};
    const shake = a.onInitialize;
    a.onInitialize = (message, text) => {
      release = () =>
        a.newestPeer?.send(`{"jsonrpc":"2.0","id":${String(message.id)},${shake(message, text)}}`);
      return undefined;
    };
    await a.newestPeer?.transport.close();
    client.send(callRequest(1, "a__x"));
    client.send(callRequest(2, "a__x"));
    client.send(cancelled(1));
    client.send({ jsonrpc: "2.0", id: "after", method: "ping" });
    await client.find(byId("after"));
    await a.newestPeer?.find((message) => message.method === "initialize");
    release();
    await client.find(byId(2));
    assert.equal(a.newestPeer?.messages.filter((m) => m.method === "tools/call").length, 1);
    assert.equal(client.messages.filter(byId(1)).length, 0);
  });

  it("a list that waits leaves it without an answer", async () => {
    const mute = new ScriptedServer();
    mute.onInitialize = () => undefined;
    const { client } = setUpHub({ mute });
    client.send(INITIALIZE_REQUEST);
    client.send(LIST);
    client.send(cancelled("list"));
    client.send({ jsonrpc: "2.0", id: "after", method: "ping" });
    await client.find(byId("after"));
    assert.equal(client.messages.filter(byId("list")).length, 0);
  });

  it("happens to every call of a client that leaves, and to no call of another", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { client, connect } = await ready({ a });
    const second = connect();
    client.send(callRequest(1, "a__x"));
    second.send(callRequest(1, "a__x", { keep: true }));
    await a.newestPeer?.until(
      () => a.newestPeer?.messages.filter((m) => m.method === "tools/call").length === 2,
    );
    await client.transport.close();
    const reported = await a.newestPeer?.find(
      (message) => message.method === "notifications/cancelled",
    );
    const kept = a.newestPeer?.messages.find((m) => JSON.stringify(m).includes("keep"));
    assert.notEqual(reported?.params?.["requestId"], kept?.id);
    a.newestPeer?.send({ jsonrpc: "2.0", id: kept?.id, result: { ok: 1 } });
    assert.deepEqual((await second.find(byId(1))).result, { ok: 1 });
  });
});

describe("a deadline", () => {
  it("gives the model an answer to act on and tells the server", async () => {
    const a = new ScriptedServer("x");
    a.tools = ['{"name":"x","annotations":{"readOnlyHint":true}}'];
    a.onCall = () => undefined;
    const { client } = await ready({ a }, { servers: { a: { callTimeout: 30 } } });
    client.send(callRequest(1, "a__x"));
    const { result } = await client.find(byId(1));
    assert.equal(result?.["isError"], true);
    const [{ text }] = result?.["content"] as [{ text: string }];
    assert.match(text, /Tool "x" of server "a" did not finish within 0\.03 seconds/);
    assert.match(text, /only reads/);
    const sent = await a.newestPeer?.find((message) => message.method === "tools/call");
    const reported = await a.newestPeer?.find(
      (message) => message.method === "notifications/cancelled",
    );
    assert.equal(reported?.params?.["requestId"], sent?.id);
  });

  it("of one tool comes from tools.timeout, by its remote name", async () => {
    const a = new ScriptedServer("x", "y");
    a.onCall = () => undefined;
    const tools = { allow: undefined, deny: [], rename: {}, timeout: { x: 30 } };
    const { client } = await ready({ a }, { servers: { a: { tools } } });
    client.send(callRequest("y", "a__y"));
    client.send(callRequest("x", "a__x"));
    assert.equal((await client.find(byId("x"))).result?.["isError"], true);
    assert.equal(client.messages.filter(byId("y")).length, 0);
  });

  it("is pushed back by progress, up to the total", async () => {
    const a = new ScriptedServer("x");
    let beats = 0;
    a.onCall = (message) => {
      const beat = setInterval(() => {
        beats++;
        a.newestPeer?.send({
          jsonrpc: "2.0",
          method: "notifications/progress",
          params: { progressToken: message.id, progress: beats },
        });
      }, 20);
      beat.unref();
      return undefined;
    };
    const limits = { callTimeout: 100, maxCallTimeout: 400 };
    const { client } = await ready({ a }, { servers: { a: limits } });
    client.send(callRequest(1, "a__x"));
    const { result } = await client.find(byId(1));
    assert.ok(beats > 100 / 20, `${beats} beats`);
    assert.match(JSON.stringify(result), /within 0\.4 seconds in all/);
  });
});

describe("malformed input", () => {
  for (const [what, text, code] of [
    ["text that is no JSON", "hello", -32700],
    ["a number", "42", -32600],
    ["half a message", '{"jsonrpc":"2.0"', -32700],
    ["no version", '{"id":1,"method":"ping"}', -32600],
    ["an id of null", '{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600],
    ["an object for an id", '{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600],
    ["neither method nor result", '{"jsonrpc":"2.0","id":1}', -32600],
    ["an unknown method", '{"jsonrpc":"2.0","id":1,"method":"nothing/here"}', -32601],
    ["a batch where there are none", '[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600],
  ] as const) {
    it(`such as ${what} is answered with ${code}, and the hub lives on`, async () => {
      const { client } = await ready({});
      client.send(text);
      assert.equal((await client.find((message) => message.error !== undefined)).error?.code, code);
      client.send({ jsonrpc: "2.0", id: "after", method: "ping" });
      await client.find(byId("after"));
    });
  }

  for (const text of [
    '{"jsonrpc":"2.0","id":77,"result":{}}',
    '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    '{"jsonrpc":"2.0","method":"notifications/unknown"}',
    '{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}',
  ]) {
    it(`such as ${text} is passed over in silence`, async () => {
      const { client } = await ready({});
      client.send(text);
      client.send({ jsonrpc: "2.0", id: "after", method: "ping" });
      await client.find(byId("after"));
      assert.equal(client.received.length, 3);
    });
  }
});

describe("a batch", () => {
  const OLD = {
    ...INITIALIZE_REQUEST,
    params: { ...INITIALIZE_REQUEST.params, protocolVersion: "2025-03-26" },
  };

  it("is answered with one array where 2025-03-26 was negotiated", async () => {
    const { client } = setUpHub({ a: new ScriptedServer("x") });
    client.send(OLD);
    client.send(LIST);
    await client.find(byId("list"));
    const items = [
      callRequest(1, "a__x"),
      { jsonrpc: "2.0", id: 2, method: "ping" },
      callRequest(3, "none"),
      7,
    ];
    const note = { jsonrpc: "2.0", method: "notifications/initialized" };
    client.send([...items, note]);
    await client.until(() => client.received.length === 3);
    const answers = JSON.parse(client.received[2] ?? "") as Json[];
    const summary = answers.map((answer) => [answer.id ?? null, answer.error?.code ?? "ok"]);
    assert.deepEqual(
      summary.sort((a, b) => String(a[0]).localeCompare(String(b[0]))),
      [
        [1, "ok"],
        [2, "ok"],
        [3, -32602],
        [null, -32600],
      ],
    );
  });

  it("of notifications is not answered", async () => {
    const { client } = setUpHub({});
    client.send(OLD);
    client.send([{ jsonrpc: "2.0", method: "notifications/initialized" }]);
    client.send({ jsonrpc: "2.0", id: "after", method: "ping" });
    await client.find(byId("after"));
    assert.equal(client.received.length, 2);
  });
});

describe("a server that asks", () => {
  it("for ping gets an answer, and for what the hub cannot do yet a refusal", async () => {
    const a = new ScriptedServer("x");
    await ready({ a });
    a.newestPeer?.send({ jsonrpc: "2.0", id: "p", method: "ping" });
    a.newestPeer?.send({ jsonrpc: "2.0", id: 1, method: "sampling/createMessage", params: {} });
    assert.deepEqual((await a.newestPeer?.find(byId("p")))?.result, {});
    assert.equal((await a.newestPeer?.find((m) => m.error !== undefined))?.error?.code, -32601);
  });
});
