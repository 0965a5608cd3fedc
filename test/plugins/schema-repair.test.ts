import assert from "node:assert/strict";
import { describe, it } from "node:test";
import plugin from "../../plugins/schema-repair/index.ts";
import { repair } from "../../plugins/schema-repair/repair.ts";
import type { Tool } from "../../src/plugin/plugin.ts";
import { BareHost } from "./plugin-host.ts";

interface Setup {
  /** The log messages so far. */
  lines(): readonly string[];
  list(...tools: readonly Tool[]): readonly Tool[];
}

async function setUp(unrepairable: "hide" | "show" = "hide"): Promise<Setup> {
  const host = new BareHost();
  const parts = await plugin.setup({ unrepairable }, host);
  return {
    lines: () => host.lines.map(({ level, text }) => `${level} ${text}`),
    list: (...tools) => parts.list?.(tools, "web") ?? [],
  };
}

/** A tool's input schema with one argument of this schema. */
const having = (x: unknown): object => ({ type: "object", properties: { x } });

function repaired(schema: unknown): unknown {
  const result = repair(schema, "arguments");
  assert.equal(result.kind, "repaired", JSON.stringify(result));
  return result.kind === "repaired" ? result.schema : undefined;
}

function faultOf(schema: unknown): string {
  const result = repair(schema, "arguments");
  assert.equal(result.kind, "unrepairable", JSON.stringify(result));
  return result.kind === "unrepairable" ? result.fault : "";
}

const NOTHING = { type: "object", properties: {} };

describe("a schema that is fine", () => {
  const table: [string, object][] = [
    ["has no arguments", NOTHING],
    [
      "says which standard it follows",
      { $schema: "https://json-schema.org/draft/2020-12/schema", ...NOTHING },
    ],
    [
      "refers to its definitions",
      { ...having({ $ref: "#/$defs/a" }), $defs: { a: { type: "string" } } },
    ],
    [
      "combines below its root",
      having({ oneOf: [{ type: "string" }, { type: "null" }], not: { minLength: 1 } }),
    ],
    [
      "has conditions at its root",
      // oxlint-disable-next-line unicorn/no-thenable -- a keyword of schemas
      { ...NOTHING, if: { required: ["a"] }, then: { required: ["b"] } },
    ],
    ["lets anything be", having({ description: "anything" })],
    ["has tuples", having({ type: "array", prefixItems: [{ type: "string" }], items: false })],
    [
      "says that of a list nothing may be left over",
      having({ type: "array", prefixItems: [{}], unevaluatedItems: false }),
    ],
    [
      "has keywords that nobody knows",
      having({ type: "string", nullable: true, "x-order": [null] }),
    ],
    [
      "has properties that are called like keywords",
      {
        type: "object",
        properties: {
          type: { type: "string" },
          definitions: { type: "string" },
          required: { type: "boolean" },
        },
      },
    ],
    [
      "has patterns that only lenient readers take",
      having({ type: "string", pattern: "^[\\w-.]+$" }),
    ],
  ];
  for (const [what, schema] of table) {
    it(`stays as it is: one that ${what}`, () => {
      assert.deepEqual(repair(schema, "arguments"), { kind: "unchanged" });
    });
  }
});

