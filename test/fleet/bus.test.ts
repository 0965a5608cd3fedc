import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import {
  type AddressInfo,
  createConnection,
  createServer,
  type Server,
  type Socket,
} from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { HubError } from "../../src/base/errors.ts";
import type { Bus, BusEvent, BusMessage } from "../../src/fleet/bus.ts";
import { type BusTarget, connectBus } from "../../src/fleet/nats-bus.ts";
import { makeCertificate } from "../fixtures/certificates.ts";
import { MemoryNats } from "../fixtures/memory-bus.ts";
import { type NatsServer, SKIP_WITHOUT_NATS, startNats } from "../harness/nats.ts";
import { waitFor } from "../harness/wait.ts";

/** Options of tests over a NATS server. */
const REAL = { skip: SKIP_WITHOUT_NATS, timeout: 60_000 };
const NEVER_ABORTED = new AbortController().signal;
const folder = mkdtempSync(join(tmpdir(), "toolmux-nats-"));
const cleanUp: (() => Promise<void>)[] = [];

after(async () => {
  for (const end of cleanUp.reverse()) await end();
  rmSync(folder, { recursive: true, force: true });
});

async function server(name: string, config = ""): Promise<NatsServer> {
  const nats = await startNats(join(folder, name), config);
  cleanUp.push(() => nats.stop());
  return nats;
}

async function connect(url: string, more: Partial<BusTarget> = {}): Promise<Bus> {
  const target: BusTarget = {
    urls: [url],
    name: "test",
    inboxPrefix: "_INBOX_default__",
    login: { kind: "none" },
    tls: undefined,
    ...more,
  };
  const bus = await connectBus(target, NEVER_ABORTED);
  cleanUp.push(() => bus.close());
  return bus;
}

async function code(connecting: Promise<Bus>): Promise<string> {
  try {
    await connecting;
    return "connected";
  } catch (error) {
    return error instanceof HubError ? error.code : String(error);
  }
}

/** A connection to a port of this machine, which is closed at the end. */
function pipeTo(port: number): { readonly stream: Socket } {
  const stream = createConnection(port, "127.0.0.1");
  stream.on("error", () => {});
  cleanUp.push(async () => void stream.destroy());
  return { stream };
}

/** Listens on a free port. @returns undefined if this machine has no such address */
async function listen(listener: Server, host: string): Promise<AddressInfo | undefined> {
  const listening = await new Promise<boolean>((resolve) => {
    listener.once("error", () => resolve(false));
    listener.listen(0, host, () => resolve(true));
  });
  if (!listening) return undefined;
  cleanUp.push(async () => void listener.close());
  return listener.address() as AddressInfo;
}

