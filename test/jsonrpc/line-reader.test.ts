import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { LineReader } from "../../src/jsonrpc/line-reader.ts";

type Found = string | { head: string; tail: string; size: number };

/** What a splitter finds in a stream that comes in these chunks. */
function split(chunks: readonly (string | Buffer)[], limit = 1_000_000, end = true): Found[] {
  const found: Found[] = [];
  const splitter = new LineReader(limit, {
    line: (bytes) => found.push(bytes.toString()),
    oversized: (head, tail, size) =>
      found.push({ head: head.toString(), tail: tail.toString(), size }),
  });
  for (const chunk of chunks) splitter.push(Buffer.from(chunk));
  if (end) splitter.end();
  return found;
}

function pieces(bytes: Buffer, size: number): Buffer[] {
  const count = Math.ceil(bytes.length / size);
  return Array.from({ length: count }, (_, n) => bytes.subarray(n * size, (n + 1) * size));
}

describe("a splitter", () => {
  it("finds the same lines wherever the stream is cut", () => {
    const text = '\ufeff{"a":"ü🧶"}\r\n\n\r\n  \n{"b":2}\n{"c":"\\n"}\n\ufeffd\nlast';
    const lines = ['{"a":"ü🧶"}', "  ", '{"b":2}', '{"c":"\\n"}', "\ufeffd", "last"];
    const bytes = Buffer.from(text);
    for (let size = 1; size <= bytes.length; size++) {
      assert.deepEqual(split(pieces(bytes, size)), lines, `chunks of ${size} bytes`);
    }
    for (let at = 0; at <= bytes.length; at++) {
      assert.deepEqual(split([bytes.subarray(0, at), bytes.subarray(at)]), lines, `cut at ${at}`);
    }
  });

  it("keeps an unfinished line until its end, or the stream's end, has come", () => {
    assert.deepEqual(split(["a\nb", "c"], 100, false), ["a"]);
    assert.deepEqual(split(["a\nb", "c"], 100), ["a", "bc"]);
    assert.deepEqual(split(["a\n"], 100), ["a"]);
    assert.deepEqual(split([], 100), []);
  });

  it("does not copy a line that came in one chunk", () => {
    const chunk = Buffer.from("abc\ndef\n");
    const splitter = new LineReader(100, {
      line: (bytes) => bytes.fill("x"),
      oversized: () => assert.fail("it is short"),
    });
    splitter.push(chunk);
    assert.equal(chunk.toString(), "xxx\nxxx\n");
  });

  it("keeps a line of exactly the limit and drops one that is a byte longer", () => {
    const fits = "x".repeat(100);
    const dropped = { head: `${fits}y`, tail: `${fits}y`, size: 101 };
    for (const size of [1, 3, 50, 100, 101, 1000]) {
      const bytes = Buffer.from(`${fits}\n${fits}y\n${fits}\n`);
      assert.deepEqual(split(pieces(bytes, size), 100), [fits, dropped, fits], `chunks of ${size}`);
    }
  });

  it("reports the first and last 4 KiB of a dropped line and its size, and goes on", () => {
    const long = Buffer.from(Array.from({ length: 50_000 }, (_, n) => 97 + (n % 23)));
    const dropped = {
      head: long.toString("latin1", 0, 4096),
      tail: long.toString("latin1", long.length - 4096),
      size: 50_000,
    };
    const stream = Buffer.concat([Buffer.from("before\n"), long, Buffer.from("\nafter\n")]);
    for (const size of [1, 100, 4095, 4096, 4097, 20_000, 60_000]) {
      const found = split(pieces(stream, size), 10_000);
      assert.deepEqual(found, ["before", dropped, "after"], `chunks of ${size}`);
    }
  });

  it("reports a line over the limit that the stream's end cuts off", () => {
    assert.deepEqual(split(["abc", "def"], 4), [{ head: "abcdef", tail: "abcdef", size: 6 }]);
  });

  it("holds on to nothing of a line that is over the limit", () => {
    // One chunk, given again and again: were it kept, the joined line could not even be made.
    const chunk = Buffer.alloc(1024 * 1024, "x");
    const found: number[] = [];
    const splitter = new LineReader(10, {
      line: () => assert.fail("it is too long"),
      oversized: (head, tail, size) => found.push(head.length, tail.length, size),
    });
    for (let n = 0; n < 1500; n++) splitter.push(chunk);
    splitter.push(Buffer.from("\n"));
    assert.deepEqual(found, [4096, 4096, 1500 * 1024 * 1024]);
  });
});
