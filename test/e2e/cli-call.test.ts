import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import type { CommandOutput } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  executable,
  it,
  itWith,
  withTestFolder,
} from "../harness/hub.ts";
import { publishedServer, scripted } from "../harness/manifest.ts";

/** Runs `toolmux call …` on the stage's manifest to its end. */
async function call(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  const line = ["call", ...args, "--config", setup.config];
  const command = new RawClient(executable(), line, setup.dir, setup.env);
  command.end();
  const { code } = await command.waitForExit(EXIT_LIMIT);
  const stdout = [...command.lines.map(({ text }) => text), command.unterminatedOutput].join("\n");
  // What this server has to say on its way out is no concern of these tests.
  const stderr = command.stderr.replace(/^toolmux: warn .*: Listing again failed: .*\n/gm, "");
  return { code, stdout, stderr };
}

const EVERYTHING = { servers: { e: publishedServer("everything") } };

describe("call, on a server with schemas,", () => {
  it("sends numbers where those are wanted, and choices that there are", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      assert.deepEqual(await call(setup, "e__get-sum", "a=1.5", "b=2"), {
        code: 0,
        stdout: "The sum of 1.5 and 2 is 3.5.\n",
        stderr: "",
      });
      const { code, stdout } = await call(
        setup,
        "e__get-structured-content",
        "location=New York",
        "--structured",
      );
      assert.equal(code, 0);
      assert.equal(typeof (JSON.parse(stdout) as { temperature?: unknown }).temperature, "number");
      assert.match(stdout, /^\{\n {2}"temperature": \d+,\n/);
    }));

  it("sends nothing if a value does not fit or is missing, and says what was expected", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const wrong: [args: string[], stderr: RegExp][] = [
        [["e__get-sum", "a=1", "b=two"], /"b": expected a number, found "two"\./],
        [["e__get-sum", "a=1"], /The tool needs "b" \(a number\)\./],
        [
          ["e__get-structured-content", "location=Rome"],
          /"location": expected one of "New York", "Chicago", "Los Angeles", found "Rome"/,
        ],
      ];
      for (const [args, expected] of wrong) {
        const { code, stdout, stderr } = await call(setup, ...args);
        assert.deepEqual([code, stdout], [2, ""], args.join(" "));
        assert.match(stderr, expected);
      }
    }));

  it("describes an image, or saves it where that is wanted, and never over another file", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const { stdout } = await call(setup, "e__get-tiny-image");
      assert.match(stdout, /\n\[image: image\/png, \d KB\]\n/);
      for (const name of ["image.png", "image-2.png"]) {
        const saved = await call(setup, "e__get-tiny-image", "--output", "shots");
        assert.equal(saved.code, 0);
        assert.match(saved.stdout, new RegExp(`KB\\] saved as .*/shots/${name}\\n`));
        const bytes = readFileSync(join(setup.dir, "shots", name));
        assert.equal(bytes.subarray(1, 4).toString(), "PNG");
      }
      assert.equal(readdirSync(join(setup.dir, "shots")).length, 2);
      const links = await call(setup, "e__get-resource-links", "count=2");
      assert.match(links.stdout, /\n\[link: demo:\/\/resource\/\S+ \(.*\)/);
    }));
});

describe("call", () => {
  it("does not call a tool of which it does not know how its result is wanted", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      for (const options of [
        ["--raw", "--structured"],
        ["--raw", "--output", "x"],
      ]) {
        const { code, stdout, stderr } = await call(setup, "a__echo", ...options);
        assert.deepEqual([code, stdout], [2, ""]);
        assert.match(stderr, /Choose one of --raw and --/);
      }
      const { code, stderr } = await call(setup, "a__fail", "--structured");
      assert.deepEqual([code, stderr], [1, "no such thing\n"]);
      assert.deepEqual(
        setup.log("a").flatMap(({ tool }) => tool ?? []),
        ["fail"],
      );
    }));

  it("does not call a tool if there cannot be a folder for what it yields", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const { code, stdout, stderr } = await call(setup, "a__echo", "--output", setup.config);
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, /--output: the folder cannot be made: .*\nTry: toolmux help call\n$/);
      assert.ok(!setup.log("a").some(({ event }) => event === "call"));
    }));

  it("takes values from files in the working directory", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      writeFileSync(join(setup.dir, "words.txt"), "two\nlines\n");
      const { code } = await call(setup, "a__echo", "text=@words.txt", "list:=[1.0]", "n=1e2");
      assert.equal(code, 0);
      const sent = setup.log("a").find(({ event }) => event === "call")?.arguments;
      assert.equal(sent, '{"text":"two\\nlines\\n","list":[1.0],"n":1e2}');
      const missing = await call(setup, "a__echo", "text=@nowhere");
      assert.equal(missing.code, 2);
      assert.match(missing.stderr, /nowhere for "text" \(ENOENT\)[^]*text=@@nowhere/);
    }));

  it("asks for no progress where nobody would see it", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const { stderr } = await call(setup, "a__progress", "steps=3");
      assert.equal(stderr, "");
      assert.equal(setup.log("a").find(({ event }) => event === "call")?.meta, undefined);
    }));
});

