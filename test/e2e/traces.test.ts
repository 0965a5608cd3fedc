import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { startOn } from "../harness/command.ts";
import { EXIT_LIMIT, it, withTestFolder } from "../harness/hub.ts";
import { toToml } from "../harness/manifest.ts";
import { PYTHON, pythonScript, SKIP_WITHOUT_PYTHON } from "../harness/python.ts";
import { RawClient } from "../harness/raw-client.ts";
import { waitUntil } from "../harness/wait.ts";

const SCRIPTED = fileURLToPath(new URL("../fixtures/servers/scripted.mjs", import.meta.url));
const LIMIT = 30_000;
const TRACE = "0af7651916cd43dd8448eb211c80319c";
const PARENT = "b7ad6b7169203331";
const OTHER = "11111111111111111111111111111111";

/** A span as the official definitions read it. */
interface SunkSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: string;
  readonly attributes?: readonly {
    readonly key: string;
    readonly value: { readonly stringValue?: string; readonly intValue?: string };
  }[];
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly status?: { readonly code?: string; readonly message?: string };
  /** Only of the traced server: its variables of OpenTelemetry. */
  readonly variables?: readonly string[];
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
}

interface Post {
  readonly path: string;
  readonly type: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly read: {
    readonly resourceSpans: readonly {
      readonly resource: Pick<SunkSpan, "attributes">;
      readonly scopeSpans: readonly { readonly spans: readonly SunkSpan[] }[];
    }[];
  };
}

/** A server that ends at its first two starts. */
const FLAKY = `
const { existsSync, readFileSync, writeFileSync } = require("node:fs");
const [, file, server] = process.argv;
const starts = existsSync(file) ? Number(readFileSync(file, "utf8")) : 0;
writeFileSync(file, String(starts + 1));
if (starts < 2) process.exit(3);
process.argv.splice(1, 2, server);
import(server);
`;

function textOf(span: SunkSpan | Pick<SunkSpan, "attributes">, key: string): string | undefined {
  const { value } = span.attributes?.find((attribute) => attribute.key === key) ?? {};
  return value?.stringValue ?? value?.intValue;
}

