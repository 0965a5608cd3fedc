import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import { EventBus, type StateEvent } from "../../src/base/hub-events.ts";
import type { OwnRequest } from "../../src/telemetry/tracer.ts";
import { Lifecycle } from "../../src/telemetry/lifecycle.ts";
import { RecordingTracer } from "../fixtures/traced-hub.ts";

function setUp() {
  const bus = new EventBus();
  const tracer = new RecordingTracer({ sample: 0 });
  const lifecycle = new Lifecycle(tracer, bus);
  const server = (change: "added" | "removed"): void =>
    bus.emit({ kind: "server", server: "a", change });
  const move = (
    from: StateEvent["from"],
    to: StateEvent["to"],
    more: Partial<StateEvent> = {},
  ): void => bus.emit({ kind: "state", server: "a", from, to, ...more });
  /** The spans as a tree: name, number of the attempt and kind of error, indented below their parents. */
  const tree = (): readonly string[] => {
    const { spans } = tracer;
    const below = (parent: string | undefined, indent: string): string[] =>
      spans
        .filter(({ parentSpanId }) => parentSpanId === parent)
        .toSorted((a, b) => a.startedAt - b.startedAt)
        .flatMap(({ name, attributes, spanId }) => [
          [indent + name, attributes["toolmux.attempt"], attributes["error.type"]]
            .filter((part) => part !== undefined)
            .join(" "),
          ...below(spanId, `${indent}  `),
        ]);
    return below(undefined, "");
  };
  return { lifecycle, tracer, server, move, tree };
}

const GONE = new HubError("connectionLost", "It has ended.", { server: "a" });

describe("the spans of a server", () => {
  it("are a tree of its addition, the loop of attempts and each attempt, with the errors of those that failed", () => {
    const { tracer, server, move, tree } = setUp();
    server("added");
    for (const attempt of [1, 2]) {
      move(attempt === 1 ? "idle" : "reconnecting", "connecting", { attempt, endpoint: "npx" });
      move("connecting", "stopping", { attempt, cause: GONE });
      move("stopping", "reconnecting", { attempt, cause: GONE });
    }
    move("reconnecting", "connecting", { attempt: 3, endpoint: "npx" });
    move("connecting", "connected", { attempt: 3, endpoint: "npx", tools: 4 });
    assert.deepEqual(tree(), [
      "mcp.add",
      "  mcp.connect_loop 3",
      "    mcp.connect_attempt 1 connectionLost",
      "    mcp.connect_attempt 2 connectionLost",
      "    mcp.connect_attempt 3",
    ]);
    const last = tracer.spans.find(({ attributes }) => attributes["toolmux.tools"] === 4);
    assert.deepEqual(last?.attributes, {
      "toolmux.server": "a",
      "toolmux.endpoint": "npx",
      "toolmux.attempt": 3,
      "toolmux.tools": 4,
    });
    const failed = tracer.spans.find(({ error }) => error !== undefined);
    assert.equal(failed?.error, "It has ended.");
    assert.equal(new Set(tracer.spans.map(({ traceId }) => traceId)).size, 1);
  });

  it("have the error of the last attempt on the loop that is given up", () => {
    const { move, tree } = setUp();
    move("idle", "connecting", { attempt: 1 });
    move("connecting", "stopping", { attempt: 1, cause: GONE });
    move("stopping", "failed", { attempt: 1, cause: GONE });
    assert.deepEqual(tree(), [
      "mcp.connect_loop 1 connectionLost",
      "  mcp.connect_attempt 1 connectionLost",
    ]);
  });

  it("begin a loop of their own when the connection is lost", () => {
    const { move, tree } = setUp();
    move("idle", "connecting", { attempt: 1 });
    move("connecting", "connected", { attempt: 1 });
    move("connected", "stopping", { cause: GONE, attempt: 1 });
    move("stopping", "reconnecting", { cause: GONE, attempt: 1 });
    move("reconnecting", "connecting", { attempt: 2 });
    move("connecting", "connected", { attempt: 2 });
    assert.deepEqual(tree(), [
      "mcp.connect_loop 1",
      "  mcp.connect_attempt 1",
      "mcp.connect_loop 2",
      "  mcp.connect_attempt 2",
    ]);
  });

  it("have one attempt that waits for an authorization", () => {
    const { move, tree } = setUp();
    move("idle", "connecting", { attempt: 1 });
    move("connecting", "authenticating", { attempt: 1 });
    move("authenticating", "connecting", { attempt: 1 });
    move("connecting", "connected", { attempt: 1 });
    assert.deepEqual(tree(), ["mcp.connect_loop 1", "  mcp.connect_attempt 1"]);
  });

  it("end the removal when the server is gone", () => {
    const { tracer, server, move, tree } = setUp();
    move("idle", "connecting", { attempt: 1 });
    move("connecting", "connected", { attempt: 1 });
    server("removed");
    assert.ok(!tree().includes("mcp.remove"));
    move("connected", "stopping");
    move("stopping", "disconnected");
    assert.ok(tree().includes("mcp.remove"));
    server("removed");
    assert.equal(tracer.spans.filter(({ name }) => name === "mcp.remove").length, 2);
  });

  it("have the hub's own requests to it below the attempt that made them; pings have none", () => {
    const { tracer, move, tree } = setUp();
    const request: OwnRequest = {
      server: "a",
      method: "initialize",
      name: undefined,
      id: 7,
      network: { transport: "pipe" },
      address: undefined,
      protocolVersion: undefined,
      sessionId: undefined,
      failure: undefined,
      duration: 5,
    };
    const failure = { type: "-32601", rpcCode: "-32601", message: "No lists." };
    move("idle", "connecting", { attempt: 1 });
    tracer.onOwnRequest?.(request);
    tracer.onOwnRequest?.({ ...request, method: "tools/list", failure });
    tracer.onOwnRequest?.({ ...request, method: "ping" });
    tracer.onOwnRequest?.({ ...request, server: "b" });
    move("connecting", "connected", { attempt: 1 });
    assert.deepEqual(tree().toSorted(), [
      "    initialize",
      "    tools/list -32601",
      "  mcp.connect_attempt 1",
      "mcp.connect_loop 1",
    ]);
    const list = tracer.find("client", "tools/list");
    assert.ok(list.endedAt - list.startedAt >= 5);
    assert.equal(list.error, "No lists.");
    assert.deepEqual(list.attributes, {
      "mcp.method.name": "tools/list",
      "jsonrpc.request.id": "7",
      "network.transport": "pipe",
      "toolmux.server": "a",
      "error.type": "-32601",
      "rpc.response.status_code": "-32601",
    });
  });

  it("end with the hub", () => {
    const { lifecycle, move, tree } = setUp();
    move("idle", "connecting", { attempt: 1 });
    lifecycle.close();
    assert.deepEqual(tree(), ["mcp.connect_loop 1", "  mcp.connect_attempt 1"]);
    move("connecting", "stopping", { cause: GONE });
    move("stopping", "failed", { cause: GONE });
    move("failed", "connecting", { attempt: 1 });
    assert.equal(tree().length, 2);
  });
});
