import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { calledKey } from "../../src/attach/client-books.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";

/** The key of a line between others in one chunk. */
function keyOf(line: string): number | undefined {
  const before = '{"jsonrpc":"2.0","id":1}\n';
  const chunk = Buffer.from(`${before}${line}\n{"method":"tools/call","params":{}\n`);
  return calledKey(chunk, before.length, before.length + Buffer.byteLength(line));
}

const call = (id: string, params = "{}", method = "tools/call"): readonly string[] => [
  `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`,
  `{"method":"${method}","params":${params},"jsonrpc":"2.0","id":${id}}`,
];

describe("the id of a call", () => {
  it("is the one that the parser finds, whatever the params are", () => {
    const params = fc.dictionary(
      fc.oneof(fc.string(), fc.constantFrom("id", "method", "jsonrpc")),
      fc.jsonValue(),
    );
    fc.assert(
      fc.property(fc.nat(), params, (id, value) => {
        for (const line of call(String(id), JSON.stringify(value))) {
          const message = parseMessage(Buffer.from(line));
          assert.equal(message.kind, "request");
          assert.equal(keyOf(line), message.id.key);
        }
      }),
    );
  });

  it("is not read from lines in other forms, which are parsed", () => {
    const others = [
      ...["-1", "1.5", "1e3", "01", '"7"', "null", "", "99999999999999999999"].flatMap((id) =>
        call(id),
      ),
      ...call("7", "{}", "tools/list"),
      ...call("7", "[]"),
      ...call("7").flatMap((line) => [`[${line}]`, ` ${line}`, `${line} `, line.slice(0, -2)]),
      '{"jsonrpc":"2.0","method":"tools/call","params":{}}',
      '{"method":"tools/call","params":{"x":{}},"jsonrpc":"2.0"}',
      '{"method":"tools/call","params":{"jsonrpc":"2.0","id":7}}',
      "",
    ];
    for (const line of others) assert.equal(keyOf(line), undefined, line);
  });
});
