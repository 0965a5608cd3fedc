import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { joinPieces, textOf } from "../../src/base/bytes.ts";
import type { Hub } from "../../src/hub/hub.ts";
import { piecesOfMessage } from "../../src/jsonrpc/message.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import type { Responder, TransportEvents } from "../../src/transport/transport.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";
import { cancel, notify, post, respond } from "../fixtures/peer-messages.ts";
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
import { turn, type VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  Latch,
  Peer,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { openWithClock, callPlugin } from "../plugins/plugin-hub.ts";

const SAMPLING = "sampling/createMessage";
const ELICIT = "elicitation/create";
const ROOTS = "roots/list";
const CANCELLED = "notifications/cancelled";
const PROGRESS = "notifications/progress";
const FORM = { message: "Which?", requestedSchema: { type: "object", properties: {} } };
const SILENCE = (): undefined => undefined;

/** A client that introduces itself. */
async function introduce(client: Peer): Promise<Peer> {
  await initialize(client, ALL_CAPABILITIES);
  client.send(INITIALIZED);
  await turn();
  return client;
}

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
  return { client: await introduce(new Peer(theirs)), events: await opened };
}

const sample = (git: ScriptedServer, id: unknown = 1): Promise<Json> =>
  sendServerRequest(git, id, SAMPLING, SAMPLING_PARAMS);

/** A server that answers no call, and has asked its client for a sample. */
async function beginAsked(...made: Parameters<typeof setUpServerRequests>) {
  const setup = await setUpServerRequests(...made);
  setup.git.onCall = SILENCE;
  const answer = sample(setup.git);
  const { id } = await waitForRequest(setup.client, SAMPLING);
  return { ...setup, answer, id, server: newestPeerOf(setup.git) };
}

/** A server that has got calls of its client under these ids, and answers none. */
async function beginCalled(...ids: string[]) {
  const setup = await setUpServerRequests();
  setup.git.onCall = SILENCE;
  for (const id of ids) setup.client.send(callRequest(id, "git__x"));
  await turn();
  return setup;
}

const paramsOf = async (client: Peer, method: string): Promise<Json["params"]> =>
  (await waitForRequest(client, method)).params;

describe("a server's request with the params null", () => {
  it("reaches its client without params, which strict clients need", async () => {
    const { client, git } = await setUpServerRequests();
    newestPeerOf(git).send(`{"jsonrpc":"2.0","id":"r","method":"${ROOTS}","params":null}`);
    const asked = await waitForRequest(client, ROOTS);
    assert.ok(!("params" in asked));
    respond(client, asked.id, { roots: [] });
    assert.deepEqual((await newestPeerOf(git).find(isResponseTo("r"))).result, { roots: [] });
  });
});

