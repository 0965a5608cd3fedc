import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EventParser } from "../../../src/transport/http/event-parser.ts";
import { parseRetryAfter } from "../../../src/transport/http/request.ts";

/** What is read of a stream that comes in pieces of so many bytes. */
function read(text: string, cut = Infinity) {
  const events: string[] = [];
  const reader = new EventParser(1000, {
    event: (type, data) => events.push(`${type}=${data.toString()}`),
    oversized: ({ head, tail, size }) => {
      events.push(`oversized ${size} ${head.toString().slice(0, 3)}…${tail.toString().slice(-3)}`);
    },
  });
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += cut) {
    reader.push(Buffer.from(bytes.subarray(at, Math.min(bytes.length, at + cut))));
  }
  return { events, reader };
}

const CASES: readonly (readonly [what: string, text: string, ...events: string[]])[] = [
  ["ends of lines in LF", "data: a\n\ndata: b\n\n", "message=a", "message=b"],
  ["ends of lines in CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", "message=a", "message=b"],
  ["ends of lines in CR", "data: a\r\rdata: b\r\r", "message=a", "message=b"],
  ["ends of lines of all kinds", "data: a\r\n\ndata: b\r\r\n", "message=a", "message=b"],
  ["ends of lines in LF and CR", "data: c\n\r", "message=c"],
  ["several lines of data", "data: a\ndata\ndata:b\n\n", "message=a\n\nb"],
  ["one space after the colon", "data:  a\ndata:b\n\n", "message= a\nb"],
  ["colons in data", 'data: {"a":1}\n\n', 'message={"a":1}'],
  ["names of events", "event: x\ndata: a\n\ndata: b\n\n", "x=a", "message=b"],
  ["comments and unknown fields", ": hi\ndatum: x\n:\ndata: a\ndataset: y\n\n", "message=a"],
  ["events without data", "event: x\n\nid: 1\n\ndata\n\n"],
  ["an event that does not end", "data: a\n\ndata: b\n", "message=a"],
  ["a byte order mark", "\ufeffdata: ü\n\n", "message=ü"],
  [
    "what is over the limit",
    `data: abc${"x".repeat(1100)}xyz\n\ndata: b\n\n`,
    "oversized 1106 abc…xyz",
    "message=b",
  ],
  [
    "lines that are together over the limit",
    `${`data: ${"y".repeat(400)}\n`.repeat(3)}\ndata: b\n\n`,
    "oversized 1202 yyy…yyy",
    "message=b",
  ],
];

describe("a reader of events", () => {
  for (const [what, text, ...events] of CASES) {
    it(`reads ${what}, however the stream is cut`, () => {
      for (let cut = 1; cut <= 30; cut++)
        assert.deepEqual(read(text, cut).events, events, `cut ${cut}`);
      assert.deepEqual(read(text).events, events);
    });
  }

  it("knows the last id of an event that has ended, and none with a NUL in it", () => {
    for (const rest of ["", "id: 2\ndata: b\n", "id: a\0b\n\n", "data: x\n\n"])
      assert.equal(read(`id: 1\n\n${rest}`).reader.lastId, "1");
    assert.equal(read("id: 1\n\nid\n\n").reader.lastId, undefined);
  });

  it("knows how long the server wants to be left alone, within reason", () => {
    assert.equal(read("retry: 1500\n\n").reader.retry, 1500);
    assert.equal(read("retry: soon\n\n").reader.retry, undefined);
    assert.equal(read("retry: 999999999\n\n").reader.retry, 300_000);
  });

  it("keeps nothing of fields that never end", () => {
    const text = `${"n".repeat(100_000)}: x\nid: ${"i".repeat(100_000)}\ndata: a\n\n`;
    assert.deepEqual(read(text).events, ["message=a"]);
  });
});

describe("Retry-After", () => {
  it("is a number of seconds or a date", () => {
    const now = Date.parse("Sun, 06 Nov 1994 08:49:37 GMT");
    assert.equal(parseRetryAfter("120", now), 120_000);
    assert.equal(parseRetryAfter("Sun, 06 Nov 1994 08:49:47 GMT", now), 10_000);
    assert.equal(parseRetryAfter("Sun, 06 Nov 1994 08:00:00 GMT", now), 0);
    assert.equal(parseRetryAfter("soon", now), undefined);
    assert.equal(parseRetryAfter(undefined, now), undefined);
  });
});
