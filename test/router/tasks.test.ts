import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Hub } from "../../src/hub/hub.ts";
import {
  messagesOfMethod,
  waitForRequest,
  INITIALIZED,
  sendServerRequest,
  SAMPLING_PARAMS,
  newestPeerOf,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  type Peer,
  setUpHubWithClock,
  type HubSetupOptions,
} from "../fixtures/memory-hub.ts";
import {
  createTask,
  RELATED_TASK_KEY,
  taskStatusesOf,
  TASK_STATUS_METHOD,
  LegacyTaskServer,
  taskJson,
  createdTaskIdOf,
} from "../fixtures/legacy-task-server.ts";

const GET = "tasks/get";
const RESULT = "tasks/result";
const CANCEL = "tasks/cancel";
const LIST = "tasks/list";
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const SAMPLING = { sampling: {} };

/** A hub with one server that has tasks, and two clients that can be asked for samples. */
async function begin(
  settings: Omit<HubSetupOptions, "clock" | "random"> = {},
): Promise<
  ReturnType<typeof setUpHubWithClock> & { git: LegacyTaskServer; other: Peer; hub: Hub }
> {
  const git = new LegacyTaskServer();
  const setup = setUpHubWithClock({ git }, settings);
  const other = setup.connect();
  for (const client of [setup.client, other]) {
    await initialize(client, SAMPLING);
    client.send(INITIALIZED);
  }
  await turn();
  return { ...setup, git, other };
}

/** The ids of what a client is listed. */
async function listTasks(client: Peer): Promise<unknown[]> {
  const { result } = await sendRequest(client, LIST);
  return (result?.["tasks"] as { taskId: string }[]).map(({ taskId }) => taskId);
}

describe("a call that becomes a task", () => {
  it("tells of it under an id that nobody can guess, and changes nothing else", async () => {
    const { client, git } = await begin();
    client.send(callRequest(1, "git__x", {}, { task: { ttl: 5 } }));
    const id = createdTaskIdOf(await client.find(isResponseTo(1)));
    assert.match(id, UUID);
    const text = `"result":{"task": ${taskJson(id)},"_meta":{"n":1.0}}`;
    assert.ok(client.received.some((each) => each.includes(text)));
    assert.deepEqual(git.messagesOf("tools/call")[0]?.params?.["task"], { ttl: 5 });
  });

  it("is answered as the server answers that has no tasks", async () => {
    const { client, git } = await begin();
    git.onCall = () => '"result":{"content":[],"x":1.0}';
    client.send(callRequest(1, "git__x", {}, { task: {} }));
    assert.deepEqual((await client.find(isResponseTo(1))).result, { content: [], x: 1 });
    git.onCall = () => '"error":{"code":-32601,"message":"no tasks"}';
    client.send(callRequest(2, "git__x", {}, { task: {} }));
    assert.equal((await client.find(isResponseTo(2))).error?.message, "no tasks");
    assert.deepEqual(await listTasks(client), []);
  });

  it("that wants to be none is passed as it is, whatever the answer looks like", async () => {
    const { client, git } = await begin();
    git.onCall = () => `"result":{"task":${taskJson("t9")}}`;
    assert.equal(createdTaskIdOf(await callTool(client, "git__x")), "t9");
  });

  it("and whose tool says so is listed with what it says", async () => {
    const git = new LegacyTaskServer();
    git.tools = ['{"name":"x","execution":{"taskSupport":"required","n":1.0}}'];
    const { client } = setUpHubWithClock({ git }, {});
    await initialize(client, SAMPLING);
    await sendRequest(client, "tools/list");
    assert.ok(client.received.some((text) => text.includes('"taskSupport":"required","n":1.0')));
  });
});

