import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { StdioServer } from "../../src/manifest/manifest.ts";
import { memorySnapshots } from "../../src/snapshot/snapshots.ts";
import { HealthMonitor } from "../../src/upstream/health.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
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
import { respond } from "../fixtures/peer-messages.ts";

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

/** A monitored session, and what was told of it, with the time. */
function watch(settings: { healthInterval?: number; idleStop?: number }) {
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
  /** After so many ms this has been told in all, the last of it only then. */
  const assertReportedIn = async (ms: number, ...expected: string[]): Promise<void> => {
    await clock.advanceAsync(ms - 1);
    assert.deepEqual(reported, expected.slice(0, -1));
    await clock.advanceAsync(1);
    assert.deepEqual(reported, expected);
  };
  return { clock, session, monitor, reported, assertReportedIn };
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
    const { clock, session, assertReportedIn } = watch({ healthInterval: 1000 });
    await assertReportedIn(3000, "notResponding at 3000");
    assert.deepEqual([session.pings, clock.pendingDelays], [2, []]);
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

  it("on a machine that slept is asked anew, and gets its two intervals", async () => {
    const { clock, session, reported, assertReportedIn } = watch({ healthInterval: 1000 });
    await clock.advanceAsync(2500);
    await clock.wakeAfterSleep(HOUR);
    assert.deepEqual([session.pings, reported], [3, []]);
    await assertReportedIn(2000, `notResponding at ${2500 + HOUR + 2000}`);
  });

  it("is not lost for what it could not say while nothing was read from it", async () => {
    const { clock, session, monitor, reported, assertReportedIn } = watch({ healthInterval: 1000 });
    await clock.advanceAsync(2000);
    monitor.setPaused(true);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([session.pings, reported], [2, []]);
    monitor.setPaused(false);
    await assertReportedIn(3000, `notResponding at ${2000 + HOUR + 3000}`);
  });

  it("is watched no more after the end", async () => {
    const { clock, monitor, reported } = watch({ healthInterval: 1000, idleStop: 1000 });
    monitor.end();
    await clock.advanceAsync(HOUR);
    assert.deepEqual([reported, clock.pendingDelays], [[], []]);
  });
});

describe("a server that nobody uses", () => {
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
    const { clock, session, reported, assertReportedIn } = watch({ idleStop: 1000 });
    session.inFlight = 1;
    await clock.advanceAsync(HOUR);
    assert.deepEqual(reported, []);
    session.inFlight = 0;
    await assertReportedIn(1000, `idle at ${HOUR + 1000}`);
  });
});

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
    call: () => callTool(client, "a__x"),
    list: () => listToolNames(client),
    answerCall: () => respond(a.newestPeer, a.messagesOf("tools/call")[0]?.id, {}),
  };
}

describe("health in the hub", () => {
  const SILENT = { onPing: SILENCE, onCall: SILENCE };

  it("lets a server live that answers pings, even with an error", async () => {
    const { a, clock, status } = await begin({
      onPing: () => '"error":{"code":-32601,"message":"no ping here"}',
    });
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, 1);
    assert.ok(a.messagesOf("ping").length > 50);
    assert.equal(status().responsive, true);
  });

  it("ends a server that answers nothing, says why, and starts it again", async () => {
    const { clock, status, life } = await begin({ onPing: SILENCE }, { healthInterval: 1000 });
    await clock.advanceAsync(3000);
    assert.deepEqual(life(), [1, 0, "reconnecting"]);
    assert.equal(status().cause?.code, "notResponding");
    await clock.advanceAsync(1000);
    assert.deepEqual(life(), [2, 1, "connected"]);
  });

  it("leaves a server alone that is busy with a call, marks it, and the call's own deadline decides", async () => {
    const limits = { healthInterval: 1000, callTimeout: 10_000 };
    const { clock, status, life, call } = await begin(SILENT, limits);
    const answer = call();
    await clock.advanceAsync(9000);
    assert.deepEqual(life(), [1, 1, "connected"]);
    assert.equal(status().responsive, false);
    await clock.advanceAsync(1000);
    assert.equal((await answer).result?.["isError"], true);
  });

  it("forgets that a server was busy when it answers", async () => {
    const { a, clock, status, call, answerCall } = await begin(SILENT, { healthInterval: 1000 });
    const answer = call();
    await clock.advanceAsync(5000);
    assert.equal(status().responsive, false);
    answerCall();
    await answer;
    a.onPing = () => '"result":{}';
    await clock.advanceAsync(1000);
    assert.equal(status().responsive, true);
  });

  it("does not take a server for dead because the machine slept", async () => {
    const { clock, life } = await begin();
    await clock.advanceAsync(45_000);
    await clock.wakeAfterSleep(8 * HOUR);
    await clock.advanceAsync(120_000);
    assert.deepEqual(life(), [1, 1, "connected"]);
  });

  it("keeps to a new interval without another process", async () => {
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

  it("is not stopped during a call, and has its whole time after it", async () => {
    const { a, clock, call, answerCall } = await begin({ onCall: SILENCE }, IDLE);
    const answer = call();
    await clock.advanceAsync(50_000);
    assert.equal(a.openCount, 1);
    answerCall();
    await answer;
    await clock.advanceAsync(9000);
    assert.equal(a.openCount, 1);
    await clock.advanceAsync(4000);
    assert.equal(a.openCount, 0);
  });

  it("is not stopped without an idle time", async () => {
    const { clock, life } = await begin();
    await clock.advanceAsync(100 * HOUR);
    assert.deepEqual(life(), [1, 1, "connected"]);
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
    assert.deepEqual(await list(), ["a__x"]);
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
