import assert from "node:assert/strict";
import { describe } from "node:test";
import { it, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import type { RpcMessage } from "../harness/message.ts";

const SERVERS = { servers: { a: scripted() } };

describe("batches", () => {
  const BATCH = `[${[
    '{"jsonrpc":"2.0","id":"one","method":"tools/call","params":{"name":"a__echo","arguments":{"n":1}}}',
    '{"jsonrpc":"2.0","method":"notifications/no-such"}',
    '{"jsonrpc":"2.0","id":"two","method":"ping"}',
    '{"jsonrpc":"2.0","id":"three","method":"no/such"}',
    "17",
  ].join(",")}]`;

  it("are accepted on 2025-03-26: the answers come as one batch, and none for notifications; an empty one is invalid", () =>
    withHub(SERVERS, async ({ client }) => {
      await client.initializeAndList("2025-03-26");
      client.send(BATCH);
      const answers = await client.until(10_000, "a batch of answers", () =>
        client.lines.map(({ json }) => json).find((json) => Array.isArray(json)),
      );
      const byId = new Map((answers as RpcMessage[]).map((answer) => [answer.id, answer]));
      assert.equal((answers as RpcMessage[]).length, 4);
      assert.deepEqual(byId.get("one")?.result?.structuredContent, { n: 1 });
      assert.deepEqual(byId.get("two")?.result, {});
      assert.equal(byId.get("three")?.error?.code, -32601);
      assert.equal(byId.get(null)?.error?.code, -32600);
      assert.equal(
        client.filter(({ id }) => id === "one").length,
        0,
        "no answer comes a second time",
      );
      assert.deepEqual(
        await client.sendAndCollect('[{"jsonrpc":"2.0","method":"notifications/no-such"}]'),
        [],
      );
      const { error, id } = await client.sendAndReceive("[]");
      assert.equal(error?.code, -32600);
      assert.equal(id, null);
    }));

  for (const version of ["2025-06-18", "2025-11-25"]) {
    it(`are refused as a whole on ${version}`, () =>
      withHub(SERVERS, async ({ client, log }) => {
        await client.initializeAndList(version);
        const { error, id } = await client.sendAndReceive(BATCH);
        assert.equal(error?.code, -32600);
        assert.equal(id, null);
        await client.call("a__pid");
        assert.deepEqual(
          log("a").filter(({ tool }) => tool === "echo"),
          [],
        );
      }));
  }
});
