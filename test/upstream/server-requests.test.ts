import { piecesOfMessage } from "../../src/jsonrpc/message.ts";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { joinPieces, textOf } from "../../src/base/bytes.ts";
import type { Hub } from "../../src/hub/hub.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import type { Responder, TransportEvents } from "../../src/transport/transport.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";
import {
  messagesOfMethod,
  ALL_CAPABILITIES,
  waitForRequest,
  INITIALIZED,
  sendServerRequest,
  SAMPLING_PARAMS,
  newestPeerOf,
  setUpServerRequests,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callRequest,
  initialize,
  isResponseTo,
  Latch,
  Peer,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { openWithClock, callPlugin } from "../plugins/plugin-hub.ts";

const SAMPLING = "sampling/createMessage";
const ELICIT = "elicitation/create";
const ROOTS = "roots/list";
const FORM = { message: "Which?", requestedSchema: { type: "object", properties: {} } };

/** A client that introduced itself on a link of which the test has what the hub is told. */
async function accept(hub: Hub): Promise<{ client: Peer; events: TransportEvents }> {
  const [ours, theirs] = chunkedTransportPair();
  const open = ours.open.bind(ours);
  const opened = new Promise<TransportEvents>((resolve) => {
    ours.open = (events, signal) => {
      resolve(events);
      return open(events, signal);
    };
  });
  void hub.accept(ours, new AbortController().signal);
  const client = new Peer(theirs);
  await initialize(client, ALL_CAPABILITIES);
  client.send(INITIALIZED);
  await turn();
  return { client, events: await opened };
}

describe("what a server asks", () => {
  it("reaches its client under an id of the hub's, and the answer comes back under the server's", async () => {
    const { client, git } = await setUpServerRequests();
    const params = '{"messages":[],"maxTokens":1.0,"x":12345678901234567890,"_meta":{"a":1}}';
    newestPeerOf(git).send(
      `{"jsonrpc":"2.0","id":"s-1","method":"${SAMPLING}","params":${params}}`,
    );
    const request = await waitForRequest(client, SAMPLING);
    assert.ok(client.received.some((text) => text.includes(`"params":${params}`)));
    assert.equal(typeof request.id, "string");
    assert.notEqual(request.id, "s-1");
    const result = '{"role":"assistant","n":1.0,"big":12345678901234567890}';
    client.send(`{"jsonrpc":"2.0","id":"${String(request.id)}","result":${result}}`);
    await newestPeerOf(git).find(isResponseTo("s-1"));
    assert.ok(newestPeerOf(git).received.some((text) => text.includes(`"result":${result}`)));
  });

  it("is asked without params if the server gives none", async () => {
    const { client, git } = await setUpServerRequests();
    const answer = sendServerRequest(git, 1, ROOTS);
    const request = await waitForRequest(client, ROOTS);
    assert.equal("params" in request, false);
    client.send({ jsonrpc: "2.0", id: request.id, result: { roots: [{ uri: "file:///a" }] } });
    assert.deepEqual((await answer).result, { roots: [{ uri: "file:///a" }] });
  });

  it("is answered with the client's error as it is", async () => {
    const { client, git } = await setUpServerRequests();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    client.send({ jsonrpc: "2.0", id, error: { code: -1, message: "no", data: { a: [1] } } });
    assert.deepEqual((await answer).error, { code: -1, message: "no", data: { a: [1] } });
  });

  it("names the server where people read it, and only there", async () => {
    const { client, git } = await setUpServerRequests();
    void sendServerRequest(git, 1, ELICIT, {
      ...FORM,
      requestedSchema: { message: "inner" },
      mode: "form",
    });
    const { params } = await waitForRequest(client, ELICIT);
    assert.deepEqual(params, {
      message: "[git] Which?",
      requestedSchema: { message: "inner" },
      mode: "form",
    });
  });

  it("names the server in every message that a parser may take", async () => {
    const { client, git } = await setUpServerRequests();
    const params =
      '{"message":"a","\\u006dessage":"b","mode":"url","url":"https://x","elicitationId":"e"}';
    newestPeerOf(git).send(`{"jsonrpc":"2.0","id":1,"method":"${ELICIT}","params":${params}}`);
    const request = await waitForRequest(client, ELICIT);
    assert.deepEqual(request.params, {
      message: "[git] b",
      mode: "url",
      url: "https://x",
      elicitationId: "e",
    });
    assert.ok(client.received.some((text) => text.includes('"message":"[git] a"')));
  });

  it("is answered with an error if what the client answers is no JSON", async () => {
    const { client, git } = await setUpServerRequests();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    client.send(`{"jsonrpc":"2.0","id":"${String(id)}","result":{"a":tru}}`);
    assert.equal((await answer).error?.code, -32603);
    client.send("{");
    client.send('{"jsonrpc":"2.0","id":"toolmux-77","result":{"a":tru}}');
    await turn();
  });

  it("has a message that is no text left as it is", async () => {
    const { client, git } = await setUpServerRequests();
    void sendServerRequest(git, 1, ELICIT, { message: 7 });
    assert.deepEqual((await waitForRequest(client, ELICIT)).params, { message: 7 });
  });

  it("is answered with an error if the client's answer is too large to be passed on", async () => {
    const git = new ScriptedServer("x");
    const { hub } = setUpHubWithClock({ git });
    const { client, events } = await accept(hub);
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    const head = Buffer.from(`{"jsonrpc":"2.0","id":"${String(id)}","result":{"x":"`);
    events.oversized(head, Buffer.from('"}}'), 1e9);
    assert.equal((await answer).error?.code, -31004);
  });

  it("goes the way of the call that it is for, where links have one for each", async () => {
    const [git, other] = [new ScriptedServer("x"), new ScriptedServer("x")];
    git.onCall = () => undefined;
    const { hub } = setUpHubWithClock({ git, other });
    const { client, events } = await accept(hub);
    const sent: string[] = [];
    const inbound: Responder = {
      notify: (message) => void sent.push(textOf(joinPieces(piecesOfMessage(message)))),
      respond: () => {},
    };
    const request = parseMessage(Buffer.from(JSON.stringify(callRequest(1, "git__x"))));
    events.frame(request, undefined, inbound);
    await turn();
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    void sendServerRequest(other, 1, "roots/list");
    await waitForRequest(client, "roots/list");
    assert.equal(sent.length, 1);
    assert.match(sent[0] ?? "", /sampling/);
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
  });

  it("is asked as often as the server asks, and each answer finds its question", async () => {
    const { client, git } = await setUpServerRequests();
    const [first, second] = [
      sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS),
      sendServerRequest(git, "1", SAMPLING, SAMPLING_PARAMS),
    ];
    await client.until(() => messagesOfMethod(client, SAMPLING).length === 2);
    const [one, two] = messagesOfMethod(client, SAMPLING);
    assert.notEqual(one?.id, two?.id);
    client.send({ jsonrpc: "2.0", id: two?.id, result: { n: 2 } });
    client.send({ jsonrpc: "2.0", id: one?.id, result: { n: 1 } });
    assert.deepEqual([(await first).result, (await second).result], [{ n: 1 }, { n: 2 }]);
  });

  it("waits for a client that has not said that it is ready, until it does", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    const answer = sendServerRequest(git, 1, ROOTS);
    await turn();
    assert.deepEqual(messagesOfMethod(client, ROOTS), []);
    client.send(INITIALIZED);
    const { id } = await waitForRequest(client, ROOTS);
    client.send({ jsonrpc: "2.0", id, result: { roots: [] } });
    assert.deepEqual((await answer).result, { roots: [] });
  });

  it("is never sent, nor its cancel, if the server takes it back before the client is ready", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    void sendServerRequest(git, 1, ROOTS);
    newestPeerOf(git).send({
      jsonrpc: "2.0",
      method: "notifications/cancelled",
      params: { requestId: 1 },
    });
    await turn();
    client.send(INITIALIZED);
    await turn();
    assert.deepEqual(
      [messagesOfMethod(client, ROOTS), messagesOfMethod(client, "notifications/cancelled")],
      [[], []],
    );
  });

  it("is answered with an error if the client's answer is malformed, which no server sees", async () => {
    const { client, git } = await setUpServerRequests();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    const number = String(id).replace(/\D/g, "");
    client.send(`{"jsonrpc":"2.0","id":${number},"result":{"a":tru}}`);
    assert.equal((await answer).error?.code, -32603);
    assert.ok(!newestPeerOf(git).received.some((text) => text.includes("tru}")));
  });
});

