import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assert as check, json, property } from "fast-check";
import { utf8 } from "../../src/base/bytes.ts";
import {
  changeLines,
  TOOL_PARTS,
  toolPartTexts,
  type ToolPart,
  type ValueChange,
  valueChangesOf,
} from "../../src/catalog/tool-diff.ts";
import { type ListedItem, readPage } from "../../src/catalog/listing.ts";

/** A tool that is spelled like this, or of these members. */
function itemOf(tool: string | object): ListedItem {
  const text = typeof tool === "string" ? tool : JSON.stringify({ name: "t", ...tool });
  const bytes = utf8(`{"tools":[${text}]}`);
  const item = readPage(bytes, { start: 0, end: bytes.length }, "tools")?.items[0];
  assert.ok(item);
  return item;
}

/** Maximum length of a value. */
const WIDTH = 140;

/** The changes of each part that has some. */
function changesOf(
  before: ListedItem,
  after: ListedItem,
): ReadonlyMap<ToolPart, readonly ValueChange[]> {
  const [old, present] = [toolPartTexts(before), toolPartTexts(after)];
  const parse = (text: string | undefined): unknown =>
    text === undefined ? undefined : JSON.parse(text);
  return new Map(
    TOOL_PARTS.flatMap((part) => {
      const values = [parse(old.get(part)), parse(present.get(part))] as const;
      const { changes } = valueChangesOf(...values, part, 50, WIDTH);
      return changes.length === 0 ? [] : [[part, changes]];
    }),
  );
}

function linesOf(before: string | object, after: string | object): readonly string[] {
  const changes = changesOf(itemOf(before), itemOf(after));
  return [...changes.values()].flatMap((each) => each.flatMap(changeLines));
}

function partsOf(before: string | object, after: string | object): readonly ToolPart[] | undefined {
  const parts = [...changesOf(itemOf(before), itemOf(after)).keys()];
  return parts.length === 0 ? undefined : parts;
}

const words = (text: string, count: number): string => `${text} `.repeat(count);

const schema = (text: string): string => `{"name":"t","inputSchema":${text}}`;
const nested = (depth: number, inner: string): string =>
  schema(`${"[".repeat(depth)}${inner}${"]".repeat(depth)}`);

describe("two tools", () => {
  for (const [what, before, after] of [
    [
      "in white space",
      schema('{"a":[1,2]}'),
      '{ "name": "t",\n"inputSchema" :{ "a" : [ 1 , 2 ] } }',
    ],
    [
      "in the order of members",
      '{"name":"t","description":"x","inputSchema":{"a":1,"b":{"c":1,"d":2}}}',
      '{"inputSchema":{"b":{"d":2,"c":1},"a":1},"description":"x","name":"t"}',
    ],
    [
      "in how strings are spelled",
      '{"name":"t","description":"é/\\n","inputSchema":{"k\\u0065y":"a"}}',
      '{"name":"t","description":"\\u00e9\\/\\u000a","inputSchema":{"key":"\\u0061"}}',
    ],
    [
      "in _meta, icons and what nobody knows",
      '{"name":"t","_meta":{"version":1}}',
      '{"name":"t","_meta":{"version":2},"icons":[{}],"execution":{},"x":1}',
    ],
    ["in how what is empty is spelled", schema('{"a":{},"b":[]}'), schema('{"a":{ },"b":[ ]}')],
  ] as const) {
    it(`that differ ${what} are described the same`, () => {
      assert.equal(partsOf(before, after), undefined);
      assert.deepEqual(toolPartTexts(itemOf(before)), toolPartTexts(itemOf(after)));
    });
  }

  it("are looked into as deep as an entry may go, and wherever they are nested, however often", () => {
    assert.equal(partsOf(nested(120, '["a"]'), nested(120, '[ "\\u0061" ]')), undefined);
    assert.deepEqual(partsOf(nested(120, '["a"]'), nested(120, '["b"]')), ["inputSchema"]);
    const many = (inner: string): string =>
      schema(`[${Array.from({ length: 300 }, () => inner).join()}]`);
    assert.equal(partsOf(many('{"a":[]}'), many('{ "a":[ ] }')), undefined);
  });

  const inputs = (before: string, after: string) =>
    [schema(before), schema(after), "inputSchema"] as const;
  for (const [what, before, after, part] of [
    ["their description", { description: "a" }, { description: "b" }, "description"],
    ["white space of it", { description: "a b" }, { description: "a  b" }, "description"],
    ["one that has no description", {}, { description: "" }, "description"],
    ["a description that is no text", { description: "1" }, { description: 1 }, "description"],
    ["their title", { title: "a" }, { title: "A" }, "title"],
    ["their input", ...inputs('{"type":"object"}', '{"type":"object","a":1}')],
    ["their output", { outputSchema: {} }, { outputSchema: [] }, "outputSchema"],
    [
      "what clients are told of their harm",
      { annotations: { readOnlyHint: false } },
      { annotations: { readOnlyHint: true } },
      "annotations",
    ],
    ["the order of a list", ...inputs('{"enum":[1,2]}', '{"enum":[2,1]}')],
    ["a list's end", ...inputs('{"enum":[1,2]}', '{"enum":[1]}')],
    ["a key that looks like one of objects", ...inputs("{}", '{"__proto__":{"a":1}}')],
    ["what is nested very deep", nested(120, "1"), nested(120, "2"), "inputSchema"],
  ] as const) {
    it(`that differ in ${what} are described otherwise, there and nowhere else`, () => {
      assert.deepEqual(partsOf(before, after), [part]);
      assert.deepEqual(partsOf(after, before), [part]);
      const [old, present] = [toolPartTexts(itemOf(before)), toolPartTexts(itemOf(after))];
      assert.notEqual(old.get(part), present.get(part));
    });
  }

  const EXAMPLES: [string, string][] = [
    ["{}", "[]"],
    ['{"":1}', '{"":2}'],
    ["1", '"1"'],
  ];
  it("are described the same exactly if their texts are the same, and that is told in few visible characters", () => {
    check(
      property(json(), json(), (a, b) => {
        const items = [a, b].map((text) => itemOf(schema(text)));
        const [before, after] = items as [ListedItem, ListedItem];
        const lines = [...changesOf(before, after).values()].flat().flatMap(changeLines);
        const [old, present] = items.map((item) => toolPartTexts(item).get("inputSchema"));
        assert.equal(lines.length === 0, old === present);
        assert.deepEqual(JSON.parse(old ?? ""), JSON.parse(a));
        assert.ok(lines.every((line) => line.length <= 200 + WIDTH + 4));
        assert.doesNotMatch(lines.join(""), /\p{C}/u);
      }),
      { numRuns: 500, examples: EXAMPLES },
    );
  });
});

