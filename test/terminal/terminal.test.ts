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

  it("is never wider than the terminal, whichever column is too wide", () => {
    const rows = [
      ["name", "a state", "a description that is long"],
      ["the name of a server", "ok", "short"],
    ];
    for (let width = 1; width < 60; width++) {
      const style = { isTerminal: true, width, colors };
      const lines = alignTable(["N", "STATE", "DESCRIPTION"], rows, style).split("\n");
      assert.ok(
        lines.every((line) => line.length <= width),
        lines.join("\n"),
      );
      assert.ok(width > 55 || lines.some((line) => line.endsWith("…")));
    }
  });
});
