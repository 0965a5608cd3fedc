import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { HttpServer, startHttpServer } from "../../../src/frontend/http/server.ts";
import { EVENT_BUFFER_LIMITS } from "../../../src/frontend/http/event-buffer.ts";
import { waitFor } from "../../harness/wait.ts";
import { RawHttpClient } from "../../fixtures/raw-http-client.ts";
import {
  callRequest,
  INITIALIZE_REQUEST,
  type Json,
  ScriptedServer,
  setUpHub,
} from "../../fixtures/memory-hub.ts";

const ADDRESS = { hostname: "127.0.0.1", port: 0, token: undefined, maxMessage: 1024 * 1024 };
const EVENTS = { Accept: "text/event-stream" };

/** Begins a session. @returns the header with its id */
async function begin(client: RawHttpClient): Promise<{ "Mcp-Session-Id": string }> {
  client.post(INITIALIZE_REQUEST);
  const [, id = ""] = await client.until(/mcp-session-id: (\S+)/i);
  client.socket.destroy();
  return { "Mcp-Session-Id": id };
}

interface Place {
  readonly face: HttpServer;
  readonly script: ScriptedServer;
  readonly calls: Json[];
  /** A new session. */
  readonly session: { readonly "Mcp-Session-Id": string };
  readonly wire: RawHttpClient;
  connect(): RawHttpClient;
  close(): Promise<void>;
}

