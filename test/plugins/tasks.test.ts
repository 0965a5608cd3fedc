import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callRequest,
  isResponseTo,
  type Json,
  Latch,
  type Peer,
} from "../fixtures/memory-hub.ts";
import {
  createTask,
  RELATED_TASK_KEY,
  TASK_STATUS_METHOD,
  LegacyTaskServer,
  createdTaskIdOf,
} from "../fixtures/legacy-task-server.ts";
import {
  answerTo,
  cancelOf,
  type CallHandler,
  callsOf,
  errorCodeOf,
  openPluginHub,
  openWithClock,
  callPlugin,
} from "./plugin-hub.ts";

const RESULT = "tasks/result";
const TASK_CALL = callRequest(1, "git__x", {}, { task: {} });

/** Marks results and records them. */
const marking =
  (seen: string[] = []): CallHandler =>
  async (given, next) => {
    const answer = await next(given);
    seen.push(answer.json);
    return given.answer({ marked: answer.value });
  };
/** Only passes calls on. */
const passing: CallHandler = (given, next) => next(given);
/** Answers nothing when its server has answered. */
const stuck: CallHandler = async (given, next) => {
  await next(given);
  return new Promise(() => {});
};

/** A hub with a plugin that does this with calls, over a server of tasks. */
async function open(run: CallHandler) {
  const git = new LegacyTaskServer();
  return { ...(await openPluginHub([callPlugin("p", run)], { git })), git };
}

/** The same when a client has made a task, with its id. */
async function begin(run: CallHandler) {
  const setup = await open(run);
  return { ...setup, id: await createTask(setup.client, "git__x") };
}

const resultOf = (client: Peer, taskId: unknown): Promise<Json> =>
  sendRequest(client, RESULT, { taskId });
const askResult = (client: Peer, taskId: unknown, id: unknown = "r"): void =>
  client.send({ jsonrpc: "2.0", id, method: RESULT, params: { taskId } });