describe("what a server asks", () => {
  it("reaches its client under an id of the hub's, and the answer comes back under the server's", async () => {
    const { client, git } = await setUpServerRequests();
    const server = newestPeerOf(git);
    const params = '{"messages":[],"maxTokens":1.0,"x":12345678901234567890,"_meta":{"a":1}}';
    server.send(`{"jsonrpc":"2.0","id":"s-1","method":"${SAMPLING}","params":${params}}`);
    const { id } = await waitForRequest(client, SAMPLING);
    assert.ok(client.received.some((text) => text.includes(`"params":${params}`)));
    assert.equal(typeof id, "string");
    assert.notEqual(id, "s-1");
    const result = '{"role":"assistant","n":1.0,"big":12345678901234567890}';
    client.send(`{"jsonrpc":"2.0","id":"${String(id)}","result":${result}}`);
    await server.find(isResponseTo("s-1"));
    assert.ok(server.received.some((text) => text.includes(`"result":${result}`)));
  });

  it("is answered with the client's error as it is", async () => {
    const { client, answer, id } = await beginAsked();
    const error = { code: -1, message: "no", data: { a: [1] } };
    client.send({ jsonrpc: "2.0", id, error });
    assert.deepEqual((await answer).error, error);
  });

  const inner = { requestedSchema: { message: "inner" }, mode: "form" };
  const page = { mode: "url", url: "https://x", elicitationId: "e" };
  const twice = '{"message":"a","\\u006dessage":"b",';
  for (const [where, params, expected] of [
    [
      "where people read it, and only there",
      JSON.stringify({ message: "Which?", ...inner }),
      { message: "[git] Which?", ...inner },
    ],
    [
      "in every message that a parser may take",
      JSON.stringify(page).replace("{", twice),
      { message: "[git] b", ...page },
    ],
    ["in no message that is no text", '{"message":7}', { message: 7 }],
  ] as const) {
    it(`names the server ${where}`, async () => {
      const { client, git } = await setUpServerRequests();
      const request = `{"jsonrpc":"2.0","id":1,"method":"${ELICIT}","params":${params}}`;
      newestPeerOf(git).send(request);
      assert.deepEqual(await paramsOf(client, ELICIT), expected);
      const isShown = client.received.some((text) => text.includes('"message":"[git] a"'));
      assert.equal(isShown, params.includes('"a"'));
    });
  }

  const spellings: Record<string, (id: string) => string> = {
    "no JSON": (id) => `"${id}"`,
    "malformed, under a number": (id) => id.replace(/\D/g, ""),
  };
  for (const [what, idOf] of Object.entries(spellings)) {
    it(`is answered with an error if what the client answers is ${what}, which no server sees`, async () => {
      const { client, answer, id, server } = await beginAsked();
      client.send(`{"jsonrpc":"2.0","id":${idOf(String(id))},"result":{"a":tru}}`);
      assert.equal((await answer).error?.code, -32603);
      client.send("{");
      client.send('{"jsonrpc":"2.0","id":"toolmux-77","result":{"a":tru}}');
      await turn();
      assert.ok(!server.received.some((text) => text.includes("tru}")));
    });
  }

  it("is answered with an error if the client's answer is too large to be passed on", async () => {
    const git = new ScriptedServer("x");
    const { client, events } = await accept(setUpHubWithClock({ git }).hub);
    const answer = sample(git);
    const { id } = await waitForRequest(client, SAMPLING);
    const head = Buffer.from(`{"jsonrpc":"2.0","id":"${String(id)}","result":{"x":"`);
    events.oversized(head, Buffer.from('"}}'), 1e9);
    assert.equal((await answer).error?.code, -31004);
  });

  it("goes the way of the call that it is for, where links have one for each", async () => {
    const [git, other] = [new ScriptedServer("x"), new ScriptedServer("x")];
    git.onCall = SILENCE;
    const { client, events } = await accept(setUpHubWithClock({ git, other }).hub);
    const sent: string[] = [];
    const inbound: Responder = {
      notify: (message) => void sent.push(textOf(joinPieces(piecesOfMessage(message)))),
      respond: () => {},
    };
    const request = parseMessage(Buffer.from(JSON.stringify(callRequest(1, "git__x"))));
    events.message(request, undefined, inbound);
    await turn();
    void sample(git);
    void sendServerRequest(other, 1, ROOTS);
    await waitForRequest(client, ROOTS);
    assert.equal(sent.length, 1);
    assert.match(sent[0] ?? "", /sampling/);
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
  });

  it("is asked as often as the server asks, and each answer finds its question", async () => {
    const { client, git } = await setUpServerRequests();
    const [first, second] = [sample(git, 1), sample(git, "1")];
    await client.until(() => messagesOfMethod(client, SAMPLING).length === 2);
    const [one, two] = messagesOfMethod(client, SAMPLING);
    assert.notEqual(one?.id, two?.id);
    respond(client, two?.id, { n: 2 });
    respond(client, one?.id, { n: 1 });
    assert.deepEqual([(await first).result, (await second).result], [{ n: 1 }, { n: 2 }]);
  });

  it("gets an id that no other open question has, also after others were answered", async () => {
    const { client, git } = await setUpServerRequests();
    const answers = [sample(git, 1), sample(git, 2)];
    await turn();
    const questions = (): readonly Json[] => messagesOfMethod(client, SAMPLING);
    respond(client, questions()[0]?.id, { n: 1 });
    await answers[0];
    answers.push(sample(git, 3));
    await turn();
    for (const n of [3, 2]) respond(client, questions()[n - 1]?.id, { n });
    const results = (await Promise.all(answers)).map(({ result }) => result);
    assert.deepEqual(results, [{ n: 1 }, { n: 2 }, { n: 3 }]);
  });

  it("waits for a client that has not said that it is ready, until it does or the server takes it back", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    void sendServerRequest(git, "taken back", ROOTS);
    cancel(newestPeerOf(git), "taken back");
    const answer = sendServerRequest(git, 1, ROOTS);
    await turn();
    assert.deepEqual(messagesOfMethod(client, ROOTS), []);
    client.send(INITIALIZED);
    const request = await waitForRequest(client, ROOTS);
    assert.equal("params" in request, false);
    respond(client, request.id, { roots: [{ uri: "file:///a" }] });
    assert.deepEqual((await answer).result, { roots: [{ uri: "file:///a" }] });
    assert.equal(messagesOfMethod(client, ROOTS).length, 1);
    assert.deepEqual(messagesOfMethod(client, CANCELLED), []);
  });

  it("is refused beyond a number, until some are answered", async () => {
    const { client, git, id } = await beginAsked();
    for (let i = 2; i <= 32; i++) void sample(git, i);
    assert.equal((await sample(git, "more")).error?.code, -31007);
    respond(client, id, {});
    await turn();
    void sample(git, "again");
    await client.until(() => messagesOfMethod(client, SAMPLING).length === 33);
  });

  it("is refused under an id that is still open", async () => {
    const { client, git } = await setUpServerRequests();
    for (let i = 0; i < 2; i++) post(newestPeerOf(git), 1, ROOTS);
    assert.equal((await newestPeerOf(git).find(isResponseTo(1))).error?.code, -32600);
    assert.equal(messagesOfMethod(client, ROOTS).length, 1);
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
    const other = await introduce(connect());
    const { error } = await sample(git);
    assert.equal(error?.code, -31007);
    assert.match(error?.message ?? "", /"git".*2 clients.*isolation = "perClient"/);
    for (const peer of [client, other]) assert.deepEqual(messagesOfMethod(peer, SAMPLING), []);
    assert.ok(events.some((event) => event.kind === "log" && /perClient/.test(event.text)));
  });

  it("reaches the one that is left when the other has gone", async () => {
    const { client, connect, git } = await setUpServerRequests();
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    await client.transport.close();
    await turn();
    other.send(INITIALIZED);
    void sample(git);
    assert.ok(await waitForRequest(other, SAMPLING));
  });

  it("reaches each client from its own server, and only that", async () => {
    const servers = { git: { isolation: "perClient" } } as const;
    const { client, connect, git } = await setUpServerRequests(ALL_CAPABILITIES, { servers });
    const other = await introduce(connect());
    void sample(git);
    assert.ok(await waitForRequest(other, SAMPLING));
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
  });

  it("is asked of nobody if nobody is there", async () => {
    const { client, git } = await setUpServerRequests();
    await client.transport.close();
    await turn();
    assert.equal((await sample(git)).error?.code, -31007);
  });
});

