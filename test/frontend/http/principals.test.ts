import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { TokenHolder } from "../../../src/frontend/http/principals.ts";
import type { HttpServerSettings } from "../../../src/frontend/http/server.ts";
import { ALL_SERVERS, subsetOf } from "../../../src/upstream/profile.ts";
import { EventStreamReader, type HttpTestClient, setUpHttp } from "../../fixtures/http-client.ts";
import {
  callRequest,
  INITIALIZE_REQUEST,
  type Json,
  manifestOf,
  modeOf,
  ScriptedServer,
} from "../../fixtures/memory-hub.ts";
import { waitFor } from "../../harness/wait.ts";

const holder = (name: string, more: Partial<TokenHolder> = {}): TokenHolder => ({
  name,
  subset: ALL_SERVERS,
  mode: undefined,
  maxSessions: undefined,
  token: `token-of-${name}`,
  ...more,
});

/** A hub with servers `files` and `git`, each with a tool `x`, and a client with each token. */
function setUp(
  clients: readonly TokenHolder[] | undefined,
  server: Partial<HttpServerSettings> = {},
) {
  const [files, git] = [new ScriptedServer("x"), new ScriptedServer("x")];
  const modes = [
    modeOf("files", { servers: ["files"] }),
    modeOf("git", { servers: ["git"] }),
    modeOf("not-files", { not: { names: ["files__x"] } }),
    modeOf("files-x", { names: ["files__x"] }),
  ];
  const servers = { git: { isolation: "perClient" } } as const;
  const setup = setUpHttp({ files, git }, { modes, servers, server: { ...server, clients } });
  const clientOf = (token: string | undefined, path?: string): HttpTestClient => {
    const client = setup.newClient(path);
    const request = client.request.bind(client);
    const own = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    client.request = (method, body, headers) => request(method, body, { ...own, ...headers });
    return client;
  };
  return { ...setup, files, git, clientOf };
}

async function toolsOf(client: HttpTestClient): Promise<readonly string[]> {
  const answer = await client.post({ jsonrpc: "2.0", id: 1, method: "tools/list" });
  return namesIn(await answer.json());
}

const received = (script: ScriptedServer, method: string, count: number): Promise<true> =>
  waitFor(method, () => script.messagesOf(method).length === count || undefined);

const namesIn = (json: unknown): readonly string[] =>
  ((json as Json).result?.["tools"] as { name: string }[]).map(({ name }) => name);

