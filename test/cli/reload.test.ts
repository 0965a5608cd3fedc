import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFile, mkdir, rename, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { stateFolder } from "../../src/base/paths.ts";
import { runtimeName } from "../../src/base/runtime.ts";
import { withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { WatchedManifest, watching } from "../fixtures/manifest/watched-manifest.ts";
import { withDeadline } from "../harness/wait.ts";

const server = (name: string) => `[servers.${name}]\ncommand = "x"\n`;

/** Writes to a file as it is, so that its time differs: the system's timestamps can be as coarse as 4 ms. */
async function write(path: string, text: string): Promise<void> {
  await writeFile(path, text);
  lastTime += 1;
  await utimes(path, lastTime, lastTime);
}
let lastTime = 1_000_000_000;

/** As editors save: into another file, which then takes the name. */
async function replace(path: string, text: string): Promise<void> {
  await writeFile(`${path}~`, text);
  await rename(`${path}~`, path);
}

/** As `ln -sfn`: the link is never missing. */
async function point(path: string, target: string): Promise<void> {
  await symlink(target, `${path}~`);
  await rename(`${path}~`, path);
}

describe("a named manifest", () => {
  it("is read again after it was written to, replaced, taken away, and put back", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("conf/a.toml", server("a"));
      await watching(folder, ["conf/a.toml"], async (watched) => {
        await write(file, server("b"));
        assert.equal(await watched.next(), "b");
        await replace(file, server("c"));
        assert.equal(await watched.next(), "c");
        await appendFile(file, server("d"));
        assert.equal(await watched.next(), "c d");
        await rm(file);
        assert.equal(await watched.next(), "problems");
        await replace(file, server("e"));
        assert.equal(await watched.next(), "e");
        await write(file, server("f"));
        assert.equal(await watched.next(), "f");
      });
    }));

  it("is one of several that are all watched", () =>
    withManifestFolder(async (folder) => {
      const one = await folder.write("one/a.toml", server("a"));
      const two = await folder.write("two/b.toml", server("b"));
      await watching(folder, ["one/a.toml", "two/b.toml"], async (watched) => {
        await replace(two, server("c"));
        assert.equal(await watched.next(), "a c");
        await replace(one, server("d"));
        assert.equal(await watched.next(), "d c");
      });
    }));

  it("is found once it is there, in a folder in a folder that was not", () =>
    withManifestFolder(async (folder) => {
      await watching(folder, ["x/y/a.toml"], async (watched) => {
        await watched.settle(mkdir(join(folder.root, "x")));
        await watched.settle(mkdir(join(folder.root, "x/y")));
        const file = await folder.write("x/y/a.toml", server("a"));
        assert.equal(await watched.next(), "a");
        await replace(file, server("b"));
        assert.equal(await watched.next(), "b");
      });
    }));

  it("is read again after its folder was moved away, and another one took its place", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("conf/a.toml", server("a"));
      await folder.write("other/a.toml", server("b"));
      await watching(folder, ["conf/a.toml"], async (watched) => {
        await rename(dirname(file), join(folder.root, "old"));
        assert.equal(await watched.next(), "problems");
        await rename(join(folder.root, "other"), dirname(file));
        assert.equal(await watched.next(), "b");
        await write(file, server("c"));
        assert.equal(await watched.next(), "c");
      });
    }));

  it("that is a link is read again when its target changes, and when it gets another", () =>
    withManifestFolder(async (folder) => {
      const one = await folder.write("dotfiles/one.toml", server("a"));
      const two = await folder.write("elsewhere/two.toml", server("two"));
      const link = join(folder.root, "conf/a.toml");
      await mkdir(dirname(link));
      await symlink("../dotfiles/one.toml", link);
      await watching(folder, ["conf/a.toml"], async (watched) => {
        await write(one, server("b"));
        assert.equal(await watched.next(), "b");
        await replace(one, server("c"));
        assert.equal(await watched.next(), "c");
        await point(link, two);
        assert.equal(await watched.next(), "two");
        await replace(two, server("three"));
        assert.equal(await watched.next(), "three");
      });
    }));

  it("is read again when a link to its folder's whole content is exchanged, as Kubernetes does", () =>
    withManifestFolder(async (folder) => {
      await folder.write("volume/..1/a.toml", server("a"));
      const data = join(folder.root, "volume/..data");
      await symlink("..1", data);
      await symlink("..data/a.toml", join(folder.root, "volume/a.toml"));
      await watching(folder, ["volume/a.toml"], async (watched) => {
        for (const turn of [2, 3]) {
          await folder.write(`volume/..${turn}/a.toml`, server(`a${turn}`));
          await point(data, `..${turn}`);
          await rm(join(folder.root, `volume/..${turn - 1}`), { recursive: true });
          assert.equal(await watched.next(), `a${turn}`);
        }
      });
    }));

  it("is read again when the file of a plugin is written to, replaced, taken away, and put back", () =>
    withManifestFolder(async (folder) => {
      const code = await folder.write("code/x.ts", "one");
      const text = `${server("a")}[[plugins]]\nuse = "../code/x.ts"\n`;
      await folder.write("conf/a.toml", text);
      await watching(folder, ["conf/a.toml"], async (watched) => {
        await write(code, "two");
        assert.equal(await watched.next(), "a");
        await replace(code, "three");
        assert.equal(await watched.next(), "a");
        await rm(code);
        assert.equal(await watched.next(), "problems");
        await replace(code, "four");
        assert.equal(await watched.next(), "a");
        await watched.settle(replace(code, "four"));
      });
    }));

  it("is read again when it names the file of a plugin that then changes, in a folder that was not", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("a.toml", server("a"));
      await watching(folder, ["a.toml"], async (watched) => {
        await appendFile(file, '[[plugins]]\nuse = "./x/y.ts"\n');
        assert.equal(await watched.next(), "problems");
        await folder.write("x/y.ts", "one");
        assert.equal(await watched.next(), "a");
        await appendFile(join(folder.root, "x/y.ts"), "two");
        assert.equal(await watched.next(), "a");
      });
    }));

  it("that changed before the watch began is told", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write("a.toml", server("a"));
      const { fingerprint: edition } = await folder.load({ files: [file] });
      await write(file, server("b"));
      const watched = new WatchedManifest(folder, [file], edition);
      assert.equal(await watched.next(), "b");
      watched.close();
    }));
});

