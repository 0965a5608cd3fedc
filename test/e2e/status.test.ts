import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import { join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { sendJson, withRegistryServer } from "../fixtures/registry-server.ts";
import { RawClient } from "../harness/raw-client.ts";
import { faulty } from "../harness/faulty-server.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  executable,
  it,
  itWith,
  withTestFolder,
} from "../harness/hub.ts";
import { publishedServer, scripted, type ServerEntry } from "../harness/manifest.ts";
import { findPort, startRemote } from "../harness/remote-process.ts";

/** One server in the document of --json. */
interface Entry {
  readonly name: string;
  readonly state: string;
  readonly url?: string;
  readonly way?: string;
  readonly era?: string;
  readonly tools?: number;
  readonly pid?: number;
  readonly error?: { readonly code: string; readonly step?: string; readonly stderr?: string[] };
  readonly remedies?: readonly string[];
  readonly [key: string]: unknown;
}

interface Document {
  readonly verdict: string;
  readonly servers: readonly Entry[];
}

/** Runs a command on the stage's manifest to its end. */
function run(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  return runCommand(setup, [...args, "--config", setup.config]);
}

const status = (setup: TestFolder, ...args: string[]): Promise<CommandOutput> =>
  run(setup, "status", ...args);

/** What `--json` says, and the exit code. */
async function document(
  setup: TestFolder,
  ...args: string[]
): Promise<Document & { code: number | null }> {
  const { code, stdout } = await status(setup, "--json", ...args);
  return { ...(JSON.parse(stdout) as Document), code };
}

const off = (entry: ServerEntry): ServerEntry => ({ ...entry, enabled: false });
const MISSING: ServerEntry = { command: "no-such-mcp-server" };
const HANGS = scripted("--never-answer-initialize", { connectTimeout: "300ms" });
const SECRET = "hunter2-is-the-secret";

describe("list servers", () => {
  it("shows one that waits to be called as idle, with its tools, and that is no failure", () =>
    withTestFolder(
      { servers: { a: scripted("--bare --tool one", { lazy: true }) } },
      async (setup) => {
        const { code, stdout, stderr } = await run(setup, "list", "servers");
        assert.deepEqual([code, stderr], [0, ""]);
        assert.match(stdout, /^a +idle +1\n1 server, 1 idle$/m);
      },
    ));
});

describe("list", () => {
  it("names each server that it could not reach", async () => {
    const port = await findPort();
    const servers = { gone: { url: `http://127.0.0.1:${port}/mcp` } };
    await withTestFolder({ servers }, async (setup) => {
      const { code, stderr } = await run(setup, "list");
      assert.equal(code, 3);
      assert.match(stderr, new RegExp(`^toolmux: gone: Nothing listens at 127.0.0.1:${port}`, "m"));
    });
  });
});

describe("list servers, over HTTP", () => {
  it("says where each is and how it is spoken to, also to programs", async () => {
    const upstream = await startRemote("http");
    try {
      const servers = { a: scripted("--bare --tool one"), r: { url: upstream.url } };
      await withTestFolder({ servers }, async (setup) => {
        const { code, stdout } = await run(setup, "list", "servers", "--fresh");
        assert.equal(code, 0);
        assert.match(stdout, /^SERVER  STATE +TOOLS  WAY +URL +ERROR$/m);
        assert.match(stdout, new RegExp(`^r +connected +\\d+ +http +${upstream.url}$`, "m"));
        const reported = await run(setup, "list", "servers", "--fresh", "--json");
        const { servers: all } = JSON.parse(reported.stdout) as Document;
        assert.deepEqual(
          all.map(({ name, way, url }) => [name, way, url]),
          [
            ["a", undefined, undefined],
            ["r", "http", upstream.url],
          ],
        );
      });
    } finally {
      await upstream.stop();
    }
  });
});