describe("initialize with the id of a session", () => {
  const TOOLS_LIST = { jsonrpc: "2.0", id: 5, method: "tools/list" };

  async function setUpTwo() {
    const { clientOf, server } = setUp([holder("a"), holder("b")]);
    const [a, b] = [clientOf("token-of-a"), clientOf("token-of-b")];
    await a.initialize();
    const beginWith = async (client: HttpTestClient, id: string) => {
      const response = await client.request("POST", INITIALIZE_REQUEST, { "Mcp-Session-Id": id });
      return { status: response.status, id: response.headers.get("Mcp-Session-Id") };
    };
    return { a, b, server, beginWith };
  }

  it("that is unknown begins a session with another id", async () => {
    const { b, server, beginWith } = await setUpTwo();
    const begun = await beginWith(b, "of-a-hub-that-is-gone");
    assert.equal(begun.status, 200);
    assert.notEqual(begun.id, "of-a-hub-that-is-gone");
    assert.equal(server.sessions, 2);
    b.sessionId = begun.id ?? "";
    assert.equal((await b.post(TOOLS_LIST)).status, 200);
  });

  it("of another client is answered like an unknown one, and leaves that session alone", async () => {
    const { a, b, server, beginWith } = await setUpTwo();
    const other = await beginWith(b, a.sessionId ?? "");
    const unknown = await beginWith(b, "unknown");
    assert.equal(other.status, unknown.status);
    assert.ok(other.id !== null && other.id !== a.sessionId);
    assert.equal(server.sessions, 3);
    assert.deepEqual(await toolsOf(a), ["files__x", "git__x"]);
  });

  it("that is the client's own and alive ends it", async () => {
    const { a, server, beginWith } = await setUpTwo();
    const before = a.sessionId ?? "";
    const begun = await beginWith(a, before);
    assert.equal(begun.status, 200);
    assert.notEqual(begun.id, before);
    assert.equal(server.sessions, 1);
    assert.equal((await a.post(TOOLS_LIST)).status, 404);
    a.sessionId = begun.id ?? "";
    assert.equal((await a.post(TOOLS_LIST)).status, 200);
  });

  it("is the only method that an unknown session may have", async () => {
    const { a, b } = await setUpTwo();
    for (const id of ["unknown", a.sessionId ?? ""]) {
      b.sessionId = id;
      for (const message of [
        TOOLS_LIST,
        { jsonrpc: "2.0", method: "initialize" },
        { jsonrpc: "2.0", method: "notifications/initialized" },
        [INITIALIZE_REQUEST],
        "{",
        { ...TOOLS_LIST, params: { padding: "x".repeat(1024 * 1024) } },
      ])
        assert.equal((await b.post(message)).status, 404);
      const headers = { "Content-Type": "text/plain" };
      assert.equal((await b.post(TOOLS_LIST, headers)).status, 404);
      assert.equal((await b.request("GET", undefined)).status, 404);
      assert.equal((await b.request("DELETE", undefined)).status, 404);
    }
  });

  it("names no server that does not exist", async () => {
    const { clientOf } = setUp([holder("a")]);
    const client = clientOf("token-of-a", "/mcp/nothing");
    client.sessionId = "unknown";
    assert.equal((await client.post(INITIALIZE_REQUEST)).status, 404);
  });
});

