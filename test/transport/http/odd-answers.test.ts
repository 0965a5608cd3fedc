import assert from "node:assert/strict";
import { describe } from "node:test";
import type { RawHttpRequest } from "../../fixtures/raw-http-server.ts";
import {
  EVENT_STREAM_HEADERS,
  JSON_HEADERS,
  requestIdOf,
  requestMethodOf,
  respondJson,
} from "../../fixtures/http-transport-recorder.ts";
import { it, type Link, until } from "./link.ts";

const json = (body: object | string) => (received: RawHttpRequest) =>
  received.respond(200, JSON_HEADERS, typeof body === "string" ? body : JSON.stringify(body));

/** A server whose handler of requests other than notifications and GET is this. */
const forCalls = (handle: (received: RawHttpRequest) => void) => (received: RawHttpRequest) => {
  if (received.method !== "POST") received.respond(405);
  else if (/"id":/.test(received.body)) handle(received);
  else received.respond(202);
};

describe("A complete JSON answer of a POST without the response to its request", () => {
  const rpc = (members: object): object => ({ jsonrpc: "2.0", ...members });
  const boom = { code: -32603, message: 'boom "1"' };
  const cases: readonly (readonly [string, object | string, RegExp])[] = [
    ["an error with a null id", rpc({ id: null, error: boom }), /"error".*boom/],
    ["an error without an id", rpc({ error: boom }), /"error".*boom/],
    ["an error that is a text", rpc({ id: null, error: "boom" }), /"error":"boom"/],
    ["an error with another id", rpc({ id: 99, error: boom }), /^answerLost.*: "boom \\"1\\""\.$/],
    ["an error with a text as its id", rpc({ id: "x", error: boom }), /^answerLost.*"boom/],
    ["a result with another id", rpc({ id: 99, result: {} }), /^answerLost.*not the response/],
    ["a result with a null id", rpc({ id: null, result: {} }), /^answerLost.*not the response/],
    ["a notification", rpc({ method: "notifications/x" }), /^answerLost.*not the response/],
    ["a batch", [rpc({ id: 99, error: boom })], /^answerLost.*"boom/],
    ["JSON that is not JSON-RPC", { error: "boom" }, /^answerLost.*not JSON-RPC: "boom"/],
    ["JSON with a message", { detail: [{ msg: "boom" }] }, /^answerLost.*: "boom"/],
    ["no JSON", "{", /^answerLost.*not JSON-RPC: "\{"/],
  ];
  for (const [what, body, pattern] of cases) {
    it(`ends the request at once with what it says: ${what}`, async ({ meet }) => {
      const { ask } = await meet(forCalls(json(body)));
      assert.match(await ask(), pattern);
    });
  }

  it("is not mistaken for one: a null error beside a result is the result", async ({ meet }) => {
    for (const order of [
      (id: number) => `{"jsonrpc":"2.0","id":${id},"result":{"ok":1},"error":null}`,
      (id: number) => `{"jsonrpc":"2.0","id":${id},"error":null,"result":{"ok":1}}`,
      (id: number) => `{"result":{"ok":1},"error":null,"jsonrpc":"2.0","id":${id}}`,
      (id: number) => `{"error": null, "result": {"ok":1}, "jsonrpc": "2.0", "id": ${id}}`,
    ]) {
      const { ask } = await meet(forCalls((r) => json(order(requestIdOf(r)))(r)));
      assert.match(await ask(), /^\{"jsonrpc":"2\.0","result":\{"ok":1\},"id":\d+\}$/);
    }
  });
});

describe("An event stream of a POST", () => {
  it("that ends after an error without an id quotes it", async ({ meet }) => {
    const { ask } = await meet(
      forCalls((received) => {
        const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write('data: {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"boom"}}\n\n');
        stream.end();
      }),
    );
    assert.match(await ask(), /^answerLost.*without an answer: "boom"/);
  });

  it("is resumed first, though it brought an error without an id", async ({ meet }) => {
    let id = 0;
    const { ask } = await meet((received) => {
      if (received.method === "GET" && received.headers.has("last-event-id")) {
        const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write(`data: {"jsonrpc":"2.0","id":${id},"result":{"late":1}}\n\n`);
        stream.end();
        return;
      }
      forCalls(() => {
        id = requestIdOf(received);
        const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write("retry: 1\nid: e1\n");
        stream.write('data: {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"boom"}}\n\n');
        stream.end();
      })(received);
    });
    assert.match(await ask(), /"late":1/);
  });
});

describe("A lost session that the server tells in HTTP 200 or by 410", () => {
  const event = (text: string) => (received: RawHttpRequest) => {
    const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
    stream.write(`data: ${text}\n\n`);
    stream.end();
  };
  const error = (
    received: RawHttpRequest,
    message: string,
    id: number | null = requestIdOf(received),
  ) => JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32001, message } });
  const losses: readonly (readonly [string, (received: RawHttpRequest) => void])[] = [
    ["an event that is not JSON-RPC", event('{"error":"Session not found"}')],
    ["JSON that is not JSON-RPC", json({ error: "Session not found" })],
    ["an error with the request's id", (r) => json(error(r, "Session not found"))(r)],
    ["the name of a code", (r) => json(error(r, "SESSION_NOT_FOUND"))(r)],
    ["the name of an exception", (r) => json(error(r, "SessionExpired: a1"))(r)],
    ["other words", (r) => json(error(r, "No session with id a1"))(r)],
    ["an error with a null id", (r) => json(error(r, "Unknown session: not found", null))(r)],
    ["an error in an event", (r) => event(error(r, "The session abc-1 has expired"))(r)],
    ["an invalid session", (r) => json(error(r, "Invalid session ID"))(r)],
    ["410", (r) => r.respond(410, {}, "Session not found")],
    ["410 without words", (r) => r.respond(410)],
  ];
  const isEnded = ({ witness }: Link) => witness.causes.length === 1;

  for (const [what, lose] of losses) {
    it(`ends the transport at the second answer in a row: ${what}`, async ({ meet }) => {
      const link = await meet(forCalls(lose));
      const first = await link.ask();
      assert.equal(isEnded(link), false);
      const second = await link.ask();
      if (what !== "410 without words") {
        assert.match(first, /session/i);
        assert.match(second, /^answerLost.*(?:session.*){2}|410.*"Session not found"/i);
      }
      await until(() => isEnded(link));
      assert.equal(link.witness.causes[0]?.code, "connectionLost");
    });
  }

  const others: readonly (readonly [string, (received: RawHttpRequest) => void])[] = [
    ["a timeout", (r) => json(error(r, "Request timed out"))(r)],
    ["a tool that is not found in a session", (r) => json(error(r, "Tool x not found"))(r)],
    ["a slow session", (r) => json(error(r, "The session timed out"))(r)],
    [
      "another code",
      (r) =>
        json({
          jsonrpc: "2.0",
          id: requestIdOf(r),
          error: { code: -32602, message: "Session not found" },
        })(r),
    ],
    ["JSON with another error", json({ error: "Overloaded" })],
  ];
  for (const [what, answer] of others) {
    it(`is not told by ${what}`, async ({ meet }) => {
      const link = await meet(forCalls(answer));
      for (let n = 0; n < 4; n++) await link.ask();
      assert.equal(isEnded(link), false);
    });
  }

  it("is not told by two answers with another between them", async ({ meet }) => {
    let count = 0;
    const link = await meet(
      forCalls((r) =>
        ++count % 2 === 1 ? json(error(r, "Session not found"))(r) : respondJson(r),
      ),
    );
    for (let n = 0; n < 6; n++) await link.ask();
    assert.equal(isEnded(link), false);
  });

  it("lets an open POST finish, and sends nothing new", async ({ meet }) => {
    let held: RawHttpRequest | undefined;
    const link = await meet(
      forCalls((r) => {
        if (requestMethodOf(r) === "slow") held = r;
        else json(error(r, "Session not found"))(r);
      }),
    );
    const slow = link.ask("slow");
    await until(() => held !== undefined);
    await link.ask();
    await link.ask();
    assert.equal(isEnded(link), false);
    const sent = link.server.requests.length;
    const waiting = link.ask();
    if (held !== undefined) respondJson(held);
    assert.match(await slow, /"ok"/);
    assert.match(await waiting, /^notDelivered/);
    assert.equal(isEnded(link), true);
    assert.equal(
      link.server.requests.slice(sent).filter(({ method }) => method === "POST").length,
      0,
    );
  });

  it("is nothing that a server without a session can tell", async ({ meet }) => {
    const link = await meet(forCalls(json({ error: "Session not found" })), {}, "");
    for (let n = 0; n < 4; n++) await link.ask();
    assert.equal(isEnded(link), false);
  });
});
