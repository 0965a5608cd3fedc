import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MetaKey } from "../../src/protocol/modern.ts";
import {
  type DetectedEra,
  memorySnapshots,
  type SnapshotKey,
  type Snapshots,
} from "../../src/snapshot/snapshots.ts";
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
  ScriptedServer,
  type Servers,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES as ABLE_NOW,
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
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const AUTO: Servers = { s: { era: "auto", reconnect: { policy: "none" } as never } };
const ABLE = { roots: { listChanged: true }, sampling: {}, elicitation: { form: {}, url: {} } };

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
  return { ...setup, s };
}

async function listModern(client: Peer): Promise<readonly string[]> {
  const { result } = await sendModernRequest(client, "tools/list");
  return (result?.["tools"] as { name: string }[]).map(({ name }) => name);
}

const methods = (s: ScriptedServer): (string | undefined)[] =>
  s.peers.flatMap(({ messages }) => messages.map(({ method }) => method));
const metaOf = (message: Json | undefined): Record<string, unknown> =>
  (message?.params?.["_meta"] ?? {}) as Record<string, unknown>;

/** Answers what the client is asked, by method. */
function answering(client: Peer, answers: Readonly<Record<string, object>>): Json[] {
  const asked: Json[] = [];
  client.onMessage = (message) => {
    const answer = answers[message.method ?? ""];
    if (answer === undefined || message.id === undefined) return;
    asked.push(message);
    client.send({ jsonrpc: "2.0", id: message.id, ...answer });
  };
  return asked;
}

