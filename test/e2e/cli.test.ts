import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  closeSync,
  openSync,
  readFileSync,
  realpathSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, finishCommand, runCommand } from "../harness/command.ts";
import { stateFolder } from "../../src/base/paths.ts";
import { isTrusted } from "../../src/manifest/trust.ts";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { pidsWithEnv, waitUntilExited } from "../harness/processes.ts";

/** Starts a command in the stage's folder. */
function start(setup: TestFolder, args: readonly string[]): RawClient {
  return new RawClient(executable(), args, setup.dir, setup.env);
}

function run(setup: TestFolder, args: readonly string[], input = ""): Promise<CommandOutput> {
  return runCommand(setup, args, { input });
}

/** Runs a command on the stage's manifest. */
function use(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  return run(setup, ["--config", setup.config, ...args]);
}

const INITIALIZE = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "raw", version: "1" },
  },
});

const BROKEN = scripted("--exit-at-once");

describe("any command", () => {
  it("that is wrong is explained on stderr alone, and ends with 2", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      for (const [topic, ...args] of [
        ["", "lst"],
        [" list", "list", "--jsn"],
        [" call", "call"],
        ["", "--log-level", "loud"],
      ] as const) {
        const { code, stdout, stderr } = await use(setup, ...args);
        assert.equal(code, 2, args.join(" "));
        assert.equal(stdout, "");
        assert.match(stderr, new RegExp(`^toolmux: .+\nTry: toolmux help${topic}\n$`));
      }
      assert.deepEqual(setup.log("a"), [], "and nothing was started");
    }));

  it("that is wrong is also one JSON document on stdout where JSON is wanted", () =>
    withTestFolder('[servers.a]\ncommand = "x"\n[hub\n', async (setup) => {
      for (const [expected, ...args] of [
        ["usage", "list", "--json", "--bogus"],
        ["usage", "--json", "list", "--log-level", "loud"],
        ["usage", "status", "--json", "--log-level", "loud"],
        ["usage", "search", "--json"],
        ["usage", "bench", "--json", "--calls", "none"],
        ["usage", "add", "x", "--json", "--url", "http://127.0.0.1:1/", "--command", "x"],
        ["usage", "auth", "login", "--json"],
        ["usage", "secret", "--json", "set"],
        ["usage", "import", "--json", "nobody"],
        ["usage", "install", "--json", "nobody"],
        ["manifestInvalid", "list", "--json"],
        ["manifestInvalid", "status", "--json", "--log-format", "json"],
      ] as const) {
        const { code, stdout, stderr } = await use(setup, ...args);
        assert.equal(code, 2, args.join(" "));
        const { error } = JSON.parse(stdout) as { error: { code: string; message: string } };
        assert.equal(error.code, expected, args.join(" "));
        const [first = ""] = error.message.split("\n");
        const isText = !args.some((word) => word === "json");
        if (isText) assert.ok(stderr.includes(first), stderr);
        else assert.ok(stderr.startsWith("{"), stderr);
      }
      for (const args of [
        ["call", "a__x", "--json", "{"],
        ["lst", "--json"],
        ["list", "--bogus", "--", "--json"],
      ]) {
        const { code, stdout } = await use(setup, ...args);
        assert.deepEqual([code, stdout], [2, ""], args.join(" "));
      }
    }));

  it("asks for help and version with 0, on stdout alone", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      for (const args of [
        ["help"],
        ["-h"],
        ["help", "call"],
        ["call", "--help"],
        ["--version"],
        ["-V"],
        ["-v"],
      ]) {
        const { code, stdout, stderr } = await run(setup, args);
        assert.equal(code, 0, args.join(" "));
        assert.match(stdout, /toolmux/);
        assert.equal(stderr, "");
      }
    }));
});

