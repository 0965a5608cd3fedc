import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import { type DetectedEra, memorySnapshots } from "../../src/snapshot/snapshots.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  type Peer,
  type RequestHandler,
  ScriptedServer,
  type Servers,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES as ABLE_NOW,
  answersTo,
  listModernToolNames,
  modernRequest,
  sendModernRequest,
} from "../fixtures/modern-requests.ts";
import {
  DISCOVER_RESULT,
  FORM_ELICITATION,
  ModernScriptedServer,
  URL_ELICITATION,
  ROOTS_REQUEST,
  SAMPLING_REQUEST,
  METHOD_NOT_FOUND,
  inputRequiredResult,
} from "../fixtures/modern-server.ts";
import { cancel, isOf, notify, post, respond, respondError } from "../fixtures/peer-messages.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { answerAll, messagesOfMethod, waitForRequest } from "../fixtures/server-requests.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const AUTO: Servers = { s: { era: "auto", reconnect: { policy: "none" } as never } };
const ABLE = { roots: { listChanged: true }, sampling: {}, elicitation: { form: {}, url: {} } };
const DISCOVER = "server/discover";
const CALL = "tools/call";
const ELICIT = "elicitation/create";
const LOG = "notifications/message";
const CANCELLED = "notifications/cancelled";
const GREET = new ScriptedServer().onInitialize;
const COMPLETE: RequestHandler = new ModernScriptedServer().onCall;
const SILENCE = (): undefined => undefined;
const REFUSES_VERSION =
  '"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"?"}}';
const DECLINES = { [ELICIT]: { result: { action: "decline" } } };

const discovers = (more: object = {}): string =>
  `"result":${JSON.stringify({ ...DISCOVER_RESULT, ...more })}`;

async function begin<S extends ScriptedServer>(s: S, capabilities: object = {}, servers = AUTO) {
  const setup = setUpHubWithClock({ s }, { servers });
  await initialize(setup.client, capabilities);
  return { ...setup, s };
}

/** The same for a modern client, which has asked what there is. */
async function meet<S extends ScriptedServer>(s: S, capabilities: object = {}, servers = AUTO) {
  const setup = setUpHubWithClock({ s }, { servers });
  setup.client.send(modernRequest("met", "tools/list", {}, capabilities));
  await turn();
  const status = () => connectionStatusOf(setup.hub, "s");
  const reconnect = async (): Promise<void> => {
    setup.hub.reconnect("s");
    await turn();
    await turn();
  };
  return { ...setup, s, status, reconnect };
}

/** A legacy server with these handlers. */
const legacy = (handlers: Readonly<Record<string, RequestHandler>> = {}): ScriptedServer =>
  Object.assign(new ScriptedServer("x"), { handlers });

/** A modern server with these handlers instead of its own. */
function modern(handlers: Readonly<Record<string, RequestHandler>> = {}): ModernScriptedServer {
  const s = new ModernScriptedServer("x");
  Object.assign(s.handlers, handlers);
  return s;
}

/** A modern server whose calls are answered with these, and then with a complete result. */
function answering(...answers: string[]): ModernScriptedServer {
  const s = modern();
  s.onCall = (message, text) => answers[s.messagesOf(CALL).length - 1] ?? COMPLETE(message, text);
  return s;
}

/** Ends a server's connection instead of answering. */
function die(s: ScriptedServer): undefined {
  s.disconnect();
}

/** A modern server that never answers calls. */
const silent = (): ModernScriptedServer => Object.assign(modern(), { onCall: SILENCE });

const methods = (s: ScriptedServer): (string | undefined)[] =>
  s.peers.flatMap(({ messages }) => messages.map(({ method }) => method));
const metaOf = (message: Json | undefined): Record<string, unknown> =>
  (message?.params?.["_meta"] ?? {}) as Record<string, unknown>;

/** The params of each call that a server received. */
const callsOf = (s: ScriptedServer): Record<string, unknown>[] =>
  s.messagesOf(CALL).map(({ params }) => params ?? {});