describe("a client that cannot be asked", () => {
  for (const [what, capabilities, method, params, code] of [
    ["for a sample", { roots: {} }, SAMPLING, SAMPLING_PARAMS, -32601],
    ["for roots", { sampling: {} }, ROOTS, undefined, -32601],
    ["anything by elicitation", {}, ELICIT, FORM, -32601],
    ["to open a URL", { elicitation: {} }, ELICIT, { ...FORM, mode: "url" }, -32602],
    ["to fill in a form", { elicitation: { url: {} } }, ELICIT, FORM, -32602],
    ["to sample with tools", { sampling: {} }, SAMPLING, { ...SAMPLING_PARAMS, tools: [] }, -32602],
    ["for what nobody knows", ALL_CAPABILITIES, "other/thing", {}, -32601],
  ] as const) {
    it(`${what} is not, and the server is told`, async () => {
      const { client, git } = await setUpServerRequests(capabilities);
      assert.equal((await sendServerRequest(git, 1, method, params)).error?.code, code);
      assert.deepEqual(messagesOfMethod(client, method), []);
    });
  }
});

describe("a question that could be for several clients", () => {
  it("reaches none of them, and the error names what helps", async () => {
    const { client, connect, git, events } = await setUpServerRequests();
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    other.send(INITIALIZED);
    const { error } = await sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    assert.equal(error?.code, -31007);
    assert.match(error?.message ?? "", /"git".*2 clients.*isolation = "perClient"/);
    assert.deepEqual(
      [messagesOfMethod(client, SAMPLING), messagesOfMethod(other, SAMPLING)],
      [[], []],
    );
    assert.ok(events.some((event) => event.kind === "log" && /perClient/.test(event.text)));
  });

  it("reaches the one that is left when the other has gone", async () => {
    const { client, connect, git } = await setUpServerRequests();
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    await client.transport.close();
    await turn();
    other.send(INITIALIZED);
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    assert.ok(await waitForRequest(other, SAMPLING));
  });

  it("reaches each client from its own server, and only that", async () => {
    const { client, connect, git } = await setUpServerRequests(ALL_CAPABILITIES, {
      servers: { git: { isolation: "perClient" } },
    });
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    other.send(INITIALIZED);
    await turn();
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    assert.ok(await waitForRequest(other, SAMPLING));
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
  });

  it("is asked of nobody if nobody is there", async () => {
    const { client, git } = await setUpServerRequests();
    await client.transport.close();
    await turn();
    assert.equal((await sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS)).error?.code, -31007);
  });
});

