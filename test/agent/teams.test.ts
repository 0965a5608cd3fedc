import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readBudget, reportedEvents } from "../../src/agent/agent-calls.ts";
import type { AgentEvent } from "../../src/agent/events.ts";
import type { ModelPart } from "../../src/agent/model.ts";
import { AgentSession } from "../../src/agent/session.ts";
import type { ToolCallOptions } from "../../src/agent/toolbox.ts";
import { eventsOf } from "../../src/agent/transcript-events.ts";
import {
  FunctionToolbox,
  say,
  setUpAgents,
  textResult,
  type Turn,
  TurnModel,
  use,
} from "../fixtures/agents.ts";

const signal = new AbortController().signal;

const ask = (agent: string, task = "x"): readonly [string, string] => [
  "transfer_task",
  JSON.stringify({ agent, task }),
];

function started(events: readonly AgentEvent[]) {
  return events.filter((event) => event.type === "agentStarted");
}

function ended(events: readonly AgentEvent[]) {
  return events.filter((event) => event.type === "agentEnded");
}

function outcomeOf(events: readonly AgentEvent[]): string {
  const end = events.at(-1);
  if (end?.type === "error") return end.code;
  return end?.type === "runComplete" ? end.stopReason : assert.fail(end?.type);
}

/** The answer of a tool that has run an agent, as a hub gives it. */
function agentResult(text: string, toolCalls: number, tokens: number, more: object = {}) {
  const usage = { inputTokens: tokens, outputTokens: 0 };
  return textResult(text, { report: { cost: { usage, toolCalls }, events: [] }, ...more });
}

describe("the events of a team", () => {
  it("tell which run each belongs to, also when one agent runs twice at a time, and inside of another", async () => {
    const main = new TurnModel([use(ask("b", "one"), ask("b", "two")), say("done")]);
    const b = new TurnModel([
      async function* (request) {
        const [task] = request.messages;
        const inner = task?.role === "user" && JSON.stringify(task.content).includes("one");
        yield* (inner ? use(ask("c", "deep")) : say("two")) as readonly ModelPart[];
      },
      async function* (request) {
        const isSecond = request.messages.length === 1;
        yield* (isSecond ? say("two") : say("one")) as readonly ModelPart[];
      },
    ]);
    const c = new TurnModel([use("a"), say("c")]);
    const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
    const specs = { main: { subAgents: ["b"] }, b: { subAgents: ["c"] }, c: {} };
    const events = await setUpAgents({ main, b, c }, toolbox, specs).run();
    assert.equal(outcomeOf(events), "stop");
    const begun = started(events);
    assert.deepEqual(
      new Set(begun.map(({ agent, task }) => `${agent} ${task}`)),
      new Set(["b one", "b two", "c deep"]),
    );
    assert.equal(new Set(begun.map(({ runId }) => runId)).size, 3);
    const [one, deep] = ["one", "deep"].map((task) => begun.find((run) => run.task === task));
    assert.deepEqual([one?.run, deep?.run], [undefined, one?.runId]);
    const call = events.find((e) => e.type === "toolCallStart" && e.toolName === "a");
    assert.ok(call?.type === "toolCallStart" && call.run === deep?.runId);
    const ends = ended(events);
    assert.equal(ends.length, 3);
    const ofOne = ends.find(({ runId }) => runId === one?.runId);
    // The sums of a run contain those of the runs inside it.
    assert.deepEqual([ofOne?.success, ofOne?.toolCalls, ofOne?.usage.inputTokens], [true, 2, 40]);
  });

  it("tell that an agent for a task has handed over to another one, which gives the answer", async () => {
    const main = new TurnModel([use(ask("b")), say("done")]);
    const b = new TurnModel([use(["handoff", '{"agent":"c"}'])]);
    const c = new TurnModel([say("from c")]);
    const specs = { main: { subAgents: ["b"] }, b: { handoffs: ["c"] }, c: {} };
    const events = await setUpAgents({ main, b, c }, new FunctionToolbox(), specs).run();
    const [begun] = started(events);
    const handed = events.find((event) => event.type === "transferred");
    assert.ok(handed?.type === "transferred" && handed.run === begun?.runId);
    assert.deepEqual(main.lastResults, ["from c"]);
  });

  it("have results and what tools tell on the way, without secrets and not longer than 2,000 characters", async () => {
    const toolbox = new FunctionToolbox({
      a: (_, { onProgress }) => {
        onProgress?.({ progress: 1, total: 4, message: "reads s3cret" });
        onProgress?.({ progress: 2, total: 4, message: "too soon" });
        return textResult(`${"x".repeat(1990)} s3cret ${"y".repeat(20_000)}`);
      },
    });
    const events = await setUpAgents({ main: new TurnModel([use("a"), say("x")]) }, toolbox).run();
    const progress = events.filter((event) => event.type === "toolProgress");
    assert.deepEqual(
      progress.map(({ message }) => message),
      ["1 of 4: reads ***"],
    );
    const done = events.find((event) => event.type === "toolExecuted");
    assert.ok(done?.type === "toolExecuted");
    const { result = "" } = done;
    assert.ok(result.startsWith(`${"x".repeat(1990)} *** y`) && result.endsWith("…"));
    assert.ok(result.length <= 2001);
    assert.equal(done.size, 21_998);
  });
});