describe("a repair", () => {
  const draft7 = { $schema: "http://json-schema.org/draft-07/schema#" };
  const roots: [string, unknown, unknown][] = [
    ["makes a missing schema one without arguments", undefined, NOTHING],
    ["makes null one without arguments", null, NOTHING],
    ["makes true one without arguments", true, NOTHING],
    ["makes an empty schema one without arguments", {}, NOTHING],
    ["adds properties, which OpenAI wants", { type: "object" }, NOTHING],
    [
      "adds the type of the whole",
      { properties: { a: { type: "string" } } },
      { properties: { a: { type: "string" } }, type: "object" },
    ],
    [
      "takes object out of several types of the whole",
      { type: ["object", "null"], properties: {} },
      NOTHING,
    ],
    [
      "writes types in small letters, as Gemini does not",
      { type: "OBJECT", properties: { x: { type: "STRING" } } },
      having({ type: "string" }),
    ],
    ["leaves out that required is null", { ...NOTHING, required: null }, NOTHING],
    [
      "describes required arguments that are not described",
      { type: "object", properties: { a: { type: "string" } }, required: ["a", "b"] },
      { type: "object", properties: { a: { type: "string" }, b: {} }, required: ["a", "b"] },
    ],
    [
      "leaves out the mark of draft-07",
      { $schema: "http://json-schema.org/draft-07/schema#", ...having({ type: "string" }) },
      having({ type: "string" }),
    ],
    [
      "lets a reference of draft-07 stand alone",
      {
        $schema: "http://json-schema.org/draft-07/schema#",
        ...having({ $ref: "#/definitions/a", minLength: 5, description: "words" }),
        definitions: { a: { type: "string" } },
      },
      {
        ...having({ $ref: "#/definitions/a", description: "words" }),
        definitions: { a: { type: "string" } },
      },
    ],
    [
      "puts what the root refers to in its place",
      { $ref: "#/definitions/A", definitions: { A: having({ type: "string" }) } },
      { ...having({ type: "string" }), definitions: { A: having({ type: "string" }) } },
    ],
    [
      "moves arguments with names that Anthropic refuses to where they mean the same",
      {
        type: "object",
        properties: { "filter[id]": { type: "string" }, ok: { type: "string" } },
        required: ["filter[id]"],
        additionalProperties: false,
      },
      {
        type: "object",
        properties: { ok: { type: "string" } },
        required: ["filter[id]"],
        additionalProperties: false,
        patternProperties: { "^filter\\[id\\]$": { type: "string" } },
      },
    ],
  ];
  roots.push(
    [
      "gives the dependencies of draft-07 their two names",
      { ...NOTHING, ...draft7, dependencies: { a: ["b"], c: { required: ["d"] } } },
      { ...NOTHING, dependentRequired: { a: ["b"] }, dependentSchemas: { c: { required: ["d"] } } },
    ],
    [
      "leaves out what meant nothing in draft-07",
      { ...NOTHING, ...draft7, dependentRequired: { a: ["b"] }, unevaluatedProperties: false },
      NOTHING,
    ],
    [
      "adds no arguments to those that are said to be all, and asks for no others than before",
      {
        type: "object",
        properties: { a: { type: "string" } },
        additionalProperties: false,
        anyOf: [{ properties: { b: { type: "string" } } }],
      },
      { type: "object", properties: { a: { type: "string" } }, additionalProperties: false },
    ],
    [
      "asks nothing of what is left over where alternatives at the root are left out",
      { ...having({}), anyOf: [{ properties: { y: {} } }], unevaluatedProperties: false },
      { type: "object", properties: { x: {}, y: {} } },
    ],
    [
      "leaves out references that start at a document within the document",
      {
        ...having({ $id: "http://127.0.0.1/x", items: { $ref: "#/definitions/a" } }),
        definitions: { a: { type: "string" } },
      },
      {
        ...having({ $id: "http://127.0.0.1/x", items: {} }),
        definitions: { a: { type: "string" } },
      },
    ],
    [
      "leaves out references to what is not in the place of a schema",
      { ...having({ $ref: "#/x-types/a" }), "x-types": { a: { type: "array" } } },
      { ...having({}), "x-types": { a: { type: "array" } } },
    ],
    [
      "follows references with characters that are written otherwise in them",
      { ...having({ $ref: "#/$defs/a~1b~0%20" }), $defs: { "a/b~ ": true } },
      { ...having({ $ref: "#/$defs/a~1b~0%20" }), $defs: { "a/b~ ": {} } },
    ],
  );
  for (const [what, before, after] of roots) {
    it(what, () => assert.deepEqual(repaired(before), after));
  }

  const parts: [string, unknown, unknown][] = [
    ["adds missing items, which OpenAI wants", { type: "array" }, { type: "array", items: {} }],
    [
      "adds them where there may be something else",
      { type: ["array", "null"] },
      { type: ["array", "null"], items: {} },
    ],
    [
      "adds the type that all values have",
      { enum: ["a", "b"] },
      { enum: ["a", "b"], type: "string" },
    ],
    ["adds the type that the value has", { const: 1 }, { const: 1, type: "integer" }],
    ["writes true as a schema", true, {}],
    ["writes false as a schema", false, { not: {} }],
    ["makes null a schema", null, {}],
    [
      "rewrites draft-04's exclusive bounds",
      { minimum: 1, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false },
      { maximum: 9, exclusiveMinimum: 1 },
    ],
    [
      "rewrites draft-07's tuples",
      { type: "array", items: [{ type: "string" }], additionalItems: false },
      { type: "array", prefixItems: [{ type: "string" }], items: false },
    ],
    ["leaves out draft-03's required", { type: "string", required: true }, { type: "string" }],
    [
      "leaves out a type that is none",
      { type: "any", description: "words" },
      { description: "words" },
    ],
    [
      "leaves out what is empty and may not be",
      { type: "string", enum: [], anyOf: [] },
      { type: "string" },
    ],
    ["leaves out patterns that are none", { type: "string", pattern: "(" }, { type: "string" }],
    [
      "leaves out references that lead nowhere",
      { $ref: "#/$defs/gone", title: "x" },
      { title: "x" },
    ],
    ["leaves out references that lead elsewhere", { $ref: "http://127.0.0.1/x" }, {}],
    ["leaves a not out that would become narrower", { not: { pattern: "(" } }, {}],
    [
      "makes exactly one of several at least one if they become wider",
      { oneOf: [{ pattern: "(" }, { type: "null" }] },
      { anyOf: [{}, { type: "null" }] },
    ],
    [
      "leaves out where other items begin if it cannot be said where",
      { prefixItems: "none", items: { type: "null" } },
      {},
    ],
    ["leaves out items that are said in two ways", { prefixItems: [{}], items: [{}] }, {}],
    [
      "finds the type of whole numbers and others",
      { enum: [1, 2.5] },
      { enum: [1, 2.5], type: "number" },
    ],
    [
      "leaves out dependencies where readers do not agree on them",
      { dependencies: { a: ["b"] } },
      {},
    ],
    ["leaves a not out that has some", { not: { dependencies: { a: ["b"] } } }, {}],
    [
      "does not take what is only defined for a part",
      { $defs: { a: { pattern: "(" } }, unevaluatedProperties: false },
      { $defs: { a: {} }, unevaluatedProperties: false },
    ],
    [
      "asks nothing of what is left over by what may look at less",
      { anyOf: [{ $ref: "#/$defs/gone" }], unevaluatedProperties: false, unevaluatedItems: false },
      { anyOf: [{}] },
    ],
    [
      "leaves a not out in which arguments that were additional are described",
      { not: { properties: { a: {} }, required: ["a", "b"], additionalProperties: false } },
      {},
    ],
    [
      "counts no matches of what would match more often",
      { type: "array", contains: { pattern: "(" }, maxContains: 1, items: {} },
      { type: "array", contains: {}, items: {} },
    ],
    [
      "leaves out a condition that would hold more often",
      // oxlint-disable-next-line unicorn/no-thenable -- a keyword of schemas
      { if: { minimum: "1" }, then: { type: "string" }, else: { type: "null" } },
      {},
    ],
    [
      "leaves out what is said of the others where it cannot be said which these are",
      { type: "object", properties: null, additionalProperties: false },
      { type: "object" },
    ],
  ];
  for (const [what, before, after] of parts) {
    it(what, () => assert.deepEqual(repaired(having(before)), having(after)));
  }

  it("cuts references in a circle after one turn, and keeps the type", () => {
    const node = { type: "object", properties: { next: { $ref: "#/$defs/node" } } };
    const cut = { type: "object", properties: { next: { type: "object" } } };
    assert.deepEqual(repaired({ ...having({ $ref: "#/$defs/node" }), $defs: { node } }), {
      ...having({ $ref: "#/$defs/node" }),
      $defs: { node: cut },
    });
    assert.deepEqual(repaired(having({ $ref: "#" })), having({ type: "object" }));
    const result = repair({ properties: { x: { $ref: "#" } } }, "arguments");
    assert.match(result.kind === "repaired" ? result.done : "", /^references in a circle left out/);
  });

  it("cuts references in a circle of two", () => {
    const list = (name: string): object => ({ type: "array", items: { $ref: `#/$defs/${name}` } });
    const schema = { ...having({ $ref: "#/$defs/a" }), $defs: { a: list("b"), b: list("a") } };
    const { $defs } = repaired(schema) as { $defs: { a: object; b: object } };
    assert.deepEqual($defs, {
      a: list("b"),
      b: { type: "array", items: { type: "array", items: {} } },
    });
  });

  it("leaves a not out that refers to what has become wider", () => {
    const schema = { ...having({ not: { $ref: "#/$defs/a" } }), $defs: { a: { pattern: "(" } } };
    assert.deepEqual(repaired(schema), { ...having({}), $defs: { a: {} } });
  });

  it("makes alternatives at the root arguments, of which only the common ones have to be there", () => {
    const result = repair(
      {
        anyOf: [
          {
            type: "object",
            properties: {
              kind: { const: "a", type: "string" },
              x: { type: "string", description: "an x" },
            },
            required: ["kind", "x"],
          },
          {
            type: "object",
            properties: { kind: { const: "b", type: "string" } },
            required: ["kind"],
          },
        ],
      },
      "arguments",
    );
    assert.ok(result.kind === "repaired");
    assert.deepEqual(result.schema, {
      type: "object",
      properties: {
        kind: {
          anyOf: [
            { const: "a", type: "string" },
            { const: "b", type: "string" },
          ],
        },
        x: { description: "an x" },
      },
      required: ["kind"],
    });
    assert.match(result.text, /^The arguments also have to match this JSON Schema: \{"anyOf":\[/);
  });

  it("keeps the types of arguments that no alternative leaves free", () => {
    const shape = (name: string): object => ({
      type: "object",
      properties: { [name]: { type: "string" } },
      required: [name],
      additionalProperties: false,
    });
    assert.deepEqual(repaired({ oneOf: [shape("a"), shape("b"), { type: "null" }] }), {
      type: "object",
      properties: { a: { type: "string" }, b: { type: "string" } },
    });
  });

  it("only leaves out which of the root's own arguments have to be there together", () => {
    const properties = { a: { type: "string" }, b: { type: "string" } };
    const schema = {
      type: "object",
      properties,
      anyOf: [{ required: ["a"] }, { required: ["b"] }],
    };
    assert.deepEqual(repaired(schema), { type: "object", properties });
  });

  it("loses nothing of parts that all hold, and has nothing to tell of them", () => {
    const result = repair(
      {
        type: "object",
        allOf: [
          { $ref: "#/$defs/base" },
          { properties: { b: { type: "integer" } }, required: ["b"] },
        ],
        $defs: { base: { type: "object", properties: { a: { type: "string" } }, required: ["a"] } },
      },
      "arguments",
    );
    assert.ok(result.kind === "repaired");
    const { properties, required } = result.schema;
    assert.deepEqual(properties, { a: { type: "string" }, b: { type: "integer" } });
    assert.deepEqual(required, ["a", "b"]);
    assert.equal(result.text, "");
  });

  it("keeps what is called like a member of every object", () => {
    const schema = JSON.parse(
      '{"properties":{"__proto__":{"type":"array"},"constructor":true}}',
    ) as object;
    assert.equal(
      JSON.stringify(repaired(schema)),
      '{"properties":{"__proto__":{"type":"array","items":{}},"constructor":{}},"type":"object"}',
    );
  });
});

describe("a schema of which nothing can be made", () => {
  const table: [string, unknown, RegExp][] = [
    ["accepts nothing", false, /accepts nothing/],
    ["is a text", "object", /no schema/],
    ["is a list", [], /no schema/],
    ["is a string's", { type: "string" }, /not the schema of an object/],
    ["is a list's", { type: "array", items: {} }, /not the schema of an object/],
    ["is one of values that are no objects", { enum: ["a"] }, /not the schema of an object/],
    [
      "has only alternatives that are no objects",
      { anyOf: [{ type: "string" }, { type: "null" }] },
      /no arguments/,
    ],
    [
      "has a part that no object matches",
      { allOf: [{ type: "object" }, { type: "string" }] },
      /no arguments/,
    ],
  ];
  for (const [what, schema, fault] of table) {
    it(`is one that ${what}`, () => assert.match(faultOf(schema), fault));
  }

  it("is one that is nested 10,000 deep, which takes no time", () => {
    let deep: object = { type: "string" };
    for (let i = 0; i < 10_000; i++) deep = { type: "array", items: deep };
    within(5000, () => assert.match(faultOf(having(deep)), /nested more than 200 deep/));
  });

  it("is one with a million parts, which takes no time", () => {
    const properties = Object.fromEntries(
      Array.from({ length: 300_000 }, (_, i) => [`p${i}`, { type: "array" }]),
    );
    within(5000, () =>
      assert.match(faultOf({ type: "object", properties }), /more than 200000 parts/),
    );
  });

  it("is one whose references would unfold to 2^50 schemas, which takes no time", () => {
    const $defs: Record<string, object> = { d0: { type: "string" } };
    for (let i = 1; i <= 50; i++) {
      const each = { $ref: `#/$defs/d${i - 1}` };
      $defs[`d${i}`] = { type: "object", properties: { a: each, b: each } };
    }
    const schema = { ...having({ $ref: "#/$defs/d50" }), $defs };
    within(5000, () => assert.match(faultOf(structuredClone(schema)), /more than 100000 schemas/));
  });
});

describe("a big schema", () => {
  it("of 10 MB is repaired in no time", () => {
    const properties = Object.fromEntries(
      Array.from({ length: 10_000 }, (_, i) => [
        `p${i}`,
        { type: "array", description: "x".repeat(1000) },
      ]),
    );
    within(5000, () => {
      const { p9999 } = (
        repaired({ type: "object", properties }) as { properties: Record<string, object> }
      ).properties;
      assert.deepEqual(p9999, { type: "array", description: "x".repeat(1000), items: {} });
    });
  });

  it("with a chain of 20,000 references is read without a deep stack", () => {
    const $defs: Record<string, object> = { d0: { type: "array" } };
    for (let i = 1; i <= 20_000; i++) $defs[`d${i}`] = { $ref: `#/$defs/d${i - 1}` };
    within(5000, () => repaired({ ...having({ $ref: "#/$defs/d20000" }), $defs }));
  });

  it("with arguments of strange names of any length is moved in no time", () => {
    const properties = Object.fromEntries(
      Array.from({ length: 5000 }, (_, i) => [`${"[(".repeat(100)}${i}`, {}]),
    );
    within(5000, () => repaired({ type: "object", properties }));
  });
});

/** Time limit in ms, far above the expected time. */
function within(limit: number, work: () => void): void {
  const start = performance.now();
  work();
  const took = performance.now() - start;
  assert.ok(took < limit, `took ${took} ms`);
}

describe("the plugin", () => {
  const fine: Tool = { name: "fine", inputSchema: NOTHING, outputSchema: NOTHING };
  const bad: Tool = { name: "bad", title: "Bad", inputSchema: { type: "object" }, _meta: { a: 1 } };
  const hopeless: Tool = { name: "hopeless", inputSchema: { type: "string" } };

  it("returns the very same tools where there is nothing to do, and says nothing", async () => {
    const { list, lines } = await setUp();
    const [tool] = list(fine);
    assert.equal(tool, fine);
    assert.deepEqual(lines(), []);
  });

  it("repairs the schema and leaves everything else as it is, in its order", async () => {
    const { list } = await setUp();
    assert.equal(
      JSON.stringify(list(bad)),
      '[{"name":"bad","title":"Bad","inputSchema":{"type":"object","properties":{}},"_meta":{"a":1}}]',
    );
  });

  it("hides what cannot be repaired and names it, or shows it as it is", async () => {
    const hiding = await setUp();
    assert.deepEqual(hiding.list(hopeless, fine), [fine]);
    assert.deepEqual(hiding.lines(), [
      'warn Server "web", tool "hopeless": not shown, as its inputSchema cannot be repaired: it is not the schema of an object.',
    ]);
    const showing = await setUp("show");
    assert.deepEqual(showing.list(hopeless, fine), [hopeless, fine]);
    assert.equal(showing.lines().length, 1);
    assert.match(showing.lines()[0]!, /tool "hopeless": shown, although its inputSchema/);
  });

  it("leaves out an outputSchema that cannot be repaired, and repairs others, without hiding the tool", async () => {
    const { list, lines } = await setUp();
    for (const outputSchema of [
      null,
      false,
      { type: "array" },
      {},
      { anyOf: [{ type: "object" }] },
    ]) {
      assert.deepEqual(list({ ...fine, outputSchema }), [{ name: "fine", inputSchema: NOTHING }]);
    }
    assert.match(lines()[0]!, /its outputSchema was left out: it is no schema/);
    const outputSchema = {
      ...having({ type: "array" }),
      $schema: "http://json-schema.org/draft-07/schema#",
    };
    assert.deepEqual(list({ ...fine, outputSchema }), [
      { ...fine, outputSchema: having({ type: "array" }) },
    ]);
  });

  it("leaves what only providers of models want out of an outputSchema", async () => {
    const { list } = await setUp();
    const outputSchema = { type: "object", oneOf: [{ required: ["a b"] }, { enum: [{}] }] };
    const tool = { ...fine, outputSchema };
    assert.equal(list(tool)[0], tool);
  });

  it("says what was done once for each tool and change, however often it is asked", async () => {
    const { list, lines } = await setUp();
    for (let i = 0; i < 3; i++) list(structuredClone(bad), hopeless);
    assert.equal(lines().length, 2);
    assert.match(
      lines()[0]!,
      /^warn Server "web", tool "bad": its inputSchema was repaired: missing properties added\.$/,
    );
    list({ ...bad, inputSchema: having({ type: "array" }) });
    assert.equal(lines().length, 3);
    assert.match(lines()[2]!, /missing items added \(properties\.x\)/);
  });

  it("names the tools to which the same was done together", async () => {
    const { list, lines } = await setUp();
    list(bad, { ...bad, name: "worse" });
    list(bad, { ...bad, name: "third" });
    assert.match(lines()[0]!, /tools "bad", "worse": its inputSchema/);
    assert.match(lines()[1]!, /tool "third": its inputSchema/);
  });

  it("warns of all but the mark of an older draft, which nearly all have", async () => {
    const { list, lines } = await setUp();
    const $schema = "http://json-schema.org/draft-07/schema#";
    list({ ...fine, inputSchema: { ...NOTHING, $schema } });
    list({ ...bad, inputSchema: { type: "object", $schema } });
    list({ ...fine, outputSchema: { ...NOTHING, title: 1 } });
    assert.match(lines()[0]!, /^info .*: the mark of an older draft left out\.$/);
    assert.match(lines()[1]!, /^warn .*left out; missing properties added\.$/);
    assert.match(lines()[2]!, /^warn .*outputSchema was repaired: title left out/);
  });

  it("bears a draft that is no text, and a description that is none", async () => {
    const { list } = await setUp();
    const inputSchema = { ...NOTHING, $schema: { toString: 1, valueOf: 1 }, not: {} };
    const [tool] = list({ name: "t", description: null, inputSchema } as unknown as Tool);
    assert.deepEqual(tool?.inputSchema, NOTHING);
    assert.match(tool?.description ?? "", /^The arguments/);
  });

  it("lets no name break a line of the log, or fill it", async () => {
    const { list, lines } = await setUp();
    const name = `a\nb\u001b[31m${"c".repeat(5000)}`;
    list({ name, inputSchema: { type: "object", properties: { [name]: { type: "array" } } } });
    assert.equal(lines().length, 1);
    for (const odd of ["\n", "\u001b"]) assert.ok(!lines()[0]!.includes(odd));
    assert.ok(lines()[0]!.length < 500);
  });

  it("tells the model in the description what its schema can no longer say", async () => {
    const { list } = await setUp();
    const inputSchema = { ...having({}), not: { required: ["y"] } };
    const [tool] = list({ name: "t", description: "Does it.", inputSchema });
    assert.equal(
      tool?.description,
      'Does it.\n\nThe arguments also have to match this JSON Schema: {"not":{"required":["y"]}}',
    );
    assert.ok(tool !== undefined);
    assert.deepEqual(list(tool), [tool]);
    const long = { ...having({}), not: { required: ["y".repeat(2000)] } };
    assert.deepEqual(list({ name: "t", description: "Does it.", inputSchema: long }), [
      { name: "t", description: "Does it.", inputSchema: having({}) },
    ]);
    assert.equal(
      list({ name: "t", inputSchema })[0]?.description?.startsWith("The arguments"),
      true,
    );
  });
});
