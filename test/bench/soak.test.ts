import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Census } from "../soak/census.ts";
import type { Errand } from "../soak/errand.ts";
import { Gauge } from "../soak/gauge.ts";
import { History } from "../soak/history.ts";
import { type Call, Ledger } from "../soak/ledger.ts";
import { Lists } from "../soak/lists.ts";
import type { Message } from "../soak/wire.ts";

describe("the history of a manifest", () => {
  const a = new Map([["g", 1]]);
  const b = new Map([["g", 2]]);
  const none = new Map<string, number>();

  it("leaves only what stands once it has stood for long enough", () => {
    const history = new History<number>();
    history.note(0, none);
    history.note(10_000, a);
    assert.deepEqual(history.possible("g", 9000, 9500), [undefined]);
    assert.deepEqual(history.possible("g", 11_000, 12_000), [1, undefined]);
    assert.deepEqual(history.possible("g", 15_000, 16_000), [1]);
  });

  it("lets go on what was before a content that is none, or that did not stand for long", () => {
    const history = new History<number>();
    history.note(0, a);
    history.note(10_000, b);
    history.note(10_100, undefined);
    assert.deepEqual(history.possible("g", 20_000, 21_000), [2, 1]);
    history.note(22_000, none);
    assert.deepEqual(history.possible("g", 23_000, 24_000), [undefined, 2, 1]);
    assert.deepEqual(history.possible("g", 27_000, 28_000), [undefined]);
  });
});

describe("the ledger of calls", () => {
  const echo: Errand = {
    tool: "echo",
    args: {},
    tellsProgress: false,
    right: ({ content }) => content?.[0]?.text === "right",
  };
  const right: Message["result"] & object = { content: [{ type: "text", text: "right" }] };
  const late = { ...right, isError: true, _meta: { "toolmux/error": "callTimeout" } };
  const lost = { code: -31002, message: "lost", data: { code: "connectionLost", server: "s" } };

  /** A ledger, and what it found wrong; `call` opens a call at the present time. */
  const open = () => {
    const faults: string[] = [];
    const clock = { now: 0 };
    const ledger = new Ledger({
      faults: { add: (text) => void faults.push(text) },
      now: () => clock.now,
      allowed: () => ["connectionLost", "unknownTool"],
    });
    let done = 0;
    const call = (id: number, errand = echo, isCalm = false): Call => {
      const made = { id, server: "s", errand, isCalm, sentAt: clock.now, progress: 0 };
      const opened = { ...made, done: () => void done++ };
      ledger.add(opened);
      return opened;
    };
    return { ledger, clock, call, faults, ended: () => done };
  };

  const about = (code: string, server: string) => ({ error: { ...lost, data: { code, server } } });
  const wrong: Readonly<Record<string, Partial<Message>>> = {
    "another's text": { result: { content: [{ type: "text", text: "other" }] } },
    "an error of a code that it may not get": about("internal", "s"),
    "an error about another server": about("connectionLost", "t"),
    "an error without a code of the hub": { error: { code: -32603, message: "oops" } },
    "an answer that says late too early": { result: late },
  };
  for (const [what, answer] of Object.entries(wrong)) {
    it(`finds ${what} wrong`, () => {
      const { ledger, call, faults } = open();
      call(1);
      ledger.settle({ id: 1, ...answer });
      assert.equal(faults.length, 1);
    });
  }

  it("takes an error that says why, and an answer that says late in time, but not for a calm server", () => {
    const { ledger, clock, call, faults } = open();
    call(1);
    ledger.settle({ id: 1, error: lost });
    call(2);
    call(3, echo, true);
    clock.now += 1500;
    ledger.settle({ id: 2, result: late });
    assert.deepEqual([ledger.tally.failed, ledger.tally.late, faults], [1, 1, []]);
    ledger.settle({ id: 3, result: late });
    assert.equal(faults.length, 1);
  });

  it("finds any answer of a server wrong that never answers, and takes the error that a server is to give", () => {
    const { ledger, call, faults } = open();
    call(1, { ...echo, right: { error: -5 } });
    ledger.settle({ id: 1, error: { code: -5, message: "no" } });
    assert.deepEqual(faults, []);
    call(2, { ...echo, right: "never" });
    ledger.settle({ id: 2, result: right });
    assert.equal(faults.length, 1);
  });

  it("takes an answer that crosses a cancel, and none after the ping behind it", () => {
    const { ledger, call, faults, ended } = open();
    ledger.cancel(call(1), 2);
    assert.equal(ended(), 1);
    assert.ok(ledger.settle({ id: 1, result: right }));
    assert.ok(ledger.settle({ id: 2, result: {} }));
    ledger.cancel(call(3), 4);
    assert.ok(ledger.settle({ id: 4, result: {} }));
    assert.ok(!ledger.settle({ id: 3, result: right }));
    assert.deepEqual([ledger.open, ledger.tally.crossed, faults, ended()], [0, 1, [], 2]);
  });

  it("misses an answer once its time and all grace are over, and only once", () => {
    const { ledger, clock, call, faults, ended } = open();
    call(1);
    clock.now += 7999;
    ledger.look();
    assert.deepEqual(faults, []);
    clock.now += 1;
    ledger.look();
    ledger.look();
    assert.deepEqual([faults.length, ended(), ledger.open], [1, 1, 0]);
  });

  it("takes progress that grows, of calls in flight that asked for it", () => {
    const { ledger, call, faults } = open();
    const tell = (progressToken: number, progress: number) =>
      ledger.progress({ params: { progressToken, progress } });
    call(1, { ...echo, tellsProgress: true });
    tell(1, 1);
    tell(1, 2);
    assert.deepEqual(faults, []);
    tell(1, 2);
    call(2);
    tell(2, 1);
    ledger.settle({ id: 1, result: right });
    tell(1, 3);
    assert.equal(faults.length, 3);
  });
});

