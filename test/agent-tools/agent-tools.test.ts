import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readFileSync } from "node:fs";
import { Buffer } from "node:buffer";
import { Ajv2020 } from "ajv/dist/2020.js";
import { toolDefinitions } from "../../src/agent-tools/definitions.ts";
import { HubClient } from "../../src/frontend/hub-client.ts";
import type { Hub } from "../../src/hub/hub.ts";
import { memoryTransportPair } from "../../src/transport/memory.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { type ServerSubset, subsetOf } from "../../src/upstream/profile.ts";
import {
  type AgentHubSettings,
  agentResultOf,
  callAgents,
  callAgentsModern,
  openSession,
  setUpAgentHub,
} from "../fixtures/agent-hub.ts";
import {
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  Peer,
  ScriptedServer,
  sendRequest,
} from "../fixtures/memory-hub.ts";
import { inputRoundOf, modernRequest, sendModernRequest } from "../fixtures/modern-requests.ts";
import { requestTask, TASKS_DECLARED, TASKS_EXTENSION_ID } from "../fixtures/modern-task-server.ts";
import { INITIALIZED } from "../fixtures/server-requests.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import { collectsGarbage, measureMemory } from "../harness/memory.ts";
import { messageTo, cancelOf } from "../plugins/plugin-hub.ts";

const NOT_FOUND = "Agent session not found.";

/** A hub with agents, and a client that has initialized. */
async function open(
  servers: Record<string, ScriptedServer> = {},
  { capabilities = {}, ...settings }: AgentHubSettings & { readonly capabilities?: object } = {},
) {
  const setup = await setUpAgentHub(servers, settings);
  await initialize(setup.client, capabilities);
  const join = async (declared: object = {}): Promise<Peer> => {
    const peer = setup.connect();
    await initialize(peer, declared);
    peer.send(INITIALIZED);
    return peer;
  };
  return { ...setup, join };
}

/** The same with a virtual clock, which has to be moved while servers start. */
async function openWithClock(...[servers, settings]: Parameters<typeof open>) {
  const clock = new VirtualClock();
  return { ...(await open(servers, { ...settings, clock, random: () => 0 })), clock };
}

/** Another client, on stdin and stdout. */
async function connectTo(hub: Hub, subset?: ServerSubset): Promise<Peer> {
  const [ours, theirs] = memoryTransportPair();
  void hub.accept(ours, new AbortController().signal, { subset, kind: "stdio" });
  const client = new Peer(theirs);
  await initialize(client);
  return client;
}

let calls = 0;

/** Sends a message to a session without waiting for the answer. @returns the id of the call */
function sendLater(client: Peer, session: string, message: string, meta?: object): string {
  const id = `later-${++calls}`;
  const args = { agent_session_id: session, message };
  const more = meta === undefined ? {} : { _meta: meta };
  client.send(callRequest(id, "agents__send_message", args, more));
  return id;
}

const say = (client: Peer, session: string, message: string) =>
  callAgents(client, "send_message", { agent_session_id: session, message });

const resultAt = async (client: Peer, id: string) =>
  agentResultOf(await client.find(isResponseTo(id)));

/** Waits until the agents of a hub do so many things at once. */
async function untilActive(model: { readonly active: number }, count: number): Promise<void> {
  for (let at = 0; at < 1000 && model.active !== count; at++) await turn();
  assert.equal(model.active, count);
}

describe("the tools of the server agents", () => {
  it("are listed with schemas that their results satisfy, and nothing is opened for that", async () => {
    const options = { inlineConfig: true, expose: ["worker"] };
    const agents = { worker: { description: "Works.", subAgents: ["other"] }, other: {} };
    const { client, openings } = await open({}, { options, agents });
    const { result } = await sendRequest(client, "tools/list");
    const tools = result?.["tools"] as {
      name: string;
      description: string;
      outputSchema: object;
    }[];
    assert.equal(tools.length, 12);
    assert.equal(openings(), 0);
    assert.equal(tools.find(({ name }) => name === "agents__worker")?.description, "Works.");
    const session = await openSession(client);
    const agent_session_id = session;
    const message = "hi";
    const config = { model: "m", instruction: "Obey." };
    const uses: readonly (readonly [tool: string, args: object])[] = [
      ["create_agent_session", { agent: "worker", session_name: "s" }],
      ["send_message", { agent_session_id, message }],
      ["invoke_agent", { agent: "worker", message }],
      ["invoke_with_config", { config, message }],
      ["worker", { message }],
      ["list_agents", {}],
      ["list_agent_sessions", {}],
      ["get_agent_session_info", { agent_session_id }],
      ["get_agent_session_history", { agent_session_id, limit: 1 }],
      ["transfer_agent_session", { agent_session_id, target_agent: "other" }],
      ["close_agent_session", { agent_session_id }],
    ];
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    for (const [tool, args] of uses) {
      const { value, code, text } = await callAgents(client, tool, args);
      assert.equal(code, undefined, `${tool}: ${text}`);
      const schema = tools.find(({ name }) => name === `agents__${tool}`)?.outputSchema;
      assert.ok(ajv.validate(schema ?? false, value), `${tool}: ${ajv.errorsText()}`);
    }
  });

  it("have their bare names for clients that see this server alone", async () => {
    const { hub } = await open();
    const client = await connectTo(hub, subsetOf(["agents"]));
    assert.ok((await listToolNames(client)).includes("send_message"));
  });

  const mistakes: readonly (readonly [string, object, string])[] = [
    ["create_agent_session", { agent: "workr" }, "agentNotFound"],
    ["create_agent_session", {}, "invalidParams"],
    ["create_agent_session", { agent: "x".repeat(3000) }, "invalidParams"],
    ["send_message", { agent_session_id: "x", message: "hi" }, "sessionNotFound"],
    ["send_message", { agent_session_id: "x", message: "x".repeat(1_100_000) }, "invalidParams"],
    ["invoke_agent", { agent: "worker", message: "fail" }, "modelFailed"],
    ["invoke_agent", { agent: "short", message: "call s__t" }, "limitReached"],
    ["invoke_with_config", { config: { command: "rm" }, message: "hi" }, "agentInvalid"],
    ["get_agent_session_history", { agent_session_id: "x", limit: 0 }, "invalidParams"],
    ["list_agents", { source: "moon" }, "invalidParams"],
  ];
  for (const [tool, args, code] of mistakes) {
    it(`answer ${tool} ${JSON.stringify(args).slice(0, 60)} with a result that has the code ${code}`, async () => {
      const agents = { worker: {}, short: { maxTurns: 1 } };
      const servers = { s: new ScriptedServer("t") };
      const { client } = await open(servers, { agents, options: { inlineConfig: true } });
      const result = await callAgents(client, tool, args);
      assert.equal(result.code, code, result.text);
    });
  }

  it("have codes that docs/agents.md names, also the code for a missing key of a model", () => {
    const page = readFileSync(new URL("../../docs/agents.md", import.meta.url), "utf8");
    for (const code of [...mistakes.map(([, , one]) => one), "valueMissing"])
      assert.ok(page.includes(`\`${code}\``), code);
  });

  it("ask a person before something is pulled, unless the manifest says otherwise", async () => {
    const args = { registry_ref: "x/y" };
    const asked = await open();
    assert.equal((await callAgents(asked.client, "pull_agent", args)).code, "notApproved");
    const rules = { approval: { "pull_*": "never" } } as const;
    const { client } = await open({}, { agentsServer: rules });
    const { value } = await callAgents(client, "pull_agent", args);
    assert.deepEqual(value, { digest: "sha256:0", reference: "x/y" });
  });
});

