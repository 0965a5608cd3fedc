import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { diskApprovals } from "../../src/approval/disk.ts";

async function inFolder(run: (folder: string, file: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-approvals-"));
  try {
    await run(folder, join(folder, "approvals.json"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const ENTRY = { server: "s", tool: "t", clientName: "c", at: 1 };

describe("what was allowed for good", () => {
  it("counts in all hubs of a user at once, as does what is forgotten, whoever writes at the same time", () =>
    inFolder(async (folder, file) => {
      const [one, two] = [diskApprovals(folder), diskApprovals(folder)];
      const keys = await Promise.all(
        Array.from({ length: 12 }, (_, i) => one.keyOf([`server ${i}`, "tool"])),
      );
      assert.equal(await two.keyOf(["server 3", "tool"]), keys[3]);
      await Promise.all(keys.map((key, i) => (i % 2 === 0 ? one : two).allow(key, ENTRY)));
      const allowed = await Promise.all(keys.map((key) => one.allows(key)));
      assert.ok(allowed.every(Boolean));
      assert.equal(statSync(file).mode & 0o777, 0o600);
      assert.deepEqual(readdirSync(folder).toSorted(), ["approvals.json", "installation.key"]);
      const [first] = await two.list();
      assert.deepEqual(await two.forget([first?.id ?? ""]), [first?.id]);
      assert.equal((await one.list()).length, 11);
      assert.equal((await one.forget(undefined)).length, 11);
      assert.equal(await two.allows(keys[0] ?? ""), false);
    }));

  it("is nothing if the file is damaged, which is written anew with the next decision", () =>
    inFolder(async (folder, file) => {
      const store = diskApprovals(folder);
      const key = await store.keyOf(["a"]);
      for (const text of [
        "",
        "{",
        "[]",
        '{"version":2,"allowed":[],"known":{}}',
        `{"version":1,"allowed":[{"key":"${key}"},1],"known":{"k":{"server":"s","tools":[["t",1]]}}}`,
      ]) {
        writeFileSync(file, text);
        assert.equal(await store.allows(key), false, text);
        assert.deepEqual(
          [...(await store.recordFirstHints("k", "s", new Map([["t", true]])))],
          ["t"],
        );
        await store.allow(key, ENTRY);
        assert.equal(await store.allows(key), true);
      }
    }));

  it("keeps what a tool said of itself when it was first known, until that is accepted", () =>
    inFolder(async (folder) => {
      const readOnly = async (...tools: readonly (readonly [string, boolean])[]) => [
        ...(await diskApprovals(folder).recordFirstHints("key", "s", new Map(tools))),
      ];
      assert.deepEqual(await readOnly(["a", true], ["b", false]), ["a"]);
      assert.deepEqual(await readOnly(["a", false], ["b", true], ["c", true]), ["a", "c"]);
      assert.equal(await diskApprovals(folder).forgetFirstHints("other"), false);
      assert.equal(await diskApprovals(folder).forgetFirstHints("s"), true);
      assert.deepEqual(await readOnly(["a", false], ["b", true]), ["b"]);
    }));
});