describe("list", () => {
  it("prints the tools on stdout, plain, and on stderr why a server has none", () =>
    withTestFolder(
      { servers: { a: scripted("--bare --tool only"), broken: BROKEN } },
      async (setup) => {
        const { code, stdout, stderr } = await use(setup, "list");
        assert.equal(code, 0);
        assert.match(stdout, /^TOOL +SERVER +DESCRIPTION\na__only +a\b/);
        assert.ok(!stdout.includes("broken") && !stdout.includes("\u001b"));
        assert.match(
          stderr,
          /^toolmux: .*"broken".*exited with code 3.*cannot open the database.*\n.*toolmux status\n$/,
        );
      },
    ));

  it("gives programs the tools as clients get them, byte for byte", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const { stdout } = await use(setup, "list", "--json");
      const { tools } = JSON.parse(stdout) as { tools: { name: string }[] };
      assert.ok(tools.some(({ name }) => name === "a__echo"));
      assert.ok(stdout.includes('"x-order":{"b":1.0,"a":1234567890123456789}'));
    }));

  it("says of each server how it stands", () =>
    withTestFolder(
      {
        servers: {
          a: scripted("--bare --tool only"),
          broken: BROKEN,
          off: { ...BROKEN, enabled: false },
        },
      },
      async (setup) => {
        const table = await use(setup, "list", "servers", "--fresh");
        assert.match(
          table.stdout,
          /a +connected +1\nbroken +failed .*cannot open.*\noff +disabled/,
        );
        const { code, stdout } = await use(setup, "list", "servers", "--fresh", "--json");
        assert.equal(code, 0);
        const [a, broken, off] = (JSON.parse(stdout) as { servers: Record<string, unknown>[] })
          .servers;
        assert.deepEqual(a, {
          name: "a",
          state: "connected",
          tools: 1,
          era: "legacy",
          protocolVersion: "2025-11-25",
        });
        assert.deepEqual(off, { name: "off", state: "disabled" });
        const { error, ...rest } = broken as { error: Record<string, unknown> };
        assert.deepEqual(rest, { name: "broken", state: "failed" });
        assert.equal(error["code"], "connectionLost");
        assert.equal(error["step"], "handshake");
        assert.match(JSON.stringify(error["stderr"]), /cannot open the database/);
      },
    ));

  it("ends with 3 if all servers have failed, and with 0 if there are none", () =>
    withTestFolder(
      { servers: { broken: BROKEN, missing: { command: "no-such-command" } } },
      async (setup) => {
        const { code, stdout, stderr } = await use(setup, "list");
        assert.deepEqual([code, stdout], [3, ""]);
        assert.match(stderr, /cannot open the database[^]*"no-such-command"/);
        assert.equal((await use(setup, "list", "--json")).code, 3);
      },
    ).then(() =>
      withTestFolder({ servers: { off: { ...BROKEN, enabled: false } } }, async (setup) => {
        assert.deepEqual(await use(setup, "list"), {
          code: 0,
          stdout: "0 tools of 0 servers\n",
          stderr: "",
        });
      }),
    ));
});

