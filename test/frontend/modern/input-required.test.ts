import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  AwaitingLimit,
  INPUT_TIMEOUT,
  MAX_AWAITING,
} from "../../../src/frontend/modern/input-required.ts";
import { MetaKey } from "../../../src/protocol/modern.ts";
import type { Transport } from "../../../src/transport/transport.ts";
import { chunkedTransportPair } from "../../fixtures/memory-transport.ts";
import { turn, type VirtualClock } from "../../fixtures/virtual-clock.ts";
import {
  initialize,
  isResponseTo,
  type Json,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
  setUpHub,
} from "../../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES,
  modernRequest,
  sendModernWithId,
  sendModernRequest,
  inputRoundOf,
} from "../../fixtures/modern-requests.ts";

const ACCEPT = { action: "accept", content: { name: "A" } };
const FORM = { message: "Who?", requestedSchema: { type: "object" } };
const CALL = { name: "git__x", arguments: { a: 1 } };

/** A server that asks, during each call, what it is told to, and answers when it is told to. */
class Asking extends ScriptedServer {
  questions: readonly { id: string; method: string; params?: object }[] = [
    { id: "q", method: "elicitation/create", params: FORM },
  ];
  calls: Json[] = [];
  override onCall = (message: Json): undefined => {
    this.calls.push(message);
    this.pose();
  };

  pose(): void {
    for (const question of this.questions) this.newestPeer?.send({ jsonrpc: "2.0", ...question });
  }

  /** What became of a question. */
  received(id: string): Promise<Json> {
    assert.ok(this.newestPeer);
    return this.newestPeer.find((message) => message.id === id && message.method === undefined);
  }

  answer(result: object = { content: [] }, at = -1): void {
    this.newestPeer?.send({ jsonrpc: "2.0", id: this.calls.at(at)?.id, result });
  }

  cancelled(): Json[] {
    return this.messagesOf("notifications/cancelled");
  }
}

async function setAsking(
  capabilities: object = ALL_MODERN_CAPABILITIES,
): Promise<ReturnType<typeof setUpHubWithClock> & { git: Asking }> {
  const git = new Asking("x");
  const setup = setUpHubWithClock({ git });
  await sendModernRequest(setup.client, "tools/list", {}, capabilities);
  return { ...setup, git };
}

/** Makes a request that is answered with what the server asks. */
async function ask(
  client: Peer,
  clock: VirtualClock,
  id: unknown,
  params: Readonly<Record<string, unknown>> = CALL,
): Promise<Json> {
  const answer = sendModernWithId(client, id, "tools/call", params, ALL_MODERN_CAPABILITIES);
  await turn();
  await turn();
  await clock.advanceAsync(10);
  return answer;
}

