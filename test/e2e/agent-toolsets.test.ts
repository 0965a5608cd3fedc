import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, runCommand, start } from "../harness/command.ts";
import { it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { publishedServer, scripted, type ServerEntry } from "../harness/manifest.ts";

/** The settings of a server as an inline table of TOML. */
const inline = ({ command, args = [], env = {} }: ServerEntry): string => {
  const members = Object.entries(env).map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
  return `{ command = ${JSON.stringify(command)}, args = ${JSON.stringify(args)}, env = { ${members.join(", ")} } }`;
};

const FILE = `agents:
  root:
    model: main
    instruction: Work.
    welcome_message: "Ahoy\u001b[31m!"
    commands: {greet: "Greet \${args[0]} from $WHERE"}
    toolsets: [{type: filesystem, tools: [write_file]}, {type: shell}, {type: memory}]
permissions: {allow: [write_file, "shell:cmd=ls*", "*"], deny: ["shell:cmd=rm *"]}
`;

function answersFor(path: string): string {
  const call = (when: string, name: string, args: string): string =>
    `[[turns]]\nwhen = "${when}"\ntimes = 1\ntoolCalls = [{ name = "${name}", arguments = ${args} }]\n`;
  return [
    call(
      "write it",
      "filesystem__write_file",
      `{ path = ${JSON.stringify(path)}, content = "hi" }`,
    ),
    call("list it", "shell__run", '{ line = "ls -a" }'),
    call("remove it", "shell__run", '{ line = "rm -rf x" }'),
    call("remember it", "add_memory", '{ memory = "blue, st0red-secret" }'),
    call("recall it", "get_memories", "{}"),
    '[[turns]]\ntext = ["{message}"]\n',
  ].join("");
}

interface Setup {
  readonly folder: TestFolder;
  /** The path of the agent's file. */
  readonly file: string;
  /** Runs the agent on a message. */
  ask(message: string): Promise<CommandOutput>;
  /** Runs another command on the manifest. */
  command(...args: readonly string[]): Promise<CommandOutput>;
}

function withAgentFile(use: (setup: Setup) => Promise<void>): Promise<void> {
  return withTestFolder("", async (folder) => {
    const log = join(folder.dir, "shell.log");
    const shell = { ...scripted("--bare --tool run"), env: { SCRIPTED_LOG: log } };
    const files = publishedServer("filesystem", ["${roots}"]);
    writeFileSync(
      folder.config,
      `[models.main]\nprovider = "script"\nscript = "answers.toml"\n[agentFiles]\npaths = ["agents"]\n[agentFiles.toolsets]\nfilesystem = ${inline(files)}\nshell = ${inline(shell)}\n`,
    );
    mkdirSync(join(folder.dir, "agents"));
    const file = join(folder.dir, "agents/w.yaml");
    writeFileSync(join(folder.dir, "answers.toml"), answersFor(join(folder.dir, "agents/note")));
    writeFileSync(file, FILE);
    const command: Setup["command"] = (...args) =>
      runCommand(folder, [...args, "--config", folder.config], { env: { WHERE: "Rome" } });
    await use({ folder, file, command, ask: (message) => command("run", file, message) });
  });
}

describe("an agent's file with toolsets", () => {
  it("has its commands as tools, whose arguments never become commands, and calls none without a person", () =>
    withAgentFile(async ({ folder, file, command, ask }) => {
      const mark = join(folder.dir, "agents/mark");
      const shell = {
        show: {
          cmd: 'echo first >&2; printf "%s|%s" "$what" "$FIXED"; echo last >&2',
          args: { what: {} },
          env: { FIXED: "f" },
        },
        fail: { cmd: "touch mark; exit 3" },
        wait: { cmd: "sleep 60" },
      };
      const agents = { root: { model: "main", toolsets: [{ type: "script", shell }] } };
      writeFileSync(file, JSON.stringify({ agents }));
      const added = await command("agents", "add", file, "--yes");
      assert.match(added.stdout, /printf .*toolset script: .* has to allow each call/s);
      writeFileSync(
        join(folder.dir, "answers.toml"),
        '[[turns]]\nwhen = "fail it"\ntimes = 1\ntoolCalls = [{ name = "script__fail" }]\n[[turns]]\ntext = ["{message}"]\n',
      );
      const refused = await command("run", file, "fail it", "--approval", "never");
      assert.match(refused.stdout, /has to allow it each time/);
      assert.ok(!existsSync(mark));
      assert.match((await ask("x")).stdout, /^x\n$/);

      const shown = await command("agents", "show", file, "--json");
      assert.equal((JSON.parse(shown.stdout) as { trusted: boolean }).trusted, true);
      const scripts = Object.entries(shell).map(([name, one]) => {
        return {
          name,
          args: {},
          env: {},
          required: [],
          workingDir: join(folder.dir, "agents"),
          ...one,
        };
      });
      const server = start(folder, ["internal", "script-server", JSON.stringify(scripts)]);
      await server.initialize();
      const textOf = async (name: string, args: object = {}): Promise<readonly unknown[]> => {
        const { message } = await server.call(name, args);
        const { content, isError = false } = message.result as unknown as {
          readonly content: readonly { readonly text: string }[];
          readonly isError?: boolean;
        };
        return [content[0]?.text, isError];
      };
      const what = "$(touch mark); `touch mark` ' \" ${HOME}";
      assert.deepEqual(await textOf("show", { what }), [`first\n${what}|flast\n`, false]);
      assert.ok(!existsSync(mark));
      assert.deepEqual(await textOf("fail"), ["[ended by exit code 3]", true]);
      assert.ok(existsSync(mark));
      const id = server.sendCall("wait");
      server.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } });
      assert.equal((await textOf("show", {}))[1], false);
      void server.sendCall("wait");
      server.end();
      await server.waitForExit(20_000);
    }));

  it("works on files, and has no shell without a person, once it was added, until it changes", () =>
    withAgentFile(async ({ folder, file, ask, command }) => {
      const note = join(folder.dir, "agents/note");
      const untrusted = await ask("write it");
      assert.match(untrusted.stderr, /may not .*server "filesystem".*; run commands in a shell/s);
      assert.ok(!existsSync(note));
      assert.equal((await ask("/greet Ann")).stdout, "Greet Ann from $WHERE\n");
      const refused = await command("agents", "add", file);
      assert.deepEqual([refused.code, refused.stderr.includes("--yes")], [2, true]);
      assert.equal((await ask("/greet Ann")).stdout, "Greet Ann from $WHERE\n");

      const added = await command("agents", "add", file, "--yes");
      assert.equal(added.code, 0, added.stderr);
      assert.match(added.stdout, /toolset shell: .* has to allow each call/);
      assert.match(added.stdout, /without asking, .*: calls that match write_file/);
      await ask("write it");
      assert.equal(readFileSync(note, "utf8"), "hi");
      assert.match((await ask("list it")).stdout, /has to allow it each time/);
      assert.match((await ask("remove it")).stdout, /permissions\.deny "shell:cmd=rm \*"/);
      const events = folder.log("shell").map(({ event }) => event);
      assert.ok(events.includes("list") && !events.includes("call"), events.join(" "));
      await runCommand(folder, ["secret", "set", "word"], { input: "st0red-secret\n" });
      await ask("remember it");
      assert.match((await ask("recall it")).stdout, /"memory":"blue, \[redacted\]"/);
      const memories = join(folder.dir, "data/toolmux/agent-memory");
      for (const name of readdirSync(memories))
        assert.doesNotMatch(readFileSync(join(memories, name), "utf8"), /st0red-secret/);
      assert.equal((await ask("/greet Ann")).stdout, "Greet Ann from Rome\n");
      const chat = await runCommand(folder, ["chat", file, "--config", folder.config], {
        input: "/greet Bob\n",
      });
      assert.match(chat.stdout, /^Ahoy[^\n]*!\n/);
      assert.ok(chat.stdout.includes("Greet Bob from ") && !chat.stdout.includes("\u001b"));

      writeFileSync(file, `${FILE}# changed\n`);
      assert.match((await ask("list it")).stderr, /is not trusted/);
    }));
});
