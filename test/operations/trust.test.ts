import assert from "node:assert/strict";
import { describe } from "node:test";
import { stateFolder } from "../../src/base/paths.ts";
import { isTrusted } from "../../src/manifest/trust.ts";
import type { ManifestChoice } from "../../src/operations/context.ts";
import { trustFileOrAgent } from "../../src/operations/trust.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const NOTHING: ManifestChoice = { config: [] };

/** Trusts what this word means in the working directory. @returns also the remarks for the user */
async function trust(folder: ManifestFolder, word: string, choice = NOTHING) {
  const notes: string[] = [];
  const context = {
    ...contextOf({ HOME: folder.home }, folder.cwd),
    note: (text: string) => void notes.push(text),
  };
  return { trusted: await trustFileOrAgent(word, choice, context), notes };
}

const isTrustedIn = (folder: ManifestFolder, file: string, text: string) =>
  isTrusted(file, new TextEncoder().encode(text), stateFolder({ HOME: folder.home }, "linux"));

describe("trust", () => {
  itIn(
    "of a manifest says which commands it allows, and which models get conversations",
    async (folder) => {
      const text = `[secrets]
commands = true
[servers.a]
command = "x"
env = { A = "\${cmd:pass show 'my token'}" }
[models.m]
provider = "openai"
model = "x"
url = "http://models.test/v1"
apiKey = "\${cmd:pass show it}"
`;
      const file = await folder.write("work/toolmux.toml", text);
      const { trusted } = await trust(folder, "toolmux.toml");
      assert.ok(trusted.kind === "manifest");
      assert.equal(trusted.file, file);
      assert.deepEqual(trusted.commands, ["pass show 'my token'", "pass show it"]);
      assert.deepEqual(
        trusted.models.map(({ name, url }) => [name, url]),
        [["m", "http://models.test/v1"]],
      );
      assert.ok(await isTrustedIn(folder, file, text));
      assert.ok(!(await isTrustedIn(folder, file, `${text}# changed\n`)));
    },
  );

  itIn("of an agent file holds for its content", async (folder) => {
    const text = "agents:\n  root:\n    model: anthropic/x\n    instruction: hi\n";
    const file = await folder.write("work/pirate.yaml", text);
    const { trusted, notes } = await trust(folder, "pirate.yaml");
    assert.ok(trusted.kind === "agent");
    assert.deepEqual([trusted.agent.digest, notes], [undefined, []]);
    assert.ok(await isTrustedIn(folder, file, text));
  });

  itIn("is not given to what has problems or is not there", async (folder) => {
    const text = '[servers.a]\ncomand = "x"\n';
    const file = await folder.write("work/toolmux.toml", text);
    for (const [word, code] of [
      ["toolmux.toml", "manifestInvalid"],
      ["nowhere.toml", "manifestInvalid"],
      ["nowhere.yaml", "agentNotFound"],
      ["nobody/agent", "agentNotFound"],
    ] as const) {
      await assert.rejects(trust(folder, word), { code }, word);
    }
    assert.ok(!(await isTrustedIn(folder, file, text)));
  });

  itIn("of an agent goes on without a manifest that has errors, and says so", async (folder) => {
    await folder.write("work/pirate.yaml", "agents:\n  root:\n    model: anthropic/x\n");
    const config = [await folder.write("bad.toml", "servers = 3\n")];
    const { trusted, notes } = await trust(folder, "pirate.yaml", { config });
    assert.equal(trusted.kind, "agent");
    assert.equal(notes.length, 1);
  });
});
