import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { run, runCommand, startOn } from "../harness/command.ts";
import { EXIT_LIMIT, type TestFolder, it, withTestFolder } from "../harness/hub.ts";
import { scripted, toToml } from "../harness/manifest.ts";

const TELLTALE = fileURLToPath(new URL("../fixtures/servers/leak-settings.mjs", import.meta.url));

/** By where each comes from. */
const CANARIES = {
  variable: "canary-of-the-environment",
  inherited: "canary-inherited",
  file: "canary+of/a file",
  store: 'canary "of" the store',
  named: "canary-of-a-named-variable",
  command: "canary-of-a-command",
  word: "canary-in-an-argument",
} as const;

const VARIABLES = {
  CANARY_SOURCE: CANARIES.variable,
  CANARY_API_KEY: CANARIES.inherited,
  TOOLMUX_SECRET_A_NAMED: CANARIES.named,
  TOOLMUX_SECRET_WORD: CANARIES.word,
};

/** A manifest whose servers are given all canaries and tell them; each is named as its mode. */
function manifestOf(modes: readonly string[]): string {
  const server = (mode: string) => ({
    command: process.execPath,
    args: [TELLTALE, mode, "${secret:word}"],
    inheritEnv: ["CANARY_API_KEY"],
    env: {
      CANARY_1: "${env:CANARY_SOURCE}",
      CANARY_2: "${file:given}",
      CANARY_3: "${secret:a/store}",
      CANARY_4: "${secret:a/named}",
      CANARY_5: `\${cmd:cat command}`,
    },
  });
  const servers = Object.fromEntries(modes.map((mode) => [mode, server(mode)]));
  return `${toToml({ servers })}\n[secrets]\ncommands = true\n`;
}

async function withCanaries(
  modes: readonly string[],
  use: (setup: TestFolder) => Promise<void>,
): Promise<void> {
  await withTestFolder(manifestOf(modes), async (setup) => {
    writeFileSync(join(setup.dir, "given"), `${CANARIES.file}\n`);
    writeFileSync(join(setup.dir, "command"), `${CANARIES.command}\n`);
    const kept = await runCommand(setup, ["secret", "set", "a/store"], {
      input: `${CANARIES.store}\n`,
    });
    assert.equal(kept.code, 0, kept.stderr);
    await use({ ...setup, env: { ...setup.env, ...VARIABLES } });
  });
}

/** Every spelling of every canary that is in a text. */
function findCanaries(text: string): string[] {
  return Object.values(CANARIES)
    .flatMap((value) => [
      value,
      JSON.stringify(value).slice(1, -1),
      encodeURIComponent(value),
      Buffer.from(value).toString("base64"),
      Buffer.from(value).toString("base64").slice(2, -4),
      Buffer.from(`user:${value}`).toString("base64").slice(8, -4),
    ])
    .filter((spelling) => text.includes(spelling));
}

/** All that was written to disk, but for what the test has written itself. */
function readFolders(setup: TestFolder, names: readonly string[]): string {
  return names
    .flatMap((name) =>
      readdirSync(join(setup.dir, name), { recursive: true, encoding: "utf8" }).map((file) =>
        join(setup.dir, name, file),
      ),
    )
    .map((file) => `${file}\n${statSync(file).isFile() ? readFileSync(file, "latin1") : ""}`)
    .join("\n");
}

const FOLDERS = ["config", "cache", "state", "data", "runtime", "tmp"];

