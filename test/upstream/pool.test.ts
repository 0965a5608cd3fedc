import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  array,
  assert as check,
  asyncProperty,
  constantFrom,
  nat,
  oneof,
  record,
} from "fast-check";
import { HubError } from "../../src/base/errors.ts";
import type { HubEvent } from "../../src/base/events.ts";
import type { Reconnect, StdioServer } from "../../src/manifest/manifest.ts";
import { memorySnapshots } from "../../src/snapshot/snapshots.ts";
import { turn, type VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  sendRequest,
  callTool,
  callRequest,
  INITIALIZE_REQUEST,
  initialize,
  isResponseTo,
  type Json,
  Latch,
  listToolNames,
  manifestOf,
  ScriptedServer,
  serverStatusOf,
  setUpHubWithClock,
  setUpHub,
  stdioSpecOf,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";

const HOUR = 3_600_000;
const REFUSAL = '"error":{"code":1,"message":"out of order"}';
const SILENCE = (): undefined => undefined;

const reconnect = (policy: Partial<Reconnect>): { reconnect: Reconnect } => ({
  reconnect: {
    policy: "exponential",
    base: 1000,
    max: 60_000,
    jitter: 0.2,
    maxAttempts: 0,
    ...policy,
  },
});

/** A hub whose client has introduced itself, so that what shall be up is up. */
async function begin(
  ...made: Parameters<typeof setUpHubWithClock>
): Promise<ReturnType<typeof setUpHubWithClock>> {
  const staged = setUpHubWithClock(...made);
  await initialize(staged.client);
  return staged;
}

/** The states that a server went through. */
function pathOf(events: readonly HubEvent[], server: string): string {
  const moves = events.filter((event) => event.kind === "state");
  return moves
    .filter((move) => move.server === server)
    .map(({ to }) => to)
    .join(" ");
}

describe("a server that many want at a time", () => {
  it("is opened once for twenty starts, reconnects and calls that come while it connects", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onOpen = latch.wait;
    const { hub, client } = await begin({ a });
    for (let i = 0; i < 20; i++) hub.start("a");
    for (let i = 0; i < 20; i++) hub.reconnect("a");
    const answers = Array.from({ length: 20 }, () => callTool(client, "a__x"));
    await turn();
    latch.open();
    for (const { result } of await Promise.all(answers)) assert.ok(result);
    assert.equal(a.transportCount, 1);
  });
});

describe("a call whose sending throws when its server is ready", () => {
  it("fails alone: others that waited are answered, and the server can be stopped, started and called", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    const connectScript = a.connect.bind(a);
    let isBroken = true;
    a.connect = () => {
      const link = connectScript();
      const send = link.send.bind(link);
      link.send = (message, info) => {
        if (isBroken && info?.method === "tools/call") {
          isBroken = false;
          throw new TypeError("broken link");
        }
        return send(message, info);
      };
      return link;
    };
    const { hub, client, events } = await begin({ a }, { servers: { a: { lazy: true } } });
    await listToolNames(client);
    a.onOpen = latch.wait;
    const answers = [callTool(client, "a__x"), callTool(client, "a__x")];
    await turn();
    latch.open();
    const [first, second] = await Promise.all(answers);
    assert.equal(first?.error?.data?.["code"], "internal");
    assert.ok(second?.result);
    assert.deepEqual(
      [connectionStatusOf(hub, "a").state, connectionStatusOf(hub, "a").inFlight],
      ["connected", 0],
    );
    assert.ok(events.some((event) => event.kind === "log" && /broken link/.test(event.text)));
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    hub.start("a");
    await turn();
    assert.ok((await callTool(client, "a__x")).result);
  });
});

describe("a server whose change of state throws", () => {
  it("takes what it is told afterwards, and the log has the error", async () => {
    const a = new ScriptedServer("x");
    let isBroken = true;
    const random = (): number => {
      if (isBroken) throw new TypeError("no chance");
      return 0;
    };
    const { hub, client, events } = setUpHub({ a }, { random });
    await initialize(client);
    assert.equal(a.transportCount, 0);
    isBroken = false;
    hub.start("a");
    await hub.settled();
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    assert.ok(events.some((event) => event.kind === "log" && /no chance/.test(event.text)));
    await hub.stop("a");
    assert.equal(a.openCount, 0);
  });
});

describe("a server that is stopped", () => {
  it("is not started again before nothing of it is left", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub } = await begin({ a });
    void hub.stop("a");
    hub.start("a");
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    await turn();
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
      [2, 1, "connected"],
    );
  });

  it("has been stopped only when nothing of it is left", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub } = await begin({ a });
    let isStopped = false;
    const stopped = hub.stop("a").then(() => (isStopped = true));
    await turn();
    assert.equal(isStopped, false);
    latch.open();
    await stopped;
    assert.equal(a.openCount, 0);
  });

  for (const [step, hang] of [
    ["made", (a: ScriptedServer): void => void (a.onMake = new Latch().wait)],
    ["opened", (a: ScriptedServer): void => void (a.onOpen = new Latch().wait)],
    ["greeted", (a: ScriptedServer): void => void (a.onInitialize = SILENCE)],
    ["listed", (a: ScriptedServer): void => void (a.onList = SILENCE)],
  ] as const) {
    it(`while it is being ${step} is down at once, and nothing of it is left`, async () => {
      const a = new ScriptedServer("x");
      hang(a);
      const { hub, clock, events } = await begin({ a });
      assert.equal(connectionStatusOf(hub, "a").state, "connecting");
      await hub.stop("a");
      assert.equal(a.openCount, 0);
      await clock.advanceAsync(HOUR);
      assert.equal(pathOf(events, "a"), "connecting stopping disconnected");
      assert.equal(a.transportCount, step === "made" ? 0 : 1);
    });
  }

  it("shows no tools, and refuses calls until it is started", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a });
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    await hub.stop("a");
    assert.deepEqual(await listToolNames(client), []);
    const { error } = await callTool(client, "a__x");
    assert.equal(error?.data?.["code"], "serverStopped");
    assert.match(error?.message ?? "", /"a" is stopped/);
    await clock.advanceAsync(HOUR);
    assert.equal(a.transportCount, 1);
    hub.start("a");
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.ok((await callTool(client, "a__x")).result);
  });

  it("stays so for clients that come later", async () => {
    const a = new ScriptedServer("x");
    const { hub, connect } = await begin({ a });
    await hub.stop("a");
    await initialize(connect());
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [1, "disconnected"]);
  });

  it("does not open when the time of its next attempt comes", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = () => REFUSAL;
    const { hub, clock } = await begin({ a });
    assert.equal(connectionStatusOf(hub, "a").state, "reconnecting");
    await hub.stop("a");
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [1, "disconnected"]);
  });

  it("fails the calls that it was to answer or that wait for it, each with that reason", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    a.onCall = SILENCE;
    const { hub, client } = await begin({ a, b }, { servers: { b: { lazy: true } } });
    b.onInitialize = SILENCE;
    const answers = [callTool(client, "a__x"), callTool(client, "b__y")];
    await turn();
    assert.equal(connectionStatusOf(hub, "b").state, "connecting");
    await Promise.all([hub.stop("a"), hub.stop("b")]);
    for (const answer of answers) {
      assert.equal((await answer).error?.data?.["code"], "serverStopped");
    }
  });

  it("counts as settled although it was never tried", async () => {
    const { hub, clock } = await begin(
      { a: new ScriptedServer("x") },
      { servers: { a: { lazy: true } } },
    );
    await clock.advanceAsync(0);
    assert.equal(connectionStatusOf(hub, "a").state, "idle");
    await hub.stop("a");
    await hub.settled();
  });
});

