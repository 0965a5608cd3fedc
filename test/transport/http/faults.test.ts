import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import type { HttpTarget } from "../../../src/transport/http/target.ts";
import { RawServer, type Visit } from "../../fixtures/raw-http-server.ts";
import {
  answerJson,
  EVENTS,
  governed,
  idOf,
  JSON_TYPE,
  methodOf,
  type Outcome,
  resultOf,
  Witness,
} from "../../fixtures/http-transport-recorder.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";

/** Runs with a server of the legacy era that was met, and looks afterwards that nothing is left. */
async function facing(
  other: (visit: Visit) => void,
  run: (witness: Witness, server: RawServer) => Promise<void>,
  more: Partial<HttpTarget> = {},
): Promise<void> {
  const server = await RawServer.start(governed(other));
  const witness = await Witness.met(server, more);
  try {
    await run(witness, server);
  } finally {
    await witness.link.close();
    await server.gone();
  }
  assert.equal(witness.causes.length, 1, "the end was told once");
}

function codeOf(outcome: Outcome): string {
  return outcome instanceof HubError ? outcome.code : outcome;
}

function text(outcome: Outcome): string {
  return outcome instanceof HubError ? outcome.message : outcome;
}

describe("over HTTP", () => {
  it("a connection that is reset fails its own call at once, and no other", async () => {
    const held: Visit[] = [];
    await facing(
      (visit) => {
        if (methodOf(visit) === "hold") held.push(visit);
        else if (methodOf(visit) === "reset") visit.socket.resetAndDestroy();
        else answerJson(visit);
      },
      async (witness) => {
        const other = witness.ask("hold");
        assert.equal(codeOf(await witness.ask("reset").outcome), "answerLost");
        assert.match(text(await witness.ask("more").outcome), /"ok"/);
        held.forEach(answerJson);
        assert.match(text(await other.outcome), /"ok"/);
        assert.equal(witness.has(/closed/), false);
      },
    );
  });

  it("half a body is no answer", async () => {
    await facing(
      (visit) => {
        const body = resultOf(visit);
        visit.write(
          `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n${body}`,
        );
        visit.socket.end();
      },
      async (witness) => assert.equal(codeOf(await witness.ask("a").outcome), "answerLost"),
    );
  });

  for (const kind of ["application/json", "text/event-stream"]) {
    it(`an answer in ${kind} may come byte by byte`, async () => {
      await facing(
        (visit) => {
          const result = resultOf(visit, "ü".repeat(20));
          const body =
            kind === "application/json" ? result : `: hi\r\nid: 1\r\ndata: ${result}\r\n\r\n`;
          const bytes = Buffer.from(
            `HTTP/1.1 200 OK\r\nContent-Type: ${kind}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
          );
          let at = 0;
          const step = (): void => {
            visit.socket.write(bytes.subarray(at, ++at));
            if (at < bytes.length) setImmediate(step);
          };
          step();
        },
        async (witness) => assert.match(text(await witness.ask("a").outcome), /ü{20}/),
      );
    });
  }

  it("chunks may be cut anywhere", async () => {
    let cut = 1;
    await facing(
      (visit) => {
        const stream = visit.begin(200, EVENTS);
        const noted = `data: {"jsonrpc":"2.0",\ndata: "method":"n"}\n\n`;
        stream.write(`${noted}data: ${resultOf(visit)}\n\n`, cut++);
        stream.end();
      },
      async (witness) => {
        for (let n = 0; n < 40; n++) assert.match(text(await witness.ask("a").outcome), /"ok"/);
        assert.equal(
          witness.events.filter((event) => event.startsWith("notification own")).length,
          40,
        );
      },
    );
  });

  it("an answer that is a page says what it is, in words, and without secrets", async () => {
    const page = "<html><head><style>x{}</style></head><h1>Log in,\n s3cret-key!</h1></html>";
    await facing(
      (visit) => visit.answer(200, { "Content-Type": "text/html" }, page),
      async (witness) => {
        const outcome = await witness.ask("a").outcome;
        assert.equal(codeOf(outcome), "answerLost");
        assert.match(text(outcome), /text\/html.*: Log in, \[redacted\]!$/);
      },
      { secrets: ["s3cret-key"] },
    );
  });

  it("JSON that is none is no answer", async () => {
    await facing(
      (visit) => visit.answer(200, JSON_TYPE, `{"jsonrpc":"2.0","id":2,`),
      async (witness) => assert.equal(codeOf(await witness.ask("a").outcome), "answerLost"),
    );
  });

  it("a request that is answered with nothing has no answer", async () => {
    await facing(
      (visit) => visit.answer(202),
      async (witness) => assert.equal(codeOf(await witness.ask("a").outcome), "answerLost"),
    );
  });

  it("a stream that is cut in the middle of an event fails its call at once", async () => {
    await facing(
      (visit) => {
        visit.begin(200, EVENTS).write(`data: ${resultOf(visit).slice(0, 20)}`);
        setImmediate(() => visit.socket.destroy());
      },
      async (witness) => assert.equal(codeOf(await witness.ask("a").outcome), "answerLost"),
    );
  });

  it("a stream that ends without an answer fails its call at once", async () => {
    await facing(
      (visit) => visit.begin(200, EVENTS).end(),
      async (witness) => assert.equal(codeOf(await witness.ask("a").outcome), "answerLost"),
    );
  });

  it("a stream whose events have ids is gone on with where it was lost", async () => {
    let asked = 0;
    await facing(
      (visit) => {
        if (visit.method === "POST") {
          asked = idOf(visit);
          const note = `{"jsonrpc":"2.0","method":"n"}`;
          visit.begin(200, EVENTS).write(`id: e1\nretry: 30\ndata:\n\nid: e2\ndata: ${note}\n\n`);
          setImmediate(() => visit.socket.destroy());
        } else {
          assert.equal(visit.headers.get("last-event-id"), "e2");
          assert.equal(visit.headers.get("mcp-session-id"), "session-1");
          const stream = visit.begin(200, EVENTS);
          stream.write(
            `id: e3\ndata: {"jsonrpc":"2.0","id":${asked},"result":{"text":"late"}}\n\n`,
          );
          stream.end();
        }
      },
      async (witness) => {
        const began = performance.now();
        assert.match(text(await witness.ask("a").outcome), /late/);
        assert.ok(performance.now() - began >= 29, "as late as the server wants it");
        assert.deepEqual(witness.events.slice(1), [
          `notification own {"jsonrpc":"2.0","method":"n"}`,
          `response own {"jsonrpc":"2.0","id":2,"result":{"text":"late"}}`,
        ]);
      },
    );
  });

  it("a stream that the server does not go on with fails its call", async () => {
    await facing(
      (visit) => {
        if (visit.method === "GET") visit.answer(400);
        else {
          const stream = visit.begin(200, EVENTS);
          stream.write("id: e1\nretry: 1\ndata:\n\n");
          stream.end();
        }
      },
      async (witness) => assert.equal(codeOf(await witness.ask("a").outcome), "answerLost"),
    );
  });

  it("a session that is forgotten ends the link: what was refused did nothing, what ran may have", async () => {
    await facing(
      (visit) => {
        if (methodOf(visit) !== "hold")
          visit.answer(
            404,
            JSON_TYPE,
            `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`,
          );
      },
      async (witness, server) => {
        const running = witness.ask("hold");
        while (!server.visits.some((visit) => methodOf(visit) === "hold")) {
          await new Promise((resolve) => setImmediate(resolve));
        }
        assert.equal(codeOf(await witness.ask("a").outcome), "notDelivered");
        assert.equal(codeOf(await running.outcome), "answerLost");
        assert.deepEqual(witness.events.slice(1), [
          "unanswered notDelivered",
          "unanswered answerLost",
          "closed connectionLost",
        ]);
        assert.match(witness.causes[0]?.message ?? "", /forgotten the session/);
        await witness.link.close();
        assert.ok(!server.visits.some(({ method }) => method === "DELETE"), "there is none to end");
      },
    );
  });

  it("an event over the limit is told of, and its call with it", async () => {
    await facing(
      (visit) => {
        const stream = visit.begin(200, EVENTS);
        stream.write(`data: ${resultOf(visit, "x".repeat(300_000))}\n\n`);
        stream.end();
      },
      async (witness) => {
        void witness.ask("a");
        await witness.until(/^oversized/);
        assert.match(witness.events.at(-1) ?? "", /^oversized 3000\d\d \{"jsonrpc":"2.0","id":2/);
        assert.equal(witness.has(/unanswered/), false);
      },
      { maxMessage: 100_000 },
    );
  });

  it("a body over the limit whose id cannot be found fails its call", async () => {
    await facing(
      (visit) => visit.answer(200, JSON_TYPE, `{"x":"${"x".repeat(300_000)}"}`),
      async (witness) => assert.equal(codeOf(await witness.ask("a").outcome), "messageTooLarge"),
      { maxMessage: 100_000 },
    );
  });

  it("a server that never answers keeps nobody from closing", async () => {
    await facing(
      () => {},
      async (witness, server) => {
        void witness.ask("a");
        while (server.visits.length < 3) await new Promise((resolve) => setImmediate(resolve));
        const began = performance.now();
        await witness.link.close();
        assert.ok(performance.now() - began < 1500);
      },
    );
  });

  it("what is given up closes its connection", async () => {
    const { promise: closed, resolve: close } = Promise.withResolvers<void>();
    await facing(
      (visit) => visit.socket.on("close", () => close()),
      async (witness, server) => {
        const asked = witness.ask("a");
        while (server.visits.length < 3) await new Promise((resolve) => setImmediate(resolve));
        asked.exchange.abandon();
        await closed;
        assert.equal(witness.has(/unanswered/), false);
      },
    );
  });

  it("no request is ever sent twice because its connection was closed", async () => {
    let count = 0;
    await facing(
      (visit) => {
        if (visit.isReused && ++count > 0) visit.socket.destroy();
        else answerJson(visit);
      },
      async (witness, server) => {
        const outcomes: Outcome[] = [];
        for (let n = 0; n < 10; n++) outcomes.push(await witness.ask("a").outcome);
        const lost = outcomes.filter((outcome) => codeOf(outcome) === "answerLost").length;
        assert.equal(lost, count);
        assert.ok(count > 0);
        assert.equal(server.visits.filter((visit) => methodOf(visit) === "a").length, 10);
      },
    );
  });

  it("a connection that the server has closed meanwhile is not used", async () => {
    await facing(
      (visit) => {
        answerJson(visit);
        visit.socket.end();
      },
      async (witness, server) => {
        for (let n = 0; n < 5; n++) {
          assert.match(text(await witness.ask("a").outcome), /"ok"/);
          const { socket } = server.visits.at(-1) ?? {};
          while (socket?.destroyed === false) await new Promise((resolve) => setImmediate(resolve));
        }
      },
    );
  });

  it("a server that is gone has done nothing for what it is sent, and ends the link", async () => {
    const server = await RawServer.start(governed(answerJson));
    const witness = await Witness.met(server);
    assert.match(text(await witness.ask("a").outcome), /"ok"/);
    server.stop();
    while (server.sockets.size > 0) await new Promise((resolve) => setImmediate(resolve));
    // As long as it is not seen that a connection has ended, it is used.
    const codes: string[] = [];
    while (!codes.includes("notDelivered")) codes.push(codeOf(await witness.ask("a").outcome));
    assert.ok(codes.length <= 3, codes.join());
    await witness.until(/^closed connectionLost/);
    await witness.link.close();
  });

  it("where nothing listens the first message says so", async () => {
    const server = await RawServer.start(() => {});
    const { url } = server;
    await server.gone();
    const other = new Witness(targetOf(url));
    await other.link.open(other, new AbortController().signal);
    const outcome = await other.ask("server/discover").outcome;
    assert.equal(codeOf(outcome), "unreachable");
    assert.match(text(outcome), /refused/);
    assert.deepEqual(other.events, ["unanswered unreachable", "closed unreachable"]);
  });

  it("what does not speak HTTP is told from what does", async () => {
    for (const [bytes, words] of [
      ["SSH-2.0-OpenSSH_9.2\r\n", /not HTTP/],
      ["\x15\x03\x01\x00\x02\x02\x46", /speaks TLS/],
    ] as const) {
      const server = await RawServer.start((visit) => {
        visit.socket.end(Buffer.from(bytes, "latin1"));
      });
      const witness = await Witness.of(server);
      const outcome = await witness.ask("initialize").outcome;
      assert.match(text(outcome), words);
      await witness.link.close();
      await server.gone();
    }
  });
});
