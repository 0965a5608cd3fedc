import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { matchesGlob } from "../../src/catalog/names.ts";
import {
  compileFilter,
  compileGlobs,
  type FilterItem,
  mayMatchServer,
  serverPartOf,
} from "../../src/catalog/filter.ts";
import type { Filter } from "../../src/manifest/filter.ts";

const item = (id: string, isReadOnly = false): FilterItem => {
  const [server = "", remoteName = ""] = id.split(".");
  return { server, remoteName, name: `${server}__${remoteName}`, isReadOnly };
};
const ITEMS = [
  item("git.log", true),
  item("git.push"),
  item("files.read", true),
  item("files.write_all"),
  item("files2.search"),
];

/** The ids of the items that a filter takes. */
function taken(filter: Filter, items: readonly FilterItem[] = ITEMS): readonly string[] {
  const matches = compileFilter(filter);
  return items.filter(matches).map(({ server, remoteName }) => `${server}.${remoteName}`);
}

describe("a filter takes", () => {
  const all = taken("all");
  const table: readonly [string, Filter, string][] = [
    ["servers by name", { servers: ["git"] }, "git.log git.push"],
    [
      "servers by glob",
      { servers: ["files*", "none"] },
      "files.read files.write_all files2.search",
    ],
    ["servers by ?", { servers: ["files?"] }, "files2.search"],
    [
      "tools by their own name",
      { tools: ["log", "sea*", "*all", "*us*"] },
      "git.log git.push files.write_all files2.search",
    ],
    ["no tool by its exposed name as own name", { tools: ["git__log"] }, ""],
    ["one tool by its id", { ids: ["git.log", "files.log"] }, "git.log"],
    ["no glob in an id or name", { or: [{ ids: ["git.*"] }, { names: ["git__*"] }] }, ""],
    ["tools by their exposed name", { names: ["files__read"] }, "files.read"],
    [
      "tools whose own name has the pattern anywhere",
      { pattern: "(write|us)" },
      "git.push files.write_all",
    ],
    ["tools that only read by annotation", { readOnly: true }, "git.log files.read"],
    ["what both parts take", { and: [{ servers: ["git"] }, { readOnly: true }] }, "git.log"],
    [
      "what one part takes",
      { or: [{ ids: ["git.log"] }, { tools: ["search"] }] },
      "git.log files2.search",
    ],
    ["what a part does not take", { not: { servers: ["files*"] } }, "git.log git.push"],
    ["everything for an empty and", { and: [] }, all.join(" ")],
    ["nothing for an empty or", { or: [] }, ""],
    ["nothing for no names", { servers: [] }, ""],
  ];
  for (const [what, filter, expected] of table)
    it(what, () => assert.equal(taken(filter).join(" "), expected));

  it("no name of more than 128 characters by a pattern, and no time for it", () => {
    const long = item(`s.${"a".repeat(129)}`);
    assert.deepEqual(taken({ pattern: "a" }, [long]), []);
    assert.equal(taken({ pattern: "a" }, [item(`s.${"a".repeat(128)}`)]).length, 1);
    assert.equal(taken({ tools: ["*a*a*b"] }, [item(`s.${"a".repeat(5000)}`)]).length, 0);
  });
});

it("a filter tells before a server has listed its tools whether it may have some of them", () => {
  const table: readonly (readonly [Filter, boolean])[] = [
    ["all", true],
    [{ servers: ["gi*"] }, true],
    [{ servers: ["files"] }, false],
    [{ ids: ["git.log"] }, true],
    [{ ids: ["files.read"] }, false],
    [{ tools: ["x"] }, true],
    [{ and: [{ servers: ["git"] }, { ids: ["files.read"] }] }, false],
    [{ or: [{ servers: ["files"] }, { names: ["git__log"] }] }, true],
    [{ not: { servers: ["git"] } }, false],
    [{ not: { servers: ["files"] } }, true],
    [{ not: { tools: ["log"] } }, true],
    [{ not: { not: { servers: ["files"] } } }, false],
    [{ not: { and: [] } }, false],
    [{ or: [] }, false],
  ];
  for (const [filter, expected] of table)
    assert.equal(mayMatchServer(filter, "git"), expected, JSON.stringify(filter));
});

it("a glob of a filter matches what a glob of a server's rules matches", () => {
  const text = fc.string({ unit: fc.constantFrom("a", "b", "*", "?", "😀", "_"), maxLength: 8 });
  fc.assert(
    fc.property(text, text, (glob, name) => {
      assert.equal(compileGlobs([glob])(name), matchesGlob(glob, name));
    }),
    { numRuns: 2000 },
  );
});

describe("the algebra of filters holds:", () => {
  const { filter } = fc.letrec<{ filter: Filter }>((tie) => {
    const word = fc.constantFrom("git", "files", "log", "*", "f*", "?iles", "read", "");
    const words = fc.array(word, { maxLength: 2 });
    return {
      filter: fc.oneof(
        { maxDepth: 4 },
        fc.constant("all" as const),
        fc.record({ servers: words }),
        fc.record({ tools: words }),
        fc.record({ ids: fc.constantFrom(["git.log"], ["files.read", "git.push"]) }),
        fc.record({ pattern: fc.constantFrom("re", "^s", "l$") }),
        fc.constant({ readOnly: true } as const),
        fc.record({ not: tie("filter") }),
        fc.record({ and: fc.array(tie("filter"), { maxLength: 3 }) }),
        fc.record({ or: fc.array(tie("filter"), { maxLength: 3 }) }),
      ),
    };
  });
  const laws: readonly [string, (a: Filter, b: Filter) => readonly [Filter, Filter]][] = [
    ["not not a = a", (a) => [{ not: { not: a } }, a]],
    [
      "not (a and b) = not a or not b",
      (a, b) => [{ not: { and: [a, b] } }, { or: [{ not: a }, { not: b }] }],
    ],
    [
      "not (a or b) = not a and not b",
      (a, b) => [{ not: { or: [a, b] } }, { and: [{ not: a }, { not: b }] }],
    ],
    ["a and [] = a", (a) => [{ and: [a, { and: [] }] }, a]],
    ["a or [] = a", (a) => [{ or: [a, { or: [] }] }, a]],
    ["a and b takes nothing that a does not", (a, b) => [{ and: [a, b, a] }, { and: [b, a] }]],
    [
      "a limits the servers no more than its server part does",
      (a) => [{ and: [a, serverPartOf(a) ?? "all"] }, a],
    ],
  ];
  for (const [law, sides] of laws) {
    it(law, () =>
      fc.assert(
        fc.property(filter, filter, (a, b) => {
          const [left, right] = sides(a, b);
          assert.deepEqual(taken(left), taken(right));
        }),
      ),
    );
  }
});