describe("the history of a session", () => {
  it("has every message, also when the model gets only the last ones, and says where its window begins", async () => {
    const { client, model } = await open();
    model.contextTokens = 3000;
    model.usage = {};
    const agent_session_id = await openSession(client);
    for (let at = 0; at < 7; at++) await say(client, agent_session_id, `lines ${300 + at}`);
    const { value } = await callAgents(client, "get_agent_session_history", { agent_session_id });
    assert.equal(value["total"], 14);
    const messages = value["messages"] as Record<string, unknown>[];
    assert.equal(messages.length, 14);
    assert.deepEqual([messages[0]?.["number"], messages[0]?.["content"]], [1, "lines 300"]);
    const start = Number(value["window_start"]);
    assert.ok(start > 1);
    assert.deepEqual(
      messages.map((message) => message["left_out"] === true),
      messages.map((_, at) => at + 1 < start),
    );
    const notes = messages.filter(({ note }) => note !== undefined);
    assert.deepEqual(
      notes.map(({ number }) => number),
      [start],
    );
    const info = await callAgents(client, "get_agent_session_info", { agent_session_id });
    assert.equal(info.value["message_count"], 14);
    // Pages go backwards from any number.
    const page = { agent_session_id, limit: 3, before: 5 };
    const earlier = await callAgents(client, "get_agent_session_history", page);
    assert.deepEqual(
      (earlier.value["messages"] as Record<string, unknown>[]).map(({ number }) => number),
      [2, 3, 4],
    );
  });

  it("has calls, and results with their size; answers have results without secrets beside it", async () => {
    const servers = { s: new ScriptedServer("t") };
    servers.s.onCall = () =>
      `"result":{"content":[{"type":"text","text":"hunter2 ${"x".repeat(100)}"}]}`;
    const agents = { worker: { resultLimit: 50 } };
    const { client } = await open(servers, { agents });
    const agent_session_id = await openSession(client);
    const { value: answer } = await say(client, agent_session_id, "call s__t");
    const { value } = await callAgents(client, "get_agent_session_history", { agent_session_id });
    const messages = value["messages"] as Record<string, unknown>[];
    const [, asked, result] = messages;
    const [call] = asked?.["tool_calls"] as Record<string, unknown>[];
    assert.deepEqual([call?.["name"], call?.["arguments"]], ["s__t", "{}"]);
    assert.match(
      String(result?.["content"]),
      /\[cut: the result has \d+ B, of which 50 B are shown\]/,
    );
    const events = answer["events"] as Record<string, unknown>[];
    const response = events.find(({ type }) => type === "tool_response");
    assert.match(String(response?.["result"]), /^\*\*\* x{100}$/);
    assert.equal(response?.["size"], result?.["size"]);
  });
});

describe("an agent that calls another one as a tool", () => {
  const agents = { worker: { allowAgents: true }, other: {} };
  const task = (message: string): string =>
    `call agents__invoke_agent ${JSON.stringify({ agent: "other", message })}`;

  it("shows as a tree in the events of the answer, and what it does is told on the way", async () => {
    const { client } = await open({ s: new ScriptedServer("t") }, { agents });
    const agent_session_id = await openSession(client);
    const args = { agent_session_id, message: task("call s__t") };
    const { value } = await callAgents(client, "send_message", args, {
      _meta: { progressToken: "p" },
    });
    const events = value["events"] as Record<string, unknown>[];
    const begun = events.find(({ type }) => type === "agent_started");
    assert.deepEqual([begun?.["agent"], begun?.["how"]], ["other", "call"]);
    const inside = events.filter(({ run }) => run === begun?.["run_id"]);
    assert.deepEqual(
      inside.map(({ type }) => type),
      ["thinking", "tool_call", "tool_response", "agent_message"],
    );
    const ended = events.find(({ type }) => type === "agent_ended");
    assert.deepEqual([ended?.["success"], ended?.["tool_calls"]], [true, 1]);
    const metadata = value["metadata"] as Record<string, unknown>;
    // Two turns of each agent, and one call of each.
    assert.deepEqual([metadata["tool_calls"], metadata["tokens_used"]], [2, 60]);
    const { value: history } = await callAgents(client, "get_agent_session_history", {
      agent_session_id,
    });
    const messages = history["messages"] as Record<string, unknown>[];
    const run = messages[2]?.["run"] as { agent: string; messages: { role: string }[] };
    assert.equal(run.agent, "other");
    assert.deepEqual(
      run.messages.map(({ role }) => role),
      ["user", "assistant", "tool", "assistant"],
    );
  });

  it("gives it what is left of its limits: one that uses them up ends both", async () => {
    for (const [options, spec, code] of [
      [{ maxTokens: 40 }, {}, "tokenLimit"],
      [{}, { maxToolCalls: 2 }, "toolCallLimit"],
    ] as const) {
      const servers = { s: new ScriptedServer("t") };
      const all = { ...agents, worker: { ...agents.worker, ...spec } };
      const { client } = await open(servers, { agents: all, options });
      const agent_session_id = await openSession(client);
      const args = { agent_session_id, message: task("call s__t {} times 2") };
      const { text, code: shown } = await callAgents(client, "send_message", args);
      assert.equal(shown, "limitReached", `${code} ${text}`);
      assert.match(text, code === "tokenLimit" ? /has used 45 tokens/ : /has called tools/);
    }
  });

  it("cancels it when its own run is cancelled", async () => {
    const { client, model } = await open({}, { agents });
    const session = await openSession(client);
    const id = sendLater(client, session, task("hang"));
    await untilActive(model, 1);
    client.send(cancelOf(id));
    await untilActive(model, 0);
    const { value } = await callAgents(client, "get_agent_session_info", {
      agent_session_id: session,
    });
    assert.equal(value["state"], "idle");
  });
});

