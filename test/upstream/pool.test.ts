import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { HubError } from "../../src/base/errors.ts";
import type { HubEvent } from "../../src/base/hub-events.ts";
import type { Hub } from "../../src/hub/hub.ts";
import { LIMIT_DEFAULTS, type Reconnect, type StdioServer } from "../../src/manifest/manifest.ts";
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
import { codeOf, isOf, notify, respondError } from "../fixtures/peer-messages.ts";

const HOUR = 3_600_000;
const REFUSAL = '"error":{"code":1,"message":"out of order"}';
const REFUSE = (): string => REFUSAL;
const SILENCE = (): undefined => undefined;
const HANG = (): Promise<void> => new Promise(() => {});
const GREET = new ScriptedServer().onInitialize;
const TWO_TOOLS = { tools: new ScriptedServer("x", "y").tools };
const OTHER = stdioSpecOf("a", { args: ["other"] });

const reconnect = (policy: Partial<Reconnect>): { reconnect: Reconnect } => ({
  reconnect: { ...LIMIT_DEFAULTS.reconnect, ...policy },
});
const ONCE = reconnect({ policy: "none" });

/** Ways of a server to hang, by the step of an attempt. */
const HANGS = [
  ["resolve", { onMake: HANG }],
  ["spawn", { onOpen: HANG }],
  ["handshake", { onInitialize: SILENCE }],
  ["list", { onList: SILENCE }],
] as const;

/** A hub whose client has introduced itself, so that what shall be up is up. */
async function begin(...made: Parameters<typeof setUpHubWithClock>) {
  const staged = setUpHubWithClock(...made);
  await initialize(staged.client);
  return staged;
}

/** The same with one server, `a`, with these parts of its script and of its entry in the manifest. */
async function beginOne(script: Partial<ScriptedServer> = {}, entry: Partial<StdioServer> = {}) {
  const a = Object.assign(new ScriptedServer("x"), script);
  const setup = await begin({ a }, { servers: { a: entry } });
  const status = () => connectionStatusOf(setup.hub, "a");
  const die = async (): Promise<void> => {
    a.disconnect();
    await turn();
  };
  return { ...setup, a, status, die, state: () => status().state };
}
/** Servers with a tool each. */
const scriptsOf = <Name extends string>(...names: Name[]) =>
  Object.fromEntries(names.map((name) => [name, new ScriptedServer("x")])) as Record<
    Name,
    ScriptedServer
  >;

const startsOf = (scripts: Record<string, ScriptedServer>): number[] =>
  Object.values(scripts).map(({ transportCount }) => transportCount);

/** The states that a server went through. */
const pathOf = (events: readonly HubEvent[], server: string): string =>
  events
    .flatMap((event) => (event.kind === "state" && event.server === server ? [event.to] : []))
    .join(" ");

const isLogged = (events: readonly HubEvent[], text: RegExp): boolean =>
  events.some((event) => event.kind === "log" && text.test(event.text));

describe("one server", () => {
  const restarts: Record<string, (hub: Hub) => unknown> = {
    "it is reconnected": (hub) => hub.reconnect("a"),
    "it is stopped and started": (hub) => [hub.stop("a"), hub.start("a")],
    "it is added as another": (hub) => hub.add(OTHER),
    "it is removed and added again": (hub) => [hub.remove("a"), hub.add(stdioSpecOf("a"))],
  };
  for (const [what, act] of Object.entries(restarts)) {
    it(`is gone before the next one starts when ${what}`, async () => {
      const latch = new Latch();
      const { a, hub, status, events } = await beginOne({ onClose: latch.wait });
      act(hub);
      await turn();
      assert.equal(a.transportCount, 1);
      latch.open();
      await turn();
      const { state, attempt } = status();
      assert.deepEqual([a.transportCount, a.maxOpenCount, state, attempt], [2, 1, "connected", 1]);
      const path = "connecting connected stopping connecting connected";
      if (what === "it is reconnected") assert.equal(pathOf(events, "a"), path);
    });
  }

  it("fails one call alone whose sending throws when it is ready, and can be stopped, started and called", async () => {
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
    const answers = [callTool(client, "a__x"), callTool(client, "a__x")] as const;
    await turn();
    latch.open();
    const [first, second] = await Promise.all(answers);
    assert.equal(codeOf(first), "internal");
    assert.ok(second.result);
    const { state, inFlight } = connectionStatusOf(hub, "a");
    assert.deepEqual([state, inFlight], ["connected", 0]);
    assert.ok(isLogged(events, /broken link/));
    await hub.stop("a");
    assert.equal(a.openCount, 0);
    hub.start("a");
    await turn();
    assert.ok((await callTool(client, "a__x")).result);
  });

  it("takes what it is told after its change of state has thrown, and the log has the error", async () => {
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
    assert.ok(isLogged(events, /no chance/));
    await hub.stop("a");
    assert.equal(a.openCount, 0);
  });
});

