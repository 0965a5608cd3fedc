import assert from "node:assert/strict";
import { describe } from "node:test";
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
import {
  respondJson,
  EVENT_STREAM_HEADERS,
  withHandshake,
  requestIdOf,
  JSON_HEADERS,
  requestMethodOf,
  responseTextFor,
} from "../../fixtures/http-transport-recorder.ts";
import { it, until } from "./link.ts";

const GREETED = { transport: "http" } as const;
const BAD_TOKEN = `Bearer error="invalid_token"`;

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

/** Credentials that are what the test sets, by default none, and what is given to have them renewed. */
function wearing(renew: (worn: { token: string }) => void = () => {}) {
  const worn = { token: "" };
  const renewals: AuthChallenge[] = [];
  const credentials: RequestCredentials = {
    getHeaders: () => (worn.token === "" ? {} : { Authorization: `Bearer ${worn.token}` }),
    renew(challenge) {
      renewals.push(challenge);
      renew(worn);
      return Promise.resolve(worn.token !== "");
    },
  };
  return { worn, renewals, credentials };
}

const bearerOf = ({ headers }: RawHttpRequest): string | undefined => headers.get("authorization");

function answerIf(token: string): (received: RawHttpRequest) => void {
  return (received) => {
    if (bearerOf(received) === `Bearer ${token}`) respondJson(received);
    else received.respond(401, { "WWW-Authenticate": BAD_TOKEN });
  };
}

describe("text that is not valid UTF-8 over HTTP", () => {
  const VALID = "é€😀";
  const join = (...pieces: (string | Uint8Array)[]): Uint8Array =>
    joinPieces(pieces.map((piece) => (typeof piece === "string" ? utf8(piece) : piece)));

  for (const [name, bytes, shown, isFlaw] of [
    ["a byte that is in no character", Uint8Array.of(0xff), "\ufffd", true],
    ["half a character", Uint8Array.of(0xe2, 0x82), "\ufffd", true],
    ["characters of every length", utf8(VALID), VALID, false],
  ] as const) {
    for (const way of ["JSON", "events"]) {
      it(`comes with U+FFFD in its place as ${way}: ${name}`, async ({ open }) => {
        const note = '{"jsonrpc":"2.0","method":"n","params":{"x":"';
        const { witness, ask } = await open((received) => {
          const head = `{"jsonrpc":"2.0","id":${requestIdOf(received)},"result":{"x":"`;
          const body = join(head, bytes, '"}}');
          if (way === "JSON") return received.respond(200, JSON_HEADERS, body);
          const stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
          // A note that belongs to the request comes first; every byte comes alone.
          stream.write(join(`data: ${note}`, bytes, '"}}\n\ndata: ', body, "\n\n"), 1);
          return stream.end();
        }, GREETED);
        const answer = await ask("initialize");
        assert.equal(answer, `{"jsonrpc":"2.0","id":1,"result":{"x":"${shown}"}}`);
        const notes = witness.events.filter((event) => event.startsWith("notification"));
        assert.deepEqual(notes, way === "JSON" ? [] : [`notification own ${note}${shown}"}}`]);
        assert.equal(witness.events.includes("flaw invalidText"), isFlaw);
      });
    }
  }

  it("is no part of a message that begins with a byte order mark, as JSON or as an event", async (links) => {
    const { ask } = await links.open((received) => {
      const body = `\ufeff{"jsonrpc":"2.0","id":${requestIdOf(received)},"result":{}}`;
      if (requestIdOf(received) === 1) received.respond(200, JSON_HEADERS, body);
      else received.beginResponse(200, EVENT_STREAM_HEADERS).write(`data: ${body}\n\n`);
    }, GREETED);
    for (const id of [1, 2]) {
      const answer = await ask("initialize");
      assert.equal(answer, `{"jsonrpc":"2.0","id":${id},"result":{}}`);
    }
  });
});

