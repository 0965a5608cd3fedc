import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  array,
  assert as check,
  constantFrom,
  dictionary,
  json,
  letrec,
  oneof,
  property,
  string,
} from "fast-check";
import { parsePath, Redaction } from "../../plugins/audit-log/redaction.ts";

const MASKED = "•••";

interface Row {
  readonly what: string;
  readonly paths: readonly string[];
  readonly json: string;
  readonly shown: string;
}

const ROWS: readonly Row[] = [
  {
    what: "a member of that key",
    paths: ["password"],
    json: `{"user":"a","password":"b"}`,
    shown: `{"user":"a","password":"•••"}`,
  },
  {
    what: "values of all types",
    paths: ["a", "b", "c", "d", "e", "f"],
    json: `{"a":1,"b":null,"c":[1,[2]],"d":{"e":"}"},"e":true,"f":-1.5e3}`,
    shown: `{"a":"•••","b":"•••","c":"•••","d":"•••","e":"•••","f":"•••"}`,
  },
  {
    what: "a member inside another, and not one of its key elsewhere",
    paths: ["auth.token"],
    json: `{"token":1,"auth":{"token":2,"more":{"token":3}}}`,
    shown: `{"token":1,"auth":{"token":"•••","more":{"token":3}}}`,
  },
  {
    what: "members of all elements of an array",
    paths: ["items.*.secret"],
    json: `{"items":[{"secret":1},{"id":2,"secret":[3]},4]}`,
    shown: `{"items":[{"secret":"•••"},{"id":2,"secret":"•••"},4]}`,
  },
  {
    what: "one element of an array",
    paths: ["items.1"],
    json: `{"items":["a","b","c"]}`,
    shown: `{"items":["a","•••","c"]}`,
  },
  {
    what: "a key at any depth, the outermost included",
    paths: ["**.token"],
    json: `{"token":1,"a":{"token":2,"b":[{"token":{"token":3}}]}}`,
    shown: `{"token":"•••","a":{"token":"•••","b":[{"token":"•••"}]}}`,
  },
  {
    what: "a path at any depth",
    paths: ["a.**.b.c"],
    json: `{"a":{"b":{"c":1,"b":{"c":2}},"x":[{"b":{"c":3}}]},"b":{"c":4}}`,
    shown: `{"a":{"b":{"c":"•••","b":{"c":"•••"}},"x":[{"b":{"c":"•••"}}]},"b":{"c":4}}`,
  },
  {
    what: "everything below a key, and itself",
    paths: ["a.**"],
    json: `{"a":{"b":1},"b":2}`,
    shown: `{"a":"•••","b":2}`,
  },
  { what: "everything", paths: ["**"], json: ` {"a":1} `, shown: ` "•••" ` },
  {
    what: "every value of an object",
    paths: ["*"],
    json: `{"a":1,"b":[2]}`,
    shown: `{"a":"•••","b":"•••"}`,
  },
  {
    what: "keys with something in them",
    paths: ["*key*", "x-*"],
    json: `{"apiKey":1,"key":2,"keys":3,"ke":4,"x-":5,"x-a":6,"ax-":7}`,
    shown: `{"apiKey":"•••","key":"•••","keys":"•••","ke":4,"x-":"•••","x-a":"•••","ax-":7}`,
  },
  {
    what: "keys in other letters",
    paths: ["Pass"],
    json: `{"pass":1,"PASS":2}`,
    shown: `{"pass":"•••","PASS":"•••"}`,
  },
  {
    what: "keys with escapes",
    paths: ["password"],
    json: '{"p\\u0061ssword":1,"\\"password":2}',
    shown: '{"p\\u0061ssword":"•••","\\"password":2}',
  },
  {
    what: "both of two members of one key",
    paths: ["a"],
    json: `{"a":1,"a":2}`,
    shown: `{"a":"•••","a":"•••"}`,
  },
  {
    what: "keys that every object has",
    paths: ["__proto__.a", "constructor"],
    json: `{"__proto__":{"a":1},"constructor":2}`,
    shown: `{"__proto__":{"a":"•••"},"constructor":"•••"}`,
  },
];

describe("redaction", () => {
  for (const { what, paths, json: text, shown } of ROWS) {
    it(`masks ${what}`, () => {
      assert.equal(new Redaction(paths).apply(text), shown);
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
    assert.ok(performance.now() - started < 1000);
  });

  it("masks what the paths lead to, and nothing else, in any JSON", () => {
    const key = constantFrom("a", "b", "ab", "0", "1", "");
    const { value } = letrec((tie) => ({
      value: oneof(
        { maxDepth: 4 },
        constantFrom<unknown>(0, "a", '"}', "\\", true, null),
        array(tie("value"), { maxLength: 3 }),
        dictionary(key, tie("value"), { maxKeys: 4 }),
      ),
    }));
    const path = array(constantFrom("a", "b", "*", "**", "a*", "*b", "0", "1"), {
      minLength: 1,
      maxLength: 4,
    });
    check(
      property(value, array(path, { maxLength: 3 }), constantFrom(0, 2), (input, paths, indent) => {
        const text = JSON.stringify(input, null, indent);
        const shown = new Redaction(paths.map((keys) => keys.join("."))).apply(text);
        assert.deepEqual(JSON.parse(shown), maskValue(input, paths));
      }),
      { numRuns: 3000 },
    );
  });

  it("yields well-formed JSON for any", () => {
    check(
      property(json(), array(string({ minLength: 1 })), (text, names) => {
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
  const inside = (key: string, item: unknown): unknown =>
    maskValue(
      item,
      paths.flatMap((path) => follow(path, key)),
    );
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