describe("a question that is taken back", () => {
  it("by the server is taken back from the client, in the server's words", async () => {
    const { client, id, server } = await beginAsked();
    notify(server, CANCELLED, { requestId: 1, reason: "enough", more: 1 });
    const expected = { requestId: id, reason: "enough", more: 1 };
    assert.deepEqual(await paramsOf(client, CANCELLED), expected);
    respond(client, id, {});
    await turn();
    assert.deepEqual(server.messages.filter(isResponseTo(1)), []);
  });

  it("because the server has died is taken back from the client", async () => {
    const { client, git, id } = await beginAsked();
    git.disconnect();
    assert.equal((await paramsOf(client, CANCELLED))?.["requestId"], id);
    await turn();
    respond(client, id, {});
    await turn();
    assert.ok(!newestPeerOf(git).messages.some(({ result }) => result !== undefined));
  });

  it("because the server was stopped is taken back from the client, however long it takes to end", async () => {
    const { hub, client, git } = await beginAsked();
    git.onClose = new Latch().wait;
    void hub.stop("git");
    assert.match(String((await paramsOf(client, CANCELLED))?.["reason"]), /git/);
  });

  it("because the client has left is answered with an error", async () => {
    const { client, answer } = await beginAsked();
    await client.transport.close();
    assert.equal((await answer).error?.code, -31007);
  });

  it("because its only call was cancelled ends at both sides", async () => {
    const { client, git } = await beginCalled("c");
    const answer = sample(git);
    const { id } = await waitForRequest(client, SAMPLING);
    cancel(client, "c");
    assert.equal((await paramsOf(client, CANCELLED))?.["requestId"], id);
    assert.equal((await answer).error?.code, -31007);
  });

  it("is not because a call was cancelled that came later than it", async () => {
    const { client, git } = await beginAsked();
    client.send(callRequest("c", "git__x"));
    await turn();
    cancel(client, "c");
    await turn();
    assert.equal(git.messagesOf(CANCELLED).length, 1);
    assert.deepEqual(messagesOfMethod(client, CANCELLED), []);
  });

  it("is not because one of several calls was cancelled, nor because another request was", async () => {
    const { client, git } = await beginCalled("c", "d");
    const answer = sample(git);
    const { id } = await waitForRequest(client, SAMPLING);
    cancel(client, "c");
    cancel(client, id);
    await turn();
    assert.deepEqual(messagesOfMethod(client, CANCELLED), []);
    respond(client, id, { n: 1 });
    assert.deepEqual((await answer).result, { n: 1 });
  });
});