describe("what a server is given that must not be shown", () => {
  it("is given to it, whole, and is not in the alert that tools are described otherwise", () =>
    withCanaries(["list"], async (setup) => {
      const common = ["--log-level", "debug"];
      const { stdout } = await run(setup, "list", "--json", ...common);
      for (const value of Object.values(CANARIES))
        assert.ok(stdout.includes(encodeURIComponent(value)), value);
      const client = startOn(setup, ...common);
      await client.initializeAndList();
      await client.until(
        5000,
        "the alert",
        () => /changed what it says of/.test(client.stderr) || undefined,
      );
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      assert.deepEqual(findCanaries(client.stderr), []);
    }));

  it("is in nothing that is said of servers that fail, one in its handshake and one before", () => {
    const modes = ["refuse", "die"];
    return withCanaries(modes, async (setup) => {
      const common = ["--log-level", "debug"];
      const calls = modes.map((mode) => `call ${mode}__tell`);
      const ofServers = ["status", "status --json", "list", "list servers --json", ...calls];
      for (const line of [...ofServers, "check", "check --json", "secret list --json"]) {
        const { stdout, stderr } = await run(setup, ...line.split(" "), ...common);
        assert.deepEqual(findCanaries(stdout + stderr), [], line);
        assert.notEqual(stdout + stderr, "");
      }
      const client = startOn(setup, ...common);
      await client.initializeAndList();
      for (const mode of modes) {
        const { message, text } = await client.call(`${mode}__tell`);
        assert.ok(message.error);
        assert.match(text, /\[redacted\]/);
      }
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      const said = client.lines.map(({ text }) => text).join("\n") + client.stderr;
      assert.deepEqual(findCanaries(said), []);
      assert.deepEqual(findCanaries(readFolders(setup, FOLDERS)), []);
    });
  });

  it("is neither in the log nor on disk when a server that runs tells it", () =>
    withCanaries(["serve"], async (setup) => {
      for (const format of ["text", "json"]) {
        const client = startOn(setup, "--log-level", "debug", "--log-format", format);
        await client.initializeAndList();
        await client.call("serve__tell");
        await client.until(5000, "the late answer's warning", () =>
          client.stderr.split("stray").length > 1 ? true : undefined,
        );
        client.end();
        await client.waitForExit(EXIT_LIMIT);
        assert.match(client.stderr, /\[redacted\]/);
        assert.deepEqual(findCanaries(client.stderr), []);
      }
      assert.deepEqual(findCanaries(readFolders(setup, FOLDERS)), []);
    }));
});

describe("what a plugin has for a server", () => {
  it("is taken out of what that plugin logs and prints from then on", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const plugin = `
        export default {
          name: "vault",
          setup(options, host) {
            return {
              secrets: { vault: () => "canary-of-a-plugin" },
              events: ["state"],
              event() {
                host.log("error", "it is canary-of-a-plugin");
                console.error(JSON.stringify({ it: "canary-of-a-plugin" }));
              },
            };
          },
        };`;
      writeFileSync(join(setup.dir, "vault.mjs"), plugin);
      const server = scripted("", { env: { CANARY: "${vault:x}" } });
      const manifest = toToml({ servers: { a: server } });
      writeFileSync(setup.config, `${manifest}\n[[plugins]]\nuse = "./vault.mjs"\n`);
      const client = startOn(setup, "--log-level", "debug");
      await client.initializeAndList();
      await client.call("a__echo", { x: 1 });
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      assert.match(client.stderr, /it is \[redacted\]/);
      // Nobody knows it before it was asked for.
      const [, after = ""] = client.stderr.split(/it is \[redacted\]/);
      assert.ok(!after.includes("canary-of-a-plugin"), client.stderr);
    }));
});

