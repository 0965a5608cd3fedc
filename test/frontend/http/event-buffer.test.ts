import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../../src/base/bytes.ts";
import { streamResponse } from "../../../src/frontend/http/responses.ts";
import {
  EVENT_BUFFER_LIMITS,
  EventBuffer,
  KEEP_ALIVE_INTERVAL,
  readEventId,
} from "../../../src/frontend/http/event-buffer.ts";
import { turn, VirtualClock } from "../../fixtures/virtual-clock.ts";
import { EventStreamReader } from "../../fixtures/http-client.ts";

const message = (n: number, size = 0): Uint8Array =>
  utf8(`{"method":"m","params":{"n":${n},"x":"${"x".repeat(size)}"}}`);

function make({ key }: { key: number | undefined } = { key: 3 }) {
  const clock = new VirtualClock();
  let count = 0;
  const stream = new EventBuffer(key, clock, () => count++);
  const read = (after?: number): EventStreamReader =>
    new EventStreamReader(streamResponse(stream.attach(after)));
  return { stream, clock, left: () => count, read };
}

/** The numbers of all messages until the end. */
async function numbers(events: EventStreamReader): Promise<unknown[]> {
  return (await events.remainingMessages()).map(({ params }) => params?.["n"]);
}

describe("a stream of events", () => {
  it("gives a reader that comes back all after its last event, and nothing twice", async () => {
    const { stream, read } = make();
    for (let n = 0; n < 5; n++) stream.push(message(n));
    const first = read();
    for (let n = 0; n < 3; n++) assert.equal((await first.message()).params?.["n"], n);
    assert.equal(first.lastEventId, "3-2");
    const again = read(2);
    stream.finish();
    assert.deepEqual(await numbers(again), [3, 4]);
  });

  it("goes on where its last reader was, for one that does not say where it was", async () => {
    const { stream, read } = make();
    stream.push(message(0));
    const first = read();
    await first.message();
    await first.cancel();
    stream.push(message(1));
    const second = read();
    stream.finish();
    assert.deepEqual(await numbers(second), [1]);
  });

  it("keeps of what was read what fits, the newest of it, and says the rest to nobody", async () => {
    const { stream, read } = make();
    const events = read();
    const size = EVENT_BUFFER_LIMITS.maxKept / 4;
    for (let n = 0; n < 20; n++) {
      stream.push(message(n, size));
      await events.message();
    }
    assert.ok(stream.size <= EVENT_BUFFER_LIMITS.maxKept, `${stream.size} bytes`);
    const again = read(0);
    stream.finish();
    assert.deepEqual(await numbers(again), [17, 18, 19]);
  });

  it("holds so much for a reader that is not there, and then forgets the oldest", async () => {
    const { stream, read } = make();
    const size = EVENT_BUFFER_LIMITS.maxTotal / 8;
    for (let n = 0; n < 20; n++) {
      stream.push(message(n, size));
      assert.ok(stream.size <= EVENT_BUFFER_LIMITS.maxTotal, `${stream.size} bytes`);
    }
    assert.equal(stream.unsent, stream.size);
    const events = read();
    stream.finish();
    assert.deepEqual(await numbers(events), [13, 14, 15, 16, 17, 18, 19]);
    assert.equal(stream.unsent, 0);
  });

  it("holds one message whatever its size", async () => {
    const { stream, read } = make();
    stream.push(message(1, 2 * EVENT_BUFFER_LIMITS.maxTotal));
    const events = read();
    stream.finish();
    assert.deepEqual(await numbers(events), [1]);
  });

  it("ends for a reader that is too far behind, after what that was given", async () => {
    const { stream, read, left } = make();
    const events = read();
    for (let n = 0; n < 12; n++) stream.push(message(n, EVENT_BUFFER_LIMITS.maxBehind / 8));
    assert.deepEqual([stream.hasReader, left()], [false, 1]);
    assert.deepEqual(await numbers(events), [0]);
    const again = read(0);
    stream.finish();
    assert.deepEqual(await numbers(again), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  });

  it("shows as long as it is read, and no longer, that it lives", async () => {
    const { stream, clock, read } = make();
    const events = read();
    const next = events.next();
    for (let n = 0; n < 3; n++) {
      await clock.advanceAsync(KEEP_ALIVE_INTERVAL);
      await turn();
    }
    // One came at once.
    assert.equal(events.comments.length, 4);
    stream.detach();
    assert.equal(await next, undefined);
    assert.deepEqual(clock.pendingDelays, []);
  });

  it("begins at once: with what there is to give out, or else with a sign of life", async () => {
    const { stream, read } = make();
    const silent = read();
    stream.push(message(0));
    const talking = read(-1);
    stream.finish();
    assert.deepEqual([await numbers(silent), await numbers(talking)], [[0], [0]]);
    assert.deepEqual([silent.comments.length, talking.comments.length], [1, 0]);
  });

  it("heaps no signs of life up for who does not read", async () => {
    const { stream, clock, read } = make();
    const events = read();
    stream.push(message(0, 100_000));
    stream.push(message(1));
    await clock.advanceAsync(100 * KEEP_ALIVE_INTERVAL);
    stream.finish();
    assert.deepEqual(await numbers(events), [0, 1]);
    assert.equal(events.comments.length, 1);
  });

  it("keeps line ends out of its data", async () => {
    const { stream, read } = make();
    const text = '{\n"method":\r\n"m",\r"params":{"n":1}\n}';
    stream.push([utf8(text.slice(0, 3)), utf8(text.slice(3))]);
    const events = read();
    stream.finish();
    assert.equal((await events.next())?.data, text.replaceAll(/[\r\n]/g, " "));
  });

  it("has no event ids without a key, and keeps nothing that was sent", async () => {
    const { stream, read } = make({ key: undefined });
    const events = read();
    for (const size of [0, 2 * EVENT_BUFFER_LIMITS.maxBehind, 0]) {
      stream.push(message(1, size));
      assert.equal((await events.next())?.id, undefined);
    }
    for (let n = 0; n < 3; n++) stream.push(message(n, EVENT_BUFFER_LIMITS.maxBehind / 4));
    for (let n = 0; n < 3; n++) await events.next();
    assert.equal(stream.unsent, 0);
    assert.ok(stream.size <= EVENT_BUFFER_LIMITS.maxBehind / 3, `${stream.size} bytes`);
    stream.finish();
    assert.deepEqual(await numbers(events), []);
  });

  it("fails without a key for a reader that is too far behind", async () => {
    const { stream, read, left } = make({ key: undefined });
    const events = read();
    for (let n = 0; n < 12; n++) stream.push(message(n, EVENT_BUFFER_LIMITS.maxBehind / 8));
    assert.deepEqual([stream.hasReader, left()], [false, 1]);
    await assert.rejects(numbers(events), /does not read/);
  });

  it("is over for who has all of it, and for nobody before it is finished", () => {
    const { stream } = make();
    stream.push(message(0));
    assert.equal(stream.isOver(0), false);
    stream.finish();
    assert.equal(stream.isOver(0), true);
    assert.equal(stream.isOver(), false, "nobody was given it");
    stream.push(message(1));
    assert.equal(stream.isOver(0), true, "what comes later is not said");
  });
});

describe("the id of an event", () => {
  it("says which stream, and where on it, and is nothing else", () => {
    assert.deepEqual(readEventId("3-14"), { key: 3, seq: 14 });
    const others = ["", "3", "3-", "-3", "3-1-1", "a-1", "3-1 ", "+3-1", "1e3-1"];
    for (const id of [...others, `${"9".repeat(16)}-1`]) {
      assert.equal(readEventId(id), undefined, id);
    }
  });
});
