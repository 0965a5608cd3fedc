import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { type ListedItem, readItem } from "../../src/catalog/listing.ts";
import {
  decodeHeaderText,
  encodeHeaderText,
  headerAnnotationErrorOf,
  paramHeaders,
} from "../../src/protocol/param-headers.ts";

function toolOf(inputSchema: object): ListedItem {
  const item = readItem(Buffer.from(JSON.stringify({ name: "x", inputSchema })), "tools");
  assert.ok(item);
  return item;
}

const NAMED = { type: "string", "x-mcp-header": "A" };

describe("the headers that repeat arguments", () => {
  it("are those that the schema names, also further in", () => {
    const tool = toolOf({
      properties: {
        a: NAMED,
        n: { type: "integer", "x-mcp-header": "N" },
        o: { type: "object", properties: { b: { type: "boolean", "x-mcp-header": "B" } } },
        c: { type: "string" },
      },
    });
    assert.deepEqual(paramHeaders(tool, { a: "1", n: 42, o: { b: false }, c: "no" }), {
      "Mcp-Param-A": "1",
      "Mcp-Param-N": "42",
      "Mcp-Param-B": "false",
    });
  });

  it("leave out what is not there, or null", () => {
    const tool = toolOf({ properties: { a: NAMED } });
    for (const args of [{}, { a: null }, undefined, null, 1, { a: {} }]) {
      assert.deepEqual(paramHeaders(tool, args), {});
    }
  });

  it("are none where the schema names none", () => {
    assert.equal(
      paramHeaders(toolOf({ properties: { a: { type: "string" } } }), { a: "1" }),
      undefined,
    );
    const named = toolOf({ properties: { "x-mcp-header": { type: "string" } } });
    assert.equal(headerAnnotationErrorOf(named), undefined);
    assert.equal(paramHeaders(named, { "x-mcp-header": "1" }), undefined);
  });

  const PLAIN = ["", "a", "a b", "!~", "=?base64?", "us west 1"];
  const CODED = [
    " a",
    "a ",
    "\ta",
    "a\r\nb",
    "Köln",
    "世界",
    "=?base64?YQ==?=",
    "\u007f",
    "a\u0000",
  ];
  for (const text of [...PLAIN, ...CODED]) {
    it(`say ${JSON.stringify(text)} so that it is read as what it is`, () => {
      const said = encodeHeaderText(text);
      assert.match(said, /^[\x20-\x7e]*$/);
      assert.equal(said.trim(), said);
      assert.equal(decodeHeaderText(said), text);
      assert.equal(said === text, PLAIN.includes(text));
    });
  }
});

describe("a tool is not to be called over HTTP", () => {
  const BAD: readonly (readonly [string, object, RegExp])[] = [
    ["an empty name", { a: { type: "string", "x-mcp-header": "" } }, /cannot be a part/],
    ["a name that is no text", { a: { type: "string", "x-mcp-header": 1 } }, /cannot be a part/],
    ["a space in a name", { a: { type: "string", "x-mcp-header": "A B" } }, /cannot be a part/],
    ["a number", { a: { type: "number", "x-mcp-header": "A" } }, /on a string, integer or boolean/],
    ["an object", { a: { type: "object", "x-mcp-header": "A" } }, /on a string/],
    ["several types", { a: { type: ["string", "null"], "x-mcp-header": "A" } }, /on a string/],
    ["no type", { a: { "x-mcp-header": "A" } }, /on a string/],
    ["two of one name", { a: NAMED, b: { type: "string", "x-mcp-header": "a" } }, /more than one/],
    ["one among items", { a: { type: "array", items: NAMED } }, /not on an argument/],
    ["one of several", { a: { anyOf: [NAMED, { type: "null" }] } }, /not on an argument/],
  ];
  for (const [what, properties, why] of BAD) {
    it(`whose schema has ${what}`, () =>
      assert.match(headerAnnotationErrorOf(toolOf({ properties })) ?? "", why));
  }

  it("whose schema has one in a definition, or at its root", () => {
    assert.match(
      headerAnnotationErrorOf(toolOf({ $defs: { a: NAMED } })) ?? "",
      /not on an argument/,
    );
    assert.match(headerAnnotationErrorOf(toolOf({ ...NAMED })) ?? "", /not on an argument/);
  });

  it("but may be if it only looks so where values stand", () => {
    const properties = { a: { type: "object", default: { "x-mcp-header": 1 } } };
    assert.equal(headerAnnotationErrorOf(toolOf({ properties, examples: [NAMED] })), undefined);
  });
});
