import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Hono } from "hono";
import { Face } from "../src/frontend/http/face.ts";
import type { Plugin } from "../src/plugin/plugin.ts";
import { setUpWith } from "./fixtures/plugins.ts";

const TOKEN = "a-token-that-nobody-guesses";

type Visit = (path: string, init?: RequestInit, token?: string) => Promise<Response>;

/** A face over a hub with that plugin, which only who has the token may use. */
async function openFace(plugin: Plugin): Promise<Visit> {
  const { hub } = await setUpWith([{ plugin }], {});
  const face = new Face(hub, { maxMessage: 1000, hostname: "127.0.0.1", token: TOKEN });
  return async (path, init = {}, token = TOKEN) => {
    const headers = { Host: "localhost", Authorization: `Bearer ${token}` };
    return face.fetch(new Request(`http://localhost${path}`, { ...init, headers }));
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
    const visit = await openFace(withRoutes(app));
    assert.equal(await (await visit("/plugins/pages")).text(), "home");
    assert.equal(await (await visit("/plugins/pages/")).text(), "home");
    const said = await visit("/plugins/pages/say/a%2Fb?x=1", { method: "POST", body: "you" });
    assert.equal(await said.text(), "a/b you?x=1");
    assert.equal((await visit("/plugins/pages/else")).status, 404);
  });

  it("is for nobody whom the hub does not know", async () => {
    const visit = await openFace(withRoutes(app));
    const { status } = await visit("/plugins/pages", {}, "other");
    assert.equal(status, 401);
  });

  it("is nowhere if a plugin has none", async () => {
    const visit = await openFace({ name: "pages", setup: () => ({}) });
    assert.equal((await visit("/plugins/pages")).status, 404);
    assert.equal((await visit("/plugins/other")).status, 404);
  });

  it("that fails answers with 500 and costs nothing else", async () => {
    const visit = await openFace(withRoutes({ fetch: () => Promise.reject(new Error("no page")) }));
    const response = await visit("/plugins/pages");
    assert.equal(response.status, 500);
    assert.match(await response.text(), /Plugin \\"pages\\" failed: no page/);
    assert.equal((await visit("/healthz")).status, 200);
  });
});
