import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DRAIN_TIME } from "../../../src/frontend/http/server.ts";
import { JSON_WAIT } from "../../../src/frontend/http/post-response.ts";
import { IDLE_LIMITS, SESSION_LIMITS } from "../../../src/frontend/http/session.ts";
import {
  EVENT_BUFFER_LIMITS,
  KEEP_ALIVE_INTERVAL,
} from "../../../src/frontend/http/event-buffer.ts";
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

async function json(response: Response): Promise<Json> {
  assert.match(response.headers.get("Content-Type") ?? "", /^application\/json/);
  return (await response.json()) as Json;
}

/** A stage under a clock that the test moves, with a client that has introduced itself. */
async function setup(
  script = new ScriptedServer("t"),
  settings: Parameters<typeof setUpHttp>[1] = {},
): Promise<
  ReturnType<typeof setUpHttp> & {
    clock: VirtualClock;
    script: ScriptedServer;
    one: HttpTestClient;
  }
> {
  const clock = new VirtualClock();
  const parts = setUpHttp({ s: script }, { ...settings, clock, random: () => 0 });
  const one = parts.newClient();
  await one.initialize();
  await messagesHandled();
  return { ...parts, clock, script, one };
}

/** The server takes calls and answers none. */
function silent(): ScriptedServer {
  const script = new ScriptedServer("t");
  script.onCall = () => undefined;
  return script;
}

