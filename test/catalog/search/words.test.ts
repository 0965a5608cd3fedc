import assert from "node:assert/strict";
import { cpuUsage } from "node:process";
import { describe, it } from "node:test";
import { assert as check, property, string } from "fast-check";
import {
  isOneEdit,
  Likeness,
  likeness,
  porterStem,
  squash,
  trigramsOf,
  wordsOf,
} from "../../../src/catalog/search/words.ts";

/** The machine may be busy with other work. */
const TEST = { timeout: 120_000 };

describe("words of a text", () => {
  for (const [what, text, expected] of [
    ["are split at separators", "list_open-issues.by/label", "list open issu label"],
    ["are split at changes of case, and followed by the whole", "listIssues", "list issu listissu"],
    ["keep acronyms together", "parseHTTPResponse", "pars http respons parsehttprespons"],
    ["end an acronym at the next word", "URLParser", "url parser urlpars"],
    ["keep digits with the letters beside them", "EC2 s3 mp4 2024", "ec2 s3 mp4 2024"],
    ["of names of products are known with and without the space", "GitHub", "git hub github"],
    ["are no stop words", "please help me to use the files", "file"],
    ["lose their endings", "searching searches searched", "search search search"],
    ["of Chinese are pairs of characters", "搜索关键词", "搜索 索关 关键 键词"],
    ["of Japanese are pairs, of Latin letters in it words", "天気API", "天気 api"],
    ["of one such character are that character", "图 x", "图 x"],
    ["of Korean are pairs", "날씨예보", "날씨 씨예 예보"],
    ["lose their accents", "Café MÜNCHEN naïve", "cafe munchen naiv"],
    ["of other scripts are in lower case", "Поиск Файлов", "поиск файлов"],
    ["are no emoji", "🎵 music 👍🏽", "music"],
    ["are not made of punctuation", "… — «» 、。 !?", ""],
    ["may be those of objects of JavaScript", "__proto__ constructor", "proto constructor"],
  ] as const) {
    it(what, () => assert.equal(wordsOf(text).join(" "), expected));
  }

  it("are at most as many as asked for, of the beginning of the text", () => {
    assert.deepEqual(wordsOf("alpha beta gamma", { words: 2 }), ["alpha", "beta"]);
    assert.deepEqual(wordsOf("alpha beta gamma", { length: 7 }), ["alpha", "b"]);
  });

  it(
    "of a description of a megabyte are read in linear time, whatever it consists of",
    TEST,
    () => {
      const limits = { words: 200, length: 6000 };
      for (const unit of ["word ", "aB", "a", "-", "词", "é", "\u0301", "😀", "0", "Aa_"]) {
        const text = unit.repeat(1_000_000 / unit.length);
        const started = cpuUsage();
        wordsOf(text, limits);
        const { user } = cpuUsage(started);
        assert.ok(user < 1_000_000, `${JSON.stringify(unit)}: ${user} µs`);
      }
    },
  );

  it("are the same whatever was read before", TEST, () => {
    check(
      property(string({ unit: "binary", maxLength: 60 }), (text) => {
        const words = wordsOf(text);
        assert.deepEqual(wordsOf(text), words);
        assert.ok(words.every((word) => word !== "" && word.length <= 40));
      }),
    );
  });
});

describe("the stem", () => {
  // Examples of “An algorithm for suffix stripping”.
  for (const line of [
    "caresses caress, ponies poni, ties ti, caress caress, cats cat, feed feed, agreed agre",
    "plastered plaster, bled bled, motoring motor, sing sing, conflated conflat, troubled troubl",
    "sized size, hopping hop, tanned tan, falling fall, hissing hiss, fizzed fizz, failing fail",
    "filing file, happy happi, sky sky, relational relat, conditional condit, rational ration",
    "valenci valenc, digitizer digit, conformabli conform, radicalli radic, differentli differ",
    "vileli vile, analogousli analog, vietnamization vietnam, predication predic, operator oper",
    "feudalism feudal, decisiveness decis, hopefulness hope, callousness callous, formaliti formal",
    "sensitiviti sensit, sensibiliti sensibl, triplicate triplic, formative form, formalize formal",
    "electriciti electr, electrical electr, hopeful hope, goodness good, revival reviv",
    "allowance allow, inference infer, airliner airlin, gyroscopic gyroscop, adjustable adjust",
    "defensible defens, irritant irrit, replacement replac, adjustment adjust, dependent depend",
    "adoption adopt, homologou homolog, communism commun, activate activ, angulariti angular",
    "homologous homolog, effective effect, bowdlerize bowdler, probate probat, rate rate",
    "cease ceas, controll control, roll roll",
  ]) {
    for (const [word = "", stem] of line.split(", ").map((pair) => pair.split(" "))) {
      it(`of ${word} is ${stem}`, () => assert.equal(porterStem(word), stem));
    }
  }

  it("of what is no English word is the word", () => {
    for (const word of ["mp4s", "go", "éing", "файлов"]) assert.equal(porterStem(word), word);
  });
});

describe("names", () => {
  it("are the same apart from case and separators if they are so squashed", () => {
    for (const name of ["list_issues", "listIssues", "LIST-ISSUES", "list issues", "list.issues"])
      assert.equal(squash(name), "listissues");
    assert.equal(squash("__proto__"), "proto");
    assert.equal(squash("…"), "");
  });

  it("with one typing error are like the name", () => {
    for (const mistyped of ["serch", "searrch", "saerch", "sxarch"]) {
      assert.ok(isOneEdit("search", mistyped), mistyped);
      assert.ok(likeness("search", mistyped) > 0.8, mistyped);
    }
    for (const other of ["sreach2", "research", "sarech", "se"]) {
      assert.ok(!isOneEdit("search", other), other);
    }
  });

  it("have the same likeness whether one is compared or many are", TEST, () => {
    check(
      property(string({ maxLength: 12 }), string({ maxLength: 12 }), (one, other) => {
        const least = 0.5;
        const [expected, found] = [likeness(one, other), new Likeness(one).of(other, least)];
        assert.ok(found === expected || (expected < least && found < least));
        assert.equal(likeness(other, one), expected);
        assert.ok(expected >= 0 && expected <= 1);
      }),
    );
    assert.deepEqual([...trigramsOf("ab")], ["^ab", "ab$"]);
  });
});
