import assert from "node:assert/strict";
import { describe, it as test } from "node:test";
import { CookieJar } from "../../../src/transport/http/cookies.ts";
import type { RequestCredentials } from "../../../src/transport/http/target.ts";
import type { RawHttpRequest } from "../../fixtures/raw-http-server.ts";
import {
  respondJson,
  responseTextFor,
  JSON_HEADERS,
} from "../../fixtures/http-transport-recorder.ts";
import { HttpTransport } from "../../../src/transport/http/transport.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";
import { initialize, setUpHub } from "../../fixtures/memory-hub.ts";
import { remoteManifest } from "../../fixtures/streamed-transport.ts";
import { waitFor } from "../../harness/wait.ts";
import { it, type Link } from "./link.ts";

const NOW = Date.UTC(2026, 0, 1);
const HTTPS = "https://h.example/a/mcp";

/** The `Cookie` field of a request after these `Set-Cookie` fields. */
function fieldAfter(
  fields: readonly string[],
  { to = HTTPS, own = "", later = 0 }: { to?: string; own?: string; later?: number } = {},
): string {
  const jar = new CookieJar();
  jar.store(fields, new URL(HTTPS), NOW);
  return jar.fieldFor(new URL(to), own, NOW + later);
}

describe("A cookie jar", () => {
  const cases: readonly (readonly [
    string,
    readonly string[],
    Parameters<typeof fieldAfter>[1],
    string,
  ])[] = [
    ["keeps a cookie", ["AWSALB=abc; Path=/; HttpOnly; SameSite=None"], {}, "AWSALB=abc"],
    ["keeps several", ["a=1", "b=2"], {}, "a=1; b=2"],
    ["replaces one", ["a=1", "a=2"], {}, "a=2"],
    ["keeps an empty value and one with =", ["a=", "b=c=d"], {}, "a=; b=c=d"],
    ["ignores what is no pair", ["a", "=b", "; Path=/"], {}, ""],
    ["ignores control characters", ["a=b\u0001c", "b=\u0100"], {}, ""],
    ["ignores Domain", ["a=1; Domain=other.example"], {}, "a=1"],
    ["obeys Path", ["a=1; Path=/a", "b=2; Path=/b"], {}, "a=1"],
    [
      "matches a path by its segments",
      ["a=1; Path=/a/m", "b=2; Path=/a/mcp", "c=3; Path=/a/"],
      {},
      "b=2; c=3",
    ],
    [
      "takes the folder of the request for a missing Path",
      ["a=1"],
      { to: "https://h.example/b" },
      "",
    ],
    ["takes it for a relative Path", ["a=1; Path=x"], { to: "https://h.example/a/b/c" }, "a=1"],
    ["obeys Secure", ["a=1; Secure"], { to: "http://h.example/a/mcp" }, ""],
    ["sends Secure over https", ["a=1; secure"], {}, "a=1"],
    ["obeys Max-Age", ["a=1; Max-Age=10"], { later: 9_000 }, "a=1"],
    ["obeys Max-Age when it is over", ["a=1; Max-Age=10"], { later: 10_000 }, ""],
    ["deletes by Max-Age", ["a=1", "a=2; Max-Age=0"], {}, ""],
    ["deletes by a negative Max-Age", ["a=1", "a=2; Max-Age=-1"], {}, ""],
    ["obeys Expires", ["a=1; Expires=Thu, 01 Jan 2026 00:00:10 GMT"], { later: 9_000 }, "a=1"],
    [
      "obeys Expires when it is over",
      ["a=1; Expires=Thu, 01 Jan 2026 00:00:10 GMT"],
      { later: 11_000 },
      "",
    ],
    ["deletes by Expires", ["a=1", "a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], {}, ""],
    ["prefers Max-Age", ["a=1; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], {}, "a=1"],
    ["ignores what it cannot read", ["a=1; Max-Age=x; Expires=soon"], {}, "a=1"],
    [
      "lets the manifest's cookie win by its name",
      ["a=1", "b=2"],
      { own: "x=0; a=own" },
      "x=0; a=own; b=2",
    ],
    [
      "ignores a cookie over 4 kB",
      [`a=${"x".repeat(4096)}`, `b=${"x".repeat(4000)}`],
      {},
      `b=${"x".repeat(4000)}`,
    ],
  ];
  for (const [what, fields, options, expected] of cases) {
    test(what, () => assert.equal(fieldAfter(fields, options), expected));
  }

  test("has at most 50 cookies", () => {
    const fields = Array.from({ length: 60 }, (_, at) => `c${at}=${at}`);
    const kept = fieldAfter(fields).split("; ");
    assert.equal(kept.length, 50);
    assert.ok(kept.includes("c59=59") && !kept.includes("c0=0"));
  });
});

const cookieOf = ({ headers }: RawHttpRequest): string | undefined => headers.get("cookie");
const redactBy = ({ witness }: Link, text: string) => witness.transport.redact?.(text);
const lastOf = (requests: readonly RawHttpRequest[]) => cookieOf(requests.at(-1) as RawHttpRequest);
const setting = (cookie: string) => (received: RawHttpRequest) =>
  received.respond(200, { ...JSON_HEADERS, "Set-Cookie": cookie }, responseTextFor(received));

describe("The cookies of an HTTP server", () => {
  it("are kept for its requests, of every method, until the connection ends", async ({ open }) => {
    const link = await open(setting("AWSALB=abcdef; Path=/"));
    await link.assertOk("initialize");
    link.server.onRequest = respondJson;
    await link.assertOk();
    assert.deepEqual(link.server.requests.map(cookieOf), [undefined, "AWSALB=abcdef"]);
    const other = await open(respondJson);
    await other.assertOk();
    assert.equal(lastOf(other.server.requests), undefined);
  });

  it("are not taken from another origin, nor sent to one", async ({ serve, open }) => {
    const elsewhere = await serve(setting("evil=1; Path=/"));
    const link = await open((received) =>
      received.respond(307, { Location: elsewhere.url.href, "Set-Cookie": "own=1234; Path=/" }),
    );
    await link.assertOk("initialize");
    assert.equal(lastOf(elsewhere.requests), undefined);
    assert.equal(redactBy(link, "own=1234"), "own=[redacted]");
  });

  it("are masked in texts, also after they were replaced", async ({ open }) => {
    const values = ["first-value", "second-value"];
    const link = await open((r) => setting(`a=${values.shift() ?? "third-value"}; Path=/`)(r));
    await link.assertOk("a", 3);
    const text = redactBy(link, "first-value second-value third-value");
    assert.equal(text, "[redacted] [redacted] [redacted]");
    link.server.onRequest = (received) =>
      received.respond(500, {}, `the cookie ${cookieOf(received)} is wrong`);
    assert.match(await link.ask(), /"the cookie a=\[redacted\] is wrong"/);
  });

  it("give way to the manifest's by name, in one field", async ({ open }) => {
    const headers = { cookie: "a=own; x=1" };
    const link = await open(setting("a=theirs; Path=/"), { headers });
    await link.assertOk();
    link.server.onRequest = setting("b=2222; Path=/");
    await link.assertOk("a", 2);
    assert.deepEqual(link.server.requests.map(cookieOf), [
      "a=own; x=1",
      "a=own; x=1",
      "a=own; x=1; b=2222",
    ]);
  });

  it("are gone when the credentials change", async ({ open }) => {
    const worn = { token: "first" };
    const credentials: RequestCredentials = {
      getHeaders: () => ({ Authorization: `Bearer ${worn.token}` }),
      renew: () => Promise.resolve(false),
    };
    const link = await open(setting("a=1111; Path=/"), { credentials });
    await link.assertOk("a", 2);
    assert.equal(lastOf(link.server.requests), "a=1111");
    worn.token = "second";
    await link.assertOk();
    assert.equal(lastOf(link.server.requests), undefined);
  });
});

describe("The cookies of a connection to an HTTP server", () => {
  const answer = (received: RawHttpRequest): void => {
    const { id, method } = JSON.parse(received.body || "{}") as { id?: number; method?: string };
    if (id === undefined) return received.respond(202);
    const result =
      method === "initialize"
        ? {
            protocolVersion: "2025-11-25",
            capabilities: { tools: {} },
            serverInfo: { name: "s", version: "1" },
          }
        : { tools: [{ name: "t", inputSchema: { type: "object" } }] };
    const headers = {
      ...JSON_HEADERS,
      ...(method === "initialize" && { "Set-Cookie": "lb=1234" }),
    };
    received.respond(200, headers, JSON.stringify({ jsonrpc: "2.0", id, result }));
  };

  it("outlive its transports, belong to one client's connection, and are gone when a header changes", async ({
    serve,
  }) => {
    const server = await serve(answer);
    const headers: Record<string, string> = { "X-Key": "one" };
    const manifest = remoteManifest({ s: { isolation: "perClient", era: "legacy" } });
    const { hub, client, connect } = setUpHub(
      {},
      {
        manifest,
        openTransport: (_spec, _schemes, cookies) =>
          Promise.resolve(
            new HttpTransport(
              targetOf(server.url, { transport: "http", headers: { ...headers }, cookies }),
            ),
          ),
      },
    );
    /** The cookie of each `initialize` so far. */
    const greetings = (): readonly (string | undefined)[] =>
      server.requests.filter(({ body }) => body.includes('"initialize"')).map(cookieOf);
    const connected = (count: number): Promise<true> =>
      waitFor(
        "the handshakes",
        () =>
          (greetings().length === count &&
            hub.status()[0]?.connections.every(({ state }) => state === "connected")) ||
          undefined,
      );
    await initialize(client);
    await connected(1);
    hub.reconnect("s");
    await connected(2);
    assert.deepEqual(greetings(), [undefined, "lb=1234"]);
    headers["X-Key"] = "two";
    hub.reconnect("s");
    await connected(3);
    assert.equal(greetings().at(-1), undefined);
    await initialize(connect());
    await connected(4);
    assert.equal(greetings().at(-1), undefined);
    await hub.close();
  });
});
