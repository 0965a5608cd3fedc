import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  ask,
  introduce,
  isAnswer,
  type Json,
  type Peer,
  type Servers,
  setStage,
} from "../fixtures/memory-hub.ts";
import { ABLE, modern, request, roundOf } from "../fixtures/modern-requests.ts";
import { FORM, SAMPLE } from "../fixtures/modern-server.ts";
import { setUpWith } from "../fixtures/plugin-hub.ts";
import {
  callAsOfOld,
  DECLARED,
  declares,
  DONE,
  ModernTasker,
  ticketJson,
} from "../fixtures/modern-task-server.ts";
import { wrapping } from "../plugins/plugin-hub.ts";

const AUTO: Servers = {
  s: {
    era: "auto",
    callTimeout: 10_000,
    maxCallTimeout: 60_000,
    reconnect: { policy: "none" } as never,
  },
};
const CAN = { sampling: {}, elicitation: { form: {} } };

async function begin(s: ModernTasker, capabilities: object = CAN) {
  const stage = setStage({ s }, { servers: AUTO });
  await introduce(stage.client, capabilities);
  stage.client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  return stage;
}

/** The same, after a legacy client has made a call of which the server makes a task. */
async function beginCall(s: ModernTasker, capabilities?: object) {
  const stage = await begin(s, capabilities);
  const answer = callAsOfOld(stage.client);
  await stage.clock.run(0);
  await turn();
  return { ...stage, answer };
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
    const s = new ModernTasker();
    const { client, clock, answer } = await beginCall(s);
    await clock.run(1000);
    assert.deepEqual(s.queries("tasks/get"), ["t1", "t1"]);
    s.status = "completed";
    s.more = DONE;
    await clock.run(500);
    assert.deepEqual((await answer).result, { content: [], n: 1 });
    assert.ok(client.received.some((text) => text.includes('"result":{"content":[],"n":1.0}')));
    await clock.run(10_000);
    assert.equal(s.queries("tasks/get").length, 3);
    assert.deepEqual(s.queries("tasks/cancel"), []);
  });

  it("is said to know tasks only to a server that refuses to go on without", async () => {
    const s = new ModernTasker();
    s.otherwise = '"result":{"resultType":"complete","content":[]}';
    const { client } = await begin(s);
    assert.deepEqual((await callAsOfOld(client)).result, { content: [] });
    assert.equal(s.asked("tools/call").length, 1);
    const insisting = new ModernTasker();
    await beginCall(insisting);
    assert.deepEqual(insisting.asked("tools/call").map(declares), [false, true]);
    const [first, second] = insisting.asked("tools/call").map(({ params }) => params);
    const bare = (params: typeof first): object => ({ ...params, _meta: undefined });
    assert.deepEqual(second && bare(second), first && bare(first));
  });

  it("is told what it lacks beside tasks, and asked no more if tasks were not enough", async () => {
    for (const [required, calls] of [
      [{ ...DECLARED, sampling: {} }, 1],
      [{ extensions: { ...DECLARED.extensions, "vendor/x": {} } }, 1],
      [DECLARED, 2],
    ] as const) {
      const s = new ModernTasker();
      const data = JSON.stringify({ requiredCapabilities: required });
      s.onCall = () => `"error":{"code":-32021,"message":"no","data":${data}}`;
      const { client } = await begin(s);
      assert.equal((await callAsOfOld(client)).result?.["isError"], true);
      assert.equal(s.asked("tools/call").length, calls);
    }
  });

  it("gets the error of a task that failed, and one for a task that was cancelled", async () => {
    const s = new ModernTasker();
    const { clock, answer } = await beginCall(s);
    s.status = "failed";
    s.more = ',"error":{"code":-5,"message":"broken","data":1.0}';
    await clock.run(500);
    assert.deepEqual((await answer).error, { code: -5, message: "broken", data: 1 });
    const other = new ModernTasker();
    const second = await beginCall(other);
    other.status = "cancelled";
    await second.clock.run(500);
    assert.match((await second.answer).error?.message ?? "", /Server "s" has cancelled the call/);
  });

  it("gets an error if the server has no result, or does not know the task any more", async () => {
    const s = new ModernTasker();
    const { clock, answer } = await beginCall(s);
    s.status = "completed";
    await clock.run(500);
    assert.match((await answer).error?.message ?? "", /does not say to which/);
    const other = new ModernTasker();
    const second = await beginCall(other);
    other.on["tasks/get"] = () => '"error":{"code":-32602,"message":"gone"}';
    await second.clock.run(500);
    assert.deepEqual((await second.answer).error, { code: -32602, message: "gone" });
  });

  it("is asked what the task wants, once, and the server gets its answer as it wrote it", async () => {
    const s = new ModernTasker();
    const { client, clock, answer } = await beginCall(s);
    const asked = answerWith(client, '"result":{"action":"accept","content":{"n":1.0}}');
    s.status = "input_required";
    s.more = asking({ k: FORM });
    await clock.run(500);
    await turn();
    assert.deepEqual(s.queries("tasks/update"), ["t1"]);
    const text = s.peer?.received.find((each) => each.includes("tasks/update"));
    assert.match(
      text ?? "",
      /"inputResponses":\{"k":\{"action":"accept","content":\{"n":1\.0\}\}\}/,
    );
    // The server may take its time to notice.
    await clock.run(2000);
    assert.equal(asked.length, 1);
    assert.equal(asked[0]?.params?.["message"], "[s] Which?");
    s.more = asking({ l: SAMPLE });
    await clock.run(1000);
    assert.deepEqual(asked.map(({ method }) => method).slice(1), ["sampling/createMessage"]);
    s.status = "completed";
    s.more = DONE;
    await clock.run(1000);
    assert.equal((await answer).error, undefined);
    assert.equal(s.queries("tasks/update").length, 2);
  });

  it("has its call's time stand still while it is asked", async () => {
    const s = new ModernTasker();
    const { client, clock } = await beginCall(s);
    s.status = "input_required";
    s.more = asking({ k: FORM });
    await clock.run(500);
    const { id } = await client.find(({ method }) => method === "elicitation/create");
    await clock.run(300_000);
    assert.deepEqual(s.queries("tasks/cancel"), []);
    client.send({ jsonrpc: "2.0", id, result: { action: "decline" } });
    await clock.run(0);
    await turn();
    assert.deepEqual(s.queries("tasks/update"), ["t1"]);
  });

  it("fails if it cannot be asked what the server needs, and the task is cancelled", async () => {
    const s = new ModernTasker();
    const { clock, answer } = await beginCall(s, {});
    s.status = "input_required";
    s.more = asking({ k: SAMPLE });
    await clock.run(500);
    assert.match((await answer).error?.message ?? "", /cannot go on without/);
    assert.deepEqual(s.queries("tasks/cancel"), ["t1"]);
  });

  it("fails if the server does not take an answer", async () => {
    const s = new ModernTasker();
    s.on["tasks/update"] = () => '"error":{"code":-32602,"message":"no"}';
    const { client, clock, answer } = await beginCall(s);
    answerWith(client, '"result":{"action":"decline"}');
    s.status = "input_required";
    s.more = asking({ k: FORM });
    await clock.run(500);
    assert.match((await answer).error?.message ?? "", /did not take what it had asked for/);
    assert.deepEqual(s.queries("tasks/cancel"), ["t1"]);
  });

  it("waits no longer than its call may take, and the task is cancelled then", async () => {
    const s = new ModernTasker();
    const { clock, answer } = await beginCall(s);
    await clock.run(10_500);
    const { result } = await answer;
    assert.equal(result?.["isError"], true);
    assert.deepEqual(s.queries("tasks/cancel"), ["t1"]);
    const count = s.queries("tasks/get").length;
    await clock.run(10_000);
    assert.equal(s.queries("tasks/get").length, count);
  });

  it("has more time whenever there is news of the task, but not for ever", async () => {
    const s = new ModernTasker();
    const { client, clock } = await beginCall(s);
    for (let i = 1; i <= 11; i++) {
      s.more = `,"statusMessage":"${i}"`;
      await clock.run(5000);
    }
    assert.deepEqual(s.queries("tasks/cancel"), []);
    s.more = ',"statusMessage":"12"';
    await clock.run(5000);
    assert.deepEqual(s.queries("tasks/cancel"), ["t1"]);
    assert.ok(client.messages.some(({ result }) => result?.["isError"] === true));
  });

  it("cancels the task with its call, and takes back what it was asked", async () => {
    for (const isAsked of [false, true]) {
      const s = new ModernTasker();
      const { client, clock } = await begin(s);
      client.send({ jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "s__x" } });
      await clock.run(0);
      if (isAsked) {
        s.status = "input_required";
        s.more = asking({ k: FORM });
      }
      await clock.run(500);
      const asked = client.messages.find(({ method }) => method === "elicitation/create");
      client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
      await clock.run(5000);
      assert.deepEqual(s.queries("tasks/cancel"), ["t1"]);
      assert.ok(!client.messages.some(isAnswer(5)));
      const isEnd = ({ method }: Json): boolean => method === "notifications/cancelled";
      const withdrawn = client.messages.find(isEnd);
      assert.equal(withdrawn?.params?.["requestId"], asked?.id);
      assert.equal(asked !== undefined, isAsked);
    }
  });

  it("fails with its server", async () => {
    const s = new ModernTasker();
    const { answer } = await beginCall(s);
    s.die();
    await turn();
    assert.equal((await answer).error?.code, -31002);
  });

  it("is asked after as often as the server wants, within bounds", async () => {
    for (const [interval, ms] of [
      ["1", 250],
      ["2000", 2000],
      ["9999999", 30_000],
      ["null", 1000],
      ['"x"', 1000],
    ] as const) {
      const s = new ModernTasker();
      const own = ',"result":{}';
      s.onCall = () =>
        `"result":{"resultType":"task",${ticketJson("t1").replace(/"pollIntervalMs":500/, `"pollIntervalMs":${interval}`)}}`;
      const { clock } = await beginCall(s);
      s.status = "completed";
      s.more = own;
      await clock.run(Math.min(ms, 10_000) - 1);
      assert.equal(s.queries("tasks/get").length, 0, interval);
      if (ms > 10_000) continue;
      await clock.run(1);
      assert.equal(s.queries("tasks/get").length, 1, interval);
    }
  });

  it("waits for nothing if the task has ended when it begins", async () => {
    const s = new ModernTasker();
    s.onCall = () => `"result":{"resultType":"task",${ticketJson("t1", "completed")}}`;
    s.status = "completed";
    s.more = DONE;
    const { client } = await begin(s);
    assert.deepEqual((await callAsOfOld(client)).result?.["content"], []);
  });

  it("gets an error for a task without an id", async () => {
    const s = new ModernTasker();
    s.onCall = () => '"result":{"resultType":"task"}';
    const { client } = await begin(s);
    assert.match((await callAsOfOld(client)).error?.message ?? "", /does not say which/);
  });

  it("says in each request about the task who asks, and that it knows tasks", async () => {
    const s = new ModernTasker();
    const { client, clock } = await beginCall(s);
    answerWith(client, '"result":{"action":"decline"}');
    s.status = "input_required";
    s.more = asking({ k: FORM });
    await clock.run(500);
    await turn();
    for (const method of ["tasks/get", "tasks/update"]) {
      const [asked] = s.asked(method);
      assert.ok(asked && declares(asked), method);
      const meta = asked.params?.["_meta"] as Readonly<Record<string, unknown>>;
      assert.equal(meta[MetaKey.version], "2026-07-28");
    }
  });

  it("keeps its server from being idle", async () => {
    const s = new ModernTasker();
    const servers = {
      s: { era: "auto", lazy: true, idleStop: 5000, callTimeout: 100_000 },
    } as const;
    const { client, clock } = setStage({ s }, { servers });
    await introduce(client);
    const answer = callAsOfOld(client);
    await clock.run(90_000);
    assert.equal(s.starts - s.open, 1, "only the first look has ended");
    s.status = "completed";
    s.more = DONE;
    await clock.run(1000);
    assert.equal((await answer).error, undefined);
    await clock.run(70_000);
    assert.equal(s.open, 0);
  });
});

