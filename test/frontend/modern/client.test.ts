import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../../src/protocol/modern.ts";
import {
  sendRequest,
  initialize,
  ScriptedServer,
  setUpHubWithClock,
} from "../../fixtures/memory-hub.ts";
import {
  makeProgressServer,
  MODERN_VERSION,
  modernRequest,
  sendModernWithId,
  sendModernRequest,
} from "../../fixtures/modern-requests.ts";

const HUB = { [MetaKey.server]: { name: "toolmux", version: "0.1.0" } };

describe("a modern client", () => {
  it("is told what the hub can do, without a handshake", async () => {
    const git = new ScriptedServer("x");
    git.instructions = "Be kind.";
    const { client } = setUpHubWithClock({ git });
    const { result } = await sendModernRequest(client, "server/discover");
    assert.deepEqual(result?.["supportedVersions"], [MODERN_VERSION]);
    assert.deepEqual(Object.keys(result?.["capabilities"] as object), [
      "tools",
      "prompts",
      "resources",
      "completions",
      "logging",
      "extensions",
    ]);
    assert.equal(result?.["resultType"], "complete");
    assert.equal(result?.["ttlMs"], 0);
    assert.equal(result?.["cacheScope"], "private");
    assert.deepEqual(result?.["_meta"], HUB);
  });

  it("gets lists with all that the protocol wants said, and without what only the legacy era has", async () => {
    const git = new ScriptedServer();
    git.tools = [
      '{"name":"x","n":1.0,"execution":{"taskSupport":"optional"},"inputSchema":{"type":"object"}}',
    ];
    git.listings = { prompts: [{ name: "p" }], resources: [{ uri: "u:1", name: "r" }] };
    const { client } = setUpHubWithClock({ git });
    const { result } = await sendModernRequest(client, "tools/list");
    assert.ok(
      client.received.some((text) =>
        text.includes('[{"name":"git__x","n":1.0,"inputSchema":{"type":"object"}}]'),
      ),
    );
    for (const each of [result, (await sendModernRequest(client, "prompts/list")).result]) {
      assert.equal(each?.["resultType"], "complete");
      assert.equal(each?.["ttlMs"], 0);
      assert.equal(each?.["cacheScope"], "private");
      assert.deepEqual(each?.["_meta"], HUB);
    }
    const resources = (await sendModernRequest(client, "resources/list")).result;
    assert.deepEqual(resources?.["resources"], [{ uri: "u:1", name: "r" }]);
    const templates = (await sendModernRequest(client, "resources/templates/list")).result;
    assert.deepEqual(templates?.["resourceTemplates"], []);
  });

  it("calls a legacy server, which hears nothing of the envelope", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    const { result } = await sendModernRequest(client, "tools/call", {
      name: "git__x",
      arguments: { a: 1 },
      _meta: { traceparent: "t" },
    });
    assert.equal(result?.["resultType"], "complete");
    assert.deepEqual(result?.["_meta"], HUB);
    assert.deepEqual(result?.["echo"], {
      name: "x",
      arguments: { a: 1 },
      _meta: { traceparent: "t" },
    });
  });

  it("reads resources that it is told not to keep", async () => {
    const git = new ScriptedServer();
    git.listings = { resources: [{ uri: "u:1", name: "r" }] };
    git.handlers = { "resources/read": () => '"result":{"contents":[]}' };
    const { client } = setUpHubWithClock({ git });
    const { result } = await sendModernRequest(client, "resources/read", { uri: "u:1" });
    assert.deepEqual(result, {
      contents: [],
      _meta: HUB,
      ttlMs: 0,
      cacheScope: "private",
      resultType: "complete",
    });
  });

  it("is told of a resource that there is not as its era has it, by the hub and by a server", async () => {
    const git = new ScriptedServer();
    git.listings = { resources: [{ uri: "u:1", name: "r" }] };
    git.handlers = { "resources/read": () => '"error":{"code":-32002,"message":"none"}' };
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "resources/list");
    const theirs = await sendModernRequest(client, "resources/read", { uri: "u:1" });
    assert.deepEqual(theirs.error, { code: -32602, message: "none" });
    const { error } = await sendModernRequest(client, "resources/read", { uri: "v:1" });
    assert.equal(error?.code, -32602);
  });

  it("gets a server's errors as they are, and those that mean something else to it as data", async () => {
    const git = new ScriptedServer("x");
    let code = -32000;
    git.onCall = () => `"error":{"code":${code},"message":"no","data":7}`;
    const { client } = setUpHubWithClock({ git });
    const first = await sendModernRequest(client, "tools/call", { name: "git__x" });
    assert.deepEqual(first.error, { code, message: "no", data: 7 });
    code = -32050;
    const second = await sendModernRequest(client, "tools/call", { name: "git__x" });
    assert.deepEqual(second.error, { code: -32603, message: "no", data: { code, data: 7 } });
  });

  for (const method of [
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/result",
    "tasks/list",
    "what/ever",
  ]) {
    it(`has no ${method}`, async () => {
      const { client } = setUpHubWithClock({ git: new ScriptedServer("x") });
      const { error } = await sendModernRequest(client, method, { uri: "u:1", level: "info" });
      assert.equal(error?.code, -32601);
    });
  }

  it("has to say which version it speaks and what it can be asked for", async () => {
    const { client } = setUpHubWithClock({ git: new ScriptedServer("x") });
    const bare = await sendRequest(client, "server/discover", {});
    assert.equal(bare.error?.code, -32602);
    const half = await sendRequest(client, "tools/list", {
      _meta: { [MetaKey.version]: MODERN_VERSION },
    });
    assert.equal(half.error?.code, -32602);
    const odd = await sendRequest(client, "tools/list", {
      _meta: { [MetaKey.version]: MODERN_VERSION, [MetaKey.capabilities]: [] },
    });
    assert.equal(odd.error?.code, -32602);
  });

  it("is refused a level of logs that there is not", async () => {
    const { client } = setUpHubWithClock({ git: new ScriptedServer("x") });
    for (const level of ["verbose", "INFO", 3, null]) {
      const params = { name: "git__x", _meta: { [MetaKey.level]: level } };
      assert.equal((await sendModernRequest(client, "tools/call", params)).error?.code, -32602);
    }
  });

  it("is told which versions there are if it speaks another", async () => {
    const { client } = setUpHubWithClock({ git: new ScriptedServer("x") });
    const { error } = await sendRequest(client, "tools/list", {
      _meta: { [MetaKey.version]: "2099-01-01", [MetaKey.capabilities]: {} },
    });
    assert.equal(error?.code, -32022);
    assert.deepEqual(error?.data?.["supported"], [MODERN_VERSION]);
    assert.equal(error?.data?.["requested"], "2099-01-01");
  });

  it("may speak both eras on one pipe", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    await initialize(client);
    const legacy = await sendRequest(client, "tools/call", { name: "git__x" });
    assert.equal("resultType" in (legacy.result ?? {}), false);
    const { result } = await sendModernRequest(client, "tools/call", { name: "git__x" });
    assert.equal(result?.["resultType"], "complete");
    assert.equal((await sendRequest(client, "ping")).error, undefined);
  });

  it("is told that there is no such method if it shakes hands, whatever it brings", async () => {
    const { client } = setUpHubWithClock({ git: new ScriptedServer("x") });
    for (const params of [{}, { protocolVersion: "2025-11-25", capabilities: {} }]) {
      const { error } = await sendModernRequest(client, "initialize", params);
      assert.equal(error?.code, -32601);
    }
  });

  it("gets what a server of old says that it lacks as it says it", async () => {
    const git = new ScriptedServer("x");
    const data = { requiredCapabilities: { sampling: {} } };
    git.onCall = () => `"error":{"code":-32021,"message":"no","data":${JSON.stringify(data)}}`;
    const { client } = setUpHubWithClock({ git });
    const { error } = await sendModernRequest(client, "tools/call", { name: "git__x" });
    assert.deepEqual([error?.code, error?.data], [-32021, data]);
  });

  it("cannot have two requests of one id at a time", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list");
    client.send(modernRequest(1, "tools/call", { name: "git__x" }));
    const { error } = await sendModernWithId(client, 1, "tools/call", { name: "git__x" });
    assert.equal(error?.code, -32600);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await git.newestPeer?.find(({ method }) => method === "notifications/cancelled");
  });

  it("cancels a call, at its server too", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list");
    client.send(modernRequest(1, "tools/call", { name: "git__x" }));
    await git.newestPeer?.find(({ method }) => method === "tools/call");
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    const reported = await git.newestPeer?.find(
      ({ method }) => method === "notifications/cancelled",
    );
    const [sent] = git.messagesOf("tools/call");
    assert.equal(reported?.params?.["requestId"], sent?.id);
  });

  it("cancels what runs by leaving", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list");
    client.send(modernRequest(1, "tools/call", { name: "git__x" }));
    const { newestPeer: peer } = git;
    await peer?.find(({ method }) => method === "tools/call");
    await client.transport.close();
    await peer?.find(({ method }) => method === "notifications/cancelled");
  });

  it("hears of progress under its own token", async () => {
    const git = makeProgressServer();
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/call", {
      name: "git__x",
      _meta: { progressToken: "mine" },
    });
    const reported = client.messages.find(({ method }) => method === "notifications/progress");
    assert.deepEqual(reported?.params, { progressToken: "mine", progress: 1 });
  });

  it("gets what the hub says when a call is late as a complete result", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { client, clock } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list");
    const answer = sendModernWithId(client, 1, "tools/call", { name: "git__x" });
    await git.newestPeer?.find(({ method }) => method === "tools/call");
    await clock.advanceAsync(61_000);
    const { result } = await answer;
    assert.equal(result?.["isError"], true);
    assert.equal(result?.["resultType"], "complete");
  });

  it("lets a legacy server's own resultType not win", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => '"result":{"resultType":"task","content":[]}';
    const { client } = setUpHubWithClock({ git });
    const { result } = await sendModernRequest(client, "tools/call", { name: "git__x" });
    assert.equal(result?.["resultType"], "complete");
  });

  it("is another client to servers for each thing that it can be asked for", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list", {}, {});
    await sendModernRequest(client, "tools/list", {}, { sampling: {} });
    const declared = git.messagesOf("initialize").map(({ params }) => params?.["capabilities"]);
    assert.deepEqual(declared, [{}, { sampling: {} }]);
  });

  it("hears of logs only on requests that want them, and only from that level on", async () => {
    const git = new ScriptedServer("x");
    const log = (level: string): void =>
      git.newestPeer?.send({
        jsonrpc: "2.0",
        method: "notifications/message",
        params: { level, data: level },
      });
    git.onCall = () => {
      log("debug");
      log("error");
      return '"result":{"content":[]}';
    };
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/call", { name: "git__x" });
    assert.equal(client.messages.filter(({ method }) => method !== undefined).length, 0);
    const _meta = { [MetaKey.level]: "info" };
    await sendModernRequest(client, "tools/call", { name: "git__x", _meta });
    const reported = client.messages.filter(({ method }) => method === "notifications/message");
    assert.deepEqual(
      reported.map(({ params }) => params?.["data"]),
      ["error"],
    );
  });

  it("hears of a log once on its pipe, however many of its requests want it", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list");
    const _meta = { [MetaKey.level]: "info" };
    for (const id of [1, 2])
      client.send(modernRequest(id, "tools/call", { name: "git__x", _meta }));
    await git.newestPeer?.until(() => git.messagesOf("tools/call").length === 2);
    const params = { level: "info", data: "d" };
    git.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
    await client.find(({ method }) => method === "notifications/message");
    await sendModernRequest(client, "tools/list");
    const reported = client.messages.filter(({ method }) => method === "notifications/message");
    assert.equal(reported.length, 1);
  });

  it("has the lowest level that it ever wanted told to servers, once", async () => {
    const git = new ScriptedServer("x");
    const capabilities = { tools: {}, logging: {} };
    const serverInfo = { name: "s", version: "1" };
    const handshake = { protocolVersion: "2025-11-25", capabilities, serverInfo };
    git.onInitialize = () => `"result":${JSON.stringify(handshake)}`;
    git.handlers = { "logging/setLevel": () => '"result":{}' };
    const { client } = setUpHubWithClock({ git });
    for (const level of ["error", "error", "info", "warning"]) {
      await sendModernRequest(client, "tools/call", {
        name: "git__x",
        _meta: { [MetaKey.level]: level },
      });
    }
    await sendModernRequest(client, "tools/call", { name: "git__x" });
    const levels = git.messagesOf("logging/setLevel").map(({ params }) => params?.["level"]);
    assert.deepEqual(levels, ["error", "info"]);
  });

  it("that has done nothing for long is none for servers any more", async () => {
    const git = new ScriptedServer("x");
    const { client, clock } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/call", { name: "git__x" }, { roots: {} });
    const pose = async (id: string): Promise<string | undefined> => {
      git.newestPeer?.send({ jsonrpc: "2.0", id, method: "roots/list" });
      const answer = await git.newestPeer?.find((message) => message.id === id && !message.method);
      return answer?.error?.message;
    };
    assert.match((await pose("a")) ?? "", /no request/);
    await clock.advanceAsync(7 * 60_000);
    assert.match((await pose("b")) ?? "", /no client/);
    const { result } = await sendModernRequest(
      client,
      "tools/call",
      { name: "git__x" },
      { roots: {} },
    );
    assert.equal(result?.["resultType"], "complete");
  });

  it("may say that it can be asked for other things with each request, and is not kept for each", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    const classes = [{}, { form: {} }, { url: {} }, { form: {}, url: {} }].flatMap((elicitation) =>
      [undefined, {}, { tools: {} }, { context: {} }, { tools: {}, context: {} }].flatMap(
        (sampling) =>
          [undefined, {}, { listChanged: true }].flatMap((roots) =>
            [undefined, elicitation].map((elicits) => ({
              ...(elicits && { elicitation: elicits }),
              ...(sampling && { sampling }),
              ...(roots && { roots }),
            })),
          ),
      ),
    );
    for (const capabilities of classes) {
      const { result } = await sendModernRequest(client, "tools/list", {}, capabilities);
      assert.equal(result?.["resultType"], "complete");
    }
    assert.ok(git.transportCount > 50, "each is another client to the server");
    assert.ok(git.openCount <= 32, `${git.openCount} are still there`);
  });

  it("is answered by a person at work who ends its call", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { client, hub } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list");
    const answer = sendModernWithId(client, 1, "tools/call", { name: "git__x" });
    await git.newestPeer?.find(({ method }) => method === "tools/call");
    const [running] = hub.snapshot().calls;
    assert.ok(running && hub.cancelCall(running.call));
    assert.equal((await answer).error?.code, -31005);
  });
});
