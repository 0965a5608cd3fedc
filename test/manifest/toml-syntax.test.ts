import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assert as check, constantFrom, nat, property } from "fast-check";
import { parseToml } from "../../src/manifest/syntax/toml.ts";
import { parseRows, type Row } from "../harness/rows.ts";

/** Texts that are not valid TOML, each with the place of the problem and its message below it. */
const TABLE = `
  ## a table name
  [servers.files⏎command = "x"
    1:15 the table name has no closing ]: write [servers.files]
  [servers.files
    1:15 the table name has no closing ]: write [servers.files]
  [[plugins]⏎use = 'x'
    1:10 the table name has no closing ]]: write [[plugins]]
  [servers.my server]⏎command = 'x'
    1:10 a table name with a space needs quotes: write [servers."my server"], or choose a name without a space
  [servers.a] command = 'x'
    1:12 only a comment may follow a table name: write the key on the next line
  # files⏎[servers.files]⏎command = 'a'⏎⏎[servers.files]⏎command = 'b'
    5:2 [servers.files] is already in line 2: give this server another name
  [hub]⏎[hub]
    2:2 [hub] is already in line 1: merge the two tables
  ## a key
  [servers.a]⏎command = 'x'⏎command = 'y'
    3:1 command is already set in line 2: remove one of the two
  [servers.a]⏎command: 'npx'
    2:8 TOML uses = after a key, not ":"
  [servers.a]⏎npx
    2:4 this is a key without a value: write KEY = "…"
  [servers.a]⏎my key = 1
    2:3 a key with a space needs quotes, such as "my key" = …
  {"servers": {}}
    1:1 this is JSON, not TOML: give the file the extension .json
  ## a value
  [servers.a]⏎command = npx
    2:11 a text needs quotes: command = "npx"
  [servers.a]⏎command = npx -y foo
    2:11 texts need quotes: command = "npx", args = ["-y", "foo"]
  [servers.a]⏎url = https://x/y
    2:7 a text needs quotes: url = "https://x/y"
  [servers.a]⏎callTimeout = 30s
    2:15 a text needs quotes: callTimeout = "30s"
  [servers.a]⏎env.A = sk-123
    2:9 a text needs quotes: env.A = "…"
  [servers.a]⏎command = “npx”
    2:11 here is a typographic quote (U+201C): a text needs straight quotes
  [servers.a]⏎enabled = True
    2:11 write enabled = true
  [servers.a]⏎command = "npx
    2:11 the text has no closing "
  [servers.a]⏎command = """npx
    2:11 the text has no closing """
  [servers.a]⏎args = "-y", "foo"
    2:12 a second value follows: put several values in an array, such as args = ["…", "…"]
  [servers.a]⏎command = "C:\\Users\\me\\x.exe"
    2:14 "\\U" is an escape sequence in double quotes: write the path in single quotes: 'C:\\Users\\me\\x.exe'
  [servers.a.env]⏎DIR = "C:\\dev"
    2:10 "\\d" is an escape sequence in double quotes: write the path in single quotes: 'C:\\…'
  [servers.a]⏎args = ["\\d+"]
    2:10 "\\d" is an escape sequence in double quotes: write \\\\ for a backslash, or put the text in single quotes
  ## an array or inline table
  [servers.a]⏎args = [-y, foo]
    2:9 a text in the array needs quotes: "…"
  [servers.a]⏎args = ['a' 'b']
    2:13 a comma is missing in the array
  [servers.a]⏎args = ['a', 'b'⏎command = 'x'
    2:8 the array that begins in line 2 has no closing ]
  [servers.a]⏎env = { A = 'a' B = 'b' }
    2:17 a comma is missing in the table
  [servers.a]⏎env = { "A": "x" }
    2:12 TOML uses = after a key, not ":"
  ## anything else, in the parser's words
  []
    1:2 unexpected end of key
`;

const ROWS: readonly Row[] = [
  ...parseRows(TABLE),
  ["[servers.a]\ncommand = ", "2:11 command has no value"],
  ["[servers.a]\nenv = { A = 'a'\n", "2:7 the table that begins in line 2 has no closing }"],
  [`a = ${"[".repeat(5000)}`, "1:1005 document contains excessively nested structures. aborting."],
];

/** The place and the message. */
function faultOf(text: string): string {
  const parsed = parseToml(text);
  assert.ok(!parsed.ok, "the text is valid TOML");
  const { position, message } = parsed;
  return `${position?.line}:${position?.column} ${message}`;
}

describe("the message about a text that is not TOML", () => {
  for (const [text, fault] of ROWS) {
    it(`names the place, the cause and what to write: ${JSON.stringify(text.slice(0, 70))}`, () => {
      assert.equal(faultOf(text).replace(" not valid TOML:", ""), fault);
    });
  }

  it("is made of any text", () => {
    const texts = ROWS.map(([text]) => text).filter(({ length }) => length < 200);
    check(
      property(
        constantFrom(...texts),
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
