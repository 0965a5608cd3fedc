import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { DashboardHubs } from "../../src/dashboard/hubs.ts";
import { HubQuestions } from "../../src/dashboard/questions.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";
import { poll } from "../harness/wait.ts";

const LIMIT = 10_000;

/** Hubs with approvals, whose streams of events a test writes. */
class FakeHubs implements DashboardHubs {
  readonly approvals = new Map<string, readonly object[]>();
  readonly streams = new Map<string, ReadableStreamDefaultController<Uint8Array>>();
  readonly asked: string[] = [];

  list(): ReturnType<DashboardHubs["list"]> {
    const facts = { name: "toolmux", version: "0", cwd: "/", manifest: [], endpoints: [] };
    const hubs = [...this.approvals.keys()].map((id, at) => ({
      ...facts,
      id,
      pid: at,
      startedAt: at,
    }));
    return Promise.resolve(hubs);
  }

  forward(
    id: string,
    { path, signal }: Parameters<DashboardHubs["forward"]>[1],
  ): Promise<Response> {
    this.asked.push(`${id} ${path}`);
    if (path === "/v1/approvals")
      return Promise.resolve(Response.json({ approvals: this.approvals.get(id) }));
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.streams.set(id, controller);
        signal.addEventListener("abort", () => {
          this.streams.delete(id);
          controller.error(signal.reason);
        });
      },
    });
    return Promise.resolve(new Response(body));
  }

  send(id: string, text: string): void {
    this.streams.get(id)?.enqueue(new TextEncoder().encode(text));
  }
}

function until(what: string, test: () => boolean): Promise<unknown> {
  return poll(
    LIMIT,
    () => what,
    () => test() || undefined,
  );
}

describe("the questions of all hubs", () => {
  it("are known as long as a page is open, and all hubs know that somebody watches", async () => {
    const hubs = new FakeHubs();
    hubs.approvals.set("a", []).set("b", [{ id: "b1" }]);
    const clock = new VirtualClock();
    const questions = new HubQuestions(hubs, clock);
    const shown = (): string => JSON.stringify(questions.list());
    const isShown = (expected: object): Promise<unknown> =>
      until(JSON.stringify(expected), () => shown() === JSON.stringify(expected));

    const close = questions.open();
    const closeOther = questions.open();
    await isShown([
      { id: "a", approvals: [] },
      { id: "b", approvals: [{ id: "b1" }] },
    ]);
    const watching = hubs.asked.filter((line) => line.includes("/v1/events?watch=approvals"));
    assert.equal(watching.length, 2);

    hubs.approvals.set("a", [{ id: "a1" }]);
    hubs.send("a", ": keep-alive\n\nda");
    hubs.send("a", "ta: {}\n\n");
    await isShown([
      { id: "a", approvals: [{ id: "a1" }] },
      { id: "b", approvals: [{ id: "b1" }] },
    ]);

    hubs.approvals.delete("b");
    hubs.approvals.set("c", [{ id: "c1" }]);
    hubs.streams.get("b")?.close();
    await isShown([{ id: "a", approvals: [{ id: "a1" }] }]);
    await clock.advanceAsync(3000);
    await isShown([
      { id: "a", approvals: [{ id: "a1" }] },
      { id: "c", approvals: [{ id: "c1" }] },
    ]);

    close();
    assert.equal(questions.list().length, 2);
    closeOther();
    assert.deepEqual(questions.list(), []);
    await until("the end of the streams", () => !hubs.streams.has("a") && !hubs.streams.has("c"));
    assert.deepEqual(clock.pendingDelays, []);
  });

  it("are those of the page while there is one hub", async () => {
    const hubs = new FakeHubs();
    hubs.approvals.set("a", [{ id: "a1" }]);
    const clock = new VirtualClock();
    const questions = new HubQuestions(hubs, clock);
    const close = questions.open();
    await clock.advanceAsync(7000);
    assert.deepEqual(hubs.asked, []);
    close();
  });
});
