import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type HttpOptions, readHttpAddress } from "../../../src/cli/http-options.ts";
import { withManifestToken } from "../../../src/host/http-address.ts";
import { parseCommand } from "../../fixtures/command-line.ts";
import { ACCEPT_BOTH, setUpHttp, type HttpTestClient } from "../../fixtures/http-client.ts";
import { INITIALIZE_REQUEST, type Json, ScriptedServer } from "../../fixtures/memory-hub.ts";

const PING = { jsonrpc: "2.0", id: 7, method: "ping" };

type Headers = Readonly<Record<string, string | null>>;

/** A POST of `initialize` with these headers. */
async function postInitialize(httpClient: HttpTestClient, headers: Headers): Promise<number> {
  const response = await httpClient.request("POST", INITIALIZE_REQUEST, headers);
  await response.text();
  return response.status;
}

/** The refusal is a JSON-RPC error too. */
async function refused(response: Response, status: number, code = -32600): Promise<Json> {
  assert.equal(response.status, status);
  const message = (await response.json()) as Json & { jsonrpc: string };
  assert.equal(message.jsonrpc, "2.0");
  assert.equal(message.error?.code, code);
  return message;
}

describe("an HTTP face on this machine alone", () => {
  for (const host of ["localhost", "localhost:8700", "127.0.0.1:1", "127.1.2.3", "[::1]:8700"])
    it(`serves who calls it ${host}`, async () => {
      assert.equal(await postInitialize(setUpHttp({}).newClient(), { Host: host }), 200);
    });

  for (const host of [
    "evil.example",
    "evil.example:8700",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "10.0.0.1:8700",
    "[::ffff:10.0.0.1]",
    "0.0.0.0:8700",
    "a b",
    "localhost@evil.example",
  ])
    it(`refuses who calls it ${host}, whatever is asked for`, async () => {
      const httpClient = setUpHttp({}).newClient();
      assert.equal(await postInitialize(httpClient, { Host: host }), 403);
      for (const path of ["/healthz", "/readyz", "/mcp", "/"])
        assert.equal((await httpClient.fetch(path, { headers: { Host: host } })).status, 403, path);
    });

  for (const [origin, status] of [
    ["http://localhost:6274", 200],
    ["http://127.0.0.1", 200],
    ["http://[::1]:3000", 200],
    ["https://evil.example", 403],
    ["http://localhost.evil.example", 403],
    ["null", 403],
    ["", 403],
    ["file://", 403],
  ] as const)
    it(`answers ${status} to a page of "${origin}"`, async () => {
      const httpClient = setUpHttp({}).newClient();
      const response = await httpClient.request("POST", INITIALIZE_REQUEST, { Origin: origin });
      assert.equal(response.status, status);
      assert.equal(response.headers.get("Access-Control-Allow-Origin"), null);
    });

  it("answers no page that asks whether it may ask", async () => {
    const headers = { Origin: "http://localhost:1", "Access-Control-Request-Method": "POST" };
    const response = await setUpHttp({}).newClient().request("OPTIONS", undefined, headers);
    assert.equal(response.status, 405);
    assert.doesNotMatch([...response.headers.keys()].join(), /access-control/);
  });
});

describe("A refusal by the HTTP server", () => {
  it("of a Host names the Host and the option that allows it", async () => {
    const headers = { Host: "host.docker.internal:8700" };
    const response = await setUpHttp({}).newClient().request("POST", INITIALIZE_REQUEST, headers);
    const { error } = await refused(response, 403);
    assert.match(
      String(error?.message),
      /"host\.docker\.internal:8700".*--http 0\.0\.0\.0:PORT --token auto.*hub\.httpToken/,
    );
  });

  it("of a slash at the end names the path to use, and is a 404 for every method", async () => {
    for (const [path, meant] of [
      ["/mcp/", "/mcp"],
      ["/mcp//", "/mcp"],
      ["/mcp/files/", "/mcp/files"],
    ] as const) {
      for (const method of ["POST", "GET", "DELETE"]) {
        const client = setUpHttp({}).newClient(path);
        const body = method === "POST" ? INITIALIZE_REQUEST : undefined;
        const { error } = await refused(await client.request(method, body), 404);
        assert.ok(error?.message.includes(`use ${meant} without`), `${method} ${path}`);
      }
    }
  });
});

