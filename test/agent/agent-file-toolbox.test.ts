import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MemoryFile } from "../../src/agent-files/memory-file.ts";
import { parsePermission, type Permissions } from "../../src/agent-files/permissions.ts";
import { AgentFileToolbox, type AgentFileRules } from "../../src/agent/agent-file-toolbox.ts";
import { AgentChain } from "../../src/agent/run-chain.ts";
import type { ToolResult } from "../../src/agent/toolbox.ts";
import type { AnswerElicitation, ElicitationForm } from "../../src/frontend/hub-client.ts";
import type { AgentCaller } from "../../src/approval/policy.ts";
import { FunctionToolbox, textResult } from "../fixtures/agents.ts";
import { itIn } from "../harness/in-folder.ts";

const signal = new AbortController().signal;

function rules(given: Partial<Record<keyof Permissions, readonly string[]>>): Permissions {
  const { deny = [], ask = [], allow = [] } = given;
  const [parsedDeny, parsedAsk, parsedAllow] = [deny, ask, allow].map((all) =>
    all.map(parsePermission),
  );
  return { deny: parsedDeny ?? [], ask: parsedAsk ?? [], allow: parsedAllow ?? [] };
}

/** Calls tools of a hub's server `s`, and of the file's own server `s`; tells who the caller was said to be. */
function open(given: AgentFileRules) {
  const callers: AgentCaller[] = [];
  const make = (names: readonly string[]): FunctionToolbox => {
    const toolbox = new FunctionToolbox(
      Object.fromEntries(
        names.map((name) => [
          name,
          (_args, { agent }) => {
            callers.push(agent);
            return textResult("called");
          },
        ]),
      ),
    );
    toolbox.readOnly = ["get"];
    return toolbox;
  };
  const toolbox = new AgentFileToolbox(make(["get", "set", "run"]), make(["own_run"]), given);
  const call = async (name: string, args: object = {}, agent = "root"): Promise<ToolResult> =>
    toolbox.call(name, JSON.stringify(args), {
      signal,
      chain: AgentChain.none,
      agent: { name: agent, fallback: "always" },
    });
  return { call, callers };
}

const EACH = { approval: "always", everyCall: true };