describe("a task", () => {
  it("is asked for under the server's id and shown under the hub's, byte for byte", async () => {
    const { client, git } = await begin();
    const id = await createTask(client, "git__x");
    const got = await sendRequest(client, GET, { taskId: id, _meta: { a: 1 } });
    assert.equal(got.result?.["taskId"], id);
    assert.ok(client.received.some((text) => text.includes(`"result":${taskJson(id)}`)));
    assert.deepEqual(git.messagesOf(GET)[0]?.params, { taskId: "t1", _meta: { a: 1 } });
    const { result } = await sendRequest(client, RESULT, { taskId: id });
    assert.deepEqual(result, { content: [], x: 1, _meta: { [RELATED_TASK_KEY]: { taskId: id } } });
    assert.ok(client.received.some((text) => text.includes('"x":1.0')));
    assert.equal((await sendRequest(client, CANCEL, { taskId: id })).result?.["taskId"], id);
    assert.deepEqual(git.taskIdsOf(CANCEL), ["t1"]);
  });

  it("has all its ids changed where a message has several", async () => {
    const { client, git } = await begin();
    git.onCall = () =>
      `"result":{"task":${taskJson("a")},"task":{"taskId":"a","task\\u0049d":"t1"}}`;
    const id = await createTask(client, "git__x");
    client.send(
      `{"jsonrpc":"2.0","id":7,"method":"${GET}","params":{"taskId":"x","taskId":"${id}"}}`,
    );
    await client.find(isResponseTo(7));
    assert.ok(
      newestPeerOf(git).received.some((text) => text.includes('{"taskId":"t1","taskId":"t1"}')),
    );
  });

  it("is named by its other id wherever it is said to be what a message belongs to", async () => {
    const { client, git } = await begin();
    const meta = (id: string): object => ({ _meta: { [RELATED_TASK_KEY]: { taskId: id } } });
    git.onCall = () => `"result":${JSON.stringify({ task: { taskId: "t1" }, ...meta("t1") })}`;
    const { result } = await sendRequest(client, "tools/call", { name: "git__x", task: {} });
    const { taskId } = result?.["task"] as { taskId: string };
    assert.deepEqual(result?.["_meta"], { [RELATED_TASK_KEY]: { taskId } });
    await sendRequest(client, RESULT, { taskId, ...meta(taskId) });
    assert.deepEqual(git.messagesOf(RESULT)[0]?.params, { taskId: "t1", ...meta("t1") });
  });

  it("has progress of a request for it told under the client's token", async () => {
    const { client, git } = await begin();
    const id = await createTask(client, "git__x");
    git.handlers = { ...git.handlers, [RESULT]: () => undefined };
    const params = { taskId: id, _meta: { progressToken: "mine" } };
    client.send({ jsonrpc: "2.0", id: 9, method: RESULT, params });
    await turn();
    const [request] = git.messagesOf(RESULT);
    const { progressToken } = request?.params?.["_meta"] as { progressToken: unknown };
    assert.equal(progressToken, request?.id);
    git.sendMessage({ method: "notifications/progress", params: { progressToken, progress: 1 } });
    const reported = await client.find(({ method }) => method === "notifications/progress");
    assert.deepEqual(reported.params, { progressToken: "mine", progress: 1 });
  });

  it("may point to resources by its result", async () => {
    const [a, b] = [new LegacyTaskServer(), new LegacyTaskServer()];
    for (const script of [a, b]) {
      script.listings = { resources: [] };
      script.handlers = {
        ...script.handlers,
        "resources/read": () => `"result":{"contents":[],"of":"${script === b ? "b" : "a"}"}`,
      };
    }
    const link = { type: "resource_link", uri: "x://1", name: "1" };
    b.handlers = {
      ...b.handlers,
      [RESULT]: () => `"result":${JSON.stringify({ content: [link] })}`,
    };
    const { client } = setUpHubWithClock({ a, b });
    await initialize(client);
    await sendRequest(client, RESULT, { taskId: await createTask(client, "b__x") });
    assert.equal(
      (await sendRequest(client, "resources/read", { uri: "x://1" })).result?.["of"],
      "b",
    );
  });

  it("is unknown to every other client, and to the one that guesses the server's id", async () => {
    const { client, git, other } = await begin();
    const id = await createTask(client, "git__x");
    for (const method of [GET, RESULT, CANCEL]) {
      assert.equal((await sendRequest(other, method, { taskId: id })).error?.code, -32602);
      assert.equal((await sendRequest(client, method, { taskId: "t1" })).error?.code, -32602);
      assert.equal((await sendRequest(client, method, {})).error?.code, -32602);
      assert.equal((await sendRequest(client, method)).error?.code, -32602);
      assert.deepEqual(git.taskIdsOf(method), []);
    }
  });

  it("is told of to its client alone, under its id", async () => {
    const { client, git, other } = await begin();
    const [one, two] = [await createTask(client, "git__x"), await createTask(other, "git__x")];
    git.sendStatus("t2", "working");
    git.sendStatus("t1", "completed");
    git.sendStatus("t9", "completed");
    await client.find(({ method }) => method === TASK_STATUS_METHOD);
    assert.deepEqual(taskStatusesOf(client), [[one, "completed"]]);
    assert.deepEqual(taskStatusesOf(other), [[two, "working"]]);
    assert.ok(
      client.received.some((text) => text.includes(`"params":${taskJson(one, "completed")}`)),
    );
  });

  it("has an error of its server's passed as it is", async () => {
    const { client, git } = await begin();
    const id = await createTask(client, "git__x");
    git.handlers = { ...git.handlers, [RESULT]: () => '"error":{"code":-7,"message":"it failed"}' };
    assert.deepEqual((await sendRequest(client, RESULT, { taskId: id })).error, {
      code: -7,
      message: "it failed",
    });
  });
});

