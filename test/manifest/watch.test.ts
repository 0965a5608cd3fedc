import assert from "node:assert/strict";
import { chmod, link, rename, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { runtimeName } from "../../src/base/runtime.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { type WatchedManifest, watching } from "../fixtures/manifest/watched-manifest.ts";
import { itIn } from "../harness/in-folder.ts";

const server = (name: string) => `[servers.${name}]\ncommand = "x"\n`;

/** The interval of looks at the files, and the time that files have to be left alone before they are read, in ms. */
const POLL = 1900;
const QUIET = 100;

/** Deno gives the time of the last change of a file's status (ctime) in whole seconds: too coarse for these tests. */
const HAS_EXACT_CHANGE_TIME = runtimeName !== "deno";

/** A test that watches a file with a server called "a". */
function itWatches(
  what: string,
  use: (watched: WatchedManifest, file: string, folder: ManifestFolder) => Promise<void>,
  options = {},
): void {
  itIn(
    what,
    async (folder) => {
      const file = await folder.write("a.toml", server("a"));
      await watching(folder, ["a.toml"], (watched) => use(watched, file, folder));
    },
    options,
  );
}

describe("the watch of a manifest", () => {
  itWatches(
    "reports what is there after a change, and the same content only once",
    async (watched, file, folder) => {
      await writeFile(file, server("bb"));
      assert.equal(await watched.next(), "bb");
      await watched.settle(rename(await folder.write("b.toml", server("bb")), file));
      await writeFile(file, "[");
      assert.equal(await watched.next(), "problems");
      await writeFile(file, server("a"));
      assert.equal(await watched.next(), "a");
    },
  );

  itWatches(
    "notices a change at its next look, and reads the file 100 ms later",
    async (watched, file) => {
      const { clock } = watched;
      await writeFile(file, server("bb"));
      const untilPoll = await clock.nextDelay();
      assert.ok(untilPoll <= POLL);
      clock.advance(untilPoll);
      assert.equal(await clock.nextDelay(), QUIET);
      assert.deepEqual(watched.taken(), []);
      clock.advance(QUIET);
      assert.equal(await clock.nextDelay(), POLL);
      assert.deepEqual(watched.taken(), ["bb"]);
    },
  );

  itWatches("reads a file that is being written once it is whole", async (watched, file) => {
    const { clock } = watched;
    clock.advance(await clock.nextDelay());
    await clock.nextDelay();
    let text = "";
    for (const part of ["[servers.b]\n", 'command = "x"\n', "[servers.", "c]\n"]) {
      await writeFile(file, (text += part));
      clock.advance(await clock.nextDelay());
      assert.equal(await clock.nextDelay(), QUIET);
    }
    await writeFile(file, `${text}command = "x"\n`);
    assert.equal(await watched.next(), "b c");
  });

  itWatches(
    "reads a file that keeps changing after a second all the same",
    async (watched, file) => {
      const { clock } = watched;
      const end = clock.now() + 2 * POLL;
      let text = server("a");
      let loads: readonly string[] = [];
      while (loads.length === 0) {
        assert.ok(clock.now() <= end);
        await writeFile(file, (text += "# more\n"));
        clock.advance(await clock.nextDelay());
        await clock.nextDelay();
        loads = watched.taken();
      }
      assert.deepEqual(loads, ["a"]);
    },
  );

  itIn(
    "notices a file of the same size and time that took the place of another",
    async (folder) => {
      const file = await folder.write("a.toml", server("a"));
      const other = await folder.write("b.toml", server("b"));
      const time = new Date(1_000_000_000_000);
      for (const path of [file, other]) await utimes(path, time, time);
      await watching(folder, ["a.toml"], async (watched) => {
        await rename(other, file);
        assert.equal(await watched.next(), "b");
      });
    },
  );

  itIn("notices a write that keeps size and time", async (folder) => {
    const file = await folder.write("a.toml", server("a"));
    const time = new Date(1_000_000_000_000);
    await utimes(file, time, time);
    await watching(folder, ["a.toml"], async (watched) => {
      await writeFile(file, server("b"));
      await utimes(file, time, time);
      if (!HAS_EXACT_CHANGE_TIME) await watched.settle(undefined, 28_000);
      assert.equal(await watched.next(), "b");
    });
  });

  itWatches(
    "reports nothing if only the rights, the name in a link, or the time of a file change",
    async (watched, file, folder) => {
      await watched.settle(chmod(file, 0o600));
      await watched.settle(link(file, join(folder.root, "b.toml")));
      await watched.settle(utimes(file, 1, 1));
    },
  );

  itWatches(
    "reports a file that cannot be read any more, and that it can again",
    async (watched, file) => {
      await chmod(file, 0);
      assert.equal(await watched.next(), "problems");
      await chmod(file, 0o600);
      assert.equal(await watched.next(), "a");
    },
    // Root may read everything.
    { skip: process.getuid?.() === 0 || !HAS_EXACT_CHANGE_TIME },
  );

  itIn("survives links that go round in circles", async (folder) => {
    await symlink("b.toml", join(folder.root, "a.toml"));
    await symlink("a.toml", join(folder.root, "b.toml"));
    await watching(folder, ["a.toml"], async (watched) => {
      await rm(join(folder.root, "b.toml"));
      await folder.write("b.toml", server("b"));
      assert.equal(await watched.next(), "b");
    });
  });

  itIn("reads everything after half a minute although no file seems changed", async (folder) => {
    await folder.write("a.toml", server("a"));
    await watching(folder, ["a.toml"], async (watched) => {
      // The environment is a part of the manifest that no look at the files shows.
      watched.env["TOOLMUX_SERVERS"] = '{"b": {"command": "x"}}';
      await watched.settle(undefined, 27_000);
      assert.deepEqual(watched.taken(), []);
      await watched.settle(undefined, 3000);
      assert.deepEqual(watched.taken(), ["a b"]);
    });
  });

  itWatches("reads at once when it is told to", async (watched, file) => {
    const { clock, watcher } = watched;
    await writeFile(file, server("bb"));
    void watcher.check();
    assert.deepEqual(clock.pendingDelays, [0]);
    clock.advance(0);
    // While it reads: the next reading follows this one.
    void watcher.check();
    assert.equal(await clock.nextDelay(), 0);
    assert.deepEqual(watched.taken(), ["bb"]);
    clock.advance(0);
    assert.equal(await clock.nextDelay(), POLL);
  });

  itWatches(
    "waits a second with an empty file, which may be one that is just being written",
    async (watched, file) => {
      await watched.settle(writeFile(file, ""), POLL + QUIET);
      assert.deepEqual(watched.taken(), []);
      await writeFile(file, server("b"));
      assert.equal(await watched.next(), "b");
    },
  );

  itWatches("reports an empty file that stays so, once", async (watched, file) => {
    await watched.settle(writeFile(file, ""), 5 * POLL);
    assert.deepEqual(watched.taken(), [""]);
    await watched.settle(utimes(file, 1, 1));
  });

  itWatches("reports nothing of a file that is empty for moments only", async (watched, file) => {
    for (let turn = 0; turn < 2; turn++) {
      await watched.settle(writeFile(file, ""), POLL + QUIET);
      await watched.settle(writeFile(file, server("a")), 5 * POLL);
    }
  });

  itIn("waits a second with an empty file of a plugin, too", async (folder) => {
    const code = await folder.write("code/x.ts", "one");
    await folder.write("conf/a.toml", `${server("a")}[[plugins]]\nuse = "../code/x.ts"\n`);
    await watching(folder, ["conf/a.toml"], async (watched) => {
      await watched.settle(writeFile(code, ""), POLL + QUIET);
      await writeFile(code, "three");
      assert.equal(await watched.next(), "a");
    });
  });

  itIn("leaves the files of plugins alone that are not used any more", async (folder) => {
    const code = await folder.write("code/x.ts", "one");
    const text = `${server("a")}[[plugins]]\nuse = "../code/x.ts"\n`;
    const file = await folder.write("a.toml", text.replace("../", "./"));
    await watching(folder, ["a.toml"], async (watched) => {
      await writeFile(code, "three");
      assert.equal(await watched.next(), "a");
      await writeFile(file, server("b"));
      assert.equal(await watched.next(), "b");
      await watched.settle(rm(code));
    });
  });

  itIn("has no timer when it is closed, and reports nothing more", async (folder) => {
    const file = await folder.write("a.toml", server("a"));
    for (const wait of ["before a look", "during a look", "before a reading", "during a reading"])
      await watching(folder, ["a.toml"], async ({ clock, watcher }) => {
        await writeFile(file, server(wait.replaceAll(" ", "-")));
        if (wait !== "before a look") clock.advance(await clock.nextDelay());
        if (wait.endsWith("reading")) await clock.nextDelay();
        if (wait === "during a reading") clock.advance(QUIET);
        watcher.close();
        void watcher.check();
        // Longer than a reading takes.
        for (let turn = 0; turn < 5; turn++) await folder.load({ files: [file] });
        assert.deepEqual(clock.pendingDelays, [], wait);
      });
  });
});
