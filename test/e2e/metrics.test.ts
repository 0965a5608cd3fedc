import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe } from "node:test";
import { run, startOn, waitUntilFound } from "../harness/command.ts";
import { EXIT_LIMIT, it, withTestFolder } from "../harness/hub.ts";
import { scripted, toToml } from "../harness/manifest.ts";
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
