import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assert as check, constantFrom, nat, property } from "fast-check";
import { makeColors } from "../../src/terminal/terminal.ts";
import { sanitizeForTerminal } from "../../src/terminal/visible.ts";
import { formatCodeFrame } from "../../src/cli/code-frame.ts";
import { formatProblem, type Problem } from "../../src/manifest/problems.ts";
import { withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";

const PLAIN = { width: Infinity, colors: makeColors(false) };

function problemsOf(source: string, name = "t.toml"): Promise<readonly Problem[]> {
  return withManifestFolder(async (folder) => {
    const { problems } = await folder.load({ files: [await folder.write(name, source)] });
    assert.ok(problems.length > 0, "the manifest has no problem");
    return problems;
  });
}

/** The pictures of all problems of a file. */
async function draw(source: string, name = "t.toml", paper = PLAIN): Promise<string[]> {
  const problems = await problemsOf(source, name);
  return problems.flatMap((problem) => formatCodeFrame(problem, source, paper) ?? []);
}

const SERVER = '[servers.a]\ncommand = "npx"\n';

/** A file, and what is shown of its first problem. */
const SHOWN: readonly (readonly [source: string, ...picture: readonly string[]])[] = [
  [`${SERVER}callTimeout = "soon"`, ' 3 | callTimeout = "soon"', "   |               ^"],
  [`${SERVER}calTimeout = "5s"`, ' 3 | calTimeout = "5s"', "   | ^"],
  [`${SERVER}enabled = 1 # was token`, " 3 | enabled = 1", "   |           ^"],
  [`${SERVER}tools.alow = []`, " 3 | tools.alow = []", "   |       ^"],
  [
    `${SERVER}\ttools = { alow = [], deny = ["x"] }`,
    ' 3 |  tools = { alow = [], deny = ["x"] }',
    "   |            ^",
  ],
  ['[servers.a]\nplugin = "./x"', ' 2 | plugin = "./x"', "   |          ^"],
  ['[[plugins]]\nuse = "./none.ts"', ' 2 | use = "./none.ts"', "   |       ^"],
  ['[[plugins]]\nuse = "x"\ntools = ["a", 5]', ' 3 | tools = ["a", 5]', "   |               ^"],
  ['[[plugins]]\nuse = "x"\noptions = "sk-1"', ' 3 | options = "•••"', "   |           ^"],
  ["[hub]\nname = ''", " 2 | name = ''", "   |        ^"],
  ["[server.a]", " 1 | [server.a]", "   |  ^"],
  ["[servers.a]\nargs = []", " 1 | [servers.a]", "   |          ^"],
  ['[servers.a]\ncommand = ""', ' 2 | command = ""', "   |           ^"],
  [
    `${SERVER}env = { A = 1234, "B C" = "x" }`,
    ' 3 | env = { A = •••, "B C" = "•••" }',
    "   |             ^",
  ],
  [`${SERVER}[servers.a.env]\nTOKEN = 99887766`, " 4 | TOKEN = •••", "   |         ^"],
  [
    `${SERVER}args = ["--token", true]`,
    ' 3 | args = ["--token", •••]',
    "   |                    ^",
  ],
  [
    `${SERVER}args = ["-y", "pkg@1.2.3", 8080, "/srv"]`,
    ' 3 | args = ["-y", "pkg@1.2.3", 8080, "/srv"]',
    "   |                            ^",
  ],
  [
    `servers.a = { command = "npx", args = ["-y"], env = { A = "b" }, calTimeout = "5s" }`,
    ' 1 | servers.a = { command = "npx", args = ["-y"], env = { A = "•••" }, calTimeout = "5s" }',
    "   |                                                                    ^",
  ],
  [`${SERVER}args = [\n  "pass-of-an-option", 5\n]`, ' 4 |   "•••", 5', "   |          ^"],
  [`${SERVER}calTimeout = 5\nTOKN = "hunter22"`, " 3 | calTimeout = 5", "   | ^"],
  [`${SERVER}TOKN = "hunter22"`, ' 3 | TOKN = "•••"', "   | ^"],
  ["[servers.files", " 1 | [servers.files", "   |               ^"],
  ["[servers.my server]", " 1 | [servers.my server]", "   |          ^"],
  ['[servers.a]\nargs = ["-y" "x"]', ' 2 | args = ["•••" "•••"]', "   |               ^"],
  ['[servers.a]\nargs = [\n  "a",\n  b,\n]', " 4 |   •••,", "   |   ^"],
  ["[hub]\nname = npx", " 2 | name = •••", "   |        ^"],
  ["[servers.a.env]\nTOKEN=sk-123", " 2 | TOKEN=•••", "   |       ^"],
];

describe("the picture of a problem", () => {
  for (const [source, ...picture] of SHOWN) {
    it(`is its line with a caret under the place: ${JSON.stringify(source)}`, async () => {
      assert.equal((await draw(source))[0], picture.join("\n"));
    });
  }

  it("is drawn for JSON with comments, too", async () => {
    const source = '{\n  // old: "sk-1"\n  "hub": { "nmae": "x" }, // sk-2\n  "servers": {}\n}';
    assert.deepEqual(await draw(source, "t.json"), [
      ' 3 |   "hub": { "nmae": "x" },\n   |            ^',
    ]);
  });

  it("masks all of a line in which a comment ends, as it may have begun before", async () => {
    const source = '{\n  // old: "sk-1"\n  "hub": { "nmae": "x" /* sk-2 */ },\n  "servers": {}\n}';
    assert.deepEqual(await draw(source, "t.json"), [' 3 |   "•••\n   |   ^']);
  });

  it("shows what there is room for around the place, with marks where it was cut", async () => {
    const names = Array.from({ length: 40 }, (_, i) => `a${i} = 1`).join(", ");
    const source = `${SERVER}tools = { ${names}, alow = [], ${names.replaceAll("a", "b")} }`;
    const pictures = await draw(source, "t.toml", { ...PLAIN, width: 60 });
    const isWhole = (one: string) => / alow = \[\]/.test(one) && one.split("^")[0]?.endsWith(" ");
    for (const [line = "", caret = ""] of pictures.map((one) => one.split("\n"))) {
      assert.ok(line.length <= 60, line);
      assert.ok(/^[ab]\d+|^alow/.test(line.slice(caret.indexOf("^"))), `${line}\n${caret}`);
    }
    assert.ok(pictures.some(isWhole));
  });

  it("has colours only if they are wanted", async () => {
    const style = { width: Infinity, colors: makeColors(true) };
    const [picture = ""] = await draw(`${SERVER}enabled = 1`, "t.toml", style);
    assert.ok(sanitizeForTerminal(picture).includes("\u001b[31m^"));
  });

  it("has nothing in it that moves a terminal's cursor", async () => {
    for (const picture of await draw(`${SERVER}enabled = "\u009b2J"`))
      assert.ok(!picture.includes("\u009b"));
  });

  const SECRET = "s3cr3t-Value.0123456789/+abcdef";

  /** Nothing secret is in what is said of a file, or in what is drawn of it. */
  async function assertHidden(source: string): Promise<void> {
    const name = source.startsWith("{") ? "t.json" : "t.toml";
    const messages = (await problemsOf(source, name)).map(formatProblem);
    const text = [...messages, ...(await draw(source, name))].join("\n");
    assert.ok(!/s3cr3t|0123456789|8675309/.test(text), text);
  }

  for (const [name, source] of Object.entries({
    "beside the problem": `servers.a = { command = "x", env = { TOKEN = "${SECRET}" }, calTimeout = 3 }`,
    "in a literal": `servers.a = { command = 'x', env = { TOKEN = '${SECRET}' }, calTimeout = 3 }`,
    "before the problem": `servers.a = { env = { "MY TOKEN" = "${SECRET}" }, command = 5 }`,
    "in a comment": `${SERVER}enabled = 1 # TOKEN = "${SECRET}"`,
    "behind a table name": `[servers.a.env] TOKEN = "${SECRET}"`,
    "behind a table name that is not closed": `[servers.a.env TOKEN = "${SECRET}"`,
    "in a table name": `[servers.a "${SECRET}"`,
    "without quotes": `[servers.a.env]\nTOKEN = ${SECRET}`,
    "without an end": `[servers.a.env]\nTOKEN = "${SECRET}`,
    "without a key": `[servers.a.env]\n${SECRET}`,
    "with a wrong escape": `[servers.a.env]\nTOKEN = "${SECRET}\\q"`,
    "in several lines": `[servers.a]\nargs = ["""\n${SECRET}\n${SECRET}\\q=="""]`,
    "in several lines that look like keys": `[servers.a]\nargs = ["""\nx = 1, y = ${SECRET} \\q"""]`,
    "before the end of several lines": `servers.a = { command = """\n${SECRET}""", calTimeout = 3 }`,
    "that looks like a key, before the end of several lines": `servers.a = { command = """\ns3cr3t = 1""", calTimeout = 3 }`,
    "that looks like a key, before the end of several lines that are broken": `servers.a = { command = """\ns3cr3t = 1""", calTimeout 3 }`,
    "of an unknown key that resembles a setting": `${SERVER}pwd = "s3cr3t"`,
    "between an option on an earlier line and the problem": `${SERVER}args = [\n  "--token",\n  "s3cr3t", 5]`,
    "in a table that begins on an earlier line": `{"servers": {"a": {"command": "x", "env": {\n"command": "s3cr3t"}, "calTimeout": 5}}}`,
    "of an unknown key": `${SERVER}apiKey = "${SECRET}"`,
    "in headers": `${SERVER}headers = { Authorization = "Bearer ${SECRET}" }`,
    "in arguments": `${SERVER}args = ["--token=${SECRET}", 5]`,
    "as a number": `${SERVER}env = { PIN = 0.123456789 }`.replace("0.123456789", "8675309"),
    "that has a quote in it": `servers.a = { command = "x", env = { T = "a\\"${SECRET}" }, calTimeout = 3 }`,
    "in the place of a server": `servers.a = "x --token ${SECRET}"`,
    "in the place of all servers": `servers = "${SECRET}"`,
    "in the place of the settings": `hub = "${SECRET}"`,
    "of a server that is called like a setting": `servers."x.enabled" = "${SECRET}"`,
    "of a table that is none": `${SERVER}env = "TOKEN=${SECRET}"`,
    "in a table too deep": `${SERVER}env = { A = { B = "${SECRET}" } }`,
    "in a form without an end": `${SERVER}env.A = "\${${SECRET}:${SECRET}/x:-${SECRET}"`,
    "in an unknown form": `${SERVER}env.A = "\${vault:${SECRET}}"`,
    "in the place of options": `[[plugins]]\nuse = "x"\noptions = "${SECRET}"`,
    "in a list of options": `[[plugins]]\nuse = "x"\noptions = ["${SECRET}"]`,
    "twice, without a comma": `${SERVER}env.A = "${SECRET}" "${SECRET}"`,
    "as a key without a value": `[servers.a.env]\n${SECRET} = `,
    "as a command without quotes": `[servers.a]\ncommand = ${SECRET}`,
    "behind a command without quotes": `[servers.a]\ncommand = x --token ${SECRET}`,
    "in a URL without quotes": `[servers.a]\nurl = https://me:${SECRET}@host/`,
    "in a path with wrong escapes": `[servers.a.env]\nTOKEN = "C:\\s3cr3t"`,
    "in an array without a comma": `[servers.a]\nargs = ["${SECRET}" "${SECRET}"]`,
    "in an array without quotes": `[servers.a]\nargs = [${SECRET}]`,
  })) {
    it(`never shows a secret, nor does the message: ${name}`, () => assertHidden(source));
  }

  it("may show a command, arguments and a folder, but no message does", async () => {
    const other = `args = "${SECRET}"\ncwd = ["${SECRET}"]`;
    const messages = (await problemsOf(`[servers.a]\ncommand = ["${SECRET}"]\n${other}`)).map(
      formatProblem,
    );
    assert.equal(messages.length, 3);
    assert.doesNotMatch(messages.join(), /s3cr3t/);
  });

  it("shows a line of broken JSON with its strings masked and the caret in its column", async () => {
    assert.deepEqual(await draw('{"servers": {"a": {"args": ["-y" "foo"]}}}', "t.json"), [
      ' 1 | {"servers": {"a": {"args": ["•••" "•••"]}}}\n   |                                   ^',
    ]);
  });

  it("masks all of a line of broken JSON in which a comment ends", async () => {
    assert.deepEqual(await draw('{"hub": {} /* old: {\n "s3cr3t": 1 */ x', "t.json"), [
      ' 2 |  "•••\n   |  ^',
    ]);
  });

  it("never shows a secret of broken JSON", async () => {
    for (const source of [
      `{"servers":{"a":{"command":"x","env":{"TOKEN":"${SECRET}"},}, nope}}`,
      `{"servers": {"a": {\n  "command": "x"\n  "env": {"TOKEN":"${SECRET}"}}}}`,
      `{"servers": {"a": {"env": {\n"TOKEN": ${SECRET} }}}}`,
      `{"servers": {"a": {"env": {"TOKEN: "${SECRET}", "B": "${SECRET}"}}}}`,
      `{"servers": {"a": {"env": {TOKEN: ${SECRET}, "B": ${SECRET}}}}}`,
      `{"servers": {"a": {"env": {\n"TOKEN": "${SECRET}\n }}}}`,
    ]) {
      await assertHidden(source);
    }
  });

  it("never shows a secret, wherever in a line the problem is said to be", () => {
    const lines = [
      `  TOKEN = "${SECRET}", B = '${SECRET}' # ${SECRET}`,
      `{"env": {"TOKEN": "${SECRET}", "n": ["${SECRET}"]}} // ${SECRET}`,
      `"TOKEN": "${SECRET}\\" ${SECRET}",`,
    ];
    check(
      property(
        constantFrom(...lines),
        nat(120),
        constantFrom(
          [],
          ["servers", "a", "env", "TOKEN"],
          ["servers", "a"],
          ["servers", "b.prefix"],
          ["servers", "a", "args", 0],
        ),
        (line, at, path) => {
          const position = { line: 1, column: at + 1 };
          const problem = { file: "/t", position, path, at: "value" as const, message: "" };
          assert.ok(!/s3cr3t|0123456789/.test(formatCodeFrame(problem, line, PLAIN) ?? ""));
        },
      ),
    );
  });

  it("is left out where there is no line to show", () => {
    const problem = { file: "/t", path: ["a"], at: "value" as const, message: "m" };
    assert.equal(formatCodeFrame(problem, "a", PLAIN), undefined);
    for (const line of [2, 3]) {
      const there = { ...problem, position: { line, column: 1 } };
      assert.equal(formatCodeFrame(there, "a\n\n", PLAIN), undefined);
    }
  });
});