describe("a session of an agent", () => {
  for (const era of ["legacy", "modern"] as const) {
    it(`keeps the conversation until it is closed, for a client of the ${era} era`, async () => {
      const { client, team, connect } = await open();
      const peer = era === "legacy" ? client : connect();
      const call = era === "legacy" ? callAgents : callAgentsModern;
      const created = await call(peer, "create_agent_session", { agent: "worker" });
      const { agent_session_id } = created.value;
      for (const at of [1, 2, 3]) {
        const { value } = await call(peer, "send_message", { agent_session_id, message: "hello" });
        assert.equal(value["response"], `hello (${at})`);
      }
      const { value: history } = await call(peer, "get_agent_session_history", {
        agent_session_id,
        limit: 2,
      });
      assert.equal(history["total"], 6);
      const said = history["messages"] as { role: string; content: string }[];
      assert.deepEqual(
        said.map(({ role, content }) => [role, content]),
        [
          ["user", "hello"],
          ["assistant", "hello (3)"],
        ],
      );
      const { value: info } = await call(peer, "get_agent_session_info", { agent_session_id });
      assert.deepEqual([info["state"], info["tokens_used"]], ["idle", 45]);
      await call(peer, "close_agent_session", { agent_session_id });
      const again = await call(peer, "close_agent_session", { agent_session_id });
      assert.deepEqual([again.code, again.text, team.openCount], ["sessionNotFound", NOT_FOUND, 0]);
    });
  }

  it("exists for nobody but its client, and looks as if there were none", async () => {
    const { client, join } = await open();
    const session = await openSession(client);
    const other = await join();
    const closed = await openSession(other);
    await callAgents(other, "close_agent_session", { agent_session_id: closed });
    for (const agent_session_id of [session, closed, "no-such-session"]) {
      for (const [tool, more] of [
        ["send_message", { message: "hi" }],
        ["get_agent_session_info", {}],
        ["get_agent_session_history", {}],
        ["transfer_agent_session", { target_agent: "worker" }],
        ["close_agent_session", {}],
      ] as const) {
        const { code, text } = await callAgents(other, tool, { agent_session_id, ...more });
        assert.deepEqual([code, text], ["sessionNotFound", NOT_FOUND]);
      }
    }
    const { value } = await callAgents(other, "list_agent_sessions");
    assert.deepEqual(value["sessions"], []);
    assert.equal((await say(client, session, "hi")).value["response"], "hi (1)");
  });

  it("ends with its client, and so does the call that it has made", async () => {
    const s = new ScriptedServer("t");
    s.onCall = () => undefined;
    const { client, join, team, hub } = await open({ s });
    const session = await openSession(client);
    sendLater(client, session, "call s__t");
    const sent = await messageTo(s);
    await client.transport.close();
    const { params } = await messageTo(s, "notifications/cancelled");
    assert.equal(params?.["requestId"], sent.id);
    for (let at = 0; at < 100 && team.openCount > 0; at++) await turn();
    assert.deepEqual([team.openCount, hub.snapshot().calls], [0, []]);
    const other = await join();
    assert.equal((await say(other, session, "hi")).code, "sessionNotFound");
  });

  it("ends at once when it is closed, with the run and the messages that wait", async () => {
    const { client, model, team } = await open();
    const session = await openSession(client);
    const sent = [sendLater(client, session, "hang"), sendLater(client, session, "after that")];
    await untilActive(model, 1);
    await callAgents(client, "close_agent_session", { agent_session_id: session });
    for (const id of sent) assert.equal((await resultAt(client, id)).code, "cancelled");
    assert.deepEqual([model.active, team.openCount], [0, 0]);
  });

  it("ends when it was not used for long, but not while an agent is at work", async () => {
    const options = { sessionTimeout: 60_000 };
    const { client, clock, team, model } = await openWithClock({}, { options });
    const [idle, busy] = [await openSession(client), await openSession(client)];
    const call = sendLater(client, busy, "hang");
    await untilActive(model, 1);
    await clock.advanceAsync(59_000);
    assert.equal(team.openCount, 2);
    await clock.advanceAsync(1000);
    assert.equal(team.openCount, 1);
    assert.equal((await say(client, idle, "hi")).text, NOT_FOUND);
    client.send(cancelOf(call));
    await untilActive(model, 0);
    await clock.advanceAsync(121_000);
    assert.equal(team.openCount, 0);
  });

  it("is one of so many at most, for a client and in all", async () => {
    const { client, join } = await open(
      {},
      { options: { maxSessions: 3, maxSessionsPerClient: 2 } },
    );
    const create = (peer: Peer) => callAgents(peer, "create_agent_session", { agent: "worker" });
    for (const code of [undefined, undefined, "sessionsFull"])
      assert.equal((await create(client)).code, code);
    const other = await join();
    for (const code of [undefined, "sessionsFull"]) assert.equal((await create(other)).code, code);
  });

  it("makes place for a new one if that is wanted: the one that is idle for longest", async () => {
    const options = { maxSessions: 2, eviction: "lru" } as const;
    const { client, clock, model, team } = await openWithClock({}, { options });
    const first = await openSession(client);
    const call = sendLater(client, first, "hang");
    await untilActive(model, 1);
    clock.advanceTo(1);
    const second = await openSession(client);
    clock.advanceTo(2);
    const third = await openSession(client);
    assert.equal(team.openCount, 2);
    const codes = [];
    for (const agent_session_id of [first, second, third])
      codes.push((await callAgents(client, "get_agent_session_info", { agent_session_id })).code);
    assert.deepEqual(codes, [undefined, "sessionNotFound", undefined]);
    client.send(cancelOf(call));
  });

  it("works on one message at a time, lets eight wait, and refuses the tenth", async () => {
    const { client, model } = await open();
    const session = await openSession(client);
    const first = sendLater(client, session, "hang");
    await untilActive(model, 1);
    const waiting = Array.from({ length: 8 }, (_, at) => sendLater(client, session, `m${at}`));
    assert.equal((await say(client, session, "tenth")).code, "sessionBusy");
    const { code } = await callAgents(client, "transfer_agent_session", {
      agent_session_id: session,
      target_agent: "worker",
    });
    assert.equal(code, "agentNotFound");
    client.send(cancelOf(first));
    for (const [at, id] of waiting.entries())
      assert.equal((await resultAt(client, id)).value["response"], `m${at} (${at + 2})`);
    assert.equal(model.maxActive, 1);
  });

  it("passes to another agent of its team, with all that was said, unless one is at work", async () => {
    const agents = { worker: { subAgents: ["boss"] }, boss: {}, stranger: {} };
    const { client, model } = await open({}, { agents });
    const agent_session_id = await openSession(client);
    const give = (target_agent: string) =>
      callAgents(client, "transfer_agent_session", { agent_session_id, target_agent });
    await say(client, agent_session_id, "one");
    assert.equal((await give("stranger")).code, "agentNotFound");
    assert.deepEqual((await give("boss")).value, { success: true, agent: "boss" });
    const { value } = await say(client, agent_session_id, "two");
    assert.equal(value["response"], "two (2)");
    const other = await openSession(client);
    const call = sendLater(client, other, "hang");
    await untilActive(model, 1);
    const args = { agent_session_id: other, target_agent: "boss" };
    assert.equal((await callAgents(client, "transfer_agent_session", args)).code, "sessionBusy");
    client.send(cancelOf(call));
  });

  it("may use so many tokens, and no more", async () => {
    const { client } = await open({}, { options: { maxTokens: 20 } });
    const session = await openSession(client);
    const codes = [];
    for (const _ of [1, 2, 3]) codes.push((await say(client, session, "hi")).code);
    assert.deepEqual(codes, [undefined, undefined, "limitReached"]);
  });
});

