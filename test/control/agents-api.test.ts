import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { type ApiSetup, eventually, type Json, withApi } from "./controlled-hub.ts";

const TURNS = `
[[turns]]
when = "call it"
toolCalls = [{ name = "a__x", arguments = {} }]
[[turns]]
after = "a__x"
text = "It said: {message}"
[[turns]]
when = "pieces"
text = ["one ", "two ", "three"]
[[turns]]
when = "hang"
text = "I begin"
hang = true
[[turns]]
when = "use own"
toolCalls = [{ name = "own__only", arguments = { key = "hunter2" } }]
[[turns]]
after = "own__only"
text = "It has answered."
[[turns]]
text = "You said: {message}"
`;

function prepare({ folder, a }: ApiSetup): void {
  const agent = { model: "main", instruction: "x", tools: "all" };
  const manifest = {
    models: { main: { provider: "script", script: "turns.toml" } },
    agents: { main: agent, keyless: { ...agent, model: "anthropic/x" }, wrong: { model: "main" } },
    modes: { none: { tools: { or: [] } } },
  };
  writeFileSync(join(folder, "toolmux.json"), JSON.stringify(manifest));
  writeFileSync(join(folder, "turns.toml"), TURNS);
  a.onCall = () => '"result":{"content":[{"type":"text","text":"hello"}]}';
  a.tools = ['{"name":"x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}'];
}

type Item = Json & { readonly type: string; readonly seq: number };

/** The events after `after`, up to the first of this type. */
async function eventsUntil(setup: ApiSetup, id: unknown, type: string, after = 0): Promise<Item[]> {
  const controller = new AbortController();
  const found: Item[] = [];
  const path = `/runs/${String(id)}/events`;
  for await (const event of setup.follow(`after=${after}`, controller.signal, path)) {
    found.push(event as unknown as Item);
    if (found.at(-1)?.type === type) break;
  }
  controller.abort();
  return found;
}

