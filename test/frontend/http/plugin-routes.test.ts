import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Hono } from "hono";
import { HttpServer } from "../../../src/frontend/http/server.ts";
import type { Plugin } from "../../../src/plugin/plugin.ts";
import { setUpPluginHub } from "../../fixtures/plugin-hub.ts";
import { RawHttpClient } from "../../fixtures/raw-http-client.ts";
import { fetchInProcess } from "../../fixtures/web-adapter.ts";

const TOKEN = "a-token-that-nobody-guesses";

type NewClient = (path: string, init?: RequestInit, token?: string) => Promise<Response>;

/** A face over a hub with that plugin, which only who has the token may use. */
async function makeFace(plugin: Plugin): Promise<HttpServer> {
  const { hub } = await setUpPluginHub([{ plugin }], {});
  return new HttpServer(hub, { maxMessage: 1000, hostname: "127.0.0.1", token: TOKEN });
}

async function openFace(plugin: Plugin): Promise<NewClient> {
  const face = await makeFace(plugin);
  return async (path, init = {}, token = TOKEN) => {
    const headers = { Host: "localhost", Authorization: `Bearer ${token}` };
    return fetchInProcess(face, new Request(`http://localhost${path}`, { ...init, headers }));
  };
}

const AUTHORIZED = { Authorization: `Bearer ${TOKEN}` };

/** Runs `use` while the face listens on a port. */
async function withListener(face: HttpServer, use: (port: number) => Promise<void>): Promise<void> {
  const listener = await face.listen("127.0.0.1", 0);
  try {
    await use(listener.port);
  } finally {
    await listener.close(0);
    await face.close();
  }
}

function withRoutes(app: { fetch(request: Request): Response | Promise<Response> }): Plugin {
  return { name: "pages", setup: () => ({ routes: app }) };
}

describe("a plugin's web application", () => {
  const app = new Hono();
  app.get("/", (c) => c.text("home"));
  app.post("/say/:word", async (c) =>
    c.text(`${c.req.param("word")} ${await c.req.text()}${new URL(c.req.url).search}`),
  );

  it("is at /plugins/ and its name for whom the hub knows, and sees its own paths, queries and bodies", async () => {
    const newClient = await openFace(withRoutes(app));
    assert.equal(await (await newClient("/plugins/pages")).text(), "home");
    assert.equal(await (await newClient("/plugins/pages/")).text(), "home");
    const said = await newClient("/plugins/pages/say/a%2Fb?x=1", { method: "POST", body: "you" });
    assert.equal(await said.text(), "a/b you?x=1");
    assert.equal((await newClient("/plugins/pages/else")).status, 404);
    assert.equal((await newClient("/plugins/pages", {}, "other")).status, 401);
  });

  it("gets a GET that has a body, and no request with a method that a runtime might turn into another one", async () => {
    let requests = 0;
    const face = await makeFace(withRoutes({ fetch: () => new Response(String(++requests)) }));
    await withListener(face, async (port) => {
      for (const [method, status] of [
        ["GET", 200],
        ["TRACE", 501],
        ["PURGE", 501],
      ] as const) {
        const client = new RawHttpClient(port);
        client.request(method, "/plugins/pages", AUTHORIZED, method === "GET" ? "body" : "");
        await client.until(new RegExp(`^HTTP/1\\.1 ${status} `));
        client.socket.destroy();
      }
      assert.equal(requests, 1);
    });
  });

  it("cannot set headers of the connection", async () => {
    const headers = { "Transfer-Encoding": "gzip", "Keep-Alive": "timeout=1", "X-Own": "1" };
    const newClient = await openFace(withRoutes({ fetch: () => new Response("x", { headers }) }));
    const response = await newClient("/plugins/pages");
    assert.equal(response.headers.get("X-Own"), "1");
    assert.equal(response.headers.get("Transfer-Encoding"), null);
    assert.equal(response.headers.get("Keep-Alive"), null);
  });

  it("is nowhere if a plugin has none", async () => {
    const newClient = await openFace({ name: "pages", setup: () => ({}) });
    assert.equal((await newClient("/plugins/pages")).status, 404);
    assert.equal((await newClient("/plugins/other")).status, 404);
  });

  it("that fails answers with 500 and costs nothing else", async () => {
    const returning = await openFace(withRoutes({ fetch: () => Response.error() }));
    assert.equal((await returning("/plugins/pages")).status, 500);
    const fetch = (): Promise<Response> => Promise.reject(new Error("no page"));
    const newClient = await openFace(withRoutes({ fetch }));
    const response = await newClient("/plugins/pages");
    assert.equal(response.status, 500);
    assert.match(await response.text(), /Plugin \\"pages\\" failed: no page/);
    assert.equal((await newClient("/healthz")).status, 200);
  });
});
