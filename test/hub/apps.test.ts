import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  sendRequest,
  callTool,
  initialize,
  listToolNames,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";

const APP = "ui://clock/view.html";

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

const called = (script: ScriptedServer): unknown[] =>
  script.messagesOf("tools/call").map(({ params }) => params?.["name"]);

describe("a tool called by the name that its server gives it", () => {
  it("is that of the only server that has one", async () => {
    const [a, b] = [appServer("get-time"), new ScriptedServer("other")];
    const { client } = setUpHub({ a, b });
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["a__get-time", "b__other"]);
    const { result } = await callTool(client, "get-time", { zone: "UTC" });
    assert.deepEqual(result?.["echo"], { name: "get-time", arguments: { zone: "UTC" } });
    assert.deepEqual(called(a), ["get-time"]);
  });

  it("is found under its own name also where the manifest renames it", async () => {
    const a = appServer("get-time");
    const tools = { allow: undefined, deny: [], rename: { "get-time": "now" }, timeout: {} };
    const { client } = setUpHub({ a }, { servers: { a: { tools } } });
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["a__now"]);
    assert.equal((await callTool(client, "get-time")).error, undefined);
    assert.deepEqual(called(a), ["get-time"]);
  });

  it("is refused with the exposed names if several servers have one and nothing tells which is meant", async () => {
    const [a, b] = [appServer("get-time"), appServer("get-time")];
    const { client } = setUpHub({ a, b });
    await initialize(client);
    await listToolNames(client);
    const { error } = await callTool(client, "get-time");
    assert.equal(error?.code, -32602);
    for (const name of ["a__get-time", "b__get-time"]) assert.ok(error.message.includes(name));
    assert.deepEqual([...called(a), ...called(b)], []);
  });

  it("is that of the server whose user interface the client was given, if several have one", async () => {
    const [a, b] = [appServer("get-time"), appServer("get-time")];
    const { client } = setUpHub({ a, b });
    await initialize(client);
    await listToolNames(client);
    await sendRequest(client, "resources/read", { uri: "ui://toolmux/b/clock/view.html" });
    assert.equal((await callTool(client, "get-time")).error, undefined);
    assert.deepEqual([called(a), called(b)], [[], ["get-time"]]);
  });

  it("is refused again once the client was given user interfaces of both servers", async () => {
    const [a, b] = [appServer("get-time"), appServer("get-time")];
    const { client } = setUpHub({ a, b });
    await initialize(client);
    await listToolNames(client);
    for (const uri of [APP, "ui://toolmux/b/clock/view.html"]) {
      await sendRequest(client, "resources/read", { uri });
    }
    assert.equal((await callTool(client, "get-time")).error?.code, -32602);
  });

  it("is not settled by a user interface that another client was given, nor by one whose read failed", async () => {
    const [a, b] = [appServer("get-time"), appServer("get-time")];
    const { client, connect } = setUpHub({ a, b });
    const other = connect();
    for (const peer of [client, other]) {
      await initialize(peer);
      await listToolNames(peer);
    }
    await sendRequest(other, "resources/read", { uri: APP });
    a.handlers = { "resources/read": () => '"error":{"code":-32603,"message":"no"}' };
    await sendRequest(client, "resources/read", { uri: APP });
    assert.equal((await callTool(client, "get-time")).error?.code, -32602);
  });

  it("is never one that the rules of the manifest hide", async () => {
    const [a, b] = [appServer("get-time", "rm"), appServer("rm")];
    const tools = { allow: undefined, deny: ["rm"], rename: {}, timeout: {} };
    const { client } = setUpHub({ a, b }, { servers: { a: { tools }, b: { tools } } });
    await initialize(client);
    await listToolNames(client);
    await sendRequest(client, "resources/read", { uri: APP });
    assert.equal((await callTool(client, "rm")).error?.code, -32602);
    assert.deepEqual([...called(a), ...called(b)], []);
  });

  it("gives way to a tool that is exposed under that very name", async () => {
    const [a, b] = [appServer("get-time"), new ScriptedServer("get-time")];
    const { client } = setUpHub({ a, b }, { servers: { b: { prefix: "" } } });
    await initialize(client);
    await listToolNames(client);
    await sendRequest(client, "resources/read", { uri: APP });
    assert.equal((await callTool(client, "get-time")).error, undefined);
    assert.deepEqual([called(a), called(b)], [[], ["get-time"]]);
  });
});

describe("a URI in a result", () => {
  const OWN = "ui://toolmux/b/clock/view.html";
  const RESULT = `{"content":[{"type":"resource_link","name":"n","uri":"${APP}"},{"type":"resource","resource":{"uri":"ui:\\/\\/clock\\/view.html","text":"${APP}"}},{"type":"text","text":"${APP}"}],"_meta":{"ui":{"resourceUri":"${APP}","n":1.0}}}`;
  const NAMED = `{"content":[{"type":"resource_link","name":"n","uri":"${OWN}"},{"type":"resource","resource":{"uri":"${OWN}","text":"${APP}"}},{"type":"text","text":"${APP}"}],"_meta":{"ui":{"resourceUri":"${OWN}","n":1.0}}}`;

  it("is the one under which the client can read what it names, and all else is as the server wrote it", async () => {
    const [a, b] = [appServer("x"), appServer("x")];
    a.onCall = b.onCall = () => `"result":${RESULT}`;
    const { client } = setUpHub({ a, b });
    await initialize(client);
    await listToolNames(client);
    await callTool(client, "a__x");
    assert.ok(client.received.at(-1)?.includes(RESULT));
    await callTool(client, "b__x");
    assert.ok(client.received.at(-1)?.includes(NAMED), client.received.at(-1) ?? "");
  });

  it("is renamed in prompts and in what is read, too", async () => {
    const [a, b] = [appServer("x"), appServer("x")];
    const content = { type: "resource", resource: { uri: APP, text: "t" } };
    for (const script of [a, b]) {
      script.listings = { ...script.listings, prompts: [{ name: "p" }] };
      script.handlers = {
        ...script.handlers,
        "prompts/get": () =>
          `"result":${JSON.stringify({
            messages: [
              { role: "user", content },
              { role: "user", content: [content] },
            ],
          })}`,
      };
    }
    const { client } = setUpHub({ a, b });
    await initialize(client);
    await listToolNames(client);
    const uris = async (prefix: string): Promise<string[]> => {
      await sendRequest(client, "prompts/get", { name: `${prefix}__p` });
      return [...(client.received.at(-1) ?? "").matchAll(/"uri":"([^"]*)"/g)].map(
        ([, uri]) => uri ?? "",
      );
    };
    assert.deepEqual(await uris("a"), [APP, APP]);
    assert.deepEqual(await uris("b"), [OWN, OWN]);
    const { result } = await sendRequest(client, "resources/read", { uri: OWN });
    assert.deepEqual(result?.["contents"], [{ uri: OWN, text: "<p>" }]);
  });
});
