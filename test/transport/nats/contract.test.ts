import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { connectBus } from "../../../src/fleet/nats-bus.ts";
import { transportContract } from "../../contract/transport.ts";
import { MemoryNats } from "../../fixtures/memory-bus.ts";
import { makeNatsTransportPair } from "../../fixtures/nats-transport-pair.ts";
import { type NatsServer, SKIP_WITHOUT_NATS, startNats } from "../../harness/nats.ts";

const INBOX_PREFIX = "_INBOX_default__";
/** The largest message of the suite has 3 MB. */
const MAX_PAYLOAD = 8 * 1024 * 1024;

transportContract("NatsTransport over NATS in memory", () => {
  const nats = new MemoryNats();
  nats.maxPayload = MAX_PAYLOAD;
  return makeNatsTransportPair(() => {
    const bus = nats.connect(INBOX_PREFIX);
    const end = (): void => {
      bus.kill();
      bus.emit({ kind: "closed", reason: "" });
    };
    return Promise.resolve({ bus, end });
  });
});

describe("over a NATS server", { skip: SKIP_WITHOUT_NATS }, () => {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-nats-contract-"));
  let nats: NatsServer | undefined;

  before(async () => {
    nats = await startNats(folder, `max_payload: ${MAX_PAYLOAD}`);
  });

  after(async () => {
    await nats?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  transportContract("NatsTransport", () =>
    makeNatsTransportPair(async () => {
      assert.ok(nats !== undefined);
      const bus = await connectBus(
        {
          urls: [nats.url],
          name: "test",
          inboxPrefix: INBOX_PREFIX,
          login: { kind: "none" },
          tls: undefined,
        },
        new AbortController().signal,
      );
      return { bus, end: () => void bus.close() };
    }),
  );
});
