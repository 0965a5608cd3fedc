import assert from "node:assert/strict";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { run } from "../harness/command.ts";
import { it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

describe("a server that comes as a package", () => {
  it("is run by the real npx, and goes with all that it started", () =>
    withTestFolder('[servers.s]\npackage = "npm:local-server@1.0.0"\n', async (setup) => {
      const { dir } = setup;
      // npx runs what is installed where it is started, and then downloads nothing.
      const folder = join(dir, "node_modules", "local-server");
      mkdirSync(folder, { recursive: true });
      const { args: [file = ""] = [] } = scripted();
      const about = {
        name: "local-server",
        version: "1.0.0",
        bin: { "local-server": "run.mjs" },
      };
      writeFileSync(join(folder, "package.json"), JSON.stringify(about));
      writeFileSync(
        join(folder, "run.mjs"),
        `#!/usr/bin/env node\nimport ${JSON.stringify(file)};\n`,
        {
          mode: 0o755,
        },
      );
      const bin = join(dir, "node_modules", ".bin");
      mkdirSync(bin);
      symlinkSync("../local-server/run.mjs", join(bin, "local-server"));
      writeFileSync(join(dir, "package.json"), JSON.stringify({ name: "here", version: "1.0.0" }));
      const { code, stdout, stderr } = await run(setup, "list", "servers");
      assert.equal(code, 0, stderr);
      assert.match(stdout, /^s +idle/m);
    }));
});
