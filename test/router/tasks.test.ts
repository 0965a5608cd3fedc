import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Hub } from "../../src/hub/hub.ts";
import { allOf, asked, INITIALIZED, put, SAMPLE, serverEnd } from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  ask,
  callTool,
  call,
  introduce,
  isAnswer,
  type Peer,
  setStage,
  type Settings,
} from "../fixtures/memory-hub.ts";
import {
  beginTask,
  RELATED,
  statusesOf,
  STATUS,
  Tasker,
  taskJson,
  taskOf,
} from "../fixtures/legacy-task-server.ts";

const GET = "tasks/get";
const RESULT = "tasks/result";
const CANCEL = "tasks/cancel";
const LIST = "tasks/list";
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const SAMPLING = { sampling: {} };

/** A hub with one server that has tasks, and two clients that can be asked for samples. */
async function begin(
  settings: Omit<Settings, "clock" | "random"> = {},
): Promise<ReturnType<typeof setStage> & { git: Tasker; other: Peer; hub: Hub }> {
  const git = new Tasker();
  const stage = setStage({ git }, settings);
  const other = stage.connect();
  for (const client of [stage.client, other]) {
    await introduce(client, SAMPLING);
    client.send(INITIALIZED);
  }
  await turn();
  return { ...stage, git, other };
}

/** The ids of what a client is listed. */
async function listTasks(client: Peer): Promise<unknown[]> {
  const { result } = await ask(client, LIST);
  return (result?.["tasks"] as { taskId: string }[]).map(({ taskId }) => taskId);
}

describe("a call that becomes a task", () => {
  it("tells of it under an id that nobody can guess, and changes nothing else", async () => {
    const { client, git } = await begin();
    client.send(call(1, "git__x", {}, { task: { ttl: 5 } }));
    const id = taskOf(await client.find(isAnswer(1)));
    assert.match(id, UUID);
    const text = `"result":{"task": ${taskJson(id)},"_meta":{"n":1.0}}`;
    assert.ok(client.received.some((each) => each.includes(text)));
    assert.deepEqual(git.asked("tools/call")[0]?.params?.["task"], { ttl: 5 });
  });

  it("is answered as the server answers that has no tasks", async () => {
    const { client, git } = await begin();
    git.onCall = () => '"result":{"content":[],"x":1.0}';
    client.send(call(1, "git__x", {}, { task: {} }));
    assert.deepEqual((await client.find(isAnswer(1))).result, { content: [], x: 1 });
    git.onCall = () => '"error":{"code":-32601,"message":"no tasks"}';
    client.send(call(2, "git__x", {}, { task: {} }));
    assert.equal((await client.find(isAnswer(2))).error?.message, "no tasks");
    assert.deepEqual(await listTasks(client), []);
  });

  it("that wants to be none is passed as it is, whatever the answer looks like", async () => {
    const { client, git } = await begin();
    git.onCall = () => `"result":{"task":${taskJson("t9")}}`;
    assert.equal(taskOf(await callTool(client, "git__x")), "t9");
  });

  it("and whose tool says so is listed with what it says", async () => {
    const git = new Tasker();
    git.tools = ['{"name":"x","execution":{"taskSupport":"required","n":1.0}}'];
    const { client } = setStage({ git }, {});
    await introduce(client, SAMPLING);
    await ask(client, "tools/list");
    assert.ok(client.received.some((text) => text.includes('"taskSupport":"required","n":1.0')));
  });
});

