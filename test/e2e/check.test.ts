import assert from "node:assert/strict";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  closeClient,
  executable,
  it,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

function run(setup: TestFolder, ...args: readonly string[]): Promise<CommandOutput> {
  const env = { FROM_SHELL: "x" };
  return runCommand(setup, ["--config", setup.config, ...args], { env });
}

interface Document {
  readonly ok: boolean;
  readonly notes: readonly string[];
  readonly servers: readonly {
    readonly name: string;
    readonly state: string;
    readonly starts: boolean;
    readonly text: string;
  }[];
}

async function document(setup: TestFolder, ...args: readonly string[]): Promise<Document> {
  return JSON.parse((await run(setup, "check", "--json", ...args)).stdout) as Document;
}

const COMMAND_LINE = { command: "npx -y foo" };

describe("check", () => {
  it("counts a server as starting only if its process could start", () =>
    withTestFolder(
      {
        servers: {
          good: scripted(),
          unset: scripted("", { env: { A: "${env:NOT_SET_HERE}" } }),
          absent: { command: "no-such-mcp-server" },
          line: COMMAND_LINE,
          path: { command: "./no-such-file" },
          folder: scripted("", { cwd: "no-such-folder" }),
          denied: { command: "./toolmux.toml" },
          ftp: { url: "ftp://example.com/" },
          off: { ...scripted(), enabled: false },
        },
      },
      async (setup) => {
        const { ok, servers } = await document(setup);
        assert.equal(ok, true);
        assert.deepEqual(
          servers.map(({ name, state, starts }) => [name, state, starts]),
          [
            ["good", "starts", true],
            ["unset", "incomplete", false],
            ["absent", "fails", false],
            ["line", "fails", false],
            ["path", "fails", false],
            ["folder", "fails", false],
            ["denied", "fails", false],
            ["ftp", "incomplete", false],
            ["off", "disabled", false],
          ],
        );
        const { code, stdout, stderr } = await run(setup, "check");
        assert.deepEqual([code, stderr], [0, ""]);
        assert.match(stdout, /\n7 of 9 servers cannot start/);
        assert.doesNotMatch(stdout, /no problems/);
        for (const { name, starts, state } of servers) {
          if (starts || state === "disabled") continue;
          assert.match(stdout, new RegExp(`\\n  ${name}: `), name);
        }
        assert.ok(!stdout.includes(setup.env["PATH"] ?? "?"), "PATH is printed");
        assert.deepEqual(setup.log("good"), []);
      },
    ));

  it("takes a program as installed if only a plugin or a command knows its name", () =>
    withTestFolder(
      '[secrets]\ncommands = true\n[servers.a]\ncommand = "${cmd:echo true}"\n' +
        '[servers.b]\ncommand = "true"\ncwd = "${cmd:pwd}"\n',
      async (setup) => {
        const { servers } = await document(setup);
        assert.deepEqual(
          servers.map(({ starts }) => starts),
          [true, true],
        );
      },
    ));

  it("exits with 3 under --strict if a server cannot start, and else with 0", () =>
    withTestFolder({ servers: { good: scripted(), bad: COMMAND_LINE } }, async (setup) => {
      const codes = [];
      for (const args of [[], ["--strict"], ["--strict", "--json"]]) {
        codes.push((await run(setup, "check", ...args)).code);
      }
      assert.deepEqual(codes, [0, 3, 3]);
      writeFileSync(setup.config, '[servers.off]\ncommand = "npx -y foo"\nenabled = false\n');
      assert.equal((await run(setup, "check", "--strict")).code, 0);
    }));

  it("says `no problems` only if a server would start", () =>
    withTestFolder("", async (setup) => {
      const manifests: readonly (readonly [text: string, isFine: boolean])[] = [
        ["", false],
        ['[servers.a]\ncommand = "true"\nenabled = false\n', false],
        ['[servers.a]\ncommand = "no-such-mcp-server"\n', false],
        ['[servers.a]\ncommand = "true"\n', true],
        ['[[plugins]]\nuse = "schema-repair"\n', true],
      ];
      for (const [text, isFine] of manifests) {
        writeFileSync(setup.config, text);
        const { code, stdout } = await run(setup, "check");
        assert.deepEqual([code, /no problems/.test(stdout)], [0, isFine], text);
      }
    }));

  it("shows the command of the first runner of a package that is installed", () =>
    withTestFolder('[servers.a]\npackage = "npm:foo"\n', async (setup) => {
      const bin = join(setup.dir, "bin");
      mkdirSync(bin);
      writeFileSync(join(bin, "bunx"), "#!/bin/sh\n");
      chmodSync(join(bin, "bunx"), 0o755);
      const onPath = { ...setup, env: { ...setup.env, PATH: bin } };
      const [server] = (await document(onPath)).servers;
      assert.deepEqual([server?.starts, server?.text], [true, "npm:foo, by bunx foo"]);
      const without = { ...setup, env: { ...setup.env, PATH: setup.dir } };
      assert.equal((await document(without)).servers[0]?.starts, false);
    }));
});

