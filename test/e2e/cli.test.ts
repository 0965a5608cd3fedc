import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { describe } from "node:test";
import { type CommandOutput, finishCommand, run, runCommand } from "../harness/command.ts";
import { executable, EXIT_LIMIT, it, itWith, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";
import { waitUntil } from "../harness/wait.ts";

/** The first request of a client. */
const INITIALIZE = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: {
    protocolVersion: "2025-06-18",
    capabilities: {},
    clientInfo: { name: "test", version: "1" },
  },
});

describe("any command", () => {
  it("ends without a stack trace if nobody reads its output", () =>
    withTestFolder({ servers: { a: scripted("--bare --tool one") } }, async (setup) => {
      const commands = [
        "help",
        "schema",
        "list",
        "list --json",
        "check",
        "ps",
        "call a__one",
        "lst",
      ];
      const lines = commands.flatMap((command) => {
        const config = ["help", "schema", "ps", "lst"].includes(command) ? "" : "--config $C";
        const line = `$T ${config} ${command}`;
        return [`${line} | head -0`, `${line} 2>&1 >/dev/null | head -0`, `${line} >&- 2>&1`];
      });
      const env = { T: executable(), C: setup.config };
      const shell = new RawClient("/bin/sh", ["-c", lines.join("\n")], setup.dir, {
        ...setup.env,
        ...env,
      });
      // It runs two dozen commands.
      await shell.waitForExit(5 * EXIT_LIMIT);
      assert.doesNotMatch(shell.stderr, /^ +at |EPIPE|EBADF|Error:/m);
    }));

  it("that is wrong is explained on stderr alone, and ends with 2", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      for (const [topic, ...args] of [
        ["", "lst"],
        [" list", "list", "--jsn"],
        [" call", "call"],
        ["", "--log-level", "loud"],
      ] as const) {
        const { code, stdout, stderr } = await run(setup, ...args);
        assert.deepEqual([code, stdout], [2, ""], args.join(" "));
        assert.match(stderr, new RegExp(`^toolmux: .+\nTry: toolmux help${topic}\n$`));
      }
      assert.deepEqual(setup.log("a"), [], "and nothing was started");
    }));

  it("that is wrong is also one JSON document on stdout where JSON is wanted", () =>
    withTestFolder('[servers.a]\ncommand = "x"\n[hub\n', async (setup) => {
      for (const [expected, line] of [
        ["usage", "list --json --bogus"],
        ["usage", "--json list --log-level loud"],
        ["usage", "status --json --log-level loud"],
        ["usage", "search --json"],
        ["usage", "bench --json --calls none"],
        ["usage", "add x --json --url http://127.0.0.1:1/ --command x"],
        ["usage", "auth login --json"],
        ["usage", "secret --json set"],
        ["usage", "import --json nobody"],
        ["usage", "install --json nobody"],
        ["manifestInvalid", "list --json"],
        ["manifestInvalid", "status --json --log-format json"],
      ] as const) {
        const { code, stdout, stderr } = await run(setup, ...line.split(" "));
        assert.equal(code, 2, line);
        const { error } = JSON.parse(stdout) as { error: { code: string; message: string } };
        assert.equal(error.code, expected, line);
        const [first = ""] = error.message.split("\n");
        if (line.includes("--log-format json")) assert.ok(stderr.startsWith("{"), stderr);
        else assert.ok(stderr.includes(first), stderr);
      }
      for (const line of ["call a__x --json {", "lst --json", "list --bogus -- --json"]) {
        const args = ["--config", setup.config, ...line.split(" ")];
        const { code, stdout } = await runCommand(setup, args);
        assert.deepEqual([code, stdout], [2, ""], line);
      }
    }));

  it("whose output cannot be written says so and ends with 1, and whose reader has left ends silently with 141", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const inShell = (script: string): Promise<CommandOutput> =>
        finishCommand(new RawClient("sh", ["-c", script, executable()], setup.dir, setup.env));
      const config = `--config '${setup.config}'`;
      for (const line of ["help", `list ${config}`, `check ${config}`, `list ${config} --json`]) {
        const full = await inShell(`"$0" ${line} >/dev/full`);
        assert.deepEqual([full.code, full.stdout], [1, ""], line);
        assert.match(full.stderr, /^toolmux: The output could not be written to stdout: ENOSPC/m);
        const left = await inShell(`{ sleep 0.1; "$0" ${line}; echo "code $?" >&2; } | true`);
        assert.equal(left.stderr, "code 141\n", line);
      }
      const hub = await inShell(`echo '${INITIALIZE}' | "$0" ${config} >/dev/full`);
      assert.equal(hub.code, 1);
      assert.match(hub.stderr, /^toolmux: The output could not be written to stdout: ENOSPC/m);
      const left = await inShell(
        `{ echo '${INITIALIZE}' | "$0" ${config}; echo "code $?" >&2; } | true`,
      );
      assert.equal(left.stderr, "code 0\n");
    }));

  it("asks for help and version with 0, on stdout alone", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      for (const line of [
        "help",
        "-h",
        "help call",
        "call --help",
        "--version",
        "-V",
        "-v",
        "version",
      ]) {
        const { code, stdout, stderr } = await runCommand(setup, line.split(" "));
        assert.deepEqual([code, stderr], [0, ""], line);
        assert.match(stdout, line.endsWith("ersion") ? /toolmux \d+\.\d+\.\d+/ : /toolmux/);
      }
    }));
});

describe("internal", () => {
  it("is not listed, and refused with 2 unless toolmux itself starts it", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      for (const args of [
        [],
        ["other"],
        ["demo-server", "other"],
        ["echo-server", "more"],
        ["stdio-proxy"],
        ["stdio-proxy", setup.dir, "soon", "true"],
      ]) {
        const { code, stdout } = await runCommand(setup, ["internal", ...args]);
        assert.deepEqual([code, stdout], [2, ""], args.join(" "));
      }
      assert.ok(!(await runCommand(setup, ["help"])).stdout.includes("internal"));
    }));
});

describe("edit", () => {
  itWith({ skip: skipWithoutTerminal })(
    "shows what is wrong in a saved manifest, and opens the editor again until it is right",
    () =>
      withTestFolder('[servers.a]\ncommand = "x"\n', async (setup) => {
        const editor = `${setup.dir}/my editor`;
        const script = [
          "#!/bin/sh",
          `if grep -q wrong "$2"; then sed -i '/wrong/d' "$2"; else echo 'wrong = ' >>"$2"; fi`,
        ];
        writeFileSync(editor, script.join("\n"), { mode: 0o755 });
        const line = `'${executable()}' edit --config '${setup.config}'`;
        const terminal = startInTerminal(setup, line, { VISUAL: `'${editor}' --wait` });
        const isAsked = (): boolean => shownBy(terminal).includes("Edit again? [Y/n]");
        await waitUntil("the question", () => Promise.resolve(isAsked() || undefined));
        assert.match(shownBy(terminal), /wrong has no value/);
        terminal.write("y\n");
        assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
        assert.match(shownBy(terminal), /no problems; saved/);
        assert.equal(readFileSync(setup.config, "utf8"), '[servers.a]\ncommand = "x"\n');
      }),
  );
});