describe("a server that is met for a modern client", () => {
  it("is asked in place what it speaks, and spoken to in the modern dialect", async () => {
    const { client, hub, s } = await meet(new ModernScriptedServer("x"));
    assert.deepEqual(await listModern(client), ["s__x"]);
    const { result } = await sendModernRequest(client, "tools/call", { name: "s__x" });
    assert.equal(result?.["resultType"], "complete");
    assert.equal(s.transportCount, 1);
    assert.ok(!methods(s).includes("initialize") && !methods(s).includes("ping"));
    const { era, protocolVersion, name, version } = connectionStatusOf(hub, "s").peer ?? {};
    assert.deepEqual([era, protocolVersion, name, version], ["modern", "2026-07-28", "m", "3"]);
  });

  it("is spoken to as of old if it does not know the question", async () => {
    const { client, hub, s } = await meet(new ScriptedServer("x"));
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.deepEqual(methods(s).slice(0, 3), [
      "server/discover",
      "initialize",
      "notifications/initialized",
    ]);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "legacy");
  });

  for (const garbage of [
    '"result":{}',
    '"result":"hello"',
    '"result":{"supportedVersions":"2026-07-28","capabilities":{}}',
    '"result":{"supportedVersions":["2026-07-28"]}',
    '"error":{"code":-32602,"message":"bad"}',
    '"error":{"code":-32000,"message":"not initialized"}',
    '"error":"no"',
    '"error":{"code":-32019}',
    '"error":{"code":-32099,"message":"?"}',
  ]) {
    it(`is spoken to as of old if it answers ${garbage}`, async () => {
      const s = new ScriptedServer("x");
      s.handlers = { "server/discover": () => garbage };
      const { client, hub } = await meet(s);
      assert.deepEqual(await listModern(client), ["s__x"]);
      assert.equal(connectionStatusOf(hub, "s").peer?.era, "legacy");
      assert.equal(s.transportCount, 1);
    });
  }

  it("is waited for a while if it says nothing, and then spoken to as of old; a late answer is dropped", async () => {
    const s = new ScriptedServer("x");
    s.handlers = { "server/discover": () => undefined };
    const { client, clock, hub } = await meet(s);
    await clock.advanceAsync(2999);
    assert.deepEqual(methods(s), ["server/discover"]);
    await clock.advanceAsync(1);
    const [probe] = s.messagesOf("server/discover");
    for (let i = 0; i < 2; i++)
      s.newestPeer?.send({ jsonrpc: "2.0", id: probe?.id, result: DISCOVER_RESULT });
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "legacy");
    assert.equal(
      (await sendModernRequest(client, "tools/call", { name: "s__x" })).error,
      undefined,
    );
    assert.equal(s.transportCount, 1);
  });

  it("is waited for less than half of its time", async () => {
    const s = new ScriptedServer("x");
    s.handlers = { "server/discover": () => undefined };
    const { client, clock } = await meet(s, {}, { s: { era: "auto", connectTimeout: 1000 } });
    await clock.advanceAsync(400);
    assert.deepEqual(await listModern(client), ["s__x"]);
  });

  it("is taken at its late word if it knows nothing else", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers["server/discover"] = () => undefined;
    s.handlers["initialize"] = () => {
      const [probe] = s.messagesOf("server/discover");
      s.newestPeer?.send({ jsonrpc: "2.0", id: probe?.id, result: DISCOVER_RESULT });
      return METHOD_NOT_FOUND;
    };
    const { client, clock, hub } = await meet(s);
    await clock.advanceAsync(3100);
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "modern");
  });

  it("is started again as one of old if it dies of the question, in the same attempt and once", async () => {
    const s = new ScriptedServer("x");
    s.handlers = {
      "server/discover": () => {
        s.disconnect();
        return undefined;
      },
    };
    const { client, hub, events } = await meet(s);
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.deepEqual([s.transportCount, s.maxOpenCount], [2, 1]);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "legacy");
    assert.ok(!events.some((event) => event.kind === "state" && event.to === "failed"));
    hub.reconnect("s");
    await turn();
    await turn();
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.equal(s.transportCount, 3, "that is remembered");
  });

  it("is modern whatever it says against the version, and asked again with one that both know", async () => {
    const s = new ModernScriptedServer("x");
    let count = 0;
    s.handlers["server/discover"] = () =>
      count++ === 0
        ? '"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"?"}}'
        : `"result":${JSON.stringify(DISCOVER_RESULT)}`;
    const { client } = await meet(s);
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.equal(s.messagesOf("server/discover").length, 2);
  });

  for (const answer of [
    '"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01"]}}',
    `"result":${JSON.stringify({ ...DISCOVER_RESULT, supportedVersions: ["2099-01-01"] })}`,
    '"error":{"code":-32021,"message":"no"}',
  ]) {
    it(`fails, and is not spoken to as of old, if it says ${answer.slice(0, 40)}`, async () => {
      const s = new ScriptedServer("x");
      s.handlers = { "server/discover": () => answer };
      const { hub } = await meet(s);
      assert.equal(connectionStatusOf(hub, "s").cause?.code, "handshakeFailed");
      assert.ok(!methods(s).includes("initialize"));
    });
  }

  it("is not asked if the manifest says what it speaks", async () => {
    const old = new ScriptedServer("x");
    await meet(old, {}, { s: { era: "legacy" } });
    assert.ok(!methods(old).includes("server/discover"));
    const { hub, s } = await meet(
      new ScriptedServer("x"),
      {},
      {
        s: { era: "modern", reconnect: { policy: "none" } as never },
      },
    );
    assert.match(
      connectionStatusOf(hub, "s").cause?.message ?? "",
      /does not speak the modern era/,
    );
    assert.ok(!methods(s).includes("initialize"));
  });

  it("is remembered to be of old until its handshake names modern versions", async () => {
    const s = new ScriptedServer("x");
    const { hub, client } = await meet(s);
    const found = new ModernScriptedServer("x");
    s.handlers = {
      ...found.handlers,
      initialize: () =>
        '"error":{"code":-32600,"message":"no","data":{"supported":["2026-07-28"]}}',
      "subscriptions/listen": () => undefined,
    };
    hub.reconnect("s");
    await turn();
    await turn();
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "modern");
    assert.deepEqual(
      s.peers[1]?.messages.slice(0, 2).map(({ method }) => method),
      ["initialize", "server/discover"],
    );
  });

  it("is not asked again by the next hub, unless the manifest says what it speaks", async () => {
    const snapshots = memorySnapshots();
    const start = async (s: ScriptedServer, servers = AUTO): Promise<void> => {
      const { client, hub } = setUpHubWithClock({ s }, { servers, snapshots });
      await listModern(client);
      await turn();
      assert.deepEqual(await listModern(client), s.tools.length > 0 ? ["s__x"] : []);
      await hub.close();
    };
    for (const names of [["x"], []]) {
      await start(new ScriptedServer(...names));
      const again = new ScriptedServer(...names);
      await start(again);
      assert.equal(again.messagesOf("server/discover").length, 0);
      const learned = new ModernScriptedServer(...names);
      learned.handlers["initialize"] = () =>
        '"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}';
      await start(learned);
      assert.deepEqual(methods(learned).slice(0, 2), ["initialize", "server/discover"]);
      const once = new ModernScriptedServer(...names);
      await start(once);
      assert.equal(once.messagesOf("initialize").length, 0);
      await start(new ScriptedServer(...names), { s: { era: "legacy" } });
      const fresh = new ScriptedServer(...names);
      await start(fresh);
      assert.equal(fresh.messagesOf("server/discover").length, 1);
    }
  });

  it("is assumed to be legacy, for a day, if it does not answer in time, whatever it says later", async () => {
    for (const late of [
      undefined,
      '"error":{"code":-32601,"message":"no"}',
      `"result":${JSON.stringify(DISCOVER_RESULT)}`,
    ]) {
      const verdicts: (DetectedEra | undefined)[] = [];
      const snapshots = memorySnapshots();
      const save: Snapshots["save"] = (subject, offer, verdict) => {
        verdicts.push(verdict);
        return snapshots.save(subject, offer, verdict);
      };
      const s = new ScriptedServer("x");
      s.handlers = { "server/discover": () => undefined };
      const kept = { ...snapshots, load: (of: SnapshotKey) => snapshots.load(of), save };
      const setup = setUpHubWithClock({ s }, { servers: AUTO, snapshots: kept });
      setup.client.send(modernRequest("met", "tools/list"));
      await setup.clock.advanceAsync(3000);
      assert.deepEqual(await listModern(setup.client), ["s__x"]);
      const [probe] = s.messagesOf("server/discover");
      const text = `{"jsonrpc":"2.0","id":${String(probe?.id)},${late}}`;
      if (late !== undefined) s.newestPeer?.send(text);
      await turn();
      const last = verdicts.at(-1);
      assert.deepEqual([last?.isGuess, last?.era], [true, "legacy"]);
      setup.hub.reconnect("s");
      await turn();
      await turn();
      assert.equal(s.newestPeer?.messages[0]?.method, "initialize");
    }
  });

  it("is waited for if it is remembered to be modern, however slow it is", async () => {
    const s = new ModernScriptedServer("x");
    const { client, clock, hub } = await meet(s);
    s.handlers["server/discover"] = () => undefined;
    hub.reconnect("s");
    await clock.advanceAsync(10_000);
    assert.equal(s.messagesOf("initialize").length, 0);
    const id = s.messagesOf("server/discover").at(-1)?.id;
    s.newestPeer?.send({ jsonrpc: "2.0", id, result: DISCOVER_RESULT });
    await turn();
    assert.deepEqual(await listModern(client), ["s__x"]);
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "modern");
  });

  it("is not started again if it answers the question, and dies of what follows", async () => {
    const s = new ScriptedServer("x");
    s.onInitialize = () => {
      s.disconnect();
      return undefined;
    };
    const { hub } = await meet(s);
    assert.equal(connectionStatusOf(hub, "s").cause?.code, "connectionLost");
    assert.equal(s.transportCount, 1);
  });

  it("is asked no more than twice if it refuses what it says it speaks", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers["server/discover"] = () =>
      '"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}';
    const { hub } = await meet(s);
    assert.equal(s.messagesOf("server/discover").length, 2);
    assert.match(
      connectionStatusOf(hub, "s").cause?.message ?? "",
      /speaks only protocol versions/,
    );
  });

  it("is spoken to as of old if it is too new, and knows that too", async () => {
    const s = new ScriptedServer("x");
    const supportedVersions = ["2099-01-01", "2025-11-25"];
    s.handlers = {
      "server/discover": () =>
        `"result":${JSON.stringify({ ...DISCOVER_RESULT, supportedVersions })}`,
    };
    const { client } = await meet(s);
    assert.deepEqual(await listModern(client), ["s__x"]);
  });

  it("is asked anew once it cannot be met as what it is known to be", async () => {
    for (const mayDie of [false, true]) {
      const s = new ScriptedServer("x");
      let dies = mayDie;
      s.handlers = {
        "server/discover": () => {
          if (dies) s.disconnect();
          return dies ? undefined : METHOD_NOT_FOUND;
        },
      };
      if (mayDie) s.onInitialize = () => METHOD_NOT_FOUND;
      const { hub, client } = await meet(s);
      dies = false;
      if (!mayDie) {
        s.onInitialize = () => METHOD_NOT_FOUND;
        hub.reconnect("s");
        await turn();
        await turn();
      }
      assert.equal(connectionStatusOf(hub, "s").cause?.code, "handshakeFailed");
      s.onInitialize = new ScriptedServer().onInitialize;
      const before = s.messagesOf("server/discover").length;
      hub.reconnect("s");
      await turn();
      await turn();
      assert.deepEqual(await listModern(client), ["s__x"]);
      assert.equal(s.messagesOf("server/discover").length, before + 1);
    }
  });

  it("is lost if it ends as soon as it was met, even if there is nothing to list", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers["server/discover"] = () => {
      queueMicrotask(() => s.disconnect());
      return `"result":${JSON.stringify({ ...DISCOVER_RESULT, capabilities: {} })}`;
    };
    const { hub } = await meet(s);
    await turn();
    assert.equal(connectionStatusOf(hub, "s").state, "failed");
  });
});

