import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  bodyDecoderOf,
  type BodyDecoder,
  MAX_RESPONSE_HEAD,
  parseResponseHead,
  type ResponseHead,
} from "../../../src/transport/http-client/response-parser.ts";

function headOf(text: string): ResponseHead {
  const found = parseResponseHead(Buffer.from(`${text}\r\n\r\n`));
  assert.ok(typeof found === "object");
  return found.head;
}

describe("the head of an answer", () => {
  it("has its fields by their names in lower case, those of one name together", () => {
    const { status, headers } = headOf("HTTP/1.1 200\r\nX-A: 1\r\nx-a:2 \r\nB:");
    assert.equal(status, 200);
    assert.deepEqual(Object.fromEntries(headers), { "x-a": "1, 2", b: "" });
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
    const lines = [" folded\r\n\r\n", "no colon\r\n\r\n", `A: ${"x".repeat(MAX_RESPONSE_HEAD)}`];
    const odd = lines.map((line) => `HTTP/1.1 200 OK\r\n${line}`);
    for (const text of ["SSH-2.0", "HTTP/2", "HTTP/1.1 20\r\n\r\n", ...odd])
      assert.equal(parseResponseHead(Buffer.from(text)), "malformed", text.slice(0, 50));
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
    const wrong = ["x\r\n", "5\r\nhelloX\r\n", "-1\r\n", "\r\n", "1\r\naXX\r\n", "1".repeat(5000)];
    for (const text of wrong)
      assert.match(feed(body("Transfer-Encoding: chunked"), text, Infinity), /malformed/, text);
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
    const lengths = ["5, 6", "-1", "5x"].map((length) => `Content-Length: ${length}`);
    for (const fields of [...lengths, "Transfer-Encoding: gzip, chunked"])
      assert.equal(bodyDecoderOf(headOf(`HTTP/1.1 200 OK\r\n${fields}`), "POST"), "malformed");
    assert.equal(bodyDecoderOf(headOf("HTTP/1.1 204 No\r\nContent-Length: 5"), "POST"), "none");
  });
});
