import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readTelemetrySettings } from "../../src/telemetry/settings.ts";

const ENDPOINT = "http://127.0.0.1:4318";

describe("the settings of telemetry", () => {
  it("send nothing without an endpoint", () => {
    const { tracesUrl, metricsUrl, sample, propagate, interval } = readTelemetrySettings(
      undefined,
      {},
    );
    assert.deepEqual([tracesUrl, metricsUrl], [undefined, undefined]);
    assert.deepEqual([sample, propagate, interval], [1, "always", 5000]);
  });

  it("have the URL of traces below the endpoint, or as its own variable has it", () => {
    const urlOf = (env: Record<string, string>): unknown =>
      readTelemetrySettings(undefined, env).tracesUrl;
    assert.equal(urlOf({ OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT }), `${ENDPOINT}/v1/traces`);
    assert.equal(
      urlOf({ OTEL_EXPORTER_OTLP_ENDPOINT: `${ENDPOINT}/base/?key=1` }),
      `${ENDPOINT}/base/v1/traces?key=1`,
    );
    const own = "http://127.0.0.1:1/own";
    assert.equal(
      urlOf({
        OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT,
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: own,
      }),
      own,
    );
    const disabled = { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_SDK_DISABLED: "true" };
    assert.equal(urlOf(disabled), undefined);
  });

  it("are those of the manifest where it says something, and of the environment elsewhere", () => {
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://env:4318",
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://env:4318/own",
      OTEL_EXPORTER_OTLP_HEADERS: "api-key=a%20b, x = y,broken,=no,bad=%",
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_SERVICE_NAME: "from-env",
      OTEL_RESOURCE_ATTRIBUTES: "service.name=other,team=a,host.name=h",
      OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
      OTEL_TRACES_SAMPLER_ARG: "0.25",
    };
    const ofEnv = readTelemetrySettings(undefined, env);
    assert.equal(ofEnv.tracesUrl, "http://env:4318/own");
    assert.deepEqual(ofEnv.headers, { "api-key": "a b", x: "y" });
    assert.equal(ofEnv.protocol, "http/json");
    assert.deepEqual(ofEnv.resource, { "service.name": "from-env", team: "a", "host.name": "h" });
    assert.deepEqual([ofEnv.sample, ofEnv.isParentBased], [0.25, true]);
    const input = {
      endpoint: ENDPOINT,
      headers: { a: "b" },
      protocol: "http/protobuf",
      resource: "mine",
      attributes: { team: "b" },
      sample: 0.5,
    } as const;
    const ofManifest = readTelemetrySettings(input, env);
    assert.equal(ofManifest.tracesUrl, `${ENDPOINT}/v1/traces`);
    assert.deepEqual(ofManifest.headers, { a: "b" });
    assert.equal(ofManifest.protocol, "http/protobuf");
    assert.deepEqual(ofManifest.resource, { "service.name": "mine", team: "b", "host.name": "h" });
    assert.deepEqual([ofManifest.sample, ofManifest.isParentBased], [0.5, true]);
    assert.deepEqual([...ofEnv.problems, ...ofManifest.problems], []);
  });

  it("follow the samplers of the environment", () => {
    const sampler = (name: string, arg = ""): readonly unknown[] => {
      const { sample, isParentBased, problems } = readTelemetrySettings(undefined, {
        OTEL_TRACES_SAMPLER: name,
        OTEL_TRACES_SAMPLER_ARG: arg,
      });
      return [sample, isParentBased, problems.length];
    };
    assert.deepEqual(sampler("always_on"), [1, false, 0]);
    assert.deepEqual(sampler("always_off"), [0, false, 0]);
    assert.deepEqual(sampler("traceidratio", "0.1"), [0.1, false, 0]);
    assert.deepEqual(sampler("parentbased_always_on"), [1, true, 0]);
    assert.deepEqual(sampler("parentbased_always_off"), [0, true, 0]);
    assert.deepEqual(sampler("parentbased_traceidratio"), [1, true, 0]);
    assert.deepEqual(sampler("traceidratio", "two"), [1, false, 1]);
    assert.deepEqual(sampler("jaeger_remote"), [1, true, 1]);
  });

  it("tell what cannot be used, without the value", () => {
    const { tracesUrl, problems } = readTelemetrySettings(undefined, {
      OTEL_EXPORTER_OTLP_ENDPOINT: "canary:4317",
      OTEL_EXPORTER_OTLP_PROTOCOL: "grpc",
    });
    assert.equal(tracesUrl, undefined);
    assert.equal(problems.length, 2);
    assert.doesNotMatch(problems.join(" "), /canary/);
  });

  it("leave out headers that HTTP does not allow, so that the others are sent", () => {
    const ofEnv = readTelemetrySettings(undefined, {
      OTEL_EXPORTER_OTLP_HEADERS: "Authorization: canary=c,x-line=a%0Acanary,x-ok=1%2C2",
    });
    const headers = { "x-ok": "1", "x-line": "canary\u0000", "canary ": "c" };
    const ofManifest = readTelemetrySettings({ endpoint: ENDPOINT, headers }, {});
    assert.deepEqual(ofEnv.headers, { "x-ok": "1,2" });
    assert.deepEqual(ofManifest.headers, { "x-ok": "1" });
    for (const { problems } of [ofEnv, ofManifest]) {
      assert.equal(problems.length, 2);
      assert.match(problems.join(" "), /the header x-line/);
      assert.doesNotMatch(problems.join(" "), /canary/);
    }
  });
});