// With the long interval, the collector gets all spans when the hub ends.
for (const [protocol, type, interval] of [
  ["http/protobuf", "application/x-protobuf", "100ms"],
  ["http/json", "application/json", "10m"],
] as const) {
  describe(`spans in ${protocol}`, { skip: SKIP_WITHOUT_PYTHON }, () => {
    it("reach a collector, with those of a traced server below them, and without secrets", () =>
      withTestFolder({ servers: {} }, async (folder) => {
        const { dir, env } = folder;
        const sink = new RawClient(PYTHON, [pythonScript("otlp_sink.py")], dir, env);
        const { port } = (await sink.until(LIMIT, "the sink", () => sink.lines[0]?.json)) as {
          port: number;
        };
        const served = join(dir, "spans.jsonl");
        const manifest = {
          servers: {
            traced: { command: PYTHON, args: [pythonScript("traced_server.py"), served] },
            flaky: {
              command: process.execPath,
              args: ["-e", FLAKY, join(dir, "starts"), SCRIPTED],
              reconnect: { base: "10ms" },
            },
          },
        };
        const telemetry = `[telemetry]
endpoint = "http://127.0.0.1:${port}"
protocol = "${protocol}"
headers = { Authorization = "Bearer \${env:SINK_TOKEN}" }
interval = "${interval}"
arguments = true
attributes = { "deployment.environment.name" = "test" }
`;
        writeFileSync(folder.config, `${telemetry}\n${toToml(manifest)}`);
        const own = {
          ...folder,
          env: { ...env, SINK_TOKEN: "canary-of-the-sink", OTEL_SERVICE_NAME: "from-env" },
        };
        const hub = startOn(own, "serve", "--http", "127.0.0.1:0");
        const url = await hub.until(LIMIT, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
        const posts = (): readonly Post[] => sink.lines.slice(1).map(({ json }) => json as Post);
        const spans = (): readonly SunkSpan[] =>
          posts().flatMap(({ read }) =>
            read.resourceSpans.flatMap(({ scopeSpans }) =>
              scopeSpans.flatMap((scope) => scope.spans),
            ),
          );
        const headers = {
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
        };
        const post = (body: object, more: Readonly<Record<string, string>>): Promise<Response> =>
          fetch(url, {
            method: "POST",
            headers: { ...headers, ...more },
            body: JSON.stringify({ jsonrpc: "2.0", ...body }),
          });
        const clientInfo = { name: "c", version: "1" };
        const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
        const opened = await post({ id: 1, method: "initialize", params }, {});
        const session = opened.headers.get("mcp-session-id") ?? "";
        const inSession = { "Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25" };
        await waitUntil("the tool", async () => {
          const listed = await post({ id: "list", method: "tools/list" }, inSession);
          const text = await listed.text();
          return (text.includes("traced__add") && text.includes("flaky__echo")) || undefined;
        });
        const call = async (id: number, _meta: object, more: Readonly<Record<string, string>>) => {
          const args = { a: 1, b: 2, key: "canary-of-the-sink" };
          const name = "traced__add";
          const body = { id, method: "tools/call", params: { name, arguments: args, _meta } };
          const answer = await post(body, { ...inSession, ...more });
          await answer.text();
        };
        const traceparent = `00-${TRACE}-${PARENT}-01`;
        const linked = { traceparent: `00-${OTHER}-${PARENT}-01` };
        await call(3, { traceparent }, linked);
        await call(4, {}, linked);
        const named = (name: string): readonly SunkSpan[] =>
          spans().filter((span) => span.name === name);
        hub.signal("SIGTERM");
        await hub.waitForExit(EXIT_LIMIT);
        await waitUntil("the spans", async () => named("tools/call add").length === 2 || undefined);
        for (const { path, type: sent, headers: got } of posts()) {
          assert.deepEqual([path, sent], ["/v1/traces", type]);
          assert.equal(got["authorization"], "Bearer canary-of-the-sink");
        }
        const [first] = posts();
        const resource = first?.read.resourceSpans[0]?.resource ?? {};
        assert.equal(textOf(resource, "service.name"), "from-env");
        assert.equal(textOf(resource, "deployment.environment.name"), "test");

        const [third, fourth] = ["3", "4"].map((id) =>
          named("tools/call traced__add").find((span) => textOf(span, "jsonrpc.request.id") === id),
        );
        assert.ok(third && fourth);
        assert.deepEqual([third.traceId, third.parentSpanId], [TRACE, PARENT]);
        assert.deepEqual(
          third.links?.map((link) => [link.traceId, link.spanId]),
          [[OTHER, PARENT]],
        );
        assert.deepEqual([fourth.traceId, fourth.parentSpanId], [OTHER, PARENT]);
        assert.equal(fourth.links, undefined);
        assert.equal(third.kind, "SPAN_KIND_SERVER");
        assert.equal(textOf(third, "client.address"), "127.0.0.1");
        assert.equal(textOf(third, "network.transport"), "tcp");
        assert.match(textOf(third, "mcp.session.id") ?? "", /^[0-9a-f]{32}$/);
        assert.match(textOf(third, "gen_ai.tool.call.arguments") ?? "", /"a":1/);
        assert.ok(BigInt(third.endTimeUnixNano) >= BigInt(third.startTimeUnixNano));
        assert.ok(Math.abs(Number(third.startTimeUnixNano) / 1e6 - Date.now()) < 10 * 60_000);

        const attempts = named("tools/call add");
        const below = (span: SunkSpan): SunkSpan | undefined =>
          attempts.find(({ parentSpanId }) => parentSpanId === span.spanId);
        const attempt = below(third);
        assert.ok(attempt);
        assert.equal(attempt.kind, "SPAN_KIND_CLIENT");
        assert.equal(textOf(attempt, "network.transport"), "pipe");
        // The server's own spans are below the span of the hub's request to it.
        const theirs = readFileSync(served, "utf8")
          .split("\n")
          .flatMap((line) => (line === "" ? [] : [JSON.parse(line) as SunkSpan]));
        assert.ok(
          theirs.some(
            ({ traceId, parentSpanId }) => traceId === TRACE && parentSpanId === attempt.spanId,
          ),
          JSON.stringify(theirs),
        );
        assert.ok(theirs.some(({ name, traceId }) => name === "adding" && traceId === OTHER));
        // Servers get no variables of OpenTelemetry.
        for (const { variables } of theirs) assert.deepEqual(variables, []);

        const loop = named("mcp.connect_loop").find(
          (span) => textOf(span, "toolmux.server") === "flaky",
        );
        const tries = named("mcp.connect_attempt")
          .filter(({ parentSpanId }) => parentSpanId === loop?.spanId)
          .map((span) => [
            textOf(span, "toolmux.attempt"),
            span.status?.code === "STATUS_CODE_ERROR",
          ]);
        assert.deepEqual(tries, [
          ["1", true],
          ["2", true],
          ["3", false],
        ]);
        const added = named("mcp.add").find((span) => textOf(span, "toolmux.server") === "flaky");
        assert.equal(loop?.parentSpanId, added?.spanId);

        const text = JSON.stringify(posts().map(({ read }) => read));
        assert.doesNotMatch(text, /canary/);
        assert.ok(!text.includes(session));
        sink.signal("SIGTERM");
        await sink.waitForExit(EXIT_LIMIT);
      }));
  });
}
