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

  const LETTERS = "Pässwörd/Größe-é+€🔑";
  const LATIN = "Pässwörd/Größe";
  const json = JSON.stringify;
  const ascii = (text: string): string =>
    json(text)
      .slice(1, -1)
      .replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  for (const [what, secret, text] of [
    ["in JSON of ASCII", LETTERS, ascii(LETTERS)],
    [
      "in JSON of ASCII in capitals",
      LETTERS,
      ascii(LETTERS).replace(/[\da-f]{4}/g, (d) => d.toUpperCase()),
    ],
    ["in JSON of ASCII with escaped slashes", LETTERS, ascii(LETTERS).replaceAll("/", "\\/")],
    ["in a URL of which only letters are encoded", LETTERS, encodeURI(LETTERS)],
    ["in a URL in Latin-1", LATIN, "P%E4ssw%F6rd%2FGr%F6%DFe"],
    ["in a URL in Latin-1 with small digits", LATIN, "P%e4ssw%f6rd%2fGr%f6%dfe"],
    ["in UTF-8 that was read as Latin-1", LETTERS, Buffer.from(LETTERS).toString("latin1")],
    ["of composed letters, decomposed", LETTERS, LETTERS.normalize("NFD")],
    ["of decomposed letters, composed", LETTERS.normalize("NFD"), LETTERS.normalize("NFC")],
    ["in HTML by numbers", LATIN, "P&#228;ssw&#246;rd/Gr&#246;&#223;e"],
    [
      "in HTML by hexadecimal numbers",
      LATIN,
      "P&#xe4;ssw&#xF6;rd/Gr&#xf6;&#xdf;e".replace("xF6", "xf6"),
    ],
    ["in bytes of a string literal", LATIN, String.raw`P\xc3\xa4ssw\xc3\xb6rd/Gr\xc3\xb6\xc3\x9fe`],
    ["in escapes of a string literal", LATIN, String.raw`P\u{e4}ssw\u{f6}rd/Gr\u{f6}\u{df}e`],
    ["in Base64 of Latin-1", LATIN, Buffer.from(LATIN, "latin1").toString("base64")],
    ["in HTML", "p<ss&w'rd", "p&lt;ss&amp;w&#39;rd"],
  ] as const) {
    it(`leaves nothing of a secret with other letters ${what}`, () => {
      const shown = new Redactor([secret]).apply(`before ${text} behind`);
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
