import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  messagesOfMethod,
  waitForRequest,
  INITIALIZED,
  sendServerRequest,
  SAMPLING_PARAMS,
  newestPeerOf,
} from "../fixtures/server-requests.ts";
import { cancel, isOf, post, respond } from "../fixtures/peer-messages.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  type Json,
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
const CANCELLED = "notifications/cancelled";
const PROGRESS = "notifications/progress";
const LOG = "notifications/message";
const SAMPLING = "sampling/createMessage";
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const SILENCE = (): undefined => undefined;

const relatedTo = (taskId: unknown) => ({ _meta: { [RELATED_TASK_KEY]: { taskId } } });

/** A hub with one server that has tasks, and two clients that can be asked for samples. */
async function begin(
  settings: Omit<HubSetupOptions, "clock" | "random"> = {},
  git = new LegacyTaskServer(),
) {
  const setup = setUpHubWithClock({ git }, settings);
  const { client } = setup;
  const other = setup.connect();
  for (const peer of [client, other]) {
    await initialize(peer, { sampling: {} });
    peer.send(INITIALIZED);
  }
  await turn();
  return {
    ...setup,
    git,
    other,
    create: (peer = client) => createTask(peer, "git__x"),
    request: (method: string, taskId: unknown, peer = client) =>
      sendRequest(peer, method, { taskId }),
    /** The server does not answer this method any more. */
    silence: (method: string) => (git.handlers = { ...git.handlers, [method]: SILENCE }),
  };
}

const codeOf = ({ error }: Json): number | undefined => error?.code;

/** The ids of what a client is listed. */
async function listTasks(client: Peer): Promise<unknown[]> {
  const { result } = await sendRequest(client, LIST);
  return (result?.["tasks"] as { taskId: string }[]).map(({ taskId }) => taskId);
}

const hasReceived = ({ received }: Peer, part: string): boolean =>
  received.some((text) => text.includes(part));

describe("a call that becomes a task", () => {
  it("tells of it under an id that nobody can guess, and changes nothing else", async () => {
    const { client, git } = await begin();
    client.send(callRequest(1, "git__x", {}, { task: { ttl: 5 } }));
    const id = createdTaskIdOf(await client.find(isResponseTo(1)));
    assert.match(id, UUID);
    assert.ok(hasReceived(client, `"result":{"task": ${taskJson(id)},"_meta":{"n":1.0}}`));
    assert.deepEqual(git.messagesOf("tools/call")[0]?.params?.["task"], { ttl: 5 });
  });

  it("is answered as the server answers that has no tasks", async () => {
    const { client, git } = await begin();
    const params = { name: "git__x", task: {} };
    git.onCall = () => '"result":{"content":[],"x":1.0}';
    const { result } = await sendRequest(client, "tools/call", params);
    assert.deepEqual(result, { content: [], x: 1 });
    git.onCall = () => '"error":{"code":-32601,"message":"no tasks"}';
    assert.equal((await sendRequest(client, "tools/call", params)).error?.message, "no tasks");
    assert.deepEqual(await listTasks(client), []);
  });

  it("is refused if the tool or its server does not declare that it can be one", async () => {
    const tool = (execution?: object): string => JSON.stringify({ name: "x", execution });
    const optional = { taskSupport: "optional" };
    const cases = [
      [tool(), undefined],
      [tool({}), undefined],
      [tool({ taskSupport: "forbidden" }), undefined],
      [tool({ taskSupport: true }), undefined],
      [tool(optional), {}],
      [tool(optional), { tasks: { list: {} } }],
    ] as const;
    for (const [listed, capabilities] of cases) {
      const git = new LegacyTaskServer();
      git.tools = [listed];
      if (capabilities !== undefined) git.capabilities = capabilities;
      const { client } = await begin({}, git);
      const params = { name: "git__x", task: {} };
      assert.equal(codeOf(await sendRequest(client, "tools/call", params)), -32601, listed);
      assert.deepEqual(git.messagesOf("tools/call"), []);
      assert.deepEqual((await callTool(client, "git__x")).result, { content: [] });
    }
  });

  it("is an ordinary call for a client to which tasks were not declared", async () => {
    const git = new LegacyTaskServer();
    const { client } = setUpHubWithClock({ git });
    const params = { protocolVersion: "2025-06-18", capabilities: {} };
    await sendRequest(client, "initialize", params);
    const call = { name: "git__x", task: {}, arguments: { a: 1 } };
    assert.deepEqual((await sendRequest(client, "tools/call", call)).result, { content: [] });
    assert.equal(git.messagesOf("tools/call")[0]?.params?.["task"], undefined);
  });

  it("that wants to be none is passed as it is, whatever the answer looks like", async () => {
    const { client, git } = await begin();
    git.onCall = () => `"result":{"task":${taskJson("t9")}}`;
    assert.equal(createdTaskIdOf(await callTool(client, "git__x")), "t9");
  });

  it("and whose tool says so is listed with what it says", async () => {
    const git = new LegacyTaskServer();
    git.tools = ['{"name":"x","execution":{"taskSupport":"required","n":1.0}}'];
    const { client } = setUpHubWithClock({ git });
    await initialize(client);
    await sendRequest(client, "tools/list");
    assert.ok(hasReceived(client, '"taskSupport":"required","n":1.0'));
  });
});

