import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import type { HubOptions } from "../../src/hub/options.ts";
import type { RemoteServer } from "../../src/manifest/manifest.ts";
import type { AuthorizationRun } from "../../src/upstream/authorization.ts";
import {
  ALL_CAPABILITIES,
  INITIALIZED,
  messagesOfMethod,
  SAMPLING_PARAMS,
  waitForRequest,
} from "../fixtures/server-requests.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  Latch,
  listToolNames,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { modernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";
import { cancel, codeOf, isOf, post, respond } from "../fixtures/peer-messages.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import {
  lastRequest,
  overStreamedTransports,
  type StreamedRequest,
  remoteManifest,
  type StreamedTransport,
} from "../fixtures/streamed-transport.ts";
import { createTask, LegacyTaskServer } from "../fixtures/legacy-task-server.ts";
import { callPlugin } from "../plugins/plugin-hub.ts";

const SAMPLING = "sampling/createMessage";
const CALL = "tools/call";
const LOG = "notifications/message";
const SILENCE = (): undefined => undefined;
const GREET = new ScriptedServer().onInitialize;
const AGAIN = (): string => '"result":{"content":[],"again":true}';
const ASKS = { jsonrpc: "2.0", id: "s-1", method: SAMPLING, params: SAMPLING_PARAMS };
const UNREACHABLE = (): Promise<void> =>
  Promise.reject(new HubError("unreachable", "Nobody is there."));

async function begin<S extends ScriptedServer>(
  s: S,
  settings: Partial<RemoteServer> = {},
  authorize?: HubOptions["authorize"],
) {
  const links = overStreamedTransports(s);
  const era = s instanceof ModernScriptedServer ? "modern" : "legacy";
  const manifest = remoteManifest({ s: { era, ...settings } });
  const setup = setUpHubWithClock({ s }, { manifest, ...(authorize && { authorize }) });
  await introduce(setup.client);
  const status = () => connectionStatusOf(setup.hub, "s");
  return {
    ...setup,
    s,
    links,
    status,
    state: () => status().state,
    /** Loses the latest request of this method. */
    lose: (code: HubError["code"], method = CALL) =>
      links.at(-1)?.loseRequest(lastRequest(links, method), code),
    /** Says on the stream of a call, by default of the latest one, what is by default a question. */
    say: (message: object = ASKS, call = lastRequest(links, CALL)) =>
      links.at(-1)?.sendOnStream(call, message),
  };
}

async function introduce(client: Peer): Promise<Peer> {
  await initialize(client, ALL_CAPABILITIES);
  client.send(INITIALIZED);
  await turn();
  return client;
}

/** A server that does not answer calls until it is told to. */
function hanging<S extends ScriptedServer>(s: S): S {
  s.onCall = SILENCE;
  return s;
}

/** The same with a call of the client. */
async function beginCall(
  s: ScriptedServer = hanging(new ScriptedServer("x")),
  settings: Partial<RemoteServer> = {},
  authorize?: HubOptions["authorize"],
) {
  const setup = await begin(s, settings, authorize);
  setup.client.send(callRequest(1, "s__x"));
  await turn();
  return { ...setup, answer: () => setup.client.find(isResponseTo(1)) };
}

/** The same with calls of two clients. */
async function beginTwo(s = hanging(new ScriptedServer("x")), settings = {}) {
  const setup = await begin(s, settings);
  const other = await introduce(setup.connect());
  setup.client.send(callRequest(1, "s__x"));
  other.send(callRequest(2, "s__x"));
  await turn();
  const [first, second] = requestsOf(setup.links, CALL);
  assert.ok(first && second);
  return { ...setup, other, first, second };
}

const requestsOf = (
  links: readonly StreamedTransport[],
  method: string,
): readonly StreamedRequest[] =>
  links.flatMap(({ requests }) => requests.filter(({ json }) => json.method === method));

const tool = (name: string, more: object = {}): string =>
  JSON.stringify({ name, inputSchema: { type: "object" }, ...more });

