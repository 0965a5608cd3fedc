import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { array, assert as check, asyncProperty, constantFrom, nat, tuple } from "fast-check";
import {
  ALL_CAPABILITIES,
  messagesOfMethod,
  waitForRequest,
  INITIALIZED,
  sendServerRequest,
  SAMPLING_PARAMS,
  newestPeerOf,
  setUpServerRequests,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callRequest,
  callTool,
  initialize,
  isResponseTo,
  type Json,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";

const SAMPLING = "sampling/createMessage";
const CANCELLED = "notifications/cancelled";
const PROGRESS = "notifications/progress";
const OWN = { isolation: "perClient" } as const;
const SILENCE = (): undefined => undefined;

/** The hub's ids of the calls that reached the server, in order. */
function idsOf(script: ScriptedServer): unknown[] {
  return script.messagesOf("tools/call").map(({ id }) => id);
}

function notify(peer: Peer, method: string, params: object): void {
  peer.send({ jsonrpc: "2.0", method, params });
}

function reply(peer: Peer, id: unknown, result: object): void {
  peer.send({ jsonrpc: "2.0", id, result });
}

describe("a server that answers", () => {
  it("out of order answers each call with what is its own", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = SILENCE;
    for (const id of ["a", "b", "c"]) client.send(callRequest(id, "git__x"));
    await turn();
    const ids = idsOf(git);
    for (const i of [2, 0, 1]) reply(newestPeerOf(git), ids[i], { n: i });
    for (const [i, id] of ["a", "b", "c"].entries()) {
      assert.deepEqual((await client.find(isResponseTo(id))).result, { n: i });
    }
  });

  it("twice is heard once, and does not answer who uses the id next", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = SILENCE;
    client.send(callRequest("a", "git__x"));
    await turn();
    const [id] = idsOf(git);
    reply(newestPeerOf(git), id, { n: 1 });
    reply(newestPeerOf(git), id, { n: 2 });
    await client.find(isResponseTo("a"));
    client.send(callRequest("a", "git__x"));
    await turn();
    reply(newestPeerOf(git), id, { n: 3 });
    await turn();
    const answers = client.messages.filter(isResponseTo("a"));
    assert.deepEqual(
      answers.map(({ result }) => result),
      [{ n: 1 }],
    );
  });

  for (const foreign of ["99", '"a"', '"x"', "1.5", "-1", "null", "[1]", '""', "1e400"]) {
    it(`under the foreign id ${foreign} answers nobody`, async () => {
      const { client, git } = await setUpServerRequests();
      git.onCall = SILENCE;
      client.send(callRequest("a", "git__x"));
      await turn();
      newestPeerOf(git).send(`{"jsonrpc":"2.0","id":${foreign},"result":{"n":1}}`);
      newestPeerOf(git).send(`{"jsonrpc":"2.0","id":${foreign},"error":{"code":1,"message":"m"}}`);
      await turn();
      assert.deepEqual(client.messages.filter(isResponseTo("a")), []);
      reply(newestPeerOf(git), idsOf(git)[0], { n: 2 });
      assert.deepEqual((await client.find(isResponseTo("a"))).result, { n: 2 });
    });
  }

  it("with an error without an id fails nothing", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = SILENCE;
    client.send(callRequest("a", "git__x"));
    await turn();
    newestPeerOf(git).send('{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}');
    newestPeerOf(git).send('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}');
    await turn();
    assert.deepEqual(client.messages.filter(isResponseTo("a")), []);
    reply(newestPeerOf(git), idsOf(git)[0], { n: 1 });
    assert.deepEqual((await client.find(isResponseTo("a"))).result, { n: 1 });
  });

  it("after a cancel answers nobody, nor reports progress to anybody", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = SILENCE;
    client.send(callRequest("a", "git__x", {}, { _meta: { progressToken: "p" } }));
    await turn();
    notify(client, CANCELLED, { requestId: "a" });
    await turn();
    const [id] = idsOf(git);
    notify(newestPeerOf(git), PROGRESS, { progressToken: id, progress: 1 });
    reply(newestPeerOf(git), id, {});
    await turn();
    assert.deepEqual(client.messages.filter(isResponseTo("a")), []);
    assert.deepEqual(messagesOfMethod(client, PROGRESS), []);
  });

  it("a call of another server answers nobody", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("x")];
    for (const script of [a, b]) script.onCall = SILENCE;
    const { client } = setUpHubWithClock({ a, b });
    await initialize(client);
    client.send(callRequest("a", "a__x"));
    await turn();
    reply(newestPeerOf(b), idsOf(a)[0], { from: "b" });
    await turn();
    assert.deepEqual(client.messages.filter(isResponseTo("a")), []);
  });
});