describe("what clients may start", () => {
  it("is limited to exposed agents, with every tool, if there are any", async () => {
    const agents = { worker: {}, other: {} };
    const { client } = await open({}, { agents, options: { expose: ["worker"] } });
    for (const [tool, args] of [
      ["invoke_agent", { agent: "other", message: "hi" }],
      ["create_agent_session", { agent: "other" }],
    ] as const)
      assert.equal((await callAgents(client, tool, args)).code, "agentNotFound", tool);
    const { value } = await callAgents(client, "list_agents", {});
    assert.deepEqual(
      (value["agents"] as { name: string }[]).map(({ name }) => name),
      ["worker"],
    );
    const own = await callAgents(client, "invoke_agent", { agent: "worker", message: "hi" });
    assert.equal(own.value["response"], "hi (1)");
  });

  it("has the tools of the servers that the client's token allows, also in agents of agents", async () => {
    const [s, z] = [new ScriptedServer("t"), new ScriptedServer("t")];
    s.onCall = z.onCall = () => '"result":{"content":[{"type":"text","text":"done"}]}';
    const { connect } = await open({ s, z }, { agents: { worker: {} } });
    const limits = {
      modes: () => [],
      hasOperatorMode: true,
      principal: "ci",
      servers: () => subsetOf(["agents", "s"]),
    };
    const client = connect("http", limits);
    await initialize(client);
    const run = async (message: string) =>
      JSON.stringify(
        (await callAgents(client, "invoke_agent", { agent: "worker", message })).value,
      );
    assert.match(await run("call s__t"), /result: done/);
    assert.doesNotMatch(await run("call z__t"), /result: done/);
    const nested = JSON.stringify({ agent: "worker", message: "call z__t" });
    assert.doesNotMatch(await run(`call agents__invoke_agent ${nested}`), /result: done/);
    assert.deepEqual(
      [s.messagesOf("tools/call").length, z.messagesOf("tools/call").length],
      [1, 0],
    );
  });
});