const REGION = { region: { type: "string", "x-mcp-header": "Region" } };
const ANNOTATED = tool("x", { inputSchema: { type: "object", properties: REGION } });

const textOfResult = ({ result }: Json): string =>
  (result?.["content"] as { text: string }[] | undefined)?.map(({ text }) => text).join() ?? "";

/** A cancel of the request with this id. */
const isCancelOf =
  (id: unknown) =>
  (message: Json): boolean =>
    isOf("notifications/cancelled")(message) && message.params?.["requestId"] === id;

describe("a request about a task of a legacy server", () => {
  it("is sent again when its answer is lost, as it only reads", async () => {
    const { client, s, lose, clock } = await begin(new LegacyTaskServer());
    const id = await createTask(client, "s__x");
    const { handlers } = s;
    s.handlers = { ...handlers, "tasks/get": SILENCE };
    const answer = sendRequest(client, "tasks/get", { taskId: id });
    await turn();
    s.handlers = handlers;
    lose("answerLost", "tasks/get");
    await clock.advanceAsync(1000);
    assert.equal((await answer).result?.["taskId"], id);
  });
});

describe("a ping over HTTP", () => {
  for (const code of ["serverRefused", "serverFailed"] as const) {
    it(`is a sign of life also where it is turned away (${code})`, async () => {
      const s = Object.assign(new ScriptedServer("x"), { onPing: SILENCE });
      const { links, clock, lose } = await begin(s);
      for (let n = 1; n <= 5; n++) {
        await clock.advanceAsync(30_000);
        lose(code, "ping");
      }
      assert.equal(links.length, 1);
    });
  }

  it("is let go of when the next one is sent", async () => {
    const s = Object.assign(hanging(new ScriptedServer("x")), { onPing: SILENCE });
    const { links, clock } = await beginCall(s, { callTimeout: 600_000 });
    await clock.advanceAsync(150_000);
    const abandoned = requestsOf(links, "ping").map(({ isAbandoned }) => isAbandoned);
    assert.ok(abandoned.length > 2);
    assert.deepEqual(abandoned, [...abandoned.slice(1).map(() => true), false]);
  });
});

describe("what a server over HTTP says on the stream of a request", () => {
  it("reaches that request's client alone, although several share the server", async () => {
    const { client, other, first, second, links, say } = await beginTwo();
    say({ ...ASKS, id: "s-0" }, first);
    say(ASKS, second);
    const atFirst = await waitForRequest(client, SAMPLING);
    const atSecond = await waitForRequest(other, SAMPLING);
    const counts = [client, other].map((peer) => messagesOfMethod(peer, SAMPLING).length);
    assert.deepEqual(counts, [1, 1]);
    respond(other, atSecond.id, { of: "other" });
    respond(client, atFirst.id, { of: "client" });
    await turn();
    const answers = ["s-0", "s-1"].flatMap((id) => links[0]?.responsesTo(id) ?? []);
    const origins = answers.map(({ result }) => result?.["of"]);
    assert.deepEqual(origins, ["client", "other"]);
  });

  it("is refused to a server that says it on no request's stream while several clients call", async () => {
    const { links, s } = await beginTwo();
    s.newestPeer?.send(ASKS);
    await turn();
    assert.match(links[0]?.responsesTo("s-1")[0]?.error?.message ?? "", /isolation = "perClient"/);
  });

  const ends: Record<string, (setup: Awaited<ReturnType<typeof beginCall>>) => void> = {
    "is cancelled": ({ client }) => cancel(client, 1, "enough"),
    "was answered": ({ links }) => links[0]?.respond(lastRequest(links, CALL), { content: [] }),
    "was lost": ({ lose }) => lose("answerLost"),
  };
  for (const [how, end] of Object.entries(ends)) {
    it(`is over when the request ${how}: the client is told, and the server gets an error`, async () => {
      const setup = await beginCall();
      await introduce(setup.connect());
      setup.say();
      const { id } = await waitForRequest(setup.client, SAMPLING);
      end(setup);
      await setup.client.find(isCancelOf(id));
      assert.match(setup.links[0]?.responsesTo("s-1")[0]?.error?.message ?? "", /has ended/);
    });
  }

  it("stops the time of that request alone while its client is asked", async () => {
    const { client, other, first, clock, say } = await beginTwo(undefined, { callTimeout: 1000 });
    say(ASKS, first);
    await clock.advanceAsync(2000);
    assert.match(textOfResult(await other.find(isResponseTo(2))), /did not finish/);
    assert.equal(client.messages.some(isResponseTo(1)), false);
  });

  for (const era of ["legacy", "modern"]) {
    it(`is logged to that request's client (${era})`, async () => {
      const s = era === "modern" ? new ModernScriptedServer("x") : new ScriptedServer("x");
      const { client, other, second, say } = await beginTwo(hanging(s));
      say({ jsonrpc: "2.0", method: LOG, params: { level: "error", data: "hello" } }, second);
      await other.find(isOf(LOG));
      assert.deepEqual(messagesOfMethod(client, LOG), []);
    });
  }

  it("asks a modern client for the very request on whose stream it is, while others run", async () => {
    const s = hanging(new ScriptedServer("x"));
    const links = overStreamedTransports(s);
    const { client, clock } = setUpHubWithClock({ s }, { manifest: remoteManifest({ s: {} }) });
    for (const id of [1, 2])
      client.send(modernRequest(id, CALL, { name: "s__x" }, { sampling: {} }));
    await turn();
    const [, second] = requestsOf(links, CALL);
    assert.ok(second);
    links[0]?.sendOnStream(second, ASKS);
    await clock.advanceAsync(100);
    const { result } = await client.find(isResponseTo(2));
    assert.equal(result?.["resultType"], "input_required");
    assert.equal(client.messages.some(isResponseTo(1)), false);
  });
});