describe("reconnecting a server", () => {
  it("that is connected ends it first, and begins a new series of attempts", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, events } = await begin({ a });
    hub.reconnect("a");
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    await turn();
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").attempt],
      [2, 1, 1],
    );
    assert.equal(pathOf(events, "a"), "connecting connected stopping connecting connected");
  });

  it("that somebody stopped starts it, and its tools are there again", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = await begin({ a });
    await hub.stop("a");
    hub.reconnect("a");
    await turn();
    assert.deepEqual(
      [serverStatusOf(hub, "a").goal, connectionStatusOf(hub, "a").state],
      ["up", "connected"],
    );
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });

  it("that waits for its next attempt does not wait, and settles with that attempt", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    a.onInitialize = () => REFUSAL;
    const { hub } = await begin({ a });
    a.onInitialize = onInitialize;
    hub.reconnect("a");
    await hub.settled();
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
  });

  it("happens also to those that are just ending after they failed", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    const latch = new Latch();
    Object.assign(a, { onInitialize: () => REFUSAL, onClose: latch.wait });
    const { hub } = await begin({ a });
    assert.equal(connectionStatusOf(hub, "a").state, "stopping");
    a.onInitialize = onInitialize;
    assert.deepEqual(hub.reconnectFailed(), ["a"]);
    latch.open();
    await turn();
    assert.deepEqual([a.maxOpenCount, connectionStatusOf(hub, "a").state], [1, "connected"]);
  });

  it("happens to all that failed or wait, and to nobody else, if those that failed are meant", async () => {
    const scripts = {
      waits: new ScriptedServer("x"),
      failed: new ScriptedServer("x"),
      up: new ScriptedServer("x"),
      stopped: new ScriptedServer("x"),
      idle: new ScriptedServer("x"),
    };
    scripts.waits.onInitialize = () => REFUSAL;
    scripts.failed.onInitialize = () => REFUSAL;
    const servers = { failed: reconnect({ policy: "none" }), idle: { lazy: true } };
    const { hub } = await begin(scripts, { servers });
    await hub.stop("stopped");
    const before = Object.values(scripts).map(({ transportCount: starts }) => starts);
    assert.deepEqual(hub.reconnectFailed(), ["waits", "failed"]);
    await turn();
    const after = Object.values(scripts).map(({ transportCount: starts }) => starts);
    assert.deepEqual(
      after.map((starts, i) => starts - (before[i] ?? 0)),
      [1, 1, 0, 0, 0],
    );
  });
});

describe("cancelling an attempt", () => {
  it("that runs ends it, and the server rests until it is called", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    a.onInitialize = SILENCE;
    const { hub, client, clock } = await begin({ a });
    hub.cancelAttempt("a");
    await clock.advanceAsync(HOUR);
    assert.deepEqual(
      [a.transportCount, a.openCount, connectionStatusOf(hub, "a").state],
      [1, 0, "idle"],
    );
    a.onInitialize = onInitialize;
    assert.ok((await callTool(client, "a__x")).result);
  });

  it("that is still to come ends the wait for it", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = () => REFUSAL;
    const { hub, clock } = await begin({ a });
    hub.cancelAttempt("a");
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [1, "idle"]);
  });

  it("that calls wait for fails them", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = SILENCE;
    const { hub, client } = await begin({ a });
    const answer = callTool(client, "a__x");
    await turn();
    hub.cancelAttempt("a");
    assert.equal((await answer).error?.data?.["code"], "serverStopped");
  });

  it("does nothing to a server that is connected, or down", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub } = await begin({ a, b });
    await hub.stop("b");
    hub.cancelAttempt("a");
    hub.cancelAttempt("b");
    await turn();
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    assert.equal(connectionStatusOf(hub, "b").state, "disconnected");
  });
});

