import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Buffer } from "node:buffer";
import { ResourceLinks } from "../../src/router/resource-lookup.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import type { Response } from "../../src/jsonrpc/message.ts";
import { parseLongResponse } from "../../src/jsonrpc/line-reader.ts";
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
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";

import { openWithClock as stageWith, callPlugin } from "../plugins/plugin-hub.ts";

const ECHO = (message: Json): string => `"result":{"got":${JSON.stringify(message.params)}}`;
const METHODS = ["prompts/get", "resources/read", "completion/complete"] as const;

/** A server that answers with what it was asked. */
function makeServer(lists: ScriptedServer["listings"], ...tools: string[]): ScriptedServer {
  const script = new ScriptedServer(...tools);
  script.listings = lists;
  script.handlers = Object.fromEntries(METHODS.map((method) => [method, ECHO]));
  return script;
}

const resource = (uri: string): object => ({ uri, name: "n" });
const template = (uriTemplate: string): object => ({ uriTemplate, name: "n" });
const read = (client: Peer, uri: string): Promise<Json> =>
  sendRequest(client, "resources/read", { uri });

async function begin(...made: Parameters<typeof setUpHubWithClock>) {
  const setup = setUpHubWithClock(...made);
  await initialize(setup.client);
  await turn();
  return setup;
}

/** Who was asked for what, by any of its methods. */
function asked(scripts: Record<string, ScriptedServer>): string[] {
  return Object.entries(scripts).flatMap(([server, script]) =>
    METHODS.flatMap((method) => script.messagesOf(method)).map(({ params }) => {
      const { name, uri, ref } = params as { name?: string; uri?: string; ref?: object };
      return `${server} ${name ?? uri ?? JSON.stringify(ref)}`;
    }),
  );
}

describe("a prompt", () => {
  it("is got from its server, under the name that this gives it, and nothing else is changed", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    const { client } = await begin({ a });
    client.send(
      '{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"x":1.0,"n\\u0061me":"a__p","arguments":{"y":"z"},"_meta":{"t":12345678901234567890}}}',
    );
    await client.find(isResponseTo(1));
    const text = a.newestPeer?.received.find((one) => one.includes("prompts/get")) ?? "";
    assert.match(
      text,
      /"params":\{"x":1\.0,"n\\u0061me":"p","arguments":\{"y":"z"\},"_meta":\{"t":12345678901234567890\}\}/,
    );
    const answer = client.received.find((one) => one.includes('"got"')) ?? "";
    assert.ok(answer.endsWith('"id":1}'), answer);
  });

  it("that there is not is refused as invalid params", async () => {
    const { client } = await begin({ a: makeServer({ prompts: [{ name: "p" }] }) });
    const { error } = await sendRequest(client, "prompts/get", { name: "a__q" });
    assert.equal(error?.code, -32602);
    assert.equal(error.message, 'There is no prompt "a__q".');
  });

  for (const params of [undefined, {}, { name: 1 }, { name: "a__p", arguments: [] }]) {
    it(`needs proper params, not ${JSON.stringify(params)}`, async () => {
      const { client } = await begin({ a: makeServer({ prompts: [{ name: "p" }] }) });
      assert.equal((await sendRequest(client, "prompts/get", params)).error?.code, -32602);
    });
  }

  it("is not a tool, and a tool no prompt", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] }, "t");
    const { client } = await begin({ a });
    const [tool, prompt] = [
      await sendRequest(client, "tools/call", { name: "a__p" }),
      await sendRequest(client, "prompts/get", { name: "a__t" }),
    ];
    assert.deepEqual([tool.error?.code, prompt.error?.code], [-32602, -32602]);
  });

  it("has its server's error answer as it is", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    a.handlers = { "prompts/get": () => '"error":{"code":7,"message":"no","data":{"a":1.0}}' };
    const { client } = await begin({ a });
    await sendRequest(client, "prompts/get", { name: "a__p" });
    assert.ok(
      client.received.some((one) => one.includes('{"code":7,"message":"no","data":{"a":1.0}}')),
    );
  });

  it("of a server that was never seen starts it", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    const latch = new Latch();
    a.onOpen = latch.wait;
    const { client } = await begin({ a });
    const answer = sendRequest(client, "prompts/get", { name: "a__p" });
    latch.open();
    assert.deepEqual((await answer).result, { got: { name: "p" } });
  });

  it("that went while its server was started is refused", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    const { client } = await begin({ a });
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.listings = { prompts: [] };
    a.disconnect();
    const answer = sendRequest(client, "prompts/get", { name: "a__p" });
    latch.open();
    assert.equal((await answer).error?.message, 'There is no prompt "a__p" any more.');
  });

  it("that takes too long is an error, and its server is told", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    a.handlers = { "prompts/get": () => undefined };
    const { client, clock } = await begin({ a }, { servers: { a: { callTimeout: 5000 } } });
    const answer = sendRequest(client, "prompts/get", { name: "a__p" });
    await clock.advanceAsync(5000);
    const { error } = await answer;
    assert.equal(error?.code, -31003);
    assert.equal(
      error.message,
      'Prompt "p" of server "a" did not finish within 5 seconds and was cancelled. Try again later, or have the limit raised (callTimeout, in the settings of server "a").',
    );
    assert.equal(a.messagesOf("notifications/cancelled").length, 1);
  });

  it("is cancelled by its client, and reports progress to it", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    a.handlers = { "prompts/get": () => undefined };
    const { client } = await begin({ a });
    const _meta = { progressToken: "mine" };
    client.send({ jsonrpc: "2.0", id: 1, method: "prompts/get", params: { name: "a__p", _meta } });
    await turn();
    const [sent] = a.messagesOf("prompts/get");
    const progressToken = (sent?.params?.["_meta"] as typeof _meta).progressToken;
    a.newestPeer?.send({
      jsonrpc: "2.0",
      method: "notifications/progress",
      params: { progressToken },
    });
    await client.find(({ params }) => params?.["progressToken"] === "mine");
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    assert.equal(a.messagesOf("notifications/cancelled")[0]?.params?.["requestId"], sent?.id);
    assert.equal(client.messages.some(isResponseTo(1)), false);
  });
});

