import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import {
  bytesOf,
  joinMessage,
  type Message,
  withRequestId,
  withResponseId,
} from "../../src/jsonrpc/message.ts";
import { LONG_LINE } from "../../src/jsonrpc/line-reader.ts";
import { readThroughPipe } from "./through-pipe.ts";

const TEXT = "é 0123456789 \\n".repeat(LONG_LINE / 12);

/** Messages, and what is none: also such that go on over the end of their line, as far as a scanner can tell that does not mind it. */
const LINES = [
  '{"jsonrpc":"2.0","id":7,"result":{"content":[]}}',
  '{"result":{"a":"b"},"jsonrpc":"2.0","id":8}',
  '{"jsonrpc":"2.0","id":9,"error":{"code":-32000,"message":"\\u006dethod"}}',
  '{"jsonrpc":"2.0","id":10,"result":{"text":"\\"method\\" \\"jsonrpc\\""}}',
  '{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,{}]}}}',
  '{"method":"tools/call","params":{"name":"x","_meta":{"progressToken":3}},"jsonrpc":"2.0","id":"a\\"b"}',
  '{"method":"prompts/get","params":{},"jsonrpc":"2.0","id":"plain"}',
  '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}',
  '{"method":"notifications/message","params":{"data":null},"jsonrpc":"2.0"}',
  '{"jsonrpc":"2.0","method":"notifications/initialized"}',
  '{ "jsonrpc": "2.0", "id": 12, "method": "ping" }',
  '[{"jsonrpc":"2.0","id":13,"method":"ping"},{"jsonrpc":"2.0","id":14,"result":{}}]',
  '{"jsonrpc":"2.0","id":15,"method":"tools/call","params":{"a":[',
  '{"jsonrpc":"2.0","id":15,"method":"tools/call","params":{"a":[{"b":{}}',
  ",[",
  '{"jsonrpc":"2.0","id":16,"result":{"a":',
  '{"jsonrpc":"2.0","id":17,"result":{}},"jsonrpc":"2.0"}',
  '{"jsonrpc":"2.0","id":18,"id":19,"method":"m","params":{}}',
  '{"jsonrpc":"2.0","id":22,"method":"m","params":{},"id":23}',
  '{"jsonrpc":"2.0","id":24,"method":"m","params":{}}}',
  '{"method":"m","params":{},"jsonrpc":"2.0","id":25,"more":1}',
  '{"method":"notifications/m","params":{},"jsonrpc":"2.0","more":1}',
  '{"jsonrpc":"2.0","id":26,"method":"m","params":{"a":{}',
  "}}",
  "}}]}",
  '"',
  "no JSON",
  "",
  `{"jsonrpc":"2.0","id":20,"result":{"text":"${TEXT}"}}`,
  `{"jsonrpc":"2.0","id":21,"method":"tools/call","params":{"name":"x","text":"${TEXT}"}}`,
];

const STREAM = fc.array(
  fc.record({ line: fc.constantFrom(...LINES), end: fc.constantFrom("\n", "\n", "\r\n") }),
  { maxLength: 20 },
);

/** What a frame says, and what is written of it, with its place in memory taken away. */
function essence(frame: Message): unknown {
  if (frame.kind === "batch") return frame.items.map(essence);
  const shown = { kind: frame.kind, bytes: bytesOf(frame).toString() };
  switch (frame.kind) {
    case "invalid":
      return { ...shown, id: frame.id?.key, reason: frame.reason };
    case "response":
      return {
        ...shown,
        id: frame.id,
        written: joinMessage(withResponseId(frame, "1")).toString(),
      };
    case "request": {
      const written = joinMessage(withRequestId(frame, 2, [], [])).toString();
      return { ...shown, id: frame.id.key, method: frame.method, written };
    }
    case "notification": {
      const { start = 0, end = 0 } = frame.params ?? {};
      return { ...shown, method: frame.method, params: frame.bytes.toString("utf8", start, end) };
    }
  }
}

describe("a pipe", () => {
  it("reads each line as if it had come alone, wherever chunks end", () => {
    fc.assert(
      fc.property(STREAM, fc.array(fc.nat(), { maxLength: 12 }), (stream, places) => {
        const bytes = Buffer.from(stream.map(({ line, end }) => line + end).join(""));
        const cuts = places.map((place) => place % (bytes.length + 1));
        const alone = stream
          .filter(({ line }) => line !== "")
          .map(({ line }) => essence(parseMessage(Buffer.from(line))));
        const found: unknown[] = [];
        readThroughPipe(bytes, cuts, (frame) => found.push(essence(frame)));
        assert.deepEqual(found, alone);
      }),
      { numRuns: 500 },
    );
  });
});
