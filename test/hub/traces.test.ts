import { Buffer } from "node:buffer";
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EventBus } from "../../src/base/hub-events.ts";
import { limitsOn } from "../../src/frontend/clients.ts";
import type { Propagation } from "../../src/manifest/telemetry.ts";
import { Lifecycle } from "../../src/telemetry/lifecycle.ts";
import { parseTraceparent } from "../../src/telemetry/trace-context.ts";
import {
  callTool,
  initialize,
  isResponseTo,
  type Json,
  listToolNames,
  manifestFor,
  type Peer,
  ScriptedServer,
  sendRequest,
  setUpHub,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import {
  ALL_MODERN_CAPABILITIES,
  answersTo,
  MODERN_VERSION,
  modernMetaOf,
  sendModernRequest,
} from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";
import { traceHub } from "../fixtures/traced-hub.ts";
import { waitFor } from "../harness/wait.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const PARENT = "b7ad6b7169203331";
const sampled = `00-${TRACE}-${PARENT}-01`;
const unsampled = `00-${TRACE}-${PARENT}-00`;

/** The text of the last call that a server has received, without its id. */
function lastCall(server: ScriptedServer): string {
  const text = server.newestPeer?.received.findLast((one) => one.includes('"tools/call"')) ?? "";
  return text.replace(/"id":\d+/, '"id":0');
}

function metaOf(server: ScriptedServer): Record<string, unknown> {
  const { params } = JSON.parse(lastCall(server)) as Json;
  return (params?.["_meta"] ?? {}) as Record<string, unknown>;
}

async function begin(client: Peer): Promise<void> {
  await initialize(client);
  await listToolNames(client);
}

describe("the spans of a call", () => {
  it("are one towards the client and one below it towards the server, with the names of both sides", async () => {
    const a = new ScriptedServer("x");
    const { hub, connect } = setUpHub({ a });
    const client = connect("stdio");
    await begin(client);
    const tracer = traceHub(hub);
    await callTool(client, "a__x");
    const own = tracer.find("server", "tools/call a__x");
    const attempt = tracer.find("client", "tools/call x");
    assert.equal(own.parentSpanId, undefined);
    assert.equal(attempt.parentSpanId, own.spanId);
    assert.equal(attempt.traceId, own.traceId);
    const { "jsonrpc.request.id": id, "toolmux.client": who, ...attributes } = own.attributes;
    assert.equal(typeof id, "string");
    assert.match(String(who), /^client-\d+$/);
    assert.deepEqual(attributes, {
      "mcp.method.name": "tools/call",
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "a__x",
      "mcp.protocol.version": "2025-11-25",
      "network.transport": "pipe",
      "toolmux.server": "a",
    });
    const { "jsonrpc.request.id": sentId, ...sent } = attempt.attributes;
    assert.match(String(sentId), /^\d+$/);
    assert.deepEqual(sent, {
      "mcp.method.name": "tools/call",
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "x",
      "mcp.protocol.version": "2025-11-25",
      "toolmux.server": "a",
    });
    assert.ok(own.startedAt <= attempt.startedAt && attempt.endedAt <= own.endedAt);
  });

  it("tell how the call has failed: by a JSON-RPC error, a result with isError, or the hub", async () => {
    const a = new ScriptedServer("x");
    a.onCall = ({ params }) => {
      const { kind } = (params?.["arguments"] ?? {}) as { kind?: string };
      if (kind === "isError") return '"result":{"content":[],"isError":true}';
      return kind === "rpc" ? '"error":{"code":-32602,"message":"no such x"}' : undefined;
    };
    const { hub, client, clock } = setUpHubWithClock(
      { a },
      { servers: { a: { callTimeout: 1000 } } },
    );
    await begin(client);
    const failureOf = async (run: () => Promise<unknown>): Promise<readonly unknown[]> => {
      const tracer = traceHub(hub);
      await run();
      return tracer.spans.map(({ kind, error, attributes }) => [
        kind,
        attributes["error.type"],
        attributes["rpc.response.status_code"],
        error,
      ]);
    };
    assert.deepEqual(await failureOf(() => callTool(client, "a__x", { kind: "isError" })), [
      ["client", "tool_error", undefined, ""],
      ["server", "tool_error", undefined, ""],
    ]);
    assert.deepEqual(await failureOf(() => callTool(client, "a__x", { kind: "rpc" })), [
      ["client", "-32602", "-32602", "no such x"],
      ["server", "-32602", "-32602", "no such x"],
    ]);
    assert.deepEqual(await failureOf(() => callTool(client, "nothing")), [
      ["server", "unknownTool", undefined, 'There is no tool "nothing".'],
    ]);
    const late = await failureOf(async () => {
      const answer = callTool(client, "a__x", { kind: "silent" });
      await clock.advanceAsync(1500);
      await answer;
    });
    assert.deepEqual(
      late.map((row) => (row as unknown[]).slice(0, 2)),
      [
        ["client", "callTimeout"],
        ["server", "callTimeout"],
      ],
    );
  });

  it("are made of all requests but ping", async () => {
    const a = new ScriptedServer("x");
    a.listings = { prompts: [{ name: "p" }], resources: [{ uri: "file:///r", name: "r" }] };
    a.handlers = {
      "prompts/get": () => '"result":{"messages":[]}',
      "resources/read": () => '"result":{"contents":[]}',
    };
    const { hub, client } = setUpHub({ a });
    const tracer = traceHub(hub);
    await begin(client);
    await sendRequest(client, "ping");
    await sendRequest(client, "prompts/get", { name: "a__p" });
    await sendRequest(client, "resources/read", { uri: "file:///r" });
    await sendRequest(client, "nothing/known");
    const own = tracer.spans.filter(({ kind }) => kind === "server");
    assert.deepEqual(
      own.map(({ name }) => name),
      ["initialize", "tools/list", "prompts/get a__p", "resources/read", "nothing/known"],
    );
    assert.equal(own[3]?.attributes["mcp.resource.uri"], "file:///r");
    assert.equal(own[4]?.attributes["error.type"], "methodNotFound");
    tracer.find("client", "prompts/get p");
    tracer.find("client", "resources/read");
  });

  it("say for how long the call has waited, and why", async () => {
    const a = new ScriptedServer("x");
    let open: (() => void) | undefined;
    a.onOpen = () => new Promise((resolve) => (open = resolve));
    const { hub, client, clock } = setUpHubWithClock({ a }, { servers: { a: { lazy: true } } });
    await initialize(client);
    await clock.advanceAsync(1);
    open?.();
    await listToolNames(client);
    void hub.stop("a");
    await clock.advanceAsync(10);
    open = undefined;
    const tracer = traceHub(hub);
    hub.start("a");
    await clock.advanceAsync(1);
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(200);
    const release = open as (() => void) | undefined;
    release?.();
    await answer;
    const { attributes } = tracer.find("server", "tools/call a__x");
    assert.equal(attributes["toolmux.waited_ms.start"], 200);
  });
});

describe("the waits of a call", () => {
  it("begin when it arrives, also if its tool is not listed yet", async () => {
    const a = new ScriptedServer("x");
    const opening = Promise.withResolvers<void>();
    a.onOpen = () => opening.promise;
    const { hub, client, clock } = setUpHubWithClock({ a });
    const tracer = traceHub(hub);
    await initialize(client);
    await clock.advanceAsync(1);
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(200);
    opening.resolve();
    await answer;
    const { attributes } = tracer.find("server", "tools/call a__x");
    assert.equal(attributes["toolmux.waited_ms.start"], 200);
  });

  it("are told apart: for a place in the queue, and for a person", async () => {
    const a = new ScriptedServer("x");
    const answers: (() => void)[] = [];
    a.onCall = ({ id }) => {
      answers.push(() => a.newestPeer?.send({ jsonrpc: "2.0", id, result: { content: [] } }));
      return undefined;
    };
    const servers = { a: { approval: "always", limits: { maxConcurrent: 1 } } } as const;
    const { hub, client, clock } = setUpHubWithClock({ a }, { servers, isWatchable: true });
    await begin(client);
    hub.approvals.watch();
    const tracer = traceHub(hub, {}, undefined, () => clock.now());
    const first = callTool(client, "a__x", { call: 1 });
    const second = callTool(client, "a__x", { call: 2 });
    await waitFor("both questions", () => hub.approvals.prompts.length === 2 || undefined);
    await clock.advanceAsync(300);
    for (const { id } of hub.approvals.prompts) hub.approvals.answer(id, "once", "terminal");
    await waitFor("the first call", () => answers.length === 1 || undefined);
    await clock.advanceAsync(500);
    answers.shift()?.();
    await first;
    await waitFor("the second call", () => answers.length === 1 || undefined);
    await clock.advanceAsync(100);
    answers.shift()?.();
    await second;
    const waits = tracer.spans
      .filter(({ kind }) => kind === "server")
      .map(({ attributes }) => [
        attributes["toolmux.waited_ms.approval"],
        attributes["toolmux.waited_ms.queue"],
        attributes["toolmux.waited_ms.client"],
      ]);
    assert.deepEqual(waits, [
      [300, undefined, undefined],
      [300, 500, undefined],
    ]);
  });
});

describe("a call whose client is asked for input", () => {
  const ELICITATION = { message: "Who?", requestedSchema: { type: "object" } };
  const ACCEPT = { action: "accept", content: { name: "A" } };

  it("has a span for each of its client's requests, the later one with a link to the earlier, and the waits of each", async () => {
    const a = new ScriptedServer("x");
    const ids: unknown[] = [];
    a.onCall = ({ id }) => {
      ids.push(id);
      a.newestPeer?.send({
        jsonrpc: "2.0",
        id: "q",
        method: "elicitation/create",
        params: ELICITATION,
      });
      return undefined;
    };
    const { hub, client, clock } = setUpHubWithClock({ a });
    const send = (params: object): Promise<Json> =>
      sendModernRequest(client, "tools/call", { name: "a__x", ...params }, ALL_MODERN_CAPABILITIES);
    await sendModernRequest(client, "tools/list", {}, ALL_MODERN_CAPABILITIES);
    const tracer = traceHub(hub, {}, undefined, () => clock.now());
    const asking = send({});
    await waitFor("the call", () => ids.length === 1 || undefined);
    await clock.advanceAsync(10);
    const asked = await asking;
    assert.equal(asked.result?.["resultType"], "input_required");
    await clock.advanceAsync(60_000);
    const retry = send(answersTo(asked, () => ACCEPT));
    await waitFor("the answer", () => a.newestPeer?.messages.some(isResponseTo("q")) || undefined);
    a.newestPeer?.send({
      jsonrpc: "2.0",
      id: ids[0],
      error: { code: -32603, message: "no more" },
    });
    assert.equal((await retry).error?.code, -32603);
    const [first, second, ...others] = tracer.spans.filter(({ kind }) => kind === "server");
    assert.ok(first && second);
    assert.deepEqual(others, []);
    assert.deepEqual(
      [first, second].map(({ error, attributes }) => [
        attributes["toolmux.server"],
        attributes["error.type"],
        error,
        attributes["toolmux.waited_ms.client"],
      ]),
      [
        ["a", undefined, undefined, 5],
        ["a", "-32603", "no more", undefined],
      ],
    );
    assert.deepEqual(first.links, []);
    assert.deepEqual(
      second.links.map(({ traceId, spanId }) => [traceId, spanId]),
      [[first.traceId, first.spanId]],
    );
    assert.ok(second.startedAt - first.endedAt >= 60_000);
    // The request to the server has begun in the first, and was open until the end.
    const attempt = tracer.find("client", "tools/call x");
    assert.equal(attempt.parentSpanId, first.spanId);
    assert.ok(attempt.endedAt >= second.startedAt);
  });

  it("has requests to its server below the span of the retry, if they follow that", async () => {
    const a = new ScriptedServer("x");
    const data = {
      elicitations: [{ mode: "url", elicitationId: "e", url: "https://x.test", message: "Open." }],
    };
    let count = 0;
    a.onCall = () =>
      ++count === 1
        ? `"error":{"code":-32042,"message":"open it","data":${JSON.stringify(data)}}`
        : '"result":{"content":[]}';
    const { hub, client } = setUpHub({ a });
    const send = (params: object): Promise<Json> =>
      sendModernRequest(client, "tools/call", { name: "a__x", ...params }, ALL_MODERN_CAPABILITIES);
    await sendModernRequest(client, "tools/list", {}, ALL_MODERN_CAPABILITIES);
    const tracer = traceHub(hub);
    const asked = await send({});
    assert.equal(asked.result?.["resultType"], "input_required");
    await send(answersTo(asked, () => ({ action: "accept" })));
    const [first, second] = tracer.spans.filter(({ kind }) => kind === "server");
    assert.ok(first && second);
    // The client got no error.
    assert.deepEqual([first.error, second.error], [undefined, undefined]);
    assert.equal(second.links[0]?.spanId, first.spanId);
    const attempts = tracer.spans.filter(({ kind }) => kind === "client");
    assert.deepEqual(
      attempts.map(({ parentSpanId, error }) => [parentSpanId, error]),
      [
        [first.spanId, "open it"],
        [second.spanId, undefined],
      ],
    );
  });
});

describe("the hub's own requests to a server", () => {
  it("have spans with all that those of clients' requests have, and the message of their errors", async () => {
    const a = new ScriptedServer("x");
    a.listings = { resources: [{ uri: "file:///r", name: "r" }] };
    a.handlers = {
      "resources/subscribe": () => '"error":{"code":-32002,"message":"there is no r"}',
    };
    const { hub, client } = setUpHub({ a });
    const tracer = traceHub(hub);
    const lifecycle = new Lifecycle(tracer, new EventBus());
    await begin(client);
    await sendRequest(client, "resources/subscribe", { uri: "file:///r" });
    const own = await waitFor("the span", () =>
      tracer.spans.find(({ name, kind }) => name === "resources/subscribe" && kind === "client"),
    );
    lifecycle.close();
    assert.equal(own.error, "there is no r");
    const { "jsonrpc.request.id": id, ...attributes } = own.attributes;
    assert.match(String(id), /^\d+$/);
    assert.deepEqual(attributes, {
      "mcp.method.name": "resources/subscribe",
      "mcp.resource.uri": "file:///r",
      "mcp.protocol.version": "2025-11-25",
      "toolmux.server": "a",
      "error.type": "-32002",
      "rpc.response.status_code": "-32002",
    });
  });
});

describe("the trace context of a call", () => {
  it("makes the client's span the parent, whose flag decides; servers get the span of the attempt", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const tracer = traceHub(hub, { sample: 0 });
    const _meta = { traceparent: sampled, tracestate: "a=1", baggage: "b=2", progressToken: 7 };
    await sendRequest(client, "tools/call", { name: "a__x", _meta });
    const own = tracer.find("server", "tools/call a__x");
    const attempt = tracer.find("client", "tools/call x");
    assert.deepEqual([own.traceId, own.parentSpanId, own.isParentRemote], [TRACE, PARENT, true]);
    assert.deepEqual([own.traceState, attempt.traceState], ["a=1", "a=1"]);
    const { progressToken, ...others } = metaOf(a);
    assert.notEqual(progressToken, undefined);
    assert.deepEqual(others, {
      traceparent: `00-${TRACE}-${attempt.spanId}-01`,
      tracestate: "a=1",
      baggage: "b=2",
    });
  });

  it("is found under an escaped key, in any of several _meta, and not in other texts", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const escaped = `{"trac\\u0065parent":"${sampled}"}`;
    const long = JSON.stringify({ text: "é".repeat(400) });
    for (const [params, isFound] of [
      [`{"name":"a__x","_meta":${escaped}}`, true],
      [`{"name":"a__x","_meta":${escaped},"_meta":{}}`, true],
      [`{"_m\\u0065ta":{"traceparent":"${sampled}"},"name":"a__x"}`, true],
      [`{"_meta":{"a":${long},"traceparent":"${sampled}"},"name":"a__x"}`, true],
      [`{"_meta":{"a":{"traceparent":"${sampled}"}},"name":"a__x"}`, false],
      [`{"_meta":{"progressToken":1},"name":"a__x","traceparent":"${sampled}"}`, false],
      [`{"_meta":{"a":"\\n"},"name":"a__x"}`, false],
    ] as const) {
      const tracer = traceHub(hub, { sample: 0 });
      const id = `${params.length}-${params}`;
      client.send(
        `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"method":"tools/call","params":${params}}`,
      );
      await client.find((message) => message.id === id);
      const traces = tracer.spans.map(({ traceId }) => traceId);
      assert.deepEqual(traces, isFound ? [TRACE, TRACE] : [], params);
    }
  });

  it("changes not a byte of a call that is not sampled, nor of any while nothing is traced", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const calls = [
      { name: "a__x", arguments: { a: 1 } },
      { name: "a__x", _meta: { traceparent: unsampled, "b c": [1] } },
      { name: "a__x", _meta: {} },
    ];
    const sent = async (): Promise<readonly string[]> => {
      const texts: string[] = [];
      for (const params of calls) {
        await sendRequest(client, "tools/call", params);
        texts.push(lastCall(a));
      }
      return texts;
    };
    const before = await sent();
    const tracer = traceHub(hub, { sample: 0 });
    assert.deepEqual(await sent(), before);
    assert.deepEqual(tracer.spans, []);
    hub.trace(undefined);
    assert.deepEqual(await sent(), before);
  });

  it("is sent as propagate says", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const seen: string[] = [];
    for (const propagate of ["always", "parent", "never"] satisfies Propagation[])
      for (const _meta of [undefined, { traceparent: sampled }]) {
        const tracer = traceHub(hub, { propagate });
        await sendRequest(client, "tools/call", { name: "a__x", ...(_meta && { _meta }) });
        const { spanId } = tracer.find("client", "tools/call x");
        const { traceparent } = metaOf(a);
        const what =
          traceparent === undefined
            ? "none"
            : traceparent === sampled
              ? "the client's"
              : String(traceparent).includes(spanId)
                ? "the hub's"
                : "another";
        seen.push(`${propagate} ${_meta === undefined ? "without" : "with"} parent: ${what}`);
      }
    assert.deepEqual(seen, [
      "always without parent: the hub's",
      "always with parent: the hub's",
      "parent without parent: none",
      "parent with parent: the hub's",
      "never without parent: none",
      "never with parent: the client's",
    ]);
  });

  it("reaches servers of the other era, with what that era has in _meta", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const tracer = traceHub(hub);
    for (const _meta of [{}, { traceparent: sampled, progressToken: "p" }]) {
      await sendModernRequest(client, "tools/call", { name: "a__x", _meta });
      const { traceparent, progressToken, ...others } = metaOf(a);
      const { spanId } = parseTraceparent(String(traceparent)) ?? {};
      assert.ok(tracer.spans.some((span) => span.spanId === spanId && span.kind === "client"));
      assert.equal(progressToken !== undefined, "progressToken" in _meta);
      assert.deepEqual(others, {});
    }
    const own = tracer.spans.find(({ kind }) => kind === "server");
    assert.equal(own?.attributes["mcp.protocol.version"], MODERN_VERSION);
    assert.equal(own?.name, "tools/call a__x");
  });

  it("reaches a modern server from a legacy client, beside the envelope", async () => {
    const a = new ModernScriptedServer("x");
    const { hub, client } = setUpHub({ a }, { servers: { a: { era: "modern" } } });
    await begin(client);
    const tracer = traceHub(hub);
    for (const _meta of [undefined, {}, { traceparent: sampled, progressToken: "p" }]) {
      await sendRequest(client, "tools/call", { name: "a__x", ...(_meta && { _meta }) });
      const { traceparent, progressToken, ...envelope } = metaOf(a);
      const { spanId } = parseTraceparent(String(traceparent)) ?? {};
      assert.ok(tracer.spans.some((span) => span.spanId === spanId && span.kind === "client"));
      assert.equal(progressToken !== undefined, _meta !== undefined && "progressToken" in _meta);
      for (const key of Object.keys(modernMetaOf())) assert.ok(key in envelope, key);
    }
  });

  it("is written into any valid params, and all else stays", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const tracer = traceHub(hub);
    const texts = [
      '{"name":"a__x"}',
      '{ "name" : "a__x" , "_meta" : { } }',
      '{"_meta":{"a":{"b":"}"}},"name":"a__x"}',
      '{"name":"a__x","_meta":{"traceparent":"nonsense"}}',
      '{"name":"a__x","_meta":{"traceparent":5,"x":1}}',
      `{"_meta":{"traceparent":"${unsampled.replace("-00", "-01")}"},"name":"a__x","_meta":{"traceparent":"y"}}`,
    ];
    let id = 1000;
    for (const params of texts) {
      id++;
      client.send(`{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`);
      const answer = await client.find((message) => message.id === id);
      assert.equal(answer.error, undefined, params);
      const { traceparent, ...others } = metaOf(a);
      const { spanId = "" } = parseTraceparent(String(traceparent)) ?? {};
      assert.ok(
        tracer.spans.some((span) => span.spanId === spanId),
        params,
      );
      const { _meta: before = {} } = JSON.parse(params) as { _meta?: Record<string, unknown> };
      const { traceparent: _, ...kept } = before;
      assert.deepEqual(others, kept);
    }
  });
});

