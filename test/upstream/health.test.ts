import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { memorySnapshots } from "../../src/snapshot/snapshots.ts";
import { HealthMonitor } from "../../src/upstream/health.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  callRequest,
  callTool,
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

const HOUR = 3_600_000;
const SILENCE = (): undefined => undefined;

/** A session as its vigil sees it, which is asked for signs of life and gives none by itself. */
class Watched {
  readonly server = "a";
  messageCount = 0;
  callCount = 0;
  inFlight = 0;
  readonly isSubscribed = false;

  get isBusy(): boolean {
    return this.inFlight > 0;
  }

  pings = 0;
  onPing: (() => void) | undefined;

  ping(): void {
    this.pings++;
    this.onPing?.();
  }
}

interface Watch {
  readonly clock: VirtualClock;
  readonly session: Watched;
  readonly monitor: HealthMonitor;
  /** What was told, with the time. */
  readonly reported: string[];
}

function watch(settings: { healthInterval?: number; idleStop?: number }): Watch {
  const clock = new VirtualClock();
  const session = new Watched();
  const reported: string[] = [];
  const tell = (what: string): number => reported.push(`${what} at ${clock.now()}`);
  const monitor = new HealthMonitor({
    session,
    clock,
    healthInterval: 0,
    idleStop: 0,
    ...settings,
    onLost: (cause) => {
      tell(cause.code);
      monitor.end();
    },
    setResponsive: (responsive) => tell(responsive ? "responsive" : "unresponsive"),
    onIdle: () => tell("idle"),
  });
  return { clock, session, monitor, reported };
}

describe("a server that is watched", () => {
  it("is asked for nothing as long as it is heard within each interval", async () => {
    const { clock, session } = watch({ healthInterval: 1000 });
    for (let i = 0; i < 10; i++) {
      await clock.advanceAsync(900);
      session.messageCount++;
    }
    assert.equal(session.pings, 0);
  });

  it("is asked once an interval while it is silent, and is lost after two misses in a row", async () => {
    const { clock, session, reported } = watch({ healthInterval: 1000 });
    await clock.advanceAsync(2999);
    assert.deepEqual([session.pings, reported], [2, []]);
    await clock.advanceAsync(1);
    assert.deepEqual(reported, ["notResponding at 3000"]);
    assert.deepEqual(clock.pendingDelays, []);
  });

  it("that answers every second ping only is not lost", async () => {
    const { clock, session, reported } = watch({ healthInterval: 1000 });
    session.onPing = () => {
      if (session.pings % 2 === 0) session.messageCount++;
    };
    await clock.advanceAsync(100_000);
    assert.ok(session.pings > 50);
    assert.ok(reported.every((what) => what.startsWith("responsive")));
  });

  it("with calls in flight is never lost, but unresponsive until it is heard", async () => {
    const { clock, session, reported } = watch({ healthInterval: 1000 });
    session.inFlight = 1;
    await clock.advanceAsync(100_000);
    assert.equal(reported[0], "unresponsive at 3000");
    assert.ok(reported.every((what) => what.startsWith("unresponsive")));
    session.messageCount++;
    await clock.advanceAsync(1000);
    assert.equal(reported.at(-1), "responsive at 101000");
  });

  it("that was busy and silent is lost when its last call has ended without an answer", async () => {
    const { clock, session, reported } = watch({ healthInterval: 1000 });
    session.inFlight = 1;
    await clock.advanceAsync(5000);
    session.inFlight = 0;
    await clock.advanceAsync(1000);
    assert.equal(reported.at(-1), "notResponding at 6000");
  });

  it("is not asked, nor lost, without an interval", async () => {
    const { clock, session, reported } = watch({});
    await clock.advanceAsync(HOUR);
    assert.deepEqual([session.pings, reported, clock.pendingDelays], [0, [], []]);
  });

  it("on a machine that slept is asked anew, and gets its two intervals", async () => {
    const { clock, session, reported } = watch({ healthInterval: 1000 });
    await clock.advanceAsync(2500);
    await clock.wakeAfterSleep(HOUR);
    assert.deepEqual([session.pings, reported], [3, []]);
    await clock.advanceAsync(1999);
    assert.deepEqual(reported, []);
    await clock.advanceAsync(1);
    assert.deepEqual(reported, [`notResponding at ${2500 + HOUR + 2000}`]);
  });

  it("is not lost for what it could not say while nothing was read from it", async () => {
    const { clock, session, monitor, reported } = watch({ healthInterval: 1000 });
    await clock.advanceAsync(2000);
    monitor.setPaused(true);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([session.pings, reported], [2, []]);
    monitor.setPaused(false);
    await clock.advanceAsync(2999);
    assert.deepEqual(reported, []);
    await clock.advanceAsync(1);
    assert.equal(reported.length, 1);
  });

  it("is watched no more after the end", async () => {
    const { clock, monitor, reported } = watch({ healthInterval: 1000, idleStop: 1000 });
    monitor.end();
    await clock.advanceAsync(HOUR);
    assert.deepEqual([reported, clock.pendingDelays], [[], []]);
  });
});