describe("a late report of an attempt that was given up", () => {
  for (const [what, hang, report] of [
    [
      "that its link is made",
      (a: ScriptedServer, latch: Latch): void => void (a.onMake = latch.wait),
      (): void => {},
    ],
    [
      "that its handshake is done",
      (a: ScriptedServer): void => void (a.onInitialize = SILENCE),
      ({ peers: [first] }: ScriptedServer): void => {
        const id = first?.messages.find(({ method }) => method === "initialize")?.id;
        first?.send({ jsonrpc: "2.0", id, error: { code: 1, message: "no" } });
      },
    ],
    [
      "that it has ended",
      (a: ScriptedServer): void => void (a.onInitialize = SILENCE),
      ({ peers: [first] }: ScriptedServer): void => void first?.transport.close(),
    ],
  ] as const) {
    it(`${what} changes nothing`, async () => {
      const a = new ScriptedServer("x");
      const { onInitialize } = a;
      const latch = new Latch();
      hang(a, latch);
      const { hub, events, clock } = await begin({ a });
      hub.cancelAttempt("a");
      await turn();
      Object.assign(a, { onMake: undefined, onOpen: undefined, onInitialize });
      hub.start("a");
      await turn();
      const before = pathOf(events, "a");
      latch.open();
      report(a);
      await clock.advanceAsync(1000);
      assert.equal(pathOf(events, "a"), before);
      assert.deepEqual(
        [a.openCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
        [1, 1, "connected"],
      );
    });
  }
});

describe("connectTimeout", () => {
  for (const [step, hang] of [
    ["resolve", (a: ScriptedServer): void => void (a.onMake = new Latch().wait)],
    ["spawn", (a: ScriptedServer): void => void (a.onOpen = new Latch().wait)],
    ["handshake", (a: ScriptedServer): void => void (a.onInitialize = SILENCE)],
    ["list", (a: ScriptedServer): void => void (a.onList = SILENCE)],
  ] as const) {
    it(`ends an attempt that hangs at the step ${step}, and says so`, async () => {
      const a = new ScriptedServer("x");
      hang(a);
      const servers = { a: { connectTimeout: 700, ...reconnect({ policy: "none" }) } };
      const { hub, clock } = await begin({ a }, { servers });
      await clock.advanceAsync(699);
      assert.equal(connectionStatusOf(hub, "a").state, "connecting");
      await clock.advanceAsync(1);
      const { state, cause } = connectionStatusOf(hub, "a");
      assert.deepEqual([state, cause?.code, cause?.step], ["failed", "connectTimeout", step]);
      assert.match(cause?.message ?? "", /within 700 ms/);
      assert.equal(a.openCount, 0);
    });
  }
});

describe("a server that the manifest gives no connectTimeout", () => {
  const LATE = { connectTimeout: 30_000, startLimit: 300_000 };
  const codeOf = ({ error }: Json): unknown => error?.data?.["code"];

  /** A hub with a server that opens when the latch does, and one that is there at once. */
  async function beginSlow(more: Partial<StdioServer> = {}) {
    const [slow, quick] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const latch = new Latch();
    slow.onOpen = latch.wait;
    const servers = { slow: { ...LATE, ...more }, quick: LATE };
    const made = setUpHubWithClock({ slow, quick }, { servers, hub: { listWait: 600_000 } });
    await initialize(made.client);
    return { ...made, slow, latch };
  }

  it("is not waited for by lists once connectTimeout is over, and joins them when it is ready, as the same process", async () => {
    const { client, clock, hub, slow, latch } = await beginSlow();
    let names: readonly string[] | undefined;
    void listToolNames(client).then((listed) => (names = listed));
    await clock.advanceAsync(29_999);
    assert.equal(names, undefined);
    await clock.advanceAsync(1);
    assert.deepEqual(names, ["quick__y"]);
    await clock.advanceAsync(15_000);
    assert.deepEqual(
      [connectionStatusOf(hub, "slow").state, connectionStatusOf(hub, "slow").late],
      ["connecting", 45_000],
    );
    latch.open();
    await clock.advanceAsync(1000);
    assert.ok(client.messages.some(({ method }) => method === "notifications/tools/list_changed"));
    assert.deepEqual(await listToolNames(client), ["quick__y", "slow__x"]);
    assert.ok((await callTool(client, "slow__x")).result);
    assert.deepEqual(
      [slow.transportCount, slow.maxOpenCount, connectionStatusOf(hub, "slow").late],
      [1, 1, undefined],
    );
  });

  it("fails a call that waits for it once connectTimeout is over, and one that comes later at once", async () => {
    const { client, clock, hub, latch, slow } = await beginSlow();
    const waiting = callTool(client, "slow__x");
    await clock.advanceAsync(30_000);
    assert.equal(codeOf(await waiting), "connectTimeout");
    await clock.advanceAsync(15_000);
    const later = await callTool(client, "slow__x");
    assert.equal(codeOf(later), "connectTimeout");
    assert.match(later.error?.message ?? "", /45 seconds/);
    assert.equal(connectionStatusOf(hub, "slow").state, "connecting");
    latch.open();
    await turn();
    assert.ok((await callTool(client, "slow__x")).result);
    assert.equal(slow.transportCount, 1);
  });

  it("fails a call of a tool that is known from before, too, while it is late", async () => {
    const { client, clock, hub, latch, slow } = await beginSlow();
    latch.open();
    await turn();
    slow.onOpen = new Latch().wait;
    hub.reconnect("slow");
    const waiting = callTool(client, "slow__x");
    await clock.advanceAsync(30_000);
    assert.equal(codeOf(await waiting), "connectTimeout");
    assert.equal(codeOf(await callTool(client, "slow__x")), "connectTimeout");
    assert.equal(slow.transportCount, 2);
  });

  it("keeps what a call has started, although the call did not wait for it", async () => {
    const { client, clock, hub, latch } = await beginSlow({ lazy: true });
    await clock.advanceAsync(30_000);
    assert.equal(codeOf(await callTool(client, "slow__x")), "connectTimeout");
    latch.open();
    await clock.advanceAsync(60_000);
    assert.equal(connectionStatusOf(hub, "slow").state, "connected");
  });

  it("is ended after startLimit as after any other failure, and tried again", async () => {
    const { clock, hub, slow } = await beginSlow();
    await clock.advanceAsync(299_999);
    assert.deepEqual(
      [slow.transportCount, connectionStatusOf(hub, "slow").state],
      [1, "connecting"],
    );
    await clock.advanceAsync(1);
    const { state, cause, late } = connectionStatusOf(hub, "slow");
    assert.deepEqual([state, cause?.code, late], ["reconnecting", "connectTimeout", undefined]);
    assert.match(cause?.message ?? "", /within 5 min/);
    await clock.advanceAsync(2000);
    assert.deepEqual(
      [slow.transportCount, slow.maxOpenCount, connectionStatusOf(hub, "slow").state],
      [2, 0, "connecting"],
    );
  });

  it("has settled when it is late, for those who do not want to wait for it until it is there", async () => {
    const { clock, hub, latch } = await beginSlow();
    const done: string[] = [];
    const settled = hub.startAllAndSettle();
    void settled.then(() => done.push("late"));
    void hub.settled("untilStarted").then(() => done.push("started"));
    await clock.advanceAsync(29_999);
    assert.deepEqual(done, []);
    await clock.advanceAsync(1);
    const { connected, late, failed } = await settled;
    assert.deepEqual([connected, late, failed], [["quick"], ["slow"], []]);
    assert.deepEqual(done, ["late"]);
    assert.deepEqual(hub.snapshot().alerts, []);
    latch.open();
    await turn();
    assert.deepEqual(done, ["late", "started"]);
  });

  it("does not keep others from starting, can be stopped, and leaves nothing behind", async () => {
    const scripts = Object.fromEntries(
      ["a", "b", "c"].map((name) => [name, new ScriptedServer("x")]),
    );
    const servers = { a: LATE, b: LATE, c: LATE };
    for (const script of [scripts["a"], scripts["b"]])
      if (script !== undefined) script.onInitialize = SILENCE;
    const { hub, client, clock } = setUpHubWithClock(scripts, {
      servers,
      hub: { parallelStarts: 1 },
    });
    await initialize(client);
    await clock.advanceAsync(60_000);
    assert.deepEqual(
      ["a", "b", "c"].map((name) => connectionStatusOf(hub, name).state),
      ["connecting", "connecting", "connected"],
    );
    await hub.stop("a");
    assert.deepEqual(
      [scripts["a"]?.openCount, connectionStatusOf(hub, "a").state],
      [0, "disconnected"],
    );
    await hub.close();
    assert.equal(scripts["b"]?.openCount, 0);
  });
});

describe("a server that cannot be started", () => {
  /** When it was tried, in ms. */
  async function trials(policy: Partial<Reconnect>, length: number): Promise<readonly number[]> {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = setUpHubWithClock({ a }, { servers: { a: reconnect(policy) } });
    const times: number[] = [];
    a.onInitialize = () => {
      times.push(clock.now());
      return REFUSAL;
    };
    await initialize(client);
    await clock.advanceAsync(length);
    await hub.close();
    return times;
  }

  it("is tried again under the policy exponential, ever later up to max", async () => {
    const times = await trials({ base: 500, max: 3000 }, 10_000);
    assert.deepEqual(times, [0, 500, 1500, 3500, 6500, 9500]);
  });

  it("is tried again at once under the policy immediate, so many times in all", async () => {
    assert.deepEqual(await trials({ policy: "immediate", maxAttempts: 4 }, HOUR), [0, 0, 0, 0]);
  });

  it("is tried no more than maxAttempts times under the policy exponential", async () => {
    assert.deepEqual(await trials({ maxAttempts: 3 }, HOUR), [0, 1000, 3000]);
  });

  it("is tried once under the policy none", async () => {
    assert.deepEqual(await trials({ policy: "none" }, HOUR), [0]);
  });

  it("is tried once if nothing can cure it", async () => {
    const a = new ScriptedServer("x");
    const text = 'Command "none" was not found.';
    a.onOpen = () => Promise.reject(new HubError("commandNotFound", text));
    const { hub, clock } = await begin({ a });
    await clock.advanceAsync(HOUR);
    const { state, cause } = connectionStatusOf(hub, "a");
    assert.deepEqual([a.transportCount, state, cause?.code], [1, "failed", "commandNotFound"]);
  });

  it("tells in its status what went wrong, which attempt it was, and when the next is due", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = () => REFUSAL;
    const { hub, clock } = await begin({ a });
    await clock.advanceAsync(1500);
    const { state, attempt, cause, retryAt } = connectionStatusOf(hub, "a");
    assert.deepEqual([state, attempt, cause?.step], ["reconnecting", 2, "handshake"]);
    assert.match(cause?.message ?? "", /out of order/);
    assert.ok(Math.abs((retryAt ?? 0) - (Date.now() + 1500)) < 1000);
  });

  it("for good shows no tools until it is connected again, but a call of one still tries it", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    const servers = { a: reconnect({ policy: "none" }) };
    const { hub, client } = await begin({ a }, { servers });
    a.onInitialize = () => REFUSAL;
    a.disconnect();
    await turn();
    assert.equal(connectionStatusOf(hub, "a").state, "failed");
    assert.deepEqual(await listToolNames(client), []);
    const { error } = await callTool(client, "a__x");
    assert.match(error?.message ?? "", /out of order/);
    const latch = new Latch();
    Object.assign(a, { onInitialize, onOpen: latch.wait });
    const answer = callTool(client, "a__x");
    await turn();
    assert.equal(connectionStatusOf(hub, "a").state, "connecting");
    assert.deepEqual(await listToolNames(client), []);
    latch.open();
    assert.ok((await answer).result);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });
});

