import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Next, ToolCall } from "../../src/plugin/plugin.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { sendRequest, callRequest, isResponseTo, Latch } from "../fixtures/memory-hub.ts";
import {
  createTask,
  RELATED_TASK_KEY,
  TASK_STATUS_METHOD,
  LegacyTaskServer,
  createdTaskIdOf,
} from "../fixtures/legacy-task-server.ts";
import { callsOf, openPluginHub, openWithClock, pluginOf, callPlugin } from "./plugin-hub.ts";

const RESULT = "tasks/result";

/** A plugin that marks results and records them. */
function marking(seen: string[]): ReturnType<typeof callPlugin> {
  return callPlugin("marking", async (given: ToolCall, next: Next) => {
    const answer = await next(given);
    seen.push(answer.json);
    return given.answer({ marked: answer.value });
  });
}

/** A plugin that only passes calls on. */
const PASSING = pluginOf("passing", { call: (next) => (given) => next(given) });

describe("a task of a tool that plugins see", () => {
  it("is told of at once, and its result is what the plugins answer", async () => {
    const seen: string[] = [];
    const git = new LegacyTaskServer();
    const { client, events, plugins } = await openPluginHub([marking(seen)], { git });
    const id = await createTask(client, "git__x");
    assert.deepEqual(seen, []);
    assert.deepEqual(callsOf(events), ["started git__x", "answered"]);
    assert.equal((await sendRequest(client, "tasks/get", { taskId: id })).result?.["taskId"], id);
    assert.deepEqual(seen, []);
    const marked = { content: [], x: 1, _meta: { [RELATED_TASK_KEY]: { taskId: id } } };
    assert.deepEqual((await sendRequest(client, RESULT, { taskId: id })).result, { marked });
    assert.equal(seen.length, 1);
    assert.deepEqual((await sendRequest(client, RESULT, { taskId: id })).result, { marked });
    assert.equal(seen.length, 1);
    assert.deepEqual(git.taskIdsOf(RESULT), ["t1"]);
    assert.deepEqual(callsOf(events), ["started git__x", "answered"]);
    await plugins.whenIdle(0);
  });

  it("has its result as it is if they only pass it on", async () => {
    const git = new LegacyTaskServer();
    const { client } = await openPluginHub([PASSING], { git });
    const id = await createTask(client, "git__x");
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    await client.find(isResponseTo("r"));
    assert.ok(client.received.some((text) => text.includes('"x":1.0')));
  });

  it("is none if the server, or a plugin, answers at once", async () => {
    const git = new LegacyTaskServer();
    const { client } = await openPluginHub([marking([])], { git });
    git.onCall = () => '"result":{"content":[]}';
    client.send(callRequest(1, "git__x", {}, { task: {} }));
    assert.deepEqual((await client.find(isResponseTo(1))).result, { marked: { content: [] } });
    const refusing = await openPluginHub(
      [callPlugin("no", (given) => Promise.resolve(given.refuse("No.")))],
      {
        git,
      },
    );
    refusing.client.send(callRequest(1, "git__x", {}, { task: {} }));
    assert.equal((await refusing.client.find(isResponseTo(1))).result?.["isError"], true);
    assert.equal(git.taskCount, 0);
  });

  it("is given one result, whoever asks for it while the plugins are at it", async () => {
    const git = new LegacyTaskServer();
    const gate = new Latch();
    const slow = callPlugin("slow", async (given, next) => {
      const answer = await next(given);
      await gate.wait();
      return answer;
    });
    const { client } = await openPluginHub([slow], { git });
    const id = await createTask(client, "git__x");
    for (const key of [1, 2]) {
      client.send({ jsonrpc: "2.0", id: key, method: RESULT, params: { taskId: id } });
    }
    await turn();
    const third = sendRequest(client, RESULT, { taskId: id });
    await turn();
    assert.deepEqual([...client.messages].filter(isResponseTo(1)), []);
    gate.open();
    for (const key of [1, 2]) assert.equal((await client.find(isResponseTo(key))).result?.["x"], 1);
    assert.equal((await third).result?.["x"], 1);
    assert.deepEqual(git.taskIdsOf(RESULT), ["t1", "t1"]);
  });

  it("may take as long as it likes, but the plugins have the call's time for its result", async () => {
    const git = new LegacyTaskServer();
    const stuck = callPlugin("stuck", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await openWithClock([stuck], { git });
    const id = await createTask(client, "git__x");
    await clock.advanceAsync(3_600_000);
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    await turn();
    await clock.advanceAsync(59_000);
    assert.deepEqual(client.messages.filter(isResponseTo("r")), []);
    await clock.advanceAsync(2000);
    assert.equal((await client.find(isResponseTo("r"))).result?.["isError"], true);
  });

  it("gives the plugins no more time for what its server asked before it was a task", async () => {
    const git = new LegacyTaskServer();
    git.onCall = () => undefined;
    const stuck = callPlugin("stuck", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await openWithClock([stuck], { git }, {}, { sampling: {} });
    client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    client.send(callRequest(1, "git__x", {}, { task: {} }));
    await turn();
    git.sendMessage({ id: "s", method: "sampling/createMessage", params: {} });
    await client.find(({ method }) => method === "sampling/createMessage");
    git.sendMessage({
      id: git.messagesOf("tools/call")[0]?.id,
      result: { task: { taskId: "t1" } },
    });
    const taskId = createdTaskIdOf(await client.find(isResponseTo(1)));
    await clock.advanceAsync(500_000);
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId } });
    await turn();
    await clock.advanceAsync(61_000);
    assert.equal((await client.find(isResponseTo("r"))).result?.["isError"], true);
  });

  it("is one: what plugins send again when it has begun is refused, and its task ended", async () => {
    const git = new LegacyTaskServer();
    const twice = callPlugin("twice", (given, next) => {
      const first = next(given);
      return next(given).catch(() => first);
    });
    const { client } = await openPluginHub([twice], { git });
    const id = await createTask(client, "git__x");
    await turn();
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["t2"]);
    const { result } = await sendRequest(client, RESULT, { taskId: id });
    assert.equal(result?.["x"], 1);
  });

  it("ends if a plugin answers without waiting for its result", async () => {
    const git = new LegacyTaskServer();
    let answer = (): void => {};
    const early = callPlugin("early", (given, next) => {
      void next(given).catch(() => {});
      return new Promise((resolve) => (answer = () => resolve(given.answer({ early: true }))));
    });
    const { client } = await openPluginHub([early], { git });
    const id = await createTask(client, "git__x");
    answer();
    await turn();
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["t1"]);
    assert.deepEqual((await sendRequest(client, RESULT, { taskId: id })).result, { early: true });
  });

  it("that is lost with its server fails for the plugins as for the client", async () => {
    const seen: unknown[] = [];
    const git = new LegacyTaskServer();
    const watching = callPlugin("watching", async (given, next) => {
      try {
        return await next(given);
      } catch (error) {
        seen.push((error as { code?: unknown }).code);
        throw error;
      }
    });
    const { client } = await openPluginHub([watching], { git });
    const id = await createTask(client, "git__x");
    git.disconnect();
    await client.find(({ method }) => method === TASK_STATUS_METHOD);
    assert.deepEqual(seen, ["connectionLost"]);
    const { result } = await sendRequest(client, RESULT, { taskId: id });
    assert.deepEqual([result?.["isError"], seen], [true, ["connectionLost"]]);
  });

  it("does not hold up the hub's end", async () => {
    const git = new LegacyTaskServer();
    const { hub, client } = await openPluginHub([marking([])], { git });
    const id = await createTask(client, "git__x");
    git.handlers = {};
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    await turn();
    await hub.close();
    assert.equal((await client.find(isResponseTo("r"))).error?.code, -31001);
  });

  it("that was forgotten for others has no result for who still waits for it", async () => {
    const git = new LegacyTaskServer();
    const { client } = await openPluginHub([PASSING], { git });
    const { handlers: on } = git;
    git.handlers = { ...on, [RESULT]: () => undefined };
    const id = await createTask(client, "git__x");
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    git.sendStatus("t1", "completed");
    for (let i = 0; i < 256; i++) await createTask(client, "git__x");
    git.sendMessage({ id: git.messagesOf(RESULT)[0]?.id, result: { content: [] } });
    assert.equal((await client.find(isResponseTo("r"))).error?.code, -31005);
  });

  it("holds no plugin when its client has left", async () => {
    const git = new LegacyTaskServer();
    const signals: AbortSignal[] = [];
    const watching = callPlugin("watching", async (given, next) => {
      signals.push(given.signal);
      return await next(given);
    });
    const { client, plugins } = await openPluginHub([watching], { git });
    client.send(callRequest(1, "git__x", {}, { task: {} }));
    createdTaskIdOf(await client.find(isResponseTo(1)));
    await client.transport.close();
    await turn();
    assert.equal(signals[0]?.aborted, true);
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["t1"]);
    await plugins.whenIdle(60_000);
  });

  it("that is not made before its client gives it up is ended when it is", async () => {
    const git = new LegacyTaskServer();
    git.onCall = () => undefined;
    const { client } = await openPluginHub([PASSING], { git });
    client.send(callRequest(1, "git__x", {}, { task: {} }));
    await turn();
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    git.sendMessage({
      id: git.messagesOf("tools/call")[0]?.id,
      result: { task: { taskId: "late" } },
    });
    await turn();
    assert.deepEqual(git.taskIdsOf("tasks/cancel"), ["late"]);
  });
});
