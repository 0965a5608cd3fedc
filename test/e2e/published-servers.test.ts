import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type TestFolder, executable, it, withHub, withTestFolder } from "../harness/hub.ts";
import { type ServerEntry, publishedServer } from "../harness/manifest.ts";
import {
  type SdkVersion,
  type StdioCommand,
  type SdkClient,
  connectSdk,
} from "../harness/sdk-client.ts";

const FLAVOURS: readonly SdkVersion[] = ["SDK v1", "SDK v2", "SDK v2 with negotiation"];

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

/** Connects a client to the hub with all four, and lets it close before the processes are counted. */
function withClient(
  flavour: SdkVersion,
  run: (client: SdkClient, setup: TestFolder) => Promise<void>,
): Promise<void> {
  return withTestFolder(
    (dir) => ({ servers: servers(dir) }),
    async (setup) => {
      mkdirSync(join(setup.dir, "files"));
      const hub = { command: executable(), args: ["--config", setup.config] };
      const client = await connectSdk(flavour, program(setup, hub));
      await run(client, setup);
      await client.close();
    },
  );
}

function program({ dir, env }: TestFolder, server: ServerEntry): StdioCommand {
  return {
    command: server.command,
    args: [...(server.args ?? [])],
    cwd: dir,
    env: { ...env, ...server.env },
  };
}

/** The tools of all four under the names that the hub gives them, asked by the same SDK without the hub. */
function listDirectly(flavour: SdkVersion): Promise<{ readonly name: string }[]> {
  return withTestFolder({ servers: {} }, async (setup) => {
    mkdirSync(join(setup.dir, "files"));
    const lists = Object.entries(servers(setup.dir)).map(async ([key, server]) => {
      const client = await connectSdk(flavour, program(setup, server));
      const tools = await client.list();
      await client.close();
      assert.ok(tools.length > 0, key);
      return tools.map((tool) => ({ ...tool, name: `${key}__${tool.name}` }));
    });
    return (await Promise.all(lists)).flat();
  });
}

function dropExecution(tool: { readonly name: string }): { readonly name: string } {
  const copy: { name: string; execution?: unknown } = { ...tool };
  delete copy.execution;
  return copy;
}

