import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import {
  type DashboardMachine,
  makeDashboard,
  TOKEN_LIFETIME,
} from "../../src/dashboard/dashboard.ts";
import { ownHub } from "../../src/dashboard/hubs.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";

const HOST = `${"0123456789abcdef".repeat(2)}.localhost:8701`;
const ORIGIN = `http://${HOST}`;
const HOUR = 60 * 60_000;
const PAGE = {
  "index.html": "<!doctype html>",
  "page.js": "1",
  "usage-0a1b2c3d.js": "2",
  "page.css": "a{}",
};
const IDENTITY = {
  pid: 7,
  startedAt: 35,
  name: "h",
  version: "0",
  cwd: "/",
  manifest: ["/m.toml"],
  endpoints: ["stdio"],
};
const ID = "7-z";

interface Asked {
  readonly method?: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
  readonly bearer?: string | undefined;
  readonly signal?: AbortSignal;
}

/** A dashboard of one hub, whose control API answers what it was asked, and streams for `/v1/events`. */
function setUp(base = "", machine?: DashboardMachine) {
  const clock = new VirtualClock();
  const received: { readonly line: string; readonly headers: Headers; readonly body: string }[] =
    [];
  let streams = 0;
  const answer = async (request: Request): Promise<Response> => {
    const { pathname, search } = new URL(request.url);
    const line = `${request.method} ${pathname}${search}`;
    received.push({ line, headers: request.headers, body: await request.text() });
    if (pathname !== "/v1/events") return Response.json({ line }, { status: 201 });
    streams++;
    request.signal.addEventListener("abort", () => streams--, { once: true });
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(":\n\n");
        request.signal.addEventListener("abort", () => controller.error(request.signal.reason));
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  };
  const hub = { identity: () => IDENTITY, fetch: answer };
  const dashboard = makeDashboard({
    base,
    origin: { isHost: (host) => host === HOST },
    hubs: ownHub(() => Promise.resolve(hub)),
    ...(machine !== undefined && { machine }),
    page: () => Promise.resolve(PAGE),
    clock,
  });
  const ask = ({ method = "GET", path, headers = {}, body, bearer, signal }: Asked) => {
    const all = {
      Host: HOST,
      ...(method !== "GET" && { Origin: ORIGIN }),
      ...(bearer !== undefined && { Authorization: `Bearer ${bearer}` }),
      ...headers,
    };
    const init = {
      method,
      headers: Object.fromEntries(Object.entries(all).filter(([, value]) => value !== "")),
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal !== undefined && { signal }),
    };
    const request = new Request(`${ORIGIN}${base}${path}`, init);
    return dashboard.fetch(request, { keepOpen() {} });
  };
  const exchange = (token: string) =>
    ask({ method: "POST", path: "/api/session", body: { token } });
  const open = async (): Promise<string> => {
    const { bearer } = (await (await exchange(dashboard.createToken())).json()) as {
      bearer: string;
    };
    return bearer;
  };
  return { dashboard, clock, received, streams: () => streams, ask, exchange, open };
}

async function codeOf(response: Response): Promise<unknown> {
  return ((await response.json()) as { error: { code: unknown } }).error.code;
}