describe("a question that is taken back", () => {
  it("by the server is taken back from the client, in the server's words", async () => {
    const { client, git } = await setUpServerRequests();
    void sendServerRequest(git, "s", SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    newestPeerOf(git).send({
      jsonrpc: "2.0",
      method: "notifications/cancelled",
      params: { requestId: "s", reason: "enough", more: 1 },
    });
    const { params } = await waitForRequest(client, "notifications/cancelled");
    assert.deepEqual(params, { requestId: id, reason: "enough", more: 1 });
    client.send({ jsonrpc: "2.0", id, result: {} });
    await turn();
    assert.deepEqual(newestPeerOf(git).messages.filter(isResponseTo("s")), []);
  });

  it("because the server has died is taken back from the client", async () => {
    const { client, git } = await setUpServerRequests();
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    git.disconnect();
    const { params } = await waitForRequest(client, "notifications/cancelled");
    assert.equal(params?.["requestId"], id);
    await turn();
    client.send({ jsonrpc: "2.0", id, result: {} });
    await turn();
    assert.ok(!newestPeerOf(git).messages.some(({ result }) => result !== undefined));
  });

  it("because the server was stopped is taken back from the client, however long it takes to end", async () => {
    const { hub, client, git } = await setUpServerRequests();
    git.onClose = new Latch().wait;
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    await waitForRequest(client, SAMPLING);
    void hub.stop("git");
    assert.match(
      String((await waitForRequest(client, "notifications/cancelled")).params?.["reason"]),
      /git/,
    );
  });

  it("because the client has left is answered with an error", async () => {
    const { client, git } = await setUpServerRequests();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    await waitForRequest(client, SAMPLING);
    await client.transport.close();
    assert.equal((await answer).error?.code, -31007);
  });

  it("because its only call was cancelled ends at both sides", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = () => undefined;
    client.send(callRequest("c", "git__x"));
    await turn();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "c" } });
    assert.equal(
      (await waitForRequest(client, "notifications/cancelled")).params?.["requestId"],
      id,
    );
    assert.equal((await answer).error?.code, -31007);
  });

  it("is not because a call was cancelled that came later than it", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = () => undefined;
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    await waitForRequest(client, SAMPLING);
    client.send(callRequest("c", "git__x"));
    await turn();
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "c" } });
    await turn();
    assert.equal(git.messagesOf("notifications/cancelled").length, 1);
    assert.deepEqual(messagesOfMethod(client, "notifications/cancelled"), []);
  });

  it("is not because one of several calls was cancelled, nor because another request was", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = () => undefined;
    client.send(callRequest("c", "git__x"));
    client.send(callRequest("d", "git__x"));
    await turn();
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "c" } });
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } });
    await turn();
    assert.deepEqual(messagesOfMethod(client, "notifications/cancelled"), []);
    client.send({ jsonrpc: "2.0", id, result: { n: 1 } });
    assert.deepEqual((await newestPeerOf(git).find(isResponseTo(1))).result, { n: 1 });
  });
});

