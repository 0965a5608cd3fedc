import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { parsePath, Redaction } from "../../plugins/audit-log/redaction.ts";

const MASKED = "•••";

/** What is masked, by which paths, and a text in which «» stand around what has to be. */
const ROWS: readonly (readonly [what: string, paths: string, marked: string])[] = [
  ["a member of that key", "password", '{"user":"a","password":«"b"»}'],
  [
    "values of all types",
    "a b c d e f",
    '{"a":«1»,"b":«null»,"c":«[1,[2]]»,"d":«{"e":"}"}»,"e":«true»,"f":«-1.5e3»}',
  ],
  [
    "a member inside another, and not one of its key elsewhere",
    "auth.token",
    '{"token":1,"auth":{"token":«2»,"more":{"token":3}}}',
  ],
  [
    "members of all elements of an array",
    "items.*.secret",
    '{"items":[{"secret":«1»},{"id":2,"secret":«[3]»},4]}',
  ],
  ["one element of an array", "items.1", '{"items":["a",«"b"»,"c"]}'],
  [
    "a key at any depth, the outermost included",
    "**.token",
    '{"token":«1»,"a":{"token":«2»,"b":[{"token":«{"token":3}»}]}}',
  ],
  [
    "a path at any depth",
    "a.**.b.c",
    '{"a":{"b":{"c":«1»,"b":{"c":«2»}},"x":[{"b":{"c":«3»}}]},"b":{"c":4}}',
  ],
  ["everything below a key, and itself", "a.**", '{"a":«{"b":1}»,"b":2}'],
  ["everything", "**", ' «{"a":1}» '],
  ["every value of an object", "*", '{"a":«1»,"b":«[2]»}'],
  [
    "keys with something in them",
    "*key* x-*",
    '{"apiKey":«1»,"key":«2»,"keys":«3»,"ke":4,"x-":«5»,"x-a":«6»,"ax-":7}',
  ],
  ["keys in other letters", "Pass", '{"pass":«1»,"PASS":«2»}'],
  ["keys with escapes", "password", '{"p\\u0061ssword":«1»,"\\"password":2}'],
  ["both of two members of one key", "a", '{"a":«1»,"a":«2»}'],
  [
    "keys that every object has",
    "__proto__.a constructor",
    '{"__proto__":{"a":«1»},"constructor":«2»}',
  ],
];

describe("redaction", () => {
  for (const [what, paths, marked] of ROWS) {
    it(`masks ${what}`, () => {
      const shown = new Redaction(paths.split(" ")).apply(marked.replaceAll(/[«»]/g, ""));
      assert.equal(shown, marked.replaceAll(/«[^»]*»/g, `"${MASKED}"`));
    });
  }

  it("keeps the spelling of all that is not masked", () => {
    const text = String.raw` { "n" : 1.0 , "big":1234567890123456789,"e":1E+2, "s":"\u0041\/\\\"" ,"a" : [ ] , "o":{ },"x" : 1 } `;
    assert.equal(new Redaction(["x"]).apply(text), text.replace(`"x" : 1`, `"x" : "•••"`));
    assert.equal(new Redaction(["y", "n.a", "s.0"]).apply(text), text);
    assert.equal(new Redaction([]).apply(text), text);
  });

  it("masks as a whole what is nested too deep to be looked into, if anything in it might have to be", () => {
    const text = `${'{"a":'.repeat(50_000)}{"token":1}${"}".repeat(50_000)}`;
    const shown = new Redaction(["**.token"]).apply(text);
    assert.equal(shown, `${'{"a":'.repeat(100)}"•••"${"}".repeat(100)}`);
    const elsewhere = [...Array.from({ length: 99 }, () => "a"), "token"].join(".");
    assert.equal(new Redaction(["a.token", elsewhere]).apply(text), text);
  });

  it("takes no time over long keys", () => {
    const key = "a".repeat(60_000);
    const text = `{"${key}":1}`;
    const started = performance.now();
    assert.equal(new Redaction(["*a*a*a*a*a*b"]).apply(text), text);
    assert.ok(performance.now() - started < 5000);
  });

  it("masks what the paths lead to, and nothing else, in any JSON", () => {
    const key = fc.constantFrom("a", "b", "ab", "0", "1", "");
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.constantFrom<unknown>(0, "a", '"}', "\\", true, null),
        fc.array(tie("value"), { maxLength: 3 }),
        fc.dictionary(key, tie("value"), { maxKeys: 4 }),
      ),
    }));
    const part = fc.constantFrom("a", "b", "*", "**", "a*", "*b", "0", "1");
    const path = fc.array(part, { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(
        value,
        fc.array(path, { maxLength: 3 }),
        fc.constantFrom(0, 2),
        (input, paths, indent) => {
          const text = JSON.stringify(input, null, indent);
          const shown = new Redaction(paths.map((keys) => keys.join("."))).apply(text);
          assert.deepEqual(JSON.parse(shown), maskValue(input, paths));
        },
      ),
      { numRuns: 300 },
    );
  });

  it("yields well-formed JSON for any", () => {
    fc.assert(
      fc.property(fc.json(), fc.array(fc.string({ minLength: 1 })), (text, names) => {
        const paths = names.filter((name) => parsePath(name) !== undefined);
        JSON.parse(new Redaction([...paths, "*.*"]).apply(text));
      }),
    );
  });
});

describe("a path", () => {
  it("has keys that are not empty", () => {
    for (const path of ["", ".", "a.", ".a", "a..b"]) assert.equal(parsePath(path), undefined);
    for (const path of ["a", "*", "**", "a.b", "a b.c"])
      assert.notEqual(parsePath(path), undefined);
  });
});

type Path = readonly string[];

/** The expected result, computed on the value: each path is applied on its own. */
function maskValue(value: unknown, paths: readonly Path[]): unknown {
  if (paths.some((path) => path.every((glob) => glob === "**"))) return MASKED;
  const inside = (key: string, item: unknown): unknown => {
    const rests = paths.flatMap((path) => follow(path, key));
    return maskValue(item, rests);
  };
  if (Array.isArray(value)) return value.map((item, i) => inside(String(i), item));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, inside(key, item)]));
}

/** The possible rests of a path after a key. */
function follow([glob, ...rest]: Path, key: string): Path[] {
  if (glob === undefined) return [];
  if (glob === "**") return [["**", ...rest], ...follow(rest, key)];
  const pattern = new RegExp(`^${glob.replaceAll("*", ".*")}$`, "s");
  return pattern.test(key) ? [rest] : [];
}
