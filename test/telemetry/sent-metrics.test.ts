import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { textOf } from "../../src/base/bytes.ts";
import { HubTelemetry } from "../../src/telemetry/hub-telemetry.ts";
import { readTelemetrySettings } from "../../src/telemetry/settings.ts";
import type { TelemetryInput } from "../../src/manifest/telemetry.ts";
import { callTool, initialize, ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

/** Sends the metrics of a hub with these settings to a collector that takes them. */
async function setUp(input: TelemetryInput) {
  const { hub, client } = setUpHub({ a: new ScriptedServer("x") });
  const clock = new VirtualClock();
  const posts: { readonly url: string; readonly body: Uint8Array; readonly type: string | null }[] =
    [];
  const telemetry = new HubTelemetry(readTelemetrySettings(input, {}), {
    clock,
    fetch: (url, init) => {
      const type = new Headers(init?.headers).get("Content-Type");
      posts.push({ url: String(url), body: init?.body as Uint8Array, type });
      return Promise.resolve(new Response());
    },
    instance: "one",
    wallNow: () => 1_700_000_000_000,
    random: () => 0,
    redact: (text) => text,
    warn: () => {},
  });
  telemetry.sendMetrics(hub.metrics);
  await initialize(client);
  await callTool(client, "a__x");
  return { hub, clock, posts, telemetry };
}

describe("the metrics of a hub for a collector", () => {
  const endpoint = "http://127.0.0.1:4318";

  it("are sent below the endpoint, with the resource, in both encodings", async () => {
    for (const [protocol, type] of [
      ["http/json", "application/json"],
      ["http/protobuf", "application/x-protobuf"],
    ] as const) {
      const input = { endpoint, protocol, metrics: true, traces: false, resource: "home" };
      const { clock, posts, telemetry } = await setUp({ ...input, interval: 1000 });
      await clock.advanceAsync(1000);
      // The encoder is loaded for the first post.
      for (let turns = 0; posts.length === 0 && turns < 1000; turns++) await clock.advanceAsync(0);
      await telemetry.close();
      assert.deepEqual(
        posts.map((post) => [post.url, post.type]),
        [
          [`${endpoint}/v1/metrics`, type],
          [`${endpoint}/v1/metrics`, type],
        ],
      );
      const text = textOf(posts[1]?.body ?? new Uint8Array());
      for (const word of ["home", "service.instance.id", "mcp.server.operation.duration", "a__x"])
        assert.ok(text.includes(word), word);
    }
  });

  it("are not sent unless the manifest says so, and name the hub for Prometheus as well", async () => {
    const { hub, clock, posts, telemetry } = await setUp({ endpoint, traces: false });
    await clock.advanceAsync(60_000);
    await telemetry.close();
    assert.deepEqual(posts, []);
    const { text } = await hub.readMetrics(null);
    assert.match(text, /^target_info\{.*service_instance_id="one".*\} 1$/m);
  });
});