describe("without a named file", () => {
  const user = "home/.config/toolmux/toolmux.toml";

  it("the user's manifest is found when it comes to be, and read again when it changes", () =>
    withManifestFolder(async (folder) => {
      await watching(folder, [], async (watched) => {
        const file = await folder.write(user, server("a"));
        assert.equal(await watched.next(), "a");
        await replace(file, server("b"));
        assert.equal(await watched.next(), "b");
      });
    }));

  it("trust that is given takes effect, and a change that takes it away is told as such", () =>
    withManifestFolder(async (folder) => {
      await folder.write(user, server("user"));
      const state = stateFolder({ HOME: folder.home }, "linux");
      await watching(folder, [], async (watched) => {
        const file = await folder.write("work/toolmux.toml", server("local"));
        assert.equal(await watched.next(), "user !toolmux.toml");
        await folder.trust(file, state);
        assert.equal(await watched.next(), "user local");
        await replace(file, server("evil"));
        assert.equal(await watched.next(), "user !toolmux.toml");
        await folder.trust(file, state);
        assert.equal(await watched.next(), "user evil");
        await rm(file);
        assert.equal(await watched.next(), "user");
        await folder.write("work/.mcp.json", `{"mcpServers": {"mcp": {"command": "x"}}}`);
        assert.equal(await watched.next(), "user !.mcp.json");
      });
    }));

  it("a file that is not trusted may change as it likes: nothing is told of it", () =>
    withManifestFolder(async (folder) => {
      await folder.write(user, server("user"));
      const file = await folder.write("work/toolmux.toml", server("local"));
      await watching(folder, [], async (watched) => {
        await watched.settle(replace(file, server("other")));
        await watched.settle(replace(file, server("another")));
      });
    }));
});

/** Runs a command until it ends: its exit code and what it wrote. */
async function run(command: string, args: readonly string[]): Promise<[number | null, string]> {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const code = await withDeadline<number | null>(
    20_000,
    () => `${command} to end, which has said ${JSON.stringify(output)}`,
    (resolve) => {
      child.on("close", resolve);
      return () => child.kill("SIGKILL");
    },
  );
  return [code, output];
}

/** The command that watches a file, and adds a server called "more" to it. */
function watcher(file: string): readonly [command: string, ...args: string[]] {
  const script = fileURLToPath(new URL("../fixtures/manifest/watch-manifest.ts", import.meta.url));
  const before = runtimeName === "deno" ? ["run", "-A", "--no-check"] : [];
  return [process.execPath, ...before, script, file];
}

describe("a process that watches a manifest", () => {
  it("is told of changes, and ends when it has nothing else to do", () =>
    withManifestFolder(async (folder) => {
      const [command, ...args] = watcher(await folder.write("a.toml", server("a")));
      assert.deepEqual(await run(command, args), [0, "a more\n"]);
    }));

  it("ends though nothing has changed", () =>
    withManifestFolder(async (folder) => {
      const [command, ...args] = watcher(await folder.write("a.toml", server("a")));
      assert.deepEqual(await run(command, [...args, "idle"]), [0, ""]);
    }));
});
