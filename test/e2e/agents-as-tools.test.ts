import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { withOciRegistry } from "../fixtures/oci-registry.ts";
import { run, runCommand } from "../harness/command.ts";
import { executable, EXIT_LIMIT, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted, type Manifest } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

const TURNS = `
[[turns]]
when = "echo it"
thinking = "I call it."
toolCalls = [{ name = "s__echo", arguments = { path = "a" } }]
[[turns]]
after = "s__echo"
text = "Echoed."
[[turns]]
when = "slowly"
toolCalls = [{ name = "s__hang", arguments = {} }]
[[turns]]
text = "You said: {message}"
inputTokens = 5
outputTokens = 2
`;

const MANIFEST: Manifest = {
  servers: { s: scripted() },
  models: { main: { provider: "script", script: "turns.toml" } },
  agents: {
    worker: { model: "main", instruction: "Work.", tools: "all", approval: "never" },
  },
  plugins: [{ use: "agents", options: { offer: "all", expose: ["worker"] } }],
};

/** The same, in which clients can start all agents. */
const ALL_AGENTS: Manifest = {
  ...MANIFEST,
  plugins: [{ use: "agents", options: { offer: "all" } }],
};

interface Connected {
  readonly client: Client;
  /** The messages of progress notifications so far. */
  readonly progress: string[];
  call(tool: string, args?: object): Promise<Readonly<Record<string, unknown>>>;
}

function connected(client: Client, prefix = "agents__"): Connected {
  const progress: string[] = [];
  return {
    client,
    progress,
    async call(tool, args = {}) {
      const result = await client.callTool(
        { name: prefix + tool, arguments: { ...args } },
        undefined,
        {
          onprogress: ({ message }: { readonly message?: string | undefined }) =>
            progress.push(message ?? ""),
        },
      );
      // An error has no structured content.
      return (result.structuredContent ?? result) as Readonly<Record<string, unknown>>;
    },
  };
}

