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
  manifestFolder: ManifestFolder,
  change: () => Promise<unknown>,
  choice: LoadSettings = {},
) {
  const before = await manifestFolder.load(choice);
  assert.equal(
    (await manifestFolder.load(choice)).fingerprint,
    before.fingerprint,
    "the edition is not steady",
  );
  await change();
  return (await manifestFolder.load(choice)).fingerprint !== before.fingerprint;
}

describe("the edition of what was loaded", () => {
  it("is another when a named file has other content, even if that means the same or nothing", () =>
    withManifestFolder(async (manifestFolder) => {
      const a = await manifestFolder.write("a.toml", server("a"));
      const b = await manifestFolder.write("b.toml", server("b"));
      const choice = { files: [a, b] };
      for (const text of [server("c"), `${server("c")}# c`, "[", "", server("b")])
        assert.ok(await isOther(manifestFolder, () => writeFile(b, text), choice), text);
      assert.ok(!(await isOther(manifestFolder, () => writeFile(b, server("b")), choice)));
    }));

  it("is another when a file comes or goes, or cannot be read for another reason", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = join(manifestFolder.root, "a.toml");
      const choice = { files: [file] };
      assert.ok(await isOther(manifestFolder, () => manifestFolder.write("a.toml", ""), choice));
      assert.ok(await isOther(manifestFolder, () => rm(file), choice));
      assert.ok(await isOther(manifestFolder, () => symlink("/dev/null", file), choice));
    }));

  it("is another when two files change places", () =>
    withManifestFolder(async (manifestFolder) => {
      const a = await manifestFolder.write("a.toml", server("a"));
      const b = await manifestFolder.write("b.toml", server("b"));
      const one = await manifestFolder.load({ files: [a, b] });
      const two = await manifestFolder.load({ files: [b, a] });
      assert.notEqual(one.fingerprint, two.fingerprint);
      await writeFile(a, server("b"));
      await writeFile(b, server("a"));
      assert.notEqual((await manifestFolder.load({ files: [a, b] })).fingerprint, one.fingerprint);
    }));

  it("is another with other servers in the variable", () =>
    withManifestFolder(async (manifestFolder) => {
      const load = (text: string) => manifestFolder.load({ env: { TOOLMUX_SERVERS: text } });
      const [one, two] = [await load("{}"), await load(`{"a": {"command": "x"}}`)];
      assert.notEqual(one.fingerprint, two.fingerprint);
    }));

  it("is another when a file of the working directory comes, is trusted or loses its trust", () =>
    withManifestFolder(async (manifestFolder) => {
      const folder = stateFolder({ HOME: manifestFolder.home }, "linux");
      const file = join(manifestFolder.cwd, "toolmux.toml");
      assert.ok(
        await isOther(manifestFolder, () => manifestFolder.write("work/toolmux.toml", server("a"))),
      );
      assert.ok(await isOther(manifestFolder, () => manifestFolder.trust(file, folder)));
      assert.ok(await isOther(manifestFolder, () => writeFile(file, server("b"))));
    }));

  it("is the same when a file that is not trusted changes, or another one is trusted", () =>
    withManifestFolder(async (manifestFolder) => {
      const folder = stateFolder({ HOME: manifestFolder.home }, "linux");
      const file = await manifestFolder.write("work/toolmux.toml", server("a"));
      const other = await manifestFolder.write("other/toolmux.toml", server("a"));
      assert.ok(!(await isOther(manifestFolder, () => writeFile(file, server("b")))));
      assert.ok(!(await isOther(manifestFolder, () => manifestFolder.trust(other, folder))));
    }));

  it("is another when a file is passed over for one that comes first", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("home/.config/toolmux/toolmux.toml", server("a"));
      const write = () => manifestFolder.write("home/.config/toolmux/toolmux.json", "{}");
      assert.ok(await isOther(manifestFolder, write));
    }));
});

describe("a file without content", () => {
  it("is told, for it may be one that is just being written", () =>
    withManifestFolder(async (manifestFolder) => {
      const a = await manifestFolder.write("a.toml", server("a"));
      const b = await manifestFolder.write("b.toml", "");
      assert.equal((await manifestFolder.load({ files: [a, b] })).hasEmptyFile, true);
      assert.equal((await manifestFolder.load({ files: [a] })).hasEmptyFile, false);
    }));
});

describe("the files that a manifest depends on", () => {
  it("are those that were named, and no others", () =>
    withManifestFolder(async (manifestFolder) => {
      const { cwd, home } = manifestFolder;
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
