import assert from "node:assert/strict";
import { describe, it } from "node:test";
import picocolors from "picocolors";
import { textOf } from "../../src/base/bytes.ts";
import { COMMAND_GROUPS } from "../../src/cli/command.ts";
import { COMMANDS } from "../../src/cli/commands.ts";
import { type CallProgress, HubClient } from "../../src/frontend/hub-client.ts";
import { describeCommand } from "../../src/cli/server-description.ts";
import { formatHelp } from "../../src/cli/help.ts";
import { GLOBAL_OPTIONS, logFormatIn, parseCommandLine } from "../../src/cli/args.ts";
import { namedOptions } from "../../src/cli/options.ts";
import { parseCommand } from "../fixtures/command-line.ts";
import { alignTable } from "../../src/terminal/terminal.ts";
import { describeError, formatFailureLine, sanitizeLine } from "../../src/terminal/log.ts";
import { HubError } from "../../src/base/errors.ts";
import { LIMIT_DEFAULTS, type StdioServer } from "../../src/manifest/manifest.ts";
import { ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";

function invoke(...argv: string[]) {
  const { command, invocation } = parseCommand<Record<string, unknown>>(argv);
  return { command, ...invocation };
}

const fails = (code: string, message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof HubError);
  assert.equal(error.code, code);
  assert.match(error.message, message);
  return true;
};

