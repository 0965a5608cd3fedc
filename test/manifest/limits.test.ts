import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { formatCallCount, parseCallCount } from "../../src/manifest/call-limits.ts";
import { loadText } from "../fixtures/manifest/manifest-folder.ts";
import { isRunnable } from "../../src/manifest/manifest.ts";

const SERVER = '[servers.a]\ncommand = "x"\n';

describe("the limits of a manifest", () => {
  it("are read for the hub, its clients, a named client, a server and its tools", async () => {
    const { manifest } = await loadText(
      `[limits]\nmaxConcurrent = 200\nclient = { rate = "600/1m", maxConcurrent = 32 }
[[clients]]\nname = "ci"\ntoken = "t"\nlimits = { rate = " 60 / 1 m", burst = 20, quota = "5000/1d" }
${SERVER}limits = { maxConcurrent = 4, maxQueued = 0 }\ntools.limits = { "search_*" = { rate = "10/90s" } }`,
    );
    const minute = (count: number) => ({ count, per: 60_000 });
    assert.deepEqual(manifest.limits, {
      maxConcurrent: 200,
      client: { rate: minute(600), maxConcurrent: 32 },
    });
    const [client] = manifest.clients ?? [];
    assert.deepEqual(client?.kind === "client" && client.limits, {
      rate: minute(60),
      burst: 20,
      quota: { count: 5000, per: 86_400_000 },
    });
    const [server] = manifest.servers;
    assert.ok(server && isRunnable(server));
    assert.deepEqual(server.limits, { maxConcurrent: 4, maxQueued: 0 });
    assert.deepEqual(
      { ...server.tools.limits },
      { "search_*": { rate: { count: 10, per: 90_000 } } },
    );
  });

  it("are none by default, and none of a client's file", async () => {
    const { manifest } = await loadText(SERVER);
    assert.deepEqual(manifest.limits, {});
    const text =
      '{"limits": {"rate": "1/1m"}, "mcpServers": {"a": {"command": "x", "limits": {"rate": "1/1m"}}}}';
    const { manifest: other } = await loadText(text, "a.json");
    const [server] = other.servers;
    assert.ok(server && isRunnable(server));
    assert.deepEqual([other.limits, server.limits], [{}, undefined]);
  });

  it("have numbers of calls that are printed as they are read", () => {
    for (const text of ["1/1s", "60/1m", "5000/1d", "7/90s", "20000/30d", "1/1ms"]) {
      const parsed = parseCallCount(text);
      assert.ok(parsed, text);
      assert.equal(formatCallCount(parsed), text);
    }
    for (const text of [
      "",
      "60",
      "/1m",
      "60/",
      "0/1m",
      "-1/1m",
      "1.5/1m",
      "1e3/1m",
      "60/m",
      "60/0s",
      "60/1y",
      "9999999999/1s",
    ])
      assert.equal(parseCallCount(text), undefined, text);
  });
});
