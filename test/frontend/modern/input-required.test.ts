import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  AwaitingLimit,
  INPUT_TIMEOUT,
  MAX_AWAITING,
} from "../../../src/frontend/modern/input-required.ts";
import { MetaKey } from "../../../src/protocol/modern.ts";
import type { Transport } from "../../../src/transport/transport.ts";
import { memoryTransportPair } from "../../../src/transport/memory.ts";
import { turn, type VirtualClock } from "../../fixtures/virtual-clock.ts";
import {
  introduce,
  isAnswer,
  type Json,
  type Peer,
  Script,
  setStage,
  setUp,
} from "../../fixtures/memory-hub.ts";
import { ABLE, modern, put, request, roundOf } from "../../fixtures/modern-requests.ts";

const ACCEPT = { action: "accept", content: { name: "A" } };
const FORM = { message: "Who?", requestedSchema: { type: "object" } };
const CALL = { name: "git__x", arguments: { a: 1 } };

/** A server that asks, during each call, what it is told to, and answers when it is told to. */
class Asking extends Script {
  questions: readonly { id: string; method: string; params?: object }[] = [
    { id: "q", method: "elicitation/create", params: FORM },
  ];
  calls: Json[] = [];
  override onCall = (message: Json): undefined => {
    this.calls.push(message);
    this.pose();
  };

  pose(): void {
    for (const question of this.questions) this.peer?.send({ jsonrpc: "2.0", ...question });
  }

  /** What became of a question. */
  heard(id: string): Promise<Json> {
    assert.ok(this.peer);
    return this.peer.find((message) => message.id === id && message.method === undefined);
  }

  answer(result: object = { content: [] }, at = -1): void {
    this.peer?.send({ jsonrpc: "2.0", id: this.calls.at(at)?.id, result });
  }

  cancelled(): Json[] {
    return this.asked("notifications/cancelled");
  }
}

async function setAsking(
  capabilities: object = ABLE,
): Promise<ReturnType<typeof setStage> & { git: Asking }> {
  const git = new Asking("x");
  const stage = setStage({ git });
  await request(stage.client, "tools/list", {}, capabilities);
  return { ...stage, git };
}

/** Makes a request that is answered with what the server asks. */
async function ask(
  client: Peer,
  clock: VirtualClock,
  id: unknown,
  params: Readonly<Record<string, unknown>> = CALL,
): Promise<Json> {
  const answer = put(client, id, "tools/call", params, ABLE);
  await turn();
  await turn();
  await clock.run(10);
  return answer;
}

/** The answers to all that a client was asked, with the state to come back with. */
function bring(answer: Json, result: object = ACCEPT): Readonly<Record<string, unknown>> {
  const { keys, state } = roundOf(answer);
  const inputResponses = Object.fromEntries(keys.map((key) => [key, result]));
  return { ...CALL, inputResponses, requestState: state };
}

async function isRefused(answer: Promise<Json>): Promise<void> {
  const { error } = await answer;
  assert.equal(error?.code, -32602);
  assert.equal(error?.message, "Invalid or expired requestState");
}

