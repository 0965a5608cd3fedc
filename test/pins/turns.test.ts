import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { setImmediate } from "node:timers";
import { Alerts } from "../../src/base/alerts.ts";
import { utf8 } from "../../src/base/bytes.ts";
import { EventBus } from "../../src/base/hub-events.ts";
import { conforms } from "../../src/catalog/conformance.ts";
import {
  EMPTY_LISTING,
  MAX_ITEMS,
  readPage,
  type ServerListing,
} from "../../src/catalog/listing.ts";
import type { RunnableServer } from "../../src/manifest/manifest.ts";
import { Pins } from "../../src/pins/pins.ts";
import { memoryBaselines } from "../../src/pins/store.ts";

const TOOLS = 1500;

function listingOf(server: string, tools: number, description: string): ServerListing {
  const entries = Array.from({ length: tools }, (_, at) => ({
    name: `${server}_${at}`,
    description,
    inputSchema: { type: "object", properties: { path: { type: "string" } } },
  }));
  const bytes = utf8(JSON.stringify({ tools: entries }));
  const page = readPage(bytes, { start: 0, end: bytes.length }, "tools", MAX_ITEMS, conforms);
  return { ...EMPTY_LISTING, tools: page?.items ?? [] };
}

function makePins(): Pins {
  const store = memoryBaselines();
  return new Pins({
    bus: new EventBus(),
    alerts: new Alerts(new EventBus()),
    sha256: (data) => createHash("sha256").update(data).digest(),
    openStore: () => Promise.resolve(store),
    redact: (text) => text,
    identityOf: ({ spec }) => Promise.resolve(spec.name),
  });
}

const serverOf = (name: string) => ({
  spec: { name, kind: "stdio", pin: "block" } as RunnableServer,
  origin: undefined,
  connection: name,
  peer: undefined,
});

/** The result of some work, and the number of turns of the event loop that it took. */
async function inTurns<Result>(
  work: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly turns: number }> {
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const result = await work();
  isOver = true;
  return { result, turns };
}

/** All of this work takes many times as long as one turn is allowed to. */
const MIN_TURNS = 3;

describe("what a server with thousands of tools lists", () => {
  it("is compared, told, described and accepted while other work goes on", async () => {
    const pins = makePins();
    const server = serverOf("s");
    const never = (): boolean => false;
    const first = await inTurns(() => pins.review(server, listingOf("s", TOOLS, "One."), never));
    assert.ok(first.turns >= MIN_TURNS, `the first review took ${first.turns} turns`);
    const changed = await inTurns(() => pins.review(server, listingOf("s", TOOLS, "Two."), never));
    assert.equal(changed.result.pending.size, TOOLS);
    assert.ok(changed.turns >= MIN_TURNS, `the review took ${changed.turns} turns`);
    const review = changed.result;
    await pins.report(server, review);
    const described = await inTurns(() => pins.describe(server, review));
    assert.equal(described.result.length, TOOLS);
    assert.ok(described.turns >= MIN_TURNS, `the description took ${described.turns} turns`);
    const accepted = await inTurns(() => pins.accept([{ server, review }], () => true));
    assert.equal(accepted.result.length, TOOLS);
    assert.ok(accepted.turns >= MIN_TURNS, `the acceptance took ${accepted.turns} turns`);
  });

  it("is compared while other work goes on if hundreds of servers share the tools", async () => {
    const pins = makePins();
    const servers = Array.from({ length: TOOLS / 10 }, (_, at) => `s${at}`);
    const listings = servers.map((name) => listingOf(name, 10, "One."));
    const { result, turns } = await inTurns(() =>
      Promise.all(
        listings.map((listing, at) =>
          pins.review(serverOf(servers[at] ?? ""), listing, () => false),
        ),
      ),
    );
    assert.ok(result.every(({ fault, pending }) => fault === undefined && pending.size === 0));
    assert.ok(turns >= MIN_TURNS, `the reviews took ${turns} turns`);
  });
});
