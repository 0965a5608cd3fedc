import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AgentEvent } from "../../src/agent/events.ts";
import { AgentChain } from "../../src/agent/run-chain.ts";
import type { ModelMessage, ModelPart } from "../../src/agent/model.ts";
import type { AgentSpec } from "../../src/manifest/agents.ts";
import {
  FunctionToolbox,
  modelError,
  say,
  setUpAgents,
  textResult,
  type Turn,
  TurnModel,
  use,
} from "../fixtures/agents.ts";
import { turn } from "../fixtures/virtual-clock.ts";

const TYPES = (events: readonly AgentEvent[]): string => events.map(({ type }) => type).join(" ");

function last(events: readonly AgentEvent[]): AgentEvent {
  return events.at(-1) ?? assert.fail("there are no events");
}

/** The code of the error that ends the events, or how the run is complete. */
function outcomeOf(events: readonly AgentEvent[]): string {
  const end = last(events);
  if (end.type === "error") return end.code;
  return end.type === "runComplete" ? end.stopReason : assert.fail(end.type);
}

/** Never ends, unless it is aborted. */
function hang(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
  });
}

describe("a run of an agent", () => {
  it("passes on text and thinking, calls tools, and ends with the answer without the thinking", async () => {
    const model = new TurnModel([
      [
        { type: "thinking", text: "hm" },
        { type: "text", text: "Let me " },
        { type: "text", text: "see." },
        { type: "toolCall", id: "1", name: "s__a", argumentsJson: '{"key":"s3cret"}' },
        { type: "finish", reason: "toolCalls", usage: { inputTokens: 10, outputTokens: 2 } },
      ],
      say("It is 4."),
    ]);
    const toolbox = new FunctionToolbox({ s__a: () => textResult("four") });
    const { run, history } = setUpAgents({ main: model }, toolbox);
    const events = await run("What is it?");
    assert.equal(
      TYPES(events),
      "runStarted thinkingDelta textDelta textDelta usage toolCallStart toolExecuted textDelta usage runComplete",
    );
    const [, , , , , start, executed] = events;
    assert.ok(start?.type === "toolCallStart" && executed?.type === "toolExecuted");
    assert.deepEqual([start.server, start.arguments], ["s", '{"key":"***"}']);
    assert.deepEqual([executed.success, executed.size, executed.toolCallId], [true, 4, "1"]);
    const end = last(events);
    assert.ok(end.type === "runComplete");
    assert.deepEqual([end.text, end.toolCalls], ["It is 4.", 1]);
    assert.deepEqual(end.usage, { inputTokens: 20, outputTokens: 7 });
    assert.deepEqual(toolbox.calls[0]?.args, '{"key":"s3cret"}');
    assert.deepEqual(
      history.messages.map(({ role }) => role),
      ["user", "assistant", "tool", "assistant"],
    );
    assert.doesNotMatch(JSON.stringify(history.messages), /hm/);
  });

  it("gives the model the tools that its filter takes, sorted, and new ones in the next turn", async () => {
    const toolbox = new FunctionToolbox({
      s__b: () => textResult("b"),
      s__a: () => textResult("a"),
    });
    const model = new TurnModel([use("s__a"), use("s__c"), say("x")]);
    toolbox.handlers = {
      ...toolbox.handlers,
      s__a: () => {
        toolbox.handlers = { s__c: () => textResult("c"), agents__x: () => textResult("no") };
        return textResult("a");
      },
    };
    const { run } = setUpAgents({ main: model }, toolbox);
    assert.equal(outcomeOf(await run()), "stop");
    assert.deepEqual(
      model.requests.map(({ tools }) => tools.map(({ name }) => name).join()),
      ["s__a,s__b", "s__c", "s__c"],
    );
    const filters: readonly [Partial<AgentSpec>, string][] = [
      [{ tools: undefined }, ""],
      [{ tools: { servers: ["other"] } }, ""],
      [{ tools: { tools: ["s__c"] } }, "s__c"],
      [{ allowAgents: true }, "agents__x,s__c"],
    ];
    for (const [spec, expected] of filters) {
      const one = new TurnModel([say("x")]);
      await setUpAgents({ main: one }, toolbox, { main: spec }).run();
      assert.equal(one.requests[0]?.tools.map(({ name }) => name).join(), expected);
    }
  });

  for (const [what, args, result, sent] of [
    ["empty ones are an empty object", "", "ok", "{}"],
    ["blank ones are an empty object", " \n", "ok", "{}"],
    ["others are sent as they are", '{ "n": 1.0 }', "ok", '{ "n": 1.0 }'],
    ["what is no JSON is not sent", '{"a":', /not a JSON object/, undefined],
    ["what is no object is not sent", "[1]", /not a JSON object/, undefined],
  ] as const) {
    it(`reads arguments: ${what}`, async () => {
      const model = new TurnModel([use(["s__a", args]), say("x")]);
      const toolbox = new FunctionToolbox({ s__a: () => textResult("ok") });
      const events = await setUpAgents({ main: model }, toolbox).run();
      assert.equal(toolbox.calls[0]?.args, sent);
      assert.match(model.lastResults[0] ?? "", new RegExp(result));
      const executed = events.find(({ type }) => type === "toolExecuted");
      assert.ok(executed?.type === "toolExecuted");
      assert.equal(executed.error, sent === undefined ? "invalidParams" : undefined);
    });
  }

  it("tells the model the nearest name if there is no such tool", async () => {
    const model = new TurnModel([use("s__read_fil"), say("x")]);
    const toolbox = new FunctionToolbox({ s__read_file: () => textResult("ok") });
    await setUpAgents({ main: model }, toolbox).run();
    assert.deepEqual(model.lastResults, [
      'There is no tool "s__read_fil". Did you mean "s__read_file"?',
    ]);
    assert.deepEqual(toolbox.calls, []);
  });

  it("recognizes the name of a tool inside of what models add to it", async () => {
    for (const name of [
      "functions.s__read_file",
      "functions.s__read_fil",
      "default_api:s__read_file",
      "s__read_file<|channel|>commentary",
      "functions.s__read_file<|constrain|>json",
      "s__read_file()",
      " s__read_file",
      '"s__read_file"',
    ]) {
      const model = new TurnModel([use(name), say("x")]);
      const toolbox = new FunctionToolbox({
        s__read_file: () => textResult("ok"),
        file: () => textResult("no"),
      });
      await setUpAgents({ main: model }, toolbox).run();
      assert.match(model.lastResults[0] ?? "", /Did you mean "s__read_file"\?$/, name);
      assert.deepEqual(toolbox.calls, []);
    }
  });

  it("gives each block of a result on its own, cut at the limit with a note, and pictures where they are taken", async () => {
    const image = { type: "image", mimeType: "image/png", data: "AAAA" } as const;
    const content = [
      { type: "text", text: "äöü" },
      image,
      { type: "text", text: "x".repeat(50) },
    ] as const;
    const results: string[] = [];
    for (const takesImages of [true, false]) {
      const model = new TurnModel([use("s__a"), say("x")], { takesImages });
      const toolbox = new FunctionToolbox({
        s__a: () => ({ content, isError: false, code: undefined, size: 5000 }),
      });
      await setUpAgents({ main: model }, toolbox, { main: { resultLimit: 40 } }).run();
      results.push(...model.lastResults);
    }
    const note = "[cut: the result has 5 KB, of which 40 B are shown]";
    assert.deepEqual(results, [
      `äöü|<image/png>|${"x".repeat(34)}|${note}`,
      `äöü|[image, image/png, 3 B: not shown]|${note}`,
    ]);
  });

  it("calls several tools of a turn at once, and gives the results in order", async () => {
    let running = 0;
    let most = 0;
    const tool = async (text: string, turns: number) => {
      most = Math.max(most, ++running);
      for (let i = 0; i < turns; i++) await turn();
      running--;
      return textResult(text);
    };
    const handlers = { a: () => tool("1", 3), b: () => tool("2", 1), c: () => tool("3", 2) };
    for (const [parallelToolCalls, expected] of [
      [8, 3],
      [2, 2],
      [1, 1],
    ] as const) {
      most = 0;
      const model = new TurnModel([use("a", "b", "c"), say("x")]);
      await setUpAgents({ main: model }, new FunctionToolbox(handlers), {
        main: { parallelToolCalls },
      }).run();
      assert.deepEqual([most, model.lastResults], [expected, ["1", "2", "3"]]);
    }
  });

  for (const [code, readOnly, calls] of [
    ["notDelivered", false, 2],
    ["answerLost", false, 1],
    ["answerLost", true, 2],
    ["callTimeout", true, 2],
    ["unauthorized", true, 1],
    ["invalidParams", true, 1],
    [undefined, true, 1],
  ] as const) {
    it(`calls a tool that ${readOnly ? "only reads" : "may change something"} ${calls} times after ${code ?? "an error of the tool"}`, async () => {
      const model = new TurnModel([use("a"), say("x")]);
      const toolbox = new FunctionToolbox({
        a: () => textResult("The hub says why.", { isError: true, code }),
      });
      if (readOnly) toolbox.readOnly = ["a"];
      const setup = setUpAgents({ main: model }, toolbox);
      const done = setup.run();
      await setup.clock.advanceAsync(1000);
      const executed = (await done).find(({ type }) => type === "toolExecuted");
      assert.ok(executed?.type === "toolExecuted");
      assert.deepEqual([toolbox.calls.length, executed.error], [calls, code ?? "toolError"]);
      assert.deepEqual(model.lastResults, ["The hub says why."]);
    });
  }

  const endless: Turn = use(["a", "1"]);
  const varied = (): Turn => {
    let n = 0;
    return async function* () {
      n++;
      yield* use(["a", `{"n":${n}}`]) as ModelPart[];
      await Promise.resolve();
    };
  };
  for (const [code, spec, turns] of [
    ["turnLimit", { maxTurns: 3 }, [varied()]],
    ["toolCallLimit", { maxToolCalls: 2 }, [varied()]],
    ["repeatedCalls", {}, [endless]],
  ] as const) {
    it(`ends with ${code}, and every call has a result`, async () => {
      const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
      const { run, history } = setUpAgents({ main: new TurnModel(turns) }, toolbox, { main: spec });
      const events = await run();
      assert.equal(outcomeOf(events), code);
      assert.ok(toolbox.calls.length <= 4);
      const ids = (role: string) =>
        history.messages.filter((message) => message.role === role).length;
      assert.equal(ids("tool"), ids("assistant"));
    });
  }

  it("says what the model wanted when a limit ends it, also a limit of 0", async () => {
    for (const [maxToolCalls, pattern] of [
      [0, /wants to call a, but .* may not call tools/],
      [1, /wants to call a after 1 call /],
    ] as const) {
      const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
      const agents = { main: new TurnModel([varied()]) };
      const events = await setUpAgents(agents, toolbox, { main: { maxToolCalls } }).run();
      const end = events.at(-1);
      assert.match(end?.type === "error" ? end.message : "", pattern);
    }
  });

  it("ends with runTimeout wherever it stands", async () => {
    const phases: readonly Turn[][] = [
      [
        async function* (_, signal) {
          await hang(signal);
          yield* [];
        },
      ],
      [use("a")],
    ];
    for (const turns of phases) {
      const toolbox = new FunctionToolbox({ a: (_, { signal }) => hang(signal) });
      const setup = setUpAgents({ main: new TurnModel(turns) }, toolbox, {
        main: { timeout: 5000 },
      });
      const done = setup.run();
      await setup.clock.advanceAsync(5000);
      assert.equal(outcomeOf(await done), "runTimeout");
    }
  });

  it("has its time stand still while somebody is asked, and that of agents inside of it", async () => {
    const listeners = new Set<(isPaused: boolean) => void>();
    const watchPauses = (listener: (isPaused: boolean) => void) => {
      listeners.add(listener);
      listener(false);
      return () => void listeners.delete(listener);
    };
    const setPaused = (isPaused: boolean): void => listeners.forEach((one) => one(isPaused));
    const task = use(["transfer_task", '{"agent":"helper","task":"t"}']);
    const models = { main: new TurnModel([task]), helper: new TurnModel([use("a")]) };
    const toolbox = new FunctionToolbox({ a: (_, { signal }) => hang(signal) });
    const setup = setUpAgents(models, toolbox, {
      main: { timeout: 5000, subAgents: ["helper"] },
      helper: { timeout: 6000 },
    });
    let isOver = false;
    const done = setup.run("Do it.", { watchPauses }).finally(() => (isOver = true));
    await setup.clock.advanceAsync(4000);
    assert.equal(listeners.size, 2);
    for (const _ of [1, 2]) {
      setPaused(true);
      await setup.clock.advanceAsync(60_000);
      setPaused(false);
    }
    await setup.clock.advanceAsync(999);
    assert.equal(isOver, false);
    await setup.clock.advanceAsync(1);
    assert.equal(outcomeOf(await done), "runTimeout");
    assert.equal(listeners.size, 0);
  });

  const SAID: ModelPart = { type: "text", text: "So far" };
  const deaf = (): Promise<never> => new Promise(() => {});
  for (const [phase, turns, expected] of [
    [
      "before the model answers",
      [
        async function* () {
          await deaf();
          yield* [];
        },
      ],
      [],
    ],
    [
      "in its answer",
      [
        async function* () {
          yield SAID;
          await deaf();
        },
      ],
      ["So far\n[cancelled]"],
    ],
    ["while a tool runs", [use("a")], ["", "[cancelled]"]],
    ["while it waits to ask again", [[modelError("rateLimit", { retryAfter: 50_000 })]], []],
  ] as const satisfies readonly (readonly [string, Turn[], string[]])[]) {
    it(`ends at once when it is cancelled ${phase}, and keeps what was said`, async () => {
      const toolbox = new FunctionToolbox({ a: deaf });
      const setup = setUpAgents({ main: new TurnModel(turns) }, toolbox);
      const done = setup.run();
      for (let i = 0; i < 5; i++) await turn();
      setup.controller.abort(new Error("Ctrl-C"));
      const events = await done;
      assert.equal(outcomeOf(events), "cancelled");
      const texts = setup.history.messages
        .slice(1)
        .map((one) =>
          one.role === "assistant"
            ? one.text
            : one.content.map((c) => "text" in c && c.text).join(),
        );
      assert.deepEqual(texts, expected);
      // The conversation can go on: no call is without its result.
      const next = new TurnModel([say("Again.")]);
      const again = setUpAgents({ main: next }, toolbox);
      for (const message of setup.history.messages) again.history.add(message);
      assert.equal(outcomeOf(await again.run("Go on.")), "stop");
    });
  }

  it("is cancelled, with its calls, by a reader that stops reading", async () => {
    let reason: unknown;
    const toolbox = new FunctionToolbox({
      a: (_, { signal }) =>
        hang(signal).catch((error: unknown) => ((reason = error), textResult(""))),
    });
    const { agent, history } = setUpAgents({ main: new TurnModel([use("a")]) }, toolbox);
    history.add({ role: "user", content: [{ type: "text", text: "x" }] });
    const run = (await agent()).run(history, { signal: new AbortController().signal });
    for await (const event of run) if (event.type === "toolCallStart") break;
    assert.ok(reason instanceof Error);
  });

  for (const [reason, failures, outcome, asked] of [
    ["rateLimit", 3, "stop", 4],
    ["overloaded", 4, "modelFailed", 4],
    ["unreachable", 1, "stop", 2],
    ["unreachable", 2, "modelFailed", 2],
    ["unauthorized", 1, "modelFailed", 1],
    ["badAnswer", 1, "modelFailed", 1],
    ["contextTooLong", 1, "stop", 2],
    ["contextTooLong", 2, "modelFailed", 2],
  ] as const) {
    it(`asks a model ${asked} times that fails ${failures} times with ${reason}`, async () => {
      const errors = Array.from({ length: failures }, (): Turn => [modelError(reason)]);
      const model = new TurnModel([...errors, say("x")]);
      const setup = setUpAgents({ main: model }, new FunctionToolbox());
      const done = setup.run();
      await setup.clock.advanceAsync(10_000);
      assert.equal(outcomeOf(await done), outcome);
      assert.equal(model.requests.length, asked);
    });
  }

  it("waits as long as the provider asks for", async () => {
    const model = new TurnModel([[modelError("rateLimit", { retryAfter: 7000 })], say("x")]);
    const setup = setUpAgents({ main: model }, new FunctionToolbox());
    const done = setup.run();
    await setup.clock.advanceAsync(6999);
    assert.equal(model.requests.length, 1);
    await setup.clock.advanceAsync(1);
    assert.equal(outcomeOf(await done), "stop");
  });

  it("does not ask again after a text was passed on, and keeps that", async () => {
    const model = new TurnModel([[{ type: "text", text: "Half" }, modelError("overloaded")]]);
    const { run, history } = setUpAgents({ main: model }, new FunctionToolbox());
    const end = last(await run());
    assert.ok(end.type === "error");
    assert.deepEqual([end.code, end.retryable, model.requests.length], ["modelFailed", true, 1]);
    assert.equal((history.messages.at(-1) as { text?: string }).text, "Half\n[cancelled]");
  });

  for (const [what, parts, outcome] of [
    ["a stream that ends without a finish", [{ type: "text", text: "x" }], "modelFailed"],
    ["an empty stream", [], "modelFailed"],
    [
      "a truncated answer",
      [
        { type: "text", text: "x" },
        { type: "finish", reason: "length", usage: {} },
      ],
      "length",
    ],
    ["a refusal", [{ type: "finish", reason: "refused", usage: {} }], "refused"],
  ] as const satisfies readonly (readonly [string, ModelPart[], string])[]) {
    it(`ends with ${outcome} after ${what}, and calls nothing of it`, async () => {
      const call: ModelPart = { type: "toolCall", id: "1", name: "a", argumentsJson: "{" };
      const toolbox = new FunctionToolbox({ a: () => textResult("x") });
      const events = await setUpAgents({ main: new TurnModel([[call, ...parts]]) }, toolbox).run();
      assert.equal(outcomeOf(events), outcome);
      assert.deepEqual(toolbox.calls, []);
    });
  }

  const EMPTY: readonly (readonly [string, Turn])[] = [
    ["nothing", [{ type: "finish", reason: "stop", usage: {} }]],
    [
      "nothing but calls that it does not make",
      [{ type: "finish", reason: "toolCalls", usage: {} }],
    ],
    ["white space", say(" \n")],
    [
      "thinking",
      [
        { type: "thinking", text: "hm" },
        { type: "finish", reason: "stop", usage: {} },
      ],
    ],
    ["thinking between tags", say("<think>hm</think>\n")],
    ["thinking that does not end", say("<think>hm")],
    ["a call without a name", use([" ", "{}"])],
    ["a cut before any text", [{ type: "finish", reason: "length", usage: {} }]],
  ];
  for (const [what, empty] of EMPTY) {
    it(`asks once more after an answer of ${what}, and fails at the second one`, async () => {
      const once = new TurnModel([empty, say("It is 4.")]);
      const events = await setUpAgents({ main: once }, new FunctionToolbox()).run();
      assert.deepEqual([outcomeOf(events), once.requests.length], ["stop", 2]);
      assert.deepEqual(once.requests[1]?.messages, once.requests[0]?.messages);
      const always = new TurnModel([empty]);
      const failed = last(await setUpAgents({ main: always }, new FunctionToolbox()).run());
      assert.ok(failed.type === "error");
      assert.deepEqual([failed.code, always.requests.length], ["modelFailed", 2]);
      assert.match(failed.message, /the model gave an empty answer/);
    });
  }

  it("makes the calls of an answer that have a name", async () => {
    const model = new TurnModel([use(["", "{}"], ["s__a", "{}"]), say("x")]);
    const toolbox = new FunctionToolbox({ s__a: () => textResult("ok") });
    await setUpAgents({ main: model }, toolbox).run();
    assert.deepEqual(model.lastResults, ["ok"]);
  });

  const THOUGHTS: readonly (readonly [text: string, thinking: string, answer: string])[] = [
    ["<think>hm</think>4", "hm", "4"],
    [
      "\n<think>\nhm < 5 </thin\n</think>\n\n 4 <think>x</think>",
      "\nhm < 5 </thin\n",
      "4 <think>x</think>",
    ],
    ["<THINKING>hm</think></Thinking>4", "hm</think>", "4"],
    ["<think></think>4", "", "4"],
    ["<thin", "", "<thin"],
    ["<thinker>4</think>", "", "<thinker>4</think>"],
    ["4 <think>hm</think>", "", "4 <think>hm</think>"],
  ];
  for (const [text, thinking, answer] of THOUGHTS) {
    it(`separates thinking from the answer, however the text is split: ${JSON.stringify(text)}`, async () => {
      for (let size = 1; size <= text.length; size++) {
        const deltas: ModelPart[] = [];
        for (let at = 0; at < text.length; at += size)
          deltas.push({ type: "text", text: text.slice(at, at + size) });
        const turns: Turn = [...deltas, { type: "finish", reason: "stop", usage: {} }];
        const { run, history } = setUpAgents(
          { main: new TurnModel([turns]) },
          new FunctionToolbox(),
        );
        const events = await run();
        const joined = (type: "textDelta" | "thinkingDelta"): string =>
          events.map((event) => (event.type === type ? event.text : "")).join("");
        assert.deepEqual([joined("thinkingDelta"), joined("textDelta")], [thinking, answer]);
        assert.equal((history.messages.at(-1) as { text?: string }).text, answer);
      }
    });
  }

  it("gives a task to another agent, whose answer is the result and whose events pass with its name", async () => {
    const main = new TurnModel([
      use(["transfer_task", '{"agent":"tester","task":"Test it.","expected_output":"yes or no"}']),
      say("Tested."),
    ]);
    const tester = new TurnModel([use("a"), say("yes")]);
    const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
    const specs = { main: { subAgents: ["tester"] }, tester: { description: "Tests." } };
    const events = await setUpAgents({ main, tester }, toolbox, specs).run();
    assert.equal(outcomeOf(events), "stop");
    assert.deepEqual(main.lastResults, ["yes"]);
    assert.deepEqual(tester.requests[0]?.messages, [
      { role: "user", content: [{ type: "text", text: "Test it.\n\nExpected: yes or no" }] },
    ]);
    assert.equal(
      events.filter(({ type }) => type === "runStarted" || type === "runComplete").length,
      2,
    );
    const inner = events.filter((event) => "agent" in event && event.agent === "tester");
    assert.equal(
      TYPES(inner),
      "agentStarted usage toolCallStart toolExecuted textDelta usage agentEnded",
    );
    const end = last(events);
    assert.deepEqual(end.type === "runComplete" && [end.toolCalls, end.usage.inputTokens], [2, 40]);
    assert.deepEqual(toolbox.calls[0]?.chain, { "toolmux/chain": ["main", "tester"] });
  });

  it("lets another agent take over the same conversation with its own instruction and model", async () => {
    const main = new TurnModel([use(["handoff", '{"agent":"billing"}'])]);
    const billing = new TurnModel([say("Paid.")]);
    const setup = setUpAgents({ main, billing }, new FunctionToolbox(), {
      main: { handoffs: ["billing"] },
      billing: {},
    });
    const events = await setup.run("Who pays?");
    assert.ok(
      events.some((e) => e.type === "transferred" && e.from === "main" && e.to === "billing"),
    );
    const [request] = billing.requests;
    assert.equal(request?.instruction, "I am billing.");
    assert.equal(request.messages.length, 3);
    const end = last(events);
    assert.equal(end.type === "runComplete" && end.text, "Paid.");
  });

  it("refuses an agent that is at work already, and too many inside each other", async () => {
    const ask = (agent: string): Turn => use(["transfer_task", `{"agent":"${agent}","task":"x"}`]);
    const names = ["main", "b", "c", "d", "e"];
    const models = Object.fromEntries(
      names.map((name, at) => [name, new TurnModel([ask(names[at + 1] ?? "main"), say(name)])]),
    );
    const specs = Object.fromEntries(
      names.map((name, at) => [name, { subAgents: [names[at + 1] ?? "main"] }]),
    );
    await setUpAgents(models, new FunctionToolbox(), specs).run();
    assert.match(models["d"]?.lastResults[0] ?? "", /too deeply/);
    const loop = { main: { subAgents: ["b"] }, b: { subAgents: ["main"] } };
    const two = {
      main: new TurnModel([ask("b"), say("m")]),
      b: new TurnModel([ask("main"), say("b")]),
    };
    const events = await setUpAgents(two, new FunctionToolbox(), loop).run();
    assert.ok(events.some((e) => e.type === "toolExecuted" && e.error === "agentLoop"));
    assert.equal(outcomeOf(events), "stop");
    const chain = AgentChain.fromMeta({
      "toolmux/chain": Array.from({ length: 8 }, (_, i) => `x${i}`),
    });
    const far = await setUpAgents({ main: new TurnModel([say("x")]) }, new FunctionToolbox()).run(
      "x",
      { chain },
    );
    assert.equal(outcomeOf(far), "agentDepth");
  });

  it("counts the tool calls of agents for tasks in its own limit", async () => {
    const main = new TurnModel([use(["transfer_task", '{"agent":"b","task":"x"}'])]);
    const b = new TurnModel([varied()]);
    const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
    const specs = { main: { subAgents: ["b"], maxToolCalls: 3 }, b: {} };
    const events = await setUpAgents({ main, b }, toolbox, specs).run();
    assert.equal(outcomeOf(events), "toolCallLimit");
    assert.equal(toolbox.calls.length, 2);
  });

  it("is ended by a limit of its own, not by one of an agent for a task", async () => {
    const ask: Turn = use(["transfer_task", '{"agent":"b","task":"x"}']);
    const main = new TurnModel([ask, say("Without b.")]);
    const toolbox = new FunctionToolbox({ a: () => textResult("ok") });
    const specs = { main: { subAgents: ["b"] }, b: { maxTurns: 2 } };
    const events = await setUpAgents({ main, b: new TurnModel([varied()]) }, toolbox, specs).run();
    assert.equal(outcomeOf(events), "stop");
    assert.ok(events.some((e) => e.type === "toolExecuted" && e.error === "turnLimit"));
  });

  it("ends a model that does not end its answer", async () => {
    const text = "x".repeat(1024 * 1024);
    const model = new TurnModel([
      async function* () {
        for (;;) yield await Promise.resolve({ type: "thinking", text } as const);
      },
    ]);
    assert.equal(
      outcomeOf(await setUpAgents({ main: model }, new FunctionToolbox()).run()),
      "modelFailed",
    );
  });

  it("ends with the tokens that it may use", async () => {
    const { run } = setUpAgents(
      { main: new TurnModel([varied()]) },
      new FunctionToolbox({ a: () => textResult("") }),
    );
    assert.equal(outcomeOf(await run("x", { maxTokens: 40 })), "tokenLimit");
  });

  it("fails alone if its model cannot be opened, and names nearest agents", async () => {
    const { agent } = setUpAgents({}, new FunctionToolbox(), { other: {} });
    await assert.rejects(agent("main"), { code: "valueMissing" });
    await assert.rejects(agent("othr"), { code: "agentNotFound", message: /Did you mean "other"/ });
  });
});