describe("an HTTP face that listens", () => {
  async function withPlace(run: (place: Place) => Promise<void>): Promise<void> {
    const script = new ScriptedServer("t");
    const calls: Json[] = [];
    script.onCall = (message) => void calls.push(message);
    const { hub } = setUpHub({ s: script }, { servers: { s: { callTimeout: 200_000 } } });
    const face = new HttpServer(hub, ADDRESS);
    const listener = await face.listen("127.0.0.1", 0);
    const clients: RawHttpClient[] = [];
    const connect = (): RawHttpClient => {
      const client = new RawHttpClient(listener.port);
      clients.push(client);
      return client;
    };
    const close = async (): Promise<void> => {
      await face.close();
      await listener.close(200);
    };
    try {
      const session = await begin(connect());
      await run({ face, script, calls, session, wire: connect(), connect, close });
    } finally {
      for (const { socket } of clients) socket.destroy();
      await close();
      await hub.close();
    }
  }

  it("answers several requests on one connection", () =>
    withPlace(async ({ wire, session }) => {
      for (const id of [1, 2, 3]) {
        wire.post({ jsonrpc: "2.0", id, method: "ping" }, session);
        await wire.until(new RegExp(`"id":${id}\\}`));
      }
      assert.equal(wire.text.match(/HTTP\/1\.1 200/g)?.length, 3);
    }));

  it("goes on with a call whose connection was lost, and gives the answer to who comes back", () =>
    withPlace(async ({ wire, session, connect, calls, script }) => {
      wire.post(callRequest(1, "s__t"), { ...session, ...EVENTS });
      const [, id = ""] = await wire.until(/retry: 1000\nid: (\S+)\ndata: \n\n/);
      wire.socket.destroy();
      const [asked] = await waitFor("the call", () => (calls.length > 0 ? calls : undefined));
      script.newestPeer?.send({ jsonrpc: "2.0", id: asked?.id, result: { back: true } });
      const again = connect();
      again.request("GET", "/mcp", { ...session, ...EVENTS, "Last-Event-ID": id });
      await again.until(/"back":true/);
      assert.equal(script.messagesOf("notifications/cancelled").length, 0);
    }));

  it("holds little for who does not read, drops the stream, and serves others", () =>
    withPlace(async ({ wire, session, connect, calls, script, face }) => {
      const headers = { ...session, ...EVENTS };
      wire.post(callRequest(1, "s__t", {}, { _meta: { progressToken: "p" } }), headers);
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
      const other = connect();
      other.post({ jsonrpc: "2.0", id: 5, method: "ping" }, await begin(connect()));
      await other.until(/"id":5\}/);
      other.socket.destroy();
      script.newestPeer?.send({ jsonrpc: "2.0", id: asked?.id, result: { last: true } });
      wire.socket.resume();
      await wire.until(/\r\n0\r\n\r\n$/);
      const seen = wire.text.match(/"progress":\d+/g)?.length ?? 0;
      assert.ok(seen < count, `${seen} of ${count}`);
      assert.ok(!wire.text.includes('"last":true'));
      const ids = wire.text.match(/id: \d+-\d+/g) ?? [];
      const again = connect();
      const last = { "Last-Event-ID": ids.at(-1)?.slice(4) ?? "" };
      again.request("GET", "/mcp", { ...headers, ...last });
      await again.until(/"last":true/);
      assert.equal(face.sessions, 2);
    }));

  it(
    "cuts no connection on which an answer is due",
    { timeout: 100_000, skip: process.env["TOOLMUX_SLOW_TESTS"] === undefined },
    () =>
      withPlace(async ({ wire, session, calls, script }) => {
        wire.post(callRequest(1, "s__t"), { ...session, Accept: "application/json" });
        await waitFor("the call", () => calls[0]);
        // Longer than any runtime takes a connection for lost.
        await new Promise((resolve) => setTimeout(resolve, 75_000));
        assert.equal(wire.isEnded, false);
        script.newestPeer?.send({ jsonrpc: "2.0", id: calls[0]?.id, result: { late: true } });
        await wire.until(/"late":true/);
      }),
  );

  it("answers at once who listens, although there is nothing to hear yet, and notices that they have gone", () =>
    withPlace(async ({ wire, session, face }) => {
      const id = session["Mcp-Session-Id"];
      wire.request("GET", "/mcp", { ...session, ...EVENTS });
      await wire.until(/^HTTP\/1\.1 200.*\r\n\r\n/s);
      assert.match(wire.text, /text\/event-stream/i);
      assert.match(wire.text, /x-accel-buffering: no/i);
      assert.equal(face.findSession(id)?.idleSince, undefined);
      wire.socket.destroy();
      await waitFor("the session to be idle", () => face.findSession(id)?.idleSince);
    }));

  it("refuses who names no host, also where others may come", async () => {
    const { hub } = setUpHub({});
    const face = new HttpServer(hub, { ...ADDRESS, hostname: "0.0.0.0", token: "t" });
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
    withPlace(async ({ wire, connect }) => {
      const type = { "Content-Type": "application/json" };
      const length = String(ADDRESS.maxMessage + 1);
      wire.request("POST", "/mcp", { ...type, "Content-Length": length });
      await wire.until(/^HTTP\/1\.1 413/);
      const chunked = connect();
      chunked.request("POST", "/mcp", { ...type, "Transfer-Encoding": "chunked" });
      const piece = " ".repeat(256 * 1024);
      for (let n = 0; n < 5; n++) chunked.socket.write(`40000\r\n${piece}\r\n`);
      await chunked.until(/^HTTP\/1\.1 413/);
    }));

  for (const end of ["ended", "aborted"] as const)
    it(`holds no more of all bodies together than it may, and takes others once some have ${end}`, async () => {
      const { hub } = setUpHub({ s: new ScriptedServer("t") });
      const size = ADDRESS.maxMessage;
      const most = 4;
      const face = await startHttpServer(hub, { ...ADDRESS, maxReceiving: most * size });
      const port = Number(new URL(face.url).port);
      const wires: RawHttpClient[] = [];
      const open = (): RawHttpClient => {
        const wire = new RawHttpClient(port);
        wires.push(wire);
        return wire;
      };
      try {
        const ping = '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""}}';
        const body = ping.replace('""', `"${"x".repeat(size - ping.length)}"`);
        const headers = {
          "Content-Type": "application/json",
          "Content-Length": String(size),
          ...(await begin(open())),
        };
        const half = (): RawHttpClient => {
          const wire = open();
          wire.request("POST", "/mcp", headers);
          wire.socket.write(body.slice(0, -100));
          return wire;
        };
        const all = Array.from({ length: 4 * most }, half);
        const isRefused = ({ text }: RawHttpClient): boolean => text.startsWith("HTTP/1.1 503 ");
        await waitFor(
          "refusals",
          () => all.filter(isRefused).length >= 3 * most || undefined,
          10_000,
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
    withPlace(async ({ wire, session, connect, close }) => {
      wire.request("GET", "/mcp", { ...session, ...EVENTS });
      await wire.until(/text\/event-stream/i);
      connect();
      await close();
      await wire.waitForEnd();
      const late = connect();
      await late.waitForEnd();
      assert.equal(late.text, "");
    }));
});

describe("an HTTP face", () => {
  it("says where it cannot listen", async () => {
    const { hub } = setUpHub({});
    const face = await startHttpServer(hub, ADDRESS);
    const port = Number(new URL(face.url).port);
    const second = startHttpServer(hub, { ...ADDRESS, port });
    await assert.rejects(second, { code: "usage", message: new RegExp(`127\\.0\\.0\\.1:${port}`) });
    await face.close();
    await hub.close();
  });

  it("listens on IPv6", async () => {
    const { hub } = setUpHub({});
    const face = await startHttpServer(hub, { ...ADDRESS, hostname: "[::1]" });
    const response = await fetch(face.url.replace(/mcp$/, "healthz"));
    assert.deepEqual(await response.json(), { alive: true });
    await face.close();
    await hub.close();
  });
});
