import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { Hono } from "hono";
import { HttpServer } from "../../../src/frontend/http/server.ts";
import type { HttpServerRequest } from "../../../src/frontend/http/http1/messages.ts";
import type { Plugin } from "../../../src/plugin/plugin.ts";
import { setUpPluginHub } from "../../fixtures/plugin-hub.ts";
import { fetchInProcess } from "../../fixtures/web-adapter.ts";

const TOKEN = "a-token-that-nobody-guesses";

/** A request as it comes off the wire, where more is said than a web request can. */
function query(method: string, target: string, body = ""): HttpServerRequest {
  const fields = new Headers({ Host: "localhost", Authorization: `Bearer ${TOKEN}` });
  return {
    head: { method, target, headers: fields },
    read: () => Buffer.from(body),
    onDisconnect: () => () => {},
  };
}

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

function withRoutes(app: { fetch(request: Request): Response | Promise<Response> }): Plugin {
  return { name: "pages", setup: () => ({ routes: app }) };
}

describe("a plugin's web application", () => {
  const app = new Hono();
  app.get("/", (c) => c.text("home"));
  app.post("/say/:word", async (c) =>
    c.text(`${c.req.param("word")} ${await c.req.text()}${new URL(c.req.url).search}`),
  );

  it("is at /plugins/ and its name, and sees its own paths, queries and bodies", async () => {
    const newClient = await openFace(withRoutes(app));
    assert.equal(await (await newClient("/plugins/pages")).text(), "home");
    assert.equal(await (await newClient("/plugins/pages/")).text(), "home");
    const said = await newClient("/plugins/pages/say/a%2Fb?x=1", { method: "POST", body: "you" });
    assert.equal(await said.text(), "a/b you?x=1");
    assert.equal((await newClient("/plugins/pages/else")).status, 404);
  });

  it("is asked nothing with a method that a runtime might take for another", async () => {
    let asked = 0;
    const face = await makeFace(withRoutes({ fetch: () => new Response(String(++asked)) }));
    for (const method of ["TRACE", "CONNECT", "PURGE", "get"]) {
      assert.equal((await face.handle(query(method, "/plugins/pages"))).status, 501);
    }
    assert.equal(asked, 0);
  });

  it("is not kept from answering by a body where there is none to expect", async () => {
    const face = await makeFace(withRoutes(app));
    assert.equal((await face.handle(query("GET", "/plugins/pages", "body"))).status, 200);
  });

  it("answers with 500 where it says that there is no answer", async () => {
    const face = await makeFace(withRoutes({ fetch: () => Response.error() }));
    assert.equal((await face.handle(query("GET", "/plugins/pages"))).status, 500);
  });

  it("is for nobody whom the hub does not know", async () => {
    const newClient = await openFace(withRoutes(app));
    const { status } = await newClient("/plugins/pages", {}, "other");
    assert.equal(status, 401);
  });

  it("is nowhere if a plugin has none", async () => {
    const newClient = await openFace({ name: "pages", setup: () => ({}) });
    assert.equal((await newClient("/plugins/pages")).status, 404);
    assert.equal((await newClient("/plugins/other")).status, 404);
  });

  it("that fails answers with 500 and costs nothing else", async () => {
    const newClient = await openFace(
      withRoutes({ fetch: () => Promise.reject(new Error("no page")) }),
    );
    const response = await newClient("/plugins/pages");
    assert.equal(response.status, 500);
    assert.match(await response.text(), /Plugin \\"pages\\" failed: no page/);
    assert.equal((await newClient("/healthz")).status, 200);
  });
});