describe("a modern server that is met for a client of old", () => {
  it("is told with each request who asks, and from which level on that one wants logs", async () => {
    const { client, s } = await begin(new ModernScriptedServer("x"), ABLE);
    await callTool(client, "s__x");
    await sendRequest(client, "logging/setLevel", { level: "error" });
    client.send(callRequest(5, "s__x", {}, { _meta: { progressToken: "p", mine: 1 } }));
    await client.find(isResponseTo(5));
    const [first, second] = s.messagesOf("tools/call").map(metaOf);
    assert.deepEqual(first, {
      [MetaKey.version]: "2026-07-28",
      [MetaKey.client]: { name: "t", version: "1" },
      [MetaKey.capabilities]: { roots: {}, sampling: {}, elicitation: { form: {}, url: {} } },
      [MetaKey.level]: "info",
    });
    assert.equal(second?.[MetaKey.level], "error");
    assert.equal(second?.["mine"], 1);
    for (const { params } of s.messagesOf("tools/list")) assert.ok(params?.["_meta"]);
  });

  it("and is modern is not told that the roots are others", async () => {
    const { client, s } = await begin(new ModernScriptedServer("x"), ABLE);
    client.send({ jsonrpc: "2.0", method: "notifications/roots/list_changed" });
    await callTool(client, "s__x");
    assert.ok(!methods(s).includes("notifications/roots/list_changed"));
  });

  it("is asked by discovering for a sign of life", async () => {
    const { clock, s } = await begin(new ModernScriptedServer("x"));
    const before = s.messagesOf("server/discover").length;
    await clock.advanceAsync(30_000);
    await clock.advanceAsync(30_000);
    assert.ok(s.messagesOf("server/discover").length > before);
    assert.equal(s.messagesOf("ping").length, 0);
    assert.equal(s.transportCount, 1);
  });
});

