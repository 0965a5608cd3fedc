import assert from "node:assert/strict";
import { rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { stateFolder } from "../../src/base/paths.ts";
import { listDependencies } from "../../src/manifest/load.ts";
import type { LoadSettings, ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { itIn, writeFiles } from "../harness/in-folder.ts";

const server = (name: string) => `[servers.${name}]\ncommand = "x"\n`;

/** Loads before and after `change`: whether the edition is another. */
async function isOther(
  folder: ManifestFolder,
  change: () => Promise<unknown>,
  choice: LoadSettings = {},
) {
  const load = async () => (await folder.load(choice)).fingerprint;
  const before = await load();
  assert.equal(await load(), before, "the edition is not steady");
  await change();
  return (await load()) !== before;
}

describe("the edition of what was loaded", () => {
  itIn("is another when a file has other content, even if that means the same", async (folder) => {
    const files = await writeFiles(folder, server("a"), server("b"));
    const b = files[1] ?? "";
    for (const text of [server("c"), `${server("c")}# c`, "[", "", server("b")])
      assert.ok(await isOther(folder, () => writeFile(b, text), { files }), text);
    assert.ok(!(await isOther(folder, () => writeFile(b, server("b")), { files })));
  });

  itIn("is another when a file comes, goes, or cannot be read otherwise", async (folder) => {
    const file = join(folder.root, "a.toml");
    const choice = { files: [file] };
    assert.ok(await isOther(folder, () => folder.write("a.toml", ""), choice));
    assert.ok(await isOther(folder, () => rm(file), choice));
    assert.ok(await isOther(folder, () => symlink("/dev/null", file), choice));
  });

  itIn("is another when two files change places", async (folder) => {
    const files = await writeFiles(folder, server("a"), server("b"));
    const one = await folder.load({ files });
    const two = await folder.load({ files: files.toReversed() });
    assert.notEqual(one.fingerprint, two.fingerprint);
    await writeFiles(folder, server("b"), server("a"));
    assert.notEqual((await folder.load({ files })).fingerprint, one.fingerprint);
  });

  itIn("is another with other servers in the variable", async (folder) => {
    const load = (text: string) => folder.load({ env: { TOOLMUX_SERVERS: text } });
    const [one, two] = [await load("{}"), await load(`{"a": {"command": "x"}}`)];
    assert.notEqual(one.fingerprint, two.fingerprint);
  });

  itIn("is another when a local file comes, is trusted or loses its trust", async (folder) => {
    const state = stateFolder({ HOME: folder.home }, "linux");
    const file = join(folder.cwd, "toolmux.toml");
    assert.ok(await isOther(folder, () => folder.write("work/toolmux.toml", server("a"))));
    assert.ok(await isOther(folder, () => folder.trust(file, state)));
    assert.ok(await isOther(folder, () => writeFile(file, server("b"))));
  });

  itIn("is the same when an untrusted file changes, or another one is trusted", async (folder) => {
    const state = stateFolder({ HOME: folder.home }, "linux");
    const file = await folder.write("work/toolmux.toml", server("a"));
    const other = await folder.write("other/toolmux.toml", server("a"));
    assert.ok(!(await isOther(folder, () => writeFile(file, server("b")))));
    assert.ok(!(await isOther(folder, () => folder.trust(other, state))));
  });

  itIn("is another when a file is passed over for one that comes first", async (folder) => {
    await folder.write("home/.config/toolmux/toolmux.toml", server("a"));
    const write = () => folder.write("home/.config/toolmux/toolmux.json", "{}");
    assert.ok(await isOther(folder, write));
  });
});

itIn("a file without content is told, for it may be just being written", async (folder) => {
  const files = await writeFiles(folder, server("a"), "");
  assert.equal((await folder.load({ files })).hasEmptyFile, true);
  assert.equal((await folder.load({ files: files.slice(0, 1) })).hasEmptyFile, false);
});

describe("the files that a manifest depends on", () => {
  it("are those that were named, and no others", () => {
    const options = { env: { HOME: "/h" }, cwd: "/w", platform: "linux" };
    const files = listDependencies({ ...options, files: ["a.toml", "~/b.toml", "/c.toml"] });
    assert.deepEqual(files, ["/w/a.toml", "/h/b.toml", "/c.toml"]);
  });

  it("are all that could come to be found, and the store of trust", () => {
    const options = { env: { HOME: "/h" }, cwd: "/w", platform: "darwin", files: [] };
    const library = "/h/Library/Application Support/toolmux";
    const manifests = ["/h/.config/toolmux", library, "/w"].flatMap((folder) =>
      ["toml", "json", "jsonc"].map((extension) => `${folder}/toolmux.${extension}`),
    );
    const wanted = [...manifests, "/w/.mcp.json", `${library}/trusted.json`];
    assert.deepEqual(listDependencies(options).toSorted(), wanted.toSorted());
  });
});

describe("a manifest with 3,000 entries of which each has a problem", () => {
  const table = (entry: object) =>
    Object.fromEntries(Array.from({ length: 3000 }, (_, at) => [`n${at}`, entry]));
  for (const [key, entry] of [
    ["servers", { command: "c", odd: 1 }],
    ["models", { provider: "openai", odd: 1 }],
    ["agents", { model: "none", instruction: "i" }],
    ["modes", { tools: { odd: [] } }],
  ] as const) {
    itIn(`is loaded in seconds: ${key}`, async (folder) => {
      const file = await folder.write("a.json", JSON.stringify({ [key]: table(entry) }));
      const started = performance.now();
      const { problems } = await folder.load({ files: [file] });
      assert.equal(new Set(problems.map(({ path }) => path[1])).size, 3000);
      assert.ok(performance.now() - started < 20_000);
    });
  }
});

describe("hub.shared and hub.linger", () => {
  const settings = '[hub]\nshared = true\nlinger = "1m"\n';

  itIn("count in the user's config folder, and in a file that the user names", async (folder) => {
    await folder.write("home/.config/toolmux/toolmux.toml", settings + server("a"));
    const found = (await folder.loadValid()).manifest.hub;
    assert.deepEqual([found.shared, found.linger], [true, 60_000]);
    const file = await folder.write("work/toolmux.toml", settings + server("a"));
    const named = (await folder.loadValid({ files: [file] })).manifest.hub;
    assert.deepEqual([named.shared, named.linger], [true, 60_000]);
  });

  itIn(
    "do not count in a trusted file of the working directory, in neither way",
    async (folder) => {
      const file = await folder.write("work/toolmux.toml", settings + server("a"));
      await folder.trust(file, stateFolder({ HOME: folder.home }, "linux"));
      const { manifest, notes } = await folder.loadValid();
      assert.deepEqual(manifest.sources, [file]);
      assert.deepEqual([manifest.hub.shared, manifest.hub.linger], [false, 600_000]);
      const said = notes.filter((note) => /hub\.(?:shared|linger) is ignored/.test(note));
      assert.equal(said.length, 2, notes.join("\n"));

      await folder.write(
        "home/.config/toolmux/toolmux.toml",
        '[hub]\nshared = true\nlinger = "2m"',
      );
      await folder.write("work/toolmux.toml", "[hub]\nshared = false\nlinger = 0\n");
      await folder.trust(file, stateFolder({ HOME: folder.home }, "linux"));
      const merged = (await folder.loadValid()).manifest;
      assert.deepEqual([merged.hub.shared, merged.hub.linger], [true, 120_000]);
    },
  );
});