describe("a command that was written together with its arguments", () => {
  it("is shown apart by check, by status and when it is started", () =>
    withTestFolder({ servers: { a: COMMAND_LINE } }, async (setup) => {
      const advice = 'command = "npx", args = ["-y", "foo"]';
      assert.ok((await run(setup, "check")).stdout.includes(advice));
      const { stdout } = await run(setup, "status", "--json");
      const [server] = (
        JSON.parse(stdout) as {
          servers: { error: { code: string; message: string }; remedies: string[] }[];
        }
      ).servers;
      assert.equal(server?.error.code, "commandNotFound");
      assert.ok(server.error.message.includes(advice), server.error.message);
      assert.deepEqual(server.remedies, []);
      const client = new RawClient(executable(), ["--config", setup.config], setup.dir, setup.env);
      await client.initialize();
      await client.until(
        EXIT_LIMIT,
        "the advice",
        () => client.stderr.includes(advice) || undefined,
      );
      await closeClient(client);
    }));

  it("may be the path of a program with a space in it", () =>
    withTestFolder({ servers: { a: { command: "./my server" } } }, async (setup) => {
      writeFileSync(join(setup.dir, "my server"), "#!/bin/sh\n");
      assert.equal((await document(setup)).servers[0]?.state, "fails");
      chmodSync(join(setup.dir, "my server"), 0o755);
      assert.equal((await document(setup)).servers[0]?.state, "starts");
    }));

  it("does not show a secret among its arguments", () =>
    withTestFolder(
      {
        servers: {
          a: { command: "npx foo --api-key hunter22 --token=hunter22" },
          b: { command: "./no-such-program --api-key hunter22" },
        },
      },
      async (setup) => {
        for (const command of ["check", "status", "list"]) {
          const { stdout, stderr } = await run(setup, command);
          assert.ok(!(stdout + stderr).includes("hunter22"), command);
        }
      },
    ));
});

describe("a shell variable such as $HOME in a manifest", () => {
  const notesOf = async (setup: TestFolder): Promise<readonly string[]> =>
    (await document(setup)).notes;

  it("gets one note for each server, with the spelling that is replaced", () =>
    withTestFolder(
      {
        servers: {
          a: { command: "$HOME/bin/foo", args: ["$HOME/x", "$FROM_SHELL"], env: { A: "$NOT_SET" } },
          b: { url: "https://example.com/$HOME", headers: { A: "x" } },
          off: { command: "$HOME/x", enabled: false },
        },
      },
      async (setup) => {
        const notes = await notesOf(setup);
        assert.deepEqual(
          notes.map((note) => note.match(/server "\w+"|\$\{env:\w+\}/g)),
          [
            ['server "a"', "${env:HOME}", "${env:FROM_SHELL}", "${env:NOT_SET}"],
            ['server "b"', "${env:HOME}"],
          ],
        );
        const { stderr } = await run(setup, "list");
        assert.ok(
          notes.every((note) => stderr.includes(note)),
          stderr,
        );
      },
    ));

  it("gets the note in JSON, too", () =>
    withTestFolder(
      '{"mcpServers": {"a": {"command": "x", "args": ["$HOME"]}}}',
      async (setup) => {
        assert.match((await notesOf(setup)).join("\n"), /\$\{env:HOME\}/);
      },
      "mcp.json",
    ));

  it("gets no note in a shell's script, as a placeholder or in a password", () =>
    withTestFolder(
      {
        servers: {
          a: { command: "sh", args: ["-c", "echo $HOME"] },
          b: { command: "x", args: ["${env:HOME}", "$${HOME}", "$$HOME"] },
          c: { command: "x", env: { P: "Secret$WORD", Q: "$home" } },
        },
      },
      async (setup) => {
        assert.deepEqual(await notesOf(setup), []);
      },
    ));
});
