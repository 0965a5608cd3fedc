import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { applyEdits, joinPieces, startsWithAt, textOf, utf8 } from "../../src/base/bytes.ts";
import {
  lastMember,
  parseRange,
  readString,
  scanArray,
  scanObject,
  skipString,
  skipValue,
  skipWhitespace,
} from "../../src/base/json.ts";
import { Choices, jsonText, mutated, nested } from "../generate.ts";

const SEED = Number(process.env["TOOLMUX_TEST_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const RUNS = 5_000;

/** Well-formed texts, and what is easily taken for one. JSON.parse is the judge. */
const TEXTS: readonly string[] = [
  // Numbers
  ..."0 -0 1 -1 10 01 -01 00 +1 - -- .5 5. 5.e1 1.0 1.50 0.0 0.10 1e3 1E3 1e+3 1e-3 1e 1e+ 1e-".split(
    " ",
  ),
  ..."1.e3 1.0e3 1.0E+03 -1.5e-7 1234567890123456789 1e400 -1e400 0x10 1_000 1n NaN Infinity".split(
    " ",
  ),
  ..."-Infinity 1.2.3 1e3.5 1-2 ٣ １".split(" "),
  // Words
  ..."true false null True FALSE nul nulll truefalse undefined t f n tru".split(" "),
  // Strings
  '""',
  '"a"',
  '"é日本😀"',
  '"\uFEFF"',
  '"\u2028\u2029\u007f\u00a0"',
  '"\\"\\\\\\/\\b\\f\\n\\r\\t"',
  '"\\u0041\\u00e9\\uD83D\\uDE00\\ud800\\uDFFF\\u0000"',
  '"\\u00"',
  '"\\u004g"',
  '"\\u00 1"',
  '"\\u"',
  '"\\U0041"',
  '"\\x41"',
  '"\\a"',
  '"\\\'"',
  '"\\',
  '"\\"',
  '"\\\\"',
  '"\\\\\\"',
  '"',
  '"a',
  "'a'",
  '"a\nb"',
  '"a\rb"',
  '"a\tb"',
  '"a\0b"',
  '"a\u001fb"',
  '"a""b"',
  // White space
  "",
  " ",
  " \t\r\n1\n\r\t ",
  "\u00a01",
  "\v1",
  "\f1",
  "1\0",
  "\uFEFF1",
  "\u20281",
  "/**/1",
  "1//",
  // Arrays
  "[]",
  "[ ]",
  "[\r\n]",
  "[1]",
  "[1,2]",
  "[ 1 , 2 ]",
  "[,]",
  "[1,]",
  "[,1]",
  "[1,,2]",
  "[1 2]",
  "[1",
  "[",
  "]",
  "[1}",
  "[1]]",
  "[[]]",
  "[[],[[]]]",
  '["a":1]',
  "[1][2]",
  // Objects
  "{}",
  "{ }",
  '{"a":1}',
  '{"a" : 1 , "b" : 2}',
  '{"a":1,}',
  '{,"a":1}',
  '{"a"}',
  '{"a":}',
  '{"a",1}',
  '{"a" 1}',
  '{"a"::1}',
  "{a:1}",
  "{1:1}",
  "{null:1}",
  '{"a":1 "b":2}',
  '{"a":1;"b":2}',
  '{"a":1',
  '{"a":',
  '{"a',
  "{",
  "}",
  '{"a":1]',
  '{"a":1}}',
  '{"a":1}{"a":1}',
  '{"a":1,"a":2}',
  '{"\\u0061":1}',
  '{"\\q":1}',
  '{"":{"":[{"":""}]}}',
];

describe("the scanner", () => {
  for (const text of TEXTS) {
    const verdict = parses(text) ? "accepts" : "refuses";
    it(`${verdict} ${JSON.stringify(text)}, as JSON.parse does`, () => check(text));
  }

  const name = `agrees with JSON.parse on ${RUNS} texts, whole and broken (seed ${SEED})`;
  it(name, { timeout: 60_000 }, () => {
    for (let i = 0; i < RUNS; i++) {
      const choices = Choices.random(SEED + i);
      const text = jsonText(choices);
      const tried = choices.once(2) ? mutated(choices, text) : text;
      try {
        check(tried);
      } catch (error) {
        assert.fail(`TOOLMUX_TEST_SEED=${SEED + i}, ${JSON.stringify(tried)}: ${String(error)}`);
      }
    }
  });

  it("sees every byte of a long string for what it is, wherever it stands and whatever stands beside it", () => {
    const length = 72;
    for (let byte = 0; byte < 256; byte++) {
      for (const beside of [0x20, 0x61, 0x7f, 0x80, 0xff]) {
        for (let place = 0; place < 4 * length; place++) {
          const lead = place % 4;
          const at = place >> 2;
          const memory = new Uint8Array(lead + length + 6).fill(beside);
          memory[lead] = memory[lead + length + 1] = 0x22;
          memory[lead + 1 + at] = byte;
          // No escape is spelled with any of those beside it, and an escaped quote ends nothing.
          const whole = byte < 0x20 || byte === 0x5c ? -1 : length + 2;
          const expected = byte === 0x22 ? at + 2 : whole;
          const found = skipString(memory.subarray(lead), 0);
          if (found !== expected)
            assert.fail(`${found}: ${byte} at ${at} of ${lead}, by ${beside}`);
        }
      }
    }
  });

  it("takes bytes that are no UTF-8 for U+FFFD, wherever they cut a string", () => {
    for (const cut of [1, 2, 3]) {
      const bytes = utf8('{"a😀":"b😀"}');
      const key = bytes.indexOf(0xf0);
      const broken = new Uint8Array([...bytes.subarray(0, key + cut), ...bytes.subarray(key + 4)]);
      const members = scanObject(broken, 0)?.items ?? [];
      assert.deepEqual(
        members.map((member) => member.key),
        ["a\uFFFD"],
      );
      assert.deepEqual(JSON.parse(textOf(broken)), { "a\uFFFD": "b😀" });
    }
  });

  it("accepts nesting of 2048 and refuses one more, also after it refused", () => {
    for (const [open, close] of [
      ["[", "]"],
      ['{"a":', "}"],
      ['[{"a":', "}]"],
    ] as const) {
      const levels = open.startsWith("[{") ? 2 : 1;
      const text = (depth: number): string =>
        open.repeat(depth / levels) + "1" + close.repeat(depth / levels);
      assert.equal(skipValue(utf8(text(2048)), 0), text(2048).length);
      assert.equal(skipValue(utf8(text(2048 + levels)), 0), -1);
      assert.equal(skipValue(utf8(text(100_000)), 0), -1);
      assert.equal(skipValue(utf8("[".repeat(100_000)), 0), -1);
      assert.equal(skipValue(utf8(text(2048)), 0), text(2048).length);
    }
    assert.equal(scanObject(utf8(`{"a":${nested(3000)}}`), 0), undefined);
    assert.equal(scanArray(utf8(`[${nested(3000)}]`), 0), undefined);
  });

  it("refuses to record more than 100,000 members or elements, and skips over any number of them", () => {
    const array = (n: number): Uint8Array => utf8(`[${"0,".repeat(n - 1)}0]`);
    const object = (n: number): Uint8Array => utf8(`{${'"":0,'.repeat(n - 1)}"":0}`);
    assert.equal(scanArray(array(100_000), 0)?.items.length, 100_000);
    assert.equal(scanArray(array(100_001), 0), undefined);
    assert.equal(scanObject(object(100_000), 0)?.items.length, 100_000);
    assert.equal(scanObject(object(100_001), 0), undefined);
    assert.equal(skipValue(array(100_001), 0), array(100_001).length);
    assert.equal(skipValue(object(100_001), 0), object(100_001).length);
  });

  it("scans from where it is told, and gives ranges of the whole", () => {
    const bytes = utf8('xx{"a":[1, 22 ]}yy');
    const object = scanObject(bytes, 2);
    assert.deepEqual(object, { items: [{ key: "a", start: 7, end: 15 }], end: 16 });
    assert.deepEqual(scanArray(bytes, 7), {
      items: [
        { start: 8, end: 9 },
        { start: 11, end: 13 },
      ],
      end: 15,
    });
    assert.equal(scanObject(bytes, 7), undefined);
    assert.equal(scanArray(bytes, 2), undefined);
    assert.equal(scanObject(bytes, 99), undefined);
    assert.equal(skipValue(bytes, 99), -1);
    assert.equal(skipWhitespace(bytes, 99), 99);
  });
});

describe("a key", () => {
  const cases: readonly (readonly [spelling: string, key: string])[] = [
    ["id", "id"],
    ["\\u0069d", "id"],
    ["i\\u0064", "id"],
    ["\\u006D\\u0065\\u0074\\u0068\\u006f\\u0064", "method"],
    ["method", "method"],
    ["progressToken", "progressToken"],
    ["ie", "ie"],
    ["ID", "ID"],
    ["resulT", "resulT"],
    ["", ""],
    ["__proto__", "__proto__"],
    ["constructor", "constructor"],
    ["\uFEFFid", "\uFEFFid"],
    ["\\uFEFFid", "\uFEFFid"],
    ['a\\/b\\\\c\\"d\\n', 'a/b\\c"d\n'],
    ["\\u0000", "\0"],
    ["é日本😀", "é日本😀"],
    ["\\ud83d\\ude00", "😀"],
    ["\\ud83d", "\ud83d"],
    ["\u2028", "\u2028"],
  ];
  for (const [spelling, key] of cases) {
    it(`that is spelled "${spelling}" is decoded as JSON.parse decodes it`, () => {
      const bytes = utf8(`{"${spelling}":1}`);
      assert.equal(scanObject(bytes, 0)?.items[0]?.key, key);
      assert.deepEqual(Object.keys(JSON.parse(textOf(bytes)) as object), [key]);
      assert.equal(
        readString(utf8(`"${spelling}"`), { start: 0, end: utf8(spelling).length + 2 }),
        key,
      );
    });
  }

  it("records those members only that are wanted, however their keys are spelled", () => {
    const bytes = utf8('{"b":1,"a":{"b":2},"\\u0062":3}');
    assert.deepEqual(scanObject(bytes, 0, ["b"])?.items, [
      { key: "b", start: 5, end: 6 },
      { key: "b", start: 28, end: 29 },
    ]);
    assert.deepEqual(scanObject(bytes, 0, ["c"])?.items, []);
    assert.equal(scanObject(utf8('{"b":1,"a":tru}'), 0, ["b"]), undefined);
  });

  it("that comes twice is listed twice, and its last member is what JSON.parse takes", () => {
    const bytes = utf8('{"id":1,"a":0,"\\u0069d":2,"id":3,"b":0}');
    const members = scanObject(bytes, 0)?.items ?? [];
    assert.deepEqual(
      members.map(({ key }) => key),
      ["id", "a", "id", "id", "b"],
    );
    const last = lastMember(members, "id");
    assert.equal(last && parseRange(bytes, last), 3);
    assert.equal(lastMember(members, "toString"), undefined);
    assert.equal(lastMember([], "id"), undefined);
  });
});

describe("stringOf", () => {
  it("gives nothing for a value that is no string", () => {
    for (const text of ["1", "null", "[]", '{"a":"b"}', '["a"]']) {
      assert.equal(readString(utf8(text), { start: 0, end: text.length }), undefined);
    }
    assert.equal(readString(utf8('"a"'), undefined), undefined);
  });
});

describe("applyEdits", () => {
  const edited = (text: string, ...edits: readonly [number, number, string][]): string =>
    joinPieces(
      applyEdits(
        utf8(text),
        edits.map(([start, end, replacement]) => ({ start, end, replacement: utf8(replacement) })),
      ),
    ).toString();

  it("replaces, removes and inserts in any order", () => {
    assert.equal(edited("0123456789"), "0123456789");
    assert.equal(edited("0123456789", [2, 4, "ab"]), "01ab456789");
    assert.equal(edited("0123456789", [8, 10, "z"], [0, 1, ""], [4, 4, "--"]), "123--4567z");
    assert.equal(edited("0123456789", [2, 4, "a"], [4, 6, "b"]), "01ab6789");
    assert.equal(edited("0123", [4, 4, "end"], [0, 0, "start"]), "start0123end");
    assert.equal(edited("0123", [0, 4, ""]), "");
    assert.equal(edited("", [0, 0, "a"]), "a");
  });

  it("inserts in front of a replacement that begins at the same place, whichever comes first", () => {
    assert.equal(edited("0123456789", [5, 8, "X"], [5, 5, "+"]), "01234+X89");
    assert.equal(edited("0123456789", [5, 5, "+"], [5, 8, "X"]), "01234+X89");
  });

  it("takes text for what it puts in", () => {
    const pieces = applyEdits(utf8("0123456789"), [{ start: 2, end: 4, replacement: "ab" }]);
    assert.equal(joinPieces(pieces).toString(), "01ab456789");
  });

  it("does not copy what it leaves alone, nor reorder the list that it was given", () => {
    const bytes = utf8("0123456789");
    const edits = [
      { start: 8, end: 9, replacement: utf8("b") },
      { start: 2, end: 3, replacement: utf8("a") },
    ];
    const pieces = applyEdits(bytes, edits);
    assert.deepEqual(pieces[0], { bytes, start: 0, end: 2 });
    assert.equal(edits[0]?.start, 8);
  });
});

describe("matches", () => {
  it("is false where the pattern runs over the end", () => {
    assert.equal(startsWithAt(utf8("abc"), 1, utf8("bc")), true);
    assert.equal(startsWithAt(utf8("abc"), 2, utf8("cd")), false);
    assert.equal(startsWithAt(utf8("abc").subarray(0, 2), 1, utf8("bc")), false);
    assert.equal(startsWithAt(utf8("abc"), 9, utf8("a")), false);
  });
});

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The scanner and JSON.parse agree on whether the text is JSON, and on every value and key in it. */
function check(text: string): void {
  const bytes = utf8(text);
  const start = skipWhitespace(bytes, 0);
  const end = skipValue(bytes, start);
  const accepted = end >= 0 && skipWhitespace(bytes, end) === bytes.length;
  const decoded = textOf(bytes);
  assert.equal(accepted, parses(decoded));
  if (accepted) {
    checkRange(bytes, start, end, JSON.parse(decoded));
  } else {
    for (const scanned of [scanObject(bytes, start), scanArray(bytes, start)]) {
      assert.ok(scanned === undefined || skipWhitespace(bytes, scanned.end) !== bytes.length);
    }
  }
}

function checkRange(bytes: Uint8Array, start: number, end: number, value: unknown): void {
  if (Array.isArray(value)) {
    const array = scanArray(bytes, start);
    assert.equal(array?.end, end);
    assert.equal(array.items.length, value.length);
    for (const [i, item] of array.items.entries()) {
      checkRange(bytes, item.start, item.end, value[i]);
    }
  } else if (typeof value === "object" && value !== null) {
    const object = scanObject(bytes, start);
    assert.equal(object?.end, end);
    const keys = new Set(object.items.map(({ key }) => key));
    assert.deepEqual([...keys].sort(), Object.keys(value).sort());
    for (const key of keys) {
      const member = lastMember(object.items, key);
      assert.ok(member !== undefined);
      checkRange(bytes, member.start, member.end, (value as Record<string, unknown>)[key]);
    }
  } else {
    assert.ok(Object.is(parseRange(bytes, { start, end }), value));
    if (typeof value === "string") assert.equal(readString(bytes, { start, end }), value);
    else assert.equal(readString(bytes, { start, end }), undefined);
  }
}
