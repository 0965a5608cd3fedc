import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { textOf } from "../../src/base/bytes.ts";
import { COMMAND_GROUPS } from "../../src/cli/command.ts";
import { COMMANDS } from "../../src/cli/commands.ts";
import { type CallProgress, HubClient } from "../../src/frontend/hub-client.ts";
import { describeCommand } from "../../src/operations/server-description.ts";
import { formatHelp } from "../../src/cli/help.ts";
import { GLOBAL_OPTIONS, logFormatIn, parseCommandLine } from "../../src/cli/args.ts";
import { namedOptions } from "../../src/cli/options.ts";
import { parseCommand } from "../fixtures/command-line.ts";
import { alignTable, makeColors } from "../../src/terminal/terminal.ts";
import { sanitizeForTerminal } from "../../src/terminal/visible.ts";
import { describeError, formatFailureLine, sanitizeLine } from "../../src/terminal/log.ts";
import { HubError } from "../../src/base/errors.ts";
import { ScriptedServer, setUpHub, stdioSpecOf } from "../fixtures/memory-hub.ts";

function invoke(...argv: string[]) {
  const { command, invocation } = parseCommand<Record<string, unknown>>(argv);
  return { command, ...invocation };
}

const fails = (code: string, message: RegExp) => ({ name: "HubError", code, message });
const paper = (width: number, isColored = false) => ({
  isTerminal: isColored,
  width,
  colors: makeColors(isColored),
});

