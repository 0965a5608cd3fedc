import assert from "node:assert/strict";
import { it } from "node:test";
import { HttpServer } from "../../../src/frontend/http/server.ts";
import { subsetOf } from "../../../src/upstream/profile.ts";
import { type Json, ScriptedServer, setUpHub } from "../../fixtures/memory-hub.ts";
import { modernRequest } from "../../fixtures/modern-requests.ts";

it("a token with servers, and a URL with some, make the others unknown to the hub's own tools", async () => {
  const git = new ScriptedServer("log", "push");
  const files = new ScriptedServer("read");
  const vault = new ScriptedServer("log", "open_vault");
  vault.instructions = "The vault.";
  const whole = setUpHub({ git, files, vault }, { hub: { expose: "search" } });
  const alone = setUpHub({ git, files }, { hub: { expose: "search" } });
  const settings = { hostname: "127.0.0.1", maxMessage: 1024 * 1024, token: "own" };
  const ci = {
    name: "ci",
    token: "t",
    subset: subsetOf(["git", "files"]),
    mode: undefined,
    maxSessions: undefined,
    expose: undefined,
  };
  const server = new HttpServer(whole.hub, { ...settings, clients: [ci] });
  const bare = new HttpServer(alone.hub, settings);
  const ask = async (face: HttpServer, path: string, token: string, name: string, args: object) => {
    const response = await face.fetch(
      new Request(`http://127.0.0.1:8700${path}`, {
        method: "POST",
        headers: {
          Host: "127.0.0.1:8700",
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
          "MCP-Protocol-Version": "2026-07-28",
          "Mcp-Method": "tools/call",
          "Mcp-Name": name,
          Authorization: `Bearer ${token}`,
        },
        body: JSON.stringify(modernRequest(1, "tools/call", { name, arguments: args })),
      }),
      { isPathAsSent: true, keepOpen: () => {} },
    );
    const text = await response.text();
    const { result, error } = JSON.parse(/^data: (.*)$/m.exec(text)?.[1] ?? text) as Json;
    return { result, error };
  };
  await ask(server, "/mcp", "own", "search_tools", { query: "log" });
  for (const [name, args] of [
    ["search_tools", { query: "log" }],
    ["search_tools", { query: "vault" }],
    ["search_tools", { query: "open_vaul" }],
    ["search_tools", { query: "log", server: "vault" }],
    ["describe_tools", { names: ["vault__log", "open_vault", "git__log"] }],
    ["call_tool", { name: "log" }],
    ["call_tool", { name: "vault__log" }],
    ["call_tool", { name: "vault:open_vault" }],
  ] as const) {
    const what = `${name} ${JSON.stringify(args)}`;
    const expected = await ask(bare, "/mcp", "own", name, args);
    assert.deepEqual(await ask(server, "/mcp", "t", name, args), expected, what);
    const path = "/mcp?servers=git,files";
    assert.deepEqual(await ask(server, path, "own", name, args), expected, `${what} by URL`);
  }
  assert.deepEqual(vault.messagesOf("tools/call"), []);
  await Promise.all([server.close(), bare.close()]);
  await Promise.all([whole.hub.close(), alone.hub.close()]);
});