describe("a server that dies", () => {
  it("is started again, its tools stay listed meanwhile, and nobody is told of a change", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a });
    await listToolNames(client);
    a.disconnect();
    await turn();
    assert.equal(connectionStatusOf(hub, "a").state, "reconnecting");
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    await clock.advanceAsync(1000);
    assert.deepEqual([a.transportCount, connectionStatusOf(hub, "a").state], [2, "connected"]);
    await clock.advanceAsync(HOUR);
    assert.equal(client.messages.filter(({ method }) => method !== undefined).length, 0);
  });

  it("right after each handshake is started ever more rarely", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = setUpHubWithClock({ a });
    const times: number[] = [];
    hub.subscribe(
      (event) => {
        if (event.kind !== "state" || event.to !== "connected") return;
        times.push(clock.now());
        a.disconnect();
      },
      ["state"],
    );
    await initialize(client);
    await clock.advanceAsync(16_000);
    assert.deepEqual(times, [0, 1000, 3000, 7000, 15_000]);
  });

  it("after it was connected for 30 s begins a new series of attempts", async () => {
    const a = new ScriptedServer("x");
    const { hub, clock } = await begin({ a });
    for (const delay of [1000, 2000]) {
      a.disconnect();
      await turn();
      await clock.advanceAsync(delay);
      assert.equal(connectionStatusOf(hub, "a").state, "connected");
    }
    await clock.advanceAsync(30_000);
    a.disconnect();
    await clock.advanceAsync(999);
    assert.equal(connectionStatusOf(hub, "a").state, "reconnecting");
    await clock.advanceAsync(1);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
  });
});

