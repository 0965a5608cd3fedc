import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  capabilityClassOf,
  containsCapabilityClass,
  readCapabilities,
  sizeOfCapabilityClass,
} from "../../src/protocol/capabilities.ts";

const classOf = (declared: object, ...extensions: string[]): string =>
  capabilityClassOf(readCapabilities(declared), extensions);

describe("a class of capabilities", () => {
  const URL_FORM = { elicitation: { form: {}, url: {} } };
  for (const [whole, part, expected] of [
    [classOf({}), classOf({}), true],
    [classOf({ roots: {} }), classOf({}), true],
    [classOf({}), classOf({ roots: {} }), false],
    [classOf({ roots: {} }), classOf({ roots: { listChanged: true } }), false],
    [classOf({ roots: { listChanged: true } }), classOf({ roots: {} }), true],
    [classOf(URL_FORM), classOf({ elicitation: {} }), true],
    [classOf({ elicitation: { url: {} } }), classOf({ elicitation: {} }), false],
    [classOf({ sampling: { tools: {} } }), classOf({ sampling: { context: {} } }), false],
    [classOf({ roots: {}, ...URL_FORM }), classOf({ sampling: {}, roots: {} }), false],
    [classOf({}, "a", "b"), classOf({}, "b"), true],
    [classOf({}, "a"), classOf({}, "a", "b"), false],
  ] as const) {
    it(`${whole || "of nothing"} ${expected ? "contains" : "does not contain"} ${part || "nothing"}`, () => {
      assert.equal(containsCapabilityClass(whole, part), expected);
    });
  }

  it("is the larger, the more can be asked for", () => {
    const sizes = [
      classOf({}),
      classOf({ roots: {} }),
      classOf({ elicitation: {} }),
      classOf(URL_FORM),
      classOf(URL_FORM, "a"),
    ].map(sizeOfCapabilityClass);
    assert.deepEqual(
      sizes,
      sizes.toSorted((a, b) => a - b),
    );
    assert.equal(new Set(sizes).size, sizes.length);
  });
});