/** The suite of all buses. @param open opens another connection to one and the same NATS server */
function busContract(skip: string | false, open: () => Promise<Bus>): void {
  /** Collects what arrives on a subject. */
  const collect = (bus: Bus, subject: string, queue?: string): BusMessage[] => {
    const messages: BusMessage[] = [];
    bus.subscribe(subject, (message) => messages.push(message), queue);
    return messages;
  };

  it(
    "delivers messages in order, with their headers, reply and bytes",
    { skip, timeout: 60_000 },
    async () => {
      const [a, b] = [await open(), await open()];
      const got = collect(b, "order.*");
      await b.roundTrip();
      const bytes = Uint8Array.of(0, 255, 13, 10);
      for (let i = 0; i < 50; i++)
        a.publish(`order.${i}`, bytes, {
          reply: `${a.inbox}.x`,
          headers: [
            ["Mcp-Wire", "1"],
            ["N", String(i)],
          ],
        });
      await waitFor("all messages", () => (got.length === 50 ? true : undefined));
      for (const [i, message] of got.entries()) {
        assert.equal(message.subject, `order.${i}`);
        assert.equal(message.reply, `${a.inbox}.x`);
        assert.deepEqual(
          [message.header("Mcp-Wire"), message.header("N"), message.header("None")],
          ["1", String(i), ""],
        );
        assert.deepEqual([...message.data], [...bytes]);
        assert.equal(message.hasNoResponders, false);
      }
    },
  );

  it(
    "gives each message the headers that it was sent with, whatever came before it",
    { skip, timeout: 60_000 },
    async () => {
      const [a, b] = [await open(), await open()];
      const got = collect(b, "own.>");
      await b.roundTrip();
      const like = [["N", "like"]] as const;
      // More than are remembered, several times, of all lengths, on subjects whose letters take several bytes.
      const sent = Array.from({ length: 3000 }, (_, i) => {
        const [subject, reply] = [
          `own.${i % 3 === 0 ? "ü€🧶" : "x"}`,
          i % 2 === 0 ? "" : "réply.NATS/1.0",
        ];
        const value = `${i % 1100}${"v".repeat(i % 7 === 0 ? 600 : i % 5)}`;
        const headers = i % 11 === 0 ? undefined : i % 13 === 0 ? like : ([["N", value]] as const);
        return { subject, reply, headers };
      });
      for (const { subject, reply, headers } of sent)
        a.publish(subject, utf8("{}"), {
          ...(reply !== "" && { reply }),
          ...(headers !== undefined && { headers }),
        });
      await waitFor("all messages", () => got.length === sent.length || undefined);
      assert.deepEqual(
        got.map((message) => [message.subject, message.reply, message.header("N")]),
        sent.map(({ subject, reply, headers }) => [subject, reply, headers?.[0][1] ?? ""]),
      );
    },
  );

  it("gives each message to one member of a group only", { skip, timeout: 60_000 }, async () => {
    const [a, b, c] = [await open(), await open(), await open()];
    const counts = [collect(b, "work.>", "q"), collect(c, "work.>", "q")];
    await Promise.all([b.roundTrip(), c.roundTrip()]);
    for (let i = 0; i < 100; i++) a.publish("work.a.b", utf8(String(i)));
    const total = (): number => counts.reduce((sum, { length }) => sum + length, 0);
    await waitFor("all messages", () => (total() === 100 ? true : undefined));
    await a.roundTrip();
    assert.equal(total(), 100);
    assert.ok(counts.every(({ length }) => length > 0));
  });

  it(
    "tells whoever wants an answer that nobody has subscribed, and only him",
    { skip, timeout: 60_000 },
    async () => {
      const [a, b] = [await open(), await open()];
      const own = collect(a, `${a.inbox}.>`);
      const others = collect(b, `${b.inbox}.>`);
      await Promise.all([a.roundTrip(), b.roundTrip()]);
      a.publish("nobody.there", utf8("x"), { reply: `${a.inbox}.7` });
      await waitFor("the answer", () => (own.length > 0 ? true : undefined));
      assert.deepEqual([own[0]?.subject, own[0]?.hasNoResponders], [`${a.inbox}.7`, true]);
      assert.equal(others.length, 0);
      assert.notEqual(a.inbox, b.inbox);
    },
  );

  it("ends a subscription", { skip, timeout: 60_000 }, async () => {
    const [a, b] = [await open(), await open()];
    const got: BusMessage[] = [];
    const end = b.subscribe("end.here", (message) => got.push(message));
    await b.roundTrip();
    end();
    await b.roundTrip();
    a.publish("end.here", utf8("x"));
    await a.roundTrip();
    await b.roundTrip();
    assert.equal(got.length, 0);
  });
}

describe("a bus in memory", () => {
  const nats = new MemoryNats();
  busContract(false, () => Promise.resolve(nats.connect()));
});