/** The answers to all that a client was asked, with the state to come back with. */
function bring(answer: Json, result: object = ACCEPT): Readonly<Record<string, unknown>> {
  const { keys, state } = inputRoundOf(answer);
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
    const { requests, keys, state } = inputRoundOf(first);
    assert.equal(keys.length, 1);
    const [{ method, params } = assert.fail()] = Object.values(requests);
    assert.equal(method, "elicitation/create");
    assert.deepEqual(params, { ...FORM, message: "[git] Who?" });
    assert.match(state, /^toolmux-[\w-]{8}\.[\w-]{43}$/);
    const second = sendModernWithId(client, 2, "tools/call", bring(first), ALL_MODERN_CAPABILITIES);
    assert.deepEqual((await git.received("q")).result, ACCEPT);
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
    const { requests, keys, state } = inputRoundOf(first);
    const found = Object.values(requests).map(({ method, params }) => [method, params]);
    assert.deepEqual(found, [
      ["elicitation/create", { ...FORM, message: "[git] Who?", mode: "form" }],
      ["elicitation/create", { mode: "url", url: "https://x.test", message: "[git] Go" }],
      ["sampling/createMessage", { messages: [], maxTokens: 1 }],
      ["roots/list", {}],
    ]);
    const inputResponses = Object.fromEntries(keys.map((key, n) => [key, { n }]));
    client.send(
      modernRequest(
        2,
        "tools/call",
        { ...CALL, inputResponses, requestState: state, extra: 1 },
        ALL_MODERN_CAPABILITIES,
      ),
    );
    const wrong = await client.find(isResponseTo(2));
    assert.equal(wrong.error?.code, -32602, "it is another request");
    client.send(
      modernRequest(
        3,
        "tools/call",
        { ...CALL, inputResponses, requestState: state },
        ALL_MODERN_CAPABILITIES,
      ),
    );
    for (const [n, id] of ["a", "b", "c", "d"].entries()) {
      assert.deepEqual((await git.received(id)).result, { n });
    }
  });

  it("may ask again and again, each time under another state", async () => {
    const { client, clock, git } = await setAsking();
    let answer = await ask(client, clock, 0);
    const states = new Set<string>();
    for (let round = 1; round < 4; round++) {
      states.add(inputRoundOf(answer).state);
      const next = sendModernWithId(
        client,
        round,
        "tools/call",
        bring(answer),
        ALL_MODERN_CAPABILITIES,
      );
      await git.newestPeer?.until(
        () => git.newestPeer?.messages.filter(isResponseTo(`q${round - 1 || ""}`)).length === 1,
      );
      git.questions = [{ id: `q${round}`, method: "roots/list" }];
      git.pose();
      await turn();
      await turn();
      await clock.advanceAsync(10);
      answer = await next;
      assert.deepEqual(
        Object.values(inputRoundOf(answer).requests).map(({ method }) => method),
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
    const { keys, state } = inputRoundOf(first);
    const inputResponses = { [keys[0] ?? ""]: { roots: [] }, other: {} };
    const again = { ...CALL, inputResponses, requestState: state };
    const second = await ask(client, clock, 2, again);
    assert.deepEqual((await git.received("a")).result, { roots: [] });
    assert.deepEqual(inputRoundOf(second).keys, [keys[1]]);
    assert.notEqual(inputRoundOf(second).state, state);
    const { requestState } = bring(second);
    const third = await ask(client, clock, 3, { ...CALL, requestState });
    assert.deepEqual(inputRoundOf(third).keys, [keys[1]], "it brought nothing");
    const last = sendModernWithId(client, 4, "tools/call", bring(third), ALL_MODERN_CAPABILITIES);
    await git.received("b");
    git.answer();
    assert.equal((await last).result?.["resultType"], "complete");
  });

  it("is refused what the client cannot be asked for", async () => {
    const { client, git } = await setAsking({ sampling: {} });
    const answer = sendModernWithId(client, 1, "tools/call", CALL, { sampling: {} });
    assert.equal((await git.received("q")).error?.code, -32601);
    git.answer();
    assert.equal((await answer).result?.["resultType"], "complete");
  });

  it("and cannot do without that has the client told what it would have to be able to do", async () => {
    const { client, git } = await setAsking({ sampling: {} });
    const answer = sendModernWithId(client, 1, "tools/call", CALL, { sampling: {} });
    await git.received("q");
    git.answer({ content: [{ type: "text", text: "I need a form." }], isError: true });
    const { error } = await answer;
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], { elicitation: { form: {} } });
    assert.match(error?.message ?? "", /I need a form\.$/);
  });

  it("is refused if it cannot be told for which of several requests it asks", async () => {
    const { client, git } = await setAsking();
    git.questions = [];
    client.send(modernRequest(1, "tools/call", CALL, ALL_MODERN_CAPABILITIES));
    client.send(modernRequest(2, "tools/call", CALL, ALL_MODERN_CAPABILITIES));
    await git.newestPeer?.until(() => git.calls.length === 2);
    git.questions = [{ id: "q", method: "roots/list" }];
    git.pose();
    const { error } = await git.received("q");
    assert.match(error?.message ?? "", /one after another/);
    git.answer({ content: [] }, 0);
    await client.find(isResponseTo(1));
  });

  it("is refused if it works for nobody", async () => {
    const { git } = await setAsking();
    git.pose();
    assert.match((await git.received("q")).error?.message ?? "", /no request running/);
  });

  it("that asks for one call while another waits for its client asks for the one that it is at work for", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.questions = [{ id: "r", method: "roots/list" }];
    const second = await ask(client, clock, 2, { name: "git__x", arguments: { b: 2 } });
    assert.deepEqual(
      Object.values(inputRoundOf(second).requests).map(({ method }) => method),
      ["roots/list"],
    );
    const back = sendModernWithId(client, 3, "tools/call", bring(first), ALL_MODERN_CAPABILITIES);
    await git.received("q");
    git.answer({ content: [], first: true }, 0);
    assert.equal((await back).result?.["first"], true);
  });

  it("gives its answer to who comes back, also if it did not wait for that", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.answer({ content: [], early: 1.5 });
    await turn();
    await turn();
    assert.equal(client.messages.filter(isResponseTo(1)).length, 1);
    const { result, id } = await sendModernWithId(
      client,
      "two",
      "tools/call",
      bring(first),
      ALL_MODERN_CAPABILITIES,
    );
    assert.equal(result?.["early"], 1.5);
    assert.equal(id, "two");
    assert.equal(result?.["resultType"], "complete");
  });

  it("reports progress of the request that came back, under its token", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1, { ...CALL, _meta: { progressToken: "one" } });
    const { progressToken } = git.calls[0]?.params?.["_meta"] as { progressToken: unknown };
    const tell = (progress: number): void =>
      git.newestPeer?.send({
        jsonrpc: "2.0",
        method: "notifications/progress",
        params: { progressToken, progress },
      });
    tell(1);
    await turn();
    await turn();
    const _meta = { progressToken: "two" };
    const back = sendModernWithId(
      client,
      2,
      "tools/call",
      { ...bring(first), _meta },
      ALL_MODERN_CAPABILITIES,
    );
    await git.received("q");
    tell(2);
    git.answer();
    await back;
    const reported = client.messages.filter(({ method }) => method === "notifications/progress");
    assert.deepEqual(
      reported.map(({ params }) => params),
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
    await clock.advanceAsync(INPUT_TIMEOUT);
    assert.deepEqual((await git.received("a")).result, { action: "cancel" });
    assert.equal((await git.received("b")).error?.code, -31007);
    assert.equal(git.cancelled()[0]?.params?.["requestId"], git.calls[0]?.id);
    await isRefused(
      sendModernWithId(client, 2, "tools/call", bring(first), ALL_MODERN_CAPABILITIES),
    );
  });

  it("is not disturbed when the client came back at the last moment", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    await clock.advanceAsync(INPUT_TIMEOUT - 1000);
    const back = sendModernWithId(client, 2, "tools/call", bring(first), ALL_MODERN_CAPABILITIES);
    await git.received("q");
    await clock.advanceAsync(2000);
    git.answer();
    assert.equal((await back).result?.["resultType"], "complete");
    assert.equal(git.cancelled().length, 0);
  });

  it("that answered without waiting for an answer gets none, whatever else it works for", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.questions = [];
    client.send(modernRequest(2, "tools/call", CALL, ALL_MODERN_CAPABILITIES));
    await git.newestPeer?.until(() => git.calls.length === 2);
    git.answer({ content: [] }, 0);
    await turn();
    await turn();
    const { requestState } = bring(first);
    await sendModernWithId(
      client,
      3,
      "tools/call",
      { ...CALL, requestState },
      ALL_MODERN_CAPABILITIES,
    );
    assert.equal((await git.received("q")).error?.code, -31007);
  });

  it("is told when the client has left", async () => {
    const { client, clock, git } = await setAsking();
    await ask(client, clock, 1);
    await client.transport.close();
    assert.equal((await git.received("q")).error?.code, -31007);
    await git.newestPeer?.until(() => git.cancelled().length === 1);
  });

  it("may take back what it has asked", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    const params = { requestId: "q" };
    git.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
    await turn();
    await turn();
    const back = sendModernWithId(client, 2, "tools/call", bring(first), ALL_MODERN_CAPABILITIES);
    await turn();
    git.answer();
    assert.equal((await back).result?.["resultType"], "complete");
    assert.equal(git.newestPeer?.messages.some(isResponseTo("q")), false);
  });

  it("that dies fails the request that comes back", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    git.disconnect();
    await turn();
    await turn();
    const { result, id } = await sendModernWithId(
      client,
      2,
      "tools/call",
      bring(first),
      ALL_MODERN_CAPABILITIES,
    );
    assert.equal(result?.["isError"], true);
    assert.equal(id, 2);
  });

  it("may be told that the request which came back is not wanted any more", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    client.send(modernRequest(2, "tools/call", bring(first), ALL_MODERN_CAPABILITIES));
    await git.received("q");
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 2 } });
    await git.newestPeer?.until(() => git.cancelled().length === 1);
    assert.equal(git.cancelled()[0]?.params?.["requestId"], git.calls[0]?.id);
  });
});

