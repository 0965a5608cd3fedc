import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { isJsonObject } from "../../src/base/json.ts";
import { readOwnId } from "../../src/jsonrpc/message.ts";
import { parseMessage, parseTruncated } from "../../src/jsonrpc/parse.ts";
import { Pipe } from "../../src/jsonrpc/pipe.ts";
import { EventParser } from "../../src/transport/http/event-parser.ts";

const RUNS = { numRuns: 400, seed: 40 };
const LIMIT = 600;

/** The texts of ids: well-formed ones, and strings with broken escapes, control characters and missing ends. */
const ID_TEXT = fc.oneof(
  fc.constantFrom("7", "-1", "007", "1e999", "null", '"a"', '"\\ud800"', '"\\u00e9"', "[[", "{}"),
  fc
    .array(fc.constantFrom("a", "\\q", "\\", "\\u", "\\u12", '\\"', "\\\\", "é", "\t", "\u0000"))
    .map((parts) => `"${parts.join("")}"`),
);
const BODY = fc.constantFrom('"method":"ping","params":{}', '"result":{}', '"error":{"code":1}');

/** A message with such an id first or last, padded over the limit or not, and perhaps cut somewhere. */
const MESSAGE = fc
  .record({
    id: ID_TEXT,
    body: BODY,
    isIdFirst: fc.boolean(),
    pad: fc.constantFrom(0, 0, LIMIT, 9000),
    cut: fc.option(fc.nat(700)),
  })
  .map(({ id, body, isIdFirst, pad, cut }) => {
    const full = pad === 0 ? body : `${body},"x":"${"é".repeat(pad / 2)}"`;
    const text = isIdFirst
      ? `{"jsonrpc":"2.0","id":${id},${full}}`
      : `{${full},"jsonrpc":"2.0","id":${id}}`;
    return Buffer.from(text).subarray(0, cut ?? Infinity);
  });

/** Whether the bytes are a JSON object with a string or a number as its id. */
function hasValidId(bytes: Buffer): boolean {
  try {
    const value: unknown = JSON.parse(bytes.toString());
    return isJsonObject(value) && ["string", "number"].includes(typeof value["id"]);
  } catch {
    return false;
  }
}

describe("a message whose id is broken", () => {
  it("throws in no reader of messages and of their edges, and has an id only if it is JSON", () => {
    fc.assert(
      fc.property(MESSAGE, (bytes) => {
        const message = parseMessage(bytes);
        if (message.kind === "request") assert.ok(hasValidId(bytes));
        const edges = parseTruncated(bytes.subarray(0, 4096), bytes.subarray(-4096));
        if (edges === undefined) return;
        const { start, end } = edges.id;
        const id = Buffer.from(edges.id.bytes).toString("utf8", start, end);
        assert.ok(["string", "number"].includes(typeof JSON.parse(id)), id);
        readOwnId(edges.id.bytes, edges.id);
      }),
      RUNS,
    );
  });

  it("passes through a pipe and an event stream like any other line, in chunks of any size", () => {
    fc.assert(
      fc.property(
        fc.array(MESSAGE, { maxLength: 4 }),
        fc.integer({ min: 1, max: 997 }),
        (all, step) => {
          let lines = 0;
          let push: (chunk: Buffer) => void = () => {};
          const input = {
            read: (onChunk: typeof push) => void (push = onChunk),
            pause() {},
            resume() {},
          };
          const pipe = new Pipe(input, { write: () => undefined, end() {} }, LIMIT, {
            message: () => lines++,
            oversized: (head, tail) => {
              lines++;
              parseTruncated(head, tail);
            },
            backpressure() {},
            ended() {},
            failed: (error) => {
              throw error;
            },
          });
          let events = 0;
          const parser = new EventParser(LIMIT, {
            event: (_, data) => {
              events++;
              parseMessage(data);
            },
            oversized: ({ head, tail }) => {
              events++;
              parseTruncated(head, tail);
            },
          });
          const feed = (text: Buffer, take: (chunk: Buffer) => void): void => {
            for (let at = 0; at < text.length; at += step) take(text.subarray(at, at + step));
          };
          for (const bytes of all) {
            feed(Buffer.concat([bytes, Buffer.from("\n")]), push);
            feed(Buffer.concat([Buffer.from("data: "), bytes, Buffer.from("\n\n")]), (chunk) =>
              parser.push(chunk),
            );
          }
          const expected = all.filter(({ length }) => length > 0).length;
          assert.deepEqual([lines, events, pipe.queued], [expected, expected, 0]);
        },
      ),
      { ...RUNS, numRuns: 150 },
    );
  });

  it("keeps the bytes of a well-formed id beside an edge that is cut inside a character", () => {
    const head = Buffer.from('{"jsonrpc":"2.0","id":"é\\u0041","method":"x","params":"é').subarray(
      0,
      -1,
    );
    const edges = parseTruncated(head, Buffer.alloc(0));
    assert.equal(edges?.id.key, '"éA');
    assert.equal(Buffer.from(edges.id.bytes).toString(), '"é\\u0041"');
  });

  it("is a response without an id if its id is nested more deeply than a parser can follow", () => {
    const depth = 400_000;
    const id = "[".repeat(depth) + "]".repeat(depth);
    const message = parseMessage(Buffer.from(`{"id":${id},"jsonrpc":"2.0","result":{}}`));
    assert.equal(message.kind, "response");
    assert.equal(message.kind === "response" ? message.id : 0, undefined);
  });
});