describe("a team", () => {
  it("stops whole when its run is cancelled, at every depth", async () => {
    const stopped: string[] = [];
    const { promise: isCalled, resolve } = Promise.withResolvers<void>();
    const toolbox = new FunctionToolbox({
      a: (_, options) =>
        new Promise((__, reject) => {
          options.signal.addEventListener("abort", () => {
            stopped.push("a");
            reject(options.signal.reason as Error);
          });
          resolve();
        }),
    });
    const models = {
      main: new TurnModel([use(ask("b"))]),
      b: new TurnModel([use(ask("c"))]),
      c: new TurnModel([use("a")]),
    };
    const specs = { main: { subAgents: ["b"] }, b: { subAgents: ["c"] }, c: {} };
    const setup = setUpAgents(models, toolbox, specs);
    const running = setup.run();
    await isCalled;
    setup.controller.abort(new Error("enough"));
    const events = await running;
    assert.equal(outcomeOf(events), "cancelled");
    assert.deepEqual(stopped, ["a"]);
    assert.deepEqual(
      ended(events).map(({ agent, error }) => [agent, error]),
      [
        ["c", "cancelled"],
        ["b", "cancelled"],
      ],
    );
    for (const model of Object.values(models)) assert.equal(model.requests.length, 1);
  });

  for (const [code, limits, specOfMain] of [
    ["tokenLimit", { maxTokens: 60 }, {}],
    ["toolCallLimit", { maxToolCalls: 4 }, {}],
    ["toolCallLimit", {}, { maxToolCalls: 4 }],
  ] as const) {
    it(`ends with ${code} of the outermost run, however deeply its agents work (${JSON.stringify({ ...limits, ...specOfMain })})`, async () => {
      let number = 0;
      const vary: Turn = async function* () {
        yield* use(["a", `{"n":${number++}}`]) as readonly ModelPart[];
      };
      const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
      const models = {
        main: new TurnModel([use(ask("b"))]),
        b: new TurnModel([use(ask("c"))]),
        c: new TurnModel([vary]),
      };
      const specs = {
        main: { subAgents: ["b"], ...specOfMain },
        b: { subAgents: ["c"] },
        c: {},
      };
      const events = await setUpAgents(models, toolbox, specs).run("x", limits);
      assert.equal(outcomeOf(events), code);
      assert.ok(toolbox.calls.length <= 2);
    });
  }
});

