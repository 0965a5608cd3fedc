import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callRequest,
  initialize,
  isResponseTo,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES,
  modernRequest,
  sendModernRequest,
  answersTo,
} from "../fixtures/modern-requests.ts";
import { FORM_ELICITATION, SAMPLING_REQUEST } from "../fixtures/modern-server.ts";
import { cancel, isOf, respond } from "../fixtures/peer-messages.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { answerAll, INITIALIZED, waitForRequest } from "../fixtures/server-requests.ts";
import {
  callToolAsLegacy,
  TASKS_DECLARED,
  declaresTasks,
  COMPLETED_MEMBERS,
  ModernTaskServer,
  modernTaskJson,
} from "../fixtures/modern-task-server.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const ELICIT = "elicitation/create";
const AUTO: Servers = {
  s: {
    era: "auto",
    callTimeout: 10_000,
    maxCallTimeout: 60_000,
    reconnect: { policy: "none" } as never,
  },
};
const CAN = { sampling: {}, elicitation: { form: {} } };
const ACCEPT = { action: "accept", content: { n: 1 } };
const COMPLETED = { status: "completed", extraMembers: COMPLETED_MEMBERS };

/** The members of a task that wants this. */
const asking = (inputRequests: object) => ({
  status: "input_required",
  extraMembers: `,"inputRequests":${JSON.stringify(inputRequests)}`,
});

/** A legacy client of a server with these parts, which makes tasks of calls. */
async function begin(
  script: Partial<ModernTaskServer> = {},
  capabilities: object = CAN,
  servers = AUTO,
) {
  const s = Object.assign(new ModernTaskServer(), script);
  const setup = setUpHubWithClock({ s }, { servers });
  await initialize(setup.client, capabilities);
  setup.client.send(INITIALIZED);
  return { ...setup, s };
}

/** The same after a call of which the server has made a task. */
async function beginCall(...made: Parameters<typeof begin>) {
  const setup = await begin(...made);
  const { s, clock } = setup;
  const answer = callToolAsLegacy(setup.client);
  await clock.advanceAsync(0);
  await turn();
  /** The task becomes this, and is asked for. */
  const become = async (task: { status?: string; extraMembers?: string }): Promise<void> => {
    Object.assign(s, task);
    await clock.advanceAsync(500);
    await turn();
  };
  return { ...setup, answer, become };
}

