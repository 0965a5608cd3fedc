import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { drawScreen, parseScreen } from "../../scripts/pictures.ts";

const textsOf = (output: string): readonly string[] =>
  parseScreen(output).map((runs) => runs.map(({ text }) => text).join(""));

describe("a picture of a terminal", () => {
  it("has the text of every line, and not what was erased", () => {
    assert.deepEqual(textsOf("0 of 3 ready\r\u001b[Kdone\r\n\u001b[1mbold\u001b[22m plain\r\n"), [
      "done",
      "bold plain",
    ]);
  });

  it("breaks a line after 80 columns, as the terminal does", () => {
    assert.deepEqual(
      textsOf("x".repeat(170)).map((line) => line.length),
      [80, 80, 10],
    );
  });

  it("keeps columns, colors and weights, and escapes what SVG would read", () => {
    const svg = drawScreen(parseScreen("\u001b[31;1ma<b\u001b[0m    c"), "x & y");
    assert.match(svg, /fill="#ff7b72" font-weight="bold">a&lt;b<\/text>/);
    assert.match(svg, /x="75\.0"[^>]*fill="#e6edf3">c<\/text>/);
    assert.match(svg, /<title>x &amp; y<\/title>/);
  });
});
