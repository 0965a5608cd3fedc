import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { cancel, notify, post, respond } from "../fixtures/peer-messages.ts";
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
  type Servers,
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

/** Calls of a client under these ids, which their server does not answer; `ids`: the hub's ids of them. */
async function beginCalls(...names: unknown[]) {
  const { client, git } = await setUpServerRequests();
  git.onCall = SILENCE;
  const call = async (name: unknown): Promise<void> => {
    client.send(callRequest(name, "git__x", {}, { _meta: { progressToken: "p" } }));
    await turn();
  };
  for (const name of names) await call(name);
  const assertOpen = async (name: unknown): Promise<void> => {
    await turn();
    assert.deepEqual(client.messages.filter(isResponseTo(name)), []);
  };
  const assertAnswered = async (name: unknown, result: object): Promise<void> =>
    assert.deepEqual((await client.find(isResponseTo(name))).result, result);
  const server = newestPeerOf(git);
  return { client, git, server, ids: idsOf(git), call, assertOpen, assertAnswered };
}

/** Two servers that answer no calls, and clients that can be asked. */
async function beginTwo(clientCount = 1, servers: Servers = {}) {
  const [a, b] = [new ScriptedServer("x"), new ScriptedServer("x")];
  a.onCall = b.onCall = SILENCE;
  const setup = setUpHubWithClock({ a, b }, { servers });
  const clients = [setup.client];
  while (clients.length < clientCount) clients.push(setup.connect());
  for (const peer of clients) {
    await initialize(peer, ALL_CAPABILITIES);
    peer.send(INITIALIZED);
    await turn();
  }
  return { ...setup, a, b, clients };
}

describe("a server that answers", () => {
  it("out of order answers each call with what is its own", async () => {
    const { server, ids, assertAnswered } = await beginCalls("a", "b", "c");
    for (const i of [2, 0, 1]) respond(server, ids[i], { n: i });
    for (const [n, id] of ["a", "b", "c"].entries()) await assertAnswered(id, { n });
  });

  it("twice is heard once, and does not answer who uses the id next", async () => {
    const { client, server, ids, call } = await beginCalls("a");
    for (const n of [1, 2]) respond(server, ids[0], { n });
    await client.find(isResponseTo("a"));
    await call("a");
    respond(server, ids[0], { n: 3 });
    await turn();
    const answers = client.messages.filter(isResponseTo("a")).map(({ result }) => result);
    assert.deepEqual(answers, [{ n: 1 }]);
  });

  const error = '"error":{"code":1,"message":"m"}';
  const foreign = ["99", '"a"', '"x"', "1.5", "-1", "[1]", "{}", "true", '""', "1e400"];
  for (const end of [
    ...foreign.flatMap((id) => [`"id":${id},"result":{}`, `"id":${id},${error}`]),
    '"id":null,"result":{}',
    '"result":{}',
  ]) {
    it(`with what is no answer to a call answers nobody: ${end}`, async () => {
      const { server, ids, assertOpen, assertAnswered } = await beginCalls("a");
      server.send(`{"jsonrpc":"2.0",${end}}`);
      await assertOpen("a");
      respond(server, ids[0], { n: 2 });
      await assertAnswered("a", { n: 2 });
    });
  }

  it("after a cancel answers nobody, nor reports progress to anybody", async () => {
    const { client, server, ids, assertOpen } = await beginCalls("a");
    cancel(client, "a");
    await turn();
    notify(server, PROGRESS, { progressToken: ids[0], progress: 1 });
    respond(server, ids[0], {});
    await assertOpen("a");
    assert.deepEqual(messagesOfMethod(client, PROGRESS), []);
  });

  it("a call of another server answers nobody", async () => {
    const { client, a, b } = await beginTwo();
    client.send(callRequest("a", "a__x"));
    await turn();
    respond(newestPeerOf(b), idsOf(a)[0], { from: "b" });
    await turn();
    assert.deepEqual(client.messages.filter(isResponseTo("a")), []);
  });
});

describe("what comes before it is time", () => {
  it("from a client that has not introduced itself changes nothing", async () => {
    const git = new ScriptedServer("x");
    const { client } = setUpHubWithClock({ git });
    cancel(client, 1);
    notify(client, PROGRESS, { progressToken: "toolmux-1", progress: 1 });
    notify(client, "notifications/roots/list_changed", {});
    client.send(INITIALIZED);
    respond(client, "toolmux-1", {});
    await turn();
    await initialize(client, ALL_CAPABILITIES);
    assert.ok((await callTool(client, "git__x")).result);
    assert.ok(client.messages.every(({ error }) => error === undefined));
  });

  it("from a server that has not shaken hands confuses nobody", async () => {
    const git = new ScriptedServer("x");
    const shake = git.onInitialize;
    git.onInitialize = (message, text) => {
      const end = newestPeerOf(git);
      notify(end, "notifications/message", { level: "error", data: "early" });
      notify(end, "notifications/tools/list_changed", {});
      notify(end, PROGRESS, { progressToken: message.id, progress: 1 });
      cancel(end, message.id);
      notify(end, "notifications/elicitation/complete", { elicitationId: "e" });
      respond(end, 99, {});
      post(end, message.id, "roots/list");
      return shake(message, text);
    };
    const { client } = setUpHubWithClock({ git });
    await initialize(client, ALL_CAPABILITIES);
    client.send(INITIALIZED);
    const { id } = await waitForRequest(client, "roots/list");
    respond(client, id, { roots: [] });
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
    const { a, clients } = await beginTwo(2, { a: { isolation: "shared" } });
    for (const peer of clients) {
      peer.send(callRequest(1, "a__x", {}, { _meta: { progressToken: 1 } }));
      await turn();
    }
    const [mine, theirs] = idsOf(a);
    assert.notEqual(mine, theirs);
    notify(newestPeerOf(a), PROGRESS, { progressToken: theirs, progress: 2 });
    notify(newestPeerOf(a), PROGRESS, { progressToken: mine, progress: 1 });
    await turn();
    const seen = clients.map((peer) =>
      messagesOfMethod(peer, PROGRESS).map(({ params }) => params),
    );
    const progress = (n: number): object[] => [{ progressToken: 1, progress: n }];
    assert.deepEqual(seen, [progress(1), progress(2)]);
  });

  it("of an answer reaches only the server that asked, although another's question has its token", async () => {
    const { client, a, b } = await beginTwo();
    const params = { ...SAMPLING_PARAMS, _meta: { progressToken: "t" } };
    void sendServerRequest(a, 1, SAMPLING, params);
    const first = await waitForRequest(client, SAMPLING);
    void sendServerRequest(b, 1, SAMPLING, params);
    const { progressToken } = first.params?.["_meta"] as { progressToken: unknown };
    notify(client, PROGRESS, { progressToken, progress: 1 });
    await turn();
    const [ofA, ofB] = [a, b].map((server) => messagesOfMethod(newestPeerOf(server), PROGRESS));
    assert.deepEqual(ofA?.[0]?.params, { progressToken: "t", progress: 1 });
    assert.deepEqual(ofB, []);
  });
});

