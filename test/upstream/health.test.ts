import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { StdioServer } from "../../src/manifest/manifest.ts";
import { memorySnapshots } from "../../src/snapshot/snapshots.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  callTool,
  type HubSetupOptions,
  initialize,
  Latch,
  listToolNames,
  manifestOf,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
  stdioSpecOf,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { notify, post, respond } from "../fixtures/peer-messages.ts";

const HOUR = 3_600_000;
const SILENCE = (): undefined => undefined;
const SECOND = { healthInterval: 1000 };
const ANSWERS = '"result":{}';

/** A hub with one server, `a`, with these parts of its script and of its entry in the manifest. */
async function begin(
  script: Partial<ScriptedServer> = {},
  entry: Partial<StdioServer> = {},
  settings: Pick<HubSetupOptions, "snapshots"> = {},
) {
  const a = Object.assign(new ScriptedServer("x"), script);
  const setup = setUpHubWithClock({ a }, { servers: { a: entry }, ...settings });
  const { client, hub } = setup;
  await initialize(client);
  const status = () => connectionStatusOf(hub, "a");
  return {
    ...setup,
    a,
    status,
    /** How often it was started, how many run, and its state. */
    life: () => [a.transportCount, a.openCount, status().state],
    pings: () => a.messagesOf("ping").length,
    call: () => callTool(client, "a__x"),
    list: () => listToolNames(client),
    answerCall: () => respond(a.newestPeer, a.messagesOf("tools/call")[0]?.id, {}),
  };
}

describe("the health of a server", () => {
  const SILENT = { onPing: SILENCE, onCall: SILENCE };

  it("is not asked for as long as it is heard within each interval", async () => {
    const { a, clock, pings } = await begin({}, SECOND);
    for (let i = 0; i < 10; i++) {
      await clock.advanceAsync(900);
      notify(a.newestPeer, "notifications/message", { level: "info", data: i });
      await turn();
    }
    assert.equal(pings(), 0);
  });

  for (const [what, onPing, limits] of [
    ["every ping with an error", () => '"error":{"code":-32601,"message":"no ping here"}', {}],
    ["every second ping only", (n: number) => (n % 2 === 0 ? ANSWERS : undefined), SECOND],
  ] as const) {
    it(`is good if it answers ${what}`, async () => {
      let count = 0;
      const { clock, status, life, pings } = await begin({ onPing: () => onPing(++count) }, limits);
      await clock.advanceAsync(HOUR);
      assert.deepEqual([...life(), status().responsive], [1, 1, "connected", true]);
      assert.ok(pings() > 50);
    });
  }

  it("is lost after two misses in a row: the server is ended, the status says why, and it is started again", async () => {
    const { clock, status, life, pings } = await begin({ onPing: SILENCE }, SECOND);
    await clock.advanceAsync(2999);
    assert.deepEqual([...life(), pings()], [1, 1, "connected", 2]);
    await clock.advanceAsync(1);
    assert.deepEqual([...life(), pings()], [1, 0, "reconnecting", 2]);
    assert.equal(status().cause?.code, "notResponding");
    await clock.advanceAsync(1000);
    assert.deepEqual(life(), [2, 1, "connected"]);
  });

  it("of one that is busy with a call is marked, and the call's own deadline decides, after which it is lost", async () => {
    const { clock, status, life, call } = await begin(SILENT, { ...SECOND, callTimeout: 10_500 });
    const answer = call();
    await clock.advanceAsync(2999);
    assert.equal(status().responsive, true);
    await clock.advanceAsync(7500);
    assert.deepEqual([...life(), status().responsive], [1, 1, "connected", false]);
    await clock.advanceAsync(1);
    assert.equal((await answer).result?.["isError"], true);
    assert.deepEqual(life(), [1, 1, "connected"]);
    await clock.advanceAsync(500);
    assert.deepEqual(life(), [1, 0, "reconnecting"]);
  });

  it("of one that was busy is good again when it is heard", async () => {
    const { a, clock, status, call, answerCall } = await begin(SILENT, SECOND);
    const answer = call();
    await clock.advanceAsync(5000);
    assert.equal(status().responsive, false);
    answerCall();
    await answer;
    a.onPing = () => ANSWERS;
    await clock.advanceAsync(1000);
    assert.equal(status().responsive, true);
  });

  it("is asked for anew on a machine that slept, with two intervals to answer", async () => {
    const { clock, life, pings } = await begin({ onPing: SILENCE }, SECOND);
    await clock.advanceAsync(2500);
    await clock.wakeAfterSleep(8 * HOUR);
    assert.deepEqual([...life(), pings()], [1, 1, "connected", 3]);
    await clock.advanceAsync(1999);
    assert.deepEqual(life(), [1, 1, "connected"]);
    await clock.advanceAsync(1);
    assert.deepEqual(life(), [1, 0, "reconnecting"]);
  });

  it("is nothing that could be told while nothing was read from it", async () => {
    const long = JSON.stringify({ name: "long", description: "x".repeat(1024 * 1024) });
    const { client, clock, life, pings } = await begin({ onPing: SILENCE, tools: [long] }, SECOND);
    await clock.advanceAsync(2000);
    client.transport.pause();
    for (let id = 0; id < 20; id++) post(client, id, "tools/list");
    await clock.advanceAsync(HOUR);
    assert.deepEqual([...life(), pings()], [1, 1, "connected", 2]);
    client.transport.resume();
    await turn();
    await clock.advanceAsync(2999);
    assert.deepEqual(life(), [1, 1, "connected"]);
    await clock.advanceAsync(1);
    assert.deepEqual(life(), [1, 0, "reconnecting"]);
  });

  it("is watched at a new interval without another process", async () => {
    const { a, hub, clock, status } = await begin({ onPing: SILENCE }, { healthInterval: 0 });
    await clock.advanceAsync(HOUR);
    hub.add(stdioSpecOf("a", { healthInterval: 500 }));
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1500);
    assert.equal(status().cause?.code, "notResponding");
  });
});

