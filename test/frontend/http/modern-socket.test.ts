import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HttpServer } from "../../../src/frontend/http/server.ts";
import { EventStreamReader } from "../../fixtures/http-client.ts";
import { type Json, ScriptedServer, setUpHub } from "../../fixtures/memory-hub.ts";
import { MODERN_VERSION, modernRequest } from "../../fixtures/modern-requests.ts";
import { waitFor } from "../../harness/wait.ts";

interface Place {
  readonly git: ScriptedServer;
  readonly face: HttpServer;
  post(
    method: string,
    params: Readonly<Record<string, unknown>>,
    init?: { signal?: AbortSignal; accept?: string },
  ): Promise<Response>;
}

describe("a modern client of an HTTP face that listens", () => {
  async function withPlace(run: (place: Place) => Promise<void>): Promise<void> {
    const git = new ScriptedServer("x");
    git.listings = { resources: [{ uri: "u:1", name: "r" }] };
    git.handlers = {
      "resources/subscribe": () => '"result":{}',
      "resources/unsubscribe": () => '"result":{}',
    };
    git.onCall = () => undefined;
    const { hub } = setUpHub({ git });
    const maxMessage = 1024 * 1024;
    const face = new HttpServer(hub, { hostname: "127.0.0.1", token: undefined, maxMessage });
    const listener = await face.listen("127.0.0.1", 0);
    const post: Place["post"] = (method, params, { signal, accept } = {}) =>
      fetch(`http://127.0.0.1:${listener.port}/mcp`, {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          Accept: accept ?? "application/json, text/event-stream",
          "MCP-Protocol-Version": MODERN_VERSION,
          "Mcp-Method": method,
          ...(typeof params["name"] === "string" && { "Mcp-Name": params["name"] }),
        },
        body: JSON.stringify(modernRequest(1, method, params)),
        ...(signal !== undefined && { signal }),
      });
    try {
      await run({ git, face, post });
    } finally {
      await face.close();
      await listener.close(200);
      await hub.close();
    }
  }

  function reported(script: ScriptedServer, method: string): Promise<Json> {
    return waitFor(method, () => script.messagesOf(method)[0]);
  }

  it("is answered, and goes on to use its connection", () =>
    withPlace(async ({ post }) => {
      for (let i = 0; i < 3; i++) {
        const response = await post("tools/list", {});
        const { result } = (await response.json()) as Json;
        assert.equal(result?.["resultType"], "complete");
      }
    }));

  it("cancels a call by going before there is an answer", () =>
    withPlace(async ({ git, post }) => {
      const abort = new AbortController();
      const pending = post("tools/call", { name: "git__x" }, { signal: abort.signal });
      await reported(git, "tools/call");
      abort.abort();
      await assert.rejects(pending);
      await reported(git, "notifications/cancelled");
    }));

  it("cancels a call by closing the stream that it got for an answer", () =>
    withPlace(async ({ git, post }) => {
      const accept = "text/event-stream";
      const response = await post("tools/call", { name: "git__x" }, { accept });
      await reported(git, "tools/call");
      await response.body?.cancel();
      await reported(git, "notifications/cancelled");
    }));

  it("listens until it goes", () =>
    withPlace(async ({ git, post }) => {
      const notifications = { resourceSubscriptions: ["u:1"] };
      await (await post("tools/list", {})).text();
      const events = new EventStreamReader(await post("subscriptions/listen", { notifications }));
      const { params } = await events.message();
      assert.deepEqual(params?.["notifications"], notifications);
      await events.cancel();
      await reported(git, "resources/unsubscribe");
    }));

  it("listens until the hub ends", () =>
    withPlace(async ({ face, post }) => {
      const notifications = { toolsListChanged: true };
      const events = new EventStreamReader(await post("subscriptions/listen", { notifications }));
      await events.message();
      await face.close();
      // Before it, the client may be told that the list has changed.
      const last = (await events.remainingMessages()).at(-1);
      assert.equal(last?.result?.["resultType"], "complete");
    }));
});
