import assert from "node:assert/strict";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { diskApprovals, SharedFile } from "../../src/approval/disk.ts";

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

  it("is nothing if the file is damaged, which is kept beside, told once, and written anew; hints are unknown then", () =>
    inFolder(async (folder, file) => {
      const key = await diskApprovals(folder).keyOf(["a"]);
      for (const text of [
        "",
        "{",
        "[]",
        "\0\u{fffd}",
        '{"version":2,"allowed":[],"known":{}}',
        '{"version":1,"allowed":[]}',
        '{"version":1,"allowed":{},"known":{}}',
        '{"version":1,"allowed":[],"known":{},"lost":true}',
        `{"version":1,"allowed":[{"key":"${key}"},1],"known":{"k":{"server":"s","tools":[["t",1]]}}}`,
        // A client cannot have allowed a tool for good.
        `{"version":1,"allowed":[{"id":"1","key":"${key}","server":"s","tool":"t","clientName":"c","at":1,"by":"client"}],"known":{}}`,
      ]) {
        const store = diskApprovals(folder);
        const told: string[] = [];
        store.onDamage = (line) => told.push(line);
        writeFileSync(file, text);
        const hints = new Map([["t", true]]);
        assert.equal(await store.allows(key), false, text);
        assert.equal(told.length, 1, text);
        const kept = readdirSync(folder).filter((name) => name.includes(".damaged-"));
        assert.deepEqual(
          kept.map((name) => readFileSync(join(folder, name), "utf8")),
          [text],
        );
        assert.ok(told[0]?.includes(kept[0] ?? "none"));
        assert.deepEqual([...(await store.recordFirstHints("k", "s", hints))], [], text);
        const other = diskApprovals(folder);
        other.onDamage = () => assert.fail("it is told once");
        assert.deepEqual([...(await other.recordFirstHints("l", "new", hints))], [], text);
        assert.equal(await other.forgetFirstHints("s"), true);
        assert.deepEqual([...(await other.recordFirstHints("k", "s", hints))], ["t"], text);
        await store.allow(key, ENTRY);
        assert.equal(await store.allows(key), true);
        assert.equal(told.length, 1, text);
        for (const name of kept) rmSync(join(folder, name));
        rmSync(file);
      }
    }));

  it("counts as damaged if it cannot be read: too large, a folder, a link", () =>
    inFolder(async (folder, file) => {
      for (const make of [
        () => writeFileSync(file, " ".repeat(16 * 1024 * 1024 + 1)),
        () => mkdirSync(file),
        () => symlinkSync("elsewhere", file),
      ]) {
        make();
        const store = diskApprovals(folder);
        let count = 0;
        store.onDamage = () => void count++;
        const hints = new Map([["t", true]]);
        assert.deepEqual([...(await store.recordFirstHints("k", "s", hints))], []);
        assert.equal(count, 1);
        rmSync(file);
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

describe("a file that processes share", () => {
  it("is read whole if another process writes it for the first time meanwhile", () =>
    inFolder(async (folder, path) => {
      const file = new SharedFile(path, 1000);
      for (let turns = 0; turns < 20; turns++) {
        const reading = file.read();
        for (let n = 0; n < turns; n++) await Promise.resolve();
        writeFileSync(join(folder, "written"), "all of it");
        renameSync(join(folder, "written"), path);
        const text = await reading;
        assert.ok(text === undefined || text === "all of it", `${turns}: ${JSON.stringify(text)}`);
        rmSync(path);
      }
      assert.equal(await file.read(), undefined);
      mkdirSync(path);
      assert.equal(await file.read(), "", "what is there and no file is damaged");
    }));
});
