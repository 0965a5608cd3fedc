import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Alerts } from "../../src/base/alerts.ts";
import { EventBus, type HubEvent } from "../../src/base/events.ts";
import {
  initialize,
  listToolNames,
  manifestOf,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";

const SILENCE = (): undefined => undefined;

/** A hub with server `a`, whose calls are not answered, and an initialized client. */
async function setUp() {
  const a = new ScriptedServer("x");
  a.onCall = SILENCE;
  const made = setUpHubWithClock({ a, b: new ScriptedServer("y") }, { servers: { a: {} } });
  await initialize(made.client, { sampling: {}, elicitation: {} });
  await listToolNames(made.client);
  return { ...made, a };
}

describe("the snapshot of a hub", () => {
  it("has the clients, with what they are, what they may be asked and what they call", async () => {
    const { hub, client, connect, clock, events } = await setUp();
    client.send({ jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "a__x" } });
    connect();
    await clock.advanceAsync(10);
    const [first, second, ...more] = hub.snapshot().clients;
    const { since, ...fields } = first ?? {};
    assert.ok(Math.abs((since ?? 0) - Date.now()) < 60_000);
    assert.deepEqual(fields, {
      id: "client-1",
      name: "t",
      version: "1",
      era: "legacy",
      transport: "memory",
      calls: 1,
      inFlight: 1,
      canBeAsked: ["elicitation", "sampling"],
    });
    assert.deepEqual([second?.era, second?.name, more], [undefined, undefined, []]);
    await client.transport.close();
    assert.deepEqual(
      hub.snapshot().clients.map(({ id }) => id),
      ["client-2"],
    );
    const changes = events.flatMap((event) =>
      event.kind === "client" ? [`${event.client} ${event.change}`] : [],
    );
    assert.deepEqual(changes, [
      "client-1 joined",
      "client-1 changed",
      "client-2 joined",
      "client-1 left",
    ]);
  });

  it("has the running calls, with their client, their progress and what they wait for", async () => {
    const { hub, client, a, clock } = await setUp();
    const params = { name: "a__x", _meta: { progressToken: "t" } };
    client.send({ jsonrpc: "2.0", id: 7, method: "tools/call", params });
    await clock.advanceAsync(250);
    const [call, ...more] = hub.snapshot().calls;
    const { startedAt, ...fields } = call ?? {};
    assert.ok(Math.abs((startedAt ?? 0) - Date.now()) < 60_000);
    assert.deepEqual(
      [fields, more],
      [
        {
          call: call?.call,
          client: "client-1",
          clientName: "t",
          clientVersion: "1",
          kind: "tools",
          server: "a",
          tool: "x",
          name: "a__x",
          duration: 250,
          waitingFor: "server",
          progress: undefined,
        },
        [],
      ],
    );
    const sent = a.messagesOf("tools/call").at(-1)?.params as {
      _meta: { progressToken: string };
    };
    const progress = { ...sent._meta, progress: 3, total: 9, message: "reading" };
    a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params: progress });
    a.newestPeer?.send({
      jsonrpc: "2.0",
      id: 1,
      method: "elicitation/create",
      params: { message: "Sure?", requestedSchema: { type: "object", properties: {} } },
    });
    await clock.advanceAsync(1);
    const [asking] = hub.snapshot().calls;
    assert.deepEqual(asking?.progress, { progress: 3, total: 9, message: "reading" });
    assert.equal(asking?.waitingFor, "client");
  });
});

describe("a server that was added while the hub runs", () => {
  it("survives three reloads, and yields to a server of that name in the manifest", async () => {
    const { hub, clock, events } = await setUp();
    hub.add(stdioSpecOf("b", { args: ["own"] }));
    await clock.advanceAsync(100);
    for (let i = 0; i < 3; i++) hub.reload(manifestOf({ a: {} }));
    assert.deepEqual(
      hub.status().map(({ server, origin }) => [server, origin]),
      [
        ["a", "manifest"],
        ["b", "runtime"],
      ],
    );
    hub.reload(manifestOf({ b: { args: ["of the manifest"] } }));
    assert.equal(serverStatusOf(hub, "b").origin, "manifest");
    assert.deepEqual(
      hub.specs.map((spec) => (spec.kind === "stdio" ? spec.args : [])),
      [["of the manifest"]],
    );
    assert.ok(events.some((event) => event.kind === "log" && event.server === "b"));
    hub.reload(manifestOf({ a: {} }));
    assert.deepEqual(
      hub.status().map(({ server }) => server),
      ["a"],
    );
    await clock.advanceAsync(20_000);
  });
});

describe("an alert that was dismissed", () => {
  it("stays dismissed until its text changes, or it is cleared and raised again", () => {
    const bus = new EventBus();
    const alerts = new Alerts(bus);
    const events: HubEvent[] = [];
    bus.subscribe((event) => events.push(event));
    alerts.addServer("a");
    const raise = (text: string): void => alerts.raise({ kind: "nameMoved", server: "a", text });
    raise("one");
    const [{ id } = { id: "" }] = alerts.all;
    assert.equal(alerts.dismiss("none"), false);
    assert.equal(alerts.dismiss(id), true);
    assert.equal(alerts.dismiss(id), true);
    raise("one");
    assert.deepEqual(
      alerts.all.map(({ id: other, dismissed }) => [other, dismissed]),
      [[id, true]],
    );
    assert.equal(events.length, 2);
    raise("two");
    assert.deepEqual([alerts.all[0]?.id, alerts.all[0]?.dismissed], [id, undefined]);
    alerts.dismiss(id);
    alerts.clear("a", ["nameMoved"]);
    raise("two");
    assert.notEqual(alerts.all[0]?.id, id);
    assert.equal(alerts.all[0]?.dismissed, undefined);
  });
});
