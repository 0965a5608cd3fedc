import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseImports, MAX_IMPORTS } from "../../src/host/fleet-imports.ts";

const peer = (name: string, servers: readonly string[]) => ({
  name,
  servers: new Map(servers.map((server) => [server, "digest"])),
});
const many = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, at) => `${prefix}${at}`);
const NONE: ReadonlySet<string> = new Set();

describe("the servers that a hub imports", () => {
  it("are those that a name or a pattern matches, of any machine or of one", () => {
    const peers = [peer("h1", ["git", "files", "no name"]), peer("h2", ["git", "web"])];
    const of = (...globs: string[]): unknown => [...chooseImports(peers, globs, NONE).servers];
    assert.deepEqual(of("*"), [
      ["git", undefined],
      ["files", undefined],
      ["web", undefined],
    ]);
    assert.deepEqual(of("h2/*"), [
      ["git", "h2"],
      ["web", "h2"],
    ]);
    assert.deepEqual(of("h2/git", "files"), [
      ["files", undefined],
      ["git", "h2"],
    ]);
    assert.deepEqual(of(), []);
  });

  it("are a limited number of one machine, which is named, and leave room to others", () => {
    const loud = peer("a", many("x", 1000));
    const { servers, limitedHubs, isLimited } = chooseImports(
      [loud, peer("b", ["git"])],
      ["*"],
      NONE,
    );
    assert.equal(servers.size, MAX_IMPORTS.ofHub + 1);
    assert.ok(servers.has("git"));
    assert.deepEqual([limitedHubs, isLimited], [["a"], false]);
    // A machine that exports what others export does not use up their room.
    const copies = peer("a", [...many("x", 900), ...many("own", 100)]);
    const both = chooseImports([copies, peer("b", many("own", 100))], ["*"], NONE);
    assert.ok(many("own", 100).every((name) => both.servers.has(name)));
  });

  it("are a limited number in all, of which those stay that were there", () => {
    const loud = many("a", 10).map((name) => peer(name, many(`${name}-`, 200)));
    const first = chooseImports([peer("z", ["git"])], ["*"], NONE);
    const kept = new Set(first.servers.keys());
    const { servers, limitedHubs, isLimited } = chooseImports(
      [...loud, peer("z", ["git"])],
      ["*"],
      kept,
    );
    assert.equal(servers.size, MAX_IMPORTS.all);
    assert.ok(servers.has("git"));
    assert.deepEqual([limitedHubs, isLimited], [[], true]);
  });

  it("are also those that are named, however many others there are", () => {
    const loud = many("a", 10).map((name) => peer(name, many(`${name}-`, 300)));
    const globs = ["*", "git", "z/web"];
    const { servers } = chooseImports([...loud, peer("z", ["git", "web", "other"])], globs, NONE);
    assert.equal(servers.size, MAX_IMPORTS.all + 2);
    assert.ok(servers.has("git") && servers.has("web"));
  });

  it("are without a limit if there are no more than it allows", () => {
    const peers = many("h", 4).map((name) => peer(name, many(`${name}-`, 256)));
    const { servers, limitedHubs, isLimited } = chooseImports(peers, ["*"], NONE);
    assert.equal(servers.size, 1024);
    assert.deepEqual([limitedHubs, isLimited], [[], false]);
  });
});
