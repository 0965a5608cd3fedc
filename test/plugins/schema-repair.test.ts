import assert from "node:assert/strict";
import { describe, it } from "node:test";
import plugin from "../../plugins/schema-repair/index.ts";
import { repair } from "../../plugins/schema-repair/repair.ts";
import type { Tool } from "../../src/plugin/plugin.ts";
import type { HubEvent } from "../../src/base/hub-events.ts";
import { sendRequest, initialize, listToolNames, ScriptedServer } from "../fixtures/memory-hub.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
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

const STRING = { type: "string" };
const ARRAY = { type: "array" };
/** It has a pattern that is none, which a repair leaves out: then it is wider. */
const WRONG = { pattern: "(" };
const DRAFT_7 = { $schema: "http://json-schema.org/draft-07/schema#" };

const object = (properties: object, more: object = {}): object => ({
  type: "object",
  properties,
  ...more,
});
/** A tool's input schema with one argument of this schema. */
const having = (x: unknown, more: object = {}): object => object({ x }, more);
const NOTHING = object({});

function repaired(schema: unknown): unknown {
  const result = repair(schema, "arguments");
  assert.equal(result.kind, "repaired", JSON.stringify(result));
  return result.kind === "repaired" ? result.schema : undefined;
}

function assertFault(schema: unknown, fault: RegExp): void {
  const result = repair(schema, "arguments");
  assert.equal(result.kind, "unrepairable", JSON.stringify(result));
  assert.match(result.kind === "unrepairable" ? result.fault : "", fault);
}

describe("a schema that is fine", () => {
  const standard = { $schema: "https://json-schema.org/draft/2020-12/schema" };
  const table: [string, object][] = [
    ["has no arguments", NOTHING],
    ["says which standard it follows", { ...standard, ...NOTHING }],
    ["refers to its definitions", having({ $ref: "#/$defs/a" }, { $defs: { a: STRING } })],
    ["combines", having({ oneOf: [STRING, { type: "null" }], not: { minLength: 1 } })],
    // oxlint-disable-next-line unicorn/no-thenable -- a keyword of schemas
    ["has conditions", { ...NOTHING, if: { required: ["a"] }, then: { required: ["b"] } }],
    ["lets anything be", having({ description: "anything" })],
    ["has tuples", having({ ...ARRAY, prefixItems: [STRING], items: false })],
    ["lets nothing be left over", having({ ...ARRAY, prefixItems: [{}], unevaluatedItems: false })],
    ["has unknown keywords", having({ ...STRING, nullable: true, "x-order": [null] })],
    [
      "has properties that are called like keywords",
      object({ type: STRING, definitions: STRING, required: { type: "boolean" } }),
    ],
    ["has patterns that only lenient readers take", having({ ...STRING, pattern: "^[\\w-.]+$" })],
  ];
  for (const [what, schema] of table) {
    it(`stays as it is: one that ${what}`, () => {
      assert.deepEqual(repair(schema, "arguments"), { kind: "unchanged" });
    });
  }
});

