import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LineQueue, type LineQueueOptions, type Sink } from "../../plugins/audit-log/line-queue.ts";
import { poll } from "../harness/wait.ts";

const QUICK = { first: 1, max: 4 };

/** A log file in memory that accepts some lines at a time, none, or late, and a queue of lines for it. */
class TestLogFile implements Sink {
  readonly path = "/logs/audit.jsonl";
  readonly lines: string[] = [];
  /** Number of lines of each write. */
  readonly writes: number[] = [];
  /** The logged messages, as `LEVEL: TEXT`. */
  readonly logged: string[] = [];
  /** To be set before the queue is used. */
  options: Partial<LineQueueOptions> = {};
  fault: string | undefined;
  /** Maximum number of lines that one write accepts. */
  maxLines = Infinity;
  onWrite: (() => void) | undefined;
  /** Writes wait for this. */
  #gate: Promise<void> | undefined;
  #queue: LineQueue | undefined;

  get queue(): LineQueue {
    const log = (level: string, text: string): void => void this.logged.push(`${level}: ${text}`);
    return (this.#queue ??= new LineQueue(this, { retryDelays: QUICK, ...this.options, log }));
  }

  add(...lines: readonly string[]): void {
    for (const line of lines) this.queue.add(line);
  }

  async append(lines: readonly string[]): Promise<number> {
    this.writes.push(lines.length);
    this.onWrite?.();
    await this.#gate;
    if (this.fault !== undefined) throw new Error(this.fault);
    const taken = lines.slice(0, this.maxLines);
    this.lines.push(...taken);
    return taken.length;
  }

  /** Makes writes wait. @returns what ends that */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#gate = promise;
    return resolve;
  }

  async end(): Promise<void> {
    this.#gate = undefined;
    await this.queue.close(1000);
  }

  /** Waits until there are so many. */
  until(count: number, what: "lines" | "writes" | "logged" = "lines"): Promise<true> {
    const state = (): string => `${count} ${what}; written: ${JSON.stringify(this.lines)}`;
    return poll(5000, state, () => this[what].length >= count || undefined);
  }
}

const test = (sentence: string, run: (disk: TestLogFile) => Promise<void>): void =>
  void it(sentence, async () => {
    const disk = new TestLogFile();
    try {
      await run(disk);
    } finally {
      await disk.end();
    }
  });

/** Waits until the pending writes are done, as far as they take no more than a turn. */
async function untilAnotherHasWritten(): Promise<void> {
  const disk = new TestLogFile();
  disk.add("a");
  await disk.until(1);
  await disk.end();
}

const FAILED =
  "warn: /logs/audit.jsonl cannot be written: ENOSPC; calls continue, and writing is retried";

