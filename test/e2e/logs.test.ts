import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { closeSync, constants, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { RawClient } from "../harness/raw-client.ts";
import { withDeadline } from "../harness/wait.ts";
import { assertServes, faulty, peakMemory } from "../harness/faulty-server.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  closeClient,
  executable,
  it,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted, type ServerEntry } from "../harness/manifest.ts";
import { descendants } from "../harness/processes.ts";

const FORMATS = ["text", "json"] as const;
const LEVELS = ["error", "warn", "info", "debug"] as const;

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

const MISSING: ServerEntry = { command: "no-such-command-anywhere" };

interface Line {
  readonly time: string;
  readonly level: string;
  readonly category: readonly string[];
  readonly message: string;
  readonly [name: string]: unknown;
}

function start({ dir, config, env }: TestFolder, ...args: readonly string[]): RawClient {
  return new RawClient(executable(), ["--config", config, ...args], dir, env);
}

/** All that was told, which has to be JSON with its four fixed members, and nothing else. */
function linesOf({ stderr }: { readonly stderr: string }): Line[] {
  assert.ok(stderr === "" || stderr.endsWith("\n"), "the last line is whole");
  return stderr
    .split("\n")
    .slice(0, -1)
    .map((text) => {
      const line = JSON.parse(text) as Line;
      assert.deepEqual(Object.keys(line).slice(0, 4), ["time", "level", "category", "message"]);
      assert.equal(new Date(line.time).toISOString(), line.time);
      assert.ok(line.category.length > 0 && LEVELS.some((level) => level === line.level));
      return line;
    });
}

/** What was told of server "a" at level info. */
function messagesOf(client: RawClient, format: (typeof FORMATS)[number]): string[] {
  if (format === "json") return linesOf(client).map(({ message }) => message);
  const lines = client.stderr.split("\n").slice(0, -1);
  return lines.map((line) => line.replace("toolmux: info a: ", ""));
}

/** Waits until stderr holds that. */
function saying(client: RawClient, wanted: RegExp): Promise<boolean> {
  return client.until(EXIT_LIMIT, String(wanted), () => wanted.test(client.stderr) || undefined);
}