describe("a question that nobody answers", () => {
  it("ends after ten minutes at both sides", async () => {
    const { client, git, clock } = await setUpServerRequests(ALL_CAPABILITIES, {
      servers: { git: { healthInterval: 0 } },
    });
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(599_000);
    assert.deepEqual(newestPeerOf(git).messages.filter(isResponseTo(1)), []);
    await clock.advanceAsync(2000);
    assert.match((await answer).error?.message ?? "", /10 minutes/);
    assert.equal(
      (await waitForRequest(client, "notifications/cancelled")).params?.["requestId"],
      id,
    );
  });

  it("leaves no timer when it was answered", async () => {
    const { client, git, clock } = await setUpServerRequests(ALL_CAPABILITIES, {
      servers: { git: { healthInterval: 0 } },
    });
    await clock.advanceAsync(60_000);
    const before = clock.pendingDelays.length;
    const answer = sendServerRequest(git, 1, ROOTS);
    const { id } = await waitForRequest(client, ROOTS);
    client.send({ jsonrpc: "2.0", id, result: {} });
    await answer;
    assert.equal(clock.pendingDelays.length, before);
  });
});

describe("the time of a call", () => {
  const LIMITS = { healthInterval: 0, callTimeout: 10_000, maxCallTimeout: 30_000 };

  it("stands still while its server waits for the client, and goes on then", async () => {
    const { client, git, clock } = await setUpServerRequests(ALL_CAPABILITIES, {
      servers: { git: LIMITS },
    });
    git.onCall = () => undefined;
    client.send(callRequest("c", "git__x"));
    await clock.advanceAsync(6000);
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(300_000);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    client.send({ jsonrpc: "2.0", id, result: {} });
    await answer;
    await clock.advanceAsync(3900);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    await clock.advanceAsync(200);
    assert.equal((await client.find(isResponseTo("c"))).result?.["isError"], true);
  });

  it("stands still also if it came while the server was waiting, and until it waits for nothing more", async () => {
    const { client, git, clock } = await setUpServerRequests(ALL_CAPABILITIES, {
      servers: { git: LIMITS },
    });
    git.onCall = () => undefined;
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    void sendServerRequest(git, 2, ROOTS);
    const [one, two] = [
      await waitForRequest(client, SAMPLING),
      await waitForRequest(client, ROOTS),
    ];
    client.send(callRequest("c", "git__x"));
    await clock.advanceAsync(100_000);
    client.send({ jsonrpc: "2.0", id: one.id, result: {} });
    await clock.advanceAsync(100_000);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    client.send({ jsonrpc: "2.0", id: two.id, result: {} });
    await turn();
    await clock.advanceAsync(9900);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    await clock.advanceAsync(200);
    assert.equal((await client.find(isResponseTo("c"))).result?.["isError"], true);
  });

  it("is moved back by progress while it stands still, up to its total without the wait", async () => {
    const { client, git, clock } = await setUpServerRequests(ALL_CAPABILITIES, {
      servers: { git: LIMITS },
    });
    git.onCall = () => undefined;
    client.send(callRequest("c", "git__x", {}, { _meta: { progressToken: "p" } }));
    await turn();
    const [sent] = git.messagesOf("tools/call");
    const token = (sent?.params?.["_meta"] as { progressToken: unknown }).progressToken;
    const progress = (): void =>
      newestPeerOf(git).send({
        jsonrpc: "2.0",
        method: "notifications/progress",
        params: { progressToken: token, progress: 1 },
      });
    await clock.advanceAsync(8000);
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(100_000);
    progress();
    await clock.advanceAsync(100_000);
    client.send({ jsonrpc: "2.0", id, result: {} });
    await turn();
    await clock.advanceAsync(9000);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    progress();
    await clock.advanceAsync(9000);
    progress();
    await clock.advanceAsync(3900);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    await clock.advanceAsync(200);
    assert.equal((await client.find(isResponseTo("c"))).result?.["isError"], true);
  });

  it("is moved back from the last sign of progress, although it stood still then", async () => {
    const { client, git, clock } = await setUpServerRequests(ALL_CAPABILITIES, {
      servers: { git: LIMITS },
    });
    git.onCall = () => undefined;
    client.send(callRequest("c", "git__x", {}, { _meta: { progressToken: "p" } }));
    await clock.advanceAsync(8000);
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(100_000);
    const [sent] = git.messagesOf("tools/call");
    const { progressToken } = sent?.params?.["_meta"] as { progressToken: unknown };
    const params = { progressToken, progress: 1 };
    newestPeerOf(git).send({ jsonrpc: "2.0", method: "notifications/progress", params });
    await clock.advanceAsync(100_000);
    client.send({ jsonrpc: "2.0", id, result: {} });
    await turn();
    await clock.advanceAsync(9900);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    await clock.advanceAsync(200);
    assert.equal((await client.find(isResponseTo("c"))).result?.["isError"], true);
  });

  it("stands still for a call that plugins see, and goes on when the server has answered", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const slow = callPlugin("slow", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await openWithClock([slow], { git }, { servers: { git: LIMITS } });
    await initialize(client, ALL_CAPABILITIES);
    client.send(INITIALIZED);
    client.send(callRequest("c", "git__x"));
    await clock.advanceAsync(6000);
    const end = newestPeerOf(git);
    end.send({ jsonrpc: "2.0", id: 1, method: SAMPLING, params: SAMPLING_PARAMS });
    await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(300_000);
    assert.deepEqual(client.messages.filter(isResponseTo("c")), []);
    const [sent] = git.messagesOf("tools/call");
    end.send({ jsonrpc: "2.0", id: sent?.id, result: { content: [] } });
    await turn();
    await clock.advanceAsync(4100);
    assert.equal((await client.find(isResponseTo("c"))).result?.["isError"], true);
  });

  it("goes on for calls of other servers", async () => {
    const [git, other] = [new ScriptedServer("x"), new ScriptedServer("x")];
    other.onCall = () => undefined;
    const { client, clock } = setUpHubWithClock(
      { git, other },
      { servers: { git: LIMITS, other: LIMITS } },
    );
    await initialize(client, ALL_CAPABILITIES);
    client.send(INITIALIZED);
    client.send(callRequest("c", "other__x"));
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(10_100);
    assert.equal((await client.find(isResponseTo("c"))).result?.["isError"], true);
  });
});

