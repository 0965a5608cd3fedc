import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import type { HubOptions } from "../../src/hub/options.ts";
import type { RemoteServer } from "../../src/manifest/manifest.ts";
import type { AuthorizationRun } from "../../src/upstream/authorization.ts";
import { ALL_CAPABILITIES, INITIALIZED } from "../fixtures/server-requests.ts";
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
const SAMPLE = { messages: [], maxTokens: 7 };
const CALL = "tools/call";

interface Setup<S extends ScriptedServer> extends ReturnType<typeof setUpHubWithClock> {
  readonly s: S;
  readonly links: StreamedTransport[];
}

async function begin<S extends ScriptedServer>(
  s: S,
  settings: Partial<RemoteServer> = {},
  authorize?: HubOptions["authorize"],
): Promise<Setup<S>> {
  const links = overStreamedTransports(s);
  const manifest = remoteManifest({ s: settings });
  const setup = setUpHubWithClock({ s }, { manifest, ...(authorize && { authorize }) });
  await initialize(setup.client, ALL_CAPABILITIES);
  setup.client.send(INITIALIZED);
  await turn();
  return { ...setup, s, links };
}

/** Another client of the same hub. */
async function join(connect: () => Peer): Promise<Peer> {
  const client = connect();
  await initialize(client, ALL_CAPABILITIES);
  client.send(INITIALIZED);
  await turn();
  return client;
}

/** A server that does not answer calls until it is told to. */
function hanging<S extends ScriptedServer>(s: S): S {
  s.onCall = () => undefined;
  return s;
}

function postedCalls(links: readonly StreamedTransport[]): readonly StreamedRequest[] {
  return links.flatMap(({ requests: posted }) => posted.filter(({ json }) => json.method === CALL));
}

function tool(name: string, more: object = {}): string {
  return JSON.stringify({ name, inputSchema: { type: "object" }, ...more });
}

const textOfResult = ({ result }: Json): string =>
  (result?.["content"] as { text: string }[] | undefined)?.map(({ text }) => text).join() ?? "";

describe("a request about a task of a legacy server", () => {
  it("is sent again when its answer is lost, as it only reads", async () => {
    const s = new LegacyTaskServer();
    const { client, links, clock } = await begin(s);
    const id = await createTask(client, "s__x");
    const { handlers } = s;
    s.handlers = { ...handlers, "tasks/get": () => undefined };
    const answer = sendRequest(client, "tasks/get", { taskId: id });
    await turn();
    s.handlers = handlers;
    links[0]?.loseRequest(lastRequest(links, "tasks/get"), "answerLost");
    await clock.advanceAsync(1000);
    assert.equal((await answer).result?.["taskId"], id);
  });
});

describe("a ping over HTTP", () => {
  const pings = (links: readonly StreamedTransport[]): readonly StreamedRequest[] =>
    links.flatMap(({ requests: posted }) => posted.filter(({ json }) => json.method === "ping"));

  for (const code of ["serverRefused", "serverFailed"] as const) {
    it(`is a sign of life also where it is turned away (${code})`, async () => {
      const s = new ScriptedServer("x");
      s.onPing = () => undefined;
      const { links, clock } = await begin(s);
      for (let n = 1; n <= 5; n++) {
        await clock.advanceAsync(30_000);
        const ping = pings(links).at(-1);
        assert.ok(ping !== undefined);
        links[0]?.loseRequest(ping, code);
      }
      assert.equal(links.length, 1);
    });
  }

  it("is let go of when the next one is sent", async () => {
    const s = hanging(new ScriptedServer("x"));
    s.onPing = () => undefined;
    const { links, clock, client } = await begin(s, { callTimeout: 600_000 });
    client.send(callRequest(1, "s__x"));
    await clock.advanceAsync(150_000);
    const abandoned = pings(links).map(({ isAbandoned }) => isAbandoned);
    assert.ok(abandoned.length > 2);
    assert.deepEqual(abandoned, [...abandoned.slice(1).map(() => true), false]);
  });
});

