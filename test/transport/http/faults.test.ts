import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import type { HttpTarget } from "../../../src/transport/http/target.ts";
import { RawHttpServer, type RawHttpRequest } from "../../fixtures/raw-http-server.ts";
import {
  respondJson,
  EVENT_STREAM_HEADERS,
  withHandshake,
  requestIdOf,
  JSON_HEADERS,
  requestMethodOf,
  type ResponseOutcome,
  responseTextFor,
  HttpTransportRecorder,
} from "../../fixtures/http-transport-recorder.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";

/** Runs with a server of the legacy era that was met, and looks afterwards that nothing is left. */
async function facing(
  other: (received: RawHttpRequest) => void,
  run: (witness: HttpTransportRecorder, server: RawHttpServer) => Promise<void>,
  more: Partial<HttpTarget> = {},
): Promise<void> {
  const server = await RawHttpServer.start(withHandshake(other));
  const witness = await HttpTransportRecorder.openInitialized(server, more);
  try {
    await run(witness, server);
  } finally {
    await witness.transport.close();
    await server.allClosed();
  }
  assert.equal(witness.causes.length, 1, "the end was told once");
}

function codeOf(outcome: ResponseOutcome): string {
  return outcome instanceof HubError ? outcome.code : outcome;
}

function text(outcome: ResponseOutcome): string {
  return outcome instanceof HubError ? outcome.message : outcome;
}