describe("a client with a token of its own", () => {
  it("is told from others by its token, with the mode and the servers that belong to it, in either era", async () => {
    const { clientOf } = setUp(
      [holder("a", { mode: "files" }), holder("b", { subset: subsetOf(["git"]) }), holder("c")],
      { token: "whole" },
    );
    for (const [token, expected] of [
      ["whole", ["files__x", "git__x"]],
      ["token-of-a", ["files__x"]],
      ["token-of-b", ["x"]],
      ["token-of-c", ["files__x", "git__x"]],
    ] as const) {
      const client = clientOf(token);
      await client.initialize();
      assert.deepEqual(await toolsOf(client), expected, token);
      const modern = await clientOf(token).postModern("tools/list");
      assert.deepEqual(namesIn(await modern.json()), expected, token);
    }
  });

  it("is refused with any other token, and so is whoever has none", async () => {
    const { clientOf } = setUp([holder("a")]);
    for (const token of [undefined, "token-of-b", "token-of-", "whole"])
      assert.equal((await clientOf(token).post(INITIALIZE_REQUEST)).status, 401, token ?? "none");
    assert.equal((await setUp([]).clientOf(undefined).post(INITIALIZE_REQUEST)).status, 401);
    assert.equal((await setUp(undefined).clientOf(undefined).post(INITIALIZE_REQUEST)).status, 200);
  });

  it("is named in clients, calls and events, and has its own process of a server per client", async () => {
    const { clientOf, hub, git, events } = setUp([holder("a"), holder("b")]);
    const legacy = clientOf("token-of-a");
    await legacy.initialize();
    await legacy.post(callRequest(2, "git__x"));
    for (const name of ["a", "b"]) {
      const answer = await clientOf(`token-of-${name}`).postModern("tools/call", {
        name: "git__x",
      });
      assert.ok(((await answer.json()) as Json).result);
    }
    assert.equal(git.transportCount, 3);
    const clients = hub.snapshot().clients.map(({ id, principal }) => `${id} ${principal}`);
    assert.deepEqual(clients, ["client-1 undefined", "client-2 a", "a a", "b b"]);
    const ends = events.filter((event) => event.kind === "callFinished");
    assert.deepEqual(
      ends.map(({ principal }) => principal),
      ["a", "a", "b"],
    );
    assert.deepEqual(
      hub.usage.ended.map(({ principal }) => principal),
      ["b", "a", "a"],
    );
  });

  it("cannot use the session of another", async () => {
    const { clientOf } = setUp([holder("a"), holder("b")]);
    const [a, b] = [clientOf("token-of-a"), clientOf("token-of-b")];
    await a.initialize();
    Object.assign(b, { sessionId: a.sessionId, protocolVersion: a.protocolVersion });
    for (const method of ["POST", "GET", "DELETE"]) {
      const body = method === "POST" ? callRequest(1, "files__x") : undefined;
      assert.equal((await b.request(method, body)).status, 404, method);
    }
    assert.ok((await toolsOf(a)).length > 0);
  });

  it("has at most as many sessions as it may have", async () => {
    const { clientOf } = setUp([holder("a", { maxSessions: 1 }), holder("b")]);
    const first = clientOf("token-of-a");
    await first.initialize();
    assert.equal((await clientOf("token-of-a").post(INITIALIZE_REQUEST)).status, 503);
    await clientOf("token-of-b").initialize();
    await first.request("DELETE", undefined);
    await clientOf("token-of-a").initialize();
  });

  it("loses its sessions and calls when its token is revoked, and no other client does", async () => {
    for (const next of [
      [holder("b")],
      [holder("a", { token: "new" }), holder("b")],
      [holder("a", { subset: subsetOf(["git"]) }), holder("b")],
    ]) {
      const { clientOf, server, files, client: peer } = setUp([holder("a"), holder("b")]);
      const [a, b] = [clientOf("token-of-a"), clientOf("token-of-b")];
      await a.initialize();
      await b.initialize();
      files.onCall = () => undefined;
      const stream = await a.openStream();
      const call = a.post(callRequest(2, "files__x"));
      const modern = clientOf("token-of-a").postModern("tools/call", { name: "files__x" });
      await received(files, "tools/call", 2);
      server.setClients(next);
      assert.deepEqual([(await call).status, (await modern).status], [404, 401]);
      assert.equal(await stream.next(), undefined);
      await received(files, "notifications/cancelled", 2);
      assert.notEqual((await a.post(callRequest(3, "files__x"))).status, 200);
      assert.ok((await toolsOf(b)).length > 0);
      assert.equal(peer.isClosed, false);
    }
  });

  it("is in another mode as soon as the manifest says so, without losing its session", async () => {
    const { clientOf, server, hub } = setUp([holder("a", { mode: "files" })]);
    const a = clientOf("token-of-a");
    await a.initialize();
    assert.deepEqual(await toolsOf(a), ["files__x"]);
    server.setClients([holder("a", { mode: "git" })]);
    hub.setMode("git");
    assert.deepEqual(await toolsOf(a), ["git__x"]);
  });

  it("is needed from when there is one, and no change of the manifest opens the server again", async () => {
    const { clientOf, server } = setUp(undefined);
    const nobody = clientOf(undefined);
    await nobody.initialize();
    const stream = new EventStreamReader(await nobody.request("GET", undefined));
    server.setClients([holder("a")]);
    assert.equal(await stream.next(), undefined);
    assert.equal((await nobody.post(INITIALIZE_REQUEST)).status, 401);
    server.setClients(undefined);
    assert.equal((await nobody.post(INITIALIZE_REQUEST)).status, 401);
  });
});

