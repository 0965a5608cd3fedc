import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { compilePattern } from "../../src/manifest/pattern.ts";

/**
 * The patterns are the same in each run: the runtime's engine gives up where it would go back too often, and then says
 * that a pattern does not match. Set TOOLMUX_TEST_SEED for others.
 */
const SEED = Number(process.env["TOOLMUX_TEST_SEED"] ?? 1);

const TEXTS = [
  "",
  "a",
  "b",
  "ab",
  "ba",
  "aab",
  "get_log",
  "Get_Log",
  "a1",
  "x-y",
  "é",
  "😀",
  "a😀b",
  "\n",
  "aaaa",
];

/** Patterns with all that a regular expression can have, made of few letters, so that they match often. */
const pattern = fc.letrec<{ part: string; sequence: string; choice: string }>((tie) => ({
  part: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(
      "a",
      "b",
      ".",
      "\\d",
      "\\w",
      "[ab]",
      "[^a]",
      "\\b",
      "\\B",
      "^",
      "$",
      "😀",
      "\\u{61}",
      "\\u0061",
      "\\p{L}",
      "[\\]a]",
      "\\(",
    ),
    fc
      .tuple(
        fc.constantFrom("(", "(?:", "(?<n>"),
        tie("choice"),
        fc.constantFrom("", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,}"),
      )
      .map(([open, inner, quantifier]) => `${open}${inner})${quantifier}`),
    fc
      .tuple(fc.constantFrom("(?=", "(?!", "(?<=", "(?<!"), tie("choice"))
      .map(([open, inner]) => `${open}${inner})`),
    fc
      .tuple(
        fc.constantFrom("a", ".", "[ab]", "\\w"),
        fc.constantFrom("*", "+", "?", "*?", "{2,3}"),
      )
      .map((both) => both.join("")),
  ),
  sequence: fc.array(tie("part"), { maxLength: 4 }).map((parts) => parts.join("")),
  choice: fc.array(tie("sequence"), { minLength: 1, maxLength: 3 }).map((parts) => parts.join("|")),
})).choice;

describe("the pattern of a filter", () => {
  it("matches what the runtime's regular expression matches", () => {
    fc.assert(
      fc.property(
        pattern,
        fc.array(fc.constantFrom(...TEXTS), { maxLength: 3 }),
        (source, parts) => {
          let native: RegExp;
          try {
            native = new RegExp(source, "u");
          } catch {
            return; // Two groups of one name.
          }
          const text = parts.join("");
          assert.equal(
            compilePattern(source).test(text),
            native.test(text),
            `/${source}/ in ${text}`,
          );
        },
      ),
      { numRuns: 3000, seed: SEED },
    );
    for (const [source, text] of [
      ["^(?!delete|drop).*_by_.*$", "get_log_by_id"],
      ["^(?!delete|drop).*_by_.*$", "delete_log_by_id"],
      ["(?<=get_).*(?<!s)$", "get_logs"],
      ["^(?:read|get)_[a-z]+$", "get_log"],
      ["\\p{Lu}?x{2,}", "éxx"],
    ] as const) {
      assert.equal(compilePattern(source).test(text), new RegExp(source, "u").test(text), source);
    }
  });

  it("takes no time that grows fast with its length or that of the text", () => {
    const text = "a".repeat(128);
    const started = performance.now();
    for (const source of [
      `${"a*".repeat(400)}b`,
      `${"a?".repeat(300)}${"a".repeat(300)}b`,
      `${"(a|a)".repeat(150)}b`,
      `${"(?:a|aa)".repeat(100)}b`,
      `(?=${"a*".repeat(20)}b)${".*".repeat(20)}c`,
      "(?<=a*a*a*b)a*a*a*c",
      ".*(?=.*(?=.*(?=.*(?=.*(?=.*b)))))c",
      ".*(?!.*(?!.*(?=.*(?<!.*b.*).*b)))c",
      "a{0,100}a{0,100}a{0,100}b",
      "(?:a*)*b",
      "(?:a|a)*b",
      "(?:(?:a?){10}){10}b",
    ])
      assert.equal(compilePattern(source).test(text), false, source.slice(0, 40));
    assert.ok(performance.now() - started < 20_000, "a backtracking engine would never end");
  });

  it("is refused if its repetitions are too long, or if it refers back to a group", () => {
    for (const source of ["(?:a{1000}){1000}", "a{5000}b*", "(a*)\\1", "(?<n>a*)\\k<n>"])
      assert.throws(() => compilePattern(source), SyntaxError, source);
  });
});
