import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { wrapMessages } from "../../src/terminal/stderr.ts";
import { alignTable, Terminal, wrapText } from "../../src/terminal/terminal.ts";

const { colors } = new Terminal({ NO_COLOR: "1" }).stdout;
const bold = (text: string): string => `<${text}>`;

describe("wrapped text", () => {
  it("breaks at words and keeps its indent", () => {
    assert.equal(
      wrapText("install it, or check how it is spelled", 16, "    ", "bad: "),
      "bad: install it,\n    or check how\n    it is\n    spelled",
    );
  });

  it("leaves a word that is wider than the line whole", () => {
    assert.equal(wrapText("see /a/very/long/path", 8), "see\n/a/very/long/path");
  });

  it("keeps line breaks, and is one line where the width is unlimited", () => {
    assert.equal(wrapText("one two\nthree", Number.POSITIVE_INFINITY, "  "), "  one two\n  three");
  });

  it("keeps a command to copy on one line", () => {
    const command = "toolmux reconnect customer-relations --hub 1";
    const cases: readonly (readonly [text: string, width: number, expected: string])[] = [
      [`After it is fixed: ${command}`, 50, `After it is fixed:\n${command}`],
      [`one (${command}), or two`, 30, `one\n(${command}),\nor two`],
      [`run ${command}. Then go on`, 20, `run\n${command}.\nThen go on`],
      [`Run it by hand: node -e 'a b c'`, 20, `Run it by hand:\nnode -e 'a b c'`],
      ["use `command -v a-name` to see it", 12, "use\n`command -v a-name`\nto see it"],
      [`x: toolmux run a "b c d" and`, 20, `x:\ntoolmux run a "b c d" and`],
      ["toolmux has no such name", 14, "toolmux has no\nsuch name"],
    ];
    for (const [text, width, expected] of cases) assert.equal(wrapText(text, width), expected);
  });

  it("counts columns, not characters", () => {
    assert.equal(wrapText("日本 語", 5), "日本\n語");
  });
});

describe("messages on a terminal", () => {
  it("are wrapped below where they began; JSON and lines for editors are not", () => {
    const json = '{"level":"warn","message":"one two three four five"}';
    const place = "toolmux.toml:1:2: one two three four";
    assert.equal(
      wrapMessages(`toolmux: warn git: one two three\n${place}\n${json}`, 24),
      `toolmux: warn git: one\n         two three\n${place}\n${json}`,
    );
  });
});

describe("a table", () => {
  it("colors a cell without changing the alignment", () => {
    const rows = [
      ["a", { text: "failed", color: bold }, "x"],
      ["long", "ok", "y"],
    ];
    const table = alignTable(["NAME", "STATE", "WHY"], rows, {
      isTerminal: true,
      width: 80,
      colors,
    });
    assert.equal(table, "NAME  STATE   WHY\na     <failed>  x\nlong  ok      y");
  });

  it("cuts nothing, and breaks no word: what is too wide is wrapped, or on lines of its own", () => {
    const rows = [
      ["name", "a state", "a description that is long"],
      ["the name of a server", "ok", "short"],
    ];
    for (let width = 1; width < 60; width++) {
      const style = { isTerminal: true, width, colors };
      const lines = alignTable(["N", "STATE", "DESCRIPTION"], rows, style).split("\n");
      const words = (text: string): readonly string[] => text.split(/\s+/).filter(Boolean);
      const shown = words(lines.slice(1).join(" ")).filter((word) => !/^[A-Z]+$/.test(word));
      assert.deepEqual(shown.toSorted(), rows.flatMap((row) => row.flatMap(words)).toSorted());
      // Neither a name in the first column is broken, nor a word, which has the title of its column before it.
      const isWhole = (line: string): boolean =>
        rows.some(([name]) => line === name) || words(line).length <= 2;
      const isTooWide = (line: string): boolean => line.length > width && !isWhole(line);
      assert.deepEqual(lines.filter(isTooWide), [], String(width));
    }
  });

  it("leaves what people copy on one line, however long it is", () => {
    const text = "node /a/long/path/of/a/server.js --root '/a folder' --verbose";
    const style = { isTerminal: true, width: 40, colors };
    const table = alignTable(["NAME", "COMMAND"], [["x", { text, isWhole: true }]], style);
    assert.equal(table, `NAME\nx\n  COMMAND  ${text}`);
    const below = alignTable(["PID", "ENDPOINT"], [["1", "http://a"]], { ...style, width: 80 }, 1);
    assert.equal(below, "PID\n1\n  ENDPOINT  http://a");
  });
});
