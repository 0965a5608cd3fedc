import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type TestFolder, executable, it, withHub, withTestFolder } from "../harness/hub.ts";
import { type ServerEntry, publishedServer, scripted } from "../harness/manifest.ts";
import {
  type CallOptions,
  type StdioCommand,
  type SdkClient,
  type ToolResult,
  connectSdk,
} from "../harness/sdk-client.ts";

type Tool = Awaited<ReturnType<SdkClient["list"]>>[number];

/** Four servers from the package registry, with `dir` to work in. */
function servers(dir: string): Record<string, ServerEntry> {
  return {
    everything: publishedServer("everything", ["stdio"]),
    files: publishedServer("filesystem", [join(dir, "files")]),
    memory: publishedServer("memory", [], { MEMORY_FILE_PATH: join(dir, "memory.jsonl") }),
    // As users run it.
    thinking: { ...publishedServer("sequential-thinking"), command: "node" },
  };
}

function program({ dir, env }: TestFolder, server: ServerEntry): StdioCommand {
  return {
    command: server.command,
    args: [...(server.args ?? [])],
    cwd: dir,
    env: { ...env, ...server.env },
  };
}

/** The tools of all four as they are without the hub, but under the names that the hub gives them, sorted by these. */
async function listDirectly(setup: TestFolder): Promise<readonly Tool[]> {
  const lists = Object.entries(servers(setup.dir)).map(async ([key, server]) => {
    const client = await connectSdk("SDK v1", program(setup, server));
    const tools = await client.list();
    await client.close();
    assert.ok(tools.length > 0, key);
    return tools.map((tool) => dropExecution({ ...tool, name: `${key}__${tool.name}` }));
  });
  const tools = (await Promise.all(lists)).flat();
  return tools.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** Without the word for how tools are run as tasks, which the modern era does not have. */
function dropExecution(tool: Tool): Tool {
  const copy: Tool & { execution?: unknown } = { ...tool };
  delete copy.execution;
  return copy;
}

describe("four real servers behind one hub", () => {
  it("list their tools as without it but for the prefix, do what they are asked, tell progress and errors, and can be cancelled", () =>
    withTestFolder(
      // A first list waits for servers that are slow to start where others are at work.
      (dir) => ({ hub: { listWait: "30s" }, servers: servers(dir) }),
      async (setup) => {
        const { config, dir } = setup;
        mkdirSync(join(dir, "files"));
        const tools = await listDirectly(setup);
        const hub = { command: executable(), args: ["--config", config] };
        // A client of either SDK is before the server of everything elsewhere.
        const client = await connectSdk("SDK v2", program(setup, hub));
        assert.deepEqual(await client.list(), tools);

        const call = async (
          name: string,
          args: Record<string, unknown>,
          options?: CallOptions,
        ): Promise<ToolResult & { readonly text: string }> => {
          const result = await client.call(name, args, options);
          return { ...result, text: result.content[0]?.text ?? "" };
        };
        assert.equal((await call("everything__echo", { message: "hé" })).text, "Echo: hé");
        const path = join(dir, "files", "note.txt");
        await call("files__write_file", { path, content: "written ☃" });
        assert.equal(readFileSync(path, "utf8"), "written ☃");
        assert.equal((await call("files__read_text_file", { path })).text, "written ☃");
        const entities = [
          { name: "toolmux", entityType: "program", observations: ["multiplexes"] },
        ];
        const created = await call("memory__create_entities", { entities });
        assert.deepEqual(created.structuredContent, { entities });
        assert.match(readFileSync(join(dir, "memory.jsonl"), "utf8"), /multiplexes/);
        const only = { nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 };
        const thinking = await call("thinking__sequentialthinking", { thought: "one", ...only });
        assert.match(thinking.text, /"thoughtNumber": 1/);

        const steps: number[] = [];
        const operation = "everything__trigger-long-running-operation";
        const done = await call(
          operation,
          { duration: 0.5, steps: 5 },
          { onprogress: ({ progress }) => steps.push(progress) },
        );
        assert.match(done.text, /completed/);
        // The SDK's clients lose progress that comes in one chunk with the answer, so the last one may be missing.
        assert.deepEqual(steps.slice(0, 4), [1, 2, 3, 4]);

        const refused = await call("files__read_text_file", { path: "/etc/hostname" });
        assert.equal(refused.isError, true);
        assert.match(refused.text, /denied|outside/i);
        await assert.rejects(call("files__no_such_tool", {}), /files__no_such_tool/);

        const abort = new AbortController();
        const cancelled = call(
          operation,
          { duration: 60, steps: 600 },
          {
            signal: abort.signal,
            onprogress: ({ progress }) => progress === 3 && abort.abort(new Error("enough")),
          },
        );
        await assert.rejects(cancelled, /enough|abort/i);
        assert.equal((await call("everything__echo", { message: "on" })).text, "Echo: on");
        await client.close();
      },
    ));
});

describe("configuration files of MCP clients", () => {
  const [one, two] = [scripted(), scripted()];
  const FILES: Record<string, object> = {
    "claude_desktop_config.json": {
      globalShortcut: "Ctrl+Space",
      mcpServers: { one, two: { ...two, type: "stdio", disabled: false, autoApprove: [] } },
    },
    "mcp.json": { inputs: [], servers: { one: { ...one, type: "stdio" }, two } },
  };
  for (const [name, file] of Object.entries(FILES)) {
    it(`${name} is served as it is`, () =>
      withHub(
        JSON.stringify(file, null, 2),
        async ({ client }) => {
          await client.initialize();
          for (const server of ["one", "two"]) {
            const { message } = await client.call(`${server}__echo`, { message: "hello" });
            assert.equal(message.result?.content?.[0]?.text, '{"message":"hello"}');
          }
        },
        name,
      ));
  }
});
