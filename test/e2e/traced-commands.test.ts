import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { run } from "../harness/command.ts";
import { it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { type Manifest, scripted } from "../harness/manifest.ts";
import { type RawHttpRequest, RawHttpServer } from "../fixtures/raw-http-server.ts";

const TURNS = `
[[turns]]
when = "echo it"
toolCalls = [{ name = "s__echo", arguments = { path = "a" } }]

[[turns]]
text = "Done: {message}"
`;

const MANIFEST: Manifest = {
  servers: { s: scripted() },
  models: { main: { provider: "script", script: "turns.toml" } },
  agents: { main: { model: "main", instruction: "Work.", tools: "all" } },
};

/** A span in the JSON of OTLP. */
interface PostedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly attributes: readonly { readonly key: string; readonly value: object }[];
}

/** Runs commands whose traces go to a collector, whose answers `handle` gives. */
function withCollector(
  handle: (received: RawHttpRequest) => void,
  use: (folder: TestFolder, spans: () => readonly PostedSpan[]) => Promise<void>,
): Promise<void> {
  return withTestFolder(MANIFEST, async (folder) => {
    writeFileSync(join(folder.dir, "turns.toml"), TURNS);
    const collector = await RawHttpServer.start(handle);
    const endpoint = `http://127.0.0.1:${collector.port}`;
    const env = {
      ...folder.env,
      OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
    };
    const spans = (): readonly PostedSpan[] =>
      collector.requests.flatMap(({ body }) => {
        const { resourceSpans } = JSON.parse(body) as {
          resourceSpans: { scopeSpans: { spans: PostedSpan[] }[] }[];
        };
        return resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((one) => one.spans));
      });
    try {
      await use({ ...folder, env }, spans);
    } finally {
      collector.destroy();
    }
  });
}

const take = (received: RawHttpRequest): void => received.respond(200);

/** The names of a span's ancestors, itself first. */
function wayOf(all: readonly PostedSpan[], name: string): readonly string[] {
  const way: string[] = [];
  let span = all.find((one) => one.name === name);
  while (span !== undefined) {
    way.push(span.name);
    const { parentSpanId } = span;
    span = all.find(({ spanId }) => spanId === parentSpanId);
  }
  return way;
}

describe("a command with a hub in its own process", () => {
  it("sends the spans of a call and of its server before it ends", () =>
    withCollector(take, async (folder, spans) => {
      const { code, stderr } = await run(folder, "call", "s__echo", "word=hello");
      assert.deepEqual([code, stderr], [0, ""]);
      assert.deepEqual(wayOf(spans(), "tools/call echo"), [
        "tools/call echo",
        "tools/call s__echo",
      ]);
      assert.deepEqual(wayOf(spans(), "mcp.connect_attempt"), [
        "mcp.connect_attempt",
        "mcp.connect_loop",
        "mcp.add",
      ]);
      const list = spans().find(({ name, parentSpanId }) => name === "tools/list" && parentSpanId);
      const { value } = list?.attributes.find(({ key }) => key === "network.transport") ?? {};
      assert.deepEqual(value, { stringValue: "pipe" });
    }));

  it("sends the spans of a run, of its models' answers and of its tools in one trace", () =>
    withCollector(take, async (folder, spans) => {
      const args = ["run", "main", "echo it", "--approval", "never"] as const;
      const { code, stderr } = await run(folder, ...args);
      assert.equal(code, 0, stderr);
      assert.deepEqual(wayOf(spans(), "chat main"), ["chat main", "invoke_agent main"]);
      assert.deepEqual(wayOf(spans(), "tools/call echo"), [
        "tools/call echo",
        "tools/call s__echo",
        "invoke_agent main",
      ]);
      assert.equal(wayOf(spans(), "mcp.connect_attempt").length, 3);
    }));

  it("ends with its result, although the collector never answers", () =>
    withCollector(
      () => {},
      async (folder, spans) => {
        const { code, stdout } = await run(folder, "call", "s__echo", "word=hello");
        assert.equal(code, 0);
        assert.match(stdout, /hello/);
        assert.ok(spans().length > 0);
      },
    ));
});
