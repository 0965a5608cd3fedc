import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { type ByteRange, joinPieces, textOf, utf8 } from "../../src/base/bytes.ts";
import { parseMessage, parseTruncated } from "../../src/jsonrpc/parse.ts";
import {
  buildError,
  buildNotification,
  buildRequest,
  buildResult,
  bytesOf,
  type EncodedMessage,
  errorCodeOf,
  joinMessage,
  type Message,
  readId,
  withRequestId,
  withResponseId,
} from "../../src/jsonrpc/message.ts";

const read = (text: string): Message => parseMessage(Buffer.from(text));

function readAs<K extends Message["kind"]>(kind: K, text: string): Extract<Message, { kind: K }> {
  const frame = read(text);
  assert.equal(frame.kind, kind, text);
  return frame as Extract<Message, { kind: K }>;
}

const slice = (bytes: Uint8Array, range: ByteRange | undefined): string | undefined =>
  range && textOf(bytes, range.start, range.end);

const written = (message: EncodedMessage): string => joinMessage(message).toString();

const readdressed = (text: string, id: string): string =>
  written(withResponseId(readAs("response", text), utf8(id)));

describe("a response", () => {
  /** What is spliced: text, shape, id, outcome, and the same under the id "c". */
  const spliced: readonly (readonly [
    string,
    "head" | "tail",
    number,
    "result" | "error",
    string,
  ])[] = [
    [
      '{"jsonrpc":"2.0","id":7,"result":{"a":1.0}}',
      "head",
      7,
      "result",
      '{"jsonrpc":"2.0","result":{"a":1.0},"id":"c"}',
    ],
    [
      '{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"é"}}',
      "head",
      0,
      "error",
      '{"jsonrpc":"2.0","error":{"code":1,"message":"é"},"id":"c"}',
    ],
    [
      '{"jsonrpc":"2.0","id":999999999999999,"result":1234567890123456789}',
      "head",
      999_999_999_999_999,
      "result",
      '{"jsonrpc":"2.0","result":1234567890123456789,"id":"c"}',
    ],
    [
      '{"jsonrpc":"2.0","id":7,"result":null}',
      "head",
      7,
      "result",
      '{"jsonrpc":"2.0","result":null,"id":"c"}',
    ],
    [
      '{"result":[ 1 ],"jsonrpc":"2.0","id":7}',
      "tail",
      7,
      "result",
      '{"result":[ 1 ],"jsonrpc":"2.0","id":"c"}',
    ],
    [
      '{"error":{},"jsonrpc":"2.0","id":42}',
      "tail",
      42,
      "error",
      '{"error":{},"jsonrpc":"2.0","id":"c"}',
    ],
    [
      '{"jsonrpc":"2.0","id":7,"result":{},"_meta":{}}',
      "head",
      7,
      "result",
      '{"jsonrpc":"2.0","result":{},"_meta":{},"id":"c"}',
    ],
    [
      '{"jsonrpc":"2.0","id":7,"result":"\\"method\\" \\u001b \uFEFF"}',
      "head",
      7,
      "result",
      '{"jsonrpc":"2.0","result":"\\"method\\" \\u001b \uFEFF","id":"c"}',
    ],
  ];
  for (const [text, at, id, outcome, out] of spliced) {
    it(`in the ${at} shape is spliced: ${text}`, () => {
      const frame = readAs("response", text);
      assert.deepEqual([frame.shape, frame.id, frame.outcome], [{ kind: at }, id, outcome]);
      assert.equal(readdressed(text, '"c"'), out);
    });
  }

  /** What is scanned: text, id, outcome, body. */
  const scanned: readonly (readonly [string, number | undefined, "result" | "error", string])[] = [
    ['{"jsonrpc": "2.0", "id": 7, "result": {"a": 1.0}}', 7, "result", '{"a": 1.0}'],
    [' {"jsonrpc":"2.0","id":7,"result":{}}', 7, "result", "{}"],
    ['{"jsonrpc":"2.0","id":7,"result":{}} ', 7, "result", "{}"],
    ['{"jsonrpc":"2.0","id":7,"result": {}}', 7, "result", "{}"],
    ['{"jsonrpc":"2.0","id":7,"result":{} }', 7, "result", "{}"],
    ['{"result": {},"jsonrpc":"2.0","id":7}', 7, "result", "{}"],
    ['{"result":{} ,"jsonrpc":"2.0","id":7}', 7, "result", "{}"],
    ['{"id":7,"jsonrpc":"2.0","error":{}}', 7, "error", "{}"],
    ['{"jsonrpc":"2.0","id":7,"result":null,"x":"method"}', 7, "result", "null"],
    ['{"jsonrpc":"2.0","id":7,"result":{"method":"x"}}', 7, "result", '{"method":"x"}'],
    ['{"jsonrpc":"2.0","id":7.0,"result":{}}', 7, "result", "{}"],
    ['{"jsonrpc":"2.0","id":1e3,"result":{}}', 1000, "result", "{}"],
    ['{"jsonrpc":"2.0","id":"7","result":{}}', 7, "result", "{}"],
    ['{"jsonrpc":"2.0","id":1.5,"result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":-1,"result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":12345678901234567890,"result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":"a7","result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":"1234567890123456","result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":"0x7","result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":"","result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":null,"error":{}}', undefined, "error", "{}"],
    ['{"jsonrpc":"2.0","id":true,"result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","id":{},"result":{}}', undefined, "result", "{}"],
    ['{"jsonrpc":"2.0","error":{}}', undefined, "error", "{}"],
    ['{"jsonrpc":"2.0","id":7, "error":{},"result":1}', 7, "result", "1"],
    ['{"jsonrpc":"2.0","id":7, "result":1,"result":2}', 7, "result", "2"],
    ['{"\\u006asonrpc":"\\u0032.0","\\u0069d":7,"resul\\u0074":{}}', 7, "result", "{}"],
  ];
  for (const [text, id, outcome, body] of scanned) {
    it(`in any other shape is scanned: ${text}`, () => {
      const frame = readAs("response", text);
      assert.deepEqual([frame.shape.kind, frame.id, frame.outcome], ["scanned", id, outcome]);
      assert.equal(slice(frame.bytes, frame.body), body);
    });
  }

  it("that was scanned gets the new id in place of every id that it spells, and keeps the rest", () => {
    assert.equal(
      readdressed('{"id":1, "jsonrpc":"2.0","\\u0069d":{"id":2},"result":{"id":3},"id":"7"}', "-1"),
      '{"id":-1, "jsonrpc":"2.0","\\u0069d":-1,"result":{"id":3},"id":-1}',
    );
  });
});

