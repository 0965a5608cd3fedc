import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";

const SCRIPT = fileURLToPath(new URL("../../scripts/agent-examples.ts", import.meta.url));

it("each file of agents below a folder is complete, or what lacks is named with the line to add", () => {
  const folder = mkdtempSync(join(tmpdir(), "examples-"));
  try {
    mkdirSync(join(folder, "sub"));
    const agents = (toolsets: string): string =>
      `agents:\n  root:\n    model: openai/x\n    toolsets: [${toolsets}]\n`;
    const files = {
      "a.yaml": agents("{type: shell}, {type: memory}"),
      "sub/b.yml": agents("{type: lsp}"),
      "c.yaml": "agents: []\n",
      "manifest.toml": '[agentFiles.toolsets]\nlsp = { server = "code" }\n',
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const print = (...args: readonly string[]): readonly string[] => {
      const { stdout, status } = spawnSync(process.execPath, [SCRIPT, folder, ...args], {
        encoding: "utf8",
      });
      assert.equal(status, 0);
      return stdout.split("\n");
    };
    const lines = print();
    assert.ok(lines.includes("a.yaml: complete"), lines.join("\n"));
    const at = lines.indexOf("sub/b.yml: lacks");
    assert.match(lines[at + 1] ?? "", /^ {2}4:23: .*: lsp = \{ server = "NAME" \}$/);
    assert.equal(lines[lines.indexOf("c.yaml: lacks") + 1], "  refused");
    assert.equal(lines.at(-2), "1 of 3 files are complete");
    assert.equal(print(join(folder, "manifest.toml")).at(-2), "2 of 3 files are complete");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
