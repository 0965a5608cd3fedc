import assert from "node:assert/strict";
import { describe } from "node:test";
import { RawHttpServer, type RawHttpRequest } from "../../fixtures/raw-http-server.ts";
import {
  respondJson,
  EVENT_STREAM_HEADERS,
  requestIdOf,
  JSON_HEADERS,
  requestMethodOf,
  responseTextFor,
  HttpTransportRecorder,
} from "../../fixtures/http-transport-recorder.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";
import { it, textOf, until } from "./link.ts";

/** Begins a stream of events with this text. */
const stream = (received: RawHttpRequest, text: string) => {
  const events = received.beginResponse(200, EVENT_STREAM_HEADERS);
  events.write(text);
  return events;
};

const countOf = (server: RawHttpServer, method: string): number =>
  server.requests.filter((received) => requestMethodOf(received) === method).length;

describe("over HTTP", () => {
  it("a connection that is reset fails its own call at once, and no other", async ({ meet }) => {
    const held: RawHttpRequest[] = [];
    const { witness, ask, assertOk } = await meet((received) => {
      if (requestMethodOf(received) === "hold") held.push(received);
      else if (requestMethodOf(received) === "reset") received.socket.resetAndDestroy();
      else respondJson(received);
    });
    const other = ask("hold");
    assert.match(await ask("reset"), /^answerLost/);
    await assertOk("more");
    held.forEach(respondJson);
    assert.match(await other, /"ok"/);
    assert.equal(witness.has(/closed/), false);
  });

  const page = "<html><head><style>x{}</style></head><h1>Log in,\n s3cret-key!</h1></html>";
  const cases: Record<string, readonly [(received: RawHttpRequest) => void, RegExp?]> = {
    "half a body": [
      (received) => {
        const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500";
        received.write(`${head}\r\n\r\n${responseTextFor(received)}`);
        received.socket.end();
      },
    ],
    "a page, which it says in words and without secrets,": [
      (received) => received.respond(200, { "Content-Type": "text/html" }, page),
      /text\/html.*: "Log in, \[redacted\]!"\.$/,
    ],
    "JSON that is none": [
      (received) => received.respond(200, JSON_HEADERS, `{"jsonrpc":"2.0","id":2,`),
    ],
    "nothing at all": [(received) => received.respond(202)],
    "a stream that is cut in the middle of an event": [
      (received) => {
        stream(received, `data: ${responseTextFor(received).slice(0, 20)}`);
        setImmediate(() => received.socket.destroy());
      },
    ],
    "a stream that ends without it": [
      (received) => received.beginResponse(200, EVENT_STREAM_HEADERS).end(),
    ],
    "a stream that the server does not go on with": [
      (received) => {
        if (received.method === "GET") received.respond(400);
        else stream(received, "id: e1\nretry: 1\ndata:\n\n").end();
      },
    ],
  };
  for (const [what, [handle, words = /^/]] of Object.entries(cases)) {
    it(`${what} is no answer, and fails its call at once`, async ({ meet }) => {
      const { ask } = await meet(handle, { secrets: ["s3cret-key"] });
      const text = await ask();
      assert.match(text, /^answerLost/);
      assert.match(text, words);
    });
  }

  for (const kind of ["application/json", "text/event-stream"]) {
    it(`an answer in ${kind} may come byte by byte`, async ({ meet }) => {
      const { ask } = await meet((received) => {
        const result = responseTextFor(received, "ü".repeat(20));
        const isJson = kind === "application/json";
        const body = isJson ? result : `: hi\r\nid: 1\r\ndata: ${result}\r\n\r\n`;
        const head = `HTTP/1.1 200 OK\r\nContent-Type: ${kind}\r\nContent-Length: ${Buffer.byteLength(body)}`;
        const bytes = Buffer.from(`${head}\r\n\r\n${body}`);
        let at = 0;
        const step = (): void => {
          received.socket.write(bytes.subarray(at, ++at));
          if (at < bytes.length) setImmediate(step);
        };
        step();
      });
      assert.match(await ask(), /ü{20}/);
    });
  }

  it("chunks may be cut anywhere", async ({ meet }) => {
    let cut = 1;
    const { witness, assertOk } = await meet((received) => {
      const events = received.beginResponse(200, EVENT_STREAM_HEADERS);
      const noted = `data: {"jsonrpc":"2.0",\ndata: "method":"n"}\n\n`;
      events.write(`${noted}data: ${responseTextFor(received)}\n\n`, cut++);
      events.end();
    });
    await assertOk("a", 40);
    const notes = witness.events.filter((event) => event.startsWith("notification own"));
    assert.equal(notes.length, 40);
  });

  it("a stream whose events have ids is gone on with where it was lost", async ({ meet }) => {
    let asked = 0;
    const note = `{"jsonrpc":"2.0","method":"n"}`;
    const { witness, ask } = await meet((received) => {
      if (received.method === "POST") {
        asked = requestIdOf(received);
        stream(received, `id: e1\nretry: 30\ndata:\n\nid: e2\ndata: ${note}\n\n`);
        setImmediate(() => received.socket.destroy());
      } else {
        assert.equal(received.headers.get("last-event-id"), "e2");
        assert.equal(received.headers.get("mcp-session-id"), "session-1");
        const answer = `{"jsonrpc":"2.0","id":${asked},"result":{"text":"late"}}`;
        stream(received, `id: e3\ndata: ${answer}\n\n`).end();
      }
    });
    const began = performance.now();
    const answer = await ask();
    assert.match(answer, /late/);
    assert.ok(performance.now() - began >= 29, "as late as the server wants it");
    const expected = [`notification own ${note}`, `response own ${answer}`];
    assert.deepEqual(witness.events.slice(1), expected);
  });

  it("a session that is forgotten ends the link: what was refused did nothing, what ran may have", async (links) => {
    const error = `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`;
    const { server, witness, ask } = await links.meet((received) => {
      if (requestMethodOf(received) !== "hold") received.respond(404, JSON_HEADERS, error);
    });
    const running = ask("hold");
    await until(() => countOf(server, "hold") > 0);
    assert.match(await ask(), /^notDelivered/);
    assert.match(await running, /^answerLost/);
    assert.deepEqual(witness.events.slice(1), [
      "unanswered notDelivered",
      "unanswered answerLost",
      "closed connectionLost",
    ]);
    assert.match(witness.causes[0]?.message ?? "", /forgotten the session/);
    await witness.transport.close();
    assert.equal(countOf(server, "DELETE"), 0, "there is none to end");
  });

  it("an event over the limit is told of, and its call with it", async ({ meet }) => {
    const { witness } = await meet(
      (received) =>
        stream(received, `data: ${responseTextFor(received, "x".repeat(300_000))}\n\n`).end(),
      { maxMessage: 100_000 },
    );
    void witness.sendRequest("a");
    await witness.until(/^oversized/);
    assert.match(witness.events.at(-1) ?? "", /^oversized 3000\d\d \{"jsonrpc":"2.0","id":2/);
    assert.equal(witness.has(/unanswered/), false);
  });

  it("a body over the limit whose id cannot be found fails its call", async ({ meet }) => {
    const body = `{"x":"${"x".repeat(300_000)}"}`;
    const { ask } = await meet((received) => received.respond(200, JSON_HEADERS, body), {
      maxMessage: 100_000,
    });
    assert.match(await ask(), /^messageTooLarge/);
  });

  it("a server that never answers keeps nobody from closing", async ({ meet }) => {
    const { server, witness } = await meet(() => {});
    void witness.sendRequest("a");
    await until(() => countOf(server, "a") === 1);
    const began = performance.now();
    await witness.transport.close();
    assert.ok(performance.now() - began < 10_000);
  });

  it("what is given up closes its connection", async ({ meet }) => {
    const { promise: closed, resolve: close } = Promise.withResolvers<void>();
    const { server, witness } = await meet((received) =>
      received.socket.on("close", () => close()),
    );
    const asked = witness.sendRequest("a");
    await until(() => countOf(server, "a") === 1);
    asked.sentRequest.abandon();
    await closed;
    assert.equal(witness.has(/unanswered/), false);
  });

  it("no request is ever sent twice because its connection was closed", async ({ meet }) => {
    let count = 0;
    const { server, ask } = await meet((received) => {
      if (received.isReused && ++count > 0) received.socket.destroy();
      else respondJson(received);
    });
    const texts: string[] = [];
    for (let n = 0; n < 10; n++) texts.push(await ask());
    assert.equal(texts.filter((text) => text.startsWith("answerLost")).length, count);
    assert.ok(count > 0);
    assert.equal(countOf(server, "a"), 10);
  });

  it("a call that is given up is not sent again, also not on a connection that was used before", async (links) => {
    const { server, witness, assertOk } = await links.meet((received) => {
      if (requestMethodOf(received) !== "hold") respondJson(received);
    });
    for (let count = 1; count <= 10; count++) {
      await assertOk();
      const { sentRequest } = witness.sendRequest("hold");
      await until(() => countOf(server, "hold") === count);
      sentRequest.abandon();
    }
    await assertOk();
    const given = server.requests.filter((received) => requestMethodOf(received) === "hold");
    assert.deepEqual([given.length, given.every(({ isReused }) => isReused)], [10, true]);
  });

  it("a connection that the server has closed meanwhile is not used", async ({ meet }) => {
    const { server, assertOk } = await meet((received) => {
      respondJson(received);
      received.socket.end();
    });
    for (let n = 0; n < 5; n++) {
      await assertOk();
      await until(() => server.requests.at(-1)?.socket.destroyed !== false);
    }
  });

  it("a server that is gone has done nothing for what it is sent, and ends the link", async (links) => {
    const { server, witness, ask, assertOk } = await links.meet(respondJson);
    await assertOk();
    server.destroy();
    await until(() => server.sockets.size === 0);
    // As long as it is not seen that a connection has ended, it is used.
    const texts: string[] = [];
    while (!texts.at(-1)?.startsWith("notDelivered")) texts.push(await ask());
    assert.ok(texts.length <= 3, texts.join());
    await witness.until(/^closed connectionLost/);
  });

  it("where nothing listens the first message says so", async () => {
    const server = await RawHttpServer.start(() => {});
    const { url } = server;
    await server.allClosed();
    const other = new HttpTransportRecorder(targetOf(url));
    await other.transport.open(other, new AbortController().signal);
    const outcome = await other.sendRequest("server/discover").outcome;
    assert.match(textOf(outcome), /^unreachable: .*refused/);
    assert.deepEqual(other.events, ["unanswered unreachable", "closed unreachable"]);
  });

  it("what does not speak HTTP is told from what does", async ({ open }) => {
    for (const [bytes, words] of [
      ["SSH-2.0-OpenSSH_9.2\r\n", /not HTTP/],
      ["\x15\x03\x01\x00\x02\x02\x46", /uses TLS/],
    ] as const) {
      const { ask } = await open((received) => received.socket.end(Buffer.from(bytes, "latin1")));
      assert.match(await ask("initialize"), words);
    }
  });
});
