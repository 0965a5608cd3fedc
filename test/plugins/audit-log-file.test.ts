import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { LogFile } from "../../plugins/audit-log/file.ts";
import { withFolder } from "../contract/plugin-setup.ts";
import { withDeadline, poll } from "../harness/wait.ts";

const BIG = { maxSize: 1_000_000, keep: 5 };
const LIMIT = { timeout: 60_000 };

/** A test with a folder and the path of a file in it. */
function test(
  sentence: string,
  run: (folder: string, path: string) => Promise<void>,
  options: object = {},
): void {
  it(sentence, options, () => withFolder((folder) => run(folder, join(folder, "audit.jsonl"))));
}

function read(path: string): string {
  return fs.readFileSync(path, "utf8");
}

function modeOf(path: string): string {
  return (fs.statSync(path).mode & 0o777).toString(8);
}

describe("a log file", () => {
  test("is made with its folders, for its owner alone", async (folder) => {
    const path = join(folder, "a", "b", "audit.jsonl");
    assert.equal(await new LogFile(path, BIG).append(["1", "2"]), 2);
    assert.equal(read(path), "1\n2\n");
    assert.equal(modeOf(path), "600");
    assert.deepEqual([modeOf(join(folder, "a")), modeOf(join(folder, "a", "b"))], ["700", "700"]);
  });

  test("is added to, and becomes private if it was not", async (_, path) => {
    fs.writeFileSync(path, "0\n");
    fs.chmodSync(path, 0o644);
    await new LogFile(path, BIG).append(["1"]);
    assert.equal(read(path), "0\n1\n");
    assert.equal(modeOf(path), "600");
  });

  test("begins anew after it was moved or removed, with its folder as well", async (folder) => {
    const path = join(folder, "logs", "audit.jsonl");
    const file = new LogFile(path, BIG);
    await file.append(["1"]);
    fs.renameSync(path, `${path}.old`);
    await file.append(["2"]);
    assert.deepEqual([read(`${path}.old`), read(path)], ["1\n", "2\n"]);
    fs.rmSync(path);
    await file.append(["3"]);
    assert.equal(read(path), "3\n");
    fs.rmSync(join(folder, "logs"), { recursive: true });
    await file.append(["4"]);
    assert.equal(read(path), "4\n");
  });

  test("does not let a line run into one that was cut off", async (_, path) => {
    fs.writeFileSync(path, '{"time":"20');
    const file = new LogFile(path, BIG);
    await file.append(["1"]);
    await file.append(["2"]);
    assert.equal(read(path), '{"time":"20\n1\n2\n');
  });

  test("is not written to through a symbolic link, and nothing but a file is", async (folder, path) => {
    fs.writeFileSync(join(folder, "other"), "");
    fs.symlinkSync(join(folder, "other"), path);
    const file = new LogFile(path, BIG);
    await assert.rejects(file.append(["1"]), { message: /symbolic link/ });
    assert.equal(read(join(folder, "other")), "");
    fs.rmSync(path);
    fs.mkdirSync(path);
    await assert.rejects(file.append(["1"]), { code: "EISDIR" });
    fs.rmSync(path, { recursive: true });
    assert.equal(spawnSync("mkfifo", [path]).status, 0);
    await assert.rejects(file.append(["1"]), { message: /no file/ });
  });

  it("fails on a device that is full", { skip: !fs.existsSync("/dev/full") }, async () => {
    const before = modeOf("/dev/full");
    await assert.rejects(new LogFile("/dev/full", BIG).append(["1"]), { code: "ENOSPC" });
    assert.equal(modeOf("/dev/full"), before);
    assert.equal(await new LogFile("/dev/null", { maxSize: 1, keep: 1 }).append(["1", "2"]), 2);
    assert.ok(!fs.existsSync("/dev/null.1"));
  });
});

