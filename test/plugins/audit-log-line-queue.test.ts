import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LineQueue, type LineQueueOptions, type Sink } from "../../plugins/audit-log/line-queue.ts";
import { withDeadline } from "../harness/wait.ts";

const QUICK = { first: 1, max: 4 };

/** A log file in memory that accepts some lines at a time, none, or late. */
class TestLogFile implements Sink {
  readonly path = "/logs/audit.jsonl";
  readonly lines: string[] = [];
  /** Number of lines of each write. */
  readonly writes: number[] = [];
  fault: string | undefined;
  /** Maximum number of lines that one write accepts. */
  maxLines = Infinity;
  /** Writes wait for this. */
  gate: Promise<void> | undefined;
  onWrite: (() => void) | undefined;
  readonly #listeners: (() => void)[] = [];

  async append(lines: readonly string[]): Promise<number> {
    this.writes.push(lines.length);
    this.onWrite?.();
    this.wake();
    await this.gate;
    if (this.fault !== undefined) throw new Error(this.fault);
    const taken = lines.slice(0, this.maxLines);
    this.lines.push(...taken);
    // Waiters for lines resume after the writer has continued.
    setTimeout(() => this.wake(), 0);
    return taken.length;
  }

  /** Wakes the waiters. */
  wake(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Waits until `test` is true; checked after each write. */
  until(what: string, test: () => boolean): Promise<void> {
    return withDeadline(
      5000,
      () => `${what}; written: ${JSON.stringify(this.lines)}`,
      (resolve) => {
        const check = (): void => {
          if (test()) resolve();
        };
        this.#listeners.push(check);
        check();
      },
    );
  }
}

interface BacklogSetup {
  readonly disk: TestLogFile;
  readonly backlog: LineQueue;
  /** The logged messages, as `LEVEL: TEXT`. */
  readonly logged: string[];
}

async function withBacklog(
  parts: Omit<LineQueueOptions, "log">,
  run: (setup: BacklogSetup) => Promise<void>,
): Promise<void> {
  const disk = new TestLogFile();
  const logged: string[] = [];
  const log = (level: string, text: string): void => {
    logged.push(`${level}: ${text}`);
    disk.wake();
  };
  const backlog = new LineQueue(disk, { retryDelays: QUICK, ...parts, log });
  try {
    await run({ disk, backlog, logged });
  } finally {
    disk.gate = undefined;
    await backlog.close(1000);
  }
}

/** Waits until the pending writes are done, as far as they take no more than a turn. */
function untilAnotherHasWritten(): Promise<void> {
  return withBacklog({}, async ({ disk, backlog }) => {
    backlog.add("a");
    await disk.until("a line", () => disk.lines.length === 1);
  });
}

const FAILED =
  "warn: /logs/audit.jsonl cannot be written: ENOSPC; calls continue, and writing is retried";

describe("a backlog", () => {
  it("writes lines in order, those of one moment together", () =>
    withBacklog({}, async ({ disk, backlog, logged }) => {
      for (const line of ["a", "b", "c"]) backlog.add(line);
      await disk.until("three lines", () => disk.lines.length === 3);
      backlog.add("d");
      await disk.until("a fourth line", () => disk.lines.length === 4);
      assert.deepEqual(disk.lines, ["a", "b", "c", "d"]);
      assert.deepEqual(disk.writes, [3, 1]);
      assert.deepEqual(logged, []);
    }));

  it("writes again what was not taken", () =>
    withBacklog({}, async ({ disk, backlog }) => {
      disk.maxLines = 2;
      for (const line of ["a", "b", "c", "d", "e"]) backlog.add(line);
      await disk.until("five lines", () => disk.lines.length === 5);
      assert.deepEqual(disk.lines, ["a", "b", "c", "d", "e"]);
      assert.deepEqual(disk.writes, [5, 3, 1]);
    }));

  it("writes many lines in parts that have a limit", () =>
    withBacklog({}, async ({ disk, backlog }) => {
      const lines = Array.from({ length: 1000 }, (_, i) => `${i}`.padEnd(999, "x"));
      for (const line of lines) backlog.add(line);
      await disk.until("all lines", () => disk.lines.length === 1000);
      assert.deepEqual(disk.lines, lines);
      assert.deepEqual(disk.writes, [262, 262, 262, 214]);
    }));

  it("tries again until lines can be written, tells of that once, and loses none", () =>
    withBacklog({}, async ({ disk, backlog, logged }) => {
      disk.fault = "ENOSPC";
      backlog.add("a");
      await disk.until("several tries", () => disk.writes.length > 5);
      backlog.add("b");
      assert.deepEqual(logged, [FAILED]);
      disk.fault = undefined;
      await disk.until("two lines", () => disk.lines.length === 2);
      assert.deepEqual(disk.lines, ["a", "b"]);
      assert.deepEqual(logged, [FAILED, "info: /logs/audit.jsonl is writable again"]);
    }));

  it("keeps the order of lines when a write fails while others come", () =>
    withBacklog({}, async ({ disk, backlog, logged }) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      disk.gate = promise;
      disk.fault = "ENOSPC";
      backlog.add("a");
      await disk.until("a write", () => disk.writes.length === 1);
      backlog.add("b");
      resolve();
      await disk.until("a failure", () => logged.length === 1);
      disk.fault = undefined;
      await disk.until("two lines", () => disk.lines.length === 2);
      assert.deepEqual(disk.lines, ["a", "b"]);
    }));

  it("waits longer after each failure, up to a limit", () =>
    withBacklog({ retryDelays: { first: 10, max: 40 } }, async ({ disk, backlog }) => {
      disk.fault = "ENOSPC";
      const times: number[] = [];
      disk.onWrite = () => times.push(performance.now());
      backlog.add("a");
      await disk.until("five tries", () => times.length === 5);
      const pauses = times.slice(1).map((time, i) => time - (times[i] ?? 0));
      // A timer may be early by less than 2 ms.
      const shortest = [10, 20, 40, 40].map((ms, i) => (pauses[i] ?? 0) > ms - 2);
      assert.deepEqual(shortest, [true, true, true, true], JSON.stringify(pauses));
    }));

  it("drops the oldest lines beyond its limit, and says in their place how many", () =>
    withBacklog({ maxSize: 12 }, async ({ disk, backlog, logged }) => {
      disk.fault = "ENOSPC";
      for (const line of ["aaa", "bbb", "ccc", "ddd"]) backlog.add(line);
      await disk.until("a try", () => logged.length === 1);
      for (const line of ["eee", "fff"]) backlog.add(line);
      disk.fault = undefined;
      await disk.until("four lines", () => disk.lines.length === 4);
      const [gap = "", ...rest] = disk.lines;
      const { time, ...missing } = JSON.parse(gap) as { time: string };
      assert.deepEqual(missing, { missing: 3 });
      assert.equal(new Date(time).toISOString(), time);
      assert.deepEqual(rest, ["ddd", "eee", "fff"]);
      assert.match(logged.at(-1) ?? "", /again; what is missing: 3 lines$/);
      backlog.add("ggg");
      await disk.until("one more line", () => disk.lines.length === 5);
      assert.equal(disk.lines.at(-1), "ggg");
    }));

  it("says how many are missing, also if no more than that can be written at first", () =>
    withBacklog({ maxSize: 8 }, async ({ disk, backlog }) => {
      disk.maxLines = 1;
      for (const line of ["aaa", "bbb", "ccc"]) backlog.add(line);
      await disk.until("three lines", () => disk.lines.length === 3);
      assert.match(disk.lines[0] ?? "", /"missing":1\}$/);
      assert.deepEqual(disk.lines.slice(1), ["bbb", "ccc"]);
    }));

