import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { cachedTextOf, joinPieces } from "../../src/base/bytes.ts";

describe("pieces", () => {
  it("write integers in decimal digits, on both sides of 32 bits", () => {
    const integer = fc.oneof(
      fc.maxSafeNat(),
      fc.nat(),
      fc.constantFrom(0, 9, 10, 99, 2 ** 31 - 1, 2 ** 31, 2 ** 32, Number.MAX_SAFE_INTEGER),
    );
    fc.assert(
      fc.property(fc.array(integer), (integers) => {
        const pieces = integers.flatMap((each) => [each, ","]);
        const text = integers.map((each) => `${each},`).join("");
        assert.equal(joinPieces(pieces).toString(), text);
      }),
    );
  });
});

describe("cached texts", () => {
  it("are the same when they are asked for again, whatever they are", () => {
    const text = fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.constantFrom("", "0", "__proto__", "constructor", "toString", "é", "name"),
    );
    fc.assert(
      fc.property(text, (each) => {
        const bytes = Buffer.from(each);
        for (const _ of ["first", "again"]) {
          assert.equal(cachedTextOf(bytes, 0, bytes.length), each);
        }
      }),
    );
  });
});