describe("a task", () => {
  it("is asked for under the server's id and shown under the hub's, byte for byte", async () => {
    const { client, git, create, request } = await begin();
    const id = await create();
    const got = await sendRequest(client, GET, { taskId: id, _meta: { a: 1 } });
    assert.equal(got.result?.["taskId"], id);
    assert.ok(hasReceived(client, `"result":${taskJson(id)}`));
    assert.deepEqual(git.messagesOf(GET)[0]?.params, { taskId: "t1", _meta: { a: 1 } });
    const { result } = await request(RESULT, id);
    assert.deepEqual(result, { content: [], x: 1, ...relatedTo(id) });
    assert.ok(hasReceived(client, '"x":1.0'));
    assert.equal((await request(CANCEL, id)).result?.["taskId"], id);
    assert.deepEqual(git.taskIdsOf(CANCEL), ["t1"]);
  });

  it("has all its ids changed where a message has several", async () => {
    const { client, git, create } = await begin();
    git.onCall = () =>
      `"result":{"task":${taskJson("a")},"task":{"taskId":"a","task\\u0049d":"t1"}}`;
    const id = await create();
    client.send(
      `{"jsonrpc":"2.0","id":7,"method":"${GET}","params":{"taskId":"x","taskId":"${id}"}}`,
    );
    await client.find(isResponseTo(7));
    assert.ok(hasReceived(newestPeerOf(git), '{"taskId":"t1","taskId":"t1"}'));
  });

  it("is named by its other id wherever it is said to be what a message belongs to", async () => {
    const { client, git } = await begin();
    git.onCall = () => `"result":${JSON.stringify({ task: { taskId: "t1" }, ...relatedTo("t1") })}`;
    const { result } = await sendRequest(client, "tools/call", { name: "git__x", task: {} });
    const { taskId } = result?.["task"] as { taskId: string };
    assert.deepEqual({ _meta: result?.["_meta"] }, relatedTo(taskId));
    await sendRequest(client, RESULT, { taskId, ...relatedTo(taskId) });
    assert.deepEqual(git.messagesOf(RESULT)[0]?.params, { taskId: "t1", ...relatedTo("t1") });
  });

  it("has progress of a request for it told under the client's token", async () => {
    const { client, git, create, silence } = await begin();
    const id = await create();
    silence(RESULT);
    post(client, 9, RESULT, { taskId: id, _meta: { progressToken: "mine" } });
    await turn();
    const [request] = git.messagesOf(RESULT);
    const { progressToken } = request?.params?.["_meta"] as { progressToken: unknown };
    assert.equal(progressToken, request?.id);
    git.sendMessage({ method: PROGRESS, params: { progressToken, progress: 1 } });
    const { params } = await client.find(isOf(PROGRESS));
    assert.deepEqual(params, { progressToken: "mine", progress: 1 });
  });

  it("may point to resources by its result", async () => {
    const scripts = { a: new LegacyTaskServer(), b: new LegacyTaskServer() };
    const link = { type: "resource_link", uri: "x://1", name: "1" };
    for (const [of, script] of Object.entries(scripts)) {
      script.listings = { resources: [] };
      script.handlers = {
        ...script.handlers,
        "resources/read": () => `"result":{"contents":[],"of":"${of}"}`,
        ...(of === "b" && { [RESULT]: () => `"result":${JSON.stringify({ content: [link] })}` }),
      };
    }
    const { client } = setUpHubWithClock(scripts);
    await initialize(client);
    await sendRequest(client, RESULT, { taskId: await createTask(client, "b__x") });
    const { result } = await sendRequest(client, "resources/read", { uri: "x://1" });
    assert.equal(result?.["of"], "b");
  });

  it("is unknown to every other client, and to the one that guesses the server's id", async () => {
    const { client, git, other, create, request } = await begin();
    const id = await create();
    for (const method of [GET, RESULT, CANCEL]) {
      const answers = [
        await request(method, id, other),
        await request(method, "t1"),
        await sendRequest(client, method, {}),
        await sendRequest(client, method),
      ];
      for (const answer of answers) assert.equal(codeOf(answer), -32602);
      assert.deepEqual(git.taskIdsOf(method), []);
    }
  });

  it("is told of to its client alone, under its id", async () => {
    const { client, git, other, create } = await begin();
    const [one, two] = [await create(), await create(other)];
    git.sendStatus("t2", "working");
    git.sendStatus("t1", "completed");
    git.sendStatus("t9", "completed");
    await client.find(isOf(TASK_STATUS_METHOD));
    assert.deepEqual(taskStatusesOf(client), [[one, "completed"]]);
    assert.deepEqual(taskStatusesOf(other), [[two, "working"]]);
    assert.ok(hasReceived(client, `"params":${taskJson(one, "completed")}`));
  });

  it("has an error of its server's passed as it is", async () => {
    const { git, create, request } = await begin();
    const id = await create();
    const error = { code: -7, message: "it failed" };
    git.handlers = { ...git.handlers, [RESULT]: () => `"error":${JSON.stringify(error)}` };
    assert.deepEqual((await request(RESULT, id)).error, error);
  });

  it("keeps its server from being stopped as unused until it has ended", async () => {
    const { git, clock, create } = await begin({ servers: { git: { idleStop: 1000 } } });
    await create();
    await clock.advanceAsync(10_000);
    assert.equal(git.openCount, 1);
    git.sendStatus("t1", "completed");
    await clock.advanceAsync(10_000);
    assert.equal(git.openCount, 0);
  });

  it("of too many is refused, and those that have ended make place", async () => {
    const { client, git, create, request } = await begin();
    const first = await create();
    for (let i = 1; i < 256; i++) await create();
    const refused = await sendRequest(client, "tools/call", { name: "git__x", task: {} });
    assert.equal(codeOf(refused), -32600);
    assert.equal(git.taskCount, 256);
    assert.ok((await callTool(client, "git__x")).result);
    git.sendStatus("t1", "completed");
    await turn();
    await create();
    assert.equal(codeOf(await request(GET, first)), -32602);
  });
});

