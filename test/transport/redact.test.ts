import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { Redactor } from "../../src/transport/redact.ts";

const SECRET = 'p/ss+w"rd é€~(1)';
const URL_TEXT = encodeURIComponent(SECRET);

describe("redacting", () => {
  for (const [what, text] of [
    ["as it is", SECRET],
    ["in JSON", JSON.stringify(SECRET).slice(1, -1)],
    ["in a URL", URL_TEXT],
    ["in a URL with small digits", URL_TEXT.replace(/%../g, (byte) => byte.toLowerCase())],
    ["in a form", new URLSearchParams({ a: SECRET }).toString().slice(2)],
    ["in Base64", Buffer.from(SECRET).toString("base64")],
    ["in Base64 of URLs", Buffer.from(SECRET).toString("base64url")],
  ] as const) {
    it(`leaves nothing of a secret ${what}`, () => {
      const shown = new Redactor([SECRET]).apply(`before ${text} behind`);
      assert.equal(shown, "before [redacted] behind");
    });
  }

  for (const user of ["", "a", "me", "you", "user name"]) {
    it(`leaves less of a password than could be guessed from, in Basic behind "${user}:"`, () => {
      const secret = "correct-horse-battery";
      const coded = Buffer.from(`${user}:${secret}`).toString("base64");
      const shown = new Redactor([secret]).apply(`Authorization: Basic ${coded}`);
      assert.match(shown, /\[redacted\]/);
      const parts = shown.replace(/^.*Basic /, "").split("[redacted]");
      const left = Buffer.from(parts.at(-1) ?? "", "base64").toString();
      for (let at = 0; at < secret.length - 4; at += 1)
        assert.ok(!left.includes(secret.slice(at, at + 4)), left);
      const head = Buffer.from(parts[0] ?? "", "base64").toString();
      assert.ok(!head.includes(secret.slice(0, 3)), head);
    });
  }

  it("of a secret as long as a file says nothing of it, neither in the text nor in an error", () => {
    const secrets = ["x", "yz"].map((head) => `${head}canary`.repeat(20_000).slice(0, 65_536));
    const lines = Array.from({ length: 5000 }, (_, i) => `line-${i}`).join("\n");
    const redactor = new Redactor([...secrets, lines]);
    for (const secret of secrets) assert.equal(redactor.apply(`a ${secret} b`), "a [redacted] b");
    assert.equal(redactor.apply("line-4999 line-4998"), "[redacted] [redacted]");
    assert.equal(redactor.apply(lines), "[redacted]");
  });

  it("finds a secret that was given as URLs spell it as it is, too", () => {
    const redactor = new Redactor(["a%2Fb%20c-d%C3%A9"]);
    assert.equal(redactor.apply("a/b c-dé a%2Fb%20c-d%C3%A9"), "[redacted] [redacted]");
    assert.equal(new Redactor(["100%-secret"]).apply("100%-secret"), "[redacted]");
  });

  it("takes the longest secret where one holds another", () => {
    const redactor = new Redactor(["abcdef", "abcdefghijkl"]);
    assert.equal(redactor.apply("abcdefghijkl abcdef"), "[redacted] [redacted]");
  });

  it("lets short values and everything else be", () => {
    assert.equal(new Redactor(["abc", ""]).apply("abc $& $1"), "abc $& $1");
    assert.equal(new Redactor([]).apply("x"), "x");
  });

  it("cuts no secret in two, wherever it is cut", () => {
    const secret = "0123456789abcdefghij";
    const redactor = new Redactor([secret]);
    const text = `ab ${secret.repeat(30)} cd`;
    for (let length = 1; length < 200; length += 1) {
      const cut = redactor.applyTruncated(text, length);
      assert.match(cut, /^(?:a?b? ?|ab (?:\[redacted\])*(?:\[[a-z]*)?)$/);
      assert.match(redactor.applyToFragment(text.slice(length)), /^(?:\[redacted\])* cd$|^$/);
    }
    assert.equal(redactor.applyTruncated("plain text", 5), "plain");
  });
});
