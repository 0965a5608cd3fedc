import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import {
  type DeliveredEvent,
  EVENT_KINDS,
  EventBus,
  type EventKind,
  type HubEvent,
  keepEvents,
  OTHER_KINDS,
} from "../../src/base/hub-events.ts";
import { EventRing } from "../../src/control/event-ring.ts";
import type { CallDetail } from "../../src/control/schemas.ts";
import { type CallEnd, CallLog } from "../../src/router/call.ts";

const CALL = { call: 1, client: "c", server: "s", tool: "t", name: "s__t", startedAt: 1 };
const STARTED = { kind: "callStarted", ...CALL } as const;
const ANSWERED: HubEvent = {
  kind: "callFinished",
  outcome: "answered",
  failed: false,
  ...CALL,
  duration: 1,
};
const line = (text: string): HubEvent => ({ kind: "log", level: "info", source: "hub", text });

function setUp(bus = new EventBus(), takeEarlier?: () => readonly DeliveredEvent[]) {
  const callLog = new CallLog(bus);
  /** Ends calls, as the router does. */
  const call = (count: number, end: CallEnd = { failed: false }, isNotable = false): void => {
    for (let i = 0; i < count; i++) {
      const number = callLog.nextNumber();
      if (callLog.wantsStarts) bus.emit({ ...STARTED, call: number });
      const record = Object.assign(callLog.usage.next(), CALL, { call: number, duration: 1 });
      record.outcome =
        end === "answered" || !("failed" in end) || !end.failed ? "answered" : "failed";
      callLog.usage.add(record);
      if (callLog.wantsEnds) callLog.logEnd(record, end, Date.now(), isNotable);
    }
  };
  const hub = {
    subscribe: bus.subscribe.bind(bus),
    get lastSeq() {
      return bus.lastSeq;
    },
    usage: callLog.usage,
    reportCalls: callLog.reportCalls.bind(callLog),
  };
  const redact = (text: string): string => text.replaceAll("hunter2", "[redacted]");
  const ring = new EventRing(hub, redact, takeEarlier);
  return { bus, ring, call };
}

interface Opened {
  /** Everything received so far, after one more read. */
  read(): Promise<readonly { readonly [key: string]: unknown }[]>;
  readonly abort: AbortController;
  /** Whether the stream has failed, so that nothing of it is left to read. */
  hasFailed(): Promise<boolean>;
}

