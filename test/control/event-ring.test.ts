import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import { EventBus, type EventKind, type HubEvent } from "../../src/base/events.ts";
import { EVENT_KINDS, EventRing } from "../../src/control/event-ring.ts";

const CALL = { call: 1, client: "c", server: "s", tool: "t", name: "s__t", startedAt: 1 };
const STARTED: HubEvent = { kind: "callStarted", ...CALL };
const line = (text: string): HubEvent => ({ kind: "log", level: "info", source: "hub", text });

function setUp() {
  const bus = new EventBus();
  const hub = {
    subscribe: bus.subscribe.bind(bus),
    get lastSeq() {
      return bus.lastSeq;
    },
  };
  const ring = new EventRing(hub, (text) => text.replaceAll("hunter2", "[redacted]"));
  return { bus, ring };
}

interface Opened {
  /** Everything received so far, after one more read. */
  read(): Promise<readonly { readonly [key: string]: unknown }[]>;
  readonly abort: AbortController;
  /** Whether the stream has failed, so that nothing of it is left to read. */
  hasFailed(): Promise<boolean>;
}

function open(ring: EventRing, kinds: readonly EventKind[], after?: number): Opened {
  const abort = new AbortController();
  const reader = ring.open({ kinds, after, signal: abort.signal }).getReader();
  return {
    abort,
    async read() {
      let text = "";
      for (let isMore = true; isMore;) {
        const { value } = await reader.read();
        text += new TextDecoder().decode(value);
        // Kept events come in pieces of this size, of which only the last is smaller.
        isMore = value?.length === 64 * 1024;
      }
      const texts = text.matchAll(/^data: (.*)$/gm);
      return [...texts].map(([, data = ""]) => JSON.parse(data) as { [key: string]: unknown });
    },
    hasFailed: () =>
      reader.read().then(
        () => false,
        () => true,
      ),
  };
}

