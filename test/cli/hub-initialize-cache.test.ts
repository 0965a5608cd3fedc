import assert from "node:assert/strict";
import {
  mkdtemp,
  readFile,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { InitializeCache } from "../../src/cli/hub-initialize-cache.ts";

const GREETING = { name: "toolmux", instructions: "# a\n\nBe brief." };

/** When what was written just now is old. */
const later = (): number => Date.now() + 60_000;

describe("what the hub has said to a client", () => {
  let home = "";
  let manifest = "";
  let kept = "";
  const open = (argv = ["serve"], env = {}): InitializeCache =>
    new InitializeCache(argv, { env: { HOME: home, ...env }, cwd: home, platform: "linux" }, later);

  /** Keeps the greeting as a start does that has loaded the manifest. */
  const keep = async (greetings = open(), greeting = GREETING): Promise<void> => {
    greetings.load();
    greetings.recordFiles([manifest, join(home, "absent.toml")]);
    await greetings.save(greeting);
  };

  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), "toolmux-greetings-"));
    manifest = join(home, "toolmux.toml");
    kept = join(home, ".local/state/toolmux/greetings.json");
    await writeFile(manifest, "[servers]");
  });
  afterEach(() => rm(home, { recursive: true, force: true }));

  it("is known to the next start with the same command line, and to no other", async () => {
    assert.equal(open().load(), undefined);
    await keep();
    assert.deepEqual(open().load(), GREETING);
    assert.equal(open(["serve", "--config", "b"]).load(), undefined);
    assert.equal(open(["serve"], { XDG_CONFIG_HOME: "/elsewhere" }).load(), undefined);
  });

  it("is another one below hubs with other manifests, whatever their processes", async () => {
    const below = (hubs: string) => open(["serve"], { TOOLMUX_HUBS: hubs });
    await keep(below("12:a,13:b"));
    assert.deepEqual(below("7:a,8:b").load(), GREETING);
    for (const hubs of ["", "7:a", "7:a,8:c", "7:a,8:b,9:b"]) {
      assert.equal(below(hubs).load(), undefined, hubs);
    }
  });

  it("is kept where nobody else can read it", async () => {
    await keep();
    assert.equal((await stat(kept)).mode & 0o777, 0o600);
    assert.equal((await stat(join(home, ".local/state/toolmux"))).mode & 0o777, 0o700);
  });

  it("is worth nothing once a file has changed, even if it is as long as before", async () => {
    await keep();
    await writeFile(manifest, "[plugins]");
    assert.equal(open().load(), undefined);
  });

  it("is worth nothing once there is a file that was not there", async () => {
    await keep();
    await writeFile(join(home, "absent.toml"), "");
    assert.equal(open().load(), undefined);
  });

  it("is not kept if a file has changed since the manifest was loaded", async () => {
    const greetings = open();
    greetings.recordFiles([manifest]);
    await writeFile(manifest, "[servers.a]");
    await greetings.save(GREETING);
    assert.equal(open().load(), undefined);
  });

  it("is not kept as long as a file is so new that it could change unseen", async () => {
    const greetings = new InitializeCache(["serve"], {
      env: { HOME: home },
      cwd: home,
      platform: "linux",
    });
    greetings.recordFiles([manifest]);
    await greetings.save(GREETING);
    assert.equal(open().load(), undefined);
  });

  it("is kept only two seconds after a change where times are in whole seconds", async () => {
    const second = Math.ceil(Date.now() / 1000) + 10;
    await utimes(manifest, second, second);
    for (const [after, isKept] of [
      [2000, false],
      [2200, true],
    ] as const) {
      const surroundings = { env: { HOME: home }, cwd: home, platform: "linux" };
      const greetings = new InitializeCache(["serve"], surroundings, () => second * 1000 + after);
      greetings.recordFiles([manifest]);
      await greetings.save(GREETING);
      assert.equal(open().load() !== undefined, isKept);
    }
  });

  it("is not kept of servers that stand in a variable, as they may hold secrets", async () => {
    const env = { TOOLMUX_SERVERS: "{}" };
    await keep(open(["serve"], env));
    assert.equal(open(["serve"], env).load(), undefined);
    await assert.rejects(stat(kept));
  });

  it("gives way to what is said later, and leaves that of others alone", async () => {
    const other = ["serve", "--config", "b"];
    await keep(open(other));
    await keep();
    await keep(open(), { name: "mine", instructions: "" });
    assert.deepEqual(open().load(), { name: "mine", instructions: "" });
    assert.deepEqual(open(other).load(), GREETING);
  });

  it("is kept of the last sixteen command lines", async () => {
    for (let at = 0; at < 20; at++) await keep(open(["serve", `${at}`]));
    const known = Array.from({ length: 20 }, (_, at) => open(["serve", `${at}`]).load());
    assert.deepEqual(
      known.map((greeting) => greeting !== undefined),
      [...Array<boolean>(4).fill(false), ...Array<boolean>(16).fill(true)],
    );
  });

  it("is forgotten if the file is damaged, and kept again", async () => {
    await keep();
    for (const damage of ["", "{", "[1,null,{}]", `[{"cause":"x","files":{},"greeting":null}]`]) {
      await writeFile(kept, damage);
      assert.equal(open().load(), undefined);
    }
    await keep();
    assert.deepEqual(open().load(), GREETING);
  });

  it("is looked for in a file that is not too long, and in nothing else", async () => {
    await keep();
    await truncate(kept, 2 ** 40);
    assert.equal(open().load(), undefined);
    await rm(kept);
    await symlink("/dev/zero", kept);
    assert.equal(open().load(), undefined);
  });

  it("is forgotten with the oldest as far as there is no room for all", async () => {
    const long = { name: "toolmux", instructions: "ü".repeat(30_000) };
    for (let at = 0; at < 6; at++) await keep(open(["serve", `${at}`]), long);
    const known = Array.from({ length: 6 }, (_, at) => open(["serve", `${at}`]).load());
    assert.deepEqual(
      known.map((greeting) => greeting !== undefined),
      [false, false, true, true, true, true],
    );
  });

  it("is forgotten if there is none that is good for the next client", async () => {
    const other = ["serve", "--config", "b"];
    await keep(open(other));
    await keep();
    const greetings = open();
    greetings.load();
    greetings.recordFiles([manifest]);
    await greetings.save(undefined);
    assert.equal(open().load(), undefined);
    assert.deepEqual(open(other).load(), GREETING);
  });

  it("is not written again if it is the same", async () => {
    await keep();
    const before = await readFile(kept, "utf8");
    const { ino } = await stat(kept);
    await keep();
    assert.equal(await readFile(kept, "utf8"), before);
    assert.equal((await stat(kept)).ino, ino);
  });
});