describe("a run of an agent for a client", () => {
  it("is cancelled with the call, at the tool's server too, and its session lives on", async () => {
    const s = new ScriptedServer("t");
    s.onCall = () => undefined;
    const { client } = await open({ s });
    const session = await openSession(client);
    const call = sendLater(client, session, "call s__t");
    await messageTo(s);
    client.send(cancelOf(call));
    await messageTo(s, "notifications/cancelled");
    assert.equal((await say(client, session, "still there")).value["response"], "still there (2)");
  });

  it("leaves its client the only one of the tool's server, which can still ask it", async () => {
    const s = new ScriptedServer("t");
    const { client, hub } = await open({ s }, { capabilities: { roots: {} } });
    await callAgents(client, "invoke_agent", { agent: "worker", message: "call s__t" });
    const { connections = [] } = hub.status().find(({ server }) => server === "s") ?? {};
    assert.deepEqual(
      connections.map(({ clients }) => clients),
      [hub.snapshot().clients.map(({ id }) => id)],
    );
    s.newestPeer?.send({ jsonrpc: "2.0", id: "ask", method: "roots/list" });
    await client.find(({ method }) => method === "roots/list");
  });

  it("has the time of the run, not that of a call, even for a client that wants no progress", async () => {
    const s = new ScriptedServer("t");
    s.onCall = () => undefined;
    const { client, clock, model } = await openWithClock(
      { s },
      { agents: { worker: { timeout: 300_000 } } },
    );
    const session = await openSession(client);
    const call = sendLater(client, session, "hang");
    await untilActive(model, 1);
    await clock.advanceAsync(290_000);
    assert.ok(!client.messages.some(isResponseTo(call)));
    await clock.advanceAsync(11_000);
    assert.equal((await resultAt(client, call)).code, "limitReached");
  });

  it("tells of its progress at most ten times a second", async () => {
    const { client, clock } = await openWithClock();
    const session = await openSession(client);
    const call = sendLater(client, session, "lines 500", { progressToken: "p" });
    await resultAt(client, call);
    await clock.advanceAsync(1000);
    const told = client.messages.filter(({ method }) => method === "notifications/progress");
    assert.ok(told.length >= 1 && told.length <= 10, String(told.length));
    assert.equal(told[0]?.params?.["progressToken"], "p");
    assert.equal(told[0]?.params?.["message"], "worker has started");
  });

  const details = {
    full: ["thinking", "tool_call", "tool_response", "agent_message"],
    summary: ["tool_call", "tool_response"],
    none: [],
  } as const;
  for (const [events, types] of Object.entries(details)) {
    it(`tells in its answer what has happened, as events = "${events}" says`, async () => {
      const options = { events: events as keyof typeof details };
      const { client } = await open({ s: new ScriptedServer("t") }, { options });
      const { value } = await callAgents(client, "invoke_agent", {
        agent: "worker",
        message: "call s__t",
      });
      assert.deepEqual(
        (value["events"] as { type: string }[]).map(({ type }) => type),
        types,
      );
      assert.equal((value["metadata"] as Record<string, unknown>)["tool_calls"], 1);
    });
  }

  it("tells of two hundred events at most, and how many are missing", async () => {
    const s = new ScriptedServer("t");
    const agents = { worker: { maxToolCalls: 1000, maxTurns: 100 } };
    const { client } = await open({ s }, { agents });
    const { value, text } = await callAgents(client, "invoke_agent", {
      agent: "worker",
      message: 'call s__t {"at":"#"} times 150',
    });
    const events = value["events"] as { type: string; count?: number }[];
    assert.equal(events.length, 201, text);
    // 1 thought, 150 calls, 150 results and the answer.
    assert.deepEqual(events.at(-1), { type: "omitted", count: 102 });
    assert.ok(JSON.stringify(events).length < 64 * 1024);
  });

  it("has one of sixteen places, waits for one, and is refused if too many wait", async () => {
    const options = { maxSessionsPerClient: 20, maxSessions: 1000 };
    const { join, model } = await open({}, { options });
    const first = await join();
    const others = await Promise.all(
      [34, 33, 33].map(async (runs) => [await join(), runs] as const),
    );
    const begin = (peer: Peer, id: string): void => {
      const args = { agent: "worker", message: "hang" };
      const _meta = { progressToken: id };
      peer.send(callRequest(id, "agents__invoke_agent", args, { _meta }));
    };
    for (let at = 0; at < 16; at++) begin(first, `f${at}`);
    await untilActive(model, 16);
    for (const [peer, runs] of others) {
      for (let at = 0; at < runs; at++) begin(peer, `w${at}`);
      const isQueued = ({ params }: Json): boolean => params?.["message"] === "queued";
      await peer.until(() => peer.messages.filter(isQueued).length === runs);
    }
    const refused = await callAgents(first, "invoke_agent", { agent: "worker", message: "hi" });
    assert.equal(refused.code, "hubBusy");
    // Whose client leaves makes place.
    await first.transport.close();
    await untilActive(model, 16);
    for (const [peer] of others) await peer.transport.close();
    await untilActive(model, 0);
    assert.equal(model.maxActive, 16);
  });

  it("lets the servers of its tools ask the client, and a person allow its calls", async () => {
    const s = new ScriptedServer("t");
    s.onCall = ({ id }) => {
      s.newestPeer?.send({
        jsonrpc: "2.0",
        id: "q",
        method: "elicitation/create",
        params: { message: "Sure?", requestedSchema: { type: "object", properties: {} } },
      });
      s.newestPeer!.onMessage = (answer) => {
        if (answer.id !== "q") return;
        const text = JSON.stringify((answer.result as { action?: unknown }).action);
        s.newestPeer?.send({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text }] } });
      };
      return undefined;
    };
    const capabilities = { elicitation: {} };
    const { client } = await open(
      { s },
      { capabilities, agents: { worker: { approval: "always" } } },
    );
    const session = await openSession(client);
    const call = sendLater(client, session, "call s__t");
    const isForm = ({ method }: Json): boolean => method === "elicitation/create";
    const approval = await client.find(isForm);
    assert.match(String(approval.params?.["message"]), /Agent "worker".* s__t/s);
    assert.equal(s.messagesOf("tools/call").length, 0);
    const content = { decision: "once" };
    client.send({ jsonrpc: "2.0", id: approval.id, result: { action: "accept", content } });
    const question = await client.find((form) => isForm(form) && form.id !== approval.id);
    assert.match(String(question.params?.["message"]), /Sure\?/);
    client.send({ jsonrpc: "2.0", id: question.id, result: { action: "decline" } });
    assert.equal((await resultAt(client, call)).value["response"], 'result: "decline"');
  });

  it("asks a client of the modern era by input_required", async () => {
    const s = new ScriptedServer("t");
    const { connect } = await open({ s }, { agents: { worker: { approval: "always" } } });
    const client = connect();
    const capabilities = { elicitation: { form: {} } };
    const params = {
      name: "agents__invoke_agent",
      arguments: { agent: "worker", message: "call s__t" },
    };
    const first = inputRoundOf(await sendModernRequest(client, "tools/call", params, capabilities));
    assert.equal(first.keys.length, 1, JSON.stringify(first));
    const [key = ""] = first.keys;
    const inputResponses = { [key]: { action: "accept", content: { decision: "once" } } };
    const retry = { ...params, inputResponses, requestState: first.state };
    const done = agentResultOf(await sendModernRequest(client, "tools/call", retry, capabilities));
    assert.match(String(done.value["response"]), /^result: /);
    assert.equal(s.messagesOf("tools/call").length, 1);
  });

  const answerOf = (...content: object[]) => ({ role: "assistant", model: "m", content });
  const USE = answerOf({ type: "tool_use", id: "u", name: "s__t", input: { x: 1 } });
  const DONE = answerOf({ type: "text", text: "All is well." });
  const SAMPLING = { sampling: { tools: {} } };
  const isSampling = ({ method }: Json): boolean => method === "sampling/createMessage";
  const sampler = { worker: { model: "sampling" } };

  it("asks the model of the client that calls, if it is a legacy one, and as long as it takes", async () => {
    const s = new ScriptedServer("t");
    const agents = { worker: { model: "sampling", timeout: 5000 } };
    const { client, clock } = await openWithClock({ s }, { agents, capabilities: SAMPLING });
    const session = await openSession(client);
    const call = sendLater(client, session, "Look.");
    const first = await client.find(isSampling);
    const { tools, systemPrompt } = first.params ?? {};
    assert.equal(systemPrompt, "Obey.");
    assert.ok((tools as { name: string }[]).some(({ name }) => name === "s__t"));
    await clock.advanceAsync(60_000);
    client.send({ jsonrpc: "2.0", id: first.id, result: USE });
    const second = await client.find((one) => isSampling(one) && one.id !== first.id);
    assert.match(JSON.stringify(second.params?.["messages"]), /"tool_result","toolUseId":"u"/);
    assert.deepEqual(s.messagesOf("tools/call")[0]?.params?.["arguments"], { x: 1 });
    await clock.advanceAsync(60_000);
    client.send({ jsonrpc: "2.0", id: second.id, result: DONE });
    assert.equal((await resultAt(client, call)).value["response"], "All is well.");
  });

  it("asks the model of a modern client by input_required", async () => {
    const s = new ScriptedServer("t");
    const { connect } = await open({ s }, { agents: sampler });
    const client = connect();
    const args = { agent: "worker", message: "Look." };
    const params = { name: "agents__invoke_agent", arguments: args };
    let answer = await sendModernRequest(client, "tools/call", params, SAMPLING);
    for (const said of [USE, DONE]) {
      const { keys, requests, state } = inputRoundOf(answer);
      const [key = ""] = keys;
      assert.equal(requests[key]?.method, "sampling/createMessage", JSON.stringify(answer));
      const retry = { ...params, inputResponses: { [key]: said }, requestState: state };
      answer = await sendModernRequest(client, "tools/call", retry, SAMPLING);
    }
    assert.equal(agentResultOf(answer).value["response"], "All is well.");
    assert.equal(s.messagesOf("tools/call").length, 1);
  });

  it("says what to do to a client whose model it cannot ask", async () => {
    const { client } = await open({}, { agents: sampler, capabilities: { sampling: {} } });
    const args = { agent: "worker", message: "Look." };
    const { code, text } = await callAgents(client, "invoke_agent", args);
    assert.deepEqual(
      [code, /sampling\.tools.*\[models\.sampling\]/s.test(text)],
      ["modelFailed", true],
    );
  });

  it("asks the model of a client ten times at most", async () => {
    const s = new ScriptedServer("t");
    const { client } = await open({ s }, { agents: sampler, capabilities: SAMPLING });
    let asked = 0;
    client.onMessage = (message) => {
      if (!isSampling(message)) return;
      const input = { n: ++asked };
      const use = answerOf({ type: "tool_use", id: `u${asked}`, name: "s__t", input });
      client.send({ jsonrpc: "2.0", id: message.id, result: use });
    };
    const args = { agent: "worker", message: "Look." };
    const { code } = await callAgents(client, "invoke_agent", args);
    assert.deepEqual([code, asked], ["limitReached", 10]);
  });

  it("has its time stand still while a person is asked", async () => {
    const agents = { worker: { approval: "always", timeout: 5000 } } as const;
    const capabilities = { elicitation: {} };
    const { client, clock } = await openWithClock(
      { s: new ScriptedServer("t") },
      { agents, capabilities },
    );
    const session = await openSession(client);
    const call = sendLater(client, session, "call s__t");
    const form = await client.find(({ method }) => method === "elicitation/create");
    await clock.advanceAsync(60_000);
    const content = { decision: "once" };
    client.send({ jsonrpc: "2.0", id: form.id, result: { action: "accept", content } });
    assert.match(String((await resultAt(client, call)).value["response"]), /^result: /);
  });

  it("uses no agents unless it may, and never the one that is at work", async () => {
    const inner = '{"agent":"AGENT","message":"hi"}';
    const agents = { worker: {}, boss: { allowAgents: true } };
    const { client } = await open({}, { agents });
    const ask = async (agent: string, target: string) => {
      const message = `call agents__invoke_agent ${inner.replace("AGENT", target)}`;
      const { value } = await callAgents(client, "invoke_agent", { agent, message });
      return String(value["response"]);
    };
    assert.match(await ask("worker", "boss"), /There is no tool "agents__invoke_agent"/);
    assert.match(await ask("boss", "worker"), /^result: hi \(1\)$/);
    assert.match(await ask("boss", "boss"), /already at work/);
  });

  it("is text alone for a model, and has what the agent did for its client", async () => {
    const { client } = await open({}, { options: { offer: "invoke" } });
    const { text, value } = await callAgents(client, "invoke_agent", {
      agent: "worker",
      message: "hi",
    });
    assert.equal(text, value["response"]);
    assert.ok(Array.isArray(value["events"]) && value["events"].length > 0);
  });

  it("inside of another run waits for no place, and is refused if hubs go on calling each other", async () => {
    const agents = { worker: {}, boss: { allowAgents: true } };
    const { client, model } = await open({}, { agents });
    const message = `call agents__invoke_agent {"agent":"worker","message":"hi"}`;
    const runs = Array.from({ length: 40 }, () =>
      callAgents(client, "invoke_agent", { agent: "boss", message }),
    );
    for (const { value } of await Promise.all(runs))
      assert.match(String(value["response"]), /^result: hi \(1\)$/);
    assert.ok(model.maxActive <= 16);
    const _meta = { "toolmux/chain": Array.from({ length: 8 }, (_, at) => `hub-${at}`) };
    const args = { agent: "worker", message: "hi" };
    assert.equal((await callAgents(client, "invoke_agent", args, { _meta })).code, "agentDepth");
  });

  it("has only the tools that its client sees if the agent respects modes", async () => {
    const agents = { worker: {}, modest: { respectMode: true } };
    const s = new ScriptedServer("t");
    const mode = {
      name: "few",
      title: "Few",
      tools: { servers: ["agents"] },
      problems: [],
    } as const;
    const { hub } = await open({ s }, { agents, modes: [mode] });
    hub.setMode("few");
    const client = await connectTo(hub);
    const isRefused = async (agent: string): Promise<boolean> => {
      const { value } = await callAgents(client, "invoke_agent", { agent, message: "call s__t" });
      return String(value["response"]).includes("There is no tool");
    };
    assert.deepEqual([await isRefused("worker"), await isRefused("modest")], [false, true]);
  });
});

