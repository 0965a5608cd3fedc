import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../../src/base/bytes.ts";
import { readItem } from "../../../src/catalog/listing.ts";
import { type ListedRoute, Section, type SectionEntry } from "../../../src/catalog/section.ts";
import { ToolNames } from "../../../src/catalog/search/tool-names.ts";

function sectionOf(...names: readonly (readonly [server: string, own: string])[]): Section {
  const entries = names.map(([server, own]): readonly [string, SectionEntry] => {
    const item = readItem(utf8(JSON.stringify({ name: own })), "tools");
    assert.ok(item);
    const name = `${server}__${own.replaceAll(/[^\w-]/g, "_")}`;
    const { bytes } = item;
    const entry = { name, server, remoteName: own, isReadOnly: false, item, bytes };
    const route = entry as unknown as ListedRoute;
    return [name, { ...entry, route, appendTo: () => {} }];
  });
  return new Section("tools", new Map(entries));
}

/** The exposed names that a name stands for. */
function resolve(section: Section, name: string): readonly string[] | string {
  const resolution = ToolNames.of(section).resolve(name);
  if (resolution.kind === "found") return resolution.entry.name;
  return resolution.kind === "unknown" ? [] : resolution.entries.map((entry) => entry.name);
}

const TOOLS = sectionOf(
  ["github", "list_issues"],
  ["github", "search"],
  ["web", "search"],
  ["my.files", "read/text"],
  ["evil", "__proto__"],
  ["evil", "constructor"],
);

describe("a tool", () => {
  for (const [what, names, expected] of [
    ["its exposed name", ["github__list_issues"], "github__list_issues"],
    [
      "what models write before it",
      ["select:github__list_issues", "SELECT: github__list_issues"],
      "github__list_issues",
    ],
    [
      "quotes around it",
      ["`github__list_issues`", '"github__list_issues"', " github__list_issues\n"],
      "github__list_issues",
    ],
    [
      "its server and own name",
      ["github:list_issues", "github.list_issues", "github/list_issues"],
      "github__list_issues",
    ],
    [
      "its own name, which no other server has",
      ["list_issues", "select:list_issues"],
      "github__list_issues",
    ],
    [
      "another case or other separators",
      ["GitHub-listIssues", "LIST ISSUES", "github: list issues"],
      "github__list_issues",
    ],
    [
      "separators in both parts",
      ["my.files.read/text", "my.files:read/text", "read/text", "my-files read-text"],
      "my.files__read_text",
    ],
    [
      "the name of a member of every object",
      ["__proto__", "proto", "evil:__proto__"],
      "evil____proto__",
    ],
  ] as const) {
    it(`is found by ${what}`, () => {
      for (const name of names) assert.equal(resolve(TOOLS, name), expected, name);
    });
  }

  it("is ambiguous if several servers have the name, in the order of their names", () => {
    for (const name of ["search", "Search", "select:search"])
      assert.deepEqual(resolve(TOOLS, name), ["github__search", "web__search"]);
    assert.equal(resolve(TOOLS, "web:search"), "web__search");
  });

  it("is unique if the only other tool of that name is hidden", () => {
    const visible = TOOLS.filter(({ server }) => server !== "web");
    assert.equal(resolve(visible, "search"), "github__search");
    assert.deepEqual(resolve(visible, "web:search"), []);
    assert.deepEqual(ToolNames.of(visible).similar("web__serch").includes("web__search"), false);
  });

  it("is not found by a name that is only similar", () => {
    for (const name of [
      "list_isues",
      "github__list",
      "issues",
      "",
      "::",
      "select:",
      "x".repeat(1e6),
    ])
      assert.deepEqual(resolve(TOOLS, name), [], name.slice(0, 20));
  });

  it("is named as similar, the most similar first, three at most", () => {
    assert.equal(ToolNames.of(TOOLS).similar("list_isues")[0], "github__list_issues");
    assert.equal(ToolNames.of(TOOLS).similar("serch").length, 2);
    assert.deepEqual(ToolNames.of(TOOLS).similar("qqqq"), []);
    const many = sectionOf(...Array.from({ length: 9 }, (_, at) => ["s", `tool_${at}`] as const));
    assert.deepEqual(ToolNames.of(many).similar("tool"), ["s__tool_0", "s__tool_1", "s__tool_2"]);
  });
});
