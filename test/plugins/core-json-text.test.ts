import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { memberOf, type Part, readSpelling, rewrite } from "../../src/plugin/plugin.ts";
import { Choices, jsonText, mutated } from "../generate.ts";

const SEED = Number(process.env["TOOLMUX_TEST_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const RUNS = Math.min(Number(process.env["TOOLMUX_TEST_RUNS"] ?? 600), 1_000_000);

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
    assert.equal([...a.elements, c].map((each) => each?.kind).join(), "closed,scalar");
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
    const text = `[${Array.from({ length: 200 }, () => deep).join(",")}]`;
    const started = performance.now();
    const part = readSpelling(text);
    assert.ok(part?.kind === "array" && part.elements.length === 200);
    assert.ok(performance.now() - started < 5000);
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
    assert.equal(rewrite('{ "a" : 1.0 ,"c":"\\u00e9\\\\" }', {}), '{"a":1.0,"c":"\\u00e9\\\\"}');
    const part = readSpelling(text, 2);
    const inner = part?.kind === "object" ? part.members[0]?.value : undefined;
    assert.equal(
      rewrite(inner ?? assert.fail(), { a: "2.0", z: undefined, new: "[]" }),
      '{"n":1.0,"\\u0061":2.0,"new":[]}',
    );
  });

  it("has each member as JSON.parse has it, replaced or taken away, and nothing else changes", () => {
    const choices = Choices.random(SEED);
    let objects = 0;
    for (let run = 0; run < RUNS; run++) {
      const text = jsonText(choices);
      const value = JSON.parse(text) as Record<string, unknown>;
      if (typeof value !== "object" || value === null || Array.isArray(value)) continue;
      objects++;
      for (const key of ["none", ...Object.keys(value)]) {
        const others = (json: string): string =>
          write(Object.entries(JSON.parse(json) as object).filter(([other]) => other !== key));
        const member = memberOf(text, key);
        if (!Object.hasOwn(value, key)) assert.equal(member, undefined);
        else assert.equal(write(JSON.parse(member ?? assert.fail())), write(value[key]));
        const [gone, changed] = [undefined, "[1.0]"].map((to) => rewrite(text, { [key]: to }));
        assert.equal(others(gone ?? ""), others(text), `${SEED}: ${text}`);
        assert.equal(memberOf(gone ?? "", key), undefined);
        assert.equal(others(changed ?? ""), others(text), `${SEED}: ${text}`);
        assert.equal(memberOf(changed ?? "", key), "[1.0]");
      }
    }
    assert.ok(objects > RUNS / 20, `only ${objects} were objects`);
  });

  it("has what stands there twice as JSON.parse reads it", () => {
    const json = '{"a":1,"b":2,"\\u0061":3}';
    assert.equal(memberOf(json, "a"), "3");
    assert.deepEqual(JSON.parse(rewrite(json, { a: "4" })), { a: 4, b: 2 });
    assert.equal(rewrite(json, { a: undefined }), '{"b":2}');
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