describe("a legacy client of a modern server with tasks", () => {
  it("is answered when its task has ended, with the very result", async () => {
    const { client, clock, s, answer, become } = await beginCall();
    await clock.advanceAsync(1000);
    assert.deepEqual(s.taskIdsOf("tasks/get"), ["t1", "t1"]);
    await become(COMPLETED);
    assert.deepEqual((await answer).result, { content: [], n: 1 });
    assert.ok(client.received.some((text) => text.includes('"result":{"content":[],"n":1.0}')));
    await clock.advanceAsync(10_000);
    assert.equal(s.taskIdsOf("tasks/get").length, 3);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
  });

  it("is said to know tasks only to a server that refuses to go on without", async () => {
    const answerWithoutTasks = '"result":{"resultType":"complete","content":[]}';
    const { client, s } = await begin({ answerWithoutTasks });
    assert.deepEqual((await callToolAsLegacy(client)).result, { content: [] });
    assert.equal(s.messagesOf("tools/call").length, 1);
    const insisting = await beginCall();
    const calls = insisting.s.messagesOf("tools/call");
    assert.deepEqual(calls.map(declaresTasks), [false, true]);
    const [first, second] = calls.map(({ params }) => ({ ...params, _meta: undefined }));
    assert.deepEqual(second, first);
  });

  for (const [required, calls] of [
    [{ ...TASKS_DECLARED, sampling: {} }, 1],
    [{ extensions: { ...TASKS_DECLARED.extensions, "vendor/x": {} } }, 1],
    [TASKS_DECLARED, 2],
  ] as const) {
    const data = JSON.stringify({ requiredCapabilities: required });
    it(`is told what it lacks after ${calls} calls if the server requires ${data.slice(24, -1)}`, async () => {
      const onCall = (): string => `"error":{"code":-32021,"message":"no","data":${data}}`;
      const { client, s } = await begin({ onCall });
      assert.equal((await callToolAsLegacy(client)).result?.["isError"], true);
      assert.equal(s.messagesOf("tools/call").length, calls);
    });
  }

  const broken = ',"error":{"code":-5,"message":"broken","data":1.0}';
  for (const [what, task, expected] of [
    ["failed", { status: "failed", extraMembers: broken }, /"code":-5,"message":"broken","data":1/],
    ["was cancelled", { status: "cancelled" }, /Server \\"s\\" cancelled/],
    ["has ended without a result", { status: "completed" }, /without a result/],
  ] as const) {
    it(`gets an error of a task that ${what}`, async () => {
      const { answer, become } = await beginCall();
      await become(task);
      assert.match(JSON.stringify((await answer).error), expected);
    });
  }

  it("gets the server's error if it does not know the task any more", async () => {
    const { s, answer, become } = await beginCall();
    s.handlers["tasks/get"] = () => '"error":{"code":-32602,"message":"gone"}';
    await become({});
    assert.deepEqual((await answer).error, { code: -32602, message: "gone" });
  });

  it("is asked what the task wants, once, and the server gets its answer as it wrote it", async () => {
    const { client, clock, s, answer, become } = await beginCall();
    const accept = '"result":{"action":"accept","content":{"n":1.0}}';
    const asked = answerAll(client, { [ELICIT]: accept, "sampling/createMessage": accept });
    await become(asking({ k: FORM_ELICITATION }));
    assert.deepEqual(s.taskIdsOf("tasks/update"), ["t1"]);
    const text = s.newestPeer?.received.find((each) => each.includes("tasks/update")) ?? "";
    const expected = '"inputResponses":{"k":{"action":"accept","content":{"n":1.0}}}';
    assert.ok(text.includes(expected), text);
    // The server may take its time to notice.
    await clock.advanceAsync(2000);
    assert.equal(asked.length, 1);
    assert.equal(asked[0]?.params?.["message"], "[s] Which?");
    await become(asking({ l: SAMPLING_REQUEST }));
    await clock.advanceAsync(500);
    assert.deepEqual(asked.map(({ method }) => method).slice(1), ["sampling/createMessage"]);
    await become(COMPLETED);
    await clock.advanceAsync(500);
    assert.equal((await answer).error, undefined);
    assert.equal(s.taskIdsOf("tasks/update").length, 2);
    // It is said in each request about the task who asks, and that it knows tasks.
    for (const method of ["tasks/get", "tasks/update"]) {
      const [request] = s.messagesOf(method);
      assert.ok(request && declaresTasks(request), method);
      const meta = request.params?.["_meta"] as Readonly<Record<string, unknown>>;
      assert.equal(meta[MetaKey.version], "2026-07-28");
    }
  });

  it("has its call's time stand still while it is asked", async () => {
    const { client, clock, s, become } = await beginCall();
    await become(asking({ k: FORM_ELICITATION }));
    const { id } = await waitForRequest(client, ELICIT);
    await clock.advanceAsync(300_000);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
    respond(client, id, { action: "decline" });
    await clock.advanceAsync(0);
    await turn();
    assert.deepEqual(s.taskIdsOf("tasks/update"), ["t1"]);
  });

  it("fails if it cannot be asked what the server needs, and the task is cancelled", async () => {
    const { s, answer, become } = await beginCall({}, {});
    await become(asking({ k: SAMPLING_REQUEST }));
    assert.match((await answer).error?.message ?? "", /sampling/);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });

  it("fails if the server does not take an answer", async () => {
    const { client, s, answer, become } = await beginCall();
    s.handlers["tasks/update"] = () => '"error":{"code":-32602,"message":"no"}';
    answerAll(client, { [ELICIT]: { result: { action: "decline" } } });
    await become(asking({ k: FORM_ELICITATION }));
    assert.match((await answer).error?.message ?? "", /did not take/);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });

  it("waits no longer than its call may take, and the task is cancelled then", async () => {
    const { clock, s, answer } = await beginCall();
    await clock.advanceAsync(10_500);
    assert.equal((await answer).result?.["isError"], true);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
    const count = s.taskIdsOf("tasks/get").length;
    await clock.advanceAsync(10_000);
    assert.equal(s.taskIdsOf("tasks/get").length, count);
  });

  it("has more time whenever there is news of the task, but not for ever", async () => {
    const { clock, s, answer } = await beginCall();
    for (let i = 1; i <= 12; i++) {
      assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
      s.extraMembers = `,"statusMessage":"${i}"`;
      await clock.advanceAsync(5000);
    }
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
    assert.equal((await answer).result?.["isError"], true);
  });

  for (const isAsked of [false, true]) {
    it(`cancels the task with its call${isAsked ? ", and takes back what it was asked" : ""}`, async () => {
      const { client, clock, s } = await begin();
      client.send(callRequest(5, "s__x"));
      await clock.advanceAsync(0);
      if (isAsked) Object.assign(s, asking({ k: FORM_ELICITATION }));
      await clock.advanceAsync(500);
      const asked = client.messages.find(isOf(ELICIT));
      cancel(client, 5);
      await clock.advanceAsync(5000);
      assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
      assert.ok(!client.messages.some(isResponseTo(5)));
      const withdrawn = client.messages.find(isOf("notifications/cancelled"));
      assert.equal(withdrawn?.params?.["requestId"], asked?.id);
      assert.equal(asked !== undefined, isAsked);
    });
  }

  it("fails with its server", async () => {
    const { s, answer } = await beginCall();
    s.disconnect();
    await turn();
    assert.deepEqual((await answer).result?.["_meta"], { "toolmux/error": "connectionLost" });
  });

  for (const [interval, ms] of [
    ["1", 250],
    ["2000", 2000],
    ["9999999", 30_000],
    ["null", 1000],
    ['"x"', 1000],
  ] as const) {
    it(`is asked after every ${ms} ms if the server wants ${interval}, or never if the call is over then`, async () => {
      const task = modernTaskJson("t1").replace(/(?<="pollIntervalMs":)500/, interval);
      const onCall = (): string => `"result":{"resultType":"task",${task}}`;
      const { clock, s } = await beginCall({ onCall });
      Object.assign(s, COMPLETED);
      await clock.advanceAsync(Math.min(ms, 10_000) - 1);
      assert.equal(s.taskIdsOf("tasks/get").length, 0);
      await clock.advanceAsync(1);
      assert.equal(s.taskIdsOf("tasks/get").length, ms > 10_000 ? 0 : 1);
    });
  }

  it("waits for nothing if the task has ended when it begins", async () => {
    const onCall = (): string =>
      `"result":{"resultType":"task",${modernTaskJson("t1", "completed")}}`;
    const { client } = await begin({ onCall, ...COMPLETED });
    assert.deepEqual((await callToolAsLegacy(client)).result?.["content"], []);
  });

  it("gets an error for a task without an id", async () => {
    const { client } = await begin({ onCall: () => '"result":{"resultType":"task"}' });
    assert.match((await callToolAsLegacy(client)).error?.message ?? "", /Server "s" .*task/);
  });

  it("keeps its server from being idle", async () => {
    const servers: Servers = {
      s: { era: "auto", lazy: true, idleStop: 5000, callTimeout: 100_000 },
    };
    const { clock, s, answer, become } = await beginCall({}, {}, servers);
    await clock.advanceAsync(90_000);
    assert.equal(s.transportCount - s.openCount, 1, "only the first look has ended");
    await become(COMPLETED);
    await clock.advanceAsync(500);
    assert.equal((await answer).error, undefined);
    await clock.advanceAsync(70_000);
    assert.equal(s.openCount, 0);
  });
});

