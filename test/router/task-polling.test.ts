import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  initialize,
  isResponseTo,
  type Json,
  type Peer,
  type Servers,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES,
  modernRequest,
  sendModernRequest,
  inputRoundOf,
} from "../fixtures/modern-requests.ts";
import { FORM_ELICITATION, SAMPLING_REQUEST } from "../fixtures/modern-server.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import {
  callToolAsLegacy,
  TASKS_DECLARED,
  declaresTasks,
  COMPLETED_MEMBERS,
  ModernTaskServer,
  modernTaskJson,
} from "../fixtures/modern-task-server.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const AUTO: Servers = {
  s: {
    era: "auto",
    callTimeout: 10_000,
    maxCallTimeout: 60_000,
    reconnect: { policy: "none" } as never,
  },
};
const CAN = { sampling: {}, elicitation: { form: {} } };

async function begin(s: ModernTaskServer, capabilities: object = CAN) {
  const setup = setUpHubWithClock({ s }, { servers: AUTO });
  await initialize(setup.client, capabilities);
  setup.client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  return setup;
}

/** The same, after a legacy client has made a call of which the server makes a task. */
async function beginCall(s: ModernTaskServer, capabilities?: object) {
  const setup = await begin(s, capabilities);
  const answer = callToolAsLegacy(setup.client);
  await setup.clock.advanceAsync(0);
  await turn();
  return { ...setup, answer };
}

