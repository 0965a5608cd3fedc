import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  type AgentFile,
  renderInstruction,
  restrictUntrusted,
} from "../../src/agent-files/agent-file.ts";
import { readAgentText } from "../../src/agent-files/agent-library.ts";
import { formatProblem } from "../../src/manifest/problems.ts";

const NEAR: Readonly<Record<string, string>> = { "more.md": "More." };

function read(text: string, name = "/agents/a.yaml") {
  return readAgentText(new TextEncoder().encode(text), name, "/agents", (path) => {
    const near = NEAR[path];
    return near === undefined ? { problem: `"${path}" does not exist` } : { text: near };
  });
}

async function readValid(text: string, name?: string): Promise<AgentFile> {
  const result = await read(text, name);
  assert.ok(result.ok, result.ok ? "" : result.problems.map(formatProblem).join("\n"));
  return result.file;
}

let serial = 0;

/** Without the missing prototypes of tables that were read. */
const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

const root = (more: string): string => `agents:
  root:
    model: openai/gpt-x
    instruction: Do.
${more.replaceAll(/^/gm, "    ")}
`;

const TEAM = `#!/usr/bin/env docker agent run
version: "2"
metadata: {author: me}
models:
  fast: {provider: anthropic, model: claude-x, max_tokens: 100, temperature: 0.5, thinking_budget: low}
  local: {provider: ollama, model: llama}
providers:
  gate: {api_type: openai_chatcompletions, base_url: "https://gate.example/v1", token_key: GATE_KEY}
mcps:
  issues: {command: issues-server, args: ["\${HOME}/x", "\${file:x}"], env: {TOKEN: $ISSUES_TOKEN}, tools: [list]}
agents:
  first: {model: gate/gpt-y, instruction: I}
  root:
    model: fast
    description: Leads.
    instruction: Lead.
    instruction_file: more.md
    sub_agents: [first]
    handoffs: [first]
    max_iterations: 7
    add_date: true
    add_environment_info: true
    toolsets:
      - {type: mcp, ref: issues}
      - {type: mcp, ref: issues, tools: [close]}
      - {type: mcp, remote: {url: "https://mcp.example/sse", transport_type: sse, headers: {Authorization: "Bearer \${env.KEY}"}}}
      - {type: mcp, ref: "docker:duckduckgo", name: web}
      - {type: toolmux, filter: {servers: [git]}}
      - {type: think, instruction: "{ORIGINAL_INSTRUCTIONS} Think."}
      - {type: todo}
      - {type: transfer_task}
`;