describe("a server that is met for a modern client", () => {
  it("is asked in place what it speaks, and spoken to in the modern dialect", async () => {
    const { client, status, s } = await meet(modern());
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
    const { result } = await sendModernRequest(client, CALL, { name: "s__x" });
    assert.equal(result?.["resultType"], "complete");
    assert.equal(s.transportCount, 1);
    assert.ok(!methods(s).includes("initialize") && !methods(s).includes("ping"));
    const { era, protocolVersion, name, version } = status().peer ?? {};
    assert.deepEqual([era, protocolVersion, name, version], ["modern", "2026-07-28", "m", "3"]);
  });

  for (const answer of [
    METHOD_NOT_FOUND,
    '"result":{}',
    '"result":"hello"',
    '"result":{"supportedVersions":"2026-07-28","capabilities":{}}',
    '"result":{"supportedVersions":["2026-07-28"]}',
    discovers({ supportedVersions: ["2099-01-01", "2025-11-25"] }),
    '"error":{"code":-32602,"message":"bad"}',
    '"error":{"code":-32000,"message":"not initialized"}',
    '"error":"no"',
    '"error":{"code":-32019}',
    '"error":{"code":-32099,"message":"?"}',
  ]) {
    it(`is spoken to as of old if it answers ${answer.slice(0, 75)}`, async () => {
      const { client, status, s } = await meet(legacy({ [DISCOVER]: () => answer }));
      assert.deepEqual(await listModernToolNames(client), ["s__x"]);
      const met = [DISCOVER, "initialize", "notifications/initialized"];
      assert.deepEqual(methods(s).slice(0, 3), met);
      assert.deepEqual([status().peer?.era, s.transportCount], ["legacy", 1]);
    });
  }

  it("is waited for less than half of its time", async () => {
    const servers: Servers = { s: { era: "auto", connectTimeout: 1000 } };
    const { client, clock } = await meet(legacy({ [DISCOVER]: SILENCE }), {}, servers);
    await clock.advanceAsync(400);
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
  });

  it("is taken at its late word if it knows nothing else", async () => {
    const s = modern({ [DISCOVER]: SILENCE });
    s.handlers["initialize"] = () => {
      respond(s.newestPeer, s.messagesOf(DISCOVER)[0]?.id, DISCOVER_RESULT);
      return METHOD_NOT_FOUND;
    };
    const { client, clock, status } = await meet(s);
    await clock.advanceAsync(3100);
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
    assert.equal(status().peer?.era, "modern");
  });

  it("is started again as one of old if it dies of the question, in the same attempt and once", async () => {
    const s = legacy({ [DISCOVER]: () => die(s) });
    const { client, status, events, reconnect } = await meet(s);
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
    assert.deepEqual([s.transportCount, s.maxOpenCount], [2, 1]);
    assert.equal(status().peer?.era, "legacy");
    assert.ok(!events.some((event) => event.kind === "state" && event.to === "failed"));
    await reconnect();
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
    assert.equal(s.transportCount, 3, "that is remembered");
  });

  it("is modern whatever it says against the version, and asked again with one that both know", async () => {
    const s = modern();
    s.handlers[DISCOVER] = () =>
      s.messagesOf(DISCOVER).length === 1 ? REFUSES_VERSION : discovers();
    const { client } = await meet(s);
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
    assert.equal(s.messagesOf(DISCOVER).length, 2);
  });

  for (const [answer, count] of [
    ['"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01"]}}', 1],
    [discovers({ supportedVersions: ["2099-01-01"] }), 1],
    ['"error":{"code":-32021,"message":"no"}', 1],
    // It refuses what it says it speaks.
    [REFUSES_VERSION, 2],
  ] as const) {
    it(`fails, and is not spoken to as of old, if it says ${answer.slice(0, 75)}`, async () => {
      const { status, s } = await meet(legacy({ [DISCOVER]: () => answer }));
      assert.equal(status().cause?.code, "handshakeFailed");
      assert.deepEqual(new Set(methods(s)), new Set([DISCOVER]));
      assert.equal(s.messagesOf(DISCOVER).length, count);
    });
  }

  it("is not asked if the manifest says what it speaks", async () => {
    const old = await meet(legacy(), {}, { s: { era: "legacy" } });
    assert.ok(!methods(old.s).includes(DISCOVER));
    const { status, s } = await meet(legacy(), {}, { s: { ...AUTO["s"], era: "modern" } });
    assert.match(status().cause?.message ?? "", /modern era/);
    assert.ok(!methods(s).includes("initialize"));
  });

  it("is remembered to be of old until its handshake names modern versions", async () => {
    const { client, status, s, reconnect } = await meet(legacy());
    const initializes =
      '"error":{"code":-32600,"message":"no","data":{"supported":["2026-07-28"]}}';
    s.handlers = modern({
      initialize: () => initializes,
      "subscriptions/listen": SILENCE,
    }).handlers;
    await reconnect();
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
    assert.equal(status().peer?.era, "modern");
    const [first, second] = s.peers[1]?.messages ?? [];
    assert.deepEqual([first?.method, second?.method], ["initialize", DISCOVER]);
  });

  it("is not asked again by the next hub, unless the manifest says what it speaks", async () => {
    const snapshots = memorySnapshots();
    const start = async <S extends ScriptedServer>(s: S, servers = AUTO): Promise<S> => {
      const { client, hub } = setUpHubWithClock({ s }, { servers, snapshots });
      await listModernToolNames(client);
      await turn();
      assert.deepEqual(await listModernToolNames(client), s.tools.length > 0 ? ["s__x"] : []);
      await hub.close();
      return s;
    };
    for (const names of [["x"], []]) {
      await start(new ScriptedServer(...names));
      const again = await start(new ScriptedServer(...names));
      assert.equal(again.messagesOf(DISCOVER).length, 0);
      const learned = new ModernScriptedServer(...names);
      learned.handlers["initialize"] = () => REFUSES_VERSION;
      await start(learned);
      assert.deepEqual(methods(learned).slice(0, 2), ["initialize", DISCOVER]);
      const once = await start(new ModernScriptedServer(...names));
      assert.equal(once.messagesOf("initialize").length, 0);
      await start(new ScriptedServer(...names), { s: { era: "legacy" } });
      const fresh = await start(new ScriptedServer(...names));
      assert.equal(fresh.messagesOf(DISCOVER).length, 1);
    }
  });

  for (const late of [undefined, '"error":{"code":-32601,"message":"no"}', discovers()]) {
    it(`is waited for a while, and assumed to be legacy for a day if it does not answer in time, but ${late?.slice(0, 30)} later`, async () => {
      const verdicts: (DetectedEra | undefined)[] = [];
      const snapshots = memorySnapshots();
      const save = snapshots.save.bind(snapshots);
      snapshots.save = (subject, offer, verdict) => {
        verdicts.push(verdict);
        return save(subject, offer, verdict);
      };
      const s = legacy({ [DISCOVER]: SILENCE });
      const { client, clock, hub } = setUpHubWithClock({ s }, { servers: AUTO, snapshots });
      client.send(modernRequest("met", "tools/list"));
      await clock.advanceAsync(2999);
      assert.deepEqual(methods(s), [DISCOVER]);
      await clock.advanceAsync(1);
      const [probe] = s.messagesOf(DISCOVER);
      const text = `{"jsonrpc":"2.0","id":${String(probe?.id)},${late}}`;
      if (late !== undefined) for (let i = 0; i < 2; i++) s.newestPeer?.send(text);
      assert.deepEqual(await listModernToolNames(client), ["s__x"]);
      assert.equal((await sendModernRequest(client, CALL, { name: "s__x" })).error, undefined);
      const last = verdicts.at(-1);
      assert.deepEqual([last?.isGuess, last?.era, s.transportCount], [true, "legacy", 1]);
      hub.reconnect("s");
      await turn();
      await turn();
      assert.equal(s.newestPeer?.messages[0]?.method, "initialize");
    });
  }

  it("is waited for, however slow it is, if it is remembered to be modern", async () => {
    const { client, clock, hub, status, s } = await meet(modern());
    s.handlers[DISCOVER] = SILENCE;
    hub.reconnect("s");
    await clock.advanceAsync(10_000);
    assert.equal(s.messagesOf("initialize").length, 0);
    respond(s.newestPeer, s.messagesOf(DISCOVER).at(-1)?.id, DISCOVER_RESULT);
    await turn();
    assert.deepEqual(await listModernToolNames(client), ["s__x"]);
    assert.equal(status().peer?.era, "modern");
  });

  it("is not started again if it answers the question, and dies of what follows", async () => {
    const s = legacy({ initialize: () => die(s) });
    const { status } = await meet(s);
    assert.deepEqual([status().cause?.code, s.transportCount], ["connectionLost", 1]);
  });

  for (const mayDie of [false, true]) {
    it(`is asked anew once it cannot be met as what it is known to be, ${mayDie ? "as it died" : "as it said"}`, async () => {
      let dies = mayDie;
      const s = legacy();
      s.handlers = {
        [DISCOVER]: () => {
          if (dies) s.disconnect();
          return dies ? undefined : METHOD_NOT_FOUND;
        },
      };
      if (mayDie) s.onInitialize = () => METHOD_NOT_FOUND;
      const { status, client, reconnect } = await meet(s);
      dies = false;
      if (!mayDie) {
        s.onInitialize = () => METHOD_NOT_FOUND;
        await reconnect();
      }
      assert.equal(status().cause?.code, "handshakeFailed");
      s.onInitialize = GREET;
      const before = s.messagesOf(DISCOVER).length;
      await reconnect();
      assert.deepEqual(await listModernToolNames(client), ["s__x"]);
      assert.equal(s.messagesOf(DISCOVER).length, before + 1);
    });
  }

  it("is lost if it ends as soon as it was met, even if there is nothing to list", async () => {
    const s = modern();
    s.handlers[DISCOVER] = () => {
      queueMicrotask(() => s.disconnect());
      return discovers({ capabilities: {} });
    };
    const { status } = await meet(s);
    await turn();
    assert.equal(status().state, "failed");
  });
});