describe("a server that nobody uses", () => {
  it("is idle after its time, not before, and not much later", async () => {
    const { clock, reported } = watch({ idleStop: 1000 });
    await clock.advanceAsync(999);
    assert.deepEqual(reported, []);
    await clock.advanceAsync(1);
    assert.deepEqual(reported, ["idle at 1000"]);
  });

  it("counts its time from its last call, however short that was", async () => {
    const { clock, session, reported } = watch({ idleStop: 1000 });
    await clock.advanceAsync(700);
    session.callCount++;
    await clock.advanceAsync(999);
    assert.deepEqual(reported, []);
    await clock.advanceAsync(251);
    assert.equal(reported.length, 1);
  });

  it("is not idle while a call is in flight", async () => {
    const { clock, session, reported } = watch({ idleStop: 1000 });
    session.inFlight = 1;
    await clock.advanceAsync(HOUR);
    assert.deepEqual(reported, []);
    session.inFlight = 0;
    await clock.advanceAsync(999);
    assert.deepEqual(reported, []);
    await clock.advanceAsync(1);
    assert.equal(reported.length, 1);
  });
});

async function begin(
  ...made: Parameters<typeof setUpHubWithClock>
): Promise<ReturnType<typeof setUpHubWithClock>> {
  const staged = setUpHubWithClock(...made);
  await initialize(staged.client);
  return staged;
}