describe("a legacy server that asks a modern client", () => {
  it("has its question answered by another request, and its answer given to that", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    assert.equal(first.result?.["resultType"], "input_required");
    assert.deepEqual(first.result?.["_meta"], {
      [MetaKey.server]: { name: "toolmux", version: "0.1.0" },
    });
    const { requests, keys, state } = roundOf(first);
    assert.equal(keys.length, 1);
    const [{ method, params } = assert.fail()] = Object.values(requests);
    assert.equal(method, "elicitation/create");
    assert.deepEqual(params, { ...FORM, message: "[git] Who?" });
    assert.match(state, /^toolmux-[\w-]{8}\.[\w-]{43}$/);
    const second = put(client, 2, "tools/call", bring(first), ABLE);
    assert.deepEqual((await git.heard("q")).result, ACCEPT);
    git.answer({ content: [], n: 1 });
    assert.equal((await second).result?.["n"], 1);
    assert.equal((await second).result?.["resultType"], "complete");
    assert.equal(git.calls.length, 1, "it is the same call");
    assert.equal(client.messages.filter(({ id }) => id === 1).length, 1);
  });

  it("asks several things at once, which come together, without what only requests have", async () => {
    const { client, clock, git } = await setAsking();
    git.questions = [
      { id: "a", method: "elicitation/create", params: { ...FORM, mode: "form", task: {} } },
      {
        id: "b",
        method: "elicitation/create",
        params: { mode: "url", url: "https://x.test", message: "Go", elicitationId: "e" },
      },
      {
        id: "c",
        method: "sampling/createMessage",
        params: { messages: [], maxTokens: 1.0, _meta: { progressToken: 3 } },
      },
      { id: "d", method: "roots/list" },
    ];
    const first = await ask(client, clock, 1);
    const { requests, keys, state } = roundOf(first);
    const found = Object.values(requests).map(({ method, params }) => [method, params]);
    assert.deepEqual(found, [
      ["elicitation/create", { ...FORM, message: "[git] Who?", mode: "form" }],
      ["elicitation/create", { mode: "url", url: "https://x.test", message: "[git] Go" }],
      ["sampling/createMessage", { messages: [], maxTokens: 1 }],
      ["roots/list", {}],
    ]);
    const inputResponses = Object.fromEntries(keys.map((key, n) => [key, { n }]));
    client.send(
      modern(2, "tools/call", { ...CALL, inputResponses, requestState: state, extra: 1 }, ABLE),
    );
    const wrong = await client.find(isAnswer(2));
    assert.equal(wrong.error?.code, -32602, "it is another request");
    client.send(modern(3, "tools/call", { ...CALL, inputResponses, requestState: state }, ABLE));
    for (const [n, id] of ["a", "b", "c", "d"].entries()) {
      assert.deepEqual((await git.heard(id)).result, { n });
    }
  });

  it("may ask again and again, each time under another state", async () => {
    const { client, clock, git } = await setAsking();
    let answer = await ask(client, clock, 0);
    const states = new Set<string>();
    for (let round = 1; round < 4; round++) {
      states.add(roundOf(answer).state);
      const next = put(client, round, "tools/call", bring(answer), ABLE);
      await git.peer?.until(
        () => git.peer?.messages.filter(isAnswer(`q${round - 1 || ""}`)).length === 1,
      );
      git.questions = [{ id: `q${round}`, method: "roots/list" }];
      git.pose();
      await turn();
      await turn();
      await clock.run(10);
      answer = await next;
      assert.deepEqual(
        Object.values(roundOf(answer).requests).map(({ method }) => method),
        ["roots/list"],
      );
    }
    assert.equal(states.size, 3);
  });

  it("has asked again what was not answered", async () => {
    const { client, clock, git } = await setAsking();
    git.questions = [
      { id: "a", method: "roots/list" },
      { id: "b", method: "elicitation/create", params: FORM },
    ];
    const first = await ask(client, clock, 1);
    const { keys, state } = roundOf(first);
    const inputResponses = { [keys[0] ?? ""]: { roots: [] }, other: {} };
    const again = { ...CALL, inputResponses, requestState: state };
    const second = await ask(client, clock, 2, again);
    assert.deepEqual((await git.heard("a")).result, { roots: [] });
    assert.deepEqual(roundOf(second).keys, [keys[1]]);
    assert.notEqual(roundOf(second).state, state);
    const { requestState } = bring(second);
    const third = await ask(client, clock, 3, { ...CALL, requestState });
    assert.deepEqual(roundOf(third).keys, [keys[1]], "it brought nothing");
    const last = put(client, 4, "tools/call", bring(third), ABLE);
    await git.heard("b");
    git.answer();
    assert.equal((await last).result?.["resultType"], "complete");
  });

  it("is refused what the client cannot be asked for", async () => {
    const { client, git } = await setAsking({ sampling: {} });
    const answer = put(client, 1, "tools/call", CALL, { sampling: {} });
    assert.equal((await git.heard("q")).error?.code, -32601);
    git.answer();
    assert.equal((await answer).result?.["resultType"], "complete");
  });

  it("and cannot do without that has the client told what it would have to be able to do", async () => {
    const { client, git } = await setAsking({ sampling: {} });
    const answer = put(client, 1, "tools/call", CALL, { sampling: {} });
    await git.heard("q");
    git.answer({ content: [{ type: "text", text: "I need a form." }], isError: true });
    const { error } = await answer;
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], { elicitation: { form: {} } });
    assert.match(error?.message ?? "", /I need a form\.$/);
  });

  it("is refused if it cannot be told for which of several requests it asks", async () => {
    const { client, git } = await setAsking();
    git.questions = [];
    client.send(modern(1, "tools/call", CALL, ABLE));
    client.send(modern(2, "tools/call", CALL, ABLE));
    await git.peer?.until(() => git.calls.length === 2);
    git.questions = [{ id: "q", method: "roots/list" }];
    git.pose();
    const { error } = await git.heard("q");
    assert.match(error?.message ?? "", /one after another/);
    git.answer({ content: [] }, 0);
    await client.find(isAnswer(1));
  });

  it("is refused if it works for nobody", async () => {
    const { git } = await setAsking();
    git.pose();
    assert.match((await git.heard("q")).error?.message ?? "", /no request running/);
  });

  it("that asks for one call while another waits for its client asks for the one that it is at work for", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.questions = [{ id: "r", method: "roots/list" }];
    const second = await ask(client, clock, 2, { name: "git__x", arguments: { b: 2 } });
    assert.deepEqual(
      Object.values(roundOf(second).requests).map(({ method }) => method),
      ["roots/list"],
    );
    const back = put(client, 3, "tools/call", bring(first), ABLE);
    await git.heard("q");
    git.answer({ content: [], first: true }, 0);
    assert.equal((await back).result?.["first"], true);
  });

  it("gives its answer to who comes back, also if it did not wait for that", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.answer({ content: [], early: 1.5 });
    await turn();
    await turn();
    assert.equal(client.messages.filter(isAnswer(1)).length, 1);
    const { result, id } = await put(client, "two", "tools/call", bring(first), ABLE);
    assert.equal(result?.["early"], 1.5);
    assert.equal(id, "two");
    assert.equal(result?.["resultType"], "complete");
  });

  it("reports progress of the request that came back, under its token", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1, { ...CALL, _meta: { progressToken: "one" } });
    const { progressToken } = git.calls[0]?.params?.["_meta"] as { progressToken: unknown };
    const tell = (progress: number): void =>
      git.peer?.send({
        jsonrpc: "2.0",
        method: "notifications/progress",
        params: { progressToken, progress },
      });
    tell(1);
    await turn();
    await turn();
    const _meta = { progressToken: "two" };
    const back = put(client, 2, "tools/call", { ...bring(first), _meta }, ABLE);
    await git.heard("q");
    tell(2);
    git.answer();
    await back;
    const told = client.messages.filter(({ method }) => method === "notifications/progress");
    assert.deepEqual(
      told.map(({ params }) => params),
      [{ progressToken: "two", progress: 2 }],
    );
  });

  it("is told when the client does not come back in time", async () => {
    const { client, clock, git } = await setAsking();
    git.questions = [
      { id: "a", method: "elicitation/create", params: FORM },
      { id: "b", method: "roots/list" },
    ];
    const first = await ask(client, clock, 1);
    await clock.run(INPUT_TIMEOUT);
    assert.deepEqual((await git.heard("a")).result, { action: "cancel" });
    assert.equal((await git.heard("b")).error?.code, -31007);
    assert.equal(git.cancelled()[0]?.params?.["requestId"], git.calls[0]?.id);
    await isRefused(put(client, 2, "tools/call", bring(first), ABLE));
  });

  it("is not disturbed when the client came back at the last moment", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    await clock.run(INPUT_TIMEOUT - 1000);
    const back = put(client, 2, "tools/call", bring(first), ABLE);
    await git.heard("q");
    await clock.run(2000);
    git.answer();
    assert.equal((await back).result?.["resultType"], "complete");
    assert.equal(git.cancelled().length, 0);
  });

  it("that answered without waiting for an answer gets none, whatever else it works for", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.questions = [];
    client.send(modern(2, "tools/call", CALL, ABLE));
    await git.peer?.until(() => git.calls.length === 2);
    git.answer({ content: [] }, 0);
    await turn();
    await turn();
    const { requestState } = bring(first);
    await put(client, 3, "tools/call", { ...CALL, requestState }, ABLE);
    assert.equal((await git.heard("q")).error?.code, -31007);
  });

  it("is told when the client has left", async () => {
    const { client, clock, git } = await setAsking();
    await ask(client, clock, 1);
    await client.link.close();
    assert.equal((await git.heard("q")).error?.code, -31007);
    await git.peer?.until(() => git.cancelled().length === 1);
  });

  it("may take back what it has asked", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    const params = { requestId: "q" };
    git.peer?.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
    await turn();
    await turn();
    const back = put(client, 2, "tools/call", bring(first), ABLE);
    await turn();
    git.answer();
    assert.equal((await back).result?.["resultType"], "complete");
    assert.equal(git.peer?.messages.some(isAnswer("q")), false);
  });

  it("that dies fails the request that comes back", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.die();
    await turn();
    await turn();
    const { error, id } = await put(client, 2, "tools/call", bring(first), ABLE);
    assert.equal(error?.code, -31002);
    assert.equal(id, 2);
  });

  it("may be told that the request which came back is not wanted any more", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    client.send(modern(2, "tools/call", bring(first), ABLE));
    await git.heard("q");
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 2 } });
    await git.peer?.until(() => git.cancelled().length === 1);
    assert.equal(git.cancelled()[0]?.params?.["requestId"], git.calls[0]?.id);
  });
});

