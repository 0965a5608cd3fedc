import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { Recorder as Recording } from "../../src/recording/recorder.ts";
import { recordTransport } from "../../src/recording/recorded-transport.ts";
import { transportContract, notification, type Pair, Recorder } from "../contract/transport.ts";
import { makePair } from "../fixtures/http-transport-pair.ts";
import { memory } from "../fixtures/message-queue.ts";
import { MemoryOutlet } from "../fixtures/recording.ts";

function recorded(pair: Pair, outlet = new MemoryOutlet()): Pair {
  const recording = new Recording({
    outlet,
    limit: 1024 * 1024 * 1024,
    redact: (text) => text,
    now: () => performance.now(),
    warn: (text) => assert.fail(text),
  });
  return { ...pair, link: recordTransport(pair.link, recording.server("peer"), recording) };
}

transportContract("recordLink() around memoryPair()", async () => recorded(await memory()));
transportContract("recordLink() around httpLink()", async () => recorded(await makePair("modern")));

describe("a recorded link", () => {
  it("is told by what it has, as the link in it is", async () => {
    const [plain, remote] = [await memory(), await makePair("legacy")];
    for (const pair of [plain, remote]) {
      const { link } = recorded(pair);
      assert.equal(link.adopt === undefined, pair.link.adopt === undefined);
      assert.equal(link.redact === undefined, pair.link.redact === undefined);
      assert.equal(link.hasStreams, pair.link.hasStreams);
      await link.open(new Recorder(), new AbortController().signal);
      await link.close();
      await pair.peer.gone();
    }
  });

  it("is written down from its opening to its end, in the order of what crossed it", async () => {
    const outlet = new MemoryOutlet();
    const { link, peer } = recorded(await memory(), outlet);
    const events = new Recorder();
    await link.open(events, new AbortController().signal);
    link.send(utf8(notification(1)));
    await peer.receive(1);
    peer.send([notification(2)]);
    await events.until("a frame", () => events.frames.length === 1);
    await link.close();
    const lines = await outlet.until((all) => all.some(({ event }) => event === "closed"));
    assert.deepEqual(
      lines.slice(1).map(({ way, message, event, by }) => way ?? event ?? [message, by]),
      ["opening", "sent", "received", "closed"],
    );
    assert.deepEqual(lines[2]?.message, JSON.parse(notification(1)));
    assert.equal(lines.at(-1)?.by, "hub");
  });
});
