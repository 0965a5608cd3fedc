import assert from "node:assert/strict";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { run, runCommand, runJson, startOn } from "../harness/command.ts";
import { waitForStderr } from "../harness/controlled-servers.ts";
import { closeClient, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

interface Document {
  readonly ok: boolean;
  readonly files: readonly string[];
  readonly problems: readonly { readonly path: string; readonly message: string }[];
  readonly notes: readonly string[];
  readonly servers: readonly {
    readonly name: string;
    readonly state: string;
    readonly starts: boolean;
    readonly text: string;
  }[];
}

const check = (setup: TestFolder, ...args: string[]) => run(setup, "check", ...args);
const checkJson = (setup: TestFolder, ...args: string[]) =>
  runJson<Document>(setup, "check", ...args);

const COMMAND_LINE = { command: "npx -y foo" };
const UNSET = scripted("", { env: { A: "${env:NOT_SET_HERE}" } });
const OFF = scripted("", { enabled: false });

describe("check", () => {
  it("says where the manifest is and what it would start, without secrets, and starts nothing", () => {
    const args = ["--token", "hunter2", "x.mjs"];
    const a = scripted("", { env: { API_KEY: "hunter2" }, args });
    return withTestFolder({ servers: { a, needy: UNSET, off: OFF } }, async (setup) => {
      const { code, stdout, stderr } = await check(setup);
      assert.deepEqual([code, stderr], [0, ""]);
      assert.ok(stdout.includes(setup.config));
      assert.match(stdout, /\na +starts .*x\.mjs\nneedy .*\noff +disabled/);
      assert.match(stdout, /\n {2}needy: .*NOT_SET_HERE/);
      const json = await checkJson(setup);
      assert.deepEqual([json.code, json.ok, json.problems], [0, true, []]);
      assert.deepEqual(json.files, [setup.config]);
      assert.ok(!(stdout + JSON.stringify(json)).includes("hunter2"));
      assert.deepEqual(setup.log("a"), []);
    });
  });

  it("tells which secrets a server gets on its command line, and not of those in env", () => {
    const a = scripted("", { args: ["--token=${secret:work/token}"], env: { T: "${secret:b}" } });
    return withTestFolder({ servers: { a } }, async (setup) => {
      const { notes } = await checkJson(setup);
      const told = notes.filter((note) => note.includes("command line"));
      assert.equal(told.length, 1);
      assert.ok(told[0]?.includes("${secret:work/token}") && !told[0].includes("${secret:b}"));
    });
  });

  it("prints every problem on a line of its own with its place, as serve does, and ends with 2", () =>
    withTestFolder(
      '[servers.a]\ncomand = "x"\n\n[servers.b]\ncommand = "y"\ncallTimeout = "soon"\n\n[hub]\nnme = "x"\n',
      async (setup) => {
        const { stderr } = await check(setup);
        for (const place of ["2:1", "6:15", "9:1"])
          assert.ok(stderr.includes(`${setup.config}:${place}: `), stderr);
        const picture = ' 6 | callTimeout = "soon"\n   |               ^\n';
        assert.ok(stderr.includes(picture) && !stderr.includes("\u001b"), stderr);
        assert.match(stderr, /\ntoolmux: 3 problems; [^\n]+\n$/);
        for (const command of [["check"], ["serve"], []]) {
          const output = await run(setup, ...command);
          assert.deepEqual([output.code, output.stdout], [2, ""]);
          assert.match(output.stderr, /comand[^]*command[^]*callTimeout[^]*nme/);
        }
        const { code, ok, problems } = await checkJson(setup);
        assert.deepEqual([code, ok], [2, false]);
        const path = "servers.b.callTimeout";
        const { message = "", ...rest } = problems.find((problem) => problem.path === path) ?? {};
        assert.deepEqual(rest, { file: setup.config, line: 6, column: 15, path });
        assert.match(message, /expected a duration.*found "soon"$/);
      },
    ));

  it("counts a server as starting only if its process could start", () => {
    const servers = {
      good: scripted(),
      unset: UNSET,
      absent: { command: "no-such-mcp-server" },
      line: COMMAND_LINE,
      path: { command: "./no-such-file" },
      folder: scripted("", { cwd: "no-such-folder" }),
      denied: { command: "./toolmux.toml" },
      ftp: { url: "ftp://example.com/" },
      off: OFF,
    };
    return withTestFolder({ servers }, async (setup) => {
      const { ok, servers: all } = await checkJson(setup);
      assert.equal(ok, true);
      const found = all.map(({ name, state, starts }) => `${name} ${state} ${starts}`);
      assert.deepEqual(found, [
        "good starts true",
        "unset incomplete false",
        "absent fails false",
        "line fails false",
        "path fails false",
        "folder fails false",
        "denied fails false",
        "ftp incomplete false",
        "off disabled false",
      ]);
      const { code, stdout, stderr } = await check(setup);
      assert.deepEqual([code, stderr], [0, ""]);
      assert.match(stdout, /\n7 of 9 servers cannot start/);
      assert.doesNotMatch(stdout, /no problems/);
      for (const { name } of all.slice(1, -1))
        assert.match(stdout, new RegExp(`\\n  ${name}: `), name);
      assert.ok(!stdout.includes(setup.env["PATH"] ?? "?"), "PATH is printed");
      assert.deepEqual(setup.log("good"), []);
    });
  });

  it("takes a program as installed if only a plugin or a command knows its name", () =>
    withTestFolder(
      '[secrets]\ncommands = true\n[servers.a]\ncommand = "${cmd:echo true}"\n' +
        '[servers.b]\ncommand = "true"\ncwd = "${cmd:pwd}"\n',
      async (setup) => {
        const { servers } = await checkJson(setup);
        assert.ok(servers.length === 2 && servers.every(({ starts }) => starts));
      },
    ));

  it("exits with 3 under --strict if a server cannot start, and else with 0", () =>
    withTestFolder({ servers: { good: scripted(), bad: COMMAND_LINE } }, async (setup) => {
      for (const [expected, ...args] of [[0], [3, "--strict"], [3, "--strict", "--json"]] as const)
        assert.equal((await check(setup, ...args)).code, expected);
      writeFileSync(setup.config, '[servers.off]\ncommand = "npx -y foo"\nenabled = false\n');
      assert.equal((await check(setup, "--strict")).code, 0);
    }));

  it("says `no problems` only if a server would start", () =>
    withTestFolder("", async (setup) => {
      for (const [text, isFine] of [
        ["", false],
        ['[servers.a]\ncommand = "true"\nenabled = false\n', false],
        ['[servers.a]\ncommand = "no-such-mcp-server"\n', false],
        ['[servers.a]\ncommand = "true"\n', true],
        ['[[plugins]]\nuse = "schema-repair"\n', true],
      ] as const) {
        writeFileSync(setup.config, text);
        const { code, stdout } = await check(setup);
        assert.deepEqual([code, /no problems/.test(stdout)], [0, isFine], text);
      }
    }));

  it("shows the command of the first runner of a package that is installed", () =>
    withTestFolder('[servers.a]\npackage = "npm:foo"\n', async (setup) => {
      const bin = join(setup.dir, "bin");
      mkdirSync(bin);
      writeFileSync(join(bin, "bunx"), "#!/bin/sh\n", { mode: 0o755 });
      const find = async (PATH: string) =>
        (await checkJson({ ...setup, env: { ...setup.env, PATH } })).servers[0];
      const found = await find(bin);
      assert.deepEqual([found?.starts, found?.text], [true, "npm:foo, by bunx foo"]);
      assert.equal((await find(setup.dir))?.starts, false);
    }));
});

describe("a command that was written together with its arguments", () => {
  it("is shown apart by check, by status and when it is started", () =>
    withTestFolder({ servers: { a: COMMAND_LINE } }, async (setup) => {
      const advice = 'command = "npx", args = ["-y", "foo"]';
      assert.ok((await check(setup)).stdout.includes(advice));
      const [server] = (
        await runJson<{
          servers: { error: { code: string; message: string }; remedies: string[] }[];
        }>(setup, "status")
      ).servers;
      assert.equal(server?.error.code, "commandNotFound");
      assert.ok(server.error.message.includes(advice), server.error.message);
      assert.deepEqual(server.remedies, []);
      const client = startOn(setup);
      await client.initialize();
      await waitForStderr(client, /command = "npx", args = \["-y", "foo"\]/);
      await closeClient(client);
    }));

  it("may be the path of a program with a space in it", () =>
    withTestFolder({ servers: { a: { command: "./my server" } } }, async (setup) => {
      const file = join(setup.dir, "my server");
      writeFileSync(file, "#!/bin/sh\n");
      assert.equal((await checkJson(setup)).servers[0]?.state, "fails");
      chmodSync(file, 0o755);
      assert.equal((await checkJson(setup)).servers[0]?.state, "starts");
    }));

  it("does not show a secret among its arguments", () => {
    const a = { command: "npx foo --api-key hunter22 --token=hunter22" };
    const b = { command: "./no-such-program --api-key hunter22" };
    return withTestFolder({ servers: { a, b } }, async (setup) => {
      for (const command of ["check", "status", "list"]) {
        const { stdout, stderr } = await run(setup, command);
        assert.ok(!(stdout + stderr).includes("hunter22"), command);
      }
    });
  });
});

describe("a shell variable such as $HOME in a manifest", () => {
  const env = { FROM_SHELL: "x" };
  const notesOf = async (setup: TestFolder): Promise<readonly string[]> => {
    const args = ["check", "--json", "--config", setup.config];
    return (JSON.parse((await runCommand(setup, args, { env })).stdout) as Document).notes;
  };

  it("gets one note for each server, with the spelling that is replaced", () => {
    const args = ["$HOME/x", "$FROM_SHELL"];
    const servers = {
      a: { command: "$HOME/bin/foo", args, env: { A: "$NOT_SET" } },
      b: { url: "https://example.com/$HOME", headers: { A: "x" } },
      off: { command: "$HOME/x", enabled: false },
    };
    return withTestFolder({ servers }, async (setup) => {
      const notes = await notesOf(setup);
      const found = notes.map((note) => note.match(/server "\w+"|\$\{env:\w+\}/g));
      const a = ['server "a"', "${env:HOME}", "${env:FROM_SHELL}", "${env:NOT_SET}"];
      assert.deepEqual(found, [a, ['server "b"', "${env:HOME}"]]);
      const { stderr } = await runCommand(setup, ["list", "--config", setup.config], { env });
      for (const note of notes) assert.ok(stderr.includes(note), stderr);
    });
  });

  it("gets the note in JSON, too", () => {
    const file = '{"mcpServers": {"a": {"command": "x", "args": ["$HOME"]}}}';
    const checkNotes = async (setup: TestFolder): Promise<void> =>
      assert.match((await notesOf(setup)).join("\n"), /\$\{env:HOME\}/);
    return withTestFolder(file, checkNotes, "mcp.json");
  });

  it("gets no note in a shell's script, as a placeholder or in a password", () => {
    const servers = {
      a: { command: "sh", args: ["-c", "echo $HOME"] },
      b: { command: "x", args: ["${env:HOME}", "$${HOME}", "$$HOME"] },
      c: { command: "x", env: { P: "Secret$WORD", Q: "$home" } },
    };
    return withTestFolder({ servers }, async (setup) => {
      assert.deepEqual(await notesOf(setup), []);
    });
  });
});
