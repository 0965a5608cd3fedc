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

describe("the gate of starts", () => {
  /** A gate to which these come: what lets each of them out again, once it is in. */
  function open(limit: number, ...names: string[]) {
    const gate = new StartLimiter(limit, new VirtualClock());
    const inside: string[] = [];
    const leaving = new Map<string, () => void>();
    const come = async (name: string, signal = NEVER): Promise<void> => {
      leaving.set(name, await gate.acquire(signal));
      inside.push(name);
    };
    for (const name of names) void come(name);
    const assertInside = async (expected: string): Promise<void> => {
      await turn();
      assert.equal(inside.join(""), expected);
    };
    return { gate, come, leave: (name: string) => leaving.get(name)?.(), assertInside };
  }

  it("gives a place back once, however often it is left, and no newcomer passes those who wait", async () => {
    const { come, leave, assertInside } = open(1, "a", "b", "c");
    await assertInside("a");
    leave("a");
    leave("a");
    void come("d");
    await assertInside("ab");
    leave("b");
    await assertInside("abc");
  });

  it("refuses who gives up, before or while they wait, and keeps no place for them", async () => {
    const { come, leave, assertInside } = open(1, "a");
    await assert.rejects(come("x", AbortSignal.abort(new Error("enough"))), /enough/);
    const abort = new AbortController();
    const given = come("b", abort.signal);
    void come("c");
    await turn();
    abort.abort(new Error("enough"));
    await assert.rejects(given, /enough/);
    leave("a");
    await assertInside("ac");
  });

  it("lets fewer in when its limit is lowered", async () => {
    const { gate, leave, assertInside } = open(3, "a", "b", "c", "d");
    await assertInside("abc");
    gate.limit = 1;
    for (const name of ["a", "b"]) leave(name);
    await assertInside("abc");
    leave("c");
    await assertInside("abcd");
  });
});

/** So many servers that hang in their handshake until they are let go, under a hub that starts so many at a time. */
async function begin(count: number, parallelStarts: number) {
  const names = Array.from({ length: count }, (_, i) => `s${i}`);
  const latches = names.map(() => new Latch());
  const scripts = names.map(() => new ScriptedServer("x"));
  for (const [at, script] of scripts.entries()) script.onOpen = latches[at]?.wait;
  const servers = Object.fromEntries(names.map((name) => [name, { connectTimeout: 15_000 }]));
  const made = setUpHubWithClock(
    Object.fromEntries(scripts.map((script, i) => [`s${i}`, script])),
    { hub: { parallelStarts }, servers },
  );
  await initialize(made.client);
  return {
    ...made,
    latches,
    scripts,
    servers,
    started: () => scripts.filter(({ transportCount }) => transportCount > 0).length,
    status: (at: number) => connectionStatusOf(made.hub, `s${at}`),
  };
}

describe("the starts of many servers", () => {
  it("are so many at a time as parallelStarts says, and each that is done makes place for the next", async () => {
    const { latches, started, status } = await begin(6, 2);
    assert.equal(started(), 2);
    for (let done = 1; done <= 6; done++) {
      latches[done - 1]?.open();
      await turn();
      assert.equal(started(), Math.min(6, done + 2));
    }
    for (const at of latches.keys()) assert.equal(status(at).state, "connected");
  });

  it("are not kept waiting for more than 10 s by servers that hang, of which each counts once", async () => {
    const { clock, latches, started } = await begin(6, 2);
    await clock.advanceAsync(9999);
    assert.equal(started(), 2);
    await clock.advanceAsync(1);
    assert.equal(started(), 4);
    latches[0]?.open();
    await turn();
    assert.equal(started(), 4);
  });

  it("have their connectTimeout from their own begin", async () => {
    const { clock, status } = await begin(2, 1);
    await clock.advanceAsync(15_000);
    assert.equal(status(0).lastError?.code, "connectTimeout");
    await clock.advanceAsync(9999);
    assert.equal(status(1).state, "connecting");
    await clock.advanceAsync(1);
    assert.equal(status(1).lastError?.code, "connectTimeout");
  });

  it("make place at once when one is stopped, and who is stopped before its turn never starts", async () => {
    const { hub, scripts } = await begin(3, 1);
    for (const name of ["s1", "s0"]) await hub.stop(name);
    await turn();
    const starts = scripts.map(({ transportCount }) => transportCount);
    assert.deepEqual(starts, [1, 0, 1]);
  });

  it("go on faster once parallelStarts is raised", async () => {
    const { hub, started, servers } = await begin(5, 1);
    hub.reload(manifestOf(servers, { parallelStarts: 4 }));
    await turn();
    assert.equal(started(), 4);
  });

  it("that fail make place, too", async () => {
    const { clock, latches, started, scripts } = await begin(2, 1);
    Object.assign(scripts[0] ?? {}, { onInitialize: () => '"error":{"code":1,"message":"no"}' });
    latches[0]?.open();
    await turn();
    assert.deepEqual([started(), clock.now()], [2, 0]);
  });
});