describe("a modern server over HTTP", () => {
  const LISTEN = "subscriptions/listen";

  it("is met with the revision in a header, spoken to in it from then on, and listened to again if that stream is lost", async () => {
    const { links, clock, lose } = await begin(new ModernScriptedServer("x"));
    const { headers } = lastRequest(links, "server/discover").options;
    assert.deepEqual(headers, { "MCP-Protocol-Version": "2026-07-28" });
    assert.deepEqual(links[0]?.protocol, { era: "modern", version: "2026-07-28" });
    assert.equal(requestsOf(links, LISTEN).length, 1);
    lose("answerLost", LISTEN);
    await clock.advanceAsync(1000);
    assert.equal(requestsOf(links, LISTEN).length, 2);
  });
});

describe("a call that a server over HTTP has not answered", () => {
  for (const [era, server, cancels] of [
    ["modern", new ModernScriptedServer("x"), 0],
    ["legacy", new ScriptedServer("x"), 1],
  ] as const) {
    it(`is let go of when it is cancelled, and told so ${cancels} times, in the ${era} era`, async () => {
      const { client, links } = await beginCall(hanging<ScriptedServer>(server));
      cancel(client, 1);
      await turn();
      assert.equal(lastRequest(links, CALL).isAbandoned, true);
      assert.equal(links[0]?.sentMessages("notifications/cancelled").length, cancels);
    });
  }

  it("fails in the end if it never is delivered", async () => {
    const { client, links, clock, answer, lose } = await beginCall();
    for (let count = 0; count < 20 && !client.messages.some(isResponseTo(1)); count++) {
      await turn();
      lose("notDelivered");
      await clock.advanceAsync(2000);
    }
    assert.equal(codeOf(await answer()), "notDelivered");
    assert.equal(requestsOf(links, CALL).length, 8);
  });

  for (const hint of ["readOnlyHint", "idempotentHint"]) {
    it(`is sent again twice at most if it may have run and says ${hint}`, async () => {
      const s = hanging(new ScriptedServer());
      s.tools = [tool("x", { annotations: { [hint]: true } })];
      const { links, clock, answer, lose } = await beginCall(s);
      for (const count of [1, 2, 3]) {
        await turn();
        assert.equal(requestsOf(links, CALL).length, count);
        lose("answerLost");
        await clock.advanceAsync(5000);
      }
      assert.equal((await answer()).result?.["isError"], true);
      assert.equal(requestsOf(links, CALL).length, 3);
    });
  }

  it("is not sent again once it was cancelled", async () => {
    const { client, links, clock, lose } = await beginCall();
    lose("notDelivered");
    cancel(client, 1);
    await clock.advanceAsync(5000);
    assert.equal(requestsOf(links, CALL).length, 1);
  });

  it("is sent to the next session if the link has ended before it was sent", async () => {
    const s = hanging(new ScriptedServer());
    s.tools = [tool("x", { annotations: { readOnlyHint: true } })];
    const { clock, answer } = await beginCall(s);
    s.onCall = AGAIN;
    s.disconnect();
    await clock.advanceAsync(5000);
    assert.equal((await answer()).result?.["again"], true);
  });

  type Run = Parameters<typeof callPlugin>[1];

  /** The same where a plugin sees the call; without one if there is none. */
  async function beginWith(run: Run | undefined, s: ScriptedServer) {
    const clock = new VirtualClock();
    const links = overStreamedTransports(s);
    const era = s instanceof ModernScriptedServer ? "modern" : "legacy";
    const manifest = remoteManifest({ s: { era } });
    const uses = run === undefined ? [] : [callPlugin("p", run)];
    const { client } = await setUpPluginHub(uses, { s }, { manifest, clock, random: () => 0 });
    await initialize(client, ALL_CAPABILITIES);
    return { client, links, clock };
  }

  const runs: Record<string, Run | undefined> = {
    "": undefined,
    " by a plugin that passes it on": (asked, next) => next(asked),
    " by a plugin that looks at it": async (asked, next) => await next(asked),
  };
  for (const [what, run] of Object.entries(runs)) {
    it(`is sent again if it was not delivered, and answered${what}`, async () => {
      const s = hanging(new ScriptedServer("x"));
      const { client, links, clock } = await beginWith(run, s);
      client.send(callRequest(1, "s__x"));
      await turn();
      s.onCall = AGAIN;
      links[0]?.loseRequest(lastRequest(links, CALL), "notDelivered");
      await clock.advanceAsync(100);
      assert.equal((await client.find(isResponseTo(1))).result?.["again"], true);
    });

    it(`is not sent again if it may have run, and the model is told so${what}`, async () => {
      const { client, links, clock } = await beginWith(run, hanging(new ScriptedServer("x")));
      client.send(callRequest(1, "s__x"));
      await turn();
      links[0]?.loseRequest(lastRequest(links, CALL), "answerLost");
      await clock.advanceAsync(5000);
      const answer = await client.find(isResponseTo(1));
      assert.equal(answer.result?.["isError"], true);
      assert.match(textOfResult(answer), /may have run.*not called again/);
      assert.equal(requestsOf(links, CALL).length, 1);
    });
  }

  it("repeats in headers what plugins have made of its arguments", async () => {
    const s = Object.assign(new ModernScriptedServer(), { tools: [ANNOTATED] });
    const rewrite: Run = (asked, next) => next(asked.with({ arguments: { region: "theirs" } }));
    const { client, links } = await beginWith(rewrite, s);
    await callTool(client, "s__x", { region: "ours" });
    assert.deepEqual(lastRequest(links, CALL).options.headers, { "Mcp-Param-Region": "theirs" });
  });
});