describe("what a server over HTTP says on the stream of a request", () => {
  it("reaches that request's client alone, although several share the server", async () => {
    const { client, connect, links } = await begin(hanging(new ScriptedServer("x")));
    const other = await join(connect);
    client.send(callRequest(1, "s__x"));
    other.send(callRequest(2, "s__x"));
    await turn();
    const link = links[0];
    const [first, second] = postedCalls(links);
    assert.ok(link && first && second);
    for (const [i, posted] of [first, second].entries()) {
      link.sendOnStream(posted, { jsonrpc: "2.0", id: `s-${i}`, method: SAMPLING, params: SAMPLE });
    }
    const atFirst = await client.find(({ method }) => method === SAMPLING);
    const atSecond = await other.find(({ method }) => method === SAMPLING);
    const count = (peer: Peer): number =>
      peer.messages.filter(({ method }) => method === SAMPLING).length;
    assert.deepEqual([count(client), count(other)], [1, 1]);
    other.send({ jsonrpc: "2.0", id: atSecond.id, result: { of: "other" } });
    client.send({ jsonrpc: "2.0", id: atFirst.id, result: { of: "client" } });
    await turn();
    const answers = link.responsesTo("s-0").concat(link.responsesTo("s-1"));
    assert.deepEqual(
      answers.map(({ result }) => result?.["of"]),
      ["client", "other"],
    );
  });

  it("is refused to a server that says it on no request's stream while several clients call", async () => {
    const { client, connect, links, s } = await begin(hanging(new ScriptedServer("x")));
    const other = await join(connect);
    client.send(callRequest(1, "s__x"));
    other.send(callRequest(2, "s__x"));
    await turn();
    s.newestPeer?.send({ jsonrpc: "2.0", id: "s-1", method: SAMPLING, params: SAMPLE });
    await turn();
    assert.match(links[0]?.responsesTo("s-1")[0]?.error?.message ?? "", /isolation = "perClient"/);
  });

  it("is over when the request is: the client is told, and the server gets an error", async () => {
    const { client, connect, links } = await begin(hanging(new ScriptedServer("x")));
    await join(connect);
    client.send(callRequest(1, "s__x"));
    await turn();
    links[0]?.sendOnStream(lastRequest(links, CALL), {
      jsonrpc: "2.0",
      id: "s-1",
      method: SAMPLING,
      params: SAMPLE,
    });
    const { id } = await client.find(({ method }) => method === SAMPLING);
    const cancel = { requestId: 1, reason: "enough" };
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: cancel });
    await client.find(
      ({ method, params }) => method === "notifications/cancelled" && params?.["requestId"] === id,
    );
    assert.match(links[0]?.responsesTo("s-1")[0]?.error?.message ?? "", /is over/);
  });

  for (const [how, end] of [
    ["was answered", (link, posted) => link.respond(posted, { content: [] })],
    ["was lost", (link, posted) => link.loseRequest(posted, "answerLost")],
  ] as const satisfies readonly (readonly [
    string,
    (link: StreamedTransport, posted: StreamedRequest) => void,
  ])[]) {
    it(`is over when the request ${how}`, async () => {
      const { client, connect, links } = await begin(hanging(new ScriptedServer("x")));
      await join(connect);
      client.send(callRequest(1, "s__x"));
      await turn();
      const posted = lastRequest(links, CALL);
      links[0]?.sendOnStream(posted, {
        jsonrpc: "2.0",
        id: "s-1",
        method: SAMPLING,
        params: SAMPLE,
      });
      const { id } = await client.find(({ method }) => method === SAMPLING);
      assert.ok(links[0]);
      end(links[0], posted);
      await client.find(
        ({ method, params }) =>
          method === "notifications/cancelled" && params?.["requestId"] === id,
      );
    });
  }

  it("stops the time of that request alone while its client is asked", async () => {
    const { client, connect, links, clock } = await begin(hanging(new ScriptedServer("x")), {
      callTimeout: 1000,
    });
    const other = await join(connect);
    client.send(callRequest(1, "s__x"));
    other.send(callRequest(2, "s__x"));
    await turn();
    const [first] = postedCalls(links);
    assert.ok(first);
    links[0]?.sendOnStream(first, { jsonrpc: "2.0", id: "s-1", method: SAMPLING, params: SAMPLE });
    await clock.advanceAsync(2000);
    assert.match(textOfResult(await other.find(isResponseTo(2))), /did not finish/);
    assert.equal(client.messages.some(isResponseTo(1)), false);
  });

  it("is logged to that request's client", async () => {
    const { client, connect, links } = await begin(hanging(new ScriptedServer("x")));
    const other = await join(connect);
    client.send(callRequest(1, "s__x"));
    await turn();
    links[0]?.sendOnStream(lastRequest(links, CALL), {
      jsonrpc: "2.0",
      method: "notifications/message",
      params: { level: "info", data: "hello" },
    });
    await client.find(({ method }) => method === "notifications/message");
    assert.equal(
      other.messages.some(({ method }) => method === "notifications/message"),
      false,
    );
  });
});

