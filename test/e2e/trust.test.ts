import assert from "node:assert/strict";
import { appendFileSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { stateFolder } from "../../src/base/paths.ts";
import { isTrusted } from "../../src/manifest/trust.ts";
import { runCommand } from "../harness/command.ts";
import { it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

describe("a manifest in the working directory", () => {
  it("is passed over until it is trusted, and again once it has changed", () =>
    withTestFolder({ servers: { a: scripted("--bare --tool only") } }, async (setup) => {
      for (const args of [["list"], ["serve"], ["call", "a__only"], ["check"]]) {
        const { code, stderr } = await runCommand(setup, args);
        assert.equal(code, 2, args.join(" "));
        assert.match(stderr, /toolmux\.toml is ignored: .*toolmux trust/);
      }
      assert.deepEqual(setup.log("a"), [], "and nothing of it was started");

      const { code, stdout } = await runCommand(setup, ["trust", "toolmux.toml"]);
      assert.equal(code, 0);
      assert.ok(stdout.startsWith(`trusted: ${realpathSync(setup.config)}\n`), stdout);
      assert.match(stdout, / a: .*scripted\.mjs --bare --tool only/);
      assert.match((await runCommand(setup, ["list"])).stdout, /a__only/);

      appendFileSync(setup.config, "\n# changed\n");
      const again = await runCommand(setup, ["list"]);
      assert.equal(again.code, 2);
      assert.match(again.stderr, /toolmux trust/);
    }));

  it("cannot be trusted where the state folder cannot be written, which is said in one line", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const env = { XDG_STATE_HOME: setup.config };
      const { code, stdout, stderr } = await runCommand(setup, ["trust", setup.config], { env });
      assert.deepEqual([code, stdout], [1, ""]);
      assert.match(stderr, /^toolmux: .*\n$/);
    }));

  it("is trusted beside others that are trusted at the same moment", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const files = Array.from({ length: 6 }, (_, i) => join(setup.dir, `t${i}.toml`));
      for (const [i, file] of files.entries())
        writeFileSync(file, `[servers.s${i}]\ncommand = "x"\n`);
      const all = await Promise.all(files.map((file) => runCommand(setup, ["trust", file])));
      assert.ok(all.every(({ code }) => code === 0));
      const folder = stateFolder(setup.env, process.platform);
      for (const file of files)
        assert.ok(await isTrusted(file, new Uint8Array(readFileSync(file)), folder), file);
    }));

  it("is told with the places that its models send to, and the commands that give their keys", () =>
    withTestFolder(
      `[secrets]
commands = true
[models.a]
provider = "openai"
model = "x"
url = "http://user:password-1@models.test/v1"
apiKey = "\${cmd:pass show it}"
`,
      async (setup) => {
        const { code, stdout } = await runCommand(setup, ["trust", "toolmux.toml"]);
        assert.equal(code, 0);
        assert.match(stdout, /^ {2}pass show it$/m);
        assert.match(stdout, /^ {2}a: openai, at http:\/\/\S+@models\.test\/v1$/m);
        assert.doesNotMatch(stdout, /password-1/);
      },
    ));

  it("is used in spite of a model that is wrong, which is told", () =>
    withTestFolder('[models.a]\nprovider = "openai"\nmodle = "x"\n', async (setup) => {
      const { stderr } = await runCommand(setup, ["list", "--config", setup.config]);
      assert.match(stderr, /toolmux\.toml:3:1: models\.a\.modle: unknown key/);
    }));

  it("that is wrong or missing is not trusted", () =>
    withTestFolder('[servers.a]\ncomand = "x"\n', async (setup) => {
      const { code, stderr } = await runCommand(setup, ["trust", "toolmux.toml"]);
      assert.equal(code, 2);
      assert.match(stderr, /comand/);
      assert.equal((await runCommand(setup, ["trust", "nowhere.toml"])).code, 2);
    }));
});