describe("a modern server that wants more", () => {
  const rounds = (...answers: string[]): ModernScriptedServer => {
    const s = new ModernScriptedServer("x");
    s.onCall = (message, text) => {
      const next = answers[s.messagesOf("tools/call").length - 1];
      return next ?? new ModernScriptedServer().onCall(message, text);
    };
    return s;
  };

  it("gets it of a client of old, and the same request again, with its state as it spelled it", async () => {
    const odd = String.raw`a\"\\ \u00e9\ud83d\ude00 ü\n{}`;
    const s = rounds(
      `"result":{"\\u0072esultType":"\\u0069nput_required","inputRequests":${JSON.stringify({ "k 1": FORM_ELICITATION, ключ: SAMPLING_REQUEST, r: ROOTS_REQUEST, p: URL_ELICITATION })},"requestState":"${odd}"}`,
    );
    const { client } = await begin(s, ABLE);
    const asked = answering(client, {
      "elicitation/create": { result: { action: "accept", content: { a: 1.0 } } },
      "sampling/createMessage": { result: { role: "assistant", model: "m", content: [] } },
      "roots/list": { result: { roots: [] } },
    });
    const { result } = await callTool(client, "s__x", { a: "b" });
    assert.ok(result);
    assert.equal(asked.length, 4);
    assert.equal(asked[0]?.params?.["message"], "[s] Which?");
    const page = asked.find(({ params }) => params?.["mode"] === "url");
    assert.match(String(page?.params?.["elicitationId"]), /^[0-9a-f-]{36}$/);
    const [first, second] = s.messagesOf("tools/call");
    assert.notEqual(first?.id, second?.id);
    assert.deepEqual(second?.params?.["arguments"], { a: "b" });
    assert.deepEqual(second?.params?.["inputResponses"], {
      "k 1": { action: "accept", content: { a: 1 } },
      ключ: { role: "assistant", model: "m", content: [] },
      r: { roots: [] },
      p: { action: "accept", content: { a: 1 } },
    });
    const text = s.newestPeer?.received.findLast((one) => one.includes("tools/call")) ?? "";
    assert.ok(text.includes(`"requestState":"${odd}"`));
    assert.ok(second?.params?.["_meta"]);
  });

  it("has its pages told to be done once it has answered, if people agreed to visit them", async () => {
    const other = {
      ...URL_ELICITATION,
      params: { ...URL_ELICITATION.params, elicitationId: "own" },
    };
    for (const [last, action, isPlugged, isReported] of [
      [undefined, "accept", false, true],
      [undefined, "accept", true, true],
      ['"error":{"code":-1,"message":"no"}', "accept", false, false],
      [undefined, "decline", false, false],
    ] as const) {
      const s = rounds(
        inputRequiredResult({ a: URL_ELICITATION, b: other, f: FORM_ELICITATION }),
        inputRequiredResult(undefined, "s"),
        ...(last === undefined ? [] : [last]),
      );
      const pass = callPlugin("pass", async (given, next) => next(given));
      const clock = new VirtualClock();
      const settings = { servers: AUTO, clock };
      const { client } = await setUpPluginHub(isPlugged ? [pass] : [], { s }, settings);
      await initialize(client, ABLE);
      const asked = answering(client, { "elicitation/create": { result: { action } } });
      client.send(callRequest(7, "s__x"));
      await s.newestPeer?.until(() => s.messagesOf("tools/call").length === 2);
      const isDone = ({ method }: Json): boolean => method === "notifications/elicitation/complete";
      assert.ok(!client.messages.some(isDone), "the server still wants more");
      await clock.advanceAsync(250);
      await client.find(isResponseTo(7));
      const { messages } = client;
      const done = messages.filter(isDone).map(({ params }) => params?.["elicitationId"]);
      const ids = asked.flatMap(({ params }) => params?.["elicitationId"] ?? []);
      assert.equal(ids.length, 2);
      assert.deepEqual(done, isReported ? ids : []);
      assert.ok(messages.findLastIndex(isDone) < messages.findIndex(isResponseTo(7)));
    }
  });

  it("gets no state if it gave none, and the answers of the last round only", async () => {
    const s = rounds(
      inputRequiredResult({ a: FORM_ELICITATION }, "one"),
      inputRequiredResult({ b: FORM_ELICITATION }),
    );
    const { client } = await begin(s, ABLE);
    answering(client, { "elicitation/create": { result: { action: "decline" } } });
    await callTool(client, "s__x");
    const [, second, third] = s.messagesOf("tools/call");
    assert.equal(second?.params?.["requestState"], "one");
    assert.ok(!("requestState" in (third?.params ?? {})));
    assert.deepEqual(third?.params?.["inputResponses"], { b: { action: "decline" } });
  });

  it("is asked again after a pause if it wants nothing", async () => {
    const s = rounds(inputRequiredResult(undefined, "later"), inputRequiredResult({}, "still"));
    const { client, clock } = await begin(s);
    client.send(callRequest(1, "s__x"));
    await clock.advanceAsync(249);
    assert.equal(s.messagesOf("tools/call").length, 1);
    await clock.advanceAsync(251);
    await client.find(isResponseTo(1));
    const [, second, third] = s.messagesOf("tools/call");
    assert.equal(second?.params?.["requestState"], "later");
    assert.equal(third?.params?.["requestState"], "still");
    assert.ok(!("inputResponses" in (third?.params ?? {})));
  });

  it("without end is given up after ten rounds", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () => inputRequiredResult(undefined, "more");
    const { client, clock } = await begin(s);
    client.send(callRequest(1, "s__x"));
    await clock.advanceAsync(5000);
    const { error } = await client.find(isResponseTo(1));
    assert.match(error?.message ?? "", /11 times/);
    assert.equal(s.messagesOf("tools/call").length, 11);
  });

  for (const nothing of [
    inputRequiredResult(undefined),
    inputRequiredResult({}),
    inputRequiredResult({ a: { params: {} } }),
    '"result":{"resultType":"input_required","inputRequests":[]}',
    inputRequiredResult(
      Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`k${i}`, FORM_ELICITATION])),
    ),
  ]) {
    it(`and says ${nothing.slice(0, 90)} fails the call`, async () => {
      const { client } = await begin(rounds(nothing), ABLE);
      const { error } = await callTool(client, "s__x");
      assert.match(error?.message ?? "", /does not say what/);
    });
  }

  it("gets a cancel where the client cannot be asked, has no answer, or will not", async () => {
    for (const [capabilities, answer] of [
      [{}, {}],
      [ABLE, { error: { code: -1, message: "no" } }],
      [{ elicitation: { url: {} } }, {}],
    ] as const) {
      const s = rounds(inputRequiredResult({ a: FORM_ELICITATION }));
      const { client } = await begin(s, capabilities);
      answering(client, { "elicitation/create": answer });
      await callTool(client, "s__x");
      const [, second] = s.messagesOf("tools/call");
      assert.deepEqual(second?.params?.["inputResponses"], { a: { action: "cancel" } });
    }
  });

  it("that cannot be had fails the call, and what else was asked is withdrawn", async () => {
    const s = rounds(inputRequiredResult({ a: FORM_ELICITATION, b: SAMPLING_REQUEST }));
    const { client } = await begin(s, ABLE);
    answering(client, { "sampling/createMessage": { error: { code: -1, message: "not now" } } });
    const { error } = await callTool(client, "s__x");
    assert.match(error?.message ?? "", /asked the client for "sampling\/createMessage".*not now/);
    const form = await client.find(({ method }) => method === "elicitation/create");
    const withdrawn = await client.find(({ method }) => method === "notifications/cancelled");
    assert.equal(withdrawn.params?.["requestId"], form.id);
    const other = rounds(inputRequiredResult({ a: ROOTS_REQUEST }));
    const { client: unable } = await begin(other);
    assert.match((await callTool(unable, "s__x")).error?.message ?? "", /roots\/list/);
  });

  it("lets the call's time stand still while the client is asked, but for ten minutes only", async () => {
    const s = rounds(inputRequiredResult({ a: FORM_ELICITATION }));
    const { client, clock } = await begin(s, ABLE);
    client.send(callRequest(1, "s__x"));
    await client.find(({ method }) => method === "elicitation/create");
    await clock.advanceAsync(5 * 60_000);
    assert.ok(!client.messages.some(isResponseTo(1)));
    await clock.advanceAsync(5 * 60_000);
    await client.find(isResponseTo(1));
    const [, second] = s.messagesOf("tools/call");
    assert.deepEqual(second?.params?.["inputResponses"], { a: { action: "cancel" } });
    await client.find(({ method }) => method === "notifications/cancelled");
  });

  it("has as long as any other once the client has answered", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () =>
      s.messagesOf("tools/call").length === 1
        ? inputRequiredResult({ a: FORM_ELICITATION })
        : undefined;
    const { client, clock } = await begin(s, ABLE);
    client.send(callRequest(1, "s__x"));
    const question = await client.find(({ method }) => method === "elicitation/create");
    await clock.advanceAsync(5 * 60_000);
    client.send({ jsonrpc: "2.0", id: question.id, result: { action: "decline" } });
    await clock.advanceAsync(59_000);
    assert.ok(!client.messages.some(isResponseTo(1)));
    await clock.advanceAsync(1000);
    assert.match(
      JSON.stringify(await client.find(isResponseTo(1))),
      /did not finish within 60 seconds/,
    );
  });

  it("gets nothing of that name that the client has written itself", async () => {
    const s = rounds(inputRequiredResult({ a: FORM_ELICITATION }, "mine"));
    const { client } = await begin(s, ABLE);
    answering(client, { "elicitation/create": { result: { action: "decline" } } });
    const more = { requestState: "forged", inputResponses: { a: { action: "accept" } } };
    client.send(callRequest(1, "s__x", {}, more));
    await client.find(isResponseTo(1));
    const text = s.newestPeer?.received.findLast((one) => one.includes("tools/call")) ?? "";
    assert.ok(!text.includes("forged") && !text.includes("accept"), text);
  });

  it("is told nothing more once the call is cancelled, and the client is not asked any more", async () => {
    const s = rounds(
      inputRequiredResult({ a: FORM_ELICITATION }),
      inputRequiredResult(undefined, "later"),
    );
    const { client, clock } = await begin(s, ABLE);
    client.send(callRequest(1, "s__x"));
    const question = await client.find(({ method }) => method === "elicitation/create");
    const params = { requestId: 1 };
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
    const withdrawn = await client.find(({ method }) => method === "notifications/cancelled");
    assert.equal(withdrawn.params?.["requestId"], question.id);
    client.send({ jsonrpc: "2.0", id: question.id, result: { action: "decline" } });
    client.send(callRequest(2, "s__x"));
    await turn();
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 2 } });
    await clock.advanceAsync(60_000);
    assert.equal(s.messagesOf("tools/call").length, 2);
    assert.ok(!client.messages.some((one) => isResponseTo(1)(one) || isResponseTo(2)(one)));
  });

  it("and ended meanwhile is started again and gets it", async () => {
    const s = rounds(inputRequiredResult({ a: FORM_ELICITATION }, "mine"));
    const servers: Servers = { s: { era: "auto" } };
    const { client, clock } = await begin(s, ABLE, servers);
    client.send(callRequest(1, "s__x"));
    const question = await client.find(({ method }) => method === "elicitation/create");
    s.disconnect();
    await turn();
    client.send({ jsonrpc: "2.0", id: question.id, result: { action: "decline" } });
    await clock.advanceAsync(2000);
    assert.ok((await client.find(isResponseTo(1))).result);
    assert.equal(s.transportCount, 2);
    assert.equal(s.messagesOf("tools/call")[1]?.params?.["requestState"], "mine");
  });

  it("may do so for prompts and resources, and nothing else", async () => {
    const s = new ModernScriptedServer("x");
    s.listings.resources = [{ uri: "x://1", name: "r" }] as never;
    s.handlers["resources/read"] = () =>
      s.messagesOf("resources/read").length === 1
        ? inputRequiredResult({ a: FORM_ELICITATION })
        : '"result":{"resultType":"complete","contents":[],"ttlMs":5,"cacheScope":"public"}';
    s.handlers["completion/complete"] = () => inputRequiredResult({ a: FORM_ELICITATION });
    const { client } = await begin(s, ABLE);
    answering(client, { "elicitation/create": { result: { action: "decline" } } });
    const { result } = await sendRequest(client, "resources/read", { uri: "x://1" });
    assert.deepEqual(result, { contents: [] });
  });

  for (const type of ["vendor/odd", "\\u006fdd"]) {
    it(`sends what the client cannot know (${type}), which is an error`, async () => {
      const { client } = await begin(rounds(`"result":{"resultType":"${type}","taskId":"1"}`));
      const { error } = await callTool(client, "s__x");
      assert.match(error?.message ?? "", /result of type "(vendor\/)?odd"/);
    });
  }

  it("that the client lacks says so in a result that models read", async () => {
    const lack =
      '"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{},"roots":{}}}}';
    const { client } = await begin(rounds(lack));
    const { result } = await callTool(client, "s__x");
    assert.equal(result?.["isError"], true);
    assert.match(JSON.stringify(result), /supports sampling and roots/);
  });
});

