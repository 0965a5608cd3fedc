import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { RawHttpServer } from "../fixtures/raw-http-server.ts";
import { sendJson, withRegistryServer } from "../fixtures/registry-server.ts";
import { run, runCommand, runJson, startOn } from "../harness/command.ts";
import { faulty } from "../harness/faulty-server.ts";
import {
  EXIT_LIMIT,
  executable,
  it,
  itWith,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted, type ServerEntry } from "../harness/manifest.ts";
import type { RawClient } from "../harness/raw-client.ts";
import { findPort, startRemote } from "../harness/remote-process.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";

/** The document of --json. */
interface Document {
  readonly verdict: string;
  readonly servers: readonly {
    readonly name: string;
    readonly state: string;
    readonly error?: { readonly code: string };
    readonly remedies?: readonly string[];
    readonly [key: string]: unknown;
  }[];
}

const status = (setup: TestFolder, ...args: string[]) => run(setup, "status", ...args);
const statusJson = (setup: TestFolder, ...args: string[]) =>
  runJson<Document>(setup, "status", ...args);

const off = (entry: ServerEntry): ServerEntry => ({ ...entry, enabled: false });
const MISSING: ServerEntry = { command: "no-such-mcp-server" };
const HANGS = scripted("--never-answer-initialize");
const SLOW = scripted("--start-delay 700");
const SECRET = "hunter2-is-the-secret";

