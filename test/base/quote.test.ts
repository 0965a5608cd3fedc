import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { MAX_QUOTE, quotePeer, reasonIn, saidByPeer } from "../../src/base/quote.ts";
import { Redactor } from "../../src/transport/redact.ts";

describe("A quotation of a peer's text", () => {
  test("is one line in quotation marks that the text cannot close", () => {
    assert.equal(quotePeer(" no\r\n\tcode \n"), `"no code"`);
    assert.equal(quotePeer(`a "b" \\`), `"a \\"b\\" \\\\"`);
    assert.equal(
      quotePeer("\u001b[31m red\u202e\u200b\ud800"),
      `"\\u{1b}[31m red\\u{202e}\\u{200b}\\u{d800}"`,
    );
  });

  test("is empty if nothing can be seen", () => {
    assert.equal(quotePeer(" \n"), "");
    assert.equal(saidByPeer(undefined), "");
    assert.equal(saidByPeer("why"), `: "why"`);
  });

  test("has at most MAX_QUOTE units, and neither an escape nor a surrogate pair is cut", () => {
    for (const unit of ["x", '"', "\u0007", "😀", "é\u202e\\"]) {
      for (let before = 0; before < 12; before++) {
        const quoted = quotePeer("a".repeat(before) + unit.repeat(MAX_QUOTE + 1));
        const content = quoted.slice(1, -1);
        assert.ok(content.length <= MAX_QUOTE && content.length > MAX_QUOTE - 12, unit);
        assert.ok(content.endsWith("…") && content.isWellFormed());
        const whole = /^(?:[^\\]|\\[\\"]|\\u\{[\da-f]+\})*$/u;
        assert.match(content, whole);
      }
    }
    assert.equal(quotePeer("x".repeat(MAX_QUOTE)), `"${"x".repeat(MAX_QUOTE)}"`);
  });

  test("has no secret, wherever the secret is", () => {
    const redactor = new Redactor(["s3cr3t-value", 'with"quote']);
    for (let before = 0; before < MAX_QUOTE + 10; before += 7) {
      const quoted = quotePeer(`${"a".repeat(before)}s3cr3t-value with"quote`, redactor);
      assert.doesNotMatch(quoted, /s3cr|value|with/);
    }
  });
});

describe("The reason in a JSON body of an error", () => {
  const CASES: readonly (readonly [unknown, string | undefined])[] = [
    [{ error: { code: -32603, message: "boom" } }, "boom"],
    [{ error: "invalid_client", error_description: "why" }, "why"],
    [{ error: "Session not found" }, "Session not found"],
    [{ error: null, message: "m" }, "m"],
    [{ error: {}, message: "m" }, "m"],
    [{ error_description: "", error: "code" }, "code"],
    [{ error_description: null, message: null, detail: "d" }, "d"],
    [{ detail: [{ loc: ["body"], msg: "field required" }] }, "field required"],
    [{ errors: [{ message: "first" }, { message: "second" }] }, "first"],
    [{ type: "about:blank", title: "Forbidden", detail: "No access" }, "No access"],
    [{ title: "Forbidden" }, "Forbidden"],
    [[{ error: { message: "in a list" } }], "in a list"],
    ["text", "text"],
    [{ error: { error: { error: { error: { error: "too deep" } } } } }, undefined],
    [{ ok: true }, undefined],
    [7, undefined],
    [null, undefined],
  ];
  test("is found in the usual members, and null or empty ones count as absent", () => {
    for (const [body, reason] of CASES) assert.equal(reasonIn(body), reason, JSON.stringify(body));
  });
});