describe("a server over HTTP that takes longer than connectTimeout", () => {
  it("is late, and joins when it answers, on the same link", async () => {
    const s = Object.assign(new ScriptedServer("x"), { onInitialize: SILENCE });
    const limits = { connectTimeout: 30_000, startLimit: 300_000 };
    const { client, status, links, clock, answer } = await beginCall(s, limits);
    await clock.advanceAsync(31_000);
    assert.equal(codeOf(await answer()), "connectTimeout");
    assert.deepEqual([status().state, status().late], ["connecting", 31_000]);
    const greeting = lastRequest(links, "initialize");
    const { result } = JSON.parse(`{${GREET(greeting.json, "")}}`) as { result: object };
    links[0]?.respond(greeting, result);
    await clock.advanceAsync(1000);
    assert.deepEqual([status().state, links.length], ["connected", 1]);
    assert.ok((await callTool(client, "s__x")).result);
  });
});

describe("a server over HTTP that is lost", () => {
  it("is looked for at once, and until it is there again, while calls wait", async () => {
    const { s, client, clock, state } = await begin(new ScriptedServer("x"));
    await clock.advanceAsync(2000);
    s.onOpen = UNREACHABLE;
    s.disconnect();
    await turn();
    const answer = callTool(client, "s__x");
    await clock.advanceAsync(3000);
    assert.equal(state(), "connecting");
    s.onOpen = undefined;
    await clock.advanceAsync(300);
    assert.ok((await answer).result);
  });

  it("holds up the start of no other while it is looked for", async () => {
    const [s, t] = [new ScriptedServer("x"), new ScriptedServer("y")];
    for (const script of [s, t]) overStreamedTransports(script);
    const basis = remoteManifest({ s: {}, t: { lazy: true } });
    const manifest = { ...basis, hub: { ...basis.hub, parallelStarts: 1 } };
    const { client, clock, hub } = setUpHubWithClock({ s, t }, { manifest });
    await initialize(client, ALL_CAPABILITIES);
    await clock.advanceAsync(2000);
    await hub.stop("t");
    s.onOpen = UNREACHABLE;
    s.disconnect();
    await clock.advanceAsync(100);
    hub.start("t");
    await turn();
    const states = ["t", "s"].map((name) => connectionStatusOf(hub, name).state);
    assert.deepEqual(states, ["connected", "connecting"]);
  });

  it("is waited for as others are if it does not come back soon", async () => {
    const { s, clock, state } = await begin(new ScriptedServer("x"), { connectTimeout: 60_000 });
    await clock.advanceAsync(2000);
    s.onOpen = UNREACHABLE;
    s.disconnect();
    await clock.advanceAsync(10_500);
    assert.equal(state(), "reconnecting");
  });

  it("is told again what clients have subscribed to", async () => {
    const s = new ScriptedServer("x");
    s.listings = { resources: [{ uri: "a:1", name: "one" }] };
    s.handlers = { "resources/subscribe": () => '"result":{}' };
    const { client, clock } = await begin(s);
    await sendRequest(client, "resources/subscribe", { uri: "a:1" });
    s.disconnect();
    await clock.advanceAsync(5000);
    assert.equal(s.messagesOf("resources/subscribe").length, 2);
    await client.find(isOf("notifications/resources/updated"));
  });

  it("is not looked for at once if it did not last", async () => {
    const { s, clock, state } = await begin(new ScriptedServer("x"));
    await clock.advanceAsync(500);
    s.disconnect();
    await turn();
    assert.equal(state(), "reconnecting");
  });
});

