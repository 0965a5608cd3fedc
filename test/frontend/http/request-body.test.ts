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

  async send(piece: Uint8Array): Promise<void> {
    this.#controller?.enqueue(piece);
    await turn();
  }

  end(): void {
    this.#controller?.close();
  }

  fail(): void {
    this.#controller?.error(new Error("The connection was lost."));
  }
}

function setUp(maxReceiving = 64 * MIB): { clock: VirtualClock; bodies: RequestBodies } {
  const clock = new VirtualClock();
  return { clock, bodies: new RequestBodies(clock, maxReceiving) };
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
    const { bodies } = setUp();
    const slow = new SlowRequest();
    const body = bodies.read(slow.request, MIB);
    const piece = Buffer.alloc(100, "x");
    for (let n = 0; n < 3000; n++) await slow.send(piece);
    slow.end();
    assert.equal(sizeOf(await body), 300_000);
  });

  it("is tooLarge over the limit, whatever length is announced", async () => {
    const { bodies } = setUp();
    assert.equal(await bodies.read(whole("abcd"), 3), "tooLarge");
    assert.equal(await bodies.read(whole("abcd", { "Content-Length": "4" }), 3), "tooLarge");
    assert.equal(await bodies.read(whole("abcd", { "Content-Length": "1" }), 3), "tooLarge");
    const slow = new SlowRequest();
    const body = bodies.read(slow.request, 150);
    await slow.send(Buffer.alloc(100));
    await slow.send(Buffer.alloc(100));
    assert.equal(await body, "tooLarge");
    await turn();
    assert.ok(slow.isCancelled);
  });

  it("is broken if its connection is lost", async () => {
    const { bodies } = setUp();
    const slow = new SlowRequest();
    const body = bodies.read(slow.request, MIB);
    await slow.send(Buffer.alloc(100));
    slow.fail();
    assert.equal(await body, "broken");
  });

  it("may take any time as long as it grows by 1 MiB a minute", async () => {
    const { clock, bodies } = setUp();
    const slow = new SlowRequest();
    const body = bodies.read(slow.request, 64 * MIB);
    for (let n = 0; n < 40; n++) {
      await slow.send(Buffer.alloc(MIB));
      await clock.advanceAsync(PERIOD);
    }
    slow.end();
    assert.equal(sizeOf(await body), 40 * MIB);
  });

  it("is tooSlow if it grows by less, whatever came before", async () => {
    const { clock, bodies } = setUp();
    const slow = new SlowRequest();
    const body = bodies.read(slow.request, 64 * MIB);
    await slow.send(Buffer.alloc(2 * MIB));
    for (let n = 0; n < 26; n++) {
      await slow.send(Buffer.alloc(1000));
      await clock.advanceAsync(BODY_CHECK_INTERVAL);
    }
    assert.equal(await body, "tooSlow");
  });

  it("is tooSlow if it is short, announced, and never comes", async () => {
    const { clock, bodies } = setUp();
    const slow = new SlowRequest({ "Content-Length": "3" });
    const body = bodies.read(slow.request, MIB);
    await clock.advanceAsync(PERIOD + BODY_CHECK_INTERVAL);
    assert.equal(await body, "tooSlow");
  });

  it("is tooFragmented if it comes in a thousand chunks of one byte", async () => {
    const { bodies } = setUp();
    const slow = new SlowRequest();
    const body = bodies.read(slow.request, MIB);
    const byte = Buffer.from("x");
    for (let n = 0; n < 1024; n++) await slow.send(byte);
    assert.equal(await body, "tooFragmented");
  });
});

describe("the bodies of all requests together", () => {
  it("have a limit, and what has ended gives its part back", async () => {
    const { bodies } = setUp(3 * MIB);
    const first = new SlowRequest();
    const firstBody = bodies.read(first.request, 3 * MIB);
    await first.send(Buffer.alloc(2 * MIB));
    const second = new SlowRequest();
    const secondBody = bodies.read(second.request, 3 * MIB);
    await second.send(Buffer.alloc(2 * MIB));
    assert.equal(await secondBody, "tooMany");
    first.end();
    assert.equal(sizeOf(await firstBody), 2 * MIB);
    const third = new SlowRequest();
    const thirdBody = bodies.read(third.request, 3 * MIB);
    await third.send(Buffer.alloc(3 * MIB));
    third.end();
    assert.equal(sizeOf(await thirdBody), 3 * MIB);
  });

  it("take none of the limit by announcing a length", async () => {
    const { bodies } = setUp(MIB);
    const announced = { "Content-Length": String(MIB) };
    const waiting = Array.from({ length: 10 }, () => new SlowRequest(announced));
    const outcomes = waiting.map(({ request }) => bodies.read(request, MIB));
    assert.equal(sizeOf(await bodies.read(whole("x".repeat(MIB)), MIB)), MIB);
    for (const slow of waiting) slow.end();
    assert.deepEqual((await Promise.all(outcomes)).map(sizeOf), Array(10).fill(0));
  });
});