describe("a modern server that is met for a client of old", () => {
  it("is told with each request who asks, and from which level on that one wants logs, and of no other roots", async () => {
    const { client, s } = await begin(modern(), ABLE);
    notify(client, "notifications/roots/list_changed");
    await callTool(client, "s__x");
    await sendRequest(client, "logging/setLevel", { level: "error" });
    client.send(callRequest(5, "s__x", {}, { _meta: { progressToken: "p", mine: 1 } }));
    await client.find(isResponseTo(5));
    const [first, second] = s.messagesOf(CALL).map(metaOf);
    assert.deepEqual(first, {
      [MetaKey.version]: "2026-07-28",
      [MetaKey.client]: { name: "t", version: "1" },
      [MetaKey.capabilities]: { roots: {}, sampling: {}, elicitation: { form: {}, url: {} } },
      [MetaKey.level]: "info",
    });
    assert.deepEqual([second?.[MetaKey.level], second?.["mine"]], ["error", 1]);
    for (const { params } of s.messagesOf("tools/list")) assert.ok(params?.["_meta"]);
    assert.ok(!methods(s).includes("notifications/roots/list_changed"));
  });

  it("is asked by discovering for a sign of life", async () => {
    const { clock, s } = await begin(modern());
    const before = s.messagesOf(DISCOVER).length;
    await clock.advanceAsync(60_000);
    assert.ok(s.messagesOf(DISCOVER).length > before);
    assert.deepEqual([s.messagesOf("ping").length, s.transportCount], [0, 1]);
  });
});