describe("the mode in a URL", () => {
  it("narrows what a client sees, and never widens it", async () => {
    const { clientOf, hub } = setUp([holder("a", { mode: "files" }), holder("b")]);
    for (const [token, path, expected] of [
      ["token-of-b", "/mcp?mode=git", ["git__x"]],
      ["token-of-b", "/mcp?mode=full", ["files__x", "git__x"]],
      ["token-of-b", "/mcp/files?mode=files", ["x"]],
      ["token-of-b", "/mcp/files?mode=git", []],
      ["token-of-a", "/mcp?mode=git", []],
      ["token-of-a", "/mcp?mode=full", ["files__x"]],
    ] as const) {
      const client = clientOf(token, path);
      await client.initialize();
      assert.deepEqual(await toolsOf(client), expected, path);
      const modern = await clientOf(token, path).postModern("tools/list");
      assert.deepEqual(namesIn(await modern.json()), expected, path);
    }
    hub.setMode("git");
    const client = clientOf("token-of-b", "/mcp?mode=full");
    await client.initialize();
    assert.deepEqual(await toolsOf(client), ["git__x"]);
  });

  it("and any other may change while calls of either era run, which go on", async () => {
    const { clientOf, hub, git } = setUp([holder("a")]);
    const legacy = clientOf("token-of-a");
    await legacy.initialize();
    git.onCall = () => undefined;
    const answers = [
      legacy.post(callRequest(2, "git__x")),
      clientOf("token-of-a").postModern("tools/call", { name: "git__x" }),
    ];
    await received(git, "tools/call", 2);
    hub.setMode("files");
    const refused = (await (await legacy.post(callRequest(3, "git__x"))).json()) as Json;
    assert.equal(refused.error?.data?.["code"], "notInMode");
    const modern = await clientOf("token-of-a").postModern("tools/call", { name: "git__x" });
    assert.equal(((await modern.json()) as Json).error?.code, -32602);
    for (const peer of git.peers) {
      for (const { method, id } of peer.messages)
        if (method === "tools/call") peer.send({ jsonrpc: "2.0", id, result: { content: [] } });
    }
    for (const answer of answers) assert.ok(((await (await answer).json()) as Json).result);
  });

  it("knows tools by their names with prefixes, also where a client sees one server alone", async () => {
    const { clientOf } = setUp([
      holder("a", { mode: "not-files" }),
      holder("b", { mode: "not-files", subset: subsetOf(["files"]) }),
      holder("c", { mode: "files-x" }),
    ]);
    for (const [token, path, expected] of [
      ["token-of-a", "/mcp", ["git__x"]],
      ["token-of-a", "/mcp/files", []],
      ["token-of-a", "/mcp/git", ["x"]],
      ["token-of-a", "/mcp?servers=files", []],
      ["token-of-b", "/mcp", []],
      ["token-of-c", "/mcp/files", ["x"]],
      ["token-of-c", "/mcp/git", []],
    ] as const) {
      const client = clientOf(token, path);
      await client.initialize();
      assert.deepEqual(await toolsOf(client), expected, `${token} ${path}`);
      const { error } = (await (await client.post(callRequest(2, "x"))).json()) as Json;
      if (expected.length === 0) assert.equal(error?.data?.["code"], "notInMode");
    }
  });

  it("shows nothing any more to its sessions once the manifest does not have it", async () => {
    const { clientOf, hub } = setUp([holder("a")]);
    const client = clientOf("token-of-a", "/mcp?mode=git");
    await client.initialize();
    assert.deepEqual(await toolsOf(client), ["git__x"]);
    hub.reload({ ...manifestOf({ files: {}, git: { isolation: "perClient" } }), modes: [] });
    assert.deepEqual(await toolsOf(client), []);
    const refused = (await (await client.post(callRequest(3, "files__x"))).json()) as Json;
    assert.equal(refused.error?.data?.["code"], "notInMode");
  });

  it("gets 404 if there is none, and a session keeps its own", async () => {
    const { clientOf } = setUp([holder("a")]);
    assert.equal(
      (await clientOf("token-of-a", "/mcp?mode=gti").post(INITIALIZE_REQUEST)).status,
      404,
    );
    const modern = await clientOf("token-of-a", "/mcp?mode=gti").postModern("tools/list");
    assert.equal(modern.status, 404);
    const client = clientOf("token-of-a", "/mcp?mode=git");
    await client.initialize();
    client.path = "/mcp";
    assert.equal((await client.post(callRequest(1, "files__x"))).status, 404);
  });
});
