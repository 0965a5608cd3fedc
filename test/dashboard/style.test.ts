import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

const PAGE = new URL("../../src/dashboard/page/", import.meta.url);
const read = (folder: URL, pattern: RegExp): string =>
  readdirSync(folder)
    .filter((name) => pattern.test(name))
    .map((name) => readFileSync(fileURLToPath(new URL(name, folder)), "utf8"))
    .join("\n");

const style = read(new URL("styles/", PAGE), /\.css$/).replaceAll(/\/\*[\s\S]*?\*\//g, "");
const code = read(PAGE, /\.tsx?$/);

/** Classes of the library that draws charts. */
const OF_CHARTS = /^u-|^uplot$/;

const styled = new Set(
  [...style.matchAll(/(?<![\w-])\.([a-z][\w-]*)(?=[^{};]*\{)/g)].map(([, name = ""]) => name),
);
/** All words of strings: a class may be put together from a state or a tone. */
const words = new Set(
  [...code.matchAll(/"[^"\n]*"|`[^`]*`/g)].flatMap(([text]) => text.match(/[a-z][\w-]*/g) ?? []),
);
/** The classes that elements name themselves. */
const named = new Set(
  [...code.matchAll(/\bclass=(?:"([^"]*)"|\{([^}]*(?:\{[^}]*\}[^}]*)*)\})/g)].flatMap(
    ([, plain, expression = ""]) => {
      const texts = plain === undefined ? expression.match(/(?<!=== )"[^"]*"|`[^`]*`/g) : [plain];
      return (texts ?? []).flatMap(
        (text) => text.replaceAll(/\$\{[^}]*\}/g, " ").match(/[a-z][\w-]*/g) ?? [],
      );
    },
  ),
);

describe("the style of the page", () => {
  it("has no class that the page does not use", () => {
    const unused = [...styled].filter((name) => !words.has(name) && !OF_CHARTS.test(name));
    assert.deepEqual(unused, []);
    assert.ok(styled.has("primary") && styled.size > 50);
  });

  it("has every class that the page uses", () => {
    const missing = [...named].filter((name) => !styled.has(name));
    assert.deepEqual(missing, []);
    assert.ok(named.has("card") && named.size > 50);
  });

  it("takes every value that a token has from the token", () => {
    const tokens = new Set(style.match(/--[\w-]+(?=:)/g));
    const taken = new Set(style.match(/(?<=var\()--[\w-]+/g));
    assert.deepEqual(
      [...taken].filter((name) => !tokens.has(name)),
      [],
    );
    const inCode = [...tokens].filter((name) => !taken.has(name) && !/^--c\d$/.test(name));
    assert.deepEqual(inCode, []);
    const colors = style.split("\n").filter((line) => /#[\da-f]{3,8}\b|rgb\(/.test(line));
    assert.deepEqual(
      colors.filter((line) => !/^\s+--[\w-]+:/.test(line)),
      [],
    );
  });
});
