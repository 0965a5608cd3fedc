import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HttpServer, type ServedHub } from "../../../src/frontend/http/server.ts";
import { MetaKey } from "../../../src/protocol/modern.ts";
import { turn, VirtualClock } from "../../fixtures/virtual-clock.ts";
import { EventStreamReader, setUpHttp, HttpTestClient } from "../../fixtures/http-client.ts";
import {
  isResponseTo,
  type Json,
  Latch,
  ScriptedServer,
  setUpHub,
} from "../../fixtures/memory-hub.ts";
import { ModernScriptedServer } from "../../fixtures/modern-server.ts";
import { codeOf, notify, respond } from "../../fixtures/peer-messages.ts";
import {
  ALL_MODERN_CAPABILITIES,
  makeProgressServer,
  modernMetaOf,
  MODERN_VERSION,
  answersTo,
  inputRoundOf,
} from "../../fixtures/modern-requests.ts";

type Params = Readonly<Record<string, unknown>>;

async function tell(response: Response, status = 200): Promise<Json> {
  const json = (await response.json()) as Json;
  assert.equal(response.status, status, JSON.stringify(json));
  return json;
}

/** None if it is the answer alone. */
async function countEvents(response: Response): Promise<number> {
  const type = response.headers.get("Content-Type");
  return type === "application/json"
    ? 0
    : (await new EventStreamReader(response).remainingMessages()).length;
}

const TOOL = JSON.stringify({
  name: "x",
  inputSchema: {
    type: "object",
    properties: {
      region: { type: "string", "x-mcp-header": "Region" },
      deep: {
        type: "object",
        properties: { count: { type: "integer", "x-mcp-header": "Count" } },
      },
      sure: { type: "boolean", "x-mcp-header": "Sure" },
    },
  },
});

describe("a request over HTTP that names no servers", () => {
  it("has nobody look at how all of them are, whether it is in a session or of the modern era", async () => {
    const { hub } = setUpHub({ s: new ScriptedServer("t") });
    let looks = 0;
    const seen: ServedHub = {
      accept: (link, signal, client) => hub.accept(link, signal, client),
      createModernClients: (client) => hub.createModernClients(client),
      activePlugins: hub.activePlugins,
      modeFault: () => undefined,
      status: () => {
        looks++;
        return hub.status();
      },
    };
    const limits = { hostname: "127.0.0.1", token: undefined, maxMessage: 1024 * 1024 };
    const face = new HttpServer(seen, limits);
    await tell(await new HttpTestClient(face).postModern("tools/list"));
    const legacy = new HttpTestClient(face);
    await legacy.initialize();
    await tell(await legacy.post({ jsonrpc: "2.0", id: 7, method: "ping" }));
    assert.equal(looks, 0);
    assert.equal(
      (await new HttpTestClient(face, "/mcp/none").postModern("tools/list")).status,
      404,
    );
    assert.equal(looks, 1);
    await face.close();
    await hub.close();
  });
});

