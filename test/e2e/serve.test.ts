import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { makeSocketPair } from "../../src/base/runtime.ts";
import { adoptSocket, type AdoptedSocket } from "../../src/base/unix-socket.ts";
import { finishCommand, run, startOn } from "../harness/command.ts";
import { waitForStderr } from "../harness/controlled-servers.ts";
import {
  EXIT_LIMIT,
  executable,
  it,
  itWith,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { pidsWithEnv, waitUntilExited } from "../harness/processes.ts";
import { RawClient } from "../harness/raw-client.ts";
import { waitFor } from "../harness/wait.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";

const SERVERS = { servers: { a: scripted() } };

describe("serve", () => {
  it("tells which servers failed, with the last lines of their stderr, and what stray output there was, by level", () =>
    withTestFolder(
      { servers: { a: scripted(), broken: scripted("--exit-at-once") } },
      async (setup) => {
        const reported = async (level: string, wanted: RegExp): Promise<string> => {
          const client = startOn(setup, "--log-level", level);
          await client.initialize();
          await client.request("tools/list");
          await waitForStderr(client, wanted);
          client.end();
          return (await finishCommand(client)).stderr;
        };
        const failure =
          /^toolmux: warn broken: .*code 3.*\n(?: {2}\| .*\n)* {2}\| cannot open the database.*\n/m;
        assert.match(
          await reported("warn", failure),
          /^toolmux: warn broken: [^\n]*\n(?: {2}\| [^\n]*\n)+$/,
        );
        const stray = /^toolmux: info broken: cannot open the database/m;
        assert.match(await reported("info", failure), stray);
        assert.equal(await reported("error", /^/), "");
      },
    ));

  it("says which servers of a client's file it cannot use, and serves the others", () => {
    const file = '{"mcpServers":{"far":{"type":"ws","url":"wss://example.com/mcp"}}}';
    const check = async (setup: Parameters<typeof run>[0]): Promise<void> => {
      const client = startOn(setup);
      await client.initialize();
      await waitForStderr(client, /warn far: this server cannot be used: /, 5000);
      client.end();
      assert.equal((await finishCommand(client)).code, 0);
      const { code, stdout } = await run(setup, "list", "servers", "--fresh");
      assert.equal(code, 3);
      assert.match(stdout, /far +failed/);
    };
    return withTestFolder(file, check, "mcp.json");
  });

  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const) {
    it(`ends with ${code} on ${signal}, and with 0 when the client leaves`, () =>
      withTestFolder(SERVERS, async (setup) => {
        const signalled = startOn(setup);
        await signalled.initialize();
        signalled.signal(signal);
        const left = startOn(setup, "serve");
        await left.initialize();
        left.end();
        assert.equal((await finishCommand(signalled)).code, code);
        assert.equal((await finishCommand(left)).code, 0);
      }));
  }

  itWith({ skip: skipWithoutTerminal })(
    "says in a terminal what it is and how to connect a client, and ends on Ctrl-C",
    () =>
      withTestFolder({ servers: { a: scripted(), b: scripted() } }, async (setup) => {
        const terminal = startInTerminal(setup, `'${executable()}' --config '${setup.config}'`);
        const ends = () => shownBy(terminal).includes("Ctrl-C") || undefined;
        await terminal.until(EXIT_LIMIT, "how to end it", ends);
        const shown = shownBy(terminal).replaceAll("\r", "");
        assert.match(shown, /^toolmux serves 2 servers on stdin and stdout/);
        const toolmux = { command: executable(), args: ["serve", "--config", setup.config] };
        const entry = /^\{\n[^]*?\n\}$/m.exec(shown)?.[0] ?? "";
        assert.deepEqual(JSON.parse(entry), { mcpServers: { toolmux } });
        terminal.write("\u0003");
        assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 130);
        assert.deepEqual(setup.log("a"), [], "nothing was started, as no client has come");
      }),
  );
});