describe("a request for a task's result", () => {
  it("waits for as long as it takes, while all others have their deadlines", async () => {
    const { client, git, clock, create } = await begin();
    const taskId = await create();
    git.handlers = {};
    for (const method of [RESULT, GET, CANCEL]) post(client, method, method, { taskId });
    await turn();
    await clock.advanceAsync(3_600_000);
    assert.ok(!client.messages.some(isResponseTo(RESULT)));
    for (const method of [GET, CANCEL]) {
      assert.equal(codeOf(await client.find(isResponseTo(method))), -31003);
    }
    assert.equal(git.messagesOf(CANCELLED).length, 2);
    respond(git.newestPeer, git.messagesOf(RESULT)[0]?.id, { content: [] });
    assert.ok((await client.find(isResponseTo(RESULT))).result);
  });

  it("can be cancelled, which leaves the task alone", async () => {
    const { client, git, create, request, silence } = await begin();
    const taskId = await create();
    silence(RESULT);
    post(client, 5, RESULT, { taskId });
    cancel(client, 5);
    await turn();
    const [cancelled] = git.messagesOf(CANCELLED);
    assert.equal(cancelled?.params?.["requestId"], git.messagesOf(RESULT)[0]?.id);
    assert.deepEqual(git.taskIdsOf(CANCEL), []);
    assert.equal((await request(GET, taskId)).result?.["status"], "working");
  });
});

