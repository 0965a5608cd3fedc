import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { messagesOfMethod, INITIALIZED, SAMPLING_PARAMS } from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callRequest,
  initialize,
  isResponseTo,
  type Peer,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { ALL_MODERN_CAPABILITIES, sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import {
  createTask,
  RELATED_TASK_KEY,
  taskJson,
  LegacyTaskServer,
} from "../fixtures/legacy-task-server.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const AUTO: Servers = { s: { era: "auto" } };
const ABLE_OF_TASKS = {
  elicitation: { url: {} },
  tasks: { requests: { elicitation: { create: {} } } },
};
const PASSING = callPlugin("passing", (given, next) => next(given));
/** With and without plugins that see its calls. */
const WAYS = [
  ["", []],
  [", also where plugins see it", [PASSING]],
] as const;

async function listTasks(client: Peer): Promise<unknown> {
  return (await sendRequest(client, "tasks/list")).result?.["tasks"];
}

describe("a modern client of servers with tasks", () => {
  for (const [where, uses] of WAYS) {
    it(`has no call made a task, whatever it says${where}`, async () => {
      const git = new LegacyTaskServer();
      const { client } = await setUpPluginHub(uses, { git });
      await sendModernRequest(client, "tools/list");
      const task = { ttl: 5 };
      const { result } = await sendModernRequest(client, "tools/call", {
        task,
        name: "git__x",
        a: 1,
      });
      assert.equal(result?.["resultType"], "complete");
      assert.deepEqual(result?.["content"], []);
      const [params] = git.messagesOf("tools/call").map((each) => each.params);
      assert.deepEqual({ ...params, _meta: {} }, { name: "x", a: 1, _meta: {} });
      assert.equal(git.taskCount, 0);
      git.onCall = () => `"result":{"task":${taskJson("t9")}}`;
      const answer = await sendModernRequest(client, "tools/call", { task, name: "git__x" });
      assert.equal((answer.result?.["task"] as { taskId: string }).taskId, "t9");
    });
  }

  it("knows none of the requests about them", async () => {
    const { client } = setUpHubWithClock({ git: new LegacyTaskServer() });
    for (const method of ["result", "list"]) {
      const { error } = await sendModernRequest(client, `tasks/${method}`, { taskId: "t1" });
      assert.equal(error?.code, -32601);
    }
  });

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
    await initialize(client, { sampling: {} });
    client.send(INITIALIZED);
    git.onCall = ({ params }) =>
      params?.["task"] === undefined ? undefined : `"result":{"task":${taskJson("t1")}}`;
    const id = await createTask(client, "git__x");
    await sendModernRequest(other, "tools/list", {}, { sampling: {} });
    const running = sendModernRequest(other, "tools/call", { name: "git__x" }, { sampling: {} });
    await git.peers[1]?.until(() => git.messagesOf("tools/call").length === 2);
    assert.equal(git.transportCount, 2);
    const [server] = git.peers;
    assert.ok(server);
    const params = { ...SAMPLING_PARAMS, _meta: { [RELATED_TASK_KEY]: { taskId: "t1" } } };
    server.send({ jsonrpc: "2.0", id: "q", method: "sampling/createMessage", params });
    const answer = server.find(isResponseTo("q"));
    const asked = await client.find(({ method }) => method === "sampling/createMessage");
    assert.deepEqual(asked.params?.["_meta"], { [RELATED_TASK_KEY]: { taskId: id } });
    client.send({ jsonrpc: "2.0", id: asked.id, result: { role: "assistant" } });
    assert.deepEqual((await answer).result, { role: "assistant" });
    git.sendMessage({ id: git.messagesOf("tools/call")[1]?.id, result: { content: [] } });
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
    await initialize(other, { ...ALL_MODERN_CAPABILITIES, roots: {} });
    other.send(INITIALIZED);
    const { result } = await sendModernRequest(
      client,
      "tools/call",
      { name: "git__x" },
      ALL_MODERN_CAPABILITIES,
    );
    assert.equal(result?.["resultType"], "input_required");
    git.sendMessage({
      method: "notifications/elicitation/complete",
      params: { elicitationId: "e" },
    });
    await sendRequest(other, "tools/list");
    await turn();
    for (const peer of [client, other]) {
      assert.deepEqual(messagesOfMethod(peer, "notifications/elicitation/complete"), []);
    }
  });
});

describe("a legacy client of a modern server", () => {
  for (const [where, uses] of WAYS) {
    it(`has no call made a task, but answered${where}`, async () => {
      const s = new ModernScriptedServer("x");
      const { client } = await setUpPluginHub(uses, { s }, { servers: AUTO });
      await initialize(client);
      const task = { ttl: 5 };
      const { result } = await sendRequest(client, "tools/call", { name: "s__x", task, a: 1 });
      assert.deepEqual(result?.["content"], []);
      const { _meta, ...params } = s.messagesOf("tools/call")[0]?.params ?? {};
      assert.deepEqual(params, { name: "x", a: 1 });
      s.onCall = () => `"result":{"resultType":"complete","task":${taskJson("t1")}}`;
      const answer = await sendRequest(client, "tools/call", { name: "s__x", task });
      assert.equal((answer.result?.["task"] as { taskId: string }).taskId, "t1");
      assert.deepEqual(await listTasks(client), []);
    });
  }

  it("has nothing cancelled as a task that is answered too late", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () => undefined;
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    await initialize(client);
    client.send(callRequest(5, "s__x", {}, { task: {} }));
    await s.newestPeer?.until(() => s.messagesOf("tools/call").length === 1);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await s.newestPeer?.until(() => s.messagesOf("notifications/cancelled").length === 1);
    const [{ id }] = s.messagesOf("tools/call") as [{ id: number }];
    s.newestPeer?.send(`{"jsonrpc":"2.0","id":${id},"result":{"task":${taskJson("t1")}}}`);
    s.onCall = () => '"result":{"content":[]}';
    client.send(callRequest(6, "s__x"));
    await client.find(isResponseTo(6));
    assert.deepEqual(s.messagesOf("tasks/cancel"), []);
  });

  it("is not declared to have tasks itself", async () => {
    const s = new ModernScriptedServer("x");
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    await initialize(client, ABLE_OF_TASKS);
    await sendRequest(client, "tools/call", { name: "s__x" });
    for (const { params } of [...s.messagesOf("server/discover"), ...s.messagesOf("tools/call")]) {
      const declared = params?.["_meta"] as Readonly<Record<string, unknown>>;
      assert.ok(!JSON.stringify(declared).includes('"tasks"'));
      assert.ok(JSON.stringify(declared).includes('"elicitation"'));
    }
  });
});
