import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { VERSION } from "../../../src/base/version.ts";
import { MetaKey } from "../../../src/protocol/modern.ts";
import {
  isResponseTo,
  type Json,
  ScriptedServer,
  sendRequest,
  setUpHubWithClock,
} from "../../fixtures/memory-hub.ts";
import {
  MODERN_VERSION,
  modernRequest,
  sendModernWithId,
  sendModernRequest,
} from "../../fixtures/modern-requests.ts";
import { MAX_CLASSES } from "../../../src/upstream/sharing.ts";
import { cancel, isOf, notify, post } from "../../fixtures/peer-messages.ts";
import { messagesOfMethod } from "../../fixtures/server-requests.ts";

const HUB = { [MetaKey.server]: { name: "toolmux", version: VERSION } };
/** What is in every result that may not be kept. */
const UNCACHED = { _meta: HUB, ttlMs: 0, cacheScope: "private", resultType: "complete" };
const CALL = "tools/call";
const LOG = "notifications/message";
const CANCELLED = "notifications/cancelled";

/** A hub with one server with these parts, and a client that has not said anything; `call` calls the server's tool. */
function begin(parts: Partial<ScriptedServer> = {}, git = new ScriptedServer("x")) {
  const setup = setUpHubWithClock({ git: Object.assign(git, parts) });
  const call = (more: object = {}, capabilities?: object): Promise<Json> =>
    sendModernRequest(setup.client, CALL, { name: "git__x", ...more }, capabilities);
  return { ...setup, git, call };
}

/** The same with a call, 1, that the server has got and does not answer. */
async function beginCall(_meta: object = {}) {
  const setup = begin({ onCall: () => undefined });
  const { client, git } = setup;
  await sendModernRequest(client, "tools/list");
  client.send(modernRequest(1, CALL, { name: "git__x", _meta }));
  await git.newestPeer?.find(isOf(CALL));
  return { ...setup, answer: () => client.find(isResponseTo(1)) };
}