describe("a call that is cancelled before it is a task", () => {
  for (const [what, more, ended] of [
    ["has the task ended that is made of it after that", { task: {} }, ["late"]],
    ["changes nothing if it would not have been one", {}, []],
  ] as const) {
    it(what, async () => {
      const { client, git } = await begin();
      git.onCall = SILENCE;
      client.send(callRequest(1, "git__x", {}, more));
      cancel(client, 1);
      await turn();
      const { id } = git.messagesOf("tools/call")[0] ?? {};
      assert.equal(git.messagesOf(CANCELLED)[0]?.params?.["requestId"], id);
      for (const taskId of ["late", "again"]) {
        respond(git.newestPeer, id, { task: { taskId, status: "working" } });
      }
      await turn();
      assert.deepEqual(git.taskIdsOf(CANCEL), ended);
      assert.ok(!client.messages.some(isResponseTo(1)));
    });
  }

  it("has it ended as well if its time ran out, or its client left", async () => {
    const { client, other, git, clock } = await begin();
    git.onCall = SILENCE;
    for (const peer of [client, other]) peer.send(callRequest(1, "git__x", {}, { task: {} }));
    await turn();
    await other.transport.close();
    await clock.advanceAsync(60_001);
    for (const { id } of git.messagesOf("tools/call")) {
      const task = { taskId: `of ${String(id)}`, status: "working" };
      respond(git.newestPeer, id, { task });
    }
    await turn();
    assert.equal(git.taskIdsOf(CANCEL).length, 2);
  });
});

