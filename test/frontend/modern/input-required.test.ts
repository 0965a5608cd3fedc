import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { VERSION } from "../../../src/base/version.ts";
import {
  AwaitingLimit,
  INPUT_TIMEOUT,
  MAX_AWAITING,
} from "../../../src/frontend/modern/input-required.ts";
import { MetaKey } from "../../../src/protocol/modern.ts";
import { chunkedTransportPair } from "../../fixtures/memory-transport.ts";
import { turn } from "../../fixtures/virtual-clock.ts";
import {
  isResponseTo,
  type Json,
  type RequestHandler,
  ScriptedServer,
  setUpHubWithClock,
  setUpHub,
} from "../../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES,
  modernRequest,
  sendModernWithId,
  sendModernRequest,
  answersTo,
  inputRoundOf,
} from "../../fixtures/modern-requests.ts";
import { cancel, notify } from "../../fixtures/peer-messages.ts";
import { messagesOfMethod } from "../../fixtures/server-requests.ts";

const ELICIT = "elicitation/create";
const CANCELLED = "notifications/cancelled";
const ACCEPT = { action: "accept", content: { name: "A" } };
const FORM = { message: "Who?", requestedSchema: { type: "object" } };
type Params = Readonly<Record<string, unknown>>;

const CALL = { name: "git__x", arguments: { a: 1 } };

/** A server that asks, during each call, what it is told to, and answers when it is told to. */
class Asking extends ScriptedServer {
  questions: readonly { id: string; method: string; params?: object }[] = [
    { id: "q", method: ELICIT, params: FORM },
  ];
  calls: Json[] = [];
  override onCall: RequestHandler = (message) => {
    this.calls.push(message);
    this.pose();
    return undefined;
  };

  pose(): void {
    for (const question of this.questions) this.newestPeer?.send({ jsonrpc: "2.0", ...question });
  }

  /** What became of a question. */
  received(id: string): Promise<Json> {
    assert.ok(this.newestPeer);
    return this.newestPeer.find(isResponseTo(id));
  }

  answer(result: object = { content: [] }, at = -1): void {
    this.newestPeer?.send({ jsonrpc: "2.0", id: this.calls.at(at)?.id, result });
  }

  cancelled(): Json[] {
    return this.messagesOf(CANCELLED);
  }
}

/** A hub with such a server, which a client has listed; `call`: calls its tool, `post`: without waiting for the answer. */
async function setAsking(capabilities: object = ALL_MODERN_CAPABILITIES, git = new Asking("x")) {
  const setup = setUpHubWithClock({ git });
  const { client, clock } = setup;
  await sendModernRequest(client, "tools/list", {}, capabilities);
  const call = (id: unknown, params: Params = CALL): Promise<Json> =>
    sendModernWithId(client, id, "tools/call", params, capabilities);
  const post = (id: unknown, params: Params = CALL): void =>
    client.send(modernRequest(id, "tools/call", params, capabilities));
  const turns = async (): Promise<void> => {
    for (let i = 0; i < 2; i++) await turn();
  };
  /** A call that is answered with what the server asks. */
  const ask = async (id: unknown, params?: Params): Promise<Json> => {
    const answer = call(id, params);
    await turns();
    await clock.advanceAsync(10);
    return answer;
  };
  return { ...setup, git, call, post, ask, turns };
}

/** The same with a first call, 1, that was answered with what the server asks. */
async function setAsked() {
  const setup = await setAsking();
  return { ...setup, first: await setup.ask(1) };
}

const methodsOf = (answer: Json): string[] =>
  Object.values(inputRoundOf(answer).requests).map(({ method }) => method);

/** The answers to all that a client was asked, with the state to come back with. */
const bring = (asked: Json, result: object = ACCEPT): Params => ({
  ...CALL,
  ...answersTo(asked, () => result),
});

async function isRefused(answer: Promise<Json>): Promise<void> {
  const { error } = await answer;
  assert.equal(error?.code, -32602);
  assert.equal(error?.message, "Invalid or expired requestState");
}

