import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { describeChoices, describeForms, formsOfSchema } from "../../src/cli/json-schema.ts";

const describe_ = (schema: object): string =>
  describeForms(formsOfSchema({ schema, root: schema }));

describe("the description of a schema", () => {
  it("lists few choices whole", () => {
    assert.equal(describe_({ enum: ["a", 1, null] }), 'one of "a", 1, null');
    assert.equal(describe_({ enum: ["a"] }), '"a"');
  });

  it("of very many or very long choices is short, and says how many there are", () => {
    const many = Array.from({ length: 200_000 }, (_, i) => `value ${i}`);
    for (const schema of [
      { enum: many },
      { type: "array", items: { enum: many } },
      { anyOf: many.map((value) => ({ const: value })) },
      { enum: many.map((value) => value.repeat(50)) },
    ]) {
      const text = describe_(schema);
      assert.ok(text.length < 12_000, String(text.length));
      assert.match(text, /200,000/);
    }
    assert.ok(describe_({ enum: ["x".repeat(1_000_000)] }).length < 1000);
    assert.match(describeChoices(many, ", ", String), /^value 0, .*\(200,000 values\)$/);
  });
});