describe("who is let in over HTTP", () => {
  it("a request that is not is sent again with what was renewed", async ({ open }) => {
    const credentials = tokens("old", "new");
    const { witness, assertOk } = await open(answerIf("new"), { credentials });
    await assertOk("initialize");
    assert.deepEqual(credentials.renewals, [{ status: 401, header: BAD_TOKEN }]);
    assert.deepEqual(witness.challenges, []);
  });

  it("many that are not have it renewed once", async ({ open }) => {
    const credentials = tokens("old", "new", "newer");
    const { assertOk } = await open(answerIf("new"), { credentials });
    await Promise.all(Array.from({ length: 20 }, () => assertOk()));
    assert.equal(credentials.renewals.length, 1);
  });

  it("a server that never lets anybody in is not asked for ever, and tells once what it wants", async (links) => {
    const credentials = tokens("a", "b");
    const { server, witness, ask } = await links.open(answerIf("other"), { credentials });
    for (let n = 0; n < 3; n++) assert.match(await ask("initialize"), /^unauthorized/);
    assert.equal(witness.challenges.map(({ status }) => status).join(), "401");
    assert.equal(server.requests.length, 4);
  });

  it("a scope that does not suffice is a challenge, any other prohibition is none", async (links) => {
    const scope = `Bearer error="insufficient_scope", scope="files:write"`;
    const { witness, ask } = await links.open((received) => {
      if (requestMethodOf(received) === "a") received.respond(403, { "WWW-Authenticate": scope });
      else received.respond(403, {}, "Not from here.");
    });
    assert.match(await ask("a"), /^unauthorized/);
    assert.deepEqual(witness.challenges, [{ status: 403, header: scope }]);
    assert.match(await ask("b"), /^serverRefused.*HTTP 403: "Not from here\."\.$/);
  });

  it("what the manifest says goes before what was got", async ({ open }) => {
    const headers = { authorization: "Bearer mine", "X-Team": "t" };
    const credentials = tokens("got");
    const { server, assertOk } = await open(answerIf("mine"), { headers, credentials });
    await assertOk();
    assert.equal(server.requests[0]?.headers.get("x-team"), "t");
  });
});

describe("credentials", () => {
  const none = (): never => {
    throw new HubError("unauthorized", "There are none.");
  };
  for (const [what, credentials] of [
    ["would begin a header of their own", tokens("a\r\nX-Evil: 1")],
    ["cannot be had", { getHeaders: none, renew: () => Promise.resolve(false) }],
  ] as const)
    it(`that ${what} fail what needs them, and not whoever sends it, before anything is sent`, async (links) => {
      const { server, ask } = await links.open(respondJson, { credentials });
      assert.match(await ask(), /^unauthorized/);
      assert.equal(server.requests.length, 0);
    });
});

