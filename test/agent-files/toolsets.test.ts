import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readAgentText } from "../../src/agent-files/agent-library.ts";
import type { AgentFile } from "../../src/agent-files/agent-file.ts";
import {
  OFFERED_TOOLSETS,
  provideToolsets,
  type ToolsetSettings,
} from "../../src/agent-files/toolsets.ts";
import { formatProblem } from "../../src/manifest/problems.ts";
import { missingServers, readToolsets, type ToolsetMappings } from "../../src/manifest/toolsets.ts";
import { parseText } from "../../src/manifest/syntax/parse.ts";

const FILE = `agents:
  root:
    model: m
    toolsets:
      - {type: filesystem, tools: [read_file]}
      - {type: shell}
      - {type: fetch, model: n}
      - {type: lsp, command: gopls}
  other:
    model: m
    toolsets: [{type: filesystem}]
`;

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value)) as unknown;

async function provide(
  mappings: ToolsetMappings,
  more: Partial<ToolsetSettings> = {},
  path = "/work/agents/a.yaml",
): Promise<AgentFile> {
  const folder = path.startsWith("/") ? "/work/agents" : "";
  const bytes = new TextEncoder().encode(FILE);
  const result = await readAgentText(bytes, path, folder, () => ({ problem: "none" }));
  assert.ok(result.ok);
  const settings = { mappings, mayUseShell: true, ownFolders: ["/home/me/.config/toolmux"] };
  return provideToolsets(result.file, { ...settings, ...more });
}

/** The mappings of a table in TOML. */
async function mappingsOf(toml: string): Promise<ToolsetMappings> {
  const parsed = await parseText(toml, "toml");
  assert.ok(parsed.ok);
  const read = readToolsets(parsed.root, { file: "/m.toml", baseDir: "/" });
  assert.deepEqual(read.problems, []);
  return read.toolsets;
}

const ALL = await mappingsOf(`
filesystem = { command = "fs", args = ["-y", "\${roots}", "x"] }
shell = { command = "sh-server" }
fetch = { server = "web" }
lsp = { url = "https://lsp.example/mcp" }
`);

describe("the toolsets of an agent's file", () => {
  it("are provided by servers of the manifest, or by servers of each conversation", async () => {
    const file = await provide(ALL);
    assert.deepEqual(file.unsupported, []);
    const [files, shell, lsp] = file.servers;
    assert.ok(files?.kind === "stdio" && shell?.kind === "stdio" && lsp?.kind === "remote");
    assert.deepEqual([files.command, files.args], ["fs", ["-y", "/work/agents", "x"]]);
    assert.deepEqual([files.cwd, shell.cwd], ["/work/agents", "/work/agents"]);
    const [root, other] = [file.agents.get("root"), file.agents.get("other")];
    assert.deepEqual(plain(root?.spec.tools), { servers: ["web"] });
    assert.deepEqual(plain(other?.ownTools), { servers: ["filesystem"] });
    assert.deepEqual([...(root?.spec.toolModels ?? [])], [["web", "n"]]);
    const text = JSON.stringify(root?.ownTools);
    assert.ok(text.includes('"filesystem.read_file"') && text.includes('"shell"'), text);
    assert.deepEqual(
      [...(file.toolsetsByServer ?? [])],
      [
        ["own/filesystem", ["filesystem"]],
        ["own/shell", ["shell"]],
        ["web", ["fetch"]],
        ["own/lsp", ["lsp"]],
      ],
    );
  });

  it("that have no server are named with their places and the line to add", async () => {
    const { unsupported, servers } = await provide(new Map());
    const lines = unsupported.map(formatProblem);
    assert.equal(servers.length, 0);
    assert.equal(lines.length, 5);
    assert.match(lines[0] ?? "", /^\/work\/agents\/a\.yaml:5:16: /);
    for (const [at, line] of [
      'filesystem = { command = "npx", args = ["-y", "@modelcontextprotocol/server-filesystem", "${roots}"] }',
      'shell = { command = "npx", args = ["-y", "mcp-server-commands"] }',
      'fetch = { command = "uvx", args = ["mcp-server-fetch"] }',
      'lsp = { server = "NAME" }',
    ].entries()) {
      assert.ok(lines[at]?.endsWith(line), lines.join("\n"));
      // The line is what the manifest takes.
      await mappingsOf(line);
    }
  });

  it("work in the roots of the manifest, else in the file's folder, and never in one of toolmux", async () => {
    const roots = new Map(ALL);
    const { entry } = ALL.get("filesystem") as { readonly entry: object };
    roots.set("filesystem", { entry: { ...entry }, roots: ["/a", "/${b}"], baseDir: "/" });
    const [files] = (await provide(roots)).servers;
    assert.ok(files?.kind === "stdio");
    assert.deepEqual([files.args, files.cwd], [["-y", "/a", "/$${b}", "x"], "/a"]);
    for (const [own, path] of [
      ["/work/agents", "/work/agents/a.yaml"],
      ["/work", "/work/agents/a.yaml"],
      ["/work/agents/state", "/work/agents/a.yaml"],
      ["/nowhere", "registry.example/team/a.yaml"],
    ] as const) {
      const { servers, unsupported } = await provide(ALL, { ownFolders: [own] }, path);
      assert.deepEqual(
        servers.map(({ name }) => name),
        ["lsp"],
        path,
      );
      assert.equal(unsupported.length, 3);
      assert.match(unsupported[0]?.message ?? "", /roots = \[/);
    }
  });

  it("have no shell before a person has trusted the file", async () => {
    const file = await provide(ALL, { mayUseShell: false });
    assert.deepEqual(file.unsupported, []);
    assert.equal(file.forbiddenActions.length, 1);
    assert.ok(file.servers.every(({ name }) => name !== "shell"));
    assert.ok(!JSON.stringify(file.agents.get("root")?.ownTools).includes("shell"));
  });

  it("are offered servers that the manifest takes", () => {
    for (const [type, entry] of Object.entries(OFFERED_TOOLSETS)) {
      const read = readToolsets({ [type]: entry }, { file: "/m.toml", baseDir: "/" });
      assert.deepEqual([read.problems, read.toolsets.size], [[], 1], type);
    }
  });
});

describe("agentFiles.toolsets", () => {
  it("is noted if it names a server that there is not", () => {
    const toolsets = new Map([["fs", { server: "file" }]]);
    assert.deepEqual(missingServers(toolsets, ["file"]), []);
    assert.match(missingServers(toolsets, ["files"])[0] ?? "", /"file".*Did you mean "files"\?/);
  });

  for (const [what, settings, place] of [
    ["nothing", {}, ""],
    ["a server and a command", { server: "s", command: "x" }, "command"],
    ["a server and roots", { server: "s", roots: ["/"] }, "roots"],
    ["a URL and roots", { url: "https://x.example/", roots: ["/"] }, "roots"],
    ["a command and a URL", { command: "x", url: "https://x.example/" }, ""],
  ] as const) {
    it(`is not valid with ${what}`, () => {
      const { toolsets, problems } = readToolsets({ fs: settings }, { file: "/m", baseDir: "/" });
      assert.equal(toolsets.size, 0);
      assert.ok(problems.length > 0);
      const paths = problems.map(({ path }) => path.join("."));
      const expected = ["agentFiles.toolsets.fs", place].filter((part) => part !== "").join(".");
      assert.ok(
        paths.some((path) => path.startsWith(expected)),
        paths.join(),
      );
    });
  }
});