describe("a server that is stopped", () => {
  for (const [step, script] of HANGS) {
    it(`at the step ${step} of an attempt is down at once, nothing of it is left, and pings are answered`, async () => {
      const { a, hub, client, clock, events, state } = await beginOne(script);
      assert.equal(state(), "connecting");
      assert.deepEqual((await sendRequest(client, "ping")).result, {});
      await hub.stop("a");
      assert.equal(a.openCount, 0);
      await clock.advanceAsync(HOUR);
      assert.equal(pathOf(events, "a"), "connecting stopping disconnected");
      assert.equal(a.transportCount, step === "resolve" ? 0 : 1);
    });
  }

  for (const verb of ["start", "reconnect"] as const) {
    it(`is down only when nothing of it is left, fails its calls, shows no tools, and stays so for later clients, until it is told to ${verb}`, async () => {
      const { a, hub, client, clock, connect, state } = await beginOne();
      const { onCall } = a;
      assert.deepEqual(await listToolNames(client), ["a__x"]);
      a.onCall = SILENCE;
      const waiting = callTool(client, "a__x");
      const latch = new Latch();
      a.onClose = latch.wait;
      await turn();
      let isStopped = false;
      const stopped = hub.stop("a").then(() => (isStopped = true));
      await turn();
      assert.equal(isStopped, false);
      assert.equal(codeOf(await callTool(client, "a__x")), "serverStopped");
      latch.open();
      await stopped;
      assert.equal(a.openCount, 0);
      assert.equal(codeOf(await waiting), "serverStopped");
      assert.deepEqual(await listToolNames(client), []);
      const answer = await callTool(client, "a__x");
      assert.equal(codeOf(answer), "serverStopped");
      assert.match(answer.error?.message ?? "", /"a" is stopped/);
      await initialize(connect());
      await hub.refresh("a");
      await clock.advanceAsync(HOUR);
      assert.deepEqual([a.transportCount, state()], [1, "disconnected"]);
      a.onCall = onCall;
      hub[verb]("a");
      await turn();
      assert.deepEqual([serverStatusOf(hub, "a").goal, state()], ["up", "connected"]);
      assert.deepEqual(await listToolNames(client), ["a__x"]);
      assert.ok((await callTool(client, "a__x")).result);
    });
  }
});

describe("an attempt that is given up", () => {
  for (const [verb, rest] of [
    ["stop", "disconnected"],
    ["cancelAttempt", "idle"],
    ["remove", undefined],
  ] as const) {
    for (const isKnown of [true, false]) {
      const tools = isKnown ? "that is known" : "of which nothing is known";
      it(`fails the calls of a server ${tools} that wait for it, and nothing of it is left: ${verb}`, async () => {
        const { a, hub, client, clock } = await beginOne(isKnown ? {} : { onInitialize: SILENCE }, {
          lazy: isKnown,
        });
        a.onInitialize = SILENCE;
        const answer = callTool(client, "a__x");
        await turn();
        const starts = a.transportCount;
        void hub[verb]("a");
        assert.equal(codeOf(await answer), "serverStopped");
        await clock.advanceAsync(HOUR);
        const state = hub.status()[0]?.connections[0]?.state;
        assert.deepEqual([a.transportCount, a.openCount, state], [starts, 0, rest]);
      });
    }
  }

  it("is made again for a call if it was cancelled, which is nothing for a server that is connected or down", async () => {
    const { a, hub, client, state } = await beginOne({ onInitialize: SILENCE });
    for (const [act, expected] of [
      [() => {}, "idle"],
      [async () => assert.ok((await callTool(client, "a__x")).result), "connected"],
      [() => hub.stop("a"), "disconnected"],
    ] as const) {
      await act();
      hub.cancelAttempt("a");
      await turn();
      assert.equal(state(), expected);
      a.onInitialize = GREET;
    }
  });

  const respondLate = ({ peers: [first] }: ScriptedServer): void =>
    respondError(first, first?.messages.find(isOf("initialize"))?.id);
  const endLate = ({ peers: [first] }: ScriptedServer): unknown => first?.transport.close();
  for (const [what, hang, report] of [
    ["that its link is made", (latch: Latch) => ({ onMake: latch.wait }), () => {}],
    ["that its handshake is done", () => ({ onInitialize: SILENCE }), respondLate],
    ["that it has ended", () => ({ onInitialize: SILENCE }), endLate],
  ] as const) {
    it(`changes nothing by a late report ${what}`, async () => {
      const latch = new Latch();
      const { a, hub, events, clock, state } = await beginOne(hang(latch));
      hub.cancelAttempt("a");
      await turn();
      Object.assign(a, { onMake: undefined, onInitialize: GREET });
      hub.start("a");
      await turn();
      const before = pathOf(events, "a");
      latch.open();
      report(a);
      await clock.advanceAsync(1000);
      assert.equal(pathOf(events, "a"), before);
      assert.deepEqual([a.openCount, a.maxOpenCount, state()], [1, 1, "connected"]);
    });
  }
});

