import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { beforeEach, describe, it } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { ByteInput } from "../../src/base/byte-streams.ts";
import { systemClock, wallNow } from "../../src/base/clock.ts";
import { PeerReader, ReadShare, shareTurns } from "../../src/base/peer-reader.ts";

class Source implements ByteInput {
  push: (chunk: Buffer) => void = () => {};
  end: () => void = () => {};
  isReading = true;

  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.push = onChunk;
    this.end = onEnd;
  }

  pause(): void {
    this.isReading = false;
  }

  resume(): void {
    this.isReading = true;
  }
}

function open(share?: ReadShare) {
  const source = new Source();
  const chunks: string[] = [];
  const input = shareTurns(source, share);
  let hasEnded = false;
  input.read(
    (chunk) => chunks.push(chunk.toString()),
    () => (hasEnded = true),
  );
  return {
    source,
    input,
    chunks,
    get hasEnded() {
      return hasEnded;
    },
  };
}

/** Waits until a condition holds. */
async function untilTrue(condition: () => boolean): Promise<void> {
  for (const due = performance.now() + 5000; !condition(); await nextTurn())
    assert.ok(performance.now() < due);
}

describe("what a peer sends", () => {
  // What this process has read before counts until a limit is reached.
  beforeEach(() => new ReadShare().nextTurn());

  it("is handled at once within its share, without a further turn of the event loop", () => {
    const { source, chunks } = open();
    source.push(Buffer.from("a\n"));
    source.push(Buffer.from("b\n"));
    assert.deepEqual(chunks, ["a\n", "b\n"]);
  });

  it("waits for the next turn beyond its share, with its source stopped, while another peer goes on", async () => {
    const share = new ReadShare(1000);
    const flood = open(share);
    const neighbour = open();
    const line = `${"x".repeat(99)}\n`;
    const sent = line.repeat(40);
    flood.source.push(Buffer.from(sent));
    const handled = flood.chunks.join("").length;
    assert.ok(handled < sent.length, `${handled} bytes were handled in one turn`);
    assert.equal(flood.source.isReading, false);
    neighbour.source.push(Buffer.from("n\n"));
    assert.deepEqual(neighbour.chunks, ["n\n"]);
    flood.source.end();
    assert.equal(flood.hasEnded, false, "the end comes after what waits");
    await untilTrue(() => flood.hasEnded);
    assert.equal(flood.chunks.join(""), sent);
    assert.ok(
      flood.chunks.every((chunk) => chunk.endsWith("\n")),
      "no line is split",
    );
    assert.equal(flood.source.isReading, true);
  });

  it("is counted together for all streams of the peer, which take turns", async () => {
    const share = new ReadShare(500);
    const streams = [open(share), open(share), open(share)];
    for (const { source } of streams) source.push(Buffer.from(`${"x".repeat(999)}\n`.repeat(3)));
    const lengths = () => streams.map(({ chunks }) => chunks.length);
    assert.deepEqual(lengths(), [1, 0, 0]);
    await untilTrue(() => lengths().every((length) => length >= 1));
    assert.ok((lengths()[0] ?? 0) <= 2, "the others had a turn before the first one was through");
    await untilTrue(() => lengths().every((length) => length === 3));
  });

  it("is kept while its owner has paused it, and comes in order afterwards", async () => {
    const { source, input, chunks } = open();
    input.pause();
    source.push(Buffer.from("a\n"));
    source.push(Buffer.from("b\n"));
    await nextTurn();
    assert.deepEqual(chunks, []);
    input.resume();
    await untilTrue(() => chunks.length === 2);
    assert.deepEqual(chunks, ["a\n", "b\n"]);
    assert.equal(source.isReading, true);
  });

  it("ends for a receiver that has paused it in the middle of the last portion, once it is resumed", async () => {
    let handled = 0;
    let hasEnded = false;
    const reader = new PeerReader(new ReadShare(1000), {
      receive(bytes) {
        handled += bytes.length;
        if (handled === 3000) reader.pause();
      },
      failed: () => assert.fail("nothing throws"),
      setReading() {},
    });
    reader.push(Buffer.alloc(3000));
    reader.end(() => (hasEnded = true));
    await untilTrue(() => handled === 3000);
    assert.equal(hasEnded, false);
    reader.resume();
    await untilTrue(() => hasEnded);
  });

  it("waits once, also if its receiver asks for more with each portion", async () => {
    /** A share that counts how often it is looked at. */
    class CountedShare extends ReadShare {
      looks = 0;

      override get isSpent(): boolean {
        this.looks++;
        return super.isSpent;
      }
    }
    const share = new CountedShare(1000);
    let handled = 0;
    const reader = new PeerReader(share, {
      receive(bytes) {
        handled += bytes.length;
        reader.resume();
      },
      failed: () => assert.fail("nothing throws"),
      setReading() {},
    });
    reader.push(Buffer.alloc(100_000));
    await untilTrue(() => handled === 100_000);
    assert.ok(share.looks <= 4 * 100, `${share.looks} looks in 100 turns`);
  });

  it("is handled in portions that take some milliseconds at most, whatever a byte costs", async () => {
    let handled = 0;
    const portions: number[] = [];
    const reader = new PeerReader(new ReadShare(), {
      receive(bytes) {
        // 2 µs for each byte.
        const end = performance.now() + bytes.length * 0.002;
        while (performance.now() < end);
        handled += bytes.length;
        portions.push(bytes.length);
      },
      failed: () => assert.fail("nothing throws"),
      setReading() {},
    });
    reader.push(Buffer.alloc(64 * 1024));
    assert.ok(handled < 64 * 1024, "not all in one turn");
    await untilTrue(() => handled === 64 * 1024);
    assert.ok((portions.at(-1) ?? 0) <= 4096, portions.join(" "));
  });

  for (const throws of [false, true]) {
    it(`arrives at one time, and the clock goes on after its handling ${throws ? "throws" : "ends"}`, async () => {
      const times: number[] = [];
      const reader = new PeerReader(new ReadShare(), {
        receive() {
          const start = performance.now();
          times.push(systemClock.now(), wallNow());
          while (performance.now() < start + 2);
          times.push(systemClock.now(), wallNow());
          if (throws) throw new Error("defect");
        },
        failed() {},
        setReading() {},
      });
      reader.push(Buffer.from("a\n"));
      const [start = 0, startWall = 0, end, endWall] = times;
      assert.deepEqual([end, endWall], [start, startWall]);
      assert.ok(systemClock.now() >= start + 2);
      assert.ok(wallNow() > startWall);
    });
  }

  it("ends the reading of this peer alone if its handling throws", async () => {
    const failures: unknown[] = [];
    const share = new ReadShare(10);
    const reader = new PeerReader(share, {
      receive(bytes) {
        if (bytes.includes("!")) throw new Error("defect");
      },
      failed: (error) => failures.push(error),
      setReading() {},
    });
    const other = open();
    reader.push(Buffer.from("0123456789 0123456789!0123456789"));
    await untilTrue(() => failures.length > 0);
    reader.push(Buffer.from("!"));
    await nextTurn();
    assert.equal(failures.length, 1);
    other.source.push(Buffer.from("n\n"));
    assert.deepEqual(other.chunks, ["n\n"]);
  });
});