describe("a modern server that wants more", () => {
  /** A call of a client of old that its server wants to elicit something for, and that question. */
  async function beginAsked(s = answering(inputRequiredResult({ a: FORM_ELICITATION }, "mine"))) {
    const setup = await begin(s, ABLE, { s: { era: "auto" } });
    setup.client.send(callRequest(1, "s__x"));
    const { id } = await waitForRequest(setup.client, ELICIT);
    const decline = (): void => respond(setup.client, id, { action: "decline" });
    return { ...setup, id, decline };
  }

  it("gets it of a client of old, and the same request again, with its state as it spelled it", async () => {
    const odd = String.raw`a\"\\ \u00e9\ud83d\ude00 ü\n{}`;
    const wants = { "k 1": FORM_ELICITATION, ключ: SAMPLING_REQUEST };
    const inputRequests = JSON.stringify({ ...wants, r: ROOTS_REQUEST, p: URL_ELICITATION });
    const s = answering(
      `"result":{"\\u0072esultType":"\\u0069nput_required","inputRequests":${inputRequests},"requestState":"${odd}"}`,
    );
    const { client } = await begin(s, ABLE);
    const asked = answerAll(client, {
      [ELICIT]: { result: { action: "accept", content: { a: 1.0 } } },
      "sampling/createMessage": { result: { role: "assistant", model: "m", content: [] } },
      "roots/list": { result: { roots: [] } },
    });
    assert.ok((await callTool(client, "s__x", { a: "b" })).result);
    assert.equal(asked.length, 4);
    assert.equal(asked[0]?.params?.["message"], "[s] Which?");
    const page = asked.find(({ params }) => params?.["mode"] === "url");
    assert.match(String(page?.params?.["elicitationId"]), /^[0-9a-f-]{36}$/);
    const [first, second] = s.messagesOf(CALL);
    assert.notEqual(first?.id, second?.id);
    assert.deepEqual(second?.params?.["arguments"], { a: "b" });
    assert.deepEqual(second?.params?.["inputResponses"], {
      "k 1": { action: "accept", content: { a: 1 } },
      ключ: { role: "assistant", model: "m", content: [] },
      r: { roots: [] },
      p: { action: "accept", content: { a: 1 } },
    });
    const text = s.newestPeer?.received.findLast((one) => one.includes(CALL)) ?? "";
    assert.ok(text.includes(`"requestState":"${odd}"`));
    assert.ok(second?.params?.["_meta"]);
  });

  const own = { ...URL_ELICITATION.params, elicitationId: "own" };
  const pages = { a: URL_ELICITATION, b: { ...URL_ELICITATION, params: own } };
  const pass = callPlugin("pass", async (given, next) => next(given));
  for (const [what, action, last, plugins, isReported] of [
    ["its pages told to be done once it has answered", "accept", [], [], true],
    ["its pages told to be done where plugins see it", "accept", [], [pass], true],
    ["no pages told to be done if it fails", "accept", ['"error":{"code":-1}'], [], false],
    ["no pages told to be done that people declined", "decline", [], [], false],
  ] as const) {
    it(`has ${what}`, async () => {
      const s = answering(
        inputRequiredResult({ ...pages, f: FORM_ELICITATION }),
        inputRequiredResult(undefined, "s"),
        ...last,
      );
      const clock = new VirtualClock();
      const { client } = await setUpPluginHub(plugins, { s }, { servers: AUTO, clock });
      await initialize(client, ABLE);
      const asked = answerAll(client, { [ELICIT]: { result: { action } } });
      client.send(callRequest(7, "s__x"));
      await s.newestPeer?.until(() => s.messagesOf(CALL).length === 2);
      const isDone = isOf("notifications/elicitation/complete");
      assert.ok(!client.messages.some(isDone), "the server still wants more");
      await clock.advanceAsync(250);
      await client.find(isResponseTo(7));
      const { messages } = client;
      const done = messages.filter(isDone).map(({ params }) => params?.["elicitationId"]);
      const ids = asked.flatMap(({ params }) => params?.["elicitationId"] ?? []);
      assert.equal(ids.length, 2);
      assert.deepEqual(done, isReported ? ids : []);
      assert.ok(messages.findLastIndex(isDone) < messages.findIndex(isResponseTo(7)));
    });
  }

  it("gets no state if it gave none, the answers of the last round only, and nothing that the client has written itself", async () => {
    const s = answering(
      inputRequiredResult({ a: FORM_ELICITATION }, "one"),
      inputRequiredResult({ b: FORM_ELICITATION }),
    );
    const { client } = await begin(s, ABLE);
    answerAll(client, DECLINES);
    const more = { requestState: "forged", inputResponses: { a: { action: "accept" } } };
    client.send(callRequest(1, "s__x", {}, more));
    await client.find(isResponseTo(1));
    const [, second, third] = callsOf(s);
    assert.equal(second?.["requestState"], "one");
    assert.deepEqual(second?.["inputResponses"], { a: { action: "decline" } });
    assert.ok(third && !("requestState" in third));
    assert.deepEqual(third["inputResponses"], { b: { action: "decline" } });
    const texts = s.newestPeer?.received.filter((one) => one.includes(CALL)).slice(1);
    assert.doesNotMatch(String(texts), /forged|accept/);
  });

  it("is asked again after a pause if it wants nothing", async () => {
    const s = answering(inputRequiredResult(undefined, "later"), inputRequiredResult({}, "still"));
    const { client, clock } = await begin(s);
    client.send(callRequest(1, "s__x"));
    await clock.advanceAsync(249);
    assert.equal(callsOf(s).length, 1);
    await clock.advanceAsync(251);
    await client.find(isResponseTo(1));
    const [, second, third] = callsOf(s);
    assert.deepEqual([second?.["requestState"], third?.["requestState"]], ["later", "still"]);
    assert.ok(third && !("inputResponses" in third));
  });

  it("without end is given up after ten rounds", async () => {
    const s = modern();
    s.onCall = () => inputRequiredResult(undefined, "more");
    const { client, clock } = await begin(s);
    client.send(callRequest(1, "s__x"));
    await clock.advanceAsync(5000);
    assert.match((await client.find(isResponseTo(1))).error?.message ?? "", /11 times/);
    assert.equal(callsOf(s).length, 11);
  });

  const tooMany = Array.from({ length: 33 }, (_, i) => [`k${i}`, FORM_ELICITATION]);
  for (const [answer, reason] of [
    [inputRequiredResult(undefined), /does not say what/],
    [inputRequiredResult({}), /does not say what/],
    [inputRequiredResult({ a: { params: {} } }), /does not say what/],
    ['"result":{"resultType":"input_required","inputRequests":[]}', /does not say what/],
    [inputRequiredResult(Object.fromEntries(tooMany)), /does not say what/],
    ['"result":{"resultType":"vendor/odd","taskId":"1"}', /"vendor\/odd"/],
    ['"result":{"resultType":"\\u006fdd","taskId":"1"}', /"odd"/],
  ] as const) {
    it(`fails the call if it says ${answer.slice(0, 90)}`, async () => {
      const { client } = await begin(answering(answer), ABLE);
      assert.match((await callTool(client, "s__x")).error?.message ?? "", reason);
    });
  }

  for (const [what, capabilities, answer] of [
    ["cannot be asked", {}, {}],
    ["will not", ABLE, { error: { code: -1, message: "no" } }],
    ["cannot be asked that way", { elicitation: { url: {} } }, {}],
  ] as const) {
    it(`gets a cancel where the client ${what}`, async () => {
      const s = answering(inputRequiredResult({ a: FORM_ELICITATION }));
      const { client } = await begin(s, capabilities);
      answerAll(client, { [ELICIT]: answer });
      await callTool(client, "s__x");
      assert.deepEqual(callsOf(s)[1]?.["inputResponses"], { a: { action: "cancel" } });
    });
  }

  it("that cannot be had fails the call, and what else was asked is withdrawn", async () => {
    const s = answering(inputRequiredResult({ a: FORM_ELICITATION, b: SAMPLING_REQUEST }));
    const { client } = await begin(s, ABLE);
    const error = { code: -1, message: "not now" };
    answerAll(client, { "sampling/createMessage": { error } });
    const answer = await callTool(client, "s__x");
    assert.match(answer.error?.message ?? "", /"sampling\/createMessage".*not now/);
    const form = await waitForRequest(client, ELICIT);
    assert.equal((await waitForRequest(client, CANCELLED)).params?.["requestId"], form.id);
    const unable = await begin(answering(inputRequiredResult({ a: ROOTS_REQUEST })));
    assert.match((await callTool(unable.client, "s__x")).error?.message ?? "", /roots\/list/);
  });

  it("lets the call's time stand still while the client is asked, but for ten minutes only", async () => {
    const { client, clock, s } = await beginAsked();
    await clock.advanceAsync(5 * 60_000);
    assert.ok(!client.messages.some(isResponseTo(1)));
    await clock.advanceAsync(5 * 60_000);
    await client.find(isResponseTo(1));
    assert.deepEqual(callsOf(s)[1]?.["inputResponses"], { a: { action: "cancel" } });
    await waitForRequest(client, CANCELLED);
  });

  it("has as long as any other once the client has answered", async () => {
    const { client, clock, s, decline } = await beginAsked();
    s.onCall = SILENCE;
    await clock.advanceAsync(5 * 60_000);
    decline();
    await clock.advanceAsync(59_000);
    assert.ok(!client.messages.some(isResponseTo(1)));
    await clock.advanceAsync(1000);
    assert.match(JSON.stringify(await client.find(isResponseTo(1))), /60 seconds/);
  });

  it("is told nothing more once the call is cancelled, and the client is not asked any more", async () => {
    const wants = [inputRequiredResult({ a: FORM_ELICITATION }), inputRequiredResult({}, "later")];
    const { client, clock, s, id, decline } = await beginAsked(answering(...wants));
    cancel(client, 1);
    assert.equal((await waitForRequest(client, CANCELLED)).params?.["requestId"], id);
    decline();
    client.send(callRequest(2, "s__x"));
    await turn();
    cancel(client, 2);
    await clock.advanceAsync(60_000);
    assert.equal(callsOf(s).length, 2);
    assert.ok(!client.messages.some((one) => isResponseTo(1)(one) || isResponseTo(2)(one)));
  });

  it("and ended meanwhile is started again and gets it", async () => {
    const { client, clock, s, decline } = await beginAsked();
    s.disconnect();
    await turn();
    decline();
    await clock.advanceAsync(2000);
    assert.ok((await client.find(isResponseTo(1))).result);
    assert.deepEqual([s.transportCount, callsOf(s)[1]?.["requestState"]], [2, "mine"]);
  });

  it("may do so for resources, too", async () => {
    const s = modern();
    s.listings.resources = [{ uri: "x://1", name: "r" }] as never;
    s.handlers["resources/read"] = () =>
      s.messagesOf("resources/read").length === 1
        ? inputRequiredResult({ a: FORM_ELICITATION })
        : '"result":{"resultType":"complete","contents":[],"ttlMs":5,"cacheScope":"public"}';
    const { client } = await begin(s, ABLE);
    answerAll(client, DECLINES);
    const { result } = await sendRequest(client, "resources/read", { uri: "x://1" });
    assert.deepEqual(result, { contents: [] });
  });

  it("that the client lacks says so in a result that models read", async () => {
    const data = { requiredCapabilities: { sampling: {}, roots: {} } };
    const error = JSON.stringify({ code: -32021, message: "no", data });
    const { client } = await begin(answering(`"error":${error}`));
    const { result } = await callTool(client, "s__x");
    assert.equal(result?.["isError"], true);
    assert.match(JSON.stringify(result), /sampling and roots/);
  });
});