describe("a modern server over HTTP", () => {
  it("logs to the client of the request on whose stream it does", async () => {
    const { client, connect, links } = await begin(hanging(new ModernScriptedServer("x")), {
      era: "modern",
    });
    const other = await join(connect);
    client.send(callRequest(1, "s__x"));
    other.send(callRequest(2, "s__x"));
    await turn();
    const [, second] = postedCalls(links);
    assert.ok(second);
    const params = { level: "error", data: "hello" };
    links[0]?.sendOnStream(second, { jsonrpc: "2.0", method: "notifications/message", params });
    await other.find(({ method }) => method === "notifications/message");
    assert.ok(client.messages.every(({ method }) => method !== "notifications/message"));
  });

  it("is listened to again if that stream is lost", async () => {
    const { links, clock } = await begin(new ModernScriptedServer("x"), { era: "modern" });
    const count = (): number =>
      links[0]?.requests.filter(({ json }) => json.method === "subscriptions/listen").length ?? 0;
    assert.equal(count(), 1);
    links[0]?.loseRequest(lastRequest(links, "subscriptions/listen"), "answerLost");
    await clock.advanceAsync(1000);
    assert.equal(count(), 2);
  });
});

describe("a modern client of a server over HTTP of the legacy era", () => {
  it("is asked for the very request on whose stream the server asks, while others run", async () => {
    const s = hanging(new ScriptedServer("x"));
    const links = overStreamedTransports(s);
    const { client, clock } = setUpHubWithClock({ s }, { manifest: remoteManifest({ s: {} }) });
    for (const id of [1, 2])
      client.send(modernRequest(id, CALL, { name: "s__x" }, { sampling: {} }));
    await turn();
    const [first, second] = postedCalls(links);
    assert.ok(first && second);
    links[0]?.sendOnStream(second, { jsonrpc: "2.0", id: "s-1", method: SAMPLING, params: SAMPLE });
    await clock.advanceAsync(100);
    const { result } = await client.find(isResponseTo(2));
    assert.equal(result?.["resultType"], "input_required");
    assert.equal(client.messages.some(isResponseTo(1)), false);
  });
});

describe("a call to a server over HTTP that is cancelled", () => {
  const cancel = {
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId: 1 },
  };

  it("is let go of, and nothing is said, in the modern era", async () => {
    const { client, links } = await begin(hanging(new ModernScriptedServer("x")), {
      era: "modern",
    });
    client.send(callRequest(1, "s__x"));
    await turn();
    client.send(cancel);
    await turn();
    assert.equal(lastRequest(links, CALL).isAbandoned, true);
    assert.equal(links[0]?.sentMessages("notifications/cancelled").length, 0);
  });

  it("is told to the server, and let go of, in the legacy era", async () => {
    const { client, links } = await begin(hanging(new ScriptedServer("x")));
    client.send(callRequest(1, "s__x"));
    await turn();
    client.send(cancel);
    await turn();
    assert.equal(lastRequest(links, CALL).isAbandoned, true);
    assert.equal(links[0]?.sentMessages("notifications/cancelled").length, 1);
  });
});

describe("a call that a server over HTTP has not answered", () => {
  it("is sent again if it was not delivered, and answered", async () => {
    const s = hanging(new ScriptedServer("x"));
    const { client, links, clock } = await begin(s);
    client.send(callRequest(1, "s__x"));
    await turn();
    s.onCall = () => '"result":{"content":[],"again":true}';
    links[0]?.loseRequest(lastRequest(links, CALL), "notDelivered");
    await clock.advanceAsync(100);
    assert.equal((await client.find(isResponseTo(1))).result?.["again"], true);
  });

  it("fails in the end if it never is delivered", async () => {
    const { client, links, clock } = await begin(hanging(new ScriptedServer("x")));
    client.send(callRequest(1, "s__x"));
    for (let count = 0; count < 20 && !client.messages.some(isResponseTo(1)); count++) {
      await turn();
      links[0]?.loseRequest(lastRequest(links, CALL), "notDelivered");
      await clock.advanceAsync(2000);
    }
    assert.equal((await client.find(isResponseTo(1))).error?.data?.["code"], "notDelivered");
    assert.equal(postedCalls(links).length, 8);
  });

  it("is not sent again if it may have run: the model is told so", async () => {
    const { client, links, clock } = await begin(hanging(new ScriptedServer("x")));
    client.send(callRequest(1, "s__x"));
    await turn();
    links[0]?.loseRequest(lastRequest(links, CALL), "answerLost");
    await clock.advanceAsync(5000);
    const answer = await client.find(isResponseTo(1));
    assert.equal(answer.result?.["isError"], true);
    assert.match(textOfResult(answer), /may have run.*not called again/);
    assert.equal(postedCalls(links).length, 1);
  });

  for (const hint of ["readOnlyHint", "idempotentHint"]) {
    it(`is sent again twice at most if it may have run and says ${hint}`, async () => {
      const s = hanging(new ScriptedServer());
      s.tools = [tool("x", { annotations: { [hint]: true } })];
      const { client, links, clock } = await begin(s);
      client.send(callRequest(1, "s__x"));
      for (const count of [1, 2, 3]) {
        await turn();
        assert.equal(postedCalls(links).length, count);
        links[0]?.loseRequest(lastRequest(links, CALL), "answerLost");
        await clock.advanceAsync(5000);
      }
      assert.equal((await client.find(isResponseTo(1))).result?.["isError"], true);
      assert.equal(postedCalls(links).length, 3);
    });
  }

  it("is not sent again once it was cancelled", async () => {
    const { client, links, clock } = await begin(hanging(new ScriptedServer("x")));
    client.send(callRequest(1, "s__x"));
    await turn();
    links[0]?.loseRequest(lastRequest(links, CALL), "notDelivered");
    client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
    await clock.advanceAsync(5000);
    assert.equal(postedCalls(links).length, 1);
  });

  it("is sent to the next session if the link has ended before it was sent", async () => {
    const s = hanging(new ScriptedServer());
    s.tools = [tool("x", { annotations: { readOnlyHint: true } })];
    const { client, clock } = await begin(s);
    client.send(callRequest(1, "s__x"));
    await turn();
    s.onCall = () => '"result":{"content":[],"again":true}';
    s.disconnect();
    await clock.advanceAsync(5000);
    assert.equal((await client.find(isResponseTo(1))).result?.["again"], true);
  });
});

