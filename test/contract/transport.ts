import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { HubError } from "../../src/base/errors.ts";
import { bytesOf, type EncodedMessage, type Message } from "../../src/jsonrpc/message.ts";
import type { TransportEvents, Transport } from "../../src/transport/transport.ts";
import { withDeadline } from "../harness/wait.ts";

/*
 * test/contract: one suite per interface, which every implementation must pass: `Transport` (here), `SecretStore`,
 * `Snapshots` and plugins (plugin.ts). A test file calls the suite with a function that makes an implementation.
 */

/** The other end of a transport, controlled by a test. Texts are whole messages without a line end. */
export interface Peer {
  /** Sends messages; `cut`: in writes of so many bytes, if the transport carries bytes. */
  send(texts: readonly string[], writeSize?: number): void;
  /** The next `count` messages from the transport. */
  receive(count: number): Promise<readonly string[]>;
  /** Number of messages that have arrived and are not taken. */
  readonly queuedCount: number;
  /** Bytes that were sent and that the transport has not read. */
  unreadBytes(): Promise<number>;
  stopReading(): void;
  startReading(): void;
  /** Closes its side after everything is sent. */
  end(): void;
  /** Resolves when nothing of the peer is left; rejects after some seconds. */
  allClosed(): Promise<void>;
}

export interface TransportPair {
  readonly transport: Transport;
  readonly peer: Peer;
  /** The maximum size of a message that the transport reads, in bytes; undefined: unlimited. */
  readonly maxMessage: number | undefined;
  /** It never reports backpressure, because the transport itself bounds what the peer has not read. */
  readonly hasNoBackpressure?: true;
  /** The peer cannot be stopped: the transport itself keeps up to 8 MiB that arrive while it is paused. */
  readonly keepsUnread?: true;
}

/** Records the events of a transport. */
export class TransportRecorder implements TransportEvents {
  readonly events: string[] = [];
  readonly messages: string[] = [];
  readonly logs: string[] = [];
  readonly causes: HubError[] = [];
  readonly oversizedMessages: { head: string; tail: string; size: number }[] = [];
  onMessage: (frame: Message) => void = () => {};
  readonly #waiters = new Set<() => void>();

  message(frame: Message): void {
    if (frame.kind === "batch") throw new Error("no batch was sent");
    this.messages.push(bytesOf(frame).toString());
    this.#record("frame");
    this.onMessage(frame);
  }

  log(level: string, source: string, text: string): void {
    this.logs.push(`${level} ${source} ${text}`);
    this.#record("log");
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.oversizedMessages.push({ head: head.toString(), tail: tail.toString(), size });
    this.#record("oversized");
  }

  pressure(full: boolean): void {
    this.#record(full ? "full" : "drained");
  }

  closed(cause: HubError): void {
    this.causes.push(cause);
    this.#record("closed");
  }

  has(event: string): boolean {
    return this.events.includes(event);
  }

  /** Waits until `test` is true; checked after every event. */
  until(what: string, test: () => boolean): Promise<void> {
    return withDeadline(
      20_000,
      () => `${what}; so far: ${this.events.slice(-5).join()}`,
      (resolve) => {
        const check = (): void => {
          if (!test()) return;
          this.#waiters.delete(check);
          resolve();
        };
        this.#waiters.add(check);
        check();
      },
    );
  }

  #record(event: string): void {
    this.events.push(event);
    for (const look of this.#waiters) look();
  }
}

/** A notification with a number, padded by `size` bytes. */
export function notification(n: number, size = 0): string {
  return `{"jsonrpc":"2.0","method":"n","params":{"n":${n},"x":"${"x".repeat(size)}"}}`;
}

function notifications(count: number, size = 0): string[] {
  return Array.from({ length: count }, (_, n) => notification(n, size));
}

const NEVER_ABORTED = new AbortController().signal;
const MEGABYTE = 1024 * 1024;
const UNUSUAL_MESSAGE = `{"jsonrpc":"2.0","method":"ü\\u0000\\n\\"\\\\","params":["\u{1f9f6}","\\ud83e\\uddf6","\u2028\u2029","\u007f",1.0,1e400]}`;

interface OpenTransport {
  readonly link: Transport;
  readonly events: TransportRecorder;
}

/** Compared one by one, as they are large. */
function assertSame(found: readonly string[], texts: readonly string[]): void {
  assert.equal(found.length, texts.length);
  for (const [n, text] of texts.entries()) assert.ok(found[n] === text, `message ${n}`);
}

