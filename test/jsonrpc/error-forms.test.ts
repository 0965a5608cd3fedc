import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, test } from "node:test";
import { joinMessage, type Response, withResponseId } from "../../src/jsonrpc/message.ts";
import { parseMessage, withWellFormedError } from "../../src/jsonrpc/parse.ts";

function parseResponse(text: string): Response {
  const message = parseMessage(Buffer.from(text));
  assert.equal(message.kind, "response", text);
  return message;
}

/** The response as a client with id "c" gets it. */
const relayed = (response: Response): unknown =>
  JSON.parse(joinMessage(withResponseId(response, Buffer.from('"c"'))).toString());

describe("A response with a result and an error", () => {
  const long = "x".repeat(5000);
  const bodies: readonly (readonly [result: string, error: string, outcome: "result" | "error"])[] =
    [
      ['{"a":1}', "null", "result"],
      [`{"a":"${long}"}`, "null", "result"],
      ['{"a":{"error":null}}', "null", "result"],
      ["[]", "null", "result"],
      ["null", '{"code":1,"message":"m"}', "error"],
      ["null", "null", "result"],
    ];
  const orders: readonly ((result: string, error: string) => string)[] = [
    (result, error) => `{"jsonrpc":"2.0","id":7,"result":${result},"error":${error}}`,
    (result, error) => `{"jsonrpc":"2.0","id":7,"error":${error},"result":${result}}`,
    (result, error) => `{"result":${result},"error":${error},"jsonrpc":"2.0","id":7}`,
    (result, error) => `{"error":${error},"result":${result},"jsonrpc":"2.0","id":7}`,
    (result, error) => `{ "id": 7, "error": ${error} , "jsonrpc": "2.0", "result": ${result} }`,
  ];
  test("of which one is null has the other alone, in whatever order and form", () => {
    for (const [result, error, outcome] of bodies) {
      for (const write of orders) {
        const response = parseResponse(write(result, error));
        assert.equal(response.id, 7);
        assert.equal(response.outcome, outcome);
        const body: unknown = JSON.parse(outcome === "result" ? result : error);
        assert.deepEqual(relayed(response), { jsonrpc: "2.0", id: "c", [outcome]: body });
      }
    }
  });

  test("whose result ends with a null error of its own is spliced as before", () => {
    const text = '{"jsonrpc":"2.0","id":7,"result":{"content":[],"error":null}}';
    assert.equal(parseResponse(text).shape.kind, "head");
  });
});

describe("An error of a server", () => {
  const NO_TEXT = "The server answered with an error without a message.";
  const cases: readonly (readonly [error: unknown, expected: unknown])[] = [
    ["boom", { code: -32603, message: "boom", data: undefined }],
    [{ message: "no code here" }, { code: -32603, message: "no code here" }],
    [
      { code: "E1", message: "m" },
      { code: -32603, message: "m" },
    ],
    [
      { code: 1.5, message: "m" },
      { code: -32603, message: "m" },
    ],
    [
      { code: null, message: "m" },
      { code: -32603, message: "m" },
    ],
    [{ code: 5 }, { code: 5, message: NO_TEXT, data: { code: 5 } }],
    [
      { code: 5, message: null },
      { code: 5, message: NO_TEXT, data: { code: 5, message: null } },
    ],
    [
      { code: 5, detail: "d" },
      { code: 5, message: "d" },
    ],
    [
      { message: "m", data: [1] },
      { code: -32603, message: "m", data: [1] },
    ],
    [
      { code: 5, message: "m", data: null },
      { code: 5, message: "m", data: null },
    ],
    [null, { code: -32603, message: NO_TEXT }],
    [7, { code: -32603, message: NO_TEXT, data: 7 }],
    [[{ message: "first" }], { code: -32603, message: "first", data: [{ message: "first" }] }],
  ];
  test("always has a numeric code and a message", () => {
    for (const [error, expected] of cases) {
      for (const text of [
        `{"jsonrpc":"2.0","id":7,"error":${JSON.stringify(error)}}`,
        `{"error":${JSON.stringify(error)},"jsonrpc":"2.0","id":7}`,
      ]) {
        const response = withWellFormedError(parseResponse(text));
        assert.equal(response.id, 7);
        const message = {
          jsonrpc: "2.0",
          id: "c",
          error: JSON.parse(JSON.stringify(expected)) as unknown,
        };
        assert.deepEqual(relayed(response), message, text);
      }
    }
  });

  test("keeps its bytes if it has both", () => {
    const response = parseResponse(
      '{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m","x":1.0}}',
    );
    assert.equal(withWellFormedError(response), response);
  });
});
