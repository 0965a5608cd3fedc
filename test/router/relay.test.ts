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
  type RequestHandler,
  ScriptedServer,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { cancel, notify, post } from "../fixtures/peer-messages.ts";
import { openWithClock, callPlugin } from "../plugins/plugin-hub.ts";

const ECHO = (message: Json): string => `"result":{"got":${JSON.stringify(message.params)}}`;
const METHODS = ["prompts/get", "resources/read", "completion/complete"] as const;

/** A server that answers with what it was asked. */
function makeServer(lists: ScriptedServer["listings"], ...tools: string[]): ScriptedServer {
  const script = new ScriptedServer(...tools);
  script.listings = lists;
  script.handlers = Object.fromEntries(METHODS.map((method) => [method, ECHO]));
  return script;
}

const withPrompt = (): ScriptedServer => makeServer({ prompts: [{ name: "p" }] });
const withResources = (...uris: string[]): ScriptedServer =>
  makeServer({ resources: uris.map((uri) => ({ uri, name: "n" })) }, "t");
const withTemplates = (...uris: string[]): ScriptedServer =>
  makeServer({ resourceTemplates: uris.map((uriTemplate) => ({ uriTemplate, name: "n" })) }, "t");

/** The same whose tool's result has links to these. */
function linkingTo(script: ScriptedServer, ...uris: string[]): ScriptedServer {
  const content = uris.map((uri) => ({ type: "resource_link", uri, name: "n" }));
  script.onCall = () => `"result":${JSON.stringify({ content })}`;
  return script;
}

const read = (client: Peer, uri: string): Promise<Json> =>
  sendRequest(client, "resources/read", { uri });
const get = (client: Peer, name = "a__p"): Promise<Json> =>
  sendRequest(client, "prompts/get", { name });
const call = (client: Peer, name: string): Promise<Json> =>
  sendRequest(client, "tools/call", { name });
const codeOf = ({ error }: Json): number | undefined => error?.code;

async function begin(...made: Parameters<typeof setUpHubWithClock>) {
  const setup = setUpHubWithClock(...made);
  await initialize(setup.client);
  await turn();
  return setup;
}

/** The same with a server that has a prompt, which it gives so. */
async function beginPrompt(give: RequestHandler = ECHO) {
  const a = withPrompt();
  a.handlers = { ...a.handlers, "prompts/get": give };
  return { ...(await begin({ a }, { servers: { a: { callTimeout: 5000 } } })), a };
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
    const { a, client } = await beginPrompt();
    const paramsWith = (name: string): string =>
      `{"x":1.0,"n\\u0061me":"${name}","arguments":{"y":"z"},"_meta":{"t":12345678901234567890}}`;
    client.send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":${paramsWith("a__p")}}`);
    await client.find(isResponseTo(1));
    const text = a.newestPeer?.received.find((one) => one.includes("prompts/get")) ?? "";
    assert.ok(text.includes(`"params":${paramsWith("p")}`), text);
    const answer = client.received.find((one) => one.includes('"got"')) ?? "";
    assert.ok(answer.endsWith('"id":1}'), answer);
  });

  it("is not got with other params, nor called as a tool", async () => {
    const { client } = await begin({ a: makeServer({ prompts: [{ name: "p" }] }, "t") });
    const names = [1, "a__q", "a__t"].map((name) => ({ name }));
    for (const params of [undefined, {}, { name: "a__p", arguments: [] }, ...names])
      assert.equal(codeOf(await sendRequest(client, "prompts/get", params)), -32602);
    assert.equal(codeOf(await call(client, "a__p")), -32602);
  });

  it("has its server's error answer as it is", async () => {
    const error = '{"code":7,"message":"no","data":{"a":1.0}}';
    const { client } = await beginPrompt(() => `"error":${error}`);
    await get(client);
    assert.ok(client.received.some((one) => one.includes(error)));
  });

  it("of a server that was never seen starts it", async () => {
    const latch = new Latch();
    const a = Object.assign(withPrompt(), { onOpen: latch.wait });
    const { client } = await begin({ a });
    const answer = get(client);
    latch.open();
    assert.deepEqual((await answer).result, { got: { name: "p" } });
  });

  it("that there is not, or not any more when its server is started, is refused with its name", async () => {
    const { a, client } = await beginPrompt();
    assert.equal((await get(client, "a__q")).error?.message, 'There is no prompt "a__q".');
    const latch = new Latch();
    Object.assign(a, { onOpen: latch.wait, listings: { prompts: [] } });
    a.disconnect();
    const answer = get(client);
    latch.open();
    assert.equal((await answer).error?.message, 'There is no prompt "a__p" any more.');
  });

  it("that takes too long is an error, and its server is told", async () => {
    const { a, client, clock } = await beginPrompt(() => undefined);
    const answer = get(client);
    await clock.advanceAsync(5000);
    const { error } = await answer;
    assert.equal(error?.code, -31003);
    assert.match(error.message, /^Prompt "p" of server "a" did not finish within 5 seconds/);
    assert.equal(a.messagesOf("notifications/cancelled").length, 1);
  });

  it("is cancelled by its client, and reports progress to it", async () => {
    const { a, client } = await beginPrompt(() => undefined);
    post(client, 1, "prompts/get", { name: "a__p", _meta: { progressToken: "mine" } });
    await turn();
    const [sent] = a.messagesOf("prompts/get");
    const { progressToken } = sent?.params?.["_meta"] as { progressToken: unknown };
    notify(a.newestPeer, "notifications/progress", { progressToken });
    await client.find(({ params }) => params?.["progressToken"] === "mine");
    cancel(client, 1);
    await turn();
    assert.equal(a.messagesOf("notifications/cancelled")[0]?.params?.["requestId"], sent?.id);
    assert.equal(client.messages.some(isResponseTo(1)), false);
  });
});

