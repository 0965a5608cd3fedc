import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import {
  BODY_CHECK_INTERVAL,
  type BodyError,
  RequestBodies,
} from "../../../src/frontend/http/request-body.ts";
import { turn, VirtualClock } from "../../fixtures/virtual-clock.ts";

const MIB = 1024 * 1024;
/** Interval in which a body must make progress, in ms. */
const PERIOD = 12 * BODY_CHECK_INTERVAL;

/** A request whose body arrives in pieces. */
class SlowRequest {
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  isCancelled = false;
  readonly request: Request;

  constructor(headers: Record<string, string> = {}) {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.#controller = controller),
      cancel: () => void (this.isCancelled = true),
    });
    const init = { method: "POST", headers, body, duplex: "half" };
    this.request = new Request("http://localhost/mcp", init);
  }

  /** Settles when the piece was read. After a turn that took long, the reader pauses for at most 100 ms first. */
  async send(piece: Uint8Array): Promise<void> {
    this.#controller?.enqueue(piece);
    const deadline = performance.now() + 1000;
    do await turn();
    while (
      this.#controller?.desiredSize === 0 &&
      !this.isCancelled &&
      performance.now() < deadline
    );
  }

  end(): void {
    this.#controller?.close();
  }

  fail(): void {
    this.#controller?.error(new Error("The connection was lost."));
  }
}

function setUp(maxReceiving = 64 * MIB) {
  const clock = new VirtualClock();
  const bodies = new RequestBodies(clock, maxReceiving);
  /** Starts to read a body of this size at most. */
  const read = (max: number, headers?: Record<string, string>) => {
    const slow = new SlowRequest(headers);
    return { slow, body: bodies.read(slow.request, max) };
  };
  return { clock, bodies, read };
}

function whole(text: string, headers: Record<string, string> = {}): Request {
  return new Request("http://localhost/mcp", { method: "POST", headers, body: text });
}

const sizeOf = (outcome: Buffer | BodyError): number | BodyError =>
  typeof outcome === "string" ? outcome : outcome.length;

describe("the body of a request", () => {
  it("is read whole, whether its length is announced or not", async () => {
    const { bodies } = setUp();
    assert.equal(String(await bodies.read(whole("abc"), 10)), "abc");
    assert.equal(String(await bodies.read(whole("abc", { "Content-Length": "3" }), 10)), "abc");
    const empty = new Request("http://localhost/mcp", { method: "POST" });
    assert.equal(sizeOf(await bodies.read(empty, 10)), 0);
  });

  it("is joined from more pieces than are joined at once", async () => {
    const { slow, body } = setUp().read(MIB);
    for (let n = 0; n < 3000; n++) await slow.send(Buffer.alloc(100, "x"));
    slow.end();
    assert.equal(sizeOf(await body), 300_000);
  });

  it("is tooLarge over the limit, whatever length is announced", async () => {
    const { bodies, read } = setUp();
    for (const headers of [{}, { "Content-Length": "4" }, { "Content-Length": "1" }]) {
      assert.equal(await bodies.read(whole("abcd", headers), 3), "tooLarge");
    }
    const { slow, body } = read(150);
    for (let n = 0; n < 2; n++) await slow.send(Buffer.alloc(100));
    assert.equal(await body, "tooLarge");
    await turn();
    assert.ok(slow.isCancelled);
  });

  it("is broken if its connection is lost", async () => {
    const { slow, body } = setUp().read(MIB);
    await slow.send(Buffer.alloc(100));
    slow.fail();
    assert.equal(await body, "broken");
  });

  it("may take any time as long as it grows by 1 MiB a minute", async () => {
    const { clock, read } = setUp();
    const { slow, body } = read(64 * MIB);
    for (let n = 0; n < 40; n++) {
      await slow.send(Buffer.alloc(MIB));
      await clock.advanceAsync(PERIOD);
    }
    slow.end();
    assert.equal(sizeOf(await body), 40 * MIB);
  });

  it("is tooSlow if it grows by less, whatever came before", async () => {
    const { clock, read } = setUp();
    const { slow, body } = read(64 * MIB);
    await slow.send(Buffer.alloc(2 * MIB));
    for (let n = 0; n < 26; n++) {
      await slow.send(Buffer.alloc(1000));
      await clock.advanceAsync(BODY_CHECK_INTERVAL);
    }
    assert.equal(await body, "tooSlow");
  });

  it("is tooSlow if it is short, announced, and never comes", async () => {
    const { clock, read } = setUp();
    const { body } = read(MIB, { "Content-Length": "3" });
    await clock.advanceAsync(PERIOD + BODY_CHECK_INTERVAL);
    assert.equal(await body, "tooSlow");
  });

  for (const before of [0, MIB]) {
    it(`is tooFragmented if it goes on in chunks of one byte after ${before} bytes`, async () => {
      const { slow, body } = setUp().read(2 * MIB);
      // The first check counts the bytes before: the next one does not.
      await slow.send(Buffer.alloc(before));
      let hasEnded = false;
      void body.then(() => (hasEnded = true));
      for (let n = 0; n < 1100 && !hasEnded; n++) await slow.send(Buffer.from("x"));
      assert.equal(await body, "tooFragmented");
    });
  }

  it("may come in 2,000 chunks of 40 bytes", async () => {
    const { slow, body } = setUp().read(MIB);
    for (let n = 0; n < 2000; n++) await slow.send(Buffer.alloc(40));
    slow.end();
    assert.equal(sizeOf(await body), 80_000);
  });
});

describe("the bodies of all requests together", () => {
  it("have a limit, and what has ended gives its part back", async () => {
    const { read } = setUp(3 * MIB);
    const [first, second] = [read(3 * MIB), read(3 * MIB)];
    for (const { slow } of [first, second]) await slow.send(Buffer.alloc(2 * MIB));
    assert.equal(await second.body, "tooMany");
    first.slow.end();
    assert.equal(sizeOf(await first.body), 2 * MIB);
    const third = read(3 * MIB);
    await third.slow.send(Buffer.alloc(3 * MIB));
    third.slow.end();
    assert.equal(sizeOf(await third.body), 3 * MIB);
  });

  it("take none of the limit by announcing a length", async () => {
    const { bodies, read } = setUp(MIB);
    const announced = { "Content-Length": String(MIB) };
    const waiting = Array.from({ length: 10 }, () => read(MIB, announced));
    assert.equal(sizeOf(await bodies.read(whole("x".repeat(MIB)), MIB)), MIB);
    for (const { slow } of waiting) slow.end();
    for (const { body } of waiting) assert.equal(sizeOf(await body), 0);
  });
});