describe("call", () => {
  it("takes its arguments as pairs, as JSON or from stdin", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const forms: [args: string[], input: string, sent: string][] = [
        [["word=hello", "n=1.0", "list=[1, 2]"], "", '{"word":"hello","n":1.0,"list":[1, 2]}'],
        [
          ["--json", '{ "n": 1.0, "big": 1234567890123456789 }'],
          "",
          '{ "n": 1.0, "big": 1234567890123456789 }',
        ],
        [["-"], '{\n  "n": 1.0\n}\n', '{   "n": 1.0 }'],
        [[], "", "{}"],
      ];
      for (const [args, input, sent] of forms) {
        const { code, stdout, stderr } = await run(
          setup,
          ["call", "a__echo", ...args, "--config", setup.config],
          input,
        );
        assert.deepEqual([code, stderr], [0, ""], args.join(" "));
        assert.equal(stdout, `${sent}\necho\n`);
        assert.equal(setup.log("a").findLast(({ event }) => event === "call")?.arguments, sent);
      }
    }));

  it("prints the result as it came if that is wanted", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const { code, stdout } = await use(setup, "call", "a__raw", "--raw");
      assert.equal(code, 0);
      assert.ok(
        stdout.startsWith('{"structuredContent":{"z":1.0,"a":1234567890123456789,'),
        stdout,
      );
    }));

  it("prints what failed on stderr alone", () =>
    withTestFolder(
      { servers: { a: scripted(), broken: BROKEN, off: { ...scripted(), enabled: false } } },
      async (setup) => {
        const failures: [name: string, code: number, stderr: RegExp][] = [
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
        ];
        for (const [name, code, stderr] of failures) {
          const output = await use(setup, "call", name);
          assert.deepEqual([output.code, output.stdout], [code, ""], name);
          assert.match(output.stderr, stderr);
        }
      },
    ));

  it("starts only the servers that can have the tool", () =>
    withTestFolder(
      {
        servers: {
          a: scripted(),
          other: scripted(),
          bare: scripted("--bare --tool a__like", { prefix: "" }),
        },
      },
      async (setup) => {
        assert.equal((await use(setup, "call", "a__like")).code, 0);
        assert.deepEqual(setup.log("other"), []);
        for (const server of ["a", "bare"]) assert.ok(setup.log(server).length > 0, server);
      },
    ));

  it("finds a tool whose name had to be shortened or changed", () =>
    withTestFolder(
      {
        servers: {
          long: scripted(`--bare --tool ${"x".repeat(60)}`, { prefix: "p".repeat(45) }),
          odd: scripted("--bare --tool with.dot"),
        },
      },
      async (setup) => {
        const { stdout } = await use(setup, "list", "--json");
        const { tools } = JSON.parse(stdout) as { tools: { name: string }[] };
        assert.equal(tools.length, 2);
        for (const { name } of tools) assert.equal((await use(setup, "call", name)).code, 0, name);
      },
    ));

  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const) {
    it(`tells the server when it is interrupted by ${signal}, and ends with ${code}`, () =>
      withTestFolder({ servers: { a: scripted() } }, async (setup) => {
        const command = start(setup, ["call", "a__hang", "--config", setup.config]);
        await setup.waitForEvent("a", ({ event }) => event === "call");
        command.signal(signal);
        const output = await finishCommand(command);
        assert.deepEqual([output.code, output.stdout], [code, ""]);
        assert.ok(setup.log("a").some(({ event }) => event === "cancelled"));
      }));
  }

  it("can be interrupted while its server starts, and while it waits for stdin", () =>
    withTestFolder({ servers: { a: scripted("--start-delay 60000") } }, async (setup) => {
      const starting = start(setup, ["call", "a__echo", "--config", setup.config]);
      await setup.waitForEvent("a", ({ event }) => event === "start");
      const waiting = start(setup, ["call", "a__echo", "-", "--log-level", "debug"]);
      starting.signal("SIGINT");
      assert.equal((await finishCommand(starting)).code, 130);
      waiting.signal("SIGINT");
      assert.equal((await finishCommand(waiting)).code, 130);
    }));
});

