import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { replaceFromTemp } from "../../src/base/private-files.ts";

async function withFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "toolmux-draft-"));
  try {
    await run(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

describe("a draft", () => {
  it("takes the place of a file, and of a folder", () =>
    withFolder(async (folder) => {
      const [draft, path] = [join(folder, "draft"), join(folder, "path")];
      for (const make of [() => writeFile(path, "old"), () => rm(path).then(() => mkdir(path))]) {
        await make();
        await writeFile(draft, "new");
        await replaceFromTemp(draft, path);
        assert.equal(await readFile(path, "utf8"), "new");
      }
    }));

  it("that cannot take the place of a file leaves that as it is", () =>
    withFolder(async (folder) => {
      const path = join(folder, "path");
      await writeFile(path, "old");
      await assert.rejects(replaceFromTemp(join(folder, "gone"), path));
      assert.equal(await readFile(path, "utf8"), "old");
    }));
});