describe("status", () => {
  it("of healthy servers is a table and the verdict, and nothing else", () =>
    withTestFolder(
      {
        servers: {
          e: publishedServer("everything"),
          a: scripted("--bare --tool one --tool two", { tools: { deny: ["two"] } }),
          off: off(MISSING),
        },
      },
      async (setup) => {
        const { code, stdout, stderr } = await status(setup);
        assert.deepEqual([code, stderr], [0, ""]);
        const [titles, e, a, disabled, verdict, ...rest] = stdout.split("\n");
        assert.match(titles ?? "", /^SERVER  STATE +TOOLS +PROMPTS  RESOURCES  START +PID +MEMORY/);
        const numbers = String.raw`[1-9][\d.]* m?s +\d+ +\d+ MB +stdio, legacy 2025-11-25`;
        assert.match(e ?? "", new RegExp(String.raw`^e +connected +\d+ +\d+ +\d+ +${numbers}$`));
        assert.match(a ?? "", new RegExp(String.raw`^a +connected +1 of 2 +- +- +${numbers}$`));
        assert.match(disabled ?? "", /^off +disabled +stdio$/);
        assert.equal(verdict, "all healthy: 2 servers; 1 disabled");
        assert.deepEqual(rest, [""]);
      },
    ));

  it("tells for programs what the servers say, and which processes they are", () =>
    withTestFolder(
      { servers: { a: scripted("--bare --tool one --name me"), off: off(MISSING) } },
      async (setup) => {
        const { code, verdict, servers } = await document(setup);
        assert.deepEqual([code, verdict], [0, "healthy"]);
        const { startDuration, memory, ...a } = servers[0] ?? { name: "", state: "" };
        const pid = setup.log("a").find(({ event }) => event === "start")?.pid;
        assert.deepEqual(a, {
          name: "a",
          state: "connected",
          transport: "stdio",
          era: "legacy",
          protocolVersion: "2025-11-25",
          implementation: { name: "me", version: "1.0.0" },
          tools: 1,
          shown: 1,
          prompts: 0,
          resources: 0,
          pid,
        });
        assert.ok(Number(startDuration) > 0 && Number(memory) > 1e6);
        assert.deepEqual(servers[1], { name: "off", state: "disabled", transport: "stdio" });
      },
    ));

  // The default connectTimeout as it is; what it means is tested with a clock elsewhere.
  const skip = process.env["TOOLMUX_SLOW_TESTS"] === undefined;
  itWith({ timeout: 120_000, skip })(
    "counts a server that needs 33 s as starting, as list does; call and add wait for it",
    () =>
      withTestFolder(
        { servers: { good: scripted(), slow: scripted("--start-delay 33000") } },
        async (setup) => {
          const { command, args = [] } = scripted("--start-delay 33000");
          const file = join(setup.dir, "added.toml");
          writeFileSync(file, "");
          const on = ["--config", setup.config];
          const [found, listed, called, added] = await Promise.all(
            [
              ["status", "--json", ...on],
              ["list", "servers", "--json", ...on],
              ["call", "slow__echo", "text=hello", ...on],
              ["add", "late", "--file", file, "--", command, ...args],
            ].map((line) => runCommand(setup, line, { ms: 60_000 })),
          );
          assert.ok(found && listed && called && added);
          const { verdict, servers: all } = JSON.parse(found.stdout) as Document;
          const entry = all.find(({ name }) => name === "slow");
          assert.deepEqual([found.code, verdict], [1, "partial"]);
          assert.equal(entry?.state, "starting");
          assert.ok(Number(entry?.["elapsed"]) >= 30_000);
          const { servers } = JSON.parse(listed.stdout) as Document;
          assert.deepEqual(
            servers.map(({ name, state }) => [name, state]),
            [
              ["good", "connected"],
              ["slow", "starting"],
            ],
          );
          assert.equal(called.code, 0, called.stderr);
          assert.equal(added.code, 0, added.stderr);
          assert.match(readFileSync(file, "utf8"), /\[servers\.late\]/);
        },
      ),
  );

  it("says of each failure the step, the cause, the last words and what to do", () =>
    withTestFolder(
      {
        servers: {
          good: scripted(),
          missing: MISSING,
          hangs: HANGS,
          dies: scripted("--exit-at-once"),
          unset: { command: "true", env: { A: "${env:NOWHERE_SET}" } },
          odd: faulty(["--fault", "version", "--value", '"1999-01-01"']),
          denied: { command: "./toolmux.toml" },
        },
      },
      async (setup) => {
        const { code, stdout, stderr } = await status(setup);
        assert.equal(code, 1);
        assert.equal(stderr, "");
        const [table = "", ...blocks] = stdout.trimEnd().split("\n\n");
        assert.match(table, /\ngood +connected .*\nmissing +failed +stdio\nhangs +failed +stdio\n/);
        assert.equal(blocks.at(-1), "6 of 7 servers failed");
        const expected: [head: string, ...RegExp[]][] = [
          [
            "missing: failed to start (commandNotFound)",
            /is not installed, or not in PATH/,
            /\n  - Install no-such-mcp-server, or /,
          ],
          [
            "hangs: failed to initialize (connectTimeout)",
            /within 300 ms/,
            /\n  - Give it more time: raise connectTimeout .*now 300 ms/,
          ],
          [
            "dies: failed to initialize (connectionLost)",
            /exited with code 3\.\n  \| .+\n  \| .+\n  - Run it by hand/,
          ],
          [
            "unset: failed to fill in its settings (valueMissing)",
            /\n  - Set NOWHERE_SET in the environment of toolmux/,
          ],
          ["odd: failed to initialize (handshakeFailed)", /1999-01-01/, /\n  - It may not be/],
          [
            "denied: failed to start (notExecutable)",
            /is not executable/,
            new RegExp(`\\n  - .*chmod \\+x ${setup.config}`),
          ],
        ];
        for (const [i, [head, ...patterns]] of expected.entries()) {
          const block = blocks[i] ?? "";
          assert.equal(block.split("\n")[0], head);
          for (const pattern of patterns) assert.match(block, pattern);
        }
      },
    ));

  it("starts only the servers that are named, and no other name will do", () =>
    withTestFolder(
      { servers: { alpha: scripted(), beta: scripted(), gone: MISSING } },
      async (setup) => {
        const { code, servers } = await document(setup, "beta");
        assert.equal(code, 0);
        assert.deepEqual(
          servers.map(({ name }) => name),
          ["beta"],
        );
        assert.deepEqual(setup.log("alpha"), []);
        const wrong = await status(setup, "beta", "alhpa");
        assert.deepEqual([wrong.code, wrong.stdout], [2, ""]);
        assert.match(wrong.stderr, /no server "alhpa" in the manifest\. Did you mean "alpha"\?/);
        assert.deepEqual(setup.log("alpha"), []);
      },
    ));

  it("exits with 3 if all have failed, and with 2 if there is none to ask", () =>
    withTestFolder({ servers: { missing: MISSING, off: off(MISSING) } }, async (setup) => {
      const all = await document(setup);
      assert.deepEqual([all.code, all.verdict], [3, "failed"]);
      const none = await status(setup, "off");
      assert.equal(none.code, 2);
      assert.match(none.stdout, /^off +disabled +stdio\nno server is enabled; 1 disabled\n$/m);
      writeFileSync(setup.config, "");
      const empty = await status(setup);
      assert.equal(empty.code, 2);
      assert.match(empty.stdout, /^no servers .*toolmux import.*\n$/);
      assert.equal((await document(setup)).verdict, "none");
    }));

  it("counts what cannot be used as failed, and says what to do", () =>
    withTestFolder(
      JSON.stringify({ mcpServers: { web: { type: "ws", url: "wss://localhost/" } } }),
      async (setup) => {
        const { code, servers } = await document(setup);
        assert.equal(code, 3);
        assert.equal(servers[0]?.state, "unsupported");
        assert.equal(servers[0].error?.code, "notSupported");
        assert.match(servers[0].remedies?.[0] ?? "", /"disabled": true/);
      },
      "mcp.json",
    ));

  it("says of a server over HTTP how it is reached, and what to do if it is not", async () => {
    const remote = await startRemote("sse");
    try {
      const gone = `http://127.0.0.1:${await findPort()}/mcp?key=${SECRET}`;
      const servers = { there: { url: remote.url }, gone: { url: gone } };
      await withTestFolder({ servers }, async (setup) => {
        const said = await document(setup);
        assert.equal(said.code, 1);
        const [there, missing] = said.servers;
        assert.equal(there?.state, "connected");
        assert.deepEqual([there.url, there.way, there.era], [remote.url, "sse", "legacy"]);
        assert.equal(missing?.error?.code, "unreachable");
        assert.match(missing.remedies?.[0] ?? "", /url are correct/);
        assert.ok(!JSON.stringify(said.servers).includes(SECRET));
      });
    } finally {
      await remote.stop();
    }
  });

  it("shows no secret, in no form", () => {
    const script = "console.error('I got', process.env.API_TOKEN); process.exit(4)";
    const args = ["-e", script, "--", "--token", SECRET, "${env:FROM_OUTSIDE}"];
    const leaky = { command: process.execPath, args, env: { API_TOKEN: SECRET } };
    return withTestFolder({ servers: { leaky, good: scripted() } }, async (plain) => {
      const setup = { ...plain, env: { ...plain.env, FROM_OUTSIDE: `${SECRET}-2` } };
      for (const options of [[], ["--json"], ["--log-level", "debug"]]) {
        const { code, stdout, stderr } = await status(setup, ...options);
        assert.equal(code, 1);
        assert.match(stdout, /I got \[redacted\]/);
        assert.ok(!`${stdout}${stderr}`.includes(SECRET), stdout + stderr);
      }
    });
  });

  it("tells what the servers say now, whatever they said before", () =>
    withTestFolder(
      (dir) => {
        const { command, args = [] } = scripted();
        const line = `exec "$0" "$1" $(cat '${dir}/options')`;
        return { servers: { a: { command: "sh", args: ["-c", line, command, ...args] } } };
      },
      async (setup) => {
        const become = (options: string): void =>
          writeFileSync(join(setup.dir, "options"), options);
        become("--bare --tool one");
        const before = new RawClient(
          executable(),
          ["list", "--config", setup.config],
          setup.dir,
          setup.env,
        );
        assert.equal((await before.waitForExit(EXIT_LIMIT)).code, 0);
        become("--bare --tool one --tool two");
        assert.equal((await document(setup)).servers[0]?.tools, 2);
        become("--exit-at-once");
        const [a] = (await document(setup)).servers;
        assert.deepEqual([a?.state, a?.error?.code], ["failed", "connectionLost"]);
        assert.ok(!("tools" in (a ?? {})));
      },
    ));

  it("starts also those that are to be started by a call, or for each client", () =>
    withTestFolder(
      {
        servers: {
          lazy: scripted("", { lazy: true }),
          each: scripted("", { isolation: "perClient" }),
          both: scripted("", { lazy: true, isolation: "perClient" }),
        },
      },
      async (setup) => {
        const { verdict, servers } = await document(setup);
        assert.equal(verdict, "healthy");
        for (const { name, tools } of servers) assert.ok(Number(tools) > 0, name);
      },
    ));

  it("tries each server once, and stops none before the last is there", () =>
    withTestFolder(
      {
        servers: {
          dies: scripted("--exit-at-once", { reconnect: { policy: "immediate" } }),
          brief: scripted("", { idleStop: "20ms" }),
          slow: scripted("--start-delay 500"),
        },
      },
      async (setup) => {
        const { servers } = await document(setup);
        const states = servers.map(({ state }) => state);
        assert.deepEqual(states, ["failed", "connected", "connected"]);
        assert.equal(setup.log("dies").filter(({ event }) => event === "start").length, 1);
      },
    ));

  it("is ended by an interrupt at once, and leaves nothing behind", () =>
    withTestFolder({ servers: { hangs: scripted("--never-answer-initialize") } }, async (setup) => {
      const line = ["status", "--config", setup.config];
      const command = new RawClient(executable(), line, setup.dir, setup.env);
      await setup.waitForEvent("hangs", ({ event }) => event === "initialize");
      command.signal("SIGINT");
      assert.equal((await command.waitForExit(5_000)).code, 130);
      assert.equal(command.lines.length, 0);
    }));
});

