import assert from "node:assert/strict";
import { chmod, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { Terminal } from "../../src/terminal/terminal.ts";
import { editManifestFile, withManifestLock } from "../../src/cli/manifest-file.ts";
import { trustFileContent } from "../../src/cli/commands/trust.ts";
import { configFolders, stateFolder } from "../../src/base/paths.ts";
import { isTrusted, trust } from "../../src/manifest/trust.ts";
import { type ManifestFolder, withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";

const server = (name: string, command = "x") => `[servers.${name}]\ncommand = "${command}"\n`;
const bytes = (text: string) => new TextEncoder().encode(text);
const state = (manifestFolder: ManifestFolder) =>
  stateFolder({ HOME: manifestFolder.home }, "linux");
const worldOf = (manifestFolder: ManifestFolder) => ({
  env: { HOME: manifestFolder.home },
  cwd: manifestFolder.cwd,
  platform: "linux",
  terminal: new Terminal({}),
  signal: new AbortController().signal,
  uncaughtErrorHandlers: new Set<never>(),
  hangupHandlers: new Set<never>(),
});
const distrust = (path: string, manifestFolder: ManifestFolder) =>
  `${path} is ignored: you have not trusted its present content. To use its servers, run \`toolmux trust ${manifestFolder.root}/${path}\``;

/** The servers that are found, with their commands, and the notes. */
async function search(
  manifestFolder: ManifestFolder,
  choice: Parameters<ManifestFolder["loadValid"]>[0] = {},
) {
  const { manifest, notes } = await manifestFolder.loadValid(choice);
  const servers = manifest.servers.map(
    (spec) => `${spec.name}=${spec.kind === "stdio" ? spec.command : "-"}`,
  );
  const shown = notes.map((note) => note.replace(`trust ${manifestFolder.root}/`, "trust "));
  return {
    servers,
    notes: shown,
    sources: manifest.sources.map((file) => manifestFolder.shorten(file)),
  };
}

describe("trust", () => {
  it("holds for one path with one content, until either changes", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = await manifestFolder.write("work/toolmux.toml", "a");
      const other = await manifestFolder.write("work/.mcp.json", "a");
      const folder = state(manifestFolder);
      assert.equal(await isTrusted(file, bytes("a"), folder), false);
      assert.equal(await manifestFolder.trust(file, folder), file);
      assert.equal(await isTrusted(file, bytes("a"), folder), true);
      assert.equal(await isTrusted(file, bytes("b"), folder), false);
      assert.equal(await isTrusted(other, bytes("a"), folder), false);
      await manifestFolder.trust(other, folder);
      assert.equal(await isTrusted(file, bytes("a"), folder), true);
      await writeFile(file, "b");
      await manifestFolder.trust(file, folder);
      assert.equal(await isTrusted(file, bytes("a"), folder), false);
      assert.equal(await isTrusted(file, bytes("b"), folder), true);
    }));

  it("follows the real file, not the name that a link gives it", () =>
    withManifestFolder(async (manifestFolder) => {
      const real = await manifestFolder.write("real/toolmux.toml", "a");
      const alias = join(manifestFolder.root, "alias.toml");
      await symlink(real, alias);
      assert.equal(await manifestFolder.trust(alias, state(manifestFolder)), real);
      assert.equal(await isTrusted(real, bytes("a"), state(manifestFolder)), true);
      assert.equal(await isTrusted(alias, bytes("a"), state(manifestFolder)), true);
    }));

  it("is kept where only the user can read it, with nothing else left behind", () =>
    withManifestFolder(async (manifestFolder) => {
      const folder = state(manifestFolder);
      await mkdir(folder, { recursive: true });
      await chmod(folder, 0o755);
      await manifestFolder.trust(await manifestFolder.write("work/toolmux.toml", "a"), folder);
      await manifestFolder.trust(await manifestFolder.write("work/toolmux.toml", "b"), folder);
      await manifestFolder.trust(
        join(manifestFolder.cwd, "toolmux.toml"),
        join(manifestFolder.root, "new/state"),
      );
      assert.equal((await stat(join(manifestFolder.root, "new"))).mode & 0o777, 0o700);
      assert.equal((await stat(folder)).mode & 0o777, 0o700);
      assert.equal((await stat(join(folder, "trusted.json"))).mode & 0o777, 0o600);
      assert.deepEqual(await readdir(folder), ["trusted.json"]);
      const store: unknown = JSON.parse(await readFile(join(folder, "trusted.json"), "utf8"));
      assert.deepEqual(store, {
        files: {
          [`${manifestFolder.root}/work/toolmux.toml`]:
            "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
        },
      });
    }));

  for (const damage of ["", "{", "[]", "null", '{"files": []}', '{"files": {"x": 1}}', "\xff"]) {
    it(`is in nothing when its store is damaged, and starts anew: ${JSON.stringify(damage)}`, () =>
      withManifestFolder(async (manifestFolder) => {
        const file = await manifestFolder.write("work/toolmux.toml", "a");
        const folder = state(manifestFolder);
        await manifestFolder.write("home/.local/state/toolmux/trusted.json", damage);
        assert.equal(await isTrusted(file, bytes("a"), folder), false);
        await manifestFolder.trust(file, folder);
        assert.equal(await isTrusted(file, bytes("a"), folder), true);
      }));
  }

  it("is refused for what is no readable file", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("folder/x", "");
      for (const path of ["none.toml", "folder"]) {
        const file = join(manifestFolder.root, path);
        const refused = { name: "HubError", code: "manifestInvalid" };
        await assert.rejects(trustFileContent(file, worldOf(manifestFolder)), refused);
        assert.deepEqual(await readdir(manifestFolder.root).then((names) => names.toSorted()), [
          "folder",
          "home",
        ]);
      }
      const gone = trust(join(manifestFolder.root, "none.toml"), bytes(""), state(manifestFolder));
      await assert.rejects(gone, { name: "HubError", code: "usage" });
    }));

  it("is given to the very bytes that were shown, though the file changes meanwhile", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = await manifestFolder.write("work/toolmux.toml", server("a", "good"));
      let trusting: ReturnType<typeof trustFileContent> | undefined;
      // Somebody else has the turn, and writes the file before it ends.
      await withManifestLock(worldOf(manifestFolder), async () => {
        trusting = trustFileContent(file, worldOf(manifestFolder));
        // As long as it would take to read the file before waiting for the turn.
        for (let round = 0; round < 10; round++) await manifestFolder.load({ files: [file] });
        await writeFile(file, server("a", "evil"));
      });
      const shown = await trusting;
      const [spec] = shown?.manifest.servers ?? [];
      assert.ok(spec?.kind === "stdio");
      for (const command of ["good", "evil"]) {
        const isKept = await isTrusted(file, bytes(server("a", command)), state(manifestFolder));
        assert.equal(isKept, spec.command === command, command);
      }
    }));

  it("stays with a file that its user changes by toolmux", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = await manifestFolder.write("work/toolmux.toml", server("a", "good"));
      await manifestFolder.trust(file, state(manifestFolder));
      const change = { kind: "add", name: "b", entry: { command: "y" }, isNew: true } as const;
      const edit = await editManifestFile(file, change, worldOf(manifestFolder));
      assert.equal(await isTrusted(file, bytes(edit.text), state(manifestFolder)), true);
    }));
});