for (const flavour of FLAVOURS) {
  describe(`four real servers behind one hub, driven by ${flavour}`, () => {
    it("every tool is listed once, equal to the server's own but for the prefix in its name", async () => {
      const listed = await listDirectly(flavour);
      // The hub speaks the modern era with it, which has no word for how tools are run as tasks; the servers do not.
      const isModern = flavour === "SDK v2 with negotiation";
      const direct = isModern ? listed.map(dropExecution) : listed;
      await withClient(flavour, async (client) => {
        const expected = direct.toSorted((a, b) => (a.name < b.name ? -1 : 1));
        assert.deepEqual(await client.list(), expected);
      });
    });

    it("a call reaches each of them, and what they do is real", () =>
      withClient(flavour, async (client, { dir }) => {
        await client.list();
        assert.equal(
          (await client.call("everything__echo", { message: "hé" })).content[0]?.text,
          "Echo: hé",
        );
        const sum = await client.call("everything__get-sum", { a: 2, b: 40 });
        assert.match(sum.content[0]?.text ?? "", /42/);
        await client.call("files__write_file", {
          path: join(dir, "files", "note.txt"),
          content: "written ☃",
        });
        assert.equal(readFileSync(join(dir, "files", "note.txt"), "utf8"), "written ☃");
        const read = await client.call("files__read_text_file", {
          path: join(dir, "files", "note.txt"),
        });
        assert.equal(read.content[0]?.text, "written ☃");
        const entities = [
          { name: "toolmux", entityType: "program", observations: ["multiplexes"] },
        ];
        const created = await client.call("memory__create_entities", { entities });
        assert.deepEqual(created.structuredContent, { entities });
        assert.match(readFileSync(join(dir, "memory.jsonl"), "utf8"), /multiplexes/);
        const thought = {
          thought: "one",
          nextThoughtNeeded: false,
          thoughtNumber: 1,
          totalThoughts: 1,
        };
        const thinking = await client.call("thinking__sequentialthinking", thought);
        assert.match(thinking.content[0]?.text ?? "", /"thoughtNumber": 1/);
      }));

    it("progress arrives while a call runs, errors arrive as the server made them, a cancel ends a call", () =>
      withClient(flavour, async (client) => {
        await client.list();
        const steps: number[] = [];
        const operation = "everything__trigger-long-running-operation";
        const done = await client.call(
          operation,
          { duration: 0.5, steps: 5 },
          { onprogress: ({ progress }) => steps.push(progress) },
        );
        assert.match(done.content[0]?.text ?? "", /completed/);
        // The SDK's clients lose progress that comes in one chunk with the answer, so the last one may be missing.
        assert.deepEqual(steps.slice(0, 4), [1, 2, 3, 4]);

        const refused = await client.call("files__read_text_file", { path: "/etc/hostname" });
        assert.equal(refused.isError, true);
        assert.match(refused.content[0]?.text ?? "", /denied|outside/i);
        await assert.rejects(client.call("files__no_such_tool", {}), /files__no_such_tool/);

        const abort = new AbortController();
        const cancelled = client.call(
          operation,
          { duration: 60, steps: 600 },
          {
            signal: abort.signal,
            onprogress: ({ progress }) => progress === 3 && abort.abort(new Error("enough")),
          },
        );
        await assert.rejects(cancelled, /enough|abort/i);
        assert.equal(
          (await client.call("everything__echo", { message: "on" })).content[0]?.text,
          "Echo: on",
        );
      }));
  });
}

describe("configuration files of MCP clients", () => {
  const everything = publishedServer("everything", ["stdio"]);
  const thinking = publishedServer("sequential-thinking");
  const FILES: Record<string, object> = {
    "claude_desktop_config.json": {
      globalShortcut: "Ctrl+Space",
      mcpServers: {
        everything,
        thinking: { ...thinking, type: "stdio", disabled: false, autoApprove: [] },
      },
    },
    ".mcp.json": { mcpServers: { everything, thinking: { ...thinking, type: "stdio" } } },
    "mcp.json": { inputs: [], servers: { everything: { ...everything, type: "stdio" }, thinking } },
  };
  for (const [name, file] of Object.entries(FILES)) {
    it(`${name} is served as it is`, () =>
      withHub(
        JSON.stringify(file, null, 2),
        async ({ client }) => {
          await client.initialize();
          const { message } = await client.request("tools/list");
          const names = (message.result?.tools ?? []).map((tool) => tool.name);
          assert.ok(
            names.includes("everything__echo") && names.includes("thinking__sequentialthinking"),
          );
          const echo = await client.call("everything__echo", { message: "hello" });
          assert.equal(echo.message.result?.content?.[0]?.text, "Echo: hello");
        },
        name,
      ));
  }
});

describe("a real server's progress, seen by a client that loses none", () => {
  it("arrives complete, in order, and before the answer", () =>
    withHub(
      { servers: { everything: publishedServer("everything", ["stdio"]) } },
      async ({ client }) => {
        await client.initializeAndList();
        const params = {
          name: "everything__trigger-long-running-operation",
          arguments: { duration: 0.3, steps: 6 },
          _meta: { progressToken: "mine" },
        };
        const id = client.sendRequest("tools/call", params);
        await client.response(id);
        const progress = client.filter(({ method }) => method === "notifications/progress");
        assert.deepEqual(
          progress.map(({ message }) => message.params?.["progress"]),
          [1, 2, 3, 4, 5, 6],
        );
        assert.ok(progress.every(({ message }) => message.params?.["progressToken"] === "mine"));
        assert.deepEqual(client.lines.at(-1)?.json, (await client.response(id)).message);
      },
    ));
});