const skip =
  process.platform === "linux" && existsSync("/usr/bin/script")
    ? false
    : "there is no script(1) of util-linux here, so terminals are NOT tested";
const test = itWith({ skip });

/** Runs `toolmux status …` in a terminal of its own; what it shows is the stdout of the client. */
function inTerminal(setup: TestFolder, args = "", env: Record<string, string> = {}): RawClient {
  return typed(setup, `status --config '${setup.config}' ${args}`, env);
}

/** Runs any command so. */
function typed(setup: TestFolder, line: string, env: Record<string, string> = {}): RawClient {
  const columns = env["COLUMNS"] ?? "200";
  const command = `stty cols ${columns}; exec '${executable()}' ${line}`;
  const surroundings = { ...setup.env, TERM: "xterm", SHELL: "/bin/sh", ...env };
  return new RawClient("script", ["-qec", command, "/dev/null"], setup.dir, surroundings);
}

const shownBy = (terminal: RawClient): string =>
  [...terminal.lines.map(({ text }) => text), terminal.unterminatedOutput].join("\n");

const ERASE = "\r\u001b[K";

describe("progress of a start in a terminal", () => {
  const { command, args = [] } = scripted("--start-delay 700");
  const entry = [command, ...args].map((word) => `'${word}'`).join(" ");
  for (const [what, line, rest] of [
    ["list", "list servers", /SERVER [^\n]*\nslow .*idle/],
    ["call", "call slow__echo text=hello", /hello/],
    ["doctor", "doctor --connect", /no problems found|\d (error|warning|note)/],
    ["add", `add slow --file added.toml -- ${entry}`, /slow works/],
  ] as const) {
    test(`is shown by ${what} in one line, which is gone when there is an answer`, () =>
      withTestFolder({ servers: { slow: scripted("--start-delay 700") } }, async (setup) => {
        writeFileSync(join(setup.dir, "added.toml"), "");
        const terminal = typed(setup, what === "add" ? line : `${line} --config '${setup.config}'`);
        const { code } = await terminal.waitForExit(EXIT_LIMIT);
        if (what !== "doctor") assert.equal(code, 0, shownBy(terminal));
        const lines = shownBy(terminal).split(ERASE);
        const last = lines.pop() ?? "";
        assert.ok(
          lines.some((text) => /^0 of 1 ready; waiting for slow [\d.]+ m?s$/.test(text)),
          lines.join("|"),
        );
        assert.match(last.replaceAll("\r", ""), rest);
      }));
  }
});