describe("a request for a task's result", () => {
  it("waits for as long as it takes, while all others have their deadlines", async () => {
    const { client, git, clock } = await begin();
    const id = await createTask(client, "git__x");
    git.handlers = {};
    for (const [at, method] of [RESULT, GET, CANCEL].entries()) {
      client.send({ jsonrpc: "2.0", id: at, method, params: { taskId: id } });
    }
    await turn();
    await clock.advanceAsync(3_600_000);
    assert.deepEqual(client.messages.filter(isResponseTo(0)), []);
    assert.equal((await client.find(isResponseTo(1))).error?.code, -31003);
    assert.equal((await client.find(isResponseTo(2))).error?.code, -31003);
    assert.equal(git.messagesOf("notifications/cancelled").length, 2);
    const request = git.messagesOf(RESULT)[0];
    git.sendMessage({ id: request?.id, result: { content: [] } });
    assert.ok((await client.find(isResponseTo(0))).result);
  });

  it("can be cancelled, which leaves the task alone", async () => {
    const { client, git } = await begin();
    const id = await createTask(client, "git__x");
    git.handlers = { ...git.handlers, [RESULT]: () => undefined };
    client.send({ jsonrpc: "2.0", id: 5, method: RESULT, params: { taskId: id } });
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
    await turn();
    const [cancelled] = git.messagesOf("notifications/cancelled");
    assert.equal(cancelled?.params?.["requestId"], git.messagesOf(RESULT)[0]?.id);
    assert.deepEqual(git.taskIdsOf(CANCEL), []);
    assert.equal((await sendRequest(client, GET, { taskId: id })).result?.["status"], "working");
  });
});

describe("a call that is cancelled before it is a task", () => {
  it("has the task ended that is made of it after that", async () => {
    const { client, git } = await begin();
    git.onCall = () => undefined;
    client.send(callRequest(1, "git__x", {}, { task: {} }));
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    const { id } = git.messagesOf("tools/call")[0] ?? {};
    assert.equal(git.messagesOf("notifications/cancelled")[0]?.params?.["requestId"], id);
    git.sendMessage({ id, result: { task: { taskId: "late", status: "working" } } });
    git.sendMessage({ id, result: { task: { taskId: "again", status: "working" } } });
    await turn();
    assert.deepEqual(git.taskIdsOf(CANCEL), ["late"]);
    assert.deepEqual(client.messages.filter(isResponseTo(1)), []);
  });

  it("has it ended as well if its time ran out, or its client left", async () => {
    const { client, other, git, clock } = await begin();
    git.onCall = () => undefined;
    client.send(callRequest(1, "git__x", {}, { task: {} }));
    other.send(callRequest(1, "git__x", {}, { task: {} }));
    await turn();
    await other.transport.close();
    await clock.advanceAsync(60_001);
    for (const { id } of git.messagesOf("tools/call")) {
      git.sendMessage({ id, result: { task: { taskId: `of ${String(id)}`, status: "working" } } });
    }
    await turn();
    assert.equal(git.taskIdsOf(CANCEL).length, 2);
  });

  it("changes nothing of a call that would not have been one", async () => {
    const { client, git } = await begin();
    git.onCall = () => undefined;
    client.send(callRequest(1, "git__x"));
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    const { id } = git.messagesOf("tools/call")[0] ?? {};
    git.sendMessage({ id, result: { task: { taskId: "late", status: "working" } } });
    await turn();
    assert.deepEqual(git.taskIdsOf(CANCEL), []);
  });
});