describe("the events of a hub that are kept", () => {
  it("are sent to a reader that knows the earlier ones, each once and in order", async () => {
    const { bus, ring } = setUp();
    for (const text of ["one", "two", "three"]) bus.emit(line(text));
    const { read } = open(ring, ["log"], 1);
    assert.deepEqual(
      (await read()).map(({ seq, text }) => [seq, text]),
      [
        [2, "two"],
        [3, "three"],
      ],
    );
    bus.emit(line("four"));
    assert.deepEqual(
      (await read()).map(({ text }) => text),
      ["four"],
    );
  });

  it("begin with a gap notice if the reader has missed some that are not kept any more", async () => {
    const { bus, ring } = setUp();
    for (let i = 0; i < 5000; i++) bus.emit(line(`line ${i}`));
    const events = await open(ring, ["log"], 100).read();
    assert.deepEqual(events[0], { first: 905 });
    assert.deepEqual([events[1]?.["seq"], events.length], [905, 4097]);
    assert.equal((await open(ring, ["log"], 904).read())[0]?.["seq"], 905);
  });

  it("are all sent after a gap notice to a reader that comes from an earlier hub", async () => {
    const { bus, ring } = setUp();
    bus.emit(line("one"));
    const events = await open(ring, ["log"], 17).read();
    assert.deepEqual(
      events.map(({ first, text }) => first ?? text),
      [1, "one"],
    );
  });

  it("are at most 1 MiB", async () => {
    const { bus, ring } = setUp();
    for (let i = 0; i < 100; i++) bus.emit(line("x".repeat(30_000)));
    const events = await open(ring, ["log"], 0).read();
    assert.ok(events.length > 10 && events.length < 40);
  });

  it("are those of calls only while somebody reads them", async () => {
    const { bus, ring } = setUp();
    assert.equal(bus.hasListeners("callStarted"), false);
    const other = open(ring, ["log"]);
    assert.equal(bus.hasListeners("callStarted"), false);
    const calls = open(ring, EVENT_KINDS);
    assert.equal(bus.hasListeners("callStarted"), true);
    await calls.read();
    bus.emit(STARTED);
    assert.deepEqual(
      (await calls.read()).map(({ kind, name }) => [kind, name]),
      [["callStarted", "s__t"]],
    );
    calls.abort.abort();
    assert.equal(bus.hasListeners("callStarted"), false);
    other.abort.abort();
    assert.equal(bus.hasListeners("log"), true);
    ring.close();
    assert.equal(bus.hasListeners("log"), false);
  });

  it("have what they say in words, and no secret", async () => {
    const { bus, ring } = setUp();
    const { read } = open(ring, EVENT_KINDS);
    await read();
    const cause = new HubError("connectionLost", "hunter2 is gone.");
    bus.emit({ kind: "state", server: "s", from: "connecting", to: "failed", cause });
    const [event] = await read();
    assert.deepEqual(event?.["cause"], { code: "connectionLost", message: "[redacted] is gone." });
    assert.deepEqual([event?.["level"], event?.["text"]], ["error", "[redacted] is gone."]);
  });

  it("have the members of the event of a call, whatever its names and numbers are, in order with other events", async () => {
    const { bus, ring } = setUp();
    const { read } = open(ring, EVENT_KINDS);
    await read();
    const numbers = [0, 9, 10, 99_999, 100_000, 8, 2 ** 31 - 1, 2 ** 31, Number.MAX_SAFE_INTEGER];
    const times = [0, 1_795_657_953_855, 1_795_657_999_999, 1_795_658_000_000, 1e13];
    const names = ["s__t", '"\\\n', "é🙂", "s__t", "x".repeat(1000)];
    const sent: HubEvent[] = [line("before"), { ...STARTED, client: undefined }];
    for (const [at, number] of numbers.entries()) {
      for (const [index, name] of names.entries()) {
        const startedAt = times[(at + index) % times.length] ?? 0;
        const call = { ...CALL, call: number, startedAt, name, tool: name };
        sent.push({ kind: "callStarted", ...call }, line(name.slice(0, 10)));
        const answered = { kind: "callFinished", outcome: "answered", ...call } as const;
        for (const failed of [true, false, undefined])
          sent.push({ ...answered, failed, duration: number + (number < 2 ** 32 ? 0.25 : 0) });
        sent.push({ ...answered, failed: false, duration: 0, parentCall: 3, principal: "ci" });
      }
    }
    // Between these, only some of the digits differ.
    for (let call = 1; call < 300; call++) {
      const startedAt = (times[2] ?? 0) + call;
      sent.push({ ...STARTED, call, startedAt });
      const answered = { kind: "callFinished", outcome: "answered", failed: false } as const;
      sent.push({ ...CALL, ...answered, call: (call * 7) % 300, startedAt, duration: call / 8 });
    }
    for (const event of sent) bus.emit(event);
    const received: Record<string, unknown>[] = [];
    while (received.length < sent.length) received.push(...(await read()));
    const plain = received.map(({ seq: _seq, at: _at, level: _level, ...event }) => event);
    const expected = sent.map((event) => {
      const { level: _level, ...rest } = { level: "", ...event };
      return JSON.parse(JSON.stringify(rest)) as Record<string, unknown>;
    });
    assert.deepEqual(plain, expected);
    assert.deepEqual(
      received.map(({ seq }) => seq),
      sent.map((_, at) => at + 1),
    );
  });

  it("are cut if one of them is very large", async () => {
    const { bus, ring } = setUp();
    bus.emit(line("x".repeat(100_000)));
    const [event] = await open(ring, ["log"], 0).read();
    assert.deepEqual([event?.["truncated"], String(event?.["text"]).length], [true, 1000]);
  });

  it("are not held for a reader that reads none of the kept ones either", async () => {
    const { bus, ring } = setUp();
    for (let i = 0; i < 60; i++) bus.emit(line("x".repeat(20_000)));
    const slow = open(ring, ["log"], 0);
    const late = open(ring, ["log"], 0);
    for (let i = 0; i < 60; i++) bus.emit(line("x".repeat(20_000)));
    assert.equal(await slow.hasFailed(), true);
    assert.equal(await late.hasFailed(), true);
    assert.ok((await open(ring, ["log"], 0).read()).length > 40);
  });

  it("disconnect a reader that does not read, and nobody else", async () => {
    const { bus, ring } = setUp();
    const slow = open(ring, ["log"]);
    const quick = open(ring, ["log"]);
    await quick.read();
    for (let i = 0; i < 60; i++) {
      bus.emit(line("x".repeat(20_000)));
      await quick.read();
    }
    assert.equal(await slow.hasFailed(), true);
    bus.emit(line("last"));
    assert.deepEqual(
      (await quick.read()).map(({ text }) => text),
      ["last"],
    );
  });
});
