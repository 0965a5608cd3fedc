import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { limitsOn } from "../../src/frontend/clients.ts";
import type { Hub } from "../../src/hub/hub.ts";
import type { Plugin } from "../../src/plugin/plugin.ts";
import type { Span } from "../../src/telemetry/span.ts";
import { Tracer } from "../../src/telemetry/tracer.ts";
import { SERVER_STATES } from "../../src/upstream/verdict.ts";
import {
  callRequest,
  callTool,
  initialize,
  isResponseTo,
  listToolNames,
  manifestFor,
  ScriptedServer,
  sendRequest,
  setUpHub,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";
import { cancel, isOf, respond } from "../fixtures/peer-messages.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";

const CALL = "tools/call";
/** The label sets of a metric with their counts or values, as `label label 3`; empty labels are `-`. */
function seen(hub: Hub, name: string): readonly string[] {
  const metric = hub.metrics.read().find(({ declaration }) => declaration.name === name);
  assert.ok(metric, name);
  const line = (labels: readonly string[], value: number): string =>
    [...labels.map((label) => (label === "" ? "-" : label)), value].join(" ");
  return "numbers" in metric
    ? metric.numbers.map(({ labels, value }) => line(labels, value))
    : metric.histograms.map(({ labels, count }) => line(labels, count));
}

const atHub = (hub: Hub): readonly string[] => seen(hub, "mcp.server.operation.duration");
const atServers = (hub: Hub): readonly string[] => seen(hub, "mcp.client.operation.duration");

/** A hub whose calls are counted from the start. */
function setUpCounting(...options: Parameters<typeof setUpHub>): ReturnType<typeof setUpHub> {
  const setup = setUpHub(...options);
  setup.hub.metrics.count();
  return setup;
}

describe("metrics of calls", () => {
  it("have the method, the names of the tool, the server, the client and the kind of error", async () => {
    const a = new ScriptedServer("x");
    a.onCall = ({ params }) => {
      const { kind } = (params?.["arguments"] ?? {}) as { kind?: string };
      if (kind === "isError") return '"result":{"content":[],"isError":true}';
      if (kind === "rpc") return '"error":{"code":-32602,"message":"no"}';
      if (kind === "lies") return '"result":{"content":[{"type":"text","text":"isError true"}]}';
      return '"result":{"content":[],"isError":false}';
    };
    a.listings = { prompts: [{ name: "p" }], resources: [{ uri: "file:///r", name: "r" }] };
    a.handlers = {
      "prompts/get": () => '"result":{"messages":[]}',
      "resources/read": () => '"error":{"code":-32002,"message":"none"}',
    };
    const { hub, client, connect } = setUpCounting({ a });
    const other = connect("http", { ...limitsOn("http"), principal: "ci" });
    for (const peer of [client, other]) {
      await initialize(peer);
      await listToolNames(peer);
    }
    for (const kind of ["good", "good", "lies", "isError", "rpc"])
      await callTool(client, "a__x", { kind });
    await callTool(other, "a__x");
    await sendRequest(client, "prompts/get", { name: "a__p" });
    await sendRequest(client, "resources/read", { uri: "file:///r" });
    const calls = (tool: string): readonly string[] => [
      `tools/call ${tool} a t - 3`,
      `tools/call ${tool} a t tool_error 1`,
      `tools/call ${tool} a t -32602 1`,
      `tools/call ${tool} a ci - 1`,
      "prompts/get - a t - 1",
      "resources/read - a t -32002 1",
    ];
    const isRouted = (line: string): boolean => !/^(?:initialize|[a-z/]+\/list) /.test(line);
    assert.deepEqual(atHub(hub).filter(isRouted), calls("a__x"));
    assert.deepEqual(atServers(hub).filter(isRouted), calls("x"));
  });

  it("say how the hub ended a call, and its request to the server", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { hub, client, clock } = setUpHubWithClock(
      { a },
      { servers: { a: { callTimeout: 1000 } } },
    );
    hub.metrics.count();
    await initialize(client);
    await listToolNames(client);
    client.send(callRequest("late", "a__x"));
    await turn();
    await clock.advanceAsync(1001);
    await client.find(isResponseTo("late"));
    client.send(callRequest("cancelled", "a__x"));
    await turn();
    cancel(client, "cancelled");
    await turn();
    client.send(callRequest("stopped", "a__x"));
    await turn();
    await hub.stop("a");
    await client.find(isResponseTo("stopped"));
    const expected = (tool: string): readonly string[] =>
      ["callTimeout", "cancelled", "serverStopped"].map((code) => `${CALL} ${tool} a t ${code} 1`);
    const ofCalls = (lines: readonly string[]) => lines.filter((line) => line.startsWith(CALL));
    assert.deepEqual(ofCalls(atHub(hub)), expected("a__x"));
    assert.deepEqual(ofCalls(atServers(hub)), expected("x"));
  });

  it("have each request that a plugin sends to a server, and the call of the client once", async () => {
    const a = new ScriptedServer("x", "y");
    a.onCall = () => '"result":{"content":[],"isError":true}';
    const plugin: Plugin = {
      name: "p",
      setup: () => ({
        call: (next, tool) => async (given) => {
          if (tool.name === "y") return given.refuse("No.");
          await next(given);
          return next(given);
        },
      }),
    };
    const { hub, client } = await setUpPluginHub([{ plugin }], { a });
    hub.metrics.count();
    await initialize(client);
    await callTool(client, "a__x");
    await callTool(client, "a__y");
    const ofCalls = (lines: readonly string[]) => lines.filter((line) => line.startsWith(CALL));
    assert.deepEqual(ofCalls(atHub(hub)), [
      "tools/call a__x a t tool_error 1",
      "tools/call a__y a t tool_error 1",
    ]);
    assert.deepEqual(ofCalls(atServers(hub)), ["tools/call x a t tool_error 2"]);
  });

  it("have the requests that the hub answers itself, and those that it refuses, without a server", async () => {
    const a = new ScriptedServer("x");
    a.listings = { resources: [{ uri: "file:///r", name: "r" }] };
    const { hub, client } = setUpCounting({ a });
    await initialize(client);
    await listToolNames(client);
    await sendRequest(client, "ping");
    await sendRequest(client, "resources/list");
    await sendRequest(client, "logging/setLevel", { level: "loud" });
    await sendRequest(client, "no/method");
    await callTool(client, "a__none");
    await callTool(client, "a__x");
    assert.deepEqual(atHub(hub), [
      "initialize - - t - 1",
      "tools/list - - t - 1",
      "resources/list - - t - 1",
      "logging/setLevel - - t invalidParams 1",
      "other - - t methodNotFound 1",
      "tools/call - - t unknownTool 1",
      "tools/call a__x a t - 1",
    ]);
  });

  it("have the spans of calls as examples, and count those once", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpCounting({ a });
    const spans: Span[] = [];
    hub.trace(
      new Tracer({
        sample: 1,
        isParentBased: true,
        propagate: "always",
        keepsContent: false,
        now: () => 0,
        redact: (text) => text,
        record: (span) => void spans.push(span.toSpan()),
      }),
    );
    await initialize(client);
    await listToolNames(client);
    await callTool(client, "a__x");
    assert.ok(atHub(hub).includes("tools/list - - t - 1"), atHub(hub).join());
    assert.ok(atHub(hub).includes("tools/call a__x a t - 1"), atHub(hub).join());
    const { text } = await hub.readMetrics("application/openmetrics-text");
    const examples = text.match(/trace_id="\w+",span_id="\w+"/g) ?? [];
    const calls = spans.filter(({ attributes }) => attributes["mcp.method.name"] === CALL);
    assert.deepEqual(
      examples.toSorted(),
      calls.map(({ traceId, spanId }) => `trace_id="${traceId}",span_id="${spanId}"`).toSorted(),
    );
    assert.equal(calls.length, 2);
  });

  it("have requests of the modern era once each", async () => {
    const a = new ModernScriptedServer("x");
    const { hub, client } = setUpCounting({ a }, { servers: { a: { era: "modern" } } });
    await sendModernRequest(client, "server/discover");
    await sendModernRequest(client, "tools/list");
    await sendModernRequest(client, "tools/call", { name: "a__x", arguments: {} });
    await sendModernRequest(client, "tools/call", { name: "a__none", arguments: {} });
    const lines = atHub(hub);
    assert.deepEqual(
      lines.map((line) => line.split(" ").slice(0, 3).join(" ")),
      ["server/discover - -", "tools/list - -", "tools/call a__x a", "tools/call - -"],
    );
    assert.match(lines.at(-1) ?? "", / unknownTool 1$/);
  });

  it("have the hub's own requests to servers, without a client", async () => {
    const a = new ScriptedServer("x");
    a.listings = { prompts: [] };
    a.handlers = { "prompts/list": () => '"error":{"code":-32603,"message":"no"}' };
    const { hub, client } = setUpCounting({ a });
    await initialize(client);
    await listToolNames(client);
    assert.deepEqual(atServers(hub).toSorted(), [
      "initialize - a - - 1",
      "prompts/list - a - -32603 1",
      "tools/list - a - - 1",
    ]);
  });

  it("have the duration in seconds", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const { hub, client, clock } = setUpHubWithClock({ a });
    hub.metrics.count();
    await initialize(client);
    await listToolNames(client);
    client.send(callRequest("slow", "a__x"));
    await turn();
    await clock.advanceAsync(700);
    const [call] = a.messagesOf(CALL);
    respond(a.newestPeer, call?.id, { content: [] });
    await client.find(isResponseTo("slow"));
    for (const name of ["mcp.server.operation.duration", "mcp.client.operation.duration"]) {
      const metric = hub.metrics.read().find(({ declaration }) => declaration.name === name);
      assert.ok(metric && "histograms" in metric);
      const point = metric.histograms.find(({ labels }) => labels[0] === CALL);
      assert.equal(point?.sum, 0.7);
      assert.deepEqual([point.counts.indexOf(1), point.count], [6, 1]);
    }
  });

  it("begin with the calls whose records the hub has, when somebody first wants them", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await initialize(client);
    await callTool(client, "a__x");
    await callTool(client, "a__x");
    assert.deepEqual(atHub(hub), ["tools/call a__x a t - 2"]);
    assert.deepEqual(atServers(hub), []);
    await callTool(client, "a__x");
    assert.deepEqual(atServers(hub), ["tools/call x a t - 1"]);
    assert.deepEqual(atHub(hub), ["tools/call a__x a t - 3"]);
  });
});

