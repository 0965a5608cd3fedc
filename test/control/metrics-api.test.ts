import assert from "node:assert/strict";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import process from "node:process";
import { describe } from "node:test";
import { findRunningHubs } from "../../src/control/running-hubs.ts";
import { callTool } from "../fixtures/memory-hub.ts";
import { connect, test } from "./controlled-hub.ts";

describe("metrics on the control socket", () => {
  test("are always there, beside the API, in both formats", async (setup) => {
    await connect(setup);
    await callTool(setup.client, "a__x");
    const env = { TOOLMUX_RUN_DIR: setup.folder, HOME: setup.folder };
    const [hub] = await findRunningHubs({ env, platform: process.platform });
    const ask = (accept: string): Promise<readonly [string | undefined, string]> =>
      new Promise((resolve, reject) => {
        const options = { socketPath: hub?.socket, path: "/metrics", headers: { accept } };
        request(options, (response) => {
          text(response).then((body) => resolve([response.headers["content-type"], body]), reject);
        })
          .on("error", reject)
          .end();
      });
    const [type, plain] = await ask("*/*");
    assert.equal(type, "text/plain; version=0.0.4; charset=utf-8");
    const labels = 'method="tools/call",tool="a__x",server="a",client="t"';
    assert.ok(plain.includes(`mcp_server_operation_duration_seconds_count{${labels}} 1\n`), plain);
    assert.match(plain, /^toolmux_servers\{state="connected"\} 2$/m);
    const [openType, open] = await ask("application/openmetrics-text");
    assert.equal(openType, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert.ok(open.endsWith("# EOF\n"));
  });
});