/** A call that the server has got, and how it answers or tells of it. */
async function begin(
  script: ScriptedServer,
  response: Promise<Response>,
): Promise<{ response: Promise<Response>; say: (message: object) => void; answer: () => void }> {
  await messagesHandled();
  const asked = script.messagesOf("tools/call").at(-1);
  assert.ok(asked);
  const say = (message: object): void => script.newestPeer?.send({ jsonrpc: "2.0", ...message });
  return { response, say, answer: () => say({ id: asked.id, result: { content: [] } }) };
}

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

  it("sends progress before the answer on the stream of its own POST", async () => {
    const { one, script } = await setup(silent());
    const posted = one.post(callRequest(1, "s__t", {}, { _meta: { progressToken: "p" } }));
    const { response, say, answer } = await begin(script, posted);
    const token = (
      script.messagesOf("tools/call")[0]?.params?.["_meta"] as { progressToken: number }
    ).progressToken;
    say({ method: "notifications/progress", params: { progressToken: token, progress: 1 } });
    const events = new EventStreamReader(await response);
    assert.deepEqual((await events.message()).params, { progressToken: "p", progress: 1 });
    answer();
    assert.deepEqual(
      (await events.remainingMessages()).map(({ id }) => id),
      [1],
    );
  });

  it("answers with a stream what takes long", async () => {
    const { one, script, clock } = await setup(silent());
    const { response, answer } = await begin(script, one.post(callRequest(1, "s__t")));
    await clock.advanceAsync(JSON_WAIT);
    const events = new EventStreamReader(await response);
    assert.equal((await events.next())?.data, "", "an id to come back with");
    answer();
    assert.equal((await events.message()).id, 1);
    assert.equal(await events.next(), undefined);
  });

  it("names no event without data to clients of older revisions", async () => {
    const { script, newClient, clock } = await setup(silent());
    const old = newClient();
    await old.initialize("2025-06-18");
    const { response, answer } = await begin(script, old.post(callRequest(1, "s__t")));
    await clock.advanceAsync(JSON_WAIT);
    const events = new EventStreamReader(await response);
    answer();
    assert.equal((await events.next())?.message?.id, 1);
  });

  it("tells a client that takes only JSON aside of what comes before the answer", async () => {
    const { one, script } = await setup(silent());
    const own = await one.openStream();
    const message = callRequest(1, "s__t", {}, { _meta: { progressToken: "p" } });
    const posted = one.post(message, { Accept: "application/json" });
    const { response, say, answer } = await begin(script, posted);
    const token = (
      script.messagesOf("tools/call")[0]?.params?.["_meta"] as { progressToken: number }
    ).progressToken;
    say({ method: "notifications/progress", params: { progressToken: token, progress: 1 } });
    assert.equal((await own.message()).method, "notifications/progress");
    answer();
    assert.equal((await json(await response)).id, 1);
  });

  it("answers with a stream whom JSON does not suit", async () => {
    const { one } = await setup();
    const events = new EventStreamReader(await one.post(PING, { Accept: "text/event-stream" }));
    assert.equal((await events.message()).id, 7);
    assert.equal(await events.next(), undefined);
  });

  it("answers with a stream who names that before JSON, and nobody else whom JSON suits too", async () => {
    const { one } = await setup();
    const events = "text/event-stream, */*;q=0.1, application/json;q=0.9";
    assert.equal(
      (await new EventStreamReader(await one.post(PING, { Accept: events })).message()).id,
      7,
    );
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
    const { script, newClient } = await setup(silent());
    const one = newClient();
    await one.initialize("2025-11-25", { sampling: {} });
    await messagesHandled();
    const { response, say, answer } = await begin(script, one.post(callRequest(1, "s__t")));
    say({ id: 99, method: "sampling/createMessage", params: { messages: [], maxTokens: 1 } });
    const events = new EventStreamReader(await response);
    const asked = await events.message();
    assert.equal(asked.method, "sampling/createMessage");
    const reply = { jsonrpc: "2.0", id: asked.id, result: { role: "assistant" } };
    assert.equal((await one.post(reply)).status, 202);
    await script.newestPeer?.until(
      () => script.newestPeer?.messages.some(({ id }) => id === 99) === true,
    );
    answer();
    assert.equal((await events.message()).id, 1);
  });

  it("takes what cancels a call, and the call's POST ends without an answer", async () => {
    const { one, script } = await setup(silent());
    const { response } = await begin(script, one.post(callRequest(1, "s__t")));
    const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } };
    assert.equal((await one.post(cancel)).status, 202);
    assert.equal((await response).status, 202);
    await messagesHandled();
    assert.equal(script.messagesOf("notifications/cancelled").length, 1);
  });

  it("loses nothing with a stream: nothing is cancelled, and the client comes back for the rest", async () => {
    const { one, script, clock } = await setup(silent());
    const { response, answer } = await begin(script, one.post(callRequest(1, "s__t")));
    await clock.advanceAsync(JSON_WAIT);
    const events = new EventStreamReader(await response);
    await events.next();
    await events.cancel();
    await messagesHandled();
    assert.equal(script.messagesOf("notifications/cancelled").length, 0);
    answer();
    await messagesHandled();
    const again = await one.openStream(events.lastEventId);
    assert.deepEqual(
      (await again.remainingMessages()).map(({ id }) => id),
      [1],
    );
    const third = await one.request("GET", undefined, { "Last-Event-ID": again.lastEventId ?? "" });
    assert.equal(third.status, 204, "nothing is left to come back for");
  });

  it("can hear again what it may have missed", async () => {
    const { one, script, clock } = await setup(silent());
    const { response, answer } = await begin(script, one.post(callRequest(1, "s__t")));
    await clock.advanceAsync(JSON_WAIT);
    const events = new EventStreamReader(await response);
    const first = (await events.next())?.id;
    answer();
    assert.equal((await events.message()).id, 1);
    const again = await one.openStream(first);
    assert.equal((await again.message()).id, 1);
  });

  it("cannot come back for ever", async () => {
    const { one, script, clock } = await setup(silent());
    const { response, answer } = await begin(script, one.post(callRequest(1, "s__t")));
    await clock.advanceAsync(JSON_WAIT);
    const events = new EventStreamReader(await response);
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
    const { one, script, server: face } = await setup(silent());
    const own = await one.openStream();
    const { response } = await begin(script, one.post(callRequest(1, "s__t")));
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
    const { one, newClient, script } = await setup(silent());
    const two = newClient();
    await two.initialize();
    assert.notEqual(one.sessionId, two.sessionId);
    const meta = { _meta: { progressToken: "p" } };
    const first = one.post(callRequest(1, "s__t", { of: 1 }, meta));
    const second = two.post(callRequest(1, "s__t", { of: 2 }, meta));
    await messagesHandled();
    const asked = script.messagesOf("tools/call");
    assert.equal(asked.length, 2);
    for (const { id, params } of asked.toReversed()) {
      const { of } = params?.["arguments"] as { of: number };
      const { progressToken } = params?.["_meta"] as { progressToken: number };
      const progress = { progressToken, progress: of };
      script.newestPeer?.send({
        jsonrpc: "2.0",
        method: "notifications/progress",
        params: progress,
      });
      script.newestPeer?.send({ jsonrpc: "2.0", id, result: { of } });
    }
    for (const [of, response] of [first, second].entries()) {
      const [progress, answer, ...more] = await new EventStreamReader(
        await response,
      ).remainingMessages();
      assert.deepEqual(progress?.params, { progressToken: "p", progress: of + 1 });
      assert.deepEqual(answer?.result, { of: of + 1 });
      assert.deepEqual(more, []);
    }
  });

  it("has servers that are marked perClient to itself", async () => {
    const script = new ScriptedServer("t");
    const { newClient } = setUpHttp({ s: script }, { servers: { s: { isolation: "perClient" } } });
    for (const httpClient of [newClient(), newClient()]) {
      await httpClient.initialize();
      await httpClient.post(callRequest(1, "s__t"));
    }
    assert.equal(script.transportCount, 2);
  });

  it("may send batches where its revision has them, and nowhere else", async () => {
    const { newClient } = setUpHttp({ s: new ScriptedServer("t") });
    const one = newClient();
    await one.initialize("2025-03-26");
    const both = [PING, { jsonrpc: "2.0", method: "x" }, { ...PING, id: 8 }];
    const answers = (await (await one.post(both)).json()) as Json[];
    assert.deepEqual(
      answers.map(({ id }) => id),
      [7, 8],
    );
    assert.equal((await one.post([{ jsonrpc: "2.0", method: "x" }])).status, 202);
    const two = newClient();
    await two.initialize("2025-06-18");
    assert.equal((await two.post(both)).status, 400);
    assert.equal(
      (await newClient().post([INITIALIZE_REQUEST])).status,
      400,
      "no session begins with one",
    );
  });

  it("passes results byte for byte, except for line ends between values", async () => {
    const script = new ScriptedServer("t");
    script.onCall = () => '"result":{"n":1.0,"big":12345678901234567890,"u":"\\u00e9é"}';
    const { one } = await setup(script);
    const text = await (await one.post(callRequest(1, "s__t"))).text();
    assert.ok(text.includes('"result":{"n":1.0,"big":12345678901234567890,"u":"\\u00e9é"}'), text);
  });

  it("shows that silent streams live", async () => {
    const { one, clock } = await setup();
    const events = await one.openStream();
    const next = events.next();
    await clock.advanceAsync(2 * KEEP_ALIVE_INTERVAL);
    await messagesHandled();
    await one.request("DELETE", undefined);
    assert.equal(await next, undefined);
    assert.deepEqual(events.comments, Array(3).fill(": keep-alive"));
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

  it("is not over while something runs in it", async () => {
    const {
      one,
      clock,
      script,
      server: face,
    } = await setup(silent(), {
      servers: { s: { callTimeout: 10 * IDLE_LIMITS.limit, healthInterval: 0 } },
    });
    const { response, answer } = await begin(script, one.post(callRequest(1, "s__t")));
    await clock.advanceAsync(JSON_WAIT);
    await (await response).body?.cancel();
    await clock.advanceAsync(IDLE_LIMITS.limit + IDLE_LIMITS.interval);
    assert.equal(face.sessions, 1);
    answer();
    await messagesHandled();
    await clock.advanceAsync(IDLE_LIMITS.limit + IDLE_LIMITS.interval);
    assert.equal(face.sessions, 0);
  });
});