describe("reconnecting a server", () => {
  it("happens also to those that are just ending after they failed", async () => {
    const latch = new Latch();
    const { a, hub, state } = await beginOne({ onInitialize: REFUSE, onClose: latch.wait });
    assert.equal(state(), "stopping");
    a.onInitialize = GREET;
    assert.deepEqual(hub.reconnectFailed(), ["a"]);
    latch.open();
    await turn();
    assert.deepEqual([a.maxOpenCount, state()], [1, "connected"]);
  });

  it("happens to all that failed or wait, and to nobody else, if those that failed are meant", async () => {
    const scripts = scriptsOf("waits", "failed", "up", "stopped", "idle");
    scripts.waits.onInitialize = scripts.failed.onInitialize = REFUSE;
    const { hub } = await begin(scripts, { servers: { failed: ONCE, idle: { lazy: true } } });
    await hub.stop("stopped");
    const before = startsOf(scripts);
    assert.deepEqual(hub.reconnectFailed(), ["waits", "failed"]);
    await turn();
    const added = startsOf(scripts).map((starts, i) => starts - (before[i] ?? 0));
    assert.deepEqual(added, [1, 1, 0, 0, 0]);
  });
});

describe("connectTimeout", () => {
  for (const [step, script] of HANGS) {
    it(`ends an attempt that hangs at the step ${step}, and says so`, async () => {
      const { a, clock, status } = await beginOne(script, { connectTimeout: 700, ...ONCE });
      await clock.advanceAsync(699);
      assert.equal(status().state, "connecting");
      await clock.advanceAsync(1);
      const { state, cause } = status();
      assert.deepEqual([state, cause?.code, cause?.step], ["failed", "connectTimeout", step]);
      assert.match(cause?.message ?? "", /700 ms/);
      assert.equal(a.openCount, 0);
    });
  }
});

describe("a server that the manifest gives no connectTimeout", () => {
  const LATE = { connectTimeout: 30_000, startLimit: 300_000 };

  /** A hub with a server that opens when the latch does, and one that is there at once. */
  async function beginSlow(more: Partial<StdioServer> = {}) {
    const [slow, quick] = [new ScriptedServer("x"), new ScriptedServer("y")];
    const latch = new Latch();
    slow.onOpen = latch.wait;
    const servers = { slow: { ...LATE, ...more }, quick: LATE };
    const made = await begin({ slow, quick }, { servers, hub: { listWait: 600_000 } });
    return { ...made, slow, latch, status: () => connectionStatusOf(made.hub, "slow") };
  }

  it("is not waited for by lists and calls once connectTimeout is over, and joins when it is ready, as the same process", async () => {
    const { client, clock, slow, latch, status } = await beginSlow();
    let names: readonly string[] | undefined;
    void listToolNames(client).then((listed) => (names = listed));
    const waiting = callTool(client, "slow__x");
    await clock.advanceAsync(29_999);
    assert.equal(names, undefined);
    await clock.advanceAsync(1);
    assert.deepEqual(names, ["quick__y"]);
    assert.equal(codeOf(await waiting), "connectTimeout");
    await clock.advanceAsync(15_000);
    const later = await callTool(client, "slow__x");
    assert.equal(codeOf(later), "connectTimeout");
    assert.match(later.error?.message ?? "", /45 seconds/);
    assert.deepEqual([status().state, status().late], ["connecting", 45_000]);
    latch.open();
    await clock.advanceAsync(1000);
    assert.ok(client.messages.some(isOf("notifications/tools/list_changed")));
    assert.deepEqual(await listToolNames(client), ["quick__y", "slow__x"]);
    assert.ok((await callTool(client, "slow__x")).result);
    assert.deepEqual([slow.transportCount, slow.maxOpenCount, status().late], [1, 1, undefined]);
  });

  it("fails a call of a tool that is known from before, too, while it is late", async () => {
    const { client, clock, hub, latch, slow } = await beginSlow();
    latch.open();
    await turn();
    slow.onOpen = HANG;
    hub.reconnect("slow");
    const waiting = callTool(client, "slow__x");
    await clock.advanceAsync(30_000);
    assert.equal(codeOf(await waiting), "connectTimeout");
    assert.equal(codeOf(await callTool(client, "slow__x")), "connectTimeout");
    assert.equal(slow.transportCount, 2);
  });

  it("keeps what a call has started, although the call did not wait for it", async () => {
    const { client, clock, latch, status } = await beginSlow({ lazy: true });
    await clock.advanceAsync(30_000);
    assert.equal(codeOf(await callTool(client, "slow__x")), "connectTimeout");
    latch.open();
    await clock.advanceAsync(60_000);
    assert.equal(status().state, "connected");
  });

  it("is ended after startLimit as after any other failure, and tried again", async () => {
    const { clock, slow, status } = await beginSlow();
    await clock.advanceAsync(299_999);
    assert.deepEqual([slow.transportCount, status().state], [1, "connecting"]);
    await clock.advanceAsync(1);
    const { state, cause, late } = status();
    assert.deepEqual([state, cause?.code, late], ["reconnecting", "connectTimeout", undefined]);
    assert.match(cause?.message ?? "", /5 min/);
    await clock.advanceAsync(2000);
    const { transportCount, maxOpenCount } = slow;
    assert.deepEqual([transportCount, maxOpenCount, status().state], [2, 0, "connecting"]);
  });

  it("has settled when it is late, for those who do not want to wait for it until it is there", async () => {
    const { clock, hub, latch } = await beginSlow();
    const done: string[] = [];
    const settled = hub.startAllAndSettle();
    void settled.then(() => done.push("late"));
    void hub.settled("allStarted").then(() => done.push("started"));
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
    const scripts = scriptsOf("a", "b", "c");
    scripts.a.onInitialize = scripts.b.onInitialize = SILENCE;
    const servers = { a: LATE, b: LATE, c: LATE };
    const { hub, clock } = await begin(scripts, { servers, hub: { parallelStarts: 1 } });
    await clock.advanceAsync(60_000);
    const states = ["a", "b", "c"].map((name) => connectionStatusOf(hub, name).state);
    assert.deepEqual(states, ["connecting", "connecting", "connected"]);
    await hub.stop("a");
    assert.deepEqual(
      [scripts.a.openCount, hub.status()[0]?.connections[0]?.state],
      [0, "disconnected"],
    );
    await hub.close();
    assert.equal(scripts.b.openCount, 0);
  });
});