describe("a bus on a NATS server", () => {
  let shared: Promise<NatsServer> | undefined;
  busContract(SKIP_WITHOUT_NATS, async () => connect((await (shared ??= server("shared"))).url));

  it("goes on after a receiver has failed, and tells of it", REAL, async () => {
    const bus = await connect((await (shared ??= server("shared"))).url);
    const events: BusEvent[] = [];
    bus.onEvent((event) => events.push(event));
    let count = 0;
    bus.subscribe("fault", () => {
      count++;
      throw new Error("a defect");
    });
    bus.publish("fault", utf8("1"));
    bus.publish("fault", utf8("2"));
    await waitFor("both messages", () => (count === 2 ? true : undefined));
    assert.deepEqual(
      events.map(({ kind }) => kind),
      ["fault", "fault"],
    );
  });

  it(
    "connects again when NATS was restarted, with its subscriptions and what was sent meanwhile",
    REAL,
    async () => {
      const nats = await server("restart");
      const bus = await connect(nats.url);
      const events: string[] = [];
      bus.onEvent(({ kind }) => events.push(kind));
      const got: BusMessage[] = [];
      bus.subscribe("kept", (message) => got.push(message));
      await bus.roundTrip();
      await nats.restart();
      await waitFor("the loss", () => (events.includes("disconnected") ? true : undefined), 15_000);
      bus.publish("kept", utf8("x"));
      await waitFor("the message", () => (got.length === 1 ? true : undefined), 15_000);
      assert.deepEqual(events, ["disconnected", "reconnected"]);
      assert.ok(bus.isConnected);
    },
  );

  it(
    "tells which subjects NATS does not permit, and whether NATS asks for credentials",
    REAL,
    async () => {
      const config = `authorization { users: [
      { user: u1, password: p1, permissions: { publish: ["mcp.v1.req.acme.u1.git.tools.call.log"], subscribe: ["_INBOX_acme_u1.>"] } }
    ] }`;
      const nats = await server("users", config);
      assert.equal(await code(connect(nats.url)), "unauthorized");
      const login = { kind: "password", user: "u1", password: "wrong" } as const;
      assert.equal(await code(connect(nats.url, { login })), "unauthorized");
      const bus = await connect(nats.url, {
        login: { ...login, password: "p1" },
        inboxPrefix: "_INBOX_acme_u1",
      });
      assert.equal(bus.isAuthenticated, true);
      const events: BusEvent[] = [];
      bus.onEvent((event) => events.push(event));
      bus.publish("mcp.v1.req.acme.u1.git.tools.call.delete", utf8("x"));
      bus.subscribe("mcp.v1.>", () => {});
      await waitFor("both denials", () => (events.length >= 2 ? true : undefined));
      assert.deepEqual(events, [
        {
          kind: "denied",
          operation: "publish",
          subject: "mcp.v1.req.acme.u1.git.tools.call.delete",
        },
        { kind: "denied", operation: "subscribe", subject: "mcp.v1.>" },
      ]);
    },
  );

  it("trusts the certificates of its own authority, and no others", REAL, async () => {
    const authority = makeCertificate({ name: "ca", isAuthority: true });
    const { cert, key } = makeCertificate({
      name: "nats",
      hosts: ["localhost", "127.0.0.1"],
      issuer: authority,
    });
    const files = { cert: join(folder, "cert.pem"), key: join(folder, "key.pem") };
    writeFileSync(files.cert, cert);
    writeFileSync(files.key, key);
    const nats = await server(
      "tls",
      `tls { cert_file: ${JSON.stringify(files.cert)}, key_file: ${JSON.stringify(files.key)} }`,
    );
    const url = `tls://localhost:${nats.port}`;
    const bus = await connect(url, { tls: { ca: authority.cert } });
    assert.ok((await bus.roundTrip()) >= 0);
    const stranger = makeCertificate({ name: "other", isAuthority: true });
    assert.equal(await code(connect(url, { tls: { ca: stranger.cert } })), "tlsFailed");
  });

  it(
    "is encrypted if NATS wants that, whatever its URL says, also when it was restarted",
    REAL,
    async () => {
      const { cert, key } = makeCertificate({ name: "nats", hosts: ["localhost", "127.0.0.1"] });
      const files = { cert: join(folder, "own-cert.pem"), key: join(folder, "own-key.pem") };
      writeFileSync(files.cert, cert);
      writeFileSync(files.key, key);
      const nats = await server(
        "tls-later",
        `tls { cert_file: ${JSON.stringify(files.cert)}, key_file: ${JSON.stringify(files.key)} }`,
      );
      assert.equal(await code(connect(`nats://localhost:${nats.port}`)), "tlsFailed");
      const url = `tls://localhost:${nats.port}`;
      const bus = await connect(url, { tls: { ca: cert } });
      // A connection of another kind does not change how this one is made again.
      await connect((await (shared ??= server("shared"))).url);
      const events: string[] = [];
      bus.onEvent(({ kind }) => events.push(kind));
      await nats.restart();
      await waitFor("the connection", () => events.includes("reconnected") || undefined, 15_000);
      assert.ok((await bus.roundTrip()) >= 0);
    },
  );

  it("finds NATS by the name of its machine, and by an address of IPv6", REAL, async () => {
    const { port } = await (shared ??= server("shared"));
    const byName = await connect(`nats://localhost:${port}`);
    assert.equal(byName.server, `localhost:${port}`);
    const proxy = createServer((socket) => {
      socket.on("error", () => {});
      const { stream } = pipeTo(port);
      socket.pipe(stream).pipe(socket);
    });
    const address = await listen(proxy, "::1");
    if (address === undefined) return;
    const byAddress = await connect(`nats://[::1]:${address.port}`);
    assert.ok((await byAddress.roundTrip()) >= 0);
  });

  it("sends more than a NATS server that stands still takes when that goes on", REAL, async () => {
    const nats = await server("still");
    const [a, b] = [await connect(nats.url), await connect(nats.url)];
    const sizes: number[] = [];
    b.subscribe("large.*", ({ data }) => sizes.push(data.length));
    await b.roundTrip();
    nats.freeze();
    const size = 500_000;
    for (let i = 0; i < 40; i++) {
      a.publish(`large.${i}`, new Uint8Array(size));
      a.publish(`large.small${i}`, utf8("x"));
      // Each is sent on its own, so that some wait for others.
      await new Promise(setImmediate);
    }
    nats.thaw();
    await waitFor("all messages", () => sizes.length === 80 || undefined, 30_000);
    assert.deepEqual(sizes, Array.from({ length: 40 }, () => [size, 1]).flat());
  });

  it("says that what listens is no NATS server", REAL, async () => {
    const answers = ["", "HTTP/1.1 400 Bad Request\r\n\r\n", "INFO {\r\n"];
    for (const answer of answers) {
      const stranger = createServer((socket) => {
        socket.on("error", () => {});
        socket.end(answer);
      });
      const address = await listen(stranger, "127.0.0.1");
      assert.equal(await code(connect(`nats://127.0.0.1:${address?.port}`)), "unreachable", answer);
    }
  });

  it("connects to a server whose first line comes in pieces", REAL, async () => {
    const { port } = await (shared ??= server("shared"));
    const proxy = createServer((socket) => {
      socket.on("error", () => {});
      const { stream } = pipeTo(port);
      socket.pipe(stream);
      let count = 0;
      stream.on("data", (chunk: Buffer) => {
        for (const byte of chunk) {
          // Only the first bytes: a write for each of them takes long.
          socket.write(Uint8Array.of(byte));
          if (++count === 20) break;
        }
        socket.write(chunk.subarray(20));
        stream.removeAllListeners("data");
        stream.pipe(socket);
      });
    });
    proxy.on("connection", (socket) => socket.setNoDelay(true));
    const address = await listen(proxy, "127.0.0.1");
    const bus = await connect(`nats://127.0.0.1:${address?.port}`);
    assert.ok((await bus.roundTrip()) >= 0);
  });

  it("says that nobody listens", REAL, async () => {
    const nats = await server("gone");
    await nats.stop();
    assert.equal(await code(connect(nats.url)), "unreachable");
  });
});
