import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { withAccepted } from "../../src/pins/baseline.ts";
import { diskBaselines } from "../../src/pins/disk.ts";

const definition = (name: string) => ({ kind: "tool" as const, name, digest: "d", at: 1 });

function itIn(what: string, use: (folder: string) => Promise<void>): void {
  it(what, async () => {
    const folder = await mkdtemp(join(tmpdir(), "toolmux-pins-"));
    try {
      await use(folder);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}

describe("baselines on disk", () => {
  itIn("are private, and hide the identity of the server", async (folder) => {
    const store = diskBaselines(folder);
    const key = await store.keyOf("node server.js --token secret", "s");
    await store.update(key, () => ({ server: "s", accepted: [definition("a")] }));
    const [file = "", ...more] = await readdir(join(folder, "pins"));
    assert.deepEqual(more, []);
    const path = join(folder, "pins", file);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.doesNotMatch((await readFile(path, "utf8")) + file, /secret/);
  });

  itIn("are the same for all hubs, each of which sees what others accept", async (folder) => {
    const [one, other] = [diskBaselines(folder), diskBaselines(folder)];
    const key = await one.keyOf("i", "s");
    assert.equal(await other.keyOf("i", "s"), key);
    assert.notEqual(await one.keyOf("i", "t"), key, "the name does not count");
    assert.notEqual(await one.keyOf("j", "s"), key, "the identity does not count");
    assert.equal(await other.digests(key), "none");
    const before = await other.version();
    await one.update(key, () => ({ server: "s", accepted: [definition("a")] }));
    assert.notEqual(await other.version(), before);
    const digests = await other.digests(key);
    assert.ok(typeof digests !== "string");
    assert.deepEqual([...digests.keys()], ["tool a"]);
  });

  itIn("lose nothing when several hubs change them at once", async (folder) => {
    const names = Array.from({ length: 12 }, (_, at) => `t${at}`);
    const key = await diskBaselines(folder).keyOf("i", "s");
    await Promise.all(
      names.map((name) =>
        diskBaselines(folder).update(key, (before) =>
          withAccepted(
            typeof before === "string" ? { server: "s", accepted: [] } : before,
            [definition(name)],
            () => false,
          ),
        ),
      ),
    );
    const baseline = await diskBaselines(folder).read(key);
    assert.ok(typeof baseline !== "string");
    assert.deepEqual(new Set(baseline.accepted.map(({ name }) => name)), new Set(names));
  });

  itIn("that are damaged are told, kept, and can be forgotten", async (folder) => {
    const store = diskBaselines(folder);
    const key = await store.keyOf("i", "s");
    await store.update(key, () => ({ server: "s", accepted: [] }));
    const path = join(folder, "pins", `${key}.json`);
    await writeFile(path, '{"version":1');
    assert.equal(await store.digests(key), "damaged");
    await assert.rejects(
      store.update(key, (read) => {
        if (typeof read === "string") throw new Error(read);
        return read;
      }),
      /damaged/,
    );
    assert.equal(await readFile(path, "utf8"), '{"version":1');
    assert.equal(await store.forget("s", [key]), true);
    assert.equal(await store.digests(key), "none");
  });

  itIn("are forgotten by the name of their server, under all identities", async (folder) => {
    const store = diskBaselines(folder);
    for (const [identity, server] of [
      ["i", "s"],
      ["j", "s"],
      ["i", "t"],
    ] as const) {
      const key = await store.keyOf(identity, server);
      await store.update(key, () => ({ server, accepted: [] }));
    }
    assert.equal(await store.forget("s", []), true);
    assert.equal((await readdir(join(folder, "pins"))).length, 1);
    assert.equal(await store.forget("s", []), false);
  });
});
