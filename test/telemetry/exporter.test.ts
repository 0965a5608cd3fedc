import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Collector, type PostOutcome } from "../../src/telemetry/collector.ts";
import { SpanExporter } from "../../src/telemetry/exporter.ts";
import type { EndedSpan, Span } from "../../src/telemetry/span.ts";
import { MAX_WAITING_SPANS } from "../../src/telemetry/span-ring.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";

const LATER: PostOutcome = { kind: "later", after: undefined, reason: "nobody is there" };

function spanOf(number: number, contentSize = 0): EndedSpan {
  return { contentSize, toSpan: () => ({ name: String(number) }) as Span };
}

/** An exporter whose posts are kept, by the names of their spans. */
function setUp({ bytesPerSpan = 10 } = {}) {
  const clock = new VirtualClock();
  const posts: string[][] = [];
  const warnings: string[] = [];
  const given: { outcome: PostOutcome | Promise<PostOutcome> } = { outcome: { kind: "taken" } };
  const names = new Map<Uint8Array, string[]>();
  const exporter = new SpanExporter({
    clock,
    interval: 5000,
    random: () => 0,
    warn: (text) => warnings.push(text),
    encode: (spans) => {
      const body = new Uint8Array(spans.length * bytesPerSpan);
      names.set(
        body,
        spans.map(({ name }) => name),
      );
      return Promise.resolve(body);
    },
    collector: {
      post: async (body) => {
        posts.push(names.get(body) ?? []);
        return given.outcome;
      },
    },
  });
  const add = (count: number, from = 0): void => {
    for (let i = 0; i < count; i++) exporter.add(spanOf(from + i));
  };
  return { clock, posts, warnings, given, exporter, add };
}

