import assert from "node:assert/strict";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { describe } from "node:test";
import { MEMORY_LIMITS, MemoryFile } from "../../src/agent-files/memory-file.ts";
import { itIn } from "../harness/in-folder.ts";

const NEVER = new AbortController().signal;
const make = (home: string, source = "/a.yaml", name = "root"): MemoryFile =>
  new MemoryFile(source, name, { env: { HOME: home }, platform: "linux" });
const entry = (memory: string) => ({ id: memory, at: "2020-01-01T00:00:00Z", memory });
const textsOf = async (file: MemoryFile): Promise<readonly string[]> =>
  (await file.read()).map(({ memory }) => memory);

describe("the memory of an agent", () => {
  itIn("is one for each file and name, and only the user can read it", async ({ home }) => {
    await make(home).change((all) => [...all, entry("one")], NEVER);
    assert.deepEqual(await textsOf(make(home)), ["one"]);
    assert.deepEqual(await textsOf(make(home, "/b.yaml")), []);
    assert.deepEqual(await textsOf(make(home, "/a.yaml", "./x.db")), []);
    const path = await make(home).path();
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.equal((await stat(dirname(path))).mode & 0o777, 0o700);
  });

  itIn("loses nothing if several change it at once", async ({ home }) => {
    const numbers = Array.from({ length: 20 }, (_, at) => `m${at}`);
    await Promise.all(
      numbers.map((text) => make(home).change((all) => [...all, entry(text)], NEVER)),
    );
    assert.deepEqual((await textsOf(make(home))).toSorted(), numbers.toSorted());
    assert.equal((await readdir(dirname(await make(home).path()))).length, 1);
  });

  itIn("has a limit, and stays as it was when that is exceeded", async ({ home }) => {
    const file = make(home);
    await file.change(() => [entry("one")], NEVER);
    const many = Array.from({ length: MEMORY_LIMITS.count + 1 }, () => entry("x"));
    const long = Array.from({ length: 500 }, () => entry("x".repeat(MEMORY_LIMITS.length)));
    for (const memories of [many, long])
      await assert.rejects(
        file.change(() => memories, NEVER),
        { code: "invalidParams" },
      );
    assert.deepEqual(await textsOf(file), ["one"]);
  });

  itIn("that is damaged is reported, and not replaced", async ({ home }) => {
    const file = make(home);
    await file.change(() => [entry("one")], NEVER);
    const path = await file.path();
    await writeFile(path, "{oops");
    await assert.rejects(file.read(), { code: "storeBroken" });
    await assert.rejects(
      file.change(() => [], NEVER),
      { code: "storeBroken" },
    );
    assert.equal(await readFile(path, "utf8"), "{oops");
  });
});