describe("a state", () => {
  it("is good for once", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    client.send(modernRequest(2, "tools/call", bring(first), ALL_MODERN_CAPABILITIES));
    await git.received("q");
    await isRefused(
      sendModernWithId(client, 3, "tools/call", bring(first), ALL_MODERN_CAPABILITIES),
    );
  });

  it("is good for its request alone, and stays so if it is tried with another", async () => {
    const { client, clock, git } = await setAsking();
    const first = await ask(client, clock, 1);
    const other = { ...bring(first), arguments: { a: 2 } };
    await isRefused(sendModernWithId(client, 2, "tools/call", other, ALL_MODERN_CAPABILITIES));
    await isRefused(
      sendModernWithId(client, 3, "prompts/get", bring(first), ALL_MODERN_CAPABILITIES),
    );
    const odd = await sendModernWithId(
      client,
      4,
      "tools/call",
      { ...bring(first), inputResponses: 1 },
      ALL_MODERN_CAPABILITIES,
    );
    assert.match(odd.error?.message ?? "", /inputResponses/);
    const key = inputRoundOf(first).keys[0] ?? "";
    const bare = { ...bring(first), inputResponses: { [key]: 12345 } };
    assert.equal(
      (await sendModernWithId(client, 5, "tools/call", bare, ALL_MODERN_CAPABILITIES)).error?.code,
      -32602,
    );
    client.send(modernRequest(6, "tools/call", bring(first), ALL_MODERN_CAPABILITIES));
    await git.received("q");
  });

  it("cannot be guessed, and is good for no other client, nor for who can be asked for something else", async () => {
    const { client, clock, connect } = await setAsking();
    const first = await ask(client, clock, 1);
    const stranger = connect();
    await isRefused(
      sendModernWithId(stranger, 1, "tools/call", bring(first), ALL_MODERN_CAPABILITIES),
    );
    await isRefused(sendModernWithId(client, 2, "tools/call", bring(first), {}));
    const { requestState } = bring(first);
    for (const guess of [`${String(requestState)}-`, "toolmux-", "AAAA"]) {
      const params = { ...bring(first), requestState: guess };
      await isRefused(
        sendModernWithId(client, guess, "tools/call", params, ALL_MODERN_CAPABILITIES),
      );
    }
  });

  it("that the hub did not give out is none of a legacy server's", async () => {
    const { client, git } = await setAsking();
    const params = { ...CALL, requestState: "theirs", inputResponses: {} };
    await isRefused(sendModernWithId(client, 1, "tools/call", params, ALL_MODERN_CAPABILITIES));
    assert.equal(git.calls.length, 0);
  });

  it("is given to neither of two clients that call at a time at a server that they share", async () => {
    const { client, clock, git, connect } = await setAsking();
    const other = connect();
    await sendModernRequest(other, "tools/list", {}, ALL_MODERN_CAPABILITIES);
    const asking = git.onCall;
    git.onCall = () => undefined;
    other.send(modernRequest(2, "tools/call", CALL, ALL_MODERN_CAPABILITIES));
    await turn();
    git.onCall = asking;
    const answer = sendModernWithId(client, 1, "tools/call", CALL, ALL_MODERN_CAPABILITIES);
    // They share the server, so that it cannot be told whom it asks.
    assert.match((await git.received("q")).error?.message ?? "", /perClient/);
    git.answer();
    await answer;
    await clock.advanceAsync(10);
    assert.equal(other.messages.filter(({ id }) => id === 1 || id === 2).length, 0);
  });
});

