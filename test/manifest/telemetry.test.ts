import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { loadText } from "../fixtures/manifest/manifest-folder.ts";

const SERVER = '[servers.a]\ncommand = "x"\n';

describe("the table telemetry of a manifest", () => {
  it("is kept as written, with the folder of its file", async () => {
    const { manifest } = await loadText(
      `${SERVER}[telemetry]\nendpoint = "\${env:COLLECTOR}"\nprotocol = "http/json"
headers = { Authorization = "Bearer \${secret:otel}" }
sample = 0.5\ninterval = "2s"\npropagate = "parent"\nattributes = { "deployment.environment.name" = "home" }`,
    );
    const { input, baseDir } = manifest.telemetry ?? assert.fail("there is no telemetry");
    const { headers, attributes, ...others } = input;
    assert.deepEqual(others, {
      endpoint: "${env:COLLECTOR}",
      protocol: "http/json",
      sample: 0.5,
      interval: 2000,
      propagate: "parent",
    });
    assert.deepEqual({ ...headers }, { Authorization: "Bearer ${secret:otel}" });
    assert.deepEqual({ ...attributes }, { "deployment.environment.name": "home" });
    assert.notEqual(baseDir, "");
  });

  it("is absent by default", async () => {
    const { manifest } = await loadText(SERVER);
    assert.equal(manifest.telemetry, undefined);
  });
});