describe("a modern server that wants more of a modern client", () => {
  const wants = (): ModernScriptedServer => {
    const s = new ModernScriptedServer("x");
    s.onCall = (message, text) =>
      message.params?.["inputResponses"] === undefined
        ? inputRequiredResult({ k: FORM_ELICITATION, r: ROOTS_REQUEST }, 'm"ine')
        : new ModernScriptedServer().onCall(message, text);
    return s;
  };

  it("says so to the client itself, which is told who asks, and comes back by itself", async () => {
    const { client, s } = await begin(wants());
    const first = await sendModernRequest(client, "tools/call", { name: "s__x" }, ABLE_NOW);
    assert.deepEqual(first.result?.["inputRequests"], {
      k: { ...FORM_ELICITATION, params: { ...FORM_ELICITATION.params, message: "[s] Which?" } },
      r: ROOTS_REQUEST,
    });
    const { resultType, requestState } = first.result ?? {};
    assert.deepEqual([resultType, requestState], ["input_required", 'm"ine']);
    const inputResponses = { k: { action: "decline" }, r: { roots: [] } };
    const params = { name: "s__x", inputResponses, requestState };
    const { result } = await sendModernRequest(client, "tools/call", params, ABLE_NOW);
    assert.equal(result?.["resultType"], "complete");
    const [, second] = s.messagesOf("tools/call");
    assert.deepEqual(second?.params?.["inputResponses"], inputResponses);
    assert.equal(second?.params?.["requestState"], 'm"ine');
  });

  it("is told of the client what it says itself, whatever extensions there are", async () => {
    const { client, s } = await begin(new ModernScriptedServer("x"));
    const extensions = {
      "io.modelcontextprotocol/tasks": {},
      "io.modelcontextprotocol/ui": { a: 1.0 },
      "vendor/x": {},
    };
    await sendModernRequest(client, "tools/call", { name: "s__x" }, { sampling: {}, extensions });
    const [meta] = s.messagesOf("tools/call").map(metaOf);
    assert.deepEqual(meta?.[MetaKey.capabilities], {
      sampling: {},
      extensions: {
        "io.modelcontextprotocol/tasks": {},
        "io.modelcontextprotocol/ui": { a: 1 },
        "vendor/x": {},
      },
    });
    assert.deepEqual(meta?.[MetaKey.client], { name: "m", version: "2" });
  });

  it("is named also if it spells what it says oddly", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () =>
      `"result":{"resultType":"\\u0069nput_required","inputRequests":${JSON.stringify({ k: FORM_ELICITATION })}}`;
    const { client } = await begin(s);
    const { result } = await sendModernRequest(client, "tools/call", { name: "s__x" }, ABLE_NOW);
    assert.match(JSON.stringify(result), /\[s\] Which\?/);
  });

  it("may send what only an extension knows to who declares one", async () => {
    const extensions = { "io.modelcontextprotocol/ui": {} };
    for (const [type, capabilities, isKnown] of [
      ["vendor/odd", { extensions }, true],
      ["task", { extensions }, false],
      ["task", {}, false],
    ] as const) {
      const s = new ModernScriptedServer("x");
      s.onCall = () => `"result":{"resultType":"${type}","more":1.0}`;
      const { client } = await begin(s);
      const answer = await sendModernRequest(client, "tools/call", { name: "s__x" }, capabilities);
      assert.equal(answer.error === undefined, isKnown, type);
    }
  });

  it("and is cancelled while a plugin waits for it has its questions withdrawn", async () => {
    const s = wants();
    const watch = callPlugin("watch", (given, next) => next(given));
    const { client } = await setUpPluginHub([watch], { s }, { servers: AUTO });
    await initialize(client, ABLE);
    client.send(callRequest(1, "s__x"));
    const { id } = await client.find(({ method }) => method === "elicitation/create");
    const params = { requestId: 1 };
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
    const ends = (message: Json): boolean =>
      message.method === "notifications/cancelled" && message.params?.["requestId"] === id;
    await client.find(ends);
  });

  it("is asked on the client's behalf where plugins see the call, and they see its answer as of old", async () => {
    for (const isModern of [false, true]) {
      const s = wants();
      const seen: (string | undefined)[] = [];
      const watch = callPlugin("watch", async (given, next) => {
        const answer = await next(given);
        seen.push(answer.json);
        return answer;
      });
      const { client } = await setUpPluginHub([watch], { s }, { servers: AUTO });
      await initialize(client, ABLE);
      answering(client, {
        "elicitation/create": { result: { action: "decline" } },
        "roots/list": { result: { roots: [] } },
      });
      if (isModern) {
        const { result } = await sendModernRequest(
          client,
          "tools/call",
          { name: "s__x" },
          ABLE_NOW,
        );
        const asked = Object.entries(result?.["inputRequests"] ?? {}) as [string, Json][];
        assert.equal(asked.length, 2);
        const inputResponses = Object.fromEntries(
          asked.map(([key, { method }]) => [
            key,
            method === "roots/list" ? { roots: [] } : { action: "decline" },
          ]),
        );
        const { requestState } = result ?? {};
        const params = { name: "s__x", inputResponses, requestState };
        const last = await sendModernRequest(client, "tools/call", params, ABLE_NOW);
        assert.equal(last.result?.["resultType"], "complete");
      } else {
        assert.ok(!("resultType" in ((await callTool(client, "s__x")).result ?? {})));
      }
      const [, second] = s.messagesOf("tools/call");
      assert.equal(second?.params?.["requestState"], 'm"ine');
      assert.deepEqual(second?.params?.["inputResponses"], {
        k: { action: "decline" },
        r: { roots: [] },
      });
      assert.equal(seen.length, 1);
      assert.equal(seen[0]?.includes("resultType"), false);
    }
  });
});

