import assert from "node:assert/strict";
import { chmod } from "node:fs/promises";
import { describe, it } from "node:test";
import { makeColors } from "../../../src/terminal/terminal.ts";
import { type HttpAddress, withManifestToken } from "../../../src/host/http-address.ts";
import { formatCodeFrame } from "../../../src/cli/code-frame.ts";
import { HubError } from "../../../src/base/errors.ts";
import type { HttpToken } from "../../../src/manifest/manifest.ts";
import { resolveHttpToken } from "../../../src/manifest/resolve.ts";
import { withManifestFolder } from "../../fixtures/manifest/manifest-folder.ts";

const SECRET = "s3cr3t-Value";
const ENV = { HOME: "/home/me", TOKEN: SECRET, EMPTY: "", LINES: "s3cr3t\nlines" };
const WORLD = { env: ENV, platform: "linux" };
const saying = (text: string): HttpToken => ({ text, file: "/etc/t.toml", baseDir: "/etc" });

/** A refusal that does not show what the token is. */
function misuse(pattern: RegExp): (error: unknown) => boolean {
  return (error) =>
    error instanceof HubError &&
    error.code === "usage" &&
    pattern.test(error.message) &&
    !error.message.includes("s3cr3t");
}

describe("the token in a manifest", () => {
  for (const [text, token] of [
    ["${env:TOKEN}", SECRET],
    ["${env:NONE:-other}", "other"],
    ["a-${env:TOKEN}-b", `a-${SECRET}-b`],
    ["literal", "literal"],
    ["$${env:TOKEN}", "${env:TOKEN}"],
  ] as const)
    it(`is filled in when serving begins: ${text}`, async () => {
      assert.equal(await resolveHttpToken(saying(text), ENV), token);
    });

  it("may stand in a file beside the manifest", () =>
    withManifestFolder(async (folder) => {
      await folder.write("etc/token", `${SECRET}\n`);
      const file = await folder.write("etc/t.toml", '[hub]\nhttpToken = "${file:token}"');
      const { manifest } = await folder.loadValid({ files: [file] });
      assert.ok(manifest.httpToken);
      assert.equal(await resolveHttpToken(manifest.httpToken, ENV), SECRET);
    }));

  it("is missing with its variable or its file, and nothing is served without it", async () => {
    const env = resolveHttpToken(saying("${env:NONE}"), ENV);
    await assert.rejects(env, misuse(/hub\.httpToken needs the environment variable NONE/));
    const file = resolveHttpToken(saying("${file:/none}"), ENV);
    await assert.rejects(file, misuse(/hub\.httpToken needs the file \/none/));
  });

  it("is that of the last file that has one, and is no setting that others see", () =>
    withManifestFolder(async (folder) => {
      const files = [
        await folder.write("a.toml", '[hub]\nname = "a"\nhttpToken = "${env:A}"'),
        await folder.write("b/b.toml", '[hub]\nhttpToken = "${env:B}"'),
        await folder.write("c.toml", "[hub]\nnameLimit = 100"),
      ];
      const { manifest } = await folder.loadValid({ files });
      const { text, file, baseDir } = manifest.httpToken ?? saying("");
      assert.equal(text, "${env:B}");
      assert.deepEqual([file, baseDir].map(folder.shorten.bind(folder)), ["b/b.toml", "b"]);
      assert.equal(manifest.hub.name, "a");
      assert.ok(!("httpToken" in manifest.hub));
    }));

  for (const [value, message] of [
    [
      '"${keychain:x}"',
      /^t\.toml:2:13: hub\.httpToken: found the unknown placeholder \$\{keychain:…\}/,
    ],
    ['"${TOKEN}"', /^t\.toml:2:13: hub\.httpToken: found \$\{TOKEN\}; write \$\{env:TOKEN\}/],
    ['""', /^t\.toml:2:13: hub\.httpToken: expected a string that is not empty/],
    ["87654321", /^t\.toml:2:13: hub\.httpToken: expected a string, found a number$/],
  ] as const)
    it(`is no ${value}`, () =>
      withManifestFolder(async (folder) => {
        const file = await folder.write("t.toml", `[hub]\nhttpToken = ${value}`);
        const [problem = ""] = await folder.loadProblems({ files: [file] });
        assert.match(problem, message);
      }));

  it("is masked where a problem with it is shown", () => {
    const problem = { file: "/t", position: { line: 1, column: 13 }, at: "value", message: "" };
    const look = { width: 80, colors: makeColors(false) };
    const draw = (line: string, key: string): string | undefined =>
      formatCodeFrame({ ...problem, at: "value", path: ["hub", key] }, line, look);
    assert.doesNotMatch(draw(`httpToken = "${SECRET} \${x}"`, "httpToken") ?? "", /s3cr3t/);
    assert.match(draw('nameLimit = "long"', "nameLimit") ?? "", /long/);
  });

  it("has a word said about it if it stands as it is in a file that others can read", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("t.toml", `[hub]\nhttpToken = "${SECRET}"`);
      const note = /^t\.toml: hub\.httpToken is plain text/;
      for (const [mode, isSaid] of [
        [0o644, true],
        [0o640, true],
        [0o600, false],
      ] as const) {
        await chmod(file, mode);
        const { notes } = await folder.loadValid({ files: [file] });
        const isNoted = notes.some((text) => note.test(text));
        assert.equal(isNoted, isSaid, mode.toString(8));
        assert.ok(!notes.join().includes(SECRET));
      }
      const other = await folder.write("o.toml", '[hub]\nhttpToken = "${env:TOKEN}"');
      const { notes } = await folder.loadValid({ files: [other] });
      assert.ok(!notes.join().includes("httpToken"));
    }));
});

describe("who serves over HTTP", () => {
  const here: HttpAddress = { hostname: "127.0.0.1", port: 1, token: undefined };
  const anywhere: HttpAddress = { ...here, hostname: "0.0.0.0" };

  it("asks for the token of the command line, else for that of the manifest, else for none, and looks for no other", async () => {
    const token = saying("${env:TOKEN}");
    const named = { ...anywhere, token: "named" };
    for (const [address, text, expected] of [
      [named, token, "named"],
      [named, saying("${env:NONE}"), "named"],
      [anywhere, token, SECRET],
      [here, token, SECRET],
      [here, undefined, undefined],
    ] as const)
      assert.equal((await withManifestToken(address, text, WORLD)).token, expected);
  });

  it("takes a token from among the secrets", async () => {
    const env = { ...ENV, TOOLMUX_SECRET_HUB_TOKEN: SECRET, TOOLMUX_KEYCHAIN: "off" };
    const world = { env, platform: "linux" };
    const token = saying("${secret:hub/token}");
    assert.equal((await withManifestToken(here, token, world)).token, SECRET);
    await assert.rejects(
      withManifestToken(here, saying("${secret:none}"), world),
      misuse(/run: toolmux secret set none/),
    );
  });

  it("lets nobody in without a token that was wanted", async () => {
    for (const text of ["${env:EMPTY}", "${env:LINES}", "s3cr3t with spaces", "s3cr3t-ü"])
      await assert.rejects(
        withManifestToken(here, saying(text), WORLD),
        misuse(/token of hub\.httpToken is not valid/),
      );
    const named = { ...here, token: "s3cr3t named" };
    await assert.rejects(
      withManifestToken(named, undefined, WORLD),
      misuse(/token of --http-token-env is not valid/),
    );
  });
});
