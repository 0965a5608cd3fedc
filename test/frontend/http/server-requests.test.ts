import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../../src/base/bytes.ts";
import { HttpServer, type ServedHub } from "../../../src/frontend/http/server.ts";
import { JSON_WAIT } from "../../../src/frontend/http/post-response.ts";
import { BODY_CHECK_INTERVAL } from "../../../src/frontend/http/request-body.ts";
import { buildResult, type Message } from "../../../src/jsonrpc/message.ts";
import type { Responder, SentRequest } from "../../../src/transport/transport.ts";
import { TransportRecorder } from "../../contract/transport.ts";
import { VirtualClock } from "../../fixtures/virtual-clock.ts";
import { setUpHttp, HttpTestClient } from "../../fixtures/http-client.ts";
import { callRequest, INITIALIZE_REQUEST, ScriptedServer } from "../../fixtures/memory-hub.ts";

const PING = { jsonrpc: "2.0", id: 7, method: "ping" };

describe("the way that nearly all messages go", () => {
  const rules = { token: "s3cret-token", maxMessage: 1000 };
  const known = { Authorization: "Bearer s3cret-token" };
  const big = JSON.stringify({ ...PING, params: { x: "x".repeat(1000) } });
  // With a query, an address goes through the routes.
  for (const path of ["/mcp", "/mcp?x"])
    for (const [what, status, body, headers] of [
      ["another host", 403, PING, { ...known, Host: "evil.example" }],
      ["another host that ends like the path", 403, PING, { ...known, Host: "evil.example/mcp" }],
      ["a page of another origin", 403, PING, { ...known, Origin: "https://evil.example" }],
      ["who has no token", 401, PING, {}],
      ["who has another token", 401, PING, { Authorization: "Bearer other" }],
      ["another revision", 400, PING, { ...known, "MCP-Protocol-Version": "1.0" }],
      ["another session", 404, PING, { ...known, "Mcp-Session-Id": "x" }],
      ["no session", 400, PING, { ...known, "Mcp-Session-Id": null }],
      ["who takes no answer", 406, PING, { ...known, Accept: "text/html" }],
      ["another type", 415, PING, { ...known, "Content-Type": "text/plain" }],
      ["too much", 413, big, known],
      ["what is no message", 400, "{", known],
      ["an id with a broken escape", 400, '{"jsonrpc":"2.0","id":"a\\q","method":"ping"}', known],
      ["what is allowed", 200, PING, known],
    ] as const)
      it(`answers ${status} to ${what}, at ${path}`, async () => {
        const httpClient = setUpHttp({}, { server: rules }).newClient();
        const first = await httpClient.request("POST", INITIALIZE_REQUEST, known);
        httpClient.sessionId = first.headers.get("Mcp-Session-Id") ?? undefined;
        assert.ok(httpClient.sessionId);
        httpClient.path = path;
        const response = await httpClient.request("POST", body, headers);
        assert.equal(response.status, status);
      });

  it("costs no timer for each", async () => {
    const clock = new VirtualClock();
    const httpClient = setUpHttp({ s: new ScriptedServer("t") }, { clock }).newClient();
    await httpClient.initialize();
    assert.equal((await httpClient.post(callRequest(0, "s__t"))).status, 200);
    const { timerCount: count } = clock;
    for (let id = 1; id < 10; id++)
      assert.equal((await httpClient.post(callRequest(id, "s__t"))).status, 200);
    assert.equal(clock.timerCount, count);
  });

  it("keeps no time for what has come in and was answered", async () => {
    const clock = new VirtualClock();
    const httpClient = setUpHttp({}, { clock }).newClient();
    await httpClient.initialize();
    await clock.advanceAsync(60_000);
    const { pendingDelays: armed } = clock;
    const declared = { "Content-Length": String(JSON.stringify(PING).length) };
    for (const headers of [{}, declared])
      assert.equal((await httpClient.post(PING, headers)).status, 200);
    const passed = JSON_WAIT + BODY_CHECK_INTERVAL;
    await clock.advanceAsync(passed);
    const left = armed.map((ms) => ms - passed);
    assert.deepEqual(clock.pendingDelays, left);
  });

  it("is gone together by messages that come in together", async () => {
    const order: string[] = [];
    const listener = new (class extends TransportRecorder {
      override message(frame: Message, _?: SentRequest, inbound?: Responder): void {
        if (frame.kind !== "request") return;
        const { id } = frame;
        inbound?.respond(buildResult(id, utf8('{"protocolVersion":"2025-11-25"}')));
        order.push(`${id.key}`);
        // When what one turn has produced is written.
        queueMicrotask(() => void order.push("written"));
      }
    })();
    const hub: ServedHub = {
      accept: (link, signal) => link.open(listener, signal),
      status: () => [],
      modeFault: () => undefined,
      createModernClients: () => assert.fail("There is nobody of the modern era."),
      activePlugins: { serve: () => undefined },
    };
    const face = new HttpServer(hub, { hostname: "127.0.0.1", token: undefined, maxMessage: 1000 });
    const httpClient = new HttpTestClient(face);
    await httpClient.initialize();
    order.length = 0;
    for (const id of [1, 3]) {
      const first = httpClient.post({ ...PING, id });
      await Promise.resolve();
      await Promise.all([first, httpClient.post({ ...PING, id: id + 1 })]);
    }
    assert.deepEqual(order, ["1", "2", "written", "written", "3", "4", "written", "written"]);
    await face.close();
  });
});
