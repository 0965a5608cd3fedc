import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import type { AgentEvent } from "../../src/agent/events.ts";
import type { AgentDocument } from "../../src/control/schemas.ts";
import { finishCommand, run, runCommand, runJson, startHub, startOn } from "../harness/command.ts";
import {
  executable,
  EXIT_LIMIT,
  it,
  itWith,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { controlled } from "../harness/controlled-servers.ts";
import {
  type Manifest,
  publishedServer,
  scripted,
  type ServerEntry,
  toToml,
} from "../harness/manifest.ts";
import type { RawClient } from "../harness/raw-client.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";
import { RawHttpServer } from "../fixtures/raw-http-server.ts";

/** The turns of the models: which answer follows which message or result. */
const TURNS = `
[[turns]]
when = "remember"
thinking = "First the file, then the entity."
text = ["I will ", "write it down."]
toolCalls = [
  { name = "files__read_text_file", arguments = { path = "DIR/files/in.txt" } },
  { name = "files__write_file", arguments = { path = "DIR/files/out.txt", content = "done" } },
]

[[turns]]
after = "files__write_file"
toolCalls = [{ name = "memory__create_entities", arguments = { entities = [{ name = "note", entityType = "file", observations = ["done"] }] } }]

[[turns]]
after = "memory__create_entities"
text = "Remembered: {message}"

[[turns]]
when = "look for it"
toolCalls = [{ name = "search_tools", arguments = { query = "write a file", limit = 3 } }]

[[turns]]
after = "search_tools"
toolCalls = [{ name = "call_tool", arguments = { name = "files:write_file", arguments = { path = "DIR/files/out.txt", content = "found" } } }]

[[turns]]
after = "call_tool"
text = "Called: {message}"

[[turns]]
when = "delegate"
toolCalls = [{ name = "transfer_task", arguments = { agent = "helper", task = "say hello" } }]

[[turns]]
after = "transfer_task"
text = "The helper said: {message}"

[[turns]]
when = "echo it"
toolCalls = [{ name = "s__echo", arguments = { path = "a" } }]

[[turns]]
when = "echo twice"
toolCalls = [
  { name = "s__echo", arguments = { path = "a" } },
  { name = "s__echo", arguments = { path = "b" } },
]

[[turns]]
when = "hold and echo"
toolCalls = [
  { name = "c__hold", arguments = { until = "DIR/released" } },
  { name = "s__echo", arguments = {} },
]

[[turns]]
after = "c__hold"
text = "Held."

[[turns]]
after = "s__echo"
text = "Echoed: {message}"

[[turns]]
when = "slowly"
toolCalls = [{ name = "s__hang", arguments = {} }]

[[turns]]
when = "hang"
text = "I begin"
hang = true

[[turns]]
when = "fail"
error = { reason = "badRequest" }

[[turns]]
text = "You said: {message}"
`;

const MODELS = { main: { provider: "script", script: "turns.toml" } };
const SCRIPTED: Manifest = {
  servers: { s: scripted() },
  modes: { reading: { tools: { readOnly: true } } },
  models: MODELS,
  agents: {
    main: { model: "main", instruction: "Work.", tools: "all", subAgents: ["helper"] },
    helper: { model: "main", instruction: "Help.", description: "Helps." },
    keyless: { model: "anthropic/claude-x", instruction: "No key." },
    short: { model: "main", instruction: "Be quick.", timeout: "1s" },
  },
};

const SERVERLESS: Manifest = { ...SCRIPTED, servers: {} };

/** With published servers besides: one whose tools only read or also write, and one that remembers. */
const published = (dir: string): Manifest => ({
  ...SCRIPTED,
  servers: {
    files: publishedServer("filesystem", [join(dir, "files")]),
    memory: publishedServer("memory", [], { MEMORY_FILE_PATH: join(dir, "memory.jsonl") }),
  },
});

/** A server whose tool `hold` answers when a file is there, and needs no approval. */
function holding(dir: string): ServerEntry {
  return controlled({
    env: { GOVERNED: join(dir, "c") },
    tools: { approval: { hold: "never" } },
  });
}

function withAgents<T>(
  use: (folder: TestFolder) => Promise<T>,
  manifest: Manifest | ((dir: string) => Manifest) = SCRIPTED,
): Promise<T> {
  return withTestFolder(manifest, async (folder) => {
    prepare(folder);
    return use(folder);
  });
}

function prepare({ dir }: TestFolder): void {
  mkdirSync(join(dir, "files"));
  writeFileSync(join(dir, "files", "in.txt"), "read me");
  writeFileSync(join(dir, "turns.toml"), TURNS.replaceAll("DIR", dir));
}

function eventsOf(stdout: string): readonly AgentEvent[] {
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as AgentEvent);
}