describe("check", () => {
  it("says where the manifest is and what it would start, without secrets, and starts nothing", () =>
    withTestFolder(
      {
        servers: {
          a: scripted("", { env: { API_KEY: "hunter2" }, args: ["--token", "hunter2", "x.mjs"] }),
          needy: scripted("", { env: { WANTED: "${env:NOT_SET_HERE}" } }),
          off: { ...scripted(), enabled: false },
        },
      },
      async (setup) => {
        const { code, stdout, stderr } = await use(setup, "check");
        assert.deepEqual([code, stderr], [0, ""]);
        assert.ok(stdout.includes(setup.config));
        assert.match(stdout, /\na +starts .*x\.mjs\nneedy .*\noff +disabled/);
        assert.match(stdout, /\n {2}needy: .*NOT_SET_HERE/);
        const json = await use(setup, "check", "--json");
        const document = JSON.parse(json.stdout) as Record<string, unknown>;
        assert.deepEqual([json.code, document["ok"], document["problems"]], [0, true, []]);
        assert.deepEqual(document["files"], [setup.config]);
        assert.ok(!(stdout + json.stdout).includes("hunter2"));
        assert.deepEqual(setup.log("a"), []);
      },
    ));

  it("prints every problem on a line of its own with its place, and ends with 2", () =>
    withTestFolder(
      '[servers.a]\ncomand = "x"\n\n[servers.b]\ncommand = "y"\ncallTimeout = "soon"\n',
      async (setup) => {
        const { code, stdout, stderr } = await use(setup, "check");
        assert.deepEqual([code, stdout], [2, ""]);
        const places = stderr
          .split("\n")
          .map((line) => line.replace(`${setup.config}:`, "").split(": ")[0]);
        assert.ok(places.includes("2:1") && places.includes("6:15"), stderr);
        const picture = ' 6 | callTimeout = "soon"\n   |               ^\n';
        assert.ok(stderr.includes(picture) && !stderr.includes("\u001b"), stderr);
        assert.match(stderr, /\ntoolmux: 2 problems; [^\n]+\n$/);
        const json = await use(setup, "check", "--json");
        assert.equal(json.code, 2);
        const { ok, problems } = JSON.parse(json.stdout) as {
          ok: boolean;
          problems: { path: string; message: string }[];
        };
        assert.equal(ok, false);
        const { message, ...rest } = problems.at(-1) ?? { message: "" };
        const path = "servers.b.callTimeout";
        assert.deepEqual(rest, { file: setup.config, line: 6, column: 15, path });
        assert.match(message, /expected a duration.*found "soon"$/);
      },
    ));
});

describe("serve", () => {
  it("tells in one line each which servers failed and what stray output there was, by level", () =>
    withTestFolder({ servers: { a: scripted(), broken: BROKEN } }, async (setup) => {
      const reported = async (level: string, wanted: RegExp): Promise<string> => {
        const client = start(setup, ["--config", setup.config, "--log-level", level]);
        await client.initialize();
        await client.request("tools/list");
        await client.until(EXIT_LIMIT, String(wanted), () =>
          wanted.test(client.stderr) ? true : undefined,
        );
        client.end();
        return (await finishCommand(client)).stderr;
      };
      const failure = /^toolmux: warn broken: .*code 3.*cannot open the database.*\n/m;
      assert.match(await reported("warn", failure), /^toolmux: warn broken: [^\n]*\n$/);
      assert.match(
        await reported("info", failure),
        /^toolmux: info broken: cannot open the database/m,
      );
      assert.equal(await reported("error", /^/), "");
    }));

  it("says which servers of a client's file it cannot use, and serves the others", () =>
    withTestFolder(
      '{"mcpServers":{"far":{"type":"ws","url":"wss://example.com/mcp"}}}',
      async (setup) => {
        const client = start(setup, ["--config", setup.config]);
        await client.initialize();
        await client.until(5000, "a word on the server", () =>
          /warn far: this server cannot be used: /.test(client.stderr) ? true : undefined,
        );
        client.end();
        assert.equal((await finishCommand(client)).code, 0);
        const { code, stdout } = await use(setup, "list", "servers", "--fresh");
        assert.equal(code, 3);
        assert.match(stdout, /far +failed/);
      },
      "mcp.json",
    ));

  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const) {
    it(`ends with ${code} on ${signal}, and with 0 when the client leaves`, () =>
      withTestFolder({ servers: { a: scripted() } }, async (setup) => {
        const reported = start(setup, ["--config", setup.config]);
        await reported.initialize();
        reported.signal(signal);
        const left = start(setup, ["serve", "--config", setup.config]);
        await left.initialize();
        left.end();
        assert.deepEqual(
          [(await finishCommand(reported)).code, (await finishCommand(left)).code],
          [code, 0],
        );
      }));
  }
});