describe("a modern server that wants more of a modern client", () => {
  const STATE = 'm"ine';
  const RESPONSES = { k: { action: "decline" }, r: { roots: [] } };
  const ANSWERS = { ...DECLINES, "roots/list": { result: { roots: [] } } };
  const wants = (): ModernScriptedServer =>
    answering(inputRequiredResult({ k: FORM_ELICITATION, r: ROOTS_REQUEST }, STATE));

  it("says so to the client itself, which is told who asks, and comes back by itself", async () => {
    const { client, s } = await begin(wants());
    const { result } = await sendModernRequest(client, CALL, { name: "s__x" }, ABLE_NOW);
    const { inputRequests, resultType, requestState } = result ?? {};
    assert.deepEqual(inputRequests, {
      k: { ...FORM_ELICITATION, params: { ...FORM_ELICITATION.params, message: "[s] Which?" } },
      r: ROOTS_REQUEST,
    });
    assert.deepEqual([resultType, requestState], ["input_required", STATE]);
    const params = { name: "s__x", inputResponses: RESPONSES, requestState };
    const last = await sendModernRequest(client, CALL, params, ABLE_NOW);
    assert.equal(last.result?.["resultType"], "complete");
    assert.deepEqual(callsOf(s)[1]?.["inputResponses"], RESPONSES);
    assert.equal(callsOf(s)[1]?.["requestState"], STATE);
  });

  it("is told of the client what it says itself, whatever extensions there are", async () => {
    const { client, s } = await begin(modern());
    const namespace = "io.modelcontextprotocol";
    const extensions = {
      [`${namespace}/tasks`]: {},
      "vendor/x": {},
      [`${namespace}/ui`]: { a: 1 },
    };
    await sendModernRequest(client, CALL, { name: "s__x" }, { sampling: {}, extensions });
    const meta = metaOf(s.messagesOf(CALL)[0]);
    assert.deepEqual(meta[MetaKey.capabilities], { sampling: {}, extensions });
    assert.deepEqual(meta[MetaKey.client], { name: "m", version: "2" });
  });

  it("is named also if it spells what it says oddly", async () => {
    const inputRequests = JSON.stringify({ k: FORM_ELICITATION });
    const { client } = await begin(
      answering(`"result":{"resultType":"\\u0069nput_required","inputRequests":${inputRequests}}`),
    );
    const { result } = await sendModernRequest(client, CALL, { name: "s__x" }, ABLE_NOW);
    assert.match(JSON.stringify(result), /\[s\] Which\?/);
  });

  const extensions = { "io.modelcontextprotocol/ui": {} };
  for (const [type, capabilities, isKnown] of [
    ["vendor/odd", { extensions }, true],
    ["task", { extensions }, false],
    ["task", {}, false],
  ] as const) {
    it(`may ${isKnown ? "" : "not "}send a result of type ${type} to who declares ${JSON.stringify(capabilities)}`, async () => {
      const { client } = await begin(answering(`"result":{"resultType":"${type}","more":1.0}`));
      const { error } = await sendModernRequest(client, CALL, { name: "s__x" }, capabilities);
      assert.equal(error === undefined, isKnown);
    });
  }

  it("and is cancelled while a plugin waits for it has its questions withdrawn", async () => {
    const watch = callPlugin("watch", (given, next) => next(given));
    const { client } = await setUpPluginHub([watch], { s: wants() }, { servers: AUTO });
    await initialize(client, ABLE);
    client.send(callRequest(1, "s__x"));
    const { id } = await waitForRequest(client, ELICIT);
    cancel(client, 1);
    await client.find(
      (message) => isOf(CANCELLED)(message) && message.params?.["requestId"] === id,
    );
  });

  for (const era of ["legacy", "modern"]) {
    it(`is asked on the client's behalf where plugins see the call of a ${era} client, and they see its answer as of old`, async () => {
      const s = wants();
      const seen: (string | undefined)[] = [];
      const watch = callPlugin("watch", async (given, next) => {
        const answer = await next(given);
        seen.push(answer.json);
        return answer;
      });
      const { client } = await setUpPluginHub([watch], { s }, { servers: AUTO });
      await initialize(client, ABLE);
      answerAll(client, ANSWERS);
      if (era === "modern") {
        const first = await sendModernRequest(client, CALL, { name: "s__x" }, ABLE_NOW);
        const answers = answersTo(first, (method) => RESPONSES[method === ELICIT ? "k" : "r"]);
        assert.equal(Object.keys(answers.inputResponses).length, 2);
        const params = { name: "s__x", ...answers };
        const last = await sendModernRequest(client, CALL, params, ABLE_NOW);
        assert.equal(last.result?.["resultType"], "complete");
      } else {
        assert.ok(!("resultType" in ((await callTool(client, "s__x")).result ?? {})));
      }
      assert.equal(callsOf(s)[1]?.["requestState"], STATE);
      assert.deepEqual(callsOf(s)[1]?.["inputResponses"], RESPONSES);
      assert.equal(seen.length, 1);
      assert.equal(seen[0]?.includes("resultType"), false);
    });
  }
});