describe("the lists of a client", () => {
  const guest = (mark: number) => ({ isStubborn: false, mark, limit: 1 });

  const open = () => {
    const faults: string[] = [];
    const clock = { now: 0 };
    const history = new History<ReturnType<typeof guest>>();
    const now = new Map<string, ReturnType<typeof guest>>();
    const lists = new Lists({
      faults: { add: (text) => void faults.push(text) },
      editor: {
        get guests() {
          return [...now.keys()];
        },
        possible: (name, from, to) => history.possible(name, from, to),
      },
      residents: [{ name: "steady", tool: "echo" }],
      now: () => clock.now,
      ask: () => {},
    });
    const edit = (name: string, mark: number | undefined) => {
      if (mark === undefined) now.delete(name);
      else now.set(name, guest(mark));
      history.note(clock.now, new Map(now));
    };
    const list = (...names: string[]) => {
      lists.ask();
      lists.take({ result: { tools: names.map((name) => ({ name })) } });
    };
    edit("", undefined);
    clock.now += 10_000;
    return { lists, clock, edit, list, faults };
  };

  it("keep what a resident lists from the first time on", () => {
    const { list, faults } = open();
    list();
    list("steady__echo");
    assert.deepEqual(faults, []);
    list();
    assert.match(faults.join(), /not in the list any more: steady__echo/);
  });

  it("have a guest as long as it may be there, and not beyond", () => {
    const { clock, edit, list, faults } = open();
    edit("guest-1", 5);
    list("guest-1__mark_5");
    edit("guest-1", undefined);
    clock.now += 3999;
    list("guest-1__mark_5");
    assert.deepEqual(faults, []);
    clock.now += 1;
    list("guest-1__mark_5");
    assert.match(faults.join(), /guest-1 is in a list/);
  });

  it("are asked for anew when a guest goes, or the client was never told", () => {
    const { lists, clock, edit, list, faults } = open();
    edit("guest-1", 5);
    list("guest-1__mark_5");
    edit("guest-1", undefined);
    clock.now += 6999;
    lists.look();
    assert.deepEqual(faults, []);
    clock.now += 1;
    lists.look();
    assert.match(faults.join(), /never told that guest-1 is gone/);
  });

  it("show a guest's mark in time", () => {
    const { lists, clock, edit, list, faults } = open();
    edit("guest-1", 5);
    list("steady__echo", "guest-1__mark_4");
    clock.now += 23_999;
    lists.look();
    assert.deepEqual(faults, []);
    clock.now += 1;
    lists.look();
    assert.match(faults.join(), /guest-1__mark_5 was never listed/);
  });

  it("are answered in time", () => {
    const { lists, clock, faults } = open();
    lists.ask();
    clock.now += 9999;
    lists.look();
    assert.deepEqual(faults, []);
    clock.now += 1;
    lists.look();
    assert.match(faults.join(), /no list for 10000 ms/);
  });

  it("ask again after an answer that was on its way when there was something else", () => {
    const faults: string[] = [];
    let asked = 0;
    const lists = new Lists({
      faults: { add: (text) => void faults.push(text) },
      editor: { guests: [], possible: () => [] },
      residents: [],
      now: () => 0,
      ask: () => void asked++,
    });
    lists.ask();
    lists.ask();
    assert.equal(asked, 1);
    lists.take({ result: { tools: [] } });
    assert.equal(asked, 2);
    lists.take({ result: { tools: [] } });
    assert.equal(asked, 2);
  });
});