describe("a task that plugins must not see", () => {
  async function beginPlugged(run: Parameters<typeof callPlugin>[1], clock = new VirtualClock()) {
    const s = new ModernTaskServer();
    const settings = { servers: AUTO, clock };
    const { client } = await setUpPluginHub([callPlugin("p", run)], { s }, settings);
    return { client, clock, s };
  }

  for (const era of ["legacy", "modern"] as const) {
    it(`is brought to its end for a ${era} client, and they see the result`, async () => {
      const seen: string[] = [];
      const { client, clock, s } = await beginPlugged(async (given, next) => {
        const answer = await next(given);
        seen.push(answer.json);
        return answer;
      });
      if (era === "legacy") await initialize(client);
      const answer =
        era === "legacy"
          ? callToolAsLegacy(client)
          : sendModernRequest(client, "tools/call", { name: "s__x" }, TASKS_DECLARED);
      await clock.advanceAsync(500);
      Object.assign(s, COMPLETED);
      await clock.advanceAsync(500);
      const { result } = await answer;
      assert.deepEqual(result?.["content"], []);
      assert.equal(result?.["resultType"], era === "modern" ? "complete" : undefined);
      assert.deepEqual(seen, ['{"content":[],"n":1.0}']);
    });
  }

  it("asks a modern client, who comes back with the answer", async () => {
    const { client, clock, s } = await beginPlugged((given, next) => next(given));
    const able = { ...ALL_MODERN_CAPABILITIES, ...TASKS_DECLARED };
    const params = { name: "s__x" };
    client.send(modernRequest(1, "tools/call", params, able));
    await clock.advanceAsync(100);
    Object.assign(s, asking({ k: FORM_ELICITATION }));
    await clock.advanceAsync(1000);
    const answers = answersTo(await client.find(isResponseTo(1)), () => ACCEPT);
    client.send(modernRequest(2, "tools/call", { ...params, ...answers }, able));
    await turn();
    const update = s.messagesOf("tasks/update").at(-1);
    assert.deepEqual(update?.params?.["inputResponses"], { k: ACCEPT });
    Object.assign(s, COMPLETED);
    await clock.advanceAsync(1000);
    assert.equal((await client.find(isResponseTo(2))).result?.["resultType"], "complete");
  });

  it("is cancelled if they answer without it", async () => {
    const clock = new VirtualClock();
    const { client, s } = await beginPlugged((given, next) => {
      void next(given).catch(() => {});
      const answer = given.answer({ content: [], enough: 1 });
      return new Promise((resolve) => clock.after(2000, () => resolve(answer)));
    }, clock);
    await initialize(client);
    const answer = callToolAsLegacy(client);
    await clock.advanceAsync(3000);
    assert.match(JSON.stringify(await answer), /enough/);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });

  it("cannot be had by a modern client that does not know tasks: its call is sent once", async () => {
    const { client, s } = await beginPlugged((given, next) => next(given));
    const { result } = await sendModernRequest(client, "tools/call", { name: "s__x" });
    assert.equal(result?.["isError"], true);
    assert.equal(s.messagesOf("tools/call").length, 1);
  });
});

