import assert from "node:assert/strict";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { openClientAgents } from "../../src/host/client-agents.ts";
import type { HostContext } from "../../src/host/context.ts";
import { type AgentHubSettings, callAgents, setUpAgentHub } from "../fixtures/agent-hub.ts";
import { callRequest, initialize, type Peer, ScriptedServer } from "../fixtures/memory-hub.ts";
import { cancelOf, CANCELLED, messageTo } from "../plugins/plugin-hub.ts";

/** The tool of the server `agents` as a model names it. */
const INVOKE = "agents__invoke_agent";

/** A file of one agent, whose model calls a tool for each message and then tells the result. */
const fileOf = (name: string, more: string): string => `
[models.m]
provider = "script"
script = "${name}.answers.toml"

[agents.${name}]
model = "m"
instruction = "Obey."
tools = "all"
approval = "never"
${more}
`;

const answersOf = (tool: string, args: string, times: number): string => `
[[turns]]
after = "${tool}"
text = ["told: ", "{message}"]
inputTokens = 10
outputTokens = 5

[[turns]]
toolCalls = [${Array.from({ length: times }, () => `{ name = "${tool}", arguments = ${args} }`).join(", ")}]
inputTokens = 10
outputTokens = 5
`;

interface Setup {
  readonly client: Peer;
  readonly s: ScriptedServer;
}

/**
 * A hub with three agents, each in a file of its own: `top` calls `middle`, which calls `low`, which calls a tool of the
 * hub's server `s`.
 * @param limits more keys of each agent, by name
 * @param times how often `low` calls the tool
 * @param options of the plugin `agents`
 */
async function withFiles(
  limits: Readonly<Record<string, string>>,
  times: number,
  options: NonNullable<AgentHubSettings["options"]>,
  use: (setup: Setup) => Promise<void>,
): Promise<void> {
  const home = await realpath(await mkdtemp(join(tmpdir(), "agents-of-files-")));
  const context: HostContext = {
    env: { HOME: home },
    cwd: home,
    platform: "linux",
    signal: new AbortController().signal,
    uncaughtErrorHandlers: new Set(),
    hangupHandlers: new Set(),
  };
  const own = join(home, ".config/toolmux/agents");
  const next = (file: string): string => `{ agent = "${file}.toml", message = "go on" }`;
  const files: Readonly<Record<string, string>> = {
    "top.toml": fileOf("top", `allowAgents = true\n${limits["top"] ?? ""}`),
    "top.answers.toml": answersOf(INVOKE, next("middle"), 1),
    "middle.toml": fileOf("middle", `allowAgents = true\n${limits["middle"] ?? ""}`),
    "middle.answers.toml": answersOf(INVOKE, next("low"), 1),
    "low.toml": fileOf("low", limits["low"] ?? ""),
    "low.answers.toml": answersOf("s__t", "{}", times),
  };
  const s = new ScriptedServer("t");
  try {
    await mkdir(own, { recursive: true });
    for (const [name, text] of Object.entries(files)) await writeFile(join(own, name), text);
    const { client } = await setUpAgentHub(
      { s },
      {
        options,
        openClientAgents: (manifest) =>
          openClientAgents({
            manifest: () => manifest,
            context,
            log: () => {},
            clock: systemClock,
            redact: (text) => text,
          }),
      },
    );
    await initialize(client);
    await use({ client, s });
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

const START = { agent: "top.toml", message: "begin" };

describe("an agent of a file that calls agents of other files", () => {
  it("shows as a tree, and what they have used counts in its run", () =>
    withFiles({}, 2, {}, async ({ client, s }) => {
      s.onCall = () => '"result":{"content":[{"type":"text","text":"found"}]}';
      const { value, text } = await callAgents(client, "invoke_agent", START);
      assert.equal(value["response"], "told: told: told: found", text);
      const events = value["events"] as Readonly<Record<string, unknown>>[];
      const started = events.filter(({ type }) => type === "agent_started");
      assert.deepEqual(
        started.map(({ agent, how }) => [agent, how]),
        [
          ["middle.toml", "call"],
          ["low.toml", "call"],
        ],
      );
      // Each begins inside the one that has called it; the calls of the last one are its own.
      const [middle, low] = started;
      assert.equal(middle?.["run"], undefined);
      assert.equal(low?.["run"], middle?.["run_id"]);
      const calls = events.filter(({ type, tool }) => type === "tool_call" && tool === "s__t");
      assert.deepEqual(
        calls.map(({ run, agent }) => [run, agent]),
        [
          [low?.["run_id"], "low"],
          [low?.["run_id"], "low"],
        ],
      );
      const ended = events.filter(({ type }) => type === "agent_ended");
      assert.deepEqual(
        ended.map(({ agent, success, tool_calls: count }) => [agent, success, count]),
        [
          ["low.toml", true, 2],
          ["middle.toml", true, 3],
        ],
      );
      const metadata = value["metadata"] as Readonly<Record<string, unknown>>;
      // Two turns of each of the three agents.
      assert.deepEqual([metadata["tool_calls"], metadata["tokens_used"]], [4, 90]);
    }));

  for (const [limits, options, calls, isOutermost] of [
    [{ top: "maxToolCalls = 4" }, {}, 2, true],
    [{ middle: "maxToolCalls = 3" }, {}, 2, false],
    [{ low: "maxToolCalls = 2" }, {}, 2, false],
    [{ top: "maxToolCalls = 2", low: "maxToolCalls = 100" }, {}, 0, true],
    [{}, { maxTokens: 44 }, 0, true],
  ] as const) {
    it(`gives them what is left of its limits (${JSON.stringify({ ...limits, ...options })})`, () =>
      withFiles(limits, 3, options, async ({ client, s }) => {
        const { code, text } = await callAgents(client, "invoke_agent", START);
        // The run whose limit it is ends; one that has called it goes on with the error.
        assert.equal(code, isOutermost ? "limitReached" : undefined, text);
        assert.match(text, /more are not allowed|has called tools|has used/);
        assert.ok(s.messagesOf("tools/call").length <= calls, text);
      }));
  }

  it("cancels them all when its own call is cancelled, down to the server of their tool", () =>
    withFiles({}, 1, {}, async ({ client, s }) => {
      s.onCall = () => undefined;
      client.send(callRequest("run", INVOKE, START));
      const { id } = await messageTo(s);
      client.send(cancelOf("run"));
      const { params } = await messageTo(s, CANCELLED);
      assert.equal((params as { requestId?: unknown }).requestId, id);
    }));
});