describe("the list of tasks", () => {
  it("has the client's own, of all servers, each as it stands now", async () => {
    const [a, b] = [new LegacyTaskServer(), new LegacyTaskServer()];
    const { client, connect } = setUpHubWithClock({ a, b });
    const other = connect();
    for (const peer of [client, other]) await initialize(peer);
    const [one, two] = [await createTask(client, "a__x"), await createTask(client, "b__x")];
    const foreign = await createTask(other, "a__x");
    b.status = "completed";
    const { result } = await sendRequest(client, LIST);
    const tasks = result?.["tasks"] as { taskId: string; status: string }[];
    const listed = tasks.map(({ taskId, status }) => `${taskId} ${status}`);
    assert.deepEqual(listed, [`${one} working`, `${two} completed`]);
    assert.ok(hasReceived(client, taskJson(one)));
    assert.deepEqual(await listTasks(other), [foreign]);
    assert.deepEqual([a.messagesOf(LIST), b.messagesOf(LIST)], [[], []]);
  });

  it("leaves out, and forgets, what its server does not know any more", async () => {
    const { client, git, create, request } = await begin();
    const [one, two] = [await create(), await create()];
    const get = git.handlers[GET];
    git.handlers = {
      ...git.handlers,
      [GET]: (message, text) =>
        message.params?.["taskId"] === "t1"
          ? '"error":{"code":-32602,"message":"gone"}'
          : get?.(message, text),
    };
    assert.deepEqual(await listTasks(client), [two]);
    assert.equal(codeOf(await request(GET, one)), -32602);
    assert.deepEqual(git.taskIdsOf(GET), ["t1", "t2"]);
  });

  it("leaves out what is not told in time, but knows it still", async () => {
    const { client, git, clock, create } = await begin();
    const id = await create();
    const { handlers } = git;
    git.handlers = {};
    const list = listTasks(client);
    await turn();
    await clock.advanceAsync(60_001);
    assert.deepEqual(await list, []);
    git.handlers = handlers;
    assert.deepEqual(await listTasks(client), [id]);
  });

  it("comes in pages whose cursors are good after some have gone", async () => {
    const { client, git, create } = await begin();
    const ids: string[] = [];
    for (let i = 0; i < 120; i++) ids.push(await create());
    const seen: unknown[] = [];
    let cursor: unknown;
    do {
      const { result } = await sendRequest(client, LIST, cursor === undefined ? {} : { cursor });
      seen.push(...(result?.["tasks"] as { taskId: string }[]).map(({ taskId }) => taskId));
      cursor = result?.["nextCursor"];
    } while (cursor !== undefined);
    assert.deepEqual(seen, ids);
    assert.equal(git.messagesOf(GET).length, 120);
    assert.equal(codeOf(await sendRequest(client, LIST, { cursor: "x" })), -32602);
  });

  it("can be cancelled", async () => {
    const { client, git, clock, create } = await begin();
    await create();
    git.handlers = {};
    post(client, 3, LIST);
    await turn();
    cancel(client, 3);
    await turn();
    assert.equal(git.messagesOf(CANCELLED).length, 1);
    await clock.advanceAsync(100_000);
    assert.ok(!client.messages.some(isResponseTo(3)));
  });
});

describe("progress of a task", () => {
  it("goes on under the client's token until the task has ended", async () => {
    const { client, git, other } = await begin();
    client.send(callRequest(1, "git__x", {}, { task: {}, _meta: { progressToken: "mine" } }));
    const id = createdTaskIdOf(await client.find(isResponseTo(1)));
    const meta = git.messagesOf("tools/call")[0]?.params?.["_meta"] as { progressToken: unknown };
    const step = (progress: number): void =>
      git.sendMessage({ method: PROGRESS, params: { ...meta, progress, ...relatedTo("t1") } });
    step(1);
    step(2);
    git.sendStatus("t1", "completed");
    step(3);
    await client.find(isOf(TASK_STATUS_METHOD));
    await turn();
    const reported = messagesOfMethod(client, PROGRESS).map(({ params }) => params);
    const expected = { progressToken: "mine", ...relatedTo(id) };
    assert.deepEqual(reported, [
      { ...expected, progress: 1 },
      { ...expected, progress: 2 },
    ]);
    assert.deepEqual(messagesOfMethod(other, PROGRESS), []);
  });
});

describe("a server that ends", () => {
  it("takes its tasks with it: each client is told of its own, and why", async () => {
    const { client, git, other, create, request, silence } = await begin();
    const [one, done] = [await create(), await create()];
    const two = await create(other);
    git.sendStatus("t2", "completed");
    silence(RESULT);
    const result = request(RESULT, one);
    await turn();
    git.disconnect();
    assert.equal(codeOf(await result), -31002);
    const { params } = await other.find(isOf(TASK_STATUS_METHOD));
    const statuses = [taskStatusesOf(client), taskStatusesOf(other)].map((each) => each.join(" "));
    assert.deepEqual(statuses, [`${done},completed ${one},failed`, `${two},failed`]);
    assert.match(String(params?.["statusMessage"]), /git/);
    assert.equal(codeOf(await request(GET, done)), -32602);
    assert.deepEqual([params?.["ttl"], params?.["createdAt"]], [60_000, "2025-11-25T10:00:00Z"]);
  });

  it("is not asked for them when it is back, though it may use their ids again", async () => {
    const { client, git, create, request } = await begin();
    const old = await create();
    git.disconnect();
    await turn();
    git.taskCount = 0;
    const id = await create();
    assert.notEqual(id, old);
    assert.equal((await request(GET, old)).result?.["status"], "failed");
    assert.equal(codeOf(await request(RESULT, old)), -31002);
    assert.equal(codeOf(await request(CANCEL, old)), -32602);
    for (const method of [GET, RESULT, CANCEL]) assert.deepEqual(git.taskIdsOf(method), []);
    assert.equal((await request(GET, id)).result?.["status"], "working");
    assert.deepEqual(await listTasks(client), [old, id]);
  });
});