describe("without a named file", () => {
  it("the user's manifest is found, toolmux.toml before .json before .jsonc", () =>
    withManifestFolder(async (manifestFolder) => {
      const folder = "home/.config/toolmux";
      await manifestFolder.write(`${folder}/toolmux.jsonc`, `{"servers": {"c": {"command": "x"}}}`);
      assert.deepEqual((await search(manifestFolder)).servers, ["c=x"]);
      await manifestFolder.write(`${folder}/toolmux.json`, `{"servers": {"b": {"command": "x"}}}`);
      await manifestFolder.write(`${folder}/toolmux.toml`, server("a"));
      assert.deepEqual(await search(manifestFolder), {
        servers: ["a=x"],
        notes: [
          `${folder}/toolmux.json is ignored, because ${folder}/toolmux.toml exists`,
          `${folder}/toolmux.jsonc is ignored, because ${folder}/toolmux.toml exists`,
        ],
        sources: [`${folder}/toolmux.toml`],
      });
    }));

  it("nothing of the working directory is used unless it is trusted as it is now", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("home/.config/toolmux/toolmux.toml", server("user"));
      const file = await manifestFolder.write("work/toolmux.toml", server("local"));
      const mcp = await manifestFolder.write(
        "work/.mcp.json",
        `{"mcpServers": {"mcp": {"command": "x"}}}`,
      );
      const asked = ["work/.mcp.json", "work/toolmux.toml"].map((path) =>
        distrust(path, manifestFolder).replace(`trust ${manifestFolder.root}/`, "trust "),
      );
      assert.deepEqual(await search(manifestFolder), {
        servers: ["user=x"],
        notes: asked,
        sources: ["home/.config/toolmux/toolmux.toml"],
      });
      await manifestFolder.trust(file, state(manifestFolder));
      await manifestFolder.trust(mcp, state(manifestFolder));
      assert.deepEqual(await search(manifestFolder), {
        servers: ["user=x", "mcp=x", "local=x"],
        notes: [],
        sources: ["home/.config/toolmux/toolmux.toml", "work/.mcp.json", "work/toolmux.toml"],
      });
      await writeFile(file, server("local", "evil"));
      assert.deepEqual((await search(manifestFolder)).servers, ["user=x", "mcp=x"]);
      assert.deepEqual((await search(manifestFolder)).notes, asked.slice(1));
    }));

  it("a trusted file of the working directory wins over the user's, and toolmux.* over .mcp.json", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write(
        "home/.config/toolmux/toolmux.toml",
        `hub.name = "user"\n${server("a", "user")}${server("b", "user")}${server("c", "user")}`,
      );
      const mcp = `{"mcpServers": {"b": {"command": "mcp"}, "c": {"command": "mcp"}}}`;
      await manifestFolder.trust(
        await manifestFolder.write("work/.mcp.json", mcp),
        state(manifestFolder),
      );
      const local = await manifestFolder.write(
        "work/toolmux.json",
        `{"servers": {"c": {"command": "local"}}}`,
      );
      await manifestFolder.trust(local, state(manifestFolder));
      const env = { TOOLMUX_SERVERS: `{"d": {"command": "env"}}` };
      assert.deepEqual((await search(manifestFolder, { env })).servers, [
        "a=user",
        "b=mcp",
        "c=local",
        "d=env",
      ]);
    }));

  it("an untrusted file cannot hide a trusted one behind its better name", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("work/toolmux.toml", server("evil"));
      const file = await manifestFolder.write(
        "work/toolmux.json",
        `{"servers": {"good": {"command": "x"}}}`,
      );
      await manifestFolder.trust(file, state(manifestFolder));
      assert.deepEqual((await search(manifestFolder)).servers, ["good=x"]);
    }));

  it("what is no readable file in the working directory is passed over without opening it", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("home/.config/toolmux/toolmux.toml", server("user"));
      await mkdir(join(manifestFolder.cwd, "toolmux.toml"), { recursive: true });
      await symlink("/dev/zero", join(manifestFolder.cwd, ".mcp.json"));
      assert.deepEqual((await search(manifestFolder)).notes, [
        "work/.mcp.json is ignored: it is not a regular file",
        "work/toolmux.toml is ignored: it is a folder, not a file",
      ]);
    }));

  it("the user's own folder is no stranger when one stands in it", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("home/.config/toolmux/toolmux.toml", server("user"));
      const cwd = join(manifestFolder.home, ".config", "toolmux");
      assert.deepEqual(await search(manifestFolder, { cwd }), {
        servers: ["user=x"],
        notes: [],
        sources: ["home/.config/toolmux/toolmux.toml"],
      });
    }));

  it("a user's manifest that cannot be read is a problem, not an absence", () =>
    withManifestFolder(async (manifestFolder) => {
      await mkdir(join(manifestFolder.home, ".config/toolmux/toolmux.toml"), { recursive: true });
      assert.deepEqual(await manifestFolder.loadProblems(), [
        "home/.config/toolmux/toolmux.toml: is a folder, not a file",
      ]);
    }));

  it("nothing at all is a problem that says where it looked and how to begin", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("work/toolmux.toml", server("local"));
      const [problem = "", ...others] = await manifestFolder.loadProblems();
      assert.deepEqual(others, []);
      for (const part of [
        "home/.config/toolmux/toolmux.toml: there is no manifest yet",
        "home/.config/toolmux/toolmux.{toml,json,jsonc}\n",
        "work/toolmux.{toml,json,jsonc} and work/.mcp.json, if trusted",
        "toolmux import ",
        "toolmux add files -- npx ",
        "toolmux --config",
      ]) {
        assert.ok(problem.includes(part), `${part} is not in\n${problem}`);
      }
      const result = await manifestFolder.load();
      assert.deepEqual(result.notes.length, 1);
    }));

  it("a named file is used alone and needs no trust", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("home/.config/toolmux/toolmux.toml", server("user"));
      await manifestFolder.write("work/toolmux.toml", server("local"));
      await manifestFolder.write("work/.mcp.json", "{}");
      const found = await search(manifestFolder, { files: ["toolmux.toml"] });
      assert.deepEqual(found, { servers: ["local=x"], notes: [], sources: ["work/toolmux.toml"] });
    }));

  it("a named file may stand in the home folder", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("home/mine.toml", server("mine"));
      assert.deepEqual((await search(manifestFolder, { files: ["~/mine.toml"] })).servers, [
        "mine=x",
      ]);
    }));
});

