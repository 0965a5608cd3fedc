import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import process from "node:process";
import { MODERN_VERSION, modernRequest } from "../fixtures/modern-requests.ts";
import { RawHttpClient } from "../fixtures/raw-http-client.ts";
import { EXIT_LIMIT, it, itWith, sharedTestFolder, type TestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

const TOKEN = "a-token-that-nobody-guesses";
const AUTHORIZED = `Authorization: Bearer ${TOKEN}`;
const LOCAL = "Host: 127.0.0.1";

const INITIALIZE =
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}';

/** Sends one request in the given lines. @returns the status code; 0 if the connection was closed without a response */
async function statusOf(
  port: number,
  method: string,
  path: string,
  lines: readonly string[],
): Promise<number> {
  const body = method === "POST" ? INITIALIZE : "";
  const all = [
    `${method} ${path} HTTP/1.1`,
    ...lines,
    "Accept: application/json, text/event-stream",
    "Content-Type: application/json",
    `Content-Length: ${body.length}`,
    "Connection: close",
  ];
  const client = new RawHttpClient(port);
  client.socket.write(`${all.join("\r\n")}\r\n\r\n${body}`, "latin1");
  await client.waitForEnd();
  client.socket.destroy();
  return Number(/^HTTP\/1\.[01] (\d+)/.exec(client.text)?.[1] ?? 0);
}

/** What refuses a request: its status codes; 400: the runtime itself refuses. */
const REFUSED: readonly (readonly [string, readonly number[], readonly string[]])[] = [
  ["no token", [401], [LOCAL]],
  ["another token", [401], [LOCAL, "Authorization: Bearer other"]],
  ["the beginning of the token", [401], [LOCAL, `Authorization: Bearer ${TOKEN.slice(0, -1)}`]],
  ["a longer token", [401], [LOCAL, `${AUTHORIZED}x`]],
  ["the token in another scheme", [401], [LOCAL, `Authorization: Basic ${TOKEN}`]],
  ["the token without a scheme", [401], [LOCAL, `Authorization: ${TOKEN}`]],
  ["two tokens", [400, 401], [LOCAL, "Authorization: Bearer other", AUTHORIZED]],
  ["another host", [403], ["Host: evil.example", AUTHORIZED]],
  ["a host that begins like this one", [403], ["Host: 127.0.0.1.evil.example", AUTHORIZED]],
  ["a user at another host", [400, 403], ["Host: 127.0.0.1@evil.example", AUTHORIZED]],
  ["a host with a space", [400, 403], ["Host: a b", AUTHORIZED]],
  ["a host that is no host", [400, 403], ["Host: %zz", AUTHORIZED]],
  ["an empty host", [400, 403], ["Host: ", AUTHORIZED]],
  ["no host", [400, 403], [AUTHORIZED]],
  ["a page of another origin", [403], [LOCAL, AUTHORIZED, "Origin: https://evil.example"]],
  ["a page without an origin", [403], [LOCAL, AUTHORIZED, "Origin: null"]],
  ["a page of a file", [403], [LOCAL, AUTHORIZED, "Origin: file://"]],
];

const PLACES = "POST /mcp,GET /mcp,DELETE /mcp,PUT /mcp,POST /mcp/a,GET /,GET /plugins/a".split(
  ",",
);

/** Paths that are not `/mcp`, although some of them normalize to it. */
const ODD_PATHS = [
  ..."/x/../mcp /x/%2e%2e/mcp /./mcp //mcp /mcp/ /%6dcp /MCP /mcp/b/../a /mcp/%61".split(" "),
  "/x\\..\\mcp",
  "/mcp/b\\..\\a",
];

/**
 * What the HTTP server of every runtime must refuse, and how it treats other connections. All tests use one hub, which the
 * last one ends.
 * @param command the command line that starts the hub
 */
