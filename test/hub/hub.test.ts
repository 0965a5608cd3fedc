import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  callRequest,
  callTool,
  INITIALIZE_REQUEST,
  isResponseTo,
  type Json,
  Latch,
  type Peer,
  ScriptedServer,
  sendRequest,
  type Servers,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { cancel, codeOf, isOf, notify, post, respond } from "../fixtures/peer-messages.ts";

const CALL = "tools/call";
const CANCELLED = "notifications/cancelled";
const PROGRESS = "notifications/progress";
const LIST = { jsonrpc: "2.0", id: "list", method: "tools/list" };
const SILENCE = (): undefined => undefined;

/** A server that never answers `initialize`. */
const mute = (): ScriptedServer => Object.assign(new ScriptedServer(), { onInitialize: SILENCE });

const initializeRequest = (protocolVersion: string): object => ({
  ...INITIALIZE_REQUEST,
  params: { ...INITIALIZE_REQUEST.params, protocolVersion },
});

async function ready(
  scripts: Record<string, ScriptedServer>,
  settings?: Parameters<typeof setUpHub>[1],
): Promise<ReturnType<typeof setUpHub>> {
  const made = setUpHub(scripts, settings);
  made.client.send(INITIALIZE_REQUEST);
  made.client.send(LIST);
  await made.client.find(isResponseTo("list"));
  return made;
}

/** The same with one server, `a`, with these parts; `call` calls its tool. */
async function readyOne(script: Partial<ScriptedServer> = {}, entry: Servers[string] = {}) {
  const a = Object.assign(new ScriptedServer("x"), script);
  const setup = await ready({ a }, { servers: { a: entry } });
  return {
    ...setup,
    a,
    call: (args?: object): Promise<Json> => callTool(setup.client, "a__x", args),
    /** Waits until the server has got so many calls. */
    called: async (count = 1): Promise<Json[]> => {
      await a.newestPeer?.until(() => a.messagesOf(CALL).length === count);
      return a.messagesOf(CALL);
    },
  };
}

/** Waits until the hub has handled what the client has sent. */
const handled = (client: Peer): Promise<Json> => sendRequest(client, "ping");

async function listOf(client: Peer): Promise<string[]> {
  const { result } = await client.find(isResponseTo("list"));
  return (result?.["tools"] as { name: string }[]).map(({ name }) => name);
}

describe("initialize", () => {
  for (const [asked, given] of [
    ["2024-10-07", "2024-10-07"],
    ["2024-11-05", "2024-11-05"],
    ["2025-03-26", "2025-03-26"],
    ["2025-06-18", "2025-06-18"],
    ["2025-11-25", "2025-11-25"],
    ["2099-01-01", "2025-11-25"],
    ["2026-07-28", "2025-11-25"],
  ] as const) {
    it(`answers ${given} to ${asked}`, async () => {
      const { client } = setUpHub({});
      client.send(initializeRequest(asked));
      const { result } = await client.find(isResponseTo("init"));
      const { protocolVersion, capabilities, serverInfo } = result ?? {};
      assert.equal(protocolVersion, given);
      const listChanged = { listChanged: true };
      const lists = { tools: listChanged, prompts: listChanged, resources: listChanged };
      assert.deepEqual(capabilities, { ...lists, completions: {}, logging: {} });
      assert.equal((serverInfo as { name: string }).name, "toolmux");
    });
  }

  it("without a version is refused as invalid params", async () => {
    const { client } = setUpHub({});
    client.send({ ...INITIALIZE_REQUEST, params: {} });
    assert.equal((await client.find(isResponseTo("init"))).error?.code, -32602);
  });

  it("starts every server once, however often it comes", async () => {
    const { a, client } = await readyOne();
    client.send({ ...INITIALIZE_REQUEST, id: "again" });
    await client.find(isResponseTo("again"));
    assert.equal(a.transportCount, 1);
  });
});

