import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { formatEntry, previewEntry } from "../../src/manifest/edit/entry-text.ts";
import { maskEntry } from "../../src/manifest/mask-entry.ts";

const ENTRY = {
  command: "node",
  args: ["a.js", 'with "quotes"\n'],
  env: { API_KEY: "very-secret-value", "odd key": "x" },
  tools: { deny: ["write_*"], timeout: { slow: "5m" } },
};

describe("an entry of a server that a person edits", () => {
  it("is the same after it was written as TOML and read again", async () => {
    const { entry, problems } = await previewEntry({ toml: formatEntry(ENTRY) }, ENTRY);
    assert.deepEqual(problems, []);
    assert.deepEqual(JSON.parse(JSON.stringify(entry)), ENTRY);
  });

  it("shows no secret, and keeps one whose mask stays", async () => {
    const masked = maskEntry(ENTRY);
    const { toml = "", problems } = await previewEntry({ entry: masked }, ENTRY);
    assert.deepEqual(problems, []);
    assert.doesNotMatch(toml, /very-secret-value/);
    assert.equal(toml, formatEntry(masked));
  });

  it("has each problem with its place in the text", async () => {
    const toml = 'command = "node"\nlazy = 7\n\n[env]\nA = 1\n';
    const { problems } = await previewEntry({ toml }, {});
    assert.deepEqual(
      problems.map(({ path, position }) => [path, position?.line]),
      [
        ["env.A", 5],
        ["lazy", 2],
      ],
    );
  });

  it("has the place at which a text is no TOML, and no entry", async () => {
    const { entry, toml, problems } = await previewEntry(
      { toml: 'command = "node"\nargs = [\n' },
      {},
    );
    assert.equal(entry, undefined);
    assert.equal(toml, undefined);
    assert.equal(problems.length, 1);
    assert.ok((problems[0]?.position?.line ?? 0) >= 2);
  });

  it("refuses a mask that stands for nothing", async () => {
    const { problems } = await previewEntry(
      { entry: { command: "node", env: { NEW_TOKEN: "•••" } } },
      ENTRY,
    );
    assert.equal(problems.length, 1);
  });
});