describe("a state that is no string", () => {
  for (const requestState of [1, null, {}, ["toolmux-"]]) {
    it(`(${JSON.stringify(requestState)}) is refused, and nothing is called`, async () => {
      const { client, git } = await setAsking();
      const { error } = await sendModernWithId(
        client,
        1,
        "tools/call",
        { ...CALL, requestState },
        ALL_MODERN_CAPABILITIES,
      );
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
    const git = new ScriptedServer("x");
    let count = 0;
    git.onCall = ({ params }) =>
      ++count === 1 ? NEEDED : `"result":{"content":[],"echo":${JSON.stringify(params)}}`;
    const { client } = setUpHubWithClock({ git });
    const first = await sendModernWithId(client, 1, "tools/call", CALL, ALL_MODERN_CAPABILITIES);
    const { requests } = inputRoundOf(first);
    assert.deepEqual(Object.values(requests), [
      {
        method: "elicitation/create",
        params: { mode: "url", message: "[git] Sign in", url: "https://x.test/1" },
      },
    ]);
    const second = await sendModernWithId(
      client,
      2,
      "tools/call",
      bring(first, { action: "accept" }),
      ALL_MODERN_CAPABILITIES,
    );
    const echo = second.result?.["echo"] as Record<string, unknown>;
    assert.deepEqual(Object.keys(echo).toSorted(), ["_meta", "arguments", "name"]);
    await isRefused(
      sendModernWithId(client, 3, "tools/call", bring(first), ALL_MODERN_CAPABILITIES),
    );
  });

  it("gets the client told that it has to be able to do that", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => NEEDED;
    const { client } = setUpHubWithClock({ git });
    const { error } = await sendModernWithId(client, 1, "tools/call", CALL, { elicitation: {} });
    assert.equal(error?.code, -32021);
    assert.deepEqual(error?.data?.["requiredCapabilities"], { elicitation: { url: {} } });
  });

  it("can have it said to so many clients only, until they come back or time has run out", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => NEEDED;
    const { client, clock } = setUpHubWithClock({ git });
    await sendModernRequest(client, "tools/list", {}, ALL_MODERN_CAPABILITIES);
    for (let id = 0; id < 10_000; id++)
      client.send(modernRequest(id, "tools/call", CALL, ALL_MODERN_CAPABILITIES));
    await client.until(() => client.received.length > 10_000);
    const answers = client.messages.filter(({ id }) => typeof id === "number");
    const parked = answers.filter(({ result }) => result !== undefined);
    assert.equal(parked.length, MAX_AWAITING.perClient);
    const others = answers.filter(({ error }) => error !== undefined);
    assert.equal(others.length, 10_000 - MAX_AWAITING.perClient);
    assert.ok(others.every(({ error }) => error?.code === -32603));
    for (let count = 0; count < 2 * MAX_AWAITING.total; count += MAX_AWAITING.perClient) {
      await clock.advanceAsync(INPUT_TIMEOUT);
      const from = client.received.length;
      for (let i = 0; i < MAX_AWAITING.perClient; i++) {
        client.send(modernRequest(`${count}-${i}`, "tools/call", CALL, ALL_MODERN_CAPABILITIES));
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
    const { client, clock } = setUpHubWithClock({ git });
    await initialize(client, ALL_MODERN_CAPABILITIES);
    await sendModernRequest(client, "tools/list", {}, ALL_MODERN_CAPABILITIES);
    assert.equal(git.transportCount, 2, "to the server it is two clients, which share nothing");
    const { keys, requests } = inputRoundOf(await ask(client, clock, 1));
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
    const far = setUpHub({ git });
    class Behind extends ScriptedServer {
      override connect(): Transport {
        const [ours, theirs] = chunkedTransportPair();
        void far.hub.accept(theirs, new AbortController().signal);
        return ours;
      }
    }
    const { client } = setUpHub({ far: new Behind() });
    const params = { ...CALL, name: "far__git__x" };
    const first = await sendModernWithId(client, 1, "tools/call", params, ALL_MODERN_CAPABILITIES);
    assert.equal(first.result?.["resultType"], "input_required");
    const back = { ...bring(first), name: params.name };
    const second = sendModernWithId(client, 2, "tools/call", back, ALL_MODERN_CAPABILITIES);
    assert.deepEqual((await git.received("q")).result, ACCEPT);
    git.answer({ content: [], far: true });
    assert.equal((await second).result?.["far"], true);
  });
});