describe("an HTTP face for other machines", () => {
  const face = { hostname: "0.0.0.0", token: "s3cret-token" };
  const bearer = (token: string): Headers => ({ Authorization: `Bearer ${token}` });

  it("serves who has the token, by whatever name it is called", async () => {
    const httpClient = setUpHttp({}, { server: face }).newClient();
    for (const scheme of ["Bearer", "bearer"]) {
      const headers = { Authorization: `${scheme} s3cret-token`, Host: "hub.example:8700" };
      assert.equal(await postInitialize(httpClient, headers), 200);
    }
  });

  for (const [what, headers] of [
    ["none", {}],
    ["another", bearer("other")],
    ["a longer one", bearer("s3cret-token2")],
    ["its beginning", bearer("s3cret")],
    ["an empty one", bearer("")],
    ["one of another kind", { Authorization: "Basic s3cret-token" }],
    ["the bare one", { Authorization: "s3cret-token" }],
  ] as const)
    it(`refuses who has ${what}, on every way and path of MCP`, async () => {
      const { newClient } = setUpHttp({}, { server: face });
      for (const method of ["POST", "GET", "DELETE", "PUT"]) {
        const body = method === "POST" ? PING : undefined;
        const response = await newClient().request(method, body, headers);
        await refused(response, 401);
        assert.match(response.headers.get("WWW-Authenticate") ?? "", /^Bearer realm="toolmux"/);
      }
      for (const path of ["/mcp/", "/mcp/x", "/mcp/x/", "/mcp/a/b", "/ui", "/ui/x", "/plugins/p/x"])
        assert.equal((await newClient().fetch(path, { headers: { Host: "x" } })).status, 401, path);
    });

  for (const [what, headers] of [
    ["without a token", {}],
    ["with a wrong token", bearer("other")],
    ["with the token", bearer("s3cret-token")],
  ] as const)
    it(`answers 404 where nothing is, ${what}`, async () => {
      const httpClient = setUpHttp({}, { server: face }).newClient();
      for (const path of [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        "/register",
        "/token",
        "/other",
        "/mcpx",
        "/",
      ]) {
        for (const method of ["GET", "POST"]) {
          const init = { method, headers: { ...headers, Host: "x" } };
          await refused(await httpClient.fetch(path, init), 404);
        }
      }
    });

  it("tells who has no token that it lives, and nothing of servers", async () => {
    const httpClient = setUpHttp({ s: new ScriptedServer("t") }, { server: face }).newClient();
    assert.equal((await httpClient.fetch("/healthz")).status, 200);
    assert.deepEqual(await (await httpClient.fetch("/readyz")).json(), { ready: true });
    const headers = { Authorization: "Bearer s3cret-token" };
    const known = (await (await httpClient.fetch("/readyz", { headers })).json()) as object;
    assert.ok("servers" in known);
  });

  for (const [what, headers] of [
    ["names itself with what is no host", { Host: "%zz" }],
    ["hides a zero in its name", { Host: "a%00b" }],
    ["names no host", { Host: "" }],
    ["names a port alone", { Host: ":8700" }],
    ["is a page without an origin", { Host: "%zz", Origin: "null" }],
    ["is a page without an origin, by a good name", { Host: "hub.example", Origin: "null" }],
    ["is a page of a file", { Host: "hub.example", Origin: "file://" }],
    ["is a page of nowhere", { Host: "hub.example", Origin: "" }],
  ] as const)
    it(`refuses who ${what}, though it has the token`, async () => {
      const { newClient } = setUpHttp({}, { server: face });
      const given = { ...bearer("s3cret-token"), ...headers };
      for (const hostname of ["0.0.0.0", "hub.example", "127.0.0.1"]) {
        const httpClient = setUpHttp({}, { server: { ...face, hostname } }).newClient();
        assert.equal(await postInitialize(httpClient, given), 403);
      }
      for (const path of ["/healthz", "/readyz", "/mcp", "/"])
        assert.equal((await newClient().fetch(path, { headers: given })).status, 403, path);
    });

  it("serves pages of its own origin only", async () => {
    const httpClient = setUpHttp({}, { server: face }).newClient();
    const given = { ...bearer("s3cret-token"), Host: "hub.example:8700" };
    for (const [origin, status] of [
      ["https://hub.example", 200],
      ["https://evil.example", 403],
      ["http://localhost", 403],
    ] as const)
      assert.equal(await postInitialize(httpClient, { ...given, Origin: origin }), status);
  });
});

