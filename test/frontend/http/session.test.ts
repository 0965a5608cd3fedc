import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { utf8 } from "../../../src/base/bytes.ts";
import { JSON_WAIT } from "../../../src/frontend/http/post-response.ts";
import { SESSION_LIMITS, SessionTransport } from "../../../src/frontend/http/session.ts";
import { EVENT_BUFFER_LIMITS } from "../../../src/frontend/http/event-buffer.ts";
import { Deadlines } from "../../../src/router/deadlines.ts";
import { ALL_SERVERS } from "../../../src/upstream/profile.ts";
import { parseMessage } from "../../../src/jsonrpc/parse.ts";
import type { Message } from "../../../src/jsonrpc/message.ts";
import type { Responder, SentRequest } from "../../../src/transport/transport.ts";
import { TransportRecorder } from "../../contract/transport.ts";
import { turn, VirtualClock } from "../../fixtures/virtual-clock.ts";
import { EventStreamReader } from "../../fixtures/http-client.ts";

const NEVER = new AbortController().signal;
const frame = (id: number): Message =>
  parseMessage(Buffer.from(`{"jsonrpc":"2.0","id":${id},"method":"m"}`));
const answer = (id: number, size = 0): Uint8Array =>
  utf8(`{"jsonrpc":"2.0","result":{"x":"${"x".repeat(size)}"},"id":${id}}`);
const note = (n: number): Uint8Array => utf8(`{"jsonrpc":"2.0","method":"n","params":{"n":${n}}}`);

class Ways extends TransportRecorder {
  /** Of the requests that came. */
  readonly ways: Responder[] = [];

  override message(one: Message, _?: SentRequest, inbound?: Responder): void {
    if (inbound !== undefined) this.ways.push(inbound);
    super.message(one);
  }
}

const idsOf = async (events: EventStreamReader): Promise<unknown[]> =>
  (await events.remainingMessages()).map(({ id }) => id);

/** A session, and what it tells. */
class Setup {
  readonly clock = new VirtualClock();
  readonly events = new Ways();
  readonly ways = this.events.ways;
  answered = 0;
  ended = 0;
  readonly session = new SessionTransport({
    clock: this.clock,
    deadlines: new Deadlines(this.clock),
    scope: { principal: undefined, limit: ALL_SERVERS, subset: ALL_SERVERS, mode: undefined },
    onAnswered: () => void this.answered++,
    onEnd: () => void this.ended++,
  });

  constructor() {
    void this.session.open(this.events, NEVER);
  }

  /** A request that is answered on a stream, which nobody has read to its end. @returns the id of the stream's first event */
  async stream(id: number, size = 0): Promise<string> {
    const response = await this.session.receive(frame(id), "events");
    const way = this.ways.at(-1);
    way?.notify(note(id));
    way?.respond(answer(id, size));
    const events = new EventStreamReader(response);
    const first = await events.next();
    await events.cancel();
    return first?.id ?? "";
  }

  /** Whether somebody can come back for what followed an event. */
  knows(event: string): boolean {
    const { status, body } = this.session.openEventStream(event);
    if (body instanceof ReadableStream) void body.cancel();
    return status === 200;
  }
}