describe("status", () => {
  it("of healthy servers is a table and the verdict, and for programs what they say and which processes they are", () => {
    const a = scripted("--bare --tool one --tool two --name me", { tools: { deny: ["two"] } });
    return withTestFolder({ servers: { a, off: off(MISSING) } }, async (setup) => {
      const { code, stdout, stderr } = await status(setup);
      assert.deepEqual([code, stderr], [0, ""]);
      const numbers = String.raw`[1-9][\d.]* m?s +\d+ +\d+ MB +stdio, legacy 2025-11-25`;
      const lines = [
        "SERVER  STATE +TOOLS +PROMPTS  RESOURCES  START +PID +MEMORY.*",
        `a +connected +1 of 2 +- +- +${numbers}`,
        "off +disabled +stdio",
        "1 connected, 1 disabled",
      ];
      assert.match(stdout, new RegExp(`^${lines.join("\n")}\n$`));
      const document = await statusJson(setup);
      assert.deepEqual([document.code, document.verdict], [0, "healthy"]);
      const [first = { name: "", state: "" }, second] = document.servers;
      const { startDuration, memory, ...rest } = first;
      assert.deepEqual(rest, {
        name: "a",
        state: "connected",
        transport: "stdio",
        era: "legacy",
        protocolVersion: "2025-11-25",
        implementation: { name: "me", version: "1.0.0" },
        tools: 2,
        shown: 1,
        prompts: 0,
        resources: 0,
        pid: setup.log("a").findLast(({ event }) => event === "start")?.pid,
      });
      assert.ok(Number(startDuration) > 0 && Number(memory) > 1e6);
      assert.deepEqual(second, { name: "off", state: "disabled", transport: "stdio" });
    });
  });

  // The default connectTimeout as it is; what it means is tested with a clock elsewhere.
  const isFast = process.env["TOOLMUX_SLOW_TESTS"] === undefined;
  const test = itWith({ timeout: 120_000, skip: isFast });
  test("counts a server that needs 33 s as starting, as list does; call and add wait for it", () => {
    const slow = scripted("--start-delay 33000");
    return withTestFolder({ servers: { good: scripted(), slow } }, async (setup) => {
      const file = join(setup.dir, "added.toml");
      writeFileSync(file, "");
      const on = ["--config", setup.config];
      const [found, listed, called, added] = await Promise.all(
        [
          ["status", "--json", ...on],
          ["list", "servers", "--json", ...on],
          ["call", "slow__echo", "text=hello", ...on],
          ["add", "late", "--file", file, "--", slow.command, ...(slow.args ?? [])],
        ].map((line) => runCommand(setup, line, { ms: 60_000 })),
      );
      assert.ok(found && listed && called && added);
      const { verdict, servers: all } = JSON.parse(found.stdout) as Document;
      assert.deepEqual([found.code, verdict, all[1]?.state], [1, "partial", "starting"]);
      assert.ok(Number(all[1]?.["elapsed"]) >= 30_000);
      const { servers } = JSON.parse(listed.stdout) as Document;
      const states = servers.map(({ name, state }) => `${name} ${state}`);
      assert.deepEqual(states, ["good connected", "slow starting"]);
      assert.equal(called.code, 0, called.stderr);
      assert.equal(added.code, 0, added.stderr);
      assert.match(readFileSync(file, "utf8"), /\[servers\.late\]/);
    });
  });

  it("says of each failure the step, the cause, the last words and what to do", () => {
    const servers = {
      good: scripted(),
      missing: MISSING,
      hangs: { ...HANGS, connectTimeout: "300ms" },
      dies: scripted("--exit-at-once"),
      unset: { command: "true", env: { A: "${env:NOWHERE_SET}" } },
      odd: faulty(["--fault", "version", "--value", '"1999-01-01"']),
      denied: { command: "./toolmux.toml" },
    };
    return withTestFolder({ servers }, async (setup) => {
      const { code, stdout, stderr } = await status(setup);
      assert.deepEqual([code, stderr], [1, ""]);
      const [table = "", ...blocks] = stdout.trimEnd().split("\n\n");
      assert.match(table, /\ngood +connected .*\nmissing +failed +stdio\nhangs +failed +stdio\n/);
      const expected = [
        [
          "start (commandNotFound)",
          "is not installed, or not in PATH[^]*\n  - Install no-such-mcp-server, or ",
        ],
        [
          "initialize (connectTimeout)",
          "within 300 ms[^]*\n  - Give it more time: raise connectTimeout .*now 300 ms",
        ],
        [
          "initialize (connectionLost)",
          "exited with code 3\\.\n  \\| .+\n  \\| .+\n  - Run it by hand",
        ],
        [
          "fill in its settings (valueMissing)",
          "\n  - Set NOWHERE_SET in the environment of toolmux",
        ],
        ["initialize (handshakeFailed)", "1999-01-01[^]*\n  - It may not be"],
        ["start (notExecutable)", `is not executable[^]*\n  - .*chmod \\+x ${setup.config}`],
      ] as const;
      for (const [i, [step, pattern]] of expected.entries()) {
        const block = blocks[i] ?? "";
        const head = `${Object.keys(servers)[i + 1]}: failed to ${step}`;
        assert.equal(block.split("\n")[0], head);
        assert.match(block, new RegExp(pattern));
      }
      assert.deepEqual(blocks.slice(6), ["1 connected, 6 failed"]);
    });
  });

  it("starts only the servers that are named, and no other name will do", () => {
    const servers = { alpha: scripted(), beta: scripted(), gone: MISSING };
    return withTestFolder({ servers }, async (setup) => {
      const { code, servers: all } = await statusJson(setup, "beta");
      assert.deepEqual([code, all.map(({ name }) => name).join()], [0, "beta"]);
      const wrong = await status(setup, "beta", "alhpa");
      assert.deepEqual([wrong.code, wrong.stdout], [2, ""]);
      assert.match(wrong.stderr, /no server "alhpa" in the manifest\. Did you mean "alpha"\?/);
      assert.deepEqual(setup.log("alpha"), []);
    });
  });

  it("exits with 3 if all have failed, and with 2 if there is none to ask", () =>
    withTestFolder({ servers: { missing: MISSING, off: off(MISSING) } }, async (setup) => {
      const all = await statusJson(setup);
      assert.deepEqual([all.code, all.verdict], [3, "failed"]);
      const none = await status(setup, "off");
      assert.equal(none.code, 2);
      assert.match(none.stdout, /^off +disabled +stdio\n1 disabled\n$/m);
      writeFileSync(setup.config, "");
      const empty = await status(setup);
      assert.equal(empty.code, 2);
      assert.match(empty.stdout, /^no servers .*toolmux import.*\n$/);
      assert.equal((await statusJson(setup)).verdict, "none");
    }));

  it("counts what cannot be used as failed, and says what to do", () => {
    const file = { mcpServers: { web: { type: "ws", url: "wss://localhost/" } } };
    const check = async (setup: TestFolder): Promise<void> => {
      const { code, servers } = await statusJson(setup);
      const { state, error, remedies } = servers[0] ?? {};
      assert.deepEqual([code, state, error?.code], [3, "unsupported", "notSupported"]);
      assert.match(remedies?.[0] ?? "", /"disabled": true/);
    };
    return withTestFolder(JSON.stringify(file), check, "mcp.json");
  });

  it("says of a server over HTTP how it is reached, as list does, and what to do if it is not", async () => {
    const remote = await startRemote("sse");
    const { url } = remote;
    const gone = `http://127.0.0.1:${await findPort()}/mcp?key=${SECRET}`;
    const servers = { there: { url }, gone: { url: gone } };
    const check = async (setup: TestFolder): Promise<void> => {
      const { code, servers: all } = await statusJson(setup);
      assert.equal(code, 1);
      const [there = {}, missing] = all;
      const connected = { name: "there", state: "connected", url, way: "sse", era: "legacy" };
      assert.deepEqual({ ...there, ...connected }, there);
      assert.equal(missing?.error?.code, "unreachable");
      assert.match(missing.remedies?.[0] ?? "", /url are correct/);
      assert.ok(!JSON.stringify(all).includes(SECRET));
      const { stdout } = await run(setup, "list", "servers", "--fresh");
      assert.match(stdout, /^SERVER  STATE +TOOLS  TRANSPORT +URL +ERROR$/m);
      assert.match(stdout, new RegExp(`^there +connected +\\d+ +sse +${url}`, "m"));
    };
    try {
      await withTestFolder({ servers }, check);
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
      for (const options of [["--json"], ["--log-level", "debug"]]) {
        const { code, stdout, stderr } = await status(setup, ...options);
        assert.equal(code, 1);
        assert.match(stdout, /I got \[redacted\]/);
        assert.ok(!`${stdout}${stderr}`.includes(SECRET), stdout + stderr);
      }
    });
  });

  it("knows nothing of the tools that a server which fails now had before", () => {
    const { command, args = [] } = scripted();
    const a = { command: "sh", args: ["-c", 'exec "$0" "$1" $(cat options)', command, ...args] };
    return withTestFolder({ servers: { a } }, async (setup) => {
      const become = (options: string) => writeFileSync(join(setup.dir, "options"), options);
      become("--bare --tool one");
      assert.equal((await run(setup, "list")).code, 0);
      become("--exit-at-once");
      const [found] = (await statusJson(setup)).servers;
      assert.deepEqual([found?.state, found?.error?.code], ["failed", "connectionLost"]);
      assert.ok(!("tools" in (found ?? {})));
    });
  });

  it("tries each server once, also those that are started by a call or for each client, and stops none before the last is there", () => {
    const servers = {
      dies: scripted("--exit-at-once", { reconnect: { policy: "immediate" } }),
      brief: scripted("", { idleStop: "20ms" }),
      lazy: scripted("", { lazy: true, isolation: "perClient" }),
      slow: SLOW,
    };
    return withTestFolder({ servers }, async (setup) => {
      const { servers: all } = await statusJson(setup);
      const states = all.map(({ state, tools }) => [state, Number(tools) > 0]);
      const connected = ["connected", true];
      assert.deepEqual(states, [["failed", false], connected, connected, connected]);
      assert.equal(setup.log("dies").filter(({ event }) => event === "start").length, 1);
    });
  });

  it("is ended by an interrupt at once, and leaves nothing behind", () =>
    withTestFolder({ servers: { hangs: HANGS } }, async (setup) => {
      const command = startOn(setup, "status");
      await setup.waitForEvent("hangs", ({ event }) => event === "initialize");
      command.signal("SIGINT");
      assert.equal((await command.waitForExit(5_000)).code, 130);
      assert.equal(command.lines.length, 0);
    }));

  it("calls a server healthy that writes to stdout what is not MCP, with a note of it", () => {
    const quiet = scripted("--bare --tool one");
    const args = ["-c", 'echo one; echo two; exec "$0" "$@"', quiet.command, ...(quiet.args ?? [])];
    return withTestFolder({ servers: { noisy: { command: "sh", args }, quiet } }, async (setup) => {
      const { stdout, code } = await status(setup);
      assert.equal(code, 0);
      const notes = stdout.split("\n").filter((line) => /2 lines/.test(line));
      assert.equal(notes.length, 1, stdout);
      assert.match(notes[0] ?? "", /^noisy: .*"one"/);
      const { servers, verdict } = await statusJson(setup);
      assert.equal(verdict, "healthy");
      const stray = servers.map(({ strayOutput }) => strayOutput);
      assert.deepEqual(stray, [{ lines: 2, example: "one" }, undefined]);
    });
  });
});