describe("a request over HTTP", () => {
  it("that names no session is 400, of one that there is not 404", async () => {
    const { newClient } = setUpHttp({});
    for (const method of ["POST", "GET", "DELETE"]) {
      const body = method === "POST" ? PING : undefined;
      await refused(await newClient().request(method, body), 400);
      const unknown = { "Mcp-Session-Id": "e0b8a1b4-0000-4000-8000-000000000000" };
      await refused(await newClient().request(method, body, unknown), 404);
    }
  });

  it("of a revision that is not spoken here is 400", async () => {
    const httpClient = setUpHttp({}).newClient();
    await httpClient.initialize();
    for (const version of ["2027-01-01", "1.0", ""]) {
      const headers = { "MCP-Protocol-Version": version };
      for (const method of ["POST", "GET", "DELETE"]) {
        const body = method === "POST" ? PING : undefined;
        await refused(await httpClient.request(method, body, headers), 400);
      }
    }
    const silent = await httpClient.request("POST", PING, { "MCP-Protocol-Version": null });
    assert.equal(silent.status, 200, "older clients do not say it");
  });

  it("that is no JSON is 400 with the code of JSON-RPC, in a session or not", async () => {
    const httpClient = setUpHttp({}).newClient();
    await refused(await httpClient.post("{"), 400, -32700);
    await httpClient.initialize();
    for (const body of ["", "{", '{"a":1}x', "[1", "\u0000"])
      await refused(await httpClient.post(body), 400, -32700);
    for (const body of ["1", "[]", '{"jsonrpc":"2.0"}'])
      await refused(await httpClient.post(body), 400);
    const old = await httpClient.post('{"jsonrpc":"1.0","id":3,"method":"a"}');
    assert.equal((await refused(old, 400)).id, 3);
  });

  it("that is not said to be JSON is 415", async () => {
    const httpClient = setUpHttp({}).newClient();
    const form = "application/x-www-form-urlencoded";
    for (const type of ["text/plain", "application/jsonx", form, null])
      assert.equal(await postInitialize(httpClient, { "Content-Type": type }), 415, String(type));
    for (const type of ["application/json; charset=utf-8", "Application/JSON"])
      assert.equal(await postInitialize(httpClient, { "Content-Type": type }), 200, type);
  });

  it("that takes no answer that there is is 406", async () => {
    const httpClient = setUpHttp({}).newClient();
    for (const accept of ["text/html", "", "image/*"])
      assert.equal(await postInitialize(httpClient, { Accept: accept }), 406, accept);
    for (const accept of [ACCEPT_BOTH, "*/*", null, "application/*", "application/json;q=0.9"])
      assert.equal(await postInitialize(httpClient, { Accept: accept }), 200, String(accept));
    await httpClient.initialize();
    for (const accept of ["application/json", "text/html"])
      await refused(await httpClient.request("GET", undefined, { Accept: accept }), 406);
  });

  it("of another method is 405, and of another path 404", async () => {
    const httpClient = setUpHttp({}).newClient();
    await httpClient.initialize();
    for (const method of ["PUT", "PATCH", "OPTIONS", "HEAD"]) {
      const response = await httpClient.request(method, undefined);
      assert.equal(response.status, 405, method);
      assert.equal(response.headers.get("Allow"), "GET, POST, DELETE");
    }
    await refused(await httpClient.fetch("/"), 404);
    await refused(await httpClient.fetch("/mcp/x", { method: "POST" }), 404);
  });

  it("is a message at /mcp alone, with a query or without", async () => {
    const httpClient = setUpHttp({}).newClient();
    await httpClient.initialize();
    for (const [path, status] of [
      ["/mcp", 200],
      ["/mcp?x=/mcp", 200],
      ["/a/mcp", 404],
      ["/?/mcp", 404],
      ["//mcp", 404],
    ] as const) {
      httpClient.path = path;
      assert.equal((await httpClient.post(PING)).status, status, path);
    }
  });

  it("over the limit is 413, whatever it says and however it comes", async () => {
    const httpClient = setUpHttp({}, { server: { maxMessage: 1000 } }).newClient();
    await httpClient.initialize();
    const big = JSON.stringify({ ...PING, params: { x: "x".repeat(1000) } });
    const short = { "Content-Length": "10", "Transfer-Encoding": "chunked" };
    for (const headers of [{}, short])
      await refused(await httpClient.post(big, headers), 413, -31004);
    await refused(await httpClient.post(PING, { "Content-Length": "5000" }), 413, -31004);
    const fits = JSON.stringify({ ...PING, params: { x: "x".repeat(900) } });
    assert.equal((await httpClient.post(fits)).status, 200);
  });

  it("without a session may say little", async () => {
    const { newClient } = setUpHttp({}, { server: { maxMessage: 8 * 1024 * 1024 } });
    const big = { ...PING, params: { x: "x".repeat(1024 * 1024) } };
    await refused(await newClient().post(big), 413, -31004);
    const known = newClient();
    await known.initialize();
    assert.equal((await known.post(big)).status, 200);
  });
});

