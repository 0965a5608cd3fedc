import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSocketServer, type AddressInfo, type Server } from "node:net";
import { describe, it } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { HubTelemetry } from "../../src/telemetry/hub-telemetry.ts";
import { readTelemetrySettings } from "../../src/telemetry/settings.ts";
import { makeFetch } from "../../src/transport/http-client/fetch.ts";

interface Post {
  readonly path: string | undefined;
  readonly type: string | undefined;
  readonly authorization: string | undefined;
  readonly body: Buffer;
}

async function listenOn(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

/** A collector over HTTP, and telemetry that sends to it. */
async function setUp(
  protocol: "http/protobuf" | "http/json",
  answer: (response: ServerResponse, at: number) => void,
) {
  const posts: Post[] = [];
  const server = createServer((request: IncomingMessage, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { url: path, headers } = request;
      const body = Buffer.concat(chunks);
      posts.push({
        path,
        type: headers["content-type"],
        authorization: headers.authorization,
        body,
      });
      answer(response, posts.length);
    });
  });
  const port = await listenOn(server);
  const { telemetry, warnings } = open(port, protocol);
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve());
    });
  return { telemetry, warnings, posts, close };
}

function open(port: number, protocol: "http/protobuf" | "http/json") {
  const warnings: string[] = [];
  const input = {
    endpoint: `http://127.0.0.1:${port}/base`,
    protocol,
    headers: { Authorization: "Bearer secret" },
    interval: 60_000,
  };
  const telemetry = new HubTelemetry(readTelemetrySettings(input, {}), {
    clock: systemClock,
    fetch: makeFetch({ ca: undefined, env: {} }),
    instance: "i",
    wallNow: Date.now,
    random: Math.random,
    redact: (text) => text,
    warn: (text) => void warnings.push(text),
  });
  return { telemetry, warnings };
}

function endSpan({ tracer }: HubTelemetry): void {
  assert.ok(tracer);
  tracer.start("mcp.add", "internal", { "toolmux.server": "é" }, undefined).end();
}

describe("a collector over a socket", () => {
  it("gets JSON with the resource, the scope and the span", async () => {
    const { telemetry, posts, close } = await setUp("http/json", (response) => response.end("{}"));
    endSpan(telemetry);
    await telemetry.close(10_000);
    await close();
    const [post] = posts;
    assert.ok(post);
    assert.deepEqual(
      [post.path, post.type, post.authorization],
      ["/base/v1/traces", "application/json", "Bearer secret"],
    );
    const { resourceSpans } = JSON.parse(post.body.toString("utf8"));
    const [{ resource, scopeSpans }] = resourceSpans;
    const [{ scope, schemaUrl, spans }] = scopeSpans;
    assert.ok(JSON.stringify(resource).includes('"service.name"'));
    assert.equal(scope.name, "toolmux");
    assert.match(schemaUrl, /^https:\/\/opentelemetry\.io\/schemas\/\d/);
    assert.equal(spans[0].name, "mcp.add");
    assert.deepEqual(spans[0].attributes, [{ key: "toolmux.server", value: { stringValue: "é" } }]);
  });

  it("gets protobuf, whose texts are in UTF-8", async () => {
    const { telemetry, posts, close } = await setUp("http/protobuf", (response) => response.end());
    endSpan(telemetry);
    await telemetry.close(10_000);
    await close();
    assert.equal(posts[0]?.type, "application/x-protobuf");
    assert.ok(posts[0].body.includes("mcp.add") && posts[0].body.includes("é"));
  });

  it("that answers slowly delays the end of the hub by no more than its limit", async () => {
    const { telemetry, posts, close } = await setUp("http/json", () => {});
    endSpan(telemetry);
    await telemetry.close(300);
    assert.ok(posts.length <= 1);
    await close();
  });

  it("whose error never ends is read for its beginning alone", async () => {
    const { telemetry, warnings, close } = await setUp("http/json", (response) => {
      response.writeHead(400);
      const write = (): void => {
        while (!response.destroyed && response.write("no such key ".repeat(1000)));
      };
      response.on("drain", write);
      write();
    });
    endSpan(telemetry);
    await telemetry.close(10_000);
    await close();
    assert.equal(warnings.length, 1);
    const [warning = ""] = warnings;
    assert.match(warning, /status 400: no such key no such key/);
    assert.ok(warning.length < 400, warning);
  });

  it("that is away, or answers with garbage, loses nothing but spans; one warning names the cause", async () => {
    const garbage = createSocketServer((socket) => {
      socket.on("error", () => {});
      socket.resume();
      socket.end("no HTTP at all\r\n\r\n");
    });
    const port = await listenOn(garbage);
    const odd = open(port, "http/json");
    endSpan(odd.telemetry);
    await odd.telemetry.close(10_000);
    assert.equal(odd.warnings.length, 1);
    await new Promise((resolve) => garbage.close(resolve));
    // Nobody listens at this port, which only a service of the system may have.
    const away = open(1, "http/json");
    endSpan(away.telemetry);
    await away.telemetry.close(10_000);
    assert.equal(away.warnings.length, 1);
    assert.match(away.warnings[0] ?? "", /takes no spans at present: /);
  });
});
