import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  describeContent,
  describeServerState,
  describeUnavailable,
  foldResult,
  ToolResults,
} from "../../src/cli/run-printer.ts";
import type { ServerDocument } from "../../src/control/schemas.ts";

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

  it("has its control characters as escapes", () => {
    assert.deepEqual(fold("a\u001b[31m\u0007\u009b\u202eb"), [
      "a\\u{1b}[31m\\u{7}\\u{9b}\\u{202e}b",
    ]);
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

describe("a server of an agent", () => {
  const BASE = { name: "a", endpoint: "cmd", statusText: "TEXT", connections: [], shown: 2 };
  const make = (more: Partial<ServerDocument>): ServerDocument =>
    ({ ...BASE, goal: "up", ...more }) as unknown as ServerDocument;
  const lastError = { code: "handshake", message: "CAUSE", at: 0 } as const;

  const ROWS: readonly (readonly [Partial<ServerDocument>, told: RegExp | undefined, RegExp])[] = [
    [{ state: "connected" }, undefined, /TEXT, 2 tools$/],
    [{ state: "connected", responsive: false }, /not respond/, /not respond/],
    [{ state: "idle", goal: "onDemand" }, undefined, /TEXT, 2 tools$/],
    [{ state: "disabled", goal: "down" }, undefined, /TEXT$/],
    [{ state: "stopped", goal: "down" }, /toolmux start a$/, /toolmux start a$/],
    [{ state: "connecting" }, /\(cmd\).*TEXT/, /TEXT/],
    [{ state: "connecting", tools: 2 }, undefined, /TEXT, 2 tools$/],
    [{ state: "connecting", tools: 2, lastError }, /TEXT\. CAUSE\. REMEDY\.$/, /CAUSE\. REMEDY\.$/],
    [{ state: "stopping", tools: 2, lastError }, /TEXT\. CAUSE\. REMEDY\.$/, /CAUSE\. REMEDY\.$/],
    [{ state: "stopping", goal: "down", lastError }, /TEXT$/, /TEXT$/],
    [{ state: "notStarted" }, /TEXT/, /TEXT/],
    [{ state: "notStarted", tools: 2 }, undefined, /TEXT/],
    [{ state: "failed", tools: 2, lastError }, /CAUSE\. REMEDY\.$/, /CAUSE\. REMEDY\.$/],
    [{ state: "reconnecting", tools: 2, lastError }, /CAUSE/, /CAUSE/],
    [{ state: "authenticating" }, /authorization/, /authorization/],
  ];
  for (const [more, told, listed] of ROWS) {
    it(`is ${told ? "told with its cause" : "not told"}: ${JSON.stringify(more)}`, () => {
      const server = make(
        more.lastError === undefined ? more : { ...more, remedies: ["REMEDY.", "x"] },
      );
      const text = describeUnavailable(server);
      if (told === undefined) assert.equal(text, undefined);
      else assert.match(text ?? "", told);
      assert.match(describeServerState(server), listed);
    });
  }
});
