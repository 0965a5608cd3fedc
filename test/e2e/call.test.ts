import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
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

const EVERYTHING = { servers: { e: publishedServer("everything") } };
const SCRIPTED = { servers: { a: scripted() } };

/** Runs `toolmux call …`; what the server has to say on its way out is no concern of these tests. */
async function call(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  const output = await run(setup, "call", ...args);
  const farewell = /^toolmux: warn .*: Listing again failed: .*\n/gm;
  return { ...output, stderr: output.stderr.replace(farewell, "") };
}

/** The tools that server `a` was asked to call. */
const called = ({ log }: TestFolder) => log("a").filter(({ event }) => event === "call");

describe("call, on a server with schemas,", () => {
  it("sends numbers where those are wanted, and choices that there are", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const stdout = "The sum of 1.5 and 2 is 3.5.\n";
      const sum = await call(setup, "e__get-sum", "a=1.5", "b=2");
      assert.deepEqual(sum, { code: 0, stdout, stderr: "" });
      const args = ["location=New York", "--structured"];
      const weather = await call(setup, "e__get-structured-content", ...args);
      assert.equal(weather.code, 0);
      assert.match(weather.stdout, /^\{\n {2}"temperature": \d+,\n/);
      assert.doesNotThrow(() => void JSON.parse(weather.stdout));
    }));

  it("sends nothing if a value does not fit or is missing, and says what was expected", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const cities = '"New York", "Chicago", "Los Angeles"';
      for (const [args, expected] of [
        [["e__get-sum", "a=1", "b=two"], '"b": expected a number, found "two".'],
        [["e__get-sum", "a=1"], 'The tool needs "b" (a number).'],
        [
          ["e__get-structured-content", "location=Rome"],
          `"location": expected one of ${cities}, found "Rome"`,
        ],
      ] as const) {
        const { code, stdout, stderr } = await call(setup, ...args);
        assert.deepEqual([code, stdout], [2, ""], args.join(" "));
        assert.ok(stderr.includes(expected), stderr);
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
  it("takes its arguments as pairs, as JSON or from stdin, and sends them as they are", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      const json = '{ "n": 1.0, "big": 1234567890123456789 }';
      for (const [args, input, sent] of [
        [["word=hello", "n=1.0", "list=[1, 2]"], "", '{"word":"hello","n":1.0,"list":[1, 2]}'],
        [["--json", json], "", json],
        [["-"], '{\n  "n": 1.0\n}\n', '{   "n": 1.0 }'],
        [[], "", "{}"],
      ] as const) {
        const line = ["call", "a__echo", ...args, "--config", setup.config];
        const { code, stdout, stderr } = await runCommand(setup, line, { input });
        assert.deepEqual([code, stdout, stderr], [0, `${sent}\necho\n`, ""]);
        assert.equal(called(setup).at(-1)?.arguments, sent);
      }
    }));

  it("takes values from files in the working directory", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      writeFileSync(join(setup.dir, "words.txt"), "two\nlines\n");
      const { code } = await call(setup, "a__echo", "text=@words.txt", "list:=[1.0]", "n=1e2");
      assert.equal(code, 0);
      const sent = '{"text":"two\\nlines\\n","list":[1.0],"n":1e2}';
      assert.equal(called(setup)[0]?.arguments, sent);
      const missing = await call(setup, "a__echo", "text=@nowhere");
      assert.equal(missing.code, 2);
      assert.match(missing.stderr, /nowhere for "text" \(ENOENT\)[^]*text=@@nowhere/);
    }));

  it("prints the result as it came if that is wanted", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      const { code, stdout } = await call(setup, "a__raw", "--raw");
      assert.equal(code, 0);
      const start = '{"structuredContent":{"z":1.0,"a":1234567890123456789,';
      assert.ok(stdout.startsWith(start), stdout);
    }));

  it("does not call a tool of which it does not know how its result is wanted", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      for (const options of [["--structured"], ["--output", "x"]]) {
        const { code, stdout, stderr } = await call(setup, "a__echo", "--raw", ...options);
        assert.deepEqual([code, stdout], [2, ""]);
        assert.match(stderr, /Choose one of --raw and --/);
      }
      const { code, stderr } = await call(setup, "a__fail", "--structured");
      assert.deepEqual([code, stderr], [1, "no such thing\n"]);
      assert.equal(
        called(setup)
          .map(({ tool }) => tool)
          .join(),
        "fail",
      );
    }));

  it("does not call a tool if there cannot be a folder for what it yields", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      const { code, stdout, stderr } = await call(setup, "a__echo", "--output", setup.config);
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, /--output: the folder cannot be made: .*\nTry: toolmux help call\n$/);
      assert.deepEqual(called(setup), []);
    }));

  it("asks for no progress where nobody would see it", () =>
    withTestFolder(SCRIPTED, async (setup) => {
      assert.equal((await call(setup, "a__progress", "steps=3")).stderr, "");
      assert.equal(called(setup)[0]?.meta, undefined);
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
          /error -32050: café is closed\n {2}\{"n":1\.0,"big":12345678901234567890\}/,
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

  it("starts only the servers that can have the tool", () => {
    const bare = scripted("--bare --tool a__like", { prefix: "" });
    return withTestFolder(
      { servers: { a: scripted(), other: scripted(), bare } },
      async (setup) => {
        assert.equal((await call(setup, "a__like")).code, 0);
        assert.deepEqual(setup.log("other"), []);
        for (const server of ["a", "bare"]) assert.ok(setup.log(server).length > 0, server);
      },
    );
  });

  it("finds a tool whose name had to be shortened or changed", () => {
    const long = scripted(`--bare --tool ${"x".repeat(60)}`, { prefix: "p".repeat(45) });
    const odd = scripted("--bare --tool with.dot");
    return withTestFolder({ servers: { long, odd } }, async (setup) => {
      const { stdout } = await run(setup, "list", "--json");
      const { tools } = JSON.parse(stdout) as { tools: { name: string }[] };
      assert.equal(tools.length, 2);
      for (const { name } of tools) assert.equal((await call(setup, name)).code, 0, name);
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
    ["SIGINT", 130],
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
