import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Deadlines, type DeadlineTarget } from "../../src/router/deadlines.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { INITIALIZE_REQUEST, type Json, ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";

interface Probe extends DeadlineTarget {
  expired: number | undefined;
}

function setTime(): { clock: VirtualClock; deadlines: Deadlines; add: (ms: number) => Probe } {
  const clock = new VirtualClock();
  const deadlines = new Deadlines(clock);
  const add = (ms: number): Probe => {
    const probe: Probe = {
      deadline: deadlines.now() + ms,
      expired: undefined,
      expire: () => (probe.expired = clock.now()),
    };
    deadlines.add(probe);
    return probe;
  };
  return { clock, deadlines, add };
}

describe("the time of deadlines that are held", () => {
  it("stands still: they expire later by as long as the hold was, and not during it", () => {
    const { clock, deadlines, add } = setTime();
    const probe = add(1000);
    clock.advanceTo(400);
    deadlines.setPaused(true);
    clock.advanceTo(60_400);
    assert.equal(deadlines.now(), 400);
    deadlines.setPaused(false);
    clock.advanceTo(60_999);
    assert.equal(probe.expired, undefined);
    clock.advanceTo(61_000);
    assert.equal(probe.expired, 61_000);
  });

  it("adds up over several holds, and holding twice is holding once", () => {
    const { clock, deadlines, add } = setTime();
    const probe = add(1000);
    for (const from of [100, 1200, 2300]) {
      clock.advanceTo(from);
      deadlines.setPaused(true);
      clock.advanceTo(from + 500);
      deadlines.setPaused(true);
      clock.advanceTo(from + 1000);
      deadlines.setPaused(false);
      deadlines.setPaused(false);
    }
    assert.equal(deadlines.now(), 300);
    clock.advanceTo(3999);
    assert.equal(probe.expired, undefined);
    clock.advanceTo(4000);
    assert.equal(probe.expired, 4000);
  });

  it("counts for what is added during the hold from its end on", () => {
    const { clock, deadlines, add } = setTime();
    deadlines.setPaused(true);
    clock.advanceTo(5000);
    const probe = add(1000);
    clock.advanceTo(10_000);
    assert.equal(probe.expired, undefined);
    deadlines.setPaused(false);
    clock.advanceTo(11_000);
    assert.equal(probe.expired, 11_000);
  });

  it("leaves what is all but due a moment to be read after the hold", () => {
    const { clock, deadlines, add } = setTime();
    const probe = add(1000);
    clock.advanceTo(999);
    deadlines.setPaused(true);
    clock.advanceTo(5000);
    deadlines.setPaused(false);
    clock.advanceTo(5050);
    assert.equal(probe.expired, undefined);
    clock.advanceTo(5200);
    assert.ok(probe.expired !== undefined);
  });
});

describe("a hub whose client does not read", () => {
  const LIST = { jsonrpc: "2.0", id: "list", method: "tools/list" };
  const BIG = `"result":{"content":[{"type":"text","text":"${"x".repeat(20_000_000)}"}]}`;
  const CHANGED = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}';
  const answerTo =
    (id: string) =>
    (message: Json): boolean =>
      message.id === id && message.method === undefined;

  /** A server whose one tool has an answer that is more than the hub keeps for a client. */
  function makeBig(): ScriptedServer {
    const big = new ScriptedServer("x");
    big.onCall = () => BIG;
    return big;
  }

  async function list({ client }: ReturnType<typeof setUpHub>): Promise<void> {
    client.send(INITIALIZE_REQUEST);
    client.send(LIST);
    await client.find(answerTo("list"));
  }

  /** Has the client stop reading when more is on its way than the hub keeps. */
  async function hold({ client }: ReturnType<typeof setUpHub>, big: ScriptedServer): Promise<void> {
    client.transport.pause();
    client.send({ jsonrpc: "2.0", id: "big", method: "tools/call", params: { name: "big__x" } });
    await big.newestPeer?.until(() => big.newestPeer?.messages.at(-1)?.method === "tools/call");
    await new Promise(setImmediate);
  }

  it("connects to a server meanwhile, whose handshake is nobody's but the hub's", async () => {
    const late = new ScriptedServer("y");
    let release: () => void = () => {};
    late.onInitialize = (message) => {
      const result =
        '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';
      release = () =>
        late.newestPeer?.send(`{"jsonrpc":"2.0","id":${String(message.id)},"result":${result}}`);
      return undefined;
    };
    const big = makeBig();
    const made = setUpHub({ big, late }, { hub: { listWait: 20 } });
    await list(made);
    await hold(made, big);
    release();
    await late.newestPeer?.until(() => late.newestPeer?.messages.at(-1)?.method === "tools/list");
    await new Promise(setImmediate);
    assert.equal(
      made.events.some(
        (event) => event.kind === "state" && event.server === "late" && event.to === "connected",
      ),
      true,
    );
  });

  it("lists a server again afterwards if the listing could not end in time meanwhile", async () => {
    const growing = new ScriptedServer("y");
    const big = makeBig();
    const made = setUpHub({ big, growing }, { servers: { growing: { connectTimeout: 50 } } });
    await list(made);
    const { onList } = growing;
    growing.onList = () => undefined;
    growing.newestPeer?.send(CHANGED);
    await growing.newestPeer?.until(
      () => growing.newestPeer?.messages.at(-1)?.method === "tools/list",
    );
    await hold(made, big);
    await growing.newestPeer?.find(({ method }) => method === "notifications/cancelled");
    growing.onList = onList;
    growing.tools.push('{"name":"z"}');
    made.client.transport.resume();
    await made.client.find(({ method }) => method === "notifications/tools/list_changed");
    made.client.send({ ...LIST, id: "again" });
    const { result } = await made.client.find(answerTo("again"));
    assert.match(JSON.stringify(result), /growing__z/);
  });
});