describe("toolmux secret", () => {
  const MANIFEST = { servers: { a: scripted("", { env: { TOKEN: "${secret:a/token}" } }) } };

  it("says what to run when a server lacks one, and after that it starts", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const before = await run(setup, "status");
      assert.equal(before.code, 3);
      assert.match(before.stdout, /Set the secret: toolmux secret set a\/token/);
      const lacking = await run(setup, "check");
      assert.match(lacking.stdout, /a\/token +nowhere +a/);
      assert.match(lacking.stdout, /\n {2}a: .*a\/token/);
      const set = await runCommand(setup, ["secret", "set", "a/token"], { input: "a-value\n" });
      assert.equal(set.code, 0);
      assert.equal(set.stdout.trim(), "stored a/token in the secret store");
      assert.match(
        set.stderr,
        /key of the store is in the same directory: .*config\/toolmux\/secrets/,
      );
      assert.equal((await run(setup, "status")).code, 0);
      assert.match((await run(setup, "check")).stdout, /a\/token +file +a/);
      const listed = await run(setup, "secret", "list", "--json");
      assert.deepEqual(JSON.parse(listed.stdout), {
        secrets: [{ name: "a/token", places: ["file"], servers: ["a"], models: [] }],
        folder: join(setup.dir, "config", "toolmux", "secrets"),
        key: "beside",
      });
      assert.equal((await runCommand(setup, ["secret", "remove", "a/token"])).code, 0);
      assert.equal((await runCommand(setup, ["secret", "remove", "a/token"])).code, 1);
      assert.equal((await run(setup, "status")).code, 3);
    }));

  it("may be for a model, as check says and doctor knows", () => {
    const agents = { one: { model: "anthropic/x", instruction: "x" } };
    const models = {
      named: { provider: "openai", model: "x", url: "http://127.0.0.1:1", apiKey: "${secret:key}" },
    };
    return withTestFolder({ ...MANIFEST, agents, models }, async (setup) => {
      const env = { ANTHROPIC_API_KEY: "" };
      const { stdout } = await runCommand(setup, ["check", "--config", setup.config], { env });
      assert.match(stdout, /key +nowhere +model named/);
      await runCommand(setup, ["secret", "set", "key"], { input: "value" });
      const doctor = await run(setup, "doctor", "--json");
      assert.ok(!doctor.stdout.includes("TM302"), doctor.stdout);
    });
  });

  for (const [what, args, input] of [
    ["a value on the command line", ["set", "x", "hunter2"], "y"],
    ["a name that holds a value", ["set", "x=hunter2"], "y"],
    ["an option with a value", ["set", "x", "--value=hunter2"], "y"],
    ["a value in the place of what to do", ["hunter2"], "y"],
    ["an empty value", ["set", "x"], ""],
    ["a value of one line end", ["set", "x"], "\n"],
    ["bytes that are no text", ["set", "x"], Uint8Array.of(0xff, 0xfe)],
    ["a value that is too long", ["set", "x"], "x".repeat(70_000)],
    ["no name", ["set"], "y"],
    ["a name for tokens", ["set", "oauth/x"], "y"],
    ["a store, as there is one only", ["set", "x", "--store", "keychain"], "y"],
    ["two names", ["remove", "x", "y"], ""],
  ] as const) {
    it(`refuses ${what}, shows no value, and keeps nothing`, () =>
      withTestFolder({ servers: {} }, async (setup) => {
        const { code, stdout, stderr } = await runCommand(setup, ["secret", ...args], { input });
        assert.equal(code, 2, stderr);
        assert.ok(!(stdout + stderr).includes("hunter2"), stderr);
        assert.deepEqual(readdirSync(join(setup.dir, "config")), []);
      }));
  }

  it("keeps a value as it was piped in, but for its last line end", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const value = " two\nlines € \n";
      await runCommand(setup, ["secret", "set", "x"], { input: `${value}\r\n` });
      const manifest = `[servers.s]\ncommand = "printf"\nargs = ["%s", "\${secret:x}"]\n`;
      writeFileSync(setup.config, manifest);
      const { stdout } = await run(setup, "check", "--json");
      assert.equal(JSON.parse(stdout).secrets[0].place, "file");
      const { openSecrets } = await import("../../src/secrets/secrets.ts");
      const env = { ...setup.env, TOOLMUX_KEYCHAIN: "off" };
      assert.equal(await openSecrets({ env, platform: "linux" }).require("x"), value);
    }));
});

describe("a command that gives a value", () => {
  it("is shown whole to whoever is to trust the file that it stands in", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const server = scripted("", { env: { A: "${cmd:pass show 'my token'}" } });
      writeFileSync(
        setup.config,
        `${toToml({ servers: { a: server } })}\n[secrets]\ncommands = true\n`,
      );
      const { stdout } = await runCommand(setup, ["trust", setup.config]);
      assert.match(stdout, /commands.*:\n +pass show 'my token'/);
    }));

  it("is run once for a start, and not at all by check", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const count = join(setup.dir, "count");
      const manifest = {
        servers: {
          a: scripted("", {
            env: {
              A: `\${cmd:sh -c 'echo run >> ${count}; echo value'}`,
              B: `\${cmd:sh -c 'echo run >> ${count}; echo value'}`,
            },
          }),
        },
      };
      writeFileSync(setup.config, `${toToml(manifest)}\n[secrets]\ncommands = true\n`);
      await run(setup, "check");
      assert.throws(() => readFileSync(count), /ENOENT/);
      const client = startOn(setup);
      await client.initializeAndList();
      await client.call("a__echo", { x: 1 });
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      assert.equal(readFileSync(count, "utf8"), "run\n");
    }));

  it("that only a server with a problem in its table mentions counts as used", () =>
    withTestFolder(
      '[servers.a]\ncomand = "x"\nenv = { KEY = "${secret:a/KEY}" }\n',
      async (setup) => {
        const stored = await runCommand(setup, ["secret", "set", "a/KEY"], { input: "v" });
        assert.equal(stored.code, 0, stored.stderr);
        const listed = await run(setup, "secret", "list", "--json");
        assert.deepEqual(
          JSON.parse(listed.stdout).secrets.map((row: { servers: unknown }) => row.servers),
          [["a"]],
        );
        const { stdout } = await run(setup, "doctor", "--json");
        assert.ok(!stdout.includes("TM302"), stdout);
        const removed = await run(setup, "secret", "remove", "a/KEY");
        assert.match(removed.stderr, /\ba needs it to start/);
      },
    ));
});