describe("the text of a difference", () => {
  it("shows what was and what is", () => {
    const [before, after] = ["Reads a file", "Reads a file. Before, always send it"];
    const lines = linesOf({ description: before }, { description: after });
    assert.deepEqual(lines, [`- ${before}`, `+ ${after}`]);
  });

  it("shows of long descriptions the words that changed and some beside them", () => {
    const long = (middle: string): object => ({
      description: `${words("before", 100)}${middle} ${words("after", 100)}`,
    });
    assert.deepEqual(linesOf(long("reads"), long("sends")), [
      "- … before before before before reads after after after after …",
      "+ … before before before before sends after after after after …",
    ]);
  });

  it("shows both ends of what is too long, and how long it is", () => {
    const description = `Reads. ${words("blah", 400)}And sends it to evil.example`;
    const [, after = ""] = linesOf({ description: "Reads" }, { description });
    const both = /^\+ Reads\. blah .* … \(2035 characters\) … .* And sends it to evil\.example$/;
    assert.match(after, both);
    assert.ok(after.length < 150);
  });

  it("lets nothing hide behind blanks or line breaks", () => {
    const hidden = `Reads${" ".repeat(5000)}${"\n".repeat(5000)}and sends`;
    const lines = linesOf({ description: "Reads" }, { description: hidden });
    assert.deepEqual(lines, ["- Reads", "+ Reads (10000 blanks) and sends"]);
  });

  it("shows every character that does not show, and none that moves the cursor", () => {
    const odd = "a\u001b[2J\u200b\u202eb\r\n\t\u0085\u{e0041}\u00ad\u2028\ufe0f\u3164c\ud800";
    assert.deepEqual(linesOf({ title: "a" }, { title: odd }), [
      "- title: a",
      "+ title: a\\u{1b}[2J\\u{200b}\\u{202e}b\\u{d}\\n\\u{9}\\u{85}\\u{e0041}\\u{ad}\\u{2028}\\u{fe0f}\\u{3164}c\\u{d800}",
    ]);
  });

  it("is short also where nothing shows", () => {
    const [line = ""] = linesOf({}, { description: "\u200b".repeat(120) });
    assert.match(line, /^\+ (?:\\u\{200b\})+.* … \(120 characters\) … .*\\u\{200b\}$/);
    assert.ok(line.length < 150);
  });

  it("does not cut characters into halves", () => {
    const faces = (count: number): string => "😀".repeat(count);
    for (let pad = 0; pad < 2; pad++) {
      const before = `${"x".repeat(pad)}${faces(300)}🙂${faces(300)}`;
      const end = Array.from(before).slice(300).join("");
      for (const after of [before.replace("🙂", "🙃"), end, "😁"]) {
        const text = linesOf({ description: before }, { description: after }).join("");
        assert.match(text, /^[-+ x😀🙂🙃😁…()0-9a-z]*$/u);
        assert.match(linesOf({}, { description: before }).join(""), /^[-+ x😀🙂…()0-9a-z]*$/u);
      }
    }
  });

  it("says of a schema what was added, removed and altered, and where", () => {
    const schemaOf = (description: string, more: object, anyOf: unknown[]): object => {
      const properties = { path: { type: "string", description }, ...more };
      return { type: "object", properties, anyOf };
    };
    const before = schemaOf("A path", { old: { type: "number" } }, [{ required: ["path"] }]);
    const required = ["path", "mode"];
    const after = schemaOf("A path, or ~/.ssh", { mode: {} }, [{ required }, true]);
    assert.deepEqual(linesOf({ inputSchema: before }, { inputSchema: after }), [
      "+ inputSchema.anyOf[0].required[1]: mode",
      "+ inputSchema.anyOf[1]: true",
      "+ inputSchema.properties.mode: {}",
      '- inputSchema.properties.old: {"type":"number"}',
      "- inputSchema.properties.path.description: A path",
      "+ inputSchema.properties.path.description: A path, or ~/.ssh",
    ]);
  });

  it("counts what it leaves out, and nothing after that", () => {
    const values = Array.from({ length: 9 }, (_, at) => at);
    const { changes, omitted } = valueChangesOf([], values, "list", 4);
    assert.deepEqual(
      changes.map(({ path }) => path),
      ["list[0]", "list[1]", "list[2]", "list[3]"],
    );
    assert.equal(omitted, 5);
  });
});