describe("a file in the form of docker-agent", () => {
  it("becomes agents, models, and servers of one session", async () => {
    const file = await readValid(TEAM);
    assert.deepEqual(file.unsupported, []);
    assert.equal(file.entry, "root");
    assert.deepEqual([...file.agents.keys()], ["first", "root"]);
    const agent = file.agents.get("root");
    assert.ok(agent !== undefined);
    const { name, model, maxTurns, subAgents, handoffs, tools, instruction } = agent.spec;
    assert.deepEqual([name, model, maxTurns], ["root", "fast", 7]);
    assert.deepEqual([subAgents, handoffs], [["first"], ["first"]]);
    assert.deepEqual(plain(tools), { servers: ["git"] });
    assert.equal(instruction, "Lead.\n\nMore.\n\nThink.");
    assert.deepEqual(agent.builtIns, ["think", "todo", "transfer_task"]);
    assert.deepEqual(agent.ownTools, {
      or: [
        { ids: ["issues.list"] },
        { ids: ["issues.close"] },
        { servers: ["mcp-example"] },
        { servers: ["web"] },
      ],
    });
    const environment = { now: Date.UTC(2026, 6, 28), cwd: "/work", platform: "linux" };
    assert.match(renderInstruction(agent, environment), /^Lead\.[^]*2026-07-28[^]*\/work/);
  });

  it("starts its servers as the manifest would, with variables and no other placeholders", async () => {
    const { servers } = await readValid(TEAM);
    const [issues, remote, web] = servers;
    assert.ok(issues?.kind === "stdio" && remote?.kind === "remote" && web?.kind === "stdio");
    assert.equal(issues.command, "issues-server");
    assert.deepEqual(issues.args, ["${env:HOME}/x", "$${file:x}"]);
    assert.deepEqual({ ...issues.env }, { TOKEN: "${env:ISSUES_TOKEN}" });
    assert.deepEqual([remote.url, remote.transport], ["https://mcp.example/sse", "sse"]);
    assert.deepEqual({ ...remote.headers }, { Authorization: "Bearer ${env:KEY}" });
    assert.equal(web.command, "docker");
    assert.deepEqual(
      [web.args.slice(0, 3), web.args.at(-1)],
      [["run", "-i", "--rm"], "mcp/duckduckgo"],
    );
  });

  it("may have models of providers with a compatible API", async () => {
    const { models } = await readValid(TEAM);
    const gate = models.get("gate/gpt-y");
    assert.deepEqual(
      [gate?.provider, gate?.model, gate?.url, gate?.apiKey],
      ["openai", "gpt-y", "https://gate.example/v1", "${env:GATE_KEY}"],
    );
    assert.equal(models.get("local")?.url, "http://localhost:11434/v1");
    const { maxTokens, temperature, thinking } = models.get("fast") ?? {};
    assert.deepEqual([maxTokens, temperature, thinking], [100, 0.5, "low"]);
  });

  it("may have numbers where its servers need texts, and a model of Docker", async () => {
    const text = root(
      "toolsets: [{type: mcp, command: x, args: [1, -p], env: {PORT: 8080, V: 1.10}}]",
    );
    const [server] = (await readValid(text)).servers;
    assert.ok(server?.kind === "stdio");
    assert.deepEqual(plain([server.args, server.env]), [["1", "-p"], { PORT: "8080", V: "1.10" }]);
    const { models, unsupported } = await readValid("agents: {root: {model: dmr/ai/qwen3}}\n");
    const { model, url } = models.get("dmr/ai/qwen3") ?? {};
    assert.deepEqual(
      [model, url, unsupported],
      ["ai/qwen3", "http://localhost:12434/engines/v1", []],
    );
  });

  it("that is not trusted keeps only what reaches nothing of its own", async () => {
    const file = restrictUntrusted(await readValid(TEAM));
    assert.deepEqual(file.servers, []);
    assert.deepEqual([...file.models.keys()], ["fast"]);
    assert.equal(file.models.get("fast")?.apiKey, undefined);
    const agent = file.agents.get("root");
    assert.equal(agent?.ownTools, undefined);
    assert.deepEqual(plain(agent?.spec.tools), { servers: ["git"] });
    assert.equal(file.forbiddenActions.length, 5);
    assert.ok(file.forbiddenActions.some((what) => what.includes("issues-server")));
    assert.ok(file.forbiddenActions.some((what) => what.includes("gate.example")));
    const harmless = await readValid(root("toolsets: [{type: toolmux}]"));
    const limited = restrictUntrusted(harmless);
    assert.deepEqual(limited.forbiddenActions, []);
    // What a file of somebody else can use, its caller can see.
    assert.equal(limited.agents.get("root")?.spec.respectMode, true);
  });

  for (const [what, more, place] of [
    ["a key", "hooks: {}", "5:5: agents.root.hooks"],
    [
      "a key of a toolset",
      "toolsets: [{type: mcp, command: x, toon: '.*'}]",
      "5:40: agents.root.toolsets[0].toon",
    ],
    ["a reference", "toolsets: [{type: mcp, ref: oci:x}]", "5:33: agents.root.toolsets[0].ref"],
    [
      "two ways to start a server",
      "toolsets: [{type: mcp, command: x, ref: 'docker:x'}]",
      "5:16: agents.root.toolsets[0]",
    ],
    [
      "a definition that is missing",
      "toolsets: [{type: mcp, ref: x}]",
      "5:33: agents.root.toolsets[0].ref",
    ],
    [
      "an argument that is a table",
      "toolsets: [{type: mcp, command: x, args: [{k: 1}]}]",
      "5:47: agents.root.toolsets[0].args[0]",
    ],
    [
      "a placeholder that is not closed",
      "toolsets: [{type: mcp, command: x, args: ['${env:A']}]",
      "5:47: agents.root.toolsets[0].args[0]",
    ],
    ["an agent elsewhere", "sub_agents: [docker/pirate]", "5:18: agents.root.sub_agents[0]"],
    ["a missing file", "add_prompt_files: [AGENTS.md]", "5:24: agents.root.add_prompt_files[0]"],
  ] as const) {
    it(`names ${what} that is not supported, with its place`, async () => {
      const { unsupported } = await readValid(root(more));
      assert.equal(unsupported.length, 1);
      assert.ok(
        unsupported.map(formatProblem)[0]?.startsWith(`/agents/a.yaml:${place}: `),
        formatProblem(unsupported[0] ?? assert.fail()),
      );
    });
  }

  for (const [what, text, place] of [
    ["no agents", "models: {}\n", "1:1: agents"],
    ["a text in place of a table", "agents: {root: hello}\n", "1:16: agents.root"],
    [
      "a number for an instruction",
      "agents: {root: {model: a/b, instruction: 1}}\n",
      "1:42: agents.root.instruction",
    ],
    ["a model without a provider", `${root("")}models: {m: {model: x}}\n`, "6:13: models.m"],
    [
      "a toolset without a type",
      root("toolsets: [{command: x}]"),
      "5:16: agents.root.toolsets[0].type",
    ],
    [
      "a pattern in a filter",
      root("toolsets: [{type: toolmux, filter: {pattern: x}}]"),
      "5:50: agents.root.toolsets[0].filter.pattern",
    ],
    [
      "a file with instructions that is missing",
      root("instruction_file: x.md"),
      "5:23: agents.root.instruction_file",
    ],
    ["wrong YAML", "agents: [\n", "2:1"],
    [
      "too many agents",
      `agents:\n${"  a#: {}\n".repeat(257).replaceAll(/#/g, () => String(serial++))}`,
      "1:1: agents",
    ],
  ] as const) {
    it(`with ${what} is refused, with its place`, async () => {
      const result = await read(text);
      assert.ok(!result.ok);
      const [first = ""] = result.problems.map(formatProblem);
      assert.ok(first.startsWith(`/agents/a.yaml:${place}: `), first);
    });
  }

  it("does not show the values of variables and headers in its problems", async () => {
    const result = await read(
      root("toolsets: [{type: mcp, command: x, env: {A: [s3cret]}, args: s3cret}]"),
    );
    assert.ok(result.ok);
    const messages = result.file.unsupported.map(formatProblem);
    assert.equal(messages.length, 2);
    assert.ok(!messages.join("\n").includes("s3cret"));
  });

  it("leaves out a server that cannot be read, and keeps the others", async () => {
    const file = await readValid(
      root("toolsets: [{type: mcp, command: a, env: {A: {b: 1}}}, {type: mcp, command: good}]"),
    );
    assert.deepEqual(
      file.servers.map(({ name }) => name),
      ["good"],
    );
    assert.equal(file.unsupported.length, 1);
  });
});

