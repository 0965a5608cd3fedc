import assert from "node:assert/strict";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { mix } from "../soak/http-mixture.ts";
import { returns } from "../soak/returns.ts";
import { executable, it } from "../harness/hub.ts";
import { withHttpServe } from "../harness/serve.ts";

const SERVER = fileURLToPath(new URL("../soak/everything-server.ts", import.meta.url));
const NAMES = ["a", "b", "c", "d"];
const LOAD = { servers: NAMES, clients: 20, kills: 4 };

/** Servers whose every answer says who gave it, and to what. */
function serverEntry(name: string): { command: string; args: string[] } {
  return { command: process.execPath, args: [SERVER, name] };
}

describe("the HTTP face under load", () => {
  it("gives each of 20 clients its own answers, or says which server was killed, while one after the other is", () =>
    withHttpServe(
      { servers: Object.fromEntries(NAMES.map((name) => [name, serverEntry(name)])) },
      async ({ target }) => {
        const { requests, faults, examples } = await mix(new URL(target), LOAD);
        assert.deepEqual({ faults, examples }, { faults: 0, examples: [] });
        assert.ok(requests > 100, `${requests} requests`);
      },
    ));
});

describe("servers over HTTP that are killed and come back under load", () => {
  it("lose no call, run none twice, and are used again", async () => {
    const report = await returns({
      executable: executable(),
      duration: 3000,
      every: 1500,
      down: 700,
      flight: 16,
      print: () => {},
    });
    assert.deepEqual(report.faults, []);
    assert.ok(report.kills >= 2 && report.done > 50, JSON.stringify(report));
    // `npm run soak` shows the times on a machine that is not busy.
    assert.ok(report.back.worst < 10_000, `${report.back.worst} ms`);
  });
});
