import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { openUserAuthorizer } from "../../src/cli/transport-factory.ts";
import { Authority } from "../fixtures/authorization-server.ts";
import { remote, resolved } from "../fixtures/protected-server.ts";
import { RawServer, type Visit } from "../fixtures/raw-http-server.ts";
import { governed, idOf, JSON_TYPE, methodOf } from "../fixtures/http-transport-recorder.ts";
import { browse } from "../fixtures/browser.ts";
import { RawClient } from "../harness/raw-client.ts";
import { END, executable, LIMIT, withStage } from "../harness/hub.ts";

const SIGNAL = new AbortController().signal;

/** Answers a request with that result. */
function say(visit: Visit, result: unknown): void {
  visit.answer(200, JSON_TYPE, JSON.stringify({ jsonrpc: "2.0", id: idOf(visit), result }));
}

/** A server with one tool; `call` answers calls of it. */
function toolServer(call: (visit: Visit) => void): (visit: Visit) => void {
  const others = governed((visit) => {
    if (methodOf(visit) === "tools/call") call(visit);
    else say(visit, { tools: [{ name: "one", inputSchema: { type: "object" } }] });
  });
  return (visit) => {
    if (methodOf(visit) !== "initialize") others(visit);
    else {
      const serverInfo = { name: "s", version: "1" };
      say(visit, { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo });
    }
  };
}

describe("a server that sends requests on to another one", () => {
  it(
    "keeps its token for itself, though that came after the redirect was followed",
    LIMIT,
    async () => {
      const authority = await Authority.open();
      const other = await RawServer.start(toolServer((visit) => visit.answer(401)));
      const server = await RawServer.start((visit) => {
        if (visit.path.startsWith("/.well-known/oauth-protected-resource")) {
          const said = { resource: server.url.href, authorization_servers: [authority.url] };
          visit.answer(200, JSON_TYPE, JSON.stringify(said));
        } else if (visit.path !== "/mcp") visit.answer(404);
        else if (visit.headers.has("authorization")) {
          toolServer((call) => say(call, { content: [{ type: "text", text: "here" }] }))(visit);
        } else visit.answer(307, { Location: other.url.href });
      });
      try {
        const manifest = `[servers.guarded]\nurl = "${server.url.href}"\n`;
        await withStage(manifest, async (stage) => {
          const env = { ...stage.env, TOOLMUX_KEYCHAIN: "off" };
          const client = new RawClient(executable(), ["--config", stage.config], stage.dir, env);
          const tools = await client.open();
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
          await authorizer.authorize(remote(server), resolved(server), challenge, quiet);
          const { Authorization: token } = await authorizer
            .credentialsFor(remote(server), resolved(server))
            .bear(SIGNAL);
          const { message } = await client.call("guarded__one");
          assert.deepEqual(message.result, { content: [{ type: "text", text: "here" }] });
          client.end();
          await client.ended(END);
          assert.ok(server.visits.some(({ headers }) => headers.get("authorization") === token));
        });
        assert.ok(other.visits.some((visit) => methodOf(visit) === "tools/call"));
        for (const { headers } of other.visits) assert.equal(headers.has("authorization"), false);
      } finally {
        other.stop();
        server.stop();
        await authority.close();
      }
    },
  );
});