/** Waits until a timer of so many ms is set, and lets it fire. */
async function fireTimer(clock: VirtualClock, ms: number): Promise<void> {
  for (let at = 0; at < 100_000 && !clock.pendingDelays.includes(ms); at++) await turn();
  await clock.advanceAsync(ms);
}

/** How a client of each era begins a run as a task, is told of it, and gets its result. */
const TASK_CLIENTS = {
  legacy: {
    ask: (client: Peer, method: string, params: object) => sendRequest(client, method, params),
    begin: async (client: Peer, message: string, clock: VirtualClock) => {
      await clock.advanceAsync(0);
      const args = { agent: "worker", message };
      const params = { name: "agents__invoke_agent", arguments: args, task: {} };
      const { result } = await sendRequest(client, "tools/call", params);
      return (result?.["task"] as { taskId: string }).taskId;
    },
    result: (client: Peer, taskId: string) => sendRequest(client, "tasks/result", { taskId }),
  },
  modern: {
    ask: (client: Peer, method: string, params: Readonly<Record<string, unknown>>) =>
      sendModernRequest(client, method, params, TASKS_DECLARED),
    begin: async (client: Peer, message: string, clock: VirtualClock) => {
      const args = { agent: "worker", message };
      const params = { name: "agents__invoke_agent", arguments: args };
      const answer = sendModernRequest(client, "tools/call", params, TASKS_DECLARED);
      await fireTimer(clock, 5000);
      const { result } = await answer;
      assert.equal(result?.["resultType"], "task");
      return String(result["taskId"]);
    },
    result: async (client: Peer, taskId: string) => {
      const { result } = await requestTask(client, "get", taskId);
      return { result: result?.["result"] } as Json;
    },
  },
} as const;

