import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseYaml } from "../../src/agent-files/yaml.ts";

const letters = "abcdefghijk";
const MIB = 1024 * 1024;
const lines = (count: number, line: (at: number) => string): string =>
  Array.from({ length: count }, (_, at) => line(at)).join("\n");

describe("YAML of an agent's file", () => {
  it("is read as values without prototypes, with anchors and merge keys", () => {
    const text =
      "__proto__: {a: 1}\nx: &x {p: 1, q: [yes, ~, 1.5]}\ny:\n  <<: *x\n  p: 2\nz: |\n  a\n  b\n";
    const parsed = parseYaml(text);
    assert.ok(parsed.ok);
    const x = { p: 1, q: ["yes", null, 1.5] };
    const expected = { ["__proto__"]: { a: 1 }, x, y: { p: 2, q: x.q }, z: "a\nb\n" };
    assert.deepEqual(JSON.parse(JSON.stringify(parsed.root)), expected);
    assert.equal(Object.getPrototypeOf(parsed.root), null);
  });

  it("gives the places of keys and values, also of what is missing", async () => {
    const parsed = parseYaml("a:\n  - b: 1\n    c: [x, y]\n");
    assert.ok(parsed.ok);
    const find = await parsed.preparePositions();
    assert.deepEqual(find(["a", 0, "c", 1], "value"), { line: 3, column: 12 });
    assert.deepEqual(find(["a", 0, "c"], "key"), { line: 3, column: 5 });
    assert.deepEqual(find(["a", 0, "d"], "value"), { line: 2, column: 5 });
  });

  it("gives the places of what is merged into a table", async () => {
    const parsed = parseYaml(
      "x: &x\n  p: 1\ny: &y {q: 2}\nz:\n  <<: [*x, *y]\n  r: 3\nw:\n  <<: *x\n",
    );
    assert.ok(parsed.ok);
    const find = await parsed.preparePositions();
    assert.deepEqual(find(["z", "q"], "value"), { line: 3, column: 11 });
    assert.deepEqual(find(["z", "p"], "key"), { line: 2, column: 3 });
    assert.deepEqual(find(["z", "r"], "key"), { line: 6, column: 3 });
    assert.deepEqual(find(["w", "p"], "value"), { line: 2, column: 6 });
  });

  it("has numbers as they are written where texts are expected", () => {
    const parsed = parseYaml(
      "e: &e {P: 0o17}\nenv: {<<: *e, A: 1.10, B: yes, C: true, D: ~, E: 1e3, F: '2'}\nargs: [1, 08, -0.50, [2]]\nheaders: {X: 007}\nn: 1.10\n",
    );
    assert.ok(parsed.ok);
    assert.deepEqual(JSON.parse(JSON.stringify(parsed.root)), {
      e: { P: 15 },
      env: { P: "0o17", A: "1.10", B: "yes", C: "true", D: null, E: "1e3", F: "2" },
      args: ["1", "08", "-0.50", [2]],
      headers: { X: "007" },
      n: 1.1,
    });
  });

  /** A text, and the place and a word of the message about it. */
  const WRONG: readonly (readonly [text: string, line: number, word: RegExp])[] = [
    ["a:\n\tb: 1\n", 2, /\btab\b/],
    ["a: 1\n---\nb: 1\n", 2, /second document/],
    ["a: 1\n...\nb: 1\n", 3, /second document/],
    ["a: b: c\n", 1, /colon/],
    ["a: [1, 2\nb: 3\n", 2, /bracket/],
    ["a: @x\n", 1, /quotes/],
    ['a: "\\q"\n', 1, /escape/],
    ["a:\n  - b\n  c: 1\n", 3, /indented/],
    ["a: &x &y 1\n", 1, /anchors/],
  ];
  for (const [text, line, word] of WRONG) {
    it(`that is wrong is told in words of people: ${JSON.stringify(text)}`, () => {
      const parsed = parseYaml(text);
      assert.ok(!parsed.ok);
      assert.match(parsed.message, word);
      assert.equal(parsed.position?.line, line);
      assert.doesNotMatch(parsed.message, /YAML\.|flow collection|implicit/i);
    });
  }

  const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${lines(10, (at) => {
    const items = Array.from({ length: 9 }, () => `*${letters[at]}`);
    return `${letters[at + 1]}: &${letters[at + 1]} [${items.join(",")}]`;
  })}`;
  const REFUSED: Readonly<Record<string, readonly [text: string, line: number]>> = {
    "a key twice": ["a: 1\nb: 2\na: 3\n", 3],
    "a tag": ["a: 1\nb: !env HOME\n", 2],
    "a tag that the parser knows": ["a: !!binary aGk=\n", 1],
    "an alias of nothing": ["a: *b\n", 1],
    "an alias of what contains it": ["a: &a [*a]\n", 1],
    "a key that is a list": ["? [a]\n: b\n", 1],
    "two documents": ["a: 1\n---\nb: 1\n", 2],
    "more than 100 aliases": [`a: &a 1\nb: [${"*a, ".repeat(101)}]`, 2],
    "100 aliases that stand for billions of values": [bomb, 1],
    "a merge of no table": ["a: {<<: 1}\n", 1],
    "lists that are nested deeper than 64": [`a: ${"[".repeat(65)}${"]".repeat(65)}`, 1],
    "tables that are nested deeper than 64": [lines(70, (at) => `${" ".repeat(at)}a:`), 66],
    "a megabyte of brackets": ["[".repeat(MIB), 1],
    "a megabyte of dashes": ["- ".repeat(MIB / 2), 1],
    "a megabyte of question marks": ["? ".repeat(MIB / 2), 1],
    "a megabyte of keys": [lines(150_000, (at) => `k${at}:`), 50_000],
    "a megabyte of aliases": ["*a ".repeat(MIB / 3), 1],
    "a megabyte of anchors": ["&a ".repeat(MIB / 3), 1],
  };
  for (const [what, [text, line]] of Object.entries(REFUSED)) {
    it(`with ${what} is refused at its line, in a moment`, () => {
      const started = performance.now();
      const parsed = parseYaml(text);
      assert.ok(!parsed.ok);
      assert.equal(parsed.position?.line, line);
      assert.ok(performance.now() - started < 5_000);
    });
  }

  it("may have any number of texts that begin with an asterisk", () => {
    const items = lines(200, () => "  * item");
    const quoted = lines(200, () => '- "*item"');
    const parsed = parseYaml(`a: |\n${items}\nb: >-\n${items}\nc: x\n${items}\nd:\n${quoted}\n`);
    assert.ok(parsed.ok);
  });

  it("that is wrong is not quoted, because it may hold a secret", () => {
    for (const text of ['a: "s3cret\n', "a: [s3cret\n", "s3cret\n  s3cret: {\n", "a: @s3cret"]) {
      const parsed = parseYaml(text);
      assert.ok(!parsed.ok && !parsed.message.includes("s3cret"), text);
    }
  });
});