describe("a task", () => {
  it("is asked for under the server's id and shown under the hub's, byte for byte", async () => {
    const { client, git } = await begin();
    const id = await beginTask(client, "git__x");
    const got = await ask(client, GET, { taskId: id, _meta: { a: 1 } });
    assert.equal(got.result?.["taskId"], id);
    assert.ok(client.received.some((text) => text.includes(`"result":${taskJson(id)}`)));
    assert.deepEqual(git.asked(GET)[0]?.params, { taskId: "t1", _meta: { a: 1 } });
    const { result } = await ask(client, RESULT, { taskId: id });
    assert.deepEqual(result, { content: [], x: 1, _meta: { [RELATED]: { taskId: id } } });
    assert.ok(client.received.some((text) => text.includes('"x":1.0')));
    assert.equal((await ask(client, CANCEL, { taskId: id })).result?.["taskId"], id);
    assert.deepEqual(git.queries(CANCEL), ["t1"]);
  });

  it("has all its ids changed where a message has several", async () => {
    const { client, git } = await begin();
    git.onCall = () =>
      `"result":{"task":${taskJson("a")},"task":{"taskId":"a","task\\u0049d":"t1"}}`;
    const id = await beginTask(client, "git__x");
    client.send(
      `{"jsonrpc":"2.0","id":7,"method":"${GET}","params":{"taskId":"x","taskId":"${id}"}}`,
    );
    await client.find(isAnswer(7));
    assert.ok(
      serverEnd(git).received.some((text) => text.includes('{"taskId":"t1","taskId":"t1"}')),
    );
  });

  it("is named by its other id wherever it is said to be what a message belongs to", async () => {
    const { client, git } = await begin();
    const meta = (id: string): object => ({ _meta: { [RELATED]: { taskId: id } } });
    git.onCall = () => `"result":${JSON.stringify({ task: { taskId: "t1" }, ...meta("t1") })}`;
    const { result } = await ask(client, "tools/call", { name: "git__x", task: {} });
    const { taskId } = result?.["task"] as { taskId: string };
    assert.deepEqual(result?.["_meta"], { [RELATED]: { taskId } });
    await ask(client, RESULT, { taskId, ...meta(taskId) });
    assert.deepEqual(git.asked(RESULT)[0]?.params, { taskId: "t1", ...meta("t1") });
  });

  it("has progress of a request for it told under the client's token", async () => {
    const { client, git } = await begin();
    const id = await beginTask(client, "git__x");
    git.on = { ...git.on, [RESULT]: () => undefined };
    const params = { taskId: id, _meta: { progressToken: "mine" } };
    client.send({ jsonrpc: "2.0", id: 9, method: RESULT, params });
    await turn();
    const [request] = git.asked(RESULT);
    const { progressToken } = request?.params?.["_meta"] as { progressToken: unknown };
    assert.equal(progressToken, request?.id);
    git.say({ method: "notifications/progress", params: { progressToken, progress: 1 } });
    const told = await client.find(({ method }) => method === "notifications/progress");
    assert.deepEqual(told.params, { progressToken: "mine", progress: 1 });
  });

  it("may point to resources by its result", async () => {
    const [a, b] = [new Tasker(), new Tasker()];
    for (const script of [a, b]) {
      script.lists = { resources: [] };
      script.on = {
        ...script.on,
        "resources/read": () => `"result":{"contents":[],"of":"${script === b ? "b" : "a"}"}`,
      };
    }
    const link = { type: "resource_link", uri: "x://1", name: "1" };
    b.on = { ...b.on, [RESULT]: () => `"result":${JSON.stringify({ content: [link] })}` };
    const { client } = setStage({ a, b });
    await introduce(client);
    await ask(client, RESULT, { taskId: await beginTask(client, "b__x") });
    assert.equal((await ask(client, "resources/read", { uri: "x://1" })).result?.["of"], "b");
  });

  it("is unknown to every other client, and to the one that guesses the server's id", async () => {
    const { client, git, other } = await begin();
    const id = await beginTask(client, "git__x");
    for (const method of [GET, RESULT, CANCEL]) {
      assert.equal((await ask(other, method, { taskId: id })).error?.code, -32602);
      assert.equal((await ask(client, method, { taskId: "t1" })).error?.code, -32602);
      assert.equal((await ask(client, method, {})).error?.code, -32602);
      assert.equal((await ask(client, method)).error?.code, -32602);
      assert.deepEqual(git.queries(method), []);
    }
  });

  it("is told of to its client alone, under its id", async () => {
    const { client, git, other } = await begin();
    const [one, two] = [await beginTask(client, "git__x"), await beginTask(other, "git__x")];
    git.tellStatus("t2", "working");
    git.tellStatus("t1", "completed");
    git.tellStatus("t9", "completed");
    await client.find(({ method }) => method === STATUS);
    assert.deepEqual(statusesOf(client), [[one, "completed"]]);
    assert.deepEqual(statusesOf(other), [[two, "working"]]);
    assert.ok(
      client.received.some((text) => text.includes(`"params":${taskJson(one, "completed")}`)),
    );
  });

  it("has an error of its server's passed as it is", async () => {
    const { client, git } = await begin();
    const id = await beginTask(client, "git__x");
    git.on = { ...git.on, [RESULT]: () => '"error":{"code":-7,"message":"it failed"}' };
    assert.deepEqual((await ask(client, RESULT, { taskId: id })).error, {
      code: -7,
      message: "it failed",
    });
  });
});