describe("a command line", () => {
  it("without a command serves", () => {
    for (const argv of [[], ["--config", "a.toml"], ["--log-level=debug"], ["--"]])
      assert.equal(invoke(...argv).command.name, "serve", argv.join(" "));
  });

  it("may have global options in front of the command, and all behind it", () => {
    const log = { logLevel: "debug", logFormat: "json" };
    const wanted = { config: ["a.toml", "b.json"], ...log, json: true, args: ["tools"] };
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
    const none = {
      json: false,
      all: false,
      fresh: false,
      hub: undefined,
      mode: undefined,
      tokens: false,
    };
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
    const kind = (line: string) => {
      const request = parseCommandLine(line.split(" "), COMMANDS);
      return request.kind === "help" ? `help ${request.command?.name ?? "all"}` : request.kind;
    };
    for (const line of ["-h", "--help"]) assert.equal(kind(line), "help all");
    assert.deepEqual(["list --help", "call -h"].map(kind), ["help list", "help call"]);
    for (const line of ["--version", "list --version", "-V", "-v", "list -V"])
      assert.equal(kind(line), "version");
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
    const sorted = headings.toSorted((a, b) => a - b);
    assert.deepEqual(headings, sorted);
    const start = headings[0] ?? -1;
    assert.ok(start > 0);
    const first = lines.slice(start + 1, start + 5).map((line) => line.trim().split(" ")[0]);
    assert.deepEqual(first, ["import", "add", "install", "status"]);
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
    const style = paper(80, true);
    const { bold, cyan } = style.colors;
    for (const command of [undefined, ...COMMANDS]) {
      const text = formatHelp(COMMANDS, command, style);
      // oxlint-disable-next-line no-control-regex
      const shown = sanitizeForTerminal(text).replaceAll(/\u001b\[\d+m/g, "");
      assert.equal(shown, formatHelp(COMMANDS, command));
      const heading = command === undefined ? `${COMMAND_GROUPS[0]}:` : "Examples:";
      assert.ok(text.includes(bold(heading)), heading);
    }
    for (const { name } of COMMANDS)
      assert.ok(formatHelp(COMMANDS, undefined, style).includes(cyan(name)), name);
  });

  it("fits a terminal of any usual width, and uses it", () => {
    for (const width of [40, 60, 100, 200])
      for (const command of [undefined, ...COMMANDS]) {
        const examples = command?.examples.map((line) => `  ${line}`) ?? [];
        const text = formatHelp(COMMANDS, command, { ...paper(width), isTerminal: true });
        for (const line of text.split("\n"))
          // A long word, such as a list of choices, is not broken.
          if (!examples.includes(line) && line.trim().includes(" "))
            assert.ok(line.length <= Math.min(width, 100), `${width}: ${line}`);
        if (width === 100 && command === undefined)
          assert.ok(text.split("\n").some((line) => line.length > 80));
      }
  });

  it("of a command shows its usage, its options and examples, and fits 80 columns", () => {
    for (const command of COMMANDS) {
      const text = formatHelp(COMMANDS, command);
      const [words = ""] = command.usage.split("[-- ");
      const usage = ["Usage: toolmux", command.name, words].join(" ").trim();
      const names = namedOptions(command.options).map(({ name }) => `--${name}`);
      assert.ok(command.examples.length > 0, command.name);
      for (const part of [usage, ...names, ...command.examples])
        assert.ok(text.includes(part), `${command.name}: ${part}`);
    }
    for (const command of [undefined, ...COMMANDS])
      for (const line of formatHelp(COMMANDS, command).split("\n"))
        assert.ok(line.length <= 80, line);
  });

  for (const command of COMMANDS) {
    it(`of ${command.name} has examples that are right, and its code can be loaded`, async () => {
      for (const example of command.examples) {
        const [, ...argv] = example.replace(/ [<>] .*/, "").match(/'[^']*'|\S+/g) ?? [];
        const words = argv.map((word) => word.replaceAll("'", ""));
        const request = parseCommandLine(words, COMMANDS);
        assert.equal(request.kind === "run" && request.command.name, command.name);
      }
      assert.equal(typeof (await command.load()), "function");
    });
  }
});

describe("a command line that is shown", () => {
  const shown = (args: string[], env: Record<string, string> = {}) =>
    describeCommand(stdioSpecOf("s", { command: "run", args, env }));

  it("shows no secret", () => {
    for (const line of [
      "--api-key hunter2",
      "--api-key=hunter2",
      "--token hunter2 more",
      "-e GITHUB_TOKEN=hunter2",
      "https://user:hunter2@example.com/x",
      "https://example.com/x?a=1&api_key=hunter2",
      "hunter2hunter2hunter2hunter2",
    ]) {
      const text = shown(line.split(" "));
      assert.ok(text.startsWith("run ") && !text.includes("hunter2"), text);
    }
    const header = shown(["--header", "Authorization: Bearer hunter2"]);
    assert.ok(header.startsWith("run ") && !header.includes("hunter2"), header);
  });

  it("names the variables that are set, and not their values", () => {
    assert.equal(shown([], { LEVEL: "hunter2", KEY: "hunter2" }), "LEVEL=… KEY=… run");
  });

  it("is otherwise as in the manifest, references included, quoted as a shell needs it", () => {
    const args = ["-y", "@scope/server-files", "${env:HOME}/my work", "--token", "${env:TOKEN}"];
    assert.equal(
      shown([...args, "it's"]),
      `run -y @scope/server-files '\${env:HOME}/my work' --token \${env:TOKEN} 'it'\\''s'`,
    );
  });
});

describe("what is printed", () => {
  it("has nothing in it that moves a terminal's cursor or changes its colours", () => {
    assert.equal(sanitizeLine("a\u001b[31mb\nc\u0007\u009bd"), "a [31mb c d");
    const hidden = "\u200b\u200f\u202a\u202e\u2066\u2069\ufeff\u{e0000}\u{e007f}";
    const shown = "200b 200f 202a 202e 2066 2069 feff e0000 e007f".split(" ");
    assert.equal(sanitizeLine(hidden), shown.map((code) => `\\u{${code}}`).join(""));
    const visible = "\u200a\u2010\u202f\u{e0080}é€😀";
    assert.equal(sanitizeLine(visible), visible);
    const rows = [["x\u001b[2J", "y"]];
    assert.equal(alignTable(["A", "B"], rows, paper(Infinity)), "A      B\nx [2J  y");
  });

  it("of an error is its sentence, and its server's last words below", () => {
    const stderr = ["one", "t\u001bwo"];
    const error = new HubError("connectionLost", 'Server "a" exited.', { stderr });
    assert.equal(describeError(error), 'toolmux: Server "a" exited.\n  one\n  t wo');
    const line = 'Server "a" exited. Its last stderr lines: one | t\u001bwo';
    assert.equal(formatFailureLine(error), line);
  });

  it("of a manifest's problems is one line each, as editors read them", () => {
    assert.equal(describeError(new HubError("manifestInvalid", "a:1:2: x\nb")), "a:1:2: x\nb");
  });
});

describe("a client in the same process", () => {
  /** Connects a client that has listed the tools. */
  const connect = async (
    servers: Readonly<Record<string, ScriptedServer>>,
    use: (client: HubClient) => Promise<void>,
    { signal } = new AbortController(),
  ) => {
    const { hub } = setUpHub(servers);
    await use(await HubClient.connect(hub, signal));
    await hub.close();
  };

  it("sees what every client sees", () =>
    connect({ a: new ScriptedServer("x", "y"), b: new ScriptedServer("x") }, async (client) => {
      const keys = (await client.listTools()).map(({ key }) => key);
      assert.deepEqual(keys, ["a__x", "a__y", "b__x"]);
    }));

  it("sends arguments as they are written, in one line, and gives the answer as it comes", () => {
    const a = new ScriptedServer("x");
    a.onCall = () => '"result":{"content":[],"n":1.0}';
    return connect({ a }, async (client) => {
      await client.listTools();
      const { bytes, body } = await client.callTool("a__x", '{\r\n"n": 1.0,\n"text": "a\\nb"}');
      assert.equal(textOf(bytes, body.start, body.end), '{"content":[],"n":1.0}');
      const sent = a.newestPeer?.received.find((text) => text.includes("tools/call")) ?? "";
      assert.ok(sent.includes('{  "n": 1.0, "text": "a\\nb"}'), sent);
      assert.ok(!/[\r\n]/.test(sent));
    });
  });

  it("asks for progress if somebody wants to know of it, and gets what the server says", () => {
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
    return connect({ a }, async (client) => {
      await client.listTools();
      const reported: CallProgress[] = [];
      const args = '{"_meta":{"progressToken":"mine"}}';
      await client.callTool("a__x", args, (progress) => reported.push(progress));
      const said = reported.map((each) => [each.progress, each.total, each.message].join(" "));
      assert.deepEqual(said, ["1 2 step 1", "2 2 step 2"]);
      await client.callTool("a__x", args);
      assert.equal(reported.length, 2);
      assert.notEqual(tokens[0], undefined);
      assert.equal(tokens[1], undefined);
    });
  });

  it("that is interrupted tells the server", () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const stop = new AbortController();
    const interrupt = async (client: HubClient): Promise<void> => {
      await client.listTools();
      const call = client.callTool("a__x", "{}");
      await a.newestPeer?.find(({ method }) => method === "tools/call");
      stop.abort(new HubError("cancelled", "Interrupted."));
      await assert.rejects(call, fails("cancelled", /Interrupted/));
      await a.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    };
    return connect({ a }, interrupt, stop);
  });
});