describe("a resource", () => {
  it("that is listed is read from the server that lists it, byte for byte", async () => {
    const scripts = {
      a: makeServer({ resources: [resource("x://1")] }),
      b: makeServer({ resources: [resource("x://2/é")] }),
    };
    const { client } = await begin(scripts);
    client.send(
      '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{ "uri":"x:\\/\\/2\\/\\u00e9" }}',
    );
    await client.find(isResponseTo(1));
    assert.deepEqual(asked(scripts), ["b x://2/é"]);
    assert.ok(
      scripts.b.newestPeer?.received.some((one) => one.includes('{ "uri":"x:\\/\\/2\\/\\u00e9" }')),
    );
  });

  it("of two servers is that of the first, and the other's under the name that it is listed with", async () => {
    const lists = { resources: [resource("x://1")] };
    const scripts = { a: makeServer(lists), b: makeServer(lists) };
    const { client } = await begin(scripts);
    await read(client, "x://1");
    await read(client, "toolmux://b/x%3A%2F%2F1");
    assert.deepEqual(asked(scripts), ["a x://1", "b x://1"]);
  });

  it("that names its server goes there, whether or not it is listed", async () => {
    const scripts = { a: makeServer({ resources: [] }), b: makeServer({ resources: [] }) };
    const { client } = await begin(scripts);
    await read(client, "toolmux://b/y%3A%2F%2F%2520");
    await read(client, "toolmux://b/y://%20");
    assert.deepEqual(asked(scripts), ["b y://%20", "b y://%20"]);
    assert.equal((await read(client, "toolmux://c/y%3A%2F%2F1")).error?.code, -32002);
  });

  it("of a template goes to the server that has it, also if another lists more of its scheme", async () => {
    const scripts = {
      a: makeServer({ resources: [resource("x://1"), resource("x://2")] }),
      b: makeServer({ resourceTemplates: [template("x://items/{id}")] }),
    };
    const { client } = await begin(scripts);
    await read(client, "x://items/5");
    assert.deepEqual(asked(scripts), ["b x://items/5"]);
  });

  /** One server has a template, and its tool's result links to what that is for; another copies the template. */
  const makeCopied = (uri = "x://5", templates = [template("x://{id}")]) => {
    const lists = { resourceTemplates: templates };
    const good = makeServer(lists, "find");
    const block = { type: "resource_link", uri, name: "n" };
    good.onCall = () => `"result":${JSON.stringify({ content: [block] })}`;
    return { good, copy: makeServer({ resourceTemplates: [template("x://{id}")] }) };
  };

  for (const order of [["good", "copy"] as const, ["copy", "good"] as const]) {
    const inOrder = (scripts: ReturnType<typeof makeCopied>): Record<string, ScriptedServer> =>
      Object.fromEntries(order.map((name) => [name, scripts[name]]));
    const where = `with ${order.join(" before ")}`;

    it(`of a template that another server copies is asked of nobody, but of a server that it names, ${where}`, async () => {
      const scripts = inOrder(makeCopied());
      const { client } = await begin(scripts);
      const { error } = await read(client, "x://5");
      assert.equal(error?.code, -32602);
      assert.deepEqual(asked(scripts), []);
      for (const server of order) await read(client, `toolmux://${server}/x://5`);
      assert.deepEqual(asked(scripts), [`${order[0]} x://5`, `${order[1]} x://5`]);
    });

    it(`that a result has linked to is read where that came from, though another server copies the template, ${where}`, async () => {
      const scripts = inOrder(makeCopied());
      const { client, connect } = await begin(scripts);
      const other = connect();
      await initialize(other);
      await sendRequest(client, "tools/call", { name: "good__find" });
      await read(client, "x://5");
      assert.deepEqual(asked(scripts), ["good x://5"]);
      assert.equal((await read(other, "x://5")).error?.code, -32602, "a link to another client");
      assert.equal((await read(client, "x://6")).error?.code, -32602, "another URI");
      assert.deepEqual(asked(scripts), ["good x://5"]);
    });

    it(`that a result has linked to is not read elsewhere, though only another server has a template for it, ${where}`, async () => {
      const scripts = inOrder(makeCopied("x://5", []));
      const { client } = await begin(scripts);
      await sendRequest(client, "tools/call", { name: "good__find" });
      await read(client, "x://5");
      assert.deepEqual(asked(scripts), ["good x://5"]);
    });

    it(`that a tool has for its user interface is asked of nobody if another server's template has it too, ${where}`, async () => {
      const copy = makeServer({ resourceTemplates: [template("ui://{+any}")] });
      const good = makeServer({ resources: [] });
      const _meta = { ui: { resourceUri: "ui://view" } };
      good.tools = [JSON.stringify({ name: "t", inputSchema: { type: "object" }, _meta })];
      const scripts = inOrder({ good, copy });
      const { client } = await begin(scripts);
      assert.equal((await read(client, "ui://view")).error?.code, -32602);
      assert.deepEqual(asked(scripts), []);
    });
  }

  it("that a stopped server has linked to is not read elsewhere", async () => {
    const { good, copy } = makeCopied();
    const { client, hub } = await begin({ copy, good });
    await sendRequest(client, "tools/call", { name: "good__find" });
    await hub.stop("good");
    assert.equal((await read(client, "x://5")).error?.code, -32002);
    assert.deepEqual(asked({ copy, good }), []);
  });

  it("that several results of several servers have linked to is asked of nobody", async () => {
    const { good, copy } = makeCopied();
    const more = makeCopied().good;
    const { client } = await begin({ good, more, copy });
    await sendRequest(client, "tools/call", { name: "good__find" });
    await sendRequest(client, "tools/call", { name: "more__find" });
    assert.equal((await read(client, "x://5")).error?.code, -32602);
    assert.deepEqual(asked({ good, more, copy }), []);
  });

  it("that a result has linked to stays so whatever another server links to", async () => {
    const { good, copy } = makeCopied("x://5", []);
    const many = Array.from({ length: 2000 }, (_, i) => ({
      type: "resource_link",
      uri: `y://${i}`,
      name: "n",
    }));
    copy.tools = [JSON.stringify({ name: "flood", inputSchema: { type: "object" } })];
    copy.onCall = () => `"result":${JSON.stringify({ content: many })}`;
    const { client } = await begin({ copy, good });
    await sendRequest(client, "tools/call", { name: "good__find" });
    await sendRequest(client, "tools/call", { name: "copy__flood" });
    await read(client, "x://5");
    assert.deepEqual(asked({ copy, good }), ["good x://5"]);
  });

  it("is asked of nobody if several may have it, who are named", async () => {
    const scripts = {
      a: makeServer({ resourceTemplates: [template("x://{id}")] }),
      b: makeServer({ resourceTemplates: [template("x://{other}")] }),
    };
    const { client } = await begin(scripts);
    const { error } = await read(client, "x://5");
    assert.equal(error?.code, -32602);
    assert.equal(
      error.message,
      'Several servers may have the resource "x://5": "a", "b". Use one of these URIs: toolmux://a/x%3A%2F%2F5 or toolmux://b/x%3A%2F%2F5.',
    );
    await read(client, "toolmux://b/x%3A%2F%2F5");
    await read(client, "toolmux://b/x://6");
    assert.deepEqual(asked(scripts), ["b x://5", "b x://6"]);
  });

  it("that a result has pointed to is read where that came from, by that client", async () => {
    const scripts = {
      a: makeServer({ resources: [] }, "t"),
      b: makeServer({ resources: [] }, "t"),
    };
    const block = { type: "resource_link", uri: "x://9", name: "n" };
    scripts.b.onCall = () => `"result":${JSON.stringify({ content: [block] })}`;
    const { client, connect } = await begin(scripts);
    const other = connect();
    await initialize(other);
    await sendRequest(client, "tools/call", { name: "b__t" });
    await read(client, "x://9");
    assert.deepEqual(asked(scripts), ["b x://9"]);
    assert.equal((await read(other, "x://9")).error?.code, -32002);
  });

  it("that a prompt has pointed to is read where that came from", async () => {
    const a = makeServer({ resources: [], prompts: [{ name: "p" }] });
    const content = { type: "resource_link", uri: "x://9", name: "n" };
    a.handlers = {
      ...a.handlers,
      "prompts/get": () => `"result":${JSON.stringify({ messages: [{ role: "user", content }] })}`,
    };
    const { client } = await begin({ a });
    await sendRequest(client, "prompts/get", { name: "a__p" });
    assert.deepEqual((await read(client, "x://9")).result, { got: { uri: "x://9" } });
  });

  it("that a tool has for its user interface is read from the tool's server", async () => {
    const scripts = { a: makeServer({ resources: [] }), b: makeServer({ resources: [] }) };
    const _meta = { ui: { resourceUri: "ui://view" } };
    scripts.b.tools = [JSON.stringify({ name: "t", inputSchema: { type: "object" }, _meta })];
    const { client } = await begin(scripts);
    await read(client, "ui://view");
    assert.deepEqual(asked(scripts), ["b ui://view"]);
  });

  it("of a scheme that one server alone has is read there", async () => {
    const scripts = {
      a: makeServer({ resources: [resource("x://1")] }),
      b: makeServer({ resources: [resource("y://1")] }),
    };
    const { client } = await begin(scripts);
    await read(client, "Y://2");
    assert.deepEqual(asked(scripts), ["b Y://2"]);
  });

  it("of a scheme that several have is asked of nobody", async () => {
    const lists = { resources: [resource("x://1")] };
    const scripts = { a: makeServer(lists), b: makeServer(lists) };
    const { client } = await begin(scripts);
    assert.equal((await read(client, "x://2")).error?.code, -32602);
    assert.deepEqual(asked(scripts), []);
  });

  it("that nobody has is refused with its URI", async () => {
    const scripts = { a: makeServer({ resources: [resource("x://1")] }) };
    const { client } = await begin(scripts);
    const { error } = await read(client, "y://2");
    assert.equal(error?.code, -32002);
    assert.deepEqual(error.data, { code: "unknownResource", uri: "y://2" });
    assert.deepEqual(asked(scripts), []);
  });

  it("of a server that was never seen is looked for when that has listed", async () => {
    const a = makeServer({ resources: [resource("x://1")] });
    const latch = new Latch();
    a.onOpen = latch.wait;
    const { client } = await begin({ a });
    const answers = [read(client, "x://1"), read(client, "y://1")];
    latch.open();
    const [found, missing] = await Promise.all(answers);
    assert.deepEqual(found?.result, { got: { uri: "x://1" } });
    assert.equal(missing?.error?.code, -32002);
  });

  it("that turns out to be of several servers is refused when they have listed", async () => {
    const scripts = {
      a: makeServer({ resourceTemplates: [template("x://{id}")] }),
      b: makeServer({ resourceTemplates: [template("x://{other}")] }),
    };
    const latch = new Latch();
    scripts.a.onOpen = latch.wait;
    scripts.b.onOpen = latch.wait;
    const { client } = await begin(scripts);
    const answer = read(client, "x://1");
    latch.open();
    assert.equal((await answer).error?.code, -32602);
  });

  it("that a result has pointed to is known as well if plugins have seen that", async () => {
    const a = makeServer({ resources: [] }, "t");
    const block = { type: "resource_link", uri: "x://9", name: "n" };
    a.onCall = () => `"result":${JSON.stringify({ content: [block] })}`;
    const seeing = callPlugin("seeing", (call, next) => next(call).then((answer) => answer));
    const { client } = await stageWith([seeing], { a });
    await sendRequest(client, "tools/call", { name: "a__t" });
    assert.deepEqual((await read(client, "x://9")).result, { got: { uri: "x://9" } });
  });

  it("does not become a call that is told of, but is use of its server", async () => {
    const { client, hub, events } = await begin({
      a: makeServer({ resources: [resource("x://1")] }),
    });
    await read(client, "x://1");
    const { calls, lastTool } = connectionStatusOf(hub, "a");
    assert.deepEqual([calls, lastTool], [1, undefined]);
    assert.deepEqual(
      events.filter(({ kind }) => kind.startsWith("call")),
      [],
    );
  });
});