describe("a request for a task's result", () => {
  it("waits for as long as it takes, while all others have their deadlines", async () => {
    const { client, git, clock } = await begin();
    const id = await beginTask(client, "git__x");
    git.on = {};
    for (const [at, method] of [RESULT, GET, CANCEL].entries()) {
      client.send({ jsonrpc: "2.0", id: at, method, params: { taskId: id } });
    }
    await turn();
    await clock.run(3_600_000);
    assert.deepEqual(client.messages.filter(isAnswer(0)), []);
    assert.equal((await client.find(isAnswer(1))).error?.code, -31003);
    assert.equal((await client.find(isAnswer(2))).error?.code, -31003);
    assert.equal(git.asked("notifications/cancelled").length, 2);
    const request = git.asked(RESULT)[0];
    git.say({ id: request?.id, result: { content: [] } });
    assert.ok((await client.find(isAnswer(0))).result);
  });

  it("can be cancelled, which leaves the task alone", async () => {
    const { client, git } = await begin();
    const id = await beginTask(client, "git__x");
    git.on = { ...git.on, [RESULT]: () => undefined };
    client.send({ jsonrpc: "2.0", id: 5, method: RESULT, params: { taskId: id } });
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await turn();
    const [cancelled] = git.asked("notifications/cancelled");
    assert.equal(cancelled?.params?.["requestId"], git.asked(RESULT)[0]?.id);
    assert.deepEqual(git.queries(CANCEL), []);
    assert.equal((await ask(client, GET, { taskId: id })).result?.["status"], "working");
  });
});

describe("a call that is cancelled before it is a task", () => {
  it("has the task ended that is made of it after that", async () => {
    const { client, git } = await begin();
    git.onCall = () => undefined;
    client.send(call(1, "git__x", {}, { task: {} }));
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    const { id } = git.asked("tools/call")[0] ?? {};
    assert.equal(git.asked("notifications/cancelled")[0]?.params?.["requestId"], id);
    git.say({ id, result: { task: { taskId: "late", status: "working" } } });
    git.say({ id, result: { task: { taskId: "again", status: "working" } } });
    await turn();
    assert.deepEqual(git.queries(CANCEL), ["late"]);
    assert.deepEqual(client.messages.filter(isAnswer(1)), []);
  });

  it("has it ended as well if its time ran out, or its client left", async () => {
    const { client, other, git, clock } = await begin();
    git.onCall = () => undefined;
    client.send(call(1, "git__x", {}, { task: {} }));
    other.send(call(1, "git__x", {}, { task: {} }));
    await turn();
    await other.link.close();
    await clock.run(60_001);
    for (const { id } of git.asked("tools/call")) {
      git.say({ id, result: { task: { taskId: `of ${String(id)}`, status: "working" } } });
    }
    await turn();
    assert.equal(git.queries(CANCEL).length, 2);
  });

  it("changes nothing of a call that would not have been one", async () => {
    const { client, git } = await begin();
    git.onCall = () => undefined;
    client.send(call(1, "git__x"));
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    const { id } = git.asked("tools/call")[0] ?? {};
    git.say({ id, result: { task: { taskId: "late", status: "working" } } });
    await turn();
    assert.deepEqual(git.queries(CANCEL), []);
  });
});