describe("what comes before it is time", () => {
  it("from a client that has not introduced itself changes nothing", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    notify(client, CANCELLED, { requestId: 1 });
    notify(client, PROGRESS, { progressToken: "toolmux-1", progress: 1 });
    notify(client, "notifications/roots/list_changed", {});
    client.send(INITIALIZED);
    reply(client, "toolmux-1", {});
    await turn();
    await initialize(client, ALL_CAPABILITIES);
    assert.ok((await callTool(client, "git__x")).result);
    assert.equal(client.messages.filter(({ error }) => error !== undefined).length, 0);
  });

  it("from a server that has not shaken hands confuses nobody", async () => {
    const git = new ScriptedServer("x");
    const shake = git.onInitialize;
    git.onInitialize = (message, text) => {
      const end = newestPeerOf(git);
      notify(end, "notifications/message", { level: "error", data: "early" });
      notify(end, "notifications/tools/list_changed", {});
      notify(end, PROGRESS, { progressToken: message.id, progress: 1 });
      notify(end, CANCELLED, { requestId: message.id });
      notify(end, "notifications/elicitation/complete", { elicitationId: "e" });
      reply(end, 99, {});
      end.send({ jsonrpc: "2.0", id: message.id, method: "roots/list" });
      return shake(message, text);
    };
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    client.send(INITIALIZED);
    const { id } = await waitForRequest(client, "roots/list");
    reply(client, id, { roots: [] });
    assert.ok((await callTool(client, "git__x")).result);
    const [handshake] = git.messagesOf("initialize");
    const answer = await newestPeerOf(git).find(isResponseTo(handshake?.id));
    assert.deepEqual(answer.result, { roots: [] });
  });

  it("does not come at all for a client that never says that it is ready, until it asks for something", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    void sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    await turn();
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
    assert.ok((await sendRequest(client, "ping")).result);
    assert.deepEqual(messagesOfMethod(client, SAMPLING), []);
    assert.ok((await callTool(client, "git__x")).result);
    assert.ok(await waitForRequest(client, SAMPLING));
  });
});

describe("progress", () => {
  it("of two clients' calls under one token reaches each client for its own call", async () => {
    const git = new ScriptedServer("x");
    git.onCall = SILENCE;
    const { client, connect } = setUpHubWithClock({ git });
    const other = connect();
    for (const peer of [client, other]) await initialize(peer);
    for (const peer of [client, other]) {
      peer.send(callRequest(1, "git__x", {}, { _meta: { progressToken: 1 } }));
      await turn();
    }
    const [mine, theirs] = idsOf(git);
    assert.notEqual(mine, theirs);
    notify(newestPeerOf(git), PROGRESS, { progressToken: theirs, progress: 2 });
    notify(newestPeerOf(git), PROGRESS, { progressToken: mine, progress: 1 });
    await turn();
    const seen = [client, other].map((peer) =>
      messagesOfMethod(peer, PROGRESS).map(({ params }) => params),
    );
    assert.deepEqual(seen, [
      [{ progressToken: 1, progress: 1 }],
      [{ progressToken: 1, progress: 2 }],
    ]);
  });

  it("of an answer reaches only the server that asked, although another's question has its token", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("x")];
    const { client } = setUpHubWithClock({ a, b });
    await initialize(client, ALL_CAPABILITIES);
    client.send(INITIALIZED);
    await turn();
    const params = { ...SAMPLING_PARAMS, _meta: { progressToken: "t" } };
    void sendServerRequest(a, 1, SAMPLING, params);
    const [first] = [await waitForRequest(client, SAMPLING)];
    void sendServerRequest(b, 1, SAMPLING, params);
    const progressToken = (first.params?.["_meta"] as Record<string, unknown>)["progressToken"];
    notify(client, PROGRESS, { progressToken, progress: 1 });
    await turn();
    assert.deepEqual(messagesOfMethod(newestPeerOf(a), PROGRESS)[0]?.params, {
      progressToken: "t",
      progress: 1,
    });
    assert.deepEqual(messagesOfMethod(newestPeerOf(b), PROGRESS), []);
  });
});