describe("the dashboard", () => {
  for (const base of ["", "/ui"]) {
    it(`serves the files of the page below "${base}/", with a strict policy`, async () => {
      const { ask } = setUp(base);
      for (const [path, type, text] of [
        ["/", "text/html", PAGE["index.html"]],
        ["/page.js", "text/javascript", PAGE["page.js"]],
        ["/usage-0a1b2c3d.js", "text/javascript", PAGE["usage-0a1b2c3d.js"]],
        ["/page.css", "text/css", PAGE["page.css"]],
      ] as const) {
        const response = await ask({ path });
        const { headers } = response;
        assert.equal(headers.get("Content-Type"), `${type}; charset=utf-8`);
        assert.equal(
          headers.get("Content-Security-Policy"),
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        );
        assert.equal(headers.get("X-Content-Type-Options"), "nosniff");
        assert.equal(headers.get("Referrer-Policy"), "no-referrer");
        assert.equal(headers.get("Set-Cookie"), null);
        assert.equal(await response.text(), text);
      }
    });
  }

  it("leads from /ui to /ui/, because its files have relative addresses", async () => {
    const response = await setUp("/ui").ask({ path: "" });
    assert.deepEqual([response.status, response.headers.get("Location")], [308, "/ui/"]);
    const root = await setUp("/ui").ask({ path: "/.." });
    assert.deepEqual([root.status, root.headers.get("Location")], [308, "/ui/"]);
  });

  it("serves nothing at another host but a text that says how to get a link", async () => {
    for (const base of ["", "/ui"]) {
      const { dashboard, ask } = setUp(base);
      const token = dashboard.createToken();
      const texts = new Set<string>();
      for (const host of [
        "127.0.0.1:8701",
        "localhost:8701",
        "[::1]:8701",
        "evil.example",
        `1${HOST.slice(1)}`,
        `x.${HOST}`,
        HOST.replace("localhost", "localhost.evil.example"),
        "",
      ]) {
        for (const path of ["/", "/page.js", "/usage-0a1b2c3d.js", "/page.css", "/sw.js"]) {
          const response = await ask({ path, headers: { Host: host } });
          assert.equal(response.status, 403, `${host} ${path}`);
          assert.equal(response.headers.get("Content-Type"), "text/html; charset=utf-8");
          assert.equal(response.headers.get("Cache-Control"), "no-store");
          texts.add(await response.text());
        }
        const headers = { Host: host, Origin: `http://${host}` };
        const post = { method: "POST", path: "/api/session", headers, body: { token } };
        assert.equal(await codeOf(await ask(post)), "accessDenied");
      }
      const [text = "", ...others] = texts;
      assert.deepEqual(others, []);
      assert.match(text, /toolmux dashboard/);
      assert.doesNotMatch(text, /<script|<link|src=|href=/);
    }
  });

  it("takes a token once, and gives a bearer for it that lists the hubs", async () => {
    const { dashboard, exchange, ask } = setUp();
    const token = dashboard.createToken();
    assert.equal(Buffer.from(token, "base64url").length, 32);
    const first = await exchange(token);
    const { bearer, expiresAt } = (await first.json()) as { bearer: string; expiresAt: number };
    assert.ok(Math.abs(expiresAt - Date.now() - 12 * HOUR) < HOUR);
    assert.equal((await exchange(token)).status, 401);
    assert.equal((await exchange("x".repeat(2 * 1024 * 1024))).status, 413);
    const response = await ask({ path: "/api/hubs", bearer });
    assert.deepEqual(await response.json(), { hubs: [{ id: ID, ...IDENTITY }] });
  });

  it("refuses tokens and bearers that are too old, and those that are too many", async () => {
    const { dashboard, clock, exchange, open, ask } = setUp();
    const old = dashboard.createToken();
    const many = Array.from({ length: 17 }, () => dashboard.createToken());
    assert.equal((await exchange(many[0] ?? "")).status, 401);
    assert.equal((await exchange(many[16] ?? "")).status, 200);
    const late = dashboard.createToken();
    await clock.advanceAsync(TOKEN_LIFETIME + 1);
    for (const token of [old, late]) assert.equal((await exchange(token)).status, 401);
    const bearer = await open();
    const status = async (): Promise<number> => (await ask({ path: "/api/hubs", bearer })).status;
    await clock.advanceAsync(12 * HOUR - 1);
    assert.equal(await status(), 200);
    await clock.advanceAsync(2);
    assert.equal(await status(), 401);
    const first = await open();
    for (let n = 0; n < 64; n++) await open();
    assert.equal((await ask({ path: "/api/hubs", bearer: first })).status, 401);
  });

  it("refuses other hosts, other origins, and whoever has no bearer, before a hub is asked", async () => {
    const { dashboard, ask, open, received } = setUp();
    const bearer = await open();
    const path = `/api/hubs/${ID}/v1/stop`;
    const post = { method: "POST", path, bearer };
    const refused: readonly (readonly [number, Asked])[] = [
      [403, { path: "/api/hubs", bearer, headers: { Host: "127.0.0.1:8701" } }],
      [403, { ...post, headers: { Host: "127.0.0.1:8701", Origin: "http://127.0.0.1:8701" } }],
      [403, { ...post, headers: { Host: "localhost:8701", Origin: ORIGIN } }],
      [403, { ...post, headers: { Origin: "http://127.0.0.1:8701" } }],
      [403, { ...post, headers: { Origin: `http://f${HOST.slice(1)}` } }],
      [403, { path: "/api/hubs", bearer, headers: { Host: "127.0.0.1.evil.example" } }],
      [403, { path: "/api/hubs", bearer, headers: { Origin: "https://evil.example" } }],
      [403, { ...post, headers: { Origin: "https://evil.example" } }],
      [403, { ...post, headers: { Origin: "http://127.0.0.1:9999" } }],
      [403, { ...post, headers: { Origin: "http://localhost:8701" } }],
      [403, { ...post, headers: { Origin: "null" } }],
      [403, { ...post, headers: { Origin: "" } }],
      [403, { ...post, method: "DELETE", headers: { Origin: "" } }],
      [401, { method: "POST", path }],
      [401, { ...post, bearer: `${bearer}x` }],
      [401, { ...post, bearer: dashboard.createToken() }],
      [401, { ...post, bearer: dashboard.key }],
      [401, { ...post, bearer: undefined, path: `${path}?bearer=${bearer}` }],
      [401, { ...post, bearer: undefined, headers: { Cookie: `bearer=${bearer}` } }],
      [401, { path: `/api/hubs/${ID}/v1/events` }],
      [401, { path: "/api/hubs" }],
      [401, { method: "POST", path: "/api/tokens", body: { nonce: "n" }, bearer }],
    ];
    for (const [status, asked] of refused) {
      const response = await ask(asked);
      assert.equal(response.status, status, JSON.stringify(asked));
      assert.equal(await codeOf(response), "accessDenied");
    }
    assert.deepEqual(received, []);
  });

  it("passes requests on to the control API of the hub as they are, without the bearer", async () => {
    const { ask, open, received } = setUp();
    const bearer = await open();
    const response = await ask({
      method: "PUT",
      path: `/api/hubs/${ID}/v1/secrets/a%2Fb?x=%20y`,
      bearer,
      body: { value: "ä" },
      headers: { "Content-Type": "application/json", Cookie: "a=b" },
    });
    const line = "PUT /v1/secrets/a%2Fb?x=%20y";
    assert.deepEqual([response.status, await response.json()], [201, { line }]);
    const [got] = received;
    assert.deepEqual([got?.line, got?.body], [line, '{"value":"ä"}']);
    assert.equal(got?.headers.get("Content-Type"), "application/json");
    for (const name of ["Authorization", "Cookie", "Origin"])
      assert.equal(got?.headers.get(name), null);
  });

  it("reaches nothing of a hub but its control API, and no hub that is not there", async () => {
    const { ask, open, received } = setUp();
    const bearer = await open();
    const { ask: askOther } = setUp("/ui");
    for (const path of ["/../mcp", "x", "/../uix/"])
      assert.equal((await askOther({ path })).status, 404, path);
    for (const path of ["/mcp", "/v1", "/v1/../mcp", "/v1/%2e%2e/mcp", "/v1/..\\mcp", "//v1/hub"]) {
      const response = await ask({ path: `/api/hubs/${ID}${path}`, bearer });
      assert.equal(response.status, 404, path);
    }
    const response = await ask({ path: "/api/hubs/8-z/v1/hub", bearer });
    assert.deepEqual([response.status, await codeOf(response)], [404, "hubNotRunning"]);
    assert.deepEqual(received, []);
  });

  it("says what is on this machine, and starts a hub, only for the page and only where it can", async () => {
    const client = { name: "cursor", title: "Cursor", exists: true, installed: false, servers: 2 };
    let starts = 0;
    const machine = {
      clients: () => Promise.resolve([client]),
      startHub: () => {
        starts++;
        return starts === 1
          ? Promise.resolve()
          : Promise.reject(new HubError("usage", "The hub has ended again."));
      },
      sharingOffers: () => Promise.resolve([]),
    };
    const { ask, open } = setUp("", machine);
    for (const [method, path] of [
      ["GET", "/api/machine"],
      ["POST", "/api/hubs"],
    ] as const)
      assert.equal((await ask({ method, path })).status, 401);
    assert.equal(starts, 0);
    const bearer = await open();
    const known = await (await ask({ path: "/api/machine", bearer })).json();
    assert.deepEqual(known, { clients: [client], canStart: true });
    const started = await ask({ method: "POST", path: "/api/hubs", bearer });
    assert.deepEqual([started.status, starts], [200, 1]);
    const refused = await ask({ method: "POST", path: "/api/hubs", bearer });
    assert.deepEqual([refused.status, await codeOf(refused)], [400, "usage"]);

    const own = setUp("/ui");
    const other = await own.open();
    const none = await (await own.ask({ path: "/api/machine", bearer: other })).json();
    assert.deepEqual(none, { clients: [], canStart: false });
    assert.equal((await own.ask({ method: "POST", path: "/api/hubs", bearer: other })).status, 400);
  });

  it("streams events, and ends streams with the page, the bearer or the dashboard", async () => {
    const { ask, open, clock, dashboard, streams } = setUp();
    const path = `/api/hubs/${ID}/v1/events?after=3`;
    const start = async (bearer: string, signal?: AbortSignal) => {
      const response = await ask({ path, bearer, ...(signal !== undefined && { signal }) });
      assert.equal(response.headers.get("Content-Type"), "text/event-stream");
      const reader = response.body?.getReader() ?? assert.fail("there is no stream");
      assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), ":\n\n");
      return reader;
    };
    const left = new AbortController();
    const first = await start(await open(), left.signal);
    assert.equal(streams(), 1);
    left.abort();
    await assert.rejects(first.read());
    assert.equal(streams(), 0);
    const second = await start(await open());
    await clock.advanceAsync(12 * HOUR + 1);
    await assert.rejects(second.read());
    const bearer = await open();
    const third = await start(bearer);
    const ended = await ask({ method: "DELETE", path: "/api/session", bearer });
    assert.equal(ended.status, 204);
    await assert.rejects(third.read());
    const fourth = await start(await open());
    dashboard.close();
    await assert.rejects(fourth.read());
    assert.equal(streams(), 0);
  });

  it("holds 256 open requests, and takes others when one of them ends", async () => {
    const { ask, open, streams } = setUp();
    const bearer = await open();
    const path = `/api/hubs/${ID}/v1/events`;
    const left = new AbortController();
    await ask({ path, bearer, signal: left.signal });
    for (let n = 1; n < 256; n++) await ask({ path, bearer });
    const status = async (): Promise<number> => {
      const response = await ask({ path: `/api/hubs/${ID}/v1/hub`, bearer });
      await response.text();
      return response.status;
    };
    assert.deepEqual([streams(), await status()], [256, 503]);
    left.abort();
    await turn();
    assert.equal(await status(), 201);
    assert.equal(await status(), 201);
  });
});
