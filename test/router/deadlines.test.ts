import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Deadlines, type DeadlineTarget } from "../../src/router/deadlines.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import {
  callRequest,
  type Peer,
  ScriptedServer,
  sendRequest,
  setUpHub,
  initialize,
} from "../fixtures/memory-hub.ts";
import { isOf, notify, respond } from "../fixtures/peer-messages.ts";

interface Probe extends DeadlineTarget {
  expired: number | undefined;
}

function setUp() {
  const clock = new VirtualClock();
  const deadlines = new Deadlines(clock);
  /** Something that expires after so many ms, and notes when it did. */
  const add = (ms: number): Probe => {
    const probe: Probe = {
      deadline: deadlines.now() + ms,
      expired: undefined,
      expire: () => (probe.expired = clock.now()),
    };
    deadlines.add(probe);
    return probe;
  };
  /** It expires at that time, and not before. */
  const assertExpiresAt = (probe: Probe, time: number): void => {
    clock.advanceTo(time - 1);
    assert.equal(probe.expired, undefined);
    clock.advanceTo(time);
    assert.equal(probe.expired, time);
  };
  const pauseUntil = (time: number): void => {
    deadlines.setPaused(true);
    clock.advanceTo(time);
    deadlines.setPaused(false);
  };
  return { clock, deadlines, add, assertExpiresAt, pauseUntil };
}

const timesOf = (probes: readonly Probe[]) => probes.map(({ expired }) => expired);

describe("deadlines", () => {
  it("expire each at its own time, whatever the order they were added in", () => {
    const { clock, add } = setUp();
    const probes = [add(300), add(100), add(200), add(Infinity)];
    clock.advanceTo(1e12);
    assert.deepEqual(timesOf(probes), [300, 100, 200, undefined]);
  });

  it("expire later when they are moved back while they wait", () => {
    const { clock, add, assertExpiresAt } = setUp();
    const probe = add(100);
    clock.advanceTo(50);
    probe.deadline = 150;
    assertExpiresAt(probe, 150);
  });

  it("keep their own times when others are removed, or come back", () => {
    const { clock, deadlines, add } = setUp();
    const [first, second, third, fourth] = [add(100), add(200), add(300), add(400)];
    for (const probe of [first, second, second]) deadlines.remove(probe);
    for (let time = 0; time < 2; time++) deadlines.add(second);
    clock.advanceTo(1000);
    assert.deepEqual(timesOf([first, second, third, fourth]), [undefined, 200, 300, 400]);
  });

  it("do not expire if the end of another one, due at the same time, has ended them or moved them back", () => {
    const { clock, deadlines, add, pauseUntil } = setUp();
    const [ended, moved] = [add(100), add(100)];
    const expire = (): void => {
      deadlines.remove(ended);
      moved.deadline = 500;
    };
    deadlines.add({ deadline: 50, expire });
    pauseUntil(200);
    for (const probe of [ended, moved]) probe.deadline = 60;
    clock.advanceTo(499);
    assert.deepEqual(timesOf([ended, moved]), [undefined, undefined]);
    clock.advanceTo(1000);
    assert.deepEqual([ended.expired, moved.expired !== undefined], [undefined, true]);
  });

  it("expire once", () => {
    const { clock, deadlines } = setUp();
    let count = 0;
    deadlines.add({ deadline: 10, expire: () => count++ });
    clock.advanceTo(1000);
    assert.equal(count, 1);
  });

  it("cost one timer for a thousand calls that end in time", () => {
    const { clock, deadlines } = setUp();
    for (let i = 0; i < 1000; i++) {
      const probe = { deadline: 60_000 + i, expire: () => assert.fail("it ended in time") };
      deadlines.add(probe);
      deadlines.remove(probe);
    }
    assert.equal(clock.timerCount, 1);
  });
});

