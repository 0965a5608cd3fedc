import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { isExposable, matchesGlob, prefixName, shortenName } from "../../src/catalog/names.ts";

const digest = (data: string | Uint8Array): Uint8Array =>
  createHash("sha256").update(data).digest();
const rules = { separator: "__", maxLength: 50 };
const expose = (server: string, prefix: string, remoteName: string, name = remoteName): string => {
  const full = prefixName(rules, prefix, name);
  return isExposable(rules, full) ? full : shortenName(rules, full, { server, remoteName }, digest);
};

describe("an exposed name", () => {
  const table: [string, string, string, RegExp | string][] = [
    ["is prefix, separator and tool", "fs", "read_file", "fs__read_file"],
    ["is the bare tool where the prefix is empty", "", "read_file", "read_file"],
    ["keeps letters of both cases, digits, _ and -", "A-1", "b_C-2", "A-1__b_C-2"],
    ["has a dot replaced and a hash added", "fs", "read.file", /^fs__read_file_[a-z2-7]{6}$/],
    ["has a slash replaced", "fs", "a/b", /^fs__a_b_[a-z2-7]{6}$/],
    ["has one _ for a character beyond the BMP", "fs", "x😀y", /^fs__x_y_[a-z2-7]{6}$/],
    ["has something to it when the tool's name is empty", "", "", /^_[a-z2-7]{6}$/],
    ["is cut when it is too long", "fs", "t".repeat(60), /^fs__t{39}_[a-z2-7]{6}$/],
    ["is whole when it just fits", "fs", "t".repeat(46), `fs__${"t".repeat(46)}`],
  ];
  for (const [rule, prefix, tool, expected] of table) {
    it(rule, () => {
      const name = expose("server", prefix, tool);
      if (typeof expected === "string") assert.equal(name, expected);
      else assert.match(name, expected);
      assert.match(name, /^[A-Za-z0-9_-]{1,50}$/);
    });
  }

  it("differs for two that are the same up to the cut, or become the same by replacement", () => {
    assert.notEqual(expose("s", "p", `${"t".repeat(60)}a`), expose("s", "p", `${"t".repeat(60)}b`));
    assert.notEqual(expose("s", "p", "a.b"), expose("s", "p", "a/b"));
  });

  it("has the hash of the server and the remote name, whatever the tool was renamed to", () => {
    const hash = (name: string): string => name.slice(-6);
    const one = expose("s", "p", "a.b", "new.name");
    assert.equal(hash(one), hash(expose("s", "p", "a.b", "other.name")));
    assert.notEqual(hash(one), hash(expose("t", "p", "a.b", "new.name")));
  });

  it("is the one that SHA-256 in base32 gives", () => {
    // The first six base32 characters of SHA-256("server\0a.b").
    const bits = [...digest("server\0a.b")].map((b) => b.toString(2).padStart(8, "0")).join("");
    const letters = [0, 5, 10, 15, 20, 25].map(
      (at) => "abcdefghijklmnopqrstuvwxyz234567"[Number.parseInt(bits.slice(at, at + 5), 2)],
    );
    assert.equal(expose("server", "fs", "a.b"), `fs__a_b_${letters.join("")}`);
  });
});

describe("a glob", () => {
  /** A glob, what it matches, and what it does not match. */
  const table: [string, readonly string[], readonly string[]][] = [
    ["read_*", ["read_file"], ["write_read_"]],
    ["*_delete", ["x_delete"], ["x_deleted"]],
    ["*", ["", "*"], []],
    ["?", ["a", "😀"], ["ab"]],
    ["a.b", ["a.b"], ["axb"]],
    ["(a|b)[c]", ["(a|b)[c]"], []],
    ["a*c", ["a\nc"], []],
    ["^a$", [], ["a"]],
    ["a\\b", ["a\\b"], []],
    ["", [""], ["a"]],
    ["a", [], [""]],
    ["**", ["a"], []],
    ["a*", ["a"], []],
    ["*a*b", ["aab"], []],
    ["*ab*ba", ["abba"], ["aba"]],
    ["a*b*c", [], ["abcbd"]],
    ["*?", [], [""]],
    ["*?a", ["aaba"], []],
    ["?*", ["*?"], []],
    ["\ud83d*", [], ["😀"]],
  ];
  for (const [glob, matching, others] of table) {
    it(`${JSON.stringify(glob)} matches ${JSON.stringify(matching)} and not ${JSON.stringify(others)}`, () => {
      for (const name of matching) assert.equal(matchesGlob(glob, name), true, name);
      for (const name of others) assert.equal(matchesGlob(glob, name), false, name);
    });
  }

  it("takes no longer the more ways there are to read a name", () => {
    assert.equal(matchesGlob("*read*read*file*?", "read".repeat(100_000)), false);
  });
});

describe("a glob", () => {
  it("matches long names as it matches short ones", () => {
    const letters = fc.stringMatching(/^[ab😀]{0,12}$/u);
    const globs = fc.stringMatching(/^[ab😀*?]{0,8}$/u);
    fc.assert(
      fc.property(globs, letters, (glob, text) => {
        // The same matched by a longer glob and a longer name, for which another algorithm is used.
        const rest = "x".repeat(400);
        assert.equal(matchesGlob(`${rest}${glob}`, `${rest}${text}`), matchesGlob(glob, text));
        assert.equal(matchesGlob(`${glob}${rest}`, `${text}${rest}`), matchesGlob(glob, text));
      }),
    );
  });

  it("takes no time for names that are made to take long", () => {
    const started = performance.now();
    assert.equal(matchesGlob(`*${"a".repeat(999)}b*`, "a".repeat(1_000_000)), false);
    assert.equal(matchesGlob(`${"*a".repeat(500)}*b`, "a".repeat(1_000_000)), false);
    assert.equal(matchesGlob(`${"*a".repeat(500)}*`, "a".repeat(1_000_000)), true);
    assert.ok(performance.now() - started < 10_000);
  });
});