describe("health in the hub", () => {
  it("lets a server live that answers pings, even with an error", async () => {
    const a = new ScriptedServer("x");
    a.onPing = () => '"error":{"code":-32601,"message":"no ping here"}';
    const { hub, clock } = await begin({ a });
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, 1);
    assert.ok(a.messagesOf("ping").length > 50);
    assert.equal(connectionStatusOf(hub, "a").responsive, true);
  });

  it("ends a server that answers nothing, says why, and starts it again", async () => {
    const a = new ScriptedServer("x");
    a.onPing = SILENCE;
    const { hub, clock } = await begin({ a }, { servers: { a: { healthInterval: 1000 } } });
    await clock.advanceAsync(3000);
    const { state, cause } = connectionStatusOf(hub, "a");
    assert.deepEqual([state, cause?.code, a.openCount], ["reconnecting", "notResponding", 0]);
    await clock.advanceAsync(1000);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [2, "connected"]);
  });

  it("leaves a server alone that is busy with a call, marks it, and the call's own deadline decides", async () => {
    const a = new ScriptedServer("x");
    Object.assign(a, { onPing: SILENCE, onCall: SILENCE });
    const servers = { a: { healthInterval: 1000, callTimeout: 10_000 } };
    const { hub, client, clock } = await begin({ a }, { servers });
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(9000);
    assert.deepEqual(
      [a.transportCount, a.openCount, connectionStatusOf(hub, "a").responsive],
      [1, 1, false],
    );
    await clock.advanceAsync(1000);
    assert.equal((await answer).result?.["isError"], true);
  });

  it("forgets that a server was busy when it answers", async () => {
    const a = new ScriptedServer("x");
    Object.assign(a, { onPing: SILENCE, onCall: SILENCE });
    const { hub, client, clock } = await begin({ a }, { servers: { a: { healthInterval: 1000 } } });
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(5000);
    assert.equal(connectionStatusOf(hub, "a").responsive, false);
    const [asked] = a.messagesOf("tools/call");
    a.newestPeer?.send({ jsonrpc: "2.0", id: asked?.id, result: {} });
    await answer;
    a.onPing = () => '"result":{}';
    await clock.advanceAsync(1000);
    assert.equal(connectionStatusOf(hub, "a").responsive, true);
  });

  it("does not take a server for dead because the machine slept", async () => {
    const a = new ScriptedServer("x");
    const { hub, clock } = await begin({ a });
    await clock.advanceAsync(45_000);
    await clock.wakeAfterSleep(8 * HOUR);
    await clock.advanceAsync(120_000);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [1, "connected"]);
  });

  it("keeps to a new interval without another process", async () => {
    const a = new ScriptedServer("x");
    a.onPing = SILENCE;
    const { hub, clock } = await begin({ a }, { servers: { a: { healthInterval: 0 } } });
    await clock.advanceAsync(HOUR);
    hub.add(stdioSpecOf("a", { healthInterval: 500 }));
    assert.equal(a.transportCount, 1);
    await clock.advanceAsync(1500);
    assert.equal(connectionStatusOf(hub, "a").cause?.code, "notResponding");
  });
});

describe("an idle server in the hub", () => {
  const servers = { a: { idleStop: 10_000 } };

  it("is stopped after its time, its tools stay listed, and the next call starts it again", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a }, { servers });
    await listToolNames(client);
    await clock.advanceAsync(9999);
    assert.equal(a.openCount, 1);
    await clock.advanceAsync(1);
    assert.deepEqual([a.openCount, connectionStatusOf(hub, "a").state], [0, "idle"]);
    assert.equal(serverStatusOf(hub, "a").goal, "onDemand");
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.ok((await callTool(client, "a__x")).result);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [2, "connected"]);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, a.openCount], [2, 0]);
    assert.equal(client.messages.filter(({ method }) => method !== undefined).length, 0);
  });

  it("is not stopped during a call, and has its whole time after it", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { client, clock } = await begin({ a }, { servers });
    client.send(callRequest("unanswered", "a__x"));
    await clock.advanceAsync(50_000);
    assert.equal(a.openCount, 1);
    const [asked] = a.messagesOf("tools/call");
    a.newestPeer?.send({ jsonrpc: "2.0", id: asked?.id, result: {} });
    await clock.advanceAsync(9000);
    assert.equal(a.openCount, 1);
    await clock.advanceAsync(4000);
    assert.equal(a.openCount, 0);
  });

  it("is not stopped without an idle time", async () => {
    const a = new ScriptedServer("x");
    const { clock } = await begin({ a });
    await clock.advanceAsync(100 * HOUR);
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
  });

  it("is started once by calls that come while it stops, when nothing of it is left", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { client, clock } = await begin({ a }, { servers });
    await clock.advanceAsync(10_000);
    const answers = [callTool(client, "a__x"), callTool(client, "a__x")];
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    for (const answer of answers) assert.ok((await answer).result);
    assert.deepEqual([a.transportCount, a.maxOpenCount], [2, 1]);
  });

  it("is kept up from then on if somebody starts it", async () => {
    const a = new ScriptedServer("x");
    const { hub, clock } = await begin({ a }, { servers });
    await clock.advanceAsync(10_000);
    hub.start("a");
    await turn();
    assert.deepEqual(
      [serverStatusOf(hub, "a").goal, connectionStatusOf(hub, "a").state],
      ["up", "connected"],
    );
    a.disconnect();
    await clock.advanceAsync(1000);
    assert.equal(a.transportCount, 3);
  });
});

