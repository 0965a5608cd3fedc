import assert from "node:assert/strict";
import { chmod } from "node:fs/promises";
import { describe } from "node:test";
import { findModel, type InvalidModel, type ModelSpec } from "../../src/manifest/agents.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import { formatProblem } from "../../src/manifest/problems.ts";
import { itIn, loadFiles, serverTable } from "../harness/in-folder.ts";

const SERVER = serverTable("a");
const MAIN = `[models.main]
provider = "anthropic"
model = "claude-x"
apiKey = "\${secret:anthropic}"
temperature = 0.2
maxTokens = 4096
contextTokens = 32_000
thinking = "low"
timeout = "2m"
`;

function modelOf({ models }: Manifest, name: string): ModelSpec | InvalidModel {
  const found = findModel(name, { models, baseDir: "/base" });
  assert.ok(found, name);
  return found;
}

describe("the models of a manifest", () => {
  itIn(
    "have the values of the last file that names them, and defaults for the rest",
    async (folder) => {
      const later = `[models.main]\nprovider = "openai"\nmodel = "gpt-x"\n[models.test]\nprovider = "script"\nscript = "a.toml"\n`;
      const manifest = await loadFiles(folder, [SERVER + MAIN, later], {});
      const { root: baseDir } = folder;
      const common = { secretSources: undefined, baseDir };
      assert.deepEqual(modelOf(manifest, "main"), {
        ...common,
        name: "main",
        provider: "openai",
        model: "gpt-x",
        contextTokens: 128_000,
        timeout: 300_000,
      });
      assert.deepEqual(modelOf(await loadFiles(folder, [SERVER + MAIN]), "main"), {
        ...common,
        name: "main",
        provider: "anthropic",
        model: "claude-x",
        apiKey: "${secret:anthropic}",
        temperature: 0.2,
        maxTokens: 4096,
        contextTokens: 32_000,
        thinking: "low",
        timeout: 120_000,
      });
    },
  );

  itIn("need no table if an agent names provider and model", async (folder) => {
    const manifest = await loadFiles(folder, [SERVER + MAIN]);
    const found = modelOf(manifest, "openai/gpt/x");
    assert.ok("provider" in found);
    assert.deepEqual([found.provider, found.model, found.baseDir], ["openai", "gpt/x", "/base"]);
    for (const name of ["man", "openai/", "script/x", "other/x"])
      assert.equal(findModel(name, { models: manifest.models, baseDir: "/" }), undefined, name);
  });

  for (const [table, ...expected] of [
    [
      `provider = "antropic"\nmodel = "x"`,
      `2:12: models.m.provider: expected one of anthropic, openai, google, sampling, script, found "antropic"`,
    ],
    [`provider = "openai"`, `2:12: models.m.provider: needs the key model, too`],
    [`model = "x"`, `1:9: models.m.provider: is missing`],
    [
      `provider = "script"\nurl = "http://a"`,
      `2:12: models.m.provider: needs the key script, too`,
      `3:1: models.m.url: cannot be used with provider = "script"`,
    ],
    [
      `provider = "sampling"\nthinking = "low"`,
      `3:1: models.m.thinking: cannot be used with provider = "sampling"`,
    ],
    [
      `provider = "google"\nmodel = "x"\nmaxTokens = 0\ntemperature = 3\ntimeout = "x"\napiKey = 5`,
      `4:13: models.m.maxTokens: expected a whole number of tokens, at least 1, found 0`,
      `5:15: models.m.temperature: expected a number between 0 and 2, found 3`,
      `6:11: models.m.timeout: expected a duration such as "30s", "500ms" or "5m", or a number of milliseconds, found "x"`,
      `7:10: models.m.apiKey: expected a string, found a number`,
    ],
    [
      `provider = "google"\nmodel = "x"\napiKey = "\${cmd:pass x}"\nurl = "\${secert:x}"`,
      `4:10: models.m.apiKey: found \${cmd:…}, which runs a command; to allow that, set commands = true in the table [secrets] of this file`,
      `5:7: models.m.url: found the unknown placeholder \${secert:…}; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}`,
    ],
  ] as const) {
    const name = JSON.stringify(table);
    itIn(`are invalid, and nothing else is, with the problems of ${name}`, async (folder) => {
      const file = await folder.write("m.toml", `[models.m]\n${table}\n${SERVER}${MAIN}`);
      const loaded = await folder.load({ files: [file] });
      assert.ok(loaded.ok);
      assert.deepEqual(
        loaded.problems.map(formatProblem),
        expected.map((line) => `${file}:${line}`),
      );
      assert.ok("provider" in modelOf(loaded.manifest, "main"));
      const invalid = modelOf(loaded.manifest, "m");
      assert.deepEqual("problems" in invalid && invalid.problems, loaded.problems);
    });
  }

  itIn("with a key in plain text in a file that others can read are noted", async (folder) => {
    const file = await folder.write(
      "m.toml",
      SERVER + MAIN.replace("${secret:anthropic}", "sk-plain"),
    );
    await chmod(file, 0o644);
    const { notes } = await folder.load({ files: [file] });
    assert.match(notes.join("\n"), /models\.main\.apiKey is plain text/);
    assert.doesNotMatch(notes.join("\n"), /sk-plain/);
    await chmod(file, 0o600);
    assert.deepEqual((await folder.load({ files: [file] })).notes, []);
  });
});