describe("progress of a command that asks others, in a terminal", () => {
  /** What the line showed before it was gone, and the exit code. */
  const waitedFor = async (terminal: RawClient) => {
    const { code } = await terminal.waitForExit(EXIT_LIMIT);
    const shown = shownBy(terminal).split(ERASE);
    return { code, last: shown.pop() ?? "", shown };
  };

  test("is shown by search until the directories have answered", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(
        (_url, _request, response) => sendJson(response, { servers: [] }),
        async ({ baseUrl }) => {
          const { host } = new URL(baseUrl);
          const search = await waitedFor(typed(setup, `search thing --from ${baseUrl}`));
          assert.equal(search.code, 1, search.last);
          assert.ok(
            search.shown.some((line) => line.includes(host) && /, [\d.]+ m?s$/.test(line)),
            search.shown.join("|"),
          );
          assert.match(search.last, /^toolmux: warn .*"thing"/);
          const json = await waitedFor(typed(setup, `search thing --json --from ${baseUrl}`));
          assert.deepEqual(json.shown, []);
        },
      ),
    ));

  test("is shown by auth login until the server has answered", async () => {
    const upstream = await startRemote("http");
    try {
      await withTestFolder({ servers: { r: { url: upstream.url } } }, async (setup) => {
        const login = await waitedFor(
          typed(setup, `auth login r --no-browser --config '${setup.config}'`),
        );
        assert.equal(login.code, 2);
        assert.ok(
          login.shown.some((line) => /\br, [\d.]+ m?s$/.test(line)),
          login.shown.join("|"),
        );
        assert.match(login.last, /^toolmux: .*auth = "oauth"/);
      });
    } finally {
      await upstream.stop();
    }
  });
});