describe("the log of serve", () => {
  for (const level of ["warn", "debug"] as const) {
    it(`as JSON has a line for each thing, and at ${level} nothing of less weight`, () =>
      withTestFolder({ servers: { a: scripted(), missing: MISSING } }, async (setup) => {
        const client = start(setup, "--log-level", level, "--log-format", "json");
        await client.initializeAndList();
        await client.call("a__stderr", { lines: 3 });
        await client.call("a__garbage");
        await saying(client, /no-such-command-anywhere/);
        // Stray lines come behind the answer, so that the next answer is behind them.
        await client.call("a__echo");
        await closeClient(client);
        const lines = linesOf(client);
        const levels = new Set(lines.map((line) => line.level));
        const wanted = LEVELS.slice(0, LEVELS.indexOf(level) + 1);
        assert.deepEqual([...levels].toSorted(), wanted.toSorted());
        const failure = lines.find((line) => line.level === "error");
        assert.deepEqual(failure?.category, ["toolmux", "server", "missing"]);
        assert.equal((failure["error"] as { code: string }).code, "commandNotFound");
        const words = lines.filter((line) => line["source"] === "stderr");
        const expected = [0, 1, 2].map((at) => [
          "info",
          ["toolmux", "server", "a"],
          `stderr line ${at}`,
        ]);
        assert.deepEqual(
          words.map((line) => [line.level, line.category, line.message]),
          wanted.includes("info") ? expected : [],
        );
      }));
  }

  for (const format of FORMATS) {
    const leaving = format === "text" ? "the client leaves" : "a signal comes";
    it(`loses nothing when ${leaving} right at the start, as ${format}`, () =>
      withTestFolder({ servers: { a: scripted() } }, async (setup) => {
        const client = start(setup, "--log-level", "info", "--log-format", format);
        await client.initialize();
        if (format === "text") client.end();
        else {
          // Only then there surely is a hub that anything could come to.
          await client.request("ping");
          client.signal("SIGTERM");
        }
        await client.waitForExit(EXIT_LIMIT);
        const states = messagesOf(client, format).filter((text) =>
          /^(connecting|stopped)$/.test(text),
        );
        assert.deepEqual(states, ["connecting", "stopped"]);
      }));

    it(`holds no secret that a server tells, not even in its dying words, as ${format}`, () => {
      const secret = 'top"secret\\value-1234';
      const script =
        "const { API_TOKEN } = process.env; const [arg] = process.argv.slice(-1);" +
        "console.error('I have ' + API_TOKEN); console.error(JSON.stringify({ API_TOKEN, arg }));" +
        "console.error('dying of ' + encodeURIComponent(arg)); process.exit(3)";
      const env = { API_TOKEN: "${env:HUB_SECRET}" };
      const args = ["-e", script, "--", "${env:HUB_SECRET}"];
      const servers = {
        dying: { command: process.execPath, args, env },
        missing: { ...MISSING, args, env },
        homeless: { command: process.execPath, args, env, cwd: "/no/such/folder" },
      };
      return withTestFolder({ servers }, async (setup) => {
        const hidden = { ...setup, env: { ...setup.env, HUB_SECRET: secret } };
        const client = start(hidden, "--log-level", "debug", "--log-format", format);
        await client.initialize();
        await client.request("tools/list");
        await saying(client, /dying.*exited with code 3/);
        await closeClient(client);
        assert.match(client.stderr, /I have \[redacted\]/);
        assert.match(client.stderr, /dying of \[redacted\]/);
        const spellings = [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)];
        for (const spelling of [...spellings, "secret\\", "value-1234", "API_TOKEN }"])
          assert.ok(!client.stderr.includes(spelling), `${spelling}: ${client.stderr}`);
      });
    });
  }

  it("tells all in the order in which it happened, and nothing twice", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const client = start(setup, "--log-level", "info", "--log-format", "json");
      await client.initializeAndList();
      for (let at = 0; at < 3; at += 1) await client.call("a__stderr", { lines: 100 });
      await closeClient(client);
      const lines = linesOf(client);
      assert.ok(lines.every(({ level }) => level !== "debug"));
      const messages = lines.map(({ message }) => message);
      const words = messages.filter((text) => text.startsWith("stderr line"));
      const hundred = Array.from({ length: 100 }, (_, at) => `stderr line ${at}`);
      assert.deepEqual(words, [hundred, hundred, hundred].flat());
      const states = ["connecting", "connected", "stopped"];
      assert.deepEqual(
        messages.filter((text) => states.includes(text)),
        states,
      );
    }));

  it("does not stop a hub whose stderr nobody reads, and tells later what is missing", () =>
    withTestFolder({ servers: { bad: faulty(), good: scripted() } }, async (setup) => {
      const { dir, config, env } = setup;
      const pipe = join(dir, "stderr");
      spawnSync("mkfifo", [pipe]);
      // Open for both, or opening would wait for the other end.
      const held = openSync(pipe, constants.O_RDWR);
      const script = 'exec "$0" --config "$1" --log-level debug --log-format json 2> "$2"';
      const args = ["-c", script, executable(), config, pipe];
      const client = new RawClient("sh", args, dir, env);
      await client.initializeAndList();
      // More than the pipe and the hub keep together.
      for (let round = 0; round < 5; round += 1) {
        const calls = Array.from({ length: 10 }, () => client.call("bad__garbage"));
        calls.push(client.call("good__stderr", { lines: 1000 }));
        await Promise.all(calls);
      }
      await assertServes(client, "good__echo");
      assert.ok(peakMemory(client.pid) < 150, `${peakMemory(client.pid)} MB`);
      const reader = spawn("cat", [pipe], { stdio: ["ignore", "pipe", "ignore"] });
      let text = "";
      await withDeadline<void>(
        EXIT_LIMIT,
        () => `a word on what is missing in ${text.length} characters`,
        (resolve) => {
          reader.stdout.setEncoding("utf8").on("data", (more: string) => {
            text += more;
            if (/\d+ lines of the log are missing.*\n/.test(text)) resolve();
          });
        },
      );
      assert.ok(text.length < 500_000, `${text.length} characters were kept`);
      linesOf({ stderr: text.slice(0, text.lastIndexOf("\n") + 1) });
      await closeClient(client);
      reader.kill();
      closeSync(held);
    }));

  it("has each call from its start to its end, and who cancelled it", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const client = start(setup, "--log-level", "debug", "--log-format", "json");
      await client.initializeAndList();
      await client.call("a__echo", { secret: "hunter2" });
      const requestId = client.sendCall("a__hang");
      await setup.waitForEvent("a", ({ tool }) => tool === "hang");
      client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } });
      await saying(client, /cancelled after/);
      await closeClient(client);
      const calls = linesOf(client).filter((line) => "call" in line);
      assert.deepEqual(
        calls.map(({ call, tool, outcome, by, level, category }) => [
          call,
          tool,
          outcome ?? by,
          level,
          category.at(-1),
        ]),
        [
          [1, "echo", undefined, "debug", "a"],
          [1, "echo", "answered", "debug", "a"],
          [2, "hang", undefined, "debug", "a"],
          [2, "hang", "client", "debug", "a"],
        ],
      );
      assert.doesNotMatch(client.stderr, /hunter2/);
    }));

  it("says of each failed attempt why, when the next one is due, and that it comes, and what it has printed once", () =>
    withTestFolder(
      {
        // A pause that is longer than a busy machine takes to write the line which says when it ends.
        defaults: { reconnect: { policy: "exponential", base: "300ms", maxAttempts: 3 } },
        servers: { a: scripted("--exit-at-once") },
      },
      async (setup) => {
        const client = start(setup, "--log-level", "debug", "--log-format", "json");
        await client.initialize();
        await saying(client, /"to":"failed"/);
        await closeClient(client);
        const lines = linesOf(client).filter(({ source }) => source === undefined);
        const causes = lines.filter((line) => "error" in line);
        assert.deepEqual(
          causes.map(({ level, attempt, to }) => [level, attempt, to]),
          [
            ["warn", 1, "stopping"],
            ["warn", 2, "stopping"],
            ["error", 3, "failed"],
          ],
        );
        const errors = causes.map(
          ({ error }) => error as { readonly message: string; readonly stderr?: unknown },
        );
        for (const { message } of errors) assert.match(message, /^cannot open the database/);
        const withOutput = errors.map(({ stderr }) => stderr !== undefined);
        assert.deepEqual(withOutput, [true, false, false]);
        for (const { retryAt, time } of causes) {
          if (retryAt !== undefined) assert.ok(Date.parse(String(retryAt)) >= Date.parse(time));
        }
        const words = lines.map(({ message }) => message);
        assert.deepEqual(
          words.filter((text) => text.startsWith("connecting")),
          ["connecting", "connecting (attempt 2)", "connecting (attempt 3)"],
        );
        assert.equal(words.filter((text) => /^next attempt in \d+ ms$/.test(text)).length, 2);
      },
    ));

  it("is whole although more than a pipe holds is said in the last moment", () => {
    const server =
      "console.error('ready'); process.stdin.resume().on('end', () => { for (let at = 0; at < 800; at++) console.error('last word ' + at + ' ' + 'x'.repeat(300)); })";
    const servers = { a: { command: process.execPath, args: ["-e", server] } };
    return withTestFolder({ servers }, async (setup) => {
      const client = start(setup, "--log-level", "info");
      await client.initialize();
      await saying(client, /a: ready/);
      const [pid = -1] = descendants(client.pid);
      client.signal("SIGTERM");
      // Nothing is read in this process until the server has gone: the pipe is full by then.
      spawnSync("tail", [`--pid=${pid}`, "-s", "0.01", "-f", "/dev/null"]);
      await client.waitForExit(EXIT_LIMIT);
      const words = [...client.stderr.matchAll(/a: last word (\d+) x{300}\n/g)].map(([, at]) =>
        Number(at),
      );
      assert.deepEqual(
        words,
        Array.from({ length: 800 }, (_, at) => at),
      );
    });
  });

  it("has what there was to tell when a mistake in the program ends it at once", () =>
    withTestFolder({ servers: { a: scripted() } }, async ({ dir, config, env }) => {
      const mistake = join(dir, "mistake.mjs");
      writeFileSync(mistake, 'process.on("SIGUSR2", () => { throw new Error("a mistake"); });');
      const args = ["--preload", mistake, MAIN, "--config", config, "--log-level", "info"];
      const client = new RawClient(process.execPath, args, dir, env);
      await client.initialize();
      // Only then there surely is a hub that has something to tell.
      await client.request("ping");
      client.signal("SIGUSR2");
      assert.equal((await client.waitForExit(EXIT_LIMIT)).code, 1);
      assert.match(client.stderr, /a: connecting\n/);
      assert.match(client.stderr, /a mistake/);
    }));
});