describe("a server that cannot be started", () => {
  const tries: [string, Partial<Reconnect>, HubError["code"], number[]][] = [
    [
      "ever later up to max, maxAttempts times",
      { base: 500, max: 3000, maxAttempts: 6 },
      "connectionLost",
      [0, 500, 1500, 3500, 6500, 9500],
    ],
    ["once under the policy none", { policy: "none" }, "connectionLost", [0]],
    ["once if nothing can cure it", {}, "commandNotFound", [0]],
  ];
  for (const [what, policy, code, times] of tries) {
    it(`is tried ${what}`, async () => {
      const a = new ScriptedServer("x");
      const settings = { servers: { a: reconnect(policy) } };
      const { hub, client, clock } = setUpHubWithClock({ a }, settings);
      const tried: number[] = [];
      a.onOpen = () => {
        tried.push(clock.now());
        return Promise.reject(new HubError(code, "out of order"));
      };
      await initialize(client);
      await clock.advanceAsync(HOUR);
      assert.deepEqual(tried, times);
      const { state, cause } = connectionStatusOf(hub, "a");
      assert.deepEqual([state, cause?.code], ["failed", code]);
    });
  }

  it("tells in its status what went wrong, which attempt it was, and when the next is due", async () => {
    const { clock, status } = await beginOne({ onInitialize: REFUSE });
    await clock.advanceAsync(1500);
    const { state, attempt, cause, retryAt } = status();
    assert.deepEqual([state, attempt, cause?.step], ["reconnecting", 2, "handshake"]);
    assert.match(cause?.message ?? "", /out of order/);
    assert.ok(Math.abs((retryAt ?? 0) - (Date.now() + 1500)) < 1000);
  });

  it("for good shows no tools until it is connected again, but a call of one still tries it", async () => {
    const { a, client, die, state } = await beginOne({}, ONCE);
    a.onInitialize = REFUSE;
    await die();
    assert.equal(state(), "failed");
    assert.deepEqual(await listToolNames(client), []);
    assert.match((await callTool(client, "a__x")).error?.message ?? "", /out of order/);
    const latch = new Latch();
    Object.assign(a, { onInitialize: GREET, onOpen: latch.wait });
    const answer = callTool(client, "a__x");
    await turn();
    assert.equal(state(), "connecting");
    assert.deepEqual(await listToolNames(client), []);
    latch.open();
    assert.ok((await answer).result);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });
});

