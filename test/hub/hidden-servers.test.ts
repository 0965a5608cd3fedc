import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  callRequest,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  modeOf,
  type Peer,
  ScriptedServer,
  sendRequest,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { HttpTestClient, setUpHttp } from "../fixtures/http-client.ts";
import {
  ALL_MODERN_CAPABILITIES,
  inputRoundOf,
  modernRequest,
} from "../fixtures/modern-requests.ts";
import {
  FORM_ELICITATION,
  inputRequiredResult,
  ModernScriptedServer,
  ROOTS_REQUEST,
  SAMPLING_REQUEST,
} from "../fixtures/modern-server.ts";
import { codeOf, notify } from "../fixtures/peer-messages.ts";
import {
  ALL_CAPABILITIES,
  answerAll,
  INITIALIZED,
  sendServerRequest,
} from "../fixtures/server-requests.ts";
import { turn } from "../fixtures/virtual-clock.ts";

const MODES = [
  modeOf("other", { servers: ["other"] }),
  modeOf("nothing-of-s", { tools: ["x"] }, { prompts: { or: [] }, resources: { or: [] } }),
  modeOf("some-of-s", { tools: ["t"] }),
  modeOf("not-s", { not: { servers: ["s"] } }),
];
const REQUESTS = [FORM_ELICITATION, SAMPLING_REQUEST, ROOTS_REQUEST] as const;

/** A server `s` with the tool `t`, which logs and has resources, beside `other` with the tool `x`. */
class Talking extends ScriptedServer {
  override onInitialize = (): string =>
    `"result":${JSON.stringify({
      protocolVersion: "2025-11-25",
      capabilities: { tools: { listChanged: true }, logging: {} },
      serverInfo: { name: "s", version: "1" },
    })}`;
  override handlers = { "logging/setLevel": () => '"result":{}' };
}

async function setUp(mode: string, server: ScriptedServer = new Talking("t")) {
  const other = new ScriptedServer("x");
  const servers = { s: { era: "auto" as const } };
  const setup = setUpHubWithClock({ s: server, other }, { modes: MODES, hub: { mode }, servers });
  const client = setup.connect("stdio");
  await initialize(client, ALL_CAPABILITIES);
  client.send(INITIALIZED);
  await listToolNames(client);
  return { ...setup, s: server, other, client };
}

const ask = (
  s: ScriptedServer,
  id: string,
  { method, params }: { method: string; params?: object },
) => sendServerRequest(s, id, method, params);

/** What the client has been sent that no request of its own caused, by method. */
const unasked = ({ messages }: Peer): readonly unknown[] =>
  messages.filter(({ method }) => method !== undefined).map(({ method }) => method);