describe("a client that leaves", () => {
  it("has what has not ended cancelled at the server, and nothing else", async () => {
    const { client, git, other, create, request } = await begin();
    for (const peer of [client, client, other]) await create(peer);
    git.sendStatus("t2", "failed");
    await request(RESULT, await create());
    const done = await create();
    git.status = "completed";
    await request(GET, done);
    await client.transport.close();
    await turn();
    assert.deepEqual(git.taskIdsOf(CANCEL), ["t1"]);
    git.sendStatus("t1", "cancelled");
    await turn();
    assert.deepEqual(taskStatusesOf(other), []);
  });
});

describe("what a server says to belong to a task", () => {
  const sample = (git: LegacyTaskServer, more: object = {}): Promise<Json> =>
    sendServerRequest(git, 1, SAMPLING, { ...SAMPLING_PARAMS, ...more });
  const log = (git: LegacyTaskServer, more: object): void =>
    git.sendMessage({ method: LOG, params: { level: "info", data: "d", ...more } });

  it("is asked of the task's client, though others share the server", async () => {
    const { client, git, other, create } = await begin();
    const id = await create(other);
    const answer = sample(git, relatedTo("t1"));
    const request = await waitForRequest(other, SAMPLING);
    assert.deepEqual(request.params, { ...SAMPLING_PARAMS, ...relatedTo(id) });
    respond(other, request.id, { role: "assistant", ...relatedTo(id) });
    assert.deepEqual((await answer).result, { role: "assistant", ...relatedTo("t1") });
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
  });

  it("is refused if it belongs to none that is known", async () => {
    const { git, create } = await begin();
    await create();
    assert.match((await sample(git, relatedTo("t7"))).error?.message ?? "", /perClient/);
  });

  it("is refused if it names no task while another client's has not ended", async () => {
    const { client, git, other, create } = await begin();
    await create(other);
    git.onCall = SILENCE;
    client.send(callRequest(1, "git__x"));
    await turn();
    assert.equal(codeOf(await sample(git)), -31007);
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
  });

  it("is logged to the task's client, and to nobody if it only has an id like the task's", async () => {
    const { client, git, other, create } = await begin();
    const id = await create(other);
    for (const more of [{ taskId: "t1" }, relatedTo("t1"), {}]) log(git, more);
    const { params } = await other.find(isOf(LOG));
    assert.deepEqual({ _meta: params?.["_meta"] }, relatedTo(id));
    await sendRequest(other, "ping");
    await turn();
    const counts = [other, client].map((peer) => messagesOfMethod(peer, LOG).length);
    assert.deepEqual(counts, [1, 0]);
  });

  it("lets the time of calls stand still while a client is asked, and outlives them", async () => {
    const { client, git, clock, create } = await begin();
    const id = await create();
    git.onCall = SILENCE;
    client.send(callRequest(1, "git__x"));
    await turn();
    const answer = sample(git, relatedTo("t1"));
    const request = await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(120_000);
    assert.ok(!client.messages.some(isResponseTo(1)));
    cancel(client, 1);
    await turn();
    respond(client, request.id, { a: id });
    assert.deepEqual((await answer).result, { a: id });
  });
});
