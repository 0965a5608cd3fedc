import assert from "node:assert/strict";
import { describe } from "node:test";
import { runCommand } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  closeClient,
  executable,
  it,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

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

async function run(setup: TestFolder, ...args: readonly string[]): Promise<string> {
  return (await runCommand(setup, ["--config", setup.config, ...args])).stdout;
}

/** The marks of the idle rules in texts that are about server `a`. */
function marksIn(texts: readonly string[]): readonly string[] {
  return texts.flatMap((text) => text.match(/idle-\d/g) ?? []).toSorted();
}

/** Serves the manifest until the server has listed. @returns what was logged */
async function serve(setup: TestFolder): Promise<string> {
  const client = new RawClient(executable(), ["--config", setup.config], setup.dir, setup.env);
  await client.initialize();
  await client.request("tools/list");
  await client.until(EXIT_LIMIT, "the last warning", () =>
    client.stderr.includes("idle-7") ? true : undefined,
  );
  await client.request("tools/list");
  await closeClient(client);
  return client.stderr;
}

describe("a rule of the manifest that matches nothing that its server lists", () => {
  it("is one warning in the hub's log, with the rule and the number of tools", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const lines = (await serve(setup)).split("\n").filter((line) => line.includes("idle-"));
      assert.deepEqual(marksIn(lines), IDLE);
      for (const line of lines) assert.match(line, /^toolmux: warn a: \w+\.\w+ "/);
      assert.match(lines.join("\n"), /tools\.deny "idle-2" .* \d+ tools/);
    }));

  it("is not logged again when the server lists other tools", () =>
    withTestFolder({ servers: { a: scripted("--grow", RULES) } }, async (setup) => {
      const client = new RawClient(executable(), ["--config", setup.config], setup.dir, setup.env);
      await client.initialize();
      await client.request("tools/list");
      await client.request("tools/call", { name: "a__grow", arguments: {} });
      await client.until(EXIT_LIMIT, "the changed list", () =>
        client.filter(({ method }) => method === "notifications/tools/list_changed").length > 0
          ? true
          : undefined,
      );
      await client.request("tools/list");
      await closeClient(client);
      const lines = client.stderr.split("\n").filter((line) => line.includes("idle-"));
      assert.deepEqual(marksIn(lines), IDLE);
    }));

  it("is named by status", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { servers } = JSON.parse(await run(setup, "status", "--json")) as {
        servers: { name: string; unusedRules?: string[] }[];
      };
      const [a, b] = servers;
      assert.deepEqual(marksIn(a?.unusedRules ?? []), IDLE);
      assert.equal(b !== undefined && "unusedRules" in b, false);
      assert.ok(marksIn([await run(setup, "status")]).length >= IDLE.length);
    }));

  it("is named by list --all", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { remarks } = JSON.parse(await run(setup, "list", "--all", "--json")) as {
        remarks: { kind: string; tool: string }[];
      };
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
    }));

  it("is named by check and doctor from what the server listed last", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const notes = async (): Promise<readonly string[]> =>
        (JSON.parse(await run(setup, "check", "--json")) as { notes: string[] }).notes;
      assert.deepEqual(await notes(), [], "nothing is known before the first start");
      await serve(setup);
      const starts = setup.log("a").length;
      assert.deepEqual(marksIn(await notes()), IDLE);
      const { findings } = JSON.parse(await run(setup, "doctor", "--json")) as {
        findings: { code: string; subject: string; text: string }[];
      };
      const found = findings.filter(({ code }) => code === "TM906" || code === "TM908");
      assert.deepEqual(
        found.map(({ code, subject, text }) => [code, subject, marksIn([text])]),
        [
          ["TM906", "a", ["idle-3", "idle-4", "idle-5"]],
          ["TM908", "a", ["idle-1", "idle-2", "idle-6", "idle-7"]],
        ],
      );
      assert.equal(setup.log("a").length, starts, "check or doctor started the server");
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
      const notes = async (): Promise<readonly string[]> =>
        (JSON.parse(await run(setup, "check", "--json")) as { notes: string[] }).notes;
      assert.deepEqual(await notes(), [], "nothing is known before the first start");
      await run(setup, "list");
      const found = (await notes()).map((note) => [
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
