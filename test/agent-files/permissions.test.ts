import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  type CheckedCall,
  decidingRule,
  NO_PERMISSIONS,
  parsePermission,
} from "../../src/agent-files/permissions.ts";

const call = (name: string, args = {}, toolsets: readonly string[] = []): CheckedCall => ({
  names: [name],
  toolsets,
  args,
});
const shell = (args: object, name = "run_command"): CheckedCall => call(name, args, ["shell"]);

/** Patterns, and calls that they match and do not match. */
const MATCHES: readonly (readonly [string, readonly CheckedCall[], readonly CheckedCall[]])[] = [
  ["read_file", [call("read_file"), call("READ_FILE")], [call("read_files"), call("a_read_file")]],
  ["read_*", [call("read_"), call("read_a_b")], [call("aread_")]],
  ["*", [call("x"), call("")], []],
  ["r?ad", [call("read"), call("road")], [call("rad"), call("reead")]],
  ["r[eo]ad", [call("read"), call("road")], [call("raad")]],
  ["v[0-9]", [call("v7")], [call("vx")]],
  ["v[!0-9]", [call("vx")], [call("v7")]],
  ["v[", [call("v[")], [call("v")]],
  ["a.b", [call("a.b")], [call("axb")]],
  ["*a*b*c", [call("xaybzc"), call("abc")], [call("acb")]],
  ["mcp:git:get_*", [call("mcp:git:get_x")], [call("get_x")]],
  ["f:path=/etc/*", [call("f", { path: "/etc/x/y" })], [call("f", { path: "/home" }), call("g")]],
  ["f:p=a*:q=b", [call("f", { p: "ab", q: "b" })], [call("f", { p: "ab", q: "c" })]],
  ["f:url=http://x:80/*", [call("f", { url: "http://x:80/y" })], [call("f", { url: "http" })]],
  ["f:n=3", [call("f", { n: 3 })], [call("f", { n: 4 })]],
  ["f:all=x*", [call("f", { all: ["a", "xy"] }), call("f", { all: ["x", "y"] })], []],
  ["f:p=a*", [call("f", { p: "a\nb" })], []],
];

describe("a rule of a file's permissions", () => {
  for (const [pattern, matching, others] of MATCHES) {
    it(`matches by its glob and all of its arguments: ${pattern}`, () => {
      const allow = [parsePermission(pattern)];
      const kindOf = (one: CheckedCall): string | undefined =>
        decidingRule({ ...NO_PERMISSIONS, allow }, one)?.kind;
      for (const one of matching) assert.equal(kindOf(one), "allow", JSON.stringify(one));
      for (const one of others) assert.equal(kindOf(one), undefined, JSON.stringify(one));
    });
  }

  it("forbids before it asks, and asks before it allows", () => {
    const [deny, ask, allow] = ["f:x=1*", "f:x=*2*", "f"].map((text) => [parsePermission(text)]);
    const rules = { deny: deny ?? [], ask: ask ?? [], allow: allow ?? [] };
    const kinds = ["12", "22", "33"].map((x) => decidingRule(rules, call("f", { x }))?.kind);
    assert.deepEqual(kinds, ["deny", "ask", "allow"]);
  });

  it("forbids calls of a toolset whatever its server calls tools and arguments, and allows none so", () => {
    const rules = [parsePermission("shell:cmd=rm *")];
    for (const args of [
      { command: "rm -rf x" },
      { command: "  rm -rf x" },
      { command: "RM -rf x" },
      { argv: ["rm", "-rf", "x"] },
      { cmd: "rm x" },
      { inner: { line: "rm x" } },
    ]) {
      const denied = decidingRule({ ...NO_PERMISSIONS, deny: rules }, shell(args));
      assert.equal(denied?.kind, "deny", JSON.stringify(args));
      const asked = decidingRule({ ...NO_PERMISSIONS, ask: rules }, shell(args));
      assert.equal(asked?.kind, "ask", JSON.stringify(args));
      const allowed = decidingRule({ ...NO_PERMISSIONS, allow: rules }, shell(args));
      assert.equal(allowed, undefined, JSON.stringify(args));
    }
    const other = decidingRule({ ...NO_PERMISSIONS, deny: rules }, shell({ command: "ls" }));
    assert.equal(other, undefined);
  });

  it("is checked in a time that is proportional to its text and that of the call", () => {
    const deny = [parsePermission(`f:x=${"*a".repeat(200)}b`)];
    const startedAt = performance.now();
    const args = { x: "a".repeat(100_000) };
    assert.equal(decidingRule({ ...NO_PERMISSIONS, deny }, call("f", args)), undefined);
    assert.ok(performance.now() - startedAt < 10_000);
  });
});
