import assert from "node:assert/strict";
import { rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { stateFolder } from "../../src/base/paths.ts";
import { listDependencies } from "../../src/manifest/load.ts";
import {
  type LoadSettings,
  type ManifestFolder,
  withManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";

const server = (name: string) => `[servers.${name}]\ncommand = "x"\n`;

/** Loads before and after `change`: whether the edition is another. */
async function isOther(
  box: ManifestFolder,
  change: () => Promise<unknown>,
  choice: LoadSettings = {},
) {
  const before = await box.load(choice);
  assert.equal(
    (await box.load(choice)).fingerprint,
    before.fingerprint,
    "the edition is not steady",
  );
  await change();
  return (await box.load(choice)).fingerprint !== before.fingerprint;
}

describe("the edition of what was loaded", () => {
  it("is another when a named file has other content, even if that means the same or nothing", () =>
    withManifestFolder(async (box) => {
      const a = await box.write("a.toml", server("a"));
      const b = await box.write("b.toml", server("b"));
      const choice = { files: [a, b] };
      for (const text of [server("c"), `${server("c")}# c`, "[", "", server("b")])
        assert.ok(await isOther(box, () => writeFile(b, text), choice), text);
      assert.ok(!(await isOther(box, () => writeFile(b, server("b")), choice)));
    }));

  it("is another when a file comes or goes, or cannot be read for another reason", () =>
    withManifestFolder(async (box) => {
      const file = join(box.root, "a.toml");
      const choice = { files: [file] };
      assert.ok(await isOther(box, () => box.write("a.toml", ""), choice));
      assert.ok(await isOther(box, () => rm(file), choice));
      assert.ok(await isOther(box, () => symlink("/dev/null", file), choice));
    }));

  it("is another when two files change places", () =>
    withManifestFolder(async (box) => {
      const a = await box.write("a.toml", server("a"));
      const b = await box.write("b.toml", server("b"));
      const one = await box.load({ files: [a, b] });
      const two = await box.load({ files: [b, a] });
      assert.notEqual(one.fingerprint, two.fingerprint);
      await writeFile(a, server("b"));
      await writeFile(b, server("a"));
      assert.notEqual((await box.load({ files: [a, b] })).fingerprint, one.fingerprint);
    }));

  it("is another with other servers in the variable", () =>
    withManifestFolder(async (box) => {
      const load = (text: string) => box.load({ env: { TOOLMUX_SERVERS: text } });
      const [one, two] = [await load("{}"), await load(`{"a": {"command": "x"}}`)];
      assert.notEqual(one.fingerprint, two.fingerprint);
    }));

  it("is another when a file of the working directory comes, is trusted or loses its trust", () =>
    withManifestFolder(async (box) => {
      const folder = stateFolder({ HOME: box.home }, "linux");
      const file = join(box.cwd, "toolmux.toml");
      assert.ok(await isOther(box, () => box.write("work/toolmux.toml", server("a"))));
      assert.ok(await isOther(box, () => box.trust(file, folder)));
      assert.ok(await isOther(box, () => writeFile(file, server("b"))));
    }));

  it("is the same when a file that is not trusted changes, or another one is trusted", () =>
    withManifestFolder(async (box) => {
      const folder = stateFolder({ HOME: box.home }, "linux");
      const file = await box.write("work/toolmux.toml", server("a"));
      const other = await box.write("other/toolmux.toml", server("a"));
      assert.ok(!(await isOther(box, () => writeFile(file, server("b")))));
      assert.ok(!(await isOther(box, () => box.trust(other, folder))));
    }));

  it("is another when a file is passed over for one that comes first", () =>
    withManifestFolder(async (box) => {
      await box.write("home/.config/toolmux/toolmux.toml", server("a"));
      const write = () => box.write("home/.config/toolmux/toolmux.json", "{}");
      assert.ok(await isOther(box, write));
    }));
});

describe("a file without content", () => {
  it("is told, for it may be one that is just being written", () =>
    withManifestFolder(async (box) => {
      const a = await box.write("a.toml", server("a"));
      const b = await box.write("b.toml", "");
      assert.equal((await box.load({ files: [a, b] })).hasEmptyFile, true);
      assert.equal((await box.load({ files: [a] })).hasEmptyFile, false);
    }));
});

describe("the files that a manifest depends on", () => {
  it("are those that were named, and no others", () =>
    withManifestFolder(async (box) => {
      const { cwd, home } = box;
      const options = { env: { HOME: home }, cwd, platform: "linux" };
      const files = listDependencies({ ...options, files: ["a.toml", "~/b.toml", "/c.toml"] });
      assert.deepEqual(files, [join(cwd, "a.toml"), join(home, "b.toml"), "/c.toml"]);
    }));

  it("are all that could come to be found, and the store of trust", () => {
    const options = { env: { HOME: "/h" }, cwd: "/w", platform: "darwin", files: [] };
    const library = "/h/Library/Application Support/toolmux";
    assert.deepEqual(
      listDependencies(options).toSorted(),
      [
        ...["/h/.config/toolmux", library, "/w"].flatMap((folder) =>
          ["toml", "json", "jsonc"].map((extension) => `${folder}/toolmux.${extension}`),
        ),
        "/w/.mcp.json",
        `${library}/trusted.json`,
      ].toSorted(),
    );
  });
});