describe("the list of tasks", () => {
  it("has the client's own, of all servers, each as it stands now", async () => {
    const [a, b] = [new LegacyTaskServer(), new LegacyTaskServer()];
    const { client, connect } = setUpHubWithClock({ a, b });
    const other = connect();
    await initialize(client);
    await initialize(other);
    const own = [await createTask(client, "a__x"), await createTask(client, "b__x")];
    const foreign = await createTask(other, "a__x");
    b.status = "completed";
    const { result } = await sendRequest(client, LIST);
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
    assert.deepEqual([a.messagesOf(LIST), b.messagesOf(LIST)], [[], []]);
  });

  it("leaves out, and forgets, what its server does not know any more", async () => {
    const { client, git } = await begin();
    const [one, two] = [await createTask(client, "git__x"), await createTask(client, "git__x")];
    const { handlers: on } = git;
    git.handlers = {
      ...on,
      [GET]: (message, text) =>
        message.params?.["taskId"] === "t1"
          ? '"error":{"code":-32602,"message":"gone"}'
          : on[GET]?.(message, text),
    };
    assert.deepEqual(await listTasks(client), [two]);
    assert.equal((await sendRequest(client, GET, { taskId: one })).error?.code, -32602);
    assert.deepEqual(git.taskIdsOf(GET), ["t1", "t2"]);
  });

  it("leaves out what is not told in time, but knows it still", async () => {
    const { client, git, clock } = await begin();
    const id = await createTask(client, "git__x");
    const { handlers: on } = git;
    git.handlers = {};
    client.send({ jsonrpc: "2.0", id: 3, method: LIST });
    await turn();
    await clock.advanceAsync(60_001);
    assert.deepEqual((await client.find(isResponseTo(3))).result, { tasks: [] });
    git.handlers = on;
    assert.deepEqual(await listTasks(client), [id]);
  });

  it("comes in pages whose cursors are good after some have gone", async () => {
    const { client, git } = await begin();
    const ids: string[] = [];
    for (let i = 0; i < 120; i++) ids.push(await createTask(client, "git__x"));
    const seen: unknown[] = [];
    let cursor: unknown;
    do {
      const { result } = await sendRequest(
        client,
        LIST,
        cursor === undefined ? undefined : { cursor },
      );
      seen.push(...(result?.["tasks"] as { taskId: string }[]).map(({ taskId }) => taskId));
      cursor = result?.["nextCursor"];
    } while (cursor !== undefined);
    assert.deepEqual(seen, ids);
    assert.equal(git.messagesOf(GET).length, 120);
    assert.equal((await sendRequest(client, LIST, { cursor: "x" })).error?.code, -32602);
  });

  it("can be cancelled", async () => {
    const { client, git, clock } = await begin();
    await createTask(client, "git__x");
    git.handlers = {};
    client.send({ jsonrpc: "2.0", id: 3, method: LIST });
    await turn();
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 3 } });
    await turn();
    assert.equal(git.messagesOf("notifications/cancelled").length, 1);
    await clock.advanceAsync(100_000);
    assert.deepEqual(client.messages.filter(isResponseTo(3)), []);
  });
});

describe("progress of a task", () => {
  it("goes on under the client's token until the task has ended", async () => {
    const { client, git, other } = await begin();
    client.send(callRequest(1, "git__x", {}, { task: {}, _meta: { progressToken: "mine" } }));
    const id = createdTaskIdOf(await client.find(isResponseTo(1)));
    const meta = git.messagesOf("tools/call")[0]?.params?.["_meta"] as { progressToken: unknown };
    const step = (progress: number): void =>
      git.sendMessage({
        method: "notifications/progress",
        params: {
          progressToken: meta.progressToken,
          progress,
          _meta: { [RELATED_TASK_KEY]: { taskId: "t1" } },
        },
      });
    step(1);
    step(2);
    git.sendStatus("t1", "completed");
    step(3);
    await client.find(({ method }) => method === TASK_STATUS_METHOD);
    await turn();
    assert.deepEqual(
      messagesOfMethod(client, "notifications/progress").map(({ params }) => params),
      [1, 2].map((progress) => ({
        progressToken: "mine",
        progress,
        _meta: { [RELATED_TASK_KEY]: { taskId: id } },
      })),
    );
    assert.deepEqual(messagesOfMethod(other, "notifications/progress"), []);
  });
});