describe("a call that plugins see, to a server over HTTP", () => {
  const ANNOTATED = tool("x", {
    inputSchema: {
      type: "object",
      properties: { region: { type: "string", "x-mcp-header": "Region" } },
    },
  });

  async function beginWith(run: Parameters<typeof callPlugin>[1], s: ScriptedServer) {
    const clock = new VirtualClock();
    const links = overStreamedTransports(s);
    const era = s instanceof ModernScriptedServer ? "modern" : "legacy";
    const manifest = remoteManifest({ s: { era } });
    const harness = await setUpPluginHub([callPlugin("p", run)], { s }, { manifest, clock });
    await initialize(harness.client, ALL_CAPABILITIES);
    return { ...harness, links, clock };
  }

  for (const [what, run] of [
    ["passed on", (asked, next) => next(asked)],
    ["looked at", async (asked, next) => await next(asked)],
  ] as const satisfies readonly (readonly [string, Parameters<typeof callPlugin>[1]])[]) {
    it(`is sent again if it was not delivered (${what})`, async () => {
      const s = hanging(new ScriptedServer("x"));
      const { client, links, clock } = await beginWith(run, s);
      client.send(callRequest(1, "s__x"));
      await turn();
      s.onCall = () => '"result":{"content":[],"again":true}';
      links[0]?.loseRequest(lastRequest(links, CALL), "notDelivered");
      await clock.advanceAsync(100);
      assert.equal((await client.find(isResponseTo(1))).result?.["again"], true);
    });

    it(`is not sent again if it may have run (${what})`, async () => {
      const { client, links, clock } = await beginWith(run, hanging(new ScriptedServer("x")));
      client.send(callRequest(1, "s__x"));
      await turn();
      links[0]?.loseRequest(lastRequest(links, CALL), "answerLost");
      await clock.advanceAsync(5000);
      assert.match(textOfResult(await client.find(isResponseTo(1))), /was not called again/);
      assert.equal(postedCalls(links).length, 1);
    });
  }

  it("repeats in headers what they have made of its arguments", async () => {
    const s = new ModernScriptedServer();
    s.tools = [ANNOTATED];
    const { client, links } = await beginWith(
      (asked, next) => next(asked.with({ arguments: { region: "theirs" } })),
      s,
    );
    await callTool(client, "s__x", { region: "ours" });
    assert.deepEqual(lastRequest(links, CALL).options.headers, { "Mcp-Param-Region": "theirs" });
  });
});

describe("a server over HTTP that takes longer than connectTimeout", () => {
  it("is late, and joins when it answers, on the same link", async () => {
    const s = new ScriptedServer("x");
    const { onInitialize } = s;
    s.onInitialize = () => undefined;
    const limits = { connectTimeout: 30_000, startLimit: 300_000 };
    const { client, hub, links, clock } = await begin(s, { era: "legacy", ...limits });
    client.send(callRequest(1, "s__x"));
    await clock.advanceAsync(31_000);
    assert.equal((await client.find(isResponseTo(1))).error?.data?.["code"], "connectTimeout");
    assert.deepEqual(
      [connectionStatusOf(hub, "s").state, connectionStatusOf(hub, "s").late],
      ["connecting", 31_000],
    );
    const greeting = lastRequest(links, "initialize");
    const answer = onInitialize(greeting.json, "") ?? "";
    const { result } = JSON.parse(`{${answer}}`) as { result: object };
    links[0]?.respond(greeting, result);
    await clock.advanceAsync(1000);
    assert.deepEqual([connectionStatusOf(hub, "s").state, links.length], ["connected", 1]);
    assert.ok((await callTool(client, "s__x")).result);
  });
});

