import assert from "node:assert/strict";
import { describe } from "node:test";
import type { AgentSpec, InvalidAgent } from "../../src/manifest/agents.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import { formatProblem } from "../../src/manifest/problems.ts";
import { itIn, loadFiles, serverTable } from "../harness/in-folder.ts";

const SERVER = serverTable("a");
const MODEL = `[models.main]\nprovider = "anthropic"\nmodel = "x"\n`;

function agentOf({ agents }: Manifest, name: string): AgentSpec | InvalidAgent {
  const found = agents?.get(name);
  assert.ok(found, name);
  return found;
}

describe("the agents of a manifest", () => {
  itIn("have the values of the last file that names them, and defaults", async (folder) => {
    const first = `${MODEL}[agents.a]\nmodel = "main"\ninstruction = "one"\nmaxTurns = 3\n`;
    const later = `[agents.a]\nmodel = "openai/y"\ninstructionFile = "a.md"\nresultLimit = "1KB"\ntools = { servers = ["a"] }\nsubAgents = ["b"]\n[agents.b]\nmodel = "main"\ninstruction = "two"\ntimeout = "1m"\n`;
    await folder.write("a.md", "\nFrom a file.\n");
    const manifest = await loadFiles(folder, [SERVER + first, later]);
    const { tools, ...others } = agentOf(manifest, "a") as AgentSpec;
    assert.deepEqual({ ...Object(tools) }, { servers: ["a"] });
    assert.deepEqual(others, {
      name: "a",
      model: "openai/y",
      instruction: "From a file.",
      respectMode: false,
      allowAgents: false,
      expose: "auto",
      subAgents: ["b"],
      handoffs: [],
      maxTurns: 50,
      maxToolCalls: 200,
      parallelToolCalls: 8,
      retries: 1,
      resultLimit: 1000,
      timeout: 600_000,
    });
    const b = agentOf(manifest, "b");
    assert.deepEqual("timeout" in b && [b.instruction, b.timeout, b.tools], [
      "two",
      60_000,
      undefined,
    ]);
  });

  const RIGHT = `model = "main"\ninstruction = "x"`;
  for (const [table, ...expected] of [
    [`instruction = "x"`, "1:9: agents.m.model: is missing"],
    [`model = "main"`, "1:9: agents.m.instruction: is missing"],
    [
      `${RIGHT}\ninstructionFile = "none.md"`,
      "4:1: agents.m.instructionFile: cannot be used together with instruction",
    ],
    [
      `${RIGHT}\nmaxTurns = 0\nretries = -1\nsubAgents = ["m", "oter"]\napproval = "yes"`,
      "4:12: agents.m.maxTurns: expected a whole number, at least 1, found 0",
      "5:11: agents.m.retries: expected a whole number, at least 0, found -1",
      `7:12: agents.m.approval: expected "auto", "always" or "never", found "yes"`,
    ],
    [
      `${RIGHT}\nsubAgents = ["m", "oter"]\nhandoffs = ["other"]`,
      "4:14: agents.m.subAgents[0]: an agent cannot name itself",
      `4:19: agents.m.subAgents[1]: there is no agent "oter"; did you mean "other"?`,
    ],
    [
      `model = "mian"\ninstruction = "x"`,
      `2:9: agents.m.model: there is no model "mian"; did you mean "main"?`,
    ],
    [`${RIGHT}\nmode = "ful"`, `4:8: agents.m.mode: there is no mode "ful"; did you mean "full"?`],
    [
      `${RIGHT}\ntools = { servers = ["a"], pattern = "x" }\nmaxTurn = 3`,
      "4:28: agents.m.tools.pattern: cannot be used together with servers: a filter has one key; write and = [ … ] or or = [ … ]",
      `5:1: agents.m.maxTurn: unknown key; did you mean "maxTurns"?`,
    ],
  ] as const) {
    itIn(`are invalid alone, with the problems of ${JSON.stringify(table)}`, async (folder) => {
      const other = `[agents.other]\n${RIGHT}\n`;
      const file = await folder.write("m.toml", `[agents.m]\n${table}\n${MODEL}${other}${SERVER}`);
      const loaded = await folder.load({ files: [file] });
      assert.ok(loaded.ok);
      assert.deepEqual(
        loaded.problems.map(formatProblem),
        expected.map((line) => `${file}:${line}`),
      );
      assert.ok("model" in agentOf(loaded.manifest, "other"));
      const invalid = agentOf(loaded.manifest, "m");
      assert.deepEqual("problems" in invalid && invalid.problems, loaded.problems);
    });
  }

  itIn("read their instruction anew when its file changes, and miss it by name", async (folder) => {
    const text = `${SERVER}${MODEL}[agents.m]\nmodel = "main"\ninstructionFile = "m.md"\n`;
    const file = await folder.write("m.toml", text);
    const missing = await folder.load({ files: [file] });
    assert.match(
      missing.problems.map(formatProblem).join(),
      /agents\.m\.instructionFile: .*m\.md does not exist/,
    );
    await folder.write("m.md", "one");
    const one = await folder.load({ files: [file] });
    await folder.write("m.md", "two");
    const two = await folder.load({ files: [file] });
    assert.deepEqual([one.problems, two.problems], [[], []]);
    assert.notEqual(one.fingerprint, two.fingerprint);
    assert.equal(one.pluginFingerprint, two.pluginFingerprint);
    assert.deepEqual(two.dependentFiles.length, 1);
  });
});
