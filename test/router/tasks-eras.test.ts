import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { allOf, INITIALIZED, SAMPLE } from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  ask,
  call,
  introduce,
  isAnswer,
  type Peer,
  type Servers,
  setStage,
} from "../fixtures/memory-hub.ts";
import { ABLE, request } from "../fixtures/modern-requests.ts";
import { ModernScript } from "../fixtures/modern-server.ts";
import { setUpWith } from "../fixtures/plugin-hub.ts";
import { beginTask, RELATED, taskJson, Tasker } from "../fixtures/legacy-task-server.ts";
import { wrapping } from "../plugins/plugin-hub.ts";

const AUTO: Servers = { s: { era: "auto" } };
const ABLE_OF_TASKS = {
  elicitation: { url: {} },
  tasks: { requests: { elicitation: { create: {} } } },
};
const PASSING = wrapping("passing", (given, next) => next(given));
/** With and without plugins that see its calls. */
const WAYS = [
  ["", []],
  [", also where plugins see it", [PASSING]],
] as const;

async function listTasks(client: Peer): Promise<unknown> {
  return (await ask(client, "tasks/list")).result?.["tasks"];
}

describe("a modern client of servers with tasks", () => {
  for (const [where, uses] of WAYS) {
    it(`has no call made a task, whatever it says${where}`, async () => {
      const git = new Tasker();
      const { client } = await setUpWith(uses, { git });
      await request(client, "tools/list");
      const task = { ttl: 5 };
      const { result } = await request(client, "tools/call", { task, name: "git__x", a: 1 });
      assert.equal(result?.["resultType"], "complete");
      assert.deepEqual(result?.["content"], []);
      const [params] = git.asked("tools/call").map((each) => each.params);
      assert.deepEqual({ ...params, _meta: {} }, { name: "x", a: 1, _meta: {} });
      assert.equal(git.count, 0);
      git.onCall = () => `"result":{"task":${taskJson("t9")}}`;
      const answer = await request(client, "tools/call", { task, name: "git__x" });
      assert.equal((answer.result?.["task"] as { taskId: string }).taskId, "t9");
    });
  }

  it("knows none of the requests about them", async () => {
    const { client } = setStage({ git: new Tasker() });
    for (const method of ["result", "list"]) {
      const { error } = await request(client, `tasks/${method}`, { taskId: "t1" });
      assert.equal(error?.code, -32601);
    }
  });

  it("is not declared to have tasks itself", async () => {
    const git = new Tasker();
    const { client } = setStage({ git });
    await request(client, "tools/list", {}, ABLE_OF_TASKS);
    const [introduction] = git.asked("initialize");
    assert.deepEqual(introduction?.params?.["capabilities"], { elicitation: { url: {} } });
  });

  it("has another process than who has tasks, which is asked for their sake", async () => {
    const git = new Tasker();
    const { client, connect } = setStage({ git });
    const other = connect();
    await introduce(client, { sampling: {} });
    client.send(INITIALIZED);
    git.onCall = ({ params }) =>
      params?.["task"] === undefined ? undefined : `"result":{"task":${taskJson("t1")}}`;
    const id = await beginTask(client, "git__x");
    await request(other, "tools/list", {}, { sampling: {} });
    const running = request(other, "tools/call", { name: "git__x" }, { sampling: {} });
    await git.peers[1]?.until(() => git.asked("tools/call").length === 2);
    assert.equal(git.starts, 2);
    const [server] = git.peers;
    assert.ok(server);
    const params = { ...SAMPLE, _meta: { [RELATED]: { taskId: "t1" } } };
    server.send({ jsonrpc: "2.0", id: "q", method: "sampling/createMessage", params });
    const answer = server.find(isAnswer("q"));
    const asked = await client.find(({ method }) => method === "sampling/createMessage");
    assert.deepEqual(asked.params?.["_meta"], { [RELATED]: { taskId: id } });
    client.send({ jsonrpc: "2.0", id: asked.id, result: { role: "assistant" } });
    assert.deepEqual((await answer).result, { role: "assistant" });
    git.say({ id: git.asked("tools/call")[1]?.id, result: { content: [] } });
    assert.equal((await running).result?.["resultType"], "complete");
    assert.equal(other.messages.length, 2, "its list and its answer");
  });

  it("comes back by itself from a URL, so nobody is told when that is visited", async () => {
    const git = new Tasker();
    const elicitations = [{ mode: "url", message: "m", url: "https://u/", elicitationId: "e" }];
    const error = { code: -32042, message: "Visit", data: { elicitations } };
    git.onCall = () => `"error":${JSON.stringify(error)}`;
    const { client, connect } = setStage({ git });
    const other = connect();
    await introduce(other, { ...ABLE, roots: {} });
    other.send(INITIALIZED);
    const { result } = await request(client, "tools/call", { name: "git__x" }, ABLE);
    assert.equal(result?.["resultType"], "input_required");
    git.say({ method: "notifications/elicitation/complete", params: { elicitationId: "e" } });
    await ask(other, "tools/list");
    await turn();
    for (const peer of [client, other]) {
      assert.deepEqual(allOf(peer, "notifications/elicitation/complete"), []);
    }
  });
});

describe("a legacy client of a modern server", () => {
  for (const [where, uses] of WAYS) {
    it(`has no call made a task, but answered${where}`, async () => {
      const s = new ModernScript("x");
      const { client } = await setUpWith(uses, { s }, { servers: AUTO });
      await introduce(client);
      const task = { ttl: 5 };
      const { result } = await ask(client, "tools/call", { name: "s__x", task, a: 1 });
      assert.deepEqual(result?.["content"], []);
      const { _meta, ...params } = s.asked("tools/call")[0]?.params ?? {};
      assert.deepEqual(params, { name: "x", a: 1 });
      s.onCall = () => `"result":{"resultType":"complete","task":${taskJson("t1")}}`;
      const answer = await ask(client, "tools/call", { name: "s__x", task });
      assert.equal((answer.result?.["task"] as { taskId: string }).taskId, "t1");
      assert.deepEqual(await listTasks(client), []);
    });
  }

  it("has nothing cancelled as a task that is answered too late", async () => {
    const s = new ModernScript("x");
    s.onCall = () => undefined;
    const { client } = setStage({ s }, { servers: AUTO });
    await introduce(client);
    client.send(call(5, "s__x", {}, { task: {} }));
    await s.peer?.until(() => s.asked("tools/call").length === 1);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await s.peer?.until(() => s.asked("notifications/cancelled").length === 1);
    const [{ id }] = s.asked("tools/call") as [{ id: number }];
    s.peer?.send(`{"jsonrpc":"2.0","id":${id},"result":{"task":${taskJson("t1")}}}`);
    s.onCall = () => '"result":{"content":[]}';
    client.send(call(6, "s__x"));
    await client.find(isAnswer(6));
    assert.deepEqual(s.asked("tasks/cancel"), []);
  });

  it("is not declared to have tasks itself", async () => {
    const s = new ModernScript("x");
    const { client } = setStage({ s }, { servers: AUTO });
    await introduce(client, ABLE_OF_TASKS);
    await ask(client, "tools/call", { name: "s__x" });
    for (const { params } of [...s.asked("server/discover"), ...s.asked("tools/call")]) {
      const declared = params?.["_meta"] as Readonly<Record<string, unknown>>;
      assert.ok(!JSON.stringify(declared).includes('"tasks"'));
      assert.ok(JSON.stringify(declared).includes('"elicitation"'));
    }
  });
});