describe("ids", () => {
  it("of a server's question may be the client's, or the hub's own, for what runs the other way", async () => {
    const { client, git, server, ids, assertOpen, assertAnswered } = await beginCalls(7);
    const questions = [7, ids[0]].map((n) => sendServerRequest(git, n, SAMPLING, { n }));
    await client.until(() => messagesOfMethod(client, SAMPLING).length === 2);
    for (const { id, params } of messagesOfMethod(client, SAMPLING))
      respond(client, id, params ?? {});
    const answers = (await Promise.all(questions)).map(({ result }) => result);
    assert.deepEqual(answers, [{ n: 7 }, { n: ids[0] }]);
    await assertOpen(7);
    respond(server, ids[0], { done: true });
    await assertAnswered(7, { done: true });
  });

  it("that a server takes back are those of its questions, never of calls", async () => {
    const { client, server, ids, assertAnswered } = await beginCalls("a");
    for (const id of [ids[0], "a"]) cancel(server, id);
    respond(server, ids[0], { n: 1 });
    await assertAnswered("a", { n: 1 });
    assert.deepEqual(messagesOfMethod(client, CANCELLED), []);
  });

  it("that a client takes back are those of its calls, never of questions", async () => {
    const { client, git, server } = await beginCalls();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    for (const requestId of [id, 1]) cancel(client, requestId);
    respond(client, id, { n: 1 });
    assert.deepEqual((await answer).result, { n: 1 });
    assert.deepEqual(messagesOfMethod(server, CANCELLED), []);
  });

  it("of the hub's questions may be a client's own for its calls", async () => {
    const { client, git, server, call, assertAnswered } = await beginCalls();
    const answer = sendServerRequest(git, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    await call(id);
    respond(client, id, { n: 1 });
    assert.deepEqual((await answer).result, { n: 1 });
    respond(server, idsOf(git)[0], { n: 2 });
    await assertAnswered(id, { n: 2 });
  });

  it("that one client was asked under are nothing when another answers", async () => {
    const { a, client, clients } = await beginTwo(2, { a: OWN });
    const mine = a.peers[0];
    assert.ok(mine);
    post(mine, 1, SAMPLING, SAMPLING_PARAMS);
    const { id } = await waitForRequest(client, SAMPLING);
    respond(clients[1], id, { from: "other" });
    await turn();
    assert.deepEqual(mine.messages.filter(isResponseTo(1)), []);
    respond(client, id, { from: "client" });
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
    const acts = fc.constantFrom(
      "call",
      "ask",
      "answerCall",
      "answerAsk",
      "drop",
      "recall",
      "noise",
    );
    const run = async (steps: readonly (readonly [string, number])[]): Promise<void> => {
      const { a, b, hub, clock, clients } = await beginTwo(2, { a: OWN, b: OWN });
      const ends = [a, b].flatMap(({ peers }) => peers);
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
        respond(peer, request.id, { to });
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
          post(end, id, SAMPLING, params);
        }
        if (act === "answerCall") answer(end, "tools/call", n);
        if (act === "answerAsk") answer(peer, SAMPLING, n);
        if (act === "drop") cancel(peer, id);
        if (act === "recall") cancel(end, id);
        if (act === "noise") {
          notify(end, PROGRESS, { progressToken: id, progress: 1 });
          notify(peer, PROGRESS, { progressToken: `toolmux-${id}`, progress: 1 });
          respond(end, id + 1000, { to: "nobody" });
          respond(peer, `toolmux-${id + 1000}`, { to: "nobody" });
        }
        if (n % 3 === 0) await turn();
      }
      await turn();
      for (const [i, peer] of clients.entries()) checkAnswers(peer, `c${i}`);
      for (const [i, end] of ends.entries()) checkAnswers(end, `s${i}`);
      await hub.close();
      assert.deepEqual(clock.pendingDelays, []);
    };
    const steps = fc.array(fc.tuple(acts, fc.nat(50)), { maxLength: 60 });
    await fc.assert(fc.asyncProperty(steps, run), { numRuns: 75 });
  });
});