describe("a call", () => {
  it("cuts the wait for the next attempt short, and all that come share that attempt", async () => {
    const a = new ScriptedServer("x");
    const { client, clock } = await begin({ a });
    a.disconnect();
    await turn();
    const answers = [callTool(client, "a__x"), callTool(client, "a__x")];
    for (const answer of answers) assert.ok((await answer).result);
    assert.deepEqual([a.transportCount, clock.now()], [2, 0]);
  });

  it("gets the cause if the one attempt that it leads to fails", async () => {
    const a = new ScriptedServer("x");
    const { client } = await begin({ a });
    a.onInitialize = () => REFUSAL;
    a.disconnect();
    await turn();
    const { error } = await callTool(client, "a__x");
    assert.match(error?.message ?? "", /out of order/);
    assert.equal(error?.data?.["step"], "handshake");
    assert.equal(a.transportCount, 2);
  });

  it("of a server that hangs ends at its own deadline, and the attempt goes on", async () => {
    const a = new ScriptedServer("x");
    const servers = { a: { callTimeout: 500, connectTimeout: 5000 } };
    const { hub, client, clock } = await begin({ a }, { servers });
    a.onInitialize = SILENCE;
    a.disconnect();
    await turn();
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(500);
    const { result } = await answer;
    assert.equal(result?.["isError"], true);
    assert.match(JSON.stringify(result), /was not ready within 0\.5 seconds/);
    assert.equal(connectionStatusOf(hub, "a").state, "connecting");
  });

  it("that was given up while it waited is not sent when its server comes", async () => {
    const a = new ScriptedServer("x");
    const { client, clock } = await begin({ a }, { servers: { a: { callTimeout: 500 } } });
    const latch = new Latch();
    a.onOpen = latch.wait;
    a.disconnect();
    await turn();
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(500);
    await answer;
    latch.open();
    await clock.advanceAsync(5000);
    assert.equal(a.messagesOf("tools/call").length, 0);
  });
});

describe("adding a server", () => {
  it("starts it, and its tools are announced and listed", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub, client, clock } = await begin({ a, b });
    hub.remove("b");
    await clock.advanceAsync(100);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    hub.add(stdioSpecOf("b"));
    await clock.advanceAsync(100);
    assert.ok(client.messages.some(({ method }) => method?.endsWith("list_changed")));
    assert.deepEqual(await listToolNames(client), ["a__x", "b__y"]);
  });

  it("that is there already, as it is, changes nothing", async () => {
    const a = new ScriptedServer("x");
    const { hub, events } = await begin({ a });
    const before = events.length;
    hub.add(stdioSpecOf("a"));
    await turn();
    assert.deepEqual([a.transportCount, events.length], [1, before]);
  });

  it("that is there already, but otherwise, replaces it: the old one is gone before the new one starts", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub } = await begin({ a });
    hub.add(stdioSpecOf("a", { args: ["other"] }));
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    await turn();
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
      [2, 1, "connected"],
    );
  });

  it("that is from now on one for each client goes on with the calls that wait for it", async () => {
    const a = new ScriptedServer("x");
    const greet = a.onInitialize;
    const { hub, client } = await begin({ a });
    a.onInitialize = SILENCE;
    a.disconnect();
    await turn();
    const answer = callTool(client, "a__x");
    await turn();
    a.onInitialize = greet;
    hub.add(stdioSpecOf("a", { isolation: "perClient" }));
    assert.ok((await answer).result);
    assert.equal(a.maxOpenCount, 1);
  });
});

describe("removing a server", () => {
  it("ends it, takes its tools away, and forgets it", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub, client } = await begin({ a, b });
    hub.remove("a");
    await turn();
    assert.equal(a.openCount, 0);
    assert.deepEqual(await listToolNames(client), ["b__y"]);
    assert.deepEqual(
      hub.status().map(({ server }) => server),
      ["b"],
    );
    assert.equal((await callTool(client, "a__x")).error?.data?.["code"], "unknownTool");
  });

  it("that is connecting fails the calls that wait for it, and leaves nothing of it", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = SILENCE;
    const { hub, client, clock } = await begin({ a });
    const answer = callTool(client, "a__x");
    await turn();
    hub.remove("a");
    assert.equal((await answer).error?.data?.["code"], "serverStopped");
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.openCount, a.transportCount], [0, 1]);
  });

  it("and adding it again starts the new one only when nothing of the old is left", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub } = await begin({ a });
    hub.remove("a");
    hub.add(stdioSpecOf("a"));
    await turn();
    assert.equal(a.transportCount, 1);
    latch.open();
    await turn();
    assert.deepEqual(
      [a.transportCount, a.maxOpenCount, connectionStatusOf(hub, "a").state],
      [2, 1, "connected"],
    );
  });
});