describe("the address of an HTTP face", () => {
  const read = (
    argv: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): ReturnType<typeof readHttpAddress> => {
    const { invocation } = parseCommand<HttpOptions>(["serve", ...argv]);
    return readHttpAddress(invocation.options, { env });
  };

  it("is none unless it is named, which needs no command", () => {
    assert.equal(read([]), undefined);
    const argv = ["--http", "8700", "--config", "x.toml"];
    const { command, invocation } = parseCommand<HttpOptions>(argv);
    assert.deepEqual([command.name, invocation.options.http], ["serve", "8700"]);
  });

  for (const [text, hostname, port] of [
    ["127.0.0.1:8700", "127.0.0.1", 8700],
    ["8700", "127.0.0.1", 8700],
    ["localhost:0", "localhost", 0],
    ["[::1]:80", "[::1]", 80],
    ["127.1:80", "127.0.0.1", 80],
    ["LOCALHOST:80", "localhost", 80],
  ] as const)
    it(`may be ${text}`, () => {
      assert.deepEqual(read(["--http", text]), { hostname, port, token: undefined });
    });

  it("may be nothing else", () => {
    const others = ["x", "127.0.0.1", ":1", "127.0.0.1:65536", "a/b:1", "http://a:1", "::1:80"];
    for (const text of [...others, "u@h:1"])
      assert.throws(() => read(["--http", text]), /HOST:PORT/, text);
  });

  for (const text of ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "hub.example:1", "localhost.example:1"])
    it(`may be ${text} only with a token`, async () => {
      const close = async (argv: readonly string[]): Promise<string | undefined> => {
        const env = { T: "secret" };
        const address = read(argv, env);
        assert.ok(address);
        return (await withManifestToken(address, undefined, { env, platform: "linux" })).token;
      };
      await assert.rejects(close(["--http", text]), { code: "usage", message: /token/ });
      assert.equal(await close(["--http", text, "--http-token-env", "T"]), "secret");
    });

  it("has its token in a variable that is not empty, and needs one for nothing else", () => {
    const named = ["--http", "1", "--http-token-env", "T"];
    assert.throws(() => read(named, {}), /T is not set/);
    assert.throws(() => read(named, { T: "" }), /T is empty/);
    assert.throws(() => read(["--http-token-env", "T"], { T: "x" }), /needs --http/);
    assert.equal(read(["--http", "1", "--http-token-env", "T"], { T: "x" })?.token, "x");
  });
});
