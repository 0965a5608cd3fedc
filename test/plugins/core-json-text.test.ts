import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { memberOf, type Part, readSpelling, rewrite } from "../../src/plugin/plugin.ts";
import { Choices, jsonText, mutated } from "../generate.ts";

const SEED = Number(process.env["TOOLMUX_TEST_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const RUNS = Math.min(Number(process.env["TOOLMUX_TEST_RUNS"] ?? 5000), 1_000_000);

describe("the spelling of a JSON text", () => {
  it("is read of texts that JSON.parse takes, and of no others", () => {
    const choices = Choices.random(SEED);
    let refused = 0;
    for (let run = 0; run < RUNS; run++) {
      const whole = jsonText(choices);
      for (const text of [whole, mutated(choices, whole)]) {
        const isJson = parse(text) !== undefined;
        if (!isJson) refused++;
        for (const levels of [0, 1, 3, Infinity]) {
          assert.equal(readSpelling(text, levels) !== undefined, isJson, `${SEED}: ${text}`);
        }
      }
    }
    assert.ok(refused > RUNS / 10, `only ${refused} were malformed`);
  });

  it("has all that the value has, each part where it stands", () => {
    const choices = Choices.random(SEED);
    for (let run = 0; run < RUNS; run++) {
      const text = jsonText(choices);
      for (const levels of [0, 1, 2, Infinity]) {
        const part = readSpelling(text, levels);
        if (part === undefined) continue;
        // Compared as text: some are nested too deep for deepEqual.
        const [found, whole] = [valueOf(part), JSON.parse(text) as unknown].map(write);
        assert.equal(found, whole, `${SEED}: ${text}`);
      }
    }
  });

  it("has characters of all kinds where JavaScript has them, lone halves included", () => {
    for (const odd of ["é", "日本", "😀", "\ud800", "Ģ", "\u0122\u015c\u027b\u027d"]) {
      const text = ` {"${odd}" : ["${odd}", 1.0], "b":"${odd}"} `;
      assert.equal(memberOf(text, odd), `["${odd}", 1.0]`);
      assert.equal(rewrite(text, { b: "2" }), `{"${odd}":["${odd}", 1.0],"b":2}`);
    }
  });

  it("is closed below the levels that are looked into", () => {
    const part = readSpelling('{"a":[{"b":1}],"c":2}', 2);
    assert.ok(part?.kind === "object");
    const [a, c] = part.members.map(({ value }) => value);
    assert.ok(a?.kind === "array");
    assert.deepEqual(
      [...a.elements, c].map((each) => each?.kind),
      ["closed", "scalar"],
    );
  });

  it("is read however deep a text is, and checked down there", () => {
    for (const depth of [499, 500, 501, 2047, 2048, 2049, 100_000]) {
      const inside = (inner: string): string =>
        `{"x":"]}","a":${"[".repeat(depth)}${inner}${"]".repeat(depth)},"b":1.0}`;
      for (const levels of [1, Infinity]) {
        assert.ok(readSpelling(inside('{"c":"]"}'), levels), `${depth}`);
        assert.equal(readSpelling(inside("1 2"), levels), undefined, `${depth}`);
      }
      assert.equal(memberOf(inside("1"), "b"), "1.0");
    }
  });

  it("takes no more than linear time for many deep values", () => {
    const deep = "[".repeat(3000) + "]".repeat(3000);
    const text = `[${Array.from({ length: 500 }, () => deep).join(",")}]`;
    const started = performance.now();
    const part = readSpelling(text);
    assert.ok(part?.kind === "array" && part.elements.length === 500);
    assert.ok(performance.now() - started < 2000);
  });
});

describe("a text that is no object", () => {
  it("has no members, and cannot be rewritten", () => {
    for (const text of ["[]", "1", '"a"', "null", "", "{", '{"a":1}}', '{"a":tru}']) {
      assert.equal(memberOf(text, "a"), undefined);
      assert.throws(() => rewrite(text, { a: "1" }), TypeError);
    }
  });
});

describe("a rewritten object", () => {
  it("has what was changed, and all else as it was spelled, also if it was a part of another", () => {
    const text = '{"o": {"n": 1.0, "\\u0061":[ 1 ],"z":0},"a":1}';
    assert.equal(rewrite(text, { a: undefined }), '{"o":{"n": 1.0, "\\u0061":[ 1 ],"z":0}}');
    const part = readSpelling(text, 2);
    const inner = part?.kind === "object" ? part.members[0]?.value : undefined;
    assert.equal(
      rewrite(inner ?? assert.fail(), { a: "2.0", z: undefined, new: "[]" }),
      '{"n":1.0,"\\u0061":2.0,"new":[]}',
    );
  });
});

function write(value: unknown): string {
  return JSON.stringify(value);
}

function parse(text: string): { value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

/** The value of a JSON text part, computed from its own parts where it has any. */
function valueOf(part: Part): unknown {
  switch (part.kind) {
    case "object": {
      const entries = part.members.map(({ key, name, value }) => {
        assert.equal(JSON.parse(name), key);
        return [key, valueOf(value)] as const;
      });
      return Object.fromEntries(entries);
    }
    case "array":
      return part.elements.map(valueOf);
    case "closed":
    case "scalar":
      return JSON.parse(part.source.slice(part.start, part.end));
  }
}
