import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { FAULTY, assertServes, faulty, peakMemory, withFaulty } from "../harness/faulty-server.ts";
import { it, sharedHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import type { RpcMessage } from "../harness/message.ts";

const MEGABYTE = 1_000_000;

/** A call as it stands on the wire; `args` is JSON text. */
function callText(id: string, tool: string, args: string): string {
  const params = `{"name":"${tool}","arguments":${args}}`;
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"method":"tools/call","params":${params}}`;
}

/** What a line gets for an answer: an error with this code, or nothing. */
const LINES: [line: string, code: number | undefined][] = [
  ["this is no JSON", -32700],
  ["", undefined],
  ["\r", undefined],
  ["{", -32700],
  ['{"jsonrpc":"2.0","id":1,"method":"ping"}}', -32700],
  ["\u0000", -32700],
  ['\u0000{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700],
  ['\u{feff}\u{feff}{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700],
  ['{"jsonrpc":"2.0","id":1,"method":"pi\u0000ng"}', -32700],
  ["[".repeat(100_000), -32700],
  ['{"a":'.repeat(100_000), -32700],
  ["x".repeat(MEGABYTE), -32700],
  ['{"jsonrpc":"2.0","id":"a\\q","method":"ping"}', -32700],
  ['{"method":"ping","params":{},"jsonrpc":"2.0","id":"\\u12"}', -32700],
  [
    `{"jsonrpc":"2.0","id":"a\\q","method":"ping","params":{"x":"${"z".repeat(MEGABYTE)}"}}`,
    -32700,
  ],
  ["42", -32600],
  ["null", -32600],
  ['"text"', -32600],
  ["{}", -32600],
  ["[]", -32600],
  ["[[[]]]", -32600],
  ['{"jsonrpc":"1.0","method":"ping"}', -32600],
  ['{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600],
  ['{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600],
  ['{"jsonrpc":"2.0","id":77,"result":{}}', undefined],
  ['{"jsonrpc":"2.0","id":"nobody asked","error":{"code":1,"message":"x"}}', undefined],
  ['{"jsonrpc":"2.0","result":{}}', undefined],
  ['{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}', undefined],
  ['{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}', undefined],
  ['{"jsonrpc":"2.0","method":"notifications/progress","params":5}', undefined],
];

const compare = (a: number, b: number): number => a - b;

describe("a client that sends what it should not, or much", () => {
  const shared = sharedHub({ servers: { bad: faulty(), good: scripted() } });

  it("gets an answer to each request before initialize, then one error for each line that is wrong, and the answers to those that are right", () =>
    withFaulty(faulty(), async ({ client }) => {
      client.send('{"jsonrpc":"2.0","method":"notifications/initialized"}');
      const early = [
        client.sendRequest("ping"),
        client.sendRequest("no/such"),
        client.sendCall("bad__fine"),
        client.sendRequest("tools/list"),
      ];
      for (const id of early) await client.response(id);
      await client.initializeAndList();
      for (const id of early) assert.equal(client.filter((message) => message.id === id).length, 1);
      const from = client.lines.length;
      const right = LINES.map((_, at) => callText(`right ${at}`, "bad__fine", `{"at":${at}}`));
      client.write(LINES.flatMap(([line], at) => [line, right[at], ""]).join("\n"));
      for (const at of LINES.keys()) {
        const { message } = await client.response(`right ${at}`);
        assert.equal(message.result?.content?.[0]?.text, `{"at":${at}}`);
      }
      const others = client.lines.slice(from).map(({ json }) => json as RpcMessage);
      const codes = others.flatMap(({ error }) => error?.code ?? []);
      const expected = LINES.flatMap(([, code]) => code ?? []);
      assert.deepEqual(codes.toSorted(compare), expected.toSorted(compare));
      assert.equal(others.length, codes.length + LINES.length);
    }));

  it("is served if it is half a message and the rest later; the same id twice at once is one result and one error", async () => {
    const { client } = shared();
    const whole = Buffer.from(`${callText("cut", "bad__fine", '{"é":"☃"}')}\n`);
    // The first half ends in the middle of a character.
    const half = whole.indexOf(Buffer.from("☃")) + 1;
    const other = client.sendCall("good__sleep", { ms: 100 });
    client.write(whole.subarray(0, half));
    await client.response(other);
    client.write(whole.subarray(half));
    const cut = await client.response("cut");
    assert.equal(cut.message.result?.content?.[0]?.text, '{"é":"☃"}');
    client.write(
      `${callText("same", "good__sleep", '{"ms":200}')}\n${callText("same", "bad__fine", "{}")}\n`,
    );
    const answers = (): RpcMessage[] =>
      client.filter(({ id }) => id === "same").map(({ message }) => message);
    await client.until(10_000, "two answers", () => answers().length === 2 || undefined);
    assert.deepEqual(
      answers().map(({ error }) => error?.code),
      [-32600, undefined],
    );
    assert.deepEqual(answers()[1]?.result?.structuredContent, { ms: 200 });
    const from = client.lines.length;
    client.sendCall("bad__fine", "{}", "same");
    await client.find(({ id, result }) => id === "same" && result !== undefined, "a third", {
      from,
    });
  });

  it("gets an answer to each of 1,000 requests in one write, and each its own, and a request of 8 MB whole to its server", async () => {
    const { client } = shared();
    const from = client.lines.length;
    const tools = ["bad__fine", "good__echo", "good__tail", "nobody__x"];
    const calls = Array.from({ length: 1000 }, (_, at) => {
      if (at % 5 === 4) return `{"jsonrpc":"2.0","id":"flood ${at}","method":"ping"}`;
      return callText(`flood ${at}`, tools[at % 5] ?? "", `{"at":${at}}`);
    });
    client.write(`${calls.join("\n")}\n`);
    const all = from + calls.length;
    await client.until(30_000, "all answers", () => client.lines.length >= all || undefined);
    const answers = client.lines.slice(from).map(({ json }) => json as RpcMessage);
    assert.equal(new Set(answers.map(({ id }) => id)).size, calls.length);
    for (const { id, result, error } of answers) {
      const at = Number(String(id).slice("flood ".length));
      if (at % 5 === 4) assert.deepEqual(result, {});
      else if (at % 5 === 3) assert.equal(error?.code, -32602);
      else assert.equal(result?.content?.[0]?.text, `{"at":${at}}`);
    }
    const args = `{"text":"${"01234567".repeat(MEGABYTE)}"}`;
    const { message } = await client.call("bad__fine", args, 30_000);
    assert.ok(message.result?.content?.[0]?.text === args);
    await assertServes(client, "good__echo");
  });

  it("bytes that are not UTF-8 is refused, and has CRLF line ends taken off: neither reaches the server", () => {
    // Beside the server, what it is sent goes to a file.
    const script = 'tee "$HOME/stdin" | "$0" "$1"';
    const copying = { command: "sh", args: ["-c", script, process.execPath, FAULTY] };
    return withFaulty(copying, async ({ client, dir }) => {
      await client.initializeAndList();
      const odd = Buffer.from('{"x":"caf\u00e9 \u00ff\u00fe"}', "latin1");
      const [before = "", after = ""] = callText("odd", "bad__fine", "|").split("|");
      client.write(Buffer.concat([Buffer.from(before), odd, Buffer.from(`${after}\r\n`)]));
      assert.equal((await client.response("odd")).message.error?.code, -32700);
      client.write(`${callText("even", "bad__fine", '{"x":"café"}')}\r\n`);
      await client.response("even");
      const sent = readFileSync(join(dir, "stdin"));
      assert.ok(sent.includes("café") && !sent.includes("odd") && !sent.includes(odd));
      assert.ok(!sent.includes("\r"));
    });
  });
});

describe("a client that sends much", () => {
  it("gets one error for a batch of a million and for a request of 200 MB, under its id and in little memory, and the link lives on", () =>
    withFaulty(faulty(), async ({ client }) => {
      await client.initializeAndList();
      const batch = await client.sendAndReceive(`[${"0,".repeat(MEGABYTE)}0]`);
      assert.ok(isRefusal(batch), JSON.stringify(batch));
      const [before = "", after = ""] = callText("huge", "bad__fine", '{"text":"|"}').split("|");
      const piece = Buffer.alloc(MEGABYTE, "x");
      client.write(before);
      for (let at = 0; at < 200; at += 1) client.write(piece);
      client.write(`${after}\n`);
      const { message } = await client.response("huge", 30_000);
      assert.equal(message.error?.code, -31004);
      await assertServes(client, "bad__fine");
      assert.ok(peakMemory(client.pid) < 300, `${peakMemory(client.pid)} MB`);
    }));

  it("gets one batch for a batch of 1,000 calls where there are batches, and one error for a batch of a million", () =>
    withFaulty(faulty(), async ({ client }) => {
      await client.initializeAndList("2025-03-26");
      const calls = Array.from({ length: 1000 }, (_, at) =>
        callText(String(at), at % 2 === 0 ? "bad__fine" : "good__echo", `{"at":${at}}`),
      );
      client.send(`[${calls.join()}]`);
      const answers = await client.until(30_000, "a batch", () =>
        client.lines.map(({ json }) => json).find((json) => Array.isArray(json)),
      );
      assert.equal(new Set((answers as RpcMessage[]).map(({ id }) => id)).size, calls.length);
      for (const { id, result } of answers as RpcMessage[]) {
        assert.equal(result?.content?.[0]?.text, `{"at":${String(id)}}`);
      }
      const batch = await client.sendAndReceive(`[${"0,".repeat(MEGABYTE)}0]`);
      assert.ok(isRefusal(batch), JSON.stringify(batch));
      assert.ok(peakMemory(client.pid) < 300, `${peakMemory(client.pid)} MB`);
    }));
});

const isRefusal = ({ error }: RpcMessage): boolean =>
  error?.code === -32700 || error?.code === -32600;