describe("a lazy server", () => {
  const servers = { a: { lazy: true } };

  it("of which nothing is known is started once to learn its tools, and then stopped", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a }, { servers });
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    await clock.advanceAsync(HOUR);
    assert.deepEqual(
      [a.transportCount, a.openCount, connectionStatusOf(hub, "a").state],
      [1, 0, "idle"],
    );
  });

  it("is started by a call of one of its tools", async () => {
    const a = new ScriptedServer("x");
    const { client, clock } = await begin({ a }, { servers });
    assert.ok((await callTool(client, "a__x")).result);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, a.openCount], [2, 1]);
  });

  it("is not stopped under a call that comes while its tools are learnt", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onOpen = latch.wait;
    const { client, clock } = await begin({ a }, { servers });
    const answer = callTool(client, "a__x");
    await turn();
    latch.open();
    assert.ok((await answer).result);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, a.openCount], [1, 1]);
  });

  it("that crashes rests, its tools stay listed, and the next call starts it", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a }, { servers });
    await callTool(client, "a__x");
    a.disconnect();
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [2, "idle"]);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.ok((await callTool(client, "a__x")).result);
    assert.equal(a.transportCount, 3);
  });

  it("that is to be another process is started once to learn what that lists", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a }, { servers });
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.tools = ['{"name":"y"}'];
    hub.reload(manifestOf({ a: { lazy: true, args: ["other"] } }));
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    latch.open();
    await clock.advanceAsync(100);
    assert.deepEqual(await listToolNames(client), ["a__y"]);
    assert.ok(client.messages.some(({ method }) => method?.endsWith("list_changed")));
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [2, "idle"]);
  });

  it("that is to be another process is not started if it is remembered what that lists", async () => {
    const a = new ScriptedServer("x");
    const snapshots = memorySnapshots();
    const { hub, client, clock } = await begin({ a }, { servers, snapshots });
    // What is kept is hashed first, which takes time of the machine's own.
    const settle = async (): Promise<void> => {
      await clock.advanceAsync(100);
      await snapshots.flush();
      await clock.advanceAsync(100);
    };
    await settle();
    hub.reload(manifestOf({ a: { lazy: true, args: ["other"] } }));
    await settle();
    hub.reload(manifestOf({ a: { lazy: true } }));
    await settle();
    const starts = a.transportCount;
    a.tools = ['{"name":"y"}'];
    hub.reload(manifestOf({ a: { lazy: true, args: ["other"] } }));
    await settle();
    assert.deepEqual([starts, a.transportCount], [2, 2]);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });

  it("whose tools cannot be learnt rests, and does not keep a list waiting", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = () => '"error":{"code":1,"message":"out of order"}';
    const { hub, client, clock } = await begin({ a }, { servers });
    assert.deepEqual(await listToolNames(client), []);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [1, "idle"]);
    assert.match(connectionStatusOf(hub, "a").lastError?.message ?? "", /out of order/);
  });

  it("that is not to be lazy any more is started, even while it stops", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub } = await begin({ a }, { servers });
    assert.equal(connectionStatusOf(hub, "a").state, "stopping");
    hub.reload(manifestOf({ a: {} }));
    latch.open();
    await turn();
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
      [2, 1, "connected"],
    );
  });

  it("that is not to be lazy any more stays up if its tools are just being learnt", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onOpen = latch.wait;
    const { hub } = await begin({ a }, { servers });
    hub.reload(manifestOf({ a: {} }));
    latch.open();
    await turn();
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [1, "connected"]);
  });
});
