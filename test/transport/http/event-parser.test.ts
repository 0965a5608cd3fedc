import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  bodyDecoderOf,
  type BodyDecoder,
  MAX_RESPONSE_HEAD,
  parseResponseHead,
  type ResponseHead,
} from "../../../src/transport/http-client/connection.ts";
import { EventParser } from "../../../src/transport/http/event-parser.ts";
import { parseRetryAfter } from "../../../src/transport/http/request.ts";

/** What is read of a stream that comes in pieces of so many bytes. */
function read(
  text: string,
  cut = Infinity,
  limit = 1000,
): { events: string[]; reader: EventParser } {
  const events: string[] = [];
  const reader = new EventParser(limit, {
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
  [
    "ends of lines of all kinds",
    "data: a\r\n\ndata: b\r\r\ndata: c\n\r",
    "message=a",
    "message=b",
    "message=c",
  ],
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
    assert.equal(read("id: 1\ndata: a\n\nid: 2\ndata: b\n").reader.lastId, "1");
    assert.equal(read("id: 1\n\n").reader.lastId, "1");
    assert.equal(read("id: 1\n\nid: a\0b\n\n").reader.lastId, "1");
    assert.equal(read("id: 1\n\nid\n\n").reader.lastId, undefined);
    assert.equal(read("id: 1\n\ndata: x\n\n").reader.lastId, "1");
  });

  it("knows how long the server wants to be left alone, within reason", () => {
    assert.equal(read("retry: 1500\n\n").reader.retry, 1500);
    assert.equal(read("retry: soon\n\n").reader.retry, undefined);
    assert.equal(read("retry: 999999999\n\n").reader.retry, 300_000);
  });

  it("keeps nothing of fields that never end", () => {
    assert.deepEqual(
      read(`${"n".repeat(100_000)}: x\nid: ${"i".repeat(100_000)}\ndata: a\n\n`).events,
      ["message=a"],
    );
  });
});

function headOf(text: string): ResponseHead {
  const found = parseResponseHead(Buffer.from(`${text}\r\n\r\n`));
  assert.ok(typeof found === "object");
  return found.head;
}

describe("the head of an answer", () => {
  it("has its fields by their names in lower case, those of one name together", () => {
    const { status, headers: fields } = headOf("HTTP/1.1 200\r\nX-A: 1\r\nx-a:2 \r\nB:");
    assert.equal(status, 200);
    assert.deepEqual(
      [...fields],
      [
        ["x-a", "1, 2"],
        ["b", ""],
      ],
    );
  });

  it("says whether the connection lasts", () => {
    assert.equal(headOf("HTTP/1.1 200 OK").isReusable, true);
    assert.equal(headOf("HTTP/1.1 200 OK\r\nConnection: Close").isReusable, false);
    assert.equal(headOf("HTTP/1.0 200 OK").isReusable, false);
    assert.equal(headOf("HTTP/1.0 200 OK\r\nConnection: keep-alive").isReusable, true);
  });

  it("is waited for as long as it may be one", () => {
    assert.equal(parseResponseHead(Buffer.from("HT")), undefined);
    assert.equal(parseResponseHead(Buffer.from("HTTP/1.1 200 OK\r\nA: b\r\n")), undefined);
    for (const text of [
      "SSH-2.0",
      "HTTP/2",
      "HTTP/1.1 20\r\n\r\n",
      "HTTP/1.1 200 OK\r\n folded\r\n\r\n",
      "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    ]) {
      assert.equal(parseResponseHead(Buffer.from(text)), "malformed", text);
    }
    assert.equal(
      parseResponseHead(Buffer.from(`HTTP/1.1 200 OK\r\nA: ${"x".repeat(MAX_RESPONSE_HEAD)}`)),
      "malformed",
    );
  });
});

describe("the body of an answer", () => {
  function body(fields: string): BodyDecoder {
    const found = bodyDecoderOf(headOf(`HTTP/1.1 200 OK\r\n${fields}`), "POST");
    assert.ok(typeof found === "object", String(found));
    return found;
  }

  function feed(to: BodyDecoder, text: string, cut: number): string {
    let taken = "";
    for (let at = 0; at < text.length; at += cut) {
      const found = to.push(Buffer.from(text.slice(at, at + cut)), (bytes) => {
        taken += bytes.toString();
      });
      if (found !== "more") return `${taken} ${found}${at + cut < text.length ? " early" : ""}`;
    }
    return `${taken} more`;
  }

  it("in chunks is what stands between their sizes, wherever it is cut", () => {
    const text = "5;x=y\r\nhello\r\n1 \r\n \r\nA\r\n0123456789\r\n000\r\nTrailer: x\r\n\r\n";
    for (let cut = 1; cut <= text.length; cut++) {
      assert.equal(feed(body("Transfer-Encoding: chunked"), text, cut), "hello 0123456789 end");
    }
  });

  it("that is cut up wrongly is none", () => {
    for (const text of [
      "x\r\n",
      "5\r\nhelloX\r\n",
      "-1\r\n",
      "\r\n",
      "1\r\naXX\r\n",
      "1".repeat(5000),
    ]) {
      assert.match(feed(body("Transfer-Encoding: chunked"), text, Infinity), /malformed/, text);
    }
  });

  it("is told from what is behind it", () => {
    assert.equal(feed(body("Content-Length: 3"), "abcd", Infinity), "abc endWithExtra");
    const chunked = body("Transfer-Encoding: chunked");
    assert.equal(feed(chunked, "1\r\na\r\n0\r\n\r\nmore", Infinity), "a endWithExtra");
  });

  it("with a length ends there", () => {
    assert.equal(feed(body("Content-Length: 5"), "hello", 2), "hello end");
    assert.equal(feed(body("Content-Length: 5, 5"), "hell", 2), "hell more");
  });

  it("whose length is not to be known is refused", () => {
    for (const fields of [
      "Content-Length: 5, 6",
      "Content-Length: -1",
      "Content-Length: 5x",
      "Transfer-Encoding: gzip, chunked",
    ]) {
      assert.equal(bodyDecoderOf(headOf(`HTTP/1.1 200 OK\r\n${fields}`), "POST"), "malformed");
    }
    assert.equal(bodyDecoderOf(headOf("HTTP/1.1 204 No\r\nContent-Length: 5"), "POST"), "none");
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
