import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StartLimiter } from "../../src/upstream/start-limiter.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  initialize,
  Latch,
  manifestOf,
  ScriptedServer,
  setUpHubWithClock,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";

const NEVER = new AbortController().signal;

/** A gate, and those who came to it: what lets them out again, once they are in. */
function open(limit: number) {
  const clock = new VirtualClock();
  const gate = new StartLimiter(limit, clock);
  const inside: string[] = [];
  const leave = new Map<string, () => void>();
  const come = async (name: string, signal = NEVER): Promise<void> => {
    leave.set(name, await gate.acquire(signal));
    inside.push(name);
  };
  return { clock, gate, inside, come, leave: (name: string) => leave.get(name)?.() };
}

describe("the gate of starts", () => {
  it("lets in as many as its limit says, and the others in their order as places become free", async () => {
    const { inside, come, leave } = open(2);
    for (const name of ["a", "b", "c", "d"]) void come(name);
    await turn();
    assert.deepEqual(inside, ["a", "b"]);
    leave("b");
    await turn();
    assert.deepEqual(inside, ["a", "b", "c"]);
    leave("a");
    await turn();
    assert.deepEqual(inside, ["a", "b", "c", "d"]);
  });

  it("gives a place back once, however often it is left", async () => {
    const { inside, come, leave } = open(1);
    for (const name of ["a", "b", "c"]) void come(name);
    await turn();
    leave("a");
    leave("a");
    await turn();
    assert.deepEqual(inside, ["a", "b"]);
  });

  it("counts nobody for longer than 10 s", async () => {
    const { clock, inside, come, leave } = open(1);
    for (const name of ["a", "b", "c"]) void come(name);
    await clock.advanceAsync(9999);
    assert.deepEqual(inside, ["a"]);
    await clock.advanceAsync(1);
    assert.deepEqual(inside, ["a", "b"]);
    leave("a");
    await turn();
    assert.deepEqual(inside, ["a", "b"]);
  });

  it("forgets who gives up, and keeps no place for them", async () => {
    const { inside, come, leave } = open(1);
    const abort = new AbortController();
    void come("a");
    const given = come("b", abort.signal);
    void come("c");
    await turn();
    abort.abort(new Error("enough"));
    await assert.rejects(given, /enough/);
    leave("a");
    await turn();
    assert.deepEqual(inside, ["a", "c"]);
  });

  it("refuses who has given up before", async () => {
    const { come } = open(1);
    await assert.rejects(come("a", AbortSignal.abort(new Error("enough"))), /enough/);
  });

  it("does not let a newcomer pass those who wait", async () => {
    const { inside, come, leave } = open(1);
    void come("a");
    void come("b");
    await turn();
    leave("a");
    void come("c");
    await turn();
    assert.deepEqual(inside, ["a", "b"]);
  });

  it("lets more in as soon as its limit is raised, and fewer when it is lowered", async () => {
    const { gate, inside, come, leave } = open(1);
    for (const name of ["a", "b", "c", "d"]) void come(name);
    await turn();
    gate.limit = 3;
    await turn();
    assert.deepEqual(inside, ["a", "b", "c"]);
    gate.limit = 1;
    leave("a");
    leave("b");
    await turn();
    assert.deepEqual(inside, ["a", "b", "c"]);
    leave("c");
    await turn();
    assert.deepEqual(inside, ["a", "b", "c", "d"]);
  });

  it("leaves no timer behind when all have left", async () => {
    const { clock, come, leave } = open(2);
    for (const name of ["a", "b"]) void come(name);
    await turn();
    leave("a");
    leave("b");
    assert.deepEqual(clock.pendingDelays, []);
  });
});

/** So many servers that hang in their handshake until they are let go, under a hub that starts so many at a time. */
async function begin(count: number, parallelStarts: number) {
  const names = Array.from({ length: count }, (_, i) => `s${i}`);
  const scripts = Object.fromEntries(names.map((name) => [name, new ScriptedServer("x")]));
  const latches = Object.values(scripts).map((script) => {
    const latch = new Latch();
    script.onOpen = latch.wait;
    return latch;
  });
  const settings = Object.fromEntries(names.map((name) => [name, { connectTimeout: 15_000 }]));
  const made = setUpHubWithClock(scripts, { hub: { parallelStarts }, servers: settings });
  await initialize(made.client);
  const started = (): number =>
    Object.values(scripts).filter(({ transportCount: starts }) => starts > 0).length;
  return { ...made, names, latches, started, scripts };
}

describe("the starts of many servers", () => {
  it("are so many at a time as parallelStarts says, and each that is done makes place for the next", async () => {
    const { hub, names, latches, started } = await begin(6, 2);
    assert.equal(started(), 2);
    for (let done = 1; done <= 6; done++) {
      latches[done - 1]?.open();
      await turn();
      assert.equal(started(), Math.min(6, done + 2));
    }
    for (const name of names) assert.equal(connectionStatusOf(hub, name).state, "connected");
  });

  it("are not kept waiting for more than 10 s by servers that hang", async () => {
    const { clock, started } = await begin(3, 2);
    await clock.advanceAsync(9999);
    assert.equal(started(), 2);
    await clock.advanceAsync(1);
    assert.equal(started(), 3);
  });

  it("have their connectTimeout from their own begin", async () => {
    const { hub, clock } = await begin(2, 1);
    await clock.advanceAsync(15_000);
    assert.equal(connectionStatusOf(hub, "s0").lastError?.code, "connectTimeout");
    assert.equal(connectionStatusOf(hub, "s1").state, "connecting");
    await clock.advanceAsync(9999);
    assert.equal(connectionStatusOf(hub, "s1").state, "connecting");
    await clock.advanceAsync(1);
    assert.equal(connectionStatusOf(hub, "s1").lastError?.code, "connectTimeout");
  });

  it("make place at once when one is stopped, and who is stopped before its turn never starts", async () => {
    const { hub, started, scripts } = await begin(3, 1);
    await hub.stop("s1");
    await hub.stop("s0");
    await turn();
    assert.equal(started(), 2);
    assert.equal(scripts["s1"]?.transportCount, 0);
    assert.equal(scripts["s2"]?.transportCount, 1);
  });

  it("go on faster once parallelStarts is raised", async () => {
    const { hub, started, names } = await begin(5, 1);
    const servers = names.map((name) => [name, { connectTimeout: 15_000 }]);
    hub.reload(manifestOf(Object.fromEntries(servers), { parallelStarts: 4 }));
    await turn();
    assert.equal(started(), 4);
  });

  it("that fail make place, too", async () => {
    const { clock, latches, started, scripts } = await begin(2, 1);
    const [first] = Object.values(scripts);
    if (first !== undefined) first.onInitialize = () => '"error":{"code":1,"message":"no"}';
    latches[0]?.open();
    await turn();
    assert.equal(started(), 2);
    assert.equal(clock.now(), 0);
  });
});