describe("ids", () => {
  it("of a server's question may be the client's, or the hub's own, for what runs the other way", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = SILENCE;
    client.send(callRequest(7, "git__x"));
    await turn();
    const [id] = idsOf(git);
    const questions = [
      sendServerRequest(git, 7, SAMPLING, { n: 7 }),
      sendServerRequest(git, id, SAMPLING, { n: id }),
    ];
    await client.until(() => messagesOfMethod(client, SAMPLING).length === 2);
    for (const question of messagesOfMethod(client, SAMPLING))
      reply(client, question.id, question.params ?? {});
    const answers = await Promise.all(questions);
    assert.deepEqual(
      answers.map(({ result }) => result),
      [{ n: 7 }, { n: id }],
    );
    assert.deepEqual(client.messages.filter(isResponseTo(7)), []);
    reply(newestPeerOf(git), id, { done: true });
    assert.deepEqual((await client.find(isResponseTo(7))).result, { done: true });
  });

  it("that a server takes back are those of its questions, never of calls", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = SILENCE;
    client.send(callRequest("a", "git__x"));
    await turn();
    const [id] = idsOf(git);
    notify(newestPeerOf(git), CANCELLED, { requestId: id });
    notify(newestPeerOf(git), CANCELLED, { requestId: "a" });
    reply(newestPeerOf(git), id, { n: 1 });
    assert.deepEqual((await client.find(isResponseTo("a"))).result, { n: 1 });
    assert.deepEqual(messagesOfMethod(client, CANCELLED), []);
  });

  it("that a client takes back are those of its calls, never of questions", async () => {
    const { client, git } = await setUpServerRequests();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    notify(client, CANCELLED, { requestId: id });
    notify(client, CANCELLED, { requestId: 1 });
    reply(client, id, { n: 1 });
    assert.deepEqual((await answer).result, { n: 1 });
    assert.deepEqual(messagesOfMethod(newestPeerOf(git), CANCELLED), []);
  });

  it("of the hub's questions may be a client's own for its calls", async () => {
    const { client, git } = await setUpServerRequests();
    git.onCall = SILENCE;
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    client.send(callRequest(id, "git__x"));
    await turn();
    reply(client, id, { n: 1 });
    assert.deepEqual((await answer).result, { n: 1 });
    reply(newestPeerOf(git), idsOf(git)[0], { n: 2 });
    assert.deepEqual((await client.find(isResponseTo(id))).result, { n: 2 });
  });

  it("of two servers' questions may be the same", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("x")];
    const { client } = setUpHubWithClock({ a, b });
    await initialize(client, ALL_CAPABILITIES);
    client.send(INITIALIZED);
    await turn();
    const answers = [
      sendServerRequest(a, 1, SAMPLING, { of: "a" }),
      sendServerRequest(b, 1, SAMPLING, { of: "b" }),
    ];
    await client.until(() => messagesOfMethod(client, SAMPLING).length === 2);
    for (const { id, params } of messagesOfMethod(client, SAMPLING))
      reply(client, id, params ?? {});
    const results = (await Promise.all(answers)).map(({ result }) => result);
    assert.deepEqual(results, [{ of: "a" }, { of: "b" }]);
  });

  it("that one client was asked under are nothing when another answers", async () => {
    const git = new ScriptedServer("x");
    const { client, connect } = setUpHubWithClock({ git }, { servers: { git: OWN } });
    const other = connect();
    for (const peer of [client, other]) {
      await initialize(peer, ALL_CAPABILITIES);
      peer.send(INITIALIZED);
    }
    await turn();
    const mine = git.peers[0];
    assert.ok(mine);
    mine.send({ jsonrpc: "2.0", id: 1, method: SAMPLING, params: SAMPLING_PARAMS });
    const { id } = await waitForRequest(client, SAMPLING);
    reply(other, id, { from: "other" });
    await turn();
    assert.deepEqual(mine.messages.filter(isResponseTo(1)), []);
    reply(client, id, { from: "client" });
    assert.deepEqual((await mine.find(isResponseTo(1))).result, { from: "client" });
  });
});

