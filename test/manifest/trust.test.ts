import assert from "node:assert/strict";
import { chmod, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { editManifestFile, withManifestLock } from "../../src/operations/manifest-file.ts";
import { trustFileContent } from "../../src/operations/trust.ts";
import { configFolders, stateFolder } from "../../src/base/paths.ts";
import { isTrusted, trust } from "../../src/manifest/trust.ts";
import type { LoadSettings, ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const server = (name: string, command = "x") => `[servers.${name}]\ncommand = "${command}"\n`;
const json = (name: string, command = "x") => `{"servers": {"${name}": {"command": "${command}"}}}`;
const bytes = (text: string) => new TextEncoder().encode(text);
const state = (folder: ManifestFolder) => stateFolder({ HOME: folder.home }, "linux");
const worldOf = (folder: ManifestFolder) => contextOf({ HOME: folder.home }, folder.cwd);
const distrust = (path: string) =>
  `${path} is ignored: you have not trusted its current content. To use its servers, run \`toolmux trust ${path}\``;
const HOME = "home/.config/toolmux";
const USERS = `${HOME}/toolmux.toml`;
const LOCAL = "work/toolmux.toml";
const CLIENTS = "work/.mcp.json";

/** Writes a file that is trusted as it is. */
async function writeTrusted(folder: ManifestFolder, path: string, text: string): Promise<string> {
  const file = await folder.write(path, text);
  await folder.trust(file, state(folder));
  return file;
}

/** The servers that are found, with their commands, and the notes. */
async function search(folder: ManifestFolder, choice: LoadSettings = {}) {
  const { manifest, notes } = await folder.loadValid(choice);
  const servers = manifest.servers.map(
    (spec) => `${spec.name}=${spec.kind === "stdio" ? spec.command : "-"}`,
  );
  const sources = manifest.sources.map((file) => folder.shorten(file));
  return { servers, notes, sources };
}

describe("trust", () => {
  itIn("holds for one path with one content, until either changes", async (folder) => {
    const file = await folder.write(LOCAL, "a");
    const other = await folder.write(CLIENTS, "a");
    const at = state(folder);
    assert.equal(await isTrusted(file, bytes("a"), at), false);
    assert.equal(await folder.trust(file, at), file);
    assert.equal(await isTrusted(file, bytes("a"), at), true);
    assert.equal(await isTrusted(file, bytes("b"), at), false);
    assert.equal(await isTrusted(other, bytes("a"), at), false);
    await folder.trust(other, at);
    assert.equal(await isTrusted(file, bytes("a"), at), true);
    await writeTrusted(folder, LOCAL, "b");
    assert.equal(await isTrusted(file, bytes("a"), at), false);
    assert.equal(await isTrusted(file, bytes("b"), at), true);
  });

  itIn("follows the real file, not the name that a link gives it", async (folder) => {
    const real = await folder.write("real/toolmux.toml", "a");
    const alias = join(folder.root, "alias.toml");
    await symlink(real, alias);
    assert.equal(await folder.trust(alias, state(folder)), real);
    for (const path of [real, alias])
      assert.equal(await isTrusted(path, bytes("a"), state(folder)), true);
  });

  itIn("is kept where only the user can read it, with nothing else left behind", async (folder) => {
    const at = state(folder);
    await mkdir(at, { recursive: true });
    await chmod(at, 0o755);
    for (const text of ["a", "b"]) await writeTrusted(folder, LOCAL, text);
    const file = join(folder.cwd, "toolmux.toml");
    await folder.trust(file, join(folder.root, "new/state"));
    const store = join(at, "trusted.json");
    const modes = [join(folder.root, "new"), at, store].map(
      async (path) => (await stat(path)).mode,
    );
    assert.deepEqual(
      (await Promise.all(modes)).map((mode) => mode & 0o777),
      [0o700, 0o700, 0o600],
    );
    assert.deepEqual(await readdir(at), ["trusted.json"]);
    const sha256 = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";
    assert.deepEqual(JSON.parse(await readFile(store, "utf8")), { files: { [file]: sha256 } });
  });

  for (const damage of ["", "{", "[]", "null", '{"files": []}', '{"files": {"x": 1}}', "\xff"]) {
    itIn(`is in nothing when its store is damaged, and starts anew: ${damage}`, async (folder) => {
      const file = await folder.write(LOCAL, "a");
      await folder.write("home/.local/state/toolmux/trusted.json", damage);
      assert.equal(await isTrusted(file, bytes("a"), state(folder)), false);
      await folder.trust(file, state(folder));
      assert.equal(await isTrusted(file, bytes("a"), state(folder)), true);
    });
  }

  itIn("is refused for what is no readable file", async (folder) => {
    await folder.write("folder/x", "");
    for (const path of ["none.toml", "folder"]) {
      const run = trustFileContent(join(folder.root, path), worldOf(folder));
      await assert.rejects(run, { name: "HubError", code: "manifestInvalid" });
      assert.deepEqual((await readdir(folder.root)).toSorted(), ["folder", "home"]);
    }
    const gone = trust(join(folder.root, "none.toml"), bytes(""), state(folder));
    await assert.rejects(gone, { name: "HubError", code: "usage" });
  });

  itIn("is given to the very bytes that were shown, though the file changes", async (folder) => {
    const file = await folder.write(LOCAL, server("a", "good"));
    let trusting: ReturnType<typeof trustFileContent> | undefined;
    // Somebody else has the turn, and writes the file before it ends.
    await withManifestLock(worldOf(folder), async () => {
      trusting = trustFileContent(file, worldOf(folder));
      // As long as it would take to read the file before waiting for the turn.
      for (let round = 0; round < 10; round++) await folder.load({ files: [file] });
      await writeFile(file, server("a", "evil"));
    });
    const shown = await trusting;
    const [spec] = shown?.manifest.servers ?? [];
    assert.ok(spec?.kind === "stdio");
    for (const command of ["good", "evil"]) {
      const isKept = await isTrusted(file, bytes(server("a", command)), state(folder));
      assert.equal(isKept, spec.command === command, command);
    }
  });

  itIn("stays with a file that its user changes by toolmux", async (folder) => {
    const file = await writeTrusted(folder, LOCAL, server("a", "good"));
    const change = { kind: "add", name: "b", entry: { command: "y" }, isNew: true } as const;
    const edit = await editManifestFile(file, change, worldOf(folder));
    assert.equal(await isTrusted(file, bytes(edit.text), state(folder)), true);
  });
});

describe("without a named file", () => {
  itIn("the user's manifest is found, .toml before .json before .jsonc", async (folder) => {
    await folder.write(`${HOME}/toolmux.jsonc`, json("c"));
    assert.deepEqual((await search(folder)).servers, ["c=x"]);
    await folder.write(`${HOME}/toolmux.json`, json("b"));
    await folder.write(USERS, server("a"));
    const notes = ["json", "jsonc"].map(
      (extension) => `${HOME}/toolmux.${extension} is ignored, because ${USERS} exists`,
    );
    assert.deepEqual(await search(folder), { servers: ["a=x"], notes, sources: [USERS] });
  });

  itIn("nothing of the working directory is used unless trusted as it is now", async (folder) => {
    await folder.write(USERS, server("user"));
    const file = await folder.write(LOCAL, server("local"));
    const mcp = await folder.write(CLIENTS, `{"mcpServers": {"mcp": {"command": "x"}}}`);
    const notes = [distrust(CLIENTS), distrust(LOCAL)];
    assert.deepEqual(await search(folder), { servers: ["user=x"], notes, sources: [USERS] });
    for (const path of [file, mcp]) await folder.trust(path, state(folder));
    assert.deepEqual(await search(folder), {
      servers: ["user=x", "mcp=x", "local=x"],
      notes: [],
      sources: [USERS, CLIENTS, LOCAL],
    });
    await writeFile(file, server("local", "evil"));
    const found = await search(folder);
    assert.deepEqual([found.servers, found.notes], [["user=x", "mcp=x"], notes.slice(1)]);
  });

  itIn("a trusted local file wins over the user's, toolmux.* over .mcp.json", async (folder) => {
    const servers = ["a", "b", "c"].map((name) => server(name, "user")).join("");
    await folder.write(USERS, `hub.name = "user"\n${servers}`);
    const mcp = `{"mcpServers": {"b": {"command": "mcp"}, "c": {"command": "mcp"}}}`;
    await writeTrusted(folder, CLIENTS, mcp);
    await writeTrusted(folder, "work/toolmux.json", json("c", "local"));
    const env = { TOOLMUX_SERVERS: `{"d": {"command": "env"}}` };
    const found = (await search(folder, { env })).servers;
    assert.deepEqual(found, ["a=user", "b=mcp", "c=local", "d=env"]);
  });

  itIn("an untrusted file cannot hide a trusted one behind its better name", async (folder) => {
    await folder.write(LOCAL, server("evil"));
    await writeTrusted(folder, "work/toolmux.json", json("good"));
    assert.deepEqual((await search(folder)).servers, ["good=x"]);
  });

  itIn("what is no readable file there is passed over without opening it", async (folder) => {
    await folder.write(USERS, server("user"));
    await mkdir(join(folder.cwd, "toolmux.toml"), { recursive: true });
    await symlink("/dev/zero", join(folder.cwd, ".mcp.json"));
    assert.deepEqual((await search(folder)).notes, [
      "work/.mcp.json is ignored: it is not a regular file",
      "work/toolmux.toml is ignored: it is a folder, not a file",
    ]);
  });

  itIn("the user's own folder is no stranger when one stands in it", async (folder) => {
    await folder.write(USERS, server("user"));
    const found = await search(folder, { cwd: join(folder.root, HOME) });
    assert.deepEqual(found, { servers: ["user=x"], notes: [], sources: [USERS] });
  });

  itIn("a user's manifest that cannot be read is a problem, not an absence", async (folder) => {
    await mkdir(join(folder.root, USERS), { recursive: true });
    assert.deepEqual(await folder.loadProblems(), [`${USERS}: is a folder, not a file`]);
  });

  itIn("nothing at all is a problem that says where it looked and how to begin", async (folder) => {
    await folder.write(LOCAL, server("local"));
    const [problem = "", ...others] = await folder.loadProblems();
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
    assert.equal((await folder.load()).notes.length, 1);
  });

  itIn("a named file is used alone and needs no trust", async (folder) => {
    await folder.write(USERS, server("user"));
    await folder.write(LOCAL, server("local"));
    await folder.write(CLIENTS, "{}");
    const found = await search(folder, { files: ["toolmux.toml"] });
    assert.deepEqual(found, { servers: ["local=x"], notes: [], sources: [LOCAL] });
  });

  itIn("a named file may stand in the home folder", async (folder) => {
    await folder.write("home/mine.toml", server("mine"));
    const { servers } = await search(folder, { files: ["~/mine.toml"] });
    assert.deepEqual(servers, ["mine=x"]);
  });
});

describe("what was passed over for lack of trust", () => {
  const passed = async (folder: ManifestFolder, files: readonly string[] = []) =>
    (await folder.load({ files })).untrusted.map((file) => folder.shorten(file));

  itIn("is named by path, whether or not anything else was found", async (folder) => {
    assert.deepEqual(await passed(folder), []);
    const file = await folder.write(LOCAL, server("local"));
    await folder.write(CLIENTS, "{}");
    assert.deepEqual(await passed(folder), [CLIENTS, LOCAL]);
    await folder.write(USERS, server("user"));
    assert.deepEqual(await passed(folder), [CLIENTS, LOCAL]);
    await folder.trust(file, state(folder));
    assert.deepEqual(await passed(folder), [CLIENTS]);
    await writeFile(file, server("local", "evil"));
    assert.deepEqual(await passed(folder), [CLIENTS, LOCAL]);
  });

  itIn("has the very path that a manifest names as its source", async (folder) => {
    const file = await writeTrusted(folder, LOCAL, server("local"));
    const { sources } = (await folder.loadValid()).manifest;
    await writeFile(file, server("local", "evil"));
    assert.deepEqual((await folder.load()).untrusted, sources);
  });

  itIn("holds what can no longer be read, and nothing that is gone", async (folder) => {
    const file = await writeTrusted(folder, LOCAL, server("local"));
    await rm(file);
    assert.deepEqual(await passed(folder), []);
    await mkdir(file);
    assert.deepEqual(await passed(folder), [LOCAL]);
  });

  itIn("is nothing where files are named, nor in the user's own folder", async (folder) => {
    await folder.write(CLIENTS, "{}");
    const file = await folder.write("work/mine.toml", server("mine"));
    assert.deepEqual(await passed(folder, [file]), []);
    await folder.write(`${HOME}/.mcp.json`, "{}");
    const cwd = join(folder.root, HOME);
    assert.deepEqual((await folder.load({ cwd })).untrusted, []);
  });
});

describe("the folders", () => {
  it("are nowhere in the working directory, whatever HOME is", () => {
    const own = join(userInfo().homedir, ".config/toolmux");
    for (const home of ["", "relative", undefined])
      assert.deepEqual(configFolders({ HOME: home }, "linux"), [own]);
  });

  it("follow the platform and absolute XDG paths", () => {
    const home = { HOME: "/h" };
    const set = { ...home, XDG_CONFIG_HOME: "/c", XDG_STATE_HOME: "/s" };
    const relative = { ...home, XDG_CONFIG_HOME: "c", XDG_STATE_HOME: "" };
    const usual = "/h/.config/toolmux";
    const library = "/h/Library/Application Support/toolmux";
    for (const [env, platform, config, remembered] of [
      [home, "linux", [usual], "/h/.local/state/toolmux"],
      [home, "darwin", [usual, library], library],
      [set, "linux", ["/c/toolmux"], "/s/toolmux"],
      [set, "darwin", ["/c/toolmux", library], "/s/toolmux"],
      [relative, "linux", [usual], "/h/.local/state/toolmux"],
    ] as const) {
      assert.deepEqual(configFolders(env, platform), config);
      assert.equal(stateFolder(env, platform), remembered);
    }
  });
});
