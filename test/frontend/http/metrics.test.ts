import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HttpServer, type HttpServerSettings } from "../../../src/frontend/http/server.ts";
import type { TokenHolder } from "../../../src/frontend/http/principals.ts";
import { ALL_SERVERS } from "../../../src/upstream/profile.ts";
import { ScriptedServer, setUpHub } from "../../fixtures/memory-hub.ts";

const TOKEN = "own-token";
const CI: TokenHolder = {
  name: "ci",
  token: "ci-token",
  subset: ALL_SERVERS,
  mode: undefined,
  maxSessions: undefined,
};

interface Asking {
  readonly token?: string;
  readonly accept?: string;
  readonly method?: string;
  readonly path?: string;
  readonly isPathAsSent?: boolean;
}

/** Asks for metrics over HTTP, from a server with these settings. */
async function ask(
  settings: Partial<HttpServerSettings> & { readonly isServed?: boolean },
  { token, accept, method = "GET", path = "/metrics", isPathAsSent = true }: Asking = {},
) {
  const { hub } = setUpHub({ a: new ScriptedServer("x") });
  const { isServed = true, ...others } = settings;
  const server = new HttpServer(hub, {
    hostname: "127.0.0.1",
    token: undefined,
    maxMessage: 1000,
    metrics: { isServed: () => isServed, read: (accepted) => hub.readMetrics(accepted) },
    ...others,
  });
  const headers = new Headers({ Host: "127.0.0.1" });
  if (token !== undefined) headers.set("Authorization", `Bearer ${token}`);
  if (accept !== undefined) headers.set("Accept", accept);
  const request = new Request(`http://127.0.0.1${path}`, { method, headers });
  const response = await server.fetch(request, { isPathAsSent, keepOpen: () => {} });
  const text = await response.text();
  await server.close();
  await hub.close();
  return { status: response.status, type: response.headers.get("Content-Type"), text };
}

describe("metrics over HTTP", () => {
  for (const [what, settings, asking, status] of [
    ["are absent where they are not served", { isServed: false }, {}, 404],
    [
      "are absent where they are not served, with a token",
      { isServed: false, token: TOKEN },
      { token: TOKEN },
      404,
    ],
    ["need no token where there is none", {}, {}, 200],
    ["need the hub's own token if there is one", { token: TOKEN }, {}, 401],
    ["are read with it", { token: TOKEN }, { token: TOKEN }, 200],
    ["are not read with another", { token: TOKEN }, { token: "other" }, 401],
    [
      "are refused to a client with a token of its own",
      { token: TOKEN, clients: [CI] },
      { token: CI.token },
      403,
    ],
    [
      "are read with the hub's own beside such clients",
      { token: TOKEN, clients: [CI] },
      { token: TOKEN },
      200,
    ],
    [
      "are refused to such a client where the hub has no token",
      { clients: [CI] },
      { token: CI.token },
      403,
    ],
    ["need a token where only clients have one", { clients: [CI] }, {}, 401],
    [
      "are refused to a client whose token is the hub's, too",
      { token: CI.token, clients: [CI] },
      { token: CI.token },
      403,
    ],
    ["are found at no other spelling of the path", {}, { path: "/%6Detrics" }, 404],
    ["are found at no path that the runtime has changed", {}, { isPathAsSent: false }, 404],
    ["are not posted", {}, { method: "POST" }, 404],
  ] satisfies readonly (readonly [string, object, Asking, number])[])
    it(what, async () => {
      const answer = await ask(settings, asking);
      assert.equal(answer.status, status, answer.text);
      assert.equal(answer.text.includes("toolmux_servers{"), status === 200);
    });

  it("have the format that the scraper accepts most", async () => {
    const text = await ask({});
    assert.equal(text.type, "text/plain; version=0.0.4; charset=utf-8");
    const open = await ask({}, { accept: "application/openmetrics-text;version=1.0.0,*/*;q=0.1" });
    assert.equal(open.type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert.ok(open.text.endsWith("# EOF\n"));
  });
});
