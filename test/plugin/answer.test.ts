import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { RelayedAnswer } from "../../src/plugin/answer.ts";
import { piecesOfMessage } from "../../src/jsonrpc/message.ts";
import { LONG_LINE, parseLongResponse } from "../../src/jsonrpc/line-reader.ts";
import { WriteBuffer } from "../../src/jsonrpc/pipe.ts";

const TEXT = "0123456789".repeat(LONG_LINE / 10);

/** A long answer as it came, in parts that nobody else looks at. */
function relayed(): RelayedAnswer {
  const line = `{"jsonrpc":"2.0","id":1,"result":{"text":"${TEXT}"}}`;
  const places = [0, 40_000, 90_000, line.length];
  const parts = places.slice(1).map((end, at) => {
    const bytes = Buffer.from(line.slice(places[at], end));
    return { bytes, isPlain: false, isDetachable: true };
  });
  const response = parseLongResponse(parts, line.length);
  assert.ok(response);
  return new RelayedAnswer(response);
}

/** What is written of a message, all of whose memory is free afterwards that may be. */
function write(answer: RelayedAnswer, id: string): string {
  const outbox = new WriteBuffer();
  for (const piece of piecesOfMessage(answer.withId(id))) outbox.add(piece);
  let text = "";
  for (let next = outbox.shift(); next !== undefined; next = outbox.shift()) {
    text += Buffer.from(next).toString();
    outbox.release(next);
  }
  return text;
}

describe("a long answer that a plugin has kept", () => {
  it("is the same for whoever gets it next", () => {
    const answer = relayed();
    for (const id of ["7", "8"]) {
      assert.equal(write(answer, id), `{"jsonrpc":"2.0","result":{"text":"${TEXT}"},"id":${id}}`);
    }
  });

  it("can be read after it was sent", () => {
    const answer = relayed();
    write(answer, "7");
    assert.equal(answer.json, `{"text":"${TEXT}"}`);
  });
});
