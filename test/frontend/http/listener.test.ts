import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import process from "node:process";
import { describe, it } from "node:test";
import { utf8 } from "../../../src/base/bytes.ts";
import {
  type HttpListener,
  listen,
  type ListenOptions,
} from "../../../src/frontend/http/listener.ts";
import { RawHttpClient } from "../../fixtures/raw-http-client.ts";
import { waitFor } from "../../harness/wait.ts";

const HOST = "Host: localhost\r\n";

/** Responds with the method, the path and query, and the size of the body. */
async function echo(request: Request): Promise<Response> {
  const path = request.url.replace(/^\w+:\/\/[^/]*/, "");
  try {
    const body =
      request.body === null ? "" : Buffer.from(await request.arrayBuffer()).toString("latin1");
    return new Response(`<${request.method} ${path} ${body.length}:${body.slice(0, 40)}>`);
  } catch {
    return new Response("<broken>", { status: 400 });
  }
}

async function withListener(
  options: Pick<ListenOptions, "fetch"> & Partial<ListenOptions>,
  run: (openClient: (first?: string) => RawHttpClient, listener: HttpListener) => Promise<void>,
): Promise<void> {
  const listener = await listen({ address: { hostname: "127.0.0.1", port: 0 }, ...options });
  const clients: RawHttpClient[] = [];
  try {
    await run((first) => {
      const client = new RawHttpClient(listener.port);
      clients.push(client);
      if (first !== undefined) client.socket.write(first, "latin1");
      return client;
    }, listener);
  } finally {
    for (const { socket } of clients) socket.destroy();
    await listener.close(0);
  }
}

const post = (body: string, headers = ""): string =>
  `POST /x HTTP/1.1\r\n${HOST}${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

const chunked = (body: string, headers = ""): string =>
  `POST /x HTTP/1.1\r\n${HOST}${headers}Transfer-Encoding: chunked\r\n\r\n${body}`;

/** Malformed requests that every runtime refuses. */
const REFUSED = [
  ["no HTTP at all", "hello\r\n\r\n"],
  ["no path", `GET x HTTP/1.1\r\n${HOST}\r\n`],
  ["a space in the path", `GET /a b HTTP/1.1\r\n${HOST}\r\n`],
  ["a CR inside a line", `GET / HTTP/1.1\r\n${HOST}A: b\rC: d\r\n\r\n`],
  ["a zero byte inside a line", `GET / HTTP/1.1\r\n${HOST}A: b\0\r\n\r\n`],
  ["a folded line", `GET / HTTP/1.1\r\n${HOST}A: b\r\n c\r\n\r\n`],
  ["a space before a colon", `POST / HTTP/1.1\r\n${HOST}Content-Length : 3\r\n\r\nabc`],
  ["a header without a colon", `GET / HTTP/1.1\r\n${HOST}Abc\r\n\r\n`],
  ["two different lengths", post("abc", "Content-Length: 4\r\n")],
  ["several lengths in one header", `POST / HTTP/1.1\r\n${HOST}Content-Length: 3, 3\r\n\r\nabc`],
  ["a length with a sign", `POST / HTTP/1.1\r\n${HOST}Content-Length: +3\r\n\r\nabc`],
  ["a length in hex", `POST / HTTP/1.1\r\n${HOST}Content-Length: 0x3\r\n\r\nabc`],
  ["an empty length", `POST / HTTP/1.1\r\n${HOST}Content-Length: \r\n\r\nabc`],
  ["a length beside chunks", post("0\r\n\r\n", "Transfer-Encoding: chunked\r\n")],
  ["chunked twice", chunked("0\r\n\r\n", "Transfer-Encoding: chunked\r\n")],
  ["chunks in HTTP/1.0", chunked("0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0")],
  ["a coding that ends with a byte above 127", chunked("").replace("chunked", "chunked\xa0")],
  ["a version in lower case", `GET / http/1.1\r\n${HOST}\r\n`],
  ["another version", `GET / HTTP/2.0\r\n${HOST}\r\n`],
  ["a head of 100 kB", `GET / HTTP/1.1\r\n${HOST}A: ${"x".repeat(100_000)}\r\n\r\n`],
  ["a chunk longer than its size", chunked("3\r\nabcde\r\n0\r\n\r\n")],
  ["a chunk size that ends with LF only", chunked("3\nabc\r\n0\r\n\r\n")],
  ["a CR in a chunk extension", chunked("3;a\rb\r\nabc\r\n0\r\n\r\n")],
  ["a chunk size with a sign", chunked("+3\r\nabc\r\n0\r\n\r\n")],
  ["a chunk size with a prefix", chunked("0x3\r\nabc\r\n0\r\n\r\n")],
  ["no chunk size", chunked("\r\nabc\r\n0\r\n\r\n")],
  ["a chunk size that overflows", chunked("10000000000000003\r\nabc\r\n0\r\n\r\n")],
] as const;

const GZIPPED = chunked("0\r\n\r\n").replace("chunked", "gzip, chunked");

/**
 * Doubtful requests that some runtimes refuse and others answer. If one is answered, then as the given request, so that
 * it has the same end for the runtime as for a proxy before it.
 */
const DOUBTFUL = [
  ["two spaces before the path", `GET  / HTTP/1.1\r\n${HOST}\r\n`, "<GET / 0:>"],
  ["lines that end with LF only", `GET / HTTP/1.1\nHost: localhost\r\n\r\n`, "<GET / 0:>"],
  ["no host", "GET / HTTP/1.1\r\n\r\n", "<GET / 0:>"],
  ["two hosts", `GET / HTTP/1.1\r\n${HOST}${HOST}\r\n`, "<GET / 0:>"],
  ["a host with a user", "GET / HTTP/1.1\r\nHost: other@localhost\r\n\r\n", "<GET / 0:>"],
  ["an absolute target with a user", `GET http://a@b/ HTTP/1.1\r\n${HOST}\r\n`, "<GET / 0:>"],
  ["two equal lengths", post("abc", "Content-Length: 3\r\n"), "<POST /x 3:abc>"],
  ["an unknown expectation", post("abc", "Expect: more\r\n"), "<POST /x 3:abc>"],
  ["a coding besides chunked", GZIPPED, "<POST /x 0:>"],
  ["an end of chunks with LF only", chunked("3\r\nabc\r\n0\r\n\n"), "<POST /x 3:abc>"],
] as const;