describe("redirects", () => {
  const SECRET = "for-the-first-server-alone";
  const to =
    (server: RawHttpServer, status = 307) =>
    (received: RawHttpRequest): void =>
      received.respond(status, { Location: server.url.href });
  const moved =
    (handle: (received: RawHttpRequest) => void) =>
    (received: RawHttpRequest): void => {
      if (received.path === "/mcp") received.respond(308, { Location: "/v2/mcp" });
      else handle(received);
    };
  const assertNothingConfided = ({ requests }: RawHttpServer): void => {
    for (const request of requests) assert.equal(bearerOf(request), undefined);
  };

  it("within a server are followed, and remembered", async ({ open }) => {
    const headers = { Authorization: "Bearer x" };
    const { server, assertOk } = await open(moved(respondJson), { headers });
    await assertOk("a", 3);
    const paths = server.requests.map(({ path }) => path);
    assert.deepEqual(paths, ["/mcp", "/v2/mcp", "/v2/mcp", "/v2/mcp"]);
  });

  for (const [what, more] of [
    ["a header of the manifest", { headers: { "X-Key": "k" } }],
    ["credentials", { credentials: tokens("t") }],
  ] as const) {
    it(`to another server are not followed with ${what}`, async ({ serve, open }) => {
      const other = await serve(respondJson);
      const { server, ask } = await open(to(other), more);
      const text = await ask();
      assert.match(text, /^serverRefused/);
      assert.ok(text.includes(other.url.href) && text.includes(server.url.href));
      assert.equal(other.connections, 0);
    });
  }

  it("to another server are followed where nothing is confided", async ({ serve, open }) => {
    const { assertOk } = await open(to(await serve(respondJson)));
    await assertOk();
  });

  for (const [status, what] of [
    [307, "for the first time"],
    [308, "for the first time"],
    [307, "after a token was renewed"],
    [308, "after a scope did not suffice"],
  ] as const) {
    it(`to another server (HTTP ${status}) are gone back from when credentials come ${what}`, async (links) => {
      const isScope = what.includes("scope");
      const error = isScope ? "insufficient_scope" : "invalid_token";
      const challenge = `Bearer error="${error}", resource_metadata="http://127.0.0.1:1/"`;
      const refuse = (received: RawHttpRequest): void =>
        received.respond(isScope ? 403 : 401, { "WWW-Authenticate": challenge });
      const other = await links.serve(withHandshake(refuse));
      let isMoved = true;
      const isRenewed = what.includes("renewed");
      const { worn, renewals, credentials } = wearing((now) => {
        if (isRenewed) now.token = SECRET;
      });
      const { server, witness, ask, assertOk, end } = await links.open(
        (received) => (isMoved ? to(other, status) : withHandshake(respondJson))(received),
        { ...GREETED, credentials },
      );
      await witness.initialize();
      await until(() => other.requests.length === 3);
      const first = await ask();
      // Another server has no say in which tokens are got where.
      assert.ok([...renewals, ...witness.challenges].every(({ header }) => header === undefined));
      worn.token = SECRET;
      const again = await ask();
      for (const text of isRenewed ? [first, again] : [again]) {
        assert.match(text, /^serverRefused/);
        assert.ok(text.includes(server.url.href) && !text.includes(SECRET), text);
      }
      isMoved = false;
      await assertOk();
      const last = server.requests.findLast((received) => requestMethodOf(received) === "a");
      assert.equal(last && bearerOf(last), `Bearer ${SECRET}`);
      await end();
      assert.ok(other.requests.length > 3);
      assertNothingConfided(other);
    });
  }

  it("to another server with a stream of events (HTTP+SSE) take no credentials there", async (links) => {
    let stream: ChunkedResponse | undefined;
    const other = await links.serve((received) => {
      if (received.method === "GET") {
        stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write("event: endpoint\ndata: /messages\n\n");
      } else {
        received.respond(202);
        if (requestMethodOf(received) !== "initialize") return;
        stream?.write(`event: message\ndata: ${responseTextFor(received)}\n\n`);
      }
    });
    const { worn, credentials } = wearing();
    const Location = new URL("/sse", other.url).href;
    const { server, witness, ask, end } = await links.open(
      (received) => received.respond(308, { Location }),
      { transport: "sse", credentials },
    );
    await witness.initialize();
    worn.token = SECRET;
    const text = await ask();
    assert.match(text, /^serverRefused/);
    assert.ok(text.includes(server.url.href), text);
    await end();
    assertNothingConfided(other);
  });

  it("within a server are remembered also when credentials come later", async ({ open }) => {
    const { credentials } = wearing((worn) => void (worn.token = "late"));
    const handle = moved(withHandshake(answerIf("late")));
    const { server, witness, assertOk } = await open(handle, { ...GREETED, credentials });
    await witness.initialize();
    await assertOk("a", 2);
    assert.equal(server.requests.filter(({ path }) => path === "/mcp").length, 1);
  });

  it("that go on and on, or may only be read, are not followed", async ({ open }) => {
    const { server, ask } = await open((received) => {
      received.respond(requestMethodOf(received) === "a" ? 307 : 302, { Location: received.path });
    });
    assert.match(await ask("a"), /too many redirects/);
    assert.match(await ask("b"), /HTTP 302/);
    assert.equal(server.requests.length, 7);
  });
});

describe("an answer that is compressed unasked", () => {
  it("is refused by its name", async ({ open }) => {
    const headers = { ...JSON_HEADERS, "Content-Encoding": "gzip" };
    const { ask } = await open((received) => received.respond(200, headers, "x"));
    assert.match(await ask(), /compressed \(gzip\)/);
  });
});