  it("has one write at a time", () =>
    withBacklog({}, async ({ disk, backlog }) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      disk.gate = promise;
      backlog.add("a");
      await disk.until("a write", () => disk.writes.length === 1);
      for (let i = 0; i < 1000; i++) backlog.add("x".repeat(1000));
      await untilAnotherHasWritten();
      const closed = backlog.close(5000);
      assert.deepEqual(disk.writes, [1]);
      resolve();
      await closed;
      assert.equal(disk.lines.length, 1001);
    }));
});

describe("the end of a backlog", () => {
  it("writes what waits, also while it was about to try again later", () =>
    withBacklog({ retryDelays: { first: 1e6, max: 1e6 } }, async ({ disk, backlog, logged }) => {
      disk.fault = "ENOSPC";
      backlog.add("a");
      await disk.until("a try", () => logged.length === 1);
      disk.fault = undefined;
      backlog.add("b");
      await backlog.close(5000);
      assert.deepEqual(disk.lines, ["a", "b"]);
    }));

  it("does not wait for a disk that never answers, and says what is lost", () =>
    withBacklog({}, async ({ disk, backlog, logged }) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      disk.gate = promise;
      backlog.add("a");
      await disk.until("a write", () => disk.writes.length === 1);
      backlog.add("b");
      backlog.add("c");
      await backlog.close(20);
      assert.deepEqual(logged, ["warn: 2 lines could not be written to /logs/audit.jsonl"]);
      resolve();
      await disk.until("what was under way", () => disk.lines.length === 1);
      assert.deepEqual(disk.writes, [1]);
    }));

  it("tries once on a disk that is full, and says what is lost", () =>
    withBacklog({}, async ({ disk, backlog, logged }) => {
      disk.fault = "ENOSPC";
      backlog.add("a");
      await backlog.close(5000);
      assert.deepEqual(disk.writes, [1]);
      assert.deepEqual(logged, [FAILED, "warn: 1 line could not be written to /logs/audit.jsonl"]);
    }));

  it("comes once, and takes no more lines", () =>
    withBacklog({}, async ({ disk, backlog }) => {
      backlog.add("a");
      await Promise.all([backlog.close(5000), backlog.close(5000)]);
      backlog.add("b");
      await backlog.close(5000);
      await untilAnotherHasWritten();
      assert.deepEqual(disk.lines, ["a"]);
      assert.deepEqual(disk.writes, [1]);
    }));
});
