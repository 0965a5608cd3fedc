import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe } from "node:test";
import { run, startHub, startOn, waitUntilFound } from "../harness/command.ts";
import { closeClient, EXIT_LIMIT, it, itWith, withTestFolder } from "../harness/hub.ts";
import { scripted, toToml } from "../harness/manifest.ts";
import { PYTHON, pythonScript, SKIP_WITHOUT_PYTHON } from "../harness/python.ts";
import { RawClient } from "../harness/raw-client.ts";
import { waitUntil } from "../harness/wait.ts";

const SERVERS = toToml({ servers: { s: scripted() } });
const TOKENS = `[hub]
httpToken = "own-token"

[[clients]]
name = "ci"
token = "ci-token"

`;
const PROMETHEUS = "[telemetry]\nprometheus = true\n\n";

describe("metrics of a hub over HTTP", () => {
  it("count a call, are for the hub's own token alone, and are gone when the manifest no longer has them", () =>
    withTestFolder(TOKENS + PROMETHEUS + SERVERS, async (folder) => {
      const hub = startOn(folder, "serve", "--http", "127.0.0.1:0");
      const url = await hub.until(20_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
      await waitUntilFound(folder, hub.pid);
      assert.equal((await run(folder, "call", "s__echo")).code, 0);
      const ask = async (token?: string) => {
        const headers = { ...(token !== undefined && { Authorization: `Bearer ${token}` }) };
        const response = await fetch(new URL("/metrics", url), { headers });
        return { status: response.status, text: await response.text() };
      };
      assert.equal((await ask()).status, 401);
      assert.equal((await ask("ci-token")).status, 403);
      const { status, text } = await ask("own-token");
      assert.equal(status, 200);
      const labels = 'method="tools/call",tool="s__echo",server="s",client="toolmux"';
      assert.ok(
        text.includes(`\nmcp_server_operation_duration_seconds_count{${labels}} 1\n`),
        text,
      );
      assert.match(text, /^toolmux_servers\{state="connected"\} 1$/m);
      writeFileSync(folder.config, TOKENS + SERVERS);
      await waitUntil("404", async () => (await ask("own-token")).status === 404 || undefined);
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    }));
});

/** A post of metrics as the official definitions read it. */
interface Post {
  readonly path: string;
  readonly read: {
    readonly resourceMetrics: readonly {
      readonly resource: { readonly attributes: readonly Attribute[] };
      readonly scopeMetrics: readonly { readonly metrics: readonly SunkMetric[] }[];
    }[];
  };
}

interface Attribute {
  readonly key: string;
  readonly value: { readonly stringValue?: string };
}

interface SunkMetric {
  readonly name: string;
  readonly unit: string;
  readonly histogram?: {
    readonly aggregationTemporality: string;
    readonly dataPoints: readonly {
      readonly attributes: readonly Attribute[];
      readonly count: string;
      readonly bucketCounts: readonly string[];
      readonly explicitBounds: readonly number[];
    }[];
  };
}

const texts = (attributes: readonly Attribute[]): Readonly<Record<string, unknown>> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue]));

for (const protocol of ["http/protobuf", "http/json"])
  describe(`metrics in ${protocol}`, () => {
    const test = itWith({ skip: SKIP_WITHOUT_PYTHON });
    test("reach a collector that reads them by the official definitions, while spans are switched off", () =>
      withTestFolder({ servers: {} }, async (folder) => {
        const sink = new RawClient(PYTHON, [pythonScript("otlp_sink.py")], folder.dir, folder.env);
        const { port } = (await sink.until(30_000, "the sink", () => sink.lines[0]?.json)) as {
          port: number;
        };
        const telemetry = `[telemetry]
endpoint = "http://127.0.0.1:${port}"
protocol = "${protocol}"
traces = false
metrics = true
interval = "100ms"
attributes = { "deployment.environment.name" = "test" }

`;
        writeFileSync(folder.config, telemetry + SERVERS);
        const hub = await startHub(folder);
        await hub.request("tools/call", { name: "s__echo", arguments: {} });
        const posts = (): readonly Post[] => sink.lines.slice(1).map(({ json }) => json as Post);
        const found = (): SunkMetric | undefined =>
          posts()
            .flatMap(({ read }) => read.resourceMetrics[0]?.scopeMetrics[0]?.metrics ?? [])
            .findLast(
              ({ name, histogram }) =>
                name === "mcp.client.operation.duration" &&
                histogram?.dataPoints.some(
                  ({ attributes }) => texts(attributes)["gen_ai.tool.name"] === "echo",
                ),
            );
        const metric = await sink.until(30_000, "the call", found);
        await closeClient(hub);
        sink.signal("SIGTERM");
        await sink.waitForExit(EXIT_LIMIT);
        assert.deepEqual([...new Set(posts().map(({ path }) => path))], ["/v1/metrics"]);
        const resource = texts(posts()[0]?.read.resourceMetrics[0]?.resource.attributes ?? []);
        assert.equal(resource["service.name"], "toolmux");
        assert.equal(resource["deployment.environment.name"], "test");
        assert.equal(metric.unit, "s");
        const { histogram } = metric;
        assert.equal(histogram?.aggregationTemporality, "AGGREGATION_TEMPORALITY_CUMULATIVE");
        const point = histogram.dataPoints.find(
          ({ attributes }) => texts(attributes)["gen_ai.tool.name"] === "echo",
        );
        assert.equal(point?.count, "1");
        assert.deepEqual([point.bucketCounts.length, point.explicitBounds.length], [15, 14]);
        assert.deepEqual(texts(point.attributes), {
          "mcp.method.name": "tools/call",
          "gen_ai.operation.name": "execute_tool",
          "gen_ai.tool.name": "echo",
          "toolmux.server": "s",
          "toolmux.client": texts(point.attributes)["toolmux.client"],
        });
      }));
  });