describe("what a span has of secrets and contents", () => {
  it("is neither a known secret nor, unless wanted, an argument or a result", async () => {
    const a = new ScriptedServer("x");
    a.onCall = ({ params }) => {
      const { fail } = (params?.["arguments"] ?? {}) as { fail?: boolean };
      return fail === true
        ? '"error":{"code":-1,"message":"bad canary-1234"}'
        : '"result":{"content":[{"type":"text","text":"canary-1234 and more"}]}';
    };
    a.listings = { resources: [{ uri: "file:///canary-1234", name: "r" }] };
    a.handlers = { "resources/read": () => '"result":{"contents":[]}' };
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const redact = (text: string): string => text.replaceAll("canary-1234", "[redacted]");
    const run = async (keepsContent: boolean): Promise<string> => {
      const tracer = traceHub(hub, { keepsContent }, redact);
      await callTool(client, "a__x", { key: "canary-1234", seen: "plain" });
      await callTool(client, "a__x", { fail: true });
      await callTool(client, "canary-1234");
      await sendRequest(client, "resources/read", { uri: "file:///canary-1234" });
      client.send({ jsonrpc: "2.0", id: "canary-1234", method: "canary-1234", params: {} });
      await client.find(({ id }) => id === "canary-1234");
      return JSON.stringify(tracer.spans);
    };
    const without = await run(false);
    assert.doesNotMatch(without, /canary-1234|plain|and more|gen_ai\.tool\.call/);
    const withContent = await run(true);
    assert.doesNotMatch(withContent, /canary-1234/);
    assert.match(withContent, /gen_ai\.tool\.call\.arguments":"[^,]*\[redacted\][^}]*plain/);
    assert.match(withContent, /gen_ai\.tool\.call\.result":"[^}]*\[redacted\] and more/);
  });

  it("has no part of a secret where a long text is cut, wherever a peer has written it", async () => {
    const secret = "canary-1234-canary";
    const redact = (text: string): string => text.replaceAll(secret, "[redacted]");
    for (const limit of [256, 500, 1024, 4096])
      for (const before of [0, 5, 12]) {
        const long = "x".repeat(limit - before) + secret + "y".repeat(2 * limit);
        const a = new ScriptedServer("x");
        a.listings = { resourceTemplates: [{ uriTemplate: "t:///{+a}", name: "r" }] };
        a.onCall = () => `"error":{"code":-1,"message":"${long}"}`;
        a.handlers = { "resources/read": () => `"error":{"code":-1,"message":"${long}"}` };
        const { hub, client } = setUpHub({ a });
        await begin(client);
        const tracer = traceHub(hub, { keepsContent: true }, redact);
        await callTool(client, "a__x", { key: long });
        await callTool(client, long);
        await sendRequest(client, "resources/read", { uri: `t:///${long}` });
        client.send({ jsonrpc: "2.0", id: long, method: long, params: {} });
        await client.find(({ id }) => id === long);
        assert.ok(tracer.spans.length >= 4);
        assert.doesNotMatch(JSON.stringify(tracer.spans), /canary|xc"|xca/);
      }
  });

  it("is bounded, however long the names, ids and errors are that peers choose", async () => {
    const a = new ScriptedServer("x");
    const huge = "z".repeat(600_000);
    a.onCall = () => `"error":{"code":-1,"message":"${huge}"}`;
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const tracer = traceHub(hub);
    await callTool(client, "a__x");
    await callTool(client, huge);
    client.send({ jsonrpc: "2.0", id: huge, method: huge, params: {} });
    await client.find(({ id }) => id === huge);
    for (const span of tracer.spans) assert.ok(JSON.stringify(span).length < 5000, span.name);
  });

  it("is at most 4 KiB of arguments and of a result, without a part of a character", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    for (const [letter, size] of [
      ["a", 1],
      ["é", 2],
      ["€", 3],
      ["🙂", 4],
    ] as const) {
      const tracer = traceHub(hub, { keepsContent: true });
      await callTool(client, "a__x", { text: letter.repeat(10_000) });
      const { attributes } = tracer.find("server", "tools/call a__x");
      for (const what of ["arguments", "result"]) {
        const text = String(attributes[`gen_ai.tool.call.${what}`]);
        const bytes = Buffer.byteLength(text);
        assert.ok(bytes <= 4096 && bytes > 4096 - size, `${letter} ${what}: ${bytes}`);
        assert.doesNotMatch(text, /\uFFFD/);
      }
    }
  });
});