/** Runs a command in a terminal, which then shows the exit code and its own mode. */
function startIn({ dir, env, config }: TestFolder, command: string): RawClient {
  const line = `'${executable()}' ${command} --config '${config}'; echo "code $?"; stty -a`;
  return startInTerminal({ dir, env }, line);
}

/** Waits until the terminal has shown the text so often. */
function shows(terminal: RawClient, text: string | RegExp, times = 1): Promise<true> {
  return terminal.until(15_000, `${text} for the ${times}. time`, () =>
    shownBy(terminal).split(text).length > times ? true : undefined,
  );
}

describe("toolmux run", () => {
  it("uses real servers: what only reads at once, what writes only if it may", () =>
    withAgents(async (folder) => {
      const file = join(folder.dir, "files", "out.txt");
      // What is not approved leaves nothing for the other server to do.
      const { memory: _, ...servers } = published(folder.dir).servers;
      const readers = join(folder.dir, "readers.toml");
      writeFileSync(readers, toToml({ ...SCRIPTED, servers }));
      const words = ["run", "main", "remember it", "--config", readers];
      const refused = await runCommand(folder, words);
      assert.equal(refused.code, 0, refused.stderr);
      assert.match(refused.stdout, /^I will write it down\./);
      assert.match(refused.stderr, /✓ files__read_text_file .*\n/);
      assert.match(refused.stderr, /✗ files__write_file .*notApproved\n/);
      assert.ok(!existsSync(file));
      const allowed = await run(folder, "run", "main", "remember it", "--approval", "never");
      assert.equal(allowed.code, 0, allowed.stderr);
      assert.match(allowed.stdout, /\nRemembered: /);
      assert.equal(readFileSync(file, "utf8"), "done");
      assert.match(readFileSync(join(folder.dir, "memory.jsonl"), "utf8"), /"note"/);
    }, published));

  it("lets a model with many tools search for them; a call of what it found needs approval like any other", () =>
    withAgents(
      async (folder) => {
        const file = join(folder.dir, "files", "out.txt");
        const refused = await runCommand(folder, [
          "run",
          "main",
          "look for it",
          "--config",
          folder.config,
        ]);
        assert.equal(refused.code, 0, refused.stderr);
        assert.match(refused.stderr, /✓ search_tools [^]*✗ files__write_file .*notApproved\n/);
        assert.ok(!existsSync(file));
        const words = ["run", "main", "look for it", "--approval", "never", "--json"] as const;
        const { stdout } = await run(folder, ...words);
        const calls = eventsOf(stdout).flatMap((event) =>
          event.type === "toolExecuted" ? [[event.toolName, event.success, event.via]] : [],
        );
        assert.deepEqual(calls, [
          ["search_tools", true, undefined],
          ["files__write_file", true, "call_tool"],
        ]);
        assert.equal(readFileSync(file, "utf8"), "found");
        const { agents } = await runJson<{ agents: readonly AgentDocument[] }>(folder, "agents");
        assert.equal(agents[0]?.exposure?.form, "search");
        assert.ok((agents[0]?.exposure?.tokens ?? 0) > 500);
      },
      (dir) => {
        const { files } = published(dir).servers as Readonly<Record<string, ServerEntry>>;
        assert.ok(files);
        return { ...SCRIPTED, servers: { files }, hub: { exposeBudget: 500 } };
      },
    ));

  it("prints its events as lines of JSON, in order, those of other agents with their names", () =>
    withAgents(async (folder) => {
      const { code, stdout } = await run(folder, "run", "main", "please delegate", "--json");
      const events = eventsOf(stdout);
      assert.equal(code, 0);
      assert.equal(events[0]?.type, "runStarted");
      const texts = events.flatMap((event) => (event.type === "textDelta" ? [event.agent] : []));
      assert.deepEqual(texts, ["helper", "main"]);
      const end = events.at(-1);
      assert.ok(end?.type === "runComplete");
      assert.equal(end.text, "The helper said: You said: say hello");
    }, SERVERLESS));

  it("reads the message from stdin with -, and uses another model with --model", () =>
    withAgents(async (folder) => {
      const args = ["run", "keyless", "-", "--model", "main", "--config", folder.config];
      const { code, stdout } = await runCommand(folder, args, { input: "from a pipe" });
      assert.deepEqual([code, stdout.trim()], [0, "You said: from a pipe"]);
    }, SERVERLESS));

  for (const [what, code, error, ...args] of [
    ["the model fails", 1, /Model "main" failed/, "main", "fail"],
    ["there is no such agent", 2, /Did you mean "main"/, "mian", "x"],
    ["there is no such mode", 2, /Did you mean "reading"/, "main", "x", "--mode", "readng"],
    ["the message is empty", 2, /empty/, "main", " "],
    ["the key is missing", 3, /toolmux secret set anthropic/, "keyless", "x"],
    ["it takes too long", 124, /longer than 1 s/, "short", "hang"],
  ] as const) {
    it(`ends with code ${code} if ${what}, and says so`, () =>
      withAgents(async (folder) => {
        const done = await run(folder, "run", ...args);
        assert.equal(done.code, code, done.stderr);
        assert.match(done.stderr, error);
      }, SERVERLESS));
  }

  it("ends with code 130 after Ctrl-C, and cancels the call at its server", () =>
    withAgents(async (folder) => {
      const command = startOn(folder, "run", "main", "slowly", "--approval", "never");
      await folder.waitForEvent("s", ({ event }) => event === "call");
      const since = performance.now();
      command.signal("SIGINT");
      await folder.waitForEvent("s", ({ event }) => event === "cancelled");
      const { code } = await finishCommand(command);
      assert.equal(code, 130);
      assert.ok(performance.now() - since < 10_000);
    }));

  it("uses the servers of a running hub, and tells them which agents are at work; a chat goes on with its own when the hub has ended", () =>
    withAgents(async (folder) => {
      const hub = await startHub(folder);
      const done = await run(folder, "run", "main", "echo it");
      assert.equal(done.code, 0, done.stderr);
      assert.match(done.stdout, /Echoed: \{"path":"a"\}/);
      const logged = (what: string) => folder.log("s").filter(({ event }) => event === what);
      assert.equal(logged("start").length, 1);
      const [call, ...others] = logged("call");
      assert.equal(others.length, 0);
      assert.match(call?.meta ?? "", /"toolmux\/chain":\["main"\]/);
      const chat = startOn(folder, "chat", "main");
      const answers = (times: number): Promise<true> =>
        chat.until(15_000, `answer ${times}`, () => {
          const text = chat.lines.map((line) => line.text).join("\n");
          return text.split("Echoed: ").length > times ? true : undefined;
        });
      chat.write("echo it\n");
      await answers(1);
      assert.equal(logged("start").length, 1);
      hub.end();
      await hub.waitForExit(EXIT_LIMIT);
      chat.write("echo it\n");
      await answers(2);
      chat.end();
      await chat.waitForExit(EXIT_LIMIT);
      assert.equal(logged("start").length, 2);
    }));

  it("never shows the key of a model, whatever the provider answers", () =>
    withTestFolder({ servers: {} }, async (folder) => {
      const key = "sk-canary-1234567890";
      const error = { message: `Incorrect API key provided: ${key}`, type: "auth" };
      const api = await RawHttpServer.start(({ respond }) =>
        respond(401, { "Content-Type": "application/json" }, JSON.stringify({ error })),
      );
      writeFileSync(
        folder.config,
        `[models.m]\nprovider = "openai"\nmodel = "x"\nurl = "http://127.0.0.1:${api.port}/v1"\napiKey = "\${env:KEY}"\n[agents.a]\nmodel = "m"\ninstruction = "x"\n`,
      );
      for (const more of [["--json"], ["--log-level", "debug"]]) {
        const args = ["run", "a", "hello", ...more, "--config", folder.config];
        const { code, stdout, stderr } = await runCommand(folder, args, { env: { KEY: key } });
        assert.equal(code, 1, stderr);
        assert.ok(!`${stdout}${stderr}`.includes("canary"), stdout + stderr);
      }
      api.destroy();
    }));
});

