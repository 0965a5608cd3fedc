import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type FileFormat, parseText } from "../../src/manifest/syntax/parse.ts";
import { findProblems } from "../fixtures/manifest/manifest-folder.ts";

const NB = "\u00a0";
const ZW = "\u200b";

/** A text that cannot be parsed, the stray character in it, and its line and column. */
const STRAY: readonly (readonly [
  format: FileFormat,
  text: string,
  code: string,
  line: number,
  column: number,
])[] = [
  ["json", `{\n  "a":${NB}1 }`, "00A0", 2, 7],
  ["json", `{${ZW}"a": 1}`, "200B", 1, 2],
  ["json", `${ZW}{"a": 1}`, "200B", 1, 1],
  ["json", `{"a": 1}${ZW}`, "200B", 1, 9],
  ["json", `{"a": \ufeff1}`, "FEFF", 1, 7],
  ["json", `{"a": 1\u2028}`, "2028", 1, 8],
  ["json", `{"a": 1\u0000}`, "0000", 1, 8],
  ["json", `{"a": 1,\n "b": “x”}`, "201C", 2, 7],
  ["json", `{“a”: 1}`, "201C", 1, 2],
  ["json", `{"a”: "x"}`, "201D", 1, 4],
  ["json", `{"a": "x”}`, "201D", 1, 9],
  ["json", `{"a": ‘x’}`, "2018", 1, 7],
  ["json", `{"a"： 1}`, "FF1A", 1, 5],
  ["json", `{"a": 1，"b": 2}`, "FF0C", 1, 8],
  ["json", `{"a": –1}`, "2013", 1, 7],
  ["json", `{"a": "x\ry"}`, "000D", 1, 9],
  ["toml", `a = "x"\rb = "y"\n`, "000D", 1, 8],
  ["toml", `[a]\rb = "x"\n`, "000D", 1, 4],
  ["toml", `# c\ra = 1\n`, "000D", 1, 4],
  ["toml", `a = 1\r`, "000D", 1, 6],
  ["toml", `a = "x\ry"\n`, "000D", 1, 7],
  ["toml", `a = """x\ry"""\n`, "000D", 1, 9],
  ["toml", `\n${NB}a = 1\n`, "00A0", 2, 1],
  ["toml", `a =${NB}"x"\n`, "00A0", 1, 4],
  ["toml", `a = ["x",${NB}"y"]\n`, "00A0", 1, 10],
  ["toml", `[servers.a${ZW}]\n`, "200B", 1, 11],
  ["toml", `com${ZW}mand = "x"\n`, "200B", 1, 4],
  ["toml", `a = “x”\n`, "201C", 1, 5],
  ["toml", `a = "x”\nb = 1\n`, "201D", 1, 7],
  ["toml", `a = ["x", “y”]\n`, "201C", 1, 11],
  ["toml", `“a” = 1\n`, "201C", 1, 1],
  ["toml", `a ＝ 1\n`, "FF1D", 1, 3],
];

describe("a character that people do not see, or take for another", () => {
  for (const [format, text, code, line, column] of STRAY) {
    it(`is named with its place in ${format}: ${JSON.stringify(text)}`, async () => {
      const parsed = await parseText(text, format);
      assert.ok(!parsed.ok);
      assert.match(parsed.message, new RegExp(`\\(U\\+${code}\\)`));
      assert.deepEqual(parsed.position, { line, column });
    });
  }

  const OTHERS: readonly (readonly [FileFormat, string, column: number])[] = [
    ["json", `{"a": "“x”${NB}", "b": }`, 20],
    ["json", `{\r"a": [1 2]\r}`, 11],
    ["json", `{ /* “${ZW} */ "a": [1 2]}`, 20],
    ["toml", `a = "“x”${NB}" b`, 12],
    ["toml", `a = 'x' b # “${ZW}`, 9],
    ["json", `{"a": "“x” y}`, 7],
  ];
  for (const [format, text, column] of OTHERS) {
    it(`is not blamed inside a text or a comment of ${format}: ${JSON.stringify(text)}`, async () => {
      const parsed = await parseText(text, format);
      assert.ok(!parsed.ok);
      assert.doesNotMatch(parsed.message, /U\+/);
      assert.equal(parsed.position?.column, column);
    });
  }

  it("is right inside a text", async () => {
    for (const [format, text] of [
      ["json", `{"a": "“x”${NB}${ZW}"}`],
      ["toml", `a = "“x”${NB}${ZW}"`],
    ] as const) {
      assert.ok((await parseText(text, format)).ok, text);
    }
  });

  it("is named in a key that is unknown because of it", async () => {
    const text = `{"servers": {"a": {"com${ZW}mand": "x", "command": "y"}}}`;
    const [first = ""] = await findProblems(text, "t.json");
    assert.match(
      first,
      /^t\.json:1:20: servers\.a\."com\\u\{200b\}mand": .*\(U\+200B\).*"command"\?$/,
    );
  });
});