describe("starting all", () => {
  it("starts those that only a call would start, and not those that shall be down", async () => {
    const scripts = {
      a: new ScriptedServer(),
      lazy: new ScriptedServer(),
      off: new ScriptedServer(),
      stopped: new ScriptedServer(),
    };
    const servers = { lazy: { lazy: true }, off: { enabled: false } };
    const { hub } = setUpHubWithClock(scripts, { servers });
    await hub.stop("stopped");
    hub.startAll();
    await turn();
    const starts = Object.values(scripts).map((script) => script.transportCount);
    assert.deepEqual(starts, [1, 1, 0, 0]);
  });

  it("and settling tells who is connected, and who failed and why", async () => {
    const scripts = {
      a: new ScriptedServer(),
      broken: new ScriptedServer(),
      lazy: new ScriptedServer(),
      off: new ScriptedServer(),
    };
    scripts.broken.onInitialize = () => REFUSAL;
    const servers = { lazy: { lazy: true }, off: { enabled: false } };
    const { hub } = setUpHubWithClock(scripts, { servers });
    const { connected, failed } = await hub.startAllAndSettle();
    assert.deepEqual(connected, ["a", "lazy"]);
    assert.deepEqual(
      failed.map(({ server }) => server),
      ["broken"],
    );
    assert.match(failed[0]?.cause.message ?? "", /out of order/);
  });

  it("and settling waits for the attempt of a server that has failed before", async () => {
    const a = new ScriptedServer();
    const { onInitialize } = a;
    a.onInitialize = () => REFUSAL;
    const { hub } = setUpHubWithClock({ a }, { servers: { a: reconnect({ policy: "none" }) } });
    assert.deepEqual((await hub.startAllAndSettle()).connected, []);
    a.onInitialize = onInitialize;
    assert.deepEqual((await hub.startAllAndSettle()).connected, ["a"]);
  });

  it("and settling ends although two servers never come up and are tried again at once", async () => {
    const [a, b] = [new ScriptedServer(), new ScriptedServer()];
    const latch = new Latch();
    a.onInitialize = () => REFUSAL;
    b.onOpen = latch.wait;
    b.onInitialize = () => REFUSAL;
    const { hub, clock } = setUpHubWithClock({ a, b });
    const settled = hub.startAllAndSettle();
    await clock.advanceAsync(100_000);
    latch.open();
    assert.equal((await settled).failed.length, 2);
  });

  it("and settling looks at all connections of a server, as what runs for it does", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    const isPlain = ({ params }: Json): boolean =>
      !("sampling" in (params?.["capabilities"] as object));
    a.onInitialize = (message, text) => (isPlain(message) ? REFUSAL : onInitialize(message, text));
    const connectScript = a.connect.bind(a);
    a.connect = () => {
      const pid = a.transportCount + 1;
      const vitals = { pid, processes: 2, memory: 1000, entries: [] };
      return Object.assign(connectScript(), { vitals: () => Promise.resolve(vitals) });
    };
    const { hub, connect } = await begin({ a }, { servers: { a: reconnect({ policy: "none" }) } });
    assert.equal(await hub.inspect("a"), undefined);
    await initialize(connect(), { sampling: {} });
    const states = (): string[] => serverStatusOf(hub, "a").connections.map(({ state }) => state);
    assert.deepEqual(states(), ["failed", "connected"]);
    assert.equal((await hub.inspect("a"))?.pid, 2);
    const { connected, failed } = await hub.startAllAndSettle();
    assert.deepEqual([connected, failed], [["a"], []]);
    a.onInitialize = onInitialize;
    await hub.startAllAndSettle();
    assert.deepEqual(states(), ["connected", "connected"]);
    const vitals = await hub.inspect("a");
    assert.deepEqual([vitals?.processes, vitals?.memory], [4, 2000]);
  });

  it("keeps a lazy server up that was only to be listed", async () => {
    const lazy = new ScriptedServer("x");
    const latch = new Latch();
    lazy.onOpen = latch.wait;
    const { hub } = await begin({ lazy }, { servers: { lazy: { lazy: true } } });
    const settled = hub.startAllAndSettle();
    latch.open();
    assert.deepEqual((await settled).connected, ["lazy"]);
    assert.equal(lazy.transportCount, 1);
  });
});

describe("starting one server", () => {
  it("starts it although no client has come", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub } = setUpHubWithClock({ a, b });
    hub.start("a");
    await turn();
    assert.deepEqual([a.transportCount, b.transportCount], [1, 0]);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
  });

  it("and the first client's coming do not make two of it", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHubWithClock({ a });
    hub.start("a");
    await initialize(client);
    assert.equal(a.transportCount, 1);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });

  it("that is not enabled in the manifest brings it up all the same", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = await begin({ a }, { servers: { a: { enabled: false } } });
    assert.equal(a.transportCount, 0);
    hub.start("a");
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });
});

describe("a verb about a server that there is not", () => {
  for (const verb of ["start", "reconnect", "cancelAttempt"] as const) {
    it(`is refused: ${verb}`, () => {
      assert.throws(() => setUpHubWithClock({}).hub[verb]("none"), { code: "usage" });
    });
  }
  for (const verb of ["stop", "refresh", "inspect"] as const) {
    it(`is refused: ${verb}`, async () => {
      const rejects = async (): Promise<unknown> => setUpHubWithClock({}).hub[verb]("none");
      await assert.rejects(rejects, { code: "usage" });
    });
  }
  it("means nothing if that is to remove it", () => {
    setUpHubWithClock({}).hub.remove("none");
  });
});

describe("stopping all", () => {
  it("leaves nothing of any server, and none comes back until it is started", async () => {
    const scripts = {
      a: new ScriptedServer("x"),
      b: new ScriptedServer("y"),
      c: new ScriptedServer("z"),
    };
    scripts.b.onInitialize = SILENCE;
    scripts.c.onInitialize = () => REFUSAL;
    const { hub, client, clock } = await begin(scripts);
    await hub.stopAll();
    const starts = (): number[] => Object.values(scripts).map((script) => script.transportCount);
    assert.deepEqual(starts(), [1, 1, 1]);
    await callTool(client, "a__x");
    hub.startAll();
    hub.add(stdioSpecOf("b", { args: ["other"] }));
    await clock.advanceAsync(HOUR);
    assert.deepEqual(starts(), [1, 1, 1]);
    hub.start("a");
    await turn();
    assert.deepEqual(starts(), [2, 1, 1]);
  });
});

describe("cancelling a call by its number", () => {
  it("answers its client, tells its server, and leaves other calls alone", async () => {
    const a = new ScriptedServer("x", "y");
    a.onCall = SILENCE;
    const { hub, client } = await begin({ a });
    const answer = callTool(client, "a__x");
    client.send({ jsonrpc: "2.0", id: "other", method: "tools/call", params: { name: "a__y" } });
    await turn();
    const running = hub.snapshot().calls;
    assert.deepEqual(
      running.map(({ server, tool }) => [server, tool]),
      [
        ["a", "x"],
        ["a", "y"],
      ],
    );
    assert.equal(hub.cancelCall(running[0]?.call ?? 0), true);
    assert.equal((await answer).error?.data?.["code"], "cancelled");
    await turn();
    const [reported, ...more] = a.messagesOf("notifications/cancelled");
    assert.equal(reported?.params?.["requestId"], a.messagesOf("tools/call")[0]?.id);
    assert.equal(more.length, 0);
    assert.equal(client.messages.filter(isResponseTo("other")).length, 0);
    assert.equal(hub.snapshot().calls.length, 1);
  });

  it("says if there is no such call", () => {
    assert.equal(setUpHubWithClock({}).hub.cancelCall(7), false);
  });
});