describe("a server that has no time", () => {
  it("keeps nobody from closing the link", async ({ open }) => {
    const { server, ask, end } = await open((received) =>
      received.respond(429, { "Retry-After": "20" }),
    );
    void ask();
    await until(() => server.requests.length === 1 && server.sockets.size === 0);
    await end();
    assert.equal(server.requests.length, 1);
  });

  for (const status of [429, 503]) {
    it(`and says when it will (HTTP ${status}) is asked again then`, async ({ open }) => {
      let count = 0;
      const { assertOk } = await open((received) => {
        if (++count < 3) received.respond(status, { "Retry-After": "0" });
        else respondJson(received);
      });
      await assertOk();
    });
  }

  it("for long has done nothing, and says so", async ({ meet }) => {
    const { ask } = await meet((received) =>
      received.respond(429, { "Retry-After": "3600" }, "Slow down."),
    );
    // Nobody is to send it again.
    assert.match(await ask(), /^serverFailed.*429 \(Retry-After: 3600\): "Slow down\."\.$/);
  });

  it("is not asked for ever", async ({ meet }) => {
    const { server, ask } = await meet((received) => received.respond(503, { "Retry-After": "0" }));
    assert.match(await ask(), /^serverFailed/);
    assert.equal(server.requests.filter((received) => requestMethodOf(received) === "a").length, 4);
  });

  for (const [status, code] of [
    [500, "answerLost"],
    [502, "answerLost"],
    [503, "notDelivered"],
    [504, "answerLost"],
    [410, "serverRefused"],
  ] as const) {
    it(`is ${code} with HTTP ${status} of a call`, async ({ meet }) => {
      const { ask } = await meet((received) => received.respond(status));
      assert.ok((await ask()).startsWith(`${code}:`));
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
    it(`is the answer under HTTP ${status} with the id ${id}`, async ({ meet }) => {
      const error = '"error":{"code":-32601,"message":"x", "data":1.0}';
      const { ask } = await meet(
        (received) => {
          const shown = id === "own" ? requestIdOf(received) : "null";
          received.respond(status, JSON_HEADERS, `{"jsonrpc":"2.0",${error},"id":${shown}}`);
        },
        {},
        "",
      );
      assert.ok((await ask()).includes(error));
    });
  }

  it("may come with others in one array", async ({ meet }) => {
    const { witness, assertOk } = await meet((received) => {
      const body = `[{"jsonrpc":"2.0","method":"n"},${responseTextFor(received)}]`;
      received.respond(200, JSON_HEADERS, body);
    });
    await assertOk();
    assert.ok(witness.has(/^batch of 2/));
  });
});

describe("a session", () => {
  it("is named with everything after the greeting, and ended", async ({ meet }) => {
    const { server, assertOk, end } = await meet(respondJson);
    await assertOk();
    await end();
    const [greeting, ...others] = server.requests;
    assert.equal(greeting?.headers.has("mcp-session-id"), false);
    const methods = others.map(requestMethodOf).toSorted();
    assert.deepEqual(methods, ["DELETE", "GET", "a", "notifications/initialized"]);
    for (const { headers } of others) {
      assert.equal(headers.get("mcp-session-id"), "session-1");
      assert.equal(headers.get("mcp-protocol-version"), "2025-11-25");
      assert.equal(headers.has("mcp-method"), false);
    }
  });

  it("is not asked for anything before it has heard what it was told first", async ({ open }) => {
    let release = (): void => {};
    const { server, witness, assertOk } = await open((received) => {
      if (requestMethodOf(received) === "notifications/initialized")
        release = () => received.respond(202);
      else withHandshake(respondJson)(received);
    }, GREETED);
    await witness.initialize();
    const asked = assertOk();
    await until(() => server.requests.length === 2);
    assert.ok(!server.requests.some((received) => requestMethodOf(received) === "a"));
    release();
    await asked;
  });

  it("has a stream for what the server says unasked, which is asked for again from where it ended", async (links) => {
    const streams: { stream: ChunkedResponse; received: RawHttpRequest }[] = [];
    const { witness } = await links.open((received) => {
      if (received.method !== "GET") withHandshake(respondJson)(received);
      else streams.push({ stream: received.beginResponse(200, EVENT_STREAM_HEADERS), received });
    }, GREETED);
    await witness.initialize();
    await until(() => streams.length === 1);
    streams[0]?.stream.write(`id: 7\nretry: 1\ndata: {"jsonrpc":"2.0","method":"n"}\n\n`);
    await witness.until(/^notification shared/);
    streams[0]?.stream.end();
    await until(() => streams.length === 2);
    assert.equal(streams[1]?.received.headers.get("last-event-id"), "7");
    assert.deepEqual(witness.causes, []);
  });

  it("that a server refuses like any bad request is asked after: forgotten, it ends the link", async (links) => {
    let isForgotten = false;
    const refusal = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"},"id":null}`;
    const { witness, ask, assertOk } = await links.open((received) => {
      const isKnown = received.headers.get("mcp-session-id") !== "session-1" || !isForgotten;
      if (!isKnown || requestMethodOf(received) === "bad")
        received.respond(400, JSON_HEADERS, refusal);
      else withHandshake(respondJson)(received);
    }, GREETED);
    await witness.initialize();
    assert.match(await ask("bad"), /Bad Request/);
    await assertOk();
    isForgotten = true;
    assert.match(await ask(), /^notDelivered/);
    await witness.until(/^closed connectionLost/);
  });
});

describe("the modern era over HTTP", () => {
  it("says in headers what a request is, and tells nothing unasked", async ({ open }) => {
    const { server, witness, end } = await open(respondJson);
    const version = "2026-07-28";
    const headers = { "MCP-Protocol-Version": version };
    await witness.sendRequest("server/discover", { headers }).outcome;
    witness.transport.adopt?.({ era: "modern", version });
    witness.sendNotification("notifications/cancelled");
    const params = { "Mcp-Param-Path": "/x", "Mcp-Param-Bad": "a\r\nb: c" };
    for (const named of [
      { name: "Grüße", headers: params },
      { name: "plain name" },
      { name: "=?base64?eA==?=" },
    ])
      await witness.sendRequest("tools/call", named).outcome;
    await end();
    const shown = server.requests.map(({ headers: found }) =>
      ["mcp-protocol-version", "mcp-method", "mcp-name"].map((name) => found.get(name)),
    );
    assert.deepEqual(shown, [
      [version, "server/discover", undefined],
      [version, "tools/call", `=?base64?${btoa("GrÃ¼Ã\x9fe")}?=`],
      [version, "tools/call", "plain name"],
      [version, "tools/call", `=?base64?${btoa("=?base64?eA==?=")}?=`],
    ]);
    assert.equal(server.requests[1]?.headers.get("mcp-param-path"), "/x");
    assert.equal(server.requests[1]?.headers.has("b"), false);
  });
});

describe("connections", () => {
  it("are not used again after an answer in chunks that also says its length", async ({ open }) => {
    const { server, assertOk } = await open((received) => {
      const body = responseTextFor(received);
      const head = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
      const chunks = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
      received.write(`${head}\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`);
    });
    await assertOk("a", 3);
    assert.equal(server.connections, 3);
  });

  it("are as many as there are calls in flight, and are used again", async ({ open }) => {
    const held: RawHttpRequest[] = [];
    const { server, assertOk } = await open((received) => {
      held.push(received);
      if (held.length >= 400) held.splice(0).forEach(respondJson);
    });
    for (const _ of [1, 2]) await Promise.all(Array.from({ length: 400 }, () => assertOk()));
    assert.equal(server.connections, 400);
  });

  it(
    "that are not needed any more are closed after some seconds",
    async ({ open }) => {
      const headers = { ...JSON_HEADERS, "Keep-Alive": "timeout=1" };
      const { server, assertOk } = await open((received) =>
        received.respond(200, headers, responseTextFor(received)),
      );
      // The server says that it keeps it for a second only: too short to be relied upon.
      await assertOk("a", 2);
      assert.equal(server.connections, 2);
      await until(() => server.sockets.size === 0);
    },
    { timeout: 15_000 },
  );
});

describe("single requests", () => {
  const dial = makeFetch({ ca: undefined, env: {} });

  it("bear what they are given, and yield what is answered", async () => {
    const server = await RawHttpServer.start((received) =>
      received.respond(418, { "X-A": "b" }, received.body),
    );
    const body = new URLSearchParams({ grant: "ü" });
    const response = await dial(server.url, { method: "post", headers: { "X-B": "c" }, body });
    assert.deepEqual([response.status, response.headers.get("x-a")], [418, "b"]);
    assert.equal(await response.text(), "grant=%C3%BC");
    const [received] = server.requests;
    assert.deepEqual([received?.method, received?.headers.get("x-b")], ["POST", "c"]);
    const type = received?.headers.get("content-type") ?? "";
    assert.match(type, /^application\/x-www-form-urlencoded/);
    await server.allClosed();
  });

  it("fail when the answer is longer than it may be", async () => {
    const server = await RawHttpServer.start((received) => received.respond(200, {}, "12345"));
    assert.equal(await (await dial(server.url, { maxBody: 5 })).text(), "12345");
    const reading = dial(server.url, { maxBody: 4 }).then((response) => response.text());
    await assert.rejects(reading, { code: "messageTooLarge" });
    await server.allClosed();
  });

  it("take a limited part of an answer that nobody reads", async () => {
    // More than is kept here (16 MiB) and in the kernel (36 MiB by the defaults of Linux) together.
    const [size, part] = [72 * 1024 * 1024, new Uint8Array(1024 * 1024)];
    const server = await RawHttpServer.start((received) => {
      const response = received.beginResponse(200, {});
      for (let sent = 0; sent < size; sent += part.length) response.write(part);
      response.end();
    });
    const unread = await dial(server.url, { maxBody: Infinity });
    const [socket] = server.sockets;
    // Another one takes its turns with it: it has time for its whole answer.
    const read = await dial(server.url, { maxBody: Infinity });
    assert.equal((await read.arrayBuffer()).byteLength, size);
    assert.ok((socket?.writableLength ?? 0) > size / 8);
    assert.equal((await unread.arrayBuffer()).byteLength, size);
    await server.allClosed();
  });

  it("end when they are given up, also in the middle of the answer", async () => {
    const server = await RawHttpServer.start((received) =>
      received.beginResponse(200, {}).write("half"),
    );
    const abort = new AbortController();
    const reading = (await dial(server.url, { signal: abort.signal })).text();
    abort.abort(new Error("enough"));
    await assert.rejects(reading, /enough/);
    await server.allClosed();
  });

  it("say that there is no answer where there is only half of one", async () => {
    const server = await RawHttpServer.start((received) => {
      received.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
      received.socket.end();
    });
    await assert.rejects((await dial(server.url)).text(), { code: "answerLost" });
    await server.allClosed();
  });
});

describe("the way over HTTP", () => {
  const ENDPOINT = "event: endpoint\ndata: /post\n\n";

  /** A server of the time before Streamable HTTP. */
  function old(): (received: RawHttpRequest) => void {
    let stream: ChunkedResponse | undefined;
    return (received) => {
      if (received.path === "/mcp" && received.method === "GET") {
        stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        stream.write(ENDPOINT);
      } else if (received.path === "/post") {
        received.respond(202);
        if (!Number.isNaN(requestIdOf(received)))
          stream?.write(`data: ${responseTextFor(received)}\n\n`);
      } else {
        received.respond(405);
      }
    };
  }

  /** What is known of the way, and what was found out about it. */
  function wayOf(known?: HttpTransportKind) {
    const found: HttpTransportKind[] = [];
    const knownTransport = {
      get kind() {
        return found.at(-1) ?? known;
      },
      remember: (way: HttpTransportKind) => void found.push(way),
    };
    return { found, knownTransport };
  }

  it("is found out by the greeting, and remembered", async ({ open }) => {
    const { found, knownTransport } = wayOf();
    for (const isFirst of [true, false]) {
      const { server, witness, ask, assertOk, end } = await open(old(), { knownTransport });
      if (isFirst) assert.match(await ask("server/discover"), /-32601/);
      await assertOk("initialize");
      witness.transport.adopt?.({ era: "legacy", version: "2024-11-05" });
      await assertOk();
      assert.equal(witness.transport.hasStreams, undefined);
      await end();
      const requests = server.requests.map(({ method, path }) => `${method} ${path}`).join();
      const before = isFirst ? "POST /mcp,POST /mcp," : "";
      assert.equal(requests, `${before}GET /mcp,POST /post,POST /post`);
    }
    assert.deepEqual(found, ["sse"]);
  });

  it("that was remembered and is another now is found out again", async ({ open }) => {
    const { found, knownTransport } = wayOf("sse");
    const { witness, assertOk } = await open(withHandshake(respondJson), { knownTransport });
    await witness.initialize();
    await assertOk();
    assert.equal(found.at(-1), "http");
  });

  it("that leads nowhere says what the server has said", async ({ open }) => {
    const { ask } = await open((received) => received.respond(404, {}, "No such page."));
    assert.match(await ask("server/discover"), /-32601/);
    assert.match(await ask("initialize"), /^serverRefused.*HTTP 404: "No such page\."\.$/);
  });

  it("of old leads to no other server", async ({ serve, open }) => {
    const other = await serve(respondJson);
    const endpoint = `event: endpoint\ndata: ${other.url.href}\n\n`;
    const { witness } = await open(
      (received) => received.beginResponse(200, EVENT_STREAM_HEADERS).write(endpoint),
      { transport: "sse" },
    );
    void witness.sendRequest("initialize");
    await witness.until(/^closed serverRefused/);
    assert.equal(other.connections, 0);
  });

  it("of old ends with its stream", async ({ open }) => {
    let stream: ChunkedResponse | undefined;
    const { server, witness } = await open(
      (received) => {
        if (received.method !== "GET") return received.respond(202);
        stream = received.beginResponse(200, EVENT_STREAM_HEADERS);
        return stream.write(ENDPOINT);
      },
      { transport: "sse" },
    );
    void witness.sendRequest("initialize");
    await until(() => server.requests.length === 2);
    stream?.end();
    await witness.until(/^closed connectionLost/);
  });
});
