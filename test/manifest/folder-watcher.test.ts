import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { rename, rm, symlink, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { describe, it } from "node:test";
import {
  Debouncer,
  resolveWatchedPaths,
  type WatchFolder,
  watchManifest,
} from "../../src/manifest/watch.ts";
import type { LoadedManifest } from "../../src/manifest/load.ts";
import { WatchedClock } from "../fixtures/manifest/watched-clock.ts";
import { type ManifestFolder, withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";

const server = (name: string) => `[servers.${name}]\ncommand = "x"\n`;

/** Folders whose events are made by hand. */
class Folders {
  readonly open = new Map<string, Parameters<WatchFolder>>();
  opened = 0;
  /** What happens when a folder begins to be watched; may throw. */
  onEnter: (folder: string) => void = () => {};

  readonly watch: WatchFolder = (...call) => {
    const [folder] = call;
    this.onEnter(folder);
    assert.ok(!this.open.has(folder), `${folder} is watched twice`);
    this.opened++;
    this.open.set(folder, call);
    return () => void this.open.delete(folder);
  };

  tell(path: string): void {
    this.#get(dirname(path))[1](basename(path));
  }

  tellNothing(folder: string): void {
    this.#get(folder)[1](null);
  }

  fail(folder: string, code: string): void {
    this.#get(folder)[2](fault(code));
  }

  #get(folder: string): Parameters<WatchFolder> {
    const call = this.open.get(folder);
    assert.ok(call, `${folder} is not watched`);
    return call;
  }
}

function fault(code: string): Error {
  return Object.assign(new Error("no"), { code });
}

/** How long it is to the next look after one, if nothing happens and all is well. */
const ROUND = 30_000;
/** The same, if folders cannot be watched. */
const POLL = 2000;

/** A watch of one named file that has looked once. */
async function watchFile(manifestFolder: ManifestFolder, text: string) {
  const file = await manifestFolder.write("conf/a.toml", text);
  const watched = await watch(manifestFolder, [file]);
  await watched.look();
  assert.deepEqual(watched.loads, []);
  return { file, ...watched };
}

async function watch(
  manifestFolder: ManifestFolder,
  files: readonly string[],
  folders = new Folders(),
) {
  const clock = new WatchedClock();
  const loads: string[] = [];
  const editions: string[] = [];
  const troubles: string[] = [];
  const handle = watchManifest(
    { files, env: { HOME: manifestFolder.home }, cwd: manifestFolder.cwd, platform: "linux" },
    {
      fingerprint: (await manifestFolder.load({ files })).fingerprint,
      onLoad: (result) => {
        loads.push(describeLoad(result));
        editions.push(result.fingerprint);
      },
      onWarning: (text) => troubles.push(text),
      clock,
      watchFolder: folders.watch,
    },
  );
  /** Lets the look happen that a change has led to; `next`: how long it is to the next one after it, in ms. */
  const look = async (next = ROUND): Promise<void> => {
    assert.equal(clock.pendingDelays[0], 100, "nothing has changed");
    clock.advance(100);
    await clock.untilTimer(next);
  };
  return { clock, folders, loads, editions, troubles, handle, look };
}

function describeLoad(result: LoadedManifest): string {
  return result.ok ? result.manifest.servers.map(({ name }) => name).join(" ") : "problems";
}

describe("a burst", () => {
  const setUp = (work: () => Promise<void> = () => Promise.resolve()) => {
    const clock = new WatchedClock();
    const begun: number[] = [];
    const burst = new Debouncer(clock, () => {
      begun.push(clock.now());
      return work();
    });
    return { clock, begun, burst };
  };

  it("becomes one piece of work, 100 ms after its last change", () => {
    const { clock, begun, burst } = setUp();
    for (const pause of [0, 99, 50, 99]) {
      clock.advance(pause);
      burst.trigger();
    }
    clock.advance(99);
    assert.deepEqual(begun, []);
    clock.advance(1);
    assert.deepEqual(begun, [348]);
    clock.advance(10_000);
    assert.deepEqual(begun, [348]);
  });

  it("that does not end becomes work after each second all the same", async () => {
    const { clock, begun, burst } = setUp();
    for (let time = 0; time < 3500; time += 50) {
      burst.trigger();
      clock.advance(50);
      // The work is over before the next change.
      await Promise.resolve();
      await Promise.resolve();
    }
    assert.deepEqual(begun, [1000, 2000, 3000]);
  });

  it("that comes during work becomes work after it, and never beside it", async () => {
    const ends: (() => void)[] = [];
    const { clock, begun, burst } = setUp(() => new Promise((resolve) => ends.push(resolve)));
    burst.trigger();
    clock.advance(100);
    burst.trigger();
    clock.advance(30);
    burst.trigger();
    clock.advance(5000);
    assert.deepEqual(begun, [100]);
    ends[0]?.();
    await clock.untilTimer(0);
    clock.advance(0);
    assert.deepEqual(begun, [100, 5130]);
    ends[1]?.();
    await Promise.resolve();
    await Promise.resolve();
    assert.deepEqual(clock.pendingDelays, []);
    burst.trigger();
    assert.deepEqual(clock.pendingDelays, [100]);
  });

  it("that goes on during work is waited for from its own begin, not from the work's end", async () => {
    const ends: (() => void)[] = [];
    const { clock, burst } = setUp(() => new Promise((resolve) => ends.push(resolve)));
    burst.trigger();
    clock.advance(100);
    burst.trigger();
    clock.advance(960);
    burst.trigger();
    ends[0]?.();
    await clock.untilTimer(40);
  });

  it("becomes nothing once it is closed, before or during the work", async () => {
    const before = setUp();
    before.burst.trigger();
    before.burst.close();
    before.burst.trigger();
    assert.deepEqual(before.clock.pendingDelays, []);
    const ends: (() => void)[] = [];
    const { clock, burst } = setUp(() => new Promise((resolve) => ends.push(resolve)));
    burst.trigger();
    clock.advance(100);
    burst.trigger();
    burst.close();
    ends[0]?.();
    await Promise.resolve();
    await Promise.resolve();
    burst.trigger();
    assert.deepEqual(clock.pendingDelays, []);
  });
});

describe("the trail of a path", () => {
  const trace = async (manifestFolder: ManifestFolder, path: string) =>
    (await resolveWatchedPaths(join(manifestFolder.root, path))).map(({ folder, name }) =>
      manifestFolder.shorten(`${folder}/${name}`),
    );

  it("is the file alone if there is no link on its way", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("a/b/c.toml", "");
      assert.deepEqual(await trace(manifestFolder, "a/b/c.toml"), ["a/b/c.toml"]);
      assert.deepEqual(await trace(manifestFolder, "a/b/none.toml"), ["a/b/none.toml"]);
    }));

  it("ends at the first folder that is missing, or is none", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("a/file", "");
      assert.deepEqual(await trace(manifestFolder, "a/b/c/d.toml"), ["a/b"]);
      assert.deepEqual(await trace(manifestFolder, "a/file/d.toml"), ["a/file"]);
    }));

  it("names a folder in the place of the file", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("a/b/c", "");
      assert.deepEqual(await trace(manifestFolder, "a/b"), ["a/b"]);
    }));

  it("names every link on the way, those of folders too, and where they lead", () =>
    withManifestFolder(async (manifestFolder) => {
      await manifestFolder.write("real/deep/c.toml", "");
      await symlink(join(manifestFolder.root, "real"), join(manifestFolder.root, "absolute"));
      await symlink("./absolute/deep/../deep", join(manifestFolder.root, "relative"));
      await symlink("c.toml", join(manifestFolder.root, "real/deep/alias.toml"));
      assert.deepEqual(await trace(manifestFolder, "relative/alias.toml"), [
        "relative",
        "absolute",
        "real/deep/alias.toml",
        "real/deep/c.toml",
      ]);
    }));

  it("goes where a link leads although nothing is there yet", () =>
    withManifestFolder(async (manifestFolder) => {
      await symlink("missing/c.toml", join(manifestFolder.root, "a.toml"));
      assert.deepEqual(await trace(manifestFolder, "a.toml"), ["a.toml", "missing"]);
    }));

  it("ends although its links go round in circles", () =>
    withManifestFolder(async (manifestFolder) => {
      await symlink("b", join(manifestFolder.root, "a"));
      await symlink("a", join(manifestFolder.root, "b"));
      const spots = await trace(manifestFolder, "a");
      assert.deepEqual([...new Set(spots)], ["a", "b"]);
      assert.ok(spots.length < 100);
    }));
});

