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
import { RawServer, type Stream, type Visit } from "../../fixtures/raw-http-server.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";
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

function codeOf(outcome: Outcome): string {
  return outcome instanceof HubError ? outcome.code : outcome;
}

function text(outcome: Outcome): string {
  return outcome instanceof HubError ? outcome.message : outcome;
}

async function until(test: () => boolean): Promise<void> {
  for (let n = 0; !test(); n++) {
    assert.ok(n < 5000, `never: ${String(test)}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function end(witness: Witness, ...servers: readonly RawServer[]): Promise<void> {
  await witness.link.close();
  for (const server of servers) await server.gone();
}

/** Credentials that go from one token to the next. */
function tokens(
  ...values: readonly string[]
): RequestCredentials & { readonly renewals: AuthChallenge[] } {
  const renewals: AuthChallenge[] = [];
  let at = 0;
  return {
    renewals,
    bear: () => ({ Authorization: `Bearer ${values[at]}` }),
    renew(challenge) {
      renewals.push(challenge);
      const isLeft = at + 1 < values.length;
      if (isLeft) at++;
      return Promise.resolve(isLeft);
    },
  };
}

function answerIf(token: string): (visit: Visit) => void {
  return (visit) => {
    if (visit.headers.get("authorization") === `Bearer ${token}`) answerJson(visit);
    else visit.answer(401, { "WWW-Authenticate": `Bearer error="invalid_token"` });
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
        const server = await RawServer.start((visit) => {
          const body = bodyOf(idOf(visit), bytes);
          if (way === "JSON") {
            visit.answer(200, JSON_TYPE, body);
            return;
          }
          const stream = visit.begin(200, EVENTS);
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
        const witness = await Witness.of(server, { transport: "http" });
        const outcome = await witness.ask("initialize").outcome;
        assert.equal(text(outcome), `{"jsonrpc":"2.0","id":1,"result":{"x":"${shown}"}}`);
        const notes = witness.events.filter((event) => event.startsWith("notification"));
        const told = `notification own {"jsonrpc":"2.0","method":"n","params":{"x":"${shown}"}}`;
        assert.deepEqual(notes, way === "JSON" ? [] : [told]);
        assert.equal(witness.events.includes("flaw invalidText"), isFlaw);
        await end(witness, server);
      });
    }
  }

  it("is no part of a message that begins with a byte order mark, as JSON or as an event", async () => {
    const server = await RawServer.start((visit) => {
      const body = `\ufeff{"jsonrpc":"2.0","id":${idOf(visit)},"result":{}}`;
      if (idOf(visit) === 1) visit.answer(200, JSON_TYPE, body);
      else visit.begin(200, EVENTS).write(`data: ${body}\n\n`);
    });
    const witness = await Witness.of(server, { transport: "http" });
    for (const id of [1, 2]) {
      const outcome = await witness.ask("initialize").outcome;
      assert.equal(text(outcome), `{"jsonrpc":"2.0","id":${id},"result":{}}`);
    }
    await end(witness, server);
  });
});

describe("who is let in over HTTP", () => {
  it("a request that is not is sent again with what was renewed", async () => {
    const server = await RawServer.start(answerIf("new"));
    const credentials = tokens("old", "new");
    const witness = await Witness.of(server, { credentials });
    assert.match(text(await witness.ask("initialize").outcome), /"ok"/);
    assert.deepEqual(credentials.renewals, [
      { status: 401, header: `Bearer error="invalid_token"` },
    ]);
    assert.deepEqual(witness.challenges, []);
    await end(witness, server);
  });

  it("many that are not have it renewed once", async () => {
    const server = await RawServer.start(answerIf("new"));
    const credentials = tokens("old", "new", "newer");
    const witness = await Witness.of(server, { credentials });
    const all = await Promise.all(Array.from({ length: 20 }, () => witness.ask("a").outcome));
    assert.ok(
      all.every((outcome) => typeof outcome === "string"),
      all.map(codeOf).join(),
    );
    assert.equal(credentials.renewals.length, 1);
    await end(witness, server);
  });

  it("a server that never lets anybody in is not asked for ever, and tells once what it wants", async () => {
    const server = await RawServer.start(answerIf("other"));
    const witness = await Witness.of(server, { credentials: tokens("a", "b") });
    for (let n = 0; n < 3; n++) {
      assert.equal(codeOf(await witness.ask("initialize").outcome), "unauthorized");
    }
    assert.deepEqual(
      witness.challenges.map(({ status }) => status),
      [401],
    );
    assert.equal(server.visits.length, 4);
    await end(witness, server);
  });

  it("a scope that does not suffice is a challenge, any other prohibition is none", async () => {
    const scope = `Bearer error="insufficient_scope", scope="files:write"`;
    const server = await RawServer.start((visit) => {
      if (methodOf(visit) === "a") visit.answer(403, { "WWW-Authenticate": scope });
      else visit.answer(403, {}, "Not from here.");
    });
    const witness = await Witness.of(server);
    assert.equal(codeOf(await witness.ask("a").outcome), "unauthorized");
    assert.deepEqual(witness.challenges, [{ status: 403, header: scope }]);
    const other = await witness.ask("b").outcome;
    assert.equal(codeOf(other), "serverRefused");
    assert.match(text(other), /HTTP 403: Not from here\.$/);
    await end(witness, server);
  });

  it("what the manifest says goes before what was got", async () => {
    const server = await RawServer.start(answerIf("mine"));
    const headers = { authorization: "Bearer mine", "X-Team": "t" };
    const witness = await Witness.of(server, { headers, credentials: tokens("got") });
    assert.match(text(await witness.ask("a").outcome), /"ok"/);
    assert.equal(server.visits[0]?.headers.get("x-team"), "t");
    await end(witness, server);
  });
});

describe("credentials", () => {
  it("that would begin a header of their own are not sent", async () => {
    const server = await RawServer.start(answerJson);
    const witness = await Witness.of(server, { credentials: tokens("a\r\nX-Evil: 1") });
    assert.equal(codeOf(await witness.ask("a").outcome), "unauthorized");
    assert.equal(server.visits.length, 0);
    await end(witness, server);
  });

  it("that cannot be had fail what needs them, and not whoever sends it", async () => {
    const server = await RawServer.start(answerJson);
    const bear = (): never => {
      throw new HubError("unauthorized", "There are none.");
    };
    const credentials = { bear, renew: () => Promise.resolve(false) };
    const witness = await Witness.of(server, { credentials });
    assert.equal(codeOf(await witness.ask("a").outcome), "unauthorized");
    await end(witness, server);
  });
});

describe("redirects", () => {
  it("within a server are followed, and remembered", async () => {
    const server = await RawServer.start((visit) => {
      if (visit.path === "/mcp") visit.answer(308, { Location: "/v2/mcp" });
      else answerJson(visit);
    });
    const witness = await Witness.of(server, { headers: { Authorization: "Bearer x" } });
    for (let n = 0; n < 3; n++) assert.match(text(await witness.ask("a").outcome), /"ok"/);
    assert.deepEqual(
      server.visits.map(({ path }) => path),
      ["/mcp", "/v2/mcp", "/v2/mcp", "/v2/mcp"],
    );
    await end(witness, server);
  });

  for (const [what, more] of [
    ["a header of the manifest", { headers: { "X-Key": "k" } }],
    ["credentials", { credentials: tokens("t") }],
  ] as const) {
    it(`to another server are not followed with ${what}`, async () => {
      const other = await RawServer.start(answerJson);
      const server = await RawServer.start((visit) =>
        visit.answer(307, { Location: other.url.href }),
      );
      const witness = await Witness.of(server, more);
      const outcome = await witness.ask("a").outcome;
      assert.equal(codeOf(outcome), "serverRefused");
      assert.ok(text(outcome).includes(other.url.href) && text(outcome).includes(server.url.href));
      assert.equal(other.connections, 0);
      await end(witness, server, other);
    });
  }

  it("to another server are followed where nothing is confided", async () => {
    const other = await RawServer.start(answerJson);
    const server = await RawServer.start((visit) =>
      visit.answer(307, { Location: other.url.href }),
    );
    const witness = await Witness.of(server);
    assert.match(text(await witness.ask("a").outcome), /"ok"/);
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
      const other = await RawServer.start(
        governed((visit) =>
          visit.answer(what.includes("scope") ? 403 : 401, { "WWW-Authenticate": challenge }),
        ),
      );
      let isMoved = true;
      const server = await RawServer.start((visit) => {
        if (isMoved) visit.answer(status, { Location: other.url.href });
        else governed(answerJson)(visit);
      });
      let worn = "";
      const renewals: AuthChallenge[] = [];
      const credentials: RequestCredentials = {
        bear: () => (worn === "" ? {} : { Authorization: worn }),
        renew(given) {
          renewals.push(given);
          if (what.includes("renewed")) worn = SECRET;
          return Promise.resolve(worn !== "");
        },
      };
      const witness = await Witness.met(server, { credentials });
      await until(() => other.visits.length === 3);
      const first = await witness.ask("a").outcome;
      // Another server has no say in which tokens are got where.
      assert.ok([...renewals, ...witness.challenges].every(({ header }) => header === undefined));
      worn = SECRET;
      const again = await witness.ask("a").outcome;
      for (const outcome of what.includes("renewed") ? [first, again] : [again]) {
        assert.equal(codeOf(outcome), "serverRefused");
        assert.ok(text(outcome).includes(server.url.href), text(outcome));
        assert.ok(!text(outcome).includes(SECRET));
      }
      isMoved = false;
      assert.match(text(await witness.ask("a").outcome), /"ok"/);
      const last = server.visits.findLast((visit) => methodOf(visit) === "a");
      assert.equal(last?.headers.get("authorization"), SECRET);
      await end(witness, server, other);
      assert.ok(other.visits.length > 3);
      for (const { headers } of other.visits) assert.equal(headers.has("authorization"), false);
    });
  }

  it("to another server with a stream of events (HTTP+SSE) take no credentials there", async () => {
    let stream: Stream | undefined;
    const other = await RawServer.start((visit) => {
      if (visit.method === "GET") {
        stream = visit.begin(200, EVENTS);
        stream.write("event: endpoint\ndata: /messages\n\n");
      } else {
        visit.answer(202);
        if (methodOf(visit) === "initialize") {
          stream?.write(`event: message\ndata: ${resultOf(visit)}\n\n`);
        }
      }
    });
    const server = await RawServer.start((visit) =>
      visit.answer(308, { Location: new URL("/sse", other.url).href }),
    );
    let worn = {};
    const credentials: RequestCredentials = {
      bear: () => worn,
      renew: () => Promise.resolve(false),
    };
    const witness = await Witness.met(server, { transport: "sse", credentials });
    worn = { Authorization: "Bearer for-the-first-server-alone" };
    const outcome = await witness.ask("a").outcome;
    assert.equal(codeOf(outcome), "serverRefused");
    assert.ok(text(outcome).includes(server.url.href), text(outcome));
    await end(witness, server, other);
    for (const { headers } of other.visits) assert.equal(headers.has("authorization"), false);
  });

  it("within a server are remembered also when credentials come later", async () => {
    const server = await RawServer.start((visit) => {
      if (visit.path === "/mcp") visit.answer(308, { Location: "/v2/mcp" });
      else governed(answerIf("late"))(visit);
    });
    let worn = {};
    const credentials: RequestCredentials = {
      bear: () => worn,
      renew() {
        worn = { Authorization: "Bearer late" };
        return Promise.resolve(true);
      },
    };
    const witness = await Witness.met(server, { credentials });
    for (let n = 0; n < 2; n++) assert.match(text(await witness.ask("a").outcome), /"ok"/);
    await end(witness, server);
    assert.equal(server.visits.filter(({ path }) => path === "/mcp").length, 1);
  });

  it("that go on and on, or may only be read, are not followed", async () => {
    const server = await RawServer.start((visit) => {
      visit.answer(methodOf(visit) === "a" ? 307 : 302, { Location: visit.path });
    });
    const witness = await Witness.of(server);
    assert.match(text(await witness.ask("a").outcome), /on and on/);
    assert.match(text(await witness.ask("b").outcome), /HTTP 302/);
    assert.equal(server.visits.length, 7);
    await end(witness, server);
  });
});

describe("an answer that is compressed unasked", () => {
  it("is refused by its name", async () => {
    const server = await RawServer.start((visit) => {
      visit.answer(200, { ...JSON_TYPE, "Content-Encoding": "gzip" }, "x");
    });
    const witness = await Witness.of(server);
    assert.match(text(await witness.ask("a").outcome), /compressed \(gzip\)/);
    await end(witness, server);
  });
});

describe("a server that has no time", () => {
  it("keeps nobody from closing the link", async () => {
    const server = await RawServer.start((visit) => visit.answer(429, { "Retry-After": "20" }));
    const witness = await Witness.of(server);
    void witness.ask("a");
    await until(() => server.visits.length === 1 && server.sockets.size === 0);
    await end(witness, server);
    assert.equal(server.visits.length, 1);
  });

  for (const status of [429, 503]) {
    it(`and says when it will (HTTP ${status}) is asked again then`, async () => {
      let count = 0;
      const server = await RawServer.start((visit) => {
        if (++count < 3) visit.answer(status, { "Retry-After": "0" });
        else answerJson(visit);
      });
      const witness = await Witness.of(server);
      assert.match(text(await witness.ask("a").outcome), /"ok"/);
      await end(witness, server);
    });
  }

  it("for long has done nothing, and says so", async () => {
    const server = await RawServer.start(
      governed((visit) => visit.answer(429, { "Retry-After": "3600" }, "Slow down.")),
    );
    const witness = await Witness.met(server);
    const outcome = await witness.ask("a").outcome;
    assert.equal(codeOf(outcome), "serverFailed", "nobody is to send it again");
    assert.match(text(outcome), /429 \(Retry-After: 3600\): Slow down\.$/);
    await end(witness, server);
  });

  it("is not asked for ever", async () => {
    const server = await RawServer.start(
      governed((visit) => visit.answer(503, { "Retry-After": "0" })),
    );
    const witness = await Witness.met(server);
    assert.equal(codeOf(await witness.ask("a").outcome), "serverFailed");
    assert.equal(server.visits.filter((visit) => methodOf(visit) === "a").length, 4);
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
      const server = await RawServer.start(governed((visit) => visit.answer(status)));
      const witness = await Witness.met(server);
      assert.equal(codeOf(await witness.ask("a").outcome), code);
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
      const server = await RawServer.start(
        governed((visit) => {
          const shown = id === "own" ? idOf(visit) : "null";
          const error = `{"jsonrpc":"2.0","error":{"code":-32601,"message":"x", "data":1.0},"id":${shown}}`;
          visit.answer(status, JSON_TYPE, error);
        }, ""),
      );
      const witness = await Witness.met(server);
      assert.match(
        text(await witness.ask("a").outcome),
        /"code":-32601,"message":"x", "data":1\.0/,
      );
      await end(witness, server);
    });
  }

  it("may come with others in one array", async () => {
    const server = await RawServer.start(
      governed((visit) => {
        visit.answer(200, JSON_TYPE, `[{"jsonrpc":"2.0","method":"n"},${resultOf(visit)}]`);
      }),
    );
    const witness = await Witness.met(server);
    assert.match(text(await witness.ask("a").outcome), /"ok"/);
    assert.ok(witness.has(/^batch of 2/));
    await end(witness, server);
  });
});

describe("a session", () => {
  it("is named with everything after the greeting, and ended", async () => {
    const server = await RawServer.start(governed(answerJson));
    const witness = await Witness.met(server);
    await witness.ask("a").outcome;
    await end(witness, server);
    const [greeting, ...others] = server.visits;
    assert.equal(greeting?.headers.has("mcp-session-id"), false);
    assert.deepEqual(others.map(methodOf).toSorted(), [
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
    const server = await RawServer.start((visit) => {
      if (methodOf(visit) === "notifications/initialized") release = () => visit.answer(202);
      else governed(answerJson)(visit);
    });
    const witness = await Witness.met(server);
    const asked = witness.ask("a");
    await until(() => server.visits.length === 2);
    assert.equal(
      server.visits.some((visit) => methodOf(visit) === "a"),
      false,
    );
    release();
    assert.match(text(await asked.outcome), /"ok"/);
    await end(witness, server);
  });

  it("has a stream for what the server says unasked, which is asked for again from where it ended", async () => {
    const streams: { stream: Stream; visit: Visit }[] = [];
    const server = await RawServer.start((visit) => {
      if (visit.method === "GET") streams.push({ stream: visit.begin(200, EVENTS), visit });
      else governed(answerJson)(visit);
    });
    const witness = await Witness.met(server);
    await until(() => streams.length === 1);
    streams[0]?.stream.write(`id: 7\nretry: 1\ndata: {"jsonrpc":"2.0","method":"n"}\n\n`);
    await witness.until(/^notification shared/);
    streams[0]?.stream.end();
    await until(() => streams.length === 2);
    assert.equal(streams[1]?.visit.headers.get("last-event-id"), "7");
    assert.deepEqual(witness.causes, []);
    await end(witness, server);
  });

  it("that a server refuses like any bad request is asked after: forgotten, it ends the link", async () => {
    let isForgotten = false;
    const refusal = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"},"id":null}`;
    const server = await RawServer.start((visit) => {
      const isKnown = visit.headers.get("mcp-session-id") !== "session-1" || !isForgotten;
      if (!isKnown || methodOf(visit) === "bad") visit.answer(400, JSON_TYPE, refusal);
      else governed(answerJson)(visit);
    });
    const witness = await Witness.met(server);
    assert.match(text(await witness.ask("bad").outcome), /Bad Request/);
    assert.match(text(await witness.ask("a").outcome), /"ok"/);
    isForgotten = true;
    assert.equal(codeOf(await witness.ask("a").outcome), "notDelivered");
    await witness.until(/^closed connectionLost/);
    await end(witness, server);
  });
});