/** Each tries to make a relay that looks at the edges only take it for what it is not. */
describe("fooling the splice", () => {
  it("with a request that has its id at the tail, as some SDKs write them, fails", () => {
    const request = readAs("request", '{"method":"ping","jsonrpc":"2.0","id":7}');
    assert.equal(request.method, "ping");
    const disguised = '{"result":{},"method":"ping","jsonrpc":"2.0","id":7}';
    assert.equal(readAs("invalid", disguised).code, "invalidRequest");
  });

  it("with a method key behind the result fails", () => {
    const text = '{"jsonrpc":"2.0","id":7,"result":{},"method":"sampling/createMessage"}';
    assert.equal(readAs("invalid", text).code, "invalidRequest");
  });

  for (const key of [
    "\\u006dethod",
    "\\u006Dethod",
    "m\\u0065thod",
    "metho\\u0064",
    "me\\u0074hod",
  ]) {
    it(`with a method key that is spelled "${key}" fails`, () => {
      for (const text of [
        `{"jsonrpc":"2.0","id":7,"result":{},"${key}":"x"}`,
        `{"result":{},"${key}":"x","jsonrpc":"2.0","id":7}`,
      ]) {
        assert.equal(readAs("invalid", text).code, "invalidRequest");
      }
    });
  }

  it("with a second id behind the result does not give the client another id", () => {
    for (const key of ["id", "\\u0069d", "i\\u0064", "\\u0069\\u0064"]) {
      const text = `{"jsonrpc":"2.0","id":7,"result":{},"${key}":99}`;
      assert.deepEqual(JSON.parse(readdressed(text, '"c"')), {
        jsonrpc: "2.0",
        result: {},
        id: "c",
      });
    }
  });

  it("with a second id in front of the tail does not give the client another id", () => {
    const text = '{"result":{},"id":99,"jsonrpc":"2.0","id":7}';
    assert.equal(readAs("response", text).id, 7);
    assert.equal((JSON.parse(readdressed(text, "-1")) as { id: number }).id, -1);
  });

  it("with an escaped second id makes the last one count", () => {
    assert.equal(readAs("response", '{"jsonrpc":"2.0","id":7,"result":{},"\\u0069d":8}').id, 8);
  });

  it("with a second result or error fails to hide that it is an answer", () => {
    for (const text of [
      '{"jsonrpc":"2.0","id":7,"result":{},"error":{}}',
      '{"jsonrpc":"2.0","id":7,"error":{},"result":{}}',
      '{"result":1,"result":2,"jsonrpc":"2.0","id":7}',
    ]) {
      const before = JSON.parse(text) as object;
      assert.equal(readAs("response", text).id, 7);
      assert.deepEqual(JSON.parse(readdressed(text, '"c"')), { ...before, id: "c" });
    }
  });

  it("with a raw CR as white space fails: it does not go out, and nothing else changes", () => {
    for (const text of [
      '{"jsonrpc":"2.0","id":7,"result":{\r}}',
      '{"jsonrpc":"2.0","id":7,"result":{}\r}',
      '\r{"jsonrpc":"2.0",\r\n"id":7,"result":"\\r"}',
      '{"result":[1,\r2],"jsonrpc":"2.0","id":7}',
    ]) {
      const out = readdressed(text, "7");
      assert.equal(out, text.replaceAll(/[\r\n]/g, " "));
    }
  });

  it("with a raw LF, which no line holds but another link may bring, fails as well", () => {
    assert.equal(
      readdressed('{"jsonrpc":"2.0","id":7,"result":{\n}}', "8"),
      '{"jsonrpc":"2.0","id":8,"result":{ }}',
    );
    const pretty = JSON.stringify({ jsonrpc: "2.0", id: 7, method: "x", params: [1] }, null, 2);
    assert.equal(readAs("request", pretty).bytes.includes(10), false);
  });

  it("with a raw CR inside a string fails: that is no JSON, and is not repaired", () => {
    for (const text of [
      '{"jsonrpc":"2.0","id":7,"result":"a\rb"}',
      '{"jsonrpc":"2.0","id":7,"method":"a\rb"}',
      '{"jsonrpc":"2.0","method":"ping\r"}',
      '[{"jsonrpc":"2.0","method":"a\nb"}]',
    ]) {
      assert.equal(readAs("invalid", text).code, "parseError");
    }
  });

  it("with garbage in front of a valid tail gets it passed on as this answer's, or not at all", () => {
    assert.equal(
      readdressed('{"result":garbage}{,"jsonrpc":"2.0","id":7}', '"c"'),
      '{"result":garbage}{,"jsonrpc":"2.0","id":"c"}',
    );
    for (const text of [
      'garbage{"result":{},"jsonrpc":"2.0","id":7}',
      '{"x":garbage,"result":{},"jsonrpc":"2.0","id":7}',
      '{garbage,"jsonrpc":"2.0","id":7}',
      '{"jsonrpc":"2.0","id":7,garbage,"result":{}}',
    ]) {
      assert.equal(readAs("invalid", text).code, "parseError");
    }
  });

  it("with nothing for a body or an id fails", () => {
    for (const text of [
      '{"jsonrpc":"2.0","id":,"result":{}}',
      '{"result":{},"jsonrpc":"2.0","id":}',
      '{"jsonrpc":"2.0","id":7,"result":}',
      '{"result":,"jsonrpc":"2.0","id":7}',
      '{"jsonrpc":"2.0","id":7,"result": }',
      '{"jsonrpc":"2.0","id":7,"result":',
      '{"result":{}',
      ',"jsonrpc":"2.0","id":7}',
    ]) {
      assert.equal(readAs("invalid", text).code, "parseError");
    }
  });

  it("with a whole message after a body that ends early fails, as some clients read a stream of values", () => {
    const forged = '{"jsonrpc":"2.0","id":99,"result":{"forged":1}}';
    for (const text of [
      `{"jsonrpc":"2.0","id":7,"result":{}}${forged}{}`,
      `{"result":{}}${forged}{"a":1,"jsonrpc":"2.0","id":7}`,
    ]) {
      assert.equal(readAs("invalid", text).code, "parseError");
    }
  });

  it("with an id in capitals, for parsers that take no notice of case, fails", () => {
    const text = '{"jsonrpc":"2.0", "id":7,"result":{},"ID":99,"iD":98}';
    assert.equal(
      readdressed(text, '"c"'),
      '{"jsonrpc":"2.0", "id":"c","result":{},"ID":"c","iD":"c"}',
    );
  });

  it("with look-alikes inside the body fails", () => {
    const inner = '{"jsonrpc":"2.0","id":99,"result":{}}';
    const text = `{"jsonrpc":"2.0","id":7,"result":${inner}}`;
    assert.equal(readdressed(text, '"c"'), `{"jsonrpc":"2.0","id":"c","result":${inner}}`);
    const string = JSON.stringify('{},"jsonrpc":"2.0","id":99}');
    const tail = `{"result":${string},"jsonrpc":"2.0","id":7}`;
    assert.equal(readAs("response", tail).id, 7);
    const open = `{"result":{"a":${string}`;
    assert.equal(readAs("invalid", open).code, "parseError");
  });

  it("with a tail that is nested in another member fails", () => {
    const text = '{"x":{"result":{},"jsonrpc":"2.0","id":7}}';
    assert.equal(readAs("invalid", text).code, "invalidRequest");
    const unclosed = '{"result":{"a":1,"jsonrpc":"2.0","id":7}';
    assert.equal(JSON.stringify(readAs("response", unclosed).shape), '{"kind":"tail"}');
    assert.throws(() => JSON.parse(readdressed(unclosed, "1")) as unknown);
  });

  for (const id of ["007", "00", "01"]) {
    it(`with the leading zero of ${id} fails: that is no JSON`, () => {
      for (const text of [
        `{"jsonrpc":"2.0","id":${id},"result":{}}`,
        `{"result":{},"jsonrpc":"2.0","id":${id}}`,
      ]) {
        assert.equal(readAs("invalid", text).code, "parseError");
      }
    });
  }

  for (const id of ["1.0", "1e3", "-0", "-7", '"7"', "1000000000000000", "9007199254740993"]) {
    it(`with the id ${id} fails: only plain digits are spliced`, () => {
      for (const text of [
        `{"jsonrpc":"2.0","id":${id},"result":{}}`,
        `{"result":{},"jsonrpc":"2.0","id":${id}}`,
      ]) {
        assert.equal(readAs("response", text).shape.kind, "scanned");
        assert.equal(readdressed(text, "5"), text.replace(`"id":${id}`, '"id":5'));
      }
    });
  }

  it("with two byte order marks in front fails: one may be there", () => {
    const text = '{"jsonrpc":"2.0","id":7,"result":{}}';
    assert.equal(readAs("response", `\uFEFF${text}`).id, 7);
    assert.equal(readAs("invalid", `\uFEFF\uFEFF${text}`).code, "parseError");
  });

  it("with another spelling of the version fails", () => {
    for (const version of ['"2.00"', "2.0", '"1.0"', "null", '["2.0"]']) {
      const text = `{"jsonrpc":${version},"id":7,"result":{}}`;
      assert.equal(readAs("invalid", text).code, "invalidRequest");
    }
  });
});