describe("a server that ends", () => {
  it("takes its tasks with it: each client is told of its own, and why", async () => {
    const { client, git, other } = await begin();
    const [one, done] = [await createTask(client, "git__x"), await createTask(client, "git__x")];
    const two = await createTask(other, "git__x");
    git.sendStatus("t2", "completed");
    git.handlers = { ...git.handlers, [RESULT]: () => undefined };
    client.send({ jsonrpc: "2.0", id: 5, method: RESULT, params: { taskId: one } });
    await turn();
    git.disconnect();
    assert.equal((await client.find(isResponseTo(5))).error?.code, -31002);
    await other.find(({ method }) => method === TASK_STATUS_METHOD);
    assert.deepEqual(taskStatusesOf(client), [
      [done, "completed"],
      [one, "failed"],
    ]);
    assert.deepEqual(taskStatusesOf(other), [[two, "failed"]]);
    const { params } = messagesOfMethod(other, TASK_STATUS_METHOD)[0] ?? {};
    assert.match(String(params?.["statusMessage"]), /git/);
    assert.equal((await sendRequest(client, GET, { taskId: done })).error?.code, -32602);
    assert.equal(params?.["ttl"], 60_000);
    assert.equal(params?.["createdAt"], "2025-11-25T10:00:00Z");
  });

  it("is not asked for them when it is back, though it may use their ids again", async () => {
    const { client, git } = await begin();
    const old = await createTask(client, "git__x");
    git.disconnect();
    await turn();
    git.taskCount = 0;
    const id = await createTask(client, "git__x");
    assert.notEqual(id, old);
    assert.equal((await sendRequest(client, GET, { taskId: old })).result?.["status"], "failed");
    assert.equal((await sendRequest(client, RESULT, { taskId: old })).error?.code, -31002);
    assert.equal((await sendRequest(client, CANCEL, { taskId: old })).error?.code, -32602);
    assert.deepEqual(
      [git.taskIdsOf(GET), git.taskIdsOf(RESULT), git.taskIdsOf(CANCEL)],
      [[], [], []],
    );
    assert.equal((await sendRequest(client, GET, { taskId: id })).result?.["status"], "working");
    assert.deepEqual(await listTasks(client), [old, id]);
  });
});

describe("a client that leaves", () => {
  it("has what has not ended cancelled at the server, and nothing else", async () => {
    const { client, git, other } = await begin();
    await createTask(client, "git__x");
    await createTask(client, "git__x");
    await createTask(other, "git__x");
    git.sendStatus("t2", "failed");
    await sendRequest(client, RESULT, { taskId: await createTask(client, "git__x") });
    const done = await createTask(client, "git__x");
    git.status = "completed";
    await sendRequest(client, GET, { taskId: done });
    await client.transport.close();
    await turn();
    assert.deepEqual(git.taskIdsOf(CANCEL), ["t1"]);
    git.sendStatus("t1", "cancelled");
    await turn();
    assert.deepEqual(taskStatusesOf(other), []);
  });
});

