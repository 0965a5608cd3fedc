import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe } from "node:test";
import { enableServer } from "../../src/operations/enable.ts";
import { contextOf } from "../harness/context.ts";
import { itIn, writeFiles } from "../harness/in-folder.ts";

describe("a server that is enabled or disabled", () => {
  const cases: readonly (readonly [before: string, enabled: boolean, after: string])[] = [
    [
      `# a\n[servers.x]\ncommand = "a" # b\n`,
      false,
      `# a\n[servers.x]\ncommand = "a" # b\nenabled = false\n`,
    ],
    [
      `[servers.x]\ncommand = "a"\nenabled = false\n`,
      true,
      `[servers.x]\ncommand = "a"\nenabled = true\n`,
    ],
    [
      `[servers.x]\ncommand = "a"\nenabled = true\n`,
      false,
      `[servers.x]\ncommand = "a"\nenabled = false\n`,
    ],
    // The key of a client's file stays.
    [
      `{"mcpServers": {"x": {"command": "a", "disabled": true}}}`,
      true,
      `{"mcpServers": {"x": {"command": "a", "disabled": false}}}`,
    ],
    [
      `{"mcpServers": {"x": {"command": "a", "disabled": false}}}`,
      false,
      `{"mcpServers": {"x": {"command": "a", "disabled": true}}}`,
    ],
  ];
  for (const [at, [before, enabled, after]] of cases.entries()) {
    itIn(`keeps the rest of its file (${at})`, async (folder) => {
      const [file = ""] = await writeFiles(folder, before);
      const context = contextOf({ HOME: folder.home }, folder.cwd);
      const choice = { config: [file] };
      const first = await enableServer("x", enabled, undefined, choice, context);
      assert.deepEqual(first, { file, isChanged: true });
      assert.equal(await readFile(file, "utf8"), after);
      const again = await enableServer("x", enabled, undefined, choice, context);
      assert.deepEqual(again, { file, isChanged: false });
      assert.equal(await readFile(file, "utf8"), after);
    });
  }

  itIn("is changed in the last file that has it, as that file wins", async (folder) => {
    const text = `[servers.x]\ncommand = "a"\n`;
    const files = await writeFiles(folder, text, text, `[servers.y]\ncommand = "a"\n`);
    const context = contextOf({ HOME: folder.home }, folder.cwd);
    const { file } = await enableServer("x", false, undefined, { config: files }, context);
    assert.equal(file, files[1]);
    assert.equal(await readFile(files[0] ?? "", "utf8"), text);
    const named = await enableServer("x", false, files[0], { config: files }, context);
    assert.deepEqual(named, { file: files[0], isChanged: true });
  });

  itIn("is refused with the names of the others if no file has it", async (folder) => {
    const files = await writeFiles(folder, `[servers.x]\ncommand = "a"\n`);
    const context = contextOf({ HOME: folder.home }, folder.cwd);
    const missing = enableServer("z", false, undefined, { config: files }, context);
    await assert.rejects(missing, { code: "usage", message: /server z .*there are x/ });
  });
});
