import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import type { Hub } from "../../src/hub/hub.ts";
import {
  callTool,
  initialize,
  type Json,
  listToolNames,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { isOf } from "../fixtures/peer-messages.ts";
import { waitFor } from "../harness/wait.ts";

const hubs: Hub[] = [];
afterEach(async () => {
  for (const hub of hubs.splice(0)) await hub.close();
});

/** A hub over one server that does not answer calls, with a client that knows its tools. */
async function begin() {
  const server = new ScriptedServer("x");
  server.onCall = () => undefined;
  const { hub, client } = setUpHub({ s: server });
  hubs.push(hub);
  await initialize(client);
  await listToolNames(client);
  const calls = (): Json[] => server.messagesOf("tools/call");
  const begun = (count: number) =>
    waitFor("the calls", () => calls().length === count || undefined);
  const send = (message: string): void => server.newestPeer?.send(message);
  return { client, server, calls, begun, send };
}

const errorOf = (code: number, id: string): string =>
  `{"jsonrpc":"2.0",${id}"error":{"code":${code},"message":"boom"}}`;

describe("An error without an id on a shared stream", () => {
  for (const id of ['"id":null,', ""]) {
    it(`answers the only call in flight: ${id || "no id"}`, async () => {
      const { client, begun, send } = await begin();
      const answer = callTool(client, "x");
      await begun(1);
      send(errorOf(-32603, id));
      const { error } = await answer;
      assert.equal(error?.code, -32603);
      assert.equal(error?.message, "boom");
    });
  }

  it("answers none of several calls, and no call if it says that a method is unknown", async () => {
    const { client, calls, begun, send } = await begin();
    const first = callTool(client, "x", { n: 1 });
    await begun(1);
    send(errorOf(-32601, '"id":null,'));
    const second = callTool(client, "x", { n: 2 });
    await begun(2);
    send(errorOf(-32603, '"id":null,'));
    for (const { id } of calls())
      send(JSON.stringify({ jsonrpc: "2.0", id, result: { content: [], ok: true } }));
    for (const { result } of await Promise.all([first, second])) assert.equal(result?.["ok"], true);
  });

  it("ends the handshake with what it says", async () => {
    const server = new ScriptedServer("x");
    server.onInitialize = () => undefined;
    const { hub, client } = setUpHub({ s: server });
    hubs.push(hub);
    await initialize(client);
    const peer = await waitFor("the server", () => server.newestPeer);
    await peer.find(isOf("initialize"));
    peer.send(errorOf(-32600, '"id":null,'));
    const error = await waitFor("the end", () => {
      const [connection] = hub.status()[0]?.connections ?? [];
      return connection?.lastError;
    });
    assert.equal(error.code, "handshakeFailed");
    assert.match(error.message, /boom/);
  });
});

describe("A response in an odd form", () => {
  it("reaches the client in the form of the specification", async () => {
    const { client, calls, begun, send } = await begin();
    const cases: readonly (readonly [string, (answer: Json) => void])[] = [
      ['"error":"text"', ({ error }) => assert.deepEqual(error, { code: -32603, message: "text" })],
      [
        '"error":{"message":"no code here"}',
        ({ error }) => assert.deepEqual(error, { code: -32603, message: "no code here" }),
      ],
      [
        '"result":{"content":[]},"error":null',
        (answer) => assert.deepEqual(Object.keys(answer).sort(), ["id", "jsonrpc", "result"]),
      ],
      [
        '"error":null,"result":{"content":[]}',
        (answer) => assert.deepEqual(Object.keys(answer).sort(), ["id", "jsonrpc", "result"]),
      ],
    ];
    for (const [at, [members, check]] of cases.entries()) {
      const answer = callTool(client, "x", { at });
      await begun(at + 1);
      send(`{"jsonrpc":"2.0","id":${String(calls()[at]?.id)},${members}}`);
      check(await answer);
    }
  });
});

describe("A member of a result that is null", () => {
  it("is absent: a cursor, instructions, a description, annotations", async () => {
    const server = new ScriptedServer("x");
    server.onInitialize = () =>
      '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":null},' +
      '"serverInfo":{"name":"s","version":"1","title":null},"instructions":null,"_meta":null}';
    server.onList = () =>
      '"result":{"tools":[{"name":"x","title":null,"description":null,"inputSchema":{"type":"object"},' +
      '"outputSchema":null,"annotations":null,"execution":null,"icons":null,"_meta":null}],"nextCursor":null,"_meta":null}';
    const { hub, client } = setUpHub({ s: server });
    hubs.push(hub);
    await initialize(client);
    assert.deepEqual(await listToolNames(client), ["s__x"]);
    assert.equal(server.messagesOf("tools/list").length, 1);
    server.onCall = () =>
      '"result":{"content":[],"isError":null,"structuredContent":null,"_meta":null}';
    const { result } = await callTool(client, "s__x");
    assert.deepEqual(result?.["content"], []);
  });
});

describe("An answer that the hub's own client cannot read", () => {
  for (const [body, words] of [
    ['"result":null', "null"],
    ['"result":"plain words"', "plain words"],
    ['"result":["a list"]', "a list"],
    ['"result":{"content":[],"v":NaN}', "NaN"],
    ['"error":{"code":-1,"message":"boom","data":NaN}', "boom"],
    ['"result":{},"error":{"code":-1,"message":"boom"}', "boom"],
    ['"note":"neither"', "neither"],
  ] as const) {
    it(`ends its call with an error that names the server and quotes it: ${body}`, async () => {
      const { client, calls, begun, send } = await begin();
      const answer = callTool(client, "x");
      await begun(1);
      send(`{"jsonrpc":"2.0","id":${Number(calls()[0]?.id)},${body}}`);
      const { error } = await answer;
      assert.equal(error?.data?.["code"], "answerInvalid");
      assert.match(error.message, /^Server "s" sent an answer that cannot be read: .+: "/);
      assert.ok(error.message.includes(words), error.message);
    });
  }
});