const test = itWith({ skip: skipWithoutTerminal });
const ERASE = "\r\u001b[K";

/** Runs a command of toolmux in a terminal of its own. */
function typed(setup: TestFolder, line: string, env: Record<string, string> = {}): RawClient {
  const command = `stty cols ${env["COLUMNS"] ?? "200"}; exec '${executable()}' ${line}`;
  return startInTerminal(setup, command, env);
}

/** `toolmux status …` so. */
function typedStatus(setup: TestFolder, args = "", env: Record<string, string> = {}): RawClient {
  return typed(setup, `status --config '${setup.config}' ${args}`, env);
}

/** What a terminal showed: each text of the line of progress, and what was there when that was gone; and the exit code. */
async function shownAtEnd(terminal: RawClient, ms = EXIT_LIMIT) {
  const { code } = await terminal.waitForExit(ms);
  const progress = shownBy(terminal).replaceAll("\r\n", "\n").split(ERASE);
  return { code, last: progress.pop() ?? "", progress, all: shownBy(terminal) };
}

const assertSome = (lines: readonly string[], pattern: RegExp): void =>
  assert.ok(
    lines.some((line) => pattern.test(line)),
    lines.join("|"),
  );

describe("progress of a command in a terminal", () => {
  const entry = [SLOW.command, ...(SLOW.args ?? [])].map((word) => `'${word}'`).join(" ");
  for (const [what, line, rest] of [
    ["list", "list servers", /SERVER [^\n]*\nslow .*idle/],
    ["call", "call slow__echo text=hello", /hello/],
    ["doctor", "doctor --connect", /no problems found|\d (error|warning|note)/],
    ["add", `add slow --file added.toml -- ${entry}`, /slow works/],
  ] as const) {
    test(`is shown by ${what} in one line, which is gone when there is an answer`, () =>
      withTestFolder({ servers: { slow: SLOW } }, async (setup) => {
        writeFileSync(join(setup.dir, "added.toml"), "");
        const on = what === "add" ? "" : ` --config '${setup.config}'`;
        const { code, progress, last } = await shownAtEnd(typed(setup, line + on));
        if (what !== "doctor") assert.equal(code, 0, last);
        assertSome(progress, /^0 of 1 ready; waiting for slow [\d.]+ m?s$/);
        assert.match(last, rest);
      }));
  }

  test("is shown by search until the directories have answered, and by none for programs", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(
        (_url, _request, response) => sendJson(response, { servers: [] }),
        async ({ baseUrl }) => {
          const search = await shownAtEnd(typed(setup, `search thing --from ${baseUrl}`));
          assert.equal(search.code, 1, search.last);
          assertSome(search.progress, new RegExp(`${new URL(baseUrl).host}.*, [\\d.]+ m?s$`));
          assert.match(search.last, /^toolmux: warn .*"thing"/);
          const json = await shownAtEnd(typed(setup, `search thing --json --from ${baseUrl}`));
          assert.deepEqual(json.progress, []);
        },
      ),
    ));

  test("is shown by auth login until the server has answered", async () => {
    const server = await RawHttpServer.start(({ respond }) => respond(200, {}, "{}"));
    const servers = { r: { url: `http://127.0.0.1:${server.port}/mcp` } };
    await withTestFolder({ servers }, async (setup) => {
      const line = `auth login r --no-browser --config '${setup.config}'`;
      const { code, progress, last } = await shownAtEnd(typed(setup, line));
      assert.equal(code, 2);
      assertSome(progress, /\br, [\d.]+ m?s$/);
      assert.match(last, /^toolmux: .*auth = "oauth"/);
    });
    server.destroy();
  });
});