describe("a server that dies", () => {
  it("is started again, its tools stay listed meanwhile, and nobody is told of a change", async () => {
    const { a, client, clock, die, state } = await beginOne();
    await listToolNames(client);
    await die();
    assert.equal(state(), "reconnecting");
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    await clock.advanceAsync(1000);
    assert.deepEqual([a.transportCount, state()], [2, "connected"]);
    await clock.advanceAsync(HOUR);
    assert.equal(client.messages.filter(({ method }) => method !== undefined).length, 0);
  });

  it("after it was connected for 30 s begins a new series of attempts", async () => {
    const { clock, die, state } = await beginOne();
    for (const delay of [1000, 2000]) {
      await die();
      await clock.advanceAsync(delay);
      assert.equal(state(), "connected");
    }
    await clock.advanceAsync(30_000);
    await die();
    await clock.advanceAsync(999);
    assert.equal(state(), "reconnecting");
    await clock.advanceAsync(1);
    assert.equal(state(), "connected");
  });
});

describe("a call", () => {
  it("cuts the wait for the next attempt short, and all that come share that attempt", async () => {
    const { a, client, clock, die } = await beginOne();
    await die();
    const answers = [callTool(client, "a__x"), callTool(client, "a__x")];
    for (const answer of answers) assert.ok((await answer).result);
    assert.deepEqual([a.transportCount, clock.now()], [2, 0]);
  });

  it("gets the cause if the one attempt that it leads to fails", async () => {
    const { a, client, die } = await beginOne();
    a.onInitialize = REFUSE;
    await die();
    const { error } = await callTool(client, "a__x");
    assert.match(error?.message ?? "", /out of order/);
    assert.equal(error?.data?.["step"], "handshake");
    assert.equal(a.transportCount, 2);
  });

  it("of a server that hangs ends at its own deadline, the attempt goes on, and it is not sent later", async () => {
    const { a, client, clock, die, state } = await beginOne({}, { callTimeout: 500 });
    const latch = new Latch();
    a.onOpen = latch.wait;
    await die();
    const answer = callTool(client, "a__x");
    await clock.advanceAsync(500);
    const { result } = await answer;
    assert.equal(result?.["isError"], true);
    assert.match(JSON.stringify(result), /0\.5 seconds/);
    assert.equal(state(), "connecting");
    latch.open();
    await clock.advanceAsync(5000);
    assert.deepEqual([a.messagesOf("tools/call").length, state()], [0, "connected"]);
  });

  it("that is cancelled by its number is answered, told to its server, and no other is", async () => {
    const { a, hub, client } = await beginOne({ ...TWO_TOOLS, onCall: SILENCE });
    const answer = callTool(client, "a__x");
    client.send(callRequest("other", "a__y"));
    await turn();
    const running = hub.snapshot().calls;
    const calls = running.map(({ server, tool }) => `${server} ${tool}`);
    assert.deepEqual(calls, ["a x", "a y"]);
    assert.equal(hub.cancelCall(running[0]?.call ?? 0), true);
    assert.equal(codeOf(await answer), "cancelled");
    await turn();
    const cancelled = a.messagesOf("notifications/cancelled");
    const ids = cancelled.map(({ params }) => params?.["requestId"]);
    assert.deepEqual(ids, [a.messagesOf("tools/call")[0]?.id]);
    assert.ok(!client.messages.some(isResponseTo("other")));
    assert.equal(hub.snapshot().calls.length, 1);
    assert.equal(hub.cancelCall(7777), false);
  });
});

describe("adding and removing a server", () => {
  it("ends it, takes its tools away and forgets it, and starts, announces and lists it again", async () => {
    const scripts = scriptsOf("a", "b");
    const { hub, client, clock } = await begin(scripts);
    hub.remove("b");
    await clock.advanceAsync(100);
    assert.equal(scripts.b.openCount, 0);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    assert.equal(hub.status().length, 1);
    assert.equal(codeOf(await callTool(client, "b__x")), "unknownTool");
    const isAnnouncement = isOf("notifications/tools/list_changed");
    const before = client.messages.filter(isAnnouncement).length;
    hub.add(stdioSpecOf("b"));
    await clock.advanceAsync(100);
    assert.equal(client.messages.filter(isAnnouncement).length, before + 1);
    assert.deepEqual(await listToolNames(client), ["a__x", "b__x"]);
  });

  it("changes nothing if it is there already, as it is", async () => {
    const { a, hub, events } = await beginOne();
    const before = events.length;
    hub.add(stdioSpecOf("a"));
    await turn();
    assert.deepEqual([a.transportCount, events.length], [1, before]);
  });

  it("goes on with the calls that wait for it if it is from now on one for each client", async () => {
    const { a, hub, client, die } = await beginOne();
    a.onInitialize = SILENCE;
    await die();
    const answer = callTool(client, "a__x");
    await turn();
    a.onInitialize = GREET;
    hub.add(stdioSpecOf("a", { isolation: "perClient" }));
    assert.ok((await answer).result);
    assert.equal(a.maxOpenCount, 1);
  });
});

