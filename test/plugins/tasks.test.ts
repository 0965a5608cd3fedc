import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Next, ToolCall } from "../../src/plugin/plugin.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { ask, call, isAnswer, Latch } from "../fixtures/memory-hub.ts";
import { beginTask, RELATED, STATUS, Tasker, taskOf } from "../fixtures/legacy-task-server.ts";
import { callsOf, open, stage, use, wrapping } from "./plugin-hub.ts";

const RESULT = "tasks/result";

/** A plugin that marks results and records them. */
function marking(seen: string[]): ReturnType<typeof wrapping> {
  return wrapping("marking", async (given: ToolCall, next: Next) => {
    const answer = await next(given);
    seen.push(answer.json);
    return given.answer({ marked: answer.value });
  });
}

/** A plugin that only passes calls on. */
const PASSING = use("passing", { call: (next) => (given) => next(given) });

describe("a task of a tool that plugins see", () => {
  it("is told of at once, and its result is what the plugins answer", async () => {
    const seen: string[] = [];
    const git = new Tasker();
    const { client, events, plugins } = await open([marking(seen)], { git });
    const id = await beginTask(client, "git__x");
    assert.deepEqual(seen, []);
    assert.deepEqual(callsOf(events), ["started git__x", "answered"]);
    assert.equal((await ask(client, "tasks/get", { taskId: id })).result?.["taskId"], id);
    assert.deepEqual(seen, []);
    const marked = { content: [], x: 1, _meta: { [RELATED]: { taskId: id } } };
    assert.deepEqual((await ask(client, RESULT, { taskId: id })).result, { marked });
    assert.equal(seen.length, 1);
    assert.deepEqual((await ask(client, RESULT, { taskId: id })).result, { marked });
    assert.equal(seen.length, 1);
    assert.deepEqual(git.queries(RESULT), ["t1"]);
    assert.deepEqual(callsOf(events), ["started git__x", "answered"]);
    await plugins.whenIdle(0);
  });

  it("has its result as it is if they only pass it on", async () => {
    const git = new Tasker();
    const { client } = await open([PASSING], { git });
    const id = await beginTask(client, "git__x");
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    await client.find(isAnswer("r"));
    assert.ok(client.received.some((text) => text.includes('"x":1.0')));
  });

  it("is none if the server, or a plugin, answers at once", async () => {
    const git = new Tasker();
    const { client } = await open([marking([])], { git });
    git.onCall = () => '"result":{"content":[]}';
    client.send(call(1, "git__x", {}, { task: {} }));
    assert.deepEqual((await client.find(isAnswer(1))).result, { marked: { content: [] } });
    const refusing = await open([wrapping("no", (given) => Promise.resolve(given.refuse("No.")))], {
      git,
    });
    refusing.client.send(call(1, "git__x", {}, { task: {} }));
    assert.equal((await refusing.client.find(isAnswer(1))).result?.["isError"], true);
    assert.equal(git.count, 0);
  });

  it("is given one result, whoever asks for it while the plugins are at it", async () => {
    const git = new Tasker();
    const gate = new Latch();
    const slow = wrapping("slow", async (given, next) => {
      const answer = await next(given);
      await gate.wait();
      return answer;
    });
    const { client } = await open([slow], { git });
    const id = await beginTask(client, "git__x");
    for (const key of [1, 2]) {
      client.send({ jsonrpc: "2.0", id: key, method: RESULT, params: { taskId: id } });
    }
    await turn();
    const third = ask(client, RESULT, { taskId: id });
    await turn();
    assert.deepEqual([...client.messages].filter(isAnswer(1)), []);
    gate.open();
    for (const key of [1, 2]) assert.equal((await client.find(isAnswer(key))).result?.["x"], 1);
    assert.equal((await third).result?.["x"], 1);
    assert.deepEqual(git.queries(RESULT), ["t1", "t1"]);
  });

  it("may take as long as it likes, but the plugins have the call's time for its result", async () => {
    const git = new Tasker();
    const stuck = wrapping("stuck", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await stage([stuck], { git });
    const id = await beginTask(client, "git__x");
    await clock.run(3_600_000);
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    await turn();
    await clock.run(59_000);
    assert.deepEqual(client.messages.filter(isAnswer("r")), []);
    await clock.run(2000);
    assert.equal((await client.find(isAnswer("r"))).result?.["isError"], true);
  });

  it("gives the plugins no more time for what its server asked before it was a task", async () => {
    const git = new Tasker();
    git.onCall = () => undefined;
    const stuck = wrapping("stuck", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await stage([stuck], { git }, {}, { sampling: {} });
    client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    client.send(call(1, "git__x", {}, { task: {} }));
    await turn();
    git.say({ id: "s", method: "sampling/createMessage", params: {} });
    await client.find(({ method }) => method === "sampling/createMessage");
    git.say({ id: git.asked("tools/call")[0]?.id, result: { task: { taskId: "t1" } } });
    const taskId = taskOf(await client.find(isAnswer(1)));
    await clock.run(500_000);
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId } });
    await turn();
    await clock.run(61_000);
    assert.equal((await client.find(isAnswer("r"))).result?.["isError"], true);
  });

  it("is one: what plugins send again when it has begun is refused, and its task ended", async () => {
    const git = new Tasker();
    const twice = wrapping("twice", (given, next) => {
      const first = next(given);
      return next(given).catch(() => first);
    });
    const { client } = await open([twice], { git });
    const id = await beginTask(client, "git__x");
    await turn();
    assert.deepEqual(git.queries("tasks/cancel"), ["t2"]);
    const { result } = await ask(client, RESULT, { taskId: id });
    assert.equal(result?.["x"], 1);
  });

  it("ends if a plugin answers without waiting for its result", async () => {
    const git = new Tasker();
    let answer = (): void => {};
    const early = wrapping("early", (given, next) => {
      void next(given).catch(() => {});
      return new Promise((resolve) => (answer = () => resolve(given.answer({ early: true }))));
    });
    const { client } = await open([early], { git });
    const id = await beginTask(client, "git__x");
    answer();
    await turn();
    assert.deepEqual(git.queries("tasks/cancel"), ["t1"]);
    assert.deepEqual((await ask(client, RESULT, { taskId: id })).result, { early: true });
  });

  it("that is lost with its server fails for the plugins as for the client", async () => {
    const seen: unknown[] = [];
    const git = new Tasker();
    const watching = wrapping("watching", async (given, next) => {
      try {
        return await next(given);
      } catch (error) {
        seen.push((error as { code?: unknown }).code);
        throw error;
      }
    });
    const { client } = await open([watching], { git });
    const id = await beginTask(client, "git__x");
    git.die();
    await client.find(({ method }) => method === STATUS);
    assert.deepEqual(seen, ["connectionLost"]);
    assert.equal((await ask(client, RESULT, { taskId: id })).error?.code, -31002);
  });

  it("does not hold up the hub's end", async () => {
    const git = new Tasker();
    const { hub, client } = await open([marking([])], { git });
    const id = await beginTask(client, "git__x");
    git.on = {};
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    await turn();
    await hub.close();
    assert.equal((await client.find(isAnswer("r"))).error?.code, -31001);
  });

  it("that was forgotten for others has no result for who still waits for it", async () => {
    const git = new Tasker();
    const { client } = await open([PASSING], { git });
    const { on } = git;
    git.on = { ...on, [RESULT]: () => undefined };
    const id = await beginTask(client, "git__x");
    client.send({ jsonrpc: "2.0", id: "r", method: RESULT, params: { taskId: id } });
    git.tellStatus("t1", "completed");
    for (let i = 0; i < 256; i++) await beginTask(client, "git__x");
    git.say({ id: git.asked(RESULT)[0]?.id, result: { content: [] } });
    assert.equal((await client.find(isAnswer("r"))).error?.code, -31005);
  });

  it("holds no plugin when its client has left", async () => {
    const git = new Tasker();
    const signals: AbortSignal[] = [];
    const watching = wrapping("watching", async (given, next) => {
      signals.push(given.signal);
      return await next(given);
    });
    const { client, plugins } = await open([watching], { git });
    client.send(call(1, "git__x", {}, { task: {} }));
    taskOf(await client.find(isAnswer(1)));
    await client.link.close();
    await turn();
    assert.equal(signals[0]?.aborted, true);
    assert.deepEqual(git.queries("tasks/cancel"), ["t1"]);
    await plugins.whenIdle(60_000);
  });

  it("that is not made before its client gives it up is ended when it is", async () => {
    const git = new Tasker();
    git.onCall = () => undefined;
    const { client } = await open([PASSING], { git });
    client.send(call(1, "git__x", {}, { task: {} }));
    await turn();
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await turn();
    git.say({ id: git.asked("tools/call")[0]?.id, result: { task: { taskId: "late" } } });
    await turn();
    assert.deepEqual(git.queries("tasks/cancel"), ["late"]);
  });
});