describe("the exporter of spans", () => {
  it("posts what waits after the interval, or at once when a batch is full", async () => {
    const { clock, posts, add } = setUp();
    add(3);
    await clock.advanceAsync(4999);
    assert.equal(posts.length, 0);
    await clock.advanceAsync(1);
    assert.deepEqual(posts, [["0", "1", "2"]]);
    add(600);
    await clock.advanceAsync(0);
    assert.deepEqual(
      posts.map(({ length }) => length),
      [3, 512],
    );
    await clock.advanceAsync(5000);
    assert.deepEqual(
      posts.map(({ length }) => length),
      [3, 512, 88],
    );
  });

  it("has one post at a time", async () => {
    const { clock, posts, given, add } = setUp();
    const slow = Promise.withResolvers<PostOutcome>();
    given.outcome = slow.promise;
    add(2000);
    await clock.advanceAsync(60_000);
    assert.equal(posts.length, 1);
    given.outcome = { kind: "taken" };
    slow.resolve({ kind: "taken" });
    await clock.advanceAsync(5000);
    assert.deepEqual(
      posts.map(({ length }) => length),
      [512, 512, 512, 464],
    );
  });

  it("repeats a post with longer and longer waits, or the one that the collector asks for; it warns once", async () => {
    const { clock, posts, warnings, given, add } = setUp();
    given.outcome = LATER;
    add(1);
    await clock.advanceAsync(5000);
    const times = [1000, 2000, 4000, 8000];
    for (const [done, wait] of times.entries()) {
      await clock.advanceAsync(wait - 1);
      assert.equal(posts.length, done + 1);
      await clock.advanceAsync(1);
      assert.equal(posts.length, done + 2);
    }
    given.outcome = { ...LATER, after: 120_000 };
    await clock.advanceAsync(16_000);
    assert.equal(posts.length, 6);
    await clock.advanceAsync(119_999);
    assert.equal(posts.length, 6);
    given.outcome = { kind: "taken" };
    await clock.advanceAsync(1);
    assert.equal(posts.length, 7);
    assert.ok(posts.every((names) => names.length === 1 && names[0] === "0"));
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? "", /nobody is there/);
    // Trouble that comes back is told again.
    given.outcome = LATER;
    add(1);
    await clock.advanceAsync(5000);
    assert.equal(warnings.length, 2);
  });

  it("drops what the collector refuses, and warns once", async () => {
    const { clock, posts, warnings, given, add } = setUp();
    given.outcome = { kind: "refused", reason: "status 400: no such field" };
    for (let i = 0; i < 3; i++) {
      add(1, i);
      await clock.advanceAsync(5000);
    }
    assert.deepEqual(posts, [["0"], ["1"], ["2"]]);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? "", /no such field/);
  });

  it("keeps the oldest spans while it cannot send, counts the others, and warns once", async () => {
    const { clock, posts, warnings, given, exporter, add } = setUp();
    given.outcome = LATER;
    add(1);
    await clock.advanceAsync(5000);
    add(MAX_WAITING_SPANS + 100, 1);
    assert.deepEqual([exporter.waiting, exporter.dropped], [MAX_WAITING_SPANS, 100]);
    assert.equal(warnings.length, 2);
    given.outcome = { kind: "taken" };
    await clock.advanceAsync(60_000);
    const names = posts.slice(1).flat();
    assert.equal(names.length, MAX_WAITING_SPANS + 1);
    assert.equal(names.at(-1), String(MAX_WAITING_SPANS));
    assert.match(warnings[2] ?? "", / 100 spans were dropped/);
  });

  it("warns once of a collector that is slower than its spans, and in the end of how many it has not got", async () => {
    const { clock, posts, warnings, given, exporter, add } = setUp();
    let release = (): void => {};
    const slowly = (): void => {
      const slow = Promise.withResolvers<PostOutcome>();
      given.outcome = slow.promise;
      release = () => slow.resolve({ kind: "taken" });
    };
    slowly();
    add(MAX_WAITING_SPANS + 1000);
    await clock.advanceAsync(0);
    for (let round = 0; round < 5; round++) {
      add(1000);
      const done = release;
      slowly();
      done();
      await clock.advanceAsync(0);
    }
    assert.equal(warnings.length, 1);
    given.outcome = { kind: "taken" };
    release();
    await clock.advanceAsync(60_000);
    assert.equal(exporter.waiting, 0);
    assert.equal(posts.flat().length + exporter.dropped, MAX_WAITING_SPANS + 6000);
    assert.equal(warnings.length, 2);
    assert.match(warnings[1] ?? "", new RegExp(` ${exporter.dropped} spans were dropped`));
  });

  it("sends large arguments and results before there are too many of them", async () => {
    const { clock, posts, exporter } = setUp();
    for (let round = 0; round < 20; round++) {
      for (let i = 0; i < 100; i++) exporter.add(spanOf(i, 8192));
      await clock.advanceAsync(1);
    }
    assert.equal(exporter.dropped, 0);
    assert.ok(posts.flat().length > 1900);
  });

  it("holds a limited size of arguments and results", () => {
    const { exporter } = setUp();
    for (let i = 0; i < 2000; i++) exporter.add(spanOf(i, 8192));
    assert.equal(exporter.waiting, 512);
    exporter.add(spanOf(1));
    assert.equal(exporter.waiting, 513);
  });

  it("divides a batch whose body would be larger than 1 MiB", async () => {
    const { clock, posts, add } = setUp({ bytesPerSpan: 6000 });
    add(512);
    await clock.advanceAsync(5000);
    assert.equal(posts.flat().length, 512);
    assert.ok(posts.every(({ length }) => length * 6000 <= 1024 * 1024));
  });

  it("posts what waits when it is closed, and gives up at the limit", async () => {
    const quick = setUp();
    quick.add(700);
    await quick.exporter.close(500);
    assert.equal(quick.posts.flat().length, 700);
    const slow = setUp();
    slow.given.outcome = new Promise(() => {});
    slow.add(1);
    let isClosed = false;
    void slow.exporter.close(500).then(() => (isClosed = true));
    await slow.clock.advanceAsync(499);
    assert.equal(isClosed, false);
    await slow.clock.advanceAsync(1);
    await turn();
    assert.equal(isClosed, true);
    slow.add(5);
    await slow.clock.advanceAsync(60_000);
    assert.equal(slow.posts.length, 1);
  });

  it("does not repeat a post when it is closed while the collector is away", async () => {
    const { clock, posts, given, exporter, add } = setUp();
    given.outcome = LATER;
    add(2);
    await clock.advanceAsync(5000);
    await exporter.close(500);
    assert.equal(posts.length, 2);
  });
});

