import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { LogFile } from "../../plugins/audit-log/file.ts";
import { runtimeName } from "../../src/base/runtime.ts";
import { withDeadline, poll } from "../harness/wait.ts";

const BIG = { maxSize: 1_000_000, keep: 5 };
const LIMIT = { timeout: 60_000 };

async function withFolder(run: (folder: string, path: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-audit-"));
  try {
    await run(folder, join(folder, "audit.jsonl"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function read(path: string): string {
  return readFileSync(path, "utf8");
}

function modeOf(path: string): string {
  return (statSync(path).mode & 0o777).toString(8);
}

describe("a log file", () => {
  it("is made with its folders, for its owner alone", () =>
    withFolder(async (folder) => {
      const path = join(folder, "a", "b", "audit.jsonl");
      assert.equal(await new LogFile(path, BIG).append(["1", "2"]), 2);
      assert.equal(read(path), "1\n2\n");
      assert.equal(modeOf(path), "600");
      assert.deepEqual([modeOf(join(folder, "a")), modeOf(join(folder, "a", "b"))], ["700", "700"]);
    }));

  it("is added to, and becomes private if it was not", () =>
    withFolder(async (_, path) => {
      writeFileSync(path, "0\n");
      chmodSync(path, 0o644);
      await new LogFile(path, BIG).append(["1"]);
      assert.equal(read(path), "0\n1\n");
      assert.equal(modeOf(path), "600");
    }));

  it("begins anew after it was moved or removed, with its folder as well", () =>
    withFolder(async (folder) => {
      const path = join(folder, "logs", "audit.jsonl");
      const file = new LogFile(path, BIG);
      await file.append(["1"]);
      renameSync(path, `${path}.old`);
      await file.append(["2"]);
      assert.deepEqual([read(`${path}.old`), read(path)], ["1\n", "2\n"]);
      rmSync(path);
      await file.append(["3"]);
      assert.equal(read(path), "3\n");
      rmSync(join(folder, "logs"), { recursive: true });
      await file.append(["4"]);
      assert.equal(read(path), "4\n");
    }));

  it("does not let a line run into one that was cut off", () =>
    withFolder(async (_, path) => {
      writeFileSync(path, '{"time":"20');
      const file = new LogFile(path, BIG);
      await file.append(["1"]);
      await file.append(["2"]);
      assert.equal(read(path), '{"time":"20\n1\n2\n');
    }));

  it("is not written to through a symbolic link, and nothing but a file is", () =>
    withFolder(async (folder, path) => {
      writeFileSync(join(folder, "other"), "");
      symlinkSync(join(folder, "other"), path);
      const file = new LogFile(path, BIG);
      await assert.rejects(file.append(["1"]), { message: /symbolic link/ });
      assert.equal(read(join(folder, "other")), "");
      rmSync(path);
      mkdirSync(path);
      await assert.rejects(file.append(["1"]), { code: "EISDIR" });
      rmSync(path, { recursive: true });
      assert.equal(spawnSync("mkfifo", [path]).status, 0);
      await assert.rejects(file.append(["1"]), { message: /no file/ });
    }));

  it("fails on a device that is full", { skip: !existsSync("/dev/full") }, async () => {
    const before = modeOf("/dev/full");
    await assert.rejects(new LogFile("/dev/full", BIG).append(["1"]), { code: "ENOSPC" });
    assert.equal(modeOf("/dev/full"), before);
    assert.equal(await new LogFile("/dev/null", { maxSize: 1, keep: 1 }).append(["1", "2"]), 2);
    assert.ok(!existsSync("/dev/null.1"));
  });
});

describe("rotation", () => {
  it("keeps so many old files, the newest under 1, none longer than it may be", () =>
    withFolder(async (folder, path) => {
      const file = new LogFile(path, { maxSize: 8, keep: 2 });
      let lines = Array.from({ length: 9 }, (_, i) => `${i}é`);
      while (lines.length > 0) lines = lines.slice(await file.append(lines));
      assert.deepEqual(readdirSync(folder).toSorted(), [
        "audit.jsonl",
        "audit.jsonl.1",
        "audit.jsonl.2",
      ]);
      const files = [path, `${path}.1`, `${path}.2`].map(read);
      assert.deepEqual(files, ["8é\n", "6é\n7é\n", "4é\n5é\n"]);
      assert.equal(modeOf(`${path}.1`), "600");
    }));

  it("gives a line that is longer than a file may be one of its own", () =>
    withFolder(async (_, path) => {
      const file = new LogFile(path, { maxSize: 3, keep: 5 });
      for (const line of ["1", "too long", "2"]) assert.equal(await file.append([line]), 1);
      assert.deepEqual([path, `${path}.1`, `${path}.2`].map(read), ["2\n", "too long\n", "1\n"]);
    }));

  it("keeps no old file if none is wanted", () =>
    withFolder(async (folder, path) => {
      const file = new LogFile(path, { maxSize: 4, keep: 0 });
      for (const line of ["1", "2", "3"]) await file.append([line]);
      assert.deepEqual(readdirSync(folder), ["audit.jsonl"]);
      assert.equal(read(path), "3\n");
    }));

  it("is left to the hub that is at it, while lines go on", () =>
    withFolder(async (folder, path) => {
      const file = new LogFile(path, { maxSize: 4, keep: 5 });
      await file.append(["1", "2"]);
      const lock = `${path}.lock`;
      writeFileSync(lock, "");
      await file.append(["3"]);
      assert.equal(read(path), "1\n2\n3\n");
      const longAgo = new Date(Date.now() - 60_000);
      utimesSync(lock, longAgo, longAgo);
      await file.append(["4"]);
      await file.append(["5"]);
      assert.deepEqual([read(path), read(`${path}.1`)], ["5\n", "1\n2\n3\n4\n"]);
      assert.deepEqual(readdirSync(folder).toSorted(), ["audit.jsonl", "audit.jsonl.1"]);
    }));
});

interface Line {
  readonly writer: string;
  readonly number: number;
}

/** Starts a process that logs as fast as it can. */
function startWriter(
  path: string,
  maxSize: number,
  keep: number,
  name: string,
  count: number,
  blocks?: number,
): ChildProcess {
  const script = fileURLToPath(new URL("../fixtures/audit/log-writer.ts", import.meta.url));
  const before = runtimeName === "deno" ? ["run", "-A", "--no-check"] : [];
  const args = [...before, script, path, String(maxSize), String(keep), name, String(count)];
  const limited = blocks === undefined ? "" : `ulimit -f ${blocks}; trap '' XFSZ; `;
  const shell = ["-c", `${limited}exec "$@"`, "sh", process.execPath, ...args];
  return spawn("sh", shell, { stdio: ["ignore", "pipe", "inherit"] });
}

/** The stdout of a process until its end. */
function outputOf(child: ChildProcess): Promise<string> {
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  return withDeadline(
    40_000,
    () => `the end of a writer, which has said ${JSON.stringify(output)}`,
    (resolve) => {
      child.on("close", () => resolve(output));
      return () => child.kill("SIGKILL");
    },
  );
}

/** All lines of the files in a folder, oldest file first. */
function linesIn(folder: string): string[] {
  const files = readdirSync(folder).toSorted((a, b) => ageOf(b) - ageOf(a));
  return files.flatMap((file) => read(join(folder, file)).split("\n").slice(0, -1));
}

function ageOf(file: string): number {
  return Number(/\.(\d+)$/.exec(file)?.[1] ?? 0);
}

function numbersOf(lines: readonly string[], writer: string): number[] {
  return lines
    .map((line) => JSON.parse(line) as Line)
    .filter((line) => line.writer === writer)
    .map(({ number }) => number);
}

describe("hubs that log", () => {
  it("to one file that rotates keep all of each other's lines, whole", LIMIT, () =>
    withFolder(async (folder, path) => {
      const writers = ["a", "b", "c"].map((name) => startWriter(path, 30_000, 100, name, 3000));
      assert.deepEqual(await Promise.all(writers.map(outputOf)), ["", "", ""]);
      const lines = linesIn(folder);
      assert.ok(readdirSync(folder).length > 20);
      const all = Array.from({ length: 3000 }, (_, i) => i);
      for (const name of ["a", "b", "c"]) {
        const numbers = numbersOf(lines, name).toSorted((a, b) => a - b);
        assert.deepEqual(numbers, all);
      }
    }),
  );

  it("and are killed leave whole lines, except for the last", LIMIT, () =>
    withFolder(async (_, path) => {
      for (const name of ["a", "b", "c"]) {
        const child = startWriter(path, 1e9, 1, name, Infinity);
        const ended = outputOf(child);
        const before = existsSync(path) ? statSync(path).size : 0;
        try {
          await poll(
            20_000,
            () => "lines",
            () => (existsSync(path) && statSync(path).size > before + 200_000) || undefined,
          );
        } finally {
          child.kill("SIGKILL");
          await ended;
        }
      }
      await new LogFile(path, { maxSize: 1e9, keep: 1 }).append(["{}"]);
      const lines = read(path).split("\n").slice(0, -1);
      const broken = lines.filter((line) => !isJson(line));
      assert.ok(broken.length <= 3, `${broken.length} broken lines`);
      const whole = lines.filter(isJson);
      for (const name of ["a", "b", "c"]) {
        const numbers = numbersOf(whole, name);
        assert.ok(numbers.length > 500);
        assert.deepEqual(numbers, [...numbers.keys()]);
      }
    }),
  );

  it("on a disk that is full in the middle of a line tell how many are lost", LIMIT, () =>
    withFolder(async (_, path) => {
      const output = await outputOf(startWriter(path, 1e9, 1, "a", 500, 32));
      const [failed = "", lost = ""] = output.split("\n");
      assert.match(failed, /^warn: .* cannot be written: .*too large/);
      const count = Number(/^warn: (\d+) lines could not be written/.exec(lost)?.[1]);
      const file = new LogFile(path, { maxSize: 1e9, keep: 1 });
      await file.append(['{"writer":"b","number":0}']);
      const lines = read(path).split("\n").slice(0, -1);
      const whole = lines.filter(isJson);
      assert.equal(lines.length - whole.length, 1);
      assert.equal(isJson(lines.at(-2) ?? ""), false);
      const numbers = numbersOf(whole, "a");
      assert.deepEqual(numbers, [...numbers.keys()]);
      assert.equal(numbers.length + count, 500);
      assert.deepEqual(numbersOf(whole, "b"), [0]);
    }),
  );
});

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