describe("links that results point to", () => {
  const resultOf = (uri: string): Response => {
    const result = { content: [{ type: "resource_link", uri }] };
    const frame = parseMessage(Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, result })));
    assert.ok(frame.kind === "response");
    return frame;
  };

  it("are bounded: the oldest are forgotten, and long ones not remembered", () => {
    const links = new ResourceLinks();
    for (let i = 0; i < 1001; i++) links.record("a", resultOf(`x://${i}`));
    links.record("a", resultOf(`x://${"y".repeat(3000)}`));
    assert.deepEqual(links.serversLinkingTo("x://0"), []);
    assert.deepEqual(links.serversLinkingTo("x://1"), ["a"]);
    assert.deepEqual(links.serversLinkingTo("x://1000"), ["a"]);
    assert.deepEqual(links.serversLinkingTo(`x://${"y".repeat(3000)}`), []);
  });

  it("are found in a long result that came in pieces", () => {
    const result = { content: [{ type: "text", text: "z".repeat(200_000) }, resource("x://1")] };
    Object.assign(result.content[1] ?? {}, { type: "resource_link" });
    const bytes = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, result }));
    const chunks = [bytes.subarray(0, 100_000), bytes.subarray(100_000)];
    const parts = chunks.map((chunk) => ({ bytes: chunk, isPlain: false, isDetachable: false }));
    const long = parseLongResponse(parts, bytes.length);
    assert.ok(long?.shape.kind !== "scanned" && long?.shape.slices !== undefined);
    const links = new ResourceLinks();
    links.record("a", long);
    assert.deepEqual(links.serversLinkingTo("x://1"), ["a"]);
  });
});