describe("toolmux agents", () => {
  it("lists the agents, and says why some cannot be used", () =>
    withAgents(async (folder) => {
      interface Line {
        readonly name: string;
        readonly usable: boolean;
        readonly problem?: string;
      }
      const { agents } = await runJson<{ agents: readonly Line[] }>(folder, "agents");
      assert.deepEqual(
        agents.map(({ name, usable }) => `${name} ${usable}`),
        ["main true", "helper true", "keyless false", "short true"],
      );
      assert.match(agents[2]?.problem ?? "", /toolmux secret set anthropic/);
    }));
});

describe("an agent in a terminal", { skip: skipWithoutTerminal }, () => {
  for (const command of ["run", "chat"]) {
    const ask = async (folder: TestFolder, message: string): Promise<RawClient> => {
      const said = command === "run" ? `'${message}'` : "";
      const terminal = startIn(folder, `${command} main --approval always ${said}`);
      if (command === "chat") {
        await shows(terminal, "main> ");
        terminal.write(`${message}\r`);
      }
      return terminal;
    };
    const finish = async (terminal: RawClient): Promise<void> => {
      if (command === "chat") terminal.write("/quit\r");
      await shows(terminal, "code 0");
      await terminal.waitForExit(EXIT_LIMIT);
    };

    it(`asks about one call after the other, and drops what was typed before a question (${command})`, () =>
      withAgents(async (folder) => {
        const terminal = await ask(folder, "echo twice");
        await shows(terminal, "Allow it?");
        terminal.write("y\ry");
        await shows(terminal, "Allow it?", 2);
        terminal.write("\r");
        await shows(terminal, "Echoed: ");
        await finish(terminal);
        assert.match(shownBy(terminal).split("code 0")[1] ?? "", / echo\b/);
        assert.equal(folder.log("s").filter(({ event }) => event === "call").length, 1);
      }));

    it(`prints the end of another call only after the open question is answered (${command})`, () =>
      withAgents(
        async (folder) => {
          const terminal = await ask(folder, "hold and echo");
          await shows(terminal, "Allow it?");
          writeFileSync(join(folder.dir, "released"), "");
          for (const times of [2, 3, 4, 5, 6, 7, 8]) {
            terminal.write("neither\r");
            await shows(terminal, "Allow it?", times);
          }
          terminal.write("y\r");
          await shows(terminal, /✓.* c__hold /);
          await shows(terminal, /✓.* s__echo/);
          await finish(terminal);
          assert.doesNotMatch(shownBy(terminal), /✓[^]*Allow it/);
        },
        (dir) => ({ ...SCRIPTED, servers: { s: scripted(), c: holding(dir) } }),
      ));
  }
});

