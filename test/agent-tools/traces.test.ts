import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import { endAgentSpan } from "../../src/telemetry/agent-spans.ts";
import type { Span } from "../../src/telemetry/span.ts";
import { callAgents, setUpAgentHub } from "../fixtures/agent-hub.ts";
import { initialize, ScriptedServer } from "../fixtures/memory-hub.ts";
import { RecordingTracer, traceHub } from "../fixtures/traced-hub.ts";

/** Spans as a tree, each with its kind, indented below its parent. */
function treeOf(spans: readonly Span[]): readonly string[] {
  const below = (parent: string | undefined, indent: string): string[] =>
    spans
      .filter(({ parentSpanId }) => parentSpanId === parent)
      .toSorted((a, b) => a.startedAt - b.startedAt)
      .flatMap(({ kind, name, spanId }) => [
        `${indent}${kind} ${name}`,
        ...below(spanId, `${indent}  `),
      ]);
  return below(undefined, "");
}

describe("the spans of an agent", () => {
  it("are below the call that started it: its run, each question to its model, and the calls of its tools", async () => {
    const a = new ScriptedServer("x");
    a.onCall = () => '"result":{"content":[{"type":"text","text":"done"}]}';
    const { client, hub } = await setUpAgentHub({ a });
    await initialize(client);
    const tracer = traceHub(hub);
    const run = { agent: "worker", message: "call a__x" };
    assert.match((await callAgents(client, "invoke_agent", run)).text, /result: done/);
    assert.deepEqual(treeOf(tracer.spans), [
      "server tools/call agents__invoke_agent",
      "  internal invoke_agent worker",
      "    client chat obedient",
      "    internal tools/call a__x",
      "      client tools/call x",
      "    client chat obedient",
    ]);
    const { attributes } = tracer.find("internal", "invoke_agent worker");
    assert.deepEqual(attributes, {
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.agent.name": "worker",
      "gen_ai.request.model": "obedient",
      "gen_ai.usage.input_tokens": 20,
      "gen_ai.usage.output_tokens": 10,
    });
    const chat = tracer.spans.find(({ name }) => name === "chat obedient");
    assert.equal(chat?.attributes["gen_ai.usage.input_tokens"], 10);
    // The server of the tool gets the context of its own span.
    const [call] = a.messagesOf("tools/call");
    const meta = call?.params?.["_meta"] as Record<string, unknown>;
    assert.ok(String(meta["traceparent"]).includes(tracer.find("client", "tools/call x").spanId));
  });

  it("tell of a run whose model fails", async () => {
    const { client, hub } = await setUpAgentHub();
    await initialize(client);
    const tracer = traceHub(hub);
    await callAgents(client, "invoke_agent", { agent: "worker", message: "fail" });
    assert.equal(tracer.find("client", "chat obedient").attributes["error.type"], "modelFailed");
    const { attributes, error } = tracer.find("internal", "invoke_agent worker");
    assert.equal(attributes["error.type"], "modelFailed");
    assert.match(error ?? "", /out of order/);
  });

  it("tell no secret of theirs that a model has said in its error", () => {
    const tracer = new RecordingTracer();
    const span = tracer.start("chat m", "client", {}, undefined);
    const redact = (text: string): string => text.replaceAll("sk-canary", "[redacted]");
    const error = new HubError("modelFailed", `${"x".repeat(495)}sk-canary is no key`);
    endAgentSpan(span, {}, { error, redact });
    const { error: told } = tracer.find("client", "chat m");
    assert.equal(told?.length, 500);
    assert.doesNotMatch(told, /sk-/);
  });

  it("are not made for a call that is not sampled", async () => {
    const { client, hub } = await setUpAgentHub();
    await initialize(client);
    const run = { agent: "worker", message: "hello" };
    const tracer = traceHub(hub, { sample: 0 });
    await callAgents(client, "invoke_agent", run);
    assert.deepEqual(tracer.spans, []);
    const other = traceHub(hub, { sample: 1 });
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    await callAgents(client, "invoke_agent", run, { _meta: { traceparent } });
    assert.deepEqual(other.spans, []);
  });
});