describe("the status of a server", () => {
  it("counts its calls, in flight and over all its connections, and names the last tool", async () => {
    const a = new ScriptedServer("x", "y");
    const { hub, client, clock } = await begin({ a });
    await callTool(client, "a__x");
    await callTool(client, "a__y");
    a.onCall = SILENCE;
    client.send({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "a__y" } });
    await turn();
    const { calls, inFlight, lastTool } = connectionStatusOf(hub, "a");
    assert.deepEqual([calls, inFlight, lastTool], [3, 1, "y"]);
    a.disconnect();
    await turn();
    assert.deepEqual(
      [connectionStatusOf(hub, "a").calls, connectionStatusOf(hub, "a").inFlight],
      [3, 0],
    );
    await clock.advanceAsync(1000);
    assert.equal(connectionStatusOf(hub, "a").lastTool, "y");
    hub.reconnect("a");
    await turn();
    assert.equal(connectionStatusOf(hub, "a").lastTool, "y");
    assert.equal(connectionStatusOf(hub, "a").calls, 3);
  });

  it("keeps the last error after it is over, and tells how long the start took", async () => {
    const a = new ScriptedServer("x");
    const { onInitialize } = a;
    a.onInitialize = () => REFUSAL;
    const { hub, clock } = await begin({ a });
    a.onInitialize = onInitialize;
    const latch = new Latch();
    a.onOpen = latch.wait;
    await clock.advanceAsync(1000);
    await clock.advanceAsync(300);
    latch.open();
    await turn();
    const { state, cause, lastError, startDuration } = connectionStatusOf(hub, "a");
    assert.deepEqual([state, cause, startDuration], ["connected", undefined, 300]);
    assert.match(lastError?.message ?? "", /out of order/);
  });

  it("comes in the order of the manifest, with goal, peer, and number of tools", async () => {
    const { hub } = await begin({ b: new ScriptedServer("x", "y"), a: new ScriptedServer() });
    const [first, second] = hub.status();
    assert.deepEqual([first?.server, second?.server], ["b", "a"]);
    const { peer, tools, listing } = connectionStatusOf(hub, "b");
    assert.deepEqual([first?.goal, peer?.name, tools, listing], ["up", "s", 2, "server"]);
    assert.equal(hub.snapshot().tools, 2);
  });
});

describe("refreshing a server's listing", () => {
  it("lists it again, once more for all that ask meanwhile", async () => {
    const a = new ScriptedServer("x");
    const { hub, client, clock } = await begin({ a });
    a.tools.push('{"name":"y"}');
    const before = a.messagesOf("tools/list").length;
    const refreshed = Promise.all(Array.from({ length: 5 }, () => hub.refresh("a")));
    await clock.advanceAsync(200);
    await refreshed;
    assert.deepEqual(await listToolNames(client), ["a__x", "a__y"]);
    assert.ok(a.messagesOf("tools/list").length - before <= 2);
  });

  it("is done at once if it is not connected", async () => {
    const a = new ScriptedServer("x");
    const { hub } = await begin({ a });
    await hub.stop("a");
    await hub.refresh("a");
  });
});

describe("a hub that is closed", () => {
  it("has no timer left, wherever its servers were", async () => {
    const scripts = {
      up: new ScriptedServer("x"),
      hangs: new ScriptedServer("x"),
      waits: new ScriptedServer("x"),
      busy: new ScriptedServer("x"),
      replaced: new ScriptedServer("x"),
      listing: new ScriptedServer("x"),
    };
    scripts.hangs.onInitialize = SILENCE;
    scripts.waits.onInitialize = () => REFUSAL;
    scripts.busy.onCall = SILENCE;
    scripts.replaced.onCall = SILENCE;
    const servers = { up: { idleStop: 60_000 } };
    const { hub, client, clock } = await begin(scripts, { servers });
    for (const name of ["busy__x", "replaced__x", "up__x"]) {
      client.send({ jsonrpc: "2.0", id: name, method: "tools/call", params: { name } });
    }
    await turn();
    hub.add(stdioSpecOf("replaced", { args: ["other"] }));
    scripts.listing.onList = SILENCE;
    scripts.listing.newestPeer?.send({
      jsonrpc: "2.0",
      method: "notifications/tools/list_changed",
    });
    await turn();
    assert.ok(clock.pendingDelays.length > 0);
    await hub.close();
    assert.deepEqual(clock.pendingDelays, []);
    const open = Object.values(scripts).map((script) => script.openCount);
    assert.deepEqual(open, [0, 0, 0, 0, 0, 0]);
  });

  it("starts nothing any more, whatever it is told", async () => {
    const [a, b] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const { hub, clock } = await begin({ a, b });
    hub.remove("b");
    hub.startAll();
    await turn();
    await hub.close();
    hub.start("a");
    hub.startAll();
    hub.reconnect("a");
    hub.reconnectFailed();
    hub.add(stdioSpecOf("a", { args: ["other"] }));
    hub.add(stdioSpecOf("b"));
    hub.reload(manifestOf({ b: {} }));
    assert.deepEqual(clock.pendingDelays, []);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([a.transportCount, b.transportCount], [1, 1]);
    assert.deepEqual(clock.pendingDelays, []);
  });

  it("starts nothing that it is told to while it closes", async () => {
    const a = new ScriptedServer("x");
    const latch = new Latch();
    a.onClose = latch.wait;
    const { hub, clock } = await begin({ a });
    const closed = hub.close();
    hub.reconnect("a");
    hub.add(stdioSpecOf("a", { args: ["other"] }));
    await clock.advanceAsync(100);
    latch.open();
    await closed;
    hub.reload(manifestOf({}));
    await turn();
    assert.deepEqual([a.transportCount, a.openCount, clock.pendingDelays], [1, 0, []]);
  });

  it("has no client that comes later", async () => {
    const { hub, connect, clock } = await begin({ a: new ScriptedServer("x") });
    await hub.close();
    const late = connect();
    late.send(INITIALIZE_REQUEST);
    await late.until(() => late.isClosed);
    await turn();
    assert.deepEqual([late.received, clock.pendingDelays], [[], []]);
  });

  it("is closed once, however often it is told to", async () => {
    const { hub } = await begin({ a: new ScriptedServer("x") });
    assert.equal(hub.close(), hub.close());
    await hub.close();
  });

  it("settles those who wait until every server has settled", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = SILENCE;
    const { hub } = await begin({ a });
    const settled = hub.settled();
    await hub.close();
    await settled;
  });

  it("answers what ran with an error, and then leaves its clients", async () => {
    const a = new ScriptedServer("x");
    a.onCall = SILENCE;
    const { hub, client } = await begin({ a });
    const answer = callTool(client, "a__x");
    await turn();
    await hub.close();
    assert.equal((await answer).error?.data?.["code"], "serverStopped");
    await client.until(() => client.isClosed);
  });
});

