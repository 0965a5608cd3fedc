import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import { HttpServer, startHttpServer } from "../../../src/frontend/http/server.ts";
import { EVENT_BUFFER_LIMITS } from "../../../src/frontend/http/event-buffer.ts";
import { poll, waitFor } from "../../harness/wait.ts";
import { RawHttpClient } from "../../fixtures/raw-http-client.ts";
import {
  callRequest,
  INITIALIZE_REQUEST,
  type Json,
  ScriptedServer,
  setUpHub,
} from "../../fixtures/memory-hub.ts";

interface Place {
  readonly port: number;
  readonly face: HttpServer;
  readonly script: ScriptedServer;
  readonly calls: Json[];
  /** A new session's id. */
  begin(): Promise<string>;
  close(): Promise<void>;
}

describe("an HTTP face that listens", () => {
  async function withPlace(run: (place: Place) => Promise<void>): Promise<void> {
    const script = new ScriptedServer("t");
    const calls: Json[] = [];
    script.onCall = (message) => void calls.push(message);
    const { hub } = setUpHub({ s: script }, { servers: { s: { callTimeout: 200_000 } } });
    const maxMessage = 1024 * 1024;
    const face = new HttpServer(hub, { hostname: "127.0.0.1", token: undefined, maxMessage });
    const listener = await face.listen("127.0.0.1", 0);
    const { port } = listener;
    const close = async (): Promise<void> => {
      await face.close();
      await listener.close(200);
    };
    const begin = async (): Promise<string> => {
      const wire = new RawHttpClient(port);
      wire.post(INITIALIZE_REQUEST);
      const [, id = ""] = await wire.until(/mcp-session-id: (\S+)/i);
      wire.socket.destroy();
      return id;
    };
    try {
      await run({ port, face, script, calls, begin, close });
    } finally {
      await close();
      await hub.close();
    }
  }

  it("answers several requests on one connection", () =>
    withPlace(async ({ port, begin }) => {
      const session = { "Mcp-Session-Id": await begin() };
      const wire = new RawHttpClient(port);
      for (const id of [1, 2, 3]) {
        wire.post({ jsonrpc: "2.0", id, method: "ping" }, session);
        await wire.until(new RegExp(`"id":${id}\\}`));
      }
      assert.equal(wire.text.match(/HTTP\/1\.1 200/g)?.length, 3);
      wire.socket.destroy();
    }));

  it("answers at once who listens, although there is nothing to hear yet", () =>
    withPlace(async ({ port, begin }) => {
      const session = { "Mcp-Session-Id": await begin() };
      const wire = new RawHttpClient(port);
      wire.request("GET", "/mcp", { ...session, Accept: "text/event-stream" });
      await wire.until(/^HTTP\/1\.1 200.*\r\n\r\n/s);
      wire.socket.destroy();
    }));

  it("goes on with a call whose connection was lost, and gives the answer to who comes back", () =>
    withPlace(async ({ port, begin, calls, script }) => {
      const session = { "Mcp-Session-Id": await begin() };
      const wire = new RawHttpClient(port);
      wire.post(callRequest(1, "s__t"), { ...session, Accept: "text/event-stream" });
      const [, id = ""] = await wire.until(/retry: 1000\nid: (\S+)\ndata: \n\n/);
      wire.socket.destroy();
      const [asked] = await waitFor("the call", () => (calls.length > 0 ? calls : undefined));
      script.newestPeer?.send({ jsonrpc: "2.0", id: asked?.id, result: { back: true } });
      const again = new RawHttpClient(port);
      const headers = { ...session, Accept: "text/event-stream", "Last-Event-ID": id };
      again.request("GET", "/mcp", headers);
      await again.until(/"back":true/);
      assert.equal(script.messagesOf("notifications/cancelled").length, 0);
      again.socket.destroy();
    }));

  it("holds little for who does not read, drops the stream, and serves others", () =>
    withPlace(async ({ port, begin, calls, script, face }) => {
      const session = { "Mcp-Session-Id": await begin() };
      const wire = new RawHttpClient(port);
      const accept = { Accept: "text/event-stream" };
      wire.post(callRequest(1, "s__t", {}, { _meta: { progressToken: "p" } }), {
        ...session,
        ...accept,
      });
      await wire.until(/data: \n\n/);
      wire.socket.pause();
      const [asked] = calls;
      const { progressToken } = asked?.params?.["_meta"] as { progressToken: number };
      const message = "x".repeat(512 * 1024);
      const count = (4 * EVENT_BUFFER_LIMITS.maxBehind) / message.length;
      for (let progress = 0; progress < count; progress++) {
        const params = { progressToken, progress, message };
        script.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params });
      }
      const other = new RawHttpClient(port);
      other.post({ jsonrpc: "2.0", id: 5, method: "ping" }, { "Mcp-Session-Id": await begin() });
      await other.until(/"id":5\}/);
      other.socket.destroy();
      script.newestPeer?.send({ jsonrpc: "2.0", id: asked?.id, result: { last: true } });
      wire.socket.resume();
      await wire.until(/\r\n0\r\n\r\n$/);
      const seen = wire.text.match(/"progress":\d+/g)?.length ?? 0;
      assert.ok(seen < count, `${seen} of ${count}`);
      assert.ok(!wire.text.includes('"last":true'));
      const ids = wire.text.match(/id: \d+-\d+/g) ?? [];
      const again = new RawHttpClient(port);
      const last = { "Last-Event-ID": ids.at(-1)?.slice(4) ?? "" };
      again.request("GET", "/mcp", { ...session, ...accept, ...last });
      await again.until(/"last":true/);
      wire.socket.destroy();
      again.socket.destroy();
      assert.equal(face.sessions, 2);
    }));

  it(
    "cuts no connection on which an answer is due",
    { timeout: 100_000, skip: process.env["TOOLMUX_SLOW_TESTS"] === undefined },
    () =>
      withPlace(async ({ port, begin, calls, script }) => {
        const wire = new RawHttpClient(port);
        const session = { "Mcp-Session-Id": await begin(), Accept: "application/json" };
        wire.post(callRequest(1, "s__t"), session);
        await waitFor("the call", () => calls[0]);
        // Longer than any runtime takes a connection for lost.
        await new Promise((resolve) => setTimeout(resolve, 75_000));
        assert.equal(wire.isEnded, false);
        script.newestPeer?.send({ jsonrpc: "2.0", id: calls[0]?.id, result: { late: true } });
        await wire.until(/"late":true/);
        wire.socket.destroy();
      }),
  );

  it("notices that the reader of a stream has gone", () =>
    withPlace(async ({ port, begin, face }) => {
      const id = await begin();
      const wire = new RawHttpClient(port);
      wire.request("GET", "/mcp", { "Mcp-Session-Id": id, Accept: "text/event-stream" });
      await wire.until(/text\/event-stream/i);
      assert.match(wire.text, /x-accel-buffering: no/i);
      assert.equal(face.findSession(id)?.idleSince, undefined);
      wire.socket.destroy();
      await waitFor("the session to be idle", () => face.findSession(id)?.idleSince);
    }));

  it("refuses who names no host, also where others may come", async () => {
    const { hub } = setUpHub({});
    const settings = { hostname: "0.0.0.0", token: "t", maxMessage: 1024 };
    const face = new HttpServer(hub, settings);
    const listener = await face.listen("127.0.0.1", 0);
    const wire = new RawHttpClient(listener.port);
    wire.socket.write("GET /healthz HTTP/1.0\r\nAuthorization: Bearer t\r\n\r\n");
    await wire.waitForEnd();
    assert.match(wire.text, /^HTTP\/1\.[01] (?:400|403) /);
    await face.close();
    await listener.close(200);
    await hub.close();
  });

  it("answers a body over the limit with 413, whether its size was told or not", () =>
    withPlace(async ({ port }) => {
      const reported = new RawHttpClient(port);
      reported.request("POST", "/mcp", {
        "Content-Type": "application/json",
        "Content-Length": String(1024 * 1024 + 1),
      });
      await reported.until(/^HTTP\/1\.1 413/);
      reported.socket.destroy();
      const chunked = new RawHttpClient(port);
      const headers = { "Content-Type": "application/json", "Transfer-Encoding": "chunked" };
      chunked.request("POST", "/mcp", headers);
      const piece = " ".repeat(256 * 1024);
      for (let n = 0; n < 5; n++) chunked.socket.write(`40000\r\n${piece}\r\n`);
      await chunked.until(/^HTTP\/1\.1 413/);
      chunked.socket.destroy();
    }));

  for (const end of ["ended", "aborted"] as const)
    it(`holds no more of all bodies together than it may, and takes others once some have ${end}`, async () => {
      const { hub } = setUpHub({ s: new ScriptedServer("t") });
      const size = 1024 * 1024;
      const most = 4;
      const face = await startHttpServer(hub, {
        hostname: "127.0.0.1",
        port: 0,
        token: undefined,
        maxMessage: size,
        maxReceiving: most * size,
      });
      const port = Number(new URL(face.url).port);
      const wires: RawHttpClient[] = [];
      const open = (): RawHttpClient => {
        const wire = new RawHttpClient(port);
        wires.push(wire);
        return wire;
      };
      try {
        const first = open();
        first.post(INITIALIZE_REQUEST);
        const [, id = ""] = await first.until(/mcp-session-id: (\S+)/i);
        const [begin = "", close = ""] = JSON.stringify({
          jsonrpc: "2.0",
          id: 1,
          method: "ping",
          params: { x: "|" },
        }).split("|");
        const body = `${begin}${"x".repeat(size - begin.length - close.length)}${close}`;
        const headers = {
          "Content-Type": "application/json",
          "Content-Length": String(size),
          "Mcp-Session-Id": id,
        };
        const half = (): RawHttpClient => {
          const wire = open();
          wire.request("POST", "/mcp", headers);
          wire.socket.write(body.slice(0, -100));
          return wire;
        };
        const all = Array.from({ length: 4 * most }, half);
        const isRefused = ({ text }: RawHttpClient): boolean => text.startsWith("HTTP/1.1 503 ");
        await poll(
          10_000,
          () => `refusals; so far ${all.filter(isRefused).length}`,
          () => all.filter(isRefused).length >= 3 * most || undefined,
        );
        const held = all.filter((wire) => !isRefused(wire));
        assert.ok(held.length > 0);
        for (const wire of all.filter(isRefused))
          assert.match(wire.text, /\r\nRetry-After: \d+\r\n/i);
        for (const wire of held) {
          if (end === "ended") {
            wire.socket.write(body.slice(-100));
            await wire.until(/^HTTP\/1\.1 200 .*"id":1/s);
          } else wire.socket.destroy();
        }
        // All of it is there again, as soon as the hub has seen who is gone.
        for (let n = 0; ; n++) {
          assert.ok(n < 500, "the bytes of those that are gone");
          const again = Array.from({ length: most }, half);
          for (const wire of again) wire.socket.write(body.slice(-100));
          await Promise.all(again.map((wire) => wire.until(/^HTTP\/1\.1 (?:200 .*"id":1|503)/s)));
          if (!again.some(isRefused)) break;
        }
      } finally {
        for (const { socket } of wires) socket.destroy();
        await face.close();
        await hub.close();
      }
    });

  it("ends its streams and connections when it closes, and listens no more", () =>
    withPlace(async ({ port, begin, close }) => {
      const session = { "Mcp-Session-Id": await begin() };
      const wire = new RawHttpClient(port);
      wire.request("GET", "/mcp", { ...session, Accept: "text/event-stream" });
      await wire.until(/text\/event-stream/i);
      const spare = new RawHttpClient(port);
      await close();
      await wire.waitForEnd();
      spare.socket.destroy();
      const late = new RawHttpClient(port);
      await late.waitForEnd();
      assert.equal(late.text, "");
    }));
});

describe("an HTTP face", () => {
  it("says where it cannot listen", async () => {
    const { hub } = setUpHub({});
    const settings = { hostname: "127.0.0.1", token: undefined, maxMessage: 1024 };
    const face = await startHttpServer(hub, { ...settings, port: 0 });
    const port = Number(new URL(face.url).port);
    await assert.rejects(
      startHttpServer(hub, { ...settings, port }),
      (error) =>
        error instanceof HubError &&
        error.code === "usage" &&
        error.message.includes(`127.0.0.1:${port}`),
    );
    await face.close();
    await hub.close();
  });

  it("listens on IPv6", async () => {
    const { hub } = setUpHub({});
    const settings = { hostname: "[::1]", port: 0, token: undefined, maxMessage: 1024 };
    const face = await startHttpServer(hub, settings);
    const response = await fetch(face.url.replace(/mcp$/, "healthz"));
    assert.deepEqual(await response.json(), { alive: true });
    await face.close();
    await hub.close();
  });
});