describe("a task that plugins must not see", () => {
  for (const era of ["legacy", "modern"] as const) {
    it(`is brought to its end for a ${era} client, and they see the result`, async () => {
      const seen: string[] = [];
      const watch = wrapping("watch", async (given, next) => {
        const answer = await next(given);
        seen.push(answer.json);
        return answer;
      });
      const s = new ModernTasker();
      const clock = new VirtualClock();
      const { client } = await setUpWith([watch], { s }, { servers: AUTO, clock });
      if (era === "legacy") await introduce(client);
      const answer =
        era === "legacy"
          ? callAsOfOld(client)
          : request(client, "tools/call", { name: "s__x" }, DECLARED);
      await clock.run(500);
      s.status = "completed";
      s.more = DONE;
      await clock.run(500);
      const { result } = await answer;
      assert.deepEqual(result?.["content"], []);
      assert.equal(result?.["resultType"], era === "modern" ? "complete" : undefined);
      assert.deepEqual(seen, ['{"content":[],"n":1.0}']);
    });
  }

  it("asks a modern client, who comes back with the answer", async () => {
    const passing = wrapping("passing", (given, next) => next(given));
    const s = new ModernTasker();
    const clock = new VirtualClock();
    const { client } = await setUpWith([passing], { s }, { servers: AUTO, clock });
    const able = { ...ABLE, ...DECLARED };
    const params = { name: "s__x" };
    client.send(modern(1, "tools/call", params, able));
    await clock.run(100);
    s.status = "input_required";
    s.more = asking({ k: FORM });
    await clock.run(1000);
    const { keys, state: requestState } = roundOf(await client.find(isAnswer(1)));
    const inputResponses = Object.fromEntries(keys.map((key) => [key, { action: "accept" }]));
    client.send(modern(2, "tools/call", { ...params, inputResponses, requestState }, able));
    await turn();
    assert.deepEqual(s.asked("tasks/update").at(-1)?.params?.["inputResponses"], {
      k: { action: "accept" },
    });
    s.status = "completed";
    s.more = DONE;
    await clock.run(1000);
    assert.equal((await client.find(isAnswer(2))).result?.["resultType"], "complete");
  });

  it("is cancelled if they answer without it", async () => {
    const hasty = wrapping("hasty", (given, next) => {
      void next(given).catch(() => {});
      return new Promise((resolve) =>
        clock.after(2000, () => resolve(given.answer({ content: [], enough: 1 }))),
      );
    });
    const s = new ModernTasker();
    const clock = new VirtualClock();
    const { client } = await setUpWith([hasty], { s }, { servers: AUTO, clock });
    await introduce(client);
    const answer = callAsOfOld(client);
    await clock.run(3000);
    assert.match(JSON.stringify(await answer), /enough/);
    assert.deepEqual(s.queries("tasks/cancel"), ["t1"]);
  });
});

