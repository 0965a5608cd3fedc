import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import type { BusMessage } from "../../src/fleet/bus.ts";
import { Header } from "../../src/fleet/frames.ts";
import { inboxForHub, inboxOfHub } from "../../src/fleet/subjects.ts";
import { type Controlled, ControlSubjects } from "../../src/frontend/nats/control.ts";
import { MemoryNats } from "../fixtures/memory-bus.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

const NO_BYTES = new Uint8Array();
const PROBE = [[Header.frame, "ka"]] as const;

function setUp() {
  const nats = new MemoryNats();
  const clock = new VirtualClock();
  const exporting = nats.connect("_INBOX_default_h1");
  const control = new ControlSubjects(exporting, clock);
  const importing = nats.connect("_INBOX_acme_u1");
  const heard: BusMessage[] = [];
  for (const end of ["is-read", "*.probe.*", "*.5"])
    importing.subscribe(`_INBOX_acme_u1.${end}`, (message) => heard.push(message));
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 3; turn++) await importing.roundTrip();
  };
  /** Whether somebody has subscribed to the control of a request. */
  const isRead = async (reply: string): Promise<boolean> => {
    heard.length = 0;
    importing.publish(`${reply}.ctl`, utf8("x"), { reply: "_INBOX_acme_u1.is-read" });
    await settle();
    return !heard.some(({ hasNoResponders }) => hasNoResponders);
  };
  return { nats, clock, control, importing, heard, settle, isRead };
}

function request(reply: string): Controlled & { readonly got: string[] } {
  const got: string[] = [];
  return { reply, got, onControl: ({ data }) => void got.push(Buffer.from(data).toString()) };
}

describe("the control of answers", () => {
  it("reaches the request that its subject names, of one inbox or of several, and no other", async () => {
    const { control, importing, settle } = setUp();
    const [one, two] = [1, 2].map((number) => inboxForHub(importing.inbox, number));
    const replies = [
      `${one}.1`,
      `${one}.2`,
      `${two}.1`,
      `${importing.inbox}.1`,
      "_INBOX_x",
      "_INBOX_acme.t",
    ];
    const requests = replies.map(request);
    for (const each of requests) assert.equal(control.add(each), true);
    assert.equal(control.inboxes, 2);
    await settle();
    for (const [at, reply] of replies.entries())
      importing.publish(`${reply}.ctl`, utf8(String(at)));
    await settle();
    assert.deepEqual(
      requests.map(({ got }) => got),
      replies.map((_, at) => [String(at)]),
    );
    for (const each of requests) control.remove(each);
    for (const reply of replies) importing.publish(`${reply}.ctl`, utf8("late"));
    await settle();
    assert.ok(requests.every(({ got }) => got.length === 1));
    control.close();
  });

  it("tells whoever asks for a request that is not known, in the inbox of the request only", async () => {
    const { control, importing, heard, settle } = setUp();
    const inbox = inboxForHub(importing.inbox, 1);
    const known = request(`${inbox}.1`);
    control.add(known);
    await settle();
    const ask = async (key: string, reply: string, isProbe = true): Promise<string[]> => {
      heard.length = 0;
      importing.publish(`${inbox}.${key}.ctl`, NO_BYTES, {
        reply,
        ...(isProbe && { headers: PROBE }),
      });
      await settle();
      return heard.map((message) => `${message.subject} ${message.header(Header.frame)}`);
    };
    assert.deepEqual(await ask("2", `${inbox}.probe.2`), [`${inbox}.probe.2 end`]);
    assert.deepEqual(await ask("1", `${inbox}.probe.1`), []);
    assert.equal(known.got.length, 1);
    // Nobody makes the hub write elsewhere, or by another message.
    assert.deepEqual(await ask("2", "_INBOX_acme_u1.other.5"), []);
    assert.deepEqual(await ask("2", `${inbox}x.5`), []);
    assert.deepEqual(await ask("2", `${inbox}.5`, false), []);
    control.close();
  });

  it("is of the first of two requests that want their answer on one subject", async () => {
    const { control, importing, settle } = setUp();
    const reply = `${inboxForHub(importing.inbox, 1)}.1`;
    const [first, second] = [request(reply), request(reply)];
    assert.deepEqual([control.add(first), control.add(second)], [true, false]);
    await settle();
    importing.publish(`${reply}.ctl`, utf8("cancel"));
    await settle();
    assert.deepEqual([first.got, second.got], [["cancel"], []]);
    control.close();
  });

  it("is given up for an inbox that is not used for some time, and for others when there are too many", async () => {
    const { clock, control, importing, isRead } = setUp();
    const replyOf = (number: number): string => `${inboxForHub(importing.inbox, number)}.1`;
    const [kept, idle] = [request(replyOf(1)), request(replyOf(2))];
    control.add(kept);
    control.add(idle);
    control.remove(idle);
    assert.deepEqual([await isRead(replyOf(1)), await isRead(replyOf(2))], [true, true]);
    await clock.advanceAsync(60_000);
    assert.equal(control.inboxes, 2);
    await clock.advanceAsync(60_000);
    assert.deepEqual([await isRead(replyOf(1)), await isRead(replyOf(2))], [true, false]);
    for (let number = 10; number < 30_000; number++) {
      const each = request(replyOf(number));
      control.add(each);
      control.remove(each);
      assert.ok(control.inboxes <= 12_000);
    }
    assert.equal(await isRead(replyOf(1)), true);
    control.close();
    assert.equal(await isRead(replyOf(1)), false);
  });

  it("has one subscription only for inboxes that are for one hub", () => {
    assert.equal(inboxOfHub("_INBOX_a_b.N-hub-1.7"), "_INBOX_a_b.N-hub-1");
    for (const reply of [
      "_INBOX_a_b.N.7",
      "_INBOX_a-hub-1_b.7",
      "_INBOX_a-hub-1_b.N.7",
      "_INBOX_a_b.N.7-hub-1",
      "_INBOX_a_b",
    ])
      assert.equal(inboxOfHub(reply), undefined, reply);
  });
});
