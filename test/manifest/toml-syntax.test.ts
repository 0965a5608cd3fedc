import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assert as check, constantFrom, nat, property } from "fast-check";
import { parseToml } from "../../src/manifest/toml.ts";

/** A text that is not valid TOML, the place of the problem, and its message after the prefix. */
type Row = readonly [text: string, place: string, message: string];

const ROWS: Readonly<Record<string, readonly Row[]>> = {
  "a table name": [
    [
      '[servers.files\ncommand = "x"',
      "1:15",
      "the table name has no closing ]: write [servers.files]",
    ],
    ["[servers.files", "1:15", "the table name has no closing ]: write [servers.files]"],
    ["[[plugins]\nuse = 'x'", "1:10", "the table name has no closing ]]: write [[plugins]]"],
    [
      "[servers.my server]\ncommand = 'x'",
      "1:10",
      'a table name with a space needs quotes: write [servers."my server"], or choose a name without a space',
    ],
    [
      "[servers.a] command = 'x'",
      "1:12",
      "only a comment may follow a table name: write the key on the next line",
    ],
    [
      "# files\n[servers.files]\ncommand = 'a'\n\n[servers.files]\ncommand = 'b'",
      "5:2",
      "[servers.files] is already in line 2: give this server another name",
    ],
    ["[hub]\n[hub]", "2:2", "[hub] is already in line 1: merge the two tables"],
  ],
  "a key": [
    [
      "[servers.a]\ncommand = 'x'\ncommand = 'y'",
      "3:1",
      "command is already set in line 2: remove one of the two",
    ],
    ["[servers.a]\ncommand: 'npx'", "2:8", 'TOML uses = after a key, not ":"'],
    ["[servers.a]\nnpx", "2:4", 'this is a key without a value: write KEY = "…"'],
    ["[servers.a]\nmy key = 1", "2:3", 'a key with a space needs quotes, such as "my key" = …'],
    ['{"servers": {}}', "1:1", "this is JSON, not TOML: give the file the extension .json"],
  ],
  "a value": [
    ["[servers.a]\ncommand = npx", "2:11", 'a text needs quotes: command = "npx"'],
    [
      "[servers.a]\ncommand = npx -y foo",
      "2:11",
      'texts need quotes: command = "npx", args = ["-y", "foo"]',
    ],
    ["[servers.a]\nurl = https://x/y", "2:7", 'a text needs quotes: url = "https://x/y"'],
    ["[servers.a]\ncallTimeout = 30s", "2:15", 'a text needs quotes: callTimeout = "30s"'],
    ["[servers.a]\nenv.A = sk-123", "2:9", 'a text needs quotes: env.A = "…"'],
    ["[servers.a]\ncommand = ", "2:11", "command has no value"],
    ["[servers.a]\ncommand = “npx”", "2:11", 'a text needs straight quotes: command = "…"'],
    ["[servers.a]\nenabled = True", "2:11", "write enabled = true"],
    ['[servers.a]\ncommand = "npx', "2:11", 'the text has no closing "'],
    ['[servers.a]\ncommand = """npx', "2:11", 'the text has no closing """'],
    [
      '[servers.a]\nargs = "-y", "foo"',
      "2:12",
      'a second value follows: put several values in an array, such as args = ["…", "…"]',
    ],
    [
      '[servers.a]\ncommand = "C:\\Users\\me\\x.exe"',
      "2:14",
      `"\\U" is an escape sequence in double quotes: write the path in single quotes: 'C:\\Users\\me\\x.exe'`,
    ],
    [
      '[servers.a.env]\nDIR = "C:\\dev"',
      "2:10",
      `"\\d" is an escape sequence in double quotes: write the path in single quotes: 'C:\\…'`,
    ],
    [
      '[servers.a]\nargs = ["\\d+"]',
      "2:10",
      '"\\d" is an escape sequence in double quotes: write \\\\ for a backslash, or put the text in single quotes',
    ],
  ],
  "an array or inline table": [
    ["[servers.a]\nargs = [-y, foo]", "2:9", 'a text in the array needs quotes: "…"'],
    ["[servers.a]\nargs = ['a' 'b']", "2:13", "a comma is missing in the array"],
    [
      "[servers.a]\nargs = ['a', 'b'\ncommand = 'x'",
      "2:8",
      "the array that begins in line 2 has no closing ]",
    ],
    ["[servers.a]\nenv = { A = 'a' B = 'b' }", "2:17", "a comma is missing in the table"],
    ["[servers.a]\nenv = { A = 'a'\n", "2:7", "the table that begins in line 2 has no closing }"],
    ['[servers.a]\nenv = { "A": "x" }', "2:12", 'TOML uses = after a key, not ":"'],
  ],
  "anything else, in the parser's words": [
    ["[]", "1:2", "unexpected end of key"],
    [
      `a = ${"[".repeat(5000)}`,
      "1:1005",
      "document contains excessively nested structures. aborting.",
    ],
  ],
};

function faultOf(text: string): readonly [place: string, message: string] {
  const parsed = parseToml(text);
  assert.ok(!parsed.ok, "the text is valid TOML");
  const { position, message } = parsed;
  return [`${position?.line}:${position?.column}`, message];
}

const SECRET = "s3cr3t-Value.0123456789/+abcdef";

describe("the message about a text that is not TOML", () => {
  for (const [group, rows] of Object.entries(ROWS)) {
    for (const [text, place, message] of rows) {
      const title = JSON.stringify(text.slice(0, 70));
      it(`names the place, the cause and what to write: ${group}: ${title}`, () => {
        assert.deepEqual(faultOf(text), [place, `not valid TOML: ${message}`]);
      });
    }
  }

  for (const text of [
    `[servers.a.env]\n${SECRET}`,
    `[servers.a.env]\n${SECRET} = `,
    `[servers.a.env]\nTOKEN = ${SECRET}`,
    `[servers.a]\ncommand = ${SECRET}`,
    `[servers.a]\ncommand = x --token ${SECRET}`,
    `[servers.a]\nurl = https://me:${SECRET}@host/`,
    `[servers.a.env]\nTOKEN = "${SECRET}\\q"`,
    `[servers.a.env]\nTOKEN = "C:\\s3cr3t"`,
    `[servers.a]\nargs = ["${SECRET}" "${SECRET}"]`,
    `[servers.a]\nargs = [${SECRET}]`,
  ]) {
    it(`shows no secret of ${JSON.stringify(text)}`, () => {
      const [, message] = faultOf(text);
      assert.ok(!/s3cr3t-V|0123456789|C:\\s3/.test(message), message);
    });
  }

  it("is made of any text", () => {
    const texts = Object.values(ROWS).flatMap((rows) => rows.map(([text]) => text));
    check(
      property(
        constantFrom(...texts.filter(({ length }) => length < 200)),
        nat(200),
        constantFrom("", '"', "'", "[", "]", "{", "}", "=", "\n", "\\", "#", '"""', ",", ":"),
        (text, at, piece) => {
          const parsed = parseToml(text.slice(0, at) + piece + text.slice(at));
          if (parsed.ok) return;
          assert.ok(parsed.position !== undefined && parsed.position.line > 0);
          assert.ok(parsed.position.column > 0 && parsed.message.length > 20);
        },
      ),
      { numRuns: 2000 },
    );
  });
});