describe("starting all", () => {
  const servers = { lazy: { lazy: true }, off: { enabled: false } };

  it("starts those that only a call would start, and not those that shall be down", async () => {
    const scripts = scriptsOf("a", "lazy", "off", "stopped");
    const { hub } = setUpHubWithClock(scripts, { servers });
    await hub.stop("stopped");
    hub.startAll();
    await turn();
    assert.deepEqual(startsOf(scripts), [1, 1, 0, 0]);
  });

  it("and settling tells who is connected, and who failed and why, also after another attempt", async () => {
    const scripts = scriptsOf("a", "broken", "lazy", "off");
    scripts.broken.onInitialize = REFUSE;
    const { hub } = setUpHubWithClock(scripts, { servers: { ...servers, broken: ONCE } });
    const { connected, failed } = await hub.startAllAndSettle();
    assert.deepEqual(connected, ["a", "lazy"]);
    assert.equal(failed.map(({ server }) => server).join(), "broken");
    assert.match(failed[0]?.cause.message ?? "", /out of order/);
    scripts.broken.onInitialize = GREET;
    assert.deepEqual((await hub.startAllAndSettle()).connected, ["a", "broken", "lazy"]);
  });

  it("and settling ends although two servers never come up and are tried again at once", async () => {
    const { a, b } = scriptsOf("a", "b");
    const latch = new Latch();
    a.onInitialize = b.onInitialize = REFUSE;
    b.onOpen = latch.wait;
    const { hub, clock } = setUpHubWithClock({ a, b });
    const settled = hub.startAllAndSettle();
    await clock.advanceAsync(100_000);
    latch.open();
    assert.equal((await settled).failed.length, 2);
  });

  it("and settling looks at all connections of a server, as what runs for it does", async () => {
    const a = new ScriptedServer("x");
    const isPlain = ({ params }: Json): boolean =>
      !("sampling" in (params?.["capabilities"] as object));
    a.onInitialize = (message, text) => (isPlain(message) ? REFUSAL : GREET(message, text));
    const connectScript = a.connect.bind(a);
    a.connect = () => {
      const pid = a.transportCount + 1;
      const vitals = { pid, processes: 2, memory: 1000, entries: [] };
      return Object.assign(connectScript(), { processStats: () => Promise.resolve(vitals) });
    };
    const { hub, connect } = await begin({ a }, { servers: { a: ONCE } });
    assert.equal(await hub.inspect("a"), undefined);
    await initialize(connect(), { sampling: {} });
    const states = (): string[] => serverStatusOf(hub, "a").connections.map(({ state }) => state);
    assert.deepEqual(states(), ["failed", "connected"]);
    assert.equal((await hub.inspect("a"))?.pid, 2);
    const { connected, failed } = await hub.startAllAndSettle();
    assert.deepEqual([connected, failed], [["a"], []]);
    a.onInitialize = GREET;
    await hub.startAllAndSettle();
    assert.deepEqual(states(), ["connected", "connected"]);
    const vitals = await hub.inspect("a");
    assert.deepEqual([vitals?.processes, vitals?.memory], [4, 2000]);
  });

  it("keeps a lazy server up that was only to be listed", async () => {
    const latch = new Latch();
    const { a, hub } = await beginOne({ onOpen: latch.wait }, { lazy: true });
    const settled = hub.startAllAndSettle();
    latch.open();
    assert.deepEqual((await settled).connected, ["a"]);
    assert.equal(a.transportCount, 1);
  });
});

describe("starting one server", () => {
  it("starts it alone although no client has come, and the first client's coming makes no second", async () => {
    const scripts = scriptsOf("a", "b");
    const { hub, client } = setUpHubWithClock(scripts);
    hub.start("a");
    await turn();
    assert.deepEqual(startsOf(scripts), [1, 0]);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    await initialize(client);
    assert.deepEqual(startsOf(scripts), [1, 1]);
    assert.deepEqual(await listToolNames(client), ["a__x", "b__x"]);
  });

  it("that is not enabled in the manifest brings it up all the same", async () => {
    const { a, hub, client } = await beginOne({}, { enabled: false });
    assert.equal(a.transportCount, 0);
    hub.start("a");
    await turn();
    assert.deepEqual(await listToolNames(client), ["a__x"]);
  });
});