describe("a server over HTTP that wants an authorization", () => {
  const CHALLENGE = { status: 401, header: "Bearer" } as const;
  const PROGRESS = { step: "openingBrowser", url: "https://a.example/" } as const;
  const REFUSAL = new HubError("unauthorized", "Nobody wanted to.");

  /** A way to get one that does as the test says. */
  function makeAuthority() {
    const runs: AuthorizationRun[] = [];
    let settle: (error?: HubError) => void = () => {};
    const authorize: NonNullable<HubOptions["authorize"]> = (_, _schemes, _challenge, run) => {
      runs.push(run);
      return new Promise((resolve, reject) => {
        settle = (error) => (error === undefined ? resolve() : reject(error));
        run.signal.addEventListener("abort", () => reject(run.signal.reason as Error));
      });
    };
    return { runs, authorize, settle: (error?: HubError) => settle(error) };
  }

  /** A hub that can get one, and a server that answers nothing by itself. */
  async function beginAuthorizing(s = hanging(new ScriptedServer("x"))) {
    const authority = makeAuthority();
    const setup = await begin(s, {}, authority.authorize);
    /** The server challenges who has sent this. */
    const challenge = async (method = CALL): Promise<void> => {
      setup.lose("unauthorized", method);
      setup.links.at(-1)?.challenge(CHALLENGE);
      await turn();
    };
    const showPage = (): void => authority.runs[0]?.onProgress(PROGRESS);
    return { ...setup, ...authority, challenge, showPage };
  }

  /** The same after a call that was challenged. */
  async function challenged() {
    const setup = await beginAuthorizing();
    setup.client.send(callRequest(1, "s__x"));
    await turn();
    await setup.challenge();
    return { ...setup, answer: () => setup.client.find(isResponseTo(1)) };
  }

  it("is authorized while calls wait, which are then sent", async () => {
    const { settle, state, links, clock, s, answer } = await challenged();
    assert.equal(state(), "authenticating");
    await clock.advanceAsync(500);
    assert.equal(requestsOf(links, CALL).length, 1);
    s.onCall = AGAIN;
    settle();
    await turn();
    assert.equal((await answer()).result?.["again"], true);
    assert.deepEqual([state(), links.length], ["connected", 1]);
  });

  it("is waited for although it does not answer meanwhile, and given up after two minutes", async () => {
    const { state, status, s, clock } = await challenged();
    s.onPing = SILENCE;
    await clock.advanceAsync(119_000);
    assert.equal(state(), "authenticating");
    await clock.advanceAsync(1000);
    assert.equal(state(), "failed");
    assert.match(status().cause?.message ?? "", /120 seconds/);
  });

  it("refuses a call for good if it does not let it in once authorized either", async () => {
    const { settle, links, clock, lose, answer } = await challenged();
    settle();
    await turn();
    assert.equal(requestsOf(links, CALL).length, 2);
    lose("unauthorized");
    await clock.advanceAsync(1000);
    assert.equal(codeOf(await answer()), "unauthorized");
    assert.equal(requestsOf(links, CALL).length, 2);
  });

  it("is met anew if it has let nobody in yet", async () => {
    const silent = Object.assign(new ScriptedServer("x"), { onInitialize: SILENCE });
    const { s, state, links, challenge, settle } = await beginAuthorizing(silent);
    await challenge("initialize");
    assert.equal(state(), "authenticating");
    Object.assign(s, { onInitialize: GREET });
    settle();
    await turn();
    assert.deepEqual([state(), links.length], ["connected", 2]);
  });

  it("shows how far that has come, and the page where it is given, also to whoever has waited for too long", async () => {
    const { hub, events, clock, status, showPage, answer } = await challenged();
    showPage();
    await turn();
    assert.deepEqual(status().progress, PROGRESS);
    const reported = events.findLast(({ kind }) => kind === "state");
    assert.deepEqual(reported?.kind === "state" && reported.progress, PROGRESS);
    assert.match(hub.snapshot().alerts[0]?.text ?? "", /https:\/\/a\.example\//);
    await clock.advanceAsync(60_000);
    assert.match(textOfResult(await answer()), /authoriz.*https:\/\/a\.example\/ /);
  });

  it("has the client whose call waits asked to open the page, and told when it is over", async () => {
    const { client, settle, showPage } = await challenged();
    showPage();
    const { id, params } = await waitForRequest(client, "elicitation/create");
    assert.equal(params?.["url"], PROGRESS.url);
    respond(client, id, { action: "accept" });
    await turn();
    settle();
    const done = await client.find(isOf("notifications/elicitation/complete"));
    assert.equal(done.params?.["elicitationId"], params?.["elicitationId"]);
  });

  for (const isClear of [true, false]) {
    it(`asks of several clients ${isClear ? "the one whose call waits" : "none if the calls of several wait"}`, async () => {
      const { client, connect, links, lose, showPage } = await beginAuthorizing();
      const other = await introduce(connect());
      other.send(callRequest(1, "s__x"));
      if (!isClear) client.send(callRequest(2, "s__x"));
      await turn();
      for (const call of requestsOf(links, CALL)) links[0]?.loseRequest(call, "unauthorized");
      lose("unauthorized");
      links[0]?.challenge(CHALLENGE);
      await turn();
      showPage();
      await turn();
      const asked = [client, other].map((peer) => messagesOfMethod(peer, "elicitation/create"));
      assert.deepEqual(
        asked.map(({ length }) => length),
        [0, isClear ? 1 : 0],
      );
    });
  }

  it("is left alone if the person at the client declines", async () => {
    const { client, showPage, answer } = await challenged();
    showPage();
    const { id } = await waitForRequest(client, "elicitation/create");
    respond(client, id, { action: "decline" });
    assert.equal(codeOf(await answer()), "unauthorized");
  });

  it("fails the calls that wait if there is none, and keeps its tools", async () => {
    const { client, state, clock, settle, answer } = await challenged();
    await clock.advanceAsync(200);
    settle(REFUSAL);
    assert.match((await answer()).error?.message ?? "", /Nobody wanted to/);
    await turn();
    assert.equal(state(), "failed");
    assert.deepEqual(await listToolNames(client), ["s__x"]);
  });

  it("is not tried again by calls before a minute is over, but by a person", async () => {
    const { client, hub, clock, s, runs, settle, answer, challenge } = await challenged();
    settle(REFUSAL);
    await answer();
    s.onInitialize = SILENCE;
    const second = callTool(client, "s__x");
    await turn();
    await challenge("initialize");
    assert.match((await second).error?.message ?? "", /Nobody wanted to/);
    assert.equal(runs.length, 1);
    hub.reconnect("s");
    await turn();
    await challenge("initialize");
    assert.equal(runs.length, 2);
    settle(REFUSAL);
    await turn();
    await clock.advanceAsync(61_000);
    post(client, 4, CALL, { name: "s__x" });
    await turn();
    await challenge("initialize");
    assert.equal(runs.length, 3);
  });

  it("is given up when it is stopped", async () => {
    const { hub, runs } = await challenged();
    await hub.stop("s");
    assert.equal(runs[0]?.signal.aborted, true);
  });

  it("goes on with what it lets the hub do if only more was refused", async () => {
    const { client, state, links, clock, lose, settle } = await beginAuthorizing();
    const answer = callTool(client, "s__x");
    await turn();
    lose("unauthorized");
    links[0]?.challenge({ status: 403, header: 'Bearer error="insufficient_scope"' });
    await clock.advanceAsync(100);
    settle(new HubError("unauthorized", "Not that much."));
    assert.match((await answer).error?.message ?? "", /Not that much/);
    assert.equal(state(), "connected");
  });

  it("fails at once where there is no way to get one", async () => {
    const { s, links, answer } = await beginCall();
    s.onInitialize = SILENCE;
    links[0]?.challenge(CHALLENGE);
    links[0]?.loseRequest(lastRequest(links, CALL), "unauthorized");
    await turn();
    links[1]?.challenge(CHALLENGE);
    links[1]?.loseRequest(lastRequest(links, "initialize"), "unauthorized");
    assert.equal(codeOf(await answer()), "unauthorized");
  });

  it("is not authorized again and again if it does not accept what it was given", async () => {
    const silent = Object.assign(new ScriptedServer("x"), { onInitialize: SILENCE });
    const { state, runs, challenge, settle } = await beginAuthorizing(silent);
    for (const _ of [1, 2, 3]) {
      await challenge("initialize");
      settle();
      await turn();
    }
    assert.deepEqual([runs.length, state()], [2, "failed"]);
  });
});

describe("a call to a modern server over HTTP", () => {
  const annotated = (): ModernScriptedServer =>
    Object.assign(new ModernScriptedServer(), { tools: [ANNOTATED] });

  /** Its next call finds that its headers are wrong, as its tools are others now. */
  function becomeAnnotated(s: ModernScriptedServer): void {
    const { onCall } = s;
    s.onCall = () => {
      Object.assign(s, { onCall, tools: [ANNOTATED] });
      return '"error":{"code":-32020,"message":"Header mismatch"}';
    };
  }

  it("repeats in headers what the tool's schema says", async () => {
    const { client, links } = await begin(annotated());
    await callTool(client, "s__x", { region: "Köln", other: 1 });
    const { headers } = lastRequest(links, CALL).options;
    assert.deepEqual(headers, { "Mcp-Param-Region": "=?base64?S8O2bG4=?=" });
  });

  it("is sent again, by the list as it is now, if its headers are not what they should be", async () => {
    const { s, client, links } = await begin(new ModernScriptedServer("x"));
    becomeAnnotated(s);
    assert.ok((await callTool(client, "s__x", { region: "r" })).result);
    const headers = requestsOf(links, CALL).map(({ options }) => options.headers);
    assert.deepEqual(headers, [undefined, { "Mcp-Param-Region": "r" }]);
  });

  for (const [what, isStale] of [
    ["keeps its headers", false],
    ["is corrected once by the list of the new one", true],
  ] as const) {
    it(`that waited for a connection which was replaced ${what}`, async () => {
      const server = isStale ? new ModernScriptedServer("x") : annotated();
      const { s, client, hub, links, clock } = await begin(server);
      const latch = new Latch();
      s.onOpen = latch.wait;
      hub.reconnect("s");
      await turn();
      const answer = callTool(client, "s__x", { region: "r" });
      await turn();
      hub.reload(remoteManifest({ s: { era: "modern", url: "https://elsewhere.test/mcp" } }));
      await turn();
      if (isStale) becomeAnnotated(s);
      latch.open();
      await clock.advanceAsync(100);
      assert.ok((await answer).result);
      const calls = requestsOf(links, CALL);
      assert.deepEqual(calls.at(-1)?.options.headers, { "Mcp-Param-Region": "r" });
      assert.equal(calls.length, isStale ? 2 : 1);
    });
  }

  it("says nothing in headers to a server of the legacy era", async () => {
    const s = Object.assign(new ScriptedServer(), { tools: [ANNOTATED] });
    const { client, links } = await begin(s);
    await callTool(client, "s__x", { region: "r" });
    assert.equal(lastRequest(links, CALL).options.headers, undefined);
  });

  it("cannot be made of a tool whose headers cannot be, and others can", async () => {
    const s = new ModernScriptedServer("good");
    const properties = { a: { type: "number", "x-mcp-header": "A" } };
    s.tools.push(tool("bad", { inputSchema: { type: "object", properties } }));
    const { client, events } = await begin(s);
    assert.deepEqual(await listToolNames(client), ["s__good"]);
    const warned = events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
    assert.ok(warned.some((text) => /"bad".*x-mcp-header "A"/.test(text)));
  });
});

describe("a server over HTTP that does not know what it is asked first", () => {
  for (const [code, client, first, era] of [
    ["serverRefused", "modern", "server/discover", "legacy"],
    ["serverFailed", "modern", "server/discover", "legacy"],
    ["serverRefused", "legacy", "initialize", "modern"],
  ] as const) {
    it(`is met as a ${era} one for a ${client} client (${code})`, async () => {
      const s = era === "modern" ? new ModernScriptedServer("x") : new ScriptedServer("x");
      s.handlers = { ...s.handlers, [first]: SILENCE };
      const links = overStreamedTransports(s);
      const manifest = remoteManifest({ s: { era: "auto" } });
      const { hub, client: peer } = setUpHubWithClock({ s }, { manifest });
      if (client === "legacy") await initialize(peer, ALL_CAPABILITIES);
      else peer.send(modernRequest(1, "tools/list"));
      await turn();
      links[0]?.loseRequest(lastRequest(links, first), code);
      await turn();
      const { state, peer: met } = connectionStatusOf(hub, "s");
      assert.deepEqual([state, met?.era], ["connected", era]);
    });
  }
});

describe("what the hub itself asks of a server over HTTP", () => {
  it("is asked again if the answer is lost", async () => {
    const silent = Object.assign(new ScriptedServer("x"), { onList: SILENCE });
    const { s, state, clock, lose } = await begin(silent);
    Object.assign(s, { onList: new ScriptedServer("x").onList });
    lose("answerLost", "tools/list");
    await clock.advanceAsync(200);
    assert.equal(state(), "connected");
  });
});
