import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { processTable } from "../../src/process/process-table.ts";
import { run, runCommand, runJson, startOn, waitUntilFound } from "../harness/command.ts";
import { waitForStderr } from "../harness/controlled-servers.ts";
import { closeClient, EXIT_LIMIT, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { waitUntil } from "../harness/wait.ts";

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
      assert.match(stdout, /\na +command found .*x\.mjs\nneedy .*\noff +disabled/);
      assert.match(stdout, /\n1 of 3 servers cannot start[^]*\n {2}needy: .*NOT_SET_HERE/);
      assert.doesNotMatch(stdout, /no problems/);
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

  it("exits with 3 if a command or a script is missing, and under --strict for any reason", () =>
    withTestFolder({ servers: { good: scripted(), bad: UNSET } }, async (setup) => {
      for (const [expected, ...args] of [[0], [3, "--strict"], [3, "--strict", "--json"]] as const)
        assert.equal((await check(setup, ...args)).code, expected);
      const lost = join(setup.dir, "lost.mjs");
      for (const entry of [
        'command = "npx -y foo"',
        'command = "no-such-mcp-server"',
        `command = "node"\nargs = ["--no-warnings", "${lost}"]`,
      ]) {
        writeFileSync(setup.config, `[servers.bad]\n${entry}\n`);
        for (const args of [[], ["--json"]]) assert.equal((await check(setup, ...args)).code, 3);
      }
      assert.ok((await check(setup)).stdout.includes(lost));
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
        const isLost = text.includes("no-such");
        assert.deepEqual([code, /no problems/.test(stdout)], [isLost ? 3 : 0, isFine], text);
      }
    }));
});

describe("doctor", () => {
  it("asks running hubs for failed servers, refused clients, and manifests that they have rejected", () => {
    const clients = '[[clients]]\nname = "ci"\ntoken = "${env:NOT_SET_HERE}"\n';
    const lost = '[servers.lost]\ncommand = "no-such-mcp-server"\n';
    return withTestFolder(`${lost}${clients}`, async (setup) => {
      const hub = startOn(setup, "serve", "--http", "127.0.0.1:0");
      await waitUntilFound(setup, hub.pid);
      interface Findings {
        readonly findings: readonly { readonly code: string; readonly subject: string }[];
      }
      const subjects = async (): Promise<ReadonlyMap<string, string>> => {
        const { findings } = await runJson<Findings>(setup, "doctor");
        return new Map(findings.map(({ code, subject }) => [code, subject]));
      };
      await run(setup, "call", "lost__x");
      const found = await subjects();
      for (const code of ["TM108", "TM201", "TM971", "TM973"]) assert.ok(found.has(code), code);
      assert.match(found.get("TM971") ?? "", /^toolmux \d+, lost$/);
      assert.match(found.get("TM973") ?? "", /client ci$/);
      const alerts = await run(setup, "alerts");
      assert.match(alerts.stdout, /client ci: clientRefused/);
      writeFileSync(setup.config, "[servers.lost]\ncomand = 1\n[hub]\nx = 1\n");
      await run(setup, "reload");
      assert.ok((await subjects()).has("TM974"));
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    });
  });
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

  it("gets its note from check and from list", () => {
    const servers = { a: { command: "$HOME/bin/foo", args: ["$HOME/x", "$FROM_SHELL"] } };
    return withTestFolder({ servers }, async (setup) => {
      const notes = await notesOf(setup);
      assert.equal(notes.length, 1);
      const { stderr } = await runCommand(setup, ["list", "--config", setup.config], { env });
      for (const note of notes) assert.ok(stderr.includes(note), stderr);
    });
  });
});

describe("toolmux check that computes", () => {
  const servers = Array.from(
    { length: 30_000 },
    (_, at) => `[servers.s${at}]\ncommand = "node"\nenv = { KEY = "\${secret:k${at}}" }\n`,
  );

  for (const signal of ["SIGTERM", "SIGINT"] as const)
    it(`is ended by ${signal} at once`, () =>
      withTestFolder(servers.join("\n"), async (setup) => {
        const command = startOn(setup, "check");
        await waitUntil("the work", async () => (await cpuTimeOf(command.pid)) > 300 || undefined);
        command.signal(signal);
        const { code, signal: by } = await command.waitForExit(2000);
        assert.ok(by === signal || (code ?? 0) > 128, `${code} ${by}`);
        assert.equal(command.stderr, "");
      }));
});

/** The processor time that a process has used, in ms. */
async function cpuTimeOf(pid = 0): Promise<number> {
  const found = await processTable.find(pid);
  const [usage] = await processTable.usage([{ pid, started: found?.started ?? "" }]);
  return usage?.cpu ?? 0;
}