describe("a state", () => {
  it("is good for once", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    client.send(modern(2, "tools/call", bring(first), ABLE));
    await git.heard("q");
    await isRefused(put(client, 3, "tools/call", bring(first), ABLE));
  });

  it("is good for its request alone, and stays so if it is tried with another", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    const other = { ...bring(first), arguments: { a: 2 } };
    await isRefused(put(client, 2, "tools/call", other, ABLE));
    await isRefused(put(client, 3, "prompts/get", bring(first), ABLE));
    const odd = await put(client, 4, "tools/call", { ...bring(first), inputResponses: 1 }, ABLE);
    assert.match(odd.error?.message ?? "", /inputResponses/);
    const key = roundOf(first).keys[0] ?? "";
    const bare = { ...bring(first), inputResponses: { [key]: 12345 } };
    assert.equal((await put(client, 5, "tools/call", bare, ABLE)).error?.code, -32602);
    client.send(modern(6, "tools/call", bring(first), ABLE));
    await git.heard("q");
  });

  it("cannot be guessed, and is good for no other client, nor for who can be asked for something else", async () => {
    const { client, clock, connect } = await setAsking();
    const first = await ask(client, clock, 1);
    const stranger = connect();
    await isRefused(put(stranger, 1, "tools/call", bring(first), ABLE));
    await isRefused(put(client, 2, "tools/call", bring(first), {}));
    const { requestState } = bring(first);
    for (const guess of [`${String(requestState)}-`, "toolmux-", "AAAA"]) {
      const params = { ...bring(first), requestState: guess };
      await isRefused(put(client, guess, "tools/call", params, ABLE));
    }
  });

  it("that the hub did not give out is none of a legacy server's", async () => {
    const { client, git } = await setAsking();
    const params = { ...CALL, requestState: "theirs", inputResponses: {} };
    await isRefused(put(client, 1, "tools/call", params, ABLE));
    assert.equal(git.calls.length, 0);
  });

  it("is given to neither of two clients that call at a time at a server that they share", async () => {
    const { client, clock, git, connect } = await setAsking();
    const other = connect();
    await request(other, "tools/list", {}, ABLE);
    const asking = git.onCall;
    git.onCall = () => undefined;
    other.send(modern(2, "tools/call", CALL, ABLE));
    await turn();
    git.onCall = asking;
    const answer = put(client, 1, "tools/call", CALL, ABLE);
    // They share the server, so that it cannot be told whom it asks.
    assert.match((await git.heard("q")).error?.message ?? "", /perClient/);
    git.answer();
    await answer;
    await clock.run(10);
    assert.equal(other.messages.filter(({ id }) => id === 1 || id === 2).length, 0);
  });
});

