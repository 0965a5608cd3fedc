import assert from "node:assert/strict";
import { describe } from "node:test";
import type { RawClient } from "../harness/raw-client.ts";
import type { RpcMessage } from "../harness/message.ts";
import { type Hub, it, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

function cancel(client: RawClient, requestId: string, reason = '"changed \\u00e9 mind"'): void {
  client.send(
    `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":${requestId},"reason":${reason}}}`,
  );
}

function answersTo(client: RawClient, id: unknown): number {
  return client.filter((message) => message.id === id && message.method === undefined).length;
}

/** The server's own id of a call that it got, as JSON text. */
async function idAt({ waitForEvent: logged }: Hub, server: string, tool: string): Promise<string> {
  const call = await logged(server, (event) => event.event === "call" && event.tool === tool);
  assert.ok(call.id !== undefined);
  return call.id;
}

describe("a client's cancel", () => {
  it("reaches the server under the server's own id, and is not answered", () =>
    withHub({ servers: { a: scripted() } }, async (hub) => {
      const { client, waitForEvent: logged, log } = hub;
      await client.initializeAndList();
      client.sendCall("a__hang", {}, "x-1");
      const id = await idAt(hub, "a", "hang");
      cancel(client, '"x-1"');
      const event = await logged("a", ({ event: kind }) => kind === "cancelled");
      assert.equal(event.requestId, id);
      await client.call("a__echo");
      assert.equal(answersTo(client, "x-1"), 0);
      assert.equal(log("a").filter(({ event: kind }) => kind === "cancelled").length, 1);
    }));

  it("carries the client's own reason", () =>
    withHub({ servers: { a: scripted() } }, async (hub) => {
      const { client, waitForEvent: logged } = hub;
      await client.initializeAndList();
      const id = client.sendCall("a__hang");
      await idAt(hub, "a", "hang");
      cancel(client, JSON.stringify(id));
      const event = await logged("a", ({ event: kind }) => kind === "cancelled");
      assert.equal(event.reason, '"changed \\u00e9 mind"');
    }));

  it("silences a server's late answer", () =>
    withHub({ servers: { a: scripted() } }, async (hub) => {
      const { client, waitForEvent: logged } = hub;
      await client.initializeAndList();
      const id = client.sendCall("a__hang", { late: true });
      await idAt(hub, "a", "hang");
      cancel(client, JSON.stringify(id));
      await logged("a", ({ event }) => event === "cancelled");
      // The server answers both on one pipe, in order: once this one is here, the late one was read.
      await client.call("a__echo");
      assert.equal(answersTo(client, id), 0);
    }));

  it("silences progress that comes after it", () =>
    withHub({ servers: { a: scripted() } }, async (hub) => {
      const { client, waitForEvent: logged } = hub;
      await client.initializeAndList();
      const params = {
        name: "a__progress",
        arguments: { steps: 600, ms: 20 },
        _meta: { progressToken: "p" },
      };
      const id = client.sendRequest("tools/call", params);
      await client.find(({ method }) => method === "notifications/progress", "progress");
      cancel(client, JSON.stringify(id));
      await client.request("ping");
      const from = client.lines.length;
      await logged("a", ({ event }) => event === "cancelled");
      await client.call("a__echo");
      assert.equal(
        client.lines.slice(from).filter(({ text }) => text.includes("notifications/progress"))
          .length,
        0,
      );
      assert.equal(answersTo(client, id), 0);
    }));

  it("ends the right one of two calls whose ids look alike, on two servers", () =>
    withHub({ servers: { a: scripted(), b: scripted() } }, async (hub) => {
      const { client, waitForEvent: logged, log } = hub;
      await client.initializeAndList();
      client.sendCall("a__hang", {}, 1000);
      client.sendCall("b__hang", {}, "1000");
      await idAt(hub, "a", "hang");
      const id = await idAt(hub, "b", "hang");
      cancel(client, '"1000"');
      assert.equal((await logged("b", ({ event }) => event === "cancelled")).requestId, id);
      await client.call("a__echo");
      assert.deepEqual(
        log("a").filter(({ event }) => event === "cancelled"),
        [],
      );
      cancel(client, "1000");
      await logged("a", ({ event }) => event === "cancelled");
      assert.equal(log("b").filter(({ event }) => event === "cancelled").length, 1);
    }));

  it("ends the right one of many calls on one server, whatever order they are cancelled in", () =>
    withHub({ servers: { a: scripted() } }, async ({ client, waitForEvent: logged, log }) => {
      await client.initializeAndList();
      const ids = Array.from({ length: 10 }, (_, at) =>
        client.sendCall("a__hang", { at }, `id ${at}`),
      );
      await logged("a", (event) => event.arguments === '{"at":9}');
      const order = [7, 2, 9, 0, 4];
      for (const at of order) cancel(client, JSON.stringify(ids[at]));
      await logged(
        "a",
        () => log("a").filter(({ event }) => event === "cancelled").length === order.length,
      );
      const calls = new Map(log("a").map(({ id, arguments: args }) => [id, args]));
      const ended = log("a").flatMap(({ event, requestId }) =>
        event === "cancelled" ? [calls.get(requestId)] : [],
      );
      assert.deepEqual(
        ended,
        order.map((at) => `{"at":${at}}`),
      );
    }));

  it("of a list that still waits for servers is not answered either", () =>
    withHub(
      { hub: { listWait: "800ms" }, servers: { late: scripted("--start-delay 60000") } },
      async ({ client }) => {
        await client.initialize();
        const cancelled = client.sendRequest("tools/list");
        const list = client.sendRequest("tools/list");
        cancel(client, JSON.stringify(cancelled));
        await client.response(list);
        await client.request("ping");
        assert.equal(answersTo(client, cancelled), 0);
      },
    ));

  it("that knows no request, or comes after the answer, changes nothing", () =>
    withHub({ servers: { a: scripted() } }, async ({ client, log }) => {
      await client.initializeAndList();
      const { message } = await client.call("a__echo");
      for (const id of [
        JSON.stringify(message.id),
        '"never"',
        "null",
        "{}",
        "12345678901234567890",
      ])
        cancel(client, id);
      client.send('{"jsonrpc":"2.0","method":"notifications/cancelled"}');
      client.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}');
      await client.call("a__echo");
      assert.deepEqual(
        log("a").filter(({ event }) => event === "cancelled"),
        [],
      );
      assert.equal(answersTo(client, message.id), 1);
    }));

  it("frees the id: the client may use it again for a call that is answered", () =>
    withHub({ servers: { a: scripted() } }, async (hub) => {
      const { client, waitForEvent: logged } = hub;
      await client.initializeAndList();
      client.sendCall("a__hang", {}, "again");
      await idAt(hub, "a", "hang");
      cancel(client, '"again"');
      await logged("a", ({ event }) => event === "cancelled");
      client.sendCall("a__echo", { n: 1 }, "again");
      assert.deepEqual((await client.response("again")).message.result?.structuredContent, {
        n: 1,
      });
    }));

  it("of a call that waits for its server to start is never sent to that server", () =>
    withHub({ servers: { a: scripted("--start-delay 500") } }, async ({ client, log }) => {
      await client.initializeAndList();
      await client.call("a__die");
      const id = client.sendCall("a__sleep", { ms: 0 });
      const other = client.sendCall("a__echo", { n: 1 });
      cancel(client, JSON.stringify(id));
      assert.deepEqual((await client.response(other)).message.result?.structuredContent, {
        n: 1,
      });
      assert.deepEqual(
        log("a").filter(({ event, tool }) => event === "cancelled" || tool === "sleep"),
        [],
      );
      assert.equal(answersTo(client, id), 0);
    }));
});

describe("what a server asks", () => {
  it("of the hub itself is answered: ping", () =>
    withHub({ servers: { a: scripted() } }, async ({ client }) => {
      await client.initializeAndList();
      const { message } = await client.call("a__ask", { method: "ping" });
      const answer = JSON.parse(message.result?.content?.[0]?.text ?? "{}") as RpcMessage;
      assert.deepEqual(answer.result, {});
    }));

  for (const method of ["sampling/createMessage", "roots/list", "elicitation/create", "no/such"]) {
    it(`that its client cannot do is refused, never met with silence: ${method}`, () =>
      withHub({ servers: { a: scripted() } }, async ({ client }) => {
        await client.initializeAndList();
        const { message } = await client.call("a__ask", { method });
        const answer = JSON.parse(message.result?.content?.[0]?.text ?? "{}") as RpcMessage;
        assert.match(String(answer.id), /^ask-/);
        assert.equal(typeof answer.error?.code, "number");
        assert.deepEqual(
          client.filter((asked) => asked.method === method),
          [],
          "the client is not asked",
        );
      }));
  }
});