describe("a server over HTTP that is lost", () => {
  it("is looked for at once, and until it is there again, while calls wait", async () => {
    const s = new ScriptedServer("x");
    const { client, clock, hub } = await begin(s);
    await clock.advanceAsync(2000);
    let isAway = true;
    s.onOpen = () =>
      isAway ? Promise.reject(new HubError("unreachable", "Nobody is there.")) : Promise.resolve();
    s.disconnect();
    await turn();
    client.send(callRequest(1, "s__x"));
    await clock.advanceAsync(3000);
    assert.equal(connectionStatusOf(hub, "s").state, "connecting");
    isAway = false;
    await clock.advanceAsync(300);
    assert.ok((await client.find(isResponseTo(1))).result);
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
    s.onOpen = () => Promise.reject(new HubError("unreachable", "Nobody is there."));
    s.disconnect();
    await clock.advanceAsync(100);
    hub.start("t");
    await turn();
    assert.equal(connectionStatusOf(hub, "t").state, "connected");
    assert.equal(connectionStatusOf(hub, "s").state, "connecting");
  });

  it("is waited for as others are if it does not come back soon", async () => {
    const s = new ScriptedServer("x");
    const { clock, hub } = await begin(s, { connectTimeout: 60_000 });
    await clock.advanceAsync(2000);
    s.onOpen = () => Promise.reject(new HubError("unreachable", "Nobody is there."));
    s.disconnect();
    await clock.advanceAsync(10_500);
    assert.equal(connectionStatusOf(hub, "s").state, "reconnecting");
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
    await client.find(({ method }) => method === "notifications/resources/updated");
  });

  it("is not looked for at once if it did not last", async () => {
    const s = new ScriptedServer("x");
    const { clock, hub } = await begin(s);
    await clock.advanceAsync(500);
    s.disconnect();
    await turn();
    assert.equal(connectionStatusOf(hub, "s").state, "reconnecting");
  });
});