export function testHttpAccess(command: () => readonly [string, ...string[]]): void {
  let folder: TestFolder;
  let hub: RawClient;
  let port = 0;
  sharedTestFolder({ servers: { a: scripted() } }, async (setup) => {
    folder = setup;
    const [program, ...first] = command();
    const args = [...first, "serve", "--config", setup.config, "--http", "127.0.0.1:0"];
    const env = { ...setup.env, T: TOKEN };
    hub = new RawClient(program, [...args, "--http-token-env", "T"], setup.dir, env);
    port = await hub.until(20_000, "the address", () => {
      const text = /http:\/\/127\.0\.0\.1:(\d+)/.exec(hub.stderr)?.[1];
      return text === undefined ? undefined : Number(text);
    });
    return () => hub.signal("SIGKILL");
  });

  const hangs = (what: string): number =>
    folder.log("a").filter(({ event, tool }) => event === what && tool !== "echo").length;

  /** Calls a tool as a modern client that accepts only JSON. */
  function callTool(name: string, client = new RawHttpClient(port)): RawHttpClient {
    client.post(modernRequest(1, "tools/call", { name, arguments: {} }), {
      Accept: "application/json",
      Authorization: `Bearer ${TOKEN}`,
      "MCP-Protocol-Version": MODERN_VERSION,
      "Mcp-Method": "tools/call",
      "Mcp-Name": name,
    });
    return client;
  }

  it("refuses a wrong token, Host or Origin on every path and method", async () => {
    for (const [what, statuses, lines] of REFUSED) {
      const found = PLACES.map(async (place) => {
        const [method = "", path = ""] = place.split(" ");
        const status = await statusOf(port, method, path, lines);
        // A path that nobody serves gets the same answer with and without a token.
        const expected = path === "/" ? statuses.map((one) => (one === 401 ? 404 : one)) : statuses;
        assert.ok(expected.includes(status), `${what}: ${place}: ${status}`);
      });
      await Promise.all(found);
    }
    assert.equal(await statusOf(port, "POST", "/mcp", [LOCAL, AUTHORIZED]), 200);
    const page = [LOCAL, AUTHORIZED, "Origin: http://localhost:6274"];
    assert.equal(await statusOf(port, "POST", "/mcp", page), 200);
  });

  it("tells everybody of this machine that it lives, by no other host name", async () => {
    assert.equal(await statusOf(port, "GET", "/healthz", [LOCAL]), 200);
    assert.equal(await statusOf(port, "GET", "/readyz", [LOCAL]), 200);
    assert.equal(await statusOf(port, "GET", "/healthz", ["Host: evil.example"]), 403);
  });

  it("answers no request for another path as one for /mcp", async () => {
    for (const path of ODD_PATHS) {
      const status = await statusOf(port, "POST", path, [LOCAL, AUTHORIZED]);
      assert.ok([400, 404].includes(status), `${path}: ${status}`);
    }
  });

  it("serves others while a client sends chunks of one byte", async () => {
    const chunks = new RawHttpClient(port);
    chunks.request("POST", "/mcp", {
      Authorization: `Bearer ${TOKEN}`,
      "Content-Type": "application/json",
      "Transfer-Encoding": "chunked",
    });
    const block = "1\r\n \r\n".repeat(20_000);
    // One block a turn: a hub that reads as fast as they are written would keep this process from all else.
    const send = (): void => {
      if (!chunks.isEnded && chunks.socket.write(block)) setImmediate(send);
    };
    chunks.socket.on("drain", send);
    send();
    for (let n = 0; n < 5; n++) {
      const began = performance.now();
      assert.equal(await statusOf(port, "GET", "/healthz", [LOCAL]), 200);
      assert.ok(performance.now() - began < 15_000);
    }
    chunks.socket.destroy();
  });

  it("cancels a call, and all that a client has pipelined, when it disconnects", async () => {
    const client = callTool("a__hang");
    await folder.waitForEvent("a", ({ tool }) => tool === "hang");
    client.socket.destroy();
    await folder.waitForEvent("a", ({ event }) => event === "cancelled");
    const pipelining = callTool("a__hang");
    callTool("a__hang", pipelining);
    // Some runtimes begin the second call at once, some never, and Bun closes the connection.
    await poll(
      5000,
      () => "a call, or the end",
      () => hangs("call") > 1 || pipelining.isEnded || undefined,
    );
    await statusOf(port, "GET", "/healthz", [LOCAL]);
    pipelining.socket.destroy();
    await poll(
      5000,
      () => `${hangs("call")} cancelled calls instead of ${hangs("cancelled")}`,
      () => hangs("cancelled") === hangs("call") || undefined,
    );
  });

  itWith({ skip: process.platform !== "linux" })(
    "needs little memory for bodies that come in small pieces",
    async () => {
      const first = new RawHttpClient(port);
      first.request("POST", "/mcp", { Authorization: `Bearer ${TOKEN}` }, INITIALIZE);
      const [, id = ""] = await first.until(/mcp-session-id: (\S+)/i);
      const clients = Array.from({ length: 10 }, () => new RawHttpClient(port));
      for (const client of clients) {
        client.socket.setNoDelay(true);
        client.request("POST", "/mcp", {
          Authorization: `Bearer ${TOKEN}`,
          "Mcp-Session-Id": id,
          "Content-Type": "application/json",
          "Transfer-Encoding": "chunked",
        });
      }
      // Fewer pieces than are joined at once.
      for (let n = 0; n < 900; n++) {
        for (const { socket } of clients) socket.write(`40\r\n${" ".repeat(64)}\r\n`);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      assert.equal(await statusOf(port, "GET", "/healthz", [LOCAL]), 200);
      const status = readFileSync(`/proc/${hub.pid}/status`, "utf8");
      const resident = Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
      assert.ok(resident < 400, `${resident} MB`);
      for (const { socket } of [first, ...clients]) socket.destroy();
    },
  );

  it("answers what is in flight when it ends, and ends although bodies are incomplete", async () => {
    const calls = hangs("call");
    const answered = callTool("a__echo");
    await answered.until(/^HTTP\/1\.1 200 .*"result"/s);
    const call = callTool("a__hang");
    const half = new RawHttpClient(port);
    half.request("POST", "/mcp", {
      Authorization: `Bearer ${TOKEN}`,
      "Content-Type": "application/json",
      "Content-Length": "100000",
    });
    half.socket.write("{");
    const silent = new RawHttpClient(port);
    await folder.waitForEvent("a", () => hangs("call") > calls);
    hub.signal("SIGTERM");
    assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 143);
    assert.deepEqual(hub.lines, []);
    // Neither stack traces nor warnings of the runtime.
    for (const line of hub.stderr.split("\n").filter(Boolean))
      assert.match(line, /^toolmux: (?:info|warn) /, hub.stderr);
    assert.match(call.text, /^HTTP\/1\.1 503 .*"error"/s);
    for (const { socket } of [call, half, silent, answered]) socket.destroy();
  });
}