describe("the runtime's HTTP server", () => {
  it("knows the address of a client, also when the body has been read", () => {
    const fetch: ListenOptions["fetch"] = async (request, info) => {
      await request.arrayBuffer();
      return new Response(`<from ${info.address?.()}>`);
    };
    return withListener({ fetch }, async (openClient) => {
      await openClient(post("abc")).until(/<from 127\.0\.0\.1>/);
    });
  });

  for (const [what, request] of REFUSED)
    it(`refuses a request with ${what}, and closes the connection without reading on`, () =>
      withListener({ fetch: echo }, async (openClient) => {
        const client = openClient(`${request}GET /hidden HTTP/1.1\r\n${HOST}\r\n`);
        await client.waitForEnd();
        assert.match(client.text, /^(?:HTTP\/1\.1 [45]\d\d |$)/);
        assert.ok((client.text.match(/^HTTP\/1\.1 /gm)?.length ?? 0) <= 1, client.text);
        assert.ok(!client.text.includes("hidden"), client.text);
      }));

  for (const [what, request, answer] of DOUBTFUL)
    it(`refuses a request with ${what}, or answers it as what it is`, () =>
      withListener({ fetch: echo }, async (openClient) => {
        const next = `GET /next HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n`;
        const client = openClient(`${request}${next}`);
        await client.waitForEnd();
        const [first] = client.text.match(/<[^>]*>/g) ?? [];
        const isRefused = first === undefined || first === "<broken>" || first === "<GET /next 0:>";
        assert.ok(isRefused || first === answer, client.text);
      }));

  it("takes a request in any pieces", () =>
    withListener({ fetch: echo }, async (openClient) => {
      const client = openClient();
      client.socket.setNoDelay(true);
      for (const byte of post("abc")) {
        client.socket.write(byte);
        await new Promise((resolve) => setImmediate(resolve));
      }
      await client.until(/<POST \/x 3:abc>/);
    }));

  it("answers pipelined requests in their order", () =>
    withListener({ fetch: echo }, async (openClient) => {
      const get = `GET /g HTTP/1.1\r\n${HOST}\r\n`;
      const client = openClient(post("abc") + post("de") + get + post("f"));
      await client.until(/3:abc>.*2:de>.*<GET \/g 0:>.*1:f>/s);
    }));

  // Node and Deno read less at once by themselves, and slow down with responses that wait to be sent.
  const skip = process.versions["bun"] === undefined;
  it("handles a part of a flood of requests in one turn of the event loop", { skip }, async () => {
    let [inTurn, most] = [0, 0];
    const fetch = (): Promise<Response> => {
      if (inTurn++ === 0) setImmediate(() => (inTurn = 0));
      most = Math.max(most, inTurn);
      return Promise.resolve(new Response("<flood>"));
    };
    await withListener({ fetch }, async (openClient) => {
      openClient(`GET /a HTTP/1.1\r\n${HOST}\r\n`.repeat(20_000));
      await openClient(post("")).until(/<flood>/);
      await openClient(post("")).until(/<flood>/);
    });
    assert.ok(most < 500, `${most} in one turn`);
  });

  // Deno keeps the connection, and stops reading from it.
  const isDeno = process.versions["deno"] !== undefined;
  it(
    "closes the connection on which chunks of a body come that nobody reads",
    { skip: isDeno },
    () =>
      withListener({ fetch: () => Promise.resolve(new Response("<done>")) }, async (openClient) => {
        const client = openClient(chunked("1\r\nx\r\n".repeat(100)));
        await client.until(/<done>/);
        await client.waitForEnd();
        assert.match(client.text, /^connection: close\r$/im);
        // An announced body is skipped.
        const other = openClient(post("abc") + post("abc"));
        await other.until(/<done>[^]*<done>/);
      }),
  );

  for (const host of ["h:99999", "a, b", "u@h:x", ""]) {
    it(`answers 400 to the Host ${JSON.stringify(host)}, or as to no other`, () =>
      withListener({ fetch: echo }, async (openClient) => {
        const client = openClient(`GET /a HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
        await client.waitForEnd();
        assert.match(client.text, /^HTTP\/1\.1 (?:400 |200 [^]*<GET \/a 0:>)/);
      }));
  }

  it("takes no request out of a body", () =>
    withListener({ fetch: echo }, async (openClient) => {
      const hidden = `GET /hidden HTTP/1.1\r\n${HOST}\r\n`;
      const client = openClient(post(hidden) + post("next"));
      await client.until(/4:next>/);
      assert.equal(client.text.match(/HTTP\/1\.1 200/g)?.length, 2);
    }));

  it("joins the chunks of a body, without their extensions", () =>
    withListener({ fetch: echo }, async (openClient) => {
      const client = openClient(chunked(""));
      for (const piece of ["3;a=b\r\nab", "c\r\n2\r", "\nde\r\n0\r\n\r", "\n"]) {
        client.socket.write(piece);
        await new Promise((resolve) => setImmediate(resolve));
      }
      await client.until(/5:abcde>/);
      client.socket.write(post("next"));
      await client.until(/4:next>/);
    }));

  it("sends 100 Continue to a client that waits for it", () =>
    withListener({ fetch: echo }, async (openClient) => {
      const [head = "", body = ""] = post("abc", "Expect: 100-continue\r\n").split("\r\n\r\n");
      const client = openClient(`${head}\r\n\r\n`);
      await client.until(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
      client.socket.write(body);
      await client.until(/3:abc>/);
    }));

  it("sends a response of 16 MB whole to a client that reads slowly", async () => {
    const body = `<${"x".repeat(16 * 1024 * 1024)}>`;
    await withListener({ fetch: async () => new Response(body) }, async (openClient) => {
      const client = openClient(post(""));
      await client.until(/\r\n\r\n</);
      client.socket.pause();
      await new Promise((resolve) => setImmediate(resolve));
      client.socket.resume();
      await client.until(/>$/);
      assert.equal(client.text.length - client.text.indexOf("<"), body.length);
    });
  });

  it("sends no whole response with status 200 if the stream of its body fails", async () => {
    const fetch = async (): Promise<Response> => {
      let pulls = 0;
      const pull = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
        if (pulls++ === 0) controller.enqueue(utf8("first"));
        else controller.error(new Error("x"));
      };
      return new Response(new ReadableStream({ pull }, { highWaterMark: 0 }));
    };
    await withListener({ fetch }, async (openClient) => {
      const client = openClient(post(""));
      await client.waitForEnd();
      assert.ok(!/^HTTP\/1\.1 200 [^]*\r\n0\r\n\r\n$/.test(client.text), client.text);
    });
  });

  for (const [what, bodies] of [
    ["a request", [post(""), post("")]],
    ["pipelined requests that it has begun", [post("") + post("") + post("")]],
  ] as const)
    it(`aborts the signals of ${what}, when their client disconnects before the response`, async () => {
      let aborted = 0;
      let requests = 0;
      const fetch = (request: Request): Promise<Response> => {
        requests++;
        request.signal.addEventListener("abort", () => aborted++, { once: true });
        return new Promise(() => {});
      };
      await withListener({ fetch }, async (openClient) => {
        const [reset, ended] = bodies.map((body) => openClient(body));
        await waitFor("the requests", () => requests >= bodies.length || undefined);
        // Some runtimes begin all pipelined ones at once, some only the first.
        await new Promise((resolve) => setTimeout(resolve, 50));
        reset?.socket.destroy();
        ended?.socket.end();
        await waitFor("all aborts", () => aborted === requests || undefined);
      });
    });

  for (const when of ["during", "before"])
    it(`cancels the stream of a response whose client disconnects ${when} it`, async () => {
      let isCancelled = false;
      const started = Promise.withResolvers<void>();
      const disconnected = Promise.withResolvers<void>();
      const fetch = async ({ signal }: Request): Promise<Response> => {
        started.resolve();
        signal.addEventListener("abort", () => disconnected.resolve());
        if (when === "before") await disconnected.promise;
        const start = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
          if (when === "during") controller.enqueue(utf8(": x\n\n"));
        };
        const cancel = (): void => void (isCancelled = true);
        const headers = { "Content-Type": "text/event-stream" };
        return new Response(new ReadableStream({ start, cancel }), { headers });
      };
      await withListener({ fetch }, async (openClient) => {
        const client = openClient(post(""));
        if (when === "before") await started.promise;
        else await client.until(/\r\n\r\n/);
        client.socket.destroy();
        await waitFor("the cancel", () => isCancelled || undefined);
      });
    });

  it("says of an odd path that it was normalized, or leaves it as it was sent", async () => {
    const fetch: ListenOptions["fetch"] = async (request, { isPathAsSent }) =>
      new Response(`<${isPathAsSent} ${request.url.replace(/^\w+:\/\/[^/]*/, "")}>`);
    await withListener({ fetch, exactPaths: ["/mcp", "/mcp/:server"] }, async (openClient) => {
      const answerTo = async (path: string): Promise<string | undefined> => {
        const client = openClient(`GET ${path} HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n`);
        await client.waitForEnd();
        return client.text.match(/<[^>]*>/)?.[0];
      };
      for (const path of ["/mcp", "/mcp?a=b", "/mcp/one"]) {
        assert.equal(await answerTo(path), `<true ${path}>`);
      }
      for (const path of [
        "/x/../mcp",
        "/x/%2e%2e/mcp",
        "/./mcp",
        "/x\\..\\mcp",
        "/mcp/a/../b",
        "/mcp/a\\..\\b",
        "/mcp/a\\..\\..\\mcp",
        "/mcp/..",
      ])
        assert.doesNotMatch((await answerTo(path)) ?? "", /<true \/mcp(?:\/\w+)?>/, path);
    });
  });

  it("says whether a path below a fixed one was sent there", async () => {
    const fetch: ListenOptions["fetch"] = async (request, { isPathAsSent }) =>
      new Response(`<${isPathAsSent} ${request.url.replace(/^\w+:\/\/[^/]*/, "")}>`);
    const exactPaths = ["/healthz", "/p/:name", "/p/:name/*", "/ui", "/ui/*"];
    await withListener({ fetch, exactPaths }, async (openClient) => {
      const answerTo = async (path: string): Promise<string | undefined> => {
        const client = openClient(`GET ${path} HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n`);
        await client.waitForEnd();
        return client.text.match(/<[^>]*>/)?.[0];
      };
      for (const path of [
        "/healthz",
        "/p/a",
        "/p/a/",
        "/p/a/b/c?d=/../e",
        "/p/a%20b/c",
        "/ui",
        "/ui/",
        "/ui/x.js",
      ])
        assert.equal(await answerTo(path), `<true ${path}>`);
      for (const path of [
        "/mcp/%2e%2e/healthz",
        "/mcp/../healthz",
        "/mcp/.%2E/healthz",
        "/p/a/%2e%2e/b/c",
        "/p/a/../../healthz",
        "/p/a/%2e%2e/%2e%2e/ui/x",
        "/mcp/../ui/x.js",
        "/mcp/%2e%2e/p/a/b",
      ])
        assert.doesNotMatch(
          (await answerTo(path)) ?? "",
          /<true \/(?:healthz|ui|p\/[ab]\/[bc])/,
          path,
        );
    });
  });

  it("answers 500 without a reason if the application fails", () =>
    withListener({ fetch: () => Promise.reject(new Error("secret")) }, async (openClient) => {
      const client = openClient(post("", "Connection: close\r\n"));
      await client.waitForEnd();
      assert.match(client.text, /^HTTP\/1\.1 500 /);
      assert.ok(!client.text.includes("secret"));
    }));

  it("sends the last responses when it closes, and accepts no connection", async () => {
    const asked = Promise.withResolvers<(response: Response) => void>();
    const fetch = (): Promise<Response> => new Promise((resolve) => asked.resolve(resolve));
    await withListener({ fetch }, async (openClient, listener) => {
      const client = openClient(post(""));
      const respond = await asked.promise;
      const closed = listener.close(5000);
      respond(new Response("<last>"));
      await client.until(/<last>/);
      client.socket.destroy();
      await closed;
      const late = openClient(post(""));
      await late.waitForEnd();
      assert.equal(late.text, "");
    });
  });

  it("closes connections that are in use when its time is over", () =>
    withListener({ fetch: () => new Promise(() => {}) }, async (openClient, listener) => {
      const client = openClient(post(""));
      await client.until(/^/);
      await listener.close(10);
      await client.waitForEnd();
      assert.equal(client.text, "");
    }));
});