describe("the log of other commands", () => {
  it("is JSON as well if that is wanted, and leaves stdout as it is", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const client = start(
        setup,
        ..."--log-format json --log-level info call a__stderr lines=2".split(" "),
      );
      assert.equal((await client.waitForExit(EXIT_LIMIT)).code, 0);
      assert.deepEqual(
        linesOf(client).map(({ level, category, message, source }) => [
          level,
          category,
          message,
          source,
        ]),
        [0, 1].map((at) => ["info", ["toolmux", "server", "a"], `stderr line ${at}`, "stderr"]),
      );
      assert.match(client.lines[0]?.text ?? "", /lines/);
    }));

  it("has a broken manifest's problems: lines for editors, or a record each", () =>
    withTestFolder('[servers.a]\ncomand = "x"\n[hub]\nnam = "y"\n', async (setup) => {
      for (const command of ["serve", "list"]) {
        const plain = start(setup, command);
        assert.equal((await plain.waitForExit(EXIT_LIMIT)).code, 2);
        const problems = plain.stderr.split("\n").slice(0, -1);
        assert.ok(problems.length >= 2, plain.stderr);
        for (const problem of problems) assert.match(problem, /^\/.*toolmux\.toml:\d+:\d+: /);
        const json = start(setup, command, "--log-format", "json");
        assert.equal((await json.waitForExit(EXIT_LIMIT)).code, 2);
        const lines = linesOf(json);
        assert.deepEqual(
          lines.map(({ message }) => message),
          problems,
        );
        assert.ok(lines.every(({ level }) => level === "error"));
      }
    }));
});