describe("the tools of an agent's file", () => {
  it("change the agent's model to one of its models that can be opened, and back", async () => {
    const models = ["google/small", "anthropic/large", "openai/keyless"];
    const toolbox = new AgentFileToolbox(new FunctionToolbox({}), undefined, {
      builtIns: ["model_picker"],
      pickableModels: (agent) => (agent === "root" ? models : []),
      openModel: (name) =>
        name.endsWith("keyless") ? Promise.reject(new Error("no key")) : Promise.resolve(),
    });
    const change = async (model: unknown, agent = "root"): Promise<string | undefined> => {
      await toolbox.call("change_model", JSON.stringify({ model }), {
        signal,
        chain: AgentChain.none,
        agent: { name: agent },
      });
      return toolbox.pickedModel(agent);
    };
    assert.equal(await change("unknown"), undefined);
    assert.equal(await change("openai/keyless"), undefined);
    assert.equal(await change("google/small", "other"), undefined);
    assert.equal(await change("anthropic/large"), "anthropic/large");
    // A name without its provider is enough; a wrong one changes nothing.
    assert.equal(await change("small"), "google/small");
    for (const wrong of ["", 7, "/small", "keyless"])
      assert.equal(await change(wrong), "google/small");
    const options = { signal, chain: AgentChain.none, agent: { name: "root" } };
    assert.equal((await toolbox.call("revert_model", "{}", options)).isError, false);
    assert.equal(toolbox.pickedModel("root"), undefined);
  });

  it("are not called if the file forbids it, whoever has the tool", async () => {
    const permissions = rules({ deny: ["set", "run:x=1", "own_*", "think"], allow: ["*"] });
    const { call, callers } = open({ permissions, allows: "all" });
    for (const [name, args] of [
      ["set", {}],
      ["run", { x: 1 }],
      ["own_run", {}],
      ["think", {}],
    ] as const) {
      const { code, isError } = await call(name, args);
      assert.deepEqual([code, isError], ["notApproved", true], name);
    }
    assert.equal(callers.length, 0);
    assert.equal((await call("run", { x: 2 })).isError, false);
  });

  it("are asked for each time if the file says so, or if they are those of a shell", async () => {
    const toolsetsByServer = new Map([["own/s", ["shell"]]]);
    const permissions = rules({ ask: ["set"], allow: ["*"] });
    const { call, callers } = open({ permissions, allows: "all", toolsetsByServer });
    for (const name of ["set", "own_run", "own_run"]) await call(name);
    for (const { approval, everyCall } of callers) assert.deepEqual({ approval, everyCall }, EACH);
    assert.equal(callers.length, 3);
    const hub = open({
      permissions,
      allows: "all",
      toolsetsByServer: new Map([["s", ["script"]]]),
    });
    await hub.call("get");
    assert.equal(hub.callers[0]?.everyCall, true);
  });

  for (const [allows, ofGet, ofSet] of [
    [undefined, undefined, undefined],
    ["readOnly", "auto", undefined],
    ["all", "never", "never"],
  ] as const) {
    it(`are allowed by the file only as far as it is trusted: ${allows ?? "not at all"}`, async () => {
      const permissions = rules({ allow: ["get", "set"] });
      const { call, callers } = open({ permissions, ...(allows && { allows }) });
      for (const name of ["get", "set", "run"]) await call(name);
      const levels = callers.map(({ approval }) => approval);
      assert.deepEqual(levels, [ofGet, ofSet, undefined]);
      assert.ok(callers.every(({ everyCall }) => everyCall === undefined));
    });
  }

  it("have a list of things to do for each agent, and one for those that share it", async () => {
    const { call } = open({ sharesTodos: (agent) => agent.startsWith("shared") });
    await call("create_todos", { descriptions: ["a", "b"] }, "root");
    await call("create_todo", { description: "c" }, "shared1");
    await call("update_todos", { updates: [{ id: "1", status: "completed" }] }, "root");
    const listOf = async (agent: string): Promise<unknown> =>
      (await call("list_todos", {}, agent)).content[0];
    const text = (value: string) => ({ type: "text", text: value });
    assert.deepEqual(await listOf("root"), text("1 [completed] a\n2 [pending] b"));
    assert.deepEqual(await listOf("shared2"), text("1 [pending] c"));
    assert.deepEqual(await listOf("other"), text("There is nothing to do."));
    for (const [name, args] of [
      ["create_todos", { descriptions: ["x", 1] }],
      ["create_todos", {}],
      ["update_todos", { updates: [{ id: "1", status: "pending" }, { id: "9" }] }],
      ["update_todos", {}],
    ] as const)
      assert.equal((await call(name, args)).isError, true, JSON.stringify(args));
    assert.deepEqual(await listOf("root"), text("1 [completed] a\n2 [pending] b"));
  });

  it("ask the person, who sees which agent asks, and only for plain values", async () => {
    const forms: ElicitationForm[] = [];
    const ask: AnswerElicitation = (form) => {
      forms.push(form);
      return Promise.resolve({ action: "accept", content: { answer: "Rome" } });
    };
    const { call } = open({ builtIns: ["user_prompt"], ask });
    const { content } = await call("user_prompt", { message: "Where?" });
    assert.deepEqual(content, [
      { type: "text", text: '{"action":"accept","content":{"answer":"Rome"}}' },
    ]);
    await call("user_prompt", {
      message: "Who?",
      schema: { type: "object", properties: { age: { type: "integer" } }, required: ["age"] },
    });
    assert.deepEqual(
      forms.map(({ message }) => message),
      ['Agent "root" asks: Where?', 'Agent "root" asks: Who?'],
    );
    assert.deepEqual(forms[0]?.schema, {
      type: "object",
      properties: { answer: { type: "string" } },
      required: ["answer"],
    });
    for (const args of [
      {},
      { message: "x".repeat(5000) },
      { message: "x", schema: { type: "array" } },
      { message: "x", schema: { type: "object", properties: { a: { type: "object" } } } },
    ])
      assert.equal((await call("user_prompt", args)).code, "invalidParams");
    assert.equal(forms.length, 2);
    const nobody = await open({ builtIns: ["user_prompt"] }).call("user_prompt", { message: "x" });
    assert.equal(nobody.code, "notAsked");
  });

  itIn("have a memory that lasts, without secrets", async ({ home }) => {
    const make = () =>
      open({
        builtIns: ["memory"],
        redact: (text) => Promise.resolve(text.replaceAll("s3cret", "***")),
        memoryOf: (agent) =>
          agent === "none"
            ? undefined
            : new MemoryFile("/a.yaml", agent, { env: { HOME: home }, platform: "linux" }),
      });
    const { call } = make();
    await call("add_memory", { memory: "Likes blue, s3cret", category: "preference" });
    await call("add_memory", { memory: "Lives in Rome" });
    const search = async (args: object): Promise<readonly Record<string, string>[]> => {
      const [block] = (await make().call("search_memories", args)).content;
      assert.ok(block?.type === "text");
      return JSON.parse(block.text) as Record<string, string>[];
    };
    const [blue] = await search({ query: "BLUE likes" });
    assert.equal(blue?.["memory"], "Likes blue, ***");
    assert.equal((await search({ category: "preference" })).length, 1);
    assert.equal((await search({ query: "blue rome" })).length, 0);
    assert.equal((await search({})).length, 2);
    const id = blue["id"];
    await call("update_memory", { id, memory: "Likes red" });
    assert.equal((await search({ query: "red" }))[0]?.["id"], id);
    await call("delete_memory", { id });
    assert.deepEqual(
      (await search({})).map((one) => one["memory"]),
      ["Lives in Rome"],
    );
    for (const [name, args, agent] of [
      ["delete_memory", { id }, "root"],
      ["update_memory", { id, memory: "x" }, "root"],
      ["add_memory", { memory: " " }, "root"],
      ["add_memory", { memory: "x".repeat(20_000) }, "root"],
      ["get_memories", {}, "none"],
    ] as const)
      assert.equal((await call(name, args, agent)).isError, true, name);
  });
});