describe("toolmux chat", { skip: skipWithoutTerminal }, () => {
  itWith({ timeout: 90_000 })(
    "streams text, folds thinking, has a line for each call, asks for approval, and stops at Ctrl-C",
    () =>
      withAgents(async (folder) => {
        const terminal = startIn(folder, "chat main");
        await shows(terminal, "main> ");
        terminal.write("please remember it\r");
        await shows(terminal, "Allow it?");
        terminal.write("y\r");
        await shows(terminal, "Allow it?", 2);
        terminal.write("n\r");
        await shows(terminal, "Remembered: ");
        const shown = shownBy(terminal);
        assert.match(shown, /\(thought(?: for [1-9][^)]*)?\)/);
        assert.doesNotMatch(shown, /First the file/);
        assert.match(shown, /I will write it down\./);
        assert.match(shown, /✓.* files__write_file .*\d (?:ms|s), /);
        assert.match(shown, /✗.* memory__create_entities .*notApproved/);
        assert.equal(readFileSync(join(folder.dir, "files", "out.txt"), "utf8"), "done");
        terminal.write("/mode reading\r/tools\r");
        await shows(terminal, "files__read_text_file  ");
        await shows(terminal, / \d+ tools/);
        assert.doesNotMatch(shownBy(terminal), /\n {2}files__write_file {2}/);
        terminal.write("/servers\r");
        await shows(terminal, "memory: connected, ");
        terminal.write("hang\r");
        await shows(terminal, "I begin");
        terminal.write("\u0003");
        await shows(terminal, "Cancelled.");
        terminal.write("/save out.json\r");
        await shows(terminal, "saved as");
        const saved = readFileSync(join(folder.dir, "out.json"), "utf8");
        assert.match(saved, /I begin\\n\[cancelled\]/);
        terminal.write("\u0003");
        await shows(terminal, "Ctrl-C again");
        terminal.write("\u0003");
        await shows(terminal, "code 130");
        await terminal.waitForExit(EXIT_LIMIT);
      }, published),
  );

  it("reads lines from a pipe, too; says that a mode or a message does not exist, and that a file exists already", () =>
    withAgents(async (folder) => {
      const taken = join(folder.dir, "taken.md");
      writeFileSync(taken, "mine");
      const args = ["chat", "main", "--config", folder.config];
      const input =
        "one\ntwo\n/history\n/mode nope\n/clear\n/history\n/save taken.md\n/quit\nthree\n";
      const { code, stdout, stderr } = await runCommand(folder, args, { input });
      assert.equal(code, 0);
      assert.match(stdout, /You said: one\nYou said: two\n\*\*You:\*\* one\n/);
      assert.match(stdout, /There are no messages\.\n/);
      assert.doesNotMatch(stdout, /three/);
      const lines = stderr
        .split("\n")
        .filter((line) => /nope|taken|toolmux help|EEXIST/.test(line));
      assert.deepEqual(lines, [
        'There is no mode "nope". The modes are: full, reading.',
        `not saved: ${taken} exists. Choose another name.`,
      ]);
      assert.equal(readFileSync(taken, "utf8"), "mine");
    }, SERVERLESS));

  it("tells which servers of the agent are not up, folds results, and shows one whole", () =>
    withAgents(
      async (folder) => {
        const lost = /^toolmux: server lost \(.*no-such-program\) is not up: .*not installed/m;
        const done = await run(folder, "run", "main", "echo it");
        assert.match(done.stderr, lost);
        assert.doesNotMatch(done.stderr, /server other/);
        assert.match(done.stderr, /s__echo .*\n +\{"path":"a"\}/);
        assert.doesNotMatch(done.stdout, /lost|s__echo/);
        const quiet = await run(folder, "run", "main", "echo it", "--quiet");
        assert.equal(quiet.stderr, "");
        const args = ["chat", "main", "--config", folder.config];
        const input = "/servers\necho it\n/result 1\n/result 2\n/history\n/save out.md\n";
        const { stdout, stderr } = await runCommand(folder, args, { input });
        assert.match(stderr, lost);
        assert.match(stdout, /^ {2}lost: .*not installed/m);
        assert.match(stdout, /^\{"path":"a"\}$/m);
        assert.match(stderr, /There is no result 2/);
        assert.match(stdout, /> s__echo: .*\n> +\{"path":"a"\}/);
        const saved = readFileSync(join(folder.dir, "out.md"), "utf8");
        assert.match(saved, /> s__echo: .*\n\n```\n\{"path":"a"\}\necho\n```/);
      },
      {
        ...SCRIPTED,
        servers: {
          s: scripted(),
          lost: { command: "no-such-program" },
          other: { command: "no-such-program" },
        },
        agents: {
          main: { model: "main", instruction: "Work.", tools: { servers: ["s", "lost"] } },
        },
      },
    ));

  it("tells a server whose tools are known and whose start fails", () =>
    withAgents(
      async (folder) => {
        const program = join(folder.dir, "server.mjs");
        const [working = ""] = scripted().args ?? [];
        writeFileSync(program, `import ${JSON.stringify(working)};\n`);
        const first = await run(folder, "run", "main", "x");
        assert.doesNotMatch(first.stderr, /not up/);
        writeFileSync(program, "process.exit(3);\n");
        const second = await run(folder, "run", "main", "x");
        assert.match(second.stderr, /^toolmux: server a \(.*\) is not up: .*exit/m);
      },
      {
        ...SCRIPTED,
        servers: { a: { command: process.execPath, args: ["server.mjs"] } },
        agents: { main: { model: "main", instruction: "Work.", tools: "all" } },
      },
    ));

  it("says of the only mode that it is that", () =>
    withAgents(
      async (folder) => {
        const done = await run(folder, "run", "main", "x", "--mode", "nope");
        assert.match(done.stderr, /There is no mode "nope"\. The only mode is full\.\n/);
      },
      { ...SCRIPTED, modes: {} },
    ));
});