describe("a post to a collector", () => {
  const post = async (answer: () => Promise<Response>): Promise<PostOutcome> => {
    const collector = new Collector({
      url: "http://127.0.0.1:1/v1/traces",
      headers: { authorization: "Bearer canary" },
      protocol: "http/json",
      fetch: answer,
      clock: new VirtualClock(),
      redact: (text) => text.replaceAll("canary", "[redacted]"),
    });
    return collector.post(new Uint8Array(1), new AbortController().signal);
  };
  const status = (code: number, text = "", headers = {}): Promise<PostOutcome> =>
    post(() => Promise.resolve(new Response(text, { status: code, headers })));

  it("may be repeated after 429, 502, 503 and 504, and after no answer, with the time of Retry-After", async () => {
    for (const code of [429, 502, 503, 504]) assert.equal((await status(code)).kind, "later");
    const wait = await status(503, "", { "Retry-After": "7" });
    assert.equal(wait.kind === "later" && wait.after, 7000);
    const date = new Date(Date.now() + 60_000).toUTCString();
    const until = await status(429, "", { "Retry-After": date });
    assert.ok(
      until.kind === "later" && (until.after ?? 0) > 50_000 && (until.after ?? 0) <= 60_000,
    );
    const lost = await post(() => Promise.reject(new Error("connection refused")));
    assert.equal(lost.kind, "later");
  });

  it("is refused by all other statuses, with the collector's text in one line, without secrets", async () => {
    for (const code of [301, 400, 401, 404, 413, 500, 501])
      assert.equal((await status(code)).kind, "refused");
    const told = await status(400, `bad\n\u001b[31m field of canary ${"x".repeat(1000)}`);
    assert.ok(told.kind === "refused");
    assert.match(told.reason, /400: bad \[31m field of \[redacted\] x+$/);
    assert.ok(told.reason.length < 300);
  });

  it("is refused by its status when the text that explains it breaks off", async () => {
    const broken = new ReadableStream({ pull: (stream) => stream.error(new Error("too large")) });
    const outcome = await post(() => Promise.resolve(new Response(broken, { status: 400 })));
    assert.equal(outcome.kind, "refused");
  });

  it("is taken by a status of success, whatever the answer says", async () => {
    assert.equal((await status(200, "garbage{")).kind, "taken");
    assert.equal((await status(202)).kind, "taken");
  });

  it("has the user and password of its URL, unless a header has others, and each header once", async () => {
    const sentTo = async (url: string, headers: Record<string, string>): Promise<Headers> => {
      let sent = new Headers();
      const collector = new Collector({
        url,
        headers,
        protocol: "http/json",
        fetch: (_, init) => {
          sent = new Headers(init?.headers);
          return Promise.resolve(new Response());
        },
        clock: new VirtualClock(),
        redact: (text) => text,
      });
      await collector.post(new Uint8Array(1), new AbortController().signal);
      return sent;
    };
    const plain = await sentTo("http://me:p%40ss@127.0.0.1:1/", { "content-type": "x/y" });
    assert.equal(plain.get("Authorization"), `Basic ${btoa("me:p@ss")}`);
    assert.equal(plain.get("Content-Type"), "application/json");
    const other = await sentTo("http://me:x@127.0.0.1:1/", { authorization: "Bearer b" });
    assert.equal(other.get("Authorization"), "Bearer b");
    assert.equal((await sentTo("http://127.0.0.1:1/", {})).get("Authorization"), null);
  });

  it("gives up after 10 s", async () => {
    const clock = new VirtualClock();
    const collector = new Collector({
      url: "http://127.0.0.1:1/v1/traces",
      headers: {},
      protocol: "http/protobuf",
      fetch: (_, init) =>
        new Promise((_resolve, reject) => {
          init?.signal?.addEventListener("abort", () => reject(init.signal?.reason as Error));
        }),
      clock,
      redact: (text) => text,
    });
    const outcome = collector.post(new Uint8Array(1), new AbortController().signal);
    await clock.advanceAsync(10_000);
    assert.equal((await outcome).kind, "later");
  });
});