describe("an idle server in the hub", () => {
  const IDLE = { idleStop: 10_000 };

  it("is stopped after its time, its tools stay listed, and the next call starts it again", async () => {
    const { a, hub, client, clock, life, list, call } = await begin({}, IDLE);
    await list();
    await clock.advanceAsync(9999);
    assert.equal(a.openCount, 1);
    await clock.advanceAsync(1);
    assert.deepEqual(life(), [1, 0, "idle"]);
    assert.equal(serverStatusOf(hub, "a").goal, "onDemand");
    assert.deepEqual(await list(), ["a__x"]);
    assert.ok((await call()).result);
    assert.deepEqual(life(), [2, 1, "connected"]);
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [2, 0, "idle"]);
    assert.ok(client.messages.every(({ method }) => method === undefined));
  });

  it("is not stopped during a call, and has its whole time after it, however short it was", async () => {
    const { a, clock, call, answerCall } = await begin({ onCall: SILENCE }, IDLE);
    const answer = call();
    await clock.advanceAsync(50_000);
    assert.equal(a.openCount, 1);
    answerCall();
    await answer;
    a.onCall = () => ANSWERS;
    for (const rest of [9000, 7000]) {
      await clock.advanceAsync(rest);
      await call();
    }
    await clock.advanceAsync(9999);
    assert.equal(a.openCount, 1);
    await clock.advanceAsync(2501);
    assert.equal(a.openCount, 0);
  });

  it("is started once by calls that come while it stops, when nothing of it is left", async () => {
    const latch = new Latch();
    const { a, clock, call } = await begin({ onClose: latch.wait }, IDLE);
    await clock.advanceAsync(10_000);
    const answers = [call(), call()];
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    for (const answer of answers) assert.ok((await answer).result);
    assert.deepEqual([a.transportCount, a.maxOpenCount], [2, 1]);
  });

  it("is kept up from then on if somebody starts it", async () => {
    const { a, hub, clock, status } = await begin({}, IDLE);
    await clock.advanceAsync(10_000);
    hub.start("a");
    await turn();
    assert.deepEqual([serverStatusOf(hub, "a").goal, status().state], ["up", "connected"]);
    a.disconnect();
    await clock.advanceAsync(1000);
    assert.equal(a.transportCount, 3);
  });
});