describe("metrics of the hub", () => {
  it("have the servers in each state, the clients, and the calls that run and that wait", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => undefined;
    const servers = { a: { limits: { maxConcurrent: 1 } }, b: {}, c: { enabled: false } };
    const b = new ScriptedServer("y");
    b.onOpen = () => Promise.reject(new Error("broken"));
    const { hub, client, connect } = setUpHub({ a, b, c: new ScriptedServer() }, { servers });
    await initialize(client);
    await initialize(connect("http"));
    await listToolNames(client);
    for (const id of ["1", "2", "3"]) client.send(callRequest(id, "a__x"));
    await a.newestPeer?.find(isOf(CALL));
    const states = seen(hub, "toolmux.servers");
    assert.equal(states.length, SERVER_STATES.length);
    assert.ok(states.includes("connected 1") && states.includes("disabled 1"), states.join());
    assert.deepEqual(seen(hub, "toolmux.clients"), ["2"]);
    assert.deepEqual(seen(hub, "toolmux.calls.active"), ["3"]);
    assert.deepEqual(seen(hub, "toolmux.queue.length"), ["2"]);
    cancel(client, "3");
    await turn();
    assert.deepEqual(seen(hub, "toolmux.queue.length"), ["1"]);
    assert.deepEqual(seen(hub, "toolmux.calls.active"), ["2"]);
    await hub.close();
  });

  it("count what each kind of limit refuses", async () => {
    const a = new ScriptedServer("x");
    const count = { count: 1, per: 3_600_000 };
    const servers = { a: { limits: { rate: { ...count, count: 2 }, quota: count } } };
    const { hub, client } = setUpHub({ a }, { servers });
    assert.deepEqual(seen(hub, "toolmux.limits.refused"), ["rate 0", "quota 0", "queue 0"]);
    await initialize(client);
    for (let at = 0; at < 5; at++) await callTool(client, "a__x");
    assert.deepEqual(seen(hub, "toolmux.limits.refused"), ["rate 3", "quota 1", "queue 0"]);
    assert.ok(atHub(hub).includes("tools/call a__x a t overLimit 4"), atHub(hub).join());
  });

  it("count the sessions that have ended, and the servers that were started again", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, connect, clock } = setUpHubWithClock({ a });
    const named = connect("http", { ...limitsOn("http"), principal: "ci" });
    await initialize(client);
    await initialize(named);
    await listToolNames(client);
    assert.deepEqual(seen(hub, "mcp.server.session.duration"), []);
    assert.deepEqual(seen(hub, "mcp.client.session.duration"), ["a - 0"]);
    assert.deepEqual(seen(hub, "toolmux.server.restarts"), ["a 0"]);
    a.disconnect();
    await turn();
    await clock.advanceAsync(60_000);
    assert.deepEqual(seen(hub, "mcp.client.session.duration"), ["a - 0", "a connectionLost 1"]);
    assert.deepEqual(seen(hub, "toolmux.server.restarts"), ["a 1"]);
    hub.reconnect("a");
    await clock.advanceAsync(1000);
    assert.deepEqual(seen(hub, "toolmux.server.restarts"), ["a 2"]);
    await hub.stop("a");
    hub.start("a");
    await clock.advanceAsync(1000);
    assert.deepEqual(seen(hub, "toolmux.server.restarts"), ["a 2"]);
    assert.deepEqual(seen(hub, "mcp.client.session.duration"), ["a - 2", "a connectionLost 1"]);
    await named.transport.close();
    await client.transport.close();
    await turn();
    assert.deepEqual(seen(hub, "mcp.server.session.duration"), ["ci 1", "t 1"]);
    // They are measured by the hub's clock, and not by one that can be set.
    const sessions = hub.metrics
      .read()
      .find(({ declaration }) => declaration.name === "mcp.server.session.duration");
    assert.ok(sessions !== undefined && "histograms" in sessions);
    for (const { sum } of sessions.histograms) assert.ok(sum >= 61, String(sum));
  });

  it("count alerts when they are raised, and not when their text changes or they are cleared", async () => {
    const a = new ScriptedServer("x");
    const { hub } = setUpHub({ a });
    const all = seen(hub, "toolmux.alerts");
    assert.ok(all.length > 5 && all.every((line) => line.endsWith(" 0")), all.join());
    const refused = (text: string) => hub.setRefusedClients([{ client: "ci", text }]);
    refused("One.");
    hub.setRefusedClients([]);
    refused("Two.");
    refused("The same with another text.");
    const counted = seen(hub, "toolmux.alerts").filter((line) => !line.endsWith(" 0"));
    assert.deepEqual(counted, ["clientRefused 2"]);
  });

  it("have no secret in a label", async () => {
    const a = new ScriptedServer("x-hunter2");
    const redact = (text: string): string => text.replaceAll("hunter2", "[redacted]");
    const { hub, client } = setUpHub({ a }, { redact });
    await initialize(client);
    hub.metrics.count();
    const [tool = ""] = await listToolNames(client);
    await callTool(client, tool);
    for (const accept of [null, "application/openmetrics-text"]) {
      const { text } = await hub.readMetrics(accept);
      assert.match(text, /x-\[redacted\]/);
      assert.doesNotMatch(text, /hunter2/);
    }
  });
});

describe("the table `telemetry`", () => {
  const telemetry = (input: object) => ({ input, file: "/t.toml", baseDir: "/" });

  it("makes calls count from the start, and decides whether HTTP serves them, also after a reload", async () => {
    const scripts = { a: new ScriptedServer("x") };
    const manifest = { ...manifestFor(scripts, {}), telemetry: telemetry({ prometheus: true }) };
    const { hub, client } = setUpHub(scripts, { manifest });
    assert.equal(hub.servesMetrics, true);
    await initialize(client);
    await callTool(client, "a__x");
    assert.ok(atServers(hub).includes("tools/call x a t - 1"));
    hub.reload(manifestFor(scripts, {}));
    assert.equal(hub.servesMetrics, false);
    await callTool(client, "a__x");
    assert.ok(atServers(hub).includes("tools/call x a t - 2"));
  });

  it("does not serve metrics for what it sends to a collector", () => {
    const scripts = { a: new ScriptedServer("x") };
    const manifest = { ...manifestFor(scripts, {}), telemetry: telemetry({ metrics: true }) };
    assert.equal(setUpHub(scripts, { manifest }).hub.servesMetrics, false);
  });
});
