import { Buffer } from "node:buffer";
import { SessionTransport } from "../../../src/frontend/http/session.ts";
import { systemClock } from "../../../src/base/clock.ts";
import { Deadlines } from "../../../src/router/deadlines.ts";
import { parseMessage } from "../../../src/jsonrpc/parse.ts";
import { ALL_SERVERS } from "../../../src/upstream/profile.ts";
import { transportContract, type TransportPair, type Peer } from "../../contract/transport.ts";
import { EventStreamReader } from "../../fixtures/http-client.ts";
import { waitFor } from "../../harness/wait.ts";

/** A session whose client POSTs each message by itself, and GETs the stream of what comes. */
function session(): Promise<TransportPair> {
  const { promise: gone, resolve: ended } = Promise.withResolvers<void>();
  const link = new SessionTransport({
    clock: systemClock,
    deadlines: new Deadlines(),
    scope: { principal: undefined, limit: ALL_SERVERS, subset: ALL_SERVERS, mode: undefined },
    onAnswered() {},
    onEnd: ended,
  });
  const received: string[] = [];
  const posts = new Set<Promise<unknown>>();
  let unsent = 0;
  const read = async (): Promise<void> => {
    const events = new EventStreamReader(link.openEventStream(undefined));
    for (let event = await events.next(); event !== undefined; event = await events.next()) {
      received.push(event.data);
    }
  };
  void read();
  const post = async (bytes: Buffer): Promise<void> => {
    unsent += bytes.length;
    await link.receive(parseMessage(bytes), "either");
    unsent -= bytes.length;
  };
  const peer: Peer = {
    send(texts) {
      for (const text of texts) {
        const posted: Promise<unknown> = post(Buffer.from(text)).finally(() =>
          posts.delete(posted),
        );
        posts.add(posted);
      }
    },
    async receive(count) {
      await waitFor("messages", () => received.length >= count || undefined, 20_000);
      return received.splice(0, count);
    },
    get queuedCount() {
      return received.length;
    },
    unreadBytes: () => new Promise((resolve) => setImmediate(() => resolve(unsent))),
    stopReading() {},
    startReading() {},
    end: () => void Promise.all(posts).then(() => link.close()),
    allClosed: () => gone,
  };
  return Promise.resolve({ transport: link, peer, maxMessage: undefined, hasNoBackpressure: true });
}

transportContract("a session over HTTP", session);
