import assert from "node:assert/strict";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, executable, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

describe("a server that comes as a package", () => {
  it("is run by the real npx, and goes with all that it started", () =>
    withTestFolder(
      '[servers.s]\npackage = "npm:local-server@1.0.0"\n',
      async ({ dir, config, env }) => {
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
        writeFileSync(
          join(dir, "package.json"),
          JSON.stringify({ name: "here", version: "1.0.0" }),
        );
        const client = new RawClient(
          executable(),
          ["--config", config, "list", "servers"],
          dir,
          env,
        );
        client.end();
        const { code } = await client.waitForExit(EXIT_LIMIT);
        const text = [...client.lines.map((line) => line.text), client.unterminatedOutput].join(
          "\n",
        );
        assert.equal(code, 0, client.stderr);
        assert.match(text, /^s +idle/m);
      },
    ));
});
