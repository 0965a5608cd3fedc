import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { Recorder } from "../../src/recording/recorder.ts";
import { recordTransport } from "../../src/recording/recorded-transport.ts";
import {
  transportContract,
  notification,
  type TransportPair,
  TransportRecorder,
} from "../contract/transport.ts";
import { makeHttpTransportPair } from "../fixtures/http-transport-pair.ts";
import { makeMemoryTransportPair } from "../fixtures/message-queue.ts";
import { MemoryRecordingSink } from "../fixtures/recording.ts";

function recorded(pair: TransportPair, sink = new MemoryRecordingSink()): TransportPair {
  const recorder = new Recorder({
    sink,
    limit: 1024 * 1024 * 1024,
    redact: (text) => text,
    now: () => performance.now(),
    warn: (text) => assert.fail(text),
  });
  const transport = recordTransport(pair.transport, recorder.nextServerRun("peer"), recorder);
  return { ...pair, transport };
}

transportContract("recordLink() around memoryPair()", async () =>
  recorded(await makeMemoryTransportPair()),
);
transportContract("recordLink() around httpLink()", async () =>
  recorded(await makeHttpTransportPair("modern")),
);

describe("a recorded link", () => {
  it("has the kind of the link in it, and streams if that has them", async () => {
    for (const pair of [await makeMemoryTransportPair(), await makeHttpTransportPair("legacy")]) {
      const { transport: link } = recorded(pair);
      assert.equal(link.kind, pair.transport.kind);
      assert.equal(link.hasStreams, pair.transport.hasStreams);
      await link.open(new TransportRecorder(), new AbortController().signal);
      await link.close();
      await pair.peer.allClosed();
    }
  });

  it("is written down from its opening to its end, in the order of what crossed it", async () => {
    const outlet = new MemoryRecordingSink();
    const { transport: link, peer } = recorded(await makeMemoryTransportPair(), outlet);
    const events = new TransportRecorder();
    await link.open(events, new AbortController().signal);
    link.send(utf8(notification(1)));
    await peer.receive(1);
    peer.send([notification(2)]);
    await events.until("a frame", () => events.messages.length === 1);
    await link.close();
    const lines = await outlet.until((all) => all.some(({ event }) => event === "closed"));
    const crossed = lines
      .slice(1)
      .map(({ way, message, event, by }) => way ?? event ?? [message, by]);
    assert.deepEqual(crossed, ["opening", "sent", "received", "closed"]);
    assert.deepEqual(lines[2]?.message, JSON.parse(notification(1)));
    assert.equal(lines.at(-1)?.by, "hub");
  });
});