describe("a call that is traced", () => {
  it("is counted once by metrics, whichever era its client speaks, and is their example", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    hub.metrics.count();
    const tracer = traceHub(hub);
    await callTool(client, "a__x");
    await sendModernRequest(client, "tools/call", { name: "a__x" });
    const metric = hub.metrics
      .read()
      .find(({ declaration }) => declaration.name === "mcp.server.operation.duration");
    const points = metric !== undefined && "histograms" in metric ? metric.histograms : [];
    const calls = points.filter(({ labels }) => labels.includes("tools/call"));
    assert.equal(
      calls.reduce((sum, { count }) => sum + count, 0),
      2,
    );
    const [example] = calls.flatMap(({ exemplars }) =>
      exemplars.filter((one) => one !== undefined),
    );
    assert.ok(tracer.spans.some(({ traceId }) => traceId === example?.traceId));
  });
});

describe("the sample", () => {
  it("has about its share of the requests without a parent", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    await begin(client);
    const tracer = traceHub(hub, { sample: 0.25 });
    for (let i = 0; i < 400; i++) await callTool(client, "a__x");
    const traces = tracer.spans.filter(({ kind }) => kind === "server");
    assert.ok(traces.length > 40 && traces.length < 180, String(traces.length));
  });
});

describe("requests over HTTP", () => {
  it("are told apart by how clients are connected, and named by the client's name in the manifest", async () => {
    const a = new ScriptedServer("x");
    const { hub, connect } = setUpHub(
      { a },
      { manifest: manifestFor({ a: new ScriptedServer("x") }, {}) },
    );
    const tracer = traceHub(hub);
    for (const kind of ["stdio", "shared", "http", "control", "memory"] as const) {
      const peer = connect(
        kind,
        kind === "http" ? { ...limitsOn("http"), principal: "ci" } : undefined,
      );
      await initialize(peer);
    }
    assert.deepEqual(
      tracer.spans.map(({ attributes }) => attributes["network.transport"]),
      ["pipe", "unix", "tcp", "unix", undefined],
    );
    assert.equal(tracer.spans[2]?.attributes["toolmux.client"], "ci");
    assert.equal(tracer.spans[2]?.attributes["network.protocol.name"], "http");
  });
});
