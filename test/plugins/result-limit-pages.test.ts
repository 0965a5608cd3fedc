import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { MIN_PAGE_SIZE, pageOf, paginate } from "../../plugins/result-limit/pages.ts";
import { memberOf, readSpelling, rewrite } from "../../src/plugin/plugin.ts";

const LIMIT = 300;

/** The elements of a JSON array, as written; none if it is no array. */
function readElements(json: string): string[] {
  const part = readSpelling(json);
  if (part?.kind !== "array") return [];
  return part.elements.map(({ start, end }) => json.slice(start, end));
}

function pages(text: string, limit = LIMIT): string[] {
  const bytes = Buffer.from(text);
  const ends = paginate(bytes, limit);
  return ends.map((_, i) => pageOf(bytes, ends, i + 1) ?? assert.fail());
}

/** Padding of letters, without a place to cut. */
const letters = (count: number): string => "x".repeat(count);

/** Pieces of text; only some are good places to cut. */
const piece = fc.oneof(
  fc.constantFrom("\n", "\n\n", "\r\n", "\r\n\r\n", "},", "],", ". ", "。", " ", ",", "\t"),
  fc.constantFrom("é", "e\u0301", "漢字", "👨‍👩‍👧‍👦", "🇩🇪", "\ud83d", "\ude00", "\u0000", "\ufeff"),
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.nat(400).map(letters),
  fc.nat(100).map((count) => "a\u0301".repeat(count)),
  fc.nat(60).map((count) => "🇩🇪".repeat(count)),
);
const anyText = fc.array(piece, { maxLength: 60, size: "max" }).map((pieces) => pieces.join(""));

describe("the pages of a text", () => {
  it("are the text when put together, none over the limit, and no character is cut", () => {
    const limits = fc.integer({ min: MIN_PAGE_SIZE, max: 700 });
    const holds = (text: string, limit: number): void => {
      const made = pages(text, limit);
      assert.equal(made.join(""), text.toWellFormed());
      for (const page of made) assert.ok(Buffer.byteLength(page) <= limit);
      assert.ok(made.length === 1 || made.every((page) => page !== ""));
    };
    fc.assert(fc.property(anyText, limits, holds), { numRuns: 1000 });
  });

  it("are few: half full at least, but for the last one", () => {
    fc.assert(
      fc.property(anyText, (text) => {
        for (const page of pages(text).slice(0, -1)) {
          assert.ok(Buffer.byteLength(page) >= LIMIT / 2);
        }
      }),
    );
  });

  it("are one page if the text is as long as a page, or empty", () => {
    assert.deepEqual(pages(letters(LIMIT)), [letters(LIMIT)]);
    assert.deepEqual(pages(""), [""]);
  });

  /** The expected end of the first page, and the text after it; in each text the better place comes first. */
  const places: [string, string][] = [
    ["a paragraph rather than a line", `${letters(240)}\n\n|${letters(20)}\n${letters(100)}`],
    ["a paragraph with CRLF", `${letters(240)}\r\n\r\n|${letters(20)}\r\n${letters(100)}`],
    [
      "the last line that fits",
      `${letters(100)}\n${letters(100)}\n|${letters(90)} ${letters(100)}`,
    ],
    [
      "a line rather than a paragraph far back",
      `${letters(160)}\n\n${letters(100)}\n|${letters(90)}`,
    ],
    ["an element of JSON", `[${letters(200)}},|{"a": "b. c", ${letters(100)}`],
    ["a sentence rather than a word", `${letters(200)}. |${letters(20)} ${letters(100)}`],
    ["a sentence of Chinese", `${"漢".repeat(60)}。|${"字".repeat(60)}`],
    ["a word", `${letters(200)} |${letters(200)}`],
    ["nothing better than a letter", `${letters(LIMIT)}|${letters(50)}`],
  ];
  for (const [what, text] of places) {
    it(`end with ${what}`, () => {
      assert.deepEqual(pages(text.replace("|", "")), text.split("|"));
    });
  }

  const clusters: [string, string][] = [
    ["a letter from its accent", "e\u0301"],
    ["a family", "👨‍👩‍👧‍👦"],
    ["a flag", "🇩🇪"],
    ["CR from LF", "\r\n"],
  ];
  for (const [what, cluster] of clusters) {
    it(`do not part ${what}`, () => {
      const size = Buffer.byteLength(cluster);
      for (let inside = 1; inside < size; inside++) {
        const before = letters(LIMIT - inside);
        const [first] = pages(before + cluster + letters(200));
        assert.equal(first, before);
      }
    });
  }

  it("part what is no character that anybody can read, and end", () => {
    const zalgo = `a${"\u0301".repeat(5000)}`;
    assert.equal(pages(zalgo).join(""), zalgo);
  });
});

