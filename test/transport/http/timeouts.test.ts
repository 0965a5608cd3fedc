import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { existsSync, readFileSync } from "node:fs";
import { describe } from "node:test";
import { openSocket } from "../../../src/transport/http-client/open-socket.ts";
import { RawHttpServer, type RawHttpRequest } from "../../fixtures/raw-http-server.ts";
import {
  respondJson,
  EVENT_STREAM_HEADERS,
  withHandshake,
  requestIdOf,
  JSON_HEADERS,
  requestMethodOf,
  responseTextFor,
} from "../../fixtures/http-transport-recorder.ts";
import { skipWithout } from "../../harness/requirements.ts";
import { it, until } from "./link.ts";

const OPTIONS = { transport: "http" } as const;

const countOf = ({ requests }: RawHttpServer, method: string): number =>
  requests.filter((received) => requestMethodOf(received) === method).length;

/** Answers GETs like this, and passes the rest on. */
const withGet =
  (get: (received: RawHttpRequest) => void) =>
  (received: RawHttpRequest): void =>
    received.method === "GET" ? get(received) : withHandshake(respondJson)(received);

describe("an answer over HTTP", () => {
  const head = (more: string, end = "\r\n"): string =>
    `HTTP/1.1 200 OK${end}Content-Type: application/json${end}${more}`;
  const forms: Record<string, (body: string) => string> = {
    "a length that is too short": (body) =>
      head(`Content-Length: ${body.length}\r\n\r\n${body}\r\n`),
    "chunks that have ended": (body) =>
      head(
        `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\nmore`,
      ),
  };
  for (const [what, write] of Object.entries(forms)) {
    it(`counts although there is something behind it (${what}), and its connection does not`, async (links) => {
      const { server, assertOk } = await links.meet((received) =>
        received.write(write(responseTextFor(received))),
      );
      await assertOk("a", 2);
      const asked = server.requests.filter((received) => requestMethodOf(received) === "a");
      assert.equal(asked[1]?.isReused, false);
    });
  }

  it("may begin with a byte order mark", async ({ meet }) => {
    const { ask } = await meet((received) =>
      received.respond(200, JSON_HEADERS, `\ufeff${responseTextFor(received)}`),
    );
    assert.match(await ask(), /^\{.*"ok"/);
  });

  it("whose lines end as none of HTTP do fails its call at once", async ({ meet }) => {
    const { ask } = await meet((received) =>
      received.write(head(`\n${responseTextFor(received)}`, "\n")),
    );
    assert.match(await ask(), /answerLost.*not HTTP/);
  });
});

describe("what a server of the legacy era says unasked", () => {
  it("may be elsewhere, and calls go where they went", async ({ open }) => {
    const { server, witness, assertOk } = await open((received) => {
      if (received.path !== "/mcp") received.respond(404);
      else withGet((get) => get.respond(302, { Location: "/docs" }))(received);
    }, OPTIONS);
    await witness.initialize();
    await until(() => server.requests.some(({ path }) => path === "/docs"));
    await assertOk();
  });

  it("is asked for again where the server still has the stream that was lost", async ({ open }) => {
    let count = 0;
    const note = `data: {"jsonrpc":"2.0","method":"n"}\n\n`;
    const { server, witness } = await open(
      withGet((received) => {
        if (++count === 1) received.respond(409);
        else received.beginResponse(200, EVENT_STREAM_HEADERS).write(note);
      }),
      OPTIONS,
    );
    await witness.initialize();
    await witness.until(/^notification shared/);
    assert.equal(countOf(server, "GET"), 2);
  });
});

describe("a session over HTTP", () => {
  it("is named as the server names it, whatever a header can hold", async ({ meet }) => {
    const name = "odd id=1; \u00fc~";
    const { server, assertOk } = await meet(respondJson, {}, name);
    await assertOk();
    const asked = server.requests.find((received) => requestMethodOf(received) === "a");
    // Heads are read byte by byte here, and written as UTF-8.
    const said = asked?.headers.get("mcp-session-id") ?? "";
    assert.equal(Buffer.from(said, "latin1").toString(), name);
  });

  it("keeps few connections open to a server that never ends what it says to words that want no answer", async (links) => {
    const { server, witness, assertOk } = await links.meet((received) => {
      if (requestMethodOf(received) === "word") received.beginResponse(202, {});
      else respondJson(received);
    });
    for (let n = 0; n < 40; n++) witness.sendNotification("word");
    await until(() => countOf(server, "word") === 40);
    await until(() => server.sockets.size < 20);
    await assertOk();
  });

  it("is asked for the next thing although the server has not taken the last word yet", async (links) => {
    const held: RawHttpRequest[] = [];
    const { witness, assertOk } = await links.meet((received) => {
      if (requestMethodOf(received) === "notifications/cancelled") held.push(received);
      else respondJson(received);
    });
    await assertOk();
    for (let n = 0; n < 3; n++) witness.sendNotification("notifications/cancelled");
    await assertOk("b");
    for (const count of [1, 2, 3]) {
      await until(() => held.length >= count);
      assert.equal(held.length, count, "one after the other");
      held.at(-1)?.respond(202);
    }
  });

  const withError = (received: RawHttpRequest, code: number, message: string): void => {
    const error = JSON.stringify({ code, message });
    const text = `{"jsonrpc":"2.0","id":${requestIdOf(received)},"error":${error}}`;
    received.respond(404, JSON_HEADERS, text);
  };

  it("is forgotten also where a server says so as an answer to the request", async ({ meet }) => {
    let isForgotten = false;
    const { witness, ask, assertOk } = await meet((received) => {
      if (isForgotten) withError(received, -32001, "Session not found");
      else respondJson(received);
    });
    await assertOk();
    isForgotten = true;
    assert.match(await ask("b"), /^notDelivered/);
    assert.equal(witness.causes.length, 1);
  });

  it("goes on where only one request is answered so", async ({ meet }) => {
    const { witness, ask, assertOk } = await meet((received) => {
      if (requestMethodOf(received) === "b") withError(received, -32601, "none");
      else respondJson(received);
    });
    assert.match(await ask("b"), /-32601/);
    await assertOk();
    assert.equal(witness.causes.length, 0);
  });
});

describe("a connection over HTTP", () => {
  /** What the system does with connections of IPv4: after the addresses, the state and the queues it says which timer runs. */
  const TABLE = "/proc/net/tcp";
  const skip = skipWithout({
    isMet: existsSync(TABLE),
    tests: "the keep-alive of HTTP connections",
    remedy: `there is no ${TABLE}: this needs Linux`,
  });

  it(
    "is asked by the system whether it is still there",
    async ({ open }) => {
      const { server, witness } = await open(
        withGet((received) => received.beginResponse(200, EVENT_STREAM_HEADERS)),
        OPTIONS,
      );
      await witness.initialize();
      await until(() => countOf(server, "GET") > 0);
      const port = server.port.toString(16).toUpperCase().padStart(4, "0");
      const timer = new RegExp(`^ *\\d+: \\S+ \\S+:${port} 01 \\S+ 02:`, "m");
      await until(() => timer.test(readFileSync(TABLE, "utf8")));
    },
    { skip },
  );
});

describe("a stream that was gone on with", () => {
  it("is asked for no more once it has brought the answer", async ({ meet }) => {
    let asked: RawHttpRequest | undefined;
    const { server, assertOk } = await meet((received) => {
      const isFirst = requestMethodOf(received) === "a";
      if (requestMethodOf(received) === "b") return respondJson(received);
      if (isFirst) asked = received;
      const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
      const answer = asked === undefined ? "" : responseTextFor(asked);
      stream.write(isFirst ? "id: 1\nretry: 0\ndata:\n\n" : `id: 2\ndata: ${answer}\n\n`);
      stream.end();
    });
    await assertOk();
    const before = countOf(server, "GET");
    // As long as it takes to ask again and again.
    await assertOk("b", 20);
    assert.equal(countOf(server, "GET"), before);
  });
});

describe("a proxy", () => {
  it("may have a password with a percent sign in it", async () => {
    const server = await RawHttpServer.start((received) => received.respond(200));
    const env = { HTTP_PROXY: `http://me:100%@127.0.0.1:${server.port}` };
    const { signal } = new AbortController();
    const opened = await openSocket(new URL("http://example.com/"), { ca: undefined, env }, signal);
    opened.socket.destroy();
    assert.match(opened.proxyHeaderLines, new RegExp(Buffer.from("me:100%").toString("base64")));
    await server.allClosed();
  });
});
