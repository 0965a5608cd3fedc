import assert from "node:assert/strict";
import { describe } from "node:test";
import type { RawClient } from "../harness/raw-client.ts";
import type { RpcMessage } from "../harness/message.ts";
import { it, type ScriptedEvent, sharedHub, withHub } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { waitFor } from "../harness/wait.ts";

const hub = sharedHub({ servers: { a: scripted(), b: scripted() } });

function cancel(client: RawClient, requestId: string, reason = '"changed \\u00e9 mind"'): void {
  client.send(
    `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":${requestId},"reason":${reason}}}`,
  );
}

function answersTo(client: RawClient, id: unknown): number {
  return client.filter((message) => message.id === id && message.method === undefined).length;
}

/** What a server logs from now on. */
function followLog(server: string) {
  const from = hub().log(server).length;
  const all = (): readonly ScriptedEvent[] => hub().log(server).slice(from);
  const wait = (test: (event: ScriptedEvent) => boolean): Promise<ScriptedEvent> =>
    waitFor(`an event of ${server}`, () => all().find(test), 10_000);
  return {
    cancellations: () => all().filter(({ event }) => event === "cancelled"),
    calls: () => all().filter(({ event }) => event === "call"),
    wait,
    cancelled: () => wait(({ event }) => event === "cancelled"),
    /** The server's own id of a call that it got, as JSON text. */
    callId: async (tool: string) =>
      (await wait((event) => event.event === "call" && event.tool === tool)).id,
  };
}

describe("a client's cancel", () => {
  it("reaches the server under the server's own id with the client's reason, is not answered, and frees the id", async () => {
    const { client } = hub();
    const log = followLog("a");
    client.sendCall("a__hang", {}, "x-1");
    const id = await log.callId("hang");
    cancel(client, '"x-1"');
    const { requestId, reason } = await log.cancelled();
    assert.deepEqual([requestId, reason], [id, '"changed \\u00e9 mind"']);
    await client.call("a__echo");
    assert.equal(answersTo(client, "x-1"), 0);
    assert.equal(log.cancellations().length, 1);
    client.sendCall("a__echo", { n: 1 }, "x-1");
    assert.deepEqual((await client.response("x-1")).message.result?.structuredContent, { n: 1 });
  });

  it("silences a server's late answer", async () => {
    const { client } = hub();
    const log = followLog("a");
    const id = client.sendCall("a__hang", { late: true });
    await log.callId("hang");
    cancel(client, JSON.stringify(id));
    await log.cancelled();
    // The server answers both on one pipe, in order: once this one is here, the late one was read.
    await client.call("a__echo");
    assert.equal(answersTo(client, id), 0);
  });

  it("silences progress that comes after it", async () => {
    const { client } = hub();
    const log = followLog("a");
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
    await log.cancelled();
    await client.call("a__echo");
    const late = client.lines
      .slice(from)
      .filter(({ text }) => text.includes("notifications/progress"));
    assert.deepEqual(late, []);
    assert.equal(answersTo(client, id), 0);
  });

  it("ends the right one of two calls whose ids look alike, on two servers", async () => {
    const { client } = hub();
    const [a, b] = [followLog("a"), followLog("b")];
    client.sendCall("a__hang", {}, 1000);
    client.sendCall("b__hang", {}, "1000");
    await a.callId("hang");
    const id = await b.callId("hang");
    cancel(client, '"1000"');
    assert.equal((await b.cancelled()).requestId, id);
    await client.call("a__echo");
    assert.deepEqual(a.cancellations(), []);
    cancel(client, "1000");
    await a.cancelled();
    assert.equal(b.cancellations().length, 1);
  });

  it("ends the right one of many calls on one server, whatever order they are cancelled in", async () => {
    const { client } = hub();
    const log = followLog("a");
    const ids = Array.from({ length: 10 }, (_, at) =>
      client.sendCall("a__hang", { at }, `id ${at}`),
    );
    await log.wait((event) => event.arguments === '{"at":9}');
    const order = [7, 2, 9, 0, 4];
    for (const at of order) cancel(client, JSON.stringify(ids[at]));
    await log.wait(() => log.cancellations().length === order.length);
    const calls = new Map(log.calls().map(({ id, arguments: args }) => [id, args]));
    assert.deepEqual(
      log.cancellations().map(({ requestId }) => calls.get(requestId)),
      order.map((at) => `{"at":${at}}`),
    );
  });

  it("that knows no request, or comes after the answer, changes nothing", async () => {
    const { client } = hub();
    const log = followLog("a");
    const { message } = await client.call("a__echo");
    const unknown = ['"never"', "null", "{}", "12345678901234567890"];
    for (const id of [JSON.stringify(message.id), ...unknown]) cancel(client, id);
    client.send('{"jsonrpc":"2.0","method":"notifications/cancelled"}');
    client.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}');
    await client.call("a__echo");
    assert.deepEqual(log.cancellations(), []);
    assert.equal(answersTo(client, message.id), 1);
  });

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
  /** The answer that a server gets. */
  async function ask(method: string): Promise<RpcMessage> {
    const { message } = await hub().client.call("a__ask", { method });
    return JSON.parse(message.result?.content?.[0]?.text ?? "{}") as RpcMessage;
  }

  it("of the hub itself is answered: ping", async () => {
    assert.deepEqual((await ask("ping")).result, {});
  });

  it("that its client cannot do is refused, never met with silence", async () => {
    for (const method of [
      "sampling/createMessage",
      "roots/list",
      "elicitation/create",
      "no/such",
    ]) {
      const answer = await ask(method);
      assert.match(String(answer.id), /^ask-/);
      assert.equal(typeof answer.error?.code, "number", method);
      const asked = hub().client.filter((message) => message.method === method);
      assert.deepEqual(asked, [], "the client is not asked");
    }
  });
});
