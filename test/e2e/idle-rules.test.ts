import assert from "node:assert/strict";
import { describe } from "node:test";
import { run, runJson, startOn } from "../harness/command.ts";
import { waitForListChanged, waitForStderr } from "../harness/controlled-servers.ts";
import { closeClient, it, type TestFolder, withHub, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import type { RawClient } from "../harness/raw-client.ts";

/** Rules of which those with "idle" match nothing. */
const RULES = {
  tools: {
    allow: ["e*", "g*", "idle-1*"],
    deny: ["idle-2", "fa*"],
    rename: { "idle-3": "x", echo: "say" },
    timeout: { "idle-4": "5s" },
    describe: { "idle-5": "d" },
  },
  prompts: { deny: ["idle-6"] },
  skills: { allow: ["idle-7"] },
};
const IDLE = ["idle-1", "idle-2", "idle-3", "idle-4", "idle-5", "idle-6", "idle-7"];
const MANIFEST = { servers: { a: scripted("", RULES), b: scripted() } };

/** The marks of the idle rules in texts that are about server `a`. */
function marksIn(texts: readonly string[]): readonly string[] {
  return texts.flatMap((text) => text.match(/idle-\d/g) ?? []).toSorted();
}

/** The lines of the log that name an idle rule. */
function warningsIn({ stderr }: RawClient): readonly string[] {
  return stderr.split("\n").filter((line) => line.includes("idle-"));
}

/** The notes of check. */
async function notesOf(setup: TestFolder): Promise<readonly string[]> {
  return (await runJson<{ notes: string[] }>(setup, "check")).notes;
}

describe("a rule of the manifest that matches nothing that its server lists", () => {
  it("is one warning in the hub's log, with the rule and the number of tools, and then known to check, doctor, list --all and status", () =>
    withTestFolder(MANIFEST, async (setup) => {
      assert.deepEqual(await notesOf(setup), [], "nothing is known before the first start");
      const client = startOn(setup);
      await client.initializeAndList();
      await waitForStderr(client, /idle-7/);
      await client.request("tools/list");
      await closeClient(client);
      const lines = warningsIn(client);
      assert.deepEqual(marksIn(lines), IDLE);
      for (const line of lines) assert.match(line, /^toolmux: warn a: \w+\.\w+ "/);
      assert.match(lines.join("\n"), /tools\.deny "idle-2" .* \d+ tools/);

      const events = setup.log("a").length;
      assert.deepEqual(marksIn(await notesOf(setup)), IDLE);
      const { findings } = await runJson<{
        findings: { code: string; subject: string; text: string }[];
      }>(setup, "doctor");
      const found = findings.filter(({ code }) => code === "TM906" || code === "TM908");
      assert.deepEqual(
        found.map(({ code, subject, text }) => [code, subject, marksIn([text])]),
        [
          ["TM906", "a", ["idle-3", "idle-4", "idle-5"]],
          ["TM908", "a", ["idle-1", "idle-2", "idle-6", "idle-7"]],
        ],
      );
      const { remarks } = await runJson<{ remarks: { kind: string; tool: string }[] }>(
        setup,
        "list",
        "--all",
      );
      const idle = remarks.filter(({ kind }) => kind.startsWith("idle"));
      assert.deepEqual(
        idle.map(({ kind, tool }) => [kind, tool]),
        [
          ["idleFilter", "idle-1*"],
          ["idleFilter", "idle-2"],
          ["idleOverride", "idle-5"],
          ["idleOverride", "idle-3"],
          ["idleOverride", "idle-4"],
        ],
      );
      assert.equal(setup.log("a").length, events, "none of them started the server");

      const { servers } = await runJson<{ servers: { name: string; unusedRules?: string[] }[] }>(
        setup,
        "status",
      );
      const [a, b] = servers;
      assert.deepEqual(marksIn(a?.unusedRules ?? []), IDLE);
      assert.equal(b !== undefined && "unusedRules" in b, false);
      assert.ok(marksIn([(await run(setup, "status")).stdout]).length >= IDLE.length);
    }));

  it("is not logged again when the server lists other tools", () =>
    withHub({ servers: { a: scripted("--grow", RULES) } }, async ({ client }) => {
      await client.initializeAndList();
      await client.call("a__grow");
      await waitForListChanged(client, 1);
      await client.request("tools/list");
      await closeClient(client);
      assert.deepEqual(marksIn(warningsIn(client)), IDLE);
    }));
});

describe("a mode that shows an agent and hides tools which the agent has", () => {
  it("is named by check, with the tools and whether the agent still has them", () => {
    const agent = { model: "openai/x", instruction: "x" };
    const filter = (...parts: object[]) => ({ tools: { or: parts } });
    const echo = { tools: ["echo"] };
    const manifest = {
      servers: { a: scripted() },
      plugins: [{ use: "agents", options: { expose: ["free"] } }],
      agents: {
        free: { ...agent, tools: { tools: ["echo", "fail"] } },
        bound: { ...agent, mode: "all", respectMode: true },
        none: { ...agent, tools: echo },
      },
      modes: {
        all: filter({ servers: ["a", "agents"] }),
        hidden: filter(echo),
        exposed: filter(echo, { ids: ["agents.free"] }),
        any: filter(echo, { names: ["agents__invoke_agent"] }),
      },
    };
    return withTestFolder(manifest, async (setup) => {
      assert.deepEqual(await notesOf(setup), [], "nothing is known before the first start");
      await run(setup, "list");
      const found = (await notesOf(setup)).map((note) => [
        ...[...note.matchAll(/"(\w+)"/g)].map(([, name]) => name),
        / \(a__/.test(note) && !/a__echo[,)]/.test(note),
        note.includes("it lacks them"),
      ]);
      assert.deepEqual(found, [
        ["exposed", "free", true, false],
        ["any", "free", true, false],
        ["any", "bound", true, true],
      ]);
    });
  });
});