describe("the census of servers", () => {
  const count = (...servers: string[]) => {
    const faults: string[] = [];
    const history = new History<number>();
    history.note(0, new Map([["guest-1", 1]]));
    const clock = { now: 10_000 };
    const census = new Census({
      faults: { add: (text) => void faults.push(text) },
      editor: { possible: (name, from, to) => history.possible(name, from, to) as [] },
      residents: [{ name: "steady" }],
      children: () => servers.map((server, pid) => ({ server, pid })),
      now: () => clock.now,
    });
    return { census, history, clock, faults };
  };

  it("finds a server that runs twice, and tells it once", () => {
    const { census, faults } = count("steady", "steady");
    census.look();
    census.look();
    assert.deepEqual(faults, ["steady runs more than once: 0 and 1"]);
  });

  it("finds a server that runs though nobody has wanted it for long", () => {
    const { census, history, clock, faults } = count("guest-1");
    history.note(clock.now, new Map());
    clock.now += 18_999;
    census.look();
    assert.deepEqual(faults, []);
    clock.now += 1;
    census.look();
    assert.match(faults.join(), /guest-1 is not wanted/);
  });
});

describe("the gauge of a hub", () => {
  /** What it finds after so many looks in each third, with what `hold` says for each third and look. */
  const judge = (looks: number, hold: (third: number, look: number) => [number, number]) => {
    let at = 0;
    const gauge = new Gauge(() => {
      const [rss, descriptors] = hold(Math.floor(at / looks), at++ % looks);
      return { rss: rss * 1e6, descriptors };
    });
    for (let look = 0; look < 3 * looks; look++) gauge.look(2);
    return gauge.judge().join();
  };

  it("finds descriptors that grew from the second third to the last", () => {
    const grow = (last: number) => judge(20, (third) => [1, [10, 20, last][third] ?? 0]);
    assert.equal(grow(26), "");
    assert.equal(grow(27), "descriptors grew from 14 to 21");
  });

  it("finds memory that grew, if there was time enough to give it back", () => {
    const grow = (third: number): [number, number] => [[10, 100, 116][third] ?? 0, 1];
    assert.equal(judge(80, grow), "memory grew from 100 to 116 MB");
    assert.equal(judge(79, grow), "");
  });

  it("looks past what comes and goes", () => {
    const peaks = (third: number, look: number): [number, number] =>
      third === 2 && look % 2 === 0 ? [900, 90] : [100, 10];
    assert.equal(judge(80, peaks), "");
  });
});