describe("a command line", () => {
  it("without a command serves", () => {
    for (const argv of [[], ["--config", "a.toml"], ["--log-level=debug"], ["--"]])
      assert.equal(invoke(...argv).command.name, "serve", argv.join(" "));
  });

  it("may have global options in front of the command, and all behind it", () => {
    const wanted = {
      config: ["a.toml", "b.json"],
      logLevel: "debug",
      logFormat: "json",
      json: true,
      args: ["tools"],
    };
    for (const line of [
      "--config a.toml --config b.json --log-level debug --log-format json list tools --json",
      "list --json tools --config=a.toml --config=b.json --log-level=debug --log-format=json",
      "--config a.toml --log-format json list --log-level debug --config b.json tools --json",
    ]) {
      const { command, config, logLevel, logFormat, options, args } = invoke(...line.split(" "));
      assert.equal(command.name, "list");
      assert.deepEqual({ config, logLevel, logFormat, json: options["json"], args }, wanted);
    }
  });

  it("has defaults for all that it does not say", () => {
    const { config, logLevel, logFormat, options, args } = invoke("list");
    const all = [config, logLevel, logFormat, options, args];
    const none = { json: false, all: false, fresh: false, hub: undefined };
    assert.deepEqual(all, [[], "warn", "text", none, []]);
  });

  it("leaves the words of a call as they are, numbers too", () => {
    const { args } = invoke("call", "a__x", "n=1e3", "007", "k=a=b", "m=-5", "-", "--", "--odd=1");
    assert.deepEqual(args, ["a__x", "n=1e3", "007", "k=a=b", "m=-5", "-", "--odd=1"]);
  });

  it("gives --json a value in a call, and none in a list", () => {
    assert.equal(invoke("call", "x", "--json", '{"a": 1}').options["json"], '{"a": 1}');
    assert.equal(invoke("call", "x", "--json={}").options["json"], "{}");
    assert.deepEqual(invoke("list", "--json", "servers").args, ["servers"]);
  });

  for (const [line, message] of [
    ["lst", /no command "lst". Did you mean "list"\?/],
    ["frobnicate", /no command "frobnicate"\.$/],
    ["servers.toml", /no command "servers.toml".*toolmux --config servers.toml/],
    ["list --jsn", /"list".*"--jsn".*"--json"/],
    ["--confg a.toml", /no option "--confg".* Did you mean "--config"\?/],
    ["serve --json", /"serve".*"--json"/],
    ["list -x", /no option "-x"/],
    ["call x -xy", /no option "-x"/],
    ["call x --a 1", /no option "--a".* a=1$/],
    ["call x --a=1", /no option "--a".* a=1$/],
    ["call x --a", /no option "--a".* a=true$/],
    ["call x --a --b", /no option "--a".* a=true$/],
    ["call x --n 007", /no option "--n".* n=007$/],
    ["call x --it it's", /no option "--it".* 'it=it'\\''s'$/],
    ["call x --jso {}", /no option "--jso".*"--json".* 'jso=\{\}'$/],
    ["list --no-json", /no option "--no-json"/],
    ["--config", /--config needs a value: FILE/],
    ["--config=", /--config needs a value: FILE/],
    ["call x --json", /--json needs a value/],
    ["add foo npx -y bar", / toolmux add foo -- npx -y bar$/],
    ["add foo --env A=1 npx --yes bar", / toolmux add foo --env A=1 -- npx --yes bar$/],
    ["bench npx -y bar", / toolmux bench -- npx -y bar$/],
    ["add --yes foo npx", /"add".*"--yes"/],
    ["add foo -y", /"add".*"-y"/],
    ["--log-level loud", /--log-level .*error, warn, info, debug.*"loud"/],
    ["--log-format xml", /--log-format .*text, json.*"xml"/],
    ["describe a b", /"describe".*"b"/],
    ["serve now", /"serve".*"now"/],
    ["call", /"call".*: toolmux call NAME/],
    ["trust", /"trust".*: toolmux trust FILE/],
    ["--constructor", /no option "--constructor"/],
    ["list --__proto__=1", /no option "--__proto__"/],
  ] as const) {
    it(`that is wrong says what is: ${line}`, () => {
      assert.throws(() => parseCommandLine(line.split(" "), COMMANDS), fails("usage", message));
    });
  }

  it("that is wrong still says in which format its error is told", () => {
    for (const [line, format] of [
      ["--log-format json list --bogus", "json"],
      ["list --log-format=json --limit", "json"],
      ["list --log-format json --log-format text", "text"],
      ["list --log-format xml", "text"],
      ["call x -- --log-format json", "text"],
      ["list json", "text"],
    ] as const)
      assert.equal(logFormatIn(line.split(" ")), format, line);
  });

  it("asks for help or the version whatever else it holds", () => {
    const kinds = (line: string) => {
      const request = parseCommandLine(line.split(" "), COMMANDS);
      return request.kind === "help" ? `help ${request.command?.name ?? "all"}` : request.kind;
    };
    assert.deepEqual(
      ["-h", "--help", "list --help", "call -h", "--version", "list --version"].map(kinds),
      ["help all", "help all", "help list", "help call", "version", "version"],
    );
    assert.deepEqual(["-V", "-v", "list -V"].map(kinds), ["version", "version", "version"]);
  });
});

describe("help", () => {
  it("names every command once, and every option that all have", () => {
    const text = formatHelp(COMMANDS, undefined);
    for (const { name, summary } of COMMANDS)
      assert.equal(text.match(new RegExp(`^  ${name} +${summary.slice(0, 20)}`, "gm"))?.length, 1);
    for (const { name } of namedOptions(GLOBAL_OPTIONS))
      assert.ok(text.includes(`--${name}`), name);
  });

  it("has the commands in groups, those of a new user first", () => {
    const lines = formatHelp(COMMANDS, undefined).split("\n");
    const headings = COMMAND_GROUPS.map((group) => lines.indexOf(`${group}:`));
    assert.deepEqual(
      headings,
      headings.toSorted((a, b) => a - b),
    );
    const start = headings[0] ?? -1;
    assert.ok(start > 0);
    assert.deepEqual(
      lines.slice(start + 1, start + 5).map((line) => line.trim().split(" ")[0]),
      ["import", "add", "install", "status"],
    );
    for (const { group } of COMMANDS) assert.ok(COMMAND_GROUPS.includes(group), group);
  });

  it("names the options that all commands have in one line of the help of a command", () => {
    for (const command of COMMANDS) {
      const lines = formatHelp(COMMANDS, command).split("\n");
      assert.equal(lines.filter((line) => /--log-level/.test(line)).length, 1, command.name);
      assert.match(lines.at(-1) ?? "", /--config.*: toolmux help$/);
    }
  });

  it("has bold headings and colored names on a terminal, and the same text without", () => {
    const colors = picocolors.createColors(true);
    for (const command of [undefined, ...COMMANDS]) {
      const style = { isTerminal: true, width: 80, colors };
      const text = formatHelp(COMMANDS, command, style);
      // oxlint-disable-next-line no-control-regex
      assert.equal(text.replaceAll(/\u001b\[\d+m/g, ""), formatHelp(COMMANDS, command));
      const [group] = COMMAND_GROUPS;
      const heading = command === undefined ? `${group}:` : "Examples:";
      assert.ok(text.includes(colors.bold(heading)), heading);
    }
    const style = { isTerminal: true, width: 80, colors };
    for (const { name } of COMMANDS)
      assert.ok(formatHelp(COMMANDS, undefined, style).includes(colors.cyan(name)), name);
  });

  it("fits a terminal of any usual width, and uses it", () => {
    const colors = picocolors.createColors(false);
    for (const width of [40, 60, 100, 200])
      for (const command of [undefined, ...COMMANDS]) {
        const examples = command?.examples.map((line) => `  ${line}`) ?? [];
        const text = formatHelp(COMMANDS, command, { isTerminal: true, width, colors });
        for (const line of text.split("\n"))
          // A long word, such as a list of choices, is not broken.
          if (!examples.includes(line) && line.trim().includes(" "))
            assert.ok(line.length <= Math.min(width, 100), `${width}: ${line}`);
        if (width === 100 && command === undefined)
          assert.ok(text.split("\n").some((line) => line.length > 80));
      }
  });

  for (const command of COMMANDS) {
    it(`of ${command.name} shows its usage, its options and its examples`, () => {
      const text = formatHelp(COMMANDS, command);
      const [words = ""] = command.usage.split("[-- ");
      assert.ok(text.includes(["Usage: toolmux", command.name, words].join(" ").trim()));
      for (const { name } of namedOptions(command.options))
        assert.ok(text.includes(`--${name}`), name);
      for (const example of command.examples) assert.ok(text.includes(example), example);
    });

    it(`of ${command.name} has examples that are right`, () => {
      for (const example of command.examples) {
        const [, ...argv] = example.replace(/ [<>] .*/, "").match(/'[^']*'|\S+/g) ?? [];
        const request = parseCommandLine(
          argv.map((word) => word.replaceAll("'", "")),
          COMMANDS,
        );
        assert.equal(request.kind === "run" && request.command.name, command.name);
      }
    });

    it(`and the code of ${command.name} can be loaded`, async () => {
      assert.equal(typeof (await command.load()), "function");
    });
  }

  it("fits a terminal of 80 columns", () => {
    for (const command of [undefined, ...COMMANDS])
      for (const line of formatHelp(COMMANDS, command).split("\n"))
        assert.ok(line.length <= 80, line);
  });

  it("has an example for every command", () => {
    for (const { name, examples } of COMMANDS) assert.ok(examples.length > 0, name);
  });
});

describe("a command line that is shown", () => {
  const shown = (args: string[], env: Record<string, string> = {}) =>
    describeCommand({
      kind: "stdio",
      name: "s",
      enabled: true,
      prefix: "s",
      command: "run",
      args,
      env,
      inheritEnv: [],
      cwd: undefined,
      baseDir: "/",
      syntax: "toolmux",
      isolation: "shared",
      era: "auto",
      lazy: false,
      tools: { allow: undefined, deny: [], rename: {}, timeout: {} },
      prompts: { allow: undefined, deny: [], rename: {} },
      ...LIMIT_DEFAULTS,
    } satisfies StdioServer);

  for (const args of [
    ["--api-key", "hunter2"],
    ["--api-key=hunter2"],
    ["--token", "hunter2", "more"],
    ["-e", "GITHUB_TOKEN=hunter2"],
    ["--header", "Authorization: Bearer hunter2"],
    ["https://user:hunter2@example.com/x"],
    ["https://example.com/x?a=1&api_key=hunter2"],
    ["hunter2hunter2hunter2hunter2"],
  ]) {
    it(`shows no secret: ${args.join(" ")}`, () => {
      assert.ok(!shown(args).includes("hunter2"), shown(args));
      assert.ok(shown(args).startsWith("run "));
    });
  }

  it("names the variables that are set, and not their values", () => {
    assert.equal(shown([], { LEVEL: "hunter2", KEY: "hunter2" }), "LEVEL=… KEY=… run");
  });

  it("is the same as in the manifest otherwise, references included, quoted as a shell needs it", () => {
    assert.equal(
      shown([
        "-y",
        "@scope/server-files",
        "${env:HOME}/my work",
        "--token",
        "${env:TOKEN}",
        "it's",
      ]),
      `run -y @scope/server-files '\${env:HOME}/my work' --token \${env:TOKEN} 'it'\\''s'`,
    );
  });
});

describe("what is printed", () => {
  const paper = (width: number) => ({
    isTerminal: false,
    width,
    colors: picocolors.createColors(false),
  });

  it("has nothing in it that moves a terminal's cursor or changes its colours", () => {
    assert.equal(sanitizeLine("a\u001b[31mb\nc\u0007\u009bd"), "a [31mb c d");
    const hidden = "\u200b\u200f\u202a\u202e\u2066\u2069\ufeff\u{e0000}\u{e007f}";
    const shown = "200b 200f 202a 202e 2066 2069 feff e0000 e007f".split(" ");
    assert.equal(sanitizeLine(hidden), shown.map((code) => `\\u{${code}}`).join(""));
    const visible = "\u200a\u2010\u2028\u202f\u2065\u206a\u{e0080}é€😀";
    assert.equal(sanitizeLine(visible), visible);
    const rows = [["x\u001b[2J", "y"]];
    assert.equal(alignTable(["A", "B"], rows, paper(Infinity)), "A      B\nx [2J  y");
  });

  it("is aligned, and cut only where the paper ends", () => {
    const rows = [
      ["name", "what it does"],
      ["longer-name", ""],
    ];
    assert.equal(
      alignTable(["T", "D"], rows, paper(20)),
      "T            D\nname         what i…\nlonger-name",
    );
    assert.match(alignTable(["T", "D"], rows, paper(Infinity)), /what it does/);
  });

  it("of an error is its sentence, and its server's last words below", () => {
    const error = new HubError("connectionLost", 'Server "a" exited.', {
      stderr: ["one", "t\u001bwo"],
    });
    assert.equal(describeError(error), 'toolmux: Server "a" exited.\n  one\n  t wo');
    assert.equal(
      formatFailureLine(error),
      'Server "a" exited. Its last stderr lines: one | t\u001bwo',
    );
  });

  it("of a manifest's problems is one line each, as editors read them", () => {
    assert.equal(describeError(new HubError("manifestInvalid", "a:1:2: x\nb")), "a:1:2: x\nb");
  });
});

describe("a client in the same process", () => {
  it("sees what every client sees", async () => {
    const { hub } = setUpHub({ a: new ScriptedServer("x", "y"), b: new ScriptedServer("x") });
    const client = await HubClient.connect(hub, new AbortController().signal);
    const items = await client.listTools();
    assert.deepEqual(
      items.map(({ key }) => key),
      ["a__x", "a__y", "b__x"],
    );
    await hub.close();
  });

  it("sends arguments as they are written, in one line, and gives the answer as it comes", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => '"result":{"content":[],"n":1.0}';
    const { hub } = setUpHub({ a });
    const client = await HubClient.connect(hub, new AbortController().signal);
    await client.listTools();
    const { bytes, body } = await client.callTool("a__x", '{\r\n"n": 1.0,\n"text": "a\\nb"}');
    assert.equal(textOf(bytes, body.start, body.end), '{"content":[],"n":1.0}');
    const sent = a.newestPeer?.received.find((text) => text.includes("tools/call")) ?? "";
    assert.ok(sent.includes('{  "n": 1.0, "text": "a\\nb"}'), sent);
    assert.ok(!/[\r\n]/.test(sent));
    await hub.close();
  });

  it("asks for progress if somebody wants to know of it, and gets what the server says", async () => {
    const a = new ScriptedServer("x");
    const tokens: unknown[] = [];
    a.onCall = ({ params }) => {
      const { progressToken } = (params?.["_meta"] ?? {}) as { progressToken?: unknown };
      tokens.push(progressToken);
      for (const progress of progressToken === undefined ? [] : [1, 2]) {
        const reported = { progressToken, progress, total: 2, message: `step ${progress}` };
        a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params: reported });
      }
      return '"result":{"content":[]}';
    };
    const { hub } = setUpHub({ a });
    const client = await HubClient.connect(hub, new AbortController().signal);
    await client.listTools();
    const reported: CallProgress[] = [];
    const args = '{"_meta":{"progressToken":"mine"}}';
    await client.callTool("a__x", args, (progress) => reported.push(progress));
    assert.deepEqual(
      reported.map(({ progress, total, message }) => [progress, total, message]),
      [
        [1, 2, "step 1"],
        [2, 2, "step 2"],
      ],
    );
    await client.callTool("a__x", args);
    assert.equal(reported.length, 2);
    assert.notEqual(tokens[0], undefined);
    assert.equal(tokens[1], undefined);
    await hub.close();
  });

  it("that is interrupted tells the server", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { hub } = setUpHub({ a });
    const stop = new AbortController();
    const client = await HubClient.connect(hub, stop.signal);
    await client.listTools();
    const call = client.callTool("a__x", "{}");
    await a.newestPeer?.find(({ method }) => method === "tools/call");
    stop.abort(new HubError("cancelled", "Interrupted."));
    await assert.rejects(call, fails("cancelled", /Interrupted/));
    await a.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    await hub.close();
  });
});