describe("a server of which a client sees nothing", () => {
  for (const mode of ["other", "nothing-of-s", "not-s"]) {
    it(`by mode "${mode}" sends it nothing, and is refused as where no client is`, async () => {
      const { client, s, clock } = await setUp(mode);
      const asked = answerAll(client, {});
      for (const [at, request] of REQUESTS.entries())
        assert.equal(codeOf(await ask(s, `q${at}`, request)), "notAsked", request.method);
      notify(s.newestPeer, "notifications/message", { level: "error", data: "secret" });
      notify(s.newestPeer, "notifications/elicitation/complete", { elicitationId: "e" });
      s.tools.push('{"name":"more","inputSchema":{"type":"object"}}');
      notify(s.newestPeer, "notifications/tools/list_changed");
      await turn();
      await clock.advanceAsync(2000);
      await sendRequest(client, "ping");
      assert.deepEqual([unasked(client), asked], [[], []]);
    });
  }

  it("asks and logs as soon as a mode shows some of it, and no longer after another switch", async () => {
    const { client, s, hub } = await setUp("other");
    answerAll(client, { "roots/list": { result: { roots: [] } } });
    const log = () => notify(s.newestPeer, "notifications/message", { level: "error", data: "x" });
    const logs = (): number =>
      client.messages.filter(({ method }) => method === "notifications/message").length;
    for (const [mode, sees] of [
      ["some-of-s", true],
      ["not-s", false],
      ["full", true],
      ["other", false],
    ] as const) {
      hub.setMode(mode);
      const before = logs();
      const answer = await ask(s, mode, ROOTS_REQUEST);
      assert.equal(codeOf(answer), sees ? undefined : "notAsked", mode);
      log();
      await sendRequest(client, "ping");
      await turn();
      assert.equal(logs() - before, sees ? 1 : 0, mode);
    }
  });

  it("is refused during a call that began before the switch, whose answer still arrives", async () => {
    const { client, s, hub } = await setUp("full");
    s.onCall = () => undefined;
    client.send(callRequest(1, "s__t"));
    const call = await s.newestPeer?.find(({ method }) => method === "tools/call");
    hub.setMode("other");
    for (const [at, request] of REQUESTS.entries())
      assert.equal(codeOf(await ask(s, `q${at}`, request)), "notAsked");
    s.newestPeer?.send({ jsonrpc: "2.0", id: call?.id, result: { content: [] } });
    assert.ok((await client.find(isResponseTo(1))).result);
  });

  it("shares its connection with another client that sees it, which alone is asked", async () => {
    const { client, s, hub, connect } = await setUp("full");
    const blind = connect("stdio");
    await initialize(blind, ALL_CAPABILITIES);
    blind.send(INITIALIZED);
    hub.setClientMode("client-3", "other");
    answerAll(client, { "roots/list": { result: { roots: [{ uri: "file:///seen" }] } } });
    const { result } = await ask(s, "q", ROOTS_REQUEST);
    assert.deepEqual(result?.["roots"], [{ uri: "file:///seen" }]);
    assert.deepEqual(unasked(blind), []);
  });

  it("has its request held until it has listed its items, if a mode may show some of them", async () => {
    for (const [mode, code] of [
      ["some-of-s", undefined],
      ["nothing-of-s", "notAsked"],
    ] as const) {
      const s = new Talking("t");
      const setup = setUpHubWithClock({ s }, { modes: MODES, hub: { mode } });
      const client = setup.connect("stdio");
      answerAll(client, { "roots/list": { result: { roots: [] } } });
      let early: Promise<Json> | undefined;
      const list = s.onList;
      s.onList = (message, text) => {
        early ??= ask(s, "early", ROOTS_REQUEST);
        return list(message, text);
      };
      await initialize(client, ALL_CAPABILITIES);
      client.send(INITIALIZED);
      await listToolNames(client);
      assert.ok(early);
      assert.equal(codeOf(await early), code, mode);
    }
  });

  it("of the modern era gets no answers of the client either, whatever the era of the client", async () => {
    for (const [request, code] of [
      [FORM_ELICITATION, undefined],
      [SAMPLING_REQUEST, "notAsked"],
    ] as const) {
      for (const era of ["legacy", "modern"] as const) {
        const s = new ModernScriptedServer("t");
        const { client, hub } = await setUp("full", s);
        const complete = s.onCall;
        const asked = answerAll(client, {});
        let calls = 0;
        s.onCall = (message, text) => {
          if (++calls > 1) return complete(message, text);
          hub.setMode("other");
          return inputRequiredResult({ a: request }, "state");
        };
        const params = { name: "s__t", arguments: {} };
        client.send(
          era === "legacy"
            ? callRequest(1, "s__t")
            : modernRequest(1, "tools/call", params, ALL_MODERN_CAPABILITIES),
        );
        const answer = await client.find(isResponseTo(1));
        assert.equal(codeOf(answer), code, `${era} ${request.method}`);
        assert.deepEqual([inputRoundOf(answer).keys, asked], [[], []]);
      }
    }
  });

  it("by the servers or the mode of its URL, over HTTP, sends it nothing", async () => {
    for (const path of ["/mcp/other", "/mcp?servers=other", "/mcp?mode=not-s"]) {
      const [s, other] = [new Talking("t"), new ScriptedServer("x")];
      const { hub, server } = setUpHttp({ s, other }, { modes: MODES });
      await hub.startAllAndSettle();
      const client = new HttpTestClient(server, path);
      await client.initialize("2025-11-25", ALL_CAPABILITIES);
      const whole = new HttpTestClient(server);
      await whole.initialize("2025-11-25", ALL_CAPABILITIES);
      await whole.request("DELETE", undefined);
      await turn();
      for (const [at, request] of REQUESTS.entries())
        assert.ok((await ask(s, `q${at}`, request)).error, path);
      await hub.close();
    }
  });
});