describe("tools/list", () => {
  it("has the tools of every server that is up, and not those of one that is broken", async () => {
    const broken = new ScriptedServer("never");
    broken.onInitialize = () => '"error":{"code":-32603,"message":"no"}';
    const [a, c] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { client } = await ready({ a, broken, c });
    assert.deepEqual(await listOf(client), ["a__x", "c__y"]);
  });

  it("collects every page, and ends for a server that gives the same cursor for ever", async () => {
    const pages = ['"a"}],"nextCursor":""', '"b"}],"nextCursor":"2"', '"c"}]'];
    const [paged, endless] = [new ScriptedServer(), new ScriptedServer()];
    paged.onList = ({ params }) => {
      const at = ["", "2"].indexOf(String(params?.["cursor"]));
      return `"result":{"tools":[{"name":${pages[at + 1]}}`;
    };
    endless.onList = () => '"result":{"tools":[{"name":"a"}],"nextCursor":"again"}';
    const { client } = await ready({ e: endless, p: paged });
    assert.deepEqual(await listOf(client), ["e__a", "p__a", "p__b", "p__c"]);
  });

  it("refuses a cursor, because the hub gives none", async () => {
    const { client } = await ready({});
    assert.equal((await sendRequest(client, "tools/list", { cursor: "x" })).error?.code, -32602);
  });
});

describe("a call", () => {
  it("comes back with the client's id exactly as it was spelled, whatever its kind", async () => {
    const { client } = await readyOne();
    const texts = ['"1"', '""', '"\\u00e9 \\"q\\""'];
    const ids = [...texts, "0", "-1", "1", "12345678901234567890", "1.0", "1e2"];
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
    let seen = "";
    const onCall = (_: Json, text: string): string => {
      seen = text;
      return '"result":{}';
    };
    const { client } = await readyOne({ onCall });
    const params =
      '"params" : {"arguments":{"n":1.0,"big":1234567890123456789,"z":1,"a":"\\u00e9"}, "x":null ,"name":"NAME"}';
    const message = `{ ${params},"extra":[1e5],"method":"tools/call","jsonrpc":"2.0","id":`;
    client.send(`${message.replace("NAME", "a__x")}"me"}`);
    await client.find(isResponseTo("me"));
    assert.equal(seen.replace(/\d+\}$/, ""), message.replace("NAME", "x"));
  });

  for (const outcome of [
    '"result":{ "z":1.0,"a":1234567890123456789, "u":"\\u00e9\\ud83d","deep":{"id":3} }',
    '"error":{"code":-32099,"message":"odd","data":{"k":1.0}}',
  ]) {
    it(`brings back byte for byte ${outcome}`, async () => {
      const { client } = await readyOne({ onCall: () => outcome });
      client.send(callRequest(5, "a__x"));
      await client.find(isResponseTo(5));
      assert.equal(client.received.at(-1), `{"jsonrpc":"2.0",${outcome},"id":5}`);
    });
  }

  for (const [what, params] of [
    ["no params", undefined],
    ["an array for params", []],
    ["no name", {}],
    ["a number for a name", { name: 7 }],
    ["an unknown tool", { name: "a__nothing" }],
    ["a string for arguments", { name: "a__x", arguments: "s" }],
  ] as const) {
    it(`with ${what} is refused as invalid params`, async () => {
      const { client } = await readyOne();
      assert.equal((await sendRequest(client, CALL, params)).error?.code, -32602);
    });
  }

  it("in flight when its server dies fails with a clear error, and calls of others do not", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    a.onCall = SILENCE;
    const { client } = await ready({ a, b });
    client.send(callRequest(1, "a__x"));
    await a.newestPeer?.find(isOf(CALL));
    await a.newestPeer?.transport.close();
    const { result: lost } = await client.find(isResponseTo(1));
    assert.equal(lost?.["isError"], true);
    assert.deepEqual(lost["_meta"], { "toolmux/error": "connectionLost" });
    assert.ok((await callTool(client, "b__y")).result);
  });

  it("with an id that is still running is refused, and the first goes on", async () => {
    const { a, client, called } = await readyOne({ onCall: SILENCE });
    for (let i = 0; i < 2; i++) client.send(callRequest(1, "a__x"));
    assert.equal((await client.find(isResponseTo(1))).error?.code, -32600);
    const [first] = await called();
    respond(a.newestPeer, first?.id, { late: true });
    await client.find(({ result }) => result?.["late"] === true);
  });
});