describe("a question that nobody answers", () => {
  const settings = { servers: { git: { healthInterval: 0 } } };

  it("ends after ten minutes at both sides", async () => {
    const { client, clock, answer, id, server } = await beginAsked(ALL_CAPABILITIES, settings);
    await clock.advanceAsync(599_000);
    assert.deepEqual(server.messages.filter(isResponseTo(1)), []);
    await clock.advanceAsync(2000);
    assert.match((await answer).error?.message ?? "", /10 minutes/);
    assert.equal((await paramsOf(client, CANCELLED))?.["requestId"], id);
  });

  it("leaves no timer when it was answered", async () => {
    const { client, git, clock } = await setUpServerRequests(ALL_CAPABILITIES, settings);
    await clock.advanceAsync(60_000);
    const before = clock.pendingDelays.length;
    const answer = sendServerRequest(git, 1, ROOTS);
    const { id } = await waitForRequest(client, ROOTS);
    respond(client, id, {});
    await answer;
    assert.equal(clock.pendingDelays.length, before);
  });
});

describe("the time of a call", () => {
  const LIMITS = { healthInterval: 0, callTimeout: 10_000, maxCallTimeout: 30_000 };
  const settings = { servers: { git: LIMITS, other: LIMITS } };

  /** A call, `c`, whose server does not answer. */
  async function beginCall() {
    const setup = await setUpServerRequests(ALL_CAPABILITIES, settings);
    const { client, git, clock } = setup;
    git.onCall = SILENCE;
    const call = async (): Promise<void> => {
      client.send(callRequest("c", "git__x", {}, { _meta: { progressToken: "p" } }));
      await turn();
    };
    const progress = (): void => {
      const meta = git.messagesOf("tools/call")[0]?.params?.["_meta"];
      const { progressToken } = meta as Record<string, unknown>;
      notify(newestPeerOf(git), PROGRESS, { progressToken, progress: 1 });
    };
    /** @returns the answer to the server's question by the client */
    const ask = async (id: unknown, method = SAMPLING): Promise<() => Promise<void>> => {
      void sendServerRequest(git, id, method, SAMPLING_PARAMS);
      const request = await waitForRequest(client, method);
      return () => {
        respond(client, request.id, {});
        return turn();
      };
    };
    /** Progress comes while the call's time, of which 8 s are over, stands still. */
    const progressDuringWait = async (): Promise<void> => {
      await call();
      await clock.advanceAsync(8000);
      const answer = await ask(1);
      await clock.advanceAsync(100_000);
      progress();
      await clock.advanceAsync(100_000);
      await answer();
    };
    return { client, clock, call, progress, ask, progressDuringWait };
  }

  const isOver = (client: Peer): boolean => client.messages.some(isResponseTo("c"));

  /** Its time is over after so many ms, not much earlier and not much later. */
  async function assertOverAfter(client: Peer, clock: VirtualClock, ms: number): Promise<void> {
    await clock.advanceAsync(ms - 100);
    assert.equal(isOver(client), false);
    await clock.advanceAsync(200);
    assert.equal((await client.find(isResponseTo("c"))).result?.["isError"], true);
  }

  it("stands still while its server waits for the client, and goes on then", async () => {
    const { client, clock, call, ask } = await beginCall();
    await call();
    await clock.advanceAsync(6000);
    const answer = await ask(1);
    await clock.advanceAsync(300_000);
    await answer();
    await assertOverAfter(client, clock, 4000);
  });

  it("stands still also if it came while the server was waiting, and until it waits for nothing more", async () => {
    const { client, clock, call, ask } = await beginCall();
    const answers = [await ask(1), await ask(2, ROOTS)];
    await call();
    for (const answer of answers) {
      await clock.advanceAsync(100_000);
      assert.equal(isOver(client), false);
      await answer();
    }
    await assertOverAfter(client, clock, 10_000);
  });

  it("is moved back by progress while it stands still, up to its total without the wait", async () => {
    const { client, clock, progress, progressDuringWait } = await beginCall();
    await progressDuringWait();
    await clock.advanceAsync(9000);
    assert.equal(isOver(client), false);
    progress();
    await clock.advanceAsync(9000);
    progress();
    await assertOverAfter(client, clock, 4000);
  });

  it("is moved back from the last sign of progress, although it stood still then", async () => {
    const { client, clock, progressDuringWait } = await beginCall();
    await progressDuringWait();
    await assertOverAfter(client, clock, 10_000);
  });

  it("stands still for a call that plugins see, and goes on when the server has answered", async () => {
    const git = Object.assign(new ScriptedServer("x"), { onCall: SILENCE });
    const slow = callPlugin("slow", async (given, next) => {
      await next(given);
      return new Promise(() => {});
    });
    const { client, clock } = await openWithClock([slow], { git }, settings);
    await introduce(client);
    client.send(callRequest("c", "git__x"));
    await clock.advanceAsync(6000);
    void sample(git);
    await waitForRequest(client, SAMPLING);
    await clock.advanceAsync(300_000);
    assert.equal(isOver(client), false);
    respond(newestPeerOf(git), git.messagesOf("tools/call")[0]?.id, { content: [] });
    await turn();
    await assertOverAfter(client, clock, 4000);
  });

  it("goes on for calls of other servers", async () => {
    const [git, other] = [new ScriptedServer("x"), new ScriptedServer("x")];
    other.onCall = SILENCE;
    const { client, clock } = setUpHubWithClock({ git, other }, settings);
    await introduce(client);
    client.send(callRequest("c", "other__x"));
    void sample(git);
    await waitForRequest(client, SAMPLING);
    await assertOverAfter(client, clock, 10_000);
  });
});