describe("a ping of a client", () => {
  it("is answered although every server hangs", async () => {
    const a = new ScriptedServer("x");
    a.onMake = new Latch().wait;
    const { client } = await begin({ a });
    assert.deepEqual((await sendRequest(client, "ping")).result, {});
  });
});

/** How an attempt turns out, and how long opening and closing take, in ms. */
interface Outcome {
  readonly outcome: "opens" | "fails" | "hangs" | "dies";
  readonly opening: number;
  readonly closing: number;
}

/** Makes the server live as these say, one after the other, and well after them. */
function foreordain(a: ScriptedServer, outcomes: Outcome[], clock: VirtualClock): void {
  let present: Outcome | undefined;
  const wait = (ms = 0): Promise<void> => new Promise((resolve) => void clock.after(ms, resolve));
  const { onInitialize } = a;
  a.onOpen = () => {
    present = outcomes.shift();
    return wait(present?.opening);
  };
  a.onClose = () => wait(present?.closing);
  a.onInitialize = (message, text) => {
    const outcome = present?.outcome ?? "opens";
    if (outcome === "dies") a.disconnect();
    if (outcome === "opens") return onInitialize(message, text);
    return outcome === "fails" ? REFUSAL : undefined;
  };
}

describe("a hub that is told many things in any order", () => {
  const act = oneof(
    constantFrom("start", "stop", "reconnect", "cancelAttempt", "refresh", "startAll"),
    constantFrom("reconnectFailed", "remove", "replace", "stopAll"),
    constantFrom("configure", "relax", "disable"),
    constantFrom("call", "call", "die", "come", "leave"),
    nat(3000),
  );
  const outcome = record({
    outcome: constantFrom(...(["opens", "fails", "hangs", "dies"] as const)),
    opening: nat(500),
    closing: nat(500),
  });

  /** Does all that, and says the last word; everything that was promised has to be kept. */
  async function run(
    outcomes: Outcome[],
    acts: readonly (string | number)[],
    word: string,
  ): Promise<void> {
    const a = new ScriptedServer("x");
    const spec = (args: number, more: Partial<StdioServer> = {}): StdioServer =>
      stdioSpecOf("a", { args: [String(args)], callTimeout: 5000, connectTimeout: 4000, ...more });
    const memory = memorySnapshots();
    const made = setUpHubWithClock(
      { a },
      {
        servers: { a: spec(0, { idleStop: 10_000 }) },
        snapshots: {
          ...memory,
          save: (subject, items) => memory.save(subject, items),
          flush: () => memory.flush(),
          // Found some time after the start of whom it is about.
          load: async (subject) => {
            await new Promise<void>((resolve) => void made.clock.after(200, resolve));
            return memory.load(subject);
          },
        },
      },
    );
    const { hub, client, connect, clock } = made;
    foreordain(a, outcomes, clock);
    client.send(INITIALIZE_REQUEST);
    // It is answered when that is found, or takes too long.
    await clock.advanceAsync(500);
    assert.ok(client.messages.some(isResponseTo("init")));
    const others: ReturnType<typeof connect>[] = [];
    const promises: Promise<unknown>[] = [];
    let calls = 0;
    let args = 0;
    const isThere = (): boolean => hub.status().length > 0;
    const does: Readonly<Record<string, () => unknown>> = {
      start: () => isThere() && hub.start("a"),
      stop: () => isThere() && promises.push(hub.stop("a")),
      reconnect: () => isThere() && hub.reconnect("a"),
      cancelAttempt: () => isThere() && hub.cancelAttempt("a"),
      refresh: () => isThere() && promises.push(hub.refresh("a")),
      startAll: () => hub.startAll(),
      stopAll: () => promises.push(hub.stopAll()),
      reconnectFailed: () => hub.reconnectFailed(),
      remove: () => hub.remove("a"),
      replace: () => hub.add(spec(++args, { idleStop: 10_000 })),
      configure: () => hub.add(spec(args, { callTimeout: 1000 + ++calls })),
      relax: () => hub.add(spec(args, { lazy: true })),
      disable: () => hub.add(spec(args, { enabled: false })),
      call: () => client.send(callRequest(`call ${++calls}`, "a__x")),
      die: () => a.disconnect(),
      come: () => others.push(connect()) && others.at(-1)?.send(INITIALIZE_REQUEST),
      leave: () => others.pop()?.transport.close(),
    };
    for (const each of acts) {
      if (typeof each === "number") await clock.advanceAsync(each);
      else does[each]?.();
    }
    outcomes.length = 0;
    hub.add(spec(args));
    hub.start("a");
    does[word]?.();
    await clock.advanceAsync(100_000);
    assert.equal(
      connectionStatusOf(hub, "a").state,
      word === "stop" ? "disconnected" : "connected",
    );
    assert.ok(a.maxOpenCount <= 1, "two copies at a time");
    assert.equal(a.openCount, word === "stop" ? 0 : 1);
    // A server that is connected is looked after by one timer.
    assert.equal(clock.pendingDelays.length, word === "stop" ? 0 : 1);
    await Promise.all([...promises, hub.settled()]);
    const answered = client.messages
      .map(({ id }) => id)
      .filter((id) => id !== INITIALIZE_REQUEST.id);
    assert.equal(new Set(answered).size, answered.length, "answered twice");
    const asked = acts.filter((each) => each === "call").length;
    assert.equal(answered.length, asked, "not answered");
    a.onClose = undefined;
    await hub.close();
    assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
  }

  it("has one copy of a server at most, answers every call once, ends as it was told last, and leaves nothing", async () => {
    const word = constantFrom("start", "stop", "reconnect");
    await check(asyncProperty(array(outcome), array(act), word, run), { numRuns: 300 });
  });

  it("does so for twenty starts, stops and reconnects that come at a time", async () => {
    const verbs = array(constantFrom("start", "stop", "reconnect"), {
      minLength: 20,
      maxLength: 20,
    });
    const word = constantFrom("start", "stop", "reconnect");
    await check(asyncProperty(array(outcome), verbs, word, run), { numRuns: 100 });
  });
});