describe("the modern era over HTTP", () => {
  it("says in headers what a request is, and tells nothing unasked", async () => {
    const server = await RawServer.start(answerJson);
    const witness = await Witness.of(server);
    const headers = { "MCP-Protocol-Version": "2026-07-28" };
    await witness.ask("server/discover", { headers }).outcome;
    witness.link.adopt?.({ era: "modern", version: "2026-07-28" });
    witness.tell("notifications/cancelled");
    const named = {
      name: "Grüße",
      headers: { "Mcp-Param-Path": "/x", "Mcp-Param-Bad": "a\r\nb: c" },
    };
    await witness.ask("tools/call", named).outcome;
    await witness.ask("tools/call", { name: "plain name" }).outcome;
    await witness.ask("tools/call", { name: "=?base64?eA==?=" }).outcome;
    await end(witness, server);
    const shown = server.visits.map(({ headers: found }) => [
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
    assert.equal(server.visits[1]?.headers.get("mcp-param-path"), "/x");
    assert.equal(server.visits[1]?.headers.has("b"), false);
  });
});

describe("connections", () => {
  it("are not used again after an answer in chunks that also says its length", async () => {
    const server = await RawServer.start((visit) => {
      const body = resultOf(visit);
      const size = body.length.toString(16);
      visit.write(
        `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nTransfer-Encoding: chunked\r\n\r\n${size}\r\n${body}\r\n0\r\n\r\n`,
      );
    });
    const witness = await Witness.of(server);
    for (let n = 0; n < 3; n++) assert.match(text(await witness.ask("a").outcome), /"ok"/);
    assert.equal(server.connections, 3);
    await end(witness, server);
  });

  it("are as many as there are calls in flight, and are used again", async () => {
    const held: Visit[] = [];
    const server = await RawServer.start((visit) => {
      held.push(visit);
      if (held.length >= 400) held.splice(0).forEach(answerJson);
    });
    const witness = await Witness.of(server);
    for (const _ of [1, 2]) {
      const all = Array.from({ length: 400 }, () => witness.ask("a").outcome);
      for (const outcome of all) assert.match(text(await outcome), /"ok"/);
    }
    assert.equal(server.connections, 400);
    await end(witness, server);
  });

  it(
    "that are not needed any more are closed after some seconds",
    { timeout: 15_000 },
    async () => {
      const server = await RawServer.start((visit) => {
        visit.answer(200, { ...JSON_TYPE, "Keep-Alive": "timeout=1" }, resultOf(visit));
      });
      const witness = await Witness.of(server);
      assert.match(text(await witness.ask("a").outcome), /"ok"/);
      // The server says that it keeps it for a second only: too short to be relied upon.
      assert.match(text(await witness.ask("a").outcome), /"ok"/);
      assert.equal(server.connections, 2);
      await until(() => server.sockets.size === 0);
      await end(witness, server);
    },
  );
});

describe("single requests", () => {
  it("bear what they are given, and yield what is answered", async () => {
    const server = await RawServer.start((visit) => visit.answer(418, { "X-A": "b" }, visit.body));
    const dial = makeFetch({ ca: undefined, env: {} });
    const body = new URLSearchParams({ grant: "ü" });
    const response = await dial(server.url, { method: "post", headers: { "X-B": "c" }, body });
    assert.equal(response.status, 418);
    assert.equal(response.headers.get("x-a"), "b");
    assert.equal(await response.text(), "grant=%C3%BC");
    const [visit] = server.visits;
    assert.equal(visit?.method, "POST");
    assert.equal(visit?.headers.get("x-b"), "c");
    assert.match(visit?.headers.get("content-type") ?? "", /^application\/x-www-form-urlencoded/);
    await server.gone();
  });

  it("end when they are given up, also in the middle of the answer", async () => {
    const server = await RawServer.start((visit) => visit.begin(200, {}).write("half"));
    const abort = new AbortController();
    const { signal } = abort;
    const response = await makeFetch({ ca: undefined, env: {} })(server.url, { signal });
    const reading = response.text();
    abort.abort(new Error("enough"));
    await assert.rejects(reading, /enough/);
    await server.gone();
  });

  it("say that there is no answer where there is only half of one", async () => {
    const server = await RawServer.start((visit) => {
      visit.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
      visit.socket.end();
    });
    const response = await makeFetch({ ca: undefined, env: {} })(server.url);
    await assert.rejects(response.text(), { code: "answerLost" });
    await server.gone();
  });
});

describe("the way over HTTP", () => {
  /** A server of the time before Streamable HTTP. */
  function old(): (visit: Visit) => void {
    let stream: Stream | undefined;
    return (visit) => {
      if (visit.path === "/mcp" && visit.method === "GET") {
        stream = visit.begin(200, EVENTS);
        stream.write("event: endpoint\ndata: /post\n\n");
      } else if (visit.path === "/post") {
        visit.answer(202);
        if (!Number.isNaN(idOf(visit))) stream?.write(`data: ${resultOf(visit)}\n\n`);
      } else {
        visit.answer(405);
      }
    };
  }

  it("is found out by the greeting, and remembered", async () => {
    const server = await RawServer.start(old());
    const found: HttpTransportKind[] = [];
    const target = targetOf(server.url);
    const wayfinder = {
      get known() {
        return found.at(-1);
      },
      found: (way: HttpTransportKind) => void found.push(way),
    };
    for (const n of [1, 2]) {
      const witness = new Witness({ ...target, wayfinder });
      await witness.link.open(witness, new AbortController().signal);
      if (n === 1) assert.match(text(await witness.ask("server/discover").outcome), /-32601/);
      assert.match(text(await witness.ask("initialize").outcome), /"ok"/);
      witness.link.adopt?.({ era: "legacy", version: "2024-11-05" });
      assert.match(text(await witness.ask("a").outcome), /"ok"/);
      assert.equal(witness.link.hasStreams, undefined);
      await witness.link.close();
    }
    await server.gone();
    assert.deepEqual(found, ["sse"]);
    assert.deepEqual(
      server.visits.map(({ method, path }) => `${method} ${path}`),
      [
        ..."POST /mcp,POST /mcp,GET /mcp,POST /post,POST /post".split(","),
        ..."GET /mcp,POST /post,POST /post".split(","),
      ],
    );
  });

  it("that was remembered and is another now is found out again", async () => {
    const server = await RawServer.start(governed(answerJson));
    let known: HttpTransportKind = "sse";
    const wayfinder = {
      get known() {
        return known;
      },
      found: (way: HttpTransportKind) => void (known = way),
    };
    const witness = await Witness.of(server, { wayfinder });
    await witness.greet();
    assert.match(text(await witness.ask("a").outcome), /"ok"/);
    assert.equal(known, "http");
    await end(witness, server);
  });

  it("that leads nowhere says what the server has said", async () => {
    const server = await RawServer.start((visit) => visit.answer(404, {}, "No such page."));
    const witness = await Witness.of(server);
    assert.match(text(await witness.ask("server/discover").outcome), /-32601/);
    const outcome = await witness.ask("initialize").outcome;
    assert.equal(codeOf(outcome), "serverRefused");
    assert.match(text(outcome), /HTTP 404: No such page\.$/);
    await end(witness, server);
  });

  it("of old leads to no other server", async () => {
    const other = await RawServer.start(answerJson);
    const server = await RawServer.start((visit) => {
      visit.begin(200, EVENTS).write(`event: endpoint\ndata: ${other.url.href}\n\n`);
    });
    const witness = await Witness.of(server, { transport: "sse" });
    void witness.ask("initialize");
    await witness.until(/^closed serverRefused/);
    assert.equal(other.connections, 0);
    await end(witness, server, other);
  });

  it("of old ends with its stream", async () => {
    let stream: Stream | undefined;
    const server = await RawServer.start((visit) => {
      if (visit.method !== "GET") return visit.answer(202);
      stream = visit.begin(200, EVENTS);
      stream.write("event: endpoint\ndata: /post\n\n");
    });
    const witness = await Witness.of(server, { transport: "sse" });
    void witness.ask("initialize");
    await until(() => server.visits.length === 2);
    stream?.end();
    await witness.until(/^closed connectionLost/);
    await end(witness, server);
  });
});
