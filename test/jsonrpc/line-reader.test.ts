import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { LineReader } from "../../src/jsonrpc/line-reader.ts";

/* That lines are the same wherever the stream is cut, and what is said of too long ones: properties.test.ts. */

/** The lines of a stream that comes in these chunks, and what is said of too long ones. */
function split(chunks: readonly string[], end = true, limit = 100): unknown[] {
  const found: unknown[] = [];
  const splitter = new LineReader(limit, {
    line: (bytes) => found.push(bytes.toString()),
    oversized: (head, tail, size) => found.push([head.toString(), tail.toString(), size]),
  });
  for (const chunk of chunks) splitter.push(Buffer.from(chunk));
  if (end) splitter.end();
  return found;
}

describe("a splitter", () => {
  it("keeps an unfinished line until its end, or the stream's end, has come", () => {
    assert.deepEqual(split(["a\nb", "c"], false), ["a"]);
    assert.deepEqual(split(["a\nb", "c"]), ["a", "bc"]);
    assert.deepEqual(split(["a\n"]), ["a"]);
    assert.deepEqual(split([]), []);
  });

  it("reports all of a line over the limit that is short, also if the stream's end cuts it off", () => {
    assert.deepEqual(split(["abc", "def"], true, 4), [["abcdef", "abcdef", 6]]);
    assert.deepEqual(split(["abcd\nabcde\nab"], true, 4), ["abcd", ["abcde", "abcde", 5], "ab"]);
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