describe("a run that is a task", () => {
  /** A hub with a tool that answers when it is told to, and a client that knows tasks. */
  async function openTasks(era: keyof typeof TASK_CLIENTS) {
    const s = new ScriptedServer("t");
    s.onCall = () => undefined;
    const setup = await openWithClock({ s });
    /** The server has the call of the run. */
    const called = async () => ({ ...(await messageTo(s)), peer: s.newestPeer });
    const client = era === "legacy" ? setup.client : setup.connect();
    const answer = async (text: string, call?: Awaited<ReturnType<typeof called>>) => {
      const { id, peer } = call ?? (await called());
      peer?.send({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text }] } });
      await setup.clock.advanceAsync(200);
    };
    return { ...setup, ...TASK_CLIENTS[era], s, client, called, answer };
  }

  for (const era of ["legacy", "modern"] as const) {
    it(`ends with the result of the plain call, for its own client alone (${era})`, async () => {
      const { client, clock, begin, ask, result, answer, connect, join } = await openTasks(era);
      const taskId = await begin(client, "call s__t", clock);
      const working = await ask(client, "tasks/get", { taskId });
      assert.equal(working.result?.["status"], "working");
      const other = era === "legacy" ? await join() : connect();
      for (const method of ["tasks/get", "tasks/cancel"])
        assert.equal((await ask(other, method, { taskId })).error?.code, -32602);
      await answer("done");
      const { value } = agentResultOf(await result(client, taskId));
      assert.equal(value["response"], "result: done");
      assert.equal((await ask(client, "tasks/get", { taskId })).result?.["status"], "completed");
    });

    it(`is cancelled with the task, and so is the call of its tool (${era})`, async () => {
      const { client, clock, begin, ask, called, s, model, hub } = await openTasks(era);
      const taskId = await begin(client, "call s__t", clock);
      await called();
      await ask(client, "tasks/cancel", { taskId });
      await messageTo(s, "notifications/cancelled");
      await untilActive(model, 0);
      assert.equal((await ask(client, "tasks/get", { taskId })).result?.["status"], "cancelled");
      assert.deepEqual(hub.snapshot().calls, []);
    });

    it(`ends with its client (${era})`, async () => {
      const { client, clock, begin, called, s, model, team } = await openTasks(era);
      await begin(client, "call s__t", clock);
      await called();
      await client.transport.close();
      await messageTo(s, "notifications/cancelled");
      await untilActive(model, 0);
      for (let at = 0; at < 100 && team.openCount > 0; at++) await turn();
      assert.equal(team.openCount, 0);
    });
  }

  it("is told to clients of both eras at a time", async () => {
    const { client, clock, connect, called, answer } = await openTasks("legacy");
    const { begin, result } = TASK_CLIENTS.legacy;
    const taskId = await begin(client, "call s__t", clock);
    const final = result(client, taskId);
    const call = await called();
    await sendModernRequest(connect(), "tools/list");
    await answer("done", call);
    assert.equal(agentResultOf(await final).value["response"], "result: done");
  });

  it("says what the agent does, to a subscriber too, and is forgotten after some time", async () => {
    const { client, clock, begin, called, answer, ask } = await openTasks("modern");
    const taskId = await begin(client, "call s__t", clock);
    await called();
    assert.match(
      String((await ask(client, "tasks/get", { taskId })).result?.["statusMessage"]),
      /s__t/,
    );
    const notifications = { taskIds: [taskId] };
    client.send(modernRequest("l", "subscriptions/listen", { notifications }, TASKS_DECLARED));
    await client.find(({ method }) => method === "notifications/subscriptions/acknowledged");
    await answer("done");
    const last = client.messages.findLast(({ method }) => method === "notifications/tasks");
    assert.deepEqual([last?.params?.["taskId"], last?.params?.["status"]], [taskId, "completed"]);
    await clock.advanceAsync(11 * 60_000);
    assert.equal((await ask(client, "tasks/get", { taskId })).error?.code, -32602);
  });

  it("needs the client's input while a server asks (legacy), and says to which task that belongs", async () => {
    const { clock, join, s, called, answer, begin, ask, result } = await openTasks("legacy");
    const client = await join({ elicitation: { form: {} } });
    const taskId = await begin(client, "call s__t", clock);
    await called();
    const statusOf = async (): Promise<Json["result"]> =>
      (await ask(client, "tasks/get", { taskId })).result;
    const listed = async (): Promise<unknown> => {
      const { tasks } = (await sendRequest(client, "tasks/list")).result ?? {};
      return (tasks as { status: string }[]).map(({ status }) => status);
    };
    const RELATED = { "io.modelcontextprotocol/related-task": { taskId } };
    for (const [id, meta] of [
      ["e1", undefined],
      ["e2", { n: 1 }],
    ] as const) {
      assert.deepEqual(await listed(), ["working"]);
      const params = {
        message: "Sure?",
        requestedSchema: { type: "object", properties: {} },
        ...(meta && { _meta: meta }),
      };
      s.newestPeer?.send({ jsonrpc: "2.0", id, method: "elicitation/create", params });
      const isAsked = ({ method, params: own }: Json): boolean =>
        method === "elicitation/create" &&
        (own?.["_meta"] as { n?: number } | undefined)?.n === meta?.n;
      const asked = await client.find(isAsked);
      assert.deepEqual(asked.params?.["_meta"], { ...meta, ...RELATED });
      const waiting = await statusOf();
      assert.equal(waiting?.["status"], "input_required");
      assert.match(String(waiting["statusMessage"]), /elicitation\/create/);
      assert.deepEqual(await listed(), ["input_required"]);
      const declined = { action: "decline", _meta: RELATED };
      client.send({ jsonrpc: "2.0", id: asked.id, result: declined });
      assert.deepEqual((await s.newestPeer?.find(isResponseTo(id)))?.result, { action: "decline" });
      assert.equal((await statusOf())?.["status"], "working");
    }
    const told = client.messages.filter(({ method }) => method === "notifications/tasks/status");
    assert.deepEqual(
      told.map(({ params }) => [params?.["taskId"], params?.["status"]]),
      ["input_required", "working", "input_required", "working"].map((status) => [taskId, status]),
    );
    await answer("done");
    assert.equal(agentResultOf(await result(client, taskId)).value["response"], "result: done");
    assert.equal((await statusOf())?.["status"], "completed");
  });

  it("asks its client what a server asks, and goes on with the answer", async () => {
    const { clock, connect, s, called, answer } = await openTasks("modern");
    const declared = { ...TASKS_DECLARED, elicitation: { form: {} } };
    const client = connect();
    const ask = (method: string, params: Readonly<Record<string, unknown>>) =>
      sendModernRequest(client, method, params, declared);
    const args = { agent: "worker", message: "call s__t" };
    const call = ask("tools/call", { name: "agents__invoke_agent", arguments: args });
    await fireTimer(clock, 5000);
    const taskId = String((await call).result?.["taskId"]);
    await called();
    const requestedSchema = { type: "object", properties: {} };
    const params = { message: "Sure?", requestedSchema };
    s.newestPeer?.send({ jsonrpc: "2.0", id: "e", method: "elicitation/create", params });
    await clock.advanceAsync(10);
    const { result } = await ask("tasks/get", { taskId });
    assert.equal(result?.["status"], "input_required");
    const [key = ""] = Object.keys(result["inputRequests"] as object);
    await ask("tasks/update", { taskId, inputResponses: { [key]: { action: "decline" } } });
    const answered = await s.newestPeer?.find(isResponseTo("e"));
    assert.deepEqual(answered?.result, { action: "decline" });
    assert.equal((await ask("tasks/get", { taskId })).result?.["status"], "working");
    await answer("done");
    assert.equal((await ask("tasks/get", { taskId })).result?.["status"], "completed");
  });

  it("waits for the answer of its client if a person was asked before", async () => {
    const s = new ScriptedServer("t");
    const { connect, clock, model } = await openWithClock(
      { s },
      { agents: { worker: {}, ask: { approval: "always" } } },
    );
    const client = connect();
    const declared = { ...TASKS_DECLARED, elicitation: { form: {} } };
    s.onCall = () => undefined;
    const args = { agent: "ask", message: "call s__t" };
    const params = { name: "agents__invoke_agent", arguments: args };
    await sendModernRequest(client, "tools/list", {}, declared);
    const call = sendModernRequest(client, "tools/call", params, declared);
    // The hub collects questions for 5 ms.
    await fireTimer(clock, 5);
    const { keys, state } = inputRoundOf(await call);
    await clock.advanceAsync(20_000);
    const [key = ""] = keys;
    const inputResponses = { [key]: { action: "accept", content: { decision: "once" } } };
    const retry = { ...params, inputResponses, requestState: state };
    const { result } = await sendModernRequest(client, "tools/call", retry, declared);
    assert.equal(result?.["resultType"], "task");
    await requestTask(client, "cancel", result["taskId"]);
    await untilActive(model, 0);
  });

  it("is none if it ends soon, or if its client does not know tasks", async () => {
    const { client, clock, connect, answer } = await openTasks("modern");
    const params = { name: "agents__invoke_agent", arguments: { agent: "worker", message: "hi" } };
    const quick = await sendModernRequest(client, "tools/call", params, TASKS_DECLARED);
    assert.equal(agentResultOf(quick).value["response"], "hi (1)");
    const args = { agent: "worker", message: "call s__t" };
    const slow = callAgentsModern(connect(), "invoke_agent", args);
    await fireTimer(clock, 5000);
    await answer("done");
    assert.equal((await slow).value["response"], "result: done");
  });

  it("is offered by the hub to clients of the modern era", async () => {
    const { client } = await openTasks("modern");
    await sendModernRequest(client, "tools/list");
    const { result } = await sendModernRequest(client, "server/discover");
    const { extensions } = result?.["capabilities"] as { extensions?: object };
    assert.ok(extensions !== undefined && TASKS_EXTENSION_ID in extensions);
  });
});