function open(
  ring: EventRing,
  kinds: readonly EventKind[],
  after?: number,
  calls: CallDetail = "counted",
): Opened {
  const abort = new AbortController();
  const reader = ring.open({ kinds, calls, after, signal: abort.signal }).getReader();
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

  it("begin with the first of the hub, though some were emitted before the ring listened", async () => {
    const bus = new EventBus();
    const takeEarlier = keepEvents(bus, OTHER_KINDS, 3);
    for (const text of ["one", "two"]) bus.emit(line(text));
    const { ring } = setUp(bus, takeEarlier);
    bus.emit(line("three"));
    const events = await open(ring, ["log"], 0).read();
    assert.deepEqual(
      events.map(({ seq, text }) => [seq, text]),
      [
        [1, "one"],
        [2, "two"],
        [3, "three"],
      ],
    );
  });

  it("begin with a gap notice if too many were emitted before the ring listened", async () => {
    const bus = new EventBus();
    const takeEarlier = keepEvents(bus, OTHER_KINDS, 3);
    for (let i = 0; i < 5; i++) bus.emit(line(`line ${i}`));
    const events = await open(setUp(bus, takeEarlier).ring, ["log"], 0).read();
    assert.deepEqual(events[0], { first: 3 });
    assert.deepEqual([events[1]?.["seq"], events.length], [3, 4]);
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

  it("have the members of the event of a call, in order with other events", async () => {
    const { bus, ring } = setUp();
    const { read } = open(ring, EVENT_KINDS);
    await read();
    const name = '"\\\n é🙂';
    const sent: HubEvent[] = [
      line("before"),
      { ...STARTED, client: undefined },
      { ...STARTED, name, tool: name },
      line("between"),
      { ...ANSWERED, name, duration: 0.25, parentCall: 3, principal: "ci" },
      { ...CALL, kind: "callCancelled", by: "deadline", duration: 2 ** 40 },
    ];
    for (const event of sent) bus.emit(event);
    const received = await read();
    assert.deepEqual(
      received.map(({ seq: _seq, at: _at, level: _level, ...event }) => event),
      sent.map((event) => {
        const { level: _level, ...rest } = { level: "", ...event };
        return JSON.parse(JSON.stringify(rest)) as Record<string, unknown>;
      }),
    );
    assert.deepEqual(
      received.map(({ seq }) => seq),
      sent.map((_, at) => at + 1),
    );
  });

  describe("of more calls than a person can read", () => {
    it("are numbers with the last calls, and the hub emits no event for each call", async () => {
      const { bus, ring, call } = setUp();
      const { read } = open(ring, EVENT_KINDS);
      await read();
      call(300);
      assert.ok(bus.lastSeq < 110, `${bus.lastSeq} events`);
      assert.ok(!bus.hasListeners("callStarted") && !bus.hasListeners("callFinished", "all"));
      const told: (readonly { readonly [key: string]: unknown }[])[] = [];
      while (!told.flat().some(({ kind }) => kind === "calls")) told.push(await read());
      const events = told.flat();
      const single = events.filter(({ kind }) => kind === "callFinished");
      const counted = events.find(({ kind }) => kind === "calls");
      assert.equal(single.length + Number(counted?.["ended"]), 300);
      const last = counted?.["last"] as readonly { readonly call: number }[];
      assert.deepEqual([last.length, last.at(-1)?.call], [10, 300]);
      assert.deepEqual(
        events.map(({ seq }) => seq),
        events.map((_, at) => at + 1),
      );
    });

    it("are told one by one if they failed, were cancelled or waited for an approval", async () => {
      const { ring, call } = setUp();
      const { read } = open(ring, ["callFinished", "callCancelled"]);
      await read();
      call(200);
      await read();
      call(1, { failed: true });
      call(1, { by: "client" });
      call(1, { failed: false }, true);
      const events = await read();
      assert.deepEqual(
        events.map(({ kind, call: number, failed }) => [kind, number, failed]),
        [
          ["callFinished", 201, true],
          ["callCancelled", 202, undefined],
          ["callFinished", 203, false],
        ],
      );
    });

    it("are all there for a reader that asks for all, and for nobody else", async () => {
      const { ring, call } = setUp();
      const every = open(ring, ["callFinished", "calls"], undefined, "all");
      const counted = open(ring, ["callFinished", "calls"]);
      await Promise.all([every.read(), counted.read()]);
      call(500);
      const numbers: unknown[] = [];
      while (numbers.length < 500)
        numbers.push(...(await every.read()).map(({ kind, call: number }) => [kind, number]));
      assert.deepEqual(
        numbers,
        Array.from({ length: 500 }, (_, at) => ["callFinished", at + 1]),
      );
      assert.ok((await counted.read()).length < 60);
    });

    it("are told one by one again when there are few", async () => {
      const { bus, ring, call } = setUp();
      const { read } = open(ring, EVENT_KINDS);
      await read();
      call(200);
      const deadline = AbortSignal.timeout(10_000);
      while (!bus.hasListeners("callStarted")) {
        deadline.throwIfAborted();
        // Events keep coming while the hub looks whether there are still many calls.
        bus.emit(line("still here"));
        await read();
      }
      call(1);
      const told: (readonly { readonly [key: string]: unknown }[])[] = [];
      while (!told.flat().some(({ kind }) => kind === "callFinished")) told.push(await read());
    });
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