describe("a resource", () => {
  it("that is listed is read from the server that lists it, byte for byte", async () => {
    const scripts = { a: withResources("x://1"), b: withResources("x://2/é") };
    const { client } = await begin(scripts);
    const params = '{ "uri":"x:\\/\\/2\\/\\u00e9" }';
    client.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":${params}}`);
    await client.find(isResponseTo(1));
    assert.deepEqual(asked(scripts), ["b x://2/é"]);
    assert.ok(scripts.b.newestPeer?.received.some((one) => one.includes(params)));
  });

  const withView = (...resources: string[]): ScriptedServer => {
    const _meta = { ui: { resourceUri: "ui://view" } };
    const view = JSON.stringify({ name: "t", inputSchema: { type: "object" }, _meta });
    return Object.assign(withResources(...resources), { tools: [view] });
  };
  const hasX1 = (): ScriptedServer => withResources("x://1");
  const hasX1And2 = (): ScriptedServer => withResources("x://1", "x://2");
  const hasY1 = (): ScriptedServer => withResources("y://1");
  const hasItems = (): ScriptedServer => withTemplates("x://items/{id}");
  const hasAnyX = (): ScriptedServer => withTemplates("x://{id}");
  const hasAnyUi = (): ScriptedServer => withTemplates("ui://{+any}");
  const of1 = "toolmux://b/x%3A%2F%2F1";
  const odd = "toolmux://b/y%3A%2F%2F%2520";
  const none = withResources;

  for (const [what, a, b, uri, expected] of [
    ["of two servers is that of the first", hasX1, hasX1, "x://1", "a x://1"],
    ["of the second is there under the name that it is listed with", hasX1, hasX1, of1, "b x://1"],
    ["that names its server goes there, whether or not it is listed", none, none, odd, "b y://%20"],
    ["that names its server plainly goes there", none, none, "toolmux://b/y://%20", "b y://%20"],
    ["of a template goes where that is", hasX1And2, hasItems, "x://items/5", "b x://items/5"],
    ["that a tool has for its view is that server's", none, withView, "ui://view", "b ui://view"],
    ["of a scheme that one server alone has is read there", hasX1, hasY1, "Y://2", "b Y://2"],
  ] as const) {
    it(what, async () => {
      const scripts = { a: a(), b: b() };
      const { client } = await begin(scripts);
      assert.equal((await read(client, uri)).error, undefined);
      assert.deepEqual(asked(scripts), [expected]);
    });
  }

  for (const [what, a, b, uri, code] of [
    ["that nobody has", none, none, "y://2", -32002],
    ["that names a server that there is not", none, none, "toolmux://c/y:", -32002],
    ["of a scheme that several have", hasX1, hasX1, "x://2", -32602],
    ["of a template that another server copies", hasAnyX, hasAnyX, "x://5", -32602],
    ["of a tool's view that a template after it has", withView, hasAnyUi, "ui://view", -32602],
    ["of a tool's view that a template before it has", hasAnyUi, withView, "ui://view", -32602],
  ] as const) {
    it(`${what} is asked of nobody`, async () => {
      const scripts = { a: a(), b: b() };
      const { client } = await begin(scripts);
      const { error } = await read(client, uri);
      assert.equal(error?.code, code);
      if (code === -32002) assert.deepEqual(error.data, { code: "unknownResource", uri });
      assert.deepEqual(asked(scripts), []);
    });
  }

  it("that several may have is refused with their names, under which it can be read", async () => {
    const scripts = { a: withTemplates("x://{id}"), b: withTemplates("x://{other}") };
    const { client } = await begin(scripts);
    assert.equal(
      (await read(client, "x://5")).error?.message,
      'Several servers may have the resource "x://5": "a", "b". Use one of these URIs: toolmux://a/x%3A%2F%2F5 or toolmux://b/x%3A%2F%2F5.',
    );
    await read(client, "toolmux://b/x%3A%2F%2F5");
    await read(client, "toolmux://a/x://6");
    assert.deepEqual(asked(scripts), ["a x://6", "b x://5"]);
  });

  /** One server links to what another has a template for. */
  const linked = (good: ScriptedServer = withTemplates("x://{id}")) => ({
    good: linkingTo(good, "x://5"),
    copy: withTemplates("x://{id}"),
  });

  for (const order of [["good", "copy"] as const, ["copy", "good"] as const]) {
    const inOrder = (scripts: ReturnType<typeof linked>): Record<string, ScriptedServer> =>
      Object.fromEntries(order.map((name) => [name, scripts[name]]));
    const where = `with ${order.join(" before ")}`;

    it(`that a result has linked to is read where that came from, by that client, though another server copies the template, ${where}`, async () => {
      const scripts = inOrder(linked());
      const { client, connect } = await begin(scripts);
      const other = connect();
      await initialize(other);
      await call(client, "good__t");
      await read(client, "x://5");
      assert.equal(codeOf(await read(other, "x://5")), -32602, "a link to another client");
      assert.equal(codeOf(await read(client, "x://6")), -32602, "another URI");
      assert.deepEqual(asked(scripts), ["good x://5"]);
    });

    it(`that a result has linked to is not read elsewhere, though only another server has a template for it, ${where}`, async () => {
      const scripts = inOrder(linked(withTemplates()));
      const { client } = await begin(scripts);
      await call(client, "good__t");
      await read(client, "x://5");
      assert.deepEqual(asked(scripts), ["good x://5"]);
    });
  }

  it("that a result has linked to is known to that client alone, though nobody lists it", async () => {
    const scripts = { a: withResources(), b: linkingTo(withResources(), "x://9") };
    const { client, connect } = await begin(scripts);
    const other = connect();
    await initialize(other);
    await call(client, "b__t");
    await read(client, "x://9");
    assert.deepEqual(asked(scripts), ["b x://9"]);
    assert.equal(codeOf(await read(other, "x://9")), -32002);
  });

  it("that a stopped server has linked to is not read elsewhere", async () => {
    const { good, copy } = linked();
    const { client, hub } = await begin({ copy, good });
    await call(client, "good__t");
    await hub.stop("good");
    assert.equal(codeOf(await read(client, "x://5")), -32002);
    assert.deepEqual(asked({ copy, good }), []);
  });

  it("that several results of several servers have linked to is asked of nobody", async () => {
    const scripts = { ...linked(), more: linked().good };
    const { client } = await begin(scripts);
    await call(client, "good__t");
    await call(client, "more__t");
    assert.equal(codeOf(await read(client, "x://5")), -32602);
    assert.deepEqual(asked(scripts), []);
  });

  it("that a result has linked to stays so whatever another server links to", async () => {
    const scripts = linked(withTemplates());
    linkingTo(scripts.copy, ...Array.from({ length: 2000 }, (_, i) => `y://${i}`));
    const { client } = await begin(scripts);
    await call(client, "good__t");
    await call(client, "copy__t");
    await read(client, "x://5");
    assert.deepEqual(asked(scripts), ["good x://5"]);
  });

  it("that a prompt has linked to is read where that came from", async () => {
    const a = makeServer({ resources: [], prompts: [{ name: "p" }] });
    const content = { type: "resource_link", uri: "x://9", name: "n" };
    const prompt = JSON.stringify({ messages: [{ role: "user", content }] });
    a.handlers = { ...a.handlers, "prompts/get": () => `"result":${prompt}` };
    const { client } = await begin({ a });
    await get(client);
    assert.deepEqual((await read(client, "x://9")).result, { got: { uri: "x://9" } });
  });

  it("that a result has linked to is known as well if plugins have seen that", async () => {
    const seeing = callPlugin("seeing", (given, next) => next(given).then((answer) => answer));
    const { client } = await openWithClock([seeing], { a: linkingTo(withResources(), "x://9") });
    await call(client, "a__t");
    assert.deepEqual((await read(client, "x://9")).result, { got: { uri: "x://9" } });
  });

  it("of a server that was never seen is looked for when that has listed", async () => {
    const latch = new Latch();
    const a = Object.assign(withResources("x://1"), { onOpen: latch.wait });
    const { client } = await begin({ a });
    const answers = [read(client, "x://1"), read(client, "y://1")] as const;
    latch.open();
    const [found, missing] = await Promise.all(answers);
    assert.deepEqual(found.result, { got: { uri: "x://1" } });
    assert.equal(codeOf(missing), -32002);
  });

  it("that turns out to be of several servers is refused when they have listed", async () => {
    const latch = new Latch();
    const scripts = { a: withTemplates("x://{id}"), b: withTemplates("x://{other}") };
    for (const script of Object.values(scripts)) script.onOpen = latch.wait;
    const { client } = await begin(scripts);
    const answer = read(client, "x://1");
    latch.open();
    assert.equal(codeOf(await answer), -32602);
  });

  it("does not become a call that is told of, but is use of its server", async () => {
    const { client, hub, events } = await begin({ a: withResources("x://1") });
    await read(client, "x://1");
    const { calls, lastTool } = connectionStatusOf(hub, "a");
    assert.deepEqual([calls, lastTool], [1, undefined]);
    assert.ok(!events.some(({ kind }) => kind.startsWith("call")));
  });
});

