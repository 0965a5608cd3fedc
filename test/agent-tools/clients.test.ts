import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { clientPrincipal, ConversationStore } from "../../src/agent/conversation-store.ts";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import type { AgentSpec } from "../../src/manifest/agents.ts";
import { HttpServer, type HttpServerSettings } from "../../src/frontend/http/server.ts";
import { ALL_SERVERS } from "../../src/upstream/profile.ts";
import {
  type AgentHubSettings,
  type AgentResult,
  agentResultOf,
  callAgents,
  setUpAgentHub,
} from "../fixtures/agent-hub.ts";
import { HttpTestClient } from "../fixtures/http-client.ts";
import { memoryTransportPair } from "../../src/transport/memory.ts";
import {
  callRequest,
  initialize,
  INITIALIZE_REQUEST,
  type Json,
  Peer,
} from "../fixtures/memory-hub.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { MODERN_VERSION, modernRequest } from "../fixtures/modern-requests.ts";

const NOT_FOUND = "Agent session not found.";

type CallTool = (tool: string, args?: object) => Promise<AgentResult>;

/** The last message of an answer, which is JSON or an event stream. */
async function messageOf(response: Response): Promise<Json> {
  const text = await response.text();
  const line = text.startsWith("{")
    ? text
    : text.split("\n").findLast((row) => row.startsWith("data: {"));
  assert.ok(line, `${response.status} ${text}`);
  return JSON.parse(line.replace(/^data: /, "")) as Json;
}

/** A hub with agents over HTTP. */
async function open(
  server: Partial<HttpServerSettings>,
  options: AgentHubSettings["options"] = {},
  spec: Partial<AgentSpec> = {},
  clock: Clock = systemClock,
) {
  const setup = await setUpAgentHub({}, { options, agents: { worker: spec }, clock });
  const settings = { hostname: "127.0.0.1", token: undefined, maxMessage: 1024 * 1024, ...server };
  const http = new HttpServer(setup.hub, settings);
  const modern = (token?: string): CallTool => {
    const client = new HttpTestClient(http);
    return async (tool, args = {}) => {
      const name = `agents__${tool}`;
      const headers = {
        "MCP-Protocol-Version": MODERN_VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
        ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      };
      const message = modernRequest(1, "tools/call", { name, arguments: args });
      return agentResultOf(await messageOf(await client.post(message, headers)));
    };
  };
  const legacy = async () => {
    const client = new HttpTestClient(http);
    await client.initialize();
    const call: CallTool = async (tool, args = {}) =>
      agentResultOf(await messageOf(await client.post(callRequest(1, `agents__${tool}`, args))));
    return { call, client };
  };
  return { ...setup, http, modern, legacy };
}

async function createWith(call: CallTool): Promise<string> {
  const { value, text } = await call("create_agent_session", { agent: "worker" });
  assert.equal(typeof value["agent_session_id"], "string", text);
  return String(value["agent_session_id"]);
}

const USES: readonly (readonly [tool: string, more: object])[] = [
  ["send_message", { message: "hi" }],
  ["get_agent_session_info", {}],
  ["get_agent_session_history", {}],
  ["close_agent_session", {}],
];

/** Asserts that a client has nothing of a session. */
async function assertHidden(call: CallTool, agent_session_id: string): Promise<void> {
  for (const [tool, more] of USES) {
    const { code, text } = await call(tool, { agent_session_id, ...more });
    assert.deepEqual([code, text], ["sessionNotFound", NOT_FOUND]);
  }
  assert.deepEqual((await call("list_agent_sessions")).value["sessions"], []);
}

const holder = (name: string, token: string) => ({
  name,
  token,
  subset: ALL_SERVERS,
  mode: undefined,
  maxSessions: undefined,
});