describe("an error in a terminal", () => {
  test("is wrapped at words, below where its text began", () =>
    withTestFolder({ servers: { alpha: scripted(), beta: scripted() } }, async (setup) => {
      const terminal = inTerminal(setup, "quite-another-name", { COLUMNS: "40" });
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 2);
      const lines = shownBy(terminal).replaceAll("\r", "").trimEnd().split("\n");
      const [first = "", second = ""] = lines;
      assert.match(first, /^toolmux: \S/);
      assert.match(second, /^ {9}\S/);
      for (const line of lines) assert.ok(line.length <= 40, line);
      assert.match(lines.join(" ").replaceAll(/ +/g, " "), /"quite-another-name".* alpha, beta\./);
    }));
});

describe("status in a terminal", () => {
  const servers = {
    quick: scripted(),
    slow: scripted("--start-delay 700"),
    off: off(MISSING),
  };

  test("shows one line of progress that is gone when the table comes", () =>
    withTestFolder({ servers }, async (setup) => {
      const terminal = inTerminal(setup);
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
      const [before, ...lines] = shownBy(terminal).split(ERASE);
      assert.equal(before, "");
      const table = lines.pop() ?? "";
      assert.equal(lines[0], "0 of 2 ready");
      assert.ok(
        lines.some((line) => /^1 of 2 ready; waiting for slow [\d.]+ m?s$/.test(line)),
        lines.join("|"),
      );
      assert.ok(!lines.some((line) => line.includes("\n")), lines.join("|"));
      assert.match(
        table,
        /SERVER [^\n]*\nquick [^\n]*connected[^\n]*\nslow [^\n]*\noff [^\n]*\n[^\n]*all healthy: 2 servers/,
      );
      assert.ok(table.includes("\u001b["), "colours");
    }));

  test("has no colours where they are not wanted, and fits into a narrow one", () =>
    withTestFolder({ servers }, async (setup) => {
      const terminal = inTerminal(setup, "", { NO_COLOR: "1", COLUMNS: "30" });
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
      const lines = shownBy(terminal).split(ERASE);
      assert.ok(lines.some((line) => /^0 of 2 ready; waiting for \S+.*…$/.test(line)));
      for (const line of lines.slice(0, -1)) assert.ok(line.length < 30, line);
      assert.ok(!lines.join("").includes("\u001b"));
    }));

  test("has no progress in it where it is for programs, or the terminal can show none", () =>
    withTestFolder({ servers }, async (setup) => {
      for (const [args, env] of [
        ["--json", {}],
        ["", { TERM: "dumb" }],
      ] as const) {
        const terminal = inTerminal(setup, args, env);
        assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
        const shown = shownBy(terminal);
        assert.ok(!shown.includes("\u001b") && !shown.includes("of 2 ready"), shown);
      }
    }));

  test("does not mix its progress with what is logged", () =>
    withTestFolder({ servers: { ...servers, dies: scripted("--exit-at-once") } }, async (setup) => {
      const terminal = inTerminal(setup, "--log-level info");
      assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 1);
      const shown = shownBy(terminal);
      const logged = [...shown.matchAll(/(?<before>.?)toolmux: info dies: /gs)];
      assert.ok(logged.length >= 2, shown);
      // What erases a line ends in a K.
      for (const { groups } of logged) assert.match(groups?.["before"] ?? "", /[\nK]/, shown);
    }));

  test("is ended by Ctrl-C, and clears its line", () =>
    withTestFolder({ servers: { hangs: scripted("--never-answer-initialize") } }, async (setup) => {
      const terminal = inTerminal(setup);
      await setup.waitForEvent("hangs", ({ event }) => event === "initialize");
      terminal.write("\u0003");
      assert.equal((await terminal.waitForExit(5_000)).code, 130);
      assert.equal(shownBy(terminal).split(ERASE).at(-1), "toolmux: Interrupted.\r\n");
    }));
});

describe("a server that writes to stdout what is not MCP", () => {
  const script = 'echo one; echo two; exec "$0" "$@"';
  const noisy = (): ServerEntry => {
    const { command, args = [] } = scripted("--bare --tool one");
    return { command: "sh", args: ["-c", script, command, ...args] };
  };

  it("is healthy, with a note of it", () =>
    withTestFolder(
      { servers: { noisy: noisy(), quiet: scripted("--bare --tool one") } },
      async (setup) => {
        const { stdout, code } = await status(setup);
        assert.equal(code, 0);
        const notes = stdout.split("\n").filter((line) => /2 lines/.test(line));
        assert.equal(notes.length, 1, stdout);
        assert.match(notes[0] ?? "", /^noisy: .*"one"/);
        const { servers, verdict } = await document(setup);
        assert.equal(verdict, "healthy");
        assert.deepEqual(
          servers.map(({ strayOutput }) => strayOutput),
          [{ lines: 2, example: "one" }, undefined],
        );
      },
    ));
});
