import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  messagesOfMethod,
  INITIALIZED,
  newestPeerOf,
  SAMPLING_PARAMS,
  waitForRequest,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callRequest,
  initialize,
  isResponseTo,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { ALL_MODERN_CAPABILITIES, sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";
import { cancel, post, respond } from "../fixtures/peer-messages.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import {
  createTask,
  RELATED_TASK_KEY,
  taskJson,
  LegacyTaskServer,
} from "../fixtures/legacy-task-server.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const AUTO: Servers = { s: { era: "auto" } };
const CALL = "tools/call";
const ABLE_OF_TASKS = {
  elicitation: { url: {} },
  tasks: { requests: { elicitation: { create: {} } } },
};

describe("a call of one era to a server of the other", () => {
  for (const [where, uses] of [
    ["", []],
    [", also where plugins see it", [callPlugin("passing", (given, next) => next(given))]],
  ] as const) {
    it(`of a modern client is not made a task, whatever it says, but answered${where}`, async () => {
      const s = new LegacyTaskServer();
      const { client } = await setUpPluginHub(uses, { s }, { servers: AUTO });
      await sendModernRequest(client, "tools/list");
      const task = { ttl: 5 };
      const { result } = await sendModernRequest(client, CALL, { task, name: "s__x", a: 1 });
      assert.equal(result?.["resultType"], "complete");
      assert.deepEqual(result["content"], []);
      const { _meta, ...params } = s.messagesOf(CALL)[0]?.params ?? {};
      assert.deepEqual(params, { name: "x", a: 1 });
      s.onCall = () => `"result":{"task":${taskJson("t9")}}`;
      const answer = await sendModernRequest(client, CALL, { task, name: "s__x" });
      assert.equal((answer.result?.["task"] as { taskId: string }).taskId, "t9");
    });

    it(`of a legacy client is refused as a task, since no tool of a modern server can be one${where}`, async () => {
      const s = new ModernScriptedServer("x");
      const { client } = await setUpPluginHub(uses, { s }, { servers: AUTO });
      await initialize(client);
      const { error } = await sendRequest(client, CALL, { task: { ttl: 5 }, name: "s__x" });
      assert.equal(error?.code, -32601);
      assert.deepEqual(s.messagesOf(CALL), []);
    });
  }
});

describe("a modern client of legacy servers with tasks", () => {
  it("is not declared to have tasks itself", async () => {
    const git = new LegacyTaskServer();
    const { client } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list", {}, ABLE_OF_TASKS);
    const [introduction] = git.messagesOf("initialize");
    assert.deepEqual(introduction?.params?.["capabilities"], { elicitation: { url: {} } });
  });

  it("has another process than who has tasks, which is asked for their sake", async () => {
    const git = new LegacyTaskServer();
    const { client, connect } = setUpHubWithClock({ git });
    const other = connect();
    const able = { sampling: {} };
    await initialize(client, able);
    client.send(INITIALIZED);
    git.onCall = ({ params }) =>
      params?.["task"] === undefined ? undefined : `"result":{"task":${taskJson("t1")}}`;
    const id = await createTask(client, "git__x");
    await sendModernRequest(other, "tools/list", {}, able);
    const running = sendModernRequest(other, CALL, { name: "git__x" }, able);
    await git.peers[1]?.until(() => git.messagesOf(CALL).length === 2);
    assert.equal(git.transportCount, 2);
    const [server] = git.peers;
    const _meta = { [RELATED_TASK_KEY]: { taskId: "t1" } };
    post(server, "q", "sampling/createMessage", { ...SAMPLING_PARAMS, _meta });
    const asked = await waitForRequest(client, "sampling/createMessage");
    assert.deepEqual(asked.params?.["_meta"], { [RELATED_TASK_KEY]: { taskId: id } });
    respond(client, asked.id, { role: "assistant" });
    assert.deepEqual((await server?.find(isResponseTo("q")))?.result, { role: "assistant" });
    respond(newestPeerOf(git), git.messagesOf(CALL)[1]?.id, { content: [] });
    assert.equal((await running).result?.["resultType"], "complete");
    assert.equal(other.messages.length, 2, "its list and its answer");
  });

  it("comes back by itself from a URL, so nobody is told when that is visited", async () => {
    const git = new LegacyTaskServer();
    const elicitations = [{ mode: "url", message: "m", url: "https://u/", elicitationId: "e" }];
    const error = { code: -32042, message: "Visit", data: { elicitations } };
    git.onCall = () => `"error":${JSON.stringify(error)}`;
    const { client, connect } = setUpHubWithClock({ git });
    const other = connect();
    await initialize(other, ALL_MODERN_CAPABILITIES);
    other.send(INITIALIZED);
    const params = { name: "git__x" };
    const { result } = await sendModernRequest(client, CALL, params, ALL_MODERN_CAPABILITIES);
    assert.equal(result?.["resultType"], "input_required");
    const method = "notifications/elicitation/complete";
    git.sendMessage({ method, params: { elicitationId: "e" } });
    await sendRequest(other, "tools/list");
    await turn();
    for (const peer of [client, other]) assert.deepEqual(messagesOfMethod(peer, method), []);
  });
});

describe("a legacy client of a modern server", () => {
  it("has nothing cancelled as a task that is answered too late", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () => undefined;
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    await initialize(client);
    client.send(callRequest(5, "s__x"));
    await s.newestPeer?.until(() => s.messagesOf(CALL).length === 1);
    cancel(client, 5);
    await s.newestPeer?.until(() => s.messagesOf("notifications/cancelled").length === 1);
    const { id } = s.messagesOf(CALL)[0] ?? {};
    respond(s.newestPeer, id, { task: { taskId: "t1", status: "working" } });
    s.onCall = () => '"result":{"content":[]}';
    await sendRequest(client, CALL, { name: "s__x" });
    assert.deepEqual(s.messagesOf("tasks/cancel"), []);
  });

  it("is not declared to have tasks itself", async () => {
    const s = new ModernScriptedServer("x");
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    await initialize(client, ABLE_OF_TASKS);
    await sendRequest(client, CALL, { name: "s__x" });
    for (const { params } of [...s.messagesOf("server/discover"), ...s.messagesOf(CALL)]) {
      const declared = JSON.stringify(params?.["_meta"]);
      assert.ok(!declared.includes('"tasks"') && declared.includes('"elicitation"'), declared);
    }
  });
});
