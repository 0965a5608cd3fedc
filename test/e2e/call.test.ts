import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, finishCommand, run, runCommand, startOn } from "../harness/command.ts";
import {
  EXIT_LIMIT,
  executable,
  it,
  itWith,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { publishedServer, scripted } from "../harness/manifest.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";

const SCRIPTED = { servers: { a: scripted() } };

const call = (setup: TestFolder, ...args: string[]): Promise<CommandOutput> =>
  run(setup, "call", ...args);

/** The calls that server `a` has received. */
const called = ({ log }: TestFolder) => log("a").filter(({ event }) => event === "call");

describe("call", () => {
  it("saves an image of a published server, never over another file", () =>
    withTestFolder({ servers: { e: publishedServer("everything") } }, async (setup) => {
      const shots = join(setup.dir, "shots");
      mkdirSync(shots);
      writeFileSync(join(shots, "image.png"), "mine");
      const saved = await call(setup, "e__get-tiny-image", "--output", "shots");
      assert.equal(saved.code, 0);
      assert.match(
        saved.stdout,
        /\n\[image: image\/png, \d KB\] saved as .*\/shots\/image-2\.png\n/,
      );
      assert.equal(readFileSync(join(shots, "image.png"), "utf8"), "mine");
      assert.match(readFileSync(join(shots, "image-2.png"), "latin1"), /^.PNG/);
    }));

  it("takes its arguments as pairs, from files, as JSON or from stdin, sends them as they are, and asks for no progress that nobody would see", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      writeFileSync(join(setup.dir, "words.txt"), "two\nlines\n");
      const json = '{ "n": 1.0, "big": 1234567890123456789 }';
      const pairs = ["word=hello", "n=1e2", "list=[1, 2]", "text=@words.txt", "more:=[1.0]"];
      for (const [args, input, sent] of [
        [pairs, "", '{"word":"hello","n":1e2,"list":[1, 2],"text":"two\\nlines\\n","more":[1.0]}'],
        [["--json", json], "", json],
        [["-"], '{\n  "n": 1.0\n}\n', '{   "n": 1.0 }'],
      ] as const) {
        const line = ["call", "a__echo", ...args, "--config", setup.config];
        const { code, stdout, stderr } = await runCommand(setup, line, { input });
        assert.deepEqual([code, stdout, stderr], [0, `${sent}\necho\n`, ""]);
        assert.equal(called(setup).at(-1)?.arguments, sent);
        assert.equal(called(setup).at(-1)?.meta, undefined);
      }
    }));

  it("prints the result as it came or its structured content if that is wanted", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      const { code, stdout } = await call(setup, "a__raw", "--raw");
      assert.equal(code, 0);
      const start = '{"structuredContent":{"z":1.0,"a":1234567890123456789,';
      assert.ok(stdout.startsWith(start), stdout);
      const structured = await call(setup, "a__echo", "n=1.0", "--structured");
      assert.deepEqual([structured.code, structured.stdout], [0, '{\n  "n": 1.0\n}\n']);
      const failed = await call(setup, "a__fail", "--structured");
      assert.deepEqual([failed.code, failed.stderr], [1, "no such thing\n"]);
      assert.deepEqual(
        called(setup).map((event) => event.arguments),
        ["{}", '{"n":1.0}', "{}"],
      );
    }));

  it("calls no tool if an argument does not fit, or it is unclear how its result is wanted and where", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      for (const [args, why] of [
        [["n=two"], /"n": expected a number, found "two"\./],
        [["text=@nowhere"], /nowhere for "text" \(ENOENT\)[^]*text=@@nowhere/],
        [["--raw", "--structured"], /Choose one of --raw and --structured/],
        [["--raw", "--output", "x"], /Choose one of --raw and --output/],
        [
          ["--output", setup.config],
          /--output: the folder cannot be made: .*\nTry: toolmux help call\n$/,
        ],
      ] as const) {
        const { code, stdout, stderr } = await call(setup, "a__echo", ...args);
        assert.deepEqual([code, stdout], [2, ""], args.join(" "));
        assert.match(stderr, why);
      }
      assert.deepEqual(called(setup), []);
    }));

  it("prints what failed on stderr alone, and ends with 1 for the tool, 2 for the name, 3 for the server, 124 for the time", () => {
    const off = scripted("", { enabled: false });
    const servers = { a: scripted(), broken: scripted("--exit-at-once"), off };
    return withTestFolder({ defaults: { callTimeout: "300ms" }, servers }, async (setup) => {
      for (const [name, code, stderr] of [
        ["a__fail", 1, /^no such thing\n$/],
        [
          "a__error",
          1,
          /error -32050: "café is closed"\n {2}\{"n":1\.0,"big":12345678901234567890\}/,
        ],
        ["a__eco", 2, /no tool "a__eco"\. Did you mean "a__echo"/],
        ["elsewhere__x", 2, /no tool "elsewhere__x"/],
        ["broken__x", 3, /"broken"[^]*cannot open the database/],
        ["off__echo", 3, /"off" is switched off/],
        ["a__hang", 124, /"hang".*did not finish/],
      ] as const) {
        const output = await run(setup, "call", name);
        assert.deepEqual([output.code, output.stdout], [code, ""], name);
        assert.match(output.stderr, stderr);
      }
    });
  });

  it("starts only the servers that can have the tool, also one whose name had to be shortened or changed", () => {
    const servers = {
      a: scripted("--bare --tool with.dot"),
      bare: scripted("--bare --tool a__like", { prefix: "" }),
      long: scripted(`--bare --tool ${"x".repeat(60)}`, { prefix: "p".repeat(45) }),
      other: scripted(),
    };
    return withTestFolder({ servers }, async (setup) => {
      assert.equal((await call(setup, "a__like")).code, 0);
      for (const server of ["a", "bare"]) assert.ok(setup.log(server).length > 0, server);
      for (const server of ["long", "other"]) assert.deepEqual(setup.log(server), []);
      const { stdout } = await run(setup, "list", "--json");
      const { tools } = JSON.parse(stdout) as { tools: { name: string }[] };
      const changed = tools.filter(({ name }) => /^(?:a__with|ppp)/.test(name));
      assert.equal(changed.length, 2);
      for (const { name } of changed) assert.equal((await call(setup, name)).code, 0, name);
    });
  });

  it("of a name that no tool has starts only the server of its prefix, which may have a new tool", () => {
    const servers = { a: scripted("--bare --tool one"), b: scripted("--bare --tool two") };
    return withTestFolder({ servers }, async (setup) => {
      const starts = () =>
        ["a", "b"].map((name) => setup.log(name).filter(({ event }) => event === "start").length);
      await run(setup, "list");
      for (const word of ["one", "x_one", "a_one"]) {
        const { code, stderr } = await call(setup, word);
        assert.equal(code, 2);
        assert.match(stderr, /"a__one"/);
      }
      assert.deepEqual(starts(), [1, 1]);
      assert.equal((await call(setup, "a__other")).code, 2);
      assert.deepEqual(starts(), [2, 1]);
    });
  });

  for (const [signal, code] of [
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const) {
    it(`tells the server when it is interrupted by ${signal}, and ends with ${code}`, () =>
      withTestFolder(SCRIPTED, async (setup) => {
        const command = startOn(setup, "call", "a__hang");
        await setup.waitForEvent("a", ({ event }) => event === "call");
        command.signal(signal);
        const output = await finishCommand(command);
        assert.deepEqual([output.code, output.stdout], [code, ""]);
        assert.ok(setup.log("a").some(({ event }) => event === "cancelled"));
      }));
  }

  it("can be interrupted while its server starts, and while it waits for stdin", () =>
    withTestFolder({ servers: { a: scripted("--start-delay 60000") } }, async (setup) => {
      const starting = startOn(setup, "call", "a__echo");
      await setup.waitForEvent("a", ({ event }) => event === "start");
      const waiting = startOn(setup, "call", "a__echo", "-");
      for (const command of [starting, waiting]) {
        command.signal("SIGINT");
        assert.equal((await finishCommand(command)).code, 130);
      }
    }));
});

describe("call in a terminal", () => {
  const test = itWith({ skip: skipWithoutTerminal });
  const callInTerminal = (setup: TestFolder, line: string) =>
    startInTerminal(setup, `'${executable()}' --config '${setup.config}' call ${line}`);

  test("shows progress in one line that is gone at the end", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      const terminal = callInTerminal(setup, "a__progress steps=2 ms=1");
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
      const line = "\r\u001b[K1/2 (50%) step 1 café\r\u001b[K2/2 (100%) step 2 café\r\u001b[K";
      const shown = shownBy(terminal);
      assert.ok(shown.includes(`${line}{"steps":2,"ms":1}\r\n`), JSON.stringify(shown));
    }));

  test("is ended by Ctrl-C, which its server is told", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      const terminal = callInTerminal(setup, "a__hang");
      await setup.waitForEvent("a", ({ event }) => event === "call");
      terminal.write("\u0003");
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 130);
      assert.ok(setup.log("a").some(({ event }) => event === "cancelled"));
    }));
});