describe("the progress of an answer", () => {
  it("goes to the server under its own token, only if it gave one", async () => {
    const { client, git } = await setUpServerRequests();
    void sendServerRequest(git, 1, SAMPLING, {
      ...SAMPLING_PARAMS,
      _meta: { progressToken: 7.5, other: 1 },
    });
    const { params } = await waitForRequest(client, SAMPLING);
    const { progressToken, ...rest } = params?.["_meta"] as Record<string, unknown>;
    assert.deepEqual(rest, { other: 1 });
    assert.notEqual(progressToken, 7.5);
    const progress = (token: unknown): object => ({
      jsonrpc: "2.0",
      method: "notifications/progress",
      params: { progressToken: token, progress: 0.5, more: true },
    });
    client.send(progress("strange"));
    client.send(progress(99));
    client.send(progress(progressToken));
    const relayed = await waitForRequest(newestPeerOf(git), "notifications/progress");
    assert.deepEqual(relayed.params, { progressToken: 7.5, progress: 0.5, more: true });
    assert.equal(messagesOfMethod(newestPeerOf(git), "notifications/progress").length, 1);
  });

  it("is not passed on if the server asked for none", async () => {
    const { client, git } = await setUpServerRequests();
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    const params = { progressToken: id, progress: 1 };
    client.send({ jsonrpc: "2.0", method: "notifications/progress", params });
    await turn();
    assert.deepEqual(messagesOfMethod(newestPeerOf(git), "notifications/progress"), []);
  });
});