describe("a state that is no string", () => {
  for (const requestState of [1, null, {}, ["toolmux-"]]) {
    it(`(${JSON.stringify(requestState)}) is refused, and nothing is called`, async () => {
      const { client, git } = await setAsking();
      const { error } = await put(client, 1, "tools/call", { ...CALL, requestState }, ABLE);
      assert.equal(error?.code, -32602);
      assert.equal(git.calls.length, 0);
    });
  }
});

describe("a legacy server that wants a page to be visited first", () => {
  const elicitations = [
    { mode: "url", elicitationId: "e", url: "https://x.test/1", message: "Sign in" },
  ];
  const NEEDED = `"error":{"code":-32042,"message":"first","data":{"elicitations":${JSON.stringify(elicitations)}}}`;

  it("is called again when the client comes back", async () => {
    const git = new Script("x");
    let count = 0;
    git.onCall = ({ params }) =>
      ++count === 1 ? NEEDED : `"result":{"content":[],"echo":${JSON.stringify(params)}}`;
    const { client } = setStage({ git });
    const first = await put(client, 1, "tools/call", CALL, ABLE);
    const { requests } = roundOf(first);
    assert.deepEqual(Object.values(requests), [
      {
        method: "elicitation/create",
        params: { mode: "url", message: "[git] Sign in", url: "https://x.test/1" },
      },
    ]);
    const second = await put(client, 2, "tools/call", bring(first, { action: "accept" }), ABLE);
    const echo = second.result?.["echo"] as Record<string, unknown>;
    assert.deepEqual(Object.keys(echo).toSorted(), ["_meta", "arguments", "name"]);
    await isRefused(put(client, 3, "tools/call", bring(first), ABLE));
  });

  it("gets the client told that it has to be able to do that", async () => {
    const git = new Script("x");
    git.onCall = () => NEEDED;
    const { client } = setStage({ git });
    const { error } = await put(client, 1, "tools/call", CALL, { elicitation: {} });
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], { elicitation: { url: {} } });
  });

  it("can have it said to so many clients only, until they come back or time has run out", async () => {
    const git = new Script("x");
    git.onCall = () => NEEDED;
    const { client, clock } = setStage({ git });
    await request(client, "tools/list", {}, ABLE);
    for (let id = 0; id < 10_000; id++) client.send(modern(id, "tools/call", CALL, ABLE));
    await client.until(() => client.received.length > 10_000);
    const answers = client.messages.filter(({ id }) => typeof id === "number");
    const parked = answers.filter(({ result }) => result !== undefined);
    assert.equal(parked.length, MAX_AWAITING.perClient);
    const others = answers.filter(({ error }) => error !== undefined);
    assert.equal(others.length, 10_000 - MAX_AWAITING.perClient);
    assert.ok(others.every(({ error }) => error?.code === -32603));
    for (let count = 0; count < 2 * MAX_AWAITING.total; count += MAX_AWAITING.perClient) {
      await clock.run(INPUT_TIMEOUT);
      const from = client.received.length;
      for (let i = 0; i < MAX_AWAITING.perClient; i++) {
        client.send(modern(`${count}-${i}`, "tools/call", CALL, ABLE));
      }
      await client.until(() => client.received.length === from + MAX_AWAITING.perClient);
      const last = client.received.at(-1) ?? "";
      assert.match(last, /input_required/, "there is room again");
    }
  });

  it("has no more room than there is for all clients together", () => {
    const lot = new AwaitingLimit();
    for (let i = 0; i < MAX_AWAITING.total; i++) assert.equal(lot.acquire(), true);
    assert.equal(lot.acquire(), false);
    lot.release();
    assert.equal(lot.acquire(), true);
  });
});