describe("a result of a modern server for a client of old", () => {
  const server = `"_meta":{"${MetaKey.server}":{"name":"s","version":"1"}}`;
  for (const [what, body, left] of [
    ["says nothing of its own in _meta", `"a":1,${server}`, `"a":1`],
    ["has an empty _meta", `"a":1,"_meta":{}`, `"a":1,"_meta":{}`],
    [
      "is nested 10,000 deep",
      `"a":"}]","deep":${"[".repeat(10_000)}${"]".repeat(10_000)},${server}`,
      `"a":"}]","deep":${"[".repeat(10_000)}${"]".repeat(10_000)}`,
    ],
  ] as const) {
    it(`comes without what only the modern era has if it ${what}`, async () => {
      const s = new ModernScriptedServer("x");
      s.onCall = () => `"result":{"content":[],${body},"resultType":"complete"}`;
      const { client } = await begin(s);
      client.send(callRequest(7, "s__x"));
      const answers = (): readonly string[] =>
        client.received.filter((text) => text.includes('"content":[]'));
      await client.until(() => answers().length > 0);
      assert.ok(answers()[0]?.includes(`"result":{"content":[],${left}}`));
    });
  }
});

describe("what a modern server tells", () => {
  const WATCHED = { uri: "x://1", name: "r" };
  const watched = (): ModernScriptedServer => {
    const s = new ModernScriptedServer("x");
    s.listings.resources = [WATCHED, { uri: "x://2", name: "q" }] as never;
    return s;
  };
  const filterOf = (message: Json | undefined): unknown => message?.params?.["notifications"];
  const KINDS = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
  const cancelledIds = (s: ScriptedServer): unknown[] =>
    s.messagesOf("notifications/cancelled").map(({ params }) => params?.["requestId"]);
  const updated = (client: Peer): Json[] =>
    client.messages.filter(({ method }) => method === "notifications/resources/updated");

  it("is listened for with one request, and lists are read again", async () => {
    const { client, clock, s } = await begin(new ModernScriptedServer("x"));
    await listToolNames(client);
    assert.deepEqual(s.listenRequests.map(filterOf), [KINDS]);
    s.tools.push('{"name":"y","inputSchema":{"type":"object"}}');
    s.notifySubscription(s.listenRequests[0]?.id, "notifications/tools/list_changed");
    await turn();
    await clock.advanceAsync(1000);
    assert.deepEqual(await listToolNames(client), ["s__x", "s__y"]);
  });

  it("is listened for anew when somebody wants more, before the last one ends", async () => {
    const { client, s } = await begin(watched());
    await listToolNames(client);
    s.handlers["subscriptions/listen"] = () => undefined;
    client.send({ jsonrpc: "2.0", id: 1, method: "resources/subscribe", params: { uri: "x://1" } });
    await turn();
    const [first, second] = s.listenRequests;
    assert.deepEqual(filterOf(second), { ...KINDS, resourceSubscriptions: ["x://1"] });
    assert.deepEqual(cancelledIds(s), []);
    assert.ok(!client.messages.some(isResponseTo(1)), "it is not agreed yet");
    if (second !== undefined) s.acknowledge(second);
    await client.find(isResponseTo(1));
    await turn();
    assert.deepEqual(cancelledIds(s), [first?.id]);
    s.notifySubscription(second?.id, "notifications/resources/updated", {
      uri: "x://1",
      extra: 1.5,
    });
    const note = await client.find(({ method }) => method === "notifications/resources/updated");
    assert.deepEqual(note.params, { uri: "x://1", extra: 1.5, _meta: {} });
    await sendRequest(client, "resources/unsubscribe", { uri: "x://1" });
    await turn();
    assert.deepEqual(filterOf(s.listenRequests[2]), KINDS);
  });

  it("is listened for once more only, whatever comes while that is not acknowledged", async () => {
    const { client, s } = await begin(watched());
    await listToolNames(client);
    s.handlers["subscriptions/listen"] = () => undefined;
    for (const [id, uri] of [
      [1, "x://1"],
      [2, "x://2"],
    ] as const) {
      client.send({ jsonrpc: "2.0", id, method: "resources/subscribe", params: { uri } });
    }
    await turn();
    assert.equal(s.listenRequests.length, 2);
    if (s.listenRequests[1] !== undefined) s.acknowledge(s.listenRequests[1]);
    await client.find(isResponseTo(1));
    await turn();
    const third = s.listenRequests[2];
    assert.deepEqual(filterOf(third), { ...KINDS, resourceSubscriptions: ["x://1", "x://2"] });
    if (third !== undefined) s.acknowledge(third);
    await client.find(isResponseTo(2));
  });

  it("is not listened for at all if nobody wants anything", async () => {
    const s = watched();
    const capabilities = { tools: {}, resources: { subscribe: true } };
    s.handlers["server/discover"] = () =>
      `"result":${JSON.stringify({ ...DISCOVER_RESULT, capabilities })}`;
    const { client } = await begin(s);
    await listToolNames(client);
    assert.equal(s.listenRequests.length, 0);
    await sendRequest(client, "resources/subscribe", { uri: "x://1" });
    assert.deepEqual(s.listenRequests.map(filterOf), [{ resourceSubscriptions: ["x://1"] }]);
    await sendRequest(client, "resources/unsubscribe", { uri: "x://1" });
    await turn();
    assert.deepEqual(cancelledIds(s), [s.listenRequests[0]?.id]);
    assert.equal(s.listenRequests.length, 1);
  });

  it("that never says what it will tell is taken at its silence", async () => {
    const s = watched();
    s.handlers["subscriptions/listen"] = () => undefined;
    const { client, clock } = await begin(s);
    client.send({ jsonrpc: "2.0", id: 1, method: "resources/subscribe", params: { uri: "x://1" } });
    await clock.advanceAsync(20_000);
    assert.ok((await client.find(isResponseTo(1))).result);
  });

  it("that does not know how to be listened to is there without", async () => {
    const s = watched();
    s.handlers["subscriptions/listen"] = () => METHOD_NOT_FOUND;
    const { client, clock } = await begin(s);
    assert.deepEqual(await listToolNames(client), ["s__x"]);
    await clock.advanceAsync(100_000);
    assert.equal(s.listenRequests.length, 1);
    const { error } = await sendRequest(client, "resources/subscribe", { uri: "x://1" });
    assert.match(error?.message ?? "", /does not tell/);
  });

  it("may be less than was asked for: who asked for the rest is told", async () => {
    const s = watched();
    const { client } = await begin(s);
    await listToolNames(client);
    s.handlers["subscriptions/listen"] = (message) => {
      s.acknowledge(message, { ...KINDS, resourceSubscriptions: [] });
      return undefined;
    };
    const { error } = await sendRequest(client, "resources/subscribe", { uri: "x://1" });
    assert.match(error?.message ?? "", /does not tell of changes of "x:\/\/1"/);
    assert.deepEqual(filterOf(s.listenRequests.at(-1)), KINDS);
  });

  for (const [form, end] of [
    [
      "an answer",
      (s: ModernScriptedServer, id: unknown) =>
        s.newestPeer?.send({ jsonrpc: "2.0", id, result: { resultType: "complete" } }),
    ],
    [
      "an error",
      (s: ModernScriptedServer, id: unknown) =>
        s.newestPeer?.send({ jsonrpc: "2.0", id, error: { code: -1, message: "x" } }),
    ],
    [
      "a cancel",
      (s: ModernScriptedServer, id: unknown) =>
        s.notifySubscription(id, "notifications/cancelled", { requestId: id }),
    ],
  ] as const) {
    it(`is listened for again, ever later, if it ends with ${form}, and nobody misses anything`, async () => {
      const s = watched();
      const { client, clock } = await begin(s);
      await listToolNames(client);
      await sendRequest(client, "resources/subscribe", { uri: "x://1" });
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
      assert.ok(updated(client).length >= 3);
      await clock.advanceAsync(5000);
      assert.ok(s.messagesOf("tools/list").length > lists);
      await clock.advanceAsync(30_000);
      end(s, s.listenRequests.at(-1)?.id);
      await clock.advanceAsync(100);
      assert.equal(s.listenRequests.length, count + 1, "one that held begins anew");
    });
  }

  it("is subscribed to again when the server has ended", async () => {
    const s = watched();
    const { client, clock } = await begin(s, {}, { s: { era: "auto" } });
    await listToolNames(client);
    await sendRequest(client, "resources/subscribe", { uri: "x://1" });
    s.disconnect();
    await clock.advanceAsync(2000);
    await turn();
    assert.equal(s.transportCount, 2);
    assert.deepEqual(filterOf(s.listenRequests.at(-1)), {
      ...KINDS,
      resourceSubscriptions: ["x://1"],
    });
    assert.ok(updated(client).length > 0);
  });

  it("is not waited for where it tells nothing: lists are read again when they are as old as they may get", async () => {
    for (const [ttlMs, first] of [
      [5000, 5000],
      [1, 1000],
      [1e15, 24 * 3_600_000],
    ] as const) {
      const s = new ModernScriptedServer("x");
      const capabilities = { tools: {}, prompts: { listChanged: true } };
      s.handlers["server/discover"] = () =>
        `"result":${JSON.stringify({ ...DISCOVER_RESULT, capabilities })}`;
      s.onList = () => `"result":{"tools":[],"ttlMs":${ttlMs},"cacheScope":"public"}`;
      s.handlers["prompts/list"] = () => '"result":{"prompts":[],"ttlMs":1000}';
      const { clock } = await begin(s, {}, { s: { era: "auto", healthInterval: 0 } });
      await clock.advanceAsync(first - 1);
      assert.equal(s.messagesOf("tools/list").length, 1);
      await clock.advanceAsync(1);
      assert.equal(s.messagesOf("tools/list").length, 2);
      await clock.advanceAsync(first + 200);
      assert.equal(s.messagesOf("tools/list").length, 3);
      assert.equal(s.messagesOf("prompts/list").length, 1);
      s.onList = () => '"result":{"tools":[],"ttlMs":0}';
      await clock.advanceAsync(first + 200);
      await clock.advanceAsync(10 * first);
      assert.equal(s.messagesOf("tools/list").length, 4);
    }
  });

  it("in its log goes to the one client whose requests may have led to it", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () => undefined;
    const { client, connect } = await begin(s);
    const other = connect();
    await initialize(other);
    const log = (data: string): void => {
      const params = { level: "warning", logger: "l", data };
      s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
    };
    const received = (peer: Peer): unknown[] =>
      peer.messages
        .filter(({ method }) => method === "notifications/message")
        .map(({ params }) => params?.["data"]);
    log("nobody");
    client.send(callRequest(1, "s__x"));
    client.send(callRequest(2, "s__x"));
    await turn();
    log("one");
    await turn();
    other.send(callRequest(1, "s__x"));
    await turn();
    log("either");
    await turn();
    assert.deepEqual([received(client), received(other)], [["one"], []]);
  });

  it("in its log goes to nobody if several may have led to it who say the same of themselves", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () => undefined;
    const { client, connect } = await begin(s);
    const clients = [client, connect()];
    const log = async (data: string): Promise<void> => {
      await turn();
      const params = { level: "warning", data };
      s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
      await turn();
    };
    const _meta = { [MetaKey.level]: "debug" };
    for (const [at, each] of clients.entries()) {
      for (const id of [1, 2]) each.send(modernRequest(id, "tools/call", { name: "s__x", _meta }));
      await log(`${at}`);
    }
    const received = clients.map(({ messages }) =>
      messages.flatMap(({ method, params }) =>
        method === "notifications/message" ? [params?.["data"]] : [],
      ),
    );
    assert.deepEqual(received, [["0"], []]);
  });

  it("in its log goes to nobody while another client's call is not answered that was given up", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () => undefined;
    const { client, connect, clock } = await begin(s);
    const other = connect();
    await initialize(other);
    const _meta = { [MetaKey.level]: "debug" };
    const received = async (data: string): Promise<boolean> => {
      const params = { level: "warning", data };
      s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/message", params });
      await turn();
      return client.messages.some((message) => message.params?.["data"] === data);
    };
    other.send(modernRequest(1, "tools/call", { name: "s__x", _meta }));
    await turn();
    const cancel = { requestId: 1 };
    other.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: cancel });
    client.send(modernRequest(1, "tools/call", { name: "s__x", _meta }));
    await turn();
    assert.equal(await received("either"), false);
    await clock.advanceAsync(10 * 60_000);
    client.send(modernRequest(2, "tools/call", { name: "s__x", _meta }));
    await turn();
    assert.equal(await received("its own"), true);
  });

  it("that is a request is answered at once that there is no such method", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = () => undefined;
    const { client } = await meet(s, ABLE_NOW);
    client.send(modernRequest(1, "tools/call", { name: "s__x" }, ABLE_NOW));
    await turn();
    for (const method of ["sampling/createMessage", "ping", "roots/list"]) {
      s.newestPeer?.send({ jsonrpc: "2.0", id: method, method, params: {} });
      await turn();
      const answer = s.newestPeer?.messages.find(isResponseTo(method));
      assert.equal(answer?.error?.code, -32601);
    }
    assert.ok(!client.messages.some(({ method }) => method !== undefined));
  });

  it("of progress goes to who asked", async () => {
    const s = new ModernScriptedServer("x");
    s.onCall = (message, text) => {
      const { progressToken } = metaOf(message);
      const params = { progressToken, progress: 1 };
      s.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params });
      return new ModernScriptedServer().onCall(message, text);
    };
    const { client } = await begin(s);
    client.send(callRequest(1, "s__x", {}, { _meta: { progressToken: "mine" } }));
    const { params } = await client.find(({ method }) => method === "notifications/progress");
    assert.deepEqual(params, { progressToken: "mine", progress: 1 });
  });
});
