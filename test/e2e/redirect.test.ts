import assert from "node:assert/strict";
import process from "node:process";
import { describe } from "node:test";
import { openUserAuthorizer } from "../../src/hub/transport-factory.ts";
import { TestAuthorizationServer } from "../fixtures/authorization-server.ts";
import { protectedServerSpec, resolvedProtectedServer } from "../fixtures/protected-server.ts";
import { RawHttpServer, type RawHttpRequest } from "../fixtures/raw-http-server.ts";
import {
  withHandshake,
  requestIdOf,
  JSON_HEADERS,
  requestMethodOf,
} from "../fixtures/http-transport-recorder.ts";
import { browse } from "../fixtures/browser.ts";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, executable, it, withTestFolder } from "../harness/hub.ts";

const SIGNAL = new AbortController().signal;

/** Answers a request with that result. */
function say(received: RawHttpRequest, result: unknown): void {
  received.respond(
    200,
    JSON_HEADERS,
    JSON.stringify({ jsonrpc: "2.0", id: requestIdOf(received), result }),
  );
}

/** A server with one tool; `call` answers calls of it. */
function toolServer(call: (received: RawHttpRequest) => void): (received: RawHttpRequest) => void {
  const others = withHandshake((received) => {
    if (requestMethodOf(received) === "tools/call") call(received);
    else say(received, { tools: [{ name: "one", inputSchema: { type: "object" } }] });
  });
  return (received) => {
    if (requestMethodOf(received) !== "initialize") others(received);
    else {
      const serverInfo = { name: "s", version: "1" };
      say(received, { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo });
    }
  };
}

describe("a server that sends requests on to another one", () => {
  it("keeps its token for itself, though that came after the redirect was followed", async () => {
    const authority = await TestAuthorizationServer.open();
    const other = await RawHttpServer.start(toolServer((received) => received.respond(401)));
    const server = await RawHttpServer.start((received) => {
      if (received.path.startsWith("/.well-known/oauth-protected-resource")) {
        const said = { resource: server.url.href, authorization_servers: [authority.url] };
        received.respond(200, JSON_HEADERS, JSON.stringify(said));
      } else if (received.path !== "/mcp") received.respond(404);
      else if (received.headers.has("authorization")) {
        toolServer((call) => say(call, { content: [{ type: "text", text: "here" }] }))(received);
      } else received.respond(307, { Location: other.url.href });
    });
    try {
      const manifest = `[servers.guarded]\nurl = "${server.url.href}"\n`;
      await withTestFolder(manifest, async (setup) => {
        const env = { ...setup.env, TOOLMUX_KEYCHAIN: "off" };
        const client = new RawClient(executable(), ["--config", setup.config], setup.dir, env);
        const tools = await client.initializeAndList();
        assert.deepEqual(
          tools.map(({ name }) => name),
          ["guarded__one"],
        );
        const authorizer = await openUserAuthorizer(
          { env, platform: process.platform },
          async (url) => void (await browse(url)),
        );
        const challenge = { status: 401, header: undefined } as const;
        const quiet = { signal: SIGNAL, onProgress: () => {} };
        await authorizer.authorize(
          protectedServerSpec(server),
          resolvedProtectedServer(server),
          challenge,
          quiet,
        );
        const { Authorization: token } = await authorizer
          .credentialsFor(protectedServerSpec(server), resolvedProtectedServer(server))
          .getHeaders(SIGNAL);
        const { message } = await client.call("guarded__one");
        assert.deepEqual(message.result, { content: [{ type: "text", text: "here" }] });
        client.end();
        await client.waitForExit(EXIT_LIMIT);
        assert.ok(server.requests.some(({ headers }) => headers.get("authorization") === token));
      });
      assert.ok(other.requests.some((received) => requestMethodOf(received) === "tools/call"));
      for (const { headers } of other.requests) assert.equal(headers.has("authorization"), false);
    } finally {
      other.destroy();
      server.destroy();
      await authority.close();
    }
  });
});