describe("the list of tasks", () => {
  it("has the client's own, of all servers, each as it stands now", async () => {
    const [a, b] = [new Tasker(), new Tasker()];
    const { client, connect } = setStage({ a, b });
    const other = connect();
    await introduce(client);
    await introduce(other);
    const own = [await beginTask(client, "a__x"), await beginTask(client, "b__x")];
    const foreign = await beginTask(other, "a__x");
    b.status = "completed";
    const { result } = await ask(client, LIST);
    const tasks = result?.["tasks"] as { taskId: string; status: string }[];
    assert.deepEqual(
      tasks.map(({ taskId, status }) => [taskId, status]),
      [
        [own[0], "working"],
        [own[1], "completed"],
      ],
    );
    assert.ok(client.received.some((text) => text.includes(taskJson(own[0] ?? ""))));
    assert.deepEqual(await listTasks(other), [foreign]);
    assert.deepEqual([a.asked(LIST), b.asked(LIST)], [[], []]);
  });

  it("leaves out, and forgets, what its server does not know any more", async () => {
    const { client, git } = await begin();
    const [one, two] = [await beginTask(client, "git__x"), await beginTask(client, "git__x")];
    const { on } = git;
    git.on = {
      ...on,
      [GET]: (message, text) =>
        message.params?.["taskId"] === "t1"
          ? '"error":{"code":-32602,"message":"gone"}'
          : on[GET]?.(message, text),
    };
    assert.deepEqual(await listTasks(client), [two]);
    assert.equal((await ask(client, GET, { taskId: one })).error?.code, -32602);
    assert.deepEqual(git.queries(GET), ["t1", "t2"]);
  });

  it("leaves out what is not told in time, but knows it still", async () => {
    const { client, git, clock } = await begin();
    const id = await beginTask(client, "git__x");
    const { on } = git;
    git.on = {};
    client.send({ jsonrpc: "2.0", id: 3, method: LIST });
    await turn();
    await clock.run(60_001);
    assert.deepEqual((await client.find(isAnswer(3))).result, { tasks: [] });
    git.on = on;
    assert.deepEqual(await listTasks(client), [id]);
  });

  it("comes in pages whose cursors are good after some have gone", async () => {
    const { client, git } = await begin();
    const ids: string[] = [];
    for (let i = 0; i < 120; i++) ids.push(await beginTask(client, "git__x"));
    const seen: unknown[] = [];
    let cursor: unknown;
    do {
      const { result } = await ask(client, LIST, cursor === undefined ? undefined : { cursor });
      seen.push(...(result?.["tasks"] as { taskId: string }[]).map(({ taskId }) => taskId));
      cursor = result?.["nextCursor"];
    } while (cursor !== undefined);
    assert.deepEqual(seen, ids);
    assert.equal(git.asked(GET).length, 120);
    assert.equal((await ask(client, LIST, { cursor: "x" })).error?.code, -32602);
  });

  it("can be cancelled", async () => {
    const { client, git, clock } = await begin();
    await beginTask(client, "git__x");
    git.on = {};
    client.send({ jsonrpc: "2.0", id: 3, method: LIST });
    await turn();
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 3 } });
    await turn();
    assert.equal(git.asked("notifications/cancelled").length, 1);
    await clock.run(100_000);
    assert.deepEqual(client.messages.filter(isAnswer(3)), []);
  });
});