describe("a modern client", () => {
  it("is told what the hub can do, without a handshake", async () => {
    const { client } = begin({ instructions: "Be kind." });
    const { result } = await sendModernRequest(client, "server/discover");
    const { supportedVersions, capabilities, instructions, ...rest } = result ?? {};
    assert.deepEqual(supportedVersions, [MODERN_VERSION]);
    assert.match(String(instructions), /SERVER__TOOL/);
    const kinds = ["tools", "prompts", "resources", "completions", "logging", "extensions"];
    assert.deepEqual(Object.keys(capabilities as object), kinds);
    assert.deepEqual(rest, UNCACHED);
  });

  it("gets lists with all that the protocol wants said, and without what only the legacy era has", async () => {
    const schema = '"inputSchema":{"type":"object"}';
    const tool = `{"name":"x","n":1.0,"execution":{"taskSupport":"optional"},${schema}}`;
    const listings = { prompts: [{ name: "p" }], resources: [{ uri: "u:1", name: "r" }] };
    const { client } = begin({ tools: [tool], listings });
    const list = async (method: string): Promise<Record<string, unknown>> => {
      const { _meta, ttlMs, cacheScope, resultType, ...rest } =
        (await sendModernRequest(client, method)).result ?? {};
      assert.deepEqual({ _meta, ttlMs, cacheScope, resultType }, UNCACHED);
      return rest;
    };
    await list("tools/list");
    const text = client.received.at(-1) ?? "";
    assert.ok(text.includes(`[{"name":"git__x","n":1.0,${schema}}]`), text);
    assert.deepEqual(await list("prompts/list"), { prompts: [{ name: "git__p" }] });
    assert.deepEqual(await list("resources/list"), { resources: listings.resources });
    assert.deepEqual(await list("resources/templates/list"), { resourceTemplates: [] });
  });

  it("calls a legacy server, which hears nothing of the envelope, and whose own resultType does not win", async () => {
    const { git, call } = begin();
    const params = { arguments: { a: 1 }, _meta: { traceparent: "t" } };
    const { result } = await call(params);
    assert.deepEqual([result?.["resultType"], result?.["_meta"]], ["complete", HUB]);
    assert.deepEqual(result?.["echo"], { name: "x", ...params });
    git.onCall = () => '"result":{"resultType":"task","content":[]}';
    assert.equal((await call()).result?.["resultType"], "complete");
  });

  it("reads resources that it is told not to keep, and is told of one that there is not as its era has it", async () => {
    const listings = { resources: [{ uri: "u:1", name: "r" }] };
    const handlers = { "resources/read": () => '"result":{"contents":[]}' };
    const { client, git } = begin({ listings, handlers });
    const read = (uri: string): Promise<Json> =>
      sendModernRequest(client, "resources/read", { uri });
    assert.deepEqual((await read("u:1")).result, { contents: [], ...UNCACHED });
    git.handlers = { "resources/read": () => '"error":{"code":-32002,"message":"none"}' };
    assert.deepEqual((await read("u:1")).error, { code: -32602, message: "none" });
    assert.equal((await read("v:1")).error?.code, -32602);
  });

  const lacking = { code: -32021, message: "no", data: { requiredCapabilities: { sampling: {} } } };
  for (const [what, error, expected] of [
    ["as it is", { code: -32000, message: "no", data: 7 }, undefined],
    ["as it is if it says what the client lacks", lacking, undefined],
    [
      "as data if it means something else to it",
      { code: -32050, message: "no", data: 7 },
      { code: -32603, message: "no", data: { code: -32050, data: 7 } },
    ],
  ] as const) {
    it(`gets a server's error ${what}`, async () => {
      const { call } = begin({ onCall: () => `"error":${JSON.stringify(error)}` });
      assert.deepEqual((await call()).error, expected ?? error);
    });
  }

  it("has no methods of the legacy era, and no unknown ones", async () => {
    const { client } = begin();
    const resources = ["resources/subscribe", "resources/unsubscribe"];
    const others = ["ping", "logging/setLevel", "tasks/result", "tasks/list", "what/ever"];
    for (const method of [...resources, ...others, "initialize"]) {
      const params = { uri: "u:1", level: "info", protocolVersion: "2025-11-25", capabilities: {} };
      const { error } = await sendModernRequest(client, method, params);
      assert.equal(error?.code, -32601, method);
    }
    assert.equal((await sendModernRequest(client, "initialize")).error?.code, -32601);
  });

  it("has to say which version it speaks, what it can be asked for, and a level of logs that there is", async () => {
    const { client, call } = begin();
    const version = { [MetaKey.version]: MODERN_VERSION };
    for (const [method, params] of [
      ["server/discover", {}],
      ["tools/list", { _meta: version }],
      ["tools/list", { _meta: { ...version, [MetaKey.capabilities]: [] } }],
    ] as const)
      assert.equal((await sendRequest(client, method, params)).error?.code, -32602);
    for (const level of ["verbose", "INFO", 3, null])
      assert.equal((await call({ _meta: { [MetaKey.level]: level } })).error?.code, -32602);
  });

  it("is told which versions there are if it speaks another", async () => {
    const _meta = { [MetaKey.version]: "2099-01-01", [MetaKey.capabilities]: {} };
    const { error } = await sendRequest(begin().client, "tools/list", { _meta });
    assert.equal(error?.code, -32022);
    const { supported, requested } = error.data ?? {};
    assert.deepEqual([supported, requested], [[MODERN_VERSION], "2099-01-01"]);
  });

  it("cannot have two requests of one id at a time, and cancels a call, at its server too", async () => {
    const { client, git } = await beginCall();
    const { error } = await sendModernWithId(client, 1, CALL, { name: "git__x" });
    assert.equal(error?.code, -32600);
    cancel(client, 1);
    const reported = await git.newestPeer?.find(isOf(CANCELLED));
    assert.equal(reported?.params?.["requestId"], git.messagesOf(CALL)[0]?.id);
  });

  it("cancels what runs by leaving", async () => {
    const { client, git } = await beginCall();
    const { newestPeer: peer } = git;
    await client.transport.close();
    await peer?.find(isOf(CANCELLED));
  });

  it("gets what the hub says when a call is late as a complete result", async () => {
    const { clock, answer } = await beginCall();
    await clock.advanceAsync(61_000);
    const { result } = await answer();
    assert.deepEqual([result?.["isError"], result?.["resultType"]], [true, "complete"]);
  });

  it("hears of logs only on requests that want them, and only from that level on", async () => {
    const { client, git, call } = begin();
    git.onCall = () => {
      for (const level of ["debug", "error"]) notify(git.newestPeer, LOG, { level, data: level });
      return '"result":{"content":[]}';
    };
    await call();
    assert.ok(client.messages.every(({ method }) => method === undefined));
    await call({ _meta: { [MetaKey.level]: "info" } });
    const reported = messagesOfMethod(client, LOG).map(({ params }) => params?.["data"]);
    assert.deepEqual(reported, ["error"]);
  });

  it("hears of a log once on its pipe, however many of its requests want it", async () => {
    const _meta = { [MetaKey.level]: "info" };
    const { client, git } = await beginCall(_meta);
    client.send(modernRequest(2, CALL, { name: "git__x", _meta }));
    await git.newestPeer?.until(() => git.messagesOf(CALL).length === 2);
    notify(git.newestPeer, LOG, { level: "info", data: "d" });
    await client.find(isOf(LOG));
    await sendModernRequest(client, "tools/list");
    assert.equal(messagesOfMethod(client, LOG).length, 1);
  });

  it("has the lowest level that it ever wanted told to servers, once", async () => {
    const capabilities = { tools: {}, logging: {} };
    const serverInfo = { name: "s", version: "1" };
    const handshake = { protocolVersion: "2025-11-25", capabilities, serverInfo };
    const { git, call } = begin({
      onInitialize: () => `"result":${JSON.stringify(handshake)}`,
      handlers: { "logging/setLevel": () => '"result":{}' },
    });
    for (const level of ["error", "error", "info", "warning"])
      await call({ _meta: { [MetaKey.level]: level } });
    await call();
    const levels = git.messagesOf("logging/setLevel").map(({ params }) => params?.["level"]);
    assert.deepEqual(levels, ["error", "info"]);
  });

  it("that has done nothing for long is none for servers any more", async () => {
    const { git, clock, call } = begin();
    await call({}, { roots: {} });
    const pose = async (id: string): Promise<string> => {
      post(git.newestPeer, id, "roots/list");
      return (await git.newestPeer?.find(isResponseTo(id)))?.error?.message ?? "";
    };
    assert.match(await pose("a"), /no request/);
    await clock.advanceAsync(7 * 60_000);
    assert.match(await pose("b"), /no client/);
    assert.equal((await call({}, { roots: {} })).result?.["resultType"], "complete");
  });

  it("may say that it can be asked for other things with each request, and is not kept for each", async () => {
    const { client, git } = begin();
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
    assert.ok(git.openCount <= MAX_CLASSES + 1, `${git.openCount} are still there`);
  });

  it("is answered by a person at work who ends its call", async () => {
    const { hub, answer } = await beginCall();
    const [running] = hub.snapshot().calls;
    assert.ok(running && hub.cancelCall(running.call));
    assert.equal((await answer()).error?.code, -31005);
  });
});
