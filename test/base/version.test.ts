import assert from "node:assert/strict";
import { it } from "node:test";
import { compareVersions, VERSION } from "../../src/base/version.ts";
import { describeHub } from "../../src/cli/running-hub.ts";

it("versions are compared by number and pre-release, and what is no version is older than each", () => {
  const ascending = [
    "none",
    "0.2.9",
    "0.2.10-alpha",
    "0.2.10-alpha.1",
    "0.2.10-alpha.beta",
    "0.2.10-beta.2",
    "0.2.10-beta.11",
    "0.2.10",
    "0.10.0",
    "1.0.0",
  ];
  for (const [i, a] of ascending.entries())
    for (const [j, b] of ascending.entries())
      assert.equal(Math.sign(compareVersions(a, b)), Math.sign(i - j), `${a} ${b}`);
  assert.equal(compareVersions("1.0.0+a", "1.0.0+b"), 0);
});

it("a hub is said to be older than this program only if it is", () => {
  const facts = { pid: 1, startedAt: 0, name: "t", cwd: "/", manifest: [], manifestId: "m" };
  const textOf = (version: string): string =>
    describeHub({ ...facts, version, endpoints: ["shared"], socket: "/s" });
  assert.ok(textOf("0.0.1").includes(`0.0.1, older than the installed ${VERSION}`));
  for (const version of [VERSION, "99.0.0"]) assert.ok(!textOf(version).includes("older"));
});
