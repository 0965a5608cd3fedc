import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { COMMANDS } from "../../src/cli/commands.ts";
import type { Invocation } from "../../src/cli/command.ts";
import { parseCommand } from "../fixtures/command-line.ts";
import { type AddOptions, readRequest, readServerArguments } from "../../src/cli/commands/add.ts";
import { addSettings } from "../../src/operations/add.ts";
import { ALL_RUNNERS } from "../../src/manifest/package.ts";
import { plainCopy } from "../fixtures/manifest/manifest-folder.ts";

function parse(...argv: readonly string[]): Invocation<AddOptions> {
  return parseCommand<AddOptions>(["add", ...argv]).invocation;
}

describe("what the command line says of a server", () => {
  for (const [argv, entry] of [
    [["x", "--url", "https://h/mcp"], { url: "https://h/mcp" }],
    [
      ["x", "--url=https://h/mcp", "--header", "A: b: c", "--header=X-Y:z", "--transport", "sse"],
      { url: "https://h/mcp", transport: "sse", headers: { A: "b: c", "X-Y": "z" } },
    ],
    [["x", "--package", "npm:@s/n@1"], { package: "npm:@s/n@1" }],
    [
      ["x", "--package", "pypi:n", "--runner", "uvx", "--env", "A=b=c", "--", "--root", "/x y"],
      { package: "pypi:n", runner: "uvx", args: ["--root", "/x y"], env: { A: "b=c" } },
    ],
    [["x", "--", "npx", "-y", "n", "--flag=1"], { command: "npx", args: ["-y", "n", "--flag=1"] }],
    [["x", "npx"], { command: "npx" }],
    [["x", "--command", "npx -y 'a b'"], { command: "npx", args: ["-y", "a b"] }],
    [["x", "--env", "A=", "--env", "B=2", "--", "y"], { command: "y", env: { A: "", B: "2" } }],
  ] as const) {
    it(`is understood: ${argv.join(" ")}`, () => {
      const said = readServerArguments(parse(...argv));
      assert.ok(said.kind === "entry");
      assert.deepEqual(plainCopy(said.entry), entry);
    });
  }

  it("is only its name if that is all", () => {
    const said = readServerArguments(parse("io.github.o/x", "--prefix", "p", "--env", "A=b"));
    assert.deepEqual(said, { kind: "name" });
  });

  it("wins over what a directory says", () => {
    const entry = { package: "npm:n", env: { A: "theirs", B: "theirs" } };
    const said = addSettings(entry, readRequest(parse("x", "--prefix", "p", "--env", "A=mine")));
    const env = { A: "mine", B: "theirs" };
    assert.deepEqual(plainCopy(said), { package: "npm:n", env, prefix: "p" });
    const plain = addSettings({ url: "u", headers: {} }, readRequest(parse("x")));
    assert.deepEqual(plainCopy(plain), { url: "u" });
  });

  it("may be that its tools have nothing in front", () => {
    for (const prefix of [["--prefix", ""], ["--prefix="]]) {
      const given = parse("x", ...prefix, "--no-try", "--", "c", "");
      const said = readServerArguments(given);
      assert.ok(said.kind === "entry");
      const entry = { command: "c", args: [""], prefix: "" };
      assert.deepEqual(plainCopy(addSettings(said.entry, readRequest(given))), entry);
    }
  });

  for (const [argv, message] of [
    [["x", "--prefix"], /--prefix needs a value: PREFIX/],
    [["x", "--prefix", "--json"], /--prefix needs a value: PREFIX/],
    [["x", "--url", ""], /--url needs a value: URL/],
    [["x", "--runner", "zork"], /--runner must be one of npx, .*, podman, not "zork"/],
    [["x", "--transport", "ws"], /--transport must be one of auto, http, sse, not "ws"/],
    [["x", "--url", "http://x", "--package", "npm:x"], /--url and --package/],
    [["x", "--url", "http://x", "--env", "A=b"], /--env .*--url/],
    [["x", "--header", "A: b", "--", "y"], /--header needs --url/],
    [["x", "--transport", "http", "--", "y"], /--transport needs --url/],
    [["x", "--runner", "npx", "--", "y"], /--runner needs --package/],
    [["x", "--url", "http://x", "--header", "secret"], /^Write --header as NAME: VALUE\.$/],
    [["x", "--env", "secret", "--", "y"], /^Write --env as KEY=VALUE\.$/],
    [["x", "--package", "npm:-x"], /"npm:-x" is not a package/],
    [["x", "--command", "a 'b"], /--command .*quote/],
  ] as const) {
    it(`is refused: ${argv.join(" ")}`, () => {
      assert.throws(() => readServerArguments(parse(...argv)), { code: "usage", message });
    });
  }

  it("can name every runner that a manifest can", () => {
    const runner = COMMANDS.find(({ name }) => name === "add")?.options["runner"];
    assert.deepEqual(runner?.choices, ALL_RUNNERS);
  });
});