describe("a task that a call cannot be", () => {
  it("is an error", async () => {
    const s = new ModernTaskServer();
    s.listings = { ...s.listings, prompts: [{ name: "p" }] as never[] };
    s.handlers["prompts/get"] = () => `"result":{"resultType":"task",${modernTaskJson("t1")}}`;
    const { client } = setUpHubWithClock({ s }, { servers: AUTO });
    await initialize(client);
    for (const answer of [
      sendRequest(client, "prompts/get", { name: "s__p" }),
      sendModernRequest(client, "prompts/get", { name: "s__p" }, TASKS_DECLARED),
    ]) {
      assert.match((await answer).error?.message ?? "", /result of type "task"/);
    }
  });
});

describe("a modern client that does not know tasks", () => {
  it("is told that it would have to, or gets the result of a task that it was given all the same", async () => {
    const { client, clock, s } = await begin();
    const { error } = await sendModernRequest(client, "tools/call", { name: "s__x" });
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], TASKS_DECLARED);
    s.onCall = () => `"result":{"resultType":"task",${modernTaskJson("t1")}}`;
    Object.assign(s, COMPLETED);
    const answer = sendModernRequest(client, "tools/call", { name: "s__x" });
    await clock.advanceAsync(1000);
    assert.equal((await answer).result?.["resultType"], "complete");
  });
});
