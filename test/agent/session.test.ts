import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AgentEvent } from "../../src/agent/events.ts";
import type { ModelPart } from "../../src/agent/model.ts";
import { AgentSession } from "../../src/agent/session.ts";
import {
  FunctionToolbox,
  say,
  setUpAgents,
  textResult,
  TurnModel,
  use,
} from "../fixtures/agents.ts";
import { turn } from "../fixtures/virtual-clock.ts";

async function read(events: AsyncIterable<AgentEvent>): Promise<string> {
  let end = "";
  for await (const event of events) {
    if (event.type === "runComplete") end = `${event.stopReason}: ${event.text}`;
    if (event.type === "error") end = event.code;
  }
  return end;
}

const signal = new AbortController().signal;

async function open(model: TurnModel, toolbox = new FunctionToolbox(), limits: object = {}) {
  const setup = setUpAgents({ main: model }, toolbox, { main: { handoffs: ["b"] }, b: {} });
  const session = new AgentSession(await setup.agent(), { id: "1", clock: setup.clock, ...limits });
  return { ...setup, session };
}

describe("a session with an agent", () => {
  it("keeps the conversation over its messages, until it is cleared", async () => {
    const model = new TurnModel([say("one"), say("two"), say("three")]);
    const { session } = await open(model);
    assert.equal(await read(session.send("a", { signal })), "stop: one");
    assert.equal(await read(session.send("b", { signal })), "stop: two");
    assert.deepEqual(
      model.requests.map(({ messages }) => messages.length),
      [1, 3],
    );
    assert.equal(session.tokensUsed, 30);
    await session.clear(signal);
    assert.equal(session.transcript.messages.length, 0);
    await read(session.send("c", { signal }));
    assert.equal(model.requests.at(-1)?.messages.length, 1);
  });

  it("goes on with the next message when one is cancelled, waiting or running", async () => {
    const toolbox = new FunctionToolbox({ a: () => new Promise(() => {}) });
    const { session } = await open(new TurnModel([use("a"), say("y")]), toolbox);
    const [first, second] = [new AbortController(), new AbortController()];
    const running = read(session.send("1", { signal: first.signal }));
    const waiting = read(session.send("2", { signal: second.signal }));
    const last = read(session.send("3", { signal }));
    await turn();
    second.abort(new Error("no"));
    await assert.rejects(waiting, /no/);
    first.abort(new Error("no"));
    assert.equal(await running, "cancelled: ");
    assert.equal(await last, "stop: y");
  });

  it("ends what runs and waits when it is closed, and takes nothing more", async () => {
    const toolbox = new FunctionToolbox({ a: () => new Promise(() => {}) });
    const { session } = await open(new TurnModel([use("a")]), toolbox);
    const running = read(session.send("1", { signal }));
    const waiting = read(session.send("2", { signal }));
    await turn();
    session.close();
    assert.equal(await running, "cancelled: ");
    await assert.rejects(waiting, { code: "cancelled" });
    await assert.rejects(read(session.send("3", { signal })), { code: "cancelled" });
    assert.equal(session.state, "closed");
  });

  it("stays with the agent that took over, and with one that it was transferred to", async () => {
    const main = new TurnModel([use(["handoff", '{"agent":"b"}'])]);
    const b = new TurnModel([say("b")]);
    const setup = setUpAgents({ main, b }, new FunctionToolbox(), {
      main: { handoffs: ["b"] },
      b: {},
    });
    const session = new AgentSession(await setup.agent(), { id: "1", clock: setup.clock });
    await read(session.send("x", { signal }));
    assert.equal(session.agent.spec.name, "b");
    await session.transfer(await setup.agent(), signal);
    assert.equal(session.agent.spec.name, "main");
  });

  it("has budgets of tool calls and tokens for all its runs", async () => {
    const toolbox = new FunctionToolbox({ a: () => textResult("") });
    for (const [limits, code] of [
      [{ maxToolCalls: 3 }, "toolCallLimit"],
      [{ maxTokens: 50 }, "tokenLimit"],
    ] as const) {
      const model = new TurnModel([use("a"), say("x"), use("a", "a"), use("a", "a", "a")]);
      const { session } = await open(model, toolbox, limits);
      assert.equal(await read(session.send("1", { signal })), "stop: x");
      assert.equal(await read(session.send("2", { signal })), code);
    }
  });

  for (const [what, usage] of [
    ["no usage", {}],
    ["zeros", { inputTokens: 0, outputTokens: 0 }],
    ["the tokens of the answer only", { outputTokens: 3 }],
  ] as const) {
    it(`has its budget of tokens estimated where the API reports ${what}, and says so`, async () => {
      const toolbox = new FunctionToolbox({ a: () => textResult("x".repeat(4000)) });
      const calling = (use("a") as readonly ModelPart[]).map((part) =>
        part.type === "finish" ? { ...part, usage } : part,
      );
      const model = new TurnModel([calling, calling, calling, say("never", usage as never)]);
      const { session } = await open(model, toolbox, { maxTokens: 1000 });
      const events: AgentEvent[] = [];
      for await (const event of session.send("1", { signal })) events.push(event);
      const end = events.at(-1);
      assert.ok(end?.type === "error" && end.code === "tokenLimit");
      assert.match(end.message, /about \d+ tokens \(an estimate/);
      const usages = events.filter(({ type }) => type === "usage");
      assert.equal(usages.length, 2);
      assert.ok(usages.every((event) => event.type === "usage" && event.estimated === true));
      assert.ok(session.areTokensEstimated && session.tokensUsed > 1000);
    });
  }
});