describe("sessions of agents over HTTP", () => {
  it("are those of one MCP session each, and end with it", async () => {
    const { legacy, team } = await open({});
    const [one, two] = [await legacy(), await legacy()];
    const session = await createWith(one.call);
    await assertHidden(two.call, session);
    const said = await one.call("send_message", { agent_session_id: session, message: "hi" });
    assert.equal(said.value["response"], "hi (1)");
    assert.equal((await one.client.request("DELETE", undefined)).status, 204);
    assert.equal(team.openCount, 0);
  });

  it("are those of one token each, for clients of the modern era", async () => {
    const { modern, team, http } = await open({ clients: [holder("a", "t1"), holder("b", "t2")] });
    const session = await createWith(modern("t1"));
    await assertHidden(modern("t2"), session);
    const args = { agent_session_id: session, message: "hi" };
    assert.equal((await modern("t1")("send_message", args)).value["response"], "hi (1)");
    // A removed token takes its sessions with it.
    http.setClients([holder("b", "t2")]);
    assert.equal(team.openCount, 0);
  });

  it("are those of all that bear the same token", async () => {
    const { modern } = await open({ token: "shared" });
    const session = await createWith(modern("shared"));
    const { value } = await modern("shared")("list_agent_sessions");
    assert.equal((value["sessions"] as unknown[]).length, 1);
    assert.ok(session);
  });

  it("need a token in the modern era: without one, no tool is of use", async () => {
    const { modern } = await open({});
    for (const [tool, args] of [
      ["create_agent_session", { agent: "worker" }],
      ["invoke_agent", { agent: "worker", message: "hi" }],
      ["list_agents", {}],
      ...USES,
    ] as const)
      assert.equal((await modern()(tool, args)).code, "notIdentified");
  });

  it("belong to whoever knows their ids, if anonymous clients are allowed", async () => {
    const { modern } = await open({}, { anonymous: true });
    const session = await createWith(modern());
    assert.equal(Buffer.from(session, "base64url").length, 32);
    const args = { agent_session_id: session, message: "hi" };
    assert.equal((await modern()("send_message", args)).value["response"], "hi (1)");
    const { value } = await modern()("list_agent_sessions");
    assert.deepEqual([value["sessions"], typeof value["note"]], [[], "string"]);
    const wrong = await modern()("send_message", { ...args, agent_session_id: `${session}A` });
    assert.equal(wrong.code, "sessionNotFound");
  });
});