describe("a server that writes to stdout what is not MCP", () => {
  const LATIN = fileURLToPath(new URL("../fixtures/servers/invalid-utf8.mjs", import.meta.url));
  const noisy: ServerEntry = { command: process.execPath, args: [LATIN, "stray"] };
  const warnings = (client: RawClient): string[] =>
    client.stderr.split("\n").filter((line) => line.startsWith("toolmux: warn noisy: it writes"));

  it("is explained once, counted, and told of again each time there is ten times as much, also by its next process", () =>
    withTestFolder({ servers: { noisy } }, async (setup) => {
      const client = start(setup);
      await client.initializeAndList();
      for (const lines of [1, 8, 1, 89]) await client.call("noisy__stray", { lines });
      for (const pid of descendants(client.pid)) process.kill(pid, "SIGKILL");
      // The first may come too early for the next process.
      const again = async (): Promise<boolean> => {
        const { result } = (await client.call("noisy__stray", { lines: 1 })).message;
        return result !== undefined && result.isError !== true;
      };
      assert.ok((await again()) || (await again()));
      for (const lines of [899, 1, 50_000]) await client.call("noisy__stray", { lines });
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      assert.deepEqual(
        warnings(client).map((line) => Number(/(\d+) lines? so far/.exec(line)?.[1])),
        [1, 10, 100, 1000, 10_000],
      );
      for (const line of warnings(client)) assert.match(line, /"DEBUG noise"/);
      // The invalid UTF-8 of its listing is told of once.
      const told = client.stderr.split("\n").filter((line) => line.includes("UTF-8"));
      assert.equal(told.length, 1, client.stderr);
    }));

  it("has each line in the log at level debug", () =>
    withTestFolder({ servers: { noisy } }, async (setup) => {
      const client = start(setup, "--log-level", "debug");
      await client.initializeAndList();
      await client.call("noisy__stray", { lines: 20 });
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      assert.equal(
        client.stderr.split("\n").filter((line) => line.endsWith("DEBUG noise")).length,
        20,
      );
    }));
});