describe("what was passed over for lack of trust", () => {
  const passed = async (manifestFolder: ManifestFolder, files: readonly string[] = []) =>
    (await manifestFolder.load({ files })).untrusted.map((file) => manifestFolder.shorten(file));

  it("is named by path, whether or not anything else was found", () =>
    withManifestFolder(async (manifestFolder) => {
      assert.deepEqual(await passed(manifestFolder), []);
      const file = await manifestFolder.write("work/toolmux.toml", server("local"));
      await manifestFolder.write("work/.mcp.json", "{}");
      const both = ["work/.mcp.json", "work/toolmux.toml"];
      assert.deepEqual(await passed(manifestFolder), both);
      await manifestFolder.write("home/.config/toolmux/toolmux.toml", server("user"));
      assert.deepEqual(await passed(manifestFolder), both);
      await manifestFolder.trust(file, state(manifestFolder));
      assert.deepEqual(await passed(manifestFolder), ["work/.mcp.json"]);
      await writeFile(file, server("local", "evil"));
      assert.deepEqual(await passed(manifestFolder), both);
    }));

  it("has the very path that a manifest names as its source", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = await manifestFolder.write("work/toolmux.toml", server("local"));
      await manifestFolder.trust(file, state(manifestFolder));
      const { sources } = (await manifestFolder.loadValid()).manifest;
      await writeFile(file, server("local", "evil"));
      assert.deepEqual((await manifestFolder.load()).untrusted, sources);
    }));

  it("holds what can no longer be read, and nothing that is gone", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = await manifestFolder.write("work/toolmux.toml", server("local"));
      await manifestFolder.trust(file, state(manifestFolder));
      await rm(file);
      assert.deepEqual(await passed(manifestFolder), []);
      await mkdir(file);
      assert.deepEqual(await passed(manifestFolder), ["work/toolmux.toml"]);
    }));

  it("is nothing where files are named, and nothing in the user's own folder", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("work/.mcp.json", "{}");
      const file = await manifestFolder.write("work/mine.toml", server("mine"));
      assert.deepEqual(await passed(manifestFolder, [file]), []);
      await mkdir(join(manifestFolder.home, ".config/toolmux"), { recursive: true });
      const there = join(manifestFolder.home, ".config/toolmux");
      await manifestFolder.write("home/.config/toolmux/.mcp.json", "{}");
      assert.deepEqual((await manifestFolder.load({ cwd: there })).untrusted, []);
    }));
});