describe("what a server says to belong to a task", () => {
  const related = { _meta: { [RELATED_TASK_KEY]: { taskId: "t1" } } };

  it("is asked of the task's client, though others share the server", async () => {
    const { client, git, other } = await begin();
    const id = await createTask(other, "git__x");
    const answer = sendServerRequest(git, 1, "sampling/createMessage", {
      ...SAMPLING_PARAMS,
      ...related,
    });
    const request = await waitForRequest(other, "sampling/createMessage");
    assert.deepEqual(request.params, {
      ...SAMPLING_PARAMS,
      _meta: { [RELATED_TASK_KEY]: { taskId: id } },
    });
    const result = { role: "assistant", _meta: { [RELATED_TASK_KEY]: { taskId: id } } };
    other.send({ jsonrpc: "2.0", id: request.id, result });
    assert.deepEqual((await answer).result, { role: "assistant", ...related });
    assert.deepEqual(messagesOfMethod(client, "sampling/createMessage"), []);
  });

  it("is refused if it belongs to none that is known", async () => {
    const { client, git } = await begin();
    await createTask(client, "git__x");
    const foreign = { _meta: { [RELATED_TASK_KEY]: { taskId: "t7" } } };
    const answer = await sendServerRequest(git, 1, "sampling/createMessage", {
      ...SAMPLING_PARAMS,
      ...foreign,
    });
    assert.match(answer.error?.message ?? "", /perClient/);
  });

  it("is refused if it names no task while another client's has not ended", async () => {
    const { client, git, other } = await begin();
    await createTask(other, "git__x");
    git.onCall = () => undefined;
    client.send(callRequest(1, "git__x"));
    await turn();
    const answer = await sendServerRequest(git, 1, "sampling/createMessage", SAMPLING_PARAMS);
    assert.equal(answer.error?.code, -31007);
    assert.deepEqual(messagesOfMethod(client, "sampling/createMessage"), []);
  });

  it("is logged to the task's client", async () => {
    const { client, git, other } = await begin();
    const id = await createTask(other, "git__x");
    git.sendMessage({
      method: "notifications/message",
      params: { level: "info", data: "of a task", ...related },
    });
    git.sendMessage({
      method: "notifications/message",
      params: { level: "info", data: "of nobody" },
    });
    const line = await other.find(({ method }) => method === "notifications/message");
    assert.deepEqual(line.params?.["_meta"], { [RELATED_TASK_KEY]: { taskId: id } });
    await turn();
    assert.equal(messagesOfMethod(other, "notifications/message").length, 1);
    assert.deepEqual(messagesOfMethod(client, "notifications/message"), []);
  });

  it("is none of it if it only has an id like the task's", async () => {
    const { client, git, other } = await begin();
    await createTask(other, "git__x");
    const params = { level: "info", data: "d", taskId: "t1" };
    git.sendMessage({ method: "notifications/message", params });
    await sendRequest(other, "ping");
    await turn();
    assert.deepEqual(messagesOfMethod(other, "notifications/message"), []);
    assert.deepEqual(messagesOfMethod(client, "notifications/message"), []);
  });

  it("lets the time of calls stand still while a client is asked, and outlives them", async () => {
    const { client, git, clock } = await begin();
    const id = await createTask(client, "git__x");
    git.onCall = () => undefined;
    client.send(callRequest(1, "git__x"));
    await turn();
    const answer = sendServerRequest(git, 1, "sampling/createMessage", {
      ...SAMPLING_PARAMS,
      ...related,
    });
    const request = await waitForRequest(client, "sampling/createMessage");
    await clock.advanceAsync(120_000);
    assert.deepEqual(client.messages.filter(isResponseTo(1)), []);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    client.send({ jsonrpc: "2.0", id: request.id, result: { a: id } });
    assert.deepEqual((await answer).result, { a: id });
  });
});

describe("tasks without number", () => {
  it("are refused, and those that have ended make place", async () => {
    const { client, git } = await begin();
    const first = await createTask(client, "git__x");
    for (let i = 1; i < 256; i++) await createTask(client, "git__x");
    const refused = await sendRequest(client, "tools/call", { name: "git__x", task: {} });
    assert.equal(refused.error?.code, -32600);
    assert.equal(git.taskCount, 256);
    assert.ok((await callTool(client, "git__x")).result);
    git.sendStatus("t1", "completed");
    await turn();
    await createTask(client, "git__x");
    assert.equal((await sendRequest(client, GET, { taskId: first })).error?.code, -32602);
  });
});

describe("a server that nobody uses", () => {
  it("is not stopped while it has a task that has not ended", async () => {
    const { client, git, clock } = await begin({ servers: { git: { idleStop: 1000 } } });
    await createTask(client, "git__x");
    await clock.advanceAsync(10_000);
    assert.equal(git.openCount, 1);
    git.sendStatus("t1", "completed");
    await clock.advanceAsync(10_000);
    assert.equal(git.openCount, 0);
  });
});