describe("many clients with many sessions", () => {
  it("get nothing of each other, and leave nothing behind", { timeout: 120_000 }, async () => {
    const s = new ScriptedServer("t");
    s.onCall = ({ params }) => {
      const { who } = params?.["arguments"] as { who: string };
      return `"result":{"content":[{"type":"text","text":${JSON.stringify(who)}}]}`;
    };
    const { team, model, hub, events } = await open({ s });
    const one = async (): Promise<void> => {
      const left = new AbortController();
      const { serverInfo } = hub;
      const accept = (transport: Transport, signal: AbortSignal) => hub.accept(transport, signal);
      const client = await HubClient.connect({ serverInfo, accept }, left.signal);
      const call = async (tool: string, args: object) => {
        const { bytes } = await client.callTool(`agents__${tool}`, JSON.stringify(args));
        return agentResultOf(JSON.parse(Buffer.from(bytes).toString()) as Json);
      };
      const converse = async (): Promise<void> => {
        const { value: created } = await call("create_agent_session", { agent: "worker" });
        const { agent_session_id } = created;
        const send = async (at: number): Promise<void> => {
          const whoOf = (n: unknown): string => `${String(agent_session_id)}/${at}/${String(n)}`;
          const message = `call s__t ${JSON.stringify({ who: whoOf("#") })} times 3`;
          const { value, text } = await call("send_message", { agent_session_id, message });
          const told = value["events"] as { arguments?: string }[];
          const wanted = [0, 1, 2].map((n) => JSON.stringify({ who: whoOf(n) }));
          const said = told.flatMap((event) => event.arguments ?? []);
          assert.deepEqual([said, value["response"]], [wanted, `result: ${whoOf(2)}`], text);
        };
        await Promise.all(Array.from({ length: 9 }, (_, at) => send(at)));
      };
      await Promise.all(Array.from({ length: 8 }, converse));
      await client.close();
    };
    const used: number[] = [];
    // The first round also fills what is kept for good, such as the usage of tools.
    for (const _ of [1, 2]) {
      await Promise.all(Array.from({ length: 5 }, one));
      for (let at = 0; at < 100 && team.openCount > 0; at++) await turn();
      assert.deepEqual([team.openCount, model.active, hub.snapshot().calls], [0, 0, []]);
      assert.equal(s.messagesOf("tools/call").length, 5 * 8 * 9 * 3);
      for (const { received } of s.peers) received.length = 0;
      events.length = 0;
      used.push(measureMemory());
    }
    assert.ok(model.maxActive <= 16);
    const [first = 0, second = 0] = used;
    assert.ok(second < first * (collectsGarbage ? 1.1 : 2), `${first} bytes, then ${second}`);
  });
});

describe("the tools that clients are offered", () => {
  const definitions = (offer: "invoke" | "sessions" | "all") =>
    toolDefinitions({ offer, expose: ["worker"], inlineConfig: false }, () => "Works.");

  it("are few unless more are wanted, and those that are not offered are unknown", async () => {
    assert.deepEqual(
      definitions("invoke").map(({ name }) => name),
      ["invoke_agent", "list_agents", "worker"],
    );
    const more = definitions("sessions").map(({ name }) => name);
    assert.ok(more.includes("send_message") && !more.includes("pull_agent"));
    assert.ok(definitions("all").some(({ name }) => name === "pull_agent"));
    const { client } = await open({}, { options: { offer: "invoke" } });
    const listed = await sendRequest(client, "tools/list");
    const names = (listed.result?.["tools"] as { name: string }[]).map(({ name }) => name);
    assert.deepEqual(names, ["agents__invoke_agent", "agents__list_agents"]);
    const params = { name: "agents__list_agent_sessions", arguments: {} };
    const { error } = await sendRequest(client, "tools/call", params);
    assert.equal(error?.["code"], -32602);
  });

  it("cost a model at most 600 tokens by default", () => {
    const bytes = JSON.stringify(definitions("invoke").slice(0, 2)).length;
    assert.ok(bytes / 4 <= 600, String(bytes / 4));
  });
});
