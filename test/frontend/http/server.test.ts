import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DRAIN_TIME } from "../../../src/frontend/http/server.ts";
import { JSON_WAIT } from "../../../src/frontend/http/post-response.ts";
import { IDLE_LIMITS, SESSION_LIMITS } from "../../../src/frontend/http/session.ts";
import { VirtualClock } from "../../fixtures/virtual-clock.ts";
import {
  messagesHandled,
  EventStreamReader,
  setUpHttp,
  type HttpTestClient,
} from "../../fixtures/http-client.ts";
import {
  callRequest,
  INITIALIZE_REQUEST,
  type Json,
  Latch,
  ScriptedServer,
} from "../../fixtures/memory-hub.ts";

const PING = { jsonrpc: "2.0", id: 7, method: "ping" };
const CANCEL = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } };

async function json(response: Response): Promise<Json> {
  assert.match(response.headers.get("Content-Type") ?? "", /^application\/json/);
  return (await response.json()) as Json;
}

/** A stage under a clock that the test moves, with a client that has introduced itself. */
async function setup(
  script = new ScriptedServer("t"),
  settings: Parameters<typeof setUpHttp>[1] = {},
) {
  const clock = new VirtualClock();
  const parts = setUpHttp({ s: script }, { ...settings, clock, random: () => 0 });
  const one = parts.newClient();
  await one.initialize();
  await messagesHandled();
  return { ...parts, clock, script, one };
}

/** A call that the server has got, and how it answers, asks, or tells of it. */
async function begin(script: ScriptedServer, client: HttpTestClient, headers = {}, id = 1) {
  const meta = { _meta: { progressToken: "p" } };
  const response = client.post(callRequest(id, "s__t", {}, meta), headers);
  await messagesHandled();
  const asked = script.messagesOf("tools/call").at(-1);
  const { progressToken } = asked?.params?.["_meta"] as { progressToken: number };
  const say = (message: object): void => script.newestPeer?.send({ jsonrpc: "2.0", ...message });
  const report = (progress: number, message = ""): void =>
    say({ method: "notifications/progress", params: { progressToken, progress, message } });
  const answer = (result: object = { content: [] }): void => say({ id: asked?.id, result });
  return { response, say, report, answer };
}

/** The server takes a call and does not answer it by itself. */
async function setupCall(headers?: Record<string, string>, settings?: Parameters<typeof setup>[1]) {
  const script = Object.assign(new ScriptedServer("t"), { onCall: () => undefined });
  const parts = await setup(script, settings);
  return { ...parts, ...(await begin(script, parts.one, headers)) };
}

/** The same with a call that takes so long that it is answered with a stream. */
async function setupStream() {
  const parts = await setupCall();
  await parts.clock.advanceAsync(JSON_WAIT);
  return { ...parts, events: new EventStreamReader(await parts.response) };
}

const idsOf = (messages: readonly Json[]): unknown[] => messages.map(({ id }) => id);