describe("a task that a call cannot be", () => {
  it("is an error", async () => {
    const s = new ModernTasker();
    s.lists = { ...s.lists, prompts: [{ name: "p" }] as never[] };
    s.on["prompts/get"] = () => `"result":{"resultType":"task",${ticketJson("t1")}}`;
    const { client } = await begin(s);
    for (const answer of [
      ask(client, "prompts/get", { name: "s__p" }),
      request(client, "prompts/get", { name: "s__p" }, DECLARED),
    ]) {
      assert.match((await answer).error?.message ?? "", /result of type "task"/);
    }
  });
});

describe("a modern client that does not know tasks", () => {
  it("has its call sent once, also where plugins see it", async () => {
    const passing = wrapping("passing", (given, next) => next(given));
    const s = new ModernTasker();
    const { client } = await setUpWith([passing], { s }, { servers: AUTO });
    const { result } = await request(client, "tools/call", { name: "s__x" });
    assert.equal(result?.["isError"], true);
    assert.equal(s.asked("tools/call").length, 1);
  });

  it("is told that it would have to, or gets the result of a task that it was given all the same", async () => {
    const s = new ModernTasker();
    const { client, clock } = setStage({ s }, { servers: AUTO });
    const { error } = await request(client, "tools/call", { name: "s__x" });
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], DECLARED);
    s.onCall = () => `"result":{"resultType":"task",${ticketJson("t1")}}`;
    s.status = "completed";
    s.more = ',"result":{"content":[]}';
    const answer = request(client, "tools/call", { name: "s__x" });
    await clock.run(1000);
    assert.equal((await answer).result?.["resultType"], "complete");
  });
});