describe("a legacy server that asks a modern client", () => {
  it("has its question answered by another request, and its answer given to that", async () => {
    const { client, git, first, call } = await setAsked();
    assert.equal(first.result?.["resultType"], "input_required");
    assert.deepEqual(first.result?.["_meta"], {
      [MetaKey.server]: { name: "toolmux", version: VERSION },
    });
    const { requests, keys, state } = inputRoundOf(first);
    assert.equal(keys.length, 1);
    const [{ method, params } = assert.fail()] = Object.values(requests);
    assert.equal(method, ELICIT);
    assert.deepEqual(params, { ...FORM, message: "[git] Who?" });
    assert.match(state, /^toolmux-[\w-]{8}\.[\w-]{43}$/);
    const second = call(2, bring(first));
    assert.deepEqual((await git.received("q")).result, ACCEPT);
    git.answer({ content: [], n: 1 });
    const { result } = await second;
    assert.deepEqual([result?.["n"], result?.["resultType"]], [1, "complete"]);
    assert.equal(git.calls.length, 1, "it is the same call");
    assert.equal(client.messages.filter(isResponseTo(1)).length, 1);
  });

  it("asks several things at once, which come together, without what only requests have", async () => {
    const { git, ask, post, call } = await setAsking();
    const page = { mode: "url", url: "https://x.test" };
    const sample = { messages: [], maxTokens: 1 };
    const _meta = { progressToken: 3 };
    git.questions = [
      { id: "a", method: ELICIT, params: { ...FORM, mode: "form", task: {} } },
      { id: "b", method: ELICIT, params: { ...page, message: "Go", elicitationId: "e" } },
      { id: "c", method: "sampling/createMessage", params: { ...sample, _meta } },
      { id: "d", method: "roots/list" },
    ];
    const first = await ask(1);
    const { requests, keys, state } = inputRoundOf(first);
    const found = Object.values(requests).map(({ method, params }) => [method, params]);
    assert.deepEqual(found, [
      [ELICIT, { ...FORM, message: "[git] Who?", mode: "form" }],
      [ELICIT, { ...page, message: "[git] Go" }],
      ["sampling/createMessage", sample],
      ["roots/list", {}],
    ]);
    const inputResponses = Object.fromEntries(keys.map((key, n) => [key, { n }]));
    const wrong = await call(2, { ...CALL, inputResponses, requestState: state, extra: 1 });
    assert.equal(wrong.error?.code, -32602, "it is another request");
    post(3, { ...CALL, inputResponses, requestState: state });
    for (const [n, id] of ["a", "b", "c", "d"].entries()) {
      assert.deepEqual((await git.received(id)).result, { n });
    }
  });

  it("may ask again and again, each time under another state", async () => {
    const { clock, git, ask, call, turns } = await setAsking();
    let answer = await ask(0);
    const states = new Set<string>();
    for (let round = 1; round < 4; round++) {
      states.add(inputRoundOf(answer).state);
      const next = call(round, bring(answer));
      await git.received(`q${round - 1 || ""}`);
      git.questions = [{ id: `q${round}`, method: "roots/list" }];
      git.pose();
      await turns();
      await clock.advanceAsync(10);
      answer = await next;
      assert.deepEqual(methodsOf(answer), ["roots/list"]);
    }
    assert.equal(states.size, 3);
  });

  it("has asked again what was not answered", async () => {
    const { git, ask, call } = await setAsking();
    git.questions = [
      { id: "a", method: "roots/list" },
      { id: "b", method: ELICIT, params: FORM },
    ];
    const first = await ask(1);
    const { keys, state } = inputRoundOf(first);
    const inputResponses = { [keys[0] ?? ""]: { roots: [] }, other: {} };
    const again = { ...CALL, inputResponses, requestState: state };
    const second = await ask(2, again);
    assert.deepEqual((await git.received("a")).result, { roots: [] });
    assert.deepEqual(inputRoundOf(second).keys, [keys[1]]);
    assert.notEqual(inputRoundOf(second).state, state);
    const { requestState } = bring(second);
    const third = await ask(3, { ...CALL, requestState });
    assert.deepEqual(inputRoundOf(third).keys, [keys[1]], "it brought nothing");
    const last = call(4, bring(third));
    await git.received("b");
    git.answer();
    assert.equal((await last).result?.["resultType"], "complete");
  });

  it("is refused what the client cannot be asked for", async () => {
    const { git, call } = await setAsking({ sampling: {} });
    const answer = call(1);
    assert.equal((await git.received("q")).error?.code, -32601);
    git.answer();
    assert.equal((await answer).result?.["resultType"], "complete");
  });

  it("and cannot do without that has the client told what it would have to be able to do", async () => {
    const { git, call } = await setAsking({ sampling: {} });
    const answer = call(1);
    await git.received("q");
    git.answer({ content: [{ type: "text", text: "I need a form." }], isError: true });
    const { error } = await answer;
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], { elicitation: { form: {} } });
    assert.match(error?.message ?? "", /I need a form\.$/);
  });

  it("is refused if it cannot be told for which of several requests it asks, or works for none", async () => {
    const { git, post } = await setAsking();
    git.pose();
    assert.match((await git.received("q")).error?.message ?? "", /no request/);
    git.questions = [];
    for (const id of [1, 2]) post(id);
    await git.newestPeer?.until(() => git.calls.length === 2);
    git.questions = [{ id: "r", method: "roots/list" }];
    git.pose();
    assert.match((await git.received("r")).error?.message ?? "", /one after another/);
  });

  it("that asks for one call while another waits for its client asks for the one that it is at work for", async () => {
    const { git, first, ask, call } = await setAsked();
    git.questions = [{ id: "r", method: "roots/list" }];
    const second = await ask(2, { name: "git__x", arguments: { b: 2 } });
    assert.deepEqual(methodsOf(second), ["roots/list"]);
    const back = call(3, bring(first));
    await git.received("q");
    git.answer({ content: [], first: true }, 0);
    assert.equal((await back).result?.["first"], true);
  });

  it("gives its answer to who comes back, also if it did not wait for that", async () => {
    const { client, git, first, turns, call } = await setAsked();
    git.answer({ content: [], early: 1.5 });
    await turns();
    assert.equal(client.messages.filter(isResponseTo(1)).length, 1);
    const { result, id } = await call("two", bring(first));
    assert.deepEqual([id, result?.["early"], result?.["resultType"]], ["two", 1.5, "complete"]);
  });

  it("reports progress of the request that came back, under its token", async () => {
    const { client, git, ask, turns, call } = await setAsking();
    const first = await ask(1, { ...CALL, _meta: { progressToken: "one" } });
    const { progressToken } = git.calls[0]?.params?.["_meta"] as { progressToken: unknown };
    const tell = (progress: number): void =>
      notify(git.newestPeer, "notifications/progress", { progressToken, progress });
    tell(1);
    await turns();
    const _meta = { progressToken: "two" };
    const back = call(2, { ...bring(first), _meta });
    await git.received("q");
    tell(2);
    git.answer();
    await back;
    const reported = messagesOfMethod(client, "notifications/progress").map(({ params }) => params);
    assert.deepEqual(reported, [{ progressToken: "two", progress: 2 }]);
  });

  it("is told when the client does not come back in time", async () => {
    const { clock, git, ask, call } = await setAsking();
    git.questions = [
      { id: "a", method: ELICIT, params: FORM },
      { id: "b", method: "roots/list" },
    ];
    const first = await ask(1);
    await clock.advanceAsync(INPUT_TIMEOUT);
    assert.deepEqual((await git.received("a")).result, { action: "cancel" });
    assert.equal((await git.received("b")).error?.code, -31007);
    assert.equal(git.cancelled()[0]?.params?.["requestId"], git.calls[0]?.id);
    await isRefused(call(2, bring(first)));
  });

  it("is not disturbed when the client came back at the last moment", async () => {
    const { clock, git, first, call } = await setAsked();
    await clock.advanceAsync(INPUT_TIMEOUT - 1000);
    const back = call(2, bring(first));
    await git.received("q");
    await clock.advanceAsync(2000);
    git.answer();
    assert.equal((await back).result?.["resultType"], "complete");
    assert.equal(git.cancelled().length, 0);
  });

  it("that answered without waiting for an answer gets none, whatever else it works for", async () => {
    const { git, first, post, turns, call } = await setAsked();
    git.questions = [];
    post(2, CALL);
    await git.newestPeer?.until(() => git.calls.length === 2);
    git.answer({ content: [] }, 0);
    await turns();
    const { requestState } = bring(first);
    await call(3, { ...CALL, requestState });
    assert.equal((await git.received("q")).error?.code, -31007);
  });

  it("is told when the client has left", async () => {
    const { client, git } = await setAsked();
    await client.transport.close();
    assert.equal((await git.received("q")).error?.code, -31007);
    await git.newestPeer?.until(() => git.cancelled().length === 1);
  });

  it("may take back what it has asked", async () => {
    const { git, first, turns, call } = await setAsked();
    notify(git.newestPeer, CANCELLED, { requestId: "q" });
    await turns();
    const back = call(2, bring(first));
    await turn();
    git.answer();
    assert.equal((await back).result?.["resultType"], "complete");
    assert.equal(git.newestPeer?.messages.some(isResponseTo("q")), false);
  });

  it("that dies fails the request that comes back", async () => {
    const { git, first, turns, call } = await setAsked();
    git.disconnect();
    await turns();
    const { result, id } = await call(2, bring(first));
    assert.deepEqual([id, result?.["isError"]], [2, true]);
    assert.match(JSON.stringify(result), /"toolmux\/error":"connectionLost"/);
  });

  it("may be told that the request which came back is not wanted any more", async () => {
    const { client, git, first, post } = await setAsked();
    post(2, bring(first));
    await git.received("q");
    cancel(client, 2);
    await git.newestPeer?.until(() => git.cancelled().length === 1);
    assert.equal(git.cancelled()[0]?.params?.["requestId"], git.calls[0]?.id);
  });
});

