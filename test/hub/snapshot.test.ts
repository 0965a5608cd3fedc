import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Alerts } from "../../src/base/alerts.ts";
import {
  initialize,
  listToolNames,
  manifestOf,
  recordEvents,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";
import { notify, post } from "../fixtures/peer-messages.ts";

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
    post(client, 7, "tools/call", { name: "a__x" });
    connect();
    await clock.advanceAsync(10);
    const [first, second, ...more] = hub.snapshot().clients;
    assert.ok(first);
    const { since, id, name, version, era, transport, canBeAsked, ...counts } = first;
    assert.ok(Math.abs((since ?? 0) - Date.now()) < 60_000);
    assert.deepEqual(
      [id, name, version, era, transport],
      ["client-1", "t", "1", "legacy", "memory"],
    );
    assert.deepEqual(canBeAsked, ["elicitation", "sampling"]);
    const modes = { principal: undefined, mode: "full", modes: [], exposure: undefined };
    assert.deepEqual(counts, { calls: 1, inFlight: 1, ...modes });
    assert.deepEqual([second?.era, second?.name, more], [undefined, undefined, []]);
    await client.transport.close();
    const ids = hub.snapshot().clients.map((one) => one.id);
    assert.deepEqual(ids, ["client-2"]);
    const changes = events.flatMap((event) =>
      event.kind === "client" ? `${event.client} ${event.change}` : [],
    );
    const expected = ["1 joined", "1 changed", "2 joined", "1 left"];
    assert.deepEqual(
      changes,
      expected.map((change) => `client-${change}`),
    );
  });

  it("has the running calls, with their client, their progress and what they wait for", async () => {
    const { hub, client, a, clock } = await setUp();
    const params = { name: "a__x", _meta: { progressToken: "t" } };
    post(client, 7, "tools/call", params);
    await clock.advanceAsync(250);
    const [call, ...more] = hub.snapshot().calls;
    const { startedAt, ...fields } = call ?? {};
    assert.ok(Math.abs((startedAt ?? 0) - Date.now()) < 60_000);
    const who = { client: "client-1", clientName: "t", clientVersion: "1" };
    const what = { kind: "tools", server: "a", tool: "x", name: "a__x", call: call?.call };
    const how = { duration: 250, waitingFor: "server", progress: undefined };
    assert.deepEqual([fields, more], [{ ...who, ...what, ...how }, []]);
    const progress = { progress: 3, total: 9, message: "reading" };
    const { progressToken } = a.messagesOf("tools/call").at(-1)?.params?.["_meta"] as {
      progressToken: string;
    };
    notify(a.newestPeer, "notifications/progress", { progressToken, ...progress });
    const requestedSchema = { type: "object", properties: {} };
    post(a.newestPeer, 1, "elicitation/create", { message: "Sure?", requestedSchema });
    await clock.advanceAsync(1);
    const [asking] = hub.snapshot().calls;
    assert.deepEqual(asking?.progress, progress);
    assert.equal(asking?.waitingFor, "client");
  });
});

describe("a server that was added while the hub runs", () => {
  it("survives three reloads, and yields to a server of that name in the manifest", async () => {
    const { hub, clock, events } = await setUp();
    hub.add(stdioSpecOf("b", { args: ["own"] }));
    await clock.advanceAsync(100);
    for (let i = 0; i < 3; i++) hub.reload(manifestOf({ a: {} }));
    const servers = (): string[] => hub.status().map(({ server, origin }) => `${server} ${origin}`);
    assert.deepEqual(servers(), ["a manifest", "b runtime"]);
    hub.reload(manifestOf({ b: { args: ["of the manifest"] } }));
    assert.equal(serverStatusOf(hub, "b").origin, "manifest");
    const args = hub.specs.flatMap((spec) => (spec.kind === "stdio" ? spec.args : []));
    assert.deepEqual(args, ["of the manifest"]);
    assert.ok(events.some((event) => event.kind === "log" && event.server === "b"));
    hub.reload(manifestOf({ a: {} }));
    assert.deepEqual(servers(), ["a manifest"]);
    await clock.advanceAsync(20_000);
  });
});

describe("an alert that was dismissed", () => {
  it("stays dismissed until its text changes, or it is cleared and raised again", () => {
    const { bus, events } = recordEvents();
    const alerts = new Alerts(bus);
    alerts.addServer("a");
    const raise = (text: string): void => alerts.raise({ kind: "nameMoved", server: "a", text });
    raise("one");
    const [{ id } = { id: "" }] = alerts.all;
    assert.equal(alerts.dismiss("none"), false);
    assert.equal(alerts.dismiss(id), true);
    assert.equal(alerts.dismiss(id), true);
    raise("one");
    assert.deepEqual([alerts.all[0]?.id, alerts.all[0]?.dismissed], [id, true]);
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