describe("progress of a task", () => {
  it("goes on under the client's token until the task has ended", async () => {
    const { client, git, other } = await begin();
    client.send(call(1, "git__x", {}, { task: {}, _meta: { progressToken: "mine" } }));
    const id = taskOf(await client.find(isAnswer(1)));
    const meta = git.asked("tools/call")[0]?.params?.["_meta"] as { progressToken: unknown };
    const step = (progress: number): void =>
      git.say({
        method: "notifications/progress",
        params: {
          progressToken: meta.progressToken,
          progress,
          _meta: { [RELATED]: { taskId: "t1" } },
        },
      });
    step(1);
    step(2);
    git.tellStatus("t1", "completed");
    step(3);
    await client.find(({ method }) => method === STATUS);
    await turn();
    assert.deepEqual(
      allOf(client, "notifications/progress").map(({ params }) => params),
      [1, 2].map((progress) => ({
        progressToken: "mine",
        progress,
        _meta: { [RELATED]: { taskId: id } },
      })),
    );
    assert.deepEqual(allOf(other, "notifications/progress"), []);
  });
});

describe("a server that ends", () => {
  it("takes its tasks with it: each client is told of its own, and why", async () => {
    const { client, git, other } = await begin();
    const [one, done] = [await beginTask(client, "git__x"), await beginTask(client, "git__x")];
    const two = await beginTask(other, "git__x");
    git.tellStatus("t2", "completed");
    git.on = { ...git.on, [RESULT]: () => undefined };
    client.send({ jsonrpc: "2.0", id: 5, method: RESULT, params: { taskId: one } });
    await turn();
    git.die();
    assert.equal((await client.find(isAnswer(5))).error?.code, -31002);
    await other.find(({ method }) => method === STATUS);
    assert.deepEqual(statusesOf(client), [
      [done, "completed"],
      [one, "failed"],
    ]);
    assert.deepEqual(statusesOf(other), [[two, "failed"]]);
    const { params } = allOf(other, STATUS)[0] ?? {};
    assert.match(String(params?.["statusMessage"]), /git/);
    assert.equal((await ask(client, GET, { taskId: done })).error?.code, -32602);
    assert.equal(params?.["ttl"], 60_000);
    assert.equal(params?.["createdAt"], "2025-11-25T10:00:00Z");
  });

  it("is not asked for them when it is back, though it may use their ids again", async () => {
    const { client, git } = await begin();
    const old = await beginTask(client, "git__x");
    git.die();
    await turn();
    git.count = 0;
    const id = await beginTask(client, "git__x");
    assert.notEqual(id, old);
    assert.equal((await ask(client, GET, { taskId: old })).result?.["status"], "failed");
    assert.equal((await ask(client, RESULT, { taskId: old })).error?.code, -31002);
    assert.equal((await ask(client, CANCEL, { taskId: old })).error?.code, -32602);
    assert.deepEqual([git.queries(GET), git.queries(RESULT), git.queries(CANCEL)], [[], [], []]);
    assert.equal((await ask(client, GET, { taskId: id })).result?.["status"], "working");
    assert.deepEqual(await listTasks(client), [old, id]);
  });
});

describe("a client that leaves", () => {
  it("has what has not ended cancelled at the server, and nothing else", async () => {
    const { client, git, other } = await begin();
    await beginTask(client, "git__x");
    await beginTask(client, "git__x");
    await beginTask(other, "git__x");
    git.tellStatus("t2", "failed");
    await ask(client, RESULT, { taskId: await beginTask(client, "git__x") });
    const done = await beginTask(client, "git__x");
    git.status = "completed";
    await ask(client, GET, { taskId: done });
    await client.link.close();
    await turn();
    assert.deepEqual(git.queries(CANCEL), ["t1"]);
    git.tellStatus("t1", "cancelled");
    await turn();
    assert.deepEqual(statusesOf(other), []);
  });
});