describe("conversations of clients that are kept", () => {
  /** Opens hubs, one after the other, that have the same state folder. */
  async function inFolder(
    work: (
      openHub: (
        spec?: Partial<AgentSpec>,
        options?: object,
        clock?: Clock,
      ) => ReturnType<typeof open>,
    ) => Promise<void>,
  ): Promise<void> {
    const stateFolder = await mkdtemp(join(tmpdir(), "kept-"));
    const tokens = new Map([
      ["a", "t1"],
      ["b", "t2"],
    ]);
    const store = new ConversationStore({ stateFolder, mask: (text) => text, warn: assert.fail });
    try {
      await work(async (spec = { persist: true }, options = {}, clock = systemClock) => {
        const clients = [...tokens].map(([name, token]) => holder(name, token));
        const setup = await open({ clients, token: undefined }, options, spec, clock);
        setup.team.kept = async (name) => {
          const token = tokens.get(name);
          if (token === undefined) return undefined;
          return { store, principal: await clientPrincipal(stateFolder, name, token) };
        };
        return setup;
      });
    } finally {
      await rm(stateFolder, { recursive: true, force: true });
    }
  }

  it("go on in another hub for the same token, and are hidden from another one", () =>
    inFolder(async (openHub) => {
      const first = await openHub();
      const session = await createWith(first.modern("t1"));
      const args = { agent_session_id: session, message: "hi" };
      assert.equal((await first.modern("t1")("send_message", args)).value["response"], "hi (1)");
      const second = await openHub();
      await assertHidden(second.modern("t2"), session);
      const listed = (await second.modern("t1")("list_agent_sessions")).value["sessions"];
      const [one] = listed as Record<string, unknown>[];
      assert.deepEqual([one?.["agent_session_id"], one?.["state"]], [session, "closed"]);
      assert.equal((await second.modern("t1")("send_message", args)).value["response"], "hi (2)");
      const info = await second.modern("t1")("get_agent_session_info", {
        agent_session_id: session,
      });
      assert.deepEqual([info.value["message_count"], info.value["tokens_used"]], [4, 30]);
      // The agent is opened once, however many ask for the conversation at once.
      const third = await openHub();
      const asked = ["get_agent_session_info", "get_agent_session_history", "send_message"];
      await Promise.all(asked.map((tool) => third.modern("t1")(tool, args)));
      assert.equal(third.team.openCount, 1);
    }));

  it("are closed when they are not used for long, and not forgotten; closing one forgets it", () =>
    inFolder(async (openHub) => {
      const { modern, team, http } = await openHub({ persist: true });
      const session = await createWith(modern("t1"));
      const args = { agent_session_id: session, message: "hi" };
      await modern("t1")("send_message", args);
      // Without its token, the client has left.
      http.setClients([holder("b", "t2")]);
      assert.equal(team.openCount, 0);
      http.setClients([holder("a", "t1"), holder("b", "t2")]);
      assert.equal((await modern("t1")("send_message", args)).value["response"], "hi (2)");
      const closed = await modern("t1")("close_agent_session", { agent_session_id: session });
      assert.deepEqual(closed.value, { success: true });
      await assertHidden(modern("t1"), session);
    }));

  it("are forgotten in every hub that has them open when one forgets them", () =>
    inFolder(async (openHub) => {
      const [first, second] = [await openHub(), await openHub()];
      const uses = [
        ["send_message", { message: "hi" }],
        ["get_agent_session_info", {}],
        ["get_agent_session_history", {}],
        ["transfer_agent_session", { target_agent: "worker" }],
        ["close_agent_session", {}],
        ["list_agent_sessions", {}],
      ] as const;
      for (const [tool, more] of uses) {
        const session = await createWith(first.modern("t1"));
        const args = { agent_session_id: session, message: "hi" };
        for (const { modern } of [first, second]) await modern("t1")("send_message", args);
        await first.modern("t1")("close_agent_session", { agent_session_id: session });
        const { code, value } = await second.modern("t1")(tool, { ...args, ...more });
        if (tool === "list_agent_sessions") assert.deepEqual(value["sessions"], []);
        else assert.equal(code, "sessionNotFound");
        assert.equal(second.team.openCount, 0, tool);
      }
    }));

  it("are closed after sessionTimeout, and opened by their next use", () =>
    inFolder(async (openHub) => {
      const clock = new VirtualClock();
      const { modern, team } = await openHub({ persist: true }, { sessionTimeout: 60_000 }, clock);
      const session = await createWith(modern("t1"));
      const args = { agent_session_id: session, message: "hi" };
      await modern("t1")("send_message", args);
      await clock.advanceAsync(61_000);
      assert.equal(team.openCount, 0);
      assert.equal((await modern("t1")("send_message", args)).value["response"], "hi (2)");
      assert.equal(team.openCount, 1);
    }));

  it("are none of agents without persist, and none of agents that have it no more", () =>
    inFolder(async (openHub) => {
      const first = await openHub({});
      const unkept = await createWith(first.modern("t1"));
      const kept = await openHub();
      const session = await createWith(kept.modern("t1"));
      const again = await openHub({});
      for (const agent_session_id of [unkept, session]) {
        const info = await again.modern("t1")("get_agent_session_info", { agent_session_id });
        assert.deepEqual([info.code, info.text], ["sessionNotFound", NOT_FOUND]);
      }
      assert.equal(again.team.openCount, 0);
    }));

  it("are none of clients without a token, whatever the agent says", () =>
    inFolder(async (openHub) => {
      const { hub, team } = await openHub();
      team.kept = () => assert.fail("a client without a name was looked for");
      const [ours, theirs] = memoryTransportPair();
      void hub.accept(ours, new AbortController().signal, { kind: "stdio" });
      const client = new Peer(theirs);
      await initialize(client);
      const { value } = await callAgents(client, "create_agent_session", { agent: "worker" });
      assert.equal(value["kept"], undefined);
      const { agent_session_id } = value;
      const said = await callAgents(client, "send_message", { agent_session_id, message: "hi" });
      assert.equal(said.value["response"], "hi (1)");
    }));

  it("go on for the next MCP session of the same token", () =>
    inFolder(async (openHub) => {
      const { http } = await openHub();
      const connect = async (): Promise<CallTool> => {
        const client = new HttpTestClient(http);
        const headers = { Authorization: "Bearer t1" };
        const opened = await client.post(INITIALIZE_REQUEST, headers);
        client.sessionId = opened.headers.get("Mcp-Session-Id") ?? assert.fail("no session");
        await opened.text();
        return async (tool, args = {}) =>
          agentResultOf(
            await messageOf(await client.post(callRequest(1, `agents__${tool}`, args), headers)),
          );
      };
      const session = await createWith(await connect());
      const args = { agent_session_id: session, message: "hi" };
      for (const at of [1, 2])
        assert.equal(
          (await (await connect())("send_message", args)).value["response"],
          `hi (${at})`,
        );
    }));
});