describe("a call of an agent as a tool", () => {
  const specs = { main: { allowAgents: true } };
  const call = use(["agents__b", '{"message":"Find it."}']);

  it("carries what is left of the limits, and what it has used counts in the caller's run", async () => {
    const budgets: ToolCallOptions["budget"][] = [];
    const toolbox = new FunctionToolbox({
      agents__b: (_, { budget }) => {
        budgets.push(budget);
        return agentResult("found", 3, 100);
      },
    });
    const setup = setUpAgents({ main: new TurnModel([call, call, say("x")]) }, toolbox, specs);
    const events = await setup.run("x", { maxTokens: 1000, maxToolCalls: 20 });
    // One call takes 1 + 3 calls of tools; each turn of the model takes 15 tokens.
    assert.deepEqual(budgets, [
      { maxTokens: 985, maxToolCalls: 19 },
      { maxTokens: 870, maxToolCalls: 15 },
    ]);
    const end = events.at(-1);
    assert.ok(end?.type === "runComplete");
    assert.deepEqual([end.toolCalls, end.usage.inputTokens], [8, 230]);
    assert.deepEqual(
      ended(events).map(({ how, agent, success, toolCalls }) => [how, agent, success, toolCalls]),
      [
        ["call", "agents__b", true, 3],
        ["call", "agents__b", true, 3],
      ],
    );
  });

  it("ends the run if it has used up the run's budget", async () => {
    for (const [limits, code, result] of [
      [{ maxTokens: 100 }, "tokenLimit", agentResult("part", 0, 90)],
      [
        { maxToolCalls: 3 },
        "toolCallLimit",
        agentResult("no", 2, 5, { isError: true, code: "limitReached" }),
      ],
    ] as const) {
      const toolbox = new FunctionToolbox({ agents__b: () => result });
      const setup = setUpAgents({ main: new TurnModel([call, say("x")]) }, toolbox, specs);
      const events = await setup.run("x", limits);
      assert.equal(outcomeOf(events), code);
      assert.equal(toolbox.calls.length, 1);
    }
  });

  it("counts in the limits of a session once, whether the agent tells its calls or not", async () => {
    const told = [
      { type: "tool_call", agent: "b", tool: "t", id: "1", arguments: "{}" },
      {
        type: "tool_response",
        agent: "b",
        tool: "t",
        id: "1",
        success: true,
        size: 5,
        result: "r",
      },
      { type: "agent_message", agent: "b", content: "found" },
    ];
    for (const events of [told, []]) {
      const usage = { inputTokens: 100, outputTokens: 0 };
      const toolbox = new FunctionToolbox({
        agents__b: () => textResult("found", { report: { cost: { usage, toolCalls: 1 }, events } }),
      });
      const setup = setUpAgents({ main: new TurnModel([call, say("x")]) }, toolbox, specs);
      const session = new AgentSession(await setup.agent(), {
        id: "1",
        clock: setup.clock,
        maxToolCalls: 2,
      });
      const seen: AgentEvent[] = [];
      for await (const event of session.send("x", { signal })) seen.push(event);
      assert.equal(outcomeOf(seen), "stop");
      assert.equal(session.tokensUsed, 130);
      const result = session.transcript.messages[2];
      assert.ok(result?.role === "tool");
      assert.deepEqual(
        result.run?.messages.map(({ role, text }) => [role, text]),
        events === told
          ? [
              ["user", "Find it."],
              ["assistant", ""],
              ["tool", "r"],
              ["assistant", "found"],
            ]
          : [["user", "Find it."]],
      );
    }
  });

  it("is read with nothing but its own fields, whatever a peer writes", () => {
    const strange = [null, 1, "x", [], {}, { type: 7 }, { type: "tool_call" }, { type: "evil" }];
    const events = reportedEvents(
      {
        events: [
          ...strange,
          ...Array.from({ length: 500 }, () => ({
            type: "agent_message",
            content: "y".repeat(9000),
          })),
        ],
      },
      "r",
    );
    assert.ok(events.length <= 200);
    assert.ok(events.every((event) => event.run === "r"));
    assert.ok(events.every((event) => event.type !== "textDelta" || event.text.length <= 4000));
    for (const value of [undefined, 1, { maxTokens: -1 }, { maxTokens: "9", maxToolCalls: null }])
      assert.deepEqual(readBudget({ "toolmux/budget": value }), {
        ...(typeof value === "object" && { maxTokens: undefined, maxToolCalls: undefined }),
      });
  });
});

describe("a transcript", () => {
  it("tells the tree of a team again as the events have told it", async () => {
    const main = new TurnModel([use(ask("b", "Test.")), say("done")]);
    const b = new TurnModel([use("a"), say("yes")]);
    const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
    const setup = setUpAgents({ main, b }, toolbox, { main: { subAgents: ["b"] }, b: {} });
    const session = new AgentSession(await setup.agent(), { id: "1", clock: setup.clock });
    const live: AgentEvent[] = [];
    for await (const event of session.send("x", { signal })) live.push(event);
    const told = session.transcript.entries.flatMap((entry, at) =>
      eventsOf(entry, { before: "main", model: "m", redact: (text) => text, id: String(at) }),
    );
    const kinds = (events: readonly { readonly type: string }[]): readonly string[] =>
      events.map(({ type }) => type).filter((type) => type !== "usage" && type !== "message");
    assert.deepEqual(kinds(told), [
      "runStarted",
      "toolCallStart",
      "agentStarted",
      "toolCallStart",
      "toolExecuted",
      "textDelta",
      "agentEnded",
      "toolExecuted",
      "textDelta",
      "runComplete",
    ]);
    assert.deepEqual(kinds(told), kinds(live));
    const inside = told.filter((event) => "run" in event && event.run !== undefined);
    assert.equal(new Set(inside.map((event) => "run" in event && event.run)).size, 1);
    assert.equal(inside.length, 3);
  });
});