describe("a call of a tool that no server has listed yet", () => {
  it("waits for the server whose prefix it has, although no list was asked for", async () => {
    const { client } = setUpHub({ a: new ScriptedServer("x"), b: new ScriptedServer("y") });
    assert.ok((await callTool(client, "a__x", { n: 1 })).result);
  });

  it("does not wait for servers that cannot have it", async () => {
    const { client } = setUpHub({ mute: mute(), b: new ScriptedServer("y") });
    client.send(INITIALIZE_REQUEST);
    assert.ok((await callTool(client, "b__y")).result);
    assert.equal((await callTool(client, "nobody__y")).error?.code, -32602);
  });

  it("ends with the cause if its server does not come up", async () => {
    const broken = new ScriptedServer("x");
    broken.onInitialize = () => '"error":{"code":1,"message":"out of order"}';
    const { client } = await ready({ broken });
    const { error } = await callTool(client, "broken__x");
    assert.match(error?.message ?? "", /out of order/);
    assert.equal(error?.data?.["server"], "broken");
  });

  it("ends as an unknown tool if its server comes up without it", async () => {
    const { client } = setUpHub({ a: new ScriptedServer("x") });
    assert.equal(codeOf(await callTool(client, "a__z")), "unknownTool");
  });

  it("is looked for in every server without a prefix, and ends with the first that has it", async () => {
    const servers = { mute: { prefix: "" }, b: { prefix: "" } };
    const { client } = setUpHub({ mute: mute(), b: new ScriptedServer("y") }, { servers });
    assert.ok((await callTool(client, "y")).result);
  });

  it("can be cancelled, and is not called when its server comes up", async () => {
    const a = new ScriptedServer("x");
    const { client } = setUpHub({ a });
    client.send(callRequest(1, "a__x"));
    cancel(client, 1);
    await sendRequest(client, "tools/list");
    assert.ok(!client.messages.some(isResponseTo(1)));
    assert.deepEqual(a.messagesOf(CALL), []);
  });

  it("ends at the deadline with an answer that says so", async () => {
    const { client } = setUpHub({ mute: mute() }, { servers: { mute: { callTimeout: 30 } } });
    const { result } = await callTool(client, "mute__x");
    assert.equal(result?.["isError"], true);
    assert.match(JSON.stringify(result), /was not called/);
  });
});

describe("progress", () => {
  it("comes back under the client's token, before the result, and only what was asked for", async () => {
    const { a, client } = await readyOne();
    a.onCall = ({ id, params }) => {
      const meta = params?.["_meta"] as { progressToken: unknown } | undefined;
      for (const [n, progressToken] of [id, "nobody's", meta?.progressToken].entries())
        notify(a.newestPeer, PROGRESS, { progressToken, progress: n + 1 });
      return '"result":{}';
    };
    client.send(callRequest(1, "a__x", {}, { _meta: { progressToken: "mine \u00e9" } }));
    await client.find(isResponseTo(1));
    client.send(callRequest(2, "a__x"));
    await client.find(isResponseTo(2));
    const kinds = client.messages.slice(2).map(({ id, params }) => params?.["progressToken"] ?? id);
    assert.deepEqual(kinds, ["mine \u00e9", "mine \u00e9", 1, 2]);
  });
});

describe("cancelling", () => {
  it("reaches the right server with that server's id, and the request is not answered any more", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    a.onCall = b.onCall = SILENCE;
    const { client } = await ready({ a, b });
    client.send(callRequest(1, "a__x"));
    client.send(callRequest("1", "b__y"));
    const theirs = await b.newestPeer?.find(isOf(CALL));
    cancel(client, "1", "changed my mind");
    const reported = await b.newestPeer?.find(isOf(CANCELLED));
    assert.deepEqual(reported?.params, { requestId: theirs?.id, reason: "changed my mind" });
    respond(b.newestPeer, theirs?.id, {});
    await handled(client);
    assert.ok(!client.messages.some(isResponseTo("1")));
    assert.deepEqual(a.messagesOf(CANCELLED), []);
  });

  it("a call that still waits for its server removes it: the server never hears of it", async () => {
    const { a, client } = await readyOne();
    const latch = new Latch();
    a.onOpen = latch.wait;
    await a.newestPeer?.transport.close();
    for (const id of [1, 2]) client.send(callRequest(id, "a__x"));
    cancel(client, 1);
    await handled(client);
    latch.open();
    await client.find(isResponseTo(2));
    assert.equal(a.messagesOf(CALL).length, 1);
    assert.ok(!client.messages.some(isResponseTo(1)));
  });

  it("a list that waits leaves it without an answer, whereas initialize waits for no server", async () => {
    const { client } = setUpHub({ mute: mute() });
    client.send(INITIALIZE_REQUEST);
    await client.find(isResponseTo("init"));
    client.send(LIST);
    cancel(client, "list");
    await handled(client);
    assert.ok(!client.messages.some(isResponseTo("list")));
  });

  it("happens to every call of a client that leaves, and to no call of another", async () => {
    const { a, client, connect, called } = await readyOne({ onCall: SILENCE });
    const second = connect();
    client.send(callRequest(1, "a__x"));
    second.send(callRequest(1, "a__x", { keep: true }));
    const calls = await called(2);
    await client.transport.close();
    const reported = await a.newestPeer?.find(isOf(CANCELLED));
    const kept = calls.find((message) => JSON.stringify(message).includes("keep"));
    assert.notEqual(reported?.params?.["requestId"], kept?.id);
    respond(a.newestPeer, kept?.id, { ok: 1 });
    assert.deepEqual((await second.find(isResponseTo(1))).result, { ok: 1 });
  });
});