describe("questions without end", () => {
  it("are refused beyond a number, until some are answered", async () => {
    const { client, git } = await setUpServerRequests();
    for (let i = 0; i < 32; i++) void sendServerRequest(git, i, SAMPLING, SAMPLING_PARAMS);
    assert.equal(
      (await sendServerRequest(git, "more", SAMPLING, SAMPLING_PARAMS)).error?.code,
      -31007,
    );
    const { id } = await waitForRequest(client, SAMPLING);
    client.send({ jsonrpc: "2.0", id, result: {} });
    await turn();
    void sendServerRequest(git, "again", SAMPLING, SAMPLING_PARAMS);
    await client.until(() => messagesOfMethod(client, SAMPLING).length === 33);
  });

  it("are refused under an id that is still open", async () => {
    const { client, git } = await setUpServerRequests();
    newestPeerOf(git).send({ jsonrpc: "2.0", id: 1, method: ROOTS });
    newestPeerOf(git).send({ jsonrpc: "2.0", id: 1, method: ROOTS });
    assert.equal((await newestPeerOf(git).find(isResponseTo(1))).error?.code, -32600);
    assert.equal(messagesOfMethod(client, ROOTS).length, 1);
  });
});

describe("the roots", () => {
  const CHANGED = { jsonrpc: "2.0", method: "notifications/roots/list_changed" };

  it("that are others are told to the servers that can ask for them", async () => {
    const { client, git } = await setUpServerRequests();
    client.send(CHANGED);
    assert.deepEqual(await waitForRequest(newestPeerOf(git), CHANGED.method), CHANGED);
  });

  it("that are others are told to a server that has been greeted and is still listing", async () => {
    const git = new ScriptedServer("x");
    git.onList = () => undefined;
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    client.send(INITIALIZED);
    await turn();
    client.send(CHANGED);
    await turn();
    assert.deepEqual(git.messagesOf(CHANGED.method), [CHANGED]);
  });

  it("of who has not introduced itself are told to nobody, nor what it wants of logs", async () => {
    const { connect, git } = await setUpServerRequests();
    const early = connect();
    early.send({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    early.send(CHANGED);
    await turn();
    assert.deepEqual(git.messagesOf(CHANGED.method), []);
  });

  it("of a client that has none, or of one of several, are told to nobody", async () => {
    const { client, connect, git } = await setUpServerRequests({ sampling: {} });
    client.send(CHANGED);
    await turn();
    assert.deepEqual(git.messagesOf(CHANGED.method), []);
    const [one, two] = [connect(), connect()];
    for (const peer of [one, two]) await initialize(peer, ALL_CAPABILITIES);
    one.send(CHANGED);
    await turn();
    assert.deepEqual(git.messagesOf(CHANGED.method), []);
  });
});

describe("an elicitation by URL", () => {
  const COMPLETE = {
    jsonrpc: "2.0",
    method: "notifications/elicitation/complete",
    params: { elicitationId: "e" },
  };

  it("is told to be complete to its client", async () => {
    const { client, git } = await setUpServerRequests();
    newestPeerOf(git).send(COMPLETE);
    assert.deepEqual(await waitForRequest(client, COMPLETE.method), COMPLETE);
  });

  it("is told to none of several, if the server has given it to none", async () => {
    const { client, connect, git } = await setUpServerRequests();
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    newestPeerOf(git).send(COMPLETE);
    newestPeerOf(git).send({ ...COMPLETE, params: { elicitationId: 7 } });
    newestPeerOf(git).send({ ...COMPLETE, params: [] });
    await turn();
    assert.deepEqual(
      [messagesOfMethod(client, COMPLETE.method), messagesOfMethod(other, COMPLETE.method)],
      [[], []],
    );
  });

  it("is told to nobody while another client shares the server, whoever was asked for it", async () => {
    const { client, connect, git } = await setUpServerRequests();
    const url = { message: "m", mode: "url", url: "https://x", elicitationId: "e" };
    void sendServerRequest(git, 1, ELICIT, url);
    await waitForRequest(client, ELICIT);
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    newestPeerOf(git).send(COMPLETE);
    await turn();
    assert.deepEqual(
      [client, other].flatMap((peer) => messagesOfMethod(peer, COMPLETE.method)),
      [],
    );
  });
});

describe("a request of a server to a client that can run requests as tasks", () => {
  const capabilities = {
    sampling: {},
    tasks: { list: {}, cancel: {}, requests: { sampling: { createMessage: {} } } },
  };

  it("is sent without `task`, because servers are not told that the client can do that", async () => {
    const { client, git } = await setUpServerRequests(capabilities);
    assert.deepEqual(git.messagesOf("initialize")[0]?.params?.["capabilities"], { sampling: {} });
    const response = sendServerRequest(git, 1, SAMPLING, { ...SAMPLING_PARAMS, task: { ttl: 1 } });
    const { id, params } = await waitForRequest(client, SAMPLING);
    assert.deepEqual(params, SAMPLING_PARAMS);
    client.send({ jsonrpc: "2.0", id, result: { role: "assistant" } });
    assert.deepEqual((await response).result, { role: "assistant" });
  });

  it("is refused if it is about a task", async () => {
    const { git } = await setUpServerRequests(capabilities);
    for (const method of ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"]) {
      const { error } = await sendServerRequest(git, method, method, { taskId: "c1" });
      assert.equal(error?.code, -32601, method);
    }
  });
});
