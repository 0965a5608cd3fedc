import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { RawClient } from "../harness/raw-client.ts";
import {
  EXIT_LIMIT,
  type TestFolder,
  executable,
  it,
  itWith,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";

const CANARY = "canary-0123456789abcdef";

/** A home of its own on a stage, and the executable in it. */
class Home {
  readonly dir: string;
  readonly manifest: string;
  readonly env: Readonly<Record<string, string>>;
  readonly #setup: TestFolder;

  constructor(setup: TestFolder) {
    this.#setup = setup;
    this.dir = join(setup.dir, "someone");
    this.manifest = join(this.dir, ".config/toolmux/toolmux.toml");
    this.env = {
      ...setup.env,
      HOME: this.dir,
      XDG_CONFIG_HOME: "",
      XDG_STATE_HOME: "",
      TOOLMUX_KEYCHAIN: "off",
    };
  }

  write(path: string, content: object | string): string {
    const file = join(this.dir, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content, null, 2));
    return file;
  }

  /** Runs one command to its end. */
  run(...args: readonly string[]): Promise<CommandOutput> {
    return runCommand({ dir: this.#setup.dir, env: this.env }, args);
  }
}

const withHome = (use: (home: Home) => Promise<void>): Promise<void> =>
  withTestFolder("", (setup) => use(new Home(setup)));

const CURSOR = (entry: object) => ({ mcpServers: { one: { ...scripted(), ...entry } } });

describe("toolmux import", () => {
  it("shows what it would add, and adds it only when it is told to; then the tools are there", () =>
    withHome(async (home) => {
      home.write(".cursor/mcp.json", CURSOR({ env: { API_TOKEN: CANARY } }));
      const asked = await home.run("import");
      assert.equal(asked.code, 2);
      assert.match(asked.stdout, /^cursor +one +API_TOKEN=…/m);
      assert.match(asked.stderr, /Nothing was added.*--yes/);
      const dry = await home.run("import", "--dry-run");
      assert.equal(dry.code, 0);
      assert.ok(!existsSync(home.manifest));
      const done = await home.run("import", "cursor", "--secrets", "--yes");
      assert.equal(done.code, 0, done.stderr);
      assert.match(readFileSync(home.manifest, "utf8"), /\$\{secret:one\/API_TOKEN\}/);
      assert.equal(statSync(home.manifest).mode & 0o777, 0o600);
      const again = await home.run("import");
      assert.equal(again.code, 0);
      assert.match(again.stdout, /in .* already/);
      const listed = await home.run("list");
      assert.match(listed.stdout, /one__echo/, listed.stderr);
      for (const { stdout, stderr } of [asked, dry, done, again]) {
        assert.doesNotMatch(stdout + stderr, /canary/);
      }
      assert.equal(
        execFileSync("grep", ["-rlE", "canary", home.dir]).toString().trim(),
        join(home.dir, ".cursor/mcp.json"),
      );
    }));

  it("ends with the command that makes the client use toolmux instead", () =>
    withHome(async (home) => {
      home.write(".cursor/mcp.json", CURSOR({}));
      const { stdout } = await home.run("import", "--yes");
      assert.match(stdout, /^ +toolmux install cursor --replace/m);
    }));

  it("says where ${workspaceFolder} leads", () =>
    withHome(async (home) => {
      home.write(".cursor/mcp.json", CURSOR({ args: ["${workspaceFolder}"] }));
      const { stdout } = await home.run("import", "--dry-run");
      assert.match(stdout, /^ {2}one: .*\$\{workspaceFolder\}.*project/m);
    }));

  it("shows nothing that a terminal would obey, whatever a client's file holds", () =>
    withHome(async (home) => {
      const entry = { command: "x\u001b[31m", args: ["\u0007\u009b"], "odd\u001b[2J": 1 };
      home.write(".cursor/mcp.json", { mcpServers: { "e\u001b[2Jvil\u009b": entry } });
      for (const line of [
        "import --dry-run",
        "import --yes",
        "import --yes",
        "import --json",
        "check",
        "check --json",
        "list servers --json",
        "status --json",
      ]) {
        const { stdout, stderr } = await home.run(...line.split(" "));
        assert.match(stdout, /vil/, line);
        // oxlint-disable-next-line no-control-regex
        assert.doesNotMatch(stdout + stderr, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/, line);
      }
    }));

  it("looks at what stands in the folder only when it is told to", () =>
    withHome(async (home) => {
      home.write("../.cursor/mcp.json", CURSOR({}));
      assert.match((await home.run("import", "--dry-run")).stdout, /nothing to add|already/);
      assert.match((await home.run("import", "--dry-run", "--project")).stdout, /cursor +one/);
    }));

  const skip = skipWithout({
    isMet: process.platform === "linux" && missingPrograms(["script"]).length === 0,
    tests: "questions on a terminal",
    remedy: "this needs Linux and script (apt-get install bsdutils)",
  });
  const test = itWith({ skip });

  test("asks on a terminal", () =>
    withHome(async (home) => {
      home.write(".cursor/mcp.json", CURSOR({}));
      const line = `'${executable()}' import cursor`;
      for (const [answer, code] of [
        ["n", 2],
        ["y", 0],
      ] as const) {
        const { status } = spawnSync("script", ["-qec", line, "/dev/null"], {
          env: { ...home.env, TERM: "xterm" },
          input: `${answer}\n`,
          timeout: EXIT_LIMIT,
        });
        assert.equal(status, code);
        assert.equal(existsSync(home.manifest), code === 0);
      }
    }));
});

describe("toolmux install", () => {
  it("makes a client start this executable, which has the client's servers; and leaves no trace when it is undone", () =>
    withHome(async (home) => {
      const file = home.write(".cursor/mcp.json", CURSOR({ env: { API_TOKEN: CANARY } }));
      const before = readFileSync(file);
      const dry = await home.run("install", "cursor", "--replace", "--dry-run");
      assert.equal(dry.code, 0);
      assert.ok(readFileSync(file).equals(before) && !existsSync(home.manifest));
      const done = await home.run("install", "cursor", "--replace", "--secrets");
      assert.equal(done.code, 0, done.stderr);
      assert.doesNotMatch(done.stdout + dry.stdout, /canary/);
      const written = JSON.parse(readFileSync(file, "utf8")) as {
        mcpServers: Record<string, { command: string; args: string[] }>;
      };
      assert.deepEqual(Object.keys(written.mcpServers), ["toolmux"]);
      const { command = "", args = [] } = written.mcpServers["toolmux"] ?? {};
      const client = new RawClient(command, args, dirname(file), home.env);
      await client.initialize();
      const { message } = await client.request("tools/list");
      assert.ok(message.result?.tools?.some(({ name }) => name === "one__echo"));
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      const undone = await home.run("install", "cursor", "--undo");
      assert.equal(undone.code, 0);
      assert.ok(readFileSync(file).equals(before));
      assert.deepEqual(readdirSync(dirname(file)), ["mcp.json"]);
    }));

  it("writes the path in PATH, which outlives an upgrade, and not what the link leads to", () =>
    withHome(async (home) => {
      const bin = join(home.dir, "bin");
      mkdirSync(bin, { recursive: true });
      symlinkSync(executable(), join(bin, "toolmux"));
      const PATH = `${bin}:${home.env["PATH"] ?? ""}`;
      const shown = spawnSync("toolmux", ["install", "cursor", "--json"], {
        env: { ...home.env, PATH },
        encoding: "utf8",
      });
      assert.equal(shown.status, 0, shown.stderr);
      const text = readFileSync(join(home.dir, ".cursor/mcp.json"), "utf8");
      const { mcpServers } = JSON.parse(text) as { mcpServers: { toolmux: { command: string } } };
      assert.equal(mcpServers.toolmux.command, join(bin, "toolmux"));
    }));

  it("--undo of a file that was changed since names the servers that it does not put back, and their backup", () =>
    withHome(async (home) => {
      const file = home.write(".cursor/mcp.json", CURSOR({}));
      const installed = await home.run("install", "cursor", "--replace");
      assert.equal(installed.code, 0, installed.stderr);
      const config = JSON.parse(readFileSync(file, "utf8")) as { mcpServers: object };
      home.write(".cursor/mcp.json", { mcpServers: { ...config.mcpServers, two: scripted() } });
      const { code, stdout } = await home.run("install", "cursor", "--undo");
      assert.equal(code, 0);
      const [, backup = ""] = /not restored: "one"\. .* from (\S+)$/m.exec(stdout) ?? [];
      assert.deepEqual(Object.keys(JSON.parse(readFileSync(backup, "utf8")).mcpServers), ["one"]);
    }));

  it("--undo names what to do then, and no line of the file", () =>
    withHome(async (home) => {
      const file = home.write(".vscode/mcp.json", { servers: { a: { command: "x" } } });
      const user = home.write(".config/Code/User/mcp.json", { servers: { a: { command: "x" } } });
      assert.ok(existsSync(file));
      const installed = await home.run("install", "vscode");
      assert.match(installed.stdout, /^Next, in VS Code: /m);
      writeFileSync(user, `${readFileSync(user, "utf8")}\n// changed since\n`);
      const { code, stdout } = await home.run("install", "vscode", "--undo");
      assert.equal(code, 0);
      assert.match(stdout, /^Next: restart VS Code/m);
      assert.doesNotMatch(stdout, /start toolmux|mcp\.json:\d/);
    }));

  it("shows its entry with the indent that it gets", () =>
    withHome(async (home) => {
      home.write(".cursor/mcp.json", CURSOR({}));
      const { stdout } = await home.run("install", "cursor", "--dry-run");
      const [, indent = "", , inner = ""] =
        /^\+ ( *)"toolmux": \{(.*)\n\+ ( *)"command"/m.exec(stdout) ?? [];
      assert.ok(indent.length > 0 && inner.length > indent.length, stdout);
    }));

  it("shows the lines of its entry, and nothing of what stands beside it", () =>
    withHome(async (home) => {
      home.write(
        ".cursor/mcp.json",
        '{\n\t"mcpServers": {\n\t\t"a": { "command": "x" } // theirs\n\t}\n}\n',
      );
      const { stdout } = await home.run("install", "cursor", "--dry-run");
      const shown = stdout.split("\n").filter((line) => line.startsWith("+"));
      assert.equal(shown[0], '+     "toolmux": {');
      assert.deepEqual(
        shown.filter((line) => line.includes("theirs") || line.includes(",")),
        [`+       "command": ${JSON.stringify(executable())},`],
      );
    }));

  it("says which file it cannot read, where, and leaves it", () =>
    withHome(async (home) => {
      const file = home.write(".cursor/mcp.json", '{\n"mcpServers": oh\n}');
      const { code, stderr } = await home.run("install", "cursor");
      assert.equal(code, 2);
      assert.match(stderr, /mcp\.json:2:15:? not valid JSON/);
      assert.equal(readFileSync(file, "utf8"), '{\n"mcpServers": oh\n}');
      assert.equal((await home.run("import", "cursor", "--yes")).code, 2);
      assert.equal((await home.run("import", "--yes")).code, 0);
    }));
});

describe("toolmux doctor", () => {
  it("exits with 0, 1 or 2, and puts right what is safe", () =>
    withHome(async (home) => {
      assert.equal((await home.run("doctor")).code, 2);
      home.write(".config/toolmux/toolmux.toml", '[servers.a]\ncommand = "/bin/true"\n');
      const fine = await home.run("doctor");
      assert.equal(fine.code, 0, fine.stdout);
      home.write(
        ".config/toolmux/toolmux.toml",
        `[servers.a]\ncommand = "/bin/true"\nenv = { API_TOKEN = "${CANARY}" }\n`,
      );
      const open = await home.run("doctor");
      assert.equal(open.code, 1);
      assert.match(open.stdout, /error +TM701.*\(fixable\)/);
      const fixed = await home.run("doctor", "--fix", "--json");
      assert.equal(fixed.code, 0);
      const { ok, fixed: done } = JSON.parse(fixed.stdout) as { ok: boolean; fixed: string[] };
      // Doctor also ends what hubs of other tests, that are killed now, have left on this machine.
      const own = done.filter((text) => !text.startsWith("Ended "));
      assert.deepEqual([ok, own.length], [true, 1]);
      assert.equal(statSync(home.manifest).mode & 0o777, 0o600);
      for (const { stdout, stderr } of [open, fixed])
        assert.doesNotMatch(stdout + stderr, /canary/);
      home.write(".config/toolmux/toolmux.toml", "x = 1\n");
      const broken = await home.run("doctor");
      assert.equal(broken.code, 2);
      assert.match(broken.stdout, /TM101 .*toolmux\.toml:1:1/);
    }));

  it("looks at what servers list, when they have run, without starting them", () =>
    withHome(async (home) => {
      const { command, args } = scripted();
      const entry = `[servers.a]\ncommand = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\n`;
      home.write(".config/toolmux/toolmux.toml", entry);
      const client = new RawClient(executable(), [], home.dir, home.env);
      await client.initialize("2025-11-25", { sampling: {}, roots: { listChanged: true } });
      await client.request("tools/list");
      client.end();
      await client.waitForExit(EXIT_LIMIT);
      const { stdout, code } = await home.run("doctor");
      assert.equal(code, 0);
      assert.doesNotMatch(stdout, /TM803/);
    }));
});
