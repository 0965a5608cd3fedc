import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  sendRequest,
  callTool,
  initialize,
  type Json,
  listToolNames,
  ScriptedServer,
  type Servers,
  setUpHub,
} from "../fixtures/memory-hub.ts";

const APP = "ui://clock/view.html";
const OWN = "ui://toolmux/b/clock/view.html";
const RULES = { allow: undefined, deny: [], rename: {}, timeout: {} };

/** A server with a user interface and the tool that this calls by its bare name. */
function appServer(...names: string[]): ScriptedServer {
  const script = new ScriptedServer(...names);
  script.listings = { resources: [{ uri: APP, name: "view" }] };
  script.handlers = {
    "resources/read": ({ params }) =>
      `"result":{"contents":[{"uri":${JSON.stringify(params?.["uri"])},"text":"<p>"}]}`,
  };
  return script;
}

const callsOf = (script: ScriptedServer): unknown[] =>
  script.messagesOf("tools/call").map(({ params }) => params?.["name"]);

/** Two servers that have the same user interface, and a client that has listed their tools. */
async function begin(a: ScriptedServer, b: ScriptedServer, servers: Servers = {}) {
  const { client, connect } = setUpHub({ a, b }, { servers });
  await initialize(client);
  const names = await listToolNames(client);
  const read = (uri: string): Promise<Json> => sendRequest(client, "resources/read", { uri });
  return { a, b, client, connect, names, read, called: () => [a, b].map(callsOf) };
}

const beginTwo = () => begin(appServer("get-time"), appServer("get-time"));

describe("a tool called by the name that its server gives it", () => {
  it("is that of the only server that has one", async () => {
    const other = new ScriptedServer("other");
    const { client, names, called } = await begin(appServer("get-time"), other);
    assert.deepEqual(names, ["a__get-time", "b__other"]);
    const { result } = await callTool(client, "get-time", { zone: "UTC" });
    assert.deepEqual(result?.["echo"], { name: "get-time", arguments: { zone: "UTC" } });
    assert.deepEqual(called(), [["get-time"], []]);
  });

  it("is found under its own name also where the manifest renames it", async () => {
    const tools = { ...RULES, rename: { "get-time": "now" } };
    const [a, b] = [appServer("get-time"), new ScriptedServer()];
    const { client, names, called } = await begin(a, b, { a: { tools } });
    assert.deepEqual(names, ["a__now"]);
    assert.equal((await callTool(client, "get-time")).error, undefined);
    assert.deepEqual(called(), [["get-time"], []]);
  });

  it("is refused with the exposed names if several servers have one and nothing tells which is meant", async () => {
    const { client, called } = await beginTwo();
    const { error } = await callTool(client, "get-time");
    assert.equal(error?.code, -32602);
    for (const name of ["a__get-time", "b__get-time"]) assert.ok(error.message.includes(name));
    assert.deepEqual(called(), [[], []]);
  });

  it("is that of the server whose user interface the client was given, if several have one, unless it was given both", async () => {
    const { client, called, read } = await beginTwo();
    await read(OWN);
    assert.equal((await callTool(client, "get-time")).error, undefined);
    assert.deepEqual(called(), [[], ["get-time"]]);
    await read(APP);
    assert.equal((await callTool(client, "get-time")).error?.code, -32602);
  });

  it("is not settled by a user interface that another client was given, nor by one whose read failed", async () => {
    const { a, client, connect, read } = await beginTwo();
    const other = connect();
    await initialize(other);
    await listToolNames(other);
    await sendRequest(other, "resources/read", { uri: APP });
    a.handlers = { "resources/read": () => '"error":{"code":-32603,"message":"no"}' };
    await read(APP);
    assert.equal((await callTool(client, "get-time")).error?.code, -32602);
  });

  it("is never one that the rules of the manifest hide", async () => {
    const tools = { ...RULES, deny: ["rm"] };
    const [a, b] = [appServer("get-time", "rm"), appServer("rm")];
    const { client, called, read } = await begin(a, b, { a: { tools }, b: { tools } });
    await read(APP);
    assert.equal((await callTool(client, "rm")).error?.code, -32602);
    assert.deepEqual(called(), [[], []]);
  });

  it("gives way to a tool that is exposed under that very name", async () => {
    const [a, b] = [appServer("get-time"), new ScriptedServer("get-time")];
    const { client, called, read } = await begin(a, b, { b: { prefix: "" } });
    await read(APP);
    assert.equal((await callTool(client, "get-time")).error, undefined);
    assert.deepEqual(called(), [[], ["get-time"]]);
  });
});

describe("a URI in a result", () => {
  const format = (uri: string, escaped = uri): string =>
    `{"content":[{"type":"resource_link","name":"n","uri":"${uri}"},{"type":"resource","resource":{"uri":"${escaped}","text":"${APP}"}},{"type":"text","text":"${APP}"}],"_meta":{"ui":{"resourceUri":"${uri}","n":1.0}}}`;

  it("is the one under which the client can read what it names, and all else is as the server wrote it", async () => {
    const [a, b] = [appServer("x"), appServer("x")];
    const written = format(APP, "ui:\\/\\/clock\\/view.html");
    a.onCall = b.onCall = () => `"result":${written}`;
    const { client } = await begin(a, b);
    await callTool(client, "a__x");
    assert.ok(client.received.at(-1)?.includes(written));
    await callTool(client, "b__x");
    assert.ok(client.received.at(-1)?.includes(format(OWN)), client.received.at(-1) ?? "");
  });

  it("is renamed in prompts and in what is read, too", async () => {
    const [a, b] = [appServer("x"), appServer("x")];
    const content = { type: "resource", resource: { uri: APP, text: "t" } };
    const messages = [content, [content]].map((one) => ({ role: "user", content: one }));
    for (const script of [a, b]) {
      script.listings = { ...script.listings, prompts: [{ name: "p" }] };
      const get = (): string => `"result":${JSON.stringify({ messages })}`;
      script.handlers = { ...script.handlers, "prompts/get": get };
    }
    const { client, read } = await begin(a, b);
    const uris = async (name: string): Promise<(string | undefined)[]> => {
      await sendRequest(client, "prompts/get", { name });
      const found = client.received.at(-1)?.matchAll(/"uri":"([^"]*)"/g) ?? [];
      return [...found].map(([, uri]) => uri);
    };
    assert.deepEqual(await uris("a__p"), [APP, APP]);
    assert.deepEqual(await uris("b__p"), [OWN, OWN]);
    assert.deepEqual((await read(OWN)).result?.["contents"], [{ uri: OWN, text: "<p>" }]);
  });
});