describe("a file of agents in TOML or JSON", () => {
  const text = `[models.m]
provider = "openai"
model = "x"
url = "https://api.example/v1"
[servers.notes]
command = "notes"
[agents.writer]
model = "m"
instructionFile = "more.md"
tools = { servers = ["notes"] }
maxTurns = 3
`;

  it("has the tables of a manifest, and servers of its own", async () => {
    const file = await readValid(text, "/agents/a.toml");
    const agent = file.agents.get(file.entry);
    assert.deepEqual([agent?.spec.instruction, agent?.spec.maxTurns], ["More.", 3]);
    assert.deepEqual(plain(agent?.ownTools), { servers: ["notes"] });
    assert.equal(file.models.get("m")?.url, "https://api.example/v1");
    assert.deepEqual(
      file.servers.map(({ name }) => name),
      ["notes"],
    );
    const json = `{"agents": {"a": {"model": "m", "instruction": "x"}}}`;
    assert.equal((await readValid(json, "/agents/a.json")).entry, "a");
  });

  for (const [more, place] of [
    ["[hub]\nname = 'x'\n", "12:2: hub"],
    ["[[plugins]]\nuse = 'x'\n", "12:3: plugins"],
    [
      "[agents.b]\nmodel = 'm'\ninstruction = 'x'\ntools = {pattern = 'x'}\n",
      "15:20: agents.b.tools.pattern",
    ],
    ["[agents.b]\nmodel = 'm'\ninstructionFile = '../x'\n", "14:19: agents.b.instructionFile"],
    [
      "[agents.b]\nmodel = 'm'\ninstruction = 'x'\nsubAgents = ['c']\n",
      "15:14: agents.b.subAgents[0]",
    ],
    ["[agents.b]\nmodle = 'm'\n", "13:1: agents.b.modle"],
  ] as const) {
    it(`is refused with ${more.split("\n").slice(0, -1).join(" ")}`, async () => {
      const result = await read(text + more, "/agents/a.toml");
      assert.ok(!result.ok);
      const lines = result.problems.map(formatProblem);
      assert.ok(
        lines.some((line) => line.startsWith(`/agents/a.toml:${place}: `)),
        lines.join("\n"),
      );
    });
  }
});