describe("a result of a modern server for a client of old", () => {
  const server = `"_meta":{"${MetaKey.server}":{"name":"s","version":"1"}}`;
  const deep = `"a":"}]","deep":${"[".repeat(10_000)}${"]".repeat(10_000)}`;
  for (const [what, body, left] of [
    ["says nothing of its own in _meta", `"a":1,${server}`, `"a":1`],
    ["has an empty _meta", `"a":1,"_meta":{}`, `"a":1,"_meta":{}`],
    ["is nested 10,000 deep", `${deep},${server}`, deep],
  ] as const) {
    it(`comes without what only the modern era has if it ${what}`, async () => {
      const { client } = await begin(
        answering(`"result":{"content":[],${body},"resultType":"complete"}`),
      );
      client.send(callRequest(7, "s__x"));
      const expected = `"result":{"content":[],${left}}`;
      await client.until(() => client.received.some((text) => text.includes('"content":[]')));
      assert.ok(client.received.some((text) => text.includes(expected)));
    });
  }
});

describe("what a modern server tells", () => {
  const LISTEN = "subscriptions/listen";
  const UPDATED = "notifications/resources/updated";
  const KINDS = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
  const WATCHED = { ...KINDS, resourceSubscriptions: ["x://1"] };

  /** A modern server with two resources, whose tools its client has listed. */
  async function beginWatched(handlers: Readonly<Record<string, RequestHandler>> = {}) {
    const s = modern(handlers);
    s.listings.resources = ["x://1", "x://2"].map((uri) => ({ uri, name: "r" })) as never;
    const setup = await begin(s, {}, { s: { era: "auto" } });
    assert.deepEqual(await listToolNames(setup.client), ["s__x"]);
    return setup;
  }
  const subscribe = (client: Peer, uri = "x://1"): Promise<Json> =>
    sendRequest(client, "resources/subscribe", { uri });
  const unsubscribe = (client: Peer): Promise<Json> =>
    sendRequest(client, "resources/unsubscribe", { uri: "x://1" });
  const filtersOf = ({ listenRequests }: ModernScriptedServer): unknown[] =>
    listenRequests.map(({ params }) => params?.["notifications"]);
  const cancelledIds = (s: ScriptedServer): unknown[] =>
    s.messagesOf(CANCELLED).map(({ params }) => params?.["requestId"]);

  it("is listened for with one request, and lists are read again", async () => {
    const { client, clock, s } = await begin(modern());
    await listToolNames(client);
    assert.deepEqual(filtersOf(s), [KINDS]);
    s.tools.push('{"name":"y","inputSchema":{"type":"object"}}');
    s.notifySubscription(s.listenRequests[0]?.id, "notifications/tools/list_changed");
    await turn();
    await clock.advanceAsync(1000);
    assert.deepEqual(await listToolNames(client), ["s__x", "s__y"]);
  });

  it("is listened for anew when somebody wants more, before the last one ends, and once more for all that comes meanwhile", async () => {
    const { client, s } = await beginWatched();
    s.handlers[LISTEN] = SILENCE;
    post(client, 1, "resources/subscribe", { uri: "x://1" });
    post(client, 2, "resources/subscribe", { uri: "x://2" });
    await turn();
    assert.equal(s.listenRequests.length, 2);
    const [first, second] = s.listenRequests;
    assert.deepEqual(filtersOf(s)[1], WATCHED);
    assert.deepEqual(cancelledIds(s), []);
    assert.ok(second && !client.messages.some(isResponseTo(1)), "it is not agreed yet");
    s.acknowledge(second);
    await client.find(isResponseTo(1));
    await turn();
    assert.deepEqual(cancelledIds(s), [first?.id]);
    s.notifySubscription(second.id, UPDATED, { uri: "x://1", extra: 1.5 });
    const { params } = await client.find(isOf(UPDATED));
    assert.deepEqual(params, { uri: "x://1", extra: 1.5, _meta: {} });
    assert.deepEqual(filtersOf(s)[2], { ...KINDS, resourceSubscriptions: ["x://1", "x://2"] });
    s.acknowledge(s.listenRequests[2] ?? {});
    await client.find(isResponseTo(2));
    await unsubscribe(client);
    await turn();
    assert.deepEqual(filtersOf(s)[3], { ...KINDS, resourceSubscriptions: ["x://2"] });
  });

  it("is not listened for at all if nobody wants anything", async () => {
    const capabilities = { tools: {}, resources: { subscribe: true } };
    const { client, s } = await beginWatched({ [DISCOVER]: () => discovers({ capabilities }) });
    assert.equal(s.listenRequests.length, 0);
    await subscribe(client);
    assert.deepEqual(filtersOf(s), [{ resourceSubscriptions: ["x://1"] }]);
    await unsubscribe(client);
    await turn();
    assert.deepEqual(cancelledIds(s), [s.listenRequests[0]?.id]);
    assert.equal(s.listenRequests.length, 1);
  });

  it("that never says what it will tell is taken at its silence", async () => {
    const { client, clock } = await beginWatched({ [LISTEN]: SILENCE });
    const answer = subscribe(client);
    await clock.advanceAsync(20_000);
    assert.ok((await answer).result);
  });

  it("that does not know how to be listened to is there without", async () => {
    const { client, clock, s } = await beginWatched({ [LISTEN]: () => METHOD_NOT_FOUND });
    await clock.advanceAsync(100_000);
    assert.equal(s.listenRequests.length, 1);
    assert.match((await subscribe(client)).error?.message ?? "", /does not notify/);
  });

  it("may be less than was asked for: who asked for the rest is told", async () => {
    const { client, s } = await beginWatched();
    s.handlers[LISTEN] = (message) => {
      s.acknowledge(message, { ...KINDS, resourceSubscriptions: [] });
      return undefined;
    };
    assert.match((await subscribe(client)).error?.message ?? "", /"x:\/\/1"/);
    assert.deepEqual(filtersOf(s).at(-1), KINDS);
  });

  const ends: Record<string, (s: ModernScriptedServer, id: unknown) => void> = {
    "an answer": (s, id) => respond(s.newestPeer, id, { resultType: "complete" }),
    "an error": (s, id) => respondError(s.newestPeer, id),
    "a cancel": (s, id) => s.notifySubscription(id, CANCELLED, { requestId: id }),
  };
  for (const [form, end] of Object.entries(ends)) {
    it(`is listened for again, ever later, if it ends with ${form}, and nobody misses anything`, async () => {
      const { client, clock, s } = await beginWatched();
      await subscribe(client);
      const lists = s.messagesOf("tools/list").length;
      let count = s.listenRequests.length;
      for (const pause of [100, 200, 400]) {
        end(s, s.listenRequests.at(-1)?.id);
        await clock.advanceAsync(pause - 1);
        assert.equal(s.listenRequests.length, count, `not before ${pause} ms`);
        await clock.advanceAsync(1);
        assert.equal(s.listenRequests.length, ++count);
        await clock.advanceAsync(0);
      }
      assert.ok(messagesOfMethod(client, UPDATED).length >= 3);
      await clock.advanceAsync(5000);
      assert.ok(s.messagesOf("tools/list").length > lists);
      await clock.advanceAsync(30_000);
      end(s, s.listenRequests.at(-1)?.id);
      await clock.advanceAsync(100);
      assert.equal(s.listenRequests.length, count + 1, "one that held begins anew");
    });
  }

  it("is subscribed to again when the server has ended", async () => {
    const { client, clock, s } = await beginWatched();
    await subscribe(client);
    s.disconnect();
    await clock.advanceAsync(2000);
    await turn();
    assert.equal(s.transportCount, 2);
    assert.deepEqual(filtersOf(s).at(-1), WATCHED);
    assert.ok(messagesOfMethod(client, UPDATED).length > 0);
  });

  for (const [ttlMs, first] of [
    [5000, 5000],
    [1, 1000],
    [1e15, 24 * 3_600_000],
  ] as const) {
    it(`is not waited for where it tells nothing: lists that are good for ${ttlMs} ms are read again after ${first}`, async () => {
      const capabilities = { tools: {}, prompts: { listChanged: true } };
      const s = modern({
        [DISCOVER]: () => discovers({ capabilities }),
        "prompts/list": () => '"result":{"prompts":[],"ttlMs":1000}',
      });
      s.onList = () => `"result":{"tools":[],"ttlMs":${ttlMs},"cacheScope":"public"}`;
      const { clock } = await begin(s, {}, { s: { era: "auto", healthInterval: 0 } });
      const count = (): number => s.messagesOf("tools/list").length;
      await clock.advanceAsync(first - 1);
      assert.equal(count(), 1);
      await clock.advanceAsync(1);
      assert.equal(count(), 2);
      await clock.advanceAsync(first + 200);
      assert.equal(count(), 3);
      assert.equal(s.messagesOf("prompts/list").length, 1);
      s.onList = () => '"result":{"tools":[],"ttlMs":0}';
      await clock.advanceAsync(first + 200);
      await clock.advanceAsync(10 * first);
      assert.equal(count(), 4);
    });
  }

  /** A server that answers no calls, two clients, and how it logs. @returns what each client has heard */
  async function beginLogging() {
    const { client, connect, clock, s } = await begin(silent());
    const other = connect();
    const log = async (data: string): Promise<unknown[][]> => {
      await turn();
      notify(s.newestPeer, LOG, { level: "warning", logger: "l", data });
      await turn();
      return [client, other].map((peer) =>
        messagesOfMethod(peer, LOG).map(({ params }) => params?.["data"]),
      );
    };
    const callModern = (peer: Peer, id: number): void =>
      peer.send(modernRequest(id, CALL, { name: "s__x", _meta: { [MetaKey.level]: "debug" } }));
    return { client, other, clock, log, callModern };
  }

  for (const era of ["legacy", "modern"]) {
    it(`in its log goes to the one client whose requests may have led to it, and to nobody if several may have (${era})`, async () => {
      const { client, other, log, callModern } = await beginLogging();
      if (era === "legacy") await initialize(other);
      const call = (peer: Peer, id: number): void =>
        era === "modern" ? callModern(peer, id) : peer.send(callRequest(id, "s__x"));
      assert.deepEqual(await log("nobody"), [[], []]);
      for (const id of [1, 2]) call(client, id);
      assert.deepEqual(await log("one"), [["one"], []]);
      for (const id of [1, 2]) call(other, id);
      assert.deepEqual(await log("either"), [["one"], []]);
    });
  }

  it("in its log goes to nobody while another client's call is not answered that was given up", async () => {
    const { client, other, clock, log, callModern } = await beginLogging();
    await initialize(other);
    callModern(other, 1);
    await turn();
    cancel(other, 1);
    callModern(client, 1);
    assert.deepEqual(await log("either"), [[], []]);
    await clock.advanceAsync(10 * 60_000);
    callModern(client, 2);
    assert.deepEqual(await log("its own"), [["its own"], []]);
  });

  it("that is a request is answered at once that there is no such method", async () => {
    const { client, s } = await meet(silent(), ABLE_NOW);
    client.send(modernRequest(1, CALL, { name: "s__x" }, ABLE_NOW));
    await turn();
    for (const method of ["sampling/createMessage", "ping", "roots/list"]) {
      post(s.newestPeer, method, method, {});
      await turn();
      assert.equal(s.newestPeer?.messages.find(isResponseTo(method))?.error?.code, -32601);
    }
    assert.ok(!client.messages.some(({ method }) => method !== undefined));
  });

  it("of progress goes to who asked", async () => {
    const s = modern();
    s.onCall = (message, text) => {
      const { progressToken } = metaOf(message);
      notify(s.newestPeer, "notifications/progress", { progressToken, progress: 1 });
      return COMPLETE(message, text);
    };
    const { client } = await begin(s);
    client.send(callRequest(1, "s__x", {}, { _meta: { progressToken: "mine" } }));
    const { params } = await client.find(isOf("notifications/progress"));
    assert.deepEqual(params, { progressToken: "mine", progress: 1 });
  });
});
