import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { filterSchema, filterWithoutPatternsSchema } from "../../src/manifest/filter.ts";
import { formatPath } from "../../src/manifest/problems.ts";
import { validate } from "../../src/manifest/validate.ts";

/** The places of the problems of a filter. */
function problemsOf(filter: unknown, schema = filterSchema): readonly string[] {
  const checked = validate(schema, filter, { file: "f", path: ["tools"] });
  return checked.ok ? [] : checked.problems.map(({ path, at }) => `${formatPath(path)} ${at}`);
}

const nested = (depth: number): unknown => (depth === 1 ? "all" : { not: nested(depth - 1) });

describe("a filter of the manifest", () => {
  const table: readonly [string, unknown, readonly string[]][] = [
    ["may be all", "all", []],
    [
      "may have each kind of part",
      {
        and: [
          { servers: ["a*"] },
          { or: [{ tools: [] }, { ids: ["a.b.c"] }, { names: ["x"] }] },
          { not: { pattern: "^(read|get)_" } },
          { readOnly: true },
        ],
      },
      [],
    ],
    ["is no other text", "some", ["tools value"]],
    ["is not empty", {}, ["tools value"]],
    ["has known keys only", { server: ["a"], tool: 1 }, ["tools.server key", "tools.tool key"]],
    ["has one key", { servers: ["a"], tools: ["b"] }, ["tools.tools key"]],
    ["has names in arrays", { servers: "git" }, ["tools.servers value"]],
    [
      "has texts as names",
      { and: [{ tools: ["a", 1, ""] }] },
      ["tools.and[0].tools[1] value", "tools.and[0].tools[2] value"],
    ],
    ["has a server and a tool in each id", { ids: ["git", "git.log"] }, ["tools.ids[0] value"]],
    ["has readOnly = true or not at all", { readOnly: false }, ["tools.readOnly value"]],
    [
      "has filters as parts",
      { or: [{ not: 3 }, "none"] },
      ["tools.or[0].not value", "tools.or[1] value"],
    ],
    [
      "is at most 16 deep",
      { and: [nested(15), nested(16)] },
      [`tools.and[1]${".not".repeat(15)} value`],
    ],
    [
      "has at most 256 parts",
      { or: Array.from({ length: 300 }, () => "all") },
      ["tools.or[255] value"],
    ],
    [
      "has patterns of at most 1,000 characters",
      { or: [{ pattern: "a".repeat(1000) }, { pattern: "a".repeat(1001) }] },
      ["tools.or[1].pattern value"],
    ],
  ];
  for (const [what, filter, expected] of table)
    it(what, () => assert.deepEqual(problemsOf(filter), expected));

  it("has patterns that are regular expressions", () => {
    for (const pattern of ["(", "[a", "a**", "", 7])
      assert.deepEqual(problemsOf({ pattern }), ["tools.pattern value"], String(pattern));
  });

  it("has no pattern in which a repeated group repeats or chooses something", () => {
    const slow = [
      "(a+)+",
      "(a*)*b",
      "(?:x(a{2,})y)*",
      "((a+))+",
      "(a|a)*",
      "(?<n>\\w+\\s?)+$",
      "(a?){3}",
    ];
    for (const pattern of slow)
      assert.deepEqual(problemsOf({ pattern }), ["tools.pattern value"], pattern);
    const fast = [
      "(write|delete)",
      "a+b*c?",
      "(ab)+",
      "(fs|git)?_x",
      "[(a+)+]",
      "\\(a+\\)+",
      "(?!a+)b",
      "(\\u{61}b)+",
      "(\\+x)+",
    ];
    for (const pattern of fast) assert.deepEqual(problemsOf({ pattern }), [], pattern);
  });

  it("has no pattern at all in a file of others", () => {
    assert.deepEqual(problemsOf({ pattern: "a" }, filterWithoutPatternsSchema), [
      "tools.pattern value",
    ]);
    assert.deepEqual(problemsOf({ tools: ["a"] }, filterWithoutPatternsSchema), []);
  });
});