describe("a client over HTTP that does not read", () => {
  it("loses its stream, not what was said on it, and holds up nobody", async () => {
    const { one, script, newClient } = await setup(silent());
    const other = newClient();
    await other.initialize();
    const meta = { _meta: { progressToken: "p" } };
    const posted = one.post(callRequest(1, "s__t", {}, meta));
    const { response, say, answer } = await begin(script, posted);
    const { progressToken } = script.messagesOf("tools/call")[0]?.params?.["_meta"] as {
      progressToken: number;
    };
    const message = "x".repeat(256 * 1024);
    const count = EVENT_BUFFER_LIMITS.maxBehind / message.length + 4;
    for (let progress = 0; progress < count; progress++) {
      say({ method: "notifications/progress", params: { progressToken, progress, message } });
      await messagesHandled();
    }
    assert.equal((await other.post(PING)).status, 200);
    const events = new EventStreamReader(await response);
    const before = await events.remainingMessages();
    assert.ok(before.length < count, "the stream was ended");
    answer();
    await messagesHandled();
    const after = await (await one.openStream(events.lastEventId)).remainingMessages();
    const progress = [...before, ...after].flatMap(({ params }) => params?.["progress"] ?? []);
    assert.deepEqual(progress, [...Array(count).keys()], "nothing is missing");
    assert.equal(after.at(-1)?.id, 1);
  });

  it("is refused further requests when too much is unread, until it has read", async () => {
    const script = silent();
    const { one } = await setup(script);
    const meta = { _meta: { progressToken: "p" } };
    const message = "x".repeat(1024 * 1024);
    const streams: Response[] = [];
    for (let id = 1; id <= 5; id++) {
      const posted = one.post(callRequest(id, "s__t", {}, meta), { Accept: "text/event-stream" });
      const { response, say } = await begin(script, posted);
      streams.push(await response);
      const { progressToken } = script.messagesOf("tools/call").at(-1)?.params?.["_meta"] as {
        progressToken: number;
      };
      for (let progress = 0; progress < 10; progress++) {
        say({ method: "notifications/progress", params: { progressToken, progress, message } });
        await messagesHandled();
      }
    }
    const refused = await one.post(PING);
    assert.equal(refused.status, 429);
    assert.ok(refused.headers.get("Retry-After"));
    const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } };
    assert.equal((await one.post(cancel)).status, 202, "what asks for nothing is taken");
    assert.equal((await one.request("DELETE", undefined)).status, 204);
  });
});

describe("an HTTP face that closes", () => {
  it("takes no more requests, lets those finish that run, and ends all streams", async () => {
    const { one, script, server: face, newClient } = await setup(silent());
    const own = await one.openStream();
    const { response, answer } = await begin(script, one.post(callRequest(1, "s__t")));
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
    const { one, script, server: face } = await setup(silent());
    const { response } = await begin(script, one.post(callRequest(1, "s__t")));
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
