import type { ByteInput, ByteOutput } from "../../src/base/byte-streams.ts";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import type { Message } from "../../src/jsonrpc/message.ts";
import { Pipe, WRITE_LIMITS } from "../../src/jsonrpc/pipe.ts";
import { turn } from "../fixtures/virtual-clock.ts";

/** A sink that takes what it is told to take: after each write it is full until `drain` if `slow`. */
class Sink implements ByteOutput {
  readonly writes: Uint8Array[] = [];
  slow = false;
  ended = 0;
  #release: (() => void) | undefined;

  write(bytes: Uint8Array): Promise<void> | undefined {
    assert.equal(this.#release, undefined, "nothing is written while the sink is full");
    assert.equal(this.ended, 0, "nothing is written after the end");
    this.writes.push(bytes);
    if (!this.slow) return undefined;
    return new Promise((resolve) => (this.#release = resolve));
  }

  end(): void {
    assert.equal(this.#release, undefined, "it ends after all was taken");
    this.ended++;
  }

  async drain(): Promise<void> {
    const release = this.#release;
    this.#release = undefined;
    release?.();
    await turn();
  }

  get texts(): string[] {
    return this.writes.map((bytes) => Buffer.from(bytes).toString());
  }
}

class Source implements ByteInput {
  push: (chunk: Buffer) => void = () => {};
  end: () => void = () => {};
  readonly calls: string[] = [];

  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.push = onChunk;
    this.end = onEnd;
  }

  pause = (): void => void this.calls.push("pause");
  resume = (): void => void this.calls.push("resume");
}

function make(onPressure: (full: boolean) => void = () => {}) {
  const sink = new Sink();
  const source = new Source();
  const events: string[] = [];
  const pipe = new Pipe(source, sink, 1000, {
    message: (frame: Message) => events.push(frame.kind),
    oversized: (_head, _tail, size) => events.push(`oversized ${size}`),
    backpressure(full) {
      events.push(full ? "full" : "drained");
      onPressure(full);
    },
    ended: () => events.push("ended"),
    failed: (error) => events.push(`failed: ${String(error)}`),
  });
  return { pipe, sink, source, events };
}

/** A pipe into this sink, from which nothing comes. */
function pipeInto(sink: ByteOutput): Pipe {
  const ignore = (): void => {};
  const events = {
    message: ignore,
    oversized: ignore,
    backpressure: ignore,
    ended: ignore,
    failed: ignore,
  };
  return new Pipe(new Source(), sink, 1000, events);
}

const filled = (size = BIG, byte = 98): Uint8Array => new Uint8Array(size).fill(byte);
const BIG = 100_000;

describe("what is sent into a pipe", () => {
  it("goes out in one write if it was sent in one turn, each message on a line", async () => {
    const { pipe, sink } = make();
    pipe.send(utf8("a"));
    pipe.send([utf8("b"), utf8("c")]);
    assert.deepEqual(sink.texts, [], "not before the turn ends");
    await turn();
    pipe.send(utf8("d"));
    await turn();
    assert.deepEqual(sink.texts, ["a\nbc\n", "d\n"]);
  });

  it("is not copied if it is big, and stays in order", async () => {
    const { pipe, sink } = make();
    const big = filled();
    pipe.send([utf8("a"), big, utf8("c")]);
    pipe.send(big);
    pipe.send(utf8("d"));
    await turn();
    assert.ok(sink.writes.includes(big));
    const b = "b".repeat(BIG);
    assert.ok(sink.texts.join("") === `a${b}c\n${b}\nd\n`, "all, in order");
  });

  it("waits while the sink is full, is counted, and then goes out joined", async () => {
    const { pipe, sink } = make();
    sink.slow = true;
    pipe.send(utf8("first"));
    await turn();
    assert.equal(pipe.queued, 6);
    pipe.send(utf8("second"));
    pipe.send(utf8("third"));
    await turn();
    assert.deepEqual([sink.texts, pipe.queued], [["first\n"], 19]);
    await sink.drain();
    assert.deepEqual(sink.texts, ["first\n", "second\nthird\n"]);
    await sink.drain();
    assert.equal(pipe.queued, 0);
  });

  it("waits also if a full sink was met before the turn ended", async () => {
    const { pipe, sink } = make();
    sink.slow = true;
    pipe.send(utf8("small"));
    pipe.send(filled());
    const ended = pipe.end();
    for (const count of [1, 2, 3]) {
      await turn();
      assert.deepEqual([sink.writes.length, sink.ended], [count, 0]);
      await sink.drain();
    }
    await ended;
    assert.ok(sink.texts.join("") === `small\n${"b".repeat(BIG)}\n`);
  });

  it("stays as it is until the sink has taken it, whatever is sent meanwhile", async () => {
    const taken: Buffer[] = [];
    let kept: Uint8Array | undefined;
    let release = (): void => {};
    let writes = 0;
    const take = (bytes: Uint8Array): void => void taken.push(Buffer.from(bytes));
    const drain = (): void => {
      if (kept !== undefined) take(kept);
      kept = undefined;
      release();
    };
    const sink: ByteOutput = {
      retainsNoMemory: true,
      end: () => {},
      write(bytes) {
        assert.equal(kept, undefined, "nothing is written while the sink is full");
        if (writes++ % 3 === 0) {
          take(bytes);
          return undefined;
        }
        kept = bytes;
        return new Promise((resolve) => (release = resolve));
      },
    };
    const pipe = pipeInto(sink);
    const sent: string[] = [];
    for (let n = 0; n < 150; n++) {
      for (let k = 0; k <= (n * 7) % 5; k++) {
        const text = `${n}.${k} ${"abcdefgh".repeat([0, 1, 30, 600, 3000][(n + k * 3) % 5] ?? 0)}`;
        sent.push(text);
        pipe.send(k % 2 === 0 ? utf8(text) : [text.slice(0, 2), utf8(text.slice(2))]);
      }
      await (n % 2 === 0 ? Promise.resolve() : turn());
      if (n % 3 === 0 && kept !== undefined) drain();
    }
    while (pipe.queued > 0) {
      drain();
      await turn();
    }
    assert.ok(Buffer.concat(taken).toString() === `${sent.join("\n")}\n`, "every byte, in order");
  });

  for (const [keepsNothing, what] of [
    [true, "once it was taken, if it was given"],
    [undefined, "by nobody if the sink may keep it"],
  ] as const) {
    it(`is freed ${what}`, async () => {
      const taken: Buffer[] = [];
      let release: (() => void) | undefined;
      const sink: ByteOutput = {
        retainsNoMemory: keepsNothing,
        end: () => {},
        write(bytes) {
          taken.push(Buffer.from(bytes));
          return taken.length % 2 === 0 ? new Promise((resolve) => (release = resolve)) : undefined;
        },
      };
      const pipe = pipeInto(sink);
      const [first, second, own] = [1, 2, 3].map((byte) => filled(BIG, byte));
      assert.ok(first && second && own);
      const given = (of: Uint8Array) =>
        ({ bytes: of, start: 0, end: of.length, isDetachable: true }) as const;
      pipe.send([given(first), given(second), own, "end"]);
      const isFreed = keepsNothing === true;
      const sizes = () => [first, second, own].map(({ length }) => length);
      assert.deepEqual(sizes(), [isFreed ? 0 : BIG, BIG, BIG]);
      while (pipe.queued > 0) {
        release?.();
        await turn();
      }
      assert.deepEqual(sizes(), isFreed ? [0, 0, BIG] : [BIG, BIG, BIG]);
      const expected = [1, 2, 3].map((byte) => Buffer.alloc(BIG, byte));
      assert.ok(Buffer.concat(taken).equals(Buffer.concat([...expected, utf8("end\n")])));
    });
  }

  it("may have empty pieces", async () => {
    const { pipe, sink } = make();
    sink.slow = true;
    pipe.send([utf8(""), filled(), utf8("")]);
    pipe.send(utf8("a"));
    for (let n = 0; n < 8; n++) {
      await turn();
      pipe.send(utf8("c"));
      await sink.drain();
    }
    assert.ok(sink.texts.join("") === `${"b".repeat(BIG)}\na\n${"c\n".repeat(8)}`);
  });

  it("reports pressure once when much is queued, and relief once when little is left", async () => {
    const { pipe, sink, events } = make();
    sink.slow = true;
    const piece = filled(WRITE_LIMITS.high / 16);
    for (let n = 0; n < 15; n++) pipe.send(piece);
    await turn();
    assert.deepEqual(events, []);
    for (let n = 0; n < 15; n++) pipe.send(piece);
    assert.deepEqual(events, ["full"]);
    while (pipe.queued > WRITE_LIMITS.low) {
      assert.deepEqual(events, ["full"], `${pipe.queued} bytes are queued`);
      await sink.drain();
    }
    assert.deepEqual(events, ["full", "drained"]);
    while (pipe.queued > 0) await sink.drain();
    assert.deepEqual(events, ["full", "drained"]);
    assert.equal(sink.texts.join("").length, 30 * (piece.length + 1));
  });

  it("may be sent from inside the news of relief", async () => {
    const { pipe, sink } = make((full) => {
      if (!full) pipe.send(utf8("later"));
    });
    pipe.send(filled(WRITE_LIMITS.high + 1));
    await turn();
    assert.equal(sink.texts.at(-1), "later\n");
    assert.equal(pipe.queued, 0);
  });

  it("is written before the end, and what is sent after the end is dropped", async () => {
    const { pipe, sink } = make();
    sink.slow = true;
    pipe.send(utf8("a"));
    await turn();
    pipe.send(utf8("b"));
    const ended = pipe.end();
    pipe.send(utf8("c"));
    assert.equal(sink.ended, 0);
    await sink.drain();
    await sink.drain();
    await ended;
    assert.equal(pipe.end(), ended);
    assert.deepEqual([sink.texts, sink.ended], [["a\n", "b\n"], 1]);
    const { pipe: unused, sink: other } = make();
    await unused.end();
    assert.equal(other.ended, 1, "at once if nothing is to be written");
  });
});

describe("what comes out of a pipe", () => {
  it("are frames, oversized messages and the end, in wire order", () => {
    const { source, events } = make();
    source.push(Buffer.from('{"jsonrpc":"2.0","id":1,"method":"m"}\n{"jsonrpc":"2.0",'));
    source.push(Buffer.from('"id":1,"result":{}}\noops\n'));
    source.push(Buffer.alloc(1001, "x"));
    source.push(Buffer.from('\n{"jsonrpc":"2.0","method":"last"}'));
    source.end();
    const before = ["request", "response", "invalid", "oversized 1001", "notification"];
    assert.deepEqual(events, [...before, "ended"]);
  });

  it("comes only while its source is not paused", () => {
    const { pipe, source } = make();
    pipe.pause();
    pipe.resume();
    assert.deepEqual(source.calls, ["pause", "resume"]);
  });
});