const skip =
  process.platform === "linux" && existsSync("/usr/bin/script")
    ? false
    : "there is no script(1) of util-linux here, so terminals are NOT tested";
const test = itWith({ skip });

/** Runs a command line of toolmux in a terminal of its own; what it shows is the stdout of the client. */
function inTerminal(setup: TestFolder, line: string): RawClient {
  const command = `'${executable()}' --config '${setup.config}' ${line}`;
  const env = { ...setup.env, TERM: "xterm", SHELL: "/bin/sh" };
  return new RawClient("script", ["-qec", command, "/dev/null"], setup.dir, env);
}

const shownBy = (terminal: RawClient): string =>
  [...terminal.lines.map(({ text }) => text), terminal.unterminatedOutput].join("\n");

describe("in a terminal", () => {
  test("call shows progress in one line that is gone at the end", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const terminal = inTerminal(setup, "call a__progress steps=2 ms=1");
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
      const shown = shownBy(terminal);
      const line = "\r\u001b[K1/2 (50%) step 1 café\r\u001b[K2/2 (100%) step 2 café\r\u001b[K";
      assert.ok(shown.includes(`${line}{"steps":2,"ms":1}\r\n`), JSON.stringify(shown));
    }));

  test("call is ended by Ctrl-C, which its server is told", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const terminal = inTerminal(setup, "call a__hang");
      await setup.waitForEvent("a", ({ event }) => event === "call");
      terminal.write("\u0003");
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 130);
      assert.ok(setup.log("a").some(({ event }) => event === "cancelled"));
    }));

  test("serve says what it is and how to connect a client, and ends on Ctrl-C", () =>
    withTestFolder({ servers: { a: scripted(), b: scripted() } }, async (setup) => {
      const terminal = inTerminal(setup, "");
      await terminal.until(
        EXIT_LIMIT,
        "how to end it",
        () => shownBy(terminal).includes("Ctrl-C") || undefined,
      );
      const shown = shownBy(terminal).replaceAll("\r", "");
      assert.match(shown, /^toolmux serves 2 servers on stdin and stdout/);
      const entry = JSON.parse(/^\{\n[^]*?\n\}$/m.exec(shown)?.[0] ?? "") as {
        mcpServers: { toolmux: { command: string; args: string[] } };
      };
      assert.deepEqual(entry.mcpServers.toolmux, {
        command: executable(),
        args: ["serve", "--config", setup.config],
      });
      terminal.write("\u0003");
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 130);
      assert.deepEqual(setup.log("a"), [], "nothing was started, as no client has come");
    }));

  test("tables have colours unless NO_COLOR is set, and are cut at the terminal's width", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const show = async (before: string): Promise<string> => {
        const line = `${before} '${executable()}' list --config '${setup.config}'`;
        const terminal = new RawClient("script", ["-qec", line, "/dev/null"], setup.dir, {
          ...setup.env,
          TERM: "xterm",
          SHELL: "/bin/sh",
        });
        assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
        // Before it there is the line of progress, which was erased.
        return shownBy(terminal).split("\r\u001b[K").at(-1) ?? "";
      };
      assert.ok((await show("stty cols 24;")).includes("\u001b[2mTOOL"));
      const plain = await show("stty cols 24; NO_COLOR=1");
      assert.ok(!plain.includes("\u001b"));
      const lines = plain.split("\r\n").filter((line) => line.startsWith("a__"));
      assert.ok(lines.length > 5 && lines.every((line) => line.length <= 24), plain);
    }));
});