/** The contract of every `Transport`. `makePair` makes a transport that is not open yet, and its peer. */
export function transportContract(name: string, makePair: () => Promise<TransportPair>): void {
  /** Runs a test on an open pair, and checks afterwards that the transport closes once and leaves nothing behind. */
  function test(
    sentence: string,
    run: (pair: TransportPair & OpenTransport) => Promise<void>,
  ): void {
    void it(sentence, async () => {
      const pair = await makePair();
      const events = new TransportRecorder();
      try {
        await pair.transport.open(events, NEVER_ABORTED);
        await run({ ...pair, link: pair.transport, events });
      } finally {
        await pair.transport.close();
        await pair.peer.allClosed();
      }
      assert.equal(events.causes.length, 1, "closed was told once");
      assert.equal(events.events.at(-1), "closed", "nothing came after closed");
    });
  }

  describe(`${name} is a link`, () => {
    test("brings messages in both directions in the order in which they were sent", async (pair) => {
      const { link, peer, events } = pair;
      const texts = notifications(200);
      for (const text of texts) link.send(utf8(text));
      peer.send(texts);
      assert.deepEqual(await peer.receive(200), texts);
      await events.until("200 frames", () => events.messages.length === 200);
      assert.deepEqual(events.messages, texts);
    });

    test("joins the pieces of a message and keeps messages apart", async ({ link, peer }) => {
      const big = notification(1, 40_000);
      const messages: EncodedMessage[] = [
        ['{"jsonrpc":"2.0"', ',"method":', '"a"', "}"].map(utf8),
        utf8('{"jsonrpc":"2.0","method":"b"}'),
        [utf8(big.slice(0, 30)), utf8(big.slice(30, 39_000)), utf8(big.slice(39_000))],
        [utf8(""), utf8('{"jsonrpc":"2.0","method":"c"}'), utf8("")],
      ];
      for (const message of messages) link.send(message);
      assert.deepEqual(await peer.receive(4), [
        '{"jsonrpc":"2.0","method":"a"}',
        '{"jsonrpc":"2.0","method":"b"}',
        big,
        '{"jsonrpc":"2.0","method":"c"}',
      ]);
    });

    test("puts messages together wherever they were cut", async ({ peer, events }) => {
      const texts = [UNUSUAL_MESSAGE, notification(1), UNUSUAL_MESSAGE, notification(2)];
      for (const cut of [1, 2, 7, 50]) peer.send(texts, cut);
      await events.until("16 frames", () => events.messages.length === 16);
      assert.deepEqual(events.messages, [...texts, ...texts, ...texts, ...texts]);
    });

    test("passes 3 MB, unicode, escapes and strange numbers whole in both directions", async (pair) => {
      const { link, peer, events } = pair;
      const texts = [UNUSUAL_MESSAGE, notification(1, 3 * MEGABYTE)];
      for (const text of texts) link.send(utf8(text));
      peer.send(texts);
      assertSame(await peer.receive(2), texts);
      await events.until("two frames", () => events.messages.length === 2);
      assertSame(events.messages, texts);
    });

    test("answers from inside a frame without losing or mixing anything", async (pair) => {
      const { link, peer, events } = pair;
      events.onMessage = (frame) => {
        if (frame.kind === "notification") link.send(bytesOf(frame));
      };
      const texts = notifications(200);
      peer.send(texts);
      assert.deepEqual(await peer.receive(200), texts);
    });

    for (const [what, isInside] of [
      ["", false],
      [" from inside a frame", true],
    ] as const) {
      test(`brings nothing while it is paused${what}, leaves what it cannot hold to the peer, and loses nothing`, async (pair) => {
        const { link, peer, events, keepsUnread = false } = pair;
        // The buffers of a socket on both sides hold several MB.
        const texts = notifications(keepsUnread ? 6 : 24, MEGABYTE);
        events.onMessage = () => {
          if (isInside && events.messages.length === 1) link.pause();
        };
        if (!isInside) link.pause();
        peer.send(texts);
        if (isInside) await events.until("a frame", () => events.messages.length > 0);
        for (let n = 0; n < 100; n++) await peer.unreadBytes();
        const unread = await peer.unreadBytes();
        assert.ok(unread > 4 * MEGABYTE || keepsUnread, "the peer keeps what is not read");
        if (!isInside) assert.deepEqual(events.events, []);
        link.resume();
        await events.until("all frames", () => events.messages.length === texts.length);
        assertSame(events.messages, texts);
      });
    }

    test("says when the peer does not read and when it does again, and loses nothing", async (pair) => {
      const { link, peer, events, hasNoBackpressure: isCalm } = pair;
      if (isCalm === true) return;
      peer.stopReading();
      const texts: string[] = [];
      while (!events.has("full")) {
        assert.ok(texts.length < 64, "pressure within 64 MB");
        const text = notification(texts.length, MEGABYTE);
        texts.push(text);
        link.send(utf8(text));
        await peer.unreadBytes();
      }
      assert.ok(link.queued > MEGABYTE, `${link.queued} bytes are queued`);
      peer.startReading();
      await events.until("relief", () => events.has("drained"));
      assertSame(await peer.receive(texts.length), texts);
      assert.deepEqual(events.events, ["full", "drained"]);
    });

    test("reports a message over the limit, with its edges, and lives on", async (pair) => {
      const { peer, events, maxMessage: limit } = pair;
      if (limit === undefined) return;
      const big = notification(1, limit);
      peer.send([notification(0), big, notification(2)]);
      await events.until("three events", () => events.events.length === 3);
      assert.deepEqual(events.events, ["frame", "oversized", "frame"]);
      const [drop] = events.oversizedMessages;
      assert.equal(drop?.size, big.length);
      assert.equal(drop?.head, big.slice(0, drop?.head.length));
      assert.equal(drop?.tail, big.slice(-(drop?.tail.length ?? 0)));
      assert.deepEqual(events.messages, [notification(0), notification(2)]);
    });

    test("tells of the peer's end once, after its last message", async ({ peer, events }) => {
      const texts = notifications(300, 1000);
      peer.send(texts);
      peer.end();
      await events.until("the end", () => events.has("closed"));
      assert.deepEqual(events.messages, texts);
      assert.equal(events.causes[0]?.code, "connectionLost");
    });

    test("delivers what came before the peer's end also after a pause", async (pair) => {
      const { link, peer, events } = pair;
      const texts = notifications(300, 100);
      link.pause();
      peer.send(texts);
      await peer.unreadBytes();
      peer.end();
      link.resume();
      await events.until("the end", () => events.has("closed"));
      assert.deepEqual(events.messages, texts);
    });

    test("drops what is sent after the end without throwing", async ({ link, peer, events }) => {
      peer.end();
      await events.until("the end", () => events.has("closed"));
      link.send(utf8(notification(1, MEGABYTE)));
      link.send(utf8(notification(2))).abandon();
      link.pause();
      link.resume();
      assert.equal(link.queued, 0);
    });

    test("brings all that was sent before it is closed to the peer, and nothing that is sent later", async (pair) => {
      const { link, peer } = pair;
      const texts = notifications(50, 100);
      for (const text of texts) link.send(utf8(text));
      const closed = link.close();
      link.send(utf8(notification(50)));
      const received = await peer.receive(50);
      await closed;
      assert.deepEqual(received, texts);
      assert.equal(peer.queuedCount, 0);
    });

    test("is closed once however often close is called, and every call waits for the end", async (pair) => {
      const { link, events } = pair;
      const ends: string[] = [];
      const first = link.close().then(() => ends.push(events.events.join()));
      const second = link.close().then(() => ends.push(events.events.join()));
      await Promise.all([first, second]);
      await link.close();
      assert.deepEqual(ends, ["closed", "closed"]);
      assert.equal(events.causes[0]?.code, "connectionLost");
    });

    test("brings no frame after close was called, also from inside a frame", async (pair) => {
      const { link, peer, events } = pair;
      let closed: Promise<void> | undefined;
      events.onMessage = () => {
        closed = link.close();
      };
      peer.send(notifications(100));
      await events.until("the end", () => events.has("closed"));
      await closed;
      assert.equal(events.messages.length, 1);
    });

    test("can be closed while paused", async ({ link, peer, events }) => {
      link.pause();
      peer.send(notifications(4, MEGABYTE));
      await peer.unreadBytes();
      await link.close();
      assert.deepEqual(events.messages, []);
    });

    test("is opened only once", async ({ link, events }) => {
      await assert.rejects(link.open(new TransportRecorder(), NEVER_ABORTED), HubError);
      assert.deepEqual(events.events, []);
    });

    for (const isClosed of [false, true]) {
      const what = isClosed ? "it is closed" : "the signal is aborted";
      const cancelled = { name: "HubError", code: "cancelled" };

      it(`opens nothing if ${what} before`, async () => {
        const { transport: link, peer } = await makePair();
        const events = new TransportRecorder();
        if (isClosed) await link.close();
        const signal = isClosed ? NEVER_ABORTED : AbortSignal.abort();
        await assert.rejects(link.open(events, signal), cancelled);
        link.send(utf8(notification(1)));
        await link.close();
        await peer.allClosed();
        assert.deepEqual(events.events, []);
      });

      it(`leaves nothing behind if ${what} while it opens`, async () => {
        const { transport: link, peer } = await makePair();
        const events = new TransportRecorder();
        const abort = new AbortController();
        const opening = link.open(events, abort.signal);
        const opened = opening.then(
          () => true,
          () => false,
        );
        if (isClosed) void link.close();
        else abort.abort();
        const isOpened = await opened;
        await link.close();
        await peer.allClosed();
        if (!isOpened && !isClosed) await assert.rejects(opening, cancelled);
        assert.deepEqual(events.events, isOpened ? ["closed"] : []);
      });
    }
  });
}