describe("what a server says to belong to a task", () => {
  const related = { _meta: { [RELATED]: { taskId: "t1" } } };

  it("is asked of the task's client, though others share the server", async () => {
    const { client, git, other } = await begin();
    const id = await beginTask(other, "git__x");
    const answer = put(git, 1, "sampling/createMessage", { ...SAMPLE, ...related });
    const request = await asked(other, "sampling/createMessage");
    assert.deepEqual(request.params, { ...SAMPLE, _meta: { [RELATED]: { taskId: id } } });
    const result = { role: "assistant", _meta: { [RELATED]: { taskId: id } } };
    other.send({ jsonrpc: "2.0", id: request.id, result });
    assert.deepEqual((await answer).result, { role: "assistant", ...related });
    assert.deepEqual(allOf(client, "sampling/createMessage"), []);
  });

  it("is refused if it belongs to none that is known", async () => {
    const { client, git } = await begin();
    await beginTask(client, "git__x");
    const foreign = { _meta: { [RELATED]: { taskId: "t7" } } };
    const answer = await put(git, 1, "sampling/createMessage", { ...SAMPLE, ...foreign });
    assert.match(answer.error?.message ?? "", /perClient/);
  });

  it("is refused if it names no task while another client's has not ended", async () => {
    const { client, git, other } = await begin();
    await beginTask(other, "git__x");
    git.onCall = () => undefined;
    client.send(call(1, "git__x"));
    await turn();
    const answer = await put(git, 1, "sampling/createMessage", SAMPLE);
    assert.equal(answer.error?.code, -31007);
    assert.deepEqual(allOf(client, "sampling/createMessage"), []);
  });

  it("is logged to the task's client", async () => {
    const { client, git, other } = await begin();
    const id = await beginTask(other, "git__x");
    git.say({
      method: "notifications/message",
      params: { level: "info", data: "of a task", ...related },
    });
    git.say({ method: "notifications/message", params: { level: "info", data: "of nobody" } });
    const line = await other.find(({ method }) => method === "notifications/message");
    assert.deepEqual(line.params?.["_meta"], { [RELATED]: { taskId: id } });
    await turn();
    assert.equal(allOf(other, "notifications/message").length, 1);
    assert.deepEqual(allOf(client, "notifications/message"), []);
  });

  it("is none of it if it only has an id like the task's", async () => {
    const { client, git, other } = await begin();
    await beginTask(other, "git__x");
    const params = { level: "info", data: "d", taskId: "t1" };
    git.say({ method: "notifications/message", params });
    await ask(other, "ping");
    await turn();
    assert.deepEqual(allOf(other, "notifications/message"), []);
    assert.deepEqual(allOf(client, "notifications/message"), []);
  });

  it("lets the time of calls stand still while a client is asked, and outlives them", async () => {
    const { client, git, clock } = await begin();
    const id = await beginTask(client, "git__x");
    git.onCall = () => undefined;
    client.send(call(1, "git__x"));
    await turn();
    const answer = put(git, 1, "sampling/createMessage", { ...SAMPLE, ...related });
    const request = await asked(client, "sampling/createMessage");
    await clock.run(120_000);
    assert.deepEqual(client.messages.filter(isAnswer(1)), []);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    client.send({ jsonrpc: "2.0", id: request.id, result: { a: id } });
    assert.deepEqual((await answer).result, { a: id });
  });
});

describe("tasks without number", () => {
  it("are refused, and those that have ended make place", async () => {
    const { client, git } = await begin();
    const first = await beginTask(client, "git__x");
    for (let i = 1; i < 256; i++) await beginTask(client, "git__x");
    const refused = await ask(client, "tools/call", { name: "git__x", task: {} });
    assert.equal(refused.error?.code, -32600);
    assert.equal(git.count, 256);
    assert.ok((await callTool(client, "git__x")).result);
    git.tellStatus("t1", "completed");
    await turn();
    await beginTask(client, "git__x");
    assert.equal((await ask(client, GET, { taskId: first })).error?.code, -32602);
  });
});

describe("a server that nobody uses", () => {
  it("is not stopped while it has a task that has not ended", async () => {
    const { client, git, clock } = await begin({ servers: { git: { idleStop: 1000 } } });
    await beginTask(client, "git__x");
    await clock.run(10_000);
    assert.equal(git.open, 1);
    git.tellStatus("t1", "completed");
    await clock.run(10_000);
    assert.equal(git.open, 0);
  });
});