describe("what a session over HTTP holds", () => {
  it("is there for those who come back, for a while", async () => {
    const setup = new Setup();
    const event = await setup.stream(1);
    await setup.clock.advanceAsync(SESSION_LIMITS.maxFinishedAge - 1);
    setup.session.prune();
    assert.equal(setup.knows(event), true);
    await setup.clock.advanceAsync(1);
    setup.session.prune();
    assert.equal(setup.knows(event), false);
  });

  it("is so many streams at most, the newest of them", async () => {
    const setup = new Setup();
    const events: string[] = [];
    for (let id = 1; id <= SESSION_LIMITS.maxFinishedStreams + 2; id++)
      events.push(await setup.stream(id));
    const known = events.map((event) => setup.knows(event));
    assert.deepEqual([...known.slice(0, 4), known.at(-1)], [false, false, true, true, true]);
  });

  it("is so many bytes at most, the newest of them", async () => {
    const setup = new Setup();
    const size = EVENT_BUFFER_LIMITS.maxTotal / 2;
    const events: string[] = [];
    const count = SESSION_LIMITS.maxBytes / size + 2;
    for (let id = 1; id <= count; id++) events.push(await setup.stream(id, size));
    const known = events.map((event) => setup.knows(event));
    assert.deepEqual([known[0], known.at(-1)], [false, true]);
    assert.ok(known.filter(Boolean).length * size <= SESSION_LIMITS.maxBytes);
  });

  it("is never what still runs", async () => {
    const setup = new Setup();
    const events = new EventStreamReader(await setup.session.receive(frame(1), "events"));
    const [way] = setup.ways;
    way?.notify(note(1));
    const first = await events.next();
    await events.cancel();
    for (let id = 2; id <= SESSION_LIMITS.maxFinishedStreams + 2; id++) await setup.stream(id);
    await setup.clock.advanceAsync(2 * SESSION_LIMITS.maxFinishedAge);
    setup.session.prune();
    way?.respond(answer(1));
    const again = new EventStreamReader(setup.session.openEventStream(first?.id));
    assert.deepEqual(await idsOf(again), [1]);
  });
});

describe("a session over HTTP", () => {
  it("is in use while a request runs or a stream is read, and since then", async () => {
    const setup = new Setup();
    const { session, clock, ways } = setup;
    const response = session.receive(frame(1), "json");
    assert.deepEqual([session.idleSince, session.inFlight], [undefined, 1]);
    await clock.advanceAsync(10);
    ways[0]?.respond(undefined);
    assert.equal((await response).status, 202);
    assert.deepEqual([session.idleSince, session.inFlight, setup.answered], [10, 0, 1]);
    const events = new EventStreamReader(session.openEventStream(undefined));
    await clock.advanceAsync(10);
    assert.equal(session.idleSince, undefined);
    await events.cancel();
    assert.equal(session.idleSince, 20);
    await clock.advanceAsync(5);
    await session.receive(parseMessage(Buffer.from(note(1))), "either");
    assert.equal(session.idleSince, 25);
  });

  it("takes one answer to each request, and nothing after it", async () => {
    const setup = new Setup();
    const { session, ways } = setup;
    const events = new EventStreamReader(await session.receive(frame(1), "events"));
    const alone = session.receive(frame(2), "json");
    for (const [at, way] of ways.entries()) {
      way.respond(answer(at + 1));
      way.notify(note(9));
      way.respond(answer(9));
    }
    assert.deepEqual(await idsOf(events), [1]);
    assert.deepEqual(await (await alone).json(), { jsonrpc: "2.0", result: { x: "" }, id: 2 });
    assert.equal(session.queued, 0, "nothing went aside");
  });

  it("reads one message more if it is paused again at the next", async () => {
    const { session, events } = new Setup();
    events.onMessage = () => session.pause();
    session.pause();
    const posts = [1, 2, 3].map((n) =>
      session.receive(parseMessage(Buffer.from(note(n))), "either"),
    );
    for (const count of [1, 2, 3]) {
      session.resume();
      await turn();
      assert.equal(events.messages.length, count);
    }
    for (const post of posts) assert.equal((await post).status, 202);
  });

  it("ends the answers that run, before whoever runs them hears of it, and those that wait with a message", async () => {
    const setup = new Setup();
    const { session, ways, events } = setup;
    const streamed = new EventStreamReader(await session.receive(frame(1), "events"));
    const alone = session.receive(frame(2), "either");
    session.pause();
    const waiting = session.receive(frame(3), "either");
    events.closed = () => {
      for (const way of ways) way.respond(undefined);
    };
    await session.close();
    for (const response of [alone, waiting, session.receive(frame(4), "either")]) {
      assert.equal((await response).status, 404);
    }
    assert.deepEqual(await streamed.remainingMessages(), []);
    await session.close();
    assert.deepEqual([setup.ended, ways.length], [1, 2]);
    await setup.clock.advanceAsync(JSON_WAIT);
    assert.deepEqual(setup.clock.pendingDelays, []);
  });
});
