import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { MIN_PAGE_SIZE, pageOf, paginate } from "../../plugins/result-limit/pages.ts";

const LIMIT = 300;

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
    fc.assert(fc.property(anyText, limits, holds), { numRuns: 250 });
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
    ["the last line that fits", `${letters(100)}\n${letters(100)}\n|${letters(90)} ${letters(99)}`],
    ["a line, not a paragraph far back", `${letters(160)}\n\n${letters(100)}\n|${letters(90)}`],
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

  const clusters = {
    "a letter from its accent": "e\u0301",
    "a family": "👨‍👩‍👧‍👦",
    "a flag": "🇩🇪",
    "CR from LF": "\r\n",
  };
  for (const [what, cluster] of Object.entries(clusters)) {
    it(`do not part ${what}`, () => {
      const size = Buffer.byteLength(cluster);
      for (let inside = 1; inside < size; inside++) {
        const before = letters(LIMIT - inside);
        assert.equal(pages(before + cluster + letters(200))[0], before);
      }
    });
  }

  it("part what is no character that anybody can read, and end", () => {
    const zalgo = `a${"\u0301".repeat(5000)}`;
    assert.equal(pages(zalgo).join(""), zalgo);
  });
});