describe("the time of deadlines that are held", () => {
  it("stands still: they expire later by as long as the hold was, and not during it", () => {
    const { clock, deadlines, add, assertExpiresAt } = setUp();
    const probe = add(1000);
    clock.advanceTo(400);
    deadlines.setPaused(true);
    clock.advanceTo(60_400);
    assert.equal(deadlines.now(), 400);
    deadlines.setPaused(false);
    assertExpiresAt(probe, 61_000);
  });

  it("adds up over several holds, and holding twice is holding once", () => {
    const { clock, deadlines, add, assertExpiresAt, pauseUntil } = setUp();
    const probe = add(1000);
    for (const from of [100, 1200, 2300]) {
      clock.advanceTo(from);
      deadlines.setPaused(true);
      clock.advanceTo(from + 500);
      pauseUntil(from + 1000);
      deadlines.setPaused(false);
    }
    assert.equal(deadlines.now(), 300);
    assertExpiresAt(probe, 4000);
  });

  it("counts for what is added during the hold from its end on", () => {
    const { clock, deadlines, add, assertExpiresAt, pauseUntil } = setUp();
    deadlines.setPaused(true);
    clock.advanceTo(5000);
    const probe = add(1000);
    pauseUntil(10_000);
    assertExpiresAt(probe, 11_000);
  });

  it("leaves what is all but due a moment to be read after the hold", () => {
    const { clock, add, pauseUntil } = setUp();
    const probe = add(1000);
    clock.advanceTo(999);
    pauseUntil(5000);
    clock.advanceTo(5050);
    assert.equal(probe.expired, undefined);
    clock.advanceTo(5200);
    assert.ok(probe.expired !== undefined);
  });
});

describe("a hub whose client does not read", () => {
  const BIG = `"result":{"content":[{"type":"text","text":"${"x".repeat(20_000_000)}"}]}`;

  /** A hub with this server and one whose tool has an answer that is more than the hub keeps for a client. */
  async function begin(other: ScriptedServer, settings: Parameters<typeof setUpHub>[1]) {
    const big = Object.assign(new ScriptedServer("x"), { onCall: () => BIG });
    const setup = setUpHub({ big, other }, settings);
    const { client } = setup;
    await initialize(client);
    await sendRequest(client, "tools/list");
    /** Has the client stop reading when more is on its way than the hub keeps. */
    const hold = async (): Promise<void> => {
      client.transport.pause();
      client.send(callRequest("big", "big__x"));
      await lastIs(big.newestPeer, "tools/call");
      await new Promise(setImmediate);
    };
    return { ...setup, hold };
  }

  const lastIs = (peer: Peer | undefined, method: string): Promise<void> | undefined =>
    peer?.until(() => peer.messages.at(-1)?.method === method);

  it("connects to a server meanwhile, whose handshake is nobody's but the hub's", async () => {
    const late = new ScriptedServer("y");
    late.onInitialize = () => undefined;
    const { events, hold } = await begin(late, { hub: { listWait: 20 } });
    await hold();
    const { result } = JSON.parse(`{${new ScriptedServer().onInitialize({}, "")}}`) as {
      result: object;
    };
    respond(late.newestPeer, late.messagesOf("initialize")[0]?.id, result);
    await lastIs(late.newestPeer, "tools/list");
    await new Promise(setImmediate);
    const isConnected = events.some(
      (event) => event.kind === "state" && event.server === "other" && event.to === "connected",
    );
    assert.ok(isConnected);
  });

  it("lists a server again afterwards if the listing could not end in time meanwhile", async () => {
    const growing = new ScriptedServer("y");
    const settings = { servers: { other: { connectTimeout: 50 } } };
    const { client, hold } = await begin(growing, settings);
    const { onList, newestPeer } = growing;
    growing.onList = () => undefined;
    notify(newestPeer, "notifications/tools/list_changed");
    await lastIs(newestPeer, "tools/list");
    await hold();
    await newestPeer?.find(isOf("notifications/cancelled"));
    growing.onList = onList;
    growing.tools.push('{"name":"z"}');
    client.transport.resume();
    await client.find(isOf("notifications/tools/list_changed"));
    const { result } = await sendRequest(client, "tools/list");
    assert.match(JSON.stringify(result), /other__z/);
  });
});