describe("a client of both eras on one pipe", () => {
  it("is not asked in one era what belongs to the other", async () => {
    const git = new Asking("x");
    const { client, clock } = setStage({ git });
    await introduce(client, ABLE);
    await request(client, "tools/list", {}, ABLE);
    assert.equal(git.starts, 2, "to the server it is two clients, which share nothing");
    const { keys, requests } = roundOf(await ask(client, clock, 1));
    assert.deepEqual(
      keys.map((key) => requests[key]?.method),
      ["elicitation/create"],
    );
    assert.ok(!client.messages.some(({ method }) => method === "elicitation/create"));
  });
});

describe("a hub behind a hub", () => {
  it("has its questions brought to the client, and the answers brought back", async () => {
    const git = new Asking("x");
    const far = setUp({ git });
    class Behind extends Script {
      override connect(): Transport {
        const [ours, theirs] = memoryTransportPair();
        void far.hub.accept(theirs, new AbortController().signal);
        return ours;
      }
    }
    const { client } = setUp({ far: new Behind() });
    const params = { ...CALL, name: "far__git__x" };
    const first = await put(client, 1, "tools/call", params, ABLE);
    assert.equal(first.result?.["resultType"], "input_required");
    const back = { ...bring(first), name: params.name };
    const second = put(client, 2, "tools/call", back, ABLE);
    assert.deepEqual((await git.heard("q")).result, ACCEPT);
    git.answer({ content: [], far: true });
    assert.equal((await second).result?.["far"], true);
  });
});