describe("the watch of a manifest", () => {
  it("tells what is there after a change, and the same content only once", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, folders, loads, look } = await watchFile(manifestFolder, server("a"));
      await writeFile(file, server("b"));
      folders.tell(file);
      await look();
      folders.tell(file);
      await look();
      await writeFile(file, "[");
      folders.tell(file);
      await look();
      await writeFile(file, server("a"));
      folders.tell(file);
      await look();
      assert.deepEqual(loads, ["b", "problems", "a"]);
    }));

  it("does not look when something else in the folder changes", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, folders } = await watchFile(manifestFolder, server("a"));
      for (const name of ["b.toml", "a.toml.swp", ".a.toml", "a"])
        folders.tell(join(dirname(file), name));
      assert.deepEqual(clock.pendingDelays, [ROUND]);
    }));

  it("looks when the name is spelled otherwise, as some file systems do, or is not told", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = await manifestFolder.write("conf/caf\u00e9.toml", server("a"));
      const { folders, look } = await watch(manifestFolder, [file]);
      await look();
      folders.tell(join(dirname(file), "CAF\u00c9.TOML"));
      await look();
      folders.tell(join(dirname(file), "cafe\u0301.toml"));
      await look();
      folders.tellNothing(dirname(file));
      await look();
    }));

  it("enters a folder anew that was moved, deleted or given other rights", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, folders, loads, look } = await watchFile(manifestFolder, server("a"));
      const folder = dirname(file);
      await rename(folder, `${folder}.old`);
      folders.tell(join(folder, basename(folder)));
      assert.equal(folders.open.size, 0);
      await look();
      assert.deepEqual([...folders.open.keys()], [manifestFolder.root]);
      await manifestFolder.write("conf/a.toml", server("b"));
      folders.tell(folder);
      await look();
      assert.deepEqual([...folders.open.keys()], [folder]);
      assert.deepEqual(loads, ["problems", "b"]);
    }));

  it("leaves alone what it watches already", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, folders, look } = await watchFile(manifestFolder, server("a"));
      folders.tell(file);
      await look();
      assert.equal(folders.opened, 1);
      assert.deepEqual(clock.pendingDelays, [ROUND]);
    }));

  it("looks for other names in a folder where a link leads to another of its files", () =>
    withManifestFolder(async (manifestFolder) => {
      const link = join(manifestFolder.root, "link.toml");
      await manifestFolder.write("a.toml", server("a"));
      const b = await manifestFolder.write("b.toml", server("b"));
      await symlink("a.toml", link);
      const { folders, loads, look } = await watch(manifestFolder, [link]);
      await look();
      await rm(link);
      await symlink("b.toml", link);
      folders.tell(link);
      await look();
      await writeFile(b, server("c"));
      folders.tell(b);
      await look();
      assert.deepEqual([loads, folders.opened], [["b", "c"], 1]);
    }));

  it("looks again for what changes while it reads", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, folders, loads, look } = await watchFile(manifestFolder, server("a"));
      await writeFile(file, server("b"));
      folders.tell(file);
      clock.advance(100);
      await writeFile(file, server("c"));
      folders.tell(file);
      await clock.untilTimer(100);
      await look();
      assert.equal(loads.at(-1), "c");
    }));

  it("watches before it reads, so that nothing falls between the two", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, folders, loads, look } = await watchFile(manifestFolder, server("a"));
      folders.tellNothing(dirname(file));
      folders.onEnter = () => writeFileSync(file, server("b"));
      await look();
      assert.deepEqual(loads, ["b"]);
    }));

  it("finds after half a minute what nobody told", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, loads, look } = await watchFile(manifestFolder, server("a"));
      await writeFile(file, server("b"));
      clock.advance(ROUND);
      await look();
      assert.deepEqual(loads, ["b"]);
    }));

  it("waits a second with an empty file, which may be one that is just being written", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, folders, loads, look } = await watchFile(manifestFolder, server("a"));
      await writeFile(file, "");
      folders.tell(file);
      await look(1000);
      clock.advance(500);
      folders.tell(file);
      await look(1000);
      assert.deepEqual(loads, []);
      await writeFile(file, server("b"));
      folders.tell(file);
      await look();
      assert.deepEqual(loads, ["b"]);
    }));

  it("tells an empty file that stays so, once", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, folders, loads, look } = await watchFile(manifestFolder, server("a"));
      await writeFile(file, "");
      folders.tell(file);
      await look(1000);
      clock.advance(1000);
      await look();
      folders.tell(file);
      await look();
      assert.deepEqual(loads, [""]);
    }));

  it("tells nothing of a file that is empty for moments only", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, folders, loads, look } = await watchFile(manifestFolder, server("a"));
      for (let turn = 0; turn < 2; turn++) {
        await writeFile(file, "");
        folders.tell(file);
        await look(1000);
        await writeFile(file, server("a"));
        folders.tell(file);
        await look();
        clock.advance(5000);
      }
      assert.deepEqual(loads, []);
    }));

  for (const code of ["EMFILE", "ENOSPC", "EACCES", "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM"]) {
    it(`reads every 2 s where folders cannot be watched (${code}), and says so once`, () =>
      withManifestFolder(async (manifestFolder) => {
        const one = await manifestFolder.write("one/a.toml", server("a"));
        const two = await manifestFolder.write("two/b.toml", server("b"));
        const folders = new Folders();
        folders.onEnter = (folder) => {
          if (folder === dirname(two)) throw fault(code);
        };
        const { clock, loads, troubles, look } = await watch(manifestFolder, [one, two], folders);
        await look(POLL);
        await look(POLL);
        for (const name of ["c", "d"]) {
          await writeFile(one, server(name));
          clock.advance(POLL);
          await look(POLL);
        }
        assert.deepEqual(loads, ["c b", "d b"]);
        const line = `the files of the manifest cannot be watched (${code}); they are read every 2 s instead`;
        assert.deepEqual(troubles, [line]);
        assert.deepEqual([...folders.open.keys()], []);
      }));
  }

  it("reads every 2 s from when folders cannot be watched any more", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, clock, folders, loads, troubles, look } = await watchFile(
        manifestFolder,
        server("a"),
      );
      folders.fail(dirname(file), "EIO");
      assert.equal(folders.open.size, 0);
      await look(POLL);
      await writeFile(file, server("b"));
      clock.advance(POLL);
      await look(POLL);
      assert.deepEqual([loads, troubles.length, folders.open.size], [["b"], 1, 0]);
    }));

  it("looks again where a folder vanished before it could be watched, and finds no fault with that", () =>
    withManifestFolder(async (manifestFolder) => {
      const file = await manifestFolder.write("conf/a.toml", server("a"));
      const folders = new Folders();
      folders.onEnter = () => {
        folders.onEnter = () => {};
        throw fault("ENOENT");
      };
      const { look, troubles } = await watch(manifestFolder, [file], folders);
      await look();
      await look();
      assert.deepEqual([...folders.open.keys()], [dirname(file)]);
      folders.fail(dirname(file), "ENOTDIR");
      await look();
      assert.deepEqual([...folders.open.keys()], [dirname(file)]);
      assert.deepEqual(troubles, []);
    }));

  it("looks when the file of a plugin changes, comes or goes", () =>
    withManifestFolder(async (manifestFolder) => {
      const code = await manifestFolder.write("code/x.ts", "one");
      const text = `${server("a")}[[plugins]]\nuse = "../code/x.ts"\n`;
      const { folders, loads, look } = await watchFile(manifestFolder, text);
      assert.deepEqual(
        [...folders.open.keys()],
        [join(manifestFolder.root, "conf"), dirname(code)],
      );
      folders.tell(code);
      await look();
      assert.deepEqual(loads, []);
      await writeFile(code, "two");
      folders.tell(code);
      await look();
      await rm(code);
      folders.tell(code);
      await look();
      await writeFile(code, "two");
      folders.tell(code);
      await look();
      assert.deepEqual(loads, ["a", "problems", "a"]);
    }));

  it("waits a second with an empty file of a plugin, which may be one that is just being written", () =>
    withManifestFolder(async (manifestFolder) => {
      const code = await manifestFolder.write("code/x.ts", "one");
      const text = `${server("a")}[[plugins]]\nuse = "../code/x.ts"\n`;
      const { folders, loads, look } = await watchFile(manifestFolder, text);
      await writeFile(code, "");
      folders.tell(code);
      await look(1000);
      await writeFile(code, "two");
      folders.tell(code);
      await look();
      assert.deepEqual(loads, ["a"]);
    }));

  it("watches the files of plugins that it finds before it reads them, and no longer than they are used", () =>
    withManifestFolder(async (manifestFolder) => {
      const { file, folders, editions, look } = await watchFile(manifestFolder, server("a"));
      const code = await manifestFolder.write("code/x.ts", "one");
      const text = `${server("a")}[[plugins]]\nuse = "../code/x.ts"\n`;
      await writeFile(file, text);
      folders.onEnter = (folder) => {
        assert.equal(folder, dirname(code));
        writeFileSync(code, "two");
      };
      folders.tell(file);
      await look();
      assert.deepEqual(editions, [(await manifestFolder.load({ files: [file] })).fingerprint]);
      assert.deepEqual([...folders.open.keys()], [dirname(file), dirname(code)]);
      await writeFile(file, server("a"));
      folders.tell(file);
      await look();
      assert.deepEqual([...folders.open.keys()], [dirname(file), dirname(code)]);
      folders.tell(file);
      await look();
      assert.deepEqual([...folders.open.keys()], [dirname(file)]);
    }));

  it("leaves every folder and every timer when it is closed, and tells nothing more", () =>
    withManifestFolder(async (manifestFolder) => {
      for (const wait of [0, 50, 100]) {
        const { file, clock, folders, loads, handle } = await watchFile(
          manifestFolder,
          server("a"),
        );
        const [, tell] = folders.open.get(dirname(file)) ?? [];
        await writeFile(file, server("b"));
        folders.tell(file);
        clock.advance(wait);
        handle.close();
        tell?.("a.toml");
        handle.close();
        // Longer than a look takes.
        for (let turn = 0; turn < 5; turn++) await manifestFolder.load({ files: [file] });
        assert.deepEqual([folders.open.size, clock.pendingDelays, loads], [0, [], []]);
      }
    }));
});