describe("a task of a tool that plugins see", () => {
  it("is told of at once, and its result is what the plugins answer", async () => {
    const seen: string[] = [];
    const { client, events, plugins, git, id } = await begin(marking(seen));
    assert.deepEqual(seen, []);
    assert.deepEqual(callsOf(events), ["started git__x", "answered"]);
    assert.equal((await sendRequest(client, "tasks/get", { taskId: id })).result?.["taskId"], id);
    assert.deepEqual(seen, []);
    const marked = { content: [], x: 1, _meta: { [RELATED_TASK_KEY]: { taskId: id } } };
    for (const _ of [1, 2]) {
      assert.deepEqual((await resultOf(client, id)).result, { marked });
      assert.equal(seen.length, 1);
    }
    assert.deepEqual(git.taskIdsOf(RESULT), ["t1"]);
    assert.deepEqual(callsOf(events), ["started git__x", "answered"]);
    await plugins.whenIdle(0);
  });

  it("has its result as it is if they only pass it on", async () => {
    const { client, id } = await begin(passing);
    await resultOf(client, id);
    assert.ok(client.received.some((text) => text.includes('"x":1.0')));
  });

  it("is none if the server, or a plugin, answers at once", async () => {
    const { client, git } = await open(marking());
    git.onCall = () => '"result":{"content":[]}';
    const { result } = await answerTo(client, 1, TASK_CALL);
    assert.deepEqual(result, { marked: { content: [] } });
    const refusing = await open((given) => Promise.resolve(given.refuse("No.")));
    const refused = await answerTo(refusing.client, 1, TASK_CALL);
    assert.equal(refused.result?.["isError"], true);
    assert.deepEqual([git.taskCount, refusing.git.taskCount], [0, 0]);
  });

  it("is given one result, whoever asks for it while the plugins are at it", async () => {
    const gate = new Latch();
    const { client, git, id } = await begin(async (given, next) => {
      const answer = await next(given);
      await gate.wait();
      return answer;
    });
    for (const key of [1, 2]) askResult(client, id, key);
    await turn();
    const third = resultOf(client, id);
    await turn();
    assert.deepEqual(client.messages.filter(isResponseTo(1)), []);
    gate.open();
    for (const key of [1, 2]) assert.equal((await client.find(isResponseTo(key))).result?.["x"], 1);
    assert.equal((await third).result?.["x"], 1);
    assert.deepEqual(git.taskIdsOf(RESULT), ["t1", "t1"]);
  });

  it("may take as long as it likes, but the plugins have the call's time for its result", async () => {
    const git = new LegacyTaskServer();
    const { client, clock } = await openWithClock([callPlugin("stuck", stuck)], { git });
    const id = await createTask(client, "git__x");
    await clock.advanceAsync(3_600_000);
    askResult(client, id);
    await turn();
    await clock.advanceAsync(59_000);
    assert.deepEqual(client.messages.filter(isResponseTo("r")), []);
    await clock.advanceAsync(2000);
    assert.equal((await client.find(isResponseTo("r"))).result?.["isError"], true);
  });

  it("gives the plugins no more time for what its server asked before it was a task", async () => {
    const git = new LegacyTaskServer();
    git.onCall = () => undefined;
    const plugins = [callPlugin("stuck", stuck)];
    const { client, clock } = await openWithClock(plugins, { git }, {}, { sampling: {} });
    client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    client.send(TASK_CALL);
    await turn();
    git.sendMessage({ id: "s", method: "sampling/createMessage", params: {} });
    await client.find(({ method }) => method === "sampling/createMessage");
    const { id } = git.messagesOf("tools/call")[0] ?? {};
    git.sendMessage({ id, result: { task: { taskId: "t1" } } });
    const taskId = createdTaskIdOf(await client.find(isResponseTo(1)));
    await clock.advanceAsync(500_000);
    askResult(client, taskId);
    await turn();
    await clock.advanceAsync(61_000);
    assert.equal((await client.find(isResponseTo("r"))).result?.["isError"], true);
  });

  it("is one: what plugins send again when it has begun is refused, and its task ended", async () => {
    const { client, git, id } = await begin((given, next) => {
      const first = next(given);
      return next(given).catch(() => first);
    });
    await turn();
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["t2"]);
    assert.equal((await resultOf(client, id)).result?.["x"], 1);
  });

  it("ends if a plugin answers without waiting for its result", async () => {
    let answer = (): void => {};
    const { client, git, id } = await begin((given, next) => {
      void next(given).catch(() => {});
      return new Promise((resolve) => (answer = () => resolve(given.answer({ early: true }))));
    });
    answer();
    await turn();
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["t1"]);
    assert.deepEqual((await resultOf(client, id)).result, { early: true });
  });

  it("that is lost with its server fails for the plugins as for the client", async () => {
    const seen: unknown[] = [];
    const { client, git, id } = await begin(async (given, next) => {
      try {
        return await next(given);
      } catch (error) {
        seen.push(errorCodeOf(error));
        throw error;
      }
    });
    git.disconnect();
    await client.find(({ method }) => method === TASK_STATUS_METHOD);
    assert.deepEqual(seen, ["connectionLost"]);
    const { result } = await resultOf(client, id);
    assert.deepEqual([result?.["isError"], seen], [true, ["connectionLost"]]);
  });

  it("does not hold up the hub's end", async () => {
    const { hub, client, git, id } = await begin(marking());
    git.handlers = {};
    askResult(client, id);
    await turn();
    await hub.close();
    assert.equal((await client.find(isResponseTo("r"))).error?.code, -31001);
  });

  it("that was forgotten for others has no result for who still waits for it", async () => {
    const { client, git } = await open(passing);
    git.handlers = { ...git.handlers, [RESULT]: () => undefined };
    askResult(client, await createTask(client, "git__x"));
    git.sendStatus("t1", "completed");
    for (let i = 0; i < 256; i++) await createTask(client, "git__x");
    git.sendMessage({ id: git.messagesOf(RESULT)[0]?.id, result: { content: [] } });
    assert.equal((await client.find(isResponseTo("r"))).error?.code, -31005);
  });

  it("holds no plugin when its client has left", async () => {
    const signals: AbortSignal[] = [];
    const { client, git, plugins } = await begin(async (given, next) => {
      signals.push(given.signal);
      return await next(given);
    });
    await client.transport.close();
    await turn();
    assert.equal(signals[0]?.aborted, true);
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["t1"]);
    await plugins.whenIdle(60_000);
  });

  it("that is not made before its client gives it up is ended when it is", async () => {
    const { client, git } = await open(passing);
    git.onCall = () => undefined;
    client.send(TASK_CALL);
    await turn();
    client.send(cancelOf(1));
    await turn();
    const { id } = git.messagesOf("tools/call")[0] ?? {};
    git.sendMessage({ id, result: { task: { taskId: "late" } } });
    await turn();
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["late"]);
  });
});