describe("the folders", () => {
  for (const HOME of ["", "relative", undefined]) {
    it(`are nowhere in the working directory, whatever HOME is: ${HOME}`, () => {
      const { homedir } = userInfo();
      const folders = configFolders({ HOME }, "linux");
      assert.deepEqual(folders, [join(homedir, ".config/toolmux")]);
    });
  }

  const home = { HOME: "/h" };
  const library = "/h/Library/Application Support/toolmux";
  for (const [env, platform, config, remembered] of [
    [home, "linux", ["/h/.config/toolmux"], "/h/.local/state/toolmux"],
    [home, "darwin", ["/h/.config/toolmux", library], library],
    [
      { ...home, XDG_CONFIG_HOME: "/c", XDG_STATE_HOME: "/s" },
      "linux",
      ["/c/toolmux"],
      "/s/toolmux",
    ],
    [
      { ...home, XDG_CONFIG_HOME: "/c", XDG_STATE_HOME: "/s" },
      "darwin",
      ["/c/toolmux", library],
      "/s/toolmux",
    ],
    [
      { ...home, XDG_CONFIG_HOME: "c", XDG_STATE_HOME: "" },
      "linux",
      ["/h/.config/toolmux"],
      "/h/.local/state/toolmux",
    ],
  ] as const) {
    it(`on ${platform} with ${Object.keys(env).join(", ")} follow the platform and absolute XDG paths`, () => {
      assert.deepEqual(configFolders(env, platform), config);
      assert.equal(stateFolder(env, platform), remembered);
    });
  }
});