describe("serve, when nobody tells it to end,", () => {
  it("ends with its parent, although its stdin and stdout stay open", () =>
    withTestFolder(SERVERS, async (setup) => {
      // A named pipe that stays open here: what goes with the parent is the parent alone.
      const pipe = join(setup.dir, "stdin");
      execFileSync("mkfifo", [pipe]);
      const stdin = openSync(pipe, "r+");
      const script = '"$0" --config "$1" <"$2" & wait';
      const args = ["-c", script, executable(), setup.config, pipe];
      const parent = new RawClient("sh", args, setup.dir, setup.env);
      const clientInfo = { name: "raw", version: "1" };
      const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
      const initialize = { jsonrpc: "2.0", id: 1, method: "initialize", params };
      writeSync(stdin, `${JSON.stringify(initialize)}\n`);
      await parent.response(1);
      await setup.waitForEvent("a", ({ event }) => event === "list");
      const pids = pidsWithEnv(setup.dir);
      assert.ok(pids.length >= 3, "the parent, the hub and its server run");
      parent.signal("SIGKILL");
      await waitUntilExited(pids, EXIT_LIMIT);
      closeSync(stdin);
    }));
});

describe("serve with a client at sockets", () => {
  /** Starts a hub whose stdin and stdout are the given sockets, and has the lines that arrive at `reader`. */
  const serveAt = (
    setup: TestFolder,
    [stdin, stdout]: readonly [number, number],
    reader: AdoptedSocket,
  ): { readonly exit: Promise<unknown>; readonly text: () => string } => {
    let text = "";
    reader.input.read(
      (chunk) => (text += chunk.toString()),
      () => {},
    );
    const hub = spawn(executable(), ["serve", "--config", setup.config], {
      cwd: setup.dir,
      env: setup.env,
      stdio: [stdin, stdout, "ignore"],
    });
    for (const fd of new Set([stdin, stdout])) closeSync(fd);
    return { exit: once(hub, "exit"), text: () => text };
  };
  const opened = (): readonly [own: AdoptedSocket, other: number] => {
    const [own, other] = makeSocketPair() ?? assert.fail("there is no pair of sockets");
    return [adoptSocket(own) ?? assert.fail("the socket cannot be used"), other];
  };
  const clientInfo = { name: "raw", version: "1" };
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
  const line = (id: number, method: string, given: object): Uint8Array =>
    utf8(`${JSON.stringify({ jsonrpc: "2.0", id, method, params: given })}\n`);
  const ECHOES = { servers: { a: scripted("--tools 1") } };
  /** A result of 2 MB, which no socket takes at once. */
  const size = 2_000_000;
  const call = { name: "a__extra_001", arguments: { text: "x".repeat(size) } };
  const isOver = (text: string): boolean => text.endsWith("}\n") && text.length > size;

  itWith({ skip: process.platform !== "linux" })(
    "answers if they are one socket, and ends with it",
    () =>
      withTestFolder(ECHOES, async (setup) => {
        const [own, other] = opened();
        const { exit, text } = serveAt(setup, [other, other], own);
        void own.output.write(line(1, "initialize", params));
        await waitFor("initialize", () => text().includes('"serverInfo"') || undefined);
        await own.output.write(line(2, "tools/call", call));
        await waitFor("the result", () => isOver(text()) || undefined, EXIT_LIMIT);
        own.output.end();
        assert.deepEqual(await exit, [0, null]);
      }),
  );

  itWith({ skip: process.platform !== "linux" })(
    "ends when its client has closed both, although a result is not written yet",
    () =>
      withTestFolder(ECHOES, async (setup) => {
        const [stdin, otherStdin] = opened();
        const [stdout, otherStdout] = opened();
        const { exit, text } = serveAt(setup, [otherStdin, otherStdout], stdout);
        void stdin.output.write(line(1, "initialize", params));
        await waitFor("initialize", () => text().includes('"serverInfo"') || undefined);
        await stdin.output.write(line(2, "tools/call", call));
        await waitFor("a part of the result", () => text().includes("xxx") || undefined);
        stdout.destroy();
        stdin.destroy();
        assert.deepEqual(await exit, [0, null]);
      }),
  );
});