async function connectHttp(url: string, prefix?: string): Promise<Connected> {
  const client = new Client({ name: "over-http", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return connected(client, prefix);
}

/** A client on the pipe of a hub that serves HTTP, too, with the URL. */
async function connectStdio({ dir, env, config }: TestFolder) {
  const transport = new StdioClientTransport({
    command: executable(),
    args: ["serve", "--stdio", "--http", "127.0.0.1:0", "--config", config],
    cwd: dir,
    env: { ...env },
    stderr: "pipe",
  });
  let stderr = "";
  transport.stderr?.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const client = new Client({ name: "over-stdio", version: "1" });
  await client.connect(transport);
  const url = await poll(
    10_000,
    () => `the address in ${stderr}`,
    () => /http:\S+/.exec(stderr)?.[0],
  );
  return { ...connected(client), url };
}

function withAgents<T>(
  use: (folder: TestFolder) => Promise<T>,
  manifest: Manifest = MANIFEST,
): Promise<T> {
  return withTestFolder(manifest, (folder) => {
    writeFileSync(join(folder.dir, "turns.toml"), TURNS);
    return use(folder);
  });
}

const textOf = (result: Readonly<Record<string, unknown>>): string =>
  (result["content"] as [{ text: string }])[0].text;

describe("agents as tools of the executable", () => {
  it("have a session for each client, which knows what was said, tells what it does and ends with its client", () =>
    withAgents(async (folder) => {
      const stdio = await connectStdio(folder);
      const http = await connectHttp(stdio.url);
      const open = async ({ call }: Connected): Promise<string> =>
        String((await call("create_agent_session", { agent: "worker" }))["agent_session_id"]);
      const sessions = await Promise.all([stdio, http].map(open));
      for (const [at, { call, progress }] of [stdio, http].entries()) {
        const agent_session_id = sessions[at];
        const send = (message: string) => call("send_message", { agent_session_id, message });
        assert.equal((await send("one"))["response"], "You said: one");
        const echoed = await send("echo it");
        assert.equal(echoed["response"], "Echoed.");
        assert.deepEqual(
          (echoed["events"] as { type: string }[]).map(({ type }) => type),
          ["thinking", "tool_call", "tool_response", "agent_message"],
        );
        assert.equal((await send("three"))["response"], "You said: three");
        assert.ok(progress.includes("worker has started"), progress.join());
        const history = await call("get_agent_session_history", { agent_session_id });
        assert.equal(history["total"], 8);
      }
      // Neither knows the session of the other.
      const [ofStdio, ofHttp] = sessions;
      const foreign = await http.call("send_message", { agent_session_id: ofStdio, message: "hi" });
      assert.equal(textOf(foreign), "Agent session not found.");
      // One leaves while a tool is at work for it.
      const hanging = http.call("send_message", { agent_session_id: ofHttp, message: "slowly" });
      hanging.catch(() => {});
      const { id } = await folder.waitForEvent(
        "s",
        ({ tool, event }) => event === "call" && tool === "hang",
      );
      const leftAt = performance.now();
      await (http.client.transport as StreamableHTTPClientTransport).terminateSession();
      await http.client.close();
      await folder.waitForEvent(
        "s",
        ({ event, requestId }) => event === "cancelled" && requestId === id,
      );
      assert.ok(performance.now() - leftAt < 10_000);
      const other = await connectHttp(stdio.url);
      assert.deepEqual((await other.call("list_agent_sessions"))["sessions"], []);
      assert.equal((await other.call("worker", { message: "hi" }))["response"], "You said: hi");
      await other.client.close();
      await stdio.client.close();
    }));

  it("are those of a changed manifest for new sessions, while sessions go on", () =>
    withAgents(async (folder) => {
      const { client, call } = await connectStdio(folder);
      const { agent_session_id } = await call("create_agent_session", { agent: "worker" });
      const send = (message: string) => call("send_message", { agent_session_id, message });
      await send("one");
      const [first = "", ...rest] = readFileSync(folder.config, "utf8").split("[[plugins]]");
      const added = ["added", "keyless"].map((name) => {
        const model = name === "added" ? "main" : "anthropic/claude-x";
        return `[agents.${name}]\nmodel = "${model}"\ninstruction = "Work."\n`;
      });
      writeFileSync(folder.config, [first, ...added, "[[plugins]]", ...rest].join("\n"));
      let names: string[] = [];
      let unusable: string[] = [];
      const look = async (): Promise<void> => {
        const { agents } = await call("list_agents");
        const listed = agents as { name: string; problem?: string }[];
        names = listed.map(({ name }) => name);
        unusable = listed.flatMap(({ name, problem }) => (problem === undefined ? [] : [name]));
      };
      await poll(
        10_000,
        () => "the new agent",
        () => {
          if (!names.includes("added")) void look();
          return names.includes("added") || undefined;
        },
      );
      assert.deepEqual(unusable, ["keyless"]);
      const answer = await call("invoke_agent", { agent: "added", message: "hi" });
      assert.equal(answer["response"], "You said: hi");
      await send("two");
      const { total } = await call("get_agent_session_history", { agent_session_id });
      assert.equal(total, 4);
      await client.close();
    }, ALL_AGENTS));

  it("are called by toolmux call, which starts the servers that the agent uses", () =>
    withAgents(async (folder) => {
      const { code, stdout } = await run(folder, "call", "agents__worker", "message=echo it");
      assert.equal(code, 0);
      assert.match(stdout, /^Echoed\.$/m);
    }));

  it("get agents from a registry, which have no reach of their own", () =>
    withOciRegistry((registry) =>
      withTestFolder(
        {
          ...MANIFEST,
          servers: {
            ...MANIFEST.servers,
            agents: { plugin: "agents", tools: { approval: { pull_agent: "never" } } },
          },
        },
        async (folder) => {
          const { client, call } = await connectStdio(folder);
          const registry_ref = `${registry.host}/team/pirate`;
          const pulled = await call("pull_agent", { registry_ref });
          assert.match(String(pulled["digest"]), /^sha256:/);
          const { agents } = await call("list_agents", { source: "store" });
          const [listed] = agents as { spec: string; digest: string }[];
          assert.deepEqual([listed?.spec, listed?.digest], [pulled["reference"], pulled["digest"]]);
          const missing = await call("pull_agent", { registry_ref: `${registry.host}/no/such` });
          assert.equal(missing["isError"], true);
          await client.close();
        },
      ),
    ));

  it("are served alone by agents serve, under their own names, with agents of files", () =>
    withAgents(async (folder) => {
      const directory = join(folder.dir, "config/toolmux/agents");
      mkdirSync(directory, { recursive: true });
      const agents = { root: { model: "main", description: "Of a file.", instruction: "Work." } };
      writeFileSync(join(directory, "helper.json"), JSON.stringify({ agents }));
      const args = ["agents", "serve", "--http", "127.0.0.1:0", "--max-sessions", "1"];
      const all = [...args, "--session-timeout", "10m", "--config", folder.config];
      const hub = new RawClient(executable(), all, folder.dir, folder.env);
      const url = await hub.until(10_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
      const { client, call } = await connectHttp(url, "");
      const { tools } = await client.listTools();
      assert.ok(tools.some(({ name }) => name === "send_message"));
      assert.ok(!tools.some(({ name }) => name.includes("echo")));
      const listed = (await call("list_agents", { source: "files" }))["agents"];
      const [helper] = listed as { spec: string; description: string }[];
      assert.equal(helper?.description, "Of a file.");
      const used = await call("invoke_agent", { agent: helper?.spec, message: "hello" });
      assert.equal(used["response"], "You said: hello");
      // An agent of the manifest has the servers that clients do not see.
      const echoed = await call("worker", { message: "echo it" });
      assert.equal(echoed["response"], "Echoed.");
      await call("create_agent_session", { agent: "worker" });
      const refused = await call("create_agent_session", { agent: "worker" });
      assert.equal((refused["_meta"] as Record<string, unknown>)["toolmux/error"], "sessionsFull");
      await client.close();
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    }));

  it("refuse settings that are wrong, each with its place", () =>
    withTestFolder(
      {
        ...MANIFEST,
        plugins: [{ use: "agents", options: { expose: ["wrker"], events: "all", maxSessions: 0 } }],
      },
      async (folder) => {
        const { code, stdout, stderr } = await runCommand(folder, [
          "check",
          "--config",
          folder.config,
        ]);
        assert.equal(code, 2);
        assert.match(stderr, /There is no agent "wrker" in the manifest\. Did you mean "worker"\?/);
        for (const key of ["expose[0]", "events", "maxSessions"])
          assert.ok(`${stdout}${stderr}`.includes(`plugins[0].options.${key}`), stdout + stderr);
        for (const wrong of [["--session-timeout", "soon"], ["--max-sessions", "0"], ["--json"]]) {
          const refused = await runCommand(folder, ["agents", "serve", ...wrong]);
          assert.equal(refused.code, 2, wrong.join(" "));
        }
      },
    ));
});