describe("a deadline", () => {
  it("gives the model an answer to act on and tells the server", async () => {
    const tools = ['{"name":"x","annotations":{"readOnlyHint":true}}'];
    const { a, call } = await readyOne({ tools, onCall: SILENCE }, { callTimeout: 30 });
    const { result } = await call();
    assert.equal(result?.["isError"], true);
    const [{ text }] = result?.["content"] as [{ text: string }];
    assert.match(text, /Tool "x" of server "a" did not finish within 0\.03 seconds/);
    assert.match(text, /only reads/);
    const reported = await a.newestPeer?.find(isOf(CANCELLED));
    assert.equal(reported?.params?.["requestId"], a.messagesOf(CALL)[0]?.id);
  });

  it("of one tool comes from tools.timeout, by its remote name", async () => {
    const parts = { tools: new ScriptedServer("x", "y").tools, onCall: SILENCE };
    const tools = { allow: undefined, deny: [], rename: {}, timeout: { x: 30 } };
    const { client, call } = await readyOne(parts, { tools });
    client.send(callRequest("y", "a__y"));
    assert.equal((await call()).result?.["isError"], true);
    assert.ok(!client.messages.some(isResponseTo("y")));
  });

  it("is pushed back by progress, up to the total", async () => {
    const { a, call } = await readyOne({}, { callTimeout: 100, maxCallTimeout: 400 });
    let progress = 0;
    a.onCall = ({ id }) => {
      const beat = (): void =>
        notify(a.newestPeer, PROGRESS, { progressToken: id, progress: progress++ });
      setInterval(beat, 20).unref();
      return undefined;
    };
    const { result } = await call();
    assert.ok(progress > 100 / 20, `${progress} beats`);
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
      assert.equal((await client.find(({ error }) => error !== undefined)).error?.code, code);
      await handled(client);
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
      await handled(client);
      assert.equal(client.received.length, 3);
    });
  }
});

describe("a batch", () => {
  const NOTE = { jsonrpc: "2.0", method: "notifications/initialized" };

  it("is answered with one array where 2025-03-26 was negotiated", async () => {
    const { client } = setUpHub({ a: new ScriptedServer("x") });
    client.send(initializeRequest("2025-03-26"));
    client.send(LIST);
    await client.find(isResponseTo("list"));
    const ping = { jsonrpc: "2.0", id: 2, method: "ping" };
    client.send([callRequest(1, "a__x"), ping, callRequest(3, "none"), 7, NOTE]);
    await client.until(() => client.received.length === 3);
    const answers = JSON.parse(client.received[2] ?? "") as Json[];
    const summary = answers.map(({ id, error }) => `${String(id ?? null)} ${error?.code ?? "ok"}`);
    assert.deepEqual(summary.toSorted(), ["1 ok", "2 ok", "3 -32602", "null -32600"]);
  });

  it("of notifications is not answered", async () => {
    const { client } = setUpHub({});
    client.send(initializeRequest("2025-03-26"));
    client.send([NOTE]);
    await handled(client);
    assert.equal(client.received.length, 2);
  });
});

describe("a server that asks", () => {
  it("for ping gets an answer, and for what the hub cannot do yet a refusal", async () => {
    const { a } = await readyOne();
    post(a.newestPeer, "p", "ping");
    post(a.newestPeer, 1, "sampling/createMessage", {});
    assert.deepEqual((await a.newestPeer?.find(isResponseTo("p")))?.result, {});
    assert.equal((await a.newestPeer?.find(isResponseTo(1)))?.error?.code, -32601);
  });
});