describe("a request", () => {
  const ids: readonly (readonly [spelling: string, key: string])[] = [
    ["0", "0"],
    ["-1", "-1"],
    ["-0", "0"],
    ["7", "7"],
    ["1.0", "1"],
    ["1e3", "1000"],
    ["1.5", "1.5"],
    ["9007199254740991", "9007199254740991"],
    ["9007199254740993", "9007199254740993"],
    ["12345678901234567890", "12345678901234567890"],
    ["1e400", "1e400"],
    ['"7"', '"7'],
    ['""', '"'],
    ['"é日本"', '"é日本'],
    ['"a\\"\\\\\\u0041\\n"', '"a"\\A\n'],
    ['"\\ud83d\\ude00"', '"😀'],
    ['"12345678901234567890"', '"12345678901234567890'],
  ];
  for (const [spelling, key] of ids) {
    it(`with the id ${spelling} keeps it as it is spelled`, () => {
      const shapes = [
        (id: string) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"id":1}}`,
        (id: string) => `{"method":"tools/call","params":{"id":1},"jsonrpc":"2.0","id":${id}}`,
        (id: string) =>
          `\t{ "id" : ${id} , "params" : {"id":1} , "method" : "tools\\/call" , "jsonrpc" : "2.0" } `,
      ];
      for (const shape of shapes) {
        const request = readAs("request", shape(spelling));
        assert.equal(request.method, "tools/call");
        assert.equal(String(request.id.key), key);
        assert.equal(joinPieces([request.id]).toString(), spelling);
        assert.equal(slice(request.bytes, request.params), '{"id":1}');
        assert.equal(written(withRequestId(request, 5, [], [])), shape("5"));
      }
    });
  }

  it("has the same key for the same id in other spellings, and another for a string of its digits", () => {
    const key = (text: string): string | number | undefined =>
      readId(utf8(text), { start: 0, end: utf8(text).length })?.key;
    assert.equal(key("1000"), key("1e3"));
    assert.equal(key("7"), key("7.0"));
    assert.equal(key('"a"'), key('"\\u0061"'));
    assert.notEqual(key("7"), key('"7"'));
    assert.notEqual(key("12345678901234567890"), key("12345678901234567891"));
  });

  for (const id of ["null", "true", "false", "{}", "[]", '{"id":1}']) {
    it(`with the id ${id} is refused, without an id`, () => {
      const frame = readAs("invalid", `{"jsonrpc":"2.0","id":${id},"method":"x"}`);
      assert.deepEqual([frame.code, frame.id], ["invalidRequest", undefined]);
    });
  }

  it("gets the new id in place of every id that it spells", () => {
    const request = readAs(
      "request",
      '{"id":null,"jsonrpc":"2.0","i\\u0064":"x","method":"m","params":{"id":3},"id":2}',
    );
    assert.equal(request.id.key, 2);
    assert.equal(
      written(withRequestId(request, 10, [], [])),
      '{"id":10,"jsonrpc":"2.0","i\\u0064":10,"method":"m","params":{"id":3},"id":10}',
    );
  });

  it("with several methods or params means the last ones", () => {
    const request = readAs(
      "request",
      '{"jsonrpc":"2.0","id":1,"method":"a","params":1,"\\u006dethod":"b","params":[]}',
    );
    assert.equal(request.method, "b");
    assert.equal(slice(request.bytes, request.params), "[]");
  });

  it("need not have params", () => {
    assert.equal(readAs("request", '{"jsonrpc":"2.0","id":1,"method":"a"}').params, undefined);
  });
});

describe("a notification", () => {
  it("is what has a method and no id", () => {
    const text = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"id":1}}';
    const frame = readAs("notification", text);
    assert.equal(frame.method, "notifications/progress");
    assert.equal(slice(frame.bytes, frame.params), '{"id":1}');
    assert.equal(readAs("notification", '{"jsonrpc":"2.0","method":""}').params, undefined);
  });
});

describe("a batch", () => {
  it("is read message by message", () => {
    const batch = readAs(
      "batch",
      ' [ {"jsonrpc":"2.0","id":1,"method":"a"} ,{"jsonrpc":"2.0","method":"b"},\r\n' +
        '{"jsonrpc":"2.0","id":7,"result":{}},{"result":{\r},"jsonrpc":"2.0","id":8},[],7,{} ] ',
    );
    assert.deepEqual(
      batch.items.map((item) => item.kind),
      ["request", "notification", "response", "response", "invalid", "invalid", "invalid"],
    );
    for (const item of batch.items) {
      assert.ok(item.kind !== "batch");
      assert.equal(item.bytes.includes(0x0d), false);
      if (item.kind === "invalid") assert.equal(item.code, "invalidRequest");
    }
    const answers = batch.items.filter((item) => item.kind === "response");
    assert.deepEqual(
      answers.map((answer) => written(withResponseId(answer, utf8('"c"')))),
      ['{"jsonrpc":"2.0","result":{},"id":"c"}', '{"result":{ },"jsonrpc":"2.0","id":"c"}'],
    );
  });

  it("that is empty is refused, and one that is not closed is no JSON", () => {
    assert.equal(readAs("invalid", "[]").code, "invalidRequest");
    assert.equal(readAs("invalid", '[{"jsonrpc":"2.0","method":"b"}').code, "parseError");
    assert.equal(readAs("invalid", '[{"jsonrpc":"2.0","method":"b"}]]').code, "parseError");
    assert.equal(readAs("invalid", '[{"jsonrpc":"2.0","method":"b"},]').code, "parseError");
  });

  it("of more than 100,000 messages is refused", () => {
    assert.equal(read(`[${"0,".repeat(100_000)}0]`).kind, "invalid");
  });
});

describe("what is no message", () => {
  for (const text of [
    "",
    " ",
    "hello",
    "{",
    "{}}",
    "}",
    '{"jsonrpc":"2.0"',
    "{}{}",
    "\0",
    "[1",
    "1 2",
  ]) {
    it(`is a parse error if it is no JSON: ${JSON.stringify(text)}`, () => {
      const frame = readAs("invalid", text);
      assert.deepEqual([frame.code, frame.id], ["parseError", undefined]);
      assert.equal(bytesOf(frame).toString(), text);
    });
  }

  for (const text of [
    "1",
    "null",
    '"jsonrpc"',
    " true ",
    "{}",
    '{"jsonrpc":"2.0"}',
    '{"method":"x"}',
  ]) {
    it(`is an invalid request if it is JSON: ${text}`, () => {
      const frame = readAs("invalid", text);
      assert.deepEqual([frame.code, frame.id], ["invalidRequest", undefined]);
    });
  }

  it("has an id if it asks something, so that it can be answered", () => {
    for (const text of [
      '{"id":7,"method":"x"}',
      '{"jsonrpc":"1.0","id":7,"method":"x"}',
      '{"jsonrpc":"2.0","id":7,"method":1}',
      '{"jsonrpc":"2.0","id":7,"method":null}',
    ]) {
      assert.equal(readAs("invalid", text).id?.key, 7, text);
    }
  });

  it("has no id if it may be an answer: an error sent to that would hit a request of the peer's own", () => {
    for (const text of [
      '{"id":7,"result":{}}',
      '{"jsonrpc":"1.0","id":7,"error":{}}',
      '{"jsonrpc":"2.0","id":7}',
      '{"jsonrpc":"2.0","id":7,"method":"x","result":{}}',
    ]) {
      assert.equal(readAs("invalid", text).id, undefined, text);
    }
  });

  it("is what nests deeper than 2048", () => {
    const deep = "[".repeat(3000) + "]".repeat(3000);
    assert.equal(read(`{"jsonrpc":"2.0","id":1,"method":"x","params":${deep}}`).kind, "invalid");
    const fine = "[".repeat(2000) + "]".repeat(2000);
    assert.equal(read(`{"jsonrpc":"2.0","id":1,"method":"x","params":${fine}}`).kind, "request");
  });
});

describe("what toolmux writes itself", () => {
  it("reads back as what it was meant to be", () => {
    const request = readAs("request", written(buildRequest(3, "tools/list", { cursor: "é\n" })));
    assert.equal(joinPieces([request.id]).toString(), "3");
    assert.equal(slice(request.bytes, request.params), '{"cursor":"é\\n"}');
    assert.equal(readAs("request", written(buildRequest(0, "ping"))).params, undefined);
    const notification = readAs("notification", written(buildNotification("x", {})));
    assert.equal(slice(notification.bytes, notification.params), "{}");
  });

  it("answers with the client's id as the last member", () => {
    assert.equal(
      written(buildResult(utf8('"c"'), utf8('{"a":1.0}'))),
      '{"jsonrpc":"2.0","result":{"a":1.0},"id":"c"}',
    );
    assert.equal(
      written(buildError(undefined, { code: -32700, message: "é" })),
      '{"jsonrpc":"2.0","error":{"code":-32700,"message":"é"},"id":null}',
    );
  });
});

describe("the edges of a message that was too large", () => {
  const filler = '"x":"' + "a".repeat(5000) + '"';
  const edges = (text: string): [string, string | number] | undefined => {
    const bytes = Buffer.from(text);
    const found = parseTruncated(bytes.subarray(0, 4096), bytes.subarray(-4096));
    return found && [found.kind, found.id.key];
  };
  const cases: readonly (readonly [string, [string, string | number] | undefined])[] = [
    [`{"jsonrpc":"2.0","id":7,"result":{${filler}}}`, ["response", 7]],
    [`{"jsonrpc": "2.0", "id": 7, "error": {${filler}}}`, ["response", 7]],
    [`{"result":{${filler}},"jsonrpc":"2.0","id":7}`, ["response", 7]],
    [`{"jsonrpc":"2.0","id":"a","method":"x","params":{${filler}}}`, ["request", '"a']],
    [`{"method":"x","params":{${filler}},"jsonrpc":"2.0","id":-1} `, ["request", -1]],
    [`{"params":{${filler}},"method":"x","jsonrpc":"2.0","id":"\\u0061"}`, ["request", '"a']],
    [`{"jsonrpc":"2.0","method":"x","params":{${filler}}}`, undefined],
    [`{"jsonrpc":"2.0","id":null,"method":"x","params":{${filler}}}`, undefined],
    [`{"other":{${filler}},"jsonrpc":"2.0","id":7}`, undefined],
    ["x".repeat(9000), undefined],
    ["日本語".repeat(2000), undefined],
  ];
  for (const [text, found] of cases) {
    const name = text.length > 60 ? `${text.slice(0, 30)}…${text.slice(-30)}` : text;
    it(`tell ${found === undefined ? "nothing" : found.join(" ")} of ${name}`, () => {
      assert.deepEqual(edges(text), found);
    });
  }
});

describe("the code of an error", () => {
  it("is read where there is one, and missing where it is malformed", () => {
    const codeIn = (error: string): unknown => {
      const frame = parseMessage(Buffer.from(`{"jsonrpc":"2.0","id":1,"error":${error}}`));
      assert.ok(frame.kind === "response");
      return errorCodeOf(frame);
    };
    assert.equal(codeIn('{"code":-32601,"message":"none"}'), -32601);
    for (const error of ['{"code":-32601,,}', '{"code":-}', "5", "{}"]) {
      assert.equal(codeIn(error), undefined, error);
    }
  });
});
