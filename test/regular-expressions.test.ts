import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { type FoundRegExp, regExpsIn } from "./regular-expressions.ts";

const TEST = { timeout: 240_000 };
const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

/** What texts are made of: each is repeated. */
const UNITS = [
  ...Array.from("aAzZ0_-.,:;/\\\"'`()[]{}<>*?+=$#@&%!|~^ \t\n\r"),
  ...Array.from("\u0000\u001b\u00a0\u0301é漢😀\u200b"),
  ...'a.|a-|a/|a |a:|a=|A1|aB|\\"|\\\\|[a|(a|{a|<a|${|{}|[]|\r\n|, |: |%41|//|--|#a| #|"a":'.split(
    "|",
  ),
];
/** Length of the texts, in UTF-16 units. A search in quadratic time takes ten times as long as allowed. */
const LENGTH = 8_000;
/** Maximum duration of one search, in ms. */
const LIMIT = 12;
/** How often a search that took too long is repeated: another process may have delayed it. */
const REPEATS = 8;

/** Files in which such an expression is applied to numbers of our own only. */
const NUMBERS = ["src/bench/report/tables.ts"];

interface Place extends FoundRegExp {
  readonly file: string;
}

const ALL: readonly Place[] = ["src", "plugins"].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => /\.tsx?$/.test(name))
    .flatMap((name) => {
      const file = `${folder}/${name}`;
      return regExpsIn(readFileSync(join(ROOT, file), "utf8")).map((one) => ({ ...one, file }));
    }),
);

/** Words that the expression itself has, so that a repetition of them begins to match again and again. */
function unitsOf(source: string): readonly string[] {
  const plain = source.replaceAll(/\\([^\w])/g, "$1").replaceAll(/\\[a-zA-Z]/g, " ");
  const words = [...new Set(plain.match(/[A-Za-z:/"'=.-]{2,12}/g) ?? [])].slice(0, 5);
  return words.flatMap((word) => ["", " ", ".", "a"].map((end) => word + end));
}

/** The shortest duration of a search for all matches in a text, in ms; stops when it is short enough. */
function durationOf({ source, flags }: FoundRegExp, text: string): number {
  const isSticky = flags.includes("y");
  const regExp = new RegExp(source, isSticky || flags.includes("g") ? flags : `${flags}g`);
  let least = Infinity;
  for (let attempt = 0; attempt < REPEATS && least > LIMIT; attempt++) {
    const started = performance.now();
    regExp.lastIndex = 0;
    if (isSticky) regExp.test(text);
    else for (const _ of text.matchAll(regExp));
    least = Math.min(least, performance.now() - started);
  }
  return least;
}

describe("every regular expression of the sources", () => {
  it("is found by this test, in strings, templates and comments none", () => {
    const text =
      "const a = b / c / d; // no /x/\nf(/a[/]b/g, `${x ? /c\\/d/u : '/n/'} /n/`);\nreturn /e/;\n/* /n/ */ x = y[0] / 2 / z;";
    assert.deepEqual(
      regExpsIn(text).map(({ source, flags, line }) => [source, flags, line]),
      [
        ["a[/]b", "g", 2],
        ["c\\/d", "u", 2],
        ["e", "", 3],
      ],
    );
    assert.ok(ALL.length > 450, `${ALL.length}`);
    for (const { file, line, source, flags } of ALL)
      assert.doesNotThrow(() => new RegExp(source, flags), `${file}:${line}`);
  });

  it("searches in a time that is proportional to the text, whatever others write", TEST, () => {
    const slow: string[] = [];
    const searched = new Set<string>();
    for (const found of ALL) {
      const { file, line, source, flags } = found;
      if (NUMBERS.includes(file) || searched.has(`/${source}/${flags}`)) continue;
      searched.add(`/${source}/${flags}`);
      search: for (const unit of [...UNITS, ...unitsOf(source)]) {
        const text = unit.repeat(LENGTH / unit.length);
        for (const whole of [text, `x${text}\u0001`, `"${text}\u0001`]) {
          const duration = durationOf(found, whole);
          if (duration <= LIMIT) continue;
          const shown = `${JSON.stringify(whole.slice(0, 10))}… took ${Math.round(duration)} ms`;
          slow.push(`${file}:${line} /${source}/${flags}: ${shown}`);
          break search;
        }
      }
    }
    assert.deepEqual(slow, []);
  });
});