describe("a state", () => {
  it("is good once, for its request alone, and stays so if it is tried with another", async () => {
    const { client, git, first, call, post } = await setAsked();
    const brought = bring(first);
    await isRefused(call(2, { ...brought, arguments: { a: 2 } }));
    await isRefused(call(3, { ...brought, name: "git__y" }));
    const other = sendModernWithId(client, 3, "prompts/get", brought, ALL_MODERN_CAPABILITIES);
    await isRefused(other);
    const odd = await call(4, { ...brought, inputResponses: 1 });
    assert.match(odd.error?.message ?? "", /inputResponses/);
    const bare = { [inputRoundOf(first).keys[0] ?? ""]: 12345 };
    assert.equal((await call(5, { ...brought, inputResponses: bare })).error?.code, -32602);
    post(6, brought);
    await git.received("q");
    await isRefused(call(7, brought));
  });

  it("cannot be guessed, and is good for no other client, nor for who can be asked for something else", async () => {
    const { client, connect, first, call } = await setAsked();
    const brought = bring(first);
    for (const [who, capabilities] of [
      [connect(), ALL_MODERN_CAPABILITIES],
      [client, {}],
    ] as const)
      await isRefused(sendModernWithId(who, 2, "tools/call", brought, capabilities));
    const longer = `${String(brought["requestState"])}-`;
    for (const guess of [longer, longer.slice(0, -2), "toolmux-", "AAAA", "x".repeat(2 ** 20)])
      await isRefused(call(guess, { ...brought, requestState: guess }));
  });

  it("that the hub did not give out is none of a legacy server's, and one that is no string none at all", async () => {
    const { git, call } = await setAsking();
    await isRefused(call(0, { ...CALL, requestState: "theirs", inputResponses: {} }));
    for (const requestState of [1, null, {}, ["toolmux-"]])
      assert.equal((await call(1, { ...CALL, requestState })).error?.code, -32602);
    assert.equal(git.calls.length, 0);
  });

  it("is given to neither of two clients that call at a time at a server that they share", async () => {
    const { clock, git, connect, call } = await setAsking();
    const other = connect();
    await sendModernRequest(other, "tools/list", {}, ALL_MODERN_CAPABILITIES);
    const asking = git.onCall;
    git.onCall = () => undefined;
    other.send(modernRequest(2, "tools/call", CALL, ALL_MODERN_CAPABILITIES));
    await turn();
    git.onCall = asking;
    const answer = call(1);
    // They share the server, so that it cannot be told whom it asks.
    assert.match((await git.received("q")).error?.message ?? "", /perClient/);
    git.answer();
    await answer;
    await clock.advanceAsync(10);
    assert.deepEqual(
      other.messages.filter(({ id }) => id === 1 || id === 2),
      [],
    );
  });
});

