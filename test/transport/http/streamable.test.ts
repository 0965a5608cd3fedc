import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { joinPieces, utf8 } from "../../../src/base/bytes.ts";
import { HubError } from "../../../src/base/errors.ts";
import type {
  AuthChallenge,
  HttpTransportKind,
  RequestCredentials,
} from "../../../src/transport/http/target.ts";
import { makeFetch } from "../../../src/transport/http-client/fetch.ts";
import {
  RawHttpServer,
  type ChunkedResponse,
  type RawHttpRequest,
} from "../../fixtures/raw-http-server.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";
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

function codeOf(outcome: ResponseOutcome): string {
  return outcome instanceof HubError ? outcome.code : outcome;
}

function text(outcome: ResponseOutcome): string {
  return outcome instanceof HubError ? outcome.message : outcome;
}

async function until(test: () => boolean): Promise<void> {
  for (let n = 0; !test(); n++) {
    assert.ok(n < 5000, `never: ${String(test)}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function end(
  witness: HttpTransportRecorder,
  ...servers: readonly RawHttpServer[]
): Promise<void> {
  await witness.transport.close();
  for (const server of servers) await server.allClosed();
}

/** Credentials that go from one token to the next. */
function tokens(
  ...values: readonly string[]
): RequestCredentials & { readonly renewals: AuthChallenge[] } {
  const renewals: AuthChallenge[] = [];
  let at = 0;
  return {
    renewals,
    getHeaders: () => ({ Authorization: `Bearer ${values[at]}` }),
    renew(challenge) {
      renewals.push(challenge);
      const isLeft = at + 1 < values.length;
      if (isLeft) at++;
      return Promise.resolve(isLeft);
    },
  };
}

function answerIf(token: string): (received: RawHttpRequest) => void {
  return (received) => {
    if (received.headers.get("authorization") === `Bearer ${token}`) respondJson(received);
    else received.respond(401, { "WWW-Authenticate": `Bearer error="invalid_token"` });
  };
}

describe("text that is not valid UTF-8 over HTTP", () => {
  const VALID = "é€😀";
  /** A result with those bytes in it. */
  const bodyOf = (id: number, bytes: Uint8Array): Uint8Array =>
    joinPieces([utf8(`{"jsonrpc":"2.0","id":${id},"result":{"x":"`), bytes, utf8('"}}')]);

  for (const [name, bytes, shown, isFlaw] of [
    ["a byte that is in no character", Uint8Array.of(0xff), "\ufffd", true],
    ["half a character", Uint8Array.of(0xe2, 0x82), "\ufffd", true],
    ["characters of every length", utf8(VALID), VALID, false],
  ] as const) {
    for (const way of ["JSON", "events"]) {
      it(`comes with U+FFFD in its place as ${way}: ${name}`, async () => {
        const server = await RawHttpServer.start((received) => {
          const body = bodyOf(requestIdOf(received), bytes);
          if (way === "JSON") {
            received.respond(200, JSON_HEADERS, body);
            return;
          }
          const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
          // A note that belongs to the request comes first; every byte comes alone.
          const note = joinPieces([
            utf8('data: {"jsonrpc":"2.0","method":"n","params":{"x":"'),
            bytes,
            utf8('"}}\n\ndata: '),
            body,
            utf8("\n\n"),
          ]);
          stream.write(note, 1);
          stream.end();
        });
        const witness = await HttpTransportRecorder.open(server, { transport: "http" });
        const outcome = await witness.sendRequest("initialize").outcome;
        assert.equal(text(outcome), `{"jsonrpc":"2.0","id":1,"result":{"x":"${shown}"}}`);
        const notes = witness.events.filter((event) => event.startsWith("notification"));
        const reported = `notification own {"jsonrpc":"2.0","method":"n","params":{"x":"${shown}"}}`;
        assert.deepEqual(notes, way === "JSON" ? [] : [reported]);
        assert.equal(witness.events.includes("flaw invalidText"), isFlaw);
        await end(witness, server);
      });
    }
  }

  it("is no part of a message that begins with a byte order mark, as JSON or as an event", async () => {
    const server = await RawHttpServer.start((received) => {
      const body = `\ufeff{"jsonrpc":"2.0","id":${requestIdOf(received)},"result":{}}`;
      if (requestIdOf(received) === 1) received.respond(200, JSON_HEADERS, body);
      else received.beginResponse(200, EVENT_STREAM_HEADERS).write(`data: ${body}\n\n`);
    });
    const witness = await HttpTransportRecorder.open(server, { transport: "http" });
    for (const id of [1, 2]) {
      const outcome = await witness.sendRequest("initialize").outcome;
      assert.equal(text(outcome), `{"jsonrpc":"2.0","id":${id},"result":{}}`);
    }
    await end(witness, server);
  });
});

describe("who is let in over HTTP", () => {
  it("a request that is not is sent again with what was renewed", async () => {
    const server = await RawHttpServer.start(answerIf("new"));
    const credentials = tokens("old", "new");
    const witness = await HttpTransportRecorder.open(server, { credentials });
    assert.match(text(await witness.sendRequest("initialize").outcome), /"ok"/);
    assert.deepEqual(credentials.renewals, [
      { status: 401, header: `Bearer error="invalid_token"` },
    ]);
    assert.deepEqual(witness.challenges, []);
    await end(witness, server);
  });

  it("many that are not have it renewed once", async () => {
    const server = await RawHttpServer.start(answerIf("new"));
    const credentials = tokens("old", "new", "newer");
    const witness = await HttpTransportRecorder.open(server, { credentials });
    const all = await Promise.all(
      Array.from({ length: 20 }, () => witness.sendRequest("a").outcome),
    );
    assert.ok(
      all.every((outcome) => typeof outcome === "string"),
      all.map(codeOf).join(),
    );
    assert.equal(credentials.renewals.length, 1);
    await end(witness, server);
  });

  it("a server that never lets anybody in is not asked for ever, and tells once what it wants", async () => {
    const server = await RawHttpServer.start(answerIf("other"));
    const witness = await HttpTransportRecorder.open(server, { credentials: tokens("a", "b") });
    for (let n = 0; n < 3; n++) {
      assert.equal(codeOf(await witness.sendRequest("initialize").outcome), "unauthorized");
    }
    assert.deepEqual(
      witness.challenges.map(({ status }) => status),
      [401],
    );
    assert.equal(server.requests.length, 4);
    await end(witness, server);
  });

  it("a scope that does not suffice is a challenge, any other prohibition is none", async () => {
    const scope = `Bearer error="insufficient_scope", scope="files:write"`;
    const server = await RawHttpServer.start((received) => {
      if (requestMethodOf(received) === "a") received.respond(403, { "WWW-Authenticate": scope });
      else received.respond(403, {}, "Not from here.");
    });
    const witness = await HttpTransportRecorder.open(server);
    assert.equal(codeOf(await witness.sendRequest("a").outcome), "unauthorized");
    assert.deepEqual(witness.challenges, [{ status: 403, header: scope }]);
    const other = await witness.sendRequest("b").outcome;
    assert.equal(codeOf(other), "serverRefused");
    assert.match(text(other), /HTTP 403: Not from here\.$/);
    await end(witness, server);
  });

  it("what the manifest says goes before what was got", async () => {
    const server = await RawHttpServer.start(answerIf("mine"));
    const headers = { authorization: "Bearer mine", "X-Team": "t" };
    const witness = await HttpTransportRecorder.open(server, {
      headers,
      credentials: tokens("got"),
    });
    assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    assert.equal(server.requests[0]?.headers.get("x-team"), "t");
    await end(witness, server);
  });
});

describe("credentials", () => {
  it("that would begin a header of their own are not sent", async () => {
    const server = await RawHttpServer.start(respondJson);
    const witness = await HttpTransportRecorder.open(server, {
      credentials: tokens("a\r\nX-Evil: 1"),
    });
    assert.equal(codeOf(await witness.sendRequest("a").outcome), "unauthorized");
    assert.equal(server.requests.length, 0);
    await end(witness, server);
  });

  it("that cannot be had fail what needs them, and not whoever sends it", async () => {
    const server = await RawHttpServer.start(respondJson);
    const bear = (): never => {
      throw new HubError("unauthorized", "There are none.");
    };
    const credentials = { getHeaders: bear, renew: () => Promise.resolve(false) };
    const witness = await HttpTransportRecorder.open(server, { credentials });
    assert.equal(codeOf(await witness.sendRequest("a").outcome), "unauthorized");
    await end(witness, server);
  });
});

describe("redirects", () => {
  it("within a server are followed, and remembered", async () => {
    const server = await RawHttpServer.start((received) => {
      if (received.path === "/mcp") received.respond(308, { Location: "/v2/mcp" });
      else respondJson(received);
    });
    const witness = await HttpTransportRecorder.open(server, {
      headers: { Authorization: "Bearer x" },
    });
    for (let n = 0; n < 3; n++) assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    assert.deepEqual(
      server.requests.map(({ path }) => path),
      ["/mcp", "/v2/mcp", "/v2/mcp", "/v2/mcp"],
    );
    await end(witness, server);
  });

  for (const [what, more] of [
    ["a header of the manifest", { headers: { "X-Key": "k" } }],
    ["credentials", { credentials: tokens("t") }],
  ] as const) {
    it(`to another server are not followed with ${what}`, async () => {
      const other = await RawHttpServer.start(respondJson);
      const server = await RawHttpServer.start((received) =>
        received.respond(307, { Location: other.url.href }),
      );
      const witness = await HttpTransportRecorder.open(server, more);
      const outcome = await witness.sendRequest("a").outcome;
      assert.equal(codeOf(outcome), "serverRefused");
      assert.ok(text(outcome).includes(other.url.href) && text(outcome).includes(server.url.href));
      assert.equal(other.connections, 0);
      await end(witness, server, other);
    });
  }

  it("to another server are followed where nothing is confided", async () => {
    const other = await RawHttpServer.start(respondJson);
    const server = await RawHttpServer.start((received) =>
      received.respond(307, { Location: other.url.href }),
    );
    const witness = await HttpTransportRecorder.open(server);
    assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    await end(witness, server, other);
  });

  for (const [status, what] of [
    [307, "for the first time"],
    [308, "for the first time"],
    [307, "after a token was renewed"],
    [308, "after a scope did not suffice"],
  ] as const) {
    it(`to another server (HTTP ${status}) are gone back from when credentials come ${what}`, async () => {
      const SECRET = "Bearer for-the-first-server-alone";
      const challenge = `Bearer error="${what.includes("scope") ? "insufficient_scope" : "invalid_token"}", resource_metadata="http://127.0.0.1:1/"`;
      const other = await RawHttpServer.start(
        withHandshake((received) =>
          received.respond(what.includes("scope") ? 403 : 401, { "WWW-Authenticate": challenge }),
        ),
      );
      let isMoved = true;
      const server = await RawHttpServer.start((received) => {
        if (isMoved) received.respond(status, { Location: other.url.href });
        else withHandshake(respondJson)(received);
      });
      let worn = "";
      const renewals: AuthChallenge[] = [];
      const credentials: RequestCredentials = {
        getHeaders: () => (worn === "" ? {} : { Authorization: worn }),
        renew(given) {
          renewals.push(given);
          if (what.includes("renewed")) worn = SECRET;
          return Promise.resolve(worn !== "");
        },
      };
      const witness = await HttpTransportRecorder.openInitialized(server, { credentials });
      await until(() => other.requests.length === 3);
      const first = await witness.sendRequest("a").outcome;
      // Another server has no say in which tokens are got where.
      assert.ok([...renewals, ...witness.challenges].every(({ header }) => header === undefined));
      worn = SECRET;
      const again = await witness.sendRequest("a").outcome;
      for (const outcome of what.includes("renewed") ? [first, again] : [again]) {
        assert.equal(codeOf(outcome), "serverRefused");
        assert.ok(text(outcome).includes(server.url.href), text(outcome));
        assert.ok(!text(outcome).includes(SECRET));
      }
      isMoved = false;
      assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
      const last = server.requests.findLast((received) => requestMethodOf(received) === "a");
      assert.equal(last?.headers.get("authorization"), SECRET);
      await end(witness, server, other);
      assert.ok(other.requests.length > 3);
      for (const { headers } of other.requests) assert.equal(headers.has("authorization"), false);
    });
  }

  it("to another server with a stream of events (HTTP+SSE) take no credentials there", async () => {
    let stream: ChunkedResponse | undefined;
    const other = await RawHttpServer.start((received) => {
      if (received.method === "GET") {
        stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write("event: endpoint\ndata: /messages\n\n");
      } else {
        received.respond(202);
        if (requestMethodOf(received) === "initialize") {
          stream?.write(`event: message\ndata: ${responseTextFor(received)}\n\n`);
        }
      }
    });
    const server = await RawHttpServer.start((received) =>
      received.respond(308, { Location: new URL("/sse", other.url).href }),
    );
    let worn = {};
    const credentials: RequestCredentials = {
      getHeaders: () => worn,
      renew: () => Promise.resolve(false),
    };
    const witness = await HttpTransportRecorder.openInitialized(server, {
      transport: "sse",
      credentials,
    });
    worn = { Authorization: "Bearer for-the-first-server-alone" };
    const outcome = await witness.sendRequest("a").outcome;
    assert.equal(codeOf(outcome), "serverRefused");
    assert.ok(text(outcome).includes(server.url.href), text(outcome));
    await end(witness, server, other);
    for (const { headers } of other.requests) assert.equal(headers.has("authorization"), false);
  });

  it("within a server are remembered also when credentials come later", async () => {
    const server = await RawHttpServer.start((received) => {
      if (received.path === "/mcp") received.respond(308, { Location: "/v2/mcp" });
      else withHandshake(answerIf("late"))(received);
    });
    let worn = {};
    const credentials: RequestCredentials = {
      getHeaders: () => worn,
      renew() {
        worn = { Authorization: "Bearer late" };
        return Promise.resolve(true);
      },
    };
    const witness = await HttpTransportRecorder.openInitialized(server, { credentials });
    for (let n = 0; n < 2; n++) assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    await end(witness, server);
    assert.equal(server.requests.filter(({ path }) => path === "/mcp").length, 1);
  });

  it("that go on and on, or may only be read, are not followed", async () => {
    const server = await RawHttpServer.start((received) => {
      received.respond(requestMethodOf(received) === "a" ? 307 : 302, { Location: received.path });
    });
    const witness = await HttpTransportRecorder.open(server);
    assert.match(text(await witness.sendRequest("a").outcome), /on and on/);
    assert.match(text(await witness.sendRequest("b").outcome), /HTTP 302/);
    assert.equal(server.requests.length, 7);
    await end(witness, server);
  });
});

describe("an answer that is compressed unasked", () => {
  it("is refused by its name", async () => {
    const server = await RawHttpServer.start((received) => {
      received.respond(200, { ...JSON_HEADERS, "Content-Encoding": "gzip" }, "x");
    });
    const witness = await HttpTransportRecorder.open(server);
    assert.match(text(await witness.sendRequest("a").outcome), /compressed \(gzip\)/);
    await end(witness, server);
  });
});

describe("a server that has no time", () => {
  it("keeps nobody from closing the link", async () => {
    const server = await RawHttpServer.start((received) =>
      received.respond(429, { "Retry-After": "20" }),
    );
    const witness = await HttpTransportRecorder.open(server);
    void witness.sendRequest("a");
    await until(() => server.requests.length === 1 && server.sockets.size === 0);
    await end(witness, server);
    assert.equal(server.requests.length, 1);
  });

  for (const status of [429, 503]) {
    it(`and says when it will (HTTP ${status}) is asked again then`, async () => {
      let count = 0;
      const server = await RawHttpServer.start((received) => {
        if (++count < 3) received.respond(status, { "Retry-After": "0" });
        else respondJson(received);
      });
      const witness = await HttpTransportRecorder.open(server);
      assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
      await end(witness, server);
    });
  }

  it("for long has done nothing, and says so", async () => {
    const server = await RawHttpServer.start(
      withHandshake((received) => received.respond(429, { "Retry-After": "3600" }, "Slow down.")),
    );
    const witness = await HttpTransportRecorder.openInitialized(server);
    const outcome = await witness.sendRequest("a").outcome;
    assert.equal(codeOf(outcome), "serverFailed", "nobody is to send it again");
    assert.match(text(outcome), /429 \(Retry-After: 3600\): Slow down\.$/);
    await end(witness, server);
  });

  it("is not asked for ever", async () => {
    const server = await RawHttpServer.start(
      withHandshake((received) => received.respond(503, { "Retry-After": "0" })),
    );
    const witness = await HttpTransportRecorder.openInitialized(server);
    assert.equal(codeOf(await witness.sendRequest("a").outcome), "serverFailed");
    assert.equal(server.requests.filter((received) => requestMethodOf(received) === "a").length, 4);
    await end(witness, server);
  });

  for (const [status, code] of [
    [500, "answerLost"],
    [502, "answerLost"],
    [503, "notDelivered"],
    [504, "answerLost"],
    [410, "serverRefused"],
  ] as const) {
    it(`is ${code} with HTTP ${status} of a call`, async () => {
      const server = await RawHttpServer.start(
        withHandshake((received) => received.respond(status)),
      );
      const witness = await HttpTransportRecorder.openInitialized(server);
      assert.equal(codeOf(await witness.sendRequest("a").outcome), code);
      await end(witness, server);
    });
  }
});

describe("an error in JSON-RPC", () => {
  for (const [status, id] of [
    [400, "own"],
    [404, "own"],
    [500, "own"],
    [400, "null"],
  ] as const) {
    it(`is the answer under HTTP ${status} with the id ${id}`, async () => {
      const server = await RawHttpServer.start(
        withHandshake((received) => {
          const shown = id === "own" ? requestIdOf(received) : "null";
          const error = `{"jsonrpc":"2.0","error":{"code":-32601,"message":"x", "data":1.0},"id":${shown}}`;
          received.respond(status, JSON_HEADERS, error);
        }, ""),
      );
      const witness = await HttpTransportRecorder.openInitialized(server);
      assert.match(
        text(await witness.sendRequest("a").outcome),
        /"code":-32601,"message":"x", "data":1\.0/,
      );
      await end(witness, server);
    });
  }

  it("may come with others in one array", async () => {
    const server = await RawHttpServer.start(
      withHandshake((received) => {
        received.respond(
          200,
          JSON_HEADERS,
          `[{"jsonrpc":"2.0","method":"n"},${responseTextFor(received)}]`,
        );
      }),
    );
    const witness = await HttpTransportRecorder.openInitialized(server);
    assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    assert.ok(witness.has(/^batch of 2/));
    await end(witness, server);
  });
});

describe("a session", () => {
  it("is named with everything after the greeting, and ended", async () => {
    const server = await RawHttpServer.start(withHandshake(respondJson));
    const witness = await HttpTransportRecorder.openInitialized(server);
    await witness.sendRequest("a").outcome;
    await end(witness, server);
    const [greeting, ...others] = server.requests;
    assert.equal(greeting?.headers.has("mcp-session-id"), false);
    assert.deepEqual(others.map(requestMethodOf).toSorted(), [
      "DELETE",
      "GET",
      "a",
      "notifications/initialized",
    ]);
    for (const { headers } of others) {
      assert.equal(headers.get("mcp-session-id"), "session-1");
      assert.equal(headers.get("mcp-protocol-version"), "2025-11-25");
      assert.equal(headers.has("mcp-method"), false);
    }
  });

  it("is not asked for anything before it has heard what it was told first", async () => {
    let release = (): void => {};
    const server = await RawHttpServer.start((received) => {
      if (requestMethodOf(received) === "notifications/initialized")
        release = () => received.respond(202);
      else withHandshake(respondJson)(received);
    });
    const witness = await HttpTransportRecorder.openInitialized(server);
    const asked = witness.sendRequest("a");
    await until(() => server.requests.length === 2);
    assert.equal(
      server.requests.some((received) => requestMethodOf(received) === "a"),
      false,
    );
    release();
    assert.match(text(await asked.outcome), /"ok"/);
    await end(witness, server);
  });

  it("has a stream for what the server says unasked, which is asked for again from where it ended", async () => {
    const streams: { stream: ChunkedResponse; received: RawHttpRequest }[] = [];
    const server = await RawHttpServer.start((received) => {
      if (received.method === "GET")
        streams.push({ stream: received.beginResponse(200, EVENT_STREAM_HEADERS), received });
      else withHandshake(respondJson)(received);
    });
    const witness = await HttpTransportRecorder.openInitialized(server);
    await until(() => streams.length === 1);
    streams[0]?.stream.write(`id: 7\nretry: 1\ndata: {"jsonrpc":"2.0","method":"n"}\n\n`);
    await witness.until(/^notification shared/);
    streams[0]?.stream.end();
    await until(() => streams.length === 2);
    assert.equal(streams[1]?.received.headers.get("last-event-id"), "7");
    assert.deepEqual(witness.causes, []);
    await end(witness, server);
  });

  it("that a server refuses like any bad request is asked after: forgotten, it ends the link", async () => {
    let isForgotten = false;
    const refusal = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"},"id":null}`;
    const server = await RawHttpServer.start((received) => {
      const isKnown = received.headers.get("mcp-session-id") !== "session-1" || !isForgotten;
      if (!isKnown || requestMethodOf(received) === "bad")
        received.respond(400, JSON_HEADERS, refusal);
      else withHandshake(respondJson)(received);
    });
    const witness = await HttpTransportRecorder.openInitialized(server);
    assert.match(text(await witness.sendRequest("bad").outcome), /Bad Request/);
    assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    isForgotten = true;
    assert.equal(codeOf(await witness.sendRequest("a").outcome), "notDelivered");
    await witness.until(/^closed connectionLost/);
    await end(witness, server);
  });
});

describe("the modern era over HTTP", () => {
  it("says in headers what a request is, and tells nothing unasked", async () => {
    const server = await RawHttpServer.start(respondJson);
    const witness = await HttpTransportRecorder.open(server);
    const headers = { "MCP-Protocol-Version": "2026-07-28" };
    await witness.sendRequest("server/discover", { headers }).outcome;
    witness.transport.adopt?.({ era: "modern", version: "2026-07-28" });
    witness.sendNotification("notifications/cancelled");
    const named = {
      name: "Grüße",
      headers: { "Mcp-Param-Path": "/x", "Mcp-Param-Bad": "a\r\nb: c" },
    };
    await witness.sendRequest("tools/call", named).outcome;
    await witness.sendRequest("tools/call", { name: "plain name" }).outcome;
    await witness.sendRequest("tools/call", { name: "=?base64?eA==?=" }).outcome;
    await end(witness, server);
    const shown = server.requests.map(({ headers: found }) => [
      found.get("mcp-protocol-version"),
      found.get("mcp-method"),
      found.get("mcp-name"),
    ]);
    assert.deepEqual(shown, [
      ["2026-07-28", "server/discover", undefined],
      ["2026-07-28", "tools/call", `=?base64?${btoa("GrÃ¼Ã\x9fe")}?=`],
      ["2026-07-28", "tools/call", "plain name"],
      ["2026-07-28", "tools/call", `=?base64?${btoa("=?base64?eA==?=")}?=`],
    ]);
    assert.equal(server.requests[1]?.headers.get("mcp-param-path"), "/x");
    assert.equal(server.requests[1]?.headers.has("b"), false);
  });
});

describe("connections", () => {
  it("are not used again after an answer in chunks that also says its length", async () => {
    const server = await RawHttpServer.start((received) => {
      const body = responseTextFor(received);
      const size = body.length.toString(16);
      received.write(
        `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nTransfer-Encoding: chunked\r\n\r\n${size}\r\n${body}\r\n0\r\n\r\n`,
      );
    });
    const witness = await HttpTransportRecorder.open(server);
    for (let n = 0; n < 3; n++) assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    assert.equal(server.connections, 3);
    await end(witness, server);
  });

  it("are as many as there are calls in flight, and are used again", async () => {
    const held: RawHttpRequest[] = [];
    const server = await RawHttpServer.start((received) => {
      held.push(received);
      if (held.length >= 400) held.splice(0).forEach(respondJson);
    });
    const witness = await HttpTransportRecorder.open(server);
    for (const _ of [1, 2]) {
      const all = Array.from({ length: 400 }, () => witness.sendRequest("a").outcome);
      for (const outcome of all) assert.match(text(await outcome), /"ok"/);
    }
    assert.equal(server.connections, 400);
    await end(witness, server);
  });

  it(
    "that are not needed any more are closed after some seconds",
    { timeout: 15_000 },
    async () => {
      const server = await RawHttpServer.start((received) => {
        received.respond(
          200,
          { ...JSON_HEADERS, "Keep-Alive": "timeout=1" },
          responseTextFor(received),
        );
      });
      const witness = await HttpTransportRecorder.open(server);
      assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
      // The server says that it keeps it for a second only: too short to be relied upon.
      assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
      assert.equal(server.connections, 2);
      await until(() => server.sockets.size === 0);
      await end(witness, server);
    },
  );
});

describe("single requests", () => {
  it("bear what they are given, and yield what is answered", async () => {
    const server = await RawHttpServer.start((received) =>
      received.respond(418, { "X-A": "b" }, received.body),
    );
    const dial = makeFetch({ ca: undefined, env: {} });
    const body = new URLSearchParams({ grant: "ü" });
    const response = await dial(server.url, { method: "post", headers: { "X-B": "c" }, body });
    assert.equal(response.status, 418);
    assert.equal(response.headers.get("x-a"), "b");
    assert.equal(await response.text(), "grant=%C3%BC");
    const [received] = server.requests;
    assert.equal(received?.method, "POST");
    assert.equal(received?.headers.get("x-b"), "c");
    assert.match(
      received?.headers.get("content-type") ?? "",
      /^application\/x-www-form-urlencoded/,
    );
    await server.allClosed();
  });

  it("end when they are given up, also in the middle of the answer", async () => {
    const server = await RawHttpServer.start((received) =>
      received.beginResponse(200, {}).write("half"),
    );
    const abort = new AbortController();
    const { signal } = abort;
    const response = await makeFetch({ ca: undefined, env: {} })(server.url, { signal });
    const reading = response.text();
    abort.abort(new Error("enough"));
    await assert.rejects(reading, /enough/);
    await server.allClosed();
  });

  it("say that there is no answer where there is only half of one", async () => {
    const server = await RawHttpServer.start((received) => {
      received.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
      received.socket.end();
    });
    const response = await makeFetch({ ca: undefined, env: {} })(server.url);
    await assert.rejects(response.text(), { code: "answerLost" });
    await server.allClosed();
  });
});

describe("the way over HTTP", () => {
  /** A server of the time before Streamable HTTP. */
  function old(): (received: RawHttpRequest) => void {
    let stream: ChunkedResponse | undefined;
    return (received) => {
      if (received.path === "/mcp" && received.method === "GET") {
        stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write("event: endpoint\ndata: /post\n\n");
      } else if (received.path === "/post") {
        received.respond(202);
        if (!Number.isNaN(requestIdOf(received)))
          stream?.write(`data: ${responseTextFor(received)}\n\n`);
      } else {
        received.respond(405);
      }
    };
  }

  it("is found out by the greeting, and remembered", async () => {
    const server = await RawHttpServer.start(old());
    const found: HttpTransportKind[] = [];
    const target = targetOf(server.url);
    const wayfinder = {
      get kind() {
        return found.at(-1);
      },
      remember: (way: HttpTransportKind) => void found.push(way),
    };
    for (const n of [1, 2]) {
      const witness = new HttpTransportRecorder({ ...target, knownTransport: wayfinder });
      await witness.transport.open(witness, new AbortController().signal);
      if (n === 1)
        assert.match(text(await witness.sendRequest("server/discover").outcome), /-32601/);
      assert.match(text(await witness.sendRequest("initialize").outcome), /"ok"/);
      witness.transport.adopt?.({ era: "legacy", version: "2024-11-05" });
      assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
      assert.equal(witness.transport.hasStreams, undefined);
      await witness.transport.close();
    }
    await server.allClosed();
    assert.deepEqual(found, ["sse"]);
    assert.deepEqual(
      server.requests.map(({ method, path }) => `${method} ${path}`),
      [
        ..."POST /mcp,POST /mcp,GET /mcp,POST /post,POST /post".split(","),
        ..."GET /mcp,POST /post,POST /post".split(","),
      ],
    );
  });

  it("that was remembered and is another now is found out again", async () => {
    const server = await RawHttpServer.start(withHandshake(respondJson));
    let known: HttpTransportKind = "sse";
    const wayfinder = {
      get kind() {
        return known;
      },
      remember: (way: HttpTransportKind) => void (known = way),
    };
    const witness = await HttpTransportRecorder.open(server, { knownTransport: wayfinder });
    await witness.initialize();
    assert.match(text(await witness.sendRequest("a").outcome), /"ok"/);
    assert.equal(known, "http");
    await end(witness, server);
  });

  it("that leads nowhere says what the server has said", async () => {
    const server = await RawHttpServer.start((received) =>
      received.respond(404, {}, "No such page."),
    );
    const witness = await HttpTransportRecorder.open(server);
    assert.match(text(await witness.sendRequest("server/discover").outcome), /-32601/);
    const outcome = await witness.sendRequest("initialize").outcome;
    assert.equal(codeOf(outcome), "serverRefused");
    assert.match(text(outcome), /HTTP 404: No such page\.$/);
    await end(witness, server);
  });

  it("of old leads to no other server", async () => {
    const other = await RawHttpServer.start(respondJson);
    const server = await RawHttpServer.start((received) => {
      received
        .beginResponse(200, EVENT_STREAM_HEADERS)
        .write(`event: endpoint\ndata: ${other.url.href}\n\n`);
    });
    const witness = await HttpTransportRecorder.open(server, { transport: "sse" });
    void witness.sendRequest("initialize");
    await witness.until(/^closed serverRefused/);
    assert.equal(other.connections, 0);
    await end(witness, server, other);
  });

  it("of old ends with its stream", async () => {
    let stream: ChunkedResponse | undefined;
    const server = await RawHttpServer.start((received) => {
      if (received.method !== "GET") return received.respond(202);
      stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
      stream.write("event: endpoint\ndata: /post\n\n");
    });
    const witness = await HttpTransportRecorder.open(server, { transport: "sse" });
    void witness.sendRequest("initialize");
    await until(() => server.requests.length === 2);
    stream?.end();
    await witness.until(/^closed connectionLost/);
    await end(witness, server);
  });
});