describe("a session over HTTP", () => {
  it("begins with initialize, lists and calls, and every answer comes as JSON", async () => {
    const { one } = await setup();
    assert.match(one.sessionId ?? "", /^[0-9a-f-]{36}$/);
    const list = await json(await one.post({ jsonrpc: "2.0", id: 1, method: "tools/list" }));
    assert.deepEqual(
      (list.result?.["tools"] as { name: string }[]).map(({ name }) => name),
      ["s__t"],
    );
    const answer = await json(await one.post(callRequest("x", "s__t", { a: 1 })));
    assert.equal(answer.id, "x");
    assert.deepEqual(answer.result?.["echo"], { name: "t", arguments: { a: 1 } });
  });

  it("is not begun by an initialize that is refused", async () => {
    const { server: face, newClient } = setUpHttp({});
    const response = await newClient().post({ jsonrpc: "2.0", id: 1, method: "initialize" });
    assert.equal(response.headers.get("Mcp-Session-Id"), null);
    assert.equal((await json(response)).error?.code, -32602);
    assert.equal(face.sessions, 0);
  });

  it("answers with a stream what takes long, which can be heard again", async () => {
    const { one, answer, events } = await setupStream();
    const first = await events.next();
    assert.equal(first?.data, "", "an id to come back with");
    answer();
    assert.equal((await events.message()).id, 1);
    assert.equal(await events.next(), undefined);
    assert.equal((await (await one.openStream(first.id)).message()).id, 1);
  });

  it("names no event without data to clients of older revisions", async () => {
    const { script, newClient, clock } = await setupCall();
    const old = newClient();
    await old.initialize("2025-06-18");
    const { response, answer } = await begin(script, old);
    await clock.advanceAsync(JSON_WAIT);
    const events = new EventStreamReader(await response);
    answer();
    assert.equal((await events.next())?.message?.id, 1);
  });

  it("tells a client that takes only JSON aside of what comes before the answer", async () => {
    const { one, response, report, answer } = await setupCall({ Accept: "application/json" });
    const own = await one.openStream();
    report(1);
    assert.equal((await own.message()).method, "notifications/progress");
    answer();
    assert.equal((await json(await response)).id, 1);
  });

  it("answers with a stream whom JSON does not suit or who names that before JSON, and nobody else", async () => {
    const { one } = await setup();
    const preferred = "text/event-stream, */*;q=0.1, application/json;q=0.9";
    for (const accept of ["text/event-stream", preferred]) {
      const events = new EventStreamReader(await one.post(PING, { Accept: accept }));
      assert.deepEqual(idsOf(await events.remainingMessages()), [7]);
    }
    for (const accept of ["application/json, text/event-stream", "text/event-stream, */*", "*/*"]) {
      assert.equal((await json(await one.post(PING, { Accept: accept }))).id, 7, accept);
    }
  });

  it("gets what belongs to no request on the stream that it GETs, also what came before that", async () => {
    const { one, script, clock } = await setup();
    await one.post({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    const change = async (name: string): Promise<void> => {
      script.tools = [`{"name":"${name}","inputSchema":{"type":"object"}}`];
      script.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
      await clock.advanceAsync(5000);
    };
    await change("u");
    const events = await one.openStream();
    assert.equal((await events.message()).method, "notifications/tools/list_changed");
    await change("v");
    assert.equal((await events.message()).method, "notifications/tools/list_changed");
  });

  it("has its GET stream moved to whoever asks for it last", async () => {
    const { one } = await setup();
    const first = await one.openStream();
    const second = await one.openStream();
    assert.equal(await first.next(), undefined);
    await second.cancel();
  });

  it("is asked by a server on the stream of its call, and answers with a POST of its own", async () => {
    const { script, newClient } = await setupCall();
    const one = newClient();
    await one.initialize("2025-11-25", { sampling: {} });
    await messagesHandled();
    const { response, say, answer } = await begin(script, one);
    say({ id: 99, method: "sampling/createMessage", params: { messages: [], maxTokens: 1 } });
    const events = new EventStreamReader(await response);
    const asked = await events.message();
    assert.equal(asked.method, "sampling/createMessage");
    const reply = { jsonrpc: "2.0", id: asked.id, result: { role: "assistant" } };
    assert.equal((await one.post(reply)).status, 202);
    await script.newestPeer?.find(({ id }) => id === 99);
    answer();
    assert.equal((await events.message()).id, 1);
  });

  it("takes what cancels a call, and the call's POST ends without an answer", async () => {
    const { one, script, response } = await setupCall();
    assert.equal((await one.post(CANCEL)).status, 202);
    assert.equal((await response).status, 202);
    await messagesHandled();
    assert.equal(script.messagesOf("notifications/cancelled").length, 1);
  });

  it("loses nothing with a stream: nothing is cancelled, and the client comes back for the rest", async () => {
    const { one, script, answer, events } = await setupStream();
    await events.next();
    await events.cancel();
    await messagesHandled();
    assert.equal(script.messagesOf("notifications/cancelled").length, 0);
    answer();
    await messagesHandled();
    const again = await one.openStream(events.lastEventId);
    assert.deepEqual(idsOf(await again.remainingMessages()), [1]);
    const third = await one.request("GET", undefined, { "Last-Event-ID": again.lastEventId ?? "" });
    assert.equal(third.status, 204, "nothing is left to come back for");
  });

  it("cannot come back for ever", async () => {
    const { one, clock, answer, events } = await setupStream();
    const first = (await events.next())?.id ?? "";
    await events.cancel();
    answer();
    await messagesHandled();
    await clock.advanceAsync(SESSION_LIMITS.maxFinishedAge + IDLE_LIMITS.interval);
    assert.equal((await one.request("GET", undefined, { "Last-Event-ID": first })).status, 400);
  });

  it("is told when nothing is known of the event that it comes back with", async () => {
    const { one } = await setup();
    for (const id of ["9-9", "no", "", "1", "0-0-0"]) {
      const response = await one.request("GET", undefined, { "Last-Event-ID": id });
      assert.equal(response.status, 400, id);
    }
  });

  it("ends with DELETE, which cancels what runs", async () => {
    const { one, script, server: face, response } = await setupCall();
    const own = await one.openStream();
    assert.equal((await one.request("DELETE", undefined)).status, 204);
    assert.equal((await response).status, 404);
    assert.equal(await own.next(), undefined);
    await messagesHandled();
    assert.equal(script.messagesOf("notifications/cancelled").length, 1);
    assert.equal(face.sessions, 0);
    assert.equal((await one.post(PING)).status, 404);
    assert.equal((await one.request("GET", undefined)).status, 404);
    assert.equal((await one.request("DELETE", undefined)).status, 404);
  });

  it("is kept from another: equal ids, tokens and lists of changes do not meet", async () => {
    const { one, newClient, script, ...first } = await setupCall();
    const two = newClient();
    await two.initialize();
    assert.notEqual(one.sessionId, two.sessionId);
    const second = await begin(script, two);
    for (const [of, { report, answer }] of [...[first, second].entries()].toReversed()) {
      report(of);
      answer({ of });
    }
    for (const [of, { response }] of [first, second].entries()) {
      const events = new EventStreamReader(await response);
      const [progress, answer, ...more] = await events.remainingMessages();
      assert.deepEqual(progress?.params, { progressToken: "p", progress: of, message: "" });
      assert.deepEqual([answer?.result, more], [{ of }, []]);
    }
  });

  it("may send batches where its revision has them, and nowhere else", async () => {
    const { newClient } = setUpHttp({ s: new ScriptedServer("t") });
    const one = newClient();
    await one.initialize("2025-03-26");
    const both = [PING, { jsonrpc: "2.0", method: "x" }, { ...PING, id: 8 }];
    const answers = (await (await one.post(both)).json()) as Json[];
    assert.deepEqual(idsOf(answers), [7, 8]);
    assert.equal((await one.post([{ jsonrpc: "2.0", method: "x" }])).status, 202);
    const two = newClient();
    await two.initialize("2025-06-18");
    assert.equal((await two.post(both)).status, 400);
    const refused = await newClient().post([INITIALIZE_REQUEST]);
    assert.equal(refused.status, 400, "no session begins with one");
  });

  it("passes results byte for byte", async () => {
    const script = new ScriptedServer("t");
    script.onCall = () => '"result":{"n":1.0,"big":12345678901234567890,"u":"\\u00e9é"}';
    const { one } = await setup(script);
    const text = await (await one.post(callRequest(1, "s__t"))).text();
    assert.ok(text.includes('"result":{"n":1.0,"big":12345678901234567890,"u":"\\u00e9é"}'), text);
  });

  it("is over when nobody has used it for long, but not while a stream is open", async () => {
    const { one, clock, server: face, newClient } = await setup();
    const two = newClient();
    await two.initialize();
    const events = await two.openStream();
    await clock.advanceAsync(IDLE_LIMITS.limit + IDLE_LIMITS.interval);
    assert.equal(face.sessions, 1);
    assert.equal((await one.post(PING)).status, 404);
    assert.equal((await two.post(PING)).status, 200);
    await events.cancel();
    await clock.advanceAsync(IDLE_LIMITS.limit + IDLE_LIMITS.interval);
    assert.equal(face.sessions, 0);
  });
});

describe("a client over HTTP that does not read", () => {
  it("is refused further requests when too much is unread, until it has read", async () => {
    const { one, script } = await setupCall();
    const streams: Response[] = [];
    for (let id = 2; id <= 6; id++) {
      const { response, report } = await begin(script, one, { Accept: "text/event-stream" }, id);
      streams.push(await response);
      for (let progress = 0; progress < 10; progress++) {
        report(progress, "x".repeat(1024 * 1024));
        await messagesHandled();
      }
    }
    const refused = await one.post(PING);
    assert.equal(refused.status, 429);
    assert.ok(refused.headers.get("Retry-After"));
    assert.equal((await one.post(CANCEL)).status, 202, "what asks for nothing is taken");
    assert.equal((await one.request("DELETE", undefined)).status, 204);
  });
});

describe("an HTTP face that closes", () => {
  it("takes no more requests, lets those finish that run, and ends all streams", async () => {
    const { one, server: face, newClient, response, answer } = await setupCall();
    const own = await one.openStream();
    const closed = face.close();
    for (const refused of [
      await one.post(PING),
      await newClient().post(INITIALIZE_REQUEST),
      await one.request("GET", undefined),
    ]) {
      assert.equal(refused.status, 503);
    }
    assert.equal((await one.fetch("/readyz")).status, 503);
    assert.equal((await one.fetch("/healthz")).status, 200);
    assert.equal((await one.post({ jsonrpc: "2.0", method: "x" })).status, 202);
    answer();
    const began = performance.now();
    await closed;
    assert.ok(performance.now() - began < DRAIN_TIME / 2, "it waits no longer than it has to");
    assert.equal((await json(await response)).id, 1);
    assert.equal(await own.next(), undefined);
    assert.equal(face.sessions, 0);
  });

  it("does not wait for what takes longer than it has", async () => {
    const { server: face, response } = await setupCall();
    const began = performance.now();
    await face.close();
    assert.ok(performance.now() - began < DRAIN_TIME + 1000);
    assert.equal((await response).status, 404);
  });
});

describe("the readiness of an HTTP face", () => {
  it("is there at once, and says which servers are missing", async () => {
    const script = new ScriptedServer("t");
    const latch = new Latch();
    script.onMake = latch.wait;
    const broken = new ScriptedServer("t");
    broken.onMake = () => Promise.reject(new Error("no"));
    const { newClient, hub } = setUpHttp(
      { s: script, b: broken, l: new ScriptedServer("t") },
      { servers: { l: { lazy: true }, b: { reconnect: { policy: "none" } as never } } },
    );
    const one = newClient();
    const look = async (): Promise<unknown> => {
      const response = await one.fetch("/readyz");
      assert.equal(response.status, 200);
      return response.json();
    };
    assert.equal(await (await one.fetch("/healthz")).text(), '{"alive":true}');
    await one.initialize();
    await messagesHandled();
    const waiting = (await look()) as { ready: boolean; servers: { waiting: string[] } };
    assert.equal(waiting.ready, true);
    assert.ok(waiting.servers.waiting.includes("s"));
    latch.open();
    await hub.settled();
    const done = (await look()) as { servers: { connected: string[]; failed: object[] } };
    assert.ok(done.servers.connected.includes("s"));
    assert.deepEqual(done.servers.failed, [{ server: "b", code: "internal" }]);
  });

  it("ends when there are as many sessions as there can be, and so do new sessions", async () => {
    const { newClient } = setUpHttp({}, { server: { maxSessions: 2 } });
    const [one, two, three] = [newClient(), newClient(), newClient()];
    await one.initialize();
    await two.initialize();
    const refused = await three.post(INITIALIZE_REQUEST);
    assert.equal(refused.status, 503);
    assert.equal((await json(refused)).id, "init");
    const readiness = await three.fetch("/readyz");
    assert.equal(readiness.status, 503);
    assert.equal(((await readiness.json()) as { reason: string }).reason, "full");
    await one.request("DELETE", undefined);
    await three.initialize();
  });

  it("makes room by ending the session that has been idle the longest, if it may", async () => {
    const clock = new VirtualClock();
    const { newClient } = setUpHttp({}, { server: { maxSessions: 2, evictsIdle: true, clock } });
    const [one, two, three] = [newClient(), newClient(), newClient()];
    await one.initialize();
    await clock.advanceAsync(1000);
    await two.initialize();
    await clock.advanceAsync(1000);
    await one.post({ jsonrpc: "2.0", id: 2, method: "ping" });
    assert.equal((await three.fetch("/readyz")).status, 200);
    await three.initialize();
    assert.equal((await two.post({ jsonrpc: "2.0", id: 3, method: "ping" })).status, 404);
    assert.equal((await one.post({ jsonrpc: "2.0", id: 3, method: "ping" })).status, 200);
  });
});