describe("a lazy server", () => {
  const LAZY = { lazy: true };
  const OTHER = manifestOf({ a: { lazy: true, args: ["other"] } });
  const TOOL_Y = ['{"name":"y"}'];

  it("of which nothing is known is started once to learn its tools, and then by a call, for longer", async () => {
    const { clock, life, list, call } = await begin({}, LAZY);
    assert.deepEqual(await list(), ["a__x"]);
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [1, 0, "idle"]);
    assert.ok((await call()).result);
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [2, 1, "connected"]);
  });

  it("is not stopped under a call that comes while its tools are learnt", async () => {
    const latch = new Latch();
    const { clock, life, call } = await begin({ onOpen: latch.wait }, LAZY);
    const answer = call();
    await turn();
    latch.open();
    assert.ok((await answer).result);
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [1, 1, "connected"]);
  });

  it("that crashes rests, its tools stay listed, and the next call starts it", async () => {
    const { a, clock, life, list, call } = await begin({}, LAZY);
    await call();
    a.disconnect();
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [2, 0, "idle"]);
    assert.deepEqual(await list(), ["a__x"]);
    assert.ok((await call()).result);
    assert.equal(a.transportCount, 3);
  });

  it("that is to be another process is started once to learn what that lists", async () => {
    const { a, hub, client, clock, life, list } = await begin({}, LAZY);
    assert.deepEqual(await list(), ["a__x"]);
    const latch = new Latch();
    Object.assign(a, { onOpen: latch.wait, tools: TOOL_Y });
    hub.reload(OTHER);
    await turn();
    assert.deepEqual(await list(), []);
    latch.open();
    await clock.advanceAsync(100);
    assert.deepEqual(await list(), ["a__y"]);
    assert.ok(client.messages.some(({ method }) => method?.endsWith("list_changed")));
    assert.deepEqual(life(), [2, 0, "idle"]);
  });

  it("that is to be another process is not started if it is remembered what that lists", async () => {
    const snapshots = memorySnapshots();
    const { a, hub, clock, list } = await begin({}, LAZY, { snapshots });
    // What is kept is hashed first, which takes time of the machine's own.
    const settle = async (): Promise<void> => {
      await clock.advanceAsync(100);
      await snapshots.flush();
      await clock.advanceAsync(100);
    };
    await settle();
    for (const manifest of [OTHER, manifestOf({ a: LAZY })]) {
      hub.reload(manifest);
      await settle();
    }
    assert.equal(a.transportCount, 2);
    a.tools = TOOL_Y;
    hub.reload(OTHER);
    await settle();
    assert.equal(a.transportCount, 2);
    assert.deepEqual(await list(), ["a__x"]);
  });

  it("whose tools cannot be learnt rests, and does not keep a list waiting", async () => {
    const onInitialize = (): string => '"error":{"code":1,"message":"out of order"}';
    const { clock, status, life, list } = await begin({ onInitialize }, LAZY);
    assert.deepEqual(await list(), []);
    await clock.advanceAsync(HOUR);
    assert.deepEqual(life(), [1, 0, "idle"]);
    assert.match(status().lastError?.message ?? "", /out of order/);
  });

  for (const [what, hold, starts] of [
    ["is started, even while it stops", "onClose", 2],
    ["stays up if its tools are just being learnt", "onOpen", 1],
  ] as const) {
    it(`that is not to be lazy any more ${what}`, async () => {
      const latch = new Latch();
      const { a, hub, life, status } = await begin({ [hold]: latch.wait }, LAZY);
      assert.equal(status().state, hold === "onClose" ? "stopping" : "connecting");
      hub.reload(manifestOf({ a: {} }));
      latch.open();
      await turn();
      assert.deepEqual(life(), [starts, 1, "connected"]);
      assert.equal(a.maxOpenCount, 1);
    });
  }
});