describe("a verb about a server that there is not", () => {
  const verbs = ["start", "reconnect", "cancelAttempt", "stop", "refresh", "inspect"] as const;
  for (const verb of verbs) {
    it(`is refused: ${verb}`, async () => {
      const act = async (): Promise<unknown> => setUpHubWithClock({}).hub[verb]("none");
      await assert.rejects(act, { code: "usage" });
    });
  }

  it("means nothing if that is to remove it", () => {
    setUpHubWithClock({}).hub.remove("none");
  });
});

describe("stopping all", () => {
  it("leaves nothing of any server, and none comes back until it is started", async () => {
    const scripts = scriptsOf("a", "b", "c");
    scripts.b.onInitialize = SILENCE;
    scripts.c.onInitialize = REFUSE;
    const { hub, client, clock } = await begin(scripts);
    await hub.stopAll();
    assert.deepEqual(startsOf(scripts), [1, 1, 1]);
    await callTool(client, "a__x");
    hub.startAll();
    hub.add(stdioSpecOf("b", { args: ["other"] }));
    await clock.advanceAsync(HOUR);
    assert.deepEqual(startsOf(scripts), [1, 1, 1]);
    hub.start("a");
    await turn();
    assert.deepEqual(startsOf(scripts), [2, 1, 1]);
  });
});

describe("the status of a server", () => {
  it("counts its calls, in flight and over all its connections, and names the last tool", async () => {
    const { a, hub, client, clock, status } = await beginOne(TWO_TOOLS);
    await callTool(client, "a__x");
    await callTool(client, "a__y");
    a.onCall = SILENCE;
    client.send(callRequest(1, "a__y"));
    await turn();
    assert.deepEqual([status().calls, status().inFlight, status().lastTool], [3, 1, "y"]);
    a.disconnect();
    await turn();
    assert.deepEqual([status().calls, status().inFlight], [3, 0]);
    await clock.advanceAsync(1000);
    assert.equal(status().lastTool, "y");
    hub.reconnect("a");
    await turn();
    assert.deepEqual([status().calls, status().lastTool], [3, "y"]);
  });

  it("keeps the last error after it is over, and tells how long the start took", async () => {
    const { a, clock, status } = await beginOne({ onInitialize: REFUSE });
    const latch = new Latch();
    Object.assign(a, { onInitialize: GREET, onOpen: latch.wait });
    await clock.advanceAsync(1000);
    await clock.advanceAsync(300);
    latch.open();
    await turn();
    const { state, cause, lastError, startDuration } = status();
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
    const { a, hub, client, clock } = await beginOne();
    a.tools.push('{"name":"y"}');
    const before = a.messagesOf("tools/list").length;
    const refreshed = Promise.all(Array.from({ length: 5 }, () => hub.refresh("a")));
    await clock.advanceAsync(200);
    await refreshed;
    assert.deepEqual(await listToolNames(client), ["a__x", "a__y"]);
    assert.ok(a.messagesOf("tools/list").length - before <= 2);
  });
});