describe("the progress of an answer", () => {
  it("goes to the server under its own token, only if it gave one", async () => {
    const { client, git } = await setUpServerRequests();
    const _meta = { progressToken: 7.5, other: 1 };
    void sendServerRequest(git, 1, SAMPLING, { ...SAMPLING_PARAMS, _meta });
    const meta = (await paramsOf(client, SAMPLING))?.["_meta"] as Record<string, unknown>;
    const { progressToken, ...rest } = meta;
    assert.deepEqual(rest, { other: 1 });
    assert.notEqual(progressToken, 7.5);
    for (const token of ["strange", 99, progressToken]) {
      notify(client, PROGRESS, { progressToken: token, progress: 0.5, more: true });
    }
    const relayed = await paramsOf(newestPeerOf(git), PROGRESS);
    assert.deepEqual(relayed, { progressToken: 7.5, progress: 0.5, more: true });
    assert.equal(messagesOfMethod(newestPeerOf(git), PROGRESS).length, 1);
  });

  it("is not passed on if the server asked for none", async () => {
    const { client, id, server } = await beginAsked();
    notify(client, PROGRESS, { progressToken: id, progress: 1 });
    await turn();
    assert.deepEqual(messagesOfMethod(server, PROGRESS), []);
  });
});

describe("the roots", () => {
  const CHANGED = { jsonrpc: "2.0", method: "notifications/roots/list_changed" };

  it("that are others are told to the servers that can ask for them, also while they are still listing", async () => {
    const [git, slow] = [new ScriptedServer("x"), new ScriptedServer("x")];
    slow.onList = SILENCE;
    const { client } = setUpHubWithClock({ git, slow });
    await introduce(client);
    client.send(CHANGED);
    await turn();
    for (const server of [git, slow])
      assert.deepEqual(server.messagesOf(CHANGED.method), [CHANGED]);
  });

  it("of who has not introduced itself are told to nobody", async () => {
    const { connect, git } = await setUpServerRequests();
    const early = connect();
    post(early, 1, "tools/list");
    early.send(CHANGED);
    await turn();
    assert.deepEqual(git.messagesOf(CHANGED.method), []);
  });

  it("of a client that has none, or of one of several, are told to nobody", async () => {
    const { client, connect, git } = await setUpServerRequests({ sampling: {} });
    client.send(CHANGED);
    await turn();
    const [one, two] = [connect(), connect()];
    for (const peer of [one, two]) await initialize(peer, ALL_CAPABILITIES);
    one.send(CHANGED);
    await turn();
    assert.deepEqual(git.messagesOf(CHANGED.method), []);
  });
});

describe("an elicitation by URL", () => {
  const COMPLETE = "notifications/elicitation/complete";
  const complete = (git: ScriptedServer, params: object = { elicitationId: "e" }): void =>
    notify(newestPeerOf(git), COMPLETE, params);

  it("is told to be complete to its client", async () => {
    const { client, git } = await setUpServerRequests();
    complete(git);
    assert.deepEqual(await paramsOf(client, COMPLETE), { elicitationId: "e" });
  });

  it("is told to nobody while several clients share the server, whoever was asked for it", async () => {
    const { client, connect, git } = await setUpServerRequests();
    const url = { message: "m", mode: "url", url: "https://x", elicitationId: "e" };
    void sendServerRequest(git, 1, ELICIT, url);
    await waitForRequest(client, ELICIT);
    const other = connect();
    await initialize(other, ALL_CAPABILITIES);
    for (const params of [undefined, { elicitationId: "f" }, { elicitationId: 7 }, []])
      complete(git, params);
    await turn();
    for (const peer of [client, other]) assert.deepEqual(messagesOfMethod(peer, COMPLETE), []);
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
    respond(client, id, { role: "assistant" });
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