describe("over HTTP", () => {
  it("a connection that is reset fails its own call at once, and no other", async () => {
    const held: RawHttpRequest[] = [];
    await facing(
      (received) => {
        if (requestMethodOf(received) === "hold") held.push(received);
        else if (requestMethodOf(received) === "reset") received.socket.resetAndDestroy();
        else respondJson(received);
      },
      async (witness) => {
        const other = witness.sendRequest("hold");
        assert.equal(codeOf(await witness.sendRequest("reset").outcome), "answerLost");
        assert.match(text(await witness.sendRequest("more").outcome), /"ok"/);
        held.forEach(respondJson);
        assert.match(text(await other.outcome), /"ok"/);
        assert.equal(witness.has(/closed/), false);
      },
    );
  });

  it("half a body is no answer", async () => {
    await facing(
      (received) => {
        const body = responseTextFor(received);
        received.write(
          `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n${body}`,
        );
        received.socket.end();
      },
      async (witness) => assert.equal(codeOf(await witness.sendRequest("a").outcome), "answerLost"),
    );
  });

  for (const kind of ["application/json", "text/event-stream"]) {
    it(`an answer in ${kind} may come byte by byte`, async () => {
      await facing(
        (received) => {
          const result = responseTextFor(received, "ü".repeat(20));
          const body =
            kind === "application/json" ? result : `: hi\r\nid: 1\r\ndata: ${result}\r\n\r\n`;
          const bytes = Buffer.from(
            `HTTP/1.1 200 OK\r\nContent-Type: ${kind}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
          );
          let at = 0;
          const step = (): void => {
            received.socket.write(bytes.subarray(at, ++at));
            if (at < bytes.length) setImmediate(step);
          };
          step();
        },
        async (witness) => assert.match(text(await witness.sendRequest("a").outcome), /ü{20}/),
      );
    });
  }

  it("chunks may be cut anywhere", async () => {
    let cut = 1;
    await facing(
      (received) => {
        const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        const noted = `data: {"jsonrpc":"2.0",\ndata: "method":"n"}\n\n`;
        stream.write(`${noted}data: ${responseTextFor(received)}\n\n`, cut++);
        stream.end();
      },
      async (witness) => {
        for (let n = 0; n < 40; n++)
          assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
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
      (received) => received.respond(200, { "Content-Type": "text/html" }, page),
      async (witness) => {
        const outcome = await witness.sendRequest("a").outcome;
        assert.equal(codeOf(outcome), "answerLost");
        assert.match(text(outcome), /text\/html.*: Log in, \[redacted\]!$/);
      },
      { secrets: ["s3cret-key"] },
    );
  });

  it("JSON that is none is no answer", async () => {
    await facing(
      (received) => received.respond(200, JSON_HEADERS, `{"jsonrpc":"2.0","id":2,`),
      async (witness) => assert.equal(codeOf(await witness.sendRequest("a").outcome), "answerLost"),
    );
  });

  it("a request that is answered with nothing has no answer", async () => {
    await facing(
      (received) => received.respond(202),
      async (witness) => assert.equal(codeOf(await witness.sendRequest("a").outcome), "answerLost"),
    );
  });

  it("a stream that is cut in the middle of an event fails its call at once", async () => {
    await facing(
      (received) => {
        received
          .beginResponse(200, EVENT_STREAM_HEADERS)
          .write(`data: ${responseTextFor(received).slice(0, 20)}`);
        setImmediate(() => received.socket.destroy());
      },
      async (witness) => assert.equal(codeOf(await witness.sendRequest("a").outcome), "answerLost"),
    );
  });

  it("a stream that ends without an answer fails its call at once", async () => {
    await facing(
      (received) => received.beginResponse(200, EVENT_STREAM_HEADERS).end(),
      async (witness) => assert.equal(codeOf(await witness.sendRequest("a").outcome), "answerLost"),
    );
  });

  it("a stream whose events have ids is gone on with where it was lost", async () => {
    let asked = 0;
    await facing(
      (received) => {
        if (received.method === "POST") {
          asked = requestIdOf(received);
          const note = `{"jsonrpc":"2.0","method":"n"}`;
          received
            .beginResponse(200, EVENT_STREAM_HEADERS)
            .write(`id: e1\nretry: 30\ndata:\n\nid: e2\ndata: ${note}\n\n`);
          setImmediate(() => received.socket.destroy());
        } else {
          assert.equal(received.headers.get("last-event-id"), "e2");
          assert.equal(received.headers.get("mcp-session-id"), "session-1");
          const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
          stream.write(
            `id: e3\ndata: {"jsonrpc":"2.0","id":${asked},"result":{"text":"late"}}\n\n`,
          );
          stream.end();
        }
      },
      async (witness) => {
        const began = performance.now();
        assert.match(text(await witness.sendRequest("a").outcome), /late/);
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
      (received) => {
        if (received.method === "GET") received.respond(400);
        else {
          const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
          stream.write("id: e1\nretry: 1\ndata:\n\n");
          stream.end();
        }
      },
      async (witness) => assert.equal(codeOf(await witness.sendRequest("a").outcome), "answerLost"),
    );
  });

  it("a session that is forgotten ends the link: what was refused did nothing, what ran may have", async () => {
    await facing(
      (received) => {
        if (requestMethodOf(received) !== "hold")
          received.respond(
            404,
            JSON_HEADERS,
            `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`,
          );
      },
      async (witness, server) => {
        const running = witness.sendRequest("hold");
        while (!server.requests.some((received) => requestMethodOf(received) === "hold")) {
          await new Promise((resolve) => setImmediate(resolve));
        }
        assert.equal(codeOf(await witness.sendRequest("a").outcome), "notDelivered");
        assert.equal(codeOf(await running.outcome), "answerLost");
        assert.deepEqual(witness.events.slice(1), [
          "unanswered notDelivered",
          "unanswered answerLost",
          "closed connectionLost",
        ]);
        assert.match(witness.causes[0]?.message ?? "", /forgotten the session/);
        await witness.transport.close();
        assert.ok(
          !server.requests.some(({ method }) => method === "DELETE"),
          "there is none to end",
        );
      },
    );
  });

  it("an event over the limit is told of, and its call with it", async () => {
    await facing(
      (received) => {
        const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write(`data: ${responseTextFor(received, "x".repeat(300_000))}\n\n`);
        stream.end();
      },
      async (witness) => {
        void witness.sendRequest("a");
        await witness.until(/^oversized/);
        assert.match(witness.events.at(-1) ?? "", /^oversized 3000\d\d \{"jsonrpc":"2.0","id":2/);
        assert.equal(witness.has(/unanswered/), false);
      },
      { maxMessage: 100_000 },
    );
  });

  it("a body over the limit whose id cannot be found fails its call", async () => {
    await facing(
      (received) => received.respond(200, JSON_HEADERS, `{"x":"${"x".repeat(300_000)}"}`),
      async (witness) =>
        assert.equal(codeOf(await witness.sendRequest("a").outcome), "messageTooLarge"),
      { maxMessage: 100_000 },
    );
  });

  it("a server that never answers keeps nobody from closing", async () => {
    await facing(
      () => {},
      async (witness, server) => {
        void witness.sendRequest("a");
        while (server.requests.length < 3) await new Promise((resolve) => setImmediate(resolve));
        const began = performance.now();
        await witness.transport.close();
        assert.ok(performance.now() - began < 1500);
      },
    );
  });

  it("what is given up closes its connection", async () => {
    const { promise: closed, resolve: close } = Promise.withResolvers<void>();
    await facing(
      (received) => received.socket.on("close", () => close()),
      async (witness, server) => {
        const asked = witness.sendRequest("a");
        while (server.requests.length < 3) await new Promise((resolve) => setImmediate(resolve));
        asked.sentRequest.abandon();
        await closed;
        assert.equal(witness.has(/unanswered/), false);
      },
    );
  });

  it("no request is ever sent twice because its connection was closed", async () => {
    let count = 0;
    await facing(
      (received) => {
        if (received.isReused && ++count > 0) received.socket.destroy();
        else respondJson(received);
      },
      async (witness, server) => {
        const outcomes: ResponseOutcome[] = [];
        for (let n = 0; n < 10; n++) outcomes.push(await witness.sendRequest("a").outcome);
        const lost = outcomes.filter((outcome) => codeOf(outcome) === "answerLost").length;
        assert.equal(lost, count);
        assert.ok(count > 0);
        assert.equal(
          server.requests.filter((received) => requestMethodOf(received) === "a").length,
          10,
        );
      },
    );
  });

  it("a call that is given up is not sent again, also not on a connection that was used before", async () => {
    const given = (server: RawHttpServer): RawHttpRequest[] =>
      server.requests.filter((received) => requestMethodOf(received) === "hold");
    await facing(
      (received) => {
        if (requestMethodOf(received) !== "hold") respondJson(received);
      },
      async (witness, server) => {
        for (let count = 1; count <= 10; count++) {
          assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
          const { sentRequest } = witness.sendRequest("hold");
          while (given(server).length < count)
            await new Promise((resolve) => setImmediate(resolve));
          sentRequest.abandon();
        }
        assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
        assert.equal(given(server).length, 10);
        assert.ok(given(server).every(({ isReused }) => isReused));
      },
    );
  });

  it("a connection that the server has closed meanwhile is not used", async () => {
    await facing(
      (received) => {
        respondJson(received);
        received.socket.end();
      },
      async (witness, server) => {
        for (let n = 0; n < 5; n++) {
          assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
          const { socket } = server.requests.at(-1) ?? {};
          while (socket?.destroyed === false) await new Promise((resolve) => setImmediate(resolve));
        }
      },
    );
  });

  it("a server that is gone has done nothing for what it is sent, and ends the link", async () => {
    const server = await RawHttpServer.start(withHandshake(respondJson));
    const witness = await HttpTransportRecorder.openInitialized(server);
    assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    server.destroy();
    while (server.sockets.size > 0) await new Promise((resolve) => setImmediate(resolve));
    // As long as it is not seen that a connection has ended, it is used.
    const codes: string[] = [];
    while (!codes.includes("notDelivered"))
      codes.push(codeOf(await witness.sendRequest("a").outcome));
    assert.ok(codes.length <= 3, codes.join());
    await witness.until(/^closed connectionLost/);
    await witness.transport.close();
  });

  it("where nothing listens the first message says so", async () => {
    const server = await RawHttpServer.start(() => {});
    const { url } = server;
    await server.allClosed();
    const other = new HttpTransportRecorder(targetOf(url));
    await other.transport.open(other, new AbortController().signal);
    const outcome = await other.sendRequest("server/discover").outcome;
    assert.equal(codeOf(outcome), "unreachable");
    assert.match(text(outcome), /refused/);
    assert.deepEqual(other.events, ["unanswered unreachable", "closed unreachable"]);
  });

  it("what does not speak HTTP is told from what does", async () => {
    for (const [bytes, words] of [
      ["SSH-2.0-OpenSSH_9.2\r\n", /not HTTP/],
      ["\x15\x03\x01\x00\x02\x02\x46", /speaks TLS/],
    ] as const) {
      const server = await RawHttpServer.start((received) => {
        received.socket.end(Buffer.from(bytes, "latin1"));
      });
      const witness = await HttpTransportRecorder.open(server);
      const outcome = await witness.sendRequest("initialize").outcome;
      assert.match(text(outcome), words);
      await witness.transport.close();
      await server.allClosed();
    }
  });
});