describe("an error in a terminal", () => {
  test("is wrapped at words, below where its text began", () =>
    withTestFolder({ servers: { alpha: scripted(), beta: scripted() } }, async (setup) => {
      const terminal = typedStatus(setup, "quite-another-name", { COLUMNS: "40" });
      const { code, last } = await shownAtEnd(terminal);
      assert.equal(code, 2);
      assert.match(last, /^toolmux: \S.*\n {9}\S/);
      for (const line of last.split("\n")) assert.ok(line.length <= 40, line);
      assert.match(last.trim().replaceAll(/\s+/g, " "), /"quite-another-name".* alpha, beta\./);
    }));
});

describe("status in a terminal", () => {
  const servers = { quick: scripted(), slow: SLOW, off: off(MISSING) };

  test("shows one line of progress that is gone when the table comes", () =>
    withTestFolder({ servers }, async (setup) => {
      const { code, last, progress } = await shownAtEnd(typedStatus(setup));
      assert.equal(code, 0);
      assert.deepEqual(progress.slice(0, 2), ["", "0 of 2 ready"]);
      assertSome(progress, /^1 of 2 ready; waiting for slow [\d.]+ m?s$/);
      assert.ok(!progress.join("").includes("\n"), progress.join("|"));
      const table = /SERVER .*\nquick .*connected.*\nslow .*\noff .*\n.*2 connected, 1 disabled/;
      assert.match(last, table);
      assert.ok(last.includes("\u001b["), "colours");
    }));

  test("has no colours where they are not wanted, and fits into a narrow one", () =>
    withTestFolder({ servers }, async (setup) => {
      const terminal = typedStatus(setup, "", { NO_COLOR: "1", COLUMNS: "30" });
      const { code, progress, last } = await shownAtEnd(terminal);
      assert.equal(code, 0);
      assertSome(progress, /^0 of 2 ready; waiting for \S+.*…$/);
      for (const line of progress) assert.ok(line.length < 30, line);
      assert.ok(![...progress, last].join("").includes("\u001b"));
    }));

  test("has no progress in it where it is for programs, or the terminal can show none", () =>
    withTestFolder({ servers }, async (setup) => {
      for (const terminal of [
        typedStatus(setup, "--json"),
        typedStatus(setup, "", { TERM: "dumb" }),
      ]) {
        const { code, all } = await shownAtEnd(terminal);
        assert.equal(code, 0);
        assert.ok(!all.includes("\u001b") && !all.includes("of 2 ready"), all);
      }
    }));

  test("does not mix its progress with what is logged", () =>
    withTestFolder({ servers: { ...servers, dies: scripted("--exit-at-once") } }, async (setup) => {
      const { code, all } = await shownAtEnd(typedStatus(setup, "--log-level info"));
      assert.equal(code, 1);
      const logged = [...all.matchAll(/(?<before>.?)toolmux: info dies: /gs)];
      assert.ok(logged.length >= 2, all);
      // What erases a line ends in a K.
      for (const { groups } of logged) assert.match(groups?.["before"] ?? "", /[\nK]/, all);
    }));

  test("is ended by Ctrl-C, and clears its line", () =>
    withTestFolder({ servers: { hangs: HANGS } }, async (setup) => {
      const terminal = typedStatus(setup);
      await setup.waitForEvent("hangs", ({ event }) => event === "initialize");
      terminal.write("\u0003");
      const { code, last } = await shownAtEnd(terminal, 5_000);
      assert.deepEqual([code, last], [130, "toolmux: Interrupted.\n"]);
    }));
});