describe("a completion", () => {
  const argument = { name: "n", value: "v" };
  const complete = (client: Peer, ref: object): Promise<Json> =>
    sendRequest(client, "completion/complete", { ref, argument });

  it("for a prompt goes to its server, under the name that this gives it", async () => {
    const { client } = await begin({ a: withPrompt() });
    const ref = { type: "ref/prompt", name: "p", title: "T" };
    const { result } = await complete(client, { ...ref, name: "a__p" });
    assert.deepEqual(result, { got: { ref, argument } });
  });

  it("for a template or a resource goes where that would be read, under the URI that its server gives it", async () => {
    const scripts = { a: withTemplates("x://{id}"), b: withTemplates("x://{id}") };
    const all = { ...scripts, c: withResources("y://1") };
    const { client } = await begin(all);
    for (const uri of ["x://{id}", "toolmux://b/x://{id}", "y://1"]) {
      await complete(client, { type: "ref/resource", uri });
    }
    const expected = ["a x://{id}", "b x://{id}", "c y://1"].map((each) => {
      const [server, uri] = each.split(" ");
      return `${server} ${JSON.stringify({ type: "ref/resource", uri })}`;
    });
    assert.deepEqual(asked(all), expected);
  });

  it("is empty where the server has none", async () => {
    const a = Object.assign(withPrompt(), { handlers: {} });
    const { client } = await begin({ a });
    const { result } = await complete(client, { type: "ref/prompt", name: "a__p" });
    assert.deepEqual(result, { completion: { values: [] } });
    assert.equal(a.messagesOf("completion/complete").length, 0);
  });

  it("is refused for what is no reference", async () => {
    const { client } = await begin({ a: new ScriptedServer() });
    for (const ref of [{}, { type: "ref/other" }, { type: "ref/prompt" }])
      assert.equal(codeOf(await complete(client, ref)), -32602);
  });
});
