import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "node:test";
import { it, sharedHub, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const hub = sharedHub({ servers: { a: scripted() } });

describe("input that is wrong gets the error that JSON-RPC names, and the hub goes on", () => {
  const UNREADABLE = [
    "this is not json",
    '{"jsonrpc":"2.0","id":1,"method":',
    "{]",
    '{"a":1}}',
    "\u0000\u0001",
    '"open',
  ];
  it("what is not JSON → -32700 with id null", async () => {
    const { client } = hub();
    for (const line of UNREADABLE) {
      const { id, error } = await client.sendAndReceive(line);
      assert.deepEqual([error?.code, id], [-32700, null], line);
    }
  });

  const INVALID: [what: string, line: string, id: unknown][] = [
    ["a number", "42", null],
    ["a string", '"ping"', null],
    ["null", "null", null],
    ["an empty object", "{}", null],
    ["another version of JSON-RPC", '{"jsonrpc":"1.0","id":5,"method":"ping"}', 5],
    ["no version of JSON-RPC", '{"id":"six","method":"ping"}', "six"],
    ["neither method nor result", '{"jsonrpc":"2.0","id":7}', 7],
    ["a method that is no string", '{"jsonrpc":"2.0","id":8,"method":8}', 8],
    ["an object as id", '{"jsonrpc":"2.0","id":{},"method":"ping"}', null],
  ];
  it("JSON that is no JSON-RPC message → -32600 with the id that could be read, or null", async () => {
    const { client } = hub();
    for (const [what, line, id] of INVALID) {
      const answer = await client.sendAndReceive(line);
      assert.equal(answer.error?.code, -32600, what);
      assert.ok(answer.id === id || answer.id === null, `${what}: ${JSON.stringify(answer.id)}`);
    }
  });

  const REFUSED: [what: string, code: number, method: string, params: string | undefined][] = [
    ["an unknown method", -32601, "no/such", undefined],
    ["a method that only servers send", -32601, "sampling/createMessage", "{}"],
    ["tools/call without params", -32602, "tools/call", undefined],
    ["tools/call without a name", -32602, "tools/call", '{"arguments":{}}'],
    ["tools/call with a name that is no string", -32602, "tools/call", '{"name":5}'],
    ["tools/call with params that are no object", -32602, "tools/call", "[]"],
    ["an unknown tool of a known server", -32602, "tools/call", '{"name":"a__no-such"}'],
    ["an unknown tool of no server", -32602, "tools/call", '{"name":"nobody__echo"}'],
    ["the name of no tool, without a prefix", -32602, "tools/call", '{"name":"nothing"}'],
  ];
  it("a request that cannot be served → -32601 or -32602 under its own id", async () => {
    const { client } = hub();
    for (const [what, code, method, params] of REFUSED) {
      const { message } = await client.request(method, params);
      assert.equal(message.error?.code, code, `${what}: ${JSON.stringify(message)}`);
    }
    const { message } = await client.call("nobody__echo");
    assert.match(message.error?.message ?? "", /nobody__echo/);
  });

  const IGNORED = [
    '{"jsonrpc":"2.0","id":999,"result":{}}',
    '{"jsonrpc":"2.0","id":"nobody asked","error":{"code":1,"message":"x"}}',
    '{"jsonrpc":"2.0","method":"notifications/no-such"}',
    '{"jsonrpc":"2.0","method":"no/such/notification","params":{"x":1}}',
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
    "",
    "\r",
    "\n\n\r\n",
  ];
  it("answers that nobody asked for, unknown notifications and empty lines are ignored", async () => {
    const { client } = hub();
    for (const line of IGNORED) {
      const lines = await client.sendAndCollect(line);
      assert.deepEqual(
        lines.map(({ text }) => text),
        [],
        JSON.stringify(line),
      );
    }
  });
});

describe("bytes that are strange", () => {
  it("invalid UTF-8 is answered somehow, and the hub goes on", async () => {
    const { client } = hub();
    const line = Buffer.concat([
      Buffer.from(
        '{"jsonrpc":"2.0","id":"odd","method":"tools/call","params":{"name":"a__echo","arguments":{"x":"',
      ),
      Buffer.from([0xff, 0xfe, 0xc3]),
      Buffer.from('"}}}'),
    ]);
    const from = client.lines.length;
    client.write(line);
    client.write("\n");
    const { message } = await client.find(
      ({ id, error }) => id === "odd" || error?.code === -32700,
      "an answer",
      { from },
    );
    assert.equal(message.method, undefined);
    assert.equal((await client.call("a__echo")).message.error, undefined);
  });

  it("messages may come cut anywhere, several in one write, and with white space around", async () => {
    const { client } = hub();
    const line = (id: number): string =>
      ` {"jsonrpc" : "2.0","id":${id} , "method":"tools/call","params":{"name":"a__echo","arguments":{"id":${id},"é":"☃"}}} \n`;
    for (const byte of Buffer.from(line(1101))) {
      client.write(Buffer.of(byte));
      if (byte === 0xc3 || byte === 0x22) await new Promise(setImmediate);
    }
    client.write(line(1102) + line(1103) + line(1104).slice(0, 40));
    client.write(line(1104).slice(40));
    for (const id of [1101, 1102, 1103, 1104]) {
      assert.deepEqual((await client.response(id)).message.result?.structuredContent, {
        id,
        é: "☃",
      });
    }
  });

  it("a message over the limit is refused, and the link lives on", async () => {
    const { client } = hub();
    client.write(
      '{"jsonrpc":"2.0","id":70,"method":"tools/call","params":{"name":"a__echo","arguments":{"x":"',
    );
    for (let at = 0; at < 70; at += 1) client.write("x".repeat(1_000_000));
    const answer = await client.sendAndReceive('"}}}', 30_000);
    assert.ok(
      answer.error !== undefined && (answer.id === 70 || answer.id === null),
      JSON.stringify(answer).slice(0, 300),
    );
    assert.deepEqual((await client.call("a__echo", { n: 1 })).message.result?.structuredContent, {
      n: 1,
    });
  });

  it("nesting 100,000 levels deep ends nothing", async () => {
    const { client } = hub();
    const from = client.lines.length;
    const deep = "[".repeat(100_000) + "]".repeat(100_000);
    client.send(
      `{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":{"name":"a__pid","arguments":{"x":${deep}}}}`,
    );
    await client.find(({ id, error }) => id === "deep" || error?.code === -32700, "an answer", {
      from,
    });
    assert.equal((await client.call("a__echo")).message.error, undefined);
  });

  it("names out of Object.prototype are names as all others", async () => {
    const { client } = hub();
    for (const name of ["__proto__", "constructor", "a____proto__", "toString", "a__constructor"]) {
      assert.equal((await client.call(name)).message.error?.code, -32602, name);
    }
    const args = '{"__proto__":{"x":1},"constructor":1}';
    assert.equal((await client.call("a__echo", args)).message.result?.content?.[0]?.text, args);
  });

  it("a byte order mark in front and CRLF line ends are read past", () =>
    withHub({ servers: { a: scripted() } }, async ({ client }) => {
      client.write("\u{feff}");
      client.write(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"crlf","version":"1"}}}\r\n',
      );
      assert.equal((await client.response(1)).message.result?.protocolVersion, "2025-06-18");
      client.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\r\n');
      client.write('{"jsonrpc":"2.0","id":2,"method":"tools/list"}\r\n');
      assert.ok((await client.response(2)).message.result?.tools?.length);
      client.write(
        '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a__echo","arguments":{"n":1}}}\r\n',
      );
      assert.deepEqual((await client.response(3)).message.result?.structuredContent, { n: 1 });
    }));
});