describe("a modern client over HTTP", () => {
  it("calls, lists and reads with one POST each, without a session", async () => {
    const git = new ScriptedServer("x");
    git.listings = { resources: [{ uri: "u:1", name: "r" }] };
    git.handlers = { "resources/read": () => '"result":{"contents":[]}' };
    const { newClient } = setUpHttp({ git });
    const httpClient = newClient();
    const listed = await httpClient.postModern("tools/list");
    assert.equal(listed.headers.get("Mcp-Session-Id"), null);
    assert.equal(((await tell(listed)).result?.["tools"] as object[]).length, 1);
    const called = await tell(await httpClient.postModern("tools/call", { name: "git__x" }));
    assert.equal(called.result?.["resultType"], "complete");
    const read = await tell(await httpClient.postModern("resources/read", { uri: "u:1" }));
    assert.equal(read.result?.["cacheScope"], "private");
  });

  const wrong: readonly (readonly [string, Readonly<Record<string, string | null>>])[] = [
    ["another method", { "Mcp-Method": "tools/list" }],
    ["a method in other letters", { "Mcp-Method": "TOOLS/CALL" }],
    ["no method", { "Mcp-Method": null }],
    ["another name", { "Mcp-Name": "y" }],
    ["no name", { "Mcp-Name": null }],
    ["another version", { "MCP-Protocol-Version": "2025-11-25" }],
    ["no version", { "MCP-Protocol-Version": null }],
  ];
  for (const [what, headers] of wrong) {
    it(`is refused if its headers say ${what} than its message`, async () => {
      const { newClient } = setUpHttp({ git: new ScriptedServer("x") });
      const extra = { headers, id: 7 };
      const response = await newClient().postModern("tools/call", { name: "git__x" }, extra);
      const { error, id } = await tell(response, 400);
      assert.deepEqual([error?.code, id], [-32020, 7]);
    });
  }

  for (const order of [["good", "copy"] as const, ["copy", "good"] as const]) {
    it(`is not led by a link that another client may have been given, with ${order.join(" before ")}`, async () => {
      const link = { type: "resource_link", uri: "x://5", name: "n" };
      const good = new ScriptedServer("find");
      good.listings = { resources: [] };
      good.onCall = () => `"result":${JSON.stringify({ content: [link] })}`;
      const copy = new ScriptedServer();
      copy.listings = { resourceTemplates: [{ uriTemplate: "x://{id}", name: "n" }] };
      good.handlers = copy.handlers = { "resources/read": () => '"result":{"contents":[]}' };
      const scripts = { good, copy };
      const { newClient } = setUpHttp(
        Object.fromEntries(order.map((name) => [name, scripts[name]] as const)),
      );
      const read = async (uri: string): Promise<Json> =>
        tell(await newClient().postModern("resources/read", { uri }));
      await newClient().postModern("tools/call", { name: "good__find" });
      assert.equal((await read("x://5")).error?.code, -32602);
      assert.deepEqual((await read("x://6")).result?.["contents"], []);
      assert.equal(good.messagesOf("resources/read").length, 0);
      assert.equal(copy.messagesOf("resources/read").length, 1);
    });
  }

  it("may write a name in Base64", async () => {
    const git = new ScriptedServer();
    git.listings = { resources: [{ uri: "u:ü", name: "r" }] };
    git.handlers = { "resources/read": () => '"result":{"contents":[]}' };
    const { newClient } = setUpHttp({ git });
    await newClient().postModern("tools/list");
    const readAs = (name: string): Promise<Response> => {
      const headers = { "Mcp-Name": `=?base64?${name}?=` };
      return newClient().postModern("resources/read", { uri: "u:ü" }, { headers });
    };
    const name = Buffer.from("u:ü").toString("base64");
    assert.deepEqual((await tell(await readAs(name))).result?.["contents"], []);
    assert.equal((await tell(await readAs(`${name}!`), 400)).error?.code, -32020);
  });

  it("repeats in headers what a tool's schema says", async () => {
    const git = new ScriptedServer();
    git.tools = [TOOL];
    const { newClient } = setUpHttp({ git });
    const httpClient = newClient();
    await httpClient.postModern("tools/list");
    const args = { region: "eu", deep: { count: 7 }, sure: false };
    const all = { "Mcp-Param-Region": "eu", "mcp-param-count": "7.0", "Mcp-Param-Sure": "false" };
    const send = (given: object, headers: Record<string, string>): Promise<Response> =>
      httpClient.postModern("tools/call", { name: "git__x", arguments: given }, { headers });
    await tell(await send(args, all));
    await tell(await send({ region: null }, {}));
    await tell(await send({}, { "Mcp-Param-Other": "passes" }));
    await tell(await send({ region: "=?base64?eu" }, { "Mcp-Param-Region": "=?base64?eu" }));
    await tell(await send({ region: "eu" }, { "Mcp-Param-Region": "=?base64?ZXU=?=" }));
    const bad: readonly (readonly [object, Record<string, string>])[] = [
      [args, {}],
      [args, { ...all, "Mcp-Param-Region": "us" }],
      [args, { ...all, "mcp-param-count": "8" }],
      [args, { ...all, "Mcp-Param-Sure": "true" }],
      [{ region: "eu" }, { "Mcp-Param-Region": "=?base64?ZXU?=" }],
      [{}, { "Mcp-Param-Region": "eu" }],
    ];
    for (const [given, headers] of bad) {
      const { error } = await tell(await send(given, headers), 400);
      assert.equal(error?.code, -32020, JSON.stringify([given, headers]));
    }
  });

  it("is told by the status what is wrong with a request as such", async () => {
    const { newClient } = setUpHttp({ git: new ScriptedServer("x") });
    const httpClient = newClient();
    for (const method of ["initialize", "ping", "resources/subscribe", "what/ever"]) {
      const { error, id } = await tell(await httpClient.postModern(method, {}, { id: "m" }), 404);
      assert.deepEqual([error?.code, id], [-32601, "m"]);
    }
    const bare = { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} };
    const version = { "MCP-Protocol-Version": MODERN_VERSION };
    const listing = { ...version, "Mcp-Method": "tools/list" };
    const response = await httpClient.request("POST", bare, listing);
    assert.equal((await tell(response, 400)).error?.code, -32602);
    const old = { ...modernMetaOf(), [MetaKey.version]: "v999" };
    const other = { ...bare, params: { _meta: old } };
    const headers = { ...listing, "MCP-Protocol-Version": "v999" };
    const { error } = await tell(await httpClient.request("POST", other, headers), 400);
    assert.equal(error?.code, -32022);
    const unknown = await tell(await httpClient.postModern("tools/call", { name: "nobody" }));
    assert.equal(unknown.error?.code, -32602);
    const batch = await httpClient.request("POST", [bare], listing);
    assert.equal(batch.status, 400);
    const note = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } };
    assert.equal((await httpClient.request("POST", note, version)).status, 202);
    const listening = { notifications: { toolsListChanged: true } };
    const noEvents = { headers: { Accept: "application/json" } };
    const unheard = await httpClient.postModern("subscriptions/listen", listening, noEvents);
    assert.equal(unheard.status, 406);
  });

  it("is refused what its headers say otherwise of a tool that is not listed yet", async () => {
    const git = new ScriptedServer();
    git.tools = [TOOL];
    const latch = new Latch();
    git.onMake = latch.wait;
    const { newClient } = setUpHttp({ git });
    const send = (said: string): Promise<Response> => {
      const params = { name: "git__x", arguments: { region: "eu" } };
      return newClient().postModern("tools/call", params, {
        headers: { "Mcp-Param-Region": said },
      });
    };
    const [good, bad] = [send("eu"), send("us")];
    await turn();
    latch.open();
    await tell(await good);
    const { error } = await tell(await bad, 400);
    assert.equal(error?.code, -32020);
    assert.equal(git.messagesOf("tools/call").length, 1);
  });

  it("gets a stream without ids if something comes before the answer, unless it takes no events", async () => {
    const git = makeProgressServer();
    const { newClient } = setUpHttp({ git });
    const params = { name: "git__x", _meta: { progressToken: 5 } };
    const headers = { Accept: "application/json" };
    const { result } = await tell(await newClient().postModern("tools/call", params, { headers }));
    assert.equal(result?.["resultType"], "complete");
    const response = await newClient().postModern("tools/call", params);
    assert.equal(response.headers.get("X-Accel-Buffering"), "no");
    const events = new EventStreamReader(response);
    const first = await events.next();
    assert.equal(first?.id, undefined);
    assert.deepEqual(first?.message?.params, { progressToken: 5, progress: 1 });
    const [answer, ...others] = await events.remainingMessages();
    assert.equal(answer?.result?.["resultType"], "complete");
    assert.deepEqual(others, []);
  });

  it("is one of many that may use the same ids", async () => {
    const git = new ScriptedServer("x");
    const { newClient } = setUpHttp({ git });
    await newClient().postModern("tools/list");
    const answers = await Promise.all(
      [1, 2, 3].map(async (n) =>
        tell(await newClient().postModern("tools/call", { name: "git__x", arguments: { n } })),
      ),
    );
    const echoes = answers.map(({ result }) => (result?.["echo"] as Params)["arguments"]);
    assert.deepEqual(echoes, [{ n: 1 }, { n: 2 }, { n: 3 }]);
  });

  it("listens: it is told so first, and of the hub's end last", async () => {
    const git = new ScriptedServer("x");
    const clock = new VirtualClock();
    const { newClient, server: face } = setUpHttp({ git }, { clock });
    const httpClient = newClient();
    await httpClient.postModern("tools/list");
    const notifications = { toolsListChanged: true };
    const events = new EventStreamReader(
      await httpClient.postModern("subscriptions/listen", { notifications }, { id: "L" }),
    );
    const first = await events.message();
    const _meta = { [MetaKey.subscription]: "L" };
    assert.equal(first.method, "notifications/subscriptions/acknowledged");
    assert.deepEqual(first.params, { notifications, _meta });
    git.tools.push('{"name":"y","inputSchema":{"type":"object"}}');
    git.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await clock.advanceAsync(100);
    const second = await events.message();
    assert.equal(second.method, "notifications/tools/list_changed");
    assert.deepEqual(second.params, { _meta });
    await face.close();
    const [last] = await events.remainingMessages();
    assert.deepEqual([last?.id, last?.result?.["resultType"]], ["L", "complete"]);
    assert.equal((last?.result?.["_meta"] as Params)[MetaKey.subscription], "L");
  });

  it("is told by the status too what it would have to be able to do", async () => {
    const git = new ScriptedServer("x");
    const elicitations = [{ mode: "url", elicitationId: "e", url: "https://x.test", message: "m" }];
    git.onCall = () =>
      `"error":{"code":-32042,"message":"m","data":${JSON.stringify({ elicitations })}}`;
    const { newClient } = setUpHttp({ git });
    const { error } = await tell(
      await newClient().postModern("tools/call", { name: "git__x" }),
      400,
    );
    assert.equal(error?.code, -32021);
  });

  it("comes back with what a server asked, with another POST", async () => {
    const git = new ScriptedServer("x");
    const clock = new VirtualClock();
    let call: Json | undefined;
    git.onCall = (message) => {
      call = message;
      const params = { message: "Who?", requestedSchema: { type: "object" } };
      git.newestPeer?.send({ jsonrpc: "2.0", id: "q", method: "elicitation/create", params });
      return undefined;
    };
    const { newClient } = setUpHttp({ git }, { clock });
    const params = { name: "git__x" };
    const capabilities = ALL_MODERN_CAPABILITIES;
    const first = newClient().postModern("tools/call", params, { capabilities });
    await turn();
    await clock.advanceAsync(10);
    const asked = await tell(await first);
    assert.equal(asked.result?.["resultType"], "input_required");
    const [request] = Object.values(inputRoundOf(asked).requests);
    assert.equal(request?.params["message"], "[git] Who?");
    const accept = { action: "accept", content: { name: "A" } };
    const back = { ...params, ...answersTo(asked, () => accept) };
    const again = newClient().postModern("tools/call", back, { capabilities, id: 2 });
    const answer = await git.newestPeer?.find(isResponseTo("q"));
    assert.deepEqual(answer?.result, accept);
    git.newestPeer?.send({ jsonrpc: "2.0", id: call?.id, result: { content: [] } });
    const { id, result } = await tell(await again);
    assert.deepEqual([id, result?.["resultType"]], [2, "complete"]);
  });

  it("is refused by servers that are one for each client, unless it is known by a token", async () => {
    const servers = { git: { isolation: "perClient" as const } };
    const open = setUpHttp({ git: new ScriptedServer("x") }, { servers });
    const params = { name: "git__x" };
    const refused = await tell(await open.newClient().postModern("tools/call", params));
    assert.equal(codeOf(refused), "notSupported");
    assert.match(refused.error?.message ?? "", /isolation = "shared"/);
    const face = { token: "secret" };
    const closed = setUpHttp({ git: new ScriptedServer("x") }, { servers, server: face });
    const headers = { Authorization: "Bearer secret" };
    const done = await tell(await closed.newClient().postModern("tools/call", params, { headers }));
    assert.equal(done.result?.["resultType"], "complete");
    assert.equal((await closed.newClient().postModern("tools/call", params)).status, 401);
  });

  for (const [what, era, token, received] of [
    ["hears of a log if only its request runs there", "legacy", undefined, [1]],
    ["hears of no log that may be another's", "legacy", undefined, [0, 0]],
    [
      "hears of a log on each of its requests if it is known by a token",
      "legacy",
      "secret",
      [1, 1],
    ],
    ["hears of no log of a modern server that may be another's", "modern", undefined, [0, 0]],
    [
      "hears of a log of a modern server once if it is known by a token",
      "modern",
      "secret",
      [0, 1],
    ],
  ] as const) {
    it(what, async () => {
      const git = era === "modern" ? new ModernScriptedServer("x") : new ScriptedServer("x");
      git.onCall = () => undefined;
      const { newClient } = setUpHttp({ git }, { server: { token }, servers: { git: { era } } });
      const headers = { ...(token !== undefined && { Authorization: `Bearer ${token}` }) };
      await newClient().postModern("tools/list", {}, { headers });
      const params = { name: "git__x", _meta: { [MetaKey.level]: "info" } };
      const pending = received.map(() => newClient().postModern("tools/call", params, { headers }));
      await git.newestPeer?.until(() => git.messagesOf("tools/call").length === received.length);
      notify(git.newestPeer, "notifications/message", { level: "info", data: "d" });
      const result = { content: [], ...(era === "modern" && { resultType: "complete" }) };
      for (const { id } of git.messagesOf("tools/call")) respond(git.newestPeer, id, result);
      const reported = await Promise.all((await Promise.all(pending)).map(countEvents));
      const expected = received.map((count) => (count === 0 ? 0 : count + 1));
      assert.deepEqual(reported, expected);
    });
  }

  it("does not hold anything for who does not read", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { newClient } = setUpHttp({ git });
    const httpClient = newClient();
    await httpClient.postModern("tools/list");
    const _meta = { progressToken: 1 };
    const pending = httpClient.postModern("tools/call", { name: "git__x", _meta });
    const call = await git.newestPeer?.find(({ method }) => method === "tools/call");
    const { progressToken } = call?.params?.["_meta"] as { progressToken: unknown };
    const params = { progressToken, progress: 1, message: "x".repeat(1024 * 1024) };
    for (let i = 0; i < 10; i++) {
      git.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params });
      await turn();
    }
    await git.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    const events = new EventStreamReader(await pending);
    await assert.rejects(events.remainingMessages());
  });
});