describe("serve, when nobody tells it to end,", () => {
  it("ends with its parent, although its stdin and stdout stay open", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      // A named pipe that stays open here: what goes with the parent is the parent alone.
      const pipe = join(setup.dir, "stdin");
      execFileSync("mkfifo", [pipe]);
      const stdin = openSync(pipe, "r+");
      const script = '"$0" --config "$1" <"$2" & wait';
      const args = ["-c", script, executable(), setup.config, pipe];
      const parent = new RawClient("sh", args, setup.dir, setup.env);
      writeSync(stdin, `${INITIALIZE}\n`);
      await parent.response(1);
      await setup.waitForEvent("a", ({ event }) => event === "list");
      const pids = pidsWithEnv(setup.dir);
      assert.ok(pids.length >= 3, "the parent, the hub and its server run");
      parent.signal("SIGKILL");
      await waitUntilExited(pids, EXIT_LIMIT);
      closeSync(stdin);
    }));

  it("sweeps away at its start what a hub that was killed has left", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const killed = start(setup, ["--config", setup.config]);
      await killed.initialize();
      await killed.request("tools/list");
      const { message } = await killed.call("a__grandchild");
      const grandchild = Number(message.result?.content?.[0]?.text);
      killed.signal("SIGKILL");
      await killed.waitForExit(EXIT_LIMIT);
      // Any hub that starts on this machine may be faster: what counts is that nothing is left.
      const next = start(setup, ["--config", setup.config]);
      await waitUntilExited([grandchild], EXIT_LIMIT);
      next.end();
      await next.waitForExit(EXIT_LIMIT);
    }));
});

describe("a manifest in the working directory", () => {
  it("is passed over until it is trusted, and again once it has changed", () =>
    withTestFolder({ servers: { a: scripted("--bare --tool only") } }, async (setup) => {
      for (const args of [["list"], ["serve"], ["call", "a__only"], ["check"]]) {
        const { code, stderr } = await run(setup, args);
        assert.equal(code, 2, args.join(" "));
        assert.match(stderr, /toolmux\.toml is ignored: .*toolmux trust/);
      }
      assert.deepEqual(setup.log("a"), [], "and nothing of it was started");

      const { code, stdout } = await run(setup, ["trust", "toolmux.toml"]);
      assert.equal(code, 0);
      const file = realpathSync(join(setup.dir, "toolmux.toml"));
      assert.ok(stdout.startsWith(`trusted: ${file}\n`), stdout);
      assert.match(stdout, / a: .*scripted\.mjs --bare --tool only/);
      assert.match((await run(setup, ["list"])).stdout, /a__only/);

      appendFileSync(setup.config, "\n# changed\n");
      const again = await run(setup, ["list"]);
      assert.equal(again.code, 2);
      assert.match(again.stderr, /toolmux trust/);
    }));

  it("cannot be trusted where the state folder cannot be written, which is said in one line", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const state = { XDG_STATE_HOME: setup.config };
      const command = new RawClient(executable(), ["trust", setup.config], setup.dir, {
        ...setup.env,
        ...state,
      });
      const { code, stdout, stderr } = await finishCommand(command);
      assert.deepEqual([code, stdout], [1, ""]);
      assert.match(stderr, /^toolmux: .*\n$/);
    }));

  it("is trusted beside others that are trusted at the same moment", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const files = Array.from({ length: 6 }, (_, i) => join(setup.dir, `t${i}.toml`));
      for (const [i, file] of files.entries()) {
        writeFileSync(file, `[servers.s${i}]\ncommand = "x"\n`);
      }
      const all = await Promise.all(files.map((file) => run(setup, ["trust", file])));
      assert.deepEqual(
        all.map(({ code }) => code),
        files.map(() => 0),
      );
      const folder = stateFolder(setup.env, process.platform);
      for (const file of files) {
        assert.ok(await isTrusted(file, new Uint8Array(readFileSync(file)), folder), file);
      }
    }));

  it("that is wrong or missing is not trusted", () =>
    withTestFolder('[servers.a]\ncomand = "x"\n', async (setup) => {
      const { code, stderr } = await run(setup, ["trust", "toolmux.toml"]);
      assert.equal(code, 2);
      assert.match(stderr, /comand/);
      assert.equal((await run(setup, ["trust", "nowhere.toml"])).code, 2);
    }));
});
