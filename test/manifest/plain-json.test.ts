import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseJson } from "../../src/manifest/syntax/json.ts";
import { parseStrictJson } from "../../src/manifest/syntax/parse.ts";

const PLAIN = [
  `{}`,
  ` [1, -0.5e3, true, null, "a:b", {"a": {"b": [{"c": "\\":{"}]}}]\n`,
  String.raw`{"a\":": "\\", "b": "::", "": ":"}`,
  `{"__proto__": {"constructor": 1}, "toString": "x"}`,
  `"a text\u2028 alone"`,
];
const OTHERS = [
  `{"a": 1, "a": 1}`,
  `{"x": [{"a": {"b": 1, "b": {"c": ":"}}}]}`,
  String.raw`{"a": 1, "\u0061": 2}`,
  `{"a": 1,}`,
  `// a comment\n{}`,
  ``,
  `{"a"`,
];

describe("reading plain JSON without a parser of its own", () => {
  for (const text of PLAIN) {
    it(`yields what the parser does: ${text}`, () => {
      const parsed = parseJson(text);
      assert.ok(parsed.ok);
      assert.deepEqual(parsed.duplicates, []);
      assert.deepEqual(parseStrictJson(text)?.root, parsed.root);
    });
  }
  for (const text of OTHERS) {
    it(`leaves to the parser what is not strict, or says something twice: ${text}`, () => {
      assert.equal(parseStrictJson(text), undefined);
    });
  }
});
