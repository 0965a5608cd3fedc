import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readAgentText } from "../../src/agent-files/agent-library.ts";
import { restrictUntrusted } from "../../src/agent-files/agent-file.ts";
import { AgentSet } from "../../src/agent/agent.ts";
import { AgentChain } from "../../src/agent/run-chain.ts";
import { AgentFileToolbox } from "../../src/agent/agent-file-toolbox.ts";
import { specsOfFile } from "../../src/agent/file-agents.ts";
import type { ToolCallOptions } from "../../src/agent/toolbox.ts";
import { FunctionToolbox, say, textResult, TurnModel, use } from "../fixtures/agents.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

const signal = new AbortController().signal;
const options: ToolCallOptions = { signal, chain: AgentChain.none, agent: { name: "root" } };

const FILE = `agents:
  root:
    model: m
    instruction: I
    toolsets:
      - {type: toolmux, filter: {servers: [s]}}
      - {type: mcp, name: s, command: x, tools: [s__b]}
      - {type: think}
      - {type: todo}
  own: {model: m, instruction: I, toolsets: [{type: mcp, name: s, command: x}]}
  hub: {model: m, instruction: I, toolsets: [{type: toolmux}]}
  none: {model: m, instruction: I}
`;

/** The agentSet of the file; the hub and the file each have a server `s`. */
async function open(isTrusted = true) {
  const result = await readAgentText(new TextEncoder().encode(FILE), "/a.yaml", "/", () => ({
    problem: "none",
  }));
  assert.ok(result.ok);
  const file = isTrusted ? result.file : restrictUntrusted(result.file);
  const make = (where: string, names: readonly string[]): FunctionToolbox =>
    new FunctionToolbox(
      Object.fromEntries(names.map((name) => [name, () => textResult(`${where} ${name}`)])),
    );
  const own = file.servers.length === 0 ? undefined : make("own", ["s__b", "s__c"]);
  const toolbox = new AgentFileToolbox(make("hub", ["s__a", "s__b"]), own);
  const environment = { now: 0, cwd: "/", platform: "linux" };
  const agentSet = new AgentSet({
    specs: specsOfFile(file, environment, () => "all"),
    toolbox,
    clock: new VirtualClock(),
    createModel: () => Promise.resolve(new TurnModel([say("")])),
    redact: (text) => text,
  });
  const namesOf = async (name: string): Promise<string> =>
    (await (await agentSet.agent(name, signal)).tools(signal)).map((tool) => tool.name).join(" ");
  return { toolbox, namesOf };
}

describe("the agents of a file", () => {
  it("have the hub's tools and those of their own servers that the file gives them", async () => {
    const { namesOf } = await open();
    const todo = "create_todo create_todos list_todos";
    assert.equal(await namesOf("root"), `${todo} s__a s__b s__b_2 think update_todo update_todos`);
    assert.equal(await namesOf("own"), "s__b_2 s__c");
    assert.equal(await namesOf("hub"), "s__a s__b");
    assert.equal(await namesOf("none"), "");
  });

  it("that are not trusted have only the hub's tools, and the built-in ones", async () => {
    const { namesOf } = await open(false);
    assert.equal(
      await namesOf("root"),
      "create_todo create_todos list_todos s__a s__b think update_todo update_todos",
    );
    assert.equal(await namesOf("own"), "");
  });

  it("call tools of the hub and of their own servers, whose names may be the same", async () => {
    const { toolbox } = await open();
    await toolbox.tools(signal);
    const call = async (name: string, args: object = {}): Promise<unknown> =>
      (await toolbox.call(name, JSON.stringify(args), options)).content[0];
    const text = (value: string) => ({ type: "text", text: value });
    assert.deepEqual(await call("s__b"), text("hub s__b"));
    assert.deepEqual(await call("s__b_2"), text("own s__b"));
    assert.deepEqual(await call("s__c"), text("own s__c"));
    assert.deepEqual(await call("list_todos"), text("There is nothing to do."));
    await call("create_todo", { description: "one" });
    await call("create_todo", { description: "two" });
    const done = await call("update_todo", { id: "2", status: "completed" });
    assert.deepEqual(done, text("1 [pending] one\n2 [completed] two"));
    for (const [name, args] of [
      ["create_todo", {}],
      ["update_todo", { id: "7", status: "completed" }],
    ] as const)
      assert.equal((await toolbox.call(name, JSON.stringify(args), options)).isError, true);
  });

  it("are answered by the model to which the agent has changed, from the next turn on", async () => {
    const text = `agents:
  root:
    model: google/small
    instruction: I
    toolsets: [{type: model_picker, models: [google/small, anthropic/large]}]
`;
    const read = await readAgentText(new TextEncoder().encode(text), "/a.yaml", "/", () => ({
      problem: "none",
    }));
    assert.ok(read.ok);
    assert.deepEqual(read.file.unsupported, []);
    const { spec } = read.file.agents.get("root") ?? assert.fail("no root");
    assert.match(spec.instruction, /google\/small, anthropic\/large/);
    const toolbox = new AgentFileToolbox(new FunctionToolbox({}), undefined, {
      builtIns: ["model_picker"],
      pickableModels: () => spec.pickableModels ?? [],
    });
    const small = new TurnModel([use(["change_model", '{"model":"large"}']), say("done")]);
    const large = new TurnModel([use(["revert_model", "{}"])]);
    const models = new Map([
      ["google/small", small],
      ["anthropic/large", large],
    ]);
    const environment = { now: 0, cwd: "/", platform: "linux" };
    const agentSet = new AgentSet({
      specs: specsOfFile(read.file, environment, () => "all"),
      toolbox,
      clock: new VirtualClock(),
      createModel: (name) => Promise.resolve(models.get(name) ?? assert.fail(name)),
      redact: (value) => value,
      pickedModel: (name) => toolbox.pickedModel(name),
    });
    const agent = await agentSet.agent("root", signal);
    for await (const event of agent.run([], { signal }))
      if (event.type === "error") assert.fail(event.message);
    assert.deepEqual([small.requests.length, large.requests.length], [2, 1]);
  });
});