describe("rotation", () => {
  test("keeps so many old files, the newest under 1, none longer than it may be", async (folder, path) => {
    const file = new LogFile(path, { maxSize: 8, keep: 2 });
    let lines = Array.from({ length: 9 }, (_, i) => `${i}é`);
    while (lines.length > 0) lines = lines.slice(await file.append(lines));
    const names = ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"];
    assert.deepEqual(fs.readdirSync(folder).toSorted(), names);
    const files = names.map((name) => read(join(folder, name)));
    assert.deepEqual(files, ["8é\n", "6é\n7é\n", "4é\n5é\n"]);
    assert.equal(modeOf(`${path}.1`), "600");
  });

  test("gives a line that is longer than a file may be one of its own", async (_, path) => {
    const file = new LogFile(path, { maxSize: 3, keep: 5 });
    for (const line of ["1", "too long", "2"]) assert.equal(await file.append([line]), 1);
    assert.deepEqual([path, `${path}.1`, `${path}.2`].map(read), ["2\n", "too long\n", "1\n"]);
  });

  test("keeps no old file if none is wanted", async (folder, path) => {
    const file = new LogFile(path, { maxSize: 4, keep: 0 });
    for (const line of ["1", "2", "3"]) await file.append([line]);
    assert.deepEqual(fs.readdirSync(folder), ["audit.jsonl"]);
    assert.equal(read(path), "3\n");
  });

  test("is left to the hub that is at it, while lines go on", async (folder, path) => {
    const file = new LogFile(path, { maxSize: 4, keep: 5 });
    await file.append(["1", "2"]);
    const lock = `${path}.lock`;
    fs.writeFileSync(lock, "");
    await file.append(["3"]);
    assert.equal(read(path), "1\n2\n3\n");
    const longAgo = new Date(Date.now() - 60_000);
    fs.utimesSync(lock, longAgo, longAgo);
    await file.append(["4"]);
    await file.append(["5"]);
    assert.deepEqual([read(path), read(`${path}.1`)], ["5\n", "1\n2\n3\n4\n"]);
    assert.deepEqual(fs.readdirSync(folder).toSorted(), ["audit.jsonl", "audit.jsonl.1"]);
  });
});

/** Starts a process that logs as fast as it can. @param options its path, maxSize, keep, name, and count of lines */
function startWriter(options: readonly (string | number)[], limited = ""): ChildProcess {
  const script = fileURLToPath(new URL("../fixtures/processes/log-writer.ts", import.meta.url));
  const args = [script, ...options.map(String)];
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
  const files = fs.readdirSync(folder).toSorted((a, b) => ageOf(b) - ageOf(a));
  return files.flatMap((file) => linesOf(join(folder, file)));
}

const linesOf = (path: string): string[] => read(path).split("\n").slice(0, -1);

function ageOf(file: string): number {
  return Number(/\.(\d+)$/.exec(file)?.[1] ?? 0);
}

function numbersOf(lines: readonly string[], writer: string): number[] {
  const all = lines.map((line) => JSON.parse(line) as { writer: string; number: number });
  return all.filter((line) => line.writer === writer).map(({ number }) => number);
}

describe("hubs that log", () => {
  test(
    "to one file that rotates keep all of each other's lines, whole",
    async (folder, path) => {
      const writers = ["a", "b", "c"].map((name) => startWriter([path, 10_000, 100, name, 1000]));
      assert.deepEqual(await Promise.all(writers.map(outputOf)), ["", "", ""]);
      const lines = linesIn(folder);
      assert.ok(fs.readdirSync(folder).length > 20);
      for (const name of ["a", "b", "c"]) {
        const numbers = numbersOf(lines, name).toSorted((a, b) => a - b);
        assert.equal(numbers.length, 1000);
        assert.deepEqual(numbers, [...numbers.keys()]);
      }
    },
    LIMIT,
  );

  test(
    "and are killed leave whole lines, except for the last",
    async (_, path) => {
      for (const name of ["a", "b", "c"]) {
        const child = startWriter([path, 1e9, 1, name, Infinity]);
        const ended = outputOf(child);
        const size = (): number => fs.statSync(path, { throwIfNoEntry: false })?.size ?? 0;
        const enough = size() + 200_000;
        try {
          await poll(
            20_000,
            () => "lines",
            () => size() > enough || undefined,
          );
        } finally {
          child.kill("SIGKILL");
          await ended;
        }
      }
      await new LogFile(path, { maxSize: 1e9, keep: 1 }).append(["{}"]);
      const lines = linesOf(path);
      const whole = lines.filter(isJson);
      assert.ok(lines.length - whole.length <= 3, `${lines.length - whole.length} broken lines`);
      for (const name of ["a", "b", "c"]) {
        const numbers = numbersOf(whole, name);
        assert.ok(numbers.length > 500);
        assert.deepEqual(numbers, [...numbers.keys()]);
      }
    },
    LIMIT,
  );

  test(
    "on a disk that is full in the middle of a line tell how many are lost",
    async (_, path) => {
      const limited = "ulimit -f 32; trap '' XFSZ; ";
      const output = await outputOf(startWriter([path, 1e9, 1, "a", 500], limited));
      const [failed = "", lost = ""] = output.split("\n");
      assert.match(failed, /^warn: .* cannot be written: .*too large/);
      const count = Number(/^warn: (\d+) lines could not be written/.exec(lost)?.[1]);
      const file = new LogFile(path, { maxSize: 1e9, keep: 1 });
      await file.append(['{"writer":"b","number":0}']);
      const lines = linesOf(path);
      const whole = lines.filter(isJson);
      assert.equal(lines.length - whole.length, 1);
      assert.equal(isJson(lines.at(-2) ?? ""), false);
      const numbers = numbersOf(whole, "a");
      assert.deepEqual(numbers, [...numbers.keys()]);
      assert.equal(numbers.length + count, 500);
      assert.deepEqual(numbersOf(whole, "b"), [0]);
    },
    LIMIT,
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
