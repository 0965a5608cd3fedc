import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { assert as check, jsonValue, property, string } from "fast-check";
import {
  estimateTokens,
  firstSentence,
  signatureOf,
  splitSentence,
} from "../../../src/catalog/search/signature.ts";

/** The machine may be busy with other work. */
const TEST = { timeout: 60_000 };

const ofProperties = (properties: object, ...required: string[]): object => ({
  type: "object",
  properties,
  required,
});

describe("the signature of a tool", () => {
  for (const [what, schema, expected] of [
    ["without arguments is empty", { type: "object" }, "{}"],
    [
      "has the required arguments first",
      ofProperties({ a: { type: "number" }, b: { type: "string" } }, "b"),
      "{ b: string, a?: number }",
    ],
    [
      "has the values of enums",
      ofProperties({ state: { enum: ["open", "closed"] } }),
      '{ state?: "open"|"closed" }',
    ],
    ["has constants", ofProperties({ kind: { const: 5 } }, "kind"), "{ kind: 5 }"],
    [
      "has arrays",
      ofProperties({ a: { type: "array", items: { type: "string" } }, b: { type: "array" } }),
      "{ a?: string[], b?: any[] }",
    ],
    [
      "has arrays of variants",
      ofProperties({ a: { type: "array", items: { enum: [1, 2] } } }),
      "{ a?: (1|2)[] }",
    ],
    ["has several types", ofProperties({ a: { type: ["string", "null"] } }), "{ a?: string|null }"],
    [
      "has each variant once",
      ofProperties({ a: { anyOf: [{ type: "string" }, { type: "string" }, { type: "integer" }] } }),
      "{ a?: string|int }",
    ],
    [
      "has nested objects",
      ofProperties({ a: ofProperties({ b: { type: "boolean" } }, "b") }),
      "{ a?: { b: boolean } }",
    ],
    [
      "quotes names that are no identifiers",
      ofProperties({ "a-b": { type: "string" } }),
      '{ "a-b"?: string }',
    ],
    [
      "has any for what is not known",
      ofProperties({ a: {}, b: true, c: { $ref: "#/x" }, d: { type: "a b" } }),
      "{ a?: any, b?: any, c?: any, d?: any }",
    ],
    ["of what is no schema is empty", "none", "{}"],
    [
      "reads members of every object's prototype as names",
      ofProperties(
        JSON.parse('{"__proto__":{"type":"string"},"constructor":{"type":"number"}}') as object,
      ),
      "{ __proto__?: string, constructor?: number }",
    ],
  ] as const) {
    it(what, () => assert.equal(signatureOf(schema), expected));
  }

  it("is at most 400 characters long, and has … where it was cut", () => {
    const many = Object.fromEntries(
      Array.from({ length: 60 }, (_, at) => [`argument_${at}`, { type: "string" }]),
    );
    const values = Array.from({ length: 100 }, (_, at) => `value ${at}`);
    for (const schema of [
      ofProperties(many),
      ofProperties({ a: { enum: values } }),
      ofProperties({ ["x".repeat(500)]: { type: "string" } }),
      ofProperties({ a: ofProperties(many), b: ofProperties(many) }),
    ]) {
      const signature = signatureOf(schema);
      assert.ok(signature.length <= 400 && signature.includes("…"), signature);
      assert.match(signature, /^\{.*\}$/s);
    }
  });

  it("is made as fast of schemas with many types and variants", TEST, () => {
    const object = ofProperties({ a: ofProperties({ b: { type: "string" } }) });
    let nested: object = object;
    for (let i = 0; i < 6; i++) nested = { anyOf: Array.from({ length: 2000 }, () => nested) };
    const types = Array.from({ length: 100_000 }, (_, at) => (at % 2 === 0 ? "object" : `t${at}`));
    for (const type of [nested, { ...object, type: types }]) {
      assert.ok(signatureOf(ofProperties({ a: type })).length <= 400);
    }
  });

  it("is made of any JSON", () => {
    check(
      property(jsonValue(), jsonValue(), (value, other) => {
        for (const schema of [value, ofProperties({ a: value, b: other }), { properties: value }])
          assert.ok(signatureOf(schema).length <= 400);
      }),
    );
  });
});

describe("the first sentence of a description", () => {
  for (const [text, expected] of [
    ["Reads a file. Then closes it.", "Reads a file."],
    ["Reads a file, e.g. a text. Closes it.", "Reads a file, e.g. a text."],
    ["Version 1.2 of it! More.", "Version 1.2 of it!"],
    ["\n  A line\nwithout a stop", "A line"],
    ["读取文件。然后关闭。", "读取文件。"],
    ["No stop", "No stop"],
    ["", ""],
  ] as const) {
    it(`of ${JSON.stringify(text)} is ${JSON.stringify(expected)}`, () => {
      assert.equal(firstSentence(text), expected);
    });
  }

  it("is cut after a word, to at most 200 characters", () => {
    const sentence = firstSentence("long words ".repeat(100));
    assert.ok(sentence.length <= 200 && sentence.endsWith("words…"), sentence);
    assert.ok(firstSentence("x".repeat(1_000_000)).length <= 200);
    assert.ok(firstSentence("😀".repeat(200)).isWellFormed());
  });

  it("and the rest are the whole description", () => {
    check(
      property(string({ unit: "binary" }), (text) => {
        const { sentence, rest } = splitSentence(text);
        assert.equal(sentence + rest, text.trimStart());
      }),
    );
  });
});

it("tokens are estimated as a quarter of the bytes", () => {
  assert.deepEqual([0, 1, 4, 5, 400].map(estimateTokens), [0, 1, 1, 2, 100]);
});