describe("a backlog", () => {
  test("writes lines in order, those of one moment together", async (disk) => {
    disk.add("a", "b", "c");
    await disk.until(3);
    disk.add("d");
    await disk.until(4);
    assert.deepEqual(disk.lines, ["a", "b", "c", "d"]);
    assert.deepEqual(disk.writes, [3, 1]);
    assert.deepEqual(disk.logged, []);
  });

  test("writes again what was not taken", async (disk) => {
    disk.maxLines = 2;
    disk.add("a", "b", "c", "d", "e");
    await disk.until(5);
    assert.deepEqual(disk.lines, ["a", "b", "c", "d", "e"]);
    assert.deepEqual(disk.writes, [5, 3, 1]);
  });

  test("writes many lines in parts that have a limit", async (disk) => {
    const lines = Array.from({ length: 1000 }, (_, i) => `${i}`.padEnd(999, "x"));
    disk.add(...lines);
    await disk.until(1000);
    assert.deepEqual(disk.lines, lines);
    assert.deepEqual(disk.writes, [262, 262, 262, 214]);
  });

  test("tries again until lines can be written, tells of that once, and loses none", async (disk) => {
    disk.fault = "ENOSPC";
    disk.add("a");
    await disk.until(6, "writes");
    disk.add("b");
    assert.deepEqual(disk.logged, [FAILED]);
    disk.fault = undefined;
    await disk.until(2);
    assert.deepEqual(disk.lines, ["a", "b"]);
    assert.deepEqual(disk.logged, [FAILED, "info: /logs/audit.jsonl is writable again"]);
  });

  test("keeps the order of lines when a write fails while others come", async (disk) => {
    const resolve = disk.hold();
    disk.fault = "ENOSPC";
    disk.add("a");
    await disk.until(1, "writes");
    disk.add("b");
    resolve();
    await disk.until(1, "logged");
    disk.fault = undefined;
    await disk.until(2);
    assert.deepEqual(disk.lines, ["a", "b"]);
  });

  test("waits longer after each failure, up to a limit", async (disk) => {
    disk.options = { retryDelays: { first: 10, max: 40 } };
    disk.fault = "ENOSPC";
    const times: number[] = [];
    disk.onWrite = () => times.push(performance.now());
    disk.add("a");
    await disk.until(5, "writes");
    const pauses = times.slice(1).map((time, i) => time - (times[i] ?? 0));
    // A timer may be early by less than 2 ms.
    const shortest = [10, 20, 40, 40].map((ms, i) => (pauses[i] ?? 0) > ms - 2);
    assert.deepEqual(shortest, [true, true, true, true], JSON.stringify(pauses));
  });

  test("drops the oldest lines beyond its limit, and says in their place how many", async (disk) => {
    disk.options = { maxSize: 12 };
    disk.fault = "ENOSPC";
    disk.add("aaa", "bbb", "ccc", "ddd");
    await disk.until(1, "logged");
    disk.add("eee", "fff");
    disk.fault = undefined;
    await disk.until(4);
    const [gap = "", ...rest] = disk.lines;
    const { time, ...missing } = JSON.parse(gap) as { time: string };
    assert.deepEqual(missing, { missing: 3 });
    assert.equal(new Date(time).toISOString(), time);
    assert.deepEqual(rest, ["ddd", "eee", "fff"]);
    assert.match(disk.logged.at(-1) ?? "", /again; what is missing: 3 lines$/);
    disk.add("ggg");
    await disk.until(5);
    assert.equal(disk.lines.at(-1), "ggg");
  });

  test("says how many are missing, also if no more than that can be written at first", async (disk) => {
    disk.options = { maxSize: 8 };
    disk.maxLines = 1;
    disk.add("aaa", "bbb", "ccc");
    await disk.until(3);
    assert.match(disk.lines[0] ?? "", /"missing":1\}$/);
    assert.deepEqual(disk.lines.slice(1), ["bbb", "ccc"]);
  });

  test("has one write at a time", async (disk) => {
    const resolve = disk.hold();
    disk.add("a");
    await disk.until(1, "writes");
    for (let i = 0; i < 1000; i++) disk.add("x".repeat(1000));
    await untilAnotherHasWritten();
    const closed = disk.queue.close(5000);
    assert.deepEqual(disk.writes, [1]);
    resolve();
    await closed;
    assert.equal(disk.lines.length, 1001);
  });
});

describe("the end of a backlog", () => {
  test("writes what waits, also while it was about to try again later", async (disk) => {
    disk.options = { retryDelays: { first: 1e6, max: 1e6 } };
    disk.fault = "ENOSPC";
    disk.add("a");
    await disk.until(1, "logged");
    disk.fault = undefined;
    disk.add("b");
    await disk.queue.close(5000);
    assert.deepEqual(disk.lines, ["a", "b"]);
  });

  test("does not wait for a disk that never answers, and says what is lost", async (disk) => {
    const resolve = disk.hold();
    disk.add("a");
    await disk.until(1, "writes");
    disk.add("b", "c");
    await disk.queue.close(20);
    assert.deepEqual(disk.logged, ["warn: 2 lines could not be written to /logs/audit.jsonl"]);
    resolve();
    await disk.until(1);
    assert.deepEqual(disk.writes, [1]);
  });

  test("tries once on a disk that is full, and says what is lost", async (disk) => {
    disk.fault = "ENOSPC";
    disk.add("a");
    await disk.queue.close(5000);
    assert.deepEqual(disk.writes, [1]);
    assert.deepEqual(disk.logged, [
      FAILED,
      "warn: 1 line could not be written to /logs/audit.jsonl",
    ]);
  });

  test("comes once, and takes no more lines", async (disk) => {
    disk.add("a");
    await Promise.all([disk.queue.close(5000), disk.queue.close(5000)]);
    disk.add("b");
    await disk.queue.close(5000);
    await untilAnotherHasWritten();
    assert.deepEqual(disk.lines, ["a"]);
    assert.deepEqual(disk.writes, [1]);
  });
});
