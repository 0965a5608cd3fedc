import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openTelemetry } from "../../src/host/telemetry.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import type { TelemetryInput } from "../../src/manifest/telemetry.ts";
import { manifestFor, ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";

/** Nobody listens at this port, which only a service of the system may have. */
const NOWHERE = "http://127.0.0.1:1";

function manifestWith(input?: TelemetryInput): Manifest {
  const telemetry = input && { input, file: "/nowhere/toolmux.toml", baseDir: "/nowhere" };
  return { ...manifestFor({}, {}), ...(telemetry && { telemetry }) };
}

async function open(manifest: Manifest, env: Record<string, string> = {}) {
  const warnings: string[] = [];
  const secrets: string[] = [];
  const telemetry = await openTelemetry(manifest, {
    context: { env, platform: "linux" },
    warn: (text) => void warnings.push(text),
    redact: (text) => text,
    addSecrets: (more) => void secrets.push(...more),
  });
  const { hub } = setUpHub({ a: new ScriptedServer("x") });
  telemetry.attach(hub);
  return { telemetry, hub, warnings, secrets };
}

describe("the telemetry of a hub", () => {
  it("fills in what its endpoint and headers refer to, and keeps these values out of logs", async () => {
    const input = {
      endpoint: "${env:COLLECTOR}",
      headers: { Authorization: "Bearer ${env:TOKEN}" },
    };
    const env = { COLLECTOR: "http://user:pass-word@127.0.0.1:1", TOKEN: "canary" };
    const { telemetry, hub, secrets } = await open(manifestWith(input), env);
    const { tracesUrl, headers } = telemetry.current.settings;
    assert.equal(tracesUrl, "http://user:pass-word@127.0.0.1:1/v1/traces");
    assert.deepEqual(headers, { Authorization: "Bearer canary" });
    for (const secret of ["canary", "pass-word"]) assert.ok(secrets.includes(secret), secret);
    assert.ok(hub.tracer);
    await telemetry.close();
  });

  it("takes a password with a percent sign that begins no escape", async () => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://user:50%zz%40@127.0.0.1:1" };
    const { telemetry, hub, secrets } = await open(manifestWith(), env);
    assert.ok(hub.tracer);
    assert.ok(secrets.includes("50%zz@"), secrets.join(" "));
    await telemetry.close();
  });

  it("warns of what cannot be filled in, and sends nothing, also not what the environment says", async () => {
    const input = { endpoint: NOWHERE, headers: { Authorization: "${env:MISSING}" } };
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: NOWHERE };
    const { telemetry, hub, warnings } = await open(manifestWith(input), env);
    assert.equal(hub.tracer, undefined);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? "", /MISSING/);
    await telemetry.close();
  });

  it("keeps its resource in what scrapers read, although a header or the endpoint cannot be filled in", async () => {
    for (const unfilled of [
      { endpoint: NOWHERE, headers: { Authorization: "${env:MISSING}" } },
      { endpoint: "http://${env:MISSING}" },
    ]) {
      const attributes = { "deployment.environment.name": "home" };
      const input = { ...unfilled, attributes, resource: "mine", prometheus: true, metrics: true };
      const env = {
        OTEL_EXPORTER_OTLP_ENDPOINT: NOWHERE,
        OTEL_EXPORTER_OTLP_HEADERS: "Authorization=canary",
        OTEL_RESOURCE_ATTRIBUTES: "host.name=h",
      };
      const { telemetry, hub, warnings } = await open(manifestWith(input), env);
      assert.equal(hub.tracer, undefined);
      assert.equal(telemetry.current.settings.metricsUrl, undefined);
      assert.equal(warnings.length, 1);
      const { text } = await hub.readMetrics(null);
      const line = text.split("\n").find((one) => one.startsWith("target_info{")) ?? "";
      for (const part of ['service_name="mine"', 'host_name="h"', '_environment_name="home"'])
        assert.ok(line.includes(part), line);
      await telemetry.close();
    }
  });

  it("follows the manifest: it begins, ends, and goes on with the same tracer if nothing changes", async () => {
    const { telemetry, hub } = await open(manifestWith({}));
    const tracer = () => hub.tracer;
    assert.equal(tracer(), undefined);
    await telemetry.configure(manifestWith({ endpoint: NOWHERE }));
    const first = tracer();
    assert.ok(first);
    await telemetry.configure(manifestWith({ endpoint: NOWHERE }));
    assert.equal(tracer(), first);
    await telemetry.configure(manifestWith({ endpoint: NOWHERE, sample: 0.5 }));
    assert.equal(tracer()?.settings.sample, 0.5);
    await telemetry.configure(manifestWith({ endpoint: NOWHERE, traces: false }));
    assert.equal(tracer(), undefined);
    await telemetry.configure(manifestWith());
    assert.equal(tracer(), undefined);
    await telemetry.close();
  });
});
