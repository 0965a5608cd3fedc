import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { existsSync, readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import { openSocket } from "../../../src/transport/http-client/open-socket.ts";
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
import { poll, waitFor } from "../../harness/wait.ts";
import { skipWithout } from "../../harness/requirements.ts";

/** Runs with a server of the legacy era that was met; `other` is given every GET, too. */
async function facing(
  other: (received: RawHttpRequest) => void,
  run: (witness: HttpTransportRecorder, server: RawHttpServer) => Promise<void>,
): Promise<void> {
  const server = await RawHttpServer.start((received) =>
    received.method === "GET" ? other(received) : withHandshake(other)(received),
  );
  const witness = await HttpTransportRecorder.openInitialized(server);
  try {
    await run(witness, server);
  } finally {
    await witness.transport.close();
    await server.allClosed();
  }
}

function text(outcome: ResponseOutcome): string {
  return outcome instanceof HubError ? `${outcome.code}: ${outcome.message}` : outcome;
}

/** How many GETs came. */
function gets({ requests: visits }: RawHttpServer): number {
  return visits.filter(({ method }) => method === "GET").length;
}

describe("an answer over HTTP", () => {
  const forms: readonly (readonly [string, (body: string) => string])[] = [
    ["a length that is too short", (body) => `Content-Length: ${body.length}\r\n\r\n${body}\r\n`],
    [
      "chunks that have ended",
      (body) =>
        `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\nmore`,
    ],
  ];
  for (const [what, write] of forms) {
    it(`counts although there is something behind it (${what}), and its connection does not`, () =>
      facing(
        (received) => {
          if (received.method === "GET") received.respond(405);
          else
            received.write(
              `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n${write(responseTextFor(received))}`,
            );
        },
        async (witness, { requests: visits }) => {
          for (let n = 0; n < 2; n++)
            assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
          const asked = visits.filter((received) => requestMethodOf(received) === "a");
          assert.equal(asked[1]?.isReused, false);
        },
      ));
  }

  it("may begin with a byte order mark", () =>
    facing(
      (received) => {
        if (received.method === "GET") received.respond(405);
        else received.respond(200, JSON_HEADERS, `\ufeff${responseTextFor(received)}`);
      },
      async (witness) => {
        assert.match(text(await witness.sendRequest("a").outcome), /^\{.*"ok"/);
      },
    ));

  it("whose lines end as none of HTTP do fails its call at once", () =>
    facing(
      (received) => {
        if (received.method === "GET") received.respond(405);
        else
          received.write(
            `HTTP/1.1 200 OK\nContent-Type: application/json\n\n${responseTextFor(received)}`,
          );
      },
      async (witness) => {
        assert.match(text(await witness.sendRequest("a").outcome), /answerLost.*not HTTP/);
      },
    ));
});

describe("what a server of the legacy era says unasked", () => {
  it("may be elsewhere, and calls go where they went", () =>
    facing(
      (received) => {
        if (received.path !== "/mcp") received.respond(404);
        else if (received.method === "GET") received.respond(302, { Location: "/docs" });
        else respondJson(received);
      },
      async (witness, { requests: visits }) => {
        await waitFor("a look at /docs", () => visits.find(({ path }) => path === "/docs"));
        assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
      },
    ));

  it("is asked for again where the server still has the stream that was lost", () => {
    let count = 0;
    return facing(
      (received) => {
        if (received.method !== "GET") respondJson(received);
        else if (++count === 1) received.respond(409);
        else
          received
            .beginResponse(200, EVENT_STREAM_HEADERS)
            .write(`data: {"jsonrpc":"2.0","method":"n"}\n\n`);
      },
      async (witness, server) => {
        await witness.until(/^notification shared/);
        assert.equal(gets(server), 2);
      },
    );
  });
});

describe("a session over HTTP", () => {
  it("is named as the server names it, whatever a header can hold", async () => {
    const name = "odd id=1; \u00fc~";
    const server = await RawHttpServer.start(withHandshake(respondJson, name));
    const witness = await HttpTransportRecorder.openInitialized(server);
    await witness.sendRequest("a").outcome;
    const asked = server.requests.find((received) => requestMethodOf(received) === "a");
    await witness.transport.close();
    await server.allClosed();
    // Heads are read byte by byte here, and written as UTF-8.
    const said = asked?.headers.get("mcp-session-id") ?? "";
    assert.equal(Buffer.from(said, "latin1").toString(), name);
  });

  it("keeps few connections open to a server that never ends what it says to words that want no answer", () =>
    facing(
      (received) => {
        if (received.method === "GET") received.respond(405);
        else if (requestMethodOf(received) === "word") received.beginResponse(202, {});
        else respondJson(received);
      },
      async (witness, server) => {
        for (let n = 0; n < 40; n++) witness.sendNotification("word");
        const words = (): number =>
          server.requests.filter((one) => requestMethodOf(one) === "word").length;
        await poll(
          5000,
          () => `${words()} words`,
          () => words() === 40 || undefined,
        );
        await poll(
          5000,
          () => `${server.sockets.size} left`,
          () => server.sockets.size < 20 || undefined,
        );
        assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
      },
    ));

  it("is asked for the next thing although the server has not taken the last word yet", () => {
    const held: RawHttpRequest[] = [];
    return facing(
      (received) => {
        if (received.method === "GET") received.respond(405);
        else if (requestMethodOf(received) === "notifications/cancelled") held.push(received);
        else respondJson(received);
      },
      async (witness, { requests: visits }) => {
        await witness.sendRequest("a").outcome;
        for (let n = 0; n < 3; n++) witness.sendNotification("notifications/cancelled");
        assert.match(text(await witness.sendRequest("b").outcome), /"ok"/);
        await waitFor("a word", () => held.length === 1 || undefined);
        for (let n = 0; n < 3; n++) {
          const word = await poll(
            5000,
            () => `word ${n}`,
            () => held[n],
          );
          assert.equal(held.length, n + 1, "one after the other");
          word.respond(202);
        }
        assert.ok(visits.length > 0);
      },
    );
  });

  it("is forgotten also where a server says so as an answer to the request", () => {
    let isForgotten = false;
    return facing(
      (received) => {
        if (received.method === "GET") received.respond(405);
        else if (!isForgotten) respondJson(received);
        else {
          const error = `{"jsonrpc":"2.0","id":${requestIdOf(received)},"error":{"code":-32001,"message":"Session not found"}}`;
          received.respond(404, JSON_HEADERS, error);
        }
      },
      async (witness) => {
        await witness.sendRequest("a").outcome;
        isForgotten = true;
        assert.match(text(await witness.sendRequest("b").outcome), /^notDelivered/);
        assert.equal(witness.causes.length, 1);
      },
    );
  });

  it("goes on where only one request is answered so", () =>
    facing(
      (received) => {
        if (received.method === "GET") received.respond(405);
        else if (requestMethodOf(received) !== "b") respondJson(received);
        else {
          const error = `{"jsonrpc":"2.0","id":${requestIdOf(received)},"error":{"code":-32601,"message":"none"}}`;
          received.respond(404, JSON_HEADERS, error);
        }
      },
      async (witness) => {
        assert.match(text(await witness.sendRequest("b").outcome), /-32601/);
        assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
        assert.equal(witness.causes.length, 0);
      },
    ));
});

describe("a connection over HTTP", () => {
  /** What the system does with connections of IPv4: after the addresses, the state and the queues it says which timer runs. */
  const TABLE = "/proc/net/tcp";
  const skip = skipWithout({
    isMet: existsSync(TABLE),
    tests: "the keep-alive of HTTP connections",
    remedy: `there is no ${TABLE}: this needs Linux`,
  });

  it("is asked by the system whether it is still there", { skip }, () =>
    facing(
      (received) => {
        if (received.method === "GET") received.beginResponse(200, EVENT_STREAM_HEADERS);
        else respondJson(received);
      },
      async (_, server) => {
        await waitFor("a stream", () => gets(server) || undefined);
        const port = server.port.toString(16).toUpperCase().padStart(4, "0");
        const isKept = (): boolean =>
          readFileSync(TABLE, "utf8")
            .split("\n")
            .some((line) => new RegExp(`^ *\\d+: \\S+ \\S+:${port} 01 \\S+ 02:`).test(line));
        await poll(
          5000,
          () => `a timer for ${port}`,
          () => isKept() || undefined,
        );
      },
    ),
  );
});

describe("a stream that was gone on with", () => {
  it("is asked for no more once it has brought the answer", async () => {
    let asked: RawHttpRequest | undefined;
    await facing(
      (received) => {
        if (received.method === "GET" && !received.headers.has("last-event-id"))
          received.respond(405);
        else if (received.method === "GET" && asked !== undefined) {
          const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
          stream.write(`id: 2\ndata: ${responseTextFor(asked)}\n\n`);
          stream.end();
        } else if (requestMethodOf(received) === "a") {
          asked = received;
          const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
          stream.write("id: 1\nretry: 0\ndata:\n\n");
          stream.end();
        } else respondJson(received);
      },
      async (witness, server) => {
        assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
        const before = gets(server);
        // As long as it takes to ask again and again.
        for (let n = 0; n < 20; n++) await witness.sendRequest("b").outcome;
        assert.equal(gets(server), before);
      },
    );
  });
});

describe("a proxy", () => {
  it("may have a password with a percent sign in it", async () => {
    const server = await RawHttpServer.start((received) => received.respond(200));
    const env = { HTTP_PROXY: `http://me:100%@127.0.0.1:${server.port}` };
    const parts = { ca: undefined, env };
    const opened = await openSocket(
      new URL("http://example.com/"),
      parts,
      new AbortController().signal,
    );
    opened.socket.destroy();
    assert.match(opened.proxyHeaderLines, new RegExp(Buffer.from("me:100%").toString("base64")));
    await server.allClosed();
  });
});