describe("a legacy server that wants a page to be visited first", () => {
  const page = { mode: "url", url: "https://x.test/1", message: "Sign in" };
  const data = JSON.stringify({ elicitations: [{ ...page, elicitationId: "e" }] });
  const NEEDED = `"error":{"code":-32042,"message":"first","data":${data}}`;
  const needing = (): Asking => Object.assign(new Asking("x"), { onCall: () => NEEDED });

  it("is called again when the client comes back", async () => {
    const git = needing();
    const { call } = await setAsking(undefined, git);
    const first = await call(1);
    const asked = { method: ELICIT, params: { ...page, message: "[git] Sign in" } };
    assert.deepEqual(Object.values(inputRoundOf(first).requests), [asked]);
    git.onCall = ({ params }) => `"result":{"content":[],"echo":${JSON.stringify(params)}}`;
    const second = await call(2, bring(first, { action: "accept" }));
    const echo = second.result?.["echo"] as Record<string, unknown>;
    assert.deepEqual(Object.keys(echo).toSorted(), ["_meta", "arguments", "name"]);
    await isRefused(call(3, bring(first)));
  });

  it("gets the client told that it has to be able to do that", async () => {
    const { call } = await setAsking({ elicitation: {} }, needing());
    const { error } = await call(1);
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], { elicitation: { url: {} } });
  });

  it("can have it said to so many clients only, until they come back or time has run out", async () => {
    const { client, clock, post } = await setAsking(undefined, needing());
    const count = MAX_AWAITING.perClient + 10;
    for (let id = 0; id < count; id++) post(id, CALL);
    await client.until(() => client.received.length > count);
    const answers = client.messages.filter(({ id }) => typeof id === "number");
    const parked = answers.filter(({ result }) => result !== undefined);
    assert.equal(parked.length, MAX_AWAITING.perClient);
    const codes = answers.flatMap(({ error }) => error?.code ?? []);
    assert.deepEqual(codes, Array(10).fill(-32603));
    for (let round = 0; round <= MAX_AWAITING.total / MAX_AWAITING.perClient; round++) {
      await clock.advanceAsync(INPUT_TIMEOUT);
      const from = client.received.length;
      for (let i = 0; i < MAX_AWAITING.perClient; i++) post(`${round}-${i}`);
      await client.until(() => client.received.length === from + MAX_AWAITING.perClient);
      assert.match(client.received.at(-1) ?? "", /input_required/, "there is room again");
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

describe("a hub behind a hub", () => {
  it("has its questions brought to the client, and the answers brought back", async () => {
    const git = new Asking("x");
    const far = setUpHub({ git });
    const behind = new ScriptedServer();
    behind.connect = () => {
      const [ours, theirs] = chunkedTransportPair();
      void far.hub.accept(theirs, new AbortController().signal);
      return ours;
    };
    const { client } = setUpHub({ far: behind });
    const call = (id: number, more: object = CALL): Promise<Json> => {
      const params = { ...more, name: "far__git__x" };
      return sendModernWithId(client, id, "tools/call", params, ALL_MODERN_CAPABILITIES);
    };
    const first = await call(1);
    assert.equal(first.result?.["resultType"], "input_required");
    const second = call(2, bring(first));
    assert.deepEqual((await git.received("q")).result, ACCEPT);
    git.answer({ content: [], far: true });
    assert.equal((await second).result?.["far"], true);
  });
});