describe("a repair", () => {
  const definitions = { a: STRING };
  const $ref = "#/definitions/a";
  const roots: [string, unknown, unknown][] = [
    ["makes a missing schema one without arguments", undefined, NOTHING],
    ["makes null one without arguments", null, NOTHING],
    ["makes true one without arguments", true, NOTHING],
    ["makes an empty schema one without arguments", {}, NOTHING],
    ["adds properties, which OpenAI wants", { type: "object" }, NOTHING],
    ["adds the type of the whole", { properties: { x: STRING } }, having(STRING)],
    ["takes object out of several types", { ...NOTHING, type: ["object", "null"] }, NOTHING],
    [
      "writes types in small letters, as Gemini does not",
      { type: "OBJECT", properties: { x: { type: "STRING" } } },
      having(STRING),
    ],
    ["leaves out that required is null", { ...NOTHING, required: null }, NOTHING],
    [
      "describes required arguments that are not described",
      object({ a: STRING }, { required: ["a", "b"] }),
      object({ a: STRING, b: {} }, { required: ["a", "b"] }),
    ],
    ["leaves out the mark of draft-07", { ...DRAFT_7, ...having(STRING) }, having(STRING)],
    [
      "lets a reference of draft-07 stand alone",
      having({ $ref, minLength: 5, description: "words" }, { ...DRAFT_7, definitions }),
      having({ $ref, description: "words" }, { definitions }),
    ],
    [
      "puts what the root refers to in its place",
      { $ref, definitions: { a: having(STRING) } },
      having(STRING, { definitions: { a: having(STRING) } }),
    ],
    [
      "moves arguments with names that Anthropic refuses to where they mean the same",
      object({ "f[id]": STRING, x: {} }, { required: ["f[id]"], additionalProperties: false }),
      having(
        {},
        {
          required: ["f[id]"],
          additionalProperties: false,
          patternProperties: { "^f\\[id\\]$": STRING },
        },
      ),
    ],
    [
      "gives the dependencies of draft-07 their two names",
      { ...NOTHING, ...DRAFT_7, dependencies: { a: ["b"], c: { required: ["d"] } } },
      { ...NOTHING, dependentRequired: { a: ["b"] }, dependentSchemas: { c: { required: ["d"] } } },
    ],
    [
      "leaves out what meant nothing in draft-07",
      { ...NOTHING, ...DRAFT_7, dependentRequired: { a: ["b"] }, unevaluatedProperties: false },
      NOTHING,
    ],
    [
      "adds no arguments to those that are said to be all, and asks for no others than before",
      having(STRING, { additionalProperties: false, anyOf: [{ properties: { b: STRING } }] }),
      having(STRING, { additionalProperties: false }),
    ],
    [
      "asks nothing of what is left over where alternatives at the root are left out",
      having({}, { anyOf: [{ properties: { y: {} } }], unevaluatedProperties: false }),
      object({ x: {}, y: {} }),
    ],
    [
      "leaves out references that start at a document within the document",
      having({ $id: "http://127.0.0.1/x", items: { $ref } }, { definitions }),
      having({ $id: "http://127.0.0.1/x", items: {} }, { definitions }),
    ],
    [
      "leaves out references to what is not in the place of a schema",
      having({ $ref: "#/x-types/a" }, { "x-types": { a: ARRAY } }),
      having({}, { "x-types": { a: ARRAY } }),
    ],
    [
      "follows references with characters that are written otherwise in them",
      having({ $ref: "#/$defs/a~1b~0%20" }, { $defs: { "a/b~ ": true } }),
      having({ $ref: "#/$defs/a~1b~0%20" }, { $defs: { "a/b~ ": {} } }),
    ],
    [
      "leaves a not out that refers to what has become wider",
      having({ not: { $ref: "#/$defs/a" } }, { $defs: { a: WRONG } }),
      having({}, { $defs: { a: {} } }),
    ],
    [
      "only leaves out which of the root's own arguments have to be there together",
      object({ a: STRING, b: STRING }, { anyOf: [{ required: ["a"] }, { required: ["b"] }] }),
      object({ a: STRING, b: STRING }),
    ],
  ];
  const parts: [string, unknown, unknown][] = [
    ["adds missing items, which OpenAI wants", ARRAY, { ...ARRAY, items: {} }],
    [
      "adds items to one of several types",
      { type: ["array", "null"] },
      { type: ["array", "null"], items: {} },
    ],
    ["adds the type that all values have", { enum: ["a", "b"] }, { enum: ["a", "b"], ...STRING }],
    ["adds the type that the value has", { const: 1 }, { const: 1, type: "integer" }],
    ["finds the type of numbers", { enum: [1, 2.5] }, { enum: [1, 2.5], type: "number" }],
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
      { ...ARRAY, items: [STRING], additionalItems: false },
      { ...ARRAY, prefixItems: [STRING], items: false },
    ],
    ["leaves out draft-03's required", { ...STRING, required: true }, STRING],
    ["leaves out a type that is none", { type: "any", title: "x" }, { title: "x" }],
    ["leaves out what is empty and may not be", { ...STRING, enum: [], anyOf: [] }, STRING],
    ["leaves out patterns that are none", { ...STRING, ...WRONG }, STRING],
    ["leaves out references to nothing", { $ref: "#/$defs/gone", title: "x" }, { title: "x" }],
    ["leaves out references that lead elsewhere", { $ref: "http://127.0.0.1/x" }, {}],
    ["leaves a not out that would become narrower", { not: WRONG }, {}],
    [
      "makes exactly one of several at least one if they become wider",
      { oneOf: [WRONG, { type: "null" }] },
      { anyOf: [{}, { type: "null" }] },
    ],
    ["leaves out items that begin nobody knows where", { prefixItems: "none", items: STRING }, {}],
    ["leaves out items that are said in two ways", { prefixItems: [{}], items: [{}] }, {}],
    ["leaves out dependencies on which readers differ", { dependencies: { a: ["b"] } }, {}],
    ["leaves a not out that has such", { not: { dependencies: { a: ["b"] } } }, {}],
    [
      "does not take what is only defined for a part",
      { $defs: { a: WRONG }, unevaluatedProperties: false },
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
      { ...ARRAY, contains: WRONG, maxContains: 1, items: {} },
      { ...ARRAY, contains: {}, items: {} },
    ],
    // oxlint-disable-next-line unicorn/no-thenable -- a keyword of schemas
    ["leaves out wider conditions", { if: { minimum: "1" }, then: STRING, else: ARRAY }, {}],
    [
      "leaves out what is said of the others where it cannot be said which these are",
      { type: "object", properties: null, additionalProperties: false },
      { type: "object" },
    ],
  ];
  const inParts = parts.map(([what, ...both]) => [what, ...both.map((x) => having(x))] as const);
  for (const [what, before, after] of [...roots, ...inParts]) {
    it(what, () => assert.deepEqual(repaired(before), after));
  }

  it("cuts references in a circle after one turn, and keeps the type", () => {
    const node = object({ next: { $ref: "#/$defs/node" } });
    const cut = object({ next: { type: "object" } });
    const around = ($defs: object): object => having({ $ref: "#/$defs/node" }, { $defs });
    assert.deepEqual(repaired(around({ node })), around({ node: cut }));
    assert.deepEqual(repaired(having({ $ref: "#" })), having({ type: "object" }));
    const result = repair({ properties: { x: { $ref: "#" } } }, "arguments");
    assert.match(result.kind === "repaired" ? result.done : "", /^cyclic references left out/);
  });

  it("cuts references in a circle of two", () => {
    const list = (name: string): object => ({ ...ARRAY, items: { $ref: `#/$defs/${name}` } });
    const around = (b: object): object =>
      having({ $ref: "#/$defs/a" }, { $defs: { a: list("b"), b } });
    const cut = { ...ARRAY, items: { ...ARRAY, items: {} } };
    assert.deepEqual(repaired(around(list("a"))), around(cut));
  });

  it("makes alternatives at the root arguments, of which only the common ones have to be there", () => {
    const [a, b] = ["a", "b"].map((kind) => ({ const: kind, ...STRING }));
    const x = { ...STRING, description: "an x" };
    const anyOf = [
      object({ kind: a, x }, { required: ["kind", "x"] }),
      object({ kind: b }, { required: ["kind"] }),
    ];
    const result = repair({ anyOf }, "arguments");
    assert.ok(result.kind === "repaired");
    assert.deepEqual(
      result.schema,
      object({ kind: { anyOf: [a, b] }, x: { description: "an x" } }, { required: ["kind"] }),
    );
    assert.match(result.text, /^The arguments also have to match this JSON Schema: \{"anyOf":\[/);
  });

  it("keeps the types of arguments that no alternative leaves free", () => {
    const shape = (name: string): object =>
      object({ [name]: STRING }, { required: [name], additionalProperties: false });
    assert.deepEqual(
      repaired({ oneOf: [shape("a"), shape("b"), { type: "null" }] }),
      object({ a: STRING, b: STRING }),
    );
  });

  it("loses nothing of parts that all hold, and has nothing to tell of them", () => {
    const allOf = [{ $ref: "#/$defs/a" }, { properties: { b: ARRAY }, required: ["b"] }];
    const $defs = { a: object({ a: STRING }, { required: ["a"] }) };
    const result = repair({ type: "object", allOf, $defs }, "arguments");
    assert.ok(result.kind === "repaired");
    const { properties, required } = result.schema;
    assert.deepEqual(properties, { a: STRING, b: { ...ARRAY, items: {} } });
    assert.deepEqual(required, ["a", "b"]);
    assert.equal(result.text, "");
  });

  it("keeps what is called like a member of every object", () => {
    const text = '{"properties":{"__proto__":{"type":"array"},"constructor":true}}';
    assert.equal(
      JSON.stringify(repaired(JSON.parse(text))),
      '{"properties":{"__proto__":{"type":"array","items":{}},"constructor":{}},"type":"object"}',
    );
  });
});

describe("a schema of which nothing can be made", () => {
  const none = /no arguments/;
  const table: [string, unknown, RegExp][] = [
    ["accepts nothing", false, /accepts nothing/],
    ["is a text", "object", /no schema/],
    ["is a list", [], /no schema/],
    ["is a string's", STRING, /not the schema of an object/],
    ["is a list's", { ...ARRAY, items: {} }, /not the schema of an object/],
    ["is one of values that are no objects", { enum: ["a"] }, /not the schema of an object/],
    ["has only alternatives that are no objects", { anyOf: [STRING, { type: "null" }] }, none],
    ["has a part that no object matches", { allOf: [{ type: "object" }, STRING] }, none],
  ];
  for (const [what, schema, fault] of table) {
    it(`is one that ${what}`, () => assertFault(schema, fault));
  }

  it("is one that is nested 10,000 deep, which takes no time", () => {
    let deep: object = STRING;
    for (let i = 0; i < 10_000; i++) deep = { ...ARRAY, items: deep };
    within(5000, () => assertFault(having(deep), /nested more than 200 deep/));
  });

  it("is one with too many parts, which takes no time", () => {
    const properties = many(110_000, (i) => [`p${i}`, { ...ARRAY }]);
    within(5000, () => assertFault(object(properties), /more than 200000 parts/));
  });

  it("is one whose references would unfold to 2^50 schemas, which takes no time", () => {
    const $defs = many(51, (i) => {
      const each = { $ref: `#/$defs/d${i - 1}` };
      return [`d${i}`, i === 0 ? STRING : object({ a: each, b: each })];
    });
    const schema = having({ $ref: "#/$defs/d50" }, { $defs });
    within(5000, () => assertFault(structuredClone(schema), /more than 100000 schemas/));
  });
});

describe("a big schema", () => {
  it("of 3 MB is repaired in no time", () => {
    const long = { ...ARRAY, description: "x".repeat(1000) };
    const schema = object(many(3000, (i) => [`p${i}`, { ...long }]));
    within(5000, () => {
      const { properties } = repaired(schema) as { properties: Record<string, object> };
      assert.deepEqual(properties["p2999"], { ...long, items: {} });
    });
  });

  it("with a chain of 20,000 references is read without a deep stack", () => {
    const $defs = many(20_001, (i) => [`d${i}`, i === 0 ? ARRAY : { $ref: `#/$defs/d${i - 1}` }]);
    within(5000, () => repaired(having({ $ref: "#/$defs/d20000" }, { $defs })));
  });

  it("with arguments of strange names of any length is moved in no time", () => {
    const properties = many(2000, (i) => [`${"[(".repeat(100)}${i}`, {}]);
    within(5000, () => repaired(object(properties)));
  });
});

function many(count: number, entry: (i: number) => [string, object]): Record<string, object> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => entry(i)));
}

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
  const hopeless: Tool = { name: "hopeless", inputSchema: STRING };

  it("returns the very same tools where there is nothing to do, and says nothing", async () => {
    const { list, lines } = await setUp();
    assert.equal(list(fine)[0], fine);
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
    for (const outputSchema of [null, false, ARRAY, {}, { anyOf: [{ type: "object" }] }]) {
      assert.deepEqual(list({ ...fine, outputSchema }), [{ name: "fine", inputSchema: NOTHING }]);
    }
    assert.match(lines()[0]!, /its outputSchema was left out: it is no schema/);
    const shown = list({ ...fine, outputSchema: { ...having(ARRAY), ...DRAFT_7 } });
    assert.deepEqual(shown, [{ ...fine, outputSchema: having(ARRAY) }]);
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
    list({ ...bad, inputSchema: having(ARRAY) });
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
    list({ ...fine, inputSchema: { ...NOTHING, ...DRAFT_7 } });
    list({ ...bad, inputSchema: { type: "object", ...DRAFT_7 } });
    list({ ...fine, outputSchema: { ...NOTHING, title: 1 } });
    assert.match(lines()[0]!, /^info .*: \$schema of an older draft left out\.$/);
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
    list({ name, inputSchema: object({ [name]: ARRAY }) });
    assert.equal(lines().length, 1);
    for (const odd of ["\n", "\u001b"]) assert.ok(!lines()[0]!.includes(odd));
    assert.ok(lines()[0]!.length < 500);
  });

  it("tells the model in the description what its schema can no longer say", async () => {
    const { list } = await setUp();
    const described = { name: "t", description: "Does it." };
    const inputSchema = having({}, { not: { required: ["y"] } });
    const [tool = assert.fail()] = list({ ...described, inputSchema });
    assert.equal(
      tool.description,
      'Does it.\n\nThe arguments also have to match this JSON Schema: {"not":{"required":["y"]}}',
    );
    assert.deepEqual(list(tool), [tool]);
    const long = having({}, { not: { required: ["y".repeat(2000)] } });
    const [short] = list({ ...described, inputSchema: long });
    assert.deepEqual(short, { ...described, inputSchema: having({}) });
    assert.match(list({ name: "t", inputSchema })[0]?.description ?? "", /^The arguments/);
  });
});

