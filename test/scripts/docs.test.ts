import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { makePages } from "../../scripts/docs.ts";
import { COMMANDS } from "../../src/cli/commands.ts";
import { FINDING_CODES } from "../../src/host/doctor/findings.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS } from "../../src/manifest/manifest.ts";
import { serverSchema } from "../../src/manifest/schema.ts";

describe("the reference pages", () => {
  for (const [path, text] of makePages()) {
    it(`are those that the code makes: run \`npm run docs\` if not (${path})`, async () => {
      assert.equal(await readFile(new URL(`../../${path}`, import.meta.url), "utf8"), text);
    });
  }

  it("have every key, command and code", () => {
    const pages = makePages();
    const configuration = pages.get("docs/configuration.md") ?? "";
    const keys = [HUB_DEFAULTS, LIMIT_DEFAULTS, serverSchema.entries].flatMap(Object.keys);
    for (const key of keys) assert.ok(configuration.includes(`\n- \`${key}\` (`), key);
    for (const { name } of COMMANDS)
      assert.ok(pages.get("docs/cli.md")?.includes(`\n## toolmux ${name}\n`), name);
    for (const code of Object.keys(FINDING_CODES))
      assert.ok(pages.get("docs/doctor-codes.md")?.includes(`\n| ${code} | `), code);
  });
});
