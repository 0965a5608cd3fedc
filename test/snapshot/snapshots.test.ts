import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import {
  chmod,
  copyFile,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { setImmediate } from "node:timers/promises";
import { assert as check, asyncProperty, nat } from "fast-check";
import { utf8 } from "../../src/base/bytes.ts";
import { EMPTY_LISTING, readPage } from "../../src/catalog/listing.ts";
import { diskSnapshots } from "../../src/snapshot/disk.ts";
import { memorySnapshots, type SnapshotKey, type Snapshots } from "../../src/snapshot/snapshots.ts";
import {
  type SnapshotSetup,
  DAY,
  toolListingOf,
  plainListing,
  UNUSUAL_TOOLS,
  snapshotsContract,
  START,
  SNAPSHOT_KEY,
  tool,
} from "../contract/snapshots.ts";
import { skipWithout } from "../harness/requirements.ts";

snapshotsContract("memorySnapshots()", async (test) => {
  const bench: SnapshotSetup = {
    snapshots: memorySnapshots({ now: () => bench.time }),
    time: START,
  };
  await test(bench);
});

snapshotsContract("diskSnapshots()", (test) => withStore((store) => test(store)));

it("memorySnapshots() keeps 500 snapshots: the oldest go", async () => {
  const snapshots = memorySnapshots({ now: () => START });
  const subjects = keys(502);
  for (const subject of subjects) await snapshots.save(subject, EMPTY_LISTING);
  const loads = await Promise.all(subjects.map((subject) => snapshots.load(subject)));
  const oldest = loads.findIndex((found) => found !== undefined);
  assert.equal(oldest, 2);
});

/** A state folder, which does not exist at first, and the snapshots in it. */
class Store implements SnapshotSetup {
  readonly root: string;
  readonly folder: string;
  readonly place: string;
  readonly key: string;
  readonly warnings: string[] = [];
  readonly snapshots: Snapshots;
  time = START;

  constructor(root: string) {
    this.root = root;
    this.folder = join(root, "state", "toolmux");
    this.place = join(this.folder, "snapshots");
    this.key = join(this.folder, "installation.key");
    this.snapshots = this.open();
  }

  /** As another hub has them. */
  open(): Snapshots {
    const { folder, warnings } = this;
    return diskSnapshots({
      folder,
      now: () => this.time,
      warn: (text) => void warnings.push(text),
    });
  }

  /** Saves with one hub of its own and gives the path of the file. */
  async saveFile(subject: SnapshotKey = SNAPSHOT_KEY, items = ITEMS): Promise<string> {
    const before = new Set(await readdir(this.place).catch(() => []));
    await this.open().save(subject, items);
    const [name = "", ...more] = (await readdir(this.place)).filter((found) => !before.has(found));
    assert.deepEqual(more, []);
    return join(this.place, name);
  }

  /** What a hub that starts now finds. */
  async load(subject: SnapshotKey = SNAPSHOT_KEY): Promise<unknown> {
    return plainListing((await this.open().load(subject))?.listing);
  }

  /** All that is in the state folder, as relative paths. */
  async tree(): Promise<readonly string[]> {
    const names: string[] = await readdir(this.folder, { recursive: true });
    return names.toSorted();
  }
}

const ITEMS = toolListingOf(...UNUSUAL_TOOLS, tool("read", "Reads a file"));
const SAVED = plainListing(ITEMS);
const OTHER: SnapshotKey = { ...SNAPSHOT_KEY, command: "other" };
const skip = skipWithout({
  isMet: process.getuid?.() !== 0,
  tests: "a folder that may not be written",
  remedy: "root may write everything (run as another user)",
});

async function withStore(test: (store: Store) => Promise<void>): Promise<void> {
  const root = await mkdtemp(join(tmpdir(), "toolmux-snapshots-"));
  try {
    await test(new Store(root));
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

/** A test with a store of its own. */
const test = (sentence: string, run: (store: Store) => Promise<void>): void =>
  void it(sentence, () => withStore(run));

async function modeOf(path: string): Promise<string> {
  return ((await lstat(path)).mode & 0o777).toString(8);
}

/** Changes a file in place and sets when it was written, in ms. */
async function plant(path: string, size: number, changedAt: number): Promise<void> {
  await writeFile(path, "");
  await truncate(path, size);
  await utimes(path, new Date(changedAt), new Date(changedAt));
}

const keys = (count: number): SnapshotKey[] =>
  Array.from({ length: count }, (_, i) => ({ ...SNAPSHOT_KEY, command: `c${i}` }));

const nameOf = (n: number): string => n.toString(16).padStart(64, "0");

describe("snapshots on disk", () => {
  test("are a file each, beside a key, that only the user can read", async (store) => {
    await mkdir(store.place, { recursive: true });
    for (const folder of [store.folder, store.place]) await chmod(folder, 0o755);
    const file = await store.saveFile();
    await store.saveFile(OTHER);
    assert.equal((await store.tree()).length, 4);
    assert.match(basename(file), /^[0-9a-f]{64}$/);
    for (const folder of [store.folder, store.place]) assert.equal(await modeOf(folder), "700");
    for (const path of [store.key, file]) assert.equal(await modeOf(path), "600");
  });

  test("are found by a hub that starts later, and become private again if others could read them", async (store) => {
    const file = await store.saveFile();
    for (const path of [store.key, file]) await chmod(path, 0o644);
    assert.deepEqual(await store.load(), SAVED);
    for (const path of [store.key, file]) assert.equal(await modeOf(path), "600");
  });

  test("leave nothing behind where only was looked for them", async (store) => {
    assert.equal(await store.load(), undefined);
    assert.deepEqual(await readdir(store.root), []);
  });

  test("have nothing of their subject in them, not in their names either", async (store) => {
    const secrets = ["secret-arg", "secret-env", "secret-url", "secret-cwd", "secret-user"];
    const file = await store.saveFile({
      ...SNAPSHOT_KEY,
      args: ["secret-arg"],
      env: { TOKEN: "secret-env" },
      url: "https://example.com/secret-url",
      cwd: "/secret-cwd",
      principal: "secret-user",
    });
    const contents = [store.key, file].map((path) => readFile(path, "latin1"));
    const all = [...(await store.tree()), ...(await Promise.all(contents))].join("\n");
    assert.match(all, /Reads a file/);
    for (const secret of [...secrets, "TOKEN", "example.com"]) {
      for (const encoding of ["utf8", "hex", "base64"] as const) {
        const text = Buffer.from(secret).toString(encoding).replace(/=+$/, "");
        assert.ok(!all.includes(text), `${secret} as ${encoding}`);
      }
    }
  });

  test("have other names in another installation, so that none can be guessed, and are not used there", (store) =>
    withStore(async (other) => {
      const [file, foreign] = [await store.saveFile(), await other.saveFile()];
      assert.notEqual(basename(file), basename(foreign));
      await copyFile(foreign, file);
      assert.equal(await store.load(), undefined);
    }));

  test("are not written again by a start that finds the same listing, for a day", async (store) => {
    const file = await store.saveFile();
    const { ino } = await stat(file);
    store.time += DAY;
    await store.open().save(SNAPSHOT_KEY, ITEMS);
    assert.equal((await stat(file)).ino, ino);
    store.time++;
    await store.open().save(SNAPSHOT_KEY, ITEMS);
    assert.notEqual((await stat(file)).ino, ino);
  });
});

describe("a snapshot's file that is not what was written", () => {
  test("is ignored wherever a bit is wrong, it ends early or goes on, and is replaced by the next save", async (store) => {
    const file = await store.saveFile();
    const whole = await readFile(file);
    const isIgnored = async (damaged: Uint8Array): Promise<void> => {
      await writeFile(file, damaged);
      assert.equal(await store.load(), undefined);
    };
    await check(
      asyncProperty(nat(whole.length - 1), nat(7), async (at, bit) => {
        const flipped = Buffer.from(whole);
        flipped[at] = (whole[at] ?? 0) ^ (1 << bit);
        await isIgnored(flipped);
        await isIgnored(whole.subarray(0, at));
        await isIgnored(Buffer.concat([whole, whole.subarray(at)]));
      }),
      { numRuns: 100, examples: [0, 63, 64, whole.length - 1].map((at) => [at, 5]) },
    );
    await store.open().save(SNAPSHOT_KEY, ITEMS);
    assert.deepEqual(await readFile(file), whole);
  });

  test("is ignored under the name of another subject, and under its own after another key was made", async (store) => {
    const [file, other] = [await store.saveFile(), await store.saveFile(OTHER, EMPTY_LISTING)];
    await rename(file, other);
    assert.equal(await store.load(OTHER), undefined);
    await rename(other, file);
    assert.deepEqual(await store.load(), SAVED);
    await rm(store.key);
    assert.equal(await store.load(), undefined);
  });

  test("is ignored if it is not valid UTF-8, as what older versions kept may be", async (store) => {
    const bytes = utf8('{"tools":[{"name":"a","description":"?"}]}');
    bytes[bytes.indexOf(0x3f)] = 0xff;
    const items = readPage(bytes, { start: 0, end: bytes.length }, "tools")?.items ?? [];
    await store.open().save(SNAPSHOT_KEY, { ...EMPTY_LISTING, tools: items });
    assert.equal((await readdir(store.place)).length, 1);
    assert.equal(await store.load(), undefined);
  });

  const linkTo =
    (target: string) =>
    async (file: string, { root }: Store): Promise<void> => {
      await rm(file);
      await symlink(resolve(root, target), file);
    };
  /** What else may stand in a file's place. */
  const INSTEAD: Readonly<Record<string, (file: string, store: Store) => Promise<void>>> = {
    "an empty file": (file) => writeFile(file, ""),
    "a file of lines": (file) => writeFile(file, "\n".repeat(500)),
    "a file of 9 MiB": (file) => truncate(file, 9 * 1024 * 1024),
    "a file of a terabyte": (file) => truncate(file, 2 ** 40),
    "a link to a good one": async (file, store) => {
      await copyFile(file, join(store.root, "good"));
      await linkTo("good")(file, store);
    },
    "a link to nothing": linkTo("nothing"),
    "a device that never ends": linkTo("/dev/zero"),
    "a pipe that nobody writes": async (file) => {
      await rm(file);
      execFileSync("mkfifo", [file]);
    },
    "a folder": async (file) => {
      await rm(file);
      await mkdir(join(file, "more"), { recursive: true });
    },
  };
  for (const [what, put] of Object.entries(INSTEAD)) {
    test(`is not read but replaced if it is ${what}`, async (store) => {
      const file = await store.saveFile();
      await put(file, store);
      const readGood = () => readFile(join(store.root, "good")).catch(() => undefined);
      const good = await readGood();
      assert.equal(await store.load(), undefined);
      const items = toolListingOf(tool("read", "x"));
      await store.open().save(SNAPSHOT_KEY, items);
      assert.deepEqual(await store.load(), plainListing(items));
      assert.ok((await lstat(file)).isFile());
      assert.deepEqual(await readGood(), good, "what a link led to is untouched");
      assert.deepEqual(await readdir(store.place), [basename(file)]);
      assert.deepEqual(store.warnings, []);
    });
  }
});

describe("the key of an installation", () => {
  async function assertComplete({ folder }: Store): Promise<void> {
    assert.deepEqual((await readdir(folder)).toSorted(), ["installation.key", "snapshots"]);
  }

  test("is the same for all hubs that make it at once, also in place of a damaged one", async (store) => {
    const damages = [undefined, "", "f".repeat(64), `${"g".repeat(64)}\n`];
    for (const damaged of Array.from({ length: 2 }, () => damages).flat()) {
      await rm(store.folder, { recursive: true, force: true });
      if (damaged !== undefined) {
        await mkdir(store.folder, { recursive: true });
        await writeFile(store.key, damaged);
      }
      const subjects = keys(8);
      await Promise.all(subjects.map((subject) => store.open().save(subject, ITEMS)));
      for (const subject of subjects) {
        assert.deepEqual(await store.load(subject), SAVED, `instead of ${damaged}`);
      }
      await assertComplete(store);
    }
    assert.deepEqual(store.warnings, []);
  });

  const DAMAGE: Readonly<Record<string, (key: string, store: Store) => Promise<void>>> = {
    "is cut": (key) => truncate(key, 30),
    "lost its line end": (key) => truncate(key, 64),
    "is full of zeros": async (key) => writeFile(key, Buffer.alloc(65)),
    "is a terabyte long": (key) => truncate(key, 2 ** 40),
    "is a link": async (key, store) => {
      await rename(key, join(store.root, "key"));
      await symlink(join(store.root, "key"), key);
    },
    "is a folder": async (key) => {
      await rm(key);
      await mkdir(key);
    },
  };
  for (const [what, damage] of Object.entries(DAMAGE)) {
    test(`is replaced if it ${what}`, async (store) => {
      await store.saveFile();
      await damage(store.key, store);
      assert.equal(await store.load(), undefined);
      await store.open().save(SNAPSHOT_KEY, ITEMS);
      assert.deepEqual(await store.load(), SAVED);
      assert.match(await readFile(store.key, "utf8"), /^[0-9a-f]{64}\n$/);
      await assertComplete(store);
    });
  }

  test("is made although a hub left its draft behind when it ended", async (store) => {
    await mkdir(store.folder, { recursive: true });
    await writeFile(`${store.key}.draft`, "0");
    await store.snapshots.save(SNAPSHOT_KEY, ITEMS);
    assert.deepEqual(await store.load(), SAVED);
    assert.deepEqual(store.warnings, []);
    await assertComplete(store);
  });

  test("is made again, and used, by a hub that runs when the state folder is removed", async (store) => {
    const hub = store.snapshots;
    await hub.save(SNAPSHOT_KEY, ITEMS);
    assert.ok(await hub.load(SNAPSHOT_KEY));
    await rm(store.folder, { recursive: true });
    await hub.save(SNAPSHOT_KEY, ITEMS);
    assert.deepEqual(await store.load(), SAVED);
    assert.deepEqual(plainListing((await hub.load(SNAPSHOT_KEY))?.listing), SAVED);
  });
});

describe("hubs that share a folder", () => {
  test("find what another one kept since they started", async (store) => {
    assert.equal(await store.snapshots.load(SNAPSHOT_KEY), undefined);
    await store.open().save(SNAPSHOT_KEY, ITEMS);
    assert.deepEqual(plainListing((await store.snapshots.load(SNAPSHOT_KEY))?.listing), SAVED);
  });

  test("see all of one listing, never a part, while two write it", async (store) => {
    const versions = ["a", "b"].map((text) => toolListingOf(tool(text, text.repeat(300_000))));
    await store.snapshots.save(SNAPSHOT_KEY, versions[0] ?? EMPTY_LISTING);
    let isWriting = true;
    const write = async (first: number): Promise<void> => {
      const hub = store.open();
      for (let i = first; i < first + 20; i++)
        await hub.save(SNAPSHOT_KEY, versions[i % 2] ?? EMPTY_LISTING);
    };
    const writers = Promise.all([write(0), write(1)]).then(() => (isWriting = false));
    const whole = versions.map((items) => JSON.stringify(plainListing(items)));
    const seen = new Set<number>();
    while (isWriting) {
      seen.add(whole.indexOf(JSON.stringify(await store.load())));
      // Reading waits for nothing, so the writers would get no turn.
      await setImmediate();
    }
    await writers;
    assert.ok(seen.size > 0 && !seen.has(-1), "each time one of them was found");
    assert.equal((await readdir(store.place)).length, 1);
    assert.deepEqual(store.warnings, []);
  });

  test("remove the drafts of writers that ended, and leave those that may still be written", async (store) => {
    await mkdir(store.place, { recursive: true });
    const draftOf = (path: string): string => `${path}.${crypto.randomUUID()}.draft`;
    const MINUTE = 60_000;
    const files = [join(store.place, nameOf(1)), store.key];
    for (const file of files) await plant(draftOf(file), 10, START - 11 * MINUTE);
    const live = files.map(draftOf);
    for (const draft of live) await plant(draft, 10, START - 9 * MINUTE);
    await store.saveFile();
    const left = (await store.tree()).map((path) => join(store.folder, path));
    const drafts = left.filter((path) => path.endsWith(".draft"));
    assert.deepEqual(drafts, live.toSorted());
  });
});

describe("the folder of snapshots", () => {
  const MIB = 1024 * 1024;
  /** Files of so many bytes each, the first one the oldest, and what is left of them after a save. */
  async function surviving(store: Store, count: number, size: number): Promise<readonly number[]> {
    await mkdir(store.place, { recursive: true });
    for (let n = 0; n < count; n++) {
      await plant(join(store.place, nameOf(n)), size, START - (count - n) * 1000);
    }
    await store.open().save(SNAPSHOT_KEY, ITEMS);
    assert.deepEqual(await store.load(), SAVED);
    const names = new Set(await readdir(store.place));
    return Array.from({ length: count }, (_, n) => n).filter((n) => names.has(nameOf(n)));
  }

  test("holds 64 MiB and 500 snapshots at most: the oldest go", async (store) => {
    assert.deepEqual(await surviving(store, 10, 8 * MIB), [3, 4, 5, 6, 7, 8, 9]);
    await rm(store.folder, { recursive: true });
    const left = await surviving(store, 503, 1);
    assert.deepEqual([left.length, left[0]], [499, 4]);
  });

  test("holds none for longer than 30 days, and whatever else is in it", async (store) => {
    await mkdir(join(store.place, "folder"), { recursive: true });
    await plant(join(store.place, nameOf(1)), 10, START - 30 * DAY - 1000);
    await plant(join(store.place, nameOf(2)), 10, START - 30 * DAY + 1000);
    await plant(join(store.place, "notes"), 10, START - 90 * DAY);
    const file = await store.saveFile();
    const left = [nameOf(2), basename(file), "folder", "notes"];
    assert.deepEqual((await readdir(store.place)).toSorted(), left.toSorted());
  });

  test("loses a snapshot that is too old as soon as somebody looks for it", async (store) => {
    await store.saveFile();
    store.time += 30 * DAY + 1;
    assert.equal(await store.load(), undefined);
    assert.deepEqual(await readdir(store.place), []);
  });

  test("takes no file of more than 8 MiB, marks and all, and says so once", async (store) => {
    const long = toolListingOf(tool("a".repeat(3 * MIB), "x".repeat(3 * MIB)));
    for (const items of [long, long]) await store.snapshots.save(SNAPSHOT_KEY, items);
    assert.equal(await store.load(), undefined);
    assert.deepEqual(store.warnings, [
      "What a server lists is not saved if it is larger than 8388608 bytes; the first list after a start is complete only when every server has connected.",
    ]);
  });
});

describe("a folder that cannot be written", () => {
  const ways: Readonly<Record<string, (store: Store) => Promise<void>>> = {
    "because it is a file": async ({ folder }) => {
      await mkdir(join(folder, ".."), { recursive: true });
      await writeFile(folder, "");
    },
    "because it would be in a file": async ({ folder }) => writeFile(join(folder, ".."), ""),
    "because the folder of snapshots is a file": async ({ folder, place }) => {
      await mkdir(folder, { recursive: true });
      await writeFile(place, "");
    },
    "because the folder of snapshots is a link to nothing": async ({ folder, place }) => {
      await mkdir(folder, { recursive: true });
      await symlink(join(folder, "nothing"), place);
    },
  };
  for (const [why, prevent] of Object.entries(ways)) {
    test(`${why}, leads to one warning, and to nothing else`, async (store) => {
      await prevent(store);
      assert.equal(await store.snapshots.load(SNAPSHOT_KEY), undefined);
      for (const subject of [SNAPSHOT_KEY, OTHER, SNAPSHOT_KEY]) {
        await store.snapshots.save(subject, ITEMS);
      }
      await store.snapshots.flush();
      assert.equal(await store.snapshots.load(SNAPSHOT_KEY), undefined);
      const [warning = "", ...more] = store.warnings;
      assert.deepEqual(more, []);
      const beginning = `What servers list cannot be saved in ${store.place} (E`;
      assert.ok(warning.startsWith(beginning), warning);
      assert.ok(!/in-an?-/.test(warning), "no argument, variable or address is in it");
    });
  }

  // Permissions bind everybody but root.
  it("because it may not be, still gives what is in it, and leads to one warning", { skip }, () =>
    withStore(async (store) => {
      await store.saveFile();
      await chmod(store.place, 0o500);
      for (const text of ["one", "two"]) {
        await store.snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("read", text)));
      }
      assert.deepEqual(await store.load(), SAVED);
      assert.equal(store.warnings.length, 1);
      await chmod(store.place, 0o700);
    }),
  );
});