describe("a server over HTTP that wants an authorization", () => {
  const CHALLENGE = { status: 401, header: "Bearer" } as const;

  /** A way to get one that does as the test says. */
  function makeAuthority() {
    const passages: AuthorizationRun[] = [];
    let settle: (error?: HubError) => void = () => {};
    const authorize: NonNullable<HubOptions["authorize"]> = (_, _schemes, _challenge, passage) => {
      passages.push(passage);
      return new Promise((resolve, reject) => {
        settle = (error) => (error === undefined ? resolve() : reject(error));
        passage.signal.addEventListener("abort", () => reject(passage.signal.reason as Error));
      });
    };
    return { passages, authorize, settle: (error?: HubError) => settle(error) };
  }

  /** It challenges whoever calls it, until it is satisfied. */
  async function challenged(authority: ReturnType<typeof makeAuthority>) {
    const s = hanging(new ScriptedServer("x"));
    const setup = await begin(s, {}, authority.authorize);
    setup.client.send(callRequest(1, "s__x"));
    await turn();
    setup.links[0]?.loseRequest(lastRequest(setup.links, CALL), "unauthorized");
    setup.links[0]?.challenge(CHALLENGE);
    await turn();
    return setup;
  }

  it("is authorized while calls wait, which are then sent", async () => {
    const authority = makeAuthority();
    const { client, hub, links, clock, s } = await challenged(authority);
    assert.equal(connectionStatusOf(hub, "s").state, "authenticating");
    await clock.advanceAsync(500);
    assert.equal(postedCalls(links).length, 1);
    s.onCall = () => '"result":{"content":[],"let":"in"}';
    authority.settle();
    await turn();
    assert.equal((await client.find(isResponseTo(1))).result?.["let"], "in");
    assert.equal(connectionStatusOf(hub, "s").state, "connected");
    assert.equal(links.length, 1);
  });

  it("is waited for although it does not answer meanwhile", async () => {
    const authority = makeAuthority();
    const { hub, s, clock } = await challenged(authority);
    s.onPing = () => undefined;
    await clock.advanceAsync(119_000);
    assert.equal(connectionStatusOf(hub, "s").state, "authenticating");
  });

  it("refuses a call for good if it does not let it in once authorized either", async () => {
    const authority = makeAuthority();
    const { client, links, clock } = await challenged(authority);
    authority.settle();
    await turn();
    assert.equal(postedCalls(links).length, 2);
    links[0]?.loseRequest(lastRequest(links, CALL), "unauthorized");
    await clock.advanceAsync(1000);
    assert.equal((await client.find(isResponseTo(1))).error?.data?.["code"], "unauthorized");
    assert.equal(postedCalls(links).length, 2);
  });

  it("is met anew if it has let nobody in yet", async () => {
    const authority = makeAuthority();
    const s = new ScriptedServer("x");
    let isIn = false;
    const shake = new ScriptedServer("x").onInitialize;
    s.onInitialize = (...asked) => (isIn ? shake(...asked) : undefined);
    const { hub, links } = await begin(s, {}, authority.authorize);
    links[0]?.loseRequest(lastRequest(links, "initialize"), "unauthorized");
    links[0]?.challenge(CHALLENGE);
    await turn();
    assert.equal(connectionStatusOf(hub, "s").state, "authenticating");
    isIn = true;
    authority.settle();
    await turn();
    assert.equal(connectionStatusOf(hub, "s").state, "connected");
    assert.equal(links.length, 2);
  });

  it("shows how far that has come, and the page where it is given", async () => {
    const authority = makeAuthority();
    const { hub, events } = await challenged(authority);
    authority.passages[0]?.onProgress({ step: "openingBrowser", url: "https://a.example/" });
    await turn();
    const progress = { step: "openingBrowser", url: "https://a.example/" };
    assert.deepEqual(connectionStatusOf(hub, "s").progress, progress);
    const reported = events.findLast(({ kind }) => kind === "state");
    assert.deepEqual(reported?.kind === "state" && reported.progress, progress);
    assert.match(hub.snapshot().alerts[0]?.text ?? "", /open https:\/\/a\.example\//);
  });

  it("is named, with the page, to whoever has waited for it for too long", async () => {
    const authority = makeAuthority();
    const { client, clock } = await challenged(authority);
    authority.passages[0]?.onProgress({ step: "openingBrowser", url: "https://a.example/" });
    await clock.advanceAsync(60_000);
    const text = textOfResult(await client.find(isResponseTo(1)));
    assert.match(text, /authoriz.*: open https:\/\/a\.example\/ Try again later/);
  });

  it("has the client whose call waits asked to open the page, and told when it is over", async () => {
    const authority = makeAuthority();
    const { client } = await challenged(authority);
    authority.passages[0]?.onProgress({ step: "openingBrowser", url: "https://a.example/" });
    const { id, params } = await client.find(({ method }) => method === "elicitation/create");
    assert.equal(params?.["url"], "https://a.example/");
    client.send({ jsonrpc: "2.0", id, result: { action: "accept" } });
    await turn();
    authority.settle();
    const { params: done } = await client.find(
      ({ method }) => method === "notifications/elicitation/complete",
    );
    assert.equal(done?.["elicitationId"], params?.["elicitationId"]);
  });

  it("asks of several clients the one whose call waits, and nobody if that is not clear", async () => {
    for (const isClear of [true, false]) {
      const authority = makeAuthority();
      const s = hanging(new ScriptedServer("x"));
      const { client, connect, links } = await begin(s, {}, authority.authorize);
      const other = await join(connect);
      other.send(callRequest(1, "s__x"));
      if (!isClear) client.send(callRequest(2, "s__x"));
      await turn();
      for (const posted of postedCalls(links)) links[0]?.loseRequest(posted, "unauthorized");
      links[0]?.challenge(CHALLENGE);
      await turn();
      authority.passages[0]?.onProgress({ step: "openingBrowser", url: "https://a.example/" });
      await turn();
      const asked = [client, other].map(({ messages }) =>
        messages.some(({ method }) => method === "elicitation/create"),
      );
      assert.deepEqual(asked, [false, isClear]);
    }
  });

  it("is left alone if the person at the client declines", async () => {
    const authority = makeAuthority();
    const { client } = await challenged(authority);
    authority.passages[0]?.onProgress({ step: "openingBrowser", url: "https://a.example/" });
    const { id } = await client.find(({ method }) => method === "elicitation/create");
    client.send({ jsonrpc: "2.0", id, result: { action: "decline" } });
    const { error } = await client.find(isResponseTo(1));
    assert.equal(error?.data?.["code"], "unauthorized");
  });

  it("fails the calls that wait if there is none, and keeps its tools", async () => {
    const authority = makeAuthority();
    const { client, hub, clock } = await challenged(authority);
    await clock.advanceAsync(200);
    authority.settle(new HubError("unauthorized", "Nobody wanted to."));
    const { error } = await client.find(isResponseTo(1));
    assert.match(error?.message ?? "", /Nobody wanted to/);
    await turn();
    assert.equal(connectionStatusOf(hub, "s").state, "failed");
    assert.deepEqual(await listToolNames(client), ["s__x"]);
  });

  it("is not tried again by calls before a minute is over, but by a person", async () => {
    const authority = makeAuthority();
    const { client, hub, links, clock, s } = await challenged(authority);
    authority.settle(new HubError("unauthorized", "Nobody wanted to."));
    await client.find(isResponseTo(1));
    const again = async (id: number, isSent = true): Promise<void> => {
      s.onInitialize = () => undefined;
      if (isSent) client.send(callRequest(id, "s__x"));
      await turn();
      links.at(-1)?.loseRequest(lastRequest(links, "initialize"), "unauthorized");
      links.at(-1)?.challenge(CHALLENGE);
      await turn();
    };
    await again(2);
    assert.match((await client.find(isResponseTo(2))).error?.message ?? "", /Nobody wanted to/);
    assert.equal(authority.passages.length, 1);
    hub.reconnect("s");
    await again(3, false);
    assert.equal(authority.passages.length, 2);
    authority.settle(new HubError("unauthorized", "Nobody wanted to."));
    await turn();
    await clock.advanceAsync(61_000);
    await again(4);
    assert.equal(authority.passages.length, 3);
  });

  it("is given up after two minutes, and when it is stopped", async () => {
    const authority = makeAuthority();
    const { hub, clock } = await challenged(authority);
    await clock.advanceAsync(120_000);
    assert.equal(connectionStatusOf(hub, "s").state, "failed");
    assert.match(connectionStatusOf(hub, "s").cause?.message ?? "", /within 120 seconds/);
    const other = makeAuthority();
    const second = await challenged(other);
    await second.hub.stop("s");
    assert.equal(other.passages[0]?.signal.aborted, true);
  });

  it("goes on with what it lets the hub do if only more was refused", async () => {
    const authority = makeAuthority();
    const s = hanging(new ScriptedServer("x"));
    const { client, hub, links, clock } = await begin(s, {}, authority.authorize);
    client.send(callRequest(1, "s__x"));
    await turn();
    links[0]?.loseRequest(lastRequest(links, CALL), "unauthorized");
    links[0]?.challenge({ status: 403, header: 'Bearer error="insufficient_scope"' });
    await clock.advanceAsync(100);
    authority.settle(new HubError("unauthorized", "Not that much."));
    assert.match((await client.find(isResponseTo(1))).error?.message ?? "", /Not that much/);
    assert.equal(connectionStatusOf(hub, "s").state, "connected");
  });

  it("fails at once where there is no way to get one", async () => {
    const s = hanging(new ScriptedServer("x"));
    const { client, links } = await begin(s);
    client.send(callRequest(1, "s__x"));
    await turn();
    s.onInitialize = () => undefined;
    links[0]?.challenge(CHALLENGE);
    links[0]?.loseRequest(lastRequest(links, CALL), "unauthorized");
    await turn();
    links[1]?.challenge(CHALLENGE);
    links[1]?.loseRequest(lastRequest(links, "initialize"), "unauthorized");
    assert.equal((await client.find(isResponseTo(1))).error?.data?.["code"], "unauthorized");
  });

  it("is not authorized again and again if it does not accept what it was given", async () => {
    const authority = makeAuthority();
    const s = new ScriptedServer("x");
    s.onInitialize = () => undefined;
    const { hub, links } = await begin(s, {}, authority.authorize);
    for (const _ of [1, 2, 3]) {
      links.at(-1)?.loseRequest(lastRequest(links, "initialize"), "unauthorized");
      links.at(-1)?.challenge(CHALLENGE);
      await turn();
      authority.settle();
      await turn();
    }
    assert.equal(authority.passages.length, 2);
    assert.equal(connectionStatusOf(hub, "s").state, "failed");
  });
});

describe("a call to a modern server over HTTP", () => {
  const ANNOTATED = tool("x", {
    inputSchema: {
      type: "object",
      properties: { region: { type: "string", "x-mcp-header": "Region" } },
    },
  });

  it("repeats in headers what the tool's schema says", async () => {
    const s = new ModernScriptedServer();
    s.tools = [ANNOTATED];
    const { client, links } = await begin(s, { era: "modern" });
    await callTool(client, "s__x", { region: "Köln", other: 1 });
    const { headers } = lastRequest(links, CALL).options;
    assert.deepEqual(headers, { "Mcp-Param-Region": "=?base64?S8O2bG4=?=" });
  });

  it("is sent again, by the list as it is now, if its headers are not what they should be", async () => {
    const s = new ModernScriptedServer("x");
    const { client, links } = await begin(s, { era: "modern" });
    const answer = s.onCall;
    s.onCall = () => {
      s.onCall = answer;
      s.tools = [ANNOTATED];
      return '"error":{"code":-32020,"message":"Header mismatch"}';
    };
    const { result } = await callTool(client, "s__x", { region: "r" });
    assert.ok(result);
    const [first, second] = postedCalls(links);
    assert.equal(first?.options.headers, undefined);
    assert.deepEqual(second?.options.headers, { "Mcp-Param-Region": "r" });
  });

  for (const [what, isStale] of [
    ["keeps its headers", false],
    ["is corrected once by the list of the new one", true],
  ] as const) {
    it(`that waited for a connection which was replaced ${what}`, async () => {
      const s = new ModernScriptedServer("x");
      if (!isStale) s.tools = [ANNOTATED];
      const { client, hub, links, clock } = await begin(s, { era: "modern" });
      const latch = new Latch();
      s.onOpen = latch.wait;
      hub.reconnect("s");
      await turn();
      client.send(callRequest(1, "s__x", { region: "r" }));
      await turn();
      hub.reload(remoteManifest({ s: { era: "modern", url: "https://elsewhere.test/mcp" } }));
      await turn();
      const answer = s.onCall;
      if (isStale) {
        s.onCall = () => {
          s.onCall = answer;
          s.tools = [ANNOTATED];
          return '"error":{"code":-32020,"message":"Header mismatch"}';
        };
      }
      latch.open();
      await clock.advanceAsync(100);
      assert.ok((await client.find(isResponseTo(1))).result);
      const [last] = postedCalls(links).toReversed();
      assert.deepEqual(last?.options.headers, { "Mcp-Param-Region": "r" });
      assert.equal(postedCalls(links).length, isStale ? 2 : 1);
    });
  }

  it("says nothing in headers to a server of the legacy era", async () => {
    const s = new ScriptedServer();
    s.tools = [ANNOTATED];
    const { client, links } = await begin(s);
    await callTool(client, "s__x", { region: "r" });
    assert.equal(lastRequest(links, CALL).options.headers, undefined);
  });

  it("cannot be made of a tool whose headers cannot be, and others can", async () => {
    const s = new ModernScriptedServer("good");
    const properties = { a: { type: "number", "x-mcp-header": "A" } };
    s.tools.push(tool("bad", { inputSchema: { type: "object", properties } }));
    const { client, events } = await begin(s, { era: "modern" });
    assert.deepEqual(await listToolNames(client), ["s__good"]);
    const warned = events.flatMap((event) => (event.kind === "log" ? [event.text] : []));
    assert.ok(warned.some((text) => /Tool "bad" was left out: its x-mcp-header "A"/.test(text)));
  });

  it("is met with the revision in a header, and spoken to in it from then on", async () => {
    const { links } = await begin(new ModernScriptedServer("x"), { era: "modern" });
    const { headers } = lastRequest(links, "server/discover").options;
    assert.deepEqual(headers, { "MCP-Protocol-Version": "2026-07-28" });
    assert.deepEqual(links[0]?.protocol, { era: "modern", version: "2026-07-28" });
  });
});

describe("a server over HTTP that does not know what it is asked first", () => {
  for (const code of ["serverRefused", "serverFailed"] as const) {
    it(`is met as one of old (${code})`, async () => {
      const s = new ScriptedServer("x");
      s.handlers = { "server/discover": () => undefined };
      const links = overStreamedTransports(s);
      const manifest = remoteManifest({ s: { era: "auto" } });
      const { hub, client } = setUpHubWithClock({ s }, { manifest });
      const _meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "m", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
      };
      client.send({ jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta } });
      await turn();
      links[0]?.loseRequest(lastRequest(links, "server/discover"), code);
      await turn();
      assert.equal(connectionStatusOf(hub, "s").state, "connected");
      assert.equal(connectionStatusOf(hub, "s").peer?.era, "legacy");
    });
  }

  it("is met as a modern one if it does not know the greeting of old", async () => {
    const s = new ModernScriptedServer("x");
    s.handlers = { ...s.handlers, initialize: () => undefined };
    const links = overStreamedTransports(s);
    const manifest = remoteManifest({ s: { era: "auto" } });
    const { hub, client } = setUpHubWithClock({ s }, { manifest });
    await initialize(client, ALL_CAPABILITIES);
    links[0]?.loseRequest(lastRequest(links, "initialize"), "serverRefused");
    await turn();
    assert.equal(connectionStatusOf(hub, "s").peer?.era, "modern");
  });
});

describe("what the hub itself asks of a server over HTTP", () => {
  it("is asked again if the answer is lost", async () => {
    const s = new ScriptedServer("x");
    const list = s.onList;
    s.onList = () => undefined;
    const { hub, links, clock } = await begin(s);
    s.onList = list;
    links[0]?.loseRequest(lastRequest(links, "tools/list"), "answerLost");
    await clock.advanceAsync(200);
    assert.equal(connectionStatusOf(hub, "s").state, "connected");
  });
});