describe("the control API for agents", () => {
  it("runs an agent with the hub's tools, and sends its events to all who follow it, from any number on", () =>
    withApi(async (setup) => {
      prepare(setup);
      const { status, document: run } = await setup.ask("POST", "/agents/main/runs", {
        message: "call it",
      });
      assert.ok(status === 201 || status === 200);
      assert.equal(run["agent"], "main");
      const { id } = run;
      const events = await eventsUntil(setup, id, "runComplete");
      assert.deepEqual(
        events.map(({ type }) => type),
        "message runStarted usage toolCallStart toolExecuted textDelta usage runComplete".split(
          " ",
        ),
      );
      assert.deepEqual(
        events.map(({ seq }) => seq),
        [1, 2, 3, 4, 5, 6, 7, 8],
      );
      assert.equal(events.at(-1)?.["text"], "It said: hello");
      const late = await eventsUntil(setup, id, "runComplete", 6);
      assert.deepEqual(
        late.map(({ seq }) => seq),
        [7, 8],
      );
      await setup.ask("POST", `/runs/${String(id)}/message`, { message: "more" });
      const more = await eventsUntil(setup, id, "runComplete", 8);
      assert.equal(more.at(-1)?.["text"], "You said: more");
      const { document } = await setup.ask("GET", `/runs/${String(id)}`);
      assert.deepEqual([document["state"], document["lastEvent"]], ["idle", more.at(-1)?.seq]);
      const other = await setup.ask("POST", "/agents/main/runs", { message: "call it" });
      await eventsUntil(setup, other.document["id"], "runComplete");
      const activity = (await setup.ask("GET", "/activity")).document["calls"] as Json[];
      const clients = activity.map(({ client }) => client);
      assert.deepEqual(clients, [other.document["client"], run["client"]]);
      assert.notEqual(run["client"], other.document["client"]);
    }));

  it("keeps the pieces of a text together, gives each reader those that it lacks, and narrows tools from a message on", () =>
    withApi(async (setup) => {
      prepare(setup);
      const { document } = await setup.ask("POST", "/agents/main/runs", { message: "pieces" });
      const path = `/runs/${String(document["id"])}`;
      await eventsUntil(setup, document["id"], "runComplete");
      const [all, rest] = await Promise.all(
        [0, 4].map((after) => eventsUntil(setup, document["id"], "runComplete", after)),
      );
      const textOf = (events: readonly Item[] | undefined): unknown =>
        events?.filter(({ type }) => type === "textDelta").map(({ seq, text }) => [seq, text]);
      assert.deepEqual([textOf(all), textOf(rest)], [[[5, "one two three"]], [[5, "three"]]]);
      const refused = await setup.ask("POST", `${path}/message`, { message: "x", mode: "no" });
      assert.ok(refused.status >= 400);
      await setup.ask("POST", `${path}/message`, { message: "call it", mode: "none" });
      const next = await eventsUntil(setup, document["id"], "runComplete", all?.at(-1)?.seq);
      assert.equal(next.find(({ type }) => type === "toolExecuted")?.["success"], false);
      assert.equal((await setup.ask("GET", path)).document["mode"], "none");
    }));

  it("cancels what runs, keeps the conversation, and closes it", () =>
    withApi(async (setup) => {
      prepare(setup);
      const { document } = await setup.ask("POST", "/agents/main/runs", { message: "hang" });
      const path = `/runs/${String(document["id"])}`;
      await eventsUntil(setup, document["id"], "textDelta");
      await setup.ask("POST", `${path}/cancel`);
      const events = await eventsUntil(setup, document["id"], "runComplete");
      assert.equal(events.at(-1)?.["stopReason"], "cancelled");
      await setup.ask("POST", `${path}/message`, { message: "again" });
      const next = await eventsUntil(setup, document["id"], "runComplete", events.at(-1)?.seq);
      assert.equal(next.at(-1)?.["text"], "You said: again");
      const { clients } = setup.hub.snapshot();
      await setup.ask("DELETE", path);
      const gone = await setup.ask("GET", path);
      assert.ok(gone.status >= 400);
      await eventually("the client to leave", () => {
        return setup.hub.snapshot().clients.length < clients.length;
      });
    }));

  it("opens a conversation again that was closed, with approvals asked for again, and forgets it", () =>
    withApi(async (setup) => {
      prepare(setup);
      setup.a.tools = ['{"name":"x","inputSchema":{"type":"object"}}'];
      const watching = new AbortController();
      const query = "kinds=approval&watch=approvals";
      const watch = async (): Promise<void> => {
        for await (const _ of setup.follow(query, watching.signal));
      };
      void watch().catch(() => {});
      await eventually("the reader", () => setup.hub.approvals.watcherCount === 1);
      const { document } = await setup.ask("POST", "/agents/main/runs", { message: "call it" });
      const id = String(document["id"]);
      const approve = async (decision: string): Promise<void> => {
        const asked = await eventually("the question", async () => {
          const { document: open } = await setup.ask("GET", "/approvals");
          return (open["approvals"] as Json[])[0];
        });
        const answer = await setup.ask("POST", `/approvals/${String(asked["id"])}`, { decision });
        assert.ok(answer.status < 300);
      };
      await approve("session");
      const first = await eventsUntil(setup, id, "runComplete");
      await setup.ask("POST", `/runs/${id}/message`, { message: "call it" });
      const more = await eventsUntil(setup, id, "runComplete", first.at(-1)?.seq);
      assert.equal(more.at(-1)?.["text"], "It said: hello");
      await setup.ask("DELETE", `/runs/${id}`);
      const listed = (await setup.ask("GET", "/conversations")).document["conversations"];
      const [kept] = listed as Json[];
      assert.deepEqual([kept?.["id"], kept?.["title"], kept?.["open"]], [id, "call it", false]);
      const opened = await setup.ask("POST", `/conversations/${id}/open`);
      assert.deepEqual([opened.document["id"], opened.document["state"]], [id, "idle"]);
      const last = Number(opened.document["lastEvent"]);
      await setup.ask("POST", `/runs/${id}/message`, { message: "call it" });
      // What was allowed for the session is not allowed in the next one.
      await approve("once");
      const again = await eventsUntil(setup, id, "runComplete", last);
      assert.equal(again.at(-1)?.["text"], "It said: hello");
      await setup.ask("DELETE", `/conversations/${id}`);
      assert.deepEqual((await setup.ask("GET", "/conversations")).document, { conversations: [] });
      for (const [method, path] of [
        ["POST", `/conversations/${id}/open`],
        ["DELETE", `/conversations/${id}`],
        ["GET", `/runs/${id}`],
      ] as const) {
        const refused = await setup.ask(method, path);
        assert.equal((refused.document["error"] as Json)["code"], "notFound", path);
      }
      watching.abort();
    }));

  it("has agents of files with their welcome and their prompts, which a message can name", () =>
    withApi(async (setup) => {
      prepare(setup);
      const write = (file: string, text: string): string => {
        const path = join(setup.folder, file);
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, text);
        return path;
      };
      const guide = write(
        ".config/toolmux/agents/guide.yaml",
        `agents:
  root:
    model: main
    description: Guides.
    instruction: I
    welcome_message: |
      Hello **you**.
    commands:
      say: {description: Says it, instruction: "say \${args} to $HOME"}
      plain: call it
    toolsets: [{type: toolmux, filter: {servers: [a]}}, {type: think}, {type: mcp, name: own, command: x}]
`,
      );
      const foreign = write(
        ".cagent/agents/foreign.yaml",
        `agents:
  root:
    model: main
    instruction: I
    toolsets: [{type: mcp, command: x, args: [hunter2]}]
    commands: {home: "at $HOME"}
`,
      );
      await setup.ask("POST", "/servers/a/start?wait=5s");
      await eventually("the tool", () => setup.hub.catalog.tools.entries.length > 0);
      const { document: list } = await setup.ask("GET", "/agents");
      const [one, other] = (list["agents"] as readonly Json[]).slice(3);
      assert.deepEqual(
        { ...one, tools: undefined, description: undefined },
        {
          name: "guide.yaml",
          file: guide,
          model: "main",
          description: undefined,
          instruction: "I",
          tools: undefined,
          welcome: "Hello **you**.",
          prompts: [
            { name: "say", description: "Says it", instruction: "say ${args} to $HOME" },
            { name: "plain", instruction: "call it" },
          ],
          servers: ["own"],
          usable: true,
        },
      );
      assert.deepEqual(one?.["tools"], ["a__x", "think"]);
      assert.deepEqual([other?.["name"], other?.["file"]], ["foreign.yaml", foreign]);
      const notes = JSON.stringify(other?.["notes"]);
      assert.ok(notes.includes("toolmux trust") && !notes.includes("hunter2"), notes);

      const begun = await setup.ask("POST", "/agents/guide.yaml/runs", {
        message: "/say 'good day' friend",
      });
      const { id, file, agent, prompts } = begun.document;
      assert.deepEqual([file, agent, prompts], [guide, "root", ["say", "plain"]]);
      const said = await eventsUntil(setup, id, "runComplete");
      const text = `say good day friend to ${setup.folder}`;
      assert.deepEqual([said[0]?.["text"], said.at(-1)?.["text"]], [text, `You said: ${text}`]);
      // It is kept as the terminal keeps it, and goes on with the agent of the file.
      await setup.ask("DELETE", `/runs/${String(id)}`);
      const listed = (await setup.ask("GET", "/conversations")).document["conversations"];
      assert.deepEqual(
        (listed as Json[]).map((kept) => [kept["id"], kept["agent"]]),
        [[id, guide]],
      );
      const opened = await setup.ask("POST", `/conversations/${String(id)}/open`);
      const last = Number(opened.document["lastEvent"]);
      await setup.ask("POST", `/runs/${String(id)}/message`, { message: "/plain" });
      const called = await eventsUntil(setup, id, "runComplete", last);
      assert.equal(called.at(-1)?.["text"], "It said: hello");

      // A file that is not trusted reads no variables, and has no tools of its own.
      const untrusted = await setup.ask("POST", "/agents/foreign.yaml/runs", { message: "/home" });
      const answered = await eventsUntil(setup, untrusted.document["id"], "runComplete");
      assert.equal(answered.at(-1)?.["text"], "You said: at $HOME");
    }));

  it("asks for calls of a file's own servers among those of the hub, and the decision counts there", () =>
    withApi(async (setup) => {
      prepare(setup);
      const folder = join(setup.folder, ".config/toolmux/agents");
      mkdirSync(folder, { recursive: true });
      const server = fileURLToPath(new URL("../fixtures/servers/scripted.mjs", import.meta.url));
      const toolset = {
        type: "mcp",
        name: "own",
        command: process.execPath,
        args: [server, "--bare", "--tool", "only"],
      };
      const root = { model: "main", instruction: "I", toolsets: [toolset] };
      writeFileSync(join(folder, "own.yaml"), JSON.stringify({ agents: { root } }));
      const watching = new AbortController();
      const watch = async (): Promise<void> => {
        for await (const _ of setup.follow("kinds=approval&watch=approvals", watching.signal));
      };
      void watch().catch(() => {});
      await eventually("the reader", () => setup.hub.approvals.watcherCount === 1);
      const begin = async (): Promise<Json> =>
        (await setup.ask("POST", "/agents/own.yaml/runs", { message: "use own" })).document;
      const asked = (): Promise<Json> =>
        eventually("the question", async () => {
          const { document: open } = await setup.ask("GET", "/approvals");
          return (open["approvals"] as Json[])[0];
        });
      const run = await begin();
      const question = await asked();
      assert.deepEqual(
        [question["client"], question["server"], question["tool"], question["agent"]],
        [run["client"], "own/own", "only", "root"],
      );
      assert.ok((question["choices"] as string[]).includes("session"));
      const path = `/approvals/${encodeURIComponent(String(question["id"]))}`;
      const answer = await setup.ask("POST", path, { decision: "session" });
      assert.ok(answer.status < 300, JSON.stringify(answer.document));
      const first = await eventsUntil(setup, run["id"], "runComplete");
      const executed = first.find(({ type }) => type === "toolExecuted");
      assert.equal(executed?.["success"], true, JSON.stringify(executed));
      // The decision is remembered where the server runs, and nowhere else.
      await setup.ask("POST", `/runs/${String(run["id"])}/message`, { message: "use own" });
      const again = await eventsUntil(setup, run["id"], "runComplete", first.at(-1)?.seq);
      assert.equal(again.find(({ type }) => type === "toolExecuted")?.["success"], true);
      const { document: remembered } = await setup.ask("GET", "/approvals/remembered");
      assert.deepEqual(Object.values(remembered), [[]]);
      // A question ends with its conversation.
      const other = await begin();
      assert.equal((await asked())["client"], other["client"]);
      await setup.ask("DELETE", `/runs/${String(other["id"])}`);
      await eventually("no question", async () => {
        const { document: open } = await setup.ask("GET", "/approvals");
        return (open["approvals"] as Json[]).length === 0;
      });
      await setup.ask("DELETE", `/runs/${String(run["id"])}`);
      watching.abort();
    }));

  it("lists agents with what keeps them from running, and refuses what is not there", () =>
    withApi(async (setup) => {
      prepare(setup);
      await setup.ask("POST", "/servers/a/start?wait=5s");
      await eventually("the tool", () => setup.hub.catalog.tools.entries.length > 0);
      const { document } = await setup.ask("GET", "/agents");
      const agents = document["agents"] as readonly Json[];
      assert.deepEqual(
        agents.map(({ name, usable, instruction, tools }) => [name, usable, instruction, tools]),
        [
          ["main", true, "x", ["a__x"]],
          ["keyless", false, "x", ["a__x"]],
          ["wrong", false, undefined, undefined],
        ],
      );
      for (const [name, body, code] of [
        ["mian", { message: "x" }, "notFound"],
        ["keyless", { message: "x" }, "valueMissing"],
        ["wrong", { message: "x" }, "manifestInvalid"],
        ["main", { message: "" }, "invalidParams"],
        ["main", { message: "x", mode: "no" }, "usage"],
      ] as const) {
        const refused = await setup.ask("POST", `/agents/${name}/runs`, body);
        assert.equal((refused.document["error"] as Json)["code"], code, name);
      }
      assert.deepEqual((await setup.ask("GET", "/runs")).document, { runs: [] });
    }));
});