const FINE =
  '{"name":"fine","inputSchema":{ "type":"object","properties":{"n":{"maximum":1.0e2}} }}';
const BARE = '{"name":"bare"}';
const LOST = '{"name":"lost","inputSchema":{"type":"string"}}';
const CYCLE =
  '{"name":"cycle","inputSchema":{"type":"object","properties":{"node":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}}}}';

/** A hub with the plugin over a server with these tools, and an initialized client. */
async function open(...tools: string[]) {
  const web = Object.assign(new ScriptedServer(), { tools });
  const setup = await setUpPluginHub([{ plugin }], { web });
  await initialize(setup.client);
  return { ...setup, web };
}

function warnings(events: readonly HubEvent[]): string[] {
  return events.flatMap((event) =>
    event.kind === "log" && event.level === "warn" ? [event.text] : [],
  );
}

describe("in a hub, schemas", () => {
  it("are repaired where they have to be, and byte for byte the same where they are fine", async () => {
    const { client, hub } = await open(FINE, BARE, CYCLE);
    await sendRequest(client, "tools/list");
    const list = client.received.at(-1) ?? "";
    const fine = '"inputSchema":{ "type":"object","properties":{"n":{"maximum":1.0e2}} }';
    assert.ok(list.includes(fine));
    assert.match(list, /"name":"web__bare","inputSchema":\{"type":"object","properties":\{\}\}/);
    assert.ok(list.includes('{"n":{"type":"object","properties":{"next":{"type":"object"}}}}'));
    await hub.close();
  });

  it("that cannot be repaired hide their tool and no other, and the log names it once", async () => {
    const { client, hub, events, web } = await open(FINE, LOST);
    assert.deepEqual(await listToolNames(client), ["web__fine"]);
    web.tools = [FINE, LOST, BARE];
    web.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await client.find(({ method }) => method === "notifications/tools/list_changed");
    assert.deepEqual(await listToolNames(client), ["web__bare", "web__fine"]);
    for (const name of ["lost", "bare"]) {
      const lines = warnings(events).filter((line) => line.includes(`tool "${name}"`));
      assert.equal(lines.length, 1, lines.join("\n"));
    }
    await hub.close();
  });
});
