import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { describeContent, foldResult, ToolResults } from "../../src/cli/run-printer.ts";

const keep = (results: ToolResults, text: string, id = "1"): void =>
  results.add(
    { id, name: "t", argumentsJson: "{}" },
    { content: [{ type: "text", text }], isError: false, code: undefined, size: text.length },
  );

describe("the result of a tool, as a person sees it,", () => {
  const fold = (text: string, numbered = true): readonly string[] =>
    foldResult({ number: 7, toolCallId: "", toolName: "", text }, 40, { numbered });

  it("is folded to its first lines, and tells how to see the rest", () => {
    assert.deepEqual(fold("a\nb"), ["a", "b"]);
    assert.deepEqual(fold("1\n2\n3\n4\n5\n"), ["1", "2", "3", "… 2 more lines: /result 7"]);
    assert.deepEqual(fold("1\n2\n3\n4", false), ["1", "2", "3", "… 1 more line"]);
    const [line = "", rest] = fold("x".repeat(1000));
    assert.ok(line.length <= 40);
    assert.match(rest ?? "", /\/result 7$/);
    assert.deepEqual(fold(" \n"), []);
  });

  it("has no control characters", () => {
    for (const line of fold("\u001b[31mred\u0007\r\n\u009b2J"))
      // oxlint-disable-next-line no-control-regex -- these are looked for
      assert.doesNotMatch(line, /[\u0000-\u001f\u007f-\u009f]/);
  });

  it("is type and size for a picture", () => {
    const data = "A".repeat(16_000);
    const text = describeContent([{ type: "image", mimeType: "image/png", data }]);
    assert.equal(text, "[picture, image/png, 12 KB]");
  });

  it("is cut with its size if it is large, and the oldest are dropped above a total", () => {
    const results = new ToolResults();
    keep(results, "é".repeat(5_000_000));
    const [first] = results.all;
    assert.ok((first?.text?.length ?? 0) < 600_000);
    assert.match(first?.text ?? "", /\[cut: the result has 5 MB, of which 1 MB are shown\]$/);
    assert.ok(first?.text?.includes("\uFFFD") === false);
    for (let n = 0; n < 70; n++) keep(results, "x".repeat(1_000_000));
    assert.equal(results.all[0]?.text, undefined);
    assert.equal(results.all.at(-1)?.number, 71);
    assert.equal(results.all.at(-1)?.text?.length, 1_000_000);
    results.clear();
    assert.equal(results.all.length, 0);
  });
});