describe("a completion", () => {
  const argument = { name: "n", value: "v" };
  const complete = (client: Peer, ref: object): Promise<Json> =>
    sendRequest(client, "completion/complete", { ref, argument });

  it("for a prompt goes to its server, under the name that this gives it", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    const { client } = await begin({ a });
    const { result } = await complete(client, { type: "ref/prompt", name: "a__p", title: "T" });
    assert.deepEqual(result, {
      got: { ref: { type: "ref/prompt", name: "p", title: "T" }, argument },
    });
  });

  it("for a template goes to its server, under the URI that this gives it", async () => {
    const lists = { resourceTemplates: [template("x://{id}")] };
    const scripts = { a: makeServer(lists), b: makeServer(lists) };
    const { client } = await begin(scripts);
    await complete(client, { type: "ref/resource", uri: "x://{id}" });
    await complete(client, { type: "ref/resource", uri: "toolmux://b/x://{id}" });
    const expected = '{"type":"ref/resource","uri":"x://{id}"}';
    assert.deepEqual(asked(scripts), [`a ${expected}`, `b ${expected}`]);
  });

  it("for a resource goes where that would be read", async () => {
    const scripts = { a: makeServer({ resources: [resource("x://1")] }) };
    const { client } = await begin(scripts);
    await complete(client, { type: "ref/resource", uri: "x://1" });
    assert.deepEqual(asked(scripts), ['a {"type":"ref/resource","uri":"x://1"}']);
  });

  it("is empty where the server has none", async () => {
    const a = makeServer({ prompts: [{ name: "p" }] });
    a.handlers = {};
    const { client } = await begin({ a });
    const { result } = await complete(client, { type: "ref/prompt", name: "a__p" });
    assert.deepEqual(result, { completion: { values: [] } });
    assert.equal(a.messagesOf("completion/complete").length, 0);
  });

  for (const ref of [{}, { type: "ref/other" }, { type: "ref/prompt" }]) {
    it(`is refused for ${JSON.stringify(ref)}`, async () => {
      const { client } = await begin({ a: new ScriptedServer() });
      assert.equal((await complete(client, ref)).error?.code, -32602);
    });
  }
});