describe("clients and servers that all use the same ids and tokens", () => {
  /** Every request is answered at most once, and with what its own peer says. */
  function checkAnswers(peer: Peer, sender: string): void {
    const ids = new Set<unknown>();
    for (const message of peer.messages) {
      if (message.method !== undefined || message.result?.["to"] === undefined) continue;
      assert.equal(message.result["to"], `${sender} ${String(message.id)}`);
      assert.ok(!ids.has(message.id), `${sender} got two answers to ${String(message.id)}`);
      ids.add(message.id);
    }
  }

  it("get only what is theirs, whatever comes when", async () => {
    const acts = constantFrom("call", "ask", "answerCall", "answerAsk", "drop", "recall", "noise");
    const run = async (steps: readonly (readonly [string, number])[]): Promise<void> => {
      const scripts = [new ScriptedServer("x"), new ScriptedServer("x")] as const;
      for (const script of scripts) script.onCall = SILENCE;
      const [a, b] = scripts;
      const { hub, client, connect, clock } = setUpHubWithClock(
        { a, b },
        { servers: { a: OWN, b: OWN } },
      );
      const clients = [client, connect()];
      for (const peer of clients) {
        await initialize(peer, ALL_CAPABILITIES);
        peer.send(INITIALIZED);
        await turn();
      }
      const ends = scripts.flatMap(({ peers }) => peers);
      const open = (peer: Peer, method: string): Json[] =>
        messagesOfMethod(peer, method).filter(
          ({ id }) => !done.has(`${everyone.indexOf(peer)} ${String(id)}`),
        );
      const done = new Set<string>();
      const everyone = [...clients, ...ends];
      const answer = (peer: Peer, method: string, n: number): void => {
        const waiting = open(peer, method);
        const request = waiting[n % Math.max(waiting.length, 1)];
        if (request === undefined) return;
        done.add(`${everyone.indexOf(peer)} ${String(request.id)}`);
        const to =
          request.params?.["to"] ??
          (request.params?.["arguments"] as { to?: unknown } | undefined)?.to;
        reply(peer, request.id, { to });
      };
      let count = 0;
      for (const [act, n] of steps) {
        const who = n % 2;
        const peer = clients[who];
        const end = ends[n % ends.length];
        assert.ok(peer && end);
        const id = act === "call" || act === "ask" ? ++count : 1 + (n % (count + 1));
        const to = (of: string): string => `${of} ${id}`;
        const meta = { _meta: { progressToken: id } };
        if (act === "call")
          peer.send(callRequest(id, n % 3 ? "a__x" : "b__x", { to: to(`c${who}`) }, meta));
        if (act === "ask") {
          const params = { to: to(`s${n % ends.length}`), ...meta };
          end.send({ jsonrpc: "2.0", id, method: SAMPLING, params });
        }
        if (act === "answerCall") answer(end, "tools/call", n);
        if (act === "answerAsk") answer(peer, SAMPLING, n);
        if (act === "drop") notify(peer, CANCELLED, { requestId: id });
        if (act === "recall") notify(end, CANCELLED, { requestId: id });
        if (act === "noise") {
          notify(end, PROGRESS, { progressToken: id, progress: 1 });
          notify(peer, PROGRESS, { progressToken: `toolmux-${id}`, progress: 1 });
          reply(end, id + 1000, { to: "nobody" });
          reply(peer, `toolmux-${id + 1000}`, { to: "nobody" });
        }
        if (n % 3 === 0) await turn();
      }
      await turn();
      for (const [i, peer] of clients.entries()) checkAnswers(peer, `c${i}`);
      for (const [i, end] of ends.entries()) checkAnswers(end, `s${i}`);
      await hub.close();
      assert.deepEqual(clock.pendingDelays, []);
    };
    await check(asyncProperty(array(tuple(acts, nat(50)), { maxLength: 60 }), run), {
      numRuns: 150,
    });
  });
});
