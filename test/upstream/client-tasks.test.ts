import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  messagesOfMethod,
  waitForRequest,
  INITIALIZED,
  sendServerRequest,
  SAMPLING_PARAMS,
  newestPeerOf,
  setUpServerRequests,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import {
  RELATED_TASK_KEY,
  TASK_STATUS_METHOD,
  taskJson,
  createdTaskIdOf,
} from "../fixtures/legacy-task-server.ts";

const SAMPLING = "sampling/createMessage";
const GET = "tasks/get";
const RESULT = "tasks/result";
const CANCEL = "tasks/cancel";
const LIST = "tasks/list";

const ABLE = {
  sampling: {},
  elicitation: { form: {} },
  tasks: {
    list: {},
    cancel: {},
    requests: { sampling: { createMessage: {} }, elicitation: { create: {} } },
  },
};

/** The client answers what it is asked by that method, from now on. */
function answerAll(
  client: Peer,
  answers: Readonly<Record<string, (message: Json) => string>>,
): void {
  client.onMessage = (message) => {
    const answer = answers[message.method ?? ""]?.(message);
    if (answer !== undefined && message.id !== undefined) {
      client.send(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},${answer}}`);
    }
  };
}

/** A client that makes tasks `c1`, `c2`, … of all that it is asked. */
function makeTasks(client: Peer): void {
  let count = 0;
  const idOf = ({ params }: Json): string => String(params?.["taskId"]);
  answerAll(client, {
    [SAMPLING]: () => `"result":{"task":${taskJson(`c${++count}`)},"n":1.0}`,
    [GET]: (message) => `"result":${taskJson(idOf(message))}`,
    [CANCEL]: (message) => `"result":${taskJson(idOf(message), "cancelled")}`,
    [RESULT]: (message) =>
      `"result":{"role":"assistant","x":1.0,"_meta":{"${RELATED_TASK_KEY}":{"taskId":"${idOf(message)}"}}}`,
  });
}

let asks = 0;

/** The server asks so that the client makes a task of it. @returns its id */
async function commission(script: ScriptedServer, more: object = {}): Promise<string> {
  return createdTaskIdOf(
    await sendServerRequest(script, `begin ${++asks}`, SAMPLING, {
      ...SAMPLING_PARAMS,
      task: {},
      ...more,
    }),
  );
}

function query(script: ScriptedServer, method: string, params?: object): Promise<Json> {
  return sendServerRequest(script, `query ${++asks}`, method, params);
}

describe("a question that becomes a task of the client's", () => {
  it("is known to the server under an id that nobody can guess, and asked for under the client's", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    makeTasks(client);
    const id = await commission(git);
    assert.match(id, /^[0-9a-f-]{36}$/);
    const seen = (text: string): boolean =>
      newestPeerOf(git).received.some((each) => each.includes(text));
    assert.ok(seen(`"result":{"task":${taskJson(id)},"n":1.0}`));
    assert.deepEqual((await waitForRequest(client, SAMPLING)).params?.["task"], {});
    assert.equal((await query(git, GET, { taskId: id })).result?.["taskId"], id);
    assert.ok(seen(`"result":${taskJson(id)}`));
    assert.deepEqual((await waitForRequest(client, GET)).params, { taskId: "c1" });
    const { result } = await query(git, RESULT, { taskId: id });
    assert.deepEqual(result?.["_meta"], { [RELATED_TASK_KEY]: { taskId: id } });
    assert.ok(seen('"x":1.0'));
    assert.equal((await query(git, CANCEL, { taskId: id })).result?.["taskId"], id);
    assert.deepEqual((await waitForRequest(client, CANCEL)).params, { taskId: "c1" });
  });

  it("is answered as the client answers that makes none of it", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    answerAll(client, { [SAMPLING]: () => '"result":{"role":"assistant"}' });
    const { result } = await sendServerRequest(git, 1, SAMPLING, { ...SAMPLING_PARAMS, task: {} });
    assert.deepEqual(result, { role: "assistant" });
  });

  it("is unknown to every other server", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("x")];
    const { client } = setUpHubWithClock({ a, b });
    await initialize(client, ABLE);
    client.send(INITIALIZED);
    makeTasks(client);
    const id = await commission(a);
    for (const method of [GET, RESULT, CANCEL]) {
      assert.equal((await query(b, method, { taskId: id })).error?.code, -32602);
      assert.equal((await query(a, method, { taskId: "c1" })).error?.code, -32602);
    }
    assert.deepEqual((await query(b, LIST)).result, { tasks: [] });
  });

  it("is told of to its server alone, with progress until it has ended", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    makeTasks(client);
    const id = await commission(git, { _meta: { progressToken: "s" } });
    const { params } = await waitForRequest(client, SAMPLING);
    const { progressToken } = params?.["_meta"] as { progressToken: unknown };
    const step = (progress: number): void =>
      client.send({
        jsonrpc: "2.0",
        method: "notifications/progress",
        params: { progressToken, progress, _meta: { [RELATED_TASK_KEY]: { taskId: "c1" } } },
      });
    const tell = (task: string, status: string): void =>
      client.send(
        `{"jsonrpc":"2.0","method":"${TASK_STATUS_METHOD}","params":${taskJson(task, status)}}`,
      );
    step(1);
    tell("c7", "working");
    tell("c1", "completed");
    step(2);
    const told = await newestPeerOf(git).find(({ method }) => method === TASK_STATUS_METHOD);
    await turn();
    assert.equal(told.params?.["taskId"], id);
    assert.deepEqual(
      messagesOfMethod(newestPeerOf(git), "notifications/progress").map((each) => each.params),
      [{ progressToken: "s", progress: 1, _meta: { [RELATED_TASK_KEY]: { taskId: id } } }],
    );
    assert.equal(messagesOfMethod(newestPeerOf(git), TASK_STATUS_METHOD).length, 1);
  });

  it("is listed as the client says that it stands, unless it does not know it any more", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    makeTasks(client);
    const [one, two] = [await commission(git), await commission(git)];
    const all = (await query(git, LIST)).result?.["tasks"] as { taskId: string }[];
    assert.deepEqual(
      all.map(({ taskId }) => taskId),
      [one, two],
    );
    answerAll(client, {
      [GET]: ({ params }) =>
        params?.["taskId"] === "c1"
          ? '"error":{"code":-32602,"message":"gone"}'
          : `"result":${taskJson("c2")}`,
    });
    const rest = (await query(git, LIST)).result?.["tasks"] as { taskId: string }[];
    assert.deepEqual(
      rest.map(({ taskId }) => taskId),
      [two],
    );
    const before = messagesOfMethod(client, GET).length;
    assert.equal((await query(git, GET, { taskId: one })).error?.code, -32602);
    assert.equal(messagesOfMethod(client, GET).length, before);
  });

  it("is remembered as one of many, of which the oldest are forgotten", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    makeTasks(client);
    const ids: string[] = [];
    for (let i = 0; i < 257; i++) ids.push(await commission(git));
    const [first, second] = ids;
    assert.equal((await query(git, GET, { taskId: first })).error?.code, -32602);
    assert.equal((await query(git, GET, { taskId: second })).result?.["taskId"], second);
  });

  it("is listed without what the client does not tell in time", async () => {
    const { client, git, clock } = await setUpServerRequests(ABLE);
    makeTasks(client);
    await commission(git);
    client.onMessage = undefined;
    const list = query(git, LIST);
    await turn();
    await clock.advanceAsync(30_001);
    assert.deepEqual((await list).result, { tasks: [] });
    assert.equal(messagesOfMethod(client, "notifications/cancelled").length, 1);
  });

  it("is listed to a server that waits for few lists at a time", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    makeTasks(client);
    await commission(git);
    client.onMessage = undefined;
    for (let i = 0; i < 4; i++) void query(git, LIST);
    assert.equal((await query(git, LIST)).error?.code, -31007);
    assert.equal(messagesOfMethod(client, GET).length, 4);
    makeTasks(client);
    for (const { id } of messagesOfMethod(client, GET))
      client.send({ jsonrpc: "2.0", id, result: {} });
    await turn();
    for (let i = 0; i < 5; i++) assert.ok((await query(git, LIST)).result);
  });

  it("may take as long as it likes to its result, but calls of its server do not stand still for ever", async () => {
    const { client, git, clock } = await setUpServerRequests(ABLE);
    git.onCall = () => undefined;
    makeTasks(client);
    const id = await commission(git);
    client.onMessage = undefined;
    const result = query(git, RESULT, { taskId: id });
    const got = query(git, GET, { taskId: id });
    await turn();
    client.send(callRequest(1, "git__x"));
    await turn();
    await clock.advanceAsync(599_000);
    assert.deepEqual(client.messages.filter(isResponseTo(1)), []);
    await clock.advanceAsync(62_000);
    assert.equal((await got).error?.code, -31007);
    assert.equal((await client.find(isResponseTo(1))).result?.["isError"], true);
    await clock.advanceAsync(3_600_000);
    client.send({
      jsonrpc: "2.0",
      id: (await waitForRequest(client, RESULT)).id,
      result: { a: 1 },
    });
    assert.deepEqual((await result).result, { a: 1 });
  });

  it("goes with its client", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    makeTasks(client);
    const id = await commission(git);
    client.onMessage = undefined;
    const result = query(git, RESULT, { taskId: id });
    await turn();
    await client.transport.close();
    assert.equal((await result).error?.code, -31007);
    assert.equal((await query(git, GET, { taskId: id })).error?.code, -32602);
  });

  it("is cancelled if it has not ended when its server does", async () => {
    const { client, git } = await setUpServerRequests(ABLE);
    makeTasks(client);
    await commission(git);
    await commission(git);
    client.send(
      `{"jsonrpc":"2.0","method":"${TASK_STATUS_METHOD}","params":${taskJson("c2", "completed")}}`,
    );
    await query(git, RESULT, { taskId: await commission(git) });
    await query(git, CANCEL, { taskId: await commission(git) });
    const before = messagesOfMethod(client, CANCEL).length;
    await turn();
    git.disconnect();
    await client.until(() => messagesOfMethod(client, CANCEL).length > before);
    await turn();
    assert.deepEqual(
      messagesOfMethod(client, CANCEL)
        .slice(before)
        .map(({ params }) => params),
      [{ taskId: "c1" }],
    );
  });
});

describe("what a client can be asked for as a task", () => {
  it("is told to its servers, as far as it is relayed", async () => {
    const { git } = await setUpServerRequests({
      ...ABLE,
      tasks: {
        ...ABLE.tasks,
        list: { x: 1 },
        other: {},
        requests: { ...ABLE.tasks.requests, tools: {} },
      },
    });
    assert.deepEqual(git.messagesOf("initialize")[0]?.params?.["capabilities"], ABLE);
  });

  it("is left out if there is nothing, and then it is not asked about tasks", async () => {
    const { client, git } = await setUpServerRequests({
      sampling: {},
      tasks: { list: {}, cancel: {} },
    });
    assert.deepEqual(git.messagesOf("initialize")[0]?.params?.["capabilities"], { sampling: {} });
    for (const method of [GET, RESULT, CANCEL, LIST]) {
      assert.equal((await query(git, method, { taskId: "c1" })).error?.code, -32601);
    }
    assert.ok((await sendRequest(client, "ping")).result);
  });

  it("is not listed or cancelled if the client cannot do that", async () => {
    const { requests } = ABLE.tasks;
    const { git } = await setUpServerRequests({ ...ABLE, tasks: { requests } });
    assert.equal((await query(git, LIST)).error?.code, -32601);
    assert.equal((await query(git, CANCEL, { taskId: "c1" })).error?.code, -32601);
    assert.equal((await query(git, GET, { taskId: "c1" })).error?.code, -32602);
  });
});