/** Answers whatever the client is asked. */
function answerWith(client: Peer, json: string): Json[] {
  const asked: Json[] = [];
  client.onMessage = (message) => {
    if (message.method === undefined || message.id === undefined) return;
    asked.push(message);
    client.send(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},${json}}`);
  };
  return asked;
}

const asking = (requests: object): string => `,"inputRequests":${JSON.stringify(requests)}`;

describe("a legacy client of a modern server with tasks", () => {
  it("is answered when its task has ended, with the very result", async () => {
    const s = new ModernTaskServer();
    const { client, clock, answer } = await beginCall(s);
    await clock.advanceAsync(1000);
    assert.deepEqual(s.taskIdsOf("tasks/get"), ["t1", "t1"]);
    s.status = "completed";
    s.extraMembers = COMPLETED_MEMBERS;
    await clock.advanceAsync(500);
    assert.deepEqual((await answer).result, { content: [], n: 1 });
    assert.ok(client.received.some((text) => text.includes('"result":{"content":[],"n":1.0}')));
    await clock.advanceAsync(10_000);
    assert.equal(s.taskIdsOf("tasks/get").length, 3);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
  });

  it("is said to know tasks only to a server that refuses to go on without", async () => {
    const s = new ModernTaskServer();
    s.answerWithoutTasks = '"result":{"resultType":"complete","content":[]}';
    const { client } = await begin(s);
    assert.deepEqual((await callToolAsLegacy(client)).result, { content: [] });
    assert.equal(s.messagesOf("tools/call").length, 1);
    const insisting = new ModernTaskServer();
    await beginCall(insisting);
    assert.deepEqual(insisting.messagesOf("tools/call").map(declaresTasks), [false, true]);
    const [first, second] = insisting.messagesOf("tools/call").map(({ params }) => params);
    const bare = (params: typeof first): object => ({ ...params, _meta: undefined });
    assert.deepEqual(second && bare(second), first && bare(first));
  });

  it("is told what it lacks beside tasks, and asked no more if tasks were not enough", async () => {
    for (const [required, calls] of [
      [{ ...TASKS_DECLARED, sampling: {} }, 1],
      [{ extensions: { ...TASKS_DECLARED.extensions, "vendor/x": {} } }, 1],
      [TASKS_DECLARED, 2],
    ] as const) {
      const s = new ModernTaskServer();
      const data = JSON.stringify({ requiredCapabilities: required });
      s.onCall = () => `"error":{"code":-32021,"message":"no","data":${data}}`;
      const { client } = await begin(s);
      assert.equal((await callToolAsLegacy(client)).result?.["isError"], true);
      assert.equal(s.messagesOf("tools/call").length, calls);
    }
  });

  it("gets the error of a task that failed, and one for a task that was cancelled", async () => {
    const s = new ModernTaskServer();
    const { clock, answer } = await beginCall(s);
    s.status = "failed";
    s.extraMembers = ',"error":{"code":-5,"message":"broken","data":1.0}';
    await clock.advanceAsync(500);
    assert.deepEqual((await answer).error, { code: -5, message: "broken", data: 1 });
    const other = new ModernTaskServer();
    const second = await beginCall(other);
    other.status = "cancelled";
    await second.clock.advanceAsync(500);
    assert.match((await second.answer).error?.message ?? "", /Server "s" cancelled/);
  });

  it("gets an error if the server has no result, or does not know the task any more", async () => {
    const s = new ModernTaskServer();
    const { clock, answer } = await beginCall(s);
    s.status = "completed";
    await clock.advanceAsync(500);
    assert.match((await answer).error?.message ?? "", /without a result/);
    const other = new ModernTaskServer();
    const second = await beginCall(other);
    other.handlers["tasks/get"] = () => '"error":{"code":-32602,"message":"gone"}';
    await second.clock.advanceAsync(500);
    assert.deepEqual((await second.answer).error, { code: -32602, message: "gone" });
  });

  it("is asked what the task wants, once, and the server gets its answer as it wrote it", async () => {
    const s = new ModernTaskServer();
    const { client, clock, answer } = await beginCall(s);
    const asked = answerWith(client, '"result":{"action":"accept","content":{"n":1.0}}');
    s.status = "input_required";
    s.extraMembers = asking({ k: FORM_ELICITATION });
    await clock.advanceAsync(500);
    await turn();
    assert.deepEqual(s.taskIdsOf("tasks/update"), ["t1"]);
    const text = s.newestPeer?.received.find((each) => each.includes("tasks/update"));
    assert.match(
      text ?? "",
      /"inputResponses":\{"k":\{"action":"accept","content":\{"n":1\.0\}\}\}/,
    );
    // The server may take its time to notice.
    await clock.advanceAsync(2000);
    assert.equal(asked.length, 1);
    assert.equal(asked[0]?.params?.["message"], "[s] Which?");
    s.extraMembers = asking({ l: SAMPLING_REQUEST });
    await clock.advanceAsync(1000);
    assert.deepEqual(asked.map(({ method }) => method).slice(1), ["sampling/createMessage"]);
    s.status = "completed";
    s.extraMembers = COMPLETED_MEMBERS;
    await clock.advanceAsync(1000);
    assert.equal((await answer).error, undefined);
    assert.equal(s.taskIdsOf("tasks/update").length, 2);
  });

  it("has its call's time stand still while it is asked", async () => {
    const s = new ModernTaskServer();
    const { client, clock } = await beginCall(s);
    s.status = "input_required";
    s.extraMembers = asking({ k: FORM_ELICITATION });
    await clock.advanceAsync(500);
    const { id } = await client.find(({ method }) => method === "elicitation/create");
    await clock.advanceAsync(300_000);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
    client.send({ jsonrpc: "2.0", id, result: { action: "decline" } });
    await clock.advanceAsync(0);
    await turn();
    assert.deepEqual(s.taskIdsOf("tasks/update"), ["t1"]);
  });

  it("fails if it cannot be asked what the server needs, and the task is cancelled", async () => {
    const s = new ModernTaskServer();
    const { clock, answer } = await beginCall(s, {});
    s.status = "input_required";
    s.extraMembers = asking({ k: SAMPLING_REQUEST });
    await clock.advanceAsync(500);
    assert.match((await answer).error?.message ?? "", /sampling/);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });

  it("fails if the server does not take an answer", async () => {
    const s = new ModernTaskServer();
    s.handlers["tasks/update"] = () => '"error":{"code":-32602,"message":"no"}';
    const { client, clock, answer } = await beginCall(s);
    answerWith(client, '"result":{"action":"decline"}');
    s.status = "input_required";
    s.extraMembers = asking({ k: FORM_ELICITATION });
    await clock.advanceAsync(500);
    assert.match((await answer).error?.message ?? "", /did not take what it had asked for/);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });

  it("waits no longer than its call may take, and the task is cancelled then", async () => {
    const s = new ModernTaskServer();
    const { clock, answer } = await beginCall(s);
    await clock.advanceAsync(10_500);
    const { result } = await answer;
    assert.equal(result?.["isError"], true);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
    const count = s.taskIdsOf("tasks/get").length;
    await clock.advanceAsync(10_000);
    assert.equal(s.taskIdsOf("tasks/get").length, count);
  });

  it("has more time whenever there is news of the task, but not for ever", async () => {
    const s = new ModernTaskServer();
    const { client, clock } = await beginCall(s);
    for (let i = 1; i <= 11; i++) {
      s.extraMembers = `,"statusMessage":"${i}"`;
      await clock.advanceAsync(5000);
    }
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), []);
    s.extraMembers = ',"statusMessage":"12"';
    await clock.advanceAsync(5000);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
    assert.ok(client.messages.some(({ result }) => result?.["isError"] === true));
  });

  it("cancels the task with its call, and takes back what it was asked", async () => {
    for (const isAsked of [false, true]) {
      const s = new ModernTaskServer();
      const { client, clock } = await begin(s);
      client.send({ jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "s__x" } });
      await clock.advanceAsync(0);
      if (isAsked) {
        s.status = "input_required";
        s.extraMembers = asking({ k: FORM_ELICITATION });
      }
      await clock.advanceAsync(500);
      const asked = client.messages.find(({ method }) => method === "elicitation/create");
      client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
      await clock.advanceAsync(5000);
      assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
      assert.ok(!client.messages.some(isResponseTo(5)));
      const isEnd = ({ method }: Json): boolean => method === "notifications/cancelled";
      const withdrawn = client.messages.find(isEnd);
      assert.equal(withdrawn?.params?.["requestId"], asked?.id);
      assert.equal(asked !== undefined, isAsked);
    }
  });

  it("fails with its server", async () => {
    const s = new ModernTaskServer();
    const { answer } = await beginCall(s);
    s.disconnect();
    await turn();
    assert.deepEqual((await answer).result?.["_meta"], { "toolmux/error": "connectionLost" });
  });

  it("is asked after as often as the server wants, within bounds", async () => {
    for (const [interval, ms] of [
      ["1", 250],
      ["2000", 2000],
      ["9999999", 30_000],
      ["null", 1000],
      ['"x"', 1000],
    ] as const) {
      const s = new ModernTaskServer();
      const own = ',"result":{}';
      s.onCall = () =>
        `"result":{"resultType":"task",${modernTaskJson("t1").replace(/"pollIntervalMs":500/, `"pollIntervalMs":${interval}`)}}`;
      const { clock } = await beginCall(s);
      s.status = "completed";
      s.extraMembers = own;
      await clock.advanceAsync(Math.min(ms, 10_000) - 1);
      assert.equal(s.taskIdsOf("tasks/get").length, 0, interval);
      if (ms > 10_000) continue;
      await clock.advanceAsync(1);
      assert.equal(s.taskIdsOf("tasks/get").length, 1, interval);
    }
  });

  it("waits for nothing if the task has ended when it begins", async () => {
    const s = new ModernTaskServer();
    s.onCall = () => `"result":{"resultType":"task",${modernTaskJson("t1", "completed")}}`;
    s.status = "completed";
    s.extraMembers = COMPLETED_MEMBERS;
    const { client } = await begin(s);
    assert.deepEqual((await callToolAsLegacy(client)).result?.["content"], []);
  });

  it("gets an error for a task without an id", async () => {
    const s = new ModernTaskServer();
    s.onCall = () => '"result":{"resultType":"task"}';
    const { client } = await begin(s);
    assert.match((await callToolAsLegacy(client)).error?.message ?? "", /Server "s" .*task/);
  });

  it("says in each request about the task who asks, and that it knows tasks", async () => {
    const s = new ModernTaskServer();
    const { client, clock } = await beginCall(s);
    answerWith(client, '"result":{"action":"decline"}');
    s.status = "input_required";
    s.extraMembers = asking({ k: FORM_ELICITATION });
    await clock.advanceAsync(500);
    await turn();
    for (const method of ["tasks/get", "tasks/update"]) {
      const [asked] = s.messagesOf(method);
      assert.ok(asked && declaresTasks(asked), method);
      const meta = asked.params?.["_meta"] as Readonly<Record<string, unknown>>;
      assert.equal(meta[MetaKey.version], "2026-07-28");
    }
  });

  it("keeps its server from being idle", async () => {
    const s = new ModernTaskServer();
    const servers = {
      s: { era: "auto", lazy: true, idleStop: 5000, callTimeout: 100_000 },
    } as const;
    const { client, clock } = setUpHubWithClock({ s }, { servers });
    await initialize(client);
    const answer = callToolAsLegacy(client);
    await clock.advanceAsync(90_000);
    assert.equal(s.transportCount - s.openCount, 1, "only the first look has ended");
    s.status = "completed";
    s.extraMembers = COMPLETED_MEMBERS;
    await clock.advanceAsync(1000);
    assert.equal((await answer).error, undefined);
    await clock.advanceAsync(70_000);
    assert.equal(s.openCount, 0);
  });
});

describe("a task that plugins must not see", () => {
  for (const era of ["legacy", "modern"] as const) {
    it(`is brought to its end for a ${era} client, and they see the result`, async () => {
      const seen: string[] = [];
      const watch = callPlugin("watch", async (given, next) => {
        const answer = await next(given);
        seen.push(answer.json);
        return answer;
      });
      const s = new ModernTaskServer();
      const clock = new VirtualClock();
      const { client } = await setUpPluginHub([watch], { s }, { servers: AUTO, clock });
      if (era === "legacy") await initialize(client);
      const answer =
        era === "legacy"
          ? callToolAsLegacy(client)
          : sendModernRequest(client, "tools/call", { name: "s__x" }, TASKS_DECLARED);
      await clock.advanceAsync(500);
      s.status = "completed";
      s.extraMembers = COMPLETED_MEMBERS;
      await clock.advanceAsync(500);
      const { result } = await answer;
      assert.deepEqual(result?.["content"], []);
      assert.equal(result?.["resultType"], era === "modern" ? "complete" : undefined);
      assert.deepEqual(seen, ['{"content":[],"n":1.0}']);
    });
  }

  it("asks a modern client, who comes back with the answer", async () => {
    const passing = callPlugin("passing", (given, next) => next(given));
    const s = new ModernTaskServer();
    const clock = new VirtualClock();
    const { client } = await setUpPluginHub([passing], { s }, { servers: AUTO, clock });
    const able = { ...ALL_MODERN_CAPABILITIES, ...TASKS_DECLARED };
    const params = { name: "s__x" };
    client.send(modernRequest(1, "tools/call", params, able));
    await clock.advanceAsync(100);
    s.status = "input_required";
    s.extraMembers = asking({ k: FORM_ELICITATION });
    await clock.advanceAsync(1000);
    const { keys, state: requestState } = inputRoundOf(await client.find(isResponseTo(1)));
    const inputResponses = Object.fromEntries(keys.map((key) => [key, { action: "accept" }]));
    client.send(modernRequest(2, "tools/call", { ...params, inputResponses, requestState }, able));
    await turn();
    assert.deepEqual(s.messagesOf("tasks/update").at(-1)?.params?.["inputResponses"], {
      k: { action: "accept" },
    });
    s.status = "completed";
    s.extraMembers = COMPLETED_MEMBERS;
    await clock.advanceAsync(1000);
    assert.equal((await client.find(isResponseTo(2))).result?.["resultType"], "complete");
  });

  it("is cancelled if they answer without it", async () => {
    const hasty = callPlugin("hasty", (given, next) => {
      void next(given).catch(() => {});
      return new Promise((resolve) =>
        clock.after(2000, () => resolve(given.answer({ content: [], enough: 1 }))),
      );
    });
    const s = new ModernTaskServer();
    const clock = new VirtualClock();
    const { client } = await setUpPluginHub([hasty], { s }, { servers: AUTO, clock });
    await initialize(client);
    const answer = callToolAsLegacy(client);
    await clock.advanceAsync(3000);
    assert.match(JSON.stringify(await answer), /enough/);
    assert.deepEqual(s.taskIdsOf("tasks/cancel"), ["t1"]);
  });
});

describe("a task that a call cannot be", () => {
  it("is an error", async () => {
    const s = new ModernTaskServer();
    s.listings = { ...s.listings, prompts: [{ name: "p" }] as never[] };
    s.handlers["prompts/get"] = () => `"result":{"resultType":"task",${modernTaskJson("t1")}}`;
    const { client } = await begin(s);
    for (const answer of [
      sendRequest(client, "prompts/get", { name: "s__p" }),
      sendModernRequest(client, "prompts/get", { name: "s__p" }, TASKS_DECLARED),
    ]) {
      assert.match((await answer).error?.message ?? "", /result of type "task"/);
    }
  });
});

describe("a modern client that does not know tasks", () => {
  it("has its call sent once, also where plugins see it", async () => {
    const passing = callPlugin("passing", (given, next) => next(given));
    const s = new ModernTaskServer();
    const { client } = await setUpPluginHub([passing], { s }, { servers: AUTO });
    const { result } = await sendModernRequest(client, "tools/call", { name: "s__x" });
    assert.equal(result?.["isError"], true);
    assert.equal(s.messagesOf("tools/call").length, 1);
  });

  it("is told that it would have to, or gets the result of a task that it was given all the same", async () => {
    const s = new ModernTaskServer();
    const { client, clock } = setUpHubWithClock({ s }, { servers: AUTO });
    const { error } = await sendModernRequest(client, "tools/call", { name: "s__x" });
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], TASKS_DECLARED);
    s.onCall = () => `"result":{"resultType":"task",${modernTaskJson("t1")}}`;
    s.status = "completed";
    s.extraMembers = ',"result":{"content":[]}';
    const answer = sendModernRequest(client, "tools/call", { name: "s__x" });
    await clock.advanceAsync(1000);
    assert.equal((await answer).result?.["resultType"], "complete");
  });
});
