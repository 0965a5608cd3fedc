import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { Links } from "../src/router/links.ts";
import { LONG, readLong } from "../src/wire/long.ts";

/** A long result in two chunks, and whether its chunks have been joined. */
function longResult(link: string): { learn(links: Links): boolean } {
  const text = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${"x".repeat(LONG)}"}${link}]}}`;
  const chunks = [text.slice(0, LONG / 2), text.slice(LONG / 2)];
  const parts = chunks.map((chunk) => ({
    bytes: Buffer.from(chunk),
    isClear: false,
    isOwn: false,
  }));
  const response = readLong(parts, text.length);
  assert.ok(response);
  return {
    learn(links) {
      let isJoined = false;
      links.learn("s", {
        ...response,
        get bytes() {
          isJoined = true;
          return response.bytes;
        },
      });
      return isJoined;
    },
  };
}

describe("links in a long result", () => {
  it("that has none are looked for without joining it", () => {
    assert.equal(longResult("").learn(new Links()), false);
  });

  it("that has some are learned", () => {
    const links = new Links();
    longResult(',{"type":"resource_link","uri":"x://1","name":"n"}').learn(links);
    assert.deepEqual([...(links.find("x://1") ?? [])], ["s"]);
  });
});