describe("the history of a conversation", () => {
  it("shortens the oldest results first, then drops the oldest turns, and never parts a call from its result", async () => {
    const big = "x".repeat(4000);
    for (const [context, expected] of [
      [20_000, ["user", "assistant+1", "4000", "assistant+1", "4000", "user"]],
      [2000, ["user", "assistant+1", "short", "assistant+1", "4000", "user"]],
      [40, ["user"]],
    ] as const) {
      const model = new TurnModel([say("x")], { contextTokens: context });
      const setup = setUpAgents({ main: model }, new FunctionToolbox(), {
        main: { instruction: "" },
      });
      const call = (id: string): ModelMessage => ({
        role: "assistant",
        text: "",
        toolCalls: [{ id, name: "a", argumentsJson: "{}" }],
      });
      const result = (toolCallId: string): ModelMessage => ({
        role: "tool",
        toolCallId,
        toolName: "a",
        content: [{ type: "text", text: big }],
        isError: false,
      });
      setup.history.add({ role: "user", content: [{ type: "text", text: "first" }] });
      for (const id of ["1", "2"]) for (const one of [call(id), result(id)]) setup.history.add(one);
      await setup.run("last");
      const shown = (model.requests[0]?.messages ?? []).map((message) => {
        if (message.role === "user") return "user";
        if (message.role === "assistant") return `assistant+${message.toolCalls.length}`;
        const [content] = message.content;
        return content?.type === "text" && content.text === big ? "4000" : "short";
      });
      assert.deepEqual(shown, expected, String(context));
    }
  });
});