describe("a hub that is closed", () => {
  it("has no timer left, wherever its servers were", async () => {
    const scripts = scriptsOf("up", "hangs", "waits", "busy", "replaced", "listing");
    scripts.hangs.onInitialize = SILENCE;
    scripts.waits.onInitialize = REFUSE;
    scripts.busy.onCall = scripts.replaced.onCall = SILENCE;
    const servers = { up: { idleStop: 60_000 } };
    const { hub, client, clock } = await begin(scripts, { servers });
    for (const name of ["busy__x", "replaced__x", "up__x"]) client.send(callRequest(name, name));
    await turn();
    hub.add(stdioSpecOf("replaced", { args: ["other"] }));
    scripts.listing.onList = SILENCE;
    notify(scripts.listing.newestPeer, "notifications/tools/list_changed");
    await turn();
    assert.ok(clock.pendingDelays.length > 0);
    const settled = hub.settled();
    await hub.close();
    await settled;
    const warnings = hub.log("listing").filter(({ level }) => level === "warn");
    assert.deepEqual([clock.pendingDelays, warnings], [[], []]);
    for (const { openCount } of Object.values(scripts)) assert.equal(openCount, 0);
  });

  it("starts nothing that it is told to while it closes and afterwards", async () => {
    const latch = new Latch();
    const scripts = scriptsOf("a", "b");
    const { hub, clock } = await begin(scripts);
    hub.remove("b");
    hub.startAll();
    await turn();
    scripts.a.onClose = latch.wait;
    const tellAll = (): void => {
      hub.start("a");
      hub.startAll();
      hub.reconnect("a");
      hub.reconnectFailed();
      hub.add(OTHER);
      hub.add(stdioSpecOf("b"));
      hub.reload(manifestOf({ b: {} }));
    };
    const closed = hub.close();
    tellAll();
    await clock.advanceAsync(100);
    latch.open();
    await closed;
    tellAll();
    assert.deepEqual(clock.pendingDelays, []);
    await clock.advanceAsync(HOUR);
    assert.deepEqual([startsOf(scripts), scripts.a.openCount], [[1, 1], 0]);
  });

  it("answers what ran with an error, leaves its clients, and has none that comes later", async () => {
    const { hub, client, connect, clock } = await beginOne({ onCall: SILENCE });
    const answer = callTool(client, "a__x");
    await turn();
    assert.equal(hub.close(), hub.close());
    await hub.close();
    assert.equal(codeOf(await answer), "serverStopped");
    await client.until(() => client.isClosed);
    const late = connect();
    late.send(INITIALIZE_REQUEST);
    await late.until(() => late.isClosed);
    await turn();
    assert.deepEqual([late.received, clock.pendingDelays], [[], []]);
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
  const act = fc.oneof(
    fc.constantFrom("start", "stop", "reconnect", "cancelAttempt", "refresh", "startAll"),
    fc.constantFrom("reconnectFailed", "remove", "replace", "stopAll"),
    fc.constantFrom("configure", "relax", "disable"),
    fc.constantFrom("call", "call", "die", "come", "leave"),
    fc.nat(3000),
  );
  const anyPolicy = fc.record({
    policy: fc.constantFrom(...(["none", "immediate", "exponential"] as const)),
    base: fc.constantFrom(1, 1000),
    max: fc.constantFrom(1, 60_000),
    jitter: fc.constantFrom(0, 0.2, 1),
    maxAttempts: fc.nat(4),
  });
  const outcome = fc.record({
    outcome: fc.constantFrom(...(["opens", "fails", "hangs", "dies"] as const)),
    opening: fc.nat(500),
    closing: fc.nat(500),
  });

  /** Does all that, and says the last word; everything that was promised has to be kept. */
  async function run(
    policy: Reconnect,
    outcomes: Outcome[],
    acts: readonly (string | number)[],
    word: string,
  ): Promise<void> {
    const a = new ScriptedServer("x");
    const limits = { callTimeout: 5000, connectTimeout: 4000, reconnect: policy };
    const spec = (args: number, more: Partial<StdioServer> = {}): StdioServer =>
      stdioSpecOf("a", { args: [String(args)], ...limits, ...more });
    const snapshots = memorySnapshots();
    const load = snapshots.load.bind(snapshots);
    // Found some time after the start of whom it is about.
    snapshots.load = async (subject) => {
      await new Promise<void>((resolve) => void made.clock.after(200, resolve));
      return load(subject);
    };
    const servers = { a: spec(0, { idleStop: 10_000 }) };
    const made = setUpHubWithClock({ a }, { servers, snapshots });
    const { hub, client, connect, clock } = made;
    let maxAttempt = policy.policy === "none" ? 1 : policy.maxAttempts || Infinity;
    const assertAttempt = (event: HubEvent): void => {
      if (event.kind === "state") assert.ok((event.attempt ?? 0) <= maxAttempt, "one attempt more");
    };
    hub.subscribe(assertAttempt, ["state"]);
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
    maxAttempt = Infinity;
    hub.add(spec(args, reconnect({})));
    hub.start("a");
    does[word]?.();
    await clock.advanceAsync(100_000);
    const { state } = connectionStatusOf(hub, "a");
    assert.equal(state, word === "stop" ? "disconnected" : "connected");
    assert.ok(a.maxOpenCount <= 1, "two copies at a time");
    assert.equal(a.openCount, word === "stop" ? 0 : 1);
    // A server that is connected is looked after by one timer.
    assert.equal(clock.pendingDelays.length, word === "stop" ? 0 : 1);
    await Promise.all([...promises, hub.settled()]);
    const answered = client.messages.map(({ id }) => id).filter((id) => id !== "init");
    assert.equal(new Set(answered).size, answered.length, "answered twice");
    const asked = acts.filter((each) => each === "call").length;
    assert.equal(answered.length, asked, "not answered");
    a.onClose = undefined;
    await hub.close();
    assert.deepEqual([a.openCount, clock.pendingDelays], [0, []]);
  }

  const word = fc.constantFrom("start", "stop", "reconnect");

  it("has one copy of a server at most, answers every call once, ends as it was told last, and leaves nothing", () =>
    fc.assert(fc.asyncProperty(anyPolicy, fc.array(outcome), fc.array(act), word, run), {
      numRuns: 100,
    }));

  it("does so for twenty starts, stops and reconnects that come at a time", () => {
    const words = fc.array(word, { minLength: 20, maxLength: 20 });
    const property = fc.asyncProperty(anyPolicy, fc.array(outcome), words, word, run);
    return fc.assert(property, { numRuns: 50 });
  });
});