describe("the parts of a JSON text", () => {
  const spaces = fc.constantFrom("", " ", "\n\t ", "\r\n");
  /** The text of an object, with whitespace and escapes, and its parsed value. */
  const objects = fc
    .dictionary(fc.string({ unit: "binary" }), fc.jsonValue(), { maxKeys: 8 })
    .chain((value) =>
      fc.record({
        json: fc.tuple(spaces, spaces, spaces).map(([a, b, c]) => {
          const members = Object.entries(value).map(
            ([key, inner]) =>
              `${a}${JSON.stringify(key)}${b}:${c}${JSON.stringify(inner, null, b)}${a}`,
          );
          return `${c}{${members.join(",") || a}}${b}`;
        }),
        key: fc.constantFrom("none", ...Object.keys(value)),
      }),
    );

  it("are found by their keys", () => {
    fc.assert(
      fc.property(objects, ({ json, key }) => {
        const value = JSON.parse(json) as Record<string, unknown>;
        const member = memberOf(json, key);
        if (!Object.hasOwn(value, key)) assert.equal(member, undefined);
        else assert.deepEqual(JSON.parse(member ?? assert.fail()), value[key]);
      }),
    );
  });

  it("are replaced and taken away, and nothing else changes", () => {
    fc.assert(
      fc.property(objects, ({ json, key }) => {
        const value = JSON.parse(json) as Record<string, unknown>;
        const others = Object.entries(value).filter(([other]) => other !== key);
        const entries = (text: string): unknown =>
          Object.entries(JSON.parse(text) as object).filter(([other]) => other !== key);
        assert.deepEqual(entries(rewrite(json, { [key]: undefined })), others);
        assert.equal(memberOf(rewrite(json, { [key]: undefined }), key), undefined);
        assert.deepEqual(entries(rewrite(json, { [key]: "[1.0]" })), others);
        assert.equal(memberOf(rewrite(json, { [key]: "[1.0]" }), key), "[1.0]");
      }),
    );
  });

  it("are the elements of an array, one by one", () => {
    fc.assert(
      fc.property(fc.array(fc.jsonValue()), spaces, (array, space) => {
        const json = `[${array.map((item) => space + JSON.stringify(item) + space).join(",") || space}]`;
        assert.deepEqual(
          readElements(json),
          array.map((item) => JSON.stringify(item)),
        );
      }),
    );
  });

  it("keep their spelling and their order", () => {
    const json = '{ "a" : 1.0, "b": 12345678901234567890 ,"c":"\\u00e9\\\\" }';
    assert.equal(rewrite(json, {}), '{"a":1.0,"b":12345678901234567890,"c":"\\u00e9\\\\"}');
    assert.equal(rewrite(json, { b: "2", d: "4" }), '{"a":1.0,"b":2,"c":"\\u00e9\\\\","d":4}');
  });

  it("that stand there twice are read and replaced as JSON.parse reads them", () => {
    const json = '{"a":1,"b":2,"\\u0061":3}';
    assert.equal(memberOf(json, "a"), "3");
    assert.deepEqual(JSON.parse(rewrite(json, { a: "4" })), { a: 4, b: 2 });
    assert.equal(rewrite(json, { a: undefined }), '{"b":2}');
  });
});
