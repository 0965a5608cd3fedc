import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { type ByteRange, joinPieces, textOf, utf8 } from "../../src/base/bytes.ts";
import { findResponseId, parseMessage, parseTruncated } from "../../src/jsonrpc/parse.ts";
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

/** A message with its id in front of this, or behind it. */
const head = (body: string, id: unknown = 7): string =>
  `{"jsonrpc":"2.0","id":${String(id)},${body}}`;
const tail = (body: string, id: unknown = 7): string =>
  `{${body},"jsonrpc":"2.0","id":${String(id)}}`;

describe("a response", () => {
  /** What is spliced: shape, id, outcome, and its body. */
  const spliced: readonly (readonly ["head" | "tail", number, "result" | "error", string])[] = [
    ["head", 7, "result", '"result":{"a":1.0}'],
    ["head", 0, "error", '"error":{"code":1,"message":"é"}'],
    ["head", 999_999_999_999_999, "result", '"result":1234567890123456789'],
    ["head", 7, "result", '"result":null'],
    ["tail", 7, "result", '"result":[ 1 ]'],
    ["tail", 42, "error", '"error":{}'],
    ["head", 7, "result", '"result":{},"_meta":{}'],
    ["head", 7, "result", '"result":"\\"method\\" \\u001b \uFEFF"'],
  ];
  for (const [at, id, outcome, body] of spliced) {
    it(`in the ${at} shape is spliced: ${body} under ${id}`, () => {
      const text = at === "head" ? head(body, id) : tail(body, id);
      const frame = readAs("response", text);
      assert.deepEqual([frame.shape, frame.id, frame.outcome], [{ kind: at }, id, outcome]);
      const rest = at === "head" ? `"jsonrpc":"2.0",${body}` : `${body},"jsonrpc":"2.0"`;
      assert.equal(readdressed(text, '"c"'), `{${rest},"id":"c"}`);
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
    [head('"result":null,"x":"method"'), 7, "result", "null"],
    [head('"result":{"method":"x"}'), 7, "result", '{"method":"x"}'],
    [head('"result":{}', "7.0"), 7, "result", "{}"],
    [head('"result":{}', "1e3"), 1000, "result", "{}"],
    [head('"result":{}', '"7"'), 7, "result", "{}"],
    ...["1.5", "-1", "12345678901234567890", '"a7"', '"1234567890123456"', '"0x7"', '""', "{}"].map(
      (id) => [head('"result":{}', id), undefined, "result", "{}"] as const,
    ),
    [head('"error":{}', "null"), undefined, "error", "{}"],
    [head('"result":{}', "true"), undefined, "result", "{}"],
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
    // Also those in capitals, for parsers that take no notice of case.
    assert.equal(
      readdressed('{"jsonrpc":"2.0", "id":7,"result":{},"ID":99,"iD":98}', '"c"'),
      '{"jsonrpc":"2.0", "id":"c","result":{},"ID":"c","iD":"c"}',
    );
  });
});

/** Each tries to make a relay that looks at the edges only take it for what it is not. */
describe("fooling the splice", () => {
  const METHODS = ["\\u006dethod", "\\u006Dethod", "m\\u0065thod", "metho\\u0064", "me\\u0074hod"];
  const forged = head('"result":{"forged":1}', 99);
  const versions = ['"2.00"', "2.0", '"1.0"', "null", '["2.0"]'];
  const zeros = ["007", "00", "01"];
  const REFUSED = {
    invalidRequest: {
      "a method key in front of the tail": ["method", ...METHODS].map((key) =>
        tail(`"result":{},"${key}":"x"`),
      ),
      "a method key behind the result": ["method", ...METHODS].map((key) =>
        head(`"result":{},"${key}":"x"`),
      ),
      "another version": versions.map((text) => `{"jsonrpc":${text},"id":7,"result":{}}`),
      "a tail in another member": [`{"x":${tail('"result":{}')}}`],
    },
    parseError: {
      "a raw line end inside a string": [
        head('"result":"a\rb"'),
        head('"method":"a\rb"'),
        '{"jsonrpc":"2.0","method":"ping\r"}',
        '[{"jsonrpc":"2.0","method":"a\nb"}]',
      ],
      "garbage in front of a valid tail": [
        `garbage${tail('"result":{}')}`,
        tail('"x":garbage,"result":{}'),
        '{garbage,"jsonrpc":"2.0","id":7}',
        head('garbage,"result":{}'),
      ],
      "nothing for a body or an id": [
        head('"result":{}', ""),
        tail('"result":{}', ""),
        head('"result":'),
        tail('"result":'),
        head('"result": '),
        '{"jsonrpc":"2.0","id":7,"result":',
        '{"result":{}',
        ',"jsonrpc":"2.0","id":7}',
      ],
      // Some clients read a stream of values.
      "a whole message after a body that ends early": [
        `${head('"result":{}')}${forged}{}`,
        `{"result":{}}${forged}${tail('"a":1')}`,
      ],
      "a body that does not end": ['{"result":{"a":"{},\\"jsonrpc\\":\\"2.0\\",\\"id\\":99}"'],
      "leading zeros": zeros.flatMap((id) => [head('"result":{}', id), tail('"result":{}', id)]),
      "two byte order marks": [`\uFEFF\uFEFF${head('"result":{}')}`],
    },
  };
  for (const [code, refused] of Object.entries(REFUSED)) {
    for (const [what, texts] of Object.entries(refused)) {
      it(`with ${what} fails`, () => {
        for (const text of texts) assert.equal(readAs("invalid", text).code, code, text);
      });
    }
  }

  it("with a request that has its id at the tail, as some SDKs write them, fails", () => {
    assert.equal(readAs("request", tail('"method":"ping"')).method, "ping");
  });

  it("with a second id does not give the client another id", () => {
    const answers = ["id", "\\u0069d", "i\\u0064", "\\u0069\\u0064"].map((key) =>
      head(`"result":{},"${key}":99`),
    );
    for (const text of [...answers, tail('"result":{},"id":99')]) {
      const again = JSON.parse(readdressed(text, '"c"')) as object;
      assert.deepEqual(again, { jsonrpc: "2.0", result: {}, id: "c" });
    }
    assert.equal(readAs("response", tail('"result":{},"id":99')).id, 7);
    assert.equal(readAs("response", head('"result":{},"\\u0069d":8')).id, 8, "the last one counts");
  });

  it("with a second result or error fails to hide that it is an answer", () => {
    for (const text of [
      head('"result":{},"error":{}'),
      head('"error":{},"result":{}'),
      tail('"result":1,"result":2'),
    ]) {
      const before = JSON.parse(text) as object;
      assert.equal(readAs("response", text).id, 7);
      assert.deepEqual(JSON.parse(readdressed(text, '"c"')), { ...before, id: "c" });
    }
  });

  it("with a raw line end as white space fails: it does not go out, and nothing else changes", () => {
    for (const text of [
      '{"jsonrpc":"2.0","id":7,"result":{\r}}',
      '{"jsonrpc":"2.0","id":7,"result":{}\r}',
      '\r{"jsonrpc":"2.0",\r\n"id":7,"result":"\\r"}',
      '{"result":[1,\r2],"jsonrpc":"2.0","id":7}',
      // No line holds this, but another link may bring it.
      '{"jsonrpc":"2.0","id":7,"result":{\n}}',
    ]) {
      assert.equal(readdressed(text, "7"), text.replaceAll(/[\r\n]/g, " "));
    }
    const pretty = JSON.stringify({ jsonrpc: "2.0", id: 7, method: "x", params: [1] }, null, 2);
    assert.equal(readAs("request", pretty).bytes.includes(10), false);
  });

  it("with what is no JSON in the body gets it passed on as this answer's", () => {
    const garbage = '"result":garbage}{';
    assert.equal(readdressed(tail(garbage), '"c"'), tail(garbage, '"c"'));
    const unclosed = tail('"result":{"a":1');
    assert.equal(JSON.stringify(readAs("response", unclosed).shape), '{"kind":"tail"}');
    assert.throws(() => JSON.parse(readdressed(unclosed, "1")) as unknown);
  });

  it("with look-alikes inside the body fails", () => {
    const inner = head('"result":{}', 99);
    const text = head(`"result":${inner}`);
    assert.equal(readdressed(text, '"c"'), `{"jsonrpc":"2.0","id":"c","result":${inner}}`);
    const string = JSON.stringify('{},"jsonrpc":"2.0","id":99}');
    assert.equal(readAs("response", tail(`"result":${string}`)).id, 7);
  });

  for (const id of ["1.0", "1e3", "-0", "-7", '"7"', "1000000000000000", "9007199254740993"]) {
    it(`with the id ${id} fails: only plain digits are spliced`, () => {
      for (const shape of [head, tail]) {
        const text = shape('"result":{}', id);
        assert.equal(readAs("response", text).shape.kind, "scanned");
        assert.equal(readdressed(text, "5"), shape('"result":{}', 5));
      }
    });
  }

  it("with one byte order mark in front fails: that may be there", () => {
    assert.equal(readAs("response", `\uFEFF${head('"result":{}')}`).id, 7);
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
  const asks = '"method":"tools/call","params":{"id":1}';
  const shapes = [
    (id: string) => head(asks, id),
    (id: string) => tail(asks, id),
    (id: string) =>
      `\t{ "id" : ${id} , "params" : {"id":1} , "method" : "tools\\/call" , "jsonrpc" : "2.0" } `,
  ];
  for (const [spelling, key] of ids) {
    it(`with the id ${spelling} keeps it as it is spelled`, () => {
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

  it("with an id that is no number and no text is refused, without an id", () => {
    for (const id of ["null", "true", "false", "{}", "[]", '{"id":1}']) {
      const frame = readAs("invalid", head('"method":"x"', id));
      assert.deepEqual([frame.code, frame.id], ["invalidRequest", undefined], id);
    }
  });

  it("gets the new id in place of every id that it spells", () => {
    const shape = (first: string, second: string, third: string): string =>
      `{"id":${first},"jsonrpc":"2.0","i\\u0064":${second},"method":"m","params":{"id":3},"id":${third}}`;
    const request = readAs("request", shape("null", '"x"', "2"));
    assert.equal(request.id.key, 2);
    assert.equal(written(withRequestId(request, 10, [], [])), shape("10", "10", "10"));
  });

  it("need not have params", () => {
    assert.equal(readAs("request", head('"method":"a"')).params, undefined);
  });

  it("with several methods or params, in whatever case, is refused: parsers differ on which one counts", () => {
    for (const other of [
      '"\\u006dethod":"b"',
      '"Method":"b"',
      '"params":{"a":1}',
      '"Params":{}',
      '"param\u017f":{}',
      '"ID":8',
    ]) {
      const frame = readAs("invalid", head(`${other},"method":"a","params":{}`));
      assert.deepEqual([frame.code, frame.id?.key], ["invalidRequest", 7], other);
    }
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

  it("has at most 1,000 messages, because they are handled in one turn", () => {
    const of = (count: number): string =>
      `[${Array.from({ length: count }, () => '{"jsonrpc":"2.0","id":1,"method":"ping"}').join(",")}]`;
    assert.equal(readAs("batch", of(1000)).items.length, 1000);
    assert.equal(readAs("invalid", of(1001)).code, "parseError");
  });

  it("that is empty is refused, and one that is not closed is no JSON", () => {
    assert.equal(readAs("invalid", "[]").code, "invalidRequest");
    const item = '{"jsonrpc":"2.0","method":"b"}';
    for (const text of [`[${item}`, `[${item}]]`, `[${item},]`]) {
      assert.equal(readAs("invalid", text).code, "parseError", text);
    }
  });

  it("of more than 100,000 messages is refused", () => {
    assert.equal(read(`[${"0,".repeat(100_000)}0]`).kind, "invalid");
  });
});

describe("what is no message", () => {
  const NO_JSON = [
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
  ];
  for (const text of NO_JSON) {
    it(`is a parse error if it is no JSON: ${JSON.stringify(text)}`, () => {
      const frame = readAs("invalid", text);
      assert.deepEqual([frame.code, frame.id], ["parseError", undefined]);
      assert.equal(bytesOf(frame).toString(), text);
    });
  }

  const JSON_VALUES = [
    "1",
    "null",
    '"jsonrpc"',
    " true ",
    "{}",
    '{"jsonrpc":"2.0"}',
    '{"method":"x"}',
  ];
  for (const text of JSON_VALUES) {
    it(`is an invalid request if it is JSON: ${text}`, () => {
      const frame = readAs("invalid", text);
      assert.deepEqual([frame.code, frame.id], ["invalidRequest", undefined]);
    });
  }

  it("has an id if it asks something, so that it can be answered", () => {
    for (const text of [
      '{"id":7,"method":"x"}',
      '{"jsonrpc":"1.0","id":7,"method":"x"}',
      head('"method":1'),
      head('"method":null'),
    ]) {
      assert.equal(readAs("invalid", text).id?.key, 7, text);
    }
  });

  it("has no id if it may be an answer: an error sent to that would hit a request of the peer's own", () => {
    for (const text of [
      '{"id":7,"result":{}}',
      '{"jsonrpc":"1.0","id":7,"error":{}}',
      '{"jsonrpc":"2.0","id":7}',
      head('"method":"x","result":{}'),
    ]) {
      assert.equal(readAs("invalid", text).id, undefined, text);
    }
  });

  it("is what nests deeper than 2048", () => {
    const nested = (depth: number): string =>
      head(`"method":"x","params":${"[".repeat(depth)}${"]".repeat(depth)}`);
    assert.equal(read(nested(3000)).kind, "invalid");
    assert.equal(read(nested(2000)).kind, "request");
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

describe("the id of a response that cannot be parsed", () => {
  for (const [line, id] of [
    ['{"jsonrpc": "2.0", "id": 7, "result": {"v": NaN}}', 7],
    ['{"jsonrpc":"2.0","id":7,"result":{"a":[{"b":"c', 7],
    ['{"id":"7","jsonrpc":"2.0","result":{}}x', 7],
    ['{"result":{"id":8,"v":NaN},"id":7,"jsonrpc":"2.0"}', 7],
    ['{"result":{"id":8,"t":"}"},"id": 7', 7],
    ['{"id":7,"error":{"code":NaN}}', 7],
    ['{"jsonrpc":"2.0","id":7,"result":null,}', 7],
    ['{"id":7,"result":{},"jsonrpc":"1.0"}', 7],
    ['{"jsonrpc":"2.0","result":{"id":8', undefined],
    ['{"jsonrpc":"2.0","result":{"t":"\\"},"id":8,', undefined],
    ['{"jsonrpc":"2.0","id":null,"result":NaN}', undefined],
    ['{"jsonrpc":"2.0","id":NaN,"result":{}}', undefined],
    ['{"jsonrpc":"2.0","id":7,"method":"x","result":NaN}', undefined],
    ['{"jsonrpc":"2.0","id":7}x', undefined],
    ["starting on port 7", undefined],
    ["", undefined],
  ] as const) {
    it(`is ${id ?? "not guessed"} in ${line}`, () => {
      assert.equal(findResponseId(readAs("invalid", line)), id);
    });
  }
});
